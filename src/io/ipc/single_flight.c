/* Turns by flock: a kernel lock, so that kill -9 ends it. */
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

/* This user's, and nobody else's to write: what lies there is believed. */
static bool make_folder(char *folder, size_t folder_bytes)
{
    const char *node = getenv("STOKER_NODE_DIR");
    struct stat about;

    if ((size_t)snprintf(folder, folder_bytes, "%s/stoker-turns-%u",
                         node && node[0] == '/' ? node : "/dev/shm",
                         (unsigned)geteuid()) >= folder_bytes ||
        (mkdir(folder, 0700) < 0 && errno != EEXIST)) {
        return false;
    }
    return lstat(folder, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid() &&
           (about.st_mode & 077) == 0;
}

static void name_beside(const struct stk_turn *turn, const char *ending,
                        char path[STK_TURN_PATH_BYTES + 8])
{
    size_t stem = strlen(turn->path) - strlen("result");

    snprintf(path, STK_TURN_PATH_BYTES + 8, "%.*s%s", (int)stem, turn->path, ending);
}

static int open_beside(const struct stk_turn *turn, const char *ending, int flags)
{
    char path[STK_TURN_PATH_BYTES + 8];

    name_beside(turn, ending, path);
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

/* Whether an open file still has this name: who removed it held its lock, which counts no more. */
static bool is_there(const struct stk_turn *turn, const char *ending, int fd)
{
    char path[STK_TURN_PATH_BYTES + 8];
    struct stat named, open;

    name_beside(turn, ending, path);
    return fstat(fd, &open) == 0 && lstat(path, &named) == 0 && named.st_ino == open.st_ino &&
           named.st_dev == open.st_dev;
}

static void let_go(int *fd)
{
    if (*fd >= 0) {
        (void)flock(*fd, LOCK_UN); /* a child of fork may still have the descriptor */
        close(*fd);
        *fd = -1;
    }
}

static enum stk_turn_whose take_mine(struct stk_turn *turn)
{
    (void)unlink(turn->path); /* what a kill left */
    turn->is_mine = true;
    let_go(&turn->wait);
    return STK_TURN_MINE;
}

/* Another has it. AGAIN: it ended, and removed the file of the lock. */
static int wait_for_it(struct stk_turn *turn, uint64_t end_ns)
{
    turn->wait = open_beside(turn, "wait", O_RDWR | O_CREAT);
    if (turn->wait < 0) {
        return STK_TURN_NONE;
    }
    for (bool waits = false; stk_clock_ns() < end_ns;) {
        waits = waits || try_lock(turn->wait, LOCK_SH); /* refused while somebody looks */
        if (try_lock(turn->lock, LOCK_SH)) {
            struct stat about;

            if (!is_there(turn, "lock", turn->lock)) {
                return STOKER_ERROR_AGAIN;
            }
            if (lstat(turn->path, &about) == 0 && S_ISREG(about.st_mode)) {
                return STK_TURN_TAKEN;
            }
            (void)flock(turn->lock, LOCK_UN);
            if (try_lock(turn->lock, LOCK_EX)) {
                return is_there(turn, "lock", turn->lock) ? (int)take_mine(turn)
                                                          : STOKER_ERROR_AGAIN;
            }
        }
        poll(NULL, 0, STK_TURN_TICK_MS);
    }
    return STK_TURN_NONE;
}

/* AGAIN: the file of the lock was removed meanwhile. */
static int try_to_begin(struct stk_turn *turn, uint64_t end_ns)
{
    turn->lock = open_beside(turn, "lock", O_RDWR | O_CREAT);
    if (turn->lock < 0) {
        return STK_TURN_NONE;
    }
    if (try_lock(turn->lock, LOCK_EX)) {
        return is_there(turn, "lock", turn->lock) ? (int)take_mine(turn) : STOKER_ERROR_AGAIN;
    }
    /* A file system without locks says so by another number. */
    return errno == EWOULDBLOCK ? wait_for_it(turn, end_ns) : STK_TURN_NONE;
}

enum stk_turn_whose stk_turn_begin(struct stk_turn *turn, const char *key, uint32_t timeout_ms)
{
    uint64_t end_ns = stk_clock_ns() + timeout_ms * 1000000ull;
    int whose = STOKER_ERROR_AGAIN;
    char folder[STK_TURN_PATH_BYTES];

    *turn = (struct stk_turn){.lock = -1, .wait = -1};
    if (!make_folder(folder, sizeof folder) ||
        (size_t)snprintf(turn->path, sizeof turn->path, "%.400s/%.80s.result", folder, key) >=
            sizeof turn->path) {
        return STK_TURN_NONE;
    }
    do {
        let_go(&turn->wait);
        let_go(&turn->lock);
        whose = try_to_begin(turn, end_ns);
    } while (whose == STOKER_ERROR_AGAIN && stk_clock_ns() < end_ns);
    if (whose == STK_TURN_NONE || whose == STOKER_ERROR_AGAIN) {
        let_go(&turn->wait);
        let_go(&turn->lock);
        return STK_TURN_NONE;
    }
    return (enum stk_turn_whose)whose;
}

bool stk_turn_is_awaited(const struct stk_turn *turn)
{
    int fd = turn->is_mine ? open_beside(turn, "wait", O_RDWR) : -1;
    bool awaited = fd >= 0 && !try_lock(fd, LOCK_EX);

    if (fd >= 0) {
        let_go(&fd);
    }
    return awaited;
}

int stk_turn_publish(const struct stk_turn *turn, struct stk_view result)
{
    char part[STK_TURN_PATH_BYTES + 8];
    int fd = open_beside(turn, "part", O_WRONLY | O_CREAT | O_TRUNC), status = fd < 0 ? -errno : 0;
    size_t done = 0;

    while (status == 0 && done < result.bytes) {
        ssize_t count = write(fd, result.data + done, result.bytes - done);

        done += count > 0 ? (size_t)count : 0;
        status = count < 0 && errno != EINTR ? -errno : 0;
    }
    snprintf(part, sizeof part, "%.*spart", (int)(strlen(turn->path) - strlen("result")),
             turn->path);
    if (fd >= 0) {
        close(fd);
    }
    if (status == 0 && rename(part, turn->path) < 0) {
        status = -errno;
    }
    if (status < 0) {
        (void)unlink(part);
    }
    return status;
}

/* Nobody else uses this key now: its files go. Who opened them before sees that they have no name
 * any more, and begins anew. */
static void remove_files(struct stk_turn *turn)
{
    char path[STK_TURN_PATH_BYTES + 8];

    if (turn->lock < 0 || stk_turn_is_awaited(turn) || !try_lock(turn->lock, LOCK_EX) ||
        !is_there(turn, "lock", turn->lock)) {
        return;
    }
    (void)unlink(turn->path);
    name_beside(turn, "wait", path);
    (void)unlink(path);
    name_beside(turn, "lock", path);
    (void)unlink(path);
}

void stk_turn_end(struct stk_turn *turn)
{
    bool last = turn->is_mine;

    /* The last one of those who waited. */
    if (!turn->is_mine && turn->wait >= 0 && turn->lock >= 0 && try_lock(turn->wait, LOCK_EX)) {
        (void)unlink(turn->path);
        last = true;
    }
    let_go(&turn->wait);
    if (last) {
        turn->is_mine = true;
        remove_files(turn);
    }
    let_go(&turn->lock);
    turn->is_mine = false;
}
