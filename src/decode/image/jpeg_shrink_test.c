/* Goal: JPEGs above the short side get torchvision's size and keep their orientation, always with
 * the same bytes; all other files are unchanged, damaged images too; a lack of memory is an error.
 * Method: rows of images made by libjpeg, with an EXIF tag inserted; fail-nth.
 * python/tests/test_pack_resize.py compares pixels with PIL. Covers jpeg_shrink.c. */
#include "decode/image/jpeg_shrink.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "decode/codec/codec.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { FILE_BYTES = 1 << 20 };

struct picture {
    uint8_t bytes[FILE_BYTES];
    size_t count;
};

/* A smooth picture; orientation 0: without EXIF. */
static void make(struct picture *picture, uint32_t width, uint32_t height, uint8_t orientation)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    unsigned char *file = NULL;
    unsigned long bytes = 0;
    uint8_t row[3 * 1024];
    uint8_t *rows = row;
    const uint8_t tag[] = {'E', 'x',  'i', 'f', 0, 0, 'M', 'M', 0, 42,          0, 0, 0, 8, 0, 1,
                           1,   0x12, 0,   3,   0, 0, 0,   1,   0, orientation, 0, 0, 0, 0, 0, 0};

    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &file, &bytes);
    jpeg.image_width = width;
    jpeg.image_height = height;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    if (orientation > 0) {
        jpeg_write_marker(&jpeg, JPEG_APP0 + 1, tag, sizeof tag);
    }
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < 3 * width; x++) {
            row[x] = (uint8_t)(x / 6 + y / 2);
        }
        jpeg_write_scanlines(&jpeg, &rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    picture->count = bytes;
    memcpy(picture->bytes, file, bytes);
    free(file);
}

static struct picture picture;

static struct stk_view view(void)
{
    return (struct stk_view){picture.bytes, picture.count};
}

static void test_sizes(void)
{
    static const struct row {
        const char *name;
        uint32_t width, height;
        uint8_t orientation;
        uint32_t short_side;
        int want;
        uint32_t want_width, want_height;
    } rows[] = {
        {"wide", 640, 480, 0, 256, 1, 341, 256},   {"tall", 300, 401, 0, 100, 1, 100, 133},
        {"square", 300, 300, 0, 299, 1, 299, 299}, {"turned", 640, 480, 6, 256, 1, 341, 256},
        {"mirrored", 641, 479, 2, 64, 1, 85, 64},  {"fits", 640, 256, 0, 256, 0, 0, 0},
        {"small", 64, 100, 3, 256, 0, 0, 0},       {"thin", 1000, 3, 0, 1, 1, 333, 1},
    };

    T_EACH(row, row, rows)
    {
        struct stk_jpeg_shrink *shrink = NULL;
        struct stk_codec_info info = {0};
        struct stk_view out = {0};
        uint64_t first = 0;

        make(&picture, row->width, row->height, row->orientation);
        T_EQ(row->name, stk_jpeg_shrink_open(&shrink, row->short_side, 90, NULL), 0);
        for (int turn = 0; turn < 2; turn++) {
            T_EQ(row->name, stk_jpeg_shrink_run(shrink, view(), &out, NULL), row->want);
            if (row->want == 1) {
                T_EQ(row->name, stk_codec_probe(out, 1u << 30, &info, NULL), 0);
                T_EQ(row->name, info.width, row->want_width);
                T_EQ(row->name, info.height, row->want_height);
                T_EQ(row->name, info.orientation, row->orientation ? row->orientation : 1);
                T_TRUE("the same bytes", turn == 0 || stk_xxh3_64(out.data, out.bytes) == first);
                first = stk_xxh3_64(out.data, out.bytes);
            }
        }
        stk_jpeg_shrink_close(shrink);
    }
}

/* Damage is not hidden by a decoder's guess; and the next picture is not harmed by it. */
static void test_damage(void)
{
    struct stk_jpeg_shrink *shrink = NULL;
    struct stk_view out = {0};
    struct stoker_error error;
    size_t pixel_count;
    int status;

    T_EQ("open", stk_jpeg_shrink_open(&shrink, 100, 90, NULL), 0);
    make(&picture, 640, 480, 0);
    pixel_count = picture.count;
    for (size_t bytes = 0; bytes < pixel_count; bytes += 1 + bytes / 3) {
        picture.count = bytes;
        error = (struct stoker_error){0};
        status = stk_jpeg_shrink_run(shrink, view(), &out, &error);
        T_TRUE("cut", status == STOKER_ERROR_TRUNCATED || status == STOKER_ERROR_CORRUPT ||
                          status == STOKER_ERROR_FORMAT);
        T_ERROR("cut", &error);
    }
    picture.count = pixel_count;
    T_EQ("complete", stk_jpeg_shrink_run(shrink, view(), &out, NULL), 1);
    memset(picture.bytes, 'x', 100);
    T_EQ("text", stk_jpeg_shrink_run(shrink, view(), &out, NULL), STOKER_ERROR_FORMAT);
    stk_jpeg_shrink_close(shrink);
}

static void test_memory(void)
{
    int64_t alive = stk_mem_alive();
    int failures = 0, passes = 0;

    make(&picture, 400, 300, 0);
    for (uint64_t n = 1; passes < 2; n++) {
        struct stk_jpeg_shrink *shrink = NULL;
        struct stk_view out = {0};
        struct stoker_error error = {0};
        int status;

        stk_mem_fail_nth(n);
        status = stk_jpeg_shrink_open(&shrink, 100, 90, &error);
        status = status < 0 ? status : stk_jpeg_shrink_run(shrink, view(), &out, &error);
        stk_mem_fail_nth(0);
        if (status < 0) {
            T_ERROR("memory", &error);
        }
        failures += status < 0;
        passes = status == 1 ? passes + 1 : 0;
        T_TRUE("no memory never means: keep it", status != 0);
        stk_jpeg_shrink_close(shrink);
    }
    stk_jpeg_shrink_close(NULL);
    T_TRUE("some failed", failures > 3);
    T_EQ("leaks", stk_mem_alive(), alive);
}

int main(void)
{
    test_sizes();
    test_damage();
    test_memory();
    return t_finish();
}
