/* Preloaded library for tests: sends SIGINT to the process at the Nth call that changes the file
 * system (STOKER_TEST_INTERRUPT=N:FILE), and delays that call, so that the command has seen the
 * signal when the call is made. Creates FILE then. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;

static void count(void)
{
    const char *text = getenv("STOKER_TEST_INTERRUPT");

    if (text && atomic_fetch_add(&calls, 1) + 1 == atoi(text)) {
        close(open(strchr(text, ':') + 1, O_CREAT | O_WRONLY, 0600));
        kill(getpid(), SIGINT);
        usleep(150000);
    }
}

#define HOOK(type, name, parameters, arguments)                                                    \
    type name parameters                                                                           \
    {                                                                                              \
        type(*real) parameters = (type(*) parameters)dlsym(RTLD_NEXT, #name);                      \
                                                                                                   \
        count();                                                                                   \
        return real arguments;                                                                     \
    }

HOOK(int, rename, (const char *from, const char *to), (from, to))
HOOK(int, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags))
HOOK(int, link, (const char *from, const char *to), (from, to))
HOOK(int, unlink, (const char *path), (path))
HOOK(int, unlinkat, (int fd, const char *path, int flags), (fd, path, flags))
HOOK(int, rmdir, (const char *path), (path))
HOOK(int, mkdir, (const char *path, mode_t mode), (path, mode))
HOOK(int, fsync, (int fd), (fd))
HOOK(int, fdatasync, (int fd), (fd))
