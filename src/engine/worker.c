/* Worker threads of an engine, and parallel jobs that run on all of them. */
#include "engine/worker.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <signal.h>

#define SCRATCH_BYTES_MIN (256u << 10)
/* A larger buffer is freed when other threads need memory. */
#define SCRATCH_KEEP_BYTES (4u << 20)

static void *worker_main(void *argument);

/* Reserves, once, the memory that workers use without a reservation of their own. */
static int reserve_worker_memory(struct stoker_engine *engine, struct stoker_error *error)
{
    uint64_t shares = (uint64_t)engine->options.threads * STK_WORKER_KEEP_KINDS;
    uint64_t part = engine->budget.bytes_max / STK_WORKER_KEEP_PART;

    engine->keep_bytes = (uint32_t)stk_min(part / shares, STK_WORKER_KEEP_BYTES);
    return stk_engine_reserve(engine, shares * engine->keep_bytes, 0, "buffers of the workers",
                              error);
}

int stk_workers_start(struct stoker_engine *engine, struct stoker_error *error)
{
    sigset_t all, before;
    int status = 0;

    engine->workers = stk_alloc(engine->options.threads, sizeof *engine->workers);
    if (!engine->workers) {
        return stk_fail(error, -ENOMEM, "cannot start workers", "free memory", "%u threads",
                        engine->options.threads);
    }
    status = reserve_worker_memory(engine, error);
    /* Signals belong to the caller's threads, but for SIGBUS: see io/posix/map_guard.h. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 0; i < engine->options.threads && status == 0; i++) {
        struct stk_worker *worker = &engine->workers[i];
        struct stoker_error no_scratch;
        int number;

        worker->engine = engine;
        worker->index = i;
        status = stk_image_decoder_open(&worker->decoder, engine->options.simd, error);
        if (status == 0 && engine->sandbox) {
            status = stk_sandbox_worker_open(&worker->sandbox, engine->sandbox, error);
        }
        if (status < 0) {
            stk_image_decoder_close(worker->decoder);
            break;
        }
        /* Allocated now: a caller that later holds the whole budget must not stop the workers. */
        if (!stk_worker_scratch(worker, SCRATCH_BYTES_MIN, &no_scratch)) {
            stk_sandbox_worker_close(worker->sandbox);
            stk_image_decoder_close(worker->decoder);
            status = no_scratch.status;
            if (error) {
                *error = no_scratch;
            }
            break;
        }
        worker->started = true;
        number = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (number != 0) {
            stk_sandbox_worker_close(worker->sandbox);
            stk_image_decoder_close(worker->decoder);
            stk_pages_free(worker->scratch, worker->scratch_bytes);
            status =
                stk_fail_errno(error, number, "cannot start a worker thread",
                               "raise the limit of processes or use fewer threads", "thread %u", i);
            break;
        }
        engine->worker_count = i + 1;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

void stk_workers_stop(struct stoker_engine *engine)
{
    stk_engine_lock(engine, NULL);
    engine->locked.stopping = true;
    pthread_cond_broadcast(&engine->work);
    stk_engine_unlock(engine);
    if (engine->sandbox) {
        stk_sandbox_stop(engine->sandbox);
    }
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        struct stk_worker *worker = &engine->workers[i];
        pthread_join(worker->thread, NULL);
        stk_sandbox_worker_close(worker->sandbox);
        stk_image_decoder_close(worker->decoder);
        stk_pages_free(worker->scratch, worker->scratch_bytes);
    }
    stk_free(engine->workers);
}

struct stk_worker *stk_worker_current(const struct stoker_engine *engine)
{
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        if (pthread_equal(engine->workers[i].thread, pthread_self())) {
            return &engine->workers[i];
        }
    }
    return NULL;
}

bool stk_worker_is_current(const struct stoker_engine *engine)
{
    return stk_worker_current(engine) != NULL;
}

uint64_t stk_engine_trim(struct stoker_engine *engine)
{
    struct stk_engine_service *service;
    uint64_t bytes = 0;

    stk_engine_lock(engine, NULL);
    service = engine->locked.service;
    for (struct stk_engine_client *it = engine->locked.clients; it; it = it->next) {
        bytes += it->trim_locked(it);
    }
    for (struct stk_memory_holder *it = engine->locked.memory_holders; it; it = it->next) {
        bytes += it->trim_locked(it);
    }
    stk_engine_unlock(engine);
    bytes += service ? service->trim(service) : 0;
    return bytes > 0 ? bytes
                     : stk_vfs_prefetch_trim(engine->io); /* last: prefetched data is needed soon */
}

void stk_engine_signal_locked(struct stoker_engine *engine, uint64_t count)
{
    if (count >= engine->locked.sleeping) {
        if (engine->locked.sleeping > 0) {
            pthread_cond_broadcast(&engine->work);
        }
        return;
    }
    for (; count > 0; count--) {
        pthread_cond_signal(&engine->work);
    }
}

/* Runs one round of the job. Returns false if all rounds were started. */
static bool job_step_locked(struct stoker_engine *engine, struct stk_parallel_job *job)
{
    struct stoker_error error = {0};
    uint64_t round;
    int status;

    if (job->locked.next_round >= job->locked.rounds) {
        return false;
    }
    round = job->locked.next_round++;
    job->locked.running++;
    stk_engine_unlock(engine);
    status = job->run(job->context, round, &error);
    stk_error_assert_status(&error, status);
    stk_engine_lock(engine, NULL);
    if (status < 0 && (job->locked.status == 0 || round < job->locked.failed_round)) {
        job->locked.status = status;
        job->locked.failed_round = round;
        job->locked.error = error;
        /* No new rounds; those that began before this one still finish. */
        job->locked.rounds = job->locked.next_round;
    }
    job->locked.running--;
    if (job->locked.running == 0) {
        pthread_cond_broadcast(&engine->done);
    }
    return true;
}

static int run_job(struct stoker_engine *engine, struct stk_parallel_job *request,
                   struct stoker_error *error)
{
    struct stk_parallel_job job = *request;
    struct stk_parallel_job **link;

    stk_engine_lock(engine, NULL);
    job.next = engine->locked.jobs;
    engine->locked.jobs = &job;
    stk_engine_signal_locked(engine, job.locked.rounds);
    while (job.sandboxed ? job.locked.next_round < job.locked.rounds
                         : job_step_locked(engine, &job)) {
        if (job.sandboxed) { /* the workers run the rounds */
            pthread_cond_wait(&engine->done, &engine->lock);
        }
    }
    for (link = &engine->locked.jobs; *link != &job; link = &(*link)->next) {
    }
    *link = job.next;
    while (job.locked.running > 0) {
        pthread_cond_wait(&engine->done, &engine->lock);
    }
    stk_engine_unlock(engine);
    if (job.locked.status < 0 && error) {
        *error = job.locked.error;
    }
    return job.locked.status;
}

int stk_engine_parallel(struct stoker_engine *engine, uint64_t rounds,
                        int (*run)(void *context, uint64_t round, struct stoker_error *error),
                        void *context, struct stoker_error *error)
{
    struct stk_parallel_job job = {.run = run, .context = context, .locked.rounds = rounds};

    return run_job(engine, &job, error);
}

int stk_engine_parallel_sandboxed(struct stoker_engine *engine, uint64_t rounds,
                                  int (*run)(void *context, uint64_t round,
                                             struct stoker_error *error),
                                  void *context, struct stoker_error *error)
{
    struct stk_parallel_job job = {.run = run,
                                   .context = context,
                                   .locked.rounds = rounds,
                                   .sandboxed = engine->workers[0].sandbox != NULL};

    return run_job(engine, &job, error);
}

static bool jobs_step_locked(struct stoker_engine *engine)
{
    for (struct stk_parallel_job *job = engine->locked.jobs; job; job = job->next) {
        if (job_step_locked(engine, job)) {
            return true;
        }
    }
    return false;
}

/* Moves the first client to the end of the list, so that clients share the workers evenly. */
static void rotate_locked(struct stoker_engine *engine)
{
    struct stk_engine_client *first = engine->locked.clients;
    struct stk_engine_client **link = &engine->locked.clients;

    if (!first || !first->next) {
        return;
    }
    *link = first->next;
    for (; *link; link = &(*link)->next) {
    }
    *link = first;
    first->next = NULL;
}

/* Does one step of a client. Clients with waiting callers come first. */
static bool clients_step_locked(struct stoker_engine *engine, struct stk_worker *worker)
{
    rotate_locked(engine);
    for (int pass = 0; pass < 2; pass++) {
        for (struct stk_engine_client *it = engine->locked.clients; it; it = it->next) {
            if ((it->waiting > 0) == (pass == 0) && it->step_locked(it, worker)) {
                return true;
            }
        }
    }
    return false;
}

static void scratch_free(struct stk_worker *worker)
{
    stk_pages_free(worker->scratch, worker->scratch_bytes);
    stk_budget_release(&worker->engine->budget, worker->scratch_bytes);
    worker->scratch = NULL;
    worker->scratch_bytes = 0;
}

/* Frees the scratch buffer of a very large sample while another thread waits for memory. Otherwise
 * the buffer is kept for the next sample. */
static bool release_scratch_locked(struct stk_worker *worker)
{
    if (worker->engine->locked.reserving == 0 || worker->scratch_bytes <= SCRATCH_KEEP_BYTES) {
        return false;
    }
    stk_engine_unlock(worker->engine);
    scratch_free(worker);
    stk_engine_lock(worker->engine, worker);
    return true;
}

uint8_t *stk_worker_scratch(struct stk_worker *worker, uint64_t bytes, struct stoker_error *error)
{
    struct stoker_engine *engine = worker->engine;

    /* The buffer of a very large sample is replaced at the next small one. */
    if (bytes <= worker->scratch_bytes &&
        (worker->scratch_bytes <= SCRATCH_KEEP_BYTES || bytes > worker->scratch_bytes / 4)) {
        return worker->scratch;
    }
    scratch_free(worker);
    if (bytes > UINT64_MAX / 4) {
        stk_fail(error, STOKER_ERROR_BUDGET, "a sample is larger than memory",
                 "check the shard's headers", "%llu bytes", (unsigned long long)bytes);
        return NULL;
    }
    bytes = stk_round_up(stk_max(bytes + bytes / 4, SCRATCH_BYTES_MIN), 4096);
    /* Before the threads run, no thread could release memory: no wait. */
    if (stk_engine_reserve(engine, bytes, worker->started ? engine->options.read_timeout_ms : 0,
                           "a sample's bytes", error) < 0) {
        return NULL;
    }
    worker->scratch = stk_pages_alloc(bytes);
    if (!worker->scratch) {
        stk_budget_release(&engine->budget, bytes);
        stk_fail(error, -ENOMEM, "cannot take memory for a sample", "free memory", "%llu bytes",
                 (unsigned long long)bytes);
        return NULL;
    }
    worker->scratch_bytes = bytes;
    return worker->scratch;
}

/* Whether a client has no work for the reason that its bytes are in flight. */
static bool waits_for_bytes_locked(const struct stoker_engine *engine)
{
    for (const struct stk_engine_client *client = engine->locked.clients; client;
         client = client->next) {
        if (client->waits_for_bytes_locked && client->waits_for_bytes_locked(client)) {
            return true;
        }
    }
    return false;
}

static void *worker_main(void *argument)
{
    struct stk_worker *worker = argument;
    struct stoker_engine *engine = worker->engine;

    pthread_setname_np(pthread_self(), "stoker-worker");
    stk_engine_lock(engine, worker);
    while (!engine->locked.stopping) {
        uint64_t before, slept_ns;
        bool waits;

        if (release_scratch_locked(worker) || jobs_step_locked(engine) ||
            clients_step_locked(engine, worker)) {
            continue;
        }
        before = stk_engine_now(engine);
        waits = waits_for_bytes_locked(engine);
        engine->locked.sleeping++;
        pthread_cond_wait(&engine->work, &engine->lock);
        engine->locked.sleeping--;
        slept_ns = stk_engine_now(engine) - before;
        atomic_fetch_add_explicit(&worker->idle_ns, slept_ns, memory_order_relaxed);
        atomic_fetch_add_explicit(&worker->storage_wait_ns, waits ? slept_ns : 0,
                                  memory_order_relaxed);
    }
    stk_engine_unlock(engine);
    return NULL;
}
