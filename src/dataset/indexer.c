/* The indexer: lists, keeps the entries of an existing index that are up to date, scans the rest,
 * and writes the index. */
#include "base/mem.h"
#include "base/options.h"
#include "dataset/dataset_scan.h"
#include "dataset/index_locate.h"
#include "dataset/shard_scan.h"
#include "engine/background_job.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "index/index_journal.h"
#include "storage/url/url_redact.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct stoker_indexer {
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
    struct stk_index_location *location;
    struct stk_index_journal *journal;
    struct stoker_indexer_options options;
    struct stk_background_job job;
    struct {                           /* under job.lock */
        char path[STK_PATH_BYTES_MAX]; /* of the index; written once */
        bool has_path;
        uint64_t shards, reused, bytes, index_bytes;
    } locked;
    struct { /* of the thread; const once it is done */
        uint64_t packed, sequential;
        char shard[STK_PATH_BYTES_MAX];
        const char *reason; /* NULL: none is sequential */
    } reach;
};

static int run(void *context, uint32_t thread, struct stoker_error *error);
static int build(struct stoker_indexer *indexer, struct stoker_error *error);
static int build_folder(struct stoker_indexer *indexer, struct stoker_error *error);
static int build_tars(struct stoker_indexer *indexer, struct stoker_error *error);

static void indexer_free(struct stoker_indexer *indexer)
{
    stk_index_journal_close(indexer->journal);
    stk_index_location_close(indexer->location);
    if (indexer->dataset) {
        stk_dataset_release(indexer->dataset);
    }
    stk_background_job_deinit(&indexer->job);
    stk_free(indexer);
}

/* Checks that the index is created at the path where data sets look for it. */
static int check_index_path(struct stoker_indexer *indexer, struct stoker_error *error)
{
    struct stoker_dataset_options *options = &indexer->dataset->options;

    options->index = STOKER_INDEX_AUTO;
    if (!indexer->options.out) {
        return 0;
    }
    stk_free((void *)(uintptr_t)options->index_path);
    options->index_path = stk_strdup(indexer->options.out);
    return options->index_path ? 0 : stk_fail_memory(error, "index");
}

int stoker_indexer_open(struct stoker_indexer **indexer_out, struct stoker_engine *engine,
                        const struct stoker_dataset_options *dataset,
                        const struct stoker_indexer_options *options, struct stoker_error *error)
{
    struct stk_background_job_options job = {.name = "indexer", .run = run};
    struct stoker_indexer *indexer;
    int status;

    *indexer_out = NULL;
    indexer = stk_alloc(1, sizeof *indexer);
    if (!indexer) {
        return stk_fail_memory(error, "index");
    }
    status = options
                 ? stk_options_read(&indexer->options, sizeof indexer->options,
                                    sizeof options->struct_size, options, "index options", error)
                 : 0;
    if (status < 0) {
        stk_free(indexer);
        return status;
    }
    stk_background_job_init(&indexer->job, engine);
    indexer->engine = engine;
    job.context = indexer;
    status = stk_dataset_new(&indexer->dataset, engine, dataset, error);
    status = status < 0 ? status : check_index_path(indexer, error);
    if (status == 0) {
        indexer->dataset->options.on_error = STOKER_ON_ERROR_RAISE; /* an index has all samples */
        indexer->dataset->scan.checksums = indexer->options.checksums;
        indexer->dataset->scan.labels = indexer->options.labels;
        indexer->dataset->scan.seek_point_bytes = indexer->options.seek_interval_bytes == 1
                                                      ? STK_SEEK_POINTS_SPACING_DEFAULT
                                                      : indexer->options.seek_interval_bytes;
        status = stk_background_job_start(&indexer->job, &job, error);
    }
    if (status < 0) {
        indexer_free(indexer);
        return status;
    }
    *indexer_out = indexer;
    return 0;
}

void stoker_indexer_close(struct stoker_indexer *indexer)
{
    if (!indexer || stk_engine_check(indexer->engine, NULL) < 0) {
        return;
    }
    atomic_store(&indexer->dataset->scan.stop, true);
    (void)stk_background_job_end(&indexer->job);
    indexer_free(indexer);
}

int stoker_indexer_next(struct stoker_indexer *indexer, uint32_t timeout_ms,
                        struct stoker_indexer_progress *progress_out, struct stoker_error *error)
{
    struct stoker_indexer_progress full = {0};
    struct stk_dataset_scan_state *scan = &indexer->dataset->scan;
    int status;

    status = stk_options_check_output(progress_out, sizeof full, sizeof full.struct_size,
                                      "index progress", error);
    if (status < 0) {
        return status;
    }
    status = stk_background_job_next(&indexer->job, timeout_ms, NULL, NULL, error);
    if (status == STOKER_ERROR_FORKED) {
        return status;
    }
    pthread_mutex_lock(&indexer->job.lock);
    full.shards = indexer->locked.shards;
    full.shards_reused = indexer->locked.reused;
    full.bytes = indexer->locked.bytes;
    full.index_bytes = indexer->locked.index_bytes;
    full.path = indexer->locked.has_path ? indexer->locked.path : NULL;
    pthread_mutex_unlock(&indexer->job.lock);
    full.shards_done = atomic_load(&scan->shards_done);
    full.bytes_done = atomic_load(&scan->bytes_done);
    full.bytes_read = atomic_load(&scan->bytes_read);
    full.elapsed_ns = stk_background_job_elapsed_ns(&indexer->job);
    if (status == 0) {
        full.samples = stk_index_samples(indexer->dataset->index);
        full.members = stk_index_members(indexer->dataset->index);
        full.shards_compressed = indexer->reach.packed;
        full.shards_sequential = indexer->reach.sequential;
        full.sequential_reason = indexer->reach.reason;
        full.sequential_shard = indexer->reach.reason ? indexer->reach.shard : NULL;
    }
    stk_options_write_output(progress_out, &full, sizeof full, "index progress", NULL);
    return status == STK_BACKGROUND_JOB_RUNNING ? 1 : status;
}

/* Returns why a compressed shard is read from front to back. */
static const char *reason_of(const struct stk_index *index, uint32_t shard)
{
    uint32_t packing = stk_index_shard_compression(index, shard);

    if (packing == STK_COMPRESSION_ZSTD) {
        return "zstd without a new frame for more than 32 MiB, and decompression begins at frames "
               "only: compress it in frames (pzstd, t2sz), or write plain tars (stoker pack)";
    }
    if (packing != STK_COMPRESSION_GZIP) {
        return "bzip2 and xz have no seek points: use gz, zstd in frames, or plain tars (stoker "
               "pack)";
    }
    return stk_index_seek_points_bytes(index, shard) == 0
               ? "gzip has seek points only if they are requested: --seek-points"
               : "gzip without a new block for more than 32 MiB: compress it again, or write plain "
                 "tars "
                 "(stoker pack)";
}

static int report_seek_points(struct stoker_indexer *indexer, struct stoker_error *error)
{
    const struct stk_index *index = indexer->dataset->index;
    uint64_t count = stk_index_is_folder(index) ? 0 : stk_index_shards(index);
    int status = 0;

    for (uint64_t i = 0; i < count && status == 0; i++) {
        if (stk_index_shard_compression(index, (uint32_t)i) == STK_COMPRESSION_NONE) {
            continue;
        }
        indexer->reach.packed++;
        if (stk_index_is_random_access(index, (uint32_t)i)) {
            continue;
        }
        indexer->reach.sequential++;
        if (!indexer->reach.reason) {
            status = stk_index_path(index, (uint32_t)i, indexer->reach.shard, error);
            indexer->reach.reason = reason_of(index, (uint32_t)i);
        }
    }
    return status;
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_indexer *indexer = context;
    struct stk_stat about;
    int status;

    (void)thread;
    stk_io_set_cancel_flag(&indexer->dataset->scan.stop);
    status = build(indexer, error);
    status = status < 0 ? status : report_seek_points(indexer, error);
    if (status == 0 &&
        stk_io_stat_path(indexer->engine->io, indexer->locked.path, &about, NULL) < 0) {
        about.bytes = 0;
    }
    pthread_mutex_lock(&indexer->job.lock);
    indexer->locked.index_bytes = status == 0 ? about.bytes : 0;
    pthread_mutex_unlock(&indexer->job.lock);
    return status;
}

static void report_path(struct stoker_indexer *indexer, const char *path)
{
    pthread_mutex_lock(&indexer->job.lock);
    /* For progress only: it may be cut. */
    snprintf(indexer->locked.path, sizeof indexer->locked.path, "%s", path);
    indexer->locked.has_path = true;
    pthread_mutex_unlock(&indexer->job.lock);
}

static int build(struct stoker_indexer *indexer, struct stoker_error *error)
{
    struct stoker_dataset *dataset = indexer->dataset;
    int status = stk_dataset_list(dataset, error);

    status = status < 0 ? status : stk_index_location_open(&indexer->location, dataset, error);
    status = status < 0 ? status : stk_index_location_find(indexer->location, dataset, error);
    if (status < 0) {
        return status;
    }
    return dataset->objects.kind == STK_SOURCE_FOLDER ? build_folder(indexer, error)
                                                      : build_tars(indexer, error);
}

/* Makes the folders above a path in the cache. */
static int make_folders(struct stk_io *io, const char *path, struct stoker_error *error)
{
    char folder[STK_PATH_BYTES_MAX];
    int status = 0;

    for (size_t i = 1; status == 0 && path[i]; i++) {
        if (path[i] == '/') {
            struct stk_stat about;

            memcpy(folder, path, i);
            folder[i] = '\0';
            if (stk_io_stat_path(io, folder, &about, NULL) < 0) {
                status = stk_io_make_directory(io, folder, false, error);
            }
        }
    }
    return status;
}

static bool is_write_denied(int status)
{
    return status == -EACCES || status == -EPERM || status == -EROFS;
}

/* Opens the journal at the path of the index, which also checks that it can be written. */
static int choose_path(struct stoker_indexer *indexer, struct stoker_error *error)
{
    struct stk_index_location *location = indexer->location;
    struct stk_io *io = indexer->engine->io;
    const char *out = indexer->dataset->options.index_path;
    bool fresh = indexer->options.force;
    int status = -EACCES;

    if (out && stk_io_is_url(out)) {
        char *named = NULL;

        (void)stk_url_redact(out, &named); /* without a password */
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "an index is written to this machine",
                          "write it here, and send it: stoker cp INDEX URL", "'%.400s'",
                          named ? named : "");
        stk_free(named);
        return status;
    }
    if (out) {
        report_path(indexer, out);
        return stk_index_journal_open(&indexer->journal, io, out, fresh, error);
    }
    if (location->next_to_data[0] && !location->has_extra &&
        !stk_io_is_url(location->next_to_data)) {
        report_path(indexer, location->next_to_data);
        status =
            stk_index_journal_open(&indexer->journal, io, location->next_to_data, fresh, error);
    }
    if (!is_write_denied(status)) {
        return status;
    }
    if (!location->cache[0]) {
        return stk_fail_errno(error, -status, "there is no place for the index",
                              "name one with --out, or set STOKER_CACHE", "'%.600s'",
                              location->next_to_data);
    }
    report_path(indexer, location->cache);
    status = make_folders(io, location->cache, error);
    status = status < 0
                 ? status
                 : stk_index_journal_open(&indexer->journal, io, location->cache, fresh, error);
    if (is_write_denied(status) || status == -ENOENT || status == -ENOTDIR) {
        stk_fail(error, status,
                 "the index can be written neither next to the data nor in the cache",
                 "name a place with --out, or a folder with STOKER_CACHE", "'%.300s', '%.300s': %s",
                 location->next_to_data, location->cache, stoker_status_text(status));
    }
    return status;
}

static void report_shards(struct stoker_indexer *indexer)
{
    const struct stk_index_location *location = indexer->location;
    uint64_t bytes = 0, reused = 0;

    for (uint64_t i = 0; i < indexer->dataset->objects.count && location->from; i++) {
        bytes += location->from[i] ? 0 : location->sizes[i];
        reused += location->from[i] != 0;
    }
    pthread_mutex_lock(&indexer->job.lock);
    indexer->locked.shards = indexer->dataset->objects.count;
    indexer->locked.reused = reused;
    indexer->locked.bytes = bytes;
    pthread_mutex_unlock(&indexer->job.lock);
}

/* The index, its stamp, and then no journal any more. */
static int commit(struct stoker_indexer *indexer, const struct stk_index_stamp *stamp,
                  struct stoker_error *error)
{
    struct stoker_dataset *dataset = indexer->dataset;
    struct stk_io *io = indexer->engine->io;
    const char *path = indexer->locked.path; /* const by now */
    int status = stk_index_set_root(dataset->index, indexer->location->root, error);

    status = status < 0 ? status : stk_index_write(dataset->index, io, path, error);
    status = status < 0 ? status : stk_index_stamp_write(stamp, io, path, dataset->index, error);
    return status < 0 || !indexer->journal ? status
                                           : stk_index_journal_remove(indexer->journal, error);
}

/* Adopts an existing index if a new one would be equal. */
static int reuse_index(struct stoker_indexer *indexer)
{
    struct stk_index_location *location = indexer->location;

    report_path(indexer, location->path);
    stk_index_journal_remove_stale(indexer->engine->io, location->path);
    indexer->dataset->index = location->old;
    location->old = NULL;
    pthread_mutex_lock(&indexer->job.lock);
    indexer->locked.shards = stk_index_shards(indexer->dataset->index);
    indexer->locked.reused = indexer->locked.shards;
    pthread_mutex_unlock(&indexer->job.lock);
    return 0;
}

static int build_folder(struct stoker_indexer *indexer, struct stoker_error *error)
{
    struct stoker_dataset *dataset = indexer->dataset;
    struct stk_index_location *location = indexer->location;
    struct stk_index_stamp stamp = {0};
    int status = 0;

    if (location->old && stk_index_is_folder(location->old) && location->stamp.valid) {
        status = stk_index_location_match_folder(location, dataset, error);
        if (status == 0 && location->complete && !indexer->options.force &&
            (!indexer->options.checksums || stk_index_shards(location->old) == 0 ||
             stk_index_shard_has_checksums(location->old, 0))) {
            return reuse_index(indexer);
        }
    }
    status = status < 0 ? status : choose_path(indexer, error);
    if (status == 0) {
        report_shards(indexer);
        status = stk_dataset_scan(dataset, NULL, error);
    }
    if (status == 0) {
        status = stk_index_stamp_folders(&stamp, indexer->engine->io, location->root,
                                         dataset->index, error);
    }
    status = status < 0 ? status : commit(indexer, &stamp, error);
    stk_index_stamp_deinit(&stamp);
    return status;
}

/* True if seek points are requested, the shard could have some, and has none. */
static bool lacks_seek_points(const struct stoker_indexer *indexer, const struct stk_index *index,
                              uint32_t shard)
{
    uint32_t packing = stk_index_shard_compression(index, shard);

    return indexer->options.seek_interval_bytes > 0 &&
           (packing == STK_COMPRESSION_GZIP || packing == STK_COMPRESSION_ZSTD) &&
           stk_index_seek_points_bytes(index, shard) == 0;
}

/* True if checksums of members and of the shard are requested, and some are missing. */
static bool lacks_checksums(const struct stoker_indexer *indexer, const struct stk_index *index,
                            uint32_t shard)
{
    return indexer->options.checksums &&
           (!stk_index_shard_has_checksums(index, shard) || !stk_index_shard_digest(index, shard));
}

/* Drops entries of shards that lack something that is requested now. */
static void drop_incomplete_entries(struct stoker_indexer *indexer)
{
    struct stk_index_location *location = indexer->location;

    for (uint64_t i = 0; i < indexer->dataset->objects.count; i++) {
        uint32_t old = location->from[i] - 1;

        if (location->from[i] == 0) {
            continue;
        }
        if (indexer->options.force || lacks_checksums(indexer, location->old, old) ||
            lacks_seek_points(indexer, location->old, old) ||
            (indexer->options.labels && !stk_index_shard_has_labels(location->old, old))) {
            location->from[i] = 0;
            location->reused--;
            location->complete = false;
        }
    }
}

static bool has_all_requested(const struct stoker_indexer *indexer, const struct stk_index *one)
{
    return !lacks_checksums(indexer, one, 0) && !lacks_seek_points(indexer, one, 0) &&
           (!indexer->options.labels || stk_index_shard_has_labels(one, 0));
}

static const char *path_of(const struct stoker_indexer *indexer, uint32_t shard)
{
    const struct stk_source_files *objects = &indexer->dataset->objects;

    return objects->text + objects->paths[shard];
}

/* Copies the shard from the index or the journal; else it is scanned into an index of its own. */
static int begin_shard(void *context, uint32_t shard, struct stk_index **index_out,
                       uint32_t *number_out, struct stoker_error *error)
{
    struct stoker_indexer *indexer = context;
    struct stoker_dataset *dataset = indexer->dataset;
    const struct stk_index_location *location = indexer->location;
    struct stk_index_options options = {.shard_count = 1,
                                        .key_bytes_max = dataset->options.key_bytes_max,
                                        .member_gap_max = dataset->options.member_gap_max};
    const char *path = path_of(indexer, shard);
    uint32_t old = location->from[shard];
    const struct stk_index *one;
    int status = STOKER_ERROR_CORRUPT;

    /* Damage in an index or a journal does not mean that the shard is damaged: read the shard
     * again. */
    if (old > 0) {
        status = stk_index_shard_copy(dataset->index, shard, path, location->old, old - 1, error);
    }
    one = status == STOKER_ERROR_CORRUPT
              ? stk_index_journal_find(indexer->journal, path + strlen(location->root),
                                       location->sizes[shard], location->mtimes[shard])
              : NULL;
    if (one && has_all_requested(indexer, one)) {
        status = stk_index_shard_copy(dataset->index, shard, path, one, 0, error);
        if (status == 0) {
            atomic_fetch_add(&dataset->scan.shards_done, 1);
            atomic_fetch_add(&dataset->scan.bytes_done, location->sizes[shard]);
        }
    }
    *number_out = 0;
    return status == STOKER_ERROR_CORRUPT ? stk_index_open(index_out, &options, error)
           : status < 0                   ? status
                                          : 1;
}

/* Journals the index of one shard, and takes it over. */
static int end_shard(void *context, uint32_t shard, struct stk_index *one, int status,
                     struct stoker_error *error)
{
    struct stoker_indexer *indexer = context;
    const struct stk_index_location *location = indexer->location;
    struct stk_view image = {NULL, 0};

    status = status < 0 ? status : stk_index_finish(one, 0, error);
    status = status < 0 ? status : stk_index_image(one, location->root, &image, error);
    if (status == 0) {
        status = stk_index_journal_add(indexer->journal, image, location->mtimes[shard], error);
    }
    if (status == 0) {
        status = stk_index_shard_copy(indexer->dataset->index, shard, path_of(indexer, shard), one,
                                      0, error);
    }
    stk_index_close(one);
    stk_free((void *)(uintptr_t)image.data);
    return status;
}

static int build_tars(struct stoker_indexer *indexer, struct stoker_error *error)
{
    struct stoker_dataset *dataset = indexer->dataset;
    struct stk_index_location *location = indexer->location;
    struct stk_index_options options = {.shard_count = dataset->objects.count,
                                        .key_bytes_max = dataset->options.key_bytes_max,
                                        .member_gap_max = dataset->options.member_gap_max};
    struct stk_index_stamp stamp = {.valid = true, .count = dataset->objects.count};
    struct stk_shard_scan_callbacks calls = {indexer, begin_shard, end_shard};
    int status = stk_index_location_match(location, dataset, error);

    if (status < 0) {
        return status;
    }
    drop_incomplete_entries(indexer);
    if (location->complete) {
        stamp.mtimes = location->mtimes;
        report_path(indexer, location->path);
        if (!location->stamp.valid) {
            /* A read-only copy of a data set and its index is valid without changes. */
            (void)stk_index_stamp_write(&stamp, indexer->engine->io, location->path, location->old,
                                        NULL);
        }
        return reuse_index(indexer);
    }
    status = choose_path(indexer, error);
    report_shards(indexer);
    status = status < 0 ? status : stk_index_open(&dataset->index, &options, error);
    status = status < 0 ? status : stk_shard_scan(dataset, &calls, error);
    if (status == 0) {
        uint64_t block = indexer->options.force ? 0 : stk_index_location_block_samples(location);

        stk_dataset_count_skipped(dataset, location->reused > 0 ? location->old : NULL);
        status = stk_dataset_scan_finish(dataset, location->old, block, error);
    }
    stamp.mtimes = location->mtimes;
    return status < 0 ? status : commit(indexer, &stamp, error);
}
