/* The allocator, with failure injection for tests. */
#include "base/mem.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t call_count;
static _Atomic uint64_t fail_at; /* call number that fails; 0: none */
static _Atomic int64_t alive_count;

/* All accesses are relaxed: the counters synchronize nothing else. */
bool stk_mem_call_fails(void)
{
    uint64_t call = atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed) + 1;

    return call == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *stk_alloc(size_t count, size_t item_bytes)
{
    void *block =
        stk_mem_call_fails() ? NULL : calloc(count ? count : 1, item_bytes ? item_bytes : 1);

    if (block) {
        atomic_fetch_add_explicit(&alive_count, 1, memory_order_relaxed);
    }
    return block;
}

void *stk_realloc(void *block, size_t old_count, size_t new_count, size_t item_bytes)
{
    size_t bytes;
    uint8_t *grown;

    if (stk_mem_call_fails() || __builtin_mul_overflow(new_count, item_bytes, &bytes)) {
        return NULL;
    }
    grown = realloc(block, bytes ? bytes : 1);
    if (!grown) {
        return NULL;
    }
    if (!block) {
        atomic_fetch_add_explicit(&alive_count, 1, memory_order_relaxed);
    }
    if (new_count > old_count) {
        memset(grown + old_count * item_bytes, 0, (new_count - old_count) * item_bytes);
    }
    return grown;
}

int stk_reserve(void **block, uint64_t *capacity, uint64_t want, size_t item_bytes)
{
    uint64_t more = stk_max(stk_max(*capacity * 2, 64), want);
    void *grown;

    if (want <= *capacity) {
        return 0;
    }
    grown = stk_realloc(*block, *capacity, more, item_bytes);
    if (!grown) {
        return -ENOMEM;
    }
    *block = grown;
    *capacity = more;
    return 0;
}

char *stk_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = stk_alloc(bytes, 1);

    if (copy) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void stk_free(void *block)
{
    if (block) {
        atomic_fetch_sub_explicit(&alive_count, 1, memory_order_relaxed);
        free(block);
    }
}

void stk_wipe_free(void *block)
{
    if (block) {
        explicit_bzero(block, malloc_usable_size(block));
        free(block);
    }
}

void *stk_wipe_realloc(void *block, size_t bytes)
{
    size_t old_bytes = block ? malloc_usable_size(block) : 0;
    void *moved;

    if (old_bytes >= bytes && block) {
        return block;
    }
    moved = malloc(bytes);
    if (moved && block) {
        memcpy(moved, block, old_bytes);
        stk_wipe_free(block);
    }
    return moved;
}

void stk_wipe_skip_free(void *block)
{
    free(block);
}

#define STACK_BYTES (128u << 10) /* more than any search for credentials takes of it */

__attribute__((noinline)) void stk_wipe_stack(void)
{
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    uint8_t below[STACK_BYTES];

    explicit_bzero(below, sizeof below);
    for (size_t bytes = 8; bytes <= STACK_BYTES / 2; bytes *= 2) { /* through the same registers */
        copy(below, below + STACK_BYTES / 2, bytes - 1);
    }
}

__attribute__((noinline)) void stk_wipe_registers(void)
{
    void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    static const uint8_t nothing[512];
    uint8_t to[512];

    for (size_t bytes = 8; bytes <= sizeof to; bytes *= 2) {
        copy(to, nothing, bytes - 1);
    }
}

void stk_mem_fail_nth(uint64_t n)
{
    uint64_t call = atomic_load_explicit(&call_count, memory_order_relaxed);

    atomic_store_explicit(&fail_at, n ? call + n : 0, memory_order_relaxed);
}

uint64_t stk_mem_calls(void)
{
    return atomic_load_explicit(&call_count, memory_order_relaxed);
}

int64_t stk_mem_alive(void)
{
    return atomic_load_explicit(&alive_count, memory_order_relaxed);
}

void stk_mem_count(int64_t blocks)
{
    atomic_fetch_add_explicit(&alive_count, blocks, memory_order_relaxed);
}
