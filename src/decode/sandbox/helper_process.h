/* decode/sandbox/helper_process.h: starts and ends a child process that has two descriptors only.
 *
 *   start -> running -> (kill) -> ended, with the reason
 *
 * Owner: a sandbox worker. Threads: the one that started it: the child is killed when that thread
 * ends. Memory: none. Bound: one process. */
#ifndef DECODE_SANDBOX_HELPER_PROCESS_H
#define DECODE_SANDBOX_HELPER_PROCESS_H

#include "base/base.h"

#include <sys/types.h>

struct stk_helper_process {
    pid_t process; /* 0: none */
    int handle;    /* pidfd: readable when it has ended */
    int socket;    /* our end */
};

/* Starts `program` with its end of a socket and `arena` as its only descriptors. */
int stk_helper_process_start(struct stk_helper_process *child, const char *program, int arena,
                             struct stoker_error *error);
/* Limits the memory of the helper; allocations beyond the limit fail. */
void stk_helper_process_limit_memory(const struct stk_helper_process *child,
                                     uint64_t address_bytes);
/* Returns the CPU time that the helper has used. */
uint64_t stk_helper_process_cpu_ns(const struct stk_helper_process *child);
/* Kills the helper if it still runs. Returns the signal that ended it earlier, 0 if it was running
 * or exited, -1 if the cause is unknown. */
int stk_helper_process_stop(struct stk_helper_process *child);

/* Finds the default path of the helper: beside the file that this code was loaded from. */
int stk_helper_process_locate(char *path, size_t capacity, struct stoker_error *error);

#endif
