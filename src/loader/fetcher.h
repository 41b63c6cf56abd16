/* loader/fetcher.h: cold bytes, by one thread with a deep queue.
 *
 *   worker: cold sample -> push -> fetcher: coalesce, read, split -> loader's fetched list
 *                                                             -> any worker decodes -> release
 *
 * Pushed lists are sorted by place, so neighbours become one read of up to io_bytes_max. Of stores
 * and mounts, where each read is a request, all that waits is put together by place, whatever batch
 * it is for. How far neighbours may lie apart, and how large a read is, is told by the mount
 * (io/filesystem/read_size.h) unless the engine's options do. Of stores a value that is a read by
 * itself comes straight to its place in the batch.
 * Owner: the engine. Threads: push, release: any; the rest is the fetcher's own thread.
 * Memory: chunks by size class from the budget, kept for re-use.
 * Bound: io_depth reads in flight (far_depth of stores), the budget; fetches: slots in flight. */
#ifndef LOADER_FETCHER_H
#define LOADER_FETCHER_H

#include "io/filesystem/read_size.h"
#include "loader/pending_batch.h"

struct stk_fetch_chunk;

/* One sample's bytes on their way. */
struct stk_fetch {
    struct stk_fetch *next;
    struct stk_pending_batch *pending;
    uint32_t slot;
    struct stk_sample_span span;
    struct stk_file *file;         /* pinned until the read came back */
    bool cold;                     /* counted in its loader's `fetching` */
    struct stk_fetch_chunk *chunk; /* holds the bytes; NULL when they are warm after all */
    uint8_t *buffer;               /* packed shards: where in the chunk */
    struct stk_view bytes;
    struct stoker_error error; /* status < 0: it failed */
    /* the fetcher's: of a store; what waits beside it is joined, whatever push brought it; how */
    bool remote, is_joined;
    struct stk_read_sizes reads;
    /* which push brought it; of the first of a run: its oldest, second, last */
    uint64_t push_number, run_push_number;
    struct stk_fetch *run_rest, *run_last;
};

/* The engine's fetcher, made by the first loader; lent until the engine ends. */
int stk_fetcher_get(struct stoker_engine *engine, struct stk_fetcher **fetcher_out,
                    struct stoker_error *error);
/* Takes a list of fetches; each comes back on its loader's fetched list. */
void stk_fetcher_push(struct stk_fetcher *fetcher, struct stk_fetch *list);
/* Frees a fetch and lets its chunk go. */
void stk_fetch_release(struct stk_fetcher *fetcher, struct stk_fetch *fetch);
/* A chunk of its own for bytes that the caller puts there (packed shards). */
int stk_fetch_reserve(struct stk_fetcher *fetcher, struct stk_fetch *fetch, uint64_t bytes,
                      uint8_t **data_out, struct stoker_error *error);
/* Hands finished fetches to their loaders. Lock not held. */
void stk_fetch_deliver(struct stoker_engine *engine, struct stk_fetch *list);
/* Reads so far, of all loaders, and their bytes. */
uint64_t stk_fetcher_requests(const struct stk_fetcher *fetcher, uint64_t *bytes_out);

/* ---- a read that failed for a reason that may pass is tried again, a few times ----
 *
 * The worker sleeps meanwhile: failures of storage are rare, and where they are not there is
 * nothing to decode. Damage in the data is never tried again; a read that hung had its
 * read_timeout_ms. Bound: io_retries tries, STK_RETRY_WAIT_MAX_MS between two. */

/* Waits before try `attempt` (from 1) after a failure. False: `status` is no failure that may pass,
 * the tries are used up, or nobody wants the flight any more (dropped, or failed already). Lock not
 * held. */
bool stk_fetcher_retry_wait(struct stk_pending_batch *pending, struct stk_worker *worker,
                            int status, uint32_t attempt);

#endif
