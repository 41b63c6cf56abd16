/* The destination of a save: a file in a folder that has another name until it is complete, or an
 * object. */
#include "base/mem.h"
#include "base/text/text_match.h"
#include "checkpoint/write/writer.h"
#include "storage/object/store.h"
#include "storage/upload/upload.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LINK_SUFFIX ".link"
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

    sink->paths[STK_SAVE_SHARD] =
        stk_place_path(sink->place, sink->single ? NULL : stk_place_step_name(sink->step, step),
                       sink->names[STK_SAVE_SHARD]);
    if (!sink->paths[STK_SAVE_SHARD]) {
        return fail_memory(sink, error);
    }
    status = sink->single ? 0 : stk_checkpoint_check_absent(sink->place, sink->step, error);
    status = status < 0 ? status
                        : stk_object_url_parse(sink->paths[STK_SAVE_SHARD], &sink->object, error);
    if (status < 0 || sink->file_bytes[STK_SAVE_SHARD] <= STK_SAFETENSORS_BLOCK_BYTES) {
        return status;
    }
    if (sink->file_bytes[STK_SAVE_SHARD] >
        STK_UPLOAD_PARTS_MAX * (uint64_t)STK_SAFETENSORS_BLOCK_BYTES) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the state of a rank is too large for an object",
                        "save on more ranks, at most 156 GiB on each", "'%.400s'",
                        sink->paths[STK_SAVE_SHARD]);
    }
    return stk_upload_open(&sink->upload, sink->place->store, sink->object,
                           sink->file_bytes[STK_SAVE_SHARD], &options, error);
}

/* Removes files that killed writers of this file left more than a day ago. */
static void remove_old_parts(const struct stk_checkpoint_sink *sink)
{
    char prefix[sizeof STK_PLACE_HIDDEN + sizeof sink->names[0]];
    struct stk_io *io = sink->place->io;
    struct stk_listing listing = {0};
    int bytes =
        snprintf(prefix, sizeof prefix, STK_PLACE_HIDDEN "%s-", sink->names[STK_SAVE_SHARD]);

    if (stk_io_list(io, sink->place->root, &listing, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        char *path;

        if (entry->kind != STK_ENTRY_FILE || strncmp(entry->name, prefix, (size_t)bytes) != 0 ||
            !stk_text_ends_with(entry->name + bytes, STK_PLACE_PART_SUFFIX)) {
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
    char part[sizeof STK_PLACE_HIDDEN + sizeof sink->names[0] + sizeof sink->id +
              sizeof STK_PLACE_PART_SUFFIX];
    int status;

    snprintf(part, sizeof part, STK_PLACE_HIDDEN "%s-%s" STK_PLACE_PART_SUFFIX,
             sink->names[STK_SAVE_SHARD], sink->id);
    sink->paths[STK_SAVE_SHARD] = stk_place_path(sink->place, NULL, part);
    sink->final = stk_place_path(sink->place, NULL, sink->names[STK_SAVE_SHARD]);
    if (!sink->paths[STK_SAVE_SHARD] || !sink->final) {
        return fail_memory(sink, error);
    }
    status = stk_place_make_root(sink->place, error);
    if (status == 0) {
        remove_old_parts(sink);
        status = stk_io_create(sink->place->io, sink->paths[STK_SAVE_SHARD], true,
                               &sink->outputs[STK_SAVE_SHARD], error);
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
    sink->paths[STK_SAVE_SHARD] = stk_place_path(sink->place, folder, sink->names[STK_SAVE_SHARD]);
    sink->lock_path = stk_place_path(sink->place, lock, NULL);
    if (sink->file_bytes[STK_SAVE_SHARED] > 0) {
        sink->paths[STK_SAVE_SHARED] =
            stk_place_path(sink->place, folder, sink->names[STK_SAVE_SHARED]);
        if (!sink->paths[STK_SAVE_SHARED]) {
            return fail_memory(sink, error);
        }
    }
    if (!sink->folder || !sink->paths[STK_SAVE_SHARD] || !sink->lock_path) {
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
    for (uint32_t i = 0; status == 0 && i < STK_SAVE_FILES; i++) {
        if (sink->paths[i]) {
            status = stk_io_create(io, sink->paths[i], true, &sink->outputs[i], error);
        }
    }
    return status;
}

int stk_sink_open(struct stk_checkpoint_sink *sink, struct stoker_error *error)
{
    int status = sink->place->remote ? open_object(sink, error)
                 : sink->single      ? open_single(sink, error)
                                     : open_step(sink, error);

    if (status == 0 && sink->outputs[STK_SAVE_SHARD] && !sink->links) {
        status = stk_io_reserve(sink->place->io, sink->outputs[STK_SAVE_SHARD],
                                sink->file_bytes[STK_SAVE_SHARD], error);
    }
    return status;
}

int stk_sink_write(struct stk_checkpoint_sink *sink, uint32_t file, uint64_t offset,
                   struct stk_view bytes, struct stoker_error *error)
{
    int status;

    if (sink->outputs[file]) {
        return stk_io_write_at(sink->place->io, sink->outputs[file], offset, bytes.data,
                               bytes.bytes, error);
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

    stk_vfs_set_metadata(sink->place->io, sink->paths[STK_SAVE_SHARD], NULL);
    if (status == 0) {
        stk_upload_close(sink->upload, false);
        sink->upload = NULL;
    }
    return status;
}

/* The other name has a suffix until it replaces the file, so that a failure leaves the file. */
int stk_sink_link(struct stk_checkpoint_sink *sink, uint32_t file, const char *earlier)
{
    struct stk_io *io = sink->place->io;
    const char *path = sink->paths[file];
    size_t bytes = strlen(path) + sizeof LINK_SUFFIX;
    char *link = stk_alloc(bytes, 1);
    int status = -ENOMEM;

    if (link) {
        snprintf(link, bytes, "%s" LINK_SUFFIX, path);
        status = stk_io_link(io, earlier, link, NULL);
    }
    if (status == 0) {
        status = stk_io_rename(io, link, path, false, NULL);
        if (status < 0) {
            (void)stk_io_remove(io, link, NULL);
        }
    }
    if (status == 0) { /* the written file has no name any more */
        stk_io_close_output(io, sink->outputs[file]);
        sink->outputs[file] = NULL;
    }
    stk_free(link);
    return status;
}

static void close_outputs(struct stk_checkpoint_sink *sink)
{
    for (uint32_t i = 0; i < STK_SAVE_FILES; i++) {
        if (sink->outputs[i]) {
            stk_io_close_output(sink->place->io, sink->outputs[i]);
            sink->outputs[i] = NULL;
        }
    }
}

int stk_sink_finish(struct stk_checkpoint_sink *sink, struct stk_view whole,
                    struct stoker_error *error)
{
    struct stk_io *io = sink->place->io;
    int status = 0;

    if (sink->place->remote) {
        return finish_object(sink, whole, error);
    }
    for (uint32_t i = 0; i < STK_SAVE_FILES; i++) {
        if (sink->outputs[i] && status == 0) {
            status = stk_io_sync_output(io, sink->outputs[i], error);
        }
    }
    close_outputs(sink);
    if (sink->single) {
        status = status < 0
                     ? status
                     : stk_io_rename(io, sink->paths[STK_SAVE_SHARD], sink->final, false, error);
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
    close_outputs(sink);
    if (sink->lock && sink->ranks > 1) { /* a commit has renamed it; else a rank failed */
        (void)stk_place_remove_folder(sink->place, sink->folder, NULL);
    }
    stk_io_unlock(sink->place->io, sink->lock);
    stk_free(sink->folder);
    stk_free(sink->paths[STK_SAVE_SHARD]);
    stk_free(sink->paths[STK_SAVE_SHARED]);
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
    close_outputs(sink);
    if (sink->place->remote) {
        /* The store may have committed a manifest whose answer was lost: then the step needs the
         * object. The object has a name of its own: gc() removes it if no manifest names it. */
        if (sink->object && !sink->single && !sink->manifest_sent) {
            (void)stk_place_remove(sink->place, sink->paths[STK_SAVE_SHARD], NULL);
        }
        return;
    }
    if (sink->single && sink->file_made) {
        (void)stk_io_remove(io, sink->paths[STK_SAVE_SHARD], NULL);
    }
    if (sink->folder_made) {
        for (uint32_t i = 0; i < STK_SAVE_FILES; i++) {
            if (sink->paths[i]) {
                (void)stk_io_remove(io, sink->paths[i], NULL);
            }
        }
        if (sink->ranks == 1) {
            (void)stk_place_remove_folder(sink->place, sink->folder, NULL);
        } else {
            (void)stk_io_remove(io, sink->folder, NULL); /* if no other rank has a file in it */
        }
    }
    stk_io_unlock(io, sink->lock);
    sink->lock = NULL;
}
