/* Batches and the pool that they return to. */
#include "engine/batch/batch.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct stk_batch_pool {
    struct stk_batch_owner owner;                              /* constant after open */
    struct stk_batch_field_shape fields[STK_BATCH_FIELDS_MAX]; /* constant after open */
    uint32_t field_count, slots;                               /* constant after open */
    pid_t pid;                                                 /* constant after open */
    _Atomic uint32_t out_count;
    pthread_mutex_t lock;
    struct {
        struct stoker_batch *free_list;
        uint32_t users; /* batches in use, and calls of close in progress */
        bool closed;
    } locked;
};

static void batch_free(struct stoker_batch *batch);
static void pool_free(struct stk_batch_pool *pool);
static int reserve(struct stk_batch_pool *pool, uint64_t bytes, struct stoker_error *error);

int stk_batch_pool_open(struct stk_batch_pool **pool_out, const struct stk_batch_owner *owner,
                        const struct stk_batch_field_shape *fields, uint32_t field_count,
                        uint32_t slots, struct stoker_error *error)
{
    struct stk_batch_pool *pool;

    STK_ASSERT(field_count <= STK_BATCH_FIELDS_MAX);
    *pool_out = NULL;
    for (uint32_t i = 0; i < field_count; i++) {
        uint64_t bytes;

        if (!stk_multiply(fields[i].slot_bytes, slots, &bytes) || bytes > UINT64_MAX / 4) {
            return stk_fail(error, STOKER_ERROR_BUDGET, "one batch is larger than memory",
                            "lower the batch size, or the size of the images or arrays",
                            "%u samples of %llu bytes", slots,
                            (unsigned long long)fields[i].slot_bytes);
        }
    }
    pool = stk_alloc(1, sizeof *pool);
    if (!pool) {
        return stk_fail(error, -ENOMEM, "cannot open a batch pool", "free memory", "batch pool");
    }
    pool->owner = *owner;
    memcpy(pool->fields, fields, field_count * sizeof *fields);
    pool->field_count = field_count;
    pool->slots = slots;
    pool->pid = stk_process_id();
    pthread_mutex_init(&pool->lock, NULL);
    *pool_out = pool;
    return 0;
}

void stk_batch_pool_close(struct stk_batch_pool *pool)
{
    bool empty;

    if (!pool) {
        return;
    }
    stk_batch_pool_trim(pool);
    pthread_mutex_lock(&pool->lock);
    pool->locked.closed = true;
    empty = pool->locked.users == 0;
    pthread_mutex_unlock(&pool->lock);
    if (empty) {
        pool_free(pool);
    }
}

uint64_t stk_batch_pool_trim(struct stk_batch_pool *pool)
{
    struct stoker_batch *list, *next;
    uint64_t bytes = 0;

    pthread_mutex_lock(&pool->lock);
    list = pool->locked.free_list;
    pool->locked.free_list = NULL;
    pthread_mutex_unlock(&pool->lock);
    for (; list; list = next) {
        next = list->next;
        bytes += list->bytes;
        batch_free(list);
    }
    return bytes;
}

static void pool_free(struct stk_batch_pool *pool)
{
    struct stk_batch_owner owner = pool->owner;

    stk_batch_pool_trim(pool);
    pthread_mutex_destroy(&pool->lock);
    stk_free(pool);
    owner.release(owner.owner);
}

static void batch_free(struct stoker_batch *batch)
{
    struct stk_batch_pool *pool = batch->pool;

    for (uint32_t i = 0; i < pool->field_count; i++) {
        stk_pages_free(batch->fields[i].data, batch->fields[i].capacity);
        stk_free(batch->fields[i].offsets);
        stk_free(batch->fields[i].sides);
    }
    stk_free(batch->ids);
    stk_free(batch->mask);
    stk_budget_release(pool->owner.budget, batch->bytes);
    stk_free(batch);
}

static int reserve(struct stk_batch_pool *pool, uint64_t bytes, struct stoker_error *error)
{
    if (stk_budget_reserve(pool->owner.budget, bytes)) {
        return 0;
    }
    return stk_fail(
        error, STOKER_ERROR_BUDGET, "cannot take memory for a batch",
        "close batches that you keep, or raise the memory budget",
        "%llu bytes wanted, %llu of %llu in use, %u batches in use", (unsigned long long)bytes,
        (unsigned long long)atomic_load(&pool->owner.budget->bytes),
        (unsigned long long)pool->owner.budget->bytes_max, atomic_load(&pool->out_count));
}

/* Arrays of varying size grow by an eighth, so that they stop growing after a few batches. */
uint64_t stk_batch_buffer_bytes(uint64_t bytes)
{
    return stk_round_up(stk_max(bytes + bytes / 8, 1), 4096);
}

/* Makes a field's buffer at least `bytes` large; its contents are lost if it grows. */
static int field_reserve(struct stoker_batch *batch, uint32_t field, uint64_t bytes,
                         struct stoker_error *error)
{
    struct stk_batch_pool *pool = batch->pool;
    uint64_t capacity = batch->fields[field].capacity;
    int status;

    if (bytes <= capacity && capacity > 0) {
        return 0;
    }
    stk_pages_free(batch->fields[field].data, capacity);
    batch->fields[field].data = NULL;
    batch->fields[field].capacity = 0;
    stk_budget_release(pool->owner.budget, capacity);
    batch->bytes -= capacity;

    if (bytes > UINT64_MAX / 4) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a batch is larger than memory",
                        "lower the batch size", "%llu bytes", (unsigned long long)bytes);
    }
    bytes = stk_batch_field_varies(&pool->fields[field]) ? stk_batch_buffer_bytes(bytes)
                                                         : stk_round_up(stk_max(bytes, 1), 4096);
    status = reserve(pool, bytes, error);
    if (status < 0) {
        return status;
    }
    batch->fields[field].data = stk_pages_alloc(bytes);
    if (!batch->fields[field].data) {
        stk_budget_release(pool->owner.budget, bytes);
        return stk_fail(error, -ENOMEM, "cannot take memory for a batch",
                        "free memory or lower the batch size", "%llu bytes",
                        (unsigned long long)bytes);
    }
    batch->fields[field].capacity = bytes;
    batch->bytes += bytes;
    return 0;
}

/* Allocates a batch with its small arrays, without buffers of fields. */
static struct stoker_batch *batch_new(struct stk_batch_pool *pool)
{
    struct stoker_batch *batch = stk_alloc(1, sizeof *batch);
    bool is_complete;

    if (!batch) {
        return NULL;
    }
    batch->pool = pool;
    batch->ids = stk_alloc(pool->slots, sizeof *batch->ids);
    batch->mask = stk_alloc(pool->slots, sizeof *batch->mask);
    is_complete = batch->ids && batch->mask;
    for (uint32_t i = 0; is_complete && i < pool->field_count; i++) {
        if (stk_batch_field_varies(&pool->fields[i])) {
            batch->fields[i].offsets = stk_alloc(pool->slots + 1u, sizeof(uint64_t));
            is_complete = batch->fields[i].offsets != NULL;
        }
        if (stk_batch_field_has_sides(&pool->fields[i])) {
            uint64_t count = (uint64_t)pool->slots * pool->fields[i].dimension_count;

            batch->fields[i].sides = stk_alloc(count, sizeof(uint64_t));
            is_complete = is_complete && batch->fields[i].sides;
        }
    }
    if (!is_complete) {
        batch_free(batch);
        return NULL;
    }
    return batch;
}

/* Takes a batch of the free list, or a new one, and makes it large enough for the values. */
static int take(struct stk_batch_pool *pool, const uint64_t *value_bytes,
                struct stoker_batch **batch_out, struct stoker_error *error)
{
    struct stoker_batch *batch;
    int status = 0;

    pthread_mutex_lock(&pool->lock);
    batch = pool->locked.free_list;
    if (batch) {
        pool->locked.free_list = batch->next;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!batch) {
        batch = batch_new(pool);
    }
    if (!batch) {
        return stk_fail(error, -ENOMEM, "cannot make a batch", "free memory", "%u slots",
                        pool->slots);
    }
    for (uint32_t i = 0; status == 0 && i < pool->field_count; i++) {
        bool variable = stk_batch_field_varies(&pool->fields[i]);
        uint64_t bytes = variable ? value_bytes[i] : pool->fields[i].slot_bytes * pool->slots;
        status = field_reserve(batch, i, bytes, error);
    }
    if (status < 0) {
        batch_free(batch);
        return status;
    }
    *batch_out = batch;
    return 0;
}

int stk_batch_pool_get(struct stk_batch_pool *pool, uint32_t samples, const uint64_t *value_bytes,
                       struct stoker_batch **batch_out, struct stoker_error *error)
{
    struct stoker_batch *batch;
    int status;

    STK_ASSERT(samples <= pool->slots);
    *batch_out = NULL;
    status = take(pool, value_bytes, &batch, error);
    if (status == STOKER_ERROR_BUDGET) {
        /* A batch that could not grow was freed: its memory may suffice now. */
        stk_batch_pool_trim(pool);
        status = take(pool, value_bytes, &batch, error);
    }
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&pool->lock);
    pool->locked.users++;
    pthread_mutex_unlock(&pool->lock);
    batch->samples = samples;
    batch->next = NULL;
    atomic_store_explicit(&batch->holders, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->out_count, 1, memory_order_relaxed);
    *batch_out = batch;
    return 0;
}

int stk_batch_grow(struct stoker_batch *batch, uint32_t field, uint64_t bytes,
                   struct stoker_error *error)
{
    return field_reserve(batch, field, bytes, error);
}

bool stk_batch_field_has_sides(const struct stk_batch_field_shape *shape)
{
    bool rows = shape->shape[0] < 0;

    for (uint32_t i = 1; i < shape->dimension_count; i++) {
        rows = rows && shape->shape[i] >= 0;
    }
    return shape->ragged && !rows;
}

uint64_t stk_batch_field_row_bytes(const struct stk_batch_field_shape *shape)
{
    uint64_t bytes = shape->ragged ? shape->item_bytes : 1;
    bool rows = shape->ragged && !stk_batch_field_has_sides(shape);

    for (uint32_t i = 1; rows && i < shape->dimension_count; i++) {
        bytes *= (uint64_t)shape->shape[i];
    }
    return bytes;
}

uint32_t stk_batch_pool_in_use(const struct stk_batch_pool *pool)
{
    return atomic_load_explicit(&pool->out_count, memory_order_relaxed);
}

void stoker_batch_retain(struct stoker_batch *batch)
{
    /* Relaxed: the caller's reference keeps it alive. */
    atomic_fetch_add_explicit(&batch->holders, 1, memory_order_relaxed);
}

void stoker_batch_close(struct stoker_batch *batch)
{
    struct stk_batch_pool *pool;
    bool closed, last;

    /* In a child of fork a thread that does not exist may hold the lock: the batch is not freed.
     * Acquire-release: the last holder sees all writes of the other holders. */
    if (!batch || batch->pool->pid != stk_process_id() ||
        atomic_fetch_sub_explicit(&batch->holders, 1, memory_order_acq_rel) != 1) {
        return;
    }
    pool = batch->pool;
    pthread_mutex_lock(&pool->lock);
    closed = pool->locked.closed;
    if (!closed) {
        batch->next = pool->locked.free_list;
        pool->locked.free_list = batch;
    }
    pthread_mutex_unlock(&pool->lock);
    if (closed) {
        batch_free(batch);
    }
    atomic_fetch_sub_explicit(&pool->out_count, 1, memory_order_relaxed);
    /* The owner may take its own lock, under which it may call this pool: so no lock is held. */
    pool->owner.returned(pool->owner.owner);
    pthread_mutex_lock(&pool->lock);
    last = --pool->locked.users == 0 && pool->locked.closed;
    pthread_mutex_unlock(&pool->lock);
    if (last) {
        pool_free(pool);
    }
}

/* The sides of a slot of a ragged field. */
static void describe_rows(const struct stk_batch_field_shape *shape, struct stoker_array *array)
{
    array->shape_rank = array->shapes ? shape->dimension_count : 0;
    array->dimension_count = array->shapes ? 1 : shape->dimension_count;
    for (uint32_t i = array->dimension_count - 1; i > 0; i--) {
        array->shape[i] = shape->shape[i];
        array->strides[i] = array->strides[0];
        array->strides[0] *= shape->shape[i];
    }
}

int stoker_batch_array(const struct stoker_batch *batch, size_t field,
                       struct stoker_array *array_out)
{
    const struct stk_batch_field_shape *shape;

    memset(array_out, 0, sizeof *array_out);
    if (field >= batch->pool->field_count) {
        return STOKER_ERROR_ARGUMENT;
    }
    shape = &batch->pool->fields[field];
    array_out->data = batch->fields[field].data;
    array_out->offsets = batch->fields[field].offsets;
    array_out->dtype = shape->dtype;
    array_out->shape[0] = batch->samples;
    array_out->strides[0] = 1;
    if (shape->ragged) {
        array_out->shapes = batch->fields[field].sides;
        describe_rows(shape, array_out);
        return 0;
    }
    array_out->dimension_count = shape->dimension_count + 1;
    for (uint32_t i = 0; i < shape->dimension_count; i++) {
        array_out->shape[i + 1] = shape->shape[i];
        array_out->strides[i + 1] = shape->strides[i];
        array_out->strides[0] *= shape->shape[i];
    }
    return 0;
}

uint32_t stoker_batch_samples(const struct stoker_batch *batch)
{
    return batch->samples;
}

const uint64_t *stoker_batch_ids(const struct stoker_batch *batch)
{
    return batch->ids;
}

const uint8_t *stoker_batch_mask(const struct stoker_batch *batch)
{
    return batch->mask;
}
