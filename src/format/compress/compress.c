/* Bytes to packed streams: one loop over four libraries. zstd in frames gathers each frame whole,
 * so that its header tells its size. */
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

enum { TURN_MAX = 1 << 30 /* zlib and bzlib count in 32 bits */, FRAMES_FIRST = 64 };

enum state {
    PACKING = 0, /* input is taken */
    DRAINING,    /* zstd in frames: `held` goes out, then PACKING or TABLE */
    TABLE,       /* the same of the seek table, then DONE */
    DONE
};

struct stk_packer {
    struct stk_packer_options options;
    uint32_t state;   /* enum state */
    bool is_open;     /* the library was set up */
    bool fresh;       /* the stream in work has got nothing yet, and is not the first */
    bool last;        /* no input follows what `gathered` has */
    uint64_t in_left; /* of the frame in work */
    /* zstd in frames: */
    uint8_t *gathered, *held; /* owned: input of a frame; what is to go out */
    size_t gathered_bytes, held_at, held_bytes, held_capacity;
    uint8_t *table; /* owned: entries so far */
    uint32_t frame_count, frame_capacity;
    struct stk_granted memory; /* of the library */
    lzma_allocator xz_memory;
    union {
        z_stream gzip;
        ZSTD_CCtx *zstd;
        bz_stream bzip2;
        lzma_stream xz;
    } of;
};

/* Input and output of one turn of a library. */
struct turn {
    struct stk_view in;
    uint8_t *out;
    size_t out_bytes;
    bool end; /* the stream (or block of xz) ends with this input */
};

static int set_up(struct stk_packer *packer);

static int no_memory(const struct stk_packer *packer, struct stoker_error *error)
{
    return packer && packer->memory.refused
               ? stk_fail(error, STOKER_ERROR_BUDGET,
                          "the memory budget has no room to pack a shard",
                          "grant more memory, or fewer threads", "packer")
               : stk_fail(error, -ENOMEM, "no memory to pack a shard", "free memory", "packer");
}

static bool is_framed_zstd(const struct stk_packer *packer)
{
    return packer->options.packing == STK_ZSTD && packer->options.frame_bytes > 0;
}

int stk_packer_open(struct stk_packer **packer_out, const struct stk_packer_options *options,
                    struct stoker_error *error)
{
    struct stk_packer *packer = stk_alloc(1, sizeof *packer);
    uint64_t frame = options->frame_bytes;

    STK_ASSERT(options->packing > STK_PLAIN && options->packing <= STK_XZ);
    *packer_out = NULL;
    if (!packer) {
        return no_memory(NULL, error);
    }
    packer->options = *options;
    packer->memory.grant = options->grant;
    if (frame > 0) {
        frame = stk_min(stk_max(frame, STK_PACKER_FRAME_MIN), STK_PACKER_FRAME_MAX);
    }
    packer->options.frame_bytes = frame;
    packer->in_left = frame ? frame : UINT64_MAX;
    packer->is_open = set_up(packer) == 0;
    if (packer->is_open && is_framed_zstd(packer)) {
        packer->held_capacity = ZSTD_compressBound(frame);
        packer->gathered = stk_granted_take(&packer->memory, frame, 1);
        packer->held = stk_granted_take(&packer->memory, packer->held_capacity, 1);
    }
    if (!packer->is_open || (is_framed_zstd(packer) && (!packer->gathered || !packer->held))) {
        int status = no_memory(packer, error);

        stk_packer_close(packer);
        return status;
    }
    *packer_out = packer;
    return 0;
}

void stk_packer_close(struct stk_packer *packer)
{
    if (!packer) {
        return;
    }
    if (packer->is_open) {
        switch (packer->options.packing) {
        case STK_GZIP:
            deflateEnd(&packer->of.gzip);
            break;
        case STK_ZSTD:
            ZSTD_freeCCtx(packer->of.zstd);
            break;
        case STK_BZIP2:
            BZ2_bzCompressEnd(&packer->of.bzip2);
            break;
        default:
            lzma_end(&packer->of.xz);
        }
    }
    stk_granted_give_back(&packer->memory, packer->gathered);
    stk_granted_give_back(&packer->memory, packer->held);
    stk_free(packer->table);
    stk_free(packer);
}

/* ---- the libraries ---- */

static int set_up(struct stk_packer *packer)
{
    const ZSTD_customMem zstd_memory = {stk_library_take_zstd, stk_granted_give_back,
                                        &packer->memory};
    int level = packer->options.level;
    bool good;

    switch (packer->options.packing) {
    case STK_GZIP: /* 16: gzip; its header then has no name and no time (RFC 1952, 2.3) */
        packer->of.gzip.zalloc = stk_library_take_gzip;
        packer->of.gzip.zfree = stk_granted_give_back;
        packer->of.gzip.opaque = &packer->memory;
        good = deflateInit2(&packer->of.gzip, level ? level : Z_DEFAULT_COMPRESSION, Z_DEFLATED,
                            16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK;
        break;
    case STK_ZSTD:
        packer->of.zstd = ZSTD_createCCtx_advanced(zstd_memory);
        good = packer->of.zstd &&
               !ZSTD_isError(
                   ZSTD_CCtx_setParameter(packer->of.zstd, ZSTD_c_compressionLevel, level)) &&
               !ZSTD_isError(ZSTD_CCtx_setParameter(packer->of.zstd, ZSTD_c_checksumFlag, 1));
        if (!good) {
            ZSTD_freeCCtx(packer->of.zstd);
        }
        break;
    case STK_BZIP2:
        packer->of.bzip2.bzalloc = stk_library_take_bzip2;
        packer->of.bzip2.bzfree = stk_granted_give_back;
        packer->of.bzip2.opaque = &packer->memory;
        good = BZ2_bzCompressInit(&packer->of.bzip2, level ? level : 9, 0, 0) == BZ_OK;
        break;
    default:
        packer->xz_memory =
            (lzma_allocator){stk_granted_take, stk_granted_give_back, &packer->memory};
        packer->of.xz.allocator = &packer->xz_memory;
        good = lzma_easy_encoder(&packer->of.xz, level ? (uint32_t)level : LZMA_PRESET_DEFAULT,
                                 LZMA_CHECK_CRC64) == LZMA_OK;
    }
    return good ? 0 : -ENOMEM;
}

/* The next member or stream. */
static int begin_stream(struct stk_packer *packer)
{
    int level = packer->options.level;
    bool good = true;

    packer->fresh = false;
    if (packer->options.packing == STK_GZIP) {
        good = deflateReset(&packer->of.gzip) == Z_OK;
    } else if (packer->options.packing == STK_BZIP2) {
        BZ2_bzCompressEnd(&packer->of.bzip2);
        good = BZ2_bzCompressInit(&packer->of.bzip2, level ? level : 9, 0, 0) == BZ_OK;
        packer->is_open = good;
    }
    return good ? 0 : -ENOMEM;
}

static void advance(struct turn *turn, size_t in_left, size_t out_left)
{
    turn->in.data += turn->in.bytes - in_left;
    turn->in.bytes = in_left;
    turn->out += turn->out_bytes - out_left;
    turn->out_bytes = out_left;
}

/* 1: what was asked to end has ended and is out. */
static int gzip_turn(struct stk_packer *packer, struct turn *turn)
{
    z_stream *stream = &packer->of.gzip;
    int result;

    stream->next_in = (uint8_t *)(uintptr_t)turn->in.data; /* zlib only reads it */
    stream->avail_in = turn->in.bytes;
    stream->next_out = turn->out;
    stream->avail_out = turn->out_bytes;
    result = deflate(stream, turn->end ? Z_FINISH : Z_NO_FLUSH);
    advance(turn, stream->avail_in, stream->avail_out);
    return result == Z_STREAM_END ? 1 : result == Z_OK || result == Z_BUF_ERROR ? 0 : -ENOMEM;
}

static int zstd_turn(struct stk_packer *packer, struct turn *turn)
{
    ZSTD_inBuffer in = {turn->in.data, turn->in.bytes, 0};
    ZSTD_outBuffer out = {turn->out, turn->out_bytes, 0};
    /* The end comes alone: with all of the input it would make another header. */
    bool end = turn->end && turn->in.bytes == 0;
    size_t left =
        ZSTD_compressStream2(packer->of.zstd, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);

    advance(turn, in.size - in.pos, out.size - out.pos);
    return ZSTD_isError(left) ? -ENOMEM : end && left == 0;
}

static int bzip2_turn(struct stk_packer *packer, struct turn *turn)
{
    bz_stream *stream = &packer->of.bzip2;
    int result;

    stream->next_in = (char *)(uintptr_t)turn->in.data; /* bzlib only reads it */
    stream->avail_in = turn->in.bytes;
    stream->next_out = (char *)turn->out;
    stream->avail_out = turn->out_bytes;
    /* BZ_RUN without input is an error of sequence. */
    result = turn->end             ? BZ2_bzCompress(stream, BZ_FINISH)
             : turn->in.bytes == 0 ? BZ_RUN_OK
                                   : BZ2_bzCompress(stream, BZ_RUN);
    advance(turn, stream->avail_in, stream->avail_out);
    return result == BZ_STREAM_END                         ? 1
           : result == BZ_RUN_OK || result == BZ_FINISH_OK ? 0
                                                           : -ENOMEM;
}

/* final: the stream ends, not only its block. */
static int xz_turn(struct stk_packer *packer, struct turn *turn, bool final)
{
    lzma_stream *stream = &packer->of.xz;
    lzma_ret result;

    stream->next_in = turn->in.data;
    stream->avail_in = turn->in.bytes;
    stream->next_out = turn->out;
    stream->avail_out = turn->out_bytes;
    result = lzma_code(stream, final ? LZMA_FINISH : turn->end ? LZMA_FULL_FLUSH : LZMA_RUN);
    advance(turn, stream->avail_in, stream->avail_out);
    return result == LZMA_STREAM_END                       ? 1
           : result == LZMA_OK || result == LZMA_BUF_ERROR ? 0
                                                           : -ENOMEM;
}

static int take_turn(struct stk_packer *packer, struct turn *turn, bool final)
{
    switch (packer->options.packing) {
    case STK_GZIP:
        return gzip_turn(packer, turn);
    case STK_ZSTD:
        return zstd_turn(packer, turn);
    case STK_BZIP2:
        return bzip2_turn(packer, turn);
    default:
        return xz_turn(packer, turn, final);
    }
}

/* ---- zstd in frames ---- */

static int remember_frame(struct stk_packer *packer, size_t packed_bytes)
{
    if (packer->frame_count == packer->frame_capacity) {
        uint32_t capacity = packer->frame_capacity ? 2 * packer->frame_capacity : FRAMES_FIRST;
        uint8_t *table = stk_realloc(packer->table, packer->frame_capacity, capacity, 8);

        if (packer->frame_count >= STK_SEEKABLE_FRAMES_MAX) {
            return STOKER_ERROR_LIMIT;
        }
        if (!table) {
            return -ENOMEM;
        }
        packer->table = table;
        packer->frame_capacity = capacity;
    }
    stk_seekable_put_entry((uint32_t)packed_bytes, (uint32_t)packer->gathered_bytes,
                           packer->table + 8ull * packer->frame_count++);
    return 0;
}

/* The table, in one piece: `held` becomes as large as that takes. */
static int hold_table(struct stk_packer *packer)
{
    size_t entries = 8ull * packer->frame_count;
    size_t bytes = STK_SEEKABLE_HEAD_BYTES + entries + STK_SEEKABLE_FOOT_BYTES;

    if (bytes > packer->held_capacity) {
        uint8_t *held = stk_granted_take(&packer->memory, bytes, 1);

        if (!held) {
            return -ENOMEM;
        }
        stk_granted_give_back(&packer->memory, packer->held);
        packer->held = held;
        packer->held_capacity = bytes;
    }
    stk_seekable_put_head(packer->frame_count, packer->held);
    if (entries > 0) {
        memcpy(packer->held + STK_SEEKABLE_HEAD_BYTES, packer->table, entries);
    }
    stk_seekable_put_foot(packer->frame_count, packer->held + STK_SEEKABLE_HEAD_BYTES + entries);
    packer->held_at = 0;
    packer->held_bytes = bytes;
    packer->state = TABLE;
    return 0;
}

static int pack_frame(struct stk_packer *packer)
{
    size_t bytes = ZSTD_compress2(packer->of.zstd, packer->held, packer->held_capacity,
                                  packer->gathered, packer->gathered_bytes);
    int status = ZSTD_isError(bytes) ? -ENOMEM : remember_frame(packer, bytes);

    packer->held_at = 0;
    packer->held_bytes = bytes;
    packer->gathered_bytes = 0;
    packer->state = DRAINING;
    return status;
}

/* Takes input or gives output; the end sets DONE. */
static int frame_step(struct stk_packer *packer, struct stk_view *in, bool last, struct turn *turn)
{
    size_t part;

    if (packer->state == PACKING) {
        part = stk_min(in->bytes, packer->options.frame_bytes - packer->gathered_bytes);
        if (part > 0) {
            memcpy(packer->gathered + packer->gathered_bytes, in->data, part);
        }
        packer->gathered_bytes += part;
        in->data += part;
        in->bytes -= part;
        packer->last = last && in->bytes == 0;
        if (packer->gathered_bytes == packer->options.frame_bytes ||
            (packer->last && packer->gathered_bytes > 0)) {
            return pack_frame(packer);
        }
        return packer->last ? hold_table(packer) : 0;
    }
    part = stk_min(turn->out_bytes, packer->held_bytes - packer->held_at);
    memcpy(turn->out, packer->held + packer->held_at, part);
    turn->out += part;
    turn->out_bytes -= part;
    packer->held_at += part;
    if (packer->held_at < packer->held_bytes) {
        return 0;
    }
    if (packer->state == TABLE) {
        packer->state = DONE;
        return 0;
    }
    packer->state = PACKING;
    return packer->last ? hold_table(packer) : 0;
}

/* ---- the rest ---- */

/* Takes input or gives output; the end sets DONE. */
static int stream_step(struct stk_packer *packer, struct stk_view *in, bool last, struct turn *turn)
{
    size_t part = stk_min(stk_min(in->bytes, packer->in_left), TURN_MAX);
    bool final = last && part == in->bytes;
    int status = 0;

    if (packer->fresh && last && in->bytes == 0 && packer->options.packing != STK_XZ) {
        packer->state = DONE; /* it ended with the last frame */
        return 0;
    }
    status = packer->fresh ? begin_stream(packer) : 0;
    if (status < 0) {
        return status;
    }
    turn->in = (struct stk_view){in->data, part};
    turn->end = final || part == packer->in_left;
    status = take_turn(packer, turn, final);
    part -= turn->in.bytes;
    in->data += part;
    in->bytes -= part;
    packer->in_left -= packer->options.frame_bytes ? part : 0;
    if (status == 1) {
        packer->in_left = packer->options.frame_bytes;
        packer->fresh = true;
        packer->state = final ? DONE : PACKING;
    }
    return status < 0 ? status : 0;
}

int stk_packer_run(struct stk_packer *packer, struct stk_view *in, bool last,
                   struct stk_packer_room *room, struct stoker_error *error)
{
    struct turn turn = {.out = room->data, .out_bytes = room->bytes};
    int status = 0;

    /* Each turn takes input, fills out, or changes the state; without input only the last one, or
     * one that drains, has something to do. */
    while (status == 0 && packer->state != DONE && turn.out_bytes > 0 &&
           (in->bytes > 0 || last || packer->state != PACKING)) {
        status = is_framed_zstd(packer) ? frame_step(packer, in, last, &turn)
                                        : stream_step(packer, in, last, &turn);
    }
    room->used = room->bytes - turn.out_bytes;
    if (status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, status, "a packed shard would have too many frames",
                        "make smaller shards", "%u frames", packer->frame_count);
    }
    if (status < 0) {
        return no_memory(packer, error);
    }
    return packer->state == DONE ? 0 : 1;
}

int stk_packer_level(uint32_t packing, struct stk_view head)
{
    if (packing == STK_GZIP && head.bytes > 8) { /* XFL (RFC 1952, 2.3.1) */
        return head.data[8] == 2 ? 9 : head.data[8] == 4 ? 1 : 0;
    }
    return packing == STK_BZIP2 && head.bytes > 3 && head.data[3] >= '1' && head.data[3] <= '9'
               ? head.data[3] - '0'
               : 0;
}
