/* Decompresses the samples of compressed shards that have no seek points. */
#include "loader/extract_step.h"

#include "base/retry.h"
#include "loader/fetch/fetch_buffer.h"
#include "loader/fetch/fetcher.h"
#include "loader/loader_close.h"
#include "loader/sample/read_retry.h"

#include <errno.h>
#include <string.h>

#define EXTRACT_SLOTS 8u
/* Other workers get the samples after about so many bytes. Without this bound eight huge samples
 * could wait for memory that only their own delivery frees. */
#define EXTRACT_BYTES (4u << 20)

static int fail_scattered(const struct stk_fetch *fetch, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];

    stk_index_path_text(fetch->pending->loader->dataset->index, fetch->members.span.shard, path);
    return stk_fail(error, STOKER_ERROR_SCATTERED,
                    "members of a sample are too far apart in a compressed shard",
                    "pack the data set again", "'%s'", path);
}

static void close_stream(struct stoker_loader *loader)
{
    stk_shard_stream_close(loader->extract.stream);
    loader->extract.stream = NULL;
}

/* Opens the stream of the fetch's shard, unless it is open. */
static int open_stream(struct stoker_loader *loader, uint32_t shard, struct stoker_error *error)
{
    if (loader->extract.stream && loader->extract.shard == shard) {
        return 0;
    }
    close_stream(loader);
    loader->extract.shard = shard;
    loader->extract.has_headers = stk_dataset_has_headers(loader->dataset, shard);
    return stk_dataset_open_stream(&loader->extract.stream, loader->dataset, shard, error);
}

/* Reads a sample between two checks: its header, which the index describes, and the time of the
 * file, which may have been written since it was opened. */
static int read_sample(struct stk_fetch *fetch, struct stoker_error *error)
{
    struct stoker_loader *loader = fetch->pending->loader;
    const struct stk_sample_span *span = &fetch->members.span;
    struct stk_shard_stream *stream = loader->extract.stream;
    int status = 0;

    if (loader->extract.has_headers) {
        status = stk_dataset_check_sample(loader->dataset, span->shard,
                                          fetch->pending->batch->ids[fetch->slot], stream, error);
    }
    if (status == 0) {
        status = stk_shard_stream_read(stream, span->offset, fetch->buffer->data, span->bytes,
                                       &fetch->bytes.bytes, error);
    }
    return status == 0 ? stk_dataset_check_stream(loader->dataset, span->shard, stream, error)
                       : status;
}

static int extract_once(struct stk_fetch *fetch, struct stoker_error *error)
{
    struct stoker_loader *loader = fetch->pending->loader;
    const struct stk_sample_span *span = &fetch->members.span;
    int status;

    if (span->scattered) {
        return fail_scattered(fetch, error);
    }
    status = open_stream(loader, span->shard, error);
    if (status == 0 && !fetch->buffer) {
        status = stk_fetch_reserve(loader->fetcher, fetch, span->bytes, error);
    }
    if (status < 0) {
        return status;
    }
    fetch->bytes.data = fetch->buffer->data;
    return read_sample(fetch, error);
}

/* Extracts one slot. Transient errors are retried with the stream opened again. */
static void extract_slot(struct stk_fetch *fetch, struct stk_worker *worker,
                         struct stk_loader_counters *counters)
{
    struct stoker_loader *loader = fetch->pending->loader;
    int status = extract_once(fetch, &fetch->error);
    uint32_t tries = 0;

    while (status < 0 && stk_read_retry_wait(fetch->pending, worker, status, tries + 1)) {
        tries++;
        counters->retries++;
        close_stream(loader);
        memset(&fetch->error, 0, sizeof fetch->error);
        status = extract_once(fetch, &fetch->error);
    }
    stk_error_assert_status(&fetch->error, status);
    if (status < 0) {
        if (!stk_error_is_data(status)) { /* a stream repeats its first failure for ever */
            close_stream(loader);
        }
        stk_retry_add_note(&fetch->error, tries);
        stk_dataset_error_add_location(loader->dataset, &fetch->error, fetch->members.span.shard,
                                       STOKER_NO_OFFSET, NULL);
    }
}

/* Claims one slot, and small ones after it: *count_out slots. Returns a fetch for each; *failed_out
 * counts those for which there was no memory. */
static struct stk_fetch *claim_locked(struct stk_pending_batch *pending, uint32_t *count_out,
                                      uint32_t *failed_out)
{
    struct stk_fetch *list = NULL, **tail = &list;
    uint32_t first = pending->locked.next_slot, count = 0;
    uint32_t count_max = stk_min(EXTRACT_SLOTS, pending->samples - first);
    uint64_t bytes = 0;

    *failed_out = 0;
    do {
        struct stk_fetch *fetch = stk_fetch_new(pending, first + count);

        if (fetch) {
            stk_sample_members_find(pending->loader, pending->batch->ids[first + count],
                                    &fetch->members);
            bytes += stk_min(fetch->members.span.bytes, EXTRACT_BYTES);
            *tail = fetch;
            tail = &fetch->next;
        }
        *failed_out += !fetch;
        count++;
    } while (count < count_max && bytes < EXTRACT_BYTES);
    stk_pending_batch_claim_locked(pending, count);
    *count_out = count;
    return list;
}

/* Ends slots for which there was no memory. */
static void fail_slots_locked(struct stk_pending_batch *pending, uint32_t first, uint32_t count)
{
    struct stoker_error error;
    bool is_last;

    stk_fail(&error, -ENOMEM, "cannot read a sample", "free memory", "compressed shard");
    stk_pending_batch_fail_locked(pending, first, &error);
    is_last = stk_pending_batch_end_slots_locked(pending, count, &(struct stk_loader_counters){0});
    STK_ASSERT(!is_last); /* the step holds a pin */
}

bool stk_extract_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_pending_batch *pending = stk_pending_batch_claimable_locked(loader);
    struct stk_loader_counters counters = {0};
    struct stk_fetch *list;
    uint32_t first, count, failed;

    if (!pending || loader->locked.extracting) {
        return false;
    }
    loader->locked.extracting = true;
    loader->locked.pins++; /* delivered samples may end at once, and with them a closed loader */
    first = pending->locked.next_slot;
    list = claim_locked(pending, &count, &failed);
    stk_engine_unlock(engine);
    stk_io_set_cancel_flag(&loader->closing);
    for (struct stk_fetch *fetch = list; fetch; fetch = fetch->next) {
        if (!atomic_load_explicit(&pending->cancelled, memory_order_relaxed)) {
            extract_slot(fetch, worker, &counters);
        }
    }
    stk_io_set_cancel_flag(NULL);
    stk_fetch_deliver(engine, list);
    stk_engine_lock(engine, worker);
    loader->locked.extracting = false;
    loader->locked.counters.retries += counters.retries;
    stk_engine_signal_locked(engine, count);
    if (failed > 0) {
        fail_slots_locked(pending, first, failed);
    }
    stk_loader_unpin_locked(loader);
    return true;
}
