/* Goal: a region's samples equal the full decode's, whatever the image; colours are PIL's.
 * Method: images made here by libjpeg, libpng and libwebp, decoded by the same libraries completely
 * (or known from what was written), compared over corners and random boxes. Takes a seed as its
 * argument. */
#include "decode/codec/picture_test.h"

#include "decode/jpeg/jpeg_oracle_test.h"
#include "test/t.h"

#include <stdlib.h>
#include <zlib.h>

static struct stk_codec_box random_box(uint32_t width, uint32_t height)
{
    struct stk_codec_box box = {.x = draw(width), .y = draw(height)};

    box.width = 1 + draw(width - box.x);
    box.height = 1 + draw(height - box.y);
    return box;
}

static void check_regions(const char *name, const char *mode, uint32_t random_count)
{
    uint32_t w = made.width, h = made.height;
    struct stk_codec_box boxes[] = {
        {0, 0, w, h},
        {0, 0, 1, 1},
        {w - 1, 0, 1, 1},
        {0, h - 1, 1, 1},
        {w - 1, h - 1, 1, 1},
        {0, 0, (w + 1) / 2, (h + 1) / 2},
        {w / 2, 0, w - w / 2, (h + 1) / 2},
        {0, h / 2, (w + 1) / 2, h - h / 2},
        {w / 2, h / 2, w - w / 2, h - h / 2},
    };

    for (uint32_t i = 0; i < STK_COUNT(boxes) + random_count; i++) {
        struct stk_codec_box box = i < STK_COUNT(boxes) ? boxes[i] : random_box(w, h);
        struct stoker_error error = {0};
        char row[200];
        int status = decode_box(view_of(&made), &made, &box, &error);

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

/* ---- damage ----------------------------------------------------------------------------- */

/* The box by the codec, some rows at a time, into `pixels`. */
static int decode_rows(const struct stk_codec_box *box, uint8_t (*pixels)[4],
                       struct stoker_error *error)
{
    static uint8_t space[8][SIDE_MAX][4];
    struct stk_codec_info info;
    uint32_t row_pixels, skip, step = 1 + draw(8);
    uint8_t *rows[8];
    int status = stk_codec_probe(view_of(&made), PIXELS_MAX, &info, error);

    status = status < 0 ? status
                        : stk_codec_begin(codec, view_of(&made), &info, box, MEMORY_MAX,
                                          &row_pixels, &skip, error);
    if (status < 0) {
        return status;
    }
    memset(&info, 0xa5, sizeof info); /* valid for begin only */
    STK_ASSERT(row_pixels <= made.width);
    for (uint32_t i = 0; i < 8; i++) {
        rows[i] = space[i][0];
    }
    for (uint32_t y = 0; y < box->height && status >= 0; y += (uint32_t)status) {
        status = stk_codec_rows(codec, rows, step, error);
        for (int i = 0; i < status; i++) {
            memcpy(pixels[(y + (uint32_t)i) * box->width], space[i][skip], 4 * (size_t)box->width);
        }
    }
    return status < 0 ? status : 0;
}

static struct oracle oracle;

static void check_damaged(const char *name, const struct stk_codec_box *box)
{
    static uint8_t pixels[SIDE_MAX * SIDE_MAX][4];
    struct stoker_error error = {0};
    int status = decode_rows(box, pixels, &error), wrong = 0;
    const char *warning = stk_codec_warning(codec);

    oracle_decode(&oracle, view_of(&made), box->y + box->height);
    T_EQ(name, status < 0, oracle.failed || oracle.ended);
    if (status == 0) {
        T_STR(name, warning ? warning : "", oracle.text);
        T_TRUE(name, !warning || stk_codec_decoded_by(codec) != 1);
        for (uint32_t i = 0; i < box->width * box->height; i++) {
            uint32_t x = box->x + i % box->width, y = box->y + i / box->width;

            wrong += memcmp(pixels[i], oracle.pixels + 4 * (y * made.width + x), 3) != 0;
        }
        T_EQ(name, wrong, 0);
    }
    stk_codec_end(codec);
}

/* Damaged data gives the rows and the warning of libjpeg, wherever our own decoder stops: above the
 * box, in it, or at its first row. */
static void test_damaged_jpegs(void)
{
    uint32_t decided[STOKER_JPEG_REASONS] = {0};

    for (uint32_t i = 0; i < 1200; i++) {
        const struct sampling_row *row = &sampling_rows[draw(9)];
        struct stk_codec_box box;
        char name[120];

        made.width = 1 + draw(SIDE_MAX);
        made.height = 1 + draw(SIDE_MAX);
        encode_jpeg(&made, row, draw(3) ? BASELINE : RESTART);
        for (uint32_t n = 1 + draw(2); n > 0; n--) { /* after the header */
            uint32_t at = (uint32_t)made.bytes * 3 / 4;

            made.file[made.bytes - 1 - draw(at)] ^= (uint8_t)(1u << draw(8));
        }
        made.bytes -= draw(3) ? 0 : draw((uint32_t)made.bytes / 2);
        box = random_box(made.width, made.height);
        snprintf(name, sizeof name, "damaged %u: %s %ux%u box %u,%u %ux%u", i, row->name,
                 made.width, made.height, box.x, box.y, box.width, box.height);
        check_damaged(name, &box);
        decided[stk_codec_decoded_by(codec) - 1]++;
    }
    T_TRUE("ours answered some", decided[0] > 100);
    T_TRUE("and left some", decided[STK_JPEG_DATA] > 100);
}

/* ---- animation -------------------------------------------------------------------------- */

/* A canvas of 40x30 whose first frame is `frame` at 6,4: RIFF, VP8X, ANIM, ANMF. */
static void make_animation(struct made *picture, const struct made *frame)
{
    static uint8_t content[FILE_BYTES_MAX];
    const uint8_t canvas[10] = {0x02, 0, 0, 0, 39, 0, 0, 29, 0, 0};
    const uint8_t header[16] = {
        3, 0, 0,  2, 0, 0, (uint8_t)(frame->width - 1), 0, 0, (uint8_t)(frame->height - 1),
        0, 0, 50, 0, 0, 0};
    size_t at = 12, chunks = frame->bytes - 12;

    memcpy(content, header, sizeof header);
    memcpy(content + sizeof header, frame->file + 12, chunks);
    at += put_chunk(picture->file + at, "VP8X", canvas, sizeof canvas);
    at += put_chunk(picture->file + at, "ANIM", (const uint8_t[6]){0}, 6);
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

/* Boxes that end or begin at each column and row. */
static void check_edges(void)
{
    for (uint32_t x = 1; x < 40; x++) {
        for (uint32_t y = 1; y < 30; y++) {
            struct stk_codec_box boxes[] = {{0, 0, x, y}, {x, y, 40 - x, 30 - y}};

            for (int i = 0; i < 2; i++) {
                char row[60];

                snprintf(row, sizeof row, "animation, box %u of edge %u,%u", i, x, y);
                T_EQ(row, decode_box(view_of(&made), &made, &boxes[i], NULL), 0);
            }
        }
    }
}

/* One byte of the animation is another; the frame's header begins at ANMF + 8. */
#define ANMF (12u + 18u + 14u)
static const struct animation_row {
    const char *name;
    uint32_t at;
    uint8_t value;
    int want;
    const char *what;
} animation_rows[] = {
    {"outside", ANMF + 8, 200, STOKER_ERROR_CORRUPT, "outside"},
    {"outside, below", ANMF + 11, 200, STOKER_ERROR_CORRUPT, "outside"},
    {"narrower", ANMF + 14, 19, STOKER_ERROR_CORRUPT, "do not agree"},
    {"wider", ANMF + 14, 21, STOKER_ERROR_CORRUPT, "do not agree"},
    {"lower", ANMF + 17, 15, STOKER_ERROR_CORRUPT, "do not agree"},
    {"higher", ANMF + 17, 17, STOKER_ERROR_CORRUPT, "do not agree"},
    {"no frame", ANMF, 'B', STOKER_ERROR_CORRUPT, "no frame"},
    {"a frame beyond the end", ANMF + 6, 1, STOKER_ERROR_CORRUPT, "no frame"},
    {"a frame without a header", ANMF + 4, 15, STOKER_ERROR_CORRUPT, "no frame"},
};

static void test_odd_animations(void)
{
    T_EACH(animation_row, row, animation_rows)
    {
        struct stoker_error error = {0};

        make_webp(&other, LOSSY, 21, 17);
        make_animation(&made, &other);
        made.file[row->at] = row->value;
        if (row->at == ANMF + 4) {
            made.file[row->at + 1] = 0;
        }
        T_EQ(row->name,
             decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 40, 30}, &error),
             row->want);
        T_HAS(row->name, error.what, row->what);
    }
}

static void test_animation(void)
{
    const uint8_t odd[3] = {1, 2, 3};
    uint8_t frame[2000];
    size_t bytes;

    make_webp(&other, LOSSLESS, 34, 26);
    make_animation(&made, &other);
    check_regions("animation", "lossless frame", 50);
    make_webp(&other, LOSSY, 21, 17);
    make_animation(&made, &other);
    check_regions("animation", "lossy frame", 50);
    check_edges();
    /* Pixels of an earlier image are not visible outside of the frame. */
    T_EQ("still", decode_box(view_of(&other), &other, &(struct stk_codec_box){0, 0, 21, 17}, NULL),
         0);
    T_EQ("nothing", decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 2, 2}, NULL),
         0);
    /* A chunk of an odd size is padded. */
    bytes = made.bytes - ANMF;
    STK_ASSERT(bytes <= sizeof frame);
    memcpy(frame, made.file + ANMF, bytes);
    made.bytes = ANMF + put_chunk(made.file + ANMF, "abcd", odd, sizeof odd);
    memcpy(made.file + made.bytes, frame, bytes);
    made.bytes += bytes;
    made.file[4] = (uint8_t)(made.bytes - 8);
    made.file[5] = (uint8_t)((made.bytes - 8) >> 8);
    check_regions("animation", "behind an odd chunk", 0);
    test_odd_animations();
}

/* ---- two codes for a picture -------------------------------------------------------------- */

/* The checksum of the PNG's chunk there. */
static void fix_chunk(size_t at)
{
    uint32_t bytes = png_get_uint_32(made.file + at);

    png_save_uint_32(made.file + at + 8 + bytes,
                     (uint32_t)crc32(0, made.file + at + 4, (uInt)bytes + 4));
}

/* A PNG with bytes after its data is read by ours up to its last band, and by libpng from there:
 * the same rows, and the warning. */
static void test_png_ends_badly(void)
{
    for (uint32_t i = 0; i < 20; i++) {
        struct stk_codec_box box = {0, 0, SIDE_MAX, SIDE_MAX};
        size_t at = 8, last = 0;
        const char *warning;

        make_png(&made, &png_rows[13 + i % 2], false, SIDE_MAX, SIDE_MAX);
        for (; memcmp(made.file + at + 4, "IEND", 4) != 0; at += 12 + last) {
            last = png_get_uint_32(made.file + at);
        }
        memmove(made.file + at + 5, made.file + at, made.bytes - at);
        memset(made.file + at - 4, 0x55, 5);
        made.bytes += 5;
        at -= last + 12;
        png_save_uint_32(made.file + at, (uint32_t)last + 5);
        fix_chunk(at);
        if (i > 1) {
            box = random_box(SIDE_MAX, SIDE_MAX);
            box.height = SIDE_MAX - box.y;
        }
        T_EQ("rows", decode_box(view_of(&made), &made, &box, NULL), 0);
        warning = stk_codec_warning(codec);
        T_HAS("warning", warning ? warning : "", "xtra compressed data");
        T_EQ("by libpng", stk_codec_decoded_by(codec), STK_CODEC_BY_LIBPNG);
    }
}

/* Colours that a palette has not are black, whatever palette was there before. */
static void test_short_palette(void)
{
    for (int i = 0; i < 2; i++) {
        size_t at = 8 + 25, bytes = 3 * 16;

        make_png(&made, &png_rows[9], i, 30, 20);
        T_EQ("long", decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 30, 20}, NULL),
             0);
        T_TRUE("palette", memcmp(made.file + at + 4, "PLTE", 4) == 0);
        for (uint32_t k = 0; k < 30 * 20; k++) {
            if (memcmp(made.pixels[k], made.file + at + 8, 3) != 0) {
                memset(made.pixels[k], 0, 3);
            }
        }
        memmove(made.file + at + 12 + 3, made.file + at + 12 + bytes, made.bytes - at - 12 - bytes);
        made.bytes -= bytes - 3;
        png_save_uint_32(made.file + at, 3);
        fix_chunk(at);
        T_EQ("short",
             decode_box(view_of(&made), &made, &(struct stk_codec_box){0, 0, 30, 20}, NULL), 0);
    }
}

int main(int count, char **arguments)
{
    struct stoker_error error = {0};

    seed = count > 1 ? strtoull(arguments[1], NULL, 0) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_EQ("open", stk_codec_open(&codec, &error), 0);
    test_jpeg_regions();
    test_png_regions();
    test_webp_regions();
    test_animation();
    test_png_ends_badly();
    test_short_palette();
    test_damaged_jpegs();
    free(oracle.pixels);
    stk_codec_close(codec);
    return t_finish();
}
