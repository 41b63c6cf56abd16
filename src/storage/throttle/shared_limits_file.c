/* Opens the shared file: it must belong to this user, be complete, and have its memory reserved, as
 * a write to a page that /dev/shm has no memory for would kill the process. */
#include "storage/throttle/shared_limits_file.h"

#include "io/posix/map_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_TRIES 20 /* attempts to open or create the file while other processes do the same */

static int open_file(const char *path, int *fd_out, const char **reason_out);
static int create_file(const char *folder, const char *path, const char **reason_out);
static int check(int fd, const char **reason_out);
static int remove_damaged(int fd, const char *path);

int stk_shared_limits_file_open(const char *folder, int *fd_out,
                                struct stk_shared_limits_file **file_out, const char **reason_out)
{
    char path[512];
    int fd = -1, status = -EAGAIN;
    struct stat about;
    void *map;

    *reason_out = "other processes replace it again and again";
    if (snprintf(path, sizeof path, "%s/stoker-%u-%u", folder, STK_SHARED_LIMITS_LAYOUT,
                 (unsigned)geteuid()) >= (int)sizeof path) {
        *reason_out = "its name is too long";
        return -ENAMETOOLONG;
    }
    for (int turn = 0; turn < OPEN_TRIES && status == -EAGAIN; turn++) {
        status = open_file(path, &fd, reason_out);
        if (status == -ENOENT) {
            status = create_file(folder, path, reason_out);
            status = status == 0 || status == -EEXIST ? -EAGAIN : status;
        }
    }
    if (status < 0) {
        return status;
    }
    map = mmap(NULL, sizeof **file_out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    status = map == MAP_FAILED || fstat(fd, &about) < 0 ? -errno : 0;
    if (status == 0) { /* if the file is cut, this process works alone, without a SIGBUS */
        status =
            stk_map_guard_add_writable((struct stk_view){map, sizeof **file_out}, path, &about);
    }
    if (status < 0) {
        *reason_out = "it cannot be mapped";
        if (map != MAP_FAILED) {
            munmap(map, sizeof **file_out);
        }
        close(fd);
        return status;
    }
    *fd_out = fd;
    *file_out = map;
    return 0;
}

void stk_shared_limits_file_close(int fd, struct stk_shared_limits_file *file)
{
    stk_map_guard_remove((struct stk_view){(const uint8_t *)file, sizeof *file});
    munmap(file, sizeof *file);
    close(fd);
}

/* Returns -ENOENT if there is no file, -EAGAIN if a damaged file was removed. */
static int open_file(const char *path, int *fd_out, const char **reason_out)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), status;

    if (fd < 0) {
        *reason_out = errno == ELOOP ? "a link is in its place" : "it cannot be opened";
        return -errno;
    }
    status = check(fd, reason_out);
    if (status == -EBADMSG) {
        status = remove_damaged(fd, path);
    }
    if (status == 0 && posix_fallocate(fd, 0, sizeof(struct stk_shared_limits_file)) != 0) {
        *reason_out = "there is no room for it";
        status = -ENOSPC;
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return 0;
}

/* Returns -EBADMSG if the file belongs to this user and is damaged. */
static int check(int fd, const char **reason_out)
{
    uint8_t head[STK_SHARED_LIMITS_HEAD_BYTES];
    struct stat stat;

    if (fstat(fd, &stat) < 0) {
        *reason_out = "it cannot be inspected";
        return -errno;
    }
    if (!S_ISREG(stat.st_mode) || stat.st_uid != geteuid() || (stat.st_mode & 0077) != 0 ||
        stat.st_nlink > 1) {
        *reason_out = "what is in its place is not a file that only this user may change";
        return -EPERM;
    }
    if (stat.st_size < (off_t)sizeof head ||
        pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head ||
        !stk_shared_limits_file_is_valid(head, sizeof head, (uint64_t)stat.st_size)) {
        return -EBADMSG;
    }
    return 0;
}

bool stk_shared_limits_file_is_valid(const void *head, size_t bytes, uint64_t file_bytes)
{
    struct {
        uint64_t magic;
        uint32_t layout, bytes;
    } header;

    if (bytes < sizeof header || file_bytes != sizeof(struct stk_shared_limits_file)) {
        return false;
    }
    memcpy(&header, head, sizeof header);
    return header.magic == STK_SHARED_LIMITS_MAGIC && header.layout == STK_SHARED_LIMITS_LAYOUT &&
           header.bytes == sizeof(struct stk_shared_limits_file);
}

/* Only one process removes the file, and only the file that it examined: another process may
 * have created a new one meanwhile. */
static int remove_damaged(int fd, const char *path)
{
    struct stat mine, there;

    if (!stk_shared_limits_lock_member(fd, STK_SHARED_LIMITS_MEMBERS)) {
        poll(NULL, 0, 10);
        return -EAGAIN;
    }
    if (fstat(fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino &&
        mine.st_dev == there.st_dev) {
        unlink(path);
    }
    return -EAGAIN; /* closing it releases the lock */
}

/* The file gets its name only when it is complete. */
static int create_file(const char *folder, const char *path, const char **reason_out)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), status = 0;
    struct stk_shared_limits_file head = {
        .magic = STK_SHARED_LIMITS_MAGIC, .layout = STK_SHARED_LIMITS_LAYOUT, .bytes = sizeof head};
    char self[40];

    if (fd < 0) {
        *reason_out = "no file can be made there";
        return -errno;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (fchmod(fd, 0600) < 0 || posix_fallocate(fd, 0, sizeof head) != 0 ||
        pwrite(fd, &head, STK_SHARED_LIMITS_HEAD_BYTES, 0) != STK_SHARED_LIMITS_HEAD_BYTES) {
        *reason_out = "there is no room for it";
        status = -ENOSPC;
    } else if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0) {
        *reason_out = "no file can be named there";
        status = -errno;
    }
    close(fd);
    return status;
}

/* The lock belongs to the open file, not to the process: closing another descriptor does not
 * release it. */
static int set_lock(int fd, uint32_t member, short kind)
{
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = member, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock);
}

bool stk_shared_limits_lock_member(int fd, uint32_t member)
{
    return set_lock(fd, member, F_WRLCK) == 0;
}

void stk_shared_limits_unlock_member(int fd, uint32_t member)
{
    (void)set_lock(fd, member, F_UNLCK);
}
