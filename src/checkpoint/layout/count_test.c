/* Goal: NaN, Inf and pages of zeros are counted in all dtypes that have them, at any place.
 * Method: rows of values for each dtype, at several places of a tensor whose length is no multiple
 * of the piece; pages at all offsets. Covers count.c. */
#include "checkpoint/layout/count.h"
#include "test/t.h"

#include <string.h>

#define ELEMENTS 3001u /* more than two pieces */

static void test_dtypes(void)
{
    static const struct count_row {
        const char *name;
        uint64_t bits;
        size_t bytes;
        uint64_t nan, inf;
    } rows[] = {
        {"F64", 0x7ff0000000000001, 8, 1, 0},
        {"F64", 0xfff8000000000000, 8, 1, 0},
        {"F64", 0xfff0000000000000, 8, 0, 1},
        {"F64", 0x7fefffffffffffff, 8, 0, 0},
        {"F32", 0x7fc00000, 4, 1, 0},
        {"F32", 0xff800001, 4, 1, 0},
        {"F32", 0x7f800000, 4, 0, 1},
        {"F32", 0xff800000, 4, 0, 1},
        {"F32", 0x7f7fffff, 4, 0, 0},
        {"C64", 0x7fc0000000000000, 8, 1, 0},
        {"BF16", 0x7fc0, 2, 1, 0},
        {"BF16", 0xff81, 2, 1, 0},
        {"BF16", 0xff80, 2, 0, 1},
        {"BF16", 0x7f7f, 2, 0, 0},
        {"F16", 0x7e00, 2, 1, 0},
        {"F16", 0xfc00, 2, 0, 1},
        {"F16", 0x7bff, 2, 0, 0},
        {"F8_E4M3", 0x7f, 1, 1, 0},
        {"F8_E4M3", 0xff, 1, 1, 0},
        {"F8_E4M3", 0x7e, 1, 0, 0},
        {"F8_E5M2", 0x7d, 1, 1, 0},
        {"F8_E5M2", 0xfc, 1, 0, 1},
        {"F8_E5M2", 0x7b, 1, 0, 0},
        {"F8_E4M3FNUZ", 0x80, 1, 1, 0},
        {"F8_E5M2FNUZ", 0x80, 1, 1, 0},
        {"F8_E5M2FNUZ", 0x7c, 1, 0, 0},
        {"F8_E8M0", 0xff, 1, 1, 0},
        {"F8_E8M0", 0xfe, 1, 0, 0},
        {"I32", 0x7fc00000, 4, 0, 0},
        {"U8", 0xff, 1, 0, 0},
        {"BOOL", 1, 1, 0, 0},
        {"I64", 0x7ff0000000000001, 8, 0, 0},
    };
    static const uint32_t places[] = {0, 1, 1023, 1024, 2999, ELEMENTS - 1};
    static uint8_t data[ELEMENTS * 8];

    T_EACH(count_row, row, rows)
    {
        struct stk_tensor_counts counts = {0};

        memset(data, 1, sizeof data);
        for (size_t i = 0; i < STK_COUNT(places); i++) {
            memcpy(data + places[i] * row->bytes, &row->bits, row->bytes);
        }
        stk_tensor_count(&counts, row->name, 0, (struct stk_view){data, ELEMENTS * row->bytes});
        T_EQ(row->name, counts.nan, row->nan * STK_COUNT(places));
        T_EQ(row->name, counts.inf, row->inf * STK_COUNT(places));
        T_EQ(row->name, counts.zero_pages, 0);
    }
}

static void test_pages(void)
{
    static uint8_t data[5 * STK_COUNT_PAGE_BYTES];
    static const struct page_row {
        const char *name;
        uint64_t offset, bytes, dirty; /* dirty: this byte is not zero; UINT64_MAX: none */
        uint64_t pages, first;
    } rows[] = {
        {"all", 0, sizeof data, UINT64_MAX, 5, 0},
        {"a byte", 0, sizeof data, 4095, 4, 4096},
        {"first byte", 0, sizeof data, 4096, 4, 0},
        {"not aligned", 4, sizeof data - 4, UINT64_MAX, 4, 4096},
        {"short", 4, 4096, UINT64_MAX, 0, UINT64_MAX},
        {"less than a page", 0, 4095, UINT64_MAX, 0, UINT64_MAX},
        {"empty", 0, 0, UINT64_MAX, 0, UINT64_MAX},
        {"later", 40960, 4096, UINT64_MAX, 1, 40960},
    };

    T_EACH(page_row, row, rows)
    {
        struct stk_tensor_counts counts = {0};
        struct stk_view bytes = {data, row->bytes};

        if (row->dirty != UINT64_MAX) {
            data[row->dirty] = 1;
        }
        stk_tensor_count(&counts, "F32", row->offset, bytes);
        T_EQ(row->name, counts.zero_pages, row->pages);
        T_EQ(row->name, stk_tensor_zero_page(row->offset, bytes), row->first);
        if (row->dirty != UINT64_MAX) {
            data[row->dirty] = 0;
        }
    }
}

int main(void)
{
    test_dtypes();
    test_pages();
    return t_finish();
}
