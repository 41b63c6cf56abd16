/* loader/pending_batch.h: a loader's inside: batches in flight, in the order of delivery.
 *
 *   opened (memory, sample ids) -> slots claimed in chunks -> [fetched] -> decoded -> complete
 *     -> given to the caller            or: abandoned (another epoch, close) -> freed
 *
 * A flight is one batch on its way. Workers open flights at the tail of the ring while there is
 * room, claim slots from the oldest first, and finish them in any order; the caller takes the
 * head once it is complete. So a slow sample holds up its batch's delivery, not the work behind.
 * Owner: the loader; an abandoned flight owns itself until its last slot is done.
 * Threads: `locked` parts under the engine's lock; the rest by whoever claimed. Lock order:
 * settling, engine, then batch pool, then data set or fetcher.
 * Memory: a batch a flight, plus 24 bytes a slot. Bound: batches_ahead. */
#ifndef LOADER_PENDING_BATCH_H
#define LOADER_PENDING_BATCH_H

#include "dataset/dataset.h"
#include "engine/batch/batch.h"
#include "loader/sampler/sampler.h"
#include "order/delivered.h"
#include "order/schedule/schedule.h"

#define STK_LOADER_AHEAD_MAX 64u
#define STK_LOADER_FIELD_EXTENSIONS_MAX 16u
#define STK_LOADER_SUBSTITUTES_MAX 16u /* attempts to replace one damaged sample */
#define STK_SAMPLE_MEMBERS_MAX 64u     /* members of a sample that a loader looks at */
/* Members further apart than this are read one by one. */
#define STK_SAMPLE_SPAN_GAP_BYTES (256u << 10)

/* What a field needs to be filled; const after open. */
struct stk_loader_field {
    uint32_t kind;                                        /* enum stoker_field_kind */
    uint32_t extensions[STK_LOADER_FIELD_EXTENSIONS_MAX]; /* ids, best first */
    uint32_t extension_count;
    char *requested;                 /* as the user wrote it, for errors; owned */
    struct stk_transform_plan *plan; /* IMAGE, MASK; owned */
    char *path, *labels;             /* inside the member; owned */
    bool random;                     /* what is decoded of it is drawn */
    bool out_of_line;                /* its values go aside: loader/fill_value.h */
    uint32_t out_of_line_index;
    uint32_t image_field; /* MASK, BOXES: the image's field; IMAGE: itself */
    uint32_t box_format;
    bool normalised, keep_empty;
    struct stk_batch_field_shape shape;
};

struct stk_ragged_value; /* loader/fill_value.h */

/* A value that replaces one that did not fit its place (after a substitution). */
struct stk_value_override {
    struct stk_value_override *next;
    uint32_t field, slot;
    uint64_t bytes;
    uint8_t *data;
};

struct stk_quarantine_note; /* damage that a slot met: loader/quarantine.h */
struct stk_quarantine;

struct stk_pending_batch {
    struct stk_pending_batch *next; /* in the ring */
    struct stoker_loader *loader;
    struct stoker_batch *batch;
    uint64_t epoch, position, next_position; /* of the step, in the epoch */
    uint32_t samples;
    struct stk_order_place *order_places;   /* [samples] */
    struct stk_ragged_value *ragged_values; /* [aside_count x samples]: values that went aside */
    uint64_t reserved_bytes;                /* reserved for them at opening */
    _Atomic uint64_t reserved_left;         /* of these */
    /* How long its samples wait for memory. Short while other batches may be in flight: they may
     * well hold what is missing, and the loader then drops them and tries again. */
    uint32_t memory_wait_ms;
    bool exclusive; /* nothing was: no other flight opens until it is done */
    _Atomic bool cancelled;
    struct {
        uint32_t next_slot, done_count, error_slot, substituted;
        struct stk_value_override *overrides;
        struct stk_quarantine_note *notes;
        struct stoker_error error; /* of the lowest failed slot */
    } locked;
};

struct stk_fetch;

struct stk_loader_counters {
    uint64_t samples, bytes, read_ns, decode_ns, warm_reads, cold_reads, substituted, retries;
};

struct stoker_loader {
    struct stk_engine_client client; /* first: the engine's view of this loader */
    struct stoker_engine *engine;    /* const after open, as all down to `ready` */
    struct stk_fetcher *fetcher;
    struct stoker_dataset *dataset;
    struct stk_batch_pool *pool;
    struct stk_schedule schedule;
    struct stk_run_sampling sampling; /* whose tables the schedule lends */
    struct stk_partition partition;   /* of an epoch of the schedule */
    struct stk_loader_field fields[STK_BATCH_FIELDS_MAX];
    uint32_t field_count, out_of_line_count;
    uint64_t parse_bytes_max; /* of one member's parser */
    /* The most that a batch's values of a field took which goes aside; UINT64_MAX: not known. */
    _Atomic uint64_t out_of_line_bytes[STK_BATCH_FIELDS_MAX];
    struct stk_quarantine *quarantine;
    uint32_t on_error, shuffle;
    uint32_t io_retries, io_retry_wait_ms;
    uint32_t ahead_option; /* 0: tuned */
    bool cached, sequential, prefetch_epochs;
    _Atomic bool closing; /* closed: what is on its way from stores is not wanted any more */
    uint64_t seed, opened_ns, idle_before_ns, lock_wait_before_ns;
    struct stoker_stats before;       /* jpegs* alone */
    uint64_t batch_bytes;             /* about */
    pthread_mutex_t fingerprint_lock; /* by whoever works out a fingerprint; before the engine's */
    pthread_cond_t ready;             /* the head is complete, or something failed; engine's lock */
    struct {
        struct stk_pending_batch *head, *tail;
        uint32_t pending_count;
        uint32_t pins;             /* flights, abandoned ones too, and calls under way */
        struct stk_fetch *fetched; /* samples whose bytes are here */
        struct stk_fetch **fetched_tail;
        uint32_t fetching;                    /* cold samples whose bytes are on their way */
        uint64_t epoch, position;             /* delivered up to here */
        struct stk_delivered delivered_steps; /* of that, since the run's start */
        uint64_t open_epoch, open_position;   /* the next flight begins here */
        uint32_t ahead, out_limit;
        uint64_t ahead_grown_at, ahead_grown_ns; /* batches, clock when `ahead` last grew */
        uint64_t generation;                     /* counts how often flights were dropped */
        bool opening, extracting, resumed, closed, open_failed_for_memory;
        bool exclusive;                  /* a flight is on its way that wants no other beside it */
        bool waiting_for_memory;         /* its caller waits, and no memory is there for a batch */
        struct stoker_error open_error;  /* why it is starved */
        uint64_t memory_failed_since_ns; /* of the engine's clock; 0: memory was there */
        uint64_t sample_ns;              /* smoothed work of a sample */
        struct stk_loader_counters counters;
        uint64_t batches, delivered, delivered_substitutes, wait_ns, first_next_ns, first_batch_ns;
    } locked;
    struct { /* the worker that has `opening` */
        struct stk_schedule_reader reader;
    } plan;
    struct { /* the worker that has `extracting` */
        struct stk_shard_stream *stream;
        uint32_t shard;
    } extract;
};

/* The loader of a client whose callbacks are a loader's: for these alone. Others of the engine's
 * clients are no loaders. */
struct stoker_loader *stk_loader_from_client(struct stk_engine_client *client);
/* One piece of work; false (and the lock never let go) when there is none. */
bool stk_loader_step_locked(struct stk_engine_client *client, struct stk_worker *worker);
/* Ends `count` slots of a flight, the counters of their work added; frees a flight that was
 * abandoned. Lets the lock go for a moment when it frees or lays out anew. */
void stk_pending_batch_end_slots_locked(struct stk_pending_batch *pending, uint32_t count,
                                        const struct stk_loader_counters *counters);
/* Frees a complete flight that left the ring (its batch was taken). Lets the lock go. */
void stk_pending_batch_free_locked(struct stk_pending_batch *pending);
/* Notes the error of a slot: the lowest slot's is kept; of failures that are no damage, the
 * first. */
void stk_pending_batch_fail_locked(struct stk_pending_batch *pending, uint32_t slot,
                                   const struct stoker_error *error);
/* Drops all flights of the ring; their memory comes back as their slots end. Lets the lock go
 * for a moment. */
void stk_pending_batches_cancel_locked(struct stoker_loader *loader);
/* A flight is gone (or a pin of the loader): the last one frees a closed loader. Lets the lock
 * go for a moment when it does. */
void stk_loader_unpin_locked(struct stoker_loader *loader);
/* A worker is idle: whether one more batch may be read ahead from now on. */
bool stk_loader_grow_read_ahead_locked(struct stoker_loader *loader);
/* What was given since the last time becomes part of the fingerprint. Lock not held. place_out gets
 * epoch, position and the fingerprint of all before it. */
int stk_loader_update_fingerprint(const struct stoker_loader *asked,
                                  struct stoker_state *place_out);
/* Turns the stream to a place; all flights are dropped. Lets the lock go for a moment. */
void stk_loader_seek_locked(struct stoker_loader *loader, uint64_t epoch, uint64_t position);
/* Out of the engine's list already; lock not held. */
void stk_loader_free(struct stoker_loader *loader);

/* ---- sample_work.c: the work of one slot ---- */

/* Bytes of a sample as one range, when it is one. */
struct stk_sample_span {
    uint32_t shard;
    uint64_t offset, bytes; /* bytes STK_ENTIRE_OBJECT: the whole file */
    bool scattered;         /* members too far apart: read one by one */
};

/* What the fields of this loader need of a sample. */
void stk_sample_span_find(const struct stoker_loader *loader, uint64_t sample,
                          struct stk_sample_span *span_out);
/* Bytes that a BYTES field's value takes; 0 when the sample lacks it (an error follows later). */
uint64_t stk_sample_value_bytes(struct stoker_loader *loader, const struct stk_loader_field *field,
                                uint64_t sample);
/* Reads (if the bytes are warm, or `wait`) and decodes slot `slot`. -EAGAIN: cold, and *span_out
 * says what to fetch. Other failures are noted in the flight, substitutes tried. */
int stk_sample_work_run(struct stk_pending_batch *pending, uint32_t slot, struct stk_worker *worker,
                        bool wait, struct stk_loader_counters *counters,
                        struct stk_sample_span *span_out);
/* The same with the span's bytes in hand, or with the error of the fetch (status < 0). */
void stk_sample_work_finish(struct stk_pending_batch *pending, uint32_t slot,
                            struct stk_worker *worker, struct stk_view bytes,
                            const struct stoker_error *error, struct stk_loader_counters *counters);

#endif
