/* storage/range/block_reader.h: reads parts of objects through the node cache (storage/cache).
 *
 *   part --in the cache--> copied, verified --> ends
 *        `-not there--> flight of its block: memory --> turn --mine--> download --> copied to the
 *                                                        |             waiting parts --> written
 *                                                        |-busy: another process downloads it:
 * polls
 *                                                        `-refused: each part is a request
 *
 * All parts of a block that are wanted while it is downloaded wait for the same flight, and the
 * bytes reach them before they are written. If a process that downloads a block ends, another one
 * that waits takes the turn.
 * Owner: struct stk_vfs. Threads: any; up to STK_BLOCK_READER_THREADS of its own, which start with
 * the first part. Memory: a block for each flight, reserved in the budget. Bound: a part of the
 * budget; flights without memory wait. */
#ifndef STORAGE_RANGE_BLOCK_READER_H
#define STORAGE_RANGE_BLOCK_READER_H

#include "base/memory_budget.h"
#include "storage/range/range_read.h"

#define STK_BLOCK_READER_THREADS 16u

struct stk_block_reader;

/* Retains the cache. budget: NULL: without limit; it must outlive the reader. Returns 0 or -ENOMEM.
 */
int stk_block_reader_open(struct stk_block_reader **reader_out, struct stoker_cache *cache,
                          struct stk_budget *budget);
/* Takes reader; NULL is allowed. All parts have ended. store: of the flights; NULL: none. */
void stk_block_reader_close(struct stk_block_reader *reader, struct stk_store *store);

uint32_t stk_block_reader_block_bytes(const struct stk_block_reader *reader);
/* Sets reader and identity of a source if its object may be cached: it has a strong ETag, and its
 * bytes are not encrypted by a key of the user. */
void stk_block_reader_attach(struct stk_block_reader *reader, struct stk_store *store,
                             struct stk_range_source *source);
/* Starts a part of a read of a source with this reader. Never waits. */
void stk_block_reader_start(struct stk_block_reader *reader, struct stk_store *store,
                            struct stk_range_part *part);
/* Ends the waiting parts that are marked as cancelled. */
void stk_block_reader_cancel_marked(struct stk_block_reader *reader);
/* Reads bytes that are in the cache, on this thread. in_memory: only those in the page cache.
 * Returns 0, STOKER_ERROR_CORRUPT, or -EAGAIN if some are not there. The range is within the object
 * and not empty. */
int stk_block_reader_read_now(struct stk_range_source *source, struct stk_store *store,
                              uint64_t offset, uint8_t *buffer, uint64_t bytes, bool in_memory);

#endif
