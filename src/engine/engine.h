/* engine/engine.h: threads and memory of a process, and who gives them work.
 *
 *   workers: rounds of jobs (opening a data set) > steps of clients (the loaders)
 *   service: what the clients share beside workers (the loader's fetcher)
 *
 * Owner: the user, its data sets, loaders and batch pools (one reference each).
 * Threads: any. One lock for all scheduling; it is never held over I/O or decoding. Lock order:
 * batch pool before engine.
 * Memory: workers' scratch and fetch chunks, all from `budget`. Bound: memory_bytes_max. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "base/memory_budget.h"
#include "decode/image/image_decode.h"
#include "decode/sandbox/sandbox.h"
#include "io/io.h"

#include <pthread.h>
#include <sys/types.h>
#include <time.h>

#define STK_THREADS_MAX 1024u
/* What a worker keeps between samples, at most, of each of three kinds; less with a small budget,
 * of which all of them take no more than an eighth. They are reserved when the engine opens:
 *   what its decoder keeps | a usual picture, while it is decoded | a usual document (JSON ...)
 * What is larger asks for its memory first. */
#define STK_WORKER_KEEP_BYTES (4u << 20)
#define STK_WORKER_KEEP_KINDS 3u
#define STK_WORKER_KEEP_PART 8u

struct stk_value; /* format/value/value.h */

struct stk_worker {
    struct stoker_engine *engine;
    pthread_t thread;
    uint32_t index;
    struct stk_image_decoder *decoder;
    struct stk_sandbox_worker *sandbox; /* NULL: it decodes here */
    uint64_t arena_bytes;               /* of the jail, reserved */
    uint8_t *scratch;                   /* bytes of the sample in hand */
    uint64_t scratch_bytes;
    bool started;                                /* const while the thread runs */
    _Atomic uint64_t idle_ns, lock_wait_ns;      /* written by the worker, read by stats */
    _Atomic uint64_t jpegs[STOKER_JPEG_REASONS]; /* likewise: see struct stoker_stats */
    _Atomic uint64_t from_entry_points, planar;  /* of jpegs[0] */
    _Atomic uint64_t pngs[STOKER_PNG_READERS];
};

/* A loop whose rounds run on all workers and on the caller. */
struct stk_parallel_job {
    struct stk_parallel_job *next;
    int (*run)(void *context, uint64_t round, struct stoker_error *error);
    void *context;
    bool sandboxed; /* not on a thread without a helper */
    struct {
        uint64_t rounds, next_round, running, failed_round;
        int status;
        struct stoker_error error;
    } locked;
};

/* Who gives the workers steps to do, and memory back: of any kind, so nobody but its own callbacks
 * knows what it is a part of. All are called under the engine's lock, and only the first two must
 * be there. */
struct stk_engine_client {
    struct stk_engine_client *next; /* in the engine's list; under its lock */
    /* One piece of work; false (and the lock never let go) when there is none. */
    bool (*step_locked)(struct stk_engine_client *client, struct stk_worker *worker);
    /* Frees memory that it only keeps; the bytes. */
    uint64_t (*trim_locked)(struct stk_engine_client *client);
    /* Memory of the budget was released: what failed for lack of memory may be tried again. */
    void (*memory_returned_locked)(struct stk_engine_client *client);
    /* Whether its caller waits for memory. */
    bool (*wants_memory_locked)(const struct stk_engine_client *client);
    /* Drops what it has read ahead, to read it again later. May let the lock go for a moment; false
     * (and the lock never let go) when it has read nothing ahead. */
    bool (*drop_read_ahead_locked)(struct stk_engine_client *client);
    uint32_t waiting; /* callers that wait for it: served first; under the engine's lock */
};

/* Who keeps memory of the budget that it can do without: data sets. trim_locked: under the engine's
 * lock; the bytes that came free. */
struct stk_memory_holder {
    struct stk_memory_holder *next;
    uint64_t (*trim_locked)(struct stk_memory_holder *keeper);
};

/* What clients share, with threads and memory of its own; made by the first that needs it. */
struct stk_engine_service {
    void (*close)(struct stk_engine_service *service); /* takes */
    uint64_t (*trim)(
        struct stk_engine_service *service); /* no lock held; the bytes that came free */
};

struct stoker_engine {
    struct stk_io *io;                    /* const after open, as all down to the lock */
    struct stoker_engine_options options; /* resolved: no zero is left */
    struct stk_budget budget;
    struct stk_budget_hooks grant; /* of the budget */
    struct stk_sandbox *sandbox;   /* NULL: none was asked for */
    struct stk_worker *workers;
    uint32_t worker_count;
    uint32_t keep_bytes; /* of one kind: see STK_WORKER_KEEP_BYTES */
    uint32_t cores;
    uint32_t remote_depth; /* reads in flight from stores, beside io_depth of this machine's */
    bool gap_is_set, bytes_is_set; /* options.io_gap_bytes, io_bytes_max: not their defaults */
    pid_t pid;
    _Atomic uint32_t references;
    pthread_mutex_t lock;
    pthread_cond_t work; /* something for workers; with lock */
    pthread_cond_t done; /* a job's round ended; with lock */
    struct {
        struct stk_parallel_job *jobs;
        struct stk_engine_client *clients;
        struct stk_memory_holder *memory_holders;
        struct stk_engine_service *service; /* set once */
        uint64_t returned_batches;          /* batches that came back so far */
        uint32_t sleeping;
        uint32_t reserving; /* threads that wait for memory */
        bool stopping;
    } locked;
};

/* As stoker_engine_open, on a given io (a simulated world in tests), which it takes. */
int stk_engine_open_with_io(struct stoker_engine **engine_out, struct stk_io *io,
                            const struct stoker_engine_options *options,
                            struct stoker_error *error);
/* 0, or FORKED in a child of the process that opened it. */
int stk_engine_check(const struct stoker_engine *engine, struct stoker_error *error);
void stk_engine_retain(struct stoker_engine *engine);
void stk_engine_release(struct stoker_engine *engine); /* the last one ends the threads */
/* Takes the lock; waiting is counted on worker (which may be NULL). */
void stk_engine_lock(struct stoker_engine *engine, struct stk_worker *worker);
void stk_engine_unlock(struct stoker_engine *engine);
void stk_engine_add_client_locked(struct stoker_engine *engine, struct stk_engine_client *client);
void stk_engine_remove_client_locked(struct stoker_engine *engine,
                                     struct stk_engine_client *client);
/* A batch came back: tells each client. */
void stk_engine_memory_returned_locked(struct stoker_engine *engine);
/* Whether the caller of any client waits for memory. */
bool stk_engine_wants_memory_locked(const struct stoker_engine *engine);
/* Has the first client that read ahead drop it: not the one it is for, and none whose caller waits.
 * May let the lock go for a moment. */
void stk_engine_drop_read_ahead_locked(struct stoker_engine *engine,
                                       const struct stk_engine_client *for_client);
void stk_engine_add_memory_holder(struct stoker_engine *engine, struct stk_memory_holder *keeper);
void stk_engine_remove_memory_holder(struct stoker_engine *engine,
                                     struct stk_memory_holder *keeper);
/* The engine's service, made by make() when it has none. make: no lock held; of two that made
 * one at the same time, one is closed again. */
int stk_engine_service_get(struct stoker_engine *engine,
                           int (*make)(struct stk_engine_service **service_out,
                                       struct stoker_engine *engine, struct stoker_error *error),
                           struct stk_engine_service **service_out, struct stoker_error *error);
/* New work for about `count` workers. */
void stk_engine_signal_locked(struct stoker_engine *engine, uint64_t count);
/* Runs run(context, 0..rounds-1) on the workers and the caller; the error of the lowest failed
 * round, whatever the threads. Later rounds may be left out after a failure. */
int stk_engine_parallel(struct stoker_engine *engine, uint64_t rounds,
                        int (*run)(void *context, uint64_t round, struct stoker_error *error),
                        void *context, struct stoker_error *error);
/* The same for rounds that parse what strangers wrote: on a sandboxed engine by the workers alone,
 * whose helpers do it. Not on a worker's thread. */
int stk_engine_parallel_sandboxed(struct stoker_engine *engine, uint64_t rounds,
                                  int (*run)(void *context, uint64_t round,
                                             struct stoker_error *error),
                                  void *context, struct stoker_error *error);
/* The worker whose thread this is; NULL: another thread. */
struct stk_worker *stk_worker_current(const struct stoker_engine *engine);
/* Reserves, making room by freeing pooled batches and waiting up to wait_ms. BUDGET. */
int stk_engine_reserve(struct stoker_engine *engine, uint64_t bytes, uint32_t wait_ms,
                       const char *what, struct stoker_error *error);
/* The same for a library: waits shortly. Lent as long as the engine. */
const struct stk_budget_hooks *stk_engine_allocator(const struct stoker_engine *engine);
/* The worker's scratch with room for `bytes`; NULL and *error when there is none. */
uint8_t *stk_worker_scratch(struct stk_worker *worker, uint64_t bytes, struct stoker_error *error);
/* JPEGs that the workers decoded, less those `before` (NULL: none): the jpegs* of stats_out. */
void stk_engine_jpeg_stats(const struct stoker_engine *engine, const struct stoker_stats *before,
                           struct stoker_stats *stats_out);
/* All that decoding one image needs. */
struct stk_decode_job {
    const struct stk_transform_plan *plan;
    struct stk_view bytes;
    uint64_t key;
    void *slot;                                       /* output: see stk_image_decode */
    const _Atomic bool *cancelled;                    /* true: a sandboxed decoder is stopped */
    uint32_t wait_ms;                                 /* longest wait for memory of the budget */
    const struct stk_jpeg_entry_points *entry_points; /* of this JPEG; NULL: none. A sandboxed
                                                       * decoder does not use them. */
};
/* Decodes an image into its slot, in this process or in the worker's sandbox, and reserves memory
 * of the budget for a large one. Call it on the worker's own thread. Returns 0 on success,
 * STOKER_ERROR_CLOSED if a sandboxed job was cancelled, STOKER_ERROR_BUDGET if the memory did not
 * become free in time, or the error of the decoder. */
int stk_worker_decode(struct stk_worker *worker, const struct stk_decode_job *job,
                      struct stoker_error *error);
/* A member into a value, parsed by the worker's sandbox, which it must have: of JSON and
 * MessagePack the whole, of npz an array. What is large is reserved until the caller, who has
 * closed the value, releases it. The worker's own thread. CLOSED: it was cancelled. */
struct stk_parse_job {
    uint32_t encoding; /* JSON, MSGPACK, NPZ */
    bool check_only;   /* only whether it is good as a whole: there is no value */
    struct stk_view bytes;
    const char *path, *second_path; /* of an npz; other: an array that will be opened, too, while
                                 the first is; NULL: none */
    uint64_t small_bytes;           /* what takes no more is not reserved */
    uint64_t ratio; /* what the caller takes beside it, for each byte of a large one */
    uint64_t memory_bytes_max;
    uint32_t wait_ms; /* for memory */
    const _Atomic bool *cancelled;
    uint64_t reserved_bytes; /* out, also of a failure */
    uint64_t second_bytes;   /* out: what the other takes */
};
int stk_worker_parse(struct stk_worker *worker, struct stk_parse_job *job,
                     struct stk_value *value_out, struct stoker_error *error);
/* The other array, while the first is open: its memory is reserved. */
int stk_worker_parse_with(struct stk_worker *worker, const struct stk_parse_job *job,
                          struct stk_value *value_out, struct stoker_error *error);
uint64_t stk_engine_now(struct stoker_engine *engine);
/* An absolute time for pthread_cond_timedwait on the engine's conditions. */
struct timespec stk_engine_deadline(uint64_t timeout_ns);

#endif
