/* decode/jpeg/jpeg_entropy.h: reads MCUs: parses them, or decodes and transforms them into planes.
 * Two builds of the same text (jpeg_entropy_inner.h): plain, and with BMI2's shifts.
 * Owner: a decoder. Threads: one. Memory: none. Bound: one MCU reads STK_JPEG_MCU_BYTES_MAX. */
#ifndef DECODE_JPEG_JPEG_ENTROPY_H
#define DECODE_JPEG_JPEG_ENTROPY_H

#include "decode/jpeg/jpeg_huffman.h"
#include "decode/jpeg/jpeg_markers.h"
#include "decode/jpeg/jpeg_segment.h"

#define STK_JPEG_COEFFICIENT_NONE 64u /* after the block: for coefficients past 63 */
#define STK_JPEG_BLOCK_VALUES 80u /* coefficients and that place, an integral number of vectors */

/* One block of an MCU. */
struct stk_jpeg_block {
    const struct stk_jpeg_huffman_table *dc, *ac; /* borrowed */
    const int16_t *quantiser;                     /* borrowed; as the block is laid out */
    uint32_t component;
    uint8_t *to; /* of column 0 of the stored columns */
    size_t stride;
    uint32_t step; /* samples from one MCU to the next */
};

/* Computes 8 rows of 8 samples from a block. */
typedef void stk_jpeg_idct(const int16_t *block, const int16_t *quantiser, uint8_t *to,
                           size_t stride);

struct stk_jpeg_mcu_state {
    struct stk_jpeg_segment segment;
    uint32_t dc[3];  /* predictors */
    uint32_t damage; /* not 0: some block was not right */
    struct stk_jpeg_block blocks[STK_JPEG_BLOCKS_MAX];
    uint32_t block_count;
    stk_jpeg_idct *idct;
    uint8_t coefficient_index[256]; /* of each k; those past 63: PLACE_NONE */
    int16_t block[STK_JPEG_BLOCK_VALUES] __attribute__((aligned(64))); /* zero */
};

/* Decodes the next `count` MCUs of the segment: parses them only, or stores them from column
 * `column` on. Returns false if the bits ran out; other damage is counted in mcus->damage. */
struct stk_jpeg_entropy_kernels {
    bool (*skip)(struct stk_jpeg_mcu_state *mcus, uint32_t count);
    bool (*decode)(struct stk_jpeg_mcu_state *mcus, uint32_t column, uint32_t count);
    /* The same of two segments of one image, side by side: two streams of bits in one core. */
    bool (*decode_two)(struct stk_jpeg_mcu_state mcus[2], uint32_t column, uint32_t count);
};
extern const struct stk_jpeg_entropy_kernels stk_jpeg_entropy_scalar, stk_jpeg_entropy_avx2;

#endif
