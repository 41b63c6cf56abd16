/* Packed streams to bytes: one loop over four libraries, which differ in a turn each. */
#include "format/unpack.h"

#include "base/mem.h"
#include "format/access.h"
#include "format/library.h"

#include <bzlib.h>
#include <errno.h>
#include <lzma.h>
#include <string.h>
#include <zlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* for a DStream that allocates by us */
#include <zstd.h>
#include <zstd_errors.h>

enum {
    RATIO_DEFAULT = 1100,       /* gz reaches 1,032 at most */
    RATIO_FREE_BYTES = 1 << 20, /* out, before the ratio counts */
    ZSTD_WINDOW_LOG_MAX = 27,   /* 128 MiB */
    XZ_MEMORY_MAX = 256 << 20,
    TURN_BYTES_MAX = 1 << 30, /* zlib and bzlib count in 32 bits */
    GZIP_TRAILER_BYTES = 8    /* CRC-32 and size (RFC 1952, 2.3.1) */
};
static const uint64_t bytes_default = 1ULL << 40;

struct stk_unpack {
    uint32_t packing; /* const after open, like the limits */
    uint32_t ratio_max;
    uint64_t bytes_max;
    uint64_t in_total, out_total;
    bool is_open; /* the library was set up, close it */
    bool between; /* no stream has begun since the last ended */
    bool begun;   /* a stream has ended */
    bool flushed; /* the last turn left room in out: nothing is held back */
    bool done;
    struct stk_access_maker *maker; /* lent; NULL: no points are collected */
    uint8_t *window;                /* owned, with a maker of gzip: STK_ACCESS_WINDOW */
    uint32_t prime_bits;            /* of the first byte, begun inside of a member */
    uint32_t trailer_bytes;         /* still to be skipped of such a member */
    bool headless;                  /* it was begun inside of a member and is still in it */
    struct stk_granted memory;      /* of the library */
    lzma_allocator xz_memory;
    uint64_t streams;               /* that began */
    uint64_t proved;                /* unpacked bytes whose checksums were right, or had none */
    bool doubtful;                  /* a checksum was wrong, or may have been */
    bool unsummed;                  /* a frame of zstd had no checksum */
    bool at_head;                   /* nothing was given of the stream in work */
    union {
        z_stream gzip;
        ZSTD_DStream *zstd;
        bz_stream bzip2;
        lzma_stream xz;
    } of;
};

/* Why a turn stopped the whole, in words of the format. */
struct turn {
    struct stk_view in;
    uint8_t *out;
    size_t out_bytes;
    bool last;
    const char *detail;
};

static int set_up(struct stk_unpack *unpack);
static int take_turn(struct stk_unpack *unpack, struct turn *turn);
static int gzip_turn(struct stk_unpack *unpack, struct turn *turn);
static int zstd_turn(struct stk_unpack *unpack, struct turn *turn);
static int bzip2_turn(struct stk_unpack *unpack, struct turn *turn);
static int xz_turn(struct stk_unpack *unpack, struct turn *turn);
static int begin_stream(struct stk_unpack *unpack);
static int enter(struct stk_unpack *unpack, struct stk_view *in);
static void tell_maker(struct stk_unpack *unpack, const uint8_t *out, size_t bytes);
static int check_limits(const struct stk_unpack *unpack, const char **detail_out);
static int fail(const struct stk_unpack *unpack, struct stoker_error *error, int status,
                const char *detail);

static const char *const names[] = {"plain", "gzip", "zstd", "bzip2", "xz"};

uint32_t stk_packing_of(struct stk_view head)
{
    const uint8_t *data = head.data;

    if (head.bytes < 6) {
        return STK_PLAIN;
    }
    if (data[0] == 0x1f && data[1] == 0x8b && data[2] == 8) {
        return STK_GZIP;
    }
    /* A frame, or a skippable frame before one (RFC 8878, 3.1). */
    if (memcmp(data, "\x28\xb5\x2f\xfd", 4) == 0 ||
        ((data[0] & 0xf0) == 0x50 && memcmp(data + 1, "\x2a\x4d\x18", 3) == 0)) {
        return STK_ZSTD;
    }
    /* Behind the level the first block begins (digits of pi), or the end (of its root). */
    if (memcmp(data, "BZh", 3) == 0 && data[3] >= '1' && data[3] <= '9' &&
        (memcmp(data + 4, "\x31\x41", 2) == 0 || memcmp(data + 4, "\x17\x72", 2) == 0)) {
        return STK_BZIP2;
    }
    return memcmp(data,
                  "\xfd"
                  "7zXZ\0",
                  6) == 0
               ? STK_XZ
               : STK_PLAIN;
}

const char *stk_packing_name(uint32_t packing)
{
    return packing < STK_COUNT(names) ? names[packing] : "unknown";
}

int stk_unpack_open(struct stk_unpack **unpack_out, uint32_t packing,
                    const struct stk_unpack_limits *limits, struct stoker_error *error)
{
    struct stk_unpack *unpack = stk_alloc(1, sizeof *unpack);
    bool refused;

    STK_ASSERT(packing > STK_PLAIN && packing <= STK_XZ);
    *unpack_out = NULL;
    if (unpack) {
        unpack->packing = packing;
        unpack->bytes_max = limits->bytes_max ? limits->bytes_max : bytes_default;
        unpack->ratio_max = limits->ratio_max ? limits->ratio_max : RATIO_DEFAULT;
        unpack->memory.grant = limits->grant;
        unpack->between = unpack->flushed = true;
        unpack->is_open = set_up(unpack) == 0;
    }
    if (!unpack || !unpack->is_open) {
        refused = unpack && unpack->memory.refused;
        if (unpack && packing == STK_ZSTD) {
            ZSTD_freeDStream(unpack->of.zstd);
        }
        stk_free(unpack);
        return stk_fail(error, refused ? STOKER_ERROR_BUDGET : -ENOMEM,
                        "no memory to unpack a shard",
                        refused ? "grant more memory" : "free memory", "%s",
                        stk_packing_name(packing));
    }
    *unpack_out = unpack;
    return 0;
}

void stk_unpack_close(struct stk_unpack *unpack)
{
    if (!unpack) {
        return;
    }
    switch (unpack->packing) {
    case STK_GZIP:
        inflateEnd(&unpack->of.gzip);
        break;
    case STK_ZSTD:
        ZSTD_freeDStream(unpack->of.zstd);
        break;
    case STK_BZIP2:
        BZ2_bzDecompressEnd(&unpack->of.bzip2);
        break;
    default:
        lzma_end(&unpack->of.xz);
    }
    stk_free(unpack->window);
    stk_free(unpack);
}

int stk_unpack_mark(struct stk_unpack *unpack, struct stk_access_maker *maker,
                    struct stoker_error *error)
{
    STK_ASSERT(unpack->packing == STK_GZIP || unpack->packing == STK_ZSTD);
    STK_ASSERT(unpack->in_total == 0 && !unpack->maker);
    if (unpack->packing == STK_GZIP) {
        unpack->window = stk_alloc(STK_ACCESS_WINDOW, 1);
        if (!unpack->window) {
            return stk_fail(error, -ENOMEM, "no memory for access points", "free memory", "window");
        }
    }
    unpack->maker = maker;
    return 0;
}

int stk_unpack_start(struct stk_unpack *unpack, const struct stk_access_point *point,
                     struct stk_view window, struct stoker_error *error)
{
    z_stream *stream = &unpack->of.gzip;
    int result;

    STK_ASSERT(unpack->in_total == 0 && !unpack->begun && !unpack->maker);
    unpack->in_total = point->in;
    if (point->out > unpack->bytes_max) {
        return fail(unpack, error, STOKER_ERROR_LIMIT, "unpacked it passes unpacked_bytes_max");
    }
    unpack->out_total = point->out;
    if (point->kind == STK_ACCESS_STREAM) {
        return 0;
    }
    STK_ASSERT(unpack->packing == STK_GZIP && point->bits < 8);
    if (inflateReset2(stream, -MAX_WBITS) != Z_OK) {
        return fail(unpack, error, -ENOMEM, "");
    }
    result = inflateSetDictionary(stream, window.data, window.bytes);
    if (result == Z_MEM_ERROR) {
        return fail(unpack, error, -ENOMEM, "");
    }
    if (result != Z_OK) {
        return fail(unpack, error, STOKER_ERROR_CORRUPT, "its access point has no fit window");
    }
    unpack->prime_bits = point->bits;
    unpack->headless = unpack->begun = true;
    unpack->between = false;
    return 0;
}

static void skip(struct stk_unpack *unpack, struct stk_view *in, size_t bytes)
{
    in->data += bytes;
    in->bytes -= bytes;
    unpack->in_total += bytes;
}

/* Over padding to the next stream. 1: there is one; 0: not yet; negative: there never was. */
static int find_stream(struct stk_unpack *unpack, struct stk_view *in, bool last)
{
    size_t trailer = stk_min(unpack->trailer_bytes, in->bytes);

    skip(unpack, in, trailer);
    unpack->trailer_bytes -= trailer;
    if (unpack->trailer_bytes > 0) {
        return last ? STOKER_ERROR_TRUNCATED : 0;
    }
    while (unpack->begun && in->bytes > 0 && in->data[0] == 0) {
        skip(unpack, in, 1);
    }
    if (in->bytes == 0) {
        unpack->done = last && unpack->begun;
        return last && !unpack->begun ? STOKER_ERROR_TRUNCATED : 0;
    }
    return 1;
}

int stk_unpack_run(struct stk_unpack *unpack, struct stk_view *in, bool last, uint8_t *out,
                   size_t out_bytes, size_t *written_out, struct stoker_error *error)
{
    size_t written = 0;
    const char *detail = "the input ends inside the packed stream";
    int status = 0;

    *written_out = 0;
    /* Each turn takes input or fills out, or it is the last one. */
    while (!unpack->done && written < out_bytes) {
        struct turn turn = {.out = out + written};
        size_t room = stk_min(out_bytes - written, TURN_BYTES_MAX);
        size_t given; /* input of this turn */
        bool starved;

        if (unpack->between) {
            status = find_stream(unpack, in, last);
            if (status <= 0) {
                break;
            }
            status = begin_stream(unpack);
        } else if (unpack->prime_bits > 0) {
            status = enter(unpack, in);
        }
        starved = in->bytes == 0 && unpack->flushed;
        if (status < 0 || (starved && !last)) {
            break;
        }
        if (unpack->bytes_max - unpack->out_total < room) {
            room = unpack->bytes_max - unpack->out_total + 1; /* to see whether it is passed */
        }
        turn.in = *in;
        turn.in.bytes = given = stk_min(in->bytes, TURN_BYTES_MAX);
        turn.out_bytes = room;
        turn.last = last && given == in->bytes;
        status = take_turn(unpack, &turn);
        unpack->in_total += (size_t)(turn.in.data - in->data);
        unpack->out_total += room - turn.out_bytes;
        in->bytes -= (size_t)(turn.in.data - in->data);
        in->data = turn.in.data;
        tell_maker(unpack, out + written, room - turn.out_bytes);
        written += room - turn.out_bytes;
        unpack->flushed = turn.out_bytes > 0;
        if (status < 0) {
            detail = turn.detail;
            break;
        }
        status = check_limits(unpack, &detail);
        if (status < 0) {
            break;
        }
        if (turn.out_bytes == room && turn.in.bytes == given && !unpack->between && !unpack->done &&
            (starved || given > 0)) {
            status = given > 0 ? STOKER_ERROR_CORRUPT : STOKER_ERROR_TRUNCATED;
            break;
        }
    }
    *written_out = status < 0 && status != STOKER_ERROR_CORRUPT && status != STOKER_ERROR_TRUNCATED
                       ? 0
                       : written;
    if (status < 0) {
        return fail(unpack, error, status, detail);
    }
    return unpack->done ? 0 : 1;
}

uint64_t stk_unpack_doubted(const struct stk_unpack *unpack)
{
    return unpack->doubtful ? unpack->out_total - unpack->proved : 0;
}

bool stk_unpack_is_summed(const struct stk_unpack *unpack)
{
    return !unpack->unsummed;
}

uint64_t stk_unpack_streams(const struct stk_unpack *unpack)
{
    return unpack->streams;
}

static int check_limits(const struct stk_unpack *unpack, const char **detail_out)
{
    if (unpack->out_total > unpack->bytes_max) {
        *detail_out = "unpacked it passes unpacked_bytes_max";
        return STOKER_ERROR_LIMIT;
    }
    if (unpack->out_total > RATIO_FREE_BYTES &&
        unpack->out_total / unpack->ratio_max > unpack->in_total) {
        *detail_out = "it unpacks to more than unpacked_ratio_max times its size";
        return STOKER_ERROR_LIMIT;
    }
    return 0;
}

static int fail(const struct stk_unpack *unpack, struct stoker_error *error, int status,
                const char *detail)
{
    const char *advice = "copy the shard again or leave it out";

    if (status == STOKER_ERROR_LIMIT) {
        advice = "raise the limit if you trust the shard, or store it unpacked";
    } else if (status == -ENOMEM) {
        status = unpack->memory.refused ? STOKER_ERROR_BUDGET : status;
        advice = unpack->memory.refused ? "grant more memory" : "free memory or give the job more";
        detail = "no memory for the window";
    } else if (status == STOKER_ERROR_UNSUPPORTED) {
        advice = "pack the shard again without it";
    }
    stk_fail(error, status, "cannot unpack the shard", advice, "%s: %s",
             stk_packing_name(unpack->packing), detail);
    stk_error_place(error, NULL, unpack->in_total, NULL);
    return status;
}

static int set_up(struct stk_unpack *unpack)
{
    const ZSTD_customMem zstd_memory = {stk_library_take_zstd, stk_granted_give_back,
                                        &unpack->memory};
    bool good = false;

    switch (unpack->packing) {
    case STK_GZIP:
        unpack->of.gzip.zalloc = stk_library_take_gzip;
        unpack->of.gzip.zfree = stk_granted_give_back;
        unpack->of.gzip.opaque = &unpack->memory;
        good = inflateInit2(&unpack->of.gzip, 16 + MAX_WBITS) == Z_OK; /* 16: gzip only */
        break;
    case STK_ZSTD:
        unpack->of.zstd = ZSTD_createDStream_advanced(zstd_memory);
        good = unpack->of.zstd && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                      unpack->of.zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX));
        break;
    case STK_BZIP2:
        unpack->of.bzip2.bzalloc = stk_library_take_bzip2;
        unpack->of.bzip2.bzfree = stk_granted_give_back;
        unpack->of.bzip2.opaque = &unpack->memory;
        good = BZ2_bzDecompressInit(&unpack->of.bzip2, 0, 0) == BZ_OK;
        break;
    default:
        unpack->xz_memory = (lzma_allocator){stk_granted_take, stk_granted_give_back,
                                            &unpack->memory};
        unpack->of.xz.allocator = &unpack->xz_memory;
        unpack->between = false; /* liblzma walks over streams and their padding itself */
        unpack->streams = 1;
        good = lzma_stream_decoder(&unpack->of.xz, XZ_MEMORY_MAX, LZMA_CONCATENATED) == LZMA_OK;
    }
    return good ? 0 : -ENOMEM;
}

static int begin_stream(struct stk_unpack *unpack)
{
    bool good = true;

    unpack->between = false;
    unpack->proved = unpack->out_total;
    unpack->streams++;
    unpack->at_head = true;
    if (unpack->maker && stk_access_maker_wants(unpack->maker, false)) {
        stk_access_maker_point(unpack->maker, unpack->in_total, 0, (struct stk_view){NULL, 0});
    }
    if (!unpack->begun) {
        return 0;
    }
    if (unpack->packing == STK_GZIP) {
        good = inflateReset2(&unpack->of.gzip, 16 + MAX_WBITS) == Z_OK;
    } else if (unpack->packing == STK_BZIP2) {
        BZ2_bzDecompressEnd(&unpack->of.bzip2);
        good = BZ2_bzDecompressInit(&unpack->of.bzip2, 0, 0) == BZ_OK;
    }
    return good ? 0 : -ENOMEM;
}

/* The first byte after a start inside of a member: its upper bits belong to the next block. */
static int enter(struct stk_unpack *unpack, struct stk_view *in)
{
    uint32_t bits = unpack->prime_bits;

    if (in->bytes == 0) {
        return 0;
    }
    unpack->prime_bits = 0;
    if (inflatePrime(&unpack->of.gzip, bits, in->data[0] >> (8 - bits)) != Z_OK) {
        return STOKER_ERROR_CORRUPT;
    }
    skip(unpack, in, 1);
    return 0;
}

/* What a turn unpacked, and whether unpacking could begin here. */
static void tell_maker(struct stk_unpack *unpack, const uint8_t *out, size_t bytes)
{
    const z_stream *stream = &unpack->of.gzip;
    unsigned window_bytes = 0;
    uint32_t bits;

    if (!unpack->maker) {
        return;
    }
    stk_access_maker_bytes(unpack->maker, (struct stk_view){out, bytes});
    /* 128: between two blocks, 64: the last one is over, 7: bits left of the last byte taken. */
    if (unpack->packing != STK_GZIP || unpack->between || (stream->data_type & (128 | 64)) != 128 ||
        !stk_access_maker_wants(unpack->maker, true)) {
        return;
    }
    bits = stream->data_type & 7;
    if (inflateGetDictionary(&unpack->of.gzip, unpack->window, &window_bytes) == Z_OK &&
        window_bytes > 0) {
        stk_access_maker_point(unpack->maker, unpack->in_total - (bits > 0), bits,
                               (struct stk_view){unpack->window, window_bytes});
    }
}

/* Negative: the status, with turn->detail. A stream that ended sets `between`, or `done`. */
static int take_turn(struct stk_unpack *unpack, struct turn *turn)
{
    int status;

    turn->detail = "the packed data is damaged, or something else follows it";
    switch (unpack->packing) {
    case STK_GZIP:
        status = gzip_turn(unpack, turn);
        break;
    case STK_ZSTD:
        status = zstd_turn(unpack, turn);
        break;
    case STK_BZIP2:
        status = bzip2_turn(unpack, turn);
        break;
    default:
        status = xz_turn(unpack, turn);
    }
    if (status > 0) {
        unpack->begun = unpack->between = true;
    }
    return status;
}

/* After a turn of zlib, bzlib or liblzma, by what is left. */
static void advance(struct turn *turn, size_t in_left, size_t out_left)
{
    turn->in.data += turn->in.bytes - in_left;
    turn->in.bytes = in_left;
    turn->out += turn->out_bytes - out_left;
    turn->out_bytes = out_left;
}

static int gzip_turn(struct stk_unpack *unpack, struct turn *turn)
{
    z_stream *stream = &unpack->of.gzip;
    int result;

    stream->next_in = (uint8_t *)(uintptr_t)turn->in.data; /* zlib only reads it */
    stream->avail_in = turn->in.bytes;
    stream->next_out = turn->out;
    stream->avail_out = turn->out_bytes;
    result = inflate(stream, unpack->maker ? Z_BLOCK : Z_NO_FLUSH);
    advance(turn, stream->avail_in, stream->avail_out);
    switch (result) {
    case Z_STREAM_END:
        unpack->trailer_bytes = unpack->headless ? GZIP_TRAILER_BYTES : 0;
        unpack->headless = false;
        return 1;
    case Z_OK:
    case Z_BUF_ERROR: /* no input, or no room: not an error */
        return 0;
    case Z_MEM_ERROR:
        return -ENOMEM;
    default:
        /* Of a member's CRC and size; zlib tells them by words only. */
        unpack->doubtful = stream->msg && (strcmp(stream->msg, "incorrect data check") == 0 ||
                                           strcmp(stream->msg, "incorrect length check") == 0);
        return STOKER_ERROR_CORRUPT;
    }
}

static int zstd_turn(struct stk_unpack *unpack, struct turn *turn)
{
    ZSTD_inBuffer in = {turn->in.data, turn->in.bytes, 0};
    ZSTD_outBuffer out = {turn->out, turn->out_bytes, 0};
    size_t result;

    if (unpack->at_head && in.size > 0) {
        /* The descriptor's Content_Checksum_flag (RFC 8878, 3.1.1.1.1); one that is not here yet
         * counts as unset. Skippable frames have nothing to be summed. */
        unpack->at_head = false;
        unpack->unsummed |= turn->in.data[0] == 0x28 && (in.size < 5 || !(turn->in.data[4] & 4));
    }
    result = ZSTD_decompressStream(unpack->of.zstd, &out, &in);
    advance(turn, in.size - in.pos, out.size - out.pos);
    if (!ZSTD_isError(result)) {
        return result == 0;
    }
    switch ((int)ZSTD_getErrorCode(result)) {
    case ZSTD_error_memory_allocation:
        return -ENOMEM;
    case ZSTD_error_frameParameter_windowTooLarge:
        turn->detail = "its window is larger than 128 MiB";
        return STOKER_ERROR_LIMIT;
    case ZSTD_error_dictionary_wrong:
        turn->detail = "it needs a dictionary";
        return STOKER_ERROR_UNSUPPORTED;
    case ZSTD_error_checksum_wrong:
        unpack->doubtful = true;
        return STOKER_ERROR_CORRUPT;
    default:
        return STOKER_ERROR_CORRUPT;
    }
}

static int bzip2_turn(struct stk_unpack *unpack, struct turn *turn)
{
    bz_stream *stream = &unpack->of.bzip2;
    int result;

    stream->next_in = (char *)(uintptr_t)turn->in.data; /* bzlib only reads it */
    stream->avail_in = turn->in.bytes;
    stream->next_out = (char *)turn->out;
    stream->avail_out = turn->out_bytes;
    result = BZ2_bzDecompress(stream);
    if ((result == BZ_OK || result == BZ_STREAM_END) && stream->avail_in < turn->in.bytes) {
        /* It takes input for the next block only once the last one is out, and its CRC right. */
        unpack->proved = unpack->out_total;
    }
    unpack->doubtful = result != BZ_OK && result != BZ_STREAM_END;
    advance(turn, stream->avail_in, stream->avail_out);
    switch (result) {
    case BZ_STREAM_END:
        return 1;
    case BZ_OK:
        return 0;
    case BZ_MEM_ERROR:
        return -ENOMEM;
    default:
        return STOKER_ERROR_CORRUPT;
    }
}

static int xz_turn(struct stk_unpack *unpack, struct turn *turn)
{
    lzma_stream *stream = &unpack->of.xz;
    lzma_ret result;

    stream->next_in = turn->in.data;
    stream->avail_in = turn->in.bytes;
    stream->next_out = turn->out;
    stream->avail_out = turn->out_bytes;
    result = lzma_code(stream, turn->last ? LZMA_FINISH : LZMA_RUN);
    advance(turn, stream->avail_in, stream->avail_out);
    switch ((int)result) {
    case LZMA_STREAM_END:
        unpack->done = true;
        return 0;
    case LZMA_OK:
    case LZMA_BUF_ERROR: /* the caller sees that nothing moved */
        return 0;
    case LZMA_MEM_ERROR:
        return -ENOMEM;
    case LZMA_MEMLIMIT_ERROR:
        turn->detail = "it needs more than 256 MiB to unpack";
        return STOKER_ERROR_LIMIT;
    case LZMA_OPTIONS_ERROR:
        turn->detail = "it uses a filter or a check that liblzma does not know";
        return STOKER_ERROR_UNSUPPORTED;
    default:
        unpack->doubtful = true; /* the check of a block stands at its end, and is not told apart */
        return STOKER_ERROR_CORRUPT;
    }
}
