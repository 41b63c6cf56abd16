/* The fetcher: one thread that turns the spans of cold samples into few deep reads. */
#include "loader/fetch/fetcher.h"

#include "base/mem.h"
#include "base/thread.h"
#include "engine/worker.h"
#include "loader/fetch/coalesce.h"
#include "loader/fetch/fetch_buffer.h"
#include "storage/vfs/vfs.h"

#include <errno.h>

/* A worker reads a larger span itself: the length of one request has 32 bits. */
#define FETCH_BYTES_MAX (1u << 30)
#define WAIT_MEMORY_MS 2u
#define WAIT_READS_MS 100u

struct stk_fetcher {
    struct stk_engine_service service; /* first: the engine's view of the fetcher */
    struct stoker_engine *engine;      /* constant after open */
    struct stk_queue *queue;
    pthread_t thread;
    bool started;
    _Atomic uint64_t requests, bytes;
    struct stk_fetch_buffer_pool buffers;
    pthread_mutex_t lock;
    struct {
        struct stk_fetch *pushed, **pushed_tail;
        bool stopping;
    } locked;
    struct { /* the fetcher's thread only */
        struct stk_fetch *pending, **pending_tail;
        uint32_t in_flight[2]; /* reads of local files and mounts; of stores */
        uint64_t push_count;
        bool mixed; /* fetches of several pushes are pending and not coalesced yet */
        struct stk_read_size_mounts mounts;
    } own;
};

static void *fetcher_main(void *argument);
static void fetcher_close(struct stk_engine_service *service);
static uint64_t fetcher_trim(struct stk_engine_service *service);

static int fetcher_open(struct stk_engine_service **service_out, struct stoker_engine *engine,
                        struct stoker_error *error)
{
    struct stk_fetcher *fetcher = stk_alloc(1, sizeof *fetcher);
    int status;

    *service_out = NULL;
    if (!fetcher) {
        return stk_fail(error, -ENOMEM, "cannot open the fetcher", "free memory", "fetcher");
    }
    fetcher->service = (struct stk_engine_service){.close = fetcher_close, .trim = fetcher_trim};
    fetcher->engine = engine;
    fetcher->locked.pushed_tail = &fetcher->locked.pushed;
    fetcher->own.pending_tail = &fetcher->own.pending;
    pthread_mutex_init(&fetcher->lock, NULL);
    stk_fetch_buffer_pool_init(&fetcher->buffers, &engine->budget,
                               engine->options.memory_bytes_max);
    status = stk_io_queue_open(engine->io, &fetcher->queue, error);
    if (status == 0) {
        status = stk_thread_start(&fetcher->thread, NULL, fetcher_main, fetcher);
        fetcher->started = status == 0;
        status = status == 0 ? 0
                             : stk_fail_errno(error, -status, "cannot start the fetcher's thread",
                                              "raise the limit of processes", "fetcher");
    }
    if (status < 0) {
        fetcher_close(&fetcher->service);
        return status;
    }
    *service_out = &fetcher->service;
    return 0;
}

int stk_fetcher_get(struct stoker_engine *engine, struct stk_fetcher **fetcher_out,
                    struct stoker_error *error)
{
    struct stk_engine_service *service;
    int status = stk_engine_service_get(engine, fetcher_open, &service, error);

    /* An engine has one service. */
    STK_ASSERT(status < 0 || service->close == fetcher_close);
    *fetcher_out = status < 0 ? NULL : (struct stk_fetcher *)service;
    return status;
}

static void fetcher_close(struct stk_engine_service *service)
{
    struct stk_fetcher *fetcher = (struct stk_fetcher *)service;

    if (fetcher->started) {
        pthread_mutex_lock(&fetcher->lock);
        fetcher->locked.stopping = true;
        pthread_mutex_unlock(&fetcher->lock);
        stk_io_wake(fetcher->engine->io, fetcher->queue);
        pthread_join(fetcher->thread, NULL);
    }
    if (fetcher->queue) {
        stk_io_queue_close(fetcher->engine->io, fetcher->queue);
    }
    stk_fetch_buffer_pool_deinit(&fetcher->buffers);
    pthread_mutex_destroy(&fetcher->lock);
    stk_free(fetcher);
}

static uint64_t fetcher_trim(struct stk_engine_service *service)
{
    return stk_fetch_buffer_pool_trim(&((struct stk_fetcher *)service)->buffers);
}

uint64_t stk_fetcher_requests(const struct stk_fetcher *fetcher, uint64_t *bytes_out)
{
    *bytes_out = atomic_load_explicit(&fetcher->bytes, memory_order_relaxed);
    return atomic_load_explicit(&fetcher->requests, memory_order_relaxed);
}

/* ---- fetches ---- */

struct stk_fetch *stk_fetch_new(struct stk_pending_batch *pending, uint32_t slot)
{
    struct stk_fetch *fetch =
        stk_alloc(1, sizeof *fetch + pending->loader->field_count * sizeof(struct stk_sample_part));

    if (fetch) {
        fetch->pending = pending;
        fetch->slot = slot;
        fetch->members.parts = (struct stk_sample_part *)(fetch + 1);
    }
    return fetch;
}

void stk_fetch_release(struct stk_fetcher *fetcher, struct stk_fetch *fetch)
{
    if (fetch->buffer) {
        stk_fetch_buffer_release(&fetcher->buffers, fetch->buffer);
    }
    stk_free(fetch);
}

int stk_fetch_reserve(struct stk_fetcher *fetcher, struct stk_fetch *fetch, uint64_t bytes,
                      struct stoker_error *error)
{
    struct stoker_engine *engine = fetcher->engine;
    /* A size class is less than twice the bytes. */
    uint64_t most = stk_max(2 * stk_min(bytes, STK_ENTIRE_OBJECT / 4), STK_FETCH_BUFFER_BYTES_MIN);
    struct stk_fetch_buffer *buffer;
    int status;

    buffer = stk_fetch_buffer_get(&fetcher->buffers, stk_max(bytes, 1));
    while (!buffer) {
        /* Reserving waits for space in the budget; the buffer then takes the released space. */
        status = stk_engine_reserve(engine, most, engine->options.read_timeout_ms,
                                    "bytes of a compressed shard", error);
        if (status < 0) {
            return status;
        }
        stk_budget_release(&engine->budget, most);
        buffer = stk_fetch_buffer_get(&fetcher->buffers, stk_max(bytes, 1));
    }
    atomic_store_explicit(&buffer->holders, 1, memory_order_relaxed);
    fetch->buffer = buffer;
    return 0;
}

void stk_fetcher_push(struct stk_fetcher *fetcher, struct stk_fetch *list)
{
    if (!list) {
        return;
    }
    list = stk_coalesce_sort(list);
    pthread_mutex_lock(&fetcher->lock);
    *fetcher->locked.pushed_tail = list;
    while (*fetcher->locked.pushed_tail) {
        fetcher->locked.pushed_tail = &(*fetcher->locked.pushed_tail)->next;
    }
    pthread_mutex_unlock(&fetcher->lock);
    stk_io_wake(fetcher->engine->io, fetcher->queue);
}

void stk_fetch_deliver(struct stoker_engine *engine, struct stk_fetch *list)
{
    struct stk_fetch *next;
    uint64_t count = 0;

    for (struct stk_fetch *fetch = list; fetch; fetch = fetch->next) {
        if (fetch->file) {
            stk_dataset_unpin(fetch->pending->loader->dataset, fetch->members.span.shard,
                              fetch->file);
            fetch->file = NULL;
        }
    }
    stk_engine_lock(engine, NULL);
    for (; list; list = next) {
        struct stoker_loader *loader = list->pending->loader;
        next = list->next;
        list->next = NULL;
        if (!loader->locked.fetched) {
            loader->locked.fetched_tail = &loader->locked.fetched;
        }
        *loader->locked.fetched_tail = list;
        loader->locked.fetched_tail = &list->next;
        count++;
    }
    if (count > 0) {
        stk_engine_signal_locked(engine, count);
    }
    stk_engine_unlock(engine);
}

/* ---- the fetcher's thread ---- */

static struct stk_fetch *pop_pending(struct stk_fetcher *fetcher)
{
    struct stk_fetch *fetch = fetcher->own.pending;

    fetcher->own.pending = fetch->next;
    if (!fetcher->own.pending) {
        fetcher->own.pending_tail = &fetcher->own.pending;
    }
    fetch->next = NULL;
    return fetch;
}

/* Fetches that failed, are empty, too large or cancelled are delivered without a read. */
static bool needs_read(const struct stk_fetch *fetch)
{
    return fetch->error.status == 0 && fetch->file && fetch->members.span.bytes > 0 &&
           fetch->members.span.bytes <= FETCH_BYTES_MAX && !fetch->members.span.scattered &&
           !atomic_load_explicit(&fetch->pending->cancelled, memory_order_relaxed);
}

/* Sets the sizes of reads for the file of a fetch. Reads from a store have about the bytes of one
 * round trip: larger ones cost more for fresh pages than they save in requests. Options of the
 * engine that the user set are used as they are. */
static void set_read_options(struct stk_fetcher *fetcher, struct stk_fetch *fetch)
{
    const struct stoker_engine_options *options = &fetcher->engine->options;
    uint32_t round_trip_bytes = stk_vfs_round_trip_bytes(fetch->file);
    struct stk_read_sizes reads = {.free_gap_bytes = options->io_gap_bytes,
                                   .gap_bytes = options->io_gap_bytes,
                                   .bytes_max = options->io_bytes_max,
                                   .align = 1};
    struct stk_mount_info mount;

    fetch->remote = round_trip_bytes > 0;
    fetch->is_joined = fetch->remote;
    if (fetch->remote) {
        reads.bytes_max = stk_min(reads.bytes_max, round_trip_bytes);
    } else if (stk_io_mount_of(fetch->file, &mount)) {
        struct stk_read_sizes sizes =
            stk_read_size_find(&fetcher->own.mounts, "", mount.device, mount.block_bytes);

        fetch->is_joined = sizes.request_bytes > 0;
        if (!fetcher->engine->gap_is_set) {
            reads.free_gap_bytes = sizes.free_gap_bytes;
            reads.gap_bytes = sizes.gap_bytes;
        }
        if (!fetcher->engine->bytes_is_set) {
            reads.bytes_max = sizes.bytes_max;
            reads.align = sizes.align;
        }
    }
    fetch->reads = reads;
}

/* Coalesces all pending fetches. */
static void coalesce_pending(struct stk_fetcher *fetcher)
{
    fetcher->own.mixed = false;
    fetcher->own.pending_tail = stk_coalesce_list(&fetcher->own.pending, needs_read);
}

static void fail_all(struct stk_fetcher *fetcher, struct stk_fetch *list, int status,
                     const char *what)
{
    for (struct stk_fetch *it = list; it; it = it->next) {
        stk_io_fail_read(it->file, status, what, &it->error);
        stk_dataset_error_add_location(it->pending->loader->dataset, &it->error,
                                       it->members.span.shard, it->members.span.offset, NULL);
    }
    stk_fetch_deliver(fetcher->engine, list);
}

/* Whether the first pending fetch may be read now: local files and stores have separate depths. */
static bool queue_has_space(const struct stk_fetcher *fetcher)
{
    const struct stoker_engine *engine = fetcher->engine;
    bool remote = fetcher->own.pending->remote;

    return fetcher->own.in_flight[remote] <
           (remote ? engine->remote_depth : engine->options.io_depth);
}

/* The flag that cancels a read: its loader was closed. NULL: the read is for several loaders. */
static const _Atomic bool *cancel_flag(const struct stk_fetch *list)
{
    const struct stoker_loader *loader = list->pending->loader;

    for (; list; list = list->next) {
        if (list->pending->loader != loader) {
            return NULL;
        }
    }
    return &loader->closing;
}

/* The slot of the batch that a fetch can be read into directly: if its bytes are one value of
 * bytes. The read must be for this fetch alone. The slot has not ended before the read, so the
 * batch exists. Only from stores: such a read always ends, and is not rounded out to blocks. NULL:
 * the bytes need a buffer. */
static uint8_t *slot_destination(const struct stk_fetch *fetch)
{
    const struct stoker_loader *loader = fetch->pending->loader;
    const struct stk_sample_span *span = &fetch->members.span;
    uint32_t only = STK_BATCH_FIELDS_MAX;
    const uint64_t *offsets;

    if (!fetch->remote) {
        return NULL;
    }
    for (uint32_t f = 0; f < loader->field_count; f++) {
        uint32_t kind = loader->fields[f].kind;

        if (kind == STOKER_FIELD_BYTES && only == STK_BATCH_FIELDS_MAX) {
            only = f;
        } else if (kind != STOKER_FIELD_KEY && kind != STOKER_FIELD_SAMPLE &&
                   (kind != STOKER_FIELD_LABEL ||
                    (!loader->fields[f].from_path &&
                     !stk_index_is_file(loader->dataset->index, span->shard)))) {
            return NULL;
        }
    }
    if (only == STK_BATCH_FIELDS_MAX) {
        return NULL;
    }
    offsets = fetch->pending->batch->fields[only].offsets + fetch->slot;
    return offsets[1] - offsets[0] == span->bytes
               ? fetch->pending->batch->fields[only].data + offsets[0]
               : NULL;
}

/* Bytes of a read whose ends are rounded out to blocks. */
static uint64_t rounded_read_bytes(uint64_t begin, uint64_t end)
{
    return stk_round_up(end, STK_IO_ALIGN) - begin / STK_IO_ALIGN * STK_IO_ALIGN;
}

/* Issues one read for the first pending fetches. Returns false if there is no memory for it now. */
static bool issue(struct stk_fetcher *fetcher)
{
    struct stk_fetch *first = fetcher->own.pending, **tail;
    struct stk_fetch_buffer *buffer;
    uint8_t *slot;
    uint64_t end;
    bool is_alone;

    if (!needs_read(first)) {
        stk_fetch_deliver(fetcher->engine, pop_pending(fetcher));
        return true;
    }
    /* Found once: a fetch that joins may be cancelled at any time. */
    end = stk_coalesce_end(first, needs_read, &is_alone);
    slot = is_alone ? slot_destination(first) : NULL;
    buffer = slot ? stk_fetch_buffer_borrow(&fetcher->buffers, slot, first->members.span.bytes)
                  : stk_fetch_buffer_get(&fetcher->buffers,
                                         rounded_read_bytes(first->members.span.offset, end));
    if (!buffer) {
        if (stk_engine_trim(fetcher->engine) > 0 ||
            atomic_load_explicit(&fetcher->buffers.in_use, memory_order_relaxed) > 0) {
            return false;
        }
        /* Without bytes and without an error, a worker reads the sample into its scratch. */
        stk_fetch_deliver(fetcher->engine, pop_pending(fetcher));
        return true;
    }
    STK_ASSERT(!slot || end - first->members.span.offset == first->members.span.bytes);
    /* The first fetch is taken even if its batch is cancelled now: a read without a fetch would
     * have no holder that releases its buffer, and no pin on its file. */
    buffer->begin = first->members.span.offset;
    buffer->fetches = pop_pending(fetcher);
    tail = &first->next;
    while (!slot && fetcher->own.pending && needs_read(fetcher->own.pending) &&
           fetcher->own.pending->file == first->file &&
           fetcher->own.pending->members.span.offset >= buffer->begin &&
           fetcher->own.pending->members.span.offset + fetcher->own.pending->members.span.bytes <=
               end) {
        *tail = pop_pending(fetcher);
        tail = &(*tail)->next;
    }
    buffer->read = (struct stk_read){.file = first->file,
                                     .offset = buffer->begin,
                                     .buffer = buffer->data,
                                     .bytes = (uint32_t)(end - buffer->begin),
                                     .capacity = (uint32_t)buffer->capacity,
                                     .cancelled = cancel_flag(buffer->fetches),
                                     .owner = buffer};
    STK_ASSERT(stk_io_submit(fetcher->engine->io, fetcher->queue, &buffer->read) == 1);
    buffer->is_remote = first->remote;
    fetcher->own.in_flight[buffer->is_remote]++;
    atomic_fetch_add_explicit(&fetcher->requests, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetcher->bytes, end - buffer->begin, memory_order_relaxed);
    return true;
}

static void complete(struct stk_fetcher *fetcher, struct stk_fetch_buffer *buffer)
{
    struct stk_fetch *list = buffer->fetches;
    uint64_t got = buffer->read.result > 0 ? (uint64_t)buffer->read.result : 0;
    uint32_t count = 0;
    int status;

    fetcher->own.in_flight[buffer->is_remote]--;
    buffer->fetches = NULL;
    STK_ASSERT(!buffer->read.leaked || !buffer->is_borrowed);
    if (buffer->read.leaked || buffer->read.result < 0) {
        status = buffer->read.leaked ? STOKER_ERROR_TIMEOUT : (int)buffer->read.result;
        if (buffer->read.leaked) {
            stk_fetch_buffer_leak(&fetcher->buffers, buffer);
        } else {
            stk_fetch_buffer_put(&fetcher->buffers, buffer);
        }
        fail_all(fetcher, list, status, "cannot read a sample");
        return;
    }
    for (struct stk_fetch *it = list; it; it = it->next) {
        uint64_t skip = it->members.span.offset - buffer->begin;
        it->bytes.data = buffer->data + buffer->read.skip + skip;
        it->bytes.bytes = got > skip ? stk_min(got - skip, it->members.span.bytes) : 0;
        it->buffer = buffer;
        count++;
    }
    /* Relaxed: the lock in deliver publishes it to the workers. */
    atomic_store_explicit(&buffer->holders, count, memory_order_relaxed);
    stk_fetch_deliver(fetcher->engine, list);
}

static bool accept_pushed(struct stk_fetcher *fetcher)
{
    struct stk_fetch *first = NULL;
    bool stopping, had_pending = false;

    pthread_mutex_lock(&fetcher->lock);
    if (fetcher->locked.pushed) {
        first = fetcher->locked.pushed;
        had_pending = fetcher->own.pending != NULL;
        *fetcher->own.pending_tail = fetcher->locked.pushed;
        fetcher->own.pending_tail = fetcher->locked.pushed_tail;
        fetcher->locked.pushed = NULL;
        fetcher->locked.pushed_tail = &fetcher->locked.pushed;
    }
    stopping = fetcher->locked.stopping;
    pthread_mutex_unlock(&fetcher->lock);
    if (first) {
        /* Pushes that are accepted together count as one. */
        fetcher->own.push_count++;
        for (struct stk_fetch *it = first, *last = NULL; it; last = it, it = it->next) {
            it->push_number = fetcher->own.push_count;
            if (last && last->file == it->file) {
                it->remote = last->remote;
                it->is_joined = last->is_joined;
                it->reads = last->reads;
            } else if (it->file) {
                set_read_options(fetcher, it);
            }
            fetcher->own.mixed = fetcher->own.mixed || (had_pending && it->is_joined);
            if (it->remote) {
                atomic_store_explicit(&fetcher->buffers.has_remote, true, memory_order_relaxed);
            }
        }
    }
    return !stopping;
}

static void *fetcher_main(void *argument)
{
    struct stk_fetcher *fetcher = argument;
    struct stk_io *io = fetcher->engine->io;

    pthread_setname_np(pthread_self(), "stoker-fetch");
    while (accept_pushed(fetcher)) {
        struct stk_read *finished, *next;
        bool has_memory = true;

        while (has_memory && fetcher->own.pending) {
            if (fetcher->own.mixed) {
                coalesce_pending(fetcher);
            }
            if (!queue_has_space(fetcher)) {
                break;
            }
            has_memory = issue(fetcher);
        }
        finished = stk_io_reap(io, fetcher->queue, has_memory ? WAIT_READS_MS : WAIT_MEMORY_MS);
        for (; finished; finished = next) {
            next = finished->next;
            complete(fetcher, finished->owner);
        }
    }
    return NULL;
}
