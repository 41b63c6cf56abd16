/* Look-ups of a mapped index file, whose foot and records index_open.c has checked. */
#include "index/index_file.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "io/io.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

void stk_index_map_close(struct stk_index_map *map)
{
    if (map) {
        if (map->io) {
            stk_io_unmap(map->io, map->image);
        }
        stk_paged_file_close(&map->file);
        stk_free(map->records);
        stk_free(map);
    }
}

int stk_index_map_fail(const struct stk_index_map *map, uint64_t at, const char *detail,
                       struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CORRUPT, "the index is damaged",
             "make it again with 'stoker index --force'", "%s", detail);
    stk_error_set_location(error, map->name, at, NULL);
    return STOKER_ERROR_CORRUPT;
}

bool stk_index_file_path_is_safe(struct stk_view path)
{
    size_t part = 0; /* bytes of it so far */
    bool dots = true, below = path.bytes > 0 && path.data[0] != '/';

    for (size_t i = 0; below && i <= path.bytes; i++) {
        if (i == path.bytes || path.data[i] == '/') {
            below = !(dots && part == 2);
            part = 0;
            dots = true;
        } else {
            below = path.data[i] != '\0';
            dots = dots && path.data[i] == '.';
            part++;
        }
    }
    return below;
}

uint64_t stk_index_file_column_count(const struct stk_index_file_record *record, uint32_t column)
{
    switch (column) {
    case STK_INDEX_COLUMN_FIRSTS:
    case STK_INDEX_COLUMN_KEYS:
        return record->sample_count + 1ull;
    case STK_INDEX_COLUMN_LABELS:
        return record->flags & STK_INDEX_FILE_LABELS ? record->sample_count : 0;
    default:
        return record->member_count;
    }
}

void stk_index_file_block_layout(const struct stk_index_file_record *record,
                                 struct stk_index_file_block *block_out)
{
    /* Counts are below 2^32, widths below 9: nothing here wraps 64 bits. */
    uint64_t at = 0;

    block_out->checksums = at;
    at += record->flags & STK_INDEX_FILE_SUMS ? record->member_count * 8ull : 0;
    for (uint32_t i = 0; i < STK_INDEX_COLUMNS_GROUPED; i++) {
        uint64_t count = stk_index_file_column_count(record, i);

        block_out->bases[i] = at;
        at += (count + STK_INDEX_FILE_GROUP - 1) / STK_INDEX_FILE_GROUP * 8;
    }
    for (uint32_t i = 0; i < STK_INDEX_COLUMNS; i++) {
        block_out->numbers[i] = at;
        at += stk_index_file_column_count(record, i) * record->widths[i];
    }
    block_out->keys = at;
    at += record->keys_bytes;
    at = record->seek_points_bytes > 0 ? stk_round_up(at, 8) : at;
    block_out->seek_points = at;
    at += record->seek_points_bytes;
    block_out->end = at;
}

const void *stk_index_map_view(const struct stk_index_map *map, uint64_t at, uint64_t bytes,
                               struct stoker_error *error)
{
    uint64_t damaged = STOKER_NO_OFFSET;
    const void *view = stk_paged_file_view(&map->file, at, bytes, &damaged);

    if (!view) {
        bool outside = damaged == STOKER_NO_OFFSET;

        stk_index_map_fail(map, outside ? at : damaged,
                           outside ? "a place is out of bounds" : "a page is not what was written",
                           error);
    }
    return view;
}

/* The last shard that starts at or before the sample; empty shards start where the next does. */
static uint32_t find_record(const struct stk_index_map *map, uint64_t sample)
{
    uint64_t low = 0, high = map->foot.shard_count;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (map->records[middle].first_sample <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Copies the entry of a file of a folder, whose path it checks: both may change in the map. */
static int read_entry(const struct stk_index_map *map, uint64_t shard,
                      struct stk_index_file_entry *entry, struct stk_view *path_out,
                      struct stoker_error *error)
{
    uint64_t at = map->foot.records.at + shard * sizeof *entry, end;
    const void *stored = stk_index_map_view(map, at, sizeof *entry, error);

    if (!stored) {
        return STOKER_ERROR_CORRUPT;
    }
    memcpy(entry, stored, sizeof *entry);
    if (!stk_add(entry->path_at, entry->path_bytes, &end) || end > map->foot.paths.bytes ||
        entry->path_bytes == 0 || entry->path_bytes >= STK_PATH_BYTES_MAX) {
        return stk_index_map_fail(map, at, "the path of a file is out of bounds", error);
    }
    path_out->bytes = entry->path_bytes;
    path_out->data =
        stk_index_map_view(map, map->foot.paths.at + entry->path_at, entry->path_bytes, error);
    if (!path_out->data) {
        return STOKER_ERROR_CORRUPT;
    }
    return stk_index_file_path_is_safe(*path_out)
               ? 0
               : stk_index_map_fail(map, at, "the path of a file leads out of its folder", error);
}

/* A container, and the requested entry of it. */
struct lookup {
    const struct stk_index_map *map;
    const struct stk_index_file_record *record;
    struct stk_index_file_block block;
};

static void lookup_open(struct lookup *lookup, const struct stk_index_map *map, uint32_t shard)
{
    lookup->map = map;
    lookup->record = &map->records[shard];
    stk_index_file_block_layout(lookup->record, &lookup->block);
}

/* The file may have any number: the caller validates it. */
static int lookup_number(const struct lookup *lookup, uint32_t column, uint64_t at,
                         uint64_t *number_out, struct stoker_error *error)
{
    uint32_t width = lookup->record->widths[column];
    uint64_t place = lookup->record->block_at + lookup->block.numbers[column] + at * width;
    const uint8_t *number = stk_index_map_view(lookup->map, place, width, error);
    const uint64_t *base = NULL;

    if (!number) {
        return STOKER_ERROR_CORRUPT;
    }
    *number_out = stk_index_file_load(number, width);
    if (column < STK_INDEX_COLUMNS_GROUPED) {
        place =
            lookup->record->block_at + lookup->block.bases[column] + at / STK_INDEX_FILE_GROUP * 8;
        base = stk_index_map_view(lookup->map, place, 8, error);
        if (!base) {
            return STOKER_ERROR_CORRUPT;
        }
        *number_out += *base;
    }
    return 0;
}

static int fail_column(const struct lookup *lookup, uint32_t column, uint64_t at,
                       const char *detail, struct stoker_error *error)
{
    uint64_t place = lookup->block.numbers[column] + at * lookup->record->widths[column];

    return stk_index_map_fail(lookup->map, lookup->record->block_at + place, detail, error);
}

static int entry_sample(const struct stk_index_map *map, uint64_t sample,
                        struct stk_sample *sample_out, struct stoker_error *error)
{
    struct stk_index_file_entry entry;
    int status = read_entry(map, sample, &entry, &sample_out->key, error);

    if (status < 0) {
        return status;
    }
    sample_out->shard = sample;
    sample_out->member_count = 1;
    sample_out->first_member = sample_out->number = 0;
    sample_out->label = entry.label;
    return 0;
}

int stk_index_map_sample(const struct stk_index_map *map, uint64_t sample,
                         struct stk_sample *sample_out, struct stoker_error *error)
{
    struct lookup lookup;
    uint64_t number, first, next, key_at, key_end, label = 0;
    const uint8_t *key;
    int status;

    if (!map->records) {
        return entry_sample(map, sample, sample_out, error);
    }
    sample_out->shard = find_record(map, sample);
    lookup_open(&lookup, map, sample_out->shard);
    number = sample - lookup.record->first_sample;
    status = lookup_number(&lookup, STK_INDEX_COLUMN_FIRSTS, number, &first, error);
    status = status < 0 ? status
                        : lookup_number(&lookup, STK_INDEX_COLUMN_FIRSTS, number + 1, &next, error);
    status =
        status < 0 ? status : lookup_number(&lookup, STK_INDEX_COLUMN_KEYS, number, &key_at, error);
    status = status < 0
                 ? status
                 : lookup_number(&lookup, STK_INDEX_COLUMN_KEYS, number + 1, &key_end, error);
    if (status == 0 && lookup.record->flags & STK_INDEX_FILE_LABELS) {
        status = lookup_number(&lookup, STK_INDEX_COLUMN_LABELS, number, &label, error);
    }
    if (status < 0) {
        return status;
    }
    if (first >= next || next > lookup.record->member_count || key_at > key_end ||
        key_end > lookup.record->keys_bytes) {
        return fail_column(&lookup, STK_INDEX_COLUMN_FIRSTS, number, "a sample is out of bounds",
                           error);
    }
    key = stk_index_map_view(map, lookup.record->block_at + lookup.block.keys + key_at,
                             key_end - key_at, error);
    if (!key) {
        return STOKER_ERROR_CORRUPT;
    }
    sample_out->number = number;
    sample_out->first_member = first;
    sample_out->member_count = next - first;
    sample_out->label = (int64_t)(label - 1);
    sample_out->key = (struct stk_view){key, key_end - key_at};
    return 0;
}

static int tar_member(const struct lookup *lookup, uint64_t number, struct stk_member *member_out,
                      struct stoker_error *error)
{
    uint64_t offset, bytes, extension, end;
    int status = lookup_number(lookup, STK_INDEX_COLUMN_OFFSETS, number, &offset, error);

    status =
        status < 0 ? status : lookup_number(lookup, STK_INDEX_COLUMN_SIZES, number, &bytes, error);
    status = status < 0
                 ? status
                 : lookup_number(lookup, STK_INDEX_COLUMN_EXTENSIONS, number, &extension, error);
    if (status < 0) {
        return status;
    }
    if (!stk_multiply(offset, stk_index_file_unit(lookup->record), &offset) ||
        !stk_add(offset, bytes, &end) ||
        (lookup->record->compression == STK_COMPRESSION_NONE &&
         end > lookup->record->object_bytes)) {
        return fail_column(lookup, STK_INDEX_COLUMN_SIZES, number,
                           "a member is outside of its shard", error);
    }
    if (extension >= lookup->map->extension_count) {
        return fail_column(lookup, STK_INDEX_COLUMN_EXTENSIONS, number,
                           "an extension is out of bounds", error);
    }
    member_out->offset = offset;
    member_out->bytes = bytes;
    member_out->extension = extension;
    return 0;
}

int stk_index_map_member(const struct stk_index_map *map, const struct stk_sample *sample,
                         uint32_t member, struct stk_member *member_out, struct stoker_error *error)
{
    struct stk_index_file_entry entry;
    struct stk_view path;
    struct lookup lookup;
    int status;

    member_out->shard = sample->shard;
    if (map->records) {
        lookup_open(&lookup, map, sample->shard);
        return tar_member(&lookup, sample->first_member + member, member_out, error);
    }
    status = read_entry(map, sample->shard, &entry, &path, error);
    if (status < 0) {
        return status;
    }
    if (entry.extension >= map->extension_count) {
        return stk_index_map_fail(map, map->foot.records.at, "an extension is out of bounds",
                                  error);
    }
    member_out->offset = 0;
    member_out->bytes = STK_ENTIRE_OBJECT;
    member_out->extension = entry.extension;
    return 0;
}

int stk_index_map_checksum(const struct stk_index_map *map, const struct stk_sample *sample,
                           uint32_t member, uint64_t *sum_out, struct stoker_error *error)
{
    uint64_t at = map->foot.sums.at + 8ull * sample->shard;
    bool has = map->foot.sums.bytes > 0;
    const uint64_t *sum;

    if (map->records) {
        const struct stk_index_file_record *record = &map->records[sample->shard];
        struct stk_index_file_block block;

        stk_index_file_block_layout(record, &block);
        at = record->block_at + block.checksums + 8 * (sample->first_member + member);
        has = record->flags & STK_INDEX_FILE_SUMS;
    }
    if (!has) {
        return STOKER_ERROR_MISSING;
    }
    sum = stk_index_map_view(map, at, 8, error);
    if (!sum) {
        return STOKER_ERROR_CORRUPT;
    }
    *sum_out = *sum;
    return 0;
}

int stk_index_map_path(const struct stk_index_map *map, uint32_t shard, struct stk_view *path_out,
                       struct stoker_error *error)
{
    const struct stk_index_file_record *record;
    struct stk_index_file_entry entry;

    if (!map->records) {
        return read_entry(map, shard, &entry, path_out, error);
    }
    record = &map->records[shard];
    path_out->data =
        stk_index_map_view(map, map->foot.paths.at + record->path_at, record->path_bytes, error);
    path_out->bytes = record->path_bytes;
    return path_out->data ? 0 : STOKER_ERROR_CORRUPT;
}

const void *stk_index_map_seek_points(const struct stk_index_map *map, uint32_t shard, uint64_t at,
                                      uint64_t bytes, struct stoker_error *error)
{
    const struct stk_index_file_record *record = &map->records[shard];
    struct stk_index_file_block block;

    stk_index_file_block_layout(record, &block);
    return stk_index_map_view(map, record->block_at + block.seek_points + at, bytes, error);
}

int stk_index_map_block(const struct stk_index_map *map, uint32_t shard, const uint8_t **data_out,
                        struct stk_index_file_block *block_out, struct stoker_error *error)
{
    const struct stk_index_file_record *record = &map->records[shard];

    stk_index_file_block_layout(record, block_out);
    *data_out = stk_index_map_view(map, record->block_at, block_out->end, error);
    return *data_out ? 0 : STOKER_ERROR_CORRUPT;
}
