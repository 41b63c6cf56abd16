/* Open files of the POSIX file system: their descriptors, their size and mount, the page cache,
 * maps and attributes. */
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/descriptor_budget.h"
#include "io/posix/map_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#define NANOSECONDS 1000000000ull

void stk_posix_file_release(struct stk_posix_file *file)
{
    /* Release and acquire: the last user sees all writes of the others. */
    if (atomic_fetch_sub_explicit(&file->users, 1, memory_order_acq_rel) == 1) {
        int direct = atomic_load_explicit(&file->direct_fd, memory_order_relaxed);

        if (file->fd >= 0) {
            close(file->fd);
        }
        if (direct >= 0) {
            close(direct);
        }
        stk_free(file);
    }
}

uint64_t stk_posix_direct_bytes_min(const struct stk_posix *posix)
{
    return posix->options.direct == STOKER_DIRECT_NEVER    ? UINT64_MAX
           : posix->options.direct == STOKER_DIRECT_ALWAYS ? 0
                                                           : STK_DIRECT_BYTES_MIN;
}

/* Opens through /proc, since the path may name another file by now. */
int stk_posix_open_direct(int fd, int access)
{
    char path[32];
    struct statx info;
    bool is_known = statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_DIOALIGN, &info) == 0 &&
                    (info.stx_mask & STATX_DIOALIGN);
    bool may_try = is_known ? info.stx_dio_offset_align != 0 &&
                                  info.stx_dio_offset_align <= STK_IO_ALIGN &&
                                  info.stx_dio_mem_align <= STK_IO_ALIGN
                            : access == O_RDONLY;
    int direct = -1;

    if (may_try) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        direct = open(path, access | O_DIRECT | O_CLOEXEC);
    }
    return direct >= 0 ? direct : STK_DIRECT_REFUSED;
}

int stk_posix_get_direct(_Atomic int *direct_fd, int fd, int access)
{
    /* Acquire and release: a thread that uses the descriptor sees it open. */
    int found = atomic_load_explicit(direct_fd, memory_order_acquire), mine;

    if (found != STK_DIRECT_UNTRIED) {
        return found;
    }
    mine = stk_posix_open_direct(fd, access);
    if (!atomic_compare_exchange_strong_explicit(direct_fd, &found, mine, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        if (mine >= 0) {
            close(mine);
        }
        mine = found;
    }
    return mine;
}

int stk_posix_file_direct_fd(struct stk_posix_file *file)
{
    if (!file->regular || file->bytes < stk_posix_direct_bytes_min(file->posix) ||
        atomic_load_explicit(&file->direct_refused, memory_order_relaxed)) {
        return STK_DIRECT_REFUSED;
    }
    return stk_posix_get_direct(&file->direct_fd, file->fd, O_RDONLY);
}

/* The size of a file of sysfs is a page of memory, whatever its length is. */
static bool has_false_size(int fd, const struct stat *stat)
{
    static const uint32_t sysfs = 0x62656572, configfs = 0x62656570; /* linux/magic.h */
    struct statfs space;

    return S_ISREG(stat->st_mode) && stat->st_blocks == 0 && stat->st_size > 0 &&
           stat->st_size == sysconf(_SC_PAGESIZE) && fstatfs(fd, &space) == 0 &&
           ((uint32_t)space.f_type == sysfs || (uint32_t)space.f_type == configfs);
}

int stk_posix_fstat(int fd, struct stat *stat)
{
    if (fstat(fd, stat) < 0) {
        return -errno;
    }
    if (has_false_size(fd, stat)) {
        stat->st_size = 0;
    }
    return 0;
}

int stk_posix_open_at(int folder, const char *name, int flags, uint32_t mode)
{
    uint32_t tries = 0;
    int fd;

    do {
        fd = openat(folder, name, flags, mode);
    } while (fd < 0 && (errno == EINTR || stk_descriptors_retry(errno, &tries)));
    return fd < 0 ? -errno : fd;
}

int stk_posix_open(const char *path, int flags, uint32_t mode)
{
    return stk_posix_open_at(AT_FDCWD, path, flags, mode);
}

int64_t stk_posix_read_fd(int fd, uint64_t offset, uint8_t *buffer, size_t bytes)
{
    uint32_t retries = 0;
    size_t done = 0;

    while (done < bytes) {
        ssize_t count = pread(fd, buffer + done, bytes - done, (off_t)(offset + done));

        if (count < 0 && (errno == EINTR || errno == EAGAIN) &&
            ++retries <= STK_READ_PART_RETRIES_MAX) {
            continue;
        }
        if (count < 0) {
            return -errno;
        }
        if (count == 0) {
            break;
        }
        done += (size_t)count;
    }
    return (int64_t)done;
}

uint32_t stk_posix_entry_kind(const struct stat *stat)
{
    return S_ISREG(stat->st_mode)   ? STK_ENTRY_FILE
           : S_ISDIR(stat->st_mode) ? STK_ENTRY_DIRECTORY
                                    : STK_ENTRY_OTHER;
}

void stk_posix_stat_convert(const struct stat *from, struct stk_stat *to)
{
    *to = (struct stk_stat){
        .bytes = (uint64_t)from->st_size,
        .mtime_ns = (uint64_t)from->st_mtim.tv_sec * NANOSECONDS + (uint64_t)from->st_mtim.tv_nsec,
        .device = from->st_dev,
        .inode = from->st_ino,
        .kind = stk_posix_entry_kind(from),
        .links = (uint64_t)from->st_nlink,
        .ctime_ns = (uint64_t)from->st_ctim.tv_sec * NANOSECONDS + (uint64_t)from->st_ctim.tv_nsec,
        .mode = from->st_mode & 0777,
    };
}

void stk_posix_set_mount(struct stk_posix_file *file, const struct stat *stat)
{
    file->regular = S_ISREG(stat->st_mode);
    file->bytes = (uint64_t)stat->st_size;
    file->mount.device = stat->st_dev;
    file->mount.block_bytes = (uint32_t)stk_min((uint64_t)stat->st_blksize, UINT32_MAX);
    if (file->is_network) {
        /* Doubles the read-ahead window, which limits the requests of reads through the page cache
         * (FUSE). Sends no request to a server. */
        (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
}

bool stk_posix_file_mount_of(struct stk_file *opaque, struct stk_mount_info *mount_out)
{
    const struct stk_posix_file *file = stk_posix_file(opaque);

    *mount_out = file->mount;
    return file->is_network;
}

int64_t stk_posix_uncached_pages(int fd, uint64_t offset, uint64_t bytes)
{
    struct {
        uint64_t offset, bytes;
    } range = {offset, bytes};
    /* struct cachestat of linux/mman.h, Linux 6.5. */
    struct {
        uint64_t cached, dirty, writeback, evicted, recently_evicted;
    } found;
    const long cachestat_number = 451; /* the same on every architecture */
    uint64_t pages = (offset + bytes - 1) / STK_IO_ALIGN - offset / STK_IO_ALIGN + 1;

    if (syscall(cachestat_number, fd, &range, &found, 0) < 0) {
        return -errno;
    }
    return (int64_t)(found.cached < pages ? pages - found.cached : 0);
}

uint64_t stk_posix_file_pages_missing(struct stk_posix_file *file, uint64_t offset, uint64_t bytes,
                                      uint64_t *pages_out)
{
    uint64_t end = stk_min(offset + bytes, file->bytes);
    int64_t cold;

    *pages_out = 0;
    if (!file->regular || offset >= end ||
        atomic_load_explicit(&file->posix->probe_refused, memory_order_relaxed)) {
        return 0;
    }
    cold = stk_posix_uncached_pages(file->fd, offset, end - offset);
    if (cold < 0) {
        /* EPERM is also returned for files of other users: the next file may work. */
        atomic_store_explicit(&file->posix->probe_refused, cold == -ENOSYS, memory_order_relaxed);
        return 0;
    }
    *pages_out = (end - 1) / STK_IO_ALIGN - offset / STK_IO_ALIGN + 1;
    return (uint64_t)cold;
}

int stk_posix_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                  struct stoker_error *error)
{
    const struct stk_posix_file *of = stk_posix_file(file);
    char link[32], path[PATH_MAX];
    struct stat about;
    ssize_t bytes;
    void *memory;
    int status;

    (void)io;
    *view_out = (struct stk_view){(const uint8_t *)"", 0};
    if (of->bytes == 0) {
        return 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", of->fd); /* an absolute path */
    bytes = readlink(link, path, sizeof path - 1);
    path[bytes < 0 ? 0 : bytes] = '\0';
    memory = mmap(NULL, of->bytes, PROT_READ, MAP_PRIVATE, of->fd, 0);
    if (memory == MAP_FAILED || fstat(of->fd, &about) < 0) {
        status = stk_fail_errno(error, errno, "cannot map a file", "check the file and its disk",
                                "'%s', %llu bytes", path, (unsigned long long)of->bytes);
    } else if ((uint64_t)about.st_size != of->bytes) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a file changed while it was opened",
                          "open it again when it is written", "'%s'", path);
    } else {
        struct stk_view view = {memory, of->bytes};

        status = stk_map_guard_add(view, path, &about);
        status = status < 0 ? stk_fail_memory(error, "map of '%s'", path) : 0;
        *view_out = status == 0 ? view : *view_out;
    }
    if (status < 0 && memory != MAP_FAILED) {
        munmap(memory, of->bytes);
    }
    return status;
}

void stk_posix_unmap(struct stk_io *io, struct stk_view view)
{
    (void)io;
    stk_map_guard_remove(view);
    munmap((void *)(uintptr_t)view.data, view.bytes);
}

int stk_posix_map_check(struct stk_io *io, struct stk_view view, struct stoker_error *error)
{
    (void)io;
    return stk_map_guard_check(view, error);
}

uint64_t stk_posix_map_faults(struct stk_io *io)
{
    (void)io;
    return stk_map_guard_faults();
}

void stk_posix_map_prefetch(struct stk_io *io, struct stk_view part)
{
    /* Pages are powers of two. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)part.data & ~(page - 1);

    (void)io;
    /* If the kernel refuses, the pages are read at their first use. */
    madvise((void *)first, (uintptr_t)part.data + part.bytes - first, MADV_WILLNEED);
}

uint64_t stk_posix_thread_disk_reads(struct stk_io *io)
{
    struct rusage usage = {0};

    (void)io;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_majflt + (uint64_t)usage.ru_inblock;
}

/* ---- owner, permissions and extended attributes of a file that replaces another one ---- */

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
