/* Starts threads that no signal is delivered to, sets up condition variables, and knows the number
 * of the process. */
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define TRIES 20 /* another thread may be ending, which makes room for one */
#define TRY_MS 5

int stk_thread_start(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                     void *context)
{
    sigset_t all, before;
    int number, tries = 0;

    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* reads of a mapped file that was cut: see io/posix/map_guard.h */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do {
        number = pthread_create(thread_out, attributes, run, context);
    } while (number == EAGAIN && tries++ < TRIES && poll(NULL, 0, TRY_MS) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -number;
}

void stk_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

static _Atomic pid_t process_id;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_process_id(void)
{
    atomic_store_explicit(&process_id, getpid(), memory_order_relaxed);
}

/* In this order: if another thread forks in between, the child has no number, not its parent's.
 * Without memory for the handler, the kernel is called each time. */
static void register_fork_handler(void)
{
    if (pthread_atfork(NULL, NULL, read_process_id) == 0) {
        read_process_id();
    }
}

pid_t stk_process_id(void)
{
    pid_t id = atomic_load_explicit(&process_id, memory_order_relaxed);

    if (id != 0) {
        return id;
    }
    pthread_once(&once, register_fork_handler);
    id = atomic_load_explicit(&process_id, memory_order_relaxed);
    return id != 0 ? id : getpid();
}
