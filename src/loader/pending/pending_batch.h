/* loader/pending/pending_batch.h: the ring of pending batches of a loader, in the order of
 * delivery.
 *
 *   open (plan, memory) -> enqueue -> claim slots -> end slots -> complete -> take: to the caller
 *                                          or: cancelled (seek, close) -> last slot ended -> freed
 *
 * The ring is passive: workers (loader/worker_steps.c) open batches at the tail, claim slots of the
 * oldest batch first and end them in any order; the caller takes the head once it is complete. So a
 * slow sample delays the delivery of its batch, but not the work on later ones.
 * Owner: the loader; a cancelled batch frees itself when its last slot ends.
 * Threads: `locked` members and functions named _locked need the engine's lock; the rest belongs to
 * the thread that claimed the slot. Memory: a batch each, and 24 bytes a slot.
 * Bound: batches_ahead. */
#ifndef LOADER_PENDING_PENDING_BATCH_H
#define LOADER_PENDING_PENDING_BATCH_H

#include "loader/pending/loader_private.h"

/* Samples that are tried in place of one bad sample. */
#define STK_LOADER_SUBSTITUTES_MAX 16u

struct stk_quarantine_note; /* loader/pending/quarantine.h */
struct stk_ragged_value;    /* loader/pending/ragged_layout.h */
struct stk_value_override;  /* loader/pending/value_override.h */

struct stk_pending_batch {
    struct stk_pending_batch *next; /* in the ring */
    struct stoker_loader *loader;
    struct stoker_batch *batch;
    uint64_t epoch, position, next_position; /* of the step, in the epoch */
    uint32_t samples;
    struct stk_order_place *order_places;   /* [samples] */
    struct stk_ragged_value *ragged_values; /* [out_of_line_count x samples] */
    uint64_t reserved_bytes;                /* for ragged values, reserved by open */
    _Atomic uint64_t reserved_left;         /* the unused part of it */
    /* Longest wait of its samples for memory. It is short while other batches may be pending: they
     * may hold the memory, and the loader then cancels them and tries again. */
    uint32_t memory_wait_ms;
    bool exclusive; /* no other batch is opened until this one is complete */
    _Atomic bool cancelled;
    struct {
        uint32_t next_slot, done_count, error_slot, substituted;
        struct stk_value_override *overrides;
        struct stk_quarantine_note *notes;
        struct stoker_error error; /* of the lowest failed slot */
    } locked;
};

/* Plans the batch at a position of the order: sample ids, and memory for all values. exclusive: no
 * memory is reserved for ragged values in advance. Only the worker that set `opening`; no lock
 * held. Returns NULL on failure: STOKER_ERROR_BUDGET if the budget has no space now, -ENOMEM, or
 * an error of the order's tables. */
struct stk_pending_batch *stk_pending_batch_open(struct stoker_loader *loader, uint64_t epoch,
                                                 uint64_t position, bool exclusive,
                                                 struct stoker_error *error);
/* Frees a batch that is not in the ring. NULL is allowed. No lock held. */
void stk_pending_batch_close(struct stk_pending_batch *pending);
/* Adds an opened batch to the ring, which takes over a pin of the loader. */
void stk_pending_batch_enqueue_locked(struct stk_pending_batch *pending);

/* Returns the oldest batch with unclaimed slots, or NULL. */
struct stk_pending_batch *stk_pending_batch_claimable_locked(struct stoker_loader *loader);
/* Claims `count` slots that are left; returns the first one. */
uint32_t stk_pending_batch_claim_locked(struct stk_pending_batch *pending, uint32_t count);
/* Records the error of a slot. The error of the lowest slot is kept; of errors that are no damage
 * in the data, the first. */
void stk_pending_batch_fail_locked(struct stk_pending_batch *pending, uint32_t slot,
                                   const struct stoker_error *error);
/* Ends `count` claimed slots, and adds the counters of their work. The last slot of a batch
 * completes it, or frees it if it was cancelled. May release the lock for a moment. Returns true
 * if that released the last pin of a closed loader: the caller must free the loader. */
bool stk_pending_batch_end_slots_locked(struct stk_pending_batch *pending, uint32_t count,
                                        const struct stk_loader_counters *counters);

/* Takes the complete head out of the ring and returns its batch. Releases the lock for a moment.
 * The caller holds a pin. */
struct stoker_batch *stk_pending_batch_take_locked(struct stoker_loader *loader);
/* Cancels all pending batches; memory is freed as their slots end. Releases the lock for a moment.
 * The caller holds a pin. */
void stk_pending_batches_cancel_locked(struct stoker_loader *loader);
/* Cancels all pending batches; the next batch is the one at the given position. Likewise. */
void stk_pending_batches_seek_locked(struct stoker_loader *loader, uint64_t epoch,
                                     uint64_t position);

#endif
