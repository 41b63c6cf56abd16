/* Goal: metadata.csv becomes the lines of JSON that a person would write; damage names its line.
 * Method: a table of both forms; all cuts of one of them under ASan; memory that fails. */
#include "base/mem.h"
#include "format/manifest/metadata_csv.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

static const struct row {
    const char *name, *csv, *json; /* json NULL: an error, whose place has `part` */
    const char *part;
} rows[] = {
    {"plain", "file_name,n\n1.jpg,5\n", "{\"file_name\": \"1.jpg\", \"n\": 5}\n", ""},
    {"no end", "file_name\n1.jpg", "{\"file_name\": \"1.jpg\"}\n", ""},
    {"windows",
     "\xef\xbb\xbf"
     "file_name,t\r\n1.jpg,a\r\n",
     "{\"file_name\": \"1.jpg\", \"t\": \"a\"}\n", ""},
    {"quotes", "file_name,t\n1.jpg,\"a, \"\"b\"\"\nc\"\n",
     "{\"file_name\": \"1.jpg\", \"t\": \"a, \\\"b\\\"\\u000ac\"}\n", ""},
    {"numbers", "a,b,c,d,e,f,file_name\n-1,0.5,1e-3,007,1.,+1,x\n",
     "{\"a\": -1, \"b\": 0.5, \"c\": 1e-3, \"d\": \"007\", \"e\": \"1.\", \"f\": \"+1\", "
     "\"file_name\": \"x\"}\n",
     ""},
    {"quoted number", "file_name,n\nx,\"5\"\n", "{\"file_name\": \"x\", \"n\": \"5\"}\n", ""},
    {"empty cell", "file_name,n\nx,\n", "{\"file_name\": \"x\", \"n\": null}\n", ""},
    {"empty lines", "file_name\n\nx\n\n", "{\"file_name\": \"x\"}\n", ""},
    {"a backslash", "file_name\na\\1.jpg\n", "{\"file_name\": \"a\\\\1.jpg\"}\n", ""},
    {"names alone", "file_name,n\n", "", ""},
    {"no file_name", "name,n\nx,1\n", NULL, "line 1"},
    {"nothing", "", NULL, "line 1"},
    {"too many", "file_name\nx\ny,1\n", NULL, "line 3"},
    {"empty lines of windows", "file_name\r\n\r\n\r\ny,1\r\n", NULL, "line 4"},
    {"an empty line in a cell", "file_name,t\nx,\"a\n\nb\"\ny\n", NULL, "line 5"},
    {"too few", "file_name,n\nx,1\ny\n", NULL, "line 3"},
    {"open quote", "file_name,n\nx,\"1\n", NULL, "not closed"},
    {"text behind a quote", "file_name,n\nx,\"1\"2\n", NULL, "line 2"},
};

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_view csv = {(const uint8_t *)row->csv, strlen(row->csv)};
        struct stoker_error error = {0};
        uint8_t *text;
        size_t bytes;
        int status = stk_metadata_csv_convert(csv, &text, &bytes, &error);

        T_EQ(row->name, status, row->json ? 0 : STOKER_ERROR_FORMAT);
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, row->part);
        } else {
            T_TRUE(row->name, bytes == strlen(row->json) &&
                                  (bytes == 0 || memcmp(text, row->json, bytes) == 0));
        }
        stk_free(text);
    }
}

static void test_cuts_and_memory(void)
{
    static const char csv[] = "file_name,t\n1.jpg,\"a, \"\"b\"\"\"\n2.jpg,5\n";
    uint8_t *text;
    size_t bytes;

    for (size_t cut = 0; cut < sizeof csv - 1; cut++) {
        uint8_t *copy = stk_alloc(cut + 1, 1);

        memcpy(copy, csv, cut);
        (void)stk_metadata_csv_convert((struct stk_view){copy, cut}, &text, &bytes, NULL);
        stk_free(text);
        stk_free(copy);
    }
    for (uint64_t nth = 1; nth <= 2; nth++) {
        stk_mem_fail_nth(nth);
        T_EQ("memory",
             stk_metadata_csv_convert((struct stk_view){(const uint8_t *)csv, sizeof csv - 1},
                                      &text, &bytes, NULL),
             -ENOMEM);
        stk_mem_fail_nth(0);
    }
}

int main(void)
{
    test_rows();
    test_cuts_and_memory();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
