/* io/machine.h: what the machine grants, under a prefix so that tests can bring their own /proc.
 * Owner: values. Threads: any. Memory: the stack. Bound: STK_MACHINE_TEXT_BYTES a file. */
#ifndef IO_MACHINE_H
#define IO_MACHINE_H

#include "base/base.h"

#define STK_MACHINE_TEXT_BYTES (64u << 10)

/* The smaller of affinity_cores and the cgroup's processor quotas, rounded up; at least 1. */
uint32_t stk_machine_cores(const char *prefix, uint32_t affinity_cores);
/* The least of the cgroup's memory limits and the machine's memory. */
uint64_t stk_machine_memory_bytes(const char *prefix);
/* Reads a small text file, cut to fit and NUL-ended; false if it cannot be read. */
bool stk_machine_text(const char *path, char *text, size_t text_bytes);
/* The same of any bytes: how many, or -errno. */
int64_t stk_machine_bytes(const char *path, uint8_t *data, size_t bytes_max);

/* Writes a small file for its owner alone (0600), whole or not at all, through a file beside it; a
 * link is replaced. 0 or -errno. */
int stk_machine_save(const char *path, const void *data, size_t bytes);

/* The path from the root on, its text else untouched. False: too long, or no working directory. */
bool stk_machine_absolute(const char *path, char *text, size_t text_bytes);
/* The user's cache folder: $STOKER_CACHE, $XDG_CACHE_HOME/stoker or $HOME/.cache/stoker, with no
 * '/' at its end. False: none of them is set to an absolute path, or it is too long. */
bool stk_machine_cache(char *text, size_t text_bytes);

#endif
