/* Goal: documents in memory become the rows that a token loader makes of a file of them, and lines
 * of a file are returned as its bytes.
 * Method: the same documents as a Megatron set in the simulator and in memory (token_rows_batch.c),
 * batches compared to the byte for each kind of rows; padded rows by a walk; bytes against the
 * file; impossible settings are refused; every allocation fails once. */
#include "test/t.h"
#include "base/mem.h"
#include "io/sim/sim.h"
#include "loader/tokens/token_set.h"

#include <errno.h>
#include <string.h>

#define DOCUMENTS 50u
#define TOKENS_MAX 1000u

static int32_t tokens[TOKENS_MAX];
static uint64_t ends[DOCUMENTS], ids[DOCUMENTS];
static const char *const text = "one\n\nthree and more\nfour";

static void put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    memcpy(at, &value, bytes);
}

/* Documents of 0 to 19 tokens, and the set of them. */
static struct stk_io *world_new(void)
{
    static uint8_t idx[64 + 20 * DOCUMENTS];
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 3000};
    struct stk_io *world;
    uint8_t *at = idx + 34;
    uint32_t count = 0;

    for (uint32_t i = 0; i < DOCUMENTS; i++) {
        count += (i * 7) % 20;
        ends[i] = count;
        ids[i] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (int32_t)(100 + i);
    }
    memcpy(idx, "MMIDIDX\0\0", 9);
    put(idx + 9, 1, 8);
    put(idx + 17, 4, 1);
    put(idx + 18, DOCUMENTS, 8);
    put(idx + 26, DOCUMENTS + 1, 8);
    for (uint32_t i = 0; i < DOCUMENTS; i++, at += 4) {
        put(at, (i * 7) % 20, 4);
    }
    for (uint32_t i = 0; i < DOCUMENTS; i++, at += 8) {
        put(at, 4 * (i > 0 ? ends[i - 1] : 0), 8);
    }
    for (uint32_t i = 0; i <= DOCUMENTS; i++, at += 8) {
        put(at, i, 8);
    }
    if (stk_sim_open(&world, 1, &options, NULL) < 0) {
        return NULL;
    }
    stk_sim_add(world, "/data/set.idx", idx, (size_t)(at - idx));
    stk_sim_add(world, "/data/set.bin", tokens, 4 * count);
    stk_sim_add(world, "/data/lines.txt", text, strlen(text));
    return world;
}

static int engine_new(struct stoker_engine **engine_out)
{
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 16u << 20};

    return stk_engine_open_with_io(engine_out, world_new(), &options, NULL);
}

static const struct row {
    const char *name;
    struct stoker_token_loader_options options;
} rows[] = {
    {"packed", {.rows = STOKER_ROWS_PACKED, .context = 32}},
    {"packed, FIM", {.rows = STOKER_ROWS_PACKED, .context = 32, .fim_rate = 0.5, .seed = 4}},
    {"padded", {.rows = STOKER_ROWS_PADDED, .context = 12, .pad = 3}},
    {"padded, positions",
     {.rows = STOKER_ROWS_PADDED, .context = 12, .positions = STOKER_POSITIONS_RESET}},
    {"documents", {.rows = STOKER_ROWS_DOCUMENTS, .fim_rate = 0.7, .fim_spm_rate = 0.5}},
    {"documents, int32", {.rows = STOKER_ROWS_DOCUMENTS, .dtype = STOKER_INT32, .context = 9}},
    {"documents, an EOD more",
     {.rows = STOKER_ROWS_DOCUMENTS, .has_eod = 1, .eod = 7, .append_eod = 1}},
};

static bool same_field(struct stoker_batch *a, struct stoker_batch *b, uint32_t field)
{
    struct stoker_array x, y;
    uint64_t count;

    if (stoker_batch_array(a, field, &x) < 0 || stoker_batch_array(b, field, &y) < 0) {
        return stoker_batch_array(a, field, &x) == stoker_batch_array(b, field, &y);
    }
    count = x.offsets ? x.offsets[stoker_batch_samples(a)]
                      : (uint64_t)x.shape[0] * (uint64_t)x.shape[1];
    return x.dtype == y.dtype &&
           memcmp(x.data, y.data, count * (x.dtype == STOKER_INT32 ? 4 : 8)) == 0;
}

static int make(struct stoker_batch **batch_out, struct stoker_engine *engine,
                const struct row *row, struct stoker_error *error)
{
    struct stoker_token_documents documents = {
        .struct_size = sizeof documents,
        .tokens = tokens,
        .ends = ends,
        .ids = ids,
        .count = DOCUMENTS,
        .epoch = 2,
    };
    struct stoker_token_loader_options options = row->options;

    options.struct_size = sizeof options;
    options.batch_size = 1;
    return stoker_token_rows_batch(batch_out, engine, &documents, &options, error);
}

/* The one batch of a loader over the set, in epoch 2. */
static void test_row(const struct row *row, struct stoker_engine *engine)
{
    const char *path = "/data/set";
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = &path, .path_count = 1};
    struct stoker_token_loader_options options = row->options;
    struct stoker_batch *a = NULL, *b = NULL;
    struct stoker_token_loader *loader;
    struct stoker_tokens *set;
    struct stoker_error error = {0};

    options.struct_size = sizeof options;
    options.batch_size = 1000;
    options.shuffle = STOKER_SHUFFLE_NONE;
    options.tail = STOKER_TAIL_KEEP;
    T_EQ(row->name, stoker_tokens_open(&set, engine, &files, &error), 0);
    T_EQ(row->name, stoker_token_loader_open(&loader, set, &options, &error), 0);
    T_EQ(row->name, stoker_token_loader_set_epoch(loader, 2, &error), 0);
    T_EQ(row->name, stoker_token_loader_next(loader, &a, &error), 1);
    if (T_EQ(row->name, make(&b, engine, row, &error), 0)) {
        T_EQ(row->name, stoker_batch_samples(a), stoker_batch_samples(b));
        for (uint32_t field = 0; field < 4; field++) {
            T_TRUE(row->name, same_field(a, b, field));
        }
    }
    stoker_batch_close(a);
    stoker_batch_close(b);
    stoker_token_loader_close(loader);
    stoker_tokens_close(set);
}

/* A document alone gives the same row as among others: fill in the middle depends on its id. */
static void test_alone(struct stoker_engine *engine)
{
    const struct row row = {"alone", {.rows = STOKER_ROWS_DOCUMENTS, .fim_rate = 0.9, .seed = 6}};
    struct stoker_error error = {0};
    struct stoker_batch *all, *one;
    struct stoker_array full_batch, part;

    T_EQ("all", make(&all, engine, &row, &error), 0);
    T_EQ("all", stoker_batch_array(all, 0, &full_batch), 0);
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        uint64_t first = i > 0 ? ends[i - 1] : 0, end = ends[i] - first;
        uint64_t at = full_batch.offsets[i], bytes = 8 * (full_batch.offsets[i + 1] - at);
        struct stoker_token_documents documents = {.struct_size = sizeof documents,
                                                   .tokens = tokens + first,
                                                   .ends = &end,
                                                   .ids = &ids[i],
                                                   .count = 1,
                                                   .epoch = 2};
        struct stoker_token_loader_options options = row.options;

        options.struct_size = sizeof options;
        options.batch_size = 1;
        T_EQ("one", stoker_token_rows_batch(&one, engine, &documents, &options, &error), 0);
        T_EQ("one", stoker_batch_array(one, 0, &part), 0);
        T_EQ("one", 8 * part.offsets[1], bytes);
        T_TRUE("one", memcmp(part.data, (const int64_t *)full_batch.data + at, bytes) == 0);
        stoker_batch_close(one);
    }
    stoker_batch_close(all);
}

static void test_padded(struct stoker_engine *engine)
{
    const struct row row = {"padded", {.rows = STOKER_ROWS_PADDED, .context = 12, .pad = 3}};
    struct stoker_error error = {0};
    struct stoker_batch *batch;
    struct stoker_array fields[2];

    T_EQ("make", make(&batch, engine, &row, &error), 0);
    T_EQ("array", stoker_batch_array(batch, 0, &fields[0]), 0);
    T_EQ("array", stoker_batch_array(batch, 1, &fields[1]), 0);
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        uint64_t first = i > 0 ? ends[i - 1] : 0, count = ends[i] - first;

        for (uint64_t k = 0; k < 12; k++) {
            int64_t token = ((const int64_t *)fields[0].data)[i * 12 + k];
            int64_t label = ((const int64_t *)fields[1].data)[i * 12 + k];

            T_EQ("token", token, k < count ? tokens[first + k] : 3);
            T_EQ("label", label, k + 1 < count ? tokens[first + k + 1] : -100);
        }
    }
    stoker_batch_close(batch);
}

/* Lines as they are, and nothing else as bytes. */
static void test_bytes(struct stoker_engine *engine)
{
    const char *path = "/data/lines.txt";
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = &path, .path_count = 1, .dtype = STOKER_UINT8};
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .batch_size = 9,
                                                  .rows = STOKER_ROWS_DOCUMENTS,
                                                  .labels = STOKER_LABELS_NONE,
                                                  .dtype = STOKER_UINT8,
                                                  .shuffle = STOKER_SHUFFLE_NONE,
                                                  .tail = STOKER_TAIL_KEEP,
                                                  .has_eod = 1,
                                                  .eod = '\n'};
    static const uint64_t wanted[] = {0, 4, 5, 20, 24};
    struct stoker_token_loader *loader;
    struct stoker_tokens *lines;
    struct stoker_batch *batch;
    struct stoker_array array;
    struct stoker_error error = {0};

    T_EQ("open", stoker_tokens_open(&lines, engine, &files, &error), 0);
    T_EQ("open", stoker_token_loader_open(&loader, lines, &options, &error), 0);
    T_EQ("next", stoker_token_loader_next(loader, &batch, &error), 1);
    T_EQ("lines", stoker_batch_samples(batch), 4);
    T_EQ("array", stoker_batch_array(batch, 0, &array), 0);
    T_EQ("dtype", array.dtype, STOKER_UINT8);
    T_TRUE("ends", memcmp(array.offsets, wanted, sizeof wanted) == 0);
    T_TRUE("bytes", memcmp(array.data, text, strlen(text)) == 0);
    stoker_batch_close(batch);
    stoker_token_loader_close(loader);
    options.labels = STOKER_LABELS_SHIFTED;
    T_EQ("labels", stoker_token_loader_open(&loader, lines, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("labels", &error);
    stoker_tokens_close(lines);
    path = "/data/set";
    options.labels = STOKER_LABELS_NONE;
    T_EQ("open", stoker_tokens_open(&lines, engine, &files, &error), 0);
    T_EQ("no bytes", stoker_token_loader_open(&loader, lines, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("no bytes", error.where, "/data/set");
    stoker_tokens_close(lines);
}

static void test_refused(struct stoker_engine *engine)
{
    static const uint64_t falling[] = {5, 3};
    struct stoker_token_documents documents = {
        .struct_size = sizeof documents, .tokens = tokens, .ends = falling, .ids = ids, .count = 2};
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .batch_size = 1, .context = 8, .rows = STOKER_ROWS_PACKED};
    struct stoker_error error = {0};
    struct stoker_batch *batch;
    const struct row large = {
        "large", {.rows = STOKER_ROWS_PADDED, .context = 1u << 26, .dtype = STOKER_INT32}};

    T_EQ("ends", stoker_token_rows_batch(&batch, engine, &documents, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("ends", &error);
    documents.count = 0;
    T_EQ("none", stoker_token_rows_batch(&batch, engine, &documents, &options, &error),
         STOKER_ERROR_ARGUMENT);
    documents.count = 1;
    options.rows = STOKER_ROWS_WINDOWS;
    T_EQ("windows", stoker_token_rows_batch(&batch, engine, &documents, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_EQ("large", make(&batch, engine, &large, &error), STOKER_ERROR_LIMIT);
    T_TRUE("no batch", batch == NULL);
}

static bool fails_cleanly(struct stoker_engine *engine, const struct row *row, uint64_t n)
{
    int64_t alive = stk_mem_alive();
    struct stoker_error error = {0};
    struct stoker_batch *batch;
    int status;

    stk_mem_fail_nth(n);
    status = make(&batch, engine, row, &error);
    stk_mem_fail_nth(0);
    if (status < 0) {
        T_ERROR(row->name, &error);
    }
    stoker_batch_close(batch);
    T_EQ(row->name, stk_mem_alive(), alive);
    return status < 0;
}

int main(void)
{
    struct stoker_engine *engine;

    T_EQ("engine", engine_new(&engine), 0);
    T_EACH(row, row, rows)
    {
        uint64_t n = 1;

        test_row(row, engine);
        while (n < 100 && fails_cleanly(engine, row, n)) {
            n++;
        }
        T_TRUE(row->name, n > 10 && n < 100);
    }
    test_alone(engine);
    test_padded(engine);
    test_bytes(engine);
    test_refused(engine);
    stoker_engine_close(engine);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
