/* Data sets: opening, open files, and single reads for tools. */
#include "dataset/dataset.h"

#include "dataset/sidecar.h"
#include "format/unpack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
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
        urls[i] = stk_strdup(given->urls[i]);
        complete = complete && urls[i];
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

static int fill(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stk_sidecar *sidecar = NULL;
    bool find = dataset->options.index != STOKER_INDEX_NEVER;
    int status = stk_sidecar_open(&sidecar, dataset, error);

    if (status == 0 && find && sidecar->folder_url) {
        status = try_folder(dataset, sidecar, error);
    }
    if (status != 0) {
        goto done;
    }
    status = stk_dataset_list(dataset, error);
    if (status == 0 && dataset->objects.kind == STK_SOURCE_TARS && find &&
        dataset->options.foreign == STOKER_FOREIGN_AUTO) {
        status = open_told(dataset, sidecar, error);
    }
    if (status == 0 && !sidecar->folder_url) {
        /* Only the listing tells where the index may lie. */
        stk_sidecar_close(sidecar);
        status = stk_sidecar_open(&sidecar, dataset, error);
        status = status < 0 || !find ? status : stk_sidecar_find(sidecar, dataset, error);
    }
    if (status == 0) {
        status = dataset->objects.kind == STK_SOURCE_FOLDER ? fill_folder(dataset, sidecar, error)
                                                            : fill_tars(dataset, sidecar, error);
    }
done:
    stk_sidecar_close(sidecar);
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

int stoker_dataset_info(const struct stoker_dataset *dataset, struct stoker_dataset_info *info)
{
    struct stoker_dataset_info full = {0};
    const struct stk_index *index = dataset->index;

    if (info->struct_size > sizeof full || info->struct_size < sizeof info->struct_size) {
        return STOKER_ERROR_ARGUMENT;
    }
    full.struct_size = info->struct_size;
    full.kind = dataset->tars                                ? "joined"
                : dataset->objects.kind == STK_SOURCE_FOLDER ? "imagefolder"
                                                             : "webdataset";
    full.sample_count = stk_index_samples(index);
    full.member_count = stk_index_members(index);
    full.shard_count = stk_index_shards(index);
    full.class_count = stk_index_classes(index);
    full.bytes = stk_index_is_folder(index) ? 0 : stk_index_bytes(index);
    full.block_samples = stk_index_block_samples(index);
    full.sequential = stk_index_sequential(index);
    full.index_path = dataset->index_path;
    full.index_note = dataset->index_note ? dataset->index_note : "";
    full.shards_indexed = dataset->shards_indexed;
    full.shards_foreign = stk_told_shards(index) + stk_told_helped(dataset->told);
    full.foreign_note = stk_told_note(dataset->told);
    memcpy(full.identity, stk_index_identity(index), sizeof full.identity);
    memcpy(info, &full, info->struct_size);
    return 0;
}

int stoker_dataset_shard_ends(const struct stoker_dataset *dataset, uint64_t first, uint64_t count,
                              uint64_t *ends_out)
{
    const struct stk_index *index = dataset->index;
    uint64_t shards = stk_index_shards(index);

    if (stk_index_is_folder(index)) {
        return STOKER_ERROR_UNSUPPORTED;
    }
    if (first > shards || count > shards - first) {
        return STOKER_ERROR_ARGUMENT;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t shard = (uint32_t)(first + i);

        ends_out[i] = stk_index_first_sample(index, shard) + stk_index_shard_samples(index, shard);
    }
    return 0;
}

int stoker_dataset_class(const struct stoker_dataset *dataset, uint64_t class_index,
                         const char **name_out)
{
    *name_out = NULL;
    if (class_index >= stk_index_classes(dataset->index)) {
        return STOKER_ERROR_ARGUMENT;
    }
    *name_out = stk_index_class(dataset->index, class_index);
    return 0;
}

static int check_sample(const struct stoker_dataset *dataset, uint64_t sample,
                        struct stoker_error *error)
{
    if (sample < stk_index_samples(dataset->index)) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such sample",
                    "use an id below the number of samples", "sample %llu of %llu",
                    (unsigned long long)sample,
                    (unsigned long long)stk_index_samples(dataset->index));
}

/* The table of paths that were asked for of a mapped index. Made by who asks first. */
static _Atomic(char *) *paths_of(struct stoker_dataset *dataset)
{
    _Atomic(char *) *paths = atomic_load_explicit(&dataset->paths, memory_order_acquire);

    if (!paths) {
        _Atomic(char *) *made = stk_alloc(stk_index_shards(dataset->index), sizeof *made);

        if (made && !atomic_compare_exchange_strong(&dataset->paths, &paths, made)) {
            stk_free(made);
        } else {
            paths = made;
        }
    }
    return paths;
}

/* A shard's path, lent until the data set is closed. Made once, by whoever asks first. */
static int lend_path(const struct stoker_dataset *dataset, uint32_t shard, const char **path_out,
                     struct stoker_error *error)
{
    char text[STK_PATH_BYTES_MAX];
    char *path, *before = NULL;
    _Atomic(char *) *paths;
    int status;

    *path_out = stk_index_path_lent(dataset->index, shard);
    if (*path_out) {
        return 0;
    }
    /* The table is a cache: to the caller nothing changes. */
    paths = paths_of((struct stoker_dataset *)(uintptr_t)dataset);
    status = paths ? 0 : -ENOMEM;
    if (status == 0) {
        *path_out = atomic_load_explicit(&paths[shard], memory_order_acquire);
        if (*path_out) {
            return 0;
        }
        status = stk_index_path(dataset->index, shard, text, error);
        if (status < 0) {
            return status;
        }
    }
    path = status == 0 ? stk_strdup(text) : NULL;
    if (!path) {
        return stk_fail(error, -ENOMEM, "cannot name a shard", "free memory", "shard %u", shard);
    }
    if (!atomic_compare_exchange_strong(&paths[shard], &before, path)) {
        stk_free(path);
        path = before;
    }
    *path_out = path;
    return 0;
}

int stoker_dataset_sample(const struct stoker_dataset *dataset, uint64_t sample, char *key,
                          size_t key_capacity, struct stoker_member_info *members,
                          size_t *member_count, struct stoker_error *error)
{
    size_t capacity = *member_count;
    struct stk_sample found;
    int status = check_sample(dataset, sample, error);

    *member_count = 0;
    if (status < 0) {
        return status;
    }
    status = stk_index_sample(dataset->index, sample, &found, error);
    if (status < 0) {
        return status;
    }
    if (key && key_capacity > 0) {
        size_t bytes = stk_min(found.key.bytes, key_capacity - 1);
        memcpy(key, found.key.data, bytes);
        key[bytes] = 0;
    }
    for (uint32_t i = 0; i < found.member_count && i < capacity; i++) {
        struct stk_member member;
        status = stk_index_member(dataset->index, &found, i, &member, error);
        if (status == 0) {
            status = lend_path(dataset, member.shard, &members[i].shard, error);
        }
        if (status < 0) {
            return status;
        }
        members[i].extension = stk_index_extension(dataset->index, member.extension);
        members[i].offset = member.offset;
        members[i].bytes = member.bytes;
    }
    *member_count = found.member_count;
    return 0;
}

/* The member of a sample by its extension; NULL extension: the first. */
static int find_member(const struct stoker_dataset *dataset, const struct stk_sample *sample,
                       const char *extension, struct stk_member *member_out, uint32_t *number_out,
                       struct stoker_error *error)
{
    for (uint32_t i = 0; i < sample->member_count; i++) {
        int status = stk_index_member(dataset->index, sample, i, member_out, error);
        if (status < 0) {
            return status;
        }
        if (!extension ||
            strcmp(stk_index_extension(dataset->index, member_out->extension), extension) == 0) {
            *number_out = i;
            return 0;
        }
    }
    return stk_fail(error, STOKER_ERROR_MISSING, "the sample has no such member",
                    "'stoker ls' shows what it has", "extension '%s'", extension ? extension : "");
}

/* A member that a foreign index told: reads the headers before it, and compares. */
static int prove(struct stoker_dataset *dataset, uint64_t sample_id,
                 const struct stk_sample *sample, uint32_t number, const struct stk_member *member,
                 struct stoker_error *error)
{
    uint8_t room[STK_TOLD_GAP_MAX];
    struct stk_view headers = {room, 0};
    struct stk_file *file;
    uint64_t before;
    int64_t got;
    int status = stk_told_before(dataset->index, sample, sample_id, number, &before, error);

    status = status < 0 ? status : stk_dataset_pin(dataset, member->shard, &file, error);
    if (status < 0) {
        return status;
    }
    headers.bytes = stk_min(member->offset - before, sizeof room);
    got = stk_io_read_wait(dataset->engine->io, file, before, room, headers.bytes);
    stk_dataset_unpin(dataset, member->shard, file);
    if (got < 0) {
        return stk_fail(error, (int)got, "cannot read", "check the file and its disk", "%s",
                        stoker_status_text((int)got));
    }
    return stk_told_check(dataset->index, headers, sample->key, member, error);
}

static int read_plain(struct stoker_dataset *dataset, const struct stk_member *member, void *buffer,
                      size_t capacity, size_t *bytes_out, struct stoker_error *error)
{
    struct stk_io *io = dataset->engine->io;
    struct stk_stat about = {.bytes = member->bytes};
    struct stk_file *file;
    int64_t got = 0;
    int status = stk_dataset_pin(dataset, member->shard, &file, error);

    if (status < 0) {
        return status;
    }
    if (member->bytes == STK_WHOLE) {
        status = stk_io_stat_file(io, file, &about, error);
    }
    if (status == 0) {
        *bytes_out = about.bytes;
        if (about.bytes > capacity) {
            status = stk_fail(error, STOKER_ERROR_LIMIT, "the buffer is too small",
                              "call again with more room", "%llu bytes",
                              (unsigned long long)about.bytes);
        } else {
            got = stk_io_read_wait(io, file, member->offset, buffer, about.bytes);
            status = got < 0 ? stk_io_fail_read(io, file, got, "cannot read", error) : 0;
        }
    }
    stk_dataset_unpin(dataset, member->shard, file);
    if (status < 0) {
        return status;
    }
    if ((uint64_t)got < about.bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "the file ends inside a member",
                        "fetch the shard again", "%lld of %llu bytes", (long long)got,
                        (unsigned long long)about.bytes);
    }
    return 0;
}

static int read_packed(struct stoker_dataset *dataset, const struct stk_member *member,
                       void *buffer, size_t capacity, size_t *bytes_out, struct stoker_error *error)
{
    struct stk_stream *stream;
    size_t got = 0;
    int status;

    *bytes_out = member->bytes;
    if (member->bytes > capacity) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the buffer is too small",
                        "call again with more room", "%llu bytes",
                        (unsigned long long)member->bytes);
    }
    status = stk_stream_open_shard(&stream, dataset, member->shard, error);
    if (status == 0) {
        status = stk_stream_read(stream, member->offset, buffer, member->bytes, &got, error);
        stk_stream_close(stream);
    }
    if (status == 0 && got < member->bytes) {
        status = stk_fail(error, STOKER_ERROR_TRUNCATED, "the shard ends inside a member",
                          "fetch the shard again", "%zu of %llu bytes", got,
                          (unsigned long long)member->bytes);
    }
    return status;
}

int stoker_dataset_read(struct stoker_dataset *dataset, uint64_t sample, const char *extension,
                        void *buffer, size_t capacity, size_t *bytes_out,
                        struct stoker_error *error)
{
    struct stk_sample found;
    struct stk_member member = {0};
    uint32_t number = 0;
    char key[256];
    int status = stk_engine_check(dataset->engine, error);

    *bytes_out = 0;
    status = status < 0 ? status : check_sample(dataset, sample, error);
    if (status < 0) {
        return status;
    }
    status = stk_index_sample(dataset->index, sample, &found, error);
    if (status < 0) {
        return status;
    }
    status = find_member(dataset, &found, extension, &member, &number, error);
    if (status < 0) {
        member = (struct stk_member){.shard = found.shard};
    } else if (stk_index_unproved(dataset->index, member.shard)) {
        status = prove(dataset, sample, &found, number, &member, error);
    }
    if (status == 0) {
        bool packed = stk_index_shard_packing(dataset->index, member.shard) != STK_PLAIN;
        status = packed ? read_packed(dataset, &member, buffer, capacity, bytes_out, error)
                        : read_plain(dataset, &member, buffer, capacity, bytes_out, error);
    }
    if (status < 0) {
        snprintf(key, sizeof key, "%.*s", (int)stk_min(found.key.bytes, sizeof key - 1),
                 (const char *)found.key.data);
        stk_dataset_place(dataset, error, member.shard, member.offset, key);
    }
    return status;
}
