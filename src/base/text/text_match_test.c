/* Goal: texts that end with a suffix are recognised, with and without case; a text that is the
 * suffix alone has no stem; nothing outside the view is read. Method: rows; views without a NUL
 * behind them, of exactly allocated memory (for ASan). */
#include "base/text/text_match.h"

#include "base/mem.h"
#include "test/t.h"

static const struct row {
    const char *name, *text, *suffix;
    bool is_end, is_end_nocase;
    size_t stem;
} rows[] = {
    {"end", "a/b.tar", ".tar", true, true, 3},
    {"other case", "a/b.TAR", ".tar", false, true, 0},
    {"case of the suffix", "a/b.tar", ".TAR", false, true, 0},
    {"the suffix alone", ".tar", ".tar", true, true, 0},
    {"a shorter text", "tar", ".tar", false, false, 0},
    {"in the middle", "a.tar.gz", ".tar", false, false, 0},
    {"twice", ".tar.tar", ".tar", true, true, 4},
    {"no text", "", ".tar", false, false, 0},
    {"no suffix", "abc", "", true, true, 3},
    {"nothing at all", "", "", true, true, 0},
    {"one byte differs", "a/b.tbr", ".tar", false, false, 0},
    {"beyond ASCII", "\xc3\x84.tar", "\x84.tar", true, true, 1},
};

static void test_suffixes(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        size_t bytes = strlen(row->text);
        uint8_t *exact = bytes ? stk_alloc(bytes, 1) : NULL;
        struct stk_view view = {exact, bytes};

        if (bytes) {
            memcpy(exact, row->text, bytes);
        }
        T_EQ(row->name, stk_text_ends_with(row->text, row->suffix), row->is_end);
        T_EQ(row->name, stk_view_ends_with(view, row->suffix), row->is_end);
        T_EQ(row->name, stk_text_ends_with_nocase(row->text, row->suffix), row->is_end_nocase);
        T_EQ(row->name, stk_view_ends_with_nocase(view, row->suffix), row->is_end_nocase);
        T_EQ(row->name, stk_text_stem_bytes(row->text, row->suffix), row->stem);
        T_TRUE(row->name, stk_view_is(view, row->text));
        stk_free(exact);
    }
}

static void test_equal(void)
{
    T_TRUE("equal", stk_view_is(stk_view_of_text("path"), "path"));
    T_TRUE("empty", stk_view_is((struct stk_view){NULL, 0}, ""));
    T_TRUE("a longer text", !stk_view_is(stk_view_of_text("path"), "paths"));
    T_TRUE("a shorter text", !stk_view_is(stk_view_of_text("path"), "pat"));
    T_TRUE("another text", !stk_view_is(stk_view_of_text("path"), "pats"));
    T_TRUE("another case", !stk_view_is(stk_view_of_text("path"), "Path"));
}

static void test_file_scheme(void)
{
    static const struct {
        const char *text, *path;
    } texts[] = {{"file:///a/b", "/a/b"},
                 {"FILE:///a/b", "/a/b"},
                 {"file://localhost/a", "/a"},
                 {"File://LocalHost/a", "/a"},
                 {"file://localhosts/a", "localhosts/a"},
                 {"file://a", "a"},
                 {"file:/a", "file:/a"},
                 {"/file:///a", "/file:///a"},
                 {"s3://file:///a", "s3://file:///a"},
                 {"", ""}};

    for (size_t i = 0; i < STK_COUNT(texts); i++) {
        T_STR(texts[i].text, stk_text_skip_file_scheme(texts[i].text), texts[i].path);
    }
}

static void test_mark(void)
{
    T_EQ("a mark",
         stk_view_mark_bytes(stk_view_of_text("\xef\xbb\xbf"
                                              "7")),
         3);
    T_EQ("only a mark", stk_view_mark_bytes(stk_view_of_text("\xef\xbb\xbf")), 3);
    T_EQ("a part of it", stk_view_mark_bytes(stk_view_of_text("\xef\xbb")), 0);
    T_EQ("later", stk_view_mark_bytes(stk_view_of_text("7\xef\xbb\xbf")), 0);
    T_EQ("no text", stk_view_mark_bytes((struct stk_view){NULL, 0}), 0);
}

int main(void)
{
    test_mark();
    test_suffixes();
    test_equal();
    test_file_scheme();
    return t_finish();
}
