/* Goal: boxes and sizes are torchvision's, random ones are frozen and fair, EXIF turns are right.
 * Method: rows from torchvision 0.28 (sizes, centres, fallbacks); frozen boxes of fixed keys (a
 * change of them changes every user's images); averages over many keys; each orientation compared
 * with PIL's exif_transpose. */
#include "decode/image/crop_geometry.h"

#include "base/random.h"
#include "decode/image/random_draw.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

static const struct stoker_transform usual = {.kind = STOKER_RANDOM_RESIZED_CROP,
                                              .height = 224,
                                              .width = 224,
                                              .filter = STOKER_BILINEAR,
                                              .scale = {0.08, 1.0},
                                              .ratio = {0.75, 4.0 / 3.0}};

static struct stk_crop_geometry make(const struct stoker_transform *transform, uint32_t width,
                                     uint32_t height, uint64_t key)
{
    struct stk_crop_geometry geometry;

    T_EQ("make", stk_crop_geometry_init(&geometry, transform, 1, width, height, key, NULL), 0);
    return geometry;
}

static const struct size_row {
    const char *name;
    uint32_t width, height, size, max_size, want_width, want_height;
} size_rows[] = {
    {"wide", 500, 375, 256, 0, 341, 256},
    {"tall", 375, 500, 256, 0, 256, 341},
    {"square", 640, 640, 224, 0, 224, 224},
    {"narrow", 1, 1000, 32, 0, 32, 32000},
    {"flat, to nothing in torchvision", 1000, 1, 32, 64, 64, 1},
    {"max size", 333, 500, 256, 300, 200, 300},
    {"max size, wide", 500, 333, 256, 257, 257, 171},
    {"smaller", 97, 53, 10, 0, 18, 10},
    {"larger", 3, 7, 224, 400, 171, 400},
};

static void test_sizes(void)
{
    T_EACH(size_row, row, size_rows)
    {
        struct stoker_transform resize = {
            .kind = STOKER_RESIZE, .height = row->size, .max_size = row->max_size};
        struct stk_crop_geometry geometry = make(&resize, row->width, row->height, 1);

        T_EQ(row->name, geometry.target_width, row->want_width);
        T_EQ(row->name, geometry.target_height, row->want_height);
        T_EQ(row->name, geometry.output.visible.width, row->want_width);
    }
}

static const struct center_row {
    uint32_t width, height, crop_width, crop_height;
    uint32_t x, y, part_width, part_height, from_x, from_y;
} center_rows[] = {
    {256, 341, 224, 224, 0, 0, 224, 224, 16, 58}, /* 58.5 rounds to even */
    {256, 257, 224, 224, 0, 0, 224, 224, 16, 16}, /* so does 16.5 */
    {10, 7, 5, 4, 0, 0, 5, 4, 2, 2},
    {11, 9, 4, 4, 0, 0, 4, 4, 4, 2},
    {13, 8, 4, 3, 0, 0, 4, 3, 4, 2},
    {9, 20, 12, 8, 1, 0, 9, 8, 0, 6},
    {5, 4, 8, 9, 1, 2, 5, 4, 0, 0},
    {1, 1, 2, 3, 0, 1, 1, 1, 0, 0},
    {224, 224, 224, 224, 0, 0, 224, 224, 0, 0},
    {30, 9, 7, 16, 0, 3, 7, 9, 12, 0},
};

static void test_centers(void)
{
    T_EACH(center_row, row, center_rows)
    {
        struct stoker_transform crop = {
            .kind = STOKER_CENTER_CROP, .width = row->crop_width, .height = row->crop_height};
        struct stk_crop_canvas canvas = make(&crop, row->width, row->height, 1).output;

        T_EQ("width", canvas.width, row->crop_width);
        T_EQ("height", canvas.height, row->crop_height);
        T_EQ("x", canvas.visible.x, row->x);
        T_EQ("y", canvas.visible.y, row->y);
        T_EQ("part width", canvas.visible.width, row->part_width);
        T_EQ("part height", canvas.visible.height, row->part_height);
        T_EQ("from x", canvas.from_x, row->from_x);
        T_EQ("from y", canvas.from_y, row->from_y);
    }
}

static void check_box(const char *name, const struct stk_crop_canvas *source,
                      struct stk_codec_box want)
{
    T_EQ(name, source->from_x, want.x);
    T_EQ(name, source->from_y, want.y);
    T_EQ(name, source->width, want.width);
    T_EQ(name, source->height, want.height);
}

static const struct middle_row {
    const char *name;
    uint32_t width, height;
    struct stk_codec_box want;
} middle_rows[] = {
    {"very wide", 1000, 10, {493, 0, 13, 10}},
    {"very tall", 10, 1000, {0, 493, 10, 13}},
    {"a column", 1, 50, {0, 24, 1, 1}},
    {"a row", 50, 1, {24, 0, 1, 1}},
    {"wide", 37, 5, {15, 0, 7, 5}},
    {"tall", 5, 37, {0, 15, 5, 7}},
    {"as it is", 40, 40, {0, 0, 40, 40}},
};

/* An area larger than the picture never fits, so the middle is taken. */
static void test_middles(void)
{
    T_EACH(middle_row, row, middle_rows)
    {
        struct stoker_transform crop = usual;
        struct stk_crop_geometry geometry;

        crop.scale[0] = 30.0;
        crop.scale[1] = 30.0;
        geometry = make(&crop, row->width, row->height, 1);
        check_box(row->name, &geometry.source, row->want);
    }
}

static const struct frozen_row {
    uint64_t key;
    uint32_t width, height;
    struct stk_codec_box want;
} frozen_rows[] = {
    {0u, 500, 375, {23, 0, 376, 375}},
    {1u, 500, 375, {74, 28, 336, 254}},
    {2u, 375, 500, {128, 1, 221, 290}},
    {3u, 500, 333, {72, 24, 345, 267}},
    {1311768467463790320u, 4000, 3000, {450, 52, 2153, 2403}},
    {18446744073709551615u, 64, 64, {10, 0, 52, 55}},
    {77u, 1, 1, {0, 0, 1, 1}},
    {78u, 2, 3, {0, 0, 2, 3}},
    {79u, 31, 300, {0, 129, 31, 41}},
    {80u, 500, 375, {22, 0, 410, 352}},
};

static void test_frozen(bool print)
{
    T_EACH(frozen_row, row, frozen_rows)
    {
        struct stk_crop_geometry geometry = make(&usual, row->width, row->height, row->key);

        if (print) {
            printf("    { %llu, %u, %u, { %u, %u, %u, %u } },\n", (unsigned long long)row->key,
                   row->width, row->height, geometry.source.from_x, geometry.source.from_y,
                   geometry.source.width, geometry.source.height);
            continue;
        }
        check_box("frozen", &geometry.source, row->want);
    }
}

/* Averages of many crops: equal to the definition within a few standard errors. */
static void test_statistics(void)
{
    const uint32_t rounds = 40000;
    double area = 0, logs = 0, left = 0, top = 0;
    uint32_t placed = 0;

    for (uint32_t key = 0; key < rounds; key++) {
        struct stoker_transform crop = usual;
        struct stk_crop_canvas source;

        crop.scale[1] = 0.5; /* so small that the first attempt always fits */
        source = make(&crop, 4000, 4000, key).source;
        T_TRUE("inside", (uint64_t)source.from_x + source.width <= 4000 &&
                             (uint64_t)source.from_y + source.height <= 4000);
        area += (double)source.width * source.height / 16e6;
        logs += stk_log((double)source.width / source.height);
        if (source.width < 4000 && source.height < 4000) {
            left += (double)source.from_x / (4000 - source.width);
            top += (double)source.from_y / (4000 - source.height);
            placed++;
        }
    }
    T_EQ("mean area is 0.29", (int)(area / rounds * 100 + 0.5), 29);
    T_TRUE("mean ratio is 1", logs / rounds < 0.004 && logs / rounds > -0.004);
    T_EQ("mean left is 1/2", (int)(left / placed * 100 + 0.5), 50);
    T_EQ("mean top is 1/2", (int)(top / placed * 100 + 0.5), 50);
}

static void test_flips(void)
{
    static const double probabilities[] = {0.0, 0.25, 1.0};

    for (int i = 0; i < 3; i++) {
        struct stoker_transform flips[] = {
            {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = probabilities[i]},
            {.kind = STOKER_RANDOM_VERTICAL_FLIP, .probability = probabilities[i]},
        };
        struct stk_crop_geometry geometry;
        int across = 0, down = 0, both = 0;

        for (uint64_t key = 0; key < 10000; key++) {
            stk_crop_geometry_init(&geometry, flips, 2, 9, 9, stk_mix64(key), NULL);
            across += geometry.flip_horizontal;
            down += geometry.flip_vertical;
            both += geometry.flip_horizontal && geometry.flip_vertical;
        }
        T_TRUE("across", abs(across - (int)(10000 * probabilities[i])) < 200);
        T_TRUE("down", abs(down - (int)(10000 * probabilities[i])) < 200);
        T_TRUE("independent", abs(both - (int)(10000 * probabilities[i] * probabilities[i])) < 150);
    }
}

/* The same crop whatever else the plan draws. */
static void test_independence(void)
{
    struct stoker_transform flip = {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5};
    struct stoker_transform crop = {.kind = STOKER_RANDOM_CROP, .width = 5, .height = 4};
    struct stoker_transform more[] = {crop, flip}, fewer[] = {crop};
    struct stk_crop_geometry a, b;
    int seen[7 * 7] = {0};

    for (uint64_t key = 0; key < 4900; key++) {
        stk_crop_geometry_init(&a, more, 2, 11, 10, stk_mix64(key), NULL);
        stk_crop_geometry_init(&b, fewer, 1, 11, 10, stk_mix64(key), NULL);
        T_TRUE("same crop", a.output.from_x == b.output.from_x);
        T_TRUE("same crop", a.output.from_y == b.output.from_y);
        T_TRUE("within", a.output.from_x <= 6 && a.output.from_y <= 6);
        seen[a.output.from_y % 7 * 7 + a.output.from_x % 7]++;
    }
    for (int i = 0; i < 49; i++) {
        T_TRUE("each place is as likely", seen[i] > 50 && seen[i] < 150);
    }
}

static void test_random_crop_too_large(void)
{
    struct stoker_transform crop = {.kind = STOKER_RANDOM_CROP, .width = 5, .height = 4};
    struct stk_crop_geometry geometry;
    struct stoker_error error = {0};

    T_EQ("fits", stk_crop_geometry_init(&geometry, &crop, 1, 5, 4, 1, &error), 0);
    T_EQ("too low", stk_crop_geometry_init(&geometry, &crop, 1, 5, 3, 1, &error),
         STOKER_ERROR_FORMAT);
    T_ERROR("too low", &error);
    T_HAS("too low", error.where, "5x3");
}

/* A crop may contain no pixel of the image if it is in padding. */
static void test_crop_of_padding(void)
{
    struct stoker_transform crops[] = {
        {.kind = STOKER_CENTER_CROP, .width = 1000, .height = 1000},
        {.kind = STOKER_RANDOM_CROP, .width = 5, .height = 5},
    };
    struct stk_crop_geometry geometry;

    T_EQ("make", stk_crop_geometry_init(&geometry, crops, 2, 1, 1, 3, NULL), 0);
    T_EQ("nothing", geometry.output.visible.width * geometry.output.visible.height, 0);
    T_EQ("size", geometry.output.width, 5);
}

/* Boxes on a picture of 100 x 50, by hand; the flips' probability is 1. */
static const struct box_row {
    const char *name;
    struct stoker_transform transforms[3];
    double box[4], want[4];
    bool left;
} box_rows[] = {
    {"crop",
     {{.kind = STOKER_CENTER_CROP, .width = 60, .height = 30}},
     {15, 20, 30, 45},
     {0, 10, 10, 30},
     true},
    {"cropped away",
     {{.kind = STOKER_CENTER_CROP, .width = 60, .height = 30}},
     {0, 20, 20, 30},
     {0, 10, 0, 20},
     false},
    {"padded",
     {{.kind = STOKER_CENTER_CROP, .width = 120, .height = 80}},
     {-5, 0, 100, 60},
     {10, 15, 110, 65},
     true},
    {"resize",
     {{.kind = STOKER_RESIZE, .width = 50, .height = 100}},
     {10, 5, 20, 25},
     {5, 10, 10, 50},
     true},
    {"crop, resize",
     {{.kind = STOKER_CENTER_CROP, .width = 50, .height = 50},
      {.kind = STOKER_RESIZE, .width = 100, .height = 25}},
     {30, 10, 50, 60},
     {10, 5, 50, 25},
     true},
    {"resize, crop, flip",
     {{.kind = STOKER_RESIZE, .width = 200, .height = 100},
      {.kind = STOKER_CENTER_CROP, .width = 100, .height = 100},
      {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 1}},
     {30, 10, 40, 20},
     {70, 20, 90, 40},
     true},
    {"both flips",
     {{.kind = STOKER_CENTER_CROP, .width = 100, .height = 50},
      {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 1},
      {.kind = STOKER_RANDOM_VERTICAL_FLIP, .probability = 1}},
     {1, 2, 3, 5},
     {97, 45, 99, 48},
     true},
    {"a line",
     {{.kind = STOKER_CENTER_CROP, .width = 100, .height = 50}},
     {5, 2, 5, 9},
     {5, 2, 5, 9},
     false},
    {"far outside",
     {{.kind = STOKER_CENTER_CROP, .width = 100, .height = 50}},
     {-1e299, -1e299, 1e299, 1e299},
     {0, 0, 100, 50},
     true},
};

static void test_boxes(void)
{
    T_EACH(box_row, row, box_rows)
    {
        struct stk_crop_geometry geometry;
        double box[4];
        size_t count = 0;

        while (count < 3 && row->transforms[count].kind) {
            count++;
        }
        memcpy(box, row->box, sizeof box);
        T_EQ(row->name, stk_crop_geometry_init(&geometry, row->transforms, count, 100, 50, 1, NULL),
             0);
        T_EQ(row->name, stk_crop_geometry_box(&geometry, box), row->left);
        for (int i = 0; i < 4; i++) {
            T_TRUE(row->name, box[i] == row->want[i]);
        }
    }
}

/* The result of exif_transpose for the stored image  0 1 2 / 3 4 5. */
static const struct turn_row {
    uint8_t orientation;
    const char *want; /* rows of the turned picture */
} turn_rows[] = {
    {1, "012 345"},  {2, "210 543"},  {3, "543 210"},  {4, "345 012"},
    {5, "03 14 25"}, {6, "30 41 52"}, {7, "52 41 30"}, {8, "25 14 03"},
};

static void test_turns(void)
{
    T_EACH(turn_row, row, turn_rows)
    {
        struct stk_orientation turn = stk_orientation_steps(row->orientation, 3, 2, 1, 3);
        bool swaps = stk_orientation_swaps_sides(row->orientation);
        uint32_t width = swaps ? 2 : 3, height = swaps ? 3 : 2;
        char text[16], *end = text;

        for (uint32_t y = 0; y < height; y++) {
            for (uint32_t x = 0; x < width; x++) {
                struct stk_codec_box one = {x, y, 1, 1};
                struct stk_codec_box stored = stk_orientation_box(row->orientation, 3, 2, &one);
                int64_t at = turn.start + x * turn.step_x + y * turn.step_y;

                T_EQ(row->want, at, stored.y * 3 + stored.x);
                *end++ = (char)('0' + at);
            }
            *end++ = y + 1 < height ? ' ' : '\0';
        }
        T_STR(row->want, text, row->want);
    }
}

static void test_functions(void)
{
    double most = 0.0;

    /* ln 2, e, and back and forth over the ratios that are allowed. */
    T_TRUE("log 2", stk_log(2.0) == 0x1.62e42fefa39efp-1);
    T_TRUE("exp 1", stk_exp(1.0) - 0x1.5bf0a8b145769p+1 < 1e-15);
    T_TRUE("exp 1", stk_exp(1.0) - 0x1.5bf0a8b145769p+1 > -1e-15);
    T_TRUE("exp 0", stk_exp(0.0) == 1.0 && stk_log(1.0) == 0.0);
    for (double x = 0.001; x < 1000.0; x *= 1.01) {
        double error = stk_exp(stk_log(x)) / x - 1.0;

        error = error < 0.0 ? -error : error;
        most = error > most ? error : most;
    }
    T_TRUE("exp of log", most < 3e-15);
    for (int64_t n = 0; n < 100000; n++) {
        int64_t root = stk_root_rounded((double)n);

        T_TRUE("root", (2 * root - 1) * (2 * root - 1) <= 4 * n || root == 0);
        T_TRUE("root", (2 * root + 1) * (2 * root + 1) >= 4 * n);
    }
    T_EQ("root tie", stk_root_rounded(2.25), 2);
    T_EQ("root tie", stk_root_rounded(6.25), 2);
    T_EQ("root tie", stk_root_rounded(0.25), 0);
    T_EQ("large root", stk_root_rounded(1e16), 100000000);
    T_EQ("tie", stk_rounded(2.5), 2);
    T_EQ("tie", stk_rounded(3.5), 4);
    T_EQ("up", stk_rounded(2.51), 3);
}

int main(int argc, char **argv)
{
    (void)argv;
    test_sizes();
    test_centers();
    test_middles();
    test_frozen(argc > 1);
    test_statistics();
    test_flips();
    test_independence();
    test_random_crop_too_large();
    test_crop_of_padding();
    test_boxes();
    test_turns();
    test_functions();
    return t_finish();
}
