/* dataset/shard_scan.h: scans the containers of a listing, many at once, and recovers damaged tars.
 *
 *   begin --0--> headers only (index/scan) | all bytes (stream) --> end
 *        `--1--> no scan is needed              `--damaged--> recover --^
 *
 * Owner: the data set. Threads: one calls; the engine's workers scan.
 * Memory: a window of 256 KiB per worker. Bound: one scan per worker. */
#ifndef DATASET_SHARD_SCAN_H
#define DATASET_SHARD_SCAN_H

#include "dataset/dataset.h"

/* Where the scanned shards go. Called by several threads at once. */
struct stk_shard_scan_callbacks {
    void *context;
    /* Returns 0: scan the shard into *index_out, as its shard *number_out; 1: do not scan it; or
     * negative: the scan fails. */
    int (*begin)(void *context, uint32_t shard, struct stk_index **index_out, uint32_t *number_out,
                 struct stoker_error *error);
    /* Called once for each begin that returned 0, with the status of the scan. Its result counts.
     */
    int (*end)(void *context, uint32_t shard, struct stk_index *index, int status,
               struct stoker_error *error);
};

/* Scans all shards of dataset->objects. Returns 0, or the error of the first shard in the listing
 * that fails, whatever the number of threads. */
int stk_shard_scan(struct stoker_dataset *dataset, const struct stk_shard_scan_callbacks *calls,
                   struct stoker_error *error);
/* Returns STOKER_ERROR_CLOSED: dataset->scan.stop is set. */
int stk_shard_scan_stopped(struct stoker_error *error);

/* A shard that is being scanned. */
struct stk_shard_scan_target {
    struct stoker_dataset *dataset;
    uint32_t shard;          /* of the listing */
    struct stk_index *index; /* where it goes, as `number` */
    uint32_t number;
    const char *path;
    struct stk_index_shard_builder *builder; /* owned */
    struct stk_shard_stream *stream;         /* owned */
};

/* Reads a damaged tar again, and adds its complete samples to a new builder; the
 * lost ones are listed in dataset->bad_samples. *error: of the scan that failed. Returns 0, or a
 * negative status if the tar cannot be read. */
int stk_shard_recover(struct stk_shard_scan_target *target, struct stoker_error *error);

#endif
