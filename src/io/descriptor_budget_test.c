/* Goal: whatever engines want, the sum of what they get stays below the limit of open files, and
 * all get some; a call that fails for too many open files closes a cached one and is repeated.
 * Method: a limit of 64 files, reservations, and a cache of one file. */
#include "io/descriptor_budget.h"

#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct one_file {
    int fd;
};

static bool close_one(void *owner)
{
    struct one_file *cached = owner;
    bool closed = cached->fd >= 0;

    if (closed) {
        close(cached->fd);
        cached->fd = -1;
    }
    return closed;
}

static void test_shares(void)
{
    uint32_t first = stk_descriptors_reserve(256, 4), second = stk_descriptors_reserve(256, 2);
    uint32_t third = stk_descriptors_reserve(128, 2), fourth = stk_descriptors_reserve(1, 1);

    T_TRUE("each has some", first >= 4 && second >= 2 && third >= 2 && fourth == 1);
    T_TRUE("in sum fewer than the limit", first + second + third + fourth < 64 - 8);
    stk_descriptors_release(first + second + third + fourth);
    T_EQ("few are granted", stk_descriptors_reserve(3, 3), 3);
    stk_descriptors_release(3);
}

/* The sanitizers cannot fork a process with several threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define FORKS 0
#else
#    define FORKS 50
#endif

static void *reserve_on(void *argument)
{
    const _Atomic bool *stop = argument;

    while (!*stop) {
        stk_descriptors_release(stk_descriptors_reserve(1, 1));
    }
    return NULL;
}

/* While another thread has the lock most of the time. */
static void test_forks(void)
{
    _Atomic bool stop = false;
    pthread_t thread;

    T_EQ("thread", pthread_create(&thread, NULL, reserve_on, &stop), 0);
    for (int i = 0; i < FORKS; i++) {
        int state = 0;
        pid_t child = fork();

        if (child == 0) {
            alarm(20); /* a lock that is never released */
            stk_descriptors_release(stk_descriptors_reserve(1, 1));
            _exit(0);
        }
        T_EQ("child", waitpid(child, &state, 0), child);
        if (!T_EQ("no lock is held in it", state, 0)) {
            break;
        }
    }
    stop = true;
    pthread_join(thread, NULL);
}

static _Atomic bool closing;

static bool close_slowly(void *owner)
{
    (void)owner;
    atomic_store(&closing, true);
    usleep(300000);
    return true;
}

static void *retry(void *argument)
{
    (void)argument;
    (void)stk_descriptors_retry(EMFILE, &(uint32_t){0});
    return NULL;
}

/* While another thread closes a cached file; the child forgets the caches of its parent. */
static void test_fork_in_retry(void)
{
    struct stk_descriptors_cache cache = {.close_one = close_slowly};
    pthread_t thread;
    int state = 0;
    pid_t child;

    stk_descriptors_add_cache(&cache);
    T_EQ("thread", pthread_create(&thread, NULL, retry, NULL), 0);
    while (!atomic_load(&closing)) {
        usleep(1000);
    }
    child = FORKS > 0 ? fork() : -1;
    if (child == 0) {
        struct stk_descriptors_cache own = {.close_one = close_slowly};

        alarm(20);
        atomic_store(&closing, false);
        (void)stk_descriptors_retry(EMFILE, &(uint32_t){0});
        stk_descriptors_remove_cache(&cache);
        stk_descriptors_add_cache(&own);
        stk_descriptors_remove_cache(&own);
        _exit(atomic_load(&closing));
    }
    if (child > 0) {
        T_EQ("child", waitpid(child, &state, 0), child);
        T_EQ("no lock is held in it", state, 0);
    }
    pthread_join(thread, NULL);
    stk_descriptors_remove_cache(&cache);
}

static void test_retry(void)
{
    struct one_file cached = {open("/dev/null", O_RDONLY)};
    struct stk_descriptors_cache cache = {.close_one = close_one, .owner = &cached};
    int fds[64], count = 0, fd;
    uint32_t tries = 0;

    stk_descriptors_add_cache(&cache);
    while ((fd = open("/dev/null", O_RDONLY)) >= 0) {
        fds[count++] = fd;
    }
    T_EQ("full", errno, EMFILE);
    do {
        fd = open("/dev/null", O_RDONLY);
    } while (fd < 0 && stk_descriptors_retry(errno, &tries));
    T_TRUE("the cached one made room", fd >= 0 && cached.fd < 0);
    T_EQ("at once", tries, 1);
    close(fd);
    tries = 999;
    T_TRUE("nothing to close: waits", stk_descriptors_retry(EMFILE, &tries));
    T_TRUE("not for ever", !stk_descriptors_retry(EMFILE, &tries));
    tries = 0;
    T_TRUE("another failure", !stk_descriptors_retry(ENOENT, &tries));
    while (count > 0) {
        close(fds[--count]);
    }
    stk_descriptors_remove_cache(&cache);
    stk_descriptors_remove_cache(&cache);
}

int main(void)
{
    struct rlimit files = {64, 64};

    T_EQ("limit", setrlimit(RLIMIT_NOFILE, &files), 0);
    test_shares();
    test_forks();
    test_fork_in_retry();
    test_retry();
    return t_finish();
}
