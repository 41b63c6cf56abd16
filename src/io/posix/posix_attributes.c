/* Owner, permissions and extended attributes of a file that replaces another one. */
#include "io/posix/posix.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Copies one extended attribute. Those of the system (security., trusted.) need privileges. */
static int copy_xattr(int from, int to, const char *name, void *value)
{
    ssize_t bytes = fgetxattr(from, name, value, XATTR_SIZE_MAX);

    if (bytes < 0) {
        return errno == ENODATA || errno == EPERM ? 0 : -errno;
    }
    if (fsetxattr(to, name, value, (size_t)bytes, 0) < 0 &&
        (strncmp(name, "user.", 5) == 0 || (errno != EPERM && errno != ENOTSUP))) {
        return -errno;
    }
    return 0;
}

static int copy_xattrs(int from, int to)
{
    char *names = stk_alloc(XATTR_LIST_MAX + XATTR_SIZE_MAX, 1);
    ssize_t bytes;
    int status = 0;

    if (!names) {
        return -ENOMEM;
    }
    bytes = flistxattr(from, names, XATTR_LIST_MAX);
    if (bytes < 0 && errno != ENOTSUP && errno != ENOSYS) {
        status = -errno;
    }
    for (ssize_t at = 0; status == 0 && at < bytes; at += (ssize_t)strlen(names + at) + 1) {
        status = copy_xattr(from, to, names + at, names + XATTR_LIST_MAX);
    }
    stk_free(names);
    return status;
}

/* The owner first: a change of it removes set-user-ID bits. */
int stk_posix_copy_attributes(const char *path, int to)
{
    struct stat old, new;
    int from = stk_posix_open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    int status = from < 0 ? from : 0;

    if (status == 0 && (fstat(from, &old) < 0 || fstat(to, &new) < 0)) {
        status = -errno;
    }
    if (status == 0 && (old.st_uid != new.st_uid || old.st_gid != new.st_gid) &&
        fchown(to, old.st_uid, old.st_gid) < 0) {
        status = -errno;
    }
    status = status < 0 ? status : copy_xattrs(from, to);
    if (status == 0 && fchmod(to, old.st_mode & 07777) < 0) {
        status = -errno;
    }
    if (from >= 0) {
        close(from);
    }
    return status;
}
