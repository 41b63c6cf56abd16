/* The stream of batches of token windows, packed documents, or documents: a position, and a pure
 * function of it. */
#include "base/mem.h"
#include "loader/tokens/token_set.h"

#include "base/options.h"
#include "base/random.h"
#include "engine/batch/batch.h"
#include "loader/tokens/order_cursor.h"
#include "loader/tokens/token_options.h"
#include "loader/tokens/token_prefetch.h"
#include "loader/tokens/token_samples.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

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
    struct stk_token_samples *samples; /* one reference */
    pthread_mutex_t lock;
    struct {
        struct stk_order_cursor cursor;
        struct stk_token_prefetch ahead;
        struct stk_token_row row;
        uint32_t *starts; /* of the batch that is made */
        uint64_t starts_count, starts_room;
        uint64_t row_bytes; /* reserved */
    } locked;
};

/* ---- open and close ---- */

static int open_cursor(struct stoker_token_loader *loader,
                       const struct stoker_token_loader_options *options,
                       struct stoker_error *error)
{
    const struct stk_token_samples *samples = loader->samples;
    uint32_t token_bytes = stk_token_bytes(loader->tokens->files[0].run.dtype);
    uint64_t spacing_bytes, block_samples;
    int status;

    if (!stk_multiply(stk_token_samples_spacing(samples), token_bytes, &spacing_bytes)) {
        spacing_bytes = options->block_bytes; /* then there is one window a file */
    }
    block_samples = stk_max(options->block_bytes / spacing_bytes, 1);
    struct stk_order_cursor_options cursor = {
        .order = {.sample_count = stk_token_samples_count(samples),
                  .block_samples = options->block_samples ? options->block_samples : block_samples,
                  .window_blocks = options->window_blocks,
                  .group_count = options->group_count,
                  .shuffle = options->shuffle,
                  .seed = options->seed},
        .partition = {.batch_size = options->batch_size,
                      .rank = options->rank,
                      .world_size = options->world_size,
                      .tail = options->tail,
                      .group_count = options->group_count,
                      .worker_count = 1},
        .mix = options->mix,
    };

    memcpy(cursor.identity, samples->identity, sizeof cursor.identity);
    status = stk_order_cursor_open(&loader->locked.cursor, &cursor, error);
    return status == 0 && options->mix
               ? stk_token_samples_set_mix(loader->samples, options->mix, error)
               : status;
}

/* What the pool's keeper does: a batch that came back may be what others wait for. */
static void batch_returned(void *owner)
{
    struct stoker_engine *engine = owner;

    if (stk_engine_check(engine, NULL) == 0) {
        stk_engine_lock(engine, NULL);
        stk_engine_memory_returned_locked(engine);
        stk_engine_unlock(engine);
    }
}

static void pool_gone(void *owner)
{
    stk_engine_release(owner);
}

static int open_pool(struct stoker_token_loader *loader, uint32_t batch_size,
                     struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_batch_owner owner = {&engine->budget, engine, batch_returned, pool_gone};
    struct stk_batch_field_shape row = {
        .dtype = loader->dtype,
        .dimension_count = 1,
        .shape = {(int64_t)loader->context},
        .strides = {1},
        .slot_bytes = loader->context * loader->token_bytes,
    };
    struct stk_batch_field_shape ragged = {
        .dtype = loader->dtype,
        .dimension_count = 1,
        .shape = {-1},
        .strides = {1},
        .ragged = true,
        .item_bytes = loader->token_bytes,
    };
    struct stk_batch_field_shape shapes[FIELDS_MAX] = {row, row, row, row};
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
        stk_batch_pool_open(&loader->pool, &owner, shapes, loader->field_count, batch_size, error);
    if (status == 0) {
        stk_engine_retain(engine); /* the pool's, given back by pool_gone */
    }
    return status;
}

static void set_fields(struct stoker_token_loader *loader,
                       const struct stoker_token_loader_options *options)
{
    bool packed = options->rows == STOKER_ROWS_PACKED;
    int next = 1;

    if (loader->tokens->is_virtual) {
        loader->labels = loader->positions = loader->starts = -1;
        return;
    }
    loader->ragged = options->rows == STOKER_ROWS_DOCUMENTS;
    loader->labels = options->labels == STOKER_LABELS_SHIFTED ? next++ : -1;
    loader->positions = options->positions != STOKER_POSITIONS_NONE ? next++ : -1;
    loader->starts = packed || options->positions == STOKER_POSITIONS_RESET ? next++ : -1;
    loader->field_count = (uint32_t)next;
    loader->plain = options->rows == STOKER_ROWS_WINDOWS && loader->positions < 0 &&
                    options->boundary_labels == STOKER_BOUNDARY_NEXT && options->fim_rate == 0;
}

/* Batches of all samples: how many they are is known only now. */
static int use_all_samples(const struct stoker_token_loader *loader,
                           struct stoker_token_loader_options *options, struct stoker_error *error)
{
    uint64_t count = stk_token_samples_count(loader->samples);

    if (count * stk_max(options->context, 1) > INT32_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many rows for one batch",
                        "give fewer documents at once, or a shorter context",
                        "%llu rows of %llu tokens, at most 2,147,483,647 in all",
                        (unsigned long long)count, (unsigned long long)options->context);
    }
    options->batch_size = (uint32_t)count;
    return 0;
}

/* A loader; ids: see stk_token_samples, with them all samples are one batch. */
static int open_loader(struct stoker_token_loader **loader_out, struct stoker_tokens *tokens,
                       struct stoker_token_loader_options *options, const uint64_t *ids,
                       struct stoker_error *error)
{
    struct stoker_token_loader *loader = stk_alloc(1, sizeof *loader);
    int status;

    if (!loader) {
        return stk_fail(error, -ENOMEM, "cannot open a token loader", "free memory", "loader");
    }
    pthread_mutex_init(&loader->lock, NULL);
    stk_token_set_retain(tokens);
    loader->tokens = tokens;
    loader->engine = tokens->engine;
    loader->context = options->context;
    loader->dtype = options->dtype;
    loader->token_bytes = options->dtype == STOKER_UINT8   ? 1
                          : options->dtype == STOKER_INT32 ? 4
                                                           : 8;
    loader->key = stk_random_key(options->seed, FIM_KEY);
    set_fields(loader, options);
    if (options->rows_of) {
        status = stk_token_samples_share(options->rows_of->samples, tokens, options, error);
        loader->samples = status == 0 ? options->rows_of->samples : NULL;
    } else {
        status = stk_token_samples_open(&loader->samples, tokens, options, error);
    }
    if (status == 0 && ids) {
        loader->samples->ids = ids;
        status = use_all_samples(loader, options, error);
    }
    status = status < 0 ? status : open_cursor(loader, options, error);
    status = status < 0 ? status : open_pool(loader, options->batch_size, error);
    if (status < 0) {
        stoker_token_loader_close(loader);
        return status;
    }
    stk_token_prefetch_open(&loader->locked.ahead, loader->samples);
    *loader_out = loader;
    return 0;
}

int stoker_token_loader_open(struct stoker_token_loader **loader_out, struct stoker_tokens *tokens,
                             const struct stoker_token_loader_options *given,
                             struct stoker_error *error)
{
    struct stoker_token_loader_options options = {0};
    int status = stk_engine_check(tokens->engine, error);

    *loader_out = NULL;
    status = status < 0 ? status : stk_token_options_resolve(&options, given, error);
    if (status == 0 && tokens->is_virtual && options.rows != STOKER_ROWS_WINDOWS) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "tokens that lie elsewhere have no documents",
                        "take windows", "token loader options");
    }
    for (uint32_t i = 0; status == 0 && options.dtype == STOKER_UINT8 && i < tokens->file_count;
         i++) {
        if (tokens->files[i].run.dtype != STOKER_UINT8) {
            stk_fail(error, STOKER_ERROR_ARGUMENT, "a file's tokens are no bytes",
                     "take int32 or int64", "uint8");
            status = stk_error_set_location(error, tokens->files[i].path, STOKER_NO_OFFSET, NULL);
        }
    }
    return status < 0 ? status : open_loader(loader_out, tokens, &options, NULL, error);
}

void stoker_token_loader_close(struct stoker_token_loader *loader)
{
    struct stoker_tokens *tokens;

    if (!loader || stk_engine_check(loader->engine, NULL) < 0) {
        return;
    }
    tokens = loader->tokens;
    stk_batch_pool_close(loader->pool);
    stk_order_cursor_close(&loader->locked.cursor);
    stk_token_samples_release(loader->samples);
    stk_token_row_close(&loader->locked.row);
    stk_budget_release(&loader->engine->budget, loader->locked.row_bytes);
    stk_free(loader->locked.starts);
    pthread_mutex_destroy(&loader->lock);
    stk_free(loader);
    stk_token_set_release(tokens);
}

/* ---- rows ---- */

static int fail_too_long(const struct stoker_token_loader *loader, const char *path,
                         struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_FORMAT, "a token does not fit its dtype",
             loader->dtype == STOKER_INT32
                 ? "ask for int64, and look whether the file's dtype is right"
                 : "look whether the file's dtype is right",
             "a batch of %s", loader->dtype == STOKER_INT32 ? "int32" : "int64");
    return path ? stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL) : STOKER_ERROR_FORMAT;
}

/* A plain window straight from the file into its slots; 0: the file is packed. */
static int fill_window_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                              uint32_t slot, struct stoker_error *error)
{
    struct stk_token_window window =
        stk_token_windows_get(&loader->samples->windows, batch->ids[slot]);
    const struct stk_token_set_file *file = &loader->tokens->files[window.file];
    uint64_t slot_bytes = loader->context * loader->token_bytes;

    if (file->compressed) {
        return 0;
    }
    for (uint32_t field = 0; field < loader->field_count; field++) {
        if (!stk_token_widen(&file->run, window.first + field, loader->context, loader->dtype,
                             stk_batch_slot(batch, field, slot_bytes, slot))) {
            return fail_too_long(loader, file->path, error);
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
    int status = stk_token_samples_row_tokens(loader->samples, sample, &room, error);

    if (status < 0 || (room <= row->capacity && row->capacity > 0)) {
        return status;
    }
    room = stk_max(room, 1);
    if (room <= STK_TOKEN_ROW_TOKENS_MAX) {
        uint64_t bytes = room * STK_TOKEN_ROW_TOKEN_BYTES;

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

/* What fill in the middle is drawn from, beside the sample: in a mix the sample may come several
 * times an epoch. */
static uint64_t key_locked(const struct stoker_token_loader *loader,
                           const struct stk_order_cursor_slot *slot)
{
    uint64_t key = stk_random_key(loader->key, slot->epoch);

    return stk_schedule_is_plain(&loader->locked.cursor.schedule)
               ? key
               : stk_random_key(key, slot->position);
}

/* The sample in a slot, as a row. */
static int make_row_locked(struct stoker_token_loader *loader, uint64_t sample, uint64_t key,
                           struct stoker_error *error)
{
    int status = row_reserve_locked(loader, sample, error);

    return status < 0
               ? status
               : stk_token_samples_row(loader->samples, sample, key, &loader->locked.row, error);
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
    struct stk_token_row_output out = {
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
    if (!stk_token_row_write(&loader->locked.row, &loader->samples->rules, &out)) {
        return fail_too_long(loader, NULL, error);
    }
    return loader->starts >= 0 ? add_starts_locked(loader, batch, slot, error) : 0;
}

/* ---- batches ---- */

/* Rows of one length. */
static int fill_rows_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                            const uint64_t *keys, struct stoker_error *error)
{
    int status = 0;

    loader->locked.starts_count = 0;
    for (uint32_t i = 0; status >= 0 && i < batch->samples; i++) {
        status = loader->plain ? fill_window_locked(loader, batch, i, error) : 0;
        if (status == 0) {
            status = make_row_locked(loader, batch->ids[i], keys[i], error);
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

/* One document behind those before it. */
static int fill_document_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                                uint32_t slot, uint64_t key, struct stoker_error *error)
{
    const struct stk_token_row *row = &loader->locked.row;
    uint64_t at = batch->fields[0].offsets[slot] * loader->token_bytes;
    int status = make_row_locked(loader, batch->ids[slot], key, error);

    if (status < 0) {
        return status;
    }
    struct stk_token_row_output out = {
        .length = row->count,
        .dtype = loader->dtype,
        .tokens = batch->fields[0].data + at,
        .labels = loader->labels >= 0 ? batch->fields[loader->labels].data + at : NULL,
    };

    for (uint32_t field = 0; field < loader->field_count; field++) {
        batch->fields[field].offsets[slot + 1] = batch->fields[field].offsets[slot] + row->count;
    }
    return stk_token_row_write(row, &loader->samples->rules, &out)
               ? 0
               : fail_too_long(loader, NULL, error);
}

/* The same of bytes, as they are stored. */
static int fill_bytes_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                             uint32_t slot, struct stoker_error *error)
{
    const struct stk_token_samples *samples = loader->samples;
    uint64_t *offsets = batch->fields[0].offsets, bytes;
    struct stk_token_document document;
    int status = stk_token_documents_get(&samples->documents, batch->ids[slot], &document, error);

    status = status < 0 ? status
                        : stk_token_samples_row_tokens(samples, batch->ids[slot], &bytes, error);
    if (status == 0) {
        offsets[slot + 1] = offsets[slot] + bytes;
        status = stk_token_set_read_stored(loader->tokens, document.file, document.span.first,
                                           bytes, batch->fields[0].data + offsets[slot], error);
    }
    return status;
}

/* Rows of any length: room for the longest that they may be, then one behind the other. */
static int fill_documents_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                                 const uint64_t *keys, struct stoker_error *error)
{
    uint64_t room, total = 0;
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < batch->samples; i++) {
        status = stk_token_samples_row_tokens(loader->samples, batch->ids[i], &room, error);
        total += status == 0 ? room : 0;
    }
    for (uint32_t field = 0; status == 0 && field < loader->field_count; field++) {
        status = stk_batch_grow(batch, field, total * loader->token_bytes, error);
        batch->fields[field].offsets[0] = 0;
    }
    for (uint32_t i = 0; status == 0 && i < batch->samples; i++) {
        status = loader->dtype == STOKER_UINT8
                     ? fill_bytes_locked(loader, batch, i, error)
                     : fill_document_locked(loader, batch, i, keys[i], error);
    }
    return status;
}

/* The batch at the position; the position stays. */
static int make_locked(struct stoker_token_loader *loader, struct stoker_batch **batch_out,
                       struct stoker_error *error)
{
    static const uint64_t value_bytes[FIELDS_MAX] = {0}; /* they get room when it is known */
    uint32_t slots = stk_order_cursor_slots(&loader->locked.cursor);
    uint64_t *keys = stk_alloc(stk_max(slots, 1), sizeof *keys);
    struct stoker_batch *batch = NULL;
    int status;

    if (!keys) {
        return stk_fail(error, -ENOMEM, "cannot make a batch", "free memory", "%u rows", slots);
    }
    status = stk_batch_pool_get(loader->pool, slots, value_bytes, &batch, error);
    for (uint32_t i = 0; status == 0 && i < slots; i++) {
        struct stk_order_cursor_slot slot = stk_order_cursor_get(&loader->locked.cursor, i);

        batch->ids[i] = slot.sample;
        batch->mask[i] = slot.is_real;
        keys[i] = key_locked(loader, &slot);
    }
    if (status == 0 && loader->field_count > 0) {
        status = loader->ragged ? fill_documents_locked(loader, batch, keys, error)
                                : fill_rows_locked(loader, batch, keys, error);
    }
    stk_free(keys);
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
    if (stk_order_cursor_begin_step(&loader->locked.cursor)) {
        stk_token_prefetch_begin(&loader->locked.ahead, &loader->locked.cursor);
        status = make_locked(loader, batch_out, error);
        stk_token_prefetch_end(&loader->locked.ahead);
        if (status == 0) {
            stk_order_cursor_next(&loader->locked.cursor);
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

int stoker_token_loader_file_end(const struct stoker_token_loader *loader, uint64_t file,
                                 uint64_t *samples_out)
{
    if (file >= loader->tokens->file_count) {
        return STOKER_ERROR_ARGUMENT;
    }
    *samples_out = stk_token_samples_file_end(loader->samples, (uint32_t)file);
    return 0;
}

/* ---- state ---- */

int stoker_token_loader_mix_change_position(struct stoker_token_loader *loader, uint64_t least,
                                            uint64_t *position_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status < 0 || stk_schedule_is_plain(&loader->locked.cursor.schedule)) {
        return status < 0 ? status : STOKER_ERROR_ARGUMENT;
    }
    pthread_mutex_lock(&loader->lock);
    *position_out = stk_order_cursor_boundary(&loader->locked.cursor, least);
    pthread_mutex_unlock(&loader->lock);
    return 0;
}

int stoker_token_loader_set_epoch(struct stoker_token_loader *loader, uint64_t epoch,
                                  struct stoker_error *error)
{
    int status = stk_engine_check(loader->engine, error);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        status = stk_order_cursor_set_epoch(&loader->locked.cursor, epoch, error);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_state(struct stoker_token_loader *loader, struct stoker_state *state_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        stk_order_cursor_state(&loader->locked.cursor, state_out);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_position(struct stoker_token_loader *loader, uint64_t *epoch_out,
                                 uint64_t *position_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        *epoch_out = loader->locked.cursor.epoch;
        *position_out = loader->locked.cursor.position;
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_set_state(struct stoker_token_loader *loader,
                                  const struct stoker_state *state, struct stoker_error *error)
{
    const struct stk_state_labels words = {
        .samples = "number of samples",
        .block_samples = "samples a block",
        .advice = "open the loader with the tokens and settings of the saved run",
        .parts = stk_token_identity_parts,
        .part_count = STK_TOKEN_IDENTITY_PARTS,
    };
    int status = stk_engine_check(loader->engine, error);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        status = stk_order_cursor_set_state(&loader->locked.cursor, state, &words, error);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

/* ---- documents in memory ---- */

/* Tokens of a window; 0: rows are others. */
static uint64_t window_tokens(const struct stoker_token_loader_options *options)
{
    return options->rows == STOKER_ROWS_WINDOWS
               ? options->context + (options->labels == STOKER_LABELS_SHIFTED)
               : 0;
}

static int check_documents(const struct stoker_token_documents *documents,
                           const struct stoker_token_loader_options *options,
                           struct stoker_error *error)
{
    const char *refused = NULL;
    uint64_t window = window_tokens(options), before = 0;

    if (documents->count == 0 || documents->count > STK_SEQUENCE_PACKING_DOCUMENTS_MAX) {
        refused = "give 1 to 1,048,576 documents";
    } else if (options->dtype == STOKER_UINT8) {
        refused = "give rows of int32 or int64";
    }
    for (uint64_t i = 0; !refused && i < documents->count; before = documents->ends[i++]) {
        refused = documents->ends[i] < before ? "ends must not fall" : NULL;
        if (!refused && window > 0 && documents->ends[i] - before != window) {
            refused = "give windows that are as long as context, and one more for labels";
        }
    }
    return refused ? stk_fail(error, STOKER_ERROR_ARGUMENT, "documents cannot be made to rows",
                              refused, "row documents")
                   : 0;
}

int stoker_token_rows_batch(struct stoker_batch **batch_out, struct stoker_engine *engine,
                            const struct stoker_token_documents *user_documents,
                            const struct stoker_token_loader_options *given,
                            struct stoker_error *error)
{
    struct stoker_token_loader_options options = {0};
    struct stoker_token_documents documents;
    struct stoker_token_loader *loader = NULL;
    struct stoker_tokens *tokens = NULL;
    int status = stk_engine_check(engine, error);

    *batch_out = NULL;
    status = status < 0 ? status : stk_token_options_resolve(&options, given, error);
    status = status < 0
                 ? status
                 : stk_options_read(&documents, sizeof documents, sizeof documents.struct_size,
                                    user_documents, "row documents", error);
    status = status < 0 ? status : check_documents(&documents, &options, error);
    if (status < 0) {
        return status;
    }
    struct stk_token_set_file file = {
        .run = {.data = (const uint8_t *)documents.tokens,
                .count = documents.ends[documents.count - 1],
                .dtype = STOKER_INT32},
        .ends = documents.ends,
        .end_count = documents.count,
    };

    options.mix = NULL;
    options.rows_of = NULL;
    options.shuffle = STOKER_SHUFFLE_NONE;
    options.tail = STOKER_TAIL_KEEP;
    options.rank = 0;
    options.world_size = options.group_count = 1;
    options.chunk_documents = (uint32_t)documents.count;
    options.stride = stk_max(window_tokens(&options), 1);
    status = stk_token_set_borrow(&tokens, engine, &file, error);
    status = status < 0 ? status : open_loader(&loader, tokens, &options, documents.ids, error);
    status = status < 0 ? status : stoker_token_loader_set_epoch(loader, documents.epoch, error);
    status = status < 0 ? status : stoker_token_loader_next(loader, batch_out, error);
    stoker_token_loader_close(loader);
    stoker_tokens_close(tokens);
    return status < 0 ? status : 0;
}
