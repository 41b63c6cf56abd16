/* order/sampling/sampling.h: other ways to choose samples than each once an epoch, all of them
 * functions of a position of the run, with no state but tables made once.
 *
 *   stk_alias_table      with replacement, by weight        8 bytes a sample
 *   stk_class_balance    each class as often as the others  4 bytes a sample
 *   stk_two_level     the classic shuffle: shards, then the samples of each
 *   stk_repeats    each sample several times in a row, or in a step
 *
 * Augmentation is keyed by the position, so two draws of one sample differ.
 * Owner: the caller. Threads: any after init (shards: after begin). Memory: taken in init.
 * Bound: 2^32 - 1 samples of alias and classes, STK_ORDER_SAMPLES_MAX of the others. */
#ifndef ORDER_SAMPLING_SAMPLING_H
#define ORDER_SAMPLING_SAMPLING_H

#include "order/sampling/subset.h"

/* A random number for each position of a run. Two uses of a seed take different `use`s. */
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

/* weights: `count` of them, not all 0; a sample of weight 0 is never drawn. The chance of each is
 * its part of the sum to within 2^-32. ARGUMENT, ENOMEM. */
int stk_alias_table_init(struct stk_alias_table *alias, const uint32_t *weights, uint64_t count,
                         struct stoker_error *error);
void stk_alias_table_deinit(struct stk_alias_table *alias); /* zeroed is fine */
/* STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_alias_table_draw(const struct stk_alias_table *alias, uint64_t key, uint64_t position);

/* Samples by class. Of every `class_count` positions one is of each class that has samples; a class
 * goes through all its samples before one comes again. */
struct stk_class_balance {
    uint32_t class_count; /* with samples */
    uint64_t sample_count;
    uint64_t *starts;               /* owned: of the classes in `samples`, and sample_count */
    uint32_t *samples;              /* owned */
    struct stk_mapped_table mapped; /* not owned, then */
};

/* labels: one a sample, below label_count. ARGUMENT, ENOMEM. */
int stk_class_balance_init(struct stk_class_balance *classes, const uint32_t *labels,
                           uint64_t sample_count, uint32_t label_count, struct stoker_error *error);
void stk_class_balance_deinit(struct stk_class_balance *classes); /* zeroed is fine */
/* STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_class_balance_draw(const struct stk_class_balance *classes, uint64_t key,
                                uint64_t position);

/* The classic two-level shuffle, under its own name to be compared with: shards in an order of the
 * epoch, then the samples of each in an order of the epoch and shard. */
struct stk_two_level {
    uint64_t seed, key, sample_count;
    uint32_t shard_count;
    uint64_t *starts; /* owned: of the shards among the samples, as they are stored */
    uint64_t *turns;  /* owned: likewise, as the epoch deals them */
    struct stk_permutation deal;
};

int stk_two_level_init(struct stk_two_level *shards, const uint64_t *counts, uint32_t shard_count,
                       uint64_t seed, struct stoker_error *error);
void stk_two_level_deinit(struct stk_two_level *shards); /* zeroed is fine */
/* O(shards), once an epoch. */
void stk_two_level_begin(struct stk_two_level *shards, uint64_t epoch);
/* position < sample_count */
uint64_t stk_two_level_sample(const struct stk_two_level *shards, uint64_t position);

/* Repeated augmentation: `spread` positions of an order come `times` times one after the other, so
 * copies are `spread` apart. With spread 1 a sample's copies are neighbours; with batch / times
 * they are in one batch, and on different ranks. */
struct stk_repeats {
    uint64_t position_count; /* of the order */
    uint32_t times, spread;  /* > 0 */
};

/* position < position_count * times: the position of the order. */
static inline uint64_t stk_repeats_position(const struct stk_repeats *repeats, uint64_t position)
{
    uint64_t turn = (uint64_t)repeats->spread * repeats->times;
    uint64_t first = position / turn * repeats->spread;
    uint64_t width = stk_min(repeats->spread, repeats->position_count - first);

    return first + position % turn % width;
}

#endif
