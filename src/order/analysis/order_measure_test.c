/* Goal: the figures of measure are right: blocks open at once, requests and hits of the caches, the
 * mixing.
 * Method: the same counted here in the slow way, by slots of steps and plain tables; shuffle full,
 * none and a buffer compared with arithmetic; every allocation fails once. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS_MAX 512
#define NODES_MAX 8

static struct stoker_order *open_order(uint64_t samples, uint32_t groups, uint32_t shuffle,
                                       uint32_t batch, uint32_t world)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = samples,
        .block_samples = 10,
        .shuffle = shuffle,
        .seed = 3,
        .window_blocks = 8,
        .group_count = groups,
        .batch_size = batch,
        .world_size = world,
    };
    struct stoker_order *order = NULL;

    T_EQ("open", stoker_order_open(&order, &options, NULL), 0);
    return order;
}

static struct stoker_order_measures measure(const struct stoker_order *order, uint32_t nodes,
                                            uint64_t buffer)
{
    struct stoker_order_measure_options options = {
        .struct_size = sizeof options, .nodes = nodes, .buffer_samples = buffer};
    struct stoker_order_measures measures = {.struct_size = sizeof measures};

    T_EQ("measure", stoker_order_measure(order, &options, &measures, NULL), 0);
    return measures;
}

/* Samples of each block that each node has in an epoch. */
static void count_blocks(const struct stoker_order *order, uint64_t epoch, uint32_t nodes,
                         uint32_t counts[NODES_MAX][BLOCKS_MAX])
{
    uint32_t ranks = order->partition.world_size / nodes;

    memset(counts, 0, sizeof(uint32_t) * NODES_MAX * BLOCKS_MAX);
    for (uint64_t step = 0; step < stoker_order_steps(order, epoch); step++) {
        struct stoker_slot slot;

        for (uint64_t skip = 0;
             stoker_order_slots(order, epoch, step, STOKER_ALL_RANKS, skip, &slot, 1) == 1;
             skip++) {
            counts[slot.rank / ranks][slot.sample / 10]++;
        }
    }
}

static void test_blocks(uint32_t groups, uint32_t world, uint32_t nodes)
{
    static uint32_t before[NODES_MAX][BLOCKS_MAX], now[NODES_MAX][BLOCKS_MAX];
    struct stoker_order *order = open_order(4007, groups, STOKER_SHUFFLE_BLOCK, 24 / world, world);
    struct stoker_order_measures got = measure(order, nodes, 0);
    uint64_t requests = 0, cached = 0, hits = 0, all = 0;

    count_blocks(order, 0, nodes, before);
    count_blocks(order, 1, nodes, now);
    for (uint32_t node = 0; node < nodes; node++) {
        uint64_t room = (401 - 1) / nodes + 1;

        /* Each turn the block that this node had most of, the first of those. */
        for (; room > 0; room--) {
            uint32_t best = 0;

            for (uint32_t block = 0; block < 401; block++) {
                best = before[node][block] > before[node][best] ? block : best;
            }
            if (before[node][best] == 0) {
                break;
            }
            before[node][best] = 0;
            cached += now[node][best] > 0;
            hits += now[node][best];
            all += now[node][best];
            requests += now[node][best] > 0;
            now[node][best] = 0;
        }
        for (uint32_t block = 0; block < 401; block++) {
            requests += now[node][block] > 0;
            all += now[node][block];
        }
    }
    T_EQ("walked", got.walked, 1);
    T_EQ("blocks", got.block_count, 401);
    T_EQ("requests", got.requests, (long long)requests);
    T_EQ("requests past the cache", got.requests_cached, (long long)(requests - cached));
    T_TRUE("hits", (uint64_t)(got.cache_share * (double)all + 0.5) == hits);
    T_TRUE("homes make caches worth it", got.cache_share > (groups % nodes == 0 ? 0.85 : 0));
    T_TRUE("no more blocks open than the bound", got.open_blocks_max <= got.window_blocks_max);
    T_TRUE("a window is open at least", got.open_blocks_max >= 8);
    stoker_order_close(order);
}

/* The bound holds for any groups, nodes, steps and tail, and is close. */
static void test_bound(void)
{
    uint64_t half_open = 0, drawn = 0, rows = 400;

    for (uint64_t i = 0; i < rows; i++) {
        uint32_t nodes = (uint32_t)(1 + stk_random_key(1, drawn++) % NODES_MAX);
        uint32_t ranks = (uint32_t)(1 + stk_random_key(1, drawn++) % 3);
        struct stoker_order_options options = {
            .struct_size = sizeof options,
            .sample_count = 200 + stk_random_key(1, drawn++) % 3000,
            .block_samples = 1 + stk_random_key(1, drawn++) % 12,
            .seed = i,
            .shuffle = i % 13 ? STOKER_SHUFFLE_BLOCK : (uint32_t)(1 + i % 3),
            .tail = (uint32_t)(STOKER_TAIL_DROP + i % 4),
            .window_blocks = (uint32_t)(1 + stk_random_key(1, drawn++) % 9),
            .batch_size = (uint32_t)(1 + stk_random_key(1, drawn++) % 40),
            .world_size = nodes * ranks,
        };
        uint64_t blocks = options.sample_count / options.block_samples;
        struct stoker_order_measures got;
        struct stoker_order *order = NULL;

        options.group_count = (uint32_t)(1 + stk_random_key(1, drawn++) % stk_min(blocks / 4, 20));
        T_EQ("open", stoker_order_open(&order, &options, NULL), 0);
        got = measure(order, nodes, 0);
        if (!T_TRUE("within its bound",
                    got.walked && got.open_blocks_max <= got.window_blocks_max)) {
            printf("row %llu: %llu open, bound %llu\n", (unsigned long long)i,
                   (unsigned long long)got.open_blocks_max,
                   (unsigned long long)got.window_blocks_max);
        }
        half_open += got.open_blocks_max * 2 >= got.window_blocks_max;
        stoker_order_close(order);
    }
    T_TRUE("and half of it is often reached", half_open > rows / 3);
}

static void test_full_and_none(void)
{
    struct stoker_order *order = open_order(4000, 1, STOKER_SHUFFLE_FULL, 100, 1);
    struct stoker_order_measures got = measure(order, 1, 0);

    T_TRUE("full: a third apart", got.distance > 0.32 && got.distance < 0.345);
    T_TRUE("full: a third away", got.displacement > 0.32 && got.displacement < 0.345);
    /* Of 3,999 others, 9 are in the block. */
    T_TRUE("full: mates of a block",
           got.same_block > 0.8 * 9 / 3999 && got.same_block < 1.2 * 9 / 3999);
    T_EQ("full: all is mixed", got.window_samples, 4000);
    stoker_order_close(order);
    order = open_order(4000, 1, STOKER_SHUFFLE_NONE, 100, 1);
    got = measure(order, 1, 0);
    T_TRUE("none: one after the other", got.distance * 4000 == 1 && got.displacement == 0);
    T_TRUE("none: all have a neighbour", got.neighbours == 1);
    T_EQ("none: one block open", got.open_blocks_max, 1);
    T_EQ("none: each block once", got.requests, 400);
    /* 45 pairs in each of 10 blocks, of 4,950. */
    T_TRUE("none: mates of a block", got.same_block > 0.0909 && got.same_block < 0.091);
    stoker_order_close(order);
}

static void test_buffer(void)
{
    struct stoker_order *order = open_order(40000, 1, STOKER_SHUFFLE_BLOCK, 100, 1);
    struct stoker_order_measures own = measure(order, 1, 0), got = measure(order, 1, 80);

    T_EQ("a buffer of a window", got.window_samples, (long long)own.window_samples);
    T_TRUE("mixes far less", got.displacement < 0.01 && own.displacement > 0.3);
    T_TRUE("and its neighbours lie close", got.distance < 0.02 && own.distance > 0.2);
    T_EQ("nothing is walked", got.walked, 0);
    got = measure(order, 1, UINT64_MAX);
    T_TRUE("a buffer of all is a full permutation", got.distance > 0.32 && got.distance < 0.345);
    stoker_order_close(order);
}

static void test_small(void)
{
    static const uint64_t counts[] = {0, 1, 9, 10, 11, 99, 100, 101};

    for (size_t i = 0; i < STK_COUNT(counts); i++) {
        for (uint32_t shuffle = STOKER_SHUFFLE_BLOCK; shuffle <= STOKER_SHUFFLE_NONE; shuffle++) {
            struct stoker_order *order = open_order(counts[i], 1, shuffle, 50, 2);
            struct stoker_order_measures got = measure(order, 2, 0);

            T_EQ("blocks", got.block_count, (long long)((counts[i] + 9) / 10));
            T_TRUE("shares are shares", got.same_block >= 0 && got.same_block <= 1 &&
                                            got.neighbours >= 0 && got.neighbours <= 1);
            measure(order, 1, 1);
            stoker_order_close(order);
        }
    }
}

static void test_refused(void)
{
    struct stoker_order *order = open_order(4000, 64, STOKER_SHUFFLE_BLOCK, 10, 4);
    struct stoker_order_measure_options options = {.struct_size = sizeof options, .nodes = 3};
    struct stoker_order_measures got = {.struct_size = sizeof got};
    struct stoker_error error = {0};
    int status;

    T_EQ("nodes", stoker_order_measure(order, &options, &got, &error), STOKER_ERROR_ARGUMENT);
    T_HAS("nodes", error.where, "nodes 3 of world_size 4");
    options.nodes = 2;
    got.struct_size = 0;
    T_EQ("size", stoker_order_measure(order, &options, &got, &error), STOKER_ERROR_ARGUMENT);
    got.struct_size = sizeof got;
    options.walk_max = 3999;
    T_EQ("too large to walk", stoker_order_measure(order, &options, &got, &error), 0);
    T_EQ("so it did not", got.walked, 0);
    options.walk_max = 0;
    order->partition.world_size = options.nodes =
        UINT32_MAX; /* at once: without a loop over nodes */
    T_EQ("many nodes", stoker_order_measure(order, &options, &got, &error), 0);
    T_EQ("a bound all the same", got.window_blocks_max, 400);
    order->partition.world_size = 4;
    options.nodes = 2;
    for (uint64_t n = 1;; n++) {
        stk_mem_fail_nth(n);
        status = stoker_order_measure(order, &options, &got, &error);
        stk_mem_fail_nth(0);
        if (status == 0) {
            T_EQ("allocations", n, 14);
            break;
        }
        T_EQ("no memory", status, -ENOMEM);
    }
    stoker_order_close(order);
}

int main(void)
{
    test_blocks(1, 1, 1);
    test_blocks(4, 4, 2);
    test_blocks(8, 8, 8);
    test_blocks(8, 2, 2);
    test_blocks(3, 4, 2);
    test_bound();
    test_full_and_none();
    test_buffer();
    test_small();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
