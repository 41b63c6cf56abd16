/* stoker prewarm: files read ahead of training, once. */
#include "programs/cli/args.h"

#include "programs/cli/main.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <string.h>

#define TICK_MS 100

/* Files of this machine whose bytes are in an archive behind their file system, of those that were
 * looked at: 1,000 of a folder. */
struct remote_files {
    uint64_t looked, files, bytes; /* looked 0: no file system tells */
};

static int run(struct args *args);
static void print_uncached(const struct args *args, struct remote_files *remote_files);
static int wait_for_end(struct stoker_prewarm *prewarm, uint32_t timeout_s,
                        struct stoker_prewarm_progress *progress);
static void report(const struct args *args, const struct stoker_prewarm_progress *progress,
                   const struct remote_files *remote_files);

const struct command command_prewarm = {
    .name = "prewarm",
    .bit = COMMAND_PREWARM,
    .usage = "[options] PATH...",
    .summary = "Read files ahead of training: into memory, out of an archive",
    .more =
        "What the page cache has is passed over: a run that was killed goes on where it was when\n"
        "it is begun again. Of URLs nothing is kept here: only a proxy or the server remembers.\n"
        "Of archives behind a file system (HSM, lazy loading) it is told what is still away.\n"
        "Exit status 1: some of it is still cold or away, or could not be read in time.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_prewarm_progress progress = {.struct_size = sizeof progress};
    struct stoker_prewarm_options options = {
        .struct_size = sizeof options,
        .workers = (uint32_t)args->workers,
        .chunk_bytes = (uint32_t)args->chunk_bytes,
        .timeout_s = (uint32_t)args->seconds + (args->seconds > (uint32_t)args->seconds),
        .check = args->check_only,
        .touch = args->touch,
    };
    struct stoker_engine *engine = NULL;
    struct stoker_prewarm *prewarm = NULL;
    struct stoker_error error = {0};
    struct remote_files remote_files = {0};
    int status;

    if (args->path_count == 0) {
        return term_usage("prewarm", "no path given", NULL,
                          "usage: stoker prewarm [options] PATH...");
    }
    status = args_open_engine(args, &engine);
    status = status == EXIT_FINE ? path_args_expand_all(args, engine) : status;
    if (status != EXIT_FINE) {
        stoker_engine_close(engine);
        return status;
    }
    options.paths = args->paths;
    options.path_count = args->path_count;
    main_defer_signals(true);
    status = stoker_prewarm_open(&prewarm, engine, &options, &error);
    status = status < 0 ? term_error(status, &error)
                        : wait_for_end(prewarm, options.timeout_s, &progress);
    term_live_end();
    if (status == EXIT_FINE) {
        print_uncached(args, &remote_files);
    }
    if (prewarm) {
        report(args, &progress, &remote_files);
    }
    if (status == EXIT_FINE && (progress.bytes_cold > 0 || remote_files.files > 0)) {
        status = EXIT_FINDINGS;
    }
    stoker_prewarm_close(prewarm);
    stoker_engine_close(engine);
    return status;
}

static void print_uncached(const struct args *args, struct remote_files *remote_files)
{
    for (size_t i = 0; i < args->path_count; i++) {
        struct stoker_filesystem_info info = {.struct_size = sizeof info};
        struct stoker_filesystem *ground = NULL;

        if (!strstr(args->paths[i], "://") &&
            stoker_filesystem_open(&ground, args->paths[i], NULL, NULL) == 0 &&
            stoker_filesystem_info(ground, &info) == 0 &&
            info.residency != STOKER_RESIDENCY_UNKNOWN) {
            remote_files->looked += info.files;
            remote_files->files += info.files_archived;
            remote_files->bytes += info.bytes_archived;
        }
        stoker_filesystem_close(ground);
    }
}

static uint64_t rate_of(const struct stoker_prewarm_progress *progress)
{
    double seconds = (double)progress->run_ns / 1e9;

    return seconds > 0 ? (uint64_t)((double)progress->bytes_read / seconds) : 0;
}

static void live_draw(const struct stoker_prewarm_progress *progress)
{
    double share = -1;
    char line[200], done[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];
    char rate[TERM_NUMBER_BYTES];

    if (!term_is_live()) {
        return;
    }
    if (progress->listed && progress->bytes > 0) {
        share = (double)progress->bytes_done / (double)progress->bytes;
    }
    snprintf(line, sizeof line, "%s of %s%s files, %s, %s/s",
             term_count(done, progress->files_done), term_count(all, progress->files),
             progress->listed ? "" : "+", term_bytes(bytes, progress->bytes_done),
             term_bytes(rate, rate_of(progress)));
    term_live(share, line);
}

static int wait_for_end(struct stoker_prewarm *prewarm, uint32_t timeout_s,
                        struct stoker_prewarm_progress *progress)
{
    for (;;) {
        struct stoker_error error = {0};
        int status = stoker_prewarm_next(prewarm, TICK_MS, progress, &error);

        if (status == STOKER_ERROR_TIMEOUT && timeout_s > 0 &&
            progress->run_ns >= timeout_s * 1000000000ull) {
            term_error(status, &error);
            return EXIT_FINDINGS;
        }
        if (status < 0) {
            return term_error(status, &error);
        }
        if (status == 0) {
            return EXIT_FINE;
        }
        if (main_signal()) {
            term_live_end();
            term_fail("interrupted", "what was read stays", "the same command goes on from here");
            return EXIT_SIGNAL + main_signal();
        }
        live_draw(progress);
    }
}

static void report(const struct args *args, const struct stoker_prewarm_progress *progress,
                   const struct remote_files *remote_files)
{
    double seconds = (double)progress->run_ns / 1e9;
    uint64_t rate = rate_of(progress);
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES], c[TERM_NUMBER_BYTES], d[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_u64("files", progress->files);
        json_u64("bytes", progress->bytes);
        json_u64("files_done", progress->files_done);
        json_u64("bytes_done", progress->bytes_done);
        json_u64("bytes_read", progress->bytes_read);
        json_u64("files_failed", progress->files_failed);
        if (progress->cold_is_known) {
            json_u64("bytes_warm", progress->bytes_warm);
            json_u64("bytes_cold", progress->bytes_cold);
        }
        if (remote_files->looked > 0) {
            json_u64("files_looked_at", remote_files->looked);
            json_u64("files_away", remote_files->files);
            json_u64("bytes_away", remote_files->bytes);
        }
        json_u64("bytes_per_second", rate);
        json_double("seconds", seconds);
        json_close('}');
        return;
    }
    printf("read       %s of %s files, %s in %s, %s/s\n", term_count(a, progress->files_done),
           term_count(b, progress->files), term_bytes(c, progress->bytes_read),
           term_time(d, seconds), term_bytes((char[TERM_NUMBER_BYTES]){0}, rate));
    if (progress->cold_is_known) {
        printf("in memory  %s before\n", term_bytes(a, progress->bytes_warm));
        printf("cold       %s\n", term_bytes(a, progress->bytes_cold));
    } else {
        printf("cold       not told here\n");
    }
    if (remote_files->files > 0) {
        printf("away       %s of %s files looked at, %s: in an archive behind the file system\n",
               term_count(a, remote_files->files), term_count(b, remote_files->looked),
               term_bytes(c, remote_files->bytes));
    }
    if (progress->files_failed > 0) {
        printf("failed     %s files\n", term_count(a, progress->files_failed));
    }
}
