/* base/mem.h: the allocator of the library. All rooms use it, so that tests can make the n-th call
 * fail and count blocks.
 * Owner: the caller frees with stk_free. Threads: any.
 * Memory: the C heap. Bound: none; base/memory_budget.h keeps budgets. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/base.h"

/* Returns zeroed memory, or NULL if there is not enough or a test makes the call fail. */
void *stk_alloc(size_t count, size_t item_bytes);
/* Keeps the first old_count items and zeroes the rest. Returns NULL if there is not enough memory;
 * the old block is unchanged then. */
void *stk_realloc(void *block, size_t old_count, size_t new_count, size_t item_bytes);
/* Makes space for `want` items in a block that grows by doubling, to at least 64 items; new items
 * are zero. Returns 0, or -ENOMEM: the block is unchanged then. */
int stk_reserve(void **block, uint64_t *capacity, uint64_t want, size_t item_bytes);
char *stk_strdup(const char *text);
void stk_free(void *block);

/* Allocation functions for a library that may hold secrets: blocks of malloc() are wiped when they
 * are freed or moved. NULL is allowed. */
void stk_wipe_free(void *block);
void *stk_wipe_realloc(void *block, size_t bytes);
void stk_wipe_skip_free(void *block); /* frees without overwriting */
/* Overwrites the stack below the caller, and the vector registers: both may hold pieces of a secret
 * that was copied, and the dynamic linker saves these registers to the stack. */
void stk_wipe_stack(void);
void stk_wipe_registers(void); /* only the registers: about 50 ns */

/* For tests: make the n-th call from now fail (0: none); count calls and live blocks. */
void stk_mem_fail_nth(uint64_t n);
uint64_t stk_mem_calls(void);
int64_t stk_mem_alive(void);
/* For code that gets memory elsewhere (pages): returns true if this call has to fail for a test;
 * and counts its live blocks. */
bool stk_mem_call_fails(void);
void stk_mem_count(int64_t blocks); /* negative: freed */

#endif
