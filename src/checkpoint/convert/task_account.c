/* The rate of a task, and its end. */
#include "checkpoint/convert/task.h"

#define SLEEP_NS UINT64_C(50000000)

static void wait_ns(struct stk_background_job *job, uint64_t wait)
{
    struct timespec until = stk_engine_deadline(wait);

    pthread_mutex_lock(&job->lock);
    if (!stk_background_job_is_stopping(job)) {
        (void)pthread_cond_timedwait(&job->changed, &job->lock, &until);
    }
    pthread_mutex_unlock(&job->lock);
}

int stk_task_account(const struct stk_checkpoint_task *task, uint64_t bytes,
                     struct stoker_error *error)
{
    uint64_t done = atomic_fetch_add(task->bytes_done, bytes) + bytes;
    uint64_t rate = task->options->bytes_per_s_max;

    while (rate > 0 && !stk_background_job_is_stopping(task->job)) {
        uint64_t due_ns = (uint64_t)((double)done / (double)rate * 1e9);
        uint64_t now_ns = stk_engine_now(task->engine) - task->start_ns;

        if (now_ns >= due_ns) {
            break;
        }
        wait_ns(task->job, stk_min(due_ns - now_ns, SLEEP_NS));
    }
    return stk_background_job_is_stopping(task->job)
               ? stk_fail(error, STOKER_ERROR_CLOSED, "the task was ended", "run it again", "task")
               : 0;
}
