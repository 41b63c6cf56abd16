/* Chunks of documents, the number of their sequences, and the cached plans of those in use. */
#include "base/mem.h"
#include "loader/tokens/token_samples.h"

#include <errno.h>
#include <string.h>

/* Cached plans of each part: twice the chunks of a window of the order. In a full permutation each
 * sample may be in another chunk: then the maximum. */
#define CACHED_CHUNKS_MIN 64u
#define CACHED_CHUNKS_MAX 16384u /* of all parts, beyond their minimum */

/* A range of chunks that one order reads. */
struct part {
    uint64_t end; /* its last chunk is before this one */
    uint32_t first_cached, cached_count;
};

struct stk_packed_rows {
    const struct stk_token_documents
        *documents; /* constant after open, as all members but cached */
    struct stk_packed_rows_options options;
    uint64_t chunk_count;
    uint64_t *file_ends;                  /* [files]: chunks up to the end of this file */
    uint64_t *ends;                       /* [chunks]: sequences, likewise */
    struct part *parts;                   /* [part_count]: usually one of all */
    struct stk_packed_rows_chunk *cached; /* [cached_count]: part by part; chunk n of a part has
                                           * place n mod cached_count of it */
    uint32_t part_count, cached_count;
};

static struct stoker_engine *engine_of(const struct stk_packed_rows *packed)
{
    return packed->documents->tokens->engine;
}

static void chunk_drop(struct stk_packed_rows *packed, struct stk_packed_rows_chunk *chunk)
{
    stk_free(chunk->documents);
    stk_sequence_packing_close(&chunk->packing);
    stk_budget_release(&engine_of(packed)->budget, chunk->bytes);
    *chunk = (struct stk_packed_rows_chunk){.number = STK_PACKED_ROWS_NO_CHUNK};
}

static void drop_all(struct stk_packed_rows *packed)
{
    for (uint32_t i = 0; i < packed->cached_count; i++) {
        chunk_drop(packed, &packed->cached[i]);
    }
}

/* Sets the spans of a chunk's documents, and their token counts. */
static int find_documents(const struct stk_packed_rows *packed, uint64_t first, uint32_t count,
                          struct stk_token_span *spans, uint64_t *counts,
                          struct stoker_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        struct stk_token_document document;
        int status = stk_token_documents_get(packed->documents, first + i, &document, error);

        if (status < 0) {
            return status;
        }
        spans[i] = document.span;
        counts[i] = document.span.count;
        counts[i] += counts[i] > 0 && packed->options.append_eod;
    }
    return 0;
}

/* Sets the file and the first document of a chunk. */
static uint64_t chunk_bounds(const struct stk_packed_rows *packed, uint64_t number,
                             uint64_t *first_out, uint32_t *count_out)
{
    const uint64_t *document_ends = packed->documents->ends;
    uint32_t chunk = packed->options.chunk_documents;
    uint64_t file =
        stk_token_ends_find(packed->file_ends, packed->documents->tokens->file_count, number);
    uint64_t in_file = number - (file > 0 ? packed->file_ends[file - 1] : 0);

    *first_out = (file > 0 ? document_ends[file - 1] : 0) + in_file * chunk;
    *count_out = (uint32_t)stk_min(document_ends[file] - *first_out, chunk);
    return file;
}

/* Makes the plan of a chunk, without reserving memory of the budget. */
static int plan_chunk(const struct stk_packed_rows *packed, uint64_t number,
                      struct stk_packed_rows_chunk *chunk_out, struct stoker_error *error)
{
    const struct stk_packed_rows_options *options = &packed->options;
    uint64_t first, file;
    uint32_t count;

    file = chunk_bounds(packed, number, &first, &count);
    struct stk_packed_rows_chunk chunk = {
        .number = number, .first_document = first, .file = (uint32_t)file};
    uint64_t *counts = stk_alloc(count, sizeof *counts);
    int status;

    chunk.documents = stk_alloc(count, sizeof *chunk.documents);
    if (!counts || !chunk.documents) {
        status =
            stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u documents", count);
    } else {
        status = find_documents(packed, first, count, chunk.documents, counts, error);
    }
    if (status == 0) {
        status = stk_sequence_packing_open(&chunk.packing, counts, count, options->length,
                                           options->reserve, error);
    }
    stk_free(counts);
    if (status < 0) {
        stk_free(chunk.documents);
        return status;
    }
    chunk.bytes = count * sizeof *chunk.documents +
                  chunk.packing.piece_count * sizeof *chunk.packing.pieces +
                  chunk.packing.sequence_count * sizeof *chunk.packing.ends;
    *chunk_out = chunk;
    return 0;
}

/* ---- open ---- */

/* One round: counts the sequences of one chunk. */
static int count_chunk(void *context, uint64_t number, struct stoker_error *error)
{
    struct stk_packed_rows *packed = context;
    struct stk_packed_rows_chunk chunk;
    int status = plan_chunk(packed, number, &chunk, error);

    if (status == 0) {
        packed->ends[number] = chunk.packing.sequence_count;
        stk_free(chunk.documents);
        stk_sequence_packing_close(&chunk.packing);
    }
    return status;
}

/* Counts the chunks of each file. */
static int cut_chunks(struct stk_packed_rows *packed, struct stoker_error *error)
{
    const struct stk_token_documents *documents = packed->documents;
    uint32_t files = documents->tokens->file_count, chunk = packed->options.chunk_documents;

    packed->file_ends = stk_alloc(files, sizeof *packed->file_ends);
    for (uint32_t i = 0; packed->file_ends && i < files; i++) {
        uint64_t count = documents->ends[i] - (i > 0 ? documents->ends[i - 1] : 0);

        packed->chunk_count += count / chunk + (count % chunk > 0);
        packed->file_ends[i] = packed->chunk_count;
    }
    packed->ends = stk_alloc(stk_max(packed->chunk_count, 1), sizeof *packed->ends);
    return packed->file_ends && packed->ends
               ? 0
               : stk_fail_memory(error, "packed rows, %llu chunks",
                                 (unsigned long long)packed->chunk_count);
}

/* Allocates empty cache slots for parts whose ends are known. */
static int init_parts(struct stk_packed_rows *packed, struct part *parts, uint32_t count,
                      struct stoker_error *error)
{
    uint64_t windows = packed->options.window_count;
    /* Twice the chunks of a window, which has the same size in every part. */
    uint64_t wanted = stk_min(2 * packed->chunk_count / windows + 1, CACHED_CHUNKS_MAX / count);
    struct stk_packed_rows_chunk *cached;
    uint32_t cached_count = 0;

    for (uint32_t i = 0; i < count; i++) {
        parts[i].first_cached = cached_count;
        parts[i].cached_count = (uint32_t)stk_max(wanted, CACHED_CHUNKS_MIN);
        cached_count += parts[i].cached_count;
    }
    cached = stk_alloc(cached_count, sizeof *cached);
    if (!cached) {
        stk_free(parts);
        return stk_fail_memory(error, "packed rows, %llu chunks",
                               (unsigned long long)packed->chunk_count);
    }
    for (uint32_t i = 0; i < cached_count; i++) {
        cached[i].number = STK_PACKED_ROWS_NO_CHUNK;
    }
    drop_all(packed);
    stk_free(packed->cached);
    stk_free(packed->parts);
    packed->cached = cached;
    packed->parts = parts;
    packed->part_count = count;
    packed->cached_count = cached_count;
    return 0;
}

int stk_packed_rows_set_ranges(struct stk_packed_rows *packed, const uint64_t *ends, uint32_t count,
                               struct stoker_error *error)
{
    struct part *parts = stk_alloc(count, sizeof *parts);
    bool same = count == packed->part_count;

    if (!parts) {
        return stk_fail_memory(error, "packed rows, %llu chunks",
                               (unsigned long long)packed->chunk_count);
    }
    for (uint32_t i = 0; i < count; i++) {
        bool last = i + 1 == count;

        parts[i].end = last ? packed->chunk_count
                            : stk_token_ends_find(packed->ends, packed->chunk_count, ends[i]);
        same = same && parts[i].end == packed->parts[i].end;
    }
    if (same) {
        stk_free(parts);
        return 0;
    }
    return init_parts(packed, parts, count, error);
}

/* Returns the cache slot of a chunk. */
static struct stk_packed_rows_chunk *place_of(const struct stk_packed_rows *packed, uint64_t number)
{
    uint32_t low = 0, high = packed->part_count - 1;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (packed->parts[middle].end > number) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return &packed->cached[packed->parts[low].first_cached +
                           number % packed->parts[low].cached_count];
}

int stk_packed_rows_open(struct stk_packed_rows **packed_out,
                         const struct stk_token_documents *documents,
                         const struct stk_packed_rows_options *options, struct stoker_error *error)
{
    struct stk_packed_rows *packed = stk_alloc(1, sizeof *packed);
    int status;

    *packed_out = NULL;
    if (!packed) {
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "packing");
    }
    packed->documents = documents;
    packed->options = *options;
    status = cut_chunks(packed, error);
    if (status == 0) {
        status = stk_packed_rows_set_ranges(packed, NULL, 1, error);
    }
    if (status == 0) {
        status =
            stk_engine_parallel(engine_of(packed), packed->chunk_count, count_chunk, packed, error);
    }
    for (uint64_t i = 1; status == 0 && i < packed->chunk_count; i++) {
        packed->ends[i] += packed->ends[i - 1];
    }
    if (status == 0 && stk_packed_rows_samples(packed) == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "no document has a token",
                          "check that these are the right files", "%u files",
                          documents->tokens->file_count);
    }
    if (status < 0) {
        stk_packed_rows_close(packed);
        return status;
    }
    *packed_out = packed;
    return 0;
}

void stk_packed_rows_close(struct stk_packed_rows *packed)
{
    if (!packed) {
        return;
    }
    drop_all(packed);
    stk_free(packed->cached);
    stk_free(packed->parts);
    stk_free(packed->ends);
    stk_free(packed->file_ends);
    stk_free(packed);
}

uint64_t stk_packed_rows_samples(const struct stk_packed_rows *packed)
{
    return packed->chunk_count > 0 ? packed->ends[packed->chunk_count - 1] : 0;
}

uint64_t stk_packed_rows_file_end(const struct stk_packed_rows *packed, uint32_t file)
{
    uint64_t chunks = packed->file_ends[file];

    return chunks > 0 ? packed->ends[chunks - 1] : 0;
}

/* ---- use ---- */

int stk_packed_rows_location(const struct stk_packed_rows *packed, uint64_t sample,
                             struct stk_token_document *place_out, struct stoker_error *error)
{
    uint64_t number = stk_token_ends_find(packed->ends, packed->chunk_count, sample), first;
    struct stk_token_document last;
    uint32_t count;
    int status;

    chunk_bounds(packed, number, &first, &count);
    status = stk_token_documents_get(packed->documents, first, place_out, error);
    if (status == 0) {
        status = stk_token_documents_get(packed->documents, first + count - 1, &last, error);
    }
    if (status == 0) {
        uint64_t end = last.span.first + last.span.count;

        /* The documents of a set may be in any order: then the location is a guess without
         * tokens. */
        place_out->span.count = end > place_out->span.first ? end - place_out->span.first : 0;
    }
    return status;
}

/* Reserves memory for a plan; if there is none, frees all other plans first. */
static int reserve(struct stk_packed_rows *packed, uint64_t bytes, struct stoker_error *error)
{
    if (stk_engine_reserve(engine_of(packed), bytes, 0, "a plan of packing", NULL) == 0) {
        return 0;
    }
    drop_all(packed);
    return stk_engine_reserve(engine_of(packed), bytes, 0, "a plan of packing", error);
}

int stk_packed_rows_get(struct stk_packed_rows *packed, uint64_t sample,
                        const struct stk_packed_rows_chunk **chunk_out, uint32_t *sequence_out,
                        struct stoker_error *error)
{
    STK_ASSERT(sample < stk_packed_rows_samples(packed));
    uint64_t number = stk_token_ends_find(packed->ends, packed->chunk_count, sample);
    struct stk_packed_rows_chunk *cached = place_of(packed, number), made;

    if (cached->number != number) {
        int status = plan_chunk(packed, number, &made, error);

        if (status < 0) {
            return status;
        }
        chunk_drop(packed, cached);
        status = reserve(packed, made.bytes, error);
        if (status < 0) {
            made.bytes = 0;
            chunk_drop(packed, &made);
            return status;
        }
        *cached = made;
    }
    *chunk_out = cached;
    *sequence_out = (uint32_t)(sample - (number > 0 ? packed->ends[number - 1] : 0));
    return 0;
}
