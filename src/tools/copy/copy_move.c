/* Moves: renames local files, or removes a source after its copy is complete. */
#include "base/mem.h"
#include "storage/url/url_split.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <string.h>

static bool is_same_file(struct stoker_copy *copy, const struct stk_copy_file *file)
{
    struct stk_stat from, to;

    return !stk_io_is_url(file->from) && !copy->remote &&
           stk_io_stat_path(copy->io, file->from, &from, NULL) == 0 &&
           stk_io_stat_path(copy->to_io, file->to, &to, NULL) == 0 && from.inode == to.inode &&
           from.device == to.device;
}

static bool is_same_object(struct stoker_copy *copy, const struct stk_copy_file *file)
{
    struct stk_object_url *from = NULL, *to = NULL;
    bool same = copy->remote && stk_io_is_url(file->from) && !stk_vfs_is_external_url(file->from) &&
                stk_object_url_parse(file->from, &from, NULL) == 0 &&
                stk_object_url_parse(file->to, &to, NULL) == 0 && from->kind == to->kind &&
                stk_object_url_has_key(from) && strcmp(from->bucket, to->bucket) == 0 &&
                strcmp(from->key, to->key) == 0;

    stk_object_url_free(from);
    stk_object_url_free(to);
    return same;
}

/* Opens an io in which no link of the source or the destination leads out of it: for a file below
 * the source that was named. The files of one source share it. */
static int open_source(struct stoker_copy *copy, const struct stk_copy_file *file,
                       struct stk_io **io_out, struct stoker_error *error)
{
    struct stk_copy_source *open = &copy->open_source;
    int status = 0;

    *io_out = copy->to_io;
    if (strcmp(file->from, file->root) == 0) {
        return 0;
    }
    pthread_mutex_lock(&copy->folders_lock);
    if (open->users == 0 && (!open->io || strcmp(open->root, file->root) != 0)) {
        stk_io_close_beneath(copy->to_io, open->io);
        open->root = file->root;
        status = stk_io_open_beneath(copy->to_io, file->root, &open->io, error);
        open->io = status < 0 ? NULL : open->io;
    }
    if (open->io && strcmp(open->root, file->root) == 0) {
        open->users++;
        *io_out = open->io;
    } else if (status == 0) { /* workers move files of two sources */
        status = stk_io_open_beneath(copy->to_io, file->root, io_out, error);
    }
    pthread_mutex_unlock(&copy->folders_lock);
    return status;
}

static void close_source(struct stoker_copy *copy, struct stk_io *io)
{
    bool is_shared;

    pthread_mutex_lock(&copy->folders_lock);
    is_shared = copy->open_source.users > 0 && io == copy->open_source.io;
    copy->open_source.users -= is_shared;
    pthread_mutex_unlock(&copy->folders_lock);
    if (!is_shared) {
        stk_io_close_beneath(copy->to_io, io);
    }
}

void stk_copy_close_sources(struct stoker_copy *copy)
{
    stk_io_close_beneath(copy->to_io, copy->open_source.io);
    copy->open_source.io = NULL;
}

int stk_copy_try_rename(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error)
{
    struct stk_io *io = NULL;
    int status;

    if (is_same_file(copy, file) || is_same_object(copy, file)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "source and destination are the same file",
                        "name another destination", "'%.300s' and '%.300s'", file->from, file->to);
    }
    if (stk_url_find_version(file->from)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a version of an object cannot be moved",
                        "copy it with 'stoker cp'", "'%.400s'", file->from);
    }
    if (stk_io_is_url(file->from) || copy->remote || copy->folds_names ||
        stk_io_is_link(copy->io, file->from)) {
        return 0;
    }
    status = stk_copy_make_folders(copy, file->to, error);
    status = status < 0 ? status : open_source(copy, file, &io, error);
    if (status == 0) {
        status = stk_io_rename(io, file->from, file->to, copy->options.no_clobber != 0, error);
        status = status == 0 ? 1 : status == -EXDEV ? 0 : status;
    }
    close_source(copy, io);
    return status;
}

/* The new name must survive a power cut before the old one is removed. */
static int sync_folder(struct stoker_copy *copy, const struct stk_copy_file *file,
                       struct stoker_error *error)
{
    const char *slash = strrchr(file->to, '/');
    char *folder = stk_strdup(slash ? file->to : ".");
    int status;

    if (!folder) {
        return stk_fail_memory(error, "copy");
    }
    if (slash) {
        folder[stk_max((size_t)(slash - file->to), 1)] = '\0';
    }
    status = stk_io_sync_directory(copy->to_io, folder, error);
    stk_free(folder);
    return status;
}

int stk_copy_remove_source(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    bool url = stk_io_is_url(file->from);
    int status = copy->remote ? 0 : sync_folder(copy, file, error);

    if (status == 0 && url &&
        (!stk_copy_can_write(file->from) || stk_vfs_is_external_url(file->from))) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the source is read-only: it was copied",
                        "copy with 'stoker cp'", "'%.400s'", file->from);
    }
    status = status < 0 ? status : stk_copy_check_source(copy, file, error);
    if (status == -ENOENT && url) {
        return 0; /* another process removed it */
    }
    if (status == 0 && !url) {
        struct stk_io *io = NULL;

        status = open_source(copy, file, &io, error);
        status = status < 0 ? status : stk_io_remove(io, file->from, error);
        close_source(copy, io);
        return status;
    }
    status = status < 0 ? status : stk_vfs_get_store(copy->io, &store, error);
    status = status < 0 ? status : stk_object_url_parse(file->from, &object, error);
    status = status < 0 ? status : stk_upload_remove(store, object, error);
    stk_vfs_set_metadata(copy->io, file->from, NULL);
    stk_object_url_free(object);
    return status;
}

static int keep_file(void *context, const char *name)
{
    (void)context;
    (void)name;
    return 0;
}

int stk_copy_remove_folders(struct stoker_copy *copy, const char *source,
                            struct stoker_error *error)
{
    struct stk_tree_removal how = {.visit = keep_file, .folders = true};
    struct stk_stat stat;

    if (stk_io_is_url(source) || copy->options.dry_run || stk_io_is_link(copy->io, source) ||
        stk_io_stat_path(copy->io, source, &stat, NULL) < 0 || stat.kind != STK_ENTRY_DIRECTORY) {
        return 0;
    }
    return stk_io_remove_tree(copy->io, source, &how, error);
}
