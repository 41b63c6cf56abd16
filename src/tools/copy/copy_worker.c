/* The workers: each takes a small file, or a part of a large one. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "tools/copy/copy.h"

#include <stdio.h>
#include <string.h>

#define BANDWIDTH_TICK_MS 50u /* between looks at a stop */

struct work {
    struct stk_copy_file *file;
    uint32_t part; /* of an open one */
    bool open;
};

static bool is_small(const struct stoker_copy *copy, const struct stk_copy_file *file)
{
    return file->keys || file->bytes <= copy->options.part_bytes;
}

/* A file that is not small counts as one of the parts in flight. */
static bool needs_slot(const struct stk_copy_file *file)
{
    return !file->keys && file->bytes > STK_COPY_SMALL_BYTES;
}

/* Parts of open files come first, so that few files are open. */
static bool take_locked(struct stoker_copy *copy, struct work *work)
{
    bool slot = copy->locked.parts_in_flight < copy->part_slots;
    struct stk_copy_file *file = copy->locked.first;

    for (struct stk_copy_file *open = copy->locked.open; open && slot; open = open->next) {
        if (open->locked.next < open->part_count && !open->locked.failed) {
            *work = (struct work){open, open->locked.next++, true};
            copy->locked.parts_in_flight++;
            return true;
        }
    }
    if (!file || (!slot && needs_slot(file))) {
        return false;
    }
    *work = (struct work){.file = file};
    copy->locked.first = file->next;
    if (!copy->locked.first) {
        copy->locked.last = &copy->locked.first;
    }
    if (copy->locked.waiting-- == STK_COPY_QUEUE_MAX / 2 || copy->locked.waiting == 0) {
        pthread_cond_broadcast(&copy->queue_space);
    }
    copy->locked.parts_in_flight += needs_slot(file);
    return true;
}

/* Waits for work. Returns false if there is no more. */
static bool take_work(struct stoker_copy *copy, struct work *work)
{
    bool taken = false;

    pthread_mutex_lock(&copy->job.lock);
    while (!stk_background_job_is_stopping(&copy->job)) {
        taken = take_locked(copy, work);
        if (taken || (copy->locked.planned && !copy->locked.first && !copy->locked.open &&
                      copy->locked.active == 0)) {
            break;
        }
        pthread_cond_wait(&copy->work, &copy->job.lock);
    }
    copy->locked.active += taken;
    pthread_mutex_unlock(&copy->job.lock);
    return taken;
}

static void finish_file(struct stoker_copy *copy, struct stk_copy_file *file, int status,
                        const struct stoker_error *error)
{
    if (status == 0 && !file->keys) {
        atomic_fetch_add_explicit(&copy->files_done, 1, memory_order_relaxed);
    } else if (status < 0 && status != STOKER_ERROR_CLOSED) {
        atomic_fetch_add_explicit(&copy->files_failed, 1, memory_order_relaxed);
    }
    pthread_mutex_lock(&copy->job.lock);
    if (status < 0 && status != STOKER_ERROR_CLOSED) {
        stk_copy_note_locked(copy, STOKER_NOTE_FAILED, file->from, NULL, error);
    }
    if (status < 0) {
        stk_copy_fail_locked(copy, status, error);
    }
    pthread_mutex_unlock(&copy->job.lock);
    stk_copy_file_free(file);
}

static bool may_restart(const struct stoker_copy *copy, const struct stk_copy_file *file)
{
    return !file->restarted && !file->locked.reported &&
           !stk_background_job_is_stopping(&copy->job);
}

/* Reads size and version of a source that changed. Returns false if it is no file any more. */
static bool refresh_source(struct stoker_copy *copy, struct stk_copy_file *file)
{
    struct stk_stat stat;

    stk_vfs_set_metadata(copy->io, file->from, NULL);
    if (stk_io_stat_path(copy->io, file->from, &stat, NULL) < 0 || stat.kind != STK_ENTRY_FILE) {
        return false;
    }
    atomic_fetch_add_explicit(&copy->bytes, stat.bytes - file->bytes, memory_order_relaxed);
    file->bytes = stat.bytes;
    file->mtime_ns = stat.mtime_ns;
    file->version = stat.version;
    return true;
}

/* Queues a file again, once: the store lost its upload, or the source changed. */
static void restart(struct stoker_copy *copy, struct stk_copy_file *file)
{
    uint64_t done = atomic_load_explicit(&file->bytes_done, memory_order_relaxed);
    uint64_t reused = atomic_load_explicit(&file->bytes_reused, memory_order_relaxed);

    atomic_fetch_sub_explicit(&copy->bytes_done, done, memory_order_relaxed);
    atomic_fetch_sub_explicit(&copy->bytes_skipped, reused, memory_order_relaxed);
    atomic_store_explicit(&file->bytes_done, 0, memory_order_relaxed);
    atomic_store_explicit(&file->bytes_reused, 0, memory_order_relaxed);
    file->restarted = true;
    file->check = false;
    file->parts_reused = 0;
    pthread_mutex_lock(&copy->job.lock);
    memset(&file->locked, 0, sizeof file->locked);
    file->next = copy->locked.first;
    copy->locked.first = file;
    if (!file->next) {
        copy->locked.last = &file->next;
    }
    copy->locked.waiting++;
    pthread_cond_broadcast(&copy->work);
    pthread_mutex_unlock(&copy->job.lock);
}

/* Returns true if a file whose source changed was queued again. */
static bool restart_changed(struct stoker_copy *copy, struct stk_copy_file *file, int status)
{
    if (status != STOKER_ERROR_CHANGED || file->keys || !may_restart(copy, file) ||
        !refresh_source(copy, file)) {
        return false;
    }
    restart(copy, file);
    return true;
}

/* Copies one part. The last one ends the file. */
static void run_part(struct stoker_copy *copy, const struct work *work, uint8_t *buffer)
{
    struct stk_copy_file *file = work->file, **link = &copy->locked.open;
    struct stoker_error error = {0};
    int status = stk_copy_file_part(copy, file, work->part, buffer, &error);
    bool last, gone = status == STOKER_ERROR_CHANGED ||
                      (status < 0 && file->upload && stk_upload_is_gone(file->upload));

    pthread_mutex_lock(&copy->job.lock);
    copy->locked.parts_in_flight--;
    file->locked.done++;
    if (status < 0) {
        file->locked.failed = true;
        file->locked.changed = file->locked.changed || status == STOKER_ERROR_CHANGED;
        file->locked.refused = file->locked.refused || !stk_copy_error_is_resumable(status);
        if (!gone || !may_restart(copy, file)) {
            if (!file->locked.reported && status != STOKER_ERROR_CLOSED) {
                atomic_fetch_add_explicit(&copy->files_failed, 1, memory_order_relaxed);
                stk_copy_note_locked(copy, STOKER_NOTE_FAILED, file->from, NULL, &error);
                file->locked.reported = true;
            }
            stk_copy_fail_locked(copy, status, &error);
        }
        pthread_cond_broadcast(&copy->turn);
    }
    last = file->locked.done == (file->locked.failed || stk_background_job_is_stopping(&copy->job)
                                     ? file->locked.next
                                     : file->part_count);
    if (last) {
        file->locked.failed = file->locked.failed || file->locked.done < file->part_count;
        while (*link != file) {
            link = &(*link)->next;
        }
        *link = file->next;
    }
    pthread_cond_signal(&copy->work); /* for its slot */
    pthread_mutex_unlock(&copy->job.lock);
    if (last) {
        bool failed = file->locked.failed;

        status = stk_copy_file_end(copy, file, &error);
        status = file->locked.changed ? STOKER_ERROR_CHANGED : status;
        if (file->upload_lost && may_restart(copy, file)) {
            restart(copy, file);
        } else if (!restart_changed(copy, file, status)) {
            if (file->locked.changed && !file->locked.reported) { /* it is not there any more */
                (void)stk_copy_fail_changed(file, &error);
                failed = false;
            }
            if (!failed && status == 0 && copy->options.kind == STOKER_MOVE) {
                status = stk_copy_remove_source(copy, file, &error);
            }
            finish_file(copy, file, failed ? STOKER_ERROR_CLOSED : status, &error);
        }
    }
}

static void open_parts(struct stoker_copy *copy, struct stk_copy_file *file)
{
    struct stoker_error error = {0};
    int status = stk_copy_file_begin(copy, file, &error);

    pthread_mutex_lock(&copy->job.lock);
    copy->locked.parts_in_flight--; /* of the claim; its parts have their own */
    if (status == 0) {
        file->next = copy->locked.open;
        copy->locked.open = file;
        pthread_cond_broadcast(&copy->work);
    }
    pthread_mutex_unlock(&copy->job.lock);
    if (status < 0 && !restart_changed(copy, file, status)) {
        finish_file(copy, file, status, &error);
    }
}

static void release_slot(struct stoker_copy *copy)
{
    pthread_mutex_lock(&copy->job.lock);
    copy->locked.parts_in_flight--;
    pthread_cond_signal(&copy->work);
    pthread_mutex_unlock(&copy->job.lock);
}

/* Returns true if the destination is up to date, and counted as skipped, or if the copy was
 * stopped. */
static bool finish_skipped(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stk_view buffer)
{
    bool slot = needs_slot(file);
    int same = buffer.data ? stk_copy_destination_matches(copy, file, buffer) : 0;

    if (same == 0) {
        return false;
    }
    if (same == 1) {
        stk_copy_count_skipped(copy, file->bytes);
    }
    stk_copy_file_free(file);
    if (slot) {
        release_slot(copy);
    }
    return true;
}

static void run_small(struct stoker_copy *copy, struct stk_copy_file *file, uint8_t *buffer)
{
    bool slot = needs_slot(file);
    struct stoker_error error = {0};
    int status = file->keys ? stk_copy_remove_keys(copy, file, &error)
                            : stk_copy_file_small(copy, file, buffer, &error);

    if (status == 0 && copy->options.kind == STOKER_MOVE) {
        status = stk_copy_remove_source(copy, file, &error);
    }
    if (!restart_changed(copy, file, status)) {
        finish_file(copy, file, status, &error);
    }
    if (slot) {
        release_slot(copy);
    }
}

/* Returns a buffer for data that is not small; reuses an earlier one if possible. */
static uint8_t *acquire_buffer(struct stoker_copy *copy, uint64_t bytes)
{
    uint8_t *buffer = NULL;

    if (bytes <= copy->options.part_bytes) {
        pthread_mutex_lock(&copy->job.lock);
        if (copy->locked.buffer_count > 0) {
            buffer = copy->locked.buffers[--copy->locked.buffer_count];
        }
        pthread_mutex_unlock(&copy->job.lock);
        bytes = copy->options.part_bytes;
    }
    return buffer ? buffer : stk_pages_alloc(bytes);
}

static void release_buffer(struct stoker_copy *copy, uint8_t *buffer, uint64_t bytes)
{
    if (!buffer) {
        return;
    }
    if (bytes <= copy->options.part_bytes) {
        bytes = copy->options.part_bytes;
        pthread_mutex_lock(&copy->job.lock);
        if (copy->locked.buffer_count < copy->part_slots) {
            copy->locked.buffers[copy->locked.buffer_count++] = buffer;
            buffer = NULL;
        }
        pthread_mutex_unlock(&copy->job.lock);
    }
    if (buffer) {
        stk_pages_free(buffer, bytes);
    }
}

/* Uses a buffer of its own, which is released before the copy. */
static bool is_skipped(struct stoker_copy *copy, struct stk_copy_file *file, uint8_t *small)
{
    uint64_t bytes = needs_slot(file) ? copy->options.part_bytes : STK_COPY_SMALL_BYTES;
    uint8_t *buffer = needs_slot(file) ? acquire_buffer(copy, bytes) : small;
    bool skipped = finish_skipped(copy, file, (struct stk_view){buffer, bytes});

    if (buffer != small) {
        release_buffer(copy, buffer, bytes);
    }
    return skipped;
}

/* Notes the action for a file, or for objects to be removed. */
static void run_dry(struct stoker_copy *copy, struct stk_copy_file *file)
{
    bool slot = needs_slot(file);
    const char *key = file->keys;
    char url[2 * STK_STORE_URL_BYTES_MAX];

    for (uint32_t i = 0; i < file->key_count; i++, key += strlen(key) + 1) {
        struct stk_object_url *object = NULL;

        if (stk_object_url_parse(file->from, &object, NULL) == 0) {
            snprintf(url, sizeof url, "%.5s%s/%s", object->url, object->bucket, key);
            stk_copy_note(copy, STOKER_NOTE_WOULD_REMOVE, url, NULL, NULL);
        }
        stk_object_url_free(object);
    }
    if (!file->keys) {
        stk_copy_note(copy, STOKER_NOTE_WOULD_COPY, file->from, file->to, NULL);
        atomic_fetch_add_explicit(&copy->bytes_done, file->bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&copy->files_done, 1, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&copy->files_removed, file->key_count, memory_order_relaxed);
    }
    stk_copy_file_free(file);
    if (slot) {
        release_slot(copy);
    }
}

/* Returns true if a move of this file needs no copy, or failed. */
static bool is_renamed(struct stoker_copy *copy, struct stk_copy_file *file)
{
    bool slot = needs_slot(file);
    struct stoker_error error = {0};
    int status = stk_copy_try_rename(copy, file, &error);

    if (status == 0) {
        return false;
    }
    if (status == 1) {
        atomic_fetch_add_explicit(&copy->bytes_done, file->bytes, memory_order_relaxed);
    }
    finish_file(copy, file, status == 1 ? 0 : status, &error);
    if (slot) {
        release_slot(copy);
    }
    return true;
}

/* Waits until the limit of bytes per second allows `bytes` more. */
static void wait_for_bandwidth(struct stoker_copy *copy, uint64_t bytes)
{
    uint64_t limit = copy->options.bytes_per_second_max, now = stk_io_clock_ns(copy->io), cost, end;

    if (limit == 0) {
        return;
    }
    cost = (uint64_t)((double)bytes * 1e9 / (double)limit);
    end = atomic_load_explicit(&copy->bandwidth_ns, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&copy->bandwidth_ns, &end,
                                                  stk_max(end, now) + cost, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
    end = stk_max(end, now) + cost;
    while (now < end && !stk_background_job_is_stopping(&copy->job)) {
        uint32_t rest_ms = (uint32_t)stk_min((end - now) / 1000000 + 1, BANDWIDTH_TICK_MS);

        (void)stk_background_job_next(&copy->job, rest_ms, NULL, NULL, NULL);
        now = stk_io_clock_ns(copy->io);
    }
}

static void run_work(struct stoker_copy *copy, const struct work *work, uint8_t *small)
{
    struct stk_copy_file *file = work->file;
    uint64_t bytes = work->open ? file->part_bytes : file->bytes;
    uint8_t *buffer = small;

    if (!work->open && file->check && is_skipped(copy, file, small)) {
        return;
    }
    if (copy->options.dry_run && !work->open) {
        run_dry(copy, file);
        return;
    }
    if (!work->open && copy->options.kind == STOKER_MOVE && is_renamed(copy, file)) {
        return;
    }
    if (!work->open && !is_small(copy, file)) {
        open_parts(copy, file);
        return;
    }
    if (!file->keys && !stk_copy_is_server_side(file)) {
        wait_for_bandwidth(copy, stk_min(file->bytes - work->part * file->part_bytes, bytes));
        if (bytes > STK_COPY_SMALL_BYTES) {
            buffer = acquire_buffer(copy, bytes); /* NULL: a function that needs it fails */
        }
    }
    if (work->open) {
        run_part(copy, work, buffer);
    } else {
        run_small(copy, file, buffer);
    }
    if (buffer != small) {
        release_buffer(copy, buffer, bytes);
    }
}

/* A worker without a buffer leaves, unless the planner would have no other worker. Threads that
 * were started, but will not work, are no others; they hold memory until they end. */
static bool may_leave(struct stoker_copy *copy)
{
    struct stk_background_job *job = &copy->job;
    bool others;

    pthread_mutex_lock(&job->lock);
    while (job->started > job->locked.wanted && !stk_background_job_is_stopping(job)) {
        pthread_cond_wait(&job->changed, &job->lock);
    }
    others = job->started > copy->locked.left + 2;
    copy->locked.left += others;
    pthread_mutex_unlock(&job->lock);
    return others;
}

void stk_copy_run_worker(struct stoker_copy *copy)
{
    uint8_t *small = stk_pages_alloc(STK_COPY_SMALL_BYTES);
    struct work work;

    if (!small && may_leave(copy)) {
        return; /* the other threads copy it completely */
    }
    small = small ? small : stk_pages_alloc(STK_COPY_SMALL_BYTES);
    while (take_work(copy, &work)) {
        run_work(copy, &work, small);
        pthread_mutex_lock(&copy->job.lock);
        copy->locked.active--;
        if (copy->locked.active == 0) {
            pthread_cond_broadcast(&copy->work); /* the end, maybe */
            pthread_cond_broadcast(&copy->queue_space);
        }
        pthread_mutex_unlock(&copy->job.lock);
    }
    if (small) {
        stk_pages_free(small, STK_COPY_SMALL_BYTES);
    }
}
