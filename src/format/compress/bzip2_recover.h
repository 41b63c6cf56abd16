/* format/compress/bzip2_recover.h: finds the blocks of a damaged bzip2 file, and makes a stream of
 * each.
 *
 *   compressed bytes from any offset -find-> block | stream "BZh9", block, end | lost | stream ...
 *
 * A block begins with a magic number of 48 bits, at any bit, followed by its own CRC-32; it ends
 * where the next block or the end of the stream begins. So it can be decompressed without the data
 * before it, and decompressing the stream that is made of it verifies it. bzip2recover (of bzip2
 * 1.0.8) finds blocks in the same way. The format: the source of bzip2, and Joe Tsai, "BZIP2:
 * Format Specification". If data contains the magic number by chance (1 in 2^48), one block is
 * lost.
 * Pure. Owner: the shard reader. Threads: one.
 * Memory: STK_BZIP2_BLOCKS_BYTES_MAX, of the budget.
 * Bound: longer blocks are skipped. */
#ifndef FORMAT_COMPRESS_BZIP2_RECOVER_H
#define FORMAT_COMPRESS_BZIP2_RECOVER_H

#include "base/memory_budget.h"

/* A block has at most 900,001 symbols of at most 20 bits, and its tables some 40,000 bytes. */
#define STK_BZIP2_BLOCKS_BYTES_MAX (5u << 19)

struct stk_bzip2_blocks;

/* at: offset of the first byte in the file. grant: borrowed; NULL: no budget. Returns 0, -ENOMEM,
 * or STOKER_ERROR_BUDGET if the budget refuses the memory. */
int stk_bzip2_blocks_open(struct stk_bzip2_blocks **blocks_out, uint64_t at,
                          const struct stk_budget_hooks *grant, struct stoker_error *error);
void stk_bzip2_blocks_close(struct stk_bzip2_blocks *blocks);
/* Takes bytes from *in, which is advanced. Returns true and sets *stream_out to the next block as a
 * stream (valid until the next call) and *at_out to the byte of the file in which the block begins;
 * false if *in is used up. */
bool stk_bzip2_blocks_next(struct stk_bzip2_blocks *blocks, struct stk_view *in,
                           struct stk_view *stream_out, uint64_t *at_out);

#endif
