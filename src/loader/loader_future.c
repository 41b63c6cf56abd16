/* Publishes which blocks of the node cache a loader will read, and when. */
#include "loader/loader_future.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/clock.h"
#include "loader/pending/sample_members.h"
#include "storage/cache/node_cache.h"

#include <string.h>

#define WAIT_NS 10000000u
#define CHUNK_SAMPLES 1024u /* looked up before the next check that the loader goes on */
#define HASHES 256u         /* of URLs */

struct stk_loader_future {
    struct stoker_loader *loader;
    struct stk_cache_future future;
    uint64_t block_bytes;
    uint64_t *compressed; /* one a shard: the parts of the epoch in which it was added */
    struct {
        uint64_t hash;
        uint32_t shard; /* UINT32_MAX: none */
    } hashes[HASHES];
    pthread_t thread;
    _Atomic bool stopping;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* stopping; with the lock */
};

/* Where a loader is. */
struct place {
    uint64_t epoch, delivered, open_epoch, front, order, samples;
};

static struct place place_of(struct stoker_loader *loader)
{
    struct place place;

    stk_engine_lock(loader->engine, NULL);
    place = (struct place){.epoch = loader->locked.epoch,
                           .delivered = loader->locked.position,
                           .open_epoch = loader->locked.open_epoch,
                           .front = loader->locked.open_position,
                           .order = atomic_load_explicit(&loader->orders, memory_order_relaxed),
                           .samples = loader->partition.sample_count};
    stk_engine_unlock(loader->engine);
    return place;
}

static bool is_stopping(const struct stk_loader_future *future)
{
    return atomic_load_explicit(&future->stopping, memory_order_relaxed);
}

/* ---- the blocks of a sample ---- */

static uint64_t url_hash(struct stk_loader_future *future, uint32_t shard)
{
    char path[STK_PATH_BYTES_MAX];
    uint32_t i = shard % HASHES;

    if (future->hashes[i].shard != shard) {
        stk_index_path_text(future->loader->dataset->index, shard, path);
        future->hashes[i].hash = stk_cache_url_hash(path);
        future->hashes[i].shard = shard;
    }
    return future->hashes[i].hash;
}

static void add_range(struct stk_loader_future *future, uint64_t epoch, uint32_t part,
                      const struct stk_sample_span *range)
{
    uint64_t hash = url_hash(future, range->shard);
    uint64_t first = range->offset / future->block_bytes;
    uint64_t last = (range->offset + range->bytes - 1) / future->block_bytes;

    for (uint64_t number = first; number <= last; number++) {
        (void)stk_cache_future_add(&future->future, epoch, stk_cache_place(hash, number), part);
    }
}

/* Of a compressed shard it is not known which bytes a sample needs: all of it counts. */
static void add_shard(struct stk_loader_future *future, uint64_t epoch, uint32_t part,
                      uint32_t shard)
{
    struct stk_sample_span range = {
        .shard = shard, .bytes = stk_index_shard_bytes(future->loader->dataset->index, shard)};

    if ((future->compressed[shard] >> part & 1) == 0 && range.bytes > 0) {
        future->compressed[shard] |= 1ull << part;
        add_range(future, epoch, part, &range);
    }
}

static void add_sample(struct stk_loader_future *future, uint64_t epoch, uint32_t part,
                       uint64_t sample)
{
    struct stoker_loader *loader = future->loader;
    struct stk_sample_part parts[STK_BATCH_FIELDS_MAX];
    struct stk_sample_members members = {.parts = parts};
    struct stk_sample_span range;

    stk_sample_members_find(loader, sample, &members);
    range = members.span;
    if (members.is_index_damaged || range.bytes == 0) {
        return;
    }
    if (!members.is_entire_object &&
        stk_index_shard_compression(loader->dataset->index, range.shard) != 0) {
        add_shard(future, epoch, part, range.shard);
        return;
    }
    if (range.bytes == STK_ENTIRE_OBJECT) { /* a file whose size is not known yet */
        range.bytes = 1;
    }
    if (!range.scattered) {
        add_range(future, epoch, part, &range);
        return;
    }
    for (uint32_t i = 0; i < loader->field_count; i++) {
        if (parts[i].found && parts[i].member.bytes > 0) {
            range.offset = parts[i].member.offset;
            range.bytes = parts[i].member.bytes;
            add_range(future, epoch, part, &range);
        }
    }
}

/* ---- epochs ---- */

/* Adds slots [first, end) of the loader's part of an epoch, every `stride`th. */
static void add_slots(struct stk_loader_future *future, uint64_t epoch, uint64_t first,
                      uint64_t end, uint64_t stride)
{
    struct stoker_loader *loader = future->loader;
    const struct stk_partition *partition = &loader->partition;
    struct stk_schedule_reader reader;
    uint64_t begin = stk_partition_first(partition, epoch);

    if (stk_schedule_reader_init(&reader, &loader->schedule, NULL) < 0) {
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

/* Adds an epoch. The order may be replaced meanwhile, see loader_adopt.c: that holds the lock of
 * the fingerprint, too. */
static void add_epoch(struct stk_loader_future *future, uint64_t epoch, uint64_t order)
{
    struct stoker_loader *loader = future->loader;
    uint64_t slots, stride, done = 0;
    bool is_complete = false;

    stk_cache_future_begin(&future->future, epoch);
    memset(future->compressed, 0,
           stk_index_shards(loader->dataset->index) * sizeof *future->compressed);
    while (!is_complete && !is_stopping(future)) {
        pthread_mutex_lock(&loader->fingerprint_lock);
        if (place_of(loader).order != order) {
            pthread_mutex_unlock(&loader->fingerprint_lock);
            return; /* the order was replaced: it begins again */
        }
        slots = stk_partition_steps(&loader->partition, epoch) * loader->partition.batch_size;
        stride = slots / STK_LOADER_FUTURE_SAMPLES + 1;
        add_slots(future, epoch, done, stk_min(slots, done + CHUNK_SAMPLES * stride), stride);
        done += CHUNK_SAMPLES * stride;
        is_complete = done >= slots;
        pthread_mutex_unlock(&loader->fingerprint_lock);
    }
    if (is_complete) {
        stk_cache_future_end(&future->future, epoch);
    }
}

static void advance(struct stk_loader_future *future, const struct place *place)
{
    double samples = (double)stk_max(place->samples, 1);
    double delivered = (double)place->delivered / samples;
    double front = place->open_epoch != place->epoch ? 1 : (double)place->front / samples;

    stk_cache_future_advance(&future->future, place->epoch, delivered, front);
}

/* Makes the file, which may wait for the lock of the cache, and evict blocks. */
static int open_file(struct stk_loader_future *future)
{
    const struct stk_index *index = future->loader->dataset->index;

    return stk_cache_open_future(future->loader->engine->cache, &future->future,
                                 stk_index_bytes(index), stk_index_shards(index));
}

static void *future_main(void *context)
{
    struct stk_loader_future *future = context;
    uint64_t order = 0;

    pthread_setname_np(pthread_self(), "stoker-future");
    if (open_file(future) < 0) {
        return NULL;
    }
    while (!is_stopping(future)) {
        struct place place = place_of(future->loader);
        struct timespec until = stk_engine_deadline(WAIT_NS);

        if (place.order != order) {
            stk_cache_future_begin(&future->future, 0);
            stk_cache_future_begin(&future->future, 1);
            order = place.order;
        }
        advance(future, &place);
        for (uint64_t epoch = place.epoch; epoch < place.epoch + 2 && !is_stopping(future);
             epoch++) {
            if (!stk_cache_future_has(&future->future, epoch)) {
                add_epoch(future, epoch, place.order);
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

static bool is_remote(const struct stoker_loader *loader)
{
    char path[STK_PATH_BYTES_MAX];

    if (stk_index_shards(loader->dataset->index) == 0) {
        return false;
    }
    stk_index_path_text(loader->dataset->index, 0, path);
    return stk_io_is_url(path);
}

static void free_future(struct stk_loader_future *future)
{
    stk_cache_future_close(&future->future);
    pthread_cond_destroy(&future->wake);
    pthread_mutex_destroy(&future->lock);
    stk_free(future->compressed);
    stk_free(future);
}

struct stk_loader_future *stk_loader_future_open(struct stoker_loader *loader)
{
    struct stoker_cache *cache = loader->engine->cache;
    const struct stk_index *index = loader->dataset->index;
    struct stk_loader_future *future;

    if (!cache || !is_remote(loader)) {
        return NULL;
    }
    future = stk_alloc(1, sizeof *future);
    if (!future) {
        return NULL;
    }
    future->loader = loader;
    future->block_bytes = cache->block_bytes;
    pthread_mutex_init(&future->lock, NULL);
    stk_cond_init(&future->wake);
    for (uint32_t i = 0; i < HASHES; i++) {
        future->hashes[i].shard = UINT32_MAX;
    }
    future->compressed = stk_alloc(stk_index_shards(index), sizeof *future->compressed);
    if (!future->compressed || stk_thread_start(&future->thread, NULL, future_main, future) < 0) {
        free_future(future);
        return NULL;
    }
    return future;
}

void stk_loader_future_close(struct stk_loader_future *future)
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
