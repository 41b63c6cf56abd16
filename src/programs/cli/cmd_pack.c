/* stoker pack: writes a folder or tars as tars of one size, with index and manifest. */
#include "base/text/parse_number.h"
#include "base/text/text_match.h"
#include "programs/cli/args.h"

#include "programs/cli/bad_samples_report.h"
#include "programs/cli/command.h"
#include "programs/cli/jpeg_index_run.h"
#include "programs/cli/main.h"
#include "programs/cli/pack_url.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A running pack, for command_wait. */
struct pack_job {
    struct stoker_pack *pack;
    struct stoker_pack_progress progress;
};

static int run(struct args *args);
static struct bad_samples_list bad_list(const struct stoker_pack_progress *progress,
                                        struct stoker_pack *pack);
static void print_complete(struct stoker_engine *engine, struct stoker_pack_progress *progress);
static int index_jpegs(const struct args *args, struct stoker_engine *engine, const char *folder);
static void print_order_advice(const struct args *args, const struct stoker_dataset *dataset,
                               const struct stoker_pack_progress *progress);
static int check(const struct args *args, uint64_t *seed_out);
static bool seed_parse(const char *text, uint64_t *seed_out);
static int wait_for_end(struct pack_job *job);
static void report(const char *destination, const struct stoker_pack_progress *progress,
                   struct stoker_pack *pack);
static void report_json(const char *destination, const struct stoker_pack_progress *progress,
                        struct stoker_pack *pack);

const struct command command_pack = {
    .name = "pack",
    .bit = COMMAND_PACK,
    .usage = "[options] SRC... DST",
    .summary = "Write a data set as tars of one size, with an index and a manifest of SHA-256",
    .more = "DST is a new or empty folder outside of the source folders. Files are written to\n"
            "DST.part; one rename completes the work. After an interruption at any point the\n"
            "same command continues, and the result has the same bytes.\n"
            "The samples are shuffled, since neighbours of a folder have one class: the same seed\n"
            "gives the same order. --keep-order keeps the order of the source; compressed tars\n"
            "without seek points are packed in their order, too. The manifest says which was\n"
            "used.\n"
            "DST may also be an unused prefix of a store, s3://bucket/prefix: the data set is\n"
            "packed in --staging-dir first, then uploaded, the manifest last. Objects are never\n"
            "replaced. An image of a class folder becomes KEY.jpg and KEY.cls (the number of\n"
            "its class), with each file of the same name and another extension (.json, .txt),\n"
            "and KEY.json from its line in a metadata.jsonl of the folder or the root.\n"
            "--on-error skip leaves out samples with damaged data: that cannot be read or\n"
            "decompressed, do not match the checksums of an index, or cannot be shrunk; of a\n"
            "tar that ends early or has damaged headers, samples that may be incomplete.\n"
            "Failures of the disk or the network are retried, then end the work.\n",
    .run = run,
};

static struct jpeg_index_report packed_jpeg_index; /* of --jpeg-index */
static struct pack_url packed_to;

static int run(struct args *args)
{
    struct stoker_pack_options options = {.struct_size = sizeof options,
                                          .shard_bytes = args->shard_bytes,
                                          .pattern = args->pattern,
                                          .short_side = (uint32_t)args->short_side,
                                          .quality = (uint32_t)args->quality,
                                          .on_error = (uint32_t)args->on_error,
                                          .quarantine = args->quarantine,
                                          .bad_samples_max = args->bad_samples_max,
                                          .bad_share_max = args->bad_share_max};
    struct pack_job job = {.progress.struct_size = sizeof job.progress};
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    const char *named;
    int status;

    status = check(args, &options.seed);
    if (status != EXIT_FINE) {
        return status;
    }
    options.shuffle = args->keep_order     ? STOKER_SHUFFLE_NONE
                      : args->shuffle_seed ? STOKER_SHUFFLE_FULL
                                           : 0;
    options.destination = args->paths[--args->path_count];
    args->foreign_index = STOKER_FOREIGN_INDEX_NEVER;
    args->rescue = args->on_error == STOKER_ON_ERROR_SKIP;
    status = command_open_dataset(args, &engine, &dataset);
    if (status != EXIT_FINE) {
        return status;
    }
    main_defer_signals(true);
    named = options.destination;
    if (strstr(stk_text_skip_file_scheme(named), "://")) {
        status = pack_url_prepare(&packed_to, args, engine, dataset, named);
        options.destination = packed_to.data;
    }
    if (status == EXIT_FINE && packed_to.is_packed) {
        print_complete(engine, &job.progress);
    } else if (status == EXIT_FINE) {
        status = stoker_pack_open(&job.pack, dataset, &options, &error);
        status = status < 0 ? term_error(status, &error) : wait_for_end(&job);
    }
    if (status == EXIT_FINE && args->jpeg_index_mcus) {
        status = index_jpegs(args, engine, options.destination);
    }
    if (status == EXIT_FINE && packed_to.url) {
        status = pack_url_send(&packed_to);
    }
    if (status == EXIT_FINE) {
        (args->json ? report_json : report)(named, &job.progress, job.pack);
        print_order_advice(args, dataset, &job.progress);
    } else if (job.pack && !args->json) { /* damage may be the reason */
        struct bad_samples_list bad = bad_list(&job.progress, job.pack);

        bad.total = bad.total < bad.count ? bad.count : bad.total;
        if (bad.count > 0) {
            bad_samples_report(&bad);
        }
    }
    stoker_pack_close(job.pack);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return status;
}

/* Compressed shards that were packed in their order, which the user did not request. */
static void print_order_advice(const struct args *args, const struct stoker_dataset *dataset,
                               const struct stoker_pack_progress *progress)
{
    struct stoker_dataset_info info = {.struct_size = sizeof info};

    stoker_dataset_info(dataset, &info);
    if (!args->json && !args->keep_order && !progress->shuffled && info.sequential) {
        printf("not shuffled: compressed shards without seek points are read front to back;\n"
               "  run 'stoker index --seek-points' on them, then pack again\n");
    }
}

static int index_jpegs(const struct args *args, struct stoker_engine *engine, const char *folder)
{
    struct jpeg_index_job jpegs = {
        .engine = engine,
        .urls = &folder,
        .url_count = 1,
        .mcus = args->jpeg_index_mcus,
        .interrupted = "the data set is packed, its JPEG index is not written",
        .advice = packed_to.url ? NULL : "write it with 'stoker index --jpeg-index DST'",
    };

    return jpeg_index_run(&jpegs, &packed_jpeg_index);
}

static int check(const struct args *args, uint64_t *seed_out)
{
    if (args->path_count < 2) {
        return term_usage("pack", "a source and a destination are needed", NULL,
                          "usage: stoker pack [options] SRC... DST");
    }
    if (args->shuffle_seed && args->keep_order) {
        return term_usage("pack", "options exclude each other", NULL,
                          "use one of --shuffle and --keep-order");
    }
    if (args->shuffle_seed && !seed_parse(args->shuffle_seed, seed_out)) {
        return term_usage("pack", "not a number", args->shuffle_seed,
                          "--shuffle takes a seed, like --shuffle 7");
    }
    return EXIT_FINE;
}

/* Progress of an earlier run that packed everything and did not upload it. */
static void print_complete(struct stoker_engine *engine, struct stoker_pack_progress *progress)
{
    const char *path = packed_to.data;
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &path, .url_count = 1};
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_dataset *dataset = NULL;

    if (stoker_dataset_open(&dataset, engine, &options, NULL) == 0 &&
        stoker_dataset_info(dataset, &info) == 0) {
        progress->shards = progress->shards_done = progress->shards_resumed = info.shard_count;
        progress->samples = progress->samples_done = progress->samples_resumed = info.sample_count;
        progress->bytes_done = progress->bytes_resumed = info.bytes;
    }
    stoker_dataset_close(dataset);
}

static bool seed_parse(const char *text, uint64_t *seed_out)
{
    return stk_parse_size(text, false, seed_out);
}

static int next(void *self, struct stoker_error *error)
{
    struct pack_job *job = self;

    return stoker_pack_next(job->pack, COMMAND_TICK_MS, &job->progress, error);
}

static void stop(void *self)
{
    stoker_pack_stop(((const struct pack_job *)self)->pack);
}

static double seconds_of(const struct stoker_pack_progress *progress)
{
    return (double)progress->run_ns / 1e9;
}

static void draw(const void *self)
{
    const struct stoker_pack_progress *progress = &((const struct pack_job *)self)->progress;
    double seconds = seconds_of(progress), share = -1;
    uint64_t fresh = progress->samples_done - progress->samples_resumed;
    uint64_t left = progress->samples - progress->samples_done - progress->samples_left_out;
    char line[200], count[TERM_NUMBER_BYTES], rate[TERM_NUMBER_BYTES],
        time[TERM_NUMBER_BYTES] = "?", bad[40] = "";

    if (progress->phase == STOKER_PACK_WRITING && seconds > 0) {
        double bytes = (double)(progress->bytes_done - progress->bytes_resumed) / seconds;

        if (fresh > 0) {
            term_time(time, seconds / (double)fresh * (double)left);
        }
        share = (double)progress->samples_done / (double)progress->samples;
        if (progress->samples_left_out > 0) {
            snprintf(bad, sizeof bad, ", %llu left out",
                     (unsigned long long)progress->samples_left_out);
        }
        snprintf(line, sizeof line, "%s samples%s, shard %llu of %llu, %s/s, %s left",
                 term_count(count, progress->samples_done), bad,
                 (unsigned long long)progress->shards_done, (unsigned long long)progress->shards,
                 term_bytes(rate, (uint64_t)bytes), time);
    } else {
        snprintf(line, sizeof line, "%s",
                 progress->phase == STOKER_PACK_LISTING ? "listing the source"
                                                        : "writing index and manifest");
    }
    term_live(share, line);
}

static int wait_for_end(struct pack_job *job)
{
    struct stoker_error error = {0};
    int status = command_wait(&(struct command_job){next, draw, job, stop}, &error);

    return status == 1 ? command_interrupted("complete shards stay", NULL)
                       : command_result(status, &error);
}

static int bad_at(void *pack, uint64_t index, struct stoker_quarantine_entry *entry)
{
    return stoker_pack_quarantine(pack, index, entry);
}

static struct bad_samples_list bad_list(const struct stoker_pack_progress *progress,
                                        struct stoker_pack *pack)
{
    return (struct bad_samples_list){.count = pack ? stoker_pack_quarantine_count(pack) : 0,
                                     .total = progress->samples_left_out,
                                     .at = bad_at,
                                     .from = pack};
}

static void report(const char *destination, const struct stoker_pack_progress *progress,
                   struct stoker_pack *pack)
{
    struct bad_samples_list bad = bad_list(progress, pack);
    char samples[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES], resumed[TERM_NUMBER_BYTES];
    char rate[TERM_NUMBER_BYTES], time[TERM_NUMBER_BYTES], number[TERM_NUMBER_BYTES];
    double seconds = seconds_of(progress);
    uint64_t fresh = progress->bytes_done - progress->bytes_resumed;

    printf("packed     ");
    term_text(destination);
    printf("\nsamples    %s\n", term_count(samples, progress->samples_done));
    if (progress->shards > 0) {
        printf("shards     %s of %s\n", term_count(number, progress->shards_done),
               term_bytes(bytes, progress->bytes_done));
    }
    if (progress->shuffled) {
        printf("order      shuffled with seed %llu\n", (unsigned long long)progress->seed);
    } else if (progress->shards > 0) {
        printf("order      of the source\n");
    }
    if (progress->samples_left_out > 0) {
        printf("left out   %s damaged samples\n", term_count(number, progress->samples_left_out));
    }
    if (progress->samples_resumed > 0) {
        printf("reused     %s samples of an earlier run\n",
               term_count(resumed, progress->samples_resumed));
    }
    if (progress->resized + progress->copied > 0) {
        printf("resized    %s JPEGs", term_count(number, progress->resized));
        printf(", %s copied unchanged\n", term_count(number, progress->copied));
    }
    if (seconds > 0) {
        printf("time       %s, %s/s\n", term_time(time, seconds),
               term_bytes(rate, (uint64_t)((double)fresh / seconds)));
    }
    bad_samples_report(&bad);
    jpeg_index_report_print(&packed_jpeg_index);
}

static void report_json(const char *destination, const struct stoker_pack_progress *progress,
                        struct stoker_pack *pack)
{
    struct bad_samples_list bad = bad_list(progress, pack);

    json_open(NULL, '{');
    json_str("destination", destination);
    json_u64("shards", progress->shards);
    json_u64("samples", progress->samples_done);
    json_u64("bytes", progress->bytes_done);
    json_str("order", progress->shuffled ? "shuffled" : "source");
    if (progress->shuffled) {
        json_u64("seed", progress->seed);
    } else {
        json_none("seed");
    }
    json_u64("shards_kept", progress->shards_resumed);
    json_u64("samples_kept", progress->samples_resumed);
    json_u64("resized", progress->resized);
    json_u64("copied", progress->copied);
    json_u64("samples_left_out", progress->samples_left_out);
    json_u64("retries", progress->retries);
    bad_samples_json(&bad);
    json_double("seconds", seconds_of(progress));
    jpeg_index_report_json(&packed_jpeg_index);
    json_close('}');
}
