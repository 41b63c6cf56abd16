/* Goal: plain C, AVX2, and SSE2 or NEON (pixel_kernels_simd.c) give the same bytes, write nothing
 * outside the slot, and convert according to IEEE 754.
 * Method: every type, layout and width up to 67 with random pixels, the slot between guards; every
 * 8-bit value against the conversion in doubles; AVX2's path uses F16C hardware if there is one.
 * usage: pixel_kernels_test [seed] */
#include "decode/pixel/pixel_kernels_inner.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH_MAX 67
#define HEIGHT 3
#define GUARD 64
#define SLOT_MAX ((WIDTH_MAX * HEIGHT * 3 * 4 + 3 * GUARD) / GUARD * GUARD)

static uint64_t seed = 20260801;
static uint64_t drawn;

static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};

static void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)stk_random_key(seed, drawn++);
    }
}

/* One kind of slot at one width, on both paths, so many bytes after the start of a cache line. The
 * rows are at odd addresses and end at the end of their block, so that a sanitizer detects a read
 * past them. */
static void compare_at(const struct stk_pixel_kernels *const *kernels,
                       struct stk_pixel_convert *convert, size_t shift)
{
    static uint8_t slots[2][SLOT_MAX] __attribute__((aligned(GUARD)));
    size_t row_bytes = 4 * (size_t)convert->width;
    size_t slot_bytes = (size_t)convert->width * HEIGHT * 3;
    uint8_t *row = stk_alloc(row_bytes, 1);
    char name[64];
    bool guarded = true;

    slot_bytes *= stk_pixel_bytes(convert->dtype);
    snprintf(name, sizeof(name), "dtype %u layout %u width %u", convert->dtype, convert->layout,
             convert->width);
    memset(slots, 0xa5, sizeof(slots));
    for (uint32_t y = 0; y < HEIGHT; y++) {
        fill(row, row_bytes);
        for (int path = 0; path < 2; path++) {
            kernels[path]->convert(convert, row, y, slots[path] + GUARD + shift);
        }
    }
    T_TRUE(name, memcmp(slots[0], slots[1], sizeof(slots[0])) == 0);
    for (size_t i = 0; i < GUARD; i++) {
        guarded = guarded && slots[1][shift + i] == 0xa5 &&
                  slots[1][shift + GUARD + slot_bytes + i] == 0xa5;
    }
    T_TRUE(name, guarded);
    stk_free(row);
}

/* Rows that can be written with non-temporal stores, and rows that cannot. */
static void compare_convert(const struct stk_pixel_kernels *const *kernels,
                            struct stk_pixel_convert *convert)
{
    compare_at(kernels, convert, 0);
    compare_at(kernels, convert, 4);
}

static void test_same_converts(const struct stk_pixel_kernels *const *kernels)
{
    for (uint32_t dtype = STOKER_UINT8; dtype <= STOKER_BFLOAT16; dtype++) {
        for (uint32_t layout = STOKER_NCHW; layout <= STOKER_NHWC; layout++) {
            for (uint32_t width = 1; width <= WIDTH_MAX; width++) {
                struct stk_pixel_convert convert = {
                    .dtype = dtype, .layout = layout, .width = width, .height = HEIGHT};

                stk_pixel_convert_init(&convert, width % 2 ? mean : NULL, width % 2 ? std : NULL);
                compare_convert(kernels, &convert);
            }
        }
    }
}

/* The 16-bit types for extreme values, at the limits of exponents: the hardware converts all AVX2
 * pixels, the table all plain ones. */
static void test_same_extremes(const struct stk_pixel_kernels *const *kernels)
{
    static const float scales[] = {1e-9f, 1e-7f, 2.4e-7f, 1e-6f, 3e-5f, 1.0f, 300.0f, 1e6f};

    for (size_t i = 0; i < STK_COUNT(scales); i++) {
        for (uint32_t dtype = STOKER_FLOAT16; dtype <= STOKER_BFLOAT16; dtype++) {
            struct stk_pixel_convert convert = {
                .dtype = dtype, .layout = STOKER_NCHW, .width = 64, .height = HEIGHT};
            const float means[3] = {0.5f, 0.0f, 0.3f};
            const float stds[3] = {1 / scales[i], 1 / scales[i], 3 / scales[i]};

            stk_pixel_convert_init(&convert, means, stds);
            compare_convert(kernels, &convert);
        }
    }
}

/* Scales at which some value is exactly between two 16-bit values: rounded to the even one. */
static void test_same_ties(const struct stk_pixel_kernels *const *kernels)
{
    uint8_t row[4 * 256];
    uint16_t slots[2][3 * 256];
    uint32_t ties = 0;

    for (int i = 0; i < 4 * 256; i++) {
        row[i] = (uint8_t)(i / 4);
    }
    for (uint32_t i = 0; i < 6000; i++) {
        uint32_t dtype = i % 2 ? STOKER_FLOAT16 : STOKER_BFLOAT16, rest = i % 2 ? 0x1fff : 0xffff;
        struct stk_pixel_convert convert = {
            .dtype = dtype, .layout = STOKER_NCHW, .width = 256, .height = 1};
        float zero[3] = {0, 0, 0}, spread = (float)(1000 + i) / 4096, stds[3];

        for (int c = 0; c < 3; c++) {
            stds[c] = spread + (float)c;
        }
        stk_pixel_convert_init(&convert, zero, stds);
        for (int k = 0; k < 3 * 256; k++) {
            float value = (float)(k % 256) * convert.scale[k / 256];
            uint32_t bits;

            memcpy(&bits, &value, sizeof(bits));
            ties += (bits & (2 * rest + 1)) == rest + 1 + rest / 2 + 1; /* an odd one below */
            ties += (bits & (2 * rest + 1)) == rest / 2 + 1;            /* an even one below */
        }
        for (int path = 0; path < 2; path++) {
            kernels[path]->convert(&convert, row, 0, slots[path]);
        }
        T_TRUE("ties", memcmp(slots[0], slots[1], sizeof(slots[0])) == 0);
    }
    T_TRUE("there were ties", ties > 20);
}

static double half_value(uint16_t bits)
{
    double value = bits & 0x3ff;
    int exponent = bits >> 10 & 31;

    value = exponent ? value + 1024 : value;
    for (int i = exponent ? exponent : 1; i < 25; i++) {
        value /= 2;
    }
    for (int i = 25; i < exponent; i++) {
        value *= 2;
    }
    return bits & 0x8000 ? -value : value;
}

static double brain_value(uint16_t bits)
{
    uint32_t bits32 = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &bits32, sizeof(value));
    return (double)value;
}

/* Each of the 256 values, normalised, is within half a unit in the last place of the exact one. */
static void test_values(const struct stk_pixel_kernels *kernels)
{
    uint8_t row[4 * 256];
    uint16_t halves[3 * 256], brains[3 * 256];
    float floats[3 * 256];

    for (int i = 0; i < 4 * 256; i++) {
        row[i] = (uint8_t)(i / 4);
    }
    for (int normal = 0; normal < 2; normal++) {
        struct stk_pixel_convert convert = {.layout = STOKER_NCHW, .width = 256, .height = 1};
        void *slots[] = {floats, halves, brains};

        for (uint32_t dtype = STOKER_FLOAT32; dtype <= STOKER_BFLOAT16; dtype++) {
            convert.dtype = dtype;
            stk_pixel_convert_init(&convert, normal ? mean : NULL, normal ? std : NULL);
            kernels->convert(&convert, row, 0, slots[dtype - STOKER_FLOAT32]);
        }
        for (int i = 0; i < 3 * 256; i++) {
            int c = i / 256;
            double exact = i % 256 / 255.0, size, got[3];

            exact = normal ? (exact - (double)mean[c]) / (double)std[c] : exact;
            size = exact < 0 ? -exact : exact;
            got[0] = (double)floats[i] - exact;
            got[1] = half_value(halves[i]) - exact;
            got[2] = brain_value(brains[i]) - exact;
            for (int k = 0; k < 3; k++) {
                double places[] = {1 << 24, 1 << 11, 1 << 8};
                double most = (size < 0.01 ? 0.01 : size) / places[k] + 4e-7;

                T_TRUE(kernels->name, got[k] <= most && got[k] >= -most);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const struct stk_pixel_kernels *kernels[3] = {stk_pixel_kernels_get(STOKER_SIMD_NONE),
                                                  stk_pixel_kernels_get(STOKER_SIMD_AVX2),
                                                  stk_pixel_kernels_simd()};

    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    T_STR("none", kernels[0]->name, "none");
    T_EQ("no pixels", stk_pixel_bytes(STOKER_INT64), 0);
    T_EQ("uint8", stk_pixel_bytes(STOKER_UINT8), 1);
    T_EQ("float32", stk_pixel_bytes(STOKER_FLOAT32), 4);
    T_EQ("float16", stk_pixel_bytes(STOKER_FLOAT16), 2);
    T_EQ("bfloat16", stk_pixel_bytes(STOKER_BFLOAT16), 2);
#if defined(__x86_64__)
    T_EQ("AVX2", kernels[1] != NULL,
         __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"));
#endif
    test_values(kernels[0]);
    for (int path = 1; path < 3; path++) {
        const struct stk_pixel_kernels *const two[2] = {kernels[0], kernels[path]};

        if (kernels[path]) {
            test_values(kernels[path]);
            test_same_converts(two);
            test_same_extremes(two);
            test_same_ties(two);
        } else {
            printf("this machine has no %s\n", path == 1 ? "AVX2" : "SSE2 or NEON");
        }
    }
    kernels[1] = kernels[1] ? kernels[1] : kernels[2] ? kernels[2] : kernels[0];
    T_TRUE("auto", stk_pixel_kernels_get(STOKER_SIMD_AUTO) == kernels[1]);
    return t_finish();
}
