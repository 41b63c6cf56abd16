/* loader/sample/substitute.h: the bad-sample policy (on_error) for a slot whose sample failed.
 *
 *   error --damage in the data--> recorded (quarantine) --skip--> other samples of the same source
 *         --raise, or no substitute was good, or no damage--> error of the pending batch
 *
 * A substitute is a function of (seed, epoch, position, attempt): a restarted run, and any number
 * of threads, find the same one.
 * Owner: the task. Threads: the worker that claimed the slot. Memory: as for a sample.
 * Bound: STK_LOADER_SUBSTITUTES_MAX attempts. */
#ifndef LOADER_SAMPLE_SUBSTITUTE_H
#define LOADER_SAMPLE_SUBSTITUTE_H

#include "loader/sample/sample_task.h"

/* Whether the task's sample is known to be bad; if so task->error is that error. */
bool stk_substitute_is_quarantined(struct stk_sample_task *task);
/* Ends a task. A failed one (status < 0, which task->error must have, too) records damage, then
 * fills the slot with a substitute, or records the error in the pending batch. */
void stk_substitute_or_fail(struct stk_sample_task *task, int status);

#endif
