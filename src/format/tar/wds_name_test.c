/* Goal: keys and extensions equal webdataset's; names without a key are refused.
 * Method: rows; then all names of up to 7 bytes of a small alphabet against webdataset's regular
 * expression, which is matched here by trying every split (tar_oracle_test compares with Python
 * too). */
#include "format/tar/wds_name.h"
#include "test/t.h"

#include <string.h>

static const struct split_row {
    const char *name, *key, *extension; /* key NULL: skipped */
} split_rows[] = {
    {"a.jpg", "a", "jpg"},
    {"a/b.c/img.left.jpg", "a/b.c/img", "left.jpg"},
    {"./a.jpg", "./a", "jpg"},
    {"a/.x", "a/", "x"},
    {"a/.x.y", "a/", "x.y"},
    {"a.b/.x", NULL, NULL},
    {"./.hid.jpg", NULL, NULL},
    {".x", NULL, NULL},
    {"x..jpg", "x", ".jpg"},
    {"a/b.", "a/b", ""},
    {"a.JPG", "a", "JPG"},
    {"a", NULL, NULL},
    {"", NULL, NULL},
    {".", NULL, NULL},
    {"..", NULL, NULL},
    {"a.b/", NULL, NULL},
    {"a.b/c", NULL, NULL},
    {"d/e/f.tar.gz", "d/e/f", "tar.gz"},
    {"d//.x", "d//", "x"},
    {"/.x", "/", "x"},
    {"\xc3\xa9/\xff.jpg", "\xc3\xa9/\xff", "jpg"},
    /* A dot of the expression matches no newline. */
    {"a\nb/c.jpg", "a\nb/c", "jpg"},
    {"d.x/a\nb/c.jpg", "d.x/a\nb/c", "jpg"},
    {"a.x\nb/c.jpg", NULL, NULL},
    {"a\nb.x/c.jpg", NULL, NULL},
    {"a.jpg\n", "a", "jpg\n"},
    {"a\n/.x", "a\n/", "x"},
    /* skip_meta */
    {"__meta__.json", "__meta__", "json"},
    {"__a.b__", NULL, NULL},
    {"__a.b__\n", NULL, NULL},
    {"__a__/b.jpg", NULL, NULL},
    {"__a__x/b.jpg", "__a__x/b", "jpg"},
    {"x/__a.b__", "x/__a", "b__"},
    {"____/b.jpg", NULL, NULL},
    {"___/b.jpg", "___/b", "jpg"},
    {"__.__", NULL, NULL},
};

static void test_splits(void)
{
    T_EACH(split_row, row, split_rows)
    {
        struct stk_view name = {(const uint8_t *)row->name, strlen(row->name)};
        struct stk_view key = {0}, extension = {0};
        char text[64];

        if (!T_EQ(row->name, stk_wds_name_split(name, &key, &extension), row->key != NULL) ||
            !row->key) {
            continue;
        }
        snprintf(text, sizeof text, "%.*s", (int)key.bytes, (const char *)key.data);
        T_STR(row->name, text, row->key);
        snprintf(text, sizeof text, "%.*s", (int)extension.bytes, (const char *)extension.data);
        T_STR(row->name, text, row->extension);
    }
}

/* The expression taken word by word: a folder, then non-dots, a dot, and non-slashes. The first
 * split in the expression's order of preference: -1 if there is none. */
static int match(const char *name, int bytes)
{
    for (int folder = bytes; folder >= 0; folder--) {
        if (folder > 0 && (name[folder - 1] != '/' || memchr(name, '\n', folder))) {
            continue;
        }
        for (int dot = bytes - 1; dot > folder; dot--) {
            if (name[dot] == '.' && !memchr(name + folder, '.', dot - folder) &&
                !memchr(name + dot, '/', bytes - dot)) {
                return dot;
            }
        }
    }
    return -1;
}

static void test_all_short_names(void)
{
    static const char alphabet[] = "a./\n_";
    char name[8];
    int differences = 0;

    for (int bytes = 0; bytes <= 7; bytes++) {
        int total = 1;
        for (int i = 0; i < bytes; i++) {
            total *= 5;
        }
        for (int n = 0; n < total; n++) {
            struct stk_view view = {(const uint8_t *)name, bytes};
            struct stk_view key = {0}, extension = {0};
            int rest = n, want, got;

            for (int i = 0; i < bytes; i++, rest /= 5) {
                name[i] = alphabet[rest % 5];
            }
            want = match(name, bytes);
            got = stk_wds_name_split(view, &key, &extension) ? (int)key.bytes : -1;
            if (bytes >= 4 && memcmp(name, "__", 2) == 0) {
                continue; /* skip_meta: in the rows */
            }
            differences += got != want || (got >= 0 && (int)extension.bytes != bytes - got - 1);
        }
    }
    T_EQ("all names of up to 7 bytes", differences, 0);
}

static const struct refusal_row {
    const char *name;
    size_t bytes;
    const char *want; /* NULL: fit */
} refusal_rows[] = {
    {"a/b.jpg", 7, NULL},
    {"a..b/c..jpg", 11, NULL},
    {"...", 3, NULL},
    {"\xff\xfe.jpg", 6, NULL},
    {"", 0, NULL},
    {"./a.jpg", 7, NULL},
    {"/a.jpg", 6, "absolute"},
    {"..", 2, "'..'"},
    {"../a.jpg", 8, "'..'"},
    {"a/../b.jpg", 10, "'..'"},
    {"a/..", 4, "'..'"},
    {"a\0.jpg", 6, "NUL"},
};

static void test_refusals(void)
{
    T_EACH(refusal_row, row, refusal_rows)
    {
        struct stk_view name = {(const uint8_t *)row->name, row->bytes};
        const char *refusal = stk_wds_name_error(name);

        if (T_EQ(row->name, refusal == NULL, row->want == NULL) && refusal) {
            T_HAS(row->name, refusal, row->want);
        }
    }
}

static const struct text_row {
    const char *name;
    size_t capacity;
    const char *want;
} text_rows[] = {
    {"plain", 16, "plain"},      {"a\nb\x1b[0m\x7f", 16, "a?b?[0m?"}, {"abcdef", 4, "abc"},
    {"ab\xc3\xa9", 4, "ab"},     {"ab\xc3\xa9", 5, "ab\xc3\xa9"},     {"abc", 1, ""},
    {"\xa9\xa9\xa9\xa9", 3, ""},
};

static void test_texts(void)
{
    T_EACH(text_row, row, text_rows)
    {
        struct stk_view name = {(const uint8_t *)row->name, strlen(row->name)};
        char text[16] = "????????????";

        stk_wds_name_text(name, text, row->capacity);
        T_STR(row->name, text, row->want);
    }
}

int main(void)
{
    test_splits();
    test_all_short_names();
    test_refusals();
    test_texts();
    return t_finish();
}
