/* format/compress/decompress.h: gz, zstd, bz2 and xz streams to bytes, front to back.
 *
 *   open(kind) -> run(in, out) -> ... -> done       concatenated streams go on
 *        |-> mark(maker): collects access points      |-> start(point): from there on
 *
 * Between and after streams zeros are padding (xz: by its own rule of 4); anything else that is
 * no stream is CORRUPT. Skippable frames of zstd are skipped.
 * Pure: no I/O. Owner: the scanner. Threads: one. Memory: the library's window.
 * Bound: bytes_max out, ratio_max out/in, window 128 MiB (zstd), 256 MiB (xz). */
#ifndef FORMAT_COMPRESS_DECOMPRESS_H
#define FORMAT_COMPRESS_DECOMPRESS_H

#include "base/memory_budget.h"

struct stk_seek_points_builder;
struct stk_seek_point;

enum stk_compression {
    STK_COMPRESSION_NONE = 0,
    STK_COMPRESSION_GZIP,
    STK_COMPRESSION_ZSTD,
    STK_COMPRESSION_BZIP2,
    STK_COMPRESSION_XZ
};

/* By the first bytes (at least 6); names are not trusted. */
uint32_t stk_compression_detect(struct stk_view head);
/* "plain", "gzip", "zstd", "bzip2", "xz"; lent for ever. */
const char *stk_compression_name(uint32_t compression);

struct stk_decompress;
struct stk_decompress_limits {
    uint64_t bytes_max;                   /* out; 0: 1 TiB */
    uint32_t ratio_max;                   /* out / in; 0: 1,100 */
    const struct stk_budget_hooks *grant; /* of the library's memory, lent; NULL: nobody is asked */
};
/* packing: not plain. BUDGET: the grant said no; also at a later run, for the window. */
int stk_decompress_open(struct stk_decompress **decompress_out, uint32_t compression,
                        const struct stk_decompress_limits *limits, struct stoker_error *error);
void stk_decompress_close(struct stk_decompress *decompress);
/* Takes from *in (advanced), writes to out; *written_out bytes. 1: more may come: *in is used up
 * or out is full; 0: the end, maybe with the last bytes. `last`: no more input follows what *in
 * holds, so a stream that has not ended is TRUNCATED. LIMIT: bytes_max, ratio_max (after the
 * first MiB out) or the window. error->offset counts packed bytes. After a failure: only close, and
 * what is asked below; *written_out then counts what came before the damage. */
int stk_decompress_run(struct stk_decompress *decompress, struct stk_view *in, bool last,
                       uint8_t *out, size_t out_bytes, size_t *written_out,
                       struct stoker_error *error);
/* After CORRUPT: so many of the last bytes that were unpacked lie under a checksum that is wrong,
 * so any of them may be. 0: the damage showed in the structure, and where it begins. */
uint64_t stk_decompress_unverified_bytes(const struct stk_decompress *decompress);
/* Whether all streams so far have checksums: frames of zstd may have none. */
bool stk_decompress_has_checksum(const struct stk_decompress *decompress);
/* Streams (gzip members, frames of zstd, skippable ones too) that began. */
uint64_t stk_decompress_stream_count(const struct stk_decompress *decompress);
/* Packed bytes before the stream, or the bzip2 block, that failed: it begins in the byte before
 * that place, or there. */
uint64_t stk_decompress_error_offset(const struct stk_decompress *decompress);

/* What a stream's own end says of the bytes that it unpacked to. */
enum stk_decompress_check {
    STK_DECOMPRESS_CHECK_NONE =
        1, /* nothing: it has no checksum, or it is xz, where blocks have them */
    STK_DECOMPRESS_CHECK_OK,
    STK_DECOMPRESS_CHECK_MISMATCH,    /* the checksum is wrong: it was damaged, or the bytes were */
    STK_DECOMPRESS_CHECK_BAD_TRAILER, /* the checksum is right, and something else of the end is
                                         wrong */
};
struct stk_decompress_end {
    uint64_t in, out;  /* packed and unpacked bytes up to its end */
    uint64_t bytes;    /* unpacked, of this stream */
    uint32_t check;    /* enum stk_decompress_check */
    uint32_t checksum; /* zstd: the lower half of XXH64 of the bytes, if the frame has it or not */
    bool size_matches; /* WRONG: there are as many bytes as the stream says */
    bool skippable;    /* a skippable frame */
};
/* Before the first run: each run returns 1 where a stream ends, and a checksum or a size there that
 * is wrong is no failure. */
void stk_decompress_by_stream(struct stk_decompress *decompress);
/* True, and *ended: the last run ended a stream. */
bool stk_decompress_stream_end(const struct stk_decompress *decompress,
                               struct stk_decompress_end *ended);

/* Before the first run, gzip and zstd: what is unpacked is told to the maker, lent until close. */
int stk_decompress_set_builder(struct stk_decompress *decompress,
                               struct stk_seek_points_builder *builder, struct stoker_error *error);
/* Before the first run: it begins at a point (one that stk_seek_points_segment found good), and
 * what goes in with byte point->in. window: lent. The checksum of a member that is entered inside
 * is not looked at. CORRUPT: zlib refuses the window; LIMIT: it lies beyond bytes_max. */
int stk_decompress_start_at(struct stk_decompress *decompress, const struct stk_seek_point *point,
                            struct stk_view window, struct stoker_error *error);

#endif
