/* loader/extract_step.h: a worker's step for compressed shards without seek points: their samples
 * are decompressed front to back, by one worker at a time.
 *
 *   claim a few slots -> decompress their spans into buffers -> fetched list -> any worker fills
 *
 * Owner: the loader, whose `extract` it uses. Threads: the worker that set `extracting`.
 * Memory: a fetch record and a buffer for each slot. Bound: EXTRACT_SLOTS slots and about
 * EXTRACT_BYTES at a time. */
#ifndef LOADER_EXTRACT_STEP_H
#define LOADER_EXTRACT_STEP_H

#include "loader/pending/loader_private.h"

/* Extracts some slots of the oldest batch with unclaimed slots. Releases the lock meanwhile.
 * Returns false (without releasing the lock) if there is no such batch or another worker extracts.
 */
bool stk_extract_step_locked(struct stoker_loader *loader, struct stk_worker *worker);

#endif
