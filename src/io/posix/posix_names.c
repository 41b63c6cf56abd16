/* Names in folders: created, renamed, linked and removed; and names beneath a folder, which no
 * symbolic link leads out of.
 *
 *   path --below the folder of stk_io_open_beneath?--no--> used as it is
 *                                                  `-yes-> openat2(RESOLVE_BENEATH) of its parent
 *                                                          --> a call on parent and last component
 *
 * So a folder that another process replaces by a link, between two calls or during one, is never
 * written through. */
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/descriptor_budget.h"
#include "io/write.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILE_FLAGS (O_PATH | O_CLOEXEC)
#define FOLDER_FLAGS (FILE_FLAGS | O_DIRECTORY)
/* openat2 returns EAGAIN if a name was renamed while it looked. */
#define BENEATH_TRIES 1000u

struct beneath {
    struct stk_io io; /* first */
    struct stk_io_table table;
    struct stk_io *backend; /* borrowed; may be another of these */
    int fd;                 /* of the folder */
    size_t bytes;           /* of path, without '/' at its end */
    char path[];            /* as callers write it */
};

static void close_beneath(struct stk_io *io);

static int fail_place(struct stoker_error *error, int number, const char *what, const char *place);
static int rename_fresh(const struct stk_posix_place *from, const struct stk_posix_place *to);
static int rename_checked(const struct stk_posix_place *from, const struct stk_posix_place *to);

/* ---- places ---- */

static bool is_beneath(const struct stk_io *io)
{
    return io->table->close == close_beneath;
}

/* For kernels and sandboxes without openat2: no component may be a link. flags: of the last one. */
static int open_by_components(int root, const char *name, int flags)
{
    int fd = root, next;

    while (*name) {
        size_t bytes = strcspn(name, "/");
        char part[NAME_MAX + 1];

        if (bytes > NAME_MAX) {
            next = -ENAMETOOLONG;
        } else {
            struct stat found;

            memcpy(part, name, bytes);
            part[bytes] = '\0';
            next = strcmp(part, "..") == 0
                       ? -EXDEV
                       : stk_posix_open_at(fd, bytes ? part : ".",
                                           (name[bytes] ? FOLDER_FLAGS : flags) | O_NOFOLLOW, 0);
            if (next == -ENOTDIR && fstatat(fd, part, &found, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISLNK(found.st_mode)) {
                next = -EXDEV;
            } else if (next >= 0 && fstat(next, &found) == 0 && S_ISLNK(found.st_mode)) {
                close(next);
                next = -EXDEV;
            }
        }
        if (fd != root) {
            close(fd);
        }
        if (next < 0) {
            return next;
        }
        fd = next;
        name += bytes + (name[bytes] == '/');
    }
    return fd;
}

static int open_beneath(int root, const char *name, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (uint64_t)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve};
    uint32_t tries = 0, retries = 0;
    int fd;

    do {
        fd = (int)syscall(SYS_openat2, root, name, &how, sizeof how);
    } while (fd < 0 && (errno == EINTR || (errno == EAGAIN && ++tries < BENEATH_TRIES) ||
                        stk_descriptors_retry(errno, &retries)));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) { /* an old kernel, or its seccomp filter */
        return open_by_components(root, name, flags);
    }
    return fd < 0 ? -errno : fd;
}

/* The name has an absolute link, or one that leads out: if its target is beneath the folder, opens
 * it by a path that has no links. */
static int open_real(int folder, const char *name, int flags)
{
    char path[PATH_MAX + 64], root[PATH_MAX], real[PATH_MAX];
    ssize_t bytes;

    snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
    bytes = readlink(path, root, sizeof root);
    bytes -= bytes == 1; /* "/" */
    if (bytes < 0 || bytes >= (ssize_t)sizeof root ||
        snprintf(path, sizeof path, "/proc/self/fd/%d/%s", folder, name) >= (int)sizeof path ||
        !realpath(path, real) || strncmp(real, root, (size_t)bytes) != 0 ||
        (real[bytes] != '/' && real[bytes] != '\0')) {
        return -ELOOP;
    }
    name = real + bytes + strspn(real + bytes, "/");
    return name[0] ? open_beneath(folder, name, flags, RESOLVE_NO_SYMLINKS)
                   : stk_posix_open_at(folder, ".", flags, 0);
}

static bool is_in(const struct beneath *beneath, const char *path)
{
    return strncmp(path, beneath->path, beneath->bytes) == 0 &&
           (path[beneath->bytes] == '/' || path[beneath->bytes] == '\0');
}

int stk_posix_place_open(struct stk_io *io, const char *path, struct stk_posix_place *place)
{
    const struct beneath *beneath = (const struct beneath *)(const void *)io;
    const char *name, *last;
    char folder[PATH_MAX];

    *place = (struct stk_posix_place){.folder = AT_FDCWD, .name = path};
    while (is_beneath(&beneath->io) && !is_in(beneath, path)) {
        beneath = (const struct beneath *)(const void *)beneath->backend;
    }
    if (!is_beneath(&beneath->io)) {
        return 0;
    }
    name = path + beneath->bytes + strspn(path + beneath->bytes, "/");
    last = name + strlen(name);
    while (last > name && last[-1] == '/') {
        last--;
    }
    while (last > name && last[-1] != '/') {
        last--;
    }
    place->folder = beneath->fd;
    place->name = last[0] ? last : ".";
    if (last == name) {
        return strcmp(place->name, "..") == 0 ? -ELOOP : 0;
    }
    if ((size_t)(last - name) >= sizeof folder) {
        return -ENAMETOOLONG;
    }
    memcpy(folder, name, (size_t)(last - name));
    folder[last - name - 1] = '\0';
    place->folder =
        strcmp(last, "..") == 0 ? -EXDEV : open_beneath(beneath->fd, folder, FOLDER_FLAGS, 0);
    if (place->folder == -EXDEV) {
        place->folder = open_real(beneath->fd, folder, FOLDER_FLAGS);
    }
    if (place->folder < 0) {
        int status = place->folder;

        place->folder = AT_FDCWD;
        return status;
    }
    place->owned = true;
    return 0;
}

void stk_posix_place_close(struct stk_posix_place *place)
{
    if (place->owned) {
        close(place->folder);
        place->owned = false;
    }
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stk_posix_place place;
    struct stat stat;
    int status = stk_posix_place_open(io, path, &place);

    if (status == 0 && fstatat(place.folder, place.name, &stat, 0) < 0) {
        status = -errno;
    }
    stk_posix_place_close(&place);
    if (status < 0) {
        return stk_posix_fail_path(error, -status, "cannot find the path", path);
    }
    stk_posix_stat_convert(&stat, stat_out);
    return 0;
}

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    return stk_io_open_file(((struct beneath *)(void *)io)->backend, path, file_out, error);
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    return stk_io_list(((struct beneath *)(void *)io)->backend, path, listing_out, error);
}

static uint64_t clock_ns(struct stk_io *io)
{
    (void)io;
    return stk_clock_ns();
}

static void close_beneath(struct stk_io *io)
{
    struct beneath *beneath = (struct beneath *)(void *)io;

    close(beneath->fd);
    stk_free(beneath);
}

int stk_posix_open_beneath(struct stk_io *io, const char *folder, struct stk_io **io_out,
                           struct stoker_error *error)
{
    size_t bytes = strlen(folder);
    struct beneath *beneath = stk_alloc(1, sizeof *beneath + bytes + 1);
    int status = beneath ? 0 : -ENOMEM;

    if (beneath) {
        memcpy(beneath->path, folder, bytes + 1);
        while (bytes > 0 && beneath->path[bytes - 1] == '/') {
            bytes--;
        }
        beneath->bytes = bytes;
        beneath->table = (struct stk_io_table){.open_file = open_file,
                                               .stat_path = stat_path,
                                               .list = list,
                                               .clock_ns = clock_ns,
                                               .close = close_beneath,
                                               .write = io->table->write};
        beneath->io.table = &beneath->table;
        beneath->backend = io;
        beneath->fd = stk_posix_open(folder, FOLDER_FLAGS, 0);
        status = beneath->fd < 0 ? beneath->fd : 0;
    }
    if (status < 0) {
        stk_free(beneath);
        return stk_posix_fail_path(error, -status, "cannot open the folder", folder);
    }
    *io_out = &beneath->io;
    return 0;
}

static bool is_same_file(const struct stat *found, const struct stk_stat *opened)
{
    struct stk_stat now;

    stk_posix_stat_convert(found, &now);
    /* Some network file systems choose inode numbers anew; no program can set a ctime. */
    return (now.inode == opened->inode && now.device == opened->device) ||
           (now.bytes == opened->bytes && now.mtime_ns == opened->mtime_ns &&
            now.ctime_ns == opened->ctime_ns);
}

int stk_posix_check_beneath(struct stk_io *io, const struct stk_beneath_check *check,
                            struct stoker_error *error)
{
    const char *name = check->path + strlen(check->folder);
    int folder = stk_posix_open(check->folder, FOLDER_FLAGS, 0), fd = folder, status;
    struct stat found;
    bool same;

    (void)io;
    name += strspn(name, "/");
    status = folder < 0 ? folder : stk_posix_fstat(folder, &found);
    same = status == 0 && found.st_ino == check->inode && found.st_dev == check->device;
    if (same) {
        fd = open_beneath(folder, name, FILE_FLAGS, 0);
        if (fd == -EXDEV) {
            fd = open_real(folder, name, FILE_FLAGS);
        }
        status = fd < 0 ? fd : stk_posix_fstat(fd, &found);
        same = status < 0 || is_same_file(&found, &check->opened);
    }
    if (fd >= 0 && fd != folder) {
        close(fd);
    }
    if (folder >= 0) {
        close(folder);
    }
    if (status == -ELOOP) {
        return stk_fail_errno(error, ELOOP, "a symbolic link leads out of the folder",
                              "name the file itself, or look who puts links there", "'%.400s'",
                              check->path);
    }
    if (status < 0) {
        return stk_posix_fail_path(error, -status, "cannot find the path", check->path);
    }
    return same ? 0
                : stk_fail(error, STOKER_ERROR_CHANGED, "another file was put in its place",
                           "start again when no process changes the folder", "'%.400s'",
                           check->path);
}

/* ---- names ---- */

int stk_posix_resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes)
{
    char found[PATH_MAX];

    (void)io;
    if (!realpath(path, found)) {
        return -errno;
    }
    if (strlen(found) >= real_bytes) {
        return -ENAMETOOLONG;
    }
    memcpy(real, found, strlen(found) + 1);
    return 0;
}

bool stk_posix_is_link(struct stk_io *io, const char *path)
{
    struct stk_posix_place place;
    struct stat stat;
    bool link = stk_posix_place_open(io, path, &place) == 0 &&
                fstatat(place.folder, place.name, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISLNK(stat.st_mode);

    stk_posix_place_close(&place);
    return link;
}

/* Returns true if the path, or the target of the link there, is a device, pipe or socket. */
static bool is_special(const struct stk_posix_place *place)
{
    struct stat info;

    return fstatat(place->folder, place->name, &info, 0) == 0 && !S_ISREG(info.st_mode) &&
           !S_ISDIR(info.st_mode);
}

/* Opens the places of two paths, once if they are in one folder. Both are closed either way, the
 * second one first. */
static int open_two(struct stk_io *io, const char *from, const char *to,
                    struct stk_posix_place places[2])
{
    int status = stk_posix_place_open(io, from, &places[0]);
    const char *slash = strrchr(to, '/');
    size_t bytes = slash ? (size_t)(slash - to) + 1 : 0;
    int second;

    if (status == 0 && places[0].owned && slash && slash[1] && strcmp(slash, "/..") != 0 &&
        places[0].name == from + bytes && memcmp(from, to, bytes) == 0) {
        places[1] = (struct stk_posix_place){.folder = places[0].folder, .name = slash + 1};
        return 0;
    }
    second = stk_posix_place_open(io, to, &places[1]);
    return status < 0 ? status : second;
}

int stk_posix_rename(struct stk_io *io, const char *from, const char *to, bool fresh,
                     struct stoker_error *error)
{
    struct stk_posix_place places[2];
    char place[sizeof error->where];
    int status = open_two(io, from, to, places);

    if (status == 0 && fresh) {
        status = rename_fresh(&places[0], &places[1]);
    } else if (status == 0 && is_special(&places[1])) {
        status = -ENXIO; /* root could replace /dev/null by a file */
    } else if (status == 0 &&
               renameat(places[0].folder, places[0].name, places[1].folder, places[1].name) < 0) {
        status = -errno;
    }
    stk_posix_place_close(&places[1]);
    stk_posix_place_close(&places[0]);
    if (status < 0) {
        snprintf(place, sizeof place, "'%s' to '%s'", from, to);
        return fail_place(error, -status, "cannot rename", place);
    }
    return 0;
}

int stk_posix_link(struct stk_io *io, const char *from, const char *to, struct stoker_error *error)
{
    struct stk_posix_place places[2];
    char place[sizeof error->where];
    int status = open_two(io, from, to, places);

    if (status == 0 &&
        linkat(places[0].folder, places[0].name, places[1].folder, places[1].name, 0) < 0) {
        status = -errno;
    }
    stk_posix_place_close(&places[1]);
    stk_posix_place_close(&places[0]);
    if (status == 0) {
        return 0;
    }
    snprintf(place, sizeof place, "'%s' to '%s'", from, to);
    return fail_place(error, -status, "cannot give a second name", place);
}

/* Returns true if a folder exists. Beneath a folder: also if a link there leads to another one
 * beneath it. */
static bool is_folder(struct stk_io *io, const char *path, const struct stk_posix_place *place)
{
    struct stk_posix_place below;
    struct stat found;
    char *name;
    bool folder;

    if (fstatat(place->folder, place->name, &found, AT_SYMLINK_NOFOLLOW) < 0) {
        return false;
    }
    if (!S_ISLNK(found.st_mode) || !is_beneath(io)) {
        return fstatat(place->folder, place->name, &found, 0) == 0 && S_ISDIR(found.st_mode);
    }
    name = stk_alloc(strlen(path) + 3, 1);
    if (!name) {
        return false;
    }
    snprintf(name, strlen(path) + 3, "%s/.", path);
    folder = stk_posix_place_open(io, name, &below) == 0;
    stk_posix_place_close(&below);
    stk_free(name);
    return folder;
}

int stk_posix_make_directory(struct stk_io *io, const char *path, bool fresh,
                             struct stoker_error *error)
{
    struct stk_posix_place place;
    int status = stk_posix_place_open(io, path, &place);

    if (status == 0 && mkdirat(place.folder, place.name, 0777) < 0) {
        status = -errno;
    }
    if (status == -EEXIST && !fresh && is_folder(io, path, &place)) {
        status = 0;
    } else if (status == -EEXIST && !fresh && is_beneath(io) && stk_posix_is_link(io, path)) {
        status = -ELOOP;
    }
    stk_posix_place_close(&place);
    return status < 0 ? stk_posix_fail_path(error, -status, "cannot make the folder", path) : 0;
}

int stk_posix_remove(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_posix_place place;
    int status = stk_posix_place_open(io, path, &place);

    if (status == 0 && unlinkat(place.folder, place.name, 0) < 0) {
        status = -errno;
    }
    if (status == -EISDIR) { /* as Linux returns; POSIX requires EPERM */
        status = unlinkat(place.folder, place.name, AT_REMOVEDIR) < 0 ? -errno : 0;
    }
    stk_posix_place_close(&place);
    return status < 0 && status != -ENOENT
               ? stk_posix_fail_path(error, -status, "cannot remove", path)
               : 0;
}

int stk_posix_sync_directory(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_posix_place place;
    int opened = stk_posix_place_open(io, path, &place);
    int fd = opened < 0 ? opened
                        : stk_posix_open_at(place.folder, place.name,
                                            O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    int status = fd < 0 ? fd : stk_posix_sync_fd(fd, false);

    stk_posix_place_close(&place);
    if (fd >= 0) {
        close(fd);
        /* Some network file systems do not support it, since the server syncs folders itself. */
        status = status == -EINVAL || status == -EOPNOTSUPP ? 0 : status;
    }
    return status < 0
               ? stk_posix_fail_path(error, -status, "cannot bring the folder to the disk", path)
               : 0;
}

static int rename_fresh(const struct stk_posix_place *from, const struct stk_posix_place *to)
{
    if (renameat2(from->folder, from->name, to->folder, to->name, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    /* EINVAL: the file system does not support the flag. ENOSYS, EPERM: an old seccomp filter. */
    return errno == EINVAL || errno == ENOSYS || errno == EPERM ? rename_checked(from, to) : -errno;
}

/* Emulates RENAME_NOREPLACE. A file gets its new name by link, which never replaces; if the process
 * is killed then, both names are left. A folder that is created after the check is replaced only if
 * it is empty (rename(2)), so nothing is lost. */
static int rename_checked(const struct stk_posix_place *from, const struct stk_posix_place *to)
{
    struct stat source, target;

    if (fstatat(from->folder, from->name, &source, AT_SYMLINK_NOFOLLOW) < 0) {
        return -errno;
    }
    if (fstatat(to->folder, to->name, &target, AT_SYMLINK_NOFOLLOW) == 0) {
        return -EEXIST;
    }
    if (S_ISREG(source.st_mode)) {
        if (linkat(from->folder, from->name, to->folder, to->name, 0) == 0) {
            return unlinkat(from->folder, from->name, 0) < 0 ? -errno : 0;
        }
        if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EMLINK) {
            return -errno;
        }
    }
    if (renameat(from->folder, from->name, to->folder, to->name) == 0) {
        return 0;
    }
    return errno == ENOTEMPTY ? -EEXIST : -errno;
}

/* A signal may interrupt a sync on a network mount: try again. */
int stk_posix_sync_fd(int fd, bool data_only)
{
    int result;

    do {
        result = data_only ? fdatasync(fd) : fsync(fd);
    } while (result < 0 && errno == EINTR);
    return result < 0 ? -errno : 0;
}

int stk_posix_fail_path(struct stoker_error *error, int number, const char *what, const char *path)
{
    char place[sizeof error->where];

    snprintf(place, sizeof place, "'%s'", path);
    return fail_place(error, number, what, place);
}

static int fail_place(struct stoker_error *error, int number, const char *what, const char *place)
{
    static const struct {
        int number;
        const char *advice;
    } table[] = {
        {ENOSPC, "free space or choose another place"},
        {EDQUOT, "free space, ask for a larger quota or choose another place"},
        {EFBIG, "use smaller files: the file system or a limit (ulimit -f) allows no larger one"},
        {EROFS, "choose another place: this file system is read-only"},
        {EACCES, "let this user write there (chmod, or run as its owner)"},
        {EPERM, "let this user write there (chmod, or run as its owner)"},
        {EXDEV, "keep both names on one file system"},
        {EEXIST, "remove the existing file, or choose another name"},
        {ENOTEMPTY, "empty the folder first, or choose another name"},
        {ENOENT, "make its folder first; a relative path starts at the working directory"},
        {ENOTDIR, "check the path: a part of it is a file"},
        {EISDIR, "check the path: it is a folder, not a file"},
        {ELOOP, "name the file itself: the path has a symbolic link at its end, in a circle, or "
                "that leads "
                "out of the folder that is written"},
        {ENXIO, "choose another name: a pipe or device is there"},
        {EBUSY, "choose another name: the system uses this one (a mount point?)"},
        {EINVAL, "choose another name: a folder cannot go into itself, and what has no lines is no "
                 "file to add lines to"},
        {ETXTBSY, "choose another name: that file is a program that runs"},
        {ENAMETOOLONG, "shorten the path to less than 4096 bytes, each name to less than 256"},
        {EMFILE, "raise the limit of open files (ulimit -n)"},
        {ENFILE, "raise the limit of open files of the machine (sysctl fs.file-max)"},
        {ENOMEM, "give the process more memory"},
        {EIO, "check the disk and the kernel's log (dmesg): written data may be lost"},
        {ESTALE, "the file was replaced on the server: start again"},
    };
    const char *advice = "see errno(3) for the reason; check the file system";

    for (size_t i = 0; i < STK_COUNT(table); i++) {
        if (table[i].number == number) {
            advice = table[i].advice;
        }
    }
    return stk_fail_errno(error, number, what, advice, "%s", place);
}
