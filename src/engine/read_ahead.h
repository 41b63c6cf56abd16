/* engine/read_ahead.h: a file's bytes front to back, in big blocks, read ahead.
 *
 *   zeroed -init-> idle -start-> block, block, ... , empty -stop-> idle ... -deinit->
 *
 * What lies in memory is copied block by block; at the first cold block all further ones are asked
 * for ahead, past the page cache where the engine reads so.
 * An object of a store is asked for as a whole, by large ranges, where the budget has room for it.
 * Owner: one round of a job (verify, diff). Threads: one.
 * Memory: STK_READER_BYTES out of the engine's budget, from the first start to deinit.
 * Bound: STK_READ_AHEAD_BLOCKS reads in flight. */
#ifndef ENGINE_READ_AHEAD_H
#define ENGINE_READ_AHEAD_H

#include "engine/engine.h"

enum { STK_READ_AHEAD_BLOCK_BYTES = 1 << 20, STK_READ_AHEAD_BLOCKS = 4 };

struct stk_read_ahead_block {
    struct stk_read read;
    uint8_t *memory; /* owned; room for STK_READ_AHEAD_BLOCK_BYTES wherever they begin */
    bool in_flight;
};

struct stk_read_ahead {
    struct stoker_engine *engine; /* borrowed */
    struct stk_queue *queue;      /* owned; NULL: nothing was cold yet */
    struct stk_file *file;        /* owned; NULL: idle */
    uint64_t bytes;               /* of the file, as it was at start */
    uint64_t offset;              /* of the next block to lend */
    uint64_t requested;           /* all before it is lent or in flight */
    uint32_t first, waiting;      /* ring of blocks: the oldest that was asked for, how many */
    uint64_t reserved;            /* of the budget */
    struct stk_read_ahead_block blocks[STK_READ_AHEAD_BLOCKS];
};

void stk_read_ahead_init(struct stk_read_ahead *reader, struct stoker_engine *engine);
void stk_read_ahead_deinit(struct stk_read_ahead *reader); /* stops; zeroed is fine */
int stk_read_ahead_start(struct stk_read_ahead *reader, const char *path,
                         struct stoker_error *error);
/* The next block, lent until the next call; empty at the end. An error that is the file's has the
 * offset, and reading may only be stopped after it. */
int stk_read_ahead_next(struct stk_read_ahead *reader, struct stk_view *block_out,
                        struct stoker_error *error);
/* The next block begins there, up to `bytes`; what was asked for ahead is waited for and
 * dropped. */
int stk_read_ahead_seek(struct stk_read_ahead *reader, uint64_t offset, struct stoker_error *error);
void stk_read_ahead_stop(struct stk_read_ahead *reader);

#endif
