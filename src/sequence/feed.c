/* The stream of batches of token windows, packed documents, or documents: a position, and a pure
 * function of it. */
#include "sequence/sequence.h"

#include "base/hash.h"
#include "batch/batch.h"
#include "sequence/cursor.h"
#include "sequence/samples.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define CHUNK_DOCUMENTS 4096u
#define FIELDS_MAX 4u
/* Keys of fill in the middle are none of the order's. */
#define FIM_KEY 0x66696d2d746f6b65ull

struct stoker_token_loader {
    struct stoker_tokens *tokens; /* const after open, as all down to the lock */
    struct stoker_engine *engine;
    struct stk_batch_pool *pool;
    uint64_t context;
    uint32_t dtype, token_bytes; /* of the batches */
    uint32_t field_count;
    int labels, positions, starts; /* numbers of fields, -1: there is none; tokens are field 0 */
    bool ragged;                   /* rows are documents */
    bool plain;                    /* rows are tokens as they are stored */
    uint64_t key;                  /* of fill in the middle */
    pthread_mutex_t lock;
    struct {
        struct stk_cursor cursor;
        struct stk_samples samples;
        struct stk_token_row row;
        uint32_t *starts; /* of the batch that is made */
        uint64_t starts_count, starts_room;
        uint64_t row_bytes; /* reserved */
    } locked;
};

/* ---- options ---- */

/* What defaults stand for. */
static void set_defaults(struct stoker_token_loader_options *options)
{
    bool windows;

    options->rows = options->rows ? options->rows : STOKER_ROWS_WINDOWS;
    windows = options->rows == STOKER_ROWS_WINDOWS;
    options->stride = options->stride ? options->stride : options->context;
    options->shuffle = options->shuffle ? options->shuffle : STOKER_SHUFFLE_BLOCK;
    options->tail = options->tail ? options->tail : STOKER_TAIL_DROP;
    options->window_blocks = options->window_blocks ? options->window_blocks : 64;
    options->group_count = options->group_count ? options->group_count : 1;
    options->world_size = options->world_size ? options->world_size : 1;
    options->labels = options->labels ? options->labels : STOKER_LABELS_SHIFTED;
    options->dtype = options->dtype ? options->dtype : STOKER_INT64;
    options->chunk_documents =
        options->chunk_documents ? options->chunk_documents : CHUNK_DOCUMENTS;
    options->ends = options->ends ? options->ends : windows ? STOKER_ENDS_KEPT : STOKER_ENDS_MASKED;
    options->positions = options->positions                    ? options->positions
                         : options->rows == STOKER_ROWS_PACKED ? STOKER_POSITIONS_RESET
                                                               : STOKER_POSITIONS_NONE;
}

static bool is_share(double value)
{
    return value >= 0 && value <= 1; /* and no NaN */
}

static const char *refuse_rows(const struct stoker_token_loader_options *options)
{
    bool documents = options->rows == STOKER_ROWS_DOCUMENTS;
    uint64_t added = (options->fim_rate > 0 ? STK_FIM_SENTINELS : 0) + options->append_eod;

    if (options->rows > STOKER_ROWS_DOCUMENTS || options->ends > STOKER_ENDS_KEPT ||
        options->positions > STOKER_POSITIONS_ROW || options->labels > STOKER_LABELS_NONE) {
        return "rows, ends, positions or labels is out of its range";
    }
    if (options->context > UINT32_MAX || (options->context == 0 && !documents)) {
        return "context must be 1 to 4,294,967,295 tokens";
    }
    if (options->rows == STOKER_ROWS_PACKED &&
        (options->context > STK_PACKING_LENGTH_MAX ||
         options->context * options->batch_size > INT32_MAX)) {
        return "packed rows have 16,777,216 tokens at most, and a batch 2,147,483,647";
    }
    if (options->positions == STOKER_POSITIONS_RESET &&
        options->context * options->batch_size > INT32_MAX) {
        return "where documents begin is counted in 31 bits: take smaller batches";
    }
    if (options->context > 0 && added > 0 && options->context <= added) {
        return "context must have room for sentinels and EOD, and a token";
    }
    if (documents && options->positions != STOKER_POSITIONS_NONE) {
        return "positions of documents count from 0: there is no field of them";
    }
    if (options->chunk_documents > STK_PACKING_DOCUMENTS_MAX) {
        return "a chunk has 1,048,576 documents at most";
    }
    return NULL;
}

static const char *refuse_rules(const struct stoker_token_loader_options *options)
{
    bool windows = options->rows == STOKER_ROWS_WINDOWS;

    if (options->append_eod && (!options->has_eod || windows)) {
        return "append_eod needs eod, and packed rows or documents";
    }
    if (windows && !options->has_eod &&
        (options->ends == STOKER_ENDS_MASKED || options->positions == STOKER_POSITIONS_RESET)) {
        return "in windows eod tells where documents end: name it";
    }
    if (!is_share(options->fim_rate) || !is_share(options->fim_spm_rate)) {
        return "rates of fill in the middle are numbers from 0 to 1";
    }
    return NULL;
}

static int resolve(struct stoker_token_loader_options *options,
                   const struct stoker_token_loader_options *given, struct stoker_error *error)
{
    const char *refused;

    if (!given || given->struct_size < offsetof(struct stoker_token_loader_options, shuffle) ||
        given->struct_size > 4096) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "struct_size is not set",
                        "set options.struct_size = sizeof options", "token loader options");
    }
    memcpy(options, given, stk_min(given->struct_size, sizeof *options));
    set_defaults(options);
    refused = refuse_rows(options);
    refused = refused ? refused : refuse_rules(options);
    if (options->batch_size == 0 || options->batch_size > 1u << 24) {
        refused = "batch_size must be 1 to 16,777,216";
    } else if (options->rank >= options->world_size) {
        refused = "rank must be below world_size";
    } else if (options->shuffle > STOKER_SHUFFLE_NONE || options->tail > STOKER_TAIL_KEEP) {
        refused = "shuffle or tail is out of its range";
    } else if (options->dtype != STOKER_INT32 && options->dtype != STOKER_INT64) {
        refused = "tokens come as int32 or int64";
    }
    return refused ? stk_fail(error, STOKER_ERROR_ARGUMENT, "a token loader option is not usable",
                              refused, "token loader options")
                   : 0;
}

/* ---- open and close ---- */

/* A digest of some settings, as a part of the identity: that which differs can be named. */
static void identify_part(uint8_t *part, size_t part_bytes, const void *settings, size_t bytes)
{
    struct stk_sha256 sha;
    uint8_t digest[32];

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, settings, bytes);
    stk_sha256_done(&sha, digest);
    memcpy(part, digest, part_bytes);
}

static const struct stk_identity_part identity_parts[] = {
    {"identity of tokens", 0, 16},
    {"rows (windows, packed or documents; context, stride, labels)", 16, 4},
    {"packing (chunk, pad)", 20, 4},
    {"rules for ends of documents (eod, append_eod, ends, positions)", 24, 4},
    {"fill in the middle (rates, sentinels)", 28, 4},
};

/* What a state belongs to: the tokens, and what is made of them. */
static void identify(const struct stoker_tokens *tokens,
                     const struct stoker_token_loader_options *options, uint8_t identity[32])
{
    bool packed = options->rows == STOKER_ROWS_PACKED, fim = options->fim_rate > 0;
    uint64_t rows[4] = {options->rows, options->context,
                        options->rows == STOKER_ROWS_WINDOWS ? options->stride : 0,
                        options->labels};
    int64_t packing[2] = {packed ? options->chunk_documents : 0, packed ? options->pad : 0};
    int64_t ends[5] = {options->has_eod, options->has_eod ? options->eod : 0, options->append_eod,
                       options->ends, options->positions};
    int64_t middle[4] = {fim, fim ? options->fim_prefix : 0, fim ? options->fim_suffix : 0,
                         fim ? options->fim_middle : 0};
    double rates[2] = {options->fim_rate, fim ? options->fim_spm_rate : 0};
    uint8_t both[sizeof middle + sizeof rates];

    memcpy(both, middle, sizeof middle);
    memcpy(both + sizeof middle, rates, sizeof rates);
    memcpy(identity, tokens->identity, 16);
    identify_part(identity + 16, 4, rows, sizeof rows);
    identify_part(identity + 20, 4, packing, sizeof packing);
    identify_part(identity + 24, 4, ends, sizeof ends);
    identify_part(identity + 28, 4, both, sizeof both);
}

static int open_cursor(struct stoker_token_loader *loader,
                       const struct stoker_token_loader_options *options,
                       struct stoker_error *error)
{
    const struct stk_samples *samples = &loader->locked.samples;
    uint32_t token_bytes = stk_token_bytes(loader->tokens->files[0].run.dtype);
    uint64_t spacing_bytes;
    uint8_t identity[32];

    if (!stk_multiply(stk_samples_spacing(samples), token_bytes, &spacing_bytes)) {
        spacing_bytes = STK_TOKEN_BLOCK_BYTES; /* then there is one window a file */
    }
    struct stk_order_options order = {
        .sample_count = stk_samples_count(samples),
        .block_samples = stk_max(STK_TOKEN_BLOCK_BYTES / spacing_bytes, 1),
        .window_blocks = options->window_blocks,
        .group_count = options->group_count,
        .shuffle = options->shuffle,
        .seed = options->seed,
    };
    struct stk_partition partition = {
        .sample_count = order.sample_count,
        .batch_size = options->batch_size,
        .rank = options->rank,
        .world_size = options->world_size,
        .tail = options->tail,
        .group_count = options->group_count,
        .worker_count = 1,
    };

    identify(loader->tokens, options, identity);
    return stk_cursor_open(&loader->locked.cursor, &order, &partition, identity, error);
}

/* What the pool's keeper does: a batch that came back may be what others wait for. */
static void batch_returned(void *keeper)
{
    struct stoker_engine *engine = keeper;

    if (stk_engine_check(engine, NULL) == 0) {
        stk_engine_lock(engine, NULL);
        engine->locked.returns++;
        stk_engine_signal_locked(engine, 1);
        stk_engine_unlock(engine);
    }
}

static void pool_gone(void *keeper)
{
    stk_engine_release(keeper);
}

static int open_pool(struct stoker_token_loader *loader, uint32_t batch_size,
                     struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_batch_keeper keeper = {&engine->budget, engine, batch_returned, pool_gone};
    struct stk_field_shape row = {
        .dtype = loader->dtype,
        .dimension_count = 1,
        .shape = {(int64_t)loader->context},
        .strides = {1},
        .slot_bytes = loader->context * loader->token_bytes,
    };
    struct stk_field_shape ragged = {
        .dtype = loader->dtype,
        .dimension_count = 1,
        .shape = {-1},
        .strides = {1},
        .ragged = true,
        .item_bytes = loader->token_bytes,
    };
    struct stk_field_shape shapes[FIELDS_MAX] = {row, row, row, row};
    uint64_t bytes = row.slot_bytes * batch_size * (loader->field_count - (loader->starts >= 0));
    int status;

    for (uint32_t i = 0; loader->ragged && i < loader->field_count; i++) {
        shapes[i] = ragged;
    }
    if (loader->starts >= 0) {
        shapes[loader->starts] = ragged;
        shapes[loader->starts].dtype = STOKER_INT32;
        shapes[loader->starts].item_bytes = 4;
    }
    if (!loader->ragged && bytes > engine->budget.bytes_max) {
        return stk_fail(error, STOKER_ERROR_BUDGET, "one batch is larger than the memory budget",
                        "lower batch_size or context, or grant more memory",
                        "a batch takes %llu bytes, the budget is %llu", (unsigned long long)bytes,
                        (unsigned long long)engine->budget.bytes_max);
    }
    status =
        stk_batch_pool_open(&loader->pool, &keeper, shapes, loader->field_count, batch_size, error);
    if (status == 0) {
        stk_engine_hold(engine); /* the pool's, given back by pool_gone */
    }
    return status;
}

static void set_fields(struct stoker_token_loader *loader,
                       const struct stoker_token_loader_options *options)
{
    bool packed = options->rows == STOKER_ROWS_PACKED;
    int next = 1;

    loader->ragged = options->rows == STOKER_ROWS_DOCUMENTS;
    loader->labels = options->labels == STOKER_LABELS_SHIFTED ? next++ : -1;
    loader->positions = options->positions != STOKER_POSITIONS_NONE ? next++ : -1;
    loader->starts = packed || options->positions == STOKER_POSITIONS_RESET ? next++ : -1;
    loader->field_count = (uint32_t)next;
    loader->plain = options->rows == STOKER_ROWS_WINDOWS && loader->positions < 0 &&
                    options->ends == STOKER_ENDS_KEPT && options->fim_rate == 0;
}

int stoker_token_loader_open(struct stoker_token_loader **loader_out, struct stoker_tokens *tokens,
                             const struct stoker_token_loader_options *given,
                             struct stoker_error *error)
{
    struct stoker_token_loader_options options = {0};
    struct stoker_token_loader *loader;
    int status = stk_engine_check(tokens->engine, error);

    *loader_out = NULL;
    status = status < 0 ? status : resolve(&options, given, error);
    if (status < 0) {
        return status;
    }
    loader = stk_alloc(1, sizeof *loader);
    if (!loader) {
        return stk_fail(error, -ENOMEM, "cannot open a token loader", "free memory", "loader");
    }
    pthread_mutex_init(&loader->lock, NULL);
    stk_tokens_hold(tokens);
    loader->tokens = tokens;
    loader->engine = tokens->engine;
    loader->context = options.context;
    loader->dtype = options.dtype;
    loader->token_bytes = options.dtype == STOKER_INT32 ? 4 : 8;
    loader->key = stk_key(options.seed, FIM_KEY);
    set_fields(loader, &options);
    status = stk_samples_open(&loader->locked.samples, tokens, &options, error);
    status = status < 0 ? status : open_cursor(loader, &options, error);
    status = status < 0 ? status : open_pool(loader, options.batch_size, error);
    if (status < 0) {
        stoker_token_loader_close(loader);
        return status;
    }
    *loader_out = loader;
    return 0;
}

void stoker_token_loader_close(struct stoker_token_loader *loader)
{
    struct stoker_tokens *tokens;

    if (!loader || stk_engine_check(loader->engine, NULL) < 0) {
        return;
    }
    tokens = loader->tokens;
    stk_batch_pool_close(loader->pool);
    stk_samples_close(&loader->locked.samples);
    stk_token_row_close(&loader->locked.row);
    stk_budget_release(&loader->engine->budget, loader->locked.row_bytes);
    stk_free(loader->locked.starts);
    pthread_mutex_destroy(&loader->lock);
    stk_free(loader);
    stk_tokens_release(tokens);
}

/* ---- rows ---- */

static int unfit(const struct stoker_token_loader *loader, const char *path,
                 struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_FORMAT, "a token does not fit its dtype",
             loader->dtype == STOKER_INT32
                 ? "ask for int64, and look whether the file's dtype is right"
                 : "look whether the file's dtype is right",
             "a batch of %s", loader->dtype == STOKER_INT32 ? "int32" : "int64");
    return path ? stk_error_place(error, path, STOKER_NO_OFFSET, NULL) : STOKER_ERROR_FORMAT;
}

/* A plain window straight from the file into its slots; 0: the file is packed. */
static int fill_window_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                              uint32_t slot, struct stoker_error *error)
{
    struct stk_window window = stk_windows_at(&loader->locked.samples.windows, batch->ids[slot]);
    const struct stk_token_file *file = &loader->tokens->files[window.file];
    uint64_t slot_bytes = loader->context * loader->token_bytes;

    if (file->packed) {
        return 0;
    }
    for (uint32_t field = 0; field < loader->field_count; field++) {
        if (!stk_tokens_widen(&file->run, window.first + field, loader->context, loader->dtype,
                              stk_batch_slot(batch, field, slot_bytes, slot))) {
            return unfit(loader, file->path, error);
        }
    }
    return 1;
}

/* Room of a row for a sample, from the budget. */
static int row_reserve_locked(struct stoker_token_loader *loader, uint64_t sample,
                              struct stoker_error *error)
{
    struct stk_token_row *row = &loader->locked.row;
    uint64_t room;
    int status = stk_samples_room(&loader->locked.samples, sample, &room, error);

    if (status < 0 || (room <= row->room && row->room > 0)) {
        return status;
    }
    room = stk_max(room, 1);
    if (room <= STK_ROW_TOKENS_MAX) {
        uint64_t bytes = room * STK_ROW_TOKEN_BYTES;

        stk_token_row_close(row);
        stk_budget_release(&loader->engine->budget, loader->locked.row_bytes);
        loader->locked.row_bytes = 0;
        status = stk_engine_reserve(loader->engine, bytes, 0, "a row of tokens", error);
        if (status < 0) {
            return status;
        }
        loader->locked.row_bytes = bytes;
    }
    return stk_token_row_open(row, room, error);
}

/* The sample in a slot, as a row. epoch: of the sample. */
static int make_row_locked(struct stoker_token_loader *loader, uint64_t sample, uint64_t epoch,
                           struct stoker_error *error)
{
    uint64_t key = stk_key(stk_key(loader->key, epoch), sample);
    int status = row_reserve_locked(loader, sample, error);

    return status < 0
               ? status
               : stk_samples_row(&loader->locked.samples, sample, key, &loader->locked.row, error);
}

/* Room for one more row's starts, its padding, and the batch's end. */
static int starts_reserve_locked(struct stoker_token_loader *loader, struct stoker_error *error)
{
    uint64_t wanted = loader->locked.starts_count + loader->locked.row.start_count + 2;
    uint32_t *grown;

    if (wanted <= loader->locked.starts_room) {
        return 0;
    }
    grown =
        stk_realloc(loader->locked.starts, loader->locked.starts_room, 2 * wanted, sizeof *grown);
    if (!grown) {
        return stk_fail(error, -ENOMEM, "cannot pack a batch", "free memory", "%llu pieces",
                        (unsigned long long)wanted);
    }
    loader->locked.starts = grown;
    loader->locked.starts_room = 2 * wanted;
    return 0;
}

static int add_starts_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                             uint32_t slot, struct stoker_error *error)
{
    uint64_t *offsets = batch->fields[loader->starts].offsets, count;
    int status = starts_reserve_locked(loader, error);
    uint32_t *starts = loader->locked.starts + loader->locked.starts_count;

    if (status < 0) {
        return status;
    }
    count = stk_token_row_starts(&loader->locked.row, loader->context, starts);
    for (uint64_t i = 0; i < count; i++) {
        starts[i] += (uint32_t)(slot * loader->context); /* in the batch as one row */
    }
    if (slot + 1 == batch->samples) {
        starts[count++] = (uint32_t)(batch->samples * loader->context);
    }
    offsets[0] = 0;
    offsets[slot + 1] = loader->locked.starts_count += count;
    return 0;
}

/* The row into its slots. */
static int write_row_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                            uint32_t slot, struct stoker_error *error)
{
    uint64_t slot_bytes = loader->context * loader->token_bytes;
    struct stk_token_row_out out = {
        .length = loader->context,
        .dtype = loader->dtype,
        .tokens = stk_batch_slot(batch, 0, slot_bytes, slot),
    };

    if (loader->labels >= 0) {
        out.labels = stk_batch_slot(batch, (uint32_t)loader->labels, slot_bytes, slot);
    }
    if (loader->positions >= 0) {
        out.positions = stk_batch_slot(batch, (uint32_t)loader->positions, slot_bytes, slot);
    }
    if (!stk_token_row_write(&loader->locked.row, &loader->locked.samples.rules, &out)) {
        return unfit(loader, NULL, error);
    }
    return loader->starts >= 0 ? add_starts_locked(loader, batch, slot, error) : 0;
}

/* ---- batches ---- */

/* Rows of one length. */
static int fill_rows_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                            const uint64_t *epochs, struct stoker_error *error)
{
    int status = 0;

    loader->locked.starts_count = 0;
    for (uint32_t i = 0; status >= 0 && i < batch->samples; i++) {
        status = loader->plain ? fill_window_locked(loader, batch, i, error) : 0;
        if (status == 0) {
            status = make_row_locked(loader, batch->ids[i], epochs[i], error);
            status = status < 0 ? status : write_row_locked(loader, batch, i, error);
        }
    }
    if (status >= 0 && loader->starts >= 0) {
        uint64_t bytes = loader->locked.starts_count * sizeof *loader->locked.starts;

        status = stk_batch_grow(batch, (uint32_t)loader->starts, bytes, error);
        if (status == 0 && bytes > 0) {
            memcpy(batch->fields[loader->starts].data, loader->locked.starts, bytes);
        }
    }
    return status;
}

/* Rows of any length: room for the longest that they may be, then one behind the other. */
static int fill_documents_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                                 const uint64_t *epochs, struct stoker_error *error)
{
    uint64_t room, total = 0;
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < batch->samples; i++) {
        status = stk_samples_room(&loader->locked.samples, batch->ids[i], &room, error);
        total += status == 0 ? room : 0;
    }
    for (uint32_t field = 0; status == 0 && field < loader->field_count; field++) {
        status = stk_batch_grow(batch, field, total * loader->token_bytes, error);
        batch->fields[field].offsets[0] = 0;
    }
    for (uint32_t i = 0; status == 0 && i < batch->samples; i++) {
        uint64_t at = batch->fields[0].offsets[i] * loader->token_bytes;

        status = make_row_locked(loader, batch->ids[i], epochs[i], error);
        if (status < 0) {
            break;
        }
        struct stk_token_row_out out = {
            .length = loader->locked.row.count,
            .dtype = loader->dtype,
            .tokens = batch->fields[0].data + at,
            .labels = loader->labels >= 0 ? batch->fields[loader->labels].data + at : NULL,
        };

        if (!stk_token_row_write(&loader->locked.row, &loader->locked.samples.rules, &out)) {
            status = unfit(loader, NULL, error);
        }
        for (uint32_t field = 0; field < loader->field_count; field++) {
            batch->fields[field].offsets[i + 1] = batch->fields[field].offsets[i] + out.length;
        }
    }
    return status;
}

/* The batch at the position; the position stays. */
static int make_locked(struct stoker_token_loader *loader, struct stoker_batch **batch_out,
                       struct stoker_error *error)
{
    static const uint64_t value_bytes[FIELDS_MAX] = {0}; /* they get room when it is known */
    uint32_t slots = stk_cursor_slots(&loader->locked.cursor);
    uint64_t *epochs = stk_alloc(stk_max(slots, 1), sizeof *epochs);
    struct stoker_batch *batch = NULL;
    int status;

    if (!epochs) {
        return stk_fail(error, -ENOMEM, "cannot make a batch", "free memory", "%u rows", slots);
    }
    status = stk_batch_take(loader->pool, slots, value_bytes, &batch, error);
    for (uint32_t i = 0; status == 0 && i < slots; i++) {
        struct stk_cursor_slot slot = stk_cursor_at(&loader->locked.cursor, i);

        batch->ids[i] = slot.sample;
        batch->mask[i] = slot.real;
        epochs[i] = slot.epoch;
    }
    if (status == 0) {
        status = loader->ragged ? fill_documents_locked(loader, batch, epochs, error)
                                : fill_rows_locked(loader, batch, epochs, error);
    }
    stk_free(epochs);
    if (status < 0) {
        stoker_batch_close(batch);
        return status;
    }
    *batch_out = batch;
    return 0;
}

int stoker_token_loader_next(struct stoker_token_loader *loader, struct stoker_batch **batch_out,
                             struct stoker_error *error)
{
    int status = stk_engine_check(loader->engine, error);

    *batch_out = NULL;
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&loader->lock);
    if (stk_cursor_begins(&loader->locked.cursor)) {
        status = make_locked(loader, batch_out, error);
        if (status == 0) {
            stk_cursor_advance(&loader->locked.cursor);
            status = 1;
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

uint64_t stoker_token_loader_batches(const struct stoker_token_loader *loader, uint64_t epoch)
{
    return stk_partition_steps(&loader->locked.cursor.partition, epoch);
}

uint64_t stoker_token_loader_samples(const struct stoker_token_loader *loader)
{
    return loader->locked.cursor.partition.sample_count;
}

/* ---- state ---- */

int stoker_token_loader_set_epoch(struct stoker_token_loader *loader, uint64_t epoch,
                                  struct stoker_error *error)
{
    int status = stk_engine_check(loader->engine, error);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        stk_cursor_set_epoch(&loader->locked.cursor, epoch);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_state(struct stoker_token_loader *loader, struct stoker_state *state_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        stk_cursor_state(&loader->locked.cursor, state_out);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_set_state(struct stoker_token_loader *loader,
                                  const struct stoker_state *state, struct stoker_error *error)
{
    const struct stk_state_words words = {
        .samples = "number of samples",
        .block_samples = "samples a block",
        .advice = "open the loader with the tokens and settings of the saved run",
        .parts = identity_parts,
        .part_count = STK_COUNT(identity_parts),
        .positions = loader->locked.cursor.partition.sample_count,
        .epoch_max = UINT64_MAX,
    };
    int status = stk_engine_check(loader->engine, error);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        status = stk_cursor_set_state(&loader->locked.cursor, state, &words, error);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}
