/* Goal: a walk returns every entry below a folder once, and none outside of it; key ranges are
 * split so that no key is lost or listed twice.
 * Method: a folder with links of every kind; splits between random names. python/tests/test_copy.py
 * tests S3. Covers key_range.c. */
#include "storage/walk/walk.h"

#include "base/mem.h"
#include "base/random.h"
#include "storage/walk/key_range.h"
#include "test/t.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES_BYTES 1024u

static char home[64];

static const char *at(const char *name)
{
    static char path[8][256];
    static int turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static void put(const char *name)
{
    FILE *file = fopen(at(name), "w");

    fputs("12345", file);
    fclose(file);
}

/* Names as "a,b/c," in the order in which they arrived; returns the status. others: how many
 * others, or NULL. */
static int list(struct stk_io *io, const char *path, bool deep, char *names, uint64_t *others)
{
    struct stk_walk_options options = {
        .io = io, .path = path, .deep = deep, .special_files = others};
    struct stoker_error error = {0};
    struct stk_walk *visit = NULL;
    struct stk_walk_entry *item = NULL;
    size_t used = 0;
    int status = stk_walk_open(&visit, &options, &error);

    names[0] = '\0';
    while (status >= 0 && (status = stk_walk_next(visit, 60000, &item, &error)) == 1) {
        T_EQ(item->name, item->kind == STK_ENTRY_FILE && item->bytes != 5, false);
        if (others && item->kind == STK_ENTRY_OTHER) {
            (*others)++;
        } else {
            used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s", item->name,
                                     item->kind == STK_ENTRY_DIRECTORY ? "/," : ",");
        }
        stk_free(item);
    }
    if (status < 0) {
        T_ERROR(path, &error);
    }
    stk_walk_close(visit);
    return status;
}

static void test_folder(struct stk_io *io)
{
    char names[NAMES_BYTES];
    uint64_t others = 0;

    mkdir(at("root"), 0755);
    mkdir(at("root/sub"), 0755);
    mkdir(at("root/empty"), 0755);
    put("outside");
    put("root/b");
    put("root/a");
    put("root/sub/c");
    put("root/.stoker-0123.part");
    put("root/.stoker-is-a-file");
    T_EQ("link in", symlink("../a", at("root/sub/in")), 0);
    T_EQ("link out", symlink("../outside", at("root/out")), 0);
    T_EQ("far outside", symlink("/etc/passwd", at("root/sub/far")), 0);
    T_EQ("to nothing", symlink("none", at("root/nothing")), 0);
    T_EQ("circle", symlink(".", at("root/circle")), 0);
    T_EQ("pipe", mkfifo(at("root/pipe"), 0644), 0);
    T_EQ("deep", list(io, at("root"), true, names, &others), 0);
    T_STR("deep", names, ".stoker-is-a-file,a,b,sub/c,sub/in,");
    T_EQ("others", others, 5);
    T_EQ("slash", list(io, at("root/"), true, names, NULL), 0);
    T_STR("slash", names, ".stoker-is-a-file,a,b,sub/c,sub/in,");
    T_EQ("flat", list(io, at("root"), false, names, NULL), 0);
    T_STR("flat", names, ".stoker-is-a-file,a,b,empty/,sub/,");
    T_EQ("file", list(io, at("root/a"), true, names, NULL), 0);
    T_STR("file", names, ",");
    T_EQ("none", list(io, at("root/none"), true, names, NULL), -ENOENT);
    T_EQ("pipe", list(io, at("root/pipe"), true, names, NULL), STOKER_ERROR_UNSUPPORTED);
}

/* Unfinished files, recognised by their names, in any folder; similar names are not skipped. */
static void test_hidden(void)
{
    static const struct {
        const char *name;
        bool hidden;
    } rows[] = {
        {".stoker-1.part", true},    {"a/b/.stoker-1f.part", true}, {".stoker-.part", false},
        {".stoker-1.parts", false},  {"x.stoker-1.part", false},    {".stoker-1", false},
        {".stoker-1.part/x", false}, {"stoker-1.part", false},      {"", false}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        T_EQ(rows[i].name, stk_walk_is_hidden(rows[i].name), rows[i].hidden);
    }
}

/* Closed while threads wait for room. */
static void test_close(struct stk_io *io)
{
    struct stk_walk_options options = {.io = io, .path = at("many"), .deep = true};
    struct stoker_error error = {0};
    struct stk_walk *visit = NULL;
    struct stk_walk_entry *item = NULL;

    mkdir(at("many"), 0755);
    for (int i = 0; i < 9000; i++) {
        char name[32];

        snprintf(name, sizeof name, "many/%05d", i);
        put(name);
    }
    T_EQ("open", stk_walk_open(&visit, &options, &error), 0);
    T_EQ("one", stk_walk_next(visit, 60000, &item, &error), 1);
    stk_free(item);
    stk_walk_close(visit);
    stk_walk_close(NULL);
}

static void test_middle(void)
{
    char a[12], b[12], middle[64];
    uint32_t cuts = 0;
    bool between = true;

    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t random = stk_random_key(5, i);

        for (int j = 0; j < 10; j++) {
            a[j] = (char)(' ' + (random >> (5 * j)) % (i % 3 ? 3 : 95));
            b[j] = (char)(' ' + (random >> (3 * j + 7)) % (i % 3 ? 3 : 95));
        }
        a[random % 11] = b[random / 11 % 11] = '\0';
        if (strcmp(a, b) >= 0 && b[0]) {
            b[0] = '\0';
        }
        if (stk_key_range_middle(a, b, middle, sizeof middle)) {
            cuts++;
            between = between && strcmp(a, middle) < 0 && (!b[0] || strcmp(middle, b) < 0);
        }
    }
    T_TRUE("between", between);
    T_TRUE("often", cuts > 50000);
    T_TRUE("numbers", stk_key_range_middle("f/0001000.jpg", "", middle, sizeof middle));
    T_TRUE("nothing between", !stk_key_range_middle("a", "a", middle, sizeof middle));
    T_TRUE("not behind letters that are no ASCII",
           !stk_key_range_middle("\xc3\xbc", "", middle, sizeof middle));
}

int main(void)
{
    struct stk_io_options options = {.depth = 4};
    struct stoker_error error = {0};
    struct stk_io *io = NULL;
    char command[128];

    snprintf(home, sizeof home, "/tmp/visit_test.XXXXXX");
    T_TRUE("home", mkdtemp(home) != NULL);
    T_EQ("io", stk_io_open(&io, &options, &error), 0);
    test_folder(io);
    test_hidden();
    test_close(io);
    test_middle();
    stk_io_close(io);
    snprintf(command, sizeof command, "rm -r %s", home);
    T_EQ("clean", system(command), 0);
    return t_finish();
}
