/* Goal: batches are exactly the windows of the order, for every way to cut and share them; a state
 * continues where it was taken; impossible settings are refused, and nothing leaks.
 * Method: three files (a Megatron set, npy, raw) in the simulator, whose token i of file f is a
 * function of both; each row of a batch is compared with the window from stoker_order_at and a walk
 * over the files (token_files.c, token_loader.c, token_loader_next.c, token_options.c,
 * order_cursor.c); every allocation and every call of the simulator fails once. */
#include "test/t.h"
#include "base/mem.h"
#include "io/sim/sim.h"
#include "loader/tokens/token_set.h"

#include <errno.h>
#include <string.h>

#define FILES 3u
#define TOKENS_MAX 5000u
#define WINDOWS_MAX 8192u

static const char *const paths[FILES] = {"/data/set_text_document", "/data/b.npy", "/data/c.bin"};
static const uint32_t counts[FILES] = {1003, 2500, 777};
static uint16_t tokens_of[FILES][TOKENS_MAX];

/* ---- files ---- */

static uint16_t token_at(uint32_t file, uint32_t i)
{
    return (uint16_t)(i * 31 + file * 7919 + i / 64);
}

static void put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    memcpy(at, &value, bytes);
}

/* The set's .idx: one sequence and one document for each 100 tokens. */
static size_t idx_of(uint8_t idx[1024])
{
    uint32_t sequences = (counts[0] + 99) / 100;
    uint8_t *at = idx + 34;

    memcpy(idx, "MMIDIDX\0\0", 9);
    put(idx + 9, 1, 8);
    put(idx + 17, 8, 1);
    put(idx + 18, sequences, 8);
    put(idx + 26, sequences + 1, 8);
    for (uint32_t i = 0; i < sequences; i++, at += 4) {
        put(at, stk_min(counts[0] - 100 * i, 100), 4);
    }
    for (uint32_t i = 0; i < sequences; i++, at += 8) {
        put(at, 200 * i, 8);
    }
    for (uint32_t i = 0; i <= sequences; i++, at += 8) {
        put(at, i, 8);
    }
    return (size_t)(at - idx);
}

static struct stk_io *world_new(void)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 3000};
    static uint8_t npy[128 + sizeof tokens_of[1]];
    uint8_t idx[1024];
    struct stk_io *world;

    for (uint32_t f = 0; f < FILES; f++) {
        for (uint32_t i = 0; i < counts[f]; i++) {
            tokens_of[f][i] = token_at(f, i);
        }
    }
    memset(npy, ' ', 128);
    memcpy(npy, "\x93NUMPY\x01\x00\x76\x00", 10);
    int bytes = snprintf((char *)npy + 10, 100,
                         "{'descr': '<u2', 'fortran_order': False, 'shape': (%u,), }", counts[1]);
    npy[10 + bytes] = ' ';
    npy[127] = '\n';
    memcpy(npy + 128, tokens_of[1], 2 * counts[1]);
    if (stk_sim_open(&world, 1, &options, NULL) < 0) {
        return NULL;
    }
    T_EQ("add", stk_sim_add(world, "/data/set_text_document.idx", idx, idx_of(idx)), 0);
    T_EQ("add", stk_sim_add(world, "/data/set_text_document.bin", tokens_of[0], 2 * counts[0]), 0);
    T_EQ("add", stk_sim_add(world, paths[1], npy, 128 + 2 * counts[1]), 0);
    T_EQ("add", stk_sim_add(world, paths[2], tokens_of[2], 2 * counts[2]), 0);
    return world;
}

/* ---- expected batches ---- */

struct window {
    uint32_t file, first;
};

struct row {
    const char *name;
    struct stoker_token_loader_options options;
};

static const struct row rows[] = {
    {"plain", {.context = 32, .batch_size = 4, .shuffle = STOKER_SHUFFLE_NONE}},
    {"blocks", {.context = 16, .batch_size = 8, .seed = 5}},
    {"full", {.context = 16, .batch_size = 8, .seed = 6, .shuffle = STOKER_SHUFFLE_FULL}},
    {"int32", {.context = 31, .batch_size = 3, .seed = 6, .dtype = STOKER_INT32}},
    {"no labels", {.context = 33, .stride = 32, .batch_size = 4, .labels = STOKER_LABELS_NONE}},
    {"windows overlap", {.context = 20, .stride = 7, .batch_size = 16, .seed = 3}},
    {"gaps", {.context = 8, .stride = 50, .batch_size = 5, .seed = 3}},
    {"two files too short", {.context = 1500, .stride = 99, .batch_size = 2, .seed = 1}},
    {"one token", {.context = 1, .batch_size = 512, .seed = 9}},
    {"rank 1 of 3", {.context = 16, .batch_size = 4, .seed = 5, .rank = 1, .world_size = 3}},
    {"pad",
     {.context = 16,
      .batch_size = 7,
      .seed = 5,
      .tail = STOKER_TAIL_PAD,
      .rank = 2,
      .world_size = 3}},
    {"keep", {.context = 16, .batch_size = 7, .seed = 5, .tail = STOKER_TAIL_KEEP}},
    {"wrap", {.context = 16, .batch_size = 7, .seed = 5, .tail = STOKER_TAIL_WRAP}},
};

static struct window windows[WINDOWS_MAX];

/* All windows, by a walk over the files. */
static uint64_t cut(const struct stoker_token_loader_options *options)
{
    uint64_t length = options->context + (options->labels != STOKER_LABELS_NONE);
    uint64_t stride = options->stride ? options->stride : options->context, count = 0;

    for (uint32_t f = 0; f < FILES; f++) {
        for (uint64_t at = 0; at + length <= counts[f]; at += stride) {
            windows[count++] = (struct window){f, (uint32_t)at};
        }
    }
    return count;
}

static int64_t value_of(const struct stoker_array *array, uint64_t i)
{
    int32_t narrow;
    int64_t wide;

    memcpy(&narrow, (const uint8_t *)array->data + 4 * i, 4);
    if (array->dtype == STOKER_INT32) {
        return narrow;
    }
    memcpy(&wide, (const uint8_t *)array->data + 8 * i, 8);
    return wide;
}

/* The rows of a batch against the windows that its ids name. */
static bool is_right(const struct row *row, struct stoker_batch *batch)
{
    uint32_t fields = row->options.labels == STOKER_LABELS_NONE ? 1 : 2;
    bool right = true;

    for (uint32_t field = 0; field < fields; field++) {
        struct stoker_array array;

        T_EQ(row->name, stoker_batch_array(batch, field, &array), 0);
        T_EQ(row->name, array.shape[1], row->options.context);
        for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
            struct window window = windows[stoker_batch_ids(batch)[i]];

            for (uint64_t k = 0; k < row->options.context; k++) {
                right = right && value_of(&array, i * row->options.context + k) ==
                                     tokens_of[window.file][window.first + field + k];
            }
        }
    }
    return T_TRUE(row->name, right);
}

struct rig {
    struct stoker_engine *engine;
    struct stoker_tokens *tokens;
};

static int rig_open(struct rig *rig, struct stk_io *world, uint32_t files,
                    struct stoker_error *error)
{
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine, .threads = 1, .memory_bytes_max = 16u << 20};
    struct stoker_tokens_options options = {
        .struct_size = sizeof options, .paths = paths, .path_count = files, .dtype = STOKER_UINT16};
    int status;

    *rig = (struct rig){0};
    status = stk_engine_open_with_io(&rig->engine, world, &engine, error);
    return status < 0 ? status : stoker_tokens_open(&rig->tokens, rig->engine, &options, error);
}

static void rig_close(struct rig *rig)
{
    stoker_tokens_close(rig->tokens);
    stoker_engine_close(rig->engine);
}

/* Ids of two epochs of one rank, each batch checked; a state is taken before batch `state_at`. */
static uint64_t run(const struct row *row, struct stoker_token_loader *loader, uint64_t *ids,
                    uint64_t state_at, struct stoker_state *state_out)
{
    struct stoker_batch *batch;
    struct stoker_error error = {0};
    uint64_t count = 0, batches = 0;

    for (int epochs = 0; epochs < 2;) {
        if (batches == state_at) {
            T_EQ(row->name, stoker_token_loader_state(loader, state_out), 0);
        }
        int status = stoker_token_loader_next(loader, &batch, &error);

        if (status <= 0) {
            T_EQ(row->name, status, 0);
            epochs++;
            continue;
        }
        batches++;
        if (!is_right(row, batch)) {
            epochs = 2;
        }
        for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
            ids[count++] = stoker_batch_ids(batch)[i] | (uint64_t)!stoker_batch_mask(batch)[i]
                                                            << 63;
        }
        stoker_batch_close(batch);
    }
    return count;
}

static uint64_t ids[3][2 * WINDOWS_MAX];

static void test_rows(const struct rig *rig)
{
    T_EACH(row, row, rows)
    {
        struct stoker_token_loader_options options = row->options;
        struct stoker_token_loader *loader;
        struct stoker_error error = {0};
        struct stoker_state state;
        uint64_t count = cut(&row->options), got, rest, sample;

        options.struct_size = sizeof options;
        options.shuffle = options.shuffle ? options.shuffle : STOKER_SHUFFLE_BLOCK;
        if (!T_EQ(row->name, stoker_token_loader_open(&loader, rig->tokens, &options, &error), 0)) {
            continue;
        }
        T_EQ(row->name, stoker_token_loader_samples(loader), count);
        got = run(row, loader, ids[0], 3, &state);
        T_TRUE(row->name, got >= 2 * stoker_token_loader_batches(loader, 0));
        for (uint64_t i = 0; options.world_size == 0 && i < stk_min(got, count / 7 * 7); i++) {
            uint64_t block = (8u << 20) / 2 / (options.stride ? options.stride : options.context);

            T_EQ(row->name,
                 stoker_order_at(count, block, 64, 1, options.shuffle, options.seed, 0, i, &sample),
                 0);
            if (i < got / 2) {
                T_EQ(row->name, ids[0][i], sample);
            }
        }
        T_EQ(row->name, stoker_token_loader_set_state(loader, &state, &error), 0);
        rest = run(row, loader, ids[1], UINT64_MAX, NULL);
        uint64_t skip = 3 * options.batch_size;
        T_EQ(row->name, rest, got - skip);
        T_TRUE(row->name, memcmp(ids[0] + skip, ids[1], rest * sizeof **ids) == 0);
        stoker_token_loader_close(loader);
    }
}

/* The union of three ranks is the step of one, for each step. */
static void test_ranks(const struct rig *rig)
{
    struct row row = {"ranks", {.context = 16, .seed = 4}};
    struct stoker_error error = {0};
    uint64_t got[4], sums[2] = {0};

    row.options.struct_size = sizeof row.options;
    cut(&row.options);
    for (uint32_t rank = 0; rank < 4; rank++) { /* rank 3: the only one of its world */
        struct stoker_token_loader *loader;

        row.options.batch_size = rank == 3 ? 12 : 4;
        row.options.world_size = rank == 3 ? 1 : 3;
        row.options.rank = rank % 3;
        T_EQ("open", stoker_token_loader_open(&loader, rig->tokens, &row.options, &error), 0);
        got[rank] = run(&row, loader, ids[rank == 3 ? 1 : 0], UINT64_MAX, NULL);
        for (uint64_t i = 0; i < got[rank]; i++) {
            /* By step: a sum of values that differ for different ids and steps. */
            uint64_t step = i / row.options.batch_size, id = ids[rank == 3 ? 1 : 0][i];

            sums[rank == 3] += (id + 1) * (id + 12345) * (2 * step + 1);
        }
        stoker_token_loader_close(loader);
    }
    T_EQ("counts", got[0] + got[1] + got[2], got[3]);
    T_EQ("ids by step", sums[0], sums[1]);
}

/* ---- errors ---- */

static const struct refused_row {
    const char *name;
    struct stoker_token_loader_options options;
    int status;
} refused_rows[] = {
    {"no batch", {.context = 16}, STOKER_ERROR_ARGUMENT},
    {"no context", {.batch_size = 4}, STOKER_ERROR_ARGUMENT},
    {"rank", {.context = 16, .batch_size = 4, .rank = 2, .world_size = 2}, STOKER_ERROR_ARGUMENT},
    {"dtype", {.context = 16, .batch_size = 4, .dtype = STOKER_FLOAT32}, STOKER_ERROR_ARGUMENT},
    {"labels", {.context = 16, .batch_size = 4, .labels = 9}, STOKER_ERROR_ARGUMENT},
    {"shuffle", {.context = 16, .batch_size = 4, .shuffle = 9}, STOKER_ERROR_ARGUMENT},
    {"context", {.context = 1u << 31, .batch_size = 4}, STOKER_ERROR_EMPTY},
    {"groups", {.context = 16, .batch_size = 4, .group_count = 64}, STOKER_ERROR_ARGUMENT},
    {"budget",
     {.context = 900, .batch_size = 1u << 20, .tail = STOKER_TAIL_KEEP},
     STOKER_ERROR_BUDGET},
    {"no batch", {.context = 900, .batch_size = 1u << 20}, STOKER_ERROR_EMPTY},
    {"unknown labels", {.context = 9, .batch_size = 1, .labels = 4}, STOKER_ERROR_ARGUMENT},
};

static void test_refused(const struct rig *rig)
{
    struct stoker_error error = {0};
    struct stoker_token_loader *loader;

    T_EACH(refused_row, row, refused_rows)
    {
        struct stoker_token_loader_options options = row->options;

        options.struct_size = sizeof options;
        T_EQ(row->name, stoker_token_loader_open(&loader, rig->tokens, &options, &error),
             row->status);
        T_ERROR(row->name, &error);
        T_TRUE(row->name, loader == NULL);
    }
}

static void test_states(const struct rig *rig)
{
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .context = 16, .batch_size = 4};
    struct stoker_token_loader *loader;
    struct stoker_error error = {0};
    struct stoker_state good, state;

    T_EQ("open", stoker_token_loader_open(&loader, rig->tokens, &options, &error), 0);
    T_EQ("state", stoker_token_loader_state(loader, &good), 0);
    state = good;
    state.seed++;
    T_EQ("seed", stoker_token_loader_set_state(loader, &state, &error), STOKER_ERROR_STATE);
    T_HAS("seed", error.where, "seed");
    state = good;
    state.identity[31] ^= 1;
    T_EQ("identity", stoker_token_loader_set_state(loader, &state, &error), STOKER_ERROR_STATE);
    T_HAS("identity", error.where, "fill in the middle");
    state = good;
    state.identity[0] ^= 1;
    state.identity[17] ^= 1;
    T_EQ("identity", stoker_token_loader_set_state(loader, &state, &error), STOKER_ERROR_STATE);
    T_HAS("identity", error.where, "identity of tokens: ");
    T_HAS("identity", error.where, "; rows (windows,");
    state = good;
    state.position = UINT64_MAX;
    T_EQ("position", stoker_token_loader_set_state(loader, &state, &error), STOKER_ERROR_STATE);
    T_EQ("good", stoker_token_loader_set_state(loader, &good, &error), 0);
    stoker_token_loader_close(loader);
}

/* Invalid files. */
static void test_files(struct stk_io *world, const struct rig *rig)
{
    static const struct {
        const char *path;
        uint32_t dtype;
        int status;
    } files[] = {
        {"/data/missing.bin", STOKER_UINT16, -ENOENT},
        {"/data/c.bin", 0, STOKER_ERROR_ARGUMENT},
        {"/data/c.bin", STOKER_UINT64, STOKER_ERROR_TRUNCATED},
        {"/data/c.bin", STOKER_FLOAT16, STOKER_ERROR_ARGUMENT},
        {"/data/b.idx", 0, -ENOENT},
        {"/data/lone.idx", 0, -ENOENT},
        {"/data/broken", 0, STOKER_ERROR_FORMAT},
        {"/data/broken.bin", 0, STOKER_ERROR_FORMAT},
        {"/data/set_text_document.idx", 0, 0},
        {"/data/set_text_document.bin", 0, 0},
        {"/data/empty.bin", STOKER_UINT16, 0},
    };

    stk_sim_add(world, "/data/lone.idx", "", 0);
    stk_sim_add(world, "/data/broken.idx", "MMIDIDX", 7);
    stk_sim_add(world, "/data/broken.bin", "", 0);
    stk_sim_add(world, "/data/empty.bin", "", 0);
    for (size_t i = 0; i < STK_COUNT(files); i++) {
        struct stoker_tokens_options options = {.struct_size = sizeof options,
                                                .paths = &files[i].path,
                                                .path_count = 1,
                                                .dtype = files[i].dtype};
        struct stoker_tokens_info info = {.struct_size = sizeof info};
        struct stoker_tokens *tokens;
        struct stoker_error error = {0};

        T_EQ(files[i].path, stoker_tokens_open(&tokens, rig->engine, &options, &error),
             files[i].status);
        if (files[i].status < 0) {
            T_ERROR(files[i].path, &error);
            T_HAS(files[i].path, error.where, "/data/");
        } else {
            T_EQ(files[i].path, stoker_tokens_info(tokens, &info), 0);
            T_EQ(files[i].path, info.documents, info.tokens ? 11 : 0);
            stoker_tokens_close(tokens);
        }
    }
}

/* A token that does not fit is an error of its batch, and the loader stays before it. */
static void test_unfit(struct stk_io *world, const struct rig *rig)
{
    static uint32_t values[64];
    const char *path = "/data/wide.bin";
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = &path, .path_count = 1, .dtype = STOKER_UINT32};
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .context = 8,
                                                  .batch_size = 1,
                                                  .dtype = STOKER_INT32,
                                                  .shuffle = STOKER_SHUFFLE_NONE};
    struct stoker_tokens *tokens;
    struct stoker_token_loader *loader;
    struct stoker_batch *batch;
    struct stoker_error error = {0};

    values[20] = 1u << 31;
    stk_sim_add(world, path, values, sizeof values);
    T_EQ("open", stoker_tokens_open(&tokens, rig->engine, &files, &error), 0);
    T_EQ("open", stoker_token_loader_open(&loader, tokens, &options, &error), 0);
    stoker_tokens_close(tokens); /* the loader keeps a reference */
    for (int i = 0; i < 4; i++) {
        int status = stoker_token_loader_next(loader, &batch, &error);

        T_EQ("next", status, i < 2 ? 1 : STOKER_ERROR_FORMAT);
        stoker_batch_close(batch);
    }
    T_ERROR("unfit", &error);
    T_HAS("unfit", error.where, path);
    stoker_token_loader_close(loader);
}

/* Batches that the caller keeps use memory until the budget is exhausted; they outlive the
 * loader. */
static void test_held_batches(const struct rig *rig)
{
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .context = 900, .batch_size = 128, .stride = 1};
    struct stoker_token_loader *loader;
    struct stoker_batch *held[16] = {NULL};
    struct stoker_error error = {0};
    int count = 0, status = 1;

    T_EQ("open", stoker_token_loader_open(&loader, rig->tokens, &options, &error), 0);
    while (count < 15 && (status = stoker_token_loader_next(loader, &held[count], &error)) == 1) {
        count++;
    }
    T_EQ("retained", status, STOKER_ERROR_BUDGET);
    T_TRUE("retained", count > 3);
    stoker_batch_close(held[--count]);
    T_EQ("again", stoker_token_loader_next(loader, &held[count++], &error), 1);
    stoker_token_loader_close(loader);
    while (count > 0) {
        stoker_batch_close(held[--count]);
    }
}

/* A batch, and the counters so far. */
struct packed_batch {
    struct stoker_array fields[4];
    uint8_t seen[1003];
    uint32_t padding;
};

/* Whether numbers low .. high - 1 of the batch are the piece that begins at token `at`. */
static bool is_piece(const struct packed_batch *batch, uint64_t low, uint64_t high, uint64_t at)
{
    uint64_t end = stk_min(at % 100 == 0 ? at + 64 : at + 36, counts[0]);
    bool same = end - at == high - low;

    for (uint64_t k = 0; same && k < high - low; k++) {
        bool last = (at + k) % 100 == 99 || at + k + 1 == counts[0];

        same = value_of(&batch->fields[0], low + k) == tokens_of[0][at + k] &&
               value_of(&batch->fields[1], low + k) == (last ? -100 : tokens_of[0][at + k + 1]) &&
               value_of(&batch->fields[2], low + k) == (int64_t)k;
    }
    return same;
}

static void look_up(struct packed_batch *batch, uint64_t low, uint64_t high)
{
    for (uint64_t at = 0; at < counts[0]; at += at % 100 == 0 ? 64 : 36) {
        if (is_piece(batch, low, high, at)) {
            for (uint64_t k = 0; k < high - low; k++) {
                batch->seen[at + k]++;
            }
            return;
        }
    }
    for (uint64_t k = low; k < high; k++, batch->padding++) {
        T_EQ("padding", value_of(&batch->fields[0], k), 5);
        T_EQ("padding", value_of(&batch->fields[1], k), -100);
        T_EQ("padding", value_of(&batch->fields[2], k), k - low);
    }
}

/* Documents of 100 tokens and one of 3, in rows of 64, three documents a chunk: 64, 64, 64, 36, 36
 * and 36 fill a row each, and in the last chunk 36 and 3 share one. Each piece is looked up among
 * all that there may be. */
static void test_packed(const struct rig *rig)
{
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = paths, .path_count = 1};
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .context = 64,
                                                  .batch_size = 3,
                                                  .seed = 8,
                                                  .tail = STOKER_TAIL_KEEP,
                                                  .rows = STOKER_ROWS_PACKED,
                                                  .chunk_documents = 3,
                                                  .pad = 5};
    static struct packed_batch got;
    struct stoker_tokens *tokens;
    struct stoker_token_loader *loader;
    struct stoker_batch *batch;
    struct stoker_error error = {0};

    T_EQ("open", stoker_tokens_open(&tokens, rig->engine, &files, &error), 0);
    T_EQ("open", stoker_token_loader_open(&loader, tokens, &options, &error), 0);
    T_EQ("rows", stoker_token_loader_samples(loader), 20);
    while (stoker_token_loader_next(loader, &batch, &error) == 1) {
        uint64_t row_count = stoker_batch_samples(batch);

        for (uint32_t f = 0; f < 4; f++) {
            T_EQ("array", stoker_batch_array(batch, f, &got.fields[f]), 0);
        }
        for (uint64_t i = 0, pieces = got.fields[3].offsets[row_count]; i < pieces; i++) {
            const int32_t *starts = got.fields[3].data;

            look_up(&got, (uint64_t)starts[i],
                    i + 1 < pieces ? (uint64_t)starts[i + 1] : row_count * options.context);
        }
        stoker_batch_close(batch);
    }
    for (uint32_t i = 0; i < counts[0]; i++) {
        T_EQ("each token once", got.seen[i], 1);
    }
    T_EQ("padding", got.padding, 20 * 64 - counts[0]);
    stoker_token_loader_close(loader);
    T_EQ("no documents", stoker_token_loader_open(&loader, rig->tokens, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("no documents", error.where, paths[1]);
    stoker_tokens_close(tokens);
}

/* One call that fails does not choose another order: open fails, or chooses the same one. */
static void test_default_order(struct stk_io *world, const struct rig *rig)
{
    const struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .context = 16, .batch_size = 4};
    uint32_t opened = 0;

    for (uint64_t n = 0; n < 20; n++) {
        struct stoker_token_loader *loader = NULL;
        struct stoker_state state = {0};
        struct stoker_error error = {0};
        int status;

        stk_sim_fail_nth(world, n);
        status = stoker_token_loader_open(&loader, rig->tokens, &options, &error);
        stk_sim_fail_nth(world, 0);
        if (status < 0) {
            T_ERROR("default order", &error);
            continue;
        }
        opened++;
        T_EQ("default order", stoker_token_loader_state(loader, &state), 0);
        T_EQ("default order", state.shuffle, STOKER_SHUFFLE_FULL);
        stoker_token_loader_close(loader);
    }
    T_TRUE("default order", opened > 1);
}

/* One batch with the n-th allocation, or the n-th call of the world, refused. */
static bool fails_cleanly(bool memory, bool packed, uint64_t n)
{
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .context = 16,
                                                  .batch_size = 4,
                                                  .rows = packed ? STOKER_ROWS_PACKED
                                                                 : STOKER_ROWS_WINDOWS};
    struct stk_io *world = world_new();
    struct stoker_token_loader *loader = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    struct rig rig;
    int status;

    if (memory) {
        stk_mem_fail_nth(n);
    } else {
        stk_sim_fail_nth(world, n);
    }
    status = rig_open(&rig, world, packed ? 1 : FILES, &error);
    status = status < 0 ? status : stoker_token_loader_open(&loader, rig.tokens, &options, &error);
    status = status < 0 ? status : stoker_token_loader_next(loader, &batch, &error);
    stk_mem_fail_nth(0);
    if (status < 0) {
        T_ERROR("fail", &error);
    }
    stoker_batch_close(batch);
    stoker_token_loader_close(loader);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), 0);
    return status < 0;
}

int main(void)
{
    struct stk_io *world = world_new();
    struct stoker_error error = {0};
    struct rig rig;
    uint64_t failed = 0;

    T_EQ("open", rig_open(&rig, world, FILES, &error), 0);
    test_rows(&rig);
    test_ranks(&rig);
    test_refused(&rig);
    test_states(&rig);
    test_files(world, &rig);
    test_unfit(world, &rig);
    test_held_batches(&rig);
    test_packed(&rig);
    test_default_order(world, &rig);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), 0);
    for (uint64_t n = 1; n < 80; n++) {
        failed += fails_cleanly(false, n % 2, (n + 1) / 2);
    }
    T_TRUE("calls of the world", failed >= 8);
    failed = 0;
    for (uint64_t n = 1; n < 160; n++) {
        failed += fails_cleanly(true, n % 2, (n + 1) / 2);
    }
    T_TRUE("allocations", failed >= 12);
    return t_finish();
}
