/* loader/sample/sample_work.h: the work on one slot: find, read, fill, substitute.
 *
 *   begin --warm--> done
 *         --cold (-EAGAIN)--> the fetcher reads --finish--> done      or: --resume (waits)--> done
 *
 * Done means that the slot is filled, or that its error is recorded in the pending batch.
 * Owner: the caller. Threads: the worker that claimed the slot, or took its fetch record.
 * Memory: as for a sample. Bound: one sample. */
#ifndef LOADER_SAMPLE_SAMPLE_WORK_H
#define LOADER_SAMPLE_SAMPLE_WORK_H

#include "loader/pending/pending_batch.h"
#include "loader/pending/sample_members.h"

/* A slot to work on. */
struct stk_sample_slot {
    struct stk_pending_batch *pending;
    uint32_t slot;
    struct stk_worker *worker;
    struct stk_loader_counters *counters; /* added to */
    struct stk_sample_members *members;   /* begin looks them up; else they were found */
};

/* Looks up the sample's members, and reads them if they are warm. wait: also if they are cold.
 * Returns 0 if the slot is done, -EAGAIN if the members are cold. */
int stk_sample_work_begin(const struct stk_sample_slot *slot, bool wait);
/* Reads the members that begin has found, and waits for them. */
void stk_sample_work_resume(const struct stk_sample_slot *slot);
/* Takes the bytes of the members' span from a fetch, or its error (not NULL, status < 0). */
void stk_sample_work_finish(const struct stk_sample_slot *slot, struct stk_view bytes,
                            const struct stoker_error *error);

#endif
