/* order/delivered.h: the fingerprint of the steps that a stream gave, worked out when it is asked
 * for.
 *
 *   step given --add--> runs of steps ... --next--> spans of one epoch --caller's sums--> settle
 *
 * Every rank's samples are in a step's part of the fingerprint: with 1,024 ranks it takes longer
 * than opening the batch, and most runs ask for it once a checkpoint. A run goes on over the ends
 * of epochs, so one that was never stopped or turned is one run, however long.
 *
 * Pure. Owner: the stream. Threads: one at a time, by its owner's lock.
 * Memory: none but itself. Bound: STK_DELIVERED_RUNS_MAX runs; one more is refused. */
#ifndef ORDER_DELIVERED_H
#define ORDER_DELIVERED_H

#include "order/order.h"

#define STK_DELIVERED_RUNS_MAX 32u

struct stk_delivered_run {
    uint64_t epoch, position, steps;    /* steps > 0 from here on */
    uint64_t next_epoch, next_position; /* behind them */
};

struct stk_delivered {
    uint64_t fingerprint; /* of all that was given, but for the steps of these runs */
    struct stk_delivered_run runs[STK_DELIVERED_RUNS_MAX];
    uint32_t run_count;
};

/* Steps of one epoch, a stride apart. */
struct stk_delivered_span {
    uint64_t epoch, position, steps;
};

/* The step that begins at `position` was given. false: there is no room for one more run, nothing
 * was added; settle what there is first. */
bool stk_delivered_add(struct stk_delivered *delivered, const struct stk_partition *partition,
                       uint64_t epoch, uint64_t position);
/* Takes the first steps, up to the end of their epoch, off a copy. false: none is left. */
bool stk_delivered_next(struct stk_delivered *copy, const struct stk_partition *partition,
                        struct stk_delivered_span *span_out);
/* The steps that `copy` had when it was made have this sum. Steps may have been added since, but
 * nothing else may have happened to `given`. */
void stk_delivered_fold(struct stk_delivered *delivered, const struct stk_delivered *copy,
                        uint64_t sum);
/* The steps from one place of a stream to a later one, as if nothing else had been given. false:
 * more than from->steps of them, or the stream does not lead there. */
bool stk_delivered_between(struct stk_delivered *delivered_out,
                           const struct stk_partition *partition,
                           const struct stk_delivered_span *from,
                           const struct stk_delivered_span *to);

#endif
