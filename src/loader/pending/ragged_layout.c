/* Values of varying size: allocated for each slot, then laid out in the arrays of the batch. */
#include "loader/pending/ragged_layout.h"

#include "base/mem.h"
#include "loader/pending/value_override.h"

#include <errno.h>
#include <string.h>

/* Attempts to grow a buffer while other threads take the memory that became free. */
#define GROW_ATTEMPTS 8u

/* ---- values of slots ---- */

static struct stk_ragged_value *ragged_value_of(struct stk_pending_batch *pending,
                                                const struct stk_loader_field *field, uint32_t slot)
{
    return &pending->ragged_values[(uint64_t)field->out_of_line_index * pending->samples + slot];
}

static void ragged_value_free(struct stk_pending_batch *pending, struct stk_ragged_value *value)
{
    if (value->from_reservation) {
        atomic_fetch_add_explicit(&pending->reserved_left, value->bytes, memory_order_relaxed);
    } else {
        stk_budget_release(&pending->loader->engine->budget, value->bytes);
    }
    stk_free(value->data);
    *value = (struct stk_ragged_value){0};
}

/* Takes memory from the batch's reservation, or from the budget. */
static int reserve(struct stk_pending_batch *pending, uint64_t bytes, bool *from_reservation_out,
                   struct stoker_error *error)
{
    struct stoker_engine *engine = pending->loader->engine;
    /* Relaxed: it is a count, which guards no memory. */
    uint64_t left = atomic_load_explicit(&pending->reserved_left, memory_order_relaxed);

    while (left >= bytes &&
           !atomic_compare_exchange_weak_explicit(&pending->reserved_left, &left, left - bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    *from_reservation_out = left >= bytes;
    return left >= bytes ? 0
                         : stk_engine_reserve(engine, bytes, pending->memory_wait_ms,
                                              "a value of a sample", error);
}

int stk_ragged_value_alloc(struct stk_pending_batch *pending, uint32_t field, uint32_t slot,
                           uint64_t bytes, struct stk_ragged_value **value_out,
                           struct stoker_error *error)
{
    struct stk_ragged_value *value =
        ragged_value_of(pending, &pending->loader->fields[field], slot);
    bool from_reservation;
    int status;

    *value_out = value;
    ragged_value_free(pending, value);
    if (bytes == 0) {
        return 0;
    }
    status = reserve(pending, bytes, &from_reservation, error);
    if (status < 0) {
        return status;
    }
    *value = (struct stk_ragged_value){stk_alloc(bytes, 1), bytes, {0}, from_reservation};
    if (value->data) {
        return 0;
    }
    ragged_value_free(pending, value);
    return stk_fail(error, -ENOMEM, "cannot keep a value", "free memory", "%llu bytes",
                    (unsigned long long)bytes);
}

bool stk_ragged_values_estimate(const struct stk_pending_batch *pending, uint64_t *value_bytes)
{
    struct stoker_loader *loader = pending->loader;
    bool known = true;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        if (loader->fields[f].out_of_line) {
            uint64_t most =
                atomic_load_explicit(&loader->out_of_line_bytes[f], memory_order_relaxed);

            known = known && most != UINT64_MAX;
            value_bytes[f] = most == UINT64_MAX ? 0 : most;
        }
    }
    return known;
}

int stk_ragged_values_open(struct stk_pending_batch *pending, const uint64_t *value_bytes,
                           struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    uint64_t count = (uint64_t)loader->out_of_line_count * pending->samples, sum = 0;
    int status;

    if (count == 0) {
        return 0;
    }
    for (uint32_t f = 0; f < loader->field_count; f++) {
        /* A batch had these sizes, reserved: the sum cannot wrap. */
        sum += loader->fields[f].out_of_line ? value_bytes[f] + value_bytes[f] / 8 : 0;
    }
    status = stk_engine_reserve(loader->engine, sum, 0, "values of a batch", error);
    if (status < 0) {
        return status;
    }
    pending->reserved_bytes = sum;
    atomic_store_explicit(&pending->reserved_left, sum, memory_order_relaxed);
    pending->ragged_values = stk_alloc(count, sizeof *pending->ragged_values);
    return pending->ragged_values ? 0
                                  : stk_fail(error, -ENOMEM, "cannot open a batch", "free memory",
                                             "%u samples", pending->samples);
}

void stk_ragged_values_close(struct stk_pending_batch *pending)
{
    uint64_t count = (uint64_t)pending->loader->out_of_line_count * pending->samples;

    for (uint64_t i = 0; pending->ragged_values && i < count; i++) {
        ragged_value_free(pending, &pending->ragged_values[i]);
    }
    stk_free(pending->ragged_values);
    pending->ragged_values = NULL;
    stk_budget_release(&pending->loader->engine->budget, pending->reserved_bytes);
    pending->reserved_bytes = 0;
}

/* Grows a field's array in the batch. Unused memory of the engine is freed for it; else this waits
 * as long as for the memory of a sample. */
static int grow(struct stk_pending_batch *pending, uint32_t f, uint64_t bytes,
                struct stoker_error *error)
{
    struct stoker_engine *engine = pending->loader->engine;
    int status = stk_batch_grow(pending->batch, f, bytes, error);

    for (uint32_t i = 0; i < GROW_ATTEMPTS && status == STOKER_ERROR_BUDGET; i++) {
        uint64_t wanted = stk_batch_buffer_bytes(bytes);

        status =
            stk_engine_reserve(engine, wanted, pending->memory_wait_ms, "values of a batch", error);
        if (status < 0) {
            break;
        }
        stk_budget_release(&engine->budget, wanted);
        status = stk_batch_grow(pending->batch, f, bytes, error);
    }
    return status;
}

static void raise_maximum(_Atomic uint64_t *most, uint64_t bytes)
{
    uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);

    while ((seen == UINT64_MAX || seen < bytes) &&
           !atomic_compare_exchange_weak_explicit(most, &seen, bytes, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

/* ---- layout ---- */

static int layout_field(struct stk_pending_batch *pending, uint32_t f, struct stoker_error *error)
{
    const struct stk_loader_field *field = &pending->loader->fields[f];
    struct stoker_batch *batch = pending->batch;
    uint64_t row_bytes = stk_batch_field_row_bytes(&field->shape), total = 0;
    uint32_t rank = field->shape.dimension_count;
    int status;

    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        total += ragged_value_of(pending, field, slot)
                     ->bytes; /* all of it is reserved: the sum cannot wrap */
    }
    status = grow(pending, f, total, error);
    if (status < 0) {
        return status;
    }
    raise_maximum(&pending->loader->out_of_line_bytes[f], total);
    total = 0;
    batch->fields[f].offsets[0] = 0;
    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        struct stk_ragged_value *value = ragged_value_of(pending, field, slot);

        if (value->bytes > 0) {
            memcpy(batch->fields[f].data + total, value->data, value->bytes);
        }
        total += value->bytes;
        batch->fields[f].offsets[slot + 1] = total / row_bytes;
        if (batch->fields[f].sides) {
            memcpy(batch->fields[f].sides + (uint64_t)slot * rank, value->sides,
                   rank * sizeof *value->sides);
        }
        ragged_value_free(pending, value);
    }
    return 0;
}

/* The value of a slot: its override, else the bytes in its space. */
static struct stk_view value_of(const struct stk_pending_batch *pending, uint32_t field,
                                uint32_t slot)
{
    const uint64_t *offsets = pending->batch->fields[field].offsets;

    const struct stk_value_override *override = stk_value_override_find(pending, field, slot);

    if (override) {
        return (struct stk_view){override->data, override->bytes};
    }
    return (struct stk_view){pending->batch->fields[field].data + offsets[slot],
                             offsets[slot + 1] - offsets[slot]};
}

/* Lays out a field whose substitutes have values of other sizes than planned. */
static int relayout_field(struct stk_pending_batch *pending, uint32_t field,
                          struct stoker_error *error)
{
    struct stoker_engine *engine = pending->loader->engine;
    struct stoker_batch *batch = pending->batch;
    uint64_t total = 0, offset = 0;
    uint8_t *copy;
    uint64_t *offsets;
    int status = 0;

    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        total += value_of(pending, field, slot).bytes;
    }
    status = stk_engine_reserve(engine, total, pending->memory_wait_ms,
                                "laying out substituted values", error);
    if (status < 0) {
        return status;
    }
    copy = stk_alloc(total, 1);
    offsets = stk_alloc(pending->samples + 1u, sizeof *offsets);
    if (!copy || !offsets) {
        status = stk_fail(error, -ENOMEM, "cannot lay out substituted values", "free memory",
                          "%llu bytes", (unsigned long long)total);
        goto done;
    }
    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        struct stk_view value = value_of(pending, field, slot);
        memcpy(copy + offset, value.data, value.bytes);
        offset += value.bytes;
        offsets[slot + 1] = offset;
    }
    status = grow(pending, field, total, error);
    if (status == 0) {
        memcpy(batch->fields[field].data, copy, total);
        memcpy(batch->fields[field].offsets, offsets, (pending->samples + 1u) * sizeof *offsets);
    }
done:
    stk_free(copy);
    stk_free(offsets);
    stk_budget_release(&engine->budget, total);
    return status;
}

int stk_ragged_values_layout(struct stk_pending_batch *pending, struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    bool touched[STK_BATCH_FIELDS_MAX] = {false};
    int status = 0;

    for (struct stk_value_override *it = pending->locked.overrides; it; it = it->next) {
        touched[it->field] = true;
    }
    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        if (loader->fields[f].out_of_line) {
            status = layout_field(pending, f, error);
        } else if (touched[f]) {
            status = relayout_field(pending, f, error);
        }
    }
    stk_ragged_values_close(pending);
    return status;
}
