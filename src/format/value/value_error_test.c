/* Goal: an error of a JSON field names the kind of the value at its path, also if jansson cannot
 * hold it, or the names of the object. Method: rows of documents and paths, and parts of the error.
 * Covers json_lenient.c and value_tree.c. */
#include "format/value/value.h"

#include "test/t.h"

#include <stdio.h>
#include <string.h>

#define MEMORY_BYTES_MAX (1u << 20)

static struct stk_view view_of(const char *text, size_t bytes)
{
    return (struct stk_view){(const uint8_t *)text, bytes};
}

/* An error names the kind of the value at the path, or the names of the object. */
static void test_kinds_and_names(void)
{
    static const struct {
        const char *text, *path, *part;
        int status;
    } rows[] = {
        {"{\"x\": 1e999}", "x", "a number beyond the largest double found", STOKER_ERROR_FORMAT},
        {"{\"x\": \"\\ud800\"}", "x", "text with half a surrogate pair", STOKER_ERROR_FORMAT},
        {"{\"x\": [-1e999]}", "x.0", "a number beyond the largest double", STOKER_ERROR_FORMAT},
        {"{\"x\": null}", "x", "null found", STOKER_ERROR_FORMAT},
        {"{\"width\": 1, \"b\": {}}", "widht", "an object, which has: width b",
         STOKER_ERROR_MISSING},
        {"{\"b\": {\"c\": 1}}", "b.d", "an object, which has: c", STOKER_ERROR_MISSING},
        {"{\"b\": [1, 2]}", "b.2", "a list, which has 2 items", STOKER_ERROR_MISSING},
        {"{\"b\": 5}", "b.c", "'c' in a number", STOKER_ERROR_MISSING},
        {"{}", "c", "'c' in an object", STOKER_ERROR_MISSING},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_view bytes = view_of(rows[i].text, strlen(rows[i].text));
        struct stoker_error error = {0};
        struct stk_value value;
        int64_t number;
        int status =
            stk_value_open(&value, STK_VALUE_JSON, bytes, rows[i].path, MEMORY_BYTES_MAX, &error);

        status = status < 0 ? status : stk_value_int(&value, &number, &error);
        T_EQ(rows[i].text, status, rows[i].status);
        T_HAS(rows[i].text, error.where, rows[i].part);
        if (status != STOKER_ERROR_MISSING) {
            stk_value_close(&value);
        }
    }
}

/* Objects of many or of long names: the list of names ends with "...". */
static void test_many_names(void)
{
    static char text[1 << 14];
    size_t used = 1;
    struct stoker_error error = {0};
    struct stk_value value;

    text[0] = '{';
    for (int i = 0; i < 500; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s\"name %d\": 1", i ? ", " : "", i);
    }
    text[used++] = '}';
    T_EQ("many",
         stk_value_open(&value, STK_VALUE_JSON, view_of(text, used), "x", MEMORY_BYTES_MAX, &error),
         STOKER_ERROR_MISSING);
    T_HAS("many", error.where, "name 0 name 1");
    T_TRUE("many", strcmp(error.where + strlen(error.where) - 4, " ...") == 0);
}

int main(void)
{
    test_kinds_and_names();
    test_many_names();
    return t_finish();
}
