/* Decompression of zstd frames by libzstd. Its window has at most 128 MiB. */
#include "format/compress/decompress_private.h"

#include "base/byte_order.h"
#include "base/mem.h"
#include "format/compress/library_allocator.h"

#include <errno.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* for a state that needs no allocation */
#include <xxhash.h>
#define ZSTD_STATIC_LINKING_ONLY /* for a DStream with our allocator */
#include <zstd.h>
#include <zstd_errors.h>

enum {
    WINDOW_LOG_MAX = 27, /* 128 MiB */
    CHECKSUM_FLAG = 4,   /* bits of a frame's descriptor (RFC 8878, 3.1.1.1.1) */
    SINGLE_FLAG = 0x20,
    SIZE_FLAGS = 0xc0,
    HEAD_BYTES = 5, /* of a frame, with its descriptor */
    CHECKSUM_BYTES = 4
};

struct zstd {
    ZSTD_DStream *stream;
    uint8_t head[HEAD_BYTES], tail[CHECKSUM_BYTES]; /* compressed bytes of the frame */
    size_t head_bytes;
    size_t hint;       /* the input that libzstd takes next */
    XXH64_state_t sum; /* of the frame's data, if by_stream */
};

static int open_zstd(struct stk_decompress *decompress)
{
    const ZSTD_customMem memory = {stk_library_allocator_zstd, stk_budget_allocator_free,
                                   &decompress->memory};
    struct zstd *zstd = decompress->state = stk_alloc(1, sizeof *zstd);

    if (!zstd) {
        return -ENOMEM;
    }
    zstd->stream = ZSTD_createDStream_advanced(memory);
    return zstd->stream && !ZSTD_isError(ZSTD_DCtx_setParameter(zstd->stream, ZSTD_d_windowLogMax,
                                                                WINDOW_LOG_MAX))
               ? 0
               : -ENOMEM;
}

static void close_zstd(struct stk_decompress *decompress)
{
    struct zstd *zstd = decompress->state;

    if (zstd) {
        ZSTD_freeDStream(zstd->stream);
        stk_free(zstd);
    }
}

static int begin_zstd(struct stk_decompress *decompress)
{
    struct zstd *zstd = decompress->state;

    zstd->head_bytes = 0;
    memset(zstd->tail, 0, sizeof zstd->tail);
    XXH64_reset(&zstd->sum, 0);
    return 0;
}

static void note_input(struct zstd *zstd, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes && zstd->head_bytes < HEAD_BYTES; i++) {
        zstd->head[zstd->head_bytes++] = data[i];
    }
    stk_decompress_keep_tail(zstd->tail, sizeof zstd->tail, data, bytes);
}

/* True if the descriptor of a frame with data was read. */
static bool is_frame(const struct zstd *zstd)
{
    return zstd->head_bytes == HEAD_BYTES && zstd->head[0] == 0x28;
}

/* Compares the checksum. (libzstd ignores it if by_stream: it would not report where the frame
 * ends.) */
static int check_frame(const struct stk_decompress *decompress)
{
    const struct zstd *zstd = decompress->state;
    const uint8_t *sum = zstd->tail;
    uint32_t stored = stk_little32(sum);

    if (!is_frame(zstd) || !(zstd->head[4] & CHECKSUM_FLAG)) {
        return STK_DECOMPRESS_CHECK_NONE;
    }
    if (!decompress->by_stream || stored == (uint32_t)XXH64_digest(&zstd->sum)) {
        return STK_DECOMPRESS_CHECK_OK;
    }
    return STK_DECOMPRESS_CHECK_MISMATCH;
}

static int step_zstd(struct stk_decompress *decompress, struct stk_decompress_step *step)
{
    struct zstd *zstd = decompress->state;
    ZSTD_inBuffer in = {step->in.data, step->in.bytes, 0};
    ZSTD_outBuffer out = {step->out, step->out_bytes, 0};
    size_t result;

    if (decompress->by_stream) { /* one block at a time, so that damage does not hide good blocks */
        step->draining = !decompress->flushed && in.size > 0;
        in.size = step->draining ? 0 : stk_min(in.size, stk_max(zstd->hint, HEAD_BYTES));
    }
    result = ZSTD_decompressStream(zstd->stream, &out, &in);
    zstd->hint = ZSTD_isError(result) ? 0 : result;
    note_input(zstd, step->in.data, in.pos);
    if (decompress->by_stream) {
        XXH64_update(&zstd->sum, step->out, out.pos);
    }
    stk_decompress_advance(step, step->in.bytes - in.pos, out.size - out.pos);
    decompress->lacks_checksum |= is_frame(zstd) && !(zstd->head[4] & CHECKSUM_FLAG);
    if (!ZSTD_isError(result)) {
        return result == 0 ? check_frame(decompress) : 0;
    }
    switch ((int)ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
        return -ENOMEM;
    case ZSTD_error_frameParameter_windowTooLarge:
        step->detail = "its window is larger than 128 MiB";
        return STOKER_ERROR_LIMIT;
    case ZSTD_error_dictionary_wrong:
        step->detail = "it needs a dictionary";
        return STOKER_ERROR_UNSUPPORTED;
    case ZSTD_error_checksum_wrong:
        decompress->unverified = true;
        return STOKER_ERROR_CORRUPT;
    default:
        return STOKER_ERROR_CORRUPT;
    }
}

static void describe_end_zstd(const struct stk_decompress *decompress,
                              struct stk_decompress_end *end)
{
    const struct zstd *zstd = decompress->state;

    end->skippable = (zstd->head[0] & 0xf0) == 0x50;
    /* libzstd compares the size if the frame states it. */
    end->size_matches = zstd->head[4] & (SIZE_FLAGS | SINGLE_FLAG);
    end->checksum = (uint32_t)XXH64_digest(&zstd->sum);
}

static void by_stream_zstd(struct stk_decompress *decompress)
{
    struct zstd *zstd = decompress->state;
    size_t result =
        ZSTD_DCtx_setParameter(zstd->stream, ZSTD_d_forceIgnoreChecksum, ZSTD_d_ignoreChecksum);

    STK_ASSERT(!ZSTD_isError(result));
}

const struct stk_decompress_library stk_decompress_zstd = {
    .name = "zstd",
    .has_seek_points = true,
    .open = open_zstd,
    .close = close_zstd,
    .begin = begin_zstd,
    .step = step_zstd,
    .describe_end = describe_end_zstd,
    .by_stream = by_stream_zstd,
};
