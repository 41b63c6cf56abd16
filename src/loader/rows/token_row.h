/* loader/rows/token_row.h: one row of a batch while it is made: tokens of one document or of
 * several, where each begins, and what training wants beside them. Pure.
 *
 *   stored tokens --stk_token_row_add: a document, or a piece of one--\
 *   stored tokens --stk_token_row_add_window: a window, at its EOD tokens----> row --write-->
 * tokens, labels, fill in the middle on the way -^                        positions
 *
 * Owner: the loader. Threads: one a row. Memory: 20 bytes a token of its room. Bound: room. */
#ifndef LOADER_ROWS_TOKEN_ROW_H
#define LOADER_ROWS_TOKEN_ROW_H

#include "loader/rows/fim.h"

#define STK_TOKEN_ROW_TOKENS_MAX (1u << 26)
#define STK_TOKEN_ROW_TOKEN_BYTES 20u
/* The label that losses leave out (torch.nn.CrossEntropyLoss's ignore_index). */
#define STK_TOKEN_ROW_LABEL_IGNORED (-100)

struct stk_token_row_rules {
    bool has_eod; /* a token at a document's end that stays there */
    int64_t eod;
    bool append_eod;    /* stk_token_row_add puts one there */
    bool mask_ends;     /* the last token of a document has no label; else the next document's */
    bool row_positions; /* count through the row; else from 0 in each document */
    int32_t pad;
    struct stk_fim fim;
};

struct stk_token_row {
    uint64_t capacity, count; /* tokens */
    uint32_t start_count;
    int64_t *tokens;    /* [room]; owned, as the next two */
    int64_t *scratch;   /* [room] */
    uint32_t *starts;   /* [room]: where documents begin, ascending, the first at 0 */
    int64_t next_token; /* the label of the last token */
};

/* room: 1 to STK_TOKEN_ROW_TOKENS_MAX. LIMIT, -ENOMEM. A row that is open gets more room, and is
 * empty.
 */
int stk_token_row_open(struct stk_token_row *row, uint64_t capacity, struct stoker_error *error);
void stk_token_row_close(struct stk_token_row *row); /* zeroed is fine */
void stk_token_row_clear(struct stk_token_row *row);

/* `count` tokens that the caller wrote behind the row's last, at tokens + count: a document, or a
 * piece of one. They, an EOD and the sentinels have room. begins: the document does; after: what
 * comes next in it; NULL: it ends. */
void stk_token_row_add(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                       uint64_t count, bool begins, const int64_t *next_token, uint64_t key);
/* `count` tokens that the caller wrote into the empty row: a window, whose documents end with their
 * EOD tokens. What sentinels push out of the room is lost. */
void stk_token_row_add_window(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                              uint64_t count, uint64_t key);

/* Where the row goes: `length` numbers each, int32 or int64; NULL: not wanted. */
struct stk_token_row_output {
    uint64_t length;
    uint32_t dtype;
    void *tokens;    /* padding: rules->pad */
    void *labels;    /* what comes next; STK_TOKEN_ROW_LABEL_IGNORED in padding */
    void *positions; /* of padding: from 0, or on and on with row_positions */
};

/* The first `length` tokens of a row that may have one more, which is then the last label. false:
 * a token does not fit (the outputs hold rubbish). */
bool stk_token_row_write(const struct stk_token_row *row, const struct stk_token_row_rules *rules,
                         const struct stk_token_row_output *out);
/* Where documents begin in the first `length` tokens, and the padding, if any. starts_out:
 * [length]; returns how many. */
uint64_t stk_token_row_starts(const struct stk_token_row *row, uint64_t length,
                              uint32_t *starts_out);

#endif
