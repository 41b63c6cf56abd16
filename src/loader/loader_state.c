/* State, position, order and statistics of a loader. */
#include "loader/loader_state.h"

#include "base/options.h"
#include "engine/worker.h"
#include "loader/fetch/fetcher.h"
#include "loader/pending/pending_batch.h"
#include "loader/pending/quarantine.h"

#include <string.h>

#define BACK_MAX 4096u /* steps that state_at goes back, at most */

/* ---- the fingerprint ---- */

int stk_loader_update_fingerprint(const struct stoker_loader *unchanged,
                                  struct stoker_state *place_out)
{
    /* The public functions take a const loader: its state does not change for them. */
    struct stoker_loader *loader = (struct stoker_loader *)(uintptr_t)unchanged;
    struct stk_delivered copy;
    uint64_t sum;
    int status;

    pthread_mutex_lock(&loader->fingerprint_lock);
    stk_engine_lock(loader->engine, NULL);
    copy = loader->locked.delivered_steps;
    place_out->epoch = loader->locked.epoch;
    place_out->position = loader->locked.position;
    stk_engine_unlock(loader->engine);
    status =
        stk_run_fingerprint_get(loader->engine, &loader->schedule, &loader->partition, &copy, &sum);
    if (status == 0) {
        place_out->fingerprint = copy.fingerprint + sum;
        stk_engine_lock(loader->engine, NULL);
        stk_delivered_fold(&loader->locked.delivered_steps, &copy, sum);
        stk_engine_unlock(loader->engine);
    }
    pthread_mutex_unlock(&loader->fingerprint_lock);
    return status;
}

int stoker_loader_state(const struct stoker_loader *loader, struct stoker_state *state_out)
{
    struct stoker_state place = {0};
    int status = stk_engine_check(loader->engine, NULL);

    status = status < 0 ? status : stk_loader_update_fingerprint(loader, &place);
    if (status < 0) {
        return status;
    }
    stk_loader_identify(loader, &loader->schedule, loader->shuffle, state_out);
    state_out->epoch = place.epoch;
    state_out->position = place.position;
    state_out->fingerprint = place.fingerprint;
    return 0;
}

int stoker_loader_state_at(const struct stoker_loader *loader, uint64_t epoch, uint64_t position,
                           struct stoker_state *state_out)
{
    int status = stoker_loader_state(loader, state_out);

    return status < 0
               ? status
               : stk_run_fingerprint_rewind(loader->engine, &loader->schedule, &loader->partition,
                                            &(struct stk_delivered_span){epoch, position, BACK_MAX},
                                            state_out);
}

int stoker_loader_position(const struct stoker_loader *loader, uint64_t *epoch_out,
                           uint64_t *position_out)
{
    int status = stk_engine_check(loader->engine, NULL);

    if (status < 0) {
        return status;
    }
    stk_engine_lock(loader->engine, NULL);
    *epoch_out = loader->locked.epoch;
    *position_out = loader->locked.position;
    stk_engine_unlock(loader->engine);
    return 0;
}

int stoker_loader_mix_change_position(const struct stoker_loader *loader, uint64_t least,
                                      uint64_t *position_out)
{
    uint64_t epoch, position;
    int status = stoker_loader_position(loader, &epoch, &position);

    if (status < 0 || !loader->schedule.identity) {
        return status < 0 ? status : STOKER_ERROR_ARGUMENT;
    }
    *position_out = stk_schedule_change_position(&loader->schedule, epoch, position, least);
    return 0;
}

int stoker_loader_order(const struct stoker_loader *loader,
                        struct stoker_order_options *options_out)
{
    struct stoker_order_options full;
    int status = stk_options_read(&full, sizeof full, sizeof full.struct_size, options_out,
                                  "order options", NULL);

    if (status < 0) {
        return status;
    }
    if ((full.mix != NULL) != (loader->schedule.identity != 0)) {
        return STOKER_ERROR_ARGUMENT;
    }
    full.sample_count = loader->schedule.order.options.sample_count;
    full.block_samples = loader->schedule.order.options.block_samples;
    full.seed = loader->seed;
    full.shuffle = loader->shuffle;
    full.tail = loader->partition.tail;
    full.window_blocks = loader->schedule.order.options.window_blocks;
    full.group_count = loader->schedule.order.options.group_count;
    full.batch_size = loader->partition.batch_size;
    full.world_size = loader->partition.world_size;
    full.sampling = loader->sampling.stages ? &loader->sampling.options : NULL;
    full.shard_ends = loader->schedule.stages.ends;
    full.shard_count = loader->schedule.stages.shard_count;
    full.order_version = loader->schedule.order.options.version;
    return stk_options_write_output(options_out, &full, sizeof full, "order options", NULL);
}

int stoker_loader_stats(const struct stoker_loader *loader, struct stoker_stats *stats_out)
{
    struct stoker_engine *engine = loader->engine;
    struct stoker_stats full = {0};
    struct stoker_state place = {0};
    int status = stk_engine_check(engine, NULL);

    status = status < 0 ? status : stk_loader_update_fingerprint(loader, &place);
    if (status < 0) {
        return status;
    }
    stk_engine_lock(engine, NULL);
    full.batches = loader->locked.batches;
    full.samples = loader->locked.delivered;
    full.substituted = loader->locked.counters.substituted;
    full.bytes = loader->locked.counters.bytes;
    full.read_ns = loader->locked.counters.read_ns;
    full.decode_ns = loader->locked.counters.decode_ns;
    full.warm_reads = loader->locked.counters.warm_reads;
    full.cold_reads = loader->locked.counters.cold_reads;
    full.retries = loader->locked.counters.retries;
    full.bad_samples = stk_quarantine_count(loader->quarantine);
    full.fingerprint = place.fingerprint;
    full.wait_ns = loader->locked.wait_ns;
    full.first_batch_ns = loader->locked.first_batch_ns;
    full.batches_ahead = loader->locked.ahead;
    full.run_ns = loader->locked.first_next_ns;
    full.run_ns = full.run_ns ? stk_engine_now(engine) - full.run_ns : 0;
    stk_engine_unlock(engine);
    full.io_requests = stk_fetcher_requests(loader->fetcher, &full.io_bytes);
    full.memory_bytes_peak = atomic_load(&engine->budget.bytes_peak);
    full.threads = engine->worker_count;
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        full.idle_ns += atomic_load(&engine->workers[i].idle_ns);
        full.storage_wait_ns += atomic_load(&engine->workers[i].storage_wait_ns);
        full.lock_wait_ns += atomic_load(&engine->workers[i].lock_wait_ns);
    }
    full.idle_ns -= loader->idle_before_ns;
    full.storage_wait_ns -= loader->storage_wait_before_ns;
    full.ahead_ns = full.idle_ns - stk_min(full.storage_wait_ns, full.idle_ns);
    full.lock_wait_ns -= loader->lock_wait_before_ns;
    stk_engine_jpeg_stats(engine, &loader->before, &full);
    return stk_options_write_output(stats_out, &full, sizeof full, "loader statistics", NULL);
}
