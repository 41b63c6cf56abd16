/* order/sampling/subset.h: a subset of N samples with rank and select: the number of chosen samples
 * before a sample, and the k-th chosen sample.
 *
 *   zeroed --init--> open --add--> open --freeze--> frozen: rank, select --deinit--> zeroed
 *
 * The order of a run counts only samples of the subset (order -> k -> select -> sample), so no
 * position is skipped. A curriculum is a mix (order/mix/mix.h) whose sources are
 * subsets, with a change of weights where a stage begins. Owner: the caller. Threads: one while
 * open, then any. Memory: 1.27 bits a sample, taken in init. Bound: STK_ORDER_SAMPLES_MAX samples.
 */
#ifndef ORDER_SAMPLING_SUBSET_H
#define ORDER_SAMPLING_SUBSET_H

#include "order/order.h"

/* A table in a mapped file. Each place is checked before it is read, and the numbers there are not
 * trusted. */
struct stk_mapped_table {
    /* Returns true if the bytes have their checksum. NULL: the table was built in this process. */
    bool (*check)(const void *context, const void *at, size_t bytes);
    /* Fills *error (may be NULL) with the damage. Returns its status. */
    int (*fail)(const void *context, struct stoker_error *error);
    const void *context;
};

static inline bool stk_mapped_table_check(const struct stk_mapped_table *table, const void *at,
                                          size_t bytes)
{
    return !table->check || table->check(table->context, at, bytes);
}

/* Reads a number of a table once: a mapped one may change between two reads. */
static inline uint64_t stk_mapped_table_u64(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static inline uint32_t stk_mapped_table_u32(const uint32_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Result of a lookup in a mapped table that is damaged. */
#define STK_MAPPED_TABLE_DAMAGED UINT64_MAX

struct stk_subset {
    uint64_t sample_count, count;   /* of all; of the subset, when sealed */
    uint64_t *words;                /* sample 64 w + i is bit i of word w. Owned, as the next two */
    uint64_t *ranks;                /* two a block of 8 words, see subset.c */
    uint64_t *selects;              /* blocks of every 4096th of the subset */
    struct stk_mapped_table mapped; /* not owned, then */
};

/* How long words, ranks and selects are: sample_count / 512 + 1 blocks of 8 and of 2; and the last
 * for `count` of the subset. */
uint64_t stk_subset_words(uint64_t sample_count);
uint64_t stk_subset_ranks(uint64_t sample_count);
uint64_t stk_subset_selects(uint64_t count);

/* Makes an empty subset. Returns 0 on success, STOKER_ERROR_ARGUMENT if there are too many samples,
 * -ENOMEM. */
int stk_subset_init(struct stk_subset *subset, uint64_t sample_count, struct stoker_error *error);
void stk_subset_deinit(struct stk_subset *subset); /* a zeroed one is allowed */
/* sample < sample_count; adding a sample again has no effect. */
void stk_subset_add(struct stk_subset *subset, uint64_t sample);
/* Replaces the subset by its complement. */
void stk_subset_invert(struct stk_subset *subset);
/* Builds the tables for rank and select; call it again after an add. */
void stk_subset_freeze(struct stk_subset *subset);

bool stk_subset_has(const struct stk_subset *subset, uint64_t sample);
/* Frozen: returns the number of chosen samples before the sample (sample <= sample_count), or
 * STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_subset_rank(const struct stk_subset *subset, uint64_t sample);
/* Frozen: returns the sample with rank k (k < count), or STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_subset_select(const struct stk_subset *subset, uint64_t k);

#endif
