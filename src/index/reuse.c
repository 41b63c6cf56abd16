/* A shard's part taken over from another index: what did not change is not read again. */
#include "index/file.h"

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

/* 0, or -ENOMEM. */
static int copy_block(const struct stk_file_record *record, const uint8_t *data,
                      const struct stk_file_block *block, struct stk_part *part)
{
    uint64_t members = record->member_count, samples = record->sample_count;
    bool wide = record->flags & STK_FILE_WIDE, complete;

    part->member_count = members;
    part->bytes = record->bytes;
    part->keys.count = part->keys.capacity = samples;
    part->keys.byte_count = part->keys.byte_capacity = record->keys_bytes;
    part->keys.bytes = copy_array(data + block->keys, record->keys_bytes, 1);
    part->keys.ends = copy_array(data + block->key_ends, samples, 4);
    part->first_member = copy_array(data + block->first_member, samples + 1, 4);
    part->extensions = copy_array(data + block->extensions, members, 2);
    complete = part->keys.bytes && part->keys.ends && part->first_member && part->extensions;
    if (wide) {
        const uint64_t *offsets = (const uint64_t *)(const void *)(data + block->offsets);
        const uint32_t *sizes = (const uint32_t *)(const void *)(data + block->sizes);
        const uint16_t *high = (const uint16_t *)(const void *)(data + block->sizes_high);

        part->wide = stk_alloc(members, 16);
        for (uint64_t i = 0; part->wide && i < members; i++) {
            part->wide[2 * i] = offsets[i];
            part->wide[2 * i + 1] = sizes[i] | (uint64_t)high[i] << 32;
        }
        complete = complete && part->wide;
    } else {
        part->units = copy_array(data + block->units, members, 4);
        part->sizes = copy_array(data + block->sizes, members, 4);
        complete = complete && part->units && part->sizes;
    }
    if (record->flags & STK_FILE_SUMS) {
        part->sums = copy_array(data + block->sums, members, 8);
        complete = complete && part->sums;
    }
    if (record->flags & STK_FILE_LABELS) {
        part->labels = copy_array(data + block->labels, samples, 8);
        complete = complete && part->labels;
    }
    if (record->access_bytes > 0) {
        part->access = copy_array(data + block->access, record->access_bytes, 1);
        part->access_bytes = record->access_bytes;
        complete = complete && part->access;
    }
    return complete ? 0 : -ENOMEM;
}

/* 0, or -ENOMEM. */
static int copy_part(const struct stk_part *from, struct stk_part *part)
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
    if (from->sums) {
        part->sums = copy_array(from->sums, members, 8);
        complete = complete && part->sums;
    }
    if (from->labels) {
        part->labels = copy_array(from->labels, samples, 8);
        complete = complete && part->labels;
    }
    if (from->access_bytes > 0) {
        part->access = copy_array(from->access, from->access_bytes, 1);
        part->access_bytes = from->access_bytes;
        complete = complete && part->access;
    }
    part->unproved = from->unproved;
    part->has_digest = from->has_digest;
    memcpy(part->sha256, from->sha256, sizeof part->sha256);
    memcpy(part->identity, from->identity, sizeof part->identity);
    return complete ? 0 : -ENOMEM;
}

/* What look-ups in memory take for granted. */
static bool is_sane(const struct stk_part *part, const struct stk_file_record *record,
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
            part->wide ? part->wide[2 * i] : (uint64_t)part->units[i] * STK_OFFSET_UNIT;
        uint64_t size = part->wide ? part->wide[2 * i + 1] : part->sizes[i], end;

        sane = part->extensions[i] < extension_count && stk_add(offset, size, &end) &&
               (record->packing != 0 || end <= record->object_bytes) &&
               stk_add(bytes, size, &bytes);
    }
    return sane && bytes == part->bytes;
}

static int number_extensions(struct stk_index *index, const struct stk_index *from,
                             struct stk_part *part)
{
    uint32_t count = from->locked.extensions.count;
    uint32_t *numbers = stk_alloc(count, sizeof *numbers); /* new number + 1 */
    int status = numbers ? 0 : -ENOMEM;

    for (uint32_t i = 0; status == 0 && i < part->member_count; i++) {
        uint32_t old = part->extensions[i], number;

        if (numbers[old] == 0) {
            status = stk_index_intern(index, stk_words_at(&from->locked.extensions, old), &number);
            numbers[old] = number + 1;
        }
        part->extensions[i] = numbers[old] - 1;
    }
    stk_free(numbers);
    return status;
}

/* From a file: checked, as it may say anything. */
static int take_block(const struct stk_index *from, uint32_t from_shard, struct stk_part *part,
                      struct stoker_error *error)
{
    const struct stk_file_record *record = &from->map->records[from_shard];
    struct stk_file_block block;
    const uint8_t *data;
    int status = stk_map_block(from->map, from_shard, &data, &block, error);

    if (status < 0) {
        return status;
    }
    status = copy_block(record, data, &block, part);
    if (status == 0 && !is_sane(part, record, from->locked.extensions.count)) {
        return stk_map_damaged(from->map, record->block_at, "a shard contradicts itself", error);
    }
    part->has_digest = record->flags & STK_FILE_DIGEST;
    memcpy(part->sha256, record->sha256, sizeof part->sha256);
    memcpy(part->identity, record->identity, sizeof part->identity);
    return status;
}

int stk_shard_copy(struct stk_index *index, uint32_t shard, const char *path,
                   const struct stk_index *from, uint32_t from_shard, struct stoker_error *error)
{
    struct stk_part *part = stk_alloc(1, sizeof *part);
    struct stk_shard *slot = &index->shards[shard];
    const char *stored = NULL;
    int status = part ? 0 : -ENOMEM;

    STK_ASSERT(from->finished && !from->folder && from_shard < from->options.shard_count);
    STK_ASSERT(!index->finished && slot->kind == STK_SHARD_EMPTY);
    if (status == 0) {
        status = from->map ? take_block(from, from_shard, part, error)
                           : copy_part(from->shards[from_shard].of.part, part);
    }
    if (status == 0) {
        status = number_extensions(index, from, part);
    }
    if (status == 0) {
        stored = stk_index_store(index, path, (struct stk_view){(const uint8_t *)"", 0});
        status = stored ? 0 : -ENOMEM;
    }
    if (status == 0) {
        *slot = (struct stk_shard){.path = stored,
                                   .of.part = part,
                                   .object_bytes = stk_index_shard_bytes(from, from_shard),
                                   .packing = stk_index_shard_packing(from, from_shard),
                                   .kind = STK_SHARD_TAR};
        return 0;
    }
    if (status != STOKER_ERROR_CORRUPT) {
        stk_fail(error, status, "no memory for the index", "free memory or give the job more",
                 "'%s'", path);
    }
    stk_part_close(part);
    return status;
}
