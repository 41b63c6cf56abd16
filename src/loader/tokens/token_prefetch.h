/* loader/tokens/token_prefetch.h: what the order needs next is on its way before it is asked for.
 *
 *   coming batches --samples--> places in files --packed--> workers unpack their frames
 *                                               --mapped, and cold--> the kernel reads them
 *
 * The order is known, so nothing else is read: a window costs its own pages, where a page fault
 * reads what lies around it (megabytes, for 4 KiB of a full shuffle). Whether files are cold is
 * seen by what the thread reads while it makes a batch: warm ones cost no call but that question.
 * Owner: the loader, under its lock. Threads: one at a time. Memory: none but itself; frames are
 * bounded by those that are kept. Bound: STK_AHEAD_* samples. */
#ifndef LOADER_TOKENS_TOKEN_PREFETCH_H
#define LOADER_TOKENS_TOKEN_PREFETCH_H

#include "loader/tokens/order_cursor.h"
#include "loader/tokens/token_samples.h"

/* How far it looks: for frames, so that those of the next window of blocks are unpacked while this
 * one is in use; for cold pages, as many reads as disks take at a time. */
#define STK_TOKEN_PREFETCH_FRAMES_SAMPLES 65536u
#define STK_TOKEN_PREFETCH_PAGES_SAMPLES 128u
/* Batches after which files that gave no read are warm. */
#define STK_TOKEN_PREFETCH_COLD_BATCHES 16u

struct stk_token_prefetch {
    const struct stk_token_samples
        *samples;                       /* const after open, as the next two; NULL: nothing to do */
    bool frames, pages;                 /* there are packed files; mapped ones */
    bool walk_is_valid;                 /* the rest of the walk is valid */
    uint64_t epoch, position;           /* of the batch that it has come to */
    uint64_t batches;                   /* from the loader's batch to that one */
    uint32_t slot;                      /* of that batch */
    uint64_t last_epoch, last_position; /* the loader's, when it was asked last */
    uint32_t cold_batches;              /* more that count as cold */
    uint64_t reads;                     /* of this thread, before the batch */
};

/* samples: lent. */
void stk_token_prefetch_open(struct stk_token_prefetch *ahead,
                             const struct stk_token_samples *samples);
/* Before and after the batch at the cursor's position is made, by one thread. */
void stk_token_prefetch_begin(struct stk_token_prefetch *ahead, struct stk_order_cursor *cursor);
void stk_token_prefetch_end(struct stk_token_prefetch *ahead);

#endif
