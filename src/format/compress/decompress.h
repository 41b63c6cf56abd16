/* format/compress/decompress.h: decompresses gzip, zstd, bzip2 and xz streams, from front to back.
 *
 *   open(compression) -> run(in, out) -> ... -> end     concatenated streams are one input
 *        |-> set_builder: collects seek points   |-> start_at(seek point): begins there
 *
 * Zeros between and after streams are padding (xz: in units of 4, by its own rule). Any other
 * bytes that are no stream are STOKER_ERROR_CORRUPT. Skippable frames of zstd are skipped.
 * Pure: no I/O. Owner: the caller. Threads: one.
 * Memory: the library's window.
 * Bound: bytes_max out, ratio_max out/in, a window of 128 MiB (zstd), 256 MiB (xz). */
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

/* Returns the enum stk_compression of a file by its first bytes (at least 6). File names are not
 * used: they may be wrong. */
uint32_t stk_compression_detect(struct stk_view head);
/* Returns "plain", "gzip", "zstd", "bzip2" or "xz". */
const char *stk_compression_name(uint32_t compression);

struct stk_decompress;
struct stk_decompress_limits {
    uint64_t bytes_max;                   /* out; 0: 1 TiB */
    uint32_t ratio_max;                   /* out / in; 0: 1,100 */
    const struct stk_budget_hooks *grant; /* of the library's memory; borrowed; NULL: no budget */
};
/* compression: not STK_COMPRESSION_NONE. Returns 0, -ENOMEM, or STOKER_ERROR_BUDGET if the budget
 * refuses the memory; a later run can return that, too, for the window. */
int stk_decompress_open(struct stk_decompress **decompress_out, uint32_t compression,
                        const struct stk_decompress_limits *limits, struct stoker_error *error);
void stk_decompress_close(struct stk_decompress *decompress);
/* Takes bytes from *in, which is advanced, and writes *written_out bytes to out. `last`: no input
 * follows. Returns 1 if *in is used up or out is full, 0 at the end (out may have the last bytes),
 * or STOKER_ERROR_TRUNCATED  the input ended inside of a stream, STOKER_ERROR_CORRUPT    the data
 * is damaged, STOKER_ERROR_LIMIT      over bytes_max, ratio_max (after the first MiB) or the
 * window, STOKER_ERROR_UNSUPPORTED, STOKER_ERROR_BUDGET, -ENOMEM. error->offset counts compressed
 * bytes. After an error only close and the functions that describe the damage may be called;
 * *written_out then counts the bytes before the damage. */
int stk_decompress_run(struct stk_decompress *decompress, struct stk_view *in, bool last,
                       uint8_t *out, size_t out_bytes, size_t *written_out,
                       struct stoker_error *error);
/* After STOKER_ERROR_CORRUPT: the number of the last decompressed bytes whose checksum is wrong:
 * any of them may be damaged. 0: the structure was damaged, so all bytes before it are right. */
uint64_t stk_decompress_unverified_bytes(const struct stk_decompress *decompress);
/* True if all streams so far have checksums. (Frames of zstd may have none.) */
bool stk_decompress_has_checksum(const struct stk_decompress *decompress);
/* The number of streams (gzip members; frames of zstd, also skippable ones) that began. */
uint64_t stk_decompress_stream_count(const struct stk_decompress *decompress);
/* The number of compressed bytes before the stream, or the bzip2 block, that failed. It begins at
 * that byte, or inside of the byte before it. */
uint64_t stk_decompress_error_offset(const struct stk_decompress *decompress);

/* The result of the checksum at the end of a stream. */
enum stk_decompress_check {
    STK_DECOMPRESS_CHECK_NONE = 1, /* there is no checksum, or it is xz, where blocks have them */
    STK_DECOMPRESS_CHECK_OK,
    STK_DECOMPRESS_CHECK_MISMATCH,    /* the checksum, or the data, is damaged */
    STK_DECOMPRESS_CHECK_BAD_TRAILER, /* the checksum is right, another field of the end is not */
};
struct stk_decompress_end {
    uint64_t in, out;  /* compressed and decompressed bytes up to its end */
    uint64_t bytes;    /* decompressed bytes of this stream */
    uint32_t check;    /* enum stk_decompress_check */
    uint32_t checksum; /* zstd: the lower half of XXH64 of its data, even if the frame has none */
    bool size_matches; /* with MISMATCH: it has as many bytes as it states */
    bool skippable;    /* a skippable frame */
};
/* Call it before the first run. Each run then returns 1 where a stream ends, and a wrong checksum
 * or size there is no error. */
void stk_decompress_by_stream(struct stk_decompress *decompress);
/* Returns true and sets *ended if the last run ended a stream. */
bool stk_decompress_stream_end(const struct stk_decompress *decompress,
                               struct stk_decompress_end *ended);

/* Call it before the first run, for gzip and zstd. The builder receives all decompressed bytes, and
 * the seek points. It is borrowed until close. Returns 0 or -ENOMEM. */
int stk_decompress_set_builder(struct stk_decompress *decompress,
                               struct stk_seek_points_builder *builder, struct stoker_error *error);
/* Call it before the first run. Decompression begins at a seek point (which stk_seek_points_segment
 * accepted), and the input at byte point->in. The checksum of a member is not verified if the point
 * is inside of it. Returns 0, -ENOMEM, STOKER_ERROR_CORRUPT if zlib refuses the window, or
 * STOKER_ERROR_LIMIT if the point is behind bytes_max. */
int stk_decompress_start_at(struct stk_decompress *decompress, const struct stk_seek_point *point,
                            struct stk_view window, struct stoker_error *error);

#endif
