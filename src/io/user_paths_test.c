/* Goal: paths become absolute, URLs stay as they are, and the cache folder follows from the
 * environment.
 * Method: rows of paths and of variables. */
#include "io/user_paths.h"

#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_absolute(void)
{
    char text[64];

    T_EQ("go there", chdir("/tmp"), 0);
    T_TRUE("absolute", stk_path_absolute("/a/../b", text, sizeof text));
    T_STR("absolute", text, "/a/../b");
    T_TRUE("relative", stk_path_absolute("a//b", text, sizeof text));
    T_STR("relative", text, "/tmp/a//b");
    T_TRUE("URL", stk_path_absolute("s3://bucket/key", text, sizeof text));
    T_STR("URL", text, "s3://bucket/key");
    T_TRUE("just fits", stk_path_absolute("abc", text, 9));
    T_TRUE("too long", !stk_path_absolute("abc", text, 8));
    T_TRUE("no room for the folder", !stk_path_absolute("abc", text, 3));
}

static void test_cache(void)
{
    static const struct cache_row {
        const char *stoker, *xdg, *home, *want; /* NULL: not set; none */
    } cache_rows[] = {
        {"/c", "/x", "/h", "/c"},           {"/c//", NULL, NULL, "/c"},
        {NULL, "/x/", "/h", "/x/stoker"},   {"relative", NULL, "/h", "/h/.cache/stoker"},
        {"", "", "/h", "/h/.cache/stoker"}, {NULL, NULL, "h", NULL},
        {NULL, NULL, NULL, NULL},
    };

    T_EACH(cache_row, row, cache_rows)
    {
        const char *names[] = {"STOKER_CACHE", "XDG_CACHE_HOME", "HOME"};
        const char *values[] = {row->stoker, row->xdg, row->home};
        char text[32];
        bool found;

        for (size_t i = 0; i < STK_COUNT(names); i++) {
            T_EQ(names[i], values[i] ? setenv(names[i], values[i], 1) : unsetenv(names[i]), 0);
        }
        found = stk_user_cache_dir(text, sizeof text);
        T_EQ("found", found, row->want != NULL);
        if (found && row->want) {
            T_STR("folder", text, row->want);
        }
    }
}

/* Folders that do not exist are created, at any depth. */
static void test_make(void)
{
    char folder[] = "/tmp/stoker-paths-XXXXXX", cache[64], text[64];
    struct stat stat_of;

    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(cache, sizeof cache, "%s/a/b", folder);
    setenv("STOKER_CACHE", cache, 1);
    T_TRUE("make", stk_user_cache_make(text, sizeof text));
    T_STR("its path", text, cache);
    T_TRUE("it exists", stat(cache, &stat_of) == 0 && S_ISDIR(stat_of.st_mode));
    T_TRUE("once more", stk_user_cache_make(text, sizeof text));
    T_TRUE("no room for the path", !stk_user_cache_make(text, strlen(cache)));
    T_EQ("clean", rmdir(cache), 0);
    *strrchr(cache, '/') = '\0';
    T_EQ("clean", rmdir(cache), 0);
    T_EQ("clean", rmdir(folder), 0);
}

int main(void)
{
    test_absolute();
    test_cache();
    test_make();
    return t_finish();
}
