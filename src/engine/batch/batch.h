/* engine/batch/batch.h: batches of slots, their memory, and the pool they return to.
 *
 *   pool --take--> batch (filling) --> given to the caller --close (any thread)--> pool
 *
 * The pool lives until its owner let go and the last batch came back. Batches that the caller
 * keeps cost new memory until the budget is reached; then take answers BUDGET.
 * Owner: the loader, and each batch. Threads: take: one; hold/close: any.
 * Memory: pages, from the engine's budget. Bound: budget. */
#ifndef ENGINE_BATCH_BATCH_H
#define ENGINE_BATCH_BATCH_H

#include "base/memory_budget.h"

#define STK_BATCH_FIELDS_MAX 64

/* The shape of a field's slot: const of the pool. */
struct stk_batch_field_shape {
    uint32_t dtype;           /* enum stoker_dtype; STOKER_BYTES: variable */
    uint32_t dimension_count; /* of one slot, 0..3 */
    int64_t shape[3];
    int64_t strides[3];  /* in elements */
    uint64_t slot_bytes; /* 0 for BYTES and ragged */
    bool ragged;         /* a side of -1 varies from slot to slot; no side is 0 */
    uint32_t item_bytes; /* ragged: of an element */
};

/* Whether values differ in size: offsets tell where each begins. */
static inline bool stk_batch_field_varies(const struct stk_batch_field_shape *shape)
{
    return shape->dtype == STOKER_BYTES || shape->ragged;
}

/* Whether a slot's sides are kept beside its offsets: more than the first varies. */
bool stk_batch_field_has_sides(const struct stk_batch_field_shape *shape);
/* What offsets count, in bytes: 1 (BYTES), an element where there are sides, else a row. */
uint64_t stk_batch_field_row_bytes(const struct stk_batch_field_shape *shape);

struct stk_batch_pool;

struct stoker_batch {
    struct stk_batch_pool *pool;
    struct stoker_batch *next; /* in the pool's free list */
    _Atomic uint32_t holders;
    uint32_t samples; /* <= slots of the pool */
    uint64_t bytes;   /* reserved from the budget for all of it */
    uint64_t *ids;    /* [slots] */
    uint8_t *mask;    /* [slots] */
    struct {
        uint8_t *data;
        uint64_t capacity; /* of data */
        uint64_t *offsets; /* BYTES, ragged: [slots + 1], made by the filler */
        uint64_t *sides;   /* where there are sides: [slots x dimension_count] */
    } fields[STK_BATCH_FIELDS_MAX];
};

/* Whoever keeps the budget alive (the engine), seen from below. */
struct stk_batch_owner {
    struct stk_budget *budget;
    void *owner;
    void (*returned)(void *keeper); /* a batch came back: from any thread, no lock held */
    void (*release)(void *keeper);  /* the pool is gone */
};

/* The pool takes one reference of the keeper, which it gives back by release(). */
int stk_batch_pool_open(struct stk_batch_pool **pool_out, const struct stk_batch_owner *keeper,
                        const struct stk_batch_field_shape *fields, uint32_t field_count,
                        uint32_t slots, struct stoker_error *error);
/* Lets go: free batches are freed now, others when they come back. */
void stk_batch_pool_close(struct stk_batch_pool *pool);

/* A batch with `samples` slots and one holder; value_bytes[f] of capacity for a field f that
 * varies. BUDGET when there is no room. */
int stk_batch_pool_get(struct stk_batch_pool *pool, uint32_t samples, const uint64_t *value_bytes,
                       struct stoker_batch **batch_out, struct stoker_error *error);
/* Batches that are out (taken and not closed). Any thread. */
uint32_t stk_batch_pool_in_use(const struct stk_batch_pool *pool);
/* What is reserved for so many bytes of a field that varies; bytes <= UINT64_MAX / 4. */
uint64_t stk_batch_buffer_bytes(uint64_t bytes);
/* Gives a field that varies room for `bytes`, its values lost. BUDGET when there is none. */
int stk_batch_grow(struct stoker_batch *batch, uint32_t field, uint64_t bytes,
                   struct stoker_error *error);
/* Frees free batches, to make room in the budget for others; returns bytes freed. */
uint64_t stk_batch_pool_trim(struct stk_batch_pool *pool);

static inline uint8_t *stk_batch_slot(struct stoker_batch *batch, uint32_t field,
                                      uint64_t slot_bytes, uint32_t slot)
{
    return batch->fields[field].data + (uint64_t)slot * slot_bytes;
}

#endif
