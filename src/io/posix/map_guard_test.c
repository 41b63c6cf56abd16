/* Goal: a mapped file that is truncated, overwritten, renamed or removed never ends the process,
 * and the check reports the change; SIGBUS of other memory has the same effect as before.
 * Method: real files in a temporary folder, changed while they are mapped, in this thread and in
 * others whose signals are blocked; a handler set before, and one set over it. */
#include "io/posix/map_guard.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/posix/posix.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGES 8u
#define PAGE 4096u

static char folder[64], path[128], other[128];
static sigjmp_buf back;

static void put(const char *name, size_t bytes, int value)
{
    static uint8_t data[PAGES * PAGE];
    int fd = open(name, O_WRONLY | O_CREAT, 0666);

    memset(data, value, sizeof data);
    T_EQ(name, write(fd, data, bytes), (long long)bytes);
    close(fd);
}

static struct stk_view map(struct stk_io *io, const char *name)
{
    struct stk_file *file = NULL;
    struct stk_view view = {NULL, 0};

    T_EQ("open", stk_io_open_file(io, name, &file, NULL), 0);
    T_EQ("map", stk_io_map(io, file, &view, NULL), 0);
    stk_io_close_file(file);
    return view;
}

static uint64_t sum(struct stk_view view)
{
    uint64_t total = 0;

    for (size_t i = 0; i < view.bytes; i++) {
        total += view.data[i];
    }
    return total;
}

/* The clock of file times has steps of a few milliseconds. */
static void wait_for_clock(void)
{
    usleep(30000);
}

static void *sum_in_thread(void *view)
{
    static uint64_t total;

    total = sum(*(struct stk_view *)view);
    return &total;
}

static const struct change {
    const char *name;
    int status;
    uint64_t sum; /* of the bytes that can be read afterwards */
} changes[] = {
    {"nothing", 0, PAGES * PAGE},
    {"cut", STOKER_ERROR_CHANGED, 3 * PAGE},
    {"cut to nothing", STOKER_ERROR_CHANGED, 0},
    {"overwritten", STOKER_ERROR_CHANGED, 2 * PAGES * PAGE},
    {"longer", STOKER_ERROR_CHANGED, PAGES * PAGE},
    {"replaced", 0, PAGES * PAGE},
    {"removed", 0, PAGES * PAGE},
    {"renamed", 0, PAGES * PAGE},
    {"removed and cut", STOKER_ERROR_CHANGED, 0},
};

static void apply(size_t change)
{
    int fd = -1;

    switch (change) {
    case 1:
        T_EQ("cut", truncate(path, 3 * PAGE), 0);
        break;
    case 2:
        T_EQ("cut", truncate(path, 0), 0);
        break;
    case 3:
        put(path, PAGES * PAGE, 2);
        break;
    case 4:
        T_EQ("longer", truncate(path, (PAGES + 1) * PAGE), 0);
        break;
    case 5:
        put(other, PAGES * PAGE, 3);
        T_EQ("replace", rename(other, path), 0);
        break;
    case 6:
        T_EQ("remove", unlink(path), 0);
        break;
    case 7:
        T_EQ("rename", rename(path, other), 0);
        break;
    case 8:
        fd = open(path, O_RDWR);
        T_EQ("remove", unlink(path), 0);
        T_EQ("cut", ftruncate(fd, 0), 0);
        close(fd);
        break;
    default:
        break;
    }
}

static void test_changes(struct stk_io *io, bool in_thread)
{
    for (size_t i = 0; i < STK_COUNT(changes); i++) {
        struct stoker_error error = {0};
        struct stk_view view;
        pthread_t thread;
        void *total;
        uint64_t got;

        unlink(other);
        put(path, PAGES * PAGE, 1);
        T_EQ(changes[i].name, truncate(path, PAGES * PAGE), 0);
        view = map(io, path);
        T_EQ(changes[i].name, stk_io_map_check(io, view, &error), 0);
        wait_for_clock();
        apply(i);
        if (in_thread) {
            T_EQ("start", stk_thread_start(&thread, NULL, sum_in_thread, &view), 0);
            T_EQ("join", pthread_join(thread, &total), 0);
            got = *(uint64_t *)total;
        } else {
            got = sum(view);
        }
        T_EQ(changes[i].name, got, changes[i].sum);
        T_EQ(changes[i].name, stk_io_map_check(io, view, &error), changes[i].status);
        if (changes[i].status < 0) {
            T_ERROR(changes[i].name, &error);
            T_TRUE(changes[i].name, strstr(error.where, "map_guard") != NULL);
            T_EQ(changes[i].name, stk_io_map_check(io, view, NULL), changes[i].status);
        }
        stk_io_unmap(io, view);
        T_EQ("no map", stk_io_map_check(io, view, &error), 0);
    }
}

/* Many maps, removed in another order: each is found, and the others stay. */
static void test_many(struct stk_io *io)
{
    static struct stk_view views[3000];

    put(path, PAGES * PAGE, 1);
    for (size_t i = 0; i < STK_COUNT(views); i++) {
        views[i] = map(io, path);
    }
    T_EQ("cut", truncate(path, PAGE), 0);
    for (size_t i = 0; i < STK_COUNT(views); i += 2) {
        stk_io_unmap(io, views[i]);
    }
    for (size_t i = 1; i < STK_COUNT(views); i += 2) {
        T_EQ("one page is left", sum(views[i]), PAGE);
        T_EQ("check", stk_io_map_check(io, views[i], NULL), STOKER_ERROR_CHANGED);
        stk_io_unmap(io, views[i]);
    }
}

static void jump_back(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

/* A file that this library has not mapped: its SIGBUS is not swallowed. */
static void test_foreign(const char *name)
{
    int fd;
    volatile uint8_t *memory;
    volatile bool raised = true;

    put(path, PAGE, 1);
    fd = open(path, O_RDWR);
    memory = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    T_EQ(name, ftruncate(fd, 0), 0);
    if (sigsetjmp(back, 1) == 0) {
        (void)memory[0];
        raised = false;
    }
    T_TRUE(name, raised);
    munmap((void *)(uintptr_t)memory, PAGE);
    close(fd);
}

/* The sanitizers cannot fork a process with several threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define FORKS 0
#else
#    define FORKS 50
#endif

static void *check_on(void *argument)
{
    const _Atomic bool *stop = argument;

    while (!*stop) {
        (void)stk_map_guard_check((struct stk_view){(const uint8_t *)folder, 1}, NULL);
    }
    return NULL;
}

/* While another thread has the lock most of the time. */
static void test_forks(void)
{
    _Atomic bool stop = false;
    pthread_t thread;

    T_EQ("thread", pthread_create(&thread, NULL, check_on, &stop), 0);
    for (int i = 0; i < FORKS; i++) {
        int state = 0;
        pid_t child = fork();

        if (child == 0) {
            alarm(20); /* a lock that is never released */
            (void)stk_map_guard_check((struct stk_view){(const uint8_t *)folder, 1}, NULL);
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

static struct sigaction under;
static int prints;

/* As Python's faulthandler. */
static void print_and_raise(int number)
{
    prints++;
    sigaction(number, &under, NULL);
    raise(number);
}

static void set_over(void)
{
    struct sigaction over = {.sa_handler = print_and_raise, .sa_flags = SA_NODEFER};

    prints = 0;
    sigaction(SIGBUS, &over, &under);
}

/* A handler that is set over this one after the file was mapped. */
static void test_set_over(struct stk_io *io)
{
    struct stk_view view;

    for (int is_checked = 0; is_checked < 2; is_checked++) {
        put(path, PAGES * PAGE, 1);
        T_EQ("long", truncate(path, PAGES * PAGE), 0);
        view = map(io, path);
        set_over();
        if (is_checked) {
            T_EQ("check", stk_io_map_check(io, view, NULL), 0);
        }
        T_EQ("cut", truncate(path, PAGE), 0);
        T_EQ("one page is left", sum(view), PAGE);
        T_EQ("the other handler's calls", prints, !is_checked);
        stk_io_unmap(io, view);
    }
}

/* A signal that ends the process without the guard ends it with the guard, too, and soon. */
static void end_process(struct stk_io *io, int way)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    volatile const uint8_t *memory;
    struct stk_view view;
    int fd;

    alarm(20);
    sigaction(SIGBUS, &usual, NULL);
    put(path, PAGES * PAGE, 1);
    view = map(io, path);
    if (way > 0) {
        set_over();
    }
    if (way > 1) {
        (void)stk_io_map_check(io, view, NULL); /* set over that */
    }
    if (way == 3) {
        kill(getpid(), SIGBUS);
    }
    put(other, PAGE, 1);
    fd = open(other, O_RDWR);
    memory = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (ftruncate(fd, 0) == 0) {
        (void)memory[0];
    }
    _exit(0);
}

static void test_ends(struct stk_io *io)
{
    for (int way = 0; way < 4; way++) {
        int state = 0;
        pid_t child = FORKS > 0 ? fork() : -1;

        if (child == 0) {
            end_process(io, way);
        }
        if (child > 0) {
            T_EQ("child", waitpid(child, &state, 0), child);
            T_TRUE("SIGBUS ended it", WIFSIGNALED(state) && WTERMSIG(state) == SIGBUS);
        }
    }
}

/* A map that is written to: writes after the cut reach zeros of this process only. */
static void test_writable(void)
{
    struct stat about;
    struct stk_view view = {NULL, PAGES * PAGE};
    uint8_t *bytes;
    int fd;

    put(path, PAGES * PAGE, 7);
    fd = open(path, O_RDWR);
    T_EQ("stat", fstat(fd, &about), 0);
    bytes = mmap(NULL, view.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    view.data = bytes;
    T_EQ("add", stk_map_guard_add_writable(view, path, &about), 0);
    bytes[0] = 1;
    T_TRUE("not broken", !stk_map_guard_is_broken(view));
    T_EQ("cut", ftruncate(fd, PAGE), 0);
    bytes[3 * PAGE] = 5;
    T_EQ("written to zeros", bytes[3 * PAGE] + bytes[3 * PAGE + 1], 5);
    T_EQ("the rest is still there", bytes[0] + bytes[1], 8);
    T_TRUE("broken", stk_map_guard_is_broken(view));
    stk_map_guard_remove(view);
    T_TRUE("forgotten", !stk_map_guard_is_broken(view));
    munmap(bytes, view.bytes);
    close(fd);
    unlink(path);
}

int main(void)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 3000};
    struct sigaction before = {.sa_handler = jump_back};
    struct stk_io *io;

    snprintf(folder, sizeof folder, "/tmp/map_guard_XXXXXX");
    if (!mkdtemp(folder)) {
        return 1;
    }
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    sigaction(SIGBUS, &before, NULL);
    T_EQ("open", stk_io_open(&io, &options, NULL), 0);
    test_changes(io, false);
    test_changes(io, true);
    test_writable();
    test_many(io);
    test_foreign("the handler set before");
    sigaction(SIGBUS, &before, NULL); /* over it, as another library does */
    test_foreign("the handler set over it");
    test_changes(io, false); /* and this one over that again */
    test_foreign("both");
    test_set_over(io);
    test_ends(io);
    test_forks();
    stk_io_close(io);
    unlink(path);
    unlink(other);
    rmdir(folder);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
