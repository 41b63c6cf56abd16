/* stoker/mix.h: settings of an order that mixes several sources. */
#ifndef STOKER_MIX_H
#define STOKER_MIX_H

#include <stoker/sampling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Several sources in one order. The sources are ranges of one data set that was opened with the
 * list of all of them: source i has the samples ends[i - 1] (0 for the first) to ends[i], as
 * stoker_dataset_url_end returns them.
 *
 * Positions count over all epochs of the run and are divided into frames (about 1,000 positions;
 * more if a weight is small), which end where epochs end, unless an epoch is too short for the
 * share of a source. In each frame every source has its share by weight, to within one sample, in a
 * random sequence; without a shuffle in storage order, evenly spread. A source has an order and
 * epochs of its own: none of its samples is left out. With home groups nearly all samples of a
 * frame are at positions of the group that the order of their source assigns; a source with fewer
 * than 4 blocks a group is read by all groups.
 */
enum stoker_mix_end {
    STOKER_MIX_REPEAT = 1,  /* default: a source that is exhausted starts its next epoch */
    STOKER_MIX_STOP,        /* the epoch ends when the first source has reached its limit */
    STOKER_MIX_RENORMALISE, /* the other sources continue in their proportions until all are
                               exhausted. After STOP and RENORMALISE sources continue in the next
                               epoch where they were */
};

/* Weights of all sources from `position` on; 0 excludes a source. Positions count over the run; of
 * a mix with STOP or RENORMALISE within each epoch. */
struct stoker_mix_change {
    uint64_t position; /* a multiple of unit_samples */
    const uint64_t *weights;
};

struct stoker_mix_options { /* all pointers are borrowed during open */
    size_t struct_size;
    const uint64_t *ends;    /* [source_count] */
    const uint64_t *weights; /* [source_count]; their sum is at most 2^56 */
    const uint64_t *limits;  /* [source_count]: samples of a source in an epoch under
                                STOP and RENORMALISE, 0: no limit; NULL: each sample
                                once */
    const struct stoker_mix_change *changes; /* sorted by position, without duplicates */
    size_t change_count;                     /* at most 4096 */
    uint32_t source_count;                   /* at most 256 */
    uint32_t end;                            /* enum stoker_mix_end */
    uint64_t unit_samples;  /* adjacent samples of one source: 1 (default) mixes batches, batch_size
                             * world_size takes each step from one source */
    uint64_t epoch_samples; /* REPEAT: length of an epoch of the run, rounded up to a multiple of
                               unit_samples and group_count; default: the samples of the data set */
    const struct stoker_sampler *const *samplers; /* [source_count]: a selection of the samples of a
                               source, or NULL for all. Each is built, on a data set of only that
                               source. A source then has as many samples as are selected, also for
                               limits. NULL: none */
};

#ifdef __cplusplus
}
#endif
#endif
