/* Moves a loader to the position of a state. Replaces its order by that of the state before, if the
 * caller left settings of it out: so data can move to another kind of storage, or to a later
 * version, during a run.
 *
 *   state --adopt--> settings --open--> schedule --compare--> pause, cancel, wait --> exchange,
 * seek
 *
 * No worker uses the schedule while the loader has one pin and opens no batch. */
#include "engine/worker.h"
#include "loader/loader_close.h"
#include "loader/loader_state.h"
#include "loader/pending/pending_batch.h"

#include <errno.h>

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

/* Compares a state with those that the loader would have with this schedule and shuffle. Returns 0,
 * or STOKER_ERROR_STATE with all differences. */
static int compare(const struct stoker_loader *loader, const struct stk_schedule *schedule,
                   uint32_t shuffle, const struct stoker_state *state, struct stoker_error *error)
{
    const struct stk_state_labels words = {
        .samples = "number of samples",
        .block_samples = "samples a block",
        .identity = "identity of the data set",
        .advice = "open the loader with the data set and settings of the saved run",
        .positions = stk_schedule_epoch_samples(schedule),
        .slack = stk_partition_slack(&loader->partition, stk_schedule_epoch_samples(schedule)),
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

/* Replaces the order, which drops what was read ahead; *schedule then has the previous one. On
 * failure the stream continues where it was. */
static int replace_locked(struct stoker_loader *loader, struct stk_schedule *schedule,
                          uint32_t shuffle, struct stoker_error *error)
{
    int status;

    loader->locked.paused = true;
    stk_pending_batches_cancel_locked(loader);
    status = wait_for_pins_locked(loader, error);
    status = status < 0
                 ? status
                 : stk_schedule_exchange(&loader->schedule, &loader->plan.reader, schedule, error);
    loader->locked.paused = false;
    if (status < 0) {
        stk_pending_batches_seek_locked(loader, loader->locked.epoch, loader->locked.position);
        return status;
    }
    loader->partition.sample_count = stk_schedule_epoch_samples(&loader->schedule);
    loader->shuffle = shuffle;
    atomic_fetch_add_explicit(&loader->orders, 1, memory_order_relaxed);
    return 0;
}

/* Moves to the position of a state. schedule: the one that the state belongs to; NULL: the
 * loader's.
 */
static int move(struct stoker_loader *loader, struct stk_schedule *schedule, uint32_t shuffle,
                const struct stoker_state *state, struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    int status;

    pthread_mutex_lock(&loader->fingerprint_lock);
    stk_engine_lock(engine, NULL);
    status = schedule ? replace_locked(loader, schedule, shuffle, error) : 0;
    if (status == 0) {
        stk_pending_batches_seek_locked(loader, state->epoch, state->position);
        loader->locked.delivered_steps = (struct stk_delivered){.fingerprint = state->fingerprint};
        loader->locked.resumed = true;
    }
    stk_engine_unlock(engine);
    pthread_mutex_unlock(&loader->fingerprint_lock);
    return status;
}

int stoker_loader_set_state(struct stoker_loader *loader, const struct stoker_state *state,
                            struct stoker_error *error)
{
    struct stk_order_options order = loader->schedule.order.options;
    struct stk_schedule schedule;
    int status = stk_engine_check(loader->engine, error);

    if (status < 0) {
        return status;
    }
    order.shuffle = loader->shuffle; /* with stages, the schedule's own order has none */
    if (!stk_order_adopt(&order, &loader->defaults, state)) {
        status = compare(loader, &loader->schedule, loader->shuffle, state, error);
        return status < 0 ? status : move(loader, NULL, loader->shuffle, state, error);
    }
    status = stk_run_sampling_reopen(&loader->sampling, &schedule, loader->dataset, &order, error);
    if (status < 0 && order.shuffle == STOKER_SHUFFLE_TWO_LEVEL && status != -ENOMEM) {
        /* A folder or a mix has no two-level order: the difference says so. */
        int differs = compare(loader, &loader->schedule, loader->shuffle, state, error);
        return differs < 0 ? differs : status;
    }
    if (status < 0) {
        return status;
    }
    status = compare(loader, &schedule, order.shuffle, state, error);
    status = status < 0 ? status : move(loader, &schedule, order.shuffle, state, error);
    stk_schedule_deinit(&schedule);
    return status;
}
