/* The sample kernels in vectors of 16 bytes: SSE2, which every x86-64 has, for those without AVX2;
 * and NEON. */
#include "base/simd.h"
#include "decode/jpeg/jpeg_planes.h"

#if defined(STK_SIMD)

/* 8 bytes as 16-bit numbers. */
INLINE v128 load_wide(const uint8_t *from)
{
    return v_mix_low8(v_load_half(from), v_all8(0));
}

/* ---- inverse transform: see jpeg_planes.c; eight columns of 16 bits, four of 32 at a time
 * -------- */

static uint32_t simd_coefficient_index(uint32_t row, uint32_t column)
{
    return row * 8 + column;
}

/* Sums of products of pairs: low * first + high * second. */
INLINE v128 turn(v128 pairs, int first, int second)
{
    return v_dot(pairs, v_all32((int)((uint32_t)second << 16 | (uint16_t)first)));
}

/* Four 16-bit numbers, the upper halves of `high`, times 2^13, and half. */
INLINE v128 even_part(v128 high, v128 half)
{
    return v_add32(v_right32(high, 16 - STK_JPEG_CONST_BITS), half);
}

/* Four columns: pairs in2 in6, in7 in1, in3 in5 and (in7 + in3) (in5 + in1); in0 + in4 and
 * in0 - in4 as upper halves. */
INLINE void transform_four(const v128 in[6], int shift, v128 out[8])
{
    const v128 half = v_all32(1 << (shift - 1));
    v128 even0 = even_part(in[4], half), even1 = even_part(in[5], half);
    v128 turn2 = turn(in[0], STK_JPEG_0_541, STK_JPEG_0_541 - STK_JPEG_1_847);
    v128 turn3 = turn(in[0], STK_JPEG_0_541 + STK_JPEG_0_765, STK_JPEG_0_541);
    v128 turn7 = turn(in[3], STK_JPEG_1_175 - STK_JPEG_1_961, STK_JPEG_1_175);
    v128 turn5 = turn(in[3], STK_JPEG_1_175, STK_JPEG_1_175 - STK_JPEG_0_390);
    v128 odd[4], even[4];

    odd[0] = v_add32(turn7, turn(in[1], STK_JPEG_0_298 - STK_JPEG_0_899, -STK_JPEG_0_899));
    odd[1] = v_add32(turn5, turn(in[2], -STK_JPEG_2_562, STK_JPEG_2_053 - STK_JPEG_2_562));
    odd[2] = v_add32(turn7, turn(in[2], STK_JPEG_3_072 - STK_JPEG_2_562, -STK_JPEG_2_562));
    odd[3] = v_add32(turn5, turn(in[1], -STK_JPEG_0_899, STK_JPEG_1_501 - STK_JPEG_0_899));
    even[0] = v_add32(even0, turn3);
    even[1] = v_add32(even1, turn2);
    even[2] = v_sub32(even1, turn2);
    even[3] = v_sub32(even0, turn3);
    for (int i = 0; i < 4; i++) {
        out[i] = v_right32(v_add32(even[i], odd[3 - i]), shift);
        out[7 - i] = v_right32(v_sub32(even[i], odd[3 - i]), shift);
    }
}

INLINE void transform_columns(v128 rows[8], int shift)
{
    const v128 zero = v_all8(0);
    v128 z3 = v_add16(rows[7], rows[3]), z4 = v_add16(rows[5], rows[1]);
    v128 sum = v_add16(rows[0], rows[4]), less = v_sub16(rows[0], rows[4]);
    const v128 low[6] = {v_mix_low16(rows[2], rows[6]), v_mix_low16(rows[7], rows[1]),
                         v_mix_low16(rows[3], rows[5]), v_mix_low16(z3, z4),
                         v_mix_low16(zero, sum),        v_mix_low16(zero, less)};
    const v128 high[6] = {v_mix_high16(rows[2], rows[6]), v_mix_high16(rows[7], rows[1]),
                          v_mix_high16(rows[3], rows[5]), v_mix_high16(z3, z4),
                          v_mix_high16(zero, sum),        v_mix_high16(zero, less)};
    v128 left[8], right[8];

    transform_four(low, shift, left);
    transform_four(high, shift, right);
    for (int i = 0; i < 8; i++) {
        rows[i] = v_narrow32(left[i], right[i]);
    }
}

INLINE void transpose(v128 rows[8])
{
    v128 a[8], b[8];

    for (int i = 0; i < 4; i++) {
        a[2 * i] = v_mix_low16(rows[i], rows[i + 4]);
        a[2 * i + 1] = v_mix_high16(rows[i], rows[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        b[2 * i] = v_mix_low16(a[i], a[i + 4]);
        b[2 * i + 1] = v_mix_high16(a[i], a[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        rows[2 * i] = v_mix_low16(b[i], b[i + 4]);
        rows[2 * i + 1] = v_mix_high16(b[i], b[i + 4]);
    }
}

static void simd_idct(const int16_t *block, const int16_t *quantiser, uint8_t *to, size_t stride)
{
    v128 rows[8], rest = v_all8(0);

    for (int i = 0; i < 8; i++) {
        v128 row = v_load(block + 8 * i);

        rest = i > 0 ? v_or(rest, row) : rest;
        rows[i] = v_multiply16(row, v_load(quantiser + 8 * i));
    }
    if (v_is_zero(rest)) {
        rows[0] = v_left16(rows[0], STK_JPEG_PASS1_BITS); /* wraps: see jpeg_planes.c */
        for (int i = 1; i < 8; i++) {
            rows[i] = rows[0];
        }
    } else {
        transform_columns(rows, STK_JPEG_CONST_BITS - STK_JPEG_PASS1_BITS);
    }
    transpose(rows);
    transform_columns(rows, STK_JPEG_CONST_BITS + STK_JPEG_PASS1_BITS + 3);
    transpose(rows);
    for (int i = 0; i < 8; i++) {
        v128 bytes = v_narrow16(rows[i], rows[i]);

        bytes = v_add8(bytes, v_all8(-128));
        v_store_half((to + (size_t)i * stride), bytes);
    }
}

/* ---- upsampling: 8 samples at a time, beyond `count` into the rows' slack ------------------- */

INLINE v128 three(v128 value)
{
    return v_add16(value, v_add16(value, value));
}

/* Left and right samples of each, side by side as bytes. */
INLINE v128 side_by_side(v128 left, v128 right)
{
    return v_or(left, v_left16(right, 8));
}

static void simd_h2v1(const uint8_t *in, uint32_t count, uint8_t *out)
{
    const v128 one = v_all16(1), two = v_all16(2);

    for (uint32_t i = 0; i < count; i += 8) {
        v128 near = three(load_wide(in + i));
        v128 left = v_add16(v_add16(near, load_wide(in + i - 1)), one);
        v128 right = v_add16(v_add16(near, load_wide(in + i + 1)), two);

        v_store(out + 2 * i, side_by_side(v_right_u16(left, 2), v_right_u16(right, 2)));
    }
}

INLINE v128 column_sums(const uint8_t *near, const uint8_t *far)
{
    return v_add16(three(load_wide(near)), load_wide(far));
}

static void simd_h1v2(const uint8_t *near, const uint8_t *far, bool below, uint32_t count,
                      uint8_t *out)
{
    const v128 bias = v_all16(below ? 2 : 1);

    for (uint32_t i = 0; i < count; i += 8) {
        v128 sum = v_add16(column_sums(near + i, far + i), bias);

        sum = v_right_u16(sum, 2);
        v_store_half((out + i), v_narrow_u8(sum, sum));
    }
}

static void simd_h2v2(const uint8_t *near, const uint8_t *far, uint32_t count, uint8_t *out)
{
    const v128 seven = v_all16(7), eight = v_all16(8);

    for (uint32_t i = 0; i < count; i += 8) {
        v128 last = column_sums(near + i - 1, far + i - 1);
        v128 sum = three(column_sums(near + i, far + i));
        v128 next = column_sums(near + i + 1, far + i + 1);
        v128 left = v_add16(v_add16(sum, last), eight);
        v128 right = v_add16(v_add16(sum, next), seven);

        v_store(out + 2 * i, side_by_side(v_right_u16(left, 4), v_right_u16(right, 4)));
    }
}

/* ---- colours: 8 pixels at a time; the last 8 of a row take some of those before again -------- */

INLINE void store_pixels(v128 red, v128 green, v128 blue, uint8_t *out)
{
    v128 rg = v_narrow_u8(red, green);
    v128 bx = v_narrow_u8(blue, v_all16(255));
    v128 rb = v_mix_low8(rg, bx), gx = v_mix_high8(rg, bx);

    v_store(out, v_mix_low8(rb, gx));
    v_store(out + 16, v_mix_high8(rb, gx));
}

/* (factor * x + 2^15) >> 16 of x = twice / 2: see jpeg_planes.c. */
INLINE v128 scale(v128 twice, int factor)
{
    v128 product = v_multiply_high16(twice, v_all16((int16_t)factor));

    return v_right16(v_add16(product, v_all16(1)), 1);
}

INLINE v128 green_part(v128 blue, v128 red)
{
    const v128 half = v_all32(1 << 15);
    v128 low = turn(v_mix_low16(blue, red), -22554, 18734);
    v128 high = turn(v_mix_high16(blue, red), -22554, 18734);

    low = v_right32(v_add32(low, half), 16);
    high = v_right32(v_add32(high, half), 16);
    return v_sub16(v_narrow32(low, high), red);
}

INLINE void colors_of_8(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out)
{
    const v128 center = v_all16(128);
    v128 light = load_wide(y);
    v128 blue = v_sub16(load_wide(cb), center);
    v128 red = v_sub16(load_wide(cr), center);
    v128 twice_blue = v_add16(blue, blue);
    v128 r = v_add16(scale(v_add16(red, red), 26345), red);
    v128 b = v_add16(scale(twice_blue, -14942), twice_blue);

    store_pixels(v_add16(light, r), v_add16(light, green_part(blue, red)), v_add16(light, b), out);
}

static void simd_to_rgbx(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                         uint8_t *out)
{
    if (count < 8) {
        stk_jpeg_scalar_to_rgbx(y, cb, cr, count, out);
        return;
    }
    for (uint32_t i = 0; i < count; i += 8) {
        uint32_t at = i + 8 <= count ? i : count - 8;

        colors_of_8(y + at, cb + at, cr + at, out + 4 * (size_t)at);
    }
}

static void simd_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint32_t count,
                            uint8_t *out)
{
    if (count < 8) {
        stk_jpeg_scalar_interleave(r, g, b, count, out);
        return;
    }
    for (uint32_t i = 0; i < count; i += 8) {
        uint32_t at = i + 8 <= count ? i : count - 8;

        store_pixels(load_wide(r + at), load_wide(g + at), load_wide(b + at), out + 4 * (size_t)at);
    }
}

static const struct stk_jpeg_kernels simd_kernels = {
    .name = STK_SIMD,
    .entropy = &stk_jpeg_entropy_scalar,
    .coefficient_index = simd_coefficient_index,
    .idct = simd_idct,
    .upsample_h2v1 = simd_h2v1,
    .upsample_h1v2 = simd_h1v2,
    .upsample_h2v2 = simd_h2v2,
    .to_rgbx = simd_to_rgbx,
    .interleave = simd_interleave,
};

const struct stk_jpeg_kernels *stk_jpeg_kernels_simd(void)
{
    return &simd_kernels;
}

#else

const struct stk_jpeg_kernels *stk_jpeg_kernels_simd(void)
{
    return NULL;
}

#endif
