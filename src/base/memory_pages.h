/* base/memory_pages.h: allocates memory in pages, and chooses small or huge pages by their cost.
 * Owner: the caller frees with stk_pages_free. Threads: any; struct stk_page_policy, too.
 * Memory: anonymous mappings; tests can make them fail and count them by base/mem.h.
 * Bound: none; base/memory_budget.h keeps budgets. */
#ifndef BASE_MEMORY_PAGES_H
#define BASE_MEMORY_PAGES_H

#include "base/base.h"

#include <stdatomic.h>

/* Returns page-aligned memory for batches and reads, or NULL. Asks the kernel for huge pages; for
 * 4 MiB and more only if huge pages did not cost more than small ones lately. */
void *stk_pages_alloc(size_t bytes);
/* The same, always with huge pages: for memory that is used for many reads or writes with O_DIRECT.
 * A request to a device has a segment for each page, and at most a few hundred: a virtual disk read
 * 0.8 GB/s into small pages and 2.2 GB/s into huge ones (medians of 16 runs). */
void *stk_pages_alloc_huge(size_t bytes);
void stk_pages_free(void *pages, size_t bytes);
/* Reserves pages that the kernel provides at the first access; populate makes it provide them now,
 * for memory that is filled once, and soon. Other threads may write to the pages meanwhile. */
void *stk_pages_reserve(size_t bytes);
void stk_pages_populate(void *pages, size_t bytes);
/* Makes the kernel provide the parts of memory that were never used, in units of 2 MiB at multiples
 * of it. The memory may have any owner; it will be overwritten soon. Contents stay. Other threads
 * may write to the memory meanwhile. */
void stk_pages_provide(void *memory, size_t bytes);
/* Abandons pages that the kernel may still write to: never frees them, and does not count them. */
void stk_pages_leak(void *pages);

/* Chooses the page size that cost less lately. Tries the other size from time to time, less often
 * the longer it costs more. Any thread. */
struct stk_page_policy {
    _Atomic uint64_t ns[2]; /* cost of 2 MiB in small pages, in a huge page; 0: unknown */
    _Atomic uint32_t until, gap;
};
bool stk_page_policy_choose(struct stk_page_policy *choice); /* true: huge pages */
void stk_page_policy_record(struct stk_page_policy *choice, bool huge, uint64_t ns);

#endif
