/* Goal: few large bodies are in flight at once, waiting requests do not occupy their places, and
 * small bodies do not wait for them (reactor.c, connection_pool.c). Method: a server of this test,
 * which answers, or holds a response back for ever. */
#include "storage/http/http.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/io.h"
#include "storage/http/reactor.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PLACES 4u
#define REQUESTS 16u
#define SOCKETS 64u
#define WAIT_NS 60000000000ull

struct one {
    struct stk_http_request request;
    char url[64];
    _Atomic uint32_t *left;
    const _Atomic bool *held;
};

static int listener, port;
static _Atomic uint32_t connections, holding;

/* One thread for all; false: the connection is over. */
static bool serve_one(int fd)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    char head[4096];
    ssize_t bytes = recv(fd, head, sizeof head - 1, 0);

    head[bytes > 0 ? bytes : 0] = '\0';
    if (strstr(head, " /hold ")) {
        atomic_fetch_add(&holding, 1);
    } else if (bytes > 0) {
        return t_send(fd, answer, strlen(answer));
    }
    return bytes > 0;
}

static void *serve(void *context)
{
    struct pollfd fds[SOCKETS] = {{.fd = listener, .events = POLLIN}};
    uint32_t count = 1;
    bool on = true;

    (void)context;
    while (on && poll(fds, count, -1) > 0) {
        if (fds[0].revents) {
            int fd = accept(listener, NULL, NULL);

            on = fd >= 0 && count < SOCKETS;
            atomic_fetch_add(&connections, on);
            fds[count] = (struct pollfd){.fd = fd, .events = POLLIN};
            count += on;
        }
        for (uint32_t i = count; i-- > 1;) {
            if (fds[i].revents && !serve_one(fds[i].fd)) {
                close(fds[i].fd);
                fds[i] = fds[--count];
            }
        }
    }
    while (count-- > 1) {
        close(fds[count].fd);
    }
    return NULL;
}

static void done(struct stk_http_request *request, const struct stk_http_response *answer)
{
    struct one *one = request->owner;

    (void)answer;
    atomic_fetch_sub(one->left, 1);
}

static int not_yet(struct stk_http_request *request, char *room)
{
    const struct one *one = request->owner;

    (void)room;
    return atomic_load(one->held) ? -EAGAIN : 0;
}

/* The first `held_count` may not be sent before *held is false. */
static void start(struct stk_http *http, struct one *ones, const char *path, uint32_t held_count,
                  const _Atomic bool *held, _Atomic uint32_t *left)
{
    static uint8_t room[STK_HTTP_LARGE_BYTES];

    atomic_store(left, REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct one *one = &ones[i];

        *one = (struct one){.left = left, .held = held};
        snprintf(one->url, sizeof one->url, "http://127.0.0.1:%d%s", port, path);
        one->request = (struct stk_http_request){.method = STK_HTTP_GET,
                                                 .url = one->url,
                                                 .buffer = room,
                                                 .buffer_bytes = sizeof room,
                                                 .truncate = true,
                                                 .prepare = i < held_count ? not_yet : NULL,
                                                 .done = done,
                                                 .owner = one};
        stk_http_submit(http, &one->request);
    }
}

/* Waits until it is `least` or `most`, or a minute is over. */
static uint32_t await(const _Atomic uint32_t *count, uint32_t least, uint32_t most)
{
    uint64_t end_ns = stk_clock_ns() + WAIT_NS;

    while ((atomic_load(count) < least || atomic_load(count) > most) && stk_clock_ns() < end_ns) {
        usleep(1000);
    }
    return atomic_load(count);
}

/* A hedged copy of a request in flight is sent in addition, and neither takes nor frees a place. */
static void test_urgent(struct stk_http *http)
{
    static uint8_t room[STK_HTTP_LARGE_BYTES];
    static struct one copy;
    _Atomic uint32_t left = 1;

    copy = (struct one){.left = &left};
    snprintf(copy.url, sizeof copy.url, "http://127.0.0.1:%d/now", port);
    copy.request = (struct stk_http_request){.method = STK_HTTP_GET,
                                             .url = copy.url,
                                             .buffer = room,
                                             .buffer_bytes = sizeof room,
                                             .truncate = true,
                                             .urgent = true,
                                             .is_large = true, /* as that one is */
                                             .done = done,
                                             .owner = &copy};
    stk_http_submit(http, &copy.request);
    T_EQ("urgent", await(&left, 0, 0), 0);
    T_EQ("no place of theirs", http->large_count, PLACES);
}

static void test_large(struct stk_http *http)
{
    static struct one ones[REQUESTS];
    _Atomic uint32_t left;
    _Atomic bool held = true;
    char url[64];
    struct stk_http_request small = {.method = STK_HTTP_GET, .url = url, .truncate = true};

    snprintf(url, sizeof url, "http://127.0.0.1:%d/now", port);
    start(http, ones, "/now", 0, &held, &left);
    T_EQ("one after the other", await(&left, 0, 0), 0);
    T_TRUE("few at once", atomic_load(&connections) <= PLACES);
    start(http, ones, "/now", REQUESTS / 2, &held, &left);
    T_EQ("others go on", await(&left, 0, REQUESTS / 2), REQUESTS / 2);
    atomic_store(&held, false);
    T_EQ("then they", await(&left, 0, 0), 0);
    start(http, ones, "/hold", 0, &held, &left);
    T_EQ("all places are taken", await(&holding, PLACES, REQUESTS), PLACES);
    T_EQ("small ones go by", stk_http_call(http, &small, NULL, NULL), 0);
    T_EQ("no more than that", atomic_load(&holding), PLACES);
    test_urgent(http);
    stk_http_cancel(http, &ones[0].request);
    T_EQ("a place is given on", await(&holding, PLACES + 1, REQUESTS), PLACES + 1);
    stk_http_close(http);
    T_EQ("closed", atomic_load(&left), 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        T_EQ("cancelled", ones[i].request.failure, STK_HTTP_CANCELLED);
    }
}

/* The direction of the first body sets the limit; that of later ones does not. */
static void test_up(struct stk_http *http)
{
    static uint8_t bytes[STK_HTTP_LARGE_BYTES];
    struct stk_http_request up = {.method = STK_HTTP_PUT, .url = "http://127.0.0.1:1/"}, down;
    struct stk_http_stats stats;

    down = up;
    up.body = (struct stk_view){bytes, sizeof bytes};
    down.method = STK_HTTP_GET;
    down.buffer = bytes;
    down.buffer_bytes = sizeof bytes;
    T_TRUE("no server", stk_http_call(http, &up, NULL, NULL) < 0);
    T_TRUE("nor now", stk_http_call(http, &down, NULL, NULL) < 0);
    stk_http_get_stats(http, &stats);
    T_EQ("of uploads", stats.large_max,
         stk_max(stk_min(STK_HTTP_LARGE_START_UP * stk_cgroup_available_cores(),
                         STK_HTTP_CONNECTIONS_DEFAULT),
                 STK_CONCURRENCY_MIN));
}

int main(void)
{
    struct stk_http_options options = {.large_max = PLACES}, usual = {0};
    struct stk_http_stats stats;
    struct stk_http *http = NULL;
    pthread_t server;

    unsetenv("http_proxy");
    listener = t_listen(SOCKETS, &port);
    pthread_create(&server, NULL, serve, NULL);
    if (T_EQ("open", stk_http_open(&http, &options, NULL), 0)) {
        test_large(http);
    }
    if (T_EQ("open", stk_http_open(&http, &usual, NULL), 0)) {
        stk_http_get_stats(http, &stats);
        T_EQ("at first", stats.large_max,
             stk_min(STK_HTTP_LARGE_START * stk_cgroup_available_cores(),
                     STK_HTTP_CONNECTIONS_DEFAULT));
        test_up(http);
        stk_http_close(http);
    }
    shutdown(listener, SHUT_RDWR);
    pthread_join(server, NULL);
    close(listener);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
