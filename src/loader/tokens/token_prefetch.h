/* loader/tokens/token_prefetch.h: prefetches the tokens of the next batches of the order.
 *
 *   next batches --samples--> ranges of files --compressed--> workers decompress their frames
 *                                             --remote--> requests to the store
 *                                             --mapped and cold--> the kernel reads them
 *
 * The order is known, so nothing else is read: a window costs its own pages, while a page fault
 * reads megabytes around 4 KiB of a full shuffle. The thread counts its own reads while it makes a
 * batch to find out whether the files are cold: for warm files no other call is made. Owner: the
 * loader, under its lock. Threads: one at a time. Memory: its own size; the caches bound frames
 * and ranges. Bound: STK_TOKEN_PREFETCH_*_SAMPLES. */
#ifndef LOADER_TOKENS_TOKEN_PREFETCH_H
#define LOADER_TOKENS_TOKEN_PREFETCH_H

#include "loader/tokens/order_cursor.h"
#include "loader/tokens/token_samples.h"

/* Samples that are looked ahead: for frames and remote files, those of the next window of blocks,
 * which are read while this window is in use; for cold pages, as many reads as disks process at
 * once. */
#define STK_TOKEN_PREFETCH_CACHED_SAMPLES 65536u
#define STK_TOKEN_PREFETCH_PAGES_SAMPLES 128u
/* After so many batches without a read the files count as warm. */
#define STK_TOKEN_PREFETCH_COLD_BATCHES 16u

struct stk_token_prefetch {
    const struct stk_token_samples
        *samples;             /* constant after open, as the next ones; NULL: nothing to do */
    bool cached, pages;       /* compressed or remote files exist; mapped ones */
    uint32_t unit;            /* of ranges of remote files, as in struct stk_range_wish */
    uint64_t block_samples;   /* of the order */
    bool walk_is_valid;       /* the members below are valid */
    uint64_t epoch, position; /* of the batch that the walk has reached */
    uint64_t batches;         /* from the loader's batch to that one */
    uint32_t slot;            /* of that batch */
    uint64_t last_epoch, last_position; /* the loader's, at the last call */
    struct {
        uint64_t number;     /* UINT64_MAX: none */
        uint32_t file;       /* that has its first and its last sample; UINT32_MAX: none has both */
        uint64_t begin, end; /* bytes of the tokens of that file */
    } block;                 /* of the sample that the walk reached last */
    uint32_t cold_batches;   /* further batches that count as cold */
    uint64_t reads;          /* of this thread before the batch */
};

/* samples: borrowed. unit: 0, or that of ranges of remote files, which are within the blocks of
 * block_samples samples. */
void stk_token_prefetch_open(struct stk_token_prefetch *ahead,
                             const struct stk_token_samples *samples, uint32_t unit,
                             uint64_t block_samples);
/* Call them before and after making the batch at the cursor's position, on one thread. */
void stk_token_prefetch_begin(struct stk_token_prefetch *ahead, struct stk_order_cursor *cursor);
void stk_token_prefetch_end(struct stk_token_prefetch *ahead);

#endif
