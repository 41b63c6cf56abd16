/* Home groups inside a mix. Position p is of group p mod H, as everywhere (order/order.h), and a
 * sample is of the group of the place that it has in its source's own order. A frame has as many
 * samples of each source as without groups; only which of its positions has which differs:
 *
 *   positions of group h   0 ............. n            n, m: about units / H
 *   draws of group h       0 ................. m        of all sources, one after the other
 *
 *   n <= m: a keyed permutation of m; what it puts after n is in excess
 *   n >  m: a keyed permutation of n; where it points after m is a hole
 *
 * As many are in excess as there are holes: another keyed permutation fills them. Each source's
 * draws of a frame share out to the groups but for one each, so few are in excess, and all else is
 * at home. The number of nodes is nowhere in it. */
#include "order/mix/mix_private.h"

/* A source's part of a frame. */
struct share {
    uint64_t first; /* its first index there, over all of its run */
    uint64_t count, drawn;
};

struct frame {
    const struct stk_mix *mix;
    uint64_t first, units, key; /* first: its position */
    struct share shares[STK_MIX_SOURCES_MAX];
};

/* A group in a frame. */
struct part {
    uint64_t group, offset; /* offset: of its first position */
    uint64_t places, draws; /* n, m */
    struct stk_permutation deal;
};

/* The source's first index in the frame. */
static uint64_t first_of(const struct stk_mix_segment *segment, uint32_t source, uint64_t number)
{
    if (number == segment->frames) {
        return segment->rest_before[source];
    }
    return segment->before[source] + stk_mix_units_up_to(segment, source, number) -
           (source ? stk_mix_units_up_to(segment, source - 1, number) : 0);
}

static void frame_open(struct frame *frame, const struct stk_mix *mix,
                       const struct stk_mix_segment *segment, uint64_t number)
{
    uint64_t drawn = 0;

    frame->mix = mix;
    frame->first = segment->first + stk_mix_frame_begin(segment, number);
    frame->units = stk_mix_frame_units(segment, number);
    frame->key = stk_mix_frame_key(mix, segment, number);
    for (uint32_t i = 0; i < mix->source_count; i++) {
        uint64_t end = stk_mix_frame_units_up_to(segment, i, number);

        frame->shares[i] =
            (struct share){.first = first_of(segment, i, number) + stk_mix_earlier_samples(mix, i),
                           .count = end - drawn,
                           .drawn = drawn};
        drawn = end;
    }
}

/* Returns how many of `count` consecutive indexes from 0 on belong to the group. */
static inline uint64_t of_group(const struct stk_mix *mix, uint64_t count, uint64_t group)
{
    struct stk_quotient at = stk_divide(count, &mix->groups);

    return at.quotient + (group < at.remainder);
}

/* Does the same for a source's run, whose epochs each begin at group 0. */
static inline uint64_t of_run(const struct stk_mix *mix, uint32_t source, uint64_t index,
                              uint64_t group)
{
    struct stk_quotient at = stk_divide(index, &mix->samples[source]);
    uint64_t count = of_group(mix, at.remainder, group);

    return at.quotient == 0
               ? count
               : count + at.quotient * of_group(mix, mix->samples[source].number, group);
}

static inline uint64_t draws_of(const struct frame *frame, uint32_t source, uint64_t group)
{
    const struct share *share = &frame->shares[source];

    return share->count == 0 ? 0
                             : of_run(frame->mix, source, share->first + share->count, group) -
                                   of_run(frame->mix, source, share->first, group);
}

static void part_open(struct part *part, const struct frame *frame, uint64_t group)
{
    uint64_t groups = frame->mix->groups.number;
    uint64_t at = stk_divide(frame->first, &frame->mix->groups).remainder;

    part->group = group;
    part->offset = group >= at ? group - at : group + groups - at;
    part->places =
        frame->units > part->offset
            ? stk_divide(frame->units - 1 - part->offset, &frame->mix->groups).quotient + 1
            : 0;
    part->draws = 0;
    for (uint32_t i = 0; i < frame->mix->source_count; i++) {
        part->draws += draws_of(frame, i, group);
    }
}

static void part_deal(struct part *part, const struct frame *frame)
{
    stk_permutation_init(&part->deal, stk_random_key(frame->key, part->group + 1),
                         stk_max(part->places, part->draws));
}

static uint64_t holes_of(const struct part *part)
{
    return part->places > part->draws ? part->places - part->draws : 0;
}

static uint64_t excess_of(const struct part *part)
{
    return part->draws > part->places ? part->draws - part->places : 0;
}

/* Counts the holes of all groups, and those of the groups before `group`; also the excess draws.
 * O(groups times sources), but rarely called. */
struct spare {
    uint64_t all, holes, excess;
};

static struct spare spare_before(const struct frame *frame, uint64_t group)
{
    struct spare spare = {0};
    struct part part;

    for (uint64_t h = 0; h < frame->mix->groups.number; h++) {
        part_open(&part, frame, h);
        spare.all += holes_of(&part);
        spare.holes += h < group ? holes_of(&part) : 0;
        spare.excess += h < group ? excess_of(&part) : 0;
    }
    return spare;
}

/* The group that has the number-th hole (or excess one), and the number of it in its group. */
static uint64_t find_spare_position(const struct frame *frame, uint64_t number,
                                    uint64_t (*count_of)(const struct part *part),
                                    struct part *part_out)
{
    for (uint64_t h = 0; h < frame->mix->groups.number; h++) {
        part_open(part_out, frame, h);
        if (number < count_of(part_out)) {
            break;
        }
        number -= count_of(part_out);
    }
    part_deal(part_out, frame);
    return number;
}

static void fill_open(struct stk_permutation *fill, const struct frame *frame, uint64_t holes)
{
    stk_permutation_init(fill, stk_random_key(frame->key, 0), holes);
}

/* The number-th draw of a group, as the frame counts its draws. */
static uint64_t draw_at(const struct frame *frame, const struct part *part, uint64_t number)
{
    const struct stk_mix *mix = frame->mix;
    uint64_t own, epoch;
    uint32_t source = 0;

    for (uint64_t draws; number >= (draws = draws_of(frame, source, part->group)); source++) {
        number -= draws;
    }
    number += of_run(mix, source, frame->shares[source].first, part->group);
    own = of_group(mix, mix->samples[source].number, part->group);
    epoch = number / own;
    return frame->shares[source].drawn + epoch * mix->samples[source].number + part->group +
           number % own * mix->groups.number - frame->shares[source].first;
}

uint64_t stk_mix_group_draw(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                            uint64_t number, uint64_t offset)
{
    struct stk_permutation fill;
    struct frame frame;
    struct spare spare;
    struct part part;
    uint64_t at;

    frame_open(&frame, mix, segment, number);
    part_open(&part, &frame, stk_divide(frame.first + offset, &mix->groups).remainder);
    part_deal(&part, &frame);
    at = stk_permutation_apply(&part.deal, stk_divide(offset, &mix->groups).quotient);
    if (at < part.draws) {
        return draw_at(&frame, &part, at);
    }
    spare = spare_before(&frame, part.group);
    fill_open(&fill, &frame, spare.all);
    at = stk_permutation_apply(&fill, spare.holes + at - part.draws);
    at = find_spare_position(&frame, at, excess_of, &part);
    return draw_at(&frame, &part, stk_permutation_apply(&part.deal, part.places + at));
}

uint64_t stk_mix_group_offset(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                              uint64_t number, uint64_t drawn)
{
    struct stk_permutation fill;
    uint64_t index, at = 0;
    struct frame frame;
    struct spare spare;
    struct part part;
    uint32_t source = 0;

    frame_open(&frame, mix, segment, number);
    while (drawn >= frame.shares[source].drawn + frame.shares[source].count) {
        source++;
    }
    index = frame.shares[source].first + drawn - frame.shares[source].drawn;
    part_open(
        &part, &frame,
        stk_divide(stk_divide(index, &mix->samples[source]).remainder, &mix->groups).remainder);
    for (uint32_t i = 0; i < source; i++) {
        at += draws_of(&frame, i, part.group);
    }
    at += of_run(mix, source, index, part.group) -
          of_run(mix, source, frame.shares[source].first, part.group);
    part_deal(&part, &frame);
    at = stk_permutation_invert(&part.deal, at);
    if (at >= part.places) {
        spare = spare_before(&frame, part.group);
        fill_open(&fill, &frame, spare.all);
        at = stk_permutation_invert(&fill, spare.excess + at - part.places);
        at = find_spare_position(&frame, at, holes_of, &part);
        at = stk_permutation_invert(&part.deal, part.draws + at);
    }
    return part.offset + at * mix->groups.number;
}

/* Lists the draws of a group in sequence, and returns their number. */
static uint64_t list_draws(const struct frame *frame, const struct part *part, uint32_t *out)
{
    const struct stk_mix *mix = frame->mix;
    uint64_t filled = 0;

    for (uint32_t i = 0; i < mix->source_count; i++) {
        const struct share *share = &frame->shares[i];
        uint64_t size = mix->samples[i].number, end = share->first + share->count;
        uint64_t epoch = share->count > 0 ? stk_divide(share->first, &mix->samples[i]).quotient : 0;

        for (uint64_t begin = epoch * size; share->count > 0 && begin < end; begin += size) {
            uint64_t index = begin + part->group, last = stk_min(end, begin + size);

            if (index < share->first) { /* the group's first one there */
                uint64_t past = stk_divide(share->first - index - 1, &mix->groups).quotient + 1;

                index += past * mix->groups.number;
            }
            for (; index < last; index += mix->groups.number) {
                out[filled++] = (uint32_t)(share->drawn + index - share->first);
            }
        }
    }
    return filled;
}

void stk_mix_group_frame(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                         uint64_t number, struct stk_mix_frame *out)
{
    uint64_t holes = 0, excess = 0;
    struct stk_permutation fill;
    struct frame frame;
    struct part part;

    frame_open(&frame, mix, segment, number);
    for (uint64_t h = 0; h < mix->groups.number; h++) {
        part_open(&part, &frame, h);
        part_deal(&part, &frame);
        STK_ASSERT(list_draws(&frame, &part, out->draws) == part.draws);
        for (uint64_t t = 0; t < part.places; t++) {
            uint64_t at = stk_permutation_apply(&part.deal, t),
                     offset = part.offset + t * mix->groups.number;

            if (at < part.draws) {
                out->drawn[offset] = out->draws[at];
            } else {
                out->holes[holes + at - part.draws] = (uint32_t)offset;
            }
        }
        for (uint64_t t = part.places; t < part.draws; t++) {
            out->excess[excess++] = out->draws[stk_permutation_apply(&part.deal, t)];
        }
        holes += holes_of(&part);
    }
    STK_ASSERT(holes == excess);
    fill_open(&fill, &frame, holes);
    for (uint64_t i = 0; i < holes; i++) {
        out->drawn[out->holes[i]] = out->excess[stk_permutation_apply(&fill, i)];
    }
}

uint64_t stk_mix_group_unit(const struct stk_mix *mix, uint64_t first, struct stk_mix_pick pick,
                            uint64_t offset)
{
    uint64_t index = pick.index * mix->unit.number + stk_mix_earlier_samples(mix, pick.source);
    uint64_t groups = mix->groups.number;
    uint64_t home =
        stk_divide(stk_divide(index, &mix->samples[pick.source]).remainder, &mix->groups).remainder;
    uint64_t want = stk_divide(first, &mix->groups).remainder;

    offset += (want + groups - home) % groups % mix->unit.number;
    return offset - (offset >= mix->unit.number ? mix->unit.number : 0);
}
