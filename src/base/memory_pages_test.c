/* Goal: pages are aligned, zeroed and counted, and have the page size that was cheaper lately.
 * Method: sizes around a huge page, failed calls, and sequences of invented costs. */
#include "base/memory_pages.h"

#include "base/mem.h"
#include "test/t.h"

#include <string.h>
#include <sys/mman.h>

static void test_pages(void)
{
    int64_t alive = stk_mem_alive();
    void *block;

    block = stk_pages_alloc(5u << 20);
    T_TRUE("aligned", block && (uintptr_t)block % (2u << 20) == 0);
    stk_pages_free(block, 5u << 20);
    for (size_t i = 0; i < 40; i++) {
        size_t bytes = (i % 4 + 1) * (1u << 20) + 5;
        uint8_t *filled = i / 4 % 2 ? stk_pages_reserve(bytes) : stk_pages_alloc(bytes);

        if (i / 4 % 2 && filled) {
            filled[bytes / 2] = 7;
            stk_pages_populate(filled, bytes);
            T_EQ("what was written stays", filled[bytes / 2], 7);
        }
        T_TRUE("filled", filled && (uintptr_t)filled % (2u << 20) == 0 && filled[bytes - 1] == 0);
        memset(filled, 1, bytes);
        stk_pages_free(filled, bytes);
    }
    block = stk_pages_alloc_huge((5u << 20) + 1);
    T_TRUE("huge, aligned", block && (uintptr_t)block % (2u << 20) == 0);
    memset(block, 1, (5u << 20) + 1);
    stk_pages_free(block, (5u << 20) + 1);
    stk_mem_fail_nth(1);
    T_TRUE("no huge ones", stk_pages_alloc_huge(2u << 20) == NULL);
    stk_mem_fail_nth(1);
    T_TRUE("none", stk_pages_reserve(2u << 20) == NULL);
    T_TRUE("too many", stk_pages_alloc(SIZE_MAX) == NULL);
    T_EQ("no leak", stk_mem_alive(), alive);
}

static size_t present_pages(uint8_t *memory, size_t bytes)
{
    static unsigned char present[4096];
    size_t count = 0;

    T_EQ("mincore", mincore(memory, bytes, present), 0);
    for (size_t i = 0; i < bytes / 4096; i++) {
        count += present[i] & 1;
    }
    return count;
}

/* Only the units of 2 MiB inside of the given memory are provided, and contents stay. */
static void test_provide(void)
{
    size_t bytes = 8u << 20, half = 1u << 20;
    uint8_t *memory = stk_pages_reserve(bytes);

    T_TRUE("memory", memory != NULL);
    T_EQ("none yet", present_pages(memory, bytes), 0);
    memory[4u << 20] = 9; /* the unit is in use: stays as it is */
    stk_pages_provide(memory + half, bytes - 2 * half);
    T_EQ("the first unit is not inside", present_pages(memory, 2u << 20), 0);
    T_EQ("the last one, too", present_pages(memory + (6u << 20), 2u << 20), 0);
#ifdef MADV_POPULATE_WRITE
    T_EQ("the second one is", present_pages(memory + (2u << 20), 2u << 20), 512);
#endif
    T_TRUE("zeros", memory[3u << 20] == 0 && memory[4u << 20] == 9);
    stk_pages_provide(memory + 100, 100);
    stk_pages_free(memory, bytes);
}

/* How many of n times huge pages are taken where both cost so much. */
static uint32_t huge_of(struct stk_page_policy *choice, uint32_t n, uint64_t small, uint64_t large)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool huge = stk_page_policy_choose(choice);

        stk_page_policy_record(choice, huge, huge ? large : small);
        count += huge;
    }
    return count;
}

static void test_page_choice(void)
{
    struct stk_page_policy choice = {.gap = 0};
    uint32_t huge = huge_of(&choice, 300, 1000, 7000);

    T_TRUE("dear ones are tried, and rarely", huge >= 3 && huge <= 6);
    huge = huge_of(&choice, 300, 1000, 200);
    T_TRUE("after a while, too", huge > 0);
    huge = huge_of(&choice, 3000, 1000, 200);
    T_TRUE("cheap ones are taken", huge >= 1900 && huge < 3000);
    huge = huge_of(&choice, 100, 1000, 7000);
    T_TRUE("no longer than they are cheap", huge < 10);
    choice = (struct stk_page_policy){.gap = 0};
    T_TRUE("cheap at once", huge_of(&choice, 300, 1000, 200) >= 290);
    choice = (struct stk_page_policy){.gap = 0};
    T_TRUE("free", huge_of(&choice, 300, 0, 0) >= 200);
    choice = (struct stk_page_policy){.gap = 0};
    huge = 0;
    for (uint32_t i = 0; i < 100; i++) { /* one of three costs much */
        huge += huge_of(&choice, 3, 1000, i % 3 ? 200 : 7000);
    }
    T_TRUE("cheap ones between dear ones", huge < 60);
}

int main(void)
{
    test_page_choice();
    test_pages();
    test_provide();
    return t_finish();
}
