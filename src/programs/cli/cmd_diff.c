/* stoker diff: lists the differences between the samples of two data sets. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct diff_run {
    struct stoker_diff *diff;
    const struct args *args;
    uint64_t start_ns, shown;
};

static int run(struct args *args);
static int open_both(const struct args *args, struct stoker_engine *engine,
                     struct stoker_dataset *datasets[2]);
static int print_differences(struct stoker_diff *diff, const struct args *args, uint64_t start_ns);
static int difference_print(const struct stoker_difference *difference, bool json,
                            struct stoker_error *error);
static void summary_print(struct stoker_diff *diff, double seconds, uint64_t shown);
static void summary_print_json(struct stoker_diff *diff, double seconds, uint64_t shown);

const struct command command_diff = {
    .name = "diff",
    .bit = COMMAND_DIFF,
    .usage = "[options] A B",
    .summary = "List the differences between the samples of two data sets",
    .more = "Matches samples by key and compares them by the XXH3-64 of each member. With an\n"
            "index that has checksums (stoker index --checksums, stoker pack) nothing is read,\n"
            "else all bytes. The shard of a sample is ignored. A folder equals the tars that\n"
            "were packed from it; only images are compared then.\n"
            "Line: added|removed|changed  KEY  SHARD [-> SHARD]  MEMBERS; +EXT: only in B,\n"
            "-EXT: only in A. Exit status 1: they differ.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *datasets[2] = {NULL, NULL};
    struct stoker_diff *diff = NULL;
    struct stoker_diff_options options = {.struct_size = sizeof options, .reread = args->reread};
    uint64_t start_ns = term_clock_ns();
    int status;

    if (args->path_count != 2) {
        return term_usage("diff", "two data sets are needed", NULL,
                          "usage: stoker diff [options] A B");
    }
    status = command_open_engine(args, &engine);
    if (status == EXIT_FINE) {
        status = open_both(args, engine, datasets);
    }
    if (status == EXIT_FINE) {
        status = stoker_diff_open(&diff, datasets[0], datasets[1], &options, &error);
        status = status < 0 ? term_error(status, &error) : print_differences(diff, args, start_ns);
    }
    stoker_diff_close(diff);
    stoker_dataset_close(datasets[1]);
    stoker_dataset_close(datasets[0]);
    stoker_engine_close(engine);
    return status;
}

static int open_both(const struct args *args, struct stoker_engine *engine,
                     struct stoker_dataset *datasets[2])
{
    for (size_t i = 0; i < 2; i++) {
        struct stoker_dataset_options options = {.struct_size = sizeof options,
                                                 .urls = &args->paths[i],
                                                 .url_count = 1,
                                                 .foreign_index = STOKER_FOREIGN_INDEX_NEVER};
        struct stoker_error error = {0};
        int status = stoker_dataset_open(&datasets[i], engine, &options, &error);

        if (status < 0) {
            return term_error(status, &error);
        }
    }
    return EXIT_FINE;
}

static int next_difference(void *context, struct stoker_error *error)
{
    struct diff_run *self = context;
    struct stoker_difference difference;
    int status;

    if (self->args->limit > 0 && self->shown == self->args->limit) {
        return 0;
    }
    status = stoker_diff_next(self->diff, COMMAND_TICK_MS, &difference, error);
    if (status != 1) {
        return status;
    }
    term_live_end();
    status = difference_print(&difference, self->args->json, error);
    self->shown++;
    return status < 0 ? status : 2;
}

static void draw(const void *context)
{
    const struct diff_run *self = context;
    struct stoker_diff_progress progress = {.struct_size = sizeof progress};
    uint64_t samples;

    stoker_diff_progress(self->diff, &progress);
    samples = progress.samples_a + progress.samples_b;
    command_live(samples ? (double)progress.samples_done / (double)samples : 1, progress.bytes,
                 term_seconds_since(self->start_ns), "");
}

static int print_differences(struct stoker_diff *diff, const struct args *args, uint64_t start_ns)
{
    struct stoker_diff_progress progress = {.struct_size = sizeof progress};
    struct stoker_error error = {0};
    struct diff_run self = {diff, args, start_ns, 0};
    int status = command_wait(&(struct command_job){next_difference, draw, &self, NULL}, &error);

    if (status < 0) {
        return term_error(status, &error);
    }
    stoker_diff_progress(diff, &progress);
    (args->json ? summary_print_json : summary_print)(diff, term_seconds_since(start_ns),
                                                      self.shown);
    return progress.added + progress.removed + progress.changed ? EXIT_FINDINGS : EXIT_FINE;
}

static int difference_print(const struct stoker_difference *difference, bool json,
                            struct stoker_error *error)
{
    const char *shards[2] = {difference->shard_a, difference->shard_b};
    char *key = malloc(difference->key_bytes + 1);

    if (!key) {
        *error = (struct stoker_error){.status = -ENOMEM,
                                       .what = "cannot print a key",
                                       .where = "stoker diff",
                                       .advice = "free memory"};
        return -ENOMEM;
    }
    memcpy(key, difference->key, difference->key_bytes);
    key[difference->key_bytes] = 0;
    if (json) {
        json_open(NULL, '{');
        json_str("kind", stoker_difference_name(difference->kind));
        json_str("key", key);
        for (int i = 0; i < 2; i++) {
            uint64_t sample = i ? difference->sample_b : difference->sample_a;

            if (sample != STOKER_NO_SAMPLE) {
                json_str(i ? "shard_b" : "shard_a", shards[i]);
                json_u64(i ? "sample_b" : "sample_a", sample);
            }
        }
        json_str("members", difference->members);
        json_close('}');
    } else {
        printf("%-7s  ", stoker_difference_name(difference->kind));
        term_text(key);
        fputs("  ", stdout);
        term_text(shards[0]);
        fputs(shards[0][0] && shards[1][0] ? " -> " : "", stdout);
        term_text(shards[1]);
        fputs(difference->members[0] ? "  " : "", stdout);
        term_text(difference->members);
        fputc('\n', stdout);
    }
    free(key);
    return 0;
}

static void summary_print(struct stoker_diff *diff, double seconds, uint64_t shown)
{
    struct stoker_diff_progress progress = {.struct_size = sizeof progress};
    char number[TERM_NUMBER_BYTES];
    uint64_t all;

    stoker_diff_progress(diff, &progress);
    all = progress.added + progress.removed + progress.changed;
    fputs(all ? "differ: " : "the same: ", stdout);
    if (all) {
        printf("%s added, ", term_count(number, progress.added));
        printf("%s removed, ", term_count(number, progress.removed));
        printf("%s changed, ", term_count(number, progress.changed));
        printf("%s the same", term_count(number, progress.same));
    } else {
        printf("%s samples", term_count(number, progress.same));
    }
    if (shown < all) {
        printf(" (%s shown)", term_count(number, shown));
    }
    if (progress.bytes) {
        printf("; %s read", term_bytes(number, progress.bytes));
    } else {
        fputs("; no data read", stdout);
    }
    printf(" in %s\n", term_time(number, seconds));
}

static void summary_print_json(struct stoker_diff *diff, double seconds, uint64_t shown)
{
    struct stoker_diff_progress progress = {.struct_size = sizeof progress};

    stoker_diff_progress(diff, &progress);
    json_open(NULL, '{');
    json_str("kind", "summary");
    json_u64("added", progress.added);
    json_u64("removed", progress.removed);
    json_u64("changed", progress.changed);
    json_u64("same", progress.same);
    json_u64("shown", shown);
    json_u64("samples_a", progress.samples_a);
    json_u64("samples_b", progress.samples_b);
    json_u64("bytes_read", progress.bytes);
    json_double("seconds", seconds);
    json_close('}');
}
