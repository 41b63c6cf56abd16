/* Goal: a subset numbers exactly the samples that were added, in their order, in both directions.
 * Method: subsets of every density, around the bounds of words and blocks, against a plain list;
 * one long and sparse enough for several marks of select; refusals and failed allocations. Takes a
 * seed as its argument. */
#include "order/sampling/subset.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>

#define SAMPLES_MAX 300000u

static uint64_t seed = 1;

/* clang-format off: one row, one line. */
static const struct row {
    const char *name;
    uint64_t samples, of_1000; /* so many of a thousand samples */
} rows[] = {
    {"no sample", 0, 1000},
    {"one, out", 1, 0},
    {"one, in", 1, 1000},
    {"63", 63, 500},
    {"64", 64, 500},
    {"65", 65, 500},
    {"511, all", 511, 1000},
    {"512, all", 512, 1000},
    {"513, all", 513, 1000},
    {"4096, all", 4096, 1000},
    {"4097, all", 4097, 1000},
    {"none", 20000, 0},
    {"half", 20001, 500},
    {"dense", SAMPLES_MAX, 990},
    {"sparse", SAMPLES_MAX, 20},
    {"rare", SAMPLES_MAX - 1, 1},
};
/* clang-format on */

static uint64_t list[SAMPLES_MAX];

static void check(const char *name, const struct stk_subset *subset, uint64_t count)
{
    bool same = true;
    uint64_t k = 0;

    T_EQ(name, subset->count, count);
    for (uint64_t i = 0; i < subset->sample_count; i++) {
        bool is_in = k < count && list[k] == i;

        same &= stk_subset_rank(subset, i) == k && stk_subset_has(subset, i) == is_in;
        same &= !is_in || stk_subset_select(subset, k) == i;
        k += is_in;
    }
    T_TRUE(name, same && k == count);
    T_EQ(name, stk_subset_rank(subset, subset->sample_count), count);
}

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_subset subset;
        uint64_t count = 0;

        T_EQ(row->name, stk_subset_init(&subset, row->samples, NULL), 0);
        for (uint64_t i = 0; i < row->samples; i++) {
            if (stk_random_key(seed, i) % 1000 < row->of_1000) {
                stk_subset_add(&subset, i);
                list[count++] = i;
            }
        }
        stk_subset_freeze(&subset);
        check(row->name, &subset, count);
        stk_subset_invert(&subset);
        stk_subset_freeze(&subset);
        count = 0;
        for (uint64_t i = 0; i < row->samples; i++) {
            if (stk_random_key(seed, i) % 1000 >= row->of_1000) {
                list[count++] = i;
            }
        }
        check(row->name, &subset, count);
        stk_subset_deinit(&subset);
    }
}

static void test_failures(void)
{
    struct stk_subset subset;
    struct stoker_error error = {0};

    T_EQ("too many", stk_subset_init(&subset, STK_ORDER_SAMPLES_MAX + 1, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("too many", &error);
    stk_subset_deinit(&subset);
    for (uint64_t n = 1; n <= 3; n++) {
        error = (struct stoker_error){0};
        stk_mem_fail_nth(n);
        T_EQ("no memory", stk_subset_init(&subset, 1000, &error), -12);
        T_ERROR("no memory", &error);
        stk_subset_deinit(&subset);
    }
    stk_mem_fail_nth(0);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    test_rows();
    test_failures();
    return t_finish();
}
