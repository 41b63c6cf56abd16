/* decode/codec/picture_test.h: pictures for the tests of this room, and a box of one decoded.
 *
 *   make_jpeg | make_png | make_webp -> a file and its pixels -> decode_box compares
 *
 * Owner: the test that includes it (each has its own statics). Threads: one. Memory: static.
 * Bound: SIDE_MAX, FILE_BYTES_MAX. */
#ifndef DECODE_CODEC_PICTURE_TEST_H
#define DECODE_CODEC_PICTURE_TEST_H

#include "base/random.h"
#include "decode/codec/codec.h"

#include <stdio.h>

#include <jpeglib.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <webp/decode.h>
#include <webp/encode.h>

#define SIDE_MAX 160
#define FILE_BYTES_MAX (1u << 20)
#define MADE_PIXELS_MAX (1u << 20) /* more than any picture made here has */
#define PIXELS_MAX 178956970u      /* the default of stoker.h */
#define MEMORY_MAX (UINT64_C(1) << 30)

struct made { /* an image file, and its expected pixels */
    uint8_t file[FILE_BYTES_MAX];
    size_t bytes;
    uint32_t width, height;
    uint8_t pixels[SIDE_MAX * SIDE_MAX][4];
};

static struct made made, other;
static uint8_t source[SIDE_MAX * SIDE_MAX * 8]; /* the settings of encoders */
static uint64_t seed = 1, draws;
static struct stk_codec *codec;

static inline uint32_t draw(uint32_t below)
{
    return (uint32_t)(stk_random_key(seed, draws++) % below);
}

/* Smooth waves and noise, so that every coefficient of a JPEG is in use. */
static inline void draw_source(uint32_t width, uint32_t height, uint32_t channels)
{
    uint32_t step_x = 3 + draw(9), step_y = 2 + draw(11);

    for (uint32_t i = 0; i < width * height * channels; i++) {
        uint32_t x = i / channels % width, y = i / channels / width, c = i % channels;

        source[i] = (uint8_t)(x * step_x + y * step_y * (c + 1) + draw(40));
    }
}

static inline struct stk_view view_of(const struct made *picture)
{
    return (struct stk_view){picture->file, picture->bytes};
}

/* ---- JPEG ------------------------------------------------------------------------------- */

enum jpeg_mode { BASELINE, RESTART, PROGRESSIVE, COARSE, ARITHMETIC, SEPARATE, MODE_COUNT };

static const char *const mode_names[MODE_COUNT] = {"baseline", "restart",    "progressive",
                                                   "coarse",   "arithmetic", "separate scans"};

/* A progressive image without fine coefficients: libjpeg smooths it. */
static const jpeg_scan_info coarse_scans[] = {
    {3, {0, 1, 2}, 0, 0, 0, 1}, {1, {0}, 1, 5, 0, 2}, {1, {1}, 1, 63, 0, 1}};
static const jpeg_scan_info separate_scans[] = {
    {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};

static const struct sampling_row {
    const char *name;
    int components;
    int h[4], v[4];
} sampling_rows[] = {
    {"4:4:4", 3, {1, 1, 1}, {1, 1, 1}},
    {"4:2:2", 3, {2, 1, 1}, {1, 1, 1}},
    {"4:2:0", 3, {2, 1, 1}, {2, 1, 1}},
    {"4:4:0", 3, {1, 1, 1}, {2, 1, 1}},
    {"4:1:1", 3, {4, 1, 1}, {1, 1, 1}},
    {"4:1:0", 3, {4, 1, 1}, {2, 1, 1}},
    {"grey", 1, {1}, {1}},
    {"grey, factor 2", 1, {2}, {2}},
    {"luma smaller", 3, {1, 2, 1}, {1, 2, 1}},
    {"mixed", 3, {2, 1, 2}, {1, 2, 2}},
    {"thirds", 3, {3, 1, 1}, {1, 1, 1}},
    {"cmyk", 4, {1, 1, 1, 1}, {1, 1, 1, 1}},
    {"ycck 4:2:0", 4, {2, 1, 1, 2}, {2, 1, 1, 2}},
};

static inline void set_mode(struct jpeg_compress_struct *cinfo, enum jpeg_mode mode)
{
    if (mode == RESTART) {
        cinfo->restart_interval = 1 + draw(3);
    } else if (mode == PROGRESSIVE) {
        jpeg_simple_progression(cinfo);
    } else if (mode == COARSE && cinfo->num_components == 3) {
        cinfo->scan_info = coarse_scans;
        cinfo->num_scans = STK_COUNT(coarse_scans);
    } else if (mode == SEPARATE && cinfo->num_components == 3) {
        cinfo->scan_info = separate_scans;
        cinfo->num_scans = STK_COUNT(separate_scans);
    } else if (mode == ARITHMETIC) {
        cinfo->arith_code = TRUE;
    }
}

static inline void encode_jpeg(struct made *picture, const struct sampling_row *row,
                               enum jpeg_mode mode)
{
    static const J_COLOR_SPACE spaces[5] = {JCS_UNKNOWN, JCS_GRAYSCALE, JCS_UNKNOWN, JCS_RGB,
                                            JCS_CMYK};
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *file = picture->file;
    unsigned long bytes = sizeof picture->file;

    draw_source(picture->width, picture->height, (uint32_t)row->components);
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &file, &bytes);
    cinfo.image_width = picture->width;
    cinfo.image_height = picture->height;
    cinfo.input_components = row->components;
    cinfo.in_color_space = spaces[row->components];
    jpeg_set_defaults(&cinfo);
    if (row->components == 4 && row->h[0] == 2) {
        jpeg_set_colorspace(&cinfo, JCS_YCCK);
    }
    jpeg_set_quality(&cinfo, 90, TRUE);
    for (int i = 0; i < row->components; i++) {
        cinfo.comp_info[i].h_samp_factor = row->h[i];
        cinfo.comp_info[i].v_samp_factor = row->v[i];
    }
    set_mode(&cinfo, mode);
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < cinfo.image_height) {
        JSAMPROW line =
            source + (size_t)cinfo.next_scanline * picture->width * (size_t)row->components;

        jpeg_write_scanlines(&cinfo, &line, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    STK_ASSERT(file == picture->file);
    picture->bytes = bytes;
}

/* The oracle: libjpeg as anyone uses it, and Pillow's formula for CMYK in another form. */
static inline void decode_jpeg(struct made *picture)
{
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;

    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, picture->file, picture->bytes);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = cinfo.num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg_start_decompress(&cinfo);
    while (cinfo.output_scanline < cinfo.output_height) {
        JSAMPROW line = picture->pixels[cinfo.output_scanline * picture->width];

        jpeg_read_scanlines(&cinfo, &line, 1);
    }
    for (uint32_t i = 0; cinfo.num_components == 4 && i < picture->width * picture->height; i++) {
        uint8_t *pixel = picture->pixels[i];

        for (int c = 0; c < 3; c++) {
            pixel[c] = (uint8_t)(pixel[3] - (2 * (255 - pixel[c]) * pixel[3] + 255) / 510);
        }
    }
    jpeg_finish_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

static inline void make_jpeg(struct made *picture, const struct sampling_row *row,
                             enum jpeg_mode mode, uint32_t width, uint32_t height)
{
    picture->width = width;
    picture->height = height;
    encode_jpeg(picture, row, mode);
    decode_jpeg(picture);
}

/* ---- PNG -------------------------------------------------------------------------------- */

static const struct png_row {
    const char *name;
    int color, depth, channels;
} png_rows[] = {
    {"grey 1", PNG_COLOR_TYPE_GRAY, 1, 1},       {"grey 2", PNG_COLOR_TYPE_GRAY, 2, 1},
    {"grey 4", PNG_COLOR_TYPE_GRAY, 4, 1},       {"grey 8", PNG_COLOR_TYPE_GRAY, 8, 1},
    {"grey 16", PNG_COLOR_TYPE_GRAY, 16, 1},     {"rgb 8", PNG_COLOR_TYPE_RGB, 8, 3},
    {"rgb 16", PNG_COLOR_TYPE_RGB, 16, 3},       {"palette 1", PNG_COLOR_TYPE_PALETTE, 1, 1},
    {"palette 2", PNG_COLOR_TYPE_PALETTE, 2, 1}, {"palette 4", PNG_COLOR_TYPE_PALETTE, 4, 1},
    {"palette 8", PNG_COLOR_TYPE_PALETTE, 8, 1}, {"grey alpha 8", PNG_COLOR_TYPE_GA, 8, 2},
    {"grey alpha 16", PNG_COLOR_TYPE_GA, 16, 2}, {"rgba 8", PNG_COLOR_TYPE_RGBA, 8, 4},
    {"rgba 16", PNG_COLOR_TYPE_RGBA, 16, 4},
};

static inline void png_append(png_structp writer, png_bytep data, size_t bytes)
{
    struct made *picture = png_get_io_ptr(writer);

    STK_ASSERT(bytes <= sizeof picture->file - picture->bytes);
    memcpy(picture->file + picture->bytes, data, bytes);
    picture->bytes += bytes;
}

/* One sample scaled to 8 bits: the high byte, or bits spread over a byte. */
static inline uint8_t to_byte(const struct png_row *row, uint32_t sample)
{
    if (row->depth == 16) {
        return (uint8_t)(sample >> 8);
    }
    return (uint8_t)(sample * 255 / ((1u << row->depth) - 1));
}

static inline void make_png(struct made *picture, const struct png_row *row, bool interlaced,
                            uint32_t width, uint32_t height)
{
    png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(writer);
    png_color palette[256];
    uint8_t *lines[SIDE_MAX];
    size_t line_bytes = ((size_t)width * (size_t)(row->channels * row->depth) + 7) / 8;

    picture->width = width;
    picture->height = height;
    picture->bytes = 0;
    for (int i = 0; i < 256; i++) {
        palette[i] = (png_color){(uint8_t)draw(256), (uint8_t)draw(256), (uint8_t)draw(256)};
    }
    memset(source, 0, line_bytes * height);
    for (uint32_t i = 0; i < width * height; i++) {
        uint8_t *line = source + i / width * line_bytes;
        uint32_t sample[4] = {0};

        for (int c = 0; c < row->channels; c++) {
            size_t bit = (i % width * (size_t)row->channels + (size_t)c) * (size_t)row->depth;

            sample[c] = draw(draw(2) ? 1u << row->depth : row->depth > 8 ? 400 : 2);
            if (row->depth == 16) {
                line[bit / 8] = (uint8_t)(sample[c] >> 8);
                line[bit / 8 + 1] = (uint8_t)sample[c];
            } else {
                line[bit / 8] |= (uint8_t)(sample[c] << (8 - (size_t)row->depth - bit % 8));
            }
        }
        for (int c = 0; c < 3; c++) {
            const png_color *entry = &palette[sample[0] & 255];
            const uint8_t named[3] = {entry->red, entry->green, entry->blue};
            bool color = row->color & PNG_COLOR_MASK_COLOR;

            picture->pixels[i][c] = row->color == PNG_COLOR_TYPE_PALETTE
                                        ? named[c]
                                        : to_byte(row, sample[color ? c : 0]);
        }
    }
    png_set_write_fn(writer, picture, png_append, NULL);
    png_set_IHDR(writer, info, width, height, row->depth, row->color,
                 interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (row->color == PNG_COLOR_TYPE_PALETTE) {
        png_set_PLTE(writer, info, palette, 1 << row->depth);
    }
    for (uint32_t y = 0; y < height; y++) {
        lines[y] = source + y * line_bytes;
    }
    png_set_rows(writer, info, lines);
    png_write_png(writer, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&writer, &info);
}

/* ---- WebP ------------------------------------------------------------------------------- */

enum webp_mode { LOSSY, LOSSY_ALPHA, LOSSLESS, LOSSLESS_ALPHA, WEBP_MODE_COUNT };

static const char *const webp_names[] = {"lossy", "lossy alpha", "lossless", "lossless alpha"};

static inline void make_webp(struct made *picture, enum webp_mode mode, uint32_t width,
                             uint32_t height)
{
    int channels = mode == LOSSY_ALPHA || mode == LOSSLESS_ALPHA ? 4 : 3;
    int stride = (int)width * channels;
    uint8_t *out = NULL;

    picture->width = width;
    picture->height = height;
    draw_source(width, height, (uint32_t)channels);
    if (mode == LOSSY) {
        picture->bytes = WebPEncodeRGB(source, (int)width, (int)height, stride, 80, &out);
    } else if (mode == LOSSY_ALPHA) {
        picture->bytes = WebPEncodeRGBA(source, (int)width, (int)height, stride, 80, &out);
    } else if (mode == LOSSLESS) {
        picture->bytes = WebPEncodeLosslessRGB(source, (int)width, (int)height, stride, &out);
    } else {
        picture->bytes = WebPEncodeLosslessRGBA(source, (int)width, (int)height, stride, &out);
    }
    STK_ASSERT(out && picture->bytes <= sizeof picture->file);
    memcpy(picture->file, out, picture->bytes);
    WebPFree(out);
    WebPDecodeRGBAInto(picture->file, picture->bytes, picture->pixels[0], sizeof picture->pixels,
                       (int)width * 4);
}

static inline size_t put_chunk(uint8_t *to, const char *name, const uint8_t *content,
                               uint32_t bytes)
{
    memcpy(to, name, 4);
    for (int i = 0; i < 4; i++) {
        to[4 + i] = (uint8_t)(bytes >> 8 * i);
    }
    memcpy(to + 8, content, bytes);
    to[8 + bytes] = 0;
    return 8 + bytes + (bytes & 1);
}

/* ---- a box ---------------------------------------------------------------------- */

#define ROWS_MAX 5

/* Decodes a box in calls of 1..ROWS_MAX rows. 0, an error, or 1: a sample differs, or a byte
 * after a row was written. */
static inline int decode_box(struct stk_view bytes, const struct made *want,
                             const struct stk_codec_box *box, struct stoker_error *error)
{
    static uint8_t rows[ROWS_MAX][(SIDE_MAX + 64) * 4];
    struct stk_codec_info info;
    uint32_t row_pixels = 0, skip = 0;
    bool same = true;
    int status = stk_codec_probe(bytes, MADE_PIXELS_MAX, &info, error);

    if (status < 0) {
        return status;
    }
    status =
        stk_codec_begin(codec, bytes, &info, box, info.memory_bytes, &row_pixels, &skip, error);
    if (status < 0) {
        return status;
    }
    if (4 * row_pixels >= sizeof rows[0]) { /* damage made the picture wide */
        stk_codec_end(codec);
        return 1;
    }
    for (uint32_t y = 0; y < box->height;) {
        uint8_t *table[ROWS_MAX];

        for (int i = 0; i < ROWS_MAX; i++) {
            table[i] = rows[i];
            memset(rows[i], 0xa5, sizeof rows[i]);
        }
        status = stk_codec_rows(codec, table, 1 + draw(ROWS_MAX), error);
        if (status <= 0) {
            break;
        }
        for (int i = 0; i < status; i++, y++) {
            const uint8_t (*line)[4] = &want->pixels[(box->y + y) * want->width + box->x];

            for (uint32_t x = 0; x < box->width; x++) {
                same = same && memcmp(line[x], rows[i] + 4 * (size_t)(skip + x), 3) == 0;
            }
            same = same && rows[i][4 * row_pixels] == 0xa5;
        }
    }
    stk_codec_end(codec);
    return status < 0 ? status : !same;
}

#endif
