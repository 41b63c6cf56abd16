/* loader/sample/sample_fill.h: fills the fields of a slot from the bytes of a sample's members.
 *
 *   views of the members --a function for each kind of field--> slot, or ragged value, or override
 *
 * Owner: the task. Threads: the worker that claimed the slot. Memory: overrides and large images
 * reserve from the engine's budget. Bound: one sample. */
#ifndef LOADER_SAMPLE_SAMPLE_FILL_H
#define LOADER_SAMPLE_SAMPLE_FILL_H

#include "loader/sample/sample_task.h"

/* Fills all fields of the slot. Returns 0 on success, else the error of the first field that fails,
 * with its location, in task->error. */
int stk_sample_fill(struct stk_sample_task *task);

#endif
