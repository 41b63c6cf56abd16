/* format/compress/decompress_private.h: what decompress.c and the libraries share; private to the
 * room. One file per library: decompress_gzip.c (zlib), decompress_zstd.c, decompress_bzip2.c,
 * decompress_xz.c (liblzma). A new one is a file and a row of the table in decompress.c.
 *
 *   open -> begin (a stream) -> before_step, step ... step > 0: the stream ended -> begin ... ->
 * close
 *
 * Owner: the decompressor. Threads: one. Memory: the library's, by struct stk_budget_allocator.
 * Bound: of each library, stated in its file. */
#ifndef FORMAT_COMPRESS_DECOMPRESS_PRIVATE_H
#define FORMAT_COMPRESS_DECOMPRESS_PRIVATE_H

#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"

#include <string.h>

/* One step of a library: it takes input, writes output, and advances all of them. */
struct stk_decompress_step {
    struct stk_view in;
    uint8_t *out;
    size_t out_bytes;
    bool last;          /* no input follows */
    bool draining;      /* out: the library got no input, although there is some */
    const char *detail; /* out: why it failed, in words of the format */
};

struct stk_decompress {
    const struct stk_decompress_library *library; /* const after open, as the limits */
    void *state;                                  /* of the library; owned by its functions */
    uint32_t compression;
    uint32_t ratio_max;
    uint64_t bytes_max;
    uint64_t in_total, out_total;
    bool between; /* no stream has begun since the last one ended */
    bool begun;   /* a stream has ended, or decompression began inside of one */
    bool flushed; /* the last step left space in `out`: the library holds no output */
    bool done;
    struct stk_seek_points_builder *builder; /* borrowed; NULL: no seek points are collected */
    uint32_t trailer_bytes;                  /* to skip before the next stream */
    struct stk_budget_allocator memory;      /* of the library */
    uint64_t streams;                        /* that began */
    uint64_t verified_bytes; /* decompressed bytes with a right checksum, or without one */
    bool unverified;         /* a checksum was wrong, or may have been */
    bool lacks_checksum;     /* a frame of zstd had no checksum */
    uint64_t error_offset;   /* compressed bytes before the data that is not verified */
    uint64_t stream_out;     /* decompressed bytes before the stream */
    bool by_stream;          /* each run ends where a stream ends */
    bool has_ended;          /* the last run ended a stream: `end` */
    struct stk_decompress_end end;
};

/* The operations of a library. Functions that may be NULL say so. */
struct stk_decompress_library {
    const char *name;
    size_t step_bytes_max; /* output of a step; 0: no own limit */
    uint32_t head_bytes;   /* of a stream, before the data that can be damaged alone */
    bool has_seek_points;
    /* Sets decompress->state. Returns 0 or -ENOMEM; close is called in both cases. */
    int (*open)(struct stk_decompress *decompress);
    void (*close)(struct stk_decompress *decompress);
    /* Begins a stream; decompress->begun: another one was before it. Returns 0 or -ENOMEM. */
    int (*begin)(struct stk_decompress *decompress);
    /* Returns 0 to continue; negative: the status, with step->detail; positive: the stream ended,
     * with this enum stk_decompress_check. */
    int (*step)(struct stk_decompress *decompress, struct stk_decompress_step *step);
    /* NULL is allowed. Called before each step inside of a stream. Returns 1: take the step, or the
     * stream has ended; 0: more input is needed; or negative. */
    int (*before_step)(struct stk_decompress *decompress, struct stk_view *in, bool last);
    /* NULL is allowed. Fills in what the end of a stream states, but `check`. */
    void (*describe_end)(const struct stk_decompress *decompress, struct stk_decompress_end *end);
    /* NULL is allowed. Each run is to end where a stream ends. */
    void (*by_stream)(struct stk_decompress *decompress);
    /* NULL is allowed. Prepares the collection of seek points inside of streams. 0 or -ENOMEM. */
    int (*collect_seek_points)(struct stk_decompress *decompress);
    /* NULL is allowed. Called after each step, to add a seek point inside of the stream. */
    void (*add_seek_point)(struct stk_decompress *decompress);
    /* NULL is allowed. Starts at a seek point inside of a stream. Returns 0, -ENOMEM, or
     * STOKER_ERROR_CORRUPT: the library refuses the window. */
    int (*start_at)(struct stk_decompress *decompress, const struct stk_seek_point *point,
                    struct stk_view window);
};

extern const struct stk_decompress_library stk_decompress_gzip, stk_decompress_zstd,
    stk_decompress_bzip2, stk_decompress_xz;

static inline void stk_decompress_skip(struct stk_decompress *decompress, struct stk_view *in,
                                       size_t bytes)
{
    in->data += bytes;
    in->bytes -= bytes;
    decompress->in_total += bytes;
}

/* Ends the stream, with an enum stk_decompress_check. */
static inline void stk_decompress_end_stream(struct stk_decompress *decompress, uint32_t check)
{
    decompress->begun = decompress->between = true;
    decompress->has_ended = decompress->by_stream;
    decompress->end = (struct stk_decompress_end){.check = check};
    if (decompress->library->describe_end) {
        decompress->library->describe_end(decompress, &decompress->end);
    }
}

/* Advances a step by what the library left of input and output. */
static inline void stk_decompress_advance(struct stk_decompress_step *step, size_t in_left,
                                          size_t out_left)
{
    step->in.data += step->in.bytes - in_left;
    step->in.bytes = in_left;
    step->out += step->out_bytes - out_left;
    step->out_bytes = out_left;
}

/* Keeps the last bytes of a stream's input. */
static inline void stk_decompress_keep_tail(uint8_t *tail, size_t tail_bytes, const uint8_t *data,
                                            size_t bytes)
{
    size_t last = stk_min(bytes, tail_bytes);

    memmove(tail, tail + last, tail_bytes - last);
    memcpy(tail + tail_bytes - last, data + bytes - last, last);
}

#endif
