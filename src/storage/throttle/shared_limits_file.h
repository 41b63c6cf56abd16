/* storage/throttle/shared_limits_file.h: the file that processes share, and how it is come by.
 *
 * Owner: struct stk_node. Threads: any process at any time: all words are atomic, a pace is its
 * holder's. Memory: one mapping. Bound: the size of struct stk_node_file. */
#ifndef STORAGE_THROTTLE_SHARED_LIMITS_FILE_H
#define STORAGE_THROTTLE_SHARED_LIMITS_FILE_H

#include "storage/throttle/shared_limits.h"

#include <stdatomic.h>

#define STK_NODE_LAYOUT 4u /* in the name: other layouts are other files */
#define STK_NODE_MAGIC 0x31656e6b6f747320ull

struct stk_node_member {
    _Atomic uint32_t connections_max; /* 0: nobody */
    _Atomic uint32_t demand;
    _Atomic uint64_t told_ns; /* the demand */
};

struct stk_node_pace {
    _Atomic uint64_t prefix; /* 0: none */
    _Atomic uint64_t used_ns;
    _Atomic uint64_t rate;   /* pace.rate, for those who only look */
    _Atomic uint32_t holder; /* member + 1 while it is changed */
    uint32_t unused;
    struct stk_pace pace;
};

struct stk_node_file {
    uint64_t magic;
    uint32_t layout, bytes;
    _Atomic uint32_t leases[STK_NODE_LEASES]; /* member + 1; 0: free */
    struct stk_node_member members[STK_NODE_MEMBERS];
    struct stk_node_pace paces[STK_NODE_PACES];
};

/* The file of this user in the folder: opened, or made; a damaged one is made anew. Below 0:
 * -errno, and *why_out (static) says what is wrong. */
int stk_node_file_open(const char *folder, int *fd_out, struct stk_node_file **file_out,
                       const char **why_out);
/* Whether bytes have the head of such a file. */
bool stk_node_file_is_whole(const void *head, size_t bytes, uint64_t file_bytes);
#define STK_NODE_HEAD_BYTES 16u
/* The lock on a member's byte; the kernel lets go of it when its process ends. */
bool stk_node_lock_member(int fd, uint32_t member);
void stk_node_unlock_member(int fd, uint32_t member);

#endif
