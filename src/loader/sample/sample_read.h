/* loader/sample/sample_read.h: reads the bytes of a sample's members, and sets their views.
 *
 *   warm (page cache) --read--> scratch or slot --> views of the members
 *   cold --> -EAGAIN --> loader/fetch/fetcher.h reads the span --set_views--> views
 *
 * Owner: the task. Threads: the worker that claimed the slot. Memory: the worker's scratch; a value
 * that is a span by itself is read into its slot. Bound: the span of a sample. */
#ifndef LOADER_SAMPLE_SAMPLE_READ_H
#define LOADER_SAMPLE_SAMPLE_READ_H

#include "loader/sample/sample_task.h"

/* Reads the members that were found. wait: also if they are not in the page cache. Returns 0 on
 * success, -EAGAIN if the bytes are cold and wait is false, or the error in task->error. */
int stk_sample_read(struct stk_sample_task *task, bool wait);
/* Retries a read that returned `status` (see read_retry.h), and waits for it. The members are
 * looked up again. Returns 0 on success, or the error in task->error with its location. */
int stk_sample_read_retry(struct stk_sample_task *task, int status);
/* Sets the views of the members in the bytes of their span, which the fetcher read. Returns 0 on
 * success, STOKER_ERROR_TRUNCATED if bytes are missing, or the error of a foreign index that does
 * not fit the shard. */
int stk_sample_read_set_views(struct stk_sample_task *task, struct stk_view bytes);

#endif
