/* stoker/order.h: the order of samples: position of an epoch -> sample, step and rank. */
#ifndef STOKER_ORDER_H
#define STOKER_ORDER_H

#include <stoker/mix.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stoker_shuffle {
    STOKER_SHUFFLE_BLOCK = 1, /* shuffles blocks, then the samples of a window of blocks */
    STOKER_SHUFFLE_FULL,      /* one permutation of all samples */
    STOKER_SHUFFLE_NONE,      /* storage order */
    STOKER_SHUFFLE_TWO_LEVEL, /* shuffles shards, then the samples of each shard; tars only */
};
enum stoker_tail { STOKER_TAIL_DROP = 1, STOKER_TAIL_PAD, STOKER_TAIL_WRAP, STOKER_TAIL_KEEP };

/* Version 2 spreads the left-over samples, which belong to no home group or are after the last
 * complete block, over the epoch. Version 1 placed them in a row; a state that was saved with it
 * continues with it. */
#define STOKER_ORDER_VERSION 2

/* The pure function behind every loader, for tools and tests: the sample at a position of an epoch,
 * for `sample_count` samples in blocks of block_samples, windows of window_blocks blocks, and
 * group_count home groups, in the newest version. Does no I/O. Returns 0 and sets *sample_out;
 * STOKER_ERROR_ARGUMENT if an argument is out of range. Any thread. */
STOKER_API int stoker_order_at(uint64_t sample_count, uint64_t block_samples,
                               uint32_t window_blocks, uint32_t group_count, uint32_t shuffle,
                               uint64_t seed, uint64_t epoch, uint64_t position,
                               uint64_t *sample_out);

/* An order, its division into steps, and the assignment of samples to ranks: what a loader with
 * these settings will do, without data or I/O. Constant after it is opened: any thread. */
struct stoker_order;

struct stoker_order_options {
    size_t struct_size;
    uint64_t sample_count, block_samples; /* as in stoker_dataset_info */
    uint64_t seed;
    uint32_t shuffle, tail, window_blocks, group_count; /* defaults as in stoker_loader_options */
    uint32_t batch_size;                                /* of a rank */
    uint32_t world_size;                                /* default 1 */
    const struct stoker_mix_options *mix;           /* borrowed; NULL: one order of all samples */
    const struct stoker_sampling_options *sampling; /* borrowed; NULL: all samples, once. Not
                                                       together with a mix. Samplers must stay open
                                                       as long as the order */
    const uint64_t *shard_ends; /* borrowed; TWO_LEVEL: where the samples of each shard end */
    uint64_t shard_count;
    uint32_t order_version; /* 1 or 2; 0: the newest, STOKER_ORDER_VERSION */
};

/* Returns 0 and sets *order_out; STOKER_ERROR_ARGUMENT if an option is invalid. */
STOKER_API int stoker_order_open(struct stoker_order **order_out,
                                 const struct stoker_order_options *options,
                                 struct stoker_error *error);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_order_close(struct stoker_order *order);
/* Returns the number of samples of an epoch, over all ranks. */
STOKER_API uint64_t stoker_order_samples(const struct stoker_order *order);
/* Returns the number of steps of an epoch; with tail wrap: of the steps that start in it. */
STOKER_API uint64_t stoker_order_steps(const struct stoker_order *order, uint64_t epoch);

#define STOKER_ALL_RANKS UINT32_MAX

/* Place of one sample in the run. */
struct stoker_slot {
    uint64_t step_epoch, step; /* step: counted from the first step of step_epoch */
    uint32_t rank, slot;
    uint64_t epoch,
        position;    /* of the sample; epoch differs from step_epoch after a wrapped tail */
    uint64_t sample; /* its id */
    uint8_t real;    /* 0: padding, a repeated sample */
};

/* Slots of a step in the order of rank and slot, without the first `skip`, at most `capacity`.
 * rank: STOKER_ALL_RANKS, or only this rank. Returns the number of slots filled, 0 at the end;
 * STOKER_ERROR_ARGUMENT if there is no such step or rank; STOKER_ERROR_CORRUPT if a table of chosen
 * samples is damaged, or changed while it is open. */
STOKER_API int stoker_order_slots(const struct stoker_order *order, uint64_t epoch, uint64_t step,
                                  uint32_t rank, uint64_t skip, struct stoker_slot *slots_out,
                                  uint32_t capacity);
/* The inverse of the order, in O(1): the slot of a sample in an epoch (of the sample). In a mix a
 * sample may come several times or never: the first `skip` occurrences are skipped. Returns 1 and
 * fills *slot_out; 0 if the sample is in a dropped tail; STOKER_ERROR_MISSING if it comes less
 * often; STOKER_ERROR_ARGUMENT if there is no such sample; STOKER_ERROR_CORRUPT as above. */
STOKER_API int stoker_order_find(const struct stoker_order *order, uint64_t epoch, uint64_t sample,
                                 uint64_t skip, struct stoker_slot *slot_out);
/* What `count` steps from `step` on (of all ranks) add to stoker_stats.fingerprint, a sum modulo
 * 2^64. Returns 0 and sets *sum_out; STOKER_ERROR_ARGUMENT if there are fewer steps;
 * STOKER_ERROR_CORRUPT as above. */
STOKER_API int stoker_order_fingerprint(const struct stoker_order *order, uint64_t epoch,
                                        uint64_t step, uint64_t count, uint64_t *sum_out);

#ifdef __cplusplus
}
#endif
#endif
