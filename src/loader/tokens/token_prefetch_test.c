/* Goal: for cold files exactly the windows of the coming batches are announced, each once and in
 * time, wherever the loader moves; for warm files none; frames of compressed files are decompressed
 * before batches need them, and the batches are the same.
 * Method: a raw file in the simulator, cold or warm, whose announced bytes are counted
 * (token_prefetch.c); the same file compressed by libzstd, whose frames workers decompress. */
#include "base/mem.h"
#include "loader/tokens/token_prefetch.h"

#include "io/sim/sim.h"
#include "test/t.h"

#include <string.h>
#include <unistd.h>
#include <zstd.h>

#define TOKENS 60000u
#define FRAME_TOKENS 500u
#define BATCH 8u
#define CONTEXT 32u
#define WINDOW_BYTES ((CONTEXT + 1) * 2u)
/* Batches that are announced with the first one: itself, and those before the first distant one. */
#define FAR_BATCHES (STK_TOKEN_PREFETCH_PAGES_SAMPLES / BATCH)
#define WAIT_MS 20000u

static uint16_t tokens[TOKENS];
static uint8_t packed[4 * TOKENS];
static struct stk_io *world;
static struct stoker_engine *engine;

static void rig_open(void)
{
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 3000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 2, .memory_bytes_max = 64u << 20};
    size_t bytes = 0;

    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)(i % 50 == 49 ? 0 : i);
    }
    for (uint32_t i = 0; i < TOKENS; i += FRAME_TOKENS) {
        bytes +=
            ZSTD_compress(packed + bytes, sizeof packed - bytes, tokens + i, 2 * FRAME_TOKENS, 1);
    }
    T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
    T_EQ("add", stk_sim_add(world, "/data/raw.bin", tokens, sizeof tokens), 0);
    T_EQ("add", stk_sim_add(world, "/data/raw.bin.zst", packed, bytes), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, world, &options, NULL), 0);
}

struct stream {
    struct stoker_tokens *set;
    struct stoker_token_loader *loader;
    uint64_t opened; /* bytes announced before the first batch */
};

static void stream_open(struct stream *stream, const char *path, uint32_t rows, uint32_t shuffle)
{
    struct stoker_tokens_options files = {.struct_size = sizeof files,
                                          .paths = &path,
                                          .path_count = 1,
                                          .dtype = STOKER_UINT16,
                                          .cache_bytes = 80 * 2 * FRAME_TOKENS};
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .context = CONTEXT,
                                                  .batch_size = BATCH,
                                                  .rows = rows,
                                                  .shuffle = shuffle,
                                                  .has_eod = 1,
                                                  .chunk_documents = 20,
                                                  .seed = 4};

    T_EQ("open", stoker_tokens_open(&stream->set, engine, &files, NULL), 0);
    T_EQ("open", stoker_token_loader_open(&stream->loader, stream->set, &options, NULL), 0);
    stream->opened = stk_sim_prefetched_bytes(world);
}

static void stream_close(struct stream *stream)
{
    stoker_token_loader_close(stream->loader);
    stoker_tokens_close(stream->set);
}

/* Takes some batches; returns the bytes announced since the stream was opened. */
static uint64_t after(struct stream *stream, uint32_t batches)
{
    while (batches > 0) {
        struct stoker_batch *batch;
        int status = stoker_token_loader_next(stream->loader, &batch, NULL);

        batches -= status == 1; /* the end of an epoch is not an end */
        stoker_batch_close(batch);
        if (status < 0) {
            break;
        }
    }
    return stk_sim_prefetched_bytes(world) - stream->opened;
}

static void test_cold(uint32_t shuffle)
{
    uint64_t batch = BATCH * WINDOW_BYTES, epoch = TOKENS / CONTEXT / BATCH;
    struct stoker_state state;
    struct stream stream;
    uint64_t before;

    stk_sim_set_cold(world, true);
    stream_open(&stream, "/data/raw.bin", STOKER_ROWS_WINDOWS, shuffle);
    T_EQ("first", after(&stream, 1), (1 + FAR_BATCHES) * batch);
    T_EQ("second", after(&stream, 1), (2 + FAR_BATCHES) * batch);
    T_EQ("into the next epoch", after(&stream, (uint32_t)epoch), (epoch + 2 + FAR_BATCHES) * batch);
    T_EQ("state", stoker_token_loader_state(stream.loader, &state), 0);
    state.position = 40 * BATCH;
    T_EQ("state", stoker_token_loader_set_state(stream.loader, &state, NULL), 0);
    before = stk_sim_prefetched_bytes(world) - stream.opened;
    T_EQ("elsewhere", after(&stream, 1), before + (1 + FAR_BATCHES) * batch);
    T_EQ("and on", after(&stream, 3), before + (4 + FAR_BATCHES) * batch);
    stream_close(&stream);
}

static void test_warm(void)
{
    uint64_t batch = BATCH * WINDOW_BYTES, known;
    struct stream stream;

    stk_sim_set_cold(world, false);
    stream_open(&stream, "/data/raw.bin", STOKER_ROWS_WINDOWS, STOKER_SHUFFLE_FULL);
    known = after(&stream, STK_TOKEN_PREFETCH_COLD_BATCHES);
    T_EQ("at first", known, (STK_TOKEN_PREFETCH_COLD_BATCHES + FAR_BATCHES) * batch);
    T_EQ("then none", after(&stream, 50), known);
    stk_sim_set_cold(world, true);
    T_EQ("seen", after(&stream, 1), known);
    T_EQ("cold again", after(&stream, 1), known + (1 + FAR_BATCHES) * batch);
    stream_close(&stream);
}

/* Documents are announced with their used part; packed rows are not. */
static void test_rows(void)
{
    struct stream stream;

    stk_sim_set_cold(world, true);
    stream_open(&stream, "/data/raw.bin", STOKER_ROWS_PADDED, STOKER_SHUFFLE_FULL);
    T_EQ("padded", after(&stream, 1), (uint64_t)(1 + FAR_BATCHES) * BATCH * CONTEXT * 2);
    stream_close(&stream);
    stream_open(&stream, "/data/raw.bin", STOKER_ROWS_PACKED, STOKER_SHUFFLE_FULL);
    T_EQ("packed", after(&stream, 5), 0);
    stream_close(&stream);
}

static bool same(struct stoker_batch *a, struct stoker_batch *b)
{
    struct stoker_array x, y;

    return stoker_batch_array(a, 0, &x) == 0 && stoker_batch_array(b, 0, &y) == 0 &&
           memcmp(x.data, y.data, (size_t)8 * BATCH * CONTEXT) == 0;
}

static void test_frames(uint32_t rows, uint32_t shuffle)
{
    struct stream plain, zstd;
    uint32_t batches = 0;

    stk_sim_set_cold(world, false);
    stream_open(&plain, "/data/raw.bin", rows, shuffle);
    stream_open(&zstd, "/data/raw.bin.zst", rows, shuffle);
    for (uint32_t ended = 0; ended < 2;) {
        struct stoker_batch *a, *b;
        int status = stoker_token_loader_next(plain.loader, &a, NULL);

        T_EQ("next", stoker_token_loader_next(zstd.loader, &b, NULL), status);
        if (status == 1) {
            T_TRUE("same", same(a, b));
        }
        stoker_batch_close(a);
        stoker_batch_close(b);
        ended += status == 1 ? 0 : status == 0 ? 1 : 2;
        /* 96 windows follow; some frames of the first are cached since open */
        if (batches++ == 0) {
            for (uint32_t ms = 0;
                 ms < WAIT_MS && stk_frame_cache_prefetched(zstd.set->frame_cache) < 2; ms++) {
                usleep(1000);
            }
            T_TRUE("ahead", stk_frame_cache_prefetched(zstd.set->frame_cache) >= 2);
        }
    }
    T_TRUE("batches", batches > 100);
    stream_close(&plain);
    stream_close(&zstd);
}

int main(void)
{
    rig_open();
    test_cold(STOKER_SHUFFLE_FULL);
    test_cold(STOKER_SHUFFLE_BLOCK);
    test_warm();
    test_rows();
    test_frames(STOKER_ROWS_WINDOWS, STOKER_SHUFFLE_NONE);
    test_frames(STOKER_ROWS_WINDOWS, STOKER_SHUFFLE_FULL);
    test_frames(STOKER_ROWS_PACKED, STOKER_SHUFFLE_BLOCK);
    stoker_engine_close(engine);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
