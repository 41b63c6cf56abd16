/* Goal: the thread adds the blocks of this epoch and the next one, and begins again if the order is
 * replaced; a long epoch is added in equal distances; without space for the file nothing is
 * published, and close still returns.
 * Method: samples of SAMPLE_BYTES in one object; a second cache object, as another process has,
 * sees what is published. loader_future_test and test_token_store.py run it with real loaders. */
#include "loader/future/order_future.h"

#include "test/t.h"

#include <stdlib.h>
#include <unistd.h>

#define BLOCK (32u << 10)
#define SAMPLE_BYTES 20000u
#define SAMPLES 64u
#define BATCH 3u
#define BLOCKS (SAMPLES * SAMPLE_BYTES / BLOCK + 1) /* 39.06 */
#define SMALL_QUOTA (80u << 10) /* a sixteenth of it is less than the smallest future */
#define POLLS 20000u            /* of 1 ms */

static char folder[64];

/* What a loader is. */
struct stream {
    pthread_mutex_t lock;
    struct stk_schedule schedule;
    struct stk_partition partition;
    _Atomic uint64_t orders, epoch;
    _Atomic uint64_t object; /* whose blocks are added */
    _Atomic uint64_t begun, added;
    _Atomic uint64_t parts; /* that samples were in: one bit each */
};

static struct stk_order_future_place place_of(void *context)
{
    struct stream *stream = context;
    uint64_t epoch = stream->epoch;

    return (struct stk_order_future_place){
        .epoch = epoch, .front_epoch = epoch, .sample_count = stream->partition.sample_count};
}

static void begin_epoch(void *context)
{
    ((struct stream *)context)->begun++;
}

static void add_sample(void *context, struct stk_order_future *future, uint64_t sample)
{
    struct stream *stream = context;

    stream->parts |= 1ull << stk_order_future_part(future);
    stk_order_future_add(future, stream->object, sample % SAMPLES * SAMPLE_BYTES, SAMPLE_BYTES);
    stream->added++;
}

static struct stoker_cache *open_cache(uint64_t quota)
{
    const char *places[] = {folder};
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = places,
                                           .path_count = 1,
                                           .bytes_max = quota,
                                           .free_bytes = 1,
                                           .block_bytes = BLOCK};
    struct stoker_cache *cache = NULL;

    T_EQ("cache", stoker_cache_open(&cache, &options, NULL), 0);
    return cache;
}

static void close_cache(struct stoker_cache *cache)
{
    char command[96];

    stoker_cache_close(cache);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    T_EQ("remove", system(command), 0);
}

static struct stk_order_future *open_future(struct stream *stream, struct stoker_cache *cache,
                                            uint64_t samples)
{
    struct stk_schedule_options schedule = {.order = {.sample_count = samples,
                                                      .block_samples = 16,
                                                      .window_blocks = 2,
                                                      .group_count = 1,
                                                      .shuffle = STOKER_SHUFFLE_BLOCK,
                                                      .seed = 1}};
    struct stk_order_future_source source = {.cache = cache,
                                             .bytes = 2ull * SAMPLES * SAMPLE_BYTES,
                                             .objects = 2,
                                             .lock = &stream->lock,
                                             .schedule = &stream->schedule,
                                             .partition = &stream->partition,
                                             .orders = &stream->orders,
                                             .chunk_samples = 10,
                                             .context = stream,
                                             .place = place_of,
                                             .begin_epoch = begin_epoch,
                                             .add_sample = add_sample};

    *stream = (struct stream){.object = 7,
                              .partition = {.sample_count = samples,
                                            .batch_size = BATCH,
                                            .world_size = 1,
                                            .group_count = 1,
                                            .tail = STOKER_TAIL_KEEP}};
    pthread_mutex_init(&stream->lock, NULL);
    T_EQ("schedule", stk_schedule_init(&stream->schedule, &schedule, NULL), 0);
    return stk_order_future_open(&source);
}

static void close_stream(struct stream *stream)
{
    stk_schedule_deinit(&stream->schedule);
    pthread_mutex_destroy(&stream->lock);
}

/* Waits until some job lists so many blocks of an object as are `wanted`. */
static bool wait_for_blocks(struct stoker_cache *cache, uint64_t object, uint32_t wanted)
{
    for (uint32_t i = 0; i < POLLS; i++) {
        uint32_t known = 0;

        stk_cache_futures_look_again(&cache->futures);
        (void)stk_cache_futures_look(&cache->futures, 1, NULL);
        for (uint64_t number = 0; number < 2 * BLOCKS; number++) {
            struct stk_cache_next next =
                stk_cache_futures_next(&cache->futures, stk_cache_place(object, number), false);

            known += next.is_known && next.ns != STK_CACHE_NEVER;
        }
        if (known == wanted) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

static bool wait_for(const _Atomic uint64_t *count, uint64_t wanted)
{
    for (uint32_t i = 0; i < POLLS && *count < wanted; i++) {
        usleep(1000);
    }
    return *count == wanted;
}

/* All blocks of both epochs; after a replaced order those of the new one only. */
static void test_epochs(void)
{
    struct stoker_cache *cache = open_cache(16u << 20), *other = open_cache(0);
    struct stream stream;
    struct stk_order_future *future = open_future(&stream, cache, SAMPLES);

    T_TRUE("all blocks", wait_for_blocks(other, 7, BLOCKS));
    T_TRUE("this epoch and the next", wait_for(&stream.added, 2 * SAMPLES));
    stream.epoch = 1;
    T_TRUE("one epoch more", wait_for(&stream.added, 3 * SAMPLES));
    T_EQ("epochs", stream.begun, 3);
    pthread_mutex_lock(&stream.lock);
    stream.object = 8;
    stream.orders++;
    pthread_mutex_unlock(&stream.lock);
    T_TRUE("blocks of the new order", wait_for_blocks(other, 8, BLOCKS));
    T_TRUE("none of the old one", wait_for_blocks(other, 7, 0));
    T_TRUE("two epochs again", wait_for(&stream.added, 5 * SAMPLES));
    stk_order_future_close(future);
    T_TRUE("none after the end", wait_for_blocks(other, 8, 0));
    close_stream(&stream);
    stoker_cache_close(other);
    close_cache(cache);
}

/* Of a long epoch some samples are looked up, of all parts. */
static void test_long_epoch(void)
{
    struct stoker_cache *cache = open_cache(16u << 20);
    uint64_t samples = 3ull * STK_ORDER_FUTURE_SAMPLES - 5;
    struct stream stream;
    struct stk_order_future *future = open_future(&stream, cache, samples);

    T_TRUE("every third", wait_for(&stream.added, 2 * ((samples + 2) / 3)));
    T_EQ("all parts", stream.parts, UINT64_MAX);
    stk_order_future_close(future);
    close_stream(&stream);
    close_cache(cache);
}

static void test_no_space(void)
{
    struct stoker_cache *cache = open_cache(SMALL_QUOTA);
    struct stream stream;
    struct stk_order_future *future = open_future(&stream, cache, SAMPLES);

    T_TRUE("a thread", future != NULL);
    stk_order_future_close(future);
    T_EQ("nothing added", stream.added, 0);
    close_stream(&stream);
    close_cache(cache);
    stk_order_future_close(NULL);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/order-future-XXXXXX");
    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    test_epochs();
    test_long_epoch();
    test_no_space();
    return t_finish();
}
