/* The fingerprint of delivered steps, computed by all threads: it is a sum, so their order does not
 * matter. */
#include "loader/sampler/sampler.h"

/* Samples of one round of a thread: a few milliseconds. */
#define ROUND_SAMPLES (1u << 17)

struct fingerprint_sum {
    const struct stk_schedule *schedule;
    const struct stk_partition *partition;
    struct stk_delivered_span span;
    uint64_t round_steps;
    _Atomic uint64_t sum;
};

static int fingerprint_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct fingerprint_sum *fingerprint_sum = context;
    const struct stk_delivered_span *span = &fingerprint_sum->span;
    uint64_t step = round * fingerprint_sum->round_steps, sum = 0;
    uint64_t end = stk_min(step + fingerprint_sum->round_steps, span->steps);
    uint64_t stride = stk_partition_stride(fingerprint_sum->partition);
    struct stk_schedule_reader reader;
    int status = stk_schedule_reader_init(&reader, fingerprint_sum->schedule, error);

    for (; step < end && status == 0; step++) {
        sum += stk_schedule_step_fingerprint(&reader, fingerprint_sum->partition, span->epoch,
                                             span->position + step * stride);
    }
    atomic_fetch_add(&fingerprint_sum->sum, sum);
    return stk_schedule_reader_end(&reader, status, error);
}

int stk_run_fingerprint_get(struct stoker_engine *engine, const struct stk_schedule *schedule,
                            const struct stk_partition *partition,
                            const struct stk_delivered *given, uint64_t *sum_out)
{
    struct fingerprint_sum fingerprint_sum = {.schedule = schedule, .partition = partition};
    uint64_t step_samples = (uint64_t)partition->batch_size * partition->world_size;
    struct stk_delivered left = *given;
    int status = 0;

    fingerprint_sum.round_steps = stk_max(ROUND_SAMPLES / step_samples, 1);
    while (status == 0 && stk_delivered_next(&left, partition, &fingerprint_sum.span)) {
        uint64_t rounds = (fingerprint_sum.span.steps - 1) / fingerprint_sum.round_steps + 1;

        status = rounds > 1 ? stk_engine_parallel(engine, rounds, fingerprint_round,
                                                  &fingerprint_sum, NULL)
                            : fingerprint_round(&fingerprint_sum, 0, NULL);
    }
    *sum_out = fingerprint_sum.sum;
    return status;
}

int stk_run_fingerprint_rewind(struct stoker_engine *engine, const struct stk_schedule *schedule,
                               const struct stk_partition *partition,
                               const struct stk_delivered_span *to, struct stoker_state *state)
{
    struct stk_delivered_span now = {.epoch = state->epoch, .position = state->position};
    struct stk_delivered between;
    uint64_t sum = 0;
    int status = STOKER_ERROR_ARGUMENT;

    if (stk_delivered_between(&between, partition, to, &now)) {
        status = stk_run_fingerprint_get(engine, schedule, partition, &between, &sum);
    }
    state->epoch = to->epoch;
    state->position = to->position;
    state->fingerprint -= sum;
    return status;
}
