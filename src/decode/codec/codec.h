/* decode/codec/codec.h: decodes JPEG, PNG and WebP images to rows of RGBX, only the requested box.
 *
 *   probe(bytes) -> info -> begin(box) -> rows ... -> end        (begin again: the next image)
 *
 * JPEG: decode/jpeg, and libjpeg-turbo for images that decode/jpeg does not handle. Both give the
 * samples of libjpeg-turbo's full decode. PNG: decode/png, and libpng for the rest. WebP: libwebp
 * with cropping. Grey, palette, alpha, CMYK and 16-bit images become RGB as PIL's convert("RGB")
 * does it. A row has 4 bytes per pixel: R, G, B and one unused byte.
 * Owner: a worker keeps one codec for its life. Threads: one. Memory: bounded by
 * memory_bytes_max of begin. Bound: limits. */
#ifndef DECODE_CODEC_CODEC_H
#define DECODE_CODEC_CODEC_H

#include "decode/jpeg/jpeg.h"

enum stk_codec_kind { STK_CODEC_JPEG = 1, STK_CODEC_PNG, STK_CODEC_WEBP };

/* What the pixels of a picture are read as. */
enum stk_codec_pixel_format {
    STK_CODEC_RGB,     /* RGB, as PIL's convert("RGB") makes them */
    STK_CODEC_VALUES,  /* a PNG's grey values or palette indexes as they are in the file, the low
                    byte in the first of a pixel, zero in the third */
    STK_CODEC_RGB_IDS, /* a PNG's colours as they are in the file: 16 bits a channel are UNSUPPORTED
                        */
};

struct stk_codec_info {
    uint32_t kind; /* enum stk_codec_kind */
    uint32_t width, height;
    uint8_t orientation;   /* EXIF 1..8; 1 when absent or not sane */
    uint64_t memory_bytes; /* upper estimate of what decoding it takes, whole-picture buffers of
                              progressive or interlaced pictures included */
    uint32_t pixel_format; /* enum stk_codec_pixel_format; a wish, of the caller, for begin */
};

struct stk_codec_box {
    uint32_t x, y, width, height;
};

/* Header only. FORMAT: not a picture that we read (says what it looks like, text included);
 * LIMIT: more than pixels_max; TRUNCATED / CORRUPT. */
int stk_codec_probe(struct stk_view bytes, uint64_t pixels_max, struct stk_codec_info *info_out,
                    struct stoker_error *error);

struct stk_codec; /* decoder objects of the libraries, kept for re-use */
int stk_codec_open(struct stk_codec **codec_out, struct stoker_error *error);
void stk_codec_close(struct stk_codec *codec);

/* Begins to decode `box`, which lies inside a probed picture (bytes stay lent until end).
 * *row_pixels_out: how wide a row buffer must be (box.width and margins; never wider than the
 * picture), *skip_out: pixels before the box in it. A begin that fails has ended.
 * LIMIT: it would take, or took, more than memory_bytes_max; found before memory is taken. */
int stk_codec_begin(struct stk_codec *codec, struct stk_view bytes,
                    const struct stk_codec_info *info, const struct stk_codec_box *box,
                    uint64_t memory_bytes_max, uint32_t *row_pixels_out, uint32_t *skip_out,
                    struct stoker_error *error);
/* The next rows of the box, top down, into rows[0..count): returns how many (count, or what is
 * left of the box), or an error, after which only end may follow (TRUNCATED: the data ends before
 * the box does; what is missing below the box is not noticed). Call until box.height rows were
 * given. */
int stk_codec_rows(struct stk_codec *codec, uint8_t *const *rows, uint32_t count,
                   struct stoker_error *error);
/* After a begin, instead of rows: the components of a JPEG, as our own decoder gives them. The
 * number of planes, or 0: this picture has rows alone. */
uint32_t stk_codec_planes(const struct stk_codec *codec, struct stk_jpeg_plane planes_out[3]);
/* The next band of them: see stk_jpeg_decoder_band. false: the picture is damaged, or none of ours;
 * end it, and begin it anew for its rows. */
bool stk_codec_band(struct stk_codec *codec, struct stk_jpeg_band *band_out, bool *more_out);
/* Their samples to RGBX: see stk_jpeg_decoder_to_rgbx. */
void stk_codec_to_rgbx(const struct stk_codec *codec, const uint8_t *const samples[3],
                       uint32_t count, uint8_t *out);
/* For the picture that is begun next, which they were found for (decode/jpeg_index/jpeg_index.h),
 * and for it alone; lent until its end. NULL: none. */
void stk_codec_set_entry_points(struct stk_codec *codec,
                                const struct stk_jpeg_entry_points *entry_points);
/* The first warning of the library about the picture begun last, of what was decoded so far:
 * damage that it got over, and PIL and the loader with it. NULL: none. Lent until the next begin.
 * libwebp warns of nothing. */
const char *stk_codec_warning(const struct stk_codec *codec);
/* Ends the picture, finished or not. */
void stk_codec_end(struct stk_codec *codec);

/* Who decodes the picture begun last. A JPEG: 1: our own decoder, 1 + i: libjpeg-turbo, for
 * stoker_jpeg_reason(i). A PNG: one of these. 0: it is neither. May change with each row. */
#define STK_CODEC_BY_PNG 64u /* room png */
#define STK_CODEC_BY_LIBPNG 65u
uint32_t stk_codec_decoded_by(const struct stk_codec *codec);

/* Bytes of scratch and tables held now, for this picture and kept for the next; libwebp's own
 * memory, which it gives back before begin returns, is not in it. */
uint64_t stk_codec_bytes(const struct stk_codec *codec);
/* Between pictures: gives the scratch back if it is more than keep_bytes (after a huge one). */
void stk_codec_trim(struct stk_codec *codec, uint64_t keep_bytes);

#endif
