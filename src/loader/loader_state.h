/* loader/loader_state.h: the state of a loader, as a run saves and restores it.
 *
 *   delivered steps --when a state or statistics are read--> fingerprint --> state --> set_state
 *
 * Owner: the loader. Threads: any; fingerprint_lock is held while a fingerprint is computed, before
 * the engine's lock. Memory: one copy of the delivered steps. Bound: STK_DELIVERED_RUNS_MAX. */
#ifndef LOADER_LOADER_STATE_H
#define LOADER_LOADER_STATE_H

#include "loader/pending/loader_private.h"

/* Adds the steps that were delivered since the last call to the fingerprint. Sets epoch, position
 * and fingerprint of *place_out. No lock held. Returns 0 on success, -ENOMEM, or the error of the
 * order's tables. */
int stk_loader_update_fingerprint(const struct stoker_loader *loader,
                                  struct stoker_state *place_out);
/* Sets the settings of a state that the loader would have with this schedule and shuffle. */
void stk_loader_identify(const struct stoker_loader *loader, const struct stk_schedule *schedule,
                         uint32_t shuffle, struct stoker_state *state_out);

#endif
