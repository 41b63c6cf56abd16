/* Goal: both backends read the same bytes as pread for any alignment, depth and kind of file. The
 * backend is chosen by what the kernel permits, and reports the reason. Bad paths give typed
 * errors.
 * Method: rows run over every (backend, direct) pair on files of known bytes; a child process
 * forbids io_uring by a seccomp filter. Covers posix.c, posix_file.c, read_part.c, uring_queue.c,
 * thread_queue.c, local_path.c; hang_test.c covers calls that hang. usage: posix_test [seed] */
#include "io/io.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define BIG_BYTES ((3u << 20) + 123)
#define SMALL_BYTES 5000u
#define DEEP_READS 1000
#define DEEP_DEPTH 64
#define READ_MAX (64u << 10)

static char folder[64];
static uint8_t *big; /* the bytes of the file "big" */
static uint64_t seed = 20261121;

static const struct mode {
    const char *name;
    uint32_t backend, direct;
} modes[] = {
    {"uring auto", STOKER_IO_URING, STOKER_DIRECT_AUTO},
    {"uring buffered", STOKER_IO_URING, STOKER_DIRECT_NEVER},
    {"uring direct", STOKER_IO_URING, STOKER_DIRECT_ALWAYS},
    {"threads auto", STOKER_IO_THREADS, STOKER_DIRECT_AUTO},
    {"threads buffered", STOKER_IO_THREADS, STOKER_DIRECT_NEVER},
    {"threads direct", STOKER_IO_THREADS, STOKER_DIRECT_ALWAYS},
};

static const struct read_row {
    const char *name, *file;
    uint64_t offset;
    uint32_t bytes;
    int64_t want;
} read_rows[] = {
    {"start", "big", 0, 4096, 4096},
    {"one byte", "big", 4095, 1, 1},
    {"across blocks", "big", 4095, 2, 2},
    {"unaligned", "big", 123457, 54321, 54321},
    {"two MiB", "big", 77, 2u << 20, 2u << 20},
    {"all", "big", 0, BIG_BYTES, BIG_BYTES},
    {"more than all", "big", 0, BIG_BYTES + 10000, BIG_BYTES},
    {"short at the end", "big", BIG_BYTES - 10, 100, 10},
    {"last byte", "big", BIG_BYTES - 1, 1, 1},
    {"at the end", "big", BIG_BYTES, 100, 0},
    {"past the end", "big", BIG_BYTES + 5, 100, 0},
    {"far past the end", "big", 1ull << 40, 100, 0},
    {"nothing", "big", 10, 0, 0},
    {"small file", "small", 1, SMALL_BYTES, SMALL_BYTES - 1},
    {"empty file", "empty", 0, 100, 0},
};

static const char *in_folder(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const uint8_t *data, size_t bytes)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);

    while (bytes > 0) {
        ssize_t count = write(fd, data, bytes);

        STK_ASSERT(count > 0);
        data += count;
        bytes -= (size_t)count;
    }
    fsync(fd);
    close(fd);
}

static void set_up(void)
{
    snprintf(folder, sizeof folder, "/tmp/stoker-io-test-XXXXXX");
    STK_ASSERT(mkdtemp(folder) != NULL);
    big = stk_alloc(BIG_BYTES, 1);
    for (size_t i = 0; i < BIG_BYTES; i++) {
        big[i] = (uint8_t)stk_random_key(seed, i);
    }
    write_file("big", big, BIG_BYTES);
    write_file("small", big, SMALL_BYTES);
    write_file("empty", big, 0);
    mkdir(in_folder("sub"), 0700);
    STK_ASSERT(symlink("sub", in_folder("link")) == 0);
    STK_ASSERT(symlink("nowhere", in_folder("broken")) == 0);
    STK_ASSERT(symlink("itself", in_folder("itself")) == 0);
    STK_ASSERT(symlink("/proc/version", in_folder("version")) == 0);
    STK_ASSERT(mkfifo(in_folder("pipe"), 0600) == 0);
}

static void tear_down(void)
{
    static const char *const names[] = {"big",    "small",  "empty",   "link",
                                        "broken", "itself", "version", "pipe"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        unlink(in_folder(names[i]));
    }
    rmdir(in_folder("sub"));
    rmdir(folder);
    stk_free(big);
}

static struct stk_io *open_io(const struct mode *mode, uint32_t depth)
{
    struct stk_io_options options = {mode->backend, mode->direct, depth, 20000, 3};
    struct stk_io *io = NULL;
    struct stoker_error error = {0};

    if (stk_io_open(&io, &options, &error) < 0) {
        printf("%s: %s (%s)\n", mode->name, error.what, error.where);
    }
    return io;
}

static struct stk_file *open_file(struct stk_io *io, const char *name)
{
    struct stk_file *file = NULL;
    struct stoker_error error = {0};

    T_EQ(name, stk_io_open_file(io, in_folder(name), &file, &error), 0);
    return file;
}

static struct stk_read *read_new(struct stk_file *file, uint64_t offset, uint32_t bytes)
{
    struct stk_read *read = stk_alloc(1, sizeof *read);

    *read = (struct stk_read){.file = file, .offset = offset, .bytes = bytes};
    read->capacity = stk_read_capacity(bytes);
    read->buffer = stk_pages_alloc(read->capacity);
    read->result = -EINPROGRESS;
    return read;
}

static void read_free(struct stk_read *read)
{
    stk_pages_free(read->buffer, read->capacity);
    stk_free(read);
}

/* One read by each of the three ways. */
static void test_read(struct stk_io *io, struct stk_queue *queue, const char *mode,
                      const struct read_row *row)
{
    struct stk_file *file = open_file(io, row->file);
    struct stk_read *read = read_new(file, row->offset, row->bytes), *back;
    char name[96];
    int64_t now;

    snprintf(name, sizeof name, "%s, %s", mode, row->name);
    T_EQ(name, stk_io_read_wait(file, row->offset, read->buffer, row->bytes), row->want);
    T_TRUE(name, row->want <= 0 || memcmp(read->buffer, big + row->offset, row->want) == 0);
    now = stk_io_read_now(file, row->offset, read->buffer, row->bytes);
    T_TRUE(name, now == row->want || now == -EAGAIN);
    T_TRUE(name, now <= 0 || memcmp(read->buffer, big + row->offset, now) == 0);

    memset(read->buffer, 0xee, read->capacity);
    T_EQ(name, stk_io_submit(io, queue, read), 1);
    back = stk_io_reap(io, queue, 10000);
    T_TRUE(name, back == read && !read->next);
    T_EQ(name, read->result, row->want);
    T_TRUE(name, !read->leaked && read->skip < STK_IO_ALIGN);
    T_TRUE(name,
           row->want <= 0 || memcmp(read->buffer + read->skip, big + row->offset, row->want) == 0);
    read_free(read);
    stk_io_close_file(file);
}

/* A deep queue of random reads, always full. few: opens the queue with no open files left, so that
 * one of io_uring reads by threads. */
static void test_deep(struct stk_io *io, const char *name, bool few)
{
    struct stk_queue *queue = NULL;
    struct rlimit before, none;
    struct stk_file *file = open_file(io, "big");
    uint64_t key = seed;
    int started = 0, finished = 0, wrong = 0, lists = 0;

    T_EQ("limit", getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = few ? 0 : before.rlim_cur;
    T_EQ("limit", setrlimit(RLIMIT_NOFILE, &none), 0);
    T_EQ(name, stk_io_queue_open(io, &queue, NULL), 0);
    T_EQ("limit", setrlimit(RLIMIT_NOFILE, &before), 0);
    while (finished < DEEP_READS && lists < 100 * DEEP_READS) {
        struct stk_read *list = NULL, *next;
        int made = 0;

        while (started + made < DEEP_READS && started + made - finished < DEEP_DEPTH) {
            uint32_t bytes = (uint32_t)((key = stk_random_key(key, 1)) % READ_MAX);
            struct stk_read *read =
                read_new(file, (key = stk_random_key(key, 2)) % BIG_BYTES, bytes);

            read->next = list;
            list = read;
            made++;
        }
        if (made > 0) {
            T_EQ(name, stk_io_submit(io, queue, list), made);
            started += made;
        }
        for (list = stk_io_reap(io, queue, 5000); list; list = next) {
            int64_t want = (int64_t)stk_min(list->bytes, BIG_BYTES - list->offset);

            next = list->next;
            finished++;
            wrong += list->result != want || list->leaked ||
                     memcmp(list->buffer + list->skip, big + list->offset, (size_t)want) != 0;
            read_free(list);
        }
        lists++;
    }
    T_EQ(name, finished, DEEP_READS);
    T_EQ(name, wrong, 0);
    stk_io_queue_close(io, queue);
    stk_io_close_file(file);
}

struct waker {
    struct stk_io *io;
    struct stk_queue *queue;
};

static void *wake_soon(void *argument)
{
    const struct waker *waker = argument;

    usleep(50000);
    stk_io_wake(waker->io, waker->queue);
    return NULL;
}

static void test_wake(struct stk_io *io, const char *name)
{
    struct waker waker = {io, NULL};
    uint64_t start = stk_io_clock_ns(io);
    pthread_t thread;

    T_EQ(name, stk_io_queue_open(io, &waker.queue, NULL), 0);
    T_TRUE("timeout", stk_io_reap(io, waker.queue, 30) == NULL);
    T_TRUE("waited", stk_io_clock_ns(io) - start >= 30000000u);
    stk_io_wake(io, waker.queue);
    stk_io_wake(io, waker.queue);
    T_TRUE("woken before", stk_io_reap(io, waker.queue, 60000) == NULL);
    pthread_create(&thread, NULL, wake_soon, &waker);
    T_TRUE("woken while", stk_io_reap(io, waker.queue, 60000) == NULL);
    pthread_join(thread, NULL);
    T_TRUE(name, stk_io_clock_ns(io) - start < 20000000000u);
    start = stk_io_clock_ns(io);
    T_TRUE("no wake left", stk_io_reap(io, waker.queue, 30) == NULL);
    T_TRUE("waited again", stk_io_clock_ns(io) - start >= 30000000u);
    stk_io_queue_close(io, waker.queue);
}

/* Closing a queue returns every read, and none is lost on a healthy disk. */
static void test_close(struct stk_io *io, const char *name)
{
    struct stk_file *file = open_file(io, "big");
    struct stk_queue *queue = NULL;
    struct stk_read *reads[DEEP_DEPTH + 1], *list = NULL;
    int lost = 0;

    T_EQ(name, stk_io_queue_open(io, &queue, NULL), 0);
    for (int i = DEEP_DEPTH; i >= 0; i--) {
        reads[i] = read_new(file, 1000u * (uint32_t)i, 50000);
        reads[i]->next = list;
        list = reads[i];
    }
    T_EQ(name, stk_io_submit(io, queue, list), DEEP_DEPTH);
    T_TRUE("the list can be walked", reads[DEEP_DEPTH - 1]->next == reads[DEEP_DEPTH]);
    T_EQ("full", stk_io_submit(io, queue, reads[DEEP_DEPTH]), 0);
    stk_io_queue_close(io, queue);
    for (int i = 0; i <= DEEP_DEPTH; i++) {
        lost += reads[i]->leaked;
        if (!reads[i]->leaked) {
            read_free(reads[i]);
        }
    }
    T_EQ(name, lost, 0);
    T_EQ(name, (long long)stk_io_leaked_bytes(io), 0);
    stk_io_close_file(file);
}

static void test_backends(void)
{
    T_EACH(mode, mode, modes)
    {
        int64_t alive = stk_mem_alive();
        struct stk_io *io = open_io(mode, DEEP_DEPTH);
        struct stk_queue *queue = NULL;
        const char *reason = NULL;

        if (!io) {
            continue;
        }
        T_STR(mode->name, stk_io_backend(io, &reason),
              mode->backend == STOKER_IO_URING ? "io_uring" : "threads");
        T_TRUE(mode->name, reason && reason[0]);
        T_EQ(mode->name, stk_io_queue_open(io, &queue, NULL), 0);
        T_EACH(read_row, row, read_rows)
        {
            test_read(io, queue, mode->name, row);
        }
        stk_io_queue_close(io, queue);
        test_deep(io, mode->name, false);
        test_deep(io, mode->name, true);
        test_wake(io, mode->name);
        test_close(io, mode->name);
        stk_io_close(io);
        T_EQ(mode->name, stk_mem_alive(), alive);
    }
}

static const struct path_row {
    const char *name, *path;
    int open_status, stat_status, kind;
} path_rows[] = {
    {"file", "small", 0, 0, STK_ENTRY_FILE},
    {"folder", "sub", -EISDIR, 0, STK_ENTRY_DIRECTORY},
    {"with dots", "sub/../small", 0, 0, STK_ENTRY_FILE},
    {"link to a folder", "link", -EISDIR, 0, STK_ENTRY_DIRECTORY},
    {"link to another mount", "version", 0, 0, STK_ENTRY_FILE},
    {"pipe", "pipe", STOKER_ERROR_UNSUPPORTED, 0, STK_ENTRY_OTHER},
    {"absent", "absent", -ENOENT, -ENOENT, 0},
    {"empty name", "", -EISDIR, 0, STK_ENTRY_DIRECTORY},
    {"below a file", "small/x", -ENOTDIR, -ENOTDIR, 0},
    {"broken link", "broken", -ENOENT, -ENOENT, 0},
    {"link to itself", "itself", -ELOOP, -ELOOP, 0},
};

static void test_paths(struct stk_io *io)
{
    T_EACH(path_row, row, path_rows)
    {
        struct stoker_error error = {0};
        struct stk_file *file = NULL;
        struct stk_stat stat = {0};
        struct stk_mount_info mounted;
        int status = stk_io_open_file(io, in_folder(row->path), &file, &error);

        T_EQ(row->name, status, row->open_status);
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_TRUE(row->name, file == NULL);
        } else {
            T_EQ(row->name, stk_io_stat_file(file, &stat, NULL), 0);
            T_EQ(row->name, stat.kind, row->kind);
            T_TRUE(row->name, !stk_io_mount_of(file, &mounted));
            T_EQ(row->name, mounted.device, stat.device);
            stk_io_close_file(file);
        }
        status = stk_io_stat_path(io, in_folder(row->path), &stat, &error);
        T_EQ(row->name, status, row->stat_status);
        if (status < 0) {
            T_ERROR(row->name, &error);
        } else {
            T_EQ(row->name, stat.kind, row->kind);
        }
    }
}

static void test_relative(struct stk_io *io)
{
    char before[256];
    struct stk_stat stat = {0};
    struct stk_file *file = NULL;

    T_TRUE("cwd", getcwd(before, sizeof before) && chdir(folder) == 0);
    T_EQ("relative", stk_io_open_file(io, "sub/../small", &file, NULL), 0);
    stk_io_close_file(file);
    T_EQ("here", stk_io_stat_path(io, ".", &stat, NULL), 0);
    T_EQ("no name", stk_io_stat_path(io, "", &stat, NULL), -ENOENT);
    T_TRUE("back", chdir(before) == 0);
}

static void test_list(struct stk_io *io)
{
    static const struct {
        const char *name;
        uint32_t kind;
    } want[] = {
        {"big", STK_ENTRY_FILE},     {"broken", STK_ENTRY_OTHER},   {"empty", STK_ENTRY_FILE},
        {"itself", STK_ENTRY_OTHER}, {"link", STK_ENTRY_DIRECTORY}, {"pipe", STK_ENTRY_OTHER},
        {"small", STK_ENTRY_FILE},   {"sub", STK_ENTRY_DIRECTORY},  {"version", STK_ENTRY_FILE},
    };
    struct stk_listing listing = {0};
    struct stoker_error error = {0};

    T_EQ("list", stk_io_list(io, folder, &listing, &error), 0);
    if (T_EQ("count", listing.count, STK_COUNT(want))) {
        for (size_t i = 0; i < STK_COUNT(want); i++) {
            T_STR("entry", listing.entries[i].name, want[i].name);
            T_EQ(want[i].name, listing.entries[i].kind, want[i].kind);
        }
        T_TRUE("a link is its target", listing.entries[4].inode == listing.entries[7].inode);
    }
    stk_listing_free(&listing);
    T_EQ("empty", stk_io_list(io, in_folder("sub"), &listing, &error), 0);
    T_EQ("empty", listing.count, 0);
    stk_listing_free(&listing);
    T_EQ("a file", stk_io_list(io, in_folder("small"), &listing, &error), -ENOTDIR);
    T_ERROR("a file", &error);
    T_EQ("absent", stk_io_list(io, in_folder("absent"), &listing, &error), -ENOENT);
}

/* Whether none of it is in memory; bytes 0: to the end of a big file. */
static bool is_out(int fd, off_t offset, off_t bytes)
{
    static unsigned char pages[BIG_BYTES / 4096];
    size_t count = (size_t)((bytes > 0 ? bytes : BIG_BYTES - offset) / 4096);
    void *map = mmap(NULL, count * 4096, PROT_READ, MAP_SHARED, fd, offset);
    bool out = map != MAP_FAILED && mincore(map, count * 4096, pages) == 0;

    for (size_t i = 0; i < count && out; i++) {
        out = (pages[i] & 1) == 0;
    }
    if (map != MAP_FAILED) {
        munmap(map, count * 4096);
    }
    return out;
}

/* The kernel keeps pages that are being written, or in a list of another core: so waits until they
 * are out in two checks, 2 s at most. */
static bool drop(int fd, off_t offset, off_t bytes)
{
    int seen = 0;

    for (int i = 0; i < 400 && seen < 2; i++) {
        if (posix_fadvise(fd, offset, bytes, POSIX_FADV_DONTNEED) != 0) {
            return false;
        }
        usleep(5000);
        seen = is_out(fd, offset, bytes) ? seen + 1 : 0;
    }
    return seen == 2;
}

/* Drops the file and tries to read bytes of it until they are missing; then drops it again. The
 * first tries may find them: the kernel begins to read at a try of a file that was warm, and on a
 * busy machine the disk has finished before the check. */
static bool answers_cold(struct stk_file *file, int fd)
{
    uint8_t buffer[100];
    int64_t got = 100;
    bool dropped = true;

    for (int i = 0; i < 50 && got == 100 && (dropped = drop(fd, 0, 0)); i++) {
        got = stk_io_read_now(file, 1 << 20, buffer, sizeof buffer);
        T_TRUE("cold", got == -EAGAIN || memcmp(buffer, big + (1 << 20), sizeof buffer) == 0);
    }
    T_TRUE("cold at last", got == -EAGAIN || !dropped);
    usleep(50000); /* the read that that try started stays until it is complete */
    return got == -EAGAIN && drop(fd, 0, 0);
}

/* A read of missing pages neither waits, nor, for a big file, reads ahead. */
static void test_cold(struct stk_io *io)
{
    struct stk_file *file = open_file(io, "big");
    struct statfs info;
    uint8_t *buffer = stk_alloc(BIG_BYTES, 1);
    int fd = open(in_folder("big"), O_RDONLY);

    T_EQ("warm it", stk_io_read_wait(file, 0, buffer, BIG_BYTES), BIG_BYTES);
    T_EQ("warm", stk_io_read_now(file, 5, buffer, BIG_BYTES), BIG_BYTES - 5);
    T_TRUE("bytes", memcmp(buffer, big + 5, BIG_BYTES - 5) == 0);
    fstatfs(fd, &info);
    if (info.f_type == 0xef53 && answers_cold(file, fd)) {
        for (int i = 0; i < 3; i++) {
            T_EQ("still cold", stk_io_read_now(file, 1 << 20, buffer, 100), -EAGAIN);
            usleep(20000);
        }
        T_EQ("part of it", stk_io_read_wait(file, 0, buffer, 4096), 4096);
        T_TRUE("at least", stk_io_read_now(file, 0, buffer, 4096) == 4096);
        drop(fd, 0, 0);
        T_EQ("a page of it", stk_io_read_wait(file, 2 << 20, buffer, 100), 100);
        for (int i = 0; i < 3; i++) {
            T_EQ("the rest is cold", stk_io_read_now(file, 2 << 20, buffer, 1 << 20), -EAGAIN);
            usleep(20000);
        }
    }
    T_EQ("end", stk_io_read_now(file, BIG_BYTES, buffer, 10), 0);
    close(fd);
    stk_free(buffer);
    stk_io_close_file(file);
}

/* Only the announced pages of a mapped file are read, none around them; the thread reports it. */
static void test_map(struct stk_io *io)
{
    struct stk_file *file = open_file(io, "big");
    struct statfs info;
    struct stk_view view;
    unsigned char pages[BIG_BYTES / 4096 + 1] = {0};
    int fd = open(in_folder("big"), O_RDONLY);
    uint64_t reads;

    fstatfs(fd, &info);
    if (info.f_type == 0xef53 && drop(fd, 0, 0)) {
        T_EQ("map", stk_io_map(io, file, &view, NULL), 0);
        reads = stk_io_thread_disk_reads(io);
        stk_io_map_prefetch(io, (struct stk_view){view.data + (1 << 20) + 5000, 5000});
        for (int i = 0; i < 10000 && !(pages[257] & pages[258] & 1); i++) {
            mincore((void *)(uintptr_t)view.data, view.bytes, pages);
            usleep(1000);
        }
        T_TRUE("announced", pages[257] & pages[258] & 1);
        T_TRUE("no more", !(pages[256] & 1) && !(pages[259] & 1) && !(pages[700] & 1));
        T_TRUE("read", stk_io_thread_disk_reads(io) > reads);
        reads = stk_io_thread_disk_reads(io);
        T_TRUE("bytes", memcmp(view.data + (1 << 20) + 5000, big + (1 << 20) + 5000, 5000) == 0);
        T_EQ("warm", stk_io_thread_disk_reads(io), reads);
        T_EQ("cold", view.data[0], big[0]);
        T_TRUE("cold", stk_io_thread_disk_reads(io) > reads);
        stk_io_unmap(io, view);
    }
    close(fd);
    stk_io_close_file(file);
}

/* All of "big" by the queue. */
static void read_by_queue(struct stk_io *io, struct stk_queue *queue, struct stk_file *file)
{
    struct stk_read *read = read_new(file, 0, BIG_BYTES);

    T_EQ("submit", stk_io_submit(io, queue, read), 1);
    T_TRUE("reap", stk_io_reap(io, queue, 10000) == read);
    T_EQ("all", read->result, BIG_BYTES);
    T_TRUE("bytes", memcmp(read->buffer + read->skip, big, BIG_BYTES) == 0);
    read_free(read);
}

/* If a few pages are missing in the page cache, a read fills them in; if most are missing, it
 * bypasses the cache. */
static void test_holes(const struct mode *mode)
{
    struct stk_io *io = open_io(mode, 8);
    struct stk_file *file;
    struct stk_queue *queue = NULL;
    struct statfs info;
    uint8_t *buffer;
    int fd;

    if (!io) {
        return; /* no io_uring here */
    }
    file = open_file(io, "big");
    buffer = stk_alloc(BIG_BYTES, 1);
    fd = open(in_folder("big"), O_RDONLY);
    T_EQ("queue", stk_io_queue_open(io, &queue, NULL), 0);
    T_EQ("warm it", stk_io_read_wait(file, 0, buffer, BIG_BYTES), BIG_BYTES);
    fstatfs(fd, &info);
    if (info.f_type == 0xef53 && drop(fd, 1 << 20, 32768)) {
        int64_t got = 0;

        T_EQ(mode->name, stk_io_read_now(file, 0, buffer, BIG_BYTES), -EAGAIN);
        /* A kernel that reclaims ahead (DAMON) may take any page at any time: so more than once. */
        for (int i = 0; i < 50 && got != BIG_BYTES; i++) {
            read_by_queue(io, queue, file);
            got = stk_io_read_now(file, 0, buffer, BIG_BYTES);
        }
        T_EQ(mode->name, got, BIG_BYTES);
        drop(fd, 0, BIG_BYTES / 2);
        read_by_queue(io, queue, file);
        T_EQ(mode->name, stk_io_read_now(file, 0, buffer, BIG_BYTES), -EAGAIN);
    }
    close(fd);
    stk_free(buffer);
    stk_io_close_file(file);
    stk_io_queue_close(io, queue);
    stk_io_close(io);
}

/* A child in which one system call answers EPERM, as in a container. */
static void test_forbidden(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {STK_COUNT(filter), filter};
    pid_t child;
    int status = 0;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        struct stk_io_options options = {.depth = DEEP_DEPTH};
        struct stoker_error error = {0};
        struct stk_io *io = NULL;
        const char *reason = NULL;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
            _exit(77);
        }
        T_EQ("forbidden", stk_io_open(&io, &options, &error), 0);
        T_STR("forbidden", stk_io_backend(io, &reason), "threads");
        T_HAS("forbidden", reason, "io_uring_setup: EPERM");
        test_deep(io, "forbidden", false);
        stk_io_close(io);
        options.backend = STOKER_IO_URING;
        T_EQ("demanded", stk_io_open(&io, &options, &error), -EPERM);
        T_ERROR("demanded", &error);
        fflush(stdout);
        _exit(t_finish());
    }
    T_EQ("child", waitpid(child, &status, 0), child);
    T_TRUE("forbidden",
           WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}

/* Every allocation of opening, listing and reading fails once. */
static void test_memory(void)
{
    T_EACH(mode, mode, modes)
    {
        struct stk_io_options options = {mode->backend, mode->direct, 8, 5000, 0};
        int64_t alive = stk_mem_alive();
        bool reached = true;
        int status = -1;

        /* A mount that could not be tried counts as a network mount, so not every failure shows. */
        for (uint64_t n = 1; reached && n < 200; n++) {
            uint64_t calls = stk_mem_calls();
            struct stk_io *io = NULL;
            struct stk_queue *queue = NULL;
            struct stk_file *file = NULL;
            struct stk_listing listing = {0};
            struct stoker_error error = {0};

            stk_mem_fail_nth(n);
            status = stk_io_open(&io, &options, &error);
            if (status == 0) {
                status = stk_io_queue_open(io, &queue, &error);
            }
            if (status == 0) {
                status = stk_io_list(io, folder, &listing, &error);
            }
            if (status == 0) {
                status = stk_io_open_file(io, in_folder("version"), &file, &error);
            }
            stk_io_close_file(file);
            if (status < 0) {
                T_ERROR(mode->name, &error);
            }
            stk_listing_free(&listing);
            stk_io_queue_close(io, queue);
            stk_io_close(io);
            reached = stk_mem_calls() - calls >= n;
            stk_mem_fail_nth(0);
            T_EQ(mode->name, stk_mem_alive(), alive);
        }
        T_EQ(mode->name, status, 0);
    }
}

static void test_options(void)
{
    static const struct option_row {
        const char *name;
        struct stk_io_options options;
        int want;
    } rows[] = {
        {"defaults", {0}, 0},
        {"backend", {.backend = 9}, STOKER_ERROR_ARGUMENT},
        {"direct", {.direct = 9}, STOKER_ERROR_ARGUMENT},
        {"depth", {.depth = 1u << 20}, STOKER_ERROR_ARGUMENT},
    };

    T_EACH(option_row, row, rows)
    {
        struct stoker_error error = {0};
        struct stk_io *io = NULL;

        T_EQ(row->name, stk_io_open(&io, &row->options, &error), row->want);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
        }
        stk_io_close(io);
    }
}

int main(int argc, char **argv)
{
    struct stk_io *io;

    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed;
    printf("seed %llu\n", (unsigned long long)seed);
    set_up();
    test_forbidden(); /* forks: before there are threads, which may hold locks of the sanitizers */
    test_options();
    test_backends();
    io = open_io(&(struct mode){"auto", STOKER_IO_AUTO, STOKER_DIRECT_AUTO}, 8);
    T_TRUE("auto", io != NULL);
    test_paths(io);
    test_relative(io);
    test_list(io);
    test_cold(io);
    test_map(io);
    test_holes(&(struct mode){"holes, io_uring", STOKER_IO_URING, STOKER_DIRECT_AUTO});
    test_holes(&(struct mode){"holes, threads", STOKER_IO_THREADS, STOKER_DIRECT_AUTO});
    stk_io_close(io);
    stk_io_close(NULL);
    test_memory();
    tear_down();
    return t_finish();
}
