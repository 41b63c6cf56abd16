/* base/memory_pages.h: whole pages of memory, and of which size they shall be.
 * Owner: the caller frees with stk_pages_free. Threads: any; of struct stk_page_policy, too.
 * Memory: mappings of their own; a test can fail and count them by base/mem.h.
 * Bound: none; base/memory_budget.h keeps budgets. */
#ifndef BASE_MEMORY_PAGES_H
#define BASE_MEMORY_PAGES_H

#include "base/base.h"

#include <stdatomic.h>

/* Pages for batches and reads: page-aligned; huge pages where the kernel grants them, and, of 4 MiB
 * or more, where those were not dearer than small ones lately (the first of them is there then). */
void *stk_pages_alloc(size_t bytes);
void stk_pages_free(void *pages, size_t bytes);
/* Pages that come as they are touched; and makes them come at once, for what is filled once, and
 * soon. Others may write to them meanwhile. */
void *stk_pages_reserve(size_t bytes);
void stk_pages_populate(void *pages, size_t bytes);
/* The kernel may write to them at any time: they are never freed, and no longer counted alive. */
void stk_pages_leak(void *pages);

/* Of which size the next pages shall be: that which cost less lately. The other one is tried at
 * times, more rarely the longer it stays dearer. Any thread. */
struct stk_page_policy {
    _Atomic uint64_t ns[2]; /* of 2 MiB in small pages, in a huge one; 0: not known */
    _Atomic uint32_t until, gap;
};
bool stk_page_policy_choose(struct stk_page_policy *choice); /* whether huge */
void stk_page_policy_record(struct stk_page_policy *choice, bool huge, uint64_t ns);

#endif
