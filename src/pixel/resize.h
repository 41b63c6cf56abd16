/* pixel/resize.h: antialiased resize of RGBX rows, top down, a band at a time.
 *
 *   begin(source size, target size, window) -> need() rows -> give them -> row(i) -> ...
 *
 * Vertical first into 16 bits, then horizontal: only the taps of one output row are held, and
 * each output row is finished while it is in the first cache. Same arithmetic (integers) on every
 * path. Differs by at most 1/255 from torchvision v2 (antialias=True, uint8).
 * Owner: a worker keeps one. Threads: one. Memory: ring of rows and weights, grown to the
 * largest picture. Bound: memory_bytes_max of begin. */
#ifndef PIXEL_RESIZE_H
#define PIXEL_RESIZE_H

#include "base/base.h"

struct stk_kernels;

struct stk_resize_plan {
    uint32_t source_width, source_height; /* of the box that is resized */
    uint32_t target_width, target_height; /* to this */
    uint32_t window_x, window_y, window_width, window_height; /* of the target: what is wanted */
    uint32_t filter; /* enum stoker_filter */
    bool     flip;   /* mirror the window's columns */
};

struct stk_resize;
int  stk_resize_open(struct stk_resize **resize_out, const struct stk_kernels *kernels,
                     struct stoker_error *error);
void stk_resize_close(struct stk_resize *resize);

/* The source columns and rows that the window needs: [*x0, *x1) x [*y0, *y1). Pure. */
void stk_resize_region(const struct stk_resize_plan *plan, uint32_t *x0, uint32_t *x1,
                       uint32_t *y0, uint32_t *y1);
/* row_pixels and skip: of the rows that will be given, as stk_codec_begin says; the first pixel
 * after skip is source column x0 of the region, the first row is y0. */
int stk_resize_begin(struct stk_resize *resize, const struct stk_resize_plan *plan,
                     uint32_t row_pixels, uint32_t skip, uint64_t memory_bytes_max,
                     struct stoker_error *error);
/* How many more source rows output row `row` of the window needs (rows are asked in order);
 * fills rows_out[0..capacity) with the next ring buffers to write and returns how many to
 * write at most (0: none needed, row is ready). */
uint32_t stk_resize_need(struct stk_resize *resize, uint32_t row, uint8_t **rows_out,
                         uint32_t capacity);
/* So many of them were written. */
void stk_resize_give(struct stk_resize *resize, uint32_t count);
/* Makes output row `row` (ascending): window_width RGBX pixels. */
void stk_resize_row(struct stk_resize *resize, uint32_t row, uint8_t *rgbx_out);

#endif
