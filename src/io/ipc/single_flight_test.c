/* Goal: one of many processes works and the others use its result; after kill -9 at any time
 * another process becomes the leader; a result is never older than the request for it.
 * Method: forked children that start together and count their work in shared memory. */
#include "io/ipc/single_flight.h"

#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 8

struct shared {
    _Atomic int begun, worked, taken, right, none;
};

static struct shared *shared;

static void child(int kill_at_first, uint32_t timeout_ms, const char *result)
{
    struct stk_single_flight turn;
    char text[64] = "";
    enum stk_single_flight_role whose;

    atomic_fetch_add(&shared->begun, 1);
    while (atomic_load(&shared->begun) < PROCESSES) {
        usleep(1000);
    }
    whose = stk_single_flight_begin(&turn, "00ff", timeout_ms);
    if (whose == STK_SINGLE_FLIGHT_LEADER) {
        int before = atomic_fetch_add(&shared->worked, 1);

        usleep(300000);
        if (before < kill_at_first) {
            kill(getpid(), SIGKILL);
        }
        if (stk_single_flight_has_waiters(&turn)) {
            stk_single_flight_publish(&turn,
                                      (struct stk_view){(const uint8_t *)result, strlen(result)});
        }
    } else if (whose == STK_SINGLE_FLIGHT_FOLLOWER) {
        int fd = open(turn.path, O_RDONLY);
        ssize_t got = read(fd, text, sizeof text - 1);

        atomic_fetch_add(&shared->taken, 1);
        atomic_fetch_add(&shared->right, got >= 0 && strcmp(text, result) == 0);
    } else {
        atomic_fetch_add(&shared->none, 1);
    }
    stk_single_flight_end(&turn);
    stk_single_flight_end(&turn);
    _exit(0);
}

static void run(const char *name, int kills, uint32_t timeout_ms, const char *result)
{
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            child(kills, timeout_ms, result);
        }
    }
    while (wait(NULL) > 0) {
    }
    if (timeout_ms > 1000) {
        T_EQ(name, shared->worked, kills + 1);
        T_EQ(name, shared->taken, PROCESSES - kills - 1);
        T_EQ(name, shared->right, PROCESSES - kills - 1);
    } else {
        T_EQ(name, shared->worked, 1);
        T_EQ(name, shared->none, PROCESSES - 1);
    }
}

static void path_in(char path[256], const char *name)
{
    snprintf(path, 256, "%s/stoker-turns-%u/%s", getenv("STOKER_NODE_DIR"), (unsigned)geteuid(),
             name);
}

static void put_file(const char *path, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    T_EQ("put", ftruncate(fd, (off_t)bytes), 0);
    close(fd);
}

/* The files of a killed process neither block others, nor give them a result. */
static void test_left(void)
{
    struct stk_view result = {(const uint8_t *)"x", 1};
    struct stk_single_flight turn;
    struct stat about;
    char path[256];

    T_EQ("first", stk_single_flight_begin(&turn, "ab", 100), STK_SINGLE_FLIGHT_LEADER);
    stk_single_flight_end(&turn);
    put_file(turn.path, 100);
    T_EQ("mine", stk_single_flight_begin(&turn, "ab", 100), STK_SINGLE_FLIGHT_LEADER);
    T_TRUE("an old result is gone before others look", access(turn.path, F_OK) < 0);
    path_in(path, "ab.part");
    put_file(path, 100);
    T_EQ("publish", stk_single_flight_publish(&turn, result), 0);
    T_TRUE("this result alone", stat(turn.path, &about) == 0 && about.st_size == 1);
    stk_single_flight_end(&turn);
}

/* A disk that is full after the first bytes. */
static void test_no_room(void)
{
    static uint8_t bytes[5000];
    struct rlimit before, few;
    struct stk_single_flight turn;
    char path[256];

    T_EQ("limit", getrlimit(RLIMIT_FSIZE, &before), 0);
    few = (struct rlimit){1000, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    T_EQ("mine", stk_single_flight_begin(&turn, "ac", 100), STK_SINGLE_FLIGHT_LEADER);
    T_EQ("limit", setrlimit(RLIMIT_FSIZE, &few), 0);
    T_EQ("no room", stk_single_flight_publish(&turn, (struct stk_view){bytes, sizeof bytes}),
         -EFBIG);
    T_EQ("limit", setrlimit(RLIMIT_FSIZE, &before), 0);
    T_TRUE("no half result", access(turn.path, F_OK) < 0);
    path_in(path, "ac.part");
    T_TRUE("nor a part of one", access(path, F_OK) < 0);
    stk_single_flight_end(&turn);
}

/* Ends as the child of fork would: without stk_single_flight_end. */
static int status_of(pid_t child)
{
    int status = -1;

    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The leader's lock ends though a child of fork still has its descriptor; a waiting process gets
 * its result. */
static void test_child_holds(void)
{
    struct stk_view result = {(const uint8_t *)"x", 1};
    struct stk_single_flight turn, other;
    pid_t holder, waiter;

    T_EQ("mine", stk_single_flight_begin(&turn, "ad", 100), STK_SINGLE_FLIGHT_LEADER);
    holder = fork();
    if (holder == 0) {
        pause();
        _exit(0);
    }
    waiter = fork();
    if (waiter == 0) {
        _exit((int)stk_single_flight_begin(&other, "ad", 5000));
    }
    while (!stk_single_flight_has_waiters(&turn)) {
        usleep(1000);
    }
    T_EQ("publish", stk_single_flight_publish(&turn, result), 0);
    stk_single_flight_end(&turn);
    T_EQ("taken", status_of(waiter), STK_SINGLE_FLIGHT_FOLLOWER);
    kill(holder, SIGKILL);
    status_of(holder);
    T_EQ("later", stk_single_flight_begin(&turn, "ad", 100), STK_SINGLE_FLIGHT_LEADER);
    stk_single_flight_end(&turn);
}

/* A process that waited, and then became the leader, has no waiting time left. */
static void test_passed_on(void)
{
    struct stk_single_flight turn;
    int ends[2];
    char ready;
    pid_t holder;

    T_EQ("pipe", pipe(ends), 0);
    holder = fork();
    if (holder == 0) {
        int whose = (int)stk_single_flight_begin(&turn, "ae", 100);
        ssize_t sent = write(ends[1], "x", 1);

        while (!stk_single_flight_has_waiters(&turn)) {
            usleep(1000);
        }
        _exit(sent == 1 ? whose : 99);
    }
    T_EQ("held", read(ends[0], &ready, 1), 1);
    T_EQ("mine by its end", stk_single_flight_begin(&turn, "ae", 60000), STK_SINGLE_FLIGHT_LEADER);
    T_EQ("it was its", status_of(holder), STK_SINGLE_FLIGHT_LEADER);
    T_TRUE("no other process waits", !stk_single_flight_has_waiters(&turn));
    stk_single_flight_end(&turn);
    close(ends[0]);
    close(ends[1]);
}

static void test_not_ours(const char *folder)
{
    struct stk_single_flight turn;
    char path[256];

    /* A link is not followed. */
    snprintf(path, sizeof path, "%s/stoker-turns-%u/dd.lock", folder, (unsigned)geteuid());
    T_EQ("link", symlink("../elsewhere", path), 0);
    T_EQ("link", stk_single_flight_begin(&turn, "dd", 100), STK_SINGLE_FLIGHT_UNAVAILABLE);
    stk_single_flight_end(&turn);
    T_EQ("link", unlink(path), 0);
    snprintf(path, sizeof path, "%s/elsewhere", folder);
    T_TRUE("nothing is made there", access(path, F_OK) < 0);
    /* A folder that others may write to is not trusted, nor one of another user. */
    snprintf(path, sizeof path, "%s/stoker-turns-%u", folder, (unsigned)geteuid());
    if (geteuid() == 0) {
        T_EQ("given away", chown(path, 1, 1), 0);
        T_EQ("another's", stk_single_flight_begin(&turn, "aa", 100), STK_SINGLE_FLIGHT_UNAVAILABLE);
        T_EQ("taken back", chown(path, 0, 0), 0);
    }
    chmod(path, 0777);
    T_EQ("open to all", stk_single_flight_begin(&turn, "aa", 100), STK_SINGLE_FLIGHT_UNAVAILABLE);
    setenv("STOKER_NODE_DIR", "/nonexistent", 1);
    T_EQ("nowhere", stk_single_flight_begin(&turn, "aa", 100), STK_SINGLE_FLIGHT_UNAVAILABLE);
}

int main(void)
{
    static char folder[] = "/tmp/stoker-turn-XXXXXX", path[128];
    struct stk_single_flight turn, other;

    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    setenv("STOKER_NODE_DIR", folder, 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    run("one works", 0, 60000, "result");
    run("none to give", 0, 60000, "");
    run("killed", 1, 60000, "after a kill");
    run("killed twice", 2, 60000, "after two");
    for (int i = 0; i < 3; i++) { /* some give up while the leader removes its files */
        run("no patience", 0, 50, "late");
    }
    snprintf(path, sizeof path, "%s/stoker-turns-%u", folder, (unsigned)geteuid());
    T_EQ("nothing stays", rmdir(path), 0);
    run("many rounds", 0, 60000, "again");
    T_EQ("nothing stays", rmdir(path), 0);
    /* A later process does the work again: it does not get an old result. */
    T_EQ("alone", stk_single_flight_begin(&turn, "aa", 100), STK_SINGLE_FLIGHT_LEADER);
    T_EQ("alone", stk_single_flight_has_waiters(&turn), false);
    T_EQ("alone", stk_single_flight_publish(&turn, (struct stk_view){(const uint8_t *)"x", 1}), 0);
    T_EQ("busy", stk_single_flight_begin(&other, "aa", 50), STK_SINGLE_FLIGHT_UNAVAILABLE);
    stk_single_flight_end(&turn);
    T_TRUE("no result stays", access(turn.path, F_OK) < 0);
    T_EQ("later", stk_single_flight_begin(&turn, "aa", 100), STK_SINGLE_FLIGHT_LEADER);
    T_TRUE("later", access(turn.path, F_OK) < 0);
    stk_single_flight_end(&turn);
    /* A lock on a removed file is void: its holder does not block others, and a process that waited
     * for it starts again. */
    T_EQ("mine", stk_single_flight_begin(&turn, "bb", 100), STK_SINGLE_FLIGHT_LEADER);
    snprintf(path, sizeof path, "%s/stoker-turns-%u/bb.lock", folder, (unsigned)geteuid());
    T_EQ("removed", unlink(path), 0);
    T_EQ("mine too", stk_single_flight_begin(&other, "bb", 100), STK_SINGLE_FLIGHT_LEADER);
    stk_single_flight_end(&turn);
    T_EQ("not its to remove", access(path, F_OK), 0);
    stk_single_flight_end(&other);
    T_TRUE("removed by its holder", access(path, F_OK) < 0);
    /* A result that cannot be published leaves nothing. */
    T_EQ("mine", stk_single_flight_begin(&turn, "cc", 100), STK_SINGLE_FLIGHT_LEADER);
    T_EQ("in the way", mkdir(turn.path, 0700), 0);
    T_TRUE("refused",
           stk_single_flight_publish(&turn, (struct stk_view){(const uint8_t *)"x", 1}) < 0);
    snprintf(path, sizeof path, "%s/stoker-turns-%u/cc.part", folder, (unsigned)geteuid());
    T_TRUE("no part stays", access(path, F_OK) < 0);
    T_EQ("away", rmdir(turn.path), 0);
    stk_single_flight_end(&turn);
    test_left();
    test_no_room();
    test_child_holds();
    test_passed_on();
    test_not_ours(folder);
    return t_finish();
}
