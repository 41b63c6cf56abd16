/* The loop: steps connections that are ready or due. */
#include "programs/fault_proxy/fault_proxy.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TURN_MS_MAX 500 /* so that a signal that arrived just before poll is noticed */
#define BACKLOG 512

static void accept_all(struct stk_fault_proxy *proxy, uint64_t now_ns);
static int wait_ms(const struct stk_fault_proxy *proxy, uint64_t now_ns);
static void step_all(struct stk_fault_proxy *proxy, const struct pollfd *polled, uint64_t now_ns);

int stk_fault_proxy_resolve(const char *place, struct sockaddr_storage *address_out,
                            socklen_t *bytes_out, struct stoker_error *error)
{
    struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    const char *colon = strrchr(place, ':');
    char host[256];
    int failed;

    if (!colon || colon == place || (size_t)(colon - place) >= sizeof host) {
        return stk_fail(error, -EINVAL, "a place is HOST:PORT", "127.0.0.1:0 takes any port",
                        "'%s'", place);
    }
    bool bracket = place[0] == '[' && colon[-1] == ']';
    snprintf(host, sizeof host, "%.*s", (int)(colon - place) - 2 * bracket, place + bracket);
    failed = getaddrinfo(host, colon + 1, &wanted, &found);
    if (failed != 0 || found->ai_addrlen > sizeof *address_out) {
        return stk_fail(error, -EHOSTUNREACH, "a name has no address", gai_strerror(failed), "'%s'",
                        place);
    }
    *address_out = (struct sockaddr_storage){0};
    memcpy(address_out, found->ai_addr, found->ai_addrlen);
    *bytes_out = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

int stk_fault_proxy_open(struct stk_fault_proxy *proxy, const char *place, char place_out[96],
                         struct stoker_error *error)
{
    struct sockaddr_storage address;
    socklen_t bytes;
    char host[INET6_ADDRSTRLEN + 16] = "", port[16] = "";
    int on = 1, status = stk_fault_proxy_resolve(place, &address, &bytes, error);

    proxy->listener = -1;
    if (status < 0) {
        return status;
    }
    proxy->connections = stk_alloc(proxy->connections_max, sizeof *proxy->connections);
    if (!proxy->connections) {
        return stk_fail_errno(error, ENOMEM, "cannot keep the connections", "ask for fewer",
                              "%u connections", proxy->connections_max);
    }
    proxy->listener = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (proxy->listener < 0 ||
        setsockopt(proxy->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(proxy->listener, (struct sockaddr *)&address, bytes) < 0 ||
        listen(proxy->listener, BACKLOG) < 0) {
        return stk_fail_errno(error, errno, "cannot listen", "is the port taken?", "'%s'", place);
    }
    bytes = sizeof address;
    getsockname(proxy->listener, (struct sockaddr *)&address, &bytes);
    getnameinfo((struct sockaddr *)&address, bytes, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(place_out, 96, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    proxy->config.start_ns = stk_fault_proxy_clock_ns();
    return 0;
}

int stk_fault_proxy_run(struct stk_fault_proxy *proxy, const volatile sig_atomic_t *stop,
                        struct stoker_error *error)
{
    struct pollfd *polled = stk_alloc(1 + 2 * (size_t)proxy->connections_max, sizeof *polled);

    if (!polled) {
        return stk_fail_errno(error, ENOMEM, "cannot wait for connections", "ask for fewer",
                              "%u connections", proxy->connections_max);
    }
    while (!*stop) {
        uint64_t now_ns = stk_fault_proxy_clock_ns();
        polled[0] = (struct pollfd){
            .fd = proxy->count < proxy->connections_max ? proxy->listener : -1, .events = POLLIN};
        for (size_t i = 0; i < proxy->count; i++) {
            struct stk_fault_connection *connection = proxy->connections[i];
            polled[1 + 2 * i] = (struct pollfd){.fd = connection->client};
            polled[2 + 2 * i] = (struct pollfd){.fd = connection->upstream};
            stk_fault_connection_events(connection, &polled[1 + 2 * i].events,
                                        &polled[2 + 2 * i].events);
            for (size_t j = 1 + 2 * i; j <= 2 + 2 * i; j++) {
                polled[j].fd = polled[j].events ? polled[j].fd : -1; /* also ignores hang-ups */
            }
        }
        if (poll(polled, 1 + 2 * proxy->count, wait_ms(proxy, now_ns)) < 0 && errno != EINTR) {
            stk_free(polled);
            return stk_fail_errno(error, errno, "cannot wait for connections", "start it again",
                                  "poll");
        }
        now_ns = stk_fault_proxy_clock_ns();
        size_t before = proxy->count;
        step_all(proxy, polled, now_ns);
        if (before < proxy->connections_max && polled[0].revents) {
            accept_all(proxy, now_ns);
        }
    }
    stk_free(polled);
    return 0;
}

void stk_fault_proxy_close(struct stk_fault_proxy *proxy)
{
    for (size_t i = 0; i < proxy->count; i++) {
        stk_fault_connection_close(proxy->connections[i]);
    }
    stk_free(proxy->connections);
    if (proxy->listener >= 0) {
        close(proxy->listener);
    }
    if (proxy->config.folder >= 0) {
        close(proxy->config.folder);
    }
    stk_tls_server_close(proxy->config.tls);
    stk_fault_script_deinit(&proxy->config.script);
    *proxy = (struct stk_fault_proxy){.listener = -1, .config = {.folder = -1}};
}

uint64_t stk_fault_proxy_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void accept_all(struct stk_fault_proxy *proxy, uint64_t now_ns)
{
    while (proxy->count < proxy->connections_max) {
        int client = accept4(proxy->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0 ||
            stk_fault_connection_open(&proxy->connections[proxy->count], &proxy->config, client,
                                      ++proxy->numbers, now_ns) < 0) {
            return;
        }
        proxy->connections[proxy->count++]->wake_ns = now_ns; /* its request may have arrived */
    }
}

/* Returns the time until the first connection is due. */
static int wait_ms(const struct stk_fault_proxy *proxy, uint64_t now_ns)
{
    uint64_t least = TURN_MS_MAX;

    for (size_t i = 0; i < proxy->count; i++) {
        uint64_t wake = proxy->connections[i]->wake_ns;
        if (wake != 0) {
            least = wake <= now_ns ? 0 : stk_min(least, (wake - now_ns) / 1000000 + 1);
        }
        if (least == 0) {
            break;
        }
    }
    return (int)least;
}

static void step_all(struct stk_fault_proxy *proxy, const struct pollfd *polled, uint64_t now_ns)
{
    struct timespec wall;
    size_t kept = 0;

    clock_gettime(CLOCK_REALTIME, &wall);
    for (size_t i = 0; i < proxy->count; i++) {
        struct stk_fault_connection *connection = proxy->connections[i];
        bool due = (connection->wake_ns != 0 && connection->wake_ns <= now_ns) ||
                   connection->deadline_ns <= now_ns;
        if (due || polled[1 + 2 * i].revents || polled[2 + 2 * i].revents) {
            stk_fault_connection_step(connection, now_ns, wall.tv_sec);
        }
        if (connection->phase == STK_FAULT_CONNECTION_CLOSED) {
            stk_fault_connection_close(connection);
        } else {
            proxy->connections[kept++] = connection;
        }
    }
    proxy->count = kept;
}
