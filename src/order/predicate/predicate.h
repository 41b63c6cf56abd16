/* order/predicate/predicate.h: which samples: a predicate over columns, "label in (3, 7) and size >
 * 10_000".
 *
 *   text --parse--> query, names of its columns
 *   values of columns --holds--> true | false | "first tell me column c" (and so on)
 *
 *   either    := both {"or" both}                  both := one {"and" one}
 *   one       := "not" one | "(" either ")" | operand test
 *   test      := {("==" | "!=" | "<" | "<=" | ">" | ">=") operand}   (more than one: a chain)
 *              | ["not"] "in" "(" literal {"," literal} [","] ")" | "is" ["not"] "none"
 *   operand   := literal | COLUMN ["%" number]
 *   literal   := ["-"] number | 'text' | "text" | "true" | "false"
 *
 * It reads as Python does. A comparison with what a sample does not have (none), or between text
 * and a number, is false, != too; so `not size > 5` holds for samples without a size. Columns are
 * asked for only when the answer depends on them: cheap ones go first, to the left.
 *
 * Pure. Owner: the caller. Threads: one for parse, any after it. Memory: taken in parse, 100 bytes
 * a byte of text. Bound: STK_QUERY_BYTES_MAX, STK_QUERY_DEPTH_MAX, STK_QUERY_COLUMNS_MAX. */
#ifndef ORDER_PREDICATE_PREDICATE_H
#define ORDER_PREDICATE_PREDICATE_H

#include "base/base.h"

#define STK_QUERY_BYTES_MAX (1u << 20)
#define STK_QUERY_DEPTH_MAX 64u
#define STK_QUERY_COLUMNS_MAX 32u

enum stk_query_kind {
    STK_QUERY_UNKNOWN, /* not yet told */
    STK_QUERY_NONE,    /* the sample has none */
    STK_QUERY_INT,     /* also true and false: 1 and 0 */
    STK_QUERY_REAL,    /* never NaN */
    STK_QUERY_TEXT,
};

struct stk_query_value {
    uint32_t kind; /* enum stk_query_kind */
    union {
        int64_t integer;
        double real;
        struct stk_view text; /* lent */
    };
};

struct stk_query_node;
struct stk_query_operand;

struct stk_query {
    char *text;                         /* owned: texts and names of columns, with their NULs */
    struct stk_query_node *nodes;       /* owned */
    struct stk_query_operand *operands; /* owned */
    struct stk_query_value *literals;   /* owned; those of a list are sorted */
    uint32_t root;
    uint32_t column_count;
    const char *columns[STK_QUERY_COLUMNS_MAX]; /* names, none twice; in `text` */
};

/* ARGUMENT: says where it cannot be read; LIMIT; ENOMEM. */
int stk_query_parse(struct stk_query *query, struct stk_view text, struct stoker_error *error);
/* The name of one column and nothing else: a query of that column, which is never asked. */
int stk_query_parse_column(struct stk_query *query, struct stk_view text,
                           struct stoker_error *error);
void stk_query_deinit(struct stk_query *query); /* zeroed is fine */

/* values: one a column. 1 or 0; -1: *column_out, which is UNKNOWN, decides. */
int stk_query_holds(const struct stk_query *query, const struct stk_query_value *values,
                    uint32_t *column_out);

/* Below, equal, above: -1, 0, 1. Both are numbers, or both are texts. */
int stk_query_compare(const struct stk_query_value *a, const struct stk_query_value *b);

#endif
