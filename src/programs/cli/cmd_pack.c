/* stoker pack: a folder or tars -> tars of one size, with index and manifest. */
#include "programs/cli/args.h"

#include "programs/cli/bad_samples_report.h"
#include "programs/cli/jpeg_index_run.h"
#include "programs/cli/main.h"
#include "programs/cli/pack_url.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 100 /* between two looks at Ctrl-C, and two drawings */

static int run(struct args *args);
static struct bad_samples_list bad_list(const struct stoker_pack_progress *progress,
                                        struct stoker_pack *pack);
static void print_complete(struct stoker_engine *engine, struct stoker_pack_progress *progress);
static int check(const struct args *args, uint64_t *seed_out);
static bool seed_parse(const char *text, uint64_t *seed_out);
static int wait_for_end(struct stoker_pack *pack, struct stoker_pack_progress *progress);
static void live_draw(const struct stoker_pack_progress *progress);
static void report(const char *destination, const struct stoker_pack_progress *progress,
                   struct stoker_pack *pack);
static void report_json(const char *destination, const struct stoker_pack_progress *progress,
                        struct stoker_pack *pack);

const struct command command_pack = {
    .name = "pack",
    .bit = COMMAND_PACK,
    .usage = "[options] SRC... DST",
    .summary = "Write a data set as tars of one size, with index and manifest of SHA-256",
    .more =
        "DST is a folder that is not there, or empty, and not in a folder that is packed. Work\n"
        "is done in DST.part, and one rename ends it. Interrupted at any point, the same command\n"
        "goes on, to the same bytes.\n"
        "DST may be a prefix in a store, s3://bucket/prefix, where nothing is: the data set is\n"
        "packed in --staging-dir first, then sent, its manifest last, and no object is ever "
        "replaced.\n"
        "A picture of a class folder becomes KEY.jpg and KEY.cls (the number of its class),\n"
        "with each file beside it that has its name and another extension (.json, .txt), and\n"
        "KEY.json from its line of a metadata.jsonl there or in the root.\n"
        "With --on-error skip, samples with damage in their data are left out: what cannot be\n"
        "read or unpacked, does not fit the checksums of an index, or cannot be made smaller;\n"
        "of a tar that is cut short or has damaged headers, what is not surely whole.\n"
        "Failures of the disk or the network are tried again, then end the work.\n",
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
    struct stoker_pack_progress progress = {.struct_size = sizeof progress};
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_pack *pack = NULL;
    const char *named;
    int status;

    status = check(args, &options.seed);
    if (status != EXIT_FINE) {
        return status;
    }
    options.shuffle = args->shuffle_seed ? STOKER_SHUFFLE_FULL : 0;
    options.destination = args->paths[--args->path_count];
    args->foreign_index = STOKER_FOREIGN_INDEX_NEVER;
    args->rescue = args->on_error == STOKER_ON_ERROR_SKIP;
    status = args_open(args, &engine, &dataset);
    if (status != EXIT_FINE) {
        return status;
    }
    main_defer_signals(true);
    named = options.destination;
    if (strstr(named, "://") && strncmp(named, "file://", 7) != 0) {
        status = pack_url_prepare(&packed_to, args, engine, dataset, named);
        options.destination = packed_to.data;
    }
    if (status == EXIT_FINE && packed_to.whole) {
        print_complete(engine, &progress);
    } else if (status == EXIT_FINE) {
        status = stoker_pack_open(&pack, dataset, &options, &error);
        status = status < 0 ? term_error(status, &error) : wait_for_end(pack, &progress);
    }
    term_live_end();
    if (status == EXIT_FINE && args->jpeg_index_mcus) {
        struct jpeg_index_job job = {engine, &options.destination,  1,
                                     NULL,   args->jpeg_index_mcus, false};

        status = jpeg_index_run(&job, &packed_jpeg_index);
    }
    if (status == EXIT_FINE && packed_to.url) {
        status = pack_url_send(&packed_to);
    }
    if (status == EXIT_FINE) {
        (args->json ? report_json : report)(named, &progress, pack);
    } else if (pack && !args->json) { /* damage may have ended it */
        struct bad_samples_list bad = bad_list(&progress, pack);

        bad.total = bad.total < bad.count ? bad.count : bad.total;
        if (bad.count > 0) {
            bad_samples_report(&bad);
        }
    }
    stoker_pack_close(pack);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return status;
}

static int check(const struct args *args, uint64_t *seed_out)
{
    if (args->path_count < 2) {
        return term_usage("pack", "give a source and a destination", NULL,
                          "usage: stoker pack [options] SRC... DST");
    }
    if (args->shuffle_seed && !seed_parse(args->shuffle_seed, seed_out)) {
        return term_usage("pack", "not a number", args->shuffle_seed,
                          "--shuffle takes the seed, like --shuffle 7");
    }
    return EXIT_FINE;
}

/* Of what an earlier run packed, and did not send. */
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
    char *end = NULL;

    errno = 0;
    *seed_out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0;
}

static int wait_for_end(struct stoker_pack *pack, struct stoker_pack_progress *progress)
{
    for (;;) {
        struct stoker_error error = {0};
        int status = stoker_pack_next(pack, TICK_MS, progress, &error);

        if (status < 0) {
            return term_error(status, &error);
        }
        if (status == 0) {
            return EXIT_FINE;
        }
        if (main_signal()) {
            term_live_end();
            term_fail("interrupted", "what is whole is kept", "the same command goes on from here");
            return EXIT_SIGNAL + main_signal();
        }
        live_draw(progress);
    }
}

static double seconds_of(const struct stoker_pack_progress *progress)
{
    return (double)progress->run_ns / 1e9;
}

static void live_draw(const struct stoker_pack_progress *progress)
{
    double seconds = seconds_of(progress), share = -1;
    uint64_t fresh = progress->samples_done - progress->samples_resumed;
    uint64_t left = progress->samples - progress->samples_done - progress->samples_left_out;
    char line[200], count[TERM_NUMBER_BYTES], rate[TERM_NUMBER_BYTES],
        time[TERM_NUMBER_BYTES] = "?", bad[40] = "";

    if (!term_is_live()) {
        return;
    }
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
                 progress->phase == STOKER_PACK_LISTING ? "looking at the source"
                                                        : "writing index and manifest");
    }
    term_live(share, line);
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
    char samples[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES], kept[TERM_NUMBER_BYTES];
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
    if (progress->samples_left_out > 0) {
        printf("left out   %s damaged samples\n", term_count(number, progress->samples_left_out));
    }
    if (progress->samples_resumed > 0) {
        printf("kept       %s samples of an earlier run\n",
               term_count(kept, progress->samples_resumed));
    }
    if (progress->resized + progress->copied > 0) {
        printf("resized    %s JPEGs", term_count(number, progress->resized));
        printf(", %s copied as they were\n", term_count(number, progress->copied));
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
