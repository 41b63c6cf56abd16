/* When the jobs of this machine will use the blocks of a cache. */
#include "storage/cache/cache_future.h"

#include "base/thread.h"
#include "io/clock.h"
#include "io/posix/map_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6572757475666b73ull /* "skfuture" */
#define LAYOUT 1u
#define HEAD_BYTES 4096u
#define USES_MIN 64u
#define PROBES_MAX 64u
#define LOOK_NS 1000000000ull      /* between two listings of the files */
#define SILENT_NS 3600000000000ull /* a job that does not advance for so long is not known */
#define EPOCH_NS_DEFAULT SILENT_NS /* until the speed of the job is known */
#define MEASURE_MIN 0.01           /* of an epoch: before that the speed is not known */
#define NO_EPOCH UINT64_MAX
#define ONE (1ull << 32) /* a complete epoch */

/* A block of a job: an empty one has place 0. */
struct use {
    _Atomic uint32_t place;
    uint32_t unused;
    _Atomic uint64_t parts[2]; /* of even and odd epochs: one bit a part */
};

struct stk_cache_future_file {
    uint64_t magic;
    uint32_t layout, pid;
    uint32_t use_count, unused;               /* a power of two */
    _Atomic uint64_t epochs[2];               /* that `parts` describe; NO_EPOCH: none */
    _Atomic uint64_t epoch, delivered, front; /* where the job is; the last two of ONE */
    _Atomic uint64_t epoch_ns, advanced_ns;
};

_Static_assert(sizeof(struct stk_cache_future_file) <= HEAD_BYTES, "one page");
_Static_assert(sizeof(struct use) == 24, "as the documents say");

static struct use *uses_of(const struct stk_cache_future_file *file)
{
    return (struct use *)(void *)((uint8_t *)(uintptr_t)file + HEAD_BYTES);
}

static struct stk_view view_of(const struct stk_cache_future_file *file, uint64_t bytes)
{
    return (struct stk_view){(const uint8_t *)file, bytes};
}

static uint64_t bytes_of(uint32_t use_count)
{
    return HEAD_BYTES + (uint64_t)use_count * sizeof(struct use);
}

/* Not the number in the file, which may have been cut. */
static uint32_t mapped_uses(uint64_t map_bytes)
{
    return (uint32_t)((map_bytes - HEAD_BYTES) / sizeof(struct use));
}

static uint32_t count_for(uint64_t blocks)
{
    uint32_t count = USES_MIN;

    while (count < STK_CACHE_USES_MAX && count < blocks + blocks / 2) {
        count *= 2;
    }
    return count;
}

uint64_t stk_cache_future_bytes(uint64_t blocks)
{
    return bytes_of(count_for(blocks));
}

static int lock_file(int fd, int command, struct flock *lock)
{
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    return fcntl(fd, command, lock) < 0 ? -errno : 0;
}

/* Closes a descriptor whose file this process may have locked. */
static void close_locked_file(int fd)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_len = 1};

    (void)fcntl(fd, F_OFD_SETLK, &lock); /* a forked child may still have the descriptor */
    close(fd);
}

/* Whether the loader that made the file still exists. */
static bool is_locked(int fd)
{
    struct flock lock;

    return lock_file(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* ---- one loader ---- */

/* Removes the file of a job that ended. Returns 0, or -EBUSY: a job uses it. */
static int remove_ended(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC), status = -EBUSY;
    struct stat opened, named;
    struct flock lock;

    if (fd < 0) {
        return errno == ENOENT ? 0 : -EBUSY;
    }
    /* With the lock no other process removes the file, unless that was done since it was opened. */
    if (lock_file(fd, F_OFD_SETLK, &lock) == 0 && fstat(fd, &opened) == 0 &&
        fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && opened.st_ino == named.st_ino &&
        unlinkat(folder, name, 0) == 0) {
        status = 0;
    }
    close_locked_file(fd);
    return status;
}

static int make_file(int folder, uint64_t bytes)
{
    int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), status;
    struct flock lock;

    if (fd < 0) {
        return -errno;
    }
    status = lock_file(fd, F_OFD_SETLK, &lock);
    if (status == 0 && fallocate(fd, 0, 0, (off_t)bytes) < 0) {
        status = -errno;
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    return fd;
}

/* Gives the file the first free name. */
static int name_file(int folder, int fd)
{
    char self[40], name[40];

    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    for (uint32_t i = 0; i < STK_CACHE_JOBS_MAX; i++) {
        snprintf(name, sizeof name, STK_CACHE_FUTURE_NAME "%u", i);
        for (uint32_t turn = 0; turn < 2; turn++) {
            if (linkat(AT_FDCWD, self, folder, name, AT_SYMLINK_FOLLOW) == 0) {
                return 0;
            }
            if (errno != EEXIST) {
                return -errno;
            }
            if (remove_ended(folder, name) < 0) {
                break;
            }
        }
    }
    return -EBUSY;
}

int stk_cache_future_open(struct stk_cache_future *future, int folder, uint64_t blocks)
{
    uint32_t count = count_for(blocks);
    uint64_t bytes = bytes_of(count);
    struct stk_cache_future_file *file;
    int fd = make_file(folder, bytes), status;
    struct stat about;

    memset(future, 0, sizeof *future);
    if (fd < 0) {
        return fd;
    }
    file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) {
        status = -errno;
        close(fd);
        return status;
    }
    if (fstat(fd, &about) < 0 ||
        stk_map_guard_add_writable(view_of(file, bytes), STK_CACHE_FUTURE_NAME, &about) < 0) {
        munmap(file, bytes);
        close(fd);
        return -ENOMEM;
    }
    file->magic = MAGIC;
    file->layout = LAYOUT;
    file->pid = (uint32_t)stk_process_id();
    file->use_count = count;
    atomic_init(&file->epochs[0], NO_EPOCH);
    atomic_init(&file->epochs[1], NO_EPOCH);
    atomic_init(&file->epoch_ns, EPOCH_NS_DEFAULT);
    atomic_init(&file->advanced_ns, stk_clock_ns());
    *future = (struct stk_cache_future){.file = file, .map_bytes = bytes, .fd = fd};
    status = name_file(folder, fd);
    if (status < 0) {
        stk_cache_future_close(future);
    }
    return status;
}

void stk_cache_future_close(struct stk_cache_future *future)
{
    if (future->file) {
        stk_map_guard_remove(view_of(future->file, future->map_bytes));
        munmap(future->file, future->map_bytes);
        close_locked_file(future->fd); /* the next process that looks removes the file */
        future->file = NULL;
    }
}

void stk_cache_future_begin(struct stk_cache_future *future, uint64_t epoch)
{
    struct use *uses = uses_of(future->file);

    atomic_store_explicit(&future->file->epochs[epoch & 1], NO_EPOCH, memory_order_relaxed);
    for (uint32_t i = 0; i < mapped_uses(future->map_bytes); i++) {
        atomic_store_explicit(&uses[i].parts[epoch & 1], 0, memory_order_relaxed);
    }
}

/* The use of a place, or the empty one where it would be; NULL: the file is full. */
static struct use *find_use(const struct stk_cache_future_file *file, uint32_t use_count,
                            uint32_t place)
{
    struct use *uses = uses_of(file);
    uint32_t mask = use_count - 1;

    for (uint32_t i = 0; i < PROBES_MAX; i++) {
        struct use *use = &uses[(place * 0x9e3779b1u + i) & mask];
        uint32_t has = atomic_load_explicit(&use->place, memory_order_relaxed);

        if (has == place || has == 0) {
            return use;
        }
    }
    return NULL;
}

bool stk_cache_future_add(struct stk_cache_future *future, uint64_t epoch, uint32_t place,
                          uint32_t part)
{
    struct use *use = find_use(future->file, mapped_uses(future->map_bytes), place);

    STK_ASSERT(part < STK_CACHE_EPOCH_PARTS);
    if (!use) {
        return false;
    }
    atomic_store_explicit(&use->place, place, memory_order_relaxed);
    atomic_fetch_or_explicit(&use->parts[epoch & 1], 1ull << part, memory_order_relaxed);
    return true;
}

void stk_cache_future_end(struct stk_cache_future *future, uint64_t epoch)
{
    /* Release: the uses were written before. */
    atomic_store_explicit(&future->file->epochs[epoch & 1], epoch, memory_order_release);
}

bool stk_cache_future_has(const struct stk_cache_future *future, uint64_t epoch)
{
    return atomic_load_explicit(&future->file->epochs[epoch & 1], memory_order_relaxed) == epoch;
}

static uint64_t fraction(double part)
{
    return part <= 0 ? 0 : part >= 1 ? ONE : (uint64_t)(part * (double)ONE);
}

void stk_cache_future_advance(struct stk_cache_future *future, uint64_t epoch, double delivered,
                              double front)
{
    struct stk_cache_future_file *file = future->file;
    uint64_t now = stk_clock_ns();
    double done;

    atomic_store_explicit(&file->epoch, epoch, memory_order_relaxed);
    atomic_store_explicit(&file->delivered, fraction(delivered), memory_order_relaxed);
    atomic_store_explicit(&file->front, fraction(front), memory_order_relaxed);
    atomic_store_explicit(&file->advanced_ns, now, memory_order_relaxed);
    done = (double)epoch + delivered - ((double)future->started_epoch + future->started_at);
    if (future->started_ns == 0 || done < 0) { /* the first, or a seek back */
        future->started_ns = now;
        future->started_epoch = epoch;
        future->started_at = delivered;
    } else if (done > MEASURE_MIN) {
        atomic_store_explicit(&file->epoch_ns,
                              (uint64_t)((double)(now - future->started_ns) / done) + 1,
                              memory_order_relaxed);
    }
}

/* ---- all jobs ---- */

void stk_cache_futures_init(struct stk_cache_futures *futures, int folder)
{
    memset(futures, 0, sizeof *futures);
    pthread_mutex_init(&futures->lock, NULL);
    futures->folder = folder;
}

static void forget_locked(struct stk_cache_futures *futures, uint32_t i)
{
    if (futures->jobs[i].file) {
        stk_map_guard_remove(view_of(futures->jobs[i].file, futures->jobs[i].map_bytes));
        munmap((void *)(uintptr_t)futures->jobs[i].file, futures->jobs[i].map_bytes);
        close(futures->jobs[i].fd);
        futures->jobs[i].file = NULL;
    }
}

void stk_cache_futures_deinit(struct stk_cache_futures *futures)
{
    for (uint32_t i = 0; i < futures->count; i++) {
        forget_locked(futures, i);
    }
    pthread_mutex_destroy(&futures->lock);
}

/* Maps the file of a job. Its owner never cuts it. */
static void map_locked(struct stk_cache_futures *futures, uint32_t i, int fd)
{
    struct stk_cache_future_file head;
    struct stat about;
    void *map;

    if (fstat(fd, &about) < 0 || pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        head.magic != MAGIC || head.layout != LAYOUT || head.use_count < USES_MIN ||
        head.use_count > STK_CACHE_USES_MAX || (head.use_count & (head.use_count - 1)) != 0 ||
        (uint64_t)about.st_size != bytes_of(head.use_count)) {
        close(fd);
        return;
    }
    map = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        close(fd);
        return;
    }
    if (stk_map_guard_add(view_of(map, (uint64_t)about.st_size), STK_CACHE_FUTURE_NAME, &about) <
        0) {
        munmap(map, (size_t)about.st_size);
        close(fd);
        return;
    }
    futures->jobs[i].file = map;
    futures->jobs[i].map_bytes = (uint64_t)about.st_size;
    futures->jobs[i].fd = fd;
}

/* Returns the bytes of all files. */
static uint64_t list_locked(struct stk_cache_futures *futures)
{
    char name[40];
    uint64_t bytes = 0;

    futures->count = 0;
    for (uint32_t i = 0; i < STK_CACHE_JOBS_MAX; i++) {
        struct stat about;

        snprintf(name, sizeof name, STK_CACHE_FUTURE_NAME "%u", i);
        if (futures->jobs[i].file && !is_locked(futures->jobs[i].fd)) {
            forget_locked(futures, i);
        }
        if (!futures->jobs[i].file) {
            int fd = openat(futures->folder, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

            if (fd >= 0 && is_locked(fd)) {
                map_locked(futures, i, fd);
            } else if (fd >= 0) {
                close(fd);
                (void)remove_ended(futures->folder, name);
            }
        }
        if (fstatat(futures->folder, name, &about, AT_SYMLINK_NOFOLLOW) == 0) {
            bytes += (uint64_t)about.st_blocks * 512;
        }
        futures->count = futures->jobs[i].file ? i + 1 : futures->count;
    }
    return bytes;
}

bool stk_cache_futures_look(struct stk_cache_futures *futures, uint64_t now_ns,
                            _Atomic uint64_t *bytes_out)
{
    uint64_t bytes;
    bool has_jobs;

    pthread_mutex_lock(&futures->lock);
    if (futures->folder >= 0 &&
        (futures->looked_ns == 0 || now_ns - futures->looked_ns > LOOK_NS)) {
        futures->looked_ns = now_ns;
        bytes = list_locked(futures);
        if (bytes_out) {
            atomic_store_explicit(bytes_out, bytes, memory_order_relaxed);
        }
    }
    has_jobs = futures->count > 0;
    pthread_mutex_unlock(&futures->lock);
    return has_jobs;
}

void stk_cache_futures_look_again(struct stk_cache_futures *futures)
{
    pthread_mutex_lock(&futures->lock);
    futures->looked_ns = 0;
    pthread_mutex_unlock(&futures->lock);
}

/* The first part with a bit from `part` on; STK_CACHE_EPOCH_PARTS: none. */
static uint32_t first_from(uint64_t parts, uint64_t part)
{
    parts = part < STK_CACHE_EPOCH_PARTS ? parts & UINT64_MAX << part : 0;
    return parts ? (uint32_t)__builtin_ctzll(parts) : STK_CACHE_EPOCH_PARTS;
}

static uint64_t parts_of(const struct stk_cache_future_file *file, const struct use *use,
                         uint64_t epoch)
{
    /* Acquire: as stk_cache_future_end. */
    return atomic_load_explicit(&file->epochs[epoch & 1], memory_order_acquire) == epoch
               ? atomic_load_explicit(&use->parts[epoch & 1], memory_order_relaxed)
               : 0;
}

/* The next use by one job, in nanoseconds. */
static uint64_t next_of_job(const struct stk_cache_future_file *file, const struct use *use,
                            bool is_incoming)
{
    uint64_t epoch = atomic_load_explicit(&file->epoch, memory_order_relaxed);
    uint64_t epoch_ns = atomic_load_explicit(&file->epoch_ns, memory_order_relaxed);
    uint64_t at =
        atomic_load_explicit(is_incoming ? &file->front : &file->delivered, memory_order_relaxed);
    uint64_t now = at * STK_CACHE_EPOCH_PARTS / ONE, ahead;
    uint32_t part = first_from(parts_of(file, use, epoch), now + is_incoming);

    if (part < STK_CACHE_EPOCH_PARTS) {
        ahead = part - now;
    } else {
        part = first_from(parts_of(file, use, epoch + 1), 0);
        if (part == STK_CACHE_EPOCH_PARTS) {
            return STK_CACHE_NEVER;
        }
        ahead = STK_CACHE_EPOCH_PARTS - stk_min(now, STK_CACHE_EPOCH_PARTS) + part;
    }
    return ahead * (epoch_ns / STK_CACHE_EPOCH_PARTS);
}

struct stk_cache_next stk_cache_futures_next(struct stk_cache_futures *futures, uint32_t place,
                                             bool is_incoming)
{
    struct stk_cache_next next = {.ns = STK_CACHE_NEVER};
    uint64_t now_ns = stk_clock_ns();
    uint32_t pid = (uint32_t)stk_process_id();

    pthread_mutex_lock(&futures->lock);
    for (uint32_t i = 0; place != 0 && i < futures->count; i++) {
        const struct stk_cache_future_file *file = futures->jobs[i].file;
        const struct use *use;
        uint64_t advanced;

        if (!file) {
            continue;
        }
        advanced = atomic_load_explicit(&file->advanced_ns, memory_order_relaxed);
        if (now_ns > advanced && now_ns - advanced > SILENT_NS) {
            continue;
        }
        use = find_use(file, mapped_uses(futures->jobs[i].map_bytes), place);
        if (use && atomic_load_explicit(&use->place, memory_order_relaxed) == place) {
            next.is_known = true;
            next.ns = stk_min(next.ns, next_of_job(file, use, is_incoming && file->pid == pid));
        }
    }
    pthread_mutex_unlock(&futures->lock);
    return next;
}
