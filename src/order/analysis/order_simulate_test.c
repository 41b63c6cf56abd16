/* Goal: a simulated epoch visits each sample once, counts the open blocks of a node as a plain walk
 * over slots does, and stays within its bounds; a broken order is detected.
 * Method: small clusters compared with sets of blocks computed by hand, slot by slot; several
 * threads give the same result; 64 nodes of 8 ranks with 10^6 samples; orders that the test breaks
 * in memory. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

#define BLOCKS_MAX 4096
#define SLOTS_MAX 8192

struct cluster_row {
    const char *name;
    uint64_t samples, block;
    uint32_t window, groups, tail, batch, world, nodes;
};

static const struct cluster_row cluster_rows[] = {
    {"one node", 4007, 10, 8, 1, STOKER_TAIL_DROP, 24, 1, 1},
    {"one node, groups", 4007, 10, 8, 4, STOKER_TAIL_PAD, 6, 4, 1},
    {"a group a node", 4007, 10, 8, 4, STOKER_TAIL_DROP, 6, 4, 4},
    {"two groups a node, two ranks", 4007, 10, 4, 8, STOKER_TAIL_PAD, 10, 8, 4},
    {"a rank has a share of a group", 8191, 8, 16, 4, STOKER_TAIL_DROP, 16, 8, 4},
    {"steps longer than windows", 8191, 3, 2, 4, STOKER_TAIL_DROP, 64, 8, 4},
    {"all is one step", 1000, 10, 8, 4, STOKER_TAIL_PAD, 256, 4, 2},
    {"words and blocks do not agree", 9001, 67, 8, 8, STOKER_TAIL_DROP, 8, 8, 8},
    {"no pool", 4096, 8, 8, 8, STOKER_TAIL_DROP, 8, 8, 8},
    {"a pool of nearly a block a group", 4096 - 8, 8, 8, 16, STOKER_TAIL_DROP, 8, 8, 8},
    {"one sample", 1, 1, 1, 1, STOKER_TAIL_PAD, 1, 1, 1},
};

static struct stoker_order *open_row(const struct cluster_row *row)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = row->samples,
        .block_samples = row->block,
        .seed = 11,
        .tail = row->tail,
        .window_blocks = row->window,
        .group_count = row->groups,
        .batch_size = row->batch,
        .world_size = row->world,
    };
    struct stoker_order *order = NULL;

    T_EQ(row->name, stoker_order_open(&order, &options, NULL), 0);
    return order;
}

static struct stoker_order_simulation simulate(const struct stoker_order *order, uint32_t nodes,
                                               uint32_t threads)
{
    struct stoker_order_simulate_options options = {
        .struct_size = sizeof options, .epoch = 3, .nodes = nodes, .threads = threads};
    struct stoker_order_simulation got = {.struct_size = sizeof got};
    struct stoker_error error = {0};

    T_EQ(error.where, stoker_order_simulate(order, &options, &got, &error), 0);
    return got;
}

/* Blocks of one node: how many of their samples were read. */
struct hand {
    uint32_t came[BLOCKS_MAX];
    uint64_t pooled[BLOCKS_MAX]; /* the step, and 1, that last needed a block of no group */
    uint64_t open, open_max, step_max, requests;
};

static bool is_pooled(const struct stoker_order *order, uint64_t sample)
{
    struct stk_order_epoch keys;
    uint64_t position;

    stk_order_epoch_begin(&keys, &order->schedule.order, 3);
    position = stk_order_position(&keys, sample);
    return stk_order_left_over_distance(&keys, position) == 0;
}

/* The same by slots: a block is open from its first sample to its last, also if the epoch ends
 * before that; a sample without a group needs its block for its step only. */
static void walk_by_hand(const struct stoker_order *order, const struct cluster_row *row,
                         uint32_t node, struct hand *hand)
{
    static struct stoker_slot slots[SLOTS_MAX];
    uint32_t ranks = row->world / row->nodes;

    memset(hand, 0, sizeof *hand);
    for (uint64_t step = 0; step < stoker_order_steps(order, 3); step++) {
        uint64_t begun = hand->open, alone = 0;

        for (uint32_t rank = node * ranks; rank < (node + 1) * ranks; rank++) {
            int count = stoker_order_slots(order, 3, step, rank, 0, slots, SLOTS_MAX);

            for (int i = 0; i < count; i++) {
                uint64_t block = slots[i].sample / row->block;

                if (!slots[i].real) {
                    continue;
                }
                if (is_pooled(order, slots[i].sample)) {
                    alone += hand->pooled[block] != step + 1;
                    hand->requests += hand->pooled[block] != step + 1;
                    hand->pooled[block] = step + 1;
                } else if (hand->came[block]++ == 0) {
                    hand->open++;
                    hand->requests++;
                    begun++;
                }
                hand->open_max = stk_max(hand->open_max, hand->open + alone);
                hand->open -= hand->came[block] == row->block;
            }
        }
        hand->step_max = stk_max(hand->step_max, begun + alone);
    }
}

static void test_row(const struct cluster_row *row)
{
    static struct hand hand;
    struct stoker_order *order = open_row(row);
    struct stoker_order_simulation got = simulate(order, row->nodes, 1), again;
    uint64_t open_max = 0, step_max = 0, requests = 0;

    for (uint32_t node = 0; node < row->nodes; node++) {
        walk_by_hand(order, row, node, &hand);
        open_max = stk_max(open_max, hand.open_max);
        step_max = stk_max(step_max, hand.step_max);
        requests += hand.requests;
    }
    T_EQ(row->name, got.steps, (long long)stoker_order_steps(order, 3));
    T_EQ(row->name, got.slots, (long long)(got.steps * row->batch * row->world));
    T_EQ(row->name, got.samples,
         (long long)(row->tail == STOKER_TAIL_DROP ? got.slots : row->samples));
    T_EQ(row->name, got.missing, 0);
    T_EQ(row->name, got.repeated, 0);
    T_EQ(row->name, got.requests, (long long)requests);
    T_EQ(row->name, got.open_blocks_max, (long long)open_max);
    T_EQ(row->name, got.step_blocks_max, (long long)step_max);
    T_TRUE(row->name, got.open_blocks_max <= got.open_blocks_bound);
    T_TRUE(row->name, got.step_blocks_max <= got.step_blocks_bound);
    again = simulate(order, row->nodes, 3);
    T_TRUE(row->name, memcmp(&got, &again, sizeof got) == 0);
    stoker_order_close(order);
}

/* The cluster of the bench, smaller: the bounds are not far above the result. */
static void test_cluster(void)
{
    static const struct cluster_row row = {"64 nodes of 8 ranks", 1000000, 8,   64, 128,
                                           STOKER_TAIL_DROP,      4,       512, 64};
    struct stoker_order *order = open_row(&row);
    struct stoker_order_simulation got = simulate(order, 64, 2);

    T_EQ("steps", got.steps, 1000000 / 2048);
    T_EQ("samples", got.samples, 1000000 / 2048 * 2048);
    T_TRUE("exactly once", got.missing == 0 && got.repeated == 0);
    /* 125,000 blocks: 976 a group, in 16 windows of 61. 72 blocks are in no group: 576 samples, 5
     * a group. */
    T_EQ("two windows a node, and its share of the pool", got.open_blocks_bound, 2 * 61 + 2 * 5);
    T_TRUE("open", got.open_blocks_max <= got.open_blocks_bound && got.open_blocks_max > 100);
    T_TRUE("in a step", got.step_blocks_max <= got.step_blocks_bound && got.step_blocks_max > 100);
    T_TRUE("each block once, and samples of the pool",
           got.requests > 128 * 976 + 500 && got.requests <= 128 * 976 + 576);
    stoker_order_close(order);
}

static void test_broken(void)
{
    static const struct cluster_row row = {"broken", 4096, 8, 8, 8, STOKER_TAIL_DROP, 8, 8, 8};
    struct stoker_order *order = open_row(&row);
    struct stoker_order_simulation got;

    order->schedule.order.deal.factor[0] &=
        ~UINT64_C(1); /* not a bijection any more: blocks are repeated */
    got = simulate(order, 8, 2);
    T_TRUE("found", got.missing > 100 && got.missing == got.repeated);
    T_EQ("all that came", got.samples + got.missing, 4096);
    stoker_order_close(order);
}

static void test_refused(void)
{
    static const struct {
        const char *name;
        struct cluster_row row;
        uint32_t nodes, threads, shuffle;
        const char *advice;
    } rows[] = {
        {"full",
         {"", 4096, 8, 8, 8, STOKER_TAIL_DROP, 8, 8, 8},
         8,
         1,
         STOKER_SHUFFLE_FULL,
         "block shuffle"},
        {"groups", {"", 4096, 8, 8, 8, STOKER_TAIL_DROP, 8, 6, 3}, 3, 1, 0, "number of nodes"},
        {"ranks", {"", 4096, 8, 8, 8, STOKER_TAIL_DROP, 8, 6, 4}, 4, 1, 0, "number of nodes"},
        {"a step", {"", 4096, 8, 8, 8, STOKER_TAIL_DROP, 3, 4, 4}, 4, 1, 0, "global batch"},
        {"tail", {"", 4096, 8, 8, 8, STOKER_TAIL_WRAP, 8, 8, 8}, 8, 1, 0, "tail drop or pad"},
        {"threads", {"", 4096, 8, 8, 8, STOKER_TAIL_DROP, 8, 8, 8}, 8, 257, 0, "256"},
    };
    struct stoker_order_simulation got = {.struct_size = sizeof got};
    struct stoker_order_simulate_options options = {.struct_size = sizeof options};
    struct stoker_error error;
    struct stoker_order *order;

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        memset(&error, 0, sizeof error);
        order = open_row(&rows[i].row);
        order->schedule.order.options.shuffle =
            rows[i].shuffle ? rows[i].shuffle : order->schedule.order.options.shuffle;
        options.nodes = rows[i].nodes;
        options.threads = rows[i].threads;
        T_EQ(rows[i].name, stoker_order_simulate(order, &options, &got, &error),
             STOKER_ERROR_ARGUMENT);
        T_HAS(rows[i].name, error.advice, rows[i].advice);
        T_ERROR(rows[i].name, &error);
        stoker_order_close(order);
    }
    order = open_row(&cluster_rows[2]);
    options = (struct stoker_order_simulate_options){
        .struct_size = sizeof options, .nodes = 4, .threads = 2};
    for (uint64_t n = 1; n <= 4; n++) {
        stk_mem_fail_nth(n);
        T_EQ("memory", stoker_order_simulate(order, &options, &got, &error), -ENOMEM);
        stk_mem_fail_nth(0);
    }
    got.struct_size = 1;
    T_EQ("size", stoker_order_simulate(order, &options, &got, &error), STOKER_ERROR_ARGUMENT);
    stoker_order_close(order);
}

int main(void)
{
    T_EACH(cluster_row, row, cluster_rows)
    {
        test_row(row);
    }
    test_cluster();
    test_broken();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
