/* Goal: each byte of each file is read once, for any size of pieces; an error of one file does not
 * stop the others; cached pieces are skipped.
 * Method: a real folder with files of all sizes around the piece; simulated files with reads that
 * are late, short or fail, and pages that are dropped from memory. For shares of nodes
 * (prewarm_share.c) a tar: options that do not fit, blocks that are taken once, the budget. */
#include "tools/prewarm/prewarm.h"

#include "base/mem.h"
#include "io/sim/sim.h"
#include "storage/cache/node_cache.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE (64u << 10)

static char folder[] = "/tmp/stoker-prewarm-XXXXXX";
static const uint64_t sizes[] = {0,     1,         4096,      PIECE - 1,
                                 PIECE, PIECE + 1, 5 * PIECE, 40 * PIECE + 7};

static void path_of(char path[256], size_t i)
{
    snprintf(path, 256, "%s/%zu/%zu", folder, i % 3, i);
}

static uint64_t make_files(void)
{
    uint64_t all = 0;
    char path[256];

    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%zu", folder, i);
        mkdir(path, 0777);
    }
    for (size_t i = 0; i < STK_COUNT(sizes); i++) {
        char *data = calloc(1, sizes[i] + 1);
        int fd;

        path_of(path, i);
        fd = open(path, O_WRONLY | O_CREAT, 0666);
        if (!data || fd < 0 || write(fd, data, sizes[i]) != (ssize_t)sizes[i]) {
            t_skip("cannot write to /tmp");
        }
        fsync(fd);
        close(fd);
        free(data);
        all += sizes[i];
    }
    return all;
}

/* As it is on a disk. False: nothing left memory, as on tmpfs. */
static void drop(void)
{
    char path[256];

    for (size_t i = 0; i < STK_COUNT(sizes); i++) {
        path_of(path, i);
        int fd = open(path, O_RDONLY);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static int run(struct stoker_engine *engine, const struct stoker_prewarm_options *options,
               struct stoker_prewarm_progress *progress, struct stoker_error *error)
{
    struct stoker_prewarm *prewarm = NULL;
    int status = stoker_prewarm_open(&prewarm, engine, options, error);

    progress->struct_size = sizeof *progress;
    for (status = status < 0 ? status : 1; status == 1;) {
        status = stoker_prewarm_next(prewarm, 1000, progress, error);
    }
    stoker_prewarm_close(prewarm);
    return status;
}

static void test_all(struct stoker_engine *engine, uint64_t all)
{
    const char *paths[] = {folder};
    struct stoker_prewarm_options options = {
        .struct_size = sizeof options, .paths = paths, .path_count = 1, .chunk_bytes = PIECE};

    for (uint32_t workers = 1; workers <= 64; workers *= 4) {
        struct stoker_prewarm_progress progress = {0};
        struct stoker_error error = {0};

        drop();
        options.workers = workers;
        options.check = 1;
        T_EQ("check", run(engine, &options, &progress, &error), 0);
        T_EQ("check", progress.bytes_read, 0);
        T_EQ("check", progress.files, STK_COUNT(sizes));
        if (progress.cold_is_known) {
            T_EQ("check", progress.bytes_warm + progress.bytes_cold, all);
        }
        options.check = 0;
        T_EQ("all", run(engine, &options, &progress, &error), 0);
        T_EQ("all", progress.listed, 1);
        T_EQ("all", progress.files, STK_COUNT(sizes));
        T_EQ("all", progress.files_done, STK_COUNT(sizes));
        T_EQ("all", progress.bytes, all);
        T_EQ("all", progress.bytes_done, all);
        if (!progress.cold_is_known) {
            T_EQ("all", progress.bytes_read, all);
            continue;
        }
        T_EQ("all", progress.bytes_cold, 0);
        T_TRUE("all", progress.bytes_read + progress.bytes_warm >= all);
        /* A machine that is short of memory may have dropped pages meanwhile. */
        for (int i = 0; i < 5 && (i == 0 || progress.bytes_read > 0); i++) {
            T_EQ("again", run(engine, &options, &progress, &error), 0);
        }
        T_EQ("again", progress.bytes_read, 0);
        T_EQ("again", progress.bytes_warm, all);
        T_EQ("again", progress.files_done, STK_COUNT(sizes));
    }
    options.touch = 1;
    struct stoker_prewarm_progress progress = {0};
    T_EQ("touch", run(engine, &options, &progress, NULL), 0);
    T_EQ("touch", progress.bytes_read, STK_COUNT(sizes) - 1); /* the empty one has no byte */
    T_EQ("touch", progress.files_done, STK_COUNT(sizes));
}

/* Failures, each reported; other files are read. */
static void test_failures(struct stoker_engine *engine, uint64_t all)
{
    const char *paths[] = {"/nonexistent/x", folder};
    struct stoker_prewarm_options options = {
        .struct_size = sizeof options, .paths = paths, .path_count = 2, .workers = 3};
    struct stoker_prewarm_progress progress = {0};
    struct stoker_error error = {0};

    T_TRUE("missing", run(engine, &options, &progress, &error) < 0);
    T_ERROR("missing", &error);
    T_EQ("missing", progress.bytes_done, all);
    error = (struct stoker_error){0};
    options.path_count = 0;
    T_EQ("none", run(engine, &options, &progress, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("none", &error);
    error = (struct stoker_error){0};
    options.path_count = 2;
    options.workers = 65;
    T_EQ("workers", run(engine, &options, &progress, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("workers", &error);
    options.workers = 64;
    options.chunk_bytes = 64u << 20; /* 4 GiB: more than the engine has */
    error = (struct stoker_error){0};
    T_EQ("budget", run(engine, &options, &progress, &error), STOKER_ERROR_BUDGET);
    T_ERROR("budget", &error);
    paths[0] = folder;
    options.path_count = 1;
    options.chunk_bytes = 4u << 20; /* 256 MiB of 1 GiB: each run returns them */
    for (int i = 0; i < 6; i++) {
        T_EQ("given back", run(engine, &options, &progress, &error), 0);
    }
}

/* ---- in the simulated world, whose reads are hindered ---- */

#define LARGE "/data/a" /* PIECES pieces */
#define SMALL "/data/b" /* one */
#define PIECES 5u
#define PASS INT64_MIN

static struct hindered {
    struct stk_io_table table; /* first: of the simulator, with the functions below */
    const struct stk_io_table *world;
    struct stk_file_ops file_ops; /* of the simulator's files, before the change */
    struct stk_io *io;
    int64_t (*meet)(uint64_t offset, size_t bytes); /* of a read; PASS: the simulator reads */
    int64_t (*cold)(void);                          /* of a piece; NULL: unknown */
    _Atomic uint32_t reads, opened;
    _Atomic uint64_t later_ns; /* than the world's clock */
} hindered;

static _Atomic(struct stoker_prewarm *) running;

static int hindered_open(struct stk_io *io, const char *path, struct stk_file **file_out,
                         struct stoker_error *error)
{
    atomic_fetch_add(&hindered.opened, 1);
    return hindered.world->open_file(io, path, file_out, error);
}

static int64_t hindered_read(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    int64_t result;

    atomic_fetch_add(&hindered.reads, 1);
    result = hindered.meet ? hindered.meet(offset, bytes) : PASS;
    return result != PASS ? result : hindered.file_ops.read_wait(file, offset, buffer, bytes);
}

static int64_t hindered_cold(struct stk_file *file, uint64_t offset, uint64_t bytes)
{
    (void)file;
    (void)offset;
    (void)bytes;
    return hindered.cold ? hindered.cold() : -ENOSYS;
}

static uint64_t hindered_clock(struct stk_io *io)
{
    return hindered.world->clock_ns(io) + atomic_load(&hindered.later_ns);
}

static struct stoker_engine *open_hindered_with(bool small, struct stoker_cache *cache)
{
    static const uint8_t data[PIECES * PIECE];
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20, .cache = cache};
    struct stoker_engine *engine = NULL;
    struct stk_io *world = NULL;

    T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
    T_EQ("add", stk_sim_add(world, LARGE, data, sizeof data), 0);
    T_EQ("add", small ? stk_sim_add(world, SMALL, data, PIECE) : 0, 0);
    hindered = (struct hindered){.table = *world->table,
                                 .world = world->table,
                                 .file_ops = *stk_sim_file_ops(world),
                                 .io = world};
    hindered.table.open_file = hindered_open;
    stk_sim_file_ops(world)->read_wait = hindered_read;
    stk_sim_file_ops(world)->uncached_bytes = hindered_cold;
    hindered.table.clock_ns = hindered_clock;
    world->table = &hindered.table;
    T_EQ("engine", stk_engine_open_with_io(&engine, world, &options, NULL), 0);
    return engine;
}

static struct stoker_engine *open_hindered(bool small)
{
    return open_hindered_with(small, NULL);
}

static struct stoker_prewarm_options in_pieces(uint32_t workers, uint32_t timeout_s)
{
    static const char *const paths[] = {"/data"};

    return (struct stoker_prewarm_options){.struct_size = sizeof(struct stoker_prewarm_options),
                                           .paths = paths,
                                           .path_count = 1,
                                           .workers = workers,
                                           .chunk_bytes = PIECE,
                                           .timeout_s = timeout_s};
}

static uint32_t late_times;
static uint64_t late_ns; /* of each read */

static int64_t come_late(uint64_t offset, size_t bytes)
{
    (void)offset;
    (void)bytes;
    atomic_fetch_add(&hindered.later_ns, late_ns);
    return atomic_load(&hindered.reads) <= late_times ? STOKER_ERROR_TIMEOUT : PASS;
}

/* Reads that time out are retried: three times, or until the deadline if there is one. */
static void test_late(void)
{
    static const struct row {
        const char *name;
        uint32_t times, seconds, timeout_s;
        int status;
        uint32_t reads;
    } rows[] = {
        {"late twice", 2, 9, 0, 0, 2 + PIECES},
        {"late thrice", 3, 9, 0, STOKER_ERROR_TIMEOUT, 3},
        {"late often, before the deadline", 10, 1, 60, 0, 10 + PIECES},
        {"late until the deadline", UINT32_MAX, 1, 5, STOKER_ERROR_TIMEOUT, 5},
        {"the deadline between two pieces", 0, 2, 5, STOKER_ERROR_TIMEOUT, 3},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_engine *engine = open_hindered(false);
        struct stoker_prewarm_options options = in_pieces(1, row->timeout_s);
        struct stoker_prewarm_progress progress = {0};
        struct stoker_error error = {0};

        hindered.meet = come_late;
        late_times = row->times;
        late_ns = row->seconds * 1000000000ull;
        T_EQ(row->name, run(engine, &options, &progress, &error), row->status);
        T_EQ(row->name, hindered.reads, row->reads);
        T_EQ(row->name, progress.files_done, row->status == 0);
        T_EQ(row->name, progress.files_failed, row->status < 0 && row->times > 0);
        T_EQ(row->name, progress.bytes_done,
             (row->times > row->reads ? 0 : row->reads - row->times) * (uint64_t)PIECE);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
        }
        if (row->times == 0) {
            T_HAS(row->name, error.what, "in time");
            T_HAS(row->name, error.where, "5 s");
        }
        stoker_engine_close(engine);
    }
}

/* A file is open only when all are listed: the other worker has nothing else to do meanwhile. */
static int open_when_listed(struct stk_io *io, const char *path, struct stk_file **file_out,
                            struct stoker_error *error)
{
    struct stoker_prewarm_progress progress = {.struct_size = sizeof progress};

    while (!progress.listed) {
        struct stoker_prewarm *prewarm = atomic_load(&running);

        if (prewarm) {
            stoker_prewarm_next(prewarm, 1, &progress, NULL);
        } else {
            usleep(1000);
        }
    }
    return hindered.world->open_file(io, path, file_out, error);
}

static uint64_t late_from; /* offset */

static int64_t end_late(uint64_t offset, size_t bytes)
{
    (void)bytes;
    atomic_fetch_add(&hindered.later_ns, offset >= late_from ? 9000000000ull : 0);
    return PASS;
}

static int finish(struct stoker_prewarm *prewarm, struct stoker_prewarm_progress *progress,
                  struct stoker_error *error)
{
    int status = 1;

    progress->struct_size = sizeof *progress;
    while (status == 1) {
        status = stoker_prewarm_next(prewarm, 1000, progress, error);
    }
    stoker_prewarm_close(prewarm);
    return status;
}

/* A file that was complete when its time was over is no failure; an incomplete piece is one. */
static void test_just_in_time(void)
{
    static const struct row {
        const char *name;
        uint64_t late_from;
        int status;
    } rows[] = {
        {"just in time", (PIECES - 1) * PIECE, 0},
        {"all is listed, and not read", PIECE, STOKER_ERROR_TIMEOUT},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_engine *engine = open_hindered(false);
        struct stoker_prewarm_options options = in_pieces(2, 5);
        struct stoker_prewarm_progress progress = {0};
        struct stoker_prewarm *prewarm = NULL;

        hindered.table.open_file = open_when_listed;
        hindered.meet = end_late;
        late_from = row->late_from;
        atomic_store(&running, NULL);
        T_EQ("open", stoker_prewarm_open(&prewarm, engine, &options, NULL), 0);
        atomic_store(&running, prewarm);
        T_EQ(row->name, finish(prewarm, &progress, NULL), row->status);
        T_EQ(row->name, progress.listed, 1);
        T_EQ(row->name, progress.files_done, row->status == 0);
        T_EQ(row->name, progress.bytes_done == PIECES * PIECE, row->status == 0);
        stoker_engine_close(engine);
    }
}

/* A file that is shorter than in the listing is read up to its end. */
static void test_shorter(void)
{
    struct stk_sim_rule rule = {.fault = STK_SIM_FAULT_TRUNCATED, .offset = PIECE + 100};
    struct stoker_engine *engine = open_hindered(false);
    struct stoker_prewarm_options options = in_pieces(1, 0);
    struct stoker_prewarm_progress progress = {0};

    stk_sim_add_rule(hindered.io, &rule);
    T_EQ("shorter", run(engine, &options, &progress, NULL), 0);
    T_EQ("shorter", progress.bytes_read, PIECE + 100);
    T_EQ("shorter", progress.bytes_done, PIECES * PIECE);
    T_EQ("shorter", progress.files_done, 1);
    T_EQ("shorter", hindered.reads, PIECES + 1); /* once more, if some of a piece was read */
    stoker_engine_close(engine);
}

static const int64_t *cold_next;

static int64_t tell_cold(void)
{
    return *cold_next++;
}

/* A piece that is cold after a read is read again, but not for ever. */
static void test_dropped_again(void)
{
    static const struct row {
        const char *name;
        int64_t cold[5]; /* before a read, and after each */
        uint32_t reads;
        uint64_t cold_left;
    } rows[] = {
        {"it stays", {PIECE, 0}, 1, 0},
        {"a page goes", {PIECE, 4096, 0}, 2, 0},
        {"pages go on", {PIECE, 8192, 4096, 4096, 0}, 3, 4096},
        {"it is warm", {0}, 0, 0},
        {"a page is cold", {4096, 0}, 1, 0},
        {"the kernel stops reporting", {PIECE, -ENOSYS}, 1, 0},
        {"no counts", {-ENOSYS, -ENOSYS}, 1, 0},
    };
    static const char *const paths[] = {SMALL};

    T_EACH(row, row, rows)
    {
        struct stoker_engine *engine = open_hindered(true);
        struct stoker_prewarm_options options = in_pieces(1, 0);
        struct stoker_prewarm_progress progress = {0};

        options.paths = paths;
        hindered.cold = tell_cold;
        cold_next = row->cold;
        T_EQ(row->name, run(engine, &options, &progress, NULL), 0);
        T_EQ(row->name, hindered.reads, row->reads);
        T_EQ(row->name, progress.bytes_cold, row->cold_left);
        T_EQ(row->name, progress.bytes_read, row->reads > 0 ? PIECE : 0);
        T_EQ(row->name, progress.bytes_done, PIECE);
        T_EQ(row->name, progress.cold_is_known, row->cold[0] >= 0);
        T_EQ(row->name, progress.bytes_warm, row->cold[0] < 0 ? 0 : PIECE - row->cold[0]);
        stoker_engine_close(engine);
    }
}

static int64_t break_second(uint64_t offset, size_t bytes)
{
    (void)bytes;
    return offset == PIECE ? -EIO : PASS;
}

/* After a file failed, its other pieces are skipped; it counts once; the error has the place. */
static void test_broken(void)
{
    static const char *const paths[] = {"/nothing", "/data"};
    struct stoker_engine *engine = open_hindered(true);
    struct stoker_prewarm_options options = in_pieces(1, 0);
    struct stoker_prewarm_progress progress = {0};
    struct stoker_error error = {0};

    hindered.meet = break_second;
    T_EQ("broken", run(engine, &options, &progress, &error), -EIO);
    T_EQ("broken", hindered.reads, 3); /* two pieces of the large one, and the small one */
    T_EQ("broken", progress.files, 2);
    T_EQ("broken", progress.files_failed, 1);
    T_EQ("broken", progress.files_done, 1);
    T_EQ("broken", progress.bytes_done, 2 * PIECE);
    T_HAS("broken", error.where, LARGE);
    T_EQ("broken", error.offset, PIECE);
    T_ERROR("broken", &error);
    options.paths = paths;
    options.path_count = 2;
    T_EQ("the first failure is reported", run(engine, &options, &progress, &error), -ENOENT);
    T_HAS("the first failure is reported", error.where, paths[0]);
    T_EQ("the first failure is reported", progress.files_failed, 1);
    stoker_engine_close(engine);
}

static _Atomic uint32_t meeting;

static int64_t break_together(uint64_t offset, size_t bytes)
{
    (void)bytes;
    if (offset == 0) {
        return PASS;
    }
    atomic_fetch_add(&meeting, 1);
    while (atomic_load(&meeting) < 3) {
        usleep(1000);
    }
    return -EIO;
}

/* Several pieces of a file fail at once: it is one file. */
static void test_broken_together(void)
{
    struct stoker_engine *engine = open_hindered(true);
    struct stoker_prewarm_options options = in_pieces(4, 0);
    struct stoker_prewarm_progress progress = {0};

    hindered.meet = break_together;
    T_EQ("together", run(engine, &options, &progress, NULL), -EIO);
    T_TRUE("together", meeting >= 3);
    T_EQ("together", progress.files_failed, 1);
    T_EQ("together", progress.files_done, 1);
    stoker_engine_close(engine);
}

static int64_t stopped_with;
static _Atomic bool entered;

static int64_t await_stop(uint64_t offset, size_t bytes)
{
    (void)offset;
    (void)bytes;
    atomic_store(&entered, true);
    while (!atomic_load(&running) || !atomic_load(&atomic_load(&running)->job.stopping)) {
        usleep(1000);
    }
    return stopped_with;
}

/* Closed, it reads nothing more: not of the piece in hand, and no other piece or file. */
static void test_stop(void)
{
    static const int64_t results[] = {PASS, 1, STOKER_ERROR_TIMEOUT};

    for (size_t i = 0; i < STK_COUNT(results); i++) {
        struct stoker_engine *engine = open_hindered(true);
        struct stoker_prewarm_options options = in_pieces(1, 1000);
        struct stoker_prewarm *prewarm = NULL;

        hindered.meet = await_stop;
        stopped_with = results[i];
        atomic_store(&running, NULL);
        atomic_store(&entered, false);
        T_EQ("open", stoker_prewarm_open(&prewarm, engine, &options, NULL), 0);
        atomic_store(&running, prewarm);
        while (!atomic_load(&entered)) {
            usleep(1000);
        }
        stoker_prewarm_close(prewarm);
        T_EQ("stopped", hindered.reads, 1);
        T_EQ("stopped", hindered.opened, 1);
        stoker_engine_close(engine);
    }
}

static void test_bounds(void)
{
    static const struct row {
        const char *name;
        uint64_t piece;
        uint32_t workers;
        size_t size;
        int status;
    } rows[] = {
        {"the smallest piece", 64u << 10, 1, 0, 0},
        {"a smaller one", (64u << 10) - 1, 1, 0, STOKER_ERROR_ARGUMENT},
        {"a larger one", (64u << 20) + 1, 1, 0, STOKER_ERROR_ARGUMENT},
        {"too many workers", 64u << 10, 65, 0, STOKER_ERROR_ARGUMENT},
        {"no size", 64u << 10, 1, 1, STOKER_ERROR_ARGUMENT},
        {"a huge size", 64u << 10, 1, 4097, STOKER_ERROR_ARGUMENT},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_engine *engine = open_hindered(true);
        struct stoker_prewarm_options options = in_pieces(row->workers, 0);
        struct stoker_prewarm_progress progress = {0};

        options.chunk_bytes = row->piece;
        options.struct_size = row->size ? row->size : options.struct_size;
        T_EQ(row->name, run(engine, &options, &progress, NULL), row->status);
        T_EQ(row->name, progress.files_done, row->status == 0 ? 2 : 0);
        stoker_engine_close(engine);
    }
}

/* A tar of samples of 1,000 bytes. */
static struct t_tar tar_of(uint32_t samples)
{
    struct t_tar tar = {0};
    static const uint8_t data[1000];
    char name[32];

    for (uint32_t i = 0; i < samples; i++) {
        snprintf(name, sizeof name, "%04u.bin", i);
        t_tar_add(&tar, name, data, sizeof data);
    }
    t_tar_end(&tar);
    return tar;
}

static void make_tar(char path[256], uint32_t samples)
{
    struct t_tar tar = tar_of(samples);
    int fd;

    snprintf(path, 256, "%s/share.tar", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    T_EQ("tar", write(fd, tar.data, tar.bytes), tar.bytes);
    close(fd);
    t_tar_free(&tar);
}

static void test_shares(void)
{
    static const struct row {
        const char *name;
        uint32_t node, node_count, group_count;
        uint64_t budget;
        bool check, no_cache;
        int status;
    } rows[] = {
        {"all of it", 0, 1, 0, 0, false, false, 0},
        {"a budget", 0, 1, 0, 100000, false, false, 0},
        {"no cache", 0, 1, 0, 0, false, true, STOKER_ERROR_ARGUMENT},
        {"no such node", 2, 2, 0, 0, false, false, STOKER_ERROR_ARGUMENT},
        {"groups that do not divide", 0, 2, 3, 0, false, false, STOKER_ERROR_ARGUMENT},
        {"a budget without a node", 0, 0, 0, 100000, false, false, STOKER_ERROR_ARGUMENT},
        {"a share and check", 0, 1, 0, 0, true, false, STOKER_ERROR_ARGUMENT},
        {"more groups than blocks", 0, 4, 4, 0, false, false, STOKER_ERROR_ARGUMENT},
    };
    char path[256], place[256];
    const char *paths[] = {place}, *tars[] = {path};
    struct stoker_cache_options cache_options = {.struct_size = sizeof cache_options,
                                                 .paths = paths,
                                                 .path_count = 1,
                                                 .bytes_max = 16u << 20,
                                                 .free_bytes = 1,
                                                 .block_bytes = 32u << 10};
    struct stoker_cache *cache = NULL;

    snprintf(place, sizeof place, "%s/cache", folder);
    make_tar(path, 400);
    T_EQ("cache", stoker_cache_open(&cache, &cache_options, NULL), 0);
    T_EACH(row, row, rows)
    {
        struct stoker_engine_options options = {.struct_size = sizeof options,
                                                .memory_bytes_max = 64u << 20,
                                                .cache = row->no_cache ? NULL : cache};
        struct stoker_prewarm_options share = {.struct_size = sizeof share,
                                               .paths = tars,
                                               .path_count = 1,
                                               .node = row->node,
                                               .node_count = row->node_count,
                                               .group_count = row->group_count,
                                               .budget_bytes = row->budget,
                                               .check = row->check};
        struct stoker_prewarm_progress progress = {0};
        struct stoker_engine *engine = NULL;
        uint64_t tar_bytes = 400u * 1536 + 1024;

        T_EQ("engine", stoker_engine_open(&engine, &options, NULL), 0);
        T_EQ(row->name, run(engine, &share, &progress, NULL), row->status);
        if (row->status == 0 && row->budget > 0) {
            T_TRUE(row->name, progress.bytes_done <= row->budget && progress.bytes_done > 60000);
        } else if (row->status == 0) {
            T_TRUE("each block once",
                   progress.bytes_done <= tar_bytes && progress.bytes_done + 32768 > tar_bytes);
        }
        stoker_engine_close(engine);
    }
    stoker_cache_close(cache);
}

#define SHARE_BLOCK (32u << 10)
#define SHARE_BLOCKS 19u /* of a tar of 400 samples */

static struct stoker_cache *share_cache;
static _Atomic uint32_t reading, most_reading;

/* Each block takes one second, counts as downloaded, and leaves time for other workers. */
static int64_t take_a_second(uint64_t offset, size_t bytes)
{
    (void)offset;
    if (bytes == 1) {
        uint32_t now = atomic_fetch_add(&reading, 1) + 1, most = atomic_load(&most_reading);

        while (most < now && !atomic_compare_exchange_weak(&most_reading, &most, now)) {
        }
        usleep(1000);
        atomic_fetch_sub(&reading, 1);
        atomic_fetch_add(&hindered.later_ns, 1000000000u);
        atomic_fetch_add(&share_cache->counters.bytes_from_origin, SHARE_BLOCK);
    }
    return PASS;
}

/* A share whose last block was read when the deadline passes is complete; one with a block left is
 * not. Blocks that are being read count: several workers do not exceed the rate of one. */
static void test_share_limits(void)
{
    static const struct row {
        const char *name;
        uint32_t workers, timeout_s;
        uint64_t rate;
        int status;
        uint32_t blocks;
    } rows[] = {
        {"the last block ends at the deadline", 1, SHARE_BLOCKS, 0, 0, SHARE_BLOCKS},
        {"the same, at the allowed rate", 1, SHARE_BLOCKS, SHARE_BLOCK, 0, SHARE_BLOCKS},
        {"one block is left", 1, SHARE_BLOCKS - 1, 0, STOKER_ERROR_TIMEOUT, SHARE_BLOCKS - 1},
        {"workers share the rate", 8, 0, SHARE_BLOCK, 0, SHARE_BLOCKS},
    };
    char place[256];
    const char *paths[] = {place};
    static const char *const tars[] = {"/tar/share.tar"};
    struct stoker_cache_options cache_options = {.struct_size = sizeof cache_options,
                                                 .paths = paths,
                                                 .path_count = 1,
                                                 .bytes_max = 16u << 20,
                                                 .free_bytes = 1,
                                                 .block_bytes = SHARE_BLOCK};
    struct t_tar tar = tar_of(400);

    snprintf(place, sizeof place, "%s/late-cache", folder);
    T_EQ("cache", stoker_cache_open(&share_cache, &cache_options, NULL), 0);
    T_EACH(row, row, rows)
    {
        struct stoker_engine *engine = open_hindered_with(false, share_cache);
        struct stoker_prewarm_options share = {.struct_size = sizeof share,
                                               .paths = tars,
                                               .path_count = 1,
                                               .workers = row->workers,
                                               .node_count = 1,
                                               .rate_bytes_max = row->rate,
                                               .timeout_s = row->timeout_s};
        struct stoker_prewarm_progress progress = {0};
        struct stoker_error error = {0};

        T_EQ("tar", stk_sim_add(hindered.io, tars[0], tar.data, tar.bytes), 0);
        hindered.meet = take_a_second;
        T_EQ(row->name, run(engine, &share, &progress, &error), row->status);
        T_EQ(row->name, progress.bytes_read, row->blocks * (uint64_t)SHARE_BLOCK);
        T_EQ(row->name, most_reading, 1);
        if (row->status < 0) {
            T_HAS(row->name, error.what, "in time");
        }
        stoker_engine_close(engine);
    }
    t_tar_free(&tar);
    stoker_cache_close(share_cache);
}

int main(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .memory_bytes_max = 1ull << 30};
    struct stoker_engine *engine = NULL;
    struct stoker_error error = {0};
    char command[128];
    uint64_t all;

    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    all = make_files();
    T_EQ("engine", stoker_engine_open(&engine, &options, &error), 0);
    if (engine) {
        test_all(engine, all);
        test_failures(engine, all);
    }
    stoker_engine_close(engine);
    test_late();
    test_just_in_time();
    test_shorter();
    test_dropped_again();
    test_broken();
    test_broken_together();
    test_stop();
    test_bounds();
    test_shares();
    test_share_limits();
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
