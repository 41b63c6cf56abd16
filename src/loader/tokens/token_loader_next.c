/* The batches of a token loader: rows of windows, packed documents or documents. */
#include "loader/tokens/token_loader.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/retry.h"
#include "engine/batch/batch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ---- */

static int fail_too_long(const struct stoker_token_loader *loader, const char *path,
                         struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_FORMAT, "a token does not fit its dtype",
             loader->dtype == STOKER_INT32 ? "use int64, and check the dtype of the file"
                                           : "check the dtype of the file",
             "a batch of %s", loader->dtype == STOKER_INT32 ? "int32" : "int64");
    stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_FORMAT;
}

/* Copies a plain window from the file into its slots. Returns 1; 0 if the file is not
 * mapped. */
static int fill_window_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                              uint32_t slot, struct stoker_error *error)
{
    struct stk_token_window window =
        stk_token_windows_get(&loader->samples->windows, batch->ids[slot]);
    const struct stk_token_set_file *file = &loader->tokens->files[window.file];
    uint64_t slot_bytes = loader->context * loader->token_bytes;
    int status;

    if (!stk_token_set_is_mapped(file)) {
        return 0;
    }
    for (uint32_t field = 0; field < loader->field_count; field++) {
        uint64_t first = window.first + (loader->samples->rules.labels_unshifted ? 0 : field);
        void *out = stk_batch_slot(batch, field, slot_bytes, slot);

        if (!stk_token_widen(&file->run, first, loader->context, loader->dtype, out)) {
            return fail_too_long(loader, file->path, error);
        }
        status = stk_token_set_check_ids(
            loader->tokens, window.file,
            &(struct stk_token_copy){first, loader->context, loader->dtype, out}, error);
        if (status < 0) {
            return status;
        }
    }
    return 1;
}

/* Makes the row large enough for a sample; its memory is reserved from the budget. */
static int row_reserve_locked(struct stoker_token_loader *loader, uint64_t sample,
                              struct stoker_error *error)
{
    struct stk_token_row *row = &loader->locked.row;
    uint64_t tokens;
    int status = stk_token_samples_row_tokens(loader->samples, sample, &tokens, error);

    if (status < 0 || (tokens <= row->capacity && row->capacity > 0)) {
        return status;
    }
    tokens = stk_max(tokens, 1);
    if (tokens <= STK_TOKEN_ROW_TOKENS_MAX) {
        uint64_t bytes = tokens * STK_TOKEN_ROW_TOKEN_BYTES;

        stk_token_row_close(row);
        stk_budget_release(&loader->engine->budget, loader->locked.row_bytes);
        loader->locked.row_bytes = 0;
        status = stk_engine_reserve(loader->engine, bytes, 0, "a row of tokens", error);
        if (status < 0) {
            return status;
        }
        loader->locked.row_bytes = bytes;
    }
    return stk_token_row_open(row, tokens, error);
}

/* The random key of fill in the middle for a slot. In a mix a sample may come several times an
 * epoch, so the key depends on the position. */
static uint64_t key_locked(const struct stoker_token_loader *loader,
                           const struct stk_order_cursor_slot *slot)
{
    uint64_t key = stk_random_key(loader->key, slot->epoch);

    return stk_schedule_is_plain(&loader->locked.cursor.schedule)
               ? key
               : stk_random_key(key, slot->position);
}

/* Makes the row of a sample. */
static int make_row_locked(struct stoker_token_loader *loader, uint64_t sample, uint64_t key,
                           struct stoker_error *error)
{
    int status = row_reserve_locked(loader, sample, error);

    return status < 0
               ? status
               : stk_token_samples_row(loader->samples, sample, key, &loader->locked.row, error);
}

/* Makes space for the starts of one more row, its padding, and the end of the batch. */
static int starts_reserve_locked(struct stoker_token_loader *loader, struct stoker_error *error)
{
    uint64_t wanted = loader->locked.starts_count + loader->locked.row.start_count + 2;
    uint32_t *grown;

    if (wanted <= loader->locked.starts_capacity) {
        return 0;
    }
    grown = stk_realloc(loader->locked.starts, loader->locked.starts_capacity, 2 * wanted,
                        sizeof *grown);
    if (!grown) {
        return stk_fail(error, -ENOMEM, "cannot pack a batch", "free memory", "%llu pieces",
                        (unsigned long long)wanted);
    }
    loader->locked.starts = grown;
    loader->locked.starts_capacity = 2 * wanted;
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
        starts[i] += (uint32_t)(slot * loader->context); /* counted from the begin of the batch */
    }
    if (slot + 1 == batch->samples) {
        starts[count++] = (uint32_t)(batch->samples * loader->context);
    }
    offsets[0] = 0;
    offsets[slot + 1] = loader->locked.starts_count += count;
    return 0;
}

/* Writes the row into its slots. */
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

/* ---- rows that cannot be read ---- */

static bool is_listed_locked(const struct stoker_token_loader *loader, uint64_t sample)
{
    for (uint64_t i = 0; i < loader->locked.bad.count; i++) {
        if (loader->locked.bad.items[i]->sample == sample) {
            return true;
        }
    }
    return false;
}

/* status: of a row. Returns 1 if the row is to be replaced: counts and lists it, and clears the
 * error; else the status, or that of a limit. */
static int skip_row_locked(struct stoker_token_loader *loader, uint64_t sample, int status,
                           struct stoker_error *error)
{
    struct stk_bad_sample *bad;

    if (!loader->skips || (!stk_error_is_data(status) && status != STOKER_ERROR_FORMAT)) {
        return status;
    }
    loader->locked.bad_count++;
    if (loader->locked.bad.count < STK_TOKEN_LOADER_BAD_LISTED_MAX &&
        !is_listed_locked(loader, sample)) {
        bad = stk_bad_sample_new(sample, error);
        if (!bad || stk_bad_sample_list_add(&loader->locked.bad, bad) < 0) {
            stk_free(bad);
            return stk_fail_memory(error, "the list of bad rows");
        }
    }
    if (loader->bad_max > 0 && loader->locked.bad_count > loader->bad_max) {
        char first[sizeof error->where];

        snprintf(first, sizeof first, "%.100s: %.300s", error->what, error->where);
        return stk_fail(error, STOKER_ERROR_LIMIT, "more rows of tokens are bad than allowed",
                        "repair the files, or raise bad_samples_max",
                        "%llu bad rows, at most %llu; the last: %.400s",
                        (unsigned long long)loader->locked.bad_count,
                        (unsigned long long)loader->bad_max, first);
    }
    *error = (struct stoker_error){0};
    return 1;
}

/* ---- batches ---- */

/* Grows a field. Ranges of remote files that are cached make space for it. */
static int grow_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                       uint32_t field, uint64_t bytes, struct stoker_error *error)
{
    int status;

    do {
        status = stk_batch_grow(batch, field, bytes, error);
    } while (status == STOKER_ERROR_BUDGET &&
             stk_range_cache_trim(loader->tokens->range_cache) > 0);
    return status;
}

static int get_batch_locked(struct stoker_token_loader *loader, uint32_t slots,
                            struct stoker_batch **batch_out, struct stoker_error *error)
{
    static const uint64_t value_bytes[STK_TOKEN_LOADER_FIELDS_MAX] = {
        0}; /* the arrays grow when their size is known */
    int status;

    do {
        status = stk_batch_pool_get(loader->pool, slots, value_bytes, batch_out, error);
    } while (status == STOKER_ERROR_BUDGET &&
             stk_range_cache_trim(loader->tokens->range_cache) > 0);
    return status;
}

static int fill_row_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                           uint32_t slot, uint64_t key, struct stoker_error *error)
{
    int status = loader->plain ? fill_window_locked(loader, batch, slot, error) : 0;

    if (status != 0) {
        return status;
    }
    status = make_row_locked(loader, batch->ids[slot], key, error);
    if (loader->blank_padding && !batch->mask[slot]) {
        stk_token_row_clear(&loader->locked.row);
    }
    return status < 0 ? status : write_row_locked(loader, batch, slot, error);
}

/* Fills a batch with rows of one length. */
static int fill_rows_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                            const uint64_t *keys, struct stoker_error *error)
{
    int status = 0;

    loader->locked.starts_count = 0;
    for (uint32_t i = 0; status >= 0 && i < batch->samples; i++) {
        status = fill_row_locked(loader, batch, i, keys[i], error);
        if (status < 0 && (status = skip_row_locked(loader, batch->ids[i], status, error)) > 0) {
            stk_token_row_clear(&loader->locked.row);
            batch->mask[i] = 0;
            status = write_row_locked(loader, batch, i, error);
        }
    }
    if (status >= 0 && loader->starts >= 0) {
        uint64_t bytes = loader->locked.starts_count * sizeof *loader->locked.starts;

        status = grow_locked(loader, batch, (uint32_t)loader->starts, bytes, error);
        if (status == 0 && bytes > 0) {
            memcpy(batch->fields[loader->starts].data, loader->locked.starts, bytes);
        }
    }
    return status;
}

/* Space for the rows was measured before: the index of a set may have changed since. */
static int check_space(const uint64_t *offsets, uint32_t slot, uint64_t count, uint64_t total,
                       struct stoker_error *error)
{
    return count <= total - offsets[slot]
               ? 0
               : stk_fail(error, STOKER_ERROR_CHANGED,
                          "the index of a Megatron set changed while it is open",
                          "wait until the set is written, then open it again",
                          "%llu tokens in a document of a batch", (unsigned long long)count);
}

/* Appends a document to the arrays of the batch, which have space for `total` tokens. */
static int fill_document_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                                uint32_t slot, uint64_t key, uint64_t total,
                                struct stoker_error *error)
{
    const struct stk_token_row *row = &loader->locked.row;
    uint64_t at = batch->fields[0].offsets[slot] * loader->token_bytes;
    int status = make_row_locked(loader, batch->ids[slot], key, error);

    status =
        status < 0 ? status : check_space(batch->fields[0].offsets, slot, row->count, total, error);
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

/* Likewise, for tokens of one byte, which are copied as they are stored. */
static int fill_bytes_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                             uint32_t slot, uint64_t total, struct stoker_error *error)
{
    uint64_t *offsets = batch->fields[0].offsets, bytes = 0;
    struct stk_token_document document;
    /* One look-up, for both the place and the length: rows of bytes have no added tokens. */
    int status = stk_token_samples_location(loader->samples, batch->ids[slot], &document, error);

    if (status == 0) {
        bytes = document.span.count;
        status = check_space(offsets, slot, bytes, total, error);
    }
    if (status == 0) {
        offsets[slot + 1] = offsets[slot] + bytes;
        status = stk_token_set_read_stored(loader->tokens, document.file, document.span.first,
                                           bytes, batch->fields[0].data + offsets[slot], error);
    }
    return status;
}

/* Fills a batch with documents: makes space for the largest possible rows, then appends the rows.
 */
static int fill_documents_locked(struct stoker_token_loader *loader, struct stoker_batch *batch,
                                 const uint64_t *keys, struct stoker_error *error)
{
    uint64_t tokens, total = 0;
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < batch->samples; i++) {
        status = stk_token_samples_row_tokens(loader->samples, batch->ids[i], &tokens, error);
        total += status == 0 ? tokens : 0;
        if (loader->skips && status < 0 && stk_error_is_data(status)) {
            status = 0; /* found again, and counted, where the document is read */
        }
    }
    for (uint32_t field = 0; status == 0 && field < loader->field_count; field++) {
        status = grow_locked(loader, batch, field, total * loader->token_bytes, error);
        batch->fields[field].offsets[0] = 0;
    }
    for (uint32_t i = 0; status >= 0 && i < batch->samples; i++) {
        status = loader->dtype == STOKER_UINT8
                     ? fill_bytes_locked(loader, batch, i, total, error)
                     : fill_document_locked(loader, batch, i, keys[i], total, error);
        if (status < 0 && (status = skip_row_locked(loader, batch->ids[i], status, error)) > 0) {
            batch->mask[i] = 0;
            for (uint32_t field = 0; field < loader->field_count; field++) {
                batch->fields[field].offsets[i + 1] = batch->fields[field].offsets[i];
            }
        }
    }
    return status < 0 ? status : 0;
}

/* Makes the batch at the position, which does not change. */
static int make_locked(struct stoker_token_loader *loader, struct stoker_batch **batch_out,
                       struct stoker_error *error)
{
    uint32_t slots = stk_order_cursor_slots(&loader->locked.cursor);
    uint64_t *keys = stk_alloc(stk_max(slots, 1), sizeof *keys);
    struct stoker_batch *batch = NULL;
    int status;

    if (!keys) {
        return stk_fail(error, -ENOMEM, "cannot make a batch", "free memory", "%u rows", slots);
    }
    status = get_batch_locked(loader, slots, &batch, error);
    for (uint32_t i = 0; status == 0 && i < slots; i++) {
        struct stk_order_cursor_slot slot = stk_order_cursor_get(&loader->locked.cursor, i);

        batch->ids[i] = slot.sample;
        batch->mask[i] = slot.is_real;
        keys[i] = key_locked(loader, &slot);
    }
    status = status < 0 ? status : stk_order_cursor_error(&loader->locked.cursor, error);
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
    int status = stk_engine_check(loader->engine, error), found;
    struct stoker_error own = {0};

    *batch_out = NULL;
    if (status < 0) {
        return status;
    }
    error = error ? error : &own; /* the list of bad rows needs it */
    pthread_mutex_lock(&loader->lock);
    if (stk_order_cursor_begin_step(&loader->locked.cursor)) {
        stk_token_prefetch_begin(&loader->locked.ahead, &loader->locked.cursor);
        status = make_locked(loader, batch_out, error);
        stk_token_prefetch_end(&loader->locked.ahead);
        found = stk_token_set_end_read(loader->tokens, status, error);
        if (found < 0 && status == 0) {
            stoker_batch_close(*batch_out);
            *batch_out = NULL;
        }
        status = found;
        if (status == 0) {
            stk_order_cursor_next(&loader->locked.cursor);
            status = 1;
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}
