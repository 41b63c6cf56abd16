/* decode/codec/codec_backend.h: the interface between codec.c and the image libraries; private to
 * this folder.
 *
 *   probe -> (open) begin -> rows ... -> end (close)
 *
 * The backends have the same five functions, with the contract of stk_codec. The caller calls
 * end also after a begin that failed. Owner: a codec. Threads: one. Memory: the codec's arena, and
 * libwebp's own allocations. Bound: memory_bytes_max of the request. */
#ifndef DECODE_CODEC_CODEC_BACKEND_H
#define DECODE_CODEC_CODEC_BACKEND_H

#include "base/byte_order.h"
#include "decode/codec/codec.h"
#include "decode/codec/codec_arena.h"

struct stk_codec_request {
    struct stk_view bytes;             /* valid until end */
    const struct stk_codec_info *info; /* borrowed by begin */
    struct stk_codec_box box;
    uint64_t memory_bytes_max;
    const struct stk_jpeg_entry_points
        *entry_points; /* NULL, or valid until end: the entry points of this JPEG */
};

struct stk_codec_row_shape { /* of the caller's row buffers */
    uint32_t row_pixels;
    uint32_t skip_pixels;
};

/* Every error about the content of an image ends with one of these. */
#define STK_CODEC_ADVICE_DAMAGED                                                                   \
    "fetch the file again; on_error=\"skip\" replaces damaged samples while training continues"
#define STK_CODEC_ADVICE_CONVERT "save the image as an ordinary 8-bit JPEG, PNG or WebP"

int stk_codec_jpeg_probe(struct stk_view bytes, struct stk_codec_info *info_out,
                         struct stoker_error *error);
struct stk_codec_jpeg;
int stk_codec_jpeg_open(struct stk_codec_jpeg **jpeg_out, struct stk_codec_arena *arena,
                        struct stoker_error *error);
void stk_codec_jpeg_close(struct stk_codec_jpeg *jpeg);
int stk_codec_jpeg_begin(struct stk_codec_jpeg *jpeg, const struct stk_codec_request *request,
                         struct stk_codec_row_shape *shape_out, struct stoker_error *error);
int stk_codec_jpeg_rows(struct stk_codec_jpeg *jpeg, uint8_t *const *rows, uint32_t count,
                        struct stoker_error *error);
uint32_t stk_codec_jpeg_planes(const struct stk_codec_jpeg *jpeg,
                               struct stk_jpeg_plane planes_out[3]);
bool stk_codec_jpeg_band(struct stk_codec_jpeg *jpeg, struct stk_jpeg_band *band_out,
                         bool *more_out);
void stk_codec_jpeg_to_rgbx(const struct stk_codec_jpeg *jpeg, const uint8_t *const samples[3],
                            uint32_t count, uint8_t *out);
/* Call after the last row or band of a box that reaches the last row: reads up to the end of the
 * image. */
int stk_codec_jpeg_finish(struct stk_codec_jpeg *jpeg, struct stoker_error *error);
bool stk_codec_jpeg_is_damaged(const struct stk_codec_jpeg *jpeg); /* a warning says so */
void stk_codec_jpeg_end(struct stk_codec_jpeg *jpeg);
const char *stk_codec_jpeg_warning(const struct stk_codec_jpeg *jpeg); /* "": none */
/* Returns the bytes allocated outside the arena; trim, called between images, frees them if they
 * exceed keep_bytes. */
uint64_t stk_codec_jpeg_bytes(const struct stk_codec_jpeg *jpeg);
void stk_codec_jpeg_trim(struct stk_codec_jpeg *jpeg, uint64_t keep_bytes);
/* Returns why libjpeg-turbo decodes the current image, 0 if it does not. */
uint32_t stk_codec_jpeg_fallback(const struct stk_codec_jpeg *jpeg);

int stk_codec_png_probe(struct stk_view bytes, struct stk_codec_info *info_out,
                        struct stoker_error *error);
struct stk_codec_png;
int stk_codec_png_open(struct stk_codec_png **png_out, struct stk_codec_arena *arena,
                       struct stoker_error *error);
void stk_codec_png_close(struct stk_codec_png *png);
int stk_codec_png_begin(struct stk_codec_png *png, const struct stk_codec_request *request,
                        struct stk_codec_row_shape *shape_out, struct stoker_error *error);
int stk_codec_png_rows(struct stk_codec_png *png, uint8_t *const *rows, uint32_t count,
                       struct stoker_error *error);
void stk_codec_png_end(struct stk_codec_png *png);
const char *stk_codec_png_warning(const struct stk_codec_png *png); /* "": none */
bool stk_codec_png_is_damaged(const struct stk_codec_png *png);     /* a warning about the pixels */
/* Returns whether libpng, not decode/png, decodes the current image. */
bool stk_codec_png_is_fallback(const struct stk_codec_png *png);

int stk_codec_webp_probe(struct stk_view bytes, struct stk_codec_info *info_out,
                         struct stoker_error *error);
struct stk_codec_webp;
int stk_codec_webp_open(struct stk_codec_webp **webp_out, struct stk_codec_arena *arena,
                        struct stoker_error *error);
void stk_codec_webp_close(struct stk_codec_webp *webp);
int stk_codec_webp_begin(struct stk_codec_webp *webp, const struct stk_codec_request *request,
                         struct stk_codec_row_shape *shape_out, struct stoker_error *error);
int stk_codec_webp_rows(struct stk_codec_webp *webp, uint8_t *const *rows, uint32_t count,
                        struct stoker_error *error);
/* Decodes the frames of an animation after the first one, and drops their pixels. */
int stk_codec_webp_check_frames(struct stk_view bytes, uint64_t memory_bytes_max,
                                struct stoker_error *error);
void stk_codec_webp_end(struct stk_codec_webp *webp);

/* BMP and PNM: the file type is in `kind`. */
int stk_codec_raw_probe(struct stk_view bytes, uint32_t kind, struct stk_codec_info *info_out,
                        struct stoker_error *error);
struct stk_codec_raw;
int stk_codec_raw_open(struct stk_codec_raw **raw_out, struct stk_codec_arena *arena,
                       struct stoker_error *error);
void stk_codec_raw_close(struct stk_codec_raw *raw);
int stk_codec_raw_begin(struct stk_codec_raw *raw, const struct stk_codec_request *request,
                        struct stk_codec_row_shape *shape_out, struct stoker_error *error);
int stk_codec_raw_rows(struct stk_codec_raw *raw, uint8_t *const *rows, uint32_t count,
                       struct stoker_error *error);

/* Returns the EXIF orientation 1..8 of a TIFF block, with or without "Exif\0\0" before it, 0 if it
 * has none. */
uint8_t stk_exif_orientation(struct stk_view tiff);
/* Returns tiff:Orientation of an XMP packet, which PIL reads if EXIF has no orientation, 0 if there
 * is none. */
uint8_t stk_xmp_orientation(struct stk_view packet);

#endif
