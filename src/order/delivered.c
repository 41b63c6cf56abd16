/* Steps whose fingerprint is not computed yet, stored as runs. */
#include "order/delivered.h"

#include <string.h>

#define EPOCHS_SKIPPED_MAX 4096u /* a run covers at most this number of epochs without a step */

/* Computes the distance from the end of a step to the beginning of the next step, which may be in
 * the same epoch or in a later one. */
static void skip_short_epochs(const struct stk_partition *partition, uint64_t *epoch,
                              uint64_t *position)
{
    for (uint32_t turn = 0; turn < EPOCHS_SKIPPED_MAX; turn++) {
        if (stk_partition_steps_from(partition, *epoch, *position) > 0) {
            return;
        }
        *position = stk_partition_next_epoch_start(partition, *epoch, *position);
        (*epoch)++;
    }
}

static bool continues(const struct stk_delivered_run *run, const struct stk_partition *partition,
                      uint64_t epoch, uint64_t position)
{
    uint64_t next_epoch = run->next_epoch, next_position = run->next_position;

    skip_short_epochs(partition, &next_epoch, &next_position);
    return next_epoch == epoch && next_position == position;
}

bool stk_delivered_add(struct stk_delivered *delivered, const struct stk_partition *partition,
                       uint64_t epoch, uint64_t position)
{
    struct stk_delivered_run *run =
        &delivered->runs[delivered->run_count - (delivered->run_count > 0)];

    if (delivered->run_count == 0 || !continues(run, partition, epoch, position)) {
        if (delivered->run_count == STK_DELIVERED_RUNS_MAX) {
            return false;
        }
        run = &delivered->runs[delivered->run_count++];
        *run = (struct stk_delivered_run){.epoch = epoch, .position = position};
    }
    run->steps++;
    run->next_epoch = epoch;
    run->next_position = position + stk_partition_stride(partition);
    return true;
}

static void drop_first(struct stk_delivered *delivered, uint32_t count)
{
    delivered->run_count -= count;
    memmove(delivered->runs, delivered->runs + count,
            delivered->run_count * sizeof *delivered->runs);
}

bool stk_delivered_next(struct stk_delivered *copy, const struct stk_partition *partition,
                        struct stk_delivered_span *span_out)
{
    struct stk_delivered_run *run = copy->runs;
    uint64_t left;

    if (copy->run_count == 0) {
        return false;
    }
    skip_short_epochs(partition, &run->epoch, &run->position);
    left = stk_max(stk_partition_steps_from(partition, run->epoch, run->position), 1);
    *span_out = (struct stk_delivered_span){run->epoch, run->position, stk_min(run->steps, left)};
    run->steps -= span_out->steps;
    run->position += span_out->steps * stk_partition_stride(partition);
    if (run->steps == 0) {
        drop_first(copy, 1);
    }
    return true;
}

void stk_delivered_fold(struct stk_delivered *delivered, const struct stk_delivered *copy,
                        uint64_t sum)
{
    delivered->fingerprint += sum;
    if (copy->run_count > 0) {
        const struct stk_delivered_run *last = &copy->runs[copy->run_count - 1];
        struct stk_delivered_run *grown = &delivered->runs[copy->run_count - 1];

        grown->steps -= last->steps; /* the original may have advanced since the copy was made */
        grown->epoch = last->next_epoch;
        grown->position = last->next_position;
        drop_first(delivered, copy->run_count - (grown->steps > 0));
    }
}

bool stk_delivered_between(struct stk_delivered *delivered_out,
                           const struct stk_partition *partition,
                           const struct stk_delivered_span *from,
                           const struct stk_delivered_span *to)
{
    struct stk_delivered_span at = *from;
    bool fits = true;

    *delivered_out = (struct stk_delivered){0};
    for (uint64_t turn = 0; fits && turn <= from->steps; turn++) {
        if (at.epoch == to->epoch && at.position == to->position) {
            return true;
        }
        if (stk_partition_steps_from(partition, at.epoch, at.position) > 0) {
            fits = stk_delivered_add(delivered_out, partition, at.epoch, at.position);
            at.position += stk_partition_stride(partition);
        } else {
            at.position = stk_partition_next_epoch_start(partition, at.epoch, at.position);
            at.epoch++;
        }
    }
    return false;
}
