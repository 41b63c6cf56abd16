/* stoker-decode-test: a decode helper that an image or member has compromised. Those that begin
 * with "ROGUE " name the action that it then tries; all others are decoded as stoker-decode does.
 * An action that is refused, but does not end the process, is followed by an error that says
 * "refused", one that succeeds by an error that says "ESCAPED". */
#include "programs/decode_helper/helper_serve.h"

#include "decode/sandbox/helper_protocol.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Calls that are tried by number: nothing of the C library in between. */
static const struct {
    const char *name;
    long call;
    long arguments[3];
} tries[] = {
    {"open", SYS_openat, {AT_FDCWD, (long)"/etc/passwd", O_RDONLY}},
    {"create", SYS_openat, {AT_FDCWD, (long)"/tmp/stoker-rogue", O_CREAT | O_WRONLY}},
    {"socket", SYS_socket, {AF_INET, SOCK_STREAM, 0}},
    {"exec", SYS_execve, {(long)"/bin/true", 0, 0}},
    {"fork", SYS_clone, {SIGCHLD, 0, 0}},
    {"ptrace", SYS_ptrace, {PTRACE_TRACEME, 0, 0}},
    {"kill", SYS_kill, {1, 0, 0}},
    {"write", SYS_write, {STK_HELPER_SOCKET, (long)"x", 1}},
    {"shrink", SYS_ftruncate, {STK_HELPER_ARENA, 0, 0}},
    {"limits", SYS_prlimit64, {0, 9, 0}},
    {"memory", SYS_memfd_create, {(long)"x", 0, 0}},
    {"uring", SYS_io_uring_setup, {1, 0, 0}},
    {"unlink", SYS_unlink, {(long)"/tmp/stoker-rogue", 0, 0}},
};

static int tell(struct stoker_error *error, long result)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, result < 0 ? "refused" : "ESCAPED", "repair it",
                    "%ld %d", result, errno);
}

/* Machine code in memory that may be run. */
static long run_own_code(void)
{
    void *page =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return page == MAP_FAILED ? -1 : 0;
}

/* Answers that no decoder sends: to sequence numbers 1, 2, ... in any order. */
static void answer_nonsense(const char *how)
{
    struct stk_helper_reply answer = {.protocol = STK_HELPER_PROTOCOL, .sequence = 1};
    size_t bytes = STK_HELPER_REPLY_HEAD;

    if (strcmp(how, "text") == 0) { /* a good answer but for its text: never ended, with escapes */
        answer.kind = STK_HELPER_FAILED;
        answer.status = STOKER_ERROR_CORRUPT;
        answer.value = 1ull << 60;
        memset(answer.what, '\033', sizeof answer.what);
        memset(answer.where, '%', sizeof answer.where);
        memset(answer.advice, '\n', sizeof answer.advice);
        bytes = sizeof answer;
    } else if (strcmp(how, "status") == 0) {
        answer.kind = STK_HELPER_FAILED;
        answer.status = STOKER_ERROR_BUDGET; /* would stop the run */
        bytes = sizeof answer;
    } else if (strcmp(how, "positive") == 0) {
        answer.kind = STK_HELPER_FAILED;
        answer.status = 7;
        bytes = sizeof answer;
    } else if (strcmp(how, "kind") == 0) {
        answer.kind = 99;
    } else if (strcmp(how, "sequence") == 0) {
        answer.kind = STK_HELPER_DONE;
        answer.sequence = 77;
    } else if (strcmp(how, "huge") == 0) { /* more than there is room for */
        answer.kind = STK_HELPER_DONE;
        answer.value = 1ull << 40;
    } else if (strcmp(how, "short") == 0) {
        bytes = 3;
    } else if (strcmp(how, "needs") == 0) { /* less than was granted: requested again for ever */
        answer.kind = STK_HELPER_NEEDS_MEMORY;
        answer.value = 1;
    } else if (strcmp(how, "greedy") == 0) {
        answer.kind = STK_HELPER_NEEDS_MEMORY;
        answer.value = UINT64_MAX;
    }
    send(STK_HELPER_SOCKET, &answer, bytes, MSG_NOSIGNAL);
}

static int misbehave(const char *what, struct stoker_error *error)
{
    volatile int *nowhere = NULL;

    if (strcmp(what, "crash") == 0) {
        __asm__ volatile("" : "+r"(nowhere)); /* the compiler shall not know */
        *nowhere = 1;
    }
    if (strcmp(what, "abort") == 0) {
        abort();
    }
    if (strcmp(what, "exit") == 0) {
        exit(0);
    }
    while (strcmp(what, "loop") == 0) {
        __asm__ volatile("");
    }
    if (strcmp(what, "sleep") == 0) {
        char nothing;

        recv(STK_HELPER_SOCKET, &nothing, 1, 0);
    }
    if (strcmp(what, "code") == 0) {
        return tell(error, run_own_code());
    }
    if (strcmp(what, "descriptors") == 0) { /* descriptors that must not be open: any but two */
        for (int i = 0; i < 64; i++) {
            struct stk_helper_handshake nothing;

            if (i != STK_HELPER_SOCKET && recv(i, &nothing, 0, MSG_DONTWAIT) >= 0) {
                return tell(error, 0);
            }
        }
    }
    if (strncmp(what, "answer ", 7) == 0) {
        answer_nonsense(what + 7);
    }
    for (size_t i = 0; i < STK_COUNT(tries); i++) {
        if (strcmp(what, tries[i].name) == 0) {
            return tell(error, syscall(tries[i].call, tries[i].arguments[0], tries[i].arguments[1],
                                       tries[i].arguments[2], 0, 0, 0));
        }
    }
    return tell(error, -1);
}

static int first(struct stk_view bytes, struct stoker_error *error)
{
    char what[64];

    if (bytes.bytes < 6 || bytes.bytes > sizeof what || memcmp(bytes.data, "ROGUE ", 6) != 0) {
        return 0;
    }
    snprintf(what, sizeof what, "%.*s", (int)(bytes.bytes - 6), (const char *)bytes.data + 6);
    return misbehave(what, error);
}

int main(void)
{
    return stk_helper_serve(first);
}
