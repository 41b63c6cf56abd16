/* format/compress/library_allocator.h: allocation functions for zlib, bzlib and libzstd, by a
 * struct stk_budget_allocator (liblzma uses stk_budget_allocator_alloc and
 * stk_budget_allocator_free), so that the memory of libraries is reserved in the budget, and tests
 * count it and make it fail.
 * Owner: the stream whose opaque it is. Threads: one.
 * Memory: base/mem.h.
 * Bound: the budget's. */
#ifndef FORMAT_COMPRESS_LIBRARY_ALLOCATOR_H
#define FORMAT_COMPRESS_LIBRARY_ALLOCATOR_H

#include "base/memory_budget.h"

static inline void *stk_library_allocator_gzip(void *opaque, unsigned count, unsigned bytes)
{
    return stk_budget_allocator_alloc(opaque, count, bytes);
}

static inline void *stk_library_allocator_bzip2(void *opaque, int count, int bytes)
{
    return count < 0 || bytes < 0
               ? NULL
               : stk_budget_allocator_alloc(opaque, (size_t)count, (size_t)bytes);
}

static inline void *stk_library_allocator_zstd(void *opaque, size_t bytes)
{
    return stk_budget_allocator_alloc(opaque, bytes, 1);
}

#endif
