/* order/sampling/curriculum.h: a run with chosen samples: a subset, by weight, by class, each
 * several times, in stages with different choices (a curriculum).
 *
 *   run position --> stage, position in it --/ times--> position of its order, or number of a draw
 *                                          --> k-th of the chosen samples --select--> sample
 *
 *   each once   a stage delivers its samples in passes, pass n in the order of epoch n: a sample
 *               comes again only after all others came
 *   drawn       with replacement, by weight, or each class in turn: a function of the draw's number
 *
 * A stage counts positions from its start. All lookups are O(1); with two-level shuffles O(shards)
 * once a pass.
 *
 * Pure. Owner: the caller. Threads: any after init; a reader: one. Memory: allocated in init, 400
 * bytes a stage; two-level: 8 bytes a shard, a reader 32. Bound: STK_CURRICULUM_STAGES_MAX stages.
 */
#ifndef ORDER_SAMPLING_CURRICULUM_H
#define ORDER_SAMPLING_CURRICULUM_H

#include "order/sampling/sampling.h"

#define STK_CURRICULUM_STAGES_MAX 256u
#define STK_CURRICULUM_POSITIONS_MAX (UINT64_C(1) << 62)

/* Which samples, and how they are drawn. The tables are borrowed as long as the schedule exists,
 * and number the samples of the subset. */
struct stk_sampling_rule {
    const struct stk_subset *subset;         /* sealed; NULL: all */
    const struct stk_alias_table *alias;     /* drawn by weight; or NULL */
    const struct stk_class_balance *classes; /* drawn by class; or NULL */
    bool replacement;                        /* drawn, all alike */
    uint64_t subset_identity;                /* 0: all samples */
    uint64_t draws_identity;                 /* 0: each once */
};

/* Returns true if samples are drawn, false if each comes once a pass. */
bool stk_sampling_rule_is_random(const struct stk_sampling_rule *rule);
/* Returns the key of the draws of a seed. */
uint64_t stk_sampling_rule_key(const struct stk_sampling_rule *rule, uint64_t seed);
/* Returns the number-th draw out of `count` (k of the k-th chosen sample), or
 * STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_sampling_rule_draw(const struct stk_sampling_rule *rule, uint64_t count, uint64_t key,
                                uint64_t number);
/* Returns the table of these draws, for the error after STK_MAPPED_TABLE_DAMAGED. */
const struct stk_mapped_table *stk_sampling_rule_table(const struct stk_sampling_rule *rule);

struct stk_curriculum_stage {
    uint64_t first; /* run position; 0 of the first stage, then rising */
    struct stk_sampling_rule rule;
};

/* First member of `struct stoker_sampler`: the part that pure rooms use. */
struct stk_sampling_source {
    struct stk_sampling_rule rule; /* when it is made */
    uint64_t sample_count;         /* of the data set */
    bool is_made;
};

struct stk_curriculum_options {
    struct stk_order_options order; /* of the whole data set; of a stage but for its count */
    const struct stk_curriculum_stage *stages; /* borrowed during init */
    uint32_t stage_count;
    uint32_t times, spacing; /* copies of a sample, and how many positions they lie apart; 0: 1 */
    /* STOKER_SHUFFLE_TWO_LEVEL: where the samples of each shard end; borrowed during init. */
    const uint64_t *ends;
    uint32_t shard_count;
    uint64_t epoch_samples; /* 0: the largest stage, times `times` */
};

struct stk_curriculum_item {
    uint64_t first, count; /* run position; number of chosen samples */
    uint64_t key;          /* of its draws */
    struct stk_sampling_rule rule;
    struct stk_order order; /* not of drawn ones, and not two-level */
};

struct stk_curriculum {
    struct stk_curriculum_item *items; /* owned */
    uint64_t *ends;                    /* owned: two-level */
    uint64_t seed, epoch_samples;
    uint32_t stage_count, shard_count, times, spacing;
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if the stages are out of sequence or an order cannot
 * be made, STOKER_ERROR_EMPTY if a stage has no samples, STOKER_ERROR_CORRUPT, -ENOMEM. */
int stk_curriculum_init(struct stk_curriculum *stages, const struct stk_curriculum_options *options,
                        struct stoker_error *error);
void stk_curriculum_deinit(struct stk_curriculum *stages); /* a zeroed one is allowed */
/* Converts the public options. stages_out has STK_CURRICULUM_STAGES_MAX entries, which the options
 * borrow. given: NULL for one stage of all samples. Returns 0, or STOKER_ERROR_ARGUMENT, also if a
 * sampler is not complete. */
int stk_curriculum_resolve(struct stk_curriculum_options *options_out,
                           struct stk_curriculum_stage *stages_out,
                           const struct stoker_sampling_options *given, uint64_t sample_count,
                           struct stoker_error *error);
/* Returns another sample of the stage at a run position: any, or drawn as the stage draws; or
 * STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_curriculum_substitute(const struct stk_curriculum *stages, uint64_t position,
                                   uint64_t random);

/* Cached data of a pass; a reader has the last even and the last odd one. */
struct stk_curriculum_pass {
    const struct stk_curriculum_item *item; /* NULL: none yet */
    uint64_t number;
    struct stk_order_epoch keys;
    struct stk_two_level shards;
};

struct stk_curriculum_reader {
    const struct stk_curriculum *stages; /* borrowed */
    struct stk_curriculum_pass passes[2];
    uint64_t *counts;                      /* owned: of each shard; two-level */
    const struct stk_mapped_table *faulty; /* a table that was found damaged; else NULL */
    int status;                            /* 0, -ENOMEM, or CORRUPT */
};

int stk_curriculum_reader_init(struct stk_curriculum_reader *reader,
                               const struct stk_curriculum *stages, struct stoker_error *error);
void stk_curriculum_reader_deinit(
    struct stk_curriculum_reader *reader); /* a zeroed one is allowed */
/* Writes the samples at run positions first to first + count - 1; zeros after a failure (status).
 */
void stk_curriculum_read(struct stk_curriculum_reader *reader, uint64_t first, uint64_t count,
                         uint64_t *samples_out);
/* Returns the failure since the last call, or 0; fills *error. */
int stk_curriculum_reader_error(struct stk_curriculum_reader *reader, struct stoker_error *error);

#endif
