/* Chooses and takes a worker's next step for a loader. */
#include "loader/worker_steps.h"

#include "format/compress/decompress.h"
#include "loader/extract_step.h"
#include "loader/fetch/fetcher.h"
#include "loader/loader_close.h"
#include "loader/pending/loader_maps.h"
#include "loader/pending/pending_batch.h"
#include "loader/pending/quarantine.h"
#include "loader/sample/sample_work.h"

#include <errno.h>

/* A claim takes about this long, so that the lock is taken rarely and a batch's last claims are
 * short. */
#define CLAIM_NS 200000u
#define CLAIM_MAX 64u
#define GROW_READ_AHEAD_WAIT_NS 20000000u

static bool fetched_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static bool claim_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static bool open_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static bool grow_read_ahead_locked(struct stoker_loader *loader);

bool stk_worker_step_locked(struct stk_engine_client *client, struct stk_worker *worker)
{
    struct stoker_loader *loader = stk_loader_from_client(client);

    if (loader->locked.closed) {
        return fetched_step_locked(loader, worker);
    }
    return fetched_step_locked(loader, worker) ||
           (loader->sequential ? stk_extract_step_locked(loader, worker)
                               : claim_step_locked(loader, worker)) ||
           open_step_locked(loader, worker) ||
           (grow_read_ahead_locked(loader) && open_step_locked(loader, worker));
}

/* Ends slots, and the loader if it was closed and this was its last pin. */
static void end_slots_locked(struct stk_pending_batch *pending, uint32_t count,
                             const struct stk_loader_counters *counters)
{
    struct stoker_loader *loader = pending->loader;

    if (stk_pending_batch_end_slots_locked(pending, count, counters)) {
        stk_loader_end_locked(loader);
    }
}

/* Fails slots that were filled by a file that changed meanwhile. The lock is not held. */
static void check_maps(struct stk_pending_batch *pending, uint32_t slot, struct stk_worker *worker)
{
    struct stoker_engine *engine = pending->loader->engine;
    struct stoker_error error;

    if (stk_loader_maps_check(pending->loader, &error) < 0) {
        stk_engine_lock(engine, worker);
        stk_pending_batch_fail_locked(pending, slot, &error);
        stk_engine_unlock(engine);
    }
}

static bool is_cancelled(const struct stk_pending_batch *pending)
{
    return atomic_load_explicit(&pending->cancelled, memory_order_relaxed);
}

/* ---- fetched samples ---- */

static struct stk_fetch *pop_fetched_locked(struct stoker_loader *loader)
{
    struct stk_fetch *fetch = loader->locked.fetched;

    if (fetch) {
        loader->locked.fetched = fetch->next;
        if (!fetch->next) {
            loader->locked.fetched_tail = &loader->locked.fetched;
        }
        loader->locked.fetching -= fetch->cold;
    }
    return fetch;
}

static bool fetched_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_fetch *fetch = pop_fetched_locked(loader);
    struct stk_loader_counters counters = {0};
    struct stk_pending_batch *pending;
    struct stk_sample_slot slot;

    if (!fetch) {
        return false;
    }
    stk_engine_unlock(engine);
    pending = fetch->pending;
    slot = (struct stk_sample_slot){pending, fetch->slot, worker, &counters, &fetch->members};
    stk_io_set_cancel_flag(&loader->closing);
    if (is_cancelled(pending)) {
        /* The slot only ends. */
    } else if (fetch->buffer || fetch->error.status < 0) {
        counters.cold_reads = 1;
        stk_sample_work_finish(&slot, fetch->bytes, fetch->error.status < 0 ? &fetch->error : NULL);
    } else {
        stk_sample_work_resume(&slot);
    }
    stk_io_set_cancel_flag(NULL);
    check_maps(pending, fetch->slot, worker);
    stk_fetch_release(loader->fetcher, fetch);
    stk_engine_lock(engine, worker);
    end_slots_locked(pending, 1, &counters);
    return true;
}

/* ---- claims ---- */

static uint32_t claim_size_locked(const struct stoker_loader *loader,
                                  const struct stk_pending_batch *pending)
{
    uint32_t left = pending->samples - pending->locked.next_slot;
    uint64_t sample_ns = loader->locked.sample_ns;
    uint64_t size = sample_ns ? CLAIM_NS / sample_ns : 1;

    /* A fair share of the slots that are left, so that all workers finish a batch together. */
    size = stk_min(size, left / (2 * loader->engine->worker_count));
    return (uint32_t)stk_min(stk_max(stk_min(size, CLAIM_MAX), 1), left);
}

/* Pins the file of a fetch for the fetcher. Each pinned file of a folder is an open file: beyond
 * the limit it is not pinned, and the worker that gets the fetch back reads the sample itself. */
static void pin_file(struct stk_fetch *fetch)
{
    struct stoker_dataset *dataset = fetch->pending->loader->dataset;
    const struct stk_sample_span *span = &fetch->members.span;

    if (span->bytes != 0 && !stk_dataset_at_open_file_limit(dataset, span->shard) &&
        stk_dataset_pin(dataset, span->shard, stk_engine_now(dataset->engine), &fetch->file,
                        &fetch->error) < 0) {
        stk_dataset_error_add_location(dataset, &fetch->error, span->shard, STOKER_NO_OFFSET, NULL);
    }
}

/* Whether a fetch need not go to the fetcher: its bytes are in the page cache, or a worker has to
 * read them anyway. */
static bool is_warm(const struct stk_fetch *fetch)
{
    const struct stoker_loader *loader = fetch->pending->loader;
    const struct stk_sample_span *span = &fetch->members.span;
    uint8_t probe;

    return span->scattered ||
           stk_index_shard_compression(loader->dataset->index, span->shard) !=
               STK_COMPRESSION_NONE ||
           (fetch->file && stk_io_read_now(fetch->file, span->offset, &probe, 1) == 1);
}

static void fail_slot(struct stk_pending_batch *pending, uint32_t slot, struct stk_worker *worker)
{
    struct stoker_engine *engine = pending->loader->engine;
    struct stoker_error error;

    stk_fail(&error, -ENOMEM, "cannot fetch a sample", "free memory", "fetch");
    stk_engine_lock(engine, worker);
    stk_pending_batch_fail_locked(pending, slot, &error);
    end_slots_locked(pending, 1, &(struct stk_loader_counters){0});
    stk_engine_unlock(engine);
}

/* A fetch for a slot that was not claimed yet; NULL: no memory. */
static struct stk_fetch *fetch_slot(struct stk_pending_batch *pending, uint32_t slot)
{
    struct stoker_loader *loader = pending->loader;
    uint64_t sample = pending->batch->ids[slot];
    struct stk_fetch *fetch = stk_fetch_new(pending, slot);
    struct stoker_error error;

    if (fetch) {
        stk_sample_members_find(loader, sample, &fetch->members);
        if (stk_quarantine_find(loader->quarantine, sample, &error)) {
            fetch->members.span.bytes = 0; /* a known bad sample is not read */
        }
        pin_file(fetch);
    }
    return fetch;
}

/* Fetches all unclaimed slots of a batch, too: a cold sample is seldom alone, and the fetcher
 * coalesces those that it gets together. The workers take the warm ones. */
static void fetch_rest(struct stk_pending_batch *pending, struct stk_worker *worker,
                       struct stk_fetch *list)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_engine *engine = loader->engine;
    struct stk_fetch *warm = NULL;
    uint32_t first, count, cold = 0;

    stk_engine_lock(engine, worker);
    /* Files of a folder are fetched one by one. */
    count = stk_open_files_has_slots(&loader->dataset->files)
                ? pending->samples - pending->locked.next_slot
                : 0;
    first = stk_pending_batch_claim_locked(pending, count);
    stk_engine_unlock(engine);
    for (struct stk_fetch *it = list; it; it = it->next) {
        it->cold = true;
        cold++;
    }
    for (uint32_t slot = first; slot < first + count; slot++) {
        struct stk_fetch *fetch = fetch_slot(pending, slot);

        if (!fetch) {
            fail_slot(pending, slot, worker);
        } else if (is_warm(fetch)) {
            fetch->next = warm;
            warm = fetch;
        } else {
            fetch->cold = true;
            cold++;
            fetch->next = list;
            list = fetch;
        }
    }
    stk_engine_lock(engine, worker);
    loader->locked.fetching += cold;
    stk_engine_unlock(engine);
    stk_fetch_deliver(engine, warm);
    stk_fetcher_push(loader->fetcher, list);
}

/* Works on a claimed slot. Returns a fetch if its sample is cold; NULL: the slot is done. */
static struct stk_fetch *work_on_slot(const struct stk_sample_slot *slot)
{
    struct stoker_loader *loader = slot->pending->loader;
    struct stk_fetch *fetch;

    if (stk_sample_work_begin(slot, loader->cached) != -EAGAIN) {
        return NULL;
    }
    fetch = stk_fetch_new(slot->pending, slot->slot);
    if (fetch) {
        stk_sample_members_copy(loader, slot->members, &fetch->members);
        pin_file(fetch);
    } else { /* no memory for a fetch: this worker waits for the bytes */
        stk_sample_work_resume(slot);
    }
    return fetch;
}

static bool claim_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_pending_batch *pending = stk_pending_batch_claimable_locked(loader);
    struct stk_loader_counters counters = {0};
    struct stk_sample_part parts[STK_BATCH_FIELDS_MAX];
    struct stk_sample_members members = {.parts = parts};
    struct stk_fetch *cold = NULL;
    uint32_t first, count, done = 0;

    if (!pending) {
        return false;
    }
    count = claim_size_locked(loader, pending);
    first = stk_pending_batch_claim_locked(pending, count);
    stk_engine_unlock(engine);
    stk_io_set_cancel_flag(&loader->closing); /* also for files that fetch_rest opens */
    for (uint32_t i = first; i < first + count; i++) {
        struct stk_sample_slot slot = {pending, i, worker, &counters, &members};
        struct stk_fetch *fetch = is_cancelled(pending) ? NULL : work_on_slot(&slot);

        if (fetch) {
            fetch->next = cold;
            cold = fetch;
        }
        done += !fetch;
    }
    if (done > 0) {
        check_maps(pending, first, worker);
    }
    if (cold) {
        fetch_rest(pending, worker, cold);
    }
    stk_io_set_cancel_flag(NULL);
    stk_engine_lock(engine, worker);
    if (done > 0) {
        end_slots_locked(pending, done, &counters);
    }
    return true;
}

/* ---- opening ---- */

/* Moves on to the next step of the order that has a batch. Returns false if there is none to open.
 */
static bool next_step_locked(struct stoker_loader *loader)
{
    const struct stk_partition *partition = &loader->partition;

    if (stk_partition_steps_from(partition, loader->locked.open_epoch,
                                 loader->locked.open_position) > 0) {
        return true;
    }
    if (!loader->prefetch_epochs || loader->locked.open_epoch != loader->locked.epoch ||
        stk_partition_steps(partition, loader->locked.open_epoch + 1) == 0) {
        return false;
    }
    loader->locked.open_position = stk_partition_next_epoch_start(
        partition, loader->locked.open_epoch, loader->locked.open_position);
    loader->locked.open_epoch++;
    return true;
}

/* Whether read-ahead of this loader must leave memory to the waiting caller of another client. */
static bool must_yield_memory_locked(const struct stoker_loader *loader)
{
    return loader->client.waiting == 0 && stk_engine_wants_memory_locked(loader->engine);
}

static bool can_open_locked(struct stoker_loader *loader)
{
    return !loader->locked.opening && !loader->locked.paused &&
           !loader->locked.open_failed_for_memory && !loader->locked.exclusive &&
           loader->locked.pending_count < loader->locked.ahead &&
           stk_batch_pool_in_use(loader->pool) < loader->locked.out_limit &&
           !must_yield_memory_locked(loader) && next_step_locked(loader);
}

/* Opens the next batch. The lock is not held. */
static struct stk_pending_batch *open_next(struct stoker_loader *loader, uint64_t epoch,
                                           uint64_t position, bool can_be_exclusive,
                                           struct stoker_error *error)
{
    struct stk_pending_batch *pending;

    stk_io_set_cancel_flag(&loader->closing);
    pending = stk_pending_batch_open(loader, epoch, position, false, error);
    if (!pending && can_be_exclusive && error->status == STOKER_ERROR_BUDGET) {
        pending = stk_pending_batch_open(loader, epoch, position, true, error);
    }
    stk_io_set_cancel_flag(NULL);
    return pending;
}

static void fail_open_locked(struct stoker_loader *loader, const struct stoker_error *error)
{
    loader->locked.open_failed_for_memory = true;
    if (loader->locked.memory_failed_since_ns == 0) {
        loader->locked.memory_failed_since_ns = stk_engine_now(loader->engine);
    }
    loader->locked.open_error = *error;
    pthread_cond_broadcast(&loader->ready);
}

static bool open_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_pending_batch *pending;
    struct stoker_error error = {0};
    uint64_t generation = loader->locked.generation;
    uint64_t returned = engine->locked.returned_batches;

    if (!can_open_locked(loader)) {
        return false;
    }
    loader->locked.opening = true;
    loader->locked.pins++;
    uint64_t epoch = loader->locked.open_epoch, position = loader->locked.open_position;
    bool can_be_exclusive = loader->out_of_line_count > 0 && loader->locked.pending_count == 0;
    stk_engine_unlock(engine);
    pending = open_next(loader, epoch, position, can_be_exclusive, &error);
    stk_engine_lock(engine, worker);
    loader->locked.opening = false;
    if (pending) {
        loader->locked.memory_failed_since_ns = 0;
        loader->locked.waiting_for_memory = false;
    }
    if (pending && loader->locked.generation == generation) {
        loader->locked.open_position = pending->next_position;
        stk_pending_batch_enqueue_locked(pending); /* takes over the pin */
        return true;
    }
    /* If batches came back meanwhile, the next step tries again with their memory. */
    if (!pending && engine->locked.returned_batches == returned) {
        fail_open_locked(loader, &error);
    }
    stk_engine_unlock(engine);
    stk_pending_batch_close(pending);
    stk_engine_lock(engine, worker);
    stk_loader_unpin_locked(loader);
    return true;
}

/* Reads one more batch ahead from now on, if reads are the bottleneck: a worker is idle while the
 * caller waits, reads are pending, and the ring is full. If decoding is the bottleneck no worker is
 * idle. At most once a batch, or once in GROW_READ_AHEAD_WAIT_NS, since the effect of the last
 * growth shows only then. Returns true if it has grown. */
static bool grow_read_ahead_locked(struct stoker_loader *loader)
{
    uint64_t more = (uint64_t)loader->locked.ahead + 2;
    uint64_t now_ns;

    if (loader->ahead_option || loader->client.waiting == 0 || loader->locked.fetching == 0 ||
        loader->locked.opening || loader->locked.pending_count < loader->locked.ahead ||
        loader->locked.ahead >= STK_LOADER_AHEAD_MAX ||
        more * loader->batch_bytes > loader->engine->budget.bytes_max / 2) {
        return false;
    }
    now_ns = stk_engine_now(loader->engine);
    if (loader->locked.ahead_grown_at == loader->locked.batches &&
        now_ns - loader->locked.ahead_grown_ns < GROW_READ_AHEAD_WAIT_NS) {
        return false;
    }
    loader->locked.ahead_grown_at = loader->locked.batches;
    loader->locked.ahead_grown_ns = now_ns;
    loader->locked.ahead++;
    loader->locked.out_limit++;
    return true;
}
