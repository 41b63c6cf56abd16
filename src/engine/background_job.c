/* Threads of a background job: start, wait, stop, join. */
#include "engine/background_job.h"

#include "base/thread.h"

#include <errno.h>
#include <sys/resource.h>

#define SPARE_THREADS 4u
#define FEW_THREADS 3u
#define THREAD_SPACE (80ull << 20) /* its stack, and the heap that malloc reserves for it */

void stk_background_job_init(struct stk_background_job *job, struct stoker_engine *engine)
{
    pthread_mutex_init(&job->lock, NULL);
    stk_cond_init(&job->changed);
    stk_engine_retain(engine);
    job->engine = engine;
    job->start_ns = stk_engine_now(engine);
}

/* `count` threads returned, or could not be started. */
static void leave_locked(struct stk_background_job *job, uint32_t count)
{
    job->locked.running -= count;
    if (job->locked.running > 0) {
        return;
    }
    if (job->options.finish_locked) {
        job->options.finish_locked(job->options.context);
    }
    job->locked.finished = true;
    pthread_cond_broadcast(&job->changed);
}

/* The calling thread ends without a join: its stack is free soon. */
static void forget_locked(struct stk_background_job *job)
{
    uint32_t at = 0;

    while (!pthread_equal(job->threads[at], pthread_self())) {
        at++;
        STK_ASSERT(at < job->started);
    }
    job->threads[at] = job->threads[--job->started];
    pthread_detach(pthread_self());
    pthread_cond_broadcast(&job->changed);
}

static void *thread_main(void *argument)
{
    struct stk_background_job *job = argument;
    void (*release)(void *context), *context = job->options.context;
    struct stoker_error error = {0};
    uint32_t thread;
    int status;

    if (job->options.thread_name) {
        pthread_setname_np(pthread_self(), job->options.thread_name);
    }
    pthread_mutex_lock(&job->lock); /* which start() holds until it knows how many there are */
    thread = job->locked.begun++;
    if (thread >= job->locked.wanted) {
        forget_locked(job);
        leave_locked(job, 1);
        pthread_mutex_unlock(&job->lock);
        return NULL;
    }
    while (thread == 0 && job->started > job->locked.wanted) {
        pthread_cond_wait(&job->changed, &job->lock); /* until there is room for its own threads */
    }
    pthread_mutex_unlock(&job->lock);
    status = job->options.run(job->options.context, thread, &error);
    pthread_mutex_lock(&job->lock);
    if (status < 0) {
        stk_background_job_fail_locked(job, status, &error);
    }
    leave_locked(job, 1);
    release = job->locked.finished ? job->locked.release : NULL;
    pthread_mutex_unlock(&job->lock);
    if (release) {
        release(context);
    }
    return NULL;
}

/* With ulimit -v, each thread that allocates takes some of the address space for its heap. Returns
 * how many threads may take half of it; UINT32_MAX: there is no limit. */
static uint32_t threads_that_fit(void)
{
    struct rlimit space;

    return getrlimit(RLIMIT_AS, &space) < 0 || space.rlim_cur == RLIM_INFINITY
               ? UINT32_MAX
               : (uint32_t)stk_min(space.rlim_cur / 2 / THREAD_SPACE, UINT32_MAX - 1);
}

/* Waits until start() is done. */
static void *spare_main(void *argument)
{
    struct stk_background_job *job = argument;

    pthread_mutex_lock(&job->lock);
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

int stk_background_job_start(struct stk_background_job *job,
                             const struct stk_background_job_options *options,
                             struct stoker_error *error)
{
    pthread_t spare[SPARE_THREADS];
    uint32_t spares = 0;
    bool enough;
    int status = 0;

    job->options = *options;
    job->options.threads = stk_max(options->threads, 1);
    job->options.threads_min = options->threads_min ? options->threads_min : job->options.threads;
    job->options.threads = (uint32_t)stk_max(stk_min(job->options.threads, threads_that_fit()),
                                             job->options.threads_min);
    STK_ASSERT(job->started == 0 && job->options.threads <= STK_BACKGROUND_JOB_THREADS_MAX);
    pthread_mutex_lock(&job->lock);
    job->locked.running = job->locked.wanted = job->options.threads;
    while (status == 0 && job->started < job->options.threads) {
        status = stk_thread_start(&job->threads[job->started], NULL, thread_main, job);
        job->started += status == 0;
    }
    /* Checks that the process can start some more threads, which these may need. */
    while (status == 0 && spares < SPARE_THREADS && job->options.threads_min < job->started) {
        status = stk_thread_start(&spare[spares], NULL, spare_main, job);
        spares += status == 0;
    }
    if (status < 0) {
        /* The process has no more threads, or no memory for them. Running ones need some, too: a
         * listing, the network. So half of them, or all but a few, end at once. */
        job->locked.wanted =
            stk_max(threads_that_fit() < UINT32_MAX ? FEW_THREADS : job->started / 2,
                    job->options.threads_min);
        leave_locked(job, job->options.threads - job->started);
    }
    enough = job->started >= job->options.threads_min;
    while (enough && job->started > job->locked.wanted) {
        pthread_cond_wait(&job->changed, &job->lock); /* these wait for nothing but the lock */
    }
    pthread_mutex_unlock(&job->lock);
    for (uint32_t i = 0; i < spares; i++) {
        pthread_join(spare[i], NULL);
    }
    return enough ? 0
                  : stk_fail_errno(error, -status, "cannot start a thread",
                                   "raise the limit of processes", "%s", job->options.name);
}

int stk_background_job_next(struct stk_background_job *job, uint32_t timeout_ms,
                            bool (*take_locked)(void *context, void *entry_out), void *entry_out,
                            struct stoker_error *error)
{
    struct timespec until = stk_engine_deadline((uint64_t)timeout_ms * 1000000u);
    bool late = timeout_ms == 0, taken;
    int status = stk_engine_check(job->engine, error);

    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&job->lock);
    while (!(taken = take_locked && take_locked(job->options.context, entry_out)) &&
           !job->locked.finished && !late) {
        late = pthread_cond_timedwait(&job->changed, &job->lock, &until) == ETIMEDOUT;
    }
    status = taken                  ? STK_BACKGROUND_JOB_ENTRY
             : job->locked.finished ? job->locked.status
                                    : STK_BACKGROUND_JOB_RUNNING;
    if (status < 0 && error) {
        *error = job->locked.error;
    }
    pthread_mutex_unlock(&job->lock);
    return status;
}

void stk_background_job_fail_locked(struct stk_background_job *job, int status,
                                    const struct stoker_error *error)
{
    if (job->locked.status == 0) {
        job->locked.status = status;
        job->locked.error = *error;
        if (error->status != status) { /* STOKER_ERROR_CLOSED, of a job that was stopped */
            stk_fail(&job->locked.error, status, stoker_status_text(status), "run it again", "%s",
                     job->options.name);
        }
    }
}

bool stk_background_job_is_finished(struct stk_background_job *job, int *status_out)
{
    bool finished;

    pthread_mutex_lock(&job->lock);
    finished = job->locked.finished;
    if (status_out) {
        *status_out = job->locked.status;
    }
    pthread_mutex_unlock(&job->lock);
    return finished;
}

void stk_background_job_stop(struct stk_background_job *job)
{
    pthread_mutex_lock(&job->lock);
    atomic_store_explicit(&job->stopping, true, memory_order_relaxed);
    if (job->options.wake_locked) {
        job->options.wake_locked(job->options.context);
    }
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

bool stk_background_job_end(struct stk_background_job *job)
{
    if (stk_engine_check(job->engine, NULL) < 0) {
        return false;
    }
    stk_background_job_stop(job);
    for (uint32_t i = 0; i < job->started; i++) {
        pthread_join(job->threads[i], NULL);
    }
    return true;
}

bool stk_background_job_abandon(struct stk_background_job *job, void (*release)(void *context))
{
    bool running;

    pthread_mutex_lock(&job->lock);
    running = !job->locked.finished;
    if (running) {
        job->locked.release = release;
        for (uint32_t i = 0; i < job->started; i++) {
            pthread_detach(job->threads[i]);
        }
    }
    pthread_mutex_unlock(&job->lock);
    return running;
}

void stk_background_job_deinit(struct stk_background_job *job)
{
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    stk_engine_release(job->engine);
}

uint64_t stk_background_job_elapsed_ns(const struct stk_background_job *job)
{
    return stk_engine_now(job->engine) - job->start_ns;
}
