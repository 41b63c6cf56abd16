/* base/retry.h: which failures are damage of the data, which may not come again, and how long to
 * wait before the next try. Owner: values. Threads: any. Memory: none. Bound: STK_RETRY_WAIT_MAX_MS
 * between two tries. */
#ifndef BASE_RETRY_H
#define BASE_RETRY_H

#include "base/base.h"

/* Damage in the data itself: it will be there again, and may be skipped. What the machine or the
 * network did is neither. */
bool stk_error_is_data(int status);
/* A failure of the machine or the network that may not come again. */
bool stk_error_is_transient(int status);

#define STK_RETRY_WAIT_MAX_MS 10000u
#define STK_RETRY_COUNT_DEFAULT 3u
#define STK_RETRY_WAIT_DEFAULT_MS 100u

/* The wait before try `attempt` (from 1): doubles, up to STK_RETRY_WAIT_MAX_MS. */
uint64_t stk_retry_wait_ns(uint32_t wait_ms, uint32_t attempt);
/* Says in the error that `count` further tries did not help. */
void stk_retry_add_note(struct stoker_error *error, uint32_t count);

#endif
