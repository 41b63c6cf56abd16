/* Counts NaN, Inf and pages of zeros. */
#include "checkpoint/layout/count.h"

#include <string.h>

#define PIECE 1024u /* elements: a constant, so that the compiler uses vectors */

struct totals {
    uint64_t nan, inf;
};

/* Elements of `type` without their sign: above `inf` they are NaN, equal to it Inf. */
#define DEFINE_COUNT(name, type, magnitude, infinite)                                              \
    static void name##_piece(const type *piece, struct totals *totals)                             \
    {                                                                                              \
        type nan = 0, inf = 0;                                                                     \
                                                                                                   \
        for (uint32_t i = 0; i < PIECE; i++) {                                                     \
            type bits = piece[i] & (magnitude);                                                    \
                                                                                                   \
            nan = (type)(nan + (bits > (infinite)));                                               \
            inf = (type)(inf + (bits == (infinite)));                                              \
        }                                                                                          \
        totals->nan += nan;                                                                        \
        totals->inf += inf;                                                                        \
    }                                                                                              \
    static void name(const uint8_t *data, size_t bytes, struct totals *totals)                     \
    {                                                                                              \
        type piece[PIECE];                                                                         \
                                                                                                   \
        for (size_t at = 0; at < bytes; at += sizeof piece) {                                      \
            size_t part = stk_min(bytes - at, sizeof piece);                                       \
                                                                                                   \
            memcpy(piece, data + at, part);                                                        \
            memset((uint8_t *)piece + part, 0, sizeof piece - part);                               \
            name##_piece(piece, totals);                                                           \
        }                                                                                          \
    }

DEFINE_COUNT(count_f64, uint64_t, UINT64_C(0x7fffffffffffffff), UINT64_C(0x7ff0000000000000))
DEFINE_COUNT(count_f32, uint32_t, 0x7fffffffu, 0x7f800000u)
DEFINE_COUNT(count_f16, uint16_t, 0x7fffu, 0x7c00u)
DEFINE_COUNT(count_bf16, uint16_t, 0x7fffu, 0x7f80u)

/* Floats of 8 bits: the bytes that are NaN and Inf. */
static void count_f8(const uint8_t *data, size_t bytes, const char *dtype, struct totals *totals)
{
    bool fnuz = strstr(dtype, "FNUZ") != NULL, e8m0 = strcmp(dtype, "F8_E8M0") == 0;
    bool e5m2 = strcmp(dtype, "F8_E5M2") == 0;

    for (size_t i = 0; i < bytes; i++) {
        uint8_t magnitude = data[i] & 0x7f;

        if (fnuz) {
            totals->nan += data[i] == 0x80;
        } else if (e8m0) {
            totals->nan += data[i] == 0xff;
        } else if (e5m2) {
            totals->nan += magnitude > 0x7c;
            totals->inf += magnitude == 0x7c;
        } else { /* E4M3 has no Inf */
            totals->nan += magnitude == 0x7f;
        }
    }
}

static bool is_zero(const uint8_t *data)
{
    uint64_t first;

    memcpy(&first, data, sizeof first);
    return first == 0 &&
           memcmp(data, data + sizeof first, STK_COUNT_PAGE_BYTES - sizeof first) == 0;
}

uint64_t stk_tensor_zero_page(uint64_t offset, struct stk_view bytes)
{
    for (uint64_t page = stk_round_up(offset, STK_COUNT_PAGE_BYTES);
         page + STK_COUNT_PAGE_BYTES <= offset + bytes.bytes; page += STK_COUNT_PAGE_BYTES) {
        if (is_zero(bytes.data + (page - offset))) {
            return page;
        }
    }
    return UINT64_MAX;
}

static uint64_t count_zero_pages(uint64_t offset, struct stk_view bytes)
{
    uint64_t count = 0;

    for (uint64_t page = stk_round_up(offset, STK_COUNT_PAGE_BYTES);
         page + STK_COUNT_PAGE_BYTES <= offset + bytes.bytes; page += STK_COUNT_PAGE_BYTES) {
        count += is_zero(bytes.data + (page - offset));
    }
    return count;
}

static void add(_Atomic uint64_t *sum, uint64_t count)
{
    if (count > 0) { /* many threads, and most tensors have none */
        atomic_fetch_add_explicit(sum, count, memory_order_relaxed);
    }
}

void stk_tensor_count(struct stk_tensor_counts *counts, const char *dtype, uint64_t offset,
                      struct stk_view bytes)
{
    struct totals totals = {0, 0};

    if (strcmp(dtype, "BF16") == 0) {
        count_bf16(bytes.data, bytes.bytes, &totals);
    } else if (strcmp(dtype, "F32") == 0 || strcmp(dtype, "C64") == 0) { /* C64: two F32 */
        count_f32(bytes.data, bytes.bytes, &totals);
    } else if (strcmp(dtype, "F16") == 0) {
        count_f16(bytes.data, bytes.bytes, &totals);
    } else if (strcmp(dtype, "F64") == 0) {
        count_f64(bytes.data, bytes.bytes, &totals);
    } else if (strncmp(dtype, "F8_", 3) == 0) {
        count_f8(bytes.data, bytes.bytes, dtype, &totals);
    }
    add(&counts->nan, totals.nan);
    add(&counts->inf, totals.inf);
    add(&counts->zero_pages, count_zero_pages(offset, bytes));
}
