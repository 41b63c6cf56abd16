/* The sample kernels in plain C: the vector files must match them byte by byte. */
#include "decode/jpeg/jpeg_planes.h"

#include <string.h>

/* ---- inverse transform -------------------------------------------------------------------- */

/* Blocks are simply rows of columns here. */
static uint32_t scalar_coefficient_index(uint32_t row, uint32_t column)
{
    return row * 8 + column;
}

static int32_t clamp(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* The one-dimensional transform of Loeffler, Ligtenberg and Moschytz (ICASSP 1989) down eight
 * columns, as libjpeg's jidctint.c arranges it and with the rotations multiplied out into two
 * products each. Inputs are 16 bits, and so are the sums in0 +- in4, in7 + in3 and in5 + in1: they
 * wrap. Everything else is modulo 2^32. Each statement is one for all columns, so that a compiler
 * makes vectors of it. */
static void transform_columns(int16_t in[8][8], int32_t shift, int32_t low, int32_t high,
                              int16_t out[8][8])
{
    const int32_t half = 1 << (shift - 1);

    for (int x = 0; x < 8; x++) {
        int16_t z3 = (int16_t)(in[7][x] + in[3][x]), z4 = (int16_t)(in[5][x] + in[1][x]);
        int16_t sum = (int16_t)(in[0][x] + in[4][x]), difference = (int16_t)(in[0][x] - in[4][x]);
        int32_t even0 = sum * (1 << STK_JPEG_CONST_BITS) + half;
        int32_t even1 = difference * (1 << STK_JPEG_CONST_BITS) + half;
        int32_t turn2 = in[2][x] * STK_JPEG_0_541 + in[6][x] * (STK_JPEG_0_541 - STK_JPEG_1_847);
        int32_t turn3 = in[2][x] * (STK_JPEG_0_541 + STK_JPEG_0_765) + in[6][x] * STK_JPEG_0_541;
        int32_t turn7 = z3 * (STK_JPEG_1_175 - STK_JPEG_1_961) + z4 * STK_JPEG_1_175;
        int32_t turn5 = z3 * STK_JPEG_1_175 + z4 * (STK_JPEG_1_175 - STK_JPEG_0_390);
        int32_t odd0 = in[7][x] * (STK_JPEG_0_298 - STK_JPEG_0_899) - in[1][x] * STK_JPEG_0_899;
        int32_t odd1 = in[5][x] * (STK_JPEG_2_053 - STK_JPEG_2_562) - in[3][x] * STK_JPEG_2_562;
        int32_t odd2 = in[3][x] * (STK_JPEG_3_072 - STK_JPEG_2_562) - in[5][x] * STK_JPEG_2_562;
        int32_t odd3 = in[1][x] * (STK_JPEG_1_501 - STK_JPEG_0_899) - in[7][x] * STK_JPEG_0_899;
        const uint32_t even[4] = {
            (uint32_t)even0 + (uint32_t)turn3, (uint32_t)even1 + (uint32_t)turn2,
            (uint32_t)even1 - (uint32_t)turn2, (uint32_t)even0 - (uint32_t)turn3};
        const uint32_t odd[4] = {(uint32_t)odd3 + (uint32_t)turn5, (uint32_t)odd2 + (uint32_t)turn7,
                                 (uint32_t)odd1 + (uint32_t)turn5,
                                 (uint32_t)odd0 + (uint32_t)turn7};

        for (int i = 0; i < 4; i++) {
            out[i][x] = (int16_t)clamp((int32_t)(even[i] + odd[i]) >> shift, low, high);
            out[7 - i][x] = (int16_t)clamp((int32_t)(even[i] - odd[i]) >> shift, low, high);
        }
    }
}

/* Whether only the first row of the block is not zero. */
static bool is_flat(const int16_t *block)
{
    int16_t any = 0;

    for (int i = 8; i < 64; i++) {
        any |= block[i];
    }
    return any == 0;
}

static void turn(int16_t from[8][8], int16_t to[8][8])
{
    for (int y = 0; y < 8; y++) {
        for (int x = 0; x < 8; x++) {
            to[x][y] = from[y][x];
        }
    }
}

static void scalar_idct(const int16_t *block, const int16_t *quantiser, uint8_t *to, size_t stride)
{
    int16_t a[8][8], b[8][8], *flat = a[0];

    for (int i = 0; i < 64; i++) {
        flat[i] = (int16_t)(block[i] * quantiser[i]);
    }
    if (is_flat(block)) {
        /* The vector code leaves the transform of one row out: there it wraps, here it stops. */
        for (int i = 0; i < 64; i++) {
            b[i / 8][i % 8] = (int16_t)(a[0][i % 8] * (1 << STK_JPEG_PASS1_BITS));
        }
    } else {
        transform_columns(a, STK_JPEG_CONST_BITS - STK_JPEG_PASS1_BITS, INT16_MIN, INT16_MAX, b);
    }
    turn(b, a);
    transform_columns(a, STK_JPEG_CONST_BITS + STK_JPEG_PASS1_BITS + 3, -128, 127, b);
    for (uint32_t y = 0; y < 8; y++) {
        for (uint32_t x = 0; x < 8; x++) {
            to[y * stride + x] = (uint8_t)(b[x][y] + 128);
        }
    }
}

/* ---- upsampling --------------------------------------------------------------------------- */

static void scalar_h2v1(const uint8_t *in, uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t near = 3u * in[i];

        out[2 * i] = (uint8_t)((near + *(in + i - 1) + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((near + in[i + 1] + 2) >> 2);
    }
}

static void scalar_h1v2(const uint8_t *near, const uint8_t *far, bool below, uint32_t count,
                        uint8_t *out)
{
    uint32_t bias = below ? 2 : 1;

    for (uint32_t i = 0; i < count; i++) {
        out[i] = (uint8_t)((3u * near[i] + far[i] + bias) >> 2);
    }
}

/* Number of samples whose sums are stored at a time, so that compilers vectorise both loops. */
#define WIDE_SAMPLES 64u

static void sum_columns(const uint8_t *near, const uint8_t *far, size_t count, uint16_t *sums)
{
    for (size_t i = 0; i < count; i++) {
        sums[i] = (uint16_t)(3 * near[i] + far[i]);
    }
}

static void widen(const uint16_t *sums, size_t count, uint8_t *out)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t sum = (uint16_t)(3 * sums[i + 1]);

        out[2 * i] = (uint8_t)((uint16_t)(sum + sums[i] + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((uint16_t)(sum + sums[i + 2] + 7) >> 4);
    }
}

static void scalar_h2v2(const uint8_t *near, const uint8_t *far, uint32_t count, uint8_t *out)
{
    for (uint32_t from = 0; from < count; from += WIDE_SAMPLES) {
        size_t part = (size_t)stk_min(count - from, WIDE_SAMPLES);
        uint16_t sums[WIDE_SAMPLES + 2]; /* of columns, from the one before the first */

        sum_columns(near + from - 1, far + from - 1, part + 2, sums);
        widen(sums, part, out + 2 * (size_t)from);
    }
}

/* ---- colours ------------------------------------------------------------------------------ */

/* (factor * x + 2^15) >> 16 as vector code computes it: half the product with twice x, rounded. */
static int16_t scale(int16_t x, int16_t factor)
{
    int16_t twice = (int16_t)(2 * x);
    int16_t product = (int16_t)((twice * factor) >> 16);

    return (int16_t)((product + 1) >> 1);
}

/* JFIF's factors times 2^16, rounded, reduced to 16 bits by adding the sample itself:
 * 1.402: 91881 = 2^16 + 26345, 1.772: 116130 = 2^17 - 14942, -0.71414: -46802 = 18734 - 2^16. */
#define COLOR_PIXELS 64u

static void convert_colors(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                           uint8_t rgb[3][COLOR_PIXELS])
{
    for (uint32_t i = 0; i < count; i++) {
        int16_t blue = (int16_t)(cb[i] - 128), red = (int16_t)(cr[i] - 128);
        int16_t mixed = (int16_t)((-22554 * blue + 18734 * red + (1 << 15)) >> 16);

        rgb[0][i] = (uint8_t)clamp(y[i] + red + scale(red, 26345), 0, 255);
        rgb[1][i] = (uint8_t)clamp(y[i] - red + mixed, 0, 255);
        rgb[2][i] = (uint8_t)clamp(y[i] + 2 * blue + scale(blue, -14942), 0, 255);
    }
}

void stk_jpeg_scalar_to_rgbx(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                             uint8_t *out)
{
    uint8_t rgb[3][COLOR_PIXELS];

    for (uint32_t i = 0; i < count; i += COLOR_PIXELS) {
        uint32_t part = (uint32_t)stk_min(count - i, COLOR_PIXELS);

        convert_colors(y + i, cb + i, cr + i, part, rgb);
        stk_jpeg_scalar_interleave(rgb[0], rgb[1], rgb[2], part, out + 4 * (size_t)i);
    }
}

void stk_jpeg_scalar_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b,
                                uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t pixel[4] = {r[i], g[i], b[i], 255};

        memcpy(out + 4 * (size_t)i, pixel, sizeof pixel);
    }
}

const struct stk_jpeg_kernels stk_jpeg_kernels_scalar = {
    .name = "none",
    .entropy = &stk_jpeg_entropy_scalar,
    .coefficient_index = scalar_coefficient_index,
    .idct = scalar_idct,
    .upsample_h2v1 = scalar_h2v1,
    .upsample_h1v2 = scalar_h1v2,
    .upsample_h2v2 = scalar_h2v2,
    .to_rgbx = stk_jpeg_scalar_to_rgbx,
    .interleave = stk_jpeg_scalar_interleave,
};
