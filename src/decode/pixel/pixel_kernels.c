/* The inner loops in plain C: the vector files must match them byte by byte. */
#include "decode/pixel/pixel_kernels.h"

#include "decode/pixel/color_jitter.h"
#include "decode/pixel/pixel_kernels_inner.h"
#include "decode/pixel/resize_weights.h"

#include <string.h>

#if defined(__x86_64__)
#    include <cpuid.h>

#else
static const struct stk_pixel_kernels *vector_kernels(void)
{
    return NULL;
}
#endif

static uint8_t clamp(int32_t value)
{
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

void stk_pixel_scalar_horizontal(const struct stk_resize_weights *axis, const uint8_t *in,
                                 uint8_t *out)
{
    for (uint32_t x = 0; x < axis->count; x++) {
        const uint8_t *from = in + 4 * (size_t)axis->first[x];
        const int16_t *weights = axis->weights + (size_t)x * axis->stride;
        int32_t sums[4];

        for (int c = 0; c < 4; c++) {
            sums[c] = 1 << (axis->shift - 1);
        }
        for (uint32_t t = 0; t < axis->taps[x]; t++) {
            for (int c = 0; c < 4; c++) {
                sums[c] += from[4 * (size_t)t + c] * weights[t];
            }
        }
        for (int c = 0; c < 4; c++) {
            out[4 * (size_t)x + c] = clamp(sums[c] >> axis->shift);
        }
    }
}

/* Bytes summed at a time, so that the sums stay in registers or at least in the first cache. */
#define STRIP 64u

void stk_pixel_scalar_vertical(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                               uint32_t shift, uint32_t bytes, uint8_t *out)
{
    for (uint32_t start = 0; start < bytes; start += STRIP) {
        uint32_t count = bytes - start < STRIP ? bytes - start : STRIP;
        int32_t sums[STRIP];

        for (uint32_t i = 0; i < count; i++) {
            sums[i] = 1 << (shift - 1);
        }
        for (uint32_t t = 0; t < taps; t++) {
            const uint8_t *row = rows[t] + start;

            for (uint32_t i = 0; i < count; i++) {
                sums[i] += row[i] * weights[t];
            }
        }
        for (uint32_t i = 0; i < count; i++) {
            out[start + i] = clamp(sums[i] >> shift);
        }
    }
}

static void scalar_interleave(const uint8_t *const rows[4], uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        for (int r = 0; r < 4; r++) {
            out[4 * (size_t)i + r] = rows[r][i];
        }
    }
}

void stk_pixel_scalar_deinterleave(const uint8_t *in, uint32_t count, uint8_t *const rows[4])
{
    for (uint32_t i = 0; i < count; i++) {
        for (int r = 0; r < 4; r++) {
            rows[r][i] = in[4 * (size_t)i + r];
        }
    }
}

/* Value `index` of a slot. */
static void store(const struct stk_pixel_convert *convert, void *slot, size_t index, int channel,
                  uint8_t value)
{
    float real;

    switch (convert->dtype) {
    case STOKER_UINT8:
        ((uint8_t *)slot)[index] = value;
        break;
    case STOKER_FLOAT32:
        /* Built with -ffp-contract=off: a product, rounded, and a sum, rounded. */
        real = (float)value * convert->scale[channel];
        ((float *)slot)[index] = real + convert->bias[channel];
        break;
    default:
        ((uint16_t *)slot)[index] = convert->table[channel][value];
        break;
    }
}

void stk_pixel_scalar_convert_from(const struct stk_pixel_convert *convert, const uint8_t *rgbx,
                                   uint32_t x, uint32_t y, void *slot)
{
    size_t plane = (size_t)convert->width * convert->height;
    size_t row = (size_t)y * convert->width;

    for (; x < convert->width; x++) {
        for (int c = 0; c < 3; c++) {
            size_t index = convert->layout == STOKER_NHWC ? (row + x) * 3 + (size_t)c
                                                          : plane * (size_t)c + row + x;

            store(convert, slot, index, c, rgbx[4 * (size_t)x + c]);
        }
    }
}

static void scalar_convert(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                           void *slot)
{
    stk_pixel_scalar_convert_from(convert, rgbx, 0, y, slot);
}

/* The share of the full colour, in [0, STK_COLOR_HUE_SIXTH], at a distance from it on the circle.
 */
static int32_t hue_ramp(int32_t value)
{
    return value < 0 ? 0 : value > STK_COLOR_HUE_SIXTH ? STK_COLOR_HUE_SIXTH : value;
}

/* 16 fraction bits to 8 bits as torchvision converts [0, 1]: trunc(value * 255.999). */
static uint8_t hue_channel(int32_t low, int32_t range, int32_t share)
{
    int32_t value = (low << 16) + range * share;

    return (uint8_t)((value + (((value >> 8) * 1027) >> 10)) >> 16);
}

static int32_t distance(int32_t a, int32_t b)
{
    return a < b ? b - a : a - b;
}

static void rotate_hue(const struct stk_color_transform *recolor, uint8_t *pixel)
{
    int32_t red = pixel[0], green = pixel[1], blue = pixel[2];
    int32_t high = red > green ? red : green, low = red < green ? red : green, range, hue;

    high = high > blue ? high : blue;
    low = low < blue ? low : blue;
    range = high - low;
    /* The hexagon: red at 0, green at 2, blue at 4 sixths. */
    if (high == red) {
        hue = ((green - blue) * recolor->reciprocal[range]) >> 8;
    } else if (high == green) {
        hue = (((blue - red) * recolor->reciprocal[range]) >> 8) + 2 * STK_COLOR_HUE_SIXTH;
    } else {
        hue = (((red - green) * recolor->reciprocal[range]) >> 8) + 4 * STK_COLOR_HUE_SIXTH;
    }
    hue += recolor->turn;
    hue += hue < 0 ? STK_COLOR_HUE_CIRCLE : 0;
    hue -= hue >= STK_COLOR_HUE_CIRCLE ? STK_COLOR_HUE_CIRCLE : 0;
    pixel[0] = hue_channel(low, range,
                           hue_ramp(distance(hue, 3 * STK_COLOR_HUE_SIXTH) - STK_COLOR_HUE_SIXTH));
    pixel[1] = hue_channel(
        low, range, hue_ramp(2 * STK_COLOR_HUE_SIXTH - distance(hue, 2 * STK_COLOR_HUE_SIXTH)));
    pixel[2] = hue_channel(
        low, range, hue_ramp(2 * STK_COLOR_HUE_SIXTH - distance(hue, 4 * STK_COLOR_HUE_SIXTH)));
}

void stk_pixel_scalar_recolor(const struct stk_color_transform *recolor, uint8_t *rgbx,
                              uint64_t pixels)
{
    for (uint8_t *pixel = rgbx; pixel < rgbx + 4 * pixels; pixel += 4) {
        if (recolor->hue) {
            rotate_hue(recolor, pixel);
        } else {
            int32_t grey = stk_color_grey(pixel[0], pixel[1], pixel[2]);
            int32_t add = grey * recolor->grey_share + recolor->add;

            for (int c = 0; c < 3; c++) {
                pixel[c] = clamp((pixel[c] * recolor->own + add) >> 16);
            }
        }
    }
}

uint64_t stk_pixel_scalar_grey_sum(const uint8_t *rgbx, uint64_t pixels)
{
    uint64_t sum = 0;

    for (const uint8_t *pixel = rgbx; pixel < rgbx + 4 * pixels; pixel += 4) {
        sum += (uint64_t)stk_color_grey(pixel[0], pixel[1], pixel[2]);
    }
    return sum;
}

const struct stk_pixel_kernels stk_pixel_kernels_scalar = {
    .name = "none",
    .horizontal = stk_pixel_scalar_horizontal,
    .vertical = stk_pixel_scalar_vertical,
    .interleave = scalar_interleave,
    .deinterleave = stk_pixel_scalar_deinterleave,
    .convert = scalar_convert,
    .recolor = stk_pixel_scalar_recolor,
    .grey_sum = stk_pixel_scalar_grey_sum,
};

uint32_t stk_pixel_bytes(uint32_t dtype)
{
    switch (dtype) {
    case STOKER_UINT8:
        return 1;
    case STOKER_FLOAT32:
        return 4;
    case STOKER_FLOAT16:
    case STOKER_BFLOAT16:
        return 2;
    default:
        return 0;
    }
}

static uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* Shifts out low bits, to nearest, ties to even. */
static uint32_t shift_rounded(uint32_t value, uint32_t bits)
{
    uint32_t half = 1u << (bits - 1), rest = value & ((1u << bits) - 1);

    value >>= bits;
    return value + (rest > half || (rest == half && (value & 1)));
}

/* IEEE 754 binary16, to nearest, ties to even; finite in. Same as the F16C instructions. */
static uint16_t to_float16(float value)
{
    uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000, size = bits & 0x7fffffff;
    uint32_t exponent = size >> 23, result;

    if (exponent >= 127 + 16) {
        result = 0x7c00; /* too large: infinity */
    } else if (exponent >= 127 - 14) {
        /* A carry out of the fraction increments the exponent, up to infinity, as required. */
        result = shift_rounded(size - ((127 - 15) << 23), 13);
    } else if (exponent >= 127 - 25) {
        result = shift_rounded((size & 0x7fffff) | 0x800000, 126 - exponent);
    } else {
        result = 0; /* less than half of the smallest subnormal */
    }
    return (uint16_t)(sign | result);
}

/* The upper half of a binary32, to nearest, ties to even; finite in. */
static uint16_t to_bfloat16(float value)
{
    return (uint16_t)shift_rounded(float_bits(value), 16);
}

void stk_pixel_convert_init(struct stk_pixel_convert *convert, const float *mean, const float *std)
{
    convert->normalize = mean && std;
    for (int c = 0; c < 3; c++) {
        double scale = 1.0 / 255.0, bias = 0.0;

        if (convert->normalize) {
            scale = 1.0 / (255.0 * (double)std[c]);
            bias = -(double)mean[c] / (double)std[c];
        }
        convert->scale[c] = (float)scale;
        convert->bias[c] = (float)bias;
        for (int value = 0; value < 256; value++) {
            float real = (float)value * convert->scale[c];

            real += convert->bias[c];
            convert->table[c][value] =
                convert->dtype == STOKER_FLOAT16 ? to_float16(real) : to_bfloat16(real);
        }
    }
}
