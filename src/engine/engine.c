/* Opening and closing an engine, its clients, and its memory budget. worker.c has the threads. */
#include "engine/engine.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/thread.h"
#include "engine/worker.h"
#include "io/clock.h"
#include "io/descriptor_budget.h"
#include "storage/cache/node_cache.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <string.h>

#define ARENA_BYTES_MAX (8ull << 30)
#define GRANT_WAIT_MS 100u

#define OPEN_FILES 256u
#define OPEN_FILES_MIN 4u
#define REMOTE_DEPTH 256u /* as many as the connections of a node */

static bool grant_reserve(void *owner, uint64_t bytes);
static void grant_release(void *owner, uint64_t bytes);
static void engine_free(struct stoker_engine *engine);
static int resolve(struct stoker_engine *engine, const struct stoker_engine_options *given,
                   struct stoker_error *error);

int stoker_engine_open(struct stoker_engine **engine_out,
                       const struct stoker_engine_options *options, struct stoker_error *error)
{
    return stk_engine_open_with_io(engine_out, NULL, options, error);
}

static int open_io(struct stoker_engine *engine, struct stoker_error *error)
{
    struct stk_io_options options = {.backend = engine->options.io_backend,
                                     .direct = engine->options.direct,
                                     .depth = engine->options.io_depth,
                                     .read_timeout_ms = engine->options.read_timeout_ms,
                                     .network_fs_threads_max =
                                         engine->options.network_fs_threads_max};

    struct stk_vfs_options vfs = {
        .depth = engine->remote_depth,
        .read_timeout_ms = options.read_timeout_ms,
        .connections_max = engine->options.connections_max,
        .node_connections_max = engine->options.node_connections_max,
        .unshared = engine->options.no_process_sharing,
        .no_hedges = engine->options.no_hedging,
        .hedge_percent_max = engine->options.hedge_percent_max,
        .check_md5_etags = engine->options.check_etags,
        .budget = &engine->budget,
        .external_fs = engine->options.external_fs,
        .cache = engine->cache,
    };
    struct stk_io *real = engine->io;
    int status = real ? 0 : stk_io_open(&real, &options, error);

    engine->io = NULL;
    return status < 0 ? status : stk_vfs_open(&engine->io, real, &vfs, error);
}

static int open_cache(struct stoker_engine *engine, struct stoker_error *error)
{
    engine->cache = engine->options.cache;
    if (!engine->cache) {
        return stk_cache_open_environment(&engine->cache, error);
    }
    stk_cache_retain(engine->cache);
    return 0;
}

static int open_sandbox(struct stoker_engine *engine, struct stoker_error *error)
{
    /* No job reserves more than the budget. */
    struct stk_sandbox_options options = {
        .helper = engine->options.sandbox_helper,
        .arena_bytes = stk_min(engine->options.memory_bytes_max, ARENA_BYTES_MAX),
        .timeout_ms = engine->options.decode_timeout_ms,
        .vector = engine->options.simd,
    };
    int status = engine->options.sandbox ? stk_sandbox_open(&engine->sandbox, &options, error) : 0;

    engine->options.sandbox_helper = NULL; /* borrowed during open */
    return status;
}

int stk_engine_open_with_io(struct stoker_engine **engine_out, struct stk_io *io,
                            const struct stoker_engine_options *options, struct stoker_error *error)
{
    struct stoker_engine *engine;
    int status;

    *engine_out = NULL;
    engine = stk_alloc(1, sizeof *engine);
    if (!engine) {
        stk_io_close(io);
        return stk_fail(error, -ENOMEM, "cannot open an engine", "free memory", "engine");
    }
    engine->io = io;
    engine->pid = stk_process_id();
    engine->references = 1;
    engine->cores = stk_cgroup_available_cores();
    pthread_mutex_init(&engine->lock, NULL);
    stk_cond_init(&engine->work);
    stk_cond_init(&engine->done);

    status = resolve(engine, options, error);
    engine->budget.bytes_max = engine->options.memory_bytes_max;
    engine->grant = (struct stk_budget_hooks){grant_reserve, grant_release, engine};
    status = status < 0 ? status : open_cache(engine, error);
    status = status < 0 ? status : open_io(engine, error);
    status = status < 0 ? status : open_sandbox(engine, error);
    status = status < 0 ? status : stk_workers_start(engine, error);
    if (status < 0) {
        engine_free(engine);
        return status;
    }
    *engine_out = engine;
    return 0;
}

static int resolve(struct stoker_engine *engine, const struct stoker_engine_options *given,
                   struct stoker_error *error)
{
    struct stoker_engine_options *options = &engine->options;
    uint32_t cores = engine->cores, reserved;

    int status = given ? stk_options_read(options, sizeof *options,
                                          offsetof(struct stoker_engine_options, memory_bytes_max),
                                          given, "engine options", error)
                       : 0;

    if (status < 0) {
        return status;
    }
    if (options->threads > STK_THREADS_MAX || options->simd > STOKER_SIMD_AVX2 ||
        options->io_backend > STOKER_IO_THREADS || options->direct > STOKER_DIRECT_ALWAYS ||
        options->sandbox > 1 || options->no_process_sharing > 1 || options->no_hedging > 1 ||
        options->check_etags > 1 || options->connections_max > 1024 ||
        options->node_connections_max > 1024 || options->hedge_percent_max > 10 ||
        options->network_fs_threads_max > 256) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an engine option is out of its range",
                        "use at most 1024 threads and connections, 256 threads for network file "
                        "systems, 10 percent of hedged requests, and values of the enums",
                        "engine options");
    }
    reserved = options->cores_reserved < cores ? options->cores_reserved : cores - 1;
    options->threads = options->threads ? options->threads : cores - reserved;
    options->memory_bytes_max =
        options->memory_bytes_max ? options->memory_bytes_max : stk_cgroup_available_memory() / 2;
    engine->remote_depth = options->io_depth ? options->io_depth : REMOTE_DEPTH;
    options->io_depth = options->io_depth ? options->io_depth : 128;
    engine->gap_is_set = options->io_gap_bytes > 0;
    engine->bytes_is_set = options->io_bytes_max > 0;
    options->io_bytes_max = options->io_bytes_max ? options->io_bytes_max : 4u << 20;
    /* A read's length with its alignment is 32 bits. */
    options->io_bytes_max = (uint32_t)stk_min(options->io_bytes_max, 1u << 30);
    options->io_gap_bytes = options->io_gap_bytes ? options->io_gap_bytes : 64u << 10;
    options->read_timeout_ms = options->read_timeout_ms ? options->read_timeout_ms : 30000;
    engine->descriptors = stk_descriptors_reserve(
        options->open_files_max ? options->open_files_max : OPEN_FILES, OPEN_FILES_MIN);
    options->open_files_max = engine->descriptors;
    options->single_flight_timeout_ms =
        options->single_flight_timeout_ms ? options->single_flight_timeout_ms : 600000;
    options->decode_timeout_ms = options->decode_timeout_ms ? options->decode_timeout_ms : 10000;
    return 0;
}

static void engine_free(struct stoker_engine *engine)
{
    stk_workers_stop(engine);
    if (engine->locked.service) {
        engine->locked.service->close(engine->locked.service);
    }
    stk_sandbox_close(engine->sandbox);
    stk_io_close(engine->io);
    stk_cache_release(engine->cache);
    stk_descriptors_release(engine->descriptors);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->done);
    pthread_mutex_destroy(&engine->lock);
    stk_free(engine);
}

int stk_engine_check(const struct stoker_engine *engine, struct stoker_error *error)
{
    if (engine->pid == stk_process_id()) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_FORKED, "the engine was opened in another process",
                    "open it after fork, or start processes by spawn", "process %ld, opened in %ld",
                    (long)stk_process_id(), (long)engine->pid);
}

void stk_engine_retain(struct stoker_engine *engine)
{
    atomic_fetch_add_explicit(&engine->references, 1, memory_order_relaxed);
}

static void *reaper_main(void *engine)
{
    engine_free(engine);
    return NULL;
}

void stk_engine_release(struct stoker_engine *engine)
{
    pthread_t reaper;

    /* A forked child has no threads to join, and its locks are in an unknown state: it frees
     * nothing. */
    if (engine->pid != stk_process_id() ||
        atomic_fetch_sub_explicit(&engine->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (!stk_worker_is_current(engine)) {
        engine_free(engine);
        return;
    }
    /* A worker that released the last reference cannot join itself. */
    if (stk_thread_start(&reaper, NULL, reaper_main, engine) == 0) {
        pthread_detach(reaper);
    }
}

void stoker_engine_close(struct stoker_engine *engine)
{
    if (engine) {
        stk_engine_release(engine);
    }
}

int stoker_engine_info(struct stoker_engine *engine, struct stoker_engine_info *info)
{
    struct stoker_engine_info full = {0};

    full.threads = engine->worker_count;
    full.cores = engine->cores;
    full.memory_bytes_max = engine->budget.bytes_max;
    full.memory_bytes = atomic_load_explicit(&engine->budget.bytes, memory_order_relaxed);
    full.memory_bytes_peak = atomic_load_explicit(&engine->budget.bytes_peak, memory_order_relaxed);
    full.leaked_bytes = stk_io_leaked_bytes(engine->io);
    full.io_backend = stk_io_backend(engine->io, &full.io_reason);
    full.simd = stk_image_decode_vector(engine->options.simd);
    full.sandbox = engine->sandbox ? stk_sandbox_name(engine->sandbox) : "off";
    return stk_options_write_output(info, &full, sizeof full, "engine info", NULL);
}

struct stoker_cache *stoker_engine_cache(struct stoker_engine *engine)
{
    return engine->cache;
}

int stoker_engine_store_stats(struct stoker_engine *engine, struct stoker_store_stats *stats)
{
    struct stoker_store_stats full = {0};

    stk_vfs_store_stats(engine->io, &full);
    return stk_options_write_output(stats, &full, sizeof full, "store statistics", NULL);
}

uint64_t stk_engine_now(struct stoker_engine *engine)
{
    return stk_io_clock_ns(engine->io);
}

struct timespec stk_engine_deadline(uint64_t timeout_ns)
{
    return stk_clock_timespec(stk_clock_ns() + timeout_ns);
}

void stk_engine_lock(struct stoker_engine *engine, struct stk_worker *worker)
{
    uint64_t before;

    if (pthread_mutex_trylock(&engine->lock) == 0) {
        return;
    }
    before = stk_engine_now(engine);
    pthread_mutex_lock(&engine->lock);
    if (worker) {
        atomic_fetch_add_explicit(&worker->lock_wait_ns, stk_engine_now(engine) - before,
                                  memory_order_relaxed);
    }
}

void stk_engine_unlock(struct stoker_engine *engine)
{
    pthread_mutex_unlock(&engine->lock);
}

void stk_engine_add_client_locked(struct stoker_engine *engine, struct stk_engine_client *client)
{
    client->next = engine->locked.clients;
    engine->locked.clients = client;
}

void stk_engine_remove_client_locked(struct stoker_engine *engine, struct stk_engine_client *client)
{
    struct stk_engine_client **link = &engine->locked.clients;

    for (; *link != client; link = &(*link)->next) {
    }
    *link = client->next;
}

void stk_engine_memory_returned_locked(struct stoker_engine *engine)
{
    engine->locked.returned_batches++;
    for (struct stk_engine_client *it = engine->locked.clients; it; it = it->next) {
        if (it->memory_returned_locked) {
            it->memory_returned_locked(it);
        }
    }
    stk_engine_signal_locked(engine, 1);
}

bool stk_engine_wants_memory_locked(const struct stoker_engine *engine)
{
    const struct stk_engine_client *it = engine->locked.clients;

    while (it && !(it->wants_memory_locked && it->wants_memory_locked(it))) {
        it = it->next;
    }
    return it != NULL;
}

void stk_engine_drop_read_ahead_locked(struct stoker_engine *engine,
                                       const struct stk_engine_client *for_client)
{
    /* Ends at the first client that drops something: the list may have changed by then. */
    for (struct stk_engine_client *it = engine->locked.clients; it; it = it->next) {
        if (it != for_client && it->waiting == 0 && it->drop_read_ahead_locked &&
            it->drop_read_ahead_locked(it)) {
            return;
        }
    }
}

void stk_engine_add_memory_holder(struct stoker_engine *engine, struct stk_memory_holder *holder)
{
    stk_engine_lock(engine, NULL);
    holder->next = engine->locked.memory_holders;
    engine->locked.memory_holders = holder;
    stk_engine_unlock(engine);
}

void stk_engine_remove_memory_holder(struct stoker_engine *engine, struct stk_memory_holder *holder)
{
    struct stk_memory_holder **link = &engine->locked.memory_holders;

    stk_engine_lock(engine, NULL);
    for (; *link != holder; link = &(*link)->next) {
    }
    *link = holder->next;
    stk_engine_unlock(engine);
}

int stk_engine_service_get(struct stoker_engine *engine,
                           int (*make)(struct stk_engine_service **service_out,
                                       struct stoker_engine *engine, struct stoker_error *error),
                           struct stk_engine_service **service_out, struct stoker_error *error)
{
    struct stk_engine_service *made = NULL;
    int status;

    stk_engine_lock(engine, NULL);
    *service_out = engine->locked.service;
    stk_engine_unlock(engine);
    if (*service_out) {
        return 0;
    }
    status = make(&made, engine, error);
    if (status < 0) {
        return status;
    }
    stk_engine_lock(engine, NULL);
    if (!engine->locked.service) {
        engine->locked.service = made;
        made = NULL;
    }
    *service_out = engine->locked.service;
    stk_engine_unlock(engine);
    if (made) {
        made->close(made);
    }
    return 0;
}

static void end_reserve_wait(struct stoker_engine *engine, bool waiting)
{
    if (waiting) {
        stk_engine_lock(engine, NULL);
        engine->locked.reserving--;
        stk_engine_unlock(engine);
    }
}

static bool grant_reserve(void *owner, uint64_t bytes)
{
    struct stoker_engine *engine = owner;
    uint32_t wait_ms = (uint32_t)stk_min(GRANT_WAIT_MS, engine->options.read_timeout_ms);

    return stk_engine_reserve(engine, bytes, wait_ms, "a library", NULL) == 0;
}

static void grant_release(void *owner, uint64_t bytes)
{
    struct stoker_engine *engine = owner;

    stk_budget_release(&engine->budget, bytes);
}

const struct stk_budget_hooks *stk_engine_allocator(const struct stoker_engine *engine)
{
    return &engine->grant;
}

int stk_engine_reserve(struct stoker_engine *engine, uint64_t bytes, uint32_t wait_ms,
                       const char *what, struct stoker_error *error)
{
    uint32_t waited_ms = 0; /* in real time: a simulated clock may not advance */
    bool waiting = false;

    while (!stk_budget_reserve(&engine->budget, bytes)) {
        struct timespec pause = {.tv_nsec = 1000000};

        if (!waiting && wait_ms > 0) { /* idle workers free their large scratch buffers */
            waiting = true;
            stk_engine_lock(engine, NULL);
            engine->locked.reserving++;
            pthread_cond_broadcast(&engine->work);
            stk_engine_unlock(engine);
        }

        if (stk_engine_trim(engine) > 0) {
            continue;
        }
        if (bytes > engine->budget.bytes_max || waited_ms++ >= wait_ms) {
            end_reserve_wait(engine, waiting);
            if (bytes > engine->budget.bytes_max) {
                return stk_fail(error, STOKER_ERROR_BUDGET,
                                "a single allocation is larger than the memory budget",
                                "raise memory_bytes_max (in Python: memory=), or leave large "
                                "samples out",
                                "%s: %llu bytes needed, the budget is %llu", what,
                                (unsigned long long)bytes,
                                (unsigned long long)engine->budget.bytes_max);
            }
            return stk_fail(error, STOKER_ERROR_BUDGET, "cannot take memory for a sample",
                            "raise memory_bytes_max, or close batches that are no longer used",
                            "%s: %llu bytes needed, %llu of %llu in use", what,
                            (unsigned long long)bytes,
                            (unsigned long long)atomic_load(&engine->budget.bytes),
                            (unsigned long long)engine->budget.bytes_max);
        }
        nanosleep(&pause, NULL);
    }
    end_reserve_wait(engine, waiting);
    return 0;
}
