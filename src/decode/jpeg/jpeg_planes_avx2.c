/* The sample kernels in AVX2 (256 bits: wider vectors slow down the bit reader between them). */
#include "decode/jpeg/jpeg_planes.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

INLINE __m256i load256(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

INLINE void store256(void *to, __m256i value)
{
    _mm256_storeu_si256((__m256i *)to, value);
}

/* 16 bytes as 16-bit numbers. */
INLINE __m256i load_wide(const uint8_t *from)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)from));
}

/* ---- inverse transform --------------------------------------------------------------------
 *
 * Eight columns at once. Inputs are pairs of 16 bits that are multiplied with two constants and
 * added: a = in0 in4, b = in2 in6, c = in7 in1, d = in3 in5 of columns 0..7. The block has this
 * order in memory (avx2_coefficient_index), so that the first pass only loads. */

struct pairs {
    __m256i a, b, c, d;
};

struct eight {
    __m256i v[8]; /* 32 bits */
};

static uint32_t avx2_coefficient_index(uint32_t row, uint32_t column)
{
    static const uint8_t where[8] = {0, 5, 2, 6, 1, 7, 3, 4}; /* 2 * pair + half of it */

    return (where[row] >> 1) * 16u + column * 2 + (where[row] & 1u);
}

/* Sums of products of pairs: low * first + high * second. */
INLINE __m256i turn(__m256i pairs, int first, int second)
{
    const int both = (int)((uint32_t)second << 16 | (uint16_t)first);

    return _mm256_madd_epi16(pairs, _mm256_set1_epi32(both));
}

/* in0 +- in4, which wraps in 16 bits, times 2^13: the upper bits are shifted out and the sign
 * back in. */
INLINE __m256i turn_even(__m256i pairs, int sign, __m256i half)
{
    const int one = 1 << STK_JPEG_CONST_BITS;
    __m256i sum = _mm256_slli_epi32(turn(pairs, one, sign * one), 3);

    return _mm256_add_epi32(_mm256_srai_epi32(sum, 3), half);
}

INLINE struct eight transform_eight(struct pairs in, int shift)
{
    const __m256i half = _mm256_set1_epi32(1 << (shift - 1));
    __m256i even0 = turn_even(in.a, 1, half), even1 = turn_even(in.a, -1, half);
    __m256i turn2 = turn(in.b, STK_JPEG_0_541, STK_JPEG_0_541 - STK_JPEG_1_847);
    __m256i turn3 = turn(in.b, STK_JPEG_0_541 + STK_JPEG_0_765, STK_JPEG_0_541);
    __m256i z34 = _mm256_add_epi16(in.c, in.d);
    __m256i turn7 = turn(z34, STK_JPEG_1_175 - STK_JPEG_1_961, STK_JPEG_1_175);
    __m256i turn5 = turn(z34, STK_JPEG_1_175, STK_JPEG_1_175 - STK_JPEG_0_390);
    __m256i even[4], odd[4];
    struct eight out;

    odd[0] = _mm256_add_epi32(turn7, turn(in.c, STK_JPEG_0_298 - STK_JPEG_0_899, -STK_JPEG_0_899));
    odd[1] = _mm256_add_epi32(turn5, turn(in.d, -STK_JPEG_2_562, STK_JPEG_2_053 - STK_JPEG_2_562));
    odd[2] = _mm256_add_epi32(turn7, turn(in.d, STK_JPEG_3_072 - STK_JPEG_2_562, -STK_JPEG_2_562));
    odd[3] = _mm256_add_epi32(turn5, turn(in.c, -STK_JPEG_0_899, STK_JPEG_1_501 - STK_JPEG_0_899));
    even[0] = _mm256_add_epi32(even0, turn3);
    even[1] = _mm256_add_epi32(even1, turn2);
    even[2] = _mm256_sub_epi32(even1, turn2);
    even[3] = _mm256_sub_epi32(even0, turn3);
    for (int i = 0; i < 4; i++) {
        out.v[i] = _mm256_srai_epi32(_mm256_add_epi32(even[i], odd[3 - i]), shift);
        out.v[7 - i] = _mm256_srai_epi32(_mm256_sub_epi32(even[i], odd[3 - i]), shift);
    }
    return out;
}

/* Rows r and r + 4 in one vector, their columns as the pairs 0 4, 2 6, 7 1, 3 5. */
INLINE __m256i pack_rows(__m256i row, __m256i row4)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 8, 9, 4, 5, 12, 13, 14, 15, 2, 3, 6, 7, 10, 11, //
                                           0, 1, 8, 9, 4, 5, 12, 13, 14, 15, 2, 3, 6, 7, 10, 11);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(row, row4), 0xd8);

    return _mm256_shuffle_epi8(packed, order);
}

/* Four rows of four pairs, in both halves, to four pairs of eight rows. */
INLINE struct pairs transpose(__m256i r0, __m256i r1, __m256i r2, __m256i r3)
{
    __m256i ab01 = _mm256_unpacklo_epi32(r0, r1), cd01 = _mm256_unpackhi_epi32(r0, r1);
    __m256i ab23 = _mm256_unpacklo_epi32(r2, r3), cd23 = _mm256_unpackhi_epi32(r2, r3);

    return (struct pairs){_mm256_unpacklo_epi64(ab01, ab23), _mm256_unpackhi_epi64(ab01, ab23),
                          _mm256_unpacklo_epi64(cd01, cd23), _mm256_unpackhi_epi64(cd01, cd23)};
}

/* Row 0 alone: each column is its coefficient, times 4, in 16 bits that wrap; so all rows are the
 * same, and the pairs of the second pass are that row's. */
INLINE struct pairs spread_row(__m256i a)
{
    /* Lower halves of the pairs: columns 0..7, 16 bits each. */
    __m256i scaled = _mm256_slli_epi32(_mm256_slli_epi16(a, STK_JPEG_PASS1_BITS), 16);
    __m256i row = _mm256_srai_epi32(scaled, 16);
    __m256i pairs = pack_rows(row, row);

    return (struct pairs){_mm256_shuffle_epi32(pairs, 0x00), _mm256_shuffle_epi32(pairs, 0x55),
                          _mm256_shuffle_epi32(pairs, 0xaa), _mm256_shuffle_epi32(pairs, 0xff)};
}

/* Four columns of eight rows as bytes: each 32 bits are columns 0..3 of a row. */
INLINE __m256i pack_columns(const __m256i *columns)
{
    const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
                                           0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m256i low = _mm256_packs_epi32(columns[0], columns[1]);
    __m256i high = _mm256_packs_epi32(columns[2], columns[3]);
    __m256i bytes = _mm256_add_epi8(_mm256_packs_epi16(low, high), _mm256_set1_epi8(-128));

    return _mm256_shuffle_epi8(bytes, order);
}

INLINE void store_rows(__m128i two, uint8_t *to, size_t stride)
{
    _mm_storel_epi64((__m128i *)to, two);
    _mm_storel_epi64((__m128i *)(to + stride), _mm_unpackhi_epi64(two, two));
}

static void avx2_idct(const int16_t *block, const int16_t *quantiser, uint8_t *to, size_t stride)
{
    struct pairs in = {load256(block), load256(block + 16), load256(block + 32),
                       load256(block + 48)};
    __m256i rest = _mm256_or_si256(_mm256_or_si256(in.b, in.c),
                                   _mm256_or_si256(in.d, _mm256_srli_epi32(in.a, 16)));
    struct eight out;
    __m256i left, right, low, high;

    in.a = _mm256_mullo_epi16(in.a, load256(quantiser));
    if (_mm256_testz_si256(rest, rest)) {
        in = spread_row(in.a);
    } else {
        in.b = _mm256_mullo_epi16(in.b, load256(quantiser + 16));
        in.c = _mm256_mullo_epi16(in.c, load256(quantiser + 32));
        in.d = _mm256_mullo_epi16(in.d, load256(quantiser + 48));
        out = transform_eight(in, STK_JPEG_CONST_BITS - STK_JPEG_PASS1_BITS);
        in = transpose(pack_rows(out.v[0], out.v[4]), pack_rows(out.v[1], out.v[5]),
                       pack_rows(out.v[2], out.v[6]), pack_rows(out.v[3], out.v[7]));
    }
    out = transform_eight(in, STK_JPEG_CONST_BITS + STK_JPEG_PASS1_BITS + 3);
    left = pack_columns(out.v);
    right = pack_columns(out.v + 4);
    low = _mm256_unpacklo_epi32(left, right);  /* rows 0 1 | 4 5 */
    high = _mm256_unpackhi_epi32(left, right); /* rows 2 3 | 6 7 */
    store_rows(_mm256_castsi256_si128(low), to, stride);
    store_rows(_mm256_castsi256_si128(high), to + 2 * stride, stride);
    store_rows(_mm256_extracti128_si256(low, 1), to + 4 * stride, stride);
    store_rows(_mm256_extracti128_si256(high, 1), to + 6 * stride, stride);
}

/* ---- upsampling: 16 samples at a time, beyond `count` into the rows' slack ----------------- */

INLINE __m256i three(__m256i value)
{
    return _mm256_add_epi16(value, _mm256_add_epi16(value, value));
}

/* Left and right samples of each, side by side as bytes. */
INLINE __m256i side_by_side(__m256i left, __m256i right)
{
    return _mm256_or_si256(left, _mm256_slli_epi16(right, 8));
}

static void avx2_h2v1(const uint8_t *in, uint32_t count, uint8_t *out)
{
    const __m256i one = _mm256_set1_epi16(1), two = _mm256_set1_epi16(2);

    for (uint32_t i = 0; i < count; i += 16) {
        __m256i near = three(load_wide(in + i));
        __m256i left = _mm256_add_epi16(_mm256_add_epi16(near, load_wide(in + i - 1)), one);
        __m256i right = _mm256_add_epi16(_mm256_add_epi16(near, load_wide(in + i + 1)), two);

        store256(out + 2 * i,
                 side_by_side(_mm256_srli_epi16(left, 2), _mm256_srli_epi16(right, 2)));
    }
}

static void avx2_h1v2(const uint8_t *near, const uint8_t *far, bool below, uint32_t count,
                      uint8_t *out)
{
    const __m256i bias = _mm256_set1_epi16(below ? 2 : 1);

    for (uint32_t i = 0; i < count; i += 16) {
        __m256i sum = _mm256_add_epi16(three(load_wide(near + i)), load_wide(far + i));

        sum = _mm256_srli_epi16(_mm256_add_epi16(sum, bias), 2);
        sum = _mm256_permute4x64_epi64(_mm256_packus_epi16(sum, sum), 0xd8);
        _mm_storeu_si128((__m128i *)(out + i), _mm256_castsi256_si128(sum));
    }
}

INLINE __m256i column_sums(const uint8_t *near, const uint8_t *far)
{
    return _mm256_add_epi16(three(load_wide(near)), load_wide(far));
}

static void avx2_h2v2(const uint8_t *near, const uint8_t *far, uint32_t count, uint8_t *out)
{
    const __m256i seven = _mm256_set1_epi16(7), eight = _mm256_set1_epi16(8);

    for (uint32_t i = 0; i < count; i += 16) {
        __m256i last = column_sums(near + i - 1, far + i - 1);
        __m256i sum = three(column_sums(near + i, far + i));
        __m256i next = column_sums(near + i + 1, far + i + 1);
        __m256i left = _mm256_add_epi16(_mm256_add_epi16(sum, last), eight);
        __m256i right = _mm256_add_epi16(_mm256_add_epi16(sum, next), seven);

        store256(out + 2 * i,
                 side_by_side(_mm256_srli_epi16(left, 4), _mm256_srli_epi16(right, 4)));
    }
}

/* ---- colours: 16 pixels at a time; the last 16 of a row take some of those before again ----- */

INLINE void store_pixels(__m256i red, __m256i green, __m256i blue, uint8_t *out)
{
    __m256i rg = _mm256_packus_epi16(red, green); /* r r g g: 8 of each, in both halves */
    __m256i bx = _mm256_packus_epi16(blue, _mm256_set1_epi16(255));
    __m256i rb = _mm256_unpacklo_epi8(rg, bx), gx = _mm256_unpackhi_epi8(rg, bx);
    __m256i low = _mm256_unpacklo_epi8(rb, gx);  /* pixels 0..3 | 8..11 */
    __m256i high = _mm256_unpackhi_epi8(rb, gx); /* 4..7 | 12..15 */

    store256(out, _mm256_permute2x128_si256(low, high, 0x20));
    store256(out + 32, _mm256_permute2x128_si256(low, high, 0x31));
}

/* (factor * x + 2^15) >> 16 of x = twice / 2, which is ((factor * twice >> 16) + 1) >> 1. */
INLINE __m256i scale(__m256i twice, int factor)
{
    __m256i product = _mm256_mulhi_epi16(twice, _mm256_set1_epi16((int16_t)factor));

    return _mm256_srai_epi16(_mm256_add_epi16(product, _mm256_set1_epi16(1)), 1);
}

/* Factors of 2^16 and more are reduced to 16 bits by adding the sample itself:
 * 91881 = 2^16 + 26345, 116130 = 2^17 - 14942, -46802 = 18734 - 2^16. */
INLINE __m256i green_part(__m256i cb, __m256i cr)
{
    const __m256i factors = _mm256_set1_epi32((int)((uint32_t)18734 << 16 | (uint16_t)-22554));
    const __m256i half = _mm256_set1_epi32(1 << 15);
    __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(cb, cr), factors);
    __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(cb, cr), factors);

    low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
    high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
    return _mm256_sub_epi16(_mm256_packs_epi32(low, high), cr);
}

INLINE void colors_of_16(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint8_t *out)
{
    const __m256i center = _mm256_set1_epi16(128);
    __m256i light = load_wide(y);
    __m256i blue = _mm256_sub_epi16(load_wide(cb), center);
    __m256i red = _mm256_sub_epi16(load_wide(cr), center);
    __m256i twice_blue = _mm256_add_epi16(blue, blue);
    __m256i r = _mm256_add_epi16(scale(_mm256_add_epi16(red, red), 26345), red);
    __m256i b = _mm256_add_epi16(scale(twice_blue, -14942), twice_blue);

    store_pixels(_mm256_add_epi16(light, r), _mm256_add_epi16(light, green_part(blue, red)),
                 _mm256_add_epi16(light, b), out);
}

static void avx2_to_rgbx(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count,
                         uint8_t *out)
{
    if (count < 16) {
        stk_jpeg_scalar_to_rgbx(y, cb, cr, count, out);
        return;
    }
    for (uint32_t i = 0; i + 16 <= count; i += 16) {
        colors_of_16(y + i, cb + i, cr + i, out + 4 * (size_t)i);
    }
    if (count % 16) {
        uint32_t i = count - 16;

        colors_of_16(y + i, cb + i, cr + i, out + 4 * (size_t)i);
    }
}

static void avx2_interleave(const uint8_t *r, const uint8_t *g, const uint8_t *b, uint32_t count,
                            uint8_t *out)
{
    if (count < 16) {
        stk_jpeg_scalar_interleave(r, g, b, count, out);
        return;
    }
    for (uint32_t i = 0; i < count; i += 16) {
        uint32_t at = i + 16 <= count ? i : count - 16;

        store_pixels(load_wide(r + at), load_wide(g + at), load_wide(b + at), out + 4 * (size_t)at);
    }
}

const struct stk_jpeg_kernels stk_jpeg_kernels_avx2 = {
    .name = "avx2",
    .entropy = &stk_jpeg_entropy_avx2,
    .coefficient_index = avx2_coefficient_index,
    .idct = avx2_idct,
    .upsample_h2v1 = avx2_h2v1,
    .upsample_h1v2 = avx2_h1v2,
    .upsample_h2v2 = avx2_h2v2,
    .to_rgbx = avx2_to_rgbx,
    .interleave = avx2_interleave,
};
