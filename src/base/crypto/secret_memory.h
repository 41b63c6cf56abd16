/* base/crypto/secret_memory.h: memory for passwords, signatures and tokens: its pages are excluded
 * from core dumps, and blocks are overwritten when they are freed.
 *
 * Also used as the allocator of libraries that copy secrets. Blocks are zeroed, and aligned to 16
 * bytes.
 * Owner: the caller frees with stk_secret_free. Threads: any; any thread may fork: the child has a
 * copy. Memory: pages that are reused for later blocks; a block takes up to twice its size and 16
 * bytes. Bound: live blocks, and STK_SECRET_CACHED_BYTES of freed large blocks. */
#ifndef BASE_CRYPTO_SECRET_MEMORY_H
#define BASE_CRYPTO_SECRET_MEMORY_H

#include "base/base.h"

#define STK_SECRET_CACHED_BYTES (32u << 20)

/* NULL is allowed. */
void stk_secret_free(void *block);
/* Returns NULL if there is not enough memory. */
void *stk_secret_alloc(size_t bytes) __attribute__((alloc_size(1)));
void *stk_secret_calloc(size_t count, size_t item_bytes) __attribute__((alloc_size(1, 2)));
/* Added bytes are zero; a smaller block keeps its pages. Returns NULL if there is not enough
 * memory; the old block is unchanged then. */
void *stk_secret_realloc(void *block, size_t bytes) __attribute__((alloc_size(2)));
char *stk_secret_strdup(const char *text);

#endif
