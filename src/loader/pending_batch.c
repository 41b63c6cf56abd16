/* Flights: opened, claimed, done; the one place that decides what a worker does for a loader. */
#include "loader/pending_batch.h"

#include "base/mem.h"
#include "base/retry.h"
#include "engine/worker.h"
#include "format/compress/decompress.h"
#include "loader/fetcher.h"
#include "loader/fill_value.h"
#include "loader/quarantine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_SHORT_MS 100u

/* A claim lasts about this long, so that the lock is taken seldom and the tail stays short. */
#define CLAIM_NS 200000u
#define CLAIM_MAX 64u
#define EXTRACT_SLOTS 8u
/* One worker unpacks this much before others may have it: were it without bound, eight huge
 * samples would wait for memory that only their own delivery frees. */
#define EXTRACT_BYTES (4u << 20)

static bool fetched_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static bool extract_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static bool claim_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static bool open_step_locked(struct stoker_loader *loader, struct stk_worker *worker);
static void pending_batch_free(struct stk_pending_batch *pending);

struct stoker_loader *stk_loader_from_client(struct stk_engine_client *client)
{
    return (struct stoker_loader *)client; /* its first member */
}

bool stk_loader_step_locked(struct stk_engine_client *client, struct stk_worker *worker)
{
    struct stoker_loader *loader = stk_loader_from_client(client);

    if (loader->locked.closed) {
        return fetched_step_locked(loader, worker);
    }
    return fetched_step_locked(loader, worker) ||
           (loader->sequential ? extract_step_locked(loader, worker)
                               : claim_step_locked(loader, worker)) ||
           open_step_locked(loader, worker) ||
           (stk_loader_grow_read_ahead_locked(loader) && open_step_locked(loader, worker));
}

/* ---- work on slots ---- */

static bool fetched_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_fetch *fetch = loader->locked.fetched;
    struct stk_loader_counters counters = {0};
    struct stk_pending_batch *pending;

    if (!fetch) {
        return false;
    }
    loader->locked.fetched = fetch->next;
    if (!fetch->next) {
        loader->locked.fetched_tail = &loader->locked.fetched;
    }
    loader->locked.fetching -= fetch->cold;
    stk_engine_unlock(engine);
    pending = fetch->pending;
    stk_io_set_cancel_flag(&loader->closing);
    if (atomic_load_explicit(&pending->cancelled, memory_order_relaxed)) {
        /* Nobody will see it. */
    } else if (fetch->chunk || fetch->error.status < 0) {
        counters.cold_reads = 1;
        stk_sample_work_finish(pending, fetch->slot, worker, fetch->bytes,
                               fetch->error.status < 0 ? &fetch->error : NULL, &counters);
    } else {
        struct stk_sample_span span;
        stk_sample_work_run(pending, fetch->slot, worker, true, &counters, &span);
    }
    stk_io_set_cancel_flag(NULL);
    stk_fetch_release(loader->fetcher, fetch);
    stk_engine_lock(engine, worker);
    stk_pending_batch_end_slots_locked(pending, 1, &counters);
    return true;
}

/* The oldest flight with unclaimed slots. */
static struct stk_pending_batch *claimable_locked(struct stoker_loader *loader)
{
    struct stk_pending_batch *pending = loader->locked.head;

    while (pending && pending->locked.next_slot >= pending->samples) {
        pending = pending->next;
    }
    return pending;
}

static uint32_t claim_size_locked(const struct stoker_loader *loader,
                                  const struct stk_pending_batch *pending)
{
    uint32_t left = pending->samples - pending->locked.next_slot;
    uint64_t sample_ns = loader->locked.sample_ns;
    uint64_t size = sample_ns ? CLAIM_NS / sample_ns : 1;

    /* A fair share of what is left, so that all workers end a batch together. */
    size = stk_min(size, left / (2 * loader->engine->worker_count));
    return (uint32_t)stk_min(stk_max(stk_min(size, CLAIM_MAX), 1), left);
}

/* A fetch for a slot; NULL when there is no memory (then the slot is done the slow way). */
static struct stk_fetch *fetch_new(struct stk_pending_batch *pending, uint32_t slot,
                                   const struct stk_sample_span *span)
{
    struct stk_fetch *fetch = stk_alloc(1, sizeof *fetch);

    if (!fetch) {
        return NULL;
    }
    fetch->pending = pending;
    fetch->slot = slot;
    fetch->span = *span;
    /* Each cold file of a folder on its way is an open one: beyond the bound there is no file
     * here, and the worker that gets the fetch back reads by itself. */
    if (span->bytes != 0 &&
        !stk_dataset_at_open_file_limit(pending->loader->dataset, span->shard) &&
        stk_dataset_pin(pending->loader->dataset, span->shard, &fetch->file, &fetch->error) < 0) {
        stk_dataset_error_add_location(pending->loader->dataset, &fetch->error, span->shard,
                                       STOKER_NO_OFFSET, NULL);
    }
    return fetch;
}

/* One cold sample seldom comes alone: all unclaimed slots of its flight are asked for now, so
 * that the fetcher sees them together. Those that are warm go back to workers as they are. */
static void fetch_rest(struct stk_pending_batch *pending, struct stk_worker *worker,
                       struct stk_fetch *list)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_engine *engine = loader->engine;
    struct stk_fetch *warm = NULL;
    uint32_t first, end, cold = 0;

    stk_engine_lock(engine, worker);
    first = pending->locked.next_slot;
    end = loader->dataset->locked.files ? pending->samples : first; /* folders: one by one */
    pending->locked.next_slot = end;
    stk_engine_unlock(engine);
    for (struct stk_fetch *it = list; it; it = it->next) {
        it->cold = true;
        cold++;
    }
    for (uint32_t slot = first; slot < end; slot++) {
        struct stk_sample_span span;
        struct stk_fetch *fetch;
        uint8_t probe;
        bool packed;
        struct stoker_error error;

        stk_sample_span_find(loader, pending->batch->ids[slot], &span);
        if (stk_quarantine_find(loader->quarantine, pending->batch->ids[slot], &error)) {
            span.bytes = 0; /* nothing is read of it */
        }
        packed =
            stk_index_shard_compression(loader->dataset->index, span.shard) != STK_COMPRESSION_NONE;
        fetch = fetch_new(pending, slot, &span);
        if (!fetch) {
            stk_fail(&error, -ENOMEM, "cannot fetch a sample", "free memory", "fetch");
            stk_engine_lock(engine, worker);
            stk_pending_batch_fail_locked(pending, slot, &error);
            stk_pending_batch_end_slots_locked(pending, 1, &(struct stk_loader_counters){0});
            stk_engine_unlock(engine);
            continue;
        }
        if (span.scattered || packed ||
            (fetch->file &&
             stk_io_read_now(engine->io, fetch->file, span.offset, &probe, 1) == 1)) {
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

static bool claim_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_pending_batch *pending = claimable_locked(loader);
    struct stk_loader_counters counters = {0};
    struct stk_fetch *cold = NULL;
    uint32_t first, count, done = 0;

    if (!pending) {
        return false;
    }
    first = pending->locked.next_slot;
    count = claim_size_locked(loader, pending);
    pending->locked.next_slot += count;
    stk_engine_unlock(engine);
    stk_io_set_cancel_flag(&loader->closing); /* also what fetch_rest opens */
    for (uint32_t slot = first; slot < first + count; slot++) {
        struct stk_sample_span span;
        struct stk_fetch *fetch = NULL;

        if (!atomic_load_explicit(&pending->cancelled, memory_order_relaxed) &&
            stk_sample_work_run(pending, slot, worker, loader->cached, &counters, &span) ==
                -EAGAIN) {
            fetch = fetch_new(pending, slot, &span);
            if (!fetch) {
                stk_sample_work_run(pending, slot, worker, true, &counters, &span);
            }
        }
        if (fetch) {
            fetch->next = cold;
            cold = fetch;
        } else {
            done++;
        }
    }
    if (cold) {
        fetch_rest(pending, worker, cold);
    }
    stk_io_set_cancel_flag(NULL);
    stk_engine_lock(engine, worker);
    if (done > 0) {
        stk_pending_batch_end_slots_locked(pending, done, &counters);
    }
    return true;
}

/* ---- packed shards: bytes come front to back, from one worker at a time ---- */

static int extract_once(struct stk_pending_batch *pending, struct stk_fetch *fetch,
                        struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_dataset *dataset = loader->dataset;
    struct stk_sample_span *span = &fetch->span;
    int status = 0;

    if (span->scattered) {
        char path[STK_PATH_BYTES_MAX];

        stk_index_path_text(dataset->index, span->shard, path);
        return stk_fail(error, STOKER_ERROR_SCATTERED,
                        "members of a sample lie too far apart in a packed shard",
                        "pack the data set anew", "'%s'", path);
    }
    if (!loader->extract.stream || loader->extract.shard != span->shard) {
        stk_shard_stream_close(loader->extract.stream);
        loader->extract.stream = NULL;
        status = stk_shard_stream_open_shard(&loader->extract.stream, dataset, span->shard, error);
        loader->extract.shard = span->shard;
    }
    status = status < 0 || fetch->chunk
                 ? status
                 : stk_fetch_reserve(loader->fetcher, fetch, span->bytes, &fetch->buffer, error);
    if (status < 0) {
        return status;
    }
    fetch->bytes.data = fetch->buffer;
    return stk_shard_stream_read(loader->extract.stream, span->offset, fetch->buffer, span->bytes,
                                 &fetch->bytes.bytes, error);
}

/* The bytes of a slot; failures that may pass are tried again with the stream opened anew. */
static void extract_slot(struct stk_fetch *fetch, struct stk_worker *worker,
                         struct stk_loader_counters *counters)
{
    struct stoker_loader *loader = fetch->pending->loader;
    int status = extract_once(fetch->pending, fetch, &fetch->error);
    uint32_t tries = 0;

    while (status < 0 && stk_fetcher_retry_wait(fetch->pending, worker, status, tries + 1)) {
        tries++;
        counters->retries++;
        stk_shard_stream_close(loader->extract.stream);
        loader->extract.stream = NULL;
        memset(&fetch->error, 0, sizeof fetch->error);
        status = extract_once(fetch->pending, fetch, &fetch->error);
    }
    if (status < 0) {
        if (!stk_error_is_data(status)) { /* a stream that failed gives that failure for ever */
            stk_shard_stream_close(loader->extract.stream);
            loader->extract.stream = NULL;
        }
        stk_retry_add_note(&fetch->error, tries);
        stk_dataset_error_add_location(loader->dataset, &fetch->error, fetch->span.shard,
                                       STOKER_NO_OFFSET, NULL);
    }
}

/* How many slots the next extraction takes: one, and small ones behind it. */
static uint32_t extract_size(const struct stk_pending_batch *pending, uint32_t first)
{
    uint32_t limit = (uint32_t)stk_min(EXTRACT_SLOTS, pending->samples - first), count = 0;
    uint64_t bytes = 0;

    do {
        struct stk_sample_span span;
        stk_sample_span_find(pending->loader, pending->batch->ids[first + count], &span);
        bytes = stk_min(span.bytes, EXTRACT_BYTES) + bytes;
        count++;
    } while (count < limit && bytes < EXTRACT_BYTES);
    return count;
}

static bool extract_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_pending_batch *pending = claimable_locked(loader);
    struct stk_fetch *list = NULL, **tail = &list;
    struct stk_loader_counters counters = {0};
    uint32_t first, count, failed = 0;

    if (!pending || loader->locked.extracting) {
        return false;
    }
    loader->locked.extracting = true;
    loader->locked.pins++; /* what is delivered may end, and end a closed loader, at once */
    first = pending->locked.next_slot;
    count = extract_size(pending, first);
    pending->locked.next_slot += count;
    stk_engine_unlock(engine);
    stk_io_set_cancel_flag(&loader->closing);
    for (uint32_t slot = first; slot < first + count; slot++) {
        struct stk_fetch *fetch = stk_alloc(1, sizeof *fetch);

        if (!fetch) {
            failed++;
            continue;
        }
        fetch->pending = pending;
        fetch->slot = slot;
        stk_sample_span_find(loader, pending->batch->ids[slot], &fetch->span);
        if (!atomic_load_explicit(&pending->cancelled, memory_order_relaxed)) {
            extract_slot(fetch, worker, &counters);
        }
        *tail = fetch;
        tail = &fetch->next;
    }
    stk_io_set_cancel_flag(NULL);
    stk_fetch_deliver(engine, list);
    stk_engine_lock(engine, worker);
    loader->locked.extracting = false;
    loader->locked.counters.retries += counters.retries;
    stk_engine_signal_locked(engine, count);
    if (failed > 0) {
        struct stoker_error error;
        stk_fail(&error, -ENOMEM, "cannot read a sample", "free memory", "packed shard");
        stk_pending_batch_fail_locked(pending, first, &error);
        stk_pending_batch_end_slots_locked(pending, failed, &(struct stk_loader_counters){0});
    }
    stk_loader_unpin_locked(loader);
    return true;
}

/* ---- opening ---- */

/* Steps on to the next step that a flight would serve; false: nothing more to open. */
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

/* A batch, if need be in place of what lies unused in the engine. */
static int get_pool_batch(struct stk_pending_batch *pending, const uint64_t *value_bytes,
                          struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    int status =
        stk_batch_pool_get(loader->pool, pending->samples, value_bytes, &pending->batch, error);

    if (status == STOKER_ERROR_BUDGET && stk_engine_trim(loader->engine) > 0) {
        status =
            stk_batch_pool_get(loader->pool, pending->samples, value_bytes, &pending->batch, error);
    }
    return status;
}

static uint64_t value_bytes_of(struct stoker_loader *loader, const struct stk_loader_field *field,
                               uint64_t sample)
{
    struct stk_sample found;

    if (field->kind != STOKER_FIELD_KEY) {
        return stk_sample_value_bytes(loader, field, sample);
    }
    return stk_index_sample(loader->dataset->index, sample, &found, NULL) < 0 ? 0 : found.key.bytes;
}

/* The samples of a flight's slots, and where they stand in the order. Places that are neighbours
 * are asked for together. */
static void plan_ids(struct stk_pending_batch *pending, uint64_t *ids)
{
    struct stoker_loader *loader = pending->loader;
    uint32_t first = 0;

    for (uint32_t i = 0; i < pending->samples; i++) {
        struct stk_order_place *place = &pending->order_places[i];
        struct stk_order_place *begin = &pending->order_places[first];

        stk_partition_place(&loader->partition, pending->epoch, pending->position, i, place);
        if (place->epoch != begin->epoch || place->position != begin->position + (i - first)) {
            stk_schedule_read(&loader->plan.reader, begin->epoch, begin->position, i - first,
                              ids + first);
            first = i;
        }
    }
    if (pending->samples > 0) {
        stk_schedule_read(&loader->plan.reader, pending->order_places[first].epoch,
                          pending->order_places[first].position, pending->samples - first,
                          ids + first);
    }
}

/* Offsets of a BYTES field's values. Sizes are asked once: those of a folder's files may change
 * between two looks. */
static int plan_offsets(struct stk_pending_batch *pending, const struct stk_loader_field *field,
                        const uint64_t *ids, uint64_t *offsets, struct stoker_error *error)
{
    for (uint32_t i = 0; i < pending->samples; i++) {
        uint64_t bytes = value_bytes_of(pending->loader, field, ids[i]);

        if (!stk_add(offsets[i], bytes, &offsets[i + 1]) || offsets[i + 1] > UINT64_MAX / 4) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "the values of a batch are too large",
                            "check the shards' headers, or lower batch_size", "%u samples",
                            pending->samples);
        }
    }
    return 0;
}

/* Ids, mask and places of a flight, and the room that its variable values need. */
static int plan_batch(struct stk_pending_batch *pending, struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    uint64_t value_bytes[STK_BATCH_FIELDS_MAX] = {0};
    uint64_t *offsets[STK_BATCH_FIELDS_MAX] = {NULL};
    uint64_t *ids = stk_alloc(pending->samples, sizeof *ids);
    int status = 0;

    if (!ids) {
        return stk_fail(error, -ENOMEM, "cannot plan a batch", "free memory", "%u samples",
                        pending->samples);
    }
    plan_ids(pending, ids);
    status = stk_schedule_reader_error(&loader->plan.reader, error);
    if (status == 0 && !pending->exclusive) {
        pending->exclusive = !stk_ragged_values_estimate(pending, value_bytes);
    }
    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        if (loader->fields[f].shape.dtype != STOKER_BYTES || loader->fields[f].out_of_line) {
            continue;
        }
        offsets[f] = stk_alloc(pending->samples + 1u, sizeof *offsets[f]);
        status = offsets[f] ? plan_offsets(pending, &loader->fields[f], ids, offsets[f], error)
                            : stk_fail(error, -ENOMEM, "cannot plan a batch", "free memory",
                                       "%u samples", pending->samples);
        value_bytes[f] = offsets[f] ? offsets[f][pending->samples] : 0;
    }
    if (status == 0) {
        status = get_pool_batch(pending, value_bytes, error);
    }
    if (status == 0) {
        status = stk_ragged_values_open(pending, value_bytes, error);
    }
    for (uint32_t f = 0; f < loader->field_count; f++) {
        if (status == 0 && offsets[f]) {
            memcpy(pending->batch->fields[f].offsets, offsets[f],
                   (pending->samples + 1u) * sizeof *offsets[f]);
        }
        stk_free(offsets[f]);
    }
    for (uint32_t i = 0; status == 0 && i < pending->samples; i++) {
        pending->batch->ids[i] = ids[i];
        pending->batch->mask[i] = pending->order_places[i].real;
    }
    stk_free(ids);
    return status;
}

/* Adds an opened flight to the ring, unless the loader was turned elsewhere meanwhile. */
static void enqueue_locked(struct stk_pending_batch *pending)
{
    struct stoker_loader *loader = pending->loader;
    uint32_t timeout_ms = loader->engine->options.read_timeout_ms;

    pending->memory_wait_ms = loader->locked.ahead > 1 && !pending->exclusive
                                  ? (uint32_t)stk_min(timeout_ms, MEMORY_SHORT_MS)
                                  : timeout_ms;
    if (loader->locked.tail) {
        loader->locked.tail->next = pending;
    } else {
        loader->locked.head = pending;
    }
    loader->locked.tail = pending;
    loader->locked.pending_count++;
    loader->locked.exclusive = pending->exclusive && pending->samples > 0;
    if (pending->samples == 0) {
        pthread_cond_broadcast(&loader->ready);
    }
    stk_engine_signal_locked(loader->engine, pending->samples);
}

/* alone: no memory is set aside for values that go aside. */
static struct stk_pending_batch *pending_batch_open(struct stoker_loader *loader, uint64_t epoch,
                                                    uint64_t position, bool alone,
                                                    struct stoker_error *error)
{
    const struct stk_partition *partition = &loader->partition;
    struct stk_pending_batch *pending = stk_alloc(1, sizeof *pending);
    int status = -ENOMEM;

    if (pending) {
        pending->loader = loader;
        pending->exclusive = alone;
        pending->epoch = epoch;
        pending->position = position;
        pending->next_position = position + stk_partition_stride(partition);
        pending->samples = stk_partition_batch_slots(partition, epoch, position);
        pending->order_places = stk_alloc(pending->samples, sizeof *pending->order_places);
    }
    if (!pending || !pending->order_places) {
        stk_fail(error, -ENOMEM, "cannot open a batch", "free memory", "flight");
    } else {
        status = plan_batch(pending, error);
    }
    if (status < 0) {
        pending_batch_free(pending);
        return NULL;
    }
    return pending;
}

/* Another client's caller waits for memory: what nobody waits for must not take it. */
static bool must_yield_memory_locked(const struct stoker_loader *loader)
{
    return loader->client.waiting == 0 && stk_engine_wants_memory_locked(loader->engine);
}

static bool open_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_pending_batch *pending;
    struct stoker_error error = {0};
    uint64_t generation = loader->locked.generation;
    uint64_t returns = engine->locked.returned_batches;

    if (loader->locked.opening || loader->locked.open_failed_for_memory ||
        loader->locked.exclusive || loader->locked.pending_count >= loader->locked.ahead ||
        stk_batch_pool_in_use(loader->pool) >= loader->locked.out_limit ||
        must_yield_memory_locked(loader) || !next_step_locked(loader)) {
        return false;
    }
    loader->locked.opening = true;
    loader->locked.pins++;
    uint64_t epoch = loader->locked.open_epoch, position = loader->locked.open_position;
    bool alone = loader->out_of_line_count > 0 && loader->locked.pending_count == 0;
    stk_engine_unlock(engine);
    stk_io_set_cancel_flag(&loader->closing);
    pending = pending_batch_open(loader, epoch, position, false, &error);
    if (!pending && alone && error.status == STOKER_ERROR_BUDGET) {
        pending = pending_batch_open(loader, epoch, position, true, &error);
    }
    stk_io_set_cancel_flag(NULL);
    stk_engine_lock(engine, worker);
    loader->locked.opening = false;
    if (pending) {
        loader->locked.memory_failed_since_ns = 0;
        loader->locked.waiting_for_memory = false;
    }
    if (pending && loader->locked.generation == generation) {
        loader->locked.open_position = pending->next_position;
        enqueue_locked(pending); /* the pin is the flight's now */
        return true;
    }
    if (!pending &&
        engine->locked.returned_batches == returns) { /* else: try again with what came back */
        loader->locked.open_failed_for_memory = true;
        if (loader->locked.memory_failed_since_ns == 0) {
            loader->locked.memory_failed_since_ns = stk_engine_now(engine);
        }
        loader->locked.open_error = error;
        pthread_cond_broadcast(&loader->ready);
    }
    stk_engine_unlock(engine);
    pending_batch_free(pending);
    stk_engine_lock(engine, worker);
    stk_loader_unpin_locked(loader);
    return true;
}

/* ---- ending ---- */

static void pending_batch_free(struct stk_pending_batch *pending)
{
    struct stk_value_override *override, *next;

    if (!pending) {
        return;
    }
    for (override = pending->locked.overrides; override; override = next) {
        next = override->next;
        stk_budget_release(&pending->loader->engine->budget, override->bytes);
        stk_free(override->data);
        stk_free(override);
    }
    stoker_batch_close(pending->batch);
    stk_ragged_values_close(pending);
    stk_quarantine_notes_free(pending->locked.notes);
    stk_free(pending->order_places);
    stk_free(pending);
}

void stk_pending_batch_free_locked(struct stk_pending_batch *pending)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_engine *engine = loader->engine;

    stk_engine_unlock(engine);
    pending_batch_free(pending);
    stk_engine_lock(engine, NULL);
    stk_loader_unpin_locked(loader);
}

void stk_loader_unpin_locked(struct stoker_loader *loader)
{
    struct stoker_engine *engine = loader->engine;

    STK_ASSERT(loader->locked.pins > 0);
    if (--loader->locked.pins > 0) {
        return;
    }
    STK_ASSERT(loader->locked.closed); /* an open loader has the user's pin */
    stk_engine_remove_client_locked(engine, &loader->client);
    /* The engine outlives this: a worker is joined before it goes, a caller holds it. */
    stk_engine_unlock(engine);
    stk_loader_free(loader);
    stk_engine_lock(engine, NULL);
}

void stk_pending_batch_end_slots_locked(struct stk_pending_batch *pending, uint32_t count,
                                        const struct stk_loader_counters *counters)
{
    struct stoker_loader *loader = pending->loader;
    struct stk_loader_counters *sum = &loader->locked.counters;
    uint64_t work_ns = counters->read_ns + counters->decode_ns;

    sum->samples += counters->samples;
    sum->bytes += counters->bytes;
    sum->read_ns += counters->read_ns;
    sum->decode_ns += counters->decode_ns;
    sum->warm_reads += counters->warm_reads;
    sum->cold_reads += counters->cold_reads;
    sum->retries += counters->retries;
    if (counters->samples > 0) {
        uint64_t each = work_ns / counters->samples + 1;
        uint64_t smooth = loader->locked.sample_ns;
        loader->locked.sample_ns = smooth ? (7 * smooth + each) / 8 : each;
    }
    pending->locked.substituted += (uint32_t)counters->substituted;
    pending->locked.done_count += count;
    STK_ASSERT(pending->locked.done_count <= pending->samples);
    if (pending->locked.done_count < pending->samples) {
        return;
    }
    if (atomic_load_explicit(&pending->cancelled, memory_order_relaxed)) {
        stk_pending_batch_free_locked(pending);
        return;
    }
    if ((pending->locked.overrides || pending->ragged_values) &&
        pending->locked.error.status == 0) {
        struct stoker_error error = {0};

        /* Only this thread touches a flight whose slots are all done but not announced. */
        pending->locked.done_count--;
        stk_engine_unlock(loader->engine);
        if (stk_ragged_values_layout(pending, &error) < 0) {
            pending->locked.error = error;
            pending->locked.error_slot = 0;
        }
        stk_engine_lock(loader->engine, NULL);
        pending->locked.done_count++;
        if (atomic_load_explicit(&pending->cancelled, memory_order_relaxed)) {
            stk_pending_batch_free_locked(pending);
            return;
        }
    }
    if (pending->exclusive) {
        loader->locked.exclusive = false;
        stk_engine_signal_locked(loader->engine, 1);
    }
    if (pending == loader->locked.head) {
        pthread_cond_broadcast(&loader->ready);
    }
}

void stk_pending_batch_fail_locked(struct stk_pending_batch *pending, uint32_t slot,
                                   const struct stoker_error *error)
{
    int had = pending->locked.error.status;

    if (had < 0 && !stk_error_is_data(had) && !stk_error_is_data(error->status)) {
        return; /* the first was retried in full, others gave up when they saw it */
    }
    if (had == 0 || slot < pending->locked.error_slot) {
        pending->locked.error = *error;
        pending->locked.error_slot = slot;
    }
}

void stk_pending_batches_cancel_locked(struct stoker_loader *loader)
{
    struct stk_pending_batch *pending = loader->locked.head, *next, *finished = NULL;

    for (; pending; pending = next) {
        next = pending->next;
        atomic_store_explicit(&pending->cancelled, true, memory_order_relaxed);
        /* Slots that nobody claimed count as done. */
        pending->locked.done_count += pending->samples - pending->locked.next_slot;
        pending->locked.next_slot = pending->samples;
        if (pending->locked.done_count >= pending->samples) {
            pending->next = finished;
            finished = pending;
        }
    }
    loader->locked.head = loader->locked.tail = NULL;
    loader->locked.pending_count = 0;
    loader->locked.generation++;
    loader->locked.open_failed_for_memory = false;
    loader->locked.exclusive = false;
    pthread_cond_broadcast(&loader->ready); /* who waits for a retry need not */
    for (; finished; finished = next) {
        next = finished->next;
        stk_pending_batch_free_locked(finished);
    }
}
