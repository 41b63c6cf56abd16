/* base/memory_budget.h: a limit of memory that is never exceeded, and an allocator for libraries
 * that reserves from such a limit.
 * Owner: values; a library frees its blocks. Threads: any; a struct stk_budget_allocator: the
 * library's. Memory: the C heap, by base/mem.h. Bound: bytes_max. */
#ifndef BASE_MEMORY_BUDGET_H
#define BASE_MEMORY_BUDGET_H

#include "base/base.h"

#include <stdatomic.h>

/* A limit and the bytes that are reserved of it. Any thread. */
struct stk_budget {
    uint64_t bytes_max; /* const after init */
    _Atomic uint64_t bytes;
    _Atomic uint64_t bytes_peak;
};

/* How the allocator below reserves memory; a NULL pointer to it: without limit. reserve returns
 * false if the memory is refused. Both run in the calling thread. */
struct stk_budget_hooks {
    bool (*reserve)(void *owner, uint64_t bytes);
    void (*release)(void *owner, uint64_t bytes);
    void *owner;
};

/* Allocator of one library: the functions below have the usual signature, `opaque` is a struct
 * stk_budget_allocator. The size of a block is stored in front of it. */
struct stk_budget_allocator {
    const struct stk_budget_hooks *grant; /* borrowed; NULL: without limit */
    bool refused;                         /* a reservation was refused */
};

void *stk_budget_allocator_alloc(void *opaque, size_t count, size_t item_bytes);
void stk_budget_allocator_free(void *opaque, void *data); /* NULL is allowed */

/* Returns false, and reserves nothing, if the limit would be exceeded. */
bool stk_budget_reserve(struct stk_budget *budget, uint64_t bytes);
void stk_budget_release(struct stk_budget *budget, uint64_t bytes);

#endif
