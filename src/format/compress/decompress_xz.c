/* Decompression of xz by liblzma, which reads concatenated streams and their padding itself: to the
 * caller they are one stream. It may use 256 MiB. */
#include "format/compress/decompress_private.h"

#include "base/mem.h"

#include <errno.h>
#include <lzma.h>

enum { MEMORY_MAX = 256 << 20 };

struct xz {
    lzma_stream stream;
    lzma_allocator memory;
};

static int open_xz(struct stk_decompress *decompress)
{
    struct xz *xz = decompress->state = stk_alloc(1, sizeof *xz);

    if (!xz) {
        return -ENOMEM;
    }
    xz->memory = (lzma_allocator){stk_budget_allocator_alloc, stk_budget_allocator_free,
                                  &decompress->memory};
    xz->stream.allocator = &xz->memory;
    decompress->between = false;
    decompress->streams = 1;
    return lzma_stream_decoder(&xz->stream, MEMORY_MAX, LZMA_CONCATENATED) == LZMA_OK ? 0 : -ENOMEM;
}

static void close_xz(struct stk_decompress *decompress)
{
    struct xz *xz = decompress->state;

    if (xz) {
        lzma_end(&xz->stream);
        stk_free(xz);
    }
}

static int step_xz(struct stk_decompress *decompress, struct stk_decompress_step *step)
{
    lzma_stream *stream = &((struct xz *)decompress->state)->stream;
    lzma_ret result;

    stream->next_in = step->in.data;
    stream->avail_in = step->in.bytes;
    stream->next_out = step->out;
    stream->avail_out = step->out_bytes;
    result = lzma_code(stream, step->last ? LZMA_FINISH : LZMA_RUN);
    stk_decompress_advance(step, stream->avail_in, stream->avail_out);
    switch ((int)result) {
    case LZMA_STREAM_END:
        decompress->done = true;
        return 0;
    case LZMA_OK:
    case LZMA_BUF_ERROR: /* the caller detects the lack of progress */
        return 0;
    case LZMA_MEM_ERROR:
        return -ENOMEM;
    case LZMA_MEMLIMIT_ERROR:
        step->detail = "it needs more than 256 MiB to decompress";
        return STOKER_ERROR_LIMIT;
    case LZMA_OPTIONS_ERROR:
        step->detail = "it uses a filter or a check that liblzma does not know";
        return STOKER_ERROR_UNSUPPORTED;
    default:
        /* liblzma does not report a wrong checksum of a block apart from other damage. */
        decompress->unverified = true;
        return STOKER_ERROR_CORRUPT;
    }
}

const struct stk_decompress_library stk_decompress_xz = {
    .name = "xz",
    .open = open_xz,
    .close = close_xz,
    .step = step_xz,
};
