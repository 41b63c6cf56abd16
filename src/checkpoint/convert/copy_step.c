/* Copies a step to another place. */
#include "base/mem.h"
#include "checkpoint/convert/task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static int copy_one(const struct stk_checkpoint_task *task, const struct stoker_checkpoint *source,
                    const struct stk_checkpoint_file *file, struct stk_checkpoint_sink *sink,
                    struct stoker_error *error)
{
    struct stk_file_copy copy = {.task = task, .source = source, .file = file, .sink = sink};

    return stk_task_copy_file(&copy, error);
}

static void name_sink(struct stk_checkpoint_sink *sink, const struct stk_checkpoint_place *place,
                      const struct stoker_checkpoint *source, uint64_t index, const char *id)
{
    sink->place = place;
    sink->step = source->manifest.step;
    sink->rank = (uint32_t)index;
    sink->ranks = (uint32_t)source->file_count;
    sink->file_bytes[STK_SAVE_SHARD] = source->files[index].bytes;
    snprintf(sink->id, sizeof sink->id, "%s", id);
    stk_place_file_name(place, STK_PLACE_SHARD_PREFIX, sink->rank, id, sink->names[STK_SAVE_SHARD]);
}

static int copy_files(const struct stk_checkpoint_task *task,
                      const struct stoker_checkpoint *source,
                      const struct stk_checkpoint_place *place, struct stk_checkpoint_sink *sinks,
                      struct stoker_error *error)
{
    struct stk_step_manifest manifest = source->manifest;
    char id[STK_PLACE_ID_BYTES_MAX + 1];
    int status = stk_place_make_id(id, error);

    manifest.files = stk_alloc(source->file_count + 1, sizeof *manifest.files);
    if (!manifest.files) {
        return stk_fail_memory(error, "copy of a checkpoint");
    }
    for (uint64_t i = 0; status == 0 && i < source->file_count; i++) {
        name_sink(&sinks[i], place, source, i, id);
        manifest.files[i] = source->manifest.files[i];
        memset(manifest.files[i].name, 0, sizeof manifest.files[i].name);
        snprintf(manifest.files[i].name, sizeof manifest.files[i].name, "%s",
                 sinks[i].names[STK_SAVE_SHARD]);
        status = stk_checkpoint_need(source, i, error);
        status = status < 0 ? status : stk_sink_open(&sinks[i], error);
        status = status < 0 ? status : copy_one(task, source, &source->files[i], &sinks[i], error);
        atomic_fetch_add(task->files_done, status == 0);
    }
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
    struct stk_checkpoint_place place = {0};
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
    status = sinks
                 ? stk_place_init(&place, task->engine->io, task->options->destination, true, error)
                 : stk_fail_memory(error, "copy of a checkpoint");
    status = status < 0 ? status : copy_files(task, source, &place, sinks, error);
    for (uint64_t i = source->file_count; sinks && i-- > 0;) { /* rank 0, with the lock, last */
        if (status < 0 && sinks[i].place) {
            stk_sink_abort(&sinks[i]);
        }
        stk_sink_close(&sinks[i]);
    }
    stk_free(sinks);
    stk_place_deinit(&place);
    stoker_checkpoint_close(source);
    return status;
}
