/* order/schedule/schedule.h: which sample stands at (epoch, position) of a run: by one order over
 * the whole data set, by a mix of sources that are neighbouring ranges of it, or by stages of
 * chosen samples.
 *
 *   ids of the data set   0 ........ ends[0] ........ ends[1] ........ ends[2]
 *                         |  source 0   |   source 1     |   source 2     |
 *
 *   a mix without end:  run position = epoch * epoch_samples + position: epochs are cuts of one run
 *   a mix with an end:  an epoch is the mix from its start to its end, drawn anew; the sources go
 * on with their next epochs
 *
 *
 * Owner: the caller. Threads: a schedule: any after init; a reader: one.
 * Memory: taken in init: 300 bytes a source, and what the mix and its reader take.
 * Bound: STK_MIX_SOURCES_MAX sources. */
#ifndef ORDER_SCHEDULE_SCHEDULE_H
#define ORDER_SCHEDULE_SCHEDULE_H

#include "order/mix/mix.h"
#include "order/sampling/curriculum.h"

struct stk_schedule_options {
    struct stk_order_options order;    /* of the whole data set; of each source but for its count */
    const struct stk_mix_options *mix; /* NULL: none. Its sources' counts are those of the ends */
    const uint64_t *ends;              /* one a source: where its samples end; lent during init */
    const struct stk_sampling_rule *rules; /* of a mix: one a source, whose count is then what is
                                         chosen; lent during init, their tables as of stages.
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
    /* Of stages, or the choices of a mix: which samples, how they are drawn, and where each begins;
     * 0: all, once. */
    uint64_t subset_identity, draws_identity;
};

/* What a caller of stoker.h gives, lent during open. Of a mix ARGUMENT also for more home groups
 * than any of its sources has blocks for; a smaller source is met by all of them. */
struct stk_schedule_request {
    const struct stoker_mix_options *mix;           /* NULL: none */
    const struct stoker_sampling_options *sampling; /* NULL: none */
    const uint64_t *shard_ends;                     /* of a two-level shuffle */
    uint64_t shard_count;
};
int stk_schedule_open(struct stk_schedule *schedule, const struct stk_order_options *order,
                      const struct stk_schedule_request *request, struct stoker_error *error);
/* Fills in what a state says of mix and stages; given: epoch_samples of the sampling. */
void stk_schedule_write_state(const struct stk_schedule *schedule, uint64_t given,
                              struct stoker_state *state_out);
/* Each sample once an epoch, by one order: neither mix nor stages. */
bool stk_schedule_is_plain(const struct stk_schedule *schedule);
/* ARGUMENT: what mix or order refuse, or ends that are out of place; ENOMEM. */
int stk_schedule_init(struct stk_schedule *schedule, const struct stk_schedule_options *options,
                      struct stoker_error *error);
void stk_schedule_deinit(struct stk_schedule *schedule); /* zeroed is fine */
/* Samples of an epoch. */
uint64_t stk_schedule_epoch_samples(const struct stk_schedule *schedule);
/* The last epoch that a run of positions may have. */
uint64_t stk_schedule_epoch_max(const struct stk_schedule *schedule);

/* Goes through positions, and keeps what neighbours share. */
struct stk_schedule_reader {
    const struct stk_schedule *schedule; /* borrowed */
    struct stk_order_epoch keys[2];      /* without a mix: the last even and odd epoch */
    struct stk_mix mix;                  /* of the epoch: borrows the schedule's segments */
    struct stk_mix_reader reader;
    struct stk_curriculum_reader stages;
};

int stk_schedule_reader_init(struct stk_schedule_reader *reader,
                             const struct stk_schedule *schedule, struct stoker_error *error);
void stk_schedule_reader_deinit(struct stk_schedule_reader *reader); /* zeroed is fine */
/* A table that lies in a file was found damaged, or there was no memory, since the last call: what
 * was read is not to be used. Fills *error. */
int stk_schedule_reader_error(struct stk_schedule_reader *reader, struct stoker_error *error);
/* What a source of a mix gives; NULL: all of its samples. */
const struct stk_sampling_rule *stk_schedule_rule(const struct stk_schedule *schedule,
                                                  uint32_t source);
/* The samples at first .. first + count - 1, all of the epoch. */
void stk_schedule_read(struct stk_schedule_reader *reader, uint64_t epoch, uint64_t first,
                       uint64_t count, uint64_t *samples_out);
/* stk_order_fingerprint of these positions, whatever chose their samples. */
uint64_t stk_schedule_fingerprint(struct stk_schedule_reader *reader, uint64_t epoch,
                                  uint64_t first, uint64_t count);
/* stk_partition_fingerprint: of all ranks in the step that begins at `position`. */
uint64_t stk_schedule_step_fingerprint(struct stk_schedule_reader *reader,
                                       const struct stk_partition *partition, uint64_t epoch,
                                       uint64_t position);
/* The position where a sample comes for the skip-th time (0: the first) in an epoch; times are
 * counted by the epochs of its source. false: it does not come so often. */
bool stk_schedule_find(const struct stk_schedule *schedule, uint64_t epoch, uint64_t sample,
                       uint64_t skip, uint64_t *position_out);
/* The samples that may stand in for this one: those of its source. */
void stk_schedule_substitute_range(const struct stk_schedule *schedule, uint64_t sample,
                                   uint64_t *first_out, uint64_t *count_out);
/* Another sample for this place, by a random number: one that might as well stand there. The
 * sample itself where there is none. */
uint64_t stk_schedule_substitute(const struct stk_schedule *schedule, uint64_t epoch,
                                 uint64_t position, uint64_t sample, uint64_t random);
/* Where the weights may change when all before (epoch, position) was given: a position of the run,
 * as changes have it, and `least` or more. */
uint64_t stk_schedule_change_position(const struct stk_schedule *schedule, uint64_t epoch,
                                      uint64_t position, uint64_t least);

#endif
