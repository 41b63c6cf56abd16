/* The queue between planner and workers, with its entries; and notes about single files: failures,
 * entries that are not copied, and what a dry run would do. */
#include "base/mem.h"
#include "base/options.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct stk_copy_file *stk_copy_file_new(const char *from, const char *to)
{
    struct stk_copy_file *file = stk_alloc(1, sizeof *file);

    if (file) {
        file->from = stk_strdup(from);
        file->to = to ? stk_strdup(to) : NULL;
        if (!file->from || (to && !file->to)) {
            stk_copy_file_free(file);
            file = NULL;
        }
    }
    return file;
}

void stk_copy_file_free(struct stk_copy_file *file)
{
    if (file) {
        stk_free(file->from);
        stk_free(file->to);
        stk_free(file->keys);
        stk_free(file);
    }
}

int stk_copy_queue_push(struct stoker_copy *copy, struct stk_copy_file *file)
{
    bool stopped;

    pthread_mutex_lock(&copy->job.lock);
    while (copy->locked.waiting >= STK_COPY_QUEUE_MAX &&
           !stk_background_job_is_stopping(&copy->job)) {
        pthread_cond_wait(&copy->queue_space, &copy->job.lock);
    }
    stopped = stk_background_job_is_stopping(&copy->job);
    if (!stopped) {
        file->next = NULL;
        *copy->locked.last = file;
        copy->locked.last = &file->next;
        copy->locked.waiting++;
        pthread_cond_signal(&copy->work);
    }
    pthread_mutex_unlock(&copy->job.lock);
    if (stopped) {
        stk_copy_file_free(file);
        return STOKER_ERROR_CLOSED;
    }
    return 0;
}

/* ---- notes ---- */

static void drop_note(struct stk_copy_note *note)
{
    if (note) {
        stk_free(note->name);
        stk_free(note->to);
        stk_free(note);
    }
}

static struct stk_copy_note *new_note(uint32_t kind, const char *name, const char *to,
                                      const struct stoker_error *failure)
{
    struct stk_copy_note *note = stk_alloc(1, sizeof *note);

    if (!note) {
        return NULL;
    }
    note->kind = kind;
    note->name = stk_strdup(name);
    note->to = to ? stk_strdup(to) : NULL;
    if (failure) {
        note->failure = *failure;
    }
    if (!note->name || (to && !note->to)) {
        drop_note(note);
        return NULL;
    }
    return note;
}

void stk_copy_note_locked(struct stoker_copy *copy, uint32_t kind, const char *name, const char *to,
                          const struct stoker_error *failure)
{
    struct stk_copy_note *note;

    while (copy->options.dry_run && copy->locked.note_count >= STK_COPY_NOTES_MAX &&
           !stk_background_job_is_stopping(&copy->job)) {
        pthread_cond_wait(&copy->queue_space, &copy->job.lock);
    }
    if (copy->locked.note_count >= STK_COPY_NOTES_MAX) {
        return; /* the progress counts it */
    }
    note = new_note(kind, name, to, failure);
    if (note) { /* without memory only the counts tell of it */
        *copy->locked.last_note = note;
        copy->locked.last_note = &note->next;
        copy->locked.note_count++;
    }
}

void stk_copy_note(struct stoker_copy *copy, uint32_t kind, const char *name, const char *to,
                   const struct stoker_error *failure)
{
    pthread_mutex_lock(&copy->job.lock);
    stk_copy_note_locked(copy, kind, name, to, failure);
    pthread_mutex_unlock(&copy->job.lock);
}

int stoker_copy_next_note(struct stoker_copy *copy, struct stoker_copy_note *note,
                          struct stoker_error *error)
{
    struct stk_copy_note *first;
    struct stoker_copy_note *full;
    int status = stk_engine_check(copy->engine, error);

    status = status < 0 ? status
                        : stk_options_check_output(note, sizeof *note, sizeof note->struct_size,
                                                   "copy note", error);
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&copy->job.lock);
    first = copy->locked.first_note;
    if (first) {
        copy->locked.first_note = first->next;
        copy->locked.note_count--;
        if (!first->next) {
            copy->locked.last_note = &copy->locked.first_note;
        }
        pthread_cond_broadcast(&copy->queue_space);
    }
    pthread_mutex_unlock(&copy->job.lock);
    if (!first) {
        return 0;
    }
    full = stk_alloc(1, sizeof *full);
    if (!full) {
        drop_note(first);
        return stk_fail_memory(error, "copy");
    }
    full->kind = first->kind;
    full->failure = first->failure;
    snprintf(full->name, sizeof full->name, "%s", first->name);
    snprintf(full->to, sizeof full->to, "%s", first->to ? first->to : "");
    status = stk_options_write_output(note, full, sizeof *full, "copy note", error);
    stk_free(full);
    drop_note(first);
    return status < 0 ? status : 1;
}

void stk_copy_notes_free(struct stoker_copy *copy)
{
    for (struct stk_copy_note *note = copy->locked.first_note, *next; note; note = next) {
        next = note->next;
        drop_note(note);
    }
}

/* Returns true for an error that affects all files, not one. */
static bool is_final(int status)
{
    return status == -ENOSPC || status == -EDQUOT || status == -EROFS || status == -ENOMEM ||
           status == STOKER_ERROR_BUDGET;
}

void stk_copy_fail_locked(struct stoker_copy *copy, int status, const struct stoker_error *error)
{
    if (status == STOKER_ERROR_CLOSED) {
        return; /* after another failure, or stopped by the caller */
    }
    stk_background_job_fail_locked(&copy->job, status, error);
    if (is_final(status) ||
        atomic_load_explicit(&copy->files_failed, memory_order_relaxed) >= STK_COPY_FAILURES_MAX) {
        atomic_store_explicit(&copy->job.stopping, true, memory_order_relaxed);
        pthread_cond_broadcast(&copy->work);
        pthread_cond_broadcast(&copy->queue_space);
    }
}

int stk_copy_fail_entry(struct stoker_copy *copy, int status, const char *name,
                        const struct stoker_error *error)
{
    atomic_fetch_add_explicit(&copy->files_failed, 1, memory_order_relaxed);
    pthread_mutex_lock(&copy->job.lock);
    stk_copy_note_locked(copy, STOKER_NOTE_FAILED, name, NULL, error);
    stk_background_job_fail_locked(&copy->job, status, error);
    pthread_mutex_unlock(&copy->job.lock);
    return atomic_load_explicit(&copy->files_failed, memory_order_relaxed) < STK_COPY_FAILURES_MAX
               ? 0
               : status;
}
