/* Reading headers into the index, in parallel; and streams of packed shards. */
#include "format/tar.h"
#include "format/unpack.h"
#include "dataset/dataset.h"

#include <errno.h>
#include <string.h>

#define STREAM_IN_BYTES  (256u << 10)
#define STREAM_SKIP_BYTES (64u << 10)
/* The window over a plain tar's headers: grows while headers lie close, else shrinks. */
#define WINDOW_BYTES_MIN 2048u
#define WINDOW_BYTES_MAX (256u << 10)
#define FOLDER_ROUND     4096u /* files a round of the parallel loop */

struct stk_stream {
    struct stoker_dataset *dataset;
    struct stk_file       *file;
    struct stk_unpack     *unpack; /* NULL: plain */
    uint8_t               *in;     /* STREAM_IN_BYTES, then STREAM_SKIP_BYTES of skip space */
    struct stk_view        rest;   /* of `in`, not yet unpacked */
    uint64_t               object_bytes, in_offset, position;
    uint32_t               packing;
    bool                   ended;
};

static int  scan_shard(void *context, uint64_t round, struct stoker_error *error);
static int  scan_files(void *context, uint64_t round, struct stoker_error *error);
static int  stream_restart(struct stk_stream *stream, struct stoker_error *error);

int stk_scan(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stk_index_options options = { .shard_count = dataset->objects.count,
                                         .key_bytes_max = dataset->options.key_bytes_max,
                                         .join_distance = dataset->options.join_distance };
    bool                     folder = dataset->objects.kind == STK_SOURCE_FOLDER;
    uint64_t                 rounds = dataset->objects.count;
    int                      status = stk_index_open(&dataset->index, &options, error);

    if (status < 0) {
        return status;
    }
    rounds = folder ? (rounds + FOLDER_ROUND - 1) / FOLDER_ROUND : rounds;
    status = stk_engine_parallel(dataset->engine, rounds, folder ? scan_files : scan_shard, dataset,
                                 error);
    return status < 0 ? status
                      : stk_index_finish(dataset->index, dataset->options.block_bytes, error);
}

static const char *object_path(const struct stoker_dataset *dataset, uint64_t object)
{
    return dataset->objects.text + dataset->objects.paths[object];
}

static int scan_file(struct stoker_dataset *dataset, uint32_t object, struct stoker_error *error)
{
    const char               *path = object_path(dataset, object);
    const char               *key = path + stk_min(dataset->objects.root_bytes, strlen(path));
    const char               *dot = strrchr(path, '.');
    struct stk_view           extension = { (const uint8_t *)(dot ? dot + 1 : ""), 0 };
    struct stk_shard_builder *builder;
    int status = stk_shard_begin(dataset->index, object, path, &builder, error);

    if (status < 0) {
        return status;
    }
    extension.bytes = strlen((const char *)extension.data);
    status = stk_shard_add_file(builder, (struct stk_view){ (const uint8_t *)key, strlen(key) },
                                extension, dataset->objects.classes[object], error);
    if (status < 0) {
        stk_shard_abandon(builder);
        return stk_error_place(error, path, STOKER_NO_OFFSET, NULL), status;
    }
    return stk_shard_end(builder, 0, STK_PLAIN, error);
}

static int scan_files(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_dataset *dataset = context;
    uint64_t               first = round * FOLDER_ROUND;
    uint64_t               end = stk_min(first + FOLDER_ROUND, dataset->objects.count);
    int                    status = 0;

    for (uint64_t i = first; i < end && status == 0; i++) {
        status = scan_file(dataset, (uint32_t)i, error);
    }
    return status;
}

/* A window over the stream that serves what the parser needs. */
struct window {
    struct stk_stream *stream;
    uint8_t           *data; /* WINDOW_BYTES_MAX at first; more for a long header */
    uint64_t           offset;
    size_t             bytes, capacity, want;
};

static int window_fill(struct window *window, const struct stk_tar_step *need,
                       struct stk_view *view_out, struct stoker_error *error)
{
    uint64_t end = window->offset + window->bytes;
    size_t   kept = 0, got;
    int      status;

    if (need->offset >= window->offset && need->offset + need->bytes <= end) {
        goto lend;
    }
    /* Near misses come in runs (small members): read more at once; far ones do not. */
    window->want = need->offset <= end + WINDOW_BYTES_MIN
                       ? stk_min(2 * window->want, WINDOW_BYTES_MAX)
                       : WINDOW_BYTES_MIN;
    if (need->bytes > window->capacity) {
        uint8_t *grown = stk_realloc(window->data, window->capacity, need->bytes, 1);
        if (!grown) {
            return stk_fail(error, -ENOMEM, "cannot read a long header", "free memory",
                            "%llu bytes", (unsigned long long)need->bytes);
        }
        window->data = grown;
        window->capacity = need->bytes;
    }
    /* A stream cannot go back: what is asked again moves to the front. */
    if (need->offset >= window->offset && need->offset < end) {
        kept = end - need->offset;
        memmove(window->data, window->data + (need->offset - window->offset), kept);
    }
    window->offset = need->offset;
    window->bytes = kept;
    status = stk_stream_read(window->stream, need->offset + kept, window->data + kept,
                             stk_max(need->bytes, stk_min(window->want, window->capacity)) - kept,
                             &got, error);
    if (status < 0) {
        return status;
    }
    window->bytes = kept + got;
lend:
    *view_out = (struct stk_view){ window->data + (need->offset - window->offset),
                                   window->bytes - (need->offset - window->offset) };
    return 0;
}

static int scan_members(struct window *window, struct stk_tar *tar,
                        struct stk_shard_builder *builder, struct stoker_error *error)
{
    struct stk_view bytes = { NULL, 0 };
    int             status;

    for (;;) {
        struct stk_tar_step step = { 0 };

        status = stk_tar_step(tar, bytes, &step, error);
        if (status < 0 || step.event == STK_TAR_END) {
            return status;
        }
        bytes = (struct stk_view){ NULL, 0 };
        if (step.event == STK_TAR_NEED) {
            status = window_fill(window, &step, &bytes, error);
        } else if (step.type == '0') {
            status = stk_shard_add(builder, step.name, step.offset, step.bytes, error);
        }
        if (status < 0) {
            return status;
        }
    }
}

static int scan_shard(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_dataset    *dataset = context;
    const char               *path = object_path(dataset, round);
    struct stk_tar_limits     limits = { .name_bytes_max = dataset->options.key_bytes_max,
                                         .header_bytes_max = dataset->options.header_bytes_max };
    struct window             window = { .capacity = WINDOW_BYTES_MAX, .want = WINDOW_BYTES_MIN };
    struct stk_tar           *tar = NULL;
    struct stk_shard_builder *builder = NULL;
    uint64_t                  size = UINT64_MAX;
    int                       status;

    status = stk_shard_begin(dataset->index, (uint32_t)round, path, &builder, error);
    status = status < 0 ? status
                        : stk_stream_open(&window.stream, dataset, path, error);
    if (status < 0) {
        goto done;
    }
    if (window.stream->packing == STK_PLAIN) {
        size = window.stream->object_bytes;
    }
    window.data = stk_alloc(window.capacity, 1);
    if (!window.data) {
        status = stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "window");
        goto done;
    }
    status = stk_tar_open(&tar, size, &limits, error);
    status = status < 0 ? status : scan_members(&window, tar, builder, error);
    if (status == 0) {
        status = stk_shard_end(builder, window.stream->object_bytes, window.stream->packing, error);
        builder = NULL;
    }
done:
    stk_shard_abandon(builder);
    stk_tar_close(tar);
    stk_stream_close(window.stream);
    stk_free(window.data);
    if (status < 0) {
        stk_error_place(error, path, STOKER_NO_OFFSET, NULL);
    }
    return status;
}

int stk_stream_open(struct stk_stream **stream_out, struct stoker_dataset *dataset,
                    const char *path, struct stoker_error *error)
{
    struct stk_io     *io = dataset->engine->io;
    struct stk_stream *stream = stk_alloc(1, sizeof *stream);
    struct stk_stat    about;
    int                status;

    *stream_out = NULL;
    if (!stream) {
        return stk_fail(error, -ENOMEM, "cannot open a shard", "free memory", "'%s'", path);
    }
    stream->dataset = dataset;
    status = stk_io_open_file(io, path, &stream->file, error);
    status = status < 0 ? status : stk_io_stat_file(io, stream->file, &about, error);
    if (status == 0) {
        uint8_t head[8];
        int64_t got = stk_io_read_wait(io, stream->file, 0, head, sizeof head);
        stream->object_bytes = about.bytes;
        if (got < 0) {
            status = stk_fail(error, (int)got, "cannot read a shard",
                              "check the file and its disk", "%s", stoker_status_text((int)got));
        } else {
            stream->packing = stk_packing_of((struct stk_view){ head, (size_t)got });
        }
    }
    if (status == 0 && stream->packing != STK_PLAIN) {
        stream->in = stk_alloc(STREAM_IN_BYTES + STREAM_SKIP_BYTES, 1);
        status = stream->in ? stream_restart(stream, error)
                            : stk_fail(error, -ENOMEM, "cannot open a packed shard",
                                       "free memory", "'%s'", path);
    }
    if (status < 0) {
        stk_stream_close(stream);
        return status;
    }
    *stream_out = stream;
    return 0;
}

int stk_stream_open_shard(struct stk_stream **stream_out, struct stoker_dataset *dataset,
                          uint32_t shard, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    int  status = stk_index_path(dataset->index, shard, path, error);

    *stream_out = NULL;
    return status < 0 ? status : stk_stream_open(stream_out, dataset, path, error);
}

void stk_stream_close(struct stk_stream *stream)
{
    if (!stream) {
        return;
    }
    if (stream->file) {
        stk_io_close_file(stream->dataset->engine->io, stream->file);
    }
    stk_unpack_close(stream->unpack);
    stk_free(stream->in);
    stk_free(stream);
}

static int stream_restart(struct stk_stream *stream, struct stoker_error *error)
{
    stk_unpack_close(stream->unpack);
    stream->unpack = NULL;
    stream->rest = (struct stk_view){ stream->in, 0 };
    stream->in_offset = 0;
    stream->position = 0;
    stream->ended = false;
    return stk_unpack_open(&stream->unpack, stream->packing,
                           stream->dataset->options.unpacked_bytes_max,
                           stream->dataset->options.unpacked_ratio_max, error);
}

/* The next unpacked bytes, up to `bytes`; *got_out 0 at the end. */
static int stream_next(struct stk_stream *stream, uint8_t *buffer, size_t bytes, size_t *got_out,
                       struct stoker_error *error)
{
    *got_out = 0;
    while (*got_out == 0 && bytes > 0 && !stream->ended) {
        int status;

        if (stream->rest.bytes == 0 && stream->in_offset < stream->object_bytes) {
            int64_t got = stk_io_read_wait(stream->dataset->engine->io, stream->file,
                                           stream->in_offset, stream->in, STREAM_IN_BYTES);
            if (got < 0) {
                return stk_fail(error, (int)got, "cannot read a packed shard",
                                "check the file and its disk", "%s",
                                stoker_status_text((int)got));
            }
            if (got == 0) {
                stream->object_bytes = stream->in_offset;
            }
            stream->rest = (struct stk_view){ stream->in, (size_t)got };
            stream->in_offset += (uint64_t)got;
        }
        status = stk_unpack_run(stream->unpack, &stream->rest,
                                stream->in_offset >= stream->object_bytes, buffer, bytes, got_out,
                                error);
        if (status < 0) {
            return status;
        }
        stream->ended = status == 0;
    }
    stream->position += *got_out;
    return 0;
}

int stk_stream_read(struct stk_stream *stream, uint64_t offset, uint8_t *buffer, size_t bytes,
                    size_t *got_out, struct stoker_error *error)
{
    size_t got = 0;
    int    status = 0;

    *got_out = 0;
    if (stream->packing == STK_PLAIN) {
        int64_t count =
            stk_io_read_wait(stream->dataset->engine->io, stream->file, offset, buffer, bytes);
        if (count < 0) {
            return stk_fail(error, (int)count, "cannot read a shard",
                            "check the file and its disk", "%s", stoker_status_text((int)count));
        }
        *got_out = (size_t)count;
        return 0;
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
