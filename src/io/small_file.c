/* Reads small files, and writes them atomically. */
#include "io/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int64_t stk_small_file_read(const char *path, uint8_t *data, size_t bytes_max)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), number = fd < 0 ? errno : 0;
    size_t used = 0;
    ssize_t count = 1;

    while (number == 0 && count > 0 && used < bytes_max) {
        count = read(fd, data + used, bytes_max - used);
        used += count > 0 ? (size_t)count : 0;
        number = count < 0 ? errno : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    return number ? -number : (int64_t)used;
}

int stk_small_file_write(const char *path, const void *data, size_t bytes)
{
    char beside[PATH_MAX];
    size_t used = 0;
    int fd, number = 0;

    if ((size_t)snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= sizeof beside) {
        return -ENAMETOOLONG;
    }
    fd = mkostemp(beside, O_CLOEXEC); /* 0600 */
    if (fd < 0) {
        return -errno;
    }
    while (number == 0 && used < bytes) {
        ssize_t count = write(fd, (const char *)data + used, bytes - used);
        used += count > 0 ? (size_t)count : 0;
        number = count < 0 && errno != EINTR ? errno : 0;
    }
    if (number == 0 && (fsync(fd) < 0 || rename(beside, path) < 0)) {
        number = errno;
    }
    if (number != 0) {
        unlink(beside);
    }
    close(fd);
    return -number;
}

bool stk_small_file_read_text(const char *path, char *text, size_t text_bytes)
{
    int64_t used = stk_small_file_read(path, (uint8_t *)text, text_bytes - 1);

    text[used < 0 ? 0 : used] = '\0';
    return used >= 0;
}
