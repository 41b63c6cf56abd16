/* Goal: rows of every kind equal those of a walk over the files' documents, with their ends and
 * fill in the middle as requested; files that zstd compressed give the same batches and the same
 * states as the files themselves; another setting is another stream, by name.
 * Method: a Megatron set and a raw file whose documents end with EOD in the simulator
 * (token_samples.c, token_documents.c, packed_rows.c; engine/frame_cache.c); rows are looked up
 * among all possible ones, and changed documents restored by their sentinels; every allocation and
 * call of the simulator fails once. */
#include "base/mem.h"
#include "loader/tokens/token_samples.h"

#include "base/random.h"
#include "io/sim/sim.h"
#include "loader/tokens/order_cursor.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>

#define TOKENS 4000u
#define EOD 9
#define DOCUMENTS_MAX 400u
enum { PREFIX = 50001, SUFFIX, MIDDLE };

static const char *const set_path = "/data/set";
static const char *const raw_path = "/data/raw.bin";
static uint16_t set_tokens[TOKENS], raw_tokens[TOKENS];

struct document {
    uint32_t first, count;
};
static struct document set_documents[DOCUMENTS_MAX], raw_documents[DOCUMENTS_MAX];
static uint32_t set_count, raw_count;

/* ---- files ---- */

static void put(uint8_t *at, uint64_t value, uint32_t bytes)
{
    memcpy(at, &value, bytes);
}

static size_t idx_of(uint8_t *idx)
{
    uint8_t *at = idx + 34;

    memcpy(idx, "MMIDIDX\0\0", 9);
    put(idx + 9, 1, 8);
    put(idx + 17, 8, 1);
    put(idx + 18, set_count, 8);
    put(idx + 26, set_count + 1, 8);
    for (uint32_t i = 0; i < set_count; i++, at += 4) {
        put(at, set_documents[i].count, 4);
    }
    for (uint32_t i = 0; i < set_count; i++, at += 8) {
        put(at, 2 * set_documents[i].first, 8);
    }
    for (uint32_t i = 0; i <= set_count; i++, at += 8) {
        put(at, i, 8);
    }
    return (size_t)(at - idx);
}

/* Documents of 0 to 60 tokens; in the raw file each ends with EOD but the last. */
static void make_documents(void)
{
    for (uint32_t at = 0, i = 0; at < TOKENS; i++) {
        uint32_t count = (uint32_t)stk_min(stk_random_key(3, i) % 61, TOKENS - at);

        set_documents[set_count++] = (struct document){at, count};
        at += count;
    }
    for (uint32_t i = 0, first = 0; i < TOKENS; i++) {
        bool ends = stk_random_key(4, i) % 25 == 0 && i + 1 < TOKENS;

        set_tokens[i] = (uint16_t)(100 + i);
        raw_tokens[i] = ends ? EOD : (uint16_t)(100 + i);
        if (ends || i + 1 == TOKENS) {
            raw_documents[raw_count++] = (struct document){first, i + 1 - first};
            first = i + 1;
        }
    }
}

/* In frames of 777 bytes, which are not a multiple of a token. */
static size_t pack_frames(const void *from, size_t bytes, uint8_t *to, size_t room)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t out = 0;

    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    for (size_t at = 0; at < bytes; at += 777) {
        out += ZSTD_compress2(context, to + out, room - out, (const uint8_t *)from + at,
                              stk_min(bytes - at, 777));
    }
    ZSTD_freeCCtx(context);
    return out;
}

static struct stk_io *world_new(void)
{
    static uint8_t idx[64 + 20 * DOCUMENTS_MAX], packed[4 * TOKENS];
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 3000};
    struct stk_io *world;
    size_t idx_bytes = idx_of(idx), bytes;

    if (stk_sim_open(&world, 1, &options, NULL) < 0) {
        return NULL;
    }
    stk_sim_add(world, "/data/set.idx", idx, idx_bytes);
    stk_sim_add(world, "/data/set.bin", set_tokens, sizeof set_tokens);
    stk_sim_add(world, raw_path, raw_tokens, sizeof raw_tokens);
    bytes = pack_frames(set_tokens, sizeof set_tokens, packed, sizeof packed);
    stk_sim_add(world, "/packed/set.idx", idx, idx_bytes);
    stk_sim_add(world, "/packed/set.bin.zst", packed, bytes);
    bytes = pack_frames(raw_tokens, sizeof raw_tokens, packed, sizeof packed);
    stk_sim_add(world, "/packed/raw.bin", packed, bytes);
    packed[bytes / 2] ^= 0x10;
    stk_sim_add(world, "/packed/damaged.bin", packed, bytes);
    return world;
}

struct rig {
    struct stoker_engine *engine;
    struct stoker_tokens *tokens;
    struct stoker_token_loader *loader;
};

static int rig_open(struct rig *rig, struct stk_io *world, const char *path, uint64_t cache_bytes,
                    const struct stoker_token_loader_options *given, struct stoker_error *error)
{
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine, .threads = 2, .memory_bytes_max = 16u << 20};
    struct stoker_tokens_options tokens = {.struct_size = sizeof tokens,
                                           .paths = &path,
                                           .path_count = 1,
                                           .dtype = STOKER_UINT16,
                                           .cache_bytes = cache_bytes};
    struct stoker_token_loader_options options = *given;
    int status;

    options.struct_size = sizeof options;
    *rig = (struct rig){0};
    status = stk_engine_open_with_io(&rig->engine, world, &engine, error);
    status = status < 0 ? status : stoker_tokens_open(&rig->tokens, rig->engine, &tokens, error);
    return status < 0 ? status
                      : stoker_token_loader_open(&rig->loader, rig->tokens, &options, error);
}

static void rig_close(struct rig *rig)
{
    stoker_token_loader_close(rig->loader);
    stoker_tokens_close(rig->tokens);
    stoker_engine_close(rig->engine);
}

/* ---- expected rows ---- */

static const struct row {
    const char *name;
    struct stoker_token_loader_options options;
} rows[] = {
    {"documents", {.rows = STOKER_ROWS_DOCUMENTS, .batch_size = 7, .seed = 2}},
    {"documents, int32, cut",
     {.rows = STOKER_ROWS_DOCUMENTS,
      .batch_size = 7,
      .context = 20,
      .dtype = STOKER_INT32,
      .seed = 2}},
    {"documents, no labels",
     {.rows = STOKER_ROWS_DOCUMENTS, .batch_size = 3, .labels = STOKER_LABELS_NONE}},
    {"documents, FIM",
     {.rows = STOKER_ROWS_DOCUMENTS,
      .batch_size = 7,
      .context = 30,
      .fim_rate = 0.7,
      .fim_spm_rate = 0.5}},
    {"packed", {.rows = STOKER_ROWS_PACKED, .batch_size = 5, .context = 64, .seed = 4}},
    {"packed, FIM",
     {.rows = STOKER_ROWS_PACKED,
      .batch_size = 5,
      .context = 40,
      .seed = 4,
      .chunk_documents = 20,
      .fim_rate = 0.8,
      .fim_spm_rate = 0.5,
      .pad = 3}},
    {"packed, int32",
     {.rows = STOKER_ROWS_PACKED,
      .batch_size = 5,
      .context = 31,
      .seed = 4,
      .dtype = STOKER_INT32,
      .chunk_documents = 3,
      .fim_rate = 0.5}},
};

static struct stoker_token_loader_options complete(const struct row *row, bool raw, bool append)
{
    struct stoker_token_loader_options options = row->options;

    options.tail = STOKER_TAIL_KEEP;
    options.fim_prefix = PREFIX;
    options.fim_suffix = SUFFIX;
    options.fim_middle = MIDDLE;
    options.has_eod = raw || append;
    options.append_eod = append;
    options.eod = EOD;
    return options;
}

static int64_t value_of(const struct stoker_array *array, uint64_t i)
{
    return array->dtype == STOKER_INT32 ? ((const int32_t *)array->data)[i]
                                        : ((const int64_t *)array->data)[i];
}

/* The documents of a row, with all that is known of them. */
struct seen {
    const uint16_t *tokens;
    const struct document *documents;
    uint32_t document_count, piece_max;
    bool append, raw, ragged;
    uint32_t used[TOKENS]; /* how often each token was returned */
    uint64_t ends, changed, rows, lone;
};

/* tokens low .. high - 1 of the batch, without sentinels and in their order again. */
static uint32_t put_back(const struct stoker_array *array, uint64_t low, uint64_t high,
                         int64_t *out, bool *changed_out)
{
    uint64_t suffix = low, middle, end = high;
    uint32_t count = 0;

    *changed_out = low < high && value_of(array, low) == PREFIX;
    if (!*changed_out) {
        for (uint64_t i = low; i < high; i++) {
            out[count++] = value_of(array, i);
        }
        return count;
    }
    end -= value_of(array, high - 1) == EOD; /* it stays last */
    while (value_of(array, suffix) != SUFFIX) {
        suffix++;
    }
    for (middle = suffix; value_of(array, middle) != MIDDLE; middle++) {
    }
    for (uint64_t i = low + 1; i < suffix; i++) {
        out[count++] = value_of(array, i);
    }
    for (uint64_t i = middle + 1; i < end; i++) {
        out[count++] = value_of(array, i);
    }
    for (uint64_t i = suffix + 1; i < middle; i++) {
        out[count++] = value_of(array, i);
    }
    for (uint64_t i = end; i < high; i++) {
        out[count++] = value_of(array, i);
    }
    return count;
}

/* A piece of the row, whose tokens are one after the other in the file: ticks them off. */
static void look_up(const char *name, struct seen *seen, const struct stoker_batch *batch,
                    uint64_t low, uint64_t high)
{
    struct stoker_array tokens, labels;
    int64_t back[TOKENS];
    bool changed, labelled = stoker_batch_array(batch, 1, &labels) == 0;
    uint32_t count, at;

    T_EQ(name, stoker_batch_array(batch, 0, &tokens), 0);
    count = put_back(&tokens, low, high, back, &changed);
    seen->changed += changed;
    if (seen->append && count > 0 && back[count - 1] == EOD) {
        count--;
        seen->ends++;
    }
    if (count == 0) {
        return;
    }
    seen->lone += back[0] == EOD; /* any of those that are there */
    if (back[0] == EOD) {
        T_EQ(name, count, 1);
        return;
    }
    at = (uint32_t)back[0] - 100; /* no two others are the same */
    for (uint32_t i = 0; i < count; i++) {
        if (!T_TRUE(name, at + i < TOKENS && back[i] == seen->tokens[at + i])) {
            return;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        seen->used[at + i]++;
    }
    for (uint64_t i = low; labelled && i + 1 < high; i++) {
        T_EQ(name, value_of(&labels, i), value_of(&tokens, i + 1));
    }
}

static void walk_batch(const char *name, struct seen *seen, const struct stoker_batch *batch,
                       uint64_t context)
{
    uint32_t samples = stoker_batch_samples(batch);
    struct stoker_array array;

    seen->rows += samples;
    if (seen->ragged) {
        T_EQ(name, stoker_batch_array(batch, 0, &array), 0);
        for (uint32_t i = 0; i < samples; i++) {
            look_up(name, seen, batch, array.offsets[i], array.offsets[i + 1]);
        }
        return;
    }
    T_EQ(name, stoker_batch_array(batch, 3, &array), 0);
    const int32_t *starts = array.data;
    struct stoker_array tokens, positions;

    T_EQ(name, stoker_batch_array(batch, 0, &tokens), 0);
    T_EQ(name, stoker_batch_array(batch, 2, &positions), 0);
    T_EQ(name, starts[array.offsets[samples] - 1], samples * context);
    for (uint64_t i = 0; i + 1 < array.offsets[samples]; i++) {
        uint64_t low = (uint64_t)starts[i], high = (uint64_t)starts[i + 1];

        T_TRUE(name, low < high && low / context == (high - 1) / context);
        T_EQ(name, value_of(&positions, low), 0);
        T_EQ(name, value_of(&positions, high - 1), high - low - 1);
        if (value_of(&tokens, low) >= 100 || value_of(&tokens, low) == EOD) { /* no padding */
            look_up(name, seen, batch, low, high);
        }
    }
}

static void test_row(const struct row *row, bool raw, bool append)
{
    static struct seen seen;
    struct stoker_token_loader_options options = complete(row, raw, append);
    struct stoker_error error = {0};
    struct stoker_batch *batch;
    struct rig rig;

    seen = (struct seen){.tokens = raw ? raw_tokens : set_tokens,
                         .documents = raw ? raw_documents : set_documents,
                         .document_count = raw ? raw_count : set_count,
                         .append = append,
                         .raw = raw,
                         .ragged = options.rows == STOKER_ROWS_DOCUMENTS};
    if (!T_EQ(row->name,
              rig_open(&rig, world_new(), raw ? raw_path : set_path, 0, &options, &error), 0)) {
        fprintf(stderr, "%s %s %s\n", error.what, error.where, error.advice);
        rig_close(&rig);
        return;
    }
    while (stoker_token_loader_next(rig.loader, &batch, &error) == 1) {
        walk_batch(row->name, &seen, batch, options.context);
        stoker_batch_close(batch);
    }
    T_EQ(row->name, seen.rows, stoker_token_loader_samples(rig.loader));
    T_TRUE(row->name, (seen.changed > 0) == (options.fim_rate > 0));
    if (seen.ragged) {
        T_EQ(row->name, seen.rows, seen.document_count);
    } else {
        for (uint32_t i = 0; i < TOKENS; i++) {
            bool lone = seen.tokens[i] == EOD && seen.used[i] == 0;

            T_EQ(row->name, seen.used[i] + lone, 1);
            seen.lone -= lone;
        }
        T_EQ(row->name, seen.lone, 0);
    }
    if (append && !seen.ragged) { /* empty ones have no piece */
        uint64_t wanted = 0;

        for (uint32_t i = 0; i < seen.document_count; i++) {
            wanted += seen.documents[i].count > 0;
        }
        T_EQ(row->name, seen.ends, wanted);
    }
    rig_close(&rig);
}

/* Documents one by one, by their numbers. */
static void test_documents(bool raw)
{
    struct row row = {"by number", {.rows = STOKER_ROWS_DOCUMENTS, .batch_size = 4}};
    struct stoker_token_loader_options options = complete(&row, raw, false);
    const struct document *documents = raw ? raw_documents : set_documents;
    const uint16_t *stored = raw ? raw_tokens : set_tokens;
    struct stoker_error error = {0};
    struct stoker_batch *batch;
    struct rig rig;

    options.context = 25;
    T_EQ("open", rig_open(&rig, world_new(), raw ? raw_path : set_path, 0, &options, &error), 0);
    while (stoker_token_loader_next(rig.loader, &batch, &error) == 1) {
        struct stoker_array tokens, labels;

        T_EQ("array", stoker_batch_array(batch, 0, &tokens), 0);
        T_EQ("array", stoker_batch_array(batch, 1, &labels), 0);
        for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
            struct document document = documents[stoker_batch_ids(batch)[i]];
            uint64_t count = tokens.offsets[i + 1] - tokens.offsets[i];

            T_EQ("count", count, stk_min(document.count, 25));
            T_EQ("labels", labels.offsets[i], tokens.offsets[i]);
            for (uint64_t k = 0; k < count; k++) {
                bool last = k + 1 == document.count;

                T_EQ("token", value_of(&tokens, tokens.offsets[i] + k), stored[document.first + k]);
                T_EQ("label", value_of(&labels, tokens.offsets[i] + k),
                     last ? STK_TOKEN_ROW_LABEL_IGNORED : stored[document.first + k + 1]);
            }
        }
        stoker_batch_close(batch);
    }
    rig_close(&rig);
}

/* ---- packed files ---- */

static bool same_field(struct stoker_batch *a, struct stoker_batch *b, uint32_t field)
{
    struct stoker_array x, y;
    uint64_t count;

    if (stoker_batch_array(a, field, &x) < 0) {
        return stoker_batch_array(b, field, &y) < 0;
    }
    if (stoker_batch_array(b, field, &y) < 0) {
        return false;
    }
    count = x.offsets ? x.offsets[stoker_batch_samples(a)]
                      : (uint64_t)x.shape[0] * (uint64_t)x.shape[1];
    if (x.offsets && count != y.offsets[stoker_batch_samples(b)]) {
        return false;
    }
    return count == 0 || memcmp(x.data, y.data, count * (x.dtype == STOKER_INT32 ? 4 : 8)) == 0;
}

/* Batches of both from the state after two batches of the first: the same to the byte. */
static void test_packed_file(const struct row *row, bool raw, uint64_t cache_bytes)
{
    struct stoker_token_loader_options options = complete(row, raw, false);
    struct stoker_error error = {0};
    struct stoker_batch *a, *b;
    struct stoker_state state;
    struct rig plain, packed;
    int status;

    T_EQ(row->name, rig_open(&plain, world_new(), raw ? raw_path : set_path, 0, &options, &error),
         0);
    T_EQ(row->name,
         rig_open(&packed, world_new(), raw ? "/packed/raw.bin" : "/packed/set", cache_bytes,
                  &options, &error),
         0);
    for (int i = 0; i < 2; i++) {
        T_EQ(row->name, stoker_token_loader_next(plain.loader, &a, &error), 1);
        stoker_batch_close(a);
    }
    T_EQ(row->name, stoker_token_loader_state(plain.loader, &state), 0);
    T_EQ(row->name, stoker_token_loader_set_state(packed.loader, &state, &error), 0);
    do {
        status = stoker_token_loader_next(plain.loader, &a, &error);
        T_EQ(row->name, stoker_token_loader_next(packed.loader, &b, &error), status);
        for (uint32_t field = 0; a && b && field < 4; field++) {
            T_TRUE(row->name, same_field(a, b, field));
        }
        stoker_batch_close(a);
        stoker_batch_close(b);
    } while (status == 1);
    rig_close(&packed);
    rig_close(&plain);
}

/* has_error: next gets a struct for errors. Without it a failure is a failure all the same. */
static void test_damaged_file(bool has_error)
{
    struct stoker_token_loader_options options = {
        .rows = STOKER_ROWS_WINDOWS, .context = 16, .batch_size = 4, .tail = STOKER_TAIL_KEEP};
    struct stoker_error error = {0};
    struct stoker_batch *batch = NULL;
    struct rig rig;
    int status = rig_open(&rig, world_new(), "/packed/damaged.bin", 1, &options, &error);

    while (status >= 0 &&
           (status = stoker_token_loader_next(rig.loader, &batch, has_error ? &error : NULL)) > 0) {
        stoker_batch_close(batch);
    }
    T_EQ("damaged", status, STOKER_ERROR_CORRUPT);
    if (has_error) {
        T_HAS("damaged", error.where, "/packed/damaged.bin");
    }
    rig_close(&rig);
}

/* ---- rules ---- */

/* Fields of windows with ends: labels, positions and starts by a walk over the row. */
static void test_window_rules(bool masked)
{
    struct stoker_token_loader_options options = {.context = 50,
                                                  .batch_size = 3,
                                                  .has_eod = 1,
                                                  .eod = EOD,
                                                  .positions = STOKER_POSITIONS_RESET,
                                                  .boundary_labels =
                                                      masked ? STOKER_BOUNDARY_MASKED : 0};
    struct stoker_error error = {0};
    struct stoker_array fields[4];
    struct stoker_batch *batch;
    struct rig rig;

    T_EQ("open", rig_open(&rig, world_new(), raw_path, 0, &options, &error), 0);
    while (stoker_token_loader_next(rig.loader, &batch, &error) == 1) {
        const int32_t *starts;
        uint64_t at = 0;

        for (uint32_t f = 0; f < 4; f++) {
            T_EQ("array", stoker_batch_array(batch, f, &fields[f]), 0);
        }
        starts = fields[3].data;
        for (uint64_t i = 0, position = 0; i < 150; i++, position++) {
            uint64_t token = stoker_batch_ids(batch)[i / 50] * 50 + i % 50;
            bool ended = i % 50 == 0 || raw_tokens[token - 1] == EOD;
            bool ends = raw_tokens[token] == EOD;

            position = ended ? 0 : position;
            T_EQ("token", value_of(&fields[0], i), raw_tokens[token]);
            T_EQ("label", value_of(&fields[1], i),
                 ends && masked ? STK_TOKEN_ROW_LABEL_IGNORED : raw_tokens[token + 1]);
            T_EQ("position", value_of(&fields[2], i), position);
            if (ended) {
                T_EQ("start", starts[at++], i);
            }
        }
        T_EQ("end", starts[at++], 150);
        T_EQ("starts", at, fields[3].offsets[3]);
        stoker_batch_close(batch);
    }
    rig_close(&rig);
}

static const struct refused_row {
    const char *name;
    struct stoker_token_loader_options options;
    const char *path;
    int status;
} refused_rows[] = {
    {"no documents", {.rows = STOKER_ROWS_PACKED, .context = 16}, raw_path, STOKER_ERROR_ARGUMENT},
    {"append to cut ones",
     {.rows = STOKER_ROWS_DOCUMENTS, .has_eod = 1, .eod = EOD, .append_eod = 1},
     raw_path,
     STOKER_ERROR_ARGUMENT},
    {"append nothing",
     {.rows = STOKER_ROWS_DOCUMENTS, .append_eod = 1},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"append to windows",
     {.context = 8, .append_eod = 1, .has_eod = 1},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"windows without context", {.rows = STOKER_ROWS_WINDOWS}, set_path, STOKER_ERROR_ARGUMENT},
    {"masked windows without EOD",
     {.context = 8, .boundary_labels = STOKER_BOUNDARY_MASKED},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"positions without EOD",
     {.context = 8, .positions = STOKER_POSITIONS_RESET},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"positions of documents",
     {.rows = STOKER_ROWS_DOCUMENTS, .positions = STOKER_POSITIONS_RESET},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"no room for sentinels",
     {.rows = STOKER_ROWS_PACKED, .context = 3, .fim_rate = 1},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"no room for fragments",
     {.rows = STOKER_ROWS_PACKED, .context = 12, .fim_rate = 1, .has_fim_split = 1},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"a rate", {.context = 8, .fim_rate = 1.5}, set_path, STOKER_ERROR_ARGUMENT},
    {"not a number",
     {.context = 8, .fim_spm_rate = __builtin_nan("")},
     set_path,
     STOKER_ERROR_ARGUMENT},
    {"rows", {.context = 8, .rows = 9}, set_path, STOKER_ERROR_ARGUMENT},
};

static void test_refused(void)
{
    T_EACH(refused_row, row, refused_rows)
    {
        struct stoker_token_loader_options options = row->options;
        struct stoker_error error = {0};
        struct rig rig;

        options.batch_size = 4;
        T_EQ(row->name, rig_open(&rig, world_new(), row->path, 0, &options, &error), row->status);
        T_ERROR(row->name, &error);
        rig_close(&rig);
    }
}

/* A state of the first row, given to the others: the difference is named. */
static const struct other_row {
    const char *name;
    struct stoker_token_loader_options options;
    const char *named;
} other_rows[] = {
    {"the same", {.context = 30}, NULL},
    {"labels", {.context = 30, .labels = STOKER_LABELS_NONE}, "rows (windows"},
    {"pad", {.context = 30, .pad = 1}, "packing"},
    {"chunk", {.context = 30, .chunk_documents = 50}, "packing"},
    {"ends", {.context = 30, .boundary_labels = STOKER_BOUNDARY_NEXT}, "rules for ends"},
    {"eod", {.context = 30, .has_eod = 1, .eod = EOD}, "rules for ends"},
    {"positions", {.context = 30, .positions = STOKER_POSITIONS_ROW}, "rules for ends"},
    {"sentinel", {.context = 30, .fim_rate = 0.5, .fim_prefix = 4}, "fill in the middle"},
    {"no fill in the middle", {.context = 30, .fim_rate = -1}, "fill in the middle"},
    {"rate", {.context = 30, .fim_rate = 0.25}, "fill in the middle"},
    {"SPM rate", {.context = 30, .fim_rate = 0.5, .fim_spm_rate = 0.5}, "fill in the middle"},
    {"fragments", {.context = 30, .fim_rate = 0.5, .has_fim_split = 1}, "fill in the middle"},
    {"complete", {.context = 30, .fim_rate = 0.5, .fim_whole = 1}, "fill in the middle"},
};

static void test_states(void)
{
    struct stoker_state state;

    T_EACH(other_row, row, other_rows)
    {
        struct stoker_token_loader_options options = row->options;
        struct stoker_error error = {0};
        struct rig rig;
        int status;

        options.rows = STOKER_ROWS_PACKED;
        options.batch_size = 2;
        options.fim_rate = options.fim_rate < 0 ? 0 : options.fim_rate > 0 ? options.fim_rate : 0.5;
        T_EQ(row->name, rig_open(&rig, world_new(), set_path, 0, &options, &error), 0);
        if (!row->named) {
            T_EQ(row->name, stoker_token_loader_state(rig.loader, &state), 0);
        }
        status = stoker_token_loader_set_state(rig.loader, &state, &error);
        T_EQ(row->name, status, row->named ? STOKER_ERROR_STATE : 0);
        if (row->named) {
            T_HAS(row->name, error.where, row->named);
        }
        rig_close(&rig);
    }
}

/* The same epoch again returns the same; the next one changes other documents. */
static void test_epochs(void)
{
    struct row row = {"epochs",
                      {.rows = STOKER_ROWS_DOCUMENTS,
                       .batch_size = 100,
                       .fim_rate = 0.5,
                       .shuffle = STOKER_SHUFFLE_NONE}};
    struct stoker_token_loader_options options = complete(&row, false, false);
    struct stoker_batch *batches[3];
    struct stoker_error error = {0};
    struct rig rig;

    T_EQ("open", rig_open(&rig, world_new(), set_path, 0, &options, &error), 0);
    for (uint32_t i = 0; i < 3; i++) {
        T_EQ("epoch", stoker_token_loader_set_epoch(rig.loader, i / 2, &error), 0);
        T_EQ("next", stoker_token_loader_next(rig.loader, &batches[i], &error), 1);
    }
    T_TRUE("again", same_field(batches[0], batches[1], 0));
    T_TRUE("another", !same_field(batches[0], batches[2], 0));
    for (uint32_t i = 0; i < 3; i++) {
        stoker_batch_close(batches[i]);
    }
    rig_close(&rig);
}

/* ---- failures ---- */

static bool fails_cleanly(const struct row *row, bool memory, uint64_t n)
{
    bool raw = n % 2;
    struct stoker_token_loader_options options = complete(row, raw, false);
    struct stk_io *world = world_new();
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    struct rig rig;
    int status;

    if (memory) {
        stk_mem_fail_nth(n / 2 + 1);
    } else {
        stk_sim_fail_nth(world, n / 2 + 1);
    }
    status = rig_open(&rig, world, raw ? "/packed/raw.bin" : "/packed/set", 0, &options, &error);
    status = status < 0 ? status : stoker_token_loader_next(rig.loader, &batch, &error);
    stk_mem_fail_nth(0);
    if (status < 0) {
        T_ERROR("fail", &error);
    }
    stoker_batch_close(batch);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), 0);
    return status < 0;
}

int main(void)
{
    uint64_t failed = 0;

    make_documents();
    T_EACH(row, row, rows)
    {
        test_row(row, false, false);
        test_row(row, false, true);
        test_row(row, true, false);
        for (uint64_t cache_bytes = 1; cache_bytes <= 3000; cache_bytes += 2999) {
            test_packed_file(row, false, cache_bytes);
            test_packed_file(row, true, cache_bytes);
        }
    }
    test_documents(false);
    test_documents(true);
    test_window_rules(false);
    test_window_rules(true);
    test_damaged_file(true);
    test_damaged_file(false);
    test_refused();
    test_states();
    test_epochs();
    T_EQ("no leak", stk_mem_alive(), 0);
    for (uint64_t n = 0; n < 60; n++) {
        failed += fails_cleanly(&rows[n / 20], false, n);
    }
    T_TRUE("calls of the world", failed >= 8);
    failed = 0;
    for (uint64_t n = 0; n < 200; n++) {
        failed += fails_cleanly(&rows[n % 3 ? 0 : 5], true, n);
    }
    T_TRUE("allocations", failed >= 20);
    return t_finish();
}
