/* Goal: a loader publishes, from a thread of its own, the blocks of the node cache that it will
 * read in this epoch and in the next one; opening it does not wait for the lock of the cache. A
 * loader whose cache has no space, or whose data is local, publishes nothing, and reads as ever.
 * Method: two tars on a server, or in a folder; a second cache object, as another process has, sees
 * what is published, and holds the lock. */
#include "loader/loader_future.h"

#include "storage/cache/node_cache.h"
#include "test/server.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK (32u << 10)
#define SHARDS 2u
#define SMALL_QUOTA (80u << 10) /* a sixteenth of it is less than the smallest future */
#define SHARD_SAMPLES 200u
#define BATCH 10u
#define BATCHES (SHARDS * SHARD_SAMPLES / BATCH)
#define POLLS 20000u /* of 1 ms */

static struct t_server server;
static struct t_tar tars[SHARDS];
static char folder[64], urls[SHARDS][96], paths[SHARDS][96];

/* ---- the data ---- */

static bool answer(int fd, const char *head)
{
    const char *range = strcasestr(head, "\nRange: bytes="), *name = strstr(head, "/shard-");
    bool is_head = strncmp(head, "HEAD ", 5) == 0;
    const struct t_tar *tar = &tars[name && name[7] == '1'];
    unsigned long long first = 0, last = tar->bytes - 1;
    char reply[512], part[128] = "";

    if (range) {
        sscanf(range + 14, "%llu-%llu", &first, &last);
        last = stk_min(last, tar->bytes - 1);
        snprintf(part, sizeof part, "Content-Range: bytes %llu-%llu/%zu\r\n", first, last,
                 (size_t)tar->bytes);
    }
    snprintf(reply, sizeof reply,
             "HTTP/1.1 %s\r\nContent-Length: %llu\r\n%sAccept-Ranges: bytes\r\nETag: \"one\"\r\n"
             "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n\r\n",
             range ? "206 Partial Content" : "200 OK", last - first + 1, part);
    return t_send(fd, reply, strlen(reply)) &&
           (is_head || t_send(fd, tar->data + first, last - first + 1));
}

static void serve(int fd)
{
    char head[4096];

    while (t_read_request(fd, head, sizeof head, NULL) > 0 && answer(fd, head)) {
    }
}

static void make_shards(void)
{
    static const uint8_t value[1000];
    char name[32];

    t_server_start(&server, serve);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        int fd;

        for (uint32_t i = 0; i < SHARD_SAMPLES; i++) {
            snprintf(name, sizeof name, "s%u-%04u.bin", shard, i);
            t_tar_add(&tars[shard], name, value, sizeof value);
        }
        t_tar_end(&tars[shard]);
        snprintf(urls[shard], sizeof urls[shard], "http://127.0.0.1:%d/shard-%u.tar", server.port,
                 shard);
        snprintf(paths[shard], sizeof paths[shard], "%s/shard-%u.tar", folder, shard);
        fd = open(paths[shard], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        T_EQ("tar", write(fd, tars[shard].data, tars[shard].bytes), (ssize_t)tars[shard].bytes);
        close(fd);
    }
}

/* ---- the cache ---- */

static struct stoker_cache *open_cache(uint64_t quota)
{
    char place[96];
    const char *places[] = {place};
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = places,
                                           .path_count = 1,
                                           .bytes_max = quota,
                                           .free_bytes = 1,
                                           .block_bytes = BLOCK};
    struct stoker_cache *cache = NULL;

    snprintf(place, sizeof place, "%s/cache", folder);
    T_EQ("cache", stoker_cache_open(&cache, &options, NULL), 0);
    return cache;
}

static void close_cache(struct stoker_cache *cache)
{
    char command[96];

    stoker_cache_close(cache);
    snprintf(command, sizeof command, "rm -rf %s/cache", folder);
    T_EQ("remove", system(command), 0);
}

/* Blocks of all shards that some job lists. */
static uint32_t count_known(struct stoker_cache *cache)
{
    uint32_t known = 0;

    stk_cache_futures_look_again(&cache->futures);
    (void)stk_cache_futures_look(&cache->futures, 1, NULL);
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        for (uint64_t i = 0; i * BLOCK < tars[shard].bytes; i++) {
            uint32_t place = stk_cache_place(stk_cache_url_hash(urls[shard]), i);

            known += stk_cache_futures_next(&cache->futures, place, false).is_known;
        }
    }
    return known;
}

static uint32_t count_blocks(void)
{
    return SHARDS * (uint32_t)((tars[0].bytes + BLOCK - 1) / BLOCK);
}

static bool wait_for_known(struct stoker_cache *cache, uint32_t wanted)
{
    for (uint32_t i = 0; i < POLLS; i++) {
        if (count_known(cache) == wanted) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

/* ---- loaders ---- */

struct rig {
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
};

static void open_rig(struct rig *rig, struct stoker_cache *cache, bool is_remote)
{
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine, .threads = 2, .memory_bytes_max = 256u << 20, .cache = cache};
    const char *names[SHARDS];
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = names, .url_count = SHARDS};

    for (uint32_t i = 0; i < SHARDS; i++) {
        names[i] = is_remote ? urls[i] : paths[i];
    }
    T_EQ("engine", stoker_engine_open(&rig->engine, &engine, NULL), 0);
    T_EQ("data set", stoker_dataset_open(&rig->dataset, rig->engine, &dataset, NULL), 0);
}

static void close_rig(struct rig *rig)
{
    stoker_dataset_close(rig->dataset);
    stoker_engine_close(rig->engine);
}

static struct stoker_loader *open_loader(struct rig *rig)
{
    static const struct stoker_field_options fields[] = {
        {.name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"}};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = 1,
                                            .batch_size = BATCH,
                                            .tail = STOKER_TAIL_KEEP,
                                            .seed = 5};
    struct stoker_loader *loader = NULL;

    T_EQ("loader", stoker_loader_open(&loader, rig->dataset, &options, NULL), 0);
    return loader;
}

/* Takes an epoch. Returns its batches. */
static uint32_t take_epoch(struct stoker_loader *loader)
{
    struct stoker_batch *batch;
    uint32_t batches = 0;

    while (stoker_loader_next(loader, 20000, &batch, NULL) == 1) {
        stoker_batch_close(batch);
        batches++;
    }
    return batches;
}

/* All blocks are known before the first batch and after each epoch, and none after the end. */
static void test_published(void)
{
    struct stoker_cache *cache = open_cache(16u << 20), *other = open_cache(0);
    struct stoker_loader *loader;
    struct rig rig;

    open_rig(&rig, cache, true);
    T_EQ("none yet", count_known(other), 0);
    loader = open_loader(&rig);
    T_TRUE("all", wait_for_known(other, count_blocks()));
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        T_EQ("epoch", take_epoch(loader), BATCHES);
        T_TRUE("all", wait_for_known(other, count_blocks()));
    }
    stoker_loader_close(loader);
    T_EQ("none after the end", count_known(other), 0);
    close_rig(&rig);
    stoker_cache_close(other);
    close_cache(cache);
}

/* While another process holds the lock, a loader opens; with the lock it publishes. */
static void test_lock_is_held(void)
{
    struct stoker_cache *cache = open_cache(16u << 20), *other = open_cache(0);
    struct stk_cache_index *index = &other->disks[0].index;
    struct stoker_loader *loader;
    struct rig rig;

    open_rig(&rig, cache, true);
    T_EQ("lock", stk_cache_index_lock(index, 1000), 0);
    loader = open_loader(&rig);
    T_TRUE("it will publish", loader->future != NULL);
    stk_cache_index_unlock(index);
    T_TRUE("all", wait_for_known(other, count_blocks()));
    stoker_loader_close(loader);
    close_rig(&rig);
    stoker_cache_close(other);
    close_cache(cache);
}

/* Without space for a future, and of local data, nothing is published. */
static void test_not_published(void)
{
    for (uint32_t remote = 0; remote < 2; remote++) {
        struct stoker_cache *cache = open_cache(remote ? SMALL_QUOTA : 16u << 20);
        struct stoker_loader *loader;
        struct rig rig;

        open_rig(&rig, cache, remote);
        loader = open_loader(&rig);
        T_TRUE("a thread for remote data only", (loader->future != NULL) == (remote == 1));
        T_EQ("epoch", take_epoch(loader), BATCHES);
        T_EQ("none", count_known(cache), 0);
        stoker_loader_close(loader);
        close_rig(&rig);
        close_cache(cache);
    }
}

int main(void)
{
    char command[96];

    snprintf(folder, sizeof folder, "/tmp/loader-future-XXXXXX");
    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    unsetenv("http_proxy");
    make_shards();
    test_published();
    test_lock_is_held();
    test_not_published();
    t_server_stop(&server); /* connections may still read the tars, which are not freed */
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    return t_finish();
}
