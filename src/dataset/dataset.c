/* Data sets: opening, open files, and single reads for tools. */
#include "dataset/dataset.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/options.h"
#include "dataset/index_locate.h"
#include "format/compress/decompress.h"
#include "io/filesystem/filesystem.h"
#include "io/ipc/single_flight.h"
#include "io/user_paths.h"
#include "storage/url/url_alias.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int resolve(struct stoker_dataset_options *options,
                   const struct stoker_dataset_options *given, struct stoker_error *error);

static int fill(struct stoker_dataset *dataset, struct stoker_error *error);

#define CACHE_BYTES_DEFAULT (512ull << 20)

int stoker_dataset_open(struct stoker_dataset **dataset_out, struct stoker_engine *engine,
                        const struct stoker_dataset_options *options, struct stoker_error *error)
{
    struct stoker_dataset *dataset = NULL;
    int status = stk_dataset_new(&dataset, engine, options, error);

    *dataset_out = NULL;
    status = status < 0 ? status : fill(dataset, error);
    if (status == 0) {
        stk_dataset_open_jpeg_index(dataset);
    }
    if (status == 0 && dataset->foreign_index) {
        stk_foreign_index_compare(dataset->foreign_index, &dataset->shards, dataset->index);
    }
    if (status < 0) {
        if (dataset) {
            stk_dataset_release(dataset);
        }
        return status;
    }
    *dataset_out = dataset;
    return 0;
}

/* Copies the options and what they point to. */
static int copy_options(struct stoker_dataset *dataset, const struct stoker_dataset_options *given,
                        struct stoker_error *error)
{
    char **urls = stk_alloc(given->url_count + 1, sizeof *urls);
    bool complete = urls != NULL;

    dataset->options = *given;
    dataset->options.urls = (const char *const *)urls;
    dataset->options.url_count = urls ? given->url_count : 0;
    dataset->options.index_path = given->index_path ? stk_strdup(given->index_path) : NULL;
    complete = complete && (!given->index_path || dataset->options.index_path);
    for (size_t i = 0; urls && i < given->url_count; i++) {
        complete = stk_url_alias(given->urls[i], &urls[i]) == 0 && complete;
    }
    return complete ? 0 : stk_fail_memory(error, "data set");
}

static void free_options(struct stoker_dataset_options *options)
{
    for (size_t i = 0; i < options->url_count; i++) {
        stk_free((void *)(uintptr_t)options->urls[i]);
    }
    stk_free((void *)(uintptr_t)options->urls);
    stk_free((void *)(uintptr_t)options->index_path);
}

static uint64_t trim_segment_cache_locked(struct stk_memory_holder *keeper)
{
    struct stoker_dataset *dataset =
        (struct stoker_dataset *)(void *)((char *)keeper -
                                          offsetof(struct stoker_dataset, memory_holder));

    return stk_segment_cache_trim(dataset->segment_cache);
}

static int open_segment_cache(struct stoker_dataset *dataset, struct stoker_error *error)
{
    const struct stoker_dataset_options *options = &dataset->options;
    struct stk_budget *budget = &dataset->engine->budget;
    struct stk_segment_cache_options reach = {
        .bytes_max = options->segment_cache_bytes
                         ? options->segment_cache_bytes
                         : stk_min(CACHE_BYTES_DEFAULT, budget->bytes_max / 4),
        .unpacked_bytes_max = options->decompressed_bytes_max,
        .unpacked_ratio_max = options->decompression_ratio_max,
        .grant = stk_engine_allocator(dataset->engine),
    };
    int status =
        stk_segment_cache_open(&dataset->segment_cache, dataset->engine->io, budget, &reach, error);

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

void stk_dataset_use_index(struct stoker_dataset *dataset, struct stk_index_location *location)
{
    dataset->index = location->old;
    location->old = NULL;
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

/* A folder that was path_args needs no listing when its index is fresh: 1 then. */
static int try_folder(struct stoker_dataset *dataset, struct stk_index_location *location,
                      struct stoker_error *error)
{
    int status = stk_index_location_find(location, dataset, error);

    if (status < 0 || !location->old || !stk_index_is_folder(location->old)) {
        return status;
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

/* The listing is there. */
static int fill_folder(struct stoker_dataset *dataset, struct stk_index_location *location,
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

static int fill_tars(struct stoker_dataset *dataset, struct stk_index_location *location,
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

/* What other tools left beside the shards is asked for. */
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

/* ---- ranks of a machine list and read headers once ---- */

/* What stands before the paths of the one url: a folder, or the part of a pattern before it. */
static void find_shared_root(const struct stoker_dataset *dataset,
                             const struct stk_index_location *location,
                             char root[STK_PATH_BYTES_MAX])
{
    const char *url = dataset->options.urls[0];
    size_t bytes = strcspn(url, "*?[{");

    if (location->folder_url) {
        snprintf(root, STK_PATH_BYTES_MAX, "%s", location->root);
        return;
    }
    while (bytes > 0 && url[bytes - 1] != '/') {
        bytes--;
    }
    snprintf(root, STK_PATH_BYTES_MAX, "%.*s", (int)stk_min(bytes, STK_PATH_BYTES_MAX - 1), url);
}

/* Where asking costs round trips that many ranks would all make. */
static bool should_share_result(const struct stoker_dataset *dataset, const char *root)
{
    struct stk_stat about;
    uint32_t group;

    if (dataset->options.url_count != 1 || dataset->options.on_error != STOKER_ON_ERROR_RAISE ||
        dataset->options.index == STOKER_INDEX_REQUIRE) {
        return false;
    }
    if (stk_io_is_url(dataset->options.urls[0])) {
        /* Others may mean something else in each process: memory://, other credentials. */
        return !stk_vfs_is_external_url(dataset->options.urls[0]);
    }
    if (stk_io_stat_path(dataset->engine->io, root[0] ? root : ".", &about, NULL) < 0) {
        return false;
    }
    group = stk_filesystem_group_of(about.device);
    return group == STOKER_FILESYSTEM_NETWORK || group == STOKER_FILESYSTEM_FUSE;
}

/* What decides which server a URL is of, and as whom it is asked. What changes while the identity
 * stays (session tokens) is not among them. Of all of them a hash is made, and only that is kept.
 */
static void hash_environment(struct stk_sha256 *sha)
{
    static const char *const names[] = {"HOME",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_ACCESS_KEY_ID",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_NO_SIGN_REQUEST",
                                        "AWS_REQUEST_PAYER",
                                        "AWS_ROLE_ARN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                        "STORAGE_EMULATOR_HOST",
                                        "GOOGLE_APPLICATION_CREDENTIALS",
                                        "GS_ACCESS_KEY_ID",
                                        "GS_NO_SIGN_REQUEST",
                                        "GS_USER_PROJECT",
                                        "CLOUDSDK_CONFIG",
                                        "GCE_METADATA_HOST",
                                        "NO_GCE_CHECK",
                                        "AZURE_STORAGE_CONNECTION_STRING",
                                        "AZURE_STORAGE_ACCOUNT",
                                        "AZURE_STORAGE_ACCOUNT_NAME",
                                        "AZURE_STORAGE_ENDPOINT",
                                        "AZURE_STORAGE_KEY",
                                        "AZURE_STORAGE_SAS_TOKEN",
                                        "AZURE_NO_SIGN_REQUEST",
                                        "AZURE_AUTHORITY_HOST",
                                        "AZURE_TENANT_ID",
                                        "AZURE_CLIENT_ID",
                                        "AZURE_CLIENT_SECRET",
                                        "AZURE_FEDERATED_TOKEN_FILE",
                                        "IDENTITY_ENDPOINT",
                                        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
                                        "HF_ENDPOINT",
                                        "HF_TOKEN",
                                        "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",
                                        "HF_HOME",
                                        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                        "XDG_CACHE_HOME"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        const char *value = getenv(names[i]);

        stk_sha256_add(sha, value ? value : "", value ? strlen(value) + 1 : 0);
        stk_sha256_add(sha, "\n", 1);
    }
}

/* The same data set with the same settings, and so with the same index. */
static bool make_share_key(const struct stoker_dataset *dataset, char key[65])
{
    const struct stoker_dataset_options *options = &dataset->options;
    const uint64_t numbers[] = {options->block_bytes, options->member_gap_max,
                                options->key_bytes_max, options->header_bytes_max,
                                options->foreign_index};
    char absolute[2 * STK_PATH_BYTES_MAX];
    struct stk_sha256 sha;
    uint8_t digest[32];

    if (!stk_path_absolute(options->urls[0], absolute, sizeof absolute)) {
        return false;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, absolute, strlen(absolute) + 1);
    stk_sha256_add(&sha, options->urls[0], strlen(options->urls[0]) + 1);
    stk_sha256_add(&sha, numbers, sizeof numbers);
    if (stk_io_is_url(options->urls[0])) {
        hash_environment(&sha);
    }
    stk_sha256_done(&sha, digest);
    stk_hex(digest, sizeof digest, key);
    return true;
}

/* 1: what another process found is this data set's. 0: it has nothing to give. */
static int use_shared_index(struct stoker_dataset *dataset, struct stk_index_location *location,
                            const char *path, const char *root, struct stoker_error *error)
{
    struct stk_index *index = NULL;
    struct stk_stat about;
    int status = stk_io_stat_path(dataset->engine->io, path, &about, NULL);

    if (status < 0 || about.bytes == 0 ||
        stk_index_open_file(&index, dataset->engine->io, path, NULL) < 0) {
        return 0; /* then all of it is read here */
    }
    if (stk_index_set_root(index, root, NULL) < 0) {
        stk_index_close(index);
        return 0;
    }
    stk_index_close(location->old);
    location->old = index;
    stk_dataset_use_index(dataset, location);
    dataset->shards_indexed = 0;
    dataset->objects.kind = stk_index_is_folder(index) ? STK_SOURCE_FOLDER : STK_SOURCE_TARS;
    if (dataset->objects.kind == STK_SOURCE_TARS) {
        status = stk_dataset_reserve_files(dataset, stk_index_shards(index), error);
    }
    if (status == 0) {
        status = copy_text(&dataset->index_note,
                           "listed by another process of this machine at the same time", error);
    }
    return status < 0 ? status : 1;
}

/* Where the index is a file already, the others map that themselves. */
static void publish_result(const struct stoker_dataset *dataset,
                           const struct stk_single_flight *turn, const char *root, int status)
{
    struct stk_view image = {NULL, 0};

    if (!turn->is_leader || !stk_single_flight_has_waiters(turn)) {
        return;
    }
    if (status == 0 && dataset->shards_indexed == 0 && !dataset->shards.from_json &&
        dataset->bad_samples.count == 0 &&
        stk_index_image(dataset->index, root, &image, NULL) < 0) {
        image = (struct stk_view){NULL, 0};
    }
    if (stk_single_flight_publish(turn, image) < 0 && image.bytes > 0) {
        (void)stk_single_flight_publish(turn,
                                        (struct stk_view){NULL, 0}); /* no room: each for itself */
    }
    stk_free((void *)(uintptr_t)image.data);
}

static int fill_locally(struct stoker_dataset *dataset, struct stk_index_location **location,
                        struct stoker_error *error);

static int fill(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stk_single_flight turn = {.lock = -1, .wait = -1};
    char root[STK_PATH_BYTES_MAX], key[65];
    struct stk_index_location *location = NULL;
    bool find = dataset->options.index != STOKER_INDEX_NEVER;
    int status = stk_index_location_open(&location, dataset, error);

    if (status == 0 && find && location->folder_url) {
        status = try_folder(dataset, location, error);
    }
    if (status != 0) {
        goto done;
    }
    find_shared_root(dataset, location, root);
    if (should_share_result(dataset, root) && make_share_key(dataset, key) &&
        stk_single_flight_begin(&turn, key, dataset->engine->options.single_flight_timeout_ms) ==
            STK_SINGLE_FLIGHT_FOLLOWER) {
        status = use_shared_index(dataset, location, turn.path, root, error);
        stk_single_flight_end(&turn);
    }
    if (status == 0) {
        status = fill_locally(dataset, &location, error);
        publish_result(dataset, &turn, root, status);
    }
done:
    stk_single_flight_end(&turn);
    stk_index_location_close(location);
    return status < 0 ? status : 0;
}

static int fill_locally(struct stoker_dataset *dataset, struct stk_index_location **sidecar_at,
                        struct stoker_error *error)
{
    struct stk_index_location *location = *sidecar_at;
    bool find = dataset->options.index != STOKER_INDEX_NEVER;
    int status = stk_dataset_list(dataset, error);

    if (status == 0 && dataset->objects.kind == STK_SOURCE_TARS && find &&
        dataset->options.foreign_index == STOKER_FOREIGN_INDEX_AUTO) {
        status = open_foreign_index(dataset, location, error);
    }
    if (status == 0 && !location->folder_url) {
        /* Only the listing tells where the index may lie. */
        stk_index_location_close(location);
        *sidecar_at = NULL;
        status = stk_index_location_open(sidecar_at, dataset, error);
        location = *sidecar_at;
        status = status < 0 || !find ? status : stk_index_location_find(location, dataset, error);
    }
    if (status == 0) {
        status = dataset->objects.kind == STK_SOURCE_FOLDER ? fill_folder(dataset, location, error)
                                                            : fill_tars(dataset, location, error);
    }
    return status < 0 ? status : 0;
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
    for (uint64_t i = 0; dataset->locked.files && i < dataset->objects.count; i++) {
        if (dataset->locked.files[i].file) {
            stk_io_close_file(engine->io, dataset->locked.files[i].file);
        }
    }
    stk_vfs_prefetch_release(engine->io, dataset);
    stk_jpeg_index_close(dataset->jpeg_index);
    stk_free(dataset->locked.files);
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
    stk_free(dataset->tars);
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

/* The clock algorithm: closes one file that nobody uses and that was not used lately. */
static struct stk_file *evict_locked(struct stoker_dataset *dataset)
{
    uint32_t count = (uint32_t)dataset->objects.count;

    for (uint64_t step = 0; step < 2ull * count; step++) {
        struct stk_dataset_file *entry = &dataset->locked.files[dataset->locked.hand];
        dataset->locked.hand = (dataset->locked.hand + 1) % count;
        if (!entry->file || entry->pins > 0) {
            continue;
        }
        if (entry->recent) {
            entry->recent = false;
            continue;
        }
        struct stk_file *file = entry->file;
        entry->file = NULL;
        dataset->locked.open_count--;
        return file;
    }
    return NULL;
}

int stk_dataset_pin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file **file_out,
                    struct stoker_error *error)
{
    struct stk_io *io = dataset->engine->io;
    char path[STK_PATH_BYTES_MAX];
    struct stk_dataset_file *entry;
    struct stk_file *file, *evicted = NULL;
    int status;

    entry = stk_dataset_file_slot(dataset, shard);
    if (!entry) {
        status = stk_index_path(dataset->index, shard, path, error);
        status = status < 0 ? status : stk_io_open_file(io, path, file_out, error);
        if (status == 0 &&
            stk_vfs_round_trip_bytes(*file_out) == 0) { /* an object is no open file */
            pthread_mutex_lock(&dataset->lock);
            dataset->locked.in_use++;
            pthread_mutex_unlock(&dataset->lock);
        }
        return status;
    }
    pthread_mutex_lock(&dataset->lock);
    if (!entry->file) {
        /* Opened without the lock; whoever comes second closes his own again. */
        pthread_mutex_unlock(&dataset->lock);
        status = stk_index_path(dataset->index, shard, path, error);
        status = status < 0 ? status : stk_io_open_file(io, path, &file, error);
        if (status < 0) {
            return status;
        }
        pthread_mutex_lock(&dataset->lock);
        if (entry->file) {
            evicted = file;
        } else {
            if (dataset->locked.open_count >= dataset->engine->options.open_files_max) {
                evicted = evict_locked(dataset);
            }
            entry->file = file;
            dataset->locked.open_count++;
        }
    }
    dataset->locked.in_use += entry->pins++ == 0;
    entry->recent = true;
    *file_out = entry->file;
    pthread_mutex_unlock(&dataset->lock);
    if (evicted) {
        stk_io_close_file(io, evicted);
    }
    return 0;
}

void stk_dataset_error_add_location(const struct stoker_dataset *dataset,
                                    struct stoker_error *error, uint32_t shard, uint64_t offset,
                                    const char *key)
{
    char path[STK_PATH_BYTES_MAX];

    stk_index_path_text(dataset->index, shard, path);
    stk_error_set_location(error, path, offset, key);
}

bool stk_dataset_at_open_file_limit(struct stoker_dataset *dataset, uint32_t shard)
{
    const struct stk_dataset_file *entry = stk_dataset_file_slot(dataset, shard);
    bool crowded;

    pthread_mutex_lock(&dataset->lock);
    crowded = dataset->locked.in_use >= dataset->engine->options.open_files_max &&
              (!entry || entry->pins == 0);
    pthread_mutex_unlock(&dataset->lock);
    return crowded;
}

void stk_dataset_reopen_later(struct stoker_dataset *dataset, uint32_t shard)
{
    struct stk_dataset_file *entry = stk_dataset_file_slot(dataset, shard);
    struct stk_file *gone = NULL;

    pthread_mutex_lock(&dataset->lock);
    if (entry && entry->pins == 0) {
        gone = entry->file;
        entry->file = NULL;
        dataset->locked.open_count -= gone != NULL;
    }
    pthread_mutex_unlock(&dataset->lock);
    if (gone) {
        stk_io_close_file(dataset->engine->io, gone);
    }
}

void stk_dataset_unpin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file *file)
{
    struct stk_dataset_file *entry = stk_dataset_file_slot(dataset, shard);

    if (!entry) {
        bool far = stk_vfs_round_trip_bytes(file) > 0;

        stk_io_close_file(dataset->engine->io, file);
        if (far) {
            return;
        }
    }
    pthread_mutex_lock(&dataset->lock);
    STK_ASSERT(!entry || entry->pins > 0);
    dataset->locked.in_use -= !entry || --entry->pins == 0;
    pthread_mutex_unlock(&dataset->lock);
}
