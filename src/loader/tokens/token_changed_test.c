/* Goal: token files and Megatron indexes that are overwritten while they are open, between the
 * check of their contents and their use, never lead out of a buffer: each call succeeds or reports
 * that the file changed or is damaged.
 * Method: the maps of the simulator are copies in memory, which this test overwrites: entries of
 * the index at random and by rules, between open and next and between two batches; a thread that
 * writes tokens while documents are searched. Run with ASan. Covers token_documents.c,
 * token_samples.c, packed_rows.c and token_loader_next.c. */
#include "test/t.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/thread.h"
#include "io/sim/sim.h"
#include "loader/tokens/token_set.h"

#include <string.h>

#define SEQUENCES 300u
#define TOKENS (SEQUENCES * 20u)
#define HEADER_BYTES 34u
#define IDX_BYTES (HEADER_BYTES + SEQUENCES * 12 + (SEQUENCES + 1) * 8)
#define SEARCHED 200000u
#define EOD 7

static void put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    memcpy(at, &value, bytes);
}

/* Documents of one sequence of 20 tokens each. */
static void make_idx(uint8_t *idx)
{
    uint8_t *at = idx + HEADER_BYTES;

    memcpy(idx, "MMIDIDX\0\0", 9);
    put(idx + 9, 1, 8);
    put(idx + 17, 8, 1);
    put(idx + 18, SEQUENCES, 8);
    put(idx + 26, SEQUENCES + 1, 8);
    for (uint32_t i = 0; i < SEQUENCES; i++, at += 4) {
        put(at, 20, 4);
    }
    for (uint64_t i = 0; i < SEQUENCES; i++, at += 8) {
        put(at, 2 * 20 * i, 8);
    }
    for (uint32_t i = 0; i <= SEQUENCES; i++, at += 8) {
        put(at, i, 8);
    }
}

struct rig {
    struct stk_io *world;
    struct stoker_engine *engine;
    struct stoker_tokens *tokens;
    uint8_t *idx; /* the map */
};

static void rig_open(struct rig *rig)
{
    static uint8_t idx[IDX_BYTES];
    static uint16_t tokens[TOKENS], searched[SEARCHED];
    static const char *const paths[] = {"/data/set.bin", "/data/raw.bin"};
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 3000};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine, .threads = 2, .memory_bytes_max = 64u << 20};
    struct stoker_tokens_options options = {
        .struct_size = sizeof options, .paths = paths, .path_count = 1, .dtype = STOKER_UINT16};

    make_idx(idx);
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)i;
    }
    *rig = (struct rig){0};
    T_EQ("world", stk_sim_open(&rig->world, 1, &io, NULL), 0);
    stk_sim_add(rig->world, "/data/set.idx", idx, sizeof idx);
    stk_sim_add(rig->world, "/data/set.bin", tokens, sizeof tokens);
    stk_sim_add(rig->world, "/data/raw.bin", searched, sizeof searched);
    T_EQ("engine", stk_engine_open_with_io(&rig->engine, rig->world, &engine, NULL), 0);
    T_EQ("tokens", stoker_tokens_open(&rig->tokens, rig->engine, &options, NULL), 0);
    rig->idx = (uint8_t *)(uintptr_t)rig->tokens->files[0].idx.data;
}

static void rig_close(struct rig *rig)
{
    stoker_tokens_close(rig->tokens);
    stoker_engine_close(rig->engine);
}

static const struct row {
    const char *name;
    struct stoker_token_loader_options options;
} rows[] = {
    {"documents", {.rows = STOKER_ROWS_DOCUMENTS, .batch_size = 16}},
    {"documents, cut, EOD",
     {.rows = STOKER_ROWS_DOCUMENTS,
      .batch_size = 16,
      .context = 30,
      .has_eod = 1,
      .eod = EOD,
      .append_eod = 1}},
    {"padded", {.rows = STOKER_ROWS_PADDED, .batch_size = 16, .context = 24}},
    {"packed", {.rows = STOKER_ROWS_PACKED, .batch_size = 4, .context = 64, .chunk_documents = 32}},
    {"packed, one chunk", {.rows = STOKER_ROWS_PACKED, .batch_size = 4, .context = 64}},
};

/* Ways to overwrite an index; each keeps its header and its size. */
enum way { LENGTHS_GROW, LENGTHS_SHRINK, ZEROS, ONE_DOCUMENT, RANDOM, WAYS };

static void overwrite(uint8_t *idx, enum way way, uint64_t seed)
{
    uint8_t *lengths = idx + HEADER_BYTES, *pointers = lengths + 4 * SEQUENCES;
    uint8_t *documents = pointers + 8 * SEQUENCES;

    make_idx(idx);
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        switch (way) {
        case LENGTHS_GROW: /* the documents cover the file */
            put(lengths + 4 * i, TOKENS, 4);
            put(pointers + 8 * i, 0, 8);
            break;
        case LENGTHS_SHRINK:
            put(lengths + 4 * i, 1, 4);
            break;
        case ONE_DOCUMENT: /* each begins at the first sequence and has all of them */
            put(documents + 8 * i, i % 2 ? SEQUENCES : 0, 8);
            break;
        case ZEROS:
        case RANDOM:
        case WAYS:
            break;
        }
    }
    if (way == ZEROS) { /* as a file that was cut reads */
        memset(idx + HEADER_BYTES, 0, IDX_BYTES - HEADER_BYTES);
    }
    for (uint32_t i = 0; way == RANDOM && i < 40; i++) {
        uint64_t key = stk_random_key(seed, i);

        idx[HEADER_BYTES + key % (IDX_BYTES - HEADER_BYTES)] = (uint8_t)(key >> 40);
    }
}

static bool is_honest(int status)
{
    return status == 0 || status == 1 || status == STOKER_ERROR_CHANGED ||
           status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_LIMIT;
}

/* Reads an epoch while the index is overwritten before every third batch. Returns how many calls
 * failed. */
static uint32_t read_epoch(struct rig *rig, const struct row *row, enum way way, uint64_t seed)
{
    struct stoker_token_loader_options options = row->options;
    struct stoker_token_loader *loader = NULL;
    uint32_t failed = 0;
    int status;

    options.struct_size = sizeof options;
    options.tail = STOKER_TAIL_KEEP;
    options.seed = seed;
    make_idx(rig->idx);
    status = stoker_token_loader_open(&loader, rig->tokens, &options, NULL);
    T_EQ(row->name, status, 0);
    for (uint32_t i = 0; status >= 0 && i < 200; i++) {
        struct stoker_error error = {0};
        struct stoker_batch *batch = NULL;

        overwrite(rig->idx, i % 3 == 2 ? RANDOM : way, stk_random_key(seed, i));
        status = stoker_token_loader_next(loader, &batch, &error);
        T_TRUE(row->name, is_honest(status));
        if (status < 0) {
            T_ERROR(row->name, &error);
            failed++;
            make_idx(rig->idx); /* the file is there again: so are its tokens */
            status = stoker_token_loader_next(loader, &batch, NULL);
            T_TRUE(row->name, is_honest(status));
        }
        stoker_batch_close(batch);
        if (status == 0) {
            break;
        }
    }
    stoker_token_loader_close(loader);
    return failed;
}

static void test_index(void)
{
    struct rig rig;
    uint32_t failed = 0;

    rig_open(&rig);
    T_EACH(row, row, rows)
    {
        for (int way = 0; way < WAYS; way++) {
            for (uint64_t seed = 0; seed < 20; seed++) {
                failed += read_epoch(&rig, row, (enum way)way, seed);
            }
        }
    }
    T_TRUE("changes are found", failed > 100);
    rig_close(&rig);
}

/* ---- the search for EOD ---- */

#ifndef __SANITIZE_THREAD__
struct writer {
    uint16_t *tokens;
    atomic_bool stop;
};

static void *write_tokens(void *argument)
{
    struct writer *writer = argument;

    for (uint64_t i = 0; !atomic_load(&writer->stop); i++) {
        uint16_t value = i % 2 ? EOD : 0;

        for (uint32_t at = (uint32_t)(i % 7); at < SEARCHED; at += 1 + (uint32_t)(i % 3)) {
            __atomic_store_n(&writer->tokens[at], value, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void test_search(void)
{
    static const char *const path = "/data/raw.bin";
    struct stoker_tokens_options options = {
        .struct_size = sizeof options, .paths = &path, .path_count = 1, .dtype = STOKER_UINT16};
    struct stoker_token_loader_options documents = {.struct_size = sizeof documents,
                                                    .rows = STOKER_ROWS_DOCUMENTS,
                                                    .batch_size = 4,
                                                    .has_eod = 1,
                                                    .eod = EOD};
    struct stoker_tokens *tokens = NULL;
    struct writer writer = {0};
    uint32_t changed = 0;
    pthread_t thread;
    struct rig rig;

    rig_open(&rig);
    T_EQ("open", stoker_tokens_open(&tokens, rig.engine, &options, NULL), 0);
    writer.tokens = (uint16_t *)(uintptr_t)tokens->files[0].view.data;
    T_EQ("start", stk_thread_start(&thread, NULL, write_tokens, &writer), 0);
    for (uint32_t i = 0; i < 60; i++) {
        struct stoker_token_loader *loader = NULL;
        struct stoker_error error = {0};
        int status = stoker_token_loader_open(&loader, tokens, &documents, &error);

        /* EMPTY: the documents that were found are fewer than a batch. */
        T_TRUE("search",
               status == 0 || status == STOKER_ERROR_CHANGED || status == STOKER_ERROR_EMPTY);
        changed += status == STOKER_ERROR_CHANGED;
        if (status < 0) {
            T_ERROR("search", &error);
        }
        stoker_token_loader_close(loader);
    }
    T_TRUE("changes are found", changed > 0);
    atomic_store(&writer.stop, true);
    T_EQ("join", pthread_join(thread, NULL), 0);
    stoker_tokens_close(tokens);
    rig_close(&rig);
}
#endif

int main(void)
{
    test_index();
#ifndef __SANITIZE_THREAD__ /* its writer is a thread that plays another process: a race */
    test_search();
#endif
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
