/* base/retry.h: classes of errors (damaged data, transient) and the wait before the next try.
 * Owner: values. Threads: any. Memory: none. Bound: STK_RETRY_WAIT_MAX_MS between two tries. */
#ifndef BASE_RETRY_H
#define BASE_RETRY_H

#include "base/base.h"

/* Returns true if the data itself is damaged: a retry does not help, and the sample may be skipped.
 * Errors of the machine or the network are not damage. */
bool stk_error_is_data(int status);
/* Returns true for errors of the machine or the network that a retry may cure. */
bool stk_error_is_transient(int status);

#define STK_RETRY_WAIT_MAX_MS 10000u
#define STK_RETRY_COUNT_DEFAULT 3u
#define STK_RETRY_WAIT_DEFAULT_MS 100u

/* Returns the wait before retry `attempt` (from 1): doubles, up to STK_RETRY_WAIT_MAX_MS. */
uint64_t stk_retry_wait_ns(uint32_t wait_ms, uint32_t attempt);
/* Adds to the error that `count` retries failed, too. */
void stk_retry_add_note(struct stoker_error *error, uint32_t count);

#endif
