/* The inner loops that take the time in vectors of 16 bytes: SSE2, which every x86-64 has, for
 * those without AVX2; and NEON. */
#include "base/simd.h"
#include "decode/pixel/pixel_kernels_inner.h"
#include "decode/pixel/resize_weights.h"

#if defined(STK_SIMD)

#    include <string.h>

/* ---- horizontal ---- */

/* One output as 32-bit RGBX sums. wide: the first of its halves of blocks of 16. */
INLINE v128 sum_one(const uint8_t *in, const int16_t *wide, uint32_t quads, v128 half)
{
    const v128 zero = v_all8(0);
    v128 sum = half;

    for (uint32_t q = 0; q < quads; q++, in += 16, wide += 32) {
        v128 pixels = v_load(in);
        v128 low = v_mix_low8(pixels, zero), high = v_mix_high8(pixels, zero);

        low = v_mix_low16(low, v_high(low)); /* pairs of two pixels */
        high = v_mix_low16(high, v_high(high));
        sum = v_add32(sum, v_dot(low, v_load(wide)));
        sum = v_add32(sum, v_dot(high, v_load(wide + 16)));
    }
    return sum;
}

static void simd_horizontal(const struct stk_resize_weights *axis, const uint8_t *in, uint8_t *out)
{
    const v128 half = v_all32(1 << (axis->shift - 1));
    const uint32_t quads = axis->stride / 4;
    const size_t block = 32 * (size_t)quads; /* wide weights of two outputs */

    for (uint32_t x = 0; x < axis->count; x += 4) {
        v128 sums[4];

        for (uint32_t i = 0; i < 4; i++) {
            const int16_t *wide = axis->wide + (x + i) / 2 * block + i % 2 * 8;

            sums[i] = sum_one(in + 4 * (size_t)axis->first[x + i], wide, quads, half);
            sums[i] = v_right32(sums[i], axis->shift);
        }
        v_store(out + 4 * (size_t)x,
                v_narrow_u8(v_narrow32(sums[0], sums[1]), v_narrow32(sums[2], sums[3])));
    }
}

/* ---- vertical ---- */

/* 16 bytes of an output row. */
INLINE void vertical_block(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                           uint32_t shift, size_t at, uint8_t *out)
{
    const v128 zero = v_all8(0);
    v128 sums[4];

    for (int i = 0; i < 4; i++) {
        sums[i] = v_all32(1 << (shift - 1));
    }
    for (uint32_t t = 0; t < taps; t += 2) {
        v128 a = v_load(rows[t] + at), b = t + 1 < taps ? v_load(rows[t + 1] + at) : zero;
        v128 low = v_mix_low8(a, b), high = v_mix_high8(a, b), weight;
        int32_t pair;

        memcpy(&pair, weights + t, sizeof(pair));
        weight = v_all32(pair);
        sums[0] = v_add32(sums[0], v_dot(v_mix_low8(low, zero), weight));
        sums[1] = v_add32(sums[1], v_dot(v_mix_high8(low, zero), weight));
        sums[2] = v_add32(sums[2], v_dot(v_mix_low8(high, zero), weight));
        sums[3] = v_add32(sums[3], v_dot(v_mix_high8(high, zero), weight));
    }
    for (int i = 0; i < 4; i++) {
        sums[i] = v_right32(sums[i], shift);
    }
    v_store(out + at, v_narrow_u8(v_narrow32(sums[0], sums[1]), v_narrow32(sums[2], sums[3])));
}

static void simd_vertical(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                          uint32_t shift, uint32_t bytes, uint8_t *out)
{
    if (bytes < 16) {
        stk_pixel_scalar_vertical(rows, weights, taps, shift, bytes, out);
        return;
    }
    for (size_t at = 0; at < bytes; at += 16) {
        vertical_block(rows, weights, taps, shift, at + 16 <= bytes ? at : bytes - 16, out);
    }
}

/* ---- four rows ---- */

static void simd_interleave(const uint8_t *const rows[4], uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i += 16) {
        v128 a = v_load(rows[0] + i), b = v_load(rows[1] + i);
        v128 c = v_load(rows[2] + i), d = v_load(rows[3] + i);
        v128 ab = v_mix_low8(a, b), cd = v_mix_low8(c, d);
        uint8_t *to = out + 4 * (size_t)i;

        v_store(to, v_mix_low16(ab, cd));
        v_store(to + 16, v_mix_high16(ab, cd));
        ab = v_mix_high8(a, b);
        cd = v_mix_high8(c, d);
        v_store(to + 32, v_mix_low16(ab, cd));
        v_store(to + 48, v_mix_high16(ab, cd));
    }
}

/* ---- convert ---- */

static void simd_convert(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                         void *slot)
{
    const size_t plane = (size_t)convert->width * convert->height;
    const size_t row = (size_t)y * convert->width;
    const v128 byte = v_all32(255);
    uint32_t x = 0;

    if (convert->dtype != STOKER_FLOAT32 || convert->layout != STOKER_NCHW) {
        stk_pixel_scalar_convert_from(convert, rgbx, 0, y, slot);
        return;
    }
    for (; x + 4 <= convert->width; x += 4) {
        v128 pixels = v_load(rgbx + 4 * (size_t)x);

        for (int c = 0; c < 3; c++) {
            v128 values = v_and(v_right_u32(pixels, 8 * (uint32_t)c), byte);

            v_store_scaled((float *)slot + plane * (size_t)c + row + x, values, convert->scale[c],
                           convert->bias[c]);
        }
    }
    stk_pixel_scalar_convert_from(convert, rgbx, x, y, slot);
}

static const struct stk_pixel_kernels simd_kernels = {
    .name = STK_SIMD,
    .horizontal = simd_horizontal,
    .vertical = simd_vertical,
    .interleave = simd_interleave,
    .deinterleave = stk_pixel_scalar_deinterleave,
    .convert = simd_convert,
    .recolor = stk_pixel_scalar_recolor,
    .grey_sum = stk_pixel_scalar_grey_sum,
};

const struct stk_pixel_kernels *stk_pixel_kernels_simd(void)
{
    return &simd_kernels;
}

#else

const struct stk_pixel_kernels *stk_pixel_kernels_simd(void)
{
    return NULL;
}

#endif
