/* Goal: checksums are XXH3-64, for all bytes at once and for pieces.
 * Method: the known answer for no bytes; pieces compared with one call. */
#include "base/xxh3.h"

#include "test/t.h"

/* Test vector of XXH3's own sanity test: no bytes, seed 0. */
static void test_sum(void)
{
    struct stk_xxh3 *sum;

    T_TRUE("empty", stk_xxh3_64("", 0) == 0x2d06800538d394c2ULL);
    T_TRUE("differs", stk_xxh3_64("a", 1) != stk_xxh3_64("b", 1));
    sum = stk_xxh3_open();
    for (int turn = 0; turn < 2; turn++) { /* pieces; and again, from the start */
        stk_xxh3_add(sum, "some ", 5);
        stk_xxh3_add(sum, "", 0);
        stk_xxh3_add(sum, "pieces", 6);
        T_TRUE("pieces", stk_xxh3_done(sum) == stk_xxh3_64("some pieces", 11));
    }
    stk_xxh3_close(sum);
    stk_xxh3_close(NULL);
}

int main(void)
{
    test_sum();
    return t_finish();
}
