/* Opens an index file or an image of one. Checksums detect damage; checks of all offsets protect
 * from files that were made with wrong offsets and right checksums. */
#include "index/index_file.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "io/io.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

static int read_foot(struct stk_index_map *map, struct stoker_error *error);
static int check_foot(const struct stk_index_map *map, struct stoker_error *error);
static int check_records(struct stk_index_map *map, struct stoker_error *error);
static int check_record(const struct stk_index_map *map, uint64_t shard, uint64_t first_sample,
                        struct stoker_error *error);
static int read_texts(const struct stk_index_map *map, const struct stk_index_file_section *section,
                      uint32_t count_max, struct stk_string_table *table,
                      struct stoker_error *error);
static int start(struct stk_index **index_out, struct stk_index_map *map,
                 struct stoker_error *error);

static struct stk_index_map *new_map(const char *name, struct stoker_error *error)
{
    size_t bytes = strlen(name) + 1;
    struct stk_index_map *map = stk_alloc(sizeof *map + bytes, 1);

    if (!map) {
        stk_fail(error, -ENOMEM, "cannot map an index", "free memory", "'%s'", name);
        return NULL;
    }
    memcpy(map->name, name, bytes);
    return map;
}

int stk_index_open_image(struct stk_index **index_out, struct stk_view image, const char *name,
                         struct stoker_error *error)
{
    struct stk_index_map *map = new_map(name, error);

    *index_out = NULL;
    STK_ASSERT((uintptr_t)image.data % 8 == 0);
    if (!map) {
        return -ENOMEM;
    }
    map->image = image;
    return start(index_out, map, error);
}

int stk_index_open_file(struct stk_index **index_out, struct stk_io *io, const char *path,
                        struct stoker_error *error)
{
    struct stk_index_map *map = new_map(path, error);
    struct stk_file *file = NULL;
    int status;

    *index_out = NULL;
    if (!map) {
        return -ENOMEM;
    }
    status = stk_io_open_file(io, path, &file, error);
    if (status == 0) {
        status = stk_io_map(io, file, &map->image, error);
    }
    if (file) {
        stk_io_close_file(file);
    }
    if (status < 0) {
        stk_index_map_close(map);
        return status;
    }
    map->io = io;
    status = start(index_out, map, error);
    if (status == 0) {
        const char *slash = strrchr(path, '/');
        char root[STK_PATH_BYTES_MAX];
        size_t bytes = stk_min(slash ? slash + 1 - path : 0, sizeof root - 1);

        memcpy(root, path, bytes);
        root[bytes] = '\0';
        status = stk_index_set_root(*index_out, root, error);
        if (status < 0) {
            stk_index_close(*index_out);
            *index_out = NULL;
        }
    }
    return status;
}

/* Takes ownership of the map. */
static int start(struct stk_index **index_out, struct stk_index_map *map,
                 struct stoker_error *error)
{
    const struct stk_index_file_foot *foot = &map->foot;
    struct stk_index *index = NULL;
    int status = read_foot(map, error);

    if (status == 0) {
        struct stk_index_options options = {foot->shard_count, foot->key_bytes_max,
                                            foot->member_gap_max};
        index = stk_index_new(&options);
        status = index ? 0
                       : stk_fail(error, -ENOMEM, "cannot map an index", "free memory", "'%s'",
                                  map->name);
    }
    if (status == 0) {
        status = check_records(map, error);
    }
    if (status == 0) {
        status = read_texts(map, &foot->extensions, STK_INDEX_EXTENSIONS_MAX,
                            &index->locked.extensions, error);
    }
    if (status == 0) {
        status =
            read_texts(map, &foot->classes, STK_INDEX_CLASSES_MAX, &index->locked.classes, error);
    }
    if (status < 0) {
        stk_index_close(index);
        stk_index_map_close(map);
        return status;
    }
    map->extension_count = index->locked.extensions.count;
    index->map = map;
    index->finished = true;
    index->folder = foot->kind == STK_INDEX_FILE_FOLDER;
    index->sequential = foot->sequential != 0;
    index->sample_count = foot->sample_count;
    index->member_count = foot->member_count;
    index->bytes = foot->bytes;
    index->block_samples = foot->block_samples;
    memcpy(index->skipped, foot->skipped, sizeof index->skipped);
    memcpy(index->identity, foot->identity, sizeof index->identity);
    *index_out = index;
    return 0;
}

/* The smallest file is a head, no pages' worth of data, and a foot. */
static int read_foot(struct stk_index_map *map, struct stoker_error *error)
{
    struct stk_index_file_head head;
    struct stk_index_file_foot *foot = &map->foot;
    uint64_t bytes = map->image.bytes;

    if (bytes < sizeof head || memcmp(map->image.data, STK_INDEX_FILE_HEAD_MAGIC, 8) != 0) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the file is no index",
                        "make it again with 'stoker index --force'", "'%s'", map->name);
    }
    memcpy(&head, map->image.data, sizeof head);
    if (head.version != STK_INDEX_FILE_VERSION || head.page_bytes != STK_INDEX_FILE_PAGE_BYTES) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the index has another version",
                        "make it again with 'stoker index --force'", "'%s' version %u", map->name,
                        head.version);
    }
    if (bytes < sizeof head + sizeof *foot || bytes % 8 != 0) {
        return stk_index_map_fail(map, bytes, "it ends too early", error);
    }
    memcpy(foot, map->image.data + bytes - sizeof *foot, sizeof *foot);
    if (memcmp(foot->magic, STK_INDEX_FILE_FOOT_MAGIC, 8) != 0) {
        return stk_index_map_fail(map, bytes - sizeof *foot, "it has no foot: it may be cut",
                                  error);
    }
    if (foot->foot_sum != stk_xxh3_64(foot, offsetof(struct stk_index_file_foot, foot_sum))) {
        return stk_index_map_fail(map, bytes - sizeof *foot, "its foot is not what was written",
                                  error);
    }
    return check_foot(map, error);
}

static bool is_inside(const struct stk_index_map *map, const struct stk_index_file_section *section,
                      uint64_t align)
{
    uint64_t end;

    return section->at % align == 0 && stk_add(section->at, section->bytes, &end) &&
           end <= map->foot.pages_at;
}

static int check_foot(const struct stk_index_map *map, struct stoker_error *error)
{
    const struct stk_index_file_foot *foot = &map->foot;
    uint64_t at = map->image.bytes - sizeof *foot;
    uint64_t item, want, sums;
    bool sane;

    sane = foot->version == STK_INDEX_FILE_VERSION &&
           foot->page_bytes == STK_INDEX_FILE_PAGE_BYTES && foot->file_bytes == map->image.bytes &&
           foot->pages_at >= sizeof(struct stk_index_file_head) &&
           stk_paged_file_fits(map->image.bytes, foot->pages_at, sizeof *foot);
    sane = sane && (foot->kind == STK_INDEX_FILE_TARS || foot->kind == STK_INDEX_FILE_FOLDER);
    sane = sane && foot->sequential <= 1 && foot->block_samples > 0 &&
           foot->shard_count < UINT32_MAX && foot->key_bytes_max > 0;
    item = foot->kind == STK_INDEX_FILE_TARS ? sizeof(struct stk_index_file_record)
                                             : sizeof(struct stk_index_file_entry);
    sums = foot->kind == STK_INDEX_FILE_FOLDER && foot->sums.bytes ? foot->shard_count * 8 : 0;
    sane = sane && stk_multiply(foot->shard_count, item, &want) && foot->records.bytes == want &&
           foot->sums.bytes == sums && is_inside(map, &foot->records, 8) &&
           is_inside(map, &foot->sums, 8) && is_inside(map, &foot->paths, 1) &&
           is_inside(map, &foot->extensions, 1) && is_inside(map, &foot->classes, 1);
    sane = sane && (foot->kind == STK_INDEX_FILE_TARS || (foot->sample_count == foot->shard_count &&
                                                          foot->member_count == foot->shard_count));
    return sane ? 0 : stk_index_map_fail(map, at, "its foot contradicts itself", error);
}

/* Validates the footer: then offsets of records are in bounds, and page checksums can be used. */
static int check_records(struct stk_index_map *map, struct stoker_error *error)
{
    const struct stk_index_file_foot *foot = &map->foot;
    uint64_t samples = 0, members = 0, bytes = 0;
    const void *records;
    int status = stk_paged_file_open(&map->file, map->image, foot->pages_at, foot->pages_sum);

    if (status == STOKER_ERROR_CORRUPT) {
        return stk_index_map_fail(map, foot->pages_at, "its sums are not what was written", error);
    }
    if (status < 0) {
        return stk_fail_memory(error, "'%s'", map->name);
    }
    if (foot->kind == STK_INDEX_FILE_FOLDER) {
        return 0; /* a record per file: validated when it is used */
    }
    records = stk_index_map_view(map, foot->records.at, foot->records.bytes, error);
    if (!records) {
        return STOKER_ERROR_CORRUPT;
    }
    map->records = stk_alloc(foot->shard_count, sizeof *map->records);
    if (!map->records) {
        return stk_fail_memory(error, "'%s'", map->name);
    }
    memcpy(map->records, records, foot->records.bytes);
    for (uint64_t i = 0; status == 0 && i < foot->shard_count; i++) {
        status = check_record(map, i, samples, error);
        samples += map->records[i].sample_count;
        members += map->records[i].member_count;
        if (!stk_add(bytes, map->records[i].bytes, &bytes)) {
            bytes = UINT64_MAX;
        }
    }
    if (status == 0 &&
        (samples != foot->sample_count || members != foot->member_count || bytes != foot->bytes)) {
        status =
            stk_index_map_fail(map, foot->records.at, "its counts contradict each other", error);
    }
    return status;
}

static bool widths_are_valid(const struct stk_index_file_record *record)
{
    bool sane = true;

    for (uint32_t i = 0; i < STK_INDEX_COLUMNS; i++) {
        sane = sane && record->widths[i] <= sizeof(uint64_t);
    }
    return sane;
}

static int check_record(const struct stk_index_map *map, uint64_t shard, uint64_t first_sample,
                        struct stoker_error *error)
{
    const struct stk_index_file_record *record = &map->records[shard];
    uint64_t at = map->foot.records.at + shard * sizeof *record;
    const uint8_t *path;
    struct stk_index_file_block block;
    uint64_t end;

    stk_index_file_block_layout(record, &block);
    if (record->compression > STK_COMPRESSION_XZ || record->flags > 15 ||
        !widths_are_valid(record) || record->first_sample != first_sample ||
        record->sample_count > record->member_count ||
        record->member_count > STK_INDEX_MEMBERS_MAX ||
        (record->member_count > 0 && record->sample_count == 0) || record->block_at % 8 != 0 ||
        (record->seek_points_bytes > 0 && record->compression != STK_COMPRESSION_GZIP &&
         record->compression != STK_COMPRESSION_ZSTD) ||
        !stk_add(record->block_at, block.end, &end) || end > map->foot.pages_at) {
        return stk_index_map_fail(map, at, "a record of a shard contradicts itself", error);
    }
    if (!stk_add(record->path_at, record->path_bytes, &end) || record->path_bytes == 0 ||
        record->path_bytes >= STK_PATH_BYTES_MAX || end > map->foot.paths.bytes) {
        return stk_index_map_fail(map, at, "the path of a shard is out of bounds", error);
    }
    path = stk_index_map_view(map, map->foot.paths.at + record->path_at, record->path_bytes, error);
    if (!path) {
        return STOKER_ERROR_CORRUPT;
    }
    if (!stk_index_file_path_is_safe((struct stk_view){path, record->path_bytes})) {
        return stk_index_map_fail(map, at, "the path of a shard leads out of its folder", error);
    }
    return 0;
}

static int read_texts(const struct stk_index_map *map, const struct stk_index_file_section *section,
                      uint32_t count_max, struct stk_string_table *table,
                      struct stoker_error *error)
{
    const char *text = stk_index_map_view(map, section->at, section->bytes, error);
    uint64_t at = 0;
    uint32_t number;

    if (!text) {
        return STOKER_ERROR_CORRUPT;
    }
    if (section->bytes > 0 && text[section->bytes - 1] != '\0') {
        return stk_index_map_fail(map, section->at, "a text has no end", error);
    }
    while (at < section->bytes) {
        /* The file may change meanwhile: then a text has no end. */
        size_t left = section->bytes - at, bytes = strnlen(text + at, left) + 1;
        struct stk_view word = {(const uint8_t *)text + at, bytes};
        uint32_t count = table->count;
        int status =
            bytes > left || (bytes > STK_INDEX_EXTENSION_BYTES_MAX && table->count < count_max &&
                             count_max == STK_INDEX_EXTENSIONS_MAX)
                ? STOKER_ERROR_LIMIT
                : stk_string_table_add(table, word, count_max, &number);

        if (status == -ENOMEM) {
            return stk_fail(error, status, "cannot map an index", "free memory", "'%s'", map->name);
        }
        if (status < 0 || number != count) {
            return stk_index_map_fail(map, section->at + at,
                                      "a text is superfluous or occurs twice", error);
        }
        at += bytes;
    }
    return 0;
}
