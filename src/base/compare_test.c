/* Goal: qsort() with these functions sorts the extremes of 64 bits and texts by their bytes.
 * Method: small arrays. */
#include "base/compare.h"

#include "test/t.h"

#include <stdlib.h>

static void test_numbers(void)
{
    uint64_t numbers[] = {UINT64_MAX, 5, 0, UINT64_MAX, 1ull << 63, 5};
    static const uint64_t want[] = {0, 5, 5, 1ull << 63, UINT64_MAX, UINT64_MAX};

    qsort(numbers, 6, sizeof *numbers, stk_compare_u64);
    T_TRUE("order", memcmp(numbers, want, sizeof want) == 0);
    T_EQ("less", stk_compare_u64(&want[0], &want[1]), -1);
    T_EQ("equal", stk_compare_u64(&want[1], &want[2]), 0);
    T_EQ("greater", stk_compare_u64(&want[4], &want[3]), 1);
}

static void test_texts(void)
{
    const char *texts[] = {"b", "\xc3\xa4", "", "ab", "a", "B"};
    static const char *const want[] = {"", "B", "a", "ab", "b", "\xc3\xa4"};

    qsort(texts, 6, sizeof *texts, stk_compare_texts);
    for (size_t i = 0; i < 6; i++) {
        T_TRUE(want[i], strcmp(texts[i], want[i]) == 0);
    }
}

int main(void)
{
    test_numbers();
    test_texts();
    return t_finish();
}
