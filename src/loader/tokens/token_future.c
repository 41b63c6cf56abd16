/* Publishes which blocks of the node cache a token loader will read, and when. */
#include "loader/tokens/token_future.h"

#include "base/mem.h"
#include "base/thread.h"
#include "loader/tokens/token_loader.h"
#include "storage/cache/node_cache.h"

#define WAIT_NS 10000000u
#define CHUNK_SAMPLES 256u /* looked up with the loader's lock */

struct stk_token_future {
    struct stoker_token_loader *loader;
    struct stk_cache_future future; /* the thread's */
    uint64_t block_bytes;
    uint64_t *url_hashes; /* [file_count]; owned */
    pthread_t thread;
    _Atomic bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* stopping; with the lock */
};

/* Where a loader is, and what it has begun to read. */
struct place {
    uint64_t epoch, position, front_epoch, front, orders, samples;
};

static struct place place_locked(const struct stoker_token_loader *loader)
{
    const struct stk_order_cursor *cursor = &loader->locked.cursor;
    const struct stk_token_prefetch *ahead = &loader->locked.ahead;

    return (struct place){
        .epoch = cursor->epoch,
        .position = cursor->position,
        .front_epoch = ahead->walk_is_valid ? ahead->epoch : cursor->epoch,
        .front = ahead->walk_is_valid ? ahead->position : cursor->position,
        .orders = loader->locked.orders,
        .samples = cursor->partition.sample_count,
    };
}

static struct place place_of(struct stoker_token_loader *loader)
{
    struct place place;

    pthread_mutex_lock(&loader->lock);
    place = place_locked(loader);
    pthread_mutex_unlock(&loader->lock);
    return place;
}

static bool is_stopping(const struct stk_token_future *future)
{
    return atomic_load_explicit(&future->stopping, memory_order_relaxed);
}

/* ---- epochs ---- */

static void add_sample(struct stk_token_future *future, uint64_t epoch, uint32_t part,
                       uint64_t sample)
{
    const struct stk_token_samples *samples = future->loader->samples;
    const struct stk_token_set_file *file;
    struct stk_token_document place;
    uint64_t begin, end, width;

    if (stk_token_samples_location(samples, sample, &place, NULL) < 0) {
        return;
    }
    file = &samples->tokens->files[place.file];
    width = stk_token_bytes(file->run.dtype);
    begin = file->data_at + place.span.first * width;
    end = begin + place.span.count * width;
    for (uint64_t number = begin / future->block_bytes;
         file->remote.file && number * future->block_bytes < end; number++) {
        (void)stk_cache_future_add(&future->future, epoch,
                                   stk_cache_place(future->url_hashes[place.file], number), part);
    }
}

/* Adds slots [first, end) of the rank's part of an epoch, every `stride`th. */
static void add_slots_locked(struct stk_token_future *future, uint64_t epoch, uint64_t first,
                             uint64_t end, uint64_t stride)
{
    const struct stk_order_cursor *cursor = &future->loader->locked.cursor;
    const struct stk_partition *partition = &cursor->partition;
    struct stk_schedule_reader reader;
    uint64_t begin = stk_partition_first(partition, epoch);

    if (stk_schedule_reader_init(&reader, &cursor->schedule, NULL) < 0) {
        return;
    }
    for (uint64_t slot = first; slot < end; slot += stride) {
        uint64_t step = slot / partition->batch_size, sample;
        uint64_t position = begin + step * stk_partition_stride(partition);
        uint64_t part = position * STK_CACHE_EPOCH_PARTS / stk_max(partition->sample_count, 1);
        uint32_t i = (uint32_t)(slot % partition->batch_size);
        struct stk_order_place place;

        if (i >= stk_partition_batch_slots(partition, epoch, position)) {
            continue;
        }
        stk_partition_place(partition, epoch, position, i, &place);
        stk_schedule_read(&reader, place.epoch, place.position, 1, &sample);
        add_sample(future, epoch, (uint32_t)stk_min(part, STK_CACHE_EPOCH_PARTS - 1), sample);
    }
    (void)!stk_schedule_reader_end(&reader, 0, NULL);
}

/* Adds an epoch. A state may replace the order meanwhile: then the thread begins again. */
static void add_epoch(struct stk_token_future *future, uint64_t epoch, uint64_t orders)
{
    struct stoker_token_loader *loader = future->loader;
    const struct stk_partition *partition = &loader->locked.cursor.partition;
    bool is_complete = false, is_same = true;
    uint64_t done = 0;

    stk_cache_future_begin(&future->future, epoch);
    while (!is_complete && is_same && !is_stopping(future)) {
        pthread_mutex_lock(&loader->lock);
        is_same = loader->locked.orders == orders;
        if (is_same) {
            uint64_t slots = stk_partition_steps(partition, epoch) * partition->batch_size;
            uint64_t stride = slots / STK_TOKEN_FUTURE_SAMPLES + 1;
            uint64_t end = stk_min(slots, done + CHUNK_SAMPLES * stride);

            add_slots_locked(future, epoch, done, end, stride);
            done += CHUNK_SAMPLES * stride;
            is_complete = done >= slots;
        }
        pthread_mutex_unlock(&loader->lock);
    }
    if (is_complete) {
        stk_cache_future_end(&future->future, epoch);
    }
}

static void advance(struct stk_token_future *future, const struct place *place)
{
    double samples = (double)stk_max(place->samples, 1);
    double delivered = (double)place->position / samples;
    double front = place->front_epoch != place->epoch ? 1 : (double)place->front / samples;

    stk_cache_future_advance(&future->future, place->epoch, delivered, stk_max(delivered, front));
}

static void *future_main(void *context)
{
    struct stk_token_future *future = context;
    const struct stoker_tokens *tokens = future->loader->tokens;
    uint64_t orders = UINT64_MAX;

    pthread_setname_np(pthread_self(), "stoker-future");
    /* The file, for which it may wait, and evict blocks. */
    if (stk_cache_open_future(tokens->engine->cache, &future->future, tokens->bytes,
                              tokens->file_count) < 0) {
        return NULL;
    }
    while (!is_stopping(future)) {
        struct place place = place_of(future->loader);
        struct timespec until = stk_engine_deadline(WAIT_NS);

        if (place.orders != orders) {
            stk_cache_future_begin(&future->future, 0);
            stk_cache_future_begin(&future->future, 1);
            orders = place.orders;
        }
        advance(future, &place);
        for (uint64_t epoch = place.epoch; epoch < place.epoch + 2 && !is_stopping(future);
             epoch++) {
            if (!stk_cache_future_has(&future->future, epoch)) {
                add_epoch(future, epoch, place.orders);
            }
        }
        pthread_mutex_lock(&future->lock);
        if (!is_stopping(future)) {
            pthread_cond_timedwait(&future->wake, &future->lock, &until);
        }
        pthread_mutex_unlock(&future->lock);
    }
    return NULL;
}

/* ---- open and close ---- */

static void free_future(struct stk_token_future *future)
{
    stk_cache_future_close(&future->future);
    pthread_cond_destroy(&future->wake);
    pthread_mutex_destroy(&future->lock);
    stk_free(future->url_hashes);
    stk_free(future);
}

struct stk_token_future *stk_token_future_open(struct stoker_token_loader *loader)
{
    const struct stoker_tokens *tokens = loader->tokens;
    struct stk_token_future *future;

    if (!tokens->engine->cache || !tokens->range_cache) {
        return NULL;
    }
    future = stk_alloc(1, sizeof *future);
    if (!future) {
        return NULL;
    }
    future->loader = loader;
    future->block_bytes = tokens->engine->cache->block_bytes;
    pthread_mutex_init(&future->lock, NULL);
    stk_cond_init(&future->wake);
    future->url_hashes = stk_alloc(tokens->file_count, sizeof *future->url_hashes);
    for (uint32_t i = 0; future->url_hashes && i < tokens->file_count; i++) {
        future->url_hashes[i] = stk_cache_url_hash(tokens->files[i].data_path);
    }
    if (!future->url_hashes || stk_thread_start(&future->thread, NULL, future_main, future) < 0) {
        free_future(future);
        return NULL;
    }
    return future;
}

void stk_token_future_close(struct stk_token_future *future)
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
