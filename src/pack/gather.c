/* Reading samples: whole files, members of tars by their place, members of compressed tars from a
 * stream that goes forward. */
#include "pack/gather.h"

#include "base/mem.h"
#include "format/unpack.h"

#include <errno.h>
#include <string.h>

/* Where the bytes of a piece come from. */
struct origin {
    struct stk_file *file; /* NULL: the gather's stream */
    uint64_t offset, bytes;
    const char *path; /* for errors */
};

static int write_piece(struct stk_gather *gather, const struct stk_piece *piece,
                       struct stk_shard_out *out, struct stoker_error *error);
static int open_origin(struct stk_gather *gather, const struct stk_piece *piece,
                       struct origin *origin, char *path, struct stoker_error *error);
static void close_origin(struct stk_gather *gather, const struct stk_piece *piece,
                         struct origin *origin);
static int read_some(struct stk_gather *gather, const struct origin *origin, uint64_t done,
                     uint8_t *buffer, size_t bytes, struct stoker_error *error);
static int copy(struct stk_gather *gather, const struct stk_piece *piece,
                const struct origin *origin, struct stk_shard_out *out, struct stoker_error *error);
static int shrink(struct stk_gather *gather, const struct stk_piece *piece,
                  const struct origin *origin, struct stk_shard_out *out,
                  struct stoker_error *error);

int stk_gather_open(struct stk_gather *gather, const struct stk_plan *plan, uint32_t short_side,
                    uint32_t quality, const _Atomic bool *stop, struct stoker_error *error)
{
    *gather = (struct stk_gather){.plan = plan, .stop = stop};
    return short_side ? stk_shrink_open(&gather->shrink, short_side, quality, error) : 0;
}

void stk_gather_close(struct stk_gather *gather)
{
    stk_shrink_close(gather->shrink);
    stk_pieces_deinit(&gather->pieces);
    stk_stream_close(gather->stream);
    stk_free(gather->picture);
    *gather = (struct stk_gather){0};
}

int stk_gather_sample(struct stk_gather *gather, uint64_t sample, struct stk_shard_out *out,
                      struct stoker_error *error)
{
    int status = stk_plan_pieces(gather->plan, sample, &gather->pieces, error);

    if (status == 0 && out) {
        stk_shard_out_sample(out);
    }
    for (size_t i = 0; status == 0 && i < gather->pieces.count; i++) {
        const struct stk_piece *piece = &gather->pieces.items[i];

        if (atomic_load_explicit(gather->stop, memory_order_relaxed)) {
            return stk_fail(error, -ECANCELED, "the packing was stopped",
                            "run it again: it goes on", "sample %llu", (unsigned long long)sample);
        }
        if (out || piece->picture) {
            status = write_piece(gather, piece, out, error);
        }
    }
    return status;
}

static int write_piece(struct stk_gather *gather, const struct stk_piece *piece,
                       struct stk_shard_out *out, struct stoker_error *error)
{
    struct stk_view name = stk_piece_name(&gather->pieces, piece);
    char path[STK_PATH_BYTES_MAX];
    struct origin origin = {0};
    int status;

    if (piece->kind == STK_PIECE_TEXT) {
        status = stk_shard_out_member(out, name, piece->bytes, error);
        return status < 0 ? status
                          : stk_shard_out_data(out, gather->pieces.text + piece->from_at,
                                               piece->bytes, error);
    }
    status = open_origin(gather, piece, &origin, path, error);
    if (status < 0) {
        return status;
    }
    status = gather->shrink && piece->picture && piece->bytes <= STK_GATHER_PICTURE_MAX
                 ? shrink(gather, piece, &origin, out, error)
                 : copy(gather, piece, &origin, out, error);
    close_origin(gather, piece, &origin);
    if (status < 0 && status != -ECANCELED && error && !error->shard[0]) {
        stk_error_place(error, origin.path, origin.offset, NULL);
    }
    return status;
}

static int open_origin(struct stk_gather *gather, const struct stk_piece *piece,
                       struct origin *origin, char *path, struct stoker_error *error)
{
    struct stoker_dataset *dataset = gather->plan->dataset;
    struct stk_io *io = dataset->engine->io;
    struct stk_stat about = {0};
    uint32_t shard = piece->member.shard;
    int status;

    *origin = (struct origin){.bytes = piece->bytes, .path = path};
    if (piece->kind == STK_PIECE_FILE) {
        origin->path = gather->pieces.text + piece->from_at;
        status = stk_io_open_file(io, origin->path, &origin->file, error);
        if (status == 0) {
            status = stk_io_stat_file(io, origin->file, &about, error);
        }
        if (status == 0 && about.bytes != piece->bytes) {
            status = stk_fail(error, STOKER_ERROR_CHANGED, "a file changed while it was packed",
                              "remove the .part folder and pack again", "'%.400s'", origin->path);
        }
        if (status < 0) {
            close_origin(gather, piece, origin);
        }
        return status;
    }
    status = stk_index_path(dataset->index, shard, path, error);
    origin->offset = piece->member.offset;
    if (status < 0 || stk_index_shard_packing(dataset->index, shard) == STK_PLAIN) {
        return status < 0 ? status : stk_dataset_pin(dataset, shard, &origin->file, error);
    }
    if (!gather->stream || gather->stream_shard != shard) {
        stk_stream_close(gather->stream);
        gather->stream = NULL;
        status = stk_stream_open_shard(&gather->stream, dataset, shard, error);
        gather->stream_shard = shard;
    }
    return status;
}

static void close_origin(struct stk_gather *gather, const struct stk_piece *piece,
                         struct origin *origin)
{
    struct stoker_dataset *dataset = gather->plan->dataset;

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
static int read_some(struct stk_gather *gather, const struct origin *origin, uint64_t done,
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
            return stk_fail(error, (int)count, "cannot read", "check the file and its disk", "%s",
                            stoker_status_text((int)count));
        }
        got = (size_t)count;
    }
    if (got < bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a file ends before its data",
                        "fetch it again", "%zu of %zu bytes", got, bytes);
    }
    return 0;
}

static int copy(struct stk_gather *gather, const struct stk_piece *piece,
                const struct origin *origin, struct stk_shard_out *out, struct stoker_error *error)
{
    uint64_t done = 0;
    int status;

    if (!out) {
        return 0;
    }
    status = stk_shard_out_member(out, stk_piece_name(&gather->pieces, piece), piece->bytes, error);
    while (status == 0 && done < piece->bytes) {
        uint8_t *room;
        size_t bytes;

        status = stk_shard_out_room(out, &room, &bytes, error);
        status = status < 0 ? status : read_some(gather, origin, done, room, bytes, error);
        if (status == 0) {
            stk_shard_out_took(out, bytes);
            done += bytes;
        }
    }
    return status;
}

static int shrink(struct stk_gather *gather, const struct stk_piece *piece,
                  const struct origin *origin, struct stk_shard_out *out,
                  struct stoker_error *error)
{
    struct stk_view bytes, smaller;
    int status;

    if (piece->bytes > gather->picture_capacity) {
        stk_free(gather->picture);
        gather->picture = stk_alloc(piece->bytes, 1);
        gather->picture_capacity = gather->picture ? piece->bytes : 0;
        if (!gather->picture) {
            return stk_fail(error, -ENOMEM, "no memory for a picture", "free memory", "%llu bytes",
                            (unsigned long long)piece->bytes);
        }
    }
    status = read_some(gather, origin, 0, gather->picture, piece->bytes, error);
    if (status < 0) {
        return status;
    }
    bytes = smaller = (struct stk_view){gather->picture, piece->bytes};
    status = stk_shrink_run(gather->shrink, bytes, &smaller, error);
    if (status < 0) {
        return status;
    }
    gather->resized += status == 1;
    gather->copied += status == 0;
    gather->bytes_before += bytes.bytes;
    gather->bytes_after += smaller.bytes;
    if (!out) {
        return 0;
    }
    status =
        stk_shard_out_member(out, stk_piece_name(&gather->pieces, piece), smaller.bytes, error);
    return status < 0 ? status : stk_shard_out_data(out, smaller.data, smaller.bytes, error);
}
