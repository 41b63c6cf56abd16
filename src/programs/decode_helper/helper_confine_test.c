/* Goal: Landlock alone, without seccomp before it, keeps a confined process from files and ports,
 * for any user: each of the two mechanisms suffices by itself.
 * Method: a child restricts its files only and then tries to open some; actions that worked before
 * must fail after. sandbox_test tries what seccomp forbids. Covers helper_confine.c. */
#include "programs/decode_helper/helper_confine.h"

#include "test/t.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/confine_testXXXXXX";

static int try_read(void)
{
    return open("/etc/passwd", O_RDONLY | O_CLOEXEC);
}

static int try_create(void)
{
    return open("made", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
}

static int try_folder(void)
{
    return mkdir("folder", 0700);
}

static int try_remove(void)
{
    return unlink("there");
}

/* No server listens: the connection is refused, if it is tried at all. */
static int try_connect(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(1)};
    int port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(port, (struct sockaddr *)&address, sizeof address);
}

static int try_listen(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    int port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return bind(port, (struct sockaddr *)&address, sizeof address);
}

static const struct row {
    const char *name;
    int (*attempt)(void);
    uint32_t since; /* the version of Landlock that supports it */
    int before;     /* errno without a lock; 0: it can be done */
} rows[] = {
    {"read", try_read, 1, 0},     {"create", try_create, 1, 0},
    {"folder", try_folder, 1, 0}, {"remove", try_remove, 1, 0},
    {"listen", try_listen, 4, 0}, {"connect", try_connect, 4, ECONNREFUSED},
};

/* The result of an attempt in a process of its own: an errno, 0, or -1 for no restriction at
 * all. */
static int outcome(const struct row *row, bool locked, uint32_t *version_out)
{
    int ends[2], got[2] = {-1, 0};
    pid_t process;

    T_EQ("pipe", pipe(ends), 0);
    process = fork();
    if (process == 0) {
        uint32_t version = 0;
        int status = locked ? stk_helper_confine_files(&version) : 0;

        errno = 0;
        got[0] = status < 0 ? -1 : row->attempt() < 0 ? errno : 0;
        got[1] = (int)version;
        _exit(write(ends[1], got, sizeof got) == sizeof got ? 0 : 1);
    }
    close(ends[1]);
    T_EQ("outcome", read(ends[0], got, sizeof got), sizeof got);
    close(ends[0]);
    waitpid(process, NULL, 0);
    *version_out = (uint32_t)got[1];
    return got[0];
}

/* The limits alone, without seccomp and Landlock before them. */
static void test_limits(void)
{
    static const int zero[] = {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_NPROC};
    int file = open("limited", O_CREAT | O_WRONLY | O_CLOEXEC, 0600), result = 1;
    pid_t process = fork();

    if (process == 0) {
        struct rlimit files = {RLIM_INFINITY, RLIM_INFINITY};
        bool right = stk_helper_confine_limits() == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0 &&
                     files.rlim_max <= 16;

        for (size_t i = 0; i < STK_COUNT(zero); i++) {
            struct rlimit limit = {1, 1};

            right = right && getrlimit((__rlimit_resource_t)zero[i], &limit) == 0 &&
                    limit.rlim_cur == 0 && limit.rlim_max == 0;
        }
        signal(SIGXFSZ, SIG_IGN);
        right = right && write(file, "x", 1) < 0 && errno == EFBIG;
        _exit(!right);
    }
    T_TRUE("limits", waitpid(process, &result, 0) == process && result == 0);
    close(file);
    unlink("limited");
}

int main(void)
{
    /* landlock_create_ruleset(2): requests the version; below 0: the kernel has none. */
    long known = syscall(444, NULL, 0, 1u);
    uint32_t version, none;
    int tried = 0;

    T_TRUE("folder", mkdtemp(folder) && chdir(folder) == 0);
    test_limits();
    T_EACH(row, row, rows)
    {
        int file = open("there", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        int got = outcome(row, true, &version);

        close(file);
        T_EQ(row->name, version, known > 0 ? known : 0);
        if (version >= row->since) {
            T_EQ(row->name, got, EACCES);
            T_EQ(row->name, outcome(row, false, &none), row->before);
            tried++;
        }
        unlink("made");
        rmdir("folder");
    }
    unlink("there");
    T_TRUE("clean", chdir("/") == 0 && rmdir(folder) == 0);
    if (tried == 0) {
        t_skip("the kernel has no Landlock");
    }
    return t_finish();
}
