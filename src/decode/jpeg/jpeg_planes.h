/* decode/jpeg/jpeg_planes.h: coefficients to samples to RGBX, in plain C, SSE2, NEON and AVX2, with
 * the same bytes.
 *
 * The arithmetic is libjpeg-turbo's: the inverse transform of jidctint.c as its vector code
 * computes it, with 16-bit products and sums that wrap (plain C wraps as well, so that hostile
 * coefficients have the same result on every path); "fancy" upsampling of jdsample.c; colours of
 * jdcolor.c. Rows inside a workspace may be read and written up to STK_JPEG_ROW_SLACK samples past
 * their end. Owner: const tables. Threads: any. Memory: none. Bound: none. */
#ifndef DECODE_JPEG_JPEG_PLANES_H
#define DECODE_JPEG_JPEG_PLANES_H

#include "decode/jpeg/jpeg_entropy.h"

struct stk_jpeg_kernels {
    const char *name;
    const struct stk_jpeg_entropy_kernels *entropy;
    /* The position of a coefficient in the block, and of its factor in the quantiser: 0..63. */
    uint32_t (*coefficient_index)(uint32_t row, uint32_t column);
    stk_jpeg_idct *idct;
    /* Twice as wide: out[0..2 * count). in[-1] and in[count] are its neighbours, or copies of the
     * first and last sample, which gives libjpeg's result at an image's sides. */
    void (*upsample_h2v1)(const uint8_t *in, uint32_t count, uint8_t *out);
    /* One row of twice as many: 3 parts of the near row, 1 of the far row; below: the far row is
     * the one below. */
    void (*upsample_h1v2)(const uint8_t *near, const uint8_t *far, bool below, uint32_t count,
                          uint8_t *out);
    /* Both. */
    void (*upsample_h2v2)(const uint8_t *near, const uint8_t *far, uint32_t count, uint8_t *out);
    /* YCbCr to RGBX; writes 4 * count bytes and no more. */
    void (*to_rgbx)(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                    uint8_t *out);
    /* Three samples side by side: RGB that is stored so, and grey three times. */
    void (*interleave)(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint32_t count,
                       uint8_t *out);
};

/* vector: enum stoker_simd. Returns NULL if this machine lacks the instruction set. AUTO never
 * fails. */
const struct stk_jpeg_kernels *stk_jpeg_kernels_get(uint32_t vector);

/* As stk_jpeg_decoder_open; kernels are borrowed. A bench leaves stages out with it. */
int stk_jpeg_decoder_open_with_kernels(struct stk_jpeg_decoder **decoder_out,
                                       const struct stk_jpeg_kernels *kernels,
                                       struct stoker_error *error);

/* The plain ones, for tails. */
void stk_jpeg_scalar_to_rgbx(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                             uint8_t *out);
void stk_jpeg_scalar_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b,
                                uint32_t count, uint8_t *out);
extern const struct stk_jpeg_kernels stk_jpeg_kernels_scalar, stk_jpeg_kernels_avx2;
/* Returns the kernels with vectors of 16 bytes, NULL without SSE2 and NEON. AUTO selects them if
 * there is no AVX2. */
const struct stk_jpeg_kernels *stk_jpeg_kernels_simd(void);

/* The transform's constants: round(x * 2^13). */
#define STK_JPEG_CONST_BITS 13
#define STK_JPEG_PASS1_BITS 2
enum stk_jpeg_constant {
    STK_JPEG_0_298 = 2446,
    STK_JPEG_0_390 = 3196,
    STK_JPEG_0_541 = 4433,
    STK_JPEG_0_765 = 6270,
    STK_JPEG_0_899 = 7373,
    STK_JPEG_1_175 = 9633,
    STK_JPEG_1_501 = 12299,
    STK_JPEG_1_847 = 15137,
    STK_JPEG_1_961 = 16069,
    STK_JPEG_2_053 = 16819,
    STK_JPEG_2_562 = 20995,
    STK_JPEG_3_072 = 25172,
};

#endif
