/* Four rows of 3 or 4 bytes a pixel at once. A pixel depends on its left neighbour, so one row
 * alone cannot be fast; but four rows, each a pixel behind the one above it, wait together: a
 * register has row k's pixels t - k, as 4 x 16 bits each. */
#include "decode/png/png_filters.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define ROWS 4

struct four {
    uint8_t *rows[ROWS]; /* pixels */
    const uint8_t *above;
    size_t pixels;
    uint32_t unit;
    __m256i sub, up, average, paeth; /* all ones in the rows with that filter, in their samples */
};

/* The prediction from the pixel's left neighbour a, the one above it b and the one to the left of
 * that c. */
INLINE __m256i predict(const struct four *four, __m256i a, __m256i b, __m256i c)
{
    __m256i to_a = _mm256_sub_epi16(b, c), to_b = _mm256_sub_epi16(a, c);
    __m256i pa = _mm256_abs_epi16(to_a), pb = _mm256_abs_epi16(to_b);
    __m256i pc = _mm256_abs_epi16(_mm256_add_epi16(to_a, to_b));
    __m256i least = _mm256_min_epi16(pc, _mm256_min_epi16(pa, pb));
    __m256i paeth = _mm256_blendv_epi8(c, b, _mm256_cmpeq_epi16(least, pb));
    __m256i average = _mm256_srli_epi16(_mm256_add_epi16(a, b), 1);
    __m256i other = _mm256_or_si256(_mm256_and_si256(a, four->sub), _mm256_and_si256(b, four->up));

    paeth = _mm256_blendv_epi8(paeth, a, _mm256_cmpeq_epi16(least, pa));
    other = _mm256_or_si256(other, _mm256_and_si256(average, four->average));
    return _mm256_or_si256(other, _mm256_and_si256(paeth, four->paeth));
}

struct state {
    __m256i out, above; /* of the step before: decoded pixels; and the pixels above them */
};

/* One step: raw bytes of four pixels, and the pixel above the first row's. */
INLINE __m128i step(const struct four *four, struct state *state, __m128i raw, uint32_t first)
{
    /* Each row's pixel above is the result of the row above it one step before. */
    __m256i b = _mm256_permute4x64_epi64(state->out, 0x90); /* 0 0 1 2 */
    __m256i top = _mm256_castsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi32_si128((int)first)));
    __m256i out;

    b = _mm256_blend_epi32(b, top, 0x03);
    out = predict(four, state->out, b, state->above);
    out =
        _mm256_and_si256(_mm256_add_epi16(out, _mm256_cvtepu8_epi16(raw)), _mm256_set1_epi16(0xff));
    state->out = out;
    state->above = b;
    return _mm_packus_epi16(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
}

INLINE uint32_t load32(const uint8_t *from)
{
    uint32_t value;

    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void store32(uint8_t *to, uint32_t value)
{
    memcpy(to, &value, sizeof value);
}

/* A pixel alone, without the byte after it. */
static uint32_t load_pixel(const uint8_t *from, uint32_t unit)
{
    uint32_t value = 0;

    memcpy(&value, from, unit);
    return value;
}

/* A step at the sides, where some rows have no pixel: they count as zeros. */
static void step_side(const struct four *four, struct state *state, size_t t)
{
    uint32_t raw[ROWS] = {0}, done[ROWS];
    uint32_t unit = four->unit;

    for (size_t k = 0; k < ROWS; k++) {
        if (t - k < four->pixels) { /* wraps before the row's first */
            raw[k] = load_pixel(four->rows[k] + (t - k) * unit, unit);
        }
    }
    _mm_storeu_si128((__m128i *)done,
                     step(four, state, _mm_loadu_si128((const __m128i *)raw),
                          t < four->pixels ? load_pixel(four->above + t * unit, unit) : 0));
    for (size_t k = 0; k < ROWS; k++) {
        if (t - k < four->pixels) {
            memcpy(four->rows[k] + (t - k) * unit, &done[k], unit);
        }
    }
}

/* The steps in which all rows have a pixel, and a byte after it. With 3 bytes a pixel the fourth is
 * the next pixel's first: its prediction is zero, so that it does not change. */
INLINE void run_inner(const struct four *four, struct state *state, size_t from, size_t to,
                      uint32_t unit)
{
    uint8_t *r0 = four->rows[0] + from * unit, *r1 = four->rows[1] + (from - 1) * unit;
    uint8_t *r2 = four->rows[2] + (from - 2) * unit, *r3 = four->rows[3] + (from - 3) * unit;
    const uint8_t *above = four->above + from * unit;
    struct state now = *state;

    for (size_t t = from; t < to; t++) {
        __m128i raw = _mm_cvtsi32_si128((int)load32(r0));

        raw = _mm_insert_epi32(raw, (int)load32(r1), 1);
        raw = _mm_insert_epi32(raw, (int)load32(r2), 2);
        raw = _mm_insert_epi32(raw, (int)load32(r3), 3);
        raw = step(four, &now, raw, load32(above));
        store32(r0, (uint32_t)_mm_cvtsi128_si32(raw));
        store32(r1, (uint32_t)_mm_extract_epi32(raw, 1));
        store32(r2, (uint32_t)_mm_extract_epi32(raw, 2));
        store32(r3, (uint32_t)_mm_extract_epi32(raw, 3));
        r0 += unit;
        r1 += unit;
        r2 += unit;
        r3 += unit;
        above += unit;
    }
    *state = now;
}

static __m256i mask_of(const struct four *four, uint32_t filter)
{
    uint64_t samples = four->unit == 3 ? UINT64_C(0x0000ffffffffffff) : UINT64_MAX;
    uint64_t masks[ROWS];

    for (int k = 0; k < ROWS; k++) {
        masks[k] = four->rows[k][-1] == filter ? samples : 0;
    }
    return _mm256_loadu_si256((const __m256i *)masks);
}

static void unfilter_four(uint8_t *rows, size_t stride, const uint8_t *above, size_t bytes,
                          uint32_t unit)
{
    struct four four = {.above = above, .pixels = bytes / unit, .unit = unit};
    struct state state = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    size_t inner = four.pixels - 1, t = 0;

    for (int k = 0; k < ROWS; k++) {
        four.rows[k] = rows + (size_t)k * stride;
    }
    four.sub = mask_of(&four, STK_PNG_SUB);
    four.up = mask_of(&four, STK_PNG_UP);
    four.average = mask_of(&four, STK_PNG_AVERAGE);
    four.paeth = mask_of(&four, STK_PNG_PAETH);
    for (; t < ROWS - 1; t++) {
        step_side(&four, &state, t);
    }
    if (inner > t) {
        if (unit == 3) {
            run_inner(&four, &state, t, inner, 3);
        } else {
            run_inner(&four, &state, t, inner, 4);
        }
        t = inner;
    }
    for (; t < four.pixels + ROWS - 1; t++) {
        step_side(&four, &state, t);
    }
}

const struct stk_png_kernels stk_png_kernels_avx2 = {.name = "avx2",
                                                     .unfilter_four = unfilter_four};
