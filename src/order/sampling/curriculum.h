/* order/sampling/curriculum.h: a run whose samples are chosen: some of them, by weight, by class,
 * each several times, and others later on (a curriculum).
 *
 *   run position --> stage, position in it --/ times--> position of its order, or number of a draw
 *                                                   --> k-th of its choice --select--> sample
 *
 *   each once  a stage goes through its choice in passes, pass n in the order of epoch n: no sample
 *              is left out, and none comes again before all came
 *   drawn      with replacement, by weight, or each class in turn: a function of the draw's number
 *
 * A stage counts its own positions from where it begins. All in O(1); with two-level shuffles
 * O(shards) once a pass.
 *
 * Pure. Owner: the caller. Threads: any after init; a reader: one. Memory: taken in init, 400 bytes
 * a stage; two-level: 8 bytes a shard, a reader 32. Bound: STK_STAGES_MAX stages. */
#ifndef ORDER_SAMPLING_CURRICULUM_H
#define ORDER_SAMPLING_CURRICULUM_H

#include "order/sampling/sampling.h"

#define STK_STAGES_MAX 256u
#define STK_STAGES_POSITIONS_MAX (UINT64_C(1) << 62)

/* Which samples, and how they are drawn. The tables are lent as long as the schedule lives, and
 * count what the subset holds. */
struct stk_choice {
    const struct stk_subset *subset;   /* sealed; NULL: all */
    const struct stk_alias *alias;     /* drawn by weight; or NULL */
    const struct stk_classes *classes; /* drawn by class; or NULL */
    bool replacement;                  /* drawn, all alike */
    uint64_t subset_identity;          /* 0: all samples */
    uint64_t draws_identity;           /* 0: each once */
};

/* Whether it has draws, and not each sample once a pass. */
bool stk_choice_is_drawn(const struct stk_choice *choice);
/* Of the draws of a seed. */
uint64_t stk_choice_key(const struct stk_choice *choice, uint64_t seed);
/* The number-th draw out of `count`: the k-th of the choice. STK_DAMAGED. */
uint64_t stk_choice_draw(const struct stk_choice *choice, uint64_t count, uint64_t key,
                         uint64_t number);
/* The table that a STK_DAMAGED of these draws is of. */
const struct stk_lent *stk_choice_table(const struct stk_choice *choice);

struct stk_stage {
    uint64_t first; /* run position; 0 of the first stage, then rising */
    struct stk_choice choice;
};

/* How `struct stoker_sampler` begins: what pure rooms may know of one. */
struct stk_chooser {
    struct stk_choice choice; /* when it is made */
    uint64_t sample_count;    /* of the data set */
    bool is_made;
};

struct stk_stages_options {
    struct stk_order_options order; /* of the whole data set; of a stage but for its count */
    const struct stk_stage *stages; /* lent during init */
    uint32_t stage_count;
    uint32_t times, apart; /* copies of a sample, and how many positions they lie apart; 0: 1 */
    /* STOKER_SHUFFLE_TWO_LEVEL: where the samples of each shard end; lent during init. */
    const uint64_t *ends;
    uint32_t shard_count;
    uint64_t epoch_samples; /* 0: the largest stage, times `times` */
};

struct stk_stages_item {
    uint64_t first, count; /* run position; samples of the choice */
    uint64_t key;          /* of its draws */
    struct stk_choice choice;
    struct stk_order order; /* not of drawn ones, and not two-level */
};

struct stk_stages {
    struct stk_stages_item *items; /* owned */
    uint64_t *ends;                /* owned: two-level */
    uint64_t seed, epoch_samples;
    uint32_t stage_count, shard_count, times, apart;
};

/* ARGUMENT: stages out of sequence, or what an order refuses; EMPTY: a choice of none; CORRUPT;
 * ENOMEM. */
int stk_stages_init(struct stk_stages *stages, const struct stk_stages_options *options,
                    struct stoker_error *error);
void stk_stages_deinit(struct stk_stages *stages); /* zeroed is fine */
/* What a caller of stoker.h gives as options; stages_out: room for STK_STAGES_MAX, which the
 * options borrow. given: NULL for one stage of all. ARGUMENT: also a sampler that is not made. */
int stk_stages_resolve(struct stk_stages_options *options_out, struct stk_stage *stages_out,
                       const struct stoker_sampling_options *given, uint64_t sample_count,
                       struct stoker_error *error);
/* Another one of the choice that holds at a run position: any, or drawn as it draws. STK_DAMAGED.
 */
uint64_t stk_stages_other(const struct stk_stages *stages, uint64_t position, uint64_t random);

/* What neighbours share: of the last even and the last odd pass. */
struct stk_stages_pass {
    const struct stk_stages_item *item; /* NULL: none yet */
    uint64_t number;
    struct stk_order_epoch keys;
    struct stk_twolevel shards;
};

struct stk_stages_reader {
    const struct stk_stages *stages; /* borrowed */
    struct stk_stages_pass passes[2];
    uint64_t *counts;              /* owned: of each shard; two-level */
    const struct stk_lent *faulty; /* a table that was found damaged; else NULL */
    int status;                    /* 0, -ENOMEM, or CORRUPT */
};

int stk_stages_reader_init(struct stk_stages_reader *reader, const struct stk_stages *stages,
                           struct stoker_error *error);
void stk_stages_reader_deinit(struct stk_stages_reader *reader); /* zeroed is fine */
/* The samples at run positions first .. first + count - 1. After a failure (status) they are 0. */
void stk_stages_read(struct stk_stages_reader *reader, uint64_t first, uint64_t count,
                     uint64_t *samples_out);
/* The failure since the last call; fills *error. */
int stk_stages_reader_take(struct stk_stages_reader *reader, struct stoker_error *error);

#endif
