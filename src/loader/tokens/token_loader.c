/* The token loader: open, close, position and state. */
#include "loader/tokens/token_loader.h"

#include "base/mem.h"
#include "base/random.h"
#include "engine/batch/batch.h"
#include "loader/tokens/token_options.h"

#include <errno.h>
#include <string.h>

/* Separates the random numbers of fill in the middle from those of the order. */
#define FIM_KEY 0x66696d2d746f6b65ull
/* Ranks that may share blocks of remote files, each of which they all request completely. */
#define DENSE_RANKS 2u
/* Ranges of remote files that the part of their cache for one window has space for. */
#define UNITS_MIN 8u

/* ---- open and close ---- */

/* Returns the unit of ranges of remote files. Blocks of the order are requested completely if the
 * cache has space for this window and for the next one, and the rank reads most samples of a block.
 * Else a block would be requested again for other samples: then 0, only the samples are. */
static uint32_t range_unit(const struct stk_token_samples *samples,
                           const struct stk_order_cursor_options *cursor, uint64_t spacing_bytes)
{
    const struct stoker_tokens *tokens = samples->tokens;
    const struct stk_partition *partition = &cursor->partition;
    bool is_sequential = cursor->order.shuffle == STOKER_SHUFFLE_NONE;
    uint64_t sources = cursor->mix ? cursor->mix->source_count : 1;
    uint64_t block, window, limit = tokens->range_bytes_max / 5 * 2;
    uint32_t unit = 1;

    if (!stk_multiply(cursor->order.block_samples, spacing_bytes, &block) ||
        !stk_multiply(block, is_sequential ? 1 : cursor->order.window_blocks, &window) ||
        !stk_multiply(window, sources, &window) || cursor->order.shuffle == STOKER_SHUFFLE_FULL) {
        window = block = UINT64_MAX; /* all of the files */
    }
    if (!tokens->range_cache || stk_min(window, tokens->bytes) > limit ||
        partition->world_size > DENSE_RANKS * (uint64_t)stk_max(partition->group_count, 1)) {
        return 0;
    }
    while (unit < STK_RANGE_BYTES_MAX && 2 * (uint64_t)unit <= stk_min(block, limit / UNITS_MIN)) {
        unit *= 2;
    }
    return unit;
}

static int open_cursor(struct stoker_token_loader *loader,
                       const struct stoker_token_loader_options *options,
                       const struct stk_order_defaults *defaults, struct stoker_error *error)
{
    const struct stk_token_samples *samples = loader->samples;
    uint32_t token_bytes = stk_token_bytes(loader->tokens->files[0].run.dtype);
    uint64_t spacing_bytes, block_samples;
    int status;

    if (!stk_multiply(stk_token_samples_spacing(samples), token_bytes, &spacing_bytes)) {
        spacing_bytes = options->block_bytes; /* then each file has one window */
    }
    block_samples = stk_max(options->block_bytes / spacing_bytes, 1);
    struct stk_order_cursor_options cursor = {
        .order = {.sample_count = stk_token_samples_count(samples),
                  .block_samples = options->block_samples ? options->block_samples : block_samples,
                  .window_blocks = options->window_blocks,
                  .group_count = options->group_count,
                  .shuffle = options->shuffle,
                  .version = options->order_version,
                  .seed = options->seed},
        .partition = {.batch_size = options->batch_size,
                      .rank = options->rank,
                      .world_size = options->world_size,
                      .tail = options->tail,
                      .group_count = options->group_count,
                      .worker_count = 1},
        .mix = options->mix,
        .defaults = *defaults,
    };

    stk_token_prefetch_open(&loader->locked.ahead, samples,
                            range_unit(samples, &cursor, spacing_bytes),
                            cursor.order.block_samples);
    memcpy(cursor.identity, samples->identity, sizeof cursor.identity);
    status = stk_order_cursor_open(&loader->locked.cursor, &cursor, error);
    return status == 0 && options->mix
               ? stk_token_samples_set_mix(loader->samples, options->mix, error)
               : status;
}

static int open_pool(struct stoker_token_loader *loader, uint32_t batch_size,
                     struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
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
    struct stk_batch_field_shape shapes[STK_TOKEN_LOADER_FIELDS_MAX] = {row, row, row, row};
    uint64_t bytes, field_count = loader->field_count - (loader->starts >= 0);

    if (!stk_multiply(row.slot_bytes, batch_size, &bytes) ||
        !stk_multiply(bytes, field_count, &bytes)) {
        bytes = UINT64_MAX; /* no budget has so much */
    }
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
                        "lower batch_size or context, or raise the memory budget",
                        "a batch takes %llu bytes, the budget is %llu", (unsigned long long)bytes,
                        (unsigned long long)engine->budget.bytes_max);
    }
    return stk_engine_batch_pool_open(engine, shapes, loader->field_count, batch_size,
                                      &loader->pool, error);
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
    loader->labels = options->labels != STOKER_LABELS_NONE ? next++ : -1;
    loader->positions = options->positions != STOKER_POSITIONS_NONE ? next++ : -1;
    loader->starts = packed || options->positions == STOKER_POSITIONS_RESET ? next++ : -1;
    loader->field_count = (uint32_t)next;
    loader->plain = options->rows == STOKER_ROWS_WINDOWS && loader->positions < 0 &&
                    options->boundary_labels == STOKER_BOUNDARY_NEXT && options->fim_rate == 0;
}

/* Sets batch_size to the number of samples, which is known only now; if it is set, the samples fill
 * so many rows at most, and the rest of the rows is padding. */
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
    if (options->batch_size > 0 && count > options->batch_size) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "documents need more rows than a batch has",
                        "raise the number of rows, or pass fewer documents at once",
                        "%llu rows are needed, a batch has %u", (unsigned long long)count,
                        options->batch_size);
    }
    options->tail = options->batch_size > 0 ? STOKER_TAIL_PAD : options->tail;
    options->batch_size = options->batch_size > 0 ? options->batch_size : (uint32_t)count;
    return 0;
}

int stk_token_loader_open(struct stoker_token_loader **loader_out, struct stoker_tokens *tokens,
                          struct stoker_token_loader_options *options, const uint64_t *ids,
                          struct stoker_error *error)
{
    struct stoker_token_loader *loader = stk_alloc(1, sizeof *loader);
    struct stk_order_defaults defaults;
    int status;

    if (!loader) {
        return stk_fail(error, -ENOMEM, "cannot open a token loader", "free memory", "loader");
    }
    defaults = stk_token_options_choose_order(options, tokens);
    pthread_mutex_init(&loader->lock, NULL);
    stk_token_set_retain(tokens);
    loader->tokens = tokens;
    loader->engine = tokens->engine;
    loader->context = options->context;
    loader->dtype = options->dtype;
    loader->token_bytes = options->dtype == STOKER_UINT8   ? 1
                          : options->dtype == STOKER_INT32 ? 4
                                                           : 8;
    loader->skips = options->on_error == STOKER_ON_ERROR_SKIP;
    loader->bad_max = options->bad_samples_max;
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
        loader->blank_padding = options->batch_size > 0;
        status = use_all_samples(loader, options, error);
    }
    status = status < 0 ? status : open_cursor(loader, options, &defaults, error);
    status = status < 0 ? status : open_pool(loader, options->batch_size, error);
    if (status < 0) {
        stoker_token_loader_close(loader);
        return status;
    }
    loader->future = stk_token_future_open(loader);
    *loader_out = loader;
    return 0;
}

int stoker_token_loader_open(struct stoker_token_loader **loader_out, struct stoker_tokens *tokens,
                             const struct stoker_token_loader_options *given,
                             struct stoker_error *error)
{
    struct stoker_token_loader_options options = {0};
    int status = stk_engine_check(tokens->engine, error), found;

    *loader_out = NULL;
    if (status < 0) {
        return status;
    }
    status = stk_token_options_resolve(&options, given, error);
    if (status == 0 && tokens->is_virtual && options.rows != STOKER_ROWS_WINDOWS) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "virtual tokens have no documents",
                        "take windows", "token loader options");
    }
    for (uint32_t i = 0; status == 0 && options.dtype == STOKER_UINT8 && i < tokens->file_count;
         i++) {
        if (tokens->files[i].run.dtype != STOKER_UINT8) {
            status = stk_fail(error, STOKER_ERROR_ARGUMENT, "the tokens of a file are not bytes",
                              "take int32 or int64", "uint8");
            stk_error_set_location(error, tokens->files[i].path, STOKER_NO_OFFSET, NULL);
        }
    }
    status = status < 0 ? status : stk_token_loader_open(loader_out, tokens, &options, NULL, error);
    found =
        status == STOKER_ERROR_ARGUMENT ? status : stk_token_set_end_read(tokens, status, error);
    if (found < 0 && status == 0) { /* the files no longer contain what was found in them */
        stoker_token_loader_close(*loader_out);
        *loader_out = NULL;
    }
    return found;
}

void stoker_token_loader_close(struct stoker_token_loader *loader)
{
    struct stoker_tokens *tokens;

    if (!loader || stk_engine_check(loader->engine, NULL) < 0) {
        return;
    }
    tokens = loader->tokens;
    stk_token_future_close(loader->future);
    stk_batch_pool_close(loader->pool);
    stk_order_cursor_close(&loader->locked.cursor);
    stk_token_samples_release(loader->samples);
    stk_token_row_close(&loader->locked.row);
    stk_bad_sample_list_deinit(&loader->locked.bad);
    stk_budget_release(&loader->engine->budget, loader->locked.row_bytes);
    stk_free(loader->locked.starts);
    pthread_mutex_destroy(&loader->lock);
    stk_free(loader);
    stk_token_set_release(tokens);
}

uint64_t stoker_token_loader_bad_samples(struct stoker_token_loader *loader)
{
    uint64_t count = 0;

    if (stk_engine_check(loader->engine, NULL) == 0) {
        pthread_mutex_lock(&loader->lock);
        count = loader->locked.bad_count;
        pthread_mutex_unlock(&loader->lock);
    }
    return count;
}

int stoker_token_loader_quarantine(struct stoker_token_loader *loader, uint64_t i,
                                   struct stoker_quarantine_entry *entry_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        status = i < loader->locked.bad.count
                     ? stk_bad_sample_entry(loader->locked.bad.items[i], entry_out)
                     : STOKER_ERROR_ARGUMENT;
        pthread_mutex_unlock(&loader->lock);
    }
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

int stoker_token_loader_first_token(const struct stoker_token_loader *loader, uint64_t sample,
                                    uint64_t *token_out)
{
    struct stk_token_document place = {0};
    int status = sample < stk_token_samples_count(loader->samples)
                     ? stk_token_samples_location(loader->samples, sample, &place, NULL)
                     : STOKER_ERROR_ARGUMENT;

    if (status == 0) {
        *token_out = place.span.first;
    }
    return status;
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
        status = stk_order_cursor_state(&loader->locked.cursor, state_out);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_state_at(struct stoker_token_loader *loader, uint64_t epoch,
                                 uint64_t position, struct stoker_state *state_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        status = stk_order_cursor_state_at(&loader->locked.cursor, epoch, position, state_out);
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
        atomic_fetch_add_explicit(&loader->locked.orders, 1, memory_order_relaxed);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}
