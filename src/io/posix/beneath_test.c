/* Goal: no call on a name beneath a folder leaves it through a symbolic link: not through one that
 * was there before, nor through one that another thread puts in while the call runs.
 * Method: a table of calls on root/sub/..., where sub is a folder, a link to another folder of the
 * root, or a link out of it. All with openat2, and in a process where a filter refuses it. */
#include "io/write.h"

#include "test/t.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char home[64], absolute[128];
static struct stk_io *io, *beneath;
static struct stoker_error error;

static const char *at(const char *name)
{
    static _Thread_local char path[8][256];
    static _Thread_local int turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static void put(const char *name)
{
    int fd = open(at(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);

    T_TRUE(name, fd >= 0);
    close(fd);
}

/* Entries of a folder, without "." and "..". */
static uint32_t count(const char *name)
{
    DIR *folder = opendir(at(name));
    uint32_t entries = 0;

    T_TRUE(name, folder != NULL);
    while (folder && readdir(folder)) {
        entries++;
    }
    if (folder) {
        closedir(folder);
    }
    return entries - 2;
}

static int give(int status, struct stk_output *out)
{
    stk_io_close_output(beneath, status == 0 ? out : NULL);
    return status;
}

static int call_create(void)
{
    struct stk_output *out = NULL;
    int status = stk_io_create(beneath, at("root/sub/new"), false, &out, &error);

    return give(status, out);
}

static int call_exclusive(void)
{
    struct stk_output *out = NULL;
    uint64_t bytes;
    int status = stk_io_open_exclusive(beneath, at("root/sub/new"), &out, 0600, &bytes, &error);

    return give(status, out);
}

static int call_append(void)
{
    struct stk_output *out = NULL;
    int status = stk_io_append(beneath, at("root/sub/new"), &out, &error);

    return give(status, out);
}

static int call_folder(void)
{
    return stk_io_make_directory(beneath, at("root/sub/folder"), false, &error);
}

static int call_sub(void)
{
    return stk_io_make_directory(beneath, at("root/sub"), false, &error);
}

static int call_rename_to(void)
{
    return stk_io_rename(beneath, at("root/ready"), at("root/sub/new"), false, &error);
}

static int call_rename_exclusive(void)
{
    return stk_io_rename(beneath, at("root/ready"), at("root/sub/new"), true, &error);
}

static int call_rename_from(void)
{
    return stk_io_rename(beneath, at("root/sub/there"), at("root/got"), false, &error);
}

static int call_link(void)
{
    return stk_io_link(beneath, at("root/ready"), at("root/sub/new"), &error);
}

static int call_remove(void)
{
    return stk_io_remove(beneath, at("root/sub/there"), &error);
}

static int call_sync(void)
{
    return stk_io_sync_directory(beneath, at("root/sub/."), &error);
}

static int call_stat(void)
{
    struct stk_stat stat;

    return stk_io_stat_path(beneath, at("root/sub/there"), &stat, &error);
}

static int call_lock(void)
{
    struct stk_file_lock *lock = NULL;
    int status = stk_io_lock(beneath, at("root/sub/lock"), &lock, &error);

    stk_io_unlock(beneath, lock);
    return status;
}

static int call_is_link(void)
{
    return stk_io_is_link(beneath, at("root/sub/link")) ? 0 : -ELOOP;
}

static const struct call {
    const char *name;
    int (*call)(void);
} calls[] = {
    {"create", call_create},
    {"open_exclusive", call_exclusive},
    {"append", call_append},
    {"make_directory", call_folder},
    {"make_directory of the link", call_sub},
    {"rename to", call_rename_to},
    {"rename to, exclusive", call_rename_exclusive},
    {"rename from", call_rename_from},
    {"link", call_link},
    {"remove", call_remove},
    {"sync_directory", call_sync},
    {"stat", call_stat},
    {"lock", call_lock},
    {"is_link", call_is_link},
};

static const struct link_row {
    const char *target; /* of root/sub; NULL: a folder */
    int status;
} links[] = {
    {NULL, 0},
    {"other", 0},
    {"./other/../other", 0},
    {absolute, 0},
    {"../outside", -ELOOP},
    {"../root/../outside", -ELOOP},
    {"/proc/self/cwd", -ELOOP},
};

static void make_tree(const char *target)
{
    const struct stk_tree_removal all = {.folders = true};

    (void)stk_io_remove_tree(io, at("root"), &all, NULL);
    (void)stk_io_remove_tree(io, at("outside"), &all, NULL);
    T_EQ("root", mkdir(at("root"), 0755), 0);
    T_EQ("outside", mkdir(at("outside"), 0755), 0);
    T_EQ("other", mkdir(at("root/other"), 0755), 0);
    put("root/ready");
    put("outside/there");
    T_EQ("link", symlink("there", at("outside/link")), 0);
    if (target) {
        T_EQ("sub", symlink(target, at("root/sub")), 0);
        put("root/other/there");
        T_EQ("link", symlink("there", at("root/other/link")), 0);
    } else {
        T_EQ("sub", mkdir(at("root/sub"), 0755), 0);
        put("root/sub/there");
        T_EQ("link", symlink("there", at("root/sub/link")), 0);
    }
    T_EQ("open", stk_io_open_beneath(io, at("root"), &beneath, &error), 0);
}

static void test_calls(void)
{
    char text[128];

    T_EACH(link_row, link, links)
    {
        T_EACH(call, row, calls)
        {
            make_tree(link->target);
            snprintf(text, sizeof text, "%s, %s", row->name, link->target ? link->target : "-");
            T_EQ(text, row->call(), link->status);
            if (link->status < 0) {
                T_EQ(text, count("outside"), 2);
            }
            stk_io_close_beneath(io, beneath);
        }
    }
}

/* Opens a file through the link of each row, and checks where it is. */
static void test_check(void)
{
    char folder[128], path[128];

    snprintf(folder, sizeof folder, "%s", at("root"));
    T_EACH(link_row, link, links)
    {
        struct stk_beneath_check check = {.folder = folder, .path = path};
        struct stk_stat root, other;
        bool open;

        snprintf(path, sizeof path, "%s", at("root/sub/there"));
        make_tree(link->target);
        put("there"); /* of the working directory, to which one link leads */
        open = stk_io_stat_path(io, check.path, &check.opened, NULL) == 0;
        T_EQ("root", stk_io_stat_path(io, check.folder, &root, NULL), 0);
        check.device = root.device;
        check.inode = root.inode;
        T_TRUE(link->target, open);
        T_EQ(link->target, stk_io_check_beneath(io, &check, &error), link->status);
        T_EQ("other", stk_io_stat_path(io, at("root/ready"), &other, NULL), 0);
        check.opened.inode = other.inode;
        check.opened.ctime_ns++;
        T_EQ("another file", stk_io_check_beneath(io, &check, &error),
             link->status < 0 ? link->status : STOKER_ERROR_CHANGED);
        check.inode++;
        T_EQ("another root", stk_io_check_beneath(io, &check, &error), STOKER_ERROR_CHANGED);
        stk_io_close_beneath(io, beneath);
    }
    /* A link to a file. */
    make_tree(NULL);
    for (int out = 0; out < 2; out++) {
        struct stk_beneath_check check = {.folder = folder, .path = path};
        struct stk_stat root;

        snprintf(path, sizeof path, "%s", at("root/file"));
        T_EQ("link", symlink(out ? "../outside/there" : "sub/there", at("root/file")), 0);
        T_EQ("root", stk_io_stat_path(io, check.folder, &root, NULL), 0);
        T_EQ("open", stk_io_stat_path(io, check.path, &check.opened, NULL), 0);
        check.device = root.device;
        check.inode = root.inode;
        T_EQ("link to a file", stk_io_check_beneath(io, &check, &error), out ? -ELOOP : 0);
        T_EQ("remove", unlink(at("root/file")), 0);
    }
    stk_io_close_beneath(io, beneath);
}

/* Paths outside of the root are used as they are, and ".." does not leave it. */
static void test_paths(void)
{
    struct stk_output *out = NULL;

    make_tree(NULL);
    T_EQ("other path", stk_io_rename(beneath, at("outside/there"), at("root/sub/in"), false, NULL),
         0);
    T_EQ("as it is", stk_io_create(beneath, at("outside/new"), false, &out, &error), 0);
    stk_io_close_output(beneath, out);
    T_EQ("dots", stk_io_remove(beneath, at("root/sub/../../outside/new"), &error), -ELOOP);
    T_EQ("dots", stk_io_remove(beneath, at("root/.."), &error), -ELOOP);
    T_EQ("sibling", stk_io_remove(beneath, at("rootless"), &error), 0);
    T_EQ("slash", stk_io_make_directory(beneath, at("root/sub//deep/"), true, &error), 0);
    T_EQ("root", stk_io_make_directory(beneath, at("root"), false, &error), 0);
    stk_io_close_beneath(io, beneath);
    T_EQ("none", stk_io_open_beneath(io, at("absent"), &beneath, &error), -ENOENT);
}

/* ---- while another thread swaps the folder and a link ---- */

static _Atomic bool stop;

static void *swap(void *none)
{
    (void)none;
    while (!atomic_load(&stop)) {
        (void)syscall(SYS_renameat2, AT_FDCWD, at("root/sub"), AT_FDCWD, at("root/link"),
                      2 /* RENAME_EXCHANGE */);
    }
    return NULL;
}

static void test_race(void)
{
    uint32_t done = 0, refused = 0;
    char name[32], path[128], to[128];
    pthread_t thread;

    make_tree(NULL);
    T_EQ("link", symlink("../outside", at("root/link")), 0);
    atomic_store(&stop, false);
    T_EQ("thread", pthread_create(&thread, NULL, swap, NULL), 0);
    for (uint32_t i = 0; i < 20000 && (done < 200 || refused < 200); i++) {
        struct stk_output *out = NULL;
        int status;

        snprintf(name, sizeof name, "root/sub/%u", i % 16);
        snprintf(path, sizeof path, "%s", at(name));
        snprintf(to, sizeof to, "%s-to", path);
        status = stk_io_create(beneath, path, false, &out, &error);
        stk_io_close_output(beneath, status == 0 ? out : NULL);
        done += status == 0;
        refused += status == -ELOOP;
        (void)stk_io_rename(beneath, path, to, false, NULL);
        (void)stk_io_make_directory(beneath, path, false, NULL);
        (void)stk_io_remove(beneath, path, NULL);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    T_TRUE("both were seen", done > 0 && refused > 0);
    T_EQ("outside", count("outside"), 2);
    stk_io_close_beneath(io, beneath);
}

/* openat2 fails with ENOSYS in this process. */
static bool refuse_openat2(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {STK_COUNT(filter), filter};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int main(int count_of_arguments, char **arguments)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 10000};
    bool without = count_of_arguments > 1;
    int status = 0;

    if (without && !refuse_openat2()) {
        return 77;
    }
    snprintf(home, sizeof home, "/tmp/beneath_test.XXXXXX");
    if (!mkdtemp(home) || chdir(home) < 0) {
        return 77;
    }
    snprintf(absolute, sizeof absolute, "%s/root/other", home);
    T_EQ("open", stk_io_open(&io, &options, &error), 0);
    test_calls();
    test_check();
    test_paths();
    test_race();
    stk_io_close(io);
    T_EQ("clean", system("rm -rf \"$PWD\""), 0);
    T_EQ("leave", chdir("/"), 0);
    if (!without) {
        pid_t child = fork();

        if (child == 0) {
            execl("/proc/self/exe", arguments[0], "without-openat2", (char *)NULL);
            _exit(1);
        }
        T_EQ("wait", waitpid(child, &status, 0), child);
        T_TRUE("without openat2",
               WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
    }
    return t_finish();
}
