/* A file that appears at its name when it is complete and on disk. */
#include "io/atomic_file.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

int stk_atomic_file_open(struct stk_atomic_file *file, struct stk_io *io, const char *path,
                         const char *suffix, struct stoker_error *error)
{
    size_t path_bytes = strlen(path), suffix_bytes = strlen(suffix);
    int status;

    *file = (struct stk_atomic_file){.io = io};
    file->path = stk_alloc(2 * path_bytes + suffix_bytes + 2, 1);
    if (!file->path) {
        return stk_fail_memory(error, "'%.600s'", path);
    }
    memcpy(file->path, path, path_bytes);
    file->temporary = file->path + path_bytes + 1;
    memcpy(file->temporary, path, path_bytes);
    memcpy(file->temporary + path_bytes, suffix, suffix_bytes);
    status = stk_io_create(io, file->temporary, false, &file->output, error);
    if (status < 0) {
        stk_free(file->path);
        *file = (struct stk_atomic_file){0};
    }
    return status;
}

int stk_atomic_file_keep_attributes(struct stk_atomic_file *file, struct stoker_error *error)
{
    return stk_io_copy_attributes(file->io, file->path, file->output, error);
}

int stk_atomic_file_write(struct stk_atomic_file *file, const void *data, size_t bytes,
                          struct stoker_error *error)
{
    return stk_io_write(file->io, file->output, data, bytes, error);
}

/* Cuts the path after its last '/': it is not needed any more. */
static int sync_directory(struct stk_atomic_file *file, struct stoker_error *error)
{
    char *slash = strrchr(file->path, '/');

    if (slash) {
        slash[1] = '\0';
    }
    return stk_io_sync_directory(file->io, slash ? file->path : ".", error);
}

int stk_atomic_file_detach(struct stk_atomic_file *file, struct stoker_error *error)
{
    int status = stk_io_sync_output(file->io, file->output, error);

    stk_io_close_output(file->io, file->output);
    file->output = NULL;
    if (status < 0) {
        (void)stk_io_remove(file->io, file->temporary, NULL);
    }
    return status;
}

int stk_atomic_file_commit(struct stk_atomic_file *file, enum stk_atomic_file_sync sync,
                           struct stoker_error *error)
{
    int status = stk_atomic_file_detach(file, error);

    if (status == 0) {
        status = stk_io_rename(file->io, file->temporary, file->path, false, error);
        if (status < 0) {
            (void)stk_io_remove(file->io, file->temporary, NULL);
        }
    }
    return status == 0 && sync == STK_ATOMIC_FILE_SYNC_DIRECTORY ? sync_directory(file, error)
                                                                 : status;
}

void stk_atomic_file_close(struct stk_atomic_file *file)
{
    if (file->output) {
        stk_io_close_output(file->io, file->output);
        (void)stk_io_remove(file->io, file->temporary, NULL);
    }
    stk_free(file->path);
    *file = (struct stk_atomic_file){0};
}

int stk_atomic_file_store(struct stk_io *io, const char *path, const char *suffix,
                          struct stk_view bytes, enum stk_atomic_file_sync sync,
                          struct stoker_error *error)
{
    struct stk_atomic_file file;
    int status = stk_atomic_file_open(&file, io, path, suffix, error);

    status = status < 0 ? status : stk_atomic_file_write(&file, bytes.data, bytes.bytes, error);
    status = status < 0 ? status : stk_atomic_file_commit(&file, sync, error);
    stk_atomic_file_close(&file);
    return status;
}
