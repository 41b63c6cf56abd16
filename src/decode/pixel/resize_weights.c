/* The weights of one axis. The arithmetic follows the definition of torch's antialiased uint8
 * resize step by step: the order of the operations is part of the result. */
#include "decode/pixel/resize_weights.h"

#include <string.h>

/* Beyond so many outputs, only those of the window decide about the fraction bits: the work for
 * one image stays bounded. */
#define SCAN_MAX 65536u

/* torch tries up to so many fraction bits. */
#define SHIFT_MAX 22u

#define INLINE static inline __attribute__((always_inline))

/* The fraction bits of the one weight of a sample that is copied. */
#define COPY_SHIFT 14

struct scaling {
    double scale;   /* samples for one output */
    double support; /* half the filter's width, in samples */
    double inverse; /* of scale if it shrinks, else 1 */
    uint32_t source;
    uint32_t filter;
};

enum stk_resize_weights_mode stk_resize_weights_mode(const struct stk_resize_axis *plan)
{
    if (plan->source == plan->target) {
        return plan->flip ? STK_RESIZE_WEIGHTS_NEAREST : STK_RESIZE_WEIGHTS_COPY;
    }
    return plan->filter == STOKER_NEAREST ? STK_RESIZE_WEIGHTS_NEAREST : STK_RESIZE_WEIGHTS_FILTER;
}

static struct scaling scaling_of(const struct stk_resize_axis *plan)
{
    double half_width = plan->filter == STOKER_BICUBIC ? 2.0 : 1.0;
    struct scaling scaling = {.source = plan->source, .filter = plan->filter};

    scaling.scale = (double)plan->source / (double)plan->target;
    scaling.support = scaling.scale >= 1.0 ? half_width * scaling.scale : half_width;
    scaling.inverse = scaling.scale >= 1.0 ? 1.0 / scaling.scale : 1.0;
    return scaling;
}

/* The samples under the filter of output i; never empty. Returns how many. */
static uint32_t span(const struct scaling *scaling, uint32_t i, uint32_t *first_out)
{
    double center = scaling->scale * ((double)i + 0.5);
    int64_t low = (int64_t)(center - scaling->support + 0.5);
    int64_t high = (int64_t)(center + scaling->support + 0.5);

    low = low < 0 ? 0 : low;
    high = high > (int64_t)scaling->source ? (int64_t)scaling->source : high;
    STK_ASSERT(low < high);
    *first_out = (uint32_t)low;
    return (uint32_t)(high - low);
}

/* The triangle. */
static double triangle(double x)
{
    double value = 1.0 - (x < 0.0 ? -x : x);

    return value > 0.0 ? value : 0.0;
}

/* The cubic of Keys (1981) with a = -0.5. */
static double cubic(double x)
{
    x = x < 0.0 ? -x : x;
    if (x < 1.0) {
        return (1.5 * x - 2.5) * x * x + 1.0;
    }
    return x < 2.0 ? ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0 : 0.0;
}

/* The exact weights of output i, `stride` of them, 0 past the taps; returns how many taps. */
INLINE uint32_t output_weights_by(double (*filter)(double x), const struct scaling *scaling,
                                  uint32_t i, uint32_t *first_out, double *weights_out,
                                  uint32_t stride)
{
    double center = scaling->scale * ((double)i + 0.5), total = 0.0;
    uint32_t count = span(scaling, i, first_out);
    double first = (double)*first_out; /* sums of integers are exact */

    for (uint32_t t = 0; t < stride; t++) {
        double place = first + (double)(int32_t)t - center + 0.5;
        double value = filter(place * scaling->inverse);

        weights_out[t] = t < count ? value : 0.0;
    }
    for (uint32_t t = 0; t < stride; t++) { /* in order, as torch sums; 0 changes nothing */
        total += weights_out[t];
    }
    for (uint32_t t = 0; t < stride; t++) {
        weights_out[t] /= total;
    }
    return count;
}

/* The usual strides by constants: a few divisions at once, and no branches on the taps. */
static uint32_t output_weights(const struct scaling *scaling, uint32_t i, uint32_t *first_out,
                               double *weights_out, uint32_t stride)
{
    if (scaling->filter == STOKER_BICUBIC) {
        return output_weights_by(cubic, scaling, i, first_out, weights_out, stride);
    }
    if (stride == 4) {
        return output_weights_by(triangle, scaling, i, first_out, weights_out, 4);
    }
    if (stride == 8) {
        return output_weights_by(triangle, scaling, i, first_out, weights_out, 8);
    }
    return output_weights_by(triangle, scaling, i, first_out, weights_out, stride);
}

/* torch's index of nearest (not nearest-exact), in floats as there. */
static uint32_t nearest(const struct stk_resize_axis *plan, uint32_t i)
{
    float scale = (float)plan->source / (float)plan->target;

    if (plan->source == plan->target) {
        return i;
    }
    return (uint32_t)stk_min((uint64_t)((float)i * scale), plan->source - 1);
}

void stk_resize_weights_range(const struct stk_resize_axis *plan, uint32_t *start, uint32_t *end)
{
    struct scaling scaling = scaling_of(plan);
    uint32_t last = plan->window + plan->window_count - 1;

    STK_ASSERT(plan->window_count > 0 && last < plan->target);
    if (stk_resize_weights_mode(plan) == STK_RESIZE_WEIGHTS_FILTER) {
        span(&scaling, plan->window, start);
        *end = span(&scaling, last, end) + *end;
    } else {
        *start = nearest(plan, plan->window);
        *end = nearest(plan, last) + 1;
    }
}

/* A filter of width 2 * support covers at most so many samples. */
static uint32_t stride_of(const struct stk_resize_axis *plan)
{
    struct scaling scaling = scaling_of(plan);
    uint64_t taps = (uint64_t)(2.0 * scaling.support) + 1;

    if (stk_resize_weights_mode(plan) != STK_RESIZE_WEIGHTS_FILTER) {
        return 0;
    }
    return (uint32_t)stk_round_up(stk_min(taps, plan->source), 4);
}

uint32_t stk_resize_weights_taps_max(const struct stk_resize_axis *plan)
{
    return stk_resize_weights_mode(plan) == STK_RESIZE_WEIGHTS_FILTER ? stride_of(plan) : 4;
}

/* How the memory is cut up: offsets of the tables, and the end. `early`: the weights before they
 * are rounded. */
struct cut {
    uint64_t first, taps, weights, wide, early, end;
};

/* stride: weights of an output; early_bytes: of one of them before it is rounded. */
static struct cut cut_of(uint32_t window_count, uint32_t stride, bool wide, size_t early_bytes)
{
    uint64_t outputs = stk_round_up(window_count, 4), weights = outputs * stride;
    struct cut cut = {0};

    cut.taps = cut.first + stk_round_up(outputs * sizeof(uint32_t), 64);
    cut.weights = cut.taps + stk_round_up(outputs * sizeof(uint32_t), 64);
    cut.wide = cut.weights + stk_round_up(weights * sizeof(int16_t), 64);
    cut.early = cut.wide + stk_round_up(wide ? 4 * weights * sizeof(int16_t) : 0, 64);
    cut.end = cut.early + stk_round_up(weights * early_bytes, 64);
    return cut;
}

/* Points the axis into its memory. */
static void assign_tables(struct stk_resize_weights *axis, const struct cut *cut, bool wide,
                          uint8_t *base)
{
    axis->first = (uint32_t *)(void *)(base + cut->first);
    axis->taps = (uint32_t *)(void *)(base + cut->taps);
    axis->weights = (int16_t *)(void *)(base + cut->weights);
    axis->wide = wide ? (int16_t *)(void *)(base + cut->wide) : NULL;
}

static struct cut built_cut(const struct stk_resize_axis *plan, bool wide)
{
    return cut_of(plan->window_count, stride_of(plan), wide, sizeof(double));
}

uint64_t stk_resize_weights_bytes(const struct stk_resize_axis *plan, bool wide)
{
    return built_cut(plan, wide).end;
}

/* As many fraction bits as keep the largest weight below 1 << 15. */
static uint32_t shift_of(double weight_max)
{
    uint32_t shift = 0;

    while (shift < SHIFT_MAX && (int)(0.5 + weight_max * (double)(1 << (shift + 1))) < 1 << 15) {
        shift++;
    }
    return shift;
}

/* Fills first, taps and the exact weights; returns the largest weight. */
static double all_output_weights(struct stk_resize_weights *axis,
                                 const struct stk_resize_axis *plan, double *exact)
{
    struct scaling scaling = scaling_of(plan);
    bool scan = plan->target <= SCAN_MAX;
    uint32_t begin = scan ? 0 : plan->window, first;
    uint32_t end = scan ? plan->target : plan->window + plan->window_count;
    double weight_max = 0.0;

    for (uint32_t i = begin; i < end; i++) {
        uint32_t x = i - plan->window; /* wraps outside the window: not below window_count */
        bool wanted = x < plan->window_count;
        /* Unwanted ones use the place of output 0, which is filled after them or again. */
        uint32_t slot = !wanted ? 0 : plan->flip ? plan->window_count - 1 - x : x;
        double *weights = exact + (uint64_t)slot * axis->stride;
        uint32_t taps = output_weights(&scaling, i, &first, weights, axis->stride);

        for (uint32_t t = 0; t < axis->stride; t++) {
            weight_max = weights[t] > weight_max ? weights[t] : weight_max;
        }
        if (wanted) {
            axis->first[slot] = first;
            axis->taps[slot] = taps;
        }
    }
    output_weights(&scaling, plan->flip ? plan->window + plan->window_count - 1 : plan->window,
                   &first, exact, axis->stride);
    return weight_max;
}

/* Rounds away from zero at the half, as torch does. */
static void round_weights(struct stk_resize_weights *axis, const double *exact)
{
    double one = (double)(1u << axis->shift);

    for (uint32_t x = 0; x < axis->count; x++) {
        const double *from = exact + (uint64_t)x * axis->stride;
        int16_t *to = axis->weights + (uint64_t)x * axis->stride;
        int64_t sum = 0;

        for (uint32_t t = 0; t < axis->stride; t++) { /* 0 past the taps stays 0 */
            int32_t value = (int32_t)(from[t] * one + (from[t] < 0.0 ? -0.5 : 0.5));

            to[t] = (int16_t)value;
            sum += value < 0 ? -value : value;
        }
        /* So the kernels' sums of weight * 255 and the rounding half cannot overflow. */
        STK_ASSERT(sum * 255 < INT32_MAX - (1 << SHIFT_MAX));
    }
}

static void widen(struct stk_resize_weights *axis)
{
    uint32_t outputs = (uint32_t)stk_round_up(axis->count, 4), pairs = axis->stride / 2;

    for (uint32_t x = 0; x < outputs; x++) {
        const int16_t *from = axis->weights + (uint64_t)x * axis->stride;
        int16_t *to = axis->wide + ((uint64_t)(x / 2) * pairs * 2 + x % 2) * 8;

        for (uint32_t p = 0; p < pairs; p++) {
            for (int c = 0; c < 4; c++) {
                memcpy(to + 16 * p + 2 * c, from + 2 * p, 2 * sizeof(*to));
            }
        }
    }
}

/* Vectors make 4 outputs at a time: those past the end sum samples of the first with 0. */
static void fill_group(struct stk_resize_weights *axis)
{
    for (uint64_t x = axis->count; x < stk_round_up(axis->count, 4); x++) {
        axis->first[x] = axis->first[0];
        memset(axis->weights + x * axis->stride, 0, axis->stride * sizeof(int16_t));
    }
}

void stk_resize_weights_build(struct stk_resize_weights *axis, const struct stk_resize_axis *plan,
                              bool wide, void *memory)
{
    struct cut cut = built_cut(plan, wide);
    double *exact = (double *)(void *)((uint8_t *)memory + cut.early);
    uint32_t start, end;

    *axis = (struct stk_resize_weights){.mode = stk_resize_weights_mode(plan),
                                        .count = plan->window_count};
    axis->stride = stride_of(plan);
    assign_tables(axis, &cut, wide, memory);
    stk_resize_weights_range(plan, &start, &end);
    if (axis->mode == STK_RESIZE_WEIGHTS_FILTER) {
        axis->shift = shift_of(all_output_weights(axis, plan, exact));
        round_weights(axis, exact);
    }
    for (uint32_t x = 0; x < axis->count; x++) {
        uint32_t i = plan->window + (plan->flip ? axis->count - 1 - x : x);

        if (axis->mode != STK_RESIZE_WEIGHTS_FILTER) {
            axis->first[x] = nearest(plan, i);
            axis->taps[x] = 1;
        }
        axis->first[x] -= start;
    }
    fill_group(axis);
    if (wide && axis->mode == STK_RESIZE_WEIGHTS_FILTER) {
        widen(axis);
    }
}

/* ---- samples that are not upsampled ---- */

/* The largest number of samples under an output, including neighbours and the pixels' own
 * position. */
static uint32_t composed_stride(const struct stk_resize_axis *plan)
{
    return (uint32_t)stk_round_up(stk_resize_weights_taps_max(plan) + 2, 4);
}

static struct cut composed_cut(const struct stk_resize_axis *plan, bool wide)
{
    return cut_of(plan->window_count, composed_stride(plan), wide, sizeof(int32_t));
}

uint64_t stk_resize_weights_compose_bytes(const struct stk_resize_axis *plan, bool wide)
{
    return composed_cut(plan, wide).end;
}

/* The sample next to that of pixel i, on the side of the pixel. */
static uint32_t beside(const struct stk_resize_subsampling *samples, uint32_t i)
{
    int64_t j = (int64_t)(i / 2) + (i % 2 ? 1 : -1);

    j = j < 0 ? 0 : j;
    return (uint32_t)stk_min((uint64_t)j, samples->count - 1);
}

/* Ratios are small, and divisions slow. */
static uint32_t sample_of(const struct stk_resize_subsampling *samples, uint32_t pixel)
{
    return samples->ratio == 2 ? pixel / 2 : samples->ratio == 1 ? pixel : pixel / samples->ratio;
}

/* The pixels under output x. */
static uint32_t pixels_under(const struct stk_resize_weights *pixels,
                             const struct stk_resize_subsampling *samples, uint32_t x,
                             uint32_t *count_out)
{
    *count_out = pixels->mode == STK_RESIZE_WEIGHTS_FILTER ? pixels->taps[x] : 1;
    return samples->pixel + pixels->first[x];
}

/* Fills first and taps, and so the stride. */
static void span_samples(struct stk_resize_weights *axis, const struct stk_resize_weights *pixels,
                         const struct stk_resize_subsampling *samples)
{
    uint32_t most = 1;

    for (uint32_t x = 0; x < axis->count; x++) {
        uint32_t count, begin = pixels_under(pixels, samples, x, &count), last = begin + count - 1;
        uint32_t first = sample_of(samples, begin), end = sample_of(samples, last);

        if (samples->is_smooth) {
            first = (uint32_t)stk_min(first, beside(samples, begin));
            end = (uint32_t)stk_max(end, beside(samples, last));
        }
        axis->first[x] = first;
        axis->taps[x] = end - first + 1;
        most = (uint32_t)stk_max(most, axis->taps[x]);
    }
    axis->stride = (uint32_t)stk_round_up(most, 4);
}

/* 4 times the weights of the samples under output x. */
static void gather_weights(const struct stk_resize_weights *pixels,
                           const struct stk_resize_subsampling *samples, uint32_t x, uint32_t first,
                           int32_t *sums)
{
    static const int16_t one = 1 << COPY_SHIFT;
    bool filters = pixels->mode == STK_RESIZE_WEIGHTS_FILTER;
    const int16_t *weights = filters ? pixels->weights + (size_t)x * pixels->stride : &one;
    uint32_t count, begin = pixels_under(pixels, samples, x, &count);
    bool inside = begin >= 2 && (begin + count) / 2 + 1 < samples->count;

    for (uint32_t t = 0; t < count && samples->is_smooth; t++) {
        uint32_t i = begin + t;

        sums[i / 2 - first] += 3 * weights[t];
        sums[(inside ? i / 2 + i % 2 * 2 - 1 : beside(samples, i)) - first] += weights[t];
    }
    for (uint32_t t = 0; t < count && !samples->is_smooth; t++) {
        sums[sample_of(samples, begin + t) - first] += 4 * weights[t];
    }
}

/* Weights of 16 bits; returns the fraction bits. sums are 4 times weights of `shift` of them, which
 * are not made finer: a sample that is a pixel has the pixel's weight. */
static uint32_t round_sums(struct stk_resize_weights *axis, const int32_t *sums, uint32_t shift,
                           int32_t sum_max)
{
    uint32_t less = 2;

    while (((int64_t)sum_max + (1 << less >> 1)) >> less >= 1 << 15) {
        less++;
    }
    for (uint32_t x = 0; x < axis->count; x++) {
        const int32_t *from = sums + (size_t)x * axis->stride;
        int16_t *to = axis->weights + (size_t)x * axis->stride;

        for (uint32_t t = 0; t < axis->stride; t++) {
            to[t] = (int16_t)((from[t] + (1 << less >> 1)) >> less); /* 0 past the taps */
        }
    }
    return shift + 2 - less;
}

/* Samples that are pixels. */
static void same_samples(struct stk_resize_weights *axis, const struct stk_resize_weights *pixels,
                         struct stk_resize_subsampling *samples)
{
    uint32_t end = 0;

    for (uint32_t x = 0; x < pixels->count; x++) {
        end = (uint32_t)stk_max(end, pixels->first[x] + pixels->taps[x]);
    }
    *axis = *pixels;
    samples->start = samples->pixel;
    samples->end = samples->pixel + end;
}

void stk_resize_weights_compose(struct stk_resize_weights *axis, const struct stk_resize_axis *plan,
                                const struct stk_resize_weights *pixels,
                                struct stk_resize_subsampling *samples, void *memory)
{
    bool wide = pixels->wide != NULL;
    struct cut cut = composed_cut(plan, wide);
    int32_t *sums = (int32_t *)(void *)((uint8_t *)memory + cut.early);
    uint32_t start = UINT32_MAX, end = 0;
    uint32_t shift = pixels->mode == STK_RESIZE_WEIGHTS_FILTER ? pixels->shift : COPY_SHIFT;
    int32_t sum_max = 0;

    if (samples->ratio == 1 && pixels->mode == STK_RESIZE_WEIGHTS_FILTER) {
        same_samples(axis, pixels, samples);
        return;
    }
    *axis = (struct stk_resize_weights){.mode = STK_RESIZE_WEIGHTS_FILTER, .count = pixels->count};
    assign_tables(axis, &cut, wide, memory);
    span_samples(axis, pixels, samples);
    STK_ASSERT(axis->stride <= composed_stride(plan));
    memset(sums, 0, (size_t)axis->count * axis->stride * sizeof(*sums));
    for (uint32_t x = 0; x < axis->count; x++) {
        int32_t *row = sums + (size_t)x * axis->stride;

        gather_weights(pixels, samples, x, axis->first[x], row);
        for (uint32_t t = 0; t < axis->stride; t++) {
            int32_t size = row[t] < 0 ? -row[t] : row[t];

            sum_max = size > sum_max ? size : sum_max;
        }
        start = (uint32_t)stk_min(start, axis->first[x]);
        end = (uint32_t)stk_max(end, axis->first[x] + axis->taps[x]);
    }
    axis->shift = round_sums(axis, sums, shift, sum_max);
    for (uint32_t x = 0; x < axis->count; x++) {
        axis->first[x] -= start;
    }
    fill_group(axis);
    if (wide) {
        widen(axis);
    }
    samples->start = start;
    samples->end = end;
}
