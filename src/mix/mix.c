/* Segments are laid out once; a draw then is a search in a few numbers, and one permutation.
 *
 * Letters as in the header: S_i is the sum of the weights up to source i, T of all; a frame has L
 * units. F_i(f) = floor(f * L * S_i / T) units of the segment's first f frames are of the sources
 * up to i. With L * S_i = quota_i * T + remainder_i that is f * quota_i + floor(f * remainder_i /
 * T). As L is at least T / (smallest weight), a source's F_i(f) - F_(i-1)(f) never decreases. */
#include "mix/mix.h"

#include "base/hash.h"
#include "base/mem.h"

#define MIX_KEY UINT64_C(0x6d69782076657231) /* "mix ver1": no random number of an order */
#define NOT_LIMITED UINT64_MAX

__extension__ typedef unsigned __int128 wide;
__extension__ typedef __int128 wide_signed;

struct quotient {
    uint64_t whole, rest;
};

/* The sources while segments are laid out, in units. */
struct layout {
    const struct stk_mix_options *options;
    struct stk_mix *mix;
    uint64_t unit, position;
    uint32_t change; /* the next one */
    uint64_t weights[STK_MIX_SOURCES_MAX], used[STK_MIX_SOURCES_MAX], limit[STK_MIX_SOURCES_MAX];
};

/* A unit of a source. */
struct pick {
    uint32_t source;
    uint64_t index;
};

static int check(const struct stk_mix_options *options, struct stoker_error *error);
static int check_weights(const struct stk_mix_options *options, const uint64_t *weights,
                         uint64_t position, struct stoker_error *error);
static int lay_out(struct layout *layout, struct stoker_error *error);
static int add_segment(struct layout *layout, struct stoker_error *error);
static struct pick pick_of(const struct stk_mix_segment *segment, uint32_t source_count,
                           uint64_t frame, uint64_t drawn);

static struct stk_divisor divisor(uint64_t number)
{
    return (struct stk_divisor){number, UINT64_MAX / number};
}

/* With value < 2^62 the product is less than 1 + 2^-1 below value / number, so its whole part is
 * the quotient or one less. */
static inline struct quotient divide(uint64_t value, const struct stk_divisor *by)
{
    uint64_t whole = (uint64_t)((wide)value * by->reciprocal >> 64);
    uint64_t rest = value - whole * by->number;
    uint64_t more = rest >= by->number;

    return (struct quotient){whole + more, rest - (by->number & -more)};
}

int stk_mix_init(struct stk_mix *mix, const struct stk_mix_options *options,
                 struct stoker_error *error)
{
    struct layout layout = {.options = options, .mix = mix};
    int status = check(options, error);

    *mix = (struct stk_mix){0};
    if (status < 0) {
        return status;
    }
    layout.unit = options->unit_samples ? options->unit_samples : 1;
    mix->source_count = options->source_count;
    mix->key = stk_key(stk_key(options->seed, MIX_KEY), STK_MIX_VERSION);
    mix->unit = divisor(layout.unit);
    for (uint32_t i = 0; i < mix->source_count; i++) {
        const struct stk_mix_source *source = &options->sources[i];
        bool has_limit = options->end != STK_MIX_REPEAT && source->sample_limit > 0;

        mix->samples[i] = divisor(source->sample_count);
        layout.weights[i] = options->weights[i];
        layout.limit[i] = has_limit ? source->sample_limit / layout.unit : NOT_LIMITED;
    }
    mix->segments =
        stk_alloc((size_t)options->source_count + options->change_count + 1, sizeof *mix->segments);
    status = mix->segments ? lay_out(&layout, error)
                           : stk_fail_errno(error, 12, "no memory for a mix", "free some memory",
                                            "%u sources", options->source_count);
    if (status < 0) {
        stk_mix_deinit(mix);
    }
    return status;
}

void stk_mix_deinit(struct stk_mix *mix)
{
    for (uint32_t i = 0; i < mix->segment_count; i++) {
        stk_free(mix->segments[i].quota);
    }
    stk_free(mix->segments);
    *mix = (struct stk_mix){0};
}

uint64_t stk_mix_given(const struct stk_mix *mix, uint32_t source)
{
    const struct stk_mix_segment *last = &mix->segments[mix->segment_count - 1];
    uint64_t units = last->rest_before[source] + last->rest_quota[source] -
                     (source ? last->rest_quota[source - 1] : 0);

    STK_ASSERT(source < mix->source_count);
    return units * mix->unit.number;
}

/* The segment of a unit. */
static const struct stk_mix_segment *segment_of(const struct stk_mix *mix, uint64_t unit)
{
    uint32_t low = 0, count = mix->segment_count;

    while (count > 1) {
        uint32_t half = count / 2;

        low += mix->segments[low + half].first <= unit ? half : 0;
        count -= half;
    }
    return &mix->segments[low];
}

/* The frame of a unit, and which of its units it is. The last frame may be longer than the others
 * by a few. */
static inline struct quotient place_of(const struct stk_mix_segment *segment, uint64_t unit)
{
    struct quotient at = divide(unit - segment->first, &segment->frame);

    if (at.whole > segment->frames) {
        at.rest += (at.whole - segment->frames) * segment->frame.number;
        at.whole = segment->frames;
    }
    return at;
}

static inline uint64_t units_of_frame(const struct stk_mix_segment *segment, uint64_t frame)
{
    return frame < segment->frames ? segment->frame.number : segment->rest;
}

static uint64_t key_of_frame(const struct stk_mix *mix, const struct stk_mix_segment *segment,
                             uint64_t frame)
{
    return stk_key(mix->key, segment->first + frame * segment->frame.number);
}

static inline struct stk_mix_draw sample_of(const struct stk_mix *mix, struct pick pick,
                                            uint64_t offset)
{
    uint64_t index = pick.index * mix->unit.number + offset;
    struct quotient at;

    if (mix->turn > 0) {
        index += mix->turn * mix->gone[pick.source];
    }
    at = divide(index, &mix->samples[pick.source]);
    return (struct stk_mix_draw){pick.source, at.whole, at.rest};
}

void stk_mix_draw(const struct stk_mix *mix, uint64_t position, struct stk_mix_draw *draw_out)
{
    struct quotient unit = divide(position, &mix->unit);
    const struct stk_mix_segment *segment;
    struct quotient at;
    uint64_t drawn;

    STK_ASSERT(position < mix->end);
    segment = segment_of(mix, unit.whole);
    at = place_of(segment, unit.whole);
    drawn = stk_permute(key_of_frame(mix, segment, at.whole), at.rest,
                        units_of_frame(segment, at.whole));
    *draw_out = sample_of(mix, pick_of(segment, mix->source_count, at.whole, drawn), unit.rest);
}

void stk_mix_draws(const struct stk_mix *mix, uint64_t first, uint64_t count,
                   struct stk_mix_draw *draws_out)
{
    uint64_t drawn[STK_PERMUTE_STRIDE];
    struct quotient unit = divide(first, &mix->unit);
    uint64_t offset = unit.rest;

    STK_ASSERT(count <= mix->end && first <= mix->end - count);
    while (count > 0) {
        const struct stk_mix_segment *segment = segment_of(mix, unit.whole);
        struct quotient at = place_of(segment, unit.whole);
        uint64_t units = units_of_frame(segment, at.whole);
        struct stk_permutation frame;

        stk_permutation_init(&frame, key_of_frame(mix, segment, at.whole), units);
        while (count > 0 && at.rest < units) {
            uint64_t left = divide(offset + count - 1, &mix->unit).whole + 1;
            uint64_t piece = stk_min(stk_min(left, units - at.rest), STK_PERMUTE_STRIDE);

            for (uint64_t i = 0; i < piece; i++) {
                drawn[i] = at.rest + i;
            }
            stk_permute_all(&frame, drawn, (uint32_t)piece);
            for (uint64_t i = 0; i < piece; i++) {
                struct pick pick = pick_of(segment, mix->source_count, at.whole, drawn[i]);
                uint64_t end = stk_min(mix->unit.number, offset + count);

                count -= end - offset;
                for (; offset < end; offset++) {
                    *draws_out++ = sample_of(mix, pick, offset);
                }
                offset = 0;
            }
            at.rest += piece;
            unit.whole += piece;
        }
    }
}

uint64_t stk_mix_border(const struct stk_mix *mix, uint64_t given)
{
    const struct stk_mix_segment *segment;
    uint64_t frame, unit;

    if (given == 0) {
        return 0;
    }
    unit = divide(given - 1, &mix->unit).whole;
    if (given >= mix->end) {
        return (unit + 1) * mix->unit.number;
    }
    segment = segment_of(mix, unit);
    frame = place_of(segment, unit).whole;
    return stk_min(mix->end, (segment->first + frame * segment->frame.number +
                              units_of_frame(segment, frame)) *
                                 mix->unit.number);
}

/* The first of the sources whose quota is at least `least`. The last one's is a whole frame. */
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

/* F_i(frame) */
static inline uint64_t units_up_to(const struct stk_mix_segment *segment, uint32_t source,
                                   uint64_t frame)
{
    uint64_t units = frame * segment->quota[source];

    return segment->is_even
               ? units
               : units + (uint64_t)((wide)frame * segment->remainder[source] / segment->total);
}

/* Whether the sources up to this one have quota + 1 units in the frame: F_i(frame + 1) -
 * F_i(frame) - quota_i. */
static bool has_more(const struct stk_mix_segment *segment, uint32_t source, uint64_t frame)
{
    uint64_t part = (uint64_t)((wide)frame * segment->remainder[source] % segment->total);

    return part + segment->remainder[source] >= segment->total;
}

/* Whose the drawn-th unit of the frame is: the sources have theirs one after the other. */
static struct pick pick_of(const struct stk_mix_segment *segment, uint32_t source_count,
                           uint64_t frame, uint64_t drawn)
{
    struct pick pick;

    if (frame == segment->frames) {
        pick.source = first_with(segment->rest_quota, source_count, drawn + 1);
        pick.index = segment->rest_before[pick.source] + drawn -
                     (pick.source ? segment->rest_quota[pick.source - 1] : 0);
        return pick;
    }
    if (segment->is_even) {
        pick.source = first_with(segment->quota, source_count, drawn + 1);
    } else {
        pick.source = first_with(segment->quota, source_count, drawn);
        while (segment->quota[pick.source] == drawn && !has_more(segment, pick.source, frame)) {
            pick.source++;
        }
    }
    pick.index = segment->before[pick.source] + units_up_to(segment, pick.source, frame) + drawn -
                 (pick.source ? units_up_to(segment, pick.source - 1, frame + 1) : 0);
    return pick;
}

/* How many units of the frame are of the sources up to this one. */
static uint64_t units_in_frame(const struct stk_mix_segment *segment, uint32_t source,
                               uint64_t frame)
{
    if (frame == segment->frames) {
        return segment->rest_quota[source];
    }
    return segment->quota[source] + (segment->is_even ? 0 : has_more(segment, source, frame));
}

/* The last frame of the segment that begins with at most `given` units of the source given in it,
 * whole frames or the rest. */
static uint64_t frame_with(const struct stk_mix_segment *segment, uint32_t source, uint64_t given)
{
    uint64_t low = 0, count = segment->frames + 1;

    while (count > 1) {
        uint64_t half = count / 2, frame = low + half;
        uint64_t before = units_up_to(segment, source, frame) -
                          (source ? units_up_to(segment, source - 1, frame) : 0);

        low = before <= given ? frame : low;
        count = before <= given ? count - half : half;
    }
    return low;
}

bool stk_mix_find(const struct stk_mix *mix, uint32_t source, uint64_t index,
                  uint64_t *position_out)
{
    struct quotient unit = divide(index, &mix->unit);
    const struct stk_mix_segment *segment = mix->segments;
    uint64_t frame, given, first, end, drawn;
    struct stk_permutation permutation;

    for (uint32_t i = 1; i < mix->segment_count; i++) { /* those that leave it out give none */
        segment = mix->segments[i].before[source] <= unit.whole ? &mix->segments[i] : segment;
    }
    given = unit.whole - segment->before[source];
    frame = frame_with(segment, source, given);
    if (frame == segment->frames) {
        first = source ? segment->rest_quota[source - 1] : 0;
        end = segment->rest_quota[source];
        drawn = given - (segment->rest_before[source] - segment->before[source]) + first;
    } else {
        first = source ? units_in_frame(segment, source - 1, frame) : 0;
        end = units_in_frame(segment, source, frame);
        drawn = given - units_up_to(segment, source, frame) +
                (source ? units_up_to(segment, source - 1, frame + 1) : 0);
    }
    if (drawn < first || drawn >= end) {
        return false;
    }
    stk_permutation_init(&permutation, key_of_frame(mix, segment, frame),
                         units_of_frame(segment, frame));
    *position_out =
        (segment->first + frame * segment->frame.number + stk_unpermuted(&permutation, drawn)) *
            mix->unit.number +
        unit.rest;
    return *position_out < mix->end;
}

int stk_mix_reader_init(struct stk_mix_reader *reader, const struct stk_mix *mix,
                        const struct stk_order *orders, struct stoker_error *error)
{
    *reader = (struct stk_mix_reader){.mix = mix, .orders = orders, .frame_first = UINT64_MAX};
    for (uint32_t i = 0; i < mix->source_count; i++) {
        if (orders[i].options.sample_count != mix->samples[i].number) {
            *reader = (struct stk_mix_reader){0};
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "an order is not of its source",
                            "make orders and mix of the same counts",
                            "source %u: %llu samples, order: %llu", i,
                            (unsigned long long)mix->samples[i].number,
                            (unsigned long long)orders[i].options.sample_count);
        }
    }
    reader->epochs = stk_alloc(mix->source_count, sizeof *reader->epochs);
    reader->items = stk_alloc(STK_MIX_FRAME_KEPT, sizeof *reader->items);
    if (!reader->epochs || !reader->items) {
        stk_mix_reader_deinit(reader);
        return stk_fail_errno(error, 12, "no memory to read a mix", "free some memory",
                              "%u sources", mix->source_count);
    }
    return 0;
}

void stk_mix_reader_deinit(struct stk_mix_reader *reader)
{
    stk_free(reader->epochs);
    stk_free(reader->items);
    *reader = (struct stk_mix_reader){0};
}

static const struct stk_order_epoch *epoch_of(struct stk_mix_reader *reader, uint32_t source,
                                              uint64_t epoch)
{
    struct stk_order_epoch *kept = &reader->epochs[source][epoch & 1];

    if (!kept->order || kept->epoch != epoch) {
        stk_order_begin(kept, &reader->orders[source], epoch);
    }
    return kept;
}

/* `count` neighbours of a source, from a draw on. */
static void read_run(struct stk_mix_reader *reader, struct stk_mix_draw draw, uint64_t count,
                     struct stk_mix_item *items_out)
{
    uint64_t samples[STK_PERMUTE_STRIDE];
    uint64_t epoch_samples = reader->mix->samples[draw.source].number;

    while (count > 0) {
        uint64_t piece = stk_min(stk_min(count, epoch_samples - draw.position), STK_PERMUTE_STRIDE);

        stk_order_samples(epoch_of(reader, draw.source, draw.epoch), draw.position, piece, samples);
        for (uint64_t i = 0; i < piece; i++) {
            *items_out++ = (struct stk_mix_item){draw, samples[i]};
            draw.position++;
        }
        if (draw.position == epoch_samples) {
            draw.position = 0;
            draw.epoch++;
        }
        count -= piece;
    }
}

/* All of a frame, source by source: in the sequence of draws, before they are permuted. */
static void keep_frame(struct stk_mix_reader *reader, const struct stk_mix_segment *segment,
                       uint64_t frame)
{
    uint64_t units = units_of_frame(segment, frame), drawn = 0;

    while (drawn < units) {
        struct pick pick = pick_of(segment, reader->mix->source_count, frame, drawn);
        uint64_t end = units_in_frame(segment, pick.source, frame);

        read_run(reader, sample_of(reader->mix, pick, 0), end - drawn, reader->items + drawn);
        drawn = end;
    }
    reader->frame_first = segment->first + frame * segment->frame.number;
}

/* One by one. */
static void read_singly(struct stk_mix_reader *reader, uint64_t first, uint64_t count,
                        struct stk_mix_item *items_out)
{
    struct stk_mix_draw draws[STK_PERMUTE_STRIDE];

    while (count > 0) {
        uint64_t piece = stk_min(count, STK_PERMUTE_STRIDE);

        stk_mix_draws(reader->mix, first, piece, draws);
        for (uint64_t i = 0; i < piece; i++) {
            const struct stk_order_epoch *epoch = epoch_of(reader, draws[i].source, draws[i].epoch);

            *items_out++ =
                (struct stk_mix_item){draws[i], stk_order_sample(epoch, draws[i].position)};
        }
        first += piece;
        count -= piece;
    }
}

/* Positions of one frame, of units of one sample. */
static void read_frame(struct stk_mix_reader *reader, const struct stk_mix_segment *segment,
                       struct quotient at, uint64_t count, struct stk_mix_item *items_out)
{
    uint64_t drawn[STK_PERMUTE_STRIDE];
    uint64_t first = segment->first + at.whole * segment->frame.number;
    struct stk_permutation frame;

    if (reader->frame_first != first) {
        keep_frame(reader, segment, at.whole);
    }
    stk_permutation_init(&frame, key_of_frame(reader->mix, segment, at.whole),
                         units_of_frame(segment, at.whole));
    while (count > 0) {
        uint64_t piece = stk_min(count, STK_PERMUTE_STRIDE);

        for (uint64_t i = 0; i < piece; i++) {
            drawn[i] = at.rest + i;
        }
        stk_permute_all(&frame, drawn, (uint32_t)piece);
        for (uint64_t i = 0; i < piece; i++) {
            *items_out++ = reader->items[drawn[i]];
        }
        at.rest += piece;
        count -= piece;
    }
}

void stk_mix_read(struct stk_mix_reader *reader, uint64_t first, uint64_t count,
                  struct stk_mix_item *items_out)
{
    const struct stk_mix *mix = reader->mix;

    STK_ASSERT(count <= mix->end && first <= mix->end - count);
    for (uint64_t piece; count > 0; first += piece, count -= piece, items_out += piece) {
        struct quotient unit = divide(first, &mix->unit);
        const struct stk_mix_segment *segment = segment_of(mix, unit.whole);
        struct quotient at = place_of(segment, unit.whole);
        uint64_t units = units_of_frame(segment, at.whole);

        if (mix->unit.number > 1) { /* each unit is a run already */
            struct stk_mix_draw draw;

            piece = stk_min(count, mix->unit.number - unit.rest);
            stk_mix_draw(mix, first, &draw);
            read_run(reader, draw, piece, items_out);
            continue;
        }
        piece = stk_min(count, units - at.rest);
        /* Other positions of a kept frame cost next to nothing; a frame for a few does. */
        if (units <= STK_MIX_FRAME_KEPT &&
            (piece >= units / 8 || reader->frame_first == unit.whole - at.rest)) {
            read_frame(reader, segment, at, piece, items_out);
        } else {
            read_singly(reader, first, piece, items_out);
        }
    }
}

static int check(const struct stk_mix_options *options, struct stoker_error *error)
{
    uint64_t unit = options->unit_samples ? options->unit_samples : 1;

    if (options->source_count == 0 || options->source_count > STK_MIX_SOURCES_MAX ||
        options->change_count > STK_MIX_CHANGES_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many or too few sources or changes",
                        "mix 1 to 256 sources, with at most 4096 changes", "%u sources, %u changes",
                        options->source_count, options->change_count);
    }
    if (options->end > STK_MIX_RENORMALISE || unit > STK_ORDER_SAMPLES_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a setting of the mix is out of bounds",
                        "take repeat, stop or renormalise, and a unit of one batch",
                        "end %u, unit_samples %llu", options->end, (unsigned long long)unit);
    }
    for (uint32_t i = 0; i < options->source_count; i++) {
        const struct stk_mix_source *source = &options->sources[i];

        if (source->sample_count == 0 || source->sample_count > STK_ORDER_SAMPLES_MAX ||
            (options->end != STK_MIX_REPEAT && source->sample_limit > 0 &&
             source->sample_limit < unit)) {
            return stk_fail(
                error, STOKER_ERROR_ARGUMENT, "too few or too many samples in a source",
                "leave it out, or take smaller batches", "source %u: %llu samples, limit %llu", i,
                (unsigned long long)source->sample_count, (unsigned long long)source->sample_limit);
        }
    }
    for (uint32_t i = 0; i < options->change_count; i++) {
        uint64_t position = options->changes[i].position;

        if (position % unit || position > STK_MIX_POSITIONS_MAX ||
            position <= (i ? options->changes[i - 1].position : 0)) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a change of weights is out of place",
                            "give changes by position, each a multiple of the unit and above 0",
                            "change %u at %llu, unit %llu", i, (unsigned long long)position,
                            (unsigned long long)unit);
        }
    }
    return check_weights(options, options->weights, 0, error);
}

static int check_weights(const struct stk_mix_options *options, const uint64_t *weights,
                         uint64_t position, struct stoker_error *error)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < options->source_count; i++) {
        if (weights[i] > STK_MIX_WEIGHTS_MAX - total) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "the weights are too large",
                            "divide them: their sum may be 2^56", "weights from position %llu",
                            (unsigned long long)position);
        }
        total += weights[i];
    }
    if (total == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "all weights are 0",
                        "give at least one source a weight", "weights from position %llu",
                        (unsigned long long)position);
    }
    return 0;
}

/* Takes the weights that hold from here on. false: the mix is at its end. */
static bool next_weights(struct layout *layout)
{
    const struct stk_mix_options *options = layout->options;
    bool is_any = false;

    while (layout->change < options->change_count &&
           options->changes[layout->change].position <= layout->position * layout->unit) {
        const uint64_t *weights = options->changes[layout->change].weights;

        for (uint32_t i = 0; i < options->source_count; i++) {
            layout->weights[i] = weights[i];
        }
        layout->change++;
    }
    for (uint32_t i = 0; i < options->source_count; i++) {
        if (layout->weights[i] > 0 && layout->used[i] == layout->limit[i]) {
            if (options->end == STK_MIX_STOP) {
                return false;
            }
            layout->weights[i] = 0;
        }
        is_any |= layout->weights[i] > 0;
    }
    return is_any;
}

static int lay_out(struct layout *layout, struct stoker_error *error)
{
    const struct stk_mix_options *options = layout->options;
    uint64_t units_max = STK_MIX_POSITIONS_MAX / layout->unit;
    int status = 0;

    for (uint32_t i = 0; i < options->change_count && status == 0; i++) {
        status = check_weights(options, options->changes[i].weights, options->changes[i].position,
                               error);
    }
    while (status == 0 && layout->position < units_max && next_weights(layout)) {
        status = add_segment(layout, error);
    }
    layout->mix->end = layout->position * layout->unit;
    return status;
}

/* Units of a frame: enough for each source to have one, and a power of two, as permutations of
 * those are fastest; or a multiple of T a little below, where the counts of all frames are the
 * same. 0: a share is too small. */
static uint64_t frame_of(const struct layout *layout, uint64_t total)
{
    uint64_t smallest = UINT64_MAX, least, frame = 1;

    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        if (layout->weights[i] > 0) {
            smallest = stk_min(smallest, layout->weights[i]);
        }
    }
    least = stk_max(stk_max(STK_MIX_FRAME_SAMPLES / layout->unit, STK_MIX_FRAME_UNITS_MIN),
                    (total - 1) / smallest + 1);
    while (frame < least && frame <= STK_MIX_FRAME_MAX) {
        frame *= 2;
    }
    if (frame > STK_MIX_FRAME_MAX) {
        return 0;
    }
    return total <= frame ? frame / total * total : frame;
}

/* Where the segment that begins here ends, and whether because a source does. */
static uint64_t end_of_segment(const struct layout *layout, uint64_t total, bool *is_source_out)
{
    uint64_t end = STK_MIX_POSITIONS_MAX / layout->unit;

    *is_source_out = false;
    if (layout->change < layout->options->change_count) {
        end = stk_min(end, layout->options->changes[layout->change].position / layout->unit);
    }
    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        uint64_t left = layout->limit[i] - layout->used[i];

        if (layout->weights[i] > 0 && layout->limit[i] != NOT_LIMITED) {
            wide units = (wide)left * total / layout->weights[i];

            /* Also where the weights change at that very place: a change at the end of a frame
             * leaves the frame as it is. */
            if (units <= end - layout->position) {
                end = layout->position + (uint64_t)units;
                *is_source_out = true;
            }
        }
    }
    return end;
}

/* How many units the source lacks to its share of the segment's first `units`, times the sum of
 * the weights. */
static wide_signed lack(const struct stk_mix_segment *segment, uint64_t units, uint64_t weight,
                        uint64_t given)
{
    return (wide_signed)units * weight - (wide_signed)given * segment->total;
}

/* Adds (or takes) a unit at a time where it brings the counts nearest to the shares, until their
 * sum is what the last frame holds. */
static void settle(const struct layout *layout, const struct stk_mix_segment *segment,
                   uint64_t *counts, const uint64_t *least)
{
    uint64_t units = segment->frames * segment->frame.number + segment->rest, sum = 0;
    uint32_t source_count = layout->options->source_count;

    for (uint32_t i = 0; i < source_count; i++) {
        sum += counts[i];
    }
    while (sum != segment->rest) {
        bool is_short = sum < segment->rest;
        uint32_t best = source_count;
        wide_signed best_lack = 0;

        for (uint32_t i = 0; i < source_count; i++) {
            uint64_t given = segment->rest_before[i] - segment->before[i] + counts[i];
            bool may = is_short ? layout->used[i] + given < layout->limit[i] : counts[i] > least[i];
            wide_signed lacks = lack(segment, units, layout->weights[i], given);

            if (layout->weights[i] > 0 && may &&
                (best == source_count || (is_short ? lacks > best_lack : lacks < best_lack))) {
                best = i;
                best_lack = lacks;
            }
        }
        STK_ASSERT(best < source_count);
        counts[best] += is_short ? 1 : -(uint64_t)1;
        sum += is_short ? 1 : -(uint64_t)1;
    }
}

/* The last frame, which is shorter: F_i would not do, as it may decrease within a frame. A source
 * that is the reason for the end gives all that it has. */
static void lay_out_rest(const struct layout *layout, struct stk_mix_segment *segment,
                         bool is_source_out)
{
    uint64_t counts[STK_MIX_SOURCES_MAX], least[STK_MIX_SOURCES_MAX], must = 0, sum = 0;
    uint64_t units = segment->frames * segment->frame.number + segment->rest;

    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        uint64_t given = units_up_to(segment, i, segment->frames) -
                         (i ? units_up_to(segment, i - 1, segment->frames) : 0);
        uint64_t left = layout->limit[i] - layout->used[i] - given;
        uint64_t share = (uint64_t)((wide)units * layout->weights[i] / segment->total);
        bool is_out =
            is_source_out && layout->weights[i] > 0 && layout->limit[i] != NOT_LIMITED &&
            (wide)(layout->limit[i] - layout->used[i]) * segment->total / layout->weights[i] ==
                units;

        segment->rest_before[i] = segment->before[i] + given;
        counts[i] = stk_min(share > given ? share - given : 0, left);
        counts[i] = is_out ? left : counts[i];
        least[i] = is_out ? left : 0;
        must += least[i];
    }
    /* What must come may be more than the frame holds, by less than a unit a source. */
    segment->rest = stk_max(segment->rest, must);
    settle(layout, segment, counts, least);
    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        sum += counts[i];
        segment->rest_quota[i] = sum;
    }
}

static int add_segment(struct layout *layout, struct stoker_error *error)
{
    struct stk_mix_segment *segment = &layout->mix->segments[layout->mix->segment_count];
    uint32_t source_count = layout->options->source_count;
    uint64_t total = 0, frame, sum = 0, units;
    bool is_source_out;

    for (uint32_t i = 0; i < source_count; i++) {
        total += layout->weights[i];
    }
    frame = frame_of(layout, total);
    if (frame == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a weight is too small beside the others",
                        "give each source at least 2^-32 of the mix, or none",
                        "weights from position %llu",
                        (unsigned long long)(layout->position * layout->unit));
    }
    segment->quota = stk_alloc((size_t)source_count * 5, sizeof *segment->quota);
    if (!segment->quota) {
        return stk_fail_errno(error, 12, "no memory for a mix", "free some memory", "%u sources",
                              source_count);
    }
    layout->mix->segment_count++;
    segment->remainder = segment->quota + source_count;
    segment->before = segment->remainder + source_count;
    segment->rest_quota = segment->before + source_count;
    segment->rest_before = segment->rest_quota + source_count;
    segment->first = layout->position;
    segment->frame = divisor(frame);
    segment->total = total;
    segment->is_even = frame % total == 0;
    for (uint32_t i = 0; i < source_count; i++) {
        sum += layout->weights[i];
        segment->quota[i] = (uint64_t)((wide)frame * sum / total);
        segment->remainder[i] = (uint64_t)((wide)frame * sum % total);
        segment->before[i] = layout->used[i];
    }
    units = end_of_segment(layout, total, &is_source_out) - layout->position;
    segment->frames = units / frame;
    segment->rest = units % frame;
    lay_out_rest(layout, segment, is_source_out);
    for (uint32_t i = 0; i < source_count; i++) {
        layout->used[i] =
            segment->rest_before[i] + segment->rest_quota[i] - (i ? segment->rest_quota[i - 1] : 0);
    }
    layout->position += segment->frames * frame + segment->rest;
    segment->end = layout->position;
    return 0;
}
