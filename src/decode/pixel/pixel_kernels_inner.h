/* decode/pixel/pixel_kernels_inner.h: the plain loops of pixel_kernels.c that the vector files use
 * for the ends of rows.
 * Owner: const. Threads: any. Memory: none. Bound: none. */
#ifndef DECODE_PIXEL_PIXEL_KERNELS_INNER_H
#define DECODE_PIXEL_PIXEL_KERNELS_INNER_H

#include "decode/pixel/pixel_kernels.h"

extern const struct stk_pixel_kernels stk_pixel_kernels_avx2;
/* Returns the kernels with vectors of 16 bytes, NULL without SSE2 and NEON. AUTO selects them if
 * there is no AVX2. */
const struct stk_pixel_kernels *stk_pixel_kernels_simd(void);
extern const struct stk_pixel_kernels stk_pixel_kernels_scalar;

void stk_pixel_scalar_horizontal(const struct stk_resize_weights *axis, const uint8_t *in,
                                 uint8_t *out);
void stk_pixel_scalar_vertical(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                               uint32_t shift, uint32_t bytes, uint8_t *out);
void stk_pixel_scalar_deinterleave(const uint8_t *in, uint32_t count, uint8_t *const rows[4]);
/* Pixels [x, width) of row y only. */
void stk_pixel_scalar_convert_from(const struct stk_pixel_convert *convert, const uint8_t *rgbx,
                                   uint32_t x, uint32_t y, void *slot);
void stk_pixel_scalar_recolor(const struct stk_color_transform *recolor, uint8_t *rgbx,
                              uint64_t pixels);
uint64_t stk_pixel_scalar_grey_sum(const uint8_t *rgbx, uint64_t pixels);

#endif
