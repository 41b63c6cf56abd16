/* loader/fetch/fetcher.h: reads cold samples: one thread with a deep queue.
 *
 *   worker: cold samples -> push -> fetcher thread: coalesce, read, split -> loader's fetched list
 *                                                                    -> any worker fills -> release
 *
 * A pushed list is sorted by shard and offset, so that neighbours become one read of up to
 * io_bytes_max. For stores and network mounts, where each read is a request, all pending fetches
 * are coalesced, of any batch. The mount sets the largest gap and read size
 * (io/filesystem/read_size.h) unless the engine's options do. A value that is a read by itself is
 * read from a store directly into its slot.
 * Owner: the engine. Threads: push, reserve, release, deliver: any; all else the fetcher's thread.
 * Memory: buffers by size class from the budget, cached for reuse.
 * Bound: io_depth reads in flight (remote_depth from stores); the budget. */
#ifndef LOADER_FETCH_FETCHER_H
#define LOADER_FETCH_FETCHER_H

#include "loader/fetch/fetch.h"

/* Returns the engine's fetcher, which the first loader creates; it lives as long as the engine. */
int stk_fetcher_get(struct stoker_engine *engine, struct stk_fetcher **fetcher_out,
                    struct stoker_error *error);
/* Takes a list of fetches (NULL is allowed); each one comes back on its loader's fetched list. */
void stk_fetcher_push(struct stk_fetcher *fetcher, struct stk_fetch *list);
/* Frees a fetch, and releases its buffer. */
void stk_fetch_release(struct stk_fetcher *fetcher, struct stk_fetch *fetch);
/* Allocates a buffer for a fetch, which the caller fills (compressed shards). Waits for memory.
 * Returns 0 on success, STOKER_ERROR_BUDGET if none became free in time. */
int stk_fetch_reserve(struct stk_fetcher *fetcher, struct stk_fetch *fetch, uint64_t bytes,
                      struct stoker_error *error);
/* Adds finished fetches to the fetched lists of their loaders. Engine's lock not held. */
void stk_fetch_deliver(struct stoker_engine *engine, struct stk_fetch *list);
/* Returns the number of reads of all loaders so far, and their bytes. */
uint64_t stk_fetcher_requests(const struct stk_fetcher *fetcher, uint64_t *bytes_out);

#endif
