/* order/sampling/sampling.h: other ways to choose samples than each once an epoch, all of them
 * functions of a position of the run, with no state but tables made once.
 *
 *   stk_alias      with replacement, by weight        8 bytes a sample
 *   stk_classes    each class as often as the others  4 bytes a sample
 *   stk_twolevel     the classic shuffle: shards, then the samples of each
 *   stk_repeats    each sample several times in a row, or in a step
 *
 * Augmentation is keyed by the position, so two draws of one sample differ.
 * Owner: the caller. Threads: any after init (shards: after begin). Memory: taken in init.
 * Bound: 2^32 - 1 samples of alias and classes, STK_ORDER_SAMPLES_MAX of the others. */
#ifndef ORDER_SAMPLING_SAMPLING_H
#define ORDER_SAMPLING_SAMPLING_H

#include "order/sampling/subset.h"

/* A random number for each position of a run. Two uses of a seed take different `use`s. */
enum stk_use { STK_USE_ALIAS = 1, STK_USE_UNIFORM, STK_USE_CLASSES = 0x636c6173 }; /* "clas" */
uint64_t stk_draw_key(uint64_t seed, uint64_t use);

struct stk_alias {
    uint64_t count;
    uint32_t *thresholds, *aliases; /* owned */
    struct stk_lent lent;           /* not owned, then */
};

/* weights: `count` of them, not all 0; a sample of weight 0 is never drawn. The chance of each is
 * its part of the sum to within 2^-32. ARGUMENT, ENOMEM. */
int stk_alias_init(struct stk_alias *alias, const uint32_t *weights, uint64_t count,
                   struct stoker_error *error);
void stk_alias_deinit(struct stk_alias *alias); /* zeroed is fine */
/* STK_DAMAGED. */
uint64_t stk_alias_draw(const struct stk_alias *alias, uint64_t key, uint64_t position);

/* Samples by class. Of every `class_count` positions one is of each class that has samples; a class
 * goes through all its samples before one comes again. */
struct stk_classes {
    uint32_t class_count; /* with samples */
    uint64_t sample_count;
    uint64_t *starts;     /* owned: of the classes in `samples`, and sample_count */
    uint32_t *samples;    /* owned */
    struct stk_lent lent; /* not owned, then */
};

/* labels: one a sample, below label_count. ARGUMENT, ENOMEM. */
int stk_classes_init(struct stk_classes *classes, const uint32_t *labels, uint64_t sample_count,
                     uint32_t label_count, struct stoker_error *error);
void stk_classes_deinit(struct stk_classes *classes); /* zeroed is fine */
/* STK_DAMAGED. */
uint64_t stk_classes_draw(const struct stk_classes *classes, uint64_t key, uint64_t position);

/* The classic two-level shuffle, under its own name to be compared with: shards in an order of the
 * epoch, then the samples of each in an order of the epoch and shard. */
struct stk_twolevel {
    uint64_t seed, key, sample_count;
    uint32_t shard_count;
    uint64_t *starts; /* owned: of the shards among the samples, as they are stored */
    uint64_t *turns;  /* owned: likewise, as the epoch deals them */
    struct stk_permutation deal;
};

int stk_twolevel_init(struct stk_twolevel *shards, const uint64_t *counts, uint32_t shard_count,
                      uint64_t seed, struct stoker_error *error);
void stk_twolevel_deinit(struct stk_twolevel *shards); /* zeroed is fine */
/* O(shards), once an epoch. */
void stk_twolevel_begin(struct stk_twolevel *shards, uint64_t epoch);
/* position < sample_count */
uint64_t stk_twolevel_sample(const struct stk_twolevel *shards, uint64_t position);

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
