/* credential_process: runs a program of the user as the SDKs do, with a deadline. */
#include "storage/credentials/credential_chain.h"

#include "base/mem.h"
#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 256
#define PROCESS_MS 60000u /* a person may have to touch a key */
#define END_MS 10000u     /* after the end of its output */
#define POLL_MS 2
#define MS 1000000u

extern char **environ;

static int start(char *const *words, pid_t *process, int *output);
static int read_output(int output, char *out, size_t out_bytes, size_t *used_out);
static int wait_end(pid_t process, int *ended);
static int fail_program(const char *name, const char *what, struct stoker_error *error);

int stk_credential_process_run(const char *command, char *out, size_t out_bytes, size_t *used_out,
                               struct stoker_error *error)
{
    char *text = stk_alloc(strlen(command) + 1, 1), *words[WORDS_MAX + 1] = {NULL};
    int status = 0, ended = 0, output = -1;
    pid_t process = -1;

    if (!text) {
        return stk_fail_errno(error, ENOMEM, "cannot run credential_process", "free memory",
                              "the profile");
    }
    if (stk_credential_process_split(command, text, words, WORDS_MAX) <= 0) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "credential_process is no command",
                          "check its quotes", "the profile");
        goto done;
    }
    status = start(words, &process, &output);
    if (status < 0) {
        status = stk_fail_errno(error, -status, "credential_process cannot be started",
                                "check its path", "'%.128s'", words[0]);
        goto done;
    }
    status = read_output(output, out, out_bytes, used_out);
    if (status < 0) {
        kill(-process, SIGKILL); /* its own process group, so that its children are in it */
    }
    if (wait_end(process, &ended) < 0) {
        status = -ETIMEDOUT;
    }
    if (status == -ETIMEDOUT) {
        status = fail_program(words[0], "credential_process did not end within 60 seconds", error);
    } else if (status < 0) {
        status =
            fail_program(words[0], "credential_process wrote too much, or cannot be read", error);
    } else if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) {
        status = stk_fail(error, -EACCES, "credential_process failed",
                          "run it by hand: its output is not shown here", "'%.128s', %s %d",
                          words[0], WIFEXITED(ended) ? "status" : "signal",
                          WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
    }

done:
    if (output >= 0) {
        close(output);
    }
    if (status < 0) {
        explicit_bzero(out, out_bytes);
    }
    explicit_bzero(text, strlen(command) + 1); /* arguments may be secrets */
    stk_free(text);
    return status;
}

int stk_credential_process_split(const char *command, char *text, char **words, int words_max)
{
    int count = 0;
    char quote = 0;
    bool inside = false;

    for (;; command++) {
        char c = *command;
        if (c == 0 || (!quote && strchr(" \t\r\n", c))) {
            if (c == 0 && quote) {
                return -1;
            }
            *text = 0;
            text += inside;
            inside = false;
            if (c == 0) {
                words[count] = NULL;
                return count;
            }
            continue;
        }
        if (!inside) {
            if (count == words_max) {
                return -1;
            }
            words[count++] = text;
            inside = true;
        }
        if (quote && c == quote) {
            quote = 0;
        } else if (!quote && (c == '\'' || c == '"')) {
            quote = c;
        } else if (c == '\\' && quote != '\'' &&
                   (!quote || command[1] == quote || command[1] == '\\')) {
            if (*++command == 0) {
                return -1;
            }
            *text++ = *command;
        } else {
            *text++ = c;
        }
    }
}

/* Its output arrives through a socket. It reads no input, and its errors are not shown. */
static int start(char *const *words, pid_t *process, int *output)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int ends[2], status;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    status = posix_spawnp(process, words[0], &actions, &attributes, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (status != 0) {
        close(ends[0]);
        return -status;
    }
    *output = ends[0];
    return 0;
}

static int read_output(int output, char *out, size_t out_bytes, size_t *used_out)
{
    uint64_t until_ns = stk_clock_ns() + (uint64_t)PROCESS_MS * MS;
    size_t used = 0;

    for (;;) {
        uint64_t now_ns = stk_clock_ns();
        struct pollfd ready = {.fd = output, .events = POLLIN};
        ssize_t got;
        if (now_ns >= until_ns) {
            return -ETIMEDOUT;
        }
        if (poll(&ready, 1, (int)((until_ns - now_ns) / MS) + 1) <= 0) {
            continue;
        }
        got = recv(output, out + used, out_bytes - used, MSG_DONTWAIT);
        if (got == 0) {
            *used_out = used;
            return 0;
        }
        if (got < 0 && errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        used += got > 0 ? (size_t)got : 0;
        if (used == out_bytes) {
            return -EMSGSIZE;
        }
    }
}

/* Its output is at an end: it should be, too. Below 0: it was not, and was killed. */
static int wait_end(pid_t process, int *ended)
{
    uint64_t until_ns = stk_clock_ns() + (uint64_t)END_MS * MS;
    int status = 0;

    for (;;) {
        pid_t got = waitpid(process, ended, WNOHANG);
        if (got == process || (got < 0 && errno == ECHILD)) {
            return status; /* ECHILD: the program that we are in waits for all children itself */
        }
        if (status == 0 && stk_clock_ns() >= until_ns) {
            kill(-process, SIGKILL);
            status = -ETIMEDOUT;
        }
        poll(NULL, 0, POLL_MS);
    }
}

static int fail_program(const char *name, const char *what, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_TIMEOUT, what, "run it by hand", "'%.128s'", name);
}
