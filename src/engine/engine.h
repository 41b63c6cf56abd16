/* engine/engine.h: worker threads and memory budget of a process, shared by its data sets, loaders
 * and tools.
 *
 *   workers: rounds of parallel jobs (opening a data set) first, then steps of clients (loaders)
 *   service: an object that clients share and that has its own thread (the loader's fetcher)
 *
 * engine.c and worker.c are one state machine, that of the scheduler, and call each other.
 * Owner: the user, its data sets, loaders, background jobs and batch pools hold one reference each.
 * Threads: any. One lock protects all scheduling; it is never held during I/O or decoding. Lock
 * order: batch pool before engine.
 * Memory: scratch buffers of workers and fetch buffers, all from `budget`. Bound:
 * memory_bytes_max. */
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
/* Memory that a worker may keep between samples, for each of three kinds:
 *   the decoder's state | an image of common size during decoding | a document (JSON ...) of common
 *   size
 * It is reserved when the engine opens, and less with a small budget: all workers together take at
 * most 1 / STK_WORKER_KEEP_PART of it. Larger images and documents reserve their memory first. */
#define STK_WORKER_KEEP_BYTES (4u << 20)
#define STK_WORKER_KEEP_KINDS 3u
#define STK_WORKER_KEEP_PART 8u

struct stk_value;             /* format/value/value.h */
struct stk_batch_pool;        /* engine/batch/batch.h */
struct stk_batch_field_shape; /* likewise */

struct stk_worker {
    struct stoker_engine *engine;
    pthread_t thread;
    uint32_t index;
    struct stk_image_decoder *decoder;
    struct stk_sandbox_worker *sandbox; /* NULL: it decodes in this process */
    uint64_t arena_bytes;               /* of the sandbox; reserved in the budget */
    uint8_t *scratch;                   /* bytes of the current sample */
    uint64_t scratch_bytes;
    bool started; /* const while the thread runs */
    /* Written by the worker, read by stats. storage_wait_ns: part of idle_ns in which a client
     * waited for bytes. */
    _Atomic uint64_t idle_ns, storage_wait_ns, lock_wait_ns;
    _Atomic uint64_t jpegs[STOKER_JPEG_REASONS]; /* likewise: see struct stoker_stats */
    _Atomic uint64_t from_entry_points, planar;  /* of jpegs[0] */
    _Atomic uint64_t pngs[STOKER_PNG_READERS];
};

/* A loop whose rounds run on all workers and on the calling thread. */
struct stk_parallel_job {
    struct stk_parallel_job *next;
    int (*run)(void *context, uint64_t round, struct stoker_error *error);
    void *context;
    bool sandboxed; /* rounds run only on workers that have a helper process */
    struct {
        uint64_t rounds, next_round, running, failed_round;
        int status;
        struct stoker_error error;
    } locked;
};

/* A source of work for the workers, which also gives back memory. Each kind of client embeds this
 * struct, and only the client's own callbacks may cast it. All callbacks are called with the
 * engine's lock; those after trim_locked are optional. */
struct stk_engine_client {
    struct stk_engine_client *next; /* in the engine's list; under its lock */
    /* Does one piece of work and returns true, or returns false, without having released the lock,
     * if there is none. */
    bool (*step_locked)(struct stk_engine_client *client, struct stk_worker *worker);
    /* Frees cached memory. Returns the bytes. */
    uint64_t (*trim_locked)(struct stk_engine_client *client);
    /* Called after memory of the budget was released: the client may retry what failed for lack of
     * memory. */
    void (*memory_returned_locked)(struct stk_engine_client *client);
    /* Returns true if a caller of the client waits for memory. */
    bool (*wants_memory_locked)(const struct stk_engine_client *client);
    /* Drops data that was read ahead, to be read again later. May release the lock for a moment.
     * Returns false, without having released the lock, if nothing was read ahead. */
    bool (*drop_read_ahead_locked)(struct stk_engine_client *client);
    /* Returns true if there is no work because reads are in flight; NULL: there are never any. */
    bool (*waits_for_bytes_locked)(const struct stk_engine_client *client);
    uint32_t waiting; /* callers that wait for the client, which is then served first; with lock */
};

/* An object that caches data in memory of the budget, such as a data set. trim_locked frees cached
 * data and returns the bytes; it is called with the engine's lock. */
struct stk_memory_holder {
    struct stk_memory_holder *next;
    uint64_t (*trim_locked)(struct stk_memory_holder *holder);
};

/* An object that clients share, with its own threads and memory. The first client that needs it
 * creates it. */
struct stk_engine_service {
    void (*close)(struct stk_engine_service *service); /* takes */
    uint64_t (*trim)(
        struct stk_engine_service *service); /* without the lock; returns the bytes that it freed */
};

struct stoker_engine {
    struct stk_io *io;                    /* const after open, as all down to the lock */
    struct stoker_engine_options options; /* resolved: defaults are filled in */
    struct stk_budget budget;
    struct stk_budget_hooks grant; /* of the budget */
    struct stk_sandbox *sandbox;   /* NULL: not requested */
    struct stoker_cache *cache;    /* retained; NULL: none */
    struct stk_worker *workers;
    uint32_t worker_count;
    uint32_t keep_bytes; /* for one kind: see STK_WORKER_KEEP_BYTES */
    uint32_t cores;
    uint32_t descriptors; /* reserved: options.open_files_max */
    uint32_t
        remote_depth; /* reads of remote objects in flight, in addition to io_depth local ones */
    bool gap_is_set, bytes_is_set; /* the user set options.io_gap_bytes, io_bytes_max */
    pid_t pid;
    _Atomic uint32_t references;
    pthread_mutex_t lock;
    pthread_cond_t work; /* there is work for workers; with lock */
    pthread_cond_t done; /* a round of a job ended; with lock */
    struct {
        struct stk_parallel_job *jobs;
        struct stk_engine_client *clients;
        struct stk_memory_holder *memory_holders;
        struct stk_engine_service *service; /* set once */
        uint64_t returned_batches;          /* batches that callers closed so far */
        uint32_t sleeping;
        uint32_t reserving; /* threads that wait for memory */
        bool stopping;
    } locked;
};

/* As stoker_engine_open, with the given io (simulated files in tests). Takes ownership of io. */
int stk_engine_open_with_io(struct stoker_engine **engine_out, struct stk_io *io,
                            const struct stoker_engine_options *options,
                            struct stoker_error *error);
/* Returns 0, or STOKER_ERROR_FORKED in a child of the process that opened the engine. */
int stk_engine_check(const struct stoker_engine *engine, struct stoker_error *error);
void stk_engine_retain(struct stoker_engine *engine);
/* Releasing the last reference stops the threads and frees the engine. */
void stk_engine_release(struct stoker_engine *engine);
/* Takes the lock. The waiting time is added to the worker's counter (worker may be NULL). */
void stk_engine_lock(struct stoker_engine *engine, struct stk_worker *worker);
void stk_engine_unlock(struct stoker_engine *engine);
void stk_engine_add_client_locked(struct stoker_engine *engine, struct stk_engine_client *client);
void stk_engine_remove_client_locked(struct stoker_engine *engine,
                                     struct stk_engine_client *client);
/* Call it after memory of the budget was released: calls memory_returned_locked of each client. */
void stk_engine_memory_returned_locked(struct stoker_engine *engine);
/* Opens a pool of batches in the engine's budget. The pool holds a reference of the engine. When a
 * batch was closed, it calls stk_engine_memory_returned_locked. Returns as stk_batch_pool_open. */
int stk_engine_batch_pool_open(struct stoker_engine *engine,
                               const struct stk_batch_field_shape *fields, uint32_t field_count,
                               uint32_t slots, struct stk_batch_pool **pool_out,
                               struct stoker_error *error);
/* Returns true if a caller of any client waits for memory. */
bool stk_engine_wants_memory_locked(const struct stoker_engine *engine);
/* Makes one client drop data that it read ahead, so that for_client gets memory: the first client
 * that has some, is not for_client, and has no waiting caller. May release the lock for a
 * moment. */
void stk_engine_drop_read_ahead_locked(struct stoker_engine *engine,
                                       const struct stk_engine_client *for_client);
void stk_engine_add_memory_holder(struct stoker_engine *engine, struct stk_memory_holder *holder);
void stk_engine_remove_memory_holder(struct stoker_engine *engine,
                                     struct stk_memory_holder *holder);
/* Returns the engine's service in *service_out, and creates it with make() if there is none. make
 * is called without the lock; if two threads create one at the same time, one of them is closed. */
int stk_engine_service_get(struct stoker_engine *engine,
                           int (*make)(struct stk_engine_service **service_out,
                                       struct stoker_engine *engine, struct stoker_error *error),
                           struct stk_engine_service **service_out, struct stoker_error *error);
/* Wakes about `count` workers. */
void stk_engine_signal_locked(struct stoker_engine *engine, uint64_t count);
/* Calls run(context, round) for rounds 0 to rounds - 1 on the workers and the calling thread.
 * Returns 0, or the error of the lowest round that failed, for any number of threads. After a
 * failure later rounds may be skipped. */
int stk_engine_parallel(struct stoker_engine *engine, uint64_t rounds,
                        int (*run)(void *context, uint64_t round, struct stoker_error *error),
                        void *context, struct stoker_error *error);
/* The same for rounds that parse untrusted input: on an engine with a sandbox only workers run
 * them, which pass the input to their helper processes. Must not be called on a worker's thread. */
int stk_engine_parallel_sandboxed(struct stoker_engine *engine, uint64_t rounds,
                                  int (*run)(void *context, uint64_t round,
                                             struct stoker_error *error),
                                  void *context, struct stoker_error *error);
/* Returns the worker of the calling thread, or NULL if it is not a worker of this engine. */
struct stk_worker *stk_worker_current(const struct stoker_engine *engine);
/* Reserves bytes of the budget. If they are not free, trims caches and pooled batches, and waits up
 * to wait_ms. what: the purpose, for the error. Returns 0, or STOKER_ERROR_BUDGET. */
int stk_engine_reserve(struct stoker_engine *engine, uint64_t bytes, uint32_t wait_ms,
                       const char *what, struct stoker_error *error);
/* Hooks that reserve memory for third-party libraries and wait a short time. Valid as long as the
 * engine. */
const struct stk_budget_hooks *stk_engine_allocator(const struct stoker_engine *engine);
/* Returns the worker's scratch buffer of at least `bytes`, or NULL and sets *error. */
uint8_t *stk_worker_scratch(struct stk_worker *worker, uint64_t bytes, struct stoker_error *error);
/* Counts JPEGs that the workers decoded, minus the counts in `before` (may be NULL), in the fields
 * jpegs* of stats_out. */
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
/* All that parsing a member into a value needs. */
struct stk_parse_job {
    uint32_t encoding; /* JSON, MSGPACK, NPZ */
    bool check_only;   /* only checks the complete member; there is no value */
    struct stk_view bytes;
    const char *path;        /* of the array in an npz file */
    const char *second_path; /* of an array that will be open at the same time; NULL: none */
    uint64_t small_bytes;    /* a value that needs no more memory than this is not reserved */
    uint64_t ratio;          /* memory that the caller needs for each byte of a large value */
    uint64_t memory_bytes_max;
    uint32_t wait_ms; /* longest wait for memory of the budget */
    const _Atomic bool *cancelled;
    uint64_t reserved_bytes; /* out, also after a failure: the caller releases them */
    uint64_t second_bytes;   /* out: memory that the second array needs */
};
/* Parses a member in the worker's sandbox, which must exist: a complete JSON or MessagePack
 * document, or one array of an npz file. Call it on the worker's own thread. The memory of a large
 * value stays reserved until the caller has closed the value and releases reserved_bytes. Returns 0
 * on success, STOKER_ERROR_CLOSED if the job was cancelled, STOKER_ERROR_LIMIT or
 * STOKER_ERROR_BUDGET for lack of memory, or the error of the parser. */
int stk_worker_parse(struct stk_worker *worker, struct stk_parse_job *job,
                     struct stk_value *value_out, struct stoker_error *error);
/* Parses the second array while the first is open; stk_worker_parse() reserved its memory. */
int stk_worker_parse_with(struct stk_worker *worker, const struct stk_parse_job *job,
                          struct stk_value *value_out, struct stoker_error *error);
uint64_t stk_engine_now(struct stoker_engine *engine);
/* An absolute time for pthread_cond_timedwait on the engine's conditions. */
struct timespec stk_engine_deadline(uint64_t timeout_ns);

#endif
