/* Replaces the order of a loader by that of a state, if the caller left settings of it out: so data
 * can move to another kind of storage, or to a later version, during a run.
 *
 *   state --adopt--> settings --open--> schedule --compare--> pause, cancel, wait --> swap
 *
 * No worker uses the schedule while the loader has one pin and opens no batch. */
#include "engine/worker.h"
#include "loader/loader_close.h"
#include "loader/loader_state.h"
#include "loader/pending/pending_batch.h"

#define POLL_NS 1000000u
#define WAIT_SLACK_MS 5000u /* beyond the deadline of a read */

void stk_loader_identify(const struct stoker_loader *loader, const struct stk_schedule *schedule,
                         uint32_t shuffle, struct stoker_state *state_out)
{
    stk_state_make(state_out, &schedule->order, &loader->partition,
                   stk_index_identity(loader->dataset->index));
    state_out->shuffle = shuffle;
    stk_schedule_write_state(schedule, loader->sampling.options.epoch_samples, state_out);
}

int stk_loader_compare(const struct stoker_loader *loader, const struct stk_schedule *schedule,
                       uint32_t shuffle, const struct stoker_state *state,
                       struct stoker_error *error)
{
    const struct stk_state_labels words = {
        .samples = "number of samples",
        .block_samples = "samples a block",
        .identity = "identity of the data set",
        .advice = "open the loader with the data set and settings of the saved run",
        .positions = stk_schedule_epoch_samples(schedule),
        .epoch_max = stk_schedule_epoch_max(schedule),
    };
    struct stoker_state own;

    stk_loader_identify(loader, schedule, shuffle, &own);
    return stk_state_validate(state, &own, &words, error);
}

/* Waits until no batch is pending or being opened. The engine's lock is held. */
static int wait_for_pins_locked(struct stoker_loader *loader, struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    uint64_t wait_ms = engine->options.read_timeout_ms + WAIT_SLACK_MS;
    uint64_t until = stk_engine_now(engine) + wait_ms * 1000000u;

    while (loader->locked.pins > 1) {
        struct timespec slice = stk_engine_deadline(POLL_NS);

        if (stk_engine_now(engine) > until) {
            return stk_fail(error, STOKER_ERROR_TIMEOUT, "the reads of a loader do not end",
                            "check the storage, then open the loader again", "%llu ms waited",
                            (unsigned long long)wait_ms);
        }
        stk_engine_signal_locked(engine, 1); /* samples that were fetched end */
        pthread_cond_timedwait(&loader->ready, &engine->lock, &slice);
    }
    return 0;
}

static int replace(struct stoker_loader *loader, struct stk_schedule *schedule, uint32_t shuffle,
                   struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    int status;

    pthread_mutex_lock(&loader->fingerprint_lock);
    stk_engine_lock(engine, NULL);
    loader->locked.paused = true;
    stk_pending_batches_cancel_locked(loader);
    status = wait_for_pins_locked(loader, error);
    status = status < 0
                 ? status
                 : stk_schedule_exchange(&loader->schedule, &loader->plan.reader, schedule, error);
    if (status == 0) {
        loader->partition.sample_count = stk_schedule_epoch_samples(&loader->schedule);
        loader->shuffle = shuffle;
    }
    loader->locked.paused = false;
    /* The caller moves to the position of the state. */
    stk_pending_batches_seek_locked(loader, loader->locked.epoch, loader->locked.position);
    stk_engine_unlock(engine);
    pthread_mutex_unlock(&loader->fingerprint_lock);
    return status;
}

int stk_loader_adopt_order(struct stoker_loader *loader, const struct stoker_state *state,
                           struct stoker_error *error)
{
    struct stk_order_options order = loader->schedule.order.options;
    struct stk_schedule schedule;
    int status;

    order.shuffle = loader->shuffle; /* with stages, the schedule's own order has none */
    if (!stk_order_adopt(&order, &loader->defaults, state)) {
        return 0;
    }
    status = stk_run_sampling_reopen(&loader->sampling, &schedule, loader->dataset, &order, error);
    if (status < 0) {
        return status;
    }
    status = stk_loader_compare(loader, &schedule, order.shuffle, state, error);
    status = status < 0 ? status : replace(loader, &schedule, order.shuffle, error);
    stk_schedule_deinit(&schedule);
    return status;
}
