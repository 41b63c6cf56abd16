/* decode/pixel/pixel_kernels.h: the inner loops in plain C, SSE2, NEON and AVX2, with the same
 * bytes. Rows are RGBX: 4 bytes per pixel; X is copied along and has no meaning. Owner: const
 * tables. Threads: any. Memory: none. Bound: none. */
#ifndef DECODE_PIXEL_PIXEL_KERNELS_H
#define DECODE_PIXEL_PIXEL_KERNELS_H

#include "base/base.h"

struct stk_resize_weights;
struct stk_resize_shuffles;
struct stk_color_transform;

/* How a finished RGBX row is converted to a part of a slot. */
struct stk_pixel_convert {
    uint32_t dtype;  /* enum stoker_dtype: UINT8, FLOAT32, FLOAT16, BFLOAT16 */
    uint32_t layout; /* enum stoker_layout */
    uint32_t width, height;
    bool normalize;
    float scale[3], bias[3]; /* value = u8 * scale + bias, two roundings; plain: 1/255, 0 */
    uint16_t table[3][256];  /* float16 and bfloat16 values of each u8 */
};

struct stk_pixel_kernels {
    const char *name; /* "none", "sse2", "neon", "avx2" */
    /* One row through a FILTER axis with wide weights: output x is
     * clamp((sum over t of in[first[x] + t] * weights[x][t] + half) >> shift).
     * in: readable for axis->stride pixels from each first[x]; out: space for a multiple of 4
     * pixels. */
    void (*horizontal)(const struct stk_resize_weights *axis, const uint8_t *in, uint8_t *out);
    /* The same downwards: out[i] = clamp((sum over t of rows[t][i] * weights[t] + half) >> shift)
     * for i < bytes; nothing past them is read or written. weights[taps] is readable, and zero,
     * where taps is odd. */
    void (*vertical)(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                     uint32_t shift, uint32_t bytes, uint8_t *out);
    /* Four rows of `count` samples as the channels of pixels: out[4 * i + r] = rows[r][i]; reads
     * up to 31 samples past a row, and writes as many pixels past the last. */
    void (*interleave)(const uint8_t *const rows[4], uint32_t count, uint8_t *out);
    /* The reverse; writes no more than count samples of a row. rows may be the same. */
    void (*deinterleave)(const uint8_t *in, uint32_t count, uint8_t *const rows[4]);
    /* One row of samples, as horizontal does four; NULL: not faster than four. Reads up to 31
     * samples past the last that is needed, writes full blocks of STK_RESIZE_SHUFFLES_OUTPUTS. */
    void (*horizontal_one)(const struct stk_resize_shuffles *picks, const uint8_t *in,
                           uint8_t *out);
    /* Writes row y of an image into its slot; reads and writes nothing outside. */
    void (*convert)(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                    void *slot);
    /* Pixels in place: see decode/pixel/color_jitter.h. */
    void (*recolor)(const struct stk_color_transform *recolor, uint8_t *rgbx, uint64_t pixels);
    /* The sum of stk_color_grey over the pixels. */
    uint64_t (*grey_sum)(const uint8_t *rgbx, uint64_t pixels);
};

/* vector: enum stoker_simd. Returns NULL if this machine lacks the instruction set. AUTO never
 * fails. */
const struct stk_pixel_kernels *stk_pixel_kernels_get(uint32_t vector);

/* Returns the bytes of one value, 0 if it is not a pixel type. */
uint32_t stk_pixel_bytes(uint32_t dtype);
/* Fills scale, bias and table from dtype, and from mean and std (of values in [0, 1]), which are
 * NULL when there is nothing to normalise. dtype, layout, width and height are the caller's. */
void stk_pixel_convert_init(struct stk_pixel_convert *convert, const float *mean, const float *std);

#endif
