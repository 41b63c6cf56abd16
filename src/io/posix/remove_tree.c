/* Removes trees by directory descriptors: each folder is opened by its name in its parent's
 * descriptor, and never through a symbolic link. So a folder that another process replaces by a
 * link while this runs leads nowhere: the link is removed instead. */
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/listing.h"
#include "io/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 200u
#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)

struct removal {
    const struct stk_tree_removal *how;
    struct stoker_error *error;
    const char *root;
    size_t name_bytes;
    char name[PATH_MAX]; /* below the root, of the current entry */
};

static int remove_entries(struct removal *removal, int fd, uint32_t depth, bool *remains_out);

static int fail(struct removal *removal, int status)
{
    static const struct {
        int number;
        const char *advice;
    } table[] = {
        {EACCES, "get permission to write to its folder"},
        {EPERM, "the folder is sticky, or the entry is immutable: ask its owner to remove it"},
        {EROFS, "the file system is mounted read-only"},
        {EBUSY, "the system uses it (a mount point?): unmount it first"},
        {EMFILE, "raise the limit of open files (ulimit -n): each level of folders needs one"},
        {ENOTEMPTY, "another process adds files to it: stop that process and try again"},
    };
    const char *advice = "see errno(3) for the reason; check the file system";
    const char *slash = removal->name_bytes > 0 ? "/" : "";

    for (size_t i = 0; i < STK_COUNT(table); i++) {
        advice = table[i].number == -status ? table[i].advice : advice;
    }
    return stk_fail_errno(removal->error, -status, "cannot remove", advice, "'%.300s%s%.300s'",
                          removal->root, slash, removal->name);
}

/* One entry cannot be removed: the others can. */
static int fail_entry(struct removal *removal, int status, bool *remains_out)
{
    struct stoker_error failure = {0}, *error = removal->error;

    *remains_out = true;
    if (!removal->how->failed) {
        return fail(removal, status);
    }
    removal->error = &failure;
    status = fail(removal, status);
    removal->error = error;
    status = removal->how->failed(removal->how->context, removal->name, status, &failure);
    if (status < 0 && error) {
        *error = failure;
    }
    return status;
}

/* Removes a file, link or special file, or a folder with its entries. type: of readdir.
 * *remains_out becomes true if something stays. */
static int remove_entry(struct removal *removal, int parent, const char *name, unsigned char type,
                        uint32_t depth, bool *remains_out)
{
    bool folder = type == DT_DIR || type == DT_UNKNOWN, remains = false;
    int fd = folder ? openat(parent, name, FOLDER_FLAGS) : -1, status;

    if (fd < 0 && folder && errno != ENOTDIR && errno != ELOOP && errno != ENXIO) {
        return errno == ENOENT ? 0 : fail_entry(removal, -errno, remains_out);
    }
    if (fd >= 0) {
        status = depth >= DEPTH_MAX ? stk_fail(removal->error, STOKER_ERROR_LIMIT,
                                               "folders are nested too deep", "at most 200 levels",
                                               "'%.300s/%.300s'", removal->root, removal->name)
                                    : remove_entries(removal, fd, depth + 1, &remains);
        close(fd);
        *remains_out = *remains_out || remains;
        if (status < 0 || remains) {
            return status;
        }
        status = unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : 0;
        return status < 0 && status != -ENOENT ? fail_entry(removal, status, remains_out) : 0;
    }
    status = removal->how->visit ? removal->how->visit(removal->how->context, removal->name) : 1;
    if (status <= 0) {
        *remains_out = true;
        return status;
    }
    status = unlinkat(parent, name, 0) < 0 ? -errno : 0;
    if (status < 0 && status != -ENOENT) {
        return fail_entry(removal, status, remains_out);
    }
    if (removal->how->removed) {
        removal->how->removed(removal->how->context);
    }
    return 0;
}

/* All names first: to remove entries while a folder is read may hide others. */
static int list_entries(struct removal *removal, int fd, struct stk_listing *listing)
{
    struct stk_listing_builder builder = {0};
    int copied = fcntl(fd, F_DUPFD_CLOEXEC, 0), status = 0;
    DIR *directory = copied < 0 ? NULL : fdopendir(copied);
    struct dirent *raw;

    if (!directory) {
        status = fail(removal, -errno);
        if (copied >= 0) {
            close(copied);
        }
        return status;
    }
    errno = 0;
    while (status == 0 && (raw = readdir(directory))) {
        struct stk_entry entry = {.name = raw->d_name, .kind = raw->d_type};

        if (strcmp(raw->d_name, ".") != 0 && strcmp(raw->d_name, "..") != 0) {
            status = stk_listing_add(&builder, &entry);
        }
        errno = 0;
    }
    if (status == 0 && errno != 0) {
        status = -errno;
    }
    closedir(directory);
    status = status < 0 ? status : stk_listing_build(&builder, listing);
    stk_listing_builder_deinit(&builder);
    return status < 0 ? fail(removal, status) : 0;
}

static int remove_entries(struct removal *removal, int fd, uint32_t depth, bool *remains_out)
{
    struct stk_listing listing = {0};
    size_t before = removal->name_bytes;
    int status = list_entries(removal, fd, &listing);

    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const char *name = listing.entries[i].name;
        size_t bytes = strlen(name), slash = before > 0;

        if (before + slash + bytes >= sizeof removal->name) {
            status = fail(removal, -ENAMETOOLONG);
            break;
        }
        removal->name[before] = '/';
        memcpy(removal->name + before + slash, name, bytes + 1);
        removal->name_bytes = before + slash + bytes;
        status = remove_entry(removal, fd, name, (unsigned char)listing.entries[i].kind, depth,
                              remains_out);
        removal->name_bytes = before;
        removal->name[before] = '\0';
    }
    stk_listing_free(&listing);
    return status;
}

/* Opens the folder that has the last component of a path. Returns a descriptor or -errno. name:
 * where this component begins; its slashes at the end are cut off. */
static int open_parent(char *path, char **name)
{
    size_t bytes = strlen(path);
    char *slash;
    int fd;

    while (bytes > 1 && path[bytes - 1] == '/') {
        path[--bytes] = '\0';
    }
    slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash) {
        fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    } else if (slash == path) {
        fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    } else {
        *slash = '\0';
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        *slash = '/';
    }
    return fd < 0 ? -errno : fd;
}

static int check_name(const char *path, const char *name, bool slash, bool link,
                      struct stoker_error *error)
{
    if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "this folder is not removed",
                        "name a folder by its own name, not as '/', '.' or '..'", "'%.400s'", path);
    }
    if (slash && link) {
        return stk_fail_errno(error, ENOTDIR, "this is a symbolic link, not a folder",
                              "remove the link by its name without the final '/'; to remove what "
                              "it leads to, name that",
                              "'%.400s'", path);
    }
    return 0;
}

int stk_posix_remove_tree(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                          struct stoker_error *error)
{
    struct removal removal = {.how = how, .error = error, .root = path};
    char copied[PATH_MAX], *name;
    struct stat stat = {0};
    size_t bytes = strlen(path);
    bool remains = false;
    int parent, status;

    (void)io;
    if (bytes == 0 || bytes >= sizeof copied) {
        return fail(&removal, bytes ? -ENAMETOOLONG : -ENOENT);
    }
    memcpy(copied, path, bytes + 1);
    parent = open_parent(copied, &name);
    if (parent < 0) {
        return fail(&removal, parent);
    }
    status = check_name(path, name, false, false, error);
    if (status == 0 && fstatat(parent, name, &stat, AT_SYMLINK_NOFOLLOW) < 0) {
        status = stk_fail_errno(error, errno, "cannot remove", "check the path", "'%.400s'", path);
    }
    status = status < 0
                 ? status
                 : check_name(path, name, path[bytes - 1] == '/', S_ISLNK(stat.st_mode), error);
    if (status == 0 && S_ISDIR(stat.st_mode) && !how->folders) {
        status = stk_fail(error, -EISDIR, "this is a folder", "remove it with --recursive",
                          "'%.400s'", path);
    }
    if (status == 0) {
        status = remove_entry(&removal, parent, name, S_ISDIR(stat.st_mode) ? DT_DIR : DT_REG, 0,
                              &remains);
    }
    close(parent);
    return status;
}

int stk_posix_remove_below(struct stk_io *io, const char *root, const char *name,
                           struct stoker_error *error)
{
    struct removal removal = {.error = error, .root = root};
    int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), status = fd < 0 ? -errno : 0;
    const char *at = name;

    (void)io;
    snprintf(removal.name, sizeof removal.name, "%s", name);
    removal.name_bytes = strlen(removal.name);
    while (status == 0) {
        size_t bytes = strcspn(at, "/");
        char part[NAME_MAX + 1];
        int next;

        if (bytes == 0 || bytes > NAME_MAX) {
            status = -ENAMETOOLONG;
            break;
        }
        memcpy(part, at, bytes);
        part[bytes] = '\0';
        if (!at[bytes]) {
            status = unlinkat(fd, part, 0) < 0 ? -errno : 0;
            break;
        }
        next = openat(fd, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        status = next < 0 ? -errno : 0;
        close(fd);
        fd = next;
        at += bytes + 1;
    }
    if (fd >= 0) {
        close(fd);
    }
    return status < 0 && status != -ENOENT ? fail(&removal, status) : 0;
}
