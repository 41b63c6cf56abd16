/* test/idle_blocks.h: the blocks of memory that remain after close. Closed objects end in the
 * background: a worker may free a loader, and an engine its last thread, a moment later.
 * Owner: the test. Threads: one. Memory: none. Bound: none. */
#ifndef TEST_IDLE_BLOCKS_H
#define TEST_IDLE_BLOCKS_H

#include "base/mem.h"

#include <unistd.h>

/* Waits until no more blocks are freed, and returns how many are alive. */
static inline int64_t t_idle_blocks(void)
{
    int64_t alive = stk_mem_alive();

    for (int quiet = 0; quiet < 20; quiet++) {
        usleep(10000);
        if (stk_mem_alive() != alive) {
            alive = stk_mem_alive();
            quiet = 0;
        }
    }
    return alive;
}

#endif
