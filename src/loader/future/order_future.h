/* loader/future/order_future.h: publishes which blocks of the node cache the stream of an order
 * will read, and when, so that evictions keep the blocks that are used soon
 * (storage/cache/cache_future.h). The loader says where the stream is, and where samples are.
 *
 *   open --> a thread: make the file --> add this epoch and the next --> position --> close
 *                                           ^                               |
 *                                           '---- 100 times a second -------'
 *
 * At most STK_ORDER_FUTURE_SAMPLES samples of an epoch are looked up, at equal distances: blocks
 * hold many samples.
 * Owner: the loader, until it is closed. Threads: one of its own, which takes the loader's locks.
 * Memory: the mapped future. Bound: one second of CPU time an epoch. */
#ifndef LOADER_FUTURE_ORDER_FUTURE_H
#define LOADER_FUTURE_ORDER_FUTURE_H

#include "order/schedule/schedule.h"
#include "storage/cache/node_cache.h"

#include <pthread.h>

#define STK_ORDER_FUTURE_SAMPLES (1u << 20)

struct stk_order_future;

/* Where a stream is, and what it has begun to read. */
struct stk_order_future_place {
    uint64_t epoch, position;    /* delivered */
    uint64_t front_epoch, front; /* begun */
    uint64_t sample_count;       /* of an epoch */
};

/* What a loader publishes. The thread calls the functions. */
struct stk_order_future_source {
    struct stoker_cache *cache;
    uint64_t bytes, objects;             /* of the data */
    pthread_mutex_t *lock;               /* held while the order is replaced */
    const struct stk_schedule *schedule; /* read with the lock, as the partition */
    const struct stk_partition *partition;
    const _Atomic uint64_t *orders; /* how often the order was replaced */
    uint32_t chunk_samples;         /* looked up before the lock is released */
    void *context;                  /* of the functions; borrowed until close */
    struct stk_order_future_place (*place)(void *context); /* no lock held */
    /* The samples of an epoch follow. With the lock. NULL: not called. */
    void (*begin_epoch)(void *context);
    /* Adds the blocks of a sample by stk_order_future_add. With the lock. */
    void (*add_sample)(void *context, struct stk_order_future *future, uint64_t sample);
};

/* Starts the thread. NULL: there is no memory. The thread makes the file, which may wait for the
 * lock of the cache, and evict blocks; without space for it, the thread ends, and the cache keeps
 * what it has. */
struct stk_order_future *stk_order_future_open(const struct stk_order_future_source *source);
/* Ends the thread. No lock held. NULL is allowed. */
void stk_order_future_close(struct stk_order_future *future);

/* For add_sample: adds the blocks that have these bytes of a URL (stk_cache_url_hash). */
void stk_order_future_add(struct stk_order_future *future, uint64_t url_hash, uint64_t offset,
                          uint64_t bytes);
/* For add_sample: the part of the epoch that has the sample, below STK_CACHE_EPOCH_PARTS. */
uint32_t stk_order_future_part(const struct stk_order_future *future);

#endif
