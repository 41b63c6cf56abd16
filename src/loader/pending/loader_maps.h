/* loader/pending/loader_maps.h: the mapped files that a loader reads: its index, JPEG index and
 * sampling tables. They may be overwritten or cut while it runs.
 *
 *   samples filled --check--> good: the batch may be delivered
 *                  --> STOKER_ERROR_CHANGED: the batch fails; so does each one after it
 *
 * Owner: the loader. Threads: any. Memory: none. Bound: none. */
#ifndef LOADER_PENDING_LOADER_MAPS_H
#define LOADER_PENDING_LOADER_MAPS_H

#include "loader/pending/loader_private.h"

/* Sets whether the loader reads mapped files; once, at open. */
void stk_loader_maps_init(struct stoker_loader *loader);
/* Checks the maps if that is due. Returns 0, STOKER_ERROR_CHANGED, or -EIO. */
int stk_loader_maps_check(struct stoker_loader *loader, struct stoker_error *error);
/* Checks them now: after an error that a changed map may explain. */
int stk_loader_maps_check_now(const struct stoker_loader *loader, struct stoker_error *error);

#endif
