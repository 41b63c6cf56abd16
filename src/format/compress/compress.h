/* format/compress/compress.h: bytes to gz, zstd, bz2 and xz streams, the way back of decompress.h.
 *
 *   open(packing) -> run(in, out) -> ... -> run(last) -> the end
 *
 * The same input gives the same bytes, in any portions: no time, no name, one thread. With
 * frame_bytes the input is cut: a gzip member, bzip2 stream, xz block or zstd frame for each piece,
 * so that reading can begin at each; zstd then ends with a seek table
 * (format/compress/zstd_seek_table.h).
 * Pure: no I/O. Owner: repair. Threads: one.
 * Memory: the library's, at most 100 MiB (xz); of zstd in frames one frame, in and out.
 * Bound: STK_COMPRESS_FRAME_MAX. */
#ifndef FORMAT_COMPRESS_COMPRESS_H
#define FORMAT_COMPRESS_COMPRESS_H

#include "base/memory_budget.h"

#define STK_COMPRESS_FRAME_MIN (64u << 10)
#define STK_COMPRESS_FRAME_MAX (32u << 20)

struct stk_compress_options {
    uint32_t compression; /* enum stk_compression; not plain */
    int level;            /* 0: the library's own */
    uint64_t frame_bytes; /* 0: one stream; else it is brought within the bounds above */
    const struct stk_budget_hooks *grant; /* of the library's memory, lent; NULL: nobody is asked */
};

struct stk_compress;
int stk_compress_open(struct stk_compress **compress_out,
                      const struct stk_compress_options *options, struct stoker_error *error);
void stk_compress_close(struct stk_compress *compress); /* NULL is fine */
/* Where the output goes: so many bytes, `used` of them filled (out). */
struct stk_compress_output {
    uint8_t *data;
    size_t bytes, used;
};
/* Takes from *in (advanced), fills the room from its begin. 1: more may come: *in is used up or the
 * room is full; 0: the end, after `last` said that nothing follows *in. -ENOMEM; LIMIT: more frames
 * than a seek table counts. */
int stk_compress_run(struct stk_compress *compress, struct stk_view *in, bool last,
                     struct stk_compress_output *output, struct stoker_error *error);

/* The level that a stream's first bytes tell, as far as they do: 0 if not. */
int stk_compress_detect_level(uint32_t compression, struct stk_view head);

#endif
