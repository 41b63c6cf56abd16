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
static void flight_free(struct stk_flight *flight);

struct stoker_loader *stk_loader_of(struct stk_client *client)
{
    return (struct stoker_loader *)client; /* its first member */
}

bool stk_flight_step_locked(struct stk_client *client, struct stk_worker *worker)
{
    struct stoker_loader *loader = stk_loader_of(client);

    if (loader->locked.closed) {
        return fetched_step_locked(loader, worker);
    }
    return fetched_step_locked(loader, worker) ||
           (loader->sequential ? extract_step_locked(loader, worker)
                               : claim_step_locked(loader, worker)) ||
           open_step_locked(loader, worker) ||
           (stk_loader_deepen_locked(loader) && open_step_locked(loader, worker));
}

/* ---- work on slots ---- */

static bool fetched_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_fetch *fetch = loader->locked.fetched;
    struct stk_counters counters = {0};
    struct stk_flight *flight;

    if (!fetch) {
        return false;
    }
    loader->locked.fetched = fetch->next;
    if (!fetch->next) {
        loader->locked.fetched_tail = &loader->locked.fetched;
    }
    loader->locked.fetching -= fetch->cold;
    stk_engine_unlock(engine);
    flight = fetch->flight;
    stk_io_obey(&loader->gone);
    if (atomic_load_explicit(&flight->abandoned, memory_order_relaxed)) {
        /* Nobody will see it. */
    } else if (fetch->chunk || fetch->error.status < 0) {
        counters.cold_reads = 1;
        stk_sample_finish(flight, fetch->slot, worker, fetch->bytes,
                          fetch->error.status < 0 ? &fetch->error : NULL, &counters);
    } else {
        struct stk_span span;
        stk_sample_work(flight, fetch->slot, worker, true, &counters, &span);
    }
    stk_io_obey(NULL);
    stk_fetch_release(loader->fetcher, fetch);
    stk_engine_lock(engine, worker);
    stk_flight_done_locked(flight, 1, &counters);
    return true;
}

/* The oldest flight with unclaimed slots. */
static struct stk_flight *claimable_locked(struct stoker_loader *loader)
{
    struct stk_flight *flight = loader->locked.head;

    while (flight && flight->locked.next_slot >= flight->samples) {
        flight = flight->next;
    }
    return flight;
}

static uint32_t claim_size_locked(const struct stoker_loader *loader,
                                  const struct stk_flight *flight)
{
    uint32_t left = flight->samples - flight->locked.next_slot;
    uint64_t sample_ns = loader->locked.sample_ns;
    uint64_t size = sample_ns ? CLAIM_NS / sample_ns : 1;

    /* A fair share of what is left, so that all workers end a batch together. */
    size = stk_min(size, left / (2 * loader->engine->worker_count));
    return (uint32_t)stk_min(stk_max(stk_min(size, CLAIM_MAX), 1), left);
}

/* A fetch for a slot; NULL when there is no memory (then the slot is done the slow way). */
static struct stk_fetch *fetch_new(struct stk_flight *flight, uint32_t slot,
                                   const struct stk_span *span)
{
    struct stk_fetch *fetch = stk_alloc(1, sizeof *fetch);

    if (!fetch) {
        return NULL;
    }
    fetch->flight = flight;
    fetch->slot = slot;
    fetch->span = *span;
    /* Each cold file of a folder on its way is an open one: beyond the bound there is no file
     * here, and the worker that gets the fetch back reads by itself. */
    if (span->bytes != 0 && !stk_dataset_crowded(flight->loader->dataset, span->shard) &&
        stk_dataset_pin(flight->loader->dataset, span->shard, &fetch->file, &fetch->error) < 0) {
        stk_dataset_place(flight->loader->dataset, &fetch->error, span->shard, STOKER_NO_OFFSET,
                          NULL);
    }
    return fetch;
}

/* One cold sample seldom comes alone: all unclaimed slots of its flight are asked for now, so
 * that the fetcher sees them together. Those that are warm go back to workers as they are. */
static void fetch_rest(struct stk_flight *flight, struct stk_worker *worker, struct stk_fetch *list)
{
    struct stoker_loader *loader = flight->loader;
    struct stoker_engine *engine = loader->engine;
    struct stk_fetch *warm = NULL;
    uint32_t first, end, cold = 0;

    stk_engine_lock(engine, worker);
    first = flight->locked.next_slot;
    end = loader->dataset->locked.files ? flight->samples : first; /* folders: one by one */
    flight->locked.next_slot = end;
    stk_engine_unlock(engine);
    for (struct stk_fetch *it = list; it; it = it->next) {
        it->cold = true;
        cold++;
    }
    for (uint32_t slot = first; slot < end; slot++) {
        struct stk_span span;
        struct stk_fetch *fetch;
        uint8_t probe;
        bool packed;
        struct stoker_error error;

        stk_sample_span(loader, flight->batch->ids[slot], &span);
        if (stk_quarantine_knows(loader->quarantine, flight->batch->ids[slot], &error)) {
            span.bytes = 0; /* nothing is read of it */
        }
        packed = stk_index_shard_packing(loader->dataset->index, span.shard) != STK_PLAIN;
        fetch = fetch_new(flight, slot, &span);
        if (!fetch) {
            stk_fail(&error, -ENOMEM, "cannot fetch a sample", "free memory", "fetch");
            stk_engine_lock(engine, worker);
            stk_flight_fail_locked(flight, slot, &error);
            stk_flight_done_locked(flight, 1, &(struct stk_counters){0});
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
    struct stk_flight *flight = claimable_locked(loader);
    struct stk_counters counters = {0};
    struct stk_fetch *cold = NULL;
    uint32_t first, count, done = 0;

    if (!flight) {
        return false;
    }
    first = flight->locked.next_slot;
    count = claim_size_locked(loader, flight);
    flight->locked.next_slot += count;
    stk_engine_unlock(engine);
    stk_io_obey(&loader->gone); /* also what fetch_rest opens */
    for (uint32_t slot = first; slot < first + count; slot++) {
        struct stk_span span;
        struct stk_fetch *fetch = NULL;

        if (!atomic_load_explicit(&flight->abandoned, memory_order_relaxed) &&
            stk_sample_work(flight, slot, worker, loader->cached, &counters, &span) == -EAGAIN) {
            fetch = fetch_new(flight, slot, &span);
            if (!fetch) {
                stk_sample_work(flight, slot, worker, true, &counters, &span);
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
        fetch_rest(flight, worker, cold);
    }
    stk_io_obey(NULL);
    stk_engine_lock(engine, worker);
    if (done > 0) {
        stk_flight_done_locked(flight, done, &counters);
    }
    return true;
}

/* ---- packed shards: bytes come front to back, from one worker at a time ---- */

static int extract_once(struct stk_flight *flight, struct stk_fetch *fetch,
                        struct stoker_error *error)
{
    struct stoker_loader *loader = flight->loader;
    struct stoker_dataset *dataset = loader->dataset;
    struct stk_span *span = &fetch->span;
    int status = 0;

    if (span->scattered) {
        char path[STK_PATH_BYTES_MAX];

        stk_index_path_text(dataset->index, span->shard, path);
        return stk_fail(error, STOKER_ERROR_SCATTERED,
                        "members of a sample lie too far apart in a packed shard",
                        "pack the data set anew", "'%s'", path);
    }
    if (!loader->extract.stream || loader->extract.shard != span->shard) {
        stk_stream_close(loader->extract.stream);
        loader->extract.stream = NULL;
        status = stk_stream_open_shard(&loader->extract.stream, dataset, span->shard, error);
        loader->extract.shard = span->shard;
    }
    status = status < 0 || fetch->chunk
                 ? status
                 : stk_fetch_room(loader->fetcher, fetch, span->bytes, &fetch->room, error);
    if (status < 0) {
        return status;
    }
    fetch->bytes.data = fetch->room;
    return stk_stream_read(loader->extract.stream, span->offset, fetch->room, span->bytes,
                           &fetch->bytes.bytes, error);
}

/* The bytes of a slot; failures that may pass are tried again with the stream opened anew. */
static void extract_slot(struct stk_fetch *fetch, struct stk_worker *worker,
                         struct stk_counters *counters)
{
    struct stoker_loader *loader = fetch->flight->loader;
    int status = extract_once(fetch->flight, fetch, &fetch->error);
    uint32_t tries = 0;

    while (status < 0 && stk_retry_wait(fetch->flight, worker, status, tries + 1)) {
        tries++;
        counters->retries++;
        stk_stream_close(loader->extract.stream);
        loader->extract.stream = NULL;
        memset(&fetch->error, 0, sizeof fetch->error);
        status = extract_once(fetch->flight, fetch, &fetch->error);
    }
    if (status < 0) {
        if (!stk_is_damage(status)) { /* a stream that failed gives that failure for ever */
            stk_stream_close(loader->extract.stream);
            loader->extract.stream = NULL;
        }
        stk_retry_tell(&fetch->error, tries);
        stk_dataset_place(loader->dataset, &fetch->error, fetch->span.shard, STOKER_NO_OFFSET,
                          NULL);
    }
}

/* How many slots the next extraction takes: one, and small ones behind it. */
static uint32_t extract_size(const struct stk_flight *flight, uint32_t first)
{
    uint32_t limit = (uint32_t)stk_min(EXTRACT_SLOTS, flight->samples - first), count = 0;
    uint64_t bytes = 0;

    do {
        struct stk_span span;
        stk_sample_span(flight->loader, flight->batch->ids[first + count], &span);
        bytes = stk_min(span.bytes, EXTRACT_BYTES) + bytes;
        count++;
    } while (count < limit && bytes < EXTRACT_BYTES);
    return count;
}

static bool extract_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_flight *flight = claimable_locked(loader);
    struct stk_fetch *list = NULL, **tail = &list;
    struct stk_counters counters = {0};
    uint32_t first, count, failed = 0;

    if (!flight || loader->locked.extracting) {
        return false;
    }
    loader->locked.extracting = true;
    loader->locked.pins++; /* what is delivered may end, and end a closed loader, at once */
    first = flight->locked.next_slot;
    count = extract_size(flight, first);
    flight->locked.next_slot += count;
    stk_engine_unlock(engine);
    stk_io_obey(&loader->gone);
    for (uint32_t slot = first; slot < first + count; slot++) {
        struct stk_fetch *fetch = stk_alloc(1, sizeof *fetch);

        if (!fetch) {
            failed++;
            continue;
        }
        fetch->flight = flight;
        fetch->slot = slot;
        stk_sample_span(loader, flight->batch->ids[slot], &fetch->span);
        if (!atomic_load_explicit(&flight->abandoned, memory_order_relaxed)) {
            extract_slot(fetch, worker, &counters);
        }
        *tail = fetch;
        tail = &fetch->next;
    }
    stk_io_obey(NULL);
    stk_fetch_deliver(engine, list);
    stk_engine_lock(engine, worker);
    loader->locked.extracting = false;
    loader->locked.counters.retries += counters.retries;
    stk_engine_signal_locked(engine, count);
    if (failed > 0) {
        struct stoker_error error;
        stk_fail(&error, -ENOMEM, "cannot read a sample", "free memory", "packed shard");
        stk_flight_fail_locked(flight, first, &error);
        stk_flight_done_locked(flight, failed, &(struct stk_counters){0});
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
    loader->locked.open_position =
        stk_partition_following(partition, loader->locked.open_epoch, loader->locked.open_position);
    loader->locked.open_epoch++;
    return true;
}

/* A batch, if need be in place of what lies unused in the engine. */
static int take_batch(struct stk_flight *flight, const uint64_t *value_bytes,
                      struct stoker_error *error)
{
    struct stoker_loader *loader = flight->loader;
    int status = stk_batch_take(loader->pool, flight->samples, value_bytes, &flight->batch, error);

    if (status == STOKER_ERROR_BUDGET && stk_engine_trim(loader->engine) > 0) {
        status = stk_batch_take(loader->pool, flight->samples, value_bytes, &flight->batch, error);
    }
    return status;
}

static uint64_t value_bytes_of(struct stoker_loader *loader, const struct stk_field *field,
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
static void plan_ids(struct stk_flight *flight, uint64_t *ids)
{
    struct stoker_loader *loader = flight->loader;
    uint32_t first = 0;

    for (uint32_t i = 0; i < flight->samples; i++) {
        struct stk_place *place = &flight->places[i];
        struct stk_place *begin = &flight->places[first];

        stk_partition_place(&loader->partition, flight->epoch, flight->position, i, place);
        if (place->epoch != begin->epoch || place->position != begin->position + (i - first)) {
            stk_schedule_read(&loader->plan.reader, begin->epoch, begin->position, i - first,
                              ids + first);
            first = i;
        }
    }
    if (flight->samples > 0) {
        stk_schedule_read(&loader->plan.reader, flight->places[first].epoch,
                          flight->places[first].position, flight->samples - first, ids + first);
    }
}

/* Offsets of a BYTES field's values. Sizes are asked once: those of a folder's files may change
 * between two looks. */
static int plan_offsets(struct stk_flight *flight, const struct stk_field *field,
                        const uint64_t *ids, uint64_t *offsets, struct stoker_error *error)
{
    for (uint32_t i = 0; i < flight->samples; i++) {
        uint64_t bytes = value_bytes_of(flight->loader, field, ids[i]);

        if (!stk_add(offsets[i], bytes, &offsets[i + 1]) || offsets[i + 1] > UINT64_MAX / 4) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "the values of a batch are too large",
                            "check the shards' headers, or lower batch_size", "%u samples",
                            flight->samples);
        }
    }
    return 0;
}

/* Ids, mask and places of a flight, and the room that its variable values need. */
static int plan_flight(struct stk_flight *flight, struct stoker_error *error)
{
    struct stoker_loader *loader = flight->loader;
    uint64_t value_bytes[STK_BATCH_FIELDS_MAX] = {0};
    uint64_t *offsets[STK_BATCH_FIELDS_MAX] = {NULL};
    uint64_t *ids = stk_alloc(flight->samples, sizeof *ids);
    int status = 0;

    if (!ids) {
        return stk_fail(error, -ENOMEM, "cannot plan a batch", "free memory", "%u samples",
                        flight->samples);
    }
    plan_ids(flight, ids);
    status = stk_schedule_reader_take(&loader->plan.reader, error);
    if (status == 0 && !flight->alone) {
        flight->alone = !stk_pieces_expect(flight, value_bytes);
    }
    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        if (loader->fields[f].shape.dtype != STOKER_BYTES || loader->fields[f].aside) {
            continue;
        }
        offsets[f] = stk_alloc(flight->samples + 1u, sizeof *offsets[f]);
        status = offsets[f] ? plan_offsets(flight, &loader->fields[f], ids, offsets[f], error)
                            : stk_fail(error, -ENOMEM, "cannot plan a batch", "free memory",
                                       "%u samples", flight->samples);
        value_bytes[f] = offsets[f] ? offsets[f][flight->samples] : 0;
    }
    if (status == 0) {
        status = take_batch(flight, value_bytes, error);
    }
    if (status == 0) {
        status = stk_pieces_open(flight, value_bytes, error);
    }
    for (uint32_t f = 0; f < loader->field_count; f++) {
        if (status == 0 && offsets[f]) {
            memcpy(flight->batch->fields[f].offsets, offsets[f],
                   (flight->samples + 1u) * sizeof *offsets[f]);
        }
        stk_free(offsets[f]);
    }
    for (uint32_t i = 0; status == 0 && i < flight->samples; i++) {
        flight->batch->ids[i] = ids[i];
        flight->batch->mask[i] = flight->places[i].real;
    }
    stk_free(ids);
    return status;
}

/* Adds an opened flight to the ring, unless the loader was turned elsewhere meanwhile. */
static void launch_locked(struct stk_flight *flight)
{
    struct stoker_loader *loader = flight->loader;
    uint32_t timeout_ms = loader->engine->options.read_timeout_ms;

    flight->memory_wait_ms = loader->locked.ahead > 1 && !flight->alone
                                 ? (uint32_t)stk_min(timeout_ms, MEMORY_SHORT_MS)
                                 : timeout_ms;
    if (loader->locked.tail) {
        loader->locked.tail->next = flight;
    } else {
        loader->locked.head = flight;
    }
    loader->locked.tail = flight;
    loader->locked.flight_count++;
    loader->locked.alone = flight->alone && flight->samples > 0;
    if (flight->samples == 0) {
        pthread_cond_broadcast(&loader->ready);
    }
    stk_engine_signal_locked(loader->engine, flight->samples);
}

/* alone: no memory is set aside for values that go aside. */
static struct stk_flight *flight_open(struct stoker_loader *loader, uint64_t epoch,
                                      uint64_t position, bool alone, struct stoker_error *error)
{
    const struct stk_partition *partition = &loader->partition;
    struct stk_flight *flight = stk_alloc(1, sizeof *flight);
    int status = -ENOMEM;

    if (flight) {
        flight->loader = loader;
        flight->alone = alone;
        flight->epoch = epoch;
        flight->position = position;
        flight->next_position = position + stk_partition_stride(partition);
        flight->samples = stk_partition_slots(partition, epoch, position);
        flight->places = stk_alloc(flight->samples, sizeof *flight->places);
    }
    if (!flight || !flight->places) {
        stk_fail(error, -ENOMEM, "cannot open a batch", "free memory", "flight");
    } else {
        status = plan_flight(flight, error);
    }
    if (status < 0) {
        flight_free(flight);
        return NULL;
    }
    return flight;
}

/* Another client's caller waits for memory: what nobody waits for must not take it. */
static bool yields_locked(const struct stoker_loader *loader)
{
    return loader->client.waiting == 0 && stk_engine_wants_memory_locked(loader->engine);
}

static bool open_step_locked(struct stoker_loader *loader, struct stk_worker *worker)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_flight *flight;
    struct stoker_error error = {0};
    uint64_t generation = loader->locked.generation;
    uint64_t returns = engine->locked.returns;

    if (loader->locked.opening || loader->locked.starved || loader->locked.alone ||
        loader->locked.flight_count >= loader->locked.ahead ||
        stk_batch_pool_out(loader->pool) >= loader->locked.out_limit || yields_locked(loader) ||
        !next_step_locked(loader)) {
        return false;
    }
    loader->locked.opening = true;
    loader->locked.pins++;
    uint64_t epoch = loader->locked.open_epoch, position = loader->locked.open_position;
    bool alone = loader->aside_count > 0 && loader->locked.flight_count == 0;
    stk_engine_unlock(engine);
    stk_io_obey(&loader->gone);
    flight = flight_open(loader, epoch, position, false, &error);
    if (!flight && alone && error.status == STOKER_ERROR_BUDGET) {
        flight = flight_open(loader, epoch, position, true, &error);
    }
    stk_io_obey(NULL);
    stk_engine_lock(engine, worker);
    loader->locked.opening = false;
    if (flight) {
        loader->locked.starved_since_ns = 0;
        loader->locked.hungry = false;
    }
    if (flight && loader->locked.generation == generation) {
        loader->locked.open_position = flight->next_position;
        launch_locked(flight); /* the pin is the flight's now */
        return true;
    }
    if (!flight && engine->locked.returns == returns) { /* else: try again with what came back */
        loader->locked.starved = true;
        if (loader->locked.starved_since_ns == 0) {
            loader->locked.starved_since_ns = stk_engine_now(engine);
        }
        loader->locked.open_error = error;
        pthread_cond_broadcast(&loader->ready);
    }
    stk_engine_unlock(engine);
    flight_free(flight);
    stk_engine_lock(engine, worker);
    stk_loader_unpin_locked(loader);
    return true;
}

/* ---- ending ---- */

static void flight_free(struct stk_flight *flight)
{
    struct stk_override *override, *next;

    if (!flight) {
        return;
    }
    for (override = flight->locked.overrides; override; override = next) {
        next = override->next;
        stk_budget_release(&flight->loader->engine->budget, override->bytes);
        stk_free(override->data);
        stk_free(override);
    }
    stoker_batch_close(flight->batch);
    stk_pieces_close(flight);
    stk_notes_free(flight->locked.notes);
    stk_free(flight->places);
    stk_free(flight);
}

void stk_flight_finish_locked(struct stk_flight *flight)
{
    struct stoker_loader *loader = flight->loader;
    struct stoker_engine *engine = loader->engine;

    stk_engine_unlock(engine);
    flight_free(flight);
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
    stk_engine_remove_locked(engine, &loader->client);
    /* The engine outlives this: a worker is joined before it goes, a caller holds it. */
    stk_engine_unlock(engine);
    stk_loader_free(loader);
    stk_engine_lock(engine, NULL);
}

void stk_flight_done_locked(struct stk_flight *flight, uint32_t count,
                            const struct stk_counters *counters)
{
    struct stoker_loader *loader = flight->loader;
    struct stk_counters *sum = &loader->locked.counters;
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
    flight->locked.substituted += (uint32_t)counters->substituted;
    flight->locked.done_count += count;
    STK_ASSERT(flight->locked.done_count <= flight->samples);
    if (flight->locked.done_count < flight->samples) {
        return;
    }
    if (atomic_load_explicit(&flight->abandoned, memory_order_relaxed)) {
        stk_flight_finish_locked(flight);
        return;
    }
    if ((flight->locked.overrides || flight->pieces) && flight->locked.error.status == 0) {
        struct stoker_error error = {0};

        /* Only this thread touches a flight whose slots are all done but not announced. */
        flight->locked.done_count--;
        stk_engine_unlock(loader->engine);
        if (stk_values_lay_out(flight, &error) < 0) {
            flight->locked.error = error;
            flight->locked.error_slot = 0;
        }
        stk_engine_lock(loader->engine, NULL);
        flight->locked.done_count++;
        if (atomic_load_explicit(&flight->abandoned, memory_order_relaxed)) {
            stk_flight_finish_locked(flight);
            return;
        }
    }
    if (flight->alone) {
        loader->locked.alone = false;
        stk_engine_signal_locked(loader->engine, 1);
    }
    if (flight == loader->locked.head) {
        pthread_cond_broadcast(&loader->ready);
    }
}

void stk_flight_fail_locked(struct stk_flight *flight, uint32_t slot,
                            const struct stoker_error *error)
{
    int had = flight->locked.error.status;

    if (had < 0 && !stk_is_damage(had) && !stk_is_damage(error->status)) {
        return; /* the first was retried in full, others gave up when they saw it */
    }
    if (had == 0 || slot < flight->locked.error_slot) {
        flight->locked.error = *error;
        flight->locked.error_slot = slot;
    }
}

void stk_flights_abandon_locked(struct stoker_loader *loader)
{
    struct stk_flight *flight = loader->locked.head, *next, *finished = NULL;

    for (; flight; flight = next) {
        next = flight->next;
        atomic_store_explicit(&flight->abandoned, true, memory_order_relaxed);
        /* Slots that nobody claimed count as done. */
        flight->locked.done_count += flight->samples - flight->locked.next_slot;
        flight->locked.next_slot = flight->samples;
        if (flight->locked.done_count >= flight->samples) {
            flight->next = finished;
            finished = flight;
        }
    }
    loader->locked.head = loader->locked.tail = NULL;
    loader->locked.flight_count = 0;
    loader->locked.generation++;
    loader->locked.starved = false;
    loader->locked.alone = false;
    pthread_cond_broadcast(&loader->ready); /* who waits for a retry need not */
    for (; finished; finished = next) {
        next = finished->next;
        stk_flight_finish_locked(finished);
    }
}
