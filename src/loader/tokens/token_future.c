/* Says which blocks of the node cache the samples of a token loader are in. */
#include "loader/tokens/token_future.h"

#include "base/mem.h"
#include "loader/future/order_future.h"
#include "loader/tokens/token_loader.h"
#include "storage/cache/node_cache.h"

#define CHUNK_SAMPLES 256u /* the loader's calls wait for the lock */

struct stk_token_future {
    struct stoker_token_loader *loader;
    struct stk_order_future *order;
    uint64_t *url_hashes; /* [file_count]; owned */
};

static struct stk_order_future_place place_of(void *context)
{
    struct stoker_token_loader *loader = ((struct stk_token_future *)context)->loader;
    const struct stk_order_cursor *cursor = &loader->locked.cursor;
    const struct stk_token_prefetch *ahead = &loader->locked.ahead;
    struct stk_order_future_place place;

    pthread_mutex_lock(&loader->lock);
    place = (struct stk_order_future_place){
        .epoch = cursor->epoch,
        .position = cursor->position,
        .front_epoch = ahead->walk_is_valid ? ahead->epoch : cursor->epoch,
        .front = ahead->walk_is_valid ? ahead->position : cursor->position,
        .sample_count = cursor->partition.sample_count,
    };
    pthread_mutex_unlock(&loader->lock);
    return place;
}

static void add_sample(void *context, struct stk_order_future *order, uint64_t sample)
{
    struct stk_token_future *future = context;
    const struct stk_token_samples *samples = future->loader->samples;
    const struct stk_token_set_file *file;
    struct stk_token_document place;
    uint64_t width;

    if (stk_token_samples_location(samples, sample, &place, NULL) < 0) {
        return;
    }
    file = &samples->tokens->files[place.file];
    width = stk_token_bytes(file->run.dtype);
    if (file->remote.file) {
        stk_order_future_add(order, future->url_hashes[place.file],
                             file->data_at + place.span.first * width, place.span.count * width);
    }
}

/* ---- open and close ---- */

struct stk_token_future *stk_token_future_open(struct stoker_token_loader *loader)
{
    const struct stoker_tokens *tokens = loader->tokens;
    struct stk_order_future_source source = {.cache = tokens->engine->cache,
                                             .bytes = tokens->bytes,
                                             .objects = tokens->file_count,
                                             .lock = &loader->lock,
                                             .schedule = &loader->locked.cursor.schedule,
                                             .partition = &loader->locked.cursor.partition,
                                             .orders = &loader->locked.orders,
                                             .chunk_samples = CHUNK_SAMPLES,
                                             .place = place_of,
                                             .add_sample = add_sample};
    struct stk_token_future *future;

    if (!source.cache || !tokens->range_cache) {
        return NULL;
    }
    future = stk_alloc(1, sizeof *future);
    if (!future) {
        return NULL;
    }
    future->loader = loader;
    future->url_hashes = stk_alloc(tokens->file_count, sizeof *future->url_hashes);
    for (uint32_t i = 0; future->url_hashes && i < tokens->file_count; i++) {
        future->url_hashes[i] = stk_cache_url_hash(tokens->files[i].data_path);
    }
    source.context = future;
    future->order = future->url_hashes ? stk_order_future_open(&source) : NULL;
    if (!future->order) {
        stk_token_future_close(future);
        return NULL;
    }
    return future;
}

void stk_token_future_close(struct stk_token_future *future)
{
    if (future) {
        stk_order_future_close(future->order);
        stk_free(future->url_hashes);
        stk_free(future);
    }
}
