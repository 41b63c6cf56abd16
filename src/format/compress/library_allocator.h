/* format/compress/library_allocator.h: allocators of zlib, bzlib and zstd on a struct stk_granted
 * (liblzma's are stk_granted_take and stk_granted_give_back), so that a library's memory is
 * granted, and tests count it and make it fail.
 * Owner: the stream whose opaque it is. Threads: one. Memory: base/mem.h. Bound: the grant's. */
#ifndef FORMAT_COMPRESS_LIBRARY_ALLOCATOR_H
#define FORMAT_COMPRESS_LIBRARY_ALLOCATOR_H

#include "base/memory_budget.h"

static inline void *stk_library_take_gzip(void *opaque, unsigned count, unsigned bytes)
{
    return stk_granted_take(opaque, count, bytes);
}

static inline void *stk_library_take_bzip2(void *opaque, int count, int bytes)
{
    return count < 0 || bytes < 0 ? NULL : stk_granted_take(opaque, (size_t)count, (size_t)bytes);
}

static inline void *stk_library_take_zstd(void *opaque, size_t bytes)
{
    return stk_granted_take(opaque, bytes, 1);
}

#endif
