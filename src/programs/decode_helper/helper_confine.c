/* Privileges, limits, Landlock and seccomp, in this order: each step needs calls that the next one
 * forbids. */
#include "programs/decode_helper/helper_confine.h"

#include "decode/sandbox/helper_protocol.h"

#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/* With sanitizers, whose runtime makes calls of its own, a forbidden call fails but does not kill.
 */
#    define OTHERWISE SCMP_ACT_ERRNO(EPERM)
#else
#    define OTHERWISE SCMP_ACT_KILL_PROCESS
#endif

/* ---- Landlock: no file, no port, no signal; see landlock(7) ---- */

#define LANDLOCK_CREATE 444
#define LANDLOCK_RESTRICT 446
#define LANDLOCK_VERSION 1u

/* As of version 6; an older kernel takes a shorter one. */
struct landlock_rules {
    uint64_t files, network, scopes;
};

static uint64_t bits(unsigned count)
{
    return (1ull << count) - 1;
}

/* Handles all rights of a version, and grants none. */
int stk_helper_confine_files(uint32_t *version_out)
{
    long version = syscall(LANDLOCK_CREATE, NULL, 0, LANDLOCK_VERSION);
    struct landlock_rules rules = {.files = bits(13)};
    long ruleset;
    int status;

    *version_out = 0;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) { /* required by the kernel */
        return -errno;
    }
    if (version < 1) {
        return 0; /* the kernel has none, or it is switched off */
    }
    rules.files = bits(version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13);
    rules.network = version >= 4 ? bits(2) : 0;
    rules.scopes = version >= 6 ? bits(2) : 0;
    ruleset = syscall(LANDLOCK_CREATE, &rules, version >= 6 ? 24 : version >= 4 ? 16 : 8, 0);
    if (ruleset < 0) {
        return -errno;
    }
    status = syscall(LANDLOCK_RESTRICT, ruleset, 0) < 0 ? -errno : 0;
    close((int)ruleset);
    *version_out = status == 0 ? (uint32_t)version : 0;
    return status;
}

/* ---- limits ---- */

int stk_helper_confine_limits(void)
{
    static const struct {
        int resource;
        rlim_t most;
    } rows[] = {
        {RLIMIT_CORE, 0},
        {RLIMIT_FSIZE, 0},
        {RLIMIT_NPROC, 0},
        {RLIMIT_NOFILE, STK_HELPER_ARENA + 1},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct rlimit limit = {rows[i].most, rows[i].most};

        if (setrlimit((__rlimit_resource_t)rows[i].resource, &limit) < 0) {
            return -errno;
        }
    }
    return 0;
}

static int drop_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};

    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

/* ---- seccomp ---- */

static int allow_unconditional(scmp_filter_ctx filter)
{
    /* Exit, memory, and internal calls of the C library. */
    static const int plain[] = {SCMP_SYS(exit),
                                SCMP_SYS(exit_group),
                                SCMP_SYS(brk),
                                SCMP_SYS(munmap),
                                SCMP_SYS(mremap),
                                SCMP_SYS(madvise),
                                SCMP_SYS(futex),
                                SCMP_SYS(rt_sigreturn),
                                SCMP_SYS(rt_sigprocmask),
                                SCMP_SYS(restart_syscall),
                                SCMP_SYS(getpid),
                                SCMP_SYS(gettid),
                                SCMP_SYS(clock_gettime),
                                SCMP_SYS(getrandom)};
    int status = 0;

    for (size_t i = 0; i < STK_COUNT(plain) && status == 0; i++) {
        status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, plain[i], 0);
    }
    return status;
}

/* Calls that are allowed only with some arguments. */
static int allow_conditional(scmp_filter_ctx filter)
{
    const struct scmp_arg_cmp on_socket = SCMP_A0(SCMP_CMP_EQ, STK_HELPER_SOCKET);
    const struct scmp_arg_cmp no_code = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    const struct scmp_arg_cmp self = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid());
    const struct scmp_arg_cmp by_abort = SCMP_A2(SCMP_CMP_EQ, SIGABRT);
    const struct {
        int call;
        struct scmp_arg_cmp when;
    } rows[] = {
        {SCMP_SYS(recvfrom), on_socket},
        {SCMP_SYS(sendto), on_socket},
        {SCMP_SYS(mmap), no_code},
        {SCMP_SYS(mprotect), no_code},
    };
    int status = 0;

    for (size_t i = 0; i < STK_COUNT(rows) && status == 0; i++) {
        status = seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, rows[i].call, 1, &rows[i].when);
    }
    if (status == 0) { /* abort(): a crash with a message */
        status = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 2, self, by_abort);
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (status == 0) { /* its message is lost, but does not hide the reason */
        status = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EBADF), SCMP_SYS(writev), 0);
    }
#endif
    return status;
}

static int lock_syscalls(void)
{
    scmp_filter_ctx filter = seccomp_init(OTHERWISE);
    int status;

    if (!filter) {
        return -ENOMEM;
    }
    seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    /* The process has one thread and no secrets of others: mitigations of speculation would only
     * slow it down. */
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_SSB, 1);
    status = allow_unconditional(filter);
    status = status < 0 ? status : allow_conditional(filter);
    status = status < 0 ? status : seccomp_load(filter);
    seccomp_release(filter);
    return status;
}

int stk_helper_confine(uint32_t *landlock_out, const char **step_out)
{
    int status;

    *landlock_out = 0;
    *step_out = "privileges";
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) {
        return -errno;
    }
    status = drop_capabilities();
    if (status == 0) {
        *step_out = "limits";
        status = stk_helper_confine_limits();
    }
    if (status == 0) {
        *step_out = "Landlock";
        status = stk_helper_confine_files(landlock_out);
    }
    if (status == 0) {
        *step_out = "seccomp";
        status = lock_syscalls();
    }
    return status;
}
