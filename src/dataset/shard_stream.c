/* The decompressed bytes of a shard, from front to back or by its seek points. */
#include "dataset/shard_stream.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "format/compress/seek_points.h"

#include <errno.h>
#include <string.h>

#define STREAM_IN_BYTES (256u << 10)
#define STREAM_SKIP_BYTES (64u << 10)

struct stk_shard_stream {
    struct stk_shard_stream_options options;
    struct stk_file *file;
    uint8_t head[STK_CONTAINER_HEAD_BYTES];
    size_t head_bytes;
    struct stk_decompress *decompress; /* NULL: plain */
    uint8_t *in;          /* STREAM_IN_BYTES, then STREAM_SKIP_BYTES for bytes that are skipped */
    struct stk_view rest; /* of `in`, not yet decompressed */
    uint64_t object_bytes, in_offset, position;
    uint32_t compression;
    bool ended;
    struct stk_seek_points_builder *builder; /* owned; NULL: no points are collected */
    struct stk_segment_cache_source from;    /* its file: pinned; NULL: front to back */
    bool hashes;                             /* every byte of the file is added to sha, once */
    uint64_t hashed;                         /* plain files: the number of bytes that were added */
    struct stk_sha256 sha;
};

static int stream_restart(struct stk_shard_stream *stream, struct stoker_error *error);
static int stream_next(struct stk_shard_stream *stream, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error);
static int open_random_access(struct stk_shard_stream **stream_out,
                              const struct stk_shard_stream_options *options, uint32_t shard,
                              struct stoker_error *error);

static void count_read(const struct stk_shard_stream *stream, int64_t bytes)
{
    atomic_fetch_add_explicit(stream->options.bytes_read, (uint64_t)bytes, memory_order_relaxed);
}

int stk_shard_stream_open(struct stk_shard_stream **stream_out,
                          const struct stk_shard_stream_options *options, const char *path,
                          struct stoker_error *error)
{
    struct stk_io *io = options->io;
    struct stk_shard_stream *stream = stk_alloc(1, sizeof *stream);
    struct stk_stat about;
    int status;

    *stream_out = NULL;
    if (!stream) {
        return stk_fail(error, -ENOMEM, "cannot open a shard", "free memory", "'%s'", path);
    }
    stream->options = *options;
    status = stk_io_open_file(io, path, &stream->file, error);
    status = status < 0 ? status : stk_io_stat_file(stream->file, &about, error);
    if (status == 0) {
        int64_t got = stk_io_read_wait(stream->file, 0, stream->head, sizeof stream->head);
        stream->object_bytes = about.bytes;
        if (got < 0) {
            status = stk_io_fail_read(stream->file, got, "cannot read a shard", error);
        } else {
            stream->head_bytes = (size_t)got;
            stream->compression = stk_compression_detect(stk_shard_stream_head(stream));
        }
    }
    if (status == 0 && stream->compression != STK_COMPRESSION_NONE) {
        stream->in = stk_alloc(STREAM_IN_BYTES + STREAM_SKIP_BYTES, 1);
        status = stream->in ? stream_restart(stream, error)
                            : stk_fail(error, -ENOMEM, "cannot open a compressed shard",
                                       "free memory", "'%s'", path);
    }
    if (status < 0) {
        stk_shard_stream_close(stream);
        return status;
    }
    *stream_out = stream;
    return 0;
}

static int open_random_access(struct stk_shard_stream **stream_out,
                              const struct stk_shard_stream_options *options, uint32_t shard,
                              struct stoker_error *error)
{
    struct stk_shard_stream *stream = stk_alloc(1, sizeof *stream);
    int status;

    if (!stream) {
        return stk_fail(error, -ENOMEM, "cannot open a shard", "free memory", "compressed shard");
    }
    stream->options = *options;
    stream->compression = stk_index_shard_compression(options->index, shard);
    stream->object_bytes = stk_index_shard_bytes(options->index, shard);
    stream->from = (struct stk_segment_cache_source){.index = options->index, .shard = shard};
    status = stk_open_files_pin(options->files, options->index, shard, &stream->from.file, error);
    if (status < 0) {
        stk_free(stream);
        return status;
    }
    *stream_out = stream;
    return 0;
}

int stk_shard_stream_open_shard(struct stk_shard_stream **stream_out,
                                const struct stk_shard_stream_options *options, uint32_t shard,
                                struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    int status;

    *stream_out = NULL;
    if (stk_index_shard_compression(options->index, shard) != STK_COMPRESSION_NONE &&
        stk_index_is_random_access(options->index, shard)) {
        return open_random_access(stream_out, options, shard, error);
    }
    status = stk_index_path(options->index, shard, path, error);
    return status < 0 ? status : stk_shard_stream_open(stream_out, options, path, error);
}

struct stk_file *stk_shard_stream_file(const struct stk_shard_stream *stream)
{
    return stream->file;
}

struct stk_file *stk_shard_stream_source(const struct stk_shard_stream *stream)
{
    return stream->file ? stream->file : stream->from.file;
}

uint64_t stk_shard_stream_position(const struct stk_shard_stream *stream)
{
    return stream->position;
}

bool stk_shard_stream_is_sequential(const struct stk_shard_stream *stream)
{
    return stream->decompress != NULL;
}

struct stk_view stk_shard_stream_head(const struct stk_shard_stream *stream)
{
    return (struct stk_view){stream->head, stream->head_bytes};
}

uint32_t stk_shard_stream_compression(const struct stk_shard_stream *stream)
{
    return stream->compression;
}

uint64_t stk_shard_stream_object_bytes(const struct stk_shard_stream *stream)
{
    return stream->object_bytes;
}

void stk_shard_stream_close(struct stk_shard_stream *stream)
{
    if (!stream) {
        return;
    }
    if (stream->file) {
        stk_io_close_file(stream->file);
    }
    if (stream->from.file) {
        stk_open_files_unpin(stream->options.files, stream->from.shard, stream->from.file);
    }
    stk_decompress_close(stream->decompress);
    stk_seek_points_builder_close(stream->builder);
    stk_free(stream->in);
    stk_free(stream);
}

int stk_shard_stream_collect_seek_points(struct stk_shard_stream *stream, uint64_t spacing,
                                         struct stoker_error *error)
{
    int status;

    if (stream->compression != STK_COMPRESSION_GZIP &&
        stream->compression != STK_COMPRESSION_ZSTD) {
        return 0;
    }
    STK_ASSERT(stream->decompress && stream->position == 0);
    status =
        stk_seek_points_builder_open(&stream->builder, stream->compression, spacing, true, error);
    return status < 0 ? status
                      : stk_decompress_set_builder(stream->decompress, stream->builder, error);
}

int stk_shard_stream_seek_points(struct stk_shard_stream *stream, struct stk_view *image_out,
                                 struct stoker_error *error)
{
    size_t got = 1;
    int status = 0;

    *image_out = (struct stk_view){NULL, 0};
    if (!stream->builder) {
        return 0;
    }
    /* The parser may stop before the compressed stream ends. */
    while (status == 0 && got > 0) {
        status = stream_next(stream, stream->in + STREAM_IN_BYTES, STREAM_SKIP_BYTES, &got, error);
    }
    return status < 0 ? status
                      : stk_seek_points_builder_finish(stream->builder, stream->object_bytes,
                                                       image_out, error);
}

static int stream_restart(struct stk_shard_stream *stream, struct stoker_error *error)
{
    /* A stream that collects seek points or hashes cannot start over. */
    STK_ASSERT(!stream->builder && (!stream->hashes || stream->position == 0));
    stk_decompress_close(stream->decompress);
    stream->decompress = NULL;
    stream->rest = (struct stk_view){stream->in, 0};
    stream->in_offset = 0;
    stream->position = 0;
    stream->ended = false;
    return stk_decompress_open(&stream->decompress, stream->compression, &stream->options.limits,
                               error);
}

/* Reads the next decompressed bytes, up to `bytes`; sets *got_out, 0 at the end. */
static int stream_next(struct stk_shard_stream *stream, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error)
{
    *got_out = 0;
    while (*got_out == 0 && bytes > 0 && !stream->ended) {
        int status;

        if (stream->rest.bytes == 0 && stream->in_offset < stream->object_bytes) {
            int64_t got =
                stk_io_read_wait(stream->file, stream->in_offset, stream->in, STREAM_IN_BYTES);
            if (got < 0) {
                return stk_io_fail_read(stream->file, got, "cannot read a compressed shard", error);
            }
            count_read(stream, got);
            if (stream->hashes) {
                stk_sha256_add(&stream->sha, stream->in, (size_t)got);
            }
            if (got == 0) {
                stream->object_bytes = stream->in_offset;
            }
            stream->rest = (struct stk_view){stream->in, (size_t)got};
            stream->in_offset += (uint64_t)got;
        }
        status = stk_decompress_run(stream->decompress, &stream->rest,
                                    stream->in_offset >= stream->object_bytes, buffer, bytes,
                                    got_out, error);
        if (status < 0) {
            return status;
        }
        stream->ended = status == 0;
    }
    stream->position += *got_out;
    return 0;
}

/* Plain files: returns the number of bytes that were read, or negative. */
static int64_t read_at(struct stk_shard_stream *stream, uint64_t offset, uint8_t *buffer,
                       size_t bytes, struct stoker_error *error)
{
    int64_t got = stk_io_read_wait(stream->file, offset, buffer, bytes);

    if (got < 0) {
        return stk_io_fail_read(stream->file, got, "cannot read a shard", error);
    }
    count_read(stream, got);
    if (stream->hashes) {
        size_t known = stream->hashed - offset; /* offset <= hashed: hash_up_to was called */

        if (known < (uint64_t)got) {
            stk_sha256_add(&stream->sha, buffer + known, (size_t)got - known);
            stream->hashed = offset + (uint64_t)got;
        }
    }
    return got;
}

/* Reads a plain file up to the offset, or to its end. */
static int hash_up_to(struct stk_shard_stream *stream, uint64_t offset, struct stoker_error *error)
{
    int64_t got = 1;

    if (!stream->in) {
        stream->in = stk_alloc(STREAM_IN_BYTES, 1);
    }
    if (!stream->in) {
        return stk_fail(error, -ENOMEM, "cannot read a shard", "free memory", "SHA-256");
    }
    while (got > 0 && stream->hashed < offset) {
        got = read_at(stream, stream->hashed, stream->in,
                      stk_min(STREAM_IN_BYTES, offset - stream->hashed), error);
    }
    return got < 0 ? (int)got : 0;
}

void stk_shard_stream_hash_begin(struct stk_shard_stream *stream)
{
    STK_ASSERT(stream->position == 0 && stream->in_offset == 0 && !stream->from.file);
    stk_sha256_init(&stream->sha);
    stream->hashes = true;
}

int stk_shard_stream_hash_end(struct stk_shard_stream *stream, uint8_t digest_out[32],
                              struct stoker_error *error)
{
    size_t got = 1;
    int status = 0;

    if (stream->compression == STK_COMPRESSION_NONE) {
        status = hash_up_to(stream, stream->object_bytes, error);
    }
    /* The parser may stop before the compressed stream ends. */
    while (status == 0 && stream->compression != STK_COMPRESSION_NONE && got > 0) {
        status = stream_next(stream, stream->in + STREAM_IN_BYTES, STREAM_SKIP_BYTES, &got, error);
    }
    if (status == 0) {
        stk_sha256_done(&stream->sha, digest_out);
        stream->hashes = false;
    }
    return status;
}

int stk_shard_stream_read(struct stk_shard_stream *stream, uint64_t offset, uint8_t *buffer,
                          size_t bytes, size_t *got_out, struct stoker_error *error)
{
    size_t got = 0;
    int status = 0;

    *got_out = 0;
    if (stream->from.file) {
        struct stk_segment_buffer segment = {buffer, bytes, 0};

        status = stk_segment_cache_read(stream->options.segment_cache, &stream->from, offset,
                                        &segment, error);
        *got_out = segment.got;
        return status;
    }
    if (stream->compression == STK_COMPRESSION_NONE) {
        int64_t count;

        status = stream->hashes ? hash_up_to(stream, offset, error) : 0;
        if (status < 0) {
            return status;
        }
        count = read_at(stream, offset, buffer, bytes, error);
        *got_out = count < 0 ? 0 : (size_t)count;
        return count < 0 ? (int)count : 0;
    }
    if (offset < stream->position) {
        status = stream_restart(stream, error);
    }
    while (status == 0 && stream->position < offset) {
        status = stream_next(stream, stream->in + STREAM_IN_BYTES,
                             stk_min(STREAM_SKIP_BYTES, offset - stream->position), &got, error);
        if (got == 0) {
            return status;
        }
    }
    while (status == 0 && *got_out < bytes) {
        status = stream_next(stream, buffer + *got_out, bytes - *got_out, &got, error);
        if (got == 0) {
            break;
        }
        *got_out += got;
    }
    return status;
}
