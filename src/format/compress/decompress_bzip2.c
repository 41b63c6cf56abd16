/* Decompression of bzip2 by bzlib. A block has at most 900 kB. */
#include "format/compress/decompress_private.h"

#include "base/mem.h"
#include "format/compress/library_allocator.h"

#include <bzlib.h>
#include <errno.h>
#include <string.h>

enum {
    STEP_BYTES = 64 << 10, /* of output: less than a block, so that a step enters one at most */
    HEAD_BYTES = 4,        /* "BZh9" */
    TAIL_BYTES = 11        /* the magic number of the end and the checksum, at any bit */
};
#define END_MAGIC UINT64_C(0x177245385090)

struct bzip2 {
    bz_stream stream;
    uint8_t tail[TAIL_BYTES]; /* the last compressed bytes of the stream */
};

static int open_bzip2(struct stk_decompress *decompress)
{
    struct bzip2 *bzip2 = decompress->state = stk_alloc(1, sizeof *bzip2);

    if (!bzip2) {
        return -ENOMEM;
    }
    bzip2->stream.bzalloc = stk_library_allocator_bzip2;
    bzip2->stream.bzfree = stk_budget_allocator_free;
    bzip2->stream.opaque = &decompress->memory;
    return BZ2_bzDecompressInit(&bzip2->stream, 0, 0) == BZ_OK ? 0 : -ENOMEM;
}

static void close_bzip2(struct stk_decompress *decompress)
{
    struct bzip2 *bzip2 = decompress->state;

    if (bzip2) {
        BZ2_bzDecompressEnd(&bzip2->stream);
        stk_free(bzip2);
    }
}

static int begin_bzip2(struct stk_decompress *decompress)
{
    struct bzip2 *bzip2 = decompress->state;

    memset(bzip2->tail, 0, sizeof bzip2->tail);
    if (!decompress->begun) {
        return 0;
    }
    BZ2_bzDecompressEnd(&bzip2->stream);
    return BZ2_bzDecompressInit(&bzip2->stream, 0, 0) == BZ_OK ? 0 : -ENOMEM;
}

/* True if the end of the stream was read, and its checksum is damaged. All blocks are right then,
 * by their own CRCs. */
static bool is_at_end(const struct bzip2 *bzip2)
{
    uint64_t first = 0;

    for (int i = 0; i < 8; i++) {
        first = first << 8 | bzip2->tail[i];
    }
    for (int padding = 0; padding < 8; padding++) { /* bits after the checksum */
        if ((first >> (8 + padding) & 0xffffffffffff) == END_MAGIC) {
            return true;
        }
    }
    return false;
}

static int step_bzip2(struct stk_decompress *decompress, struct stk_decompress_step *step)
{
    struct bzip2 *bzip2 = decompress->state;
    bz_stream *stream = &bzip2->stream;
    size_t taken;
    int result;

    /* A block is written completely before the next one is read, so that its CRC is known first. */
    step->draining = !decompress->flushed && step->in.bytes > 0;
    stream->next_in = (char *)(uintptr_t)step->in.data; /* bzlib only reads it */
    stream->avail_in = step->draining ? 0 : step->in.bytes;
    stream->next_out = (char *)step->out;
    stream->avail_out = step->out_bytes;
    result = BZ2_bzDecompress(stream);
    taken = step->draining ? 0 : step->in.bytes - stream->avail_in;
    if (taken > 0 && decompress->flushed) {
        decompress->verified_bytes = decompress->out_total;
        decompress->error_offset = stk_max(decompress->error_offset, decompress->in_total);
    }
    stk_decompress_keep_tail(bzip2->tail, sizeof bzip2->tail, step->in.data, taken);
    stk_decompress_advance(step, step->in.bytes - taken, stream->avail_out);
    switch (result) {
    case BZ_STREAM_END:
        return STK_DECOMPRESS_CHECK_OK;
    case BZ_OK:
        return 0;
    case BZ_MEM_ERROR:
        return -ENOMEM;
    default:
        if (decompress->by_stream && is_at_end(bzip2)) {
            return STK_DECOMPRESS_CHECK_BAD_TRAILER;
        }
        decompress->unverified = true;
        return STOKER_ERROR_CORRUPT;
    }
}

const struct stk_decompress_library stk_decompress_bzip2 = {
    .name = "bzip2",
    .step_bytes_max = STEP_BYTES,
    .head_bytes = HEAD_BYTES,
    .open = open_bzip2,
    .close = close_bzip2,
    .begin = begin_bzip2,
    .step = step_bzip2,
};
