/* The classic two-level shuffle. The start of a shard in an epoch is the sum of the counts of the
 * shards before it: computed once an epoch, then a binary search finds the shard of a position. */
#include "order/sampling/sampling.h"

#include "base/mem.h"
#include "base/random.h"

enum use { USE_SHARDS = 0x73686172 }; /* "shar" */

int stk_two_level_init(struct stk_two_level *shards, const uint64_t *counts, uint32_t shard_count,
                       uint64_t seed, struct stoker_error *error)
{
    uint64_t sum = 0;

    *shards =
        (struct stk_two_level){.seed = stk_draw_key(seed, USE_SHARDS), .shard_count = shard_count};
    shards->starts = stk_alloc((size_t)shard_count + 1, sizeof *shards->starts);
    shards->turns = stk_alloc((size_t)shard_count + 1, sizeof *shards->turns);
    if (!shards->starts || !shards->turns) {
        stk_two_level_deinit(shards);
        return stk_fail_memory(error, "order of shards, %u shards", shard_count);
    }
    for (uint32_t i = 0; i < shard_count; i++) {
        if (counts[i] > STK_ORDER_SAMPLES_MAX - sum) {
            stk_two_level_deinit(shards);
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many samples for one order",
                            "split the data set", "shard %u, at most 2^56 samples", i);
        }
        sum += counts[i];
        shards->starts[i + 1] = sum;
    }
    shards->sample_count = sum;
    stk_two_level_begin(shards, 0);
    return 0;
}

void stk_two_level_deinit(struct stk_two_level *shards)
{
    stk_free(shards->starts);
    stk_free(shards->turns);
    *shards = (struct stk_two_level){0};
}

void stk_two_level_begin(struct stk_two_level *shards, uint64_t epoch)
{
    shards->key = stk_random_key(shards->seed, epoch);
    stk_permutation_init(&shards->deal, ~shards->key, shards->shard_count);
    for (uint64_t i = 0; i < shards->shard_count; i++) {
        uint64_t shard = stk_permutation_apply(&shards->deal, i);

        shards->turns[i + 1] = shards->turns[i] + shards->starts[shard + 1] - shards->starts[shard];
    }
}

uint64_t stk_two_level_sample(const struct stk_two_level *shards, uint64_t position)
{
    uint64_t turn = 0, count = shards->shard_count, shard, start;

    STK_ASSERT(position < shards->sample_count);
    while (count > 1) { /* search the last turn that begins at or before the position */
        uint64_t half = count / 2;

        turn += shards->turns[turn + half] <= position ? half : 0;
        count -= half;
    }
    shard = stk_permutation_apply(&shards->deal, turn);
    start = shards->starts[shard];
    return start + stk_permute(stk_random_key(shards->key, shard), position - shards->turns[turn],
                               shards->starts[shard + 1] - start);
}
