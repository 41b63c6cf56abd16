/* Goal: a predicate has the same result as in Python, reads no column needlessly, and a bad one is
 * refused with its place.
 * Method: rows of predicates over a few columns with Python's result; the columns that are read;
 * rows of refusals; depth, length and failing memory. (python/tests/test_sampling.py compares
 * random predicates with Python.) */
#include "order/predicate/predicate.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

/* label 3, size 10,000, key "a/17", json.score 0.5, json.none has none, big 2^53 + 1, zip the text
 * 02139, which is a number. */
static struct stk_predicate_value column_of(const char *name)
{
    struct stk_predicate_value value = {.kind = STK_PREDICATE_NONE};

    if (strcmp(name, "label") == 0) {
        value = (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = 3};
    } else if (strcmp(name, "size") == 0) {
        value = (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = 10000};
    } else if (strcmp(name, "below") == 0) {
        value = (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = -7};
    } else if (strcmp(name, "big") == 0) {
        value =
            (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = 9007199254740993};
    } else if (strcmp(name, "hash") == 0) {
        value = stk_predicate_natural(12345678901234567890u);
    } else if (strcmp(name, "huge") == 0) {
        value = (struct stk_predicate_value){.kind = STK_PREDICATE_REAL, .real = 1e300};
    } else if (strcmp(name, "key") == 0) {
        value = (struct stk_predicate_value){.kind = STK_PREDICATE_TEXT,
                                             .text = stk_view_of_text("a/17")};
    } else if (strcmp(name, "zip") == 0) {
        value = (struct stk_predicate_value){
            .kind = STK_PREDICATE_INT, .integer = 2139, .written = stk_view_of_text("02139")};
    } else if (strcmp(name, "json.score") == 0) {
        value = (struct stk_predicate_value){.kind = STK_PREDICATE_REAL, .real = 0.5};
    }
    return value;
}

/* The result; columns: those read, in the sequence in which they were read, with blanks. */
static int ask(const struct stk_predicate *query, char columns[256])
{
    struct stk_predicate_value values[STK_PREDICATE_COLUMNS_MAX] = {0};
    uint32_t column = 0;
    int answer;

    columns[0] = '\0';
    while ((answer = stk_predicate_evaluate(query, values, &column)) < 0) {
        if (values[column].kind != STK_PREDICATE_UNKNOWN) {
            return -1; /* its columns were read */
        }
        values[column] = column_of(query->columns[column]);
        strncat(columns, query->columns[column], 255 - strlen(columns));
        strncat(columns, " ", 255 - strlen(columns));
    }
    return answer;
}

/* clang-format off: one row, one line. */
static const struct row {
    const char *text;
    int answer;
    const char *columns;
} rows[] = {
    {"label == 3", 1, "label "},
    {"label==4", 0, "label "},
    {"label != 3", 0, "label "},
    {"3 <= label", 1, "label "},
    {"label < 3 or label > 3", 0, "label "},
    {"label in (3, 7) and size > 9_999", 1, "label size "},
    {"label in (4, 7) and size > 9_999", 0, "label "},
    {"label in (1, 2,)", 0, "label "},
    {"label not in (1, 2)", 1, "label "},
    {"label in (5, 'x', 3.0, -1)", 1, "label "},
    {"label == 3 or json.score > 1", 1, "label "},
    {"label == 2 or json.score > 1", 0, "label json.score "},
    {"not label == 2 and not (size == 5 or size == 6)", 1, "label size "},
    {"not not label == 3", 1, "label "},
    {"0 < label <= 3 < size", 1, "label size "},
    {"0 < label < 3 < size", 0, "label "},
    {"label == 1 and size == 1 or label == 3", 1, "label "},
    {"label == 3 or size == 1 and size == 2", 1, "label "},
    {"(label == 3 or size == 1) and size == 2", 0, "label size "},
    {"json.score == 0.5", 1, "json.score "},
    {"json.score < 5e-1", 0, "json.score "},
    {"json.score > -.5e0 - 1", -1, ""},
    {"size == 1e4", 1, "size "},
    {"size > 9999.5", 1, "size "},
    {"size < 10000.5", 1, "size "},
    {"big == 9007199254740993", 1, "big "},
    {"big > 9007199254740992.0", 1, "big "}, /* as a double it would be equal */
    {"huge > big", 1, "huge big "},
    {"big < huge", 1, "big huge "},
    {"-1e20 < below", 1, "below "},
    {"below > -7.5", 1, "below "},
    {"below < -6.5", 1, "below "},
    {"below % 5 == 3", 1, "below "}, /* as Python's: never below 0 */
    {"label % 2 == 1", 1, "label "},
    {"json.score % 2 == 0", 0, "json.score "},
    {"key == 'a/17'", 1, "key "},
    {"key == \"a/17\"", 1, "key "},
    {"key > 'a/1'", 1, "key "},
    {"key < 'a/170'", 1, "key "},
    {"key == 'a\\/17'", 1, "key "},
    {"key in ('b', 'a/17', 'c')", 1, "key "},
    {"key == 17", 0, "key "},
    {"key != 17", 0, "key "}, /* a text and a number do not compare */
    {"'' < key", 1, "key "},
    {"json.none == 1", 0, "json.none "},
    {"json.none != 1", 0, "json.none "},
    {"not json.none > 1", 1, "json.none "},
    {"json.none is none", 1, "json.none "},
    {"json.none is not None", 0, "json.none "},
    {"label is not none and label == true", 0, "label "},
    {"json.none in (1, 2)", 0, "json.none "},
    {"json.none not in (1, 2)", 1, "json.none "},
    {"zip == 2139", 1, "zip "},
    {"zip == '02139'", 1, "zip "}, /* with texts its text compares */
    {"zip == '2139'", 0, "zip "},
    {"zip != '2139'", 1, "zip "},
    {"zip < '1' and zip > 1", 1, "zip "},
    {"zip in ('x', '02139')", 1, "zip "},
    {"zip in (1, 'x', 2139)", 1, "zip "},
    {"zip in ('2139', 1)", 0, "zip "},
    {"zip % 10 == 9", 1, "zip "},
    {"zip % 10 == '02139'", 0, "zip "}, /* a remainder has no text */
    {"zip == key", 0, "zip key "},
    {"hash == 12345678901234567890", 1, "hash "},
    {"hash == 12345678901234567891", 0, "hash "},
    {"hash in (1, 12345678901234567891, 12345678901234567890)", 1, "hash "},
    {"hash > 9223372036854775807", 1, "hash "},
    {"hash > label", 1, "hash label "},
    {"label < hash", 1, "label hash "},
    {"hash < huge", 1, "hash huge "},
    {"hash > 1e18 and hash < 18446744073709551615", 1, "hash "},
    {"hash != 1.5", 1, "hash "},
    {"hash % 1000 == 890", 1, "hash "},
    {"-9223372036854775808 < label", 1, "label "},
    {"label == 1234567890123456789", 0, "label "},
    {"true == 1", 1, ""},
    {"  false\t<\ntrue ", 1, ""},
    {"inner.in-left == 1 or order == 1 or nothing is none", 1, "inner.in-left order nothing "},
    {"", -1, ""},
    {"label", -1, ""},
    {"label =", -1, ""},
    {"label = 3", -1, ""},
    {"label == ", -1, ""},
    {"label == 3 3", -1, ""},
    {"label == 3)", -1, ""},
    {"(label == 3", -1, ""},
    {"label in 3", -1, ""},
    {"label in ()", -1, ""},
    {"label in (3", -1, ""},
    {"label in (3 4)", -1, ""},
    {"label in (size)", -1, ""},
    {"label not 3", -1, ""},
    {"label is 3", -1, ""},
    {"label % 0 == 1", -1, ""},
    {"label % -3 == 1", -1, ""},
    {"label % 2.5 == 1", -1, ""},
    {"label % size == 1", -1, ""},
    {"and == 3", -1, ""},
    {"label == and", -1, ""},
    {"label == 3 and", -1, ""},
    {"not", -1, ""},
    {"key == 'a", -1, ""},
    {"key == 'a\\", -1, ""},
    {"label == 3x", -1, ""},
    {"label == 1e", -1, ""},
    {"label == 1e99", -1, ""},
    {"label == 18446744073709551616", -1, ""},
    {"label == -9223372036854775809", -1, ""},
    {"label == 1234567890123456789.0", -1, ""},
    {"label == 0.00000000000000000000000001", -1, ""},
    {"label == - size", -1, ""},
    {"__import__('os')", -1, ""},
    {"label; size", -1, ""},
};
/* clang-format on */

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_predicate query;
        struct stoker_error error = {0};
        char columns[256];
        int status = stk_predicate_parse(&query, stk_view_of_text(row->text), &error);

        if (row->answer < 0) {
            T_EQ(row->text, status, STOKER_ERROR_ARGUMENT);
            T_ERROR(row->text, &error);
            continue;
        }
        T_EQ(row->text, status, 0);
        T_EQ(row->text, ask(&query, columns), row->answer);
        T_STR(row->text, columns, row->columns);
        stk_predicate_deinit(&query);
    }
}

static void test_place(void)
{
    struct stk_predicate query;
    struct stoker_error error = {0};

    T_EQ("place", stk_predicate_parse(&query, stk_view_of_text("label == 3 and size ~ 4"), &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("place", error.where, "at 20: '~ 4'");
}

static void test_column(void)
{
    static const char *const refused[] = {"", "3", "'label'", "label == 3", "a b", "not", "-a"};
    struct stk_predicate query;
    struct stoker_error error;

    T_EQ("column", stk_predicate_parse_column(&query, stk_view_of_text(" json.score "), NULL), 0);
    T_EQ("column", query.column_count, 1);
    T_STR("column", query.columns[0], "json.score");
    stk_predicate_deinit(&query);
    for (size_t i = 0; i < STK_COUNT(refused); i++) {
        error = (struct stoker_error){0};
        T_EQ(refused[i], stk_predicate_parse_column(&query, stk_view_of_text(refused[i]), &error),
             STOKER_ERROR_ARGUMENT);
        T_ERROR(refused[i], &error);
    }
}

static void test_bounds(void)
{
    static char text[STK_PREDICATE_BYTES_MAX + 2];
    struct stk_predicate query;
    struct stoker_error error = {0};
    char columns[256];
    size_t bytes = 0;

    memset(text, '(', 100000);
    T_EQ("deep", stk_predicate_parse(&query, stk_view_of_text(text), &error), STOKER_ERROR_LIMIT);
    T_ERROR("deep", &error);
    for (int i = 0; i < 30000; i++) { /* long, but not deep */
        bytes += (size_t)snprintf(text + bytes, 32, "label == %d or ", 100 + i);
    }
    memcpy(text + bytes, "label == 3", 11);
    T_EQ("long", stk_predicate_parse(&query, stk_view_of_text(text), &error), 0);
    T_EQ("long", ask(&query, columns), 1);
    stk_predicate_deinit(&query);
    memset(text, ' ', sizeof text - 1);
    T_EQ("too long", stk_predicate_parse(&query, stk_view_of_text(text), &error),
         STOKER_ERROR_LIMIT);
    bytes = 0;
    for (int i = 0; i < 33; i++) {
        bytes += (size_t)snprintf(text + bytes, 32, "%sc%d == 1", i ? " or " : "", i);
    }
    T_EQ("columns", stk_predicate_parse(&query, stk_view_of_text(text), &error),
         STOKER_ERROR_ARGUMENT);
    for (uint64_t n = 1; n <= 4; n++) {
        error = (struct stoker_error){0};
        stk_mem_fail_nth(n);
        T_EQ("no memory", stk_predicate_parse(&query, stk_view_of_text("label == 3"), &error), -12);
        T_ERROR("no memory", &error);
    }
    stk_mem_fail_nth(0);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(void)
{
    test_rows();
    test_place();
    test_column();
    test_bounds();
    return t_finish();
}
