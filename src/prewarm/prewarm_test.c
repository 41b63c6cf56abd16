/* Goal: each byte of each file is read once, whatever the pieces; what fails costs no other file
 * its turn; what is warm is passed over.
 * Method: a folder of files of all sizes around the piece, on the real machine. */
#include "test/t.h"

#include "base/base.h"
#include "base/mem.h"

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
        .struct_size = sizeof options, .paths = paths, .path_count = 1, .piece_bytes = PIECE};

    for (uint32_t workers = 1; workers <= 64; workers *= 4) {
        struct stoker_prewarm_progress progress = {0};
        struct stoker_error error = {0};

        drop();
        options.workers = workers;
        options.check = 1;
        T_EQ("check", run(engine, &options, &progress, &error), 0);
        T_EQ("check", progress.bytes_read, 0);
        T_EQ("check", progress.files, STK_COUNT(sizes));
        if (progress.tells_cold) {
            T_EQ("check", progress.bytes_warm + progress.bytes_cold, all);
        }
        options.check = 0;
        T_EQ("all", run(engine, &options, &progress, &error), 0);
        T_EQ("all", progress.listed, 1);
        T_EQ("all", progress.files, STK_COUNT(sizes));
        T_EQ("all", progress.files_done, STK_COUNT(sizes));
        T_EQ("all", progress.bytes, all);
        T_EQ("all", progress.bytes_done, all);
        if (!progress.tells_cold) {
            T_EQ("all", progress.bytes_read, all);
            continue;
        }
        T_EQ("all", progress.bytes_cold, 0);
        T_TRUE("all", progress.bytes_read + progress.bytes_warm >= all);
        T_EQ("again", run(engine, &options, &progress, &error), 0);
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

/* Failures, each told; what stands beside is read. */
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
    options.piece_bytes = 64u << 20; /* 4 GiB: more than the engine has */
    error = (struct stoker_error){0};
    T_EQ("budget", run(engine, &options, &progress, &error), STOKER_ERROR_BUDGET);
    T_ERROR("budget", &error);
    paths[0] = folder;
    options.path_count = 1;
    options.piece_bytes = 4u << 20; /* 256 MiB of 1 GiB: each run gives them back */
    for (int i = 0; i < 6; i++) {
        T_EQ("given back", run(engine, &options, &progress, &error), 0);
    }
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
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    return t_finish();
}
