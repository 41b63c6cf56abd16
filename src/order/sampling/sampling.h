/* order/sampling/sampling.h: ways to choose samples other than each once an epoch: pure functions
 * of the run position, with tables that are built once.
 *
 *   stk_alias_table      with replacement, by weight        8 bytes a sample
 *   stk_class_balance    each class as often as the others  4 bytes a sample
 *   stk_two_level        the classic shuffle: shards, then the samples of each
 *   stk_repeats          each sample several times in a row, or in a step
 *
 * The key of augmentation is the position, so two draws of a sample are augmented differently.
 * Owner: the caller. Threads: any after init (shards: after begin). Memory: allocated in init.
 * Bound: 2^32 - 1 samples of alias and classes, STK_ORDER_SAMPLES_MAX of the others. */
#ifndef ORDER_SAMPLING_SAMPLING_H
#define ORDER_SAMPLING_SAMPLING_H

#include "order/sampling/subset.h"

/* Key of the random numbers of a run's positions. Each purpose has its own `use`. */
enum stk_draw_use {
    STK_DRAW_USE_ALIAS = 1,
    STK_DRAW_USE_UNIFORM,
    STK_DRAW_USE_CLASSES = 0x636c6173
}; /* "clas" */
uint64_t stk_draw_key(uint64_t seed, uint64_t use);

struct stk_alias_table {
    uint64_t count;
    uint32_t *thresholds, *aliases; /* owned */
    struct stk_mapped_table mapped; /* not owned, then */
};

/* weights: `count` of them, not all 0; a sample with weight 0 is never drawn. The probability of a
 * sample is its share of the sum, within 2^-32. Returns 0 on success, STOKER_ERROR_ARGUMENT,
 * -ENOMEM. */
int stk_alias_table_init(struct stk_alias_table *alias, const uint32_t *weights, uint64_t count,
                         struct stoker_error *error);
void stk_alias_table_deinit(struct stk_alias_table *alias); /* a zeroed one is allowed */
/* STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_alias_table_draw(const struct stk_alias_table *alias, uint64_t key, uint64_t position);

/* Samples by class. Every `class_count` positions have one sample of each class that is not empty;
 * a sample comes again only after all samples of its class. */
struct stk_class_balance {
    uint32_t class_count; /* with samples */
    uint64_t sample_count;
    uint64_t *starts;               /* owned: of the classes in `samples`, and sample_count */
    uint32_t *samples;              /* owned */
    struct stk_mapped_table mapped; /* not owned, then */
};

/* labels: one for each sample, below label_count. Returns 0 on success, STOKER_ERROR_ARGUMENT,
 * -ENOMEM. */
int stk_class_balance_init(struct stk_class_balance *classes, const uint32_t *labels,
                           uint64_t sample_count, uint32_t label_count, struct stoker_error *error);
void stk_class_balance_deinit(struct stk_class_balance *classes); /* a zeroed one is allowed */
/* STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_class_balance_draw(const struct stk_class_balance *classes, uint64_t key,
                                uint64_t position);

/* The classic two-level shuffle, for comparisons: the shards in an order that depends on the epoch,
 * then the samples of each shard in an order that depends on epoch and shard. */
struct stk_two_level {
    uint64_t seed, key, sample_count;
    uint32_t shard_count;
    uint64_t *starts; /* owned: of the shards among the samples, as they are stored */
    uint64_t *turns;  /* owned: likewise, as the epoch deals them */
    struct stk_permutation deal;
};

int stk_two_level_init(struct stk_two_level *shards, const uint64_t *counts, uint32_t shard_count,
                       uint64_t seed, struct stoker_error *error);
void stk_two_level_deinit(struct stk_two_level *shards); /* a zeroed one is allowed */
/* O(shards), once an epoch. */
void stk_two_level_begin(struct stk_two_level *shards, uint64_t epoch);
/* position < sample_count */
uint64_t stk_two_level_sample(const struct stk_two_level *shards, uint64_t position);

/* Repeated augmentation: `spread` positions of an order come `times` times in sequence, so copies
 * are `spread` positions apart. With spread 1 the copies of a sample are adjacent; with batch /
 * times they are in one batch, and on different ranks. */
struct stk_repeats {
    uint64_t position_count; /* of the order */
    uint32_t times, spread;  /* > 0 */
};

/* Returns the position in the order. position < position_count * times. */
static inline uint64_t stk_repeats_position(const struct stk_repeats *repeats, uint64_t position)
{
    uint64_t turn = (uint64_t)repeats->spread * repeats->times;
    uint64_t first = position / turn * repeats->spread;
    uint64_t width = stk_min(repeats->spread, repeats->position_count - first);

    return first + position % turn % width;
}

#endif
