/* programs/decode_helper/helper_confine.h: a process gives away all that it may do but to compute.
 *
 * Afterwards it can use its memory, the two descriptors that it was given, and end. No files (by
 * seccomp and by Landlock), no network, no other processes, no new executable memory.
 * Owner: the process, for ever. Threads: the only one. Memory: none. Bound: none. */
#ifndef PROGRAMS_DECODE_HELPER_HELPER_CONFINE_H
#define PROGRAMS_DECODE_HELPER_HELPER_CONFINE_H

#include "base/base.h"

/* *landlock_out: version of the kernel's Landlock, 0 when it has none. Negative: not confined, and
 * *step_out says what failed. */
int stk_helper_confine(uint32_t *landlock_out, const char **step_out);
/* Of it Landlock alone: no file and no TCP port, whoever asks. As status. */
int stk_helper_confine_files(uint32_t *landlock_out);

#endif
