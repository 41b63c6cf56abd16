/* programs/decode_helper/helper_confine.h: drops all privileges of a process except computing.
 *
 * Afterwards the process can use its memory and its two descriptors, and exit. No files (by
 * seccomp and by Landlock), no network, no other processes, no new executable memory.
 * Owner: the process, permanently. Threads: the only one. Memory: none. Bound: none. */
#ifndef PROGRAMS_DECODE_HELPER_HELPER_CONFINE_H
#define PROGRAMS_DECODE_HELPER_HELPER_CONFINE_H

#include "base/base.h"

/* Confines the process. Returns 0 and sets *landlock_out to the version of the kernel's Landlock,
 * 0: none; a negative errno if the process is not confined, and sets *step_out to the failed step.
 */
int stk_helper_confine(uint32_t *landlock_out, const char **step_out);
/* Only the Landlock part: no files and no TCP ports. Returns 0, or a negative errno. */
int stk_helper_confine_files(uint32_t *landlock_out);
/* Only the limits: no core file, no byte of a file, no process, no descriptor besides its own.
 * Returns 0, or a negative errno. */
int stk_helper_confine_limits(void);

#endif
