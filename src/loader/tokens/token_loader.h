/* loader/tokens/token_loader.h: struct stoker_token_loader: a stream of batches of token windows,
 * packed documents or documents, which is a position and a pure function of it.
 *
 *   open -> next: [begin step -> rows of its samples -> batch -> position moves on]* -> close
 *
 * Owner: the user. Threads: any; calls take turns by `lock`, below which only those of the frame
 * cache, the batch pool and packed rows are taken. Memory: one row, and a batch from the engine's
 * budget. Bound: STK_TOKEN_ROW_TOKENS_MAX tokens a row; the budget. */
#ifndef LOADER_TOKENS_TOKEN_LOADER_H
#define LOADER_TOKENS_TOKEN_LOADER_H

#include "format/bad_sample/bad_sample_file.h"
#include "loader/tokens/order_cursor.h"
#include "loader/tokens/token_future.h"
#include "loader/tokens/token_prefetch.h"
#include "loader/tokens/token_samples.h"
#include "loader/tokens/token_set.h"

#include <pthread.h>

#define STK_TOKEN_LOADER_FIELDS_MAX 4u
#define STK_TOKEN_LOADER_BAD_LISTED_MAX 1000u

struct stoker_token_loader {
    struct stoker_tokens *tokens; /* constant after open, as all members up to the lock */
    struct stoker_engine *engine;
    struct stk_batch_pool *pool;
    uint64_t context;
    uint32_t dtype, token_bytes; /* of the batches */
    uint32_t field_count;
    int labels, positions, starts;     /* numbers of fields, -1: none; tokens are field 0 */
    bool ragged;                       /* rows are documents */
    bool blank_padding;                /* rows beyond the samples are padding, not repeats */
    bool plain;                        /* rows are tokens as they are stored */
    bool skips;                        /* rows that cannot be read */
    uint64_t bad_max;                  /* of them; 0: no limit */
    uint64_t key;                      /* random key of fill in the middle */
    struct stk_token_samples *samples; /* one reference */
    struct stk_token_future *future;   /* NULL: none is published */
    pthread_mutex_t lock;
    struct {
        struct stk_order_cursor cursor;
        _Atomic uint64_t orders; /* how often a state replaced the order */
        struct stk_token_prefetch ahead;
        struct stk_token_row row;
        uint32_t *starts; /* of the current batch */
        uint64_t starts_count, starts_capacity;
        uint64_t row_bytes;             /* reserved */
        struct stk_bad_sample_list bad; /* at most STK_TOKEN_LOADER_BAD_LISTED_MAX */
        uint64_t bad_count;
    } locked;
};

/* Opens a loader. options: resolved. ids: of all documents or windows, for fill in the middle;
 * borrowed until close; then one batch has all samples, in batch_size rows (0: in as many as are
 * needed). NULL: their numbers. Returns 0 on success, STOKER_ERROR_ARGUMENT, STOKER_ERROR_EMPTY,
 * STOKER_ERROR_LIMIT, STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_token_loader_open(struct stoker_token_loader **loader_out, struct stoker_tokens *tokens,
                          struct stoker_token_loader_options *options, const uint64_t *ids,
                          struct stoker_error *error);

#endif
