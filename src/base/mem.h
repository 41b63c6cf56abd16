/* base/mem.h: the only way to memory, so that tests can fail the n-th call and count.
 * Owner: the caller frees with stk_free. Threads: any.
 * Memory: the C heap. Bound: budgets are kept by `struct stk_budget`. */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include "base/base.h"

#include <stdatomic.h>

/* Zeroed memory, NULL when there is none (or when the test says so). */
void *stk_alloc(size_t count, size_t item_bytes);
/* Keeps the first old_count items, zeroes the rest. NULL: the old block is untouched. */
void *stk_realloc(void *block, size_t old_count, size_t new_count, size_t item_bytes);
char *stk_strdup(const char *text);
void stk_free(void *block);

/* Pages for batches and reads: page-aligned; huge pages where the kernel grants them, and, of 4 MiB
 * or more, where those were not dearer than small ones lately (the first of them is there then). */
void *stk_pages_alloc(size_t bytes);
void stk_pages_free(void *pages, size_t bytes);
/* Pages that come as they are touched; and makes them come at once, for what is filled once, and
 * soon. Others may write to them meanwhile. */
void *stk_pages_reserve(size_t bytes);
void stk_pages_fill(void *pages, size_t bytes);
/* The kernel may write to them at any time: they are never freed, and no longer counted alive. */
void stk_pages_lose(void *pages);

/* Of which size the next pages shall be: that which cost less lately. The other one is tried at
 * times, more rarely the longer it stays dearer. Any thread. */
struct stk_page_choice {
    _Atomic uint64_t ns[2]; /* of 2 MiB in small pages, in a huge one; 0: not known */
    _Atomic uint32_t until, gap;
};
bool stk_page_choose(struct stk_page_choice *choice); /* whether huge */
void stk_page_learn(struct stk_page_choice *choice, bool huge, uint64_t ns);

/* For a library that is told by what to free, and may hold secrets: blocks of malloc, wiped when
 * they are freed. NULL is fine. */
void stk_wipe_free(void *block);
void stk_wipe_not(void *block); /* freed as it is */
/* Wipes the stack below its caller, and the registers that copy: both hold pieces of what was
 * copied, and the dynamic linker saves the latter to the stack. */
void stk_wipe_stack(void);
void stk_wipe_registers(void); /* these alone: some 50 ns */

/* For tests: the n-th call from now fails (0: never); how many blocks are alive. */
void stk_mem_fail_nth(uint64_t n);
uint64_t stk_mem_calls(void);
int64_t stk_mem_alive(void);

/* A number of bytes that is never passed. Any thread. */
struct stk_budget {
    uint64_t bytes_max; /* const after init */
    _Atomic uint64_t bytes;
    _Atomic uint64_t bytes_peak;
};

/* Who grants memory to a library that takes it by itself; NULL instead of it: nobody is asked.
 * reserve: false when it is not granted. The calling thread. */
struct stk_grant {
    bool (*reserve)(void *owner, uint64_t bytes);
    void (*release)(void *owner, uint64_t bytes);
    void *owner;
};

/* What one library takes of it. The functions fit allocators, whose opaque is a struct
 * stk_granted. Each block lies behind its size, so that it can be given back. */
struct stk_granted {
    const struct stk_grant *grant; /* lent; NULL: nobody is asked */
    bool refused;                  /* it said no */
};

void *stk_granted_take(void *opaque, size_t count, size_t item_bytes);
void stk_granted_give_back(void *opaque, void *data); /* NULL is fine */

bool stk_budget_reserve(struct stk_budget *budget, uint64_t bytes);
void stk_budget_release(struct stk_budget *budget, uint64_t bytes);

#endif
