/* decode/pixel/resize.h: antialiased resize of RGBX rows, from top to bottom.
 *
 *   begin(source size, target size, window) -> rows_wanted() -> push rows -> row(i) -> ...
 *
 * Each source row is resized horizontally when it is pushed, into a ring that holds the rows of one
 * output row. Each output row is finished from the ring while it is in the L1 cache. All paths use
 * integers. Horizontal first, 8 bits in between and the weights of resize_weights.h give the pixels
 * of torchvision v2 (uint8, antialias=True, bilinear and bicubic; nearest too).
 * Owner: a worker keeps one. Threads: one. Memory: weights, ring and a few source rows, grown to
 * the largest image. Bound: memory_bytes_max of begin; sides up to STK_RESIZE_SIDE_MAX. */
#ifndef DECODE_PIXEL_RESIZE_H
#define DECODE_PIXEL_RESIZE_H

#include "base/base.h"

struct stk_pixel_kernels;

struct stk_resize_plan {
    uint32_t source_width, source_height;                     /* of the box that is resized */
    uint32_t target_width, target_height;                     /* to this */
    uint32_t window_x, window_y, window_width, window_height; /* of the target: what is wanted */
    uint32_t filter;                                          /* enum stoker_filter */
    bool flip;                                                /* mirror the window's columns */
};

struct stk_resize;
int stk_resize_open(struct stk_resize **resize_out, const struct stk_pixel_kernels *kernels,
                    struct stoker_error *error);
void stk_resize_close(struct stk_resize *resize);

/* Bytes that it holds now. */
uint64_t stk_resize_bytes(const struct stk_resize *resize);
/* Gives memory back if it holds more than keep_bytes; the next picture takes new. */
void stk_resize_trim(struct stk_resize *resize, uint64_t keep_bytes);

/* The source columns and rows that the window needs: [*x0, *x1) x [*y0, *y1). Pure. */
void stk_resize_region(const struct stk_resize_plan *plan, uint32_t *x0, uint32_t *x1, uint32_t *y0,
                       uint32_t *y1);
/* LIMIT: a side is too long. */
int stk_resize_check(const struct stk_resize_plan *plan, struct stoker_error *error);
/* What begin will take for this plan. Pure. */
uint64_t stk_resize_memory_bytes(const struct stk_resize_plan *plan, uint32_t row_pixels);
/* row_pixels and skip: of the rows that will be given, as stk_codec_begin says; the first pixel
 * after skip is source column x0 of the region, the first row is y0.
 * LIMIT: a side is too long, or memory_bytes_max too small. */
int stk_resize_begin(struct stk_resize *resize, const struct stk_resize_plan *plan,
                     uint32_t row_pixels, uint32_t skip, uint64_t memory_bytes_max,
                     struct stoker_error *error);
/* The source rows that output row `row` of the window still lacks (rows are asked for in order):
 * 0 when it is ready; else fills rows_out with the buffers of the next source rows and returns
 * how many may be written, perhaps more than this output row lacks, at most capacity. */
uint32_t stk_resize_wanted(struct stk_resize *resize, uint32_t row, uint8_t **rows_out,
                           uint32_t capacity);
/* So many of them, from the first on, were written. */
void stk_resize_push(struct stk_resize *resize, uint32_t count);
/* Makes output row `row` (ascending): window_width RGBX pixels, nothing past them. */
void stk_resize_row(struct stk_resize *resize, uint32_t row, uint8_t *rgbx_out);

#endif
