/* loader/pending/loader_private.h: struct stoker_loader, which the files of the loader share.
 *
 *   opened -> batches: pending -> complete -> delivered ... -> closed -> last pin released -> freed
 *
 * Owner: the user until close; then the pins: pending batches and calls in progress.
 * Threads: members of `locked` need the engine's lock; `plan` and `extract` belong to the worker
 * that set `opening` or `extracting`; all others are constant after open. Lock order:
 * fingerprint_lock, the engine's lock, then those of batch pool, data set or fetcher.
 * Memory: its own size, and what its members own. Bound: batches_ahead pending batches. */
#ifndef LOADER_PENDING_LOADER_PRIVATE_H
#define LOADER_PENDING_LOADER_PRIVATE_H

#include "dataset/dataset.h"
#include "io/map_watch.h"
#include "loader/pending/loader_field.h"
#include "loader/sampler/sampler.h"
#include "order/delivered.h"
#include "order/schedule/order_default.h"
#include "order/schedule/schedule.h"

#define STK_LOADER_AHEAD_MAX 64u

struct stk_fetch;
struct stk_fetcher;
struct stk_loader_future;
struct stk_pending_batch;
struct stk_quarantine;

struct stk_loader_counters {
    uint64_t samples, bytes, read_ns, decode_ns, warm_reads, cold_reads, substituted, retries;
};

struct stoker_loader {
    struct stk_engine_client client; /* first: see stk_loader_from_client */
    struct stoker_engine *engine;
    struct stk_fetcher *fetcher;
    struct stoker_dataset *dataset;
    struct stk_batch_pool *pool;
    struct stk_loader_future *future; /* loader/loader_future.h; NULL: none */
    /* The next three change only while the loader has no other pin (loader_adopt.c). */
    struct stk_schedule schedule;
    struct stk_run_sampling sampling; /* owns the tables that the schedule borrows */
    struct stk_partition partition;   /* of an epoch of the schedule */
    struct stk_loader_field fields[STK_BATCH_FIELDS_MAX];
    uint32_t field_count, out_of_line_count;
    uint64_t parse_bytes_max; /* memory bound of parsing one member */
    /* Out-of-line fields: the largest sum of a batch's values so far; UINT64_MAX: no batch yet. */
    _Atomic uint64_t out_of_line_bytes[STK_BATCH_FIELDS_MAX];
    struct stk_quarantine *quarantine;
    uint32_t on_error, shuffle;
    struct stk_order_defaults defaults; /* settings of the order that the caller left out */
    uint32_t io_retries, io_retry_wait_ms;
    uint32_t ahead_option; /* the option batches_ahead; 0: tuned */
    bool cached;           /* the option no_direct_io: cold bytes are read through the page cache */
    _Atomic uint64_t orders; /* how often loader_adopt.c replaced the order */
    bool sequential;         /* compressed shards without seek points: read front to back */
    bool prefetch_epochs;    /* the next epoch is read ahead, too */
    _Atomic bool closing;    /* closed: reads from stores that are still pending may be cancelled */
    bool has_maps;           /* reads mapped files; see loader_maps.h */
    struct stk_map_watch maps;
    uint64_t seed, opened_ns, idle_before_ns, storage_wait_before_ns, lock_wait_before_ns;
    struct stoker_stats before;       /* the engine's jpegs* when the loader was opened */
    uint64_t batch_bytes;             /* estimate */
    pthread_mutex_t fingerprint_lock; /* held while a fingerprint is computed */
    pthread_cond_t ready; /* the head is complete, or a step failed; with the engine's lock */
    struct {
        struct stk_pending_batch *head, *tail; /* the ring, in the order of delivery */
        uint32_t pending_count;
        uint32_t pins;             /* pending batches, cancelled ones too, and calls in progress */
        struct stk_fetch *fetched; /* samples whose bytes have arrived */
        struct stk_fetch **fetched_tail;
        uint32_t fetching;                    /* cold samples whose bytes are being read */
        uint64_t epoch, position;             /* of the next batch to deliver */
        struct stk_delivered delivered_steps; /* since the run's start */
        uint64_t open_epoch, open_position;   /* of the next batch to open */
        uint32_t ahead, out_limit;
        uint64_t ahead_grown_at, ahead_grown_ns; /* batches, clock when `ahead` last grew */
        uint64_t generation;                     /* number of times the ring was cancelled */
        bool opening, extracting, resumed, closed, open_failed_for_memory;
        bool paused;                     /* no batch is opened: the order is being replaced */
        bool exclusive;                  /* a pending batch allows no other one beside it */
        bool waiting_for_memory;         /* the caller waits, and no batch could be opened */
        struct stoker_error open_error;  /* of open_failed_for_memory */
        uint64_t memory_failed_since_ns; /* the engine's clock; 0: the last opening succeeded */
        uint64_t sample_ns;              /* moving average of the work of a sample */
        struct stk_loader_counters counters;
        uint64_t batches, delivered, wait_ns, first_next_ns, first_batch_ns;
    } locked;
    struct {
        struct stk_schedule_reader reader;
    } plan;
    struct {
        struct stk_shard_stream *stream;
        uint32_t shard;
        bool has_headers; /* which are compared with the index as the stream passes them */
    } extract;
};

/* The loader of an engine's client. Only callbacks of a loader's client may call it: other clients
 * of the engine are no loaders. */
static inline struct stoker_loader *stk_loader_from_client(struct stk_engine_client *client)
{
    return (struct stoker_loader *)client; /* its first member */
}

#endif
