/* Steps that wait to be fingerprinted, in as few numbers as possible. */
#include "order/delivered.h"

#include <string.h>

#define TURNS_MAX 4096u /* epochs without a step that a run goes over */

/* From behind a step to where the next one begins, in the same epoch or one of the next. */
static void go_on(const struct stk_partition *partition, uint64_t *epoch, uint64_t *position)
{
    for (uint32_t turn = 0; turn < TURNS_MAX; turn++) {
        if (stk_partition_steps_from(partition, *epoch, *position) > 0) {
            return;
        }
        *position = stk_partition_following(partition, *epoch, *position);
        (*epoch)++;
    }
}

static bool continues(const struct stk_given_run *run, const struct stk_partition *partition,
                      uint64_t epoch, uint64_t position)
{
    uint64_t next_epoch = run->next_epoch, next_position = run->next_position;

    go_on(partition, &next_epoch, &next_position);
    return next_epoch == epoch && next_position == position;
}

bool stk_given_add(struct stk_given *given, const struct stk_partition *partition, uint64_t epoch,
                   uint64_t position)
{
    struct stk_given_run *run = &given->runs[given->run_count - (given->run_count > 0)];

    if (given->run_count == 0 || !continues(run, partition, epoch, position)) {
        if (given->run_count == STK_GIVEN_RUNS_MAX) {
            return false;
        }
        run = &given->runs[given->run_count++];
        *run = (struct stk_given_run){.epoch = epoch, .position = position};
    }
    run->steps++;
    run->next_epoch = epoch;
    run->next_position = position + stk_partition_stride(partition);
    return true;
}

static void drop_first(struct stk_given *given, uint32_t count)
{
    given->run_count -= count;
    memmove(given->runs, given->runs + count, given->run_count * sizeof *given->runs);
}

bool stk_given_next(struct stk_given *copy, const struct stk_partition *partition,
                    struct stk_given_span *span_out)
{
    struct stk_given_run *run = copy->runs;
    uint64_t left;

    if (copy->run_count == 0) {
        return false;
    }
    go_on(partition, &run->epoch, &run->position);
    left = stk_max(stk_partition_steps_from(partition, run->epoch, run->position), 1);
    *span_out = (struct stk_given_span){run->epoch, run->position, stk_min(run->steps, left)};
    run->steps -= span_out->steps;
    run->position += span_out->steps * stk_partition_stride(partition);
    if (run->steps == 0) {
        drop_first(copy, 1);
    }
    return true;
}

void stk_given_settle(struct stk_given *given, const struct stk_given *copy, uint64_t sum)
{
    given->fingerprint += sum;
    if (copy->run_count > 0) {
        const struct stk_given_run *last = &copy->runs[copy->run_count - 1];
        struct stk_given_run *grown = &given->runs[copy->run_count - 1];

        grown->steps -= last->steps; /* it may have gone on meanwhile */
        grown->epoch = last->next_epoch;
        grown->position = last->next_position;
        drop_first(given, copy->run_count - (grown->steps > 0));
    }
}

bool stk_given_between(struct stk_given *given_out, const struct stk_partition *partition,
                       const struct stk_given_span *from, const struct stk_given_span *to)
{
    struct stk_given_span at = *from;
    bool fits = true;

    *given_out = (struct stk_given){0};
    for (uint64_t turn = 0; fits && turn <= from->steps; turn++) {
        if (at.epoch == to->epoch && at.position == to->position) {
            return true;
        }
        if (stk_partition_steps_from(partition, at.epoch, at.position) > 0) {
            fits = stk_given_add(given_out, partition, at.epoch, at.position);
            at.position += stk_partition_stride(partition);
        } else {
            at.position = stk_partition_following(partition, at.epoch, at.position);
            at.epoch++;
        }
    }
    return false;
}
