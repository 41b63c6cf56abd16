/* decode/codec/jpeg_header.h: reads the header of a JPEG up to its first scan.
 *
 *   bytes -> header -> bytes that libjpeg accepts
 *
 * Owner: values. Threads: any. Memory: none. Bound: each byte is read once. */
#ifndef DECODE_CODEC_JPEG_HEADER_H
#define DECODE_CODEC_JPEG_HEADER_H

#include "decode/codec/codec_backend.h"

#define STK_JPEG_SIDE_MAX 65500u /* JPEG_MAX_DIMENSION of libjpeg */

struct stk_jpeg_header {
    uint32_t width, height;
    uint32_t components; /* 1, 3 or 4 */
    uint32_t h_max, v_max;
    uint8_t h[4], v[4]; /* sampling factors, 1..4 */
    bool progressive;
    bool multi_scan;                           /* libjpeg keeps all coefficients */
    uint8_t exif_orientation, xmp_orientation; /* 0: none */
};

/* bytes must start with FF D8. Returns 0 on success, TRUNCATED, CORRUPT or UNSUPPORTED on
 * failure. */
int stk_jpeg_header_read(struct stk_view bytes, struct stk_jpeg_header *header_out,
                         struct stoker_error *error);
/* Returns an upper bound of the scratch that decoding needs. */
uint64_t stk_jpeg_header_memory_bytes(const struct stk_jpeg_header *header);

#endif
