/* The files of a step: their headers, which a step with an index of names reads when they are
 * needed. */
#include "checkpoint/read/checkpoint.h"

#include "base/crypto/sha256_many.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define FIRST_READ_BYTES (256u << 10)
#define OTHER "restore another step, or copy this one again"

const char *stk_checkpoint_tensor_at(const struct stk_checkpoint_file *file, uint64_t offset)
{
    for (uint64_t i = 0; i < file->layout.count; i++) {
        if (offset < file->layout.tensors[i].offset + file->layout.tensors[i].bytes) {
            return file->layout.tensors[i].name;
        }
    }
    return "";
}

int stk_checkpoint_read(const struct stoker_checkpoint *checkpoint,
                        const struct stk_checkpoint_file *file, uint64_t offset, uint8_t *data,
                        uint64_t bytes, struct stoker_error *error)
{
    struct stk_io *io = checkpoint->place.io;
    struct stk_file *opened = NULL;
    int64_t got = 0;
    int status = file->file ? 0 : stk_io_open_file(io, file->path, &opened, error);

    if (status == 0) {
        struct stk_file *from = opened ? opened : file->file;

        got = stk_io_read_wait(from, offset, data, bytes);
        if (got < 0) {
            status = stk_io_fail_read(from, got, "cannot read the file of a checkpoint", error);
        } else if (got < (int64_t)bytes) {
            status = stk_fail(error, STOKER_ERROR_TRUNCATED, "the file ends too early", OTHER,
                              "'%.400s'", file->path);
        }
    }
    if (status < 0) { /* without a layout, these are bytes of the header */
        const char *name = checkpoint->foreign.count > 0
                               ? stk_foreign_tensor_at(&checkpoint->foreign,
                                                       (uint32_t)(file - checkpoint->files), offset)
                           : file->layout.count > 0
                               ? stk_checkpoint_tensor_at(file, offset - file->layout.header_bytes)
                               : NULL;

        stk_error_set_location(error, file->path, offset, name);
    }
    stk_io_close_file(opened);
    return status;
}

static int read_header(const struct stoker_checkpoint *checkpoint, struct stk_checkpoint_file *file,
                       struct stoker_error *error)
{
    uint64_t first = stk_min(file->bytes, FIRST_READ_BYTES), json_bytes = 0;
    uint8_t *data = stk_alloc(first + STK_SAFETENSORS_LENGTH_BYTES, 1);
    int status = data ? stk_checkpoint_read(checkpoint, file, 0, data, first, error)
                      : stk_fail_memory(error, "header");

    status = status < 0 ? status : stk_safetensors_length(data, file->bytes, &json_bytes, error);
    if (status == 0 && json_bytes + STK_SAFETENSORS_LENGTH_BYTES > first) {
        uint64_t all = json_bytes + STK_SAFETENSORS_LENGTH_BYTES;
        uint8_t *grown = stk_realloc(data, first, all, 1);

        data = grown ? grown : data;
        status =
            grown ? stk_checkpoint_read(checkpoint, file, first, data + first, all - first, error)
                  : stk_fail_memory(error, "header");
    }
    if (status == 0) {
        status = stk_safetensors_parse(
            &file->layout, (struct stk_view){data + STK_SAFETENSORS_LENGTH_BYTES, json_bytes},
            file->bytes, error);
    }
    if (status < 0) {
        stk_error_set_location(error, file->path, 0, NULL);
    }
    stk_free(data);
    return status;
}

/* Opens a file, and checks its length. part: its entry in the manifest; NULL: none. */
static int open_file(const struct stoker_checkpoint *checkpoint, struct stk_checkpoint_file *file,
                     const struct stoker_checkpoint_part *part, struct stoker_error *error)
{
    struct stk_stat stat;
    int status = stk_io_open_file(checkpoint->place.io, file->path, &file->file, error);

    if (stk_place_is_absent(status) && part) {
        return stk_fail(error, STOKER_ERROR_MISSING, "a file of the step is missing", OTHER,
                        "'%.400s'", file->path);
    }
    status = status < 0 ? status : stk_io_stat_file(file->file, &stat, error);
    if (status < 0) {
        return status;
    }
    file->bytes = stat.bytes;
    if (part && part->bytes != stat.bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED,
                        "the file has not the length that the manifest says", OTHER,
                        "'%.400s' has %" PRIu64 " bytes instead of %" PRIu64, file->path,
                        stat.bytes, part->bytes);
    }
    return 0;
}

int stk_checkpoint_read_file(const struct stoker_checkpoint *checkpoint,
                             struct stk_checkpoint_file *file, uint64_t index,
                             struct stoker_error *error)
{
    const struct stoker_checkpoint_part *part =
        checkpoint->manifest.files ? &checkpoint->manifest.files[index] : NULL;
    int status = open_file(checkpoint, file, part, error);

    if (status < 0) {
        return status;
    }
    status = read_header(checkpoint, file, error);
    if (status == 0 && part && memcmp(part->root, file->layout.root, 32) != 0) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT,
                          "the file is another one than the manifest says: the hashes differ",
                          OTHER, "'%.400s'", file->path);
    }
    if (!checkpoint->place.remote && index >= checkpoint->descriptors) {
        stk_io_close_file(file->file);
        file->file = NULL;
    }
    return status;
}

uint64_t stk_checkpoint_file_of(const struct stoker_checkpoint *checkpoint, uint64_t tensor)
{
    uint64_t low = 0, high = checkpoint->file_count;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (checkpoint->files[middle].first_tensor <= tensor) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Closes what read_file set. */
static void discard(struct stk_checkpoint_file *file)
{
    if (file->file) {
        stk_io_close_file(file->file);
    }
    stk_safetensors_deinit(&file->layout);
}

int stk_checkpoint_need(const struct stoker_checkpoint *checkpoint, uint64_t number,
                        struct stoker_error *error)
{
    struct stk_checkpoint_file *file = &checkpoint->files[number];
    struct stk_checkpoint_file opened = {.path = file->path};
    int status;

    if (!checkpoint->index.data || atomic_load_explicit(&file->ready, memory_order_acquire)) {
        return 0;
    }
    status = stk_checkpoint_read_file(checkpoint, &opened, number, error);
    if (status == 0 && opened.layout.count != stk_name_index_tensors(&checkpoint->index, number)) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT,
                          "the file has other tensors than the index of the step says", OTHER,
                          "'%.400s'", file->path);
    }
    if (status < 0) {
        discard(&opened);
        return status;
    }
    pthread_mutex_lock(checkpoint->opening);
    if (atomic_load_explicit(&file->ready, memory_order_relaxed)) { /* another thread was faster */
        discard(&opened);
    } else {
        file->layout = opened.layout;
        file->file = opened.file;
        atomic_store_explicit(&file->ready, true, memory_order_release);
    }
    pthread_mutex_unlock(checkpoint->opening);
    return 0;
}

struct needing {
    const struct stoker_checkpoint *checkpoint;
    const uint64_t *files;
};

static int need_one(void *context, uint64_t round, struct stoker_error *error)
{
    const struct needing *needing = context;

    return stk_checkpoint_need(needing->checkpoint, needing->files[round], error);
}

int stk_checkpoint_need_ranges(const struct stoker_checkpoint *checkpoint,
                               const struct stoker_checkpoint_range *ranges, size_t count,
                               struct stoker_error *error)
{
    uint64_t *files, needed = 0;
    bool *seen;
    int status;

    if (!checkpoint->index.data || count == 0) {
        return 0;
    }
    files = stk_alloc(checkpoint->file_count, sizeof *files);
    seen = stk_alloc(checkpoint->file_count, sizeof *seen);
    if (!files || !seen) {
        stk_free(files);
        stk_free(seen);
        return stk_fail_memory(error, "ranges of a checkpoint");
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t file =
            stk_checkpoint_file_of(checkpoint, stk_min(ranges[i].tensor, checkpoint->tensor_count));

        if (!seen[file]) {
            seen[file] = true;
            files[needed++] = file;
        }
    }
    status = stk_engine_parallel(checkpoint->engine, needed, need_one,
                                 &(struct needing){checkpoint, files}, error);
    stk_free(files);
    stk_free(seen);
    return status;
}

void stk_checkpoint_read_index(struct stoker_checkpoint *checkpoint)
{
    const struct stoker_checkpoint_part *part = &checkpoint->manifest.index;
    char *path = part->name[0] ? stk_place_path(&checkpoint->place, NULL, part->name) : NULL;
    struct stk_name_index *index = &checkpoint->index;
    uint8_t *data = NULL, root[32];
    uint64_t count = 0;
    size_t bytes = 0;

    if (!path || stk_place_read(&checkpoint->place, path, STK_NAME_INDEX_BYTES_MAX, &data, &bytes,
                                NULL) < 0) {
        stk_free(path);
        return;
    }
    stk_free(path);
    stk_sha256_one(data, bytes, root);
    if (bytes != part->bytes || memcmp(root, part->root, 32) != 0) {
        stk_free(data);
        return;
    }
    if (stk_name_index_parse(index, data, bytes, NULL) < 0) {
        return;
    }
    for (uint64_t i = 0; i < index->file_count && i < checkpoint->file_count; i++) {
        checkpoint->files[i].first_tensor = count;
        count += stk_name_index_tensors(index, i);
    }
    checkpoint->opening = stk_alloc(1, sizeof *checkpoint->opening);
    if (index->file_count != checkpoint->file_count || count != index->name_count ||
        !checkpoint->opening) {
        stk_free(checkpoint->opening);
        checkpoint->opening = NULL;
        stk_name_index_deinit(index);
        return;
    }
    pthread_mutex_init(checkpoint->opening, NULL);
    checkpoint->tensor_count = count;
}
