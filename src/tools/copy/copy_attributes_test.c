/* Goal: a local copy has the time and the permissions of its source, and never more permissions on
 * the way; filters, names, moves, dry runs and notes work as documented.
 * Method: real folders; the notes of each run are counted by kind. Covers copy_compare.c,
 * copy_filter.c, copy_move.c, copy_queue.c, copy_worker.c. Stores:
 * python/tests/test_copy_daily.py. */
#include "tools/copy/copy.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[64];
static struct stoker_engine *engine;
static struct stoker_copy_progress progress;
static struct stoker_error error;
static uint32_t notes[8]; /* of the last run, by kind */
static char named[8192];  /* by the last note */

static char *at(const char *name)
{
    static char path[16][256];
    static int turn;

    turn = (turn + 1) % 16;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "w");

    fputs(text, file);
    fclose(file);
}

static bool has(const char *name, const char *text)
{
    char got[64] = "";
    FILE *file = fopen(at(name), "r");

    if (!file) {
        return text == NULL;
    }
    got[fread(got, 1, sizeof got - 1, file)] = '\0';
    fclose(file);
    return text && strcmp(got, text) == 0;
}

static void take_notes(struct stoker_copy *copy)
{
    static struct stoker_copy_note note;

    note.struct_size = sizeof note;
    while (stoker_copy_next_note(copy, &note, &error) == 1) {
        notes[note.kind]++;
        snprintf(named, sizeof named, "%s", note.name);
        if (note.kind == STOKER_NOTE_FAILED) {
            T_ERROR(note.name, &note.failure);
        }
    }
}

static int run(struct stoker_copy_options options, const char *source, const char *to)
{
    const char *sources[] = {source};
    struct stoker_copy *copy = NULL;
    int status;

    options.struct_size = sizeof options;
    options.sources = sources;
    options.source_count = 1;
    options.destination = to;
    memset(&error, 0, sizeof error);
    memset(notes, 0, sizeof notes);
    memset(&progress, 0, sizeof progress);
    progress.struct_size = sizeof progress;
    status = stoker_copy_open(&copy, engine, &options, &error);
    while (status == 0 && (status = stoker_copy_next(copy, 20, &progress, &error)) == 1) {
        take_notes(copy);
        status = 0;
    }
    if (copy) {
        take_notes(copy);
    }
    stoker_copy_close(copy);
    return status;
}

static const struct stoker_copy_options deep = {.kind = STOKER_COPY, .recursive = 1};
static const struct stoker_copy_options flat = {.kind = STOKER_COPY};
static const struct stoker_copy_options same = {.kind = STOKER_SYNC};

static void set_time(const char *name, time_t seconds, long nanoseconds)
{
    struct timespec times[] = {{seconds, nanoseconds}, {seconds, nanoseconds}};

    T_EQ(name, utimensat(AT_FDCWD, at(name), times, 0), 0);
}

static void test_attributes(void)
{
    static const struct {
        mode_t source, there, want; /* there: 0: no such file */
    } rows[] = {{0600, 0, 0600},    {0755, 0, 0755}, {0444, 0, 0444}, {0644, 0600, 0600},
                {0600, 0644, 0644}, {0666, 0, 0644}, {0400, 0, 0400}, {0777, 0751, 0751},
                {0644, 0, 0644},    {04755, 0, 0755}};
    struct stat stat_of;
    char row[32];

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        snprintf(row, sizeof row, "%o over %o", rows[i].source, rows[i].there);
        unlink(at("from"));
        unlink(at("to"));
        put("from", "new");
        T_EQ(row, chmod(at("from"), rows[i].source), 0);
        set_time("from", 1000000001 - 2000000000 * (i % 2), 123456789);
        if (rows[i].there) {
            put("to", "old");
            T_EQ(row, chmod(at("to"), rows[i].there), 0);
        }
        T_EQ(row, run(flat, at("from"), at("to")), 0);
        T_EQ(row, stat(at("to"), &stat_of), 0);
        T_EQ(row, stat_of.st_mode & 07777, rows[i].want);
        T_EQ(row, stat_of.st_mtim.tv_sec, 1000000001 - 2000000000 * (i % 2));
        T_EQ(row, stat_of.st_mtim.tv_nsec, 123456789);
        T_TRUE(row, has("to", "new"));
    }
}

/* A change right after a copy is copied, too, though size and second are the same. */
static void test_sync_at_once(void)
{
    char text[8];

    mkdir(at("src"), 0755);
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof text, "%04d", i);
        put("src/f", text);
        T_EQ("sync", run(same, at("src"), at("dst")), 0);
        T_TRUE("the change", has("dst/f", text));
        T_EQ("again", run(same, at("src"), at("dst")), 0);
        T_EQ("retained", progress.files_skipped, 1);
    }
}

static void test_compare(void)
{
    struct stoker_copy_options size = same, sums = same;
    struct stat stat_of;

    size.compare = STOKER_COMPARE_SIZE;
    sums.compare = STOKER_COMPARE_CHECKSUM;
    put("src/f", "AAAA");
    set_time("src/f", 1000, 0);
    T_EQ("sync", run(same, at("src"), at("dst")), 0);
    put("src/f", "BBBB");
    set_time("src/f", 1000, 0);
    T_EQ("the time", run(same, at("src"), at("dst")), 0);
    T_TRUE("is the same", has("dst/f", "AAAA"));
    T_EQ("the size", run(size, at("src"), at("dst")), 0);
    T_TRUE("is the same", has("dst/f", "AAAA"));
    T_EQ("the bytes", run(sums, at("src"), at("dst")), 0);
    T_TRUE("differ", has("dst/f", "BBBB"));
    set_time("src/f", 3000, 5);
    set_time("dst/f", 4000, 5);
    T_EQ("equal bytes", run(same, at("src"), at("dst")), 0);
    T_EQ("are retained", progress.files_skipped, 1);
    T_EQ("stat", stat(at("dst/f"), &stat_of), 0);
    T_EQ("and get the time", stat_of.st_mtim.tv_sec, 3000);
}

static void test_filters(void)
{
    static const struct {
        const char *filters[3];
        const char *want; /* of a/1.jpg a/2.txt a/b/3.jpg .h/4.txt 5.txt, one letter each */
    } rows[] = {
        {{"-*.jpg"}, "-x-xx"},       {{"+*.jpg"}, "x-x--"},
        {{"-*", "+*.jpg"}, "x-x--"}, {{"-a"}, "---xx"},
        {{"-a/"}, "---xx"},          {{"-a/b"}, "xx-xx"},
        {{"+a/*.jpg"}, "x----"},     {{"+a/**", "-*.txt"}, "x-x--"},
        {{"-**/3.jpg"}, "xx-xx"},    {{"+**/*.jpg"}, "x-x--"},
        {{"-.h"}, "xxx-x"},          {{"-*"}, "-----"},
        {{"-/5.txt"}, "xxxx-"},      {{"+5.txt", "+.h/*"}, "---xx"},
        {{"-[0-3].*"}, "---xx"},     {{"-5.txt/"}, "xxxxx"},
    };
    static const char *const names[] = {"a/1.jpg", "a/2.txt", "a/b/3.jpg", ".h/4.txt", "5.txt"};
    char name[64], got[8];

    mkdir(at("tree"), 0755);
    mkdir(at("tree/a"), 0755);
    mkdir(at("tree/a/b"), 0755);
    mkdir(at("tree/.h"), 0755);
    for (size_t i = 0; i < STK_COUNT(names); i++) {
        snprintf(name, sizeof name, "tree/%s", names[i]);
        put(name, "x");
    }
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stoker_copy_options options = deep;
        char to[32];

        options.filters = rows[i].filters;
        options.filter_count = rows[i].filters[1] ? 2 : 1;
        snprintf(to, sizeof to, "filtered%zu", i);
        T_EQ(rows[i].filters[0], run(options, at("tree"), at(to)), 0);
        for (size_t j = 0; j < STK_COUNT(names); j++) {
            snprintf(name, sizeof name, "%s/%s", to, names[j]);
            got[j] = access(at(name), F_OK) == 0 ? 'x' : '-';
            got[j + 1] = '\0';
        }
        T_STR(rows[i].filters[0], got, rows[i].want);
    }
    {
        const char *filters[] = {"*.jpg"};
        struct stoker_copy_options options = deep;

        options.filters = filters;
        options.filter_count = 1;
        T_EQ("no sign", run(options, at("tree"), at("x")), STOKER_ERROR_ARGUMENT);
        T_ERROR("no sign", &error);
    }
}

static void test_excluded_stays(void)
{
    const char *filters[] = {"-*.keep"};
    struct stoker_copy_options exact = {.kind = STOKER_SYNC, .delete_extra = 1};

    exact.filters = filters;
    exact.filter_count = 1;
    put("dst/a.keep", "x");
    put("dst/extra", "x");
    T_EQ("exact", run(exact, at("src"), at("dst")), 0);
    T_TRUE("excluded", has("dst/a.keep", "x") && has("dst/extra", NULL));
    unlink(at("dst/a.keep"));
}

static void test_names(void)
{
    const char *names[] = {"a/1.jpg", "a/b", "../src/f", "none"};
    struct stoker_copy_options options = deep;

    options.names = names;
    options.name_count = 2;
    T_EQ("names", run(options, at("tree"), at("some")), 0);
    T_TRUE("with their paths", has("some/a/1.jpg", "x") && has("some/a/b/3.jpg", "x"));
    T_TRUE("no others", has("some/5.txt", NULL) && has("some/a/2.txt", NULL));
    options.name_count = 4;
    T_EQ("two of them fail", run(options, at("tree"), at("some")) < 0, true);
    T_EQ("each is noted", notes[STOKER_NOTE_FAILED], 2);
}

static void test_dry_run(void)
{
    struct stoker_copy_options dry = deep, exact = {.kind = STOKER_SYNC, .delete_extra = 1};
    struct stoker_copy_options gone = {.kind = STOKER_REMOVE, .recursive = 1};

    dry.dry_run = exact.dry_run = gone.dry_run = 1;
    T_EQ("dry", run(dry, at("tree"), at("nowhere/below")), 0);
    T_EQ("dry", notes[STOKER_NOTE_WOULD_COPY], 5);
    T_EQ("nothing is made", access(at("nowhere"), F_OK), -1);
    put("dst/extra", "x");
    put("src/new", "x");
    T_EQ("dry", run(exact, at("src"), at("dst")), 0);
    T_EQ("dry", notes[STOKER_NOTE_WOULD_REMOVE] * 10 + notes[STOKER_NOTE_WOULD_COPY], 11);
    T_TRUE("both stay", has("dst/extra", "x") && has("dst/new", NULL));
    T_EQ("dry", run(exact, at("src"), at("nowhere")), 0);
    T_EQ("nothing is made", access(at("nowhere"), F_OK), -1);
    T_EQ("dry", run(gone, at("tree"), NULL), 0);
    T_EQ("dry", notes[STOKER_NOTE_WOULD_REMOVE], 5);
    T_TRUE("stays", has("tree/5.txt", "x"));
}

static void test_move(void)
{
    struct stoker_copy_options move = {.kind = STOKER_MOVE, .recursive = 1}, no_replace = move;
    struct stat before, after;

    put("one", "1");
    T_EQ("stat", stat(at("one"), &before), 0);
    T_EQ("move", run(move, at("one"), at("two")), 0);
    T_EQ("stat", stat(at("two"), &after), 0);
    T_TRUE("renamed", before.st_ino == after.st_ino && has("one", NULL));
    T_EQ("onto itself", run(move, at("two"), at("two")), STOKER_ERROR_ARGUMENT);
    T_EQ("a second name", link(at("two"), at("three")), 0);
    T_EQ("onto itself", run(move, at("two"), at("three")), STOKER_ERROR_ARGUMENT);
    T_TRUE("stays", has("two", "1") && has("three", "1"));
    no_replace.no_clobber = 1;
    put("four", "4");
    T_EQ("never replaced", run(no_replace, at("two"), at("four")), -EEXIST);
    T_TRUE("stays", has("two", "1") && has("four", "4"));
    T_EQ("a link", symlink(at("two"), at("link")), 0);
    T_EQ("a link", run(move, at("link"), at("five")), 0);
    T_TRUE("not its target", has("five", "1") && has("two", "1") && access(at("link"), F_OK) < 0);
    T_EQ("a tree", run(move, at("some"), at("moved")), 0);
    T_TRUE("a tree", has("moved/a/1.jpg", "x") && access(at("some"), F_OK) < 0);
    T_EQ("to another file system", run(move, at("moved"), "/dev/shm/stoker-copy-move-test"), 0);
    T_TRUE("copied and removed", access(at("moved"), F_OK) < 0 &&
                                     access("/dev/shm/stoker-copy-move-test/a/b/3.jpg", F_OK) == 0);
    T_EQ("clean", system("rm -r /dev/shm/stoker-copy-move-test"), 0);
}

/* ---- calls of open_beneath are counted ---- */

#define COUNTED_MAX 8u

static struct counted {
    struct stk_io *io; /* whose table is replaced */
    const struct stk_io_table *before;
    struct stk_io_table table;
    struct stk_write_table write;
} counted[COUNTED_MAX];

static uint32_t counted_count;
static _Atomic uint32_t opened;

static int open_counted(struct stk_io *io, const char *folder, struct stk_io **io_out,
                        struct stoker_error *why);

static void count_opens(struct stk_io *io)
{
    struct counted *it = &counted[counted_count++];

    *it = (struct counted){
        .io = io, .before = io->table, .table = *io->table, .write = *io->table->write};
    it->write.open_beneath = open_counted;
    it->table.write = &it->write;
    io->table = &it->table;
}

static int open_counted(struct stk_io *io, const char *folder, struct stk_io **io_out,
                        struct stoker_error *why)
{
    const struct stk_io_table *before = NULL;
    int status;

    for (uint32_t i = 0; i < counted_count; i++) {
        before = counted[i].io == io ? counted[i].before : before;
    }
    status = before->write->open_beneath(io, folder, io_out, why);
    atomic_fetch_add(&opened, 1);
    if (status == 0 && *io_out != io && counted_count < COUNTED_MAX) {
        count_opens(*io_out);
    }
    return status;
}

/* A move opens the destination and the source once each, whatever the number of files. */
static void test_move_opens_once(void)
{
    struct stoker_copy_options move = {.kind = STOKER_MOVE, .recursive = 1};
    char name[32];

    for (uint32_t i = 0; i < 40; i++) {
        mkdir(at("many"), 0755);
        snprintf(name, sizeof name, "many/%u", i % 4);
        mkdir(at(name), 0755);
        snprintf(name, sizeof name, "many/%u/%u", i % 4, i);
        put(name, "x");
    }
    T_EQ("folder", mkdir(at("to-many"), 0755), 0);
    count_opens(engine->io);
    T_EQ("move", run(move, at("many"), at("to-many/here")), 0);
    T_EQ("opened", opened, 2);
    engine->io->table = counted[0].before;
    T_TRUE("all of them", has("to-many/here/3/39", "x") && access(at("many"), F_OK) < 0);
}

static void test_notes(void)
{
    static const struct stoker_copy_options gone = {.kind = STOKER_REMOVE, .recursive = 1};

    mkdir(at("bad"), 0755);
    mkdir(at("bad/to"), 0755);
    mkdir(at("bad/to/1"), 0755);
    mkdir(at("bad/to/2"), 0755);
    mkdir(at("bad/from"), 0755);
    put("bad/from/1", "x");
    put("bad/from/2", "x");
    put("bad/from/3", "x");
    T_EQ("out", symlink("/etc", at("bad/from/out")), 0);
    T_EQ("two fail", run(deep, at("bad/from"), at("bad/to")) < 0, true);
    T_EQ("each is noted", notes[STOKER_NOTE_FAILED], 2);
    T_EQ("left out", notes[STOKER_NOTE_LEFT_OUT], 1);
    T_TRUE("the third", has("bad/to/3", "x"));
    T_EQ("clean", run(gone, at("bad"), NULL), 0);
    T_EQ("two",
         run((struct stoker_copy_options){.kind = STOKER_COPY, .dry_run = 1}, at("src/f"), at("x")),
         0);
    T_STR("named", named, at("src/f"));
}

static void test_bandwidth(void)
{
    struct stoker_copy_options slow = flat;
    FILE *file = fopen(at("large"), "w");

    T_EQ("large", ftruncate(fileno(file), 6 << 20), 0);
    fclose(file);
    slow.bytes_per_second_max = 12 << 20;
    T_EQ("slow", run(slow, at("large"), at("large2")), 0);
    T_TRUE("half a second", progress.run_ns >= 490000000);
    T_EQ("parts", truncate(at("large"), 18 << 20), 0);
    slow.part_bytes = 5 << 20;
    T_EQ("parts", run(slow, at("large"), at("large2")), 0);
    T_TRUE("each byte counts", progress.run_ns >= 1490000000);
    T_TRUE("once", progress.run_ns < 2800000000);
}

int main(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};

    umask(022);
    snprintf(home, sizeof home, "/tmp/copy_attributes_test.XXXXXX");
    T_TRUE("home", mkdtemp(home) != NULL);
    T_EQ("engine", stoker_engine_open(&engine, &options, &error), 0);
    test_attributes();
    test_sync_at_once();
    test_compare();
    test_filters();
    test_excluded_stays();
    test_names();
    test_dry_run();
    test_move();
    test_move_opens_once();
    test_notes();
    test_bandwidth();
    T_EQ("clean",
         run((struct stoker_copy_options){.kind = STOKER_REMOVE, .recursive = 1}, home, NULL), 0);
    stoker_engine_close(engine);
    return t_finish();
}
