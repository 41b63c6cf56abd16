/* Goal: a decoded slot has the pixels that the transforms define, on every path, for every format
 * and orientation; invalid plans and damaged images are typed errors.
 * Method: PNGs made here, whose results by torchvision 0.28 (v2) are known by digest; random plans
 * on PNG and JPEG compared with a slow method on complete images; plain C against AVX2; fail-nth.
 * usage: image_decode_test [seed]. Covers transform_plan.c. */
#include "decode/image/image_decode.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/random.h"
#include "decode/codec/codec.h"
#include "decode/image/crop_geometry.h"
#include "decode/pixel/pixel_kernels.h"
#include "decode/pixel/resize.h"
#include "test/t.h"

#include <jpeglib.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX (1u << 20)

static uint64_t seed = 20260801;

static uint32_t draw(uint32_t low, uint32_t high)
{
    static uint64_t count;

    return low + (uint32_t)(stk_random_key(seed, count++) % (high - low + 1));
}

/* RGBX pixels, and the file that holds them. */
struct picture {
    uint32_t width, height;
    uint8_t *rgbx;
    uint8_t *file;
    size_t file_bytes;
};

static struct stk_view file_of(const struct picture *picture)
{
    return (struct stk_view){picture->file, picture->file_bytes};
}

static void picture_free(struct picture *picture)
{
    stk_free(picture->rgbx);
    stk_free(picture->file);
}

static struct picture make_png(uint32_t width, uint32_t height)
{
    struct picture picture = {width, height, stk_alloc((size_t)width * height, 4),
                              stk_alloc(FILE_MAX, 1), FILE_MAX};
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = PNG_FORMAT_RGB};
    uint8_t *rgb = stk_alloc((size_t)width * height, 3);

    for (size_t i = 0; i < (size_t)width * height * 4; i++) {
        picture.rgbx[i] = (uint8_t)stk_mix64(i); /* as the digests were made */
    }
    for (size_t i = 0; i < (size_t)width * height; i++) {
        memcpy(rgb + 3 * i, picture.rgbx + 4 * i, 3);
    }
    T_TRUE("png",
           png_image_write_to_memory(&image, picture.file, &picture.file_bytes, 0, rgb, 0, NULL));
    stk_free(rgb);
    return picture;
}

/* A smooth image with an EXIF orientation; rgbx: libjpeg's full decode of it. */
static struct picture make_jpeg(uint32_t width, uint32_t height, uint8_t orientation,
                                bool progressive)
{
    static const uint8_t exif[] = "Exif\0\0II*\0\010\0\0\0\001\0\022\001\003\0\001\0\0\0\001\0\0\0"
                                  "\0\0\0\0";
    struct picture picture = {width, height, stk_alloc((size_t)width * height, 4), NULL, 0};
    struct jpeg_compress_struct in = {0};
    struct jpeg_decompress_struct out = {0};
    struct jpeg_error_mgr errors;
    unsigned char *memory = NULL;
    unsigned long bytes = 0;
    uint8_t *row = stk_alloc(width, 4), marker[sizeof(exif) - 1];

    memcpy(marker, exif, sizeof(marker));
    marker[24] = orientation;
    in.err = out.err = jpeg_std_error(&errors);
    jpeg_create_compress(&in);
    jpeg_mem_dest(&in, &memory, &bytes);
    in.image_width = width;
    in.image_height = height;
    in.input_components = 4;
    in.in_color_space = JCS_EXT_RGBX;
    jpeg_set_defaults(&in);
    if (progressive) {
        jpeg_simple_progression(&in);
    }
    jpeg_start_compress(&in, TRUE);
    jpeg_write_marker(&in, JPEG_APP0 + 1, marker, sizeof(marker));
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width * 4; x++) {
            row[x] = (uint8_t)((x / 4 + y) * (x % 4 + 2) + stk_mix64(x * 7777 + y) % 32);
        }
        jpeg_write_scanlines(&in, &row, 1);
    }
    jpeg_finish_compress(&in);
    jpeg_destroy_compress(&in);
    picture.file = stk_alloc(bytes, 1);
    picture.file_bytes = bytes;
    memcpy(picture.file, memory, bytes);
    free(memory);

    jpeg_create_decompress(&out);
    jpeg_mem_src(&out, picture.file, bytes);
    jpeg_read_header(&out, TRUE);
    out.out_color_space = JCS_EXT_RGBX;
    jpeg_start_decompress(&out);
    while (out.output_scanline < height) {
        uint8_t *to = picture.rgbx + 4 * (size_t)width * out.output_scanline;

        jpeg_read_scanlines(&out, &to, 1);
    }
    jpeg_finish_decompress(&out);
    jpeg_destroy_decompress(&out);
    stk_free(row);
    return picture;
}

/* ---- plans ---- */

static struct stoker_transform resize(uint32_t height, uint32_t width, uint32_t filter)
{
    return (struct stoker_transform){
        .kind = STOKER_RESIZE, .height = height, .width = width, .filter = filter};
}

static struct stoker_transform crop(uint32_t kind, uint32_t height, uint32_t width)
{
    return (struct stoker_transform){.kind = kind,
                                     .height = height,
                                     .width = width,
                                     .filter = STOKER_BILINEAR,
                                     .scale = {0.08, 1.0},
                                     .ratio = {0.75, 4.0 / 3.0}};
}

static struct stoker_transform flip(uint32_t kind, double probability)
{
    return (struct stoker_transform){.kind = kind, .probability = probability};
}

static struct stoker_transform jitter(double amount, double hue)
{
    return (struct stoker_transform){.kind = STOKER_COLOR_JITTER,
                                     .brightness = {1 - amount, 1 + amount},
                                     .contrast = {1 - amount, 1 + amount},
                                     .saturation = {1 - amount, 1 + amount},
                                     .hue = {-hue, hue}};
}

static struct stoker_transform normalize(void)
{
    return (struct stoker_transform){.kind = STOKER_NORMALIZE,
                                     .mean = {0.485f, 0.456f, 0.406f},
                                     .std = {0.229f, 0.224f, 0.225f}};
}

static struct stk_transform_plan *open_plan(const struct stoker_transform *transforms, size_t count,
                                            uint32_t dtype, uint32_t layout)
{
    struct stk_transform_plan_options options = {.transforms = transforms,
                                                 .transform_count = count,
                                                 .dtype = dtype,
                                                 .layout = layout,
                                                 .exif = true,
                                                 .pixels_max = 1 << 24,
                                                 .memory_bytes_max = 64 << 20};
    struct stk_transform_plan *plan;
    struct stoker_error error = {0};

    if (!T_EQ("plan", stk_transform_plan_open(&plan, &options, &error), 0)) {
        printf("%s: %s\n", error.where, error.what);
    }
    return plan;
}

static void digest(const void *data, size_t bytes, char hex_out[17])
{
    struct stk_sha256 sha;
    uint8_t sum[32];

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, data, bytes);
    stk_sha256_done(&sha, sum);
    for (int i = 0; i < 8; i++) {
        snprintf(hex_out + 2 * i, 3, "%02x", sum[i]);
    }
}

/* The results of torchvision for the 61x47 image: first half of the SHA-256 of its uint8 CHW
 * bytes. */
static void test_torchvision(struct stk_image_decoder *decoder)
{
    const struct stoker_transform half = resize(32, 0, STOKER_BILINEAR);
    const struct {
        const char *name;
        struct stoker_transform transforms[3];
        const char *want;
    } rows[] = {
        {"resize and crop", {half, crop(STOKER_CENTER_CROP, 28, 28)}, "20b57e06265d002f"},
        {"bicubic",
         {resize(32, 0, STOKER_BICUBIC), crop(STOKER_CENTER_CROP, 20, 31)},
         "7ee3138fd21f6ed0"},
        {"nearest",
         {resize(100, 0, STOKER_NEAREST), crop(STOKER_CENTER_CROP, 90, 90)},
         "1043d6fe9b907b29"},
        {"odd crop", {crop(STOKER_CENTER_CROP, 20, 16)}, "7b83b1bc1166b0f1"},
        {"padded crop", {crop(STOKER_CENTER_CROP, 70, 50)}, "65a73b68fc116bd3"},
        {"resize then pad",
         {resize(20, 0, STOKER_BILINEAR), crop(STOKER_CENTER_CROP, 31, 64)},
         "1fb794614d5d0e2d"},
        {"pad then resize",
         {crop(STOKER_CENTER_CROP, 70, 80), resize(24, 30, STOKER_BILINEAR)},
         "36aa48f10958b744"},
        {"pad, resize, crop",
         {crop(STOKER_CENTER_CROP, 51, 64), resize(40, 0, STOKER_BICUBIC),
          crop(STOKER_CENTER_CROP, 37, 37)},
         "eb80f832b9d2ae50"},
        {"crop, pad again",
         {crop(STOKER_CENTER_CROP, 20, 20), crop(STOKER_CENTER_CROP, 26, 31)},
         "4b56dbb560df1ad8"},
        {"both sides", {resize(17, 90, STOKER_BILINEAR)}, "b8230f0330e3b2a0"},
        {"larger",
         {resize(150, 0, STOKER_BILINEAR), crop(STOKER_CENTER_CROP, 111, 111)},
         "7da2e5eceb91e061"},
        {"flipped",
         {resize(33, 0, STOKER_BILINEAR), crop(STOKER_CENTER_CROP, 29, 29),
          flip(STOKER_RANDOM_HORIZONTAL_FLIP, 1.0)},
         "bed1bd449bc9740a"},
        {"flipped, padded",
         {crop(STOKER_CENTER_CROP, 20, 70), flip(STOKER_RANDOM_HORIZONTAL_FLIP, 1.0),
          flip(STOKER_RANDOM_VERTICAL_FLIP, 1.0)},
         "34b46703d068dc59"},
    };
    struct picture picture = make_png(61, 47);

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        size_t count = 0;
        char hex[17];

        while (count < 3 && rows[i].transforms[count].kind) {
            count++;
        }
        struct stk_transform_plan *plan = open_plan(rows[i].transforms, count, 0, 0);
        struct stk_image_shape shape;

        stk_transform_plan_shape(plan, &shape);
        uint8_t *slot = stk_alloc(shape.slot_bytes, 1);

        T_EQ(rows[i].name, stk_image_decode(decoder, plan, file_of(&picture), 1, slot, NULL), 0);
        digest(slot, shape.slot_bytes, hex);
        T_STR(rows[i].name, hex, rows[i].want);
        stk_free(slot);
        stk_transform_plan_close(plan);
    }
    picture_free(&picture);
}

/* ---- the slow way ---- */

static uint8_t *at(uint8_t *rgbx, uint32_t width, uint32_t x, uint32_t y)
{
    return rgbx + 4 * ((size_t)y * width + x);
}

/* The whole canvas, zeros included. */
static uint8_t *slow_canvas(const struct stk_crop_canvas *canvas, uint8_t *below,
                            uint32_t below_width)
{
    uint8_t *out = stk_alloc((size_t)canvas->width * canvas->height, 4);

    for (uint32_t y = 0; y < canvas->visible.height; y++) {
        for (uint32_t x = 0; x < canvas->visible.width; x++) {
            memcpy(at(out, canvas->width, canvas->visible.x + x, canvas->visible.y + y),
                   at(below, below_width, canvas->from_x + x, canvas->from_y + y), 4);
        }
    }
    return out;
}

static uint8_t *slow_resize(const struct stk_crop_geometry *geometry, const uint8_t *source)
{
    struct stk_resize_plan plan = {.source_width = geometry->source.width,
                                   .source_height = geometry->source.height,
                                   .target_width = geometry->target_width,
                                   .target_height = geometry->target_height,
                                   .window_width = geometry->target_width,
                                   .window_height = geometry->target_height,
                                   .filter = geometry->filter};
    struct stk_resize *resizer;
    uint8_t *out = stk_alloc((size_t)plan.target_width * plan.target_height, 4);
    uint8_t *row;
    size_t row_bytes = 4 * (size_t)plan.source_width;
    uint32_t x0, x1, y0, y1;

    stk_resize_open(&resizer, stk_pixel_kernels_get(STOKER_SIMD_NONE), NULL);
    stk_resize_region(&plan, &x0, &x1, &y0, &y1);
    stk_resize_begin(resizer, &plan, plan.source_width, x0, 1 << 28, NULL);
    for (uint32_t y = 0; y < plan.target_height; y++) {
        while (stk_resize_wanted(resizer, y, &row, 1) > 0) {
            memcpy(row, source + row_bytes * y0++, row_bytes);
            stk_resize_push(resizer, 1);
        }
        stk_resize_row(resizer, y, out + 4 * (size_t)plan.target_width * y);
    }
    stk_resize_close(resizer);
    return out;
}

/* uint8 HWC of the output canvas, from the stored picture. */
static void slow_decode(const struct picture *picture, uint8_t orientation,
                        const struct stoker_transform *transforms, size_t count, uint64_t key,
                        uint8_t *slot)
{
    struct stk_orientation turn = stk_orientation_steps(
        orientation, picture->width, picture->height, 4, 4 * (int64_t)picture->width);
    bool swaps = stk_orientation_swaps_sides(orientation);
    uint32_t width = swaps ? picture->height : picture->width;
    uint32_t height = swaps ? picture->width : picture->height;
    uint8_t *turned = stk_alloc((size_t)width * height, 4), *source, *target, *output;
    struct stk_crop_geometry geometry;

    for (uint32_t i = 0; i < width * height; i++) {
        memcpy(turned + 4 * (size_t)i,
               picture->rgbx + turn.start + i % width * turn.step_x + i / width * turn.step_y, 4);
    }
    stk_crop_geometry_init(&geometry, transforms, count, width, height, key, NULL);
    source = slow_canvas(&geometry.source, turned, width);
    target = slow_resize(&geometry, source);
    output = slow_canvas(&geometry.output, target, geometry.target_width);
    width = geometry.output.width;
    height = geometry.output.height;
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            uint32_t from_x = geometry.flip_horizontal ? width - 1 - x : x;
            uint32_t from_y = geometry.flip_vertical ? height - 1 - y : y;

            memcpy(slot + 3 * ((size_t)y * width + x), at(output, width, from_x, from_y), 3);
        }
    }
    stk_free(turned);
    stk_free(source);
    stk_free(target);
    stk_free(output);
}

/* Random geometry that ends in a fixed size; returns how many transforms. */
static size_t draw_transforms(struct stoker_transform *transforms)
{
    uint32_t filter = draw(STOKER_BILINEAR, STOKER_NEAREST);
    size_t count = 0;

    if (draw(0, 3) == 0) {
        transforms[count++] = crop(STOKER_CENTER_CROP, draw(1, 90), draw(1, 90));
    }
    if (draw(0, 1)) {
        transforms[count] = crop(STOKER_RANDOM_RESIZED_CROP, draw(1, 40), draw(1, 40));
        transforms[count++].filter = filter;
    } else if (draw(0, 3)) {
        transforms[count] = resize(draw(1, 50), draw(0, 1) ? 0 : draw(1, 50), filter);
        transforms[count].max_size = transforms[count].width || draw(0, 1) ? 0 : 60;
        count++;
    }
    if (draw(0, 1)) {
        transforms[count++] = crop(STOKER_CENTER_CROP, draw(20, 60), draw(20, 60));
        transforms[count++] = crop(STOKER_RANDOM_CROP, draw(1, 20), draw(1, 20));
    } else {
        transforms[count++] = crop(STOKER_CENTER_CROP, draw(1, 60), draw(1, 60));
    }
    transforms[count++] = flip(STOKER_RANDOM_HORIZONTAL_FLIP, 0.5);
    transforms[count++] = flip(STOKER_RANDOM_VERTICAL_FLIP, 0.5);
    return count;
}

static void compare_slow(struct stk_image_decoder *const *decoders, const struct picture *picture,
                         uint8_t orientation)
{
    struct stoker_transform transforms[8];
    size_t count = draw_transforms(transforms);
    uint64_t key = draw(0, UINT32_MAX - 1), ticket;
    struct stk_transform_plan *plan = open_plan(transforms, count, STOKER_UINT8, STOKER_NHWC);
    struct stk_image_shape shape;
    char name[64];

    snprintf(name, sizeof(name), "%ux%u orientation %u key %llu", picture->width, picture->height,
             orientation, (unsigned long long)key);
    stk_transform_plan_shape(plan, &shape);
    uint8_t *want = stk_alloc(shape.slot_bytes, 1), *got = stk_alloc(shape.slot_bytes, 1);

    slow_decode(picture, orientation, transforms, count, key, want);
    T_EQ(name, stk_image_decode_memory_bytes(plan, file_of(picture), &ticket, NULL), 0);
    for (int path = 0; path < 2 && decoders[path]; path++) {
        stk_image_decoder_trim(decoders[path], 0);
        ticket += stk_image_decoder_bytes(decoders[path]); /* memory that cannot be trimmed */
        memset(got, 0x5a, shape.slot_bytes);
        T_EQ(name, stk_image_decode(decoders[path], plan, file_of(picture), key, got, NULL), 0);
        T_TRUE(name, memcmp(want, got, shape.slot_bytes) == 0);
        T_TRUE(name, stk_image_decoder_bytes(decoders[path]) <= ticket);
    }
    stk_free(want);
    stk_free(got);
    stk_transform_plan_close(plan);
}

static void test_slow(struct stk_image_decoder *const *decoders)
{
    for (int round = 0; round < 60; round++) {
        struct picture picture = make_png(draw(1, 80), draw(1, 80));

        compare_slow(decoders, &picture, 1);
        picture_free(&picture);
    }
    for (int round = 0; round < 160; round++) {
        uint8_t orientation = (uint8_t)(1 + round % 8);
        struct picture picture = make_jpeg(draw(1, 120), draw(1, 120), orientation, round % 3 == 0);

        compare_slow(decoders, &picture, orientation);
        picture_free(&picture);
    }
}

/* ---- types, jitter ---- */

static const struct stoker_transform *training(void)
{
    static struct stoker_transform transforms[5];

    transforms[0] = crop(STOKER_RANDOM_RESIZED_CROP, 33, 37);
    transforms[1] = flip(STOKER_RANDOM_HORIZONTAL_FLIP, 0.5);
    transforms[2] = flip(STOKER_RANDOM_VERTICAL_FLIP, 0.5);
    transforms[3] = jitter(0.4, 0.1);
    transforms[4] = normalize();
    return transforms;
}

/* Every type and layout: the same bytes on both paths, and the values of the uint8 slot. */
static void test_types(struct stk_image_decoder *const *decoders)
{
    struct picture picture = make_jpeg(150, 110, 6, false);
    struct stk_transform_plan *bytes_plan = open_plan(training(), 4, STOKER_UINT8, STOKER_NHWC);
    static uint8_t bytes[33 * 37 * 3], slots[2][33 * 37 * 3 * 4];

    for (uint64_t key = 0; key < 20; key++) {
        T_EQ("uint8",
             stk_image_decode(decoders[0], bytes_plan, file_of(&picture), key, bytes, NULL), 0);
        for (uint32_t dtype = STOKER_UINT8; dtype <= STOKER_BFLOAT16; dtype++) {
            for (uint32_t layout = STOKER_NCHW; layout <= STOKER_NHWC; layout++) {
                size_t count = dtype == STOKER_UINT8 ? 4 : 5;
                struct stk_transform_plan *plan = open_plan(training(), count, dtype, layout);
                bool is_close = true;

                memset(slots, 0, sizeof(slots));
                for (int path = 0; path < 2 && decoders[path]; path++) {
                    T_EQ("decode",
                         stk_image_decode(decoders[path], plan, file_of(&picture), key, slots[path],
                                          NULL),
                         0);
                    T_TRUE("same bytes", memcmp(slots[0], slots[path], sizeof(slots[0])) == 0);
                }
                for (int i = 0; i < 33 * 37 * 3 && dtype == STOKER_FLOAT32; i++) {
                    int c = layout == STOKER_NHWC ? i % 3 : i / (33 * 37);
                    int pixel = layout == STOKER_NHWC ? i / 3 : i % (33 * 37);
                    double want = bytes[3 * pixel + c] / 255.0;
                    float got;

                    want = (want - (double)training()[4].mean[c]) / (double)training()[4].std[c];
                    memcpy(&got, slots[0] + 4 * i, sizeof(got));
                    is_close = is_close && (double)got - want < 2e-6 && (double)got - want > -2e-6;
                }
                T_TRUE("normalised", is_close);
                stk_transform_plan_close(plan);
            }
        }
    }
    stk_transform_plan_close(bytes_plan);
    picture_free(&picture);
}

/* Jitter changes colours and nothing else: the same crop, other pixels, by key. */
static void test_jitter(struct stk_image_decoder *decoder)
{
    struct picture picture = make_png(90, 70);
    struct stoker_transform off[] = {training()[0], jitter(0.0, 0.0)}, black[2];
    struct stk_transform_plan *plans[4];
    static uint8_t slots[4][33 * 37 * 3];
    uint64_t sum = 0;

    memcpy(black, off, sizeof(black));
    black[1].brightness[0] = black[1].brightness[1] = 0.0;
    plans[0] = open_plan(off, 1, 0, 0);
    plans[1] = open_plan(off, 2, 0, 0);
    plans[2] = open_plan(black, 2, 0, 0);
    off[1] = jitter(0.5, 0.2);
    plans[3] = open_plan(off, 2, 0, 0);
    for (int i = 0; i < 4; i++) {
        T_EQ("decode", stk_image_decode(decoder, plans[i], file_of(&picture), 5, slots[i], NULL),
             0);
    }
    T_TRUE("off is nothing", memcmp(slots[0], slots[1], sizeof(slots[0])) == 0);
    T_TRUE("on is something", memcmp(slots[0], slots[3], sizeof(slots[0])) != 0);
    for (size_t i = 0; i < sizeof(slots[2]); i++) {
        sum += slots[2][i];
    }
    T_EQ("black", (long long)sum, 0);
    stk_image_decode(decoder, plans[3], file_of(&picture), 5, slots[0], NULL);
    T_TRUE("the same again", memcmp(slots[0], slots[3], sizeof(slots[0])) == 0);
    stk_image_decode(decoder, plans[3], file_of(&picture), 6, slots[0], NULL);
    T_TRUE("another key", memcmp(slots[0], slots[3], sizeof(slots[0])) != 0);
    for (int i = 0; i < 4; i++) {
        stk_transform_plan_close(plans[i]);
    }
    picture_free(&picture);
}

/* ---- refusals ---- */

static void test_plans(void)
{
    const struct stoker_transform rrc = crop(STOKER_RANDOM_RESIZED_CROP, 8, 8);
    const struct stoker_transform center = crop(STOKER_CENTER_CROP, 8, 8), norm = normalize();
    const struct stoker_transform half = flip(STOKER_RANDOM_HORIZONTAL_FLIP, 0.5);
    const struct {
        const char *name;
        struct stoker_transform transforms[3];
        uint32_t dtype, layout;
        const char *want; /* in `what`; empty: the plan is valid */
    } rows[] = {
        {"good", {rrc, half, norm}, 0, 0, ""},
        {"nothing", {{0}}, 0, 0, "one size"},
        {"only a flip", {half}, 0, 0, "one size"},
        {"short side only", {resize(8, 0, STOKER_BILINEAR)}, 0, 0, "one size"},
        {"flip first", {half, center}, 0, 0, "order"},
        {"normalize first", {rrc, norm, half}, 0, 0, "order"},
        {"two resizes", {resize(9, 0, STOKER_BILINEAR), rrc}, 0, 0, "second resize"},
        {"two normalizes", {rrc, norm, norm}, 0, 0, "second Normalize"},
        {"normalised bytes", {rrc, norm}, STOKER_UINT8, 0, "not uint8"},
        {"int64", {rrc}, STOKER_INT64, 0, "this type"},
        {"no layout", {rrc}, 0, 3, "this type"},
        {"crop of less", {center, crop(STOKER_RANDOM_CROP, 9, 8)}, 0, 0, "larger than"},
        {"no height", {crop(STOKER_CENTER_CROP, 0, 8)}, 0, 0, "size of zero"},
        {"no width", {crop(STOKER_RANDOM_CROP, 8, 0)}, 0, 0, "size of zero"},
        {"huge", {crop(STOKER_CENTER_CROP, 8, 16385)}, 0, 0, "above 16,384"},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_transform_plan_options options = {
            .transforms = rows[i].transforms, .dtype = rows[i].dtype, .layout = rows[i].layout};
        struct stk_transform_plan *plan;
        struct stoker_error error = {0};
        int status;

        while (options.transform_count < 3 && rows[i].transforms[options.transform_count].kind) {
            options.transform_count++;
        }
        status = stk_transform_plan_open(&plan, &options, &error);
        T_EQ(rows[i].name, status, rows[i].want[0] ? STOKER_ERROR_ARGUMENT : 0);
        T_TRUE(rows[i].name, (plan == NULL) == (status < 0));
        T_HAS(rows[i].name, error.what, rows[i].want);
        if (status < 0) {
            T_ERROR(rows[i].name, &error);
        }
        stk_transform_plan_close(plan);
    }
}

/* Values that no transform can have. */
static void test_values(void)
{
    const struct stoker_transform rrc = crop(STOKER_RANDOM_RESIZED_CROP, 8, 8);
    const struct stoker_transform center = crop(STOKER_CENTER_CROP, 8, 8);
    const struct stoker_transform half = flip(STOKER_RANDOM_HORIZONTAL_FLIP, 0.5);
    static const char *const wants[] = {
        "filter",      "areas",       "areas",  "ratios", "ratios", "max_size",    "max_size",
        "probability", "probability", "factor", "factor", "hue",    "mean or std", "unknown",
    };
    struct stoker_transform bad[STK_COUNT(wants)];

    for (size_t i = 0; i < STK_COUNT(bad); i++) {
        bad[i] = i < 5    ? rrc
                 : i < 7  ? resize(8, 0, STOKER_BILINEAR)
                 : i < 9  ? half
                 : i < 12 ? jitter(0.1, 0.1)
                          : normalize();
    }
    bad[0].filter = 4;
    bad[1].scale[0] = 2.0;
    bad[2].scale[1] = __builtin_nan("");
    bad[3].ratio[0] = 0.0;
    bad[4].ratio[0] = 2.0;
    bad[5].max_size = 8;
    bad[6].width = bad[6].max_size = 30;
    bad[7].probability = 1.5;
    bad[8].probability = __builtin_nan("");
    bad[9].brightness[0] = -0.1;
    bad[10].contrast[1] = 65.0;
    bad[11].hue[1] = 0.6;
    bad[12].std[1] = 0.0f;
    bad[13].kind = 99;
    for (size_t i = 0; i < STK_COUNT(bad); i++) {
        struct stoker_transform transforms[] = {center, bad[i]};
        bool alone = i < 7;
        struct stk_transform_plan_options options = {
            .transforms = alone ? transforms + 1 : transforms, .transform_count = alone ? 1 : 2};
        struct stk_transform_plan *plan;
        struct stoker_error error = {0};

        T_EQ(wants[i], stk_transform_plan_open(&plan, &options, &error), STOKER_ERROR_ARGUMENT);
        T_ERROR(wants[i], &error);
        T_HAS(wants[i], error.what, wants[i]);
    }
}

static void test_damage(struct stk_image_decoder *decoder)
{
    struct picture jpeg = make_jpeg(200, 150, 1, false), png = make_png(20, 10);
    struct stoker_transform all[] = {resize(64, 64, STOKER_BILINEAR)};
    struct stoker_transform small[] = {crop(STOKER_RANDOM_CROP, 50, 50)};
    struct stk_transform_plan_options options = {
        .transforms = all, .transform_count = 1, .pixels_max = 29999, .memory_bytes_max = 20000};
    struct stk_transform_plan *plan = open_plan(all, 1, 0, 0);
    struct stk_transform_plan *crop_plan = open_plan(small, 1, 0, 0);
    struct stk_transform_plan *few_pixels, *few_bytes;
    const struct stk_view text = {(const uint8_t *)"hello, this is no picture", 25};
    static uint8_t slot[64 * 64 * 3];

    T_EQ("plan", stk_transform_plan_open(&few_pixels, &options, NULL), 0);
    options.pixels_max = 1 << 20;
    T_EQ("plan", stk_transform_plan_open(&few_bytes, &options, NULL), 0);
    const struct {
        const char *name;
        const struct stk_transform_plan *plan;
        struct stk_view bytes;
        int want;
    } rows[] = {
        {"good", plan, file_of(&jpeg), 0},
        {"text", plan, text, STOKER_ERROR_FORMAT},
        {"empty", plan, {text.data, 0}, STOKER_ERROR_FORMAT},
        {"cut jpeg", plan, {jpeg.file, jpeg.file_bytes / 2}, STOKER_ERROR_TRUNCATED},
        {"cut png", plan, {png.file, png.file_bytes / 2}, STOKER_ERROR_TRUNCATED},
        {"too many pixels", few_pixels, file_of(&jpeg), STOKER_ERROR_LIMIT},
        {"too much memory", few_bytes, file_of(&jpeg), STOKER_ERROR_LIMIT},
        {"smaller than its crop", crop_plan, file_of(&png), STOKER_ERROR_FORMAT},
        {"good again", plan, file_of(&png), 0},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stoker_error error = {0};
        int status = stk_image_decode(decoder, rows[i].plan, rows[i].bytes, 1, slot, &error);

        T_EQ(rows[i].name, status, rows[i].want);
        if (status < 0) {
            T_ERROR(rows[i].name, &error);
        }
    }
    stk_image_decoder_trim(decoder, 0);
    T_TRUE("trimmed", stk_image_decoder_bytes(decoder) < 20000);
    stk_transform_plan_close(plan);
    stk_transform_plan_close(crop_plan);
    stk_transform_plan_close(few_pixels);
    stk_transform_plan_close(few_bytes);
    picture_free(&jpeg);
    picture_free(&png);
}

/* The n-th allocation fails, for n = 1, 2, ...: an error and no leak, until it passes. */
static void test_no_memory(void)
{
    struct picture picture = make_jpeg(60, 50, 6, false);
    struct stk_transform_plan *plan = open_plan(training(), 5, 0, 0);
    int64_t alive = stk_mem_alive();
    static float slot[33 * 37 * 3];
    int status = -1, n = 0;

    while (status < 0 && n < 100) {
        struct stk_image_decoder *decoder = NULL;
        struct stoker_error error = {0};

        stk_mem_fail_nth((uint64_t)++n);
        status = stk_image_decoder_open(&decoder, 0, &error);
        if (status == 0) {
            status = stk_image_decode(decoder, plan, file_of(&picture), 1, slot, &error);
        }
        if (status < 0) {
            T_ERROR("no memory", &error);
        }
        stk_mem_fail_nth(0);
        if (status < 0 && decoder) {
            T_EQ("usable", stk_image_decode(decoder, plan, file_of(&picture), 1, slot, &error), 0);
        }
        stk_image_decoder_close(decoder);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
    T_TRUE("some failed", n > 4 && status == 0);
    stk_transform_plan_close(plan);
    picture_free(&picture);
}

int main(int argc, char **argv)
{
    struct stk_image_decoder *decoders[2] = {NULL};
    int64_t alive = stk_mem_alive();

    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_EQ("open", stk_image_decoder_open(&decoders[0], STOKER_SIMD_NONE, NULL), 0);
    if (stk_pixel_kernels_get(STOKER_SIMD_AVX2)) {
        T_EQ("open", stk_image_decoder_open(&decoders[1], STOKER_SIMD_AVX2, NULL), 0);
        test_torchvision(decoders[1]);
    }
    test_torchvision(decoders[0]);
    test_slow(decoders);
    test_types(decoders);
    test_jitter(decoders[0]);
    test_plans();
    test_values();
    test_damage(decoders[0]);
    test_no_memory();
    stk_image_decoder_close(decoders[0]);
    stk_image_decoder_close(decoders[1]);
    stk_image_decoder_close(NULL);
    T_EQ("no leak", stk_mem_alive(), alive);
    return t_finish();
}
