/* Verify: a thread that runs the stages, and the caller, who takes their findings. */
#include "tools/verify/verify.h"

#include "base/mem.h"
#include "base/options.h"
#include "dataset/dataset_scan.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <string.h>

enum { FILES_AHEAD = 64 }; /* of a store, prefetched for a worker */

static int resolve(struct stoker_verify_options *options,
                   const struct stoker_verify_options *user_options, struct stoker_error *error);
static int prepare(struct stoker_verify *verify, struct stoker_error *error);
static int run(void *context, uint32_t thread, struct stoker_error *error);

int stoker_verify_open(struct stoker_verify **verify_out, struct stoker_engine *engine,
                       const struct stoker_verify_options *options, struct stoker_error *error)
{
    struct stk_background_job_options job = {
        .name = "verify", .thread_name = "stoker-verify", .run = run};
    struct stoker_verify *verify;
    int status;

    *verify_out = NULL;
    status = stk_engine_check(engine, error);
    if (status < 0) {
        return status;
    }
    verify = stk_alloc(1, sizeof *verify);
    if (!verify) {
        return stk_fail(error, -ENOMEM, "cannot verify", "free memory", "verify");
    }
    verify->engine = engine;
    stk_background_job_init(&verify->job, engine);
    status = resolve(&verify->options, options, error);
    status = status < 0 ? status : prepare(verify, error);
    job.context = verify;
    status = status < 0 ? status : stk_background_job_start(&verify->job, &job, error);
    if (status < 0) {
        stoker_verify_close(verify);
        return status;
    }
    *verify_out = verify;
    return 0;
}

static int resolve(struct stoker_verify_options *options,
                   const struct stoker_verify_options *user_options, struct stoker_error *error)
{
    int status =
        stk_options_read(options, sizeof *options, offsetof(struct stoker_verify_options, deep),
                         user_options, "verify options", error);

    if (status < 0) {
        return status;
    }
    if (!options->urls || options->url_count == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no data set is set",
                        "set urls and url_count", "verify options");
    }
    if (options->keep_unverified && !options->repair) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "keep_unverified is for repair only",
                        "set repair as well, or leave it out", "verify options");
    }
    options->findings_max = options->findings_max ? options->findings_max : 10000;
    options->pixels_max = options->pixels_max ? options->pixels_max : 178956970;
    options->decode_bytes_max = options->decode_bytes_max ? options->decode_bytes_max : 1u << 30;
    options->key_bytes_max = options->key_bytes_max ? options->key_bytes_max : 4096;
    options->header_bytes_max = options->header_bytes_max ? options->header_bytes_max : 1u << 20;
    options->decompressed_bytes_max =
        options->decompressed_bytes_max ? options->decompressed_bytes_max : 1ull << 40;
    options->decompression_ratio_max =
        options->decompression_ratio_max ? options->decompression_ratio_max : 1100;
    return 0;
}

/* Requests metadata of remote objects together, since the listing may be too old or incomplete, and
 * one request after the other would take a round trip each. Only a hint. */
static void prefetch_metadata(struct stoker_verify *verify, uint64_t first, uint64_t end)
{
    const char *text = verify->objects.text;
    const uint64_t *paths = verify->objects.paths;
    size_t bytes = 0;
    char *names, *at;

    if (first == end || !stk_io_is_url(text + paths[first])) {
        return;
    }
    for (uint64_t i = first; i < end; i++) {
        bytes += strlen(text + paths[i]) + 1;
    }
    names = at = stk_alloc(1, bytes);
    for (uint64_t i = first; i < end && names; i++) {
        at = stpcpy(at, text + paths[i]) + 1;
    }
    if (names) {
        stk_vfs_prefetch_metadata(verify->engine->io, names, end - first);
    }
    stk_free(names);
}

/* Turns the files that the listing left out into findings. */
static int report_problems(struct stoker_verify *verify, struct stk_verify_findings *findings,
                           struct stoker_error *error)
{
    static const struct {
        uint32_t kind;
        const char *what, *advice;
    } rows[] = {
        [STK_SOURCE_UNREADABLE] = {STOKER_FINDING_UNREADABLE,
                                   "the file cannot be read: a link to nothing, a pipe or a device",
                                   "repair the link, or remove it"},
        [STK_SOURCE_EMPTY_CLASS] = {STOKER_FINDING_EMPTY, "a class folder has no images",
                                    "put images into it, remove it, or pass allow_empty"},
        [STK_SOURCE_SYSTEM_FILE] = {STOKER_FINDING_SKIPPED,
                                    "left by an operating system or a notebook, and left out",
                                    "nothing to do; it may be removed"},
    };
    int status = 0;

    for (uint64_t i = 0; i < verify->objects.problems_listed && status == 0; i++) {
        const struct stk_source_problem *problem = &verify->objects.problems[i];
        struct stoker_error cause = {0};

        stk_fail(&cause, problem->status ? problem->status : STOKER_ERROR_UNSUPPORTED,
                 rows[problem->kind].what, rows[problem->kind].advice, "%s", "");
        stk_error_set_location(&cause, problem->path, STOKER_NO_OFFSET, NULL);
        status = stk_verify_add_finding(verify, findings, rows[problem->kind].kind, &cause, "");
    }
    return status < 0 ? stk_fail_memory(error, "findings") : 0;
}

/* Lists the objects, gets the sizes of tars (for the progress), creates the stages. */
static int prepare(struct stoker_verify *verify, struct stoker_error *error)
{
    struct stk_io *io = verify->engine->io;
    bool folder;
    struct stoker_dataset_options named = {.struct_size = sizeof named,
                                           .urls = verify->options.urls,
                                           .url_count = verify->options.url_count,
                                           .skip_files = 1};
    int status = stk_dataset_new(&verify->named, verify->engine, &named, error);

    if (status == 0) { /* they are shown */
        verify->options.urls = verify->named->options.urls;
    }
    status = status < 0 ? status : stk_dataset_list(verify->named, error);
    if (status == 0) {
        verify->objects = verify->named->objects;
    }
    if (status < 0) {
        return status;
    }
    folder = verify->objects.kind == STK_SOURCE_FOLDER;
    if (!folder) {
        prefetch_metadata(verify, 0, verify->objects.count);
    }
    for (uint64_t i = 0; i < verify->objects.count && !folder; i++) {
        struct stk_stat about = {0};
        const char *path = stk_source_files_path(&verify->objects, i);

        if (stk_io_stat_path(io, path, &about, NULL) == 0) {
            verify->bytes_total += about.bytes;
        }
    }
    verify->stage_count =
        2 + (folder ? (verify->objects.count + STK_VERIFY_FILES - 1) / STK_VERIFY_FILES
                    : verify->objects.count);
    verify->locked.stages = stk_alloc(verify->stage_count, sizeof *verify->locked.stages);
    if (verify->options.repair) {
        verify->repaired_objects =
            stk_alloc(verify->objects.count, sizeof *verify->repaired_objects);
    }
    if (!verify->locked.stages || (verify->options.repair && !verify->repaired_objects)) {
        return stk_fail(error, -ENOMEM, "cannot verify", "free memory", "%llu shards",
                        (unsigned long long)verify->objects.count);
    }
    status = stk_manifest_roots_open(verify, &verify->locked.stages[0].findings, error);
    status = status < 0
                 ? status
                 : stk_verify_indexes_open(verify, &verify->locked.stages[0].findings, error);
    status =
        status < 0 ? status : report_problems(verify, &verify->locked.stages[0].findings, error);
    verify->options.urls = NULL; /* borrowed until here */
    return status;
}

void stoker_verify_close(struct stoker_verify *verify)
{
    if (!verify || !stk_background_job_end(&verify->job)) {
        return;
    }
    for (uint64_t i = 0; verify->locked.stages && i < verify->stage_count; i++) {
        stk_verify_findings_deinit(&verify->locked.stages[i].findings);
    }
    stk_free(verify->locked.stages);
    stk_free(verify->repaired_objects);
    stk_manifest_roots_deinit(verify);
    if (verify->named) {
        stk_dataset_release(verify->named);
    }
    stk_background_job_deinit(&verify->job);
    stk_free(verify);
}

/* ---- the thread ------------------------------------------------------------------------- */

static void stage_done(struct stoker_verify *verify, uint64_t stage)
{
    pthread_mutex_lock(&verify->job.lock);
    verify->locked.stages[stage].done = true;
    pthread_cond_broadcast(&verify->job.changed);
    pthread_mutex_unlock(&verify->job.lock);
}

static int check_shard(struct stoker_verify *verify, uint64_t object,
                       struct stk_verify_findings *findings, struct stoker_error *error)
{
    struct stk_shard_check check;
    int status;

    stk_shard_check_init(&check, verify, findings);
    status = stk_manifest_roots_report_extra(verify, object, findings, error);
    status = status < 0 ? status : stk_shard_check_run(&check, object, error);
    stk_shard_check_deinit(&check);
    atomic_fetch_add_explicit(&verify->count.shards, 1, memory_order_relaxed);
    return status;
}

static int check_files(struct stoker_verify *verify, uint64_t first, uint64_t end,
                       struct stk_verify_findings *findings, struct stoker_error *error)
{
    struct stk_io *io = verify->engine->io;
    struct stk_shard_check check;
    uint64_t ahead = first;
    int status = 0;

    stk_shard_check_init(&check, verify, findings);
    prefetch_metadata(verify, first, end);
    for (uint64_t i = first; i < end && status == 0; i++) {
        if (stk_background_job_is_stopping(&verify->job)) {
            break;
        }
        for (; ahead < stk_min(i + FILES_AHEAD, end); ahead++) {
            stk_vfs_prefetch_head(io, stk_source_files_path(&verify->objects, ahead), &check);
        }
        check.damage = 0;
        status = stk_shard_check_file(&check, i, error);
        if (verify->repaired_objects && check.damage > 0 && !check.broken) {
            verify->repaired_objects[i].state = STK_REPAIR_MOVE_FILE;
        }
        atomic_fetch_add_explicit(&verify->count.shards, 1, memory_order_relaxed);
    }
    stk_vfs_prefetch_release(io, &check);
    stk_shard_check_deinit(&check);
    return status;
}

static int verify_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_verify *verify = context;
    struct stk_verify_findings *findings = &verify->locked.stages[round + 1].findings;
    uint64_t first = round * STK_VERIFY_FILES;
    int status = 0;

    if (stk_background_job_is_stopping(&verify->job)) {
        return 0;
    }
    status =
        verify->objects.kind == STK_SOURCE_FOLDER
            ? check_files(verify, first, stk_min(first + STK_VERIFY_FILES, verify->objects.count),
                          findings, error)
            : check_shard(verify, round, findings, error);
    if (status == 0) {
        stage_done(verify, round + 1);
    }
    return status;
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_verify *verify = context;
    struct stk_verify_findings *last = &verify->locked.stages[verify->stage_count - 1].findings;
    int status;

    (void)thread;
    stage_done(verify, 0);
    status =
        stk_engine_parallel(verify->engine, verify->stage_count - 2, verify_round, verify, error);
    if (status == 0 && !stk_background_job_is_stopping(&verify->job)) {
        status = stk_manifest_roots_report_missing(verify, last, error);
        status = status < 0 ? status : stk_verify_indexes_compare(verify, last, error);
        if (status == 0 && verify->options.repair) {
            status = stk_repair_finish(verify, last, error);
        }
    }
    if (status == 0) {
        stage_done(verify, verify->stage_count - 1);
    }
    if (verify->options.repair) {
        stk_repair_abandon(verify);
    }
    return status;
}

/* ---- the caller ------------------------------------------------------------------------- */

/* Takes the next finding of the stages that are done, in their order. */
static bool take_locked(void *context, void *entry_out)
{
    struct stoker_verify *verify = context;

    while (verify->locked.next < verify->stage_count) {
        struct stk_verify_stage *stage = &verify->locked.stages[verify->locked.next];
        struct stk_verify_finding *finding = stage->done ? stage->findings.first : NULL;

        if (finding) {
            stage->findings.first = finding->next;
            stage->findings.last = finding->next ? stage->findings.last : NULL;
            *(struct stk_verify_finding **)entry_out = finding;
            return true;
        }
        if (!stage->done) {
            return false;
        }
        verify->locked.next++;
    }
    return false;
}

int stoker_verify_next(struct stoker_verify *verify, uint32_t timeout_ms,
                       struct stoker_finding *finding, struct stoker_error *error)
{
    struct stk_verify_finding *taken;
    int status = stk_background_job_next(&verify->job, timeout_ms, take_locked, &taken, error);

    if (status == STK_BACKGROUND_JOB_RUNNING) {
        return stk_fail(error, STOKER_ERROR_AGAIN, "no finding yet", "call again", "%u ms",
                        timeout_ms);
    }
    if (status != STK_BACKGROUND_JOB_ENTRY) {
        return status;
    }
    stk_verify_finding_move(taken, finding);
    return 1;
}

int stoker_verify_progress(struct stoker_verify *verify, struct stoker_verify_progress *progress)
{
    struct stoker_verify_progress full = {0};

    full.shards = atomic_load_explicit(&verify->count.shards, memory_order_relaxed);
    full.shards_total = verify->objects.count;
    full.bytes = atomic_load_explicit(&verify->count.bytes, memory_order_relaxed);
    full.bytes_total = verify->bytes_total;
    full.samples = atomic_load_explicit(&verify->count.samples, memory_order_relaxed);
    full.members = atomic_load_explicit(&verify->count.members, memory_order_relaxed);
    full.findings = atomic_load_explicit(&verify->count.findings, memory_order_relaxed);
    full.notes = atomic_load_explicit(&verify->count.notes, memory_order_relaxed);
    full.findings_kept = atomic_load_explicit(&verify->count.listed, memory_order_relaxed);
    full.repaired = atomic_load_explicit(&verify->count.repaired, memory_order_relaxed);
    full.dropped = atomic_load_explicit(&verify->count.dropped, memory_order_relaxed);
    full.skipped = atomic_load_explicit(&verify->count.skipped, memory_order_relaxed);
    full.unverified = atomic_load_explicit(&verify->count.unproven, memory_order_relaxed);
    return stk_options_write_output(progress, &full, sizeof full, "verify progress", NULL);
}
