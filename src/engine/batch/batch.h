/* engine/batch/batch.h: batches of slots, their memory, and the pool that they return to.
 *
 *   pool --get--> batch (slots are filled) --> delivered to the caller --close (any thread)--> pool
 *
 * The pool lives until its owner has closed it and the last batch was returned. Batches that the
 * caller keeps cost new memory until the budget is used up; then get returns BUDGET.
 * Owner: the loader, and each batch. Threads: get: one; hold, close: any.
 * Memory: pages, from the engine's budget. Bound: the budget. */
#ifndef ENGINE_BATCH_BATCH_H
#define ENGINE_BATCH_BATCH_H

#include "base/memory_budget.h"

#define STK_BATCH_FIELDS_MAX 64

/* The shape of a field's slot; constant in a pool. */
struct stk_batch_field_shape {
    uint32_t dtype;           /* enum stoker_dtype; STOKER_BYTES: variable */
    uint32_t dimension_count; /* of one slot, 0..3 */
    int64_t shape[3];
    int64_t strides[3];  /* in elements */
    uint64_t slot_bytes; /* 0 for BYTES and ragged */
    bool ragged;         /* a side of -1 varies between slots; no side is 0 */
    uint32_t item_bytes; /* ragged: of an element */
};

/* Whether values differ in size: then offsets hold the begin of each. */
static inline bool stk_batch_field_varies(const struct stk_batch_field_shape *shape)
{
    return shape->dtype == STOKER_BYTES || shape->ragged;
}

/* Whether the sides of each slot are stored, beside its offsets: if another side than the first
 * varies. */
bool stk_batch_field_has_sides(const struct stk_batch_field_shape *shape);
/* Returns the unit of offsets, in bytes: 1 for BYTES, an element if sides are stored, else a row.
 */
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
        uint64_t *offsets; /* BYTES, ragged: [slots + 1], set by the loader */
        uint64_t *sides;   /* if sides are stored: [slots x dimension_count] */
    } fields[STK_BATCH_FIELDS_MAX];
};

/* The owner of the budget (the engine), as callbacks: this room is below it. */
struct stk_batch_owner {
    struct stk_budget *budget;
    void *owner;
    void (*returned)(void *owner); /* a batch was returned: from any thread, no lock held */
    void (*release)(void *owner);  /* the pool was freed */
};

/* The pool takes over one reference of the owner, and releases it by release(). */
int stk_batch_pool_open(struct stk_batch_pool **pool_out, const struct stk_batch_owner *owner,
                        const struct stk_batch_field_shape *fields, uint32_t field_count,
                        uint32_t slots, struct stoker_error *error);
/* Frees unused batches now, others when they are returned. */
void stk_batch_pool_close(struct stk_batch_pool *pool);

/* Gets a batch with `samples` slots and one holder; a field f that varies has value_bytes[f] of
 * capacity. Returns 0 on success, STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_batch_pool_get(struct stk_batch_pool *pool, uint32_t samples, const uint64_t *value_bytes,
                       struct stoker_batch **batch_out, struct stoker_error *error);
/* Returns the number of batches that are not closed. Any thread. */
uint32_t stk_batch_pool_in_use(const struct stk_batch_pool *pool);
/* Returns the reserved size of a buffer for a field that varies; bytes <= UINT64_MAX / 4. */
uint64_t stk_batch_buffer_bytes(uint64_t bytes);
/* Grows the buffer of a field that varies to `bytes`; its values are lost. Returns 0 on success,
 * STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_batch_grow(struct stoker_batch *batch, uint32_t field, uint64_t bytes,
                   struct stoker_error *error);
/* Frees unused batches, and returns the bytes released to the budget. */
uint64_t stk_batch_pool_trim(struct stk_batch_pool *pool);

static inline uint8_t *stk_batch_slot(struct stoker_batch *batch, uint32_t field,
                                      uint64_t slot_bytes, uint32_t slot)
{
    return batch->fields[field].data + (uint64_t)slot * slot_bytes;
}

#endif
