/* The wait before a failed read is repeated. */
#include "loader/sample/read_retry.h"

#include "base/retry.h"

#include <errno.h>

/* Once a slot has failed for good the batch is an error: its other slots are not retried, since
 * the same storage would fail them, too. */
static bool is_wanted_locked(const struct stk_pending_batch *pending)
{
    return !atomic_load_explicit(&pending->cancelled, memory_order_relaxed) &&
           (pending->locked.error.status == 0 || stk_error_is_data(pending->locked.error.status));
}

bool stk_read_retry_wait(struct stk_pending_batch *pending, struct stk_worker *worker, int status,
                         uint32_t attempt)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_engine *engine = loader->engine;
    struct timespec until;
    int woken = 0;
    bool is_wanted;

    if (!stk_error_is_transient(status) || attempt > loader->io_retries) {
        return false;
    }
    until = stk_engine_deadline(stk_retry_wait_ns(loader->io_retry_wait_ms, attempt));
    stk_engine_lock(engine, worker);
    /* Cancelling a batch signals `ready`, too: closing a loader does not wait for this. */
    while ((is_wanted = is_wanted_locked(pending)) && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(&loader->ready, &engine->lock, &until);
    }
    stk_engine_unlock(engine);
    return is_wanted;
}
