/* Goal: the leaves of a tree of weights have exactly their share, in the smallest integers.
 * Method: rows with weights computed by hand; a refused tree; a failed allocation. */
#include "order/mix/mix.h"

#include "base/mem.h"
#include "test/t.h"

#define NODES 9
#define TOP STK_WEIGHT_TREE_ROOT

/* clang-format off: one row, a tree and its leaves. */
static const struct row {
    const char *name;
    uint32_t node_count;
    struct stk_weight_tree_node nodes[NODES];
    int want;
    uint32_t leaf_count;
    uint64_t leaves[NODES];
    const char *what;
} rows[] = {
    {"one", 1, {{TOP, 7}}, 0, 1, {1}, ""},
    {"flat", 3, {{TOP, 6}, {TOP, 4}, {TOP, 2}}, 0, 3, {3, 2, 1}, ""},
    /* 1/2 * 1/3, 1/2 * 2/3, 1/2 */
    {"two levels", 4, {{TOP, 1}, {0, 1}, {0, 2}, {TOP, 1}}, 0, 3, {1, 2, 3}, ""},
    /* 3/5 * 1/4, 3/5 * 3/4 * 1/2 (twice), 2/5 * 1/7, 2/5 * 6/7: of 280 */
    {"three levels",
     8,
     {{TOP, 3}, {0, 1}, {0, 3}, {2, 5}, {2, 5}, {TOP, 2}, {5, 1}, {5, 6}},
     0,
     5,
     {42, 63, 63, 16, 96},
     ""},
    {"group of no weight", 4, {{TOP, 0}, {0, 1}, {0, 2}, {TOP, 5}}, 0, 3, {0, 0, 1}, ""},
    {"group of zeros, of no weight", 3, {{TOP, 0}, {0, 0}, {TOP, 5}}, 0, 2, {0, 1}, ""},
    {"none", 0, {{0, 0}}, STOKER_ERROR_ARGUMENT, 0, {0}, "too few"},
    {"many", 1025, {{0, 0}}, STOKER_ERROR_ARGUMENT, 0, {0}, "too many"},
    {"parent after", 2, {{1, 1}, {TOP, 1}}, STOKER_ERROR_ARGUMENT, 0, {0}, "before its parent"},
    {"own parent", 1, {{0, 1}}, STOKER_ERROR_ARGUMENT, 0, {0}, "before its parent"},
    {"group of zeros", 2, {{TOP, 1}, {0, 0}}, STOKER_ERROR_ARGUMENT, 0, {0}, "are 0"},
    {"all zeros", 2, {{TOP, 0}, {TOP, 0}}, STOKER_ERROR_ARGUMENT, 0, {0}, "are 0"},
    {"sum wraps", 2, {{TOP, UINT64_MAX}, {TOP, 1}}, STOKER_ERROR_ARGUMENT, 0, {0}, "large"},
    {"fraction wraps",
     4,
     {{TOP, 1}, {TOP, UINT64_MAX - 1}, {0, 1}, {0, UINT64_MAX - 1}},
     STOKER_ERROR_ARGUMENT,
     0,
     {0},
     "large"},
    /* 2^61 - 1 is prime */
    {"no common measure",
     3,
     {{TOP, 1}, {TOP, (UINT64_C(1) << 61) - 2}, {0, 5}},
     STOKER_ERROR_ARGUMENT,
     0,
     {0},
     "large"},
};
/* clang-format on */

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        uint64_t leaves[NODES] = {0};
        uint32_t leaf_count = 0;
        struct stoker_error error = {0};

        T_EQ(row->name,
             stk_weight_tree_flatten(row->nodes, row->node_count, leaves, &leaf_count, &error),
             row->want);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.what, row->what);
            continue;
        }
        T_EQ(row->name, leaf_count, row->leaf_count);
        for (uint32_t i = 0; i < leaf_count; i++) {
            T_EQ(row->name, leaves[i], row->leaves[i]);
        }
    }
}

static void test_memory(void)
{
    struct stk_weight_tree_node node = {TOP, 1};
    struct stoker_error error = {0};
    uint64_t leaf;
    uint32_t leaf_count;

    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_weight_tree_flatten(&node, 1, &leaf, &leaf_count, &error), -12);
    stk_mem_fail_nth(0);
    T_ERROR("no memory", &error);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(void)
{
    test_rows();
    test_memory();
    return t_finish();
}
