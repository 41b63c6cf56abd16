/* base/thread.h: threads and condition variables of the library, and its process. Threads of the
 * library block all signals: those are for the threads of the program. Owner: the code that starts
 * a thread joins it, unless its attributes say "detached". Threads: any. Memory: the thread's
 * stack. Bound: the caller's. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>
#include <sys/types.h>

/* As pthread_create. attributes NULL: joinable, with the default stack. Returns 0 on success or
 * -errno. */
int stk_thread_start(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                     void *context);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC, so that setting the wall
 * clock does not change them. */
void stk_cond_init(pthread_cond_t *cond);
/* Equals getpid(), without a system call: objects that a fork copies compare it several times a
 * batch. A child that clone() or _Fork() made without fork handlers sees its parent's. */
pid_t stk_process_id(void);

#endif
