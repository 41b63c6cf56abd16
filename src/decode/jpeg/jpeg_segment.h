/* decode/jpeg/jpeg_segment.h: entropy-coded bytes without stuffing, one window at a time.
 *
 *   begin -> (decode MCUs while at <= limit; refill when at > limit) ... -> restart -> ...
 *
 * A segment ends at a marker or at the end of the file. The window holds the bytes of the segment
 * with each FF 00 replaced by FF. While at <= limit, at least STK_JPEG_MCU_BYTES_MAX bytes may be
 * read without a check; bytes after the end of the segment are zero.
 * Owner: a decoder. Threads: one. Memory: the caller's window. Bound: STK_JPEG_WINDOW_BYTES. */
#ifndef DECODE_JPEG_JPEG_SEGMENT_H
#define DECODE_JPEG_JPEG_SEGMENT_H

#include "decode/jpeg/jpeg.h"

/* The maximum size of 10 blocks of 64 coefficients with a code of 16 and a value of 15 bits each
 * (2,480), plus the read-ahead of a refill (8 + 8), rounded up. */
#define STK_JPEG_MCU_BYTES_MAX 2560u
#define STK_JPEG_WINDOW_BYTES (16u << 10)

/* The next bits of the data, left in `buffer`: `count` are valid, and those below them are either
 * zero or the bits at `at`, so that reading them again changes nothing. */
struct stk_jpeg_bit_reader {
    uint64_t buffer;
    uint32_t count;
    const uint8_t *at; /* the first byte of which no bit is counted */
};

struct stk_jpeg_segment {
    struct stk_jpeg_bit_reader bits;
    const uint8_t *limit;      /* of bits.at, before an MCU */
    uint8_t *window;           /* borrowed: STK_JPEG_WINDOW_BYTES */
    uint8_t *filled;           /* in the window: end of the copied bytes */
    const uint8_t *from, *end; /* of the file's bytes: not yet copied */
    /* A byte of the window whose place in the file is known, at bits.at or before it. */
    const uint8_t *anchor, *anchor_source;
    bool complete; /* the segment ends at `filled` */
};

void stk_jpeg_segment_begin(struct stk_jpeg_segment *segment, struct stk_view data,
                            uint8_t *window);
/* As stk_jpeg_segment_begin, but the first `used` (0..7) bits are skipped. */
void stk_jpeg_segment_begin_at_bit(struct stk_jpeg_segment *segment, struct stk_view data,
                                   uint32_t used, uint8_t *window);
/* Finds the file offset of the byte that holds the next bit, and the number of its bits already
 * used. It scans the bytes since the previous call. Returns NULL if bits beyond the end were
 * used. */
const uint8_t *stk_jpeg_segment_position(struct stk_jpeg_segment *segment, uint32_t *used_out);
/* Call after `limit` was passed. Returns false if bits beyond the end were used. */
bool stk_jpeg_segment_refill(struct stk_jpeg_segment *segment);
/* Continues after marker RSTn. Returns false if bytes of the segment are left or another marker
 * follows. */
bool stk_jpeg_segment_restart(struct stk_jpeg_segment *segment, uint32_t n);
/* Returns whether all bytes of the segment were used and the end marker of the image follows. */
bool stk_jpeg_segment_is_last(const struct stk_jpeg_segment *segment);
/* Returns whether a bit beyond the end was used. Call it before pixels are returned. */
bool stk_jpeg_segment_overran(const struct stk_jpeg_segment *segment);

#endif
