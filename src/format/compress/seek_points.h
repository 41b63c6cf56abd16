/* format/compress/seek_points.h: places in a packed shard where unpacking can begin.
 *
 *   unpack --bytes, points--> maker -done-> image, kept in the index
 *   image: head | points | windows          point i ... point i + 1: a segment, unpacked as one
 *
 * gzip: a place between two deflate blocks and the 32 KiB before it, or the begin of a member.
 * zstd: the begin of a frame; inside of one there is none, so a shard of one frame has one point.
 * Each segment's unpacked bytes have a sum: what was unpacked from a stale or damaged place is
 * found out before it is used. An image is not trusted. The format: docs/formats.md.
 * Source: RFC 1951, RFC 8878 and zlib's manual (Z_BLOCK, inflatePrime). Pure: no I/O.
 * Owner: the scanner (maker), the data set (images). Threads: one a maker.
 * Memory: 40 bytes a point and a window of at most 32 KiB. Bound: STK_SEEK_POINTS_IMAGE_MAX. */
#ifndef FORMAT_COMPRESS_SEEK_POINTS_H
#define FORMAT_COMPRESS_SEEK_POINTS_H

#include "base/base.h"

#define STK_SEEK_POINTS_SPACING_DEFAULT (1ull << 20)
#define STK_SEEK_POINTS_SPACING_MIN (64ull << 10)
/* A shard with a longer segment is read front to back. The same everywhere, as the order hangs on
 * it. */
#define STK_SEEK_POINTS_SEGMENT_MAX (32ull << 20)
#define STK_SEEK_POINTS_IMAGE_MAX (UINT32_MAX - 7ull)
#define STK_SEEK_POINTS_WINDOW_BYTES 32768u /* deflate's (RFC 1951, 3.2.5) */

enum stk_seek_point_kind {
    STK_SEEK_POINT_STREAM = 1, /* a member or frame begins: no window */
    STK_SEEK_POINT_RAW,        /* inside of a gzip member; its window as it is */
    STK_SEEK_POINT_COMPRESSED, /* the same; its window as a zstd frame */
};

struct stk_seek_points_head {
    uint64_t out_bytes, in_bytes; /* of the whole shard: unpacked, packed */
    uint64_t segment_bytes_max;   /* unpacked, of the longest one */
    uint32_t point_count, compression;
};
_Static_assert(sizeof(struct stk_seek_points_head) == 32, "as in docs/formats.md");

struct stk_seek_point {
    uint64_t out, in;   /* unpacked bytes before it; packed byte that holds its first bit */
    uint64_t window_at; /* in the image */
    uint64_t checksum;  /* XXH3-64 of the segment that it begins */
    uint32_t window_bytes;
    uint8_t bits; /* the upper ones of byte `in` that are its own; 0: all of it */
    uint8_t kind; /* enum stk_seek_point_kind */
    uint8_t zero[2];
};
_Static_assert(sizeof(struct stk_seek_point) == 40, "as in docs/formats.md");

/* ---- making ---- */

struct stk_seek_points_builder;
/* spacing: unpacked bytes between two points at least; 0: default. windows: points inside of
 * gzip members, too. */
int stk_seek_points_builder_open(struct stk_seek_points_builder **builder_out, uint32_t compression,
                                 uint64_t spacing, bool windows, struct stoker_error *error);
void stk_seek_points_builder_close(struct stk_seek_points_builder *builder);
/* For the unpacker: bytes as they are unpacked; whether a point is wanted at this place; a point
 * of this kind (not PACKED) here. A failure is kept until done. */
void stk_seek_points_builder_add_bytes(struct stk_seek_points_builder *builder,
                                       struct stk_view bytes);
bool stk_seek_points_builder_is_due(const struct stk_seek_points_builder *builder, bool inside);
void stk_seek_points_builder_add_point(struct stk_seek_points_builder *builder, uint64_t in,
                                       uint32_t bits, struct stk_view window);
/* After the last byte: the image, given (stk_free); empty for a shard with no bytes. LIMIT: a
 * larger spacing is needed. */
int stk_seek_points_builder_finish(struct stk_seek_points_builder *builder, uint64_t in_bytes,
                                   struct stk_view *image_out, struct stoker_error *error);

/* ---- using ---- */

/* What is asked of an image before its points are looked at. in_bytes: of the shard now. */
bool stk_seek_points_head_is_valid(const struct stk_seek_points_head *head, uint64_t image_bytes,
                                   uint32_t compression, uint64_t in_bytes);
/* Random reads are possible: no segment is too long. head: a good one. */
bool stk_seek_points_is_random_access(const struct stk_seek_points_head *head);
static inline uint64_t stk_seek_points_offset(uint64_t number)
{
    return sizeof(struct stk_seek_points_head) + number * sizeof(struct stk_seek_point);
}
/* Point `number` and the next (NULL behind the last), as they lie in the image: the bounds of the
 * segment, or false. After it the window lies inside of the image. */
bool stk_seek_points_segment(const struct stk_seek_points_head *head, uint64_t image_bytes,
                             uint64_t number, const struct stk_seek_point *point,
                             const struct stk_seek_point *next, uint64_t *out_end);
/* A window as it lies in the image -> its bytes. CORRUPT, -ENOMEM. */
int stk_seek_points_window(const struct stk_seek_point *point, struct stk_view stored,
                           uint8_t window_out[STK_SEEK_POINTS_WINDOW_BYTES], size_t *bytes_out);

#endif
