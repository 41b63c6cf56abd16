/* order/order.h: the order of samples: maps (seed, epoch, position) to a sample, in O(1) time and
 * memory. Order version 2; version 1 remains for states that were saved with it.
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
/* With fewer blocks a group, too many blocks would belong to no group. */
#define STK_ORDER_GROUP_BLOCKS_MIN 4

struct stk_order_options {
    uint64_t sample_count;
    uint64_t block_samples; /* samples a block, > 0 */
    uint32_t window_blocks; /* blocks mixed with each other, > 0 */
    uint32_t group_count;   /* home groups, > 0 */
    uint32_t shuffle;       /* enum stoker_shuffle */
    uint32_t version;       /* 1 or 2; 0: the newest, STOKER_ORDER_VERSION */
    uint64_t seed;
};

/* A permutation of [0, count) whose rounds are computed once, for keys that are used often. */
#define STK_PERMUTE_ROUNDS_MAX 10
struct stk_permutation {
    uint64_t count;
    uint64_t factor[STK_PERMUTE_ROUNDS_MAX], summand[STK_PERMUTE_ROUNDS_MAX];
};

/* A divisor with its reciprocal: a position needs six divisions, and a multiplication takes a
 * quarter of the time of a division. */
struct stk_divisor {
    uint64_t number, reciprocal; /* floor((2^64 - 1) / number) */
};

/* One column of an epoch of version 2: the positions of one home group, as rows. */
struct stk_order_column {
    uint64_t rows, left_overs;  /* left_overs <= rows */
    struct stk_divisor by_left; /* left_overs; unused if there are none */
    uint64_t left_per_row;      /* left_overs / rows, in units of 2^-64 */
    uint64_t left_per_turn;     /* left_overs / (rows - left_overs), in the same units */
};

/* Const after init. */
struct stk_order {
    struct stk_order_options options;       /* version is not 0 */
    struct stk_divisor by_groups, by_block; /* group_count, block_samples */
    struct stk_divisor by_base, by_longer;  /* window_base, window_base + 1 */
    uint64_t full_blocks;                   /* F: whole blocks in the data set */
    uint64_t group_blocks;                  /* K = F / H */
    uint64_t group_samples;                 /* K * S */
    uint64_t windows;                       /* windows of a group, before they are staggered */
    uint64_t window_base; /* blocks of a window; the first window_extra have one more */
    uint64_t window_extra;
    uint64_t pool_samples;              /* the left-overs: F mod H blocks and the short tail */
    uint64_t long_columns;              /* N mod H: so many columns have one row more */
    struct stk_order_column columns[2]; /* a column without and with that row */
    uint64_t key_run;                   /* key of the run */
    struct stk_permutation deal;        /* by key_run: which block belongs to which group */
};

/* The keys of one epoch; const. Cheap enough to compute for each batch. Borrows the order. */
struct stk_order_epoch {
    const struct stk_order *order;
    uint64_t epoch;
    uint64_t key_sample, key_block, key_pool, key_print;
    struct stk_permutation full;         /* by key_sample: the `full` order */
    uint64_t rotation;                   /* of the blocks over the groups */
    uint64_t pool_first;                 /* version 1: position of the pool, a multiple of H */
    struct stk_permutation pool;         /* by key_pool: the order of the left-overs */
    struct stk_permutation first_blocks; /* by key_block: the order of the blocks of group 0 */
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if there are too many groups for the blocks or a
 * count is out of range. Only a block shuffle uses blocks and groups. Fewer blocks than a window,
 * also none, are allowed. */
int stk_order_init(struct stk_order *order, const struct stk_order_options *options,
                   struct stoker_error *error);
void stk_order_epoch_begin(struct stk_order_epoch *epoch_out, const struct stk_order *order,
                           uint64_t epoch);
/* position < sample_count. */
uint64_t stk_order_sample(const struct stk_order_epoch *epoch, uint64_t position);

/* Writes the samples at positions first to first + count - 1 of the epoch: several times faster
 * than single calls, since adjacent positions share keys. */
void stk_order_samples(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                       uint64_t *samples_out);
/* Writes the `count` samples at first, first + group_count, first + 2 * group_count ...: the ones
 * of one home group, as in the part of a step that a rank has (stk_partition_run). */
void stk_order_samples_strided(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                               uint64_t *samples_out);
/* Returns the position of a sample: the inverse of stk_order_sample, also O(1). sample <
 * sample_count. */
uint64_t stk_order_position(const struct stk_order_epoch *epoch, uint64_t sample);
/* Returns how many of the positions `position`, position + group_count, ... come before the next
 * one that has a left-over: a sample of a block that belongs to no home group, or of the short
 * block. 0 if the position itself has one, UINT64_MAX if none follows. Only a block shuffle has
 * left-overs. position < sample_count. */
uint64_t stk_order_left_over_distance(const struct stk_order_epoch *epoch, uint64_t position);
/* Returns a number of the left-over's block, less than group_count + 1. */
uint64_t stk_order_left_over_block(const struct stk_order_epoch *epoch, uint64_t position);
/* Hash of (epoch, position, sample), and the sum (modulo 2^64) of these hashes over positions of
 * one epoch. The sum does not depend on the pieces, ranks or workers by which it is computed. */
uint64_t stk_order_fingerprint_term(const struct stk_order_epoch *epoch, uint64_t position,
                                    uint64_t sample);
uint64_t stk_order_fingerprint(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count);
/* The same for samples that a caller chose for these positions. */
uint64_t stk_order_fingerprint_of(uint64_t epoch, uint64_t first, uint64_t count,
                                  const uint64_t *samples);

/* A keyed bijection of [0, count); index < count. */
uint64_t stk_permute(uint64_t key, uint64_t index, uint64_t count);
/* The same in two steps: stk_permute(key, i, count) == stk_permutation_apply(init with key, i). */
void stk_permutation_init(struct stk_permutation *permutation, uint64_t key, uint64_t count);
uint64_t stk_permutation_apply(const struct stk_permutation *permutation, uint64_t index);
/* values[i] = stk_permutation_apply(p, values[i]), vectorised; count <= STK_PERMUTE_STRIDE. */
#define STK_PERMUTE_STRIDE 256u
void stk_permutation_apply_all(const struct stk_permutation *permutation, uint64_t *values,
                               uint32_t count);
/* stk_permutation_invert(p, stk_permutation_apply(p, i)) == i. */
uint64_t stk_permutation_invert(const struct stk_permutation *permutation, uint64_t value);

/* Divides an epoch into steps, and a step among ranks. Positions count over the run:
 * run position = epoch * sample_count + position in the epoch. A step is batch_size * world_size
 * positions; its positions do not depend on the number of ranks or workers.
 *
 *   steps of an epoch   0  1  2  3  4  5  6     worker_count 3: worker 1 has steps 1 and 4
 *   their workers       0  1  2  0  1  2  0     in turn, they are the steps of one worker
 *
 * A worker gets complete steps of a rank, so each worker has its own partition. Below, "steps" are
 * the steps of this partition's worker. */
struct stk_partition {
    uint64_t sample_count;
    uint32_t batch_size, rank, world_size, tail; /* tail: enum stoker_tail */
    uint32_t group_count;
    uint32_t worker, worker_count; /* 0 of 0 is 0 of 1 */
};

/* One slot of a batch. */
struct stk_order_place {
    uint64_t epoch;    /* differs from the requested one only in a wrapped tail */
    uint64_t position; /* in that epoch */
    bool real;         /* false: padding (a repeat) */
};

/* Returns 0, or STOKER_ERROR_ARGUMENT if a number is out of range. The other functions expect a
 * partition that was checked. */
int stk_partition_check(const struct stk_partition *partition, struct stoker_error *error);
/* Returns the position in the epoch where its first step begins: 0 with one worker, except for tail
 * wrap, whose steps divide the run from its start. May lie after an epoch that is shorter than a
 * step. A wrapped run that changed its batch or world size continues where its last step ended, not
 * here. */
uint64_t stk_partition_first(const struct stk_partition *partition, uint64_t epoch);
/* Distance between two steps, in positions. */
uint64_t stk_partition_stride(const struct stk_partition *partition);
/* How far the position of a saved state may be past the `samples` of an epoch. With tail drop: only
 * as far as the turns of the workers of a rank. Otherwise a step of the saved run, whose ranks and
 * batch size are not known, may be 1,024 times as large as a step of this run. */
uint64_t stk_partition_slack(const struct stk_partition *partition, uint64_t samples);
/* Steps of an epoch: the same for every rank. With tail wrap, the steps that begin in it. */
uint64_t stk_partition_steps(const struct stk_partition *partition, uint64_t epoch);
/* Returns 0, or STOKER_ERROR_EMPTY if epochs have no step for any worker, because tail drop drops
 * all samples. */
int stk_partition_check_steps(const struct stk_partition *partition, struct stoker_error *error);
/* Steps left from `position` of the epoch, which may be between two steps of this partition, as
 * after a resume with another batch size. */
uint64_t stk_partition_steps_from(const struct stk_partition *partition, uint64_t epoch,
                                  uint64_t position);
/* Slots that this rank has in the step that begins at `position`: batch_size, fewer (also 0)
 * only in a kept tail. */
uint32_t stk_partition_batch_slots(const struct stk_partition *partition, uint64_t epoch,
                                   uint64_t position);
/* Slot i of this rank in the step that begins at `position`. The step's positions, sorted by
 * (position mod group_count, position), are divided into one slice for each rank: so a rank reads
 * almost only blocks of its own groups. */
void stk_partition_place(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                         uint32_t slot, struct stk_order_place *place_out);
/* Sets *first_out to the place of a slot. Returns how many slots from there on are group_count
 * positions apart in one epoch and all real or all padding: at least 1. */
uint32_t stk_partition_run(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                           uint32_t slot, struct stk_order_place *first_out);
/* Returns the start of the next epoch if `epoch` ended at `position`. */
uint64_t stk_partition_next_epoch_start(const struct stk_partition *partition, uint64_t epoch,
                                        uint64_t position);
/* stk_order_fingerprint of the real slots of all ranks in the step that begins at `position`. */
uint64_t stk_partition_fingerprint(const struct stk_partition *partition,
                                   const struct stk_order *order, uint64_t epoch,
                                   uint64_t position);

/* Step, rank and slot in which a position is delivered. */
struct stk_delivery {
    uint64_t epoch, step; /* of the step: a wrapped one may begin in an epoch before */
    uint64_t position;    /* where the step begins */
    uint32_t rank, slot;
};
/* The inverse of stk_partition_place for a run whose batch and world size did not change, in O(1).
 * Steps count over all workers. Returns false if the position is in a dropped tail. */
bool stk_partition_find(const struct stk_partition *partition, uint64_t epoch, uint64_t position,
                        struct stk_delivery *delivery_out);

/* Bytes of an identity that are the digest of one group of settings. */
struct stk_identity_part {
    const char *name;
    uint32_t first, bytes;
};

/* Names of the settings of a stream, for the error if a state does not fit. */
struct stk_state_labels {
    const char *samples;                   /* "number of samples" */
    const char *block_samples;             /* "samples a block" */
    const char *identity;                  /* "identity of the data set"; or: */
    const struct stk_identity_part *parts; /* [part_count]: of all 32 bytes */
    uint32_t part_count;
    const char *advice;
    uint64_t positions, epoch_max; /* of an epoch; the last one there may be */
    uint64_t slack;                /* stk_partition_slack */
};

/* Makes the state at the start of a stream; the caller adds epoch, position and fingerprint. Rank,
 * world and batch size are not part of it: it is equal on all ranks, and valid for every world
 * size. */
void stk_state_make(struct stoker_state *state_out, const struct stk_order *order,
                    const struct stk_partition *partition, const uint8_t identity[32]);
/* Returns 0, or STOKER_ERROR_STATE with all settings in which the state differs from the stream's
 * own. */
int stk_state_validate(const struct stoker_state *state, const struct stoker_state *own,
                       const struct stk_state_labels *words, struct stoker_error *error);

#endif
