/* Compressed streams to bytes: the loop over streams and steps of all libraries, and the limits. */
#include "format/compress/decompress.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "format/compress/decompress_private.h"

#include <errno.h>
#include <string.h>

enum {
    RATIO_DEFAULT = 1100,       /* gz reaches 1,032 at most */
    RATIO_FREE_BYTES = 1 << 20, /* out, before the ratio counts */
    STEP_BYTES_MAX = 1 << 30    /* zlib and bzlib count in 32 bits */
};
static const uint64_t bytes_default = 1ULL << 40;

/* By enum stk_compression. */
static const struct stk_decompress_library *const libraries[] = {
    NULL, &stk_decompress_gzip, &stk_decompress_zstd, &stk_decompress_bzip2, &stk_decompress_xz};

static int begin_stream(struct stk_decompress *decompress);
static void add_to_builder(struct stk_decompress *decompress, const uint8_t *out, size_t bytes);
static int check_limits(const struct stk_decompress *decompress, const char **detail_out);
static int fail(const struct stk_decompress *decompress, struct stoker_error *error, int status,
                const char *detail);

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
    if (compression == STK_COMPRESSION_NONE) {
        return "plain";
    }
    return compression < STK_COUNT(libraries) ? libraries[compression]->name : "unknown";
}

int stk_decompress_open(struct stk_decompress **decompress_out, uint32_t compression,
                        const struct stk_decompress_limits *limits, struct stoker_error *error)
{
    struct stk_decompress *decompress = stk_alloc(1, sizeof *decompress);
    bool refused;
    int status = -ENOMEM;

    STK_ASSERT(compression > STK_COMPRESSION_NONE && compression < STK_COUNT(libraries));
    *decompress_out = NULL;
    if (decompress) {
        decompress->library = libraries[compression];
        decompress->compression = compression;
        decompress->bytes_max = limits->bytes_max ? limits->bytes_max : bytes_default;
        decompress->ratio_max = limits->ratio_max ? limits->ratio_max : RATIO_DEFAULT;
        decompress->memory.grant = limits->grant;
        decompress->between = decompress->flushed = true;
        status = decompress->library->open(decompress);
    }
    if (status < 0) {
        refused = decompress && decompress->memory.refused;
        stk_decompress_close(decompress);
        return stk_fail(
            error, refused ? STOKER_ERROR_BUDGET : -ENOMEM, "no memory to decompress a shard",
            refused ? "grant more memory" : "free memory", "%s", stk_compression_name(compression));
    }
    *decompress_out = decompress;
    return 0;
}

void stk_decompress_close(struct stk_decompress *decompress)
{
    if (decompress) {
        decompress->library->close(decompress);
        stk_free(decompress);
    }
}

int stk_decompress_set_builder(struct stk_decompress *decompress,
                               struct stk_seek_points_builder *builder, struct stoker_error *error)
{
    const struct stk_decompress_library *library = decompress->library;

    STK_ASSERT(library->has_seek_points && decompress->in_total == 0 && !decompress->builder);
    if (library->collect_seek_points && library->collect_seek_points(decompress) < 0) {
        return stk_fail(error, -ENOMEM, "no memory for seek points", "free memory", "window");
    }
    decompress->builder = builder;
    return 0;
}

int stk_decompress_start_at(struct stk_decompress *decompress, const struct stk_seek_point *point,
                            struct stk_view window, struct stoker_error *error)
{
    int status;

    STK_ASSERT(decompress->in_total == 0 && !decompress->begun && !decompress->builder);
    decompress->in_total = point->in;
    if (point->out > decompress->bytes_max) {
        return fail(decompress, error, STOKER_ERROR_LIMIT,
                    "it decompresses to more than decompressed_bytes_max");
    }
    decompress->out_total = point->out;
    if (point->kind == STK_SEEK_POINT_STREAM) {
        return 0;
    }
    STK_ASSERT(decompress->library->start_at);
    status = decompress->library->start_at(decompress, point, window);
    if (status < 0) {
        return fail(decompress, error, status, "the window of its seek point is damaged");
    }
    decompress->begun = true;
    decompress->between = false;
    return 0;
}

/* Skips padding up to the next stream. Returns 1 if there is one, 0 if more input is needed or none
 * follows, STOKER_ERROR_TRUNCATED if there never was one. */
static int find_stream(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    size_t trailer = stk_min(decompress->trailer_bytes, in->bytes);

    stk_decompress_skip(decompress, in, trailer);
    decompress->trailer_bytes -= trailer;
    if (decompress->trailer_bytes > 0) {
        return last ? STOKER_ERROR_TRUNCATED : 0;
    }
    while (decompress->begun && in->bytes > 0 && in->data[0] == 0) {
        stk_decompress_skip(decompress, in, 1);
    }
    if (in->bytes == 0) {
        decompress->done = last && decompress->begun;
        return last && !decompress->begun ? STOKER_ERROR_TRUNCATED : 0;
    }
    return 1;
}

/* Reads what is before the data of a step: padding and the begin of a stream, or what the library
 * needs. Returns 1: take the step, or a stream has ended; 0: more input is needed, or none follows.
 */
static int begin_step(struct stk_decompress *decompress, struct stk_view *in, bool last)
{
    int status = 1;

    if (decompress->between) {
        status = find_stream(decompress, in, last);
        status = status <= 0 ? status : begin_stream(decompress) < 0 ? -ENOMEM : 1;
    } else if (decompress->library->before_step) {
        status = decompress->library->before_step(decompress, in, last);
    }
    return status;
}

static int run_step(struct stk_decompress *decompress, struct stk_decompress_step *step)
{
    int status;

    step->detail = "the compressed data is damaged, or other data follows it";
    status = decompress->library->step(decompress, step);
    if (status > 0) {
        stk_decompress_end_stream(decompress, (uint32_t)status);
    }
    return status;
}

int stk_decompress_run(struct stk_decompress *decompress, struct stk_view *in, bool last,
                       uint8_t *out, size_t out_bytes, size_t *written_out,
                       struct stoker_error *error)
{
    size_t written = 0;
    const char *detail = "the input ends inside the compressed stream";
    int status = 0;

    *written_out = 0;
    decompress->has_ended = false;
    /* Each step takes input or writes output, or it is the last one. */
    while (!decompress->done && written < out_bytes && !decompress->has_ended) {
        struct stk_decompress_step step = {.out = out + written};
        size_t step_bytes_max = decompress->library->step_bytes_max;
        size_t capacity = stk_min(out_bytes - written, STEP_BYTES_MAX);
        size_t given; /* input of this step */
        bool starved;

        status = begin_step(decompress, in, last);
        starved = in->bytes == 0 && decompress->flushed;
        if (status <= 0 || decompress->has_ended || (starved && !last)) {
            break;
        }
        if (decompress->bytes_max - decompress->out_total < capacity) {
            capacity =
                /* to know whether it is exceeded */
                decompress->bytes_max - decompress->out_total + 1;
        }
        capacity = step_bytes_max ? stk_min(capacity, step_bytes_max) : capacity;
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
    if (decompress->library->by_stream) {
        decompress->library->by_stream(decompress);
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
        *detail_out = "it decompresses to more than decompressed_bytes_max";
        return STOKER_ERROR_LIMIT;
    }
    if (decompress->out_total > RATIO_FREE_BYTES &&
        decompress->out_total / decompress->ratio_max > decompress->in_total) {
        *detail_out = "it decompresses to more than decompression_ratio_max times its size";
        return STOKER_ERROR_LIMIT;
    }
    return 0;
}

static int fail(const struct stk_decompress *decompress, struct stoker_error *error, int status,
                const char *detail)
{
    const char *advice = "copy the shard again or leave it out";

    if (status == STOKER_ERROR_LIMIT) {
        advice = "raise the limit if you trust the shard, or store it uncompressed";
    } else if (status == -ENOMEM) {
        status = decompress->memory.refused ? STOKER_ERROR_BUDGET : status;
        advice =
            decompress->memory.refused ? "grant more memory" : "free memory or give the job more";
        detail = "no memory for the window";
    } else if (status == STOKER_ERROR_UNSUPPORTED) {
        advice = "compress the shard again without it";
    }
    stk_fail(error, status, "cannot decompress the shard", advice, "%s: %s",
             stk_compression_name(decompress->compression), detail);
    stk_error_set_location(error, NULL, decompress->in_total, NULL);
    return status;
}

static int begin_stream(struct stk_decompress *decompress)
{
    decompress->between = false;
    decompress->verified_bytes = decompress->stream_out = decompress->out_total;
    decompress->error_offset = decompress->in_total + decompress->library->head_bytes;
    decompress->streams++;
    if (decompress->builder && stk_seek_points_builder_is_due(decompress->builder, false)) {
        stk_seek_points_builder_add_point(decompress->builder, decompress->in_total, 0,
                                          (struct stk_view){NULL, 0});
    }
    return decompress->library->begin(decompress);
}

/* Adds the output of a step, and a seek point after it if decompression can start there. */
static void add_to_builder(struct stk_decompress *decompress, const uint8_t *out, size_t bytes)
{
    if (decompress->builder) {
        stk_seek_points_builder_add_bytes(decompress->builder, (struct stk_view){out, bytes});
        if (decompress->library->add_seek_point) {
            decompress->library->add_seek_point(decompress);
        }
    }
}
