/* loader/loader_future.h: publishes which blocks of the node cache a loader will read, and when, so
 * that evictions keep the blocks that are used soon (storage/cache/cache_future.h).
 *
 *   open --> a thread: make the file --> add this epoch and the next --> position --> close
 *                                           ^                               |
 *                                           '---- 100 times a second -------'
 *
 * At most STK_LOADER_FUTURE_SAMPLES samples of an epoch are looked up, at equal distances: blocks
 * hold many samples.
 * Owner: the loader, until it is closed. Threads: one of its own. Memory: 8 bytes a shard, and the
 * mapped future. Bound: one second of CPU time an epoch. */
#ifndef LOADER_LOADER_FUTURE_H
#define LOADER_LOADER_FUTURE_H

#include "loader/pending/loader_private.h"

#define STK_LOADER_FUTURE_SAMPLES (1u << 20)

struct stk_loader_future;

/* Starts the thread if the engine has a cache and the data is behind URLs. NULL: it did not, or
 * there is no memory. The thread makes the file: without space for it, the thread ends, and the
 * cache keeps what it has. */
struct stk_loader_future *stk_loader_future_open(struct stoker_loader *loader);
/* Ends the thread. No lock held. NULL is allowed. */
void stk_loader_future_close(struct stk_loader_future *future);

#endif
