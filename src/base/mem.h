/* base/mem.h: the only way to memory, so that tests can fail the n-th call and count.
 * Owner: the caller frees with stk_free. Threads: any.
 * Memory: the C heap. Bound: none; base/memory_budget.h keeps budgets. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/base.h"

/* Zeroed memory, NULL when there is none (or when the test says so). */
void *stk_alloc(size_t count, size_t item_bytes);
/* Keeps the first old_count items, zeroes the rest. NULL: the old block is untouched. */
void *stk_realloc(void *block, size_t old_count, size_t new_count, size_t item_bytes);
char *stk_strdup(const char *text);
void stk_free(void *block);

/* Allocation functions for a library that may hold secrets: blocks of malloc() are wiped when they
 * are freed or moved. NULL is allowed. */
void stk_wipe_free(void *block);
void *stk_wipe_realloc(void *block, size_t bytes);
void stk_wipe_skip_free(void *block); /* freed as it is */
/* Wipes the stack below its caller, and the registers that copy: both hold pieces of what was
 * copied, and the dynamic linker saves the latter to the stack. */
void stk_wipe_stack(void);
void stk_wipe_registers(void); /* these alone: some 50 ns */

/* For tests: the n-th call from now fails (0: never); how many blocks are alive. */
void stk_mem_fail_nth(uint64_t n);
uint64_t stk_mem_calls(void);
int64_t stk_mem_alive(void);
/* What takes memory by itself asks whether this call is the one that fails, and counts its blocks.
 */
bool stk_mem_call_fails(void);
void stk_mem_count(int64_t blocks); /* more alive, or fewer */

#endif
