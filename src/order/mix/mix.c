/* Segments are computed once; a draw is then a search in a few numbers, and one permutation.
 *
 * Letters as in the header: S_i is the sum of the weights up to source i, T of all; a frame has L
 * units. F_i(f) = floor(f * L * S_i / T) units of the segment's first f frames are of the sources
 * up to i. With L * S_i = quota_i * T + remainder_i that is f * quota_i + floor(f * remainder_i /
 * T). As L is at least T / (smallest weight), a source's F_i(f) - F_(i-1)(f) never decreases. */
#include "order/mix/mix_private.h"

void stk_mix_deal(const struct stk_mix *mix, const struct stk_mix_segment *segment, uint64_t frame,
                  uint64_t offset, uint64_t count, uint64_t *drawn_out)
{
    struct stk_permutation permutation;

    for (uint64_t i = 0; i < count; i++) {
        drawn_out[i] = mix->in_sequence
                           ? stk_mix_sequence_draw(segment, mix->source_count, frame, offset + i)
                           : offset + i;
    }
    if (!mix->in_sequence) {
        stk_permutation_init(&permutation, stk_mix_frame_key(mix, segment, frame),
                             stk_mix_frame_units(segment, frame));
        stk_permutation_apply_all(&permutation, drawn_out, (uint32_t)count);
    }
}

uint64_t stk_mix_undeal(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                        uint64_t frame, uint64_t drawn)
{
    struct stk_permutation permutation;

    if (mix->in_sequence) {
        return stk_mix_sequence_offset(segment, mix->source_count, frame, drawn);
    }
    stk_permutation_init(&permutation, stk_mix_frame_key(mix, segment, frame),
                         stk_mix_frame_units(segment, frame));
    return stk_permutation_invert(&permutation, drawn);
}

uint64_t stk_mix_draw_run(const struct stk_mix *mix, uint64_t position,
                          struct stk_mix_draw *draw_out)
{
    struct stk_quotient unit = stk_divide(position, &mix->unit);
    const struct stk_mix_segment *segment;
    struct stk_mix_pick pick;
    struct stk_quotient at;
    uint64_t drawn, rotated;

    STK_ASSERT(position < mix->end);
    segment = stk_mix_segment_of(mix, unit.quotient);
    at = stk_mix_frame_of(segment, unit.quotient);
    if (mix->deals_groups) {
        drawn = stk_mix_group_draw(mix, segment, at.quotient, at.remainder);
    } else {
        stk_mix_deal(mix, segment, at.quotient, at.remainder, 1, &drawn);
    }
    pick = stk_mix_pick_at(segment, mix->source_count, at.quotient, drawn);
    rotated = mix->rotates_units
                  ? stk_mix_group_unit(mix, position - unit.remainder, pick, unit.remainder)
                  : unit.remainder;
    *draw_out = stk_mix_sample(mix, pick, rotated);
    return mix->unit.number - stk_max(unit.remainder, rotated);
}

void stk_mix_draw_at(const struct stk_mix *mix, uint64_t position, struct stk_mix_draw *draw_out)
{
    stk_mix_draw_run(mix, position, draw_out);
}

/* Computes as many draws as possible of one frame, from `unit` on. */
static uint64_t draws_of_frame(const struct stk_mix *mix, struct stk_quotient unit, uint64_t count,
                               struct stk_mix_draw *draws_out)
{
    const struct stk_mix_segment *segment = stk_mix_segment_of(mix, unit.quotient);
    struct stk_quotient at = stk_mix_frame_of(segment, unit.quotient);
    uint64_t units = stk_mix_frame_units(segment, at.quotient), drawn[STK_PERMUTE_STRIDE];
    uint64_t offset = unit.remainder, left = count;

    while (left > 0 && at.remainder < units) {
        uint64_t last = stk_divide(offset + left - 1, &mix->unit).quotient + 1;
        uint64_t piece = stk_min(stk_min(last, units - at.remainder), STK_PERMUTE_STRIDE);

        stk_mix_deal(mix, segment, at.quotient, at.remainder, piece, drawn);
        for (uint64_t i = 0; i < piece; i++) {
            struct stk_mix_pick pick =
                stk_mix_pick_at(segment, mix->source_count, at.quotient, drawn[i]);
            uint64_t end = stk_min(mix->unit.number, offset + left);

            left -= end - offset;
            for (; offset < end; offset++) {
                *draws_out++ = stk_mix_sample(mix, pick, offset);
            }
            offset = 0;
        }
        at.remainder += piece;
    }
    return count - left;
}

void stk_mix_draw_range(const struct stk_mix *mix, uint64_t first, uint64_t count,
                        struct stk_mix_draw *draws_out)
{
    STK_ASSERT(count <= mix->end && first <= mix->end - count);
    if (mix->groups.number > 1) {
        for (uint64_t i = 0; i < count; i++) {
            stk_mix_draw_at(mix, first + i, &draws_out[i]);
        }
        return;
    }
    for (uint64_t done; count > 0; count -= done) {
        done = draws_of_frame(mix, stk_divide(first, &mix->unit), count, draws_out);
        draws_out += done;
        first += done;
    }
}

uint64_t stk_mix_change_position(const struct stk_mix *mix, uint64_t delivered)
{
    const struct stk_mix_segment *segment;
    uint64_t frame, unit;

    if (delivered == 0) {
        return 0;
    }
    unit = stk_divide(delivered - 1, &mix->unit).quotient;
    if (delivered >= mix->end) {
        return (unit + 1) * mix->unit.number;
    }
    segment = stk_mix_segment_of(mix, unit);
    frame = stk_mix_frame_of(segment, unit).quotient;
    return stk_min(mix->end, (segment->first + stk_mix_frame_begin(segment, frame) +
                              stk_mix_frame_units(segment, frame)) *
                                 mix->unit.number);
}

/* Returns the first source whose quota is at least `least`. The quota of the last source is a
 * complete frame. */
static inline uint32_t first_with(const uint64_t *quota, uint32_t count, uint64_t least)
{
    uint32_t low = 0;

    while (count > 1) {
        uint32_t half = count / 2;

        low += quota[low + half - 1] < least ? half : 0;
        count -= half;
    }
    return low;
}

/* Returns the source of the drawn-th unit of the frame: the units of each source are contiguous. */
struct stk_mix_pick stk_mix_pick_at(const struct stk_mix_segment *segment, uint32_t source_count,
                                    uint64_t frame, uint64_t drawn)
{
    struct stk_mix_pick pick;

    if (frame == segment->frames) {
        pick.source = first_with(segment->rest_quota, source_count, drawn + 1);
        pick.index = segment->rest_before[pick.source] + drawn -
                     (pick.source ? segment->rest_quota[pick.source - 1] : 0);
        return pick;
    }
    if (segment->period.number > 0) {
        /* A frame has at most two units more than the quota. */
        pick.source = first_with(segment->quota, source_count, drawn > 1 ? drawn - 1 : 0);
        while (stk_mix_frame_units_up_to(segment, pick.source, frame) <= drawn) {
            pick.source++;
        }
    } else if (segment->is_even) {
        pick.source = first_with(segment->quota, source_count, drawn + 1);
    } else {
        pick.source = first_with(segment->quota, source_count, drawn);
        while (segment->quota[pick.source] == drawn &&
               !stk_mix_frame_has_more(segment, pick.source, frame)) {
            pick.source++;
        }
    }
    pick.index = segment->before[pick.source] + stk_mix_units_up_to(segment, pick.source, frame) +
                 drawn -
                 (pick.source ? stk_mix_units_up_to(segment, pick.source - 1, frame + 1) : 0);
    return pick;
}

/* Returns the last frame of the segment that begins with at most `delivered` units of the source,
 * in complete frames or the rest. */
static uint64_t frame_with(const struct stk_mix_segment *segment, uint32_t source,
                           uint64_t delivered)
{
    uint64_t low = 0, count = segment->frames + 1;

    while (count > 1) {
        uint64_t half = count / 2, frame = low + half;
        uint64_t before = stk_mix_units_up_to(segment, source, frame) -
                          (source ? stk_mix_units_up_to(segment, source - 1, frame) : 0);

        low = before <= delivered ? frame : low;
        count = before <= delivered ? count - half : half;
    }
    return low;
}

bool stk_mix_find(const struct stk_mix *mix, uint32_t source, uint64_t index,
                  uint64_t *position_out)
{
    struct stk_quotient unit = stk_divide(index, &mix->unit);
    const struct stk_mix_segment *segment = mix->segments;
    uint64_t frame, delivered, first, end, drawn;

    for (uint32_t i = 1; i < mix->segment_count; i++) { /* excluded sources: no units */
        segment = mix->segments[i].before[source] <= unit.quotient ? &mix->segments[i] : segment;
    }
    delivered = unit.quotient - segment->before[source];
    frame = frame_with(segment, source, delivered);
    if (frame == segment->frames) {
        first = source ? segment->rest_quota[source - 1] : 0;
        end = segment->rest_quota[source];
        drawn = delivered - (segment->rest_before[source] - segment->before[source]) + first;
    } else {
        first = source ? stk_mix_frame_units_up_to(segment, source - 1, frame) : 0;
        end = stk_mix_frame_units_up_to(segment, source, frame);
        drawn = delivered - stk_mix_units_up_to(segment, source, frame) +
                (source ? stk_mix_units_up_to(segment, source - 1, frame + 1) : 0);
    }
    if (drawn < first || drawn >= end) {
        return false;
    }
    if (mix->deals_groups) {
        drawn = stk_mix_group_offset(mix, segment, frame, drawn);
    } else {
        drawn = stk_mix_undeal(mix, segment, frame, drawn);
    }
    first = (segment->first + stk_mix_frame_begin(segment, frame) + drawn) * mix->unit.number;
    if (mix->rotates_units) {
        struct stk_mix_pick pick = {source, unit.quotient};
        uint64_t turn = stk_mix_group_unit(mix, first, pick, 0);

        unit.remainder += (unit.remainder < turn ? mix->unit.number : 0) - turn;
    }
    *position_out = first + unit.remainder;
    return *position_out < mix->end;
}
