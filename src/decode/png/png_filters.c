/* PNG's filters, taken back in plain C. */
#include "decode/png/png_filters.h"

#include <string.h>

static inline __attribute__((always_inline)) void unfilter_sub(uint8_t *row, size_t bytes,
                                                               uint32_t unit)
{
    for (size_t i = unit; i < bytes; i++) {
        row[i] = (uint8_t)(row[i] + row[i - unit]);
    }
}

static void unfilter_up(uint8_t *restrict row, const uint8_t *restrict above, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        row[i] = (uint8_t)(row[i] + above[i]);
    }
}

static inline __attribute__((always_inline)) void
unfilter_average(uint8_t *row, const uint8_t *above, size_t bytes, uint32_t unit)
{
    for (size_t i = 0; i < unit; i++) {
        row[i] = (uint8_t)(row[i] + above[i] / 2);
    }
    for (size_t i = unit; i < bytes; i++) {
        row[i] = (uint8_t)(row[i] + (row[i - unit] + above[i]) / 2);
    }
}

static inline __attribute__((always_inline)) uint8_t predict(int a, int b, int c)
{
    int pa = b > c ? b - c : c - b, pb = a > c ? a - c : c - a, pc = a + b - 2 * c;

    pc = pc < 0 ? -pc : pc;
    b = pb <= pc ? b : c;
    return (uint8_t)(pa <= pb && pa <= pc ? a : b);
}

static inline __attribute__((always_inline)) void unfilter_paeth(uint8_t *row, const uint8_t *above,
                                                                 size_t bytes, uint32_t unit)
{
    unfilter_up(row, above, unit);
    for (size_t i = unit; i < bytes; i++) {
        row[i] = (uint8_t)(row[i] + predict(row[i - unit], above[i], above[i - unit]));
    }
}

/* If the compiler knows the unit, the samples of a pixel are computed in parallel. */
static inline __attribute__((always_inline)) void unfilter_unit(uint8_t *row, const uint8_t *above,
                                                                size_t bytes, uint32_t unit)
{
    switch (row[-1]) {
    case STK_PNG_SUB:
        unfilter_sub(row, bytes, unit);
        break;
    case STK_PNG_UP:
        unfilter_up(row, above, bytes);
        break;
    case STK_PNG_AVERAGE:
        unfilter_average(row, above, bytes, unit);
        break;
    case STK_PNG_PAETH:
        unfilter_paeth(row, above, bytes, unit);
        break;
    default:
        break;
    }
}

void stk_png_unfilter(uint8_t *row, const uint8_t *above, size_t bytes, uint32_t unit)
{
    switch (unit) {
    case 1:
        unfilter_unit(row, above, bytes, 1);
        break;
    case 3:
        unfilter_unit(row, above, bytes, 3);
        break;
    case 4:
        unfilter_unit(row, above, bytes, 4);
        break;
    default:
        unfilter_unit(row, above, bytes, unit);
        break;
    }
}

static const struct stk_png_kernels kernels_plain = {.name = "none"};

const struct stk_png_kernels *stk_png_kernels_get(uint32_t vector)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2");

    if (vector != STOKER_SIMD_NONE && avx2) {
        return &stk_png_kernels_avx2;
    }
#endif
    return vector == STOKER_SIMD_AVX2 ? NULL : &kernels_plain;
}
