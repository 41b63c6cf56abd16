/* loader/sample/read_retry.h: repeats reads that failed for a transient reason.
 *
 *   read fails -> wait (longer each time) -> read again ... -> success, or the error of the last
 * try
 *
 * The worker sleeps during the wait: errors of storage are rare, and where they are not there is
 * nothing to decode. Damage in the data is never retried; a read that hung had its read_timeout_ms.
 * Owner: the caller. Threads: the worker that claimed the slot. Memory: none.
 * Bound: io_retries tries, STK_RETRY_WAIT_MAX_MS between two of them. */
#ifndef LOADER_SAMPLE_READ_RETRY_H
#define LOADER_SAMPLE_READ_RETRY_H

#include "loader/pending/pending_batch.h"

/* Waits before try `attempt` (from 1) after an error. Returns false if there is no further try: the
 * error is permanent, all tries are used up, or the batch was cancelled or has failed. No lock
 * held. */
bool stk_read_retry_wait(struct stk_pending_batch *pending, struct stk_worker *worker, int status,
                         uint32_t attempt);

#endif
