/* Goal: stk_codec_check finds everything that the image libraries warn about, and nothing else.
 * Method: JPEGs, PNGs and WebPs with random bytes in their data; oracles are libjpeg-turbo as djpeg
 * uses it (all rows, then jpeg_finish_decompress), libpng with png_read_end, and libwebp. */
#include "decode/codec/codec.h"

#include "test/t.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <webp/encode.h>

enum { WIDTH = 120, HEIGHT = 90, ROUNDS = 600, MEMORY_MAX = 256 << 20 };

static uint8_t pixels[HEIGHT][WIDTH * 3];
static uint32_t seed = 20261127;
static jmp_buf jump;
static uint32_t warnings;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static void paint(void)
{
    for (uint32_t y = 0; y < HEIGHT; y++) {
        for (uint32_t x = 0; x < WIDTH * 3; x++) {
            pixels[y][x] = (uint8_t)(x * 2 + y * 3 + draw(40));
        }
    }
}

/* ---- JPEG --------------------------------------------------------------------------------- */

enum jpeg_kind { BASELINE, RESTART, PROGRESSIVE, GREY, KINDS };

static size_t encode_jpeg(uint8_t **file, uint32_t kind)
{
    struct jpeg_compress_struct cinfo = {0};
    struct jpeg_error_mgr errors;
    unsigned long bytes = 0;

    *file = NULL;
    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, file, &bytes);
    cinfo.image_width = kind == GREY ? WIDTH * 3 : WIDTH;
    cinfo.image_height = HEIGHT;
    cinfo.input_components = kind == GREY ? 1 : 3;
    cinfo.in_color_space = kind == GREY ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&cinfo);
    cinfo.restart_interval = kind == RESTART ? 5 : 0;
    if (kind == PROGRESSIVE) {
        jpeg_simple_progression(&cinfo);
    }
    jpeg_start_compress(&cinfo, TRUE);
    while (cinfo.next_scanline < HEIGHT) {
        JSAMPROW row = pixels[cinfo.next_scanline];

        jpeg_write_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    return bytes;
}

static void on_jpeg_error(j_common_ptr cinfo)
{
    (void)cinfo;
    longjmp(jump, 1);
}

static void on_jpeg_text(j_common_ptr cinfo)
{
    (void)cinfo;
}

/* As djpeg: whether it prints anything about the file. */
static bool djpeg_complains(struct stk_view bytes)
{
    static uint8_t row_bytes[WIDTH * 3 * 4];
    struct jpeg_decompress_struct cinfo = {0};
    struct jpeg_error_mgr errors;
    bool complains;

    cinfo.err = jpeg_std_error(&errors);
    errors.error_exit = on_jpeg_error;
    errors.output_message = on_jpeg_text;
    if (setjmp(jump)) {
        jpeg_destroy_decompress(&cinfo);
        return true;
    }
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, bytes.data, bytes.bytes);
    jpeg_read_header(&cinfo, TRUE);
    jpeg_start_decompress(&cinfo);
    while (cinfo.output_scanline < cinfo.output_height) {
        JSAMPROW row = row_bytes;

        jpeg_read_scanlines(&cinfo, &row, 1);
    }
    jpeg_finish_decompress(&cinfo);
    complains = errors.num_warnings > 0;
    jpeg_destroy_decompress(&cinfo);
    return complains;
}

/* ---- PNG ---------------------------------------------------------------------------------- */

struct memory {
    const uint8_t *data;
    size_t bytes, at;
};

static void on_png_error(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
    longjmp(jump, 1);
}

static void on_png_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
    warnings++;
}

static void on_png_read(png_structp png, png_bytep to, size_t bytes)
{
    struct memory *memory = png_get_io_ptr(png);

    if (bytes > memory->bytes - memory->at) {
        png_error(png, "end");
    }
    memcpy(to, memory->data + memory->at, bytes);
    memory->at += bytes;
}

static bool libpng_complains(struct stk_view bytes)
{
    static uint8_t row[WIDTH * 3 * 4];
    struct memory memory = {bytes.data, bytes.bytes, 0};
    png_structp png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, on_png_error, on_png_warning);
    png_infop info = png_create_info_struct(png);

    warnings = 0;
    if (setjmp(jump)) {
        png_destroy_read_struct(&png, &info, NULL);
        return true;
    }
    png_set_read_fn(png, &memory, on_png_read);
    png_read_info(png, info);
    for (uint32_t y = 0; y < HEIGHT; y++) {
        png_read_row(png, row, NULL);
    }
    png_read_end(png, NULL);
    png_destroy_read_struct(&png, &info, NULL);
    return warnings > 0;
}

static size_t encode_png(uint8_t **file)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = WIDTH, .height = HEIGHT, .format = PNG_FORMAT_RGB};
    size_t bytes = 0;

    png_image_write_to_memory(&image, NULL, &bytes, 0, pixels, 0, NULL);
    *file = malloc(bytes);
    png_image_write_to_memory(&image, *file, &bytes, 0, pixels, 0, NULL);
    return bytes;
}

/* ---- the check ---------------------------------------------------------------------------- */

static struct stk_codec *codec;

static int check(struct stk_view bytes, struct stoker_error *error)
{
    struct stk_codec_info info;
    int status = stk_codec_probe(bytes, UINT64_MAX, &info, error);

    return status < 0 ? status : stk_codec_check(codec, bytes, &info, MEMORY_MAX, error);
}

static void damage(uint8_t *file, size_t bytes, size_t from)
{
    for (uint32_t n = 1 + draw(20); n > 0; n--) {
        file[from + draw((uint32_t)(bytes - 2 - from))] = (uint8_t)draw(256);
    }
}

static size_t find_scan(const uint8_t *file, size_t bytes)
{
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (file[i] == 0xff && file[i + 1] == 0xda) {
            return i + 14;
        }
    }
    return 0;
}

static void test_jpegs(void)
{
    uint32_t damaged = 0, clean = 0;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct stoker_error error = {0};
        uint8_t *file;
        size_t bytes;
        char name[64];
        bool wanted;

        paint();
        bytes = encode_jpeg(&file, i % KINDS);
        if (i % 10) {
            damage(file, bytes, find_scan(file, bytes));
        }
        wanted = djpeg_complains((struct stk_view){file, bytes});
        damaged += wanted;
        clean += !wanted;
        snprintf(name, sizeof name, "jpeg %u of kind %u", i, i % KINDS);
        T_EQ(name, check((struct stk_view){file, bytes}, &error) < 0, wanted);
        free(file);
    }
    T_TRUE("many damaged", damaged > ROUNDS / 3);
    T_TRUE("some clean", clean >= ROUNDS / 10);
}

/* Damage that libjpeg finds after the last row only. */
static void test_jpeg_ends(void)
{
    struct stoker_error error = {0};
    uint8_t *file, *longer;
    size_t bytes;

    paint();
    bytes = encode_jpeg(&file, BASELINE);
    T_EQ("sound", check((struct stk_view){file, bytes}, &error), 0);
    T_EQ("no end marker", check((struct stk_view){file, bytes - 2}, &error),
         STOKER_ERROR_TRUNCATED);
    longer = malloc(bytes + 40);
    memcpy(longer, file, bytes - 2);
    memset(longer + bytes - 2, 0x55, 40);
    memcpy(longer + bytes + 38, "\xff\xd9", 2);
    T_EQ("bytes before the end marker", check((struct stk_view){longer, bytes + 40}, &error),
         STOKER_ERROR_CORRUPT);
    T_HAS("its text", error.where, "extraneous bytes");
    memcpy(longer + bytes - 2, "\xff\xd9", 2);
    T_EQ("bytes behind it", check((struct stk_view){longer, bytes + 40}, &error), 0);
    free(longer);
    free(file);
}

static void test_pngs(void)
{
    uint32_t damaged = 0;

    for (uint32_t i = 0; i < ROUNDS / 4; i++) {
        struct stoker_error error = {0};
        uint8_t *file;
        size_t bytes;
        bool wanted;
        char name[64];

        paint();
        bytes = encode_png(&file);
        if (i % 5) {
            file[33 + draw((uint32_t)bytes - 33)] ^= (uint8_t)(1 + draw(255));
        }
        wanted = libpng_complains((struct stk_view){file, bytes});
        damaged += wanted;
        snprintf(name, sizeof name, "png %u", i);
        T_EQ(name, check((struct stk_view){file, bytes}, &error) < 0, wanted);
        free(file);
    }
    T_TRUE("many damaged", damaged > ROUNDS / 8);
}

static void put32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

/* An animation of two frames of the same chunks; the second is damaged, or cut. */
static void test_animation(void)
{
    uint8_t *still, *file;
    size_t bytes = WebPEncodeLosslessRGB(pixels[0], WIDTH, HEIGHT, WIDTH * 3, &still), chunks, at;
    struct stoker_error error = {0};

    chunks = bytes - 12;
    file = calloc(1, 100 + 2 * (chunks + 24));
    memcpy(file, "RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x02", 21);
    put32(file + 24, WIDTH - 1);
    put32(file + 27, HEIGHT - 1);
    memcpy(file + 30, "ANIM\x06\0\0", 7);
    at = 44;
    for (int i = 0; i < 2; i++) {
        memcpy(file + at, "ANMF", 4);
        put32(file + at + 4, (uint32_t)chunks + 16);
        put32(file + at + 14, WIDTH - 1);
        put32(file + at + 17, HEIGHT - 1);
        memcpy(file + at + 24, still + 12, chunks);
        at += 24 + chunks;
    }
    put32(file + 4, (uint32_t)at - 8);
    T_EQ("sound", check((struct stk_view){file, at}, &error), 0);
    file[at - chunks + 8] = 0; /* the signature of the lossless frame */
    T_TRUE("the second frame", check((struct stk_view){file, at}, &error) < 0);
    free(file);
    WebPFree(still);
}

int main(void)
{
    T_EQ("open", stk_codec_open(&codec, NULL), 0);
    paint();
    test_jpegs();
    test_jpeg_ends();
    test_pngs();
    test_animation();
    stk_codec_close(codec);
    return t_finish();
}
