/* base/thread.h: threads of the library. Signals are for the threads of who uses it, so ours are
 * started with all of them blocked.
 * Owner: who starts one joins it, unless its attributes say that nobody does. Threads: any.
 * Memory: its stack. Bound: the caller's. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* As pthread_create; attributes NULL: to be joined, with the usual stack. 0 or -errno. */
int stk_thread_start(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                     void *context);
/* A condition variable whose timed waits take times of CLOCK_MONOTONIC, so that a change of the
 * wall clock neither shortens nor prolongs them. */
void stk_cond_init(pthread_cond_t *cond);

#endif
