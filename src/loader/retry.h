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

#include "loader/flight.h"

#define STK_RETRY_WAIT_MAX_MS 10000u

/* Waits before try `attempt` (from 1) after a failure. False: `status` is no failure that may pass,
 * the tries are used up, or nobody wants the flight any more (dropped, or failed already). Lock not
 * held. */
bool stk_retry_wait(struct stk_flight *flight, struct stk_worker *worker, int status,
                    uint32_t attempt);
/* Says in the error that `count` further tries did not help. */
void stk_retry_tell(struct stoker_error *error, uint32_t count);

#endif
