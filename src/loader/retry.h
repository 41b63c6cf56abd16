/* loader/retry.h: a read that failed for a reason that may pass is tried again, a few times.
 *
 *   failed -> wait (doubling) -> read by the worker itself -> bytes, or the error is the batch's
 *
 * The worker sleeps meanwhile: failures of storage are rare, and where they are not there is
 * nothing to decode. Damage in the data is never tried again; a read that hung had its
 * read_timeout_ms. Owner: nobody. Threads: any worker. Memory: none. Bound: io_retries tries,
 * STK_RETRY_WAIT_MAX_MS between two. */
#ifndef LOADER_RETRY_H
#define LOADER_RETRY_H

#include "damage/damage.h"
#include "loader/flight.h"

/* Waits before try `attempt` (from 1) after a failure. False: `status` is no failure that may pass,
 * the tries are used up, or nobody wants the flight any more (dropped, or failed already). Lock not
 * held. */
bool stk_retry_wait(struct stk_flight *flight, struct stk_worker *worker, int status,
                    uint32_t attempt);

#endif
