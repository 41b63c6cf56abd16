/* Reads samples: complete files, members of tars by their offset, members of compressed tars from a
 * stream. */
#include "tools/pack/pack_read.h"

#include "base/mem.h"
#include "base/retry.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The destination of bytes. */
struct space {
    uint8_t *data;
    size_t bytes;
};

/* The source of a piece's bytes. */
struct source_shard {
    struct stk_file *file; /* NULL: not open, or the gather's stream */
    bool open;
    uint64_t offset;
    const char *path; /* for errors */
    char path_text[STK_PATH_BYTES_MAX];
};

static int write_piece(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                       struct stk_shard_file *out, struct stoker_error *error);
static int open_source(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                       struct source_shard *source_shard, struct stoker_error *error);
static void close_source(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                         struct source_shard *source_shard);
static int copy(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                struct source_shard *source_shard, struct stk_shard_file *out,
                struct stoker_error *error);
static int shrink(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                  struct source_shard *source_shard, struct stk_shard_file *out,
                  struct stoker_error *error);
static int compare_sum(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                       uint64_t sum, struct stoker_error *error);

int stk_pack_read_open(struct stk_pack_read *reader, const struct stk_pack_plan *plan,
                       const struct stk_pack_read_options *options, struct stoker_error *error)
{
    *reader = (struct stk_pack_read){.plan = plan, .options = *options};
    return options->short_side
               ? stk_jpeg_shrink_open(&reader->shrink, options->short_side, options->quality, error)
               : 0;
}

void stk_pack_read_close(struct stk_pack_read *reader)
{
    stk_jpeg_shrink_close(reader->shrink);
    stk_pack_pieces_deinit(&reader->pieces);
    stk_shard_stream_close(reader->stream);
    stk_free(reader->picture);
    *reader = (struct stk_pack_read){0};
}

static bool is_stopped(const struct stk_pack_read *reader)
{
    return atomic_load_explicit(reader->options.stop, memory_order_relaxed);
}

int stk_pack_read_sample(struct stk_pack_read *reader, uint64_t sample, struct stk_shard_file *out,
                         struct stoker_error *error)
{
    int status = stk_pack_plan_pieces(reader->plan, sample, &reader->pieces, error);

    reader->is_sample_damage = false;
    reader->sample = sample;
    if (status == 0 && out) {
        stk_shard_file_begin_sample(out);
    }
    for (size_t i = 0; status == 0 && i < reader->pieces.count; i++) {
        const struct stk_pack_piece *piece = &reader->pieces.items[i];

        if (is_stopped(reader)) {
            return stk_fail(error, -ECANCELED, "packing was stopped", "run it again: it continues",
                            "sample %llu", (unsigned long long)sample);
        }
        if (out || piece->picture) {
            status = write_piece(reader, piece, out, error);
        }
    }
    return status;
}

/* Marks the failure as one of the data. Returns it. */
static int mark_damaged(struct stk_pack_read *reader, int status)
{
    reader->is_sample_damage = reader->is_sample_damage || stk_error_is_data(status);
    return status;
}

/* The place of the bytes that could not be read; an error of the current shard has its own
 * place. */
static void copy_location(struct stk_pack_read *reader, const struct source_shard *source_shard,
                          struct stoker_error *error)
{
    struct stk_sample sample;
    char key[sizeof error->key] = "";
    uint64_t offset;

    if (!error || error->shard[0]) {
        return;
    }
    if (stk_index_sample(reader->plan->dataset->index, reader->sample, &sample, NULL) == 0) {
        snprintf(key, sizeof key, "%.*s", (int)stk_min(sample.key.bytes, sizeof key - 1),
                 (const char *)sample.key.data);
    }
    offset = error->offset == STOKER_NO_OFFSET ? source_shard->offset : error->offset;
    stk_error_set_location(error, source_shard->path, offset, key);
}

static int write_piece(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                       struct stk_shard_file *out, struct stoker_error *error)
{
    struct stk_view name = stk_pack_piece_name(&reader->pieces, piece);
    struct source_shard source_shard = {0};
    int status;

    if (piece->kind == STK_PACK_PIECE_TEXT) {
        status = stk_shard_file_begin_member(out, name, piece->bytes, error);
        return status < 0 ? status
                          : stk_shard_file_write(out, reader->pieces.text + piece->from_at,
                                                 piece->bytes, error);
    }
    if (piece->kind == STK_PACK_PIECE_MEMBER) {
        source_shard.offset = piece->member.offset;
        source_shard.path = source_shard.path_text;
        status = stk_index_path(reader->plan->dataset->index, piece->member.shard,
                                source_shard.path_text, error);
        if (status < 0) {
            return status; /* damage of the index, not of the sample */
        }
    } else {
        source_shard.path = reader->pieces.text + piece->from_at;
    }
    status = reader->shrink && piece->picture && piece->bytes <= STK_PACK_READ_PICTURE_MAX
                 ? shrink(reader, piece, &source_shard, out, error)
                 : copy(reader, piece, &source_shard, out, error);
    close_source(reader, piece, &source_shard);
    if (status < 0 && status != -ECANCELED) {
        copy_location(reader, &source_shard, error);
    }
    return status;
}

/* ---- reading ---- */

static int open_file(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                     struct source_shard *source_shard, struct stoker_error *error)
{
    struct stk_io *io = reader->plan->dataset->engine->io;
    struct stk_stat about = {0};
    int status = stk_io_open_file(io, source_shard->path, &source_shard->file, error);

    if (status == 0) {
        status = stk_io_stat_file(source_shard->file, &about, error);
    }
    if (status == 0 && about.bytes != piece->bytes) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a file changed while it was packed",
                          "remove the .part folder and pack again", "'%.400s'", source_shard->path);
    }
    return status;
}

static int open_source(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                       struct source_shard *source_shard, struct stoker_error *error)
{
    struct stoker_dataset *dataset = reader->plan->dataset;
    uint32_t shard = piece->member.shard;
    int status = 0;

    if (piece->kind == STK_PACK_PIECE_FILE) {
        status = open_file(reader, piece, source_shard, error);
    } else if (stk_index_shard_compression(dataset->index, shard) == STK_COMPRESSION_NONE) {
        status = stk_dataset_pin(dataset, shard, stk_engine_now(dataset->engine),
                                 &source_shard->file, error);
    } else if (!reader->stream || reader->stream_shard != shard) {
        stk_shard_stream_close(reader->stream);
        reader->stream = NULL;
        status = stk_dataset_open_stream(&reader->stream, dataset, shard, error);
        reader->stream_shard = shard;
        reader->stream_has_headers = stk_dataset_has_headers(dataset, shard);
    }
    if (status == 0 && !source_shard->file && reader->stream_has_headers) {
        status = stk_dataset_check_sample(dataset, shard, reader->sample, reader->stream, error);
    }
    source_shard->open = status == 0;
    return status;
}

static void close_source(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                         struct source_shard *source_shard)
{
    struct stoker_dataset *dataset = reader->plan->dataset;

    source_shard->open = false;
    if (!source_shard->file) {
        return;
    }
    if (piece->kind == STK_PACK_PIECE_FILE) {
        stk_io_close_file(source_shard->file);
    } else {
        stk_dataset_unpin(dataset, piece->member.shard, source_shard->file);
    }
    source_shard->file = NULL;
}

/* Reads all bytes, or returns an error. */
static int read_once(struct stk_pack_read *reader, const struct source_shard *source_shard,
                     uint64_t done, uint8_t *buffer, size_t bytes, struct stoker_error *error)
{
    uint64_t offset = source_shard->offset + done;
    size_t got = 0;

    if (!source_shard->file) {
        int status = stk_shard_stream_read(reader->stream, offset, buffer, bytes, &got, error);

        if (status < 0) {
            return status;
        }
    } else {
        int64_t count = stk_io_read_wait(source_shard->file, offset, buffer, bytes);
        if (count < 0) {
            return stk_io_fail_read(source_shard->file, count, "cannot read", error);
        }
        got = (size_t)count;
    }
    if (got < bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a file is shorter than its data",
                        "fetch it again", "%zu of %zu bytes", got, bytes);
    }
    return 0;
}

/* Waits before try `attempt` (from 1). Returns false if the failure is not transient, the tries
 * are used up, or packing was stopped. */
static bool wait_for_retry(const struct stk_pack_read *reader, int status, uint32_t attempt)
{
    const struct stk_pack_read_options *options = &reader->options;
    struct timespec until;
    int woken = 0;

    if (!stk_error_is_transient(status) || attempt > options->io_retries) {
        return false;
    }
    until = stk_engine_deadline(stk_retry_wait_ns(options->io_retry_wait_ms, attempt));
    pthread_mutex_lock(options->lock);
    while (!is_stopped(reader) && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(options->woken, options->lock, &until);
    }
    pthread_mutex_unlock(options->lock);
    atomic_fetch_add_explicit(options->retries, 1, memory_order_relaxed);
    return !is_stopped(reader);
}

/* Reads bytes of the piece, of which `done` were read already; opens it at the first call. After a
 * transient failure, reopens the piece and tries again. */
static int read_part(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                     struct source_shard *source_shard, uint64_t done, struct space space,
                     struct stoker_error *error)
{
    uint32_t tries = 0;
    int status;

    for (;;) {
        status = source_shard->open ? 0 : open_source(reader, piece, source_shard, error);
        if (status == 0 && space.bytes > 0) {
            status = read_once(reader, source_shard, done, space.data, space.bytes, error);
        }
        if (status == 0) {
            return 0;
        }
        if (!wait_for_retry(reader, status, tries + 1)) {
            break;
        }
        tries++;
        close_source(reader, piece, source_shard);
        if (piece->kind == STK_PACK_PIECE_MEMBER) {
            stk_dataset_reopen_later(reader->plan->dataset, piece->member.shard);
            stk_shard_stream_close(reader->stream); /* after an error it returns the same error */
            reader->stream = NULL;
        }
        if (error) {
            *error = (struct stoker_error){0};
        }
    }
    stk_retry_add_note(error, tries);
    return mark_damaged(reader, status);
}

static int copy(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                struct source_shard *source_shard, struct stk_shard_file *out,
                struct stoker_error *error)
{
    uint64_t done = 0;
    int status;

    if (!out) {
        return 0;
    }
    status =
        read_part(reader, piece, source_shard, 0, (struct space){NULL, 0}, error); /* opens it */
    status = status < 0
                 ? status
                 : stk_shard_file_begin_member(out, stk_pack_piece_name(&reader->pieces, piece),
                                               piece->bytes, error);
    while (status == 0 && done < piece->bytes) {
        struct space space;

        status = stk_shard_file_get_space(out, &space.data, &space.bytes, error);
        status = status < 0 ? status : read_part(reader, piece, source_shard, done, space, error);
        if (status == 0) {
            stk_shard_file_commit_space(out, space.bytes);
            done += space.bytes;
        }
    }
    return status < 0 ? status : compare_sum(reader, piece, stk_shard_file_checksum(out), error);
}

/* Compares the bytes with the checksum of the index, if there is one. */
static int compare_sum(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                       uint64_t sum, struct stoker_error *error)
{
    const struct stk_index *index = reader->plan->dataset->index;
    size_t number = (size_t)(piece - reader->pieces.items);
    struct stk_sample sample;
    uint64_t want;
    int status = stk_index_sample(index, reader->sample, &sample, error);

    if (status < 0 || number >= sample.member_count ||
        !stk_index_shard_has_checksums(index, sample.shard)) {
        return status;
    }
    status = stk_index_checksum(index, &sample, (uint32_t)number, &want, error);
    if (status < 0 || want == sum) {
        return status;
    }
    status =
        stk_fail(error, STOKER_ERROR_CORRUPT, "the member does not match its checksum in the index",
                 "fetch the file again; 'stoker verify' lists all such damage", "%llu bytes",
                 (unsigned long long)piece->bytes);
    return mark_damaged(reader, status);
}

/* Reads the complete picture into the gather's memory. */
static int load(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                struct source_shard *source_shard, struct stoker_error *error)
{
    struct space space;
    int status;

    if (piece->bytes > reader->picture_capacity || !reader->picture) {
        stk_free(reader->picture);
        reader->picture = stk_alloc(stk_max(piece->bytes, 1), 1);
        reader->picture_capacity = reader->picture ? piece->bytes : 0;
        if (!reader->picture) {
            return stk_fail(error, -ENOMEM, "no memory for an image", "free memory", "%llu bytes",
                            (unsigned long long)piece->bytes);
        }
    }
    space = (struct space){reader->picture, piece->bytes};
    status = read_part(reader, piece, source_shard, 0, space, error);
    return status < 0
               ? status
               : compare_sum(reader, piece, stk_xxh3_64(reader->picture, piece->bytes), error);
}

static int shrink(struct stk_pack_read *reader, const struct stk_pack_piece *piece,
                  struct source_shard *source_shard, struct stk_shard_file *out,
                  struct stoker_error *error)
{
    struct stk_view bytes, smaller;
    struct stoker_error local = {0};
    int status = load(reader, piece, source_shard, error);

    if (status < 0) {
        return status;
    }
    bytes = smaller = (struct stk_view){reader->picture, piece->bytes};
    status = stk_jpeg_shrink_run(reader->shrink, bytes, &smaller, &local);
    /* All images, whatever the policy: shards are split by it. An image that does not decode is
     * copied. */
    reader->bytes_before += bytes.bytes;
    reader->bytes_after += smaller.bytes;
    if (status < 0 && (reader->options.strict || !stk_error_is_data(status))) {
        if (local.offset != STOKER_NO_OFFSET) {
            local.offset += source_shard->offset; /* it counts from the member's begin */
        }
        if (error) {
            *error = local;
        }
        return mark_damaged(reader, status);
    }
    if (status < 0 && out) {
        stk_shard_file_count_undecodable(out);
    }
    reader->resized += status == 1;
    reader->copied += status != 1;
    if (!out) {
        return 0;
    }
    status = stk_shard_file_begin_member(out, stk_pack_piece_name(&reader->pieces, piece),
                                         smaller.bytes, error);
    return status < 0 ? status : stk_shard_file_write(out, smaller.data, smaller.bytes, error);
}
