/* engine/background_job.h: runs a function on threads of its own, and lets callers wait for its
 * entries and its result with a timeout.
 *
 *   init --start--> running --the last thread returned--> finished: 0, or the first failure
 *                      `--stop: `stopping` is set and waiting threads are woken
 *
 * The tools (pack, verify, diff, copy ...) and the indexer embed one.
 * Owner: the object that embeds it. Threads: any. The embedding object may keep fields of its own
 * under `lock`, and may signal `changed` when next() should look for an entry again. Lock order:
 * the job's lock before the engine's. Memory: none beside the threads' stacks.
 * Bound: STK_BACKGROUND_JOB_THREADS_MAX threads. */
#ifndef ENGINE_BACKGROUND_JOB_H
#define ENGINE_BACKGROUND_JOB_H

#include "engine/engine.h"

#define STK_BACKGROUND_JOB_THREADS_MAX 257u

struct stk_background_job_options {
    const char *name;        /* of the job, for errors: "pack" */
    const char *thread_name; /* NULL: the name of the thread that starts them */
    void *context;           /* of the functions below */
    /* Runs on each thread. Thread numbers begin at 0. Returns 0, or the error that the job reports
     * after the last thread returned. */
    int (*run)(void *context, uint32_t thread, struct stoker_error *error);
    /* Called once, with the lock, after the last thread returned and before callers see that the
     * job is finished. NULL: not called. */
    void (*finish_locked)(void *context);
    /* Wakes threads of the job that wait on conditions other than `changed`. Called with the lock,
     * after `stopping` was set. NULL: not called. */
    void (*wake_locked)(void *context);
    uint32_t threads;     /* 0: 1 */
    uint32_t threads_min; /* start() fails if fewer can be started. 0: all */
};

struct stk_background_job {
    struct stoker_engine *engine; /* held; const after start, as the next four */
    struct stk_background_job_options options;
    uint64_t start_ns; /* time of init(), on the engine's clock */
    pthread_t threads[STK_BACKGROUND_JOB_THREADS_MAX];
    uint32_t started;
    _Atomic bool stopping; /* run() looks at it and returns soon after it was set */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* entries, the end, or stopping; monotonic clock; with lock */
    struct {
        uint32_t begun, running; /* threads that began; that did not return yet */
        uint32_t wanted;         /* of those that began: these run, the others end at once */
        bool finished;
        void (*release)(void *context); /* of an abandoned job; NULL: it is none */
        int status;                     /* the first failure; 0: none */
        struct stoker_error error;
    } locked;
};

enum stk_background_job_event {
    STK_BACKGROUND_JOB_FINISHED = 0,
    STK_BACKGROUND_JOB_ENTRY = 1,
    STK_BACKGROUND_JOB_RUNNING = 2
};

/* Retains the engine. deinit() releases it. */
void stk_background_job_init(struct stk_background_job *job, struct stoker_engine *engine);
/* Starts the threads, at most once. Returns 0 on success, or the error of the operating system if
 * fewer than threads_min started: then the caller calls end(). */
int stk_background_job_start(struct stk_background_job *job,
                             const struct stk_background_job_options *options,
                             struct stoker_error *error);
/* Waits for an entry. take_locked (NULL: the job has no entries) is called with the lock: it stores
 * an entry in entry_out and returns true, or returns false if there is none now.
 * Returns ENTRY; FINISHED after the last entry of a job that succeeded; RUNNING after timeout_ms;
 * the first failure of a job that failed, after its last entry and at each later call; or
 * STOKER_ERROR_FORKED in a child process. */
int stk_background_job_next(struct stk_background_job *job, uint32_t timeout_ms,
                            bool (*take_locked)(void *context, void *entry_out), void *entry_out,
                            struct stoker_error *error);
/* Records a failure while the job continues. Only the first failure is kept. */
void stk_background_job_fail_locked(struct stk_background_job *job, int status,
                                    const struct stoker_error *error);
/* True if the job finished; *status_out (may be NULL): its result. */
bool stk_background_job_is_finished(struct stk_background_job *job, int *status_out);
static inline bool stk_background_job_is_stopping(const struct stk_background_job *job)
{
    return atomic_load_explicit(&job->stopping, memory_order_relaxed);
}
/* Asks the threads to return soon. Does not wait. Any thread, also while others wait in next(). */
void stk_background_job_stop(struct stk_background_job *job);
/* Stops and joins the threads. Returns false in a forked child process, where the threads do not
 * exist and nothing may be freed. */
bool stk_background_job_end(struct stk_background_job *job);
/* Instead of end(), of a job whose threads may never return: detaches them, and has the last one
 * call release(context) once it returned. Returns false if the job is finished: then call end(). */
bool stk_background_job_abandon(struct stk_background_job *job, void (*release)(void *context));
/* After end(): frees the lock and releases the engine. */
void stk_background_job_deinit(struct stk_background_job *job);
/* Time since init(), on the engine's clock. */
uint64_t stk_background_job_elapsed_ns(const struct stk_background_job *job);

#endif
