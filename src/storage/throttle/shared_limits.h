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
 * must leave it alone. Memory: a mapping. Bound: STK_NODE_MEMBERS processes at a time, others are
 * alone; STK_NODE_PACES prefixes, then the one that was used longest ago is forgotten. */
#ifndef STORAGE_THROTTLE_SHARED_LIMITS_H
#define STORAGE_THROTTLE_SHARED_LIMITS_H

#include "storage/throttle/throttle.h"

#define STK_NODE_MEMBERS 128u
#define STK_NODE_LEASES 1024u
#define STK_NODE_PACES 256u
#define STK_NODE_CONNECTIONS_DEFAULT 256u
#define STK_NODE_STALE_MS 2000u /* a demand that was not told again for so long is none */

struct stk_node_options {
    const char *folder;       /* NULL: STOKER_NODE_DIR, else /dev/shm, else $XDG_RUNTIME_DIR */
    uint32_t connections_max; /* of the node; 0: the default. The least of its members holds */
    bool alone;               /* shares nothing */
};

struct stk_node;

/* 0 or -ENOMEM. Without a file, or where none can be trusted, it is alone. */
int stk_node_open(struct stk_node **node_out, const struct stk_node_options *options,
                  struct stoker_error *error);
void stk_node_close(struct stk_node *node); /* gives all; NULL is fine */
/* Empty: shared; else why not. Lent until close. */
const char *stk_node_alone(const struct stk_node *node);

/* What this member would like to have open now. */
void stk_node_demand(struct stk_node *node, uint32_t connections, uint64_t now_ns);
/* Takes a lease; false: its share is used up, or all are taken. */
bool stk_node_take(struct stk_node *node, uint64_t now_ns);
void stk_node_give(struct stk_node *node, uint32_t count);
uint32_t stk_node_held(const struct stk_node *node);
/* How many leases it should give since others want theirs. */
uint32_t stk_node_surplus(struct stk_node *node, uint64_t now_ns);

struct stk_node_told {
    uint32_t connections_max, connections; /* of the node */
    uint32_t members;
    uint64_t rate; /* the least, of prefixes that are limited, in thousandths a second; 0: none */
};
void stk_node_tell(struct stk_node *node, uint64_t now_ns, struct stk_node_told *told_out);

/* stk_pace_take of the pace of a prefix. out (may be NULL): stk_pace_is_out. */
bool stk_node_admit(struct stk_node *node, uint64_t prefix, uint64_t now_ns, bool *out);
struct stk_node_verdict {
    bool throttled; /* stk_pace_is_throttled */
    bool vain;      /* stk_pace_is_wait_vain */
    bool out;       /* stk_pace_is_out */
};
/* answer: enum stk_pace_answer. */
struct stk_node_verdict stk_node_answer(struct stk_node *node, uint64_t prefix, uint64_t sent_ns,
                                        uint64_t now_ns, uint32_t answer);

#endif
