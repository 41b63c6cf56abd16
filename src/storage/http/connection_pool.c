/* How many connections may be open: those that a node's budget leaves, and no more than bring
 * something. Counts sockets: what is kept open unused counts, too, and is closed for others. */
#include "storage/http/reactor.h"

#include "base/mem.h"
#include "io/clock.h"
#include "io/io.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000ull
#define UNUSED_MS 50000u  /* leases that were not needed for so long are given back */
#define SPARE_SOCKETS 64u /* a name with addresses of two kinds is tried at both at once */
#define WINDOW_BYTES (2 << 20)
#define LATE_MS 5000u /* two large bodies within so long: it is the link, not one connection */

static void begin_large(struct stk_http *http, uint32_t a_core);
static void tell(struct stk_http *http);

int stk_http_budget_open(struct stk_http *http)
{
    struct stk_http_budget *budget = &http->budget;
    uint32_t most = http->options.connections_max, start = STK_HTTP_CONNECTIONS_START;

    if (http->options.node) {
        struct stk_node_told told;

        stk_node_tell(http->options.node, stk_clock_ns(), &told);
        start = told.members > 1 ? start : STK_HTTP_CONNECTIONS_ALONE;
    }
    budget->socket_count = most + SPARE_SOCKETS;
    budget->sockets = stk_alloc(budget->socket_count, sizeof *budget->sockets);
    for (uint32_t i = 0; budget->sockets && i < budget->socket_count; i++) {
        budget->sockets[i].fd = -1;
    }
    stk_climb_init(&budget->climb, STK_CLIMB_MIN, start, most);
    begin_large(http, STK_HTTP_LARGE_START);
    return budget->sockets ? 0 : -1;
}

static void begin_large(struct stk_http *http, uint32_t a_core)
{
    stk_climb_init(&http->budget.large, STK_CLIMB_MIN, a_core * stk_io_cores(),
                   http->options.large_max ? http->options.large_max
                                           : http->options.connections_max);
    tell(http);
}

void stk_http_budget_first_large(struct stk_http *http, bool up)
{
    if (!http->budget.had_large && up) {
        begin_large(http, STK_HTTP_LARGE_START_UP);
    }
    http->budget.had_large = true;
}

void stk_http_budget_close(struct stk_http *http)
{
    if (http->options.node) {
        stk_node_give(http->options.node, stk_node_held(http->options.node));
    }
    stk_free(http->budget.sockets);
}

/* ---- sockets ---- */

static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t bytes = sizeof cookie;

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

static void count_off(struct stk_http_budget *budget, struct stk_http_socket *socket)
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
    struct stk_http_budget *budget = &http->budget;

    for (uint32_t i = 0; i < budget->socket_count; i++) {
        if (budget->sockets[i].fd == fd) {
            return &budget->sockets[i];
        }
    }
    return NULL;
}

/* libcurl 7.88 closes a connection that it never used (given up, or the loser of two addresses)
 * without a word: lib/cf-socket.c, cf_socket_close. Its number may be another file's by now. */
bool stk_http_socket_gone(const struct stk_http_socket *socket, int fd)
{
    return socket->fd != fd || (!socket->local_port && cookie_of(fd) != socket->cookie);
}

/* Looks at those which no transfer has gone by yet; true: some are left. */
static bool count_off_gone(struct stk_http_budget *budget)
{
    bool left = false;

    for (uint32_t i = 0; i < budget->socket_count; i++) {
        struct stk_http_socket *socket = &budget->sockets[i];

        if (socket->fd < 0 || socket->slot || socket->local_port) {
            continue;
        }
        if (stk_http_socket_gone(socket, socket->fd)) {
            count_off(budget, socket);
        } else {
            left = true;
        }
    }
    return left;
}

/* Closes the connection of one that nobody uses; libcurl finds it dead later. */
static bool end_idle(struct stk_http *http)
{
    struct stk_http_budget *budget = &http->budget;

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

/* Lets the sender be WINDOW_BYTES ahead from the first answer on. The kernel's own window grows by
 * what is read in a round trip, and as long as it is full each read has to let the sender go on:
 * on one machine that is half of what reading costs. A low-water mark makes room for itself, and
 * the room stays when it is taken back (Linux 4.18, tcp_set_rcvlowat); unlike SO_RCVBUF it is not
 * cut to net.core.rmem_max, and the kernel may still give more. False: the mark stayed, and what
 * comes would not be told of. */
static bool widen(int fd)
{
    int bytes = WINDOW_BYTES, one = 1;

    return setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) < 0 ||
           setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one) == 0;
}

curl_socket_t stk_http_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct stk_http *http = user;
    struct stk_http_budget *budget = &http->budget;
    struct stk_http_socket *stale;
    int fd;

    (void)purpose;
    while (http->options.node && budget->live >= stk_node_held(http->options.node) &&
           end_idle(http)) {
    }
    fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0 && !widen(fd)) {
        close(fd);
        fd = -1;
    }
    stale = fd >= 0 ? stk_http_socket_of(http, fd) : NULL;
    if (stale) {
        count_off(budget, stale);
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
        tell(http);
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
        count_off(&http->budget, socket);
    }
    stk_http_watch_forget(http, fd);
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

void stk_http_socket_used(struct stk_http_slot *slot, const char *ip, int port, int local_port)
{
    struct stk_http_budget *budget = &slot->http->budget;

    stk_http_socket_left(slot);
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

void stk_http_socket_left(struct stk_http_slot *slot)
{
    if (slot->socket) {
        slot->socket->idle = true;
        slot->socket->slot = NULL;
        slot->socket = NULL;
    }
}

/* ---- leases ---- */

/* Gives leases that nothing runs on; the connections that they were for are closed first. */
static void give(struct stk_http *http, uint32_t count)
{
    struct stk_node *node = http->options.node;
    uint32_t held = stk_node_held(node);

    count = (uint32_t)stk_min(count, held - stk_min(held, http->active));
    while (http->budget.live > held - count && end_idle(http)) {
    }
    /* What has no answer yet is not idle, and keeps its lease. */
    count = (uint32_t)stk_min(count, held - stk_min(held, http->budget.live));
    stk_node_give(node, count);
    http->budget.surplus -= (uint32_t)stk_min(count, http->budget.surplus);
}

static uint32_t wanted(const struct stk_http *http)
{
    uint32_t want = http->active;

    for (const struct stk_http_request *request = http->ready.first;
         request && want < http->budget.climb.count; request = request->next) {
        want++;
    }
    return want;
}

bool stk_http_may_start(struct stk_http *http)
{
    struct stk_http_budget *budget = &http->budget;
    struct stk_node *node = http->options.node;
    uint64_t now_ns;

    if (http->active >= budget->climb.count) {
        return false;
    }
    if (!node) {
        return true;
    }
    if (budget->surplus > 0) {
        give(http, budget->surplus);
    }
    if (http->active + budget->surplus < stk_node_held(node)) {
        return true;
    }
    now_ns = stk_clock_ns();
    if (budget->surplus == 0 && now_ns >= budget->refused_ns + MS) {
        stk_node_demand(node, wanted(http), now_ns);
        if (stk_node_take(node, now_ns)) {
            return true;
        }
        budget->refused_ns = now_ns;
    }
    budget->is_short = true;
    if (!http->ready.first->waited) {
        http->ready.first->waited = true;
        atomic_fetch_add_explicit(&http->told.waits, 1, memory_order_relaxed);
    }
    return false;
}

/* What came and went so far, also of bodies that are not whole yet. */
static uint64_t bytes_so_far(const struct stk_http *http)
{
    uint64_t bytes = http->budget.bytes;

    for (uint32_t i = 0; i < http->slot_count; i++) {
        const struct stk_http_slot *slot = http->slots[i];

        bytes += slot->request ? slot->request->bytes + slot->uploaded : 0;
    }
    return bytes;
}

void stk_http_budget_late(struct stk_http *http, uint64_t now_ns)
{
    struct stk_http_budget *budget = &http->budget;

    if (budget->late_ns > 0 && now_ns < budget->late_ns + LATE_MS * MS) {
        stk_climb_fewer(&budget->large);
        budget->late_ns = 0;
    } else {
        budget->late_ns = now_ns;
    }
}

void stk_http_budget_sweep(struct stk_http *http, uint64_t now_ns)
{
    struct stk_http_budget *budget = &http->budget;
    struct stk_node *node = http->options.node;

    budget->is_untried = budget->is_untried && count_off_gone(budget);
    budget->sweeps++;
    budget->busy += http->ready.first && http->active >= budget->climb.count ? 1 : 0;
    budget->large_busy += http->large.first && http->large_count >= budget->large.count ? 1 : 0;
    if (now_ns >= budget->climbed_ns + STK_CLIMB_MS * MS) {
        uint64_t bytes = bytes_so_far(http);
        bool held = budget->is_short ||
                    atomic_exchange_explicit(&http->held, false, memory_order_relaxed) ||
                    now_ns >= budget->climbed_ns + 2 * STK_CLIMB_MS * MS;

        stk_climb_step(&budget->climb, bytes - stk_min(bytes, budget->climbed_bytes),
                       2 * budget->busy > budget->sweeps, held);
        stk_climb_step(&budget->large, bytes - stk_min(bytes, budget->climbed_bytes),
                       2 * budget->large_busy > budget->sweeps, held);
        budget->climbed_ns = now_ns;
        budget->climbed_bytes = bytes;
        budget->is_short = false;
        budget->sweeps = budget->busy = budget->large_busy = 0;
    }
    if (node) {
        uint32_t held = stk_node_held(node);

        stk_node_demand(node, wanted(http), now_ns);
        budget->surplus = stk_node_surplus(node, now_ns);
        if (http->active >= held) {
            budget->full_ns = now_ns;
        } else if (now_ns >= budget->full_ns + UNUSED_MS * MS) {
            budget->surplus = held - http->active;
            budget->full_ns = now_ns;
        }
        if (budget->surplus > 0) {
            give(http, budget->surplus);
        }
    }
    tell(http);
}

uint32_t stk_http_budget_idle_ms(const struct stk_http *http, uint32_t most_ms)
{
    bool leases = http->options.node && stk_node_held(http->options.node) > 0;

    return leases || http->budget.is_untried ? (uint32_t)stk_min(most_ms, STK_HTTP_LOOK_MS)
                                             : most_ms;
}

uint32_t stk_http_spare(const struct stk_http *http)
{
    uint32_t most =
        http->options.node ? stk_node_held(http->options.node) : http->options.connections_max;

    most = (uint32_t)stk_min(most, http->budget.climb.count);
    return http->ready.first || http->budget.surplus > 0 || most < http->active
               ? 0
               : most - http->active;
}

static void tell(struct stk_http *http)
{
    uint32_t peak = atomic_load_explicit(&http->told.peak, memory_order_relaxed);

    atomic_store_explicit(&http->told.open, http->budget.live, memory_order_relaxed);
    atomic_store_explicit(&http->told.limit, http->budget.climb.count, memory_order_relaxed);
    atomic_store_explicit(&http->told.large, http->budget.large.count, memory_order_relaxed);
    atomic_store_explicit(&http->told.peak, (uint32_t)stk_max(peak, http->budget.live),
                          memory_order_relaxed);
}

void stk_http_tell(struct stk_http *http, struct stk_http_told *told_out)
{
    *told_out = (struct stk_http_told){
        .connections = atomic_load_explicit(&http->told.open, memory_order_relaxed),
        .connections_peak = atomic_load_explicit(&http->told.peak, memory_order_relaxed),
        .connections_max = atomic_load_explicit(&http->told.limit, memory_order_relaxed),
        .large_max = atomic_load_explicit(&http->told.large, memory_order_relaxed),
        .waits = atomic_load_explicit(&http->told.waits, memory_order_relaxed)};
}
