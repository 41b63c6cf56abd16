/* Calls on the file system of a path, on a thread that is abandoned if they hang.
 *
 * A thread that waits for a program behind FUSE cannot be killed (request_wait_answer in
 * fs/fuse/dev.c), and neither can its process. So a child process makes the calls on FUSE, and init
 * reaps it. Waits on NFS can be killed. */
#include "io/filesystem/filesystem.h"

#include "base/mem.h"
#include "io/posix/thread_pool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_BYTES_MAX (64u << 10)
#define BLOCK_BYTES 512u
/* Files up to this size may be stored in the inode, without a block. */
#define INLINE_BYTES_MAX 4096u
#define DEPTH_MAX 2

struct probe {
    struct stk_task task; /* first */
    struct stk_mount_probe_info info;
    uint32_t files_max;
    bool is_fuse, has_blocks; /* a program serves the file system; a file had blocks */
    char path[STK_FILESYSTEM_TEXT_BYTES];
};

static void probe_run(struct stk_task *task);
static void probe_drop(struct stk_task *task);

static int probe_by_thread(struct probe *probe, uint32_t timeout_ms,
                           struct stk_mount_probe_info *info_out)
{
    struct stk_thread_pool *pool = NULL;
    int status = stk_thread_pool_open(&pool, 1, NULL, NULL);

    status = status < 0 ? status : stk_thread_pool_call(pool, &probe->task, timeout_ms);
    if (status == 0) {
        *info_out = probe->info;
    }
    if (status != STOKER_ERROR_TIMEOUT) { /* else it belongs to the pool */
        stk_free(probe);
    }
    stk_thread_pool_close(pool);
    return status;
}

/* Kills the child, if it can be killed. */
static int probe_by_child(struct probe *probe, uint32_t timeout_ms,
                          struct stk_mount_probe_info *info_out)
{
    struct pollfd ready = {.events = POLLIN};
    int ends[2], status = STOKER_ERROR_TIMEOUT;
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    child = fork();
    if (child == 0) {
        dup2(ends[1], 0); /* closes all other descriptors, above all pipes */
        close_range(1, UINT32_MAX, 0);
        probe_run(&probe->task);
        (void)send(0, &probe->info, sizeof probe->info, MSG_NOSIGNAL);
        kill(getpid(), SIGKILL); /* without flushing or freeing the parent's data */
    }
    close(ends[1]);
    ready.fd = ends[0];
    if (child < 0) {
        status = -errno;
    } else if (poll(&ready, 1, (int)timeout_ms) > 0) {
        bool complete = recv(ends[0], info_out, sizeof *info_out, 0) == (ssize_t)sizeof *info_out;

        status = complete ? 0 : -EIO;
    }
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        (void)waitpid(child, NULL, status == 0 ? 0 : WNOHANG);
    }
    return status;
}

int stk_mount_probe(const struct stk_filesystem_request *request,
                    struct stk_mount_probe_info *info_out)
{
    uint32_t timeout_ms = (uint32_t)stk_min(request->timeout_ms, INT32_MAX);
    struct probe *probe = stk_alloc(1, sizeof *probe);
    int status = probe ? 0 : -ENOMEM;

    *info_out = (struct stk_mount_probe_info){0};
    if (!probe) {
        return status;
    }
    probe->task = (struct stk_task){.run = probe_run, .drop = probe_drop};
    probe->files_max = request->files_max;
    snprintf(probe->path, sizeof probe->path, "%s", request->path);
    if (request->is_fuse) {
        status = probe_by_child(probe, timeout_ms, info_out);
        stk_free(probe);
    } else {
        status = probe_by_thread(probe, timeout_ms, info_out);
    }
    return status < 0 ? status : info_out->status;
}

static void probe_drop(struct stk_task *task)
{
    stk_free((struct probe *)(void *)task);
}

static void probe_space(struct stk_mount_probe_info *info, const char *path)
{
    struct statfs space;

    if (statfs(path, &space) < 0) {
        return;
    }
    info->has_space = true;
    info->magic = (uint32_t)space.f_type;
    info->block_bytes = (uint64_t)space.f_bsize;
    info->bytes_total = (uint64_t)space.f_blocks * (uint64_t)space.f_bsize;
    info->bytes_free = (uint64_t)space.f_bavail * (uint64_t)space.f_bsize;
    info->files_total = (uint64_t)space.f_files;
    info->files_free = (uint64_t)space.f_ffree;
}

/* Tries each attribute: a file system without it returns an error. */
static bool probe_layout(const char *path, bool is_folder, struct stk_stripe_layout *layout)
{
    uint8_t *value = stk_alloc(1, XATTR_BYTES_MAX);
    ssize_t bytes = value ? getxattr(path, "lustre.lov", value, XATTR_BYTES_MAX) : -1;
    bool found = false;

    if (bytes > 0) {
        found = stk_stripe_layout_lustre((struct stk_view){value, (size_t)bytes}, layout) == 0;
    } else if (value) {
        bytes = getxattr(path, is_folder ? "ceph.dir.layout" : "ceph.file.layout", value,
                         XATTR_BYTES_MAX);
        found = bytes > 0 &&
                stk_stripe_layout_ceph((struct stk_view){value, (size_t)bytes}, layout) == 0;
    }
    stk_free(value);
    return found;
}

/* A file without blocks has its bytes in an archive, unless it is one hole: then they are zeros,
 * and nothing needs to be fetched. Opening a file fetches nothing. */
static bool is_hole(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool hole = fd >= 0 && lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;

    if (fd >= 0) {
        close(fd);
    }
    return hole;
}

static void inspect_file(struct probe *probe, const char *path, const struct stat *about)
{
    struct stk_filesystem_files *files = &probe->info.files;
    uint64_t bytes = (uint64_t)about->st_size;
    struct stk_stripe_layout layout = {0};
    bool away = false;

    if (probe->info.has_residency && probe->info.magic == 0x0bd00bd0 &&
        probe_layout(path, false, &layout)) {
        away = layout.is_released;
    } else if (probe->info.has_residency) { /* a program may fetch files that are opened: so it is
                                               not opened */
        away =
            about->st_blocks == 0 && bytes > INLINE_BYTES_MAX && (probe->is_fuse || !is_hole(path));
    }
    probe->has_blocks = probe->has_blocks || about->st_blocks > 0;
    if (probe->info.file_block_bytes == 0) {
        probe->info.file_block_bytes = (uint32_t)stk_min((uint64_t)about->st_blksize, UINT32_MAX);
    }
    files->seen++;
    files->bytes += bytes;
    files->largest_bytes = stk_max(files->largest_bytes, bytes);
    files->archived += away;
    files->bytes_archived += away ? bytes : 0;
}

/* Checks some files of a folder and of its sub-folders. */
static void inspect_folder(struct probe *probe, const char *folder, int depth)
{
    DIR *names = opendir(folder);
    struct dirent *entry;
    char *path = stk_alloc(1, STK_FILESYSTEM_TEXT_BYTES);

    while (names && path && probe->info.files.seen < probe->files_max &&
           (entry = readdir(names)) != NULL) {
        struct stat about;

        if (entry->d_name[0] == '.' ||
            (size_t)snprintf(path, STK_FILESYSTEM_TEXT_BYTES, "%s/%s", folder, entry->d_name) >=
                STK_FILESYSTEM_TEXT_BYTES ||
            fstatat(dirfd(names), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        if (S_ISREG(about.st_mode)) {
            inspect_file(probe, path, &about);
        } else if (S_ISDIR(about.st_mode) && depth < DEPTH_MAX) {
            inspect_folder(probe, path, depth + 1);
        }
    }
    if (names) {
        closedir(names);
    }
    stk_free(path);
}

/* File systems whose files may be archived, as the number of blocks shows. A server may compress
 * blocks, so only 0 blocks count on a network file system. */
static uint32_t group_of(uint64_t magic)
{
    return stk_filesystem_type_of((struct stk_view){NULL, 0}, (uint32_t)magic)->group;
}

/* Programs behind FUSE often report no blocks: then 0 blocks mean nothing. */
static void evaluate_blocks(struct probe *probe)
{
    if (probe->is_fuse && !probe->has_blocks) {
        probe->info.has_residency = false;
        probe->info.files.archived = probe->info.files.bytes_archived = 0;
    }
}

static void probe_run(struct stk_task *task)
{
    struct probe *probe = (struct probe *)(void *)task;
    struct stk_mount_probe_info *info = &probe->info;
    struct statx mount;
    struct stat about;

    if (stat(probe->path, &about) < 0) {
        info->status = -errno;
        return;
    }
    info->is_folder = S_ISDIR(about.st_mode);
    info->major = major(about.st_dev);
    info->minor = minor(about.st_dev);
    if (statx(AT_FDCWD, probe->path, 0, STATX_MNT_ID, &mount) == 0 &&
        (mount.stx_mask & STATX_MNT_ID)) {
        info->mount_id = mount.stx_mnt_id;
    }
    probe_space(info, probe->path);
    info->has_layout = probe_layout(probe->path, info->is_folder, &info->layout);
    probe->is_fuse = group_of(info->magic) == STOKER_FILESYSTEM_FUSE;
    info->has_residency =
        info->has_space && (probe->is_fuse || group_of(info->magic) == STOKER_FILESYSTEM_NETWORK ||
                            group_of(info->magic) == STOKER_FILESYSTEM_UNKNOWN);
    if (info->is_folder) {
        inspect_folder(probe, probe->path, 1);
    } else if (S_ISREG(about.st_mode)) {
        inspect_file(probe, probe->path, &about);
    }
    evaluate_blocks(probe);
}
