/* Threads for calls that may never return: started on demand, abandoned if they hang. */
#include "io/posix/thread_pool.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/clock.h"

#include <errno.h>

#define STACK_BYTES (512u << 10)

static void *thread_main(void *argument);
static void start_thread_locked(struct stk_thread_pool *pool);
static void remove_pending_locked(struct stk_thread_pool *pool, struct stk_task *task);
static bool finish_locked(struct stk_thread_pool *pool, struct stk_task *task);
static void wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns);
static void pool_free(struct stk_thread_pool *pool);

int stk_thread_pool_open(struct stk_thread_pool **pool_out, uint32_t threads_max, void *memory,
                         struct stoker_error *error)
{
    struct stk_thread_pool *pool = stk_alloc(1, sizeof *pool);

    if (!pool) {
        stk_free(memory);
        return stk_fail_errno(error, ENOMEM, "cannot open a pool of threads",
                              "give the process more memory", "%u threads", threads_max);
    }
    pool->threads_max = threads_max;
    pool->memory = memory;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->locked.work, NULL);
    pthread_cond_init(&pool->locked.left, NULL);
    *pool_out = pool;
    return 0;
}

void stk_thread_pool_close(struct stk_thread_pool *pool)
{
    uint64_t until_ns;
    bool last;

    if (!pool) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    STK_ASSERT(pool->locked.first == NULL);
    pool->locked.closing = true;
    pthread_cond_broadcast(&pool->locked.work);
    /* Threads that do not hang are idle, so they end at once. */
    while (pool->locked.threads > pool->locked.stuck) {
        pthread_cond_wait(&pool->locked.left, &pool->lock);
    }
    until_ns = stk_clock_ns() + STK_THREAD_POOL_CLOSE_MS * 1000000ull;
    while (pool->locked.threads > 0 && stk_clock_ns() < until_ns) {
        wait_until(&pool->locked.left, &pool->lock, until_ns);
    }
    last = pool->locked.threads == 0;
    pool->locked.orphan = true;
    pthread_mutex_unlock(&pool->lock);
    if (last) {
        pool_free(pool);
    }
}

void stk_inbox_init(struct stk_inbox *inbox)
{
    *inbox = (struct stk_inbox){0};
    pthread_cond_init(&inbox->arrived, NULL);
}

void stk_inbox_deinit(struct stk_inbox *inbox)
{
    pthread_cond_destroy(&inbox->arrived);
}

struct stk_task *stk_inbox_take_locked(struct stk_thread_pool *pool, struct stk_inbox *inbox,
                                       uint64_t until_ns)
{
    struct stk_task *first;

    while (!inbox->first && !inbox->woken && until_ns > stk_clock_ns()) {
        wait_until(&inbox->arrived, &pool->lock, until_ns);
    }
    first = inbox->first;
    inbox->first = inbox->last = NULL;
    return first;
}

void stk_thread_pool_submit_locked(struct stk_thread_pool *pool, struct stk_task *task)
{
    STK_ASSERT(task->state == STK_TASK_IDLE);
    task->state = STK_TASK_PENDING;
    task->next = NULL;
    task->previous = pool->locked.last;
    *(pool->locked.last ? &pool->locked.last->next : &pool->locked.first) = task;
    pool->locked.last = task;
    pool->locked.pending++;
    if (pool->locked.idle >= pool->locked.pending) {
        pthread_cond_signal(&pool->locked.work);
    } else {
        start_thread_locked(pool);
    }
}

bool stk_thread_pool_abandon_locked(struct stk_thread_pool *pool, struct stk_task *task)
{
    if (task->state == STK_TASK_PENDING) {
        remove_pending_locked(pool, task);
        task->state = STK_TASK_IDLE;
        return true;
    }
    STK_ASSERT(task->state == STK_TASK_RUNNING);
    task->state = STK_TASK_ABANDONED;
    pool->locked.stuck++;
    if (pool->locked.pending > pool->locked.idle) {
        start_thread_locked(pool);
    }
    pthread_cond_broadcast(&pool->locked.left);
    return false;
}

int stk_thread_pool_call(struct stk_thread_pool *pool, struct stk_task *task, uint32_t timeout_ms)
{
    uint64_t until_ns = stk_clock_ns() + timeout_ms * 1000000ull;
    struct stk_inbox inbox;
    int status = 0;
    bool unused = false;

    stk_inbox_init(&inbox);
    pthread_mutex_lock(&pool->lock);
    task->inbox = &inbox;
    stk_thread_pool_submit_locked(pool, task);
    if (!stk_inbox_take_locked(pool, &inbox, until_ns)) {
        status = STOKER_ERROR_TIMEOUT;
        unused = stk_thread_pool_abandon_locked(pool, task);
    } else {
        task->state = STK_TASK_IDLE;
    }
    pthread_mutex_unlock(&pool->lock);
    stk_inbox_deinit(&inbox);
    if (unused) {
        task->drop(task);
    }
    return status;
}

static void wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = stk_clock_timespec(until_ns);

    pthread_cond_clockwait(condition, lock, CLOCK_MONOTONIC, &until);
}

/* A failure to start is no error: the tasks wait for the existing threads, or time out. */
static void start_thread_locked(struct stk_thread_pool *pool)
{
    pthread_attr_t attributes;
    pthread_t thread;

    if (pool->locked.threads - pool->locked.stuck >= pool->threads_max ||
        pool->locked.threads >= pool->threads_max + STK_THREAD_POOL_HUNG_MAX) {
        return;
    }
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (stk_thread_start(&thread, &attributes, thread_main, pool) == 0) {
        pool->locked.threads++;
    }
    pthread_attr_destroy(&attributes);
}

static void *thread_main(void *argument)
{
    struct stk_thread_pool *pool = argument;
    bool last;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct stk_task *task = pool->locked.first;

        if (task) {
            remove_pending_locked(pool, task);
            task->state = STK_TASK_RUNNING;
            pthread_mutex_unlock(&pool->lock);
            task->run(task);
            pthread_mutex_lock(&pool->lock);
            if (!finish_locked(pool, task)) {
                break;
            }
        } else if (pool->locked.closing) {
            break;
        } else {
            pool->locked.idle++;
            pthread_cond_wait(&pool->locked.work, &pool->lock);
            pool->locked.idle--;
        }
    }
    pool->locked.threads--;
    last = pool->locked.threads == 0 && pool->locked.orphan;
    pthread_cond_broadcast(&pool->locked.left);
    pthread_mutex_unlock(&pool->lock);
    if (last) {
        pool_free(pool);
    }
    return NULL;
}

/* Returns false if this thread hung and was replaced: it ends. */
static bool finish_locked(struct stk_thread_pool *pool, struct stk_task *task)
{
    struct stk_inbox *inbox = task->inbox;

    if (task->state == STK_TASK_ABANDONED) {
        pthread_mutex_unlock(&pool->lock);
        task->drop(task);
        pthread_mutex_lock(&pool->lock);
        pool->locked.stuck--;
        return pool->locked.threads - pool->locked.stuck <= pool->threads_max;
    }
    task->state = STK_TASK_DONE;
    task->next = NULL;
    *(inbox->last ? &inbox->last->next : &inbox->first) = task;
    inbox->last = task;
    pthread_cond_signal(&inbox->arrived);
    return true;
}

static void remove_pending_locked(struct stk_thread_pool *pool, struct stk_task *task)
{
    *(task->previous ? &task->previous->next : &pool->locked.first) = task->next;
    *(task->next ? &task->next->previous : &pool->locked.last) = task->previous;
    task->next = task->previous = NULL;
    pool->locked.pending--;
}

static void pool_free(struct stk_thread_pool *pool)
{
    pthread_cond_destroy(&pool->locked.work);
    pthread_cond_destroy(&pool->locked.left);
    pthread_mutex_destroy(&pool->lock);
    stk_free(pool->memory);
    stk_free(pool);
}
