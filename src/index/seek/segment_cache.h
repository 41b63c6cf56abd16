/* index/seek/segment_cache.h: any bytes of a packed shard that has access points.
 *
 *   read(shard, offset) -> segments --kept--------------------> copied
 *                                   \--unpacked, sum checked--/
 *
 * One thread unpacks a full segment; other threads that need it wait for that thread. The
 * order mixes samples of some blocks, so segments are cached: where all of a window's fit, each is
 * unpacked about once an epoch.
 * Owner: the data set. Threads: any.
 * Memory: cached segments, from the budget, freed when others need it; while one is
 * unpacked 160 KiB and the library's. Bound: bytes_max kept; beyond the budget only what threads
 * have in hand, a segment each. */
#ifndef INDEX_SEEK_SEGMENT_CACHE_H
#define INDEX_SEEK_SEGMENT_CACHE_H

#include "base/memory_budget.h"
#include "index/index.h"
#include "io/io.h"

#define STK_SEGMENT_CACHE_SEGMENTS_MAX 1024u

struct stk_segment_cache_options {
    uint64_t bytes_max;              /* of cached segments */
    uint64_t decompressed_bytes_max; /* of a shard */
    uint32_t decompression_ratio_max;
    const struct stk_budget_hooks *grant; /* of library allocations; borrowed */
};

struct stk_segment_cache;

/* io and budget must stay valid until close. */
int stk_segment_cache_open(struct stk_segment_cache **cache_out, struct stk_io *io,
                           struct stk_budget *budget,
                           const struct stk_segment_cache_options *options,
                           struct stoker_error *error);
void stk_segment_cache_close(struct stk_segment_cache *cache);
/* Frees the cached segments that are not in use. Returns the bytes freed. */
uint64_t stk_segment_cache_trim(struct stk_segment_cache *cache);

/* A shard for which stk_index_is_random_access holds, and its open file; borrowed for one read. */
struct stk_segment_cache_source {
    const struct stk_index *index;
    struct stk_file *file;
    uint32_t shard;
};

struct stk_segment_buffer {
    uint8_t *data;
    size_t bytes, got; /* got: out */
};

/* Fills the buffer from the offset (in unpacked bytes) on; fewer bytes only at the end of the
 * shard. Returns CORRUPT if the shard or its access points differ from those indexed. */
int stk_segment_cache_read(struct stk_segment_cache *cache,
                           const struct stk_segment_cache_source *from, uint64_t offset,
                           struct stk_segment_buffer *buffer, struct stoker_error *error);
/* Returns the total number of bytes unpacked so far, for all shards. */
uint64_t stk_segment_cache_decompressed_bytes(const struct stk_segment_cache *cache);

#endif
