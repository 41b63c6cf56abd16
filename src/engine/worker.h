/* engine/worker.h: the threads of an engine and the sampling_args of what each does next.
 *
 *   start -> (job round | a client's step | sleep) ... -> stop
 *
 * Owner: the engine. Threads: the engine's opener starts and stops.
 * Memory: a decoder and scratch for each. Bound: options.threads. */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/engine.h"

int stk_workers_start(struct stoker_engine *engine, struct stoker_error *error);
void stk_workers_stop(struct stoker_engine *engine);
/* The calling thread is a worker of this engine. */
bool stk_worker_is_current(const struct stoker_engine *engine);

/* Of a jail's arena: what is kept between pictures, reserved at the first. */
#define STK_WORKER_ARENA_KEEP_BYTES (2u << 20)
/* Reserves memory of the worker's arena, at least what is kept. */
int stk_worker_arena_reserve(struct stk_worker *worker, uint64_t bytes, uint32_t wait_ms,
                             struct stoker_error *error);
void stk_worker_arena_trim(struct stk_worker *worker); /* gives back what is more */

/* Frees what clients and the service only keep; the bytes that came free. No lock held. */
uint64_t stk_engine_trim(struct stoker_engine *engine);

#endif
