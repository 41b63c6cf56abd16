/* format/compress/compress.h: compresses bytes as gzip, zstd, bzip2 or xz streams.
 *
 *   open(compression) -> run(in, out) -> ... -> run(last) -> the end
 *
 * The same input gives the same bytes, whatever portions it comes in: no time, no name, one
 * thread. With frame_bytes the input is cut into pieces: a gzip member, bzip2 stream, xz block or
 * zstd frame each, so that reading can begin at any of them; zstd then ends with a seek table
 * (format/compress/zstd_seek_table.h).
 * Pure: no I/O. Owner: repair. Threads: one.
 * Memory: the library's, at most 100 MiB (xz); zstd in frames: one frame, in and out.
 * Bound: STK_COMPRESS_FRAME_MAX. */
#ifndef FORMAT_COMPRESS_COMPRESS_H
#define FORMAT_COMPRESS_COMPRESS_H

#include "base/memory_budget.h"

#define STK_COMPRESS_FRAME_MIN (64u << 10)
#define STK_COMPRESS_FRAME_MAX (32u << 20)

struct stk_compress_options {
    uint32_t compression; /* enum stk_compression; not plain */
    int level;            /* 0: the library's own */
    uint64_t frame_bytes; /* 0: one stream; else it is limited to the bounds above */
    const struct stk_budget_hooks *grant; /* of the library's memory; borrowed; NULL: no budget */
};

struct stk_compress;
int stk_compress_open(struct stk_compress **compress_out,
                      const struct stk_compress_options *options, struct stoker_error *error);
void stk_compress_close(struct stk_compress *compress); /* NULL is allowed */
/* The buffer for the output; `used` is set. */
struct stk_compress_output {
    uint8_t *data;
    size_t bytes, used;
};
/* Takes bytes from *in, which is advanced, and fills the output from its begin. Returns 1 if *in is
 * used up or the output is full, 0 at the end, after `last` (no input follows *in), -ENOMEM, or
 * STOKER_ERROR_LIMIT if there are more frames than a seek table can count. */
int stk_compress_run(struct stk_compress *compress, struct stk_view *in, bool last,
                     struct stk_compress_output *output, struct stoker_error *error);

/* Returns the compression level that the first bytes of a stream show; 0: they do not. */
int stk_compress_detect_level(uint32_t compression, struct stk_view head);

#endif
