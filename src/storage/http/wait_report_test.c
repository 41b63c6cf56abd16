/* Goal: the longest wait of all reactors is reported while it lasts, and no longer.
 * Method: reports of made-up reactors; then a store that never responds, read through a file
 * system. Covers wait_report.c, store_wait.c. */
#include "storage/http/wait_report.h"

#include "io/clock.h"
#include "storage/http/http.h"
#include "test/server.h"
#include "test/t.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND 1000000000ull

static _Atomic bool answers;

static void serve(int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    char head[4096];

    while (t_read_request(fd, head, sizeof head, NULL) > 0) {
        for (int i = 0; i < 100 && !atomic_load(&answers); i++) {
            usleep(50000);
        }
        (void)t_send(fd, answer, sizeof answer - 1);
    }
}

static void test_longest(void)
{
    static char owners[STK_WAIT_REPORT_SLOTS + 1];
    uint64_t now_ns = stk_clock_ns();
    struct stk_wait_report report, got;

    T_TRUE("nothing", !stk_wait_report_read(&got));
    for (uint32_t i = 0; i <= STK_WAIT_REPORT_SLOTS; i++) { /* one more than there is room for */
        report =
            (struct stk_wait_report){.since_ns = now_ns - i, .published_ns = now_ns, .attempt = i};
        stk_wait_report_publish(&owners[i], &report);
    }
    T_TRUE("the longest", stk_wait_report_read(&got));
    T_EQ("the longest", got.attempt, STK_WAIT_REPORT_SLOTS - 1);
    report = (struct stk_wait_report){.since_ns = 1, .published_ns = now_ns - 3 * SECOND};
    stk_wait_report_publish(&owners[5], &report);
    T_TRUE("stale", stk_wait_report_read(&got));
    T_TRUE("stale", got.since_ns != 1);
    for (uint32_t i = 0; i <= STK_WAIT_REPORT_SLOTS; i++) {
        stk_wait_report_publish(&owners[i], NULL);
    }
    T_TRUE("nothing any more", !stk_wait_report_read(&got));
}

/* The sanitizers cannot fork a process with several threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define FORKS 0
#else
#    define FORKS 50
#endif

static void *read_on(void *argument)
{
    const _Atomic bool *stop = argument;

    while (!*stop) {
        (void)stk_wait_report_read(&(struct stk_wait_report){.attempt = 0});
    }
    return NULL;
}

/* While another thread has the lock most of the time. */
static void test_forks(void)
{
    _Atomic bool stop = false;
    pthread_t thread;

    T_EQ("thread", pthread_create(&thread, NULL, read_on, &stop), 0);
    for (int i = 0; i < FORKS; i++) {
        int state = 0;
        pid_t child = fork();

        if (child == 0) {
            alarm(20); /* a lock that is never released */
            (void)stk_wait_report_read(&(struct stk_wait_report){.attempt = 0});
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

static void *call(void *argument)
{
    struct stk_http_request *request = argument;
    struct stoker_error error = {0};

    (void)stk_http_call((struct stk_http *)request->owner, request, NULL, &error);
    return NULL;
}

static void test_request(void)
{
    struct stoker_store_wait wait = {.struct_size = sizeof wait};
    struct stk_http_options options = {.connections_max = 2};
    struct stk_http_request request = {
        .method = STK_HTTP_GET, .since_ns = stk_clock_ns(), .attempt = 3, .host = "a.host:1"};
    struct stoker_error error = {0};
    struct stk_http *http = NULL;
    struct t_server server;
    pthread_t thread;
    char url[64];
    int found = 0;

    t_server_start(&server, serve);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    T_EQ("open", stk_http_open(&http, &options, &error), 0);
    request.url = url;
    request.owner = http;
    T_EQ("before", stoker_store_wait(&wait), 0);
    T_EQ("thread", pthread_create(&thread, NULL, call, &request), 0);
    for (int i = 0; i < 100 && found == 0; i++) {
        usleep(50000);
        found = stoker_store_wait(&wait);
    }
    T_EQ("waits", found, 1);
    T_STR("waits", wait.host, "a.host:1");
    T_EQ("waits", wait.attempt, 3);
    T_TRUE("waits", wait.waited_ns >= SECOND && wait.waited_ns < 20 * SECOND);
    atomic_store(&answers, true);
    pthread_join(thread, NULL);
    for (int i = 0; i < 100 && found == 1; i++) {
        usleep(20000);
        found = stoker_store_wait(&wait);
    }
    T_EQ("afterwards", found, 0);
    stk_http_close(http);
    t_server_stop(&server);
}

int main(void)
{
    test_longest();
    test_forks();
    test_request();
    return t_finish();
}
