/* Repairs a step from another place: files that are missing or damaged, leaf by leaf, and the index
 * of names. */
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/convert/task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OTHER "copy it from another place, or restore another step"

/* Opens the folder of the step that is repaired: the destination, or the step below it. */
static int open_step(const struct stk_checkpoint_task *task, uint64_t step,
                     struct stk_task_destination *to, struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES], *path;
    struct stk_checkpoint_place place;
    const char *slash;
    uint64_t number;
    bool is_step;
    int status = stk_place_init(&place, task->engine->io, task->options->destination, true, error);

    if (status < 0) {
        return status;
    }
    slash = strrchr(place.root, '/');
    is_step = stk_place_parse_step(slash ? slash + 1 : place.root, "", &number);
    path = stk_place_path(&place, is_step ? NULL : stk_place_step_name(step, name), NULL);
    stk_place_deinit(&place);
    if (!path) {
        return stk_fail_memory(error, "repair of a checkpoint");
    }
    status = is_step && number != step
                 ? stk_fail(error, STOKER_ERROR_ARGUMENT, "the other place has another step",
                            "pass --step", "step %" PRIu64 " and %" PRIu64, number, step)
                 : stk_task_destination_open(to, task, path, error);
    stk_free(path);
    return status;
}

/* The damaged file; NULL: it is missing. */
static struct stk_file *open_damaged(const struct stk_checkpoint_place *place, const char *name)
{
    char *path = stk_place_path(place, NULL, name);
    struct stk_file *file = NULL;

    if (path && stk_io_open_file(place->io, path, &file, NULL) < 0) {
        file = NULL;
    }
    stk_free(path);
    return file;
}

/* Replaces a file, in one rename or request. Its leaves that are right are those of the damaged
 * file, the others are read from the other place. */
static int replace_file(const struct stk_checkpoint_task *task,
                        const struct stoker_checkpoint *source,
                        const struct stk_checkpoint_place *place,
                        const struct stoker_checkpoint_part *part, struct stoker_error *error)
{
    struct stk_checkpoint_sink sink = {.place = place, .ranks = 1, .single = true};
    struct stk_file_copy copy = {.task = task, .source = source, .sink = &sink};
    uint64_t other = 0;
    int status = stk_place_make_id(sink.id, error);

    while (other < source->file_count &&
           memcmp(source->manifest.files[other].root, part->root, 32) != 0) {
        other++;
    }
    if (other == source->file_count) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the other place has no file with this hash",
                        OTHER, "'%.200s' of '%.400s'", part->name, place->root);
    }
    sink.file_bytes[STK_SAVE_SHARD] = part->bytes;
    snprintf(sink.names[STK_SAVE_SHARD], sizeof sink.names[0], "%s", part->name);
    status = status < 0 ? status : stk_checkpoint_need(source, other, error);
    copy.file = &source->files[other];
    copy.damaged = open_damaged(place, part->name);
    status = status < 0 ? status : stk_sink_open(&sink, error);
    status = status < 0 ? status : stk_task_copy_file(&copy, error);
    if (status < 0) {
        stk_sink_abort(&sink);
    }
    stk_sink_close(&sink);
    if (copy.damaged) {
        stk_io_close_file(copy.damaged);
    }
    atomic_fetch_add(task->files_done, status == 0);
    return status;
}

/* The manifest of the damaged step; its own if it is valid, else that of the other place. */
static int read_manifest(const struct stk_checkpoint_place *place, struct stk_step_manifest *own,
                         bool *valid_out, struct stoker_error *error)
{
    int status = stk_place_read_manifest(place, NULL, own, NULL, error);

    *valid_out = status == 0;
    return stk_place_is_absent(status) || stk_checkpoint_is_damage(status) ? 0 : status;
}

static int write_manifest(const struct stk_checkpoint_place *place,
                          const struct stk_step_manifest *manifest, struct stoker_error *error)
{
    char *path = stk_place_path(place, NULL, STK_STEP_MANIFEST_NAME), *text = NULL;
    size_t bytes = 0;
    int status = path ? stk_step_manifest_text(manifest, &text, &bytes, error)
                      : stk_fail_memory(error, "repair of a checkpoint");

    status = status < 0
                 ? status
                 : stk_place_write(place, path, (struct stk_view){(const uint8_t *)text, bytes},
                                   false, error);
    stk_free(text);
    stk_free(path);
    return status;
}

/* Whether the index of names is there, with its hash. */
static int check_index(const struct stk_checkpoint_place *place,
                       const struct stoker_checkpoint_part *part, const char *path, bool *right_out,
                       struct stoker_error *error)
{
    uint8_t *data = NULL, root[32];
    size_t bytes = 0;
    int status = stk_place_read(place, path, STK_NAME_INDEX_BYTES_MAX, &data, &bytes, error);

    *right_out = false;
    if (status == 0) {
        stk_sha256_one(data, bytes, root);
        *right_out = bytes == part->bytes && memcmp(root, part->root, 32) == 0;
    }
    stk_free(data);
    return stk_place_is_absent(status) || status == STOKER_ERROR_LIMIT ? 0 : status;
}

/* Writes the index of names again if it is missing or damaged. All files are right: their headers
 * give the same bytes. */
static int repair_index(const struct stk_checkpoint_task *task,
                        const struct stk_checkpoint_place *place,
                        const struct stk_step_manifest *manifest, struct stoker_error *error)
{
    const struct stoker_checkpoint_part *part = &manifest->index;
    struct stk_checkpoint_index index = {0};
    uint8_t root[32];
    char *path;
    bool right = false;
    int status;

    if (!part->name[0]) {
        return 0;
    }
    path = stk_place_path(place, NULL, part->name);
    status = path ? check_index(place, part, path, &right, error)
                  : stk_fail_memory(error, "repair of a checkpoint");
    if (status == 0 && !right) {
        atomic_fetch_add(task->files, 1);
        status = stk_checkpoint_make_index(place, NULL, task->engine, manifest, &index, error);
    }
    if (status == 0 && !right) {
        stk_sha256_one(index.data, index.bytes, root);
        status = memcmp(root, part->root, 32) == 0
                     ? stk_place_write(place, path, (struct stk_view){index.data, index.bytes},
                                       false, error)
                     : stk_fail(error, STOKER_ERROR_CORRUPT,
                                "the index of names is another one than the manifest says",
                                "the files are right: the step can be loaded without it",
                                "'%.400s'", path);
        atomic_fetch_add(task->files_done, status == 0);
    }
    stk_free(index.data);
    stk_free(path);
    return status;
}

int stk_task_repair(const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct stk_task_destination to = {.beneath = NULL};
    struct stk_step_manifest own = {0};
    const struct stk_step_manifest *manifest;
    struct stoker_checkpoint *source = NULL;
    bool valid = false;
    int status = stk_task_open_step(task, task->options->source, &source, error);

    if (status < 0) {
        return status;
    }
    status = open_step(task, source->manifest.step, &to, error);
    status = status < 0 ? status : read_manifest(&to.place, &own, &valid, error);
    manifest = valid ? &own : &source->manifest;
    for (uint64_t i = 0; status == 0 && i < manifest->file_count; i++) {
        atomic_fetch_add(task->bytes, manifest->files[i].bytes);
        status = stk_task_check_file(task, &to.place, NULL, &manifest->files[i]);
        if (stk_checkpoint_is_damage(status) || stk_place_is_absent(status)) {
            atomic_fetch_add(task->bytes, manifest->files[i].bytes);
            atomic_fetch_add(task->files, 1);
            status = replace_file(task, source, &to.place, &manifest->files[i], error);
        } else if (status < 0) {
            stk_fail(error, status, "a file of the step cannot be read",
                     "check the place; only damaged and missing files are replaced", "'%.200s'",
                     manifest->files[i].name);
        }
    }
    status = status < 0 ? status : repair_index(task, &to.place, manifest, error);
    if (status == 0 && !valid) {
        status = write_manifest(&to.place, manifest, error);
        atomic_fetch_add(task->files, 1);
        atomic_fetch_add(task->files_done, 1);
    }
    stk_step_manifest_deinit(&own);
    stk_task_destination_close(&to, task);
    stoker_checkpoint_close(source);
    return status;
}
