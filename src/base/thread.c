/* Starts threads that no signal is delivered to. */
#include "base/thread.h"

#include <signal.h>

int stk_thread_start(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                     void *context)
{
    sigset_t all, before;
    int number;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    number = pthread_create(thread_out, attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -number;
}
