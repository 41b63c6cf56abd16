/* stoker/state.h: the position of a loader in its run, to resume from. */
#ifndef STOKER_STATE_H
#define STOKER_STATE_H

#include <stoker/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Position of a stream of batches and the settings that it depends on. A batch counts as delivered
 * once next() returned it. */
struct stoker_state {
    uint32_t order_version; /* STOKER_ORDER_VERSION */
    uint32_t shuffle, tail, window_blocks, group_count;
    uint64_t seed, epoch;
    uint64_t position; /* in the epoch, of the global order: the same on all ranks; with several
                          workers: where the next batch of this worker starts */
    uint64_t sample_count, block_samples;
    uint8_t identity[32]; /* of the data set */
    uint64_t fingerprint; /* hash of the samples at all positions that were delivered to all ranks;
                             substitutes of damaged samples do not count. The same on every rank and
                             for every world size; with several workers: the sum (modulo 2^64) of
                             their fingerprints */
    uint64_t mix;         /* hash of the mix's settings and changes; 0: none */
    uint64_t subset, draws; /* hashes of the samplers and their positions: which samples, and how
                               they are drawn; 0: all samples, each once */
    uint64_t epoch_samples; /* as in stoker_sampling_options, as the next two; 0: default */
    uint32_t repeats, repeat_distance; /* 0: no sampling */
};

#ifdef __cplusplus
}
#endif
#endif
