/* Goal: a plan that is not exact gives pixels that differ little from an exact one's, the same ones
 * each time, and equal ones if planes cannot be used.
 * Method: photograph-like JPEGs of all samplings, random crops; plain C against AVX2, with entry
 * points and without, and one decoder against a new one; turned, padded, progressive, RGB and
 * damaged ones against the exact plan. usage: image_exact_test [seed] */
#include "base/mem.h"
#include "base/random.h"
#include "decode/codec/codec.h"
#include "decode/image/image_decode.h"
#include "decode/pixel/pixel_kernels.h"
#include "test/t.h"

#include <stdio.h>

#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 96
#define SLOT (3 * SIDE * SIDE)
#define DIFFERENCE_MAX 0.45 /* of 255, on average */

static uint64_t seed = 20261122;

static uint32_t draw(uint32_t low, uint32_t high)
{
    static uint64_t count;

    return low + (uint32_t)(stk_random_key(seed, count++) % (high - low + 1));
}

enum { PROGRESSIVE = 1, RGB = 2, GREY = 4, TURNED = 8, CHROMA_2 = 16 /* factors down */ };

/* Waves, edges and some noise, within 20 .. 235: colours as photographs have them. */
static void draw_row(uint8_t *row, uint32_t width, uint32_t y, uint32_t phase)
{
    for (uint32_t x = 0; x < width; x++) {
        for (uint32_t c = 0; c < 3; c++) {
            uint32_t across = (x * (1 + c % 2) + phase) % 200, down = (y + 40 * c) % 230;
            uint32_t wave =
                (across < 100 ? across : 200 - across) * (down < 115 ? down : 230 - down) / 115;
            uint32_t edge = (x / 37 + y / 29 + c) % 3 * 18;

            row[3 * x + c] = (uint8_t)(40 + wave + edge + stk_mix64(x * 65537ull + y) % 16);
        }
    }
}

/* A JPEG of stk_alloc. h, v: sampling of the first component. */
static struct stk_view make(uint32_t width, uint32_t height, int h, int v, int how)
{
    static const uint8_t exif[] = "Exif\0\0II*\0\010\0\0\0\001\0\022\001\003\0\001\0\0\0\006\0\0\0"
                                  "\0\0\0\0";
    struct jpeg_compress_struct in = {0};
    struct jpeg_error_mgr errors;
    unsigned char *memory = NULL;
    unsigned long bytes = 0;
    uint8_t *row = stk_alloc(width, 3), *copy;

    in.err = jpeg_std_error(&errors);
    jpeg_create_compress(&in);
    jpeg_mem_dest(&in, &memory, &bytes);
    in.image_width = width;
    in.image_height = height;
    in.input_components = 3;
    in.in_color_space = JCS_RGB;
    jpeg_set_defaults(&in);
    jpeg_set_quality(&in, (int)draw(60, 97), TRUE);
    if (how & RGB) {
        jpeg_set_colorspace(&in, JCS_RGB);
    } else if (how & GREY) {
        jpeg_set_colorspace(&in, JCS_GRAYSCALE);
    }
    in.comp_info[0].h_samp_factor = h;
    in.comp_info[0].v_samp_factor = v;
    if (how & CHROMA_2) {
        in.comp_info[1].v_samp_factor = in.comp_info[2].v_samp_factor = 2;
    }
    if (how & PROGRESSIVE) {
        jpeg_simple_progression(&in);
    }
    jpeg_start_compress(&in, TRUE);
    if (how & TURNED) {
        jpeg_write_marker(&in, JPEG_APP0 + 1, exif, sizeof(exif) - 1);
    }
    for (uint32_t y = 0; y < height; y++) {
        draw_row(row, width, y, (uint32_t)seed);
        jpeg_write_scanlines(&in, &row, 1);
    }
    jpeg_finish_compress(&in);
    jpeg_destroy_compress(&in);
    copy = stk_alloc(bytes, 1);
    memcpy(copy, memory, bytes);
    free(memory);
    stk_free(row);
    return (struct stk_view){copy, bytes};
}

static void drop(struct stk_view view)
{
    stk_free((void *)(uintptr_t)view.data);
}

static struct stk_transform_plan *open_plan(const struct stoker_transform *transforms, size_t count,
                                            bool planar)
{
    struct stk_transform_plan_options options = {.transforms = transforms,
                                                 .transform_count = count,
                                                 .exif = true,
                                                 .planar = planar,
                                                 .pixels_max = 1 << 24,
                                                 .memory_bytes_max = 64 << 20};
    struct stk_transform_plan *plan = NULL;

    T_EQ("plan", stk_transform_plan_open(&plan, &options, NULL), 0);
    return plan;
}

/* Random crop, resized; flip and jitter where `more`. plans_out: exact, planar. */
static void open_plans(uint32_t filter, bool more, struct stk_transform_plan *plans_out[2])
{
    const struct stoker_transform transforms[] = {
        {.kind = STOKER_RANDOM_RESIZED_CROP,
         .height = SIDE,
         .width = SIDE,
         .filter = filter,
         .scale = {0.08, 1.0},
         .ratio = {0.75, 4.0 / 3.0}},
        {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
        {.kind = STOKER_RANDOM_VERTICAL_FLIP, .probability = 0.5},
        {.kind = STOKER_COLOR_JITTER,
         .brightness = {0.9, 1.1},
         .contrast = {1, 1},
         .saturation = {1, 1}},
    };

    for (int i = 0; i < 2; i++) {
        plans_out[i] = open_plan(transforms, more ? STK_COUNT(transforms) : 1, i == 1);
    }
}

/* Decodes; returns true if planes were resized. */
static bool get(struct stk_image_decoder *decoder, const struct stk_transform_plan *plan,
                struct stk_view bytes, uint64_t key, uint8_t *slot)
{
    uint64_t ticket;

    T_EQ("ticket", stk_image_decode_memory_bytes(plan, bytes, &ticket, NULL), 0);
    T_EQ("decode", stk_image_decode(decoder, plan, bytes, key, slot, NULL), 0);
    T_TRUE("no more than was said", stk_image_decoder_bytes(decoder) < 8u << 20);
    return stk_image_decoder_decoded_by(decoder) & STK_IMAGE_DECODED_PLANAR;
}

/* ---- pictures that have planes ---- */

/* The marks of a picture, of stk_alloc. */
static struct stk_jpeg_entry_points mark(struct stk_view bytes, uint32_t mcus)
{
    const struct stk_jpeg_box corner = {0, 0, 1, 1};
    struct stk_jpeg_decoder *decoder = NULL;
    struct stk_jpeg_frame frame;
    struct stk_jpeg_entry_points marks = {.mcus = mcus};
    uint8_t *to, *space;

    T_EQ("frame", stk_jpeg_frame_read(bytes, &frame), 0);
    T_EQ("open", stk_jpeg_decoder_open(&decoder, 0, NULL), 0);
    marks.bytes.bytes = stk_jpeg_entry_point_count(&frame, mcus) * STK_JPEG_ENTRY_POINT_BYTES;
    to = stk_alloc(marks.bytes.bytes, 1);
    marks.bytes.data = to;
    space = aligned_alloc(64, stk_round_up(stk_jpeg_workspace_bytes(&frame, &corner), 64));
    T_EQ("mark", stk_jpeg_decoder_index(decoder, &frame, mcus, space, to), 0);
    free(space);
    stk_jpeg_decoder_close(decoder);
    return marks;
}

static double difference(const uint8_t *a, const uint8_t *b)
{
    double sum = 0;

    for (size_t i = 0; i < SLOT; i++) {
        sum += abs(a[i] - b[i]);
    }
    return sum / SLOT;
}

static double compare(struct stk_image_decoder *const *decoders, struct stk_view bytes,
                      struct stk_transform_plan *const plans[2], uint64_t key, bool grey)
{
    static uint8_t exact[SLOT], planar[SLOT], again[SLOT];
    struct stk_jpeg_entry_points marks = mark(bytes, (uint32_t)(key % 3) * 3);
    struct stk_image_decoder *fresh = NULL;
    uint64_t rows_bytes;

    T_TRUE("rows", !get(decoders[0], plans[0], bytes, key, exact));
    T_TRUE("planes", get(decoders[0], plans[1], bytes, key, planar));
    stk_image_decoder_set_entry_points(decoders[0], &marks);
    T_TRUE("marked", get(decoders[0], plans[1], bytes, key, again));
    T_TRUE("the same with marks", memcmp(planar, again, SLOT) == 0);
    if (decoders[1]) {
        T_TRUE("vectors", get(decoders[1], plans[1], bytes, key, again));
        T_TRUE("the same with vectors", memcmp(planar, again, SLOT) == 0);
    }
    T_EQ("open", stk_image_decoder_open(&fresh, 0, NULL), 0);
    T_TRUE("rows", !get(fresh, plans[0], bytes, key, again));
    rows_bytes = stk_image_decoder_bytes(fresh);
    T_TRUE("fresh", get(fresh, plans[1], bytes, key, again));
    T_TRUE("planes' memory counts", stk_image_decoder_bytes(fresh) > rows_bytes);
    T_TRUE("the same by another", memcmp(planar, again, SLOT) == 0);
    stk_image_decoder_close(fresh);
    T_TRUE("grey is exact", !grey || memcmp(planar, exact, SLOT) == 0);
    drop(marks.bytes);
    return difference(exact, planar);
}

static void test_planes(struct stk_image_decoder *const *decoders)
{
    static const int samplings[][3] = {{1, 1, 0}, {2, 1, 0},        {1, 2, 0}, {2, 2, 0},
                                       {4, 1, 0}, {1, 4, CHROMA_2}, {1, 4, 0}};
    double total = 0, worst = 0;
    int count = 0;

    for (int n = 0; n < 100; n++) {
        const int *sampling = samplings[n % 7];
        bool grey = n % 14 == 0;
        struct stk_transform_plan *plans[2];
        struct stk_view bytes =
            make(draw(20, 400), draw(20, 400), sampling[0], sampling[1], grey ? GREY : sampling[2]);
        double one;

        open_plans(n % 4 == 3 ? STOKER_BICUBIC : STOKER_BILINEAR, n % 2, plans);
        one = compare(decoders, bytes, plans, (uint64_t)n, grey);
        T_TRUE("the same way round", one < 3);
        if (n % 2 == 0) { /* jitter makes differences larger, or smaller */
            total += one;
            worst = one > worst ? one : worst;
            count++;
        }
        stk_transform_plan_close(plans[0]);
        stk_transform_plan_close(plans[1]);
        drop(bytes);
    }
    printf("planes against rows: %.3f of 255 on average, the picture furthest off %.3f\n",
           total / count, worst);
    T_TRUE("on average", total / count < DIFFERENCE_MAX);
    T_TRUE("each", worst < 2 * DIFFERENCE_MAX);
}

/* ---- pictures that have none, or not for this ---- */

static void test_exact(struct stk_image_decoder *decoder)
{
    const struct stoker_transform crop = {.kind = STOKER_CENTER_CROP, .height = 300, .width = 50};
    const struct stoker_transform aside = {.kind = STOKER_CENTER_CROP, .height = 50, .width = 300};
    const struct stoker_transform fit = {
        .kind = STOKER_RESIZE, .height = SIDE, .width = SIDE, .filter = STOKER_BILINEAR};
    const struct stoker_transform pick = {
        .kind = STOKER_RESIZE, .height = SIDE, .width = SIDE, .filter = STOKER_NEAREST};
    const struct {
        const char *name;
        struct stoker_transform transforms[2];
        int how;
    } rows[] = {
        {"padded aside", {aside, fit}, 0},   {"turned", {fit}, TURNED},
        {"padded", {crop, fit}, 0},          {"nearest", {pick}, 0},
        {"progressive", {fit}, PROGRESSIVE}, {"RGB", {fit}, RGB},
    };
    static uint8_t slots[2][SLOT];

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        size_t count = rows[i].transforms[1].kind ? 2 : 1;
        struct stk_transform_plan *exact = open_plan(rows[i].transforms, count, false);
        struct stk_transform_plan *planar = open_plan(rows[i].transforms, count, true);
        int h = rows[i].how & RGB ? 1 : 2;
        struct stk_view bytes = make(200, 180, h, h, rows[i].how);

        T_TRUE(rows[i].name, !get(decoder, exact, bytes, 1, slots[0]));
        T_TRUE(rows[i].name, !get(decoder, planar, bytes, 1, slots[1]));
        T_TRUE(rows[i].name, memcmp(slots[0], slots[1], SLOT) == 0);
        drop(bytes);
        stk_transform_plan_close(exact);
        stk_transform_plan_close(planar);
    }
}

/* The decoder never holds the complete image: its rings and tables are smaller than the L2 cache of
 * a core, and much smaller than the image's 2 and 6 megapixels of 4 bytes. */
static void test_bands(struct stk_image_decoder *decoder)
{
    const struct stoker_transform fit = {
        .kind = STOKER_RESIZE, .height = SIDE, .width = SIDE, .filter = STOKER_BILINEAR};
    static uint8_t slot[SLOT];

    for (int i = 0; i < 4; i++) {
        struct stk_transform_plan *plan = open_plan(&fit, 1, i % 2);
        struct stk_view bytes = make(1600, i / 2 ? 3600 : 1200, 2, 2, 0);

        stk_image_decoder_trim(decoder, 0);
        T_EQ("planes", get(decoder, plan, bytes, 1, slot), i % 2);
        T_TRUE("less than L2", stk_image_decoder_bytes(decoder) < 1u << 20);
        drop(bytes);
        stk_transform_plan_close(plan);
    }
}

/* With marks that are not the picture's it is libjpeg-turbo's, which has no planes. */
static void test_wrong_marks(struct stk_image_decoder *decoder)
{
    static uint8_t slots[2][SLOT];
    struct stk_view bytes = make(200, 180, 2, 2, 0);
    struct stk_jpeg_entry_points marks = mark(bytes, 0);
    struct stk_transform_plan *plans[2];

    marks.bytes.bytes -= STK_JPEG_ENTRY_POINT_BYTES;
    open_plans(STOKER_BILINEAR, true, plans);
    for (int i = 0; i < 2; i++) {
        stk_image_decoder_set_entry_points(decoder, &marks);
        T_TRUE("rows", !get(decoder, plans[i], bytes, 1, slots[i]));
        T_EQ("marks", stk_image_decoder_decoded_by(decoder), 1 + STK_JPEG_ENTRY_POINTS);
        stk_transform_plan_close(plans[i]);
    }
    T_TRUE("exact", memcmp(slots[0], slots[1], SLOT) == 0);
    drop(marks.bytes);
    drop(bytes);
}

/* Bits flipped or the end cut off: pixels or error of the exact plan, or (where nothing that
 * matters was hit) those of planes without damage. */
static void test_damage(struct stk_image_decoder *decoder)
{
    static uint8_t slots[2][SLOT];
    struct stk_transform_plan *plans[2];
    int fell_back = 0, failed = 0;

    open_plans(STOKER_BILINEAR, true, plans);
    for (uint32_t n = 0; n < 200; n++) {
        struct stk_view bytes = make(160, 120, 2, 2, 0);
        uint8_t *data = (uint8_t *)(uintptr_t)bytes.data;
        struct stoker_error errors[2] = {0};
        int statuses[2];
        bool planar;

        if (n % 4 == 0) {
            bytes.bytes = draw(700, (uint32_t)bytes.bytes - 2);
        } else {
            memset(data + draw(700, (uint32_t)bytes.bytes - 20), n % 2 ? 0xff : 0x5a, 16);
        }
        for (int i = 0; i < 2; i++) {
            statuses[i] = stk_image_decode(decoder, plans[i], bytes, n, slots[i], &errors[i]);
        }
        planar = stk_image_decoder_decoded_by(decoder) & STK_IMAGE_DECODED_PLANAR;
        T_EQ("status", statuses[1], statuses[0]);
        T_STR("what", errors[1].what, errors[0].what);
        fell_back += !planar && statuses[1] == 0;
        failed += statuses[1] < 0;
        if (!planar && statuses[1] == 0) {
            T_TRUE("the exact plan's", memcmp(slots[0], slots[1], SLOT) == 0);
        }
        drop(bytes);
    }
    printf("damaged: %d of 200 fell back, %d failed\n", fell_back, failed);
    T_TRUE("some of each", fell_back > 10 && failed > 5);
    stk_transform_plan_close(plans[0]);
    stk_transform_plan_close(plans[1]);
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
    }
    test_planes(decoders);
    test_exact(decoders[0]);
    test_bands(decoders[0]);
    test_wrong_marks(decoders[0]);
    test_damage(decoders[0]);
    stk_image_decoder_close(decoders[0]);
    stk_image_decoder_close(decoders[1]);
    T_EQ("no leak", stk_mem_alive(), alive);
    return t_finish();
}
