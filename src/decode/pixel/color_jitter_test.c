/* Goal: colour jitter is torchvision's within 1/255, the same on both paths, in the given order.
 * Method: rows of the results of torchvision 0.28 (v2, uint8 tensors) for eight pixels; grey
 * against a division for all colours; a digest of all steps; random images of every small length,
 * plain C against AVX2. usage: color_jitter_test [seed] */
#include "decode/pixel/color_jitter.h"

#include "base/crypto/digest.h"
#include "base/random.h"
#include "decode/pixel/pixel_kernels.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define PIXELS 8

static const uint8_t colours[PIXELS][3] = {
    {200, 100, 50},  {10, 250, 30}, {0, 0, 255},   {128, 128, 128},
    {255, 255, 255}, {0, 0, 0},     {77, 13, 140}, {250, 240, 10},
};

static const struct step_row {
    const char *name;
    uint8_t step;
    double value;
    uint8_t want[PIXELS * 3];
} step_rows[] = {
    {"brightness 0", STK_COLOR_JITTER_BRIGHTNESS, 0.0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                                        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {"brightness 0.6", STK_COLOR_JITTER_BRIGHTNESS, 0.6, {120, 60, 30, 6,  150, 18,  0,   0,
                                                          153, 76, 76, 76, 153, 153, 153, 0,
                                                          0,   0,  46, 7,  84,  150, 144, 6}},
    {"brightness 1.9", STK_COLOR_JITTER_BRIGHTNESS, 1.9, {255, 190, 95,  19,  255, 57,  0,   0,
                                                          255, 243, 243, 243, 255, 255, 255, 0,
                                                          0,   0,   146, 24,  255, 255, 255, 19}},
    {"contrast 0", STK_COLOR_JITTER_CONTRAST, 0.0, {118, 118, 118, 118, 118, 118, 118, 118,
                                                    118, 118, 118, 118, 118, 118, 118, 118,
                                                    118, 118, 118, 118, 118, 118, 118, 118}},
    {"contrast 0.7", STK_COLOR_JITTER_CONTRAST, 0.7, {175, 105, 70,  42,  210, 56,  35,  35,
                                                      214, 125, 125, 125, 214, 214, 214, 35,
                                                      35,  35,  89,  44,  133, 210, 203, 42}},
    {"contrast 1.8", STK_COLOR_JITTER_CONTRAST, 1.8, {255, 85,  0,   0,   255, 0,   0,   0,
                                                      255, 135, 135, 135, 255, 255, 255, 0,
                                                      0,   0,   43,  0,   157, 255, 255, 0}},
    {"saturation 0", STK_COLOR_JITTER_SATURATION, 0.0, {124, 124, 124, 153, 153, 153, 29,  29,
                                                        29,  127, 127, 127, 254, 254, 254, 0,
                                                        0,   0,   46,  46,  46,  216, 216, 216}},
    {"saturation 0.5", STK_COLOR_JITTER_SATURATION, 0.5, {162, 112, 87,  81,  201, 91,  14,  14,
                                                          142, 127, 127, 127, 254, 254, 254, 0,
                                                          0,   0,   61,  29,  93,  233, 228, 113}},
    {"saturation 1.6", STK_COLOR_JITTER_SATURATION, 1.6, {245, 85,  5,   0,   255, 0,   0,   0,
                                                          255, 128, 128, 128, 255, 255, 255, 0,
                                                          0,   0,   95,  0,   196, 255, 254, 0}},
    {"hue -0.5", STK_COLOR_JITTER_HUE, -0.5, {50, 150, 200, 250, 10,  230, 255, 255,
                                              0,  128, 128, 128, 255, 255, 255, 0,
                                              0,  0,   76,  140, 13,  10,  20,  250}},
    {"hue -0.2", STK_COLOR_JITTER_HUE, -0.2, {200, 50,  180, 250, 222, 10,  0,   255,
                                              204, 128, 128, 128, 255, 255, 255, 0,
                                              0,   0,   13,  101, 140, 250, 10,  68}},
    {"hue 0.1", STK_COLOR_JITTER_HUE, 0.1, {200, 190, 50,  10,  250, 174, 153, 0,
                                            255, 128, 128, 128, 255, 255, 255, 0,
                                            0,   0,   140, 13,  127, 116, 250, 10}},
    {"hue 0.5", STK_COLOR_JITTER_HUE, 0.5, {50, 150, 200, 250, 10,  230, 255, 255,
                                            0,  128, 128, 128, 255, 255, 255, 0,
                                            0,  0,   76,  140, 13,  10,  20,  250}},
};

static struct stk_color_jitter one_step(uint8_t step, double value)
{
    struct stk_color_jitter jitter = {.order = {0, 1, 2, 3}, .value = {1.0, 1.0, 1.0, 0.0}};

    jitter.value[step] = value;
    return jitter;
}

static void test_steps(const struct stk_pixel_kernels *kernels)
{
    T_EACH(step_row, row, step_rows)
    {
        struct stk_color_jitter jitter = one_step(row->step, row->value);
        uint8_t rgbx[PIXELS][4];
        int worst = 0;
        bool unchanged = true;

        for (int i = 0; i < PIXELS; i++) {
            memcpy(rgbx[i], colours[i], 3);
            rgbx[i][3] = (uint8_t)(i * 7);
        }
        stk_color_jitter_apply(&jitter, kernels, rgbx[0], PIXELS);
        for (int i = 0; i < PIXELS * 3; i++) {
            int distance = abs(rgbx[i / 3][i % 3] - row->want[i]);

            worst = distance > worst ? distance : worst;
            unchanged = unchanged && rgbx[i / 3][3] == i / 3 * 7;
        }
        T_TRUE(row->name, worst <= 1);
        T_TRUE(row->name, unchanged);
    }
}

static void test_grey(void)
{
    int64_t wrong = 0;

    for (int32_t colour = 0; colour < 1 << 24; colour++) {
        int32_t red = colour >> 16, green = colour >> 8 & 255, blue = colour & 255;

        wrong +=
            stk_color_grey(red, green, blue) != (2989 * red + 5870 * green + 1140 * blue) / 10000;
    }
    T_EQ("all greys", wrong, 0);
}

/* Brightness to black and then anything else is black; the other way round the mean is not. */
static void test_order(const struct stk_pixel_kernels *kernels)
{
    struct stk_color_jitter jitter = {.order = {0, 1, 2, 3}, .value = {0.5, 0.0, 1.0, 0.0}};
    uint8_t first[2][4] = {{255, 255, 255, 0}, {55, 55, 55, 0}}, other[2][4];

    memcpy(other, first, sizeof(other));
    stk_color_jitter_apply(&jitter, kernels, first[0], 2);
    jitter.order[0] = STK_COLOR_JITTER_CONTRAST;
    jitter.order[1] = STK_COLOR_JITTER_BRIGHTNESS;
    stk_color_jitter_apply(&jitter, kernels, other[0], 2);
    /* floor(floor(x / 2) * 0.9999) = 126 and 26; floor(x * 0.9999) = 254 and 54. */
    T_EQ("brightness first", first[0][0], 76);
    T_EQ("contrast first", other[0][0], 77);
}

static void test_one(const struct stk_pixel_kernels *kernels)
{
    struct stk_color_jitter jitter = one_step(STK_COLOR_JITTER_BRIGHTNESS, 0.0);
    uint8_t pixel[4] = {1, 2, 3, 4};

    stk_color_jitter_apply(&jitter, kernels, pixel, 1);
    T_TRUE("one pixel", memcmp(pixel, "\0\0\0\4", 4) == 0);
}

static void test_off(const struct stk_pixel_kernels *kernels)
{
    struct stk_color_jitter jitter = one_step(STK_COLOR_JITTER_BRIGHTNESS, 1.0);
    uint8_t pixels[2][4] = {{1, 2, 3, 4}, {250, 251, 252, 253}}, want[2][4];

    memcpy(want, pixels, sizeof(want));
    stk_color_jitter_apply(&jitter, kernels, pixels[0], 2);
    T_TRUE("off", memcmp(pixels, want, sizeof(want)) == 0);
}

/* Every machine gets these bytes: SHA-256, its first 8, of all steps of 4,096 colours. */
static void test_golden(const struct stk_pixel_kernels *kernels)
{
    static uint8_t rgbx[4096][4];
    struct stk_sha256 sha;
    uint8_t digest[32];
    char hex[17];

    stk_sha256_init(&sha);
    T_EACH(step_row, row, step_rows)
    {
        struct stk_color_jitter jitter = one_step(row->step, row->value);

        for (uint32_t i = 0; i < 4096; i++) {
            for (uint32_t c = 0; c < 4; c++) { /* half of them nearly grey */
                uint64_t key = stk_random_key(i, c);

                rgbx[i][c] = (uint8_t)(i % 2 ? key : stk_random_key(i, 4) % 251 + key % 5);
            }
        }
        stk_color_jitter_apply(&jitter, kernels, rgbx[0], 4096);
        stk_sha256_add(&sha, rgbx, sizeof rgbx);
    }
    stk_sha256_done(&sha, digest);
    for (int i = 0; i < 8; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    T_STR("golden", hex, "a34942edcf828f59");
}

static void test_same(const struct stk_pixel_kernels *const *kernels, uint64_t seed)
{
    uint64_t count = 0;

    for (int round = 0; round < 1200; round++) {
        static uint8_t pictures[2][4 * 61];
        uint64_t pixels = (uint64_t)round % 61;
        struct stk_color_jitter jitter = {.order = {3, 1, 0, 2}};
        bool grey = stk_random_key(seed, count++) % 4 == 0;

        for (int step = 0; step < STK_COLOR_JITTER_STEPS; step++) {
            double unit = (double)(stk_random_key(seed, count++) >> 11) * 0x1p-53;

            jitter.value[step] =
                step == STK_COLOR_JITTER_HUE ? unit - 0.5 : unit * (round % 7 ? 2.0 : 64.0);
        }
        for (size_t i = 0; i < sizeof(pictures[0]); i++) {
            pictures[0][i] =
                grey && i % 4 ? pictures[0][i - 1] : (uint8_t)stk_random_key(seed, count++);
        }
        memcpy(pictures[1], pictures[0], sizeof(pictures[0]));
        stk_color_jitter_apply(&jitter, kernels[0], pictures[0], pixels);
        stk_color_jitter_apply(&jitter, kernels[1], pictures[1], pixels);
        T_TRUE("same bytes, nothing past the end", memcmp(pictures[0], pictures[1], 4 * 61) == 0);
    }
}

int main(int argc, char **argv)
{
    const struct stk_pixel_kernels *kernels[2] = {stk_pixel_kernels_get(STOKER_SIMD_NONE),
                                                  stk_pixel_kernels_get(STOKER_SIMD_AVX2)};
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20260801;

    printf("seed %llu\n", (unsigned long long)seed);
    test_grey();
    for (int path = 0; path < 2 && kernels[path]; path++) {
        test_steps(kernels[path]);
        test_order(kernels[path]);
        test_off(kernels[path]);
        test_one(kernels[path]);
        test_golden(kernels[path]);
    }
    if (kernels[1]) {
        test_same(kernels, seed);
    }
    return t_finish();
}
