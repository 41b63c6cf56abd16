/* io/posix/thread_pool.h: threads for calls that may never return.
 *
 *   idle --submit--> pending --> running --> done, in its inbox --taken by the submitter--> idle
 *                       |           `--abandon--> abandoned --the call returns--> drop
 *                       `--abandon--> idle
 *
 * A thread that hangs in the kernel cannot be ended, only left behind: its task is abandoned,
 * another thread takes its place, and whoever finishes last frees the memory.
 * Owner: a queue, or the posix io. Threads: any; _locked: with the pool's lock.
 * Memory: taken in open; freed when the owner closed it and the last thread came back.
 * Bound: threads_max at work, and STK_THREAD_POOL_HUNG_MAX that hang. */
#ifndef IO_POSIX_THREAD_POOL_H
#define IO_POSIX_THREAD_POOL_H

#include "base/base.h"

#include <pthread.h>

#define STK_THREAD_POOL_HUNG_MAX 64u
/* How long a close waits for threads that hang. */
#define STK_THREAD_POOL_CLOSE_MS 100u

enum stk_task_state {
    STK_TASK_IDLE = 0,
    STK_TASK_PENDING,
    STK_TASK_RUNNING,
    STK_TASK_DONE,
    STK_TASK_ABANDONED
};

/* Where finished tasks are met. All fields belong to the pool's lock. */
struct stk_inbox {
    pthread_cond_t arrived;
    struct stk_task *first, *last;
    bool woken; /* ends a wait; its owner clears it */
};

struct stk_task {
    void (*run)(struct stk_task *task);  /* on a pool thread, without the lock */
    void (*drop)(struct stk_task *task); /* the same; its abandoned run came back: nobody waits */
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

/* Gives *pool_out. Takes `memory` (also on failure): a block of stk_alloc that tasks live in and
 * that must outlive the last thread; NULL is fine. No thread is started yet. */
int stk_thread_pool_open(struct stk_thread_pool **pool_out, uint32_t threads_max, void *memory,
                         struct stoker_error *error);
/* Takes pool, in which no task of the caller is pending or running any more (done or abandoned).
 * Waits for healthy threads to end, not for stuck ones. NULL is fine. */
void stk_thread_pool_close(struct stk_thread_pool *pool);

void stk_inbox_init(struct stk_inbox *inbox);
void stk_inbox_deinit(struct stk_inbox *inbox);
/* Takes the whole list, NULL if none came until until_ns (0: does not wait) or a wake. */
struct stk_task *stk_inbox_take_locked(struct stk_thread_pool *pool, struct stk_inbox *inbox,
                                       uint64_t until_ns);

/* Hands the task over, idle before; starts a thread when none is free. */
void stk_thread_pool_submit_locked(struct stk_thread_pool *pool, struct stk_task *task);
/* Gives up a pending or running task. True: it never ran and is the caller's again. False: it
 * runs, and now belongs to the pool, which calls drop when it comes back. */
bool stk_thread_pool_abandon_locked(struct stk_thread_pool *pool, struct stk_task *task);

/* Runs one task and waits for it: 0, or STOKER_ERROR_TIMEOUT, after which the task is the
 * pool's (drop was or will be called). The task's inbox is not the caller's concern. */
int stk_thread_pool_call(struct stk_thread_pool *pool, struct stk_task *task, uint32_t timeout_ms);

#endif
