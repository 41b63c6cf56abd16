/* decode/image/crop_geometry.h: computes which pixels of an image become a sample.
 *
 *   image -EXIF-> turned -crops-> source canvas -resize-> target -crops-> output canvas -flips->
 *
 * Crops before the resize (or RandomResizedCrop's own) make the source canvas, crops after it the
 * output canvas. A plan without a resize has only an output canvas. A canvas may be larger than the
 * image, since CenterCrop pads with zeros. Sizes and boxes are those of torchvision v2.
 * Owner: values. Threads: any. Memory: none. Bound: sides up to 2^31. */
#ifndef DECODE_IMAGE_CROP_GEOMETRY_H
#define DECODE_IMAGE_CROP_GEOMETRY_H

#include "base/base.h"
#include "decode/codec/codec.h"

/* A part of the layer below, placed on an area of zeros. */
struct stk_crop_canvas {
    uint32_t width, height;
    struct stk_codec_box visible; /* of the canvas: the part with pixels; may be empty */
    uint32_t from_x, from_y;      /* of the layer below: the part's first pixel */
};

struct stk_crop_geometry {
    struct stk_crop_canvas source; /* of the turned image */
    uint32_t target_width, target_height, filter;
    struct stk_crop_canvas output; /* of the target */
    bool flip_horizontal, flip_vertical;
};

/* width and height are those of the turned image. Transforms without geometry are skipped. Returns
 * 0 on success, FORMAT if a RandomCrop is larger than its input. */
int stk_crop_geometry_init(struct stk_crop_geometry *geometry,
                           const struct stoker_transform *transforms, size_t count, uint32_t width,
                           uint32_t height, uint64_t key, struct stoker_error *error);

/* Maps a box (x1, y1, x2, y2) of the turned image to the output canvas, as torchvision v2
 * transforms BoundingBoxes: each crop shifts and clips it, then it is scaled and flipped. Returns
 * false if the result has no area. */
bool stk_crop_geometry_box(const struct stk_crop_geometry *geometry, double box[4]);

/* EXIF orientations 1..8: 5 and above swap width and height. */
bool stk_orientation_swaps_sides(uint8_t orientation);
/* Returns the box of the stored image (width x height) that corresponds to `box` of the turned
 * image. */
struct stk_codec_box stk_orientation_box(uint8_t orientation, uint32_t width, uint32_t height,
                                         const struct stk_codec_box *box);
/* Pixel (x, y) of a turned image is at start + x * step_x + y * step_y of the stored one, which is
 * width x height with rows of `stride` (all in the same unit). */
struct stk_orientation {
    int64_t start, step_x, step_y;
};
struct stk_orientation stk_orientation_steps(uint8_t orientation, uint32_t width, uint32_t height,
                                             int64_t pixel, int64_t stride);

#endif
