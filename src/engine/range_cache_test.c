/* Goal: a cache of ranges returns the bytes of the file for any number of threads, units and
 * bounds; what is prefetched takes at most half of the bound, is requested in the units and limits
 * of its wish, and once; a request that fails is reported to the reader and leaves nothing behind;
 * memory is given up for others.
 * Method: a web server on loopback that counts the bytes that it sends, and can refuse; reads at
 * random places compared with the contents. Covers range_cache.c. */
#include "engine/range_cache.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/thread.h"
#include "test/server.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES (9u << 20) /* three regions */
#define HEAD_BYTES 4096u
#define READERS 4u
#define READS 200u
#define READ_MAX 70000u
#define WAIT_MS 20000u

static uint8_t content[FILE_BYTES]; /* threads of the server read it until the process ends */
static struct t_server server;
static _Atomic uint64_t sent;
static _Atomic uint32_t requests;
static _Atomic bool refuses;

static void serve(int fd)
{
    char request[HEAD_BYTES], head[512];
    size_t head_bytes;

    while (t_read_request(fd, request, sizeof request, &head_bytes) > 0) {
        const char *range = strstr(request, "bytes=");
        bool is_head = strncmp(request, "HEAD", 4) == 0, refused = atomic_load(&refuses);
        unsigned long long first = 0, last = FILE_BYTES - 1;

        if (range && !is_head) {
            first = strtoull(range + 6, NULL, 10);
            last = strtoull(strchr(range, '-') + 1, NULL, 10);
        }
        if (refused) {
            snprintf(head, sizeof head, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        } else {
            snprintf(head, sizeof head,
                     "HTTP/1.1 %s\r\nContent-Length: %llu\r\nETag: \"one\"\r\n"
                     "Accept-Ranges: bytes\r\nContent-Range: bytes %llu-%llu/%u\r\n\r\n",
                     range ? "206 Partial Content" : "200 OK", last - first + 1, first, last,
                     FILE_BYTES);
        }
        if (!is_head && !refused) {
            atomic_fetch_add(&sent, last - first + 1);
            atomic_fetch_add(&requests, 1);
        }
        if (!t_send(fd, head, strlen(head)) ||
            (!is_head && !refused && !t_send(fd, content + first, last - first + 1))) {
            return;
        }
    }
}

struct rig {
    struct stoker_engine *engine;
    struct stk_range_file file;
    struct stk_range_cache *cache;
};

static void rig_open(struct rig *rig, uint64_t bytes_max)
{
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .threads = 1,
                                            .memory_bytes_max = 64u << 20,
                                            .no_process_sharing = true};
    char url[128];

    *rig = (struct rig){.file = {.path = "the file", .bytes = FILE_BYTES}};
    snprintf(url, sizeof url, "http://127.0.0.1:%d/f", server.port);
    T_EQ("engine", stoker_engine_open(&rig->engine, &options, NULL), 0);
    T_EQ("file", stk_io_open_file(rig->engine->io, url, &rig->file.file, NULL), 0);
    T_EQ("cache", stk_range_cache_open(&rig->cache, rig->engine, bytes_max, NULL), 0);
    atomic_store(&sent, 0);
    atomic_store(&requests, 0);
}

static void rig_close(struct rig *rig)
{
    uint64_t before = atomic_load(&rig->engine->budget.bytes);
    struct stk_range_cache_stats stats;

    stk_range_cache_stats(rig->cache, &stats);
    stk_range_cache_close(rig->cache);
    T_EQ("given back", before - atomic_load(&rig->engine->budget.bytes), stats.bytes);
    stk_io_close_file(rig->file.file);
    stoker_engine_close(rig->engine);
}

static struct stk_range_cache_stats stats_of(struct rig *rig)
{
    struct stk_range_cache_stats stats;

    stk_range_cache_stats(rig->cache, &stats);
    return stats;
}

/* Returns 0 if the bytes are those of the file, 1 if they are not, or the error. */
static int read_at(struct rig *rig, uint64_t offset, uint64_t bytes, uint32_t unit)
{
    struct stk_range_wish wish = {.offset = offset, .bytes = bytes, .unit = unit};
    uint8_t *out = stk_alloc(stk_max(bytes, 1), 1);
    int status = stk_range_cache_read(rig->cache, &rig->file, &wish, out, NULL);

    status = status == 0 && memcmp(out, content + offset, bytes) != 0 ? 1 : status;
    stk_free(out);
    return status;
}

static bool prefetch(struct rig *rig, uint64_t offset, uint64_t bytes, uint32_t unit)
{
    struct stk_range_wish wish = {offset, bytes, unit, 0, FILE_BYTES};

    return stk_range_cache_prefetch(rig->cache, &rig->file, &wish);
}

/* Until so many bytes were sent. */
static uint64_t wait_sent(uint64_t bytes)
{
    for (uint32_t ms = 0; ms < WAIT_MS && atomic_load(&sent) < bytes; ms++) {
        usleep(1000);
    }
    return atomic_load(&sent);
}

static void test_units(void)
{
    struct rig rig;
    struct stk_range_wish wish = {70000, 10, 65536, 66000, 140000};

    rig_open(&rig, 8u << 20);
    T_EQ("exact", read_at(&rig, 100, 50, 0), 0);
    T_EQ("only these", atomic_load(&sent), 50);
    T_EQ("around them", read_at(&rig, 90, 80, 0), 0);
    T_EQ("what is missing", atomic_load(&sent), 80);
    T_TRUE("ahead", stk_range_cache_prefetch(rig.cache, &rig.file, &wish));
    T_EQ("a unit, and its short rest", wait_sent(80 + 140000 - 66000), 80 + 140000 - 66000);
    T_EQ("read", read_at(&rig, 66000, 140000 - 66000, 0), 0);
    T_EQ("not again", atomic_load(&sent), 80 + 140000 - 66000);
    T_EQ("across regions", read_at(&rig, (4u << 20) - 10, (4u << 20) + 20, 4096), 0);
    T_EQ("nothing", read_at(&rig, FILE_BYTES, 0, 4096), 0);
    T_EQ("the end", read_at(&rig, FILE_BYTES - 5, 5, 1u << 20), 0);
    rig_close(&rig);
}

static void test_bounds(void)
{
    struct rig rig;
    uint64_t half = (1u << 20) / 2, asked = 0;

    rig_open(&rig, 2 * half);
    while (prefetch(&rig, asked, 65536, 65536)) {
        asked += 65536;
    }
    T_EQ("half, less the entries", asked, half - 65536);
    T_EQ("read", read_at(&rig, 0, 65536, 65536), 0);
    T_TRUE("again", prefetch(&rig, asked, 65536, 65536));
    for (uint64_t at = 0; at < FILE_BYTES; at += 65536) {
        T_EQ("all", read_at(&rig, at, 65536, 65536), 0);
    }
    T_TRUE("peak", stats_of(&rig).bytes_peak <= 2 * half);
    T_EQ("larger than the bound", read_at(&rig, 1, 3u << 20, 0), 0);
    stk_range_cache_forget(rig.cache);
    T_TRUE("trimmed", stk_range_cache_trim(rig.cache) > 0);
    while (stk_range_cache_trim(rig.cache) > 0) {
    }
    T_EQ("all of it", stats_of(&rig).bytes, 0);
    T_EQ("none", stk_range_cache_trim(NULL), 0);
    rig_close(&rig);
}

/* Wanted ranges that are forgotten make space for others. */
static void test_forget(void)
{
    struct rig rig;

    rig_open(&rig, 1u << 20);
    T_TRUE("ahead", prefetch(&rig, 0, 400000, 0));
    T_TRUE("no space", !prefetch(&rig, 1u << 20, 400000, 0));
    stk_range_cache_forget(rig.cache);
    T_TRUE("space", prefetch(&rig, 1u << 20, 400000, 0));
    T_EQ("read", read_at(&rig, 1u << 20, 400000, 0), 0);
    T_EQ("the others", read_at(&rig, 0, 400000, 0), 0);
    rig_close(&rig);
}

static void test_errors(void)
{
    struct stoker_error error = {0};
    struct stk_range_wish wish = {.offset = 500, .bytes = 1};
    struct rig rig;
    uint8_t byte;

    rig_open(&rig, 1u << 20);
    atomic_store(&refuses, true);
    T_TRUE("ahead", prefetch(&rig, 0, 1000, 0));
    T_TRUE("refused", stk_range_cache_read(rig.cache, &rig.file, &wish, &byte, &error) < 0);
    T_TRUE("place", strstr(error.where, "127.0.0.1") != NULL);
    atomic_store(&refuses, false);
    T_EQ("later", read_at(&rig, 0, 1000, 0), 0);
    rig_close(&rig);
}

struct reader {
    struct rig *rig;
    uint64_t seed;
    uint32_t bad;
    pthread_t thread;
};

static void *run_reader(void *context)
{
    struct reader *reader = context;

    for (uint32_t i = 0; i < READS; i++) {
        uint64_t key = stk_random_key(reader->seed, i), offset = key % FILE_BYTES;
        uint64_t bytes = stk_min((key >> 32) % READ_MAX, FILE_BYTES - offset);
        uint32_t unit = key >> 30 & 1 ? 1u << (12 + (key >> 40) % 8) : 0;

        if (key >> 61 == 0) {
            stk_range_cache_forget(reader->rig->cache);
        }
        if (key >> 62 == 1) {
            (void)prefetch(reader->rig, offset, bytes, unit);
        }
        reader->bad += read_at(reader->rig, offset, bytes, unit) != 0;
    }
    return NULL;
}

static void test_threads(void)
{
    struct reader readers[READERS];
    struct rig rig;

    rig_open(&rig, 1u << 20);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.rig = &rig, .seed = i + 1};
        T_EQ("thread", stk_thread_start(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        T_EQ("wrong reads", readers[i].bad, 0);
    }
    rig_close(&rig);
}

int main(void)
{
    for (uint32_t i = 0; i < FILE_BYTES; i += 8) {
        uint64_t value = stk_random_key(1, i);

        memcpy(content + i, &value, sizeof value);
    }
    t_server_start(&server, serve);
    test_units();
    test_bounds();
    test_forget();
    test_errors();
    test_threads();
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
