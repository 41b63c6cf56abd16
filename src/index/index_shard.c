/* A shard's part of the index: members are grouped into samples as they are added, and stored
 * compactly at the end of the shard. */
#include "index/index_shard.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/system_file.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "format/tar/wds_name.h"

#include <errno.h>
#include <string.h>

#define UNNAMED_MAX (1u << 20) /* files without a key whose places are kept */

static int add_unnamed(struct stk_index_shard_builder *builder, struct stk_view name,
                       uint64_t offset, uint64_t bytes, struct stoker_error *error);
static int find_sample(struct stk_index_shard_builder *builder, struct stk_view key,
                       uint64_t offset, struct stoker_error *error);
static int find_extension(struct stk_index_shard_builder *builder, struct stk_view extension,
                          uint32_t *number_out);
static int make_part(struct stk_index_shard_builder *builder, struct stk_index_part **part_out,
                     struct stoker_error *error);
static int group(struct stk_index_shard_builder *builder, struct stk_index_part *part);
static int sort_members(struct stk_index_shard_builder *builder, const uint32_t *first);
static int check_duplicates(const struct stk_index_shard_builder *builder,
                            const struct stk_index_part *part, struct stoker_error *error);
static int pack_columns(const struct stk_index_shard_builder *builder, struct stk_index_part *part);
static int number_extensions(const struct stk_index_shard_builder *builder,
                             struct stk_index_part *part);
static void digest(const struct stk_index_shard_builder *builder, struct stk_index_part *part);
static int intern_locked(struct stk_index *index, struct stk_view text, uint32_t *number_out);
static const char *store_locked(struct stk_index *index, const char *path, struct stk_view key);
static int copy_extras(struct stk_index_shard_builder *builder, struct stk_index_part *part,
                       struct stoker_error *error);
static int put_file_sum(struct stk_index_shard_builder *builder);
static int fail(const struct stk_index_shard_builder *builder, int status, uint64_t offset,
                struct stk_view key, struct stoker_error *error);
static int fail_member(const struct stk_index_shard_builder *builder, struct stk_view key,
                       uint64_t offset, const char *detail, struct stoker_error *error);

static const struct stk_view no_key = {(const uint8_t *)"", 0};

int stk_index_shard_begin(struct stk_index *index, uint32_t shard, const char *path,
                          struct stk_index_shard_builder **builder_out, struct stoker_error *error)
{
    size_t path_bytes = strlen(path) + 1;
    struct stk_index_shard_builder *builder = stk_alloc(sizeof *builder + path_bytes, 1);

    STK_ASSERT(shard < index->options.shard_count);
    STK_ASSERT(!index->finished && index->shards[shard].kind == STK_INDEX_SHARD_EMPTY);
    *builder_out = NULL;
    if (!builder) {
        return stk_fail(error, -ENOMEM, "no memory for the index", "free memory", "'%s'", path);
    }
    builder->index = index;
    builder->shard = shard;
    memcpy(builder->path, path, path_bytes);
    *builder_out = builder;
    return 0;
}

void stk_index_shard_cancel(struct stk_index_shard_builder *builder)
{
    if (builder) {
        stk_string_table_deinit(&builder->keys);
        stk_string_table_deinit(&builder->extensions);
        stk_string_table_deinit(&builder->unnamed);
        stk_free(builder->unnamed_places);
        stk_free(builder->members);
        stk_free(builder->last_member);
        stk_free(builder->sums);
        stk_free(builder->labels);
        stk_free((void *)(uintptr_t)builder->access.data);
        stk_free(builder);
    }
}

int stk_index_shard_add(struct stk_index_shard_builder *builder, struct stk_view name,
                        uint64_t offset, uint64_t bytes, struct stoker_error *error)
{
    const char *refusal = stk_wds_name_error(name);
    struct stk_view key, extension;
    struct raw_member *member;
    int status;

    STK_ASSERT(builder->file.kind == STK_INDEX_SHARD_EMPTY);
    builder->added = false;
    builder->unnamed_last = UINT32_MAX;
    if (stk_system_file_in_path(name)) {
        builder->skipped.system_files++;
        return 0;
    }
    if (refusal) {
        return fail_member(builder, name, offset, refusal, error);
    }
    if (!stk_wds_name_split(name, &key, &extension)) {
        builder->skipped.unnamed++;
        return add_unnamed(builder, name, offset, bytes, error);
    }
    if (extension.bytes == 7 && memcmp(extension.data, "__key__", 7) == 0) {
        return fail_member(builder, key, offset, "the extension '__key__' is reserved for the key",
                           error);
    }
    if (key.bytes > builder->index->options.key_bytes_max ||
        extension.bytes >= STK_INDEX_EXTENSION_BYTES_MAX ||
        builder->member_count >= STK_INDEX_MEMBERS_MAX) {
        return fail(builder, STOKER_ERROR_LIMIT, offset, key, error);
    }
    if (builder->member_count == builder->member_capacity) {
        uint32_t capacity = builder->member_capacity ? builder->member_capacity * 2 : 64;
        member = stk_realloc(builder->members, builder->member_capacity, capacity, sizeof *member);
        if (!member) {
            return fail(builder, -ENOMEM, offset, key, error);
        }
        builder->members = member;
        builder->member_capacity = capacity;
    }
    member = &builder->members[builder->member_count];
    status = find_extension(builder, extension, &member->extension);
    if (status < 0) {
        return fail(builder, status, offset, key, error);
    }
    status = find_sample(builder, key, offset, error);
    if (status < 0) {
        return status;
    }
    member->offset = offset;
    member->bytes = bytes;
    member->sample = builder->sample;
    builder->last_member[builder->sample] = builder->member_count++;
    builder->added = true;
    return 0;
}

/* Keeps the place of a file that is no part of a sample: a hard link may refer to it. */
static int add_unnamed(struct stk_index_shard_builder *builder, struct stk_view name,
                       uint64_t offset, uint64_t bytes, struct stoker_error *error)
{
    uint32_t number;
    int status;

    if (builder->unnamed.count == builder->unnamed_capacity) {
        uint32_t capacity = builder->unnamed_capacity ? builder->unnamed_capacity * 2 : 16;
        uint64_t (*grown)[3] = stk_realloc(builder->unnamed_places, builder->unnamed_capacity,
                                           capacity, sizeof *grown);

        if (!grown) {
            return fail(builder, -ENOMEM, offset, name, error);
        }
        builder->unnamed_places = grown;
        builder->unnamed_capacity = capacity;
    }
    status = stk_string_table_add(&builder->unnamed, name, UNNAMED_MAX, &number);
    if (status == 0) {
        builder->unnamed_last = number;
        builder->unnamed_places[number][0] = offset;
        builder->unnamed_places[number][1] = bytes;
    }
    /* If the table is full, later links have no target and are counted. */
    return status == -ENOMEM ? fail(builder, status, offset, name, error) : 0;
}

int stk_index_shard_set_checksum(struct stk_index_shard_builder *builder, uint64_t sum,
                                 struct stoker_error *error)
{
    if (builder->file.kind == STK_INDEX_SHARD_FILE) {
        builder->file_sum = sum;
        builder->sum_count = 1;
        return 0;
    }
    if (!builder->added) {
        if (builder->unnamed_last < builder->unnamed.count) {
            builder->unnamed_places[builder->unnamed_last][2] = sum;
        }
        return 0;
    }
    if (builder->sums_capacity < builder->member_count) {
        uint64_t *sums = stk_realloc(builder->sums, builder->sums_capacity,
                                     builder->member_capacity, sizeof *sums);
        if (!sums) {
            return fail(builder, -ENOMEM, STOKER_NO_OFFSET, no_key, error);
        }
        builder->sums = sums;
        builder->sums_capacity = builder->member_capacity;
    }
    builder->sums[builder->member_count - 1] = sum;
    builder->sum_count++;
    return 0;
}

int stk_index_shard_set_label(struct stk_index_shard_builder *builder, int64_t label,
                              struct stoker_error *error)
{
    STK_ASSERT(builder->file.kind == STK_INDEX_SHARD_EMPTY);
    if (!builder->added) {
        return 0;
    }
    if (builder->labels_capacity < builder->keys.count) {
        int64_t *labels = stk_realloc(builder->labels, builder->labels_capacity,
                                      builder->sample_capacity, sizeof *labels);
        if (!labels) {
            return fail(builder, -ENOMEM, STOKER_NO_OFFSET, no_key, error);
        }
        for (uint32_t i = builder->labels_capacity; i < builder->sample_capacity; i++) {
            labels[i] = -1;
        }
        builder->labels = labels;
        builder->labels_capacity = builder->sample_capacity;
    }
    builder->labels[builder->sample] = label;
    return 0;
}

void stk_index_shard_set_digest(struct stk_index_shard_builder *builder, const uint8_t sha256[32])
{
    memcpy(builder->sha256, sha256, sizeof builder->sha256);
    builder->has_digest = true;
}

void stk_index_shard_set_seek_points(struct stk_index_shard_builder *builder, struct stk_view image)
{
    STK_ASSERT(!builder->access.data && image.bytes <= STK_SEEK_POINTS_IMAGE_MAX);
    builder->access = image;
}

void stk_index_shard_set_unverified(struct stk_index_shard_builder *builder)
{
    builder->unproved = true;
}

int stk_index_shard_add_file(struct stk_index_shard_builder *builder, struct stk_view key,
                             struct stk_view extension, int64_t label, struct stoker_error *error)
{
    struct stk_index_shard *file = &builder->file;
    struct stk_index *index = builder->index;
    size_t path_bytes = strlen(builder->path);
    uint32_t number;
    int status;

    STK_ASSERT(file->kind == STK_INDEX_SHARD_EMPTY && builder->member_count == 0);
    if (key.bytes > index->options.key_bytes_max || path_bytes + key.bytes >= UINT16_MAX) {
        return fail(builder, STOKER_ERROR_LIMIT, STOKER_NO_OFFSET, key, error);
    }
    status = find_extension(builder, extension, &number);
    if (status == 0) {
        /* Most keys are the end of the path, and then need no bytes of their own. */
        bool is_end = key.bytes <= path_bytes &&
                      memcmp(builder->path + path_bytes - key.bytes, key.data, key.bytes) == 0;

        pthread_mutex_lock(&index->lock);
        status = intern_locked(index, stk_string_table_get(&builder->extensions, number), &number);
        file->path = store_locked(index, builder->path, is_end ? no_key : key);
        pthread_mutex_unlock(&index->lock);
        file->key_at = is_end ? path_bytes - key.bytes : path_bytes + 1;
    }
    if (status < 0 || !file->path) {
        return fail(builder, status < 0 ? status : -ENOMEM, STOKER_NO_OFFSET, key, error);
    }
    file->kind = STK_INDEX_SHARD_FILE;
    file->key_bytes = key.bytes;
    file->extension = number;
    file->of.label = label;
    return 0;
}

int stk_index_shard_end(struct stk_index_shard_builder *builder, uint64_t object_bytes,
                        uint32_t compression, struct stoker_error *error)
{
    struct stk_index_shard shard = builder->file;
    struct stk_index *index = builder->index;
    struct stk_index_part *part = NULL;
    int status = 0;

    STK_ASSERT(compression <= STK_COMPRESSION_XZ);
    if (shard.kind == STK_INDEX_SHARD_EMPTY) {
        status = make_part(builder, &part, error);
        if (status < 0) {
            goto done;
        }
        shard.path = stk_index_add_text(index, builder->path, no_key);
        if (!shard.path) {
            status = fail(builder, -ENOMEM, STOKER_NO_OFFSET, no_key, error);
            goto done;
        }
        shard.kind = STK_INDEX_SHARD_TAR;
        shard.of.part = part;
        part = NULL;
    } else if (builder->sum_count > 0) {
        status = put_file_sum(builder);
        if (status < 0) {
            fail(builder, status, STOKER_NO_OFFSET, no_key, error);
            goto done;
        }
    }
    shard.object_bytes = object_bytes;
    shard.compression = compression;
    index->shards[builder->shard] = shard;
done:
    stk_index_part_close(part);
    stk_index_shard_cancel(builder);
    return status;
}

/* Lower-cases ASCII letters and numbers the extension in the builder. */
static int find_extension(struct stk_index_shard_builder *builder, struct stk_view extension,
                          uint32_t *number_out)
{
    uint8_t lower[STK_INDEX_EXTENSION_BYTES_MAX];

    if (extension.bytes >= sizeof lower) {
        return STOKER_ERROR_LIMIT;
    }
    for (size_t i = 0; i < extension.bytes; i++) {
        uint8_t byte = extension.data[i];
        lower[i] = byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte;
    }
    lower[extension.bytes] = '\0';
    return stk_string_table_add(&builder->extensions, (struct stk_view){lower, extension.bytes + 1},
                                STK_INDEX_EXTENSIONS_MAX, number_out);
}

/* Sets builder->sample to the key's, a new one if need be. */
static int find_sample(struct stk_index_shard_builder *builder, struct stk_view key,
                       uint64_t offset, struct stoker_error *error)
{
    uint32_t count = builder->keys.count;
    uint32_t sample;
    int status;

    if (count > 0) {
        struct stk_view current = stk_string_table_get(&builder->keys, builder->sample);
        if (current.bytes == key.bytes && memcmp(current.data, key.data, key.bytes) == 0) {
            return 0; /* the usual case: the sample continues */
        }
    }
    if (count == builder->sample_capacity) {
        uint32_t capacity = count ? count * 2 : 64;
        uint32_t *last = stk_realloc(builder->last_member, count, capacity, sizeof *last);
        if (!last) {
            return fail(builder, -ENOMEM, offset, key, error);
        }
        builder->last_member = last;
        builder->sample_capacity = capacity;
    }
    status = stk_string_table_add(&builder->keys, key, STK_INDEX_MEMBERS_MAX, &sample);
    if (status < 0) {
        return fail(builder, status, offset, key, error);
    }
    if (sample < count) {
        uint32_t between = builder->member_count - builder->last_member[sample] - 1;
        if (between > builder->index->options.member_gap_max) {
            return fail(builder, STOKER_ERROR_SCATTERED, offset, key, error);
        }
        builder->joined = true;
    }
    builder->sample = sample;
    return 0;
}

static int make_part(struct stk_index_shard_builder *builder, struct stk_index_part **part_out,
                     struct stoker_error *error)
{
    struct stk_index_part *part = stk_alloc(1, sizeof *part);
    int status = part ? group(builder, part) : -ENOMEM;

    if (status == 0) {
        status = check_duplicates(builder, part, error);
        if (status == STOKER_ERROR_CORRUPT) {
            goto done;
        }
    }
    if (status == 0) {
        digest(builder, part);
        status = pack_columns(builder, part);
    }
    if (status == 0) {
        status = number_extensions(builder, part);
    }
    if (status < 0) {
        fail(builder, status, STOKER_NO_OFFSET, no_key, error);
        goto done;
    }
    status = copy_extras(builder, part, error);
    if (status < 0) {
        goto done;
    }
    stk_string_table_freeze(&builder->keys);
    part->keys = builder->keys;
    builder->keys = (struct stk_string_table){0};
    *part_out = part;
    part = NULL;
done:
    stk_index_part_close(part);
    return status;
}

/* Members of a sample next to each other, in the order of the shard: a counting sort, where
 * joining mixed them. */
static int group(struct stk_index_shard_builder *builder, struct stk_index_part *part)
{
    uint32_t sample_count = builder->keys.count;
    uint32_t *first = stk_alloc((size_t)sample_count + 1, sizeof *first);

    part->first_member = first;
    part->member_count = builder->member_count;
    if (!first) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < builder->member_count; i++) {
        first[builder->members[i].sample + 1]++;
    }
    for (uint32_t i = 0; i < sample_count; i++) {
        first[i + 1] += first[i];
    }
    return builder->joined ? sort_members(builder, first) : 0;
}

static int sort_members(struct stk_index_shard_builder *builder, const uint32_t *first)
{
    struct raw_member *sorted = stk_alloc(builder->member_count, sizeof *sorted);
    uint64_t *sums = builder->sums ? stk_alloc(builder->member_count, sizeof *sums) : NULL;
    uint32_t *next = builder->last_member; /* not needed any more */

    if (!sorted || (builder->sums && !sums)) {
        stk_free(sorted);
        stk_free(sums);
        return -ENOMEM;
    }
    memcpy(next, first, builder->keys.count * sizeof *next);
    for (uint32_t i = 0; i < builder->member_count; i++) {
        uint32_t place = next[builder->members[i].sample]++;

        sorted[place] = builder->members[i];
        if (sums && i < builder->sums_capacity) {
            sums[place] = builder->sums[i];
        }
    }
    stk_free(builder->members);
    stk_free(builder->sums);
    builder->members = sorted;
    builder->sums = sums;
    builder->sums_capacity = sums ? builder->member_count : 0;
    return 0;
}

/* Copies checksums and labels of the builder. */
static int copy_extras(struct stk_index_shard_builder *builder, struct stk_index_part *part,
                       struct stoker_error *error)
{
    if (builder->sum_count > 0 && builder->sum_count != builder->member_count) {
        stk_fail(error, STOKER_ERROR_ARGUMENT, "some members have checksums and some have none",
                 "give all members of a shard one, or none", "%u of %u members", builder->sum_count,
                 builder->member_count);
        stk_error_set_location(error, builder->path, STOKER_NO_OFFSET, NULL);
        return STOKER_ERROR_ARGUMENT;
    }
    if (builder->labels && builder->labels_capacity < builder->keys.count) {
        uint32_t count = builder->keys.count;
        int64_t *labels = stk_realloc(builder->labels, builder->labels_capacity, count, 8);

        if (!labels) {
            return fail(builder, -ENOMEM, STOKER_NO_OFFSET, no_key, error);
        }
        for (uint32_t i = builder->labels_capacity; i < count; i++) {
            labels[i] = -1;
        }
        builder->labels = labels;
    }
    part->checksums = builder->sums;
    part->labels = builder->labels;
    builder->sums = NULL;
    builder->labels = NULL;
    part->seek_points = (uint8_t *)(uintptr_t)builder->access.data;
    part->seek_points_bytes = builder->access.bytes;
    builder->access = (struct stk_view){NULL, 0};
    part->has_digest = builder->has_digest;
    part->unverified = builder->unproved;
    memcpy(part->sha256, builder->sha256, sizeof part->sha256);
    return 0;
}

static int put_file_sum(struct stk_index_shard_builder *builder)
{
    struct stk_index *index = builder->index;
    int status = 0;

    pthread_mutex_lock(&index->lock);
    if (!index->locked.file_sums) {
        index->locked.file_sums = stk_alloc(index->options.shard_count, sizeof(uint64_t));
    }
    if (index->locked.file_sums) {
        index->locked.file_sums[builder->shard] = builder->file_sum;
        index->locked.file_sum_count++;
    } else {
        status = -ENOMEM;
    }
    pthread_mutex_unlock(&index->lock);
    return status;
}

/* An extension may occur once in a sample. */
static int check_duplicates(const struct stk_index_shard_builder *builder,
                            const struct stk_index_part *part, struct stoker_error *error)
{
    uint32_t *seen = stk_alloc(builder->extensions.count, sizeof *seen); /* sample + 1 */
    int status = seen ? 0 : -ENOMEM;

    for (uint32_t i = 0; status == 0 && i < part->member_count; i++) {
        const struct raw_member *member = &builder->members[i];

        if (seen[member->extension] == member->sample + 1) {
            status =
                fail_member(builder, stk_string_table_get(&builder->keys, member->sample),
                            member->offset, "the sample has two members with one extension", error);
        }
        seen[member->extension] = member->sample + 1;
    }
    stk_free(seen);
    return status;
}

static int pack_columns(const struct stk_index_shard_builder *builder, struct stk_index_part *part)
{
    size_t count = part->member_count;
    bool is_wide = false;

    for (size_t i = 0; i < count; i++) {
        const struct raw_member *member = &builder->members[i];

        is_wide |= member->offset % STK_INDEX_OFFSET_UNIT != 0 || member->bytes > UINT32_MAX ||
                   member->offset / STK_INDEX_OFFSET_UNIT > UINT32_MAX;
        if (!stk_add(part->bytes, member->bytes, &part->bytes)) {
            return STOKER_ERROR_LIMIT;
        }
    }
    if (is_wide) {
        part->wide = stk_alloc(count, 2 * sizeof *part->wide);
    } else {
        part->units = stk_alloc(count, sizeof *part->units);
        part->sizes = stk_alloc(count, sizeof *part->sizes);
    }
    if (is_wide ? !part->wide : !part->units || !part->sizes) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        const struct raw_member *member = &builder->members[i];

        if (is_wide) {
            part->wide[2 * i] = member->offset;
            part->wide[2 * i + 1] = member->bytes;
        } else {
            part->units[i] = member->offset / STK_INDEX_OFFSET_UNIT;
            part->sizes[i] = member->bytes;
        }
    }
    return 0;
}

/* The index's numbers for the builder's. */
static int number_extensions(const struct stk_index_shard_builder *builder,
                             struct stk_index_part *part)
{
    uint32_t *numbers = stk_alloc(builder->extensions.count, sizeof *numbers);
    int status = numbers ? 0 : -ENOMEM;

    part->extensions = stk_alloc(part->member_count, sizeof *part->extensions);
    if (!part->extensions) {
        status = -ENOMEM;
    }
    if (status == 0) {
        pthread_mutex_lock(&builder->index->lock);
        for (uint32_t i = 0; status == 0 && i < builder->extensions.count; i++) {
            status = intern_locked(builder->index, stk_string_table_get(&builder->extensions, i),
                                   &numbers[i]);
        }
        pthread_mutex_unlock(&builder->index->lock);
    }
    for (uint32_t i = 0; status == 0 && i < part->member_count; i++) {
        part->extensions[i] = numbers[builder->members[i].extension];
    }
    stk_free(numbers);
    return status;
}

static void store_64(uint8_t *bytes, uint64_t number)
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = number >> (8 * i);
    }
}

/* SHA-256 of, for each sample: key, NUL, count of members, and for each member: extension, NUL,
 * offset, size; numbers as 8 bytes, little end first. */
static void digest(const struct stk_index_shard_builder *builder, struct stk_index_part *part)
{
    struct stk_sha256 sha;
    uint8_t numbers[17] = {0}; /* a NUL first */

    stk_sha256_init(&sha);
    for (uint32_t sample = 0; sample < builder->keys.count; sample++) {
        struct stk_view key = stk_string_table_get(&builder->keys, sample);
        uint32_t end = part->first_member[sample + 1];

        store_64(numbers + 1, end - part->first_member[sample]);
        stk_sha256_add(&sha, key.data, key.bytes);
        stk_sha256_add(&sha, numbers, 9);
        for (uint32_t i = part->first_member[sample]; i < end; i++) {
            const struct raw_member *member = &builder->members[i];
            struct stk_view extension =
                stk_string_table_get(&builder->extensions, member->extension);

            stk_sha256_add(&sha, extension.data, extension.bytes); /* its NUL included */
            store_64(numbers + 1, member->offset);
            store_64(numbers + 9, member->bytes);
            stk_sha256_add(&sha, numbers + 1, 16);
        }
    }
    stk_sha256_done(&sha, part->identity);
}

static int intern_locked(struct stk_index *index, struct stk_view text, uint32_t *number_out)
{
    return stk_string_table_add(&index->locked.extensions, text, STK_INDEX_EXTENSIONS_MAX,
                                number_out);
}

/* The path with its NUL, then the key, if it is not empty, in the index's arena. NULL: no
 * memory. */
static const char *store_locked(struct stk_index *index, const char *path, struct stk_view key)
{
    struct stk_index_arena_block *block = index->locked.arena;
    size_t path_bytes = strlen(path) + 1;
    size_t bytes = path_bytes + key.bytes;
    char *text;

    if (!block || block->capacity - block->used < bytes) {
        size_t capacity = stk_max(bytes, (1u << 16) - sizeof *block);
        block = stk_alloc(sizeof *block + capacity, 1);
        if (!block) {
            return NULL;
        }
        block->capacity = capacity;
        block->next = index->locked.arena;
        index->locked.arena = block;
    }
    text = block->text + block->used;
    memcpy(text, path, path_bytes);
    memcpy(text + path_bytes, key.data, key.bytes);
    block->used += bytes;
    return text;
}

int stk_index_add_extension(struct stk_index *index, struct stk_view text, uint32_t *number_out)
{
    int status;

    pthread_mutex_lock(&index->lock);
    status = intern_locked(index, text, number_out);
    pthread_mutex_unlock(&index->lock);
    return status;
}

const char *stk_index_add_text(struct stk_index *index, const char *path, struct stk_view key)
{
    const char *text;

    pthread_mutex_lock(&index->lock);
    text = store_locked(index, path, key);
    pthread_mutex_unlock(&index->lock);
    return text;
}

static int fail_detail(const struct stk_index_shard_builder *builder, struct stk_view key,
                       uint64_t offset, const struct stoker_error *cause,
                       struct stoker_error *error)
{
    char text[sizeof cause->key];

    stk_wds_name_text(key, text, sizeof text);
    stk_fail(error, cause->status, cause->what, cause->advice, "%s", cause->where);
    stk_error_set_location(error, builder->path, offset, key.bytes ? text : NULL);
    return cause->status;
}

static int fail_member(const struct stk_index_shard_builder *builder, struct stk_view key,
                       uint64_t offset, const char *detail, struct stoker_error *error)
{
    struct stoker_error cause;

    stk_fail(&cause, STOKER_ERROR_CORRUPT, "a member does not fit into a data set",
             "leave the member out of the tar, or rename it", "%s", detail);
    return fail_detail(builder, key, offset, &cause, error);
}

static int fail(const struct stk_index_shard_builder *builder, int status, uint64_t offset,
                struct stk_view key, struct stoker_error *error)
{
    struct stoker_error cause;

    if (status == STOKER_ERROR_SCATTERED) {
        stk_fail(&cause, status, "members of a sample are apart",
                 "write a sample's members one after another ('tar --sort=name'), or raise "
                 "member_gap_max",
                 "its key occurred before, more than %u members ago",
                 builder->index->options.member_gap_max);
    } else if (status == STOKER_ERROR_LIMIT) {
        stk_fail(&cause, status, "the shard passes a limit of the index",
                 "shorten its names or raise key_bytes_max; split larger shards",
                 "a key of more than %u bytes, an extension of more than %d, or too many",
                 builder->index->options.key_bytes_max, STK_INDEX_EXTENSION_BYTES_MAX - 1);
    } else {
        stk_fail(&cause, status, "no memory for the index", "free memory or give the job more",
                 "%u members", builder->member_count);
    }
    return fail_detail(builder, key, offset, &cause, error);
}

uint64_t stk_index_part_memory_bytes(const struct stk_index_part *part)
{
    uint64_t samples = part->keys.count, members = part->member_count;
    uint64_t a_member = sizeof *part->extensions + (part->wide ? 2 * sizeof *part->wide : 0) +
                        (part->units ? sizeof *part->units : 0) +
                        (part->sizes ? sizeof *part->sizes : 0) +
                        (part->checksums ? sizeof *part->checksums : 0);

    return sizeof *part + stk_string_table_memory_bytes(&part->keys) +
           (samples + 1) * sizeof *part->first_member + members * a_member +
           (part->labels ? samples * sizeof *part->labels : 0) + part->seek_points_bytes;
}

void stk_index_part_close(struct stk_index_part *part)
{
    if (part) {
        stk_string_table_deinit(&part->keys);
        stk_free(part->first_member);
        stk_free(part->extensions);
        stk_free(part->units);
        stk_free(part->sizes);
        stk_free(part->wide);
        stk_free(part->checksums);
        stk_free(part->labels);
        stk_free(part->seek_points);
        stk_free(part);
    }
}
