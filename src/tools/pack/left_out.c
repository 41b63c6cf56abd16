/* Samples left out: limits while shards are written, and the list of them afterwards. */
#include "tools/pack/left_out.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define FIRST_BYTES 600u /* of the first damaged samples, in a sentence */

/* Samples left out of a shard that failed. */
struct stk_left_out_unfinished {
    struct stk_left_out_unfinished *next;
    uint64_t shard;
    struct stk_bad_sample_list left;
};

/* Where the list goes: the quarantine, the draft, and the first of it into memory. */
struct report {
    struct stk_left_out *left;
    struct stk_bad_sample_file *lines, *records; /* owned; NULL: not there */
};

static int fail_with_list(struct stk_left_out *left, bool has_list, struct stoker_error *error);

int stk_left_out_open(struct stk_left_out *left, const struct stk_left_out_options *options,
                      const struct stk_staging *staging, const char *pattern,
                      struct stoker_error *error)
{
    *left = (struct stk_left_out){.options = *options, .draft = staging, .pattern = pattern};
    if (options->quarantine) {
        left->options.quarantine = stk_strdup(options->quarantine);
        if (!left->options.quarantine) {
            return stk_fail_memory(error, "list of damaged samples");
        }
    }
    pthread_mutex_init(&left->lock, NULL);
    left->open = true;
    return 0;
}

void stk_left_out_close(struct stk_left_out *left)
{
    struct stk_left_out_unfinished *next;

    if (!left->open) {
        return;
    }
    for (; left->locked.unfinished; left->locked.unfinished = next) {
        next = left->locked.unfinished->next;
        stk_bad_sample_list_deinit(&left->locked.unfinished->left);
        stk_free(left->locked.unfinished);
    }
    pthread_mutex_destroy(&left->lock);
    stk_bad_sample_list_deinit(&left->list);
    stk_free(left->of_shard);
    stk_free((char *)(uintptr_t)left->options.quarantine);
}

/* 1: destination with this ending, and this name in it, are there. */
static int is_there(struct stk_io *io, const char *destination, const char *ending,
                    const char *name, struct stoker_error *error)
{
    char *folder = stk_staging_path(destination, "", ending);
    char *path = folder ? stk_staging_path(folder, name, "") : NULL;
    struct stk_stat about;
    int status = path ? stk_io_stat_path(io, path, &about, NULL) == 0
                      : stk_fail_memory(error, "list of damaged samples");

    stk_free(path);
    stk_free(folder);
    return status;
}

int stk_left_out_check(const struct stk_left_out *left, struct stk_io *io, const char *destination,
                       struct stoker_error *error)
{
    struct stk_stat about;
    int status;

    if (!left->options.quarantine ||
        stk_io_stat_path(io, left->options.quarantine, &about, NULL) < 0) {
        return 0;
    }
    status = is_there(io, destination, ".part", "", error);
    status = status != 0 ? status : is_there(io, destination, "", STK_STAGING_PLAN_NAME, error);
    if (status == 0) {
        status = stk_fail_errno(error, EEXIST, "the quarantine file already exists",
                                "choose another one, or remove it", "'%.600s'",
                                left->options.quarantine);
    }
    return status < 0 ? status : 0;
}

int stk_left_out_check_writable(const struct stk_left_out *left, struct stk_io *io,
                                struct stoker_error *error)
{
    const char *path = left->options.quarantine;
    struct stk_bad_sample_file *file = NULL;
    int status =
        path ? stk_bad_sample_file_open(&file, io, path, STK_BAD_SAMPLE_FILE_LINES, error) : 0;

    stk_bad_sample_file_close(file);
    return status;
}

static void mark_damaged(struct stk_left_out *left)
{
    pthread_mutex_lock(&left->lock);
    left->locked.damaged = true;
    pthread_mutex_unlock(&left->lock);
}

int stk_left_out_begin(struct stk_left_out *left, const struct stk_tar_losses *losses,
                       uint64_t sample_count, uint64_t shard_count, struct stoker_error *error)
{
    const struct stk_left_out_options *options = &left->options;

    left->losses = losses;
    left->count = losses->count;
    left->sample_count = sample_count += losses->count;
    left->most = options->samples_max ? options->samples_max : UINT64_MAX;
    if (options->share_max > 0) {
        left->most = stk_min(left->most, (uint64_t)(options->share_max * (double)sample_count));
    }
    left->of_shard = stk_alloc(shard_count, sizeof *left->of_shard);
    left->shard_count = left->of_shard ? shard_count : 0;
    if (!left->of_shard) {
        return stk_fail_memory(error, "list of damaged samples");
    }
    if (losses->count > 0 && !options->skip) {
        mark_damaged(left);
        stk_bad_sample_error(stk_tar_losses_get(losses, 0), error);
        return error->status;
    }
    return 0;
}

/* stk_left_out_fail() completes the text. */
int stk_left_out_check_limit(struct stk_left_out *left, struct stoker_error *error)
{
    if (left->count <= left->most) {
        return 0;
    }
    mark_damaged(left);
    return stk_fail(error, STOKER_ERROR_LIMIT, "too many samples are damaged", "see the list",
                    "'%.300s'", left->draft->destination);
}

void stk_left_out_shard_reused(struct stk_left_out *left, uint64_t shard, uint64_t count)
{
    left->of_shard[shard] = count;
    left->count += count;
}

int stk_left_out_add(struct stk_left_out *left, struct stk_shard_file *out, uint64_t sample,
                     struct stoker_error *error)
{
    struct stk_bad_sample *damage = stk_bad_sample_new(sample, error);
    int status = error->status;

    if (!damage) {
        return stk_fail_memory(error, "list of damaged samples");
    }
    if (stk_shard_file_add_left_out(out, damage, error) < 0) {
        stk_free(damage);
        return -ENOMEM;
    }
    if (!left->options.skip) {
        mark_damaged(left);
        return status;
    }
    status = stk_shard_file_drop_sample(out, error);
    if (status < 0) {
        return status;
    }
    left->count++;
    return stk_left_out_check_limit(left, error);
}

void stk_left_out_shard_complete(struct stk_left_out *left, uint64_t shard,
                                 struct stk_shard_file *out)
{
    left->of_shard[shard] = stk_shard_file_left_out(out)->count;
}

void stk_left_out_shard_failed(struct stk_left_out *left, uint64_t shard,
                               struct stk_shard_file *out)
{
    struct stk_bad_sample_list *damages = stk_shard_file_left_out(out);
    struct stk_left_out_unfinished *unfinished =
        damages->count > 0 ? stk_alloc(1, sizeof *unfinished) : NULL;

    if (!unfinished) {
        return;
    }
    unfinished->shard = shard;
    unfinished->left = *damages;
    *damages = (struct stk_bad_sample_list){0};
    pthread_mutex_lock(&left->lock);
    unfinished->next = left->locked.unfinished;
    left->locked.unfinished = unfinished;
    pthread_mutex_unlock(&left->lock);
}

int stk_left_out_write_list(struct stk_left_out *left, struct stoker_error *error)
{
    if (left->count == left->sample_count) {
        mark_damaged(left);
        return stk_fail(error, STOKER_ERROR_EMPTY, "all samples are damaged",
                        "check the list and the source", "'%.300s'", left->draft->destination);
    }
    return fail_with_list(left, true, error);
}

/* ---- reports ---- */

/* keep: for a later run, too. */
static int report_open(struct report *report, struct stk_left_out *left, bool keep,
                       struct stoker_error *error)
{
    struct stk_io *io = left->draft->io;
    char *path = NULL;
    int status = 0;

    *report = (struct report){.left = left};
    if (left->options.quarantine) {
        status = stk_bad_sample_file_open(&report->lines, io, left->options.quarantine,
                                          STK_BAD_SAMPLE_FILE_LINES, error);
    }
    if (status == 0 && keep) {
        path = stk_staging_path(left->draft->directory, STK_STAGING_LEFT_OUT_NAME, "");
        status = path ? stk_bad_sample_file_open(&report->records, left->draft->files, path,
                                                 STK_BAD_SAMPLE_FILE_RECORDS, error)
                      : stk_fail_memory(error, "list of damaged samples");
    }
    stk_free(path);
    return status;
}

/* Takes the damage. */
static int report_add(void *context, struct stk_bad_sample *damage, struct stoker_error *error)
{
    struct report *report = context;
    struct stk_bad_sample_list *list = &report->left->list;
    int status = report->lines ? stk_bad_sample_file_add(report->lines, damage, error) : 0;

    if (status == 0 && report->records) {
        status = stk_bad_sample_file_add(report->records, damage, error);
    }
    if (status == 0 && list->count < report->left->options.list_max) {
        if (stk_bad_sample_list_add(list, damage) == 0) {
            return 0;
        }
        status = stk_fail_memory(error, "list of damaged samples");
    }
    stk_free(damage);
    return status;
}

static int report_samples(struct report *report, struct stk_bad_sample_list *damages,
                          struct stoker_error *error)
{
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < damages->count; i++) {
        status = report_add(report, damages->items[i], error);
        damages->items[i] = NULL;
    }
    return status;
}

/* Samples left out of a shard: those before it failed, or those in its done file. Returns 1 if any.
 */
static int report_shard(struct report *report, uint64_t shard, struct stoker_error *error)
{
    struct stk_left_out *left = report->left;
    const struct stk_staging *staging = left->draft;
    struct stk_shard_done done = {0};
    char name[STK_SHARD_NAME_MAX];
    int status;

    for (struct stk_left_out_unfinished *at = left->locked.unfinished; at; at = at->next) {
        if (at->shard == shard) {
            status = report_samples(report, &at->left, error);
            return status < 0 ? status : 1;
        }
    }
    if (left->of_shard[shard] == 0) {
        return 0;
    }
    stk_shard_pattern_name(left->pattern, shard, name, sizeof name);
    status =
        stk_shard_done_read(&done, staging->files, staging->directory, name, staging->plan, error);
    if (status == 0) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a finished shard is missing",
                          "run it again: it continues from there", "'%.300s'", name);
    }
    status = status < 0 ? status : report_samples(report, &done.left_out, error);
    stk_shard_done_deinit(&done);
    return status < 0 ? status : 1;
}

/* Samples that the scan of the source lost. */
static int report_loss(struct report *report, const struct stk_bad_sample *loss,
                       struct stoker_error *error)
{
    struct stoker_error found = {0};
    struct stk_bad_sample *copy;

    stk_bad_sample_error(loss, &found);
    copy = stk_bad_sample_new(loss->sample, &found);
    return copy ? report_add(report, copy, error)
                : stk_fail_memory(error, "list of damaged samples");
}

/* Takes what is open. */
static int report_end(struct report *report, int status, struct stoker_error *error)
{
    if (status == 0 && report->records) {
        status = stk_bad_sample_file_commit(report->records, error);
    }
    if (status == 0 && report->lines) {
        status = stk_bad_sample_file_commit(report->lines, error);
    }
    stk_bad_sample_file_close(report->records);
    stk_bad_sample_file_close(report->lines);
    return status;
}

/* has_list: all shards are complete; else lists the samples found so far. Without `skip`, that is
 * the first one, which is the same for any number of threads. */
static int fail_with_list(struct stk_left_out *left, bool has_list, struct stoker_error *error)
{
    struct report report;
    int status = report_open(&report, left, has_list && left->count > 0, error);

    for (uint64_t i = 0; status == 0 && left->losses && i < left->losses->count; i++) {
        status = report_loss(&report, stk_tar_losses_get(left->losses, i), error);
        status = status == 0 && !left->options.skip ? 1 : status;
    }
    for (uint64_t i = 0; status >= 0 && i < left->shard_count; i++) {
        if (status == 0 || left->options.skip) {
            status = report_shard(&report, i, error);
        }
    }
    return report_end(&report, status < 0 ? status : 0, error);
}

int stk_left_out_resume_list(struct stk_left_out *left, const struct stk_manifest *manifest,
                             struct stoker_error *error)
{
    const struct stk_staging *staging = left->draft;
    char *path = stk_staging_path(staging->directory, STK_STAGING_LEFT_OUT_NAME, "");
    struct stk_stat about;
    struct report report;
    int status = path ? 0 : stk_fail_memory(error, "list of damaged samples");

    left->count = stk_manifest_left_out(manifest);
    /* If that run was interrupted between its last two removals, the list is gone, but the caller
     * had received it by then. */
    if (status == 0 &&
        (left->count == 0 || stk_io_stat_path(staging->io, path, &about, NULL) == 0)) {
        status = report_open(&report, left, false, error);
        if (status == 0 && left->count > 0) {
            status = stk_bad_sample_file_read(staging->io, path, report_add, &report, error);
            if (status == 0) {
                status =
                    stk_fail(error, STOKER_ERROR_CORRUPT, "the list of samples left out is damaged",
                             "remove the .part folder and pack again", "'%.400s'", path);
            }
            status = status < 0 ? status : 0;
        }
        status = report_end(&report, status, error);
    }
    stk_free(path);
    return status;
}

void stk_left_out_fail(struct stk_left_out *left, struct stoker_error *error)
{
    const struct stk_left_out_options *options = &left->options;
    bool count = options->samples_max > 0 && left->count > options->samples_max;
    char first[FIRST_BYTES];

    if (!left->locked.damaged) {
        return;
    }
    (void)fail_with_list(left, false, NULL); /* an error is already set */
    if (options->skip && error->status == STOKER_ERROR_LIMIT) {
        stk_bad_sample_describe(left->list.items, left->list.count, first, sizeof first);
        stk_fail(error, STOKER_ERROR_LIMIT,
                 count ? "more samples are damaged than bad_samples_max allows"
                       : "a larger share of the samples is damaged than bad_share_max allows",
                 count ? "repair the data, or raise bad_samples_max; the quarantine lists them all"
                       : "repair the data, or raise bad_share_max; the quarantine lists them all",
                 "%llu damaged, %llu of %llu allowed: %s", (unsigned long long)left->count,
                 (unsigned long long)left->most, (unsigned long long)left->sample_count, first);
    }
}
