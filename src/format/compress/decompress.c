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
    STEP_BYTES_MAX = 1 << 30, /* zlib and bzlib count in 32 bits */
    GZIP_TRAILER_BYTES = 8,   /* CRC-32 and size (RFC 1952, 2.3.1) */
    GZIP_SIZE_BYTES = 4,
    BZIP2_STEP_BYTES = 64 << 10, /* out: less than a block, so that one turn enters one at most */
    BZIP2_HEAD_BYTES = 4,
    ZSTD_CHECKSUM = 4,
    ZSTD_SINGLE = 0x20,
    ZSTD_SIZED = 0xc0, /* bits of a frame's descriptor */
    HEAD_BYTES = 5,    /* of a zstd frame, with its descriptor */
    TAIL_BYTES = 11    /* of a bzip2 stream: magic and checksum, wherever its bits begin */
};
static const uint64_t bytes_default = 1ULL << 40;
#define BZIP2_END UINT64_C(0x177245385090) /* begins the end of a stream */

struct stk_decompress {
    uint32_t compression; /* const after open, like the limits */
    uint32_t ratio_max;
    uint64_t bytes_max;
    uint64_t in_total, out_total;
    bool is_open; /* the library was set up, close it */
    bool between; /* no stream has begun since the last ended */
    bool begun;   /* a stream has ended */
    bool flushed; /* the last turn left room in out: nothing is held back */
    bool done;
    struct stk_seek_points_builder *builder; /* lent; NULL: no points are collected */
    uint8_t *window;        /* owned, with a maker of gzip: STK_SEEK_POINTS_WINDOW_BYTES */
    uint32_t prime_bits;    /* of the first byte, begun inside of a member */
    uint32_t trailer_bytes; /* still to be skipped of such a member */
    uint32_t size_left;     /* bytes of a gzip size that decides over a wrong CRC */
    bool headless;          /* it was begun inside of a member and is still in it */
    struct stk_budget_allocator memory; /* of the library */
    lzma_allocator xz_memory;
    uint64_t streams;          /* that began */
    uint64_t verified_bytes;   /* unpacked bytes whose checksums were right, or had none */
    bool unverified;           /* a checksum was wrong, or may have been */
    bool lacks_checksum;       /* a frame of zstd had no checksum */
    uint64_t error_offset;     /* packed bytes before what `proved` does not have */
    bool by_stream, has_ended; /* has_ended: the last run ended a stream: `ended` */
    struct stk_decompress_end end;
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
struct step {
    struct stk_view in;
    uint8_t *out;
    size_t out_bytes;
    bool last;
    bool draining; /* it was given no input, though there is some */
    const char *detail;
};

static int set_up(struct stk_decompress *decompress);
static int run_step(struct stk_decompress *decompress, struct step *step);
static int gzip_step(struct stk_decompress *decompress, struct step *step);
static int zstd_step(struct stk_decompress *decompress, struct step *step);
static int bzip2_step(struct stk_decompress *decompress, struct step *step);
static int xz_step(struct stk_decompress *decompress, struct step *step);
static int begin_stream(struct stk_decompress *decompress);
static void end_stream(struct stk_decompress *decompress, uint32_t check);
static int compare_size(struct stk_decompress *decompress, struct stk_view *in, bool last);
static int enter(struct stk_decompress *decompress, struct stk_view *in);
static void add_to_builder(struct stk_decompress *decompress, const uint8_t *out, size_t bytes);
static int check_limits(const struct stk_decompress *decompress, const char **detail_out);
static int fail(const struct stk_decompress *decompress, struct stoker_error *error, int status,
                const char *detail);

static const char *const names[] = {"plain", "gzip", "zstd", "bzip2", "xz"};

uint32_t stk_compression_detect(struct stk_view head)
{
    const uint8_t *data = head.data;

    if (head.bytes < 6) {
        return STK_COMPRESSION_NONE;
    }
    if (data[0] == 0x1f && data[1] == 0x8b && data[2] == 8) {
        return STK_COMPRESSION_GZIP;
    }
    /* A frame, or a skippable frame before one (RFC 8878, 3.1). */
    if (memcmp(data, "\x28\xb5\x2f\xfd", 4) == 0 ||
        ((data[0] & 0xf0) == 0x50 && memcmp(data + 1, "\x2a\x4d\x18", 3) == 0)) {
        return STK_COMPRESSION_ZSTD;
    }
    /* Behind the level the first block begins (digits of pi), or the end (of its root). */
    if (memcmp(data, "BZh", 3) == 0 && data[3] >= '1' && data[3] <= '9' &&
        (memcmp(data + 4, "\x31\x41", 2) == 0 || memcmp(data + 4, "\x17\x72", 2) == 0)) {
        return STK_COMPRESSION_BZIP2;
    }
    return memcmp(data,
                  "\xfd"
                  "7zXZ\0",
                  6) == 0
               ? STK_COMPRESSION_XZ
               : STK_COMPRESSION_NONE;
}

const char *stk_compression_name(uint32_t compression)
{
    return compression < STK_COUNT(names) ? names[compression] : "unknown";
}

int stk_decompress_open(struct stk_decompress **decompress_out, uint32_t compression,
                        const struct stk_decompress_limits *limits, struct stoker_error *error)
{
    struct stk_decompress *decompress = stk_alloc(1, sizeof *decompress);
    bool refused;

    STK_ASSERT(compression > STK_COMPRESSION_NONE && compression <= STK_COMPRESSION_XZ);
    *decompress_out = NULL;
    if (decompress) {
        decompress->compression = compression;
        decompress->bytes_max = limits->bytes_max ? limits->bytes_max : bytes_default;
        decompress->ratio_max = limits->ratio_max ? limits->ratio_max : RATIO_DEFAULT;
        decompress->memory.grant = limits->grant;
        decompress->between = decompress->flushed = true;
        decompress->is_open = set_up(decompress) == 0;
    }
    if (!decompress || !decompress->is_open) {
        refused = decompress && decompress->memory.refused;
        if (decompress && compression == STK_COMPRESSION_ZSTD) {
            ZSTD_freeDStream(decompress->of.zstd);
        }
        stk_free(decompress);
        return stk_fail(
            error, refused ? STOKER_ERROR_BUDGET : -ENOMEM, "no memory to unpack a shard",
            refused ? "grant more memory" : "free memory", "%s", stk_compression_name(compression));
    }
    *decompress_out = decompress;
    return 0;
}

void stk_decompress_close(struct stk_decompress *decompress)
{
    if (!decompress) {
        return;
    }
    switch (decompress->compression) {
    case STK_COMPRESSION_GZIP:
        inflateEnd(&decompress->of.gzip);
        break;
    case STK_COMPRESSION_ZSTD:
        ZSTD_freeDStream(decompress->of.zstd);
        break;
    case STK_COMPRESSION_BZIP2:
        BZ2_bzDecompressEnd(&decompress->of.bzip2);
        break;
    default:
        lzma_end(&decompress->of.xz);
    }
    stk_free(decompress->window);
    stk_free(decompress);
}

int stk_decompress_set_builder(struct stk_decompress *decompress,
                               struct stk_seek_points_builder *builder, struct stoker_error *error)
{
    STK_ASSERT(decompress->compression == STK_COMPRESSION_GZIP ||
               decompress->compression == STK_COMPRESSION_ZSTD);
    STK_ASSERT(decompress->in_total == 0 && !decompress->builder);
    if (decompress->compression == STK_COMPRESSION_GZIP) {
        decompress->window = stk_alloc(STK_SEEK_POINTS_WINDOW_BYTES, 1);
        if (!decompress->window) {
            return stk_fail(error, -ENOMEM, "no memory for access points", "free memory", "window");
        }
    }
    decompress->builder = builder;
    return 0;
}

int stk_decompress_start_at(struct stk_decompress *decompress, const struct stk_seek_point *point,
                            struct stk_view window, struct stoker_error *error)
{
    z_stream *stream = &decompress->of.gzip;
    int result;

    STK_ASSERT(decompress->in_total == 0 && !decompress->begun && !decompress->builder);
    decompress->in_total = point->in;
    if (point->out > decompress->bytes_max) {
        return fail(decompress, error, STOKER_ERROR_LIMIT, "unpacked it passes unpacked_bytes_max");
    }
    decompress->out_total = point->out;
    if (point->kind == STK_SEEK_POINT_STREAM) {
        return 0;
    }
    STK_ASSERT(decompress->compression == STK_COMPRESSION_GZIP && point->bits < 8);
    if (inflateReset2(stream, -MAX_WBITS) != Z_OK) {
        return fail(decompress, error, -ENOMEM, "");
    }
    result = inflateSetDictionary(stream, window.data, window.bytes);
    if (result == Z_MEM_ERROR) {
        return fail(decompress, error, -ENOMEM, "");
    }
    if (result != Z_OK) {
        return fail(decompress, error, STOKER_ERROR_CORRUPT, "its access point has no fit window");
    }
    decompress->prime_bits = point->bits;
    decompress->headless = decompress->begun = true;
    decompress->between = false;
    return 0;
}

static void skip(struct stk_decompress *decompress, struct stk_view *in, size_t bytes)
{
    in->data += bytes;
    in->bytes -= bytes;
    decompress->in_total += bytes;
}

/* Over padding to the next stream. 1: there is one; 0: not yet; negative: there never was. */
static int find_stream(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    size_t trailer = stk_min(decompress->trailer_bytes, in->bytes);

    skip(decompress, in, trailer);
    decompress->trailer_bytes -= trailer;
    if (decompress->trailer_bytes > 0) {
        return last ? STOKER_ERROR_TRUNCATED : 0;
    }
    while (decompress->begun && in->bytes > 0 && in->data[0] == 0) {
        skip(decompress, in, 1);
    }
    if (in->bytes == 0) {
        decompress->done = last && decompress->begun;
        return last && !decompress->begun ? STOKER_ERROR_TRUNCATED : 0;
    }
    return 1;
}

/* What stands before a turn: padding and a begin, the rest of an end, bits. 1: a turn may be taken,
 * or a stream has ended; 0: more input is needed, or none comes. */
static int begin_step(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    int status = 1;

    if (decompress->between) {
        status = find_stream(decompress, in, last);
        status = status <= 0 ? status : begin_stream(decompress) < 0 ? -ENOMEM : 1;
    } else if (decompress->size_left > 0) {
        status = compare_size(decompress, in, last);
    } else if (decompress->prime_bits > 0) {
        status = enter(decompress, in) < 0 ? STOKER_ERROR_CORRUPT : 1;
    }
    return status;
}

int stk_decompress_run(struct stk_decompress *decompress, struct stk_view *in, bool last,
                       uint8_t *out, size_t out_bytes, size_t *written_out,
                       struct stoker_error *error)
{
    size_t written = 0;
    const char *detail = "the input ends inside the packed stream";
    int status = 0;

    *written_out = 0;
    decompress->has_ended = false;
    /* Each turn takes input or fills out, or it is the last one. */
    while (!decompress->done && written < out_bytes && !decompress->has_ended) {
        struct step step = {.out = out + written};
        size_t capacity = stk_min(out_bytes - written, STEP_BYTES_MAX);
        size_t given; /* input of this turn */
        bool starved;

        status = begin_step(decompress, in, last);
        starved = in->bytes == 0 && decompress->flushed;
        if (status <= 0 || decompress->has_ended || (starved && !last)) {
            break;
        }
        if (decompress->bytes_max - decompress->out_total < capacity) {
            capacity =
                decompress->bytes_max - decompress->out_total + 1; /* to see whether it is passed */
        }
        capacity = decompress->compression == STK_COMPRESSION_BZIP2
                       ? stk_min(capacity, BZIP2_STEP_BYTES)
                       : capacity;
        step.in = *in;
        step.in.bytes = given = stk_min(in->bytes, STEP_BYTES_MAX);
        step.out_bytes = capacity;
        step.last = last && given == in->bytes;
        status = run_step(decompress, &step);
        decompress->in_total += (size_t)(step.in.data - in->data);
        decompress->out_total += capacity - step.out_bytes;
        in->bytes -= (size_t)(step.in.data - in->data);
        in->data = step.in.data;
        add_to_builder(decompress, out + written, capacity - step.out_bytes);
        written += capacity - step.out_bytes;
        decompress->flushed = step.out_bytes > 0;
        if (status < 0) {
            detail = step.detail;
            break;
        }
        status = check_limits(decompress, &detail);
        if (status < 0) {
            break;
        }
        if (step.out_bytes == capacity && step.in.bytes == given && !decompress->between &&
            !decompress->done && !step.draining && (starved || given > 0)) {
            status = given > 0 ? STOKER_ERROR_CORRUPT : STOKER_ERROR_TRUNCATED;
            break;
        }
    }
    *written_out = status < 0 && status != STOKER_ERROR_CORRUPT && status != STOKER_ERROR_TRUNCATED
                       ? 0
                       : written;
    if (status < 0) {
        return fail(decompress, error, status, detail);
    }
    return decompress->done ? 0 : 1;
}

uint64_t stk_decompress_unverified_bytes(const struct stk_decompress *decompress)
{
    return decompress->unverified ? decompress->out_total - decompress->verified_bytes : 0;
}

bool stk_decompress_has_checksum(const struct stk_decompress *decompress)
{
    return !decompress->lacks_checksum;
}

uint64_t stk_decompress_error_offset(const struct stk_decompress *decompress)
{
    return decompress->error_offset;
}

void stk_decompress_by_stream(struct stk_decompress *decompress)
{
    STK_ASSERT(decompress->in_total == 0 && !decompress->begun);
    decompress->by_stream = true;
    if (decompress->compression == STK_COMPRESSION_ZSTD) {
        size_t result = ZSTD_DCtx_setParameter(decompress->of.zstd, ZSTD_d_forceIgnoreChecksum,
                                               ZSTD_d_ignoreChecksum);

        STK_ASSERT(!ZSTD_isError(result));
    }
}

bool stk_decompress_stream_end(const struct stk_decompress *decompress,
                               struct stk_decompress_end *ended)
{
    *ended = decompress->end;
    ended->in = decompress->in_total;
    ended->out = decompress->out_total;
    ended->bytes = decompress->out_total - decompress->stream_out;
    return decompress->has_ended;
}

uint64_t stk_decompress_stream_count(const struct stk_decompress *decompress)
{
    return decompress->streams;
}

static int check_limits(const struct stk_decompress *decompress, const char **detail_out)
{
    if (decompress->out_total > decompress->bytes_max) {
        *detail_out = "unpacked it passes unpacked_bytes_max";
        return STOKER_ERROR_LIMIT;
    }
    if (decompress->out_total > RATIO_FREE_BYTES &&
        decompress->out_total / decompress->ratio_max > decompress->in_total) {
        *detail_out = "it unpacks to more than unpacked_ratio_max times its size";
        return STOKER_ERROR_LIMIT;
    }
    return 0;
}

static int fail(const struct stk_decompress *decompress, struct stoker_error *error, int status,
                const char *detail)
{
    const char *advice = "copy the shard again or leave it out";

    if (status == STOKER_ERROR_LIMIT) {
        advice = "raise the limit if you trust the shard, or store it unpacked";
    } else if (status == -ENOMEM) {
        status = decompress->memory.refused ? STOKER_ERROR_BUDGET : status;
        advice =
            decompress->memory.refused ? "grant more memory" : "free memory or give the job more";
        detail = "no memory for the window";
    } else if (status == STOKER_ERROR_UNSUPPORTED) {
        advice = "pack the shard again without it";
    }
    stk_fail(error, status, "cannot unpack the shard", advice, "%s: %s",
             stk_compression_name(decompress->compression), detail);
    stk_error_set_location(error, NULL, decompress->in_total, NULL);
    return status;
}

static int set_up(struct stk_decompress *decompress)
{
    const ZSTD_customMem zstd_memory = {stk_library_allocator_zstd, stk_budget_allocator_free,
                                        &decompress->memory};
    bool ok = false;

    switch (decompress->compression) {
    case STK_COMPRESSION_GZIP:
        decompress->of.gzip.zalloc = stk_library_allocator_gzip;
        decompress->of.gzip.zfree = stk_budget_allocator_free;
        decompress->of.gzip.opaque = &decompress->memory;
        ok = inflateInit2(&decompress->of.gzip, 16 + MAX_WBITS) == Z_OK; /* 16: gzip only */
        break;
    case STK_COMPRESSION_ZSTD:
        decompress->of.zstd = ZSTD_createDStream_advanced(zstd_memory);
        ok = decompress->of.zstd &&
             !ZSTD_isError(ZSTD_DCtx_setParameter(decompress->of.zstd, ZSTD_d_windowLogMax,
                                                  ZSTD_WINDOW_LOG_MAX));
        break;
    case STK_COMPRESSION_BZIP2:
        decompress->of.bzip2.bzalloc = stk_library_allocator_bzip2;
        decompress->of.bzip2.bzfree = stk_budget_allocator_free;
        decompress->of.bzip2.opaque = &decompress->memory;
        ok = BZ2_bzDecompressInit(&decompress->of.bzip2, 0, 0) == BZ_OK;
        break;
    default:
        decompress->xz_memory = (lzma_allocator){stk_budget_allocator_alloc,
                                                 stk_budget_allocator_free, &decompress->memory};
        decompress->of.xz.allocator = &decompress->xz_memory;
        decompress->between = false; /* liblzma walks over streams and their padding itself */
        decompress->streams = 1;
        ok = lzma_stream_decoder(&decompress->of.xz, XZ_MEMORY_MAX, LZMA_CONCATENATED) == LZMA_OK;
    }
    return ok ? 0 : -ENOMEM;
}

static int begin_stream(struct stk_decompress *decompress)
{
    bool ok = true;

    decompress->between = false;
    decompress->verified_bytes = decompress->stream_out = decompress->out_total;
    decompress->error_offset =
        decompress->in_total +
        (decompress->compression == STK_COMPRESSION_BZIP2 ? BZIP2_HEAD_BYTES : 0);
    decompress->streams++;
    decompress->head_bytes = 0;
    memset(decompress->tail, 0, sizeof decompress->tail);
    XXH64_reset(&decompress->sum, 0);
    if (decompress->builder && stk_seek_points_builder_is_due(decompress->builder, false)) {
        stk_seek_points_builder_add_point(decompress->builder, decompress->in_total, 0,
                                          (struct stk_view){NULL, 0});
    }
    if (!decompress->begun) {
        return 0;
    }
    if (decompress->compression == STK_COMPRESSION_GZIP) {
        ok = inflateReset2(&decompress->of.gzip, 16 + MAX_WBITS) == Z_OK;
    } else if (decompress->compression == STK_COMPRESSION_BZIP2) {
        BZ2_bzDecompressEnd(&decompress->of.bzip2);
        ok = BZ2_bzDecompressInit(&decompress->of.bzip2, 0, 0) == BZ_OK;
    }
    return ok ? 0 : -ENOMEM;
}

/* What it tells by its end; a run by streams ends with it. */
static void end_stream(struct stk_decompress *decompress, uint32_t check)
{
    bool empty =
        decompress->compression == STK_COMPRESSION_ZSTD && (decompress->head[0] & 0xf0) == 0x50;

    decompress->begun = decompress->between = true;
    decompress->has_ended = decompress->by_stream;
    decompress->end.check = check;
    decompress->end.skippable = empty;
    /* libzstd compares the size where a frame tells it. */
    decompress->end.size_matches = decompress->head[4] & (ZSTD_SIZED | ZSTD_SINGLE);
    decompress->end.checksum = (uint32_t)XXH64_digest(&decompress->sum);
}

/* The number of bytes behind a wrong CRC-32 (RFC 1952, 2.3.1): if it is right, the damage moved
 * nothing, and what follows is in its place. 1: compared; 0: not here yet. */
static int compare_size(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    uint32_t size = 0;

    for (; decompress->size_left > 0 && in->bytes > 0; decompress->size_left--) {
        decompress->head[GZIP_SIZE_BYTES - decompress->size_left] = in->data[0];
        skip(decompress, in, 1);
    }
    if (decompress->size_left > 0) {
        return last ? STOKER_ERROR_TRUNCATED : 0;
    }
    for (uint32_t i = GZIP_SIZE_BYTES; i-- > 0;) {
        size = size << 8 | decompress->head[i];
    }
    end_stream(decompress, STK_DECOMPRESS_CHECK_MISMATCH);
    decompress->end.size_matches =
        size == (uint32_t)(decompress->out_total - decompress->stream_out);
    return 1;
}

/* The first byte after a start inside of a member: its upper bits belong to the next block. */
static int enter(struct stk_decompress *decompress, struct stk_view *in)
{
    uint32_t bits = decompress->prime_bits;

    if (in->bytes == 0) {
        return 0;
    }
    decompress->prime_bits = 0;
    if (inflatePrime(&decompress->of.gzip, bits, in->data[0] >> (8 - bits)) != Z_OK) {
        return STOKER_ERROR_CORRUPT;
    }
    skip(decompress, in, 1);
    return 0;
}

/* What a turn unpacked, and whether unpacking could begin here. */
static void add_to_builder(struct stk_decompress *decompress, const uint8_t *out, size_t bytes)
{
    const z_stream *stream = &decompress->of.gzip;
    unsigned window_bytes = 0;
    uint32_t bits;

    if (!decompress->builder) {
        return;
    }
    stk_seek_points_builder_add_bytes(decompress->builder, (struct stk_view){out, bytes});
    /* 128: between two blocks, 64: the last one is over, 7: bits left of the last byte taken. */
    if (decompress->compression != STK_COMPRESSION_GZIP || decompress->between ||
        (stream->data_type & (128 | 64)) != 128 ||
        !stk_seek_points_builder_is_due(decompress->builder, true)) {
        return;
    }
    bits = stream->data_type & 7;
    if (inflateGetDictionary(&decompress->of.gzip, decompress->window, &window_bytes) == Z_OK &&
        window_bytes > 0) {
        stk_seek_points_builder_add_point(decompress->builder, decompress->in_total - (bits > 0),
                                          bits,
                                          (struct stk_view){decompress->window, window_bytes});
    }
}

/* Negative: the status, with turn->detail. Positive: the stream ended, with this enum
 * stk_decompress_check. */
static int run_step(struct stk_decompress *decompress, struct step *step)
{
    int status;

    step->detail = "the packed data is damaged, or something else follows it";
    switch (decompress->compression) {
    case STK_COMPRESSION_GZIP:
        status = gzip_step(decompress, step);
        break;
    case STK_COMPRESSION_ZSTD:
        status = zstd_step(decompress, step);
        break;
    case STK_COMPRESSION_BZIP2:
        status = bzip2_step(decompress, step);
        break;
    default:
        status = xz_step(decompress, step);
    }
    if (status > 0) {
        end_stream(decompress, (uint32_t)status);
    }
    return status;
}

/* The first and last bytes of what a turn took of the stream. */
static void note_input(struct stk_decompress *decompress, const uint8_t *data, size_t bytes)
{
    size_t last = stk_min(bytes, TAIL_BYTES);

    for (size_t i = 0; i < bytes && decompress->head_bytes < HEAD_BYTES; i++) {
        decompress->head[decompress->head_bytes++] = data[i];
    }
    memmove(decompress->tail, decompress->tail + last, TAIL_BYTES - last);
    memcpy(decompress->tail + TAIL_BYTES - last, data + bytes - last, last);
}

/* After a turn of zlib, bzlib or liblzma, by what is left. */
static void advance(struct step *step, size_t in_left, size_t out_left)
{
    step->in.data += step->in.bytes - in_left;
    step->in.bytes = in_left;
    step->out += step->out_bytes - out_left;
    step->out_bytes = out_left;
}

static int gzip_step(struct stk_decompress *decompress, struct step *step)
{
    z_stream *stream = &decompress->of.gzip;
    bool bad_checksum, wrong_size;
    int result, check;

    stream->next_in = (uint8_t *)(uintptr_t)step->in.data; /* zlib only reads it */
    stream->avail_in = step->in.bytes;
    stream->next_out = step->out;
    stream->avail_out = step->out_bytes;
    result = inflate(stream, decompress->builder ? Z_BLOCK : Z_NO_FLUSH);
    advance(step, stream->avail_in, stream->avail_out);
    switch (result) {
    case Z_STREAM_END:
        decompress->trailer_bytes = decompress->headless ? GZIP_TRAILER_BYTES : 0;
        check = decompress->headless ? STK_DECOMPRESS_CHECK_NONE : STK_DECOMPRESS_CHECK_OK;
        decompress->headless = false;
        return check;
    case Z_OK:
    case Z_BUF_ERROR: /* no input, or no room: not an error */
        return 0;
    case Z_MEM_ERROR:
        return -ENOMEM;
    default:
        /* Of a member's CRC and, if that is right, of its size; zlib tells them by words only. */
        bad_checksum = stream->msg && strcmp(stream->msg, "incorrect data check") == 0;
        wrong_size = stream->msg && strcmp(stream->msg, "incorrect length check") == 0;
        if (decompress->by_stream && wrong_size) {
            return STK_DECOMPRESS_CHECK_BAD_TRAILER;
        }
        decompress->size_left = decompress->by_stream && bad_checksum ? GZIP_SIZE_BYTES : 0;
        decompress->unverified = bad_checksum || wrong_size;
        return decompress->size_left > 0 ? 0 : STOKER_ERROR_CORRUPT;
    }
}

/* In work is a frame with data, whose descriptor (RFC 8878, 3.1.1.1.1) is here. */
static bool is_frame(const struct stk_decompress *decompress)
{
    return decompress->head_bytes == HEAD_BYTES && decompress->head[0] == 0x28;
}

/* By its checksum, which libzstd was told to leave to us: it would not tell where the frame ends.
 */
static uint32_t frame_check(const struct stk_decompress *decompress)
{
    const uint8_t *sum = decompress->tail + TAIL_BYTES - 4;
    uint32_t stored =
        sum[0] | (uint32_t)sum[1] << 8 | (uint32_t)sum[2] << 16 | (uint32_t)sum[3] << 24;

    if (!is_frame(decompress) || !(decompress->head[4] & ZSTD_CHECKSUM)) {
        return STK_DECOMPRESS_CHECK_NONE;
    }
    if (!decompress->by_stream || stored == (uint32_t)XXH64_digest(&decompress->sum)) {
        return STK_DECOMPRESS_CHECK_OK;
    }
    return STK_DECOMPRESS_CHECK_MISMATCH;
}

static int zstd_step(struct stk_decompress *decompress, struct step *step)
{
    ZSTD_inBuffer in = {step->in.data, step->in.bytes, 0};
    ZSTD_outBuffer out = {step->out, step->out_bytes, 0};
    size_t result;

    if (decompress->by_stream) { /* a block at a time: what fails takes nothing with it */
        step->draining = !decompress->flushed && in.size > 0;
        in.size = step->draining ? 0 : stk_min(in.size, stk_max(decompress->hint, HEAD_BYTES));
    }
    result = ZSTD_decompressStream(decompress->of.zstd, &out, &in);
    decompress->hint = ZSTD_isError(result) ? 0 : result;
    note_input(decompress, step->in.data, in.pos);
    if (decompress->by_stream) {
        XXH64_update(&decompress->sum, step->out, out.pos);
    }
    advance(step, step->in.bytes - in.pos, out.size - out.pos);
    decompress->lacks_checksum |= is_frame(decompress) && !(decompress->head[4] & ZSTD_CHECKSUM);
    if (!ZSTD_isError(result)) {
        return result == 0 ? (int)frame_check(decompress) : 0;
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

/* The stream's end stands before its damaged checksum: all blocks are there, by their own CRCs. */
static bool is_at_end(const struct stk_decompress *decompress)
{
    uint64_t first = 0;

    for (int i = 0; i < 8; i++) {
        first = first << 8 | decompress->tail[i];
    }
    for (int padding = 0; padding < 8; padding++) { /* bits behind the checksum */
        if ((first >> (8 + padding) & 0xffffffffffff) == BZIP2_END) {
            return true;
        }
    }
    return false;
}

static int bzip2_step(struct stk_decompress *decompress, struct step *step)
{
    bz_stream *stream = &decompress->of.bzip2;
    size_t taken;
    int result;

    /* A block is put out before the next one is given, so that its CRC is known first. */
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
    note_input(decompress, step->in.data, taken);
    advance(step, step->in.bytes - taken, stream->avail_out);
    switch (result) {
    case BZ_STREAM_END:
        return STK_DECOMPRESS_CHECK_OK;
    case BZ_OK:
        return 0;
    case BZ_MEM_ERROR:
        return -ENOMEM;
    default:
        if (decompress->by_stream && is_at_end(decompress)) {
            return STK_DECOMPRESS_CHECK_BAD_TRAILER;
        }
        decompress->unverified = true;
        return STOKER_ERROR_CORRUPT;
    }
}

static int xz_step(struct stk_decompress *decompress, struct step *step)
{
    lzma_stream *stream = &decompress->of.xz;
    lzma_ret result;

    stream->next_in = step->in.data;
    stream->avail_in = step->in.bytes;
    stream->next_out = step->out;
    stream->avail_out = step->out_bytes;
    result = lzma_code(stream, step->last ? LZMA_FINISH : LZMA_RUN);
    advance(step, stream->avail_in, stream->avail_out);
    switch ((int)result) {
    case LZMA_STREAM_END:
        decompress->done = true;
        return 0;
    case LZMA_OK:
    case LZMA_BUF_ERROR: /* the caller sees that nothing moved */
        return 0;
    case LZMA_MEM_ERROR:
        return -ENOMEM;
    case LZMA_MEMLIMIT_ERROR:
        step->detail = "it needs more than 256 MiB to unpack";
        return STOKER_ERROR_LIMIT;
    case LZMA_OPTIONS_ERROR:
        step->detail = "it uses a filter or a check that liblzma does not know";
        return STOKER_ERROR_UNSUPPORTED;
    default:
        decompress->unverified =
            true; /* the check of a block stands at its end, and is not told apart */
        return STOKER_ERROR_CORRUPT;
    }
}
