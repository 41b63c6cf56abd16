/* Goal: copies between local folders have the same bytes and names, and no partial file; a file
 * that cannot be copied is an error, and the others are copied.
 * Method: real folders, parts small enough that files have several; the parts of a killed run
 * are written by the test. Stores: python/tests/test_copy.py. Covers copy_file.c, copy_plan.c,
 * copy_paths.c, copy_remove.c, copy_destination.c, and the part of copy_checksum.c for local
 * files. */
#include "tools/copy/copy.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "engine/engine.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART (5u << 20)
#define MANY 3000u
#define STOP_TRIES 20u

static char home[64];
static struct stoker_engine *engine;
static struct stoker_copy_progress progress;
static struct stoker_error error;

static char *at(const char *name)
{
    static char path[16][256];
    static int turn;

    turn = (turn + 1) % 16;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static void put(const char *name, size_t bytes, uint64_t seed)
{
    FILE *file = fopen(at(name), "w");

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = stk_random_key(seed, i);

        fwrite(&word, 1, stk_min(8, bytes - i), file);
    }
    fclose(file);
}

/* A command with two paths after it. */
static bool sh(const char *first, const char *a, const char *second, const char *b)
{
    char command[1024];

    snprintf(command, sizeof command, "%s %s %s %s 2>&1", first, a, second, b);
    return system(command) == 0;
}

static bool same(const char *a, const char *b)
{
    return sh("diff -r >/dev/null", at(a), "", at(b));
}

static int run_paths(struct stoker_copy_options options, const char *source, const char *to)
{
    struct stoker_copy *copy = NULL;
    int status;

    options.struct_size = sizeof options;
    options.sources = &source;
    options.source_count = 1;
    options.destination = to;
    options.part_bytes = PART;
    memset(&error, 0, sizeof error);
    memset(&progress, 0, sizeof progress);
    progress.struct_size = sizeof progress;
    status = stoker_copy_open(&copy, engine, &options, &error);
    while (status == 0 && (status = stoker_copy_next(copy, 60000, &progress, &error)) == 1) {
        status = 0;
    }
    stoker_copy_close(copy);
    if (status < 0) {
        T_ERROR(source, &error);
    }
    return status;
}

static int run(struct stoker_copy_options options, const char *from, const char *to)
{
    return run_paths(options, at(from), to ? at(to) : NULL);
}

static const struct stoker_copy_options deep = {.kind = STOKER_COPY, .recursive = 1};
static const struct stoker_copy_options flat = {.kind = STOKER_COPY};
static const struct stoker_copy_options fresh = {.kind = STOKER_COPY, .no_clobber = 1};
static const struct stoker_copy_options same_as = {.kind = STOKER_SYNC};
static const struct stoker_copy_options exact = {.kind = STOKER_SYNC, .delete_extra = 1};
static const struct stoker_copy_options gone = {.kind = STOKER_REMOVE};
static const struct stoker_copy_options all_gone = {.kind = STOKER_REMOVE, .recursive = 1};

static void make_source(void)
{
    static const size_t sizes[] = {0, 1, 4096, 1000000, PART - 1, PART, PART + 1, 3 * PART + 17};
    char name[64];

    mkdir(at("src"), 0755);
    mkdir(at("src/sub"), 0755);
    mkdir(at("src/sub/deep"), 0755);
    for (size_t i = 0; i < STK_COUNT(sizes); i++) {
        snprintf(name, sizeof name, "src/%s%zu", i % 3 ? i % 3 == 1 ? "sub/" : "sub/deep/" : "",
                 sizes[i]);
        put(name, sizes[i], i);
    }
}

static void test_copies(void)
{
    T_EQ("tree", run(deep, "src", "a/b/c"), 0);
    T_TRUE("tree", same("src", "a/b/c"));
    T_EQ("counted", progress.files_done == 8 && progress.files == 8 && progress.listed, 1);
    T_EQ("counted", progress.bytes_done, progress.bytes);
    T_EQ("again", run(deep, "src", "a/b/c"), 0);
    T_EQ("all of it", progress.files_skipped, 0);
    T_EQ("sync", run(same_as, "src", "a/b/c"), 0);
    T_EQ("nothing", progress.files_skipped, 8);
    put("src/new", 100, 9);
    put("a/b/c/extra", 100, 9);
    T_EQ("sync", run(same_as, "src", "a/b/c"), 0);
    T_EQ("the new one", progress.files_done - progress.files_skipped, 1);
    T_EQ("extra stays", access(at("a/b/c/extra"), F_OK), 0);
    T_EQ("exact", run(exact, "src", "a/b/c"), 0);
    T_TRUE("exact", same("src", "a/b/c") && progress.files_removed == 1);
    T_EQ("file", run(flat, "src/new", "a/name"), 0);
    T_TRUE("file", same("src/new", "a/name"));
    T_EQ("into a folder", run(flat, "src/new", "a/b"), 0);
    T_TRUE("into a folder", same("src/new", "a/b/new"));
    T_EQ("folder as a file", run(flat, "src", "x"), -EISDIR);
    T_EQ("into itself", run(deep, "src", "src/sub/there"), STOKER_ERROR_ARGUMENT);
    T_EQ("none", run(deep, "none", "x"), -ENOENT);
    T_EQ("fresh", run(fresh, "src/new", "a/fresh"), 0);
    T_EQ("there", run(fresh, "src/4096", "a/fresh"), -ENOENT);
    T_EQ("there", run(fresh, "src/0", "a/fresh"), -EEXIST);
    T_TRUE("stays", same("src/new", "a/fresh"));
    mkdir(at("void"), 0755);
    T_EQ("nothing is no reason to remove all", run(exact, "void", "a/b/c"), STOKER_ERROR_EMPTY);
    T_TRUE("stays", same("src", "a/b/c"));
    T_TRUE("no leftovers", sh("! find", home, "-name '.stoker-*' | grep .", ""));
}

/* One file that fails, and the others that do not; a link in the destination that leads away. */
static void test_failures(void)
{
    mkdir(at("bad"), 0755);
    mkdir(at("bad/6"), 0755);
    mkdir(at("bad/1"), 0755); /* a folder where a file is to be */
    mkdir(at("bad/1/x"), 0755);
    mkdir(at("some"), 0755);
    put("some/1", 10, 1);
    put("some/2", 10, 2);
    T_EQ("one fails", run(deep, "some", "bad") < 0, 1);
    T_EQ("one fails", progress.files_failed == 1 && progress.files_done == 1, 1);
    T_TRUE("the other is there", same("some/2", "bad/2"));
    mkdir(at("away"), 0755);
    mkdir(at("to"), 0755);
    T_EQ("link", symlink(at("away"), at("to/sub")), 0);
    T_EQ("a link out", run(deep, "src", "to"), -ELOOP);
    T_TRUE("nothing went there", sh("! ls -A", at("away"), "| grep .", ""));
    T_EQ("pipe", mkfifo(at("pipe"), 0644) + mkfifo(at("to/1"), 0644), 0);
    T_EQ("a pipe", run(flat, "some/1", "pipe"), -ENXIO);
    T_EQ("begun before that was seen", progress.bytes_done, 0);
    T_EQ("a pipe in a folder", run(deep, "some", "to"), -ENXIO);
    T_TRUE("the other is there", same("some/2", "to/2"));
    T_TRUE("still pipes", sh("test -p", at("pipe"), "-a -p", at("to/1")));
}

/* An entry of the source that is not copied is no reason to remove the existing file of its
 * name. */
static void test_spared(void)
{
    static const char *const remaining[] = {"a", "out", "gone", "pipe", "sub/dir/x", "sub/dir/y/z"};
    static const char *const extra[] = {"ou", "out2", "sub/dirs", "sub/di/x"};
    static const char *const folders[] = {
        "spare",        "spare/from",       "spare/from/sub",     "spare/to",
        "spare/to/sub", "spare/to/sub/dir", "spare/to/sub/dir/y", "spare/to/sub/di"};
    char name[64];

    for (size_t i = 0; i < STK_COUNT(folders); i++) {
        mkdir(at(folders[i]), 0755);
    }
    put("spare/from/a", 10, 1);
    T_EQ("out", symlink("/etc/passwd", at("spare/from/out")), 0);
    T_EQ("to nothing", symlink("none", at("spare/from/gone")), 0);
    T_EQ("to a folder", symlink("../../to", at("spare/from/sub/dir")), 0);
    T_EQ("pipe", mkfifo(at("spare/from/pipe"), 0644), 0);
    for (size_t i = 0; i < STK_COUNT(remaining) + STK_COUNT(extra); i++) {
        const char *one = i < STK_COUNT(remaining) ? remaining[i] : extra[i - STK_COUNT(remaining)];

        snprintf(name, sizeof name, "spare/to/%s", one);
        put(name, 10, 1);
    }
    T_EQ("exact", run(exact, "spare/from", "spare/to"), 0);
    T_EQ("left out", progress.links_left_out, 4);
    T_EQ("spared", progress.files_not_deleted, 5);
    T_EQ("removed", progress.files_removed, STK_COUNT(extra));
    for (size_t i = 0; i < STK_COUNT(remaining); i++) {
        snprintf(name, sizeof name, "spare/to/%s", remaining[i]);
        T_EQ(remaining[i], access(at(name), F_OK), 0);
    }
    T_TRUE("clean", sh("rm -r", at("spare"), "", ""));
}

static void set_time(const char *name, time_t seconds, long nanoseconds)
{
    struct timespec times[] = {{seconds, nanoseconds}, {seconds, nanoseconds}};

    T_EQ(name, utimensat(AT_FDCWD, at(name), times, 0), 0);
}

/* Files that are skipped: with the same size, and the same time to the nanosecond. */
static void test_sync_rule(void)
{
    static const struct {
        const char *name;
        size_t bytes;
        long source_ns, there_ns; /* after a second */
        time_t there_s;
        bool remaining;
    } rows[] = {
        {"the same", 100, 5, 5, 1000, true},
        {"newer there", 100, 5, 5, 2000, false},
        {"older there", 100, 5, 5, 999, false},
        {"a second older, but for a part", 100, 999999998, 0, 1000, false},
        {"older there by a nanosecond", 100, 6, 5, 1000, false},
        {"newer there by a nanosecond", 100, 5, 6, 1000, false},
        {"from before 1970 there", 100, 0, 0, -1, false},
        {"larger there", 99, 5, 5, 2000, false},
        {"smaller there", 101, 5, 5, 2000, false},
        {"empty there and here", 0, 5, 5, 7, true},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        mkdir(at("rule"), 0755);
        mkdir(at("rule/from"), 0755);
        mkdir(at("rule/to"), 0755);
        put("rule/from/x", rows[i].bytes, 1);
        put("rule/to/x", rows[i].bytes ? 100 : 0, 2);
        set_time("rule/from/x", 1000, rows[i].source_ns);
        set_time("rule/to/x", rows[i].there_s, rows[i].there_ns);
        T_EQ(rows[i].name, run(same_as, "rule/from", "rule/to"), 0);
        T_EQ(rows[i].name, progress.files_skipped, rows[i].remaining);
        T_EQ(rows[i].name, same("rule/from", "rule/to"), !rows[i].remaining || rows[i].bytes == 0);
        T_TRUE("clean", sh("rm -r", at("rule"), "", ""));
    }
}

static void stat_into(struct stk_copy_file *file)
{
    struct stat stat_of;

    T_EQ("stat", stat(file->from, &stat_of), 0);
    file->bytes = (uint64_t)stat_of.st_size;
    file->mtime_ns =
        (uint64_t)stat_of.st_mtim.tv_sec * 1000000000u + (uint64_t)stat_of.st_mtim.tv_nsec;
    file->ctime_ns =
        (uint64_t)stat_of.st_ctim.tv_sec * 1000000000u + (uint64_t)stat_of.st_ctim.tv_nsec;
    file->inode = stat_of.st_ino;
}

/* Reads of the engine's io, in halves, between which the test writes to the source. */
static const struct stk_io_table *true_table;
static struct stk_file_ops true_ops, half_ops;
static uint32_t writes;

static int64_t read_half(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    int64_t got = true_ops.read_wait(file, offset, buffer, bytes > 1 ? bytes / 2 : bytes);

    if (writes > 0 && bytes == 1000) { /* the first half */
        put("changing/from", 1000, 100 + writes);
        set_time("changing/from", 2000 + writes, 0);
        writes--;
    }
    return got;
}

static _Thread_local const struct stk_file_ops *opened_ops;

static void copy_ops(void)
{
    true_ops = half_ops = *opened_ops;
    half_ops.read_wait = read_half;
}

static int open_half(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *problem)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int status = true_table->open_file(io, path, file_out, problem);

    if (status == 0) {
        opened_ops = (*file_out)->ops;
        pthread_once(&once, copy_ops);
        (*file_out)->ops = &half_ops;
    }
    return status;
}

/* A file that changes while it is read: the new version is copied, completely; if it changes all
 * the time, none. */
static void test_changed_meanwhile(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};
    struct stk_io_options plain = {0};
    struct stoker_engine *before = engine;
    struct stk_io_table halves;
    struct stk_io *io = NULL;

    T_EQ("io", stk_io_open(&io, &plain, &error), 0);
    true_table = io->table; /* changed before any thread reads it */
    halves = *true_table;
    halves.open_file = open_half;
    io->table = &halves;
    T_EQ("engine", stk_engine_open_with_io(&engine, io, &options, &error), 0);
    mkdir(at("changing"), 0755);
    put("changing/from", 1000, 1);
    writes = 1;
    T_EQ("once", run(flat, "changing/from", "changing/to"), 0);
    T_TRUE("once", same("changing/from", "changing/to") && writes == 0);
    T_EQ("away", unlink(at("changing/to")), 0);
    writes = 1000;
    T_EQ("always", run(flat, "changing/from", "changing/to"), STOKER_ERROR_CHANGED);
    T_TRUE("always", access(at("changing/to"), F_OK) < 0);
    stoker_engine_close(engine);
    engine = before;
    T_TRUE("clean", sh("rm -r", at("changing"), "", ""));
}

/* A source that changes after it was listed, or while its parts are read. */
static void test_changed(void)
{
    static uint8_t buffer[PART];
    struct stoker_copy copy = {
        .io = engine->io, .to_io = engine->io, .upload = {.part_bytes = PART}};
    char from[256], to[256];
    struct stk_copy_file file = {.from = from, .to = to, .root = from};

    snprintf(from, sizeof from, "%s", at("changing/from"));
    snprintf(to, sizeof to, "%s", at("changing/to"));
    copy.destination = to;
    pthread_mutex_init(&copy.job.lock, NULL);
    pthread_mutex_init(&copy.folders_lock, NULL);
    pthread_cond_init(&copy.turn, NULL);
    mkdir(at("changing"), 0755);
    put("changing/from", 1000, 1);
    stat_into(&file);
    put("changing/from", 900, 2); /* shorter: the current version is copied */
    T_EQ("shorter", stk_copy_file_small(&copy, &file, buffer, &error), 0);
    T_TRUE("shorter", same("changing/from", "changing/to"));
    stat_into(&file);
    T_EQ("away", unlink(at("changing/to")), 0);
    put("changing/from", 2000, 3); /* there is no room for more */
    T_EQ("longer", stk_copy_file_small(&copy, &file, buffer, &error), STOKER_ERROR_CHANGED);
    T_TRUE("longer", access(at("changing/to"), F_OK) < 0);

    for (int change = 0; change < 3; change++) {
        struct stk_copy_file large = {.from = from, .to = to, .root = from};

        put("changing/from", 2 * PART, 4);
        set_time("changing/from", 1000, 0);
        stat_into(&large);
        large.part_bytes = PART;
        T_EQ("begin", stk_copy_file_begin(&copy, &large, &error), 0);
        for (uint32_t i = 0; i < 2; i++) {
            T_EQ("part", stk_copy_file_part(&copy, &large, i, buffer, &error), 0);
            if (i == 0 && change == 1) {
                set_time("changing/from", 1000, 1);
            } else if (i == 0 && change == 2) {
                T_EQ("longer", truncate(at("changing/from"), 2 * PART + 1), 0);
                set_time("changing/from", 1000, 0);
            }
        }
        T_EQ("end", stk_copy_file_end(&copy, &large, &error), change ? STOKER_ERROR_CHANGED : 0);
        T_EQ("there", access(at("changing/to"), F_OK) == 0, change == 0);
        (void)unlink(at("changing/to"));
    }
    stk_key_set_deinit(&copy.folders);
    T_TRUE("no leftovers", sh("! find", at("changing"), "-name '.stoker-*' | grep .", ""));
    T_TRUE("clean", sh("rm -r", at("changing"), "", ""));
}

/* The partial file of the current `file`, as a killed run leaves it: two complete parts and some of
 * the third. */
static void leave(const struct stoker_copy *copy, struct stk_copy_file *file, const char *left,
                  const char *note)
{
    static uint8_t part[PART];
    FILE *in, *out;

    stat_into(file);
    T_TRUE("left", sh("head -c 12000000", file->from, ">", left));
    in = fopen(left, "r");
    out = fopen(note, "w");
    fprintf(out, "%016llx\n", (unsigned long long)stk_copy_version(copy, file));
    for (uint32_t i = 0; i < 2; i++) {
        T_EQ("part", fread(part, 1, PART, in), PART);
        fprintf(out, "%016llx\n", (unsigned long long)stk_xxh3_64(part, PART));
    }
    fclose(out);
    fclose(in);
}

static void damage(const char *path, long offset)
{
    FILE *file = fopen(path, "r+");
    int byte;

    fseek(file, offset, SEEK_SET);
    byte = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void check_resumed(const char *what, const char *name, uint64_t bytes_skipped)
{
    T_EQ(what, run(flat, name, "resumed"), 0);
    T_TRUE(what, same(name, "resumed"));
    T_EQ(what, progress.bytes_skipped, bytes_skipped);
    T_TRUE(what, sh("! find", at(""), "-name '.stoker-*' | grep .", ""));
}

/* A killed run's file is resumed if it is of this version of the source, and was written since the
 * machine started; else it is overwritten under the same name, so that none of it remains. */
static void test_resume(void)
{
    struct stoker_copy copy = {.io = engine->io, .to_io = engine->io}, before;
    struct stk_copy_file file = {.part_bytes = PART};
    char name[64], *left, *note;
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "r");
    char text[64];

    copy.boot = stk_xxh3_64(text, fread(text, 1, sizeof text, boot)) | 1;
    fclose(boot);
    snprintf(name, sizeof name, "src/sub/%u", 3 * PART + 17);
    file.from = stk_strdup(at(name)); /* at() has few places */
    file.to = stk_strdup(at("resumed"));
    left = stk_copy_partial_path(&file, false);
    note = stk_copy_partial_path(&file, true);
    leave(&copy, &file, left, note);
    check_resumed("two parts", name, 2 * PART);
    leave(&copy, &file, left, note);
    damage(left, PART + 1);
    check_resumed("damage of the second part", name, PART);
    leave(&copy, &file, left, note);
    damage(left, PART - 1);
    check_resumed("damage of the first part", name, 0);
    leave(&copy, &file, left, note);
    damage(note, 17L * 2);
    check_resumed("damage of the second sum", name, PART);
    leave(&copy, &file, left, note);
    T_EQ("cut", truncate(note, 17L * 3 - 1), 0);
    check_resumed("the second checksum is incomplete", name, PART);
    leave(&copy, &file, left, note);
    T_EQ("cut", truncate(note, 17), 0);
    check_resumed("no sum", name, 0);
    leave(&copy, &file, left, note);
    T_EQ("another time", utimensat(0, file.from, NULL, 0), 0);
    check_resumed("another version", name, 0);
    leave(&copy, &file, left,
          note); /* a different file of the same size and time takes its place */
    T_TRUE("another file",
           sh("cp -p", file.from, "", at("saved")) &&
               sh("tr '\\000-\\377' '\\001-\\377\\000' <", at("saved"), ">", file.from) &&
               sh("touch -r", at("saved"), "", file.from));
    check_resumed("another file of the same size and time", name, 0);
    T_TRUE("another file", sh("cp -p", at("saved"), "", file.from) && unlink(at("saved")) == 0);
    before = copy;
    before.boot += 2;
    leave(&before, &file, left, note);
    check_resumed("another start of the machine", name, 0);
    leave(&copy, &file, left, note);
    T_EQ("cut", truncate(note, 16), 0);
    check_resumed("half a note", name, 0);
    leave(&copy, &file, left, note);
    unlink(note);
    check_resumed("no note", name, 0);
    leave(&copy, &file, left, note);
    unlink(left);
    check_resumed("only a note", name, 0);
    leave(&copy, &file, left, note);
    T_TRUE("a small one by now", sh("echo small >", file.from, "", ""));
    check_resumed("a small one by now", name, 0);
    stk_free(left);
    stk_free(note);
    stk_free(file.from);
    stk_free(file.to);
}

/* The file at a destination is compared by its hash, and this can be cancelled. */
static void test_same(void)
{
    static const struct {
        const char *name, *hash;
        bool stop;
        int want;
    } rows[] = {
        {"SHA-256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", false, 1},
        {"another", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ae", false, 0},
        {"of git", "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f", false, 1},
        {"plain SHA-1", "a9993e364706816aba3e25717850c26c9cd0d89d", false, 0},
        {"stopped", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", true,
         STOKER_ERROR_CLOSED},
    };
    static uint8_t bytes[2]; /* it takes more than one read */
    struct stk_view buffer = {bytes, sizeof bytes};
    struct stk_copy_file file = {.to = at("abc"), .bytes = 3};

    T_TRUE("abc", sh("printf abc >", at("abc"), "", ""));
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stoker_copy copy = {
            .io = engine->io, .to_io = engine->io, .job.stopping = rows[i].stop};

        snprintf(file.hash, sizeof file.hash, "%s", rows[i].hash);
        T_EQ(rows[i].name, stk_copy_destination_matches(&copy, &file, buffer), rows[i].want);
        file.bytes = 2;
        T_EQ("longer", stk_copy_destination_matches(&copy, &file, buffer) == 1, 0);
        file.bytes = 4;
        T_EQ("shorter", stk_copy_destination_matches(&copy, &file, buffer) == 1, 0);
        file.bytes = 3;
    }
    file.to = at("none");
    T_EQ("none",
         stk_copy_destination_matches(&(struct stoker_copy){.io = engine->io}, &file, buffer), 0);
}

static void test_remove(void)
{
    T_EQ("link", symlink(at("some"), at("a/link")), 0);
    T_EQ("a folder needs more", run(gone, "a", NULL), -EISDIR);
    T_EQ("a file", run(gone, "a/name", NULL), 0);
    T_TRUE("gone", access(at("a/name"), F_OK) < 0 && progress.files_removed == 1);
    T_EQ("all", run(all_gone, "a", NULL), 0);
    T_TRUE("gone", access(at("a"), F_OK) < 0);
    T_TRUE("a link is not followed", access(at("some/1"), F_OK) == 0);
    T_EQ("none", run(gone, "a", NULL), -ENOENT);
}

static void test_names(void)
{
    static const struct {
        const char *name;
        bool path;
    } names[] = {{"a", true},   {"a/b.c", true}, {"..a", true},   {"", false},       {"..", false},
                 {"a/", false}, {"/a", false},   {"a//b", false}, {"a/../b", false}, {".", false}};
    size_t bytes;

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        T_EQ(names[i].name, stk_copy_is_safe_path(names[i].name), names[i].path);
    }
    T_EQ("base",
         strncmp(stk_copy_base_name("http://h/a/b.tar?x=/y", &bytes), "b.tar", 5) == 0 &&
             bytes == 5,
         1);
    T_EQ("base", strncmp(stk_copy_base_name("s3://b/a?c/", &bytes), "a?c", 3) == 0 && bytes == 3,
         1);
}

/* Copies many files with few threads until the first file is done, and stops; returns the
 * counters. */
static int run_stopped(void)
{
    struct stoker_copy_options options = deep;
    struct stoker_copy *copy = NULL;
    const char *source = at("many");
    int status;

    options.struct_size = sizeof options;
    options.sources = &source;
    options.source_count = 1;
    options.destination = at("few");
    T_EQ("open", stoker_copy_open(&copy, engine, &options, &error), 0);
    while (stoker_copy_next(copy, 1, &progress, &error) == 1 && progress.files_done == 0) {
    }
    stoker_copy_stop(copy);
    status = stoker_copy_next(copy, 0, &progress, &error);
    stoker_copy_stop(copy); /* once more is fine */
    stoker_copy_close(copy);
    return status;
}

/* The counters of a stopped copy match the existing files: no file appears later. */
static void test_stop(void)
{
    char name[32];
    uint64_t there = 0;
    uint32_t tries = 0;
    int status;

    T_TRUE("folder", sh("mkdir", at("many"), "", ""));
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "many/%u", i);
        put(name, 8, i);
    }
    do { /* all may be done before this thread continues */
        T_TRUE("nothing is there", sh("rm -rf", at("few"), "", ""));
        status = run_stopped();
    } while (status == 0 && ++tries < STOP_TRIES);
    T_EQ("it ended", status, STOKER_ERROR_CLOSED);
    for (uint32_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "few/%u", i);
        there += access(at(name), F_OK) == 0;
    }
    T_TRUE("some are there", there > 0 && there < MANY);
    T_EQ("reported", progress.files_done, there);
    T_TRUE("clean", sh("rm -r", at("many"), "", at("few")));
}

static void test_options(void)
{
    struct stoker_copy_options bad[] = {deep, deep, same_as, deep};

    bad[0].kind = 7;
    bad[1].workers = 1000;
    bad[3].check = 77;
    T_EQ("kind", run(bad[0], "src", "x"), STOKER_ERROR_ARGUMENT);
    T_EQ("workers", run(bad[1], "src", "x"), STOKER_ERROR_ARGUMENT);
    T_EQ("no destination", run(bad[2], "src", NULL), STOKER_ERROR_ARGUMENT);
    T_EQ("check", run(bad[3], "src", "x"), STOKER_ERROR_ARGUMENT);
}

#define CUT_FILES 24
#define CUT_BYTES(i) (1000u * (i) + 17)

/* Checks that each file below /out after a power cut is complete. */
static uint32_t check_partial(struct stk_io *world, const uint8_t *bytes)
{
    static uint8_t found[CUT_BYTES(CUT_FILES) + 1];
    uint32_t there = 0;

    for (uint32_t i = 0; i < CUT_FILES; i++) {
        struct stk_file *file;
        char path[32];

        snprintf(path, sizeof path, "/out/%02u", i);
        if (stk_io_open_file(world, path, &file, NULL) < 0) {
            continue;
        }
        there++;
        T_EQ(path, stk_io_read_wait(file, 0, found, sizeof found), CUT_BYTES(i));
        T_EQ(path, memcmp(found, bytes, CUT_BYTES(i)), 0);
        stk_io_close_file(file);
    }
    return there;
}

/* A file with its final name is complete after a power cut: none is empty. */
static void test_power_cut(void)
{
    static uint8_t bytes[CUT_BYTES(CUT_FILES)];
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stk_io_options io = {0};
    uint32_t there = 0;

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)stk_random_key(5, i);
    }
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct stoker_engine *before = engine;
        struct stk_io *world = NULL;
        char path[32];

        T_EQ("world", stk_sim_open(&world, seed, &io, NULL), 0);
        T_EQ("engine", stk_engine_open_with_io(&engine, world, &options, NULL), 0);
        T_EQ("out", stk_sim_add(world, "/out", NULL, 0), 0);
        for (uint32_t i = 0; i < CUT_FILES; i++) {
            snprintf(path, sizeof path, "/in/%02u", i);
            T_EQ(path, stk_sim_add(world, path, bytes, CUT_BYTES(i)), 0);
        }
        T_EQ("copy", run_paths(deep, "/in", "/out"), 0);
        T_EQ("all", progress.files_done, CUT_FILES);
        T_EQ("crash", stk_sim_crash_partial(world, seed), 0);
        there += check_partial(world, bytes);
        stoker_engine_close(engine);
        engine = before;
    }
    T_TRUE("some persisted, some did not", there > 0 && there < 8 * CUT_FILES);
}

/* A move neither takes nor removes a file through a link that replaced a folder of its source. */
static void test_move_through_link(void)
{
    struct stoker_copy copy = {.io = engine->io, .to_io = engine->io, .options.kind = STOKER_MOVE};
    char from[256], to[256], root[256];
    struct stk_copy_file file = {.from = from, .to = to, .root = root};

    snprintf(root, sizeof root, "%s", at("mv"));
    snprintf(from, sizeof from, "%s", at("mv/sub/a"));
    snprintf(to, sizeof to, "%s", at("taken"));
    T_TRUE("folders", sh("mkdir -p", at("mv"), at("safe"), ""));
    put("safe/a", 10, 1);
    T_EQ("link", symlink("../safe", at("mv/sub")), 0);
    stat_into(&file);
    copy.destination = to;
    T_EQ("rename", stk_copy_try_rename(&copy, &file, &error), -ELOOP);
    T_EQ("remove", stk_copy_remove_source(&copy, &file, &error), -ELOOP);
    T_TRUE("there", access(at("safe/a"), F_OK) == 0 && access(to, F_OK) < 0);
    stk_copy_close_sources(&copy);
    stk_key_set_deinit(&copy.folders);
    T_TRUE("clean", sh("rm -r", at("mv"), at("safe"), ""));
}

/* A copy reads no file through a link that replaced a folder of its source, or the source, after it
 * was listed; a link to a folder of the source is followed. */
static void test_copy_through_link(void)
{
    static const struct swap_row {
        const char *folder, *target; /* a folder that is replaced by a link; NULL: it is not */
        int status;
    } rows[] = {{NULL, NULL, 0},
                {"cl/sub", "other", 0},
                {"cl/sub", "../safe", -ELOOP},
                {"cl", "twin", STOKER_ERROR_CHANGED}};

    T_EACH(swap_row, row, rows)
    {
        struct stoker_copy copy = {.io = engine->io, .to_io = engine->io};
        char from[256], to[256], root[256];
        struct stk_copy_file file = {.from = from, .to = to, .root = root};
        struct stat folder;
        uint8_t buffer[64];

        snprintf(root, sizeof root, "%s", at("cl"));
        snprintf(from, sizeof from, "%s", at("cl/sub/a"));
        snprintf(to, sizeof to, "%s", at("read"));
        T_TRUE("folders", sh("mkdir -p", at("cl/sub"), at("cl/other"), at("safe")));
        put("cl/sub/a", 10, 1);
        put("cl/other/a", 10, 1);
        put("safe/a", 10, 1);
        T_TRUE("twin", sh("cp -r", at("cl"), at("twin"), ""));
        T_EQ("root", stat(root, &folder), 0);
        file.root_device = folder.st_dev;
        file.root_inode = folder.st_ino;
        if (row->target) {
            T_TRUE("away", sh("mv", at(row->folder), at("moved"), ""));
            T_EQ("link", symlink(row->target, at(row->folder)), 0);
        }
        stat_into(&file);
        copy.destination = to;
        T_EQ(row->folder, stk_copy_file_small(&copy, &file, buffer, &error), row->status);
        T_EQ(row->folder, access(to, F_OK), row->status == 0 ? 0 : -1);
        stk_key_set_deinit(&copy.folders);
        T_TRUE("clean", sh("rm -rf", at("cl"), at("safe"), at("read")) &&
                            sh("rm -rf", at("twin"), at("moved"), ""));
    }
}

int main(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};

    snprintf(home, sizeof home, "/tmp/copy_test.XXXXXX");
    T_TRUE("home", mkdtemp(home) != NULL);
    T_EQ("engine", stoker_engine_open(&engine, &options, &error), 0);
    make_source();
    test_copies();
    test_failures();
    test_spared();
    test_sync_rule();
    test_changed();
    test_changed_meanwhile();
    test_resume();
    test_same();
    test_remove();
    test_names();
    test_stop();
    test_options();
    test_power_cut();
    test_move_through_link();
    test_copy_through_link();
    stoker_engine_close(engine);
    T_TRUE("clean", sh("rm -r", home, "", ""));
    return t_finish();
}
