/* loader/pending/ragged_layout.h: values whose size is known only after parsing (text at a path,
 * arrays with a side of -1, boxes and their labels), and values of substitutes.
 *
 *   alloc: a value of its own, out of line --all slots ended--> layout: one array in the batch
 *
 * A pending batch reserves as much memory as the largest batch so far needed, so that pending
 * batches do not wait for each other's memory half way. The first batch, for which no such size is
 * known, is exclusive.
 * Owner: the pending batch. Threads: alloc: the thread that claimed the slot; layout: the thread
 * that ended the last slot. Memory: from the engine's budget. Bound: the budget. */
#ifndef LOADER_PENDING_RAGGED_LAYOUT_H
#define LOADER_PENDING_RAGGED_LAYOUT_H

#include "loader/pending/pending_batch.h"

/* The value of a slot, until it is laid out. */
struct stk_ragged_value {
    uint8_t *data; /* owned */
    uint64_t bytes;
    uint64_t sides[3];
    bool from_reservation; /* its bytes count on the batch's reservation, else on the budget */
};

/* Sets value_bytes of each out-of-line field to the largest sum of a batch so far. Returns false if
 * a field has none yet. */
bool stk_ragged_values_estimate(const struct stk_pending_batch *pending, uint64_t *value_bytes);
/* Allocates the values of all slots, and reserves value_bytes. Returns 0 on success,
 * STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_ragged_values_open(struct stk_pending_batch *pending, const uint64_t *value_bytes,
                           struct stoker_error *error);
void stk_ragged_values_close(struct stk_pending_batch *pending);
/* Sets the value of a slot to `bytes` bytes for the caller to fill; frees that of a failed attempt.
 * Returns 0 on success, STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_ragged_value_alloc(struct stk_pending_batch *pending, uint32_t field, uint32_t slot,
                           uint64_t bytes, struct stk_ragged_value **value_out,
                           struct stoker_error *error);
/* Copies all ragged values, and the values of substitutes that did not fit their space, into
 * arrays of the batch. All slots have ended without error. Returns 0 on success,
 * STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_ragged_values_layout(struct stk_pending_batch *pending, struct stoker_error *error);

#endif
