/* loader/tokens/token_future.h: publishes which blocks of the node cache a token loader will read,
 * and when, so that evictions keep the blocks that are used soon (storage/cache/cache_future.h).
 *
 *   open --thread--> this epoch and the next one are added --> position, 100 times a second -->
 * close
 *                         ^------------- a new epoch ------------------'
 *
 * At most STK_TOKEN_FUTURE_SAMPLES samples of an epoch are looked up, at equal distances: blocks
 * hold many samples.
 * Owner: the loader, until it is closed. Threads: one of its own, which takes the loader's lock.
 * Memory: 8 bytes a file, and the mapped future. Bound: one second of CPU time an epoch. */
#ifndef LOADER_TOKENS_TOKEN_FUTURE_H
#define LOADER_TOKENS_TOKEN_FUTURE_H

#include "base/base.h"

#define STK_TOKEN_FUTURE_SAMPLES (1u << 20)

struct stk_token_future;
struct stoker_token_loader;

/* Starts the thread if the engine has a cache and files are read by ranges. NULL: it did not, or
 * there is no memory: then the cache keeps what it has. */
struct stk_token_future *stk_token_future_open(struct stoker_token_loader *loader);
/* Ends the thread. No lock held. NULL is allowed. */
void stk_token_future_close(struct stk_token_future *future);

#endif
