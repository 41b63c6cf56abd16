/* Goal: the error struct of a call is optional: each failing call returns the same status with and
 * without it, and fills it with that status.
 * Method: each failing call of the token files and the token loader once with and once without an
 * error; a file is read up to a token that does not fit both ways. Covers token_files.c,
 * token_documents.c, token_loader.c and token_loader_next.c. */
#include "test/t.h"
#include "base/mem.h"
#include "io/sim/sim.h"
#include "loader/tokens/token_set.h"

#include <string.h>

#define TOKENS 4000u

struct rig {
    struct stk_io *world;
    struct stoker_engine *engine;
};

static void rig_open(struct rig *rig)
{
    static const char bad_idx[60] = "MMIDIDX\0\0 and no index behind it, but 60 bytes ......";
    static uint16_t tokens[TOKENS];
    static uint64_t large[8] = {0, 0, UINT64_MAX, 0};
    static uint8_t llmc[1028];
    uint32_t head[3] = {20240520, 1, 77};
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 3000};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine, .threads = 2, .memory_bytes_max = 16u << 20};

    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)(i * 7919);
    }
    *rig = (struct rig){0};
    T_EQ("world", stk_sim_open(&rig->world, 1, &io, NULL), 0);
    stk_sim_add(rig->world, "/d/raw.bin", tokens, sizeof tokens);
    stk_sim_add(rig->world, "/d/odd.bin", tokens, 777);
    stk_sim_add(rig->world, "/d/wide.bin", large, sizeof large);
    stk_sim_add(rig->world, "/d/set.idx", bad_idx, 60);
    stk_sim_add(rig->world, "/d/set.bin", tokens, 100);
    stk_sim_add(rig->world, "/d/a.npy", "\x93NUMPY\1\0\x10\0{'descr': '<f4'", 26);
    memcpy(llmc, head, sizeof head);
    stk_sim_add(rig->world, "/d/llmc.bin", llmc, sizeof llmc);
    T_EQ("engine", stk_engine_open_with_io(&rig->engine, rig->world, &engine, NULL), 0);
}

static int open_tokens(struct rig *rig, const char *path, uint32_t dtype,
                       struct stoker_tokens **tokens, struct stoker_error *error)
{
    struct stoker_tokens_options options = {
        .struct_size = sizeof options, .paths = &path, .path_count = 1, .dtype = dtype};

    return stoker_tokens_open(tokens, rig->engine, &options, error);
}

static const struct file_row {
    const char *path;
    uint32_t dtype;
} files[] = {
    {"/d/none.bin", STOKER_UINT16}, {"/d", STOKER_UINT16},
    {"/d/odd.bin", STOKER_UINT16},  {"/d/raw.bin", 0},
    {"/d/raw.bin", STOKER_FLOAT32}, {"/d/set.idx", STOKER_UINT16},
    {"/d/set", STOKER_UINT16},      {"/d/a.npy", STOKER_UINT16},
    {"/d/llmc.bin", STOKER_UINT16},
};

static void test_files(struct rig *rig)
{
    for (size_t i = 0; i < STK_COUNT(files); i++) {
        struct stoker_tokens *tokens = NULL;
        struct stoker_error error = {0};
        int with = open_tokens(rig, files[i].path, files[i].dtype, &tokens, &error);

        T_TRUE(files[i].path, with < 0 && tokens == NULL);
        T_EQ(files[i].path, error.status, with);
        T_ERROR(files[i].path, &error);
        T_EQ(files[i].path, open_tokens(rig, files[i].path, files[i].dtype, &tokens, NULL), with);
        T_TRUE(files[i].path, tokens == NULL);
    }
}

static const struct loader_row {
    const char *name, *path;
    struct stoker_token_loader_options options;
} loaders[] = {
    {"no eod", "/d/raw.bin", {.rows = STOKER_ROWS_DOCUMENTS, .batch_size = 2}},
    {"no window", "/d/raw.bin", {.batch_size = 2, .context = 1 << 20}},
    {"no context", "/d/raw.bin", {.batch_size = 2}},
    {"no bytes", "/d/raw.bin", {.batch_size = 2, .context = 8, .dtype = STOKER_UINT8}},
    {"no rank", "/d/raw.bin", {.batch_size = 2, .context = 8, .rank = 2, .world_size = 2}},
    {"too large", "/d/raw.bin", {.batch_size = 1u << 30, .context = 8}},
};

static void test_loaders(struct rig *rig)
{
    T_EACH(loader_row, row, loaders)
    {
        struct stoker_token_loader_options options = row->options;
        struct stoker_token_loader *loader = NULL;
        struct stoker_tokens *tokens = NULL;
        struct stoker_error error = {0};
        int with;

        options.struct_size = sizeof options;
        if (!T_EQ(row->name, open_tokens(rig, row->path, STOKER_UINT16, &tokens, NULL), 0)) {
            continue;
        }
        with = stoker_token_loader_open(&loader, tokens, &options, &error);
        T_TRUE(row->name, with < 0 && loader == NULL);
        T_EQ(row->name, error.status, with);
        T_ERROR(row->name, &error);
        T_EQ(row->name, stoker_token_loader_open(&loader, tokens, &options, NULL), with);
        stoker_token_loader_close(loader);
        stoker_tokens_close(tokens);
    }
}

/* Reads all batches. Returns how many were good, and the status of the last call. */
static uint32_t read_all(struct rig *rig, const char *path, uint32_t dtype, bool has_error,
                         int *status_out)
{
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .batch_size = 1,
                                                  .context = path[3] == 'w' ? 1 : 20,
                                                  .dtype = STOKER_INT32,
                                                  .shuffle = STOKER_SHUFFLE_NONE};
    struct stoker_token_loader *loader = NULL;
    struct stoker_tokens *tokens = NULL;
    struct stoker_error error = {0};
    uint32_t good = 0;
    int status;

    *status_out = 0;
    if (!T_EQ(path, open_tokens(rig, path, dtype, &tokens, NULL), 0) ||
        !T_EQ(path, stoker_token_loader_open(&loader, tokens, &options, NULL), 0)) {
        return 0;
    }
    do {
        struct stoker_batch *batch = NULL;

        status = stoker_token_loader_next(loader, &batch, has_error ? &error : NULL);
        T_TRUE(path, (status == 1) == (batch != NULL));
        good += status == 1;
        stoker_batch_close(batch);
    } while (status == 1);
    T_EQ("status", has_error ? error.status : status, status);
    T_EQ("epoch", stoker_token_loader_set_epoch(loader, UINT64_MAX, has_error ? &error : NULL),
         STOKER_ERROR_ARGUMENT);
    stoker_token_loader_close(loader);
    stoker_tokens_close(tokens);
    *status_out = status;
    return good;
}

int main(void)
{
    static const struct file_row damaged[] = {{"/d/wide.bin", STOKER_UINT64}};
    struct rig rig;

    rig_open(&rig);
    test_files(&rig);
    test_loaders(&rig);
    for (size_t i = 0; i < STK_COUNT(damaged); i++) {
        int with, without;
        uint32_t good = read_all(&rig, damaged[i].path, damaged[i].dtype, true, &with);

        T_TRUE(damaged[i].path, with < 0);
        T_EQ(damaged[i].path, read_all(&rig, damaged[i].path, damaged[i].dtype, false, &without),
             good);
        T_EQ(damaged[i].path, without, with);
    }
    stoker_engine_close(rig.engine);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
