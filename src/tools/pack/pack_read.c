/* Reading samples: whole files, members of tars by their place, members of compressed tars from a
 * stream that goes forward. */
#include "tools/pack/pack_read.h"

#include "base/mem.h"
#include "base/retry.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Where bytes go. */
struct room {
    uint8_t *data;
    size_t bytes;
};

/* Where the bytes of a piece come from. */
struct origin {
    struct stk_file *file; /* NULL: not open, or the gather's stream */
    bool open;
    uint64_t offset;
    const char *path; /* for errors */
    char path_text[STK_PATH_BYTES_MAX];
};

static int write_piece(struct stk_gather *gather, const struct stk_piece *piece,
                       struct stk_shard_out *out, struct stoker_error *error);
static int open_origin(struct stk_gather *gather, const struct stk_piece *piece,
                       struct origin *origin, struct stoker_error *error);
static void close_origin(struct stk_gather *gather, const struct stk_piece *piece,
                         struct origin *origin);
static int copy(struct stk_gather *gather, const struct stk_piece *piece, struct origin *origin,
                struct stk_shard_out *out, struct stoker_error *error);
static int shrink(struct stk_gather *gather, const struct stk_piece *piece, struct origin *origin,
                  struct stk_shard_out *out, struct stoker_error *error);
static int compare_sum(struct stk_gather *gather, const struct stk_piece *piece, uint64_t sum,
                       struct stoker_error *error);

int stk_gather_open(struct stk_gather *gather, const struct stk_plan *plan,
                    const struct stk_gather_options *options, struct stoker_error *error)
{
    *gather = (struct stk_gather){.plan = plan, .options = *options};
    return options->short_side
               ? stk_shrink_open(&gather->shrink, options->short_side, options->quality, error)
               : 0;
}

void stk_gather_close(struct stk_gather *gather)
{
    stk_shrink_close(gather->shrink);
    stk_pieces_deinit(&gather->pieces);
    stk_stream_close(gather->stream);
    stk_free(gather->picture);
    *gather = (struct stk_gather){0};
}

static bool is_stopped(const struct stk_gather *gather)
{
    return atomic_load_explicit(gather->options.stop, memory_order_relaxed);
}

int stk_gather_sample(struct stk_gather *gather, uint64_t sample, struct stk_shard_out *out,
                      struct stoker_error *error)
{
    int status = stk_plan_pieces(gather->plan, sample, &gather->pieces, error);

    gather->damaged = false;
    gather->sample = sample;
    if (status == 0 && out) {
        stk_shard_out_sample(out);
    }
    for (size_t i = 0; status == 0 && i < gather->pieces.count; i++) {
        const struct stk_piece *piece = &gather->pieces.items[i];

        if (is_stopped(gather)) {
            return stk_fail(error, -ECANCELED, "the packing was stopped",
                            "run it again: it goes on", "sample %llu", (unsigned long long)sample);
        }
        if (out || piece->picture) {
            status = write_piece(gather, piece, out, error);
        }
    }
    return status;
}

/* The failure is the data's. Returns it. */
static int damage(struct stk_gather *gather, int status)
{
    gather->damaged = gather->damaged || stk_is_damage(status);
    return status;
}

/* Where the bytes are that could not be had; an error of the shard in work has its own place. */
static void place(struct stk_gather *gather, const struct origin *origin,
                  struct stoker_error *error)
{
    struct stk_sample sample;
    char key[sizeof error->key] = "";
    uint64_t offset;

    if (!error || error->shard[0]) {
        return;
    }
    if (stk_index_sample(gather->plan->dataset->index, gather->sample, &sample, NULL) == 0) {
        snprintf(key, sizeof key, "%.*s", (int)stk_min(sample.key.bytes, sizeof key - 1),
                 (const char *)sample.key.data);
    }
    offset = error->offset == STOKER_NO_OFFSET ? origin->offset : error->offset;
    stk_error_place(error, origin->path, offset, key);
}

static int write_piece(struct stk_gather *gather, const struct stk_piece *piece,
                       struct stk_shard_out *out, struct stoker_error *error)
{
    struct stk_view name = stk_piece_name(&gather->pieces, piece);
    struct origin origin = {0};
    int status;

    if (piece->kind == STK_PIECE_TEXT) {
        status = stk_shard_out_member(out, name, piece->bytes, error);
        return status < 0 ? status
                          : stk_shard_out_data(out, gather->pieces.text + piece->from_at,
                                               piece->bytes, error);
    }
    if (piece->kind == STK_PIECE_MEMBER) {
        origin.offset = piece->member.offset;
        origin.path = origin.path_text;
        status = stk_index_path(gather->plan->dataset->index, piece->member.shard, origin.path_text,
                                error);
        if (status < 0) {
            return status; /* damage of the index, not of the sample */
        }
    } else {
        origin.path = gather->pieces.text + piece->from_at;
    }
    status = gather->shrink && piece->picture && piece->bytes <= STK_GATHER_PICTURE_MAX
                 ? shrink(gather, piece, &origin, out, error)
                 : copy(gather, piece, &origin, out, error);
    close_origin(gather, piece, &origin);
    if (status < 0 && status != -ECANCELED) {
        place(gather, &origin, error);
    }
    return status;
}

/* ---- reading ---- */

static int open_file(struct stk_gather *gather, const struct stk_piece *piece,
                     struct origin *origin, struct stoker_error *error)
{
    struct stk_io *io = gather->plan->dataset->engine->io;
    struct stk_stat about = {0};
    int status = stk_io_open_file(io, origin->path, &origin->file, error);

    if (status == 0) {
        status = stk_io_stat_file(io, origin->file, &about, error);
    }
    if (status == 0 && about.bytes != piece->bytes) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a file changed while it was packed",
                          "remove the .part folder and pack again", "'%.400s'", origin->path);
    }
    return status;
}

static int open_origin(struct stk_gather *gather, const struct stk_piece *piece,
                       struct origin *origin, struct stoker_error *error)
{
    struct stoker_dataset *dataset = gather->plan->dataset;
    uint32_t shard = piece->member.shard;
    int status = 0;

    if (piece->kind == STK_PIECE_FILE) {
        status = open_file(gather, piece, origin, error);
    } else if (stk_index_shard_packing(dataset->index, shard) == STK_PLAIN) {
        status = stk_dataset_pin(dataset, shard, &origin->file, error);
    } else if (!gather->stream || gather->stream_shard != shard) {
        stk_stream_close(gather->stream);
        gather->stream = NULL;
        status = stk_stream_open_shard(&gather->stream, dataset, shard, error);
        gather->stream_shard = shard;
    }
    origin->open = status == 0;
    return status;
}

static void close_origin(struct stk_gather *gather, const struct stk_piece *piece,
                         struct origin *origin)
{
    struct stoker_dataset *dataset = gather->plan->dataset;

    origin->open = false;
    if (!origin->file) {
        return;
    }
    if (piece->kind == STK_PIECE_FILE) {
        stk_io_close_file(dataset->engine->io, origin->file);
    } else {
        stk_dataset_unpin(dataset, piece->member.shard, origin->file);
    }
    origin->file = NULL;
}

/* All of the bytes, or an error. */
static int read_once(struct stk_gather *gather, const struct origin *origin, uint64_t done,
                     uint8_t *buffer, size_t bytes, struct stoker_error *error)
{
    uint64_t offset = origin->offset + done;
    size_t got = 0;

    if (!origin->file) {
        int status = stk_stream_read(gather->stream, offset, buffer, bytes, &got, error);

        if (status < 0) {
            return status;
        }
    } else {
        int64_t count = stk_io_read_wait(gather->plan->dataset->engine->io, origin->file, offset,
                                         buffer, bytes);
        if (count < 0) {
            return stk_io_fail_read(gather->plan->dataset->engine->io, origin->file, count,
                                    "cannot read", error);
        }
        got = (size_t)count;
    }
    if (got < bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a file ends before its data",
                        "fetch it again", "%zu of %zu bytes", got, bytes);
    }
    return 0;
}

/* Waits before try `attempt` (from 1). False: the failure is not one that may pass, the tries are
 * used up, or nobody wants the sample any more. */
static bool wait_again(const struct stk_gather *gather, int status, uint32_t attempt)
{
    const struct stk_gather_options *options = &gather->options;
    struct timespec until;
    int woken = 0;

    if (!stk_may_pass(status) || attempt > options->io_retries) {
        return false;
    }
    until = stk_engine_after(stk_retry_wait_ns(options->io_retry_wait_ms, attempt));
    pthread_mutex_lock(options->lock);
    while (!is_stopped(gather) && woken != ETIMEDOUT) {
        woken = pthread_cond_timedwait(options->woken, options->lock, &until);
    }
    pthread_mutex_unlock(options->lock);
    atomic_fetch_add_explicit(options->retries, 1, memory_order_relaxed);
    return !is_stopped(gather);
}

/* So many bytes of the piece, of which `done` were read; opens it at the first. What fails for a
 * reason that may pass is opened anew and tried again. */
static int read_some(struct stk_gather *gather, const struct stk_piece *piece,
                     struct origin *origin, uint64_t done, struct room room,
                     struct stoker_error *error)
{
    uint32_t tries = 0;
    int status;

    for (;;) {
        status = origin->open ? 0 : open_origin(gather, piece, origin, error);
        if (status == 0 && room.bytes > 0) {
            status = read_once(gather, origin, done, room.data, room.bytes, error);
        }
        if (status == 0) {
            return 0;
        }
        if (!wait_again(gather, status, tries + 1)) {
            break;
        }
        tries++;
        close_origin(gather, piece, origin);
        if (piece->kind == STK_PIECE_MEMBER) {
            stk_dataset_forget(gather->plan->dataset, piece->member.shard);
            stk_stream_close(gather->stream); /* one that failed gives that failure for ever */
            gather->stream = NULL;
        }
        if (error) {
            *error = (struct stoker_error){0};
        }
    }
    stk_retry_tell(error, tries);
    return damage(gather, status);
}

static int copy(struct stk_gather *gather, const struct stk_piece *piece, struct origin *origin,
                struct stk_shard_out *out, struct stoker_error *error)
{
    uint64_t done = 0;
    int status;

    if (!out) {
        return 0;
    }
    status = read_some(gather, piece, origin, 0, (struct room){NULL, 0}, error); /* opens it */
    status = status < 0 ? status
                        : stk_shard_out_member(out, stk_piece_name(&gather->pieces, piece),
                                               piece->bytes, error);
    while (status == 0 && done < piece->bytes) {
        struct room room;

        status = stk_shard_out_room(out, &room.data, &room.bytes, error);
        status = status < 0 ? status : read_some(gather, piece, origin, done, room, error);
        if (status == 0) {
            stk_shard_out_took(out, room.bytes);
            done += room.bytes;
        }
    }
    return status < 0 ? status : compare_sum(gather, piece, stk_shard_out_sum(out), error);
}

/* What the index says of the bytes, if it says something. */
static int compare_sum(struct stk_gather *gather, const struct stk_piece *piece, uint64_t sum,
                       struct stoker_error *error)
{
    const struct stk_index *index = gather->plan->dataset->index;
    size_t number = (size_t)(piece - gather->pieces.items);
    struct stk_sample sample;
    uint64_t want;
    int status = stk_index_sample(index, gather->sample, &sample, error);

    if (status < 0 || number >= sample.member_count ||
        !stk_index_shard_has_checksums(index, sample.shard)) {
        return status;
    }
    status = stk_index_checksum(index, &sample, (uint32_t)number, &want, error);
    if (status < 0 || want == sum) {
        return status;
    }
    status = stk_fail(error, STOKER_ERROR_CORRUPT, "the member's checksum is not the index's",
                      "fetch the file again; 'stoker verify' lists all such damage", "%llu bytes",
                      (unsigned long long)piece->bytes);
    return damage(gather, status);
}

/* All of a picture, in the gather's memory. */
static int load(struct stk_gather *gather, const struct stk_piece *piece, struct origin *origin,
                struct stoker_error *error)
{
    struct room room;
    int status;

    if (piece->bytes > gather->picture_capacity || !gather->picture) {
        stk_free(gather->picture);
        gather->picture = stk_alloc(stk_max(piece->bytes, 1), 1);
        gather->picture_capacity = gather->picture ? piece->bytes : 0;
        if (!gather->picture) {
            return stk_fail(error, -ENOMEM, "no memory for a picture", "free memory", "%llu bytes",
                            (unsigned long long)piece->bytes);
        }
    }
    room = (struct room){gather->picture, piece->bytes};
    status = read_some(gather, piece, origin, 0, room, error);
    return status < 0 ? status
                      : compare_sum(gather, piece, stk_sum64(gather->picture, piece->bytes), error);
}

static int shrink(struct stk_gather *gather, const struct stk_piece *piece, struct origin *origin,
                  struct stk_shard_out *out, struct stoker_error *error)
{
    struct stk_view bytes, smaller;
    struct stoker_error local = {0};
    int status = load(gather, piece, origin, error);

    if (status < 0) {
        return status;
    }
    bytes = smaller = (struct stk_view){gather->picture, piece->bytes};
    status = stk_shrink_run(gather->shrink, bytes, &smaller, &local);
    /* Of all, whatever the policy: shards are cut by it. What does not decode stays as it is. */
    gather->bytes_before += bytes.bytes;
    gather->bytes_after += smaller.bytes;
    if (status < 0 && (gather->options.strict || !stk_is_damage(status))) {
        if (local.offset != STOKER_NO_OFFSET) {
            local.offset += origin->offset; /* it counts from the member's begin */
        }
        if (error) {
            *error = local;
        }
        return damage(gather, status);
    }
    if (status < 0 && out) {
        stk_shard_out_passed(out);
    }
    gather->resized += status == 1;
    gather->copied += status != 1;
    if (!out) {
        return 0;
    }
    status =
        stk_shard_out_member(out, stk_piece_name(&gather->pieces, piece), smaller.bytes, error);
    return status < 0 ? status : stk_shard_out_data(out, smaller.data, smaller.bytes, error);
}
