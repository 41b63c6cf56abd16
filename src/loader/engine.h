/* loader/engine.h: threads, rings and memory of a process, and the lists of work.
 *
 *   workers: rounds of jobs (opening a data set) > fetched samples > new samples > new flights
 *   fetcher: one thread: cold ranges, coalesced, deep in the ring; see loader/fetch.h
 *
 * Owner: the user, its data sets, loaders and batch pools (one reference each).
 * Threads: any. One lock for all scheduling; it is never held over I/O or decoding. Lock order:
 * batch pool before engine.
 * Memory: workers' scratch and fetch chunks, all from `budget`. Bound: memory_bytes_max. */
#ifndef LOADER_ENGINE_H
#define LOADER_ENGINE_H

#include "base/mem.h"
#include "decode/decode.h"
#include "io/io.h"

#include <pthread.h>
#include <sys/types.h>
#include <time.h>

struct stk_fetcher;
struct stoker_loader;

#define STK_THREADS_MAX 1024u
/* Scratch that a worker keeps between samples. */
#define STK_SCRATCH_KEEP_BYTES (4u << 20)

struct stk_worker {
    struct stoker_engine *engine;
    pthread_t             thread;
    uint32_t              index;
    struct stk_decoder   *decoder;
    uint8_t              *scratch; /* bytes of the sample in hand */
    uint64_t              scratch_bytes;
    bool                  started; /* const while the thread runs */
    _Atomic uint64_t      idle_ns, lock_wait_ns; /* written by the worker, read by stats */
};

/* A loop whose rounds run on all workers and on the caller. */
struct stk_job {
    struct stk_job *next;
    int (*run)(void *context, uint64_t round, struct stoker_error *error);
    void *context;
    struct {
        uint64_t            rounds, next_round, running, failed_round;
        int                 status;
        struct stoker_error error;
    } locked;
};

struct stoker_engine {
    struct stk_io               *io; /* const after open, as all down to the lock */
    struct stoker_engine_options options; /* resolved: no zero is left */
    struct stk_budget            budget;
    struct stk_fetcher          *fetcher;
    struct stk_worker           *workers;
    uint32_t                     worker_count;
    uint32_t                     cores;
    pid_t                        pid;
    _Atomic uint32_t             references;
    pthread_mutex_t              lock;
    pthread_cond_t               work; /* something for workers; with lock */
    pthread_cond_t               done; /* a job's round ended; with lock */
    struct {
        struct stk_job       *jobs;
        struct stoker_loader *loaders; /* linked by next_loader */
        uint64_t              returns; /* batches that came back so far */
        uint32_t              sleeping;
        uint32_t              reserving; /* threads that wait for memory */
        bool                  stopping;
    } locked;
};

/* As stoker_engine_open, on a given io (a simulated world in tests), which it takes. */
int  stk_engine_open_on(struct stoker_engine **engine_out, struct stk_io *io,
                        const struct stoker_engine_options *options, struct stoker_error *error);
/* 0, or FORKED in a child of the process that opened it. */
int  stk_engine_check(const struct stoker_engine *engine, struct stoker_error *error);
void stk_engine_hold(struct stoker_engine *engine);
void stk_engine_release(struct stoker_engine *engine); /* the last one ends the threads */
/* Takes the lock; waiting is counted on worker (which may be NULL). */
void stk_engine_lock(struct stoker_engine *engine, struct stk_worker *worker);
void stk_engine_unlock(struct stoker_engine *engine);
/* New work for about `count` workers. */
void stk_engine_signal_locked(struct stoker_engine *engine, uint64_t count);
/* Runs run(context, 0..rounds-1) on the workers and the caller; the error of the lowest failed
 * round, whatever the threads. Later rounds may be left out after a failure. */
int  stk_engine_parallel(struct stoker_engine *engine, uint64_t rounds,
                         int (*run)(void *context, uint64_t round, struct stoker_error *error),
                         void *context, struct stoker_error *error);
/* Reserves, making room by freeing pooled batches and waiting up to wait_ms. BUDGET. */
int  stk_engine_reserve(struct stoker_engine *engine, uint64_t bytes, uint32_t wait_ms,
                        const char *what, struct stoker_error *error);
/* The worker's scratch with room for `bytes`; NULL and *error when there is none. */
uint8_t *stk_worker_scratch(struct stk_worker *worker, uint64_t bytes, struct stoker_error *error);
uint64_t stk_engine_now(struct stoker_engine *engine);
/* An absolute time for pthread_cond_timedwait on the engine's conditions. */
struct timespec stk_engine_after(uint64_t timeout_ns);

#endif
