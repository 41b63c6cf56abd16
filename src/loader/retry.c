/* Which failures may pass, and the wait before a read is tried again. */
#include "loader/retry.h"

#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What a disk under load, a mount that moves or a network may answer for a while. Not
 * STOKER_ERROR_TIMEOUT: such a read has waited for long, and its buffer is lost. */
static bool may_pass(int status)
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

static uint64_t wait_ns(const struct stoker_loader *loader, uint32_t attempt)
{
    uint64_t wait_ms = loader->io_retry_wait_ms;

    for (uint32_t i = 1; i < attempt && wait_ms < STK_RETRY_WAIT_MAX_MS; i++) {
        wait_ms *= 2;
    }
    return stk_min(wait_ms, STK_RETRY_WAIT_MAX_MS) * 1000000u;
}

/* When one slot has failed for good the batch is an error: its other slots on the same dead disk
 * would wait in vain. */
static bool wanted_locked(const struct stk_flight *flight)
{
    return !atomic_load_explicit(&flight->abandoned, memory_order_relaxed) &&
           (flight->locked.error.status == 0 || stk_sample_is_damage(flight->locked.error.status));
}

bool stk_retry_wait(struct stk_flight *flight, struct stk_worker *worker, int status,
                    uint32_t attempt)
{
    struct stoker_loader *loader = flight->loader;
    struct stoker_engine *engine = loader->engine;
    struct timespec until;
    int woken = 0;
    bool wanted;

    if (!may_pass(status) || attempt > loader->io_retries) {
        return false;
    }
    until = stk_engine_after(wait_ns(loader, attempt));
    stk_engine_lock(engine, worker);
    /* `ready` also wakes this when the flight is dropped: a close need not wait. */
    while ((wanted = wanted_locked(flight)) && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(&loader->ready, &engine->lock, &until);
    }
    stk_engine_unlock(engine);
    return wanted;
}

void stk_retry_tell(struct stoker_error *error, uint32_t count)
{
    size_t used = strlen(error->what);

    if (count > 0) {
        snprintf(error->what + used, sizeof error->what - used, ", also after %u %s", count,
                 count == 1 ? "retry" : "retries");
    }
}
