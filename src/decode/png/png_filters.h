/* decode/png/png_filters.h: reverses the filters of PNG rows; plain C and AVX2 give the same bytes.
 *
 * A row has the layout of the file: one byte for the filter, then the bytes of the pixels. The
 * filters are those of the PNG specification, 9.2.
 * Owner: const tables. Threads: any. Memory: none. Bound: none. */
#ifndef DECODE_PNG_PNG_FILTERS_H
#define DECODE_PNG_PNG_FILTERS_H

#include "base/base.h"

enum stk_png_filter { STK_PNG_NONE, STK_PNG_SUB, STK_PNG_UP, STK_PNG_AVERAGE, STK_PNG_PAETH };

struct stk_png_kernels {
    const char *name;
    /* Four rows in place, one below the other, each `stride` bytes after the one above it, and the
     * first below `above` (NULL: there is none); `bytes` of pixels, of 3 or 4 bytes each. */
    void (*unfilter_four)(uint8_t *rows, size_t stride, const uint8_t *above, size_t bytes,
                          uint32_t unit);
};

/* vector: enum stoker_simd. Returns NULL if this machine lacks the instruction set. AUTO never
 * fails. */
const struct stk_png_kernels *stk_png_kernels_get(uint32_t vector);
extern const struct stk_png_kernels stk_png_kernels_avx2;

/* One row's pixels in place: row[-1] is the filter's byte. above: its pixels; unit: bytes from a
 * sample to its left neighbour, of which there are so many at least. */
void stk_png_unfilter(uint8_t *row, const uint8_t *above, size_t bytes, uint32_t unit);

#endif
