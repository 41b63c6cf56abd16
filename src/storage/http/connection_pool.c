/* The number of open connections: within the leases of this process, and only as many as increase
 * the goodput. Sockets are counted: an idle connection counts too, and is closed for other
 * processes. */
#include "storage/http/reactor.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/descriptor_budget.h"
#include "io/io.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000ull
#define UNUSED_MS 50000u     /* leases that were unused for this time are returned */
#define SPARE_SOCKETS 64u    /* a name with addresses of two kinds is tried at both at once */
#define SOCKET_TRIES_MAX 20u /* 10 ms each, in which no other transfer is served */
#define WINDOW_BYTES (2 << 20)
#define LARGE_LATE_MS                                                                              \
    5000u /* two large bodies within so long: it is the link, not one connection */

static void start_large(struct stk_http *http, uint32_t a_core);
static void publish_stats(struct stk_http *http);

int stk_http_pool_open(struct stk_http *http)
{
    struct stk_http_pool *budget = &http->pool;
    uint32_t most = http->options.connections_max, start = STK_HTTP_CONNECTIONS_START;

    if (http->options.node) {
        struct stk_shared_limits_stats shared;

        stk_shared_limits_get_stats(http->options.node, stk_clock_ns(), &shared);
        start = shared.members > 1 ? start : STK_HTTP_CONNECTIONS_UNSHARED;
    }
    budget->socket_count = most + SPARE_SOCKETS;
    budget->sockets = stk_alloc(budget->socket_count, sizeof *budget->sockets);
    for (uint32_t i = 0; budget->sockets && i < budget->socket_count; i++) {
        budget->sockets[i].fd = -1;
    }
    stk_concurrency_init(&budget->climb, STK_CONCURRENCY_MIN, start, most);
    start_large(http, STK_HTTP_LARGE_START);
    return budget->sockets ? 0 : -1;
}

static void start_large(struct stk_http *http, uint32_t a_core)
{
    stk_concurrency_init(
        &http->pool.large, STK_CONCURRENCY_MIN, a_core * stk_cgroup_available_cores(),
        http->options.large_max ? http->options.large_max : http->options.connections_max);
    publish_stats(http);
}

void stk_http_pool_start_large(struct stk_http *http, bool up)
{
    if (!http->pool.had_large && up) {
        start_large(http, STK_HTTP_LARGE_START_UP);
    }
    http->pool.had_large = true;
}

void stk_http_pool_close(struct stk_http *http)
{
    if (http->options.node) {
        stk_shared_limits_release(http->options.node, stk_shared_limits_held(http->options.node));
    }
    stk_free(http->pool.sockets);
}

/* ---- sockets ---- */

static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t bytes = sizeof cookie;

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

static void remove_socket(struct stk_http_pool *budget, struct stk_http_socket *socket)
{
    budget->live -= socket->ended ? 0 : 1;
    if (socket->slot) {
        socket->slot->socket = NULL;
    }
    socket->slot = NULL;
    socket->fd = -1;
}

struct stk_http_socket *stk_http_socket_of(struct stk_http *http, int fd)
{
    struct stk_http_pool *budget = &http->pool;

    for (uint32_t i = 0; i < budget->socket_count; i++) {
        if (budget->sockets[i].fd == fd) {
            return &budget->sockets[i];
        }
    }
    return NULL;
}

/* libcurl 7.88 does not report that it closes a connection that it never used (abandoned, or the
 * slower of two addresses): lib/cf-socket.c, cf_socket_close. Another file may have the
 * descriptor's number by now. */
bool stk_http_socket_is_closed(const struct stk_http_socket *socket, int fd)
{
    return socket->fd != fd || (!socket->local_port && cookie_of(fd) != socket->cookie);
}

/* Checks the connections that were not checked yet; true: some are left. */
static bool remove_closed_sockets(struct stk_http_pool *budget)
{
    bool left = false;

    for (uint32_t i = 0; i < budget->socket_count; i++) {
        struct stk_http_socket *socket = &budget->sockets[i];

        if (socket->fd < 0 || socket->slot || socket->local_port) {
            continue;
        }
        if (stk_http_socket_is_closed(socket, socket->fd)) {
            remove_socket(budget, socket);
        } else {
            left = true;
        }
    }
    return left;
}

/* Closes an unused connection; libcurl notices later. */
static bool close_idle(struct stk_http *http)
{
    struct stk_http_pool *budget = &http->pool;

    for (uint32_t i = 0; i < budget->socket_count; i++) {
        struct stk_http_socket *socket = &budget->sockets[i];

        if (socket->fd >= 0 && socket->idle && !socket->ended) {
            shutdown(socket->fd, SHUT_RDWR);
            socket->ended = true;
            budget->live--;
            return true;
        }
    }
    return false;
}

/* Lets the sender be WINDOW_BYTES ahead from the first response on. The kernel's own window
 * grows by the bytes that are read in a round trip. While the window is full, each read has to
 * update it: on one machine that is half of the cost of reading. A low-water mark enlarges the
 * window, which stays large when the mark is reset (Linux 4.18, tcp_set_rcvlowat). Unlike SO_RCVBUF
 * it is not limited to net.core.rmem_max, and the kernel may still enlarge the window. Returns
 * false if the mark could not be reset: arriving bytes would not be reported. */
static bool grow_receive_buffer(int fd)
{
    int bytes = WINDOW_BYTES, one = 1;

    return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) < 0 ||
           setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one) == 0;
}

/* If there are too many open files, waits for a cached one to be closed, or an idle connection. */
static int open_socket(struct stk_http *http, const struct curl_sockaddr *address)
{
    uint32_t tries = 0;
    int fd;

    do {
        fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
        http->socket_errno = fd < 0 ? errno : 0;
    } while (fd < 0 && tries < SOCKET_TRIES_MAX &&
             stk_descriptors_retry(http->socket_errno, &tries));
    return fd;
}

curl_socket_t stk_http_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct stk_http *http = user;
    struct stk_http_pool *budget = &http->pool;
    struct stk_http_socket *stale;
    int fd;

    (void)purpose;
    while (http->options.node && budget->live >= stk_shared_limits_held(http->options.node) &&
           close_idle(http)) {
    }
    fd = open_socket(http, address);
    if (fd >= 0 && !grow_receive_buffer(fd)) {
        close(fd);
        fd = -1;
    }
    stale = fd >= 0 ? stk_http_socket_of(http, fd) : NULL;
    if (stale) {
        remove_socket(budget, stale);
    }
    for (uint32_t i = 0; fd >= 0 && i < budget->socket_count; i++) {
        struct stk_http_socket *socket = &budget->sockets[i];
        const void *raw = (const uint8_t *)&address->addr;

        if (socket->fd >= 0) {
            continue;
        }
        *socket = (struct stk_http_socket){.fd = fd, .cookie = cookie_of(fd)};
        budget->is_untried = true;
        if (address->family == AF_INET) {
            struct sockaddr_in in;

            memcpy(&in, raw, sizeof in);
            socket->port = ntohs(in.sin_port);
            inet_ntop(AF_INET, &in.sin_addr, socket->ip, sizeof socket->ip);
        } else if (address->family == AF_INET6) {
            struct sockaddr_in6 in6;

            memcpy(&in6, raw, sizeof in6);
            socket->port = ntohs(in6.sin6_port);
            inet_ntop(AF_INET6, &in6.sin6_addr, socket->ip, sizeof socket->ip);
        }
        budget->live++;
        publish_stats(http);
        return fd;
    }
    if (fd >= 0) {
        close(fd); /* more than can be: rather not this one */
    }
    return CURL_SOCKET_BAD;
}

int stk_http_close_socket(void *user, curl_socket_t fd)
{
    struct stk_http *http = user;
    struct stk_http_socket *socket = stk_http_socket_of(http, fd);

    if (socket) {
        remove_socket(&http->pool, socket);
    }
    stk_http_poll_remove(http, fd);
    return close(fd);
}

static uint16_t local_port_of(int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    uint16_t port;

    if (getsockname(fd, (struct sockaddr *)&address, &bytes) < 0) {
        return 0;
    }
    /* At the same place in addresses of both kinds. */
    memcpy(&port, (const uint8_t *)&address + offsetof(struct sockaddr_in, sin_port), sizeof port);
    return ntohs(port);
}

void stk_http_socket_attach(struct stk_http_slot *slot, const char *ip, int port, int local_port)
{
    struct stk_http_pool *budget = &slot->http->pool;

    stk_http_socket_detach(slot);
    for (uint32_t i = 0; i < budget->socket_count; i++) {
        struct stk_http_socket *socket = &budget->sockets[i];

        if (socket->fd < 0 || socket->ended || socket->slot || socket->port != port ||
            strcmp(socket->ip, ip) != 0) {
            continue;
        }
        socket->local_port = socket->local_port ? socket->local_port : local_port_of(socket->fd);
        if (socket->local_port == local_port) {
            socket->idle = false;
            socket->slot = slot;
            slot->socket = socket;
            return;
        }
    }
}

void stk_http_socket_acknowledge(const struct stk_http_slot *slot)
{
    int yes = 1;

    if (slot->socket) {
        (void)setsockopt(slot->socket->fd, IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
    }
}

void stk_http_socket_detach(struct stk_http_slot *slot)
{
    if (slot->socket) {
        slot->socket->idle = true;
        slot->socket->slot = NULL;
        slot->socket = NULL;
    }
}

/* ---- leases ---- */

/* Returns unused leases, after it has closed their connections. */
static void release_leases(struct stk_http *http, uint32_t count)
{
    struct stk_shared_limits *node = http->options.node;
    uint32_t held = stk_shared_limits_held(node);

    count = (uint32_t)stk_min(count, held - stk_min(held, http->active));
    while (http->pool.live > held - count && close_idle(http)) {
    }
    /* A connection whose request has no response yet is not idle, and retains its lease. */
    count = (uint32_t)stk_min(count, held - stk_min(held, http->pool.live));
    stk_shared_limits_release(node, count);
    http->pool.surplus -= (uint32_t)stk_min(count, http->pool.surplus);
}

static uint32_t connections_wanted(const struct stk_http *http)
{
    uint32_t want = http->active;

    for (const struct stk_http_request *request = http->ready.first;
         request && want < http->pool.climb.count; request = request->next) {
        want++;
    }
    return want;
}

bool stk_http_pool_may_start(struct stk_http *http)
{
    struct stk_http_pool *budget = &http->pool;
    struct stk_shared_limits *node = http->options.node;
    uint64_t now_ns;

    if (http->active >= budget->climb.count) {
        return false;
    }
    if (!node) {
        return true;
    }
    if (budget->surplus > 0) {
        release_leases(http, budget->surplus);
    }
    if (http->active + budget->surplus < stk_shared_limits_held(node)) {
        return true;
    }
    now_ns = stk_clock_ns();
    if (budget->surplus == 0 && now_ns >= budget->refused_ns + MS) {
        stk_shared_limits_request(node, connections_wanted(http), now_ns);
        if (stk_shared_limits_acquire(node, now_ns)) {
            return true;
        }
        budget->refused_ns = now_ns;
    }
    budget->is_short = true;
    if (!http->ready.first->waited) {
        http->ready.first->waited = true;
        atomic_fetch_add_explicit(&http->stats.waits, 1, memory_order_relaxed);
    }
    return false;
}

/* Returns the bytes sent and received so far, also of incomplete bodies. */
static uint64_t bytes_moved(const struct stk_http *http)
{
    uint64_t bytes = http->pool.bytes;

    for (uint32_t i = 0; i < http->slot_count; i++) {
        const struct stk_http_slot *slot = http->slots[i];

        bytes += slot->request ? slot->request->bytes + slot->uploaded : 0;
    }
    return bytes;
}

void stk_http_pool_report_late(struct stk_http *http, uint64_t now_ns)
{
    struct stk_http_pool *budget = &http->pool;

    if (budget->late_ns > 0 && now_ns < budget->late_ns + LARGE_LATE_MS * MS) {
        stk_concurrency_decrease(&budget->large);
        budget->late_ns = 0;
    } else {
        budget->late_ns = now_ns;
    }
}

void stk_http_pool_sweep(struct stk_http *http, uint64_t now_ns)
{
    struct stk_http_pool *budget = &http->pool;
    struct stk_shared_limits *node = http->options.node;

    budget->is_untried = budget->is_untried && remove_closed_sockets(budget);
    budget->sweeps++;
    budget->busy += http->ready.first && http->active >= budget->climb.count ? 1 : 0;
    budget->large_busy += http->large.first && http->large_count >= budget->large.count ? 1 : 0;
    if (now_ns >= budget->climbed_ns + STK_CONCURRENCY_INTERVAL_MS * MS) {
        uint64_t bytes = bytes_moved(http);
        bool held =
            budget->is_short ||
            atomic_exchange_explicit(&http->concurrency_frozen, false, memory_order_relaxed) ||
            now_ns >= budget->climbed_ns + 2 * STK_CONCURRENCY_INTERVAL_MS * MS;

        stk_concurrency_update(&budget->climb, bytes - stk_min(bytes, budget->climbed_bytes),
                               2 * budget->busy > budget->sweeps, held);
        stk_concurrency_update(&budget->large, bytes - stk_min(bytes, budget->climbed_bytes),
                               2 * budget->large_busy > budget->sweeps, held);
        budget->climbed_ns = now_ns;
        budget->climbed_bytes = bytes;
        budget->is_short = false;
        budget->sweeps = budget->busy = budget->large_busy = 0;
    }
    if (node) {
        uint32_t held = stk_shared_limits_held(node);

        stk_shared_limits_request(node, connections_wanted(http), now_ns);
        budget->surplus = stk_shared_limits_excess(node, now_ns);
        if (http->active >= held) {
            budget->full_ns = now_ns;
        } else if (now_ns >= budget->full_ns + UNUSED_MS * MS) {
            budget->surplus = held - http->active;
            budget->full_ns = now_ns;
        }
        if (budget->surplus > 0) {
            release_leases(http, budget->surplus);
        }
    }
    publish_stats(http);
}

uint32_t stk_http_pool_idle_ms(const struct stk_http *http, uint32_t most_ms)
{
    bool leases = http->options.node && stk_shared_limits_held(http->options.node) > 0;

    return leases || http->pool.is_untried ? (uint32_t)stk_min(most_ms, STK_HTTP_LEASE_CHECK_MS)
                                           : most_ms;
}

uint32_t stk_http_free_connections(const struct stk_http *http)
{
    uint32_t most = http->options.node ? stk_shared_limits_held(http->options.node)
                                       : http->options.connections_max;

    most = (uint32_t)stk_min(most, http->pool.climb.count);
    return http->ready.first || http->pool.surplus > 0 || most < http->active ? 0
                                                                              : most - http->active;
}

static void publish_stats(struct stk_http *http)
{
    uint32_t peak = atomic_load_explicit(&http->stats.peak, memory_order_relaxed);

    atomic_store_explicit(&http->stats.open, http->pool.live, memory_order_relaxed);
    atomic_store_explicit(&http->stats.limit, http->pool.climb.count, memory_order_relaxed);
    atomic_store_explicit(&http->stats.large, http->pool.large.count, memory_order_relaxed);
    atomic_store_explicit(&http->stats.peak, (uint32_t)stk_max(peak, http->pool.live),
                          memory_order_relaxed);
}

void stk_http_get_stats(struct stk_http *http, struct stk_http_stats *stats_out)
{
    *stats_out = (struct stk_http_stats){
        .connections = atomic_load_explicit(&http->stats.open, memory_order_relaxed),
        .connections_peak = atomic_load_explicit(&http->stats.peak, memory_order_relaxed),
        .connections_max = atomic_load_explicit(&http->stats.limit, memory_order_relaxed),
        .large_max = atomic_load_explicit(&http->stats.large, memory_order_relaxed),
        .waits = atomic_load_explicit(&http->stats.waits, memory_order_relaxed)};
}
