/* The allocation seam. */
#include "base/mem.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK_HEAD_BYTES 16u /* keeps what follows aligned for any type */

static _Atomic uint64_t call_count;
static _Atomic uint64_t fail_at; /* call number that fails; 0: none */
static _Atomic int64_t alive_count;

/* Relaxed everywhere: the counters order nothing but themselves. */
static bool refused(void)
{
    uint64_t call = atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed) + 1;

    return call == atomic_load_explicit(&fail_at, memory_order_relaxed);
}

void *stk_alloc(size_t count, size_t item_bytes)
{
    void *block = refused() ? NULL : calloc(count ? count : 1, item_bytes ? item_bytes : 1);

    if (block) {
        atomic_fetch_add_explicit(&alive_count, 1, memory_order_relaxed);
    }
    return block;
}

void *stk_realloc(void *block, size_t old_count, size_t new_count, size_t item_bytes)
{
    size_t bytes;
    uint8_t *grown;

    if (refused() || __builtin_mul_overflow(new_count, item_bytes, &bytes)) {
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

/* Not by realloc, which may leave the old bytes where they were. */
void *stk_wipe_realloc(void *block, size_t bytes)
{
    size_t before = block ? malloc_usable_size(block) : 0;
    void *larger;

    if (block && before >= bytes && before / 2 <= bytes) {
        return block;
    }
    larger = malloc(bytes);
    if (larger && block) {
        memcpy(larger, block, stk_min(before, bytes));
        stk_wipe_free(block);
    }
    return larger;
}

char *stk_wipe_strdup(const char *text)
{
    return strdup(text);
}

void stk_wipe_not(void *block)
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

#define HUGE_BYTES (2u << 20)

static void *map_pages(size_t bytes, int advice)
{
    uint8_t *start, *aligned;
    size_t head;

    if (refused() || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = stk_round_up(bytes ? bytes : 1, 4096);
    /* Aligned to a huge page by hand, so that first touch costs one fault for 2 MiB. */
    start =
        mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return NULL;
    }
    aligned = (uint8_t *)stk_round_up((uintptr_t)start, HUGE_BYTES);
    head = (size_t)(aligned - start);
    if (head) {
        munmap(start, head);
    }
    munmap(aligned + bytes, HUGE_BYTES - head);
    madvise(aligned, bytes, advice);
    atomic_fetch_add_explicit(&alive_count, 1, memory_order_relaxed);
    return aligned;
}

void *stk_pages_alloc(size_t bytes)
{
    return map_pages(bytes, MADV_HUGEPAGE);
}

void *stk_pages_alloc_filled(size_t bytes, bool huge)
{
    uint8_t *pages = map_pages(bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);

#ifdef MADV_POPULATE_WRITE
    if (pages) { /* a kernel that cannot: they come as they are touched */
        (void)madvise(pages, bytes, MADV_POPULATE_WRITE);
    }
#endif
    return pages;
}

void stk_pages_free(void *pages, size_t bytes)
{
    if (pages) {
        atomic_fetch_sub_explicit(&alive_count, 1, memory_order_relaxed);
        munmap(pages, stk_round_up(bytes ? bytes : 1, 4096));
    }
}

void stk_pages_lose(void *pages)
{
    if (pages) {
        atomic_fetch_sub_explicit(&alive_count, 1, memory_order_relaxed);
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

bool stk_budget_reserve(struct stk_budget *budget, uint64_t bytes)
{
    uint64_t used = atomic_load_explicit(&budget->bytes, memory_order_relaxed);
    uint64_t peak;

    do {
        if (bytes > budget->bytes_max - stk_min(used, budget->bytes_max)) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    peak = atomic_load_explicit(&budget->bytes_peak, memory_order_relaxed);
    while (used + bytes > peak &&
           !atomic_compare_exchange_weak_explicit(&budget->bytes_peak, &peak, used + bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return true;
}

void stk_budget_release(struct stk_budget *budget, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub_explicit(&budget->bytes, bytes, memory_order_relaxed);

    STK_ASSERT(before >= bytes);
}

void *stk_granted_take(void *opaque, size_t count, size_t item_bytes)
{
    struct stk_granted *granted = opaque;
    const struct stk_grant *grant = granted->grant;
    uint64_t bytes;
    uint8_t *block;

    if (!stk_multiply(count, item_bytes, &bytes) || !stk_add(bytes, BLOCK_HEAD_BYTES, &bytes)) {
        return NULL;
    }
    if (grant && !grant->reserve(grant->owner, bytes)) {
        granted->refused = true;
        return NULL;
    }
    block = stk_alloc(bytes, 1);
    if (!block) {
        if (grant) {
            grant->release(grant->owner, bytes);
        }
        return NULL;
    }
    memcpy(block, &bytes, sizeof bytes);
    return block + BLOCK_HEAD_BYTES;
}

void stk_granted_give_back(void *opaque, void *data)
{
    const struct stk_grant *grant = ((struct stk_granted *)opaque)->grant;
    uint8_t *block = data ? (uint8_t *)data - BLOCK_HEAD_BYTES : NULL;
    uint64_t bytes;

    if (block && grant) {
        memcpy(&bytes, block, sizeof bytes);
        grant->release(grant->owner, bytes);
    }
    stk_free(block);
}
