/* loader/loader_close.h: the end of a loader: closing it, and releasing its pins.
 *
 *   stoker_loader_close -> pending batches cancelled -> last pin released -> freed
 *
 * Owner: the user until close, then the pins. Threads: any; the thread that releases the last pin
 * frees the loader. Memory: frees all of it. Bound: none. */
#ifndef LOADER_LOADER_CLOSE_H
#define LOADER_LOADER_CLOSE_H

#include "loader/pending/loader_private.h"

/* Frees a loader that is not in the engine's list of clients. Lock not held. */
void stk_loader_free(struct stoker_loader *loader);
/* Removes a closed loader without pins from the engine, and frees it. Releases the lock for a
 * moment. The caller keeps the engine alive. */
void stk_loader_end_locked(struct stoker_loader *loader);
/* Releases a pin; the last one ends the loader. May release the lock for a moment. */
void stk_loader_unpin_locked(struct stoker_loader *loader);

#endif
