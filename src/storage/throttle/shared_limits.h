/* storage/throttle/shared_limits.h: limits that the processes of a user share on a machine: the
 * number of open connections, and the rate below each prefix of a bucket. A file in shared memory:
 *
 *   FOLDER/stoker-UID   header | members | leases | rates
 *
 *   open --locks the byte of its member--> member --acquire/release--> leases that name it
 *   killed --the kernel releases the lock--> other processes free its leases
 *
 * A lease is the right to one connection. The content of the file is not trusted: it has no
 * pointers or lengths, and numbers are clipped where they are read. A file of another user, or one
 * that others may write, is refused; a damaged one is replaced. Without a file each process limits
 * itself. Owner: who opened it. Threads: any for rates; one for leases and requests. After fork the
 * child must not use it. Memory: a mapping. Bound: STK_SHARED_LIMITS_MEMBERS processes at a time,
 * further ones do not share; STK_SHARED_LIMITS_RATES prefixes, then the least recently used one is
 * forgotten. */
#ifndef STORAGE_THROTTLE_SHARED_LIMITS_H
#define STORAGE_THROTTLE_SHARED_LIMITS_H

#include "storage/throttle/throttle.h"

#define STK_SHARED_LIMITS_MEMBERS 128u
#define STK_SHARED_LIMITS_LEASES 1024u
#define STK_SHARED_LIMITS_RATES 256u
#define STK_SHARED_LIMITS_CONNECTIONS_DEFAULT 256u
#define STK_SHARED_LIMITS_STALE_MS 2000u /* a request that is not repeated expires after this */

struct stk_shared_limits_options {
    const char *folder; /* NULL: STOKER_NODE_DIR, else /dev/shm, else $XDG_RUNTIME_DIR */
    uint32_t
        connections_max; /* of the machine; 0: the default. The lowest of all members applies */
    bool not_shared;     /* share nothing */
};

struct stk_shared_limits;

/* Returns 0 on success, -ENOMEM if there is no memory. If there is no file that can be trusted,
 * nothing is shared. */
int stk_shared_limits_open(struct stk_shared_limits **limits_out,
                           const struct stk_shared_limits_options *options,
                           struct stoker_error *error);
void stk_shared_limits_close(
    struct stk_shared_limits *limits); /* releases all leases; NULL is allowed */
/* Empty if the limits are shared, else why not. Valid until close. */
const char *stk_shared_limits_note(const struct stk_shared_limits *limits);

/* Sets the number of connections that this process wants now. */
void stk_shared_limits_request(struct stk_shared_limits *limits, uint32_t connections,
                               uint64_t now_ns);
/* Takes a lease; false: the share of this process is used up, or all leases are taken. */
bool stk_shared_limits_acquire(struct stk_shared_limits *limits, uint64_t now_ns);
void stk_shared_limits_release(struct stk_shared_limits *limits, uint32_t count);
uint32_t stk_shared_limits_held(const struct stk_shared_limits *limits);
/* The number of leases to release, because other processes want their share. */
uint32_t stk_shared_limits_excess(struct stk_shared_limits *limits, uint64_t now_ns);

struct stk_shared_limits_stats {
    uint32_t connections_max, connections; /* of the machine */
    uint32_t members;
    uint64_t
        rate; /* the lowest of all limited prefixes, in thousandths a second; 0: none is limited */
};
void stk_shared_limits_get_stats(struct stk_shared_limits *limits, uint64_t now_ns,
                                 struct stk_shared_limits_stats *stats_out);

/* stk_rate_limit_acquire for a prefix. *out (may be NULL) is set by stk_rate_limit_is_outage. */
bool stk_shared_limits_admit(struct stk_shared_limits *limits, uint64_t prefix, uint64_t now_ns,
                             bool *out);
struct stk_shared_limits_state {
    bool throttled;   /* stk_rate_limit_is_active */
    bool ineffective; /* stk_rate_limit_is_wait_ineffective */
    bool outage;      /* stk_rate_limit_is_outage */
};
/* stk_rate_limit_record for a prefix; answer: enum stk_rate_limit_response. */
struct stk_shared_limits_state stk_shared_limits_record(struct stk_shared_limits *limits,
                                                        uint64_t prefix, uint64_t sent_ns,
                                                        uint64_t now_ns, uint32_t answer);

#endif
