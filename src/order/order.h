/* order/order.h: (seed, epoch, position) -> sample, O(1) time and state. Version 1.
 *
 * Pure: no I/O, no threads, no clock, no memory.
 * Owner: values. Threads: any. Memory: none. Bound: 2^56 samples. */
#ifndef ORDER_ORDER_H
#define ORDER_ORDER_H

#include "base/base.h"

struct stk_order_options {
    uint64_t sample_count;
    uint64_t block_samples; /* samples a block, > 0 */
    uint32_t window_blocks; /* blocks mixed with each other, > 0 */
    uint32_t group_count;   /* home groups, > 0 */
    uint32_t shuffle;       /* enum stoker_shuffle */
    uint64_t seed;
};

/* Made by init; const. */
struct stk_order {
    struct stk_order_options options;
    uint64_t full_blocks;    /* F: whole blocks in the data set */
    uint64_t group_blocks;   /* K = F / H */
    uint64_t group_samples;  /* K * S */
    uint64_t windows;        /* windows of a group */
    uint64_t key_run;        /* key of the run: tau */
};

/* The keys of one epoch; const. Cheap to make: one a batch is fine. */
struct stk_order_epoch {
    const struct stk_order *order;
    uint64_t epoch, key, rotation;
};

/* ARGUMENT when groups are too many for the blocks, or a count is out of bounds. */
int      stk_order_init(struct stk_order *order, const struct stk_order_options *options,
                        struct stoker_error *error);
void     stk_order_begin(struct stk_order_epoch *epoch_out, const struct stk_order *order,
                         uint64_t epoch);
/* position < sample_count. */
uint64_t stk_order_sample(const struct stk_order_epoch *epoch, uint64_t position);

/* A keyed bijection of [0, count); index < count. */
uint64_t stk_permute(uint64_t key, uint64_t index, uint64_t count);

/* How an epoch is cut into steps, and steps into ranks. Positions run over the whole run:
 * run position = epoch * sample_count + position in the epoch. */
struct stk_partition {
    uint64_t sample_count;
    uint32_t batch_size, rank, world_size, tail; /* tail: enum stoker_tail */
    uint32_t group_count;
};

/* One slot of a batch. */
struct stk_place {
    uint64_t epoch;    /* differs from the asked one only past a wrapped tail */
    uint64_t position; /* in that epoch */
    bool     real;     /* false: padding (a repeat) */
};

/* The position (in the epoch) where an epoch's first step begins: 0 but under wrap. */
uint64_t stk_partition_first(const struct stk_partition *partition, uint64_t epoch);
/* Steps of an epoch: the same for every rank. */
uint64_t stk_partition_steps(const struct stk_partition *partition, uint64_t epoch);
/* Steps left when the epoch stands at `position`. */
uint64_t stk_partition_steps_from(const struct stk_partition *partition, uint64_t epoch,
                                  uint64_t position);
/* Slots that this rank has in the step that begins at `position`: batch_size, fewer (also 0)
 * only in a kept tail. */
uint32_t stk_partition_slots(const struct stk_partition *partition, uint64_t epoch,
                             uint64_t position);
/* Slot i of this rank in the step that begins at `position`. */
void stk_partition_place(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                         uint32_t slot, struct stk_place *place_out);

#endif
