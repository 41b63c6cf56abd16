/* The queue between planner and workers, and its entries. */
#include "base/mem.h"
#include "tools/copy/copy.h"

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
