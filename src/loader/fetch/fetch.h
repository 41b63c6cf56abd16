/* loader/fetch/fetch.h: the record of a slot whose bytes are read by the fetcher.
 *
 *   worker: cold sample -> record with its members -> fetcher: read -> fetched list of the loader
 *                                                                  -> any worker fills -> release
 *
 * Owner: its holder: the worker that made it, the fetcher, the loader's fetched list, the
 * worker that took it from there. Threads: one at a time. Memory: the record, with the members that
 * were found; a reference of the buffer that holds the bytes. Bound: claimed slots. */
#ifndef LOADER_FETCH_FETCH_H
#define LOADER_FETCH_FETCH_H

#include "io/filesystem/read_size.h"
#include "loader/pending/pending_batch.h"
#include "loader/pending/sample_members.h"

struct stk_fetch_buffer;

struct stk_fetch {
    struct stk_fetch *next;
    struct stk_pending_batch *pending;
    uint32_t slot;
    struct stk_sample_members members; /* its parts lie after the record */
    struct stk_file *file;             /* pinned until the read has ended */
    bool cold;                         /* counted in its loader's `fetching` */
    struct stk_fetch_buffer *buffer;   /* contains `bytes`; NULL: no bytes were read */
    struct stk_view bytes;             /* of members.span */
    struct stoker_error error;         /* status < 0: the read failed */
    /* Set by the fetcher: the file is an object of a store; fetches of other pushes are coalesced
     * with it; sizes of its reads. */
    bool remote, is_joined;
    struct stk_read_sizes reads;
    /* Set by coalescing: number of the push; of the first of a run: the oldest push, second, last.
     */
    uint64_t push_number, run_push_number;
    struct stk_fetch *run_rest, *run_last;
};

/* Allocates a record. Returns NULL if there is not enough memory. Free it with
 * stk_fetch_release. */
struct stk_fetch *stk_fetch_new(struct stk_pending_batch *pending, uint32_t slot);

#endif
