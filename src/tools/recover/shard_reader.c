/* Reads the blocks of a shard, decompresses them, and continues after damage. */
#include "tools/recover/resume_points.h"

#include "base/mem.h"
#include "format/compress/compress.h"
#include "format/compress/decompress.h"
#include "format/tar/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 512, BUFFER_BYTES = 256 << 10 };
/* The maximum decompressed size of a zstd block (RFC 8878, 3.1.1.2.4). A block may also report
 * damage that began in the block before. */
#define ZSTD_BLOCK_BYTES UINT64_C(131072)
#define RATIO_FREE_BYTES (UINT64_C(1) << 20) /* as of decompress.c */

static int read_block(struct stk_shard_reader *shard_reader, struct stk_view *block_out,
                      struct stoker_error *error);
static int fill(struct stk_shard_reader *shard_reader, struct stoker_error *error);
static void end_gap(struct stk_shard_reader *shard_reader, uint64_t to, bool exact);
static int try_resume(struct stk_shard_reader *shard_reader, size_t *used,
                      struct stoker_error *error);
static int resume_from_magic(struct stk_shard_reader *shard_reader, struct stoker_error *error);

int stk_shard_reader_fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot decompress a shard", "free memory", "%d bytes",
                    BUFFER_BYTES);
}

int stk_shard_reader_reopen(struct stk_shard_reader *shard_reader, uint64_t done,
                            struct stoker_error *error)
{
    struct stk_decompress_limits limits = {
        .bytes_max = shard_reader->options.decompressed_bytes_max,
        .ratio_max = shard_reader->options.decompression_ratio_max,
        .grant = stk_engine_allocator(shard_reader->reader->engine)};
    int status;

    if (shard_reader->decompress) {
        shard_reader->streams_before = shard_reader->streams;
        stk_decompress_close(shard_reader->decompress);
        shard_reader->decompress = NULL;
    }
    if (shard_reader->blocks) {
        limits.ratio_max = UINT32_MAX; /* of all blocks, see run */
    }
    limits.bytes_max -= stk_min(limits.bytes_max - 1, done);
    shard_reader->opened_at = shard_reader->compressed_offset;
    status =
        stk_decompress_open(&shard_reader->decompress, shard_reader->compression, &limits, error);
    if (status == 0) {
        stk_decompress_by_stream(shard_reader->decompress);
    }
    return status;
}

int stk_shard_reader_start(struct stk_shard_reader *shard_reader, struct stk_read_ahead *reader,
                           const struct stk_shard_reader_options *options,
                           struct stoker_error *error)
{
    *shard_reader = (struct stk_shard_reader){.options = *options, .reader = reader};
    return read_block(shard_reader, &shard_reader->compressed, error);
}

/* Detects the compression by the first block. */
static int begin(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    int status;

    shard_reader->compression = stk_compression_detect(shard_reader->compressed);
    if (shard_reader->compression == STK_COMPRESSION_NONE) {
        return 0;
    }
    shard_reader->level =
        stk_compress_detect_level(shard_reader->compression, shard_reader->compressed);
    shard_reader->buffer = stk_alloc(BUFFER_BYTES, 1);
    shard_reader->more = 1;
    if (!shard_reader->buffer) {
        return stk_shard_reader_fail_memory(error);
    }
    status = stk_shard_reader_reopen(shard_reader, 0, error);
    stk_shard_reader_use_seek_table(shard_reader);
    return status < 0 ? status : stk_shard_reader_verify_start(shard_reader, error);
}

void stk_shard_reader_stop(struct stk_shard_reader *shard_reader)
{
    stk_decompress_close(shard_reader->decompress);
    stk_shard_reader_verify_stop(shard_reader);
    stk_bzip2_blocks_close(shard_reader->blocks);
    stk_free(shard_reader->buffer);
    shard_reader->blocks = NULL;
    shard_reader->decompress = NULL;
    shard_reader->buffer = NULL;
    shard_reader->ended = true;
}

/* The file's next block; empty at the end. */
static int read_block(struct stk_shard_reader *shard_reader, struct stk_view *block_out,
                      struct stoker_error *error)
{
    struct stk_view first;
    size_t again;
    int status;

    *block_out = (struct stk_view){0};
    shard_reader->stopped =
        shard_reader->stopped ||
        (shard_reader->options.stop &&
         atomic_load_explicit(shard_reader->options.stop, memory_order_relaxed));
    if (shard_reader->stopped) {
        return 0;
    }
    status = stk_read_ahead_next(shard_reader->reader, block_out, error);
    if (status < 0) {
        *block_out = (struct stk_view){0};
        return status;
    }
    first = *block_out; /* read for the first time: data at or after read_to */
    again = stk_min(first.bytes,
                    shard_reader->read_to -
                        stk_min(shard_reader->read_to, shard_reader->reader->offset - first.bytes));
    first.data += again;
    first.bytes -= again;
    shard_reader->read_to = stk_max(shard_reader->read_to, shard_reader->reader->offset);
    if (shard_reader->options.sha) {
        stk_sha256_add(shard_reader->options.sha, first.data, first.bytes);
    }
    if (shard_reader->options.counter) {
        atomic_fetch_add_explicit(shard_reader->options.counter, first.bytes, memory_order_relaxed);
    }
    return 0;
}

int stk_shard_reader_drain(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    struct stk_view block = {NULL, 1};
    int status = 0;

    while (status == 0 && block.bytes > 0) {
        status = read_block(shard_reader, &block, error);
    }
    return status;
}

int stk_shard_reader_next(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    int status = 0;

    shard_reader->offset += shard_reader->piece.bytes;
    shard_reader->piece = (struct stk_view){0};
    if (!shard_reader->ended && shard_reader->compression == STK_COMPRESSION_NONE &&
        shard_reader->compressed_offset == 0) {
        status = begin(shard_reader, error);
    }
    if (status < 0) {
        return status;
    }
    if (shard_reader->compression == STK_COMPRESSION_NONE && !shard_reader->ended) {
        shard_reader->piece = shard_reader->compressed;
        shard_reader->compressed = (struct stk_view){0};
        if (shard_reader->compressed_offset > 0) {
            status = read_block(shard_reader, &shard_reader->piece, error);
        }
        shard_reader->compressed_offset += shard_reader->piece.bytes;
    }
    while (status == 0 && shard_reader->compression != STK_COMPRESSION_NONE &&
           shard_reader->piece.bytes == 0 && !shard_reader->ended && !shard_reader->gap_ready) {
        status = fill(shard_reader, error);
    }
    if (status < 0) {
        return status;
    }
    if (shard_reader->piece.bytes > 0) {
        return STK_SHARD_READER_PIECE;
    }
    if (shard_reader->gap_ready) {
        shard_reader->gap_ready = false;
        if (shard_reader->gap.to == UINT64_MAX) {
            shard_reader->ended = true;
        } else {
            shard_reader->offset = shard_reader->gap.to;
        }
        return STK_SHARD_READER_GAP;
    }
    shard_reader->ended = true;
    return STK_SHARD_READER_END;
}

/* ---- decompression -------------------------------------------------------------------------- */

static bool is_last(const struct stk_shard_reader *shard_reader)
{
    return shard_reader->stopped || shard_reader->reader->offset >= shard_reader->reader->bytes;
}

/* Gets the next bytes to decompress, if there are any. */
static int refill(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    if (shard_reader->compressed.bytes > 0 || shard_reader->blocks) {
        return 0;
    }
    shard_reader->compressed = shard_reader->lookahead;
    shard_reader->lookahead = (struct stk_view){0};
    return shard_reader->compressed.bytes > 0 || is_last(shard_reader)
               ? 0
               : read_block(shard_reader, &shard_reader->compressed, error);
}

static void drop_compressed(struct stk_shard_reader *shard_reader, size_t bytes)
{
    shard_reader->compressed.data += bytes;
    shard_reader->compressed.bytes -= bytes;
    shard_reader->compressed_offset += bytes;
}

/* Searches the buffer for the first tar header, at any byte, since the offset of blocks after a gap
 * is unknown. Data before it is dropped; without a header, all but its possible start is dropped.
 */
static size_t align(struct stk_shard_reader *shard_reader, size_t used)
{
    size_t at = 0;

    while (at + BLOCK_BYTES <= used && !stk_tar_is_header(shard_reader->buffer + at)) {
        at++;
    }
    if (at + BLOCK_BYTES <= used) {
        end_gap(shard_reader, shard_reader->gap.from, false);
    }
    if (at > 0 && used > at) {
        memmove(shard_reader->buffer, shard_reader->buffer + at, used - at);
    }
    return used - at;
}

int stk_shard_reader_next_block(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    int status = 0;

    shard_reader->compressed = (struct stk_view){0};
    while (!stk_bzip2_blocks_next(shard_reader->blocks, &shard_reader->raw,
                                  &shard_reader->compressed, &shard_reader->compressed_offset)) {
        if (is_last(shard_reader)) {
            return 0;
        }
        status = read_block(shard_reader, &shard_reader->raw, error);
        if (status < 0) {
            return status;
        }
    }
    status = stk_shard_reader_reopen(shard_reader, shard_reader->bytes, error);
    shard_reader->more = 1;
    return status < 0 ? status : 1;
}

/* A block of bzip2 ended: the next one follows without a gap, if it is intact. */
static int resume_after_block(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    int status = 0;

    if (shard_reader->more == 0) {
        status = stk_shard_reader_next_block(shard_reader, error);
    } else if (shard_reader->more ==
               STOKER_ERROR_TRUNCATED) { /* what follows it is another block */
        shard_reader->more = shard_reader->failure.status = STOKER_ERROR_CORRUPT;
    }
    if (shard_reader->bytes > RATIO_FREE_BYTES &&
        shard_reader->bytes / shard_reader->options.decompression_ratio_max >
            shard_reader->reader->bytes) {
        shard_reader->more =
            stk_fail(&shard_reader->failure, STOKER_ERROR_LIMIT, "cannot decompress the shard",
                     "raise the limit if you trust the shard, or store it unpacked",
                     "bzip2: it decompresses to more than decompression_ratio_max times its size");
    }
    return status < 0 ? status : 0;
}

/* Runs the library once into the free space. */
static int run(struct stk_shard_reader *shard_reader, size_t *used, struct stoker_error *error)
{
    bool last =
        shard_reader->blocks || (is_last(shard_reader) && shard_reader->lookahead.bytes == 0);
    size_t before = shard_reader->compressed.bytes, got = 0, left_out;
    struct stk_decompress_end ended;
    int status;

    shard_reader->more = stk_decompress_run(shard_reader->decompress, &shard_reader->compressed,
                                            last, shard_reader->buffer + *used,
                                            BUFFER_BYTES - *used, &got, &shard_reader->failure);
    status = stk_shard_reader_verify(shard_reader,
                                     (struct stk_view){shard_reader->buffer + *used, got}, error);
    shard_reader->compressed_offset +=
        shard_reader->blocks ? 0 : before - shard_reader->compressed.bytes;
    shard_reader->bytes += got;
    shard_reader->streams =
        shard_reader->streams_before + stk_decompress_stream_count(shard_reader->decompress);
    shard_reader->no_checksum |= !stk_decompress_has_checksum(shard_reader->decompress);
    left_out = stk_min(shard_reader->skip, got);
    shard_reader->skip -= left_out;
    if (left_out > 0 && got > left_out) {
        memmove(shard_reader->buffer + *used, shard_reader->buffer + *used + left_out,
                got - left_out);
    }
    *used += got - left_out;
    if (shard_reader->aligning) {
        *used = align(shard_reader, *used);
    }
    if (status == 0 && stk_decompress_stream_end(shard_reader->decompress, &ended)) {
        status = stk_shard_reader_stream_ended(
            shard_reader, &ended, shard_reader->offset + *used + shard_reader->skip, error);
        if (shard_reader->position_unknown) { /* the next data may be at another offset */
            shard_reader->more =
                stk_fail(&shard_reader->failure, STOKER_ERROR_CORRUPT,
                         "cannot decompress the shard", "copy the shard again or leave it out",
                         "%s: a checksum is wrong, and the end of its data is not certain",
                         stk_compression_name(shard_reader->compression));
        }
    }
    return status == 0 && shard_reader->blocks ? resume_after_block(shard_reader, error) : status;
}

/* Fills the buffer with the next piece of complete blocks (the last may be shorter), or a gap. */
static int fill(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    size_t used = shard_reader->carried_bytes;
    int status = 0;

    shard_reader->carried_bytes = 0;
    while (shard_reader->more == 1 && used < BUFFER_BYTES && !shard_reader->stopped) {
        status = refill(shard_reader, error);
        status = status < 0 ? status : run(shard_reader, &used, error);
        if (status < 0) {
            return status;
        }
        if (shard_reader->gap_ready) { /* the gap first, then what follows it */
            shard_reader->carried_bytes = used;
            return 0;
        }
    }
    if (shard_reader->more == -ENOMEM || shard_reader->more == STOKER_ERROR_BUDGET) {
        *error = shard_reader->failure;
        return shard_reader->more;
    }
    if (shard_reader->more < 0) {
        status = try_resume(shard_reader, &used, error);
    } else if (shard_reader->more == 0 &&
               shard_reader->gap_open) { /* no header followed any more */
        end_gap(shard_reader, UINT64_MAX, false);
        used = 0;
    }
    shard_reader->ended = shard_reader->ended || shard_reader->more == 0 || shard_reader->stopped;
    shard_reader->piece = (struct stk_view){shard_reader->buffer, used};
    return status;
}

/* ---- over damage ------------------------------------------------------------------------ */

/* Sets the end of the gap. */
static void end_gap(struct stk_shard_reader *shard_reader, uint64_t to, bool exact)
{
    struct stk_shard_gap *gap = &shard_reader->gap;
    char text[96] = ", and the data up to the next resume point is lost";

    gap->to = to;
    gap->exact = exact;
    shard_reader->inexact = shard_reader->inexact || !exact;
    shard_reader->gap_open = shard_reader->aligning = false;
    shard_reader->gap_ready = true;
    shard_reader->floor = to;
    if (to == UINT64_MAX) {
        snprintf(text, sizeof text, ", and the rest is lost");
    } else if (exact) {
        snprintf(text, sizeof text, ", and %llu bytes are lost with it",
                 (unsigned long long)(to - gap->from));
    }
    if (gap->doubted_from < gap->from) {
        snprintf(text, sizeof text, ", and nothing else verifies %llu bytes of the tar",
                 (unsigned long long)(gap->from - gap->doubted_from));
    }
    strncat(gap->error.what, text, sizeof gap->error.what - strlen(gap->error.what) - 1);
    if (gap->trusted_end < gap->doubted_from) {
        snprintf(text, sizeof text, "; no checksum verifies the %llu bytes before",
                 (unsigned long long)(gap->doubted_from - gap->trusted_end));
        strncat(gap->error.what, text, sizeof gap->error.what - strlen(gap->error.what) - 1);
    }
}

/* Sets trusted_end and doubted_from of the gap. end: of all decompressed data; summed: data that
 * was compared with the index ends here. */
static void open_gap(struct stk_shard_reader *shard_reader, uint64_t from, uint64_t end,
                     bool summed)
{
    uint64_t stream_bytes = end - stk_min(shard_reader->floor, end); /* since the last gap */
    uint64_t doubted = stk_decompress_unverified_bytes(shard_reader->decompress), unsure;
    struct stk_decompress_end now;

    (void)stk_decompress_stream_end(shard_reader->decompress, &now);
    doubted = shard_reader->position_unknown ? now.bytes : doubted;
    unsure = shard_reader->compression == STK_COMPRESSION_BZIP2
                 ? doubted
                 : now.bytes; /* each of its blocks has a CRC */
    if (summed) { /* all before the last point is verified, and the data after it is not */
        doubted = unsure = stk_shard_reader_unverified_bytes(shard_reader);
    } else if (shard_reader->compression == STK_COMPRESSION_ZSTD &&
               shard_reader->more == STOKER_ERROR_CORRUPT && doubted == 0) {
        doubted = stk_min(ZSTD_BLOCK_BYTES, now.bytes);
    }
    shard_reader->gap = (struct stk_shard_gap){
        .from = from, .error = shard_reader->failure, .verified = summed && doubted == 0};
    shard_reader->gap.error.offset = shard_reader->compressed_offset;
    shard_reader->gap.doubted_from = stk_min(end - stk_min(doubted, stream_bytes), from);
    shard_reader->gap.trusted_end =
        stk_min(end - stk_min(unsure, stream_bytes), shard_reader->gap.doubted_from);
    shard_reader->gap_open = true;
}

static int try_resume(struct stk_shard_reader *shard_reader, size_t *used,
                      struct stoker_error *error)
{
    bool summed = shard_reader->verification.proving && shard_reader->more == STOKER_ERROR_CORRUPT;
    uint64_t end = shard_reader->offset + *used;
    int number = shard_reader->more, status = 0;

    *used = *used / BLOCK_BYTES * BLOCK_BYTES;
    if (!shard_reader->gap_open) {
        open_gap(shard_reader, shard_reader->offset + *used, end, summed);
    }
    if (summed) {
        (void)stk_xxh3_done(shard_reader->verification.sum);
    }
    shard_reader->verification.proving =
        false; /* until a resume point is found, as for the seek table */
    shard_reader->table.comparing = shard_reader->position_unknown = false;
    if (number == STOKER_ERROR_CORRUPT) {
        status = stk_shard_reader_resume_from_index(shard_reader, error);
        status =
            status != 0 ? status : stk_shard_reader_resume_from_seek_table(shard_reader, error);
        status = status != 0 ? status : stk_shard_reader_resume_from_blocks(shard_reader, error);
        status = status != 0 || shard_reader->compression == STK_COMPRESSION_BZIP2
                     ? status
                     : resume_from_magic(shard_reader, error);
    }
    if (status == 0) {
        shard_reader->more = 0;
        end_gap(shard_reader, UINT64_MAX, false);
    }
    return status < 0 ? status : 0;
}

int stk_shard_reader_skip_to(struct stk_shard_reader *shard_reader, uint64_t to,
                             struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && shard_reader->compressed_offset < to) {
        status = refill(shard_reader, error);
        if (status < 0 || shard_reader->compressed.bytes == 0) {
            break;
        }
        drop_compressed(shard_reader, stk_min(shard_reader->compressed.bytes,
                                              to - shard_reader->compressed_offset));
    }
    return status;
}

void stk_shard_reader_resume_at(struct stk_shard_reader *shard_reader, uint64_t in, uint64_t out)
{
    uint64_t to = stk_round_up(out, BLOCK_BYTES);

    shard_reader->tried_offset = in + 1;
    shard_reader->skip = to - out;
    shard_reader->more = 1;
    /* Damaged data may decompress to more than the original. */
    end_gap(shard_reader, stk_max(to, shard_reader->gap.from), to >= shard_reader->gap.from);
}

/* Whether a stream may begin at these bytes. Skippable frames of zstd are no hold. */
static bool is_stream_start(const struct stk_shard_reader *shard_reader,
                            const uint8_t look[STK_SHARD_READER_MAGIC_BYTES])
{
    return stk_compression_detect((struct stk_view){look, STK_SHARD_READER_MAGIC_BYTES}) ==
               shard_reader->compression &&
           (shard_reader->compression != STK_COMPRESSION_ZSTD || look[0] == 0x28);
}

/* Fills `compressed` and `lookahead` with enough bytes for a check, if the file has them. */
static int look_ahead(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    int status = refill(shard_reader, error);

    if (status < 0 || shard_reader->compressed.bytes >= STK_SHARD_READER_MAGIC_BYTES ||
        shard_reader->lookahead.bytes > 0 || is_last(shard_reader)) {
        return status;
    }
    memmove(shard_reader->carry, shard_reader->compressed.data, shard_reader->compressed.bytes);
    shard_reader->compressed.data = shard_reader->carry;
    return read_block(shard_reader, &shard_reader->lookahead, error);
}

/* Returns 1 at a place where a stream may begin; 0: there is none. */
static int search_magic(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    for (;;) {
        int status = look_ahead(shard_reader, error);
        size_t count = shard_reader->compressed.bytes, at = 0;

        if (status < 0 || count + shard_reader->lookahead.bytes < STK_SHARD_READER_MAGIC_BYTES) {
            return status;
        }
        count = shard_reader->lookahead.bytes >= STK_SHARD_READER_MAGIC_BYTES - 1 ? count
                : count >= STK_SHARD_READER_MAGIC_BYTES ? count - STK_SHARD_READER_MAGIC_BYTES + 1
                                                        : 1;
        for (; at < count; at++) {
            uint8_t look[STK_SHARD_READER_MAGIC_BYTES];

            for (size_t i = 0; i < sizeof look; i++) {
                look[i] =
                    at + i < shard_reader->compressed.bytes
                        ? shard_reader->compressed.data[at + i]
                        : shard_reader->lookahead.data[at + i - shard_reader->compressed.bytes];
            }
            if (is_stream_start(shard_reader, look)) {
                break;
            }
        }
        drop_compressed(shard_reader, at);
        if (at < count) {
            return 1;
        }
    }
}

/* Returns 1 if it continues where a stream may begin; its data is used from the first tar header
 * on. */
static int resume_from_magic(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    int status = stk_shard_reader_skip_to(shard_reader, shard_reader->tried_offset, error);

    if (shard_reader->tries++ >= STK_SHARD_READER_TRIES_MAX) {
        return 0;
    }
    status = status < 0 ? status : search_magic(shard_reader, error);
    if (status <= 0) {
        return status;
    }
    shard_reader->tried_offset = shard_reader->compressed_offset + 1;
    status = stk_shard_reader_reopen(shard_reader, shard_reader->bytes, error);
    shard_reader->aligning = true;
    shard_reader->skip = 0;
    shard_reader->more = 1;
    return status < 0 ? status : 1;
}
