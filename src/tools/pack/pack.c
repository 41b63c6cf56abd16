/* Packs a data set: a thread plans, lets the engine write shards in parallel, and commits. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/retry.h"
#include "base/text/text_match.h"
#include "engine/background_job.h"
#include "tools/pack/left_out.h"
#include "tools/pack/pack_plan.h"
#include "tools/pack/pack_read.h"
#include "tools/pack/staging.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHARD_BYTES_DEFAULT (256u << 20)
#define SHARD_BYTES_MIN 4096u
#define QUALITY_DEFAULT 90u
#define RATIO_SAMPLES 64u /* samples whose pictures estimate the ratio of all */
#define PPM 1000000u
#define BAD_LIST_DEFAULT 10000u
#define FOLDERS_MAX 1000 /* limit of the folders above the destination that are checked */

struct stoker_pack {
    struct stoker_dataset *dataset; /* held; const after open, as all down to the thread */
    struct stoker_pack_options options;
    char *destination, *pattern; /* owned */
    struct stk_pack_plan plan;   /* of the job's thread, as all down to the counters */
    struct stk_staging staging;
    uint64_t *todo;           /* owned: shards that are to be written */
    const char **classes;     /* owned array; names borrowed from the dataset */
    struct stk_left_out left; /* its list: const once ended */
    struct stk_background_job job;
    _Atomic uint32_t phase;
    _Atomic bool is_shuffled;
    _Atomic uint64_t shards, shards_done, samples, samples_done, bytes, bytes_done;
    _Atomic uint64_t shards_resumed, samples_resumed, bytes_resumed, resized, copied;
    _Atomic uint64_t retries;
};

static int resolve(struct stoker_pack *pack, const struct stoker_pack_options *user_options,
                   struct stoker_error *error);
static int run(void *context, uint32_t thread, struct stoker_error *error);
static int pack_all(struct stoker_pack *pack, struct stoker_error *error);
static void finish_locked(void *context);
static int write_shards(struct stoker_pack *pack, struct stoker_error *error);
static int write_shard(void *context, uint64_t round, struct stoker_error *error);
static int commit(struct stoker_pack *pack, struct stoker_error *error);

int stoker_pack_open(struct stoker_pack **pack_out, struct stoker_dataset *dataset,
                     const struct stoker_pack_options *options, struct stoker_error *error)
{
    struct stk_background_job_options job = {
        .name = "pack", .run = run, .finish_locked = finish_locked};
    struct stoker_pack *pack;
    int status = stk_engine_check(dataset->engine, error);

    *pack_out = NULL;
    if (status < 0) {
        return status;
    }
    pack = stk_alloc(1, sizeof *pack);
    if (!pack) {
        return stk_fail_memory(error, "pack");
    }
    pack->dataset = dataset;
    stk_dataset_retain(dataset);
    stk_background_job_init(&pack->job, dataset->engine);
    pack->phase = STOKER_PACK_LISTING;
    job.context = pack;
    status = resolve(pack, options, error);
    status = status < 0 ? status : stk_background_job_start(&pack->job, &job, error);
    if (status < 0) {
        stoker_pack_close(pack);
        return status;
    }
    *pack_out = pack;
    return 0;
}

static int open_left_out(struct stoker_pack *pack, struct stoker_error *error)
{
    struct stoker_pack_options *options = &pack->options;
    struct stk_left_out_options left = {.quarantine = options->quarantine,
                                        .samples_max = options->bad_samples_max,
                                        .share_max = options->bad_share_max};

    options->on_error = options->on_error ? options->on_error : STOKER_ON_ERROR_RAISE;
    if (options->on_error > STOKER_ON_ERROR_SKIP || !(options->bad_share_max >= 0) ||
        options->bad_share_max > 1) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a pack option is out of its range",
                        "on_error raise or skip, bad_share_max from 0 to 1", "pack options");
    }
    left.skip = options->on_error == STOKER_ON_ERROR_SKIP;
    left.list_max = options->bad_list_max ? options->bad_list_max : BAD_LIST_DEFAULT;
    return stk_left_out_open(&pack->left, &left, &pack->staging, pack->pattern, error);
}

/* Returns the path without '/' at its end; owned by the caller. */
static char *strip_slashes(const char *path)
{
    char *text = stk_strdup(stk_text_skip_file_scheme(path));

    for (size_t bytes = text ? strlen(text) : 0; bytes > 1 && text[bytes - 1] == '/'; bytes--) {
        text[bytes - 1] = 0;
    }
    return text;
}

static int resolve(struct stoker_pack *pack, const struct stoker_pack_options *user_options,
                   struct stoker_error *error)
{
    struct stoker_pack_options *options = &pack->options;
    int status = stk_options_read(options, sizeof *options,
                                  offsetof(struct stoker_pack_options, shard_bytes), user_options,
                                  "pack options", error);

    if (status < 0) {
        return status;
    }
    if (!options->destination) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no destination is set", "set destination",
                        "pack options");
    }
    options->shard_bytes = options->shard_bytes ? options->shard_bytes : SHARD_BYTES_DEFAULT;
    options->quality = options->quality ? options->quality : QUALITY_DEFAULT;
    if (!options->shuffle) {
        options->shuffle = stk_index_is_sequential(pack->dataset->index) ? STOKER_SHUFFLE_NONE
                                                                         : STOKER_SHUFFLE_FULL;
    }
    options->seed = options->shuffle == STOKER_SHUFFLE_FULL ? options->seed : 0;
    pack->is_shuffled = options->shuffle == STOKER_SHUFFLE_FULL;
    options->io_retries = options->io_retries ? options->io_retries : STK_RETRY_COUNT_DEFAULT;
    options->io_retries = options->io_retries == STOKER_NO_RETRIES ? 0 : options->io_retries;
    options->io_retry_wait_ms =
        options->io_retry_wait_ms ? options->io_retry_wait_ms : STK_RETRY_WAIT_DEFAULT_MS;
    if (options->shard_bytes < SHARD_BYTES_MIN || options->quality > 100 ||
        options->short_side > 1u << 16 ||
        (options->shuffle != STOKER_SHUFFLE_NONE && options->shuffle != STOKER_SHUFFLE_FULL)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a pack option is out of its range",
                        "shards of 4 KiB or more, quality 1 to 100, shuffle full or none",
                        "pack options");
    }
    pack->destination = strip_slashes(options->destination);
    pack->pattern = stk_strdup(options->pattern ? options->pattern : "shard-%06d.tar");
    if (!pack->destination || !pack->pattern) {
        return stk_fail_memory(error, "pack");
    }
    status = open_left_out(pack, error);
    options->destination = options->pattern = options->quarantine = NULL; /* borrowed until here */
    return status < 0 ? status : stk_shard_pattern_check(pack->pattern, error);
}

void stoker_pack_close(struct stoker_pack *pack)
{
    if (!pack || !stk_background_job_end(&pack->job)) {
        return;
    }
    stk_dataset_release(pack->dataset);
    stk_background_job_deinit(&pack->job);
    stk_free(pack->destination);
    stk_free(pack->pattern);
    stk_left_out_close(&pack->left);
    stk_free(pack);
}

static void fill_progress(struct stoker_pack *pack, struct stoker_pack_progress *progress)
{
    struct stoker_pack_progress full = {0};

    full.phase = pack->phase;
    full.shards = pack->shards;
    full.shards_done = pack->shards_done;
    full.samples = pack->samples;
    full.samples_done = pack->samples_done;
    full.bytes = pack->bytes;
    full.bytes_done = pack->bytes_done;
    full.shards_resumed = pack->shards_resumed;
    full.samples_resumed = pack->samples_resumed;
    full.bytes_resumed = pack->bytes_resumed;
    full.resized = pack->resized;
    full.copied = pack->copied;
    full.samples_left_out = pack->left.count;
    full.retries = pack->retries;
    full.shuffled = pack->is_shuffled;
    full.seed = pack->is_shuffled ? pack->options.seed : 0;
    full.run_ns = stk_background_job_elapsed_ns(&pack->job);
    stk_options_write_output(progress, &full, sizeof full, "pack progress", NULL);
}

int stoker_pack_next(struct stoker_pack *pack, uint32_t timeout_ms,
                     struct stoker_pack_progress *progress, struct stoker_error *error)
{
    int status =
        progress ? stk_options_check_output(progress, sizeof *progress,
                                            sizeof progress->struct_size, "pack progress", error)
                 : 0;

    if (status < 0) {
        return status;
    }
    status = stk_background_job_next(&pack->job, timeout_ms, NULL, NULL, error);
    if (status != STOKER_ERROR_FORKED && progress) {
        fill_progress(pack, progress);
    }
    return status == STK_BACKGROUND_JOB_RUNNING ? 1 : status;
}

void stoker_pack_stop(struct stoker_pack *pack)
{
    if (stk_engine_check(pack->dataset->engine, NULL) == 0) {
        stk_background_job_stop(&pack->job);
    }
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_pack *pack = context;
    int status = pack_all(pack, error);

    (void)thread;
    if (status < 0) {
        stk_left_out_fail(&pack->left, error);
    }
    stk_pack_plan_close(&pack->plan);
    stk_staging_close(&pack->staging);
    stk_free(pack->todo);
    stk_free(pack->classes);
    return status;
}

static void finish_locked(void *context)
{
    struct stoker_pack *pack = context;

    if (pack->job.locked.status == 0) {
        pack->phase = STOKER_PACK_DONE;
    }
}

/* Settings that determine the bytes, for the plan file and the manifest. */
static json_t *make_settings(const struct stoker_pack *pack)
{
    const struct stoker_pack_options *options = &pack->options;
    char source[2 * sizeof pack->plan.source + 1], seed[24];

    stk_hex(pack->plan.source, sizeof pack->plan.source, source);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)options->seed);
    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:s}", "by", "pack", "order",
                     pack->plan.shuffled ? "shuffled" : "source", "seed", seed, "shard_bytes",
                     (json_int_t)options->shard_bytes, "pattern", pack->pattern, "short_side",
                     (json_int_t)options->short_side, "quality",
                     (json_int_t)(options->short_side ? options->quality : 0), "source", source);
}

static int open_reader(struct stoker_pack *pack, struct stk_pack_read *reader,
                       struct stoker_error *error)
{
    struct stk_pack_read_options options = {
        .short_side = pack->options.short_side,
        .quality = pack->options.quality,
        .strict = pack->options.on_error == STOKER_ON_ERROR_SKIP,
        .io_retries = pack->options.io_retries,
        .io_retry_wait_ms = pack->options.io_retry_wait_ms,
        .stop = &pack->job.stopping,
        .lock = &pack->job.lock,
        .woken = &pack->job.changed,
        .retries = &pack->retries,
    };

    return stk_pack_read_open(reader, &pack->plan, &options, error);
}

/* Measures how much smaller images become, with a fixed choice of samples. */
static int find_ratio(struct stoker_pack *pack, uint64_t *ratio_out, struct stoker_error *error)
{
    uint64_t count = stk_min(pack->plan.sample_count, RATIO_SAMPLES);
    struct stk_pack_read reader;
    int status;

    *ratio_out = PPM;
    if (pack->options.short_side == 0) {
        return 0;
    }
    status = open_reader(pack, &reader, error);
    for (uint64_t i = 0; status == 0 && i < count; i++) {
        /* Distribute over all samples, without overflow of 64 bits. */
        uint64_t sample =
            pack->plan.sample_count / count * i + pack->plan.sample_count % count * i / count;

        status = stk_pack_read_sample(&reader, sample, NULL, error);
        if (status < 0 && reader.is_sample_damage) {
            status = 0; /* met again, and weighed, when its shard is written */
        }
    }
    if (status == 0 && reader.bytes_before > 0) {
        *ratio_out = reader.bytes_after * PPM / reader.bytes_before;
    }
    stk_pack_read_close(&reader);
    return status;
}

/* Checks whether an earlier run was interrupted before its last step. */
static int find_complete(struct stoker_pack *pack, struct stoker_error *error)
{
    struct stk_manifest manifest;
    int status = stk_staging_manifest(&pack->staging, &manifest, error);

    if (status == 0) {
        pack->samples_done = pack->samples_resumed = manifest.samples;
        status = stk_left_out_resume_list(&pack->left, &manifest, error);
        stk_manifest_deinit(&manifest);
    }
    return status;
}

/* Returns the folder of the source that is this one; NULL if none is. */
static const char *find_source_hash(const struct stoker_pack *pack, const struct stk_stat *folder)
{
    const struct stoker_dataset_options *source = &pack->dataset->options;

    for (size_t i = 0; i < source->url_count; i++) {
        struct stk_stat about;

        if (stk_io_stat_path(pack->dataset->engine->io, source->urls[i], &about, NULL) == 0 &&
            about.kind == STK_ENTRY_DIRECTORY && about.device == folder->device &&
            about.inode == folder->inode) {
            return source->urls[i];
        }
    }
    return NULL;
}

/* Refuses a destination inside a folder of the source, since its files would be part of the source
 * when the work continues. Folders that cannot be read are skipped. */
static int refuse_inside(struct stoker_pack *pack, struct stoker_error *error)
{
    char *at = stk_staging_parent(pack->destination);
    struct stk_stat about = {0}, below = {0};
    int status = at ? 0 : stk_fail_memory(error, "pack");

    for (int i = 0; status == 0 && i < FOLDERS_MAX &&
                    stk_io_stat_path(pack->dataset->engine->io, at, &about, NULL) == 0 &&
                    (about.device != below.device || about.inode != below.inode);
         i++) {
        const char *source = find_source_hash(pack, &about);
        char *above = stk_staging_path(at, "..", "");

        if (source) {
            status = stk_fail(error, STOKER_ERROR_ARGUMENT, "the destination is inside the source",
                              "choose a folder next to it: files in the source would be read again",
                              "'%.200s' in '%.200s'", pack->destination, source);
        } else if (!above) {
            status = stk_fail_memory(error, "pack");
        }
        stk_free(at);
        at = above;
        below = about;
    }
    stk_free(at);
    return status;
}

static int pack_all(struct stoker_pack *pack, struct stoker_error *error)
{
    char stamp[2 * sizeof pack->plan.stamp + 1];
    json_t *settings = NULL;
    uint64_t ratio;
    int status = 0;

    status = stk_pack_plan_open(&pack->plan, pack->dataset, pack->options.shuffle,
                                pack->options.seed, &pack->job.stopping, error);
    if (status < 0) {
        return status;
    }
    pack->samples = pack->plan.sample_count + pack->dataset->bad_samples.count;
    status = refuse_inside(pack, error);
    status = status < 0 ? status
                        : stk_left_out_check(&pack->left, pack->dataset->engine->io,
                                             pack->destination, error);
    if (status < 0) {
        return status;
    }
    settings = make_settings(pack);
    if (!settings) {
        return stk_fail_memory(error, "pack");
    }
    stk_hex(pack->plan.stamp, sizeof pack->plan.stamp, stamp);
    status = stk_staging_open(&pack->staging, pack->dataset->engine->io, pack->destination,
                              settings, stamp, error);
    json_decref(settings);
    status = status < 0
                 ? status
                 : stk_left_out_check_writable(&pack->left, pack->dataset->engine->io, error);
    if (status == 0 && pack->staging.state == STK_STAGING_OPEN) {
        status = find_ratio(pack, &ratio, error);
        status = status < 0 ? status
                            : stk_pack_plan_split(&pack->plan, pack->options.shard_bytes, ratio,
                                                  &pack->job.stopping, error);
        if (status == 0 && pack->plan.shard_count > stk_shard_pattern_max(pack->pattern)) {
            status = stk_fail(error, STOKER_ERROR_LIMIT, "the pattern cannot name that many shards",
                              "use more digits, or larger shards", "'%.200s': %llu shards",
                              pack->pattern, (unsigned long long)pack->plan.shard_count);
        }
        status = status < 0 ? status : write_shards(pack, error);
        status = status < 0 ? status : stk_left_out_write_list(&pack->left, error);
    } else if (status == 0) {
        status = find_complete(pack, error);
    }
    return status < 0 ? status : commit(pack, error);
}

/* Returns true if a shard of an earlier run equals the one that this run would write. */
static bool is_reused(const struct stoker_pack *pack, const struct stk_shard_done *done,
                      uint64_t shard)
{
    const struct stk_pack_plan *plan = &pack->plan;

    return done->samples + done->left_out.count == plan->starts[shard + 1] - plan->starts[shard] &&
           (pack->options.on_error == STOKER_ON_ERROR_SKIP ? done->undecodable == 0
                                                           : done->left_out.count == 0);
}

/* Finds shards of an earlier run, and writes the rest. */
static int write_shards(struct stoker_pack *pack, struct stoker_error *error)
{
    const struct stk_pack_plan *plan = &pack->plan;
    char name[STK_SHARD_NAME_MAX];
    uint64_t todo = 0;
    int status;

    pack->todo = stk_alloc(plan->shard_count, sizeof *pack->todo);
    if (!pack->todo) {
        return stk_fail_memory(error, "pack");
    }
    status = stk_left_out_begin(&pack->left, &pack->dataset->bad_samples, plan->sample_count,
                                plan->shard_count, error);
    pack->shards = plan->shard_count;
    pack->bytes = plan->bytes;
    for (uint64_t i = 0; status >= 0 && i < plan->shard_count; i++) {
        struct stk_shard_done done;

        stk_shard_pattern_name(pack->pattern, i, name, sizeof name);
        status = stk_shard_done_read(&done, pack->staging.files, pack->staging.directory, name,
                                     pack->staging.plan, error);
        if (status < 0) {
            break;
        }
        if (status == 0 || !is_reused(pack, &done, i)) {
            pack->todo[todo++] = i;
        } else {
            stk_left_out_shard_reused(&pack->left, i, done.left_out.count);
            pack->shards_resumed++;
            pack->samples_resumed += done.samples;
            pack->bytes_resumed += done.bytes;
        }
        stk_shard_done_deinit(&done);
    }
    pack->shards_done = pack->shards_resumed;
    pack->samples_done = pack->samples_resumed;
    pack->bytes_done = pack->bytes_resumed;
    pack->phase = STOKER_PACK_WRITING;
    status = status < 0 ? status : stk_left_out_check_limit(&pack->left, error);
    return status < 0 ? status
                      : stk_engine_parallel(pack->dataset->engine, todo, write_shard, pack, error);
}

static int write_samples(struct stoker_pack *pack, uint64_t shard, struct stk_pack_read *reader,
                         struct stk_shard_file *out, struct stoker_error *error)
{
    const struct stk_pack_plan *plan = &pack->plan;
    uint64_t before = 0;
    int status = 0;

    for (uint64_t i = plan->starts[shard]; status == 0 && i < plan->starts[shard + 1]; i++) {
        uint64_t resized = reader->resized, copied = reader->copied;
        uint64_t sample = stk_pack_plan_sample(plan, i);

        status = stk_pack_read_sample(reader, sample, out, error);
        if (status < 0 && reader->is_sample_damage) {
            status = stk_left_out_add(&pack->left, out, sample, error);
        } else {
            pack->samples_done += status == 0;
        }
        pack->bytes_done += stk_shard_file_bytes(out) - before;
        before = stk_shard_file_bytes(out);
        pack->resized += reader->resized - resized;
        pack->copied += reader->copied - copied;
    }
    if (status == 0) {
        status = stk_shard_file_finish(out, error);
        pack->bytes_done += stk_shard_file_bytes(out) - before;
    }
    return status;
}

static int write_shard(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_pack *pack = context;
    uint64_t shard = pack->todo[round];
    struct stk_pack_read reader = {0};
    struct stk_shard_file *out = NULL;
    struct stoker_error local = {0};
    char name[STK_SHARD_NAME_MAX];
    int status;

    stk_shard_pattern_name(pack->pattern, shard, name, sizeof name);
    status = stk_shard_file_open(&out, pack->staging.files, pack->staging.directory, name,
                                 pack->staging.plan, &local);
    status = status < 0 ? status : open_reader(pack, &reader, &local);
    status = status < 0 ? status : write_samples(pack, shard, &reader, out, &local);
    if (status == 0) {
        stk_left_out_shard_complete(&pack->left, shard, out);
        pack->shards_done++;
    } else {
        if (out) {
            stk_left_out_shard_failed(&pack->left, shard, out);
        }
        if (error) {
            *error = local;
        }
    }
    stk_pack_read_close(&reader);
    stk_shard_file_close(out);
    return status;
}

static int commit(struct stoker_pack *pack, struct stoker_error *error)
{
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stk_staging_content content = {.pattern = pack->pattern,
                                          .shard_count = pack->plan.shard_count,
                                          .left_out = pack->left.count};

    pack->phase = STOKER_PACK_COMMITTING;
    stoker_dataset_info(pack->dataset, &info);
    pack->classes = stk_alloc(stk_max(info.class_count, 1), sizeof *pack->classes);
    if (!pack->classes) {
        return stk_fail_memory(error, "pack");
    }
    for (uint64_t i = 0; i < info.class_count; i++) {
        stoker_dataset_class(pack->dataset, i, &pack->classes[i]);
    }
    content.classes = pack->classes;
    content.class_count = info.class_count;
    return stk_staging_commit(&pack->staging, &content, error);
}

uint64_t stoker_pack_quarantine_count(struct stoker_pack *pack)
{
    return stk_background_job_is_finished(&pack->job, NULL) ? pack->left.list.count : 0;
}

int stoker_pack_quarantine(struct stoker_pack *pack, uint64_t index,
                           struct stoker_quarantine_entry *entry_out)
{
    return index < stoker_pack_quarantine_count(pack)
               ? stk_bad_sample_entry(pack->left.list.items[index], entry_out)
               : STOKER_ERROR_ARGUMENT;
}
