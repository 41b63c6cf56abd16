/* decode/pixel/resize_planar.h: antialiased resize of the components of an image before upsampling
 * and colour conversion.
 *
 *   begin(sizes, window, planes) -> needs(row)? push bands of rows : row(i) -> samples -> colours
 *
 * The weights of an output are those of resize.h, spread onto the samples that upsampling would use
 * (compose in resize_weights.h). The result differs from upsampling and converting first by the
 * rounding in between, and by colours outside 0..255. Four rows are resized together, as resize.h
 * does it with the four channels of a pixel.
 * Owner: a worker. Threads: one. Memory: weights and rings, grown to the largest image.
 * Bound: memory_bytes_max of begin; sides up to STK_RESIZE_SIDE_MAX. */
#ifndef DECODE_PIXEL_RESIZE_PLANAR_H
#define DECODE_PIXEL_RESIZE_PLANAR_H

#include "decode/pixel/resize.h"

#define STK_RESIZE_PLANES_MAX 3u
#define STK_RESIZE_PLANAR_ROWS 32u      /* of a plane, maximum per push */
#define STK_RESIZE_PLANAR_ROW_SLACK 64u /* samples readable after a row's last that is needed */

struct stk_resize_plane {
    uint32_t width, height;    /* samples of all the image */
    uint32_t h_ratio, v_ratio; /* pixels that a sample covers: 1 .. 4 */
    bool smooth_x, smooth_y;   /* how it is upsampled: see resize_weights.h; of ratio 2 only */
};

struct stk_resize_planar_plan {
    struct stk_resize_plan resize; /* bilinear or bicubic */
    uint32_t x, y;                 /* the image's pixel where stk_resize_region begins */
    uint32_t plane_count;
    struct stk_resize_plane planes[STK_RESIZE_PLANES_MAX];
};

struct stk_resize_planar;
int stk_resize_planar_open(struct stk_resize_planar **planar_out,
                           const struct stk_pixel_kernels *kernels, struct stoker_error *error);
void stk_resize_planar_close(struct stk_resize_planar *planar);
uint64_t stk_resize_planar_bytes(const struct stk_resize_planar *planar);
void stk_resize_planar_trim(struct stk_resize_planar *planar, uint64_t keep_bytes);
/* Returns an upper bound of the memory that begin will allocate for this plan, for any planes.
 * Pure. */
uint64_t stk_resize_planar_memory_bytes(const struct stk_resize_plan *plan);

/* Returns 0 on success, LIMIT if a side is too long or memory_bytes_max is too small. */
int stk_resize_planar_begin(struct stk_resize_planar *planar,
                            const struct stk_resize_planar_plan *plan, uint64_t memory_bytes_max,
                            struct stoker_error *error);
/* Returns whether output row `row` still needs samples of a plane. Rows must be requested in
 * order. */
bool stk_resize_planar_needs(const struct stk_resize_planar *planar, uint32_t row);

struct stk_resize_planar_rows {
    const uint8_t *data; /* of the first row; its sample is column `column` of the plane */
    size_t stride;
    uint32_t y, count, column;
};
/* Pushes the next rows of a plane, from top to bottom; rows that are not needed are skipped, and
 * may be left out before the first needed one. At most STK_RESIZE_PLANAR_ROWS, and none beyond what
 * the next output row lacks. */
void stk_resize_planar_push(struct stk_resize_planar *planar, uint32_t plane,
                            const struct stk_resize_planar_rows *rows);
/* Computes output row `row` (ascending). Returns window_width samples of each plane, valid until
 * the next call. */
void stk_resize_planar_row(struct stk_resize_planar *planar, uint32_t row,
                           const uint8_t *samples_out[3]);

#endif
