/* Goal: the simulated file system writes as the real machine does, so that tests on it are valid;
 * its faults and power cuts behave as its header says.
 * Method: one table of rows runs on a folder in /tmp and on a simulated file system, each row on a
 * fresh tree; results and trees are compared. Then faults, power cuts after each step of a commit,
 * and a failure of every call and allocation. Covers io/write.c, sim_write.c, sim_tree.c. */
#include "io/sim/sim.h"
#include "io/write.h"

#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_BYTES 2048

enum operation {
    CREATE = 1,
    CUT,
    WRITE_AT,
    APPEND,
    RENAME,
    LINK,
    MAKE,
    REMOVE,
    SYNC,
    LOCK,
    LOCK_TWICE
};

/* One side: the machine or the world, and the folder to work in. */
struct side {
    struct stk_io *io;
    char folder[64];
    bool real;
};

/* The tree of each row: d/x "xx", e/, f "old", g "gg", and links. */
static const struct step_row {
    const char *name;
    uint32_t operation;    /* enum operation */
    const char *path, *to; /* to: of APPEND, the existing content */
    bool fresh;
    int want;
    const char *see, *seen; /* afterwards: the text of a file, "/": a folder, NULL: nothing */
} step_rows[] = {
    {"create", CREATE, "new", NULL, true, 0, "new", "bytes"},
    {"create in a folder", CREATE, "d/../d/new", NULL, false, 0, "d/new", "bytes"},
    {"create through a link", CREATE, "to-d/new", NULL, true, 0, "d/new", "bytes"},
    {"create over", CREATE, "f", NULL, false, 0, "f", "bytes"},
    {"create, taken", CREATE, "f", NULL, true, -EEXIST, "f", "old"},
    {"create on a link", CREATE, "to-f", NULL, false, -ELOOP, "f", "old"},
    {"create on a link, fresh", CREATE, "to-f", NULL, true, -EEXIST, "f", "old"},
    {"create on a broken link", CREATE, "broken", NULL, false, -ELOOP, "nowhere", NULL},
    {"create on a folder", CREATE, "e", NULL, false, -EISDIR, "e", "/"},
    {"create with a slash", CREATE, "new/", NULL, false, -EISDIR, "new", NULL},
    {"create nowhere", CREATE, "absent/new", NULL, true, -ENOENT, "absent", NULL},
    {"create below a file", CREATE, "f/new", NULL, true, -ENOTDIR, "f", "old"},
    {"cut", CUT, "new", NULL, true, 0, "new", "byte!"},
    {"write at offsets", WRITE_AT, "new", NULL, true, 0, "new", "head0bytes"},
    {"append, new", APPEND, "new", NULL, false, 0, "new", "end\n"},
    {"append", APPEND, "f", "one\ntwo\n", false, 0, "f", "one\ntwo\nend\n"},
    {"append to half a line", APPEND, "f", "one\ntw", false, 0, "f", "one\nend\n"},
    {"append to half the only line", APPEND, "f", NULL, false, 0, "f", "end\n"},
    {"append to a link", APPEND, "to-f", NULL, false, -ELOOP, "f", "old"},
    {"append to a folder", APPEND, "e", NULL, false, -EISDIR, "e", "/"},
    {"append nowhere", APPEND, "absent/new", NULL, false, -ENOENT, "absent", NULL},
    {"rename", RENAME, "f", "new", false, 0, "new", "old"},
    {"rename, fresh", RENAME, "f", "new", true, 0, "new", "old"},
    {"rename over", RENAME, "f", "g", false, 0, "g", "old"},
    {"rename over, fresh", RENAME, "f", "g", true, -EEXIST, "g", "gg"},
    {"rename to itself", RENAME, "f", "f", false, 0, "f", "old"},
    {"rename to itself, fresh", RENAME, "f", "f", true, -EEXIST, "f", "old"},
    {"rename elsewhere", RENAME, "f", "d/y", true, 0, "d/y", "old"},
    {"rename a link", RENAME, "to-f", "new", true, 0, "new", "old"},
    {"rename over a link", RENAME, "g", "to-f", false, 0, "to-f", "gg"},
    {"rename nothing", RENAME, "absent", "new", true, -ENOENT, "new", NULL},
    {"rename nothing over", RENAME, "absent", "f", true, -ENOENT, "f", "old"},
    {"rename to nowhere", RENAME, "f", "absent/f", true, -ENOENT, "f", "old"},
    {"rename a folder", RENAME, "d", "new", true, 0, "new/x", "xx"},
    {"rename a folder, slashes", RENAME, "d/", "new/", true, 0, "new/x", "xx"},
    {"rename a file, slash", RENAME, "f", "new/", true, -ENOTDIR, "f", "old"},
    {"rename a folder over", RENAME, "d", "e", false, 0, "e/x", "xx"},
    {"rename a folder over, fresh", RENAME, "d", "e", true, -EEXIST, "d/x", "xx"},
    {"rename over a full folder", RENAME, "e", "d", false, -ENOTEMPTY, "d/x", "xx"},
    {"rename a folder over a file", RENAME, "d", "f", false, -ENOTDIR, "f", "old"},
    {"rename a file over a folder", RENAME, "f", "e", false, -EISDIR, "f", "old"},
    {"rename into itself", RENAME, "d", "d/below", false, -EINVAL, "d/x", "xx"},
    {"rename into itself, fresh", RENAME, "d", "d/below", true, -EINVAL, "d/x", "xx"},
    {"rename over its folder", RENAME, "d/x", "d", false, -ENOTEMPTY, "d/x", "xx"},
    {"link", LINK, "f", "new", false, 0, "new", "old"},
    {"link, first name", LINK, "f", "new", false, 0, "f", "old"},
    {"link elsewhere", LINK, "f", "d/y", false, 0, "d/y", "old"},
    {"link, taken", LINK, "f", "g", false, -EEXIST, "g", "gg"},
    {"link nothing", LINK, "absent", "new", false, -ENOENT, "new", NULL},
    {"link to nowhere", LINK, "f", "absent/f", false, -ENOENT, "f", "old"},
    {"link a folder", LINK, "d", "new", false, -EPERM, "new", NULL},
    {"make", MAKE, "new", NULL, true, 0, "new", "/"},
    {"make with a slash", MAKE, "new/", NULL, true, 0, "new", "/"},
    {"make again", MAKE, "d", NULL, false, 0, "d/x", "xx"},
    {"make again, fresh", MAKE, "d", NULL, true, -EEXIST, "d/x", "xx"},
    {"make on a link to a folder", MAKE, "to-d", NULL, false, 0, "to-d", "/"},
    {"make on a file", MAKE, "f", NULL, false, -EEXIST, "f", "old"},
    {"make on a broken link", MAKE, "broken", NULL, false, -EEXIST, "nowhere", NULL},
    {"make nowhere", MAKE, "absent/new", NULL, false, -ENOENT, "absent", NULL},
    {"make here", MAKE, ".", NULL, false, 0, "f", "old"},
    {"remove", REMOVE, "f", NULL, false, 0, "f", NULL},
    {"remove a link", REMOVE, "to-f", NULL, false, 0, "f", "old"},
    {"remove an empty folder", REMOVE, "e", NULL, false, 0, "e", NULL},
    {"remove a full folder", REMOVE, "d", NULL, false, -ENOTEMPTY, "d/x", "xx"},
    {"remove nothing", REMOVE, "absent", NULL, false, 0, "f", "old"},
    {"remove nowhere", REMOVE, "absent/x", NULL, false, 0, "f", "old"},
    {"remove a file, slash", REMOVE, "f/", NULL, false, -ENOTDIR, "f", "old"},
    {"remove below a file", REMOVE, "f/x", NULL, false, -ENOTDIR, "f", "old"},
    {"sync", SYNC, "d", NULL, false, 0, "d/x", "xx"},
    {"sync through a link", SYNC, "to-d", NULL, false, 0, "d/x", "xx"},
    {"sync a file", SYNC, "f", NULL, false, -ENOTDIR, "f", "old"},
    {"sync nothing", SYNC, "absent", NULL, false, -ENOENT, "f", "old"},
    {"lock", LOCK, "new", NULL, false, 0, "new", NULL},
    {"lock what a kill left", LOCK, "f", NULL, false, 0, "f", NULL},
    {"lock twice", LOCK_TWICE, "new", NULL, false, -EBUSY, "new", NULL},
    {"lock twice, elsewhere", LOCK_TWICE, "d/../d/new", NULL, false, -EBUSY, "d/new", NULL},
    {"lock on a link", LOCK, "to-f", NULL, false, -ELOOP, "f", "old"},
    {"lock on a folder", LOCK, "e", NULL, false, -EISDIR, "e", "/"},
    {"lock nowhere", LOCK, "absent/new", NULL, false, -ENOENT, "absent", NULL},
};

/* One of four buffers, so that two can be used at once. */
static const char *below(const struct side *side, const char *name)
{
    static char paths[4][256];
    static int last;
    char *path = paths[last++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", side->folder, name);
    return path;
}

static int write_text(struct stk_io *io, const char *path, bool fresh, const char *text,
                      struct stoker_error *error)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(io, path, fresh, &out, error);

    for (const char *c = text; status == 0 && *c; c++) {
        status = stk_io_write(io, out, c, 1, error);
    }
    if (status == 0) {
        status = stk_io_sync_output(io, out, error);
    }
    stk_io_close_output(io, out);
    return status;
}

/* The text of a file, "/" for a folder, or NULL. */
static const char *read_text(struct stk_io *io, const char *path)
{
    static char text[64];
    struct stk_file *file = NULL;
    struct stk_stat stat = {0};
    int64_t count;

    if (stk_io_stat_path(io, path, &stat, NULL) < 0) {
        return NULL;
    }
    if (stat.kind == STK_ENTRY_DIRECTORY) {
        return "/";
    }
    if (stk_io_open_file(io, path, &file, NULL) < 0) {
        return "?";
    }
    count = stk_io_read_wait(file, 0, text, sizeof text - 1);
    text[count > 0 ? count : 0] = '\0';
    T_EQ(path, count, stat.bytes);
    stk_io_close_file(file);
    return text;
}

static void add_link(const struct side *side, const char *target, const char *name)
{
    if (side->real) {
        T_EQ(name, symlink(target, below(side, name)), 0);
    } else {
        T_EQ(name, stk_sim_add_link(side->io, below(side, name), target), 0);
    }
}

static void open_side(struct side *side, bool real)
{
    struct stk_io_options options = {.backend = STOKER_IO_THREADS};

    *side = (struct side){.real = real, .folder = "work"};
    if (real) {
        snprintf(side->folder, sizeof side->folder, "/tmp/stoker-write-test-XXXXXX");
        T_TRUE("folder", mkdtemp(side->folder) != NULL);
        T_EQ("open", stk_io_open(&side->io, &options, NULL), 0);
    } else {
        T_EQ("open", stk_sim_open(&side->io, 1, NULL, NULL), 0);
        T_EQ("folder", stk_sim_add(side->io, side->folder, NULL, 0), 0);
    }
}

static void make_tree(const struct side *side)
{
    T_EQ("d", stk_io_make_directory(side->io, below(side, "d"), true, NULL), 0);
    T_EQ("e", stk_io_make_directory(side->io, below(side, "e"), true, NULL), 0);
    T_EQ("x", write_text(side->io, below(side, "d/x"), true, "xx", NULL), 0);
    T_EQ("f", write_text(side->io, below(side, "f"), true, "old", NULL), 0);
    T_EQ("g", write_text(side->io, below(side, "g"), true, "gg", NULL), 0);
    add_link(side, "f", "to-f");
    add_link(side, "d", "to-d");
    add_link(side, "nowhere", "broken");
}

/* Lists a folder into tree, and removes the listed entries: links are not followed. */
static void take_tree(const struct side *side, const char *path, char *tree)
{
    struct stk_listing listing = {0};

    T_EQ(path, stk_io_list(side->io, path, &listing, NULL), 0);
    for (size_t i = 0; i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        char inner[512];
        size_t used = strlen(tree);

        snprintf(inner, sizeof inner, "%s/%s", path, entry->name);
        snprintf(tree + used, TREE_BYTES - used, "%s:%u ", entry->name, entry->kind);
        if (entry->kind == STK_ENTRY_FILE) {
            used = strlen(tree);
            snprintf(tree + used, TREE_BYTES - used, "%s ", read_text(side->io, inner));
        }
        if (stk_io_remove(side->io, inner, NULL) == -ENOTEMPTY) {
            take_tree(side, inner, tree);
            T_EQ(inner, stk_io_remove(side->io, inner, NULL), 0);
        }
    }
    stk_listing_free(&listing);
}

static void close_side(struct side *side)
{
    if (side->real) {
        T_EQ("folder", stk_io_remove(side->io, side->folder, NULL), 0);
    }
    stk_io_close(side->io);
}

/* before: the initial content of the file. */
static int append_line(struct stk_io *io, const char *path, const char *before,
                       struct stoker_error *error)
{
    struct stk_output *out = NULL;
    int status = before ? write_text(io, path, false, before, error) : 0;

    status = status < 0 ? status : stk_io_append(io, path, &out, error);
    status = status < 0 ? status : stk_io_write(io, out, "end\n", 4, error);
    stk_io_close_output(io, out);
    return status;
}

/* again: a second time while it is held; then the first is released, and it can be acquired
 * again. */
static int take_lock(struct stk_io *io, const char *path, bool again, struct stoker_error *error)
{
    struct stk_file_lock *lock = NULL, *second = NULL;
    int status = stk_io_lock(io, path, &lock, error);

    if (status == 0) {
        T_HAS("its file tells who", read_text(io, path), "process ");
    }
    if (again) {
        T_EQ("the first", status, 0);
        status = stk_io_lock(io, path, &second, error);
        T_TRUE("not given", second == NULL);
        T_HAS("who has it", error->where, "held by process ");
        stk_io_unlock(io, lock);
        lock = NULL;
        T_EQ("afterwards", stk_io_lock(io, path, &lock, NULL), 0);
    }
    stk_io_unlock(io, lock);
    return status;
}

/* Reserves space, writes the end, then writes over the zero bytes before it. */
static int write_parts(struct stk_io *w, const char *path, struct stoker_error *error)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(w, path, true, &out, error);

    if (status == 0) {
        status = stk_io_reserve(w, out, 10, error);
        status = status < 0 ? status : stk_io_write_at(w, out, 5, "bytes", 5, error);
        status = status < 0 ? status : stk_io_write_at(w, out, 0, "....0", 5, error);
        status = status < 0 ? status : stk_io_write_at(w, out, 0, "head", 4, error);
        status = status < 0 ? status : stk_io_sync_output(w, out, error);
    }
    stk_io_close_output(w, out);
    return status;
}

/* Writes five bytes, truncates the last one, and writes another one there. */
static int cut_text(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(io, path, true, &out, error);

    status = status < 0 ? status : stk_io_write(io, out, "bytes", 5, error);
    status = status < 0 ? status : stk_io_truncate(io, out, 4, error);
    status = status < 0 ? status : stk_io_write(io, out, "!", 1, error);
    stk_io_close_output(io, out);
    return status;
}

static int do_step(const struct side *side, const struct step_row *row, struct stoker_error *error)
{
    const char *path = below(side, row->path);

    switch (row->operation) {
    case CREATE:
        return write_text(side->io, path, row->fresh, "bytes", error);
    case CUT:
        return cut_text(side->io, path, error);
    case WRITE_AT:
        return write_parts(side->io, path, error);
    case APPEND:
        return append_line(side->io, path, row->to, error);
    case RENAME:
        return stk_io_rename(side->io, path, below(side, row->to), row->fresh, error);
    case LINK:
        return stk_io_link(side->io, path, below(side, row->to), error);
    case MAKE:
        return stk_io_make_directory(side->io, path, row->fresh, error);
    case REMOVE:
        return stk_io_remove(side->io, path, error);
    case LOCK:
    case LOCK_TWICE:
        return take_lock(side->io, path, row->operation == LOCK_TWICE, error);
    default:
        return stk_io_sync_directory(side->io, path, error);
    }
}

/* A file whose last line has no newline for long is not a file of lines, and stays. */
static void test_no_lines(void)
{
    static char text[STK_LINE_BYTES_MAX];

    memset(text, 'a', sizeof text);
    for (int real = 0; real < 2; real++) {
        for (size_t less = 0; less < 2; less++) {
            struct stoker_error error = {0};
            struct stk_stat stat = {0};
            struct stk_output *out = NULL;
            struct side side;

            open_side(&side, real);
            T_EQ("create", stk_io_create(side.io, below(&side, "f"), true, &out, NULL), 0);
            T_EQ("write", stk_io_write(side.io, out, text, sizeof text - less, NULL), 0);
            stk_io_close_output(side.io, out);
            out = NULL;
            T_EQ("append", stk_io_append(side.io, below(&side, "f"), &out, &error),
                 less ? 0 : -EINVAL);
            stk_io_close_output(side.io, out);
            T_EQ("stat", stk_io_stat_path(side.io, below(&side, "f"), &stat, NULL), 0);
            T_EQ("bytes", stat.bytes, less ? 0 : sizeof text);
            T_EQ("remove", stk_io_remove(side.io, below(&side, "f"), NULL), 0);
            close_side(&side);
        }
    }
}

static void test_steps(void)
{
    int64_t alive = stk_mem_alive();
    struct side sides[2];

    open_side(&sides[0], true);
    open_side(&sides[1], false);
    T_EACH(step_row, row, step_rows)
    {
        static char trees[2][TREE_BYTES];

        for (int i = 0; i < 2; i++) {
            struct side *side = &sides[i];
            struct stoker_error error = {0};
            char name[96];
            int status;

            snprintf(name, sizeof name, "%s, %s", row->name, i == 0 ? "machine" : "world");
            make_tree(side);
            status = do_step(side, row, &error);
            T_EQ(name, status, row->want);
            if (status < 0) {
                T_ERROR(name, &error);
                T_HAS(name, error.where, side->folder);
            }
            if (row->seen) {
                const char *text = read_text(side->io, below(side, row->see));

                T_STR(name, text ? text : "nothing", row->seen);
            } else {
                T_TRUE(name, read_text(side->io, below(side, row->see)) == NULL);
            }
            trees[i][0] = '\0';
            take_tree(side, side->folder, trees[i]);
        }
        T_STR(row->name, trees[1], trees[0]);
    }
    close_side(&sides[0]);
    close_side(&sides[1]);
    T_EQ("no leak", stk_mem_alive(), alive);
}

static const struct fault_row {
    const char *name;
    struct stk_sim_rule rule;
    int create, write, sync, rename, sync_directory;
    const char *text; /* of the file in the end */
} fault_rows[] = {
    {"none", {"work/other", STK_SIM_FAULT_WRITE, 0, 0, 0, 0}, 0, 0, 0, 0, 0, "0123456789"},
    {"full", {"work/x.part", STK_SIM_FAULT_FULL, 0, 0, 7, 0}, 0, -ENOSPC, -ENOSPC, 0, 0, "0123456"},
    {"full at the end", {NULL, STK_SIM_FAULT_FULL, 0, 0, 10, 0}, 0, 0, 0, 0, 0, "0123456789"},
    {"full at once", {NULL, STK_SIM_FAULT_FULL, 0, 0, 0, 0}, 0, -ENOSPC, -ENOSPC, 0, 0, ""},
    {"write", {NULL, STK_SIM_FAULT_WRITE, 0, 0, 5, 0}, 0, -EIO, -EIO, 0, 0, "01234"},
    {"write once", {NULL, STK_SIM_FAULT_WRITE, 0, 1, 0, 0}, 0, -EIO, -EIO, 0, 0, ""},
    {"sync", {"work/x.part", STK_SIM_FAULT_SYNC, 0, 0, 0, 0}, 0, 0, -EIO, 0, 0, "0123456789"},
    {"sync a folder", {"work", STK_SIM_FAULT_SYNC, 0, 0, 0, 0}, 0, 0, 0, 0, -EIO, "0123456789"},
    {"rename", {"work/x.part", STK_SIM_FAULT_RENAME, 0, 0, 0, 0}, 0, 0, 0, -EIO, 0, NULL},
    {"denied", {"work", STK_SIM_FAULT_DENIED, 0, 0, 0, 0}, -EACCES, 0, 0, -ENOENT, 0, NULL},
};

static void test_faults(void)
{
    T_EACH(fault_row, row, fault_rows)
    {
        int64_t alive = stk_mem_alive();
        struct stoker_error error = {0};
        struct stk_output *out = NULL;
        struct side side;
        const char *part, *final, *text;
        int status;

        open_side(&side, false);
        part = below(&side, "x.part");
        final = below(&side, "x");
        T_EQ(row->name, stk_sim_add_rule(side.io, &row->rule), 0);
        T_EQ(row->name, stk_io_create(side.io, part, true, &out, &error), row->create);
        if (out) {
            /* In halves: the failure of a first write stays. */
            status = stk_io_write(side.io, out, "01234", 5, &error);
            status = stk_io_write(side.io, out, "56789", 5, &error);
            T_EQ(row->name, status, row->write);
            T_EQ(row->name, stk_io_sync_output(side.io, out, &error), row->sync);
            T_EQ(row->name, stk_io_sync_output(side.io, out, &error), row->sync);
        }
        stk_io_close_output(side.io, out);
        T_EQ(row->name, stk_io_rename(side.io, part, final, true, &error), row->rename);
        T_EQ(row->name, stk_io_sync_directory(side.io, "work", &error), row->sync_directory);
        text = read_text(side.io, "work/x");
        T_TRUE(row->name, row->text ? text && strcmp(text, row->text) == 0 : !text);
        stk_io_close(side.io);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
}

enum { SYNC_FILE = 1, SYNC_FOLDER = 2 };

/* "new" to x; each step but the named syncs. */
static int commit(struct stk_io *io, int syncs)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(io, "work/x.part", false, &out, NULL);

    if (status == 0) {
        status = stk_io_write(io, out, "new", 3, NULL);
    }
    if (status == 0 && (syncs & SYNC_FILE)) {
        status = stk_io_sync_output(io, out, NULL);
    }
    stk_io_close_output(io, out);
    if (status == 0) {
        status = stk_io_rename(io, "work/x.part", "work/x", false, NULL);
    }
    if (status == 0 && (syncs & SYNC_FOLDER)) {
        status = stk_io_sync_directory(io, "work", NULL);
    }
    return status;
}

/* The state after a power cut during a commit without one of the syncs. */
static void test_crash(void)
{
    static const struct crash_row {
        const char *name;
        int syncs;
        const char *text;
    } rows[] = {
        {"no sync", 0, "old"},
        {"only the file", SYNC_FILE, "old"},
        {"only the folder", SYNC_FOLDER, ""},
        {"both", SYNC_FILE | SYNC_FOLDER, "new"},
    };

    T_EACH(crash_row, row, rows)
    {
        int64_t alive = stk_mem_alive();
        struct side side;

        open_side(&side, false);
        T_EQ(row->name, stk_sim_add(side.io, "work/x", "old", 3), 0);
        T_EQ(row->name, commit(side.io, row->syncs), 0);
        T_STR(row->name, read_text(side.io, "work/x"), "new");
        T_EQ(row->name, stk_sim_crash(side.io), 0);
        T_STR(row->name, read_text(side.io, "work/x"), row->text);
        T_TRUE(row->name, read_text(side.io, "work/x.part") == NULL);
        T_EQ(row->name, commit(side.io, row->syncs), 0);
        T_STR(row->name, read_text(side.io, "work/x"), "new");
        stk_io_close(side.io);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
}

/* Folders: their contents, moves from one to the other, removals. */
/* Each change that was not synced persists or is lost: over the seeds both occur for all of them,
 * but no rename loses its file, and no synced change is lost. */
static void test_crash_some(void)
{
    int64_t alive = stk_mem_alive();
    uint32_t made = 0, renamed = 0, removed = 0, apart = 0;

    for (uint64_t seed = 0; seed < 64; seed++) {
        struct side side;
        bool new_is, old_is;

        open_side(&side, false);
        T_EQ("add", stk_sim_add(side.io, "work/kept", "k", 1), 0);
        T_EQ("add", stk_sim_add(side.io, "work/removed", "r", 1), 0);
        T_EQ("add", stk_sim_add(side.io, "work/old", "o", 1), 0);
        T_EQ("write", write_text(side.io, "work/made", true, "m", NULL), 0);
        T_EQ("remove", stk_io_remove(side.io, "work/removed", NULL), 0);
        T_EQ("rename", stk_io_rename(side.io, "work/old", "work/new", true, NULL), 0);
        T_EQ("crash", stk_sim_crash_partial(side.io, seed), 0);
        T_STR("synced", read_text(side.io, "work/kept"), "k");
        new_is = read_text(side.io, "work/new") != NULL;
        old_is = read_text(side.io, "work/old") != NULL;
        T_TRUE("one of both", new_is != old_is);
        renamed += new_is;
        removed += read_text(side.io, "work/removed") == NULL;
        made += read_text(side.io, "work/made") != NULL;
        apart += new_is != (read_text(side.io, "work/made") != NULL);
        stk_io_close(side.io);
    }
    T_TRUE("made", made > 8 && made < 56);
    T_TRUE("renamed", renamed > 8 && renamed < 56);
    T_TRUE("removed", removed > 8 && removed < 56);
    T_TRUE("each for itself", apart > 8 && apart < 56);
    T_EQ("no leak", stk_mem_alive(), alive);
}

static void test_crash_folders(void)
{
    int64_t alive = stk_mem_alive();
    struct stk_file *file = NULL;
    struct side side;
    char byte = 0;

    open_side(&side, false);
    T_EQ("add", stk_sim_add(side.io, "work/a/b/old", "old", 3), 0);
    T_EQ("make", stk_io_make_directory(side.io, "work/new", true, NULL), 0);
    T_EQ("write", write_text(side.io, "work/new/x", true, "x", NULL), 0);
    T_EQ("write", write_text(side.io, "work/new/y", true, "y", NULL), 0);
    T_EQ("sync", stk_io_sync_directory(side.io, "work/new", NULL), 0);
    T_EQ("write", write_text(side.io, "work/new/z", true, "z", NULL), 0);
    T_EQ("rename", stk_io_rename(side.io, "work/new", "work/a/done", true, NULL), 0);
    T_EQ("sync", stk_io_sync_directory(side.io, "work/a", NULL), 0);
    T_EQ("remove", stk_io_remove(side.io, "work/a/done/x", NULL), 0);
    T_EQ("remove", stk_io_remove(side.io, "work/a/b/old", NULL), 0);
    T_EQ("remove", stk_io_remove(side.io, "work/a/b", NULL), 0);
    T_EQ("crash", stk_sim_crash(side.io), 0);
    T_STR("synced", read_text(side.io, "work/a/done/x"), "x");
    T_STR("synced", read_text(side.io, "work/a/done/y"), "y");
    T_TRUE("not synced", read_text(side.io, "work/a/done/z") == NULL);
    T_STR("still there", read_text(side.io, "work/a/b/old"), "old");

    /* Only the old folder was synced: the file is lost. Only the new one: it is in one. */
    T_EQ("rename", stk_io_rename(side.io, "work/a/done/x", "work/x", true, NULL), 0);
    T_EQ("sync", stk_io_sync_directory(side.io, "work/a/done", NULL), 0);
    T_EQ("crash", stk_sim_crash(side.io), 0);
    T_TRUE("gone", !read_text(side.io, "work/x") && !read_text(side.io, "work/a/done/x"));
    T_EQ("rename", stk_io_rename(side.io, "work/a/done/y", "work/y", true, NULL), 0);
    T_EQ("sync", stk_io_sync_directory(side.io, "work", NULL), 0);
    T_EQ("crash", stk_sim_crash(side.io), 0);
    T_TRUE("in one", !read_text(side.io, "work/y") != !read_text(side.io, "work/a/done/y"));

    /* Two folders that change places: the synced names of each refer to the other. */
    T_EQ("out", stk_io_rename(side.io, "work/a/b", "work/b", true, NULL), 0);
    T_EQ("in", stk_io_rename(side.io, "work/a", "work/b/a", true, NULL), 0);
    T_EQ("sync", stk_io_sync_directory(side.io, "work/b", NULL), 0);
    T_EQ("crash", stk_sim_crash(side.io), 0);
    T_STR("as before", read_text(side.io, "work/a/b/old"), "old");

    /* An open file outlives its name, and so do its bytes. */
    T_EQ("open", stk_io_open_file(side.io, "work/a/b/old", &file, NULL), 0);
    T_EQ("remove", stk_io_remove(side.io, "work/a/b/old", NULL), 0);
    T_EQ("sync", stk_io_sync_directory(side.io, "work/a/b", NULL), 0);
    T_EQ("read", stk_io_read_wait(file, 2, &byte, 1), 1);
    T_EQ("read", byte, 'd');
    stk_io_close_file(file);
    stk_io_close(side.io);
    T_EQ("no leak", stk_mem_alive(), alive);
}

/* A right commit, cut at every call: the final name has the old text or the new, whether the
 * process died or the power. And then the same again ends with the new one. */
static void test_cuts(void)
{
    int olds = 0, news = 0;

    for (int power = 0; power < 2; power++) {
        int status = -1;

        for (uint64_t n = 1; status < 0 && n < 100; n++) {
            struct side side;
            const char *text;

            open_side(&side, false);
            T_EQ("add", stk_sim_add(side.io, "work/x", "old", 3), 0);
            stk_sim_kill_nth(side.io, n);
            status = commit(side.io, SYNC_FILE | SYNC_FOLDER);
            T_TRUE("dead", status == 0 || stk_io_remove(side.io, "work/x", NULL) == -EIO);
            stk_sim_kill_nth(side.io, 0);
            if (power) {
                T_EQ("crash", stk_sim_crash(side.io), 0);
            }
            text = read_text(side.io, "work/x");
            T_TRUE("never half", text && (!strcmp(text, "old") || !strcmp(text, "new")));
            olds += text && strcmp(text, "old") == 0;
            news += text && strcmp(text, "new") == 0;
            T_EQ("again", commit(side.io, SYNC_FILE | SYNC_FOLDER), 0);
            T_STR("again", read_text(side.io, "work/x"), "new");
            stk_io_close(side.io);
        }
        T_EQ("in the end", status, 0);
    }
    T_TRUE("both were met", olds >= 4 && news >= 3);
}

/* Each kind of call of the seam, in turn: 0, or the first failure. */
static int call_all(struct stk_io *io)
{
    static uint8_t buffer[2 * STK_IO_ALIGN] __attribute__((aligned(STK_IO_ALIGN)));
    struct stk_read read = {.buffer = buffer, .bytes = 3, .capacity = sizeof buffer};
    struct stk_listing listing = {0};
    struct stk_stat stat = {0};
    struct stk_file *file = NULL;
    struct stk_queue *queue = NULL;
    struct stk_output *out = NULL;
    int status = commit(io, SYNC_FILE | SYNC_FOLDER);

    status = status < 0 ? status : stk_io_create(io, "work/y", false, &out, NULL);
    status = status < 0 ? status : stk_io_truncate(io, out, 0, NULL);
    stk_io_close_output(io, out);
    status = status < 0 ? status : stk_io_make_directory(io, "work/new", false, NULL);
    status = status < 0 ? status : stk_io_remove(io, "work/new", NULL);
    status = status < 0 ? status : stk_io_list(io, "work", &listing, NULL);
    status = status < 0 ? status : stk_io_stat_path(io, "work/x", &stat, NULL);
    status = status < 0 ? status : stk_io_open_file(io, "work/x", &file, NULL);
    status = status < 0 ? status : stk_io_stat_file(file, &stat, NULL);
    status = status < 0 ? status : stk_io_queue_open(io, &queue, NULL);
    if (status == 0) {
        int64_t count = stk_io_read_now(file, 0, buffer, 3);

        count = count < 0 ? count : stk_io_read_wait(file, 0, buffer, 3);
        status = count < 0 ? (int)count : 0;
    }
    if (status == 0) {
        read.file = file;
        T_EQ("taken", stk_io_submit(io, queue, &read), 1);
        T_TRUE("back", stk_io_reap(io, queue, 1000) == &read);
        status = read.result < 0 ? (int)read.result : 0;
    }
    stk_listing_free(&listing);
    stk_io_queue_close(io, queue);
    stk_io_close_file(file);
    return status;
}

static void test_nth(void)
{
    int64_t alive = stk_mem_alive();
    uint64_t calls = 0, allocations = 0;

    /* Of calls. */
    for (uint64_t n = 0; n <= calls; n++) {
        struct side side;

        open_side(&side, false);
        stk_sim_fail_nth(side.io, n);
        T_EQ("nth call", call_all(side.io), n > 0 ? -EIO : 0);
        if (n == 0) {
            calls = stk_sim_calls(side.io);
            T_EQ("calls", calls, 17);
        }
        T_EQ("afterwards", call_all(side.io), 0);
        stk_io_close(side.io);
    }
    /* Of allocations. */
    for (uint64_t n = 0; n <= allocations; n++) {
        struct side side;
        uint64_t before;
        int status;

        open_side(&side, false);
        before = stk_mem_calls();
        stk_mem_fail_nth(n);
        status = call_all(side.io);
        status = status < 0 ? status : stk_sim_crash(side.io);
        stk_mem_fail_nth(0);
        T_EQ("nth allocation", status, n > 0 ? -ENOMEM : 0);
        allocations = n == 0 ? stk_mem_calls() - before : allocations;
        stk_io_close(side.io);
    }
    T_TRUE("allocations", allocations > 10);
    T_EQ("no leak", stk_mem_alive(), alive);
}

/* A file that is written again has another mtime; so has the folder of a new name. */
static void test_mtime(void)
{
    struct stk_stat before = {0}, after = {0};
    struct side side;

    open_side(&side, false);
    T_EQ("add", stk_sim_add(side.io, "work/x", "old", 3), 0);
    T_EQ("stat", stk_io_stat_path(side.io, "work/x", &before, NULL), 0);
    T_EQ("write", write_text(side.io, "work/x", false, "new", NULL), 0);
    T_EQ("stat", stk_io_stat_path(side.io, "work/x", &after, NULL), 0);
    T_TRUE("another", after.mtime_ns > before.mtime_ns && after.inode == before.inode);
    T_EQ("stat", stk_io_stat_path(side.io, "work", &before, NULL), 0);
    T_EQ("write", write_text(side.io, "work/y", true, "new", NULL), 0);
    T_EQ("stat", stk_io_stat_path(side.io, "work", &after, NULL), 0);
    T_TRUE("folder", after.mtime_ns > before.mtime_ns);
    stk_io_close(side.io);
}

int main(void)
{
    test_steps();
    test_no_lines();
    test_faults();
    test_crash();
    test_crash_folders();
    test_crash_some();
    test_cuts();
    test_nth();
    test_mtime();
    return t_finish();
}
