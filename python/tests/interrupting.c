/* Preloaded library for tests: sends SIGINT to the process at the Nth call that changes the file
 * system (STOKER_TEST_INTERRUPT=N:FILE), and delays that call, so that the command has seen the
 * signal when the call is made. Creates FILE then. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long calls;

static void count(void)
{
    const char *text = getenv("STOKER_TEST_INTERRUPT");
    char *file = NULL;

    if (text && atomic_fetch_add(&calls, 1) + 1 == strtol(text, &file, 10)) {
        close(open(file + 1, O_CREAT | O_WRONLY, 0600));
        kill(getpid(), SIGINT);
        usleep(150000);
    }
}

/* The next definition of a function, after the call was counted. */
static void *next(const char *name)
{
    count();
    return dlsym(RTLD_NEXT, name);
}

#define NEXT(type, name) ((type)next(name))

int rename(const char *from, const char *to)
{
    return NEXT(int (*)(const char *, const char *), "rename")(from, to);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags)
{
    return NEXT(int (*)(int, const char *, int, const char *, unsigned), "renameat2")(a, from, b,
                                                                                      to, flags);
}

int link(const char *from, const char *to)
{
    return NEXT(int (*)(const char *, const char *), "link")(from, to);
}

int unlink(const char *path)
{
    return NEXT(int (*)(const char *), "unlink")(path);
}

int unlinkat(int fd, const char *path, int flags)
{
    return NEXT(int (*)(int, const char *, int), "unlinkat")(fd, path, flags);
}

int rmdir(const char *path)
{
    return NEXT(int (*)(const char *), "rmdir")(path);
}

int mkdir(const char *path, mode_t mode)
{
    return NEXT(int (*)(const char *, mode_t), "mkdir")(path, mode);
}

int fsync(int fd)
{
    return NEXT(int (*)(int), "fsync")(fd);
}

int fdatasync(int fd)
{
    return NEXT(int (*)(int), "fdatasync")(fd);
}
