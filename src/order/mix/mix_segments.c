/* Computes the segments: weights, changes and ends -> counts of every frame. Letters as in mix.c.
 */
#include "order/mix/mix_private.h"

#include "base/mem.h"

#define MIX_KEY UINT64_C(0x6d69782076657231) /* "mix ver1": no random number of an order */
#define NOT_LIMITED UINT64_MAX

__extension__ typedef __int128 wide_signed;

/* The sources while segments are laid out, in units. */
struct layout {
    const struct stk_mix_options *options;
    struct stk_mix *mix;
    uint64_t unit, position;
    uint64_t epoch;  /* units; 0: frames do not follow epochs */
    uint32_t change; /* the next one */
    uint64_t weights[STK_MIX_SOURCES_MAX], used[STK_MIX_SOURCES_MAX], limit[STK_MIX_SOURCES_MAX];
};

static int check(const struct stk_mix_options *options, struct stoker_error *error);
static int check_weights(const struct stk_mix_options *options, const uint64_t *weights,
                         uint64_t position, struct stoker_error *error);
static int lay_out(struct layout *layout, struct stoker_error *error);
static int add_segment(struct layout *layout, struct stoker_error *error);

int stk_mix_init(struct stk_mix *mix, const struct stk_mix_options *options,
                 struct stoker_error *error)
{
    struct layout layout = {.options = options, .mix = mix};
    int status = check(options, error);
    uint32_t version;

    *mix = (struct stk_mix){0};
    if (status < 0) {
        return status;
    }
    layout.unit = options->unit_samples ? options->unit_samples : 1;
    mix->source_count = options->source_count;
    version = options->version ? options->version : STK_MIX_VERSION;
    mix->key = stk_random_key(stk_random_key(options->seed, MIX_KEY), version);
    mix->unit = stk_divisor_of(layout.unit);
    mix->groups = stk_divisor_of(options->group_count ? options->group_count : 1);
    mix->deals_groups = mix->groups.number > 1 && layout.unit == 1;
    mix->rotates_units = mix->groups.number > 1 && layout.unit > 1;
    mix->in_sequence = version >= 2 && options->in_sequence;
    layout.epoch =
        version >= 2 && options->end == STK_MIX_REPEAT ? options->epoch_samples / layout.unit : 0;
    for (uint32_t i = 0; i < mix->source_count; i++) {
        const struct stk_mix_source *source = &options->sources[i];
        bool has_limit = options->end != STK_MIX_REPEAT && source->sample_limit > 0;

        mix->samples[i] = stk_divisor_of(source->sample_count);
        layout.weights[i] = options->weights[i];
        layout.limit[i] = has_limit ? source->sample_limit / layout.unit : NOT_LIMITED;
    }
    /* Twice: a change may be between two epochs. */
    mix->segments = stk_alloc(2 * ((size_t)options->source_count + options->change_count + 1),
                              sizeof *mix->segments);
    status = mix->segments ? lay_out(&layout, error)
                           : stk_fail_memory(error, "mix, %u sources", options->source_count);
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

uint64_t stk_mix_delivered(const struct stk_mix *mix, uint32_t source)
{
    const struct stk_mix_segment *last = &mix->segments[mix->segment_count - 1];
    uint64_t units = last->rest_before[source] + last->rest_quota[source] -
                     (source ? last->rest_quota[source - 1] : 0);

    STK_ASSERT(source < mix->source_count);
    return units * mix->unit.number;
}

uint64_t stk_mix_epoch_samples(uint64_t given, uint64_t unit_samples, uint32_t group_count)
{
    uint64_t unit = stk_max(unit_samples, 1), groups = stk_max(group_count, 1), a = unit,
             b = groups;
    uint64_t multiple, past;

    while (b > 0) { /* the greatest common divisor */
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    /* A unit of this length is no batch; then only the start of a unit matters. */
    multiple = groups / a > STK_ORDER_SAMPLES_MAX / unit ? unit : unit * (groups / a);
    past = given % multiple;
    if (past > 0 && !stk_add(given, multiple - past, &given)) {
        return UINT64_MAX;
    }
    return given;
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
    if (options->version > STK_MIX_VERSION || options->epoch_samples % unit ||
        options->epoch_samples > STK_MIX_POSITIONS_MAX ||
        (options->in_sequence && options->group_count > 1)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a setting of the mix is out of bounds",
                        "give an epoch that is a multiple of the unit, and no groups in sequence",
                        "version %u, epoch_samples %llu, unit_samples %llu, group_count %u",
                        options->version, (unsigned long long)options->epoch_samples,
                        (unsigned long long)unit, options->group_count);
    }
    for (uint32_t i = 0; i < options->source_count; i++) {
        const struct stk_mix_source *source = &options->sources[i];

        if (source->sample_count == 0 || source->sample_count > STK_ORDER_SAMPLES_MAX ||
            (options->end != STK_MIX_REPEAT && source->sample_limit > 0 &&
             source->sample_limit < unit)) {
            return stk_fail(
                error, STOKER_ERROR_ARGUMENT, "too few or too many samples in a source",
                "leave it out, or use smaller batches", "source %u: %llu samples, limit %llu", i,
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
                            "divide them: their sum may be at most 2^56",
                            "weights from position %llu", (unsigned long long)position);
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

/* Sets the weights that apply from here on. Returns false at the end of the mix. */
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

/* Returns how many units a frame needs so that each source has one. */
static uint64_t needed_units(const struct layout *layout, uint64_t total)
{
    uint64_t smallest = UINT64_MAX;

    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        if (layout->weights[i] > 0) {
            smallest = stk_min(smallest, layout->weights[i]);
        }
    }
    return (total - 1) / smallest + 1;
}

/* Returns the number of units of a frame: enough for each source to have one, and a power of two,
 * because permutations of that length are fastest. Returns 0 if a share is too small. */
static uint64_t frame_of(const struct layout *layout, uint64_t needed)
{
    uint64_t least, frame = 1;

    least = stk_max(stk_max(STK_MIX_FRAME_SAMPLES / layout->unit, STK_MIX_FRAME_UNITS_MIN), needed);
    if (layout->mix->deals_groups) {
        least = stk_max(least, stk_min(layout->mix->groups.number * STK_MIX_FRAME_GROUP,
                                       STK_MIX_FRAME_GROUPS_MAX));
    }
    while (frame < least && frame <= STK_MIX_FRAME_MAX) {
        frame *= 2;
    }
    return frame > STK_MIX_FRAME_MAX ? 0 : frame;
}

/* Divides an epoch into frames, at most `frame` units long if each source can then have one. */
static void divide_epoch(struct stk_mix_segment *segment, uint64_t epoch, uint64_t frame,
                         uint64_t needed)
{
    uint64_t period = epoch < needed ? ((needed - 1) / epoch + 1) * epoch : epoch;
    uint64_t frames = (period - 1) / frame + 1, base;

    frames = stk_max(stk_min(frames, period / needed), 1);
    base = period / frames;
    segment->period = stk_divisor_of(period);
    segment->period_frames = stk_divisor_of(frames);
    segment->period_extra = period % frames;
    segment->base = stk_divisor_of(base);
    segment->longer = stk_divisor_of(base + 1);
    segment->frame = stk_divisor_of(base + (segment->period_extra > 0));
}

/* Computes where the segment that begins here ends, and whether a source causes the end. */
static uint64_t end_of_segment(const struct layout *layout, uint64_t total, bool *is_source_out)
{
    uint64_t end = STK_MIX_POSITIONS_MAX / layout->unit;
    uint64_t past = layout->epoch ? layout->position % layout->epoch : 0;

    *is_source_out = false;
    if (past > 0) { /* the next segment begins with an epoch */
        end = stk_min(end, layout->position + (layout->epoch - past));
    }
    if (layout->change < layout->options->change_count) {
        end = stk_min(end, layout->options->changes[layout->change].position / layout->unit);
    }
    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        uint64_t left = layout->limit[i] - layout->used[i];

        if (layout->weights[i] > 0 && layout->limit[i] != NOT_LIMITED) {
            stk_u128 units = (stk_u128)left * total / layout->weights[i];

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

/* Returns the difference between the source's share of the segment's first `units` and its actual
 * number of units, times the sum of the weights. */
static wide_signed deficit(const struct stk_mix_segment *segment, uint64_t units, uint64_t weight,
                           uint64_t delivered)
{
    return (wide_signed)units * weight - (wide_signed)delivered * segment->total;
}

/* Adds (or removes) one unit at a time where this moves the counts closest to the shares, until
 * their sum is the number of units of the last frame. */
static void balance_counts(const struct layout *layout, const struct stk_mix_segment *segment,
                           uint64_t *counts, const uint64_t *least)
{
    uint64_t units = stk_mix_frame_begin(segment, segment->frames) + segment->rest, sum = 0;
    uint32_t source_count = layout->options->source_count;

    for (uint32_t i = 0; i < source_count; i++) {
        sum += counts[i];
    }
    while (sum != segment->rest) {
        bool is_short = sum < segment->rest;
        uint32_t best = source_count;
        wide_signed best_deficit = 0;

        for (uint32_t i = 0; i < source_count; i++) {
            uint64_t delivered = segment->rest_before[i] - segment->before[i] + counts[i];
            bool may =
                is_short ? layout->used[i] + delivered < layout->limit[i] : counts[i] > least[i];
            wide_signed this_deficit = deficit(segment, units, layout->weights[i], delivered);

            if (layout->weights[i] > 0 && may &&
                (best == source_count ||
                 (is_short ? this_deficit > best_deficit : this_deficit < best_deficit))) {
                best = i;
                best_deficit = this_deficit;
            }
        }
        STK_ASSERT(best < source_count);
        counts[best] += is_short ? 1 : -(uint64_t)1;
        sum += is_short ? 1 : -(uint64_t)1;
    }
}

/* Computes the last frame, which is shorter. F_i cannot be used, because it may decrease within a
 * frame. If a source causes the end, the frame includes all its remaining units. */
static void lay_out_rest(const struct layout *layout, struct stk_mix_segment *segment,
                         bool is_source_out)
{
    uint64_t counts[STK_MIX_SOURCES_MAX], least[STK_MIX_SOURCES_MAX], must = 0, sum = 0;
    uint64_t units = stk_mix_frame_begin(segment, segment->frames) + segment->rest;

    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        uint64_t delivered = stk_mix_units_up_to(segment, i, segment->frames) -
                             (i ? stk_mix_units_up_to(segment, i - 1, segment->frames) : 0);
        uint64_t left = layout->limit[i] - layout->used[i] - delivered;
        uint64_t share = (uint64_t)((stk_u128)units * layout->weights[i] / segment->total);
        bool is_out =
            is_source_out && layout->weights[i] > 0 && layout->limit[i] != NOT_LIMITED &&
            (stk_u128)(layout->limit[i] - layout->used[i]) * segment->total / layout->weights[i] ==
                units;

        segment->rest_before[i] = segment->before[i] + delivered;
        counts[i] = stk_min(share > delivered ? share - delivered : 0, left);
        counts[i] = is_out ? left : counts[i];
        least[i] = is_out ? left : 0;
        must += least[i];
    }
    /* The required units may exceed the frame by less than one unit per source. */
    segment->rest = stk_max(segment->rest, must);
    balance_counts(layout, segment, counts, least);
    for (uint32_t i = 0; i < layout->options->source_count; i++) {
        sum += counts[i];
        segment->rest_quota[i] = sum;
    }
}

/* Allocates the counts of a segment, and sets those that need no counting. */
static int open_counts(const struct layout *layout, struct stk_mix_segment *segment,
                       struct stoker_error *error)
{
    uint64_t frame = segment->period.number ? segment->base.number : segment->frame.number, sum = 0;
    uint32_t source_count = layout->options->source_count;

    segment->quota = stk_alloc((size_t)source_count * 6, sizeof *segment->quota);
    if (!segment->quota) {
        return stk_fail_memory(error, "mix, %u sources", source_count);
    }
    segment->remainder = segment->quota + source_count;
    segment->before = segment->remainder + source_count;
    segment->rest_quota = segment->before + source_count;
    segment->rest_before = segment->rest_quota + source_count;
    segment->sums = segment->rest_before + source_count;
    for (uint32_t i = 0; i < source_count; i++) {
        sum += layout->weights[i];
        segment->sums[i] = sum;
        segment->quota[i] = (uint64_t)((stk_u128)frame * sum / segment->total);
        segment->remainder[i] = (uint64_t)((stk_u128)frame * sum % segment->total);
        segment->before[i] = layout->used[i];
    }
    return 0;
}

static int add_segment(struct layout *layout, struct stoker_error *error)
{
    struct stk_mix_segment *segment = &layout->mix->segments[layout->mix->segment_count];
    uint32_t source_count = layout->options->source_count;
    uint64_t needed, frame, units, total = 0;
    struct stk_quotient at;
    bool is_source_out;
    int status;

    for (uint32_t i = 0; i < source_count; i++) {
        total += layout->weights[i];
    }
    needed = needed_units(layout, total);
    frame = frame_of(layout, needed);
    if (frame == 0) {
        return stk_fail(
            error, STOKER_ERROR_ARGUMENT, "a weight is too small compared with the others",
            "give each source at least 2^-32 of the mix, or none", "weights from position %llu",
            (unsigned long long)(layout->position * layout->unit));
    }
    segment->first = layout->position;
    segment->total = total;
    if (layout->epoch && layout->position % layout->epoch == 0) {
        divide_epoch(segment, layout->epoch, frame, needed);
    } else {
        /* With a multiple of T the counts of all frames are equal. */
        frame = total <= frame ? frame / total * total : frame;
        segment->frame = stk_divisor_of(frame);
        segment->is_even = frame % total == 0;
    }
    status = open_counts(layout, segment, error);
    if (status < 0) {
        return status;
    }
    layout->mix->segment_count++;
    units = end_of_segment(layout, total, &is_source_out) - layout->position;
    segment->frames = UINT64_MAX; /* none is the last one yet */
    at = stk_mix_frame_of(segment, segment->first + units);
    segment->frames = at.quotient;
    segment->rest = at.remainder;
    lay_out_rest(layout, segment, is_source_out);
    for (uint32_t i = 0; i < source_count; i++) {
        layout->used[i] =
            segment->rest_before[i] + segment->rest_quota[i] - (i ? segment->rest_quota[i - 1] : 0);
    }
    layout->position += stk_mix_frame_begin(segment, segment->frames) + segment->rest;
    segment->end = layout->position;
    return 0;
}

/* Whether the sources up to this one have quota + 1 units in the frame: F_i(frame + 1) -
 * F_i(frame) - quota_i. */
bool stk_mix_frame_has_more(const struct stk_mix_segment *segment, uint32_t source, uint64_t frame)
{
    uint64_t part = (uint64_t)((stk_u128)frame * segment->remainder[source] % segment->total);

    return part + segment->remainder[source] >= segment->total;
}

uint64_t stk_mix_frame_units_up_to(const struct stk_mix_segment *segment, uint32_t source,
                                   uint64_t frame)
{
    if (frame == segment->frames) {
        return segment->rest_quota[source];
    }
    if (segment->period.number > 0) {
        uint64_t begin = stk_mix_frame_begin(segment, frame);

        return stk_mix_share_up_to(segment, source, begin + stk_mix_frame_units(segment, frame)) -
               stk_mix_share_up_to(segment, source, begin);
    }
    return segment->quota[source] +
           (segment->is_even ? 0 : stk_mix_frame_has_more(segment, source, frame));
}
