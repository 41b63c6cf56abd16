/* Bytes to compressed streams: one loop over four libraries. With zstd in frames the input of a
 * frame is gathered first, so that its header has its size. */
#include "format/compress/compress.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "format/compress/decompress.h"
#include "format/compress/library_allocator.h"
#include "format/compress/zstd_seek_table.h"

#include <bzlib.h>
#include <errno.h>
#include <lzma.h>
#include <string.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* for a context that allocates by us */
#include <zstd.h>

enum { STEP_BYTES_MAX = 1 << 30 /* zlib and bzlib count in 32 bits */, FRAMES_FIRST = 64 };

enum state {
    COMPRESSING = 0, /* input is taken */
    DRAINING,        /* zstd in frames: `held` is written, then PACKING or TABLE */
    TABLE,           /* the same of the seek table, then DONE */
    DONE
};

struct stk_compress {
    struct stk_compress_options options;
    uint32_t state;   /* enum state */
    bool is_open;     /* the library was set up */
    bool fresh;       /* the stream in work has got nothing yet, and is not the first */
    bool last;        /* no input follows the bytes in `gathered` */
    uint64_t in_left; /* of the current frame */
    /* zstd in frames: */
    uint8_t *gathered, *held; /* owned: the input of a frame; its output */
    size_t gathered_bytes, held_at, held_bytes, held_capacity;
    uint8_t *table; /* owned: entries so far */
    uint32_t frame_count, frame_capacity;
    struct stk_budget_allocator memory; /* of the library */
    lzma_allocator xz_memory;
    union {
        z_stream gzip;
        ZSTD_CCtx *zstd;
        bz_stream bzip2;
        lzma_stream xz;
    } of;
};

/* Input and output of one step of a library. */
struct step {
    struct stk_view in;
    uint8_t *out;
    size_t out_bytes;
    bool end; /* the stream (or block of xz) ends with this input */
};

static int set_up(struct stk_compress *compress);

static int no_memory(const struct stk_compress *compress, struct stoker_error *error)
{
    return compress && compress->memory.refused
               ? stk_fail(error, STOKER_ERROR_BUDGET,
                          "the memory budget is too small to compress a shard",
                          "grant more memory, or fewer threads", "packer")
               : stk_fail(error, -ENOMEM, "no memory to pack a shard", "free memory", "packer");
}

static bool is_framed_zstd(const struct stk_compress *compress)
{
    return compress->options.compression == STK_COMPRESSION_ZSTD &&
           compress->options.frame_bytes > 0;
}

int stk_compress_open(struct stk_compress **compress_out,
                      const struct stk_compress_options *options, struct stoker_error *error)
{
    struct stk_compress *compress = stk_alloc(1, sizeof *compress);
    uint64_t frame = options->frame_bytes;

    STK_ASSERT(options->compression > STK_COMPRESSION_NONE &&
               options->compression <= STK_COMPRESSION_XZ);
    *compress_out = NULL;
    if (!compress) {
        return no_memory(NULL, error);
    }
    compress->options = *options;
    compress->memory.grant = options->grant;
    if (frame > 0) {
        frame = stk_min(stk_max(frame, STK_COMPRESS_FRAME_MIN), STK_COMPRESS_FRAME_MAX);
    }
    compress->options.frame_bytes = frame;
    compress->in_left = frame ? frame : UINT64_MAX;
    compress->is_open = set_up(compress) == 0;
    if (compress->is_open && is_framed_zstd(compress)) {
        compress->held_capacity = ZSTD_compressBound(frame);
        compress->gathered = stk_budget_allocator_alloc(&compress->memory, frame, 1);
        compress->held = stk_budget_allocator_alloc(&compress->memory, compress->held_capacity, 1);
    }
    if (!compress->is_open ||
        (is_framed_zstd(compress) && (!compress->gathered || !compress->held))) {
        int status = no_memory(compress, error);

        stk_compress_close(compress);
        return status;
    }
    *compress_out = compress;
    return 0;
}

void stk_compress_close(struct stk_compress *compress)
{
    if (!compress) {
        return;
    }
    if (compress->is_open) {
        switch (compress->options.compression) {
        case STK_COMPRESSION_GZIP:
            deflateEnd(&compress->of.gzip);
            break;
        case STK_COMPRESSION_ZSTD:
            ZSTD_freeCCtx(compress->of.zstd);
            break;
        case STK_COMPRESSION_BZIP2:
            BZ2_bzCompressEnd(&compress->of.bzip2);
            break;
        default:
            lzma_end(&compress->of.xz);
        }
    }
    stk_budget_allocator_free(&compress->memory, compress->gathered);
    stk_budget_allocator_free(&compress->memory, compress->held);
    stk_free(compress->table);
    stk_free(compress);
}

/* ---- the libraries ---- */

static int set_up(struct stk_compress *compress)
{
    const ZSTD_customMem zstd_memory = {stk_library_allocator_zstd, stk_budget_allocator_free,
                                        &compress->memory};
    int level = compress->options.level;
    bool ok;

    switch (compress->options.compression) {
    case STK_COMPRESSION_GZIP: /* 16: gzip; its header then has no name and no time (RFC 1952, 2.3)
                                */
        compress->of.gzip.zalloc = stk_library_allocator_gzip;
        compress->of.gzip.zfree = stk_budget_allocator_free;
        compress->of.gzip.opaque = &compress->memory;
        ok = deflateInit2(&compress->of.gzip, level ? level : Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                          16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK;
        break;
    case STK_COMPRESSION_ZSTD:
        compress->of.zstd = ZSTD_createCCtx_advanced(zstd_memory);
        ok = compress->of.zstd &&
             !ZSTD_isError(
                 ZSTD_CCtx_setParameter(compress->of.zstd, ZSTD_c_compressionLevel, level)) &&
             !ZSTD_isError(ZSTD_CCtx_setParameter(compress->of.zstd, ZSTD_c_checksumFlag, 1));
        if (!ok) {
            ZSTD_freeCCtx(compress->of.zstd);
        }
        break;
    case STK_COMPRESSION_BZIP2:
        compress->of.bzip2.bzalloc = stk_library_allocator_bzip2;
        compress->of.bzip2.bzfree = stk_budget_allocator_free;
        compress->of.bzip2.opaque = &compress->memory;
        ok = BZ2_bzCompressInit(&compress->of.bzip2, level ? level : 9, 0, 0) == BZ_OK;
        break;
    default:
        compress->xz_memory = (lzma_allocator){stk_budget_allocator_alloc,
                                               stk_budget_allocator_free, &compress->memory};
        compress->of.xz.allocator = &compress->xz_memory;
        ok = lzma_easy_encoder(&compress->of.xz, level ? (uint32_t)level : LZMA_PRESET_DEFAULT,
                               LZMA_CHECK_CRC64) == LZMA_OK;
    }
    return ok ? 0 : -ENOMEM;
}

/* The next member or stream. */
static int begin_stream(struct stk_compress *compress)
{
    int level = compress->options.level;
    bool ok = true;

    compress->fresh = false;
    if (compress->options.compression == STK_COMPRESSION_GZIP) {
        ok = deflateReset(&compress->of.gzip) == Z_OK;
    } else if (compress->options.compression == STK_COMPRESSION_BZIP2) {
        BZ2_bzCompressEnd(&compress->of.bzip2);
        ok = BZ2_bzCompressInit(&compress->of.bzip2, level ? level : 9, 0, 0) == BZ_OK;
        compress->is_open = ok;
    }
    return ok ? 0 : -ENOMEM;
}

static void advance(struct step *step, size_t in_left, size_t out_left)
{
    step->in.data += step->in.bytes - in_left;
    step->in.bytes = in_left;
    step->out += step->out_bytes - out_left;
    step->out_bytes = out_left;
}

/* Returns 1 if the requested end is reached and all output is written. */
static int gzip_step(struct stk_compress *compress, struct step *step)
{
    z_stream *stream = &compress->of.gzip;
    int result;

    stream->next_in = (uint8_t *)(uintptr_t)step->in.data; /* zlib only reads it */
    stream->avail_in = step->in.bytes;
    stream->next_out = step->out;
    stream->avail_out = step->out_bytes;
    result = deflate(stream, step->end ? Z_FINISH : Z_NO_FLUSH);
    advance(step, stream->avail_in, stream->avail_out);
    return result == Z_STREAM_END ? 1 : result == Z_OK || result == Z_BUF_ERROR ? 0 : -ENOMEM;
}

static int zstd_step(struct stk_compress *compress, struct step *step)
{
    ZSTD_inBuffer in = {step->in.data, step->in.bytes, 0};
    ZSTD_outBuffer out = {step->out, step->out_bytes, 0};
    /* The end is a call of its own: with all of the input it would make another header. */
    bool end = step->end && step->in.bytes == 0;
    size_t left =
        ZSTD_compressStream2(compress->of.zstd, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);

    advance(step, in.size - in.pos, out.size - out.pos);
    return ZSTD_isError(left) ? -ENOMEM : end && left == 0;
}

static int bzip2_step(struct stk_compress *compress, struct step *step)
{
    bz_stream *stream = &compress->of.bzip2;
    int result;

    stream->next_in = (char *)(uintptr_t)step->in.data; /* bzlib only reads it */
    stream->avail_in = step->in.bytes;
    stream->next_out = (char *)step->out;
    stream->avail_out = step->out_bytes;
    /* BZ_RUN without input is an error of sequence. */
    result = step->end             ? BZ2_bzCompress(stream, BZ_FINISH)
             : step->in.bytes == 0 ? BZ_RUN_OK
                                   : BZ2_bzCompress(stream, BZ_RUN);
    advance(step, stream->avail_in, stream->avail_out);
    return result == BZ_STREAM_END                         ? 1
           : result == BZ_RUN_OK || result == BZ_FINISH_OK ? 0
                                                           : -ENOMEM;
}

/* final: the stream ends, not only its block. */
static int xz_step(struct stk_compress *compress, struct step *step, bool final)
{
    lzma_stream *stream = &compress->of.xz;
    lzma_ret result;

    stream->next_in = step->in.data;
    stream->avail_in = step->in.bytes;
    stream->next_out = step->out;
    stream->avail_out = step->out_bytes;
    result = lzma_code(stream, final ? LZMA_FINISH : step->end ? LZMA_FULL_FLUSH : LZMA_RUN);
    advance(step, stream->avail_in, stream->avail_out);
    return result == LZMA_STREAM_END                       ? 1
           : result == LZMA_OK || result == LZMA_BUF_ERROR ? 0
                                                           : -ENOMEM;
}

static int run_step(struct stk_compress *compress, struct step *step, bool final)
{
    switch (compress->options.compression) {
    case STK_COMPRESSION_GZIP:
        return gzip_step(compress, step);
    case STK_COMPRESSION_ZSTD:
        return zstd_step(compress, step);
    case STK_COMPRESSION_BZIP2:
        return bzip2_step(compress, step);
    default:
        return xz_step(compress, step, final);
    }
}

/* ---- zstd in frames ---- */

static int remember_frame(struct stk_compress *compress, size_t packed_bytes)
{
    if (compress->frame_count == compress->frame_capacity) {
        uint32_t capacity = compress->frame_capacity ? 2 * compress->frame_capacity : FRAMES_FIRST;
        uint8_t *table = stk_realloc(compress->table, compress->frame_capacity, capacity, 8);

        if (compress->frame_count >= STK_ZSTD_SEEK_TABLE_FRAMES_MAX) {
            return STOKER_ERROR_LIMIT;
        }
        if (!table) {
            return -ENOMEM;
        }
        compress->table = table;
        compress->frame_capacity = capacity;
    }
    stk_zstd_seek_table_write_entry((uint32_t)packed_bytes, (uint32_t)compress->gathered_bytes,
                                    compress->table + 8ull * compress->frame_count++);
    return 0;
}

/* The table, in one piece: `held` becomes as large as that takes. */
static int hold_table(struct stk_compress *compress)
{
    size_t entries = 8ull * compress->frame_count;
    size_t bytes = STK_ZSTD_SEEK_TABLE_HEAD_BYTES + entries + STK_ZSTD_SEEK_TABLE_FOOTER_BYTES;

    if (bytes > compress->held_capacity) {
        uint8_t *held = stk_budget_allocator_alloc(&compress->memory, bytes, 1);

        if (!held) {
            return -ENOMEM;
        }
        stk_budget_allocator_free(&compress->memory, compress->held);
        compress->held = held;
        compress->held_capacity = bytes;
    }
    stk_zstd_seek_table_write_head(compress->frame_count, compress->held);
    if (entries > 0) {
        memcpy(compress->held + STK_ZSTD_SEEK_TABLE_HEAD_BYTES, compress->table, entries);
    }
    stk_zstd_seek_table_write_footer(compress->frame_count,
                                     compress->held + STK_ZSTD_SEEK_TABLE_HEAD_BYTES + entries);
    compress->held_at = 0;
    compress->held_bytes = bytes;
    compress->state = TABLE;
    return 0;
}

static int compress_frame(struct stk_compress *compress)
{
    size_t bytes = ZSTD_compress2(compress->of.zstd, compress->held, compress->held_capacity,
                                  compress->gathered, compress->gathered_bytes);
    int status = ZSTD_isError(bytes) ? -ENOMEM : remember_frame(compress, bytes);

    compress->held_at = 0;
    compress->held_bytes = bytes;
    compress->gathered_bytes = 0;
    compress->state = DRAINING;
    return status;
}

/* Takes input or writes output; the end sets DONE. */
static int frame_step(struct stk_compress *compress, struct stk_view *in, bool last,
                      struct step *step)
{
    size_t part;

    if (compress->state == COMPRESSING) {
        part = stk_min(in->bytes, compress->options.frame_bytes - compress->gathered_bytes);
        if (part > 0) {
            memcpy(compress->gathered + compress->gathered_bytes, in->data, part);
        }
        compress->gathered_bytes += part;
        in->data += part;
        in->bytes -= part;
        compress->last = last && in->bytes == 0;
        if (compress->gathered_bytes == compress->options.frame_bytes ||
            (compress->last && compress->gathered_bytes > 0)) {
            return compress_frame(compress);
        }
        return compress->last ? hold_table(compress) : 0;
    }
    part = stk_min(step->out_bytes, compress->held_bytes - compress->held_at);
    memcpy(step->out, compress->held + compress->held_at, part);
    step->out += part;
    step->out_bytes -= part;
    compress->held_at += part;
    if (compress->held_at < compress->held_bytes) {
        return 0;
    }
    if (compress->state == TABLE) {
        compress->state = DONE;
        return 0;
    }
    compress->state = COMPRESSING;
    return compress->last ? hold_table(compress) : 0;
}

/* ---- the rest ---- */

/* Takes input or writes output; the end sets DONE. */
static int stream_step(struct stk_compress *compress, struct stk_view *in, bool last,
                       struct step *step)
{
    size_t part = stk_min(stk_min(in->bytes, compress->in_left), STEP_BYTES_MAX);
    bool final = last && part == in->bytes;
    int status = 0;

    if (compress->fresh && last && in->bytes == 0 &&
        compress->options.compression != STK_COMPRESSION_XZ) {
        compress->state = DONE; /* it ended with the last frame */
        return 0;
    }
    status = compress->fresh ? begin_stream(compress) : 0;
    if (status < 0) {
        return status;
    }
    step->in = (struct stk_view){in->data, part};
    step->end = final || part == compress->in_left;
    status = run_step(compress, step, final);
    part -= step->in.bytes;
    in->data += part;
    in->bytes -= part;
    compress->in_left -= compress->options.frame_bytes ? part : 0;
    if (status == 1) {
        compress->in_left = compress->options.frame_bytes;
        compress->fresh = true;
        compress->state = final ? DONE : COMPRESSING;
    }
    return status < 0 ? status : 0;
}

int stk_compress_run(struct stk_compress *compress, struct stk_view *in, bool last,
                     struct stk_compress_output *output, struct stoker_error *error)
{
    struct step step = {.out = output->data, .out_bytes = output->bytes};
    int status = 0;

    /* Each step takes input, writes output, or changes the state. Without input only the last
     * step, or one that drains, has something to do. */
    while (status == 0 && compress->state != DONE && step.out_bytes > 0 &&
           (in->bytes > 0 || last || compress->state != COMPRESSING)) {
        status = is_framed_zstd(compress) ? frame_step(compress, in, last, &step)
                                          : stream_step(compress, in, last, &step);
    }
    output->used = output->bytes - step.out_bytes;
    if (status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, status, "a compressed shard would have too many frames",
                        "make smaller shards", "%u frames", compress->frame_count);
    }
    if (status < 0) {
        return no_memory(compress, error);
    }
    return compress->state == DONE ? 0 : 1;
}

int stk_compress_detect_level(uint32_t compression, struct stk_view head)
{
    if (compression == STK_COMPRESSION_GZIP && head.bytes > 8) { /* XFL (RFC 1952, 2.3.1) */
        return head.data[8] == 2 ? 9 : head.data[8] == 4 ? 1 : 0;
    }
    return compression == STK_COMPRESSION_BZIP2 && head.bytes > 3 && head.data[3] >= '1' &&
                   head.data[3] <= '9'
               ? head.data[3] - '0'
               : 0;
}
