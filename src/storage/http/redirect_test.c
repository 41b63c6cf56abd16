/* Goal: a redirect to a name cannot reach addresses that only this machine may use: neither a
 * link-local address, where the metadata services are, nor, from a remote host, this machine. The
 * address is checked when the connection is made (before_sending of transfer.c).
 * Method: a network of this test: its resolver returns addresses for names; its connect leads all
 * of them to one server on loopback, which redirects and records the requested hosts; its
 * getpeername returns the requested address, as a router that translates addresses does. */
#include "storage/http/http.h"

#include "base/mem.h"
#include "test/server.h"
#include "test/t.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FDS 1024

/* The hosts and their addresses. */
static const struct name {
    const char *name, *address;
} names[] = {
    {"store.test", "192.0.2.1"},          {"other.test", "198.51.100.7"},
    {"this.test", "127.0.0.1"},           {"also-this.test", "127.9.9.9"},
    {"metadata.test", "169.254.169.254"}, {"neighbour.test", "169.254.0.9"},
};

static struct t_server server;
/* by socket: the address that libcurl requested, before the test replaced it */
static _Atomic uint32_t peers[FDS];
static _Atomic uint32_t inner; /* requests for /inner */

/* These stand before the C library's. */
int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
    struct addrinfo *one = calloc(1, sizeof *one + sizeof(struct sockaddr_in));
    struct sockaddr_in *address = (struct sockaddr_in *)(void *)(one + 1);

    (void)hints;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)(service ? strtoul(service, NULL, 10) : 0));
    T_EACH(name, row, names)
    {
        if (strcmp(name, row->name) == 0) {
            inet_pton(AF_INET, row->address, &address->sin_addr);
        }
    }
    *one = (struct addrinfo){.ai_family = AF_INET,
                             .ai_socktype = SOCK_STREAM,
                             .ai_addrlen = sizeof *address,
                             .ai_addr = (struct sockaddr *)address};
    *list = one;
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    free(list);
}

int connect(int fd, __CONST_SOCKADDR_ARG given, socklen_t bytes)
{
    const struct sockaddr *to = given.__sockaddr__;
    struct sockaddr_in address;

    if (to->sa_family == AF_INET && fd >= 0 && fd < FDS) {
        memcpy(&address, to, sizeof address);
        atomic_store(&peers[fd], address.sin_addr.s_addr);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons((uint16_t)server.port);
        return (int)syscall(SYS_connect, fd, &address, sizeof address);
    }
    return (int)syscall(SYS_connect, fd, to, bytes);
}

int getpeername(int fd, __SOCKADDR_ARG given, socklen_t *restrict bytes)
{
    struct sockaddr *peer = given.__sockaddr__;
    int status = (int)syscall(SYS_getpeername, fd, peer, bytes);

    if (status == 0 && peer->sa_family == AF_INET && fd < FDS && atomic_load(&peers[fd])) {
        struct sockaddr_in address;

        memcpy(&address, peer, sizeof address);
        address.sin_addr.s_addr = atomic_load(&peers[fd]);
        memcpy(peer, &address, sizeof address);
    }
    return status;
}

/* "/to/NAME" redirects to NAME's /inner; all else is answered. */
static void answer(int fd, const char *head)
{
    char name[64] = "", text[256];

    if (sscanf(head, "GET /to/%63[^ /] ", name) == 1) {
        snprintf(text, sizeof text,
                 "HTTP/1.1 302 Found\r\nLocation: http://%s/inner\r\nContent-Length: 0\r\n\r\n",
                 name);
    } else {
        atomic_fetch_add(&inner, strncmp(head, "GET /inner ", 11) == 0);
        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
    t_send(fd, text, strlen(text));
}

static void serve(int fd)
{
    char head[8192];

    while (t_read_request(fd, head, sizeof head, NULL) > 0) {
        answer(fd, head);
    }
}

static const struct row {
    const char *name, *from, *to;
    bool led, led_here; /* requested by a URL of a server on this machine */
    bool good;
} rows[] = {
    {"to another host", "store.test", "other.test", false, false, true},
    {"to this machine", "store.test", "this.test", false, false, false},
    {"to this machine by another number", "store.test", "also-this.test", false, false, false},
    {"to the metadata", "store.test", "metadata.test", false, false, false},
    {"to a neighbour", "store.test", "neighbour.test", false, false, false},
    {"within this machine", "this.test", "also-this.test", false, false, true},
    {"from this machine", "this.test", "other.test", false, false, true},
    {"from this machine to the metadata", "this.test", "metadata.test", false, false, false},
    {"the metadata, named by hand", "metadata.test", NULL, false, false, true},
    {"led to another host", "other.test", NULL, true, false, true},
    {"led to the metadata", "metadata.test", NULL, true, false, false},
    {"led from this machine to the metadata", "metadata.test", NULL, true, true, false},
    {"led to this machine", "this.test", NULL, true, false, false},
    {"led, then to this machine", "other.test", "this.test", true, false, false},
    {"led within this machine, then there", "this.test", "this.test", true, true, true},
};

static void check(struct stk_http *http, const struct row *row)
{
    char url[128];
    uint8_t buffer[16];
    struct stoker_error error = {0};
    struct stk_http_request request = {.method = STK_HTTP_GET,
                                       .url = url,
                                       .buffer = buffer,
                                       .buffer_bytes = sizeof buffer,
                                       .redirects_max = 4,
                                       .url_from_server = row->led,
                                       .server_is_local = row->led_here};
    int status;

    if (row->to) {
        snprintf(url, sizeof url, "http://%s/to/%s", row->from, row->to);
    } else {
        snprintf(url, sizeof url, "http://%s/inner", row->from);
    }
    atomic_store(&inner, 0);
    status = stk_http_call(http, &request, NULL, &error);
    T_EQ(row->name, status, row->good ? 0 : STOKER_ERROR_UNSUPPORTED);
    T_EQ(row->name, request.failure, row->good ? STK_HTTP_NO_FAILURE : STK_HTTP_REDIRECT);
    T_EQ(row->name, atomic_load(&inner), row->good);
    if (!row->good) {
        T_ERROR(row->name, &error);
    }
}

int main(void)
{
    struct stk_http_options options = {.connections_max = 16};
    struct stk_http *http = NULL;

    unsetenv("http_proxy");
    t_server_start(&server, serve);
    for (int reused = 0; reused < 2; reused++) { /* on new connections, then on reused ones */
        T_EQ("open", reused ? 0 : stk_http_open(&http, &options, NULL), 0);
        T_EACH(row, row, rows)
        {
            check(http, row);
        }
    }
    stk_http_close(http);
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
