/* stoker prewarm: reads files once before training. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

/* A running prewarm, for command_wait. */
struct prewarm_job {
    struct stoker_prewarm *prewarm;
    struct stoker_prewarm_progress progress;
};

/* Local files whose bytes are in an archive below the file system, among the inspected ones: at
 * most 1,000 of a folder. */
struct archived_files {
    uint64_t inspected, files, bytes; /* inspected 0: the file system does not report it */
};

static int run(struct args *args);
static void print_uncached(const struct args *args, struct archived_files *archived);
static int wait_for_end(struct prewarm_job *job, uint32_t timeout_s);
static void report(const struct args *args, const struct stoker_prewarm_progress *progress,
                   const struct archived_files *archived);

const struct command command_prewarm = {
    .name = "prewarm",
    .bit = COMMAND_PREWARM,
    .usage = "[options] PATH...",
    .summary = "Read files before training: into the page cache, the node cache, out of an archive",
    .more = "Skips data that is in the page cache: after a kill, the same command continues\n"
            "where it was. Data of URLs is stored on this machine only with --cache. With\n"
            "--node K/N a node of a job fills its cache with the blocks that it will read:\n"
            "use --home-groups and --seed of the loaders, and --budget below the quota. For\n"
            "archives below a file system (HSM, lazy loading) it reports the files that are\n"
            "still archived. Exit status 1: some data is still cold or archived, or could not\n"
            "be read in time.\n",
    .run = run,
};

/* "3/16" to node 3 of 16. */
static bool parse_node(const char *text, struct stoker_prewarm_options *options)
{
    char *end;
    unsigned long node = strtoul(text, &end, 10), count;

    if (end == text || *end != '/' || text[0] == '-' || end[1] < '0' || end[1] > '9') {
        return false;
    }
    count = strtoul(end + 1, &end, 10);
    if (*end || count == 0 || count > UINT32_MAX || node >= count) {
        return false;
    }
    options->node = (uint32_t)node;
    options->node_count = (uint32_t)count;
    return true;
}

static int run(struct args *args)
{
    struct prewarm_job job = {.progress.struct_size = sizeof job.progress};
    struct stoker_prewarm_options options = {
        .struct_size = sizeof options,
        .workers = (uint32_t)args->workers,
        .chunk_bytes = (uint32_t)args->chunk_bytes,
        .timeout_s = (uint32_t)args->seconds + (args->seconds > (uint32_t)args->seconds),
        .check = args->check_only,
        .touch = args->touch,
        .group_count = (uint32_t)args->home_groups,
        .seed = args->seed,
        .budget_bytes = args->budget_bytes,
        .rate_bytes_max = args->rate_bytes,
    };
    struct stoker_engine *engine = NULL;
    struct stoker_error error = {0};
    struct archived_files archived = {0};
    int status;

    if (args->path_count == 0) {
        return command_no_path(&command_prewarm);
    }
    if (args->node && !parse_node(args->node, &options)) {
        return term_usage("prewarm", "there is no such node", args->node,
                          "write the number of the node, from 0, and the nodes: 3/16");
    }
    if (!args->node && (args->budget_bytes || args->rate_bytes || args->home_groups)) {
        return term_usage("prewarm", "--budget, --rate and --home-groups need --node", NULL,
                          "add --node K/N, or --node 0/1 for one node");
    }
    status = command_open_files(args, &engine);
    if (status != EXIT_FINE) {
        stoker_engine_close(engine);
        return status;
    }
    options.paths = args->paths;
    options.path_count = args->path_count;
    main_defer_signals(true);
    status = stoker_prewarm_open(&job.prewarm, engine, &options, &error);
    status = status < 0 ? term_error(status, &error) : wait_for_end(&job, options.timeout_s);
    if (status == EXIT_FINE && !args->node) {
        print_uncached(args, &archived);
    }
    if (job.prewarm) {
        report(args, &job.progress, &archived);
    }
    if (status == EXIT_FINE && (job.progress.bytes_cold > 0 || archived.files > 0)) {
        status = EXIT_FINDINGS;
    }
    stoker_prewarm_close(job.prewarm);
    stoker_engine_close(engine);
    return status;
}

static void print_uncached(const struct args *args, struct archived_files *archived)
{
    for (size_t i = 0; i < args->path_count; i++) {
        struct stoker_filesystem_info info = {.struct_size = sizeof info};
        struct stoker_filesystem *filesystem = NULL;

        if (!strstr(args->paths[i], "://") &&
            stoker_filesystem_open(&filesystem, args->paths[i], NULL, NULL) == 0 &&
            stoker_filesystem_info(filesystem, &info) == 0 &&
            info.residency != STOKER_RESIDENCY_UNKNOWN) {
            archived->inspected += info.files;
            archived->files += info.files_archived;
            archived->bytes += info.bytes_archived;
        }
        stoker_filesystem_close(filesystem);
    }
}

static uint64_t rate_of(const struct stoker_prewarm_progress *progress)
{
    double seconds = (double)progress->run_ns / 1e9;

    return seconds > 0 ? (uint64_t)((double)progress->bytes_read / seconds) : 0;
}

static void draw(const void *self)
{
    const struct stoker_prewarm_progress *progress = &((const struct prewarm_job *)self)->progress;
    double share = -1;
    char line[200], done[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];
    char rate[TERM_NUMBER_BYTES];

    if (progress->listed && progress->bytes > 0) {
        share = (double)progress->bytes_done / (double)progress->bytes;
    }
    snprintf(line, sizeof line, "%s of %s%s files, %s, %s/s",
             term_count(done, progress->files_done), term_count(all, progress->files),
             progress->listed ? "" : "+", term_bytes(bytes, progress->bytes_done),
             term_bytes(rate, rate_of(progress)));
    term_live(share, line);
}

static int next(void *self, struct stoker_error *error)
{
    struct prewarm_job *job = self;

    return stoker_prewarm_next(job->prewarm, COMMAND_TICK_MS, &job->progress, error);
}

static int wait_for_end(struct prewarm_job *job, uint32_t timeout_s)
{
    struct stoker_error error = {0};
    int status = command_wait(&(struct command_job){next, draw, job, NULL}, &error);

    if (status == STOKER_ERROR_TIMEOUT && timeout_s > 0 &&
        job->progress.run_ns >= timeout_s * 1000000000ull) {
        term_error(status, &error);
        return EXIT_FINDINGS;
    }
    return status == 1 ? command_interrupted("data that was read stays", NULL)
                       : command_result(status, &error);
}

static void report(const struct args *args, const struct stoker_prewarm_progress *progress,
                   const struct archived_files *archived)
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
        if (archived->inspected > 0) {
            json_u64("files_looked_at", archived->inspected);
            json_u64("files_away", archived->files);
            json_u64("bytes_away", archived->bytes);
        }
        json_u64("bytes_per_second", rate);
        json_double("seconds", seconds);
        json_close('}');
        return;
    }
    if (args->node) {
        printf("share      %s of %s cached, %s downloaded in %s, %s/s\n",
               term_bytes(a, progress->bytes_done), term_bytes(b, progress->bytes),
               term_bytes(c, progress->bytes_read), term_time(d, seconds),
               term_bytes((char[TERM_NUMBER_BYTES]){0}, rate));
        return;
    }
    printf("read       %s of %s files, %s in %s, %s/s\n", term_count(a, progress->files_done),
           term_count(b, progress->files), term_bytes(c, progress->bytes_read),
           term_time(d, seconds), term_bytes((char[TERM_NUMBER_BYTES]){0}, rate));
    if (progress->cold_is_known) {
        printf("in memory  %s before\n", term_bytes(a, progress->bytes_warm));
        printf("cold       %s\n", term_bytes(a, progress->bytes_cold));
    } else {
        printf("cold       unknown here\n");
    }
    if (archived->files > 0) {
        printf("archived   %s of %s inspected files, %s: in an archive below the file system\n",
               term_count(a, archived->files), term_count(b, archived->inspected),
               term_bytes(c, archived->bytes));
    }
    if (progress->files_failed > 0) {
        printf("failed     %s files\n", term_count(a, progress->files_failed));
    }
}
