/* Tensors that did not change are stored once, across steps.
 *
 *   save 1: all tensors --> shard; the hashes of its leaves are remembered
 *   save 2: the same    --> tensors with the hashes of save 1 did not change
 *   save 3: the others  --> shard
 *           unchanged   --> shared file, written
 *   save 4: unchanged   --> shared file: its hashes are those of step 3, so nothing is written, and
 *                           the file becomes a second name (a hard link) of that of step 3
 *
 * The file system counts the names: the removal of a step never takes the file from another one. */
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/write/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAF_BYTES ((uint64_t)STK_SAFETENSORS_LEAF_BYTES)
#define STEPS_MAX 3u /* earlier steps whose manifests are read */

/* ---- which tensors did not change ---- */

/* A large tensor of the files of a save. */
struct place {
    const struct stk_safetensor *tensor;
    uint32_t file;
    bool unchanged;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct place *)a)->tensor->name, ((const struct place *)b)->tensor->name);
}

/* The large tensors of a save, by name. NULL: no memory. */
static struct place *places_of(const struct stk_checkpoint_previous *previous, size_t *count_out)
{
    size_t all = previous->layouts[0].count + previous->layouts[1].count, count = 0;
    struct place *places = stk_alloc(all + 1, sizeof *places);

    for (uint32_t i = 0; places && i < STK_SAVE_FILES; i++) {
        for (uint64_t j = 0; j < previous->layouts[i].count; j++) {
            if (previous->layouts[i].tensors[j].bytes >= STK_SHARED_TENSOR_BYTES_MIN) {
                places[count++] =
                    (struct place){&previous->layouts[i].tensors[j], i, previous->unchanged[i][j]};
            }
        }
    }
    if (places) {
        qsort(places, count, sizeof *places, by_name);
    }
    *count_out = count;
    return places;
}

static const struct place *find_place(const struct place *places, size_t count, const char *name)
{
    struct stk_safetensor tensor = {.name = name};
    struct place key = {.tensor = &tensor};

    return bsearch(&key, places, count, sizeof *places, by_name);
}

size_t stk_shared_choose(struct stoker_checkpoint_writer *writer,
                         const struct stoker_checkpoint_tensor *tensors, size_t count, bool *shared)
{
    struct place *places = NULL;
    uint64_t bytes = 0;
    size_t place_count = 0, chosen = 0;

    pthread_mutex_lock(&writer->lock);
    if (writer->locked.previous) {
        places = places_of(writer->locked.previous, &place_count);
    }
    for (size_t i = 0; places && place_count > 0 && i < count; i++) {
        const struct place *place =
            tensors[i].name ? find_place(places, place_count, tensors[i].name) : NULL;

        shared[i] = place && place->unchanged;
        bytes += shared[i] ? place->tensor->bytes : 0;
        chosen += shared[i];
    }
    pthread_mutex_unlock(&writer->lock);
    stk_free(places);
    return bytes >= writer->shared_bytes_min ? chosen : 0;
}

/* Whether a tensor has the hashes that it had before. Its first and its last leaf have bytes of
 * other tensors, too, and do not count: if the bytes there change, the shared file is written
 * again. */
static bool is_unchanged(const struct stk_safetensors *layout, const struct stk_safetensor *tensor,
                         uint32_t file, const struct stk_checkpoint_previous *previous,
                         const struct place *place)
{
    const struct stk_safetensors *before = &previous->layouts[place->file];
    uint64_t first = (tensor->offset + LEAF_BYTES - 1) / LEAF_BYTES;
    uint64_t end = (tensor->offset + tensor->bytes) / LEAF_BYTES;
    uint64_t first_before = (place->tensor->offset + LEAF_BYTES - 1) / LEAF_BYTES;

    if (place->tensor->bytes != tensor->bytes || place->tensor->dtype != tensor->dtype) {
        return false;
    }
    if (tensor->offset % LEAF_BYTES != place->tensor->offset % LEAF_BYTES) {
        return file == STK_SAVE_SHARED; /* it has moved: the next save shows it */
    }
    return memcmp(layout->leaves + first * 32, before->leaves + first_before * 32,
                  (end - first) * 32) == 0;
}

void stk_shared_remember(struct stoker_checkpoint_save *save)
{
    struct stk_checkpoint_previous *now = stk_alloc(1, sizeof *now), *before;
    struct place *places = NULL;
    size_t count = 0;

    pthread_mutex_lock(&save->writer->lock);
    before = save->writer->locked.previous;
    save->writer->locked.previous = NULL;
    pthread_mutex_unlock(&save->writer->lock);
    places = before ? places_of(before, &count) : NULL;
    for (uint32_t i = 0; now && i < STK_SAVE_FILES; i++) {
        struct stk_safetensors *layout = &now->layouts[i];

        *layout = save->files[i].layout;
        save->files[i].layout = (struct stk_safetensors){.header_bytes = layout->header_bytes};
        now->unchanged[i] = stk_alloc(layout->count + 1, sizeof *now->unchanged[i]);
        if (!now->unchanged[i]) {
            stk_checkpoint_previous_free(now);
            now = NULL;
            break;
        }
        for (uint64_t j = 0; places && j < layout->count; j++) {
            const struct place *place = layout->tensors[j].bytes >= STK_SHARED_TENSOR_BYTES_MIN
                                            ? find_place(places, count, layout->tensors[j].name)
                                            : NULL;

            now->unchanged[i][j] =
                place && is_unchanged(layout, &layout->tensors[j], i, before, place);
        }
    }
    stk_free(places);
    stk_checkpoint_previous_free(before);
    pthread_mutex_lock(&save->writer->lock);
    before = save->writer->locked.previous; /* of another save that ended meanwhile */
    save->writer->locked.previous = now;
    pthread_mutex_unlock(&save->writer->lock);
    stk_checkpoint_previous_free(before);
}

/* ---- the shared file of an earlier step ---- */

/* Finds the entry of the file in the manifest of a step. */
static bool find_part(const struct stk_checkpoint_place *place, const char *folder,
                      const char *name, uint64_t bytes, uint8_t root[32])
{
    struct stk_step_manifest manifest;
    bool found = false;

    if (stk_place_read_manifest(place, folder, &manifest, NULL, NULL) < 0) {
        return false;
    }
    for (uint64_t i = 0; !found && i < manifest.file_count; i++) {
        found = strcmp(manifest.files[i].name, name) == 0 && manifest.files[i].bytes == bytes;
        memcpy(root, manifest.files[i].root, 32);
    }
    stk_step_manifest_deinit(&manifest);
    return found;
}

/* Reads the header of the earlier file: it must be that of the manifest, and have the same length
 * as that which is written. */
static bool read_header(struct stk_checkpoint_earlier *earlier,
                        const struct stk_safetensors *layout, const uint8_t root[32])
{
    uint64_t bytes = layout->header_bytes;
    uint8_t *header = stk_alloc(bytes, 1);
    bool right = header && stk_io_read_wait(earlier->file, 0, header, bytes) == (int64_t)bytes &&
                 stk_safetensors_parse(&earlier->layout,
                                       (struct stk_view){header + STK_SAFETENSORS_LENGTH_BYTES,
                                                         bytes - STK_SAFETENSORS_LENGTH_BYTES},
                                       bytes + layout->buffer_bytes, NULL) == 0;

    stk_free(header);
    return right && memcmp(earlier->layout.root, root, 32) == 0 &&
           earlier->layout.leaf_count == layout->leaf_count;
}

static bool open_earlier(struct stoker_checkpoint_save *save, const char *folder)
{
    const struct stk_checkpoint_save_file *file = &save->files[STK_SAVE_SHARED];
    const char *name = save->sink.names[STK_SAVE_SHARED];
    struct stk_checkpoint_earlier *earlier = &save->earlier;
    struct stk_io *io = save->sink.place->io;
    uint8_t root[32];

    if (!find_part(save->sink.place, folder, name, save->sink.file_bytes[STK_SAVE_SHARED], root)) {
        return false;
    }
    earlier->path = stk_place_path(save->sink.place, folder, name);
    earlier->skipped = stk_alloc(file->block_count + 1, sizeof *earlier->skipped);
    if (!earlier->path || !earlier->skipped ||
        stk_io_open_file(io, earlier->path, &earlier->file, NULL) < 0 ||
        !read_header(earlier, &file->layout, root)) {
        stk_earlier_close(save);
        return false;
    }
    return true;
}

void stk_earlier_open(struct stoker_checkpoint_save *save)
{
    const struct stk_checkpoint_place *place = save->sink.place;
    struct stk_listing listing = {0};
    uint64_t below = UINT64_MAX, step_min;

    pthread_mutex_lock(&save->writer->lock);
    step_min = save->writer->locked.earlier_step_min;
    pthread_mutex_unlock(&save->writer->lock);
    if (stk_io_list(place->io, place->root, &listing, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < STEPS_MAX; i++) { /* the newest step, then the one before it */
        char folder[STK_PLACE_NAME_BYTES];
        uint64_t best = 0, step;
        bool found = false;

        for (size_t j = 0; j < listing.count; j++) {
            if (stk_place_parse_step(listing.entries[j].name, "", &step) && step < below &&
                step >= step_min && (!found || step > best)) {
                best = step;
                found = true;
            }
        }
        save->earlier.step = best;
        if (!found || open_earlier(save, stk_place_step_name(best, folder))) {
            break;
        }
        below = best;
    }
    stk_listing_free(&listing);
}

void stk_earlier_close(struct stoker_checkpoint_save *save)
{
    struct stk_checkpoint_earlier *earlier = &save->earlier;

    if (earlier->file) {
        stk_io_close_file(earlier->file);
    }
    stk_safetensors_deinit(&earlier->layout);
    stk_free(earlier->path);
    stk_free(earlier->skipped);
    earlier->path = NULL;
    earlier->file = NULL;
    earlier->skipped = NULL;
}

/* The leaves of a block: the first one, and how many. */
static uint64_t leaves_of(const struct stk_safetensors *layout, uint64_t index, uint64_t *first_out)
{
    uint64_t begin = stk_max(index * STK_SAFETENSORS_BLOCK_BYTES, layout->header_bytes);
    uint64_t end = stk_min((index + 1) * STK_SAFETENSORS_BLOCK_BYTES,
                           layout->header_bytes + layout->buffer_bytes);

    *first_out = (begin - layout->header_bytes) / LEAF_BYTES;
    return (end - layout->header_bytes + LEAF_BYTES - 1) / LEAF_BYTES - *first_out;
}

bool stk_earlier_has(struct stoker_checkpoint_save *save, const struct stk_checkpoint_block *block)
{
    struct stk_checkpoint_earlier *earlier = &save->earlier;
    const struct stk_safetensors *layout = &save->files[STK_SAVE_SHARED].layout;
    uint64_t first, count;

    if (block->file != STK_SAVE_SHARED || !earlier->file || atomic_load(&earlier->differs)) {
        return false;
    }
    count = leaves_of(layout, block->index, &first);
    if (memcmp(layout->leaves + first * 32, earlier->layout.leaves + first * 32, count * 32) != 0) {
        atomic_store(&earlier->differs, true);
        return false;
    }
    earlier->skipped[block->index] = true;
    return true;
}

/* Later saves write their tensors, instead of names of a bad file. Steps below this one may have
 * other names of it. */
static void forget_earlier(struct stoker_checkpoint_save *save)
{
    struct stoker_checkpoint_writer *writer = save->writer;

    pthread_mutex_lock(&writer->lock);
    writer->locked.earlier_step_min =
        stk_max(writer->locked.earlier_step_min, save->earlier.step + 1);
    pthread_mutex_unlock(&writer->lock);
}

/* Reads a block from the earlier file, and compares its hashes. */
static int read_skipped(struct stoker_checkpoint_save *save, uint64_t first, uint64_t count,
                        uint8_t *data, uint64_t bytes, struct stoker_error *error)
{
    const struct stk_safetensors *layout = &save->files[STK_SAVE_SHARED].layout;
    struct stk_sha256_message messages[STK_SAFETENSORS_BLOCK_BYTES / STK_SAFETENSORS_LEAF_BYTES];
    uint8_t digests[STK_COUNT(messages)][32];
    int64_t got;

    stk_save_call_begin(save, STK_SAVE_WRITES, STK_SAVE_SHARED);
    got = stk_io_read_wait(save->earlier.file, layout->header_bytes + first * LEAF_BYTES, data,
                           bytes);
    stk_save_call_end();
    if (got < 0) {
        return stk_fail(error, (int)got, "the shared file of an earlier step cannot be read",
                        "save again; look at the mount", "'%.400s': %s", save->earlier.path,
                        stoker_status_text((int)got));
    }
    for (uint64_t i = 0; got == (int64_t)bytes && i < count; i++) {
        messages[i] = (struct stk_sha256_message){
            data + i * LEAF_BYTES, stk_min(bytes - i * LEAF_BYTES, LEAF_BYTES), digests[i]};
    }
    if (got == (int64_t)bytes) {
        stk_sha256_many(messages, count);
        if (memcmp(digests, layout->leaves + first * 32, count * 32) == 0) {
            return 0;
        }
    }
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the shared file of an earlier step is damaged",
                    "save again; remove that step", "'%.400s'", save->earlier.path);
}

/* Writes a block that was skipped: reads it from the earlier file, and verifies it. *cpu_ns: CPU
 * time of this thread at its last write. */
static int write_skipped(struct stoker_checkpoint_save *save, uint64_t index, uint8_t *data,
                         uint64_t *cpu_ns, struct stoker_error *error)
{
    const struct stk_safetensors *layout = &save->files[STK_SAVE_SHARED].layout;
    uint64_t first, count = leaves_of(layout, index, &first);
    uint64_t bytes = stk_min(count * LEAF_BYTES, layout->buffer_bytes - first * LEAF_BYTES);
    uint64_t now_ns = stk_writer_cpu_ns();
    int status;

    stk_writer_throttle(save->writer, bytes, now_ns - *cpu_ns, &save->job.stopping);
    *cpu_ns = now_ns;
    if (stk_background_job_is_stopping(&save->job)) {
        return stk_save_fail_closed(save, error);
    }
    status = read_skipped(save, first, count, data, bytes, error);
    if (status < 0) {
        forget_earlier(save);
        return status;
    }
    stk_save_call_begin(save, STK_SAVE_WRITES, STK_SAVE_SHARED);
    status = stk_sink_write(&save->sink, STK_SAVE_SHARED, layout->header_bytes + first * LEAF_BYTES,
                            (struct stk_view){data, bytes}, error);
    stk_save_call_end();
    return status;
}

/* Makes the shared file another name of the earlier one. Returns false if it stays as it is. */
static bool link_earlier(struct stoker_checkpoint_save *save)
{
    struct stk_checkpoint_earlier *earlier = &save->earlier;
    int status;

    if (atomic_load(&earlier->differs) ||
        memcmp(earlier->layout.root, save->files[STK_SAVE_SHARED].root, 32) != 0) {
        return false;
    }
    stk_save_call_begin(save, STK_SAVE_WRITES, STK_SAVE_SHARED);
    status = stk_sink_link(&save->sink, STK_SAVE_SHARED, earlier->path);
    stk_save_call_end();
    return status == 0;
}

int stk_earlier_finish(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    const struct stk_checkpoint_save_file *file = &save->files[STK_SAVE_SHARED];
    uint64_t cpu_ns = stk_writer_cpu_ns();
    uint8_t *data;
    int status = 0;

    if (!save->earlier.file || link_earlier(save)) {
        return 0;
    }
    data = stk_alloc(STK_SAFETENSORS_BLOCK_BYTES, 1);
    if (!data) {
        return stk_fail_memory(error, "a block of a checkpoint");
    }
    for (uint64_t i = file->first_block; status == 0 && i < file->block_count; i++) {
        if (save->earlier.skipped[i]) {
            status = write_skipped(save, i, data, &cpu_ns, error);
        }
    }
    stk_free(data);
    return status;
}
