/* Goal: checksums are XXH3-64, of all at once and of pieces.
 * Method: the known answer of no bytes, and pieces compared with the whole. */
#include "base/xxh3.h"

#include "test/t.h"

/* Test vector of XXH3's own sanity test: no bytes, seed 0. */
static void test_sum(void)
{
    struct stk_sum *sum;

    T_TRUE("empty", stk_sum64("", 0) == 0x2d06800538d394c2ULL);
    T_TRUE("differs", stk_sum64("a", 1) != stk_sum64("b", 1));
    sum = stk_sum_open();
    for (int turn = 0; turn < 2; turn++) { /* pieces; and again, from the start */
        stk_sum_add(sum, "some ", 5);
        stk_sum_add(sum, "", 0);
        stk_sum_add(sum, "pieces", 6);
        T_TRUE("pieces", stk_sum_done(sum) == stk_sum64("some pieces", 11));
    }
    stk_sum_close(sum);
    stk_sum_close(NULL);
}

int main(void)
{
    test_sum();
    return t_finish();
}
