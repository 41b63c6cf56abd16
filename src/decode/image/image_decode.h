/* decode/image/image_decode.h: decodes the bytes of an image into a slot: geometry, codec, resize,
 * jitter, output format. A decode job is a plain struct: bytes, slot, parameters.
 *
 *   plan (const, from the transforms) + key (seed, epoch, position) + bytes -> slot
 *
 * All random numbers are functions of `key`, so that the pixels do not depend on the threads.
 * Arithmetic up to uint8 is integer; libm is not used. Owner: loader. Threads: a plan: any; a
 * decoder: one. Memory: the decoder's arena. Bound: memory_bytes_max. */
#ifndef DECODE_IMAGE_IMAGE_DECODE_H
#define DECODE_IMAGE_IMAGE_DECODE_H

#include "base/base.h"

struct stk_pixel_kernels;

struct stk_transform_plan; /* heap; const after open */

struct stk_transform_plan_options {
    const struct stoker_transform *transforms; /* borrowed */
    size_t transform_count;
    uint32_t dtype, layout; /* 0: default (uint8, float32 if normalised; NCHW) */
    bool exif;
    bool planar;           /* JPEGs: resize before colour conversion (resize_planar.h) */
    uint32_t pixel_format; /* a mask's: enum stk_codec_pixel_format of decode/codec/codec.h */
    uint32_t check;        /* enum stoker_image_check; 0: TOLERANT */
    uint64_t pixels_max;
    uint64_t memory_bytes_max; /* of one image's decode */
};

/* Returns 0 on success, ARGUMENT if the transforms cannot be combined or do not produce a fixed
 * size; the error states the supported order: [CenterCrop | RandomCrop]* with at most one
 * RandomResizedCrop or Resize among them, then flips and jitter, then Normalize. */
int stk_transform_plan_open(struct stk_transform_plan **plan_out,
                            const struct stk_transform_plan_options *options,
                            struct stoker_error *error);
/* Opens the plan of a mask that uses the boxes and flips of `image` under the same key. Resize is
 * nearest. Values are those of the PNG, or R + 256 G + 65536 B of its colours if rgb_ids is set.
 * dtype is uint8 or int64 (0: uint8); the layout is H x W. */
int stk_transform_plan_link(struct stk_transform_plan **plan_out,
                            const struct stk_transform_plan *image, bool rgb_ids, uint32_t dtype,
                            struct stoker_error *error);
void stk_transform_plan_close(struct stk_transform_plan *plan);

struct stk_image_shape {
    uint32_t dtype, layout, height, width;
    uint64_t slot_bytes;
};
void stk_transform_plan_shape(const struct stk_transform_plan *plan,
                              struct stk_image_shape *shape_out);

/* Returns "avx2", "sse2", "neon" or "none": the instruction set that `vector` (enum stoker_simd)
 * selects on this machine. The text is static. */
const char *stk_image_decode_vector(uint32_t vector);

struct stk_image_decoder; /* a worker's: codec, resizer, scratch */
int stk_image_decoder_open(struct stk_image_decoder **decoder_out, uint32_t vector,
                           struct stoker_error *error);
void stk_image_decoder_close(struct stk_image_decoder *decoder);
/* Returns the bytes of scratch allocated now, for the memory budget. */
uint64_t stk_image_decoder_bytes(const struct stk_image_decoder *decoder);
/* Frees scratch larger than keep_bytes; call it after a very large image. */
void stk_image_decoder_trim(struct stk_image_decoder *decoder, uint64_t keep_bytes);

/* Sets the entry points of the next image only: see stk_codec_set_entry_points. */
struct stk_jpeg_entry_points;
void stk_image_decoder_set_entry_points(struct stk_image_decoder *decoder,
                                        const struct stk_jpeg_entry_points *entry_points);

/* Returns which decoder handled the last image: see stk_codec_decoded_by; 0 also if no pixel was
 * read. STK_IMAGE_DECODED_PLANAR is added if planes were resized instead of rows. */
#define STK_IMAGE_DECODED_PLANAR 256u
#define STK_IMAGE_DECODED_PNG 64u /* STK_CODEC_BY_PNG and STK_CODEC_BY_LIBPNG */
#define STK_IMAGE_DECODED_LIBPNG 65u
uint32_t stk_image_decoder_decoded_by(const struct stk_image_decoder *decoder);

/* Reads the header and estimates the memory that decoding needs, to reserve it in advance. */
int stk_image_decode_memory_bytes(const struct stk_transform_plan *plan, struct stk_view bytes,
                                  uint64_t *memory_bytes_out, struct stoker_error *error);

/* Reads the header and returns the sides of the image as the transforms see them: after the EXIF
 * turn, if the plan applies it. */
int stk_image_decode_sides(const struct stk_transform_plan *plan, struct stk_view bytes,
                           uint32_t *width_out, uint32_t *height_out, struct stoker_error *error);
/* Boxes on an image of these sides: corners x1, y1, x2, y2 in its pixels. */
struct stk_image_boxes {
    double (*corners)[4]; /* owned by the caller, as all here */
    bool *is_visible;     /* out: whether something is left of it */
    uint64_t count;
    uint32_t width, height;
};
/* Transforms the boxes as the plan transforms the image under key: shifts, scales, flips and clips
 * them. */
int stk_image_boxes_transform(const struct stk_transform_plan *plan, uint64_t key,
                              struct stk_image_boxes *boxes, struct stoker_error *error);

/* slot: slot_bytes, C-contiguous CHW or HWC. key: stk_random_key chain of (seed, epoch, position).
 */
int stk_image_decode(struct stk_image_decoder *decoder, const struct stk_transform_plan *plan,
                     struct stk_view bytes, uint64_t key, void *slot, struct stoker_error *error);

/* stk_image_decode in two steps; the first may run in another process. decode_canvas does all work
 * on the bytes of the image and writes a canvas (finished rows of RGBX of the output's size).
 * convert writes the canvas into the slot; it accepts any canvas content. */
uint64_t stk_image_decode_canvas_bytes(const struct stk_transform_plan *plan);
int stk_image_decode_canvas(struct stk_image_decoder *decoder,
                            const struct stk_transform_plan *plan, struct stk_view bytes,
                            uint64_t key, uint8_t *canvas, struct stoker_error *error);
void stk_image_decode_convert(const struct stk_image_decoder *decoder,
                              const struct stk_transform_plan *plan, const uint8_t *canvas,
                              void *slot);

#endif
