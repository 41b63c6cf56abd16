/* Goal: stoker clean finds its own files and no others, and removes none that is in use or foreign.
 * Covers clean.c, leftover_name.c and io/ipc/file_users.c. Method: a table of names; folders with
 * files, of which some are locked, mapped or links. */
#include "tools/clean/leftover_name.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEX16 "0123456789abcdef"
#define HEX32 HEX16 HEX16

static const struct {
    const char *name;
    uint32_t data, cache, flight;
} names[] = {
    {"stoker.index." HEX16 ".table", STOKER_LEFTOVER_TABLE, STOKER_LEFTOVER_TABLE, 0},
    {"a.index." HEX16 ".table", STOKER_LEFTOVER_TABLE, STOKER_LEFTOVER_TABLE, 0},
    {"stoker.index." HEX16 ".table.lock", STOKER_LEFTOVER_LOCK, STOKER_LEFTOVER_LOCK, 0},
    {"stoker.index." HEX16 ".table.new", STOKER_LEFTOVER_PART, STOKER_LEFTOVER_PART, 0},
    {"stoker.index." HEX16 ".table.old", 0, 0, 0},
    {"stoker.index." HEX16 "0.table", 0, 0, 0},
    {"stoker.index.0123.table", 0, 0, 0},
    {"notes." HEX16 ".table", 0, 0, 0},
    {".index." HEX16 ".table", 0, 0, 0},
    {"stoker.index", 0, 0, 0},
    {"stoker.index.lock", STOKER_LEFTOVER_LOCK, 0, 0},
    {HEX16 ".index.lock", 0, STOKER_LEFTOVER_LOCK, 0},
    {HEX16 ".index", 0, 0, 0},
    {"scan-01.lock", 0, STOKER_LEFTOVER_LOCK, 0},
    {"scan-.lock", 0, 0, 0},
    {"scan-xy.lock", 0, 0, 0},
    {"text-" HEX32 ".txt", 0, STOKER_LEFTOVER_TEXT, 0},
    {"text-" HEX16 ".txt", 0, 0, 0},
    {"text-" HEX32 ".txt.part", 0, STOKER_LEFTOVER_PART, 0},
    {"text-" HEX32 ".txt." HEX16 ".part", 0, STOKER_LEFTOVER_PART, 0},
    {"counts-" HEX32 ".bin", 0, STOKER_LEFTOVER_COUNTS, 0},
    {"counts-" HEX32 ".bin.part", 0, STOKER_LEFTOVER_PART, 0},
    {"pack-" HEX16, 0, 0, 0},
    {HEX16 ".lock", 0, 0, STOKER_LEFTOVER_LOCK},
    {HEX16 ".wait", 0, 0, STOKER_LEFTOVER_LOCK},
    {HEX16 ".result", 0, 0, STOKER_LEFTOVER_SHARED},
    {"user.lock", 0, 0, 0},
    {"", 0, 0, 0},
};

static void test_names(void)
{
    for (size_t i = 0; i < STK_COUNT(names); i++) {
        T_EQ(names[i].name, stk_leftover_kind(STK_CLEAN_DATA, names[i].name, 7), names[i].data);
        T_EQ(names[i].name, stk_leftover_kind(STK_CLEAN_CACHE, names[i].name, 7), names[i].cache);
        T_EQ(names[i].name, stk_leftover_kind(STK_CLEAN_FLIGHT, names[i].name, 7), names[i].flight);
    }
    T_EQ("limits", stk_leftover_kind(STK_CLEAN_NODE, "stoker-3-7", 7), STOKER_LEFTOVER_SHARED);
    T_EQ("of another user", stk_leftover_kind(STK_CLEAN_NODE, "stoker-3-77", 7), 0);
    T_EQ("no layout", stk_leftover_kind(STK_CLEAN_NODE, "stoker--7", 7), 0);
}

struct seen {
    uint32_t files, in_use, removed;
};

static void count(void *context, const struct stoker_leftover *leftover)
{
    struct seen *seen = context;

    seen->files++;
    seen->in_use += leftover->in_use;
    seen->removed += leftover->removed;
}

static struct seen clean(const char *folder, bool remove, uint64_t unused_s)
{
    struct seen seen = {0};
    struct stoker_clean_options options = {.struct_size = sizeof options,
                                           .folders = &folder,
                                           .folder_count = 1,
                                           .found = count,
                                           .context = &seen,
                                           .unused_s = unused_s,
                                           .remove = remove};

    T_EQ(folder, stoker_clean(&options, NULL), 0);
    return seen;
}

static const char *make(const char *folder, const char *name)
{
    static char paths[8][512];
    static unsigned next;
    char *path = paths[next++ % 8];
    int fd;

    snprintf(path, 512, "%s/%s", folder, name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    T_TRUE(path, fd >= 0 && write(fd, "data", 4) == 4);
    close(fd);
    return path;
}

static void test_in_use(const char *data, const char *cache, const char *node)
{
    const char *table = make(data, "stoker.index." HEX16 ".table"),
               *lock = make(data, "stoker.index.lock"), *text = make(cache, "text-" HEX32 ".txt"),
               *part = make(cache, "counts-" HEX32 ".bin.part");
    char turns[300];
    int locked = open(lock, O_RDONLY | O_CLOEXEC), mapped = open(table, O_RDONLY | O_CLOEXEC),
        opened = open(text, O_RDONLY | O_CLOEXEC), flight;
    void *map = mmap(NULL, 4, PROT_READ, MAP_SHARED, mapped, 0);
    struct seen seen;

    close(mapped);
    T_EQ("lock", flock(locked, LOCK_EX), 0);
    snprintf(turns, sizeof turns, "%s/stoker-turns-%u", node, (unsigned)geteuid());
    T_EQ("folder", mkdir(turns, 0700), 0);
    flight = open(make(turns, "ab.lock"), O_RDONLY | O_CLOEXEC);
    T_EQ("flight", flock(flight, LOCK_EX), 0);
    make(turns, "ab.result"); /* in use: its lock is */
    make(turns, "cd.result");
    make(data, "mine.txt");
    seen = clean(data, false, 0);
    T_EQ("listed", seen.files, 7);
    T_EQ("in use", seen.in_use, 5);
    T_EQ("none is removed", seen.removed, 0);
    T_EQ("recent", clean(data, true, 3600).files, 0);
    T_EQ("removed", clean(data, true, 0).removed, 2); /* the part and cd.result */
    T_TRUE("the part", access(part, F_OK) < 0 && access(table, F_OK) == 0 &&
                           access(text, F_OK) == 0 && access(lock, F_OK) == 0);
    munmap(map, 4);
    close(locked);
    close(opened);
    close(flight);
    T_EQ("then the others", clean(data, true, 0).removed, 5);
    T_EQ("none is left", clean(data, true, 0).files, 0);
}

static void test_links(const char *data, const char *cache)
{
    char link[512], path[512];

    snprintf(path, sizeof path, "%s", make(data, "mine.txt"));
    snprintf(link, sizeof link, "%s/text-" HEX32 ".txt", cache);
    T_EQ("link", symlink(path, link), 0);
    T_EQ("a link is none of ours", clean(data, true, 0).files, 0);
    T_TRUE("its target stays", access(path, F_OK) == 0);
    (void)unlink(link);
}

static void test_arguments(void)
{
    const char *bad[] = {"s3://bucket/x", "", "/nonexistent-stoker"};
    const int status[] = {STOKER_ERROR_ARGUMENT, STOKER_ERROR_ARGUMENT, -ENOENT};

    for (size_t i = 0; i < STK_COUNT(bad); i++) {
        struct stoker_clean_options options = {
            .struct_size = sizeof options, .folders = &bad[i], .folder_count = 1};
        struct stoker_error error = {0};

        T_EQ(bad[i], stoker_clean(&options, &error), status[i]);
        T_EQ(bad[i], error.status, status[i]);
        T_EQ(bad[i], stoker_clean(&options, NULL), status[i]);
    }
}

int main(void)
{
    char root[] = "/tmp/stoker-clean-XXXXXX", data[64], cache[64], node[64], command[100];

    T_TRUE("folder", mkdtemp(root) != NULL);
    snprintf(data, sizeof data, "%s/data", root);
    snprintf(cache, sizeof cache, "%s/cache", root);
    snprintf(node, sizeof node, "%s/node", root);
    T_TRUE("folders", mkdir(data, 0700) == 0 && mkdir(cache, 0700) == 0 && mkdir(node, 0700) == 0);
    setenv("STOKER_CACHE", cache, 1);
    setenv("STOKER_NODE_DIR", node, 1);
    test_names();
    test_in_use(data, cache, node);
    test_links(data, cache);
    test_arguments();
    snprintf(command, sizeof command, "rm -r %s", root);
    T_EQ("clean", system(command), 0);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
