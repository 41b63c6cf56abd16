/* Writing, which the virtual file system passes on to the backend: it cannot write to stores. */
#include "storage/vfs/vfs_private.h"

#include "storage/url/url_redact.h"

#include <errno.h>

static bool fail_remote_write(const char *path, struct stoker_error *error)
{
    char shown[400];

    if (!stk_io_is_url(path)) {
        return false;
    }
    stk_fail(error, STOKER_ERROR_UNSUPPORTED, "stores are only read",
             "write to a folder of this machine, and copy it", "'%s'",
             stk_url_redact_short(path, shown, sizeof shown));
    return true;
}

static int create(struct stk_io *io, const char *path, bool exclusive, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_create(stk_vfs_of(io)->backend, path, exclusive, out_out, error);
}

static int write_output(struct stk_io *io, struct stk_output *out, const void *data, size_t bytes,
                        struct stoker_error *error)
{
    return stk_io_write(stk_vfs_of(io)->backend, out, data, bytes, error);
}

static int write_at(struct stk_io *io, struct stk_output *out, uint64_t offset, const void *data,
                    size_t bytes, struct stoker_error *error)
{
    return stk_io_write_at(stk_vfs_of(io)->backend, out, offset, data, bytes, error);
}

static int reserve(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                   struct stoker_error *error)
{
    return stk_io_reserve(stk_vfs_of(io)->backend, out, bytes, error);
}

static int sync_output(struct stk_io *io, struct stk_output *out, struct stoker_error *error)
{
    return stk_io_sync_output(stk_vfs_of(io)->backend, out, error);
}

static void close_output(struct stk_io *io, struct stk_output *out)
{
    stk_io_close_output(stk_vfs_of(io)->backend, out);
}

static int rename_path(struct stk_io *io, const char *from, const char *to, bool exclusive,
                       struct stoker_error *error)
{
    return fail_remote_write(from, error) || fail_remote_write(to, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_rename(stk_vfs_of(io)->backend, from, to, exclusive, error);
}

static int link_path(struct stk_io *io, const char *from, const char *to,
                     struct stoker_error *error)
{
    return fail_remote_write(from, error) || fail_remote_write(to, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_link(stk_vfs_of(io)->backend, from, to, error);
}

static int make_directory(struct stk_io *io, const char *path, bool exclusive,
                          struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_make_directory(stk_vfs_of(io)->backend, path, exclusive, error);
}

static int remove_path(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return fail_remote_write(path, error) ? STOKER_ERROR_UNSUPPORTED
                                          : stk_io_remove(stk_vfs_of(io)->backend, path, error);
}

static int sync_directory(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_sync_directory(stk_vfs_of(io)->backend, path, error);
}

static int append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_append(stk_vfs_of(io)->backend, path, out_out, error);
}

static int lock_path(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                     struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_lock(stk_vfs_of(io)->backend, path, lock_out, error);
}

static void unlock(struct stk_io *io, struct stk_file_lock *lock)
{
    stk_io_unlock(stk_vfs_of(io)->backend, lock);
}

static int truncate_output(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                           struct stoker_error *error)
{
    return stk_io_truncate(stk_vfs_of(io)->backend, out, bytes, error);
}

static int open_exclusive(struct stk_io *io, const char *path, struct stk_output **out_out,
                          uint32_t mode, uint64_t *bytes, struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_open_exclusive(stk_vfs_of(io)->backend, path, out_out, mode, bytes, error);
}

static int resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes)
{
    return stk_io_is_url(path) ? -EINVAL
                               : stk_io_resolve(stk_vfs_of(io)->backend, path, real, real_bytes);
}

static int copy_attributes(struct stk_io *io, const char *from, struct stk_output *out,
                           struct stoker_error *error)
{
    return stk_io_copy_attributes(stk_vfs_of(io)->backend, from, out, error);
}

static int set_attributes(struct stk_io *io, struct stk_output *out, uint32_t mode,
                          const uint64_t *mtime_ns, struct stoker_error *error)
{
    return stk_io_set_attributes(stk_vfs_of(io)->backend, out, mode, mtime_ns, error);
}

static bool is_link(struct stk_io *io, const char *path)
{
    return !stk_io_is_url(path) && stk_io_is_link(stk_vfs_of(io)->backend, path);
}

static int remove_tree(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                       struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_remove_tree(stk_vfs_of(io)->backend, path, how, error);
}

static int remove_below(struct stk_io *io, const char *root, const char *name,
                        struct stoker_error *error)
{
    return fail_remote_write(root, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_remove_below(stk_vfs_of(io)->backend, root, name, error);
}

static int open_beneath(struct stk_io *io, const char *folder, struct stk_io **io_out,
                        struct stoker_error *error)
{
    int status;

    if (fail_remote_write(folder, error)) {
        return STOKER_ERROR_UNSUPPORTED;
    }
    status = stk_io_open_beneath(stk_vfs_of(io)->backend, folder, io_out, error);
    if (*io_out == stk_vfs_of(io)->backend) {
        *io_out = io; /* which close_beneath leaves open */
    }
    return status;
}

static int check_beneath(struct stk_io *io, const struct stk_beneath_check *check,
                         struct stoker_error *error)
{
    return stk_io_is_url(check->path) ? 0
                                      : stk_io_check_beneath(stk_vfs_of(io)->backend, check, error);
}

const struct stk_write_table stk_vfs_write_table = {
    .create = create,
    .write = write_output,
    .sync_output = sync_output,
    .close_output = close_output,
    .rename = rename_path,
    .link = link_path,
    .make_directory = make_directory,
    .remove = remove_path,
    .sync_directory = sync_directory,
    .append = append,
    .lock = lock_path,
    .unlock = unlock,
    .truncate = truncate_output,
    .open_exclusive = open_exclusive,
    .resolve = resolve,
    .write_at = write_at,
    .reserve = reserve,
    .remove_tree = remove_tree,
    .remove_below = remove_below,
    .set_attributes = set_attributes,
    .copy_attributes = copy_attributes,
    .is_link = is_link,
    .open_beneath = open_beneath,
    .check_beneath = check_beneath,
};
