/* base/thread.h: threads and condition variables of the library. Threads of the library block all
 * signals: those are for the threads of the program.
 * Owner: the code that starts a thread joins it, unless its attributes say "detached". Threads:
 * any. Memory: the thread's stack. Bound: the caller's. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* As pthread_create. attributes NULL: joinable, with the default stack. Returns 0 on success or
 * -errno. */
int stk_thread_start(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                     void *context);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC, so that setting the wall
 * clock does not change them. */
void stk_cond_init(pthread_cond_t *cond);

#endif
