/* loader/pending/quarantine.h: the damaged samples that a loader met, and how many it may meet.
 *
 *   worker finds damage -> note in its flight, and `known` when every draw meets it
 *     -> the batch is complete: listed, written, weighed -> delivered, or LIMIT
 *
 * What is told (list, file, limits) follows the batches as they are delivered, so it is the same
 * whatever the threads. What is known only saves work: what replaces a sample is a function of
 * its position, so a loader that resumed and knows nothing yet gives the same batches.
 * Owner: the loader. Threads: know, note: any worker; deliver, entry: the loader's caller.
 * Memory: about 500 bytes a damaged sample, twice. Bound: list_max samples; notes: those in flight,
 * STK_LOADER_SUBSTITUTES_MAX + 1 a slot.
 *
 * The file is JSON, an object a line, each line one write at the end: whole lines after a kill -9,
 * and the rest of a torn one is cut off when a loader opens it again. */
#ifndef LOADER_PENDING_QUARANTINE_H
#define LOADER_PENDING_QUARANTINE_H

#include "loader/pending/pending_batch.h"

struct stk_quarantine_options {
    struct stk_io *io; /* borrowed until close */
    const char *path;  /* of the file; NULL: none */
    uint32_t rank, world_size;
    uint32_t list_max;
    uint64_t samples_max; /* 0: no limit */
    double share_max;     /* 0: no limit */
    /* Of a run that goes on in another loader: what it met counts on, and stays listed. */
    const struct stk_quarantine *after;            /* borrowed by open; NULL: none */
    uint64_t delivered_before, substituted_before; /* by that loader */
};

int stk_quarantine_open(struct stk_quarantine **quarantine_out,
                        const struct stk_quarantine_options *options, struct stoker_error *error);
void stk_quarantine_close(struct stk_quarantine *quarantine); /* NULL is fine */

/* Whether the sample is known to be damaged: then *error is that damage. Costs one load as long as
 * none is. */
bool stk_quarantine_find(struct stk_quarantine *quarantine, uint64_t sample,
                         struct stoker_error *error);

/* Damage that a slot met: attempt 0 is the sample of its order. */
struct stk_quarantine_entry {
    uint64_t sample;
    uint32_t slot, attempt;
    bool is_random; /* another draw (crop) of the sample may be fine */
    const struct stoker_error *error;
};
/* Notes it in the flight. Takes the engine's lock. 0 or -ENOMEM with *error. */
int stk_quarantine_add(struct stk_pending_batch *pending,
                       const struct stk_quarantine_entry *finding, struct stoker_error *error);
void stk_quarantine_notes_free(struct stk_quarantine_note *notes);

/* Takes the notes of a complete flight that is about to be delivered. LIMIT when a limit is passed:
 * then, and on other errors (the file's), the flight stays, and the next call goes on from there.
 * Lets the lock go for a moment. */
int stk_quarantine_deliver_locked(struct stk_pending_batch *pending, struct stoker_error *error);

/* Damaged samples met so far: those listed, and each meeting of one that found the list full. */
uint64_t stk_quarantine_count(const struct stk_quarantine *quarantine);

#endif
