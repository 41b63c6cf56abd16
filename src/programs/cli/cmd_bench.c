/* stoker bench data: streams a data set as training does and reports where the time goes. */
#include "programs/cli/args.h"

#include "programs/cli/bad_samples_report.h"
#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"
#include "programs/cli/token_report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define TICK_MS 50 /* longest wait in next(): bounds the answer to Ctrl-C */
#define LIVE_NS 100000000ull
#define SECONDS_DEFAULT 10.0
#define FIELDS_MAX 64
#define MEMBERS_MAX FIELDS_MAX
#define NAMES_BYTES 4096 /* the text of --fields */
#define BAR_CELLS 32

/* Result of one run. */
struct measure {
    struct stoker_stats stats;
    struct stoker_engine_info engine;
    struct stoker_cache_stats cache; /* struct_size 0: no cache */
    struct stoker_dataset_info dataset;
    uint64_t index_ns, first_ns, run_ns; /* first: from the start of index */
    uint64_t cpu_ns, batches, samples, epochs;
    uint64_t batch_bytes; /* of one delivered batch */
    uint64_t process_bytes_peak;
    bool interrupted;
};

struct bench {
    const struct args *args;
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
    struct stoker_loader *loader;
    struct stoker_field_options fields[FIELDS_MAX];
    size_t field_count;
    struct stoker_transform transforms[3];
    size_t transform_count;
    char names[NAMES_BYTES]; /* fields point into it */
    uint64_t start_ns, loop_ns, cpu_start_ns, live_ns;
    struct measure measure;
};

/* One line of the table of thread time. */
struct share {
    const char *name, *meaning;
    double value;
};
#define SHARES 6

static int run(struct args *args);
static int measure_run(struct bench *bench);
static int loader_open(struct bench *bench);
static int stream(struct bench *bench);
static bool finished(const struct bench *bench, uint64_t now_ns);
static void batch_count(struct bench *bench, struct stoker_batch *batch);
static void live_draw(struct bench *bench, uint64_t now_ns);
static int fields_choose(struct bench *bench);
static int fields_raw(struct bench *bench, const struct stoker_member_info *members,
                      size_t member_count);
static void transforms_set(struct bench *bench, uint64_t dtype);
static int cache_drop(const struct args *args);
static void file_drop(const char *path);
static void shares_fill(const struct measure *measure, struct share shares[SHARES]);
static void report(const struct bench *bench);
static void report_json(const struct bench *bench);
static uint64_t cpu_ns(void);
static uint64_t process_bytes_peak(void);
static double ratio(double part, double total);

const struct command command_bench = {
    .name = "bench",
    .bit = COMMAND_BENCH,
    .usage = "data [options] PATH...",
    .summary = "Measure the speed of a loader ('bench store': of an object store)",
    .more = "Images are transformed as in training: RandomResizedCrop(--image), flip with 0.5,\n"
            "normalised unless --dtype uint8; with labels if the data has them. Ctrl-C ends the\n"
            "run and prints the result so far. --on-error skip replaces damaged samples and\n"
            "lists them at the end; the exit status is 1 if there are any.\n",
    .run = run,
};

static int run(struct args *args)
{
    static struct bench bench; /* 8 kB: too much for a small stack */
    int status;

    if (args->path_count == 0 || strcmp(args->paths[0], "data") != 0) {
        return term_usage("bench", "say what to measure", args->path_count ? args->paths[0] : NULL,
                          "it is 'stoker bench data PATH' or 'stoker bench store URL'");
    }
    args->paths++;
    args->path_count--;
    if (args->path_count == 0) {
        return term_usage("bench", "no path given", NULL, "usage: stoker bench data PATH...");
    }
    if (args->fields && !args->raw) {
        return term_usage("bench", "--fields needs --raw", args->fields,
                          "--raw reads the bytes of members");
    }
    if (token_report_matches(args)) {
        return token_report_bench(args);
    }
    bench.args = args;
    status = args->cold ? cache_drop(args) : EXIT_FINE;
    if (status == EXIT_FINE) {
        status = measure_run(&bench);
    }
    term_live_end();
    stoker_loader_close(bench.loader);
    stoker_dataset_close(bench.dataset);
    stoker_engine_close(bench.engine);
    if (bench.measure.interrupted) {
        status = EXIT_SIGNAL + main_signal();
    }
    return status;
}

static int measure_run(struct bench *bench)
{
    struct measure *measure = &bench->measure;
    int status;

    bench->cpu_start_ns = cpu_ns();
    bench->start_ns = term_clock_ns();
    status = command_open_dataset(bench->args, &bench->engine, &bench->dataset);
    if (status != EXIT_FINE) {
        return status;
    }
    measure->index_ns = term_clock_ns() - bench->start_ns;
    measure->dataset.struct_size = sizeof measure->dataset;
    stoker_dataset_info(bench->dataset, &measure->dataset);
    status = loader_open(bench);
    if (status != EXIT_FINE) {
        return status;
    }
    bench->loop_ns = term_clock_ns();
    main_defer_signals(true);
    status = stream(bench);
    main_defer_signals(false);
    measure->run_ns = term_clock_ns() - bench->loop_ns;
    measure->cpu_ns = cpu_ns() - bench->cpu_start_ns;
    measure->process_bytes_peak = process_bytes_peak();
    measure->stats.struct_size = sizeof measure->stats;
    measure->engine.struct_size = sizeof measure->engine;
    stoker_loader_stats(bench->loader, &measure->stats);
    stoker_engine_info(bench->engine, &measure->engine);
    if (stoker_engine_cache(bench->engine)) {
        measure->cache.struct_size = sizeof measure->cache;
        stoker_cache_stats(stoker_engine_cache(bench->engine), &measure->cache);
    }
    term_live_end();
    if (measure->batches || status == EXIT_FINE) {
        if (bench->args->json) {
            report_json(bench);
        } else {
            report(bench);
        }
    }
    return status == EXIT_FINE && measure->stats.bad_samples ? EXIT_FINDINGS : status;
}

static int loader_open(struct bench *bench)
{
    const struct args *args = bench->args;
    struct stoker_error error = {0};
    int status = fields_choose(bench);

    if (status != EXIT_FINE) {
        return status;
    }
    struct stoker_loader_options options = {
        .struct_size = sizeof options,
        .fields = bench->fields,
        .field_count = bench->field_count,
        .batch_size = (uint32_t)(args->batch ? args->batch : 256),
        .shuffle = (uint32_t)args->shuffle,
        .tail = STOKER_TAIL_KEEP, /* a small data set has a batch, too */
        .window_blocks = (uint32_t)args->window_blocks,
        .group_count = (uint32_t)args->home_groups,
        .seed = args->seed,
        .on_error = (uint32_t)args->on_error,
        .quarantine = args->quarantine,
        .bad_samples_max = args->bad_samples_max,
        .bad_share_max = args->bad_share_max,
    };
    status = stoker_loader_open(&bench->loader, bench->dataset, &options, &error);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

static int stream(struct bench *bench)
{
    struct measure *measure = &bench->measure;

    for (uint64_t now = term_clock_ns(); !finished(bench, now); now = term_clock_ns()) {
        struct stoker_batch *batch = NULL;
        struct stoker_error error = {0};
        int status = stoker_loader_next(bench->loader, TICK_MS, &batch, &error);
        if (status == 1) {
            batch_count(bench, batch);
        } else if (status == 0) {
            measure->epochs++;
        } else if (status != STOKER_ERROR_AGAIN) {
            return term_error(status, &error);
        }
        if (main_signal()) {
            measure->interrupted = true;
            break;
        }
        live_draw(bench, now);
    }
    return EXIT_FINE;
}

static bool finished(const struct bench *bench, uint64_t now_ns)
{
    const struct args *args = bench->args;
    double seconds = args->seconds;

    if (seconds == 0 && args->epochs == 0) {
        seconds = SECONDS_DEFAULT;
    }
    return (args->epochs && bench->measure.epochs >= args->epochs) ||
           (seconds > 0 && (double)(now_ns - bench->loop_ns) >= seconds * 1e9);
}

static void batch_count(struct bench *bench, struct stoker_batch *batch)
{
    struct measure *measure = &bench->measure;

    if (measure->batches == 0) {
        measure->first_ns = term_clock_ns() - bench->start_ns;
        for (size_t f = 0; f < bench->field_count; f++) {
            struct stoker_array array = {0};
            if (stoker_batch_array(batch, f, &array) == 0 && array.dtype != STOKER_BYTES) {
                uint64_t item = array.dtype == STOKER_INT64 ? 8 : args_dtype_bytes(array.dtype);
                measure->batch_bytes += (uint64_t)(array.shape[0] * array.strides[0]) * item;
            }
        }
    }
    measure->batches++;
    measure->samples += stoker_batch_samples(batch);
    stoker_batch_close(batch);
}

static void live_draw(struct bench *bench, uint64_t now_ns)
{
    const struct args *args = bench->args;
    struct stoker_stats stats = {.struct_size = sizeof stats};
    char line[200], samples[TERM_NUMBER_BYTES];
    double passed = (double)(now_ns - bench->loop_ns) / 1e9, share = 0;

    if (!term_is_live() || now_ns - bench->live_ns < LIVE_NS) {
        return;
    }
    bench->live_ns = now_ns;
    stoker_loader_stats(bench->loader, &stats);
    if (args->epochs) {
        share = ratio((double)bench->measure.samples,
                      (double)args->epochs * (double)bench->measure.dataset.sample_count);
    }
    double limit = args->seconds > 0 ? args->seconds : args->epochs ? 0 : SECONDS_DEFAULT;
    if (limit > 0 && passed / limit > share) {
        share = passed / limit;
    }
    snprintf(line, sizeof line, "%s samples  %.0f/s  %.1f MB/s  epoch %llu  %.1f s",
             term_count(samples, bench->measure.samples),
             ratio((double)bench->measure.samples, passed),
             ratio((double)stats.bytes / 1e6, passed), (unsigned long long)bench->measure.epochs,
             passed);
    term_live(share, line);
}

/* Fields: images and, if the data has them, labels; or the bytes of members. */
static int fields_choose(struct bench *bench)
{
    static struct stoker_member_info members[MEMBERS_MAX];
    const struct args *args = bench->args;
    struct stoker_error error = {0};
    size_t count = MEMBERS_MAX;
    char key[2];
    bool labelled = strcmp(bench->measure.dataset.kind, "imagefolder") == 0 &&
                    bench->measure.dataset.class_count > 0;

    if (bench->measure.dataset.sample_count == 0) {
        term_fail_name("the data set has no samples", 0, args->paths[0],
                       "'stoker ls' lists the data set");
        return EXIT_FINDINGS;
    }
    int status = stoker_dataset_sample(bench->dataset, 0, key, sizeof key, members, &count, &error);
    if (status < 0 && status != STOKER_ERROR_LIMIT) {
        return term_error(status, &error);
    }
    count = count < MEMBERS_MAX ? count : MEMBERS_MAX;
    if (args->raw) {
        return fields_raw(bench, members, count);
    }
    for (size_t m = 0; m < count; m++) {
        labelled = labelled || strcmp(members[m].extension, "cls") == 0;
    }
    uint64_t dtype = args->dtype ? args->dtype : STOKER_FLOAT32;
    transforms_set(bench, dtype);
    bench->fields[0] = (struct stoker_field_options){
        .name = "image",
        .kind = STOKER_FIELD_IMAGE,
        .transforms = bench->transforms,
        .transform_count = bench->transform_count,
        .dtype = (uint32_t)dtype,
        .layout = (uint32_t)args->layout,
    };
    bench->fields[1] = (struct stoker_field_options){.name = "label", .kind = STOKER_FIELD_LABEL};
    bench->field_count = labelled ? 2 : 1;
    return EXIT_FINE;
}

/* Fields of bytes: one for each name of --fields, or for each member of the first sample. */
static int fields_raw(struct bench *bench, const struct stoker_member_info *members,
                      size_t member_count)
{
    size_t used = 0;

    if (!bench->args->fields && strcmp(bench->measure.dataset.kind, "imagefolder") == 0) {
        bench->fields[bench->field_count++] = /* one file a sample, whatever its extension */
            (struct stoker_field_options){.name = "file", .kind = STOKER_FIELD_BYTES};
        return EXIT_FINE;
    }
    if (bench->args->fields) {
        snprintf(bench->names, sizeof bench->names, "%s", bench->args->fields);
        for (char *rest = bench->names, *name; (name = strsep(&rest, ",")) != NULL;) {
            if (name[0] == 0 || bench->field_count == FIELDS_MAX) {
                return term_usage("bench", "not a list of members", bench->args->fields,
                                  "write it like --fields jpg,cls");
            }
            bench->fields[bench->field_count++] = (struct stoker_field_options){
                .name = name, .kind = STOKER_FIELD_BYTES, .extensions = name};
        }
        return EXIT_FINE;
    }
    for (size_t m = 0; m < member_count; m++) {
        char *name = bench->names + used;
        int bytes = snprintf(name, sizeof bench->names - used, "%s", members[m].extension);
        if ((size_t)bytes >= sizeof bench->names - used) {
            break; /* names too long: use the first ones */
        }
        used += (size_t)bytes + 1;
        bench->fields[bench->field_count++] = (struct stoker_field_options){
            .name = name, .kind = STOKER_FIELD_BYTES, .extensions = name};
    }
    return EXIT_FINE;
}

static void transforms_set(struct bench *bench, uint64_t dtype)
{
    uint32_t pixels = (uint32_t)(bench->args->image ? bench->args->image : 224);

    bench->transforms[0] = (struct stoker_transform){
        .kind = STOKER_RANDOM_RESIZED_CROP,
        .height = pixels,
        .width = pixels,
        .filter = STOKER_BILINEAR,
        .scale = {0.08, 1.0},
        .ratio = {3.0 / 4.0, 4.0 / 3.0},
    };
    bench->transforms[1] = (struct stoker_transform){
        .kind = STOKER_RANDOM_HORIZONTAL_FLIP,
        .probability = 0.5,
    };
    bench->transforms[2] = (struct stoker_transform){
        .kind = STOKER_NORMALIZE, /* means and deviations of ImageNet, as in torchvision */
        .mean = {0.485f, 0.456f, 0.406f},
        .std = {0.229f, 0.224f, 0.225f},
    };
    bench->transform_count = dtype == STOKER_UINT8 ? 2 : 3;
}

/* Opens the data set once, untimed, to find its files, and requests the kernel to drop their pages.
 */
static int cache_drop(const struct args *args)
{
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    const char *last = NULL;
    int status = command_open_dataset(args, &engine, &dataset);

    if (status != EXIT_FINE) {
        return status;
    }
    stoker_dataset_info(dataset, &info);
    for (uint64_t i = 0; i < info.sample_count; i++) {
        struct stoker_member_info member = {0};
        size_t count = 1;
        char key[2];
        stoker_dataset_sample(dataset, i, key, sizeof key, &member, &count, NULL);
        if (member.shard && (!last || strcmp(last, member.shard) != 0)) {
            file_drop(member.shard);
            last = member.shard;
        }
    }
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return EXIT_FINE;
}

/* A hint: dirty pages and pages that others map stay. */
static void file_drop(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (file) {
        posix_fadvise(fileno(file), 0, 0, POSIX_FADV_DONTNEED);
        fclose(file);
    }
}

/* Shares of the time of the decode threads. */
static void shares_fill(const struct measure *measure, struct share shares[SHARES])
{
    const struct stoker_stats *stats = &measure->stats;
    double total = (double)stats->run_ns * (stats->threads ? stats->threads : 1);
    double known =
        (double)(stats->read_ns + stats->decode_ns + stats->idle_ns + stats->lock_wait_ns);

    if (known > total) {
        total = known; /* threads that started before the first next() */
    }
    shares[0] = (struct share){"decode", "bytes to pixels", ratio((double)stats->decode_ns, total)};
    shares[1] = (struct share){"read", "files to bytes", ratio((double)stats->read_ns, total)};
    shares[2] = (struct share){"ahead", "ahead of the consumer: enough batches are ready",
                               ratio((double)stats->ahead_ns, total)};
    shares[3] = (struct share){"storage", "waiting for storage: disk, network or store",
                               ratio((double)stats->storage_wait_ns, total)};
    shares[4] =
        (struct share){"lock", "waiting for each other", ratio((double)stats->lock_wait_ns, total)};
    shares[5] = (struct share){"other", "the rest", ratio(total - known, total)};
}

static int bad_at(void *loader, uint64_t index, struct stoker_quarantine_entry *entry)
{
    return stoker_loader_quarantine(loader, index, entry);
}

static struct bad_samples_list bad_list(const struct bench *bench)
{
    return (struct bad_samples_list){.count = stoker_loader_quarantine_count(bench->loader),
                                     .total = bench->measure.stats.bad_samples,
                                     .at = bad_at,
                                     .from = bench->loader};
}

/* Prints which decoder decoded the JPEGs, and why libjpeg-turbo did. */
/* An estimate: dollars of the requests that the cache served, as "get" of the prices of the Python
 * package, which a test compares. */
static double dollars_saved(const struct bench *bench)
{
    static const struct {
        const char *scheme;
        double get;
    } stores[] = {{"s3://", 4e-7}, {"gs://", 4e-7}, {"az://", 5e-7}};
    const char *path = bench->args->path_count ? bench->args->paths[0] : "";
    double get = 0;

    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++) {
        get = strncmp(path, stores[i].scheme, strlen(stores[i].scheme)) == 0 ? stores[i].get : get;
    }
    return get * (double)bench->measure.cache.hits;
}

static double hit_ratio(const struct stoker_cache_stats *cache)
{
    return ratio((double)cache->hits, (double)(cache->hits + cache->misses));
}

static void report_cache(const struct bench *bench)
{
    const struct stoker_cache_stats *cache = &bench->measure.cache;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    if (cache->struct_size > 0) {
        printf("  node cache       %.1f %% of the reads, %s from it, %s from the store, $%.4f "
               "saved\n",
               100 * hit_ratio(cache), term_bytes(a, cache->bytes_from_cache),
               term_bytes(b, cache->bytes_from_origin), dollars_saved(bench));
    }
}

static void json_cache(const struct bench *bench)
{
    const struct stoker_cache_stats *cache = &bench->measure.cache;

    if (cache->struct_size > 0) {
        json_open("cache", '{');
        json_double("hit_ratio", hit_ratio(cache));
        json_u64("hits", cache->hits);
        json_u64("misses", cache->misses);
        json_u64("bytes_from_cache", cache->bytes_from_cache);
        json_u64("bytes_from_origin", cache->bytes_from_origin);
        json_u64("blocks_evicted", cache->blocks_evicted);
        json_double("dollars_saved", dollars_saved(bench));
        json_close('}');
    }
}

static void report_jpegs(const struct stoker_stats *stats)
{
    char text[TERM_NUMBER_BYTES];
    const char *reason;

    if (stats->jpegs[0] > 0) {
        printf("  jpegs            %s by stoker's decoder", term_count(text, stats->jpegs[0]));
        printf(", %s of them from entry points\n", term_count(text, stats->jpegs_indexed));
    }
    for (uint32_t i = 1; (reason = stoker_jpeg_reason(i)) != NULL; i++) {
        if (stats->jpegs[i] > 0) {
            printf("  jpegs            %s by libjpeg-turbo: %s\n",
                   term_count(text, stats->jpegs[i]), reason);
        }
    }
}

static void report_pngs(const struct stoker_stats *stats)
{
    char text[TERM_NUMBER_BYTES];

    if (stats->pngs[0] > 0) {
        printf("  pngs             %s by stoker's reader\n", term_count(text, stats->pngs[0]));
    }
    if (stats->pngs[1] > 0) {
        printf("  pngs             %s by libpng\n", term_count(text, stats->pngs[1]));
    }
}

static void report(const struct bench *bench)
{
    struct bad_samples_list bad = bad_list(bench);
    const struct measure *measure = &bench->measure;
    const double seconds = (double)measure->run_ns / 1e9;
    struct share shares[SHARES];
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    printf("%s, %s samples%s\n", measure->dataset.kind,
           term_count(a, measure->dataset.sample_count),
           measure->interrupted ? "; interrupted, the result so far" : "");
    printf("  samples/s        %.0f\n", ratio((double)measure->samples, seconds));
    printf("  MB/s             %.1f\n", ratio((double)measure->stats.bytes / 1e6, seconds));
    printf("  CPU ms a sample  %.3f\n",
           ratio((double)measure->cpu_ns / 1e6, (double)measure->samples));
    printf("  first batch      %s%s",
           measure->batches ? term_time(a, (double)measure->first_ns / 1e9) : "not in this time",
           measure->batches ? " after the start" : "");
    printf(", index in %s\n", term_time(b, (double)measure->index_ns / 1e9));
    printf("  memory peak      %s of the process (VmHWM)",
           term_bytes(a, measure->process_bytes_peak));
    printf(", %s of the budget\n", term_bytes(b, measure->stats.memory_bytes_peak));
    if (measure->batch_bytes) {
        printf("  one batch        %s, %u ahead\n", term_bytes(a, measure->batch_bytes),
               measure->stats.batches_ahead);
    }
    printf("  in all           %s samples", term_count(a, measure->samples));
    printf(", %s batches, %.1f s", term_count(b, measure->batches), seconds);
    if (measure->stats.substituted) {
        printf(", %s replaced", term_count(a, measure->stats.substituted));
    }
    printf("\n  reads            %s warm", term_count(a, measure->stats.warm_reads));
    printf(", %s cold by %s\n", term_count(b, measure->stats.cold_reads),
           measure->engine.io_backend);
    report_cache(bench);
    report_jpegs(&measure->stats);
    report_pngs(&measure->stats);
    printf("\nwhere the time of %u thread%s went\n", measure->stats.threads,
           measure->stats.threads == 1 ? "" : "s");
    shares_fill(measure, shares);
    for (size_t i = 0; i < SHARES; i++) {
        printf("  %-7s %5.1f %%  ", shares[i].name, 100 * shares[i].value);
        term_bar(shares[i].value, BAR_CELLS);
        printf("  %s\n", shares[i].meaning);
    }
    printf("the loop waited %.1f %% of its time for data (it does nothing else here)\n",
           100 * ratio((double)measure->stats.wait_ns, (double)measure->stats.run_ns));
    bad_samples_report(&bad);
}

static void report_json(const struct bench *bench)
{
    struct bad_samples_list bad = bad_list(bench);
    const struct measure *measure = &bench->measure;
    const struct stoker_stats *stats = &measure->stats;
    const double seconds = (double)measure->run_ns / 1e9;
    struct share shares[SHARES];

    json_open(NULL, '{');
    json_str("kind", measure->dataset.kind);
    json_bool("interrupted", measure->interrupted);
    json_u64("samples", measure->samples);
    json_u64("batches", measure->batches);
    json_u64("epochs", measure->epochs);
    json_double("seconds", seconds);
    json_double("samples_per_second", ratio((double)measure->samples, seconds));
    json_double("bytes_per_second", ratio((double)stats->bytes, seconds));
    json_double("cpu_ms_per_sample",
                ratio((double)measure->cpu_ns / 1e6, (double)measure->samples));
    json_double("first_batch_seconds", (double)measure->first_ns / 1e9);
    json_double("index_seconds", (double)measure->index_ns / 1e9);
    json_u64("process_bytes_peak", measure->process_bytes_peak);
    json_u64("budget_bytes_peak", stats->memory_bytes_peak);
    json_u64("batch_bytes", measure->batch_bytes);
    json_u64("batches_ahead", stats->batches_ahead);
    json_u64("threads", stats->threads);
    json_u64("substituted", stats->substituted);
    json_u64("retries", stats->retries);
    json_u64("bad_samples", stats->bad_samples);
    json_open("jpegs", '{');
    for (uint32_t i = 0; i == 0 || stoker_jpeg_reason(i); i++) {
        if (stats->jpegs[i] > 0) {
            json_u64(i == 0 ? "stoker" : stoker_jpeg_reason(i), stats->jpegs[i]);
        }
    }
    json_close('}');
    json_u64("jpegs_marked", stats->jpegs_indexed);
    json_open("pngs", '{');
    json_u64("stoker", stats->pngs[0]);
    json_u64("libpng", stats->pngs[1]);
    json_close('}');
    json_u64("warm_reads", stats->warm_reads);
    json_u64("cold_reads", stats->cold_reads);
    json_u64("io_requests", stats->io_requests);
    json_u64("io_bytes", stats->io_bytes);
    json_str("io_backend", measure->engine.io_backend);
    json_str("vector", measure->engine.simd);
    json_open("shares", '{');
    shares_fill(measure, shares);
    for (size_t i = 0; i < SHARES; i++) {
        json_double(shares[i].name, shares[i].value);
    }
    json_double("idle", shares[2].value + shares[3].value);
    json_double("wait", ratio((double)stats->wait_ns, (double)stats->run_ns));
    json_close('}');
    json_cache(bench);
    bad_samples_json(&bad);
    json_close('}');
}

/* CPU time of the process: all threads, user and system. */
static uint64_t cpu_ns(void)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000u +
           ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000u;
}

/* VmHWM of /proc/self/status (proc(5)), in kB there; 0: unknown. */
static uint64_t process_bytes_peak(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    uint64_t kilobytes = 0;

    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmHWM:", 6) == 0) {
            kilobytes = strtoull(line + 6, NULL, 10);
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kilobytes * 1024;
}

static double ratio(double part, double total)
{
    return total > 0 ? part / total : 0;
}
