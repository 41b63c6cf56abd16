/* stoker bench store: measures the speed of range reads, by size and concurrency. */
#include "programs/cli/args.h"

#include "programs/cli/bench_store.h"
#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define OBJECTS_MAX 256u
#define WALK_MAX 10000u
#define ROUND_MAX 4096u    /* ranges of one call */
#define ROUND_SECONDS 0.25 /* about: between looks at the clock and at Ctrl-C */
#define BUFFERS_BYTES (128u << 20)
#define SECONDS_DEFAULT 20.0
#define BYTES_DEFAULT (4ull << 30)
#define LARGE_BYTES (64ull << 20) /* what --write writes: one of these, and small ones */
#define SMALL_BYTES (64u << 10)
#define SMALL_COUNT 64u
#define WAIT_MS 1000
#define NAME_BYTES 4200

struct bench {
    const struct args *args;
    struct stoker_engine *engine;
    struct bench_sweep sweep;
    struct stoker_file *files[OBJECTS_MAX];
    uint64_t bytes[OBJECTS_MAX];
    uint32_t file_count;
    uint64_t random, left; /* left: bytes that may be read */
    uint64_t begin_ns;
    struct stoker_range *ranges; /* ROUND_MAX */
    uint8_t *buffers;            /* BUFFERS_BYTES */
    double *first, *all;         /* of the cell, `count` each */
    size_t count, capacity;
    struct stoker_error failure; /* the first */
    char source[NAME_BYTES];     /* the URL, or the uploaded objects below it */
    char folder[NAME_BYTES / 2]; /* local, for uploads; empty: none */
};

static int run(struct args *args);

const struct command command_bench_store = {
    .name = "bench",
    .bit = COMMAND_BENCH_STORE,
    .usage = "store [options] URL",
    .summary = "Measure range reads of an object store, by size and concurrency",
    .more = "URL is an object, or a prefix with objects. Nothing is written to it without\n"
            "--write, which puts some 70 MB below URL/stoker-bench-..., reads those, and\n"
            "removes them, after Ctrl-C too. Reading ends after --seconds or --bytes, whichever\n"
            "comes first.\n",
    .run = run,
};

static double cpu_now(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static uint64_t draw(struct bench *bench)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return bench->random;
}

/* Parses "64K,1M": increasing numbers. */
static int parse_list(const char *text, const char *option, uint64_t high, uint64_t *list,
                      uint32_t *count)
{
    char copy[256], *rest = copy, *word;

    *count = 0;
    if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy) {
        return term_usage("bench", "the list is too long", option, "use at most 12 numbers");
    }
    while ((word = strsep(&rest, ",")) != NULL) {
        uint64_t value;

        if (*count == BENCH_LIST_MAX || !args_size(word, &value) || value < 1 || value > high ||
            (*count > 0 && value <= list[*count - 1])) {
            return term_usage("bench", "not a list of increasing numbers", text, option);
        }
        list[(*count)++] = value;
    }
    return EXIT_FINE;
}

static int resolve(struct bench *bench)
{
    const struct args *args = bench->args;
    struct bench_sweep *sweep = &bench->sweep;
    int status;

    sweep->url = args->paths[1];
    snprintf(bench->source, sizeof bench->source, "%s", sweep->url);
    if (strlen(sweep->url) >= 4000 || !strstr(sweep->url, "://")) {
        return term_usage("bench", "not a URL of a store", sweep->url,
                          "write it like s3://bucket/prefix");
    }
    bench->left = args->bytes_max ? args->bytes_max : BYTES_DEFAULT;
    bench->random = (args->seed + 1) * 0x9e3779b97f4a7c15ull;
    status = parse_list(args->sizes ? args->sizes : "64K,1M,8M", "--sizes 64K,1M,8M (up to 1G)",
                        1u << 30, sweep->sizes, &sweep->size_count);
    return status != EXIT_FINE ? status
                               : parse_list(args->concurrency ? args->concurrency : "1,8,32,64",
                                            "--concurrency 1,8,32,64 (up to 1024)", 1024,
                                            sweep->at_once, &sweep->at_once_count);
}

/* ---- writing ---- */

static int make_file(const char *path, uint64_t bytes, struct bench *bench)
{
    FILE *out = fopen(path, "w");

    for (uint64_t i = 0; out && i < bytes; i += 8) {
        uint64_t word = draw(bench);

        fwrite(&word, 1, bytes - i < 8 ? bytes - i : 8, out);
    }
    if (!out || fclose(out) != 0) {
        return term_fail_name("cannot write a file for the upload", errno, path,
                              "set TMPDIR to a folder with free space");
    }
    return EXIT_FINE;
}

/* Waits for the end of a copy; some copies also end at a signal. */
static int copy_to_end(struct bench *bench, const struct stoker_copy_options *options,
                       bool stoppable)
{
    struct stoker_error error = {0};
    struct stoker_copy *copy = NULL;
    int status = stoker_copy_open(&copy, bench->engine, options, &error);

    while (status >= 0) {
        status = stoker_copy_next(copy, 100, NULL, &error);
        if (status == 0 || (stoppable && main_signal())) {
            break;
        }
    }
    stoker_copy_close(copy);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

static int put(struct bench *bench, const char *folder, uint64_t size, uint64_t objects)
{
    struct bench_put *row = &bench->sweep.puts[bench->sweep.put_count];
    struct stoker_copy_options options = {.struct_size = sizeof options,
                                          .kind = STOKER_COPY,
                                          .sources = &folder,
                                          .source_count = 1,
                                          .destination = bench->source,
                                          .recursive = 1};
    double cpu = cpu_now();
    uint64_t begin = term_clock_ns();
    int status = copy_to_end(bench, &options, true);

    *row = (struct bench_put){size, objects, term_seconds_since(begin), cpu_now() - cpu};
    bench->sweep.put_count += status == EXIT_FINE && !main_signal();
    return status;
}

static int write_objects(struct bench *bench)
{
    char path[NAME_BYTES], folder[NAME_BYTES];
    const char *home = getenv("TMPDIR");
    size_t used = strlen(bench->source);
    int status;

    while (used > 0 && bench->source[used - 1] == '/') {
        used--;
    }
    snprintf(bench->source + used, sizeof bench->source - used, "/stoker-bench-%llx%llx",
             (unsigned long long)time(NULL), (unsigned long long)term_clock_ns() & 0xffffff);
    errno = ENAMETOOLONG;
    if ((size_t)snprintf(bench->folder, sizeof bench->folder, "%s/stoker-bench-XXXXXX",
                         home ? home : "/tmp") >= sizeof bench->folder ||
        !mkdtemp(bench->folder)) {
        bench->folder[0] = 0;
        return term_fail_name("cannot create a folder", errno, home ? home : "/tmp",
                              "set TMPDIR to a folder with free space");
    }
    snprintf(path, sizeof path, "%s/large", bench->folder);
    status = make_file(path, LARGE_BYTES, bench);
    status = status != EXIT_FINE ? status : put(bench, bench->folder, LARGE_BYTES, 1);
    unlink(path);
    snprintf(folder, sizeof folder, "%s/", bench->folder);
    for (uint32_t i = 0; status == EXIT_FINE && i < SMALL_COUNT; i++) {
        snprintf(path, sizeof path, "%s/%u", bench->folder, i);
        status = make_file(path, SMALL_BYTES, bench);
    }
    return status != EXIT_FINE || main_signal() ? status
                                                : put(bench, folder, SMALL_BYTES, SMALL_COUNT);
}

/* Removes local files, uploaded objects, and unfinished uploads. */
static void clean(struct bench *bench)
{
    const char *source = bench->source;
    struct stoker_copy_options options = {.struct_size = sizeof options,
                                          .kind = STOKER_REMOVE,
                                          .sources = &source,
                                          .source_count = 1,
                                          .recursive = 1};
    char path[NAME_BYTES];

    if (!bench->folder[0]) {
        return;
    }
    for (uint32_t i = 0; i <= SMALL_COUNT; i++) {
        snprintf(path, sizeof path, i < SMALL_COUNT ? "%s/%u" : "%s/large", bench->folder, i);
        unlink(path);
    }
    rmdir(bench->folder);
    if (bench->sweep.put_count > 0) {
        (void)copy_to_end(bench, &options, false);
    }
    if (bench->sweep.put_count < 2) { /* interrupted: there may be objects or unfinished uploads */
        struct stoker_file_info info = {.struct_size = sizeof info};
        struct timespec second = {.tv_sec = 1, .tv_nsec = 200000000};

        if (bench->sweep.put_count == 0 && stoker_stat(bench->engine, source, &info, NULL) == 0) {
            (void)copy_to_end(bench, &options, false);
        }
        options.unfinished_uploads = 1;
        options.unfinished_age_s = 1;
        nanosleep(&second, NULL);
        (void)copy_to_end(bench, &options, false);
    }
}

/* ---- objects to read ---- */

/* Lists objects at and below a URL. */
static int add_objects(struct bench *bench, const char *source, char names[][NAME_BYTES],
                       uint32_t *count_out)
{
    static struct stoker_file_info info;
    struct stoker_walk *walk = NULL;
    struct stoker_error error = {0};
    uint32_t count = *count_out;
    int status = stoker_walk_open(&walk, bench->engine, source, 1, &error);

    for (uint32_t seen = 0; (status >= 0 || status == STOKER_ERROR_AGAIN) && count < OBJECTS_MAX &&
                            seen < WALK_MAX && !main_signal();) {
        info.struct_size = sizeof info;
        status = stoker_walk_next(walk, WAIT_MS, &info, &error);
        if (status == 0) {
            break;
        }
        seen += status == 1;
        if (status == 1 && info.kind == STOKER_FILE && info.bytes > 0) {
            size_t used = strlen(source);
            bool slash = used > 0 && source[used - 1] == '/';

            count += (size_t)snprintf(names[count], NAME_BYTES, "%s%s%s", source,
                                      slash || !info.name[0] ? "" : "/", info.name) < NAME_BYTES;
        }
    }
    stoker_walk_close(walk);
    *count_out = count;
    return status < 0 && status != STOKER_ERROR_AGAIN ? term_error(status, &error) : EXIT_FINE;
}

static int find_objects(struct bench *bench)
{
    static struct stoker_file_info info;
    static char names[OBJECTS_MAX][NAME_BYTES];
    const char *borrowed[OBJECTS_MAX], *source = bench->source;
    struct stoker_error error = {0};
    struct path_args expanded;
    uint32_t count = 0;
    int status = path_args_expand(&expanded, bench->engine, &source, 1, false);

    for (size_t i = 0; i < expanded.count && status == EXIT_FINE && count < OBJECTS_MAX; i++) {
        status = add_objects(bench, expanded.paths[i], names, &count);
    }
    if (status != EXIT_FINE) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        borrowed[i] = names[i];
    }
    stoker_files_prefetch_metadata(bench->engine, borrowed, count);
    for (uint32_t i = 0; i < count; i++) {
        info.struct_size = sizeof info;
        status = stoker_file_open(&bench->files[i], bench->engine, borrowed[i], &info, &error);
        if (status < 0) {
            return term_error(status, &error);
        }
        bench->bytes[bench->file_count++] = info.bytes;
        bench->sweep.object_bytes += info.bytes;
    }
    bench->sweep.objects = count;
    if (count == 0 && !main_signal()) {
        term_fail_name("all objects are empty, or there are none", 0, bench->source,
                       "name another prefix, or add --write, which uploads objects to measure");
        return EXIT_FINDINGS;
    }
    return EXIT_FINE;
}

/* Draws ranges of one size at random offsets of the objects that are large enough. */
static uint32_t fill_round(struct bench *bench, const struct bench_cell *cell, uint32_t count)
{
    uint64_t slots = BUFFERS_BYTES / cell->size;
    uint32_t large = 0, chosen[OBJECTS_MAX];

    for (uint32_t i = 0; i < bench->file_count; i++) {
        if (bench->bytes[i] >= cell->size) {
            chosen[large++] = i;
        }
    }
    for (uint32_t i = 0; i < count && large > 0; i++) {
        uint32_t file = chosen[draw(bench) % large];

        bench->ranges[i] = (struct stoker_range){
            .file = bench->files[file],
            .offset = draw(bench) % (bench->bytes[file] - cell->size + 1),
            .bytes = (size_t)cell->size,
            .buffer = bench->buffers + (slots > 1 ? i % slots * cell->size : 0)};
    }
    return large > 0 ? count : 0;
}

static bool note(struct bench *bench, const struct stoker_range *range)
{
    if (bench->count == bench->capacity) {
        size_t more = bench->capacity ? bench->capacity * 2 : 4096;
        double *first = realloc(bench->first, more * sizeof *first);
        double *all = realloc(bench->all, more * sizeof *all);

        bench->first = first ? first : bench->first;
        bench->all = all ? all : bench->all;
        if (!first || !all) {
            return false;
        }
        bench->capacity = more;
    }
    bench->first[bench->count] = (double)range->first_byte_ns / 1e9;
    bench->all[bench->count++] = (double)range->complete_ns / 1e9;
    return true;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void percentiles(double *values, size_t count, double out[3])
{
    static const double shares[3] = {0.5, 0.9, 0.99};

    if (count == 0) {
        return;
    }
    qsort(values, count, sizeof *values, compare);
    for (int i = 0; i < 3; i++) {
        out[i] = values[(size_t)(shares[i] * (double)(count - 1) + 0.5)];
    }
}

static int run_round(struct bench *bench, struct bench_cell *cell, uint32_t count)
{
    struct stoker_ranges_options options = {.struct_size = sizeof options,
                                            .no_coalescing = 1,
                                            .in_flight_max = (uint32_t)cell->at_once};
    struct stoker_error error = {0};
    uint64_t begin = term_clock_ns();
    double cpu = cpu_now();
    int status = stoker_file_read_ranges(bench->ranges, count, &options, &error);

    cell->seconds += term_seconds_since(begin);
    cell->cpu_seconds += cpu_now() - cpu;
    if (status < 0 && bench->failure.status == 0) {
        bench->failure = error;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct stoker_range *range = &bench->ranges[i];

        cell->requests++;
        cell->failed += range->result < 0;
        if (range->result >= 0) {
            cell->bytes += (uint64_t)range->result;
            bench->left -=
                (uint64_t)range->result < bench->left ? (uint64_t)range->result : bench->left;
            if (range->complete_ns > 0 && !note(bench, range)) {
                return EXIT_ENVIRONMENT;
            }
        }
    }
    if (status < 0 && cell->failed == cell->requests) {
        return term_error(status, &error);
    }
    return EXIT_FINE;
}

static void live_draw(const struct bench *bench, const struct bench_cell *cell, double share)
{
    char line[160], size[TERM_NUMBER_BYTES];

    if (term_is_live()) {
        snprintf(line, sizeof line, "%s x %llu  %.0f MB/s  %.0f/s", term_bytes(size, cell->size),
                 (unsigned long long)cell->at_once,
                 cell->seconds > 0 ? (double)cell->bytes / 1e6 / cell->seconds : 0.0,
                 cell->seconds > 0 ? (double)cell->requests / cell->seconds : 0.0);
        term_live(share, line);
    }
    (void)bench;
}

/* Measures one cell, limited by time and bytes. */
static int measure(struct bench *bench, struct bench_cell *cell, double seconds, uint64_t bytes,
                   double share)
{
    uint64_t most = cell->size < BUFFERS_BYTES ? ROUND_MAX : 16;
    uint32_t count = (uint32_t)cell->at_once;
    int status = EXIT_FINE;

    bench->count = 0;
    while (status == EXIT_FINE && !main_signal() && bench->left > 0 &&
           (cell->requests == 0 || (cell->bytes < bytes && cell->seconds < seconds)) &&
           fill_round(bench, cell, count) > 0) {
        status = run_round(bench, cell, count);
        live_draw(bench, cell, share);
        /* The next round takes about ROUND_SECONDS, and is a multiple of the concurrency. */
        double more = (double)cell->requests / (cell->seconds + 1e-9) * ROUND_SECONDS;
        uint64_t turns = (uint64_t)(more / (double)cell->at_once);
        uint64_t left = (bytes > cell->bytes ? bytes - cell->bytes : 0) / cell->size + 1;

        turns = turns < 1 ? 1 : turns;
        turns = turns * cell->at_once < most ? turns : most / cell->at_once;
        count = (uint32_t)((turns ? turns : 1) * cell->at_once);
        count = (uint32_t)(count < left ? count : left);
    }
    percentiles(bench->first, bench->count, cell->first);
    percentiles(bench->all, bench->count, cell->all);
    return status;
}

static uint64_t retries_of(struct stoker_engine *engine)
{
    struct stoker_store_stats ledger = {.struct_size = sizeof ledger};

    return stoker_engine_store_stats(engine, &ledger) < 0
               ? 0
               : ledger.retries_throttled + ledger.retries_transient + ledger.retries_other;
}

static int measure_all(struct bench *bench)
{
    struct bench_sweep *sweep = &bench->sweep;
    double seconds = bench->args->seconds > 0 ? bench->args->seconds : SECONDS_DEFAULT;
    uint32_t cells = sweep->size_count * sweep->at_once_count;
    int status = EXIT_FINE;

    bench->ranges = calloc(ROUND_MAX, sizeof *bench->ranges);
    bench->buffers = malloc(sweep->sizes[sweep->size_count - 1] > BUFFERS_BYTES
                                ? sweep->sizes[sweep->size_count - 1]
                                : BUFFERS_BYTES);
    if (!bench->ranges || !bench->buffers) {
        return term_fail_name("out of memory for the ranges", 0, bench->source,
                              "measure smaller ranges: --sizes");
    }
    for (uint32_t i = 0; i < cells && status == EXIT_FINE && !main_signal(); i++) {
        struct bench_cell *cell = &sweep->cells[sweep->cell_count++];
        /* The unused rest of a cell is for the next ones. */
        double left = seconds - term_seconds_since(bench->begin_ns);

        cell->size = sweep->sizes[i / sweep->at_once_count];
        cell->at_once = sweep->at_once[i % sweep->at_once_count];
        status =
            measure(bench, cell, left / (cells - i), bench->left / (cells - i), (double)i / cells);
    }
    return status;
}

/* ---- report ---- */

static void json_percentiles(const char *key, const double values[3])
{
    json_open(key, '{');
    json_double("p50", values[0]);
    json_double("p90", values[1]);
    json_double("p99", values[2]);
    json_close('}');
}

static void report_json(const struct bench_sweep *sweep)
{
    json_open(NULL, '{');
    json_str("url", sweep->url);
    json_u64("objects", sweep->objects);
    json_u64("object_bytes", sweep->object_bytes);
    json_u64("retries", sweep->retries);
    json_double("seconds", sweep->seconds);
    json_bool("interrupted", sweep->interrupted);
    json_open("writes", '[');
    for (uint32_t i = 0; i < sweep->put_count; i++) {
        json_open(NULL, '{');
        json_u64("size", sweep->puts[i].size);
        json_u64("objects", sweep->puts[i].objects);
        json_double("seconds", sweep->puts[i].seconds);
        json_double("cpu_seconds", sweep->puts[i].cpu_seconds);
        json_close('}');
    }
    json_close(']');
    json_open("reads", '[');
    for (uint32_t i = 0; i < sweep->cell_count; i++) {
        const struct bench_cell *cell = &sweep->cells[i];

        json_open(NULL, '{');
        json_u64("size", cell->size);
        json_u64("at_once", cell->at_once);
        json_u64("requests", cell->requests);
        json_u64("failed", cell->failed);
        json_u64("bytes", cell->bytes);
        json_double("seconds", cell->seconds);
        json_double("cpu_seconds", cell->cpu_seconds);
        json_percentiles("first_byte_seconds", cell->first);
        json_percentiles("whole_seconds", cell->all);
        json_close('}');
    }
    json_close(']');
    json_close('}');
}

static void report(const struct bench_sweep *sweep)
{
    char size[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];

    printf("objects    %llu, %s\n", (unsigned long long)sweep->objects,
           term_bytes(bytes, sweep->object_bytes));
    for (uint32_t i = 0; i < sweep->put_count; i++) {
        const struct bench_put *put = &sweep->puts[i];

        printf("written    %llu of %s: %.1f MB/s, %.0f/s\n", (unsigned long long)put->objects,
               term_bytes(size, put->size), (double)(put->objects * put->size) / 1e6 / put->seconds,
               (double)put->objects / put->seconds);
    }
    printf("\n%10s %8s %9s %9s %9s   %-22s   %-22s %9s\n", "size", "at once", "MB/s", "req/s",
           "requests", "first byte ms 50/90/99", "last byte ms 50/90/99", "CPU s/GB");
    for (uint32_t i = 0; i < sweep->cell_count; i++) {
        const struct bench_cell *cell = &sweep->cells[i];
        double seconds = cell->seconds > 0 ? cell->seconds : 1;

        if (cell->requests == 0) {
            printf("%10s %8llu %9s\n", term_bytes(size, cell->size),
                   (unsigned long long)cell->at_once, "-");
            continue;
        }
        printf("%10s %8llu %9.1f %9.0f %9llu   %6.1f %7.1f %7.1f   %6.1f %7.1f %7.1f %9.2f",
               term_bytes(size, cell->size), (unsigned long long)cell->at_once,
               (double)cell->bytes / 1e6 / seconds, (double)cell->requests / seconds,
               (unsigned long long)cell->requests, cell->first[0] * 1e3, cell->first[1] * 1e3,
               cell->first[2] * 1e3, cell->all[0] * 1e3, cell->all[1] * 1e3, cell->all[2] * 1e3,
               cell->bytes ? cell->cpu_seconds / ((double)cell->bytes / 1e9) : 0);
        printf(cell->failed ? "  %llu failed\n" : "\n", (unsigned long long)cell->failed);
    }
    printf("\nretried    %llu requests\n", (unsigned long long)sweep->retries);
}

static int print_row(struct bench *bench)
{
    struct bench_sweep *sweep = &bench->sweep;
    int number;

    sweep->retries = retries_of(bench->engine);
    sweep->seconds = term_seconds_since(bench->begin_ns);
    sweep->interrupted = main_signal() != 0;
    (bench->args->json ? report_json : report)(sweep);
    if (bench->failure.status < 0) {
        (void)term_error(bench->failure.status, &bench->failure);
    }
    if (bench->args->plot && (number = bench_page(sweep, bench->args->plot)) != 0) {
        return term_fail_name("cannot write the drawing", number, bench->args->plot,
                              "use another file for --plot");
    }
    return bench->failure.status < 0 ? EXIT_FINDINGS : EXIT_FINE;
}

static int run(struct args *args)
{
    static struct bench bench;
    int status;

    if (args->path_count != 2) {
        return term_usage("bench",
                          args->path_count < 2 ? "no URL given" : "only one URL is allowed", NULL,
                          "usage: stoker bench store [options] URL");
    }
    if (args->plot && !bench_is_drawing(args->plot)) {
        return term_usage("bench", "unknown format of --plot", args->plot,
                          "--plot takes a file that ends in .html, .svg or .png");
    }
    if (args->plot && !bench_can_draw(args->plot)) {
        return term_fail_name("rsvg-convert, which draws PNG, is not installed", 0, args->plot,
                              "apt-get install librsvg2-bin; or use a file that ends in .html or "
                              ".svg");
    }
    bench.args = args;
    status = resolve(&bench);
    status = status != EXIT_FINE ? status : command_open_engine(args, &bench.engine);
    if (status != EXIT_FINE) {
        return status;
    }
    main_defer_signals(true);
    status = args->write ? write_objects(&bench) : EXIT_FINE;
    bench.begin_ns = term_clock_ns();
    status = status != EXIT_FINE || main_signal() ? status : find_objects(&bench);
    status = status != EXIT_FINE || main_signal() ? status : measure_all(&bench);
    term_live_end();
    if (status == EXIT_FINE && bench.sweep.cell_count > 0) {
        status = print_row(&bench);
    }
    for (uint32_t i = 0; i < bench.file_count; i++) {
        stoker_file_close(bench.files[i]);
    }
    clean(&bench);
    stoker_engine_close(bench.engine);
    free(bench.ranges);
    free(bench.buffers);
    free(bench.first);
    free(bench.all);
    return main_signal() ? EXIT_SIGNAL + main_signal() : status;
}
