/* engine/read_ahead.h: reads a file from front to back in large blocks, ahead of the caller.
 *
 *   zeroed -init-> idle -start-> block, block, ... , empty -stop-> idle ... -deinit->
 *
 * Blocks in the page cache are copied one by one. At the first block that is not, all further ones
 * are requested ahead, with direct I/O if the engine uses it.
 * An object of a store is prefetched completely, by large ranges, if the budget has space for it.
 * Owner: one round of a job (verify, diff). Threads: one.
 * Memory: its blocks, from the engine's budget, from the first start to deinit.
 * Bound: STK_READ_AHEAD_BLOCKS reads in flight. */
#ifndef ENGINE_READ_AHEAD_H
#define ENGINE_READ_AHEAD_H

#include "engine/engine.h"

enum { STK_READ_AHEAD_BLOCK_BYTES = 1 << 20, STK_READ_AHEAD_BLOCKS = 4 };

struct stk_read_ahead_block {
    struct stk_read read;
    uint8_t *memory; /* owned; STK_READ_AHEAD_BLOCK_BYTES, and space to align them */
    bool in_flight;
};

struct stk_read_ahead {
    struct stoker_engine *engine; /* borrowed */
    struct stk_queue *queue;      /* owned; NULL: all blocks were in the page cache so far */
    struct stk_file *file;        /* owned; NULL: idle */
    uint64_t bytes;               /* of the file, as it was at start */
    uint64_t offset;              /* of the next block to return */
    uint64_t requested;           /* all before it is returned or in flight */
    uint32_t first, waiting;      /* ring of blocks: the oldest requested one, how many */
    uint64_t reserved;            /* in the budget */
    struct stk_read_ahead_block blocks[STK_READ_AHEAD_BLOCKS];
};

void stk_read_ahead_init(struct stk_read_ahead *reader, struct stoker_engine *engine);
void stk_read_ahead_deinit(
    struct stk_read_ahead *reader); /* stops first; a zeroed reader is allowed */
int stk_read_ahead_start(struct stk_read_ahead *reader, const char *path,
                         struct stoker_error *error);
/* Returns 0 and the next block, which is valid until the next call, and empty at the end of the
 * file; or an error, after which the reader may only be stopped. Errors of the file have its
 * offset. */
int stk_read_ahead_next(struct stk_read_ahead *reader, struct stk_view *block_out,
                        struct stoker_error *error);
/* Moves to an offset up to `bytes`. Waits for blocks that were requested ahead, and drops them. */
int stk_read_ahead_seek(struct stk_read_ahead *reader, uint64_t offset, struct stoker_error *error);
void stk_read_ahead_stop(struct stk_read_ahead *reader);

#endif
