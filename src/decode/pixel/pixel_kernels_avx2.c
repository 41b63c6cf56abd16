/* The inner loops in AVX2 and F16C. Sums of 16-bit products are exact in 32 bits, floats take
 * one multiplication and one addition each, so the bytes are those of the plain loops. */
#include "decode/pixel/color_jitter.h"
#include "decode/pixel/pixel_kernels_inner.h"
#include "decode/pixel/resize_shuffles.h"
#include "decode/pixel/resize_weights.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load256(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

INLINE __m128i load128(const void *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

INLINE void store128(void *to, __m128i value)
{
    _mm_storeu_si128((__m128i *)to, value);
}

/* ---- horizontal ---- */

/* Outputs x and x + 1 as 32-bit RGBX sums, one in each half. wide: their blocks. Four taps are
 * 16 bytes of each row place: bytes of two pixels are spread into pairs for the multiplication. */
INLINE __m256i sum_two(const uint8_t *in, const uint32_t *first, const int16_t *wide,
                       uint32_t quads, __m256i half)
{
    const __m256i spread = _mm256_setr_epi8(0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
                                            0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1);
    const __m256i spread_high =
        _mm256_setr_epi8(8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1, //
                         8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, 11, -1, 15, -1);
    const uint8_t *a = in + 4 * (size_t)first[0], *b = in + 4 * (size_t)first[1];
    __m256i sum = half;

    for (uint32_t q = 0; q < quads; q++, a += 16, b += 16, wide += 32) {
        __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(a)), load128(b), 1);
        __m256i low = _mm256_shuffle_epi8(pixels, spread);
        __m256i high = _mm256_shuffle_epi8(pixels, spread_high);

        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, load256(wide)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(high, load256(wide + 16)));
    }
    return sum;
}

INLINE void horizontal_quads(const struct stk_resize_weights *axis, const uint8_t *in, uint8_t *out,
                             uint32_t quads)
{
    const __m256i half = _mm256_set1_epi32(1 << (axis->shift - 1));
    const __m128i shift = _mm_cvtsi32_si128((int)axis->shift);
    const size_t block = 32 * (size_t)quads; /* wide weights of two outputs */

    for (uint32_t x = 0; x < axis->count; x += 4) {
        const int16_t *wide = axis->wide + x / 2 * block;
        __m256i a = sum_two(in, axis->first + x, wide, quads, half);
        __m256i b = sum_two(in, axis->first + x + 2, wide + block, quads, half);

        a = _mm256_sra_epi32(a, shift);
        b = _mm256_sra_epi32(b, shift);
        a = _mm256_packs_epi32(a, b);  /* outputs 0 2 | 1 3 */
        a = _mm256_packus_epi16(a, a); /* 0 2 0 2 | 1 3 1 3 */
        store128(out + 4 * (size_t)x,
                 _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
    }
}

static void avx2_horizontal(const struct stk_resize_weights *axis, const uint8_t *in, uint8_t *out)
{
    uint32_t quads = axis->stride / 4;

    if (quads == 1) {
        horizontal_quads(axis, in, out, 1);
    } else if (quads == 2) {
        horizontal_quads(axis, in, out, 2);
    } else {
        horizontal_quads(axis, in, out, quads);
    }
}

/* ---- vertical ---- */

/* 32 bytes of an output row. */
INLINE void vertical_block(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                           uint32_t shift, size_t at, uint8_t *out)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m128i count = _mm_cvtsi32_si128((int)shift);
    __m256i sums[4];

    for (int i = 0; i < 4; i++) {
        sums[i] = _mm256_set1_epi32(1 << (shift - 1));
    }
    for (uint32_t t = 0; t < taps; t += 2) {
        __m256i a = load256(rows[t] + at), b = t + 1 < taps ? load256(rows[t + 1] + at) : zero;
        __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);
        int32_t pair;
        __m256i weight;

        memcpy(&pair, weights + t, sizeof(pair));
        weight = _mm256_set1_epi32(pair);
        sums[0] =
            _mm256_add_epi32(sums[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weight));
        sums[1] =
            _mm256_add_epi32(sums[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weight));
        sums[2] =
            _mm256_add_epi32(sums[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weight));
        sums[3] =
            _mm256_add_epi32(sums[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weight));
    }
    for (int i = 0; i < 4; i++) {
        sums[i] = _mm256_sra_epi32(sums[i], count);
    }
    /* Packing within the halves undoes the unpacking within the halves. */
    sums[0] = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                  _mm256_packs_epi32(sums[2], sums[3]));
    _mm256_storeu_si256((__m256i *)(void *)(out + at), sums[0]);
}

INLINE void vertical_taps(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                          uint32_t shift, uint32_t bytes, uint8_t *out)
{
    size_t at = 0;

    for (; at + 32 <= bytes; at += 32) {
        vertical_block(rows, weights, taps, shift, at, out);
    }
    if (at < bytes) {
        vertical_block(rows, weights, taps, shift, bytes - 32, out); /* some bytes twice */
    }
}

static void avx2_vertical(const uint8_t *const *rows, const int16_t *weights, uint32_t taps,
                          uint32_t shift, uint32_t bytes, uint8_t *out)
{
    if (bytes < 32) {
        stk_pixel_scalar_vertical(rows, weights, taps, shift, bytes, out);
    } else if (taps == 2) {
        vertical_taps(rows, weights, 2, shift, bytes, out);
    } else if (taps == 3) {
        vertical_taps(rows, weights, 3, shift, bytes, out);
    } else if (taps == 4) {
        vertical_taps(rows, weights, 4, shift, bytes, out);
    } else {
        vertical_taps(rows, weights, taps, shift, bytes, out);
    }
}

/* ---- four rows ---- */

static void avx2_interleave(const uint8_t *const rows[4], uint32_t count, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i += 16) {
        __m128i a = load128(rows[0] + i), b = load128(rows[1] + i);
        __m128i c = load128(rows[2] + i), d = load128(rows[3] + i);
        __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
        uint8_t *to = out + 4 * (size_t)i;

        store128(to, _mm_unpacklo_epi16(ab, cd));
        store128(to + 16, _mm_unpackhi_epi16(ab, cd));
        ab = _mm_unpackhi_epi8(a, b);
        cd = _mm_unpackhi_epi8(c, d);
        store128(to + 32, _mm_unpacklo_epi16(ab, cd));
        store128(to + 48, _mm_unpackhi_epi16(ab, cd));
    }
}

static void avx2_deinterleave(const uint8_t *in, uint32_t count, uint8_t *const rows[4])
{
    const __m256i split = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
                                           0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i join = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    uint32_t i = 0;
    uint8_t *const rest[4] = {rows[0] + count / 8 * 8, rows[1] + count / 8 * 8,
                              rows[2] + count / 8 * 8, rows[3] + count / 8 * 8};

    for (; i + 8 <= count; i += 8) {
        __m256i pixels = _mm256_shuffle_epi8(load256(in + 4 * (size_t)i), split);
        __m128i low, high;

        pixels = _mm256_permutevar8x32_epi32(pixels, join);
        low = _mm256_castsi256_si128(pixels);
        high = _mm256_extracti128_si256(pixels, 1);
        _mm_storel_epi64((__m128i *)(void *)(rows[0] + i), low);
        _mm_storel_epi64((__m128i *)(void *)(rows[1] + i), _mm_srli_si128(low, 8));
        _mm_storel_epi64((__m128i *)(void *)(rows[2] + i), high);
        _mm_storel_epi64((__m128i *)(void *)(rows[3] + i), _mm_srli_si128(high, 8));
    }
    stk_pixel_scalar_deinterleave(in + 4 * (size_t)i, count - i, rest);
}

/* ---- one row ---- */

/* Eight outputs: the two halves of a vector of a block. */
INLINE __m256i sum_picked(const uint8_t *in, const struct stk_resize_shuffles_block *block,
                          int vector, const int16_t *weights, uint32_t quads, __m256i sum)
{
    const __m256i front = load256(block->pairs[vector][0]);
    const __m256i back = load256(block->pairs[vector][1]);
    const uint8_t *a = in + block->first[vector][0], *b = in + block->first[vector][1];

    weights += 32 * vector;
    for (uint32_t q = 0; q < quads; q++, a += 4, b += 4, weights += 64) {
        __m256i samples =
            _mm256_inserti128_si256(_mm256_castsi128_si256(load128(a)), load128(b), 1);
        __m256i low = _mm256_shuffle_epi8(samples, front);
        __m256i high = _mm256_shuffle_epi8(samples, back);

        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, load256(weights)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(high, load256(weights + 16)));
    }
    return sum;
}

INLINE void narrow_quads(const struct stk_resize_shuffles *picks, const uint8_t *in, uint8_t *out,
                         uint32_t quads)
{
    const __m256i half = _mm256_set1_epi32(1 << (picks->shift - 1));
    const __m128i shift = _mm_cvtsi32_si128((int)picks->shift);
    const struct stk_resize_shuffles_block *block = picks->blocks;
    const int16_t *weights = picks->weights;

    for (uint32_t x = 0; x < picks->count; x += STK_RESIZE_SHUFFLES_OUTPUTS, block++) {
        __m256i a = sum_picked(in, block, 0, weights, quads, half);
        __m256i b = sum_picked(in, block, 1, weights, quads, half);

        a = _mm256_packs_epi32(_mm256_sra_epi32(a, shift), _mm256_sra_epi32(b, shift));
        a = _mm256_permute4x64_epi64(_mm256_packus_epi16(a, a), 0x08);
        store128(out + x, _mm256_castsi256_si128(a));
        weights += 64 * (size_t)quads;
    }
}

static void avx2_horizontal_one(const struct stk_resize_shuffles *picks, const uint8_t *in,
                                uint8_t *out)
{
    if (picks->quads == 1) {
        narrow_quads(picks, in, out, 1);
    } else if (picks->quads == 2) {
        narrow_quads(picks, in, out, 2);
    } else {
        narrow_quads(picks, in, out, picks->quads);
    }
}

/* ---- convert ---- */

/* 8 values as dtype at `index` of the slot. */
INLINE void store8(void *slot, size_t index, uint32_t dtype, __m256 value)
{
    __m256i bits, half;

    if (dtype == STOKER_FLOAT32) {
        _mm256_storeu_ps((float *)slot + index, value);
    } else if (dtype == STOKER_FLOAT16) {
        store128((uint16_t *)slot + index,
                 _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    } else {
        /* Half of the last place, or a bit less where the last place is even. */
        bits = _mm256_castps_si256(value);
        half = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        half = _mm256_add_epi32(half, _mm256_set1_epi32(0x7fff));
        bits = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
        bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(bits, bits), 0x08);
        store128((uint16_t *)slot + index, _mm256_castsi256_si128(bits));
    }
}

INLINE __m256 scaled(__m256i values, __m256 scale, __m256 bias)
{
    return _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(values), scale), bias);
}

INLINE void convert_planes(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                           void *slot, uint32_t dtype)
{
    const size_t plane = (size_t)convert->width * convert->height;
    const size_t row = (size_t)y * convert->width;
    const __m256i byte = _mm256_set1_epi32(255);
    __m256 scale[3], bias[3];
    uint32_t x;

    for (int c = 0; c < 3; c++) {
        scale[c] = _mm256_set1_ps(convert->scale[c]);
        bias[c] = _mm256_set1_ps(convert->bias[c]);
    }
    for (x = 0; x + 8 <= convert->width; x += 8) {
        __m256i pixels = load256(rgbx + 4 * (size_t)x);

        for (int c = 0; c < 3; c++) {
            __m256i values = _mm256_and_si256(_mm256_srli_epi32(pixels, 8 * c), byte);

            store8(slot, plane * (size_t)c + row + x, dtype, scaled(values, scale[c], bias[c]));
        }
    }
    stk_pixel_scalar_convert_from(convert, rgbx, x, y, slot);
}

/* 8 pixels as 24 bytes RGBRGB...: 16 of them, and 8 more. */
INLINE void pack_rgb(const uint8_t *rgbx, __m128i *first16, __m128i *last8)
{
    const __m128i drop = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
    __m128i a = _mm_shuffle_epi8(load128(rgbx), drop);
    __m128i b = _mm_shuffle_epi8(load128(rgbx + 16), drop);

    *first16 = _mm_or_si128(a, _mm_slli_si128(b, 12));
    *last8 = _mm_srli_si128(b, 4);
}

INLINE void convert_pixels(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                           void *slot, uint32_t dtype)
{
    const size_t row = (size_t)y * convert->width;
    float scale_text[24], bias_text[24];
    __m256 scale[3], bias[3];
    uint32_t x;

    for (int i = 0; i < 24; i++) {
        scale_text[i] = convert->scale[i % 3];
        bias_text[i] = convert->bias[i % 3];
    }
    for (int i = 0; i < 3; i++) {
        scale[i] = _mm256_loadu_ps(scale_text + 8 * i);
        bias[i] = _mm256_loadu_ps(bias_text + 8 * i);
    }
    for (x = 0; x + 8 <= convert->width; x += 8) {
        __m128i bytes[3];

        pack_rgb(rgbx + 4 * (size_t)x, &bytes[0], &bytes[2]);
        bytes[1] = _mm_srli_si128(bytes[0], 8);
        for (int i = 0; i < 3; i++) {
            store8(slot, (row + x) * 3 + 8 * (size_t)i, dtype,
                   scaled(_mm256_cvtepu8_epi32(bytes[i]), scale[i], bias[i]));
        }
    }
    stk_pixel_scalar_convert_from(convert, rgbx, x, y, slot);
}

/* A float32 batch is far larger than the caches, and this core does not read it again. Non-temporal
 * stores avoid fetching its cache lines. Rows must be aligned and consist of full vectors. */
static void convert_streamed(const struct stk_pixel_convert *convert, const uint8_t *rgbx,
                             uint32_t y, float *slot)
{
    const size_t plane = (size_t)convert->width * convert->height;
    const size_t row = (size_t)y * convert->width;
    const __m256i byte = _mm256_set1_epi32(255);

    for (size_t c = 0; c < 3; c++) {
        const __m256 scale = _mm256_set1_ps(convert->scale[c]);
        const __m256 bias = _mm256_set1_ps(convert->bias[c]);
        const __m128i shift = _mm_cvtsi32_si128((int)(8 * c));
        float *out = slot + plane * c + row;

        for (uint32_t x = 0; x < convert->width; x += 8) {
            __m256i pixels = load256(rgbx + 4 * (size_t)x);
            __m256i values = _mm256_and_si256(_mm256_srl_epi32(pixels, shift), byte);

            _mm256_stream_ps(out + x, scaled(values, scale, bias));
        }
    }
    if (y == 0 || y + 1 == convert->height) {
        _mm_sfence(); /* the image's last row, in either direction */
    }
}

static bool can_stream(const struct stk_pixel_convert *convert, const void *slot)
{
    return (uintptr_t)slot % 32 == 0 && convert->width % 8 == 0;
}

static void convert_bytes(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                          uint8_t *slot)
{
    const size_t plane = (size_t)convert->width * convert->height;
    const size_t row = (size_t)y * convert->width;
    const __m256i split = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
                                           0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i join = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    uint32_t x;

    for (x = 0; x + 8 <= convert->width; x += 8) {
        const uint8_t *from = rgbx + 4 * (size_t)x;
        __m128i low, high;

        if (convert->layout == STOKER_NHWC) {
            pack_rgb(from, &low, &high);
            store128(slot + (row + x) * 3, low);
            _mm_storel_epi64((__m128i *)(void *)(slot + (row + x) * 3 + 16), high);
        } else {
            __m256i pixels = _mm256_shuffle_epi8(load256(from), split);

            pixels = _mm256_permutevar8x32_epi32(pixels, join);
            low = _mm256_castsi256_si128(pixels);
            high = _mm256_extracti128_si256(pixels, 1);
            _mm_storel_epi64((__m128i *)(void *)(slot + row + x), low);
            _mm_storel_epi64((__m128i *)(void *)(slot + plane + row + x), _mm_srli_si128(low, 8));
            _mm_storel_epi64((__m128i *)(void *)(slot + 2 * plane + row + x), high);
        }
    }
    stk_pixel_scalar_convert_from(convert, rgbx, x, y, slot);
}

static void avx2_convert(const struct stk_pixel_convert *convert, const uint8_t *rgbx, uint32_t y,
                         void *slot)
{
    bool pixels = convert->layout == STOKER_NHWC;

    if (convert->dtype == STOKER_UINT8) {
        convert_bytes(convert, rgbx, y, slot);
    } else if (convert->dtype == STOKER_FLOAT32 && pixels) {
        convert_pixels(convert, rgbx, y, slot, STOKER_FLOAT32);
    } else if (convert->dtype == STOKER_FLOAT32 && can_stream(convert, slot)) {
        convert_streamed(convert, rgbx, y, slot);
    } else if (convert->dtype == STOKER_FLOAT32) {
        convert_planes(convert, rgbx, y, slot, STOKER_FLOAT32);
    } else if (convert->dtype == STOKER_FLOAT16 && pixels) {
        convert_pixels(convert, rgbx, y, slot, STOKER_FLOAT16);
    } else if (convert->dtype == STOKER_FLOAT16) {
        convert_planes(convert, rgbx, y, slot, STOKER_FLOAT16);
    } else if (pixels) {
        convert_pixels(convert, rgbx, y, slot, STOKER_BFLOAT16);
    } else {
        convert_planes(convert, rgbx, y, slot, STOKER_BFLOAT16);
    }
}

/* ---- colour ---- */

/* 8 pixels, a vector of 32-bit values for each channel. */
struct pixels8 {
    __m256i red, green, blue, rest;
};

INLINE struct pixels8 split8(const uint8_t *rgbx)
{
    const __m256i byte = _mm256_set1_epi32(255);
    __m256i all = load256(rgbx);
    struct pixels8 pixels = {
        _mm256_and_si256(all, byte),
        _mm256_and_si256(_mm256_srli_epi32(all, 8), byte),
        _mm256_and_si256(_mm256_srli_epi32(all, 16), byte),
        _mm256_andnot_si256(_mm256_set1_epi32(0xffffff), all),
    };

    return pixels;
}

INLINE void join8(uint8_t *rgbx, struct pixels8 p)
{
    __m256i all = _mm256_or_si256(_mm256_or_si256(p.red, _mm256_slli_epi32(p.green, 8)),
                                  _mm256_or_si256(_mm256_slli_epi32(p.blue, 16), p.rest));

    _mm256_storeu_si256((__m256i *)(void *)rgbx, all);
}

INLINE __m256i multiply(__m256i value, int32_t factor)
{
    return _mm256_mullo_epi32(value, _mm256_set1_epi32(factor));
}

INLINE __m256i clamp_between(__m256i value, int32_t most)
{
    return _mm256_min_epi32(_mm256_max_epi32(value, _mm256_setzero_si256()),
                            _mm256_set1_epi32(most));
}

/* stk_color_grey. */
INLINE __m256i grey8(struct pixels8 p)
{
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(multiply(p.red, 2989), multiply(p.green, 5870)),
                                   multiply(p.blue, 1140));
    __m256i quotient = _mm256_srai_epi32(multiply(_mm256_srai_epi32(sum, 4), 13421), 23);
    __m256i rest = _mm256_sub_epi32(sum, multiply(quotient, 10000));

    /* The comparison returns -1 where the quotient is 1 too low. */
    return _mm256_sub_epi32(quotient, _mm256_cmpgt_epi32(rest, _mm256_set1_epi32(9999)));
}

INLINE void blend8(const struct stk_color_transform *recolor, uint8_t *rgbx)
{
    struct pixels8 p = split8(rgbx);
    __m256i own = _mm256_set1_epi32(recolor->own);
    __m256i add = _mm256_set1_epi32(recolor->add);
    __m256i *channels[] = {&p.red, &p.green, &p.blue};

    if (recolor->grey_share) {
        add = _mm256_add_epi32(add, multiply(grey8(p), recolor->grey_share));
    }
    for (int c = 0; c < 3; c++) {
        __m256i sum = _mm256_add_epi32(_mm256_mullo_epi32(*channels[c], own), add);

        *channels[c] = clamp_between(_mm256_srai_epi32(sum, 16), 255);
    }
    join8(rgbx, p);
}

INLINE __m256i hue_channel8(__m256i low, __m256i range, __m256i ramp)
{
    __m256i share = clamp_between(ramp, STK_COLOR_HUE_SIXTH);
    __m256i value = _mm256_add_epi32(_mm256_slli_epi32(low, 16), _mm256_mullo_epi32(range, share));
    __m256i more = _mm256_srai_epi32(multiply(_mm256_srai_epi32(value, 8), 1027), 10);

    return _mm256_srai_epi32(_mm256_add_epi32(value, more), 16);
}

INLINE __m256i distance8(__m256i a, int32_t b)
{
    return _mm256_abs_epi32(_mm256_sub_epi32(a, _mm256_set1_epi32(b)));
}

INLINE void hue8(const struct stk_color_transform *recolor, uint8_t *rgbx)
{
    struct pixels8 p = split8(rgbx);
    __m256i high = _mm256_max_epi32(_mm256_max_epi32(p.red, p.green), p.blue);
    __m256i low = _mm256_min_epi32(_mm256_min_epi32(p.red, p.green), p.blue);
    __m256i range = _mm256_sub_epi32(high, low);
    __m256i is_red = _mm256_cmpeq_epi32(high, p.red);
    __m256i is_green = _mm256_cmpeq_epi32(high, p.green);
    __m256i two = _mm256_set1_epi32(2 * STK_COLOR_HUE_SIXTH), turn, hue;
    __m256i difference = _mm256_sub_epi32(p.red, p.green);
    __m256i base = _mm256_add_epi32(two, two);

    difference = _mm256_blendv_epi8(difference, _mm256_sub_epi32(p.blue, p.red), is_green);
    difference = _mm256_blendv_epi8(difference, _mm256_sub_epi32(p.green, p.blue), is_red);
    base = _mm256_blendv_epi8(base, two, is_green);
    base = _mm256_andnot_si256(is_red, base);
    turn = _mm256_i32gather_epi32((const int *)recolor->reciprocal, range, 4);
    hue = _mm256_srai_epi32(_mm256_mullo_epi32(difference, turn), 8);
    hue = _mm256_add_epi32(_mm256_add_epi32(hue, base), _mm256_set1_epi32(recolor->turn));
    turn = _mm256_set1_epi32(STK_COLOR_HUE_CIRCLE);
    hue = _mm256_add_epi32(hue, _mm256_and_si256(_mm256_srai_epi32(hue, 31), turn));
    hue = _mm256_sub_epi32(
        hue, _mm256_and_si256(_mm256_cmpgt_epi32(hue, _mm256_set1_epi32(STK_COLOR_HUE_CIRCLE - 1)),
                              turn));
    p.red = hue_channel8(low, range,
                         _mm256_sub_epi32(distance8(hue, 3 * STK_COLOR_HUE_SIXTH),
                                          _mm256_set1_epi32(STK_COLOR_HUE_SIXTH)));
    p.green =
        hue_channel8(low, range, _mm256_sub_epi32(two, distance8(hue, 2 * STK_COLOR_HUE_SIXTH)));
    p.blue =
        hue_channel8(low, range, _mm256_sub_epi32(two, distance8(hue, 4 * STK_COLOR_HUE_SIXTH)));
    join8(rgbx, p);
}

static void avx2_recolor(const struct stk_color_transform *recolor, uint8_t *rgbx, uint64_t pixels)
{
    uint64_t x = 0;

    for (; x + 8 <= pixels && recolor->hue; x += 8) {
        hue8(recolor, rgbx + 4 * x);
    }
    for (; x + 8 <= pixels; x += 8) {
        blend8(recolor, rgbx + 4 * x);
    }
    stk_pixel_scalar_recolor(recolor, rgbx + 4 * x, pixels - x);
}

static uint64_t avx2_grey_sum(const uint8_t *rgbx, uint64_t pixels)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i sums = zero; /* 4 of 64 bits */
    uint64_t x = 0, parts[4];

    for (; x + 8 <= pixels; x += 8) {
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(grey8(split8(rgbx + 4 * x)), zero));
    }
    _mm256_storeu_si256((__m256i *)(void *)parts, sums);
    return parts[0] + parts[1] + parts[2] + parts[3] +
           stk_pixel_scalar_grey_sum(rgbx + 4 * x, pixels - x);
}

const struct stk_pixel_kernels stk_pixel_kernels_avx2 = {
    .name = "avx2",
    .horizontal = avx2_horizontal,
    .vertical = avx2_vertical,
    .interleave = avx2_interleave,
    .deinterleave = avx2_deinterleave,
    .horizontal_one = avx2_horizontal_one,
    .convert = avx2_convert,
    .recolor = avx2_recolor,
    .grey_sum = avx2_grey_sum,
};
