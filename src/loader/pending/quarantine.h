/* loader/pending/quarantine.h: the bad samples that a loader met, and the limit of their number.
 *
 *   worker finds damage -> note in its batch; cached, unless another draw may be good
 *     -> the batch is complete: listed, written, checked against limits -> delivered, or LIMIT
 *
 * The list, the file and the limits follow the batches in the order of delivery, so they are the
 * same for any number of threads. The cache only saves work: a substitute is a function of its
 * position, so a restarted loader with an empty cache returns the same batches.
 * Owner: the loader. Threads: find, add: any worker; deliver and the list: the loader's caller.
 * Memory: about 500 bytes a bad sample, twice. Bound: list_max samples; notes: those of pending
 * batches, STK_LOADER_SUBSTITUTES_MAX + 1 a slot.
 *
 * The file has one JSON object a line. Each line is appended with one write: after a kill -9 it has
 * complete lines, and a torn last line is cut off when a loader opens it again. */
#ifndef LOADER_PENDING_QUARANTINE_H
#define LOADER_PENDING_QUARANTINE_H

#include "loader/pending/pending_batch.h"

struct stk_quarantine_options {
    struct stk_io *io; /* borrowed until close */
    const char *path;  /* of the file; NULL: no file is written */
    uint32_t rank, world_size;
    uint32_t list_max;
    uint64_t samples_max; /* 0: no limit */
    double share_max;     /* 0: no limit */
    /* The loader whose run this one continues: its bad samples stay listed, and count. */
    const struct stk_quarantine *after;            /* borrowed by open; NULL: none */
    uint64_t delivered_before, substituted_before; /* by that loader */
};

int stk_quarantine_open(struct stk_quarantine **quarantine_out,
                        const struct stk_quarantine_options *options, struct stoker_error *error);
void stk_quarantine_close(struct stk_quarantine *quarantine); /* NULL is fine */

/* Returns true and sets *error if the sample is cached as damaged. Costs one load while no sample
 * is. */
bool stk_quarantine_find(struct stk_quarantine *quarantine, uint64_t sample,
                         struct stoker_error *error);

/* A bad sample in a slot. Attempt 0 is the sample of the order, the others are substitutes. */
struct stk_quarantine_entry {
    uint64_t sample;
    uint32_t slot, attempt;
    bool is_random; /* another random crop of the sample may be decodable */
    const struct stoker_error *error;
};
/* Adds a note to the pending batch. Takes the engine's lock. Returns 0 or -ENOMEM. */
int stk_quarantine_add(struct stk_pending_batch *pending, const struct stk_quarantine_entry *entry,
                       struct stoker_error *error);
void stk_quarantine_notes_free(struct stk_quarantine_note *notes);

/* Lists and writes the notes of the complete batch that is delivered next. Releases the lock for a
 * moment. Returns 0 on success, STOKER_ERROR_LIMIT if a limit is exceeded, -ENOMEM, or an error of
 * the file. After an error the batch stays in the ring, and the next call continues. */
int stk_quarantine_deliver_locked(struct stk_pending_batch *pending, struct stoker_error *error);

/* Returns the number of bad samples: those listed, and each time one did not fit in the full list.
 */
uint64_t stk_quarantine_count(const struct stk_quarantine *quarantine);

#endif
