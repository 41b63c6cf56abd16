/* engine/range_cache.h: cache of byte ranges of files behind URLs, which are requested ahead of
 * their use.
 *
 *   absent --prefetch--> queued --the cache's thread--> loading --> ready --evicted, oldest use-->
 *     `-----read: the caller requests it----------------^             absent
 *
 * A range that fails while it is prefetched becomes absent: who reads it requests it again, and
 * gets the error.
 * Owner: the object that holds the files, which must outlive the cache. Threads: any, and one of
 * its own. Copies are made under the lock. Lock order: this lock before the engine's.
 * Memory: ranges, from the engine's budget, up to bytes_max and one more for each reading thread;
 * prefetched ranges that were not read yet take at most half of it. Bound: bytes_max; the engine's
 * remote_depth requests in flight. */
#ifndef ENGINE_RANGE_CACHE_H
#define ENGINE_RANGE_CACHE_H

#include "engine/engine.h"

/* Longest range: none crosses a multiple of it. */
#define STK_RANGE_BYTES_MAX (4u << 20)
/* Longest wait for another thread that requests the range. Requests end earlier, by their own
 * deadlines. */
#define STK_RANGE_CACHE_WAIT_MS 600000u

/* A file that is read by ranges. */
struct stk_range_file {
    struct stk_file *file; /* behind a URL: its round_trip_bytes are not 0; NULL: none */
    const char *path;      /* for errors */
    uint64_t bytes;
    uint32_t number; /* of this file among those of the cache */
};

struct stk_range_cache;

/* Returns 0 on success, -ENOMEM, or the error of a thread or a queue. */
int stk_range_cache_open(struct stk_range_cache **cache_out, struct stoker_engine *engine,
                         uint64_t bytes_max, struct stoker_error *error);
/* Cancels requests in flight. NULL is allowed. No thread may read any more. */
void stk_range_cache_close(struct stk_range_cache *cache);
/* Bytes of a file, and those around them that may be requested with them. */
struct stk_range_wish {
    uint64_t offset, bytes;
    /* A request begins and ends at a multiple of it, within [begin, end), which has the bytes. At
     * most STK_RANGE_BYTES_MAX. 0: only the bytes are requested. */
    uint32_t unit;
    uint64_t begin, end;
};

/* Copies bytes, which must be in the file. begin and end of the wish are not used: those of the
 * file. Returns 0 on success; STOKER_ERROR_BUDGET, STOKER_ERROR_TIMEOUT, STOKER_ERROR_CLOSED (see
 * stk_io_set_cancel_flag), -ENOMEM, or the error of the request. */
int stk_range_cache_read(struct stk_range_cache *cache, const struct stk_range_file *file,
                         const struct stk_range_wish *wish, uint8_t *out,
                         struct stoker_error *error);
/* From now on reads have at least this unit: callers read in sequence. 0: as each read says. NULL
 * is allowed. */
void stk_range_cache_set_unit_min(struct stk_range_cache *cache, uint32_t unit);
/* Queues requests for bytes of the file. Returns false if there is no space for all of them now:
 * call it again after a read. */
bool stk_range_cache_prefetch(struct stk_range_cache *cache, const struct stk_range_file *file,
                              const struct stk_range_wish *wish);
/* The ranges that were prefetched and not read will not be read soon: drops those that are not in
 * flight yet, and lets the others be evicted. */
void stk_range_cache_forget(struct stk_range_cache *cache);

/* Evicts an eighth of the ranges, for others that need memory; wanted ones last. Returns the bytes.
 * NULL is allowed. */
uint64_t stk_range_cache_trim(struct stk_range_cache *cache);

struct stk_range_cache_stats {
    uint64_t bytes, bytes_peak; /* in memory, or reserved for requests */
    uint64_t bytes_requested;   /* so far, and as the next one */
    uint64_t requests, requests_ahead;
};
void stk_range_cache_stats(struct stk_range_cache *cache, struct stk_range_cache_stats *stats_out);

#endif
