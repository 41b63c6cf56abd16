/* index/foreign/wids_index.h: parses the JSON file that webdataset's widsindex makes of a data
 * set: a list of its shards.
 *
 *   {"__kind__": "wids-shard-index-v1", "wids_version": 1,
 *    "shardlist": [{"url": ..., "nsamples": ..., "filesize": ..., "md5sum": ...}, ...]}
 *
 * It has the number of samples and the size of each shard, but no samples.
 * Source: webdataset, wids/wids_index.py, wids_specs.py and wids.py at a52927f^.
 * Pure. Owner: the caller closes. Threads: one; look-ups any.
 * Memory: jansson's, about 20 times the text.
 * Bound: STK_WIDS_INDEX_BYTES_MAX of text. */
#ifndef INDEX_FOREIGN_WIDS_INDEX_H
#define INDEX_FOREIGN_WIDS_INDEX_H

#include "base/base.h"

#define STK_WIDS_INDEX_BYTES_MAX (32ull << 20)
#define STK_WIDS_INDEX_UNKNOWN UINT64_MAX

struct stk_wids_index;

struct stk_wids_index_shard {
    const char *url; /* as it is written; valid until close */
    uint64_t samples;
    uint64_t bytes; /* of the file; STK_WIDS_INDEX_UNKNOWN */
};

/* Returns 0, -ENOMEM, STOKER_ERROR_FORMAT if it is another JSON, STOKER_ERROR_UNSUPPORTED for
 * another version or references to data sets, or STOKER_ERROR_CORRUPT if a shard has no url or
 * count. */
int stk_wids_index_open(struct stk_wids_index **wids_out, struct stk_view text,
                        struct stoker_error *error);
void stk_wids_index_close(struct stk_wids_index *index);
uint64_t stk_wids_index_count(const struct stk_wids_index *index);
/* number < stk_wids_index_count. */
void stk_wids_index_get(const struct stk_wids_index *index, uint64_t number,
                        struct stk_wids_index_shard *shard_out);
/* Resolves a url against the folder of the JSON file ("", or ending with '/'), as ShardListDataset
 * does: relative ones are below it. Returns false if the path has more than `capacity` bytes. */
bool stk_wids_index_path(const char *folder, const char *url, char *path_out, size_t capacity);

#endif
