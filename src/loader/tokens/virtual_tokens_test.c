/* Goal: windows of tokens that are stored elsewhere are named in the order of a file with the same
 * tokens, and rows made from their tokens are that file's rows.
 * Method: a raw file in the simulator; a loader of it and one that knows its count only
 * (token_files.c, token_loader.c), whose ids are turned into rows from the array that the file was
 * written from; ids, rows, positions in the state and the size of a block compared; impossible
 * settings are refused. */
#include "base/mem.h"
#include "io/sim/sim.h"
#include "loader/tokens/token_set.h"
#include "test/t.h"

#include <string.h>

#define TOKENS 3001u
#define EOD 5
#define BATCH 8u
#define WINDOW_MAX 64u

static int32_t tokens[TOKENS];
static const char *const path = "/data/raw.bin";

static const struct row {
    const char *name;
    struct stoker_token_loader_options options;
} rows[] = {
    {"plain", {.context = 32, .seed = 3, .block_bytes = 1024}},
    {"full, overlapping", {.context = 20, .stride = 7, .shuffle = STOKER_SHUFFLE_FULL}},
    {"no labels", {.context = 31, .labels = STOKER_LABELS_NONE, .tail = STOKER_TAIL_KEEP}},
    {"ends",
     {.context = 40,
      .has_eod = 1,
      .eod = EOD,
      .boundary_labels = STOKER_BOUNDARY_MASKED,
      .positions = STOKER_POSITIONS_RESET}},
    {"fill in the middle",
     {.context = 40, .has_eod = 1, .eod = EOD, .seed = 8, .fim_rate = 0.8, .fim_spm_rate = 0.5}},
    {"rank 1 of 2, padded", {.context = 32, .rank = 1, .world_size = 2, .tail = STOKER_TAIL_PAD}},
};

static int engine_new(struct stoker_engine **engine_out)
{
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 3000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 16u << 20};
    struct stk_io *world;

    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i % 23 == 0 ? EOD : (int32_t)(100 + i);
    }
    if (stk_sim_open(&world, 1, &io, NULL) < 0) {
        return -1;
    }
    stk_sim_add(world, path, tokens, sizeof tokens);
    return stk_engine_open_with_io(engine_out, world, &options, NULL);
}

/* The batch of `at`, made of the windows that it names. */
static int make(struct stoker_batch **batch_out, struct stoker_engine *engine,
                const struct stoker_token_loader_options *options, const struct stoker_batch *at,
                uint64_t epoch)
{
    uint64_t stride = options->stride ? options->stride : options->context, ends[BATCH];
    uint64_t length = options->context + (options->labels != STOKER_LABELS_NONE);
    int32_t part[BATCH * (WINDOW_MAX + 1)];
    uint32_t count = stoker_batch_samples(at);
    struct stoker_token_documents documents = {.struct_size = sizeof documents,
                                               .tokens = part,
                                               .ends = ends,
                                               .ids = stoker_batch_ids(at),
                                               .count = count,
                                               .epoch = epoch};

    for (uint32_t i = 0; i < count; i++) {
        memcpy(part + i * length, tokens + stoker_batch_ids(at)[i] * stride, length * 4);
        ends[i] = (i + 1) * length;
    }
    return stoker_token_rows_batch(batch_out, engine, &documents, options, NULL);
}

static bool same(struct stoker_batch *a, struct stoker_batch *b)
{
    struct stoker_array x, y;
    bool is_same = stoker_batch_samples(a) == stoker_batch_samples(b);

    for (uint32_t field = 0; is_same && stoker_batch_array(a, field, &x) == 0; field++) {
        uint64_t count = x.offsets ? x.offsets[stoker_batch_samples(a)]
                                   : (uint64_t)x.shape[0] * (uint64_t)x.shape[1];

        is_same = stoker_batch_array(b, field, &y) == 0 && x.dtype == y.dtype &&
                  memcmp(x.data, y.data, count * (x.dtype == STOKER_INT32 ? 4 : 8)) == 0;
    }
    return is_same;
}

/* Two epochs of both loaders. */
static void compare(const struct row *row, struct stoker_engine *engine,
                    struct stoker_token_loader *there, struct stoker_token_loader *elsewhere,
                    const struct stoker_token_loader_options *options)
{
    struct stoker_state x, y;
    uint64_t batches = 0;

    for (uint64_t epoch = 0; epoch < 2;) {
        struct stoker_batch *a, *b, *made = NULL;
        int more = stoker_token_loader_next(there, &a, NULL);

        T_EQ(row->name, stoker_token_loader_next(elsewhere, &b, NULL), more);
        if (more != 1) {
            epoch += more == 0 ? 1 : 2;
            continue;
        }
        uint32_t count = stoker_batch_samples(b);

        T_TRUE(row->name, count == stoker_batch_samples(a) &&
                              memcmp(stoker_batch_ids(a), stoker_batch_ids(b), 8 * count) == 0 &&
                              memcmp(stoker_batch_mask(a), stoker_batch_mask(b), count) == 0);
        if (count > 0) {
            T_EQ(row->name, make(&made, engine, options, b, epoch), 0);
            T_TRUE(row->name, same(a, made));
        }
        stoker_batch_close(a);
        stoker_batch_close(b);
        stoker_batch_close(made);
        batches++;
    }
    T_TRUE(row->name, batches > 8);
    T_EQ(row->name, stoker_token_loader_state(there, &x), 0);
    T_EQ(row->name, stoker_token_loader_state(elsewhere, &y), 0);
    T_EQ(row->name, y.position, x.position);
    T_EQ(row->name, y.fingerprint, x.fingerprint);
    T_EQ(row->name, y.block_samples, x.block_samples);
    T_TRUE(row->name, memcmp(x.identity, y.identity, 16) != 0);
}

static void test_row(const struct row *row, struct stoker_engine *engine)
{
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = &path, .path_count = 1, .dtype = STOKER_INT32};
    struct stoker_tokens_options counts = {.struct_size = sizeof counts, .virtual_tokens = TOKENS};
    struct stoker_token_loader_options options = row->options;
    struct stoker_token_loader *there, *elsewhere;
    struct stoker_tokens *a, *b;

    options.struct_size = sizeof options;
    options.batch_size = BATCH;
    /* The default of files depends on where they are. */
    options.shuffle = options.shuffle ? options.shuffle : STOKER_SHUFFLE_BLOCK;
    T_EQ(row->name, stoker_tokens_open(&a, engine, &files, NULL), 0);
    T_EQ(row->name, stoker_tokens_open(&b, engine, &counts, NULL), 0);
    T_EQ(row->name, stoker_token_loader_open(&there, a, &options, NULL), 0);
    T_EQ(row->name, stoker_token_loader_open(&elsewhere, b, &options, NULL), 0);
    compare(row, engine, there, elsewhere, &options);
    stoker_token_loader_close(there);
    stoker_token_loader_close(elsewhere);
    stoker_tokens_close(a);
    stoker_tokens_close(b);
}

static const struct block {
    const char *name;
    uint64_t bytes, samples;
} blocks[] = {{"default", 0, (8u << 20) / 400}, {"ten windows", 4000, 10}, {"a window", 1, 1}};

static void test_blocks(struct stoker_engine *engine)
{
    struct stoker_tokens_options counts = {.struct_size = sizeof counts, .virtual_tokens = 1000000};

    T_EACH(block, block, blocks)
    {
        struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                      .context = 100,
                                                      .batch_size = 1,
                                                      .block_bytes = block->bytes};
        struct stoker_token_loader *loader;
        struct stoker_tokens *some;
        struct stoker_state state;

        T_EQ("open", stoker_tokens_open(&some, engine, &counts, NULL), 0);
        T_EQ("open", stoker_token_loader_open(&loader, some, &options, NULL), 0);
        T_EQ("state", stoker_token_loader_state(loader, &state), 0);
        T_EQ(block->name, state.block_samples, block->samples);
        stoker_token_loader_close(loader);
        stoker_tokens_close(some);
    }
}

static void test_refused(struct stoker_engine *engine)
{
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = &path, .path_count = 1, .virtual_tokens = 7};
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .batch_size = 1,
                                                  .context = 8,
                                                  .rows = STOKER_ROWS_PACKED,
                                                  .has_eod = 1};
    static const uint64_t ends[] = {9, 17};
    struct stoker_token_documents documents = {
        .struct_size = sizeof documents, .tokens = tokens, .ends = ends, .ids = ends, .count = 2};
    struct stoker_token_loader *loader;
    struct stoker_tokens *some;
    struct stoker_batch *batch;
    struct stoker_error error = {0};

    T_EQ("both", stoker_tokens_open(&some, engine, &files, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("both", &error);
    files.path_count = 0;
    T_EQ("open", stoker_tokens_open(&some, engine, &files, &error), 0);
    T_EQ("packed", stoker_token_loader_open(&loader, some, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("packed", &error);
    options.rows = STOKER_ROWS_WINDOWS;
    T_EQ("short", stoker_token_loader_open(&loader, some, &options, &error), STOKER_ERROR_EMPTY);
    T_EQ("length", stoker_token_rows_batch(&batch, engine, &documents, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("length", error.advice, "as long as context");
    options.block_bytes = STK_TOKEN_BLOCK_BYTES_MAX + 1;
    T_EQ("block", stoker_token_loader_open(&loader, some, &options, &error), STOKER_ERROR_ARGUMENT);
    stoker_tokens_close(some);
}

int main(void)
{
    struct stoker_engine *engine;

    T_EQ("engine", engine_new(&engine), 0);
    T_EACH(row, row, rows)
    {
        test_row(row, engine);
    }
    test_blocks(engine);
    test_refused(engine);
    stoker_engine_close(engine);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
