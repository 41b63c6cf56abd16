/* Copies a shard's part from another index, so that unchanged shards are not scanned again. */
#include "index/index_file.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

static void *copy_array(const void *from, uint64_t count, size_t item_bytes)
{
    void *to = stk_alloc(count, item_bytes);

    if (to && count > 0) {
        memcpy(to, from, count * item_bytes);
    }
    return to;
}

/* A block whose pages are checked. */
struct source {
    const struct stk_index_file_record *record;
    const uint8_t *data;
    struct stk_index_file_block block;
};

static uint64_t number_at(const struct source *from, uint32_t column, uint64_t at)
{
    uint32_t width = from->record->widths[column];
    uint64_t number =
        stk_index_file_load(from->data + from->block.numbers[column] + at * width, width);

    if (column < STK_INDEX_COLUMNS_GROUPED) {
        number += stk_index_file_load(
            from->data + from->block.bases[column] + at / STK_INDEX_FILE_GROUP * 8, 8);
    }
    return number;
}

/* From number `first` of the column on. False: one needs more bits. */
static bool copy_column_32(const struct source *from, uint32_t column, uint64_t first, uint32_t *to)
{
    uint64_t count = stk_index_file_column_count(from->record, column), largest = 0;

    for (uint64_t i = first; i < count; i++) {
        uint64_t number = number_at(from, column, i);

        largest = stk_max(largest, number);
        to[i - first] = (uint32_t)number;
    }
    return largest <= UINT32_MAX;
}

/* Members that fit neither units of 512 nor 32 bits: as the builder of a shard does it. */
static bool is_wide(const struct source *from)
{
    bool wide = from->record->flags & STK_INDEX_FILE_BYTES;

    for (uint64_t i = 0; !wide && i < from->record->member_count; i++) {
        wide = number_at(from, STK_INDEX_COLUMN_OFFSETS, i) > UINT32_MAX ||
               number_at(from, STK_INDEX_COLUMN_SIZES, i) > UINT32_MAX;
    }
    return wide;
}

/* 1: taken; 0: the file contradicts itself; -ENOMEM. */
static int copy_locations(const struct source *from, struct stk_index_part *part)
{
    uint64_t members = from->record->member_count, unit = stk_index_file_unit(from->record);
    bool sane = true;

    if (!is_wide(from)) {
        part->units = stk_alloc(members, sizeof *part->units);
        part->sizes = stk_alloc(members, sizeof *part->sizes);
        return !part->units || !part->sizes
                   ? -ENOMEM
                   : copy_column_32(from, STK_INDEX_COLUMN_OFFSETS, 0, part->units) &&
                         copy_column_32(from, STK_INDEX_COLUMN_SIZES, 0, part->sizes);
    }
    part->wide = stk_alloc(members, 2 * sizeof *part->wide);
    for (uint64_t i = 0; part->wide && i < members; i++) {
        sane =
            stk_multiply(number_at(from, STK_INDEX_COLUMN_OFFSETS, i), unit, &part->wide[2 * i]) &&
            sane;
        part->wide[2 * i + 1] = number_at(from, STK_INDEX_COLUMN_SIZES, i);
    }
    return part->wide ? sane : -ENOMEM;
}

/* Likewise. */
static int copy_extensions(const struct source *from, struct stk_index_part *part)
{
    uint64_t members = from->record->member_count, largest = 0;

    part->extensions = stk_alloc(members, sizeof *part->extensions);
    for (uint64_t i = 0; part->extensions && i < members; i++) {
        uint64_t number = number_at(from, STK_INDEX_COLUMN_EXTENSIONS, i);

        largest = stk_max(largest, number);
        part->extensions[i] = (uint16_t)number;
    }
    return part->extensions ? largest <= UINT16_MAX : -ENOMEM;
}

/* Likewise. */
static int copy_samples(const struct source *from, struct stk_index_part *part)
{
    const struct stk_index_file_record *record = from->record;
    uint64_t samples = record->sample_count;

    part->keys.count = part->keys.capacity = record->sample_count;
    part->keys.byte_count = part->keys.byte_capacity = record->keys_bytes;
    part->keys.bytes = copy_array(from->data + from->block.keys, record->keys_bytes, 1);
    part->keys.ends = stk_alloc(samples, sizeof *part->keys.ends);
    part->first_member = stk_alloc(samples + 1, sizeof *part->first_member);
    if (!part->keys.bytes || !part->keys.ends || !part->first_member) {
        return -ENOMEM;
    }
    if (record->flags & STK_INDEX_FILE_LABELS) {
        part->labels = stk_alloc(samples, sizeof *part->labels);
        for (uint64_t i = 0; part->labels && i < samples; i++) {
            part->labels[i] = (int64_t)(number_at(from, STK_INDEX_COLUMN_LABELS, i) - 1);
        }
        if (!part->labels) {
            return -ENOMEM;
        }
    }
    return number_at(from, STK_INDEX_COLUMN_KEYS, 0) == 0 &&
           copy_column_32(from, STK_INDEX_COLUMN_KEYS, 1, part->keys.ends) &&
           copy_column_32(from, STK_INDEX_COLUMN_FIRSTS, 0, part->first_member);
}

/* Likewise. */
static int copy_block(const struct source *from, struct stk_index_part *part)
{
    const struct stk_index_file_record *record = from->record;
    int status;

    part->member_count = record->member_count;
    part->bytes = record->bytes;
    status = copy_samples(from, part);
    status = status == 1 ? copy_locations(from, part) : status;
    status = status == 1 ? copy_extensions(from, part) : status;
    if (status == 1 && record->flags & STK_INDEX_FILE_SUMS) {
        part->checksums = copy_array(from->data + from->block.checksums, record->member_count, 8);
        status = part->checksums ? 1 : -ENOMEM;
    }
    if (status == 1 && record->seek_points_bytes > 0) {
        part->seek_points =
            copy_array(from->data + from->block.seek_points, record->seek_points_bytes, 1);
        part->seek_points_bytes = record->seek_points_bytes;
        status = part->seek_points ? 1 : -ENOMEM;
    }
    return status;
}

/* 0, or -ENOMEM. */
static int copy_part(const struct stk_index_part *from, struct stk_index_part *part)
{
    uint64_t members = from->member_count, samples = from->keys.count;
    bool complete;

    part->member_count = members;
    part->bytes = from->bytes;
    part->keys.count = part->keys.capacity = samples;
    part->keys.byte_count = part->keys.byte_capacity = from->keys.byte_count;
    part->keys.bytes = copy_array(from->keys.bytes, from->keys.byte_count, 1);
    part->keys.ends = copy_array(from->keys.ends, samples, 4);
    part->first_member = copy_array(from->first_member, samples + 1, 4);
    part->extensions = copy_array(from->extensions, members, 2);
    complete = part->keys.bytes && part->keys.ends && part->first_member && part->extensions;
    if (from->wide) {
        part->wide = copy_array(from->wide, members, 16);
        complete = complete && part->wide;
    } else {
        part->units = copy_array(from->units, members, 4);
        part->sizes = copy_array(from->sizes, members, 4);
        complete = complete && part->units && part->sizes;
    }
    if (from->checksums) {
        part->checksums = copy_array(from->checksums, members, 8);
        complete = complete && part->checksums;
    }
    if (from->labels) {
        part->labels = copy_array(from->labels, samples, 8);
        complete = complete && part->labels;
    }
    if (from->seek_points_bytes > 0) {
        part->seek_points = copy_array(from->seek_points, from->seek_points_bytes, 1);
        part->seek_points_bytes = from->seek_points_bytes;
        complete = complete && part->seek_points;
    }
    part->unverified = from->unverified;
    part->has_digest = from->has_digest;
    memcpy(part->sha256, from->sha256, sizeof part->sha256);
    memcpy(part->identity, from->identity, sizeof part->identity);
    return complete ? 0 : -ENOMEM;
}

/* Validates the conditions of look-ups in memory. */
static bool is_sane(const struct stk_index_part *part, const struct stk_index_file_record *record,
                    uint32_t extension_count)
{
    uint64_t bytes = 0;
    uint32_t key_end = 0;
    bool sane =
        part->first_member[0] == 0 && part->first_member[part->keys.count] == part->member_count &&
        (part->keys.count == 0 || part->keys.ends[part->keys.count - 1] == part->keys.byte_count);

    for (uint32_t i = 0; sane && i < part->keys.count; i++) {
        sane = part->first_member[i] < part->first_member[i + 1] && part->keys.ends[i] >= key_end;
        key_end = part->keys.ends[i];
    }
    for (uint64_t i = 0; sane && i < part->member_count; i++) {
        uint64_t offset =
            part->wide ? part->wide[2 * i] : (uint64_t)part->units[i] * STK_INDEX_OFFSET_UNIT;
        uint64_t size = part->wide ? part->wide[2 * i + 1] : part->sizes[i], end;

        sane = part->extensions[i] < extension_count && stk_add(offset, size, &end) &&
               (record->compression != 0 || end <= record->object_bytes) &&
               stk_add(bytes, size, &bytes);
    }
    return sane && bytes == part->bytes;
}

static int number_extensions(struct stk_index *index, const struct stk_index *from,
                             struct stk_index_part *part)
{
    uint32_t count = from->locked.extensions.count;
    uint32_t *numbers = stk_alloc(count, sizeof *numbers); /* new number + 1 */
    int status = numbers ? 0 : -ENOMEM;

    for (uint32_t i = 0; status == 0 && i < part->member_count; i++) {
        uint32_t old = part->extensions[i], number;

        if (numbers[old] == 0) {
            status = stk_index_add_extension(
                index, stk_string_table_get(&from->locked.extensions, old), &number);
            numbers[old] = number + 1;
        }
        part->extensions[i] = numbers[old] - 1;
    }
    stk_free(numbers);
    return status;
}

/* From a file: checked, as it may say anything. */
static int copy_mapped(const struct stk_index *from, uint32_t from_shard,
                       struct stk_index_part *part, struct stoker_error *error)
{
    const struct stk_index_file_record *record = &from->map->records[from_shard];
    struct source source = {.record = record};
    int status = stk_index_map_block(from->map, from_shard, &source.data, &source.block, error);

    if (status < 0) {
        return status;
    }
    status = copy_block(&source, part);
    if (status == 0 || (status == 1 && !is_sane(part, record, from->locked.extensions.count))) {
        return stk_index_map_fail(from->map, record->block_at, "a shard contradicts itself", error);
    }
    part->has_digest = record->flags & STK_INDEX_FILE_DIGEST;
    memcpy(part->sha256, record->sha256, sizeof part->sha256);
    memcpy(part->identity, record->identity, sizeof part->identity);
    return status < 0 ? status : 0;
}

int stk_index_shard_copy(struct stk_index *index, uint32_t shard, const char *path,
                         const struct stk_index *from, uint32_t from_shard,
                         struct stoker_error *error)
{
    struct stk_index_part *part = stk_alloc(1, sizeof *part);
    struct stk_index_shard *slot = &index->shards[shard];
    const char *stored = NULL;
    int status = part ? 0 : -ENOMEM;

    STK_ASSERT(from->finished && !from->folder && from_shard < from->options.shard_count);
    STK_ASSERT(!index->finished && slot->kind == STK_INDEX_SHARD_EMPTY);
    if (status == 0) {
        status = from->map ? copy_mapped(from, from_shard, part, error)
                           : copy_part(from->shards[from_shard].of.part, part);
    }
    if (status == 0) {
        status = number_extensions(index, from, part);
    }
    if (status == 0) {
        stored = stk_index_add_text(index, path, (struct stk_view){(const uint8_t *)"", 0});
        status = stored ? 0 : -ENOMEM;
    }
    if (status == 0) {
        *slot =
            (struct stk_index_shard){.path = stored,
                                     .of.part = part,
                                     .object_bytes = stk_index_shard_bytes(from, from_shard),
                                     .compression = stk_index_shard_compression(from, from_shard),
                                     .kind = STK_INDEX_SHARD_TAR};
        return 0;
    }
    if (status != STOKER_ERROR_CORRUPT) {
        stk_fail(error, status, "no memory for the index", "free memory or give the job more",
                 "'%s'", path);
    }
    stk_index_part_close(part);
    return status;
}
