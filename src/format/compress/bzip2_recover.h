/* format/compress/bzip2_recover.h: the blocks of a damaged bzip2 file, each as a stream of its own.
 *
 *   packed bytes from any place on --find--> block | stream "BZh9", block, end | lost | stream ...
 *
 * A block begins with a magic of 48 bits, at any bit, and ends where the next one or the end of its
 * stream begins; its own CRC-32 follows the magic. So it can be unpacked without what is before
 * it, and whoever unpacks the stream that is made of it learns whether it is whole. This is how
 * bzip2recover (of bzip2 1.0.8) finds blocks; the format: its source, and Joe Tsai, "BZIP2: Format
 * Specification". By chance a magic lies in one of 2^48 places: it costs a block, never a byte.
 * Pure. Owner: a tape. Threads: one. Memory: STK_BZIP2_BLOCKS_BYTES_MAX, granted.
 * Bound: blocks longer than that are none. */
#ifndef FORMAT_COMPRESS_BZIP2_RECOVER_H
#define FORMAT_COMPRESS_BZIP2_RECOVER_H

#include "base/memory_budget.h"

/* A block has at most 900,001 symbols of at most 20 bits, and its tables some 40,000 bytes. */
#define STK_BZIP2_BLOCKS_BYTES_MAX (5u << 19)

struct stk_bzip2_blocks;

/* at: of the first byte, in the file. BUDGET: the grant (lent; NULL: nobody is asked) says no. */
int stk_bzip2_blocks_open(struct stk_bzip2_blocks **blocks_out, uint64_t at,
                          const struct stk_budget_hooks *grant, struct stoker_error *error);
void stk_bzip2_blocks_close(struct stk_bzip2_blocks *blocks);
/* Takes from *in (advanced). True: *stream_out is the next block as a stream, lent until the next
 * call, and *at_out the byte of the file in which the block begins. False: *in is used up. */
bool stk_bzip2_blocks_next(struct stk_bzip2_blocks *blocks, struct stk_view *in,
                           struct stk_view *stream_out, uint64_t *at_out);

#endif
