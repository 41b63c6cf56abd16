/* decode/pixel/resize_shuffles.h: weights of an axis in the layout for vectors of one row of
 * samples: four outputs use the same 16 samples, and a shuffle selects the pairs of each output.
 *
 *   fits(source, target)? -> bytes -> build(weights) -> kernels
 *
 * Owner: resize_planar.c. Threads: one. Memory: the caller's. Bound: STK_RESIZE_SIDE_MAX. */
#ifndef DECODE_PIXEL_RESIZE_SHUFFLES_H
#define DECODE_PIXEL_RESIZE_SHUFFLES_H

#include "decode/pixel/resize_weights.h"

#define STK_RESIZE_SHUFFLES_OUTPUTS 16u /* of a block */

/* Outputs 0..3 and 8..11 of a block are the halves of one vector, 4..7 and 12..15 of the other:
 * packing within halves puts them in order. Its weights are [taps / 4][vector][pair][16]. */
struct stk_resize_shuffles_block {
    uint8_t pairs[2][2][32]; /* [vector][first two of four taps, last two]: bytes to pick */
    uint32_t first[2][2];    /* [vector][half]: where its 16 samples start */
    uint8_t unused[48];
};

struct stk_resize_shuffles {
    uint32_t count, quads, shift; /* outputs, fours of taps, fraction bits */
    struct stk_resize_shuffles_block *blocks;
    int16_t *weights;
};

/* True if the samples of any four outputs fit the vectors, however they were upsampled. Pure. */
bool stk_resize_shuffles_fit(const struct stk_resize_axis *plan);
/* Memory for any axis of so many outputs and taps (a multiple of 4), a multiple of 64. Pure. */
uint64_t stk_resize_shuffles_bytes(uint32_t count, uint32_t taps_max);
/* memory: 64-byte aligned, valid as long as the picks are used. */
void stk_resize_shuffles_build(struct stk_resize_shuffles *picks,
                               const struct stk_resize_weights *axis, void *memory);

#endif
