/* The sample kernels in plain C: what the vector file must equal, byte by byte. */
#include "jpeg/planes.h"

#include <string.h>

/* ---- inverse transform -------------------------------------------------------------------- */

/* Loeffler, Ligtenberg and Moschytz' one-dimensional transform (ICASSP 1989), as libjpeg's
 * jidctint.c arranges it and with the rotations multiplied out into two products each. Inputs are
 * 16 bits, and so are the sums in0 +- in4, in7 + in3 and in5 + in1: they wrap. Everything else is
 * modulo 2^32. */
static void transform_eight(const int16_t *in, int32_t *out, uint32_t shift)
{
    const int32_t half = 1 << (shift - 1);
    int32_t z3 = (int16_t)(in[7] + in[3]), z4 = (int16_t)(in[5] + in[1]);
    int32_t even0 = (int16_t)(in[0] + in[4]) * (1 << STK_JPEG_CONST_BITS) + half;
    int32_t even1 = (int16_t)(in[0] - in[4]) * (1 << STK_JPEG_CONST_BITS) + half;
    int32_t turn2 = in[2] * STK_JPEG_0_541 + in[6] * (STK_JPEG_0_541 - STK_JPEG_1_847);
    int32_t turn3 = in[2] * (STK_JPEG_0_541 + STK_JPEG_0_765) + in[6] * STK_JPEG_0_541;
    int32_t turn7 = z3 * (STK_JPEG_1_175 - STK_JPEG_1_961) + z4 * STK_JPEG_1_175;
    int32_t turn5 = z3 * STK_JPEG_1_175 + z4 * (STK_JPEG_1_175 - STK_JPEG_0_390);
    uint32_t odd[4], even[4];

    odd[0] = (uint32_t)(in[7] * (STK_JPEG_0_298 - STK_JPEG_0_899) - in[1] * STK_JPEG_0_899) +
             (uint32_t)turn7;
    odd[1] = (uint32_t)(in[5] * (STK_JPEG_2_053 - STK_JPEG_2_562) - in[3] * STK_JPEG_2_562) +
             (uint32_t)turn5;
    odd[2] = (uint32_t)(in[3] * (STK_JPEG_3_072 - STK_JPEG_2_562) - in[5] * STK_JPEG_2_562) +
             (uint32_t)turn7;
    odd[3] = (uint32_t)(in[1] * (STK_JPEG_1_501 - STK_JPEG_0_899) - in[7] * STK_JPEG_0_899) +
             (uint32_t)turn5;
    even[0] = (uint32_t)even0 + (uint32_t)turn3;
    even[1] = (uint32_t)even1 + (uint32_t)turn2;
    even[2] = (uint32_t)even1 - (uint32_t)turn2;
    even[3] = (uint32_t)even0 - (uint32_t)turn3;
    for (int i = 0; i < 4; i++) {
        out[i] = (int32_t)(even[i] + odd[3 - i]) >> shift;
        out[7 - i] = (int32_t)(even[i] - odd[3 - i]) >> shift;
    }
}

static int32_t clamp(int32_t value, int32_t low, int32_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Whether only the first row of the block is not zero. */
static bool is_flat(const int16_t *block)
{
    int32_t any = 0;

    for (uint32_t i = 0; i < 16; i += 2) {
        any |= block[i + 1]; /* row 4 */
    }
    for (uint32_t i = 16; i < 64; i++) {
        any |= block[i];
    }
    return any == 0;
}

static void plain_transform(const int16_t *block, const int16_t *quantiser, uint8_t *to,
                            size_t stride)
{
    int16_t columns[8][8], rows[8][8]; /* [column][row], [row][column] */
    int32_t out[8];
    bool flat = is_flat(block);

    for (uint32_t x = 0; x < 8; x++) {
        for (uint32_t y = 0; y < 8; y++) {
            uint32_t place = stk_jpeg_place(y, x);

            columns[x][y] = (int16_t)(block[place] * quantiser[place]);
        }
        if (!flat) {
            transform_eight(columns[x], out, STK_JPEG_CONST_BITS - STK_JPEG_PASS1_BITS);
        }
        for (uint32_t y = 0; y < 8; y++) {
            /* The vector code leaves a transform of one row out: there it wraps, here it stops. */
            rows[y][x] = (int16_t)(flat ? columns[x][0] * (1 << STK_JPEG_PASS1_BITS)
                                        : clamp(out[y], INT16_MIN, INT16_MAX));
        }
    }
    for (uint32_t y = 0; y < 8; y++) {
        transform_eight(rows[y], out, STK_JPEG_CONST_BITS + STK_JPEG_PASS1_BITS + 3);
        for (uint32_t x = 0; x < 8; x++) {
            to[y * stride + x] = (uint8_t)(clamp(out[x], -128, 127) + 128);
        }
    }
}

/* ---- upsampling --------------------------------------------------------------------------- */

static void plain_wide(const uint8_t *in, uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t near = 3u * in[i];

        out[2 * i] = (uint8_t)((near + *(in + i - 1) + 1) >> 2);
        out[2 * i + 1] = (uint8_t)((near + in[i + 1] + 2) >> 2);
    }
}

static void plain_high(const uint8_t *near, const uint8_t *far, bool below, uint32_t count,
                       uint8_t *out)
{
    uint32_t bias = below ? 2 : 1;

    for (uint32_t i = 0; i < count; i++) {
        out[i] = (uint8_t)((3u * near[i] + far[i] + bias) >> 2);
    }
}

static uint32_t column_sum(const uint8_t *near, const uint8_t *far, ptrdiff_t i)
{
    return 3u * near[i] + far[i];
}

static void plain_wide_and_high(const uint8_t *near, const uint8_t *far, uint32_t count,
                                uint8_t *out)
{
    uint32_t last = column_sum(near, far, -1), sum = column_sum(near, far, 0);

    for (uint32_t i = 0; i < count; i++) {
        uint32_t next = column_sum(near, far, (ptrdiff_t)i + 1);

        out[2 * i] = (uint8_t)((3 * sum + last + 8) >> 4);
        out[2 * i + 1] = (uint8_t)((3 * sum + next + 7) >> 4);
        last = sum;
        sum = next;
    }
}

/* ---- colours ------------------------------------------------------------------------------ */

/* 2^16 times 1.402, 1.772, 0.34414 and 0.71414 (JFIF), rounded. */
#define RED_OF_CR 91881
#define BLUE_OF_CB 116130
#define GREEN_OF_CB 22554
#define GREEN_OF_CR 46802
#define COLOR_HALF 32768

void stk_jpeg_plain_colors(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                           uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++, out += 4) {
        int32_t blue = cb[i] - 128, red = cr[i] - 128;
        int32_t green = -GREEN_OF_CB * blue - GREEN_OF_CR * red + COLOR_HALF;

        out[0] = (uint8_t)clamp(y[i] + ((RED_OF_CR * red + COLOR_HALF) >> 16), 0, 255);
        out[1] = (uint8_t)clamp(y[i] + (green >> 16), 0, 255);
        out[2] = (uint8_t)clamp(y[i] + ((BLUE_OF_CB * blue + COLOR_HALF) >> 16), 0, 255);
        out[3] = 255;
    }
}

void stk_jpeg_plain_copy(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint32_t count,
                         uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++, out += 4) {
        out[0] = r[i];
        out[1] = g[i];
        out[2] = b[i];
        out[3] = 255;
    }
}

/* ---- the choice --------------------------------------------------------------------------- */

static const struct stk_jpeg_kernels plain_kernels = {
    .name = "none",
    .entropy = &stk_jpeg_entropy_plain,
    .transform = plain_transform,
    .wide = plain_wide,
    .high = plain_high,
    .wide_and_high = plain_wide_and_high,
    .colors = stk_jpeg_plain_colors,
    .copy = stk_jpeg_plain_copy,
};

static const struct stk_jpeg_kernels *vector_kernels(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
        return &stk_jpeg_kernels_avx2;
    }
#endif
    return NULL;
}

const struct stk_jpeg_kernels *stk_jpeg_kernels_get(uint32_t vector)
{
    const struct stk_jpeg_kernels *found = NULL;

    if (vector != STOKER_VECTOR_NONE) {
        found = vector_kernels();
    }
    return found || vector == STOKER_VECTOR_AVX2 ? found : &plain_kernels;
}
