/* Goal: reads of compressed files return the original bytes for any number of threads and any
 * bound; workers decompress prefetched frames ahead, up to half the bound; damage and lack of
 * memory are reported to the caller that reads the frame, and only to it; nothing leaks.
 * Method: files compressed by libzstd in frames, an engine over simulated files (frame_cache.c);
 * reads at random offsets compared with the array; the number of frames that workers decompressed,
 * with a deadline; allocations that fail while workers decompress. */
#include "base/mem.h"
#include "engine/frame_cache.h"

#include "base/random.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define FRAMES 40u
#define FRAME_BYTES 1000u
#define FILE_BYTES (FRAMES * FRAME_BYTES)
#define FILES 2u
#define READERS 4u
#define WAIT_MS 20000u

static uint8_t plain[FILES][FILE_BYTES];
static uint8_t packed[FILES][2 * FILE_BYTES];

struct rig {
    struct stoker_engine *engine;
    struct stk_zstd_file files[FILES];
    struct stk_frame_cache *cache;
};

static void rig_open(struct rig *rig, uint64_t bytes_max, uint64_t memory_bytes)
{
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 3000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 2, .memory_bytes_max = memory_bytes};
    struct stk_io *world = NULL;

    memset(rig, 0, sizeof *rig);
    T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&rig->engine, world, &options, NULL), 0);
    for (uint32_t f = 0; f < FILES; f++) {
        size_t bytes = 0;

        for (uint32_t i = 0; i < FILE_BYTES; i++) {
            plain[f][i] = (uint8_t)(stk_random_key(f, i / 3) % 50);
        }
        for (uint32_t i = 0; i < FRAMES; i++) {
            bytes += ZSTD_compress(packed[f] + bytes, sizeof packed[f] - bytes,
                                   plain[f] + i * FRAME_BYTES, FRAME_BYTES, 1);
        }
        rig->files[f].view = (struct stk_view){packed[f], bytes};
        rig->files[f].first_frame = f * FRAMES;
        T_EQ("frames", stk_zstd_frames_open(&rig->files[f].frames, rig->files[f].view, NULL), 0);
    }
    T_EQ("open", stk_frame_cache_open(&rig->cache, rig->engine, FILES * FRAMES, bytes_max, NULL),
         0);
}

static void rig_close(struct rig *rig)
{
    stk_frame_cache_close(rig->cache);
    for (uint32_t f = 0; f < FILES; f++) {
        stk_zstd_frames_close(&rig->files[f].frames);
    }
    T_EQ("budget", atomic_load(&rig->engine->budget.bytes) > 0, true); /* the workers' */
    stoker_engine_close(rig->engine);
}

/* Until workers have unpacked so many frames. */
static uint64_t wait_ahead(struct rig *rig, uint64_t count)
{
    for (uint32_t ms = 0; ms < WAIT_MS && stk_frame_cache_prefetched(rig->cache) < count; ms++) {
        usleep(1000);
    }
    return stk_frame_cache_prefetched(rig->cache);
}

/* Reads a part, and compares it. */
static bool is_right(struct rig *rig, uint32_t file, uint64_t offset, uint64_t bytes)
{
    uint8_t out[3 * FRAME_BYTES];

    return stk_frame_cache_read(rig->cache, &rig->files[file], offset, bytes, out, NULL) == 0 &&
           memcmp(out, plain[file] + offset, bytes) == 0;
}

/* ---- threads ---- */

struct reader {
    struct rig *rig;
    pthread_t thread;
    uint32_t seed, wrong;
};

static void *read_at_random(void *argument)
{
    struct reader *reader = argument;

    for (uint32_t i = 0; i < 400; i++) {
        uint64_t bytes = 1 + stk_random_key(reader->seed, 3 * i) % (3 * FRAME_BYTES);
        uint64_t offset = stk_random_key(reader->seed, 3 * i + 1) % (FILE_BYTES - bytes + 1);
        uint32_t file = stk_random_key(reader->seed, 3 * i + 2) % FILES;

        stk_frame_cache_prefetch(reader->rig->cache, &reader->rig->files[(i + 1) % FILES], offset,
                                 bytes);
        reader->wrong += !is_right(reader->rig, file, offset, bytes);
    }
    return NULL;
}

static const struct bound {
    const char *name;
    uint64_t bytes_max;
} bounds[] = {
    {"a byte", 1}, {"three frames", 3000}, {"half", FILE_BYTES}, {"all", FILES * FILE_BYTES}};

static void test_threads(const struct bound *bound)
{
    struct reader readers[READERS];
    struct rig rig;

    rig_open(&rig, bound->bytes_max, 64u << 20);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.rig = &rig, .seed = i + 1};
        pthread_create(&readers[i].thread, NULL, read_at_random, &readers[i]);
    }
    for (uint32_t i = 0; i < READERS; i++) {
        pthread_join(readers[i].thread, NULL);
        T_EQ(bound->name, readers[i].wrong, 0);
    }
    rig_close(&rig);
}

/* ---- ahead ---- */

static void test_ahead(void)
{
    struct rig rig;
    uint64_t idle;

    rig_open(&rig, 10 * FRAME_BYTES, 64u << 20);
    T_TRUE("wanted",
           stk_frame_cache_prefetch(rig.cache, &rig.files[0], 500, 2 * FRAME_BYTES)); /* 0 to 2 */
    T_EQ("unpacked", wait_ahead(&rig, 3), 3);
    T_TRUE("again", stk_frame_cache_prefetch(rig.cache, &rig.files[0], 0, 1));
    T_TRUE("half", !stk_frame_cache_prefetch(rig.cache, &rig.files[1], 0, 9 * FRAME_BYTES));
    T_EQ("half", wait_ahead(&rig, 5), 5);
    T_TRUE("full", !stk_frame_cache_prefetch(rig.cache, &rig.files[1], 2 * FRAME_BYTES, 1));
    T_TRUE("read", is_right(&rig, 0, FRAME_BYTES, 10));
    T_TRUE("one more", stk_frame_cache_prefetch(rig.cache, &rig.files[1], 2 * FRAME_BYTES, 1));
    T_EQ("one more", wait_ahead(&rig, 6), 6);
    /* a wanted frame may be evicted for one that is being read */
    for (uint32_t i = 10; i < FRAMES; i++) {
        T_TRUE("others", is_right(&rig, 0, i * FRAME_BYTES, 7));
    }
    idle = stk_frame_cache_prefetched(rig.cache);
    for (uint32_t i = 0; i < FRAMES; i++) {
        T_TRUE("all", is_right(&rig, 0, i * FRAME_BYTES, FRAME_BYTES));
        T_TRUE("all", is_right(&rig, 1, i * FRAME_BYTES, FRAME_BYTES));
    }
    T_EQ("by the reader", stk_frame_cache_prefetched(rig.cache), idle);
    rig_close(&rig);
}

/* Errors of workers are reported to the reader. */
static void test_damage(void)
{
    struct stoker_error error = {0};
    struct rig rig;
    uint8_t out[FRAME_BYTES];

    rig_open(&rig, FILES * FILE_BYTES, 64u << 20);
    memset(packed[0] + rig.files[0].frames.frames[3].in + 8, 0xff, 40);
    T_TRUE("wanted", stk_frame_cache_prefetch(rig.cache, &rig.files[0], 0, 6 * FRAME_BYTES));
    T_EQ("the good ones", wait_ahead(&rig, 5), 5);
    T_EQ("damage",
         stk_frame_cache_read(rig.cache, &rig.files[0], 3 * FRAME_BYTES, FRAME_BYTES, out, &error),
         STOKER_ERROR_CORRUPT);
    T_ERROR("damage", &error);
    T_TRUE("behind it", is_right(&rig, 0, 4 * FRAME_BYTES, FRAME_BYTES));
    rig_close(&rig);
}

static void test_memory(void)
{
    struct rig rig;
    int64_t before;

    for (uint64_t n = 1; n < 8; n++) {
        rig_open(&rig, FILES * FILE_BYTES, 64u << 20);
        stk_mem_fail_nth(n); /* of workers, most likely */
        T_TRUE("wanted", stk_frame_cache_prefetch(rig.cache, &rig.files[0], 0, 6 * FRAME_BYTES));
        T_TRUE("unpacked", wait_ahead(&rig, 5) >= 5);
        stk_mem_fail_nth(0);
        T_TRUE("read", is_right(&rig, 0, 0, 3 * FRAME_BYTES));
        T_TRUE("read", is_right(&rig, 0, 3 * FRAME_BYTES, 3 * FRAME_BYTES));
        rig_close(&rig);
    }
    /* Closed with a full queue. */
    before = stk_mem_alive();
    rig_open(&rig, FILES * FILE_BYTES, 64u << 20);
    stk_frame_cache_prefetch(rig.cache, &rig.files[1], 0, FILE_BYTES);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), before);
}

int main(void)
{
    T_EACH(bound, bound, bounds)
    {
        test_threads(bound);
    }
    test_ahead();
    test_damage();
    test_memory();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
