/* The list of mapped files, and the handler of SIGBUS. */
#include "io/posix/map_guard.h"

#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUCKETS 4096u
#define CHUNK_GUARDS 1024u

/* One map. The handler reads the atomic members without a lock: begin is 0 while the others are
 * written, and no map is removed while a thread reads it. */
struct guard {
    _Atomic uintptr_t begin, end;
    atomic_bool broken;
    _Atomic int protection; /* of zeros in its place */
    /* Below the lock. */
    uint32_t next; /* in its bucket, or of the free ones; index + 1, 0: none */
    char *path;    /* owned */
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec written;
};

static struct guard *_Atomic chunks[STK_MAP_GUARDS_MAX / CHUNK_GUARDS];
static _Atomic uint32_t guard_count; /* ever used: the handler looks at no others */
static _Atomic uint64_t fault_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t buckets[BUCKETS], free_guards;
static struct sigaction previous; /* the handler that was set before */
static uintptr_t page_bytes;
static _Thread_local bool was_raised __attribute__((tls_model("initial-exec")));

static void acquire_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void release_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* In the child of a fork, no thread exists that could release the lock. */
static void register_fork_handlers(void)
{
    pthread_atfork(acquire_lock, release_lock, release_lock);
}

/* ---- the handler ---- */

static struct guard *guard_at(uint32_t index)
{
    /* Acquire: the release of grow(), for the chunk's zeros. */
    return atomic_load_explicit(&chunks[index / CHUNK_GUARDS], memory_order_acquire) +
           index % CHUNK_GUARDS;
}

/* Returns the guard of the map that an address is in, or NULL. */
static struct guard *find_address(uintptr_t address)
{
    uint32_t count = atomic_load_explicit(&guard_count, memory_order_acquire);

    for (uint32_t i = 0; i < count; i++) {
        struct guard *guard = guard_at(i);
        uintptr_t begin = atomic_load_explicit(&guard->begin, memory_order_acquire);

        if (begin != 0 && address >= begin &&
            address < atomic_load_explicit(&guard->end, memory_order_relaxed)) {
            return guard;
        }
    }
    return NULL;
}

/* Replaces the map from the page of this address on by zeros. */
static bool replace(uintptr_t address)
{
    struct guard *guard = find_address(address);
    uintptr_t page = address & ~(page_bytes - 1);
    uintptr_t end;

    if (!guard) {
        return false;
    }
    end = atomic_load_explicit(&guard->end, memory_order_relaxed);
    if (mmap((void *)page, end - page,
             atomic_load_explicit(&guard->protection, memory_order_relaxed),
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return false;
    }
    /* Release: a thread that reads the count also reads that the map is broken. */
    atomic_store_explicit(&guard->broken, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&fault_count, 1, memory_order_release);
    return true;
}

/* True if the handler that this signal was passed on to has passed it back, since it was set over
 * this one. It may also have left by longjmp: so no count is kept. */
static bool came_back(const siginfo_t *info)
{
    static _Thread_local struct {
        const siginfo_t *info;
        uintptr_t frame;
    } outer __attribute__((tls_model("initial-exec")));
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    bool is_inner = outer.info == info && frame < outer.frame; /* stacks grow down */

    outer.info = info;
    outer.frame = frame;
    return is_inner;
}

/* A handler that was set over this one (Python's faulthandler) sets this one again and calls raise,
 * which hides the address. Returns true once: then the instruction is repeated, and raises SIGBUS
 * with its address. */
static bool is_raised_again(const siginfo_t *info)
{
    bool is_raised = info->si_code == SI_TKILL && info->si_pid == getpid();
    bool is_first = is_raised && !was_raised;

    was_raised = is_raised;
    return is_first;
}

/* Passes a signal on; if it was passed back, or raised again by the handler that it was passed on
 * to, it ends the process instead of looping for ever. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    bool is_set = previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN;
    sigset_t pending;

    if (came_back(info)) {
        sigaction(number, &usual, NULL);
    } else if (is_set) {
        if (previous.sa_flags & SA_SIGINFO) {
            previous.sa_sigaction(number, info, context);
        } else {
            previous.sa_handler(number);
        }
        if (sigpending(&pending) == 0 && sigismember(&pending, number) == 1) {
            sigaction(number, &usual, NULL);
        }
    } else {
        sigaction(number, &usual, NULL);
        if (info->si_code <= 0) { /* sent by a process: delivered again when this returns */
            raise(number);
        } /* else the instruction is repeated, and raises it again */
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    bool is_ours = info->si_code == BUS_ADRERR && replace((uintptr_t)info->si_addr);
    bool is_again = is_raised_again(info);

    errno = saved;
    if (!is_ours && !is_again) {
        pass_on(number, info, context);
    }
}

/* Other code sets a handler of its own, before or after this one (faulthandler, torch's
 * workers). */
static void set_handler_locked(void)
{
    struct sigaction own = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    struct sigaction now;

    if (sigaction(SIGBUS, NULL, &now) == 0 &&
        !(now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_bus_error)) {
        previous = now;
        sigemptyset(&own.sa_mask);
        sigaction(SIGBUS, &own, NULL);
    }
}

/* ---- the list ---- */

static void lock_guards(void)
{
    pthread_once(&once, register_fork_handlers);
    pthread_mutex_lock(&lock);
}

static uint32_t *bucket_of(uintptr_t begin)
{
    return &buckets[begin / page_bytes * 2654435761u / 16 % BUCKETS];
}

/* Returns the link to a map's guard in its bucket, or NULL. */
static uint32_t *find_locked(struct stk_view map)
{
    uintptr_t begin = (uintptr_t)map.data;
    uint32_t *link = page_bytes > 0 ? bucket_of(begin) : NULL;

    while (link && *link > 0 &&
           atomic_load_explicit(&guard_at(*link - 1)->begin, memory_order_relaxed) != begin) {
        link = &guard_at(*link - 1)->next;
    }
    return link && *link > 0 ? link : NULL;
}

/* Allocates a chunk of free guards. They are never freed: the handler may be reading them. */
static bool grow_locked(void)
{
    uint32_t count = atomic_load_explicit(&guard_count, memory_order_relaxed);
    struct guard *chunk;

    if (count >= STK_MAP_GUARDS_MAX) {
        return false;
    }
    chunk = mmap(NULL, CHUNK_GUARDS * sizeof *chunk, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (chunk == MAP_FAILED) {
        return false;
    }
    for (uint32_t i = CHUNK_GUARDS; i-- > 0;) {
        chunk[i].next = free_guards;
        free_guards = count + i + 1;
    }
    atomic_store_explicit(&chunks[count / CHUNK_GUARDS], chunk, memory_order_release);
    atomic_store_explicit(&guard_count, count + CHUNK_GUARDS, memory_order_release);
    return true;
}

static int add(struct stk_view map, const char *path, const struct stat *about, int protection)
{
    char *copy = stk_strdup(path);
    bool has_guard;

    if (!copy) {
        return -ENOMEM;
    }
    lock_guards();
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    has_guard = free_guards > 0 || grow_locked();
    if (has_guard) {
        struct guard *guard = guard_at(free_guards - 1);
        uint32_t *bucket = bucket_of((uintptr_t)map.data), index = free_guards;

        free_guards = guard->next;
        guard->next = *bucket;
        *bucket = index;
        guard->path = copy;
        guard->device = about->st_dev;
        guard->inode = about->st_ino;
        guard->bytes = about->st_size;
        guard->written = about->st_mtim;
        atomic_store_explicit(&guard->broken, false, memory_order_relaxed);
        atomic_store_explicit(&guard->protection, protection, memory_order_relaxed);
        atomic_store_explicit(&guard->end, (uintptr_t)map.data + map.bytes, memory_order_relaxed);
        atomic_store_explicit(&guard->begin, (uintptr_t)map.data, memory_order_release);
        set_handler_locked();
    }
    pthread_mutex_unlock(&lock);
    if (!has_guard) {
        stk_free(copy);
    }
    return has_guard ? 0 : -ENOMEM;
}

int stk_map_guard_add(struct stk_view map, const char *path, const struct stat *about)
{
    return add(map, path, about, PROT_READ);
}

int stk_map_guard_add_writable(struct stk_view map, const char *path, const struct stat *about)
{
    return add(map, path, about, PROT_READ | PROT_WRITE);
}

bool stk_map_guard_is_broken(struct stk_view map)
{
    bool is_broken = false;
    uint32_t *link;

    if (stk_map_guard_faults() == 0) {
        return false;
    }
    lock_guards();
    link = find_locked(map);
    is_broken = link && atomic_load_explicit(&guard_at(*link - 1)->broken, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    return is_broken;
}

void stk_map_guard_remove(struct stk_view map)
{
    char *path = NULL;
    uint32_t *link;

    lock_guards();
    link = find_locked(map);
    if (link) {
        uint32_t index = *link;
        struct guard *guard = guard_at(index - 1);

        *link = guard->next;
        guard->next = free_guards;
        free_guards = index;
        path = guard->path;
        guard->path = NULL;
        atomic_store_explicit(&guard->begin, 0, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    stk_free(path);
}

uint64_t stk_map_guard_faults(void)
{
    return atomic_load_explicit(&fault_count, memory_order_acquire);
}

static int fail_changed(const char *path, const char *what, struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CHANGED, "a file changed while it was open",
             "write files under another name and rename them; open this one again", "%s", what);
    stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_CHANGED;
}

int stk_map_guard_check(struct stk_view map, struct stoker_error *error)
{
    struct guard copy = {0};
    bool is_known, is_broken = false, is_same;
    struct stat now;
    uint32_t *link;
    int status = 0;

    lock_guards();
    link = find_locked(map);
    if (link) {
        const struct guard *guard = guard_at(*link - 1);

        copy.path = guard->path; /* valid until remove, which the caller does not run meanwhile */
        copy.device = guard->device;
        copy.inode = guard->inode;
        copy.bytes = guard->bytes;
        copy.written = guard->written;
        is_broken = atomic_load_explicit(&guard->broken, memory_order_relaxed);
        set_handler_locked();
    }
    pthread_mutex_unlock(&lock);
    if (!copy.path) {
        return 0;
    }
    is_known = stat(copy.path, &now) == 0;
    /* A file that was renamed or removed can be written to by its other names only. */
    is_same = is_known && now.st_dev == copy.device && now.st_ino == copy.inode;
    if (is_same && now.st_size != copy.bytes) {
        status = fail_changed(copy.path, "its size changed", error);
    } else if (is_same && (now.st_mtim.tv_sec != copy.written.tv_sec ||
                           now.st_mtim.tv_nsec != copy.written.tv_nsec)) {
        status = fail_changed(copy.path, "it was written to", error);
    } else if (is_broken && is_same) {
        status =
            stk_fail_errno(error, EIO, "cannot read a page of a mapped file",
                           "check the disk, or the server, that the file is on", "'%s'", copy.path);
    } else if (is_broken) {
        status = fail_changed(copy.path, "it was cut", error);
    }
    return status;
}
