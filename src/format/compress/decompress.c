/* Packed streams to bytes: one loop over four libraries, which differ in a turn each. */
#include "format/compress/decompress.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "format/compress/library_allocator.h"
#include "format/compress/seek_points.h"

#include <bzlib.h>
#include <errno.h>
#include <lzma.h>
#include <string.h>
#include <zlib.h>
#define XXH_STATIC_LINKING_ONLY /* for a state that needs no allocation */
#include <xxhash.h>
#define ZSTD_STATIC_LINKING_ONLY /* for a DStream that allocates by us */
#include <zstd.h>
#include <zstd_errors.h>

enum {
    RATIO_DEFAULT = 1100,       /* gz reaches 1,032 at most */
    RATIO_FREE_BYTES = 1 << 20, /* out, before the ratio counts */
    ZSTD_WINDOW_LOG_MAX = 27,   /* 128 MiB */
    XZ_MEMORY_MAX = 256 << 20,
    TURN_BYTES_MAX = 1 << 30, /* zlib and bzlib count in 32 bits */
    GZIP_TRAILER_BYTES = 8,   /* CRC-32 and size (RFC 1952, 2.3.1) */
    GZIP_SIZE_BYTES = 4,
    BZIP2_TURN_BYTES = 64 << 10, /* out: less than a block, so that one turn enters one at most */
    BZIP2_HEAD_BYTES = 4,
    ZSTD_SUMMED = 4,
    ZSTD_SINGLE = 0x20,
    ZSTD_SIZED = 0xc0, /* bits of a frame's descriptor */
    HEAD_BYTES = 5,    /* of a zstd frame, with its descriptor */
    TAIL_BYTES = 11    /* of a bzip2 stream: magic and checksum, wherever its bits begin */
};
static const uint64_t bytes_default = 1ULL << 40;
#define BZIP2_END UINT64_C(0x177245385090) /* begins the end of a stream */

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
    uint32_t size_left;             /* bytes of a gzip size that decides over a wrong CRC */
    bool headless;                  /* it was begun inside of a member and is still in it */
    struct stk_granted memory;      /* of the library */
    lzma_allocator xz_memory;
    uint64_t streams;          /* that began */
    uint64_t proved;           /* unpacked bytes whose checksums were right, or had none */
    bool doubtful;             /* a checksum was wrong, or may have been */
    bool unsummed;             /* a frame of zstd had no checksum */
    uint64_t failed_at;        /* packed bytes before what `proved` does not have */
    bool by_stream, has_ended; /* has_ended: the last run ended a stream: `ended` */
    struct stk_ended ended;
    uint8_t head[HEAD_BYTES], tail[TAIL_BYTES]; /* packed bytes of the stream: first, last ones */
    size_t head_bytes;
    size_t hint;         /* what libzstd takes next */
    uint64_t stream_out; /* unpacked bytes before the stream */
    XXH64_state_t sum;   /* of a zstd frame, by_stream */
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
    bool draining; /* it was given no input, though there is some */
    const char *detail;
};

static int set_up(struct stk_unpack *unpack);
static int take_turn(struct stk_unpack *unpack, struct turn *turn);
static int gzip_turn(struct stk_unpack *unpack, struct turn *turn);
static int zstd_turn(struct stk_unpack *unpack, struct turn *turn);
static int bzip2_turn(struct stk_unpack *unpack, struct turn *turn);
static int xz_turn(struct stk_unpack *unpack, struct turn *turn);
static int begin_stream(struct stk_unpack *unpack);
static void end_stream(struct stk_unpack *unpack, uint32_t proof);
static int compare_size(struct stk_unpack *unpack, struct stk_view *in, bool last);
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
        return stk_fail(
            error, refused ? STOKER_ERROR_BUDGET : -ENOMEM, "no memory to unpack a shard",
            refused ? "grant more memory" : "free memory", "%s", stk_packing_name(packing));
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

/* What stands before a turn: padding and a begin, the rest of an end, bits. 1: a turn may be taken,
 * or a stream has ended; 0: more input is needed, or none comes. */
static int lead_in(struct stk_unpack *unpack, struct stk_view *in, bool last)
{
    int status = 1;

    if (unpack->between) {
        status = find_stream(unpack, in, last);
        status = status <= 0 ? status : begin_stream(unpack) < 0 ? -ENOMEM : 1;
    } else if (unpack->size_left > 0) {
        status = compare_size(unpack, in, last);
    } else if (unpack->prime_bits > 0) {
        status = enter(unpack, in) < 0 ? STOKER_ERROR_CORRUPT : 1;
    }
    return status;
}

int stk_unpack_run(struct stk_unpack *unpack, struct stk_view *in, bool last, uint8_t *out,
                   size_t out_bytes, size_t *written_out, struct stoker_error *error)
{
    size_t written = 0;
    const char *detail = "the input ends inside the packed stream";
    int status = 0;

    *written_out = 0;
    unpack->has_ended = false;
    /* Each turn takes input or fills out, or it is the last one. */
    while (!unpack->done && written < out_bytes && !unpack->has_ended) {
        struct turn turn = {.out = out + written};
        size_t room = stk_min(out_bytes - written, TURN_BYTES_MAX);
        size_t given; /* input of this turn */
        bool starved;

        status = lead_in(unpack, in, last);
        starved = in->bytes == 0 && unpack->flushed;
        if (status <= 0 || unpack->has_ended || (starved && !last)) {
            break;
        }
        if (unpack->bytes_max - unpack->out_total < room) {
            room = unpack->bytes_max - unpack->out_total + 1; /* to see whether it is passed */
        }
        room = unpack->packing == STK_BZIP2 ? stk_min(room, BZIP2_TURN_BYTES) : room;
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
            !turn.draining && (starved || given > 0)) {
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

uint64_t stk_unpack_failed_at(const struct stk_unpack *unpack)
{
    return unpack->failed_at;
}

void stk_unpack_by_stream(struct stk_unpack *unpack)
{
    STK_ASSERT(unpack->in_total == 0 && !unpack->begun);
    unpack->by_stream = true;
    if (unpack->packing == STK_ZSTD) {
        size_t result = ZSTD_DCtx_setParameter(unpack->of.zstd, ZSTD_d_forceIgnoreChecksum,
                                               ZSTD_d_ignoreChecksum);

        STK_ASSERT(!ZSTD_isError(result));
    }
}

bool stk_unpack_ended(const struct stk_unpack *unpack, struct stk_ended *ended)
{
    *ended = unpack->ended;
    ended->in = unpack->in_total;
    ended->out = unpack->out_total;
    ended->bytes = unpack->out_total - unpack->stream_out;
    return unpack->has_ended;
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
        unpack->xz_memory =
            (lzma_allocator){stk_granted_take, stk_granted_give_back, &unpack->memory};
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
    unpack->proved = unpack->stream_out = unpack->out_total;
    unpack->failed_at = unpack->in_total + (unpack->packing == STK_BZIP2 ? BZIP2_HEAD_BYTES : 0);
    unpack->streams++;
    unpack->head_bytes = 0;
    memset(unpack->tail, 0, sizeof unpack->tail);
    XXH64_reset(&unpack->sum, 0);
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

/* What it tells by its end; a run by streams ends with it. */
static void end_stream(struct stk_unpack *unpack, uint32_t proof)
{
    bool empty = unpack->packing == STK_ZSTD && (unpack->head[0] & 0xf0) == 0x50;

    unpack->begun = unpack->between = true;
    unpack->has_ended = unpack->by_stream;
    unpack->ended.proof = proof;
    unpack->ended.empty = empty;
    /* libzstd compares the size where a frame tells it. */
    unpack->ended.sized = unpack->head[4] & (ZSTD_SIZED | ZSTD_SINGLE);
    unpack->ended.sum = (uint32_t)XXH64_digest(&unpack->sum);
}

/* The number of bytes behind a wrong CRC-32 (RFC 1952, 2.3.1): if it is right, the damage moved
 * nothing, and what follows is in its place. 1: compared; 0: not here yet. */
static int compare_size(struct stk_unpack *unpack, struct stk_view *in, bool last)
{
    uint32_t size = 0;

    for (; unpack->size_left > 0 && in->bytes > 0; unpack->size_left--) {
        unpack->head[GZIP_SIZE_BYTES - unpack->size_left] = in->data[0];
        skip(unpack, in, 1);
    }
    if (unpack->size_left > 0) {
        return last ? STOKER_ERROR_TRUNCATED : 0;
    }
    for (uint32_t i = GZIP_SIZE_BYTES; i-- > 0;) {
        size = size << 8 | unpack->head[i];
    }
    end_stream(unpack, STK_PROOF_WRONG);
    unpack->ended.sized = size == (uint32_t)(unpack->out_total - unpack->stream_out);
    return 1;
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

/* Negative: the status, with turn->detail. Positive: the stream ended, with this enum stk_proof. */
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
        end_stream(unpack, (uint32_t)status);
    }
    return status;
}

/* The first and last bytes of what a turn took of the stream. */
static void note_input(struct stk_unpack *unpack, const uint8_t *data, size_t bytes)
{
    size_t last = stk_min(bytes, TAIL_BYTES);

    for (size_t i = 0; i < bytes && unpack->head_bytes < HEAD_BYTES; i++) {
        unpack->head[unpack->head_bytes++] = data[i];
    }
    memmove(unpack->tail, unpack->tail + last, TAIL_BYTES - last);
    memcpy(unpack->tail + TAIL_BYTES - last, data + bytes - last, last);
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
    bool wrong_sum, wrong_size;
    int result, proof;

    stream->next_in = (uint8_t *)(uintptr_t)turn->in.data; /* zlib only reads it */
    stream->avail_in = turn->in.bytes;
    stream->next_out = turn->out;
    stream->avail_out = turn->out_bytes;
    result = inflate(stream, unpack->maker ? Z_BLOCK : Z_NO_FLUSH);
    advance(turn, stream->avail_in, stream->avail_out);
    switch (result) {
    case Z_STREAM_END:
        unpack->trailer_bytes = unpack->headless ? GZIP_TRAILER_BYTES : 0;
        proof = unpack->headless ? STK_PROOF_NONE : STK_PROOF_RIGHT;
        unpack->headless = false;
        return proof;
    case Z_OK:
    case Z_BUF_ERROR: /* no input, or no room: not an error */
        return 0;
    case Z_MEM_ERROR:
        return -ENOMEM;
    default:
        /* Of a member's CRC and, if that is right, of its size; zlib tells them by words only. */
        wrong_sum = stream->msg && strcmp(stream->msg, "incorrect data check") == 0;
        wrong_size = stream->msg && strcmp(stream->msg, "incorrect length check") == 0;
        if (unpack->by_stream && wrong_size) {
            return STK_PROOF_ODD;
        }
        unpack->size_left = unpack->by_stream && wrong_sum ? GZIP_SIZE_BYTES : 0;
        unpack->doubtful = wrong_sum || wrong_size;
        return unpack->size_left > 0 ? 0 : STOKER_ERROR_CORRUPT;
    }
}

/* In work is a frame with data, whose descriptor (RFC 8878, 3.1.1.1.1) is here. */
static bool is_frame(const struct stk_unpack *unpack)
{
    return unpack->head_bytes == HEAD_BYTES && unpack->head[0] == 0x28;
}

/* By its checksum, which libzstd was told to leave to us: it would not tell where the frame ends.
 */
static uint32_t frame_proof(const struct stk_unpack *unpack)
{
    const uint8_t *sum = unpack->tail + TAIL_BYTES - 4;
    uint32_t stored =
        sum[0] | (uint32_t)sum[1] << 8 | (uint32_t)sum[2] << 16 | (uint32_t)sum[3] << 24;

    if (!is_frame(unpack) || !(unpack->head[4] & ZSTD_SUMMED)) {
        return STK_PROOF_NONE;
    }
    if (!unpack->by_stream || stored == (uint32_t)XXH64_digest(&unpack->sum)) {
        return STK_PROOF_RIGHT;
    }
    return STK_PROOF_WRONG;
}

static int zstd_turn(struct stk_unpack *unpack, struct turn *turn)
{
    ZSTD_inBuffer in = {turn->in.data, turn->in.bytes, 0};
    ZSTD_outBuffer out = {turn->out, turn->out_bytes, 0};
    size_t result;

    if (unpack->by_stream) { /* a block at a time: what fails takes nothing with it */
        turn->draining = !unpack->flushed && in.size > 0;
        in.size = turn->draining ? 0 : stk_min(in.size, stk_max(unpack->hint, HEAD_BYTES));
    }
    result = ZSTD_decompressStream(unpack->of.zstd, &out, &in);
    unpack->hint = ZSTD_isError(result) ? 0 : result;
    note_input(unpack, turn->in.data, in.pos);
    if (unpack->by_stream) {
        XXH64_update(&unpack->sum, turn->out, out.pos);
    }
    advance(turn, turn->in.bytes - in.pos, out.size - out.pos);
    unpack->unsummed |= is_frame(unpack) && !(unpack->head[4] & ZSTD_SUMMED);
    if (!ZSTD_isError(result)) {
        return result == 0 ? (int)frame_proof(unpack) : 0;
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

/* The stream's end stands before its damaged checksum: all blocks are there, by their own CRCs. */
static bool is_at_end(const struct stk_unpack *unpack)
{
    uint64_t first = 0;

    for (int i = 0; i < 8; i++) {
        first = first << 8 | unpack->tail[i];
    }
    for (int padding = 0; padding < 8; padding++) { /* bits behind the checksum */
        if ((first >> (8 + padding) & 0xffffffffffff) == BZIP2_END) {
            return true;
        }
    }
    return false;
}

static int bzip2_turn(struct stk_unpack *unpack, struct turn *turn)
{
    bz_stream *stream = &unpack->of.bzip2;
    size_t taken;
    int result;

    /* A block is put out before the next one is given, so that its CRC is known first. */
    turn->draining = !unpack->flushed && turn->in.bytes > 0;
    stream->next_in = (char *)(uintptr_t)turn->in.data; /* bzlib only reads it */
    stream->avail_in = turn->draining ? 0 : turn->in.bytes;
    stream->next_out = (char *)turn->out;
    stream->avail_out = turn->out_bytes;
    result = BZ2_bzDecompress(stream);
    taken = turn->draining ? 0 : turn->in.bytes - stream->avail_in;
    if (taken > 0 && unpack->flushed) {
        unpack->proved = unpack->out_total;
        unpack->failed_at = stk_max(unpack->failed_at, unpack->in_total);
    }
    note_input(unpack, turn->in.data, taken);
    advance(turn, turn->in.bytes - taken, stream->avail_out);
    switch (result) {
    case BZ_STREAM_END:
        return STK_PROOF_RIGHT;
    case BZ_OK:
        return 0;
    case BZ_MEM_ERROR:
        return -ENOMEM;
    default:
        if (unpack->by_stream && is_at_end(unpack)) {
            return STK_PROOF_ODD;
        }
        unpack->doubtful = true;
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
