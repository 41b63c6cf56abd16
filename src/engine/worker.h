/* engine/worker.h: the worker threads of an engine, and what each of them does next.
 *
 *   start -> (round of a job | step of a client | sleep) ... -> stop
 *
 * Owner: the engine. Threads: the thread that opens the engine starts them, the one that frees it
 * stops them. Memory: a decoder and a scratch buffer for each. Bound: options.threads. */
#ifndef ENGINE_WORKER_H
#define ENGINE_WORKER_H

#include "engine/engine.h"

int stk_workers_start(struct stoker_engine *engine, struct stoker_error *error);
void stk_workers_stop(struct stoker_engine *engine);
/* Returns true if the calling thread is a worker of this engine. */
bool stk_worker_is_current(const struct stoker_engine *engine);

/* Bytes of a sandbox's arena that stay reserved between images, from the first image on. */
#define STK_WORKER_ARENA_KEEP_BYTES (2u << 20)
/* Reserves memory for the arena of the worker's sandbox, at least STK_WORKER_ARENA_KEEP_BYTES.
 * Returns 0, or STOKER_ERROR_BUDGET. */
int stk_worker_arena_reserve(struct stk_worker *worker, uint64_t bytes, uint32_t wait_ms,
                             struct stoker_error *error);
/* Releases what exceeds STK_WORKER_ARENA_KEEP_BYTES. */
void stk_worker_arena_trim(struct stk_worker *worker);

/* Frees cached data of clients, memory holders and the service. Call it without the lock. Returns
 * the bytes. */
uint64_t stk_engine_trim(struct stoker_engine *engine);

#endif
