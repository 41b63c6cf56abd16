/* loader/tokens/token_future.h: publishes which blocks of the node cache a token loader will read,
 * and when (loader/future/order_future.h).
 * Owner: the loader, until it is closed. Threads: one of its own, which takes the loader's lock.
 * Memory: 8 bytes a file, and that of the future. Bound: that of the future. */
#ifndef LOADER_TOKENS_TOKEN_FUTURE_H
#define LOADER_TOKENS_TOKEN_FUTURE_H

#include "base/base.h"

struct stk_token_future;
struct stoker_token_loader;

/* Starts the thread if the engine has a cache and files are read by ranges. NULL: it did not, or
 * there is no memory. */
struct stk_token_future *stk_token_future_open(struct stoker_token_loader *loader);
/* Ends the thread. No lock held. NULL is allowed. */
void stk_token_future_close(struct stk_token_future *future);

#endif
