/* Goal: a region's samples equal the full decode's, whatever the picture; colours are PIL's.
 * Method: pictures made here by libjpeg, libpng and libwebp, decoded by the same libraries as a
 * whole (or known from what was written), compared over corners and random boxes. Takes a seed
 * as its argument. */
#include "codec/picture_test.h"

#include "test/t.h"

#include <stdlib.h>

static struct stk_box random_box(uint32_t width, uint32_t height)
{
    struct stk_box box = { .x = draw(width), .y = draw(height) };

    box.width = 1 + draw(width - box.x);
    box.height = 1 + draw(height - box.y);
    return box;
}

static void check_regions(const char *name, const char *mode, uint32_t random_count)
{
    uint32_t       w = made.width, h = made.height;
    struct stk_box boxes[] = {
        { 0, 0, w, h },         { 0, 0, 1, 1 },           { w - 1, 0, 1, 1 },
        { 0, h - 1, 1, 1 },     { w - 1, h - 1, 1, 1 },   { 0, 0, (w + 1) / 2, (h + 1) / 2 },
        { w / 2, 0, w - w / 2, (h + 1) / 2 }, { 0, h / 2, (w + 1) / 2, h - h / 2 },
        { w / 2, h / 2, w - w / 2, h - h / 2 },
    };

    for (uint32_t i = 0; i < STK_COUNT(boxes) + random_count; i++) {
        struct stk_box      box = i < STK_COUNT(boxes) ? boxes[i] : random_box(w, h);
        struct stoker_error error = { 0 };
        char                row[200];
        int                 status = decode_box(view_of(&made), &made, &box, &error);

        snprintf(row, sizeof row, "%s %s %ux%u box %u,%u %ux%u: %.60s", name, mode, w, h, box.x,
                 box.y, box.width, box.height, error.where);
        T_EQ(row, status, 0);
    }
}

/* Widths and heights 1..40, each some times, and larger ones that have inner iMCUs. */
static void each_size(uint32_t i, uint32_t *width_out, uint32_t *height_out)
{
    *width_out = i < 40 ? i + 1 : 41 + draw(SIDE_MAX - 40);
    *height_out = i < 40 ? 1 + (i * 23 + draw(40)) % 40 : 41 + draw(SIDE_MAX - 40);
}

static void test_jpeg_regions(void)
{
    T_EACH(sampling_row, row, sampling_rows)
    {
        for (int mode = 0; mode < MODE_COUNT; mode++) {
            /* The usual samplings at every width, the odd ones at every third. */
            for (uint32_t i = 0; i < 46; i += row - sampling_rows < 5 ? 1 : 3) {
                uint32_t width, height;

                each_size(i, &width, &height);
                make_jpeg(&made, row, (enum jpeg_mode)mode, width, height);
                check_regions(row->name, mode_names[mode], i < 40 ? 4 : 24);
            }
        }
    }
}

static void test_png_regions(void)
{
    T_EACH(png_row, row, png_rows)
    {
        for (uint32_t i = 0; i < 42; i += 3) {
            uint32_t width, height;

            each_size(i, &width, &height);
            make_png(&made, row, false, width, height);
            check_regions(row->name, "rows", 4);
            make_png(&made, row, true, width, height);
            check_regions(row->name, "interlaced", 4);
        }
    }
}

static void test_webp_regions(void)
{
    for (int mode = 0; mode < WEBP_MODE_COUNT; mode++) {
        for (uint32_t i = 0; i < 46; i++) {
            uint32_t width, height;

            each_size(i, &width, &height);
            make_webp(&made, (enum webp_mode)mode, width, height);
            check_regions(webp_names[mode], "webp", i < 40 ? 4 : 24);
        }
    }
}

/* ---- animation -------------------------------------------------------------------------- */

/* A canvas of 40x30 whose first frame is `frame` at 6,4: RIFF, VP8X, ANIM, ANMF. */
static void make_animation(struct made *picture, const struct made *frame)
{
    static uint8_t content[FILE_BYTES_MAX];
    const uint8_t  canvas[10] = { 0x02, 0, 0, 0, 39, 0, 0, 29, 0, 0 };
    const uint8_t  header[16] = { 3, 0, 0, 2, 0, 0, (uint8_t)(frame->width - 1), 0, 0,
                                  (uint8_t)(frame->height - 1), 0, 0, 50, 0, 0, 0 };
    size_t         at = 12, chunks = frame->bytes - 12;

    memcpy(content, header, sizeof header);
    memcpy(content + sizeof header, frame->file + 12, chunks);
    at += put_chunk(picture->file + at, "VP8X", canvas, sizeof canvas);
    at += put_chunk(picture->file + at, "ANIM", (const uint8_t[6]){ 0 }, 6);
    at += put_chunk(picture->file + at, "ANMF", content, (uint32_t)(sizeof header + chunks));
    memcpy(picture->file, frame->file, 12);
    for (int i = 0; i < 4; i++) {
        picture->file[4 + i] = (uint8_t)((at - 8) >> 8 * i);
    }
    picture->bytes = at;
    picture->width = 40;
    picture->height = 30;
    memset(picture->pixels, 0, sizeof picture->pixels);
    for (uint32_t i = 0; i < frame->width * frame->height; i++) {
        uint32_t x = 6 + i % frame->width, y = 4 + i / frame->width;

        memcpy(picture->pixels[y * 40 + x], frame->pixels[i], 4);
    }
}

static void test_animation(void)
{
    make_webp(&other, LOSSY, 21, 17);
    make_animation(&made, &other);
    check_regions("animation", "lossy frame", 50);
    make_webp(&other, LOSSLESS, 34, 26);
    make_animation(&made, &other);
    check_regions("animation", "lossless frame", 50);
    made.file[12 + 18 + 14 + 8] = 200; /* the frame's x */
    T_EQ("outside", decode_box(view_of(&made), &made, &(struct stk_box){ 0, 0, 1, 1 }, NULL),
         STOKER_ERROR_CORRUPT);
}

int main(int count, char **arguments)
{
    struct stoker_error error = { 0 };

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_EQ("open", stk_codec_open(&codec, &error), 0);
    test_jpeg_regions();
    test_png_regions();
    test_webp_regions();
    test_animation();
    stk_codec_close(codec);
    return t_finish();
}
