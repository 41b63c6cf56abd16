/* The stream of batches of token windows, or of packed documents: a position, and a pure function
 * of it. */
#include "sequence/sequence.h"

#include "base/hash.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define CHUNK_DOCUMENTS 4096u

/* Fields of a batch: windows have the first, or the first two. */
enum { FIELD_TOKENS, FIELD_LABELS, FIELD_POSITIONS, FIELD_STARTS, FIELDS };

struct stoker_token_loader {
    struct stoker_tokens *tokens; /* const after open, as all down to the lock */
    struct stoker_engine *engine;
    struct stk_windows windows; /* or */
    struct stk_packed *packed;  /* with the lock; NULL: windows */
    struct stk_order order;
    struct stk_partition partition;
    struct stk_batch_pool *pool;
    uint64_t context;
    uint32_t dtype, token_bytes; /* of the batches */
    uint32_t field_count;
    int32_t pad;          /* packed */
    uint8_t identity[32]; /* of tokens, and how they are cut or packed */
    pthread_mutex_t lock;
    struct {
        uint64_t epoch, position;
        uint64_t fingerprint;           /* of the order, since the run's start */
        struct stk_order_epoch keys[2]; /* of the epochs used last; by epoch mod 2 */
        bool has_keys[2];
        uint32_t *starts; /* packed: of the batch that is made */
        uint64_t starts_count, starts_room;
    } locked;
};

static int resolve(struct stoker_token_loader_options *options,
                   const struct stoker_token_loader_options *given, struct stoker_error *error)
{
    const char *refused = NULL;

    if (!given || given->struct_size < offsetof(struct stoker_token_loader_options, shuffle) ||
        given->struct_size > 4096) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "struct_size is not set",
                        "set options.struct_size = sizeof options", "token loader options");
    }
    memcpy(options, given, stk_min(given->struct_size, sizeof *options));
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
    if (options->batch_size == 0 || options->batch_size > 1u << 24) {
        refused = "batch_size must be 1 to 16,777,216";
    } else if (options->context == 0 || options->context > UINT32_MAX) {
        refused = "context must be 1 to 4,294,967,295 tokens";
    } else if (options->rank >= options->world_size) {
        refused = "rank must be below world_size";
    } else if (options->shuffle > STOKER_SHUFFLE_NONE || options->tail > STOKER_TAIL_KEEP ||
               options->labels > STOKER_LABELS_NONE) {
        refused = "shuffle, tail or labels is out of its range";
    } else if (options->packed && (options->context > STK_PACKING_LENGTH_MAX ||
                                   options->context * options->batch_size > INT32_MAX)) {
        refused = "packed rows have 16,777,216 tokens at most, and a batch 2,147,483,647";
    } else if (options->chunk_documents > STK_PACKING_DOCUMENTS_MAX) {
        refused = "a chunk has 1,048,576 documents at most";
    } else if (options->dtype != STOKER_INT32 && options->dtype != STOKER_INT64) {
        refused = "tokens come as int32 or int64";
    }
    return refused ? stk_fail(error, STOKER_ERROR_ARGUMENT, "a token loader option is not usable",
                              refused, "token loader options")
                   : 0;
}

/* ---- open and close ---- */

static int open_windows(struct stoker_token_loader *loader,
                        const struct stoker_token_loader_options *options,
                        struct stoker_error *error)
{
    const struct stoker_tokens *tokens = loader->tokens;
    uint64_t length = options->context + (loader->field_count > FIELD_LABELS);
    uint64_t *counts = stk_alloc(tokens->file_count, sizeof *counts);
    int status;

    if (!counts) {
        return stk_fail(error, -ENOMEM, "cannot open a token loader", "free memory", "%u files",
                        tokens->file_count);
    }
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        counts[i] = tokens->files[i].run.count;
    }
    status = stk_windows_open(&loader->windows, length, options->stride, counts, tokens->file_count,
                              error);
    stk_free(counts);
    return status;
}

static int open_samples(struct stoker_token_loader *loader,
                        const struct stoker_token_loader_options *options,
                        struct stoker_error *error)
{
    if (!options->packed) {
        return open_windows(loader, options, error);
    }
    return stk_packed_open(&loader->packed, loader->tokens, (uint32_t)options->context,
                           options->chunk_documents, error);
}

static int open_order(struct stoker_token_loader *loader,
                      const struct stoker_token_loader_options *options, struct stoker_error *error)
{
    uint64_t stride_bytes;
    uint32_t token_bytes = stk_token_bytes(loader->tokens->files[0].run.dtype);
    uint64_t samples =
        loader->packed ? stk_packed_samples(loader->packed) : stk_windows_count(&loader->windows);
    uint64_t stride = loader->packed ? options->context : options->stride;

    if (!stk_multiply(stride, token_bytes, &stride_bytes)) {
        stride_bytes = STK_TOKEN_BLOCK_BYTES; /* then there is one window a file */
    }
    struct stk_order_options order = {
        .sample_count = samples,
        .block_samples = stk_max(STK_TOKEN_BLOCK_BYTES / stride_bytes, 1),
        .window_blocks = options->window_blocks,
        .group_count = options->group_count,
        .shuffle = options->shuffle,
        .seed = options->seed,
    };

    loader->partition = (struct stk_partition){
        .sample_count = samples,
        .batch_size = options->batch_size,
        .rank = options->rank,
        .world_size = options->world_size,
        .tail = options->tail,
        .group_count = options->group_count,
        .worker_count = 1,
    };
    int status = stk_partition_check(&loader->partition, error);

    return status < 0 ? status : stk_order_init(&loader->order, &order, error);
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

static int open_pool(struct stoker_token_loader *loader, struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    struct stk_batch_keeper keeper = {&engine->budget, engine, batch_returned, pool_gone};
    struct stk_field_shape shape = {
        .dtype = loader->dtype,
        .dimension_count = 1,
        .shape = {(int64_t)loader->context},
        .strides = {1},
        .slot_bytes = loader->context * loader->token_bytes,
    };
    struct stk_field_shape starts = {
        .dtype = STOKER_INT32,
        .dimension_count = 1,
        .shape = {-1},
        .strides = {1},
        .ragged = true,
        .item_bytes = 4,
    };
    struct stk_field_shape shapes[FIELDS] = {shape, shape, shape, starts};
    uint64_t bytes = shape.slot_bytes * loader->partition.batch_size *
                     stk_min(loader->field_count, FIELD_STARTS);
    int status;

    if (bytes > engine->budget.bytes_max) {
        return stk_fail(error, STOKER_ERROR_BUDGET, "one batch is larger than the memory budget",
                        "lower batch_size or context, or grant more memory",
                        "a batch takes %llu bytes, the budget is %llu", (unsigned long long)bytes,
                        (unsigned long long)engine->budget.bytes_max);
    }
    status = stk_batch_pool_open(&loader->pool, &keeper, shapes, loader->field_count,
                                 loader->partition.batch_size, error);
    if (status == 0) {
        stk_engine_hold(engine); /* the pool's, given back by pool_gone */
    }
    return status;
}

/* What a state belongs to: the tokens, and how they are cut or packed. */
static void identify(struct stoker_token_loader *loader,
                     const struct stoker_token_loader_options *options)
{
    uint64_t windows[2] = {loader->windows.length, loader->windows.stride};
    uint64_t packed[3] = {options->context, options->chunk_documents, UINT64_MAX};
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, loader->tokens->identity, sizeof loader->tokens->identity);
    stk_sha256_add(&sha, loader->packed ? packed : windows,
                   loader->packed ? sizeof packed : sizeof windows);
    stk_sha256_done(&sha, loader->identity);
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
    loader->pad = options.pad;
    loader->field_count = options.packed                            ? FIELDS
                          : options.labels == STOKER_LABELS_SHIFTED ? FIELD_LABELS + 1
                                                                    : FIELD_TOKENS + 1;
    status = open_samples(loader, &options, error);
    status = status < 0 ? status : open_order(loader, &options, error);
    status = status < 0 ? status : open_pool(loader, error);
    if (status < 0) {
        stoker_token_loader_close(loader);
        return status;
    }
    identify(loader, &options);
    loader->locked.position = stk_partition_first(&loader->partition, 0);
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
    stk_windows_close(&loader->windows);
    stk_packed_close(loader->packed);
    stk_free(loader->locked.starts);
    pthread_mutex_destroy(&loader->lock);
    stk_free(loader);
    stk_tokens_release(tokens);
}

/* ---- batches ---- */

static const struct stk_order_epoch *keys_locked(struct stoker_token_loader *loader, uint64_t epoch)
{
    struct stk_order_epoch *keys = &loader->locked.keys[epoch % 2];

    if (!loader->locked.has_keys[epoch % 2] || keys->epoch != epoch) {
        stk_order_begin(keys, &loader->order, epoch);
        loader->locked.has_keys[epoch % 2] = true;
    }
    return keys;
}

static int unfit(const struct stoker_token_loader *loader, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, "a token does not fit its dtype",
                    loader->dtype == STOKER_INT32
                        ? "ask for int64, and look whether the file's dtype is right"
                        : "look whether the file's dtype is right",
                    "a batch of %s", loader->dtype == STOKER_INT32 ? "int32" : "int64");
}

static int fill_window(struct stoker_token_loader *loader, struct stoker_batch *batch,
                       uint32_t slot, struct stoker_error *error)
{
    struct stk_window window = stk_windows_at(&loader->windows, batch->ids[slot]);
    const struct stk_token_file *file = &loader->tokens->files[window.file];
    uint64_t slot_bytes = loader->context * loader->token_bytes;

    for (uint32_t field = 0; field < loader->field_count; field++) {
        if (!stk_tokens_widen(&file->run, window.first + field, loader->context, loader->dtype,
                              stk_batch_slot(batch, field, slot_bytes, slot))) {
            unfit(loader, error);
            return stk_error_place(error, file->path, STOKER_NO_OFFSET, NULL);
        }
    }
    return 0;
}

/* Room for one more row's starts: its pieces and its padding are context + 1 at most. */
static int starts_reserve_locked(struct stoker_token_loader *loader, struct stoker_error *error)
{
    uint64_t wanted = loader->locked.starts_count + loader->context + 1;
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

static int fill_packed_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                              uint32_t slot, struct stoker_error *error)
{
    uint64_t slot_bytes = loader->context * loader->token_bytes;
    const struct stk_packed_chunk *chunk;
    uint32_t sequence, count, *starts;
    int status = stk_packed_at(loader->packed, batch->ids[slot], &chunk, &sequence, error);

    status = status < 0 ? status : starts_reserve_locked(loader, error);
    if (status < 0) {
        return status;
    }
    struct stk_packed_row row = {
        .dtype = loader->dtype,
        .tokens = stk_batch_slot(batch, FIELD_TOKENS, slot_bytes, slot),
        .labels = stk_batch_slot(batch, FIELD_LABELS, slot_bytes, slot),
        .positions = stk_batch_slot(batch, FIELD_POSITIONS, slot_bytes, slot),
        .pad = loader->pad,
    };

    starts = loader->locked.starts + loader->locked.starts_count;
    count = stk_packing_starts(&chunk->packing, sequence, starts);
    for (uint32_t i = 0; i < count; i++) {
        starts[i] += (uint32_t)(slot * loader->context); /* in the batch as one row */
    }
    loader->locked.starts_count += count;
    batch->fields[FIELD_STARTS].offsets[slot + 1] = loader->locked.starts_count;
    return stk_packing_fill(&chunk->packing, sequence, chunk->run, chunk->documents, &row)
               ? 0
               : unfit(loader, error);
}

/* The starts of all rows become a field of the batch. */
static int lay_out_starts_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                                 struct stoker_error *error)
{
    uint64_t bytes = loader->locked.starts_count * sizeof *loader->locked.starts;
    int status = stk_batch_grow(batch, FIELD_STARTS, bytes, error);

    if (status == 0 && bytes > 0) {
        memcpy(batch->fields[FIELD_STARTS].data, loader->locked.starts, bytes);
    }
    return status;
}

static int fill_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                       struct stoker_error *error)
{
    const struct stk_partition *partition = &loader->partition;
    int status = 0;

    loader->locked.starts_count = 0;
    if (loader->packed) {
        batch->fields[FIELD_STARTS].offsets[0] = 0;
    }
    for (uint32_t i = 0; status == 0 && i < batch->samples; i++) {
        struct stk_place place;

        stk_partition_place(partition, loader->locked.epoch, loader->locked.position, i, &place);
        batch->ids[i] = stk_order_sample(keys_locked(loader, place.epoch), place.position);
        batch->mask[i] = place.real;
        status = loader->packed ? fill_packed_locked(loader, batch, i, error)
                                : fill_window(loader, batch, i, error);
    }
    return status == 0 && loader->packed ? lay_out_starts_locked(loader, batch, error) : status;
}

/* The batch at the position; the position stays. */
static int make_locked(struct stoker_token_loader *loader, struct stoker_batch **batch_out,
                       struct stoker_error *error)
{
    static const uint64_t value_bytes[FIELDS] = {0}; /* starts get room when they are known */
    uint32_t slots =
        stk_partition_slots(&loader->partition, loader->locked.epoch, loader->locked.position);
    struct stoker_batch *batch;
    int status = stk_batch_take(loader->pool, slots, value_bytes, &batch, error);

    if (status < 0) {
        return status;
    }
    status = fill_locked(loader, batch, error);
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
    const struct stk_partition *partition = &loader->partition;
    int status = stk_engine_check(loader->engine, error);

    *batch_out = NULL;
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&loader->lock);
    uint64_t epoch = loader->locked.epoch, position = loader->locked.position;

    if (stk_partition_steps_from(partition, epoch, position) == 0) {
        loader->locked.position = stk_partition_following(partition, epoch, position);
        loader->locked.epoch = epoch + 1;
    } else {
        status = make_locked(loader, batch_out, error);
        if (status == 0) {
            loader->locked.fingerprint +=
                stk_partition_fingerprint(partition, &loader->order, epoch, position);
            loader->locked.position = position + stk_partition_stride(partition);
            status = 1;
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

uint64_t stoker_token_loader_batches(const struct stoker_token_loader *loader, uint64_t epoch)
{
    return stk_partition_steps(&loader->partition, epoch);
}

uint64_t stoker_token_loader_samples(const struct stoker_token_loader *loader)
{
    return loader->partition.sample_count;
}

/* ---- state ---- */

int stoker_token_loader_set_epoch(struct stoker_token_loader *loader, uint64_t epoch,
                                  struct stoker_error *error)
{
    int status = stk_engine_check(loader->engine, error);

    if (status == 0) {
        pthread_mutex_lock(&loader->lock);
        loader->locked.epoch = epoch;
        loader->locked.position = stk_partition_first(&loader->partition, epoch);
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_state(struct stoker_token_loader *loader, struct stoker_state *state_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status == 0) {
        stk_state_of(state_out, &loader->order, &loader->partition, loader->identity);
        pthread_mutex_lock(&loader->lock);
        state_out->epoch = loader->locked.epoch;
        state_out->position = loader->locked.position;
        state_out->fingerprint = loader->locked.fingerprint;
        pthread_mutex_unlock(&loader->lock);
    }
    return status;
}

int stoker_token_loader_set_state(struct stoker_token_loader *loader,
                                  const struct stoker_state *state, struct stoker_error *error)
{
    const struct stk_state_words words = {
        .samples = "number of windows",
        .block_samples = "windows a block",
        .identity = "identity of tokens, context and stride (or packing)",
        .advice = "open the loader with the tokens and settings of the saved run",
        .positions = loader->partition.sample_count,
        .epoch_max = UINT64_MAX,
    };
    struct stoker_state own;
    int status = stk_engine_check(loader->engine, error);

    if (status < 0) {
        return status;
    }
    stk_state_of(&own, &loader->order, &loader->partition, loader->identity);
    status = stk_state_check(state, &own, &words, error);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&loader->lock);
    loader->locked.epoch = state->epoch;
    loader->locked.position = state->position;
    loader->locked.fingerprint = state->fingerprint;
    pthread_mutex_unlock(&loader->lock);
    return 0;
}
