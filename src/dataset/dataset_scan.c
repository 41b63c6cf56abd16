/* Lists the files of a data set, and makes its index: of class folders here, of containers by
 * shard_scan.c. */
#include "dataset/dataset_scan.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "dataset/shard_scan.h"
#include "format/detect/container_detect.h"

#include <errno.h>
#include <string.h>

#define FOLDER_ROUND 4096u /* files in one round of the parallel loop */
#define READ_BYTES (256u << 10)

struct scan {
    struct stoker_dataset *dataset;
    const struct stk_dataset_reuse *reuse;
};

static int begin_shard(void *context, uint32_t shard, struct stk_index **index_out,
                       uint32_t *number_out, struct stoker_error *error);
static int end_shard(void *context, uint32_t shard, struct stk_index *index, int status,
                     struct stoker_error *error);
static int scan_files(void *context, uint64_t round, struct stoker_error *error);

/* Stores where the files of each url end. One url may be a JSON file that lists several paths. */
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

int stk_dataset_list(struct stoker_dataset *dataset, struct stoker_error *error)
{
    const char *endings[STK_CONTAINER_ENDINGS_MAX];
    struct stk_source_options options = {.endings = endings,
                                         .skip_files = dataset->options.skip_files,
                                         .allow_empty = dataset->options.allow_empty,
                                         .classes = dataset->options.classes,
                                         .class_count = dataset->options.class_count};
    struct stk_wids_shards *shards = &dataset->shards;
    int status = stk_wids_shards_expand(shards, dataset->engine->io, dataset->options.urls,
                                        dataset->options.url_count, error);

    if (status == 0) {
        stk_container_endings(dataset->formats, endings);
        status =
            stk_source_list(dataset->engine->io, (const char *const *)(const void *)shards->paths,
                            shards->count, &options, &dataset->objects, error);
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
    return stk_open_files_reserve(&dataset->files, dataset->objects.count, error);
}

int stk_dataset_scan(struct stoker_dataset *dataset, const struct stk_dataset_reuse *reuse,
                     struct stoker_error *error)
{
    struct stk_index_options options = {.shard_count = dataset->objects.count,
                                        .key_bytes_max = dataset->options.key_bytes_max,
                                        .member_gap_max = dataset->options.member_gap_max};
    bool folder = dataset->objects.kind == STK_SOURCE_FOLDER;
    uint64_t rounds = (dataset->objects.count + FOLDER_ROUND - 1) / FOLDER_ROUND;
    struct scan scan = {dataset, reuse};
    struct stk_shard_scan_callbacks calls = {&scan, begin_shard, end_shard};
    const struct stk_index *like = NULL;
    int status = stk_index_open(&dataset->index, &options, error);

    if (status < 0) {
        return status;
    }
    dataset->scan.keep_cached = true;
    status = folder ? stk_engine_parallel(dataset->engine, rounds, scan_files, &scan, error)
                    : stk_shard_scan(dataset, &calls, error);
    if (status == 0) {
        stk_dataset_count_skipped(dataset, reuse && !reuse->first ? reuse->old : NULL);
    }
    if (reuse) {
        like = reuse->first ? reuse->first : reuse->old;
    }
    return status < 0 ? status : stk_dataset_scan_finish(dataset, like, 0, error);
}

/* Reserves memory of the budget for a part of the index. An index can have gigabytes, so each shard
 * is reserved when it is done: at most the shards that threads are scanning are not counted. */
static int charge(struct stoker_dataset *dataset, uint64_t bytes, struct stoker_error *error)
{
    struct stk_budget *budget = &dataset->engine->budget;

    if (stk_engine_reserve(dataset->engine, bytes, 0, "the index", NULL) < 0) {
        return stk_fail(error, STOKER_ERROR_BUDGET, "the index is larger than the memory granted",
                        "make an index file, which needs no memory (stoker index), or grant "
                        "more memory",
                        "%llu bytes for more of it, %llu of %llu in use", (unsigned long long)bytes,
                        (unsigned long long)atomic_load(&budget->bytes),
                        (unsigned long long)budget->bytes_max);
    }
    atomic_fetch_add_explicit(&dataset->index_bytes, bytes, memory_order_relaxed);
    return 0;
}

/* Copies the class names of another index: the files of containers do not have them. */
static int add_classes(struct stoker_dataset *dataset, const struct stk_index *like,
                       struct stoker_error *error)
{
    int status = 0;

    for (uint64_t i = 0; status == 0 && like && i < stk_index_classes(like); i++) {
        status = stk_index_add_class(dataset->index, stk_index_class(like, i), error);
    }
    return status;
}

void stk_dataset_count_skipped(struct stoker_dataset *dataset, const struct stk_index *old)
{
    struct stk_dataset_scan_state *scan = &dataset->scan;
    uint64_t found[STK_INDEX_SKIPPED_KINDS] = {
        atomic_load(&scan->system_files) +
            (dataset->objects.kind == STK_SOURCE_FOLDER ? dataset->objects.system_count : 0),
        atomic_load(&scan->links), atomic_load(&scan->special), atomic_load(&scan->unnamed)};

    for (uint32_t kind = 0; kind < STK_INDEX_SKIPPED_KINDS; kind++) {
        uint64_t before = old ? stk_index_skipped(old, (enum stk_index_skipped_kind)kind) : 0;

        stk_index_add_skipped(dataset->index, (enum stk_index_skipped_kind)kind,
                              found[kind] + before);
    }
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

/* ---- class folders ---- */

static int checksum_file(struct stoker_dataset *dataset, const char *path,
                         struct stk_index_shard_builder *builder, struct stoker_error *error)
{
    struct stk_io *io = dataset->engine->io;
    struct stk_xxh3 *sum = stk_xxh3_open();
    uint8_t *buffer = stk_alloc(READ_BYTES, 1);
    struct stk_file *file = NULL;
    uint64_t offset = 0;
    int64_t got = 1;
    int status = 0;

    if (!sum || !buffer) {
        status = stk_fail(error, -ENOMEM, "cannot compute the checksum of a file", "free memory",
                          "'%s'", path);
    }
    status = status < 0 ? status : stk_io_open_file(io, path, &file, error);
    while (status == 0 && got > 0) {
        got = stk_io_read_wait(file, offset, buffer, READ_BYTES);
        if (got < 0) {
            status = stk_io_fail_read(file, got, "cannot read a file", error);
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
        stk_io_close_file(file);
    }
    stk_free(buffer);
    stk_xxh3_close(sum);
    return status;
}

static int scan_file(struct stoker_dataset *dataset, uint32_t object, struct stoker_error *error)
{
    const char *path = stk_dataset_file_path(dataset, object);
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
        stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
        return status;
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
                     ? stk_shard_scan_stopped(error)
                     : scan_file(dataset, (uint32_t)i, error);
        atomic_fetch_add_explicit(&dataset->scan.shards_done, 1, memory_order_relaxed);
    }
    return status;
}

/* ---- containers ---- */

/* Copies the shard from an index that has it, or from a foreign index; else it is scanned. */
static int begin_shard(void *context, uint32_t shard, struct stk_index **index_out,
                       uint32_t *number_out, struct stoker_error *error)
{
    struct scan *scan = context;
    struct stoker_dataset *dataset = scan->dataset;
    const struct stk_dataset_reuse *reuse = scan->reuse;
    const char *path = stk_dataset_file_path(dataset, shard);
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
    /* CORRUPT: the other index is damaged, not the shard. */
    if (status == STOKER_ERROR_CORRUPT) {
        *index_out = dataset->index;
        *number_out = shard;
        return 0;
    }
    status = status < 0 ? status : end_shard(context, shard, dataset->index, 0, error);
    return status < 0 ? status : 1;
}

static int end_shard(void *context, uint32_t shard, struct stk_index *index, int status,
                     struct stoker_error *error)
{
    struct scan *scan = context;

    return status < 0 ? status
                      : charge(scan->dataset, stk_index_shard_memory_bytes(index, shard), error);
}
