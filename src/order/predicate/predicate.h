/* order/predicate/predicate.h: selects samples by a predicate over columns, such as
 * "label in (3, 7) and size > 10_000".
 *
 *   text --parse--> query, names of its columns
 *   values of columns --evaluate--> true | false | the column whose value is needed next
 *
 *   either    := both {"or" both}                  both := one {"and" one}
 *   one       := "not" one | "(" either ")" | operand test
 *   test      := {("==" | "!=" | "<" | "<=" | ">" | ">=") operand}   (more than one: a chain)
 *              | ["not"] "in" "(" literal {"," literal} [","] ")" | "is" ["not"] "none"
 *   operand   := literal | COLUMN ["%" number]
 *   literal   := ["-"] number | 'text' | "text" | "true" | "false"
 *
 * The syntax is that of Python. A comparison with a missing value (none), or between text and a
 * number, is false, also !=; so `not size > 5` is true for samples without a size. A text member
 * that is a number compares as a number with numbers, and as its text with texts. A column is
 * requested only if the result depends on it: write cheap columns first.
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
    STK_PREDICATE_UNKNOWN, /* not read yet */
    STK_PREDICATE_NONE,    /* the sample has none */
    STK_PREDICATE_INT,     /* also true and false: 1 and 0 */
    STK_PREDICATE_REAL,    /* never NaN */
    STK_PREDICATE_TEXT,
    STK_PREDICATE_NATURAL, /* an integer above INT64_MAX */
};

struct stk_predicate_value {
    uint32_t kind; /* enum stk_predicate_kind */
    union {
        int64_t integer;
        uint64_t natural;
        double real;
        struct stk_view text; /* valid until close */
    };
    struct stk_view written; /* of INT, NATURAL, REAL: the text of the number; data NULL: none */
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

/* Returns 0 on success, STOKER_ERROR_ARGUMENT with the offset of the syntax error,
 * STOKER_ERROR_LIMIT, -ENOMEM. */
int stk_predicate_parse(struct stk_predicate *query, struct stk_view text,
                        struct stoker_error *error);
/* Parses the name of one column and nothing else; the query is only used for the name. */
int stk_predicate_parse_column(struct stk_predicate *query, struct stk_view text,
                               struct stoker_error *error);
void stk_predicate_deinit(struct stk_predicate *query); /* a zeroed one is allowed */

/* values: one for each column. Returns 1 (true), 0 (false), or -1 if the result depends on the
 * value of *column_out, which is UNKNOWN. */
int stk_predicate_evaluate(const struct stk_predicate *query,
                           const struct stk_predicate_value *values, uint32_t *column_out);

/* INT, or NATURAL if the number is larger. */
struct stk_predicate_value stk_predicate_natural(uint64_t number);
/* Returns -1, 0 or 1: less, equal, greater. Both are numbers, or both are texts. */
int stk_predicate_compare(const struct stk_predicate_value *a, const struct stk_predicate_value *b);

#endif
