/* Goal: each line is found under its name, unchanged; a bad line is refused with its number.
 * Method: rows of texts; every allocation fails once. */
#include "format/manifest/metadata_jsonl.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

static const char good[] =
    "\xef\xbb\xbf{\"file_name\": \"b.jpg\", \"n\": 123456789012345678901}\r\n"
    "\n"
    "  {\"x\": 1.50, \"file_name\": \"a/\\u00fc \\\"1\\\".png\"}  \n"
    "{\"file_name\":\"a\"}";

static const struct row {
    const char *name, *want; /* NULL: not there */
} rows[] = {
    {"b.jpg", "{\"file_name\": \"b.jpg\", \"n\": 123456789012345678901}"},
    {"a/ü \"1\".png", "{\"x\": 1.50, \"file_name\": \"a/\\u00fc \\\"1\\\".png\"}"},
    {"a", "{\"file_name\":\"a\"}"},
    {"", NULL},
    {"a/", NULL},
    {"b.jp", NULL},
    {"b.jpgg", NULL},
    {"c", NULL},
};

static void test_lines(void)
{
    struct stk_metadata_jsonl metadata;

    T_EQ("parse", stk_metadata_jsonl_parse(&metadata, stk_view_of_text(good), NULL), 0);
    T_EQ("lines", metadata.count, 3);
    T_EACH(row, row, rows)
    {
        const struct stk_metadata_jsonl_line *line =
            stk_metadata_jsonl_find(&metadata, stk_view_of_text(row->name));

        if (T_TRUE(row->name, (line != NULL) == (row->want != NULL)) && line) {
            T_EQ(row->name, line->bytes, strlen(row->want));
            T_TRUE(row->name, memcmp(good + line->at, row->want, line->bytes) == 0);
        }
    }
    stk_metadata_jsonl_deinit(&metadata);
    T_EQ("nothing", stk_metadata_jsonl_parse(&metadata, stk_view_of_text("\n \n"), NULL), 0);
    T_TRUE("nothing", stk_metadata_jsonl_find(&metadata, stk_view_of_text("a")) == NULL);
    stk_metadata_jsonl_deinit(&metadata);
}

static const struct refusal {
    const char *name, *text, *where;
} refusals[] = {
    {"not JSON", "{\"file_name\": \"a\"}\n{\"file_name\": b}\n", "line 2"},
    {"torn", "{\"file_name\": \"a\"", "line 1"},
    {"two on a line", "{\"file_name\": \"a\"}{\"file_name\": \"b\"}", "line 1"},
    {"a list", "\n[\"file_name\"]", "line 2"},
    {"no name", "{\"name\": \"a\"}", "line 1"},
    {"a number", "{\"file_name\": 7}", "line 1"},
    {"empty", "{\"file_name\": \"\"}", "line 1"},
    {"NUL", "{\"file_name\": \"a\\u0000b\"}", "line 1"},
    {"not UTF-8", "{\"file_name\": \"\xff\"}", "line 1"},
    {"field twice", "{\"file_name\": \"a\", \"file_name\": \"b\"}", "line 1"},
    {"name twice", "{\"file_name\": \"a\"}\n{\"file_name\": \"b\"}\n{\"file_name\": \"a\"}", "'a'"},
};

static void test_refusals(void)
{
    T_EACH(refusal, row, refusals)
    {
        struct stk_metadata_jsonl metadata;
        struct stoker_error error = {0};

        T_EQ(row->name, stk_metadata_jsonl_parse(&metadata, stk_view_of_text(row->text), &error),
             STOKER_ERROR_FORMAT);
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.where, row->where);
    }
}

static void test_memory(void)
{
    struct stk_metadata_jsonl metadata;
    struct stoker_error error = {0};
    int status = -ENOMEM;

    for (uint64_t n = 1; status == -ENOMEM; n++) {
        stk_mem_fail_nth(n);
        status = stk_metadata_jsonl_parse(&metadata, stk_view_of_text(good), &error);
        stk_mem_fail_nth(0);
        T_TRUE("memory", status == 0 || status == -ENOMEM);
        T_TRUE("both fail", status == -ENOMEM || n > 2);
    }
    stk_metadata_jsonl_deinit(&metadata);
}

int main(void)
{
    test_lines();
    test_refusals();
    test_memory();
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
