/* The samples of a data set: shards are added in parallel, and numbered once all of them are
 * complete. */
#include "index/index.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "index/index_file.h"
#include "io/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int sort_extensions(struct stk_index *index);
static int number_samples(struct stk_index *index);
static void make_identity(struct stk_index *index);

enum { KEY_BYTES_DEFAULT = 4096, BLOCK_BYTES_DEFAULT = 8 << 20, BLOCK_SAMPLES_DEFAULT = 256 };

int stk_index_open(struct stk_index **index_out, const struct stk_index_options *options,
                   struct stoker_error *error)
{
    struct stk_index *index = stk_index_new(options);

    *index_out = NULL;
    STK_ASSERT(options->shard_count < UINT32_MAX);
    if (index) {
        index->shards = stk_alloc(options->shard_count, sizeof *index->shards);
    }
    if (!index || !index->shards) {
        stk_index_close(index);
        return stk_fail_memory(error, "index of %llu shards",
                               (unsigned long long)options->shard_count);
    }
    *index_out = index;
    return 0;
}

struct stk_index *stk_index_new(const struct stk_index_options *options)
{
    struct stk_index *index = stk_alloc(1, sizeof *index);

    if (index) {
        index->options = *options;
        if (index->options.key_bytes_max == 0) {
            index->options.key_bytes_max = KEY_BYTES_DEFAULT;
        }
        pthread_mutex_init(&index->lock, NULL);
    }
    return index;
}

void stk_index_close(struct stk_index *index)
{
    if (!index) {
        return;
    }
    for (uint64_t i = 0; index->shards && i < index->options.shard_count; i++) {
        if (index->shards[i].kind == STK_INDEX_SHARD_TAR) {
            stk_index_part_close(index->shards[i].of.part);
        }
    }
    while (index->locked.arena) {
        struct stk_index_arena_block *next = index->locked.arena->next;
        stk_free(index->locked.arena);
        index->locked.arena = next;
    }
    stk_string_table_deinit(&index->locked.extensions);
    stk_string_table_deinit(&index->locked.classes);
    stk_free(index->locked.file_sums);
    stk_index_map_close(index->map);
    stk_free(index->root);
    stk_free(index->starts);
    stk_free(index->shards);
    pthread_mutex_destroy(&index->lock);
    stk_free(index);
}

int stk_index_finish(struct stk_index *index, uint32_t block_bytes, struct stoker_error *error)
{
    int status;

    STK_ASSERT(!index->finished);
    for (uint64_t i = 0; i < index->options.shard_count; i++) {
        STK_ASSERT(index->shards[i].kind != STK_INDEX_SHARD_EMPTY);
    }
    if (index->locked.file_sum_count != index->options.shard_count) {
        stk_free(index->locked.file_sums); /* all files have one, or none has */
        index->locked.file_sums = NULL;
    }
    status = sort_extensions(index);
    if (status == 0) {
        status = number_samples(index);
    }
    if (status < 0) {
        return stk_fail_memory(error, "index of %llu shards",
                               (unsigned long long)index->options.shard_count);
    }
    stk_index_set_block(index, 0, block_bytes);
    make_identity(index);
    index->finished = true;
    return 0;
}

static int compare_extensions(const void *left, const void *right, void *table)
{
    struct stk_view a = stk_string_table_get(table, *(const uint32_t *)left);
    struct stk_view b = stk_string_table_get(table, *(const uint32_t *)right);

    return strcmp((const char *)a.data, (const char *)b.data); /* each has its NUL */
}

/* Numbers were assigned in the order of the threads; renumber them by text. */
static int sort_extensions(struct stk_index *index)
{
    struct stk_string_table *table = &index->locked.extensions;
    struct stk_string_table sorted = {0};
    uint32_t count = table->count;
    uint32_t *order = stk_alloc(count, sizeof *order);
    uint32_t *number = stk_alloc(count, sizeof *number);
    int status = order && number ? 0 : -ENOMEM;

    for (uint32_t i = 0; status == 0 && i < count; i++) {
        order[i] = i;
    }
    if (status == 0) {
        qsort_r(order, count, sizeof *order, compare_extensions, table);
    }
    for (uint32_t i = 0; status == 0 && i < count; i++) {
        status = stk_string_table_add(&sorted, stk_string_table_get(table, order[i]),
                                      STK_INDEX_EXTENSIONS_MAX, &number[order[i]]);
    }
    for (uint64_t i = 0; status == 0 && i < index->options.shard_count; i++) {
        struct stk_index_shard *shard = &index->shards[i];

        if (shard->kind == STK_INDEX_SHARD_FILE) {
            shard->extension = number[shard->extension];
            continue;
        }
        for (uint32_t j = 0; j < shard->of.part->member_count; j++) {
            shard->of.part->extensions[j] = number[shard->of.part->extensions[j]];
        }
    }
    if (status == 0) {
        stk_string_table_deinit(table);
        *table = sorted;
        sorted = (struct stk_string_table){0};
    }
    stk_string_table_deinit(&sorted);
    stk_free(order);
    stk_free(number);
    return status;
}

static int number_samples(struct stk_index *index)
{
    uint64_t shard_count = index->options.shard_count;
    bool one_each = true;

    for (uint64_t i = 0; i < shard_count; i++) {
        const struct stk_index_shard *shard = &index->shards[i];
        uint64_t samples = stk_index_shard_sample_count(shard);

        one_each = one_each && samples == 1;
        index->sample_count += samples;
        index->sequential |= !stk_index_is_random_access(index, i);
        if (shard->kind == STK_INDEX_SHARD_FILE) {
            index->member_count++;
            index->folder = true;
        } else {
            index->member_count += shard->of.part->member_count;
            /* Saturates: only lying streams get there. */
            if (!stk_add(index->bytes, shard->of.part->bytes, &index->bytes)) {
                index->bytes = UINT64_MAX;
            }
        }
    }
    if (one_each) {
        return 0;
    }
    index->starts = stk_alloc(shard_count + 1, sizeof *index->starts);
    if (!index->starts) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < shard_count; i++) {
        index->starts[i + 1] = index->starts[i] + stk_index_shard_sample_count(&index->shards[i]);
    }
    return 0;
}

void stk_index_set_block(struct stk_index *index, uint64_t block_samples, uint32_t block_bytes)
{
    uint64_t scaled;

    index->block_samples = block_samples ? block_samples : BLOCK_SAMPLES_DEFAULT;
    block_bytes = block_bytes ? block_bytes : BLOCK_BYTES_DEFAULT;
    if (block_samples || index->bytes == 0 || index->sample_count == 0) {
        return; /* no bytes: a folder, whose file sizes are unknown */
    }
    /* block_bytes / (bytes / samples), rounded. */
    if (stk_multiply(block_bytes, index->sample_count, &scaled) &&
        stk_add(scaled, index->bytes / 2, &scaled)) {
        index->block_samples = stk_max(scaled / index->bytes, 1);
    } else {
        index->block_samples = stk_max(block_bytes / (index->bytes / index->sample_count + 1), 1);
    }
}

static void make_identity(struct stk_index *index)
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, "stoker index 1", sizeof "stoker index 1");
    for (uint64_t i = 0; i < index->options.shard_count; i++) {
        const struct stk_index_shard *shard = &index->shards[i];
        const char *slash = strrchr(shard->path, '/');
        const char *base = slash ? slash + 1 : shard->path;
        bool is_file = shard->kind == STK_INDEX_SHARD_FILE;
        uint64_t number = is_file ? (uint64_t)shard->of.label : shard->object_bytes;
        uint8_t tail[9] = {shard->kind};

        for (int j = 0; j < 8; j++) {
            tail[1 + j] = number >> (8 * j);
        }
        if (is_file) {
            stk_sha256_add(&sha, shard->path + shard->key_at, shard->key_bytes);
            stk_sha256_add(&sha, "", 1);
        } else {
            stk_sha256_add(&sha, base, strlen(base) + 1);
            stk_sha256_add(&sha, shard->of.part->identity, sizeof shard->of.part->identity);
        }
        stk_sha256_add(&sha, tail, sizeof tail);
    }
    stk_sha256_done(&sha, index->identity);
}

uint64_t stk_index_samples(const struct stk_index *index)
{
    return index->sample_count;
}

uint64_t stk_index_members(const struct stk_index *index)
{
    return index->member_count;
}

uint64_t stk_index_bytes(const struct stk_index *index)
{
    return index->bytes;
}

uint64_t stk_index_shard_memory_bytes(const struct stk_index *index, uint64_t shard)
{
    const struct stk_index_shard *of = index->shards ? &index->shards[shard] : NULL;

    return of && of->kind == STK_INDEX_SHARD_TAR ? stk_index_part_memory_bytes(of->of.part) : 0;
}

uint64_t stk_index_memory_bytes(const struct stk_index *index)
{
    uint64_t shards = index->shards ? index->options.shard_count : 0;
    uint64_t bytes = sizeof *index + shards * sizeof *index->shards +
                     stk_string_table_memory_bytes(&index->locked.extensions) +
                     stk_string_table_memory_bytes(&index->locked.classes) +
                     (index->locked.file_sums ? shards * sizeof *index->locked.file_sums : 0) +
                     (index->starts ? (shards + 1) * sizeof *index->starts : 0) +
                     (index->map && index->map->records
                          ? index->options.shard_count * sizeof *index->map->records
                          : 0);

    for (uint64_t i = 0; i < shards; i++) {
        bytes += stk_index_shard_memory_bytes(index, i);
    }
    for (const struct stk_index_arena_block *it = index->locked.arena; it; it = it->next) {
        bytes += sizeof *it + it->capacity;
    }
    return bytes;
}

uint64_t stk_index_block_samples(const struct stk_index *index)
{
    return index->block_samples;
}

void stk_index_add_skipped(struct stk_index *index, enum stk_index_skipped_kind kind,
                           uint64_t count)
{
    index->skipped[kind] += (uint32_t)stk_min(count, UINT32_MAX - index->skipped[kind]);
}

uint32_t stk_index_skipped(const struct stk_index *index, enum stk_index_skipped_kind kind)
{
    return index->skipped[kind];
}

bool stk_index_is_sequential(const struct stk_index *index)
{
    return index->sequential;
}

const uint8_t *stk_index_identity(const struct stk_index *index)
{
    return index->identity;
}

/* The last shard that starts at or before the sample; empty shards start where the next does. */
static uint32_t find_shard(const struct stk_index *index, uint64_t sample)
{
    uint64_t low = 0, high = index->options.shard_count; /* starts[low] <= sample < starts[high] */

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (index->starts[middle] <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

int stk_index_sample(const struct stk_index *index, uint64_t sample, struct stk_sample *sample_out,
                     struct stoker_error *error)
{
    const struct stk_index_shard *shard;
    const struct stk_index_part *part;

    STK_ASSERT(index->finished && sample < index->sample_count);
    if (index->map) {
        return stk_index_map_sample(index->map, sample, sample_out, error);
    }
    sample_out->shard = sample;
    if (index->starts) {
        sample_out->shard = find_shard(index, sample);
        sample -= index->starts[sample_out->shard];
    } else {
        sample = 0;
    }
    sample_out->number = sample;
    shard = &index->shards[sample_out->shard];
    if (shard->kind == STK_INDEX_SHARD_FILE) {
        sample_out->first_member = 0;
        sample_out->member_count = 1;
        sample_out->label = shard->of.label;
        sample_out->key.data = (const uint8_t *)shard->path + shard->key_at;
        sample_out->key.bytes = shard->key_bytes;
        return 0;
    }
    part = shard->of.part;
    sample_out->first_member = part->first_member[sample];
    sample_out->member_count = part->first_member[sample + 1] - part->first_member[sample];
    sample_out->label = part->labels ? part->labels[sample] : -1;
    sample_out->key = stk_string_table_get(&part->keys, sample);
    return 0;
}

int stk_index_member(const struct stk_index *index, const struct stk_sample *sample,
                     uint32_t member, struct stk_member *member_out, struct stoker_error *error)
{
    const struct stk_index_shard *shard;

    STK_ASSERT(member < sample->member_count);
    if (index->map) {
        return stk_index_map_member(index->map, sample, member, member_out, error);
    }
    shard = &index->shards[sample->shard];
    member_out->shard = sample->shard;
    if (shard->kind == STK_INDEX_SHARD_FILE) {
        member_out->offset = 0;
        member_out->bytes = STK_ENTIRE_OBJECT;
        member_out->extension = shard->extension;
        return 0;
    }
    member += sample->first_member;
    member_out->extension = shard->of.part->extensions[member];
    if (shard->of.part->wide) {
        member_out->offset = shard->of.part->wide[2 * (size_t)member];
        member_out->bytes = shard->of.part->wide[2 * (size_t)member + 1];
    } else {
        member_out->offset = (uint64_t)shard->of.part->units[member] * STK_INDEX_OFFSET_UNIT;
        member_out->bytes = shard->of.part->sizes[member];
    }
    return 0;
}

int stk_index_checksum(const struct stk_index *index, const struct stk_sample *sample,
                       uint32_t member, uint64_t *sum_out, struct stoker_error *error)
{
    int status = STOKER_ERROR_MISSING;

    STK_ASSERT(member < sample->member_count);
    if (index->map) {
        status = stk_index_map_checksum(index->map, sample, member, sum_out, error);
    } else if (stk_index_shard_has_checksums(index, sample->shard)) {
        const struct stk_index_shard *shard = &index->shards[sample->shard];

        *sum_out = shard->kind == STK_INDEX_SHARD_FILE
                       ? index->locked.file_sums[sample->shard]
                       : shard->of.part->checksums[sample->first_member + member];
        status = 0;
    }
    if (status == STOKER_ERROR_MISSING) {
        char path[STK_PATH_BYTES_MAX];

        stk_index_path_text(index, sample->shard, path);
        stk_fail(error, status, "the index has no checksums",
                 "make them with 'stoker index --checksums'", "'%.600s'", path);
    }
    return status;
}

int stk_index_path(const struct stk_index *index, uint32_t shard, char path_out[STK_PATH_BYTES_MAX],
                   struct stoker_error *error)
{
    struct stk_view path = {NULL, 0};
    size_t root_bytes = index->map && index->root ? strlen(index->root) : 0;
    int status = 0;

    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        status = stk_index_map_path(index->map, shard, &path, error);
    } else {
        const struct stk_index_shard *of = &index->shards[shard];

        path = (struct stk_view){(const uint8_t *)of->path, strlen(of->path)};
    }
    if (status < 0) {
        return status;
    }
    if (root_bytes + path.bytes >= STK_PATH_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a path is too long", "move the data set up",
                        "'%.*s'", (int)stk_min(path.bytes, 600), (const char *)path.data);
    }
    if (root_bytes > 0) {
        memcpy(path_out, index->root, root_bytes);
    }
    memcpy(path_out + root_bytes, path.data, path.bytes);
    path_out[root_bytes + path.bytes] = '\0';
    path.data = (const uint8_t *)path_out + root_bytes;
    /* Checked at open, and again in the copy: a map may change. */
    return !index->map || stk_index_file_path_is_safe(path)
               ? 0
               : stk_index_map_fail(index->map, index->map->foot.paths.at,
                                    "a path leads out of its folder", error);
}

int stk_index_check_map(const struct stk_index *index, struct stoker_error *error)
{
    const struct stk_index_map *map = index->map;
    int status = map && map->io ? stk_io_map_check(map->io, map->image, error) : 0;

    return status < 0 && stk_paged_file_is_unchanged(&map->file) ? 0 : status;
}

const char *stk_index_path_view(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    return index->map ? NULL : index->shards[shard].path;
}

void stk_index_path_text(const struct stk_index *index, uint32_t shard,
                         char path_out[STK_PATH_BYTES_MAX])
{
    if (stk_index_path(index, shard, path_out, NULL) < 0) {
        memcpy(path_out, "?", 2);
    }
}

int stk_index_set_root(struct stk_index *index, const char *root, struct stoker_error *error)
{
    char *copy = stk_strdup(root);

    if (!copy) {
        return stk_fail(error, -ENOMEM, "no memory for the index", "free memory", "'%s'", root);
    }
    stk_free(index->root);
    index->root = copy;
    return 0;
}

int stk_index_add_class(struct stk_index *index, const char *name, struct stoker_error *error)
{
    struct stk_view word = {(const uint8_t *)name, strlen(name) + 1};
    uint32_t count = index->locked.classes.count, number;
    int status = stk_string_table_add(&index->locked.classes, word, STK_INDEX_CLASSES_MAX, &number);

    if (status == -ENOMEM) {
        return stk_fail(error, status, "no memory for the index", "free memory", "'%s'", name);
    }
    if (status < 0) {
        return stk_fail(error, status, "there are too many classes", "join some of them",
                        "more than %u", STK_INDEX_CLASSES_MAX);
    }
    if (number != count) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a class name occurs twice",
                        "name each class once", "'%s'", name);
    }
    return 0;
}

uint64_t stk_index_classes(const struct stk_index *index)
{
    return index->locked.classes.count;
}

const char *stk_index_class(const struct stk_index *index, uint64_t number)
{
    STK_ASSERT(number < index->locked.classes.count);
    return (const char *)stk_string_table_get(&index->locked.classes, number).data;
}

uint64_t stk_index_shards(const struct stk_index *index)
{
    return index->options.shard_count;
}

bool stk_index_is_folder(const struct stk_index *index)
{
    return index->folder;
}

bool stk_index_is_file(const struct stk_index *index, uint32_t shard)
{
    return index->map ? index->folder : index->shards[shard].kind == STK_INDEX_SHARD_FILE;
}

uint32_t stk_index_member_gap_max(const struct stk_index *index)
{
    return index->options.member_gap_max;
}

uint32_t stk_index_key_bytes_max(const struct stk_index *index)
{
    return index->options.key_bytes_max;
}

uint64_t stk_index_shard_bytes(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        return index->map->records ? index->map->records[shard].object_bytes : 0;
    }
    return index->shards[shard].object_bytes;
}

uint32_t stk_index_shard_compression(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        return index->map->records ? index->map->records[shard].compression : STK_COMPRESSION_NONE;
    }
    return index->shards[shard].compression;
}

uint64_t stk_index_shard_samples(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        return index->map->records ? index->map->records[shard].sample_count : 1;
    }
    return stk_index_shard_sample_count(&index->shards[shard]);
}

uint64_t stk_index_first_sample(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        return index->map->records ? index->map->records[shard].first_sample : shard;
    }
    return index->starts ? index->starts[shard] : shard;
}

bool stk_index_shard_has_checksums(const struct stk_index *index, uint32_t shard)
{
    const struct stk_index_part *part;

    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        const struct stk_index_file_record *record =
            index->map->records ? &index->map->records[shard] : NULL;

        return record ? record->flags & STK_INDEX_FILE_SUMS || record->member_count == 0
                      : index->map->foot.sums.bytes > 0;
    }
    if (index->shards[shard].kind == STK_INDEX_SHARD_FILE) {
        return index->locked.file_sums != NULL;
    }
    part = index->shards[shard].of.part;
    return part->checksums || part->member_count == 0;
}

bool stk_index_shard_has_labels(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        return !index->map->records || index->map->records[shard].flags & STK_INDEX_FILE_LABELS;
    }
    return index->shards[shard].kind == STK_INDEX_SHARD_FILE ||
           index->shards[shard].of.part->labels;
}

const uint8_t *stk_index_shard_digest(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        const struct stk_index_file_record *record =
            index->map->records ? &index->map->records[shard] : NULL;

        return record && record->flags & STK_INDEX_FILE_DIGEST ? record->sha256 : NULL;
    }
    return index->shards[shard].kind == STK_INDEX_SHARD_TAR &&
                   index->shards[shard].of.part->has_digest
               ? index->shards[shard].of.part->sha256
               : NULL;
}

bool stk_index_shard_is_unverified(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    return !index->map && index->shards[shard].kind == STK_INDEX_SHARD_TAR &&
           index->shards[shard].of.part->unverified;
}

uint64_t stk_index_seek_points_bytes(const struct stk_index *index, uint32_t shard)
{
    STK_ASSERT(shard < index->options.shard_count);
    if (index->map) {
        return index->map->records ? index->map->records[shard].seek_points_bytes : 0;
    }
    return index->shards[shard].kind == STK_INDEX_SHARD_TAR
               ? index->shards[shard].of.part->seek_points_bytes
               : 0;
}

const void *stk_index_seek_points(const struct stk_index *index, uint32_t shard, uint64_t at,
                                  uint64_t bytes, struct stoker_error *error)
{
    uint64_t end;

    STK_ASSERT(stk_add(at, bytes, &end) && end <= stk_index_seek_points_bytes(index, shard));
    return index->map ? stk_index_map_seek_points(index->map, shard, at, bytes, error)
                      : index->shards[shard].of.part->seek_points + at;
}

bool stk_index_is_random_access(const struct stk_index *index, uint32_t shard)
{
    uint32_t compression = stk_index_shard_compression(index, shard);
    uint64_t bytes = stk_index_seek_points_bytes(index, shard);
    struct stk_seek_points_head head;
    const void *image;

    if (compression == STK_COMPRESSION_NONE || stk_index_shard_samples(index, shard) == 0) {
        return true;
    }
    if (bytes < sizeof head) {
        return false;
    }
    image = stk_index_seek_points(index, shard, 0, sizeof head, NULL);
    if (!image) {
        return false; /* damaged: then it is read front to back */
    }
    memcpy(&head, image, sizeof head);
    return stk_seek_points_head_is_valid(&head, bytes, compression,
                                         stk_index_shard_bytes(index, shard)) &&
           stk_seek_points_is_random_access(&head);
}

uint64_t stk_index_extensions(const struct stk_index *index)
{
    return index->locked.extensions.count;
}

const char *stk_index_extension(const struct stk_index *index, uint32_t extension)
{
    STK_ASSERT(extension < index->locked.extensions.count);
    return (const char *)stk_string_table_get(&index->locked.extensions, extension).data;
}

int64_t stk_index_extension_id(const struct stk_index *index, const char *extension)
{
    struct stk_view word = {(const uint8_t *)extension, strlen(extension) + 1};

    STK_ASSERT(index->finished);
    return stk_string_table_find(&index->locked.extensions, word);
}

uint64_t stk_index_shard_sample_count(const struct stk_index_shard *shard)
{
    return shard->kind == STK_INDEX_SHARD_FILE ? 1 : shard->of.part->keys.count;
}
