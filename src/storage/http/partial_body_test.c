/* Goal: a sender of a response in pieces gets an acknowledgement at once, so that Nagle's algorithm
 * does not delay the next piece by a timer of 40 ms (socket_poll.c); a complete response costs
 * nothing more. Method: a server of this test, which sends the rest of a response only after the
 * client has requested that from its kernel; this test replaces setsockopt of the C library. */
#include "storage/http/http.h"

#include "base/mem.h"
#include "test/server.h"
#include "test/t.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_MS 10000

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello, world";

static struct t_server server;
static _Atomic uint32_t acknowledged; /* how often the client made the kernel acknowledge */
static _Atomic uint32_t answered;     /* complete */

int setsockopt(int fd, int level, int name, const void *value, socklen_t bytes)
{
    if (level == IPPROTO_TCP && name == TCP_QUICKACK) {
        atomic_fetch_add(&acknowledged, 1);
    }
    return (int)syscall(SYS_setsockopt, fd, level, name, value, bytes);
}

/* "/17": after so many bytes it waits. */
static void serve(int fd)
{
    char request[4096];
    size_t head_bytes;

    while (t_read_request(fd, request, sizeof request, &head_bytes) > 0) {
        size_t first = strtoul(strchr(request, '/') + 1, NULL, 10);
        uint32_t before = atomic_load(&acknowledged);

        if (!t_send(fd, answer, first)) {
            return;
        }
        for (int ms = 0; first < strlen(answer) && atomic_load(&acknowledged) == before; ms++) {
            if (ms == WAIT_MS) {
                return;
            }
            poll(NULL, 0, 1);
        }
        atomic_fetch_add(&answered, 1); /* before the client can have it all */
        if (!t_send(fd, answer + first, strlen(answer) - first)) {
            return;
        }
    }
}

static int get(struct stk_http *http, size_t first)
{
    char url[64], buffer[32] = "";
    struct stk_http_request request = {.method = STK_HTTP_GET,
                                       .url = url,
                                       .buffer = (uint8_t *)buffer,
                                       .buffer_bytes = sizeof buffer - 1};
    int status;

    snprintf(url, sizeof url, "http://127.0.0.1:%d/%zu", server.port, first);
    status = stk_http_call(http, &request, NULL, NULL);
    T_TRUE("the right bytes", status < 0 || strcmp(buffer, "hello, world") == 0);
    return status;
}

int main(void)
{
    static const struct row {
        const char *name;
        size_t first;
    } rows[] = {
        {"within the head", 20},
        {"before the body", sizeof answer - 1 - 12},
        {"within the body", sizeof answer - 1 - 5},
    };
    struct stk_http_options options = {.connections_max = 1};
    struct stk_http *http = NULL;
    uint32_t before;

    unsetenv("http_proxy");
    t_server_start(&server, serve);
    T_EQ("open", stk_http_open(&http, &options, NULL), 0);
    for (int turn = 0; turn < 3; turn++) {
        T_EACH(row, row, rows)
        {
            T_EQ(row->name, get(http, row->first), 0);
        }
    }
    T_EQ("all", atomic_load(&answered), 3 * STK_COUNT(rows));
    before = atomic_load(&acknowledged);
    T_EQ("complete", get(http, strlen(answer)), 0);
    T_EQ("that needs none", atomic_load(&acknowledged), before);
    stk_http_close(http);
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
