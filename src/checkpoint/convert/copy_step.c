/* Copies a step to another place. Files that steps share stay shared: a file that the destination
 * has in another step becomes a second name (a hard link) of it, once all its bytes are verified.
 */
#include "base/mem.h"
#include "checkpoint/convert/task.h"
#include "io/write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NEIGHBOURS 3u

int stk_task_open_step(const struct stk_checkpoint_task *task, const char *path,
                       struct stoker_checkpoint **source_out, struct stoker_error *error)
{
    int status = stoker_checkpoint_open(source_out, task->engine, path, task->options->step, error);

    if (status == 0 && ((*source_out)->single || (*source_out)->foreign.kind)) {
        stoker_checkpoint_close(*source_out);
        *source_out = NULL;
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "this is no step of stoker",
                     "use 'stoker ckpt convert', or 'stoker cp' for plain files", "'%.400s'", path);
    }
    return status;
}

int stk_task_destination_open(struct stk_task_destination *destination,
                              const struct stk_checkpoint_task *task, const char *path,
                              struct stoker_error *error)
{
    struct stk_checkpoint_place *place = &destination->place;
    struct stk_io *io = task->engine->io;
    int status = stk_place_init(place, io, path, true, error);

    destination->beneath = NULL;
    status = status < 0 ? status : stk_place_make_root(place, error);
    if (status == 0 && !place->remote) {
        status = stk_io_open_beneath(io, place->root, &destination->beneath, error);
        place->io = destination->beneath;
    }
    return status;
}

void stk_task_destination_close(struct stk_task_destination *destination,
                                const struct stk_checkpoint_task *task)
{
    stk_place_deinit(&destination->place);
    stk_io_close_beneath(task->engine->io, destination->beneath);
}

/* The steps of the destination that are nearest to the copied one: their shared files may be those
 * of it, too. */
struct neighbours {
    struct stk_step_manifest manifests[NEIGHBOURS]; /* owned */
    uint32_t count;
};

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a < b ? b - a : a - b;
}

/* Reads their manifests. Steps that cannot be read are left out: then more is copied. */
static void find_neighbours(struct neighbours *found, const struct stk_checkpoint_place *place,
                            uint64_t step)
{
    char folder[STK_PLACE_NAME_BYTES];
    uint64_t *steps = NULL;
    size_t count = 0;

    if (stk_checkpoint_steps(place, &steps, &count, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < NEIGHBOURS && count > 0; i++) {
        size_t best = 0;

        for (size_t j = 1; j < count; j++) {
            best = distance(steps[j], step) < distance(steps[best], step) ? j : best;
        }
        if (stk_place_read_manifest(place, stk_place_step_name(steps[best], folder),
                                    &found->manifests[found->count], NULL, NULL) == 0) {
            found->count++;
        }
        steps[best] = steps[--count];
    }
    stk_free(steps);
}

static void free_neighbours(struct neighbours *found)
{
    for (uint32_t i = 0; i < found->count; i++) {
        stk_step_manifest_deinit(&found->manifests[i]);
    }
}

/* Returns the path of a shared file of the destination that has the content of a part, to the last
 * byte. NULL: there is none, or no memory. */
static char *find_shared(const struct stk_checkpoint_task *task,
                         const struct stk_checkpoint_place *place, const struct neighbours *steps,
                         const struct stoker_checkpoint_part *part)
{
    char folder[STK_PLACE_NAME_BYTES];

    for (uint32_t i = 0; i < steps->count; i++) {
        const struct stk_step_manifest *manifest = &steps->manifests[i];

        stk_place_step_name(manifest->step, folder);
        for (uint64_t j = manifest->ranks; j < manifest->file_count; j++) {
            const struct stoker_checkpoint_part *other = &manifest->files[j];

            if (other->bytes == part->bytes && memcmp(other->root, part->root, 32) == 0) {
                if (stk_task_check_file(task, place, folder, other) == 0) {
                    return stk_place_path(place, folder, other->name);
                }
                atomic_fetch_add(task->bytes, part->bytes); /* is read once more */
            }
        }
    }
    return NULL;
}

/* Copies a file, or makes it another name of one that the destination has. */
static int copy_file(const struct stk_checkpoint_task *task, const struct stoker_checkpoint *source,
                     uint64_t index, const struct neighbours *neighbours,
                     struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    struct stk_file_copy copy = {
        .task = task, .source = source, .file = &source->files[index], .sink = sink};
    char *shared = index < source->manifest.ranks
                       ? NULL
                       : find_shared(task, sink->place, neighbours, &source->manifest.files[index]);
    int status;

    sink->links = shared != NULL;
    status = stk_sink_open(sink, error);
    if (status == 0 && shared && stk_sink_link(sink, STK_SAVE_SHARD, shared) == 0) {
        status = stk_sink_finish(sink, (struct stk_view){NULL, 0}, error);
    } else if (status == 0) {
        atomic_fetch_add(task->bytes, shared ? source->files[index].bytes : 0);
        status = stk_checkpoint_need(source, index, error);
        status = status < 0 ? status : stk_task_copy_file(&copy, error);
    }
    stk_free(shared);
    atomic_fetch_add(task->files_done, status == 0);
    return status;
}

/* The files of all ranks come first, then their shared files. A store shares none. */
static void name_sink(struct stk_checkpoint_sink *sink, const struct stk_checkpoint_place *place,
                      const struct stoker_checkpoint *source, uint64_t index, const char *id)
{
    bool shared = index >= source->manifest.ranks && !place->remote;

    sink->place = place;
    sink->step = source->manifest.step;
    sink->rank = (uint32_t)index;
    sink->ranks = (uint32_t)source->file_count;
    sink->file_bytes[STK_SAVE_SHARD] = source->files[index].bytes;
    snprintf(sink->id, sizeof sink->id, "%s", id);
    stk_place_file_name(place, shared ? STK_PLACE_SHARED_PREFIX : STK_PLACE_SHARD_PREFIX,
                        sink->rank - (shared ? source->manifest.ranks : 0), id,
                        sink->names[STK_SAVE_SHARD]);
}

static int copy_files(const struct stk_checkpoint_task *task,
                      const struct stoker_checkpoint *source,
                      const struct stk_checkpoint_place *place, struct stk_checkpoint_sink *sinks,
                      struct stoker_error *error)
{
    struct stk_step_manifest manifest = source->manifest;
    struct neighbours neighbours = {.count = 0};
    char id[STK_PLACE_ID_BYTES_MAX + 1];
    int status = stk_place_make_id(id, error);

    manifest.files = stk_alloc(source->file_count + 1, sizeof *manifest.files);
    if (!manifest.files) {
        return stk_fail_memory(error, "copy of a checkpoint");
    }
    if (!place->remote && source->file_count > source->manifest.ranks) {
        find_neighbours(&neighbours, place, source->manifest.step);
    }
    for (uint64_t i = 0; status == 0 && i < source->file_count; i++) {
        name_sink(&sinks[i], place, source, i, id);
        manifest.files[i] = source->manifest.files[i];
        memset(manifest.files[i].name, 0, sizeof manifest.files[i].name);
        snprintf(manifest.files[i].name, sizeof manifest.files[i].name, "%s",
                 sinks[i].names[STK_SAVE_SHARD]);
        status = copy_file(task, source, i, &neighbours, &sinks[i], error);
    }
    free_neighbours(&neighbours);
    if (status == 0) {
        manifest.tensors = stk_max(source->tensor_count, 1);
        stk_checkpoint_index_step(place, task->engine, &manifest, id);
        status = stk_checkpoint_commit_step(place, &manifest, id, error);
        for (uint64_t i = 0; i < source->file_count; i++) {
            sinks[i].manifest_sent = status != -EEXIST;
        }
    }
    stk_free(manifest.files);
    return status;
}

int stk_task_copy(const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct stoker_checkpoint *source = NULL;
    struct stk_task_destination to = {.beneath = NULL};
    struct stk_checkpoint_sink *sinks = NULL;
    int status = stk_task_open_step(task, task->options->source, &source, error);

    if (status < 0) {
        return status;
    }
    for (uint64_t i = 0; i < source->file_count; i++) {
        atomic_fetch_add(task->bytes, source->files[i].bytes);
    }
    atomic_store(task->files, source->file_count);
    sinks = stk_alloc(source->file_count + 1, sizeof *sinks);
    status = sinks ? stk_task_destination_open(&to, task, task->options->destination, error)
                   : stk_fail_memory(error, "copy of a checkpoint");
    status = status < 0 ? status : copy_files(task, source, &to.place, sinks, error);
    for (uint64_t i = source->file_count; sinks && i-- > 0;) { /* rank 0, with the lock, last */
        if (status < 0 && sinks[i].place) {
            stk_sink_abort(&sinks[i]);
        }
        stk_sink_close(&sinks[i]);
    }
    stk_free(sinks);
    stk_task_destination_close(&to, task);
    stoker_checkpoint_close(source);
    return status;
}
