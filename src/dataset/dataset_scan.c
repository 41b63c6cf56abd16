/* Listing what the urls name, and reading headers into the index, in parallel. */
#include "base/mem.h"
#include "dataset/dataset.h"

#include "base/crc.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "format/detect/container_detect.h"
#include "format/tar/tar_container.h"
#include "format/tar_recover/tar_recover.h"
#include "index/scan/container_scan.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The window over a plain tar's headers: grows while headers lie close, else shrinks to what one
 * member takes: an extended header, its block, and the header. */
#define WINDOW_BYTES_MIN 1536u
#define WINDOW_BYTES_MAX (256u << 10)
#define FOLDER_ROUND 4096u      /* files a round of the parallel loop */
#define CHUNK_BYTES (64u << 10) /* of a member's data at a time */
#define LABEL_BYTES_MAX 32u
#define HEADERS_AHEAD 64u /* shards whose first bytes are on their way before they are opened */
#define SEARCH_SHARE 256u /* of a tar's bytes: some lie between headers that were guessed */

struct scan {
    struct stoker_dataset *dataset;
    const struct stk_dataset_reuse *reuse;
};

static int begin_tar(void *context, uint32_t shard, struct stk_index **index_out,
                     uint32_t *number_out, struct stoker_error *error);
static int end_tar(void *context, uint32_t shard, struct stk_index *index, int status,
                   struct stoker_error *error);
static int scan_files(void *context, uint64_t round, struct stoker_error *error);

/* Where the objects of each url end: one of them may be the JSON of several paths. */
static int store_url_ends(struct stoker_dataset *dataset, struct stoker_error *error)
{
    dataset->url_ends = stk_alloc(dataset->options.url_count, sizeof *dataset->url_ends);
    if (!dataset->url_ends) {
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "%zu paths",
                        dataset->options.url_count);
    }
    for (size_t i = 0; i < dataset->options.url_count; i++) {
        uint64_t paths = dataset->shards.url_ends[i];

        dataset->url_ends[i] = paths ? dataset->objects.url_ends[paths - 1] : 0;
    }
    return 0;
}

int stk_dataset_reserve_files(struct stoker_dataset *dataset, uint64_t count,
                              struct stoker_error *error)
{
    dataset->objects.count = count;
    dataset->locked.files = stk_alloc(count, sizeof(struct stk_dataset_file));
    return dataset->locked.files ? 0
                                 : stk_fail(error, -ENOMEM, "cannot open a data set", "free memory",
                                            "%" PRIu64 " shards", count);
}

int stk_dataset_list(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stk_wids_shards *shards = &dataset->shards;
    int status = stk_wids_shards_expand(shards, dataset->engine->io, dataset->options.urls,
                                        dataset->options.url_count, error);

    if (status == 0) {
        status =
            stk_source_list(dataset->engine->io, (const char *const *)(const void *)shards->paths,
                            shards->count, &dataset->objects, error);
    }
    if (status == 0) {
        status = store_url_ends(dataset, error);
    }
    if (!shards->from_json) {
        stk_wids_shards_deinit(shards);
    }
    if (status < 0 || dataset->objects.kind == STK_SOURCE_FOLDER) {
        return status;
    }
    return stk_dataset_reserve_files(dataset, dataset->objects.count, error);
}

int stk_dataset_scan(struct stoker_dataset *dataset, const struct stk_dataset_reuse *reuse,
                     struct stoker_error *error)
{
    struct stk_index_options options = {.shard_count = dataset->objects.count,
                                        .key_bytes_max = dataset->options.key_bytes_max,
                                        .join_distance = dataset->options.member_gap_max};
    bool folder = dataset->objects.kind == STK_SOURCE_FOLDER;
    uint64_t rounds = (dataset->objects.count + FOLDER_ROUND - 1) / FOLDER_ROUND;
    struct scan scan = {dataset, reuse};
    struct stk_dataset_scan_callbacks plan = {&scan, begin_tar, end_tar};
    const struct stk_index *like = NULL;
    int status = stk_index_open(&dataset->index, &options, error);

    if (status < 0) {
        return status;
    }
    dataset->scan.keep_cached = true;
    status = folder ? stk_engine_parallel(dataset->engine, rounds, scan_files, &scan, error)
                    : stk_dataset_scan_tars(dataset, &plan, error);
    if (reuse) {
        like = reuse->first ? reuse->first : reuse->old;
    }
    return status < 0 ? status : stk_dataset_scan_finish(dataset, like, 0, error);
}

/* An index can be gigabytes: it is taken from the budget shard by shard, so that no more than what
 * the threads have in hand is ever above it. */
static int charge(struct stoker_dataset *dataset, uint64_t bytes, struct stoker_error *error)
{
    struct stk_budget *budget = &dataset->engine->budget;

    if (stk_engine_reserve(dataset->engine, bytes, 0, "the index", NULL) < 0) {
        return stk_fail(error, STOKER_ERROR_BUDGET, "the index is larger than the memory granted",
                        "make an index file, which is not kept in memory (stoker index), or grant "
                        "more memory",
                        "%llu bytes for more of it, %llu of %llu in use", (unsigned long long)bytes,
                        (unsigned long long)atomic_load(&budget->bytes),
                        (unsigned long long)budget->bytes_max);
    }
    atomic_fetch_add_explicit(&dataset->index_bytes, bytes, memory_order_relaxed);
    return 0;
}

/* Class names of tars stand in no listing: an index that knew them hands them on. */
static int add_classes(struct stoker_dataset *dataset, const struct stk_index *like,
                       struct stoker_error *error)
{
    int status = 0;

    for (uint64_t i = 0; status == 0 && like && i < stk_index_classes(like); i++) {
        status = stk_index_add_class(dataset->index, stk_index_class(like, i), error);
    }
    return status;
}

int stk_dataset_scan_finish(struct stoker_dataset *dataset, const struct stk_index *like,
                            uint64_t block_samples, struct stoker_error *error)
{
    int status = dataset->objects.class_count == 0 ? add_classes(dataset, like, error) : 0;

    for (uint64_t i = 0; status == 0 && i < dataset->objects.class_count; i++) {
        status = stk_index_add_class(
            dataset->index, dataset->objects.text + dataset->objects.class_names[i], error);
    }
    status =
        status < 0 ? status : stk_index_finish(dataset->index, dataset->options.block_bytes, error);
    if (status == 0 && block_samples > 0 && !dataset->options.block_bytes) {
        stk_index_set_block(dataset->index, block_samples, 0);
    }
    if (status == 0) {
        uint64_t bytes = stk_index_memory_bytes(dataset->index);
        uint64_t charged = dataset->index_bytes;

        status = charge(dataset, bytes - stk_min(bytes, charged), error);
    }
    return status;
}

static const char *object_path(const struct stoker_dataset *dataset, uint64_t object)
{
    return dataset->objects.text + dataset->objects.paths[object];
}

static int checksum_file(struct stoker_dataset *dataset, const char *path,
                         struct stk_index_shard_builder *builder, struct stoker_error *error)
{
    struct stk_io *io = dataset->engine->io;
    struct stk_xxh3 *sum = stk_xxh3_open();
    uint8_t *buffer = stk_alloc(WINDOW_BYTES_MAX, 1);
    struct stk_file *file = NULL;
    uint64_t offset = 0;
    int64_t got = 1;
    int status = 0;

    if (!sum || !buffer) {
        status = stk_fail(error, -ENOMEM, "cannot sum a file", "free memory", "'%s'", path);
    }
    status = status < 0 ? status : stk_io_open_file(io, path, &file, error);
    while (status == 0 && got > 0) {
        got = stk_io_read_wait(io, file, offset, buffer, WINDOW_BYTES_MAX);
        if (got < 0) {
            status = stk_io_fail_read(io, file, got, "cannot read a file", error);
        } else {
            stk_xxh3_add(sum, buffer, (size_t)got);
            offset += (uint64_t)got;
        }
    }
    if (status == 0) {
        status = stk_index_shard_set_checksum(builder, stk_xxh3_done(sum), error);
    }
    atomic_fetch_add_explicit(&dataset->scan.bytes_read, offset, memory_order_relaxed);
    atomic_fetch_add_explicit(&dataset->scan.bytes_done, offset, memory_order_relaxed);
    if (file) {
        stk_io_close_file(io, file);
    }
    stk_free(buffer);
    stk_xxh3_close(sum);
    return status;
}

static int scan_file(struct stoker_dataset *dataset, uint32_t object, struct stoker_error *error)
{
    const char *path = object_path(dataset, object);
    const char *key = path + stk_min(dataset->objects.root_bytes, strlen(path));
    const char *dot = strrchr(path, '.');
    struct stk_view extension = {(const uint8_t *)(dot ? dot + 1 : ""), 0};
    struct stk_index_shard_builder *builder;
    int status = stk_index_shard_begin(dataset->index, object, path, &builder, error);

    if (status < 0) {
        return status;
    }
    extension.bytes = strlen((const char *)extension.data);
    status = stk_index_shard_add_file(builder, (struct stk_view){(const uint8_t *)key, strlen(key)},
                                      extension, dataset->objects.classes[object], error);
    if (status == 0 && dataset->scan.checksums) {
        status = checksum_file(dataset, path, builder, error);
    }
    if (status < 0) {
        stk_index_shard_cancel(builder);
        return stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL), status;
    }
    return stk_index_shard_end(builder, 0, STK_COMPRESSION_NONE, error);
}

static int scan_files(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_dataset *dataset = ((struct scan *)context)->dataset;
    uint64_t first = round * FOLDER_ROUND;
    uint64_t end = stk_min(first + FOLDER_ROUND, dataset->objects.count);
    int status = 0;

    for (uint64_t i = first; i < end && status == 0; i++) {
        status = atomic_load_explicit(&dataset->scan.stop, memory_order_relaxed)
                     ? stk_dataset_scan_stopped(error)
                     : scan_file(dataset, (uint32_t)i, error);
        atomic_fetch_add_explicit(&dataset->scan.shards_done, 1, memory_order_relaxed);
    }
    return status;
}

int stk_dataset_scan_stopped(struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CLOSED, "the index is not finished",
                    "run 'stoker index' again: it goes on", "it was stopped");
}

/* A window over the stream that serves what the parser needs. */
struct window {
    struct stoker_dataset *dataset;
    struct stk_shard_stream *stream;
    struct stk_xxh3 *sum; /* NULL: no checksums are asked for */
    uint8_t *data;        /* WINDOW_BYTES_MAX at first; more for a long header */
    uint64_t offset;
    size_t bytes, capacity, want;
};

static int window_fill(struct window *window, const struct stk_container_step *need,
                       struct stk_view *view_out, struct stoker_error *error)
{
    uint64_t end = window->offset + window->bytes;
    size_t kept = 0, got;
    int status;

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
    status = stk_shard_stream_read(
        window->stream, need->offset + kept, window->data + kept,
        stk_max(need->bytes, stk_min(window->want, window->capacity)) - kept, &got, error);
    if (status < 0) {
        return status;
    }
    window->bytes = kept + got;
lend:
    *view_out = (struct stk_view){window->data + (need->offset - window->offset),
                                  window->bytes - (need->offset - window->offset)};
    return 0;
}

static bool ends_with_cls(struct stk_view name)
{
    return name.bytes > 4 && strncasecmp((const char *)name.data + name.bytes - 4, ".cls", 4) == 0;
}

/* A whole number between white space, as the loader reads a label. */
static bool parse_label(struct stk_view view, int64_t *label_out)
{
    char text[LABEL_BYTES_MAX + 1], *end;

    memcpy(text, view.data, view.bytes);
    text[view.bytes] = 0;
    errno = 0;
    *label_out = strtoll(text, &end, 10);
    if (end == text || errno) {
        return false;
    }
    return end[strspn(end, " \t\r\n")] == 0;
}

/* Checksum and label of the member just added. */
static int read_member(struct window *window, const struct stk_container_step *member,
                       struct stk_index_shard_builder *builder, struct stoker_error *error)
{
    struct stk_dataset_scan_state *scan = &window->dataset->scan;
    bool is_label = scan->labels && member->bytes <= LABEL_BYTES_MAX && ends_with_cls(member->name);
    uint64_t done = 0;
    uint32_t crc = 0;
    int status = 0;

    while (status == 0 && (is_label || scan->checksums) && done < member->bytes) {
        struct stk_container_step need = {.offset = member->offset + done,
                                          .bytes = stk_min(member->bytes - done, CHUNK_BYTES)};
        struct stk_view view;
        int64_t label;

        status = window_fill(window, &need, &view, error);
        if (status < 0 || view.bytes < need.bytes) {
            return status; /* too short: the parser says so at its next step */
        }
        view.bytes = need.bytes;
        if (scan->checksums) {
            stk_xxh3_add(window->sum, view.data, view.bytes);
        }
        if (member->checksum_kind == STK_MEMBER_CHECKSUM_CRC32C) {
            crc = stk_crc32c(crc, view.data, view.bytes);
        }
        if (is_label && parse_label(view, &label)) {
            status = stk_index_shard_set_label(builder, label, error);
        }
        done += view.bytes;
    }
    if (status == 0 && scan->checksums && member->checksum_kind == STK_MEMBER_CHECKSUM_CRC32C &&
        crc != member->checksum) {
        stk_fail(error, STOKER_ERROR_CORRUPT, "the checksum of a member does not match its data",
                 "copy the shard again", "CRC32C %08x, but %08x in the container", crc,
                 member->checksum);
        stk_error_set_location(error, NULL, member->offset, NULL);
        return STOKER_ERROR_CORRUPT;
    }
    if (status == 0 && scan->checksums) {
        status = stk_index_shard_set_checksum(builder, stk_xxh3_done(window->sum), error);
    }
    return status;
}

/* Parts that an index knows are taken over; so are those that a foreign index tells. */
static int begin_tar(void *context, uint32_t shard, struct stk_index **index_out,
                     uint32_t *number_out, struct stoker_error *error)
{
    struct scan *scan = context;
    struct stoker_dataset *dataset = scan->dataset;
    const struct stk_dataset_reuse *reuse = scan->reuse;
    const char *path = object_path(dataset, shard);
    int status = STOKER_ERROR_CORRUPT;

    if (reuse && shard < reuse->first_count) {
        status = stk_index_shard_copy(dataset->index, shard, path, reuse->first, shard, error);
    }
    if (status == STOKER_ERROR_CORRUPT && reuse && reuse->from && reuse->from[shard] > 0) {
        status = stk_index_shard_copy(dataset->index, shard, path, reuse->old,
                                      reuse->from[shard] - 1, error);
    }
    if (status == STOKER_ERROR_CORRUPT && dataset->foreign_index) {
        status = stk_foreign_index_read(dataset->foreign_index, dataset->index, shard, path, error);
        status = status == 0 ? STOKER_ERROR_CORRUPT : status < 0 ? status : 0;
    }
    /* What is damaged is the index: the shard itself is not. */
    if (status == STOKER_ERROR_CORRUPT) {
        *index_out = dataset->index;
        *number_out = shard;
        return 0;
    }
    status = status < 0 ? status : end_tar(context, shard, dataset->index, 0, error);
    return status < 0 ? status : 1;
}

static int end_tar(void *context, uint32_t shard, struct stk_index *index, int status,
                   struct stoker_error *error)
{
    struct scan *scan = context;

    return status < 0 ? status
                      : charge(scan->dataset, stk_index_shard_memory_bytes(index, shard), error);
}

/* ---- tars ------------------------------------------------------------------------------- */

/* All tars of a listing, taken in its order by some sweeps. The lowest that fails counts: those
 * before it are read to their ends, those behind it are given up. */
struct tars {
    struct stoker_dataset *dataset;
    const struct stk_dataset_scan_callbacks *plan;
    _Atomic uint64_t next;   /* of the listing */
    _Atomic uint64_t heads;  /* likewise: whose first bytes are not on their way yet */
    _Atomic uint64_t failed; /* UINT64_MAX: none */
    pthread_mutex_t lock;    /* of these two, and changes of failed */
    int status;
    struct stoker_error error;
};

/* One tar that is read: its members by a sweep, or alone, when more than headers is asked for. */
struct one_tar {
    struct stk_container_scan_shard tar; /* first: what the sweep knows of it */
    struct tars *tars;
    uint32_t shard;          /* of the listing */
    struct stk_index *index; /* where it goes, as `number` */
    uint32_t number;
    const char *path;
    struct stk_index_shard_builder *builder; /* owned */
    struct stk_shard_stream *stream;         /* owned */
    struct stk_foreign_index_starts told;
    uint64_t rows; /* added so far */
};

static void fail_tars(struct tars *tars, uint64_t shard, int status,
                      const struct stoker_error *error)
{
    pthread_mutex_lock(&tars->lock);
    if (shard < atomic_load(&tars->failed)) {
        atomic_store(&tars->failed, shard);
        tars->status = status;
        tars->error = *error;
    }
    pthread_mutex_unlock(&tars->lock);
}

static int read_stream(void *context, uint64_t offset, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error)
{
    return stk_shard_stream_read(context, offset, buffer, bytes, got_out, error);
}

/* The members of samples that are whole, into a builder of their own. */
static int add_recovered(struct one_tar *one, const struct stk_tar_recover *rescue,
                         struct stoker_error *error)
{
    int status = stk_index_shard_begin(one->index, one->number, one->path, &one->builder, error);

    for (uint64_t i = 0; status == 0 && i < rescue->member_count; i++) {
        const struct stk_tar_recover_member *member = &rescue->members[i];

        if (stk_tar_recover_is_intact(rescue, i)) {
            status = stk_index_shard_add(one->builder, stk_tar_recover_name(rescue, i),
                                         member->offset, member->bytes, error);
        }
    }
    return status;
}

/* Of a damaged tar: read again, and what is whole of it is taken. *error: what it failed with, and
 * with what this does. */
static int recover_tar(struct one_tar *one, struct stoker_error *error)
{
    struct stoker_dataset *dataset = one->tars->dataset;
    struct stk_tar_recover_source source = {.path = one->path, .read = read_stream};
    struct stk_tar_recover rescue = {0};
    int status;

    stk_index_shard_cancel(one->builder);
    one->builder = NULL;
    stk_shard_stream_close(one->stream);
    one->stream = NULL;
    status = stk_shard_stream_open(&one->stream, dataset, one->path, error);
    if (status < 0) {
        return status;
    }
    source.context = one->stream;
    source.bytes = stk_shard_stream_compression(one->stream) == STK_COMPRESSION_NONE
                       ? stk_shard_stream_object_bytes(one->stream)
                       : UINT64_MAX;
    source.limits.name_bytes_max = dataset->options.key_bytes_max;
    source.limits.header_bytes_max = dataset->options.header_bytes_max;
    status = stk_tar_recover_run(&rescue, &source, error);
    status = status < 0 ? status : add_recovered(one, &rescue, error);
    if (status == 0) {
        pthread_mutex_lock(&dataset->lock);
        status = stk_tar_losses_add(&dataset->bad_samples, one->shard, &rescue.bad_samples);
        pthread_mutex_unlock(&dataset->lock);
        if (status < 0) {
            stk_fail(error, status, "cannot list the damage", "free memory", "'%.400s'", one->path);
        }
    }
    stk_tar_recover_deinit(&rescue);
    return status;
}

uint64_t stoker_dataset_quarantine_count(const struct stoker_dataset *dataset)
{
    return dataset->bad_samples.count;
}

int stoker_dataset_quarantine(const struct stoker_dataset *dataset, uint64_t index,
                              struct stoker_quarantine_entry *entry_out)
{
    const struct stk_bad_sample *damage = stk_tar_losses_get(&dataset->bad_samples, index);

    return damage ? stk_bad_sample_entry(damage, entry_out) : STOKER_ERROR_ARGUMENT;
}

/* Takes it. */
static void close_one(struct one_tar *one, int status, struct stoker_error *error)
{
    struct tars *tars = one->tars;
    struct stk_dataset_scan_state *scan = &tars->dataset->scan;

    if (stk_tar_recover_is_possible(status) &&
        (!one->tar.format || one->tar.format == &stk_tar_container) &&
        tars->dataset->options.on_error == STOKER_ON_ERROR_SKIP) {
        status = recover_tar(one, error);
    }
    if (status == 0) {
        uint64_t bytes = stk_shard_stream_object_bytes(one->stream);

        status = stk_index_shard_end(one->builder, bytes, stk_shard_stream_compression(one->stream),
                                     error);
        one->builder = NULL;
        if (status == 0) {
            atomic_fetch_add_explicit(&scan->shards_done, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&scan->bytes_done, bytes, memory_order_relaxed);
            stk_foreign_index_verify_starts(tars->dataset->foreign_index, one->path, &one->told,
                                            one->tar.refuted,
                                            stk_index_shard_samples(one->index, one->number));
        }
    }
    if (status < 0) {
        stk_error_set_location(error, one->path, STOKER_NO_OFFSET, NULL);
    }
    stk_index_shard_cancel(one->builder);
    stk_shard_stream_close(one->stream);
    status = tars->plan->end(tars->plan->context, one->shard, one->index, status, error);
    if (status < 0) {
        fail_tars(tars, one->shard, status, error);
    }
    stk_free(one);
}

static int open_one(struct one_tar *one, struct stoker_error *error)
{
    struct stoker_dataset *dataset = one->tars->dataset;
    struct stk_dataset_scan_state *scan = &dataset->scan;
    uint64_t access_bytes = scan->seek_point_bytes;
    int status = stk_index_shard_begin(one->index, one->number, one->path, &one->builder, error);

    status = status < 0 ? status : stk_shard_stream_open(&one->stream, dataset, one->path, error);
    if (status == 0 && stk_shard_stream_compression(one->stream) == STK_COMPRESSION_ZSTD &&
        access_bytes == 0) {
        access_bytes =
            STK_SEEK_POINTS_SPACING_DEFAULT; /* frames cost 40 bytes each: they always count */
    }
    if (status == 0 && access_bytes > 0) {
        status = stk_shard_stream_collect_seek_points(one->stream, access_bytes, error);
    }
    if (status == 0 && scan->checksums) {
        stk_shard_stream_hash_begin(one->stream);
    }
    return status;
}

static bool has_headers_only(const struct one_tar *one)
{
    const struct stk_dataset_scan_state *scan = &one->tars->dataset->scan;

    return stk_shard_stream_compression(one->stream) == STK_COMPRESSION_NONE && !scan->checksums &&
           !scan->labels;
}

static bool holds_data(const struct stk_container_step *member)
{
    return member->kind == STK_MEMBER_FILE || member->kind == STK_MEMBER_ROW;
}

/* Adds a file or a row to the index. */
static int index_member(struct one_tar *one, const struct stk_container_step *member,
                        struct stoker_error *error)
{
    char text[STK_CONTAINER_ROW_NAME_BYTES];
    struct stk_view name = member->name;

    if (member->kind == STK_MEMBER_ROW) {
        name = stk_container_row_name(one->tar.format, one->rows++, text);
    }
    return stk_index_shard_add(one->builder, name, member->offset, member->bytes, error);
}

static int scan_members(struct one_tar *one, struct window *window, struct stk_container *container,
                        struct stoker_error *error)
{
    struct stk_dataset_scan_state *scan = &window->dataset->scan;
    struct stk_view bytes = {NULL, 0};
    int status;

    for (;;) {
        struct stk_container_step step = {0};

        status = stk_container_step(container, bytes, &step, error);
        if (status < 0 || step.event == STK_CONTAINER_END) {
            return status;
        }
        bytes = (struct stk_view){NULL, 0};
        if (atomic_load_explicit(&scan->stop, memory_order_relaxed)) {
            status = stk_dataset_scan_stopped(error);
        } else if (step.event == STK_CONTAINER_NEED) {
            status = window_fill(window, &step, &bytes, error);
        } else if (holds_data(&step)) {
            status = index_member(one, &step, error);
            if (status == 0 && (scan->checksums || scan->labels)) {
                status = read_member(window, &step, one->builder, error);
            }
        }
        if (status < 0) {
            return status;
        }
    }
}

/* Chooses the container format by the path and the first bytes of the decompressed shard. */
static int choose_format(struct one_tar *one, struct stk_view head, struct stoker_error *error)
{
    one->tar.format = stk_container_detect(one->tars->dataset->formats, one->path, head);
    return one->tar.format->flags & STK_CONTAINER_SEQUENTIAL
               ? stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                          "members of this container cannot be read in any order",
                          "convert the shard to a tar", "%s", one->tar.format->name)
               : 0;
}

/* All of it front to back: packed, or for its checksums or labels. */
static int read_whole_tar(struct one_tar *one, struct stoker_error *error)
{
    struct stoker_dataset *dataset = one->tars->dataset;
    bool checksums = dataset->scan.checksums;
    struct window window = {.dataset = dataset,
                            .stream = one->stream,
                            .capacity = WINDOW_BYTES_MAX,
                            .want = WINDOW_BYTES_MIN,
                            .data = stk_alloc(WINDOW_BYTES_MAX, 1),
                            .sum = checksums ? stk_xxh3_open() : NULL};
    bool is_plain = stk_shard_stream_compression(one->stream) == STK_COMPRESSION_NONE;
    struct stk_container_options options = {
        .size = is_plain ? stk_shard_stream_object_bytes(one->stream) : UINT64_MAX,
        .name_bytes_max = dataset->options.key_bytes_max,
        .header_bytes_max = dataset->options.header_bytes_max};
    struct stk_container_step begin = {.bytes = STK_CONTAINER_HEAD_BYTES};
    struct stk_container *container = NULL;
    struct stk_view access = {NULL, 0}, head = {NULL, 0};
    int status = 0;

    if (!window.data || (checksums && !window.sum)) {
        status = stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "window");
    }
    if (status == 0 && !is_plain) {
        status = window_fill(&window, &begin, &head, error);
        head.bytes = stk_min(head.bytes, begin.bytes);
        status = status < 0 ? status : choose_format(one, head, error);
    }
    status = status < 0 ? status : stk_container_open(&container, one->tar.format, &options, error);
    status = status < 0 ? status : scan_members(one, &window, container, error);
    status = status < 0 ? status : stk_shard_stream_seek_points(one->stream, &access, error);
    if (status == 0) {
        stk_index_shard_set_seek_points(one->builder, access);
    }
    if (status == 0 && checksums) {
        uint8_t digest[32];

        status = stk_shard_stream_hash_end(one->stream, digest, error);
        stk_index_shard_set_digest(one->builder, digest);
    }
    stk_container_close(container);
    stk_xxh3_close(window.sum);
    stk_free(window.data);
    return status;
}

/* 1: it is for a sweep; 0: it is done; negative: it is not. Takes it, but for 1. */
static int start_one(struct one_tar *one, struct stoker_error *error)
{
    struct stk_foreign_index *told = one->tars->dataset->foreign_index;
    int status = open_one(one, error);

    if (status == 0 && stk_shard_stream_compression(one->stream) == STK_COMPRESSION_NONE) {
        status = choose_format(one, stk_shard_stream_head(one->stream), error);
    }
    if (status == 0 && has_headers_only(one)) {
        one->tar.file = stk_shard_stream_file(one->stream);
        one->tar.bytes = stk_shard_stream_object_bytes(one->stream);
        status =
            told ? stk_foreign_index_find_starts(told, one->path, one->tar.bytes, &one->told, error)
                 : 0;
        one->tar.starts = one->told.starts;
        one->tar.start_count = one->told.count;
        if (status == 0) {
            return 1;
        }
    } else if (status == 0) {
        status = read_whole_tar(one, error);
    }
    close_one(one, status, error);
    return 0;
}

/* Of the shards that will be opened soon, this one included. */
static void prefetch_headers(struct tars *tars, uint64_t shard)
{
    struct stoker_dataset *dataset = tars->dataset;
    uint64_t end = stk_min(shard + HEADERS_AHEAD, dataset->objects.count);
    uint64_t next = atomic_load(&tars->heads);

    while (dataset->scan.keep_cached && next < end) {
        if (atomic_compare_exchange_strong(&tars->heads, &next, next + 1)) {
            stk_vfs_prefetch_head(dataset->engine->io, object_path(dataset, next), dataset);
        }
    }
}

static int next_tar(void *context, struct stk_container_scan_shard **tar_out,
                    struct stoker_error *error)
{
    struct tars *tars = context;
    struct stoker_dataset *dataset = tars->dataset;

    for (;;) {
        uint64_t shard = atomic_fetch_add(&tars->next, 1);
        struct stoker_error why = {0};
        struct one_tar *one;
        int status = 0;

        if (shard >= dataset->objects.count || shard > atomic_load(&tars->failed)) {
            return 0;
        }
        one = stk_alloc(1, sizeof *one);
        if (!one) {
            return stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "a shard");
        }
        prefetch_headers(tars, shard);
        one->tars = tars;
        one->shard = (uint32_t)shard;
        one->path = object_path(dataset, shard);
        one->tar.refuted = STK_CONTAINER_SCAN_NO_START;
        status = atomic_load_explicit(&dataset->scan.stop, memory_order_relaxed)
                     ? stk_dataset_scan_stopped(&why)
                     : tars->plan->begin(tars->plan->context, one->shard, &one->index, &one->number,
                                         &why);
        if (status == 0 && start_one(one, &why) == 1) {
            *tar_out = &one->tar;
            return 1;
        }
        if (status != 0) {
            stk_free(one);
        }
        if (status < 0) {
            fail_tars(tars, shard, status, &why);
        }
    }
}

static struct one_tar *tar_of_sweep(struct stk_container_scan_shard *tar)
{
    return (struct one_tar *)(void *)tar;
}

static int add_member(struct stk_container_scan_shard *tar, const struct stk_container_step *member,
                      struct stoker_error *error)
{
    return holds_data(member) ? index_member(tar_of_sweep(tar), member, error) : 0;
}

static int continue_members(struct stk_container_scan_shard *tar, struct stoker_error *error)
{
    const struct one_tar *one = tar_of_sweep(tar);
    bool stop = atomic_load_explicit(&one->tars->dataset->scan.stop, memory_order_relaxed);

    return stop || one->shard > atomic_load(&one->tars->failed) ? stk_dataset_scan_stopped(error)
                                                                : 0;
}

static void end_one(struct stk_container_scan_shard *tar, int status,
                    const struct stoker_error *error)
{
    struct stoker_error why = *error;

    close_one(tar_of_sweep(tar), status, &why);
}

static int sweep_round(void *context, uint64_t round, struct stoker_error *error)
{
    static const struct stk_container_scan_callbacks calls = {next_tar, add_member,
                                                              continue_members, end_one};
    struct tars *tars = context;
    struct stk_container_scan_options options = {
        .io = tars->dataset->engine->io,
        .calls = &calls,
        .context = tars,
        .search_share = SEARCH_SHARE,
        .name_bytes_max = tars->dataset->options.key_bytes_max,
        .header_bytes_max = tars->dataset->options.header_bytes_max,
        .prefetch_owner = tars->dataset->scan.keep_cached ? tars->dataset : NULL,
        .bytes_read = &tars->dataset->scan.bytes_read};

    const _Atomic bool *before = stk_io_set_cancel_flag(&tars->dataset->scan.stop);
    int status;

    (void)round;
    status = stk_container_scan(&options, error);
    stk_io_set_cancel_flag(before);
    return status;
}

int stk_dataset_scan_tars(struct stoker_dataset *dataset,
                          const struct stk_dataset_scan_callbacks *plan, struct stoker_error *error)
{
    struct tars tars = {.dataset = dataset, .plan = plan, .failed = UINT64_MAX};
    uint64_t sweeps = stk_min(dataset->objects.count, dataset->engine->worker_count);
    int status;

    pthread_mutex_init(&tars.lock, NULL);
    status = stk_engine_parallel(dataset->engine, sweeps, sweep_round, &tars, error);
    pthread_mutex_destroy(&tars.lock);
    if (status == 0 && tars.status < 0 && error) {
        *error = tars.error;
    }
    return status < 0 ? status : tars.status;
}
