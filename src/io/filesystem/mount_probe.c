/* What the file system itself tells of a path, asked on a thread that may never come back.
 *
 * A thread that waits for a program behind FUSE cannot be killed (request_wait_answer in
 * fs/fuse/dev.c), so that a process with one cannot end either: there a child asks, which is left
 * to init. NFS lets itself be killed. */
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
/* Whatever small bytes a file system keeps beside an inode, it needs no block for. */
#define INLINE_BYTES_MAX 4096u
#define DEPTH_MAX 2

struct ask {
    struct stk_task task; /* first */
    struct stk_ground_told told;
    uint32_t files_max;
    bool is_fuse, has_blocks; /* a program answers; it told of blocks of some file */
    char path[STK_GROUND_TEXT_BYTES];
};

static void ask_run(struct stk_task *task);
static void ask_drop(struct stk_task *task);

static int ask_by_thread(struct ask *ask, uint32_t timeout_ms, struct stk_ground_told *told_out)
{
    struct stk_pool *pool = NULL;
    int status = stk_pool_open(&pool, 1, NULL, NULL);

    status = status < 0 ? status : stk_pool_call(pool, &ask->task, timeout_ms);
    if (status == 0) {
        *told_out = ask->told;
    }
    if (status != STOKER_ERROR_TIMEOUT) { /* else it is the pool's */
        stk_free(ask);
    }
    stk_pool_close(pool);
    return status;
}

/* The child ends by a signal, if it can. */
static int ask_by_child(struct ask *ask, uint32_t timeout_ms, struct stk_ground_told *told_out)
{
    struct pollfd ready = {.events = POLLIN};
    int ends[2], status = STOKER_ERROR_TIMEOUT;
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    child = fork();
    if (child == 0) {
        dup2(ends[1], 0); /* nothing else stays open: pipes that others wait at, above all */
        close_range(1, UINT32_MAX, 0);
        ask_run(&ask->task);
        (void)send(0, &ask->told, sizeof ask->told, MSG_NOSIGNAL);
        kill(getpid(), SIGKILL); /* nothing of the parent's is flushed or freed */
    }
    close(ends[1]);
    ready.fd = ends[0];
    if (child < 0) {
        status = -errno;
    } else if (poll(&ready, 1, (int)timeout_ms) > 0) {
        bool whole = recv(ends[0], told_out, sizeof *told_out, 0) == (ssize_t)sizeof *told_out;

        status = whole ? 0 : -EIO;
    }
    close(ends[0]);
    if (child > 0) {
        kill(child, SIGKILL);
        (void)waitpid(child, NULL, status == 0 ? 0 : WNOHANG);
    }
    return status;
}

int stk_ground_ask(const struct stk_ground_request *request, struct stk_ground_told *told_out)
{
    uint32_t timeout_ms = (uint32_t)stk_min(request->timeout_ms, INT32_MAX);
    struct ask *ask = stk_alloc(1, sizeof *ask);
    int status = ask ? 0 : -ENOMEM;

    *told_out = (struct stk_ground_told){0};
    if (!ask) {
        return status;
    }
    ask->task = (struct stk_task){.run = ask_run, .drop = ask_drop};
    ask->files_max = request->files_max;
    snprintf(ask->path, sizeof ask->path, "%s", request->path);
    if (request->is_fuse) {
        status = ask_by_child(ask, timeout_ms, told_out);
        stk_free(ask);
    } else {
        status = ask_by_thread(ask, timeout_ms, told_out);
    }
    return status < 0 ? status : told_out->status;
}

static void ask_drop(struct stk_task *task)
{
    stk_free((struct ask *)(void *)task);
}

static void ask_space(struct stk_ground_told *told, const char *path)
{
    struct statfs space;

    if (statfs(path, &space) < 0) {
        return;
    }
    told->has_space = true;
    told->magic = (uint32_t)space.f_type;
    told->block_bytes = (uint64_t)space.f_bsize;
    told->bytes_total = (uint64_t)space.f_blocks * (uint64_t)space.f_bsize;
    told->bytes_free = (uint64_t)space.f_bavail * (uint64_t)space.f_bsize;
    told->files_total = (uint64_t)space.f_files;
    told->files_free = (uint64_t)space.f_ffree;
}

/* By what is there: a file system that knows no such attribute refuses its name. */
static bool ask_layout(const char *path, bool is_folder, struct stk_layout *layout)
{
    uint8_t *value = stk_alloc(1, XATTR_BYTES_MAX);
    ssize_t bytes = value ? getxattr(path, "lustre.lov", value, XATTR_BYTES_MAX) : -1;
    bool found = false;

    if (bytes > 0) {
        found = stk_layout_lustre((struct stk_view){value, (size_t)bytes}, layout) == 0;
    } else if (value) {
        bytes = getxattr(path, is_folder ? "ceph.dir.layout" : "ceph.file.layout", value,
                         XATTR_BYTES_MAX);
        found = bytes > 0 && stk_layout_ceph((struct stk_view){value, (size_t)bytes}, layout) == 0;
    }
    stk_free(value);
    return found;
}

/* A file without blocks has its bytes elsewhere, unless it is a hole all over: these are zeros, and
 * nothing is to be fetched. To open a file fetches nothing. */
static bool is_hole(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool hole = fd >= 0 && lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;

    if (fd >= 0) {
        close(fd);
    }
    return hole;
}

static void look_at_file(struct ask *ask, const char *path, const struct stat *about)
{
    struct stk_ground_files *files = &ask->told.files;
    uint64_t bytes = (uint64_t)about->st_size;
    struct stk_layout layout = {0};
    bool away = false;

    if (ask->told.tells_presence && ask->told.magic == 0x0bd00bd0 &&
        ask_layout(path, false, &layout)) {
        away = layout.is_released;
    } else if (ask->told.tells_presence) { /* a program may fetch what is opened: it is not */
        away =
            about->st_blocks == 0 && bytes > INLINE_BYTES_MAX && (ask->is_fuse || !is_hole(path));
    }
    ask->has_blocks = ask->has_blocks || about->st_blocks > 0;
    if (ask->told.file_block_bytes == 0) {
        ask->told.file_block_bytes = (uint32_t)stk_min((uint64_t)about->st_blksize, UINT32_MAX);
    }
    files->seen++;
    files->bytes += bytes;
    files->bytes_most = stk_max(files->bytes_most, bytes);
    files->away += away;
    files->bytes_away += away ? bytes : 0;
}

/* Some of the files of a folder and of those in it, as they come. */
static void look_below(struct ask *ask, const char *folder, int depth)
{
    DIR *names = opendir(folder);
    struct dirent *entry;
    char *path = stk_alloc(1, STK_GROUND_TEXT_BYTES);

    while (names && path && ask->told.files.seen < ask->files_max &&
           (entry = readdir(names)) != NULL) {
        struct stat about;

        if (entry->d_name[0] == '.' ||
            (size_t)snprintf(path, STK_GROUND_TEXT_BYTES, "%s/%s", folder, entry->d_name) >=
                STK_GROUND_TEXT_BYTES ||
            fstatat(dirfd(names), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        if (S_ISREG(about.st_mode)) {
            look_at_file(ask, path, &about);
        } else if (S_ISDIR(about.st_mode) && depth < DEPTH_MAX) {
            look_below(ask, path, depth + 1);
        }
    }
    if (names) {
        closedir(names);
    }
    stk_free(path);
}

/* Where files may be away, and blocks tell it. Of a network file system whose server squeezes its
 * blocks only none at all counts. */
static uint32_t group_of(uint64_t magic)
{
    return stk_kind_of((struct stk_view){NULL, 0}, (uint32_t)magic)->group;
}

/* Programs behind FUSE often know no blocks: then none says nothing. */
static void judge_blocks(struct ask *ask)
{
    if (ask->is_fuse && !ask->has_blocks) {
        ask->told.tells_presence = false;
        ask->told.files.away = ask->told.files.bytes_away = 0;
    }
}

static void ask_run(struct stk_task *task)
{
    struct ask *ask = (struct ask *)(void *)task;
    struct stk_ground_told *told = &ask->told;
    struct statx mount;
    struct stat about;

    if (stat(ask->path, &about) < 0) {
        told->status = -errno;
        return;
    }
    told->is_folder = S_ISDIR(about.st_mode);
    told->major = major(about.st_dev);
    told->minor = minor(about.st_dev);
    if (statx(AT_FDCWD, ask->path, 0, STATX_MNT_ID, &mount) == 0 &&
        (mount.stx_mask & STATX_MNT_ID)) {
        told->mount_id = mount.stx_mnt_id;
    }
    ask_space(told, ask->path);
    told->has_layout = ask_layout(ask->path, told->is_folder, &told->layout);
    ask->is_fuse = group_of(told->magic) == STOKER_GROUND_FUSE;
    told->tells_presence =
        told->has_space && (ask->is_fuse || group_of(told->magic) == STOKER_GROUND_NETWORK ||
                            group_of(told->magic) == STOKER_GROUND_UNKNOWN);
    if (told->is_folder) {
        look_below(ask, ask->path, 1);
    } else if (S_ISREG(about.st_mode)) {
        look_at_file(ask, ask->path, &about);
    }
    judge_blocks(ask);
}
