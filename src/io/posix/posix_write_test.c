/* Goal: writing handles what only a real machine has: full, read-only and different file systems,
 * permissions, limits, pipes, kernels without a call. Each error names the path and the next step.
 * Method: small tmpfs mounts (as root), and children in which a seccomp filter answers single
 * system calls. sim_write_test.c tests what the machine and the simulated file system have in
 * common. Covers write.c. */
#include "io/write.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DISK_BYTES 65536 /* of the small tmpfs, and the limit of a file */

static char folder[64];
static struct stk_io *io;

static const char *below(const char *name)
{
    static char paths[4][128];
    static int last;
    char *path = paths[last++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int put(const char *name, bool fresh, const char *text, struct stoker_error *error)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(io, below(name), fresh, &out, error);

    if (status == 0) {
        status = stk_io_write(io, out, text, strlen(text), error);
    }
    stk_io_close_output(io, out);
    return status;
}

static int64_t bytes_of(const char *name)
{
    struct stat info;

    return lstat(below(name), &info) == 0 ? info.st_size : -1;
}

/* Runs a test in a child, where it may drop privileges. */
static void in_child(const char *name, void (*test)(int word), int word)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        test(word);
        status = t_finish();
        fflush(stdout);
        _exit(status);
    }
    T_EQ(name, waitpid(child, &status, 0), child);
    T_TRUE(name, WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* From now on these system calls return number; a second one may be 0. */
static void forbid(long call, long other, int number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(other ? other : call), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)number),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {STK_COUNT(filter), filter};

    T_EQ("no new rights", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    T_EQ("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

/* More than fits, in one write: the part that fits is written, and the output stays failed. */
static void write_too_much(const char *name, int want)
{
    struct stoker_error error = {0};
    struct stk_output *out = NULL;
    uint8_t *data = stk_alloc(4 * DISK_BYTES, 1);

    T_EQ(name, stk_io_create(io, below(name), true, &out, &error), 0);
    T_EQ(name, stk_io_write(io, out, data, 4 * DISK_BYTES, &error), want);
    T_ERROR(name, &error);
    T_HAS(name, error.where, below(name));
    T_EQ(name, bytes_of(name), DISK_BYTES);
    error = (struct stoker_error){0};
    T_EQ(name, stk_io_write(io, out, data, 1, &error), want);
    T_ERROR(name, &error);
    T_EQ(name, stk_io_sync_output(io, out, &error), want);
    stk_io_close_output(io, out);
    T_EQ(name, stk_io_remove(io, below(name), &error), 0);
    stk_free(data);
}

static void test_full(void)
{
    struct stoker_error error = {0};

    mkdir(below("disk"), 0700);
    if (mount("stoker", below("disk"), "tmpfs", 0, "size=64k") < 0) {
        printf("full, read-only and other disk: not tried, needs root\n");
        rmdir(below("disk"));
        return;
    }
    write_too_much("disk/x", -ENOSPC);
    T_EQ("full", put("disk/y", true, "y", &error), 0);
    T_EQ("other", put("y", true, "y", &error), 0);
    T_EQ("other", stk_io_rename(io, below("y"), below("disk/z"), true, &error), -EXDEV);
    T_ERROR("other", &error);
    T_HAS("other", error.where, below("y"));
    T_HAS("other", error.where, below("disk/z"));
    T_HAS("other", error.advice, "one file system");
    T_EQ("remount", mount("", below("disk"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    T_EQ("read-only", put("disk/y", false, "z", &error), -EROFS);
    T_HAS("read-only", error.advice, "another place");
    T_EQ("read-only", stk_io_make_directory(io, below("disk/d"), true, &error), -EROFS);
    T_EQ("read-only", stk_io_remove(io, below("disk/y"), &error), -EROFS);
    T_ERROR("read-only", &error);
    T_EQ("mount point", umount(below("disk")), 0);
    T_EQ("remove", stk_io_remove(io, below("disk"), &error), 0);
    T_EQ("remove", stk_io_remove(io, below("y"), &error), 0);
}

static void test_limit(int word)
{
    struct rlimit limit = {DISK_BYTES, DISK_BYTES};

    (void)word;
    signal(SIGXFSZ, SIG_IGN);
    T_EQ("limit", setrlimit(RLIMIT_FSIZE, &limit), 0);
    write_too_much("limit", -EFBIG);
}

static void test_rights(int word)
{
    struct stoker_error error = {0};

    (void)word;
    T_TRUE("folder", chmod(folder, 0555) == 0);
    if (geteuid() == 0) {
        T_EQ("no server", setresuid(65534, 65534, 65534), 0);
    }
    T_EQ("create", put("new", true, "x", &error), -EACCES);
    T_HAS("create", error.advice, "chmod");
    T_EQ("make", stk_io_make_directory(io, below("new"), true, &error), -EACCES);
    T_EQ("remove", stk_io_remove(io, below("kept"), &error), -EACCES);
    T_EQ("rename", stk_io_rename(io, below("kept"), below("new"), false, &error), -EACCES);
    T_EQ("rename, fresh", stk_io_rename(io, below("kept"), below("new"), true, &error), -EACCES);
    T_ERROR("rename, fresh", &error);
}

/* Nothing but files: no wait for a reader, and no write into a pipe or device. */
static void test_kinds(void)
{
    struct stoker_error error = {0};
    struct stk_output *out = NULL;
    int reader;

    T_EQ("pipe", mkfifo(below("pipe"), 0600), 0);
    T_EQ("no reader", stk_io_create(io, below("pipe"), false, &out, &error), -ENXIO);
    T_ERROR("no reader", &error);
    reader = open(below("pipe"), O_RDONLY | O_NONBLOCK);
    T_EQ("reader", stk_io_create(io, below("pipe"), false, &out, &error), -ENXIO);
    close(reader);
    T_EQ("device", stk_io_create(io, "/dev/null", false, &out, &error), -ENXIO);
    T_HAS("device", error.where, "/dev/null");
    T_EQ("remove", stk_io_remove(io, below("pipe"), &error), 0);
    stk_io_close_output(io, NULL);
}

static void test_modes(void)
{
    mode_t old = umask(027);
    struct stk_output *out = NULL;
    struct stat info = {0};
    int fd = dup(0);

    close(fd); /* the next number */
    T_EQ("create", stk_io_create(io, below("mode"), true, &out, NULL), 0);
    T_EQ("closed in children", fcntl(fd, F_GETFD), FD_CLOEXEC);
    T_EQ("waits again", fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    stk_io_close_output(io, out);
    T_EQ("closed", fcntl(fd, F_GETFD), -1);
    T_EQ("make", stk_io_make_directory(io, below("mode-d"), true, NULL), 0);
    T_TRUE("file", stat(below("mode"), &info) == 0 && (info.st_mode & 07777) == 0640);
    T_TRUE("folder", stat(below("mode-d"), &info) == 0 && (info.st_mode & 07777) == 0750);
    umask(old);
    T_EQ("remove", stk_io_remove(io, below("mode"), NULL), 0);
    T_EQ("remove", stk_io_remove(io, below("mode-d"), NULL), 0);
}

static const struct rename_row {
    const char *name, *from, *to;
    int want;
} rename_rows[] = {
    {"file", "kept", "new", 0},
    {"back", "new", "kept", 0},
    {"file, taken", "kept", "other", -EEXIST},
    {"file, taken by a folder", "kept", "full", -EEXIST},
    {"file, taken by a broken link", "kept", "broken", -EEXIST},
    {"link", "broken", "new", 0},
    {"link back", "new", "broken", 0},
    {"folder", "full", "new", 0},
    {"folder back", "new", "full", 0},
    {"folder, taken", "full", "empty", -EEXIST},
    {"folder, taken by a file", "full", "kept", -EEXIST},
    {"nothing", "absent", "new", -ENOENT},
    {"nowhere", "kept", "absent/new", -ENOENT},
    {"into itself", "full", "full/below", -EINVAL},
};

static void rename_all(const char *how)
{
    T_EACH(rename_row, row, rename_rows)
    {
        struct stoker_error error = {0};
        char name[96];

        snprintf(name, sizeof name, "%s: %s", how, row->name);
        T_EQ(name, stk_io_rename(io, below(row->from), below(row->to), true, &error), row->want);
        if (row->want < 0) {
            T_ERROR(name, &error);
        }
    }
    T_EQ(how, bytes_of("kept"), 4);
    T_EQ(how, bytes_of("other"), 5);
    T_EQ(how, bytes_of("new"), -1);
    T_EQ(how, bytes_of("full/x"), 1);
}

/* A file system or a filter without RENAME_NOREPLACE, and one without hard links too. */
static void test_fallback(int number)
{
    forbid(SYS_renameat2, 0, number);
    rename_all("no renameat2");
#ifdef SYS_link
    forbid(SYS_linkat, SYS_link, EPERM);
#else
    forbid(SYS_linkat, 0, EPERM);
#endif
    rename_all("no link");
}

/* A sync that failed once stays failed though the kernel would say yes now. */
static void test_sync(int number)
{
    struct stoker_error error = {0};
    struct stk_output *out = NULL;

    T_EQ("create", stk_io_create(io, below("kept"), false, &out, &error), 0);
    T_EQ("write", stk_io_write(io, out, "kept", 4, &error), 0);
    T_EQ("sync", stk_io_sync_output(io, out, &error), 0);
    T_EQ("folder", stk_io_sync_directory(io, folder, &error), 0);
    forbid(SYS_fdatasync, SYS_fsync, number);
    T_EQ("sync", stk_io_sync_output(io, out, &error), -number);
    T_ERROR("sync", &error);
    T_EQ("write", stk_io_write(io, out, "more", 4, &error), -number);
    stk_io_close_output(io, out);
    T_EQ("bytes", bytes_of("kept"), 4);
    /* EINVAL: a network file system that has no such thing for folders. */
    T_EQ("folder", stk_io_sync_directory(io, folder, &error), number == EINVAL ? 0 : -number);
}

/* Early write-back is only a hint: a kernel that refuses it changes nothing. */
static void test_large(int number)
{
    enum { BYTES = 5 << 20, PARTS = 5 };
    struct stoker_error error = {0};
    struct stk_output *out = NULL;
    uint8_t *data = stk_alloc(BYTES, 1), last = 0;
    int fd;

    if (number != 0) {
        forbid(SYS_sync_file_range, 0, number);
    }
    T_EQ("create", stk_io_create(io, below("large"), true, &out, &error), 0);
    for (int i = 1; i <= PARTS; i++) {
        memset(data, i, BYTES);
        T_EQ("write", stk_io_write(io, out, data, BYTES, &error), 0);
    }
    T_EQ("sync", stk_io_sync_output(io, out, &error), 0);
    stk_io_close_output(io, out);
    T_EQ("bytes", bytes_of("large"), BYTES * PARTS);
    fd = open(below("large"), O_RDONLY | O_CLOEXEC);
    for (int i = 1; i <= PARTS; i++) {
        T_EQ("read", pread(fd, &last, 1, (off_t)BYTES * i - 1), 1);
        T_EQ("part", last, i);
    }
    close(fd);
    T_EQ("remove", stk_io_remove(io, below("large"), &error), 0);
    stk_free(data);
}

/* Whether the file system supports O_DIRECT, by its own answer. */
static bool supports_direct(const char *path)
{
    struct statx info = {0};

    return statx(AT_FDCWD, path, 0, STATX_DIOALIGN, &info) == 0 &&
           (info.stx_mask & STATX_DIOALIGN) && info.stx_dio_offset_align > 0;
}

/* Large writes at offsets go around the page cache where they can; the bytes are the same with any
 * alignment, and without O_DIRECT. */
static void test_blocks(enum stoker_direct direct, bool reserve)
{
    enum { BYTES = 12 << 20, MIB = 1 << 20 };
    static const struct {
        size_t offset, shift, bytes; /* shift: of the memory */
    } writes[] = {{4 * MIB, 0, 3 * MIB},         {0, 0, 2 * MIB + 100}, {2 * MIB + 100, 64, 100},
                  {2 * MIB + 4096, 8, MIB},      {7 * MIB, 0, 4096},    {8 * MIB + 512, 0, 2 * MIB},
                  {11 * MIB - 1, 0, MIB + 1 - 7}};
    struct stk_io_options options = {.backend = STOKER_IO_THREADS, .direct = direct};
    uint8_t *data = stk_pages_alloc_huge(BYTES + 64), *want = stk_alloc(BYTES, 1),
            *found = stk_alloc(BYTES, 1);
    struct stoker_error error = {0};
    struct stk_output *out = NULL;
    struct stk_file *file = NULL;
    struct stk_io *own = NULL;
    int64_t uncached;

    T_EQ("open", stk_io_open(&own, &options, NULL), 0);
    T_EQ("create", stk_io_create(own, below("blocks"), true, &out, &error), 0);
    T_EQ("reserve", reserve ? stk_io_reserve(own, out, BYTES - 7, &error) : 0, 0);
    for (size_t i = 0; i < BYTES + 64; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 20);
    }
    for (size_t i = 0; i < STK_COUNT(writes); i++) {
        memcpy(want + writes[i].offset, data + writes[i].shift, writes[i].bytes);
        T_EQ("write",
             stk_io_write_at(own, out, writes[i].offset, data + writes[i].shift, writes[i].bytes,
                             &error),
             0);
    }
    T_EQ("file", stk_io_open_file(own, below("blocks"), &file, &error), 0);
    uncached = stk_io_uncached_bytes(file, 4 * MIB, 3 * MIB);
    if (direct == STOKER_DIRECT_NEVER) {
        T_TRUE("in the page cache", uncached <= 0);
    } else if (supports_direct(below("blocks")) && uncached >= 0) {
        T_EQ("around the page cache", uncached, 3 * MIB);
    }
    T_EQ("sync", stk_io_sync_output(own, out, &error), 0);
    stk_io_close_output(own, out);
    T_EQ("length", bytes_of("blocks"), BYTES - 7);
    T_EQ("read", stk_io_read_wait(file, 0, found, BYTES), BYTES - 7);
    T_EQ("bytes", memcmp(found, want, BYTES - 7), 0);
    stk_io_close_file(file);
    T_EQ("remove", stk_io_remove(own, below("blocks"), &error), 0);
    stk_io_close(own);
    stk_pages_free(data, BYTES + 64);
    stk_free(want);
    stk_free(found);
}

static void test_memory(void)
{
    struct stoker_error error = {0};
    int64_t alive = stk_mem_alive();

    stk_mem_fail_nth(1);
    T_EQ("memory", put("new", true, "x", &error), -ENOMEM);
    stk_mem_fail_nth(0);
    T_ERROR("memory", &error);
    T_EQ("nothing made", bytes_of("new"), -1);
    T_EQ("no leak", stk_mem_alive(), alive);
}

/* One writer at a time: no other process truncates the file, under its name or under its next
 * one. */
static void test_claim(void)
{
    struct stoker_error error;
    struct stk_output *first = NULL, *second = NULL;
    uint64_t bytes = 1;

    T_EQ("claim", stk_io_open_exclusive(io, below("part"), &first, 0, &bytes, NULL), 0);
    T_EQ("new", bytes, 0);
    T_EQ("claim", stk_io_write(io, first, "0123456789", 10, NULL), 0);
    T_EQ("held", stk_io_open_exclusive(io, below("part"), &second, 0, &bytes, &error), -EBUSY);
    T_TRUE("held", strstr(error.what, "another process") && strstr(error.where, "/part'"));
    T_EQ("held", bytes_of("part"), 10);
    stk_io_close_output(io, first);
    T_EQ("left", stk_io_open_exclusive(io, below("part"), &first, 0, &bytes, NULL), 0);
    T_EQ("left", bytes, 10);
    T_EQ("left", stk_io_truncate(io, first, 4, NULL), 0);
    T_EQ("left", stk_io_write(io, first, "!", 1, NULL), 0);
    T_EQ("left", bytes_of("part"), 5);
    T_EQ("renamed", stk_io_rename(io, below("part"), below("whole"), false, NULL), 0);
    T_EQ("renamed", stk_io_open_exclusive(io, below("part"), &second, 0, &bytes, NULL), 0);
    T_EQ("a new one", bytes, 0);
    T_EQ("the old one", bytes_of("whole"), 5);
    stk_io_close_output(io, first);
    stk_io_close_output(io, second);
    T_EQ("a link", symlink("whole", below("link")), 0);
    T_EQ("a link", stk_io_open_exclusive(io, below("link"), &first, 0, &bytes, &error), -ELOOP);
    T_EQ("a folder", stk_io_open_exclusive(io, below("full"), &first, 0, &bytes, &error), -EISDIR);
    T_EQ("tear down", unlink(below("part")) + unlink(below("whole")) + unlink(below("link")), 0);
}

/* Root may replace them: then the machine has no /dev/null any more. */
static void test_special(void)
{
    static const char *const names[] = {"pipe", "link"};
    struct stoker_error error;
    struct stat info;

    T_EQ("pipe", mkfifo(below("pipe"), 0644) + symlink("pipe", below("link")), 0);
    for (size_t i = 0; i < STK_COUNT(names); i++) {
        T_EQ(names[i], stk_io_rename(io, below("kept"), below(names[i]), false, &error), -ENXIO);
        T_ERROR(names[i], &error);
        T_TRUE(names[i], stat(below(names[i]), &info) == 0 && S_ISFIFO(info.st_mode));
        T_EQ(names[i], bytes_of("kept"), 4);
    }
    T_EQ("tear down", unlink(below("pipe")) + unlink(below("link")), 0);
}

/* Owner (as root), permissions, and extended attributes where the file system has them
 * (posix_attributes.c). */
static void test_attributes(void)
{
    static const mode_t modes[] = {0600, 0440, 0664, 02775};
    bool is_root = geteuid() == 0;
    char text[8];

    for (size_t i = 0; i < STK_COUNT(modes); i++) {
        struct stk_output *out = NULL;
        struct stoker_error error = {0};
        struct stat info;
        bool has_attributes;

        T_EQ("old", put("old", true, "old", NULL), 0);
        has_attributes = setxattr(below("old"), "user.test", "value", 5, 0) == 0;
        T_EQ("owner", is_root ? chown(below("old"), 1234, 4321) : 0, 0);
        T_EQ("mode", chmod(below("old"), modes[i]), 0);
        T_EQ("new", stk_io_create(io, below("new"), true, &out, &error), 0);
        T_EQ("copy", stk_io_copy_attributes(io, below("old"), out, &error), 0);
        T_EQ("write", stk_io_write(io, out, "new", 3, &error), 0);
        stk_io_close_output(io, out);
        T_EQ("stat", stat(below("new"), &info), 0);
        T_EQ("mode", info.st_mode & 07777, modes[i]);
        T_TRUE("owner", !is_root || (info.st_uid == 1234 && info.st_gid == 4321));
        T_TRUE("attribute",
               !has_attributes || getxattr(below("new"), "user.test", text, sizeof text) == 5);
        T_EQ("no file", stk_io_create(io, below("new"), false, &out, &error), 0);
        T_EQ("no file", stk_io_copy_attributes(io, below("none"), out, &error), -ENOENT);
        T_ERROR("no file", &error);
        stk_io_close_output(io, out);
        T_EQ("tear down", unlink(below("old")) + unlink(below("new")), 0);
    }
}

int main(void)
{
    struct stk_io_options options = {.backend = STOKER_IO_THREADS};

    snprintf(folder, sizeof folder, "/tmp/stoker-io-write-test-XXXXXX");
    STK_ASSERT(mkdtemp(folder) != NULL && chmod(folder, 0755) == 0);
    T_EQ("open", stk_io_open(&io, &options, NULL), 0);
    T_EQ("set up", put("kept", true, "kept", NULL), 0);
    T_EQ("set up", put("other", true, "other", NULL), 0);
    T_EQ("set up", symlink("nowhere", below("broken")), 0);
    T_EQ("set up", mkdir(below("full"), 0755) + mkdir(below("empty"), 0755), 0);
    T_EQ("set up", put("full/x", true, "x", NULL), 0);
    test_full();
    test_kinds();
    test_modes();
    test_blocks(STOKER_DIRECT_AUTO, true);
    test_blocks(STOKER_DIRECT_AUTO, false);
    test_blocks(STOKER_DIRECT_NEVER, true);
    test_memory();
    test_claim();
    test_special();
    test_attributes();
    rename_all("as it is");
    in_child("limit", test_limit, 0);
    in_child("no flag", test_fallback, EINVAL);
    in_child("no call", test_fallback, ENOSYS);
    in_child("old filter", test_fallback, EPERM);
    in_child("sync", test_sync, EIO);
    in_child("sync", test_sync, EINVAL);
    in_child("large", test_large, 0);
    in_child("large, no hint", test_large, ENOSYS);
    in_child("rights", test_rights, 0);
    chmod(folder, 0755);
    T_EQ("tear down", unlink(below("kept")) + unlink(below("other")) + unlink(below("broken")), 0);
    T_EQ("tear down", unlink(below("full/x")) + rmdir(below("full")) + rmdir(below("empty")), 0);
    T_EQ("tear down", rmdir(folder), 0);
    stk_io_close(io);
    return t_finish();
}
