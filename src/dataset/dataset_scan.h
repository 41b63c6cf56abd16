/* dataset/dataset_scan.h: lists the files of a data set, and makes its index by scanning them.
 *
 *   list -> class folders: one index entry per file --.
 *       `-> containers: copied from another index, ----+--> finish: classes, order blocks, budget
 *           or scanned (shard_scan.h)                --'
 *
 * Owner: the data set. Threads: one calls; the engine's workers scan. Memory: the index, reserved
 * in the engine's budget shard by shard. Bound: the listing's. */
#ifndef DATASET_DATASET_SCAN_H
#define DATASET_DATASET_SCAN_H

#include "dataset/dataset.h"

/* Indexes that have shards of a listing already. */
struct stk_dataset_reuse {
    const struct stk_index *first; /* its shard i is the listing's, below first_count */
    uint64_t first_count;
    const struct stk_index *old;
    const uint32_t *from; /* for each shard of the listing: old's + 1, or 0; NULL: none */
};

/* Lists the files that the options name. Returns 0, or the error of listing them. */
int stk_dataset_list(struct stoker_dataset *dataset, struct stoker_error *error);
/* Makes dataset->index of the listing. Shards that another index has are copied. reuse: NULL is
 * allowed. Returns 0, or the error of the first shard in the listing that fails. */
int stk_dataset_scan(struct stoker_dataset *dataset, const struct stk_dataset_reuse *reuse,
                     struct stoker_error *error);
/* Stores in the index what the scan left out. old: the index that shards were copied from, or NULL.
 * Its counts include those of shards that were scanned again, since it does not have them by shard.
 */
void stk_dataset_count_skipped(struct stoker_dataset *dataset, const struct stk_index *old);
/* Adds classes (containers: those of `like`, which may be NULL), and finishes the index.
 * block_samples: of the order; 0: as the options say. */
int stk_dataset_scan_finish(struct stoker_dataset *dataset, const struct stk_index *like,
                            uint64_t block_samples, struct stoker_error *error);

#endif
