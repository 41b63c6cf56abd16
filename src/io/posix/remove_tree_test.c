/* Goal: a removal never removes anything through a symbolic link: not through the path itself, not
 * through a link in the tree, and not through one that replaces a folder while the removal runs.
 * Method: real folders; the callback before the first removal replaces a folder by a link. */
#include "io/write.h"

#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[64];
static struct stk_io *io;
static struct stoker_error error;

struct run {
    uint32_t visited, removed, keep_from; /* keep_from: 0: all are removed */
    bool swap;
};

static const char *at(const char *name)
{
    static char path[8][256];
    static int turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static int visit(void *context, const char *name)
{
    struct run *run = context;

    T_TRUE("a name below", name[0] != '/');
    if (run->swap && run->visited == 0) {
        T_EQ("swap", rename(at("tree/zdir"), at("moved")), 0);
        T_EQ("swap", symlink(at("precious"), at("tree/zdir")), 0);
    }
    run->visited++;
    return !run->keep_from || run->visited < run->keep_from;
}

static void removed(void *context)
{
    ((struct run *)context)->removed++;
}

static int remove_at(const char *path, struct run *run, bool folders)
{
    struct stk_tree_removal how = {
        .context = run, .visit = visit, .removed = removed, .folders = folders};

    memset(&error, 0, sizeof error);
    return stk_io_remove_tree(io, path, &how, &error);
}

static void put(const char *name)
{
    FILE *file = fopen(at(name), "w");

    fputs("x", file);
    fclose(file);
}

static bool has(const char *name)
{
    struct stat stat;

    return lstat(at(name), &stat) == 0;
}

static void make_tree(void)
{
    static const char *const folders[] = {"tree", "tree/a", "tree/a/b", "tree/zdir", "precious"};
    static const char *const files[] = {"tree/1", "tree/a/b/2", "tree/zdir/3", "precious/a"};

    for (size_t i = 0; i < STK_COUNT(folders); i++) {
        mkdir(at(folders[i]), 0755);
    }
    for (size_t i = 0; i < STK_COUNT(files); i++) {
        put(files[i]);
    }
    if (!has("tree/link")) {
        T_EQ("link", symlink(at("precious"), at("tree/link")), 0);
    }
    if (!has("link")) {
        T_EQ("link", symlink(at("precious"), at("link")), 0);
    }
}

static void test_links(void)
{
    struct run run = {0};
    char slash[256];

    make_tree();
    snprintf(slash, sizeof slash, "%s/", at("link"));
    T_EQ("a link with a slash", remove_at(slash, &run, true), -ENOTDIR);
    T_ERROR("a link with a slash", &error);
    T_TRUE("stays", has("link") && has("precious/a"));
    T_EQ("a link", remove_at(at("link"), &run, true), 0);
    T_TRUE("only the link", !has("link") && has("precious/a") && run.removed == 1);
    T_EQ("to nothing", symlink("none", at("gone")), 0);
    T_EQ("to nothing", remove_at(at("gone"), &run, false), 0);
    T_TRUE("to nothing", !has("gone"));
    run = (struct run){0};
    T_EQ("a tree", remove_at(at("tree"), &run, true), 0);
    T_TRUE("a tree", !has("tree") && has("precious/a"));
    T_EQ("a tree", run.removed, 4);
}

static void test_swap(void)
{
    struct run run = {.swap = true};

    make_tree();
    T_EQ("swapped", remove_at(at("tree"), &run, true), 0);
    T_TRUE("not through the link", has("precious/a") && has("moved/3") && !has("tree"));
    run = (struct run){0};
    T_EQ("moved", remove_at(at("moved"), &run, true), 0);
}

static void test_rest(void)
{
    struct run run = {.keep_from = 2};
    char path[256];

    make_tree();
    T_EQ("some stay", remove_at(at("tree"), &run, true), 0);
    T_TRUE("with their folders", has("tree/zdir/3") && run.removed == 1);
    T_EQ("a folder", remove_at(at("tree"), &run, false), -EISDIR);
    T_EQ("none", remove_at(at("none"), &run, true), -ENOENT);
    T_ERROR("none", &error);
    for (size_t i = 0; i < 4; i++) {
        static const char *const refused[] = {".", "..", "tree/.", "tree/../"};

        snprintf(path, sizeof path, "%s/%s", home, refused[i]);
        T_EQ(refused[i], remove_at(path, &run, true), STOKER_ERROR_ARGUMENT);
    }
    T_EQ("/", remove_at("/", &run, true), STOKER_ERROR_ARGUMENT);
    T_EQ("below", stk_io_remove_below(io, at("tree"), "zdir/3", &error), 0);
    T_TRUE("below", !has("tree/zdir/3"));
    T_EQ("gone", stk_io_remove_below(io, at("tree"), "zdir/3", &error), 0);
    T_EQ("through a link", stk_io_remove_below(io, at("tree"), "link/a", &error), -ENOTDIR);
    T_ERROR("through a link", &error);
    T_TRUE("stays", has("precious/a"));
    run = (struct run){0};
    T_EQ("clean", remove_at(at("tree"), &run, true), 0);
    T_EQ("clean", remove_at(at("precious"), &run, true), 0);
}

int main(void)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 10000};

    snprintf(home, sizeof home, "/tmp/stoker-remove-XXXXXX");
    T_TRUE("home", mkdtemp(home) != NULL);
    T_EQ("open", stk_io_open(&io, &options, &error), 0);
    test_links();
    test_swap();
    test_rest();
    stk_io_close(io);
    unlink(at("link"));
    T_EQ("clean", rmdir(home), 0);
    return t_finish();
}
