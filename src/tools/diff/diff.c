/* Diff: a thread that finds all differences, and the caller, who takes them. */
#include "tools/diff/diff.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FILES_A_ROUND = 256 };

static int prepare(struct stoker_diff *diff, struct stoker_error *error);
static int run(void *context, uint32_t thread, struct stoker_error *error);

int stoker_diff_open(struct stoker_diff **diff_out, struct stoker_dataset *a,
                     struct stoker_dataset *b, const struct stoker_diff_options *options,
                     struct stoker_error *error)
{
    struct stk_background_job_options job = {.name = "diff", .thread_name = "stoker-diff"};
    struct stoker_dataset *datasets[2] = {a, b};
    struct stoker_diff_options full = {0};
    struct stoker_diff *diff;
    int status;

    *diff_out = NULL;
    if (!a || !b) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "two data sets are needed", "open both",
                        "diff");
    }
    status = options ? stk_options_read(&full, sizeof full, sizeof full.struct_size, options,
                                        "diff options", error)
                     : 0;
    status = status < 0 ? status : stk_engine_check(a->engine, error);
    status = status < 0 ? status : stk_engine_check(b->engine, error);
    if (status < 0) {
        return status;
    }
    diff = stk_alloc(1, sizeof *diff);
    if (!diff) {
        return stk_fail(error, -ENOMEM, "cannot compare data sets", "free memory", "diff");
    }
    diff->engine = a->engine;
    stk_background_job_init(&diff->job, diff->engine);
    for (int s = 0; s < 2; s++) {
        diff->sides[s].dataset = datasets[s];
        stk_dataset_retain(datasets[s]);
    }
    diff->reread = full.reread;
    job.context = diff;
    job.run = run;
    status = prepare(diff, error);
    status = status < 0 ? status : stk_background_job_start(&diff->job, &job, error);
    if (status < 0) {
        stoker_diff_close(diff);
        return status;
    }
    *diff_out = diff;
    return 0;
}

/* Only for tars: the bytes to read of a folder's files are unknown before. */
static void count_bytes(struct stoker_diff *diff)
{
    for (int s = 0; s < 2; s++) {
        const struct stk_diff_side *side = &diff->sides[s];
        const struct stk_index *index = side->dataset->index;

        for (uint64_t i = 0; i < stk_index_shards(index) && !stk_index_is_folder(index); i++) {
            diff->bytes_total += stk_diff_must_read(diff, side, (uint32_t)i)
                                     ? stk_index_shard_bytes(index, (uint32_t)i)
                                     : 0;
        }
    }
}

/* Counts samples, rounds and the bytes to be read; takes the memory for the entries. */
static int prepare(struct stoker_diff *diff, struct stoker_error *error)
{
    uint64_t bytes = 0;
    int status;

    for (int s = 0; s < 2; s++) {
        struct stk_diff_side *side = &diff->sides[s];
        const struct stk_index *index = side->dataset->index;
        bool folder = side->dataset->objects.kind == STK_SOURCE_FOLDER;

        status = stk_foreign_index_require_verified(index, error);
        if (status < 0) {
            return status;
        }
        side->samples = side->count = stk_index_samples(index);
        side->files_a_round = folder ? FILES_A_ROUND : 1;
        side->rounds = (stk_index_shards(index) + side->files_a_round - 1) / side->files_a_round;
        diff->mixed = diff->mixed != folder; /* after both: whether just one is a folder */
        /* Samples are in memory, or in a mapped file: far below 2^58. */
        bytes += stk_round_up(stk_max(side->samples, 1) * sizeof *side->entries, STK_IO_ALIGN);
    }
    status = stk_diff_pair_shards(diff, error);
    if (status < 0) {
        return status;
    }
    count_bytes(diff);
    status = stk_engine_reserve(diff->engine, bytes, diff->engine->options.read_timeout_ms,
                                "24 bytes for each sample of two data sets", error);
    if (status < 0) {
        return status;
    }
    diff->reserved = bytes;
    for (int s = 0; s < 2; s++) {
        struct stk_diff_side *side = &diff->sides[s];

        side->entries = stk_pages_alloc(stk_max(side->samples, 1) * sizeof *side->entries);
        if (!side->entries) {
            return stk_fail(error, -ENOMEM, "cannot compare data sets", "free memory",
                            "%llu samples", (unsigned long long)side->samples);
        }
    }
    return 0;
}

void stoker_diff_close(struct stoker_diff *diff)
{
    if (!diff || !stk_background_job_end(&diff->job)) {
        return;
    }
    for (int s = 0; s < 2; s++) {
        struct stk_diff_side *side = &diff->sides[s];

        if (side->entries) {
            stk_pages_free(side->entries, stk_max(side->samples, 1) * sizeof *side->entries);
        }
        stk_free(side->shared_shards);
        stk_dataset_release(side->dataset);
    }
    stk_budget_release(&diff->engine->budget, diff->reserved);
    stk_background_job_deinit(&diff->job);
    stk_free(diff);
}

/* ---- the thread ------------------------------------------------------------------------- */

static int read_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_diff *diff = context;
    bool second = round >= diff->sides[0].rounds;

    return stk_diff_content(diff, &diff->sides[second],
                            second ? round - diff->sides[0].rounds : round, error);
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_diff *diff = context;
    int status = stk_engine_parallel(diff->engine, diff->sides[0].rounds + diff->sides[1].rounds,
                                     read_round, diff, error);

    (void)thread;
    status = status < 0 ? status : stk_diff_sort(diff, error);
    return status < 0 ? status : stk_diff_merge(diff, error);
}

/* ---- the caller ------------------------------------------------------------------------- */

/* The place of the sample: its key, and its shard's path, cut to the buffer's size. */
static int describe(const struct stoker_diff *diff, int s, uint64_t sample,
                    struct stoker_difference *out, struct stoker_error *error)
{
    const struct stk_diff_side *side = &diff->sides[s];
    char path[STK_PATH_BYTES_MAX];
    struct stk_sample found;
    int status = stk_index_sample(side->dataset->index, sample, &found, error);

    status = status < 0 ? status : stk_index_path(side->dataset->index, found.shard, path, error);
    if (status == 0) {
        struct stk_view key = stk_diff_key(diff, side, &found);

        snprintf(s ? out->shard_b : out->shard_a, sizeof out->shard_a, "%s", path);
        out->key = (const char *)key.data;
        out->key_bytes = key.bytes;
    }
    return status;
}

static int fill_difference(struct stoker_diff *diff, struct stoker_difference *out,
                           struct stoker_error *error)
{
    struct stk_diff_side *side =
        &diff->sides[diff->sides[0].returned_count == diff->sides[0].count];
    const struct stk_diff_entry *entry = &side->entries[side->returned_count];
    uint64_t samples[2] = {entry->key, entry->content};
    int status = 0;

    if (side == &diff->sides[1]) {
        samples[0] = STOKER_NO_SAMPLE;
        samples[1] = entry->key;
    }
    *out = (struct stoker_difference){
        .kind = samples[0] == STOKER_NO_SAMPLE   ? STOKER_DIFFERENCE_ADDED
                : samples[1] == STOKER_NO_SAMPLE ? STOKER_DIFFERENCE_REMOVED
                                                 : STOKER_DIFFERENCE_CHANGED,
        .sample_a = samples[0],
        .sample_b = samples[1]};
    for (int s = 0; s < 2 && status == 0; s++) {
        if (samples[s] != STOKER_NO_SAMPLE) {
            status = describe(diff, s, samples[s], out, error);
        }
    }
    if (status == 0 && out->kind == STOKER_DIFFERENCE_CHANGED) {
        status = stk_diff_members(diff, samples, out->members, sizeof out->members, error);
    }
    if (status < 0) {
        return status;
    }
    side->returned_count++;
    return 1;
}

int stoker_diff_next(struct stoker_diff *diff, uint32_t timeout_ms,
                     struct stoker_difference *difference, struct stoker_error *error)
{
    int status = stk_background_job_next(&diff->job, timeout_ms, NULL, NULL, error);

    if (status == STK_BACKGROUND_JOB_RUNNING) {
        return stk_fail(error, STOKER_ERROR_AGAIN, "the comparison is not finished", "call again",
                        "%u ms", timeout_ms);
    }
    if (status < 0 || (diff->sides[0].returned_count == diff->sides[0].count &&
                       diff->sides[1].returned_count == diff->sides[1].count)) {
        return status;
    }
    return fill_difference(diff, difference, error);
}

int stoker_diff_progress(struct stoker_diff *diff, struct stoker_diff_progress *progress)
{
    struct stoker_diff_progress full = {0};
    int status;

    full.samples_a = diff->sides[0].samples;
    full.samples_b = diff->sides[1].samples;
    full.samples_done = atomic_load_explicit(&diff->count.samples, memory_order_relaxed);
    full.bytes = atomic_load_explicit(&diff->count.bytes, memory_order_relaxed);
    full.bytes_total = diff->bytes_total;
    if (stk_background_job_is_finished(&diff->job, &status) && status == 0) {
        full.finished = 1;
        full.same = atomic_load_explicit(&diff->count.same, memory_order_relaxed);
        full.changed = atomic_load_explicit(&diff->count.changed, memory_order_relaxed);
        full.removed = diff->sides[0].count - full.changed;
        full.added = diff->sides[1].count;
    }
    return stk_options_write_output(progress, &full, sizeof full, "diff progress", NULL);
}

const char *stoker_difference_name(uint32_t kind)
{
    return kind == STOKER_DIFFERENCE_ADDED     ? "added"
           : kind == STOKER_DIFFERENCE_REMOVED ? "removed"
           : kind == STOKER_DIFFERENCE_CHANGED ? "changed"
                                               : "unknown";
}
