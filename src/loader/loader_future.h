/* loader/loader_future.h: publishes which blocks of the node cache a loader will read, and when
 * (loader/future/order_future.h).
 * Owner: the loader, until it is closed. Threads: one of its own. Memory: 8 bytes a shard, and that
 * of the future. Bound: that of the future. */
#ifndef LOADER_LOADER_FUTURE_H
#define LOADER_LOADER_FUTURE_H

#include "loader/pending/loader_private.h"

struct stk_loader_future;

/* Starts the thread if the engine has a cache and the data is behind URLs. NULL: it did not, or
 * there is no memory. */
struct stk_loader_future *stk_loader_future_open(struct stoker_loader *loader);
/* Ends the thread. No lock held. NULL is allowed. */
void stk_loader_future_close(struct stk_loader_future *future);

#endif
