/* order/order.h: (seed, epoch, position) -> sample, O(1) time and state. Version 1.
 *
 *   position --group and window--> block of the window, sample in it --keys--> sample
 *   step = G positions --sorted by home group, cut in equal slices--> slots of a rank
 *
 * Pure: no I/O, no threads, no clock, no memory.
 * Owner: values. Threads: any. Memory: none. Bound: STK_ORDER_SAMPLES_MAX samples. */
#ifndef ORDER_ORDER_H
#define ORDER_ORDER_H

#include "base/base.h"

#define STK_ORDER_SAMPLES_MAX (UINT64_C(1) << 56)
/* Fewer blocks a group than this, and much of the data would be left over by the groups. */
#define STK_ORDER_GROUP_BLOCKS_MIN 4

struct stk_order_options {
    uint64_t sample_count;
    uint64_t block_samples; /* samples a block, > 0 */
    uint32_t window_blocks; /* blocks mixed with each other, > 0 */
    uint32_t group_count;   /* home groups, > 0 */
    uint32_t shuffle;       /* enum stoker_shuffle */
    uint64_t seed;
};

/* A permutation of [0, count) with its key's rounds worked out, for keys that are used often. */
#define STK_PERMUTE_ROUNDS_MAX 10
struct stk_permutation {
    uint64_t count;
    uint64_t factor[STK_PERMUTE_ROUNDS_MAX], summand[STK_PERMUTE_ROUNDS_MAX];
};

/* A number to divide by, with its reciprocal: half a dozen divisions make one position, and each
 * took four times as long as the multiplication that replaces it. */
struct stk_divisor {
    uint64_t number, reciprocal; /* floor((2^64 - 1) / number) */
};

/* Made by init; const. */
struct stk_order {
    struct stk_order_options options;
    struct stk_divisor by_groups, by_block; /* group_count, block_samples */
    struct stk_divisor by_base, by_longer;  /* window_base, window_base + 1 */
    uint64_t full_blocks;                   /* F: whole blocks in the data set */
    uint64_t group_blocks;                  /* K = F / H */
    uint64_t group_samples;                 /* K * S */
    uint64_t windows;                       /* windows of a group, before they are staggered */
    uint64_t window_base; /* blocks of a window; the first window_extra have one more */
    uint64_t window_extra;
    uint64_t pool_samples;       /* outside the groups: F mod H blocks and the short tail */
    uint64_t key_run;            /* key of the run */
    struct stk_permutation deal; /* by key_run: which block belongs to which group */
};

/* The keys of one epoch; const. Cheap to make: one a batch is fine. Borrows the order. */
struct stk_order_epoch {
    const struct stk_order *order;
    uint64_t epoch;
    uint64_t key_sample, key_block, key_pool, key_print;
    struct stk_permutation full; /* by key_sample: the `full` order */
    uint64_t rotation;           /* of the blocks over the groups */
    uint64_t pool_first;         /* position of the pool, a multiple of H */
};

/* ARGUMENT when groups are too many for the blocks, or a count is out of bounds. Only a block
 * shuffle looks at blocks and groups. Less than one window of blocks, also none, is fine. */
int stk_order_init(struct stk_order *order, const struct stk_order_options *options,
                   struct stoker_error *error);
void stk_order_epoch_begin(struct stk_order_epoch *epoch_out, const struct stk_order *order,
                           uint64_t epoch);
/* position < sample_count. */
uint64_t stk_order_sample(const struct stk_order_epoch *epoch, uint64_t position);

/* The samples at first .. first + count - 1, all of the epoch, by position: several times faster
 * than one by one, as neighbours share their keys. */
void stk_order_samples(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                       uint64_t *samples_out);
/* The samples at first, first + group_count, first + 2 * group_count ..., count of them: of one
 * home group, as what a rank has of a step lies (stk_partition_run). */
void stk_order_samples_strided(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                               uint64_t *samples_out);
/* Where a sample stands: the inverse of stk_order_sample, in O(1) too. sample < sample_count. */
uint64_t stk_order_position(const struct stk_order_epoch *epoch, uint64_t sample);
/* A mix of (epoch, position, sample), and its sum (modulo 2^64) over positions of one epoch. So it
 * does not matter in which pieces, nor by how many ranks or workers, they are gone through. */
uint64_t stk_order_fingerprint_term(const struct stk_order_epoch *epoch, uint64_t position,
                                    uint64_t sample);
uint64_t stk_order_fingerprint(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count);
/* The same of samples that something else chose for these positions. */
uint64_t stk_order_fingerprint_of(uint64_t epoch, uint64_t first, uint64_t count,
                                  const uint64_t *samples);

/* A keyed bijection of [0, count); index < count. */
uint64_t stk_permute(uint64_t key, uint64_t index, uint64_t count);
/* The same in two parts: stk_permute(key, i, count) == stk_permutation_apply(made from key, i). */
void stk_permutation_init(struct stk_permutation *permutation, uint64_t key, uint64_t count);
uint64_t stk_permutation_apply(const struct stk_permutation *permutation, uint64_t index);
/* values[i] = stk_permutation_apply(p, values[i]), several at once; count <= STK_PERMUTE_STRIDE. */
#define STK_PERMUTE_STRIDE 256u
void stk_permutation_apply_all(const struct stk_permutation *permutation, uint64_t *values,
                               uint32_t count);
/* stk_permutation_invert(p, stk_permutation_apply(p, i)) == i. */
uint64_t stk_permutation_invert(const struct stk_permutation *permutation, uint64_t value);

/* How an epoch is cut into steps, and steps into ranks. Positions run over the whole run:
 * run position = epoch * sample_count + position in the epoch. A step is batch_size * world_size
 * positions; which ones never depends on how they are shared out.
 *
 *   steps of an epoch   0  1  2  3  4  5  6     worker_count 3: worker 1 has steps 1 and 4
 *   their workers       0  1  2  0  1  2  0     taken in turns they are those of one worker
 *
 * Workers share a rank's steps whole, so each has a partition of its own. Below, "steps" are those
 * of this partition's worker. */
struct stk_partition {
    uint64_t sample_count;
    uint32_t batch_size, rank, world_size, tail; /* tail: enum stoker_tail */
    uint32_t group_count;
    uint32_t worker, worker_count; /* 0 of 0 is 0 of 1 */
};

/* One slot of a batch. */
struct stk_order_place {
    uint64_t epoch;    /* differs from the asked one only past a wrapped tail */
    uint64_t position; /* in that epoch */
    bool real;         /* false: padding (a repeat) */
};

/* ARGUMENT when a number is out of bounds; the other functions expect a checked partition. */
int stk_partition_check(const struct stk_partition *partition, struct stoker_error *error);
/* The position (in the epoch) where an epoch's first step begins: with one worker 0 but under
 * wrap, where the steps tile the run from its start. It may lie past an epoch shorter than a step.
 * A wrapped run that changed its batch or world size goes on where its last step ended, not
 * here. */
uint64_t stk_partition_first(const struct stk_partition *partition, uint64_t epoch);
/* From one step to the next, in positions. */
uint64_t stk_partition_stride(const struct stk_partition *partition);
/* Steps of an epoch: the same for every rank. Under wrap, those that begin in it. */
uint64_t stk_partition_steps(const struct stk_partition *partition, uint64_t epoch);
/* Steps left when the epoch stands at `position`: any, also one between two steps of this
 * partition, as after a resume with another batch size. */
uint64_t stk_partition_steps_from(const struct stk_partition *partition, uint64_t epoch,
                                  uint64_t position);
/* Slots that this rank has in the step that begins at `position`: batch_size, fewer (also 0)
 * only in a kept tail. */
uint32_t stk_partition_batch_slots(const struct stk_partition *partition, uint64_t epoch,
                                   uint64_t position);
/* Slot i of this rank in the step that begins at `position`. The step's positions, sorted by
 * (position mod group_count, position), are cut into one slice a rank: a rank meets nearly only
 * its own groups' blocks. */
void stk_partition_place(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                         uint32_t slot, struct stk_order_place *place_out);
/* The place of a slot, and how many slots from it on stand group_count positions apart in one
 * epoch, all of them real or none: at least 1. */
uint32_t stk_partition_run(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                           uint32_t slot, struct stk_order_place *first_out);
/* Where the epoch after `epoch` begins when that one ended at `position`. */
uint64_t stk_partition_next_epoch_start(const struct stk_partition *partition, uint64_t epoch,
                                        uint64_t position);
/* stk_order_fingerprint of the real slots of all ranks in the step that begins at `position`. */
uint64_t stk_partition_fingerprint(const struct stk_partition *partition,
                                   const struct stk_order *order, uint64_t epoch,
                                   uint64_t position);

/* Where a position is delivered. */
struct stk_delivery {
    uint64_t epoch, step; /* of the step: a wrapped one may begin in an epoch before */
    uint64_t position;    /* where the step begins */
    uint32_t rank, slot;
};
/* The inverse of stk_partition_place for a run that was not cut anew, in O(1). Steps are counted
 * over all workers. false: a dropped tail, it is not delivered in this epoch. */
bool stk_partition_find(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                        struct stk_delivery *delivery_out);

/* Some bytes of an identity that stand for something of their own. */
struct stk_identity_part {
    const char *name;
    uint32_t first, bytes;
};

/* What a stream calls its parts when it refuses a state. */
struct stk_state_labels {
    const char *samples;                   /* "number of samples" */
    const char *block_samples;             /* "samples a block" */
    const char *identity;                  /* "identity of the data set"; or: */
    const struct stk_identity_part *parts; /* [part_count]: of all 32 bytes */
    uint32_t part_count;
    const char *advice;
    uint64_t positions, epoch_max; /* of an epoch; the last one there may be */
};

/* A stream's state at its very beginning: the caller adds epoch, position and fingerprint. Rank,
 * world and batch size are not in it: it is the same on every rank, and valid in every world. */
void stk_state_make(struct stoker_state *state_out, const struct stk_order *order,
                    const struct stk_partition *partition, const uint8_t identity[32]);
/* STATE, with everything path_args in which the state differs from the stream's own. */
int stk_state_validate(const struct stoker_state *state, const struct stoker_state *own,
                       const struct stk_state_labels *words, struct stoker_error *error);

#endif
