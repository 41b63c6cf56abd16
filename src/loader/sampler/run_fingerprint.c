/* The fingerprint of steps that were given, on all threads: a sum does not care who adds what. */
#include "loader/sampler/sampler.h"

/* Samples that one thread goes through at a time: a few milliseconds. */
#define PIECE_SAMPLES (1u << 17)

struct settlement {
    const struct stk_schedule *schedule;
    const struct stk_partition *partition;
    struct stk_given_span span;
    uint64_t piece_steps;
    _Atomic uint64_t sum;
};

static int settle_piece(void *context, uint64_t piece, struct stoker_error *error)
{
    struct settlement *settlement = context;
    const struct stk_given_span *span = &settlement->span;
    uint64_t step = piece * settlement->piece_steps, sum = 0;
    uint64_t end = stk_min(step + settlement->piece_steps, span->steps);
    uint64_t stride = stk_partition_stride(settlement->partition);
    struct stk_schedule_reader reader;
    int status = stk_schedule_reader_init(&reader, settlement->schedule, error);

    for (; step < end && status == 0; step++) {
        sum += stk_schedule_step(&reader, settlement->partition, span->epoch,
                                 span->position + step * stride);
    }
    status = status < 0 ? status : stk_schedule_reader_take(&reader, error);
    stk_schedule_reader_deinit(&reader);
    atomic_fetch_add(&settlement->sum, sum);
    return status;
}

int stk_sampling_sum(struct stoker_engine *engine, const struct stk_schedule *schedule,
                     const struct stk_partition *partition, const struct stk_given *given,
                     uint64_t *sum_out)
{
    struct settlement settlement = {.schedule = schedule, .partition = partition};
    uint64_t step_samples = (uint64_t)partition->batch_size * partition->world_size;
    struct stk_given left = *given;
    int status = 0;

    settlement.piece_steps = stk_max(PIECE_SAMPLES / step_samples, 1);
    while (status == 0 && stk_given_next(&left, partition, &settlement.span)) {
        uint64_t pieces = (settlement.span.steps - 1) / settlement.piece_steps + 1;

        status = pieces > 1 ? stk_engine_parallel(engine, pieces, settle_piece, &settlement, NULL)
                            : settle_piece(&settlement, 0, NULL);
    }
    *sum_out = settlement.sum;
    return status;
}

int stk_sampling_back(struct stoker_engine *engine, const struct stk_schedule *schedule,
                      const struct stk_partition *partition, const struct stk_given_span *to,
                      struct stoker_state *state)
{
    struct stk_given_span now = {.epoch = state->epoch, .position = state->position};
    struct stk_given between;
    uint64_t sum = 0;
    int status = STOKER_ERROR_ARGUMENT;

    if (stk_given_between(&between, partition, to, &now)) {
        status = stk_sampling_sum(engine, schedule, partition, &between, &sum);
    }
    state->epoch = to->epoch;
    state->position = to->position;
    state->fingerprint -= sum;
    return status;
}
