/* A pool of batches in an engine's budget, with a callback of clients when a batch was closed. */
#include "engine/engine.h"

#include "engine/batch/batch.h"

/* Any thread, no lock held. In a forked child no thread waits. */
static void batch_returned(void *owner)
{
    struct stoker_engine *engine = owner;

    if (stk_engine_check(engine, NULL) < 0) {
        return;
    }
    stk_engine_lock(engine, NULL);
    stk_engine_memory_returned_locked(engine);
    stk_engine_unlock(engine);
}

static void pool_freed(void *owner)
{
    stk_engine_release(owner);
}

int stk_engine_batch_pool_open(struct stoker_engine *engine,
                               const struct stk_batch_field_shape *fields, uint32_t field_count,
                               uint32_t slots, struct stk_batch_pool **pool_out,
                               struct stoker_error *error)
{
    struct stk_batch_owner owner = {&engine->budget, engine, batch_returned, pool_freed};
    int status = stk_batch_pool_open(pool_out, &owner, fields, field_count, slots, error);

    if (status == 0) {
        stk_engine_retain(engine); /* the pool's reference, released by pool_freed */
    }
    return status;
}
