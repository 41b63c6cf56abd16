/* Goal: BMP and PNM decode to the pixels that were written, of any depth and box; damaged headers
 * and ends are errors. Method: rows of small files, by hand and by loops; the oracle is arithmetic.
 * python/tests/test_pixels.py compares with PIL. */
#include "decode/codec/codec.h"

#include "test/t.h"

#include <stdio.h>
#include <string.h>

static struct stk_codec *codec;

/* Decodes a box to RGB. Returns the status. */
static int decode(struct stk_view bytes, const struct stk_codec_box *given, uint8_t *rgb,
                  struct stoker_error *error)
{
    static uint8_t row[4096];
    struct stk_codec_info info;
    struct stk_codec_box box;
    uint32_t row_pixels, skip;
    int status = stk_codec_probe(bytes, 1u << 20, &info, error);

    if (status < 0) {
        return status;
    }
    box = given ? *given : (struct stk_codec_box){0, 0, info.width, info.height};
    status = stk_codec_begin(codec, bytes, &info, &box, 1 << 20, &row_pixels, &skip, error);
    if (status < 0) {
        return status;
    }
    for (uint32_t y = 0; y < box.height && status >= 0; y++) {
        status = stk_codec_rows(codec, &(uint8_t *){row}, 1, error);
        for (uint32_t x = 0; status > 0 && x < box.width; x++) {
            memcpy(rgb, row + 4 * (skip + x), 3);
            rgb += 3;
        }
    }
    stk_codec_end(codec);
    return status < 0 ? status : stk_codec_check(codec, bytes, &info, 1 << 20, error);
}

#define FILE(text) {(const uint8_t *)(text), sizeof(text) - 1}

static void test_pnm(void)
{
    static const struct row {
        const char *name;
        struct stk_view file;
        int status;
        const char *rgb; /* of the whole image */
        uint32_t bytes;
    } rows[] = {
        {"P1", FILE("P1\n# a comment\n3 2\n010\n1 1 0\n"), 0,
         "\xff\xff\xff\0\0\0\xff\xff\xff\0\0\0\0\0\0\xff\xff\xff", 18},
        {"P2", FILE("P2 2 1 10\n0 5"), 0, "\0\0\0\x80\x80\x80", 6},
        {"P3", FILE("P3\n1 2\n255\n1 2 3\n4 5 6\n"), 0, "\1\2\3\4\5\6", 6},
        {"P4", FILE("P4\n3 2\n\x40\xc0"), 0,
         "\xff\xff\xff\0\0\0\xff\xff\xff\0\0\0\0\0\0\xff\xff\xff", 18},
        {"P5", FILE("P5\n2 1\n255\n\1\2"), 0, "\1\1\1\2\2\2", 6},
        {"P5 of 16 bits", FILE("P5\n1 1\n65535\n\x12\x34"), 0, "\x12\x12\x12", 3},
        {"P6", FILE("P6\n1 1\n255\n\1\2\3"), 0, "\1\2\3", 3},
        {"P6 cut", FILE("P6\n1 1\n255\n\1\2"), STOKER_ERROR_TRUNCATED, "", 0},
        {"P3 cut", FILE("P3\n1 1\n255\n1 2"), STOKER_ERROR_TRUNCATED, "", 0},
        {"P3 with a letter", FILE("P3\n1 1\n255\n1 x 3"), STOKER_ERROR_CORRUPT, "", 0},
        {"no height", FILE("P6\n1"), STOKER_ERROR_TRUNCATED, "", 0},
        {"no width", FILE("P6\n0 1\n255\n"), STOKER_ERROR_CORRUPT, "", 0},
        {"a large value", FILE("P6\n1 1\n65536\n"), STOKER_ERROR_CORRUPT, "", 0},
        {"a huge side", FILE("P6\n99999999999 1\n255\n"), STOKER_ERROR_CORRUPT, "", 0},
        {"no PNM", FILE("P6x"), STOKER_ERROR_FORMAT, "", 0},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_error error = {0};
        uint8_t rgb[64] = {0};

        T_EQ(row->name, decode(row->file, NULL, rgb, &error), row->status);
        T_TRUE(row->name, memcmp(rgb, row->rgb, row->bytes) == 0);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
        }
    }
}

static void put(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

/* The value of pixel x, y in a file of so many bits. */
static uint32_t value_of(uint32_t x, uint32_t y, uint32_t bits)
{
    uint32_t value = x * 37 + y * 101 + (x ^ y) * 0x10305;

    return bits == 32 ? value & 0xffffff : value & ((1u << bits) - 1);
}

static void color_of(uint32_t value, uint32_t bits, uint8_t rgb[3])
{
    if (bits <= 8) {
        rgb[0] = (uint8_t)(value * 3);
        rgb[1] = (uint8_t)(value + 7);
        rgb[2] = (uint8_t)(255 - value);
    } else if (bits == 16) {
        rgb[0] = (uint8_t)((value >> 10 & 31) * 255 / 31);
        rgb[1] = (uint8_t)((value >> 5 & 31) * 255 / 31);
        rgb[2] = (uint8_t)((value & 31) * 255 / 31);
    } else {
        rgb[0] = (uint8_t)(value >> 16);
        rgb[1] = (uint8_t)(value >> 8);
        rgb[2] = (uint8_t)value;
    }
}

enum { WIDTH = 13, HEIGHT = 5 };

static size_t make_bmp(uint8_t *file, uint32_t bits, bool top_down)
{
    uint32_t colors = bits <= 8 ? 1u << bits : 0, at = 54 + 4 * colors;
    size_t stride = (WIDTH * bits + 31) / 32 * 4;

    memset(file, 0, at + stride * HEIGHT);
    memcpy(file, "BM", 2);
    put(file + 10, at, 4);
    put(file + 14, 40, 4);
    put(file + 18, WIDTH, 4);
    put(file + 22, top_down ? (uint32_t)-HEIGHT : HEIGHT, 4);
    put(file + 26, 1, 2);
    put(file + 28, bits, 2);
    for (uint32_t i = 0; i < colors; i++) {
        uint8_t rgb[3];

        color_of(i, bits, rgb);
        put(file + 54 + 4 * i, (uint32_t)rgb[0] << 16 | (uint32_t)rgb[1] << 8 | rgb[2], 4);
    }
    for (uint32_t y = 0; y < HEIGHT; y++) {
        uint8_t *row = file + at + (top_down ? y : HEIGHT - 1 - y) * stride;

        for (uint32_t x = 0; x < WIDTH; x++) {
            uint32_t value = value_of(x, y, bits);

            if (bits < 8) {
                row[x * bits / 8] |= (uint8_t)(value << (8 - bits - x * bits % 8));
            } else {
                put(row + x * bits / 8, value, (int)bits / 8);
            }
        }
    }
    return at + stride * HEIGHT;
}

static void test_bmp(void)
{
    static const uint32_t depths[] = {1, 4, 8, 16, 24, 32};
    static uint8_t file[4096];

    for (size_t n = 0; n < STK_COUNT(depths); n++) {
        uint32_t bits = depths[n];

        for (int top_down = 0; top_down < 2; top_down++) {
            struct stk_codec_box box = {2, 1, 9, 3};
            struct stoker_error error = {0};
            uint8_t rgb[WIDTH * HEIGHT * 3] = {0}, want[3];
            size_t bytes = make_bmp(file, bits, top_down);
            uint32_t wrong = 0;
            char name[40];

            snprintf(name, sizeof name, "%u bits, %d", bits, top_down);
            T_EQ(name, decode((struct stk_view){file, bytes}, &box, rgb, &error), 0);
            for (uint32_t i = 0; i < box.width * box.height; i++) {
                color_of(value_of(box.x + i % box.width, box.y + i / box.width, bits), bits, want);
                wrong += memcmp(rgb + 3 * i, want, 3) != 0;
            }
            T_EQ(name, wrong, 0);
            T_EQ(name,
                 decode((struct stk_view){file, bytes - (WIDTH * bits + 31) / 32 * 4}, NULL, rgb,
                        &error),
                 STOKER_ERROR_TRUNCATED);
            T_EQ(name, decode((struct stk_view){file, 30}, NULL, rgb, &error),
                 STOKER_ERROR_TRUNCATED);
        }
    }
}

/* Runs of 8 bits: 4 times 9, the end of the row, three stored pixels, a move, one pixel. */
static void test_runs(void)
{
    static const uint8_t data[] = {4, 9, 0, 0, 0, 3, 1, 2, 3, 0, 1, 8, 0, 1};
    uint8_t file[2048] = {0}, rgb[64] = {0};
    struct stoker_error error = {0};
    size_t at = 54 + 4 * 256;

    memcpy(file, "BM", 2);
    put(file + 10, (uint32_t)at, 4);
    put(file + 14, 40, 4);
    put(file + 18, 4, 4);
    put(file + 22, 2, 4);
    put(file + 28, 8, 2);
    put(file + 30, 1, 4);
    for (uint32_t i = 0; i < 256; i++) {
        put(file + 54 + 4 * i, i << 16 | i << 8 | i, 4);
    }
    memcpy(file + at, data, sizeof data);
    T_EQ("runs", decode((struct stk_view){file, at + sizeof data}, NULL, rgb, &error), 0);
    T_TRUE("their pixels",
           memcmp(rgb, "\1\1\1\2\2\2\3\3\3\10\10\10\11\11\11\11\11\11\11\11\11\11\11\11", 24) == 0);
    T_EQ("cut", decode((struct stk_view){file, at + 5}, NULL, rgb, &error), STOKER_ERROR_TRUNCATED);
}

int main(void)
{
    T_EQ("open", stk_codec_open(&codec, NULL), 0);
    test_pnm();
    test_bmp();
    test_runs();
    stk_codec_close(codec);
    return t_finish();
}
