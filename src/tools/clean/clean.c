/* A file is removed while this process holds its lock, so that no other process can take the lock
 * of a file without a name: a process that takes a lock checks that its file still has the name. */
#include "base/mem.h"
#include "base/options.h"
#include "io/clock.h"
#include "io/io.h"
#include "io/ipc/file_users.h"
#include "io/user_paths.h"
#include "tools/clean/leftover_name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Without locks of the file system, a lock file of this age counts as left. */
#define LOCKLESS_AGE_S 86400u
#define PATH_BYTES 4096u

struct clean {
    struct stoker_clean_options options;
    struct stk_file_users users;
    int status; /* of the first failure */
    struct stoker_error *error;
};

static bool is_cache_name(const char *name)
{
    return stk_leftover_kind(STK_CLEAN_CACHE, name, 0) != 0 ||
           stk_leftover_kind(STK_CLEAN_DATA, name, 0) != 0 ||
           stk_leftover_kind(STK_CLEAN_FLIGHT, name, 0) != 0 ||
           stk_leftover_kind(STK_CLEAN_NODE, name, (unsigned)geteuid()) != 0;
}

static uint64_t unused_seconds(const struct stat *about)
{
    uint64_t now = stk_clock_wall_ns() / 1000000000u;
    int64_t used = about->st_atim.tv_sec > about->st_mtim.tv_sec ? about->st_atim.tv_sec
                                                                 : about->st_mtim.tv_sec;

    return used > 0 && (uint64_t)used < now ? now - (uint64_t)used : 0;
}

/* Takes the lock of an open file. Returns 0, -EBUSY, or another -errno if it has no locks. */
static int take_lock(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int result;

    if (fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK) {
        return -EBUSY;
    }
    do {
        result = flock(fd, LOCK_EX | LOCK_NB);
    } while (result < 0 && errno == EINTR);
    return result == 0 ? 0 : errno == EWOULDBLOCK ? -EBUSY : -errno;
}

static bool has_name(int folder, const char *name, int fd)
{
    struct stat named, open;

    return fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 && fstat(fd, &open) == 0 &&
           named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

/* Files of a single flight are in use while its KEY.lock or KEY.wait is locked. */
static bool is_flight_busy(int folder, const char *name)
{
    static const char *const endings[] = {"lock", "wait"};
    const char *dot = strrchr(name, '.');
    bool busy = false;

    for (size_t i = 0; dot && i < STK_COUNT(endings) && !busy; i++) {
        char other[NAME_MAX + 8];
        int fd;

        snprintf(other, sizeof other, "%.*s.%s", (int)(dot - name), name, endings[i]);
        fd = openat(folder, other, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0) {
            busy = take_lock(fd) == -EBUSY;
            close(fd);
        }
    }
    return busy;
}

static void fail(struct clean *clean, int status, const char *what, const char *path)
{
    if (clean->status == 0) {
        clean->status = stk_fail_errno(clean->error, -status, what,
                                       status == -ENOTDIR || status == -ENOENT
                                           ? "name a folder that exists"
                                           : "check the permissions of the folder",
                                       "'%.600s'", path);
    }
}

/* fd: the open file, or -1. Sets in_use, removed and status. */
static void examine(struct clean *clean, enum stk_clean_place place, int folder, const char *name,
                    struct stoker_leftover *leftover, uint64_t inode)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    int locked = fd < 0 ? -errno : take_lock(fd);
    bool is_old = leftover->unused_s >= LOCKLESS_AGE_S;

    leftover->in_use = locked == -EBUSY || (locked < 0 && !is_old) ||
                       stk_file_users_has(&clean->users, inode) ||
                       (fd >= 0 && !has_name(folder, name, fd)) ||
                       (place == STK_CLEAN_FLIGHT && locked == 0 &&
                        (flock(fd, LOCK_UN), is_flight_busy(folder, name)));
    if (clean->options.remove && !leftover->in_use) {
        leftover->status = unlinkat(folder, name, 0) < 0 ? -errno : 0;
        leftover->removed = leftover->status == 0;
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void handle(struct clean *clean, enum stk_clean_place place, const char *folder, int fd,
                   const char *name, uint32_t kind)
{
    char path[2 * PATH_BYTES];
    struct stoker_leftover leftover = {.struct_size = sizeof leftover, .path = path, .kind = kind};
    struct stat about;

    if (fstatat(fd, name, &about, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(about.st_mode)) {
        return;
    }
    snprintf(path, sizeof path, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/",
             name);
    leftover.bytes = (uint64_t)about.st_size;
    leftover.unused_s = unused_seconds(&about);
    leftover.foreign = about.st_uid != geteuid();
    if (leftover.unused_s < clean->options.unused_s) {
        return;
    }
    if (!leftover.foreign) {
        examine(clean, place, fd, name, &leftover, about.st_ino);
    }
    if (leftover.status == -ENOENT || (place == STK_CLEAN_NODE && leftover.in_use)) {
        return; /* its process removed it; or it is no leftover, since processes share it now */
    }
    if (leftover.status < 0) {
        fail(clean, leftover.status, "cannot remove a file", path);
    }
    if (clean->options.found) {
        clean->options.found(clean->options.context, &leftover);
    }
}

static void clean_folder(struct clean *clean, enum stk_clean_place place, const char *folder)
{
    unsigned user = (unsigned)geteuid();
    DIR *listing = opendir(folder);
    struct dirent *entry;

    if (!listing) {
        if (place == STK_CLEAN_DATA) {
            fail(clean, -errno, "cannot list a folder", folder);
        }
        return;
    }
    while ((entry = readdir(listing))) {
        uint32_t kind = stk_leftover_kind(place, entry->d_name, user);

        if (kind != 0) {
            handle(clean, place, folder, dirfd(listing), entry->d_name, kind);
        }
    }
    closedir(listing);
}

static void clean_node(struct clean *clean)
{
    const char *node = getenv("STOKER_NODE_DIR");
    char folder[PATH_BYTES];
    struct stat about;

    node = node && node[0] == '/' ? node : "/dev/shm";
    clean_folder(clean, STK_CLEAN_NODE, node);
    if ((size_t)snprintf(folder, sizeof folder, "%s/stoker-turns-%u", node, (unsigned)geteuid()) <
            sizeof folder &&
        lstat(folder, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid()) {
        clean_folder(clean, STK_CLEAN_FLIGHT, folder);
    }
}

int stoker_clean(const struct stoker_clean_options *options, struct stoker_error *error)
{
    struct clean clean = {.error = error};
    char cache[PATH_BYTES];
    bool has_cache = stk_user_cache_dir(cache, sizeof cache);
    int status = stk_options_read(&clean.options, sizeof clean.options,
                                  offsetof(struct stoker_clean_options, unused_s), options,
                                  "clean options", error);

    for (size_t i = 0; status == 0 && i < clean.options.folder_count; i++) {
        const char *folder = clean.options.folders ? clean.options.folders[i] : NULL;

        if (!folder || !folder[0] || stk_io_is_url(folder)) {
            status = stk_fail(error, STOKER_ERROR_ARGUMENT, "a folder is not local",
                              "stoker leaves no files in stores; pass a path", "'%.600s'",
                              folder ? folder : "");
        } else if (strlen(folder) >= PATH_BYTES) {
            status = stk_fail(error, STOKER_ERROR_ARGUMENT, "a path is too long", "shorten it",
                              "'%.600s'", folder);
        }
    }
    status = status < 0 ? status : stk_file_users_list(&clean.users, is_cache_name);
    if (status < 0) {
        return status == -ENOMEM ? stk_fail_memory(error, "clean") : status;
    }
    for (size_t i = 0; i < clean.options.folder_count; i++) {
        char real[PATH_BYTES];

        if (!has_cache || !realpath(clean.options.folders[i], real) || strcmp(real, cache) != 0) {
            clean_folder(&clean, STK_CLEAN_DATA, clean.options.folders[i]);
        }
    }
    if (has_cache) {
        clean_folder(&clean, STK_CLEAN_CACHE, cache);
    }
    clean_node(&clean);
    stk_file_users_deinit(&clean.users);
    return clean.status;
}
