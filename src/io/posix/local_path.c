/* Opens paths on local mounts without a pool thread.
 *
 * A call on a dead network mount never returns, not even statfs. So the mount table is read as
 * text, each mount point is opened once on a pool thread, and a path below a local one is opened by
 * openat2 with RESOLVE_NO_XDEV: links and ".." that leave the mount fail with EXDEV. That takes one
 * call and no thread. A later mount fails with EXDEV as well, and is then opened on a pool thread.
 */
#include "io/posix/posix.h"

#include "base/mem.h"
#include "io/descriptor_budget.h"
#include "io/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define MOUNTS_MAX 4096u
#define TABLE_BYTES_MAX (4u << 20)
#define LIST_BUFFER_BYTES (32u << 10)
#define PROBE_TIMEOUT_MS 2000u
#define MOUNTINFO_PATH "/proc/self/mountinfo"
#define MOUNT_POINT_FIELD 4 /* proc(5), counted from 0 */

enum mount_state { MOUNT_UNKNOWN = 0, MOUNT_LOCAL, MOUNT_NETWORK };

struct mount {
    const char *path; /* a view of the table's text, without a final '/'; "" is the root */
    size_t path_bytes;
    int fd;            /* of a local mount, O_PATH */
    _Atomic int state; /* enum mount_state; release by the prober, acquire by users of fd */
};

struct stk_local_paths {
    struct stk_thread_pool *calls;
    char *text;
    struct mount *mounts;
    uint32_t count;
    _Atomic bool openat2_missing;
    pthread_mutex_t lock; /* for changes from MOUNT_UNKNOWN */
};

struct probe {
    struct stk_task task;
    int fd;
    bool local;
    char path[]; /* "/" for the root */
};

static int entry_stat(struct stk_local_paths *paths, int fd, const char *name, struct stat *stat);
static int read_table(char **text_out);
static int parse_table(struct stk_local_paths *paths);
static char *mount_point(char *line);
static struct mount *find_mount(struct stk_local_paths *paths, const char *path);
static bool is_local_mount(struct stk_local_paths *paths, struct mount *mount);
static void probe_run(struct stk_task *task);
static void probe_drop(struct stk_task *task);

int stk_local_paths_open(struct stk_local_paths **paths_out, struct stk_thread_pool *calls)
{
    struct stk_local_paths *paths = stk_alloc(1, sizeof *paths);
    int status = -ENOMEM;

    if (!paths) {
        goto done;
    }
    pthread_mutex_init(&paths->lock, NULL);
    paths->calls = calls;
    status = read_table(&paths->text);
    if (status == 0) {
        status = parse_table(paths);
    }
    if (status < 0) {
        goto done;
    }
    *paths_out = paths;
    paths = NULL;
done:
    stk_local_paths_close(paths);
    return status;
}

void stk_local_paths_close(struct stk_local_paths *paths)
{
    if (!paths) {
        return;
    }
    for (uint32_t i = 0; i < paths->count; i++) {
        if (paths->mounts[i].fd >= 0) {
            close(paths->mounts[i].fd);
        }
    }
    pthread_mutex_destroy(&paths->lock);
    stk_free(paths->mounts);
    stk_free(paths->text);
    stk_free(paths);
}

int stk_local_path_open(struct stk_local_paths *paths, const char *path, int flags)
{
    char absolute[2 * PATH_MAX];
    size_t used = 0, bytes = strlen(path);
    struct mount *mount;
    const char *rest;

    if (bytes == 0) {
        return -ENOENT;
    }
    if (bytes >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    if (path[0] != '/') {
        if (!getcwd(absolute, PATH_MAX)) {
            return -EXDEV;
        }
        used = strlen(absolute);
        absolute[used++] = '/';
    }
    memcpy(absolute + used, path, bytes + 1);
    mount = find_mount(paths, absolute);
    if (!mount || !is_local_mount(paths, mount)) {
        return -EXDEV;
    }
    rest = absolute + mount->path_bytes;
    rest += strspn(rest, "/");
    return stk_local_path_open_at(paths, mount->fd, rest[0] ? rest : ".", flags);
}

static int open_at(struct stk_local_paths *paths, int directory_fd, const char *name, int flags)
{
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .resolve = RESOLVE_NO_XDEV};
    int fd = -1;

    if (!atomic_load_explicit(&paths->openat2_missing, memory_order_relaxed)) {
        fd = (int)syscall(SYS_openat2, directory_fd, name, &how, sizeof how);
        if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) {
            return fd >= 0 ? fd : -errno;
        }
        /* Before Linux 5.6, or with an old seccomp filter: then a link to a dead mount may hang. */
        atomic_store_explicit(&paths->openat2_missing, errno == ENOSYS, memory_order_relaxed);
    }
    fd = openat(directory_fd, name, flags | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

int stk_local_path_open_at(struct stk_local_paths *paths, int directory_fd, const char *name,
                           int flags)
{
    uint32_t tries = 0;
    int fd;

    do {
        fd = open_at(paths, directory_fd, name, flags);
    } while (fd < 0 && stk_descriptors_retry(-fd, &tries));
    return fd;
}

/* Magic numbers of linux/magic.h and of the sources of the file systems. Overlay counts as local,
 * though its lower layer may be on a network. */
bool stk_local_path_is_local(int fd)
{
    static const uint32_t local_magics[] = {
        0xef53,     /* ext2, ext3, ext4 */
        0x58465342, /* xfs */
        0x9123683e, /* btrfs */
        0x01021994, /* tmpfs, devtmpfs */
        0x858458f6, /* ramfs */
        0x958458f6, /* hugetlbfs */
        0x794c7630, /* overlay */
        0xf2f52010, /* f2fs */
        0x2fc12fc1, /* zfs */
        0xca451a4e, /* bcachefs */
        0x73717368, /* squashfs */
        0xe0f5e1e2, /* erofs */
        0x4d44,     /* fat */
        0x2011bab0, /* exfat */
        0x7366746e, /* ntfs3 */
        0x9660,     /* iso9660 */
        0x15013346, /* udf */
        0x3153464a, /* jfs */
        0x52654973, /* reiserfs */
        0x3434,     /* nilfs */
        0x9fa0,     /* proc */
        0x62656572, /* sysfs */
    };
    struct statfs info;

    if (fstatfs(fd, &info) < 0) {
        return false;
    }
    for (size_t i = 0; i < STK_COUNT(local_magics); i++) {
        if ((uint32_t)info.f_type == local_magics[i]) {
            return true;
        }
    }
    return false;
}

static bool is_link(int directory_fd, const char *name)
{
    struct stat stat;

    return fstatat(directory_fd, name, &stat, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(stat.st_mode);
}

int stk_local_path_list(struct stk_local_paths *paths, int fd, struct stk_listing_builder *builder)
{
    union {
        char bytes[LIST_BUFFER_BYTES];
        struct dirent64 align;
    } buffer;
    ssize_t count;
    int status = 0;

    while (status == 0 && (count = getdents64(fd, &buffer, sizeof buffer)) != 0) {
        if (count < 0) {
            return -errno;
        }
        for (ssize_t at = 0; status == 0 && at < count;) {
            struct dirent64 *raw = (struct dirent64 *)(void *)(buffer.bytes + at);
            struct stk_entry entry = {.name = raw->d_name, .kind = STK_ENTRY_OTHER};
            struct stat stat;

            at += raw->d_reclen;
            if (strcmp(raw->d_name, ".") == 0 || strcmp(raw->d_name, "..") == 0) {
                continue;
            }
            entry.link =
                raw->d_type == DT_LNK || (raw->d_type == DT_UNKNOWN && is_link(fd, raw->d_name));
            if (raw->d_type == DT_REG) {
                entry.kind = STK_ENTRY_FILE;
            } else if (raw->d_type == DT_DIR || raw->d_type == DT_LNK ||
                       raw->d_type == DT_UNKNOWN) {
                status = entry_stat(paths, fd, raw->d_name, &stat);
                if (status == -EXDEV) {
                    return status;
                }
                entry.kind = status == 0 ? stk_posix_entry_kind(&stat) : STK_ENTRY_OTHER;
                entry.device = status == 0 ? stat.st_dev : 0;
                entry.inode = status == 0 ? stat.st_ino : 0;
            }
            status = stk_listing_add(builder, &entry);
        }
    }
    return status;
}

/* If the mount table cannot be read, only the root is known and all other mounts count as network
 * mounts. */
static int read_table(char **text_out)
{
    char *text = stk_alloc(1, TABLE_BYTES_MAX), *fitting;
    size_t used = 0;
    ssize_t count = 1;
    int fd;

    if (!text) {
        return -ENOMEM;
    }
    fd = open(MOUNTINFO_PATH, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && count > 0 && used < TABLE_BYTES_MAX - 1) {
        count = read(fd, text + used, TABLE_BYTES_MAX - 1 - used);
        used += count > 0 ? (size_t)count : 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    fitting = stk_realloc(text, TABLE_BYTES_MAX, used + 1, 1);
    *text_out = fitting ? fitting : text;
    return 0;
}

static int parse_table(struct stk_local_paths *paths)
{
    char *line = paths->text, *next;
    uint32_t lines = 1;

    for (const char *c = line; *c; c++) {
        lines += *c == '\n';
    }
    lines = (uint32_t)stk_min(lines, MOUNTS_MAX);
    paths->mounts = stk_alloc(lines + 1, sizeof *paths->mounts);
    if (!paths->mounts) {
        return -ENOMEM;
    }
    paths->mounts[0] = (struct mount){.path = "", .fd = -1};
    for (paths->count = 1; line && paths->count <= lines; line = next) {
        char *path;

        next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        path = mount_point(line);
        if (path && strcmp(path, "/") != 0) {
            paths->mounts[paths->count++] =
                (struct mount){.path = path, .path_bytes = strlen(path), .fd = -1};
        }
    }
    return 0;
}

/* The mount point of a line, with its escapes (\040) decoded in place; NULL if it has none. */
static char *mount_point(char *line)
{
    char *path = line, *from, *to;

    for (int field = 0; field < MOUNT_POINT_FIELD; field++) {
        path = strchr(path, ' ');
        if (!path) {
            return NULL;
        }
        path++;
    }
    for (from = to = path; *from && *from != ' '; to++) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] && from[3]) {
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
    return path[0] == '/' ? path : NULL;
}

/* The longest mount point that is a prefix of the path. */
static struct mount *find_mount(struct stk_local_paths *paths, const char *path)
{
    struct mount *best = NULL;

    for (uint32_t i = 0; i < paths->count; i++) {
        struct mount *mount = &paths->mounts[i];

        if (strncmp(path, mount->path, mount->path_bytes) == 0 &&
            (path[mount->path_bytes] == '/' || path[mount->path_bytes] == '\0') &&
            (!best || mount->path_bytes > best->path_bytes)) {
            best = mount;
        }
    }
    return best;
}

static bool is_local_mount(struct stk_local_paths *paths, struct mount *mount)
{
    int state = atomic_load_explicit(&mount->state, memory_order_acquire);
    struct probe *probe;

    if (state != MOUNT_UNKNOWN) {
        return state == MOUNT_LOCAL;
    }
    probe = stk_alloc(1, sizeof *probe + mount->path_bytes + 2);
    if (!probe) {
        return false;
    }
    memcpy(probe->path, mount->path_bytes ? mount->path : "/", stk_max(mount->path_bytes, 1));
    probe->task = (struct stk_task){.run = probe_run, .drop = probe_drop};
    probe->fd = -1;
    state = MOUNT_NETWORK;
    if (stk_thread_pool_call(paths->calls, &probe->task, PROBE_TIMEOUT_MS) == 0) {
        pthread_mutex_lock(&paths->lock);
        if (atomic_load_explicit(&mount->state, memory_order_relaxed) == MOUNT_UNKNOWN &&
            probe->local) {
            mount->fd = probe->fd;
            probe->fd = -1;
            atomic_store_explicit(&mount->state, MOUNT_LOCAL, memory_order_release);
        }
        pthread_mutex_unlock(&paths->lock);
        probe_drop(&probe->task);
    }
    /* Pairs with the acquire above; does nothing if the mount was found to be local. */
    state = MOUNT_UNKNOWN;
    atomic_compare_exchange_strong_explicit(&mount->state, &state, MOUNT_NETWORK,
                                            memory_order_release, memory_order_acquire);
    return state == MOUNT_LOCAL;
}

static void probe_run(struct stk_task *task)
{
    struct probe *probe = (struct probe *)(void *)task;

    probe->fd = open(probe->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    probe->local = probe->fd >= 0 && stk_local_path_is_local(probe->fd);
}

static void probe_drop(struct stk_task *task)
{
    struct probe *probe = (struct probe *)(void *)task;

    if (probe->fd >= 0) {
        close(probe->fd);
    }
    stk_free(probe);
}

static int entry_stat(struct stk_local_paths *paths, int fd, const char *name, struct stat *stat)
{
    int status, entry;

    if (!paths) {
        return fstatat(fd, name, stat, 0) < 0 ? -errno : 0;
    }
    entry = stk_local_path_open_at(paths, fd, name, O_PATH);
    if (entry < 0) {
        return entry;
    }
    status = stk_posix_fstat(entry, stat);
    close(entry);
    return status;
}
