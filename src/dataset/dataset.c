/* Data sets: opening, open files, and single reads for tools. */
#include "dataset/dataset.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "dataset/index_locate.h"
#include "format/compress/decompress.h"
#include "io/filesystem/filesystem.h"
#include "io/ipc/single_flight.h"
#include "io/user_paths.h"
#include "storage/url/url_alias.h"

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
        stk_dataset_find_marks(dataset);
    }
    if (status == 0 && dataset->told) {
        stk_told_compare(dataset->told, &dataset->shards, dataset->index);
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

static int no_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "data set");
}

/* Copies the options and what they point to. */
static int keep_options(struct stoker_dataset *dataset, const struct stoker_dataset_options *given,
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
        complete = stk_vault_name(given->urls[i], &urls[i]) == 0 && complete;
    }
    return complete ? 0 : no_memory(error);
}

static void free_options(struct stoker_dataset_options *options)
{
    for (size_t i = 0; i < options->url_count; i++) {
        stk_free((void *)(uintptr_t)options->urls[i]);
    }
    stk_free((void *)(uintptr_t)options->urls);
    stk_free((void *)(uintptr_t)options->index_path);
}

static uint64_t trim_reach_locked(struct stk_keeper *keeper)
{
    struct stoker_dataset *dataset =
        (struct stoker_dataset *)(void *)((char *)keeper - offsetof(struct stoker_dataset, keeper));

    return stk_reach_trim(dataset->reach);
}

static int open_reach(struct stoker_dataset *dataset, struct stoker_error *error)
{
    const struct stoker_dataset_options *options = &dataset->options;
    struct stk_budget *budget = &dataset->engine->budget;
    struct stk_reach_options reach = {
        .bytes_max = options->access_cache_bytes
                         ? options->access_cache_bytes
                         : stk_min(CACHE_BYTES_DEFAULT, budget->bytes_max / 4),
        .unpacked_bytes_max = options->unpacked_bytes_max,
        .unpacked_ratio_max = options->unpacked_ratio_max,
        .grant = stk_engine_grant(dataset->engine),
    };
    int status = stk_reach_open(&dataset->reach, dataset->engine->io, budget, &reach, error);

    if (status == 0) {
        dataset->keeper.trim_locked = trim_reach_locked;
        stk_engine_add_keeper(dataset->engine, &dataset->keeper);
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
        return no_memory(error);
    }
    dataset->engine = engine;
    dataset->references = 1;
    pthread_mutex_init(&dataset->lock, NULL);
    stk_engine_hold(engine);
    status = resolve(&resolved, options, error);
    status = status < 0 ? status : keep_options(dataset, &resolved, error);
    status = status < 0 ? status : open_reach(dataset, error);
    if (status < 0) {
        stk_dataset_release(dataset);
        return status;
    }
    *dataset_out = dataset;
    return 0;
}

void stk_dataset_adopt(struct stoker_dataset *dataset, struct stk_sidecar *sidecar)
{
    dataset->index = sidecar->old;
    sidecar->old = NULL;
    dataset->mtimes = sidecar->mtimes;
    sidecar->mtimes = NULL;
    dataset->shards_indexed = stk_index_shards(dataset->index);
    if (dataset->options.block_bytes) {
        stk_index_set_block(dataset->index, 0, dataset->options.block_bytes);
    }
}

static int keep_text(char **text, const char *value, struct stoker_error *error)
{
    stk_free(*text);
    *text = stk_strdup(value);
    return *text ? 0
                 : stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "'%.400s'",
                            value);
}

int stk_dataset_refuse(const struct stk_sidecar *sidecar, struct stoker_error *error)
{
    return stk_fail(error, sidecar->note_status ? sidecar->note_status : STOKER_ERROR_CHANGED,
                    "the index of the data set cannot be used",
                    "run 'stoker index' on the data set again", "%s", sidecar->note);
}

/* A folder that was named needs no listing when its index is fresh: 1 then. */
static int try_folder(struct stoker_dataset *dataset, struct stk_sidecar *sidecar,
                      struct stoker_error *error)
{
    int status = stk_sidecar_find(sidecar, dataset, error);

    if (status < 0 || !sidecar->old || !stk_index_is_folder(sidecar->old)) {
        return status;
    }
    status = stk_sidecar_match_folder(sidecar, dataset, error);
    if (status == 0 && sidecar->whole) {
        status = keep_text(&dataset->index_path, sidecar->path, error);
        dataset->objects.kind = STK_SOURCE_FOLDER;
        stk_dataset_adopt(dataset, sidecar);
        return status < 0 ? status : 1;
    }
    return status;
}

/* The listing is there. */
static int fill_folder(struct stoker_dataset *dataset, struct stk_sidecar *sidecar,
                       struct stoker_error *error)
{
    int status;

    stk_sidecar_refuse_kind(sidecar, STK_SOURCE_FOLDER);
    if (dataset->options.index == STOKER_INDEX_REQUIRE) {
        return stk_dataset_refuse(sidecar, error);
    }
    status = keep_text(&dataset->index_note, sidecar->note, error);
    return status < 0 ? status : stk_scan(dataset, NULL, error);
}

static int fill_tars(struct stoker_dataset *dataset, struct stk_sidecar *sidecar,
                     struct stoker_error *error)
{
    int status = stk_sidecar_match(sidecar, dataset, error);

    if (status < 0) {
        return status;
    }
    if (dataset->options.index == STOKER_INDEX_REQUIRE &&
        (sidecar->reused < dataset->objects.count || sidecar->gone)) {
        return stk_dataset_refuse(sidecar, error);
    }
    if (sidecar->reused > 0) {
        status = keep_text(&dataset->index_path, sidecar->path, error);
    }
    if (status == 0) {
        status = keep_text(&dataset->index_note, sidecar->whole ? "" : sidecar->note, error);
    }
    dataset->shards_indexed = sidecar->reused;
    if (status == 0 && sidecar->whole) {
        stk_dataset_adopt(dataset, sidecar);
    } else if (status == 0) {
        struct stk_reuse reuse = {.old = sidecar->old, .from = sidecar->from};

        status = stk_scan(dataset, &reuse, error);
        if (status == 0 && stk_sidecar_block(sidecar) > 0 && !dataset->options.block_bytes) {
            stk_index_set_block(dataset->index, stk_sidecar_block(sidecar), 0);
        }
        dataset->mtimes = sidecar->mtimes;
        sidecar->mtimes = NULL;
    }
    return status;
}

/* What other tools left beside the shards is asked for. */
static int open_told(struct stoker_dataset *dataset, const struct stk_sidecar *sidecar,
                     struct stoker_error *error)
{
    const struct stk_objects *objects = &dataset->objects;
    struct stk_told_listing listing = {objects->text, objects->paths, objects->count};
    int status = stk_told_open(&dataset->told, dataset->engine->io, error);

    return status < 0 || !sidecar->folder_url || dataset->shards.told
               ? status
               : stk_told_beside(dataset->told, sidecar->root, &listing, &dataset->shards, error);
}

/* ---- ranks of a machine list and read headers once ---- */

/* What stands before the paths of the one url: a folder, or the part of a pattern before it. */
static void name_shared_root(const struct stoker_dataset *dataset,
                             const struct stk_sidecar *sidecar, char root[STK_PATH_BYTES_MAX])
{
    const char *url = dataset->options.urls[0];
    size_t bytes = strcspn(url, "*?[{");

    if (sidecar->folder_url) {
        snprintf(root, STK_PATH_BYTES_MAX, "%s", sidecar->root);
        return;
    }
    while (bytes > 0 && url[bytes - 1] != '/') {
        bytes--;
    }
    snprintf(root, STK_PATH_BYTES_MAX, "%.*s", (int)stk_min(bytes, STK_PATH_BYTES_MAX - 1), url);
}

/* Where asking costs round trips that many ranks would all make. */
static bool is_worth_a_turn(const struct stoker_dataset *dataset, const char *root)
{
    struct stk_stat about;
    uint32_t group;

    if (dataset->options.url_count != 1 || dataset->options.on_error != STOKER_ON_ERROR_RAISE ||
        dataset->options.index == STOKER_INDEX_REQUIRE) {
        return false;
    }
    if (stk_io_is_url(dataset->options.urls[0])) {
        /* Others may mean something else in each process: memory://, other credentials. */
        return !stk_io_is_foreign(dataset->options.urls[0]);
    }
    if (stk_io_stat_path(dataset->engine->io, root[0] ? root : ".", &about, NULL) < 0) {
        return false;
    }
    group = stk_ground_group_of(about.device);
    return group == STOKER_GROUND_NETWORK || group == STOKER_GROUND_FUSE;
}

/* What decides which server a URL is of, and as whom it is asked. What changes while the identity
 * stays (session tokens) is not among them. Of all of them a hash is made, and only that is kept.
 */
static void add_environment(struct stk_sha256 *sha)
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
static bool name_turn(const struct stoker_dataset *dataset, char key[65])
{
    const struct stoker_dataset_options *options = &dataset->options;
    const uint64_t numbers[] = {options->block_bytes, options->join_distance,
                                options->key_bytes_max, options->header_bytes_max,
                                options->foreign};
    char absolute[2 * STK_PATH_BYTES_MAX];
    struct stk_sha256 sha;
    uint8_t digest[32];

    if (!stk_machine_absolute(options->urls[0], absolute, sizeof absolute)) {
        return false;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, absolute, strlen(absolute) + 1);
    stk_sha256_add(&sha, options->urls[0], strlen(options->urls[0]) + 1);
    stk_sha256_add(&sha, numbers, sizeof numbers);
    if (stk_io_is_url(options->urls[0])) {
        add_environment(&sha);
    }
    stk_sha256_done(&sha, digest);
    stk_hex(digest, sizeof digest, key);
    return true;
}

/* 1: what another process found is this data set's. 0: it has nothing to give. */
static int take_shared(struct stoker_dataset *dataset, struct stk_sidecar *sidecar,
                       const char *path, const char *root, struct stoker_error *error)
{
    struct stk_index *index = NULL;
    struct stk_stat about;
    int status = stk_io_stat_path(dataset->engine->io, path, &about, NULL);

    if (status < 0 || about.bytes == 0 ||
        stk_index_map(&index, dataset->engine->io, path, NULL) < 0) {
        return 0; /* then all of it is read here */
    }
    if (stk_index_set_root(index, root, NULL) < 0) {
        stk_index_close(index);
        return 0;
    }
    stk_index_close(sidecar->old);
    sidecar->old = index;
    stk_dataset_adopt(dataset, sidecar);
    dataset->shards_indexed = 0;
    dataset->objects.kind = stk_index_is_folder(index) ? STK_SOURCE_FOLDER : STK_SOURCE_TARS;
    if (dataset->objects.kind == STK_SOURCE_TARS) {
        status = stk_dataset_make_room(dataset, stk_index_shards(index), error);
    }
    if (status == 0) {
        status = keep_text(&dataset->index_note,
                           "listed by another process of this machine at the same time", error);
    }
    return status < 0 ? status : 1;
}

/* Where the index is a file already, the others map that themselves. */
static void offer(const struct stoker_dataset *dataset, const struct stk_turn *turn,
                  const char *root, int status)
{
    struct stk_view image = {NULL, 0};

    if (!turn->is_mine || !stk_turn_is_awaited(turn)) {
        return;
    }
    if (status == 0 && dataset->shards_indexed == 0 && !dataset->shards.told &&
        dataset->losses.count == 0 && stk_index_image(dataset->index, root, &image, NULL) < 0) {
        image = (struct stk_view){NULL, 0};
    }
    if (stk_turn_publish(turn, image) < 0 && image.bytes > 0) {
        (void)stk_turn_publish(turn, (struct stk_view){NULL, 0}); /* no room: each for itself */
    }
    stk_free((void *)(uintptr_t)image.data);
}

static int fill_itself(struct stoker_dataset *dataset, struct stk_sidecar **sidecar,
                       struct stoker_error *error);

static int fill(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stk_turn turn = {.lock = -1, .wait = -1};
    char root[STK_PATH_BYTES_MAX], key[65];
    struct stk_sidecar *sidecar = NULL;
    bool find = dataset->options.index != STOKER_INDEX_NEVER;
    int status = stk_sidecar_open(&sidecar, dataset, error);

    if (status == 0 && find && sidecar->folder_url) {
        status = try_folder(dataset, sidecar, error);
    }
    if (status != 0) {
        goto done;
    }
    name_shared_root(dataset, sidecar, root);
    if (is_worth_a_turn(dataset, root) && name_turn(dataset, key) &&
        stk_turn_begin(&turn, key, dataset->engine->options.turn_timeout_ms) == STK_TURN_TAKEN) {
        status = take_shared(dataset, sidecar, turn.path, root, error);
        stk_turn_end(&turn);
    }
    if (status == 0) {
        status = fill_itself(dataset, &sidecar, error);
        offer(dataset, &turn, root, status);
    }
done:
    stk_turn_end(&turn);
    stk_sidecar_close(sidecar);
    return status < 0 ? status : 0;
}

static int fill_itself(struct stoker_dataset *dataset, struct stk_sidecar **sidecar_at,
                       struct stoker_error *error)
{
    struct stk_sidecar *sidecar = *sidecar_at;
    bool find = dataset->options.index != STOKER_INDEX_NEVER;
    int status = stk_dataset_list(dataset, error);

    if (status == 0 && dataset->objects.kind == STK_SOURCE_TARS && find &&
        dataset->options.foreign == STOKER_FOREIGN_AUTO) {
        status = open_told(dataset, sidecar, error);
    }
    if (status == 0 && !sidecar->folder_url) {
        /* Only the listing tells where the index may lie. */
        stk_sidecar_close(sidecar);
        *sidecar_at = NULL;
        status = stk_sidecar_open(sidecar_at, dataset, error);
        sidecar = *sidecar_at;
        status = status < 0 || !find ? status : stk_sidecar_find(sidecar, dataset, error);
    }
    if (status == 0) {
        status = dataset->objects.kind == STK_SOURCE_FOLDER ? fill_folder(dataset, sidecar, error)
                                                            : fill_tars(dataset, sidecar, error);
    }
    return status < 0 ? status : 0;
}

static int resolve(struct stoker_dataset_options *options,
                   const struct stoker_dataset_options *given, struct stoker_error *error)
{
    if (!given || given->struct_size < offsetof(struct stoker_dataset_options, key_bytes_max) ||
        given->struct_size > 4096 || !given->urls || given->url_count == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no data set is named",
                        "set struct_size, urls and url_count", "data set options");
    }
    memcpy(options, given, stk_min(given->struct_size, sizeof *options));
    options->struct_size = sizeof *options;
    options->key_bytes_max = options->key_bytes_max ? options->key_bytes_max : 4096;
    options->header_bytes_max = options->header_bytes_max ? options->header_bytes_max : 1u << 20;
    options->unpacked_bytes_max =
        options->unpacked_bytes_max ? options->unpacked_bytes_max : 1ull << 40;
    options->unpacked_ratio_max = options->unpacked_ratio_max ? options->unpacked_ratio_max : 1100;
    if (options->foreign > STOKER_FOREIGN_NEVER) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no such use of foreign indexes",
                        "use auto or never", "foreign = %u", options->foreign);
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

void stk_dataset_hold(struct stoker_dataset *dataset)
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
    stk_io_let_go(engine->io, dataset);
    stk_marks_close(dataset->marks);
    stk_free(dataset->locked.files);
    paths = atomic_load(&dataset->paths);
    for (uint64_t i = 0; paths && i < stk_index_shards(dataset->index); i++) {
        stk_free(atomic_load(&paths[i]));
    }
    stk_free(paths);
    if (dataset->reach) {
        stk_engine_remove_keeper(engine, &dataset->keeper);
        stk_reach_close(dataset->reach);
    }
    stk_told_close(dataset->told);
    stk_shards_deinit(&dataset->shards);
    stk_losses_deinit(&dataset->losses);
    stk_free(dataset->url_ends);
    stk_free(dataset->tars);
    stk_free(dataset->mtimes);
    stk_free(dataset->index_path);
    stk_free(dataset->index_note);
    stk_free(dataset->marks_note);
    stk_index_close(dataset->index);
    stk_budget_release(&engine->budget, dataset->index_bytes);
    stk_objects_deinit(&dataset->objects);
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
        struct stk_open_file *entry = &dataset->locked.files[dataset->locked.hand];
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
    struct stk_open_file *entry;
    struct stk_file *file, *evicted = NULL;
    int status;

    entry = stk_dataset_entry(dataset, shard);
    if (!entry) {
        status = stk_index_path(dataset->index, shard, path, error);
        status = status < 0 ? status : stk_io_open_file(io, path, file_out, error);
        if (status == 0 && stk_io_far_bytes(io, *file_out) == 0) { /* an object is no open file */
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

void stk_dataset_place(const struct stoker_dataset *dataset, struct stoker_error *error,
                       uint32_t shard, uint64_t offset, const char *key)
{
    char path[STK_PATH_BYTES_MAX];

    stk_index_path_text(dataset->index, shard, path);
    stk_error_place(error, path, offset, key);
}

bool stk_dataset_crowded(struct stoker_dataset *dataset, uint32_t shard)
{
    const struct stk_open_file *entry = stk_dataset_entry(dataset, shard);
    bool crowded;

    pthread_mutex_lock(&dataset->lock);
    crowded = dataset->locked.in_use >= dataset->engine->options.open_files_max &&
              (!entry || entry->pins == 0);
    pthread_mutex_unlock(&dataset->lock);
    return crowded;
}

void stk_dataset_forget(struct stoker_dataset *dataset, uint32_t shard)
{
    struct stk_open_file *entry = stk_dataset_entry(dataset, shard);
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
    struct stk_open_file *entry = stk_dataset_entry(dataset, shard);

    if (!entry) {
        bool far = stk_io_far_bytes(dataset->engine->io, file) > 0;

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
