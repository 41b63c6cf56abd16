/* Goal: a background job hands out its entries before its result, reports the first failure of its
 * threads, wakes callers when it is stopped, and can be closed in each of its states; a child of
 * fork neither waits for it nor frees it.
 * Method: jobs with scripted threads on an engine over the simulated files. */
#include "engine/background_job.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ENTRIES = 100, THREADS = 4, WAIT_MS = 10000 };

/* A job whose threads put ENTRIES numbers into a queue and then return `statuses[thread]`. */
struct numbers {
    struct stk_background_job job;
    int statuses[THREADS];
    bool wait_for_stop; /* after the entries */
    pthread_cond_t own; /* a condition of the job's owner; with job.lock */
    _Atomic uint32_t ran, finish_calls;
    struct { /* under job.lock */
        uint32_t made, taken;
        bool finished_first;
    } locked;
};

static struct stoker_engine *open_engine(void)
{
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64 << 20};
    struct stk_io_options io_options = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine *engine = NULL;
    struct stk_io *io = NULL;

    T_EQ("io", stk_sim_open(&io, 1, &io_options, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, io, &options, NULL), 0);
    return engine;
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct numbers *numbers = context;

    atomic_fetch_add(&numbers->ran, 1);
    for (int i = 0; i < ENTRIES; i++) {
        pthread_mutex_lock(&numbers->job.lock);
        numbers->locked.made++;
        pthread_cond_broadcast(&numbers->job.changed);
        pthread_mutex_unlock(&numbers->job.lock);
    }
    pthread_mutex_lock(&numbers->job.lock);
    while (numbers->wait_for_stop && !stk_background_job_is_stopping(&numbers->job)) {
        pthread_cond_wait(&numbers->own, &numbers->job.lock);
    }
    pthread_mutex_unlock(&numbers->job.lock);
    return numbers->statuses[thread] == 0
               ? 0
               : stk_fail(error, numbers->statuses[thread], "the thread failed", "try another",
                          "thread %u", thread);
}

static void finish_locked(void *context)
{
    struct numbers *numbers = context;

    numbers->locked.finished_first = !numbers->job.locked.finished;
    atomic_fetch_add(&numbers->finish_calls, 1);
}

static void wake_locked(void *context)
{
    struct numbers *numbers = context;

    pthread_cond_broadcast(&numbers->own);
}

static bool take_locked(void *context, void *entry_out)
{
    struct numbers *numbers = context;

    if (numbers->locked.taken == numbers->locked.made) {
        return false;
    }
    *(uint32_t *)entry_out = numbers->locked.taken++;
    return true;
}

static void init(struct numbers *numbers, struct stoker_engine *engine)
{
    memset(numbers, 0, sizeof *numbers);
    pthread_cond_init(&numbers->own, NULL);
    stk_background_job_init(&numbers->job, engine);
}

static void start(struct numbers *numbers, uint32_t threads)
{
    struct stk_background_job_options options = {.name = "numbers",
                                                 .thread_name = "stoker-numbers",
                                                 .context = numbers,
                                                 .run = run,
                                                 .finish_locked = finish_locked,
                                                 .wake_locked = wake_locked,
                                                 .threads = threads};

    T_EQ("start", stk_background_job_start(&numbers->job, &options, NULL), 0);
}

static void end(struct numbers *numbers)
{
    T_TRUE("end", stk_background_job_end(&numbers->job));
    stk_background_job_deinit(&numbers->job);
    pthread_cond_destroy(&numbers->own);
}

static int next(struct numbers *numbers, uint32_t timeout_ms, uint32_t *entry_out,
                struct stoker_error *error)
{
    return stk_background_job_next(&numbers->job, timeout_ms, take_locked, entry_out, error);
}

/* All entries come first, in order; then the result, at each later call. */
static void test_entries(struct stoker_engine *engine, uint32_t threads)
{
    struct numbers numbers;
    uint32_t entry;
    int status;

    init(&numbers, engine);
    start(&numbers, threads);
    for (uint32_t i = 0; i < threads * ENTRIES; i++) {
        T_EQ("entry", next(&numbers, WAIT_MS, &entry, NULL), STK_BACKGROUND_JOB_ENTRY);
        T_EQ("in order", entry, i);
    }
    for (int i = 0; i < 3; i++) {
        T_EQ("finished", next(&numbers, WAIT_MS, &entry, NULL), STK_BACKGROUND_JOB_FINISHED);
    }
    T_TRUE("finished", stk_background_job_is_finished(&numbers.job, &status));
    T_EQ("result", status, 0);
    T_EQ("each thread", numbers.ran, threads);
    T_EQ("finish once", numbers.finish_calls, 1);
    T_TRUE("before callers see it", numbers.locked.finished_first);
    end(&numbers);
}

/* The first failure is the job's, after all entries. The others are dropped, and it stays. */
static void test_failure(struct stoker_engine *engine)
{
    struct stoker_error error = {0}, other = {.status = STOKER_ERROR_LIMIT, .where = "later"};
    struct numbers numbers;
    uint32_t entry, entries = 0;
    int status;

    init(&numbers, engine);
    numbers.statuses[2] = STOKER_ERROR_CORRUPT;
    start(&numbers, THREADS);
    while ((status = next(&numbers, WAIT_MS, &entry, &error)) == STK_BACKGROUND_JOB_ENTRY) {
        entries++;
    }
    T_EQ("all entries first", entries, THREADS * ENTRIES);
    T_EQ("its failure", status, STOKER_ERROR_CORRUPT);
    T_ERROR("its failure", &error);
    T_TRUE("which thread", strcmp(error.where, "thread 2") == 0);
    pthread_mutex_lock(&numbers.job.lock);
    stk_background_job_fail_locked(&numbers.job, STOKER_ERROR_LIMIT, &other);
    pthread_mutex_unlock(&numbers.job.lock);
    error = (struct stoker_error){0};
    T_EQ("the first stays", next(&numbers, 0, &entry, &error), STOKER_ERROR_CORRUPT);
    T_TRUE("the first stays", strcmp(error.where, "thread 2") == 0);
    T_EQ("without an error", next(&numbers, 0, &entry, NULL), STOKER_ERROR_CORRUPT);
    end(&numbers);
}

static void *stop_soon(void *argument)
{
    usleep(20000);
    stk_background_job_stop(argument);
    return NULL;
}

/* A caller waits in next(); another thread stops the job. */
static void test_stop_while_waiting(struct stoker_engine *engine)
{
    struct stoker_error error = {0};
    struct numbers numbers;
    pthread_t thread;
    uint32_t entry;

    init(&numbers, engine);
    numbers.wait_for_stop = true;
    numbers.statuses[0] = STOKER_ERROR_CLOSED;
    start(&numbers, 1);
    for (int i = 0; i < ENTRIES; i++) {
        T_EQ("entry", next(&numbers, WAIT_MS, &entry, NULL), STK_BACKGROUND_JOB_ENTRY);
    }
    T_EQ("timeout", next(&numbers, 1, &entry, NULL), STK_BACKGROUND_JOB_RUNNING);
    T_EQ("no wait", next(&numbers, 0, &entry, NULL), STK_BACKGROUND_JOB_RUNNING);
    T_TRUE("runs", !stk_background_job_is_finished(&numbers.job, NULL));
    T_EQ("thread", pthread_create(&thread, NULL, stop_soon, &numbers.job), 0);
    T_EQ("woken", next(&numbers, WAIT_MS, &entry, &error), STOKER_ERROR_CLOSED);
    T_ERROR("woken", &error);
    pthread_join(thread, NULL);
    stk_background_job_stop(&numbers.job); /* of a job that finished: no effect */
    end(&numbers);
}

/* end() of a job that was not started, that runs, that waits, and that finished. */
static void test_end(struct stoker_engine *engine)
{
    struct numbers numbers;
    uint32_t entry;

    init(&numbers, engine);
    end(&numbers);
    T_EQ("not started", numbers.ran, 0);
    for (int i = 0; i < 20; i++) {
        init(&numbers, engine);
        numbers.wait_for_stop = i % 2 == 0;
        start(&numbers, THREADS);
        end(&numbers);
        T_EQ("all returned", numbers.finish_calls, 1);
    }
    init(&numbers, engine);
    start(&numbers, 1);
    while (next(&numbers, WAIT_MS, &entry, NULL) == STK_BACKGROUND_JOB_ENTRY) {
    }
    end(&numbers);
}

/* Without entries, as for jobs that only have a result. */
static void test_no_entries(struct stoker_engine *engine)
{
    struct numbers numbers;

    init(&numbers, engine);
    numbers.wait_for_stop = true;
    start(&numbers, 2);
    T_EQ("runs", stk_background_job_next(&numbers.job, 5, NULL, NULL, NULL),
         STK_BACKGROUND_JOB_RUNNING);
    stk_background_job_stop(&numbers.job);
    T_EQ("finished", stk_background_job_next(&numbers.job, WAIT_MS, NULL, NULL, NULL),
         STK_BACKGROUND_JOB_FINISHED);
    T_TRUE("time passes", stk_background_job_elapsed_ns(&numbers.job) < UINT64_MAX / 2);
    end(&numbers);
}

/* In a child the threads do not exist: calls fail at once, and nothing is freed. */
static void test_fork(struct stoker_engine *engine)
{
    struct numbers numbers;
    pid_t child;
    int status = 0;

    init(&numbers, engine);
    numbers.wait_for_stop = true;
    start(&numbers, 1);
    child = fork();
    if (child == 0) {
        struct stoker_error error = {0};
        uint32_t entry;
        bool fine = next(&numbers, WAIT_MS, &entry, &error) == STOKER_ERROR_FORKED &&
                    error.advice[0] && !stk_background_job_end(&numbers.job);

        _exit(fine ? 0 : 1);
    }
    T_TRUE("fork", child > 0 && waitpid(child, &status, 0) == child);
    T_TRUE("the child's calls", WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end(&numbers);
}

int main(void)
{
    struct stoker_engine *engine = open_engine();

    test_entries(engine, 1);
    test_entries(engine, THREADS);
    test_failure(engine);
    test_stop_while_waiting(engine);
    test_end(engine);
    test_no_entries(engine);
    test_fork(engine);
    stoker_engine_close(engine);
    return t_finish();
}
