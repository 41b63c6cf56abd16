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
 * a byte of text. Bound: STK_PREDICATE_BYTES_MAX, STK_PREDICATE_DEPTH_MAX,
 * STK_PREDICATE_COLUMNS_MAX. */
#ifndef ORDER_PREDICATE_PREDICATE_H
#define ORDER_PREDICATE_PREDICATE_H

#include "base/base.h"

#define STK_PREDICATE_BYTES_MAX (1u << 20)
#define STK_PREDICATE_DEPTH_MAX 64u
#define STK_PREDICATE_COLUMNS_MAX 32u

enum stk_predicate_kind {
    STK_PREDICATE_UNKNOWN, /* not yet told */
    STK_PREDICATE_NONE,    /* the sample has none */
    STK_PREDICATE_INT,     /* also true and false: 1 and 0 */
    STK_PREDICATE_REAL,    /* never NaN */
    STK_PREDICATE_TEXT,
};

struct stk_predicate_value {
    uint32_t kind; /* enum stk_predicate_kind */
    union {
        int64_t integer;
        double real;
        struct stk_view text; /* lent */
    };
};

struct stk_predicate_node;
struct stk_predicate_operand;

struct stk_predicate {
    char *text;                             /* owned: texts and names of columns, with their NULs */
    struct stk_predicate_node *nodes;       /* owned */
    struct stk_predicate_operand *operands; /* owned */
    struct stk_predicate_value *literals;   /* owned; those of a list are sorted */
    uint32_t root;
    uint32_t column_count;
    const char *columns[STK_PREDICATE_COLUMNS_MAX]; /* names, none twice; in `text` */
};

/* ARGUMENT: says where it cannot be read; LIMIT; ENOMEM. */
int stk_predicate_parse(struct stk_predicate *query, struct stk_view text,
                        struct stoker_error *error);
/* The name of one column and nothing else: a query of that column, which is never asked. */
int stk_predicate_parse_column(struct stk_predicate *query, struct stk_view text,
                               struct stoker_error *error);
void stk_predicate_deinit(struct stk_predicate *query); /* zeroed is fine */

/* values: one a column. 1 or 0; -1: *column_out, which is UNKNOWN, decides. */
int stk_predicate_evaluate(const struct stk_predicate *query,
                           const struct stk_predicate_value *values, uint32_t *column_out);

/* Below, equal, above: -1, 0, 1. Both are numbers, or both are texts. */
int stk_predicate_compare(const struct stk_predicate_value *a, const struct stk_predicate_value *b);

#endif
