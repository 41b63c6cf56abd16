/* checkpoint/manage/manage.h: lists, pins and removes steps, and applies retention.
 *
 *   ROOT --list--> steps with their status --retention--> steps to remove --> trash name --> gone
 *
 * A removal renames the step first (a store: removes the manifest first), so that no reader finds a
 * half of it. Remains of a killed removal or save have a hidden name, and gc() removes them.
 * Owner: the caller. Threads: any. Memory: the manifest of each step.
 * Bound: the steps of the place. */
#ifndef CHECKPOINT_MANAGE_MANAGE_H
#define CHECKPOINT_MANAGE_MANAGE_H

#include "checkpoint/layout/step_manifest.h"
#include "checkpoint/place/place.h"
#include "engine/engine.h"

struct stk_step_entry {
    uint64_t step;
    uint32_t status;                   /* enum stoker_checkpoint_status */
    bool pinned, retained;             /* retained: gc() does not remove it; also if pinned */
    struct stk_step_manifest manifest; /* owned; of COMMITTED, else zeroed */
    char *reason;                      /* owned; of DAMAGED */
};

struct stoker_checkpoint_list {
    struct stk_step_entry *entries; /* owned; by step */
    size_t count;
};

/* Removes a step. Returns -EBUSY if it is pinned. */
int stk_checkpoint_remove_step(const struct stk_checkpoint_place *place, uint64_t step,
                               struct stoker_error *error);

#endif
