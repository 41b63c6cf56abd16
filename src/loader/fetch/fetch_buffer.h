/* loader/fetch/fetch_buffer.h: buffers of the fetcher, by size class, and the pool that caches
 * them.
 *
 *   get --> read into it, a holder for each fetch --last holder releases--> put: cached or freed
 *   borrow: memory of a batch, which is neither cached nor freed
 *
 * Owner: the fetcher, then the fetches whose bytes it holds. Threads: any.
 * Memory: pages from the engine's budget. Bound: the budget; cached: CACHED_BYTES_MAX, or with
 * stores a share of the budget. */
#ifndef LOADER_FETCH_FETCH_BUFFER_H
#define LOADER_FETCH_FETCH_BUFFER_H

#include "base/memory_budget.h"
#include "io/io.h"

#include <pthread.h>

#define STK_FETCH_BUFFER_BYTES_MIN (64u << 10)
#define STK_FETCH_BUFFER_CLASSES 9u /* up to 16 MiB; a larger buffer has its own size */

struct stk_fetch;

struct stk_fetch_buffer {
    struct stk_fetch_buffer *next; /* in the pool's list */
    uint8_t *data;
    uint64_t capacity;
    int32_t class_index; /* -1: never cached */
    _Atomic uint32_t holders;
    bool is_remote;   /* the read is from a store */
    bool is_borrowed; /* data is a slot of a batch */
    uint64_t begin;   /* offset in the file of the first wanted byte */
    struct stk_fetch *fetches;
    struct stk_read read;
};

struct stk_fetch_buffer_pool {
    struct stk_budget *budget; /* constant after init */
    uint64_t memory_bytes_max;
    _Atomic uint32_t in_use;
    _Atomic bool has_remote; /* reads from stores were seen: more is cached */
    pthread_mutex_t lock;
    struct {
        struct stk_fetch_buffer *cached[STK_FETCH_BUFFER_CLASSES];
        uint64_t cached_bytes;
    } locked;
};

/* memory_bytes_max: of the budget. */
void stk_fetch_buffer_pool_init(struct stk_fetch_buffer_pool *pool, struct stk_budget *budget,
                                uint64_t memory_bytes_max);
/* All buffers were put back or leaked. */
void stk_fetch_buffer_pool_deinit(struct stk_fetch_buffer_pool *pool);
/* Frees all cached buffers. Returns their bytes. */
uint64_t stk_fetch_buffer_pool_trim(struct stk_fetch_buffer_pool *pool);

/* Returns a buffer of at least `bytes` bytes, with no holder; NULL if the budget has no space now,
 * or if there is no memory. */
struct stk_fetch_buffer *stk_fetch_buffer_get(struct stk_fetch_buffer_pool *pool, uint64_t bytes);
/* Returns a buffer on memory of the caller, which stays valid until put; NULL: no memory. */
struct stk_fetch_buffer *stk_fetch_buffer_borrow(struct stk_fetch_buffer_pool *pool, uint8_t *data,
                                                 uint64_t bytes);
/* Returns a buffer without holders to the pool. */
void stk_fetch_buffer_put(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer);
/* Releases a holder; the last one puts the buffer. */
void stk_fetch_buffer_release(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer);
/* Gives up a buffer that the kernel may still write to: its memory stays reserved. */
void stk_fetch_buffer_leak(struct stk_fetch_buffer_pool *pool, struct stk_fetch_buffer *buffer);

#endif
