/* storage/cache/node_cache.h: the node cache for code of the library: blocks of objects in the
 * folders of a struct stoker_cache. include/stoker/cache.h has the functions for programs.
 *
 *   identity of an object version --SHA-256--> key --number--> key of a block --> folder --> slot
 *
 * Owner: counted: its opener and the engines that use it. Threads: any. Memory: the mapped indexes.
 * Bound: STK_CACHE_FOLDERS_MAX folders. */
#ifndef STORAGE_CACHE_NODE_CACHE_H
#define STORAGE_CACHE_NODE_CACHE_H

#include "storage/cache/cache_disk.h"

#define STK_CACHE_FOLDERS_MAX 16u
#define STK_CACHE_BLOCK_BYTES_DEFAULT (4u << 20)

/* Counters of a process, see struct stoker_cache_stats. */
struct stk_cache_counters {
    _Atomic uint64_t hits, misses, bytes_from_cache, bytes_from_origin, blocks_filled, waits,
        bypasses;
};

/* Limits the bytes that a process downloads into a cache. */
struct stk_cache_pace {
    _Atomic uint64_t bytes_per_s; /* 0: no limit */
    _Atomic uint64_t next_ns;     /* when the next block may be downloaded */
};

#define STK_CACHE_PACE_BURST_NS 100000000ull /* of time in which fewer bytes were downloaded */

struct stoker_cache {
    _Atomic uint32_t users;
    int pid;
    uint32_t block_bytes, disk_count;
    struct stk_cache_counters counters;
    struct stk_cache_pace pace;
    struct stk_cache_futures futures; /* their files are in the first folder */
    struct stk_cache_disk disks[];
};

/* An object version that may be cached. */
struct stk_cache_object {
    struct stk_cache_key key;
    uint64_t bytes, url_hash; /* stk_cache_url_hash */
    const char *url, *tag;    /* borrowed: for tools, without secrets */
};

/* Options of an internal open: fault as in cache_disk.h. */
int stk_cache_open_with(struct stoker_cache **cache_out, const struct stoker_cache_options *options,
                        int (*fault)(enum stk_cache_call call), struct stoker_error *error);
/* Opens the cache that the environment names: STOKER_CACHE_DIR (folders separated by ':'),
 * STOKER_CACHE_BYTES. *cache_out: NULL if it names none. */
int stk_cache_open_environment(struct stoker_cache **cache_out, struct stoker_error *error);
void stk_cache_retain(struct stoker_cache *cache);
void stk_cache_release(struct stoker_cache *cache); /* NULL is allowed */

/* For places: see stk_cache_place. */
uint64_t stk_cache_url_hash(const char *url);
/* Makes the future of a job that reads so many bytes of objects. Returns 0; below 0: others will
 * not know what the job uses. */
int stk_cache_open_future(struct stoker_cache *cache, struct stk_cache_future *future,
                          uint64_t bytes, uint64_t objects);

/* The key of an object version: of its store, its URL and its ETag. */
void stk_cache_object_key(const char *endpoint, const char *url, const char *etag, uint64_t bytes,
                          struct stk_cache_key *key_out);
/* Block `number` of an object. */
struct stk_cache_block stk_cache_block_of(const struct stoker_cache *cache,
                                          const struct stk_cache_object *object, uint64_t number);
struct stk_cache_disk *stk_cache_disk_of(struct stoker_cache *cache,
                                         const struct stk_cache_block *block);
/* Reads a part of a block, as stk_cache_disk_read, and counts it. */
int stk_cache_read(struct stoker_cache *cache, const struct stk_cache_block *block,
                   const struct stk_cache_part *part);
/* Drops a block if it is cached, and counts it as damaged; if it is being filled, it will not be
 * cached. Returns true if it was cached. */
bool stk_cache_forget(struct stoker_cache *cache, const struct stk_cache_block *block);

/* Limits the rate of downloads from now on; 0: no limit. Any thread. */
void stk_cache_pace_set(struct stk_cache_pace *pace, uint64_t bytes_per_s);
/* Returns 0: so many bytes may be downloaded now, and count; else the time from which on they may.
 * Any thread. */
uint64_t stk_cache_pace_take(struct stk_cache_pace *pace, uint64_t bytes, uint64_t now_ns);
/* The bytes that were taken are not downloaded after all. */
void stk_cache_pace_return(struct stk_cache_pace *pace, uint64_t bytes);

static inline void stk_cache_count(_Atomic uint64_t *counter, uint64_t more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

#endif
