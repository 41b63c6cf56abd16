/* Files without names, for bytes that memory should not hold. */
#include "io/temporary_file.h"

#include "io/user_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FOLDER_BYTES 1024u
#define FREE_SHARE 10u /* one in so many bytes of the free space stays free */
#define STEP_BYTES (16u << 20)

/* Opens a file in a folder. Returns -1 if that is not possible. */
static int open_in(const char *folder)
{
    char path[FOLDER_BYTES + 32];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0) { /* the file system does not know files without names */
        snprintf(path, sizeof path, "%s/.stoker-XXXXXX", folder);
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) {
            (void)unlink(path);
        }
    }
    return fd;
}

static int open_any(const char **folder_out, char cache[FOLDER_BYTES])
{
    const char *temporary = getenv("TMPDIR");
    int fd = -1;

    *folder_out = cache;
    if (stk_user_cache_make(cache, FOLDER_BYTES)) {
        fd = open_in(cache);
    }
    if (fd < 0) {
        *folder_out = temporary && temporary[0] == '/' && strlen(temporary) < FOLDER_BYTES
                          ? temporary
                          : "/tmp";
        fd = open_in(*folder_out);
    }
    return fd;
}

static int fail_space(struct stoker_error *error, int status, uint64_t bytes)
{
    return stk_fail_errno(error, -status, "there is no room for a temporary file",
                          "free space in the cache folder, or set STOKER_CACHE to another",
                          "%llu bytes", (unsigned long long)bytes);
}

/* Reserves space in steps, so that a signal interrupts a short call, which is repeated. Where the
 * file system cannot reserve (NFS before 4.2), the file only becomes longer: posix_fallocate would
 * write to each block. Returns 0 or -errno. */
static int allocate(int fd, uint64_t at, uint64_t end)
{
    while (at < end) {
        uint64_t step = stk_min(end - at, STEP_BYTES);

        if (fallocate(fd, 0, (off_t)at, (off_t)step) == 0) {
            at += step;
        } else if (errno == EOPNOTSUPP || errno == ENOSYS) {
            return ftruncate(fd, (off_t)end) < 0 ? -errno : 0;
        } else if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

/* Reserves the space from the current size on, and maps the file. */
static int reserve(struct stk_temporary_file *file, uint64_t bytes, struct stoker_error *error)
{
    struct statvfs space;
    uint64_t more = bytes - file->bytes, free_bytes = UINT64_MAX;
    void *map;
    int failed;

    if (fstatvfs(file->fd, &space) == 0) {
        free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
        free_bytes -= free_bytes / FREE_SHARE;
    }
    if (bytes > INT64_MAX || more > free_bytes) {
        return fail_space(error, -ENOSPC, bytes);
    }
    failed = allocate(file->fd, file->bytes, bytes);
    if (failed < 0) {
        return fail_space(error, failed, bytes);
    }
    map = file->data ? mremap(file->data, file->bytes, bytes, MREMAP_MAYMOVE)
                     : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    if (map == MAP_FAILED) {
        return fail_space(error, -errno, bytes);
    }
    file->data = map;
    file->bytes = bytes;
    return 0;
}

int stk_temporary_file_open(struct stk_temporary_file *file, uint64_t bytes,
                            struct stoker_error *error)
{
    char cache[FOLDER_BYTES];
    const char *folder;
    int status;

    STK_ASSERT(bytes > 0);
    *file = (struct stk_temporary_file){.fd = open_any(&folder, cache)};
    if (file->fd < 0) {
        return stk_fail_errno(error, errno, "cannot create a temporary file",
                              "set STOKER_CACHE or TMPDIR to a folder that can be written",
                              "'%.400s'", folder);
    }
    file->is_open = true;
    status = reserve(file, bytes, error);
    if (status < 0) {
        stk_temporary_file_close(file);
    }
    return status;
}

int stk_temporary_file_resize(struct stk_temporary_file *file, uint64_t bytes,
                              struct stoker_error *error)
{
    STK_ASSERT(bytes > file->bytes);
    return reserve(file, bytes, error);
}

void stk_temporary_file_finish(struct stk_temporary_file *file, uint64_t bytes)
{
    STK_ASSERT(bytes <= file->bytes);
    (void)munmap(file->data, file->bytes);
    (void)!ftruncate(file->fd, (off_t)bytes); /* which only releases space */
    file->data = NULL;
    file->bytes = bytes;
}

int64_t stk_temporary_file_read(const struct stk_temporary_file *file, uint64_t offset,
                                void *buffer, uint64_t bytes)
{
    uint64_t wanted = offset < file->bytes ? stk_min(bytes, file->bytes - offset) : 0, done = 0;

    while (done < wanted) {
        ssize_t got =
            pread(file->fd, (uint8_t *)buffer + done, wanted - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got < 0 ? -errno : -EIO;
        }
        done += (uint64_t)got;
    }
    return (int64_t)done;
}

void stk_temporary_file_close(struct stk_temporary_file *file)
{
    if (file->data) {
        (void)munmap(file->data, file->bytes);
    }
    if (file->is_open) {
        close(file->fd);
    }
    *file = (struct stk_temporary_file){.is_open = false};
}
