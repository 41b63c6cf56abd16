/* stoker index: makes the index file of a data set, so that it opens at once. */
#include "programs/cli/args.h"

#include "programs/cli/jpeg_index_run.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#define WAIT_MS 100u

static int run(struct args *args);
static void draw(const struct stoker_indexer_progress *progress);
static void report(const struct args *args, const struct stoker_indexer_progress *progress,
                   const struct jpeg_index_report *marks);

const struct command command_index = {
    .name = "index",
    .bit = COMMAND_INDEX,
    .usage = "[options] PATH...",
    .summary = "Make the index file of a data set, or bring it up to date",
    .more =
        "Reads the headers of tars that are new or changed, and lists class folders. A run that "
        "was\n"
        "stopped goes on where it was. With an index a data set opens without reading headers.\n"
        "Compressed shards are read in any order where unpacking can begin inside of them: zstd "
        "at\n"
        "its frames, gz at access points (--seek-points). Exit status 1 says that --seek-points "
        "was asked\n"
        "for and a shard cannot have it (zstd in one frame of more than 32 MiB, bz2, xz).\n"
        "With --jpeg-index all JPEGs are read, too, and INDEX.marks tells where decoding can "
        "begin\n"
        "in them: delete it, and only the time is lost. verify --deep checks it.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_engine *engine = NULL;
    struct stoker_indexer *indexer = NULL;
    struct stoker_error error = {0};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = args->paths, .url_count = args->path_count};
    struct stoker_indexer_options options = {.struct_size = sizeof options,
                                             .out = args->out,
                                             .checksums = args->checksums,
                                             .labels = args->labels,
                                             .seek_interval_bytes = args->seek_interval_bytes,
                                             .force = args->force};
    struct jpeg_index_report marks = {0};
    int status, marked = EXIT_FINE;
    bool missed;

    if (args->path_count == 0) {
        return term_usage("index", "no path given", NULL, "usage: stoker index [options] PATH...");
    }
    status = args_open_engine(args, &engine);
    if (status != EXIT_FINE) {
        return status;
    }
    main_defer_signals(true);
    status = stoker_indexer_open(&indexer, engine, &dataset, &options, &error);
    if (status == 0) {
        do {
            status = stoker_indexer_next(indexer, WAIT_MS, &progress, &error);
            if (status == 1 && term_is_live()) {
                draw(&progress);
            }
        } while (status == 1 && !main_signal());
    }
    term_live_end();
    if (status == 0 && args->jpeg_index_mcus) {
        struct jpeg_index_job job = {engine,    args->paths,           args->path_count,
                                     args->out, args->jpeg_index_mcus, false};

        marked = jpeg_index_run(&job, &marks);
    }
    if (status == 0) {
        report(args, &progress, &marks);
    }
    missed = args->seek_interval_bytes > 0 && progress.shards_sequential > 0;
    /* A second signal ends the process at once: what was finished is in the journal. */
    int exit_status = status < 0    ? term_error(status, &error)
                      : status == 1 ? EXIT_SIGNAL + main_signal()
                      : marked      ? marked
                      : missed      ? EXIT_FINDINGS
                                    : EXIT_FINE;
    stoker_indexer_close(indexer);
    stoker_engine_close(engine);
    return exit_status;
}

static double seconds(const struct stoker_indexer_progress *progress)
{
    return progress->elapsed_ns > 0 ? (double)progress->elapsed_ns / 1e9 : 1e-9;
}

static void draw(const struct stoker_indexer_progress *progress)
{
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
                   const struct jpeg_index_report *marks)
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
        jpeg_index_report_json(marks);
        json_close('}');
        return;
    }
    term_text(progress->path);
    printf(": %s samples, %s members, %s\n", term_count(a, progress->samples),
           term_count(b, progress->members), term_bytes(c, progress->index_bytes));
    printf("  %s of %s kept, ", term_count(a, progress->shards_reused),
           term_count(b, progress->shards));
    printf("%s read of %s in %s\n", term_bytes(a, progress->bytes_read),
           term_bytes(b, progress->bytes_done), term_time(c, seconds(progress)));
    if (progress->shards_sequential > 0) {
        printf("  %s of %s compressed shards are read front to back, so the data set is: '",
               term_count(a, progress->shards_sequential),
               term_count(b, progress->shards_compressed));
        term_text(progress->sequential_shard);
        printf("': %s\n", progress->sequential_reason);
    }
    jpeg_index_report_print(marks);
}
