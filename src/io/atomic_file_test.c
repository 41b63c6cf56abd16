/* Goal: the name always has a complete file, whichever call fails and whenever the power is cut.
 * Method: a simulated file system; each call and each allocation fails in turn, and the process is
 * killed and the power cut before each call. */
#include "io/atomic_file.h"

#include "base/mem.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

#define OLD "old file"
#define NEW "new file, longer than the old one"

static const struct row {
    const char *name, *path, *suffix;
    enum stk_atomic_file_sync sync;
    bool there; /* a file has the name already */
} rows[] = {
    {"replace", "/d/a", ".new", STK_ATOMIC_FILE_SYNC_DIRECTORY, true},
    {"new", "/d/a", ".new", STK_ATOMIC_FILE_SYNC_DIRECTORY, false},
    {"without sync of the directory", "/d/a", ".part", STK_ATOMIC_FILE_NO_DIRECTORY_SYNC, true},
    {"in the root", "/a", ".new", STK_ATOMIC_FILE_SYNC_DIRECTORY, true},
    {"without a folder", "a", ".tmp", STK_ATOMIC_FILE_SYNC_DIRECTORY, true},
};

static struct stk_io *open_world(const struct row *row)
{
    struct stk_io *io = NULL;

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    T_EQ("folder", stk_sim_add(io, "/d", NULL, 0), 0);
    if (row->there) {
        T_EQ("old", stk_sim_add(io, row->path, OLD, strlen(OLD)), 0);
    }
    return io;
}

/* Copies the file's text into text[64]; "" if there is none. */
static const char *read_file(struct stk_io *io, const char *path, char *text)
{
    struct stk_file *file = NULL;
    int64_t got = 0;

    if (stk_io_open_file(io, path, &file, NULL) == 0) {
        got = stk_io_read_wait(file, 0, text, 63);
        stk_io_close_file(file);
    }
    text[got > 0 ? got : 0] = '\0';
    return text;
}

static bool has_temporary(struct stk_io *io, const struct row *row)
{
    char path[64];
    struct stk_stat stat;

    snprintf(path, sizeof path, "%s%s", row->path, row->suffix);
    return stk_io_stat_path(io, path, &stat, NULL) == 0;
}

static int store(struct stk_io *io, const struct row *row, struct stoker_error *error)
{
    struct stk_view bytes = {(const uint8_t *)NEW, strlen(NEW)};

    return stk_atomic_file_store(io, row->path, row->suffix, bytes, row->sync, error);
}

static void test_good(const struct row *row)
{
    struct stk_io *io = open_world(row);
    char text[64];

    T_EQ(row->name, store(io, row, NULL), 0);
    T_STR(row->name, read_file(io, row->path, text), NEW);
    T_TRUE(row->name, !has_temporary(io, row));
    T_EQ(row->name, stk_sim_crash(io), 0);
    read_file(io, row->path, text);
    T_TRUE(row->name, strcmp(text, NEW) == 0 || (row->sync != 0 && strcmp(text, OLD) == 0));
    stk_io_close(io);
}

/* One call fails: the error names it, nothing is left. */
static void test_failures(const struct row *row)
{
    const char *old = row->there ? OLD : "";
    int status = -1;

    for (uint64_t n = 1; status < 0; n++) {
        int64_t alive = stk_mem_alive();
        struct stk_io *io = open_world(row);
        struct stoker_error error = {0};
        char text[64];

        stk_sim_fail_nth(io, n);
        status = store(io, row, &error);
        stk_sim_fail_nth(io, 0);
        read_file(io, row->path, text);
        if (status < 0) {
            T_ERROR(row->name, &error);
        }
        /* Only the sync of the directory is after the rename. */
        T_TRUE(row->name, strcmp(text, old) == 0 || strcmp(text, NEW) == 0);
        T_TRUE(row->name, !has_temporary(io, row));
        stk_io_close(io);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
}

/* The process is killed before each call, then the power is cut, or not. */
static void test_kills(const struct row *row)
{
    const char *old = row->there ? OLD : "";
    int status = -1;

    for (uint64_t n = 1; status < 0; n++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            struct stk_io *io = open_world(row);
            char text[64];

            stk_sim_kill_nth(io, n);
            status = store(io, row, NULL);
            stk_sim_kill_nth(io, 0);
            if (seed > 0) {
                T_EQ(row->name, seed > 1 ? stk_sim_crash_partial(io, seed) : stk_sim_crash(io), 0);
            }
            read_file(io, row->path, text);
            T_TRUE(row->name, strcmp(text, old) == 0 || strcmp(text, NEW) == 0);
            T_EQ("next run", store(io, row, NULL), 0);
            T_STR("next run", read_file(io, row->path, text), NEW);
            T_TRUE("next run", !has_temporary(io, row));
            stk_io_close(io);
        }
    }
}

static int store_detached(struct stk_io *io)
{
    struct stk_atomic_file file;
    int status = stk_atomic_file_open(&file, io, "/d/a", ".new", NULL);

    status = status < 0 ? status : stk_atomic_file_write(&file, NEW, strlen(NEW), NULL);
    status = status < 0 ? status : stk_atomic_file_detach(&file, NULL);
    stk_atomic_file_close(&file);
    return status;
}

/* A detached file is complete under its temporary name after a power cut; the name keeps the old
 * file. If a call fails, no temporary file stays. */
static void test_detach(void)
{
    const struct row *row = &rows[0];
    struct stk_io *io = open_world(row);
    int status = -1;
    char text[64];

    T_EQ("detach", store_detached(io), 0);
    T_EQ("detach", stk_io_sync_directory(io, "/d", NULL), 0);
    T_EQ("detach", stk_sim_crash(io), 0);
    T_STR("detach", read_file(io, "/d/a.new", text), NEW);
    T_STR("detach", read_file(io, "/d/a", text), OLD);
    stk_io_close(io);
    for (uint64_t n = 1; status < 0; n++) {
        io = open_world(row);
        stk_sim_fail_nth(io, n);
        status = store_detached(io);
        stk_sim_fail_nth(io, 0);
        T_TRUE("detach", has_temporary(io, row) == (status == 0));
        stk_io_close(io);
    }
}

static void test_memory(const struct row *row)
{
    struct stk_io *io = open_world(row);
    struct stoker_error error = {0};
    int status = -ENOMEM;

    for (uint64_t n = 1; status == -ENOMEM; n++) {
        stk_mem_fail_nth(n);
        status = store(io, row, &error);
        stk_mem_fail_nth(0);
        if (status == -ENOMEM) {
            T_ERROR(row->name, &error);
            T_TRUE(row->name, !has_temporary(io, row));
        }
    }
    T_EQ(row->name, status, 0);
    stk_io_close(io);
}

/* An uncommitted file leaves nothing; a zeroed struct may be closed. */
static void test_close(void)
{
    struct stk_io *io = open_world(&rows[0]);
    struct stk_atomic_file file;
    char text[64];

    T_EQ("open", stk_atomic_file_open(&file, io, "/d/a", ".new", NULL), 0);
    T_EQ("write", stk_atomic_file_write(&file, NEW, 3, NULL), 0);
    T_TRUE("temporary", has_temporary(io, &rows[0]));
    stk_atomic_file_close(&file);
    stk_atomic_file_close(&file);
    T_TRUE("removed", !has_temporary(io, &rows[0]));
    T_STR("as it was", read_file(io, "/d/a", text), OLD);
    T_EQ("no folder", stk_atomic_file_open(&file, io, "/none/a", ".new", NULL), -ENOENT);
    stk_atomic_file_close(&file);
    stk_io_close(io);
}

int main(void)
{
    T_EACH(row, row, rows)
    {
        test_good(row);
        test_failures(row);
        test_kills(row);
        test_memory(row);
    }
    test_detach();
    test_close();
    return t_finish();
}
