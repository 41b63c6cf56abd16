/* loader/rows/token_row.h: one row of a batch: tokens of one or several documents, with the begin
 * of each, and the labels and positions that training needs. Pure.
 *
 *   stored tokens --add: a document, or a piece of one--\
 *   stored tokens --add_window: a window with its EODs----> row --write--> tokens, labels,
 * positions fill in the middle on the way -^
 *
 * Owner: the loader. Threads: one a row. Memory: 20 bytes a token of its capacity.
 * Bound: the capacity. */
#ifndef LOADER_ROWS_TOKEN_ROW_H
#define LOADER_ROWS_TOKEN_ROW_H

#include "loader/rows/fim.h"

#define STK_TOKEN_ROW_TOKENS_MAX (1u << 26)
#define STK_TOKEN_ROW_TOKEN_BYTES 20u
/* The label that losses ignore (ignore_index of torch.nn.CrossEntropyLoss). */
#define STK_TOKEN_ROW_LABEL_IGNORED (-100)

struct stk_token_row_rules {
    bool has_eod; /* documents end with a token that is part of the row */
    int64_t eod;
    bool append_eod; /* stk_token_row_add appends it */
    bool mask_ends;  /* the last token of a document has no label; else it is the next document's
                        first token */
    bool labels_unshifted; /* labels are the tokens themselves; mask_ends: except the first ones of
                              documents */
    bool row_positions;    /* count from the row's begin; else from 0 in each document */
    int32_t pad;
    struct stk_fim fim;
};

struct stk_token_row {
    uint64_t capacity, count; /* tokens */
    uint32_t start_count;
    int64_t *tokens;    /* [capacity]; owned, as the next two */
    int64_t *scratch;   /* [capacity] */
    uint32_t *starts;   /* [capacity]: where documents begin, ascending, the first at 0 */
    int64_t next_token; /* the label of the last token */
};

/* Opens an empty row, or grows an open one, which becomes empty. capacity: 1 to
 * STK_TOKEN_ROW_TOKENS_MAX. Returns 0 on success, STOKER_ERROR_LIMIT or -ENOMEM. */
int stk_token_row_open(struct stk_token_row *row, uint64_t capacity, struct stoker_error *error);
void stk_token_row_close(struct stk_token_row *row); /* may be zeroed */
void stk_token_row_clear(struct stk_token_row *row);

/* Adds `count` tokens that the caller has written after the row's last one, at tokens + count: a
 * document, or a piece of one. The capacity suffices for them, an EOD and the sentinels. begins:
 * the piece is the begin of its document. next_token: the token after the piece; NULL: the
 * document ends. */
void stk_token_row_add(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                       uint64_t count, bool begins, const int64_t *next_token, uint64_t key);
/* Adds a window of `count` tokens that the caller has written into the empty row; its documents end
 * with EOD tokens. Tokens that sentinels push beyond the capacity are dropped. */
void stk_token_row_add_window(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                              uint64_t count, uint64_t key);

/* The output of a row: `length` numbers each, int32 or int64; NULL: not written. */
struct stk_token_row_output {
    uint64_t length;
    uint32_t dtype;
    void *tokens;    /* padding: rules->pad */
    void *labels;    /* the next tokens, or the tokens; STK_TOKEN_ROW_LABEL_IGNORED in padding */
    void *positions; /* in padding: from 0, or counted on with row_positions */
};

/* Writes the first `length` tokens of a row; one more token is the last label. Returns false if a
 * token does not fit the dtype (the outputs are then undefined). */
bool stk_token_row_write(const struct stk_token_row *row, const struct stk_token_row_rules *rules,
                         const struct stk_token_row_output *out);
/* Writes the begins of the documents in the first `length` tokens, and of the padding, if any.
 * starts_out: [length]. Returns their number. */
uint64_t stk_token_row_starts(const struct stk_token_row *row, uint64_t length,
                              uint32_t *starts_out);

#endif
