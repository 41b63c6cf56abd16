/* Writing with POSIX calls. Each call waits for the kernel: only tools write, on threads of their
 * own. */
#include "io/write.h"

#include "base/mem.h"
#include "io/posix/posix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct out {
    int fd;
    _Atomic int failure;       /* 0, or the -errno that each further call returns */
    uint64_t written, started; /* bytes; those of them whose write-back has started */
    uint64_t reserved;         /* bytes; the first direct write makes the file so long */
    _Atomic int direct_fd;     /* STK_DIRECT_UNTRIED, STK_DIRECT_REFUSED, or open with O_DIRECT */
    bool claimed;
    char path[]; /* for errors */
};

struct lock {
    struct stk_file_lock base; /* first */
    int fd;
    char path[];
};

/* A holder that ends removes its file, and the next process tries again: at most so often. */
#define LOCK_TRIES 100u
#define INODES_MIN 4u /* for a manifest and the folders of a commit */
#define LOCK_TEXT_BYTES 128u
#define HOLDER_TEXT "process %ld on "

/* Write-back starts after so many dirty bytes: else the final sync waits for all of them (two
 * shards of 256 MiB: 3 s of packing became 1.6 s, medians of 4 pairs). */
#define EARLY_BYTES (UINT64_C(8) << 20)
/* For longer writes the kernel allocates folios of up to 2 MiB (ext4 and XFS) from memory that was
 * free for the longest time. The host of a virtual machine may have reclaimed it (free page
 * reporting), and must provide each page again. Copying 2 GiB on ext4: 7.3 -> 1.5 s, medians of 3
 * pairs. This size was the best of 8, 16, 32, 128 and 512 KiB and unlimited. */
#define PIECE_BYTES (32u << 10)
/* write_at writes so many bytes and more around the page cache. Saving 1 GB on ext4, 2 threads,
 * blocks of 16 MiB: 1.75 -> 2.4 GB/s and 0.55 -> 0.01 CPU seconds, medians of 6 pairs. */
#define DIRECT_BYTES_MIN ((size_t)1 << 20)

static int open_out(struct stk_io *io, const char *path, bool fresh);
static int open_lines(struct stk_io *io, const char *path);
static int open_lock(const struct stk_posix_place *place);
static int open_regular(const struct stk_posix_place *place, int access, mode_t mode);
static int hold(int fd, const struct stk_posix_place *place, bool *real_out);
static int take_lock(int fd, const struct stk_posix_place *place, bool *real_out);
static void read_holder(int fd, char text[LOCK_TEXT_BYTES]);

static struct out *out_of(struct stk_output *out)
{
    return (struct out *)(void *)out;
}

/* Allocates an output without a file. Returns NULL and fills *error if there is no memory. */
static struct out *out_new(const char *path, struct stoker_error *error)
{
    size_t path_bytes = strlen(path) + 1;
    struct out *out = stk_alloc(1, sizeof *out + path_bytes);

    if (!out) {
        stk_posix_fail_path(error, ENOMEM, "cannot create the file", path);
        return NULL;
    }
    memcpy(out->path, path, path_bytes);
    out->direct_fd = STK_DIRECT_UNTRIED;
    return out;
}

/* Takes output and descriptor, which may be a -errno. */
static int out_give(struct out *out, int fd, struct stk_output **out_out,
                    struct stoker_error *error)
{
    out->fd = fd;
    if (fd < 0) {
        int status = stk_posix_fail_path(error, -fd, "cannot create the file", out->path);

        stk_free(out);
        return status;
    }
    *out_out = (struct stk_output *)(void *)out;
    return 0;
}

static int create(struct stk_io *io, const char *path, bool fresh, struct stk_output **out_out,
                  struct stoker_error *error)
{
    struct out *out = out_new(path, error);

    return out ? out_give(out, open_out(io, path, fresh), out_out, error) : -ENOMEM;
}

static int append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error)
{
    struct out *out = out_new(path, error);

    return out ? out_give(out, open_lines(io, path), out_out, error) : -ENOMEM;
}

/* Removes permissions of a file of an earlier run that the new one must not have. */
static int narrow(int fd, const struct stat *found, mode_t mode)
{
    mode_t now = found->st_mode & 0777;

    return (now & ~mode) && fchmod(fd, now & mode) < 0 ? -errno : 0;
}

static int claim(struct stk_io *io, const char *path, struct stk_output **out_out, uint32_t mode,
                 uint64_t *bytes, struct stoker_error *error)
{
    mode_t wanted = mode ? (mode & 0777) | S_IRUSR | S_IWUSR : 0666;
    struct out *out = out_new(path, error);
    struct stk_posix_place place;
    struct stat found;
    int fd;

    if (!out) {
        return -ENOMEM;
    }
    fd = stk_posix_place_open(io, path, &place);
    fd = fd < 0 ? fd : -EAGAIN;
    for (uint32_t i = 0; fd == -EAGAIN && i < LOCK_TRIES; i++) {
        fd = open_regular(&place, O_WRONLY | O_CREAT, wanted);
        if (fd >= 0) {
            bool real;
            int status = hold(fd, &place, &real);

            status = status == 0 && fstat(fd, &found) < 0 ? -errno : status;
            status = status == 0 && mode ? narrow(fd, &found, wanted) : status;
            if (status < 0) {
                close(fd);
                fd = status;
            }
        }
    }
    stk_posix_place_close(&place);
    if (fd == -EBUSY || fd == -EAGAIN) {
        stk_free(out);
        return stk_fail_errno(error, EBUSY, "another process writes this file",
                              "wait until it ends, or stop it and run this again", "'%s'", path);
    }
    if (fd >= 0) {
        out->claimed = true;
        out->written = out->started = *bytes = (uint64_t)found.st_size;
    }
    return out_give(out, fd, out_out, error);
}

/* Writes at an offset, or at the end if offset is NULL. Returns the bytes that were written: fewer
 * only after a failure. */
static size_t write_pieces(struct out *out, const uint64_t *offset, const uint8_t *data,
                           size_t bytes)
{
    size_t done = 0;

    while (out->failure == 0 && done < bytes) {
        size_t piece = (size_t)stk_min(bytes - done, PIECE_BYTES);
        ssize_t count = offset ? pwrite(out->fd, data + done, piece, (off_t)(*offset + done))
                               : write(out->fd, data + done, piece);

        if (count > 0) {
            done += (size_t)count;
        } else if (count == 0) {
            out->failure = -EIO; /* write(2) never returns 0 for a file */
        } else if (errno != EINTR) {
            out->failure = -errno;
        }
    }
    return done;
}

static int write_out(struct stk_io *io, struct stk_output *opaque, const void *data, size_t bytes,
                     struct stoker_error *error)
{
    struct out *out = out_of(opaque);

    (void)io;
    out->written += write_pieces(out, NULL, data, bytes);
    if (out->written - out->started >= EARLY_BYTES) {
        /* Only a hint: it neither waits nor clears an error that sync must report. */
        (void)sync_file_range(out->fd, (off_t)out->started, (off_t)(out->written - out->started),
                              SYNC_FILE_RANGE_WRITE);
        out->started = out->written;
    }
    return out->failure == 0
               ? 0
               : stk_posix_fail_path(error, -out->failure, "cannot write to the file", out->path);
}

/* Returns the descriptor for direct writes, which the first call opens; negative: there is none. */
static int direct_fd_of(struct out *out)
{
    bool is_first =
        atomic_load_explicit(&out->direct_fd, memory_order_relaxed) == STK_DIRECT_UNTRIED;
    int fd = stk_posix_get_direct(&out->direct_fd, out->fd, O_WRONLY);

    if (is_first && fd >= 0 && out->reserved > 0) {
        /* Writes beyond the end of a file wait for each other. If this fails, they do. */
        (void)fallocate(out->fd, 0, 0, (off_t)out->reserved);
    }
    return fd;
}

/* Writes the blocks of the range around the page cache, if the file system, the options and the
 * alignment allow it. Returns the bytes that were written; the others remain to be written. */
static size_t write_direct(const struct stk_posix *posix, struct out *out, uint64_t offset,
                           const uint8_t *data, size_t bytes)
{
    size_t whole = bytes - bytes % STK_IO_ALIGN, done = 0;
    int fd = posix->options.direct == STOKER_DIRECT_NEVER || whole < DIRECT_BYTES_MIN ||
                     offset % STK_IO_ALIGN != 0 || (uintptr_t)data % STK_IO_ALIGN != 0
                 ? STK_DIRECT_REFUSED
                 : direct_fd_of(out);

    while (fd >= 0 && out->failure == 0 && done < whole) {
        ssize_t count = pwrite(fd, data + done, whole - done, (off_t)(offset + done));

        if (count > 0 && count % STK_IO_ALIGN == 0) {
            done += (size_t)count;
        } else if (count >= 0 || errno == EINVAL || errno == EOPNOTSUPP) {
            break; /* a part of a block is written again, through the page cache */
        } else if (errno != EINTR) {
            out->failure = -errno;
        }
    }
    return done;
}

/* Several threads may be here: they write disjoint ranges. */
static int write_at(struct stk_io *io, struct stk_output *opaque, uint64_t offset, const void *data,
                    size_t bytes, struct stoker_error *error)
{
    struct out *out = out_of(opaque);
    size_t done = write_direct(stk_posix(io), out, offset, data, bytes);

    offset += done;
    bytes -= done;
    (void)write_pieces(out, &offset, (const uint8_t *)data + done, bytes);
    if (bytes >= PIECE_BYTES) { /* only a hint, see write_out */
        (void)sync_file_range(out->fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    }
    return out->failure == 0
               ? 0
               : stk_posix_fail_path(error, -out->failure, "cannot write to the file", out->path);
}

/* Without reservations, the free space of the file system says whether a file fits now. A file
 * system with a fixed number of inodes must have some for the files beside this one. */
static int check_space(const struct out *out, uint64_t bytes, bool is_reserved,
                       struct stoker_error *error)
{
    struct statvfs space;
    uint64_t free_bytes;

    if (fstatvfs(out->fd, &space) < 0) {
        return 0;
    }
    free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    if (!is_reserved && space.f_blocks > 0 && free_bytes < bytes) {
        return stk_fail_errno(error, ENOSPC, "the file does not fit into the file system",
                              "free some space, or use another folder",
                              "'%s' needs %llu bytes, %llu are free", out->path,
                              (unsigned long long)bytes, (unsigned long long)free_bytes);
    }
    return space.f_files > 0 && space.f_favail < INODES_MIN
               ? stk_fail_errno(error, ENOSPC, "the file system has no inodes for more files",
                                "remove small files, or use another folder", "'%s'", out->path)
               : 0;
}

static int reserve(struct stk_io *io, struct stk_output *opaque, uint64_t bytes,
                   struct stoker_error *error)
{
    struct out *out = out_of(opaque);
    int status;

    (void)io;
    do {
        status =
            bytes > 0 && fallocate(out->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes) < 0 ? -errno : 0;
    } while (status == -EINTR);
    out->reserved = status == 0 ? bytes : 0;
    /* Many network file systems, and old kernels, cannot reserve. */
    return status == -ENOSPC || status == -EDQUOT || status == -EFBIG || status == -EIO
               ? stk_posix_fail_path(error, -status, "cannot reserve space for the file", out->path)
               : check_space(out, bytes, status == 0, error);
}

static int cut_out(struct stk_io *io, struct stk_output *opaque, uint64_t bytes,
                   struct stoker_error *error)
{
    struct out *out = out_of(opaque);

    (void)io;
    STK_ASSERT(bytes <= out->written);
    if (out->failure == 0 &&
        (ftruncate(out->fd, (off_t)bytes) < 0 || lseek(out->fd, (off_t)bytes, SEEK_SET) < 0)) {
        out->failure = -errno;
    }
    out->written = bytes;
    out->started = stk_min(out->started, bytes);
    return out->failure == 0
               ? 0
               : stk_posix_fail_path(error, -out->failure, "cannot cut the file", out->path);
}

static int copy_attributes(struct stk_io *io, const char *path, struct stk_output *opaque,
                           struct stoker_error *error)
{
    int status = stk_posix_copy_attributes(path, out_of(opaque)->fd);

    (void)io;
    return status < 0 ? stk_posix_fail_path(error, -status,
                                            "cannot copy owner, mode and extended attributes", path)
                      : 0;
}

static int set_attributes(struct stk_io *io, struct stk_output *opaque, uint32_t mode,
                          const uint64_t *mtime_ns, struct stoker_error *error)
{
    struct out *out = out_of(opaque);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};

    (void)io;
    if (out->failure == 0 && mode && fchmod(out->fd, mode & 0777) < 0 && errno != ENOSYS &&
        errno != EOPNOTSUPP && errno != EPERM) { /* EPERM: a file system without permissions */
        out->failure = -errno;
    }
    if (out->failure == 0 && mtime_ns) {
        int64_t seconds = (int64_t)*mtime_ns / 1000000000, rest = (int64_t)*mtime_ns % 1000000000;

        times[1].tv_sec = seconds - (rest < 0);
        times[1].tv_nsec = rest + (rest < 0 ? 1000000000 : 0);
        (void)futimens(out->fd, times); /* without it the file only counts as changed later */
    }
    return out->failure == 0
               ? 0
               : stk_posix_fail_path(error, -out->failure, "cannot set the permissions of the file",
                                     out->path);
}

/* After a failed sync Linux marks the lost pages as clean, and the next sync would succeed
 * (fsync(2), errors): so the failure is stored. */
static int sync_out(struct stk_io *io, struct stk_output *opaque, struct stoker_error *error)
{
    struct out *out = out_of(opaque);

    (void)io;
    if (out->failure == 0) {
        out->failure = stk_posix_sync_fd(out->fd, true);
    }
    return out->failure == 0 ? 0
                             : stk_posix_fail_path(error, -out->failure,
                                                   "cannot bring the file to the disk", out->path);
}

static void close_out(struct stk_io *io, struct stk_output *opaque)
{
    struct out *out = out_of(opaque);

    (void)io;
    if (out->claimed) {
        (void)flock(out->fd, LOCK_UN); /* a child of fork may still have it */
    }
    if (out->direct_fd >= 0) {
        close(out->direct_fd);
    }
    close(out->fd);
    stk_free(out);
}

static int lock(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                struct stoker_error *error)
{
    size_t path_bytes = strlen(path) + 1;
    struct lock *lock = stk_alloc(1, sizeof *lock + path_bytes);
    char holder[LOCK_TEXT_BYTES] = "another process", where[sizeof error->where];
    struct stk_posix_place place;
    int status = stk_posix_place_open(io, path, &place);

    status = status < 0 ? status : lock ? -EAGAIN : -ENOMEM;
    for (uint32_t i = 0; status == -EAGAIN && i < LOCK_TRIES; i++) {
        lock->fd = open_lock(&place);
        status = lock->fd < 0 ? lock->fd : take_lock(lock->fd, &place, &lock->base.real);
        if (status == -EBUSY) {
            read_holder(lock->fd, holder);
        }
        if (status < 0 && lock->fd >= 0) {
            close(lock->fd);
        }
    }
    stk_posix_place_close(&place);
    if (status == 0) {
        memcpy(lock->path, path, path_bytes);
        *lock_out = (struct stk_file_lock *)(void *)lock;
        return 0;
    }
    stk_free(lock);
    if (status != -EBUSY && status != -EAGAIN) {
        return stk_posix_fail_path(error, -status, "cannot take the lock", path);
    }
    snprintf(where, sizeof where, "'%s' is held by %s", path, holder);
    return stk_fail_errno(error, EBUSY, "another process has the lock",
                          "wait until it ends, or stop it and run this again", "%s", where);
}

bool stk_lock_holder_is_dead(const char *text)
{
    char host[64] = "";
    long process = 0;
    int used = 0;

    if (sscanf(text, HOLDER_TEXT "%n", &process, &used) != 1 || used == 0 || process <= 0 ||
        gethostname(host, sizeof host - 1) < 0) {
        return false;
    }
    text += used;
    return strcspn(text, "\n") == strlen(host) && strncmp(text, host, strlen(host)) == 0 &&
           kill((pid_t)process, 0) < 0 && errno == ESRCH;
}

static void unlock(struct stk_io *io, struct stk_file_lock *opaque)
{
    struct lock *lock = (struct lock *)(void *)opaque;
    struct stk_posix_place place;

    /* Removes the name first: processes that have the file open see that it has no name. */
    if (stk_posix_place_open(io, lock->path, &place) == 0) {
        (void)unlinkat(place.folder, place.name, 0);
    }
    stk_posix_place_close(&place);
    (void)flock(lock->fd, LOCK_UN); /* a child of fork may still have the descriptor */
    close(lock->fd);
    stk_free(lock);
}

const struct stk_write_table stk_posix_write_table = {
    .create = create,
    .write = write_out,
    .sync_output = sync_out,
    .close_output = close_out,
    .rename = stk_posix_rename,
    .link = stk_posix_link,
    .make_directory = stk_posix_make_directory,
    .remove = stk_posix_remove,
    .sync_directory = stk_posix_sync_directory,
    .append = append,
    .lock = lock,
    .unlock = unlock,
    .truncate = cut_out,
    .open_exclusive = claim,
    .resolve = stk_posix_resolve,
    .remove_tree = stk_posix_remove_tree,
    .remove_below = stk_posix_remove_below,
    .set_attributes = set_attributes,
    .copy_attributes = copy_attributes,
    .is_link = stk_posix_is_link,
    .open_beneath = stk_posix_open_beneath,
    .check_beneath = stk_posix_check_beneath,
    .write_at = write_at,
    .reserve = reserve,
};

/* Returns a descriptor or -errno. Truncates only after the check that it is a file, so not with
 * O_TRUNC. */
static int open_out(struct stk_io *io, const char *path, bool fresh)
{
    /* O_NONBLOCK: opening a pipe without a reader must not block. */
    int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    struct stk_posix_place place;
    struct stat found;
    int status = stk_posix_place_open(io, path, &place);
    int fd = status < 0
                 ? status
                 : stk_posix_open_at(place.folder, place.name, flags | (fresh ? O_EXCL : 0), 0666);

    stk_posix_place_close(&place);
    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &found) < 0) {
        status = -errno;
    } else if (!S_ISREG(found.st_mode)) {
        status = -ENXIO;
    } else if (found.st_size > 0 && ftruncate(fd, 0) < 0) {
        status = -errno;
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    (void)fcntl(fd, F_SETFL, 0);
    return fd;
}

/* Truncates the file after its last newline. Returns 0 or -errno. */
static int cut_line(int fd, uint64_t bytes)
{
    char text[4096];
    uint64_t end = bytes, low = bytes - stk_min(bytes, STK_LINE_BYTES_MAX);

    while (end > low) {
        uint64_t begin = end - stk_min(end - low, sizeof text);
        ssize_t got = pread(fd, text, end - begin, (off_t)begin);
        const char *last;

        if (got != (ssize_t)(end - begin)) {
            return got < 0 ? -errno : -EIO;
        }
        last = memrchr(text, '\n', (size_t)got);
        if (last) {
            begin += (uint64_t)(last - text) + 1;
            return begin < bytes && ftruncate(fd, (off_t)begin) < 0 ? -errno : 0;
        }
        end = begin;
    }
    if (bytes >= STK_LINE_BYTES_MAX) {
        return -EINVAL;
    }
    return bytes > 0 && ftruncate(fd, 0) < 0 ? -errno : 0;
}

/* Returns a descriptor at the end of a file of lines, or -errno. */
static int open_lines(struct stk_io *io, const char *path)
{
    int flags = O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    struct stk_posix_place place;
    struct stat found;
    int status = stk_posix_place_open(io, path, &place);
    int fd = status < 0 ? status : stk_posix_open_at(place.folder, place.name, flags, 0666);

    stk_posix_place_close(&place);
    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &found) < 0) {
        status = -errno;
    } else {
        status = S_ISREG(found.st_mode) ? cut_line(fd, (uint64_t)found.st_size) : -ENXIO;
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    (void)fcntl(fd, F_SETFL, O_APPEND);
    return fd;
}

/* Opens a file; with O_CREAT, creates a missing one. Returns a descriptor or -errno. */
static int open_regular(const struct stk_posix_place *place, int access, mode_t mode)
{
    int fd = stk_posix_open_at(place->folder, place->name,
                               access | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
    struct stat found;

    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &found) < 0 || !S_ISREG(found.st_mode)) {
        close(fd);
        return -ENXIO;
    }
    return fd;
}

/* A lock file that a killed process of another user left is opened read-only. */
static int open_lock(const struct stk_posix_place *place)
{
    int fd = open_regular(place, O_RDWR | O_CREAT, 0666);

    if (fd == -EACCES) {
        fd = open_regular(place, O_RDONLY, 0);
        fd = fd == -ENOENT ? -EACCES : fd;
    }
    return fd;
}

/* Locks an open file. Returns 0; -EBUSY; or -EAGAIN if its holder ended and removed the name.
 * *real_out: whether the file system has locks. */
static int hold(int fd, const struct stk_posix_place *place, bool *real_out)
{
    struct stat mine, there;
    int result;

    do {
        result = flock(fd, LOCK_EX | LOCK_NB);
    } while (result < 0 && errno == EINTR);
    if (result < 0 && errno == EWOULDBLOCK) {
        return -EBUSY;
    }
    /* ENOLCK, ENOSYS, EOPNOTSUPP, EINVAL, EBADF: the file system has no locks. Work continues
     * without them. */
    *real_out = result == 0;
    if (fstat(fd, &mine) < 0 || fstatat(place->folder, place->name, &there, 0) < 0 ||
        mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
        return -EAGAIN;
    }
    return 0;
}

/* Acquires the lock, and writes its holder into the file. */
static int take_lock(int fd, const struct stk_posix_place *place, bool *real_out)
{
    char host[64] = "", text[LOCK_TEXT_BYTES];
    int status = hold(fd, place, real_out), bytes;

    if (status < 0) {
        return status;
    }
    (void)gethostname(host, sizeof host - 1);
    bytes = snprintf(text, sizeof text, HOLDER_TEXT "%s\n", (long)getpid(), host);
    /* Only for readers: the descriptor has the lock. */
    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)bytes, 0) < 0) {
        return 0;
    }
    return 0;
}

/* The holder that the file names. */
static void read_holder(int fd, char text[LOCK_TEXT_BYTES])
{
    char found[LOCK_TEXT_BYTES];
    ssize_t got = pread(fd, found, sizeof found - 1, 0);

    if (got <= 0) {
        return; /* the holder has not written it yet */
    }
    found[got] = '\0';
    found[strcspn(found, "\n")] = '\0';
    for (char *at = found; *at; at++) {
        *at = *at < ' ' || *at > '~' ? '?' : *at;
    }
    memcpy(text, found, sizeof found);
}
