/* Paths and small files below a staging folder. */
#include "tools/pack/staging_files.h"

#include "base/mem.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

char *stk_staging_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? stk_strdup(path) : stk_strdup(".");

    if (parent && slash) {
        parent[slash == path ? 1 : slash - path] = 0;
    }
    return parent;
}

char *stk_staging_path(const char *directory, const char *name, const char *ending)
{
    size_t a = strlen(directory), b = strlen(name), c = strlen(ending), slash = b > 0;
    char *path = stk_alloc(a + slash + b + c + 1, 1);

    if (path) {
        memcpy(path, directory, a);
        memcpy(path + a, "/", slash);
        memcpy(path + a + slash, name, b);
        memcpy(path + a + slash + b, ending, c);
    }
    return path;
}

int stk_staging_read_file(struct stk_io *io, const char *path, uint64_t bytes_max,
                          uint8_t **data_out, size_t *bytes_out, struct stoker_error *error)
{
    struct stk_file *file = NULL;
    struct stk_stat about = {0};
    uint8_t *data = NULL;
    int64_t got = 0;
    int status = stk_io_open_file(io, path, &file, error);

    *data_out = NULL;
    if (status < 0) {
        return status;
    }
    status = stk_io_stat_file(file, &about, error);
    if (status == 0 && about.bytes > bytes_max) {
        status =
            stk_fail(error, STOKER_ERROR_LIMIT, "the file is too large", "check what the file is",
                     "'%.400s': %llu bytes", path, (unsigned long long)about.bytes);
    }
    if (status == 0) {
        data = stk_alloc(about.bytes + 1, 1);
        status = data ? 0 : stk_fail_memory(error, "'%.400s'", path);
    }
    if (status == 0) {
        got = stk_io_read_wait(file, 0, data, about.bytes);
    }
    if (got < 0) {
        status = stk_fail(error, (int)got, "cannot read the file", "check the disk", "'%.400s': %s",
                          path, stoker_status_text((int)got));
    } else if (status == 0) {
        *bytes_out = (size_t)got;
        *data_out = data;
        data = NULL;
    }
    stk_free(data);
    stk_io_close_file(file);
    return status;
}

int stk_staging_find_file(struct stk_io *io, const char *path, uint64_t bytes_max,
                          uint8_t **data_out, size_t *bytes_out, struct stoker_error *error)
{
    struct stoker_error local = {0};
    int status = stk_staging_read_file(io, path, bytes_max, data_out, bytes_out, &local);

    if (status < 0 && status != -ENOENT && error) {
        *error = local;
    }
    return status == -ENOENT ? 0 : status < 0 ? status : 1;
}

int stk_staging_write_file(struct stk_io *io, const char *path, const void *data, size_t bytes,
                           struct stoker_error *error)
{
    return stk_atomic_file_store(io, path, STK_STAGING_TEMP_SUFFIX, (struct stk_view){data, bytes},
                                 STK_ATOMIC_FILE_NO_DIRECTORY_SYNC, error);
}
