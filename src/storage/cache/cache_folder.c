/* Opens a folder of the node cache: checks who owns it and what is in it, and makes its files. */
#include "storage/cache/cache_disk.h"

#include "io/filesystem/filesystem_type.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define DATA_NAME "stoker-cache.data-"
#define FLOOR_PART 20u /* 5 % */
#define OPEN_TRIES 20u /* of opening, making, and finding that another process was faster */
#define PROBE_BYTES 4096

static bool is_disk_failure(int status)
{
    return status == -ENOSPC || status == -EDQUOT || status == -EROFS || status == -EIO;
}

/* ---- the folder ---- */

static int check_owner(const struct stk_cache_disk *disk, struct stoker_error *error)
{
    struct stat about;

    if (fstat(disk->folder, &about) < 0) {
        return stk_fail_errno(error, errno, "cannot examine the cache folder", "check the disk",
                              "'%s'", disk->path);
    }
    if (about.st_uid != geteuid()) {
        return stk_fail(error, -EACCES, "the cache folder belongs to another user",
                        "name a folder of your own: each user needs a cache of their own",
                        "'%s': user %u, this process: %u", disk->path, (unsigned)about.st_uid,
                        (unsigned)geteuid());
    }
    if ((about.st_mode & 0077) != 0) {
        return stk_fail(error, -EACCES, "other users may enter the cache folder",
                        "run chmod 700 on it, or name a new folder", "'%s': mode %03o", disk->path,
                        (unsigned)about.st_mode & 0777u);
    }
    return 0;
}

static int check_filesystem(const struct stk_cache_disk *disk, struct stoker_error *error)
{
    const struct stk_filesystem_type *type;
    struct statfs about;

    if (fstatfs(disk->folder, &about) < 0) {
        return stk_fail_errno(error, errno, "cannot examine the cache folder", "check the disk",
                              "'%s'", disk->path);
    }
    type = stk_filesystem_type_of((struct stk_view){NULL, 0}, (uint32_t)about.f_type);
    if (type->group == STOKER_FILESYSTEM_NETWORK || type->group == STOKER_FILESYSTEM_FUSE) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "the cache folder is on a network file system or behind FUSE",
                        "name a folder on a disk of this machine: the cache needs locks and "
                        "shared memory that processes of one machine see at once",
                        "'%s': %s", disk->path, type->name);
    }
    return 0;
}

static bool is_own_name(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
           strcmp(name, STK_CACHE_INDEX_NAME) == 0 ||
           strncmp(name, DATA_NAME, strlen(DATA_NAME)) == 0 ||
           strncmp(name, STK_CACHE_FUTURE_NAME, strlen(STK_CACHE_FUTURE_NAME)) == 0;
}

/* A folder without an index must be empty: it may be one of the user's. */
static int check_empty(const struct stk_cache_disk *disk, struct stoker_error *error)
{
    int copy = openat(disk->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = 0;
    DIR *listing = copy < 0 ? NULL : fdopendir(copy);

    if (!listing) {
        status = -errno;
        if (copy >= 0) {
            close(copy);
        }
        return stk_fail_errno(error, -status, "cannot list the cache folder", "check the disk",
                              "'%s'", disk->path);
    }
    for (struct dirent *entry; status == 0 && (entry = readdir(listing));) {
        if (!is_own_name(entry->d_name)) {
            status = stk_fail(error, -ENOTEMPTY, "the cache folder holds other files",
                              "name an empty or a new folder: the cache shares it with nothing",
                              "'%s': '%.200s'", disk->path, entry->d_name);
        }
    }
    closedir(listing);
    return status;
}

static int open_folder(struct stk_cache_disk *disk, struct stoker_error *error)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, status;

    disk->folder = open(disk->path, flags);
    if (disk->folder < 0 && errno == ENOENT && !disk->options.must_exist) {
        if (mkdir(disk->path, 0700) < 0 && errno != EEXIST) {
            return stk_fail_errno(error, errno, "cannot make the cache folder",
                                  "make the folder above it, or name another one", "'%s'",
                                  disk->path);
        }
        disk->folder = open(disk->path, flags);
    }
    if (disk->folder < 0) {
        return stk_fail_errno(error, errno, "cannot open the cache folder",
                              errno == ELOOP || errno == ENOTDIR
                                  ? "it is a link or a file: name the folder itself"
                                  : "check the path",
                              "'%s'", disk->path);
    }
    status = check_owner(disk, error);
    return status < 0 ? status : check_filesystem(disk, error);
}

/* ---- the index ---- */

/* Opens a file of the cache. It must be one that only this user may change. */
static int open_own(const struct stk_cache_disk *disk, const char *name, int flags)
{
    int fd = openat(disk->folder, name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
    struct stat about;

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid() ||
        (about.st_mode & 0077) != 0 || about.st_nlink > 1) {
        close(fd);
        return -EPERM;
    }
    return fd;
}

/* Locks of open files and holes are needed: returns -EOPNOTSUPP if the file system has none. */
static int probe(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};

    if (fcntl(fd, F_OFD_SETLK, &lock) < 0 || fallocate(fd, 0, 0, PROBE_BYTES) < 0 ||
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PROBE_BYTES) < 0) {
        return errno == EINVAL || errno == ENOSYS || errno == ENOLCK ? -EOPNOTSUPP : -errno;
    }
    lock.l_type = F_UNLCK;
    (void)fcntl(fd, F_OFD_SETLK, &lock);
    return 0;
}

/* The quota of a new folder without one: all that is free, but the floor. */
static uint64_t default_quota(const struct stk_cache_disk *disk)
{
    struct statvfs space;
    uint64_t free_bytes;

    if (fstatvfs(disk->folder, &space) < 0) {
        return 0;
    }
    free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return free_bytes - stk_min(free_bytes, disk->floor_bytes);
}

static int check_quota(const struct stk_cache_disk *disk, uint64_t quota, uint32_t slots,
                       uint32_t block_bytes, struct stoker_error *error)
{
    uint64_t least =
        stk_cache_index_bytes(slots) + stk_cache_region_bytes(block_bytes) + STK_CACHE_HEAD_BYTES;
    uint32_t blocks_max = (uint32_t)stk_max(slots, STK_CACHE_SLOTS_MAX); /* more in layout 1 */

    if (quota < least) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the quota of the cache is too small",
                        "grant it more bytes, or free space on the disk",
                        "'%s': %llu bytes; index and one block need %llu", disk->path,
                        (unsigned long long)quota, (unsigned long long)least);
    }
    if (quota / block_bytes > blocks_max) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the cache would have too many blocks",
                        "use larger blocks (block_bytes), or several folders",
                        "'%s': %llu bytes in blocks of %u; at most %u blocks", disk->path,
                        (unsigned long long)quota, block_bytes, blocks_max);
    }
    return 0;
}

/* Makes the index and gives it its name when it is complete. Returns 0, -EEXIST, -errno. */
static int make_index(struct stk_cache_disk *disk, struct stoker_error *error)
{
    uint64_t quota = disk->options.quota_bytes ? disk->options.quota_bytes : default_quota(disk);
    uint32_t slots = stk_cache_index_slots(quota), block_bytes = disk->options.block_bytes;
    struct stk_cache_index_head head;
    char self[40];
    int fd, status = check_quota(disk, quota, slots, block_bytes, error);

    if (status < 0) {
        return status;
    }
    fd = openat(disk->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    status = fd < 0 ? -errno : probe(fd);
    stk_cache_index_init_head(&head, slots, block_bytes, quota);
    if (status == 0 &&
        (fchmod(fd, 0600) < 0 || fallocate(fd, 0, 0, (off_t)stk_cache_index_bytes(slots)) < 0 ||
         pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || fsync(fd))) {
        status = errno ? -errno : -ENOSPC;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (status == 0 &&
        linkat(AT_FDCWD, self, disk->folder, STK_CACHE_INDEX_NAME, AT_SYMLINK_FOLLOW) < 0) {
        status = -errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    return status == 0 || status == -EEXIST
               ? status
               : stk_fail_errno(error, -status, "cannot make the index of the cache",
                                status == -EOPNOTSUPP
                                    ? "use a file system with locks and holes: ext4, xfs, btrfs"
                                    : "check the disk",
                                "'%s'", disk->path);
}

/* Removes the files of a cache whose index is damaged. Processes that have them open keep theirs.
 */
static void remove_files(const struct stk_cache_disk *disk)
{
    char name[40];

    for (uint32_t i = 0; i < STK_CACHE_FILES; i++) {
        snprintf(name, sizeof name, DATA_NAME "%u", i);
        (void)unlinkat(disk->folder, name, 0);
    }
    (void)unlinkat(disk->folder, STK_CACHE_INDEX_NAME, 0);
}

/* Returns 0, -EAGAIN after a damaged index was removed, -ENOENT. */
static int open_index(struct stk_cache_disk *disk, struct stoker_error *error)
{
    int fd = open_own(disk, STK_CACHE_INDEX_NAME, O_RDWR), status;

    if (fd == -ENOENT) {
        return -ENOENT;
    }
    if (fd < 0) {
        return stk_fail_errno(error, -fd, "cannot open the index of the cache",
                              fd == -EPERM ? "it is not a file that only this user may change; "
                                             "name a new folder"
                                           : "check the disk",
                              "'%s/%s'", disk->path, STK_CACHE_INDEX_NAME);
    }
    status = stk_cache_index_map(&disk->index, fd);
    switch (status) {
    case 0:
        return 0;
    case -EBADMSG:
        remove_files(disk);
        return -EAGAIN;
    case -EPROTO:
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "the cache folder was written by a newer version",
                        "use that version, or name a new folder", "'%s'", disk->path);
    case -EINVAL:
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "the index of the cache is a file of another program", "name a new folder",
                        "'%s/%s'", disk->path, STK_CACHE_INDEX_NAME);
    default:
        return stk_fail_errno(error, -status, "cannot map the index of the cache", "check the disk",
                              "'%s'", disk->path);
    }
}

static int open_or_make_index(struct stk_cache_disk *disk, struct stoker_error *error)
{
    int status = -EAGAIN;

    for (uint32_t turn = 0; turn < OPEN_TRIES && status == -EAGAIN; turn++) {
        status = open_index(disk, error);
        if (status == -ENOENT && disk->options.must_exist) {
            return stk_fail(error, -ENOENT, "the folder is not a cache",
                            "name a folder that a run used as its cache", "'%s'", disk->path);
        }
        if (status == -ENOENT) {
            status = check_empty(disk, error);
            status = status < 0 ? status : make_index(disk, error);
            status = status == 0 || status == -EEXIST ? -EAGAIN : status;
        }
    }
    return status == -EAGAIN ? stk_fail(error, -EBUSY,
                                        "the index of the cache is made again and "
                                        "again",
                                        "try again", "'%s'", disk->path)
                             : status;
}

static int open_data(struct stk_cache_disk *disk, struct stoker_error *error)
{
    char name[40];

    for (uint32_t i = 0; i < STK_CACHE_FILES; i++) {
        snprintf(name, sizeof name, DATA_NAME "%u", i);
        disk->data[i] = open_own(disk, name, O_RDWR | O_CREAT);
        if (disk->data[i] < 0) {
            return stk_fail_errno(error, -disk->data[i], "cannot open a data file of the cache",
                                  disk->data[i] == -EPERM
                                      ? "it is not a file that only this user may change; name a "
                                        "new folder"
                                      : "check the disk",
                                  "'%s/%s'", disk->path, name);
        }
    }
    return 0;
}

static void set_floor(struct stk_cache_disk *disk)
{
    struct statvfs space;

    disk->floor_bytes = disk->options.free_bytes;
    if (disk->floor_bytes == 0 && fstatvfs(disk->folder, &space) == 0) {
        disk->floor_bytes = (uint64_t)space.f_blocks * space.f_frsize / FLOOR_PART;
    }
}

static int open_all(struct stk_cache_disk *disk, struct stoker_error *error)
{
    uint64_t quota = disk->options.quota_bytes;
    int status = open_folder(disk, error);

    if (status < 0) {
        return status;
    }
    set_floor(disk);
    status = open_or_make_index(disk, error);
    status = status < 0 ? status : open_data(disk, error);
    if (status < 0) {
        return status;
    }
    if (quota > 0) { /* the newest process with a quota decides */
        status = check_quota(disk, quota, disk->index.slot_count, disk->index.block_bytes, error);
    }
    if (status == 0 && quota > 0) {
        atomic_store_explicit(&disk->index.head->quota_bytes, quota, memory_order_relaxed);
    }
    return status;
}

int stk_cache_disk_open(struct stk_cache_disk *disk, const struct stk_cache_disk_options *options,
                        struct stoker_error *error)
{
    struct stoker_error why = {0};

    memset(disk, 0, sizeof *disk);
    disk->folder = -1;
    disk->index.fd = -1;
    for (uint32_t i = 0; i < STK_CACHE_FILES; i++) {
        disk->data[i] = -1;
    }
    disk->options = *options;
    disk->options.path = NULL; /* borrowed during open */
    if ((size_t)snprintf(disk->path, sizeof disk->path, "%s", options->path) >= sizeof disk->path) {
        disk->status = -ENAMETOOLONG;
        return stk_fail(error, -ENAMETOOLONG, "the path of the cache folder is too long",
                        "name a shorter one", "'%.400s'", options->path);
    }
    disk->status = open_all(disk, &why);
    if (disk->status < 0 && (options->must_exist || !is_disk_failure(disk->status))) {
        if (error) {
            *error = why;
        }
        return disk->status;
    }
    return 0;
}

void stk_cache_disk_close(struct stk_cache_disk *disk)
{
    stk_cache_index_unmap(&disk->index);
    for (uint32_t i = 0; i < STK_CACHE_FILES; i++) {
        if (disk->data[i] >= 0) {
            close(disk->data[i]);
        }
    }
    if (disk->folder >= 0) {
        close(disk->folder);
    }
}
