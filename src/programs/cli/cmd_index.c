/* stoker index: builds the index file of a data set, so that it opens without a scan. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/jpeg_index_run.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

/* A running indexer, for command_wait. */
struct index_job {
    struct stoker_indexer *indexer;
    struct stoker_indexer_progress progress;
};

static int run(struct args *args);
static int next(void *self, struct stoker_error *error);
static void draw(const void *self);
static void report(const struct args *args, const struct stoker_indexer_progress *progress,
                   const struct jpeg_index_report *jpegs);

const struct command command_index = {
    .name = "index",
    .bit = COMMAND_INDEX,
    .usage = "[options] PATH...",
    .summary = "Build the index file of a data set, or update it",
    .more = "Reads the headers of new or changed tars and lists class folders. A stopped run\n"
            "continues where it was. A data set with an index opens without reading headers.\n"
            "Compressed shards can be read in any order from points where decompression can\n"
            "start: the frames of zstd, and the seek points of gz (--seek-points). Exit status\n"
            "1: --seek-points was given and a shard cannot have them (zstd in one frame of more\n"
            "than 32 MiB, bz2, xz). --jpeg-index reads all JPEGs, too, and writes entry points\n"
            "of the decoder to INDEX.marks. The file only saves time; it can be deleted. verify\n"
            "--deep verifies it.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_engine *engine = NULL;
    struct stoker_error error = {0};
    struct index_job job = {.progress.struct_size = sizeof job.progress};
    const struct stoker_indexer_progress *progress = &job.progress;
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = args->paths, .url_count = args->path_count};
    struct stoker_indexer_options options = {.struct_size = sizeof options,
                                             .out = args->out,
                                             .checksums = args->checksums,
                                             .labels = args->labels,
                                             .seek_interval_bytes = args->seek_interval_bytes,
                                             .force = args->force};
    struct jpeg_index_report jpeg_report = {0};
    int status, jpeg_status = EXIT_FINE;
    bool is_sequential;

    if (args->path_count == 0) {
        return command_no_path(&command_index);
    }
    status = command_open_engine(args, &engine);
    if (status != EXIT_FINE) {
        return status;
    }
    main_defer_signals(true);
    status = stoker_indexer_open(&job.indexer, engine, &dataset, &options, &error);
    if (status == 0) {
        status = command_wait(&(struct command_job){next, draw, &job, NULL}, &error);
    }
    if (status == 0 && args->jpeg_index_mcus) {
        struct jpeg_index_job jpegs = {engine,
                                       args->paths,
                                       args->path_count,
                                       args->out,
                                       args->jpeg_index_mcus,
                                       false,
                                       "the index is complete, the JPEG index is not written",
                                       "the same command reads the JPEGs again"};

        jpeg_status = jpeg_index_run(&jpegs, &jpeg_report);
    }
    if (status == 0) {
        report(args, progress, &jpeg_report);
    }
    is_sequential = args->seek_interval_bytes > 0 && progress->shards_sequential > 0;
    /* A second signal ends the process at once: the journal has the finished shards. */
    int exit_status = status == 1     ? command_interrupted("shards that were read stay", NULL)
                      : status != 0   ? command_result(status, &error)
                      : jpeg_status   ? jpeg_status
                      : is_sequential ? EXIT_FINDINGS
                                      : EXIT_FINE;
    stoker_indexer_close(job.indexer);
    stoker_engine_close(engine);
    return exit_status;
}

static double seconds(const struct stoker_indexer_progress *progress)
{
    return progress->elapsed_ns > 0 ? (double)progress->elapsed_ns / 1e9 : 1e-9;
}

static int next(void *self, struct stoker_error *error)
{
    struct index_job *job = self;

    return stoker_indexer_next(job->indexer, COMMAND_TICK_MS, &job->progress, error);
}

static void draw(const void *self)
{
    const struct stoker_indexer_progress *progress = &((const struct index_job *)self)->progress;
    char line[256], a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES], c[TERM_NUMBER_BYTES];
    uint64_t rest = progress->shards - progress->shards_reused;
    double share = rest ? (double)progress->shards_done / (double)rest : 0;

    if (progress->bytes > 0) {
        share = (double)progress->bytes_done / (double)progress->bytes;
    }
    snprintf(line, sizeof line, "%s of %s  %.0f MB/s  %s left",
             term_count(a, progress->shards_reused + progress->shards_done),
             term_count(b, progress->shards),
             (double)progress->bytes_done / 1e6 / seconds(progress),
             share > 0 ? term_time(c, seconds(progress) * (1 - share) / share) : "?");
    term_live(share, line);
}

static void report(const struct args *args, const struct stoker_indexer_progress *progress,
                   const struct jpeg_index_report *jpegs)
{
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES], c[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_str("path", progress->path);
        json_u64("shards", progress->shards);
        json_u64("shards_kept", progress->shards_reused);
        json_u64("samples", progress->samples);
        json_u64("members", progress->members);
        json_u64("index_bytes", progress->index_bytes);
        json_u64("bytes", progress->bytes_done);
        json_u64("bytes_read", progress->bytes_read);
        json_u64("shards_packed", progress->shards_compressed);
        json_u64("shards_sequential", progress->shards_sequential);
        if (progress->sequential_shard) {
            json_str("sequential_shard", progress->sequential_shard);
            json_str("sequential_reason", progress->sequential_reason);
        }
        json_double("seconds", seconds(progress));
        jpeg_index_report_json(jpegs);
        json_close('}');
        return;
    }
    term_text(progress->path);
    printf(": %s samples, %s members, %s\n", term_count(a, progress->samples),
           term_count(b, progress->members), term_bytes(c, progress->index_bytes));
    printf("  %s of %s reused, ", term_count(a, progress->shards_reused),
           term_count(b, progress->shards));
    printf("%s read of %s in %s\n", term_bytes(a, progress->bytes_read),
           term_bytes(b, progress->bytes_done), term_time(c, seconds(progress)));
    if (progress->shards_sequential > 0) {
        printf(
            "  %s of %s compressed shards, and so the data set, can only be read front to back: '",
            term_count(a, progress->shards_sequential), term_count(b, progress->shards_compressed));
        term_text(progress->sequential_shard);
        printf("': %s\n", progress->sequential_reason);
    }
    jpeg_index_report_print(jpegs);
}
