/* Goal: a set of keys finds every key that was added, also after an allocation failed.
 * Method: enough keys for several growths, each added twice; every allocation fails once. */
#include "base/crypto/key_set.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>

/* Over several growths: each key is new once, and failed memory loses none. */
static void test_keys(void)
{
    struct stk_key_set keys = {0};
    int wrong = 0;

    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_key_set_add(&keys, (struct stk_view){(const uint8_t *)"a", 1}), -ENOMEM);
    stk_mem_fail_nth(0);
    T_EQ("empty key", stk_key_set_add(&keys, (struct stk_view){NULL, 0}), 1);
    T_EQ("empty key", stk_key_set_add(&keys, (struct stk_view){NULL, 0}), 0);
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < 5000; i++) {
            struct stk_view key = {(const uint8_t *)&i, sizeof i};

            wrong += stk_key_set_add(&keys, key) != (turn == 0);
        }
    }
    T_EQ("new once", wrong, 0);
    T_EQ("count", keys.count, 5001);
    stk_key_set_deinit(&keys);
    stk_key_set_deinit(&keys);
}

int main(void)
{
    test_keys();
    return t_finish();
}
