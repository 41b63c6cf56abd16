/* Goal: a budget is never exceeded, and the blocks of a third-party library are all released to it.
 * Method: sizes around the limit; blocks larger than the rest of the budget; every allocation fails
 * once. */
#include "base/memory_budget.h"

#include "base/mem.h"
#include "test/t.h"

static void test_budget(void)
{
    struct stk_budget budget = {.bytes_max = 100};

    T_TRUE("60", stk_budget_reserve(&budget, 60));
    T_TRUE("41 more is refused", !stk_budget_reserve(&budget, 41));
    T_TRUE("huge is refused", !stk_budget_reserve(&budget, UINT64_MAX));
    T_TRUE("40 more", stk_budget_reserve(&budget, 40));
    stk_budget_release(&budget, 100);
    T_EQ("peak", (long long)budget.bytes_peak, 100);
}

static bool reserve(void *owner, uint64_t bytes)
{
    return stk_budget_reserve(owner, bytes);
}

static void release(void *owner, uint64_t bytes)
{
    stk_budget_release(owner, bytes);
}

static void test_granted(void)
{
    struct stk_budget budget = {.bytes_max = 100};
    struct stk_budget_hooks grant = {.reserve = reserve, .release = release, .owner = &budget};
    struct stk_budget_allocator granted = {.grant = &grant}, free_of_it = {.grant = NULL};
    void *block;

    stk_mem_fail_nth(1);
    T_TRUE("no memory", stk_budget_allocator_alloc(&granted, 5, 10) == NULL);
    stk_mem_fail_nth(0);
    T_TRUE("which was granted", !granted.refused && budget.bytes == 0);
    T_TRUE("wraps", stk_budget_allocator_alloc(&granted, SIZE_MAX, 2) == NULL);
    block = stk_budget_allocator_alloc(&granted, 5, 10);
    T_TRUE("taken", block && budget.bytes >= 50);
    T_TRUE("too much", stk_budget_allocator_alloc(&granted, 5, 10) == NULL && granted.refused);
    stk_budget_allocator_free(&granted, block);
    stk_budget_allocator_free(&granted, NULL);
    T_TRUE("given back", budget.bytes == 0);
    block = stk_budget_allocator_alloc(&free_of_it, 5, 100);
    T_TRUE("no request", block != NULL);
    stk_budget_allocator_free(&free_of_it, block);
}

int main(void)
{
    test_budget();
    test_granted();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
