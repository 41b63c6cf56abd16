/* Data sets: opening, open files, and single reads for tools. */
#include "dataset/dataset.h"

#include "format/unpack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int resolve(struct stoker_dataset_options *options,
                   const struct stoker_dataset_options *given, struct stoker_error *error);

int stoker_dataset_open(struct stoker_dataset **dataset_out, struct stoker_engine *engine,
                        const struct stoker_dataset_options *options, struct stoker_error *error)
{
    struct stoker_dataset *dataset;
    int                    status;

    *dataset_out = NULL;
    status = stk_engine_check(engine, error);
    if (status < 0) {
        return status;
    }
    dataset = stk_alloc(1, sizeof *dataset);
    if (!dataset) {
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "data set");
    }
    dataset->engine = engine;
    dataset->references = 1;
    pthread_mutex_init(&dataset->lock, NULL);
    stk_engine_hold(engine);
    status = resolve(&dataset->options, options, error);
    if (status == 0) {
        status = stk_source_list(engine->io, dataset->options.urls, dataset->options.url_count,
                                 &dataset->objects, error);
    }
    if (status == 0 && dataset->objects.kind == STK_SOURCE_TARS) {
        dataset->locked.files = stk_alloc(dataset->objects.count, sizeof(struct stk_open_file));
        if (!dataset->locked.files) {
            status = stk_fail(error, -ENOMEM, "cannot open a data set", "free memory",
                              "%llu shards", (unsigned long long)dataset->objects.count);
        }
    }
    status = status < 0 ? status : stk_scan(dataset, error);
    dataset->options.urls = NULL; /* borrowed until here */
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
    options->block_bytes = options->block_bytes ? options->block_bytes : 8u << 20;
    return 0;
}

void stk_dataset_hold(struct stoker_dataset *dataset)
{
    atomic_fetch_add_explicit(&dataset->references, 1, memory_order_relaxed);
}

void stk_dataset_release(struct stoker_dataset *dataset)
{
    struct stoker_engine *engine = dataset->engine;

    if (stk_engine_check(engine, NULL) < 0 ||
        atomic_fetch_sub_explicit(&dataset->references, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (uint64_t i = 0; dataset->locked.files && i < dataset->objects.count; i++) {
        if (dataset->locked.files[i].file) {
            stk_io_close_file(engine->io, dataset->locked.files[i].file);
        }
    }
    stk_free(dataset->locked.files);
    for (uint64_t i = 0; dataset->paths && i < stk_index_shards(dataset->index); i++) {
        stk_free(dataset->paths[i]);
    }
    stk_free(dataset->paths);
    stk_index_close(dataset->index);
    stk_objects_deinit(&dataset->objects);
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
    struct stk_io        *io = dataset->engine->io;
    char                  path[STK_PATH_BYTES_MAX];
    struct stk_open_file *entry;
    struct stk_file      *file, *evicted = NULL;
    int                   status;

    if (!dataset->locked.files) {
        status = stk_index_path(dataset->index, shard, path, error);
        status = status < 0 ? status : stk_io_open_file(io, path, file_out, error);
        if (status == 0) {
            pthread_mutex_lock(&dataset->lock);
            dataset->locked.in_use++;
            pthread_mutex_unlock(&dataset->lock);
        }
        return status;
    }
    pthread_mutex_lock(&dataset->lock);
    entry = &dataset->locked.files[shard];
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
    bool crowded;

    pthread_mutex_lock(&dataset->lock);
    crowded = dataset->locked.in_use >= dataset->engine->options.open_files_max &&
              (!dataset->locked.files || dataset->locked.files[shard].pins == 0);
    pthread_mutex_unlock(&dataset->lock);
    return crowded;
}

void stk_dataset_forget(struct stoker_dataset *dataset, uint32_t shard)
{
    struct stk_file *gone = NULL;

    pthread_mutex_lock(&dataset->lock);
    if (dataset->locked.files && dataset->locked.files[shard].pins == 0) {
        gone = dataset->locked.files[shard].file;
        dataset->locked.files[shard].file = NULL;
        dataset->locked.open_count -= gone != NULL;
    }
    pthread_mutex_unlock(&dataset->lock);
    if (gone) {
        stk_io_close_file(dataset->engine->io, gone);
    }
}

void stk_dataset_unpin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file *file)
{
    if (!dataset->locked.files) {
        stk_io_close_file(dataset->engine->io, file);
    }
    pthread_mutex_lock(&dataset->lock);
    STK_ASSERT(!dataset->locked.files || dataset->locked.files[shard].pins > 0);
    dataset->locked.in_use -= !dataset->locked.files || --dataset->locked.files[shard].pins == 0;
    pthread_mutex_unlock(&dataset->lock);
}

int stoker_dataset_info(const struct stoker_dataset *dataset, struct stoker_dataset_info *info)
{
    struct stoker_dataset_info full = { 0 };
    const struct stk_index    *index = dataset->index;

    if (info->struct_size > sizeof full || info->struct_size < sizeof info->struct_size) {
        return STOKER_ERROR_ARGUMENT;
    }
    full.struct_size = info->struct_size;
    full.kind = dataset->objects.kind == STK_SOURCE_FOLDER ? "imagefolder" : "webdataset";
    full.sample_count = stk_index_samples(index);
    full.member_count = stk_index_members(index);
    full.shard_count = dataset->objects.count;
    full.class_count = dataset->objects.class_count;
    full.bytes = stk_index_bytes(index);
    full.block_samples = stk_index_block_samples(index);
    full.sequential = stk_index_sequential(index);
    memcpy(full.identity, stk_index_identity(index), sizeof full.identity);
    memcpy(info, &full, info->struct_size);
    return 0;
}

int stoker_dataset_class(const struct stoker_dataset *dataset, uint64_t class_index,
                         const char **name_out)
{
    *name_out = NULL;
    if (class_index >= dataset->objects.class_count) {
        return STOKER_ERROR_ARGUMENT;
    }
    *name_out = dataset->objects.text + dataset->objects.class_names[class_index];
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

/* A shard's path, lent until the data set is closed. Made once, by whoever asks first. */
static int lend_path(const struct stoker_dataset *dataset, uint32_t shard, const char **path_out,
                     struct stoker_error *error)
{
    char  text[STK_PATH_BYTES_MAX];
    char *path, *before = NULL;
    int   status;

    *path_out = stk_index_path_lent(dataset->index, shard);
    if (!*path_out) {
        *path_out = atomic_load_explicit(&dataset->paths[shard], memory_order_acquire);
    }
    if (*path_out) {
        return 0;
    }
    status = stk_index_path(dataset->index, shard, text, error);
    if (status < 0) {
        return status;
    }
    path = stk_strdup(text);
    if (!path) {
        return stk_fail(error, -ENOMEM, "cannot name a shard", "free memory", "'%s'", text);
    }
    if (!atomic_compare_exchange_strong(&dataset->paths[shard], &before, path)) {
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
    size_t            capacity = *member_count;
    struct stk_sample found;
    int               status = check_sample(dataset, sample, error);

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
                       const char *extension, struct stk_member *member_out,
                       struct stoker_error *error)
{
    for (uint32_t i = 0; i < sample->member_count; i++) {
        int status = stk_index_member(dataset->index, sample, i, member_out, error);
        if (status < 0) {
            return status;
        }
        if (!extension ||
            strcmp(stk_index_extension(dataset->index, member_out->extension), extension) == 0) {
            return 0;
        }
    }
    return stk_fail(error, STOKER_ERROR_MISSING, "the sample has no such member",
                    "'stoker ls' shows what it has", "extension '%s'", extension ? extension : "");
}

static int read_plain(struct stoker_dataset *dataset, const struct stk_member *member,
                      void *buffer, size_t capacity, size_t *bytes_out,
                      struct stoker_error *error)
{
    struct stk_io   *io = dataset->engine->io;
    struct stk_stat  about = { .bytes = member->bytes };
    struct stk_file *file;
    int64_t          got = 0;
    int              status = stk_dataset_pin(dataset, member->shard, &file, error);

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
        }
    }
    stk_dataset_unpin(dataset, member->shard, file);
    if (status < 0) {
        return status;
    }
    if (got < 0) {
        return stk_fail(error, (int)got, "cannot read", "check the file and its disk", "%s",
                        stoker_status_text((int)got));
    }
    if ((uint64_t)got < about.bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "the file ends inside a member",
                        "fetch the shard again", "%lld of %llu bytes", (long long)got,
                        (unsigned long long)about.bytes);
    }
    return 0;
}

static int read_packed(struct stoker_dataset *dataset, const struct stk_member *member,
                       void *buffer, size_t capacity, size_t *bytes_out,
                       struct stoker_error *error)
{
    struct stk_stream *stream;
    size_t             got = 0;
    int                status;

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
    struct stk_member member;
    char              key[256];
    int               status = stk_engine_check(dataset->engine, error);

    *bytes_out = 0;
    status = status < 0 ? status : check_sample(dataset, sample, error);
    if (status < 0) {
        return status;
    }
    status = stk_index_sample(dataset->index, sample, &found, error);
    if (status < 0) {
        return status;
    }
    status = find_member(dataset, &found, extension, &member, error);
    if (status == 0) {
        bool packed = stk_index_shard_packing(dataset->index, member.shard) != STK_PLAIN;
        status = packed ? read_packed(dataset, &member, buffer, capacity, bytes_out, error)
                        : read_plain(dataset, &member, buffer, capacity, bytes_out, error);
    } else {
        member = (struct stk_member){ .shard = found.shard };
    }
    if (status < 0) {
        snprintf(key, sizeof key, "%.*s", (int)stk_min(found.key.bytes, sizeof key - 1),
                 (const char *)found.key.data);
        stk_dataset_place(dataset, error, member.shard, member.offset, key);
    }
    return status;
}
