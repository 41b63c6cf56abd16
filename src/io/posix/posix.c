/* The real machine: files, listings and the clock, and the sampling_args of a backend for queues.
 */
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* Reading less than this is about as dear as asking first. */
#define PROBE_BYTES_MIN 16384u
#define HOLES_SHARE_MIN 8u /* holes are at most one page of so many */
#define CALL_READ_BYTES_MAX (1u << 20)
#define NANOSECONDS 1000000000ull

enum call_kind { CALL_OPEN = 1, CALL_STAT_PATH, CALL_STAT_FILE, CALL_LIST, CALL_READ, CALL_CLOSE };

/* One call that may hang, with all that it needs: its caller may be gone when it returns. */
struct call {
    struct stk_task task;
    uint32_t kind;               /* enum call_kind */
    struct stk_posix_file *file; /* a user of it; NULL: the call is by path */
    int fd, direct_fd;           /* made by the call */
    uint64_t direct_bytes_min;   /* open smaller files without O_DIRECT */
    uint64_t offset;
    size_t bytes;
    int64_t result;
    bool local;
    struct stat stat;
    struct stk_listing_builder builder;
    uint8_t memory[]; /* the path, or the bytes read */
};

static const struct stk_io_table uring_table, threads_table;

static int check_options(struct stk_io_options *options, struct stoker_error *error);
static int choose_backend(struct stk_posix *posix, struct stoker_error *error);
static int fail_path(struct stoker_error *error, int number, const char *what, const char *path);
static int check_kind(const struct stat *stat, const char *path, struct stoker_error *error);
static uint64_t direct_bytes_min(const struct stk_posix *posix);
static int open_direct(int fd);
static int direct_fd(struct stk_posix *posix, struct stk_posix_file *file);
static bool range_has_holes(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                            uint64_t bytes);
static bool range_is_cold(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                          size_t bytes);
static int list_local(struct stk_posix *posix, const char *path,
                      struct stk_listing_builder *builder);
static void stat_convert(const struct stat *from, struct stk_stat *to);
static int64_t read_local(int fd, uint64_t offset, uint8_t *buffer, size_t bytes);
static int64_t read_network(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                            uint8_t *buffer, size_t bytes);
static struct call *call_new(struct stk_posix *posix, uint32_t kind, const char *path,
                             struct stk_posix_file *file, size_t bytes);
static int call_wait(struct stk_posix *posix, struct call *call, struct call **call_out);
static void call_free(struct call *call);
static void call_run(struct stk_task *task);
static void call_drop(struct stk_task *task);

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_posix_file *file = stk_alloc(1, sizeof *file);
    struct call *call = NULL;
    struct stat stat;
    int status = 0;

    if (!file) {
        return fail_path(error, ENOMEM, "cannot open the file", path);
    }
    stk_posix_file_acquire(file);
    atomic_init(&file->direct_fd, STK_DIRECT_UNTRIED);
    /* O_NONBLOCK: a FIFO in a folder must not stop the job; it does nothing to files. */
    file->fd = stk_local_path_open(posix->local_paths, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (file->fd >= 0) {
        status = fstat(file->fd, &stat) < 0 ? -errno : 0;
    } else if (file->fd != -EXDEV) {
        status = file->fd;
    } else {
        status = call_wait(posix, call_new(posix, CALL_OPEN, path, NULL, 0), &call);
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
    /* Left set, it would tell io_uring that a read of this file never blocks (io_uring/rw.c). */
    (void)fcntl(file->fd, F_SETFL, 0);
    stk_posix_set_mount(file, &stat);
    *file_out = (struct stk_file *)(void *)file;
    file = NULL;
done:
    call_free(call);
    stk_io_close_file(io, (struct stk_file *)(void *)file);
    return status;
}

/* Closing talks to the server of a network file, so that may hang too. */
static void close_file(struct stk_io *io, struct stk_file *opaque)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_posix_file *file = stk_posix_file(opaque);
    struct call *call = file->is_network ? call_new(posix, CALL_CLOSE, NULL, file, 0) : NULL;

    stk_posix_file_release(file);
    if (call && stk_thread_pool_call(posix->calls, &call->task, STK_THREAD_POOL_CLOSE_MS) == 0) {
        call_free(call);
    }
}

static int stat_file(struct stk_io *io, struct stk_file *opaque, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_posix_file *file = stk_posix_file(opaque);
    struct call *call = NULL;
    struct stat stat;
    int status;

    if (!file->is_network) {
        status = fstat(file->fd, &stat) < 0 ? -errno : 0;
    } else {
        status = call_wait(posix, call_new(posix, CALL_STAT_FILE, NULL, file, 0), &call);
        stat = call ? call->stat : (struct stat){0};
    }
    call_free(call);
    if (status < 0) {
        return fail_path(error, -status, "cannot ask for the size", "an open file");
    }
    stat_convert(&stat, stat_out);
    return 0;
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct call *call = NULL;
    struct stat stat;
    int status, fd = stk_local_path_open(posix->local_paths, path, O_PATH);

    if (fd >= 0) {
        status = fstat(fd, &stat) < 0 ? -errno : 0;
        close(fd);
    } else if (fd != -EXDEV) {
        status = fd;
    } else {
        status = call_wait(posix, call_new(posix, CALL_STAT_PATH, path, NULL, 0), &call);
        stat = call ? call->stat : (struct stat){0};
    }
    call_free(call);
    if (status < 0) {
        return fail_path(error, -status, "cannot find the path", path);
    }
    stat_convert(&stat, stat_out);
    return 0;
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct stk_posix *posix = stk_posix(io);
    struct stk_listing_builder builder = {0};
    struct call *call = NULL;
    int status = list_local(posix, path, &builder);

    if (status == -EXDEV) {
        stk_listing_builder_deinit(&builder);
        status = call_wait(posix, call_new(posix, CALL_LIST, path, NULL, 0), &call);
        if (call) {
            builder = call->builder;
            call->builder = (struct stk_listing_builder){0};
        }
    }
    if (status == 0) {
        status = stk_listing_build(&builder, listing_out);
    }
    call_free(call);
    stk_listing_builder_deinit(&builder);
    return status < 0 ? fail_path(error, -status, "cannot list the folder", path) : 0;
}

static int64_t read_now(struct stk_io *io, struct stk_file *opaque, uint64_t offset, void *buffer,
                        size_t bytes)
{
    struct stk_posix_file *file = stk_posix_file(opaque);
    struct iovec part = {buffer, bytes};
    size_t done = 0;
    ssize_t count = 0;

    if (atomic_load_explicit(&file->nowait_refused, memory_order_relaxed) ||
        range_is_cold(stk_posix(io), file, offset, bytes)) {
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

static int64_t read_wait(struct stk_io *io, struct stk_file *opaque, uint64_t offset, void *buffer,
                         size_t bytes)
{
    struct stk_posix_file *file = stk_posix_file(opaque);

    return file->is_network ? read_network(stk_posix(io), file, offset, buffer, bytes)
                            : read_local(file->fd, offset, buffer, bytes);
}

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

static int64_t uncached_bytes(struct stk_io *io, struct stk_file *opaque, uint64_t offset,
                              uint64_t bytes)
{
    const struct stk_posix_file *file = stk_posix_file(opaque);
    uint64_t end = stk_min(offset + bytes, file->bytes);
    int64_t cold = offset < end ? stk_posix_uncached_bytes(file->fd, offset, end - offset) : 0;

    (void)io;
    return cold < 0 ? cold : (int64_t)stk_min((uint64_t)cold * STK_IO_ALIGN, bytes);
}

static void posix_close(struct stk_io *io)
{
    struct stk_posix *posix = stk_posix(io);

    stk_local_paths_close(posix->local_paths);
    stk_thread_pool_close(posix->calls);
    stk_free(posix);
}

/* clang-format off */
static const struct stk_io_table uring_table = {
    open_file, close_file, stat_file, stat_path, list, read_now, read_wait,
    stk_uring_queue_open, stk_uring_queue_close, stk_uring_submit, stk_uring_reap, stk_uring_wake,
    clock_ns, backend, leaked_bytes, stk_posix_map, stk_posix_unmap, stk_posix_map_prefetch,
    stk_posix_thread_disk_reads, posix_close,
    &stk_posix_write_table, NULL, NULL, NULL, NULL, NULL, uncached_bytes, NULL, stk_posix_mount_of};

static const struct stk_io_table threads_table = {
    open_file, close_file, stat_file, stat_path, list, read_now, read_wait,
    stk_thread_queue_open, stk_thread_queue_close, stk_thread_queue_submit, stk_thread_queue_reap,
    stk_thread_queue_wake,
    clock_ns, backend, leaked_bytes, stk_posix_map, stk_posix_unmap, stk_posix_map_prefetch,
    stk_posix_thread_disk_reads, posix_close,
    &stk_posix_write_table, NULL, NULL, NULL, NULL, NULL, uncached_bytes, NULL, stk_posix_mount_of};
/* clang-format on */

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

void stk_read_part_init(struct stk_read_part *span, struct stk_posix *posix, struct stk_read *read)
{
    struct stk_posix_file *file = stk_posix_file(read->file);
    int direct = read->keep_cached ? -1 : direct_fd(posix, file);

    if (direct >= 0 && posix->options.direct == STOKER_DIRECT_AUTO &&
        range_has_holes(posix, file, read->offset, read->bytes)) {
        direct = -1;
    }
    *span = (struct stk_read_part){
        .fd = file->fd,
        .buffered_fd = file->fd,
        .is_network = file->is_network,
        .buffer = read->buffer,
        .offset = read->offset,
        .wanted_offset = read->offset,
        .wanted_bytes = read->bytes,
        .bytes = read->bytes,
    };
    if (direct >= 0) {
        uint32_t skip = (uint32_t)(read->offset & (STK_IO_ALIGN - 1));

        STK_ASSERT((uintptr_t)read->buffer % STK_IO_ALIGN == 0);
        STK_ASSERT(read->capacity >= stk_round_up((uint64_t)skip + read->bytes, STK_IO_ALIGN));
        span->direct = true;
        span->fd = direct;
        span->offset -= skip;
        span->bytes = (uint32_t)stk_round_up((uint64_t)skip + read->bytes, STK_IO_ALIGN);
    }
}

bool stk_read_part_advance(struct stk_read_part *span, int64_t returned)
{
    uint32_t enough = (uint32_t)(span->wanted_offset - span->offset) + span->wanted_bytes;

    if (returned == -EINTR || returned == -EAGAIN) {
        span->failure = (int)returned;
        return ++span->retries > STK_READ_PART_RETRIES_MAX;
    }
    span->failure = 0;
    if (span->direct && (returned == -EINVAL || returned == -EOPNOTSUPP)) {
        /* The file system takes O_DIRECT but not this read: as it is, then. */
        span->direct = false;
        span->refused = true;
        span->fd = span->buffered_fd;
        span->offset = span->wanted_offset;
        span->bytes = span->wanted_bytes;
        span->done = 0;
        return false;
    }
    if (returned < 0) {
        span->failure = (int)returned;
        return true;
    }
    span->done += (uint32_t)returned;
    if (returned == 0 || span->done >= enough) {
        return true;
    }
    /* O_DIRECT stops off a block only at the end of the file. */
    return span->direct && span->done % STK_IO_ALIGN != 0;
}

void stk_read_part_finish(const struct stk_read_part *span, struct stk_read *read)
{
    uint32_t skip = (uint32_t)(span->wanted_offset - span->offset);

    if (span->refused) {
        atomic_store_explicit(&stk_posix_file(read->file)->direct_refused, true,
                              memory_order_relaxed);
    }
    read->leaked = false;
    read->skip = skip;
    read->result = span->failure;
    if (span->failure == 0) {
        read->result =
            span->done > skip ? (int64_t)stk_min(span->done - skip, span->wanted_bytes) : 0;
    }
}

void stk_posix_file_release(struct stk_posix_file *file)
{
    /* Release and acquire: the last one sees all that the others did with it. */
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

void stk_posix_abandon(struct stk_posix *posix, struct stk_read *read, int status, bool lost)
{
    read->result = status;
    read->skip = 0;
    read->leaked = lost;
    if (lost) {
        atomic_fetch_add_explicit(&posix->leaked_bytes, read->capacity, memory_order_relaxed);
    }
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
        snprintf(posix->reason, sizeof posix->reason, "asked for by the options");
        return 0;
    }
    status = stk_uring_probe(posix->reason, sizeof posix->reason);
    if (status == 0) {
        posix->io.table = &uring_table;
    } else if (posix->options.backend == STOKER_IO_URING) {
        return stk_fail(error, status, "io_uring was asked for but does not work",
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
                        "no answer in time: check the server or mount, or raise read_timeout_ms",
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

static uint64_t direct_bytes_min(const struct stk_posix *posix)
{
    return posix->options.direct == STOKER_DIRECT_NEVER    ? UINT64_MAX
           : posix->options.direct == STOKER_DIRECT_ALWAYS ? 0
                                                           : STK_DIRECT_BYTES_MIN;
}

/* By /proc, since a path could by now name another file. A descriptor or STK_DIRECT_REFUSED. */
static int open_direct(int fd)
{
    char path[32];
    struct statx info;
    int direct;

    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_DIOALIGN, &info) == 0 &&
        (info.stx_mask & STATX_DIOALIGN) &&
        (info.stx_dio_offset_align == 0 || info.stx_dio_offset_align > STK_IO_ALIGN ||
         info.stx_dio_mem_align > STK_IO_ALIGN)) {
        return STK_DIRECT_REFUSED;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    return direct >= 0 ? direct : STK_DIRECT_REFUSED;
}

/* The descriptor for direct reads of a file, opened at its first; -1: read it buffered. */
static int direct_fd(struct stk_posix *posix, struct stk_posix_file *file)
{
    /* Acquire and release: who sees a descriptor sees it open. */
    int fd = atomic_load_explicit(&file->direct_fd, memory_order_acquire), mine;

    if (!file->regular || file->bytes < direct_bytes_min(posix) || fd == STK_DIRECT_REFUSED ||
        atomic_load_explicit(&file->direct_refused, memory_order_relaxed)) {
        return -1;
    }
    if (fd >= 0) {
        return fd;
    }
    mine = open_direct(file->fd);
    if (!atomic_compare_exchange_strong_explicit(&file->direct_fd, &fd, mine, memory_order_acq_rel,
                                                 memory_order_acquire)) {
        if (mine >= 0) {
            close(mine);
        }
        mine = fd;
    }
    return mine >= 0 ? mine : -1;
}

/* Pages of the range that the page cache has not; *pages_out: all of it. 0 where no one knows. */
static uint64_t pages_missing(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                              uint64_t bytes, uint64_t *pages_out)
{
    uint64_t end = stk_min(offset + bytes, file->bytes);
    int64_t cold;

    *pages_out = 0;
    if (!file->regular || offset >= end ||
        atomic_load_explicit(&posix->probe_refused, memory_order_relaxed)) {
        return 0;
    }
    cold = stk_posix_uncached_bytes(file->fd, offset, end - offset);
    if (cold < 0) {
        /* EPERM comes for files of others too, where the next file may answer. */
        atomic_store_explicit(&posix->probe_refused, cold == -ENOSYS, memory_order_relaxed);
        return 0;
    }
    *pages_out = (end - 1) / STK_IO_ALIGN - offset / STK_IO_ALIGN + 1;
    return (uint64_t)cold;
}

/* RWF_NOWAIT starts read-ahead of what it misses (mm/filemap.c, filemap_get_pages), and the
 * direct read that follows would fetch the same bytes from the disk again. cachestat asks
 * without that; while small reads find their bytes it is left out. One page missing is enough: a
 * sample's first page often came with its header. */
static bool range_is_cold(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                          size_t bytes)
{
    uint64_t pages;

    return file->bytes >= direct_bytes_min(posix) &&
           (bytes >= PROBE_BYTES_MIN || !atomic_load_explicit(&file->warm, memory_order_relaxed)) &&
           pages_missing(posix, file, offset, bytes, &pages) > 0;
}

/* Nearly all of it is in the page cache: the rest belongs there too. Read past the cache, a hole
 * would stay one, and all that surrounds it would come from the disk at each visit. */
static bool range_has_holes(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                            uint64_t bytes)
{
    uint64_t pages, missing = pages_missing(posix, file, offset, bytes, &pages);

    return pages > 0 && missing <= pages / HOLES_SHARE_MIN;
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

static void stat_convert(const struct stat *from, struct stk_stat *to)
{
    *to = (struct stk_stat){
        .bytes = (uint64_t)from->st_size,
        .mtime_ns = (uint64_t)from->st_mtim.tv_sec * NANOSECONDS + (uint64_t)from->st_mtim.tv_nsec,
        .device = from->st_dev,
        .inode = from->st_ino,
        .kind = stk_posix_entry_kind(from),
    };
}

static int64_t read_local(int fd, uint64_t offset, uint8_t *buffer, size_t bytes)
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

/* Piece by piece through a buffer of the call, so that a late answer cannot write into memory
 * that is no longer ours. */
static int64_t read_network(struct stk_posix *posix, struct stk_posix_file *file, uint64_t offset,
                            uint8_t *buffer, size_t bytes)
{
    uint64_t until_ns = stk_clock_ns() + posix->options.read_timeout_ms * 1000000ull;
    size_t done = 0;

    while (done < bytes) {
        size_t piece = stk_min(bytes - done, CALL_READ_BYTES_MAX);
        struct call *call = call_new(posix, CALL_READ, NULL, file, piece);
        int64_t count;

        if (call) {
            call->offset = offset + done;
        }
        count = call_wait(posix, call, &call);
        if (call && call->result > 0) {
            count = call->result;
            memcpy(buffer + done, call->memory, (size_t)count);
            done += (size_t)count;
        }
        call_free(call);
        if (count < 0) {
            return count;
        }
        if ((size_t)count < piece) {
            break;
        }
        if (done < bytes && stk_clock_ns() >= until_ns) {
            return STOKER_ERROR_TIMEOUT;
        }
    }
    return (int64_t)done;
}

static struct call *call_new(struct stk_posix *posix, uint32_t kind, const char *path,
                             struct stk_posix_file *file, size_t bytes)
{
    size_t path_bytes = path ? strlen(path) + 1 : 0;
    struct call *call = stk_alloc(1, sizeof *call + path_bytes + bytes);

    if (call) {
        call->task = (struct stk_task){.run = call_run, .drop = call_drop};
        call->kind = kind;
        call->fd = -1;
        call->direct_fd = STK_DIRECT_REFUSED;
        call->direct_bytes_min = direct_bytes_min(posix);
        call->bytes = bytes;
        call->file = file;
        if (file) {
            stk_posix_file_acquire(file);
        }
        if (path) {
            memcpy(call->memory, path, path_bytes);
        }
    }
    return call;
}

/* Runs a call within its deadline and gives it back with its result, to be freed; NULL when it
 * was left behind. Takes a NULL call for want of memory. */
static int call_wait(struct stk_posix *posix, struct call *call, struct call **call_out)
{
    int status = -ENOMEM;

    *call_out = NULL;
    if (call) {
        status = stk_thread_pool_call(posix->calls, &call->task, posix->options.read_timeout_ms);
    }
    if (call && status == 0) {
        status = call->result < 0 ? (int)call->result : 0;
        *call_out = call;
    }
    return status;
}

static void call_free(struct call *call)
{
    if (call) {
        call_drop(&call->task);
    }
}

static void call_run(struct stk_task *task)
{
    struct call *call = (struct call *)(void *)task;
    const char *path = (const char *)call->memory;

    switch (call->kind) {
    case CALL_OPEN:
        call->fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        call->result = call->fd < 0 || fstat(call->fd, &call->stat) < 0 ? -errno : 0;
        call->local = call->result == 0 && stk_local_path_is_local(call->fd);
        /* A near file opens its direct descriptor when it is first needed. */
        if (call->result == 0 && !call->local && S_ISREG(call->stat.st_mode) &&
            (uint64_t)call->stat.st_size >= call->direct_bytes_min) {
            call->direct_fd = open_direct(call->fd);
        }
        break;
    case CALL_STAT_PATH:
        call->result = stat(path, &call->stat) < 0 ? -errno : 0;
        break;
    case CALL_STAT_FILE:
        call->result = fstat(call->file->fd, &call->stat) < 0 ? -errno : 0;
        break;
    case CALL_LIST:
        call->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        call->result = call->fd < 0 ? -errno : stk_local_path_list(NULL, call->fd, &call->builder);
        break;
    case CALL_READ:
        call->result = read_local(call->file->fd, call->offset, call->memory, call->bytes);
        break;
    default: /* CALL_CLOSE */
        stk_posix_file_release(call->file);
        call->file = NULL;
        break;
    }
}

/* What the call made is freed. A file whose close never got a thread stays open: better than to
 * hang here. */
static void call_drop(struct stk_task *task)
{
    struct call *call = (struct call *)(void *)task;

    if (call->fd >= 0) {
        close(call->fd);
    }
    if (call->direct_fd >= 0) {
        close(call->direct_fd);
    }
    if (call->file && call->kind != CALL_CLOSE) {
        stk_posix_file_release(call->file);
    }
    stk_listing_builder_deinit(&call->builder);
    stk_free(call);
}
