/* Memory in pages: huge pages if they cost less. */
#include "base/memory_pages.h"

#include "base/mem.h"

#include <sys/mman.h>
#include <time.h>

#define HUGE_BYTES (2u << 20)
#define TRY_MIN 4u /* units of 2 MiB until the page size that seemed slower is tried again */
#define TRY_MAX 1024u

static struct stk_page_policy process_page_policy; /* of the process */

static uint8_t *map_pages(size_t bytes)
{
    uint8_t *start, *aligned;
    size_t head;

    if (stk_mem_call_fails() || bytes > SIZE_MAX / 2) {
        return NULL;
    }
    /* Align to a huge page, so that the first access costs one page fault for 2 MiB. */
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
    stk_mem_count(1);
    return aligned;
}

bool stk_page_policy_choose(struct stk_page_policy *choice)
{
    uint64_t small = atomic_load_explicit(&choice->ns[0], memory_order_relaxed);
    uint64_t huge = atomic_load_explicit(&choice->ns[1], memory_order_relaxed);
    uint32_t until;

    if (small == 0 || huge == 0) {
        return huge == 0;
    }
    until = atomic_load_explicit(&choice->until, memory_order_relaxed);
    if (until == 0) {
        return huge > small;
    }
    /* If two threads race here, one of their updates may be lost. */
    atomic_store_explicit(&choice->until, until - 1, memory_order_relaxed);
    return huge <= small;
}

void stk_page_policy_record(struct stk_page_policy *choice, bool huge, uint64_t ns)
{
    uint64_t other = atomic_load_explicit(&choice->ns[!huge], memory_order_relaxed);
    uint64_t before = atomic_load_explicit(&choice->ns[huge], memory_order_relaxed);
    uint32_t gap = atomic_load_explicit(&choice->gap, memory_order_relaxed);
    bool tried = before == 0 || before + !huge > other; /* false: the usual page size was used */

    ns = stk_max(ns, 1);
    /* One slow result changes the estimate immediately; fast results change it slowly, because
     * slow ones may occur between them. */
    atomic_store_explicit(&choice->ns[huge], stk_max(ns, before - before / 4 + ns / 4),
                          memory_order_relaxed);
    if (tried && atomic_load_explicit(&choice->until, memory_order_relaxed) == 0) {
        gap = ns >= other ? (uint32_t)stk_min(stk_max(4 * gap, TRY_MIN), TRY_MAX) : TRY_MIN;
        atomic_store_explicit(&choice->gap, gap, memory_order_relaxed);
        atomic_store_explicit(&choice->until, gap, memory_order_relaxed);
    }
}

static uint64_t thread_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Returns true if the pages are present now; older kernels provide them at the first access. */
static bool populate(uint8_t *pages, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    return madvise(pages, bytes, MADV_POPULATE_WRITE) == 0;
#else
    (void)pages;
    (void)bytes;
    return false;
#endif
}

/* Fills 2 MiB. A huge page costs a fifth of small ones; but on virtual machines that share memory,
 * a huge page that was never used may cost seven times as much. */
static void fill_step(uint8_t *pages)
{
    bool huge = stk_page_policy_choose(&process_page_policy);
    uint64_t began_ns = thread_ns();

    madvise(pages, HUGE_BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    if (populate(pages, HUGE_BYTES)) {
        stk_page_policy_record(&process_page_policy, huge, thread_ns() - began_ns);
    }
}

static bool huge_pages_are_slow(void)
{
    return atomic_load_explicit(&process_page_policy.ns[1], memory_order_relaxed) >
           atomic_load_explicit(&process_page_policy.ns[0], memory_order_relaxed);
}

void *stk_pages_alloc(size_t bytes)
{
    size_t rounded = bytes > SIZE_MAX / 2 ? bytes : stk_round_up(bytes ? bytes : 1, 4096);
    uint8_t *pages = map_pages(rounded);
    size_t at = 0;

    if (pages && rounded >= 2 * HUGE_BYTES) {
        /* Measure each page size once if its cost is not known yet. */
        bool first = atomic_load_explicit(&process_page_policy.ns[0], memory_order_relaxed) == 0;

        for (; at < (first ? 2u : 1u) * HUGE_BYTES; at += HUGE_BYTES) {
            fill_step(pages + at);
        }
    }
    if (pages) {
        madvise(pages + at, rounded - at,
                at > 0 && huge_pages_are_slow() ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    }
    return pages;
}

void *stk_pages_alloc_huge(size_t bytes)
{
    size_t rounded = bytes > SIZE_MAX / 2 ? bytes : stk_round_up(bytes ? bytes : 1, 4096);
    uint8_t *pages = map_pages(rounded);

    if (pages) {
        madvise(pages, rounded, MADV_HUGEPAGE);
    }
    return pages;
}

void *stk_pages_reserve(size_t bytes)
{
    return map_pages(bytes > SIZE_MAX / 2 ? bytes : stk_round_up(bytes ? bytes : 1, 4096));
}

void stk_pages_populate(void *pages, size_t bytes)
{
    size_t rounded = stk_round_up(bytes, 4096), at = 0;
    uint8_t *first = pages;

    for (; rounded - at >= HUGE_BYTES; at += HUGE_BYTES) {
        fill_step(first + at);
    }
    if (at < rounded) {
        madvise(first + at, rounded - at, MADV_NOHUGEPAGE);
        (void)populate(first + at, rounded - at);
    }
}

void stk_pages_provide(void *memory, size_t bytes)
{
    uint8_t *end = (uint8_t *)memory + bytes;
    uint8_t *at = (uint8_t *)stk_round_up((uintptr_t)memory, HUGE_BYTES);

    for (; at < end && (size_t)(end - at) >= HUGE_BYTES; at += HUGE_BYTES) {
        unsigned char present = 1;

        if (mincore(at, 1, &present) == 0 && !(present & 1)) {
            fill_step(at);
        }
    }
}

void stk_pages_free(void *pages, size_t bytes)
{
    if (pages) {
        stk_mem_count(-1);
        munmap(pages, stk_round_up(bytes ? bytes : 1, 4096));
    }
}

void stk_pages_leak(void *pages)
{
    if (pages) {
        stk_mem_count(-1);
    }
}
