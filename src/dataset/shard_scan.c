/* Scans the containers of a data set: headers of plain ones by index/scan, many at once; all bytes
 * of those that are compressed, or whose checksums or labels are requested. */
#include "dataset/shard_scan.h"

#include "base/crc.h"
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "base/text/text_match.h"
#include "base/xxh3.h"
#include "format/compress/seek_points.h"
#include "format/detect/container_detect.h"
#include "format/tar/tar_container.h"
#include "index/scan/container_scan.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The window over a shard: it grows while headers are close together, else shrinks to the bytes of
 * one member of a tar: an extended header, its block, and the header. */
#define WINDOW_BYTES_MIN 1536u
#define WINDOW_BYTES_MAX (256u << 10)
#define CHUNK_BYTES (64u << 10) /* of a member's data at a time */
#define LABEL_BYTES_MAX 32u
#define HEADERS_AHEAD 64u /* the first bytes of this number of shards are prefetched */
#define SEARCH_SHARE 256u /* 1/256 of a shard's bytes may be read in search of headers */

/* All shards of a listing. The scans of several threads take them in order. If shards fail, the
 * first of them in the listing counts: shards before it are completed, later ones are abandoned. */
struct shards {
    struct stoker_dataset *dataset;
    const struct stk_shard_scan_callbacks *calls;
    _Atomic uint64_t next;   /* of the listing */
    _Atomic uint64_t heads;  /* of the listing: the first one whose head is not prefetched yet */
    _Atomic uint64_t failed; /* UINT64_MAX: none */
    pthread_mutex_t lock;    /* of status, error, and changes of failed */
    int status;
    struct stoker_error error;
};

/* One shard that is scanned. */
struct one_shard {
    struct stk_container_scan_shard scan; /* first: the part of index/scan */
    struct shards *shards;
    struct stk_shard_scan_target target;
    struct stk_foreign_index_starts starts;
    uint64_t rows; /* added so far */
};

/* A window over the stream: it holds the bytes that the container needs. */
struct window {
    struct stoker_dataset *dataset;
    struct stk_shard_stream *stream;
    struct stk_xxh3 *sum; /* NULL: no checksums */
    uint8_t *data;        /* WINDOW_BYTES_MAX at first; more for a long header */
    uint64_t offset;
    size_t bytes, capacity, want;
};

static int window_fill(struct window *window, const struct stk_container_step *need,
                       struct stk_view *view_out, struct stoker_error *error)
{
    uint64_t end = window->offset + window->bytes;
    size_t overlap = 0, got;
    int status;

    if (need->offset >= window->offset && need->offset + need->bytes <= end) {
        goto done;
    }
    /* If the next header is close (small members), so are the next ones: read more at once. */
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
    /* A stream cannot go back: the bytes that are needed again move to the front. */
    if (need->offset >= window->offset && need->offset < end) {
        overlap = end - need->offset;
        memmove(window->data, window->data + (need->offset - window->offset), overlap);
    }
    window->offset = need->offset;
    window->bytes = overlap;
    status = stk_shard_stream_read(
        window->stream, need->offset + overlap, window->data + overlap,
        stk_max(need->bytes, stk_min(window->want, window->capacity)) - overlap, &got, error);
    if (status < 0) {
        return status;
    }
    window->bytes = overlap + got;
done:
    *view_out = (struct stk_view){window->data + (need->offset - window->offset),
                                  window->bytes - (need->offset - window->offset)};
    return 0;
}

/* Parses an integer between white space, as the loader reads a label. */
static bool parse_label(struct stk_view view, int64_t *label_out)
{
    char text[LABEL_BYTES_MAX + 1];
    const char *end;

    memcpy(text, view.data, view.bytes);
    text[view.bytes] = 0;
    return stk_parse_int64(text, &end, label_out) && stk_parse_is_end(end, text + view.bytes);
}

/* Reads the checksum and the label of the member that was just added. */
static int read_member(struct window *window, const struct stk_container_step *member,
                       struct stk_index_shard_builder *builder, struct stoker_error *error)
{
    struct stk_dataset_scan_state *scan = &window->dataset->scan;
    bool is_label = scan->labels && member->bytes <= LABEL_BYTES_MAX &&
                    stk_view_ends_with_nocase(member->name, ".cls");
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
            return status; /* too short: the next step reports it */
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

/* Adds a row to the index. Apart from index_member, which is called for each member of a scan. */
static int index_row(struct one_shard *one, const struct stk_container_step *row,
                     struct stoker_error *error)
{
    char text[STK_CONTAINER_ROW_NAME_BYTES];
    struct stk_view name = stk_container_row_name(one->scan.format, one->rows++, text);

    return stk_index_shard_add(one->target.builder, name, row->offset, row->bytes, error);
}

static bool holds_data(const struct stk_container_step *member)
{
    return member->kind == STK_MEMBER_FILE || member->kind == STK_MEMBER_ROW;
}

/* Adds a member to the index, if it is a file or a row. */
static int index_member(struct one_shard *one, const struct stk_container_step *member,
                        struct stoker_error *error)
{
    if (member->kind == STK_MEMBER_FILE) {
        return stk_index_shard_add(one->target.builder, member->name, member->offset, member->bytes,
                                   error);
    }
    if (member->kind == STK_MEMBER_HARD_LINK) {
        return stk_index_shard_add_link(one->target.builder, member->name, member->link, error);
    }
    if (member->kind == STK_MEMBER_LINK || member->kind == STK_MEMBER_OTHER) {
        stk_index_shard_skip(one->target.builder, member->kind == STK_MEMBER_LINK);
    }
    return member->kind == STK_MEMBER_ROW ? index_row(one, member, error) : 0;
}

static int scan_members(struct one_shard *one, struct window *window,
                        struct stk_container *container, struct stoker_error *error)
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
            status = stk_shard_scan_stopped(error);
        } else if (step.event == STK_CONTAINER_NEED) {
            status = window_fill(window, &step, &bytes, error);
        } else {
            status = index_member(one, &step, error);
            if (status == 0 && holds_data(&step) && (scan->checksums || scan->labels)) {
                status = read_member(window, &step, one->target.builder, error);
            }
        }
        if (status < 0) {
            return status;
        }
    }
}

/* Chooses the container format by the path and the first bytes of the decompressed shard. */
static int choose_format(struct one_shard *one, struct stk_view head, struct stoker_error *error)
{
    one->scan.format = stk_container_detect(one->target.dataset->formats, one->target.path, head);
    return one->scan.format->flags & STK_CONTAINER_SEQUENTIAL
               ? stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                          "members of this container cannot be read in any order",
                          "convert the shard to a tar", "%s", one->scan.format->name)
               : 0;
}

/* Reads a shard from front to back: it is compressed, or its checksums or labels are requested. */
static int read_entire_shard(struct one_shard *one, struct stoker_error *error)
{
    struct stoker_dataset *dataset = one->target.dataset;
    bool checksums = dataset->scan.checksums;
    struct window window = {.dataset = dataset,
                            .stream = one->target.stream,
                            .capacity = WINDOW_BYTES_MAX,
                            .want = WINDOW_BYTES_MIN,
                            .data = stk_alloc(WINDOW_BYTES_MAX, 1),
                            .sum = checksums ? stk_xxh3_open() : NULL};
    bool is_plain = stk_shard_stream_compression(one->target.stream) == STK_COMPRESSION_NONE;
    struct stk_container_options options = {
        .size = is_plain ? stk_shard_stream_object_bytes(one->target.stream) : UINT64_MAX,
        .name_bytes_max = dataset->options.key_bytes_max,
        .header_bytes_max = dataset->options.header_bytes_max};
    struct stk_container_step begin = {.bytes = STK_CONTAINER_HEAD_BYTES};
    struct stk_container *container = NULL;
    struct stk_view seek_points = {NULL, 0}, head = {NULL, 0};
    int status = 0;

    if (!window.data || (checksums && !window.sum)) {
        status = stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "window");
    }
    if (status == 0 && !is_plain) {
        status = window_fill(&window, &begin, &head, error);
        head.bytes = stk_min(head.bytes, begin.bytes);
        status = status < 0 ? status : choose_format(one, head, error);
    }
    status =
        status < 0 ? status : stk_container_open(&container, one->scan.format, &options, error);
    status = status < 0 ? status : scan_members(one, &window, container, error);
    status =
        status < 0 ? status : stk_shard_stream_seek_points(one->target.stream, &seek_points, error);
    if (status == 0) {
        stk_index_shard_set_seek_points(one->target.builder, seek_points);
    }
    if (status == 0 && checksums) {
        uint8_t digest[32];

        status = stk_shard_stream_hash_end(one->target.stream, digest, error);
        stk_index_shard_set_digest(one->target.builder, digest);
    }
    stk_container_close(container);
    stk_xxh3_close(window.sum);
    stk_free(window.data);
    return status;
}

static void fail_shard(struct shards *shards, uint64_t shard, int status,
                       const struct stoker_error *error)
{
    pthread_mutex_lock(&shards->lock);
    if (shard < atomic_load(&shards->failed)) {
        atomic_store(&shards->failed, shard);
        shards->status = status;
        shards->error = *error;
    }
    pthread_mutex_unlock(&shards->lock);
}

static int open_one(struct one_shard *one, struct stoker_error *error)
{
    struct stoker_dataset *dataset = one->target.dataset;
    struct stk_dataset_scan_state *scan = &dataset->scan;
    struct stk_shard_stream_options options = stk_dataset_stream_options(dataset);
    uint64_t spacing = scan->seek_point_bytes;
    int status = stk_index_shard_begin(one->target.index, one->target.number, one->target.path,
                                       &one->target.builder, error);

    status = status < 0
                 ? status
                 : stk_shard_stream_open(&one->target.stream, &options, one->target.path, error);
    if (status == 0 && stk_shard_stream_compression(one->target.stream) == STK_COMPRESSION_ZSTD &&
        spacing == 0) {
        spacing = STK_SEEK_POINTS_SPACING_DEFAULT; /* frames cost 40 bytes each: always */
    }
    if (status == 0 && spacing > 0) {
        status = stk_shard_stream_collect_seek_points(one->target.stream, spacing, error);
    }
    if (status == 0 && scan->checksums) {
        stk_shard_stream_hash_begin(one->target.stream);
    }
    return status;
}

static void count_skipped(struct stk_dataset_scan_state *scan,
                          const struct stk_index_skipped *skipped)
{
    atomic_fetch_add_explicit(&scan->system_files, skipped->system_files, memory_order_relaxed);
    atomic_fetch_add_explicit(&scan->links, skipped->links, memory_order_relaxed);
    atomic_fetch_add_explicit(&scan->special, skipped->special, memory_order_relaxed);
    atomic_fetch_add_explicit(&scan->unnamed, skipped->unnamed, memory_order_relaxed);
}

/* Ends the shard and frees it. */
static void close_one(struct one_shard *one, int status, struct stoker_error *error)
{
    struct shards *shards = one->shards;
    struct stk_dataset_scan_state *scan = &shards->dataset->scan;

    if (stk_tar_recover_is_possible(status) &&
        (!one->scan.format || one->scan.format == &stk_tar_container) &&
        shards->dataset->options.on_error == STOKER_ON_ERROR_SKIP) {
        status = stk_shard_recover(&one->target, error);
    }
    if (status == 0) {
        uint64_t bytes = stk_shard_stream_object_bytes(one->target.stream);

        count_skipped(scan, stk_index_shard_skipped(one->target.builder));

        status = stk_index_shard_end(one->target.builder, bytes,
                                     stk_shard_stream_compression(one->target.stream), error);
        one->target.builder = NULL;
        if (status == 0) {
            atomic_fetch_add_explicit(&scan->shards_done, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&scan->bytes_done, bytes, memory_order_relaxed);
            stk_foreign_index_verify_starts(
                shards->dataset->foreign_index, one->target.path, &one->starts, one->scan.refuted,
                stk_index_shard_samples(one->target.index, one->target.number));
        }
    }
    if (status < 0) {
        stk_error_set_location(error, one->target.path, STOKER_NO_OFFSET, NULL);
    }
    stk_index_shard_cancel(one->target.builder);
    stk_shard_stream_close(one->target.stream);
    status = shards->calls->end(shards->calls->context, one->target.shard, one->target.index,
                                status, error);
    if (status < 0) {
        fail_shard(shards, one->target.shard, status, error);
    }
    stk_free(one);
}

static bool needs_headers_only(const struct one_shard *one)
{
    const struct stk_dataset_scan_state *scan = &one->target.dataset->scan;

    return stk_shard_stream_compression(one->target.stream) == STK_COMPRESSION_NONE &&
           !scan->checksums && !scan->labels;
}

/* Returns 1 if the shard is for index/scan; else 0, and it was read and freed. */
static int start_one(struct one_shard *one, struct stoker_error *error)
{
    struct stk_foreign_index *foreign = one->target.dataset->foreign_index;
    int status = open_one(one, error);

    if (status == 0 && stk_shard_stream_compression(one->target.stream) == STK_COMPRESSION_NONE) {
        status = choose_format(one, stk_shard_stream_head(one->target.stream), error);
    }
    if (status == 0 && needs_headers_only(one)) {
        one->scan.file = stk_shard_stream_file(one->target.stream);
        one->scan.bytes = stk_shard_stream_object_bytes(one->target.stream);
        status = foreign ? stk_foreign_index_find_starts(foreign, one->target.path, one->scan.bytes,
                                                         &one->starts, error)
                         : 0;
        one->scan.starts = one->starts.starts;
        one->scan.start_count = one->starts.count;
        if (status == 0) {
            return 1;
        }
    } else if (status == 0) {
        status = read_entire_shard(one, error);
    }
    close_one(one, status, error);
    return 0;
}

/* Prefetches the first bytes of this shard and of those that will be opened soon. */
static void prefetch_headers(struct shards *shards, uint64_t shard)
{
    struct stoker_dataset *dataset = shards->dataset;
    uint64_t end = stk_min(shard + HEADERS_AHEAD, dataset->objects.count);
    uint64_t next = atomic_load(&shards->heads);

    while (dataset->scan.keep_cached && next < end) {
        if (atomic_compare_exchange_strong(&shards->heads, &next, next + 1)) {
            stk_vfs_prefetch_head(dataset->engine->io, stk_dataset_file_path(dataset, next),
                                  dataset);
        }
    }
}

static int next_shard(void *context, struct stk_container_scan_shard **shard_out,
                      struct stoker_error *error)
{
    struct shards *shards = context;
    struct stoker_dataset *dataset = shards->dataset;

    for (;;) {
        uint64_t shard = atomic_fetch_add(&shards->next, 1);
        struct stoker_error why = {0};
        struct one_shard *one;
        int status = 0;

        if (shard >= dataset->objects.count || shard > atomic_load(&shards->failed)) {
            return 0;
        }
        one = stk_alloc(1, sizeof *one);
        if (!one) {
            return stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "a shard");
        }
        prefetch_headers(shards, shard);
        one->shards = shards;
        one->target.dataset = dataset;
        one->target.shard = (uint32_t)shard;
        one->target.path = stk_dataset_file_path(dataset, shard);
        one->scan.refuted = STK_CONTAINER_SCAN_NO_START;
        status = atomic_load_explicit(&dataset->scan.stop, memory_order_relaxed)
                     ? stk_shard_scan_stopped(&why)
                     : shards->calls->begin(shards->calls->context, one->target.shard,
                                            &one->target.index, &one->target.number, &why);
        if (status == 0 && start_one(one, &why) == 1) {
            *shard_out = &one->scan;
            return 1;
        }
        if (status != 0) {
            stk_free(one);
        }
        if (status < 0) {
            fail_shard(shards, shard, status, &why);
        }
    }
}

static struct one_shard *one_of(struct stk_container_scan_shard *scan)
{
    return (struct one_shard *)(void *)scan;
}

static int add_member(struct stk_container_scan_shard *scan,
                      const struct stk_container_step *member, struct stoker_error *error)
{
    return index_member(one_of(scan), member, error);
}

static int continue_members(struct stk_container_scan_shard *scan, struct stoker_error *error)
{
    const struct one_shard *one = one_of(scan);
    bool stop = atomic_load_explicit(&one->target.dataset->scan.stop, memory_order_relaxed);

    return stop || one->target.shard > atomic_load(&one->shards->failed)
               ? stk_shard_scan_stopped(error)
               : 0;
}

static void end_one(struct stk_container_scan_shard *scan, int status,
                    const struct stoker_error *error)
{
    struct stoker_error why = *error;

    close_one(one_of(scan), status, &why);
}

static int scan_round(void *context, uint64_t round, struct stoker_error *error)
{
    static const struct stk_container_scan_callbacks calls = {next_shard, add_member,
                                                              continue_members, end_one};
    struct shards *shards = context;
    struct stk_container_scan_options options = {
        .io = shards->dataset->engine->io,
        .calls = &calls,
        .context = shards,
        .search_share = SEARCH_SHARE,
        .name_bytes_max = shards->dataset->options.key_bytes_max,
        .header_bytes_max = shards->dataset->options.header_bytes_max,
        .prefetch_owner = shards->dataset->scan.keep_cached ? shards->dataset : NULL,
        .bytes_read = &shards->dataset->scan.bytes_read};

    const _Atomic bool *before = stk_io_set_cancel_flag(&shards->dataset->scan.stop);
    int status;

    (void)round;
    status = stk_container_scan(&options, error);
    stk_io_set_cancel_flag(before);
    return status;
}

int stk_shard_scan_stopped(struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CLOSED, "the index is not finished",
                    "run 'stoker index' again: it resumes", "it was stopped");
}

int stk_shard_scan(struct stoker_dataset *dataset, const struct stk_shard_scan_callbacks *calls,
                   struct stoker_error *error)
{
    struct shards shards = {.dataset = dataset, .calls = calls, .failed = UINT64_MAX};
    uint64_t scans = stk_min(dataset->objects.count, dataset->engine->worker_count);
    int status;

    pthread_mutex_init(&shards.lock, NULL);
    status = stk_engine_parallel(dataset->engine, scans, scan_round, &shards, error);
    pthread_mutex_destroy(&shards.lock);
    if (status == 0 && shards.status < 0 && error) {
        *error = shards.error;
    }
    return status < 0 ? status : shards.status;
}

/* ---- recovery: complete samples of a damaged tar; only tars have a header before each member ----
 */

static int read_stream(void *context, uint64_t offset, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error)
{
    return stk_shard_stream_read(context, offset, buffer, bytes, got_out, error);
}

/* Adds the members of complete samples to a new builder. */
static int add_recovered(struct stk_shard_scan_target *target,
                         const struct stk_tar_recover *recovered, struct stoker_error *error)
{
    int status =
        stk_index_shard_begin(target->index, target->number, target->path, &target->builder, error);

    for (uint64_t i = 0; status == 0 && i < recovered->member_count; i++) {
        const struct stk_tar_recover_member *member = &recovered->members[i];

        if (stk_tar_recover_is_intact(recovered, i)) {
            status = stk_index_shard_add(target->builder, stk_tar_recover_name(recovered, i),
                                         member->offset, member->bytes, error);
        }
    }
    return status;
}

int stk_shard_recover(struct stk_shard_scan_target *target, struct stoker_error *error)
{
    struct stoker_dataset *dataset = target->dataset;
    struct stk_shard_stream_options options = stk_dataset_stream_options(dataset);
    struct stk_tar_recover_source source = {.path = target->path, .read = read_stream};
    struct stk_tar_recover recovered = {0};
    int status;

    stk_index_shard_cancel(target->builder);
    target->builder = NULL;
    stk_shard_stream_close(target->stream);
    target->stream = NULL;
    status = stk_shard_stream_open(&target->stream, &options, target->path, error);
    if (status < 0) {
        return status;
    }
    source.context = target->stream;
    source.bytes = stk_shard_stream_compression(target->stream) == STK_COMPRESSION_NONE
                       ? stk_shard_stream_object_bytes(target->stream)
                       : UINT64_MAX;
    source.limits.name_bytes_max = dataset->options.key_bytes_max;
    source.limits.header_bytes_max = dataset->options.header_bytes_max;
    status = stk_tar_recover_run(&recovered, &source, error);
    status = status < 0 ? status : add_recovered(target, &recovered, error);
    if (status == 0) {
        pthread_mutex_lock(&dataset->lock);
        status = stk_tar_losses_add(&dataset->bad_samples, target->shard, &recovered.bad_samples);
        pthread_mutex_unlock(&dataset->lock);
        if (status < 0) {
            stk_fail(error, status, "cannot list the damage", "free memory", "'%.400s'",
                     target->path);
        }
    }
    stk_tar_recover_deinit(&recovered);
    return status;
}

uint64_t stoker_dataset_quarantine_count(const struct stoker_dataset *dataset)
{
    return dataset->bad_samples.count;
}

int stoker_dataset_quarantine(const struct stoker_dataset *dataset, uint64_t index,
                              struct stoker_quarantine_entry *entry_out)
{
    const struct stk_bad_sample *entry = stk_tar_losses_get(&dataset->bad_samples, index);

    return entry ? stk_bad_sample_entry(entry, entry_out) : STOKER_ERROR_ARGUMENT;
}
