/* storage/throttle/shared_limits.h: what the processes of a user share on a machine: how many
 * connections are open, and the rate below each prefix of a bucket. A file in shared memory:
 *
 *   FOLDER/stoker-UID   header | members | leases | paces
 *
 *   open --a lock on the byte of its member--> member --take/give--> leases that name it
 *   killed --the kernel lets go of the lock--> others free what names it
 *
 * A lease is the right to one connection. Nothing in the file is believed: it holds no pointers or
 * lengths, numbers are clipped where they are read. A file of another user, or that others may
 * write, is refused; one that is damaged is made anew. Without a file each process keeps manners
 * for itself.
 * Owner: who opened it. Threads: any for paces; one for leases and demand. After fork the child
 * must leave it alone. Memory: a mapping. Bound: STK_SHARED_LIMITS_MEMBERS processes at a time,
 * others are alone; STK_SHARED_LIMITS_RATES prefixes, then the one that was used longest ago is
 * forgotten. */
#ifndef STORAGE_THROTTLE_SHARED_LIMITS_H
#define STORAGE_THROTTLE_SHARED_LIMITS_H

#include "storage/throttle/throttle.h"

#define STK_SHARED_LIMITS_MEMBERS 128u
#define STK_SHARED_LIMITS_LEASES 1024u
#define STK_SHARED_LIMITS_RATES 256u
#define STK_SHARED_LIMITS_CONNECTIONS_DEFAULT 256u
#define STK_SHARED_LIMITS_STALE_MS                                                                 \
    2000u /* a demand that was not told again for so long is none                                  \
           */

struct stk_shared_limits_options {
    const char *folder;       /* NULL: STOKER_NODE_DIR, else /dev/shm, else $XDG_RUNTIME_DIR */
    uint32_t connections_max; /* of the node; 0: the default. The least of its members holds */
    bool not_shared;          /* shares nothing */
};

struct stk_shared_limits;

/* 0 or -ENOMEM. Without a file, or where none can be trusted, it is alone. */
int stk_shared_limits_open(struct stk_shared_limits **limits_out,
                           const struct stk_shared_limits_options *options,
                           struct stoker_error *error);
void stk_shared_limits_close(struct stk_shared_limits *limits); /* gives all; NULL is fine */
/* Empty: shared; else why not. Lent until close. */
const char *stk_shared_limits_note(const struct stk_shared_limits *limits);

/* What this member would like to have open now. */
void stk_shared_limits_request(struct stk_shared_limits *limits, uint32_t connections,
                               uint64_t now_ns);
/* Takes a lease; false: its share is used up, or all are taken. */
bool stk_shared_limits_acquire(struct stk_shared_limits *limits, uint64_t now_ns);
void stk_shared_limits_release(struct stk_shared_limits *limits, uint32_t count);
uint32_t stk_shared_limits_held(const struct stk_shared_limits *limits);
/* How many leases it should give since others want theirs. */
uint32_t stk_shared_limits_excess(struct stk_shared_limits *limits, uint64_t now_ns);

struct stk_shared_limits_stats {
    uint32_t connections_max, connections; /* of the node */
    uint32_t members;
    uint64_t rate; /* the least, of prefixes that are limited, in thousandths a second; 0: none */
};
void stk_shared_limits_get_stats(struct stk_shared_limits *limits, uint64_t now_ns,
                                 struct stk_shared_limits_stats *stats_out);

/* stk_rate_limit_acquire of the pace of a prefix. out (may be NULL): stk_rate_limit_is_outage. */
bool stk_shared_limits_admit(struct stk_shared_limits *limits, uint64_t prefix, uint64_t now_ns,
                             bool *out);
struct stk_shared_limits_state {
    bool throttled;   /* stk_rate_limit_is_active */
    bool ineffective; /* stk_rate_limit_is_wait_ineffective */
    bool outage;      /* stk_rate_limit_is_outage */
};
/* answer: enum stk_rate_limit_response. */
struct stk_shared_limits_state stk_shared_limits_record(struct stk_shared_limits *limits,
                                                        uint64_t prefix, uint64_t sent_ns,
                                                        uint64_t now_ns, uint32_t answer);

#endif
