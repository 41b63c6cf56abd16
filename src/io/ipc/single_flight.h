/* io/ipc/single_flight.h: processes of a machine that would all do the same work at the same time:
 * one does it, the others wait and take what it leaves.
 *
 *   begin --lock free--> mine: the work --publish, if anybody waits--> end
 *         `-lock held--> waits --its holder ended, a result is there--> taken: map it --> end
 *                              `-it ended without one (kill -9)--> mine
 *
 * Only who waited takes a result, so none is older than its wish for it; the last one removes it.
 * Files lie in a folder of this user alone, below STOKER_NODE_DIR, else /dev/shm: KEY.lock,
 * KEY.wait, and KEY.result while it is taken. Who ends and holds KEY.lock alone removes it; a lock
 * counts only if its file still has that name. Locks (flock) end with their process.
 * Owner: the caller. Threads: one a turn. Memory: none. Bound: timeout_ms. */
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
        0, /* no place for turns, or the wait was too long: each for itself */
    STK_SINGLE_FLIGHT_LEADER,
    STK_SINGLE_FLIGHT_FOLLOWER, /* path holds the result; empty: it has none to give */
};

/* key: hex digits. Waits up to timeout_ms. */
enum stk_single_flight_role stk_single_flight_begin(struct stk_single_flight *flight,
                                                    const char *key, uint32_t timeout_ms);
/* Of mine: whether anybody waits now. */
bool stk_single_flight_has_waiters(const struct stk_single_flight *flight);
/* Of mine: the result, whole or not there. Empty: there is none, and nobody need wait for one. 0 or
 * -errno. */
int stk_single_flight_publish(const struct stk_single_flight *flight, struct stk_view result);
/* Any of them; twice is fine. */
void stk_single_flight_end(struct stk_single_flight *flight);

#endif
