/* Entropy-coded segments: ITU-T T.81 B.1.1.5 (stuffing) and E.2.4 (restart). */
#include "decode/jpeg/jpeg_segment.h"

#include "base/simd.h"

#include <string.h>

#define MARKER_RST0 0xd0
#define MARKER_END 0xd9

/* Copies at most `room` bytes up to the first FF and may write 15 bytes more. Returns the number of
 * bytes copied. FF is rare in coded data (one byte of 256), but too frequent for two passes or a
 * call each time. */
static size_t copy_before_ff(uint8_t *to, const uint8_t *from, size_t room)
{
    size_t at = 0;

#if defined(STK_SIMD)
    for (; at + 16 <= room; at += 16) {
        v128 bytes = v_load(from + at);
        uint32_t found = v_find8(bytes, 0xff);

        v_store(to + at, bytes);
        if (found < 16) {
            return at + found;
        }
    }
#endif
    for (; at < room && from[at] != 0xff; at++) {
        to[at] = from[at];
    }
    return at;
}

/* Copies until the window is full, or the segment's end is found. */
static void fill(struct stk_jpeg_segment *segment)
{
    uint8_t *to = segment->filled;
    uint8_t *stop = segment->window + STK_JPEG_WINDOW_BYTES - STK_JPEG_MCU_BYTES_MAX;

    while (to < stop && !segment->complete) {
        size_t room = (size_t)stk_min((size_t)(stop - to), (size_t)(segment->end - segment->from));
        size_t bytes = copy_before_ff(to, segment->from, room);
        const uint8_t *found = segment->from + bytes;

        to += bytes;
        segment->from = found;
        if (bytes == room) {
            segment->complete = segment->from == segment->end;
        } else if (segment->end - found > 1 && found[1] == 0) {
            *to++ = 0xff;
            segment->from += 2;
        } else {
            segment->complete = true; /* a marker, or a lone FF at the end of the file */
        }
    }
    segment->filled = to;
    segment->limit = to - STK_JPEG_MCU_BYTES_MAX;
    if (segment->complete) {
        memset(to, 0, STK_JPEG_MCU_BYTES_MAX);
        segment->limit = to;
    }
}

static void begin(struct stk_jpeg_segment *segment)
{
    segment->bits = (struct stk_jpeg_bit_reader){.at = segment->window};
    segment->filled = segment->window;
    segment->complete = false;
    segment->anchor = segment->window;
    segment->anchor_source = segment->from;
    fill(segment);
}

void stk_jpeg_segment_begin(struct stk_jpeg_segment *segment, struct stk_view data, uint8_t *window)
{
    segment->window = window;
    segment->from = data.data;
    segment->end = data.data + data.bytes;
    begin(segment);
}

void stk_jpeg_segment_begin_at_bit(struct stk_jpeg_segment *segment, struct stk_view data,
                                   uint32_t used, uint8_t *window)
{
    stk_jpeg_segment_begin(segment, data, window);
    segment->bits.buffer = (uint64_t)window[0] << (56 + used);
    segment->bits.count = 8 - used;
    segment->bits.at++;
}

/* Bytes at a time, so that a byte counts them: compilers make vectors of it. */
#define COUNTED 128u
_Static_assert(COUNTED <= UINT8_MAX, "all of them may be FF");

/* How many bytes of the file those of the window were: each FF was two. */
static ptrdiff_t stuffed(const uint8_t *from, const uint8_t *end)
{
    ptrdiff_t bytes = end - from;

    while (from < end) {
        size_t part = (size_t)stk_min((size_t)(end - from), COUNTED);
        uint8_t found = 0;

        for (size_t i = 0; i < part; i++) {
            found = (uint8_t)(found + (from[i] == 0xff));
        }
        bytes += found;
        from += part;
    }
    return bytes;
}

const uint8_t *stk_jpeg_segment_position(struct stk_jpeg_segment *segment, uint32_t *used_out)
{
    const struct stk_jpeg_bit_reader *bits = &segment->bits;
    size_t consumed = (size_t)(bits->at - segment->window) * 8 - bits->count;
    const uint8_t *at = segment->window + consumed / 8;

    if (stk_jpeg_segment_overran(segment)) {
        return NULL;
    }
    segment->anchor_source += stuffed(segment->anchor, at);
    segment->anchor = at;
    *used_out = consumed % 8;
    return segment->anchor_source;
}

bool stk_jpeg_segment_overran(const struct stk_jpeg_segment *segment)
{
    const struct stk_jpeg_bit_reader *bits = &segment->bits;

    return bits->at - bits->count / 8 > segment->filled; /* not before it is complete: see limit */
}

bool stk_jpeg_segment_refill(struct stk_jpeg_segment *segment)
{
    struct stk_jpeg_bit_reader *bits = &segment->bits;
    const uint8_t *rest;
    size_t left;

    if (segment->complete) {
        return !stk_jpeg_segment_overran(segment);
    }
    bits->at -= bits->count / 8; /* complete bytes are read again, from their new place */
    bits->count %= 8;
    rest = bits->at -
           (bits->count > 0); /* a byte in use stays in the window: its position may be requested */
    left = (size_t)(segment->filled - rest);
    segment->anchor_source = segment->from - stuffed(rest, segment->filled);
    segment->anchor = segment->window;
    memmove(segment->window, rest, left);
    bits->at = segment->window + (bits->count > 0);
    segment->filled = segment->window + left;
    fill(segment);
    return true;
}

/* Returns the second byte of the marker after the segment, NULL if bytes of the segment are
 * left, or other bytes than this marker follow. */
static const uint8_t *find_marker(const struct stk_jpeg_segment *segment, uint8_t name)
{
    const struct stk_jpeg_bit_reader *bits = &segment->bits;
    const uint8_t *marker = segment->from;

    /* All bytes, and no others, must have been used: libjpeg warns about unused bytes. */
    if (!segment->complete || bits->at - bits->count / 8 != segment->filled) {
        return NULL;
    }
    while (segment->end - marker > 1 && marker[1] == 0xff) {
        marker++; /* fill bytes */
    }
    return segment->end - marker >= 2 && marker[1] == name ? marker + 1 : NULL;
}

bool stk_jpeg_segment_restart(struct stk_jpeg_segment *segment, uint32_t n)
{
    const uint8_t *marker = find_marker(segment, (uint8_t)(MARKER_RST0 + n % 8));

    if (!marker) {
        return false;
    }
    segment->from = marker + 1;
    begin(segment);
    return true;
}

bool stk_jpeg_segment_is_last(const struct stk_jpeg_segment *segment)
{
    return find_marker(segment, MARKER_END) != NULL;
}
