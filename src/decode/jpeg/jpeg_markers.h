/* decode/jpeg/jpeg_markers.h: marker codes of ITU-T T.81 that several files use.
 * Owner: const. Threads: any. Memory: none. Bound: none. */
#ifndef DECODE_JPEG_JPEG_MARKERS_H
#define DECODE_JPEG_JPEG_MARKERS_H

#include "decode/jpeg/jpeg.h"

#define STK_JPEG_BLOCKS_MAX 10u  /* in an MCU (B.2.3) */
#define STK_JPEG_SIDE_MAX 65500u /* libjpeg's JPEG_MAX_DIMENSION */

/* The position of the k-th coefficient of a block: row * 8 + column (figure A.6). */
extern const uint8_t stk_jpeg_zigzag[64];

static inline uint32_t stk_jpeg_div_ceil(uint64_t a, uint64_t b)
{
    return (uint32_t)((a + b - 1) / b);
}

#endif
