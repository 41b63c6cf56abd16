/* format/compress/seek_points.h: seek points: the places of a compressed shard where decompression
 * can begin.
 *
 *   decompress --bytes, points--> builder -finish-> image, stored in the index
 *   image: head | points | windows          point i ... point i + 1: a segment, decompressed as one
 *
 * gzip: a place between two deflate blocks with the 32 KiB before it, or the begin of a member.
 * zstd: the begin of a frame. There is none inside of a frame, so a shard of one frame has one
 * point. Each segment has a checksum of its decompressed bytes, so that data from a wrong or
 * damaged point is detected before it is used. An image is untrusted input. The format:
 * docs/formats.md.
 * Source: RFC 1951, RFC 8878 and zlib's manual (Z_BLOCK, inflatePrime).
 * Pure: no I/O. Owner: the scan (builder), the data set (images). Threads: one per builder.
 * Memory: 40 bytes per point and a window of at most 32 KiB.
 * Bound: STK_SEEK_POINTS_IMAGE_MAX. */
#ifndef FORMAT_COMPRESS_SEEK_POINTS_H
#define FORMAT_COMPRESS_SEEK_POINTS_H

#include "base/base.h"

#define STK_SEEK_POINTS_SPACING_DEFAULT (1ull << 20)
#define STK_SEEK_POINTS_SPACING_MIN (64ull << 10)
/* A shard with a longer segment is read from front to back. The order depends on that, so the limit
 * is the same for all. */
#define STK_SEEK_POINTS_SEGMENT_MAX (32ull << 20)
#define STK_SEEK_POINTS_IMAGE_MAX (UINT32_MAX - 7ull)
#define STK_SEEK_POINTS_WINDOW_BYTES 32768u /* deflate's (RFC 1951, 3.2.5) */

enum stk_seek_point_kind {
    STK_SEEK_POINT_STREAM = 1, /* the begin of a member or frame: no window */
    STK_SEEK_POINT_RAW,        /* inside of a gzip member, with its window */
    STK_SEEK_POINT_COMPRESSED, /* the same, with its window as a zstd frame */
};

struct stk_seek_points_head {
    uint64_t out_bytes, in_bytes; /* of the shard: decompressed, compressed */
    uint64_t segment_bytes_max;   /* decompressed, of the longest one */
    uint32_t point_count, compression;
};
_Static_assert(sizeof(struct stk_seek_points_head) == 32, "as in docs/formats.md");

struct stk_seek_point {
    uint64_t out, in;   /* decompressed bytes before it; compressed byte with its first bit */
    uint64_t window_at; /* in the image */
    uint64_t checksum;  /* XXH3-64 of the segment that it begins */
    uint32_t window_bytes;
    uint8_t bits; /* the upper bits of byte `in` that belong to it; 0: all */
    uint8_t kind; /* enum stk_seek_point_kind */
    uint8_t zero[2];
};
_Static_assert(sizeof(struct stk_seek_point) == 40, "as in docs/formats.md");

/* ---- building ---- */

struct stk_seek_points_builder;
/* spacing: least number of decompressed bytes between two points; 0: the default. windows: also
 * collect points inside of gzip members. Returns 0 or -ENOMEM. */
int stk_seek_points_builder_open(struct stk_seek_points_builder **builder_out, uint32_t compression,
                                 uint64_t spacing, bool windows, struct stoker_error *error);
void stk_seek_points_builder_close(struct stk_seek_points_builder *builder);
/* Called by the decompressor: add_bytes with decompressed bytes; is_due: true if a point is needed
 * here; add_point adds one, with a window if it is inside of a member. finish reports their errors.
 */
void stk_seek_points_builder_add_bytes(struct stk_seek_points_builder *builder,
                                       struct stk_view bytes);
bool stk_seek_points_builder_is_due(const struct stk_seek_points_builder *builder, bool inside);
void stk_seek_points_builder_add_point(struct stk_seek_points_builder *builder, uint64_t in,
                                       uint32_t bits, struct stk_view window);
/* Call it after the last byte. Returns 0 and sets *image_out (free with stk_free), empty for a
 * shard without bytes; -ENOMEM, or STOKER_ERROR_LIMIT if a larger spacing is needed. */
int stk_seek_points_builder_finish(struct stk_seek_points_builder *builder, uint64_t in_bytes,
                                   struct stk_view *image_out, struct stoker_error *error);

/* ---- using ---- */

/* Validates the head of an image. Call it before points are used. in_bytes: the current size of the
 * shard. */
bool stk_seek_points_head_is_valid(const struct stk_seek_points_head *head, uint64_t image_bytes,
                                   uint32_t compression, uint64_t in_bytes);
/* True if random access is possible: no segment is too long. head: a valid one. */
bool stk_seek_points_is_random_access(const struct stk_seek_points_head *head);
static inline uint64_t stk_seek_points_offset(uint64_t number)
{
    return sizeof(struct stk_seek_points_head) + number * sizeof(struct stk_seek_point);
}
/* Validates point `number` and the next one (NULL after the last), both in the image. Returns true
 * and sets *out_end to the end of the segment. The window is then known to be inside of the image.
 */
bool stk_seek_points_segment(const struct stk_seek_points_head *head, uint64_t image_bytes,
                             uint64_t number, const struct stk_seek_point *point,
                             const struct stk_seek_point *next, uint64_t *out_end);
/* Gets the bytes of a window from the image. Returns 0, STOKER_ERROR_CORRUPT or -ENOMEM. */
int stk_seek_points_window(const struct stk_seek_point *point, struct stk_view stored,
                           uint8_t window_out[STK_SEEK_POINTS_WINDOW_BYTES], size_t *bytes_out);

#endif
