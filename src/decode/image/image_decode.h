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
    uint64_t pixels_max;
    uint64_t memory_bytes_max; /* of one picture's decode */
};

/* ARGUMENT: transforms that do not go together, or do not give a fixed size; says which order is
 * understood: [CenterCrop | RandomCrop]* with at most one RandomResizedCrop or Resize among them,
 * then flips and jitter, then Normalize. */
int stk_transform_plan_open(struct stk_transform_plan **plan_out,
                            const struct stk_transform_plan_options *options,
                            struct stoker_error *error);
/* The plan of a mask that follows a picture: the same boxes and flips under the same key, resized
 * by nearest, a PNG's values exactly, or with rgb_ids R + 256 G + 65536 B of its colours; dtype
 * uint8 or int64 (0: uint8); layout: none, H x W. */
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

/* "avx2", "sse2", "neon" or "none": what enum stoker_simd comes to here. Lends for ever. */
const char *stk_image_decode_vector(uint32_t vector);

struct stk_image_decoder; /* a worker's: codec, resizer, scratch */
int stk_image_decoder_open(struct stk_image_decoder **decoder_out, uint32_t vector,
                           struct stoker_error *error);
void stk_image_decoder_close(struct stk_image_decoder *decoder);
/* Bytes of scratch that it holds now (for the budget). */
uint64_t stk_image_decoder_bytes(const struct stk_image_decoder *decoder);
/* Gives big scratch back (after a huge picture). */
void stk_image_decoder_trim(struct stk_image_decoder *decoder, uint64_t keep_bytes);

/* For the picture that is decoded next, and for it alone: see stk_codec_set_entry_points. */
struct stk_jpeg_entry_points;
void stk_image_decoder_set_entry_points(struct stk_image_decoder *decoder,
                                        const struct stk_jpeg_entry_points *entry_points);

/* Who decoded the picture decoded last: see stk_codec_decoded_by; 0 also when none of it was read.
 * STK_IMAGE_DECODED_PLANAR more: its planes were resized, not its rows. */
#define STK_IMAGE_DECODED_PLANAR 256u
#define STK_IMAGE_DECODED_PNG 64u /* STK_CODEC_BY_PNG and STK_CODEC_BY_LIBPNG */
#define STK_IMAGE_DECODED_LIBPNG 65u
uint32_t stk_image_decoder_decoded_by(const struct stk_image_decoder *decoder);

/* What a picture will take, from its header: to reserve before decoding. */
int stk_image_decode_memory_bytes(const struct stk_transform_plan *plan, struct stk_view bytes,
                                  uint64_t *memory_bytes_out, struct stoker_error *error);

/* The picture's sides as its transforms see them: turned, if the plan turns. Header only. */
int stk_image_decode_sides(const struct stk_transform_plan *plan, struct stk_view bytes,
                           uint32_t *width_out, uint32_t *height_out, struct stoker_error *error);
/* Boxes on a picture of these sides: corners x1, y1, x2, y2 in its pixels. */
struct stk_image_boxes {
    double (*corners)[4]; /* owned by the caller, as all here */
    bool *is_visible;     /* out: whether something is left of it */
    uint64_t count;
    uint32_t width, height;
};
/* Moves them to where the picture's transforms put them under key: shifted, scaled, flipped,
 * clipped. */
int stk_image_boxes_transform(const struct stk_transform_plan *plan, uint64_t key,
                              struct stk_image_boxes *boxes, struct stoker_error *error);

/* slot: slot_bytes, C-contiguous CHW or HWC. key: stk_random_key chain of (seed, epoch, position).
 */
int stk_image_decode(struct stk_image_decoder *decoder, const struct stk_transform_plan *plan,
                     struct stk_view bytes, uint64_t key, void *slot, struct stoker_error *error);

/* stk_image_decode in two halves, the first of which may run in another process: all that has to do
 * with the picture's bytes into a canvas (rows of RGBX of the output's size, finished), then the
 * canvas into the slot. Any canvas is good for convert: it only looks at values. */
uint64_t stk_image_decode_canvas_bytes(const struct stk_transform_plan *plan);
int stk_image_decode_canvas(struct stk_image_decoder *decoder,
                            const struct stk_transform_plan *plan, struct stk_view bytes,
                            uint64_t key, uint8_t *canvas, struct stoker_error *error);
void stk_image_decode_convert(const struct stk_image_decoder *decoder,
                              const struct stk_transform_plan *plan, const uint8_t *canvas,
                              void *slot);

#endif
