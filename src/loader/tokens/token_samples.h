/* loader/tokens/token_samples.h: the samples of token files, by number (windows, packed rows or
 * documents), and the row of one sample.
 *
 *   files --windows----------------------------------------> sample i = tokens a .. b
 *         --documents--chunks--cached plans of packing-----> sample i = pieces of documents
 *                    --------------------------------------> sample i = document i
 *
 * Owner: the loaders of the same rows, one reference each. Threads: any; packed rows have a lock,
 * below which only those of the frame cache and of the budget are taken.
 * Memory: 8 bytes for each file, chunk, and document that was found by its EOD; plans, from the
 * engine's budget. Bound: the contents of the files. */
#ifndef LOADER_TOKENS_TOKEN_SAMPLES_H
#define LOADER_TOKENS_TOKEN_SAMPLES_H

#include "loader/rows/sequence_packing.h"
#include "loader/rows/token_row.h"
#include "loader/tokens/token_set.h"

#include <pthread.h>

/* ---- documents of all files, by number (token_documents.c) ---- */

/* A Megatron set has an index of its documents. In other files a document ends with its EOD, and
 * the last one with the file; one pass over all tokens, by all threads, finds these ends. */
struct stk_token_documents {
    const struct stoker_tokens *tokens;
    uint64_t count;
    uint64_t *ends;           /* [files]: documents up to the end of this file; owned */
    uint64_t **document_ends; /* [files]: NULL, or the end of each document, in tokens; owned */
    uint64_t bytes;           /* reserved for document_ends */
    bool skips;
};

struct stk_token_documents_options {
    const struct stoker_tokens *tokens;
    bool has_eod; /* eod ends documents */
    bool skips;   /* tokens that cannot be read end no document */
    int64_t eod;
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if a file has no index
 * of documents and has_eod is false, STOKER_ERROR_BUDGET, STOKER_ERROR_FORMAT or -ENOMEM. */
int stk_token_documents_open(struct stk_token_documents *documents,
                             const struct stk_token_documents_options *options,
                             struct stoker_error *error);
void stk_token_documents_close(struct stk_token_documents *documents); /* may be zeroed */
/* Whether documents of a file end with an EOD token. */
bool stk_token_documents_end_with_eod(const struct stk_token_documents *documents);

struct stk_token_document {
    uint32_t file;
    struct stk_token_span span; /* of the file */
};
/* number < count. Returns 0 on success, STOKER_ERROR_CORRUPT. */
int stk_token_documents_get(const struct stk_token_documents *documents, uint64_t number,
                            struct stk_token_document *document_out, struct stoker_error *error);

/* Returns the number of the first end above value; value is below the last end. */
uint64_t stk_token_ends_find(const uint64_t *ends, uint64_t count, uint64_t value);

/* ---- documents packed into sequences of one length (packed_rows.c) ---- */

/* Documents form chunks of chunk_documents; each chunk is packed alone, and its sequences are
 * samples, numbered chunk by chunk. No chunk has documents of two files. All threads count the
 * sequences once, at open; the plans of chunks in use are cached. */
struct stk_packed_rows;

struct stk_packed_rows_options {
    uint32_t length, chunk_documents;
    uint32_t reserve;      /* tokens for sentinels of fill in the middle, in each piece */
    uint32_t window_count; /* one part in window_count of the samples is in use at a time */
    bool append_eod;       /* each document has one more token */
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

/* documents: borrowed until close. Returns 0 on success, STOKER_ERROR_EMPTY, -ENOMEM, or the error
 * of reading an .idx file. */
int stk_packed_rows_open(struct stk_packed_rows **packed_out,
                         const struct stk_token_documents *documents,
                         const struct stk_packed_rows_options *options, struct stoker_error *error);
void stk_packed_rows_close(struct stk_packed_rows *packed); /* NULL is allowed */
uint64_t stk_packed_rows_samples(const struct stk_packed_rows *packed);
/* Returns the number of sequences up to the end of this file. */
uint64_t stk_packed_rows_file_end(const struct stk_packed_rows *packed, uint32_t file);
/* Gives each range of samples (the sources of a mix, which are read alternately) its own cached
 * plans. The last range ends with the last sample. Returns 0 or -ENOMEM. */
int stk_packed_rows_set_ranges(struct stk_packed_rows *packed, const uint64_t *ends, uint32_t count,
                               struct stoker_error *error);
/* Returns the location of the documents of a sample's chunk; or STOKER_ERROR_CORRUPT. */
int stk_packed_rows_location(const struct stk_packed_rows *packed, uint64_t sample,
                             struct stk_token_document *place_out, struct stoker_error *error);
/* Sets the chunk of a sample, which is valid until the next call, and the number of its sequence in
 * it. Returns 0 on success, STOKER_ERROR_BUDGET, STOKER_ERROR_CORRUPT or -ENOMEM. */
int stk_packed_rows_get(struct stk_packed_rows *packed, uint64_t sample,
                        const struct stk_packed_rows_chunk **chunk_out, uint32_t *sequence_out,
                        struct stoker_error *error);

/* ---- samples of any kind of row (token_samples.c) ---- */

struct stk_token_samples {
    const struct stoker_tokens *tokens; /* constant after open, as all members but packed */
    uint32_t kind;                      /* enum stoker_token_rows */
    uint64_t context;
    struct stk_token_row_rules rules;
    const uint64_t *ids; /* of documents or windows, for fill in the middle; borrowed; NULL:
                            their numbers */
    struct stk_token_windows windows; /* of windows */
    struct stk_token_documents documents;
    struct stk_packed_rows *packed;
    pthread_mutex_t lock; /* of packed */
    uint8_t identity[32]; /* of tokens and rows, see token_options.h */
    _Atomic uint32_t references;
};

/* options: resolved; tokens: borrowed until the last release. Returns 0 on success,
 * STOKER_ERROR_EMPTY if there is no sample, or an error of the documents. */
int stk_token_samples_open(struct stk_token_samples **samples_out,
                           const struct stoker_tokens *tokens,
                           const struct stoker_token_loader_options *options,
                           struct stoker_error *error);
/* Adds a reference for another loader. Returns 0, or STOKER_ERROR_ARGUMENT if its tokens or options
 * make other samples. */
int stk_token_samples_share(struct stk_token_samples *samples, const struct stoker_tokens *tokens,
                            const struct stoker_token_loader_options *options,
                            struct stoker_error *error);
void stk_token_samples_release(struct stk_token_samples *samples); /* NULL is allowed */
/* Returns the number of samples up to the end of this file. */
uint64_t stk_token_samples_file_end(const struct stk_token_samples *samples, uint32_t file);
/* Prepares for samples of the sources of a mix, which was checked. Returns 0 or -ENOMEM. */
int stk_token_samples_set_mix(struct stk_token_samples *samples,
                              const struct stoker_mix_options *mix, struct stoker_error *error);
uint64_t stk_token_samples_count(const struct stk_token_samples *samples);
/* Returns the average number of stored tokens from one sample to the next, for the order's blocks.
 */
uint64_t stk_token_samples_spacing(const struct stk_token_samples *samples);
/* Returns the location of a sample's tokens; of packed rows that of its chunk; or
 * STOKER_ERROR_CORRUPT. */
int stk_token_samples_location(const struct stk_token_samples *samples, uint64_t sample,
                               struct stk_token_document *place_out, struct stoker_error *error);
/* Returns the largest number of tokens of the sample's row, with the label of a window and
 * sentinels. */
int stk_token_samples_row_tokens(const struct stk_token_samples *samples, uint64_t sample,
                                 uint64_t *tokens_out, struct stoker_error *error);
/* Fills the row, whose capacity suffices. key: of (seed, epoch), for fill in the middle, which
 * depends on it and the number of the window or document. */
int stk_token_samples_row(struct stk_token_samples *samples, uint64_t sample, uint64_t key,
                          struct stk_token_row *row, struct stoker_error *error);

#endif
