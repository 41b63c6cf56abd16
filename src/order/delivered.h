/* order/delivered.h: the fingerprint of the steps that a stream delivered, computed on request.
 *
 *   step delivered --add--> runs of steps ... --next--> spans of one epoch --caller's sums--> fold
 *
 * The fingerprint of a step covers the samples of all ranks: with 1,024 ranks computing it takes
 * longer than opening the batch, and most users need it only for checkpoints. A run of steps
 * continues across epochs, so a stream that never jumped has one run, whatever its length.
 *
 * Pure. Owner: the stream. Threads: one at a time, by its owner's lock.
 * Memory: none but itself. Bound: STK_DELIVERED_RUNS_MAX runs; one more is refused. */
#ifndef ORDER_DELIVERED_H
#define ORDER_DELIVERED_H

#include "order/order.h"

#define STK_DELIVERED_RUNS_MAX 32u

struct stk_delivered_run {
    uint64_t epoch, position, steps;    /* steps > 0 from here on */
    uint64_t next_epoch, next_position; /* after them */
};

struct stk_delivered {
    uint64_t fingerprint; /* of all delivered steps except those of the runs */
    struct stk_delivered_run runs[STK_DELIVERED_RUNS_MAX];
    uint32_t run_count;
};

/* Steps of one epoch, a stride apart. */
struct stk_delivered_span {
    uint64_t epoch, position, steps;
};

/* Adds the step that begins at `position`. Returns false, and adds nothing, if another run does not
 * fit: fold the present runs first. */
bool stk_delivered_add(struct stk_delivered *delivered, const struct stk_partition *partition,
                       uint64_t epoch, uint64_t position);
/* Removes the first steps of a copy, up to the end of their epoch. Returns false if none is left.
 */
bool stk_delivered_next(struct stk_delivered *copy, const struct stk_partition *partition,
                        struct stk_delivered_span *span_out);
/* Adds the sum of the steps that `copy` had when it was copied, and removes these steps. Steps may
 * have been added since, but nothing else may have changed. */
void stk_delivered_fold(struct stk_delivered *delivered, const struct stk_delivered *copy,
                        uint64_t sum);
/* Makes the steps from one place of a stream to a later one, as if nothing else had been delivered.
 * Returns false if there are more than from->steps of them or the stream does not pass `to`. */
bool stk_delivered_between(struct stk_delivered *delivered_out,
                           const struct stk_partition *partition,
                           const struct stk_delivered_span *from,
                           const struct stk_delivered_span *to);

#endif
