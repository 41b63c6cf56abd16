/* mix/subset.h: some of N samples, numbered anew: the k-th of them, and how many stand before one.
 *
 *   zeroed --init--> open --add--> open --seal--> sealed: rank, select --deinit--> zeroed
 *
 * The order of a run counts only what is in the subset (order -> k -> select -> sample), so nothing
 * is skipped, whatever the subset. A curriculum is a mix (mix/mix.h) whose sources are subsets,
 * with a change of weights where a stage begins. Owner: the caller. Threads: one while open, then
 * any. Memory: 1.27 bits a sample, taken in init. Bound: STK_ORDER_SAMPLES_MAX samples. */
#ifndef MIX_SUBSET_H
#define MIX_SUBSET_H

#include "order/order.h"

struct stk_subset {
    uint64_t sample_count, count; /* of all; of the subset, when sealed */
    uint64_t *words;              /* owned: sample 64 w + i is bit i of word w */
    uint64_t *ranks;              /* owned: two a block of 8 words, see subset.c */
    uint64_t *selects;            /* owned: blocks of every 4096th of the subset */
};

/* None of the samples. ARGUMENT when there are too many; ENOMEM. */
int stk_subset_init(struct stk_subset *subset, uint64_t sample_count, struct stoker_error *error);
void stk_subset_deinit(struct stk_subset *subset); /* zeroed is fine */
/* sample < sample_count; twice is once. */
void stk_subset_add(struct stk_subset *subset, uint64_t sample);
/* Everything that was not in it, and nothing else. */
void stk_subset_invert(struct stk_subset *subset);
/* No more to come; may be called again after an add. */
void stk_subset_seal(struct stk_subset *subset);

bool stk_subset_has(const struct stk_subset *subset, uint64_t sample);
/* Sealed: how many of the subset come before the sample; sample <= sample_count. */
uint64_t stk_subset_rank(const struct stk_subset *subset, uint64_t sample);
/* Sealed: the sample with rank k; k < count. rank(select(k)) == k. */
uint64_t stk_subset_select(const struct stk_subset *subset, uint64_t k);

#endif
