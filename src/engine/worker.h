/* engine/worker.h: the threads of an engine and the choice of what each does next.
 *
 *   start -> (job round | a client's step | sleep) ... -> stop
 *
 * Owner: the engine. Threads: the engine's opener starts and stops.
 * Memory: a decoder and scratch for each. Bound: options.threads. */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/engine.h"

int  stk_workers_start(struct stoker_engine *engine, struct stoker_error *error);
void stk_workers_stop(struct stoker_engine *engine);
/* The calling thread is a worker of this engine. */
bool stk_workers_is_one(const struct stoker_engine *engine);

/* Frees what clients and the service only keep; the bytes that came free. No lock held. */
uint64_t stk_engine_trim(struct stoker_engine *engine);

#endif
