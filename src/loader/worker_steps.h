/* loader/worker_steps.h: the steps that the engine's workers take for a loader.
 *
 *   a step: fill a fetched sample | claim slots, read and fill the warm ones, fetch the cold ones
 *           | extract from a compressed shard | open a batch | read one more batch ahead
 *
 * The first step of this list that has work is taken. A step holds no lock while it reads or
 * decodes.
 * Owner: the loader. Threads: any worker. Memory: that of a batch, a sample, a fetch.
 * Bound: CLAIM_MAX slots a step. */
#ifndef LOADER_WORKER_STEPS_H
#define LOADER_WORKER_STEPS_H

#include "loader/pending/loader_private.h"

/* Takes one step; a callback of the engine (struct stk_engine_client). Returns false, without
 * releasing the lock, if there is no work. */
bool stk_worker_step_locked(struct stk_engine_client *client, struct stk_worker *worker);

#endif
