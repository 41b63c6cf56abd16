/* Chunks of documents and their plans: which sequences there are, and those that are in use. */
#include "sequence/sequence.h"

#include <errno.h>
#include <string.h>

/* Plans that are kept: more than a window of the order (64 blocks of 8 MiB) meets, when documents
 * are of 500 tokens or more. */
#define KEPT_CHUNKS 256u

struct stk_packed {
    const struct stoker_tokens *tokens; /* const after open, as all but kept */
    uint32_t length, chunk_documents;
    uint64_t chunk_count;
    uint64_t *file_ends;           /* [files]: chunks of the files up to and with this one */
    uint64_t *ends;                /* [chunks]: sequences, likewise */
    struct stk_packed_chunk *kept; /* [KEPT_CHUNKS]: chunk n has place n mod KEPT_CHUNKS */
};

/* The first end above value: `value` is below the last. */
static uint64_t find_end(const uint64_t *ends, uint64_t count, uint64_t value)
{
    uint64_t low = 0, high = count - 1;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (ends[middle] > value) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void chunk_drop(struct stk_packed *packed, struct stk_packed_chunk *chunk)
{
    stk_free(chunk->documents);
    stk_packing_close(&chunk->packing);
    stk_budget_release(&packed->tokens->engine->budget, chunk->bytes);
    *chunk = (struct stk_packed_chunk){.number = STK_NO_CHUNK};
}

/* Where the documents of a chunk lie, and how long they are. */
static int find_documents(const struct stk_token_file *file, uint64_t first, uint32_t count,
                          struct stk_token_span *spans, uint64_t *counts,
                          struct stoker_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        if (stk_megatron_document(&file->set, first + i, &spans[i], error) < 0) {
            return stk_error_place(error, file->path, STOKER_NO_OFFSET, NULL);
        }
        counts[i] = spans[i].count;
    }
    return 0;
}

/* Makes the plan of a chunk; nothing is reserved for it yet. */
static int plan_chunk(const struct stk_packed *packed, uint64_t number,
                      struct stk_packed_chunk *chunk_out, struct stoker_error *error)
{
    uint64_t at = find_end(packed->file_ends, packed->tokens->file_count, number);
    const struct stk_token_file *file = &packed->tokens->files[at];
    uint64_t first = (number - (at > 0 ? packed->file_ends[at - 1] : 0)) * packed->chunk_documents;
    uint32_t count = (uint32_t)stk_min(file->set.document_count - first, packed->chunk_documents);
    struct stk_packed_chunk chunk = {.number = number, .run = &file->run};
    uint64_t *counts = stk_alloc(count, sizeof *counts);
    int status = -ENOMEM;

    chunk.documents = stk_alloc(count, sizeof *chunk.documents);
    if (!counts || !chunk.documents) {
        stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u documents", count);
    } else {
        status = find_documents(file, first, count, chunk.documents, counts, error);
    }
    if (status == 0) {
        status = stk_packing_plan(&chunk.packing, counts, count, packed->length, error);
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

/* A round of the count: the sequences of one chunk. */
static int count_chunk(void *context, uint64_t number, struct stoker_error *error)
{
    struct stk_packed *packed = context;
    struct stk_packed_chunk chunk;
    int status = plan_chunk(packed, number, &chunk, error);

    if (status == 0) {
        packed->ends[number] = chunk.packing.sequence_count;
        stk_free(chunk.documents);
        stk_packing_close(&chunk.packing);
    }
    return status;
}

static int count_chunks(struct stk_packed *packed, struct stoker_error *error)
{
    const struct stoker_tokens *tokens = packed->tokens;

    packed->file_ends = stk_alloc(tokens->file_count, sizeof *packed->file_ends);
    if (!packed->file_ends) {
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%u files",
                        tokens->file_count);
    }
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        const struct stk_megatron *set = &tokens->files[i].set;

        if (!set->documents) {
            stk_fail(error, STOKER_ERROR_ARGUMENT, "this file does not say where its documents are",
                     "pack Megatron sets; other files can be cut into windows", "documents");
            return stk_error_place(error, tokens->files[i].path, STOKER_NO_OFFSET, NULL);
        }
        packed->chunk_count += set->document_count / packed->chunk_documents +
                               (set->document_count % packed->chunk_documents > 0);
        packed->file_ends[i] = packed->chunk_count;
    }
    return 0;
}

int stk_packed_open(struct stk_packed **packed_out, const struct stoker_tokens *tokens,
                    uint32_t length, uint32_t chunk_documents, struct stoker_error *error)
{
    struct stk_packed *packed = stk_alloc(1, sizeof *packed);
    int status;

    *packed_out = NULL;
    if (!packed) {
        return stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "packing");
    }
    packed->tokens = tokens;
    packed->length = length;
    packed->chunk_documents = chunk_documents;
    status = count_chunks(packed, error);
    if (status == 0) {
        packed->ends = stk_alloc(stk_max(packed->chunk_count, 1), sizeof *packed->ends);
        packed->kept = stk_alloc(KEPT_CHUNKS, sizeof *packed->kept);
        if (!packed->ends || !packed->kept) {
            status = stk_fail(error, -ENOMEM, "cannot pack documents", "free memory", "%llu chunks",
                              (unsigned long long)packed->chunk_count);
        }
    }
    for (uint32_t i = 0; packed->kept && i < KEPT_CHUNKS; i++) {
        packed->kept[i].number = STK_NO_CHUNK;
    }
    if (status == 0) {
        status =
            stk_engine_parallel(tokens->engine, packed->chunk_count, count_chunk, packed, error);
    }
    for (uint64_t i = 1; status == 0 && i < packed->chunk_count; i++) {
        packed->ends[i] += packed->ends[i - 1];
    }
    if (status == 0 && stk_packed_samples(packed) == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "no document has a token",
                          "look whether these are the files that you mean", "%u files",
                          tokens->file_count);
    }
    if (status < 0) {
        stk_packed_close(packed);
        return status;
    }
    *packed_out = packed;
    return 0;
}

void stk_packed_close(struct stk_packed *packed)
{
    if (!packed) {
        return;
    }
    for (uint32_t i = 0; packed->kept && i < KEPT_CHUNKS; i++) {
        chunk_drop(packed, &packed->kept[i]);
    }
    stk_free(packed->kept);
    stk_free(packed->ends);
    stk_free(packed->file_ends);
    stk_free(packed);
}

uint64_t stk_packed_samples(const struct stk_packed *packed)
{
    return packed->chunk_count > 0 ? packed->ends[packed->chunk_count - 1] : 0;
}

/* ---- use ---- */

int stk_packed_at(struct stk_packed *packed, uint64_t sample,
                  const struct stk_packed_chunk **chunk_out, uint32_t *sequence_out,
                  struct stoker_error *error)
{
    STK_ASSERT(sample < stk_packed_samples(packed));
    uint64_t number = find_end(packed->ends, packed->chunk_count, sample);
    struct stk_packed_chunk *kept = &packed->kept[number % KEPT_CHUNKS], made;

    if (kept->number != number) {
        int status = plan_chunk(packed, number, &made, error);

        if (status < 0) {
            return status;
        }
        chunk_drop(packed, kept);
        *kept = made;
        kept->bytes = 0;
        status =
            stk_engine_reserve(packed->tokens->engine, made.bytes, 0, "a plan of packing", error);
        if (status < 0) {
            chunk_drop(packed, kept);
            return status;
        }
        kept->bytes = made.bytes;
    }
    *chunk_out = kept;
    *sequence_out = (uint32_t)(sample - (number > 0 ? packed->ends[number - 1] : 0));
    return 0;
}
