/* Publishes which blocks of the node cache the stream of an order will read, and when. */
#include "loader/future/order_future.h"

#include "base/mem.h"
#include "base/thread.h"
#include "engine/engine.h"

#define WAIT_NS 10000000u

struct stk_order_future {
    struct stk_order_future_source source; /* constant */
    struct stk_cache_future file;          /* the thread's, as the next ones */
    uint64_t epoch;                        /* of the sample that is added */
    uint32_t part;
    pthread_t thread;
    _Atomic bool stopping;
    pthread_mutex_t lock; /* after the source's, and never with it */
    pthread_cond_t wake;  /* stopping; with the lock */
};

static bool is_stopping(const struct stk_order_future *future)
{
    return atomic_load_explicit(&future->stopping, memory_order_relaxed);
}

static uint64_t orders_of(const struct stk_order_future *future)
{
    return atomic_load_explicit(future->source.orders, memory_order_relaxed);
}

/* ---- epochs ---- */

void stk_order_future_add(struct stk_order_future *future, uint64_t url_hash, uint64_t offset,
                          uint64_t bytes)
{
    uint64_t block_bytes = future->source.cache->block_bytes, end = offset + bytes;

    for (uint64_t number = offset / block_bytes; bytes > 0 && number * block_bytes < end;
         number++) {
        (void)stk_cache_future_add(&future->file, future->epoch, stk_cache_place(url_hash, number),
                                   future->part);
    }
}

uint32_t stk_order_future_part(const struct stk_order_future *future)
{
    return future->part;
}

/* Adds slots [first, end) of the rank's part of an epoch, every `stride`th. */
static void add_slots(struct stk_order_future *future, uint64_t first, uint64_t end,
                      uint64_t stride)
{
    const struct stk_order_future_source *source = &future->source;
    const struct stk_partition *partition = source->partition;
    struct stk_schedule_reader reader;
    uint64_t begin = stk_partition_first(partition, future->epoch);

    if (stk_schedule_reader_init(&reader, source->schedule, NULL) < 0) {
        return;
    }
    for (uint64_t slot = first; slot < end; slot += stride) {
        uint64_t step = slot / partition->batch_size, sample;
        uint64_t position = begin + step * stk_partition_stride(partition);
        uint64_t part = position * STK_CACHE_EPOCH_PARTS / stk_max(partition->sample_count, 1);
        uint32_t i = (uint32_t)(slot % partition->batch_size);
        struct stk_order_place place;

        if (i >= stk_partition_batch_slots(partition, future->epoch, position)) {
            continue;
        }
        stk_partition_place(partition, future->epoch, position, i, &place);
        stk_schedule_read(&reader, place.epoch, place.position, 1, &sample);
        future->part = (uint32_t)stk_min(part, STK_CACHE_EPOCH_PARTS - 1);
        source->add_sample(source->context, future, sample);
    }
    (void)!stk_schedule_reader_end(&reader, 0, NULL);
}

/* Adds a chunk of an epoch, from slot *done_io on. Returns whether the epoch is complete. */
static bool add_chunk(struct stk_order_future *future, uint64_t *done_io)
{
    const struct stk_order_future_source *source = &future->source;
    uint64_t slots =
        stk_partition_steps(source->partition, future->epoch) * source->partition->batch_size;
    uint64_t stride = slots / STK_ORDER_FUTURE_SAMPLES + 1;
    uint64_t end = *done_io + source->chunk_samples * stride;

    if (*done_io == 0 && source->begin_epoch) {
        source->begin_epoch(source->context);
    }
    add_slots(future, *done_io, stk_min(slots, end), stride);
    *done_io = end;
    return end >= slots;
}

/* Adds an epoch, unless its order is replaced meanwhile: then the thread begins again. */
static void add_epoch(struct stk_order_future *future, uint64_t epoch, uint64_t orders)
{
    bool is_complete = false, is_same = true;
    uint64_t done = 0;

    stk_cache_future_begin(&future->file, epoch);
    future->epoch = epoch;
    while (!is_complete && is_same && !is_stopping(future)) {
        pthread_mutex_lock(future->source.lock);
        is_same = orders_of(future) == orders;
        is_complete = is_same && add_chunk(future, &done);
        pthread_mutex_unlock(future->source.lock);
    }
    if (is_complete) {
        stk_cache_future_end(&future->file, epoch);
    }
}

/* ---- the thread ---- */

static void advance(struct stk_order_future *future, const struct stk_order_future_place *place)
{
    double samples = (double)stk_max(place->sample_count, 1);
    double delivered = (double)place->position / samples;
    double front = place->front_epoch != place->epoch ? 1 : (double)place->front / samples;

    stk_cache_future_advance(&future->file, place->epoch, delivered, stk_max(delivered, front));
}

static void wait_for_next(struct stk_order_future *future)
{
    struct timespec until = stk_engine_deadline(WAIT_NS);

    pthread_mutex_lock(&future->lock);
    if (!is_stopping(future)) {
        pthread_cond_timedwait(&future->wake, &future->lock, &until);
    }
    pthread_mutex_unlock(&future->lock);
}

static void *future_main(void *context)
{
    struct stk_order_future *future = context;
    const struct stk_order_future_source *source = &future->source;
    uint64_t orders = orders_of(future);

    pthread_setname_np(pthread_self(), "stoker-future");
    if (stk_cache_open_future(source->cache, &future->file, source->bytes, source->objects) < 0) {
        return NULL;
    }
    while (!is_stopping(future)) {
        struct stk_order_future_place place = source->place(source->context);

        if (orders_of(future) != orders) {
            stk_cache_future_begin(&future->file, 0);
            stk_cache_future_begin(&future->file, 1);
            orders = orders_of(future);
        }
        advance(future, &place);
        for (uint64_t epoch = place.epoch; epoch < place.epoch + 2 && !is_stopping(future);
             epoch++) {
            if (!stk_cache_future_has(&future->file, epoch)) {
                add_epoch(future, epoch, orders);
            }
        }
        wait_for_next(future);
    }
    return NULL;
}

/* ---- open and close ---- */

static void free_future(struct stk_order_future *future)
{
    stk_cache_future_close(&future->file);
    pthread_cond_destroy(&future->wake);
    pthread_mutex_destroy(&future->lock);
    stk_free(future);
}

struct stk_order_future *stk_order_future_open(const struct stk_order_future_source *source)
{
    struct stk_order_future *future = stk_alloc(1, sizeof *future);

    if (!future) {
        return NULL;
    }
    future->source = *source;
    pthread_mutex_init(&future->lock, NULL);
    stk_cond_init(&future->wake);
    if (stk_thread_start(&future->thread, NULL, future_main, future) < 0) {
        free_future(future);
        return NULL;
    }
    return future;
}

void stk_order_future_close(struct stk_order_future *future)
{
    if (!future) {
        return;
    }
    pthread_mutex_lock(&future->lock);
    atomic_store_explicit(&future->stopping, true, memory_order_relaxed);
    pthread_cond_signal(&future->wake);
    pthread_mutex_unlock(&future->lock);
    pthread_join(future->thread, NULL);
    free_future(future);
}
