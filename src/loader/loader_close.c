/* Closes and frees a loader. */
#include "loader/loader_close.h"

#include "base/mem.h"
#include "loader/loader_future.h"
#include "loader/pending/pending_batch.h"
#include "loader/pending/quarantine.h"

void stk_loader_free(struct stoker_loader *loader)
{
    struct stoker_dataset *dataset = loader->dataset;

    stk_shard_stream_close(loader->extract.stream);
    stk_quarantine_close(loader->quarantine);
    stk_batch_pool_close(loader->pool);
    stk_loader_fields_close(loader);
    stk_schedule_reader_deinit(&loader->plan.reader);
    stk_schedule_deinit(&loader->schedule);
    stk_run_sampling_close(&loader->sampling);
    pthread_cond_destroy(&loader->ready);
    pthread_mutex_destroy(&loader->fingerprint_lock);
    stk_free(loader);
    stk_dataset_release(dataset);
}

void stk_loader_end_locked(struct stoker_loader *loader)
{
    struct stoker_engine *engine = loader->engine;

    STK_ASSERT(loader->locked.pins == 0);
    STK_ASSERT(loader->locked.closed); /* the user of an open loader has a pin */
    stk_engine_remove_client_locked(engine, &loader->client);
    stk_engine_unlock(engine);
    stk_loader_free(loader);
    stk_engine_lock(engine, NULL);
}

void stk_loader_unpin_locked(struct stoker_loader *loader)
{
    STK_ASSERT(loader->locked.pins > 0);
    if (--loader->locked.pins == 0) {
        stk_loader_end_locked(loader);
    }
}

void stoker_loader_close(struct stoker_loader *loader)
{
    struct stoker_engine *engine;

    if (!loader || stk_engine_check(loader->engine, NULL) < 0) {
        return;
    }
    engine = loader->engine;
    stk_loader_future_close(loader->future);
    loader->future = NULL;
    stk_engine_retain(engine);
    stk_engine_lock(engine, NULL);
    loader->locked.closed = true;
    atomic_store_explicit(&loader->closing, true, memory_order_relaxed);
    stk_pending_batches_cancel_locked(loader);
    /* Workers finish the samples they work on; the last of these frees the loader. */
    stk_loader_unpin_locked(loader);
    stk_engine_unlock(engine);
    stk_engine_release(engine);
}
