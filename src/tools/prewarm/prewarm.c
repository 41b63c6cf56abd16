/* Workers that list, open and read files, and their progress. */
#include "tools/prewarm/prewarm.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/options.h"
#include "base/thread.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS 100u
#define TRIES 3u /* of a read that times out, if no deadline is set */

#define READS 3
#define RATE_WAIT_NS 20000000u

/* Work for a worker: a piece of an open file, or a file of the listing. */
struct job {
    struct stk_prewarm_file *file;
    uint64_t offset, bytes;
    bool is_new;
};

static int run(void *context, uint32_t thread, struct stoker_error *error);
static int run_share(struct stoker_prewarm *prewarm, struct stoker_error *error);
static void finish_locked(void *context);
static void wake_locked(void *context);

static int resolve(struct stoker_prewarm *prewarm,
                   const struct stoker_prewarm_options *user_options, struct stoker_error *error)
{
    struct stoker_prewarm_options *options = &prewarm->options;
    int status =
        stk_options_read(options, sizeof *options, offsetof(struct stoker_prewarm_options, workers),
                         user_options, "prewarm options", error);

    if (status < 0) {
        return status;
    }
    if (!options->paths || options->path_count == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no path is set", "set paths and path_count",
                        "prewarm options");
    }
    options->workers = options->workers ? options->workers : STK_PREWARM_WORKERS_DEFAULT;
    options->chunk_bytes = options->chunk_bytes ? options->chunk_bytes : STK_PREWARM_PIECE_DEFAULT;
    if (options->workers > STK_PREWARM_WORKERS_MAX ||
        options->chunk_bytes < STK_PREWARM_PIECE_MIN ||
        options->chunk_bytes > STK_PREWARM_PIECE_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an option is out of its range",
                        "at most 64 workers, pieces of 64 KiB to 64 MiB", "prewarm options");
    }
    prewarm->paths = stk_alloc(options->path_count, sizeof *prewarm->paths);
    for (size_t i = 0; prewarm->paths && i < options->path_count; i++) {
        if (stk_url_alias(options->paths[i], &prewarm->paths[i]) < 0) {
            return stk_fail_memory(error, "prewarm");
        }
        prewarm->path_count++;
    }
    prewarm->end_ns =
        options->timeout_s ? prewarm->job.start_ns + options->timeout_s * 1000000000ull : 0;
    return prewarm->paths ? 0 : stk_fail_memory(error, "prewarm");
}

static int open_share(struct stoker_prewarm *prewarm, struct stoker_error *error)
{
    const struct stoker_prewarm_options *options = &prewarm->options;
    struct stk_prewarm_share_options share = {
        .paths = options->paths,
        .path_count = options->path_count,
        .node = options->node,
        .node_count = options->node_count,
        .group_count = options->group_count ? options->group_count : options->node_count,
        .seed = options->seed,
        .budget_bytes = options->budget_bytes,
        .rate_bytes_max = options->rate_bytes_max,
    };

    if (options->node_count == 0 && options->budget_bytes == 0 && options->rate_bytes_max == 0 &&
        options->group_count == 0) {
        return 0;
    }
    if (options->node_count == 0 || options->check || options->touch) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the options do not fit together",
                        "set node_count for a share, and neither check nor touch",
                        "prewarm options");
    }
    return stk_prewarm_share_open(&prewarm->share, prewarm->engine, &share, error);
}

static int start(struct stoker_prewarm *prewarm, struct stoker_error *error)
{
    struct stk_background_job_options job = {.name = "prewarm",
                                             .context = prewarm,
                                             .run = run,
                                             .finish_locked = finish_locked,
                                             .wake_locked = wake_locked,
                                             .threads = prewarm->options.workers};
    uint64_t piece = prewarm->share ? 0 : prewarm->options.chunk_bytes;
    uint64_t bytes = prewarm->options.workers * piece;
    int status = stk_engine_reserve(prewarm->engine, bytes, 0, "pieces of files", error);

    prewarm->reserved = status == 0 ? bytes : 0;
    return status < 0 ? status : stk_background_job_start(&prewarm->job, &job, error);
}

int stoker_prewarm_open(struct stoker_prewarm **prewarm_out, struct stoker_engine *engine,
                        const struct stoker_prewarm_options *options, struct stoker_error *error)
{
    struct stoker_prewarm *prewarm;
    int status = stk_engine_check(engine, error);

    *prewarm_out = NULL;
    if (status < 0) {
        return status;
    }
    prewarm = stk_alloc(1, sizeof *prewarm);
    if (!prewarm) {
        return stk_fail_memory(error, "prewarm");
    }
    stk_cond_init(&prewarm->changed);
    prewarm->engine = engine;
    prewarm->io = engine->io;
    stk_background_job_init(&prewarm->job, engine);
    status = resolve(prewarm, options, error);
    status = status < 0 ? status : open_share(prewarm, error);
    status = status < 0 ? status : start(prewarm, error);
    if (status < 0) {
        stoker_prewarm_close(prewarm);
        return status;
    }
    *prewarm_out = prewarm;
    return 0;
}

static void free_file(struct stk_prewarm_file *file)
{
    if (file->file) {
        stk_io_close_file(file->file);
    }
    stk_free(file->path);
    stk_free(file);
}

void stoker_prewarm_close(struct stoker_prewarm *prewarm)
{
    struct stk_prewarm_file *next;

    if (!prewarm || !stk_background_job_end(&prewarm->job)) {
        return;
    }
    for (struct stk_prewarm_file *file = prewarm->locked.open; file; file = next) {
        next = file->next;
        free_file(file);
    }
    stk_walk_close(prewarm->locked.walk);
    stk_prewarm_share_close(prewarm->share);
    for (size_t i = 0; i < prewarm->path_count; i++) {
        stk_free(prewarm->paths[i]);
    }
    stk_free(prewarm->paths);
    stk_budget_release(&prewarm->engine->budget, prewarm->reserved);
    pthread_cond_destroy(&prewarm->changed);
    stk_background_job_deinit(&prewarm->job);
    stk_free(prewarm);
}

/* Ends the scan of a share at the deadline, since its worker may wait for a download. Returns how
 * long to wait until this is called again. */
static uint32_t limit_scan(struct stoker_prewarm *prewarm, uint32_t timeout_ms)
{
    uint64_t now = stk_engine_now(prewarm->engine);

    if (prewarm->end_ns == 0) {
        return timeout_ms;
    }
    if (now >= prewarm->end_ns) {
        stk_prewarm_share_stop(prewarm->share);
        return timeout_ms;
    }
    return (uint32_t)stk_min(timeout_ms, (prewarm->end_ns - now) / 1000000 + 1);
}

int stoker_prewarm_next(struct stoker_prewarm *prewarm, uint32_t timeout_ms,
                        struct stoker_prewarm_progress *progress, struct stoker_error *error)
{
    struct stoker_prewarm_progress full = {0};
    int status =
        progress ? stk_options_check_output(progress, sizeof *progress,
                                            sizeof progress->struct_size, "prewarm progress", error)
                 : 0;

    if (status < 0) {
        return status;
    }
    if (prewarm->share) {
        timeout_ms = limit_scan(prewarm, timeout_ms);
    }
    status = stk_background_job_next(&prewarm->job, timeout_ms, NULL, NULL, error);
    if (status == STOKER_ERROR_FORKED) {
        return status;
    }
    pthread_mutex_lock(&prewarm->job.lock);
    full.listed = prewarm->locked.listed;
    full.cold_is_known = prewarm->locked.tells_cold;
    pthread_mutex_unlock(&prewarm->job.lock);
    full.files = atomic_load(&prewarm->files);
    full.bytes = atomic_load(&prewarm->bytes);
    full.files_done = atomic_load(&prewarm->files_done);
    full.bytes_done = atomic_load(&prewarm->bytes_done);
    full.bytes_read = prewarm->share ? stk_prewarm_share_downloaded(prewarm->share)
                                     : atomic_load(&prewarm->bytes_read);
    full.bytes_warm = atomic_load(&prewarm->bytes_warm);
    full.bytes_cold = atomic_load(&prewarm->bytes_cold);
    full.files_failed = atomic_load(&prewarm->files_failed);
    full.run_ns = stk_background_job_elapsed_ns(&prewarm->job);
    if (progress) {
        stk_options_write_output(progress, &full, sizeof full, "prewarm progress", NULL);
    }
    return status == STK_BACKGROUND_JOB_RUNNING ? 1 : status;
}

/* ---- the next job ---- */

static bool is_late(struct stoker_prewarm *prewarm)
{
    return prewarm->end_ns > 0 && stk_engine_now(prewarm->engine) >= prewarm->end_ns;
}

static struct stk_prewarm_file *file_of(const char *root, struct stk_walk_entry *entry)
{
    struct stk_prewarm_file *file = stk_alloc(1, sizeof *file);
    size_t bytes = strlen(root) + strlen(entry->name) + 2;
    bool slash = entry->name[0] && root[strlen(root) - 1] != '/';

    if (file) {
        file->path = stk_alloc(1, bytes);
        file->bytes = entry->bytes;
    }
    if (file && file->path) {
        snprintf(file->path, bytes, "%s%s%s", root, slash ? "/" : "", entry->name);
    } else {
        stk_free(file);
        file = NULL;
    }
    stk_free(entry);
    return file;
}

/* Runs one step of the listing, in one worker, without the lock. Returns 1 and a file, 0 if there
 * is none yet. */
static int list_step(struct stoker_prewarm *prewarm, struct stk_prewarm_file **file_out,
                     struct stoker_error *error)
{
    const char *root = prewarm->paths[prewarm->locked.path];
    struct stk_walk_options options = {.io = prewarm->io, .path = root, .deep = true};
    struct stk_walk_entry *entry;
    int status = 0;

    if (!prewarm->locked.walk) {
        status = stk_walk_open(&prewarm->locked.walk, &options, error);
    }
    status = status < 0 ? status : stk_walk_next(prewarm->locked.walk, TICK_MS, &entry, error);
    if (status == STOKER_ERROR_AGAIN) {
        return 0;
    }
    if (status == 1) {
        *file_out = file_of(root, entry);
        return *file_out ? 1 : stk_fail_memory(error, "prewarm");
    }
    stk_walk_close(prewarm->locked.walk); /* it ended, or it failed */
    prewarm->locked.walk = NULL;
    prewarm->locked.path++;
    return status;
}

/* Releases the lock for a while. Returns true if *job is a file that was just found. */
static bool list_locked(struct stoker_prewarm *prewarm, struct job *job)
{
    struct stoker_error error = {0};
    int status;

    prewarm->locked.listing = true;
    pthread_mutex_unlock(&prewarm->job.lock);
    status = list_step(prewarm, &job->file, &error);
    pthread_mutex_lock(&prewarm->job.lock);
    prewarm->locked.listing = false;
    if (status < 0) {
        stk_background_job_fail_locked(&prewarm->job, status, &error);
        prewarm->locked.listed = status == -ENOMEM || prewarm->locked.listed;
    }
    prewarm->locked.listed = prewarm->locked.listed || prewarm->locked.path >= prewarm->path_count;
    pthread_cond_broadcast(&prewarm->changed);
    if (status != 1) {
        return false;
    }
    atomic_fetch_add(&prewarm->files, 1);
    atomic_fetch_add(&prewarm->bytes, job->file->bytes);
    job->is_new = true;
    return true;
}

/* Returns false if there is no more work. */
static bool take_locked(struct stoker_prewarm *prewarm, struct job *job)
{
    *job = (struct job){0};
    for (;;) {
        struct stk_prewarm_file *file = prewarm->locked.open;

        if (stk_background_job_is_stopping(&prewarm->job) || is_late(prewarm)) {
            return false;
        }
        if (file) {
            job->file = file;
            job->offset = file->next_offset;
            job->bytes = stk_min(file->bytes - file->next_offset, prewarm->options.chunk_bytes);
            file->next_offset += job->bytes;
            file->pieces++;
            if (file->next_offset == file->bytes) {
                prewarm->locked.open = file->next;
            }
            break;
        }
        if (!prewarm->locked.listed && !prewarm->locked.listing) {
            if (list_locked(prewarm, job)) {
                break;
            }
        } else if (prewarm->locked.listed && prewarm->locked.busy == 0) {
            return false;
        } else {
            pthread_cond_wait(&prewarm->changed, &prewarm->job.lock);
        }
    }
    prewarm->locked.busy++;
    return true;
}

/* ---- work ---- */

static int64_t read_piece(struct stoker_prewarm *prewarm, const struct job *job, uint8_t *buffer)
{
    uint64_t done = 0;

    for (uint32_t tries = 0; done < job->bytes && !stk_background_job_is_stopping(&prewarm->job);) {
        int64_t got =
            stk_io_read_wait(job->file->file, job->offset + done, buffer, job->bytes - done);

        if (got == STOKER_ERROR_TIMEOUT) { /* an archive may be slow */
            if (prewarm->end_ns > 0 ? is_late(prewarm) : ++tries == TRIES) {
                return got;
            }
            continue;
        }
        if (got <= 0) {
            return got < 0 ? got : (int64_t)done; /* the file was truncated */
        }
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

/* Returns the bytes that are not cached; negative if that is unknown, or not used. */
static int64_t uncached_bytes(struct stoker_prewarm *prewarm, const struct job *job)
{
    return prewarm->options.touch ? -ENOSYS
                                  : stk_io_uncached_bytes(job->file->file, job->offset, job->bytes);
}

/* Skips a piece that is cached completely. Otherwise reads all of it. */
static int read_uncached(struct stoker_prewarm *prewarm, const struct job *job, uint8_t *buffer,
                         struct stoker_error *error)
{
    struct stk_file *file = job->file->file;
    int64_t cold = uncached_bytes(prewarm, job), got = 0;

    if (cold >= 0) {
        pthread_mutex_lock(&prewarm->job.lock);
        prewarm->locked.tells_cold = true;
        pthread_mutex_unlock(&prewarm->job.lock);
        atomic_fetch_add(&prewarm->bytes_warm, job->bytes - stk_min((uint64_t)cold, job->bytes));
    }
    /* A busy mount drops pages of its read-ahead: pages that are still missing are read a second
     * time. */
    for (int i = 0; i < READS && cold != 0 && !prewarm->options.check; i++) {
        got = read_piece(prewarm, job, buffer);
        if (got < 0) {
            return stk_io_fail_read(file, got, "cannot read a file", error);
        }
        atomic_fetch_add(&prewarm->bytes_read, i == 0 ? (uint64_t)got : 0);
        cold = uncached_bytes(prewarm, job);
        if (cold < 0) {
            break;
        }
    }
    if (cold > 0) {
        atomic_fetch_add(&prewarm->bytes_cold, (uint64_t)cold);
    }
    atomic_fetch_add(&prewarm->bytes_done, job->bytes);
    return 0;
}

/* Opens a new file. Pieces of a large one are shared with other workers. */
static int begin_file(struct stoker_prewarm *prewarm, struct job *job, struct stoker_error *error)
{
    struct stk_prewarm_file *file = job->file;
    int status = stk_io_open_file(prewarm->io, file->path, &file->file, error);

    if (status < 0) {
        return status;
    }
    job->bytes = prewarm->options.touch ? stk_min(file->bytes, 1) : file->bytes;
    job->bytes = stk_min(job->bytes, prewarm->options.chunk_bytes);
    file->next_offset = prewarm->options.touch ? file->bytes : job->bytes;
    if (file->next_offset < file->bytes) {
        pthread_mutex_lock(&prewarm->job.lock);
        file->next = prewarm->locked.open;
        prewarm->locked.open = file;
        pthread_cond_broadcast(&prewarm->changed);
        pthread_mutex_unlock(&prewarm->job.lock);
    }
    return 0;
}

static void drop_open_locked(struct stoker_prewarm *prewarm, struct stk_prewarm_file *file)
{
    struct stk_prewarm_file **at = &prewarm->locked.open;

    while (*at && *at != file) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = file->next;
    }
    file->next_offset = file->bytes;
}

static void end_job_locked(struct stoker_prewarm *prewarm, struct job *job, int status,
                           const struct stoker_error *error)
{
    struct stk_prewarm_file *file = job->file;

    prewarm->locked.busy--;
    file->pieces--;
    if (status < 0) {
        stk_background_job_fail_locked(&prewarm->job, status, error);
        drop_open_locked(prewarm, file); /* the rest of it is not read */
        atomic_fetch_add(&prewarm->files_failed, !file->failed);
        file->failed = true;
    }
    if (file->pieces == 0 && file->next_offset == file->bytes) {
        atomic_fetch_add(&prewarm->files_done, !file->failed);
        free_file(file);
    }
    pthread_cond_broadcast(&prewarm->changed);
}

static void finish_locked(void *context)
{
    struct stoker_prewarm *prewarm = context;
    struct stoker_error error = {0};

    if (is_late(prewarm) &&
        (prewarm->locked.open || !prewarm->locked.listed || prewarm->locked.share_is_late)) {
        stk_fail(&error, STOKER_ERROR_TIMEOUT, "not all files were read in time",
                 "run the same command again to continue", "%u s", prewarm->options.timeout_s);
        stk_background_job_fail_locked(&prewarm->job, STOKER_ERROR_TIMEOUT, &error);
    }
}

static void wake_locked(void *context)
{
    struct stoker_prewarm *prewarm = context;

    pthread_cond_broadcast(&prewarm->changed);
    if (prewarm->share) {
        stk_prewarm_share_stop(prewarm->share);
    }
}

/* One worker opens the data set of the share; the others wait. Returns whether it is open. */
static bool scan_share(struct stoker_prewarm *prewarm)
{
    struct stoker_error error = {0};
    bool is_mine, is_open;
    int status;

    pthread_mutex_lock(&prewarm->job.lock);
    is_mine = !prewarm->locked.listing;
    prewarm->locked.listing = true;
    while (!is_mine && !prewarm->locked.share_is_scanned) {
        pthread_cond_wait(&prewarm->changed, &prewarm->job.lock);
    }
    is_open = prewarm->locked.listed;
    pthread_mutex_unlock(&prewarm->job.lock);
    if (!is_mine) {
        return is_open;
    }
    status = stk_prewarm_share_scan(prewarm->share, &error);
    if (status == 0) {
        atomic_store(&prewarm->bytes, stk_prewarm_share_bytes(prewarm->share));
    }
    pthread_mutex_lock(&prewarm->job.lock);
    prewarm->locked.share_is_scanned = true;
    prewarm->locked.listed = status == 0; /* if not: finish_locked reports a passed deadline */
    if (status < 0 && status != STOKER_ERROR_CLOSED) {
        stk_background_job_fail_locked(&prewarm->job, status, &error);
    }
    pthread_cond_broadcast(&prewarm->changed);
    pthread_mutex_unlock(&prewarm->job.lock);
    return status == 0;
}

/* Waits until the rate allows another block. Returns false if the run ends before. */
static bool wait_for_rate(struct stoker_prewarm *prewarm)
{
    while (!stk_background_job_is_stopping(&prewarm->job) && !is_late(prewarm)) {
        struct timespec until = stk_engine_deadline(RATE_WAIT_NS);

        if (stk_prewarm_share_begin_read(prewarm->share)) {
            return true;
        }
        pthread_mutex_lock(&prewarm->job.lock);
        pthread_cond_timedwait(&prewarm->changed, &prewarm->job.lock, &until);
        pthread_mutex_unlock(&prewarm->job.lock);
    }
    pthread_mutex_lock(&prewarm->job.lock);
    prewarm->locked.share_is_late = true;
    pthread_mutex_unlock(&prewarm->job.lock);
    return false;
}

/* One worker on the share of a node. */
static int run_share(struct stoker_prewarm *prewarm, struct stoker_error *error)
{
    struct stk_prewarm_piece piece;

    (void)error;
    if (!scan_share(prewarm)) {
        return 0;
    }
    /* The wait comes last: after the last block there is nothing to wait for. */
    while (stk_prewarm_share_next(prewarm->share, &piece) && wait_for_rate(prewarm)) {
        struct stoker_error failure = {0};
        uint64_t bytes;
        int status = stk_prewarm_share_read(prewarm->share, &piece, &bytes, &failure);

        if (status < 0) {
            pthread_mutex_lock(&prewarm->job.lock);
            stk_background_job_fail_locked(&prewarm->job, status, &failure);
            pthread_mutex_unlock(&prewarm->job.lock);
            atomic_fetch_add(&prewarm->files_failed, 1);
        }
        atomic_fetch_add(&prewarm->bytes_done, bytes);
    }
    return 0;
}

/* One worker. Failures of files are recorded as they come: the others are still read. */
static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_prewarm *prewarm = context;
    uint8_t *buffer;
    struct job job;

    (void)thread;
    if (prewarm->share) {
        return run_share(prewarm, error);
    }
    buffer = stk_alloc(prewarm->options.chunk_bytes, 1);
    pthread_mutex_lock(&prewarm->job.lock);
    if (!buffer) {
        stk_background_job_fail_locked(&prewarm->job, stk_fail_memory(error, "prewarm"), error);
        prewarm->locked.listed = true;
    }
    while (buffer && take_locked(prewarm, &job)) {
        struct stoker_error failure = {0};
        int status = 0;

        job.file->pieces += job.is_new;
        pthread_mutex_unlock(&prewarm->job.lock);
        status = job.is_new ? begin_file(prewarm, &job, &failure) : 0;
        status = status < 0 ? status : read_uncached(prewarm, &job, buffer, &failure);
        if (status < 0) {
            stk_error_set_location(&failure, job.file->path, job.offset, NULL);
        }
        pthread_mutex_lock(&prewarm->job.lock);
        end_job_locked(prewarm, &job, status, &failure);
    }
    wake_locked(prewarm); /* others wait until no worker has work */
    pthread_mutex_unlock(&prewarm->job.lock);
    stk_free(buffer);
    return 0;
}
