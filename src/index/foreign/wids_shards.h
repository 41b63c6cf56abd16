/* index/foreign/wids_shards.h: paths of which some are wids JSONs -> the shards that those name.
 *
 *   urls --"x.json" that is one of wids--> its shards in place, with what it says of each
 *
 * Owner: the data set. Threads: one. Memory: the paths. Bound: STK_WIDS_INDEX_BYTES_MAX a JSON,
 * STK_WIDS_SHARDS_MAX paths. */
#ifndef INDEX_FOREIGN_WIDS_SHARDS_H
#define INDEX_FOREIGN_WIDS_SHARDS_H

#include "index/foreign/wids_index.h"
#include "io/io.h"

#define STK_WIDS_SHARDS_MAX (1u << 24)

struct stk_wids_shards {
    char **paths;      /* owned, each too */
    uint64_t *samples; /* owned: of each path; STK_WIDS_INDEX_UNKNOWN: not said */
    uint64_t *bytes;   /* owned: likewise */
    uint64_t count, capacity;
    uint64_t *url_ends; /* owned: paths of each url and those before it */
    bool from_json;     /* there was a JSON: else only paths, as they were given */
};

int stk_wids_shards_expand(struct stk_wids_shards *shards, struct stk_io *io,
                           const char *const *urls, size_t url_count, struct stoker_error *error);
/* One more. LIMIT, -ENOMEM. */
int stk_wids_shards_add(struct stk_wids_shards *shards, const char *path, uint64_t samples,
                        uint64_t bytes);
void stk_wids_shards_deinit(struct stk_wids_shards *shards); /* zeroed is fine */

#endif
