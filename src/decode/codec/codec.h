/* decode/codec/codec.h: decodes JPEG, PNG, WebP, BMP and PNM images to rows of RGBX, only the
 * requested box.
 *
 *   probe(bytes) -> info -> begin(box) -> rows ... -> end        (begin again: the next image)
 *
 * JPEG: decode/jpeg, and libjpeg-turbo for images that decode/jpeg does not handle. Both give the
 * samples of libjpeg-turbo's full decode. PNG: decode/png, and libpng for the rest. WebP: libwebp
 * with cropping. Grey, palette, alpha and CMYK images become RGB as PIL's convert("RGB") does it;
 * 16-bit samples are scaled to 8 bits, also plain grey, which PIL clips. A row has 4 bytes per
 * pixel: R, G, B and one unused byte. Owner: a worker, which has one codec for its life. Threads:
 * one. Memory: bounded by memory_bytes_max of begin. Bound: limits. */
#ifndef DECODE_CODEC_CODEC_H
#define DECODE_CODEC_CODEC_H

#include "decode/jpeg/jpeg.h"

enum stk_codec_kind {
    STK_CODEC_JPEG = 1,
    STK_CODEC_PNG,
    STK_CODEC_WEBP,
    STK_CODEC_BMP,
    STK_CODEC_PNM,
    STK_CODEC_KIND_END
};

/* How the samples of an image are read. */
enum stk_codec_pixel_format {
    STK_CODEC_RGB,     /* RGB, as PIL's convert("RGB") makes them */
    STK_CODEC_VALUES,  /* PNG only: the grey values or palette indexes stored in the file; byte 0 of
                          a pixel is the low byte, byte 2 is zero */
    STK_CODEC_RGB_IDS, /* PNG only: the colours stored in the file; 16 bits per channel is
                          UNSUPPORTED */
};

struct stk_codec_info {
    uint32_t kind; /* enum stk_codec_kind */
    uint32_t width, height;
    uint8_t orientation;   /* EXIF 1..8; 1 when absent or not sane */
    uint64_t memory_bytes; /* upper bound of the memory that decoding needs, including the
                              full-image buffers of progressive and interlaced images */
    uint32_t pixel_format; /* enum stk_codec_pixel_format; the caller sets it before begin */
};

struct stk_codec_box {
    uint32_t x, y, width, height;
};

/* Reads the header only. Returns 0 on success, FORMAT if the bytes are not a supported image (the
 * error names the detected type, including text), LIMIT if the image has more than pixels_max
 * pixels, TRUNCATED or CORRUPT if the header is damaged. */
int stk_codec_probe(struct stk_view bytes, uint64_t pixels_max, struct stk_codec_info *info_out,
                    struct stoker_error *error);

struct stk_codec; /* decoder objects of the libraries, reused for each image */
int stk_codec_open(struct stk_codec **codec_out, struct stoker_error *error);
void stk_codec_close(struct stk_codec *codec);

/* Starts decoding `box`, which must be inside the probed image. bytes must stay valid until end.
 * *row_pixels_out is the required width of a row buffer: box.width plus margins, at most the image
 * width. *skip_out is the number of pixels before the box in a row. After a failed begin, end is
 * not required. Returns 0 on success, LIMIT if decoding needs more than memory_bytes_max; the check
 * precedes the allocation. */
int stk_codec_begin(struct stk_codec *codec, struct stk_view bytes,
                    const struct stk_codec_info *info, const struct stk_codec_box *box,
                    uint64_t memory_bytes_max, uint32_t *row_pixels_out, uint32_t *skip_out,
                    struct stoker_error *error);
/* Writes the next rows of the box, top down, into rows[0..count). Call it until it has returned
 * box.height rows in total. After an error only end may follow. Damage below the box is not
 * detected. Returns the number of rows written (count, or the rows left in the box), TRUNCATED if
 * the data ends before the box does, or another error. */
int stk_codec_rows(struct stk_codec *codec, uint8_t *const *rows, uint32_t count,
                   struct stoker_error *error);
/* Call after begin, instead of rows: describes the component planes of a JPEG that decode/jpeg
 * decodes. Returns the number of planes, or 0 if the image is available as rows only. */
uint32_t stk_codec_planes(const struct stk_codec *codec, struct stk_jpeg_plane planes_out[3]);
/* Decodes the next band of planes: see stk_jpeg_decoder_band. Returns false if the image is damaged
 * or decode/jpeg does not decode it; the caller then ends the image and begins it again to read
 * rows. */
bool stk_codec_band(struct stk_codec *codec, struct stk_jpeg_band *band_out, bool *more_out);
/* Converts plane samples to RGBX: see stk_jpeg_decoder_to_rgbx. */
void stk_codec_to_rgbx(const struct stk_codec *codec, const uint8_t *const samples[3],
                       uint32_t count, uint8_t *out);
/* Sets the entry points (decode/jpeg_index/jpeg_index.h) of the next image only. They must belong
 * to that image and stay valid until its end. NULL: none. */
void stk_codec_set_entry_points(struct stk_codec *codec,
                                const struct stk_jpeg_entry_points *entry_points);
/* Call after the last row or band of the box. If the box reaches the last row of the image, this
 * reads what follows it, up to the end of the image. Else, and after entry points, it does nothing.
 * Returns 0, or an error of the library about the end of the image. */
int stk_codec_finish(struct stk_codec *codec, struct stoker_error *error);
/* Returns the library's first warning about the current image, for the part decoded so far. A
 * warning about damage comes before others. PIL tolerates what libraries warn about. Returns NULL
 * if there is none. The text is valid until the next begin. libwebp has no warnings. */
const char *stk_codec_warning(const struct stk_codec *codec);
/* Returns whether the warning is about damaged data of the image. */
bool stk_codec_is_damaged(const struct stk_codec *codec);
/* Returns CORRUPT if a warning about the current image says that its data is damaged, else 0. A
 * warning about an unknown version of a marker is no damage. */
int stk_codec_check_damage(const struct stk_codec *codec, struct stoker_error *error);
/* Ends the image, complete or not. */
void stk_codec_end(struct stk_codec *codec);

/* Checks the structure of an image that was probed, without decoding it: the CRC of each PNG chunk,
 * the segments of a JPEG up to its end marker, the chunks of a WebP. Returns 0, CORRUPT or
 * TRUNCATED. */
int stk_codec_check_structure(struct stk_view bytes, uint32_t kind, struct stoker_error *error);
/* Decodes all data of the image to its end, and drops the pixels; of an animated WebP all frames.
 * The codec must be free. Returns 0 if the structure is valid and neither an error nor a warning of
 * the library occurred, else that error, or CORRUPT with the warning. LIMIT as in begin. */
int stk_codec_check(struct stk_codec *codec, struct stk_view bytes,
                    const struct stk_codec_info *info, uint64_t memory_bytes_max,
                    struct stoker_error *error);
/* Returns the memory that stk_codec_check needs in addition to info->memory_bytes. */
uint64_t stk_codec_check_bytes(const struct stk_codec_info *info);

/* Returns which decoder handles the current image. JPEG: 1 for decode/jpeg, 1 + i for libjpeg-turbo
 * because of stoker_jpeg_reason(i). PNG: one of the constants below. 0: other formats. The value
 * may change with each row. */
#define STK_CODEC_BY_PNG 64u /* decode/png */
#define STK_CODEC_BY_LIBPNG 65u
uint32_t stk_codec_decoded_by(const struct stk_codec *codec);

/* Returns the bytes of scratch and tables allocated now, for this image and cached for the next.
 * libwebp's own memory, which is freed before begin returns, is not included. */
uint64_t stk_codec_bytes(const struct stk_codec *codec);
/* Call between images: frees the scratch if it is larger than keep_bytes. */
void stk_codec_trim(struct stk_codec *codec, uint64_t keep_bytes);

#endif
