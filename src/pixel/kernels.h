/* pixel/kernels.h: the inner loops, in plain C and in AVX2; both give the same bytes.
 * Owner: const tables. Threads: any. Memory: none. Bound: none. */
#ifndef PIXEL_KERNELS_H
#define PIXEL_KERNELS_H

#include "base/base.h"

/* How a finished RGBX row becomes part of a slot. */
struct stk_convert {
    uint32_t dtype;   /* enum stoker_dtype */
    uint32_t layout;  /* enum stoker_layout */
    uint32_t width, height;
    bool     normalize;
    float    scale[3], bias[3]; /* value = u8 * scale + bias, two roundings; plain: 1/255, 0 */
    uint16_t table[3][256];     /* float16 and bfloat16 values of each u8 */
};

struct stk_kernels {
    const char *name; /* "none", "avx2" */
    /* out[i] = (sum over t of rows[t][i] * weights[t] + round) >> shift, i < bytes, to 16 bits:
     * 6 fraction bits. rows are RGBX bytes. */
    void (*vertical)(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                     uint32_t shift, uint32_t bytes, int16_t *out);
    /* out pixel x = clamp(sum over t of in[first[x] + t] * weights[x * taps_stride + t] ...). */
    void (*horizontal)(const int16_t *in, const uint32_t *first, const int16_t *weights,
                       uint32_t taps_stride, uint32_t shift, uint32_t width, uint8_t *rgbx_out);
    /* Row y of a picture into its slot. */
    void (*convert)(const struct stk_convert *convert, const uint8_t *rgbx, uint32_t y,
                    void *slot);
};

/* vector: enum stoker_vector. NULL: this machine cannot. AUTO never fails. */
const struct stk_kernels *stk_kernels_get(uint32_t vector);

#endif
