/* Goal: with N nodes, each with a cache of 1/N of the data, at least nine of ten samples are cache
 * hits in every epoch, for every N that divides the groups and any N far below their number; the
 * order does not depend on N. Without groups there are far fewer hits.
 * Method: each node's blocks in the order of their first use in an epoch, over epochs, through a
 * cache of complete blocks that evicts the block that is needed last (computed from the order), and
 * through one that evicts the least recently used. A sample is a hit if its block was cached at the
 * block's first use in the epoch; further samples of a block that was fetched do not count. */
#include "order/analysis/order_object.h"

#include "base/mem.h"
#include "test/t.h"

#include <string.h>

#define SAMPLES 48377u /* 37 blocks and 7 samples are in no group */
#define BLOCK 10u
#define BLOCKS (SAMPLES / BLOCK + 1)
#define EPOCHS 5u
#define MEETS_MAX (EPOCHS * BLOCKS)
#define NEVER UINT32_MAX

/* A node's blocks in order of their first use in each epoch. */
struct meet {
    uint32_t block, samples; /* in that epoch, on that node */
    uint32_t epoch, next;    /* next: the index of its next meet, or NEVER */
};

static struct stoker_order *open_order(uint32_t groups, uint32_t shuffle, uint32_t batch,
                                       uint32_t world)
{
    struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = SAMPLES,
        .block_samples = BLOCK,
        .seed = 4,
        .shuffle = shuffle,
        .window_blocks = 8,
        .group_count = groups,
        .batch_size = batch,
        .world_size = world,
    };
    struct stoker_order *order = NULL;

    T_EQ("open", stoker_order_open(&order, &options, NULL), 0);
    return order;
}

static uint32_t list_meets(const struct stoker_order *order, uint32_t node, uint32_t nodes,
                           struct meet *meets)
{
    static struct stoker_slot slots[4096];
    static uint32_t place[BLOCKS]; /* of the block's samples read in this epoch, plus 1 */
    uint32_t ranks = order->partition.world_size / nodes, count = 0;

    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        memset(place, 0, sizeof place);
        for (uint64_t step = 0; step < stoker_order_steps(order, epoch); step++) {
            for (uint32_t rank = node * ranks; rank < (node + 1) * ranks; rank++) {
                int got = stoker_order_slots(order, epoch, step, rank, 0, slots, 4096);

                for (int i = 0; i < got; i++) {
                    uint32_t block = (uint32_t)(slots[i].sample / BLOCK);

                    if (place[block] == 0) {
                        meets[count] = (struct meet){block, 0, epoch, NEVER};
                        place[block] = ++count;
                    }
                    meets[place[block] - 1].samples++;
                }
            }
        }
    }
    memset(place, 0, sizeof place);
    for (uint32_t i = count; i-- > 0;) {
        meets[i].next = place[meets[i].block] ? place[meets[i].block] - 1 : NEVER;
        place[meets[i].block] = i + 1;
    }
    return count;
}

/* Samples found in the cache after the first epoch. knowing: the cache knows when a block is needed
 * again, and keeps no block that is needed later than all cached ones. */
static uint64_t find_in_cache(const struct meet *meets, uint32_t count, uint32_t room, bool knowing)
{
    static uint32_t
        rank[BLOCKS]; /* of a cached block: the smallest is evicted first; 0: not cached */
    static uint32_t open_blocks[BLOCKS];
    uint32_t have = 0;
    uint64_t found = 0;

    memset(rank, 0, sizeof rank);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t block = meets[i].block, value = knowing ? NEVER - meets[i].next + 1 : i + 1,
                 at = 0;

        if (rank[block]) {
            found += meets[i].epoch > 0 ? meets[i].samples : 0;
            rank[block] = value;
            continue;
        }
        if (have < room) {
            open_blocks[have++] = block;
            rank[block] = value;
            continue;
        }
        for (uint32_t k = 1; k < have; k++) {
            at = rank[open_blocks[k]] < rank[open_blocks[at]] ? k : at;
        }
        if (!knowing || rank[open_blocks[at]] < value) {
            rank[open_blocks[at]] = 0;
            open_blocks[at] = block;
            rank[block] = value;
        }
    }
    return found;
}

/* Shares of all samples after the first epoch. */
struct shares {
    double knowing, lru;
};

static struct shares measure(uint32_t groups, uint32_t shuffle, uint32_t batch, uint32_t nodes)
{
    static struct meet meets[MEETS_MAX];
    struct stoker_order *order = open_order(groups, shuffle, batch, 2 * nodes);
    uint64_t all = 0, knowing = 0, lru = 0;

    for (uint32_t node = 0; node < nodes; node++) {
        uint32_t count = list_meets(order, node, nodes, meets), room = (BLOCKS - 1) / nodes + 1;

        for (uint32_t i = 0; i < count; i++) {
            all += meets[i].epoch > 0 ? meets[i].samples : 0;
        }
        knowing += find_in_cache(meets, count, room, true);
        lru += find_in_cache(meets, count, room, false);
    }
    stoker_order_close(order);
    return (struct shares){(double)knowing / (double)all, (double)lru / (double)all};
}

static const struct node_row {
    uint32_t nodes, batch; /* two ranks a node */
    double least;          /* hits of a cache that knows the future */
} node_rows[] = {
    /* Steps that hold as many of each of the 64 groups; nodes that divide the groups. */
    {2, 32, 0.95},
    {4, 32, 0.95},
    {8, 32, 0.95},
    {16, 32, 0.95},
    {32, 32, 0.95},
    {64, 32, 0.95},
    /* Nodes that do not. */
    {3, 32, 0.9},
    {5, 32, 0.9},
    {6, 32, 0.9},
    {7, 32, 0.9},
    {9, 32, 0.9},
    {12, 32, 0.9},
    /* Steps that do not. */
    {2, 500, 0.9},
    {4, 333, 0.9},
    {8, 100, 0.9},
};

int main(void)
{
    T_EACH(node_row, row, node_rows)
    {
        struct shares homes = measure(64, STOKER_SHUFFLE_BLOCK, row->batch, row->nodes);
        struct shares none = measure(1, STOKER_SHUFFLE_BLOCK, row->batch, row->nodes);

        printf(
            "%2u nodes, steps of %u: %.3f, least recently used %.3f; without groups %.3f, %.3f\n",
            row->nodes, 2 * row->nodes * row->batch, homes.knowing, homes.lru, none.knowing,
            none.lru);
        T_TRUE("a cache of 1/N finds most", homes.knowing >= row->least);
        T_TRUE("it is the homes that do it", none.knowing < homes.knowing - 0.25);
    }
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
