/* loader/pending/value_override.h: values of substitutes whose sizes differ from the space that was
 * planned in the batch. The layout of the complete batch copies them (ragged_layout.c).
 * Owner: the pending batch. Threads: any worker; the list is under the engine's lock.
 * Memory: the values, from the engine's budget. Bound: one per field and slot. */
#ifndef LOADER_PENDING_VALUE_OVERRIDE_H
#define LOADER_PENDING_VALUE_OVERRIDE_H

#include "loader/pending/pending_batch.h"

struct stk_value_override {
    struct stk_value_override *next;
    uint32_t field, slot;
    uint64_t bytes; /* reserved from the budget */
    uint8_t *data;  /* owned */
};

/* Adds a copy of the value of a field. There must be none for this field and slot. Takes the
 * engine's lock. worker: the calling one. Returns 0, STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_value_override_add(struct stk_pending_batch *pending, struct stk_worker *worker,
                           uint32_t field, uint32_t slot, struct stk_view value,
                           struct stoker_error *error);
/* Removes the override of a field and slot, if there is one. Takes the engine's lock. */
void stk_value_override_remove(struct stk_pending_batch *pending, struct stk_worker *worker,
                               uint32_t field, uint32_t slot);
/* Returns the override of a field and slot, or NULL. Only after all slots have ended. */
const struct stk_value_override *stk_value_override_find(const struct stk_pending_batch *pending,
                                                         uint32_t field, uint32_t slot);
/* Only after all slots have ended. */
void stk_value_overrides_free(struct stk_pending_batch *pending);

#endif
