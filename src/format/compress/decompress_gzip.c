/* Decompression of gzip by zlib. Its window has 32 KiB. Seek points inside of a member are between
 * two blocks: the window before them, and the bits of the last byte that belong to the next block.
 */
#include "format/compress/decompress_private.h"

#include "base/mem.h"
#include "format/compress/library_allocator.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

enum {
    GZIP_TRAILER_BYTES = 8, /* CRC-32 and size (RFC 1952, 2.3.1) */
    GZIP_SIZE_BYTES = 4
};

struct gzip {
    z_stream stream;
    uint8_t *window;     /* owned, with a builder: STK_SEEK_POINTS_WINDOW_BYTES */
    uint32_t prime_bits; /* of the first byte, if it begins inside of a member */
    uint32_t size_left;  /* bytes of a size, which is read after a wrong CRC */
    uint8_t size_text[GZIP_SIZE_BYTES];
    bool size_matches;
    bool headless; /* it began inside of this member */
};

static int open_gzip(struct stk_decompress *decompress)
{
    struct gzip *gzip = decompress->state = stk_alloc(1, sizeof *gzip);

    if (!gzip) {
        return -ENOMEM;
    }
    gzip->stream.zalloc = stk_library_allocator_gzip;
    gzip->stream.zfree = stk_budget_allocator_free;
    gzip->stream.opaque = &decompress->memory;
    return inflateInit2(&gzip->stream, 16 + MAX_WBITS) == Z_OK ? 0 : -ENOMEM; /* 16: gzip only */
}

static void close_gzip(struct stk_decompress *decompress)
{
    struct gzip *gzip = decompress->state;

    if (gzip) {
        inflateEnd(&gzip->stream);
        stk_free(gzip->window);
        stk_free(gzip);
    }
}

static int begin_gzip(struct stk_decompress *decompress)
{
    struct gzip *gzip = decompress->state;

    gzip->size_matches = false;
    return !decompress->begun || inflateReset2(&gzip->stream, 16 + MAX_WBITS) == Z_OK ? 0 : -ENOMEM;
}

static int step_gzip(struct stk_decompress *decompress, struct stk_decompress_step *step)
{
    struct gzip *gzip = decompress->state;
    z_stream *stream = &gzip->stream;
    bool bad_checksum, wrong_size;
    int result, check;

    stream->next_in = (uint8_t *)(uintptr_t)step->in.data; /* zlib only reads it */
    stream->avail_in = step->in.bytes;
    stream->next_out = step->out;
    stream->avail_out = step->out_bytes;
    result = inflate(stream, decompress->builder ? Z_BLOCK : Z_NO_FLUSH);
    stk_decompress_advance(step, stream->avail_in, stream->avail_out);
    switch (result) {
    case Z_STREAM_END:
        decompress->trailer_bytes = gzip->headless ? GZIP_TRAILER_BYTES : 0;
        check = gzip->headless ? STK_DECOMPRESS_CHECK_NONE : STK_DECOMPRESS_CHECK_OK;
        gzip->headless = false;
        return check;
    case Z_OK:
    case Z_BUF_ERROR: /* no input, or no space for output: not an error */
        return 0;
    case Z_MEM_ERROR:
        return -ENOMEM;
    default:
        /* zlib reports a wrong CRC, and a wrong size after a right CRC, by the message only. */
        bad_checksum = stream->msg && strcmp(stream->msg, "incorrect data check") == 0;
        wrong_size = stream->msg && strcmp(stream->msg, "incorrect length check") == 0;
        if (decompress->by_stream && wrong_size) {
            return STK_DECOMPRESS_CHECK_BAD_TRAILER;
        }
        gzip->size_left = decompress->by_stream && bad_checksum ? GZIP_SIZE_BYTES : 0;
        decompress->unverified = bad_checksum || wrong_size;
        return gzip->size_left > 0 ? 0 : STOKER_ERROR_CORRUPT;
    }
}

/* Compares the size after a wrong CRC-32 (RFC 1952, 2.3.1). If the size is right, no bytes were
 * lost or added, and the next stream is at its place. Returns 1, or 0: more input is needed. */
static int compare_size(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    struct gzip *gzip = decompress->state;
    uint32_t size = 0;

    for (; gzip->size_left > 0 && in->bytes > 0; gzip->size_left--) {
        gzip->size_text[GZIP_SIZE_BYTES - gzip->size_left] = in->data[0];
        stk_decompress_skip(decompress, in, 1);
    }
    if (gzip->size_left > 0) {
        return last ? STOKER_ERROR_TRUNCATED : 0;
    }
    for (uint32_t i = GZIP_SIZE_BYTES; i-- > 0;) {
        size = size << 8 | gzip->size_text[i];
    }
    gzip->size_matches = size == (uint32_t)(decompress->out_total - decompress->stream_out);
    stk_decompress_end_stream(decompress, STK_DECOMPRESS_CHECK_MISMATCH);
    return 1;
}

/* Takes the first byte after a start inside of a member: its upper bits belong to the next block.
 */
static int enter_block(struct stk_decompress *decompress, struct stk_view *in)
{
    struct gzip *gzip = decompress->state;
    uint32_t bits = gzip->prime_bits;

    if (in->bytes == 0) {
        return 1;
    }
    gzip->prime_bits = 0;
    if (inflatePrime(&gzip->stream, bits, in->data[0] >> (8 - bits)) != Z_OK) {
        return STOKER_ERROR_CORRUPT;
    }
    stk_decompress_skip(decompress, in, 1);
    return 1;
}

static int before_step_gzip(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    const struct gzip *gzip = decompress->state;

    if (gzip->size_left > 0) {
        return compare_size(decompress, in, last);
    }
    return gzip->prime_bits > 0 ? enter_block(decompress, in) : 1;
}

static void describe_end_gzip(const struct stk_decompress *decompress,
                              struct stk_decompress_end *end)
{
    end->size_matches = ((const struct gzip *)decompress->state)->size_matches;
}

static int collect_seek_points_gzip(struct stk_decompress *decompress)
{
    struct gzip *gzip = decompress->state;

    gzip->window = stk_alloc(STK_SEEK_POINTS_WINDOW_BYTES, 1);
    return gzip->window ? 0 : -ENOMEM;
}

static void add_seek_point_gzip(struct stk_decompress *decompress)
{
    struct gzip *gzip = decompress->state;
    unsigned window_bytes = 0;
    uint32_t bits = gzip->stream.data_type & 7;

    /* 128: between two blocks, 64: the last one is over, 7: bits left of the last byte taken. */
    if (decompress->between || (gzip->stream.data_type & (128 | 64)) != 128 ||
        !stk_seek_points_builder_is_due(decompress->builder, true)) {
        return;
    }
    if (inflateGetDictionary(&gzip->stream, gzip->window, &window_bytes) == Z_OK &&
        window_bytes > 0) {
        stk_seek_points_builder_add_point(decompress->builder, decompress->in_total - (bits > 0),
                                          bits, (struct stk_view){gzip->window, window_bytes});
    }
}

static int start_at_gzip(struct stk_decompress *decompress, const struct stk_seek_point *point,
                         struct stk_view window)
{
    struct gzip *gzip = decompress->state;
    int result;

    STK_ASSERT(point->bits < 8);
    if (inflateReset2(&gzip->stream, -MAX_WBITS) != Z_OK) {
        return -ENOMEM;
    }
    result = inflateSetDictionary(&gzip->stream, window.data, window.bytes);
    if (result != Z_OK) {
        return result == Z_MEM_ERROR ? -ENOMEM : STOKER_ERROR_CORRUPT;
    }
    gzip->prime_bits = point->bits;
    gzip->headless = true;
    return 0;
}

const struct stk_decompress_library stk_decompress_gzip = {
    .name = "gzip",
    .has_seek_points = true,
    .open = open_gzip,
    .close = close_gzip,
    .begin = begin_gzip,
    .step = step_gzip,
    .before_step = before_step_gzip,
    .describe_end = describe_end_gzip,
    .collect_seek_points = collect_seek_points_gzip,
    .add_seek_point = add_seek_point_gzip,
    .start_at = start_at_gzip,
};
