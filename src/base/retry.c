/* Classes of errors, and the waits between retries. */
#include "base/retry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool stk_error_is_data(int status)
{
    return status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_TRUNCATED ||
           status == STOKER_ERROR_FORMAT || status == STOKER_ERROR_UNSUPPORTED ||
           status == STOKER_ERROR_LIMIT || status == STOKER_ERROR_MISSING;
}

/* Errors that a loaded disk, a failover of a mount or a network may return for some time. Excludes
 * STOKER_ERROR_TIMEOUT: such a read has already waited long, and its buffer is lost. */
bool stk_error_is_transient(int status)
{
    static const int numbers[] = {
        EIO,       EAGAIN,     EINTR,       ETIMEDOUT,    ESTALE,
        EREMOTEIO, ENETDOWN,   ENETUNREACH, ENETRESET,    ECONNABORTED,
        ENOTCONN,  ECONNRESET, EHOSTDOWN,   EHOSTUNREACH, ECONNREFUSED,
    };

    for (size_t i = 0; i < STK_COUNT(numbers); i++) {
        if (status == -numbers[i]) {
            return true;
        }
    }
    return false;
}

uint64_t stk_retry_wait_ns(uint32_t wait_ms, uint32_t attempt)
{
    uint64_t wait = wait_ms;

    for (uint32_t i = 1; i < attempt && wait < STK_RETRY_WAIT_MAX_MS; i++) {
        wait *= 2;
    }
    return stk_min(wait, STK_RETRY_WAIT_MAX_MS) * 1000000u;
}

void stk_retry_add_note(struct stoker_error *error, uint32_t count)
{
    size_t used = error ? strlen(error->what) : 0;

    if (error && count > 0) {
        snprintf(error->what + used, sizeof error->what - used, ", also after %u %s", count,
                 count == 1 ? "retry" : "retries");
    }
}
