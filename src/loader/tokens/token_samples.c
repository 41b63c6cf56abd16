/* Samples by number, and the row of tokens of a sample. */
#include "loader/tokens/token_samples.h"

#include "base/mem.h"
#include "base/random.h"
#include "loader/tokens/token_options.h"

#include <errno.h>
#include <string.h>

/* ---- open ---- */

static struct stk_token_row_rules rules_of(const struct stoker_token_loader_options *options)
{
    return (struct stk_token_row_rules){
        .has_eod = options->has_eod,
        .eod = options->eod,
        .append_eod = options->append_eod,
        .mask_ends = options->boundary_labels == STOKER_BOUNDARY_MASKED,
        .labels_unshifted = options->labels == STOKER_LABELS_UNSHIFTED,
        .row_positions = options->positions == STOKER_POSITIONS_ROW,
        .pad = options->pad,
        .fim = stk_token_options_fim(options),
    };
}

static uint32_t sentinels_of(const struct stk_token_samples *samples)
{
    return (uint32_t)stk_fim_added_max(&samples->rules.fim);
}

static int open_windows(struct stk_token_samples *samples,
                        const struct stoker_token_loader_options *options,
                        struct stoker_error *error)
{
    const struct stoker_tokens *tokens = samples->tokens;
    uint64_t length = options->context + (options->labels == STOKER_LABELS_SHIFTED);
    uint64_t *counts = stk_alloc(tokens->file_count, sizeof *counts);
    int status;

    if (!counts) {
        return stk_fail(error, -ENOMEM, "cannot open a token loader", "free memory", "%u files",
                        tokens->file_count);
    }
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        counts[i] = tokens->files[i].run.count;
    }
    status = stk_token_windows_open(&samples->windows, length, options->stride, counts,
                                    tokens->file_count, error);
    stk_free(counts);
    return status;
}

static int open_documents(struct stk_token_samples *samples,
                          const struct stoker_token_loader_options *options,
                          struct stoker_error *error)
{
    struct stk_token_documents_options wanted = {
        .tokens = samples->tokens,
        .has_eod = options->has_eod,
        .eod = options->eod,
        .skips = options->on_error == STOKER_ON_ERROR_SKIP,
    };
    int status = stk_token_documents_open(&samples->documents, &wanted, error);

    if (status == 0 && options->append_eod &&
        stk_token_documents_end_with_eod(&samples->documents)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "append_eod is set for documents that "
                        "end with it",
                        "append it to Megatron sets only: in other files it is what ends documents",
                        "append_eod");
    }
    if (status == 0 && samples->documents.count == 0) {
        return stk_fail(error, STOKER_ERROR_EMPTY, "there is no document",
                        "check that these are the right files", "%u files",
                        samples->tokens->file_count);
    }
    return status;
}

/* Returns the number of windows of blocks that the tokens have; 1 for a full shuffle. */
static uint32_t window_count_of(const struct stk_token_samples *samples,
                                const struct stoker_token_loader_options *options)
{
    uint64_t window; /* bytes */

    if (options->shuffle == STOKER_SHUFFLE_FULL ||
        !stk_multiply(options->window_blocks, options->block_bytes, &window)) {
        return 1;
    }
    return (uint32_t)stk_min(samples->tokens->bytes / window + 1, UINT32_MAX);
}

/* Opens the samples of the kind that the options set. */
static int find_samples(struct stk_token_samples *samples,
                        const struct stoker_token_loader_options *options,
                        struct stoker_error *error)
{
    int status = options->rows == STOKER_ROWS_WINDOWS ? open_windows(samples, options, error)
                                                      : open_documents(samples, options, error);

    if (status == 0 && options->rows == STOKER_ROWS_PACKED) {
        struct stk_packed_rows_options packed = {
            .length = (uint32_t)options->context,
            .chunk_documents = options->chunk_documents,
            .reserve = sentinels_of(samples),
            .window_count = window_count_of(samples, options),
            .append_eod = options->append_eod,
        };

        status = stk_packed_rows_open(&samples->packed, &samples->documents, &packed, error);
    }
    return status;
}

int stk_token_samples_open(struct stk_token_samples **samples_out,
                           const struct stoker_tokens *tokens,
                           const struct stoker_token_loader_options *options,
                           struct stoker_error *error)
{
    struct stk_token_samples *samples = stk_alloc(1, sizeof *samples);
    int status;

    *samples_out = NULL;
    if (!samples) {
        return stk_fail(error, -ENOMEM, "cannot open a token loader", "free memory", "samples");
    }
    samples->tokens = tokens;
    samples->kind = options->rows;
    samples->context = options->context;
    samples->rules = rules_of(options);
    stk_token_options_identity(tokens, options, samples->identity);
    pthread_mutex_init(&samples->lock, NULL);
    atomic_store_explicit(&samples->references, 1, memory_order_relaxed);
    status = find_samples(samples, options, error);
    if (status < 0) {
        stk_token_samples_release(samples);
        return status;
    }
    *samples_out = samples;
    return 0;
}

int stk_token_samples_share(struct stk_token_samples *samples, const struct stoker_tokens *tokens,
                            const struct stoker_token_loader_options *options,
                            struct stoker_error *error)
{
    uint8_t identity[32];

    stk_token_options_identity(tokens, options, identity);
    if (samples->tokens != tokens || memcmp(samples->identity, identity, sizeof identity) != 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "rows_of is a loader with other rows",
                        "set rows_of to a loader of the same tokens, rows and rules", "rows_of");
    }
    /* Relaxed: the caller's reference keeps it alive. */
    atomic_fetch_add_explicit(&samples->references, 1, memory_order_relaxed);
    return 0;
}

void stk_token_samples_release(struct stk_token_samples *samples)
{
    /* Acquire-release: the last one sees all writes of the others. */
    if (!samples || atomic_fetch_sub_explicit(&samples->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    stk_packed_rows_close(samples->packed);
    stk_token_documents_close(&samples->documents);
    stk_token_windows_close(&samples->windows);
    pthread_mutex_destroy(&samples->lock);
    stk_free(samples);
}

uint64_t stk_token_samples_file_end(const struct stk_token_samples *samples, uint32_t file)
{
    switch (samples->kind) {
    case STOKER_ROWS_PACKED:
        return stk_packed_rows_file_end(samples->packed, file);
    case STOKER_ROWS_DOCUMENTS:
    case STOKER_ROWS_PADDED:
        return samples->documents.ends[file];
    default:
        return samples->windows.ends[file];
    }
}

int stk_token_samples_set_mix(struct stk_token_samples *samples,
                              const struct stoker_mix_options *mix, struct stoker_error *error)
{
    int status = 0;

    if (samples->packed) {
        pthread_mutex_lock(&samples->lock);
        status = stk_packed_rows_set_ranges(samples->packed, mix->ends, mix->source_count, error);
        pthread_mutex_unlock(&samples->lock);
    }
    return status;
}

uint64_t stk_token_samples_count(const struct stk_token_samples *samples)
{
    switch (samples->kind) {
    case STOKER_ROWS_PACKED:
        return stk_packed_rows_samples(samples->packed);
    case STOKER_ROWS_DOCUMENTS:
    case STOKER_ROWS_PADDED:
        return samples->documents.count;
    default:
        return stk_token_windows_count(&samples->windows);
    }
}

uint64_t stk_token_samples_spacing(const struct stk_token_samples *samples)
{
    switch (samples->kind) {
    case STOKER_ROWS_PACKED:
        return samples->context;
    case STOKER_ROWS_DOCUMENTS:
    case STOKER_ROWS_PADDED:
        return stk_max(samples->tokens->tokens / samples->documents.count, 1);
    default:
        return samples->windows.stride;
    }
}

/* ---- rows ---- */

/* Tokens of a document that are used: context bounds the row, with all tokens that are added. */
static uint64_t used_of(const struct stk_token_samples *samples, uint64_t count)
{
    uint64_t added = sentinels_of(samples) + samples->rules.append_eod;

    return samples->context == 0 ? count : stk_min(count, samples->context - added);
}

int stk_token_samples_location(const struct stk_token_samples *samples, uint64_t sample,
                               struct stk_token_document *place_out, struct stoker_error *error)
{
    struct stk_token_window window;
    int status;

    switch (samples->kind) {
    case STOKER_ROWS_PACKED:
        return stk_packed_rows_location(samples->packed, sample, place_out, error);
    case STOKER_ROWS_DOCUMENTS:
    case STOKER_ROWS_PADDED:
        status = stk_token_documents_get(&samples->documents, sample, place_out, error);
        place_out->span.count = status == 0 ? used_of(samples, place_out->span.count) : 0;
        return status;
    default:
        window = stk_token_windows_get(&samples->windows, sample);
        *place_out =
            (struct stk_token_document){window.file, {window.first, samples->windows.length}};
        return 0;
    }
}

int stk_token_samples_row_tokens(const struct stk_token_samples *samples, uint64_t sample,
                                 uint64_t *room_out, struct stoker_error *error)
{
    struct stk_token_document document;
    int status;

    *room_out = samples->kind == STOKER_ROWS_WINDOWS ? samples->windows.length : samples->context;
    if (samples->kind != STOKER_ROWS_DOCUMENTS) {
        return 0;
    }
    status = stk_token_documents_get(&samples->documents, sample, &document, error);
    if (status == 0) {
        *room_out = used_of(samples, document.span.count) + sentinels_of(samples) +
                    samples->rules.append_eod;
    }
    return status;
}

static int window_row(const struct stk_token_samples *samples, uint64_t sample, uint64_t key,
                      struct stk_token_row *row, struct stoker_error *error)
{
    struct stk_token_window window = stk_token_windows_get(&samples->windows, sample);
    uint64_t length = samples->windows.length;
    uint64_t number = samples->ids ? samples->ids[sample] : sample;
    int status =
        stk_token_set_read(samples->tokens, window.file, window.first, length, row->tokens, error);

    if (status == 0) {
        stk_token_row_add_window(row, &samples->rules, length, stk_random_key(key, number));
    }
    return status;
}

/* The index of a set is mapped: an entry is read again, and may be another one. */
static int fail_changed(const struct stk_token_samples *samples, uint32_t file,
                        struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CHANGED, "the index of a Megatron set changed while it is open",
             "wait until the set is written, then open it again", "documents");
    stk_error_set_location(error, samples->tokens->files[file].path, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_CHANGED;
}

/* Returns the random key of a document. */
static uint64_t document_key(const struct stk_token_samples *samples, uint64_t key, uint64_t number,
                             uint64_t first)
{
    return stk_random_key(stk_random_key(key, samples->ids ? samples->ids[number] : number), first);
}

/* Reads a piece of a document; an EOD may be added to the stored tokens. */
static int add_piece(const struct stk_token_samples *samples,
                     const struct stk_packed_rows_chunk *chunk,
                     const struct stk_sequence_piece *piece, uint64_t key,
                     struct stk_token_row *row, struct stoker_error *error)
{
    const struct stk_token_span *document = &chunk->documents[piece->document];
    uint64_t stored = stk_min(piece->first + piece->count, document->count) - piece->first;
    bool ends = piece->first + piece->count >= document->count + samples->rules.append_eod;
    int64_t after = samples->rules.eod;
    int status = stk_token_set_read(samples->tokens, chunk->file, document->first + piece->first,
                                    stored, row->tokens + row->count, error);

    if (status == 0 && piece->first + stored < document->count) {
        status = stk_token_set_read(samples->tokens, chunk->file,
                                    document->first + piece->first + stored, 1, &after, error);
    }
    if (status == 0) {
        stk_token_row_add(
            row, &samples->rules, stored, piece->first == 0, ends ? NULL : &after,
            document_key(samples, key, chunk->first_document + piece->document, piece->first));
    }
    return status;
}

static int packed_row(struct stk_token_samples *samples, uint64_t sample, uint64_t key,
                      struct stk_token_row *row, struct stoker_error *error)
{
    const struct stk_packed_rows_chunk *chunk;
    uint32_t sequence, first;
    int status = stk_packed_rows_get(samples->packed, sample, &chunk, &sequence, error);

    if (status < 0) {
        return status;
    }
    if (sequence >= chunk->packing.sequence_count) { /* counted at open, planned again now */
        return fail_changed(samples, chunk->file, error);
    }
    first = stk_sequence_packing_first(&chunk->packing, sequence);
    for (uint32_t i = first; status == 0 && i < chunk->packing.ends[sequence]; i++) {
        status = add_piece(samples, chunk, &chunk->packing.pieces[i], key, row, error);
    }
    return status;
}

static int document_row(const struct stk_token_samples *samples, uint64_t sample, uint64_t key,
                        struct stk_token_row *row, struct stoker_error *error)
{
    struct stk_token_document document;
    int64_t after;
    int status = stk_token_documents_get(&samples->documents, sample, &document, error);
    uint64_t count = status == 0 ? used_of(samples, document.span.count) : 0;
    uint64_t added = sentinels_of(samples) + samples->rules.append_eod;

    if (status == 0 && count + added > row->capacity) { /* longer than when its row was reserved */
        return fail_changed(samples, document.file, error);
    }
    if (status == 0) {
        status = stk_token_set_read(samples->tokens, document.file, document.span.first, count,
                                    row->tokens, error);
    }
    if (status == 0 && count < document.span.count) {
        status = stk_token_set_read(samples->tokens, document.file, document.span.first + count, 1,
                                    &after, error);
    }
    if (status == 0) {
        stk_token_row_add(row, &samples->rules, count, true,
                          count < document.span.count ? &after : NULL,
                          document_key(samples, key, sample, 0));
    }
    return status;
}

int stk_token_samples_row(struct stk_token_samples *samples, uint64_t sample, uint64_t key,
                          struct stk_token_row *row, struct stoker_error *error)
{
    int status;

    stk_token_row_clear(row);
    switch (samples->kind) {
    case STOKER_ROWS_PACKED:
        pthread_mutex_lock(&samples->lock); /* while the plan is used */
        status = packed_row(samples, sample, key, row, error);
        pthread_mutex_unlock(&samples->lock);
        return status;
    case STOKER_ROWS_DOCUMENTS:
    case STOKER_ROWS_PADDED:
        return document_row(samples, sample, key, row, error);
    default:
        return window_row(samples, sample, key, row, error);
    }
}
