/* decode/codec/codec_backend.h: the interface between codec.c and the image libraries; private to
 * the room.
 *
 *   probe -> (open) begin -> rows ... -> end (close)
 *
 * The three backends have the same five functions, with the contract of stk_codec. The caller calls
 * end also after a begin that failed. Owner: a codec. Threads: one. Memory: the codec's arena, and
 * libwebp's own allocations. Bound: memory_bytes_max of the request. */
#ifndef DECODE_CODEC_CODEC_BACKEND_H
#define DECODE_CODEC_CODEC_BACKEND_H

#include "decode/codec/codec.h"
#include "decode/codec/codec_arena.h"

struct stk_codec_request {
    struct stk_view bytes;             /* lent until end */
    const struct stk_codec_info *info; /* borrowed by begin */
    struct stk_codec_box box;
    uint64_t memory_bytes_max;
    const struct stk_jpeg_entry_points
        *entry_points; /* NULL, or lent until end: of a JPEG, this very one */
};

struct stk_codec_row_shape { /* of the rows that the caller gives */
    uint32_t row_pixels;
    uint32_t skip_pixels;
};

/* Every error about the content of a picture ends with one of these. */
#define STK_CODEC_ADVICE_DAMAGED                                                                   \
    "fetch the file again; on_error=\"skip\" replaces damaged samples while training goes on"
#define STK_CODEC_ADVICE_CONVERT "save the picture as an ordinary 8-bit JPEG, PNG or WebP"

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
void stk_codec_jpeg_end(struct stk_codec_jpeg *jpeg);
const char *stk_codec_jpeg_warning(const struct stk_codec_jpeg *jpeg); /* "": none */
/* Beside the scratch; trim, between pictures: gives them back if they are more. */
uint64_t stk_codec_jpeg_bytes(const struct stk_codec_jpeg *jpeg);
void stk_codec_jpeg_trim(struct stk_codec_jpeg *jpeg, uint64_t keep_bytes);
/* Why libjpeg-turbo decodes the picture begun last; 0: it does not. */
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
/* Whether libpng decodes the picture begun last, and not room png. */
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
void stk_codec_webp_end(struct stk_codec_webp *webp);

/* EXIF orientation 1..8 of a TIFF block, "Exif\0\0" before it or not; 0: it names none. */
uint8_t stk_exif_orientation(struct stk_view tiff);
/* tiff:Orientation of an XMP packet, where PIL looks when EXIF names none; 0: neither. */
uint8_t stk_xmp_orientation(struct stk_view packet);

/* Big- and little-endian words; the caller knows that the bytes are there. */
static inline uint32_t stk_big16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

static inline uint32_t stk_big32(const uint8_t *bytes)
{
    return stk_big16(bytes) << 16 | stk_big16(bytes + 2);
}

static inline uint32_t stk_little16(const uint8_t *bytes)
{
    return (uint32_t)bytes[1] << 8 | bytes[0];
}

static inline uint32_t stk_little32(const uint8_t *bytes)
{
    return stk_little16(bytes + 2) << 16 | stk_little16(bytes);
}

#endif
