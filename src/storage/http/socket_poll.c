/* Waits with epoll for the sockets that libcurl names, and handles only the ready ones: to check
 * all of many connections each time would cost more than their bytes. */
#include "storage/http/reactor.h"

#include "io/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MS 1000000ull
/* all received data is taken before any deadline is checked */
#define EVENTS (int)STK_HTTP_CONNECTIONS_MAX

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known);
static int on_timer(CURLM *multi, long timeout_ms, void *user);

int stk_http_poll_open(struct stk_http *http)
{
    struct stk_http_poll *watch = &http->poll;
    struct epoll_event wake = {.events = EPOLLIN};
    bool fits;

    watch->timer_ns = UINT64_MAX;
    watch->looked_ns = stk_clock_ns();
    watch->epoll = epoll_create1(EPOLL_CLOEXEC);
    watch->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    wake.data.fd = watch->wake;
    if (watch->epoll < 0 || watch->wake < 0 ||
        epoll_ctl(watch->epoll, EPOLL_CTL_ADD, watch->wake, &wake) < 0) {
        return -errno;
    }
    fits = curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket) == CURLM_OK &&
           curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http) == CURLM_OK &&
           curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer) == CURLM_OK &&
           curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http) == CURLM_OK;
    return fits ? 0 : -ENOMEM;
}

void stk_http_poll_close(struct stk_http *http)
{
    if (http->poll.epoll >= 0) {
        close(http->poll.epoll);
    }
    if (http->poll.wake >= 0) {
        close(http->poll.wake);
    }
}

void stk_http_wake(struct stk_http *http)
{
    int written;

    do { /* -EAGAIN: 2^64 of them are there already, which wakes it as well */
        written = eventfd_write(http->poll.wake, 1);
    } while (written < 0 && errno == EINTR);
}

void stk_http_poll_remove(struct stk_http *http, int fd)
{
    /* Does nothing for a socket that is not watched. A forked process may hold the socket, so
     * closing it would not end the watch. */
    (void)epoll_ctl(http->poll.epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* Called by libcurl: sets the events to wait for at this socket. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
    struct stk_http *http = user;
    struct stk_http_socket *socket = known == http ? NULL : known;
    struct epoll_event event = {.data.fd = fd};

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (!socket ||
            !stk_http_socket_is_closed(socket, fd)) { /* else the number may be another's */
            stk_http_poll_remove(http, fd);
        }
        return 0;
    }
    event.events = (what & CURL_POLL_IN ? (uint32_t)EPOLLIN : 0u) |
                   (what & CURL_POLL_OUT ? (uint32_t)EPOLLOUT : 0u);
    if (!known) {
        socket = stk_http_socket_of(http, fd); /* none: the resolver's */
        curl_multi_assign(http->multi, fd, socket ? (void *)socket : http);
    }
    if (epoll_ctl(http->poll.epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) < 0) {
        (void)epoll_ctl(http->poll.epoll, known ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
    }
    return 0; /* a request whose socket cannot be watched ends at its deadline */
}

static int on_timer(CURLM *multi, long timeout_ms, void *user)
{
    struct stk_http *http = user;

    (void)multi;
    http->poll.timer_ns = timeout_ms < 0 ? UINT64_MAX : stk_clock_ns() + (uint64_t)timeout_ms * MS;
    return 0;
}

/* Returns whether the complete response arrived, as far as its headers show. */
static bool is_complete(const struct stk_http_slot *slot)
{
    const struct stk_http_request *request = slot->request;

    return !request || slot->answer.content_bytes <= slot->skipped + request->bytes;
}

/* A server whose connections use Nagle's algorithm (Ceph's gateway by default) delays the last
 * piece of a response until the client acknowledges the piece before. After a client has sent a
 * request, its kernel delays the acknowledgement by 40 ms, to send it together with data (tcp(7),
 * TCP_QUICKACK). */
static void acknowledge(struct stk_http *http)
{
    const struct stk_http_slot *slot = http->poll.begun;

    http->poll.begun = NULL;
    if (slot && !is_complete(slot)) {
        stk_http_socket_acknowledge(slot);
    }
}

void stk_http_poll_response_began(struct stk_http_slot *slot)
{
    struct stk_http_poll *watch = &slot->http->poll;

    if (watch->begun != slot) {
        acknowledge(slot->http); /* of a call by the timer, which covers several events */
    }
    watch->begun = slot;
}

void stk_http_poll_run_due(struct stk_http *http)
{
    int running = 0;

    if (http->poll.timer_ns != UINT64_MAX && http->poll.timer_ns <= stk_clock_ns()) {
        http->poll.timer_ns = UINT64_MAX; /* set again inside, if there is another one */
        curl_multi_socket_action(http->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        acknowledge(http);
    }
}

void stk_http_poll_wait(struct stk_http *http, int timeout_ms)
{
    struct stk_http_poll *watch = &http->poll;
    struct epoll_event events[EVENTS];
    uint64_t now_ns = stk_clock_ns();
    eventfd_t count;
    int got, running = 0;

    if (watch->timer_ns <= now_ns) {
        timeout_ms = 0;
    } else if (watch->timer_ns != UINT64_MAX) {
        uint64_t left_ms = (watch->timer_ns - now_ns + MS - 1) / MS;

        timeout_ms = (int)stk_min(left_ms, (uint64_t)timeout_ms);
    }
    got = epoll_wait(watch->epoll, events, EVENTS, timeout_ms);
    watch->looked_ns = stk_clock_ns();
    for (int i = 0; i < got; i++) {
        uint32_t seen = events[i].events;
        int ready = (seen & EPOLLIN ? CURL_CSELECT_IN : 0) |
                    (seen & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                    (seen & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

        if (events[i].data.fd == watch->wake) {
            (void)eventfd_read(watch->wake, &count);
        } else {
            curl_multi_socket_action(http->multi, events[i].data.fd, ready, &running);
            acknowledge(http);
        }
    }
}
