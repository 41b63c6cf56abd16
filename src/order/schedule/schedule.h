/* order/schedule/schedule.h: maps (epoch, position) of a run to a sample: by one order of the data
 * set, by a mix of sources that are adjacent ranges of it, or by stages of chosen samples.
 *
 *   ids of the data set   0 ........ ends[0] ........ ends[1] ........ ends[2]
 *                         |  source 0   |   source 1     |   source 2     |
 *
 *   a mix without end:  run position = epoch * epoch_samples + position: epochs divide one run
 *   a mix with an end:  an epoch is the mix from its start to its end, with new draws; the sources
 *                       continue with their next epochs
 *
 * Owner: the caller. Threads: a schedule: any after init; a reader: one.
 * Memory: allocated in init: 300 bytes a source, and what the mix and its reader take.
 * Bound: STK_MIX_SOURCES_MAX sources. */
#ifndef ORDER_SCHEDULE_SCHEDULE_H
#define ORDER_SCHEDULE_SCHEDULE_H

#include "order/mix/mix.h"
#include "order/sampling/curriculum.h"

struct stk_schedule_options {
    struct stk_order_options order;    /* of the whole data set; of each source but for its count */
    const struct stk_mix_options *mix; /* NULL: none. Its sources' counts are those of the ends */
    const uint64_t *ends; /* one a source: where its samples end; borrowed during init */
    const struct stk_sampling_rule *rules; /* of a mix: one a source, whose count is then what is
                                         chosen; borrowed during init, their tables as of stages.
                                         NULL: all */
    uint64_t epoch_samples; /* of a mix without end, made a multiple of its unit, and of the number
                             * of groups; 0: as many as the data set has */
    const struct stk_curriculum_options *stages; /* NULL: none. Not beside a mix; its order is not
                                                read, but that above */
};

struct stk_schedule {
    struct stk_order order;       /* of the whole data set */
    struct stk_mix mix;           /* zeroed: none */
    struct stk_curriculum stages; /* zeroed: none */
    struct stk_order *orders;     /* owned, one a source; NULL without a mix */
    uint64_t *firsts;             /* owned, one a source: its first sample */
    uint64_t *cycle_samples;      /* owned, one a source: samples it gives in a mix with an end */
    struct stk_sampling_rule *rules; /* owned, one a source; NULL: all samples of each */
    uint64_t *draw_keys;             /* owned, one a source, with choices */
    uint64_t epoch_samples;
    bool is_endless;
    uint64_t identity; /* of sources, weights, changes, end and unit; 0 without a mix */
    /* Which samples stages, or the choices of a mix, have, how they are drawn, and where each
     * begins; 0: all, once. */
    uint64_t subset_identity, draws_identity;
};

/* Public options, borrowed during open. Open returns STOKER_ERROR_ARGUMENT also if a mix has more
 * home groups than its largest source has blocks for; the blocks of a smaller source are read by
 * all groups. */
struct stk_schedule_request {
    const struct stoker_mix_options *mix;           /* NULL: none */
    const struct stoker_sampling_options *sampling; /* NULL: none */
    const uint64_t *shard_ends;                     /* of a two-level shuffle */
    uint64_t shard_count;
};
int stk_schedule_open(struct stk_schedule *schedule, const struct stk_order_options *order,
                      const struct stk_schedule_request *request, struct stoker_error *error);
/* Sets the fields of a state for mix and stages; given: epoch_samples of the sampling options. */
void stk_schedule_write_state(const struct stk_schedule *schedule, uint64_t given,
                              struct stoker_state *state_out);
/* Returns true if one order has each sample once an epoch: neither mix nor stages. */
bool stk_schedule_is_plain(const struct stk_schedule *schedule);
/* Returns 0 on success, STOKER_ERROR_ARGUMENT if mix or order cannot be made or the ends are not
 * ascending, -ENOMEM. */
int stk_schedule_init(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                      struct stoker_error *error);
void stk_schedule_deinit(struct stk_schedule *schedule); /* a zeroed one is allowed */
/* Samples of an epoch. */
uint64_t stk_schedule_epoch_samples(const struct stk_schedule *schedule);
/* The last epoch that a run of positions may have: callers check epochs that come from outside. At
 * most STK_SCHEDULE_EPOCH_MAX, so that the epoch after it has a number, too. */
#define STK_SCHEDULE_EPOCH_MAX (UINT64_MAX >> 1)
uint64_t stk_schedule_epoch_max(const struct stk_schedule *schedule);

/* Reads positions, and caches data that adjacent positions share. */
struct stk_schedule_reader {
    const struct stk_schedule *schedule; /* borrowed */
    struct stk_order_epoch keys[2];      /* without a mix: the last even and odd epoch */
    struct stk_mix mix;                  /* of the epoch: borrows the schedule's segments */
    struct stk_mix_reader reader;
    struct stk_curriculum_reader stages;
};

int stk_schedule_reader_init(struct stk_schedule_reader *reader,
                             const struct stk_schedule *schedule, struct stoker_error *error);
void stk_schedule_reader_deinit(struct stk_schedule_reader *reader); /* a zeroed one is allowed */
/* Returns an error, and fills *error, if a mapped table was damaged or an allocation failed since
 * the last call: discard the samples that were read. */
int stk_schedule_reader_error(struct stk_schedule_reader *reader, struct stoker_error *error);
/* Closes the reader. Returns `status` if it is an error, else what stk_schedule_reader_error would
 * return: for callers that read and close in one go, which must not forget to ask. */
__attribute__((warn_unused_result)) static inline int
stk_schedule_reader_end(struct stk_schedule_reader *reader, int status, struct stoker_error *error)
{
    status = status < 0 ? status : stk_schedule_reader_error(reader, error);
    stk_schedule_reader_deinit(reader);
    return status;
}
/* Exchanges a schedule, and its reader, which refers to the schedule's address, for another one:
 * *other then has the schedule that was there before. Returns 0, or -ENOMEM; then nothing
 * changes. */
int stk_schedule_exchange(struct stk_schedule *schedule, struct stk_schedule_reader *reader,
                          struct stk_schedule *other, struct stoker_error *error);
/* Returns the sampling rule of a source of a mix; NULL: all of its samples. */
const struct stk_sampling_rule *stk_schedule_rule(const struct stk_schedule *schedule,
                                                  uint32_t source);
/* Writes the samples at first to first + count - 1 of the epoch. */
void stk_schedule_read(struct stk_schedule_reader *reader, uint64_t epoch, uint64_t first,
                       uint64_t count, uint64_t *samples_out);
/* stk_order_fingerprint of these positions, for every kind of schedule. */
uint64_t stk_schedule_fingerprint(struct stk_schedule_reader *reader, uint64_t epoch,
                                  uint64_t first, uint64_t count);
/* stk_partition_fingerprint: of all ranks in the step that begins at `position`. */
uint64_t stk_schedule_step_fingerprint(struct stk_schedule_reader *reader,
                                       const struct stk_partition *partition, uint64_t epoch,
                                       uint64_t position);
/* Finds the position where a sample comes for the skip-th time (0: the first) in an epoch, counted
 * by the epochs of its source. Returns false if it does not come so often. */
bool stk_schedule_find(const struct stk_schedule *schedule, uint64_t epoch, uint64_t sample,
                       uint64_t skip, uint64_t *position_out);
/* Sets the range of samples that may replace this one: those of its source. */
void stk_schedule_substitute_range(const struct stk_schedule *schedule, uint64_t sample,
                                   uint64_t *first_out, uint64_t *count_out);
/* Returns a replacement for the sample at this position, chosen by a random number among the
 * samples that the schedule could have there; the sample itself if there is no other. */
uint64_t stk_schedule_substitute(const struct stk_schedule *schedule, uint64_t epoch,
                                 uint64_t position, uint64_t sample, uint64_t random);
/* Returns the first run position, at least `least`, where the weights may change if all positions
 * before (epoch, position) were delivered. */
uint64_t stk_schedule_change_position(const struct stk_schedule *schedule, uint64_t epoch,
                                      uint64_t position, uint64_t least);

#endif
