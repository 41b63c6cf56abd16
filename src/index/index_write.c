/* Writes an index to its file, from front to back in one pass, so that checksums, counts and
 * offsets, which are known last, are in the footer. */
#include "index/index_file.h"

#include "base/mem.h"
#include "base/paged_file.h"
#include "base/xxh3.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <string.h>

/* Either file or image receives the bytes. After the first failure all puts do nothing. */
struct save {
    const struct stk_index *index;
    struct stk_atomic_file file; /* not open: to image */
    uint8_t *image;              /* owned */
    uint64_t image_bytes, image_capacity;
    struct stk_paged_writer pages;
    struct stk_index_file_foot foot;
    const char *name, *root;
    int status;
    struct stoker_error *error;
};

static int emit(void *context, const void *data, size_t bytes, struct stoker_error *error);
static void put(struct save *save, const void *data, uint64_t bytes);
static void align(struct save *save);
static int relative(struct save *save, const char *path, struct stk_view *path_out);
static void put_tars(struct save *save);
static void put_block(struct save *save, const struct stk_index_part *part,
                      struct stk_index_file_record *record);
static void put_bases(struct save *save, const struct stk_index_part *part,
                      struct stk_index_file_record *record, uint32_t column);
static void put_numbers(struct save *save, const struct stk_index_part *part,
                        const struct stk_index_file_record *record, uint32_t column);
static void put_folder(struct save *save);
static void put_texts(struct save *save, const struct stk_string_table *words,
                      struct stk_index_file_section *section);
static void put_foot(struct save *save);

static void no_memory(struct save *save)
{
    if (save->status == 0) {
        save->status = stk_fail(save->error, -ENOMEM, "cannot write an index", "free memory",
                                "'%s'", save->name);
    }
}

static void save_all(struct save *save)
{
    const struct stk_index *index = save->index;
    struct stk_index_file_head head = {.version = STK_INDEX_FILE_VERSION,
                                       .page_bytes = STK_INDEX_FILE_PAGE_BYTES};

    STK_ASSERT(index->finished && !index->map);
    save->status = stk_paged_writer_open(&save->pages, emit, save, save->error);
    memcpy(head.magic, STK_INDEX_FILE_HEAD_MAGIC, sizeof head.magic);
    put(save, &head, sizeof head);
    if (index->folder) {
        put_folder(save);
    } else {
        put_tars(save);
    }
    put_texts(save, &index->locked.extensions, &save->foot.extensions);
    put_texts(save, &index->locked.classes, &save->foot.classes);
    put_foot(save);
}

static void deinit(struct save *save)
{
    stk_atomic_file_close(&save->file);
    stk_free(save->image);
    stk_paged_writer_close(&save->pages);
}

int stk_index_image(const struct stk_index *index, const char *root, struct stk_view *image_out,
                    struct stoker_error *error)
{
    struct save save = {.index = index, .name = "image", .root = root, .error = error};

    save_all(&save);
    if (save.status == 0) {
        *image_out = (struct stk_view){save.image, save.image_bytes};
        save.image = NULL;
    }
    deinit(&save);
    return save.status;
}

/* path up to and with its last '/'. */
static int folder_of(const char *path, char folder[STK_PATH_BYTES_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? slash + 1 - path : 0;

    if (strlen(path) >= STK_PATH_BYTES_MAX - 8) {
        return -ENAMETOOLONG;
    }
    memcpy(folder, path, bytes);
    folder[bytes] = '\0';
    return 0;
}

int stk_index_write(const struct stk_index *index, struct stk_io *io, const char *path,
                    struct stoker_error *error)
{
    char folder[STK_PATH_BYTES_MAX];
    struct save save = {.index = index, .name = path, .error = error};

    if (folder_of(path, folder) < 0) {
        return stk_fail_errno(error, ENAMETOOLONG, "cannot write an index", "use a shorter path",
                              "'%.600s'", path);
    }
    save.root = index->root ? index->root : folder;
    save.status = stk_atomic_file_open(&save.file, io, path, ".new", error);
    if (save.status < 0) {
        return save.status;
    }
    save_all(&save);
    if (save.status == 0) {
        save.status = stk_atomic_file_commit(&save.file, STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
    }
    deinit(&save);
    return save.status;
}

/* To the file or the image. */
static int emit(void *context, const void *data, size_t bytes, struct stoker_error *error)
{
    struct save *save = context;

    if (save->file.output) {
        return stk_atomic_file_write(&save->file, data, bytes, error);
    }
    if (save->image_capacity - save->image_bytes < bytes) {
        uint64_t capacity = (save->image_capacity + bytes) * 2;
        uint8_t *image = stk_realloc(save->image, save->image_capacity, capacity, 1);

        if (!image) {
            return stk_fail_memory(error, "'%s'", save->name);
        }
        save->image = image;
        save->image_capacity = capacity;
    }
    memcpy(save->image + save->image_bytes, data, bytes);
    save->image_bytes += bytes;
    return 0;
}

static void put(struct save *save, const void *data, uint64_t bytes)
{
    if (save->status == 0) {
        save->status = stk_paged_writer_put(&save->pages, data, bytes, save->error);
    }
}

static void align(struct save *save)
{
    if (save->status == 0) {
        save->status = stk_paged_writer_align(&save->pages, save->error);
    }
}

static int relative(struct save *save, const char *path, struct stk_view *path_out)
{
    size_t root_bytes = strlen(save->root);

    if (strncmp(path, save->root, root_bytes) != 0 || path[root_bytes] == '\0') {
        save->status = stk_fail(save->error, STOKER_ERROR_ARGUMENT,
                                "a shard is not below the root of the index",
                                "write the index into a folder above all shards",
                                "'%.300s' not in '%.300s'", path, save->root);
        return save->status;
    }
    *path_out = (struct stk_view){(const uint8_t *)path + root_bytes, strlen(path + root_bytes)};
    if (!stk_index_file_path_is_safe(*path_out)) {
        save->status =
            stk_fail(save->error, STOKER_ERROR_ARGUMENT, "a path leads out of the index's folder",
                     "name the shards by paths without '..'", "'%.600s'", path);
    } else if (path_out->bytes >= STK_PATH_BYTES_MAX) {
        save->status = stk_fail(save->error, STOKER_ERROR_LIMIT, "a path is too long",
                                "move the data set up", "'%.600s'", path);
    }
    return save->status;
}

static void put_tars(struct save *save)
{
    const struct stk_index *index = save->index;
    uint64_t count = index->options.shard_count, path_at = 0, first_sample = 0;
    struct stk_index_file_record *records = stk_alloc(count, sizeof *records);

    if (!records) {
        no_memory(save);
        return;
    }
    for (uint64_t i = 0; save->status == 0 && i < count; i++) {
        const struct stk_index_shard *shard = &index->shards[i];
        struct stk_index_file_record *record = &records[i];
        struct stk_view path;

        if (relative(save, shard->path, &path) < 0) {
            break;
        }
        record->path_at = path_at;
        record->path_bytes = path.bytes;
        path_at += path.bytes;
        record->object_bytes = shard->object_bytes;
        record->compression = shard->compression;
        record->first_sample = first_sample;
        first_sample += shard->of.part->keys.count;
        put_block(save, shard->of.part, record);
    }
    align(save);
    save->foot.records = (struct stk_index_file_section){save->pages.at, count * sizeof *records};
    put(save, records, count * sizeof *records);
    save->foot.paths = (struct stk_index_file_section){save->pages.at, path_at};
    for (uint64_t i = 0; save->status == 0 && i < count; i++) {
        put(save, index->shards[i].path + strlen(save->root), records[i].path_bytes);
    }
    stk_free(records);
}

static void put_block(struct save *save, const struct stk_index_part *part,
                      struct stk_index_file_record *record)
{
    uint64_t members = part->member_count, samples = part->keys.count;

    STK_ASSERT(!part->unverified);
    record->bytes = part->bytes;
    record->sample_count = samples;
    record->member_count = members;
    record->keys_bytes = part->keys.byte_count;
    record->seek_points_bytes = part->seek_points_bytes;
    record->flags = (part->checksums ? STK_INDEX_FILE_SUMS : 0) |
                    (part->labels ? STK_INDEX_FILE_LABELS : 0) |
                    (part->has_digest ? STK_INDEX_FILE_DIGEST : 0);
    for (uint64_t i = 0; part->wide && i < members; i++) {
        record->flags |= part->wide[2 * i] % STK_INDEX_OFFSET_UNIT ? STK_INDEX_FILE_BYTES : 0;
    }
    memcpy(record->identity, part->identity, sizeof record->identity);
    memcpy(record->sha256, part->sha256, sizeof record->sha256);
    align(save);
    record->block_at = save->pages.at;
    put(save, part->checksums, part->checksums ? members * 8 : 0);
    for (uint32_t column = 0; column < STK_INDEX_COLUMNS; column++) {
        put_bases(save, part, record, column);
    }
    for (uint32_t column = 0; column < STK_INDEX_COLUMNS; column++) {
        put_numbers(save, part, record, column);
    }
    put(save, part->keys.bytes, part->keys.byte_count);
    if (part->seek_points) {
        align(save);
        put(save, part->seek_points, part->seek_points_bytes);
    }
}

static uint64_t number_at(const struct stk_index_part *part,
                          const struct stk_index_file_record *record, uint32_t column, uint64_t at)
{
    switch (column) {
    case STK_INDEX_COLUMN_OFFSETS:
        return part->wide ? part->wide[2 * at] / stk_index_file_unit(record) : part->units[at];
    case STK_INDEX_COLUMN_FIRSTS:
        return part->first_member[at];
    case STK_INDEX_COLUMN_KEYS:
        return at > 0 ? part->keys.ends[at - 1] : 0;
    case STK_INDEX_COLUMN_SIZES:
        return part->wide ? part->wide[2 * at + 1] : part->sizes[at];
    case STK_INDEX_COLUMN_EXTENSIONS:
        return part->extensions[at];
    default:
        return (uint64_t)part->labels[at] + 1;
    }
}

/* Numbers of a group: the smallest (0 in a column that is not near), and the largest. */
struct span {
    uint64_t base, largest;
};

static struct span span_of(const struct stk_index_part *part,
                           const struct stk_index_file_record *record, uint32_t column,
                           uint64_t group)
{
    uint64_t at = group * STK_INDEX_FILE_GROUP, count = stk_index_file_column_count(record, column);
    uint64_t end = stk_min(at + STK_INDEX_FILE_GROUP, count);
    struct span span = {column < STK_INDEX_COLUMNS_GROUPED ? UINT64_MAX : 0, 0};

    for (; at < end; at++) {
        uint64_t number = number_at(part, record, column, at);

        span.base = stk_min(span.base, number);
        span.largest = stk_max(span.largest, number);
    }
    return span;
}

/* For grouped columns the bases; for all columns the width. */
static void put_bases(struct save *save, const struct stk_index_part *part,
                      struct stk_index_file_record *record, uint32_t column)
{
    uint64_t count = stk_index_file_column_count(record, column), widest = 0;

    for (uint64_t group = 0; group * STK_INDEX_FILE_GROUP < count; group++) {
        struct span span = span_of(part, record, column, group);

        widest = stk_max(widest, span.largest - span.base);
        if (column < STK_INDEX_COLUMNS_GROUPED) {
            put(save, &span.base, sizeof span.base);
        }
    }
    record->widths[column] = 0;
    while (widest > 0) {
        record->widths[column]++;
        widest >>= 8;
    }
}

/* Puts a group at once: a call for each number costs more than its bytes. */
static void put_numbers(struct save *save, const struct stk_index_part *part,
                        const struct stk_index_file_record *record, uint32_t column)
{
    uint64_t count = stk_index_file_column_count(record, column), width = record->widths[column];
    uint8_t bytes[STK_INDEX_FILE_GROUP * sizeof(uint64_t)];

    for (uint64_t at = 0; at < count && width > 0; at += STK_INDEX_FILE_GROUP) {
        uint64_t numbers = stk_min(STK_INDEX_FILE_GROUP, count - at), base = 0;

        if (column < STK_INDEX_COLUMNS_GROUPED) {
            base = span_of(part, record, column, at / STK_INDEX_FILE_GROUP).base;
        }
        for (uint64_t i = 0; i < numbers; i++) {
            uint64_t number = number_at(part, record, column, at + i) - base;

            memcpy(bytes + i * width, &number, sizeof number);
        }
        put(save, bytes, numbers * width);
    }
}

static void put_folder(struct save *save)
{
    const struct stk_index *index = save->index;
    uint64_t count = index->options.shard_count, path_at = 0;

    save->foot.paths.at = save->pages.at;
    for (uint64_t i = 0; save->status == 0 && i < count; i++) {
        const struct stk_index_shard *file = &index->shards[i];
        struct stk_view path;

        if (relative(save, file->path, &path) < 0) {
            return;
        }
        if (path.bytes != file->key_bytes ||
            memcmp(path.data, file->path + file->key_at, path.bytes) != 0) {
            save->status =
                stk_fail(save->error, STOKER_ERROR_UNSUPPORTED,
                         "a key is not the path below the root of the index",
                         "write the index into the data set's folder", "'%.300s'", file->path);
            return;
        }
        put(save, path.data, path.bytes);
    }
    save->foot.paths.bytes = save->pages.at - save->foot.paths.at;
    align(save);
    save->foot.records = (struct stk_index_file_section){
        save->pages.at, count * sizeof(struct stk_index_file_entry)};
    for (uint64_t i = 0; save->status == 0 && i < count; i++) {
        const struct stk_index_shard *file = &index->shards[i];
        struct stk_index_file_entry entry = {path_at, file->key_bytes, file->extension,
                                             (int32_t)file->of.label};

        if (file->of.label < -1 || file->of.label > INT32_MAX) {
            save->status =
                stk_fail(save->error, STOKER_ERROR_LIMIT, "a label is too large for an index",
                         "use labels below 2^31", "%lld", (long long)file->of.label);
        }
        path_at += file->key_bytes;
        put(save, &entry, sizeof entry);
    }
    if (index->locked.file_sums) {
        save->foot.sums = (struct stk_index_file_section){save->pages.at, count * 8};
        put(save, index->locked.file_sums, count * 8);
    }
}

static void put_texts(struct save *save, const struct stk_string_table *words,
                      struct stk_index_file_section *section)
{
    *section = (struct stk_index_file_section){save->pages.at, words->byte_count};
    put(save, words->bytes, words->byte_count);
}

static void put_foot(struct save *save)
{
    const struct stk_index *index = save->index;
    struct stk_index_file_foot *foot = &save->foot;
    struct stk_paged_layout layout;

    if (save->status == 0) {
        save->status = stk_paged_writer_end(&save->pages, sizeof *foot, &layout, save->error);
    }
    if (save->status < 0) {
        return;
    }
    memcpy(foot->magic, STK_INDEX_FILE_FOOT_MAGIC, sizeof foot->magic);
    foot->version = STK_INDEX_FILE_VERSION;
    foot->page_bytes = STK_INDEX_FILE_PAGE_BYTES;
    foot->file_bytes = layout.file_bytes;
    foot->pages_at = layout.data_bytes;
    foot->pages_sum = layout.checksums_digest;
    foot->kind = index->folder ? STK_INDEX_FILE_FOLDER : STK_INDEX_FILE_TARS;
    foot->sequential = index->sequential;
    foot->shard_count = index->options.shard_count;
    foot->sample_count = index->sample_count;
    foot->member_count = index->member_count;
    foot->bytes = index->bytes;
    foot->block_samples = index->block_samples;
    memcpy(foot->skipped, index->skipped, sizeof foot->skipped);
    foot->member_gap_max = index->options.member_gap_max;
    foot->key_bytes_max = index->options.key_bytes_max;
    memcpy(foot->identity, index->identity, sizeof foot->identity);
    foot->foot_sum = stk_xxh3_64(foot, offsetof(struct stk_index_file_foot, foot_sum));
    save->status = stk_paged_writer_finish(&save->pages, foot, sizeof *foot, save->error);
}
