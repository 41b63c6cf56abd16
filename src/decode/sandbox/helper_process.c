/* Starting and ending the helper process. */
#include "decode/sandbox/helper_process.h"

#include "decode/sandbox/helper_protocol.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "stoker-decode"
#define WAIT_BY_PIDFD ((idtype_t)3) /* P_PIDFD, which older headers lack */
#define FIRST_SAFE 16               /* descriptors from here on are not passed to the child */

/* A duplicate that does not collide with the numbers which the child gets. */
static int raise_descriptor(int descriptor)
{
    int raised = descriptor < 0 ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, FIRST_SAFE);

    if (descriptor >= 0) {
        close(descriptor);
    }
    return raised;
}

/* posix_spawn: signals blocked (a Ctrl-C is not for it; faults end it all the same), handlers
 * reset, every descriptor closed but two. */
static int spawn(pid_t *process, const char *program, int socket, int arena)
{
    /* The helper finds libraries as this process did; the rest of the environment is not passed
     * on. */
    const char *libraries = getenv("LD_LIBRARY_PATH");
    char path[4096] = "LD_LIBRARY_PATH=", name[] = PROGRAM;
    char *arguments[] = {name, NULL}, *environment[] = {NULL, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t all;
    int number;

    if (libraries && strlen(libraries) + strlen(path) < sizeof path) {
        /* It fits: see the condition. */
        snprintf(path + strlen(path), sizeof path - strlen(path), "%s", libraries);
        environment[0] = path;
    }
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &all);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    number = posix_spawn_file_actions_adddup2(&actions, socket, STK_HELPER_SOCKET);
    number = number ? number : posix_spawn_file_actions_adddup2(&actions, arena, STK_HELPER_ARENA);
    for (int i = 0; i < STK_HELPER_SOCKET && number == 0; i++) {
        number = posix_spawn_file_actions_addclose(&actions, i);
    }
    number =
        number ? number : posix_spawn_file_actions_addclosefrom_np(&actions, STK_HELPER_ARENA + 1);
    number = number ? number
                    : posix_spawn(process, program, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return number;
}

int stk_helper_process_start(struct stk_helper_process *child, const char *program, int arena,
                             struct stoker_error *error)
{
    int ends[2] = {-1, -1}, number, source = raise_descriptor(dup(arena));
    pid_t process = 0;

    *child = (struct stk_helper_process){.handle = -1, .socket = -1};
    if (source < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        number = errno;
        goto done;
    }
    ends[1] = raise_descriptor(ends[1]);
    number = ends[1] < 0 ? errno : spawn(&process, program, ends[1], source);
    if (number != 0) {
        goto done;
    }
    child->process = process;
    child->handle = (int)syscall(SYS_pidfd_open, process, 0);
    if (child->handle < 0) {
        number = errno;
        kill(process, SIGKILL);
        waitpid(process, NULL, 0);
        child->process = 0;
        goto done;
    }
    child->socket = ends[0];
    ends[0] = -1;
done:
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0) {
            close(ends[i]);
        }
    }
    if (source >= 0) {
        close(source);
    }
    return number ? stk_fail_errno(error, number, "cannot start the decode helper",
                                   "name it by sandbox_helper; a kernel from 5.4 on is needed",
                                   "'%s'", program)
                  : 0;
}

void stk_helper_process_limit_memory(const struct stk_helper_process *child, uint64_t address_bytes)
{
    struct rlimit limit;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    address_bytes = UINT64_MAX; /* the sanitizers' shadows alone take terabytes of addresses */
#endif
    /* Only the soft limit: without privileges a hard one could not be raised again; and the
     * child may raise neither, as it may not make the call. */
    if (prlimit(child->process, RLIMIT_AS, NULL, &limit) == 0) {
        limit.rlim_cur = (rlim_t)stk_min(address_bytes, limit.rlim_max);
        prlimit(child->process, RLIMIT_AS, &limit, NULL);
    }
}

uint64_t stk_helper_process_cpu_ns(const struct stk_helper_process *child)
{
    struct timespec used = {0};
    clockid_t clock;

    if (clock_getcpuclockid(child->process, &clock) != 0 || clock_gettime(clock, &used) != 0) {
        return 0;
    }
    return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

int stk_helper_process_stop(struct stk_helper_process *child)
{
    siginfo_t ended = {0};
    int result = -1;

    if (child->process == 0) {
        return 0;
    }
    /* Check first whether the helper ended before we kill it: afterwards every exit is by SIGKILL.
     * If another wait(-1) in the process reaped it, the cause is unknown. */
    if (waitid(WAIT_BY_PIDFD, (id_t)child->handle, &ended, WEXITED | WNOHANG) == 0) {
        if (ended.si_pid == 0) {
            syscall(SYS_pidfd_send_signal, child->handle, SIGKILL, NULL, 0);
            while (waitid(WAIT_BY_PIDFD, (id_t)child->handle, &ended, WEXITED) < 0 &&
                   errno == EINTR) {
            }
            result = 0;
        } else {
            result = ended.si_code == CLD_EXITED ? 0 : ended.si_status;
        }
    }
    close(child->handle);
    close(child->socket);
    *child = (struct stk_helper_process){.handle = -1, .socket = -1};
    return result;
}

/* Finds the file that holds this code: a program or a library. dladdr takes the name of a program
 * from argv, so the kernel's link is read instead. */
static bool own_file(char *path, size_t capacity)
{
    static const char here;
    Dl_info info;
    ssize_t length;

    if (dladdr(&here, &info) == 0 || !info.dli_fname) {
        return false;
    }
    if (getauxval(AT_PHDR) - (uintptr_t)info.dli_fbase < 4096) {
        length = readlink("/proc/self/exe", path, capacity - 1);
        path[length < 0 ? 0 : length] = 0;
        return length > 0;
    }
    return (size_t)snprintf(path, capacity, "%s", info.dli_fname) < capacity;
}

int stk_helper_process_locate(char *path, size_t capacity, struct stoker_error *error)
{
    /* In a build folder, in a wheel; for an installed command or library. */
    static const char *const places[] = {PROGRAM, "../libexec/" PROGRAM, "../bin/" PROGRAM};
    char own[PATH_MAX] = "", *slash;

    if (own_file(own, sizeof own)) {
        slash = strrchr(own, '/');
        own[slash ? slash - own + 1 : 0] = 0;
        for (size_t i = 0; i < STK_COUNT(places); i++) {
            if ((size_t)snprintf(path, capacity, "%s%s", own, places[i]) < capacity &&
                access(path, X_OK) == 0) {
                return 0;
            }
        }
    }
    return stk_fail_errno(error, ENOENT, "the decode helper '" PROGRAM "' is not there",
                          "install all of stoker, or name the program with sandbox_helper",
                          "beside '%s'", own);
}
