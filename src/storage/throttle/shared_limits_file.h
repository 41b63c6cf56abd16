/* storage/throttle/shared_limits_file.h: layout of the file that processes share, and how to open
 * it.
 *
 * Owner: struct stk_shared_limits. Threads: any process at any time: all words are atomic; a rate
 * belongs to its holder. Memory: one mapping. Bound: the size of struct stk_shared_limits_file. */
#ifndef STORAGE_THROTTLE_SHARED_LIMITS_FILE_H
#define STORAGE_THROTTLE_SHARED_LIMITS_FILE_H

#include "storage/throttle/shared_limits.h"

#include <stdatomic.h>

#define STK_SHARED_LIMITS_LAYOUT 4u /* part of the name: another layout is another file */
#define STK_SHARED_LIMITS_MAGIC 0x31656e6b6f747320ull

struct stk_shared_limits_member {
    _Atomic uint32_t connections_max; /* 0: no process */
    _Atomic uint32_t requested;
    _Atomic uint64_t requested_ns; /* when `requested` was set */
};

struct stk_shared_limits_rate {
    _Atomic uint64_t prefix; /* 0: none */
    _Atomic uint64_t used_ns;
    _Atomic uint64_t rate;   /* limit.rate, for readers that do not hold it */
    _Atomic uint32_t holder; /* member + 1 while it changes the limit; 0: none */
    uint32_t unused;
    struct stk_rate_limit limit;
};

struct stk_shared_limits_file {
    uint64_t magic;
    uint32_t layout, bytes;
    _Atomic uint32_t leases[STK_SHARED_LIMITS_LEASES]; /* member + 1; 0: free */
    struct stk_shared_limits_member members[STK_SHARED_LIMITS_MEMBERS];
    struct stk_shared_limits_rate rates[STK_SHARED_LIMITS_RATES];
};

/* Opens or creates the file of this user in a folder; replaces a damaged one. Returns 0 on
 * success, or -errno and the reason in *reason_out (static). */
int stk_shared_limits_file_open(const char *folder, int *fd_out,
                                struct stk_shared_limits_file **file_out, const char **reason_out);
/* Unmaps and closes it. */
void stk_shared_limits_file_close(int fd, struct stk_shared_limits_file *file);
/* Whether `bytes` at head are the head of a file with file_bytes. */
bool stk_shared_limits_file_is_valid(const void *head, size_t bytes, uint64_t file_bytes);
#define STK_SHARED_LIMITS_HEAD_BYTES 16u
/* Locks the byte of a member; the kernel releases the lock when the process ends. */
bool stk_shared_limits_lock_member(int fd, uint32_t member);
void stk_shared_limits_unlock_member(int fd, uint32_t member);

#endif
