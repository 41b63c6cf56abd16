/* Goal: a call that never returns is abandoned at its deadline: its buffer counts as leaked, other
 * calls continue, closing does not wait for it, and a late return does no harm.
 * Method: a file system in a child process (the kernel's FUSE protocol, linux/fuse.h) that answers
 * for the file "good" and stays silent for others; when the child dies the kernel ends the calls.
 * Covers thread_pool.c, posix_call.c, and the deadlines of posix.c, uring_queue.c, thread_queue.c,
 * local_path.c. Needs root and /dev/fuse.
 *
 * usage: hang_test [serve FOLDER]
 *   serve   only mounts that file system, writes one byte when it is there, and serves it until it
 *           is killed: for python/tests/test_process.py. Exits with 77 if it cannot mount. */
#include "io/io.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "test/t.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES (3u << 20) /* over the bound for O_DIRECT */
#ifdef __SANITIZE_THREAD__    /* delays answers in time by a factor of ten */
#    define TIMEOUT_MS 600u
#else
#    define TIMEOUT_MS 200u
#endif
#define READS 40
#define MESSAGE_MAX (1u << 20)
#define SECOND 1000000000ull

/* Node numbers are places in this table, from FUSE_ROOT_ID on. */
enum node { NODE_ROOT = FUSE_ROOT_ID, NODE_GOOD, NODE_READ, NODE_OPEN, NODE_FOLDER, NODE_COUNT };

static const char *const node_names[NODE_COUNT] = {"",          "",          "good",
                                                   "hang-read", "hang-open", "hang-list"};

static char mount_point[64];

static void answer(int fd, const struct fuse_in_header *in, int error, const void *data,
                   size_t bytes)
{
    static uint8_t message[sizeof(struct fuse_out_header) + MESSAGE_MAX];
    struct fuse_out_header out = {(uint32_t)(sizeof out + bytes), error, in->unique};

    memcpy(message, &out, sizeof out);
    if (bytes > 0) {
        memcpy(message + sizeof out, data, bytes);
    }
    (void)!write(fd, message, out.len);
}

static struct fuse_attr attributes(uint64_t node)
{
    bool folder = node == NODE_ROOT || node == NODE_FOLDER;

    return (struct fuse_attr){.ino = node,
                              .size = folder ? 0 : FILE_BYTES,
                              .mode = folder ? S_IFDIR | 0755 : S_IFREG | 0644,
                              .nlink = 1};
}

static void serve_lookup(int fd, const struct fuse_in_header *in, const char *name)
{
    struct fuse_entry_out entry = {0};

    if (strcmp(name, "hang-stat") == 0) {
        return;
    }
    for (uint64_t node = NODE_GOOD; node < NODE_COUNT; node++) {
        if (strcmp(name, node_names[node]) == 0) {
            entry.nodeid = node;
            entry.attr = attributes(node);
        }
    }
    answer(fd, in, entry.nodeid ? 0 : -ENOENT, &entry, entry.nodeid ? sizeof entry : 0);
}

/* One name, once. */
static void serve_list(int fd, const struct fuse_in_header *in, const struct fuse_read_in *read)
{
    uint64_t list[4] = {0}; /* 24 bytes of entry, 4 of name, padding */
    struct fuse_dirent *entry = (struct fuse_dirent *)(void *)list;

    entry->ino = NODE_GOOD;
    entry->off = 1;
    entry->namelen = 4;
    entry->type = DT_REG;
    memcpy((uint8_t *)list + FUSE_NAME_OFFSET, "good", 4);
    answer(fd, in, 0, list, read->offset == 0 ? sizeof list : 0);
}

static void serve_one(int fd, const struct fuse_in_header *in, const void *body)
{
    static uint8_t data[MESSAGE_MAX];
    const struct fuse_read_in *read = body;
    /* Without that flag one lookup without an answer blocks its folder. */
    struct fuse_init_out init = {.flags = FUSE_PARALLEL_DIROPS,
                                 .major = FUSE_KERNEL_VERSION,
                                 .minor = 31,
                                 .max_readahead = 131072,
                                 .max_write = 131072,
                                 .max_background = 64};
    struct fuse_attr_out attr = {.attr = attributes(in->nodeid)};
    /* Past the page cache: a page that hangs would hold up every later read of it. */
    struct fuse_open_out open = {.fh = 1,
                                 .open_flags = in->nodeid == NODE_READ ? FOPEN_DIRECT_IO : 0};

    switch (in->opcode) {
    case FUSE_INIT:
        answer(fd, in, 0, &init, sizeof init);
        break;
    case FUSE_LOOKUP:
        serve_lookup(fd, in, body);
        break;
    case FUSE_GETATTR:
        answer(fd, in, 0, &attr, sizeof attr);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        if (in->nodeid != NODE_OPEN) {
            answer(fd, in, 0, &open, sizeof open);
        }
        break;
    case FUSE_READ:
        for (uint32_t i = 0; in->nodeid == NODE_GOOD && i < read->size; i++) {
            data[i] = (uint8_t)((read->offset + i) / 7);
        }
        if (in->nodeid == NODE_GOOD) {
            answer(fd, in, 0, data,
                   read->offset < FILE_BYTES
                       ? (size_t)stk_min(read->size, FILE_BYTES - read->offset)
                       : 0);
        }
        break;
    case FUSE_READDIR:
        if (in->nodeid != NODE_FOLDER) {
            serve_list(fd, in, body);
        }
        break;
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
        answer(fd, in, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break;
    case FUSE_FLUSH: /* the end of a close */
        if (in->nodeid == NODE_GOOD) {
            answer(fd, in, -ENOSYS, NULL, 0);
        }
        break;
    default:
        answer(fd, in, -ENOSYS, NULL, 0);
        break;
    }
}

/* Mounts and serves until the test ends it. */
static _Noreturn void serve(int ready_fd)
{
    static uint64_t message[MESSAGE_MAX / 8];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    char options[128];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (fd < 0 || mount("stoker", mount_point, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
        _exit(77);
    }
    (void)!write(ready_fd, "x", 1);
    for (;;) {
        ssize_t count = read(fd, message, sizeof message);

        if (count < (ssize_t)sizeof(struct fuse_in_header)) {
            if (count < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) {
                continue;
            }
            _exit(0);
        }
        serve_one(fd, (const void *)message,
                  (const uint8_t *)message + sizeof(struct fuse_in_header));
    }
}

static pid_t server_start(void)
{
    int ready[2];
    char byte;
    pid_t child;

    snprintf(mount_point, sizeof mount_point, "/tmp/stoker-hang-test-XXXXXX");
    if (!mkdtemp(mount_point) || pipe(ready) < 0) {
        t_skip("no folder in /tmp");
    }
    fflush(stdout);
    child = fork();
    if (child == 0) {
        close(ready[0]);
        serve(ready[1]);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) {
        rmdir(mount_point);
        t_skip("no FUSE mount: needs root and /dev/fuse");
    }
    close(ready[0]);
    return child;
}

/* With the server every call that waits for it ends. */
static void server_end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    umount2(mount_point, MNT_DETACH);
    rmdir(mount_point);
}

static const char *below(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", mount_point, name);
    return path;
}

static const struct mode {
    const char *name;
    uint32_t backend, direct;
    int stuck; /* reads that are lost of READS that hang; the others never got a thread */
} modes[] = {
    {"uring", STOKER_IO_URING, STOKER_DIRECT_NEVER, -1},
    {"uring direct", STOKER_IO_URING, STOKER_DIRECT_ALWAYS, -1},
    {"threads", STOKER_IO_THREADS, STOKER_DIRECT_NEVER, 32},
    {"threads direct", STOKER_IO_THREADS, STOKER_DIRECT_ALWAYS, 32},
};

static bool is_good(const uint8_t *data, uint64_t offset, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++) {
        if (data[i] != (uint8_t)((offset + i) / 7)) {
            return false;
        }
    }
    return true;
}

/* Every call by path, and how long it took. */
static void test_calls(struct stk_io *io, const char *name)
{
    struct stoker_error error = {0};
    struct stk_listing listing = {0};
    struct stk_mount_info mounted;
    struct stk_file *file = NULL;
    struct stk_stat stat = {0};
    uint64_t start_ns = stk_io_clock_ns(io);
    uint8_t *data = stk_alloc(FILE_BYTES, 1);

    T_EQ(name, stk_io_open_file(io, below("hang-open"), &file, &error), STOKER_ERROR_TIMEOUT);
    T_ERROR(name, &error);
    T_EQ(name, stk_io_stat_path(io, below("hang-stat"), &stat, &error), STOKER_ERROR_TIMEOUT);
    T_ERROR(name, &error);
    T_EQ(name, stk_io_list(io, below("hang-list"), &listing, &error), STOKER_ERROR_TIMEOUT);
    T_ERROR(name, &error);
    if (!T_EQ(name, stk_io_open_file(io, below("hang-read"), &file, &error), 0)) {
        goto done;
    }
    T_EQ(name, stk_io_read_now(file, 0, data, 10), -EAGAIN);
    T_EQ(name, stk_io_read_wait(file, 0, data, 10), STOKER_ERROR_TIMEOUT);
    stk_io_close_file(file);
    file = NULL;
    T_TRUE(name, stk_io_clock_ns(io) - start_ns < 10 * SECOND);

    T_EQ(name, stk_io_list(io, below(""), &listing, &error), 0);
    T_EQ(name, listing.count, 1);
    stk_listing_free(&listing);
    T_EQ(name, stk_io_stat_path(io, below("good"), &stat, &error), 0);
    T_EQ(name, stat.bytes, FILE_BYTES);
    T_EQ(name, stk_io_stat_path(io, below("absent"), &stat, &error), -ENOENT);
    if (!T_EQ(name, stk_io_open_file(io, below("good"), &file, &error), 0)) {
        goto done;
    }
    T_EQ(name, stk_io_stat_file(file, &stat, &error), 0);
    T_TRUE(name, stk_io_mount_of(file, &mounted));
    T_EQ(name, mounted.device, stat.device);
    T_EQ(name, mounted.block_bytes, 4096);
    T_EQ(name, stk_io_read_wait(file, 5, data, FILE_BYTES), FILE_BYTES - 5);
    T_TRUE(name, is_good(data, 5, FILE_BYTES - 5));
    stk_io_close_file(file);
done:
    stk_free(data);
}

static struct stk_read *new_reads(struct stk_file *file, int count)
{
    struct stk_read *reads = stk_alloc((size_t)count, sizeof *reads);

    for (int i = 0; i < count; i++) {
        reads[i] = (struct stk_read){.file = file,
                                     .offset = 1000u * (uint32_t)i,
                                     .bytes = 4000,
                                     .capacity = stk_read_capacity(4000),
                                     .next = i + 1 < count ? &reads[i + 1] : NULL};
        reads[i].buffer = stk_pages_alloc(reads[i].capacity);
    }
    return reads;
}

/* Frees the buffers that may be freed; returns how many were lost. The lost pages are returned only
 * here, where the server is known not to answer. */
static int end_reads(struct stk_read *reads, int count, uint8_t **lost_pages)
{
    int lost = 0;

    for (int i = 0; i < count; i++) {
        if (reads[i].leaked) {
            lost_pages[lost++] = reads[i].buffer;
        } else {
            stk_pages_free(reads[i].buffer, reads[i].capacity);
        }
    }
    stk_free(reads);
    return lost;
}

static int reap_all(struct stk_io *io, struct stk_queue *queue, int count, int64_t want)
{
    uint64_t until_ns = stk_io_clock_ns(io) + 10 * SECOND;
    int got = 0;

    while (got < count && stk_io_clock_ns(io) < until_ns) {
        for (struct stk_read *read = stk_io_reap(io, queue, 1000); read; read = read->next) {
            T_EQ("result", read->result, want);
            T_TRUE("bytes",
                   want < 0 || is_good(read->buffer + read->skip, read->offset, (uint64_t)want));
            got++;
        }
    }
    return got;
}

static int test_queue(struct stk_io *io, const struct mode *mode, uint8_t **lost_pages)
{
    struct stk_file *hang = NULL, *good = NULL;
    struct stk_queue *queue = NULL;
    struct stk_read *reads;
    uint64_t start_ns, lost_bytes = stk_io_leaked_bytes(io);
    int lost;

    if (!T_EQ(mode->name, stk_io_open_file(io, below("hang-read"), &hang, NULL), 0) ||
        !T_EQ(mode->name, stk_io_open_file(io, below("good"), &good, NULL), 0) ||
        !T_EQ(mode->name, stk_io_queue_open(io, &queue, NULL), 0)) {
        return 0;
    }
    start_ns = stk_io_clock_ns(io);
    reads = new_reads(hang, READS);
    T_EQ(mode->name, stk_io_submit(io, queue, reads), READS);
    T_EQ(mode->name, reap_all(io, queue, READS, STOKER_ERROR_TIMEOUT), READS);
    T_TRUE(mode->name, stk_io_clock_ns(io) - start_ns >= TIMEOUT_MS * 1000000ull);
    T_TRUE(mode->name, stk_io_clock_ns(io) - start_ns < 5 * SECOND);
    lost = end_reads(reads, READS, lost_pages);
    T_TRUE(mode->name, mode->stuck < 0 ? lost > 0 : lost == mode->stuck);
    T_EQ(mode->name, stk_io_leaked_bytes(io) - lost_bytes,
         (uint64_t)lost * stk_read_capacity(4000));

    /* Threads that hang are replaced; kernel threads are not ours, but there are more. */
    if (mode->backend == STOKER_IO_THREADS) {
        reads = new_reads(good, READS);
        T_EQ(mode->name, stk_io_submit(io, queue, reads), READS);
        T_EQ(mode->name, reap_all(io, queue, READS, 4000), READS);
        T_EQ(mode->name, end_reads(reads, READS, NULL), 0);
    }
    reads = new_reads(hang, 2);
    T_EQ(mode->name, stk_io_submit(io, queue, reads), 2);
    usleep(20000);
    start_ns = stk_io_clock_ns(io);
    stk_io_queue_close(io, queue);
    T_TRUE(mode->name, stk_io_clock_ns(io) - start_ns < 1 * SECOND);
    lost += end_reads(reads, 2, lost_pages + lost);
    stk_io_close_file(hang);
    stk_io_close_file(good);
    return lost;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "serve") == 0) {
        snprintf(mount_point, sizeof mount_point, "%s", argv[2]);
        serve(STDOUT_FILENO);
    }
    T_EACH(mode, mode, modes)
    {
        struct stk_io_options options = {.backend = mode->backend,
                                         .direct = mode->direct,
                                         .depth = 64,
                                         .read_timeout_ms = TIMEOUT_MS};
        int64_t alive = stk_mem_alive();
        struct stk_io *io = NULL;
        struct stoker_error error = {0};
        uint8_t *lost_pages[READS + 2];
        pid_t server;
        int lost;

        if (stk_io_open(&io, &options, &error) < 0) {
            printf("%s: %s (%s)\n", mode->name, error.what, error.where);
            continue;
        }
        server = server_start();
        /* Mounted after the mount table was read: unknown so far. */
        test_calls(io, mode->name);
        stk_io_close(io);
        T_EQ(mode->name, stk_io_open(&io, &options, &error), 0);
        test_calls(io, mode->name);
        lost = test_queue(io, mode, lost_pages);
        stk_io_close(io);
        T_TRUE(mode->name, stk_mem_alive() >= alive + lost);
        server_end(server);
        /* Now all hanging calls return, find that their callers are gone, and free their memory. */
        for (int i = 0; i < 500 && stk_mem_alive() > alive + lost; i++) {
            usleep(10000);
        }
        for (int i = 0; i < lost; i++) {
            stk_pages_free(lost_pages[i], stk_read_capacity(4000));
        }
        T_EQ(mode->name, stk_mem_alive(), alive);
    }
    return t_finish();
}
