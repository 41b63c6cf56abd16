/* The destination of a save: a file in a folder that has another name until it is complete, or an
 * object. */
#include "base/mem.h"
#include "checkpoint/write/writer.h"
#include "storage/object/store.h"
#include "storage/upload/upload.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OLD_NS (86400u * UINT64_C(1000000000))

static int fail_memory(const struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    return stk_fail_memory(error, "'%.400s'", sink->place->root);
}

static int open_object(struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    struct stk_upload_options options = {.part_bytes = STK_SAFETENSORS_BLOCK_BYTES};
    char step[STK_PLACE_NAME_BYTES];
    int status;

    sink->path = stk_place_path(
        sink->place, sink->single ? NULL : stk_place_step_name(sink->step, step), sink->name);
    if (!sink->path) {
        return fail_memory(sink, error);
    }
    status = sink->single ? 0 : stk_checkpoint_check_absent(sink->place, sink->step, error);
    status = status < 0 ? status : stk_object_url_parse(sink->path, &sink->object, error);
    if (status < 0 || sink->file_bytes <= STK_SAFETENSORS_BLOCK_BYTES) {
        return status;
    }
    if (sink->file_bytes > STK_UPLOAD_PARTS_MAX * (uint64_t)STK_SAFETENSORS_BLOCK_BYTES) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the state of a rank is too large for an object",
                        "save on more ranks, at most 156 GiB on each", "'%.400s'", sink->path);
    }
    return stk_upload_open(&sink->upload, sink->place->store, sink->object, sink->file_bytes,
                           &options, error);
}

/* Removes files that killed writers of this file left more than a day ago. */
static void remove_old_parts(const struct stk_checkpoint_sink *sink)
{
    char prefix[sizeof STK_PLACE_HIDDEN + sizeof sink->name];
    struct stk_io *io = sink->place->io;
    struct stk_listing listing = {0};
    int bytes = snprintf(prefix, sizeof prefix, STK_PLACE_HIDDEN "%s-", sink->name);

    if (stk_io_list(io, sink->place->root, &listing, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        size_t length = strlen(entry->name), suffix = sizeof STK_PLACE_PART_SUFFIX - 1;
        char *path;

        if (entry->kind != STK_ENTRY_FILE || strncmp(entry->name, prefix, (size_t)bytes) != 0 ||
            length < (size_t)bytes + suffix ||
            strcmp(entry->name + length - suffix, STK_PLACE_PART_SUFFIX) != 0) {
            continue;
        }
        path = stk_place_path(sink->place, NULL, entry->name);
        if (path && stk_place_age_ns(sink->place, path) >= OLD_NS) {
            (void)stk_io_remove(io, path, NULL);
        }
        stk_free(path);
    }
    stk_listing_free(&listing);
}

/* A file without a step: a hidden name that no other writer has, then NAME. */
static int open_single(struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    char part[sizeof STK_PLACE_HIDDEN + sizeof sink->name + sizeof sink->id +
              sizeof STK_PLACE_PART_SUFFIX];
    int status;

    snprintf(part, sizeof part, STK_PLACE_HIDDEN "%s-%s" STK_PLACE_PART_SUFFIX, sink->name,
             sink->id);
    sink->path = stk_place_path(sink->place, NULL, part);
    sink->final = stk_place_path(sink->place, NULL, sink->name);
    if (!sink->path || !sink->final) {
        return fail_memory(sink, error);
    }
    status = stk_place_make_root(sink->place, error);
    if (status == 0) {
        remove_old_parts(sink);
        status = stk_io_create(sink->place->io, sink->path, true, &sink->output, error);
        sink->file_made = status == 0;
    }
    return status;
}

static int open_step(struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    char folder[STK_PLACE_NAME_BYTES], lock[STK_PLACE_NAME_BYTES];
    struct stk_io *io = sink->place->io;
    int status;

    stk_place_part_name(sink->step, sink->id, STK_PLACE_PART_SUFFIX, folder);
    stk_place_part_name(sink->step, sink->id, STK_PLACE_LOCK_SUFFIX, lock);
    sink->folder = stk_place_path(sink->place, folder, NULL);
    sink->path = stk_place_path(sink->place, folder, sink->name);
    sink->lock_path = stk_place_path(sink->place, lock, NULL);
    if (!sink->folder || !sink->path || !sink->lock_path) {
        return fail_memory(sink, error);
    }
    status = stk_place_make_root(sink->place, error);
    status = status < 0 ? status : stk_checkpoint_check_absent(sink->place, sink->step, error);
    if (status == 0 && sink->rank == 0) { /* shows gc() that this save lives */
        status = stk_io_lock(io, sink->lock_path, &sink->lock, error);
    }
    if (status == 0) {
        status = stk_io_make_directory(io, sink->folder, sink->ranks == 1, error);
        sink->folder_made = status == 0;
    }
    return status < 0 ? status : stk_io_create(io, sink->path, true, &sink->output, error);
}

int stk_sink_open(struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    int status = sink->place->remote ? open_object(sink, error)
                 : sink->single      ? open_single(sink, error)
                                     : open_step(sink, error);

    return status < 0 || !sink->output
               ? status
               : stk_io_reserve(sink->place->io, sink->output, sink->file_bytes, error);
}

int stk_sink_write(struct stk_checkpoint_sink *sink, uint64_t offset, struct stk_view bytes,
                   struct stoker_error *error)
{
    int status;

    if (sink->output) {
        return stk_io_write_at(sink->place->io, sink->output, offset, bytes.data, bytes.bytes,
                               error);
    }
    status = stk_upload_send_part(sink->upload, (uint32_t)(offset / STK_SAFETENSORS_BLOCK_BYTES),
                                  bytes, error);
    return status < 0 ? status : 0;
}

static int finish_object(struct stk_checkpoint_sink *sink, struct stk_view whole,
                         struct stoker_error *error)
{
    struct stk_upload_options options = {0};
    int status = sink->upload
                     ? stk_upload_commit(sink->upload, error)
                     : stk_upload_put(sink->place->store, sink->object, whole, &options, error);

    stk_vfs_set_metadata(sink->place->io, sink->path, NULL);
    if (status == 0) {
        stk_upload_close(sink->upload, false);
        sink->upload = NULL;
    }
    return status;
}

int stk_sink_finish(struct stk_checkpoint_sink *sink, struct stk_view whole,
                    struct stoker_error *error)
{
    struct stk_io *io = sink->place->io;
    int status;

    if (sink->place->remote) {
        return finish_object(sink, whole, error);
    }
    status = stk_io_sync_output(io, sink->output, error);
    stk_io_close_output(io, sink->output);
    sink->output = NULL;
    if (sink->single) {
        status = status < 0 ? status : stk_io_rename(io, sink->path, sink->final, false, error);
        return status < 0 ? status : stk_io_sync_directory(io, sink->place->root, error);
    }
    return status < 0 ? status : stk_io_sync_directory(io, sink->folder, error);
}

void stk_sink_close(struct stk_checkpoint_sink *sink)
{
    if (!sink->place) {
        return;
    }
    stk_upload_close(sink->upload, true);
    stk_object_url_free(sink->object);
    stk_io_close_output(sink->place->io, sink->output);
    if (sink->lock && sink->ranks > 1) { /* a commit has renamed it; else a rank failed */
        (void)stk_place_remove_folder(sink->place, sink->folder, NULL);
    }
    stk_io_unlock(sink->place->io, sink->lock);
    stk_free(sink->folder);
    stk_free(sink->path);
    stk_free(sink->final);
    stk_free(sink->lock_path);
    *sink = (struct stk_checkpoint_sink){0};
}

void stk_sink_abort(struct stk_checkpoint_sink *sink)
{
    struct stk_io *io = sink->place ? sink->place->io : NULL;

    if (!io) {
        return;
    }
    if (sink->upload) {
        stk_upload_close(sink->upload, true);
        sink->upload = NULL;
    }
    if (sink->output) {
        stk_io_close_output(io, sink->output);
        sink->output = NULL;
    }
    if (sink->place->remote) {
        /* The store may have committed a manifest whose answer was lost: then the step needs the
         * object. The object has a name of its own: gc() removes it if no manifest names it. */
        if (sink->object && !sink->single && !sink->manifest_sent) {
            (void)stk_place_remove(sink->place, sink->path, NULL);
        }
        return;
    }
    if (sink->single && sink->file_made) {
        (void)stk_io_remove(io, sink->path, NULL);
    }
    if (sink->folder_made) {
        (void)stk_io_remove(io, sink->path, NULL);
        if (sink->ranks == 1) {
            (void)stk_place_remove_folder(sink->place, sink->folder, NULL);
        } else {
            (void)stk_io_remove(io, sink->folder, NULL); /* if no other rank has a file in it */
        }
    }
    stk_io_unlock(io, sink->lock);
    sink->lock = NULL;
}
