/* The description of a data set, and reads of single members. */
#include "base/mem.h"
#include "base/options.h"
#include "base/text/parse_number.h"
#include "dataset/dataset.h"

#include "base/xxh3.h"
#include "dataset/index_locate.h"
#include "format/compress/decompress.h"
#include "io/filesystem/filesystem.h"
#include "order/schedule/order_default.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_BYTES_MAX 4096u
#define SHARDS_INSPECTED 4u /* of many: the first one, the last ones, and some between */

int stoker_dataset_info(const struct stoker_dataset *dataset, struct stoker_dataset_info *info)
{
    struct stoker_dataset_info full = {0};
    const struct stk_index *index = dataset->index;

    full.kind = stk_dataset_is_joined(dataset)               ? "joined"
                : dataset->objects.kind == STK_SOURCE_FOLDER ? "imagefolder"
                                                             : "webdataset";
    full.sample_count = stk_index_samples(index);
    full.member_count = stk_index_members(index);
    full.shard_count = stk_index_shards(index);
    full.class_count = stk_index_classes(index);
    full.bytes = stk_index_is_folder(index) ? 0 : stk_index_bytes(index);
    full.block_samples = stk_index_block_samples(index);
    full.sequential = stk_index_is_sequential(index);
    full.index_path = dataset->index_path;
    full.index_note = dataset->index_note ? dataset->index_note : "";
    full.shards_indexed = dataset->shards_indexed;
    full.shards_foreign =
        stk_foreign_index_unverified(index) + stk_foreign_index_used(dataset->foreign_index);
    full.foreign_note = stk_foreign_index_note(dataset->foreign_index);
    full.jpeg_index_note = dataset->jpeg_index_note ? dataset->jpeg_index_note : "";
    full.jpeg_indexed = dataset->jpeg_index != NULL;
    full.jpeg_index_mcus = dataset->jpeg_index ? stk_jpeg_index_mcus(dataset->jpeg_index) : 0;
    full.skipped_system = stk_index_skipped(index, STK_INDEX_SKIPPED_SYSTEM) +
                          (stk_index_is_folder(index) ? 0 : dataset->objects.system_count);
    full.skipped_links = stk_index_skipped(index, STK_INDEX_SKIPPED_LINKS);
    full.skipped_special = stk_index_skipped(index, STK_INDEX_SKIPPED_SPECIAL);
    full.skipped_unnamed = stk_index_skipped(index, STK_INDEX_SKIPPED_UNNAMED);
    full.problem_count = dataset->objects.problem_count;
    full.random_reads_free =
        stk_dataset_default_order(dataset, &full.default_shuffle, &full.default_window_blocks);
    memcpy(full.identity, stk_index_identity(index), sizeof full.identity);
    return stk_options_write_output(info, &full, sizeof full, "data set info", NULL);
}

int stoker_dataset_problem(const struct stoker_dataset *dataset, uint64_t i, const char **path_out,
                           const char **text_out)
{
    static const char *const texts[] = {
        [STK_SOURCE_UNREADABLE] = "a link to nothing, a pipe or a device",
        [STK_SOURCE_EMPTY_CLASS] = "a class folder without images",
        [STK_SOURCE_SYSTEM_FILE] = "left by an operating system or a notebook"};

    *path_out = *text_out = NULL;
    if (i >= dataset->objects.problems_listed) {
        return STOKER_ERROR_ARGUMENT;
    }
    *path_out = dataset->objects.problems[i].path;
    *text_out = texts[dataset->objects.problems[i].kind];
    return 0;
}

static bool shard_reads_are_free(const struct stoker_dataset *dataset, uint32_t shard,
                                 uint64_t *free_device)
{
    const struct stk_index *index = dataset->index;
    char path[STK_PATH_BYTES_MAX];

    if (stk_index_is_file(index, shard)) {
        return true;
    }
    return stk_index_shard_compression(index, shard) == STK_COMPRESSION_NONE &&
           stk_index_path(index, shard, path, NULL) == 0 &&
           stk_filesystem_has_free_reads(dataset->engine->io, path, free_device);
}

static bool reads_are_free(const struct stoker_dataset *dataset)
{
    uint64_t shards = stk_index_shards(dataset->index);
    uint64_t step = stk_max(shards / (SHARDS_INSPECTED - 1), 1), free_device = 0;

    if (dataset->objects.kind == STK_SOURCE_FOLDER && !stk_dataset_is_joined(dataset)) {
        return true;
    }
    for (uint64_t shard = 0; shard < shards; shard += step) {
        if (!shard_reads_are_free(dataset, (uint32_t)shard, &free_device)) {
            return false;
        }
    }
    return true;
}

bool stk_dataset_default_order(const struct stoker_dataset *dataset, uint32_t *shuffle_out,
                               uint32_t *window_blocks_out)
{
    const struct stk_index *index = dataset->index;
    uint64_t samples = stk_max(stk_index_samples(index), 1);
    uint64_t block_bytes = stk_index_bytes(index) / samples * stk_index_block_samples(index);
    bool is_free = reads_are_free(dataset);

    *shuffle_out = is_free ? STOKER_SHUFFLE_FULL : STOKER_SHUFFLE_BLOCK;
    *window_blocks_out =
        is_free ? STK_ORDER_WINDOW_DEFAULT
                : stk_order_window_within(dataset->engine->budget.bytes_max, block_bytes);
    if (stk_index_is_sequential(index)) {
        *shuffle_out = STOKER_SHUFFLE_NONE;
    }
    return is_free;
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

int stk_dataset_read_path_classes(struct stoker_dataset *dataset, struct stoker_error *error)
{
    int status = 0;

    pthread_mutex_lock(&dataset->lock);
    if (!dataset->path_classes) {
        status =
            stk_path_classes_open(&dataset->path_classes, dataset->index, dataset->options.classes,
                                  dataset->options.class_count, error);
    }
    pthread_mutex_unlock(&dataset->lock);
    return status;
}

int stoker_dataset_path_class(struct stoker_dataset *dataset, uint64_t class_index,
                              const char **name_out, struct stoker_error *error)
{
    int status = stk_engine_check(dataset->engine, error);

    *name_out = NULL;
    status = status < 0 ? status : stk_dataset_read_path_classes(dataset, error);
    if (status == 0 && class_index >= dataset->path_classes->names.count) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such class",
                          "use a number below the number of classes", "class %llu of %u",
                          (unsigned long long)class_index, dataset->path_classes->names.count);
    }
    if (status == 0) {
        *name_out = dataset->path_classes->sorted[class_index];
    }
    return status;
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

/* Returns the table of paths of a mapped index. The first caller makes it. */
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

/* Sets *path_out to a shard's path, valid until the data set is closed. The first caller makes it.
 */
static int shard_path(const struct stoker_dataset *dataset, uint32_t shard, const char **path_out,
                      struct stoker_error *error)
{
    char text[STK_PATH_BYTES_MAX];
    char *path, *before = NULL;
    _Atomic(char *) *paths;
    int status;

    *path_out = stk_index_path_view(dataset->index, shard);
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
            status = shard_path(dataset, member.shard, &members[i].shard, error);
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

/* Reads the headers before a member of a foreign index, and compares them with it. */
static int verify_foreign_member(struct stoker_dataset *dataset, uint64_t sample_id,
                                 const struct stk_sample *sample, uint32_t number,
                                 const struct stk_member *member, struct stoker_error *error)
{
    uint8_t room[STK_FOREIGN_INDEX_GAP_MAX];
    struct stk_view headers = {room, 0};
    struct stk_file *file;
    uint64_t before;
    int64_t got;
    int status =
        stk_foreign_index_header_offset(dataset->index, sample, sample_id, number, &before, error);

    status = status < 0 ? status
                        : stk_dataset_pin(dataset, member->shard, stk_engine_now(dataset->engine),
                                          &file, error);
    if (status < 0) {
        return status;
    }
    headers.bytes = stk_min(member->offset - before, sizeof room);
    got = stk_io_read_wait(file, before, room, headers.bytes);
    stk_dataset_unpin(dataset, member->shard, file);
    if (got < 0) {
        return stk_fail(error, (int)got, "cannot read", "check the file and its disk", "%s",
                        stoker_status_text((int)got));
    }
    return stk_foreign_index_check(dataset->index, headers, sample->key, member, error);
}

static int read_uncompressed(struct stoker_dataset *dataset, const struct stk_member *member,
                             void *buffer, size_t capacity, size_t *bytes_out,
                             struct stoker_error *error)
{
    struct stk_stat about = {.bytes = member->bytes};
    struct stk_file *file;
    int64_t got = 0;
    int status =
        stk_dataset_pin(dataset, member->shard, stk_engine_now(dataset->engine), &file, error);

    if (status < 0) {
        return status;
    }
    if (member->bytes == STK_ENTIRE_OBJECT) {
        status = stk_io_stat_file(file, &about, error);
    }
    if (status == 0) {
        *bytes_out = about.bytes;
        if (about.bytes > capacity) {
            status = stk_fail(error, STOKER_ERROR_LIMIT, "the buffer is too small",
                              "call again with a larger buffer", "%llu bytes",
                              (unsigned long long)about.bytes);
        } else {
            got = stk_io_read_wait(file, member->offset, buffer, about.bytes);
            status = got < 0 ? stk_io_fail_read(file, got, "cannot read", error) : 0;
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

static int read_compressed(struct stoker_dataset *dataset, const struct stk_member *member,
                           void *buffer, size_t capacity, size_t *bytes_out,
                           struct stoker_error *error)
{
    struct stk_shard_stream *stream;
    size_t got = 0;
    int status;

    *bytes_out = member->bytes;
    if (member->bytes > capacity) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the buffer is too small",
                        "call again with a larger buffer", "%llu bytes",
                        (unsigned long long)member->bytes);
    }
    status = stk_dataset_open_stream(&stream, dataset, member->shard, error);
    if (status == 0) {
        status = stk_shard_stream_read(stream, member->offset, buffer, member->bytes, &got, error);
        stk_shard_stream_close(stream);
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
    } else if (stk_index_shard_is_unverified(dataset->index, member.shard)) {
        status = verify_foreign_member(dataset, sample, &found, number, &member, error);
    }
    if (status == 0) {
        bool packed =
            stk_index_shard_compression(dataset->index, member.shard) != STK_COMPRESSION_NONE;
        status = packed ? read_compressed(dataset, &member, buffer, capacity, bytes_out, error)
                        : read_uncompressed(dataset, &member, buffer, capacity, bytes_out, error);
    }
    if (status < 0) {
        snprintf(key, sizeof key, "%.*s", (int)stk_min(found.key.bytes, sizeof key - 1),
                 (const char *)found.key.data);
        stk_dataset_error_add_location(dataset, error, member.shard, member.offset, key);
    }
    return status;
}

int stoker_dataset_label(struct stoker_dataset *dataset, uint64_t sample, int64_t *label_out,
                         struct stoker_error *error)
{
    char text[LABEL_BYTES_MAX + 1];
    struct stk_sample found;
    size_t bytes = 0;
    const char *end = NULL;
    int status = check_sample(dataset, sample, error);

    status = status < 0 ? status : stk_index_sample(dataset->index, sample, &found, error);
    if (status < 0) {
        return status;
    }
    if (found.label >= 0) {
        *label_out = found.label;
        return 0;
    }
    status = stoker_dataset_read(dataset, sample, "cls", text, LABEL_BYTES_MAX, &bytes, error);
    if (status == STOKER_ERROR_LIMIT && error) {
        snprintf(error->what, sizeof error->what, "a member cls is too long for a label");
        snprintf(error->advice, sizeof error->advice, "write a label of at most %u bytes",
                 LABEL_BYTES_MAX);
    }
    if (status < 0) {
        return status;
    }
    text[bytes] = 0;
    if (!stk_parse_int64(text, &end, label_out) || !stk_parse_is_end(end, text + bytes)) {
        *label_out = (int64_t)(stk_xxh3_64(text, bytes) >> 1);
    }
    return 0;
}
