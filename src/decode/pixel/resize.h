/* decode/pixel/resize.h: antialiased resize of RGBX rows, from top to bottom.
 *
 *   begin(source size, target size, window) -> rows_wanted() -> push rows -> row(i) -> ...
 *
 * Each source row is resized horizontally when it is pushed, into a ring that holds the rows of one
 * output row. Each output row is finished from the ring while it is in the L1 cache. All paths use
 * integers. Horizontal first, 8 bits in between and the weights of resize_weights.h give the pixels
 * of torchvision v2 (uint8, antialias=True, bilinear and bicubic; nearest too).
 * Owner: a worker. Threads: one. Memory: weights, ring and a few source rows, grown to
 * the largest image. Bound: memory_bytes_max of begin; sides up to STK_RESIZE_SIDE_MAX. */
#ifndef DECODE_PIXEL_RESIZE_H
#define DECODE_PIXEL_RESIZE_H

#include "base/base.h"

struct stk_pixel_kernels;

struct stk_resize_plan {
    uint32_t source_width, source_height; /* of the box that is resized */
    uint32_t target_width, target_height; /* to this */
    uint32_t window_x, window_y, window_width,
        window_height; /* of the target: the requested window */
    uint32_t filter;   /* enum stoker_filter */
    bool flip;         /* mirror the window's columns */
};

struct stk_resize;
int stk_resize_open(struct stk_resize **resize_out, const struct stk_pixel_kernels *kernels,
                    struct stoker_error *error);
void stk_resize_close(struct stk_resize *resize);

/* Returns the bytes allocated now. */
uint64_t stk_resize_bytes(const struct stk_resize *resize);
/* Frees the memory if it is larger than keep_bytes; the next image allocates it again. */
void stk_resize_trim(struct stk_resize *resize, uint64_t keep_bytes);

/* Computes the source columns and rows that the window needs: [*x0, *x1) x [*y0, *y1). Pure. */
void stk_resize_region(const struct stk_resize_plan *plan, uint32_t *x0, uint32_t *x1, uint32_t *y0,
                       uint32_t *y1);
/* Returns 0 on success, LIMIT if a side is too long. */
int stk_resize_check(const struct stk_resize_plan *plan, struct stoker_error *error);
/* Returns the memory that begin will allocate for this plan. Pure. */
uint64_t stk_resize_memory_bytes(const struct stk_resize_plan *plan, uint32_t row_pixels);
/* row_pixels and skip describe the rows to be pushed, as stk_codec_begin returns them; the first
 * pixel after skip is source column x0 of the region, the first row is y0. Returns 0 on success,
 * LIMIT if a side is too long or memory_bytes_max is too small. */
int stk_resize_begin(struct stk_resize *resize, const struct stk_resize_plan *plan,
                     uint32_t row_pixels, uint32_t skip, uint64_t memory_bytes_max,
                     struct stoker_error *error);
/* Prepares output row `row` of the window; rows must be requested in order. Fills rows_out with the
 * buffers of the next source rows. Returns 0 if the row is ready, else the number of source rows to
 * write, at most capacity; it may exceed what this output row needs. */
uint32_t stk_resize_wanted(struct stk_resize *resize, uint32_t row, uint8_t **rows_out,
                           uint32_t capacity);
/* Call after the first `count` of these source rows were written. */
void stk_resize_push(struct stk_resize *resize, uint32_t count);
/* Computes output row `row` (ascending): window_width RGBX pixels; it does not write past them. */
void stk_resize_row(struct stk_resize *resize, uint32_t row, uint8_t *rgbx_out);

#endif
