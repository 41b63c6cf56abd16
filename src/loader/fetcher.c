/* The fetcher: one thread that turns cold spans into few deep reads. */
#include "loader/fetcher.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/retry.h"
#include "base/thread.h"
#include "engine/worker.h"

#include <errno.h>
#include <string.h>

#define CLASS_MIN_SHIFT 16u /* 64 KiB */
#define CLASS_COUNT 9u      /* up to 16 MiB; what is larger has its own size */
#define CACHED_BYTES_MAX (64u << 20)
/* Of stores: what is in flight is larger, and fresh pages cost more than copying to them. */
#define CACHED_REMOTE_MAX (256u << 20)
#define CACHED_REMOTE_SHARE 8u /* of the budget, at most */
/* Larger spans are read by the worker itself: one request's length is 32 bits. */
#define FETCH_BYTES_MAX (1u << 30)
#define WAIT_MEMORY_MS 2u
#define WAIT_READS_MS 100u

struct stk_fetch_chunk {
    struct stk_fetch_chunk *next; /* in a free list */
    uint8_t *buffer;
    uint64_t capacity;
    int32_t class_index; /* -1: not kept */
    _Atomic uint32_t holders;
    bool far;       /* of a store */
    bool lent;      /* the buffer is a sample's place in its batch */
    uint64_t begin; /* offset of the first wanted byte in the file */
    struct stk_fetch *fetches;
    struct stk_read read;
};

struct stk_fetcher {
    struct stk_engine_service service; /* first: the engine's view of the fetcher */
    struct stoker_engine *engine;      /* const after open */
    struct stk_queue *queue;
    pthread_t thread;
    bool started;
    _Atomic uint64_t requests, bytes;
    _Atomic uint32_t chunks_out; /* with bytes for workers, or being read */
    _Atomic bool far;            /* some were of a store */
    pthread_mutex_t lock;
    struct {
        struct stk_fetch *in, **in_tail;
        struct stk_fetch_chunk *kept[CLASS_COUNT];
        uint64_t kept_bytes;
        bool stopping;
    } locked;
    struct { /* the fetcher's thread only */
        struct stk_fetch *pending, **pending_tail;
        uint32_t in_flight[2]; /* of this machine and its mounts, of stores */
        uint64_t turn;
        bool mixed; /* more than one push waits, of a store or mount, since the last regroup */
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
    fetcher->locked.in_tail = &fetcher->locked.in;
    fetcher->own.pending_tail = &fetcher->own.pending;
    pthread_mutex_init(&fetcher->lock, NULL);
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

    /* An engine has one service, whoever made it. */
    STK_ASSERT(status < 0 || service->close == fetcher_close);
    *fetcher_out = status < 0 ? NULL : (struct stk_fetcher *)service;
    return status;
}

static void chunk_free(struct stk_fetcher *fetcher, struct stk_fetch_chunk *chunk)
{
    stk_pages_free(chunk->buffer, chunk->capacity);
    stk_budget_release(&fetcher->engine->budget, chunk->capacity);
    stk_free(chunk);
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
    fetcher_trim(service);
    pthread_mutex_destroy(&fetcher->lock);
    stk_free(fetcher);
}

static uint64_t fetcher_trim(struct stk_engine_service *service)
{
    struct stk_fetcher *fetcher = (struct stk_fetcher *)service;
    struct stk_fetch_chunk *list = NULL, *next;
    uint64_t bytes;

    pthread_mutex_lock(&fetcher->lock);
    for (uint32_t i = 0; i < CLASS_COUNT; i++) {
        struct stk_fetch_chunk *chunk = fetcher->locked.kept[i];
        for (; chunk; chunk = next) {
            next = chunk->next;
            chunk->next = list;
            list = chunk;
        }
        fetcher->locked.kept[i] = NULL;
    }
    bytes = fetcher->locked.kept_bytes;
    fetcher->locked.kept_bytes = 0;
    pthread_mutex_unlock(&fetcher->lock);
    for (; list; list = next) {
        next = list->next;
        chunk_free(fetcher, list);
    }
    return bytes;
}

uint64_t stk_fetcher_requests(const struct stk_fetcher *fetcher, uint64_t *bytes_out)
{
    *bytes_out = atomic_load_explicit(&fetcher->bytes, memory_order_relaxed);
    return atomic_load_explicit(&fetcher->requests, memory_order_relaxed);
}

/* ---- chunks ---- */

static int32_t class_of(uint64_t bytes)
{
    for (uint32_t i = 0; i < CLASS_COUNT; i++) {
        if (bytes <= 1ull << (CLASS_MIN_SHIFT + i)) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* A chunk of at least `bytes`; NULL: no room in the budget (now), or no memory. */
static struct stk_fetch_chunk *chunk_get(struct stk_fetcher *fetcher, uint64_t bytes)
{
    int32_t class_index = class_of(bytes);
    struct stk_fetch_chunk *chunk = NULL;

    if (class_index >= 0) {
        bytes = 1ull << (CLASS_MIN_SHIFT + (uint32_t)class_index);
        pthread_mutex_lock(&fetcher->lock);
        chunk = fetcher->locked.kept[class_index];
        if (chunk) {
            fetcher->locked.kept[class_index] = chunk->next;
            fetcher->locked.kept_bytes -= chunk->capacity;
        }
        pthread_mutex_unlock(&fetcher->lock);
    }
    if (!chunk) {
        if (bytes > STK_ENTIRE_OBJECT / 4) {
            return NULL;
        }
        bytes = stk_round_up(bytes, STK_IO_ALIGN);
        if (!stk_budget_reserve(&fetcher->engine->budget, bytes)) {
            return NULL;
        }
        chunk = stk_alloc(1, sizeof *chunk);
        if (chunk) {
            chunk->buffer = stk_pages_alloc(bytes);
        }
        if (!chunk || !chunk->buffer) {
            stk_budget_release(&fetcher->engine->budget, bytes);
            stk_free(chunk);
            return NULL;
        }
        chunk->capacity = bytes;
        chunk->class_index = class_index;
    }
    chunk->fetches = NULL;
    atomic_store_explicit(&chunk->holders, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetcher->chunks_out, 1, memory_order_relaxed);
    return chunk;
}

/* One whose bytes go where they shall stay: no more than its head. */
static struct stk_fetch_chunk *chunk_borrow(struct stk_fetcher *fetcher, uint8_t *place,
                                            uint64_t bytes)
{
    struct stk_fetch_chunk *chunk = stk_alloc(1, sizeof *chunk);

    if (chunk) {
        chunk->buffer = place;
        chunk->capacity = bytes;
        chunk->lent = true;
        atomic_fetch_add_explicit(&fetcher->chunks_out, 1, memory_order_relaxed);
    }
    return chunk;
}

static void chunk_put(struct stk_fetcher *fetcher, struct stk_fetch_chunk *chunk)
{
    uint64_t most = CACHED_BYTES_MAX;
    bool kept = false;

    if (chunk->lent) {
        stk_free(chunk);
        atomic_fetch_sub_explicit(&fetcher->chunks_out, 1, memory_order_relaxed);
        return;
    }
    if (atomic_load_explicit(&fetcher->far, memory_order_relaxed)) {
        most =
            stk_max(most, stk_min(fetcher->engine->options.memory_bytes_max / CACHED_REMOTE_SHARE,
                                  CACHED_REMOTE_MAX));
    }
    pthread_mutex_lock(&fetcher->lock);
    if (chunk->class_index >= 0 && fetcher->locked.kept_bytes + chunk->capacity <= most) {
        chunk->next = fetcher->locked.kept[chunk->class_index];
        fetcher->locked.kept[chunk->class_index] = chunk;
        fetcher->locked.kept_bytes += chunk->capacity;
        kept = true;
    }
    pthread_mutex_unlock(&fetcher->lock);
    if (!kept) {
        chunk_free(fetcher, chunk);
    }
    atomic_fetch_sub_explicit(&fetcher->chunks_out, 1, memory_order_relaxed);
}

void stk_fetch_release(struct stk_fetcher *fetcher, struct stk_fetch *fetch)
{
    struct stk_fetch_chunk *chunk = fetch->chunk;

    /* Acquire-release: the last holder may hand the bytes to another read. */
    if (chunk && atomic_fetch_sub_explicit(&chunk->holders, 1, memory_order_acq_rel) == 1) {
        chunk_put(fetcher, chunk);
    }
    stk_free(fetch);
}

int stk_fetch_reserve(struct stk_fetcher *fetcher, struct stk_fetch *fetch, uint64_t bytes,
                      uint8_t **data_out, struct stoker_error *error)
{
    struct stoker_engine *engine = fetcher->engine;
    uint64_t most = stk_max(2 * stk_min(bytes, STK_ENTIRE_OBJECT / 4), 1u << CLASS_MIN_SHIFT);
    struct stk_fetch_chunk *chunk;
    int status;

    chunk = chunk_get(fetcher, stk_max(bytes, 1));
    while (!chunk) {
        /* Reserving waits for room; giving it straight back lets chunk_get have it. */
        status = stk_engine_reserve(engine, most, engine->options.read_timeout_ms,
                                    "bytes of a packed shard", error);
        if (status < 0) {
            return status;
        }
        stk_budget_release(&engine->budget, most);
        chunk = chunk_get(fetcher, stk_max(bytes, 1));
    }
    atomic_store_explicit(&chunk->holders, 1, memory_order_relaxed);
    fetch->chunk = chunk;
    *data_out = chunk->buffer;
    return 0;
}

/* ---- lists ---- */

static bool before(const struct stk_fetch *a, const struct stk_fetch *b)
{
    if (a->span.shard != b->span.shard) {
        return a->span.shard < b->span.shard;
    }
    return a->span.offset < b->span.offset;
}

/* Of whatever data set: what can be one read lies together. */
static bool is_before_by_file(const struct stk_fetch *a, const struct stk_fetch *b)
{
    return a->file != b->file ? (uintptr_t)a->file < (uintptr_t)b->file
                              : a->span.offset < b->span.offset;
}

static bool is_older_push(const struct stk_fetch *a, const struct stk_fetch *b)
{
    return a->run_push_number < b->run_push_number;
}

typedef bool stk_fetch_before(const struct stk_fetch *a, const struct stk_fetch *b);

static struct stk_fetch *merge(struct stk_fetch *a, struct stk_fetch *b, stk_fetch_before *before_)
{
    struct stk_fetch *list = NULL, **tail = &list;

    while (a && b) {
        struct stk_fetch **least = before_(b, a) ? &b : &a;
        *tail = *least;
        *least = (*least)->next;
        tail = &(*tail)->next;
    }
    *tail = a ? a : b;
    return list;
}

/* Bottom-up merge sort: slot i of `runs` holds a sorted run of 2^i. */
static struct stk_fetch *sort(struct stk_fetch *list, stk_fetch_before *before_)
{
    struct stk_fetch *runs[32] = {NULL}, *next, *sorted = NULL;

    for (; list; list = next) {
        uint32_t i = 0;
        next = list->next;
        list->next = NULL;
        for (sorted = list; i < 31 && runs[i]; i++) {
            sorted = merge(runs[i], sorted, before_);
            runs[i] = NULL;
        }
        runs[i] = merge(runs[i], sorted, before_);
    }
    sorted = NULL;
    for (uint32_t i = 0; i < 32; i++) {
        sorted = merge(runs[i], sorted, before_);
    }
    return sorted;
}

void stk_fetcher_push(struct stk_fetcher *fetcher, struct stk_fetch *list)
{
    if (!list) {
        return;
    }
    list = sort(list, before);
    pthread_mutex_lock(&fetcher->lock);
    *fetcher->locked.in_tail = list;
    while (*fetcher->locked.in_tail) {
        fetcher->locked.in_tail = &(*fetcher->locked.in_tail)->next;
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
            stk_dataset_unpin(fetch->pending->loader->dataset, fetch->span.shard, fetch->file);
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

/* What needs no read goes straight on: failed, empty, huge or unwanted. */
static bool needs_read(const struct stk_fetch *fetch)
{
    return fetch->error.status == 0 && fetch->file && fetch->span.bytes > 0 &&
           fetch->span.bytes <= FETCH_BYTES_MAX && !fetch->span.scattered &&
           !atomic_load_explicit(&fetch->pending->cancelled, memory_order_relaxed);
}

/* What is known of the file that a fetch is of. Of a store in pieces of about a round trip: larger
 * ones cost more in fresh pages than they save in requests. What was given counts as it is. */
static void set_read_options(struct stk_fetcher *fetcher, struct stk_fetch *fetch)
{
    const struct stoker_engine_options *options = &fetcher->engine->options;
    uint32_t far_bytes = stk_io_round_trip_bytes(fetcher->engine->io, fetch->file);
    struct stk_read_sizes reads = {.free_gap_bytes = options->io_gap_bytes,
                                   .gap_bytes = options->io_gap_bytes,
                                   .bytes_max = options->io_bytes_max,
                                   .align = 1};
    struct stk_mount_info mounted;

    fetch->remote = far_bytes > 0;
    fetch->is_joined = fetch->remote;
    if (fetch->remote) {
        reads.bytes_max = stk_min(reads.bytes_max, far_bytes);
    } else if (stk_io_mount_of(fetcher->engine->io, fetch->file, &mounted)) {
        struct stk_read_sizes suits =
            stk_read_size_find(&fetcher->own.mounts, "", mounted.device, mounted.block_bytes);

        fetch->is_joined = suits.request_bytes > 0;
        if (!fetcher->engine->gap_is_set) {
            reads.free_gap_bytes = suits.free_gap_bytes;
            reads.gap_bytes = suits.gap_bytes;
        }
        if (!fetcher->engine->bytes_is_set) {
            reads.bytes_max = suits.bytes_max;
            reads.align = suits.align;
        }
    }
    fetch->reads = reads;
}

static struct stk_coalesced_read begins(const struct stk_fetch *first)
{
    return (struct stk_coalesced_read){first->span.offset, first->span.offset + first->span.bytes,
                                       0};
}

/* Whether a read that began with `first` takes this one in. */
static bool can_coalesce(const struct stk_fetch *first, struct stk_coalesced_read *growth,
                         const struct stk_fetch *it)
{
    return needs_read(it) && it->file == first->file &&
           stk_read_size_coalesce(&first->reads, growth, it->span.offset, it->span.bytes);
}

/* Cuts the list where a read ends; each run's first knows the rest of it. */
static struct stk_fetch *cut_runs(struct stk_fetch *list)
{
    struct stk_fetch *runs = NULL, **tail = &runs;

    while (list) {
        struct stk_fetch *first = list, *last = list;
        struct stk_coalesced_read growth = begins(first);

        first->run_push_number = first->push_number;
        while (last->next && needs_read(first) && can_coalesce(first, &growth, last->next)) {
            last = last->next;
            first->run_push_number = stk_min(first->run_push_number, last->push_number);
        }
        list = last->next;
        last->next = NULL;
        first->run_rest = first->next;
        first->run_last = last;
        *tail = first;
        tail = &first->next;
    }
    *tail = NULL;
    return runs;
}

/* What waits, as few large reads; those first that the oldest push waits for. */
static void coalesce_pending(struct stk_fetcher *fetcher)
{
    struct stk_fetch *run = cut_runs(sort(fetcher->own.pending, is_before_by_file)), *next;

    fetcher->own.mixed = false;
    fetcher->own.pending_tail = &fetcher->own.pending;
    for (run = sort(run, is_older_push); run; run = next) {
        next = run->next;
        *fetcher->own.pending_tail = run;
        run->next = run->run_rest;
        fetcher->own.pending_tail = &run->run_last->next;
    }
}

/* How far a read that begins at the first pending fetch goes. */
static uint64_t group_end(const struct stk_fetcher *fetcher)
{
    const struct stk_fetch *first = fetcher->own.pending, *it = first->next;
    struct stk_coalesced_read growth = begins(first);

    while (it && can_coalesce(first, &growth, it)) {
        it = it->next;
    }
    return growth.end;
}

static void fail_all(struct stk_fetcher *fetcher, struct stk_fetch *list, int status,
                     const char *what)
{
    for (struct stk_fetch *it = list; it; it = it->next) {
        stk_io_fail_read(fetcher->engine->io, it->file, status, what, &it->error);
        stk_dataset_error_add_location(it->pending->loader->dataset, &it->error, it->span.shard,
                                       it->span.offset, NULL);
    }
    stk_fetch_deliver(fetcher->engine, list);
}

/* Whether what is first may be sent: each queue has a depth of its own. */
static bool queue_has_space(const struct stk_fetcher *fetcher)
{
    const struct stoker_engine *engine = fetcher->engine;
    bool far = fetcher->own.pending->remote;

    return fetcher->own.in_flight[far] < (far ? engine->remote_depth : engine->options.io_depth);
}

/* What says that a read is not wanted any more: its loader was closed. NULL: it is of several. */
static const _Atomic bool *one_loader(const struct stk_fetch *list)
{
    const struct stoker_loader *loader = list->pending->loader;

    for (; list; list = list->next) {
        if (list->pending->loader != loader) {
            return NULL;
        }
    }
    return &loader->closing;
}

/* Where the bytes of a fetch shall stay, if they are one value as it is: then its slot is not done
 * before the read is, and the batch is there. Reads from stores come back whatever happens, and
 * need no room before and behind. NULL: they are looked into, or others come with them. */
static uint8_t *slot_destination(const struct stk_fetch *fetch, uint64_t end)
{
    const struct stoker_loader *loader = fetch->pending->loader;
    const struct stk_sample_span *span = &fetch->span;
    struct stk_coalesced_read growth = begins(fetch);
    uint32_t only = STK_BATCH_FIELDS_MAX;
    const uint64_t *offsets;

    /* What joined when the end was found may have been abandoned since: both are asked. */
    if (!fetch->remote || end != span->offset + span->bytes ||
        (fetch->next && can_coalesce(fetch, &growth, fetch->next))) {
        return NULL;
    }
    for (uint32_t f = 0; f < loader->field_count; f++) {
        uint32_t kind = loader->fields[f].kind;

        if (kind == STOKER_FIELD_BYTES && only == STK_BATCH_FIELDS_MAX) {
            only = f;
        } else if (kind != STOKER_FIELD_KEY && kind != STOKER_FIELD_SAMPLE &&
                   (kind != STOKER_FIELD_LABEL ||
                    !stk_index_is_file(loader->dataset->index, span->shard))) {
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

/* What a read takes where both ends are rounded out. */
static uint64_t rounded_read_bytes(uint64_t begin, uint64_t end)
{
    return stk_round_up(end, STK_IO_ALIGN) - begin / STK_IO_ALIGN * STK_IO_ALIGN;
}

/* Begins one read for the first pending fetches. False: no room for it now. */
static bool issue(struct stk_fetcher *fetcher)
{
    struct stk_fetch *first = fetcher->own.pending, **tail;
    struct stk_fetch_chunk *chunk;
    uint8_t *place;
    uint64_t end;

    if (!needs_read(first)) {
        stk_fetch_deliver(fetcher->engine, pop_pending(fetcher));
        return true;
    }
    end = group_end(fetcher);
    place = slot_destination(first, end);
    chunk = place ? chunk_borrow(fetcher, place, first->span.bytes)
                  : chunk_get(fetcher, rounded_read_bytes(first->span.offset, end));
    if (!chunk) {
        if (stk_engine_trim(fetcher->engine) > 0 ||
            atomic_load_explicit(&fetcher->chunks_out, memory_order_relaxed) > 0) {
            return false;
        }
        /* Without bytes and without an error a worker reads it, with the scratch that it has. */
        stk_fetch_deliver(fetcher->engine, pop_pending(fetcher));
        return true;
    }
    /* The first goes in whatever happens to its flight meanwhile: a read without a fetch would
     * have no holder who gives its chunk back, nor a pin on its file. */
    chunk->begin = first->span.offset;
    chunk->fetches = pop_pending(fetcher);
    tail = &first->next;
    while (!place && fetcher->own.pending && needs_read(fetcher->own.pending) &&
           fetcher->own.pending->file == first->file &&
           fetcher->own.pending->span.offset >= chunk->begin &&
           fetcher->own.pending->span.offset + fetcher->own.pending->span.bytes <= end) {
        *tail = pop_pending(fetcher);
        tail = &(*tail)->next;
    }
    chunk->read = (struct stk_read){.file = first->file,
                                    .offset = chunk->begin,
                                    .buffer = chunk->buffer,
                                    .bytes = (uint32_t)(end - chunk->begin),
                                    .capacity = (uint32_t)chunk->capacity,
                                    .cancelled = one_loader(chunk->fetches),
                                    .owner = chunk};
    STK_ASSERT(stk_io_submit(fetcher->engine->io, fetcher->queue, &chunk->read) == 1);
    chunk->far = first->remote;
    fetcher->own.in_flight[chunk->far]++;
    atomic_fetch_add_explicit(&fetcher->requests, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&fetcher->bytes, end - chunk->begin, memory_order_relaxed);
    return true;
}

static void complete(struct stk_fetcher *fetcher, struct stk_fetch_chunk *chunk)
{
    struct stk_fetch *list = chunk->fetches;
    uint64_t got = chunk->read.result > 0 ? (uint64_t)chunk->read.result : 0;
    uint32_t count = 0;
    int status;

    fetcher->own.in_flight[chunk->far]--;
    chunk->fetches = NULL;
    STK_ASSERT(!chunk->read.leaked || !chunk->lent);
    if (chunk->read.leaked || chunk->read.result < 0) {
        status = chunk->read.leaked ? STOKER_ERROR_TIMEOUT : (int)chunk->read.result;
        if (chunk->read.leaked) {
            /* The kernel may still write to the buffer: its memory stays reserved for ever. */
            stk_pages_leak(chunk->buffer);
            stk_free(chunk);
            atomic_fetch_sub_explicit(&fetcher->chunks_out, 1, memory_order_relaxed);
        } else {
            chunk_put(fetcher, chunk);
        }
        fail_all(fetcher, list, status, "cannot read a sample");
        return;
    }
    for (struct stk_fetch *it = list; it; it = it->next) {
        uint64_t skip = it->span.offset - chunk->begin;
        it->bytes.data = chunk->buffer + chunk->read.skip + skip;
        it->bytes.bytes = got > skip ? stk_min(got - skip, it->span.bytes) : 0;
        it->chunk = chunk;
        count++;
    }
    /* Relaxed: deliver's lock publishes it to the workers. */
    atomic_store_explicit(&chunk->holders, count, memory_order_relaxed);
    stk_fetch_deliver(fetcher->engine, list);
}

static bool accept_pushed(struct stk_fetcher *fetcher)
{
    struct stk_fetch *first = NULL;
    bool stopping, behind = false;

    pthread_mutex_lock(&fetcher->lock);
    if (fetcher->locked.in) {
        first = fetcher->locked.in;
        behind = fetcher->own.pending != NULL;
        *fetcher->own.pending_tail = fetcher->locked.in;
        fetcher->own.pending_tail = fetcher->locked.in_tail;
        fetcher->locked.in = NULL;
        fetcher->locked.in_tail = &fetcher->locked.in;
    }
    stopping = fetcher->locked.stopping;
    pthread_mutex_unlock(&fetcher->lock);
    if (first) {
        /* Several pushes that came together count as one: they are as old. */
        fetcher->own.turn++;
        for (struct stk_fetch *it = first, *last = NULL; it; last = it, it = it->next) {
            it->push_number = fetcher->own.turn;
            if (last && last->file == it->file) {
                it->remote = last->remote;
                it->is_joined = last->is_joined;
                it->reads = last->reads;
            } else if (it->file) {
                set_read_options(fetcher, it);
            }
            fetcher->own.mixed = fetcher->own.mixed || (behind && it->is_joined);
            if (it->remote) {
                atomic_store_explicit(&fetcher->far, true, memory_order_relaxed);
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
        bool room = true;

        while (room && fetcher->own.pending) {
            if (fetcher->own.mixed) {
                coalesce_pending(fetcher);
            }
            if (!queue_has_space(fetcher)) {
                break;
            }
            room = issue(fetcher);
        }
        finished = stk_io_reap(io, fetcher->queue, room ? WAIT_READS_MS : WAIT_MEMORY_MS);
        for (; finished; finished = next) {
            next = finished->next;
            complete(fetcher, finished->owner);
        }
    }
    return NULL;
}

/* ---- a read that failed is tried again ---- */

/* When one slot has failed for good the batch is an error: its other slots on the same dead disk
 * would wait in vain. */
static bool wanted_locked(const struct stk_pending_batch *pending)
{
    return !atomic_load_explicit(&pending->cancelled, memory_order_relaxed) &&
           (pending->locked.error.status == 0 || stk_error_is_data(pending->locked.error.status));
}

bool stk_fetcher_retry_wait(struct stk_pending_batch *pending, struct stk_worker *worker,
                            int status, uint32_t attempt)
{
    struct stoker_loader *loader = pending->loader;
    struct stoker_engine *engine = loader->engine;
    struct timespec until;
    int woken = 0;
    bool wanted;

    if (!stk_error_is_transient(status) || attempt > loader->io_retries) {
        return false;
    }
    until = stk_engine_deadline(stk_retry_wait_ns(loader->io_retry_wait_ms, attempt));
    stk_engine_lock(engine, worker);
    /* `ready` also wakes this when the flight is dropped: a close need not wait. */
    while ((wanted = wanted_locked(pending)) && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(&loader->ready, &engine->lock, &until);
    }
    stk_engine_unlock(engine);
    return wanted;
}
