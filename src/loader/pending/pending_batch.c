/* The ring of pending batches: open, enqueue, claim, end, take. */
#include "loader/pending/pending_batch.h"

#include "base/mem.h"
#include "base/retry.h"
#include "engine/worker.h"
#include "loader/pending/loader_maps.h"
#include "loader/pending/quarantine.h"
#include "loader/pending/ragged_layout.h"
#include "loader/pending/sample_members.h"
#include "loader/pending/value_override.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_SHORT_MS 100u

/* ---- opening ---- */

/* A batch of the pool. If the budget has no space, unused memory of the engine is freed first. */
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

/* The sample ids of all slots, and their positions in the order. Consecutive positions are read
 * with one call. */
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

/* Offsets of the values of a BYTES field. Each size is read once: the size of a folder's file may
 * change between two reads. */
static int plan_offsets(struct stk_pending_batch *pending, const struct stk_loader_field *field,
                        const uint64_t *ids, uint64_t *offsets, struct stoker_error *error)
{
    for (uint32_t i = 0; i < pending->samples; i++) {
        uint64_t bytes = stk_sample_value_bytes(pending->loader, field, ids[i]);

        if (!stk_add(offsets[i], bytes, &offsets[i + 1]) || offsets[i + 1] > UINT64_MAX / 4) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "the values of a batch are too large",
                            "check the shards' headers, or lower batch_size", "%u samples",
                            pending->samples);
        }
    }
    return 0;
}

/* If a single value of the batch is larger than the budget, no other batch size helps: says which
 * sample has it. */
static void name_large_sample(const struct stk_pending_batch *pending, const uint64_t *ids,
                              uint64_t *const *offsets, struct stoker_error *error)
{
    const struct stoker_dataset *dataset = pending->loader->dataset;
    uint64_t budget = pending->loader->engine->budget.bytes_max, most = 0;
    struct stk_sample sample;
    uint32_t slot = 0;
    char key[256];

    for (uint32_t f = 0; f < pending->loader->field_count; f++) {
        for (uint32_t i = 0; offsets[f] && i < pending->samples; i++) {
            slot = offsets[f][i + 1] - offsets[f][i] > most ? i : slot;
            most = stk_max(most, offsets[f][i + 1] - offsets[f][i]);
        }
    }
    if (!error || most <= budget ||
        stk_index_sample(dataset->index, ids[slot], &sample, NULL) < 0) {
        return;
    }
    *error = (struct stoker_error){0};
    stk_fail(error, STOKER_ERROR_BUDGET, "a sample is larger than the memory budget",
             "raise the memory budget (in Python: memory=), or leave the sample out",
             "%llu bytes, the budget is %llu", (unsigned long long)most,
             (unsigned long long)budget);
    snprintf(key, sizeof key, "%.*s", (int)stk_min(sample.key.bytes, 200),
             (const char *)sample.key.data);
    stk_dataset_error_add_location(dataset, error, sample.shard, STOKER_NO_OFFSET, key);
}

/* Sample ids, mask and positions of a batch, and memory for its values. */
static int plan_batch(struct stk_pending_batch *pending, struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    uint64_t value_bytes[STK_BATCH_FIELDS_MAX] = {0};
    uint64_t *offsets[STK_BATCH_FIELDS_MAX] = {NULL};
    uint64_t *ids = stk_alloc(pending->samples, sizeof *ids);
    struct stoker_error changed;
    int status = 0;

    if (!ids) {
        return stk_fail(error, -ENOMEM, "cannot plan a batch", "free memory", "%u samples",
                        pending->samples);
    }
    plan_ids(pending, ids);
    status = stk_schedule_reader_error(&loader->plan.reader, error);
    if (status < 0 && stk_loader_maps_check_now(loader, &changed) < 0) {
        *error = changed; /* a table that changed is why its numbers contradict each other */
        status = changed.status;
    }
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
        if (status == STOKER_ERROR_BUDGET) {
            name_large_sample(pending, ids, offsets, error);
        }
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

struct stk_pending_batch *stk_pending_batch_open(struct stoker_loader *loader, uint64_t epoch,
                                                 uint64_t position, bool exclusive,
                                                 struct stoker_error *error)
{
    const struct stk_partition *partition = &loader->partition;
    struct stk_pending_batch *pending = stk_alloc(1, sizeof *pending);
    int status = -ENOMEM;

    if (pending) {
        pending->loader = loader;
        pending->exclusive = exclusive;
        pending->epoch = epoch;
        pending->position = position;
        pending->next_position = position + stk_partition_stride(partition);
        pending->samples = stk_partition_batch_slots(partition, epoch, position);
        pending->order_places = stk_alloc(pending->samples, sizeof *pending->order_places);
    }
    if (!pending || !pending->order_places) {
        stk_fail(error, -ENOMEM, "cannot open a batch", "free memory", "pending batch");
    } else {
        status = plan_batch(pending, error);
    }
    if (status < 0) {
        stk_pending_batch_close(pending);
        return NULL;
    }
    return pending;
}

void stk_pending_batch_enqueue_locked(struct stk_pending_batch *pending)
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

void stk_pending_batch_close(struct stk_pending_batch *pending)
{
    if (!pending) {
        return;
    }
    stk_value_overrides_free(pending);
    stoker_batch_close(pending->batch);
    stk_ragged_values_close(pending);
    stk_quarantine_notes_free(pending->locked.notes);
    stk_free(pending->order_places);
    stk_free(pending);
}

/* ---- slots ---- */

struct stk_pending_batch *stk_pending_batch_claimable_locked(struct stoker_loader *loader)
{
    struct stk_pending_batch *pending = loader->locked.head;

    while (pending && pending->locked.next_slot >= pending->samples) {
        pending = pending->next;
    }
    return pending;
}

uint32_t stk_pending_batch_claim_locked(struct stk_pending_batch *pending, uint32_t count)
{
    uint32_t first = pending->locked.next_slot;

    STK_ASSERT(count <= pending->samples - first);
    pending->locked.next_slot += count;
    return first;
}

void stk_pending_batch_fail_locked(struct stk_pending_batch *pending, uint32_t slot,
                                   const struct stoker_error *error)
{
    int had = pending->locked.error.status;

    STK_ASSERT(error->status < 0);
    if (had < 0 && !stk_error_is_data(had) && !stk_error_is_data(error->status)) {
        return; /* the first one was retried to the end; the others were cancelled because of it */
    }
    if (had == 0 || slot < pending->locked.error_slot) {
        pending->locked.error = *error;
        pending->locked.error_slot = slot;
    }
}

/* Frees a batch that left the ring, and releases its pin. Returns true if it was the last pin. */
static bool free_locked(struct stk_pending_batch *pending)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_engine *engine = loader->engine;

    stk_engine_unlock(engine);
    stk_pending_batch_close(pending);
    stk_engine_lock(engine, NULL);
    STK_ASSERT(loader->locked.pins > 0);
    return --loader->locked.pins == 0;
}

static void add_counters_locked(struct stoker_loader *loader,
                                const struct stk_loader_counters *counters)
{
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
}

/* Lays out values of varying size. The lock is released meanwhile: no other thread uses a batch
 * whose slots have all ended, and which is not complete yet. */
static void layout_locked(struct stk_pending_batch *pending)
{
    struct stoker_engine *engine = pending->loader->engine;
    struct stoker_error error = {0};

    pending->locked.done_count--;
    stk_engine_unlock(engine);
    if (stk_ragged_values_layout(pending, &error) < 0) {
        pending->locked.error = error;
        pending->locked.error_slot = 0;
    }
    stk_engine_lock(engine, NULL);
    pending->locked.done_count++;
}

static bool is_cancelled(const struct stk_pending_batch *pending)
{
    return atomic_load_explicit(&pending->cancelled, memory_order_relaxed);
}

bool stk_pending_batch_end_slots_locked(struct stk_pending_batch *pending, uint32_t count,
                                        const struct stk_loader_counters *counters)
{
    struct stoker_loader *loader = pending->loader;

    add_counters_locked(loader, counters);
    pending->locked.substituted += (uint32_t)counters->substituted;
    pending->locked.done_count += count;
    STK_ASSERT(pending->locked.done_count <= pending->samples);
    if (pending->locked.done_count < pending->samples) {
        return false;
    }
    if (!is_cancelled(pending) && (pending->locked.overrides || pending->ragged_values) &&
        pending->locked.error.status == 0) {
        layout_locked(pending);
    }
    if (is_cancelled(pending)) {
        return free_locked(pending);
    }
    if (pending->exclusive) {
        loader->locked.exclusive = false;
        stk_engine_signal_locked(loader->engine, 1);
    }
    if (pending == loader->locked.head) {
        pthread_cond_broadcast(&loader->ready);
    }
    return false;
}

/* ---- the ring ---- */

struct stoker_batch *stk_pending_batch_take_locked(struct stoker_loader *loader)
{
    struct stk_pending_batch *pending = loader->locked.head;
    struct stoker_batch *batch = pending->batch;
    bool added = stk_delivered_add(&loader->locked.delivered_steps, &loader->partition,
                                   pending->epoch, pending->position);
    bool is_last;

    STK_ASSERT(added); /* stoker_loader_next keeps space for it */
    loader->locked.head = pending->next;
    if (!pending->next) {
        loader->locked.tail = NULL;
    }
    loader->locked.pending_count--;
    loader->locked.position = pending->next_position;
    loader->locked.batches++;
    loader->locked.delivered += pending->samples;
    loader->locked.counters.substituted += pending->locked.substituted;
    pending->batch = NULL;
    is_last = free_locked(pending);
    STK_ASSERT(!is_last); /* the caller holds a pin */
    stk_engine_signal_locked(loader->engine, 1);
    return batch;
}

void stk_pending_batches_cancel_locked(struct stoker_loader *loader)
{
    struct stk_pending_batch *pending = loader->locked.head, *next, *finished = NULL;
    bool is_last;

    for (; pending; pending = next) {
        next = pending->next;
        atomic_store_explicit(&pending->cancelled, true, memory_order_relaxed);
        /* Unclaimed slots count as ended. */
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
    pthread_cond_broadcast(&loader->ready); /* ends the waits before retries */
    for (; finished; finished = next) {
        next = finished->next;
        is_last = free_locked(finished);
        STK_ASSERT(!is_last); /* the caller holds a pin */
    }
}

void stk_pending_batches_seek_locked(struct stoker_loader *loader, uint64_t epoch,
                                     uint64_t position)
{
    /* The position is set first: cancelling releases the lock, and batches that workers open
     * meanwhile must be those at the new position. */
    loader->locked.epoch = loader->locked.open_epoch = epoch;
    loader->locked.position = loader->locked.open_position = position;
    stk_pending_batches_cancel_locked(loader);
    stk_engine_signal_locked(loader->engine, 1);
}
