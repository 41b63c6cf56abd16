/* base/crypto/secret_memory.h: memory for secrets: in pages that no core dump has, wiped when it is
 * freed.
 *
 * For what holds passwords, signatures and tokens, and for libraries that copy them. Blocks are
 * zeroed, and aligned to 16 bytes.
 * Owner: the caller frees with stk_secret_free. Threads: any; fork in any thread is fine: the child
 * has its copy. Memory: pages of the process, kept for the next blocks; a block takes up to twice
 * its bytes and 16. Bound: what is alive, and STK_SECRET_CACHED_BYTES of freed large blocks. */
#ifndef BASE_CRYPTO_SECRET_MEMORY_H
#define BASE_CRYPTO_SECRET_MEMORY_H

#include "base/base.h"

#define STK_SECRET_CACHED_BYTES (32u << 20)

/* NULL is fine. */
void stk_secret_free(void *block);
/* NULL: there is none. The sizes that compilers are told are those that were asked for. */
void *stk_secret_alloc(size_t bytes) __attribute__((alloc_size(1)));
void *stk_secret_calloc(size_t count, size_t item_bytes) __attribute__((alloc_size(1, 2)));
/* What is added is zero; a block that shrinks keeps its pages. NULL: the old block is untouched. */
void *stk_secret_realloc(void *block, size_t bytes) __attribute__((alloc_size(2)));
char *stk_secret_strdup(const char *text);

#endif
