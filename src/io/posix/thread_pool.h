/* io/posix/thread_pool.h: threads for calls that may never return.
 *
 *   idle --submit--> pending --> running --> done, in its inbox --taken by the submitter--> idle
 *                       |           `--abandon--> abandoned --the call returns--> drop
 *                       `--abandon--> idle
 *
 * A thread that hangs in the kernel cannot be ended. Its task is abandoned, another thread replaces
 * it, and the task is freed when the call returns.
 * Owner: a queue, or the POSIX io. Threads: any; _locked: with the lock of the pool.
 * Memory: allocated in open; freed after the owner closed the pool and the last thread ended.
 * Bound: threads_max that work, and STK_THREAD_POOL_HUNG_MAX that hang. */
#ifndef IO_POSIX_THREAD_POOL_H
#define IO_POSIX_THREAD_POOL_H

#include "base/base.h"

#include <pthread.h>

#define STK_THREAD_POOL_HUNG_MAX 64u
/* How long close waits for threads that hang. */
#define STK_THREAD_POOL_CLOSE_MS 100u

enum stk_task_state {
    STK_TASK_IDLE = 0,
    STK_TASK_PENDING,
    STK_TASK_RUNNING,
    STK_TASK_DONE,
    STK_TASK_ABANDONED
};

/* Receives finished tasks. The lock of the pool protects all fields. */
struct stk_inbox {
    pthread_cond_t arrived;
    struct stk_task *first, *last;
    bool woken; /* ends a wait; its owner clears it */
};

struct stk_task {
    void (*run)(struct stk_task *task);  /* on a pool thread, without the lock */
    void (*drop)(struct stk_task *task); /* the same, after an abandoned run has returned */
    struct stk_inbox *inbox;
    struct stk_task *next, *previous; /* of the pending list or the inbox */
    uint32_t state;                   /* enum stk_task_state */
};

struct stk_thread_pool {
    uint32_t threads_max; /* const after open */
    void *memory;         /* const after open; owned */
    pthread_mutex_t lock;
    struct {
        pthread_cond_t work;
        pthread_cond_t left; /* a thread ended */
        struct stk_task *first, *last;
        uint32_t pending, idle, threads, stuck;
        bool closing;
        bool orphan; /* closed: the last thread frees it */
    } locked;
};

/* Gives *pool_out. Takes `memory` (also on failure): a block of stk_alloc with the tasks, which
 * must outlive the last thread; NULL is allowed. Starts no thread yet. */
int stk_thread_pool_open(struct stk_thread_pool **pool_out, uint32_t threads_max, void *memory,
                         struct stoker_error *error);
/* Takes pool; all tasks of the caller must be done or abandoned. Waits for the threads that do not
 * hang. NULL is allowed. */
void stk_thread_pool_close(struct stk_thread_pool *pool);

void stk_inbox_init(struct stk_inbox *inbox);
void stk_inbox_deinit(struct stk_inbox *inbox);
/* Takes the whole list. Returns NULL if no task finished before until_ns (0: does not wait) or a
 * wake. */
struct stk_task *stk_inbox_take_locked(struct stk_thread_pool *pool, struct stk_inbox *inbox,
                                       uint64_t until_ns);

/* Submits an idle task, and starts a thread if none is free. */
void stk_thread_pool_submit_locked(struct stk_thread_pool *pool, struct stk_task *task);
/* Abandons a pending or running task. Returns true if it never ran: it is the caller's again.
 * Returns false if it runs: it belongs to the pool now, which calls drop when the call returns. */
bool stk_thread_pool_abandon_locked(struct stk_thread_pool *pool, struct stk_task *task);

/* Runs one task and waits for it. Returns 0, or STOKER_ERROR_TIMEOUT: then the task belongs to the
 * pool, which calls drop. Sets the inbox of the task. */
int stk_thread_pool_call(struct stk_thread_pool *pool, struct stk_task *task, uint32_t timeout_ms);

#endif
