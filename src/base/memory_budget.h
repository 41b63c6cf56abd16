/* base/memory_budget.h: a number of bytes that is never passed, and allocators of libraries that
 * ask before they take. Owner: values; a block of a library is given back by it. Threads: any, but
 * a struct stk_budget_allocator: the library's. Memory: the C heap, by base/mem.h. Bound:
 * bytes_max. */
#ifndef BASE_MEMORY_BUDGET_H
#define BASE_MEMORY_BUDGET_H

#include "base/base.h"

#include <stdatomic.h>

/* A number of bytes that is never passed. Any thread. */
struct stk_budget {
    uint64_t bytes_max; /* const after init */
    _Atomic uint64_t bytes;
    _Atomic uint64_t bytes_peak;
};

/* Who grants memory to a library that takes it by itself; NULL instead of it: nobody is asked.
 * reserve: false when it is not granted. The calling thread. */
struct stk_budget_hooks {
    bool (*reserve)(void *owner, uint64_t bytes);
    void (*release)(void *owner, uint64_t bytes);
    void *owner;
};

/* What one library takes of it. The functions fit allocators, whose opaque is a struct
 * stk_budget_allocator. Each block lies behind its size, so that it can be given back. */
struct stk_budget_allocator {
    const struct stk_budget_hooks *grant; /* lent; NULL: nobody is asked */
    bool refused;                         /* it said no */
};

void *stk_budget_allocator_alloc(void *opaque, size_t count, size_t item_bytes);
void stk_budget_allocator_free(void *opaque, void *data); /* NULL is fine */

bool stk_budget_reserve(struct stk_budget *budget, uint64_t bytes);
void stk_budget_release(struct stk_budget *budget, uint64_t bytes);

#endif
