/* Turns files into a step: writes the manifest, and gives the folder its name. */
#include "base/mem.h"
#include "base/options.h"
#include "checkpoint/write/writer.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns 1 if the step has a valid manifest and all its files, by their lengths; 0 if not; or the
 * error of reading. */
static int is_committed(const struct stk_checkpoint_place *place, const char *folder)
{
    struct stk_step_manifest manifest;
    bool was_read;
    int status = stk_place_read_manifest(place, folder, &manifest, &was_read, NULL);

    if (status < 0 && !was_read) {
        return stk_place_is_absent(status) ? 0 : status;
    }
    if (status < 0) { /* that of a later version is not ours to replace */
        return status == STOKER_ERROR_UNSUPPORTED ? 1 : status == -ENOMEM ? status : 0;
    }
    for (uint64_t i = 0; status == 0 && i < manifest.file_count; i++) {
        status = stk_place_check_file(place, folder, manifest.files[i].name,
                                      manifest.files[i].bytes, NULL);
    }
    stk_step_manifest_deinit(&manifest);
    return status == STOKER_ERROR_MISSING || status == STOKER_ERROR_TRUNCATED ? 0
           : status < 0                                                       ? status
                                                                              : 1;
}

int stk_checkpoint_check_absent(const struct stk_checkpoint_place *place, uint64_t step,
                                struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES];
    char *path = stk_place_path(place, stk_place_step_name(step, name), STK_STEP_MANIFEST_NAME);
    int status = path ? is_committed(place, name) : -ENOMEM;

    if (status == 1) {
        status = stk_fail_errno(error, EEXIST, "this step is committed already",
                                "save another step, or remove this one first", "'%.400s'", path);
    } else if (status < 0) {
        status = stk_fail_errno(error, status > -4096 ? -status : EIO,
                                "cannot read a step with this number", "check the place",
                                "step %" PRIu64 " in '%.400s'", step, place->root);
    }
    stk_free(path);
    return status;
}

/* The names of a commit in a folder. */
struct names {
    char *part, *manifest, *final, *trash; /* owned */
};

static bool make_names(struct names *names, const struct stk_checkpoint_place *place, uint64_t step,
                       const char *id)
{
    char part[STK_PLACE_NAME_BYTES], final[STK_PLACE_NAME_BYTES];
    char trash[STK_PLACE_NAME_BYTES + sizeof STK_PLACE_TRASH];

    stk_place_part_name(step, id, STK_PLACE_PART_SUFFIX, part);
    stk_place_step_name(step, final);
    snprintf(trash, sizeof trash, STK_PLACE_TRASH "%s-%s", final, id);
    names->part = stk_place_path(place, part, NULL);
    names->manifest = stk_place_path(place, part, STK_STEP_MANIFEST_NAME);
    names->final = stk_place_path(place, final, NULL);
    names->trash = stk_place_path(place, trash, NULL);
    return names->part && names->manifest && names->final && names->trash;
}

static void free_names(struct names *names)
{
    stk_free(names->part);
    stk_free(names->manifest);
    stk_free(names->final);
    stk_free(names->trash);
}

static int write_manifest(struct stk_io *io, const char *path, struct stk_view text,
                          struct stoker_error *error)
{
    struct stk_output *output = NULL;
    int status = stk_io_create(io, path, false, &output, error);

    status = status < 0 ? status : stk_io_write(io, output, text.data, text.bytes, error);
    status = status < 0 ? status : stk_io_sync_output(io, output, error);
    stk_io_close_output(io, output);
    return status;
}

/* The rename is the commit. A folder of this name without a valid manifest is moved away. If ROOT
 * cannot be synced, the rename is undone: after an error the step does not exist. */
static int rename_step(const struct stk_checkpoint_place *place, const struct names *names,
                       uint64_t step, struct stoker_error *error)
{
    int status = stk_io_rename(place->io, names->part, names->final, true, error);

    if (status == -EEXIST || status == -ENOTEMPTY) {
        status = stk_checkpoint_check_absent(place, step, error);
        status =
            status < 0 ? status : stk_io_rename(place->io, names->final, names->trash, true, error);
        status =
            status < 0 ? status : stk_io_rename(place->io, names->part, names->final, true, error);
        if (status == 0) {
            (void)stk_place_remove_folder(place, names->trash, NULL);
        }
    }
    if (status == 0) {
        status = stk_io_sync_directory(place->io, place->root, error);
        if (status < 0) {
            (void)stk_io_rename(place->io, names->final, names->part, true, NULL);
        }
    }
    return status;
}

static int commit_folder(const struct stk_checkpoint_place *place, uint64_t step, const char *id,
                         struct stk_view text, struct stoker_error *error)
{
    struct names names = {0};
    int status = make_names(&names, place, step, id) ? 0 : stk_fail_memory(error, "checkpoint");

    status = status < 0 ? status : write_manifest(place->io, names.manifest, text, error);
    status = status < 0 ? status : stk_io_sync_directory(place->io, names.part, error);
    status = status < 0 ? status : rename_step(place, &names, step, error);
    free_names(&names);
    return status;
}

static int commit_prefix(const struct stk_checkpoint_place *place, uint64_t step,
                         struct stk_view text, struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES];
    char *path = stk_place_path(place, stk_place_step_name(step, name), STK_STEP_MANIFEST_NAME);
    int status = path ? stk_place_write(place, path, text, true, error)
                      : stk_fail_memory(error, "checkpoint");

    if (status == -EEXIST) { /* a damaged one is moved away */
        status = stk_checkpoint_check_absent(place, step, error);
        status = status < 0 ? status : stk_place_write(place, path, text, false, error);
    }
    stk_free(path);
    return status;
}

int stk_checkpoint_commit_step(const struct stk_checkpoint_place *place,
                               const struct stk_step_manifest *manifest, const char *id,
                               struct stoker_error *error)
{
    char *text = NULL;
    size_t bytes;
    int status = stk_step_manifest_text(manifest, &text, &bytes, error);
    struct stk_view view;

    if (status < 0) {
        return status;
    }
    view = (struct stk_view){(const uint8_t *)text, bytes};
    status = place->remote ? commit_prefix(place, manifest->step, view, error)
                           : commit_folder(place, manifest->step, id, view, error);
    stk_free(text);
    return status;
}

/* The files of all ranks, before they are a step. */
struct checking {
    const struct stk_checkpoint_place *place;
    const struct stoker_checkpoint_part *parts;
    char folder[STK_PLACE_NAME_BYTES];
};

static int check_part(void *context, uint64_t index, struct stoker_error *error)
{
    const struct checking *checking = context;
    const struct stoker_checkpoint_part *part = &checking->parts[index];
    int status =
        stk_place_check_file(checking->place, checking->folder, part->name, part->bytes, error);

    return status < 0 || part->shared_bytes == 0
               ? status
               : stk_place_check_file(checking->place, checking->folder, part->shared_name,
                                      part->shared_bytes, error);
}

/* The files of all ranks, then their shared files. */
static int add_files(struct stk_step_manifest *manifest, const struct stoker_checkpoint_part *parts,
                     uint32_t ranks, struct stoker_error *error)
{
    manifest->files = stk_alloc(2 * (size_t)ranks, sizeof *manifest->files);
    if (!manifest->files) {
        return stk_fail_memory(error, "manifest");
    }
    memcpy(manifest->files, parts, ranks * sizeof *parts);
    manifest->file_count = ranks;
    for (uint32_t i = 0; i < ranks; i++) {
        if (parts[i].shared_bytes > 0) {
            struct stoker_checkpoint_part *file = &manifest->files[manifest->file_count++];

            memcpy(file->name, parts[i].shared_name, sizeof file->name);
            file->bytes = parts[i].shared_bytes;
            memcpy(file->root, parts[i].shared_root, sizeof file->root);
        }
        manifest->tensors += parts[i].tensor_count;
        manifest->nan += parts[i].nan_count;
        manifest->inf += parts[i].inf_count;
    }
    return 0;
}

/* A rank may have written another save than rank 0 commits. */
static int check_parts(struct stoker_checkpoint_writer *writer,
                       const struct stoker_checkpoint_save_options *options,
                       const struct stoker_checkpoint_part *parts, struct stoker_error *error)
{
    struct checking checking = {.place = &writer->place, .parts = parts};

    if (writer->place.remote) {
        stk_place_step_name(options->step, checking.folder);
    } else {
        stk_place_part_name(options->step, options->save_id, STK_PLACE_PART_SUFFIX,
                            checking.folder);
    }
    return stk_engine_parallel(writer->engine, options->ranks, check_part, &checking, error);
}

static bool is_name(const char name[80])
{
    return memchr(name, '\0', 80) && stk_step_manifest_is_file_name(name);
}

int stoker_checkpoint_commit(struct stoker_checkpoint_writer *writer,
                             const struct stoker_checkpoint_save_options *given,
                             const struct stoker_checkpoint_part *parts, struct stoker_error *error)
{
    struct stoker_checkpoint_save_options options;
    struct stk_step_manifest manifest = {0};
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "save options", error);

    status = status < 0 ? status : stk_engine_check(writer->engine, error);
    if (status < 0) {
        return status;
    }
    if (options.ranks == 0 || options.ranks > STK_STEP_MANIFEST_FILES_MAX || !options.save_id ||
        options.step > STOKER_CHECKPOINT_STEP_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "step, ranks or save_id are not valid",
                        "use those of the save", "commit of %u ranks", options.ranks);
    }
    for (uint32_t i = 0; i < options.ranks; i++) {
        if (!is_name(parts[i].name) ||
            (parts[i].shared_bytes > 0 && !is_name(parts[i].shared_name))) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "the part of a rank is not valid",
                            "send the struct of stoker_checkpoint_save_part() as it is", "rank %u",
                            i);
        }
    }
    status = check_parts(writer, &options, parts, error);
    if (status < 0) {
        return status;
    }
    manifest.step = options.step;
    manifest.ranks = options.ranks;
    manifest.counted = true;
    manifest.values = options.values ? stk_strdup(options.values) : NULL;
    status = options.values && !manifest.values ? stk_fail_memory(error, "manifest")
                                                : add_files(&manifest, parts, options.ranks, error);
    if (status == 0) {
        stk_checkpoint_index_step(&writer->place, writer->engine, &manifest, options.save_id);
        status = stk_checkpoint_commit_step(&writer->place, &manifest, options.save_id, error);
    }
    stk_step_manifest_deinit(&manifest);
    return status;
}
