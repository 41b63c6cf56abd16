/* Which failures may pass, and the wait before a read is tried again. */
#include "loader/retry.h"

#include "engine/engine.h"

#include <errno.h>

/* When one slot has failed for good the batch is an error: its other slots on the same dead disk
 * would wait in vain. */
static bool wanted_locked(const struct stk_flight *flight)
{
    return !atomic_load_explicit(&flight->abandoned, memory_order_relaxed) &&
           (flight->locked.error.status == 0 || stk_is_damage(flight->locked.error.status));
}

bool stk_retry_wait(struct stk_flight *flight, struct stk_worker *worker, int status,
                    uint32_t attempt)
{
    struct stoker_loader *loader = flight->loader;
    struct stoker_engine *engine = loader->engine;
    struct timespec until;
    int woken = 0;
    bool wanted;

    if (!stk_may_pass(status) || attempt > loader->io_retries) {
        return false;
    }
    until = stk_engine_after(stk_retry_wait_ns(loader->io_retry_wait_ms, attempt));
    stk_engine_lock(engine, worker);
    /* `ready` also wakes this when the flight is dropped: a close need not wait. */
    while ((wanted = wanted_locked(flight)) && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(&loader->ready, &engine->lock, &until);
    }
    stk_engine_unlock(engine);
    return wanted;
}
