/* order/sampling/subset.h: some of N samples, numbered anew: the k-th, and how many stand before
 * one.
 *
 *   zeroed --init--> open --add--> open --seal--> sealed: rank, select --deinit--> zeroed
 *
 * The order of a run counts only what is in the subset (order -> k -> select -> sample), so nothing
 * is skipped, whatever the subset. A curriculum is a mix (order/mix/mix.h) whose sources are
 * subsets, with a change of weights where a stage begins. Owner: the caller. Threads: one while
 * open, then any. Memory: 1.27 bits a sample, taken in init. Bound: STK_ORDER_SAMPLES_MAX samples.
 */
#ifndef ORDER_SAMPLING_SUBSET_H
#define ORDER_SAMPLING_SUBSET_H

#include "order/order.h"

/* A table in memory that others made: a file that is mapped. Each place is asked for before it is
 * looked at, and what is read there is not believed. */
struct stk_mapped_table {
    /* Whether the bytes are what was written. NULL: the table was made here. */
    bool (*check)(const void *context, const void *at, size_t bytes);
    /* Why not: fills *error (may be NULL), and answers its status. */
    int (*fail)(const void *context, struct stoker_error *error);
    const void *context;
};

static inline bool stk_mapped_table_check(const struct stk_mapped_table *lent, const void *at,
                                          size_t bytes)
{
    return !lent->check || lent->check(lent->context, at, bytes);
}

/* What a look-up in a lent table answers that is damaged. */
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

/* None of the samples. ARGUMENT when there are too many; ENOMEM. */
int stk_subset_init(struct stk_subset *subset, uint64_t sample_count, struct stoker_error *error);
void stk_subset_deinit(struct stk_subset *subset); /* zeroed is fine */
/* sample < sample_count; twice is once. */
void stk_subset_add(struct stk_subset *subset, uint64_t sample);
/* Everything that was not in it, and nothing else. */
void stk_subset_invert(struct stk_subset *subset);
/* No more to come; may be called again after an add. */
void stk_subset_freeze(struct stk_subset *subset);

bool stk_subset_has(const struct stk_subset *subset, uint64_t sample);
/* Sealed: how many of the subset come before the sample; sample <= sample_count.
 * STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_subset_rank(const struct stk_subset *subset, uint64_t sample);
/* Sealed: the sample with rank k; k < count. rank(select(k)) == k. STK_MAPPED_TABLE_DAMAGED. */
uint64_t stk_subset_select(const struct stk_subset *subset, uint64_t k);

#endif
