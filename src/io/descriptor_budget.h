/* io/descriptor_budget.h: one share of the process's open files (RLIMIT_NOFILE) for all engines:
 * connections, open shards, and workers that copy. A caller that gets fewer than it wants works
 * with fewer.
 *
 *   reserve --> granted --release-->
 *
 * Owner: the process. Threads: any. Memory: static. Bound: the limit less what was open when
 * nothing was reserved, less STK_DESCRIPTORS_SPARE. */
#ifndef IO_DESCRIPTOR_BUDGET_H
#define IO_DESCRIPTOR_BUDGET_H

#include "base/base.h"

#define STK_DESCRIPTORS_SPARE 16u /* for the rest of the process, and for short uses */

/* Reserves up to `wanted` descriptors, and at least `least` of them: at most half of those that are
 * left if there are not plenty, so that others get some, too. */
uint32_t stk_descriptors_reserve(uint32_t wanted, uint32_t least);
void stk_descriptors_release(uint32_t count);

/* A cache of open files: close_one closes an unused file, if there is one, and returns
 * whether it did. It is called by any thread. */
struct stk_descriptors_cache {
    bool (*close_one)(void *owner);
    void *owner;
    struct stk_descriptors_cache *next; /* private */
};
void stk_descriptors_add_cache(struct stk_descriptors_cache *cache);
void stk_descriptors_remove_cache(struct stk_descriptors_cache *cache); /* waits for close_one */

/* After a call failed with errno `number`: returns true if it is to be called again, since there
 * were too many open files, and a cache closed one, or a little time passed in which another thread
 * may have. *tries is 0 at first; after 10 s the failure is final. */
bool stk_descriptors_retry(int number, uint32_t *tries);

#endif
