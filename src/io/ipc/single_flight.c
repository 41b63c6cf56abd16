/* Single flight with flock: the kernel releases the lock of a killed process. */
#include "io/ipc/single_flight.h"

#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens the folder of this user. No other user may write to it, since its files are trusted. */
static bool make_folder(char *folder, size_t folder_bytes)
{
    const char *node = getenv("STOKER_NODE_DIR");
    struct stat info;

    if ((size_t)snprintf(folder, folder_bytes, "%s/stoker-turns-%u",
                         node && node[0] == '/' ? node : "/dev/shm",
                         (unsigned)geteuid()) >= folder_bytes ||
        (mkdir(folder, 0700) < 0 && errno != EEXIST)) {
        return false;
    }
    return lstat(folder, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
           (info.st_mode & 077) == 0;
}

static void sibling_path(const struct stk_single_flight *flight, const char *ending,
                         char path[STK_SINGLE_FLIGHT_PATH_BYTES + 8])
{
    size_t stem = strlen(flight->path) - strlen("result");

    snprintf(path, STK_SINGLE_FLIGHT_PATH_BYTES + 8, "%.*s%s", (int)stem, flight->path, ending);
}

static int open_sibling(const struct stk_single_flight *flight, const char *ending, int flags)
{
    char path[STK_SINGLE_FLIGHT_PATH_BYTES + 8];

    sibling_path(flight, ending, path);
    return open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static bool try_lock(int fd, int kind)
{
    int result;

    do {
        result = flock(fd, kind | LOCK_NB);
    } while (result < 0 && errno == EINTR);
    return result == 0;
}

/* Returns true if an open file still has this name. The process that removed the name had the lock,
 * so the lock of a file without the name does not count. */
static bool has_name(const struct stk_single_flight *flight, const char *ending, int fd)
{
    char path[STK_SINGLE_FLIGHT_PATH_BYTES + 8];
    struct stat named, open;

    sibling_path(flight, ending, path);
    return fstat(fd, &open) == 0 && lstat(path, &named) == 0 && named.st_ino == open.st_ino &&
           named.st_dev == open.st_dev;
}

static void close_lock(int *fd)
{
    if (*fd >= 0) {
        (void)flock(*fd, LOCK_UN); /* a forked child may still have the descriptor */
        close(*fd);
        *fd = -1;
    }
}

static enum stk_single_flight_role become_leader(struct stk_single_flight *flight)
{
    (void)unlink(flight->path); /* left by a killed process */
    flight->is_leader = true;
    close_lock(&flight->wait);
    return STK_SINGLE_FLIGHT_LEADER;
}

/* Another process is the leader. Returns AGAIN if it ended and removed the lock file. */
static int wait_for_leader(struct stk_single_flight *flight, uint64_t end_ns)
{
    flight->wait = open_sibling(flight, "wait", O_RDWR | O_CREAT);
    if (flight->wait < 0) {
        return STK_SINGLE_FLIGHT_UNAVAILABLE;
    }
    for (bool waits = false; stk_clock_ns() < end_ns;) {
        waits = waits || try_lock(flight->wait,
                                  LOCK_SH); /* fails while another process checks for waiters */
        if (try_lock(flight->lock, LOCK_SH)) {
            struct stat info;

            if (!has_name(flight, "lock", flight->lock)) {
                return STOKER_ERROR_AGAIN;
            }
            if (lstat(flight->path, &info) == 0 && S_ISREG(info.st_mode)) {
                return STK_SINGLE_FLIGHT_FOLLOWER;
            }
            (void)flock(flight->lock, LOCK_UN);
            if (try_lock(flight->lock, LOCK_EX)) {
                return has_name(flight, "lock", flight->lock) ? (int)become_leader(flight)
                                                              : STOKER_ERROR_AGAIN;
            }
        }
        poll(NULL, 0, STK_SINGLE_FLIGHT_POLL_MS);
    }
    return STK_SINGLE_FLIGHT_UNAVAILABLE;
}

/* Returns AGAIN if the lock file was removed meanwhile. */
static int try_begin(struct stk_single_flight *flight, uint64_t end_ns)
{
    flight->lock = open_sibling(flight, "lock", O_RDWR | O_CREAT);
    if (flight->lock < 0) {
        return STK_SINGLE_FLIGHT_UNAVAILABLE;
    }
    if (try_lock(flight->lock, LOCK_EX)) {
        return has_name(flight, "lock", flight->lock) ? (int)become_leader(flight)
                                                      : STOKER_ERROR_AGAIN;
    }
    /* On a file system without locks, errno has another value. */
    return errno == EWOULDBLOCK ? wait_for_leader(flight, end_ns) : STK_SINGLE_FLIGHT_UNAVAILABLE;
}

/* A process that gives up may have made the file of waiters after the leader removed all files: it
 * removes them as a leader does, unless another process uses them. */
static void give_up(struct stk_single_flight *flight)
{
    close_lock(&flight->wait);
    close_lock(&flight->lock);
    flight->lock = open_sibling(flight, "lock", O_RDWR | O_CREAT);
    flight->is_leader = flight->lock >= 0 && try_lock(flight->lock, LOCK_EX);
    stk_single_flight_end(flight);
}

enum stk_single_flight_role stk_single_flight_begin(struct stk_single_flight *flight,
                                                    const char *key, uint32_t timeout_ms)
{
    uint64_t end_ns = stk_clock_ns() + timeout_ms * 1000000ull;
    int role = STOKER_ERROR_AGAIN;
    char folder[STK_SINGLE_FLIGHT_PATH_BYTES];

    *flight = (struct stk_single_flight){.lock = -1, .wait = -1};
    if (!make_folder(folder, sizeof folder) ||
        (size_t)snprintf(flight->path, sizeof flight->path, "%.400s/%.80s.result", folder, key) >=
            sizeof flight->path) {
        return STK_SINGLE_FLIGHT_UNAVAILABLE;
    }
    do {
        close_lock(&flight->wait);
        close_lock(&flight->lock);
        role = try_begin(flight, end_ns);
    } while (role == STOKER_ERROR_AGAIN && stk_clock_ns() < end_ns);
    if (role == STK_SINGLE_FLIGHT_UNAVAILABLE || role == STOKER_ERROR_AGAIN) {
        give_up(flight);
        return STK_SINGLE_FLIGHT_UNAVAILABLE;
    }
    return (enum stk_single_flight_role)role;
}

bool stk_single_flight_has_waiters(const struct stk_single_flight *flight)
{
    int fd = flight->is_leader ? open_sibling(flight, "wait", O_RDWR) : -1;
    bool has_waiters = fd >= 0 && !try_lock(fd, LOCK_EX);

    if (fd >= 0) {
        close_lock(&fd);
    }
    return has_waiters;
}

int stk_single_flight_publish(const struct stk_single_flight *flight, struct stk_view result)
{
    char part[STK_SINGLE_FLIGHT_PATH_BYTES + 8];
    int fd = open_sibling(flight, "part", O_WRONLY | O_CREAT | O_TRUNC),
        status = fd < 0 ? -errno : 0;
    size_t done = 0;

    while (status == 0 && done < result.bytes) {
        ssize_t count = write(fd, result.data + done, result.bytes - done);

        done += count > 0 ? (size_t)count : 0;
        status = count < 0 && errno != EINTR ? -errno : 0;
    }
    snprintf(part, sizeof part, "%.*spart", (int)(strlen(flight->path) - strlen("result")),
             flight->path);
    if (fd >= 0) {
        close(fd);
    }
    if (status == 0 && rename(part, flight->path) < 0) {
        status = -errno;
    }
    if (status < 0) {
        (void)unlink(part);
    }
    return status;
}

/* Removes the files if no other process uses this key. A process that opened them before sees that
 * they have no name any more, and starts again. */
static void remove_files(struct stk_single_flight *flight)
{
    char path[STK_SINGLE_FLIGHT_PATH_BYTES + 8];

    if (flight->lock < 0 || stk_single_flight_has_waiters(flight) ||
        !try_lock(flight->lock, LOCK_EX) || !has_name(flight, "lock", flight->lock)) {
        return;
    }
    (void)unlink(flight->path);
    sibling_path(flight, "wait", path);
    (void)unlink(path);
    sibling_path(flight, "lock", path);
    (void)unlink(path);
}

void stk_single_flight_end(struct stk_single_flight *flight)
{
    bool last = flight->is_leader;

    /* The last process that waited. */
    if (!flight->is_leader && flight->wait >= 0 && flight->lock >= 0 &&
        try_lock(flight->wait, LOCK_EX)) {
        (void)unlink(flight->path);
        last = true;
    }
    close_lock(&flight->wait);
    if (last) {
        flight->is_leader = true;
        remove_files(flight);
    }
    close_lock(&flight->lock);
    flight->is_leader = false;
}
