/* index/seek/segment_cache.h: any bytes of a packed shard that has access points.
 *
 *   read(shard, offset) -> segments --kept--------------------> copied
 *                                   \--unpacked, sum checked--/
 *
 * A segment is unpacked as a whole, by one thread; others that want it wait for that one. The
 * order mixes samples of some blocks, so segments are kept: where all of a window's fit, each is
 * unpacked about once an epoch.
 * Owner: the data set. Threads: any.
 * Memory: kept segments, from the budget, and given back when others want it; while one is
 * unpacked 160 KiB and the library's. Bound: bytes_max kept; beyond the budget only what threads
 * have in hand, a segment each. */
#ifndef INDEX_SEEK_SEGMENT_CACHE_H
#define INDEX_SEEK_SEGMENT_CACHE_H

#include "base/memory_budget.h"
#include "index/index.h"
#include "io/io.h"

#define STK_SEGMENT_CACHE_SEGMENTS_MAX 1024u

struct stk_segment_cache_options {
    uint64_t bytes_max;              /* of kept segments */
    uint64_t decompressed_bytes_max; /* of a shard */
    uint32_t decompression_ratio_max;
    const struct stk_budget_hooks *grant; /* of what libraries take; lent */
};

struct stk_segment_cache;

/* io, budget: lent until close. */
int stk_segment_cache_open(struct stk_segment_cache **cache_out, struct stk_io *io,
                           struct stk_budget *budget,
                           const struct stk_segment_cache_options *options,
                           struct stoker_error *error);
void stk_segment_cache_close(struct stk_segment_cache *cache);
/* Frees what is only kept; the bytes. */
uint64_t stk_segment_cache_trim(struct stk_segment_cache *cache);

/* A shard that stk_index_is_random_access, and its open file; lent for a read. */
struct stk_segment_cache_source {
    const struct stk_index *index;
    struct stk_file *file;
    uint32_t shard;
};

struct stk_segment_buffer {
    uint8_t *data;
    size_t bytes, got; /* got: out */
};

/* Fills the room from the offset on (of unpacked bytes); fewer bytes only where the shard ends.
 * CORRUPT: the shard, or its access points, are not what was indexed. */
int stk_segment_cache_read(struct stk_segment_cache *cache,
                           const struct stk_segment_cache_source *from, uint64_t offset,
                           struct stk_segment_buffer *buffer, struct stoker_error *error);
/* So far, over all shards. */
uint64_t stk_segment_cache_decompressed_bytes(const struct stk_segment_cache *cache);

#endif
