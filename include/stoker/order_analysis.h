/* stoker/order_analysis.h: measures, simulates, verifies and compares orders, without data. */
#ifndef STOKER_ORDER_ANALYSIS_H
#define STOKER_ORDER_ANALYSIS_H

#include <stoker/order.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stoker_order_measures;

struct stoker_order_measure_options {
    size_t struct_size;
    uint32_t nodes;          /* with equally many ranks each; default 1; at most world_size */
    uint64_t buffer_samples; /* not 0: measure a shuffle buffer of this size over the storage order
                                instead of the order; only the mixing is measured */
    uint64_t walk_max;       /* samples; blocks of larger data sets, or more than 2^22 blocks, are
                                not walked; default 2^24 */
    /* Output, borrowed during the call: one for each source of the mix or stage of the sampling,
     * each as long as the struct_size of the measures says. */
    struct stoker_order_measures *parts;
    size_t part_max; /* capacity of parts */
};

struct stoker_order_measures {
    size_t struct_size;
    uint64_t nodes, block_count; /* block_count includes the short last block */
    uint64_t window_samples;     /* samples that are mixed with each other, in a group */
    uint64_t window_blocks_max;  /* upper bound of open blocks of a node: the windows of the groups
                                    that it reads, and its share of samples without a group */
    /* Results of a walk through an epoch; 0, with walked = 0, if there was none. */
    uint8_t walked;
    uint64_t open_blocks_max; /* of any node: started, and needed again in the epoch */
    uint64_t requests;        /* blocks that nodes read in an epoch, each once while it is open */
    uint64_t requests_cached; /* the same if each node caches 1 / nodes of all blocks */
    double cache_share; /* share of samples whose block is in that cache since the last epoch */
    /* Mixing, measured on up to 512 steps of all ranks, fewer of large steps (steps_measured). */
    double distance;     /* between adjacent samples, as a share of the data set; full: 1/3 */
    double displacement; /* between storage and epoch position of a sample; likewise */
    double same_block;   /* share of pairs of samples of a batch that are in one block */
    double neighbours;   /* share of samples with a storage neighbour in their batch */
    /* With a mix or a sampling, blocks, distances and neighbours are counted within a source or a
     * stage among its selected samples; sources are open at the same time. */
    uint64_t samples;    /* samples of the epoch; walked = 1 */
    uint64_t chosen;     /* distinct selected samples */
    uint64_t part_count; /* sources or stages; 0 in a part */
    /* Mixing was measured in so many steps of 8 epochs, with so many samples of each; 0 in a part.
     */
    uint64_t steps_measured, step_samples_measured;
};
/* Measures I/O and mixing of an order. A walk that needs more than 1 GiB is left out. Returns 0 and
 * fills *measures_out; -ENOMEM if memory is exhausted; STOKER_ERROR_ARGUMENT if an option is
 * invalid. */
STOKER_API int stoker_order_measure(const struct stoker_order *order,
                                    const struct stoker_order_measure_options *options,
                                    struct stoker_order_measures *measures_out,
                                    struct stoker_error *error);

/* Labels of samples, for example their classes. */
struct stoker_order_mixing_options {
    size_t struct_size;
    /* Sets the label of a sample. Returns 0; a status below 0 ends the measurement. */
    int (*label_of)(void *context, uint64_t sample, int64_t *label_out);
    void *context;
    uint64_t epoch;
    uint64_t steps_max; /* to measure: stretches of 20 consecutive steps, spread over the epoch;
                           default: all of the epoch */
};

struct stoker_order_mixing {
    size_t struct_size;
    uint64_t steps, samples; /* that were measured */
    uint64_t classes;        /* different labels of these samples */
    double batch_classes;    /* different labels in the batch of a rank, on average */
    uint64_t batch_classes_min;
    double batch_share_max;       /* largest share of one label in the batch of a rank */
    uint64_t run_max;             /* longest run of one label in the order */
    uint64_t stretch_classes_min; /* fewest different labels in 20 consecutive steps of all ranks */
    double chi_square; /* of labels by eighth of the epoch, divided by its degrees of freedom: about
                          1 if positions do not depend on labels */
};
/* Measures how an order mixes labels; a full permutation of the same samples shows what is
 * possible. Returns 0 and fills *mixing_out; the status of label_of; STOKER_ERROR_ARGUMENT if an
 * option is invalid; STOKER_ERROR_LIMIT if there are more than 2^22 labels; -ENOMEM. */
STOKER_API int stoker_order_mixing(const struct stoker_order *order,
                                   const struct stoker_order_mixing_options *options,
                                   struct stoker_order_mixing *mixing_out,
                                   struct stoker_error *error);

struct stoker_order_simulate_options {
    size_t struct_size;
    uint64_t epoch;
    uint32_t nodes;   /* with equally many ranks and groups each; default 1 */
    uint32_t threads; /* default 1, at most 256 */
};

/* Open blocks: blocks that a node has started and not finished. They are the memory that reading
 * entire blocks needs. */
struct stoker_order_simulation {
    size_t struct_size;
    uint64_t steps, slots;      /* of all ranks */
    uint64_t samples;           /* that were delivered */
    uint64_t missing, repeated; /* 0: each sample came exactly once, except a dropped tail */
    uint64_t requests;          /* blocks that nodes start, and samples without a home group */
    uint64_t open_blocks_max, open_blocks_bound; /* of any node, ranks one after the other */
    uint64_t step_blocks_max, step_blocks_bound; /* of any node, all ranks in the same step */
};
/* Simulates an epoch on each rank of each node, for data sets and clusters of any size; needs 1 bit
 * of memory a sample and thread. With a mix or a sampling every position must come exactly once,
 * and no sample twice in a pass of a source or stage; all shuffles, but not the tail wrap; one
 * thread; 16 bytes a block and node. Returns 0 and fills *simulation_out; -ENOMEM if memory is
 * exhausted; STOKER_ERROR_ARGUMENT if the order is no block shuffle with tail drop or pad, or nodes
 * do not divide groups and groups do not divide the samples of a step; STOKER_ERROR_LIMIT if a mix
 * or a sampling needs more than 1 GiB. */
STOKER_API int stoker_order_simulate(const struct stoker_order *order,
                                     const struct stoker_order_simulate_options *options,
                                     struct stoker_order_simulation *simulation_out,
                                     struct stoker_error *error);

/* A segment of a run between two changes of the world size or batch size. */
struct stoker_order_segment {
    uint32_t world_size, batch_size;
    uint64_t steps; /* 0: to the end of the run */
    uint64_t lost;  /* last steps of these: the run resumes from a state before them */
};

struct stoker_order_verify_options {
    size_t struct_size;
    const uint32_t *world_sizes; /* borrowed: each divides batch_size * world_size */
    size_t world_size_count;
    uint32_t epochs;    /* default 2, at most 64 */
    uint32_t histories; /* number of random runs: each changes world and batch sizes, is killed and
                           resumes */
    uint64_t seed;      /* of the random runs */
    const struct stoker_order_segment *segments; /* borrowed: a run of these segments; the last one
                                                     continues to the end, the others must end in
                                                     these epochs, before the last step */
    size_t segment_count;
    uint64_t first_history; /* number of the first random run: runs may be verified in parts */
    uint8_t histories_only; /* 1: random runs use the world sizes, which are not verified on their
                               own */
};

struct stoker_order_proof {
    size_t struct_size;
    uint64_t slots; /* enumerated */
    uint64_t steps; /* steps whose samples were compared with those of another world size */
    uint64_t histories;
    uint64_t resizes;  /* segments with another world size or batch size than the one before */
    uint64_t kills;    /* segments that lost steps */
    uint64_t failures; /* 0: each sample occurs exactly once in all of them */
    char failure[256]; /* the first failure */
};
/* Verifies by enumeration that each sample occurs exactly once an epoch (with tail drop: except
 * those after the last step) for each world size, in each random run and in the run of the
 * segments, and that a step has the same samples for all world sizes. O(samples * (worlds + runs) *
 * epochs). With a mix or a sampling: that each position comes once with its sample and, unless
 * histories_only, that each sample comes once (`repeats` times) in each pass of its source or
 * stage; with replacement there are no passes. Returns 0 and fills *proof_out, also if there are
 * failures; -ENOMEM if memory is exhausted; STOKER_ERROR_CORRUPT if a table is damaged;
 * STOKER_ERROR_ARGUMENT if an option is invalid, or the epochs end before a segment does. */
STOKER_API int stoker_order_verify(const struct stoker_order *order,
                                   const struct stoker_order_verify_options *options,
                                   struct stoker_order_proof *proof_out,
                                   struct stoker_error *error);

struct stoker_order_difference {
    size_t struct_size;
    uint8_t order, step, rank; /* 1: difference in the order of samples; in the samples of a step of
                                  all ranks; in the samples of a rank in a step */
    uint64_t order_epoch, order_position; /* the first place */
    uint64_t sample_a, sample_b;          /* there; STOKER_NO_SAMPLE: none */
    uint64_t step_epoch, step_number;
    uint64_t rank_epoch, rank_step;
    uint32_t rank_number;
};
/* Finds the first difference of two configurations in the first `epochs` epochs. Returns 0 and
 * fills *difference_out. */
STOKER_API int stoker_order_diff(const struct stoker_order *a, const struct stoker_order *b,
                                 uint64_t epochs, struct stoker_order_difference *difference_out,
                                 struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
