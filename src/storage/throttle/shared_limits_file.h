/* storage/throttle/shared_limits_file.h: the file that processes share, and how it is come by.
 *
 * Owner: struct stk_shared_limits. Threads: any process at any time: all words are atomic, a pace
 * is its holder's. Memory: one mapping. Bound: the size of struct stk_shared_limits_file. */
#ifndef STORAGE_THROTTLE_SHARED_LIMITS_FILE_H
#define STORAGE_THROTTLE_SHARED_LIMITS_FILE_H

#include "storage/throttle/shared_limits.h"

#include <stdatomic.h>

#define STK_SHARED_LIMITS_LAYOUT 4u /* in the name: other layouts are other files */
#define STK_SHARED_LIMITS_MAGIC 0x31656e6b6f747320ull

struct stk_shared_limits_member {
    _Atomic uint32_t connections_max; /* 0: nobody */
    _Atomic uint32_t requested;
    _Atomic uint64_t requested_ns; /* the demand */
};

struct stk_shared_limits_rate {
    _Atomic uint64_t prefix; /* 0: none */
    _Atomic uint64_t used_ns;
    _Atomic uint64_t rate;   /* pace.rate, for those who only look */
    _Atomic uint32_t holder; /* member + 1 while it is changed */
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

/* The file of this user in the folder: opened, or made; a damaged one is made anew. Below 0:
 * -errno, and *reason_out (static) says what is wrong. */
int stk_shared_limits_file_open(const char *folder, int *fd_out,
                                struct stk_shared_limits_file **file_out, const char **reason_out);
/* Whether bytes have the head of such a file. */
bool stk_shared_limits_file_is_valid(const void *head, size_t bytes, uint64_t file_bytes);
#define STK_SHARED_LIMITS_HEAD_BYTES 16u
/* The lock on a member's byte; the kernel lets go of it when its process ends. */
bool stk_shared_limits_lock_member(int fd, uint32_t member);
void stk_shared_limits_unlock_member(int fd, uint32_t member);

#endif
