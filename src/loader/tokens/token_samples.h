/* loader/tokens/token_samples.h: what the samples of token files are, by number: windows, packed
 * rows, or documents; and one of them as a row.
 *
 *   files --windows--------------------------------------> sample i = tokens a .. b
 *         --documents--chunks--plans of packing, kept----> sample i = pieces of documents
 *                    --------------------------------------> sample i = document i
 *
 * Owner: the loaders of the same rows, one reference each. Threads: any; packed rows take turns by
 * a lock, below which only those of kept frames and of the budget are taken.
 * Memory: 8 bytes a file, chunk, and document that was found by its EOD; plans, from the engine's
 * budget. Bound: what the files hold. */
#ifndef LOADER_TOKENS_TOKEN_SAMPLES_H
#define LOADER_TOKENS_TOKEN_SAMPLES_H

#include "loader/rows/sequence_packing.h"
#include "loader/rows/token_row.h"
#include "loader/tokens/token_set.h"

#include <pthread.h>

/* ---- token_documents.c: documents of all files, by number ---- */

/* A Megatron set says where they are; in other files each ends with its EOD (and the last one with
 * the file), which is found by one pass over all tokens, by all threads. */
struct stk_token_documents {
    const struct stoker_tokens *tokens;
    uint64_t count;
    uint64_t *ends;           /* [files]: documents of the files up to and with this one; owned */
    uint64_t **document_ends; /* [files]: NULL, or where each document ends, in tokens; owned */
    uint64_t bytes;           /* reserved for cuts */
};

/* has_eod: eod ends documents. ARGUMENT: a file does not say where they are, and has_eod is not
 * given; BUDGET, FORMAT, -ENOMEM. */
int stk_token_documents_open(struct stk_token_documents *documents,
                             const struct stoker_tokens *tokens, bool has_eod, int64_t eod,
                             struct stoker_error *error);
void stk_token_documents_close(struct stk_token_documents *documents); /* zeroed is fine */
/* Whether documents of any file end with their EOD. */
bool stk_token_documents_end_with_eod(const struct stk_token_documents *documents);

struct stk_token_document {
    uint32_t file;
    struct stk_token_span span; /* of the file */
};
/* number < count. CORRUPT. */
int stk_token_documents_get(const struct stk_token_documents *documents, uint64_t number,
                            struct stk_token_document *document_out, struct stoker_error *error);

/* The first end above value; value is below the last one. */
uint64_t stk_token_ends_find(const uint64_t *ends, uint64_t count, uint64_t value);

/* ---- packed_rows.c: documents as sequences of one length ---- */

/* Documents are taken in chunks of as many, each chunk packed for itself; its sequences are
 * samples, numbered chunk by chunk. No chunk has documents of two files. Which ones there are is
 * counted once, at open, by all threads; the plans of chunks in use are kept. */
struct stk_packed_rows;

struct stk_packed_rows_options {
    uint32_t length, chunk_documents;
    uint32_t reserve;      /* for sentinels of fill in the middle, in each piece */
    uint32_t window_count; /* how many parts of the samples are in use at a time: 1 of so many */
    bool append_eod;       /* each document has a token more */
};

/* One chunk with its plan. */
struct stk_packed_rows_chunk {
    uint64_t number;         /* STK_PACKED_ROWS_NO_CHUNK: empty */
    uint64_t first_document; /* of all */
    uint32_t file;
    struct stk_token_span *documents;    /* in the file; owned */
    struct stk_sequence_packing packing; /* owned */
    uint64_t bytes;                      /* reserved */
};
#define STK_PACKED_ROWS_NO_CHUNK UINT64_MAX

/* documents: lent until close. EMPTY; what reading an .idx gives. */
int stk_packed_rows_open(struct stk_packed_rows **packed_out,
                         const struct stk_token_documents *documents,
                         const struct stk_packed_rows_options *options, struct stoker_error *error);
void stk_packed_rows_close(struct stk_packed_rows *packed); /* NULL is fine */
uint64_t stk_packed_rows_samples(const struct stk_packed_rows *packed);
/* Sequences of the files up to and with this one. */
uint64_t stk_packed_rows_file_end(const struct stk_packed_rows *packed, uint32_t file);
/* Samples are taken from all of these ranges by turns (sources of a mix; the last one ends with the
 * last sample): each keeps plans of its own. -ENOMEM. */
int stk_packed_rows_set_ranges(struct stk_packed_rows *packed, const uint64_t *ends, uint32_t count,
                               struct stoker_error *error);
/* Where the documents of a sample's chunk lie. CORRUPT. */
int stk_packed_rows_location(const struct stk_packed_rows *packed, uint64_t sample,
                             struct stk_token_document *place_out, struct stoker_error *error);
/* The chunk of a sample, and the number of its sequence there. Lends until the next call. BUDGET.
 */
int stk_packed_rows_get(struct stk_packed_rows *packed, uint64_t sample,
                        const struct stk_packed_rows_chunk **chunk_out, uint32_t *sequence_out,
                        struct stoker_error *error);

/* ---- token_samples.c ---- */

struct stk_token_samples {
    const struct stoker_tokens *tokens; /* const after open, as all but packed */
    uint32_t kind;                      /* enum stoker_token_rows */
    uint64_t context;
    struct stk_token_row_rules rules;
    const uint64_t *ids; /* of documents or windows, for fill in the middle; lent; NULL:
                            numbers */
    struct stk_token_windows windows; /* of windows */
    struct stk_token_documents documents;
    struct stk_packed_rows *packed;
    pthread_mutex_t lock; /* of packed */
    uint8_t identity[32]; /* of tokens and rows, see token_options.h */
    _Atomic uint32_t references;
};

/* options: resolved; lends tokens until the last release. EMPTY: there are none. */
int stk_token_samples_open(struct stk_token_samples **samples_out,
                           const struct stoker_tokens *tokens,
                           const struct stoker_token_loader_options *options,
                           struct stoker_error *error);
/* The same for another loader, which wants these. ARGUMENT: they are others. */
int stk_token_samples_share(struct stk_token_samples *samples, const struct stoker_tokens *tokens,
                            const struct stoker_token_loader_options *options,
                            struct stoker_error *error);
void stk_token_samples_release(struct stk_token_samples *samples); /* NULL is fine */
/* Samples of the files up to and with this one. */
uint64_t stk_token_samples_file_end(const struct stk_token_samples *samples, uint32_t file);
/* They are taken from the sources of this mix, which is sound, by turns. -ENOMEM. */
int stk_token_samples_set_mix(struct stk_token_samples *samples,
                              const struct stoker_mix_options *mix, struct stoker_error *error);
uint64_t stk_token_samples_count(const struct stk_token_samples *samples);
/* Tokens of stored data from one sample to the next, about: for the blocks of the order. */
uint64_t stk_token_samples_spacing(const struct stk_token_samples *samples);
/* Where its tokens lie; of packed rows, those of its whole chunk. CORRUPT. */
int stk_token_samples_location(const struct stk_token_samples *samples, uint64_t sample,
                               struct stk_token_document *place_out, struct stoker_error *error);
/* Tokens that a row of the sample may have, labels of windows and sentinels included. */
int stk_token_samples_row_tokens(const struct stk_token_samples *samples, uint64_t sample,
                                 uint64_t *room_out, struct stoker_error *error);
/* Fills the row, which has that room. key: of (seed, epoch), for fill in the middle, which is drawn
 * from it and a window's, or a document's, number. */
int stk_token_samples_row(struct stk_token_samples *samples, uint64_t sample, uint64_t key,
                          struct stk_token_row *row, struct stoker_error *error);

#endif
