/* decode/png/png.h: decodes the rows of a PNG up to the last requested row, with libpng's bytes, or
 * returns false. Interlaced PNGs are left to libpng.
 *
 *   read(bytes) -> frame -> begin(box, workspace) -> row ... (begin again: the next image)
 *        \______________________\____________________\____> false: use libpng
 *
 * ISA-L inflates the data in bands. PNG filters are reversed up to the last requested column; above
 * the box, from the last row that does not depend on the row above it. If libpng would warn or
 * fail, and for rare kinds, the functions return false: the caller then decodes the image with
 * libpng, from the first row that is missing. Two faults that libpng rejects are not detected here,
 * although no checksum is wrong: incomplete prefix codes, which zlib rejects; and damage in a chunk
 * that the rows do not need but that libpng reads ahead. Owner: a worker. Threads: one. Memory: the
 * caller's workspace only. Bound: stk_png_workspace_bytes: two rows, and STK_PNG_FIXED_BYTES. */
#ifndef DECODE_PNG_PNG_H
#define DECODE_PNG_PNG_H

#include "base/base.h"

/* The content of the chunks before the image data. */
struct stk_png_frame {
    uint32_t width, height;
    uint32_t color, depth; /* PNG's colour type, and bits a sample */
    uint32_t pixel_bits;
    uint64_t row_bytes;      /* of pixels, without the filter's byte */
    struct stk_view palette; /* red, green, blue of each; NULL: none */
    uint64_t data_at;        /* the first IDAT chunk, in the file */
};

/* Reads the chunks up to the first IDAT and verifies their checksums. Returns false if libpng must
 * decode the image. */
bool stk_png_frame_read(struct stk_view bytes, struct stk_png_frame *frame_out);

struct stk_png_box { /* inside the frame */
    uint32_t x, y, width, height;
};

#define STK_PNG_FIXED_BYTES (192u << 10)
uint64_t stk_png_workspace_bytes(const struct stk_png_frame *frame);

struct stk_png_kernels;
struct stk_png_stream;
struct stk_png_rows {                      /* an image in progress */
    const struct stk_png_kernels *kernels; /* borrowed: static */
    struct stk_png_stream *stream;         /* in the workspace */
    struct stk_view bytes;                 /* valid until the next begin */
    uint64_t at;                           /* the next chunk */
    uint64_t row_bytes, used_bytes;        /* of pixels; up to the box's last column */
    uint32_t unit;                         /* bytes from a sample to its left neighbour */
    uint32_t height, y_end;                /* of the image; after the box's last row */
    uint32_t y, first;                     /* the next row to return; the box's first */
    uint32_t band_first, band_count;       /* rows inflated */
    uint32_t done;                         /* rows of the band taken back from their filters */
    uint32_t band_rows;                    /* the number of rows that the band holds */
    uint8_t *band;                         /* rows of 1 + row_bytes */
    uint8_t *above;                        /* the row before the band */
};

/* vector: enum stoker_simd. The frame, the file's bytes and the workspace (aligned to 64) must stay
 * valid until the next begin. Returns false if this machine lacks the instruction set. */
bool stk_png_rows_begin(struct stk_png_rows *rows, const struct stk_png_frame *frame,
                        struct stk_view bytes, const struct stk_png_box *box, void *workspace,
                        uint32_t vector);
/* Returns the next row of the box in file format, from the image's first column to the box's last
 * column, valid until the next call. Returns NULL if libpng must decode this row and those
 * below. */
const uint8_t *stk_png_rows_next(struct stk_png_rows *rows);

#endif
