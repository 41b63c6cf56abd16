/* Starts threads that no signal is delivered to, and sets up condition variables. */
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <time.h>

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
