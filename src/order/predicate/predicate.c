/* A recursive-descent parser, and the evaluation of its syntax tree. The value of a node is 1, 0 or
 * "unknown"; `and` and `or` stop at the first operand that decides them. */
#include "order/predicate/predicate.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_NODE UINT32_MAX
#define DIGITS_MAX 18u              /* of a number with a point or exponent */
#define EXACT_MAX 9007199254740992u /* 2^53: integers up to this are exact in a double */
#define TEN_MAX 22                  /* powers of ten up to this are doubles */

static const double tens[TEN_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                         1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                         1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

enum node_kind { NODE_AND, NODE_OR, NODE_NOT, NODE_COMPARE, NODE_IN, NODE_NONE };
enum compare { EQ, NE, LT, LE, GT, GE };

struct stk_predicate_node {
    uint8_t kind, compare;
    uint32_t next; /* the node beside it below the same and, or; NO_NODE at the end */
    uint32_t a, b; /* and, or, not: first child. compare: operands. in: first and end of literals */
    uint32_t operand; /* in, none */
};

struct stk_predicate_operand {
    bool is_column;
    uint32_t index;
    int64_t modulus; /* 0: as it is */
};

struct parser {
    struct stk_predicate *query;
    struct stk_view text;
    size_t at;
    uint32_t node_count, operand_count, literal_count, depth;
    size_t text_bytes; /* of query->text in use */
    struct stoker_error *error;
};

static int parse_either(struct parser *parser, uint32_t *node_out);

/* ---- words ---- */

static int fail_syntax(const struct parser *parser, const char *what)
{
    size_t left = parser->text.bytes - parser->at;

    return stk_fail(parser->error, STOKER_ERROR_ARGUMENT, what,
                    "write it like: label in (3, 7) and size > 10_000 and not json.blurred == true",
                    left > 0 ? "'%.*s' at %zu: '%.*s'" : "'%.*s' at %zu: its end",
                    (int)stk_min(parser->text.bytes, 200), (const char *)parser->text.data,
                    parser->at, (int)stk_min(left, 40),
                    (const char *)parser->text.data + parser->at);
}

static int peek(const struct parser *parser, size_t ahead)
{
    return parser->text.bytes - parser->at > ahead ? parser->text.data[parser->at + ahead] : -1;
}

static void skip_blanks(struct parser *parser)
{
    while (peek(parser, 0) == ' ' || peek(parser, 0) == '\t' || peek(parser, 0) == '\n') {
        parser->at++;
    }
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_name_byte(int c)
{
    return is_letter(c) || is_digit(c) || c == '.' || c == '-';
}

/* Consumes the word if it is the next complete word. */
static bool accept_word(struct parser *parser, const char *word)
{
    size_t bytes = strlen(word);

    skip_blanks(parser);
    if (parser->text.bytes - parser->at < bytes ||
        memcmp(parser->text.data + parser->at, word, bytes) != 0 ||
        (is_letter(word[0]) && is_name_byte(peek(parser, bytes)))) {
        return false;
    }
    parser->at += bytes;
    return true;
}

/* ---- literals and operands ---- */

/* Parses digits[.digits][e[+-]digits], with `_` allowed between digits. A number with a point or
 * exponent is exact to the last bit: its digits and its power of ten are exact doubles, so a
 * single operation rounds it. The locale has no effect. */
static int parse_number(struct parser *parser, struct stk_predicate_value *value)
{
    uint64_t digits = 0;
    uint32_t count = 0;
    int exponent = 0, scale = 0;
    bool is_real = false, fits = true;

    for (int c = peek(parser, 0); is_digit(c) || c == '_' || (c == '.' && !is_real);
         c = peek(parser, 0)) {
        is_real = is_real || c == '.';
        if (is_digit(c)) {
            fits = fits && !__builtin_mul_overflow(digits, 10u, &digits) &&
                   !__builtin_add_overflow(digits, (uint64_t)(c - '0'), &digits);
            count += digits > 0;
            scale -= is_real;
        }
        if (!fits || (is_real && count > DIGITS_MAX) || scale < -TEN_MAX) {
            return fail_syntax(parser, "a number in a subset has too many digits");
        }
        parser->at++;
    }
    if (peek(parser, 0) == 'e' || peek(parser, 0) == 'E') {
        bool is_below = peek(parser, 1) == '-';

        parser->at += 1 + (is_below || peek(parser, 1) == '+');
        is_real = true;
        if (!is_digit(peek(parser, 0))) {
            return fail_syntax(parser, "a number in a subset has no exponent");
        }
        for (; is_digit(peek(parser, 0)) && exponent < 1000; parser->at++) {
            exponent = exponent * 10 + peek(parser, 0) - '0';
        }
        exponent = is_below ? -exponent : exponent;
    }
    if (is_name_byte(peek(parser, 0))) {
        return fail_syntax(parser, "a subset cannot be read");
    }
    if (!is_real) {
        *value = stk_predicate_natural(digits);
        return 0;
    }
    if (count > DIGITS_MAX) {
        return fail_syntax(parser, "a number in a subset has too many digits");
    }
    for (; scale < 0 && digits % 10 == 0; scale++) {
        digits /= 10;
    }
    exponent += scale;
    if (digits > EXACT_MAX || exponent < -TEN_MAX || exponent > TEN_MAX) {
        return fail_syntax(parser, "a number in a subset has too many digits");
    }
    *value = (struct stk_predicate_value){
        .kind = STK_PREDICATE_REAL,
        .real = exponent < 0 ? (double)digits / tens[-exponent] : (double)digits * tens[exponent],
    };
    return 0;
}

/* Parses 'text' or "text"; the byte after a backslash is used unchanged. */
static int parse_text(struct parser *parser, struct stk_predicate_value *value)
{
    int quote = peek(parser, 0);
    size_t first = parser->text_bytes;

    parser->at++;
    while (peek(parser, 0) != quote) {
        parser->at += peek(parser, 0) == '\\';
        if (peek(parser, 0) < 0) {
            return fail_syntax(parser, "a text in a subset has no end");
        }
        parser->query->text[parser->text_bytes++] = (char)peek(parser, 0);
        parser->at++;
    }
    parser->at++;
    *value = (struct stk_predicate_value){
        .kind = STK_PREDICATE_TEXT,
        .text = {(const uint8_t *)parser->query->text + first, parser->text_bytes - first},
    };
    return 0;
}

/* Returns 1 if there is a literal, 0 if the next token is not a literal. */
static int parse_literal(struct parser *parser, struct stk_predicate_value *value)
{
    bool is_negative;
    int status;

    skip_blanks(parser);
    if (peek(parser, 0) == '\'' || peek(parser, 0) == '"') {
        status = parse_text(parser, value);
        return status < 0 ? status : 1;
    }
    if (accept_word(parser, "true") || accept_word(parser, "True") ||
        accept_word(parser, "false") || accept_word(parser, "False")) {
        bool is_true = parser->text.data[parser->at - 2] == 'u';

        *value = (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = is_true};
        return 1;
    }
    is_negative = accept_word(parser, "-");
    skip_blanks(parser);
    if (!is_digit(peek(parser, 0))) {
        return is_negative ? fail_syntax(parser, "a number is missing in a subset") : 0;
    }
    status = parse_number(parser, value);
    if (status == 0 && is_negative && value->kind == STK_PREDICATE_NATURAL) {
        if (value->natural > (uint64_t)INT64_MAX + 1) {
            return fail_syntax(parser, "a number in a subset has too many digits");
        }
        *value = (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = INT64_MIN};
    } else if (is_negative && value->kind == STK_PREDICATE_INT) {
        value->integer = -value->integer;
    } else if (is_negative) {
        value->real = -value->real;
    }
    return status < 0 ? status : 1;
}

static int parse_name(struct parser *parser, uint32_t *column_out)
{
    static const char *const reserved[] = {"and", "or", "not", "in", "is", "none", "None"};
    struct stk_predicate *query = parser->query;
    size_t first = parser->at, bytes;
    const char *name;

    while (is_name_byte(peek(parser, 0))) {
        parser->at++;
    }
    bytes = parser->at - first;
    name = (const char *)parser->text.data + first;
    for (size_t i = 0; i < STK_COUNT(reserved); i++) {
        if (strlen(reserved[i]) == bytes && memcmp(reserved[i], name, bytes) == 0) {
            parser->at = first;
            return fail_syntax(parser, "a column or a value is missing in a subset");
        }
    }
    for (uint32_t i = 0; i < query->column_count; i++) {
        if (strlen(query->columns[i]) == bytes && memcmp(query->columns[i], name, bytes) == 0) {
            *column_out = i;
            return 0;
        }
    }
    if (query->column_count == STK_PREDICATE_COLUMNS_MAX) {
        return fail_syntax(parser, "a subset names too many columns (32 at most)");
    }
    *column_out = query->column_count++;
    query->columns[*column_out] = query->text + parser->text_bytes;
    memcpy(query->text + parser->text_bytes, name, bytes);
    parser->text_bytes += bytes + 1; /* memory is zeroed: the NUL is there */
    return 0;
}

static int parse_operand(struct parser *parser, uint32_t *operand_out)
{
    struct stk_predicate_value literal;
    struct stk_predicate_operand operand = {0};
    int status = parse_literal(parser, &literal);

    if (status == 1) {
        operand.index = parser->literal_count;
        parser->query->literals[parser->literal_count++] = literal;
    } else if (status == 0 && is_letter(peek(parser, 0))) {
        operand.is_column = true;
        status = parse_name(parser, &operand.index);
        if (status == 0 && accept_word(parser, "%")) {
            status = parse_literal(parser, &literal);
            operand.modulus =
                status == 1 && literal.kind == STK_PREDICATE_INT ? literal.integer : 0;
            if (status >= 0 && operand.modulus <= 0) {
                status = fail_syntax(parser, "% in a subset needs a whole number above 0 after it");
            }
        }
    } else if (status == 0) {
        status = fail_syntax(parser, "a column or a value is missing in a subset");
    }
    if (status < 0) {
        return status;
    }
    *operand_out = parser->operand_count;
    parser->query->operands[parser->operand_count++] = operand;
    return 0;
}

/* ---- tests ---- */

static uint32_t add_node(struct parser *parser, struct stk_predicate_node node)
{
    node.next = NO_NODE;
    parser->query->nodes[parser->node_count] = node;
    return parser->node_count++;
}

/* Sorts numbers before texts, so that one search finds either. */
static int compare_literals(const void *a, const void *b)
{
    const struct stk_predicate_value *left = a, *right = b;
    bool is_text[2] = {left->kind == STK_PREDICATE_TEXT, right->kind == STK_PREDICATE_TEXT};

    return is_text[0] != is_text[1] ? is_text[0] - is_text[1] : stk_predicate_compare(left, right);
}

static int parse_list(struct parser *parser, uint32_t operand, uint32_t *node_out)
{
    struct stk_predicate_value *literals = parser->query->literals;
    struct stk_predicate_node node = {
        .kind = NODE_IN, .operand = operand, .a = parser->literal_count};
    int status =
        accept_word(parser, "(") ? 1 : fail_syntax(parser, "'in' needs a list in brackets");

    while (status == 1 && !accept_word(parser, ")")) {
        struct stk_predicate_value literal;

        status = parse_literal(parser, &literal);
        if (status == 0) {
            return fail_syntax(parser, "a list in a subset has values and no columns");
        }
        if (status == 1) {
            literals[parser->literal_count++] = literal;
            if (!accept_word(parser, ",") && !(peek(parser, 0) == ')')) {
                return fail_syntax(parser, "a list in a subset has no end");
            }
        }
    }
    node.b = parser->literal_count;
    if (status < 0 || node.a == node.b) {
        return status < 0 ? status : fail_syntax(parser, "a list in a subset is empty");
    }
    qsort(literals + node.a, node.b - node.a, sizeof *literals, compare_literals);
    *node_out = add_node(parser, node);
    return 0;
}

static uint32_t negate(struct parser *parser, uint32_t node)
{
    return add_node(parser, (struct stk_predicate_node){.kind = NODE_NOT, .a = node});
}

/* a < b < c: both comparisons must be true. */
static int parse_chain(struct parser *parser, uint32_t operand, uint32_t *node_out)
{
    static const struct {
        const char *text;
        uint8_t compare;
    } signs[] = {{"==", EQ}, {"!=", NE}, {"<=", LE}, {">=", GE}, {"<", LT}, {">", GT}};
    uint32_t first = NO_NODE, last = NO_NODE;

    while (true) {
        struct stk_predicate_node node = {.kind = NODE_COMPARE, .a = operand};
        size_t sign = 0;
        int status;

        while (sign < STK_COUNT(signs) && !accept_word(parser, signs[sign].text)) {
            sign++;
        }
        if (sign == STK_COUNT(signs)) {
            break;
        }
        node.compare = signs[sign].compare;
        status = parse_operand(parser, &operand);
        if (status < 0) {
            return status;
        }
        node.b = operand;
        if (first == NO_NODE) {
            first = last = add_node(parser, node);
        } else {
            uint32_t added = add_node(parser, node);

            parser->query->nodes[last].next = added;
            last = added;
        }
    }
    if (first == NO_NODE) {
        return fail_syntax(parser, "a comparison is missing in a subset");
    }
    *node_out = first == last
                    ? first
                    : add_node(parser, (struct stk_predicate_node){.kind = NODE_AND, .a = first});
    return 0;
}

static int parse_test(struct parser *parser, uint32_t *node_out)
{
    uint32_t operand = 0;
    bool is_not;
    int status = parse_operand(parser, &operand);

    if (status < 0) {
        return status;
    }
    if (accept_word(parser, "is")) {
        is_not = accept_word(parser, "not");
        if (!accept_word(parser, "none") && !accept_word(parser, "None")) {
            return fail_syntax(parser, "'is' takes none, or not none");
        }
        *node_out =
            add_node(parser, (struct stk_predicate_node){.kind = NODE_NONE, .operand = operand});
    } else {
        is_not = accept_word(parser, "not");
        if (!is_not && !accept_word(parser, "in")) {
            return parse_chain(parser, operand, node_out);
        }
        if (is_not && !accept_word(parser, "in")) {
            return fail_syntax(parser, "'in' is missing after 'not'");
        }
        status = parse_list(parser, operand, node_out);
    }
    if (status == 0 && is_not) {
        *node_out = negate(parser, *node_out);
    }
    return status;
}

static int parse_one(struct parser *parser, uint32_t *node_out)
{
    int status;

    if (parser->depth == STK_PREDICATE_DEPTH_MAX) {
        return stk_fail(parser->error, STOKER_ERROR_LIMIT, "a subset is nested too deep",
                        "write it with fewer parentheses", "64 deep at %zu", parser->at);
    }
    parser->depth++;
    if (accept_word(parser, "not")) {
        status = parse_one(parser, node_out);
        if (status == 0) {
            *node_out = negate(parser, *node_out);
        }
    } else if (accept_word(parser, "(")) {
        status = parse_either(parser, node_out);
        if (status == 0 && !accept_word(parser, ")")) {
            status = fail_syntax(parser, "a bracket is not closed in a subset");
        }
    } else {
        status = parse_test(parser, node_out);
    }
    parser->depth--;
    return status;
}

/* Parses one or more parts separated by a word. The parts become siblings below one node. */
static int parse_parts(struct parser *parser, uint8_t kind, uint32_t *node_out)
{
    const char *word = kind == NODE_OR ? "or" : "and";
    uint32_t first = NO_NODE, last = NO_NODE, part = NO_NODE;

    do {
        int status =
            kind == NODE_OR ? parse_parts(parser, NODE_AND, &part) : parse_one(parser, &part);
        if (status < 0) {
            return status;
        }
        if (first == NO_NODE) {
            first = part;
        } else {
            parser->query->nodes[last].next = part;
        }
        last = part;
    } while (accept_word(parser, word));
    *node_out = first == last
                    ? first
                    : add_node(parser, (struct stk_predicate_node){.kind = kind, .a = first});
    return 0;
}

static int parse_either(struct parser *parser, uint32_t *node_out)
{
    return parse_parts(parser, NODE_OR, node_out);
}

/* ---- the complete expression ---- */

static int start(struct parser *parser, struct stk_predicate *query, struct stk_view text,
                 struct stoker_error *error)
{
    *query = (struct stk_predicate){.root = NO_NODE};
    *parser = (struct parser){.query = query, .text = text, .error = error};
    if (text.bytes > STK_PREDICATE_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the text of a subset is too long",
                        "give a list of samples instead", "%zu bytes, at most 1 MiB", text.bytes);
    }
    /* Every node, operand and literal needs at least one byte of text; a chain or a part needs one
     * additional node. A name is stored with a NUL, but a sign or the end of the text follows
     * it. */
    query->text = stk_alloc(text.bytes + STK_PREDICATE_COLUMNS_MAX + 1, 1);
    query->nodes = stk_alloc(2 * text.bytes + 2, sizeof *query->nodes);
    query->operands = stk_alloc(text.bytes + 1, sizeof *query->operands);
    query->literals = stk_alloc(text.bytes + 1, sizeof *query->literals);
    if (!query->text || !query->nodes || !query->operands || !query->literals) {
        return stk_fail_memory(error, "predicate, %zu bytes", text.bytes);
    }
    return 0;
}

static int finish(struct parser *parser, int status)
{
    skip_blanks(parser);
    if (status == 0 && parser->at < parser->text.bytes) {
        status = fail_syntax(parser, "text follows the end of a subset");
    }
    if (status < 0) {
        stk_predicate_deinit(parser->query);
    }
    return status;
}

int stk_predicate_parse(struct stk_predicate *query, struct stk_view text,
                        struct stoker_error *error)
{
    struct parser parser;
    int status = start(&parser, query, text, error);

    status = status < 0 ? status : parse_either(&parser, &query->root);
    return finish(&parser, status);
}

int stk_predicate_parse_column(struct stk_predicate *query, struct stk_view text,
                               struct stoker_error *error)
{
    struct parser parser;
    uint32_t column;
    int status = start(&parser, query, text, error);

    skip_blanks(&parser);
    if (status == 0) {
        status = is_letter(peek(&parser, 0)) ? parse_name(&parser, &column)
                                             : fail_syntax(&parser, "this is no name of a column");
    }
    return finish(&parser, status);
}

void stk_predicate_deinit(struct stk_predicate *query)
{
    stk_free(query->text);
    stk_free(query->nodes);
    stk_free(query->operands);
    stk_free(query->literals);
    *query = (struct stk_predicate){0};
}

/* ---- evaluation ---- */

/* Compares an integer with a double, without rounding either. */
static int compare_mixed(int64_t integer, double real)
{
    double truncated;

    if (real >= 9223372036854775808.0) {
        return -1;
    }
    if (real < -9223372036854775808.0) {
        return 1;
    }
    truncated = (double)(int64_t)real; /* towards 0 */
    if (integer != (int64_t)real) {
        return integer < (int64_t)real ? -1 : 1;
    }
    return real > truncated ? -1 : real < truncated;
}

/* Compares an integer above INT64_MAX with a number. Doubles of that size have no fraction. */
static int compare_natural(uint64_t natural, const struct stk_predicate_value *other)
{
    uint64_t bound;

    if (other->kind == STK_PREDICATE_INT ||
        (other->kind == STK_PREDICATE_REAL && other->real < 0x1p63)) {
        return 1;
    }
    if (other->kind == STK_PREDICATE_REAL && other->real >= 0x1p64) {
        return -1;
    }
    bound = other->kind == STK_PREDICATE_REAL ? (uint64_t)other->real : other->natural;
    return (natural > bound) - (natural < bound);
}

struct stk_predicate_value stk_predicate_natural(uint64_t number)
{
    return number <= INT64_MAX
               ? (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = (int64_t)number}
               : (struct stk_predicate_value){.kind = STK_PREDICATE_NATURAL, .natural = number};
}

int stk_predicate_compare(const struct stk_predicate_value *a, const struct stk_predicate_value *b)
{
    if (a->kind == STK_PREDICATE_TEXT) {
        size_t bytes = stk_min(a->text.bytes, b->text.bytes);
        int order = bytes > 0 ? memcmp(a->text.data, b->text.data, bytes) : 0;

        order = order ? order : (a->text.bytes > b->text.bytes) - (a->text.bytes < b->text.bytes);
        return (order > 0) - (order < 0);
    }
    if (a->kind == STK_PREDICATE_NATURAL) {
        return compare_natural(a->natural, b);
    }
    if (b->kind == STK_PREDICATE_NATURAL) {
        return -compare_natural(b->natural, a);
    }
    if (a->kind == STK_PREDICATE_INT && b->kind == STK_PREDICATE_INT) {
        return (a->integer > b->integer) - (a->integer < b->integer);
    }
    if (a->kind == STK_PREDICATE_REAL && b->kind == STK_PREDICATE_REAL) {
        return (a->real > b->real) - (a->real < b->real);
    }
    return a->kind == STK_PREDICATE_INT ? compare_mixed(a->integer, b->real)
                                        : -compare_mixed(b->integer, a->real);
}

/* Returns false if the value is not known yet, and sets *column_out to the column that is
 * needed. */
static bool value_of(const struct stk_predicate *query, const struct stk_predicate_value *values,
                     uint32_t number, struct stk_predicate_value *value_out, uint32_t *column_out)
{
    const struct stk_predicate_operand *operand = &query->operands[number];

    if (!operand->is_column) {
        *value_out = query->literals[operand->index];
        return true;
    }
    *value_out = values[operand->index];
    if (value_out->kind == STK_PREDICATE_UNKNOWN) {
        *column_out = operand->index;
        return false;
    }
    if (operand->modulus > 0) {
        value_out->written = (struct stk_view){NULL, 0};
    }
    if (operand->modulus > 0 && value_out->kind == STK_PREDICATE_INT) {
        int64_t rest = value_out->integer % operand->modulus;

        value_out->integer = rest < 0 ? rest + operand->modulus : rest;
    } else if (operand->modulus > 0 && value_out->kind == STK_PREDICATE_NATURAL) {
        *value_out = stk_predicate_natural(value_out->natural % (uint64_t)operand->modulus);
    } else if (operand->modulus > 0) {
        value_out->kind = STK_PREDICATE_NONE;
    }
    return true;
}

static bool is_text(const struct stk_predicate_value *value)
{
    return value->kind == STK_PREDICATE_TEXT;
}

/* The text that a number was written as, if it is compared with a text. */
static struct stk_predicate_value as_text(const struct stk_predicate_value *value)
{
    return is_text(value) || !value->written.data
               ? *value
               : (struct stk_predicate_value){.kind = STK_PREDICATE_TEXT, .text = value->written};
}

static int evaluate_compare(uint8_t compare, const struct stk_predicate_value *left,
                            const struct stk_predicate_value *right)
{
    bool by_text = is_text(left) || is_text(right);
    struct stk_predicate_value texts[2] = {as_text(left), as_text(right)};
    const struct stk_predicate_value *a = by_text ? &texts[0] : left;
    const struct stk_predicate_value *b = by_text ? &texts[1] : right;
    int order;

    if (a->kind == STK_PREDICATE_NONE || b->kind == STK_PREDICATE_NONE ||
        is_text(a) != is_text(b)) {
        return 0;
    }
    order = stk_predicate_compare(a, b);
    switch (compare) {
    case EQ:
        return order == 0;
    case NE:
        return order != 0;
    case LT:
        return order < 0;
    case LE:
        return order <= 0;
    case GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

static bool is_listed(const struct stk_predicate *query, const struct stk_predicate_node *node,
                      const struct stk_predicate_value *value)
{
    const struct stk_predicate_value texts = as_text(value), *list = query->literals + node->a;
    size_t count = node->b - node->a;

    return value->kind != STK_PREDICATE_NONE &&
           (bsearch(value, list, count, sizeof *list, compare_literals) ||
            (value->written.data && bsearch(&texts, list, count, sizeof *list, compare_literals)));
}

static int evaluate(const struct stk_predicate *query, const struct stk_predicate_value *values,
                    uint32_t number, uint32_t *column_out)
{
    const struct stk_predicate_node *node = &query->nodes[number];
    struct stk_predicate_value a, b;
    int answer;

    switch ((enum node_kind)node->kind) {
    case NODE_AND:
    case NODE_OR:
        for (uint32_t part = node->a; part != NO_NODE; part = query->nodes[part].next) {
            answer = evaluate(query, values, part, column_out);
            if (answer != (node->kind == NODE_AND)) {
                return answer; /* decided, or unknown */
            }
        }
        return node->kind == NODE_AND;
    case NODE_NOT:
        answer = evaluate(query, values, node->a, column_out);
        return answer < 0 ? answer : !answer;
    case NODE_COMPARE:
        if (!value_of(query, values, node->a, &a, column_out) ||
            !value_of(query, values, node->b, &b, column_out)) {
            return -1;
        }
        return evaluate_compare(node->compare, &a, &b);
    case NODE_IN:
        if (!value_of(query, values, node->operand, &a, column_out)) {
            return -1;
        }
        return is_listed(query, node, &a);
    case NODE_NONE:
        if (!value_of(query, values, node->operand, &a, column_out)) {
            return -1;
        }
        return a.kind == STK_PREDICATE_NONE;
    }
    return 0;
}

int stk_predicate_evaluate(const struct stk_predicate *query,
                           const struct stk_predicate_value *values, uint32_t *column_out)
{
    STK_ASSERT(query->root != NO_NODE);
    return evaluate(query, values, query->root, column_out);
}
