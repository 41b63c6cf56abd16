/* A data set: its options, its opening, and its end. */
#include "dataset/dataset.h"

#include "base/mem.h"
#include "base/options.h"
#include "dataset/dataset_scan.h"
#include "dataset/index_locate.h"
#include "dataset/index_sharing.h"
#include "format/detect/container_detect.h"
#include "storage/url/url_alias.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <string.h>

#define CACHE_BYTES_DEFAULT (512ull << 20)

static int resolve(struct stoker_dataset_options *options,
                   const struct stoker_dataset_options *given, struct stoker_error *error);
static int open_index(struct stoker_dataset *dataset, struct stoker_error *error);

int stk_dataset_open_new(struct stoker_dataset *dataset, struct stoker_error *error)
{
    int status = open_index(dataset, error);

    if (status < 0) {
        return status;
    }
    stk_dataset_open_jpeg_index(dataset);
    if (dataset->foreign_index) {
        stk_foreign_index_compare(dataset->foreign_index, &dataset->shards, dataset->index);
    }
    return 0;
}

int stoker_dataset_open(struct stoker_dataset **dataset_out, struct stoker_engine *engine,
                        const struct stoker_dataset_options *options, struct stoker_error *error)
{
    struct stoker_dataset *dataset = NULL;
    int status = stk_dataset_new(&dataset, engine, options, error);

    *dataset_out = NULL;
    status = status < 0 ? status : stk_dataset_open_new(dataset, error);
    if (status < 0) {
        if (dataset) {
            stk_dataset_release(dataset);
        }
        return status;
    }
    *dataset_out = dataset;
    return 0;
}

static int copy_classes(struct stoker_dataset *dataset, const struct stoker_dataset_options *given,
                        struct stoker_error *error)
{
    char **classes = stk_alloc(given->class_count + 1, sizeof *classes);
    bool complete = classes != NULL;

    dataset->options.classes = (const char *const *)classes;
    dataset->options.class_count = classes ? given->class_count : 0;
    for (size_t i = 0; classes && i < given->class_count; i++) {
        classes[i] = stk_strdup(given->classes[i]);
        complete = complete && classes[i];
    }
    return complete ? 0 : stk_fail_memory(error, "class names");
}

/* Copies the options and the strings that they refer to. */
static int copy_options(struct stoker_dataset *dataset, const struct stoker_dataset_options *given,
                        struct stoker_error *error)
{
    char **urls = stk_alloc(given->url_count + 1, sizeof *urls);
    bool complete = urls != NULL;

    dataset->options = *given;
    dataset->options.classes = NULL;
    dataset->options.class_count = 0;
    dataset->options.urls = (const char *const *)urls;
    dataset->options.url_count = urls ? given->url_count : 0;
    dataset->options.index_path = given->index_path ? stk_strdup(given->index_path) : NULL;
    complete = complete && (!given->index_path || dataset->options.index_path);
    for (size_t i = 0; urls && i < given->url_count; i++) {
        complete = stk_url_alias(given->urls[i], &urls[i]) == 0 && complete;
    }
    if (!complete) {
        return stk_fail_memory(error, "data set");
    }
    return given->classes ? copy_classes(dataset, given, error) : 0;
}

static void free_options(struct stoker_dataset_options *options)
{
    for (size_t i = 0; i < options->url_count; i++) {
        stk_free((void *)(uintptr_t)options->urls[i]);
    }
    stk_free((void *)(uintptr_t)options->urls);
    for (size_t i = 0; i < options->class_count; i++) {
        stk_free((void *)(uintptr_t)options->classes[i]);
    }
    stk_free((void *)(uintptr_t)options->classes);
    stk_free((void *)(uintptr_t)options->index_path);
}

static uint64_t trim_segment_cache_locked(struct stk_memory_holder *holder)
{
    struct stoker_dataset *dataset =
        (struct stoker_dataset *)(void *)((char *)holder -
                                          offsetof(struct stoker_dataset, memory_holder));

    return stk_segment_cache_trim(dataset->segment_cache);
}

static int open_segment_cache(struct stoker_dataset *dataset, struct stoker_error *error)
{
    const struct stoker_dataset_options *options = &dataset->options;
    struct stk_budget *budget = &dataset->engine->budget;
    struct stk_segment_cache_options cache = {
        .bytes_max = options->segment_cache_bytes
                         ? options->segment_cache_bytes
                         : stk_min(CACHE_BYTES_DEFAULT, budget->bytes_max / 4),
        .decompressed_bytes_max = options->decompressed_bytes_max,
        .decompression_ratio_max = options->decompression_ratio_max,
        .grant = stk_engine_allocator(dataset->engine),
    };
    int status =
        stk_segment_cache_open(&dataset->segment_cache, dataset->engine->io, budget, &cache, error);

    if (status == 0) {
        dataset->memory_holder.trim_locked = trim_segment_cache_locked;
        stk_engine_add_memory_holder(dataset->engine, &dataset->memory_holder);
    }
    return status;
}

int stk_dataset_new(struct stoker_dataset **dataset_out, struct stoker_engine *engine,
                    const struct stoker_dataset_options *options, struct stoker_error *error)
{
    struct stoker_dataset_options resolved = {0};
    struct stoker_dataset *dataset;
    int status = stk_engine_check(engine, error);

    *dataset_out = NULL;
    if (status < 0) {
        return status;
    }
    dataset = stk_alloc(1, sizeof *dataset);
    if (!dataset) {
        return stk_fail_memory(error, "data set");
    }
    dataset->engine = engine;
    dataset->formats = stk_container_formats;
    dataset->references = 1;
    pthread_mutex_init(&dataset->lock, NULL);
    stk_open_files_init(&dataset->files, engine);
    stk_engine_retain(engine);
    status = resolve(&resolved, options, error);
    status = status < 0 ? status : copy_options(dataset, &resolved, error);
    status = status < 0 ? status : open_segment_cache(dataset, error);
    if (status < 0) {
        stk_dataset_release(dataset);
        return status;
    }
    *dataset_out = dataset;
    return 0;
}

static int resolve(struct stoker_dataset_options *options,
                   const struct stoker_dataset_options *given, struct stoker_error *error)
{
    int status = stk_options_read(options, sizeof *options,
                                  offsetof(struct stoker_dataset_options, key_bytes_max), given,
                                  "data set options", error);

    if (status < 0) {
        return status;
    }
    if (!options->urls || options->url_count == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no data set is named",
                        "set urls and url_count", "data set options");
    }
    options->key_bytes_max = options->key_bytes_max ? options->key_bytes_max : 4096;
    options->header_bytes_max = options->header_bytes_max ? options->header_bytes_max : 1u << 20;
    options->decompressed_bytes_max =
        options->decompressed_bytes_max ? options->decompressed_bytes_max : 1ull << 40;
    options->decompression_ratio_max =
        options->decompression_ratio_max ? options->decompression_ratio_max : 1100;
    if (options->foreign_index > STOKER_FOREIGN_INDEX_NEVER) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no such use of foreign indexes",
                        "use auto or never", "foreign = %u", options->foreign_index);
    }
    if (options->on_error > STOKER_ON_ERROR_SKIP) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no such policy of damage",
                        "use raise or skip", "on_error = %u", options->on_error);
    }
    if (options->index > STOKER_INDEX_REQUIRE) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no such use of an index",
                        "use auto, never or require", "index = %u", options->index);
    }
    return 0;
}

/* ---- opening the index ---- */

void stk_dataset_use_index(struct stoker_dataset *dataset, struct stk_index_location *location)
{
    dataset->index = location->old;
    location->old = NULL;
    dataset->index_is_unstamped = !location->stamp.valid;
    dataset->mtimes = location->mtimes;
    location->mtimes = NULL;
    dataset->shards_indexed = stk_index_shards(dataset->index);
    if (dataset->options.block_bytes) {
        stk_index_set_block(dataset->index, 0, dataset->options.block_bytes);
    }
}

static int copy_text(char **text, const char *value, struct stoker_error *error)
{
    stk_free(*text);
    *text = stk_strdup(value);
    return *text ? 0
                 : stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "'%.400s'",
                            value);
}

int stk_dataset_fail_index_required(const struct stk_index_location *location,
                                    struct stoker_error *error)
{
    return stk_fail(error, location->note_status ? location->note_status : STOKER_ERROR_CHANGED,
                    "the index of the data set cannot be used",
                    "run 'stoker index' on the data set again", "%s", location->note);
}

/* If a class folder was named and its index is up to date, uses that index without a listing.
 * Returns 1 then. */
static int match_folder(struct stoker_dataset *dataset, struct stk_index_location *location,
                        struct stoker_error *error)
{
    int status;

    if (!location->old || !stk_index_is_folder(location->old) || dataset->options.classes) {
        return 0; /* the index has its own numbers of classes */
    }
    status = stk_index_location_match_folder(location, dataset, error);
    if (status == 0 && location->complete) {
        status = copy_text(&dataset->index_path, location->path, error);
        dataset->objects.kind = STK_SOURCE_FOLDER;
        stk_dataset_use_index(dataset, location);
        return status < 0 ? status : 1;
    }
    return status;
}

/* Uses the index that another process made. Returns 1, 0 if it shared none, or an error. */
static int use_shared_index(struct stoker_dataset *dataset, struct stk_index_location *location,
                            const struct stk_index_sharing *sharing, struct stoker_error *error)
{
    struct stk_index *index = NULL;
    struct stk_stat about;
    int status = stk_io_stat_path(dataset->engine->io, sharing->flight.path, &about, NULL);

    if (status < 0 || about.bytes == 0 ||
        stk_index_open_file(&index, dataset->engine->io, sharing->flight.path, NULL) < 0) {
        return 0; /* this process scans, too */
    }
    if (stk_index_set_root(index, sharing->root, NULL) < 0) {
        stk_index_close(index);
        return 0;
    }
    stk_index_close(location->old);
    location->old = index;
    stk_dataset_use_index(dataset, location);
    dataset->shards_indexed = 0;
    dataset->objects.kind = stk_index_is_folder(index) ? STK_SOURCE_FOLDER : STK_SOURCE_TARS;
    if (dataset->objects.kind == STK_SOURCE_TARS) {
        dataset->objects.count = stk_index_shards(index);
        status = stk_open_files_reserve(&dataset->files, dataset->objects.count, error);
    }
    if (status == 0) {
        status = copy_text(&dataset->index_note,
                           "listed by another process of this machine at the same time", error);
    }
    return status < 0 ? status : 1;
}

/* Looks for index files of other tools next to the shards. */
static int open_foreign_index(struct stoker_dataset *dataset,
                              const struct stk_index_location *location, struct stoker_error *error)
{
    const struct stk_source_files *objects = &dataset->objects;
    struct stk_foreign_index_listing listing = {objects->text, objects->paths, objects->count};
    int status = stk_foreign_index_open(&dataset->foreign_index, dataset->engine->io, error);

    return status < 0 || !location->folder_url || dataset->shards.from_json
               ? status
               : stk_foreign_index_find(dataset->foreign_index, location->root, &listing,
                                        &dataset->shards, error);
}

/* Lists the files. Without a folder, only the listing says where the index file is: it is found
 * now. */
static int list_files(struct stoker_dataset *dataset, struct stk_index_location **location,
                      struct stoker_error *error)
{
    bool find = dataset->options.index != STOKER_INDEX_NEVER;
    int status = stk_dataset_list(dataset, error);

    if (status == 0 && dataset->objects.kind == STK_SOURCE_TARS && find &&
        dataset->options.foreign_index == STOKER_FOREIGN_INDEX_AUTO) {
        status = open_foreign_index(dataset, *location, error);
    }
    if (status == 0 && !(*location)->folder_url) {
        stk_index_location_close(*location);
        *location = NULL;
        status = stk_index_location_open(location, dataset, error);
        status = status < 0 || !find ? status : stk_index_location_find(*location, dataset, error);
    }
    return status;
}

/* Makes the index of class folders from the listing. */
static int scan_folder(struct stoker_dataset *dataset, struct stk_index_location *location,
                       struct stoker_error *error)
{
    int status;

    stk_index_location_require_kind(location, STK_SOURCE_FOLDER);
    if (dataset->options.index == STOKER_INDEX_REQUIRE) {
        return stk_dataset_fail_index_required(location, error);
    }
    status = copy_text(&dataset->index_note, location->note, error);
    return status < 0 ? status : stk_dataset_scan(dataset, NULL, error);
}

/* Uses the index file if it has all shards; else scans the shards that it does not have. */
static int scan_missing(struct stoker_dataset *dataset, struct stk_index_location *location,
                        struct stoker_error *error)
{
    int status = stk_index_location_match(location, dataset, error);

    if (status < 0) {
        return status;
    }
    if (dataset->options.index == STOKER_INDEX_REQUIRE &&
        (location->reused < dataset->objects.count || location->has_missing)) {
        return stk_dataset_fail_index_required(location, error);
    }
    if (location->reused > 0) {
        status = copy_text(&dataset->index_path, location->path, error);
    }
    if (status == 0) {
        status = copy_text(&dataset->index_note, location->complete ? "" : location->note, error);
    }
    dataset->shards_indexed = location->reused;
    if (status == 0 && location->complete) {
        stk_dataset_use_index(dataset, location);
    } else if (status == 0) {
        struct stk_dataset_reuse reuse = {.old = location->old, .from = location->from};

        dataset->index_is_unstamped = location->reused > 0 && !location->stamp.valid;
        status = stk_dataset_scan(dataset, &reuse, error);
        if (status == 0 && stk_index_location_block_samples(location) > 0 &&
            !dataset->options.block_bytes) {
            stk_index_set_block(dataset->index, stk_index_location_block_samples(location), 0);
        }
        dataset->mtimes = location->mtimes;
        location->mtimes = NULL;
    }
    return status;
}

static int open_index(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stk_index_sharing sharing = {.flight = {.lock = -1, .wait = -1}};
    struct stk_index_location *location = NULL;
    int status = stk_index_location_open(&location, dataset, error);

    /* 1. Find an index file, if its place is known before the listing. */
    if (status == 0 && dataset->options.index != STOKER_INDEX_NEVER && location->folder_url) {
        status = stk_index_location_find(location, dataset, error);
        /* 2. Match it with the files: class folders need no listing if nothing changed. */
        status = status < 0 ? status : match_folder(dataset, location, error);
    }
    /* 3. Wait for another process that opens the same data set, and use its index. */
    if (status == 0 && !dataset->options.classes &&
        stk_index_sharing_begin(&sharing, dataset, location)) {
        status = use_shared_index(dataset, location, &sharing, error);
        stk_index_sharing_end(&sharing);
    }
    if (status == 0) {
        /* 4. List, match the index file with the listing, and scan what is missing. */
        status = list_files(dataset, &location, error);
        if (status == 0) {
            status = dataset->objects.kind == STK_SOURCE_FOLDER
                         ? scan_folder(dataset, location, error)
                         : scan_missing(dataset, location, error);
        }
        /* 5. Write the index for the processes that wait. */
        stk_index_sharing_publish(&sharing, dataset, status);
    }
    stk_index_sharing_end(&sharing);
    stk_index_location_close(location);
    return status < 0 ? status : 0;
}

/* ---- the end ---- */

void stk_dataset_retain(struct stoker_dataset *dataset)
{
    atomic_fetch_add_explicit(&dataset->references, 1, memory_order_relaxed);
}

void stk_dataset_release(struct stoker_dataset *dataset)
{
    struct stoker_engine *engine = dataset->engine;
    _Atomic(char *) *paths;

    if (stk_engine_check(engine, NULL) < 0 ||
        atomic_fetch_sub_explicit(&dataset->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    stk_open_files_deinit(&dataset->files);
    stk_vfs_prefetch_release(engine->io, dataset);
    stk_jpeg_index_close(dataset->jpeg_index);
    stk_path_classes_close(dataset->path_classes);
    paths = atomic_load(&dataset->paths);
    for (uint64_t i = 0; paths && i < stk_index_shards(dataset->index); i++) {
        stk_free(atomic_load(&paths[i]));
    }
    stk_free(paths);
    if (dataset->segment_cache) {
        stk_engine_remove_memory_holder(engine, &dataset->memory_holder);
        stk_segment_cache_close(dataset->segment_cache);
    }
    stk_foreign_index_close(dataset->foreign_index);
    stk_wids_shards_deinit(&dataset->shards);
    stk_tar_losses_deinit(&dataset->bad_samples);
    stk_free(dataset->url_ends);
    stk_free(dataset->mtimes);
    stk_free(dataset->index_path);
    stk_free(dataset->index_note);
    stk_free(dataset->jpeg_index_note);
    stk_index_close(dataset->index);
    stk_budget_release(&engine->budget, dataset->index_bytes);
    stk_source_files_deinit(&dataset->objects);
    free_options(&dataset->options);
    pthread_mutex_destroy(&dataset->lock);
    stk_free(dataset);
    stk_engine_release(engine);
}

void stoker_dataset_close(struct stoker_dataset *dataset)
{
    if (dataset) {
        stk_dataset_release(dataset);
    }
}

void stk_dataset_error_add_location(const struct stoker_dataset *dataset,
                                    struct stoker_error *error, uint32_t shard, uint64_t offset,
                                    const char *key)
{
    char path[STK_PATH_BYTES_MAX];

    stk_index_path_text(dataset->index, shard, path);
    stk_error_set_location(error, path, offset, key);
}
