/* test/overwrite.h: changes bytes that are open, as another process changes a mapped file.
 * Owner: the test, which owns the bytes. Threads: one. Memory: none. Bound: the bytes. */
#ifndef TEST_OVERWRITE_H
#define TEST_OVERWRITE_H

#include "base/random.h"

#include <string.h>

#define T_OVERWRITE_ROUNDS 6u

/* Each round overwrites more: single bytes, numbers, then the second half with zeros, as a
 * truncated file reads, and all of it. */
static inline void t_overwrite(uint8_t *data, size_t bytes, uint32_t round)
{
    static const uint64_t values[] = {0, 1, UINT64_MAX, UINT64_C(1) << 32, UINT32_MAX, 255};

    for (uint64_t i = 0; i < 24 && bytes >= 16; i++) {
        uint64_t key = stk_random_key(bytes + round, i), at = key % (bytes - 8);

        if (round % 2 == 0) {
            data[at] = (uint8_t)(key >> 40);
        } else {
            memcpy(data + at / 8 * 8, &values[(key >> 32) % (sizeof values / 8)], 8);
        }
    }
    if (round + 2 == T_OVERWRITE_ROUNDS) {
        memset(data + bytes / 2, 0, bytes - bytes / 2);
    } else if (round + 1 == T_OVERWRITE_ROUNDS) {
        memset(data, 0xff, bytes);
    }
}

#endif
