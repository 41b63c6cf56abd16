/* The POSIX implementation of io/io.h: options, opening files, listings, reads outside queues, and
 * the choice of the backend for queues. */
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/listing.h"
#include "io/posix/posix_call.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Shorter reads take about as long as the query of the page cache. */
#define PROBE_BYTES_MIN 16384u

static const struct stk_io_table uring_table, threads_table;
static const struct stk_file_ops file_ops;

static int check_options(struct stk_io_options *options, struct stoker_error *error);
static int choose_backend(struct stk_posix *posix, struct stoker_error *error);
static void close_file(struct stk_file *opaque);
static int fail_path(struct stoker_error *error, int number, const char *what, const char *path);
static int check_kind(const struct stat *stat, const char *path, struct stoker_error *error);
static bool range_is_cold(struct stk_posix_file *file, uint64_t offset, size_t bytes);
static int list_local(struct stk_posix *posix, const char *path,
                      struct stk_listing_builder *builder);

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_posix_file *file = stk_alloc(1, sizeof *file);
    struct stk_posix_call *call = NULL;
    struct stat stat;
    int status = 0;

    if (!file) {
        return fail_path(error, ENOMEM, "cannot open the file", path);
    }
    file->file.ops = &file_ops;
    file->posix = posix;
    stk_posix_file_acquire(file);
    atomic_init(&file->direct_fd, STK_DIRECT_UNTRIED);
    /* O_NONBLOCK: opening a FIFO must not block. It has no effect on files. */
    file->fd = stk_local_path_open(posix->local_paths, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (file->fd >= 0) {
        status = stk_posix_fstat(file->fd, &stat);
    } else if (file->fd != -EXDEV) {
        status = file->fd;
    } else {
        status = stk_posix_call_wait(
            posix, stk_posix_call_new(posix, STK_POSIX_CALL_OPEN, path, NULL, 0), &call);
        if (status == 0) {
            stat = call->stat;
            file->fd = call->fd;
            file->is_network = !call->local;
            atomic_init(&file->direct_fd, call->local ? STK_DIRECT_UNTRIED : call->direct_fd);
            call->fd = call->direct_fd = -1;
        }
    }
    if (status < 0) {
        fail_path(error, -status, "cannot open the file", path);
        goto done;
    }
    status = check_kind(&stat, path, error);
    if (status < 0) {
        goto done;
    }
    /* With O_NONBLOCK set, io_uring assumes that reads of this file never block (io_uring/rw.c). */
    (void)fcntl(file->fd, F_SETFL, 0);
    stk_posix_set_mount(file, &stat);
    *file_out = &file->file;
    file = NULL;
done:
    stk_posix_call_free(call);
    if (file) {
        close_file(&file->file);
    }
    return status;
}

static void close_file(struct stk_file *opaque)
{
    struct stk_posix_file *file = stk_posix_file(opaque);

    if (file->is_network) {
        stk_posix_call_close_file(file);
    } else {
        stk_posix_file_release(file);
    }
}

static int stat_file(struct stk_file *opaque, struct stk_stat *stat_out, struct stoker_error *error)
{
    struct stk_posix_file *file = stk_posix_file(opaque);
    struct stk_posix_call *call = NULL;
    struct stat stat;
    int status;

    if (!file->is_network) {
        status = stk_posix_fstat(file->fd, &stat);
    } else {
        status = stk_posix_call_wait(
            file->posix, stk_posix_call_new(file->posix, STK_POSIX_CALL_STAT_FILE, NULL, file, 0),
            &call);
        stat = call ? call->stat : (struct stat){0};
    }
    stk_posix_call_free(call);
    if (status < 0) {
        return fail_path(error, -status, "cannot get the size of a file", "an open file");
    }
    stk_posix_stat_convert(&stat, stat_out);
    return 0;
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_posix_call *call = NULL;
    struct stat stat;
    int status, fd = stk_local_path_open(posix->local_paths, path, O_PATH);

    if (fd >= 0) {
        status = stk_posix_fstat(fd, &stat);
        close(fd);
    } else if (fd != -EXDEV) {
        status = fd;
    } else {
        status = stk_posix_call_wait(
            posix, stk_posix_call_new(posix, STK_POSIX_CALL_STAT_PATH, path, NULL, 0), &call);
        stat = call ? call->stat : (struct stat){0};
    }
    stk_posix_call_free(call);
    if (status < 0) {
        return fail_path(error, -status, "cannot find the path", path);
    }
    stk_posix_stat_convert(&stat, stat_out);
    return 0;
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_listing_builder builder = {0};
    struct stk_posix_call *call = NULL;
    int status = list_local(posix, path, &builder);

    if (status == -EXDEV) {
        stk_listing_builder_deinit(&builder);
        status = stk_posix_call_wait(
            posix, stk_posix_call_new(posix, STK_POSIX_CALL_LIST, path, NULL, 0), &call);
        if (call) {
            builder = call->builder;
            call->builder = (struct stk_listing_builder){0};
        }
    }
    if (status == 0) {
        status = stk_listing_build(&builder, listing_out);
    }
    stk_posix_call_free(call);
    stk_listing_builder_deinit(&builder);
    return status < 0 ? fail_path(error, -status, "cannot list the folder", path) : 0;
}

static int64_t read_now(struct stk_file *opaque, uint64_t offset, void *buffer, size_t bytes)
{
    struct stk_posix_file *file = stk_posix_file(opaque);
    struct iovec part = {buffer, bytes};
    size_t done = 0;
    ssize_t count = 0;

    if (atomic_load_explicit(&file->nowait_refused, memory_order_relaxed) ||
        range_is_cold(file, offset, bytes)) {
        return -EAGAIN;
    }
    while (done < bytes) {
        part.iov_base = (uint8_t *)buffer + done;
        part.iov_len = bytes - done;
        count = preadv2(file->fd, &part, 1, (off_t)(offset + done), RWF_NOWAIT);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            break;
        }
        done += (size_t)count;
    }
    atomic_store_explicit(&file->warm, count >= 0, memory_order_relaxed);
    if (done > 0 || count >= 0) {
        return (int64_t)done;
    }
    /* ENOSYS: an old kernel or a seccomp filter without preadv2. */
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
        atomic_store_explicit(&file->nowait_refused, true, memory_order_relaxed);
        return -EAGAIN;
    }
    return -errno;
}

static int64_t read_wait(struct stk_file *opaque, uint64_t offset, void *buffer, size_t bytes)
{
    struct stk_posix_file *file = stk_posix_file(opaque);

    return file->is_network ? stk_posix_call_read(file, offset, buffer, bytes)
                            : stk_posix_read_fd(file->fd, offset, buffer, bytes);
}

static int64_t uncached_bytes(struct stk_file *opaque, uint64_t offset, uint64_t bytes)
{
    const struct stk_posix_file *file = stk_posix_file(opaque);
    uint64_t end = stk_min(offset + bytes, file->bytes);
    int64_t missing = offset < end ? stk_posix_uncached_pages(file->fd, offset, end - offset) : 0;

    return missing < 0 ? missing : (int64_t)stk_min((uint64_t)missing * STK_IO_ALIGN, bytes);
}

static const struct stk_file_ops file_ops = {.close = close_file,
                                             .stat = stat_file,
                                             .read_now = read_now,
                                             .read_wait = read_wait,
                                             .uncached_bytes = uncached_bytes,
                                             .mount_of = stk_posix_file_mount_of};

static uint64_t clock_ns(struct stk_io *io)
{
    (void)io;
    return stk_clock_ns();
}

static const char *backend(struct stk_io *io, const char **reason_out)
{
    if (reason_out) {
        *reason_out = stk_posix(io)->reason;
    }
    return io->table == &uring_table ? "io_uring" : "threads";
}

static uint64_t leaked_bytes(struct stk_io *io)
{
    return atomic_load_explicit(&stk_posix(io)->leaked_bytes, memory_order_relaxed);
}

static void posix_close(struct stk_io *io)
{
    struct stk_posix *posix = stk_posix(io);

    stk_local_paths_close(posix->local_paths);
    stk_thread_pool_close(posix->calls);
    stk_free(posix);
}

static const struct stk_io_table uring_table = {
    .open_file = open_file,
    .stat_path = stat_path,
    .list = list,
    .queue_open = stk_uring_queue_open,
    .queue_close = stk_uring_queue_close,
    .submit = stk_uring_submit,
    .reap = stk_uring_reap,
    .wake = stk_uring_wake,
    .clock_ns = clock_ns,
    .backend = backend,
    .leaked_bytes = leaked_bytes,
    .map_file = stk_posix_map,
    .unmap = stk_posix_unmap,
    .map_check = stk_posix_map_check,
    .map_faults = stk_posix_map_faults,
    .map_prefetch = stk_posix_map_prefetch,
    .thread_disk_reads = stk_posix_thread_disk_reads,
    .close = posix_close,
    .write = &stk_posix_write_table,
};

static const struct stk_io_table threads_table = {
    .open_file = open_file,
    .stat_path = stat_path,
    .list = list,
    .queue_open = stk_thread_queue_open,
    .queue_close = stk_thread_queue_close,
    .submit = stk_thread_queue_submit,
    .reap = stk_thread_queue_reap,
    .wake = stk_thread_queue_wake,
    .clock_ns = clock_ns,
    .backend = backend,
    .leaked_bytes = leaked_bytes,
    .map_file = stk_posix_map,
    .unmap = stk_posix_unmap,
    .map_check = stk_posix_map_check,
    .map_faults = stk_posix_map_faults,
    .map_prefetch = stk_posix_map_prefetch,
    .thread_disk_reads = stk_posix_thread_disk_reads,
    .close = posix_close,
    .write = &stk_posix_write_table,
};

int stk_io_open(struct stk_io **io_out, const struct stk_io_options *options,
                struct stoker_error *error)
{
    struct stk_posix *posix = stk_alloc(1, sizeof *posix);
    int status;

    if (!posix) {
        return stk_fail_errno(error, ENOMEM, "cannot open the input", "give it more memory", "io");
    }
    posix->options = *options;
    status = check_options(&posix->options, error);
    if (status == 0) {
        status = choose_backend(posix, error);
    }
    if (status == 0) {
        status =
            stk_thread_pool_open(&posix->calls, posix->options.network_fs_threads_max, NULL, error);
    }
    if (status == 0) {
        status = stk_local_paths_open(&posix->local_paths, posix->calls);
        if (status < 0) {
            stk_fail_errno(error, -status, "cannot read the mount table",
                           "give the process more memory", "io");
        }
    }
    if (status < 0) {
        posix_close(&posix->io);
        return status;
    }
    *io_out = &posix->io;
    return 0;
}

static int check_options(struct stk_io_options *options, struct stoker_error *error)
{
    if (options->backend > STOKER_IO_THREADS || options->direct > STOKER_DIRECT_ALWAYS) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no such input backend or direct mode",
                        "use one of enum stoker_io_backend and enum stoker_direct",
                        "backend %u, direct %u", options->backend, options->direct);
    }
    if (options->depth > STK_DEPTH_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many reads in flight",
                        "ask for at most 4096", "depth %u", options->depth);
    }
    options->depth = options->depth ? options->depth : STK_DEPTH_DEFAULT;
    options->read_timeout_ms =
        options->read_timeout_ms ? options->read_timeout_ms : STK_TIMEOUT_DEFAULT_MS;
    options->network_fs_threads_max =
        options->network_fs_threads_max ? options->network_fs_threads_max : 8;
    return 0;
}

static int choose_backend(struct stk_posix *posix, struct stoker_error *error)
{
    int status;

    posix->io.table = &threads_table;
    if (posix->options.backend == STOKER_IO_THREADS) {
        snprintf(posix->reason, sizeof posix->reason, "requested by the options");
        return 0;
    }
    status = stk_uring_probe(posix->reason, sizeof posix->reason);
    if (status == 0) {
        posix->io.table = &uring_table;
    } else if (posix->options.backend == STOKER_IO_URING) {
        return stk_fail(error, status, "io_uring was requested but does not work",
                        "allow io_uring, or let stoker choose the backend", "%s", posix->reason);
    }
    return 0;
}

static int fail_path(struct stoker_error *error, int number, const char *what, const char *path)
{
    static const struct {
        int number;
        const char *advice;
    } table[] = {
        {ENOENT, "check the path; a relative one starts at the working directory"},
        {ENOTDIR, "check the path: a part of it is a file"},
        {EISDIR, "name a file in the folder"},
        {EACCES, "let this user read it (chmod, or run as its owner)"},
        {EPERM, "let this user read it (chmod, or run as its owner)"},
        {ELOOP, "remove the symbolic link that leads back to itself"},
        {EMFILE, "raise the limit of open files (ulimit -n)"},
        {ENFILE, "raise the limit of open files of the machine (sysctl fs.file-max)"},
        {ENOMEM, "give the process more memory"},
        {ENAMETOOLONG, "shorten the path to less than 4096 bytes"},
        {EIO, "check the disk and the kernel's log (dmesg)"},
        {ESTALE, "the file was replaced on the server: open the data set again"},
    };
    const char *advice = "see errno(3) for the reason; check the file system";

    if (number == -STOKER_ERROR_TIMEOUT) {
        return stk_fail(error, STOKER_ERROR_TIMEOUT, what,
                        "no response in time: check the server or mount, or raise read_timeout_ms",
                        "'%s'", path);
    }
    for (size_t i = 0; i < STK_COUNT(table); i++) {
        if (table[i].number == number) {
            advice = table[i].advice;
        }
    }
    return stk_fail_errno(error, number, what, advice, "'%s'", path);
}

static int check_kind(const struct stat *stat, const char *path, struct stoker_error *error)
{
    if (S_ISDIR(stat->st_mode)) {
        return fail_path(error, EISDIR, "cannot read a folder as a file", path);
    }
    if (!S_ISREG(stat->st_mode) && !S_ISBLK(stat->st_mode)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "not a file: a pipe, socket or device",
                        "copy its data into a file", "'%s'", path);
    }
    return 0;
}

/* Returns true if a page of the range is missing. RWF_NOWAIT would start read-ahead of missing
 * pages (mm/filemap.c, filemap_get_pages), and the direct read that follows would read the same
 * bytes from the disk again; cachestat does not. Small reads skip the query as long as they find
 * their bytes. One missing page is enough, since read-ahead of a sample's header often loads the
 * first page of the sample. */
static bool range_is_cold(struct stk_posix_file *file, uint64_t offset, size_t bytes)
{
    uint64_t pages;

    return file->bytes >= stk_posix_direct_bytes_min(file->posix) &&
           (bytes >= PROBE_BYTES_MIN || !atomic_load_explicit(&file->warm, memory_order_relaxed)) &&
           stk_posix_file_pages_missing(file, offset, bytes, &pages) > 0;
}

static int list_local(struct stk_posix *posix, const char *path,
                      struct stk_listing_builder *builder)
{
    int fd = stk_local_path_open(posix->local_paths, path, O_RDONLY | O_DIRECTORY);
    int status = fd;

    if (fd >= 0) {
        status = stk_local_path_list(posix->local_paths, fd, builder);
        close(fd);
    }
    return status;
}
