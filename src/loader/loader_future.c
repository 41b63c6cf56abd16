/* Says which blocks of the node cache the samples of a loader are in. */
#include "loader/loader_future.h"

#include "base/mem.h"
#include "loader/future/order_future.h"
#include "loader/pending/sample_members.h"
#include "storage/cache/node_cache.h"

#include <string.h>

#define CHUNK_SAMPLES 1024u
#define HASHES 256u /* of URLs */

struct stk_loader_future {
    struct stoker_loader *loader;
    struct stk_order_future *order;
    uint64_t *compressed; /* one a shard: the parts of the epoch in which it was added */
    struct {
        uint64_t hash;
        uint32_t shard; /* UINT32_MAX: none */
    } hashes[HASHES];
};

static struct stk_order_future_place place_of(void *context)
{
    struct stoker_loader *loader = ((struct stk_loader_future *)context)->loader;
    struct stk_order_future_place place;

    stk_engine_lock(loader->engine, NULL);
    place = (struct stk_order_future_place){.epoch = loader->locked.epoch,
                                            .position = loader->locked.position,
                                            .front_epoch = loader->locked.open_epoch,
                                            .front = loader->locked.open_position,
                                            .sample_count = loader->partition.sample_count};
    stk_engine_unlock(loader->engine);
    return place;
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

static void begin_epoch(void *context)
{
    struct stk_loader_future *future = context;

    memset(future->compressed, 0,
           stk_index_shards(future->loader->dataset->index) * sizeof *future->compressed);
}

/* Which bytes of a compressed shard a sample needs is not known: all of them count. */
static void add_shard(struct stk_loader_future *future, struct stk_order_future *order,
                      uint32_t shard)
{
    uint64_t part = 1ull << stk_order_future_part(order);

    if ((future->compressed[shard] & part) == 0) {
        future->compressed[shard] |= part;
        stk_order_future_add(order, url_hash(future, shard), 0,
                             stk_index_shard_bytes(future->loader->dataset->index, shard));
    }
}

static void add_sample(void *context, struct stk_order_future *order, uint64_t sample)
{
    struct stk_loader_future *future = context;
    struct stoker_loader *loader = future->loader;
    struct stk_sample_part parts[STK_BATCH_FIELDS_MAX];
    struct stk_sample_members members = {.parts = parts};
    struct stk_sample_span range;
    uint64_t hash;

    stk_sample_members_find(loader, sample, &members);
    range = members.span;
    if (members.is_index_damaged || range.bytes == 0) {
        return;
    }
    if (!members.is_entire_object &&
        stk_index_shard_compression(loader->dataset->index, range.shard) != 0) {
        add_shard(future, order, range.shard);
        return;
    }
    if (range.bytes == STK_ENTIRE_OBJECT) { /* a file whose size is not known yet */
        range.bytes = 1;
    }
    hash = url_hash(future, range.shard);
    if (!range.scattered) {
        stk_order_future_add(order, hash, range.offset, range.bytes);
        return;
    }
    for (uint32_t i = 0; i < loader->field_count; i++) {
        if (parts[i].found) {
            stk_order_future_add(order, hash, parts[i].member.offset, parts[i].member.bytes);
        }
    }
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

struct stk_loader_future *stk_loader_future_open(struct stoker_loader *loader)
{
    const struct stk_index *index = loader->dataset->index;
    struct stk_order_future_source source = {.cache = loader->engine->cache,
                                             .bytes = stk_index_bytes(index),
                                             .objects = stk_index_shards(index),
                                             .lock = &loader->fingerprint_lock,
                                             .schedule = &loader->schedule,
                                             .partition = &loader->partition,
                                             .orders = &loader->orders,
                                             .chunk_samples = CHUNK_SAMPLES,
                                             .place = place_of,
                                             .begin_epoch = begin_epoch,
                                             .add_sample = add_sample};
    struct stk_loader_future *future;

    if (!source.cache || !is_remote(loader)) {
        return NULL;
    }
    future = stk_alloc(1, sizeof *future);
    if (!future) {
        return NULL;
    }
    future->loader = loader;
    for (uint32_t i = 0; i < HASHES; i++) {
        future->hashes[i].shard = UINT32_MAX;
    }
    future->compressed = stk_alloc(stk_index_shards(index), sizeof *future->compressed);
    source.context = future;
    future->order = future->compressed ? stk_order_future_open(&source) : NULL;
    if (!future->order) {
        stk_loader_future_close(future);
        return NULL;
    }
    return future;
}

void stk_loader_future_close(struct stk_loader_future *future)
{
    if (future) {
        stk_order_future_close(future->order);
        stk_free(future->compressed);
        stk_free(future);
    }
}
