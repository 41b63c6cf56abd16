/* io/ipc/single_flight.h: single flight between the processes of a machine: if several processes
 * need the result of the same work, one of them (the leader) does it, and the others wait for the
 * result.
 *
 *   begin --lock free--> leader: the work --publish, if processes wait--> end
 *         `-lock held--> waits --the leader ended with a result--> follower: map it --> end
 *                              `-it ended without one (kill -9)--> leader
 *
 * Only processes that were already waiting use the result, so a result is never older than the
 * request; the last of them removes it. The files are in a folder of this user below
 * STOKER_NODE_DIR or /dev/shm: KEY.lock, KEY.wait, and KEY.result while it is used. A process that
 * ends and is the only one with KEY.lock removes the file; a lock counts only if its file still has
 * that name. Locks (flock) end with their process. Owner: the caller. Threads: one for each flight.
 * Memory: none. Bound: timeout_ms. */
#ifndef IO_IPC_SINGLE_FLIGHT_H
#define IO_IPC_SINGLE_FLIGHT_H

#include "base/base.h"

#define STK_SINGLE_FLIGHT_PATH_BYTES 512u
#define STK_SINGLE_FLIGHT_POLL_MS 20

struct stk_single_flight {
    int lock, wait; /* descriptors; -1: none */
    bool is_leader;
    char path[STK_SINGLE_FLIGHT_PATH_BYTES]; /* of the result */
};

enum stk_single_flight_role {
    STK_SINGLE_FLIGHT_UNAVAILABLE =
        0, /* no folder for the files, or a timeout: the process does the work itself */
    STK_SINGLE_FLIGHT_LEADER,
    STK_SINGLE_FLIGHT_FOLLOWER, /* the file `path` has the result; an empty file: there is none */
};

/* key: hex digits. Waits at most timeout_ms. */
enum stk_single_flight_role stk_single_flight_begin(struct stk_single_flight *flight,
                                                    const char *key, uint32_t timeout_ms);
/* Leader only: returns true if other processes wait for the result. */
bool stk_single_flight_has_waiters(const struct stk_single_flight *flight);
/* Leader only: publishes the result atomically. An empty result means that there is none, so that
 * no process waits for it. Returns 0 or -errno. */
int stk_single_flight_publish(const struct stk_single_flight *flight, struct stk_view result);
/* Ends any role. May be called twice. */
void stk_single_flight_end(struct stk_single_flight *flight);

#endif
