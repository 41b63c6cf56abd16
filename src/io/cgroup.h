/* io/cgroup.h: the cores and the memory that the machine and its control groups grant to the
 * process. A prefix is prepended to /proc and /sys, for tests. Owner: values. Threads: any. Memory:
 * the stack, and one text while it is read. Bound: STK_CGROUP_TEXT_BYTES a file. */
#ifndef IO_CGROUP_H
#define IO_CGROUP_H

#include "base/base.h"

#define STK_CGROUP_TEXT_BYTES (64u << 10)

/* The smaller of affinity_cores and the cgroup's processor quotas, rounded up; at least 1. */
uint32_t stk_cgroup_cores(const char *prefix, uint32_t affinity_cores);
/* The least of the cgroup's memory limits and the machine's memory. */
uint64_t stk_cgroup_memory_bytes(const char *prefix);

#endif
