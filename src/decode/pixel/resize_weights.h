/* decode/pixel/resize_weights.h: the weights of one axis of a resize: the source samples of each
 * output and their shares.
 *
 *   range (which samples are needed) -> bytes (how much memory) -> build (fills the tables)
 *
 * Weights are computed in doubles with + - * / only (no libm, so that all machines agree) and
 * rounded to 16 bits, with as many fraction bits as the largest weight leaves. This is the
 * definition of torch 2 for its antialiased uint8 path ("upsample_bilinear2d_aa",
 * "upsample_bicubic2d_aa" with a = -0.5), which torchvision v2 uses. Owner: resize. Threads: one.
 * Memory: the caller's, cut up by build. Bound: STK_RESIZE_SIDE_MAX.
 */
#ifndef DECODE_PIXEL_RESIZE_WEIGHTS_H
#define DECODE_PIXEL_RESIZE_WEIGHTS_H

#include "base/base.h"

/* No side, source or target, is longer: products of two sides and a few bytes fit 64 bits. */
#define STK_RESIZE_SIDE_MAX (1u << 24)

struct stk_resize_axis {
    uint32_t source, target;       /* samples are resized to outputs */
    uint32_t window, window_count; /* of the outputs: the requested window */
    uint32_t filter;               /* enum stoker_filter */
    bool flip;                     /* the window's outputs run backwards */
};

enum stk_resize_weights_mode {
    STK_RESIZE_WEIGHTS_COPY,    /* output i is sample i */
    STK_RESIZE_WEIGHTS_NEAREST, /* output i is sample first[i] */
    STK_RESIZE_WEIGHTS_FILTER,  /* output i is a weighted sum */
};

struct stk_resize_weights {
    enum stk_resize_weights_mode mode;
    uint32_t count;   /* outputs */
    uint32_t stride;  /* weights of an output in `weights`; a multiple of 4 */
    uint32_t shift;   /* fraction bits; the weights of an output sum to about 1 << it */
    uint32_t *first;  /* [count, rounded up to 4] counted from the range's start */
    uint32_t *taps;   /* [count] how many weights are in use, >= 1 */
    int16_t *weights; /* [count * stride]; zero from taps on */
    /* The same for the vectors of the horizontal pass (NULL otherwise). A block of 16 serves
     * outputs 2k and 2k + 1 and two taps: 4 times (one for each of R, G, B, X) the pair of the
     * first, then 4 times the pair of the second. Blocks: [k][pair of taps]. */
    int16_t *wide;
};

enum stk_resize_weights_mode stk_resize_weights_mode(const struct stk_resize_axis *plan);
/* Most taps that an output can have, >= 1, rounded up to the vectors' groups of 4. */
uint32_t stk_resize_weights_taps_max(const struct stk_resize_axis *plan);
/* The samples that the window needs: [*start, *end). Pure. */
void stk_resize_weights_range(const struct stk_resize_axis *plan, uint32_t *start, uint32_t *end);
/* Returns the memory that build needs, a multiple of 64. */
uint64_t stk_resize_weights_bytes(const struct stk_resize_axis *plan, bool wide);
/* memory: 64-byte aligned, stk_resize_weights_bytes long, valid as long as the axis is used. */
void stk_resize_weights_build(struct stk_resize_weights *axis, const struct stk_resize_axis *plan,
                              bool wide, void *memory);

/* An axis over samples that were not upsampled: the combination of the axis over their pixels and
 * of upsampling. Sample j covers pixels j * ratio and following; pixel i is its sample, or with
 * `smooth` (ratio 2) 3/4 of it and 1/4 of the next one, towards which the pixel is. */
struct stk_resize_subsampling {
    uint32_t count; /* of all samples; after them follow copies of the first and the last */
    uint32_t ratio;
    bool is_smooth;
    uint32_t pixel;      /* the start of the pixels' range */
    uint32_t start, end; /* out: samples that are needed; axis->first counts from the start */
};
/* Returns the memory that compose needs for any such samples, a multiple of 64. */
uint64_t stk_resize_weights_compose_bytes(const struct stk_resize_axis *plan, bool wide);
/* As build; plan and pixels: the axis over pixels, which lives as long, and its plan. It is
 * wide if that axis has space for wide weights, and of mode FILTER. */
void stk_resize_weights_compose(struct stk_resize_weights *axis, const struct stk_resize_axis *plan,
                                const struct stk_resize_weights *pixels,
                                struct stk_resize_subsampling *samples, void *memory);

#endif
