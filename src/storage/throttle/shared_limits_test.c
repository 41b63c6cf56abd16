/* Limits that processes share: forked processes that take leases of one limit, some of which are
 * killed; one rate; damaged and foreign files. */
#include "base/random.h"
#include "io/clock.h"
#include "storage/throttle/shared_limits.h"
#include "storage/throttle/shared_limits_file.h"
#include "test/t.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull
#define RANKS 6u
#define LIMIT 20u

static char folder[] = "/tmp/stk_node_XXXXXX", file_path[128];

static struct stk_shared_limits *open_node(uint32_t connections_max)
{
    struct stk_shared_limits_options options = {.folder = folder,
                                                .connections_max = connections_max};
    struct stk_shared_limits *node = NULL;

    T_EQ("open", stk_shared_limits_open(&node, &options, NULL), 0);
    return node;
}

static void test_members(void)
{
    struct stk_shared_limits *a = open_node(10), *b = open_node(0), *alone;
    struct stk_shared_limits_options options = {.folder = folder, .not_shared = true};
    struct stk_shared_limits_stats stats;
    uint64_t now_ns = stk_clock_ns();
    uint32_t taken = 0;

    T_STR("shared", stk_shared_limits_note(a), "");
    stk_shared_limits_request(a, 100, now_ns);
    while (stk_shared_limits_acquire(a, now_ns)) {
        taken++;
    }
    T_EQ("one takes all that no other process wants", taken, 10);
    T_EQ("which is what it holds", stk_shared_limits_held(a), 10);
    T_EQ("and returns none while no process wants any", stk_shared_limits_excess(a, now_ns), 0);
    T_TRUE("without a demand there is nothing to take", !stk_shared_limits_acquire(b, now_ns));
    stk_shared_limits_request(b, 3, now_ns);
    T_TRUE("all are taken", !stk_shared_limits_acquire(b, now_ns));
    T_EQ("three are wanted", stk_shared_limits_excess(a, now_ns), 3);
    stk_shared_limits_release(a, 3);
    T_TRUE("then they can be taken", stk_shared_limits_acquire(b, now_ns) &&
                                         stk_shared_limits_acquire(b, now_ns) &&
                                         stk_shared_limits_acquire(b, now_ns));
    T_TRUE("no more than wanted", !stk_shared_limits_acquire(b, now_ns));
    T_TRUE("nor again by the first", !stk_shared_limits_acquire(a, now_ns));
    stk_shared_limits_get_stats(a, now_ns, &stats);
    T_EQ("all in use", stats.connections, 10);
    T_EQ("the least bound holds", stats.connections_max, 10);
    T_EQ("two members", stats.members, 2);
    T_EQ("an old demand is none",
         stk_shared_limits_excess(a, now_ns + 3 * STK_SHARED_LIMITS_STALE_MS * MS), 0);
    stk_shared_limits_close(b);
    stk_shared_limits_get_stats(a, now_ns, &stats);
    T_EQ("closing gives all", stats.connections, 7);
    stk_shared_limits_close(a);
    T_EQ("alone", stk_shared_limits_open(&alone, &options, NULL), 0);
    T_STR("and says so", stk_shared_limits_note(alone), "disabled by an option");
    stk_shared_limits_request(alone, 5, now_ns);
    T_TRUE("with a budget of its own", stk_shared_limits_acquire(alone, now_ns));
    stk_shared_limits_close(alone);
}

/* A rank: acquires and releases at random until it is killed; count is shared by all. */
static void be_rank(uint32_t rank, _Atomic int32_t *inside, _Atomic uint32_t *worst)
{
    struct stk_shared_limits *node = open_node(LIMIT);
    uint64_t key = rank + 1;

    for (;;) {
        uint64_t now_ns = stk_clock_ns();
        uint32_t surplus;

        key = stk_mix64(key + 1);
        stk_shared_limits_request(node, (uint32_t)(key % 30), now_ns);
        if (stk_shared_limits_acquire(node, now_ns)) {
            int32_t now = atomic_fetch_add(inside, 1) + 1;
            uint32_t most = atomic_load(worst);

            while ((uint32_t)now > most &&
                   !atomic_compare_exchange_weak(worst, &most, (uint32_t)now)) {
            }
        }
        surplus = stk_shared_limits_excess(node, now_ns);
        if (key % 7 == 0) {
            surplus = (uint32_t)stk_max(surplus, stk_min(2, stk_shared_limits_held(node)));
        }
        atomic_fetch_sub(inside, (int32_t)surplus); /* before others can have them */
        stk_shared_limits_release(node, surplus);
    }
}

static void test_ranks(void)
{
    struct {
        _Atomic int32_t inside;
        _Atomic uint32_t worst;
    } *seen = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t ranks[RANKS];
    struct stk_shared_limits *node;
    struct stk_shared_limits_stats stats;
    uint64_t now_ns;
    uint32_t taken = 0;

    fflush(NULL);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = fork();
        if (ranks[i] == 0) {
            be_rank(i, &seen->inside, &seen->worst);
            _exit(0);
        }
    }
    poll(NULL, 0, 400);
    T_TRUE("the budget is used", atomic_load(&seen->worst) > LIMIT / 2);
    T_TRUE("and never passed", atomic_load(&seen->worst) <= LIMIT);
    for (uint32_t i = 0; i < RANKS; i++) {
        kill(ranks[i], SIGKILL);
        waitpid(ranks[i], NULL, 0);
    }
    node = open_node(LIMIT);
    now_ns = stk_clock_ns();
    stk_shared_limits_get_stats(node, now_ns, &stats); /* its initial number depends on it */
    T_EQ("the killed are no neighbours", stats.members, 1);
    T_EQ("and hold nothing", stats.connections, 0);
    stk_shared_limits_request(node, 100, now_ns);
    while (stk_shared_limits_acquire(node, now_ns)) {
        taken++;
    }
    T_EQ("what the killed held is free again", taken, LIMIT);
    stk_shared_limits_close(node);
    munmap(seen, 4096);
}

/* A stopped process is alive: it keeps its leases, and its share passes to the others. */
static void test_stopped(void)
{
    int pipe_ends[2];
    pid_t rank;
    char ready;
    struct stk_shared_limits *node;
    uint64_t now_ns;
    uint32_t taken = 0;

    T_EQ("pipe", pipe(pipe_ends), 0);
    fflush(NULL);
    rank = fork();
    if (rank == 0) {
        node = open_node(LIMIT);
        now_ns = stk_clock_ns();
        stk_shared_limits_request(node, 5, now_ns);
        while (stk_shared_limits_acquire(node, now_ns)) {
        }
        if (write(pipe_ends[1], "x", 1) != 1) {
            _exit(1);
        }
        pause();
    }
    T_EQ("it holds five", read(pipe_ends[0], &ready, 1), 1);
    node = open_node(LIMIT);
    now_ns = stk_clock_ns();
    stk_shared_limits_request(node, 100, now_ns);
    while (stk_shared_limits_acquire(node, now_ns)) {
        taken++;
    }
    T_EQ("15 are left", taken, 15);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    stk_shared_limits_request(node, 100, now_ns + 200 * MS);
    while (stk_shared_limits_acquire(node, now_ns + 200 * MS)) {
        taken++;
    }
    T_EQ("its five come back", taken, LIMIT);
    stk_shared_limits_close(node);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* A throttled response to one rank limits all ranks. */
static void test_rate(void)
{
    struct stk_shared_limits *a = open_node(0), *b = open_node(0);
    uint64_t now_ns = stk_clock_ns();
    uint32_t admitted = 0;
    struct stk_shared_limits_stats stats = {0};
    struct stk_shared_limits_state verdict = {0};

    for (uint32_t i = 0; i < 300; i++) {
        now_ns += MS;
        T_TRUE("no limit", stk_shared_limits_admit(i % 2 ? a : b, 77, now_ns, NULL));
        verdict = stk_shared_limits_record(i % 2 ? a : b, 77, now_ns, now_ns, false);
    }
    T_TRUE("not throttled", !verdict.throttled && !verdict.ineffective);
    for (uint32_t i = 0; i < 3 * STK_RATE_LIMIT_WINDOW_MS && stats.rate == 0; i++) {
        now_ns += MS;
        T_TRUE("no limit yet", stk_shared_limits_admit(i % 2 ? a : b, 77, now_ns, NULL));
        verdict = stk_shared_limits_record(i % 2 ? a : b, 77, now_ns, now_ns, true);
        T_TRUE("throttled", verdict.throttled && !verdict.ineffective);
        stk_shared_limits_get_stats(b, now_ns, &stats);
    }
    stk_shared_limits_get_stats(b, now_ns, &stats);
    T_TRUE("the other sees half of 1,000 a second", stats.rate > 400000 && stats.rate < 600000);
    for (uint32_t i = 0; i < 1000; i++) {
        now_ns += MS;
        admitted += stk_shared_limits_admit(a, 77, now_ns, NULL) ? 1 : 0;
        admitted += stk_shared_limits_admit(b, 77, now_ns, NULL) ? 1 : 0;
    }
    T_TRUE("both together have it", admitted > 400 && admitted < 600);
    T_TRUE("other prefixes have no limit", stk_shared_limits_admit(a, 78, now_ns, NULL));
    for (uint64_t prefix = 1000; prefix < 6000; prefix++) { /* more than there are places */
        T_TRUE("any number of prefixes",
               stk_shared_limits_admit(a, prefix * 2, now_ns + prefix, NULL));
    }
    stk_shared_limits_close(a);
    stk_shared_limits_close(b);
}

/* A process that died while it held the lock of a rate delays others only briefly: the lock is
 * freed, and the rate stays in use. */
static void test_killed_in_a_pace(void)
{
    struct stk_shared_limits *node;
    struct stk_shared_limits_file *file;
    uint64_t now_ns = stk_clock_ns();
    const char *why;
    int pipe_ends[2], fd = -1;
    pid_t rank;
    char ready;

    T_EQ("pipe", pipe(pipe_ends), 0);
    fflush(NULL);
    node = open_node(0);
    rank = fork();
    if (rank == 0) {
        node = open_node(0);
        if (write(pipe_ends[1], "x", 1) != 1) {
            _exit(1);
        }
        pause();
    }
    T_EQ("it is there", read(pipe_ends[0], &ready, 1), 1);
    T_TRUE("a pace", stk_shared_limits_admit(node, 99, now_ns, NULL));
    T_EQ("the file", stk_shared_limits_file_open(folder, &fd, &file, &why), 0);
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_RATES; i++) {
        if (atomic_load(&file->rates[i].prefix) == 99) {
            atomic_store(&file->rates[i].holder, 2); /* the second member's */
        }
    }
    T_TRUE("no wait for who holds it", stk_shared_limits_admit(node, 99, now_ns, NULL));
    T_TRUE("nor by an answer",
           stk_shared_limits_record(node, 99, now_ns, now_ns + 200 * MS, true).throttled);
    T_TRUE("but nothing is stored",
           !stk_shared_limits_record(node, 99, now_ns, now_ns, false).throttled);
    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    (void)stk_shared_limits_record(node, 99, now_ns, now_ns + 400 * MS,
                                   true); /* finds that it is dead */
    (void)stk_shared_limits_record(node, 99, now_ns, now_ns + 401 * MS, true);
    T_TRUE("then it is",
           stk_shared_limits_record(node, 99, now_ns, now_ns + 402 * MS, false).throttled);
    stk_shared_limits_file_close(fd, file);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    stk_shared_limits_close(node);
}

/* A child that closes the limits that it inherited by fork does not change its parent's; a member
 * in its place starts with nothing. */
static void test_forked(void)
{
    struct stk_shared_limits *node = open_node(LIMIT), *other;
    uint64_t now_ns = stk_clock_ns();
    struct stk_shared_limits_stats stats;
    pid_t rank;

    stk_shared_limits_request(node, 5, now_ns);
    T_TRUE("taken", stk_shared_limits_acquire(node, now_ns));
    fflush(NULL);
    rank = fork();
    if (rank == 0) {
        stk_shared_limits_close(node);
        _exit(0);
    }
    waitpid(rank, NULL, 0);
    other = open_node(0);
    stk_shared_limits_get_stats(other, now_ns, &stats);
    T_EQ("both are members", stats.members, 2);
    T_EQ("it has what it had", stats.connections, 1);
    stk_shared_limits_request(other, 100, now_ns + 10 * 1000 * MS);
    stk_shared_limits_release(node, 7); /* more than it holds */
    T_EQ("none is held", stk_shared_limits_held(node), 0);
    T_TRUE("a demand of the future is none", !stk_shared_limits_acquire(other, now_ns));
    stk_shared_limits_close(other);
    stk_shared_limits_close(node);
}

/* An old rate is not reported. */
static void test_stats(void)
{
    struct stk_shared_limits *node = open_node(0);
    uint64_t now_ns = stk_clock_ns();
    struct stk_shared_limits_stats stats = {0};

    for (uint32_t i = 0; i < 3 * STK_RATE_LIMIT_WINDOW_MS && stats.rate == 0; i++) {
        now_ns += MS;
        (void)stk_shared_limits_record(node, 55, now_ns, now_ns, true);
        stk_shared_limits_get_stats(node, now_ns, &stats);
    }
    T_TRUE("a rate", stats.rate > 0);
    stk_shared_limits_get_stats(node, now_ns + STK_RATE_LIMIT_EXPIRE_S * 1000 * MS, &stats);
    T_EQ("of long ago", stats.rate, 0);
    stk_shared_limits_close(node);
}

/* Leases of processes without demand: the total is never more than the limit of all. */
static void test_all_taken(void)
{
    struct stk_shared_limits *a = open_node(10), *b = open_node(10);
    uint64_t now_ns = stk_clock_ns();
    uint32_t taken = 0;

    stk_shared_limits_request(a, 10, now_ns);
    while (stk_shared_limits_acquire(a, now_ns)) {
        taken++;
    }
    T_EQ("all", taken, 10);
    stk_shared_limits_request(b, 10, now_ns);
    T_TRUE("none is left", !stk_shared_limits_acquire(b, now_ns));
    stk_shared_limits_release(a, 2);
    T_EQ("what is unused is enough for whom lacks so much", stk_shared_limits_excess(a, now_ns), 3);
    stk_shared_limits_request(b, 2, now_ns);
    T_EQ("none more needs to be given", stk_shared_limits_excess(a, now_ns), 0);
    stk_shared_limits_request(a, 1, now_ns);
    stk_shared_limits_request(b, 1, now_ns);
    T_EQ("nor of what it does not want itself", stk_shared_limits_excess(a, now_ns), 0);
    stk_shared_limits_close(a);
    stk_shared_limits_close(b);
}

/* A process in a dead one's place gets none of its leases. */
static void test_in_its_place(void)
{
    uint64_t now_ns = stk_clock_ns();
    struct stk_shared_limits *node;
    uint32_t taken = 0;
    pid_t rank;

    fflush(NULL);
    rank = fork();
    if (rank == 0) {
        node = open_node(LIMIT);
        stk_shared_limits_request(node, 5, now_ns);
        while (stk_shared_limits_acquire(node, now_ns)) {
        }
        kill(getpid(), SIGKILL);
    }
    waitpid(rank, NULL, 0);
    node = open_node(LIMIT);
    stk_shared_limits_request(node, 100, now_ns);
    while (stk_shared_limits_acquire(node, now_ns)) {
        taken++;
    }
    T_EQ("all are free", taken, LIMIT);
    stk_shared_limits_close(node);
}

static void put(const char *bytes, size_t count, mode_t mode)
{
    int fd;

    unlink(file_path);
    fd = open(file_path, O_WRONLY | O_CREAT | O_EXCL, mode);
    T_TRUE("a file is put there", fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    fchmod(fd, mode);
    close(fd);
}

static void test_files(void)
{
    static char bytes[sizeof(struct stk_shared_limits_file) + 8];
    struct stk_shared_limits_options nowhere = {.folder = "/proc/self"};
    char second[160];
    struct stk_shared_limits *node;
    uint64_t now_ns = stk_clock_ns();

    for (size_t count = 0; count < sizeof bytes; count = count * 2 + 1) {
        put(bytes, count, 0600);
        node = open_node(0);
        T_STR("a damaged file is made anew", stk_shared_limits_note(node), "");
        stk_shared_limits_close(node);
    }
    put(bytes, 100, 0666);
    node = open_node(0);
    T_HAS("one that others may write is refused", stk_shared_limits_note(node), "only this user");
    stk_shared_limits_request(node, 1, now_ns);
    T_TRUE("alone it works on", stk_shared_limits_acquire(node, now_ns));
    stk_shared_limits_close(node);
    put(bytes, 100, 0600);
    snprintf(second, sizeof second, "%s-2", file_path);
    T_EQ("a second name", link(file_path, second), 0);
    node = open_node(0);
    T_HAS("one with another name is refused", stk_shared_limits_note(node), "only this user");
    stk_shared_limits_close(node);
    unlink(second);
    if (geteuid() == 0) {
        T_EQ("given away", chown(file_path, 1, 1), 0);
        node = open_node(0);
        T_HAS("another's is refused", stk_shared_limits_note(node), "only this user");
        stk_shared_limits_close(node);
    }
    unlink(file_path);
    T_EQ("link", symlink("/etc/passwd", file_path), 0);
    node = open_node(0);
    T_HAS("a link is not followed", stk_shared_limits_note(node), "a link is in its place");
    stk_shared_limits_close(node);
    unlink(file_path);
    T_EQ("a folder", mkdir(file_path, 0700), 0);
    node = open_node(0);
    T_TRUE("nor is a folder one", stk_shared_limits_note(node)[0] != '\0');
    stk_shared_limits_close(node);
    rmdir(file_path);
    T_EQ("without a place", stk_shared_limits_open(&node, &nowhere, NULL), 0);
    T_TRUE("it says why it is alone", stk_shared_limits_note(node)[0] != '\0');
    stk_shared_limits_close(node);
}

/* A file with a good head whose content is damaged. */
static void test_damaged_content(void)
{
    static char bytes[sizeof(struct stk_shared_limits_file)];
    struct stk_shared_limits_file *file = (struct stk_shared_limits_file *)(void *)bytes;
    struct stat stat_before, stat_after;
    struct stk_shared_limits *node;
    uint64_t now_ns = stk_clock_ns();
    uint32_t taken = 0;

    file->magic = STK_SHARED_LIMITS_MAGIC;
    file->layout = STK_SHARED_LIMITS_LAYOUT;
    file->bytes = sizeof *file;
    /* Members without locks, leases without an owner. */
    memset((char *)bytes + 16, 0xff, sizeof *file - 16);
    put(bytes, sizeof *file, 0600);
    stat(file_path, &stat_before);
    node = open_node(30);
    T_STR("one with a good head is used", stk_shared_limits_note(node), "");
    stat(file_path, &stat_after);
    T_EQ("as it is", stat_after.st_ino, stat_before.st_ino);
    stk_shared_limits_request(node, 100, now_ns);
    while (stk_shared_limits_acquire(node, now_ns)) {
        taken++;
    }
    T_EQ("leases without an owner are free", taken, 30);
    T_TRUE("limits without an owner delay no process",
           stk_shared_limits_admit(node, 3, now_ns, NULL));
    stk_shared_limits_close(node);
}

/* Another program cuts the file while it is mapped: the process works alone, within its own limit,
 * and the next one makes a new file. */
static void test_cut_while_mapped(void)
{
    struct stk_shared_limits *node = open_node(5), *next;
    struct stk_shared_limits_stats stats;
    uint64_t now_ns = stk_clock_ns();
    uint32_t taken = 0;

    stk_shared_limits_request(node, 100, now_ns);
    T_TRUE("before", stk_shared_limits_acquire(node, now_ns));
    T_EQ("cut", truncate(file_path, 0), 0);
    stk_shared_limits_release(node, 1);
    stk_shared_limits_request(node, 100, now_ns);
    while (taken < LIMIT && stk_shared_limits_acquire(node, now_ns)) {
        taken++;
    }
    T_EQ("its own limit", taken, 5);
    stk_shared_limits_get_stats(node, now_ns, &stats);
    T_EQ("of all", stats.connections, 5);
    next = open_node(7);
    T_STR("a new file", stk_shared_limits_note(next), "");
    stk_shared_limits_get_stats(next, now_ns, &stats);
    T_EQ("with one member", stats.members, 1);
    stk_shared_limits_close(next);
    stk_shared_limits_close(node);
}

int main(void)
{
    if (!mkdtemp(folder)) {
        t_skip("no folder");
    }
    snprintf(file_path, sizeof file_path, "%s/stoker-%u-%u", folder, STK_SHARED_LIMITS_LAYOUT,
             (unsigned)geteuid());
    test_members();
    test_ranks();
    test_stopped();
    test_rate();
    test_killed_in_a_pace();
    test_forked();
    test_stats();
    test_all_taken();
    test_in_its_place();
    test_files();
    test_damaged_content();
    test_cut_while_mapped();
    unlink(file_path);
    rmdir(folder);
    return t_finish();
}
