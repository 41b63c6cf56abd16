/* index/foreign/wids_shards.h: replaces JSON files of wids in a list of urls by the shards that
 * they list.
 *
 *   urls --"x.json" that is a wids index--> its shards at that place, with their samples and sizes
 *
 * Owner: the data set. Threads: one.
 * Memory: the paths.
 * Bound: STK_WIDS_INDEX_BYTES_MAX per JSON file, STK_WIDS_SHARDS_MAX paths. */
#ifndef INDEX_FOREIGN_WIDS_SHARDS_H
#define INDEX_FOREIGN_WIDS_SHARDS_H

#include "index/foreign/wids_index.h"
#include "io/io.h"

#define STK_WIDS_SHARDS_MAX (1u << 24)

struct stk_wids_shards {
    char **paths;      /* owned, each too */
    uint64_t *samples; /* owned: of each path; STK_WIDS_INDEX_UNKNOWN */
    uint64_t *bytes;   /* owned: likewise */
    uint64_t count, capacity;
    uint64_t *url_ends; /* owned: number of paths of each url and those before it */
    bool from_json;     /* there was a JSON file; else the paths are the urls */
};

int stk_wids_shards_expand(struct stk_wids_shards *shards, struct stk_io *io,
                           const char *const *urls, size_t url_count, struct stoker_error *error);
/* Adds a path. Returns 0, -ENOMEM or STOKER_ERROR_LIMIT. */
int stk_wids_shards_add(struct stk_wids_shards *shards, const char *path, uint64_t samples,
                        uint64_t bytes);
void stk_wids_shards_deinit(struct stk_wids_shards *shards); /* zeroed is allowed */

#endif
