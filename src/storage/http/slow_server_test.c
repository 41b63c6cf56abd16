/* Goal: a transfer that makes progress continues, however slow the link; one that stops, or crawls
 * while others do not, ends in a bounded time.
 * Method: the rules with a simulated clock and a real socket that this test reads at a chosen rate;
 * then a server that trickles, requested with short totals. Covers http_timeout.c. */
#include "storage/http/http.h"

#include "base/mem.h"
#include "storage/http/reactor.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define START_NS (100 * SECOND)
#define STALL_MS 10000u
#define TOTAL_MS 300000u
#define WAIT_MS 20000
#define TRICKLE_BYTES 40000u
#define TRICKLE_MS 60
#define TRICKLE_PIECES 60 /* so it takes 3.6 s */
#define TRICKLE_TOTAL_MS 2000

static struct stk_http http; /* nothing of it runs */

/* A transfer whose request was sent, and whose answer has begun. */
static void begin(struct stk_http_slot *slot, struct stk_http_request *request)
{
    *request = (struct stk_http_request){.first_byte_ms = STALL_MS,
                                         .stall_ms = STALL_MS,
                                         .total_ms = TOTAL_MS,
                                         .by_progress = true,
                                         .group = 7,
                                         .deadline_ns = START_NS + TOTAL_MS * MS};
    memset(slot, 0, sizeof *slot);
    slot->http = &http;
    slot->request = request;
    slot->sent = true;
    slot->answer.code = 200;
    slot->started_ns = slot->progress_ns = START_NS;
    http.hosts[7] = (struct stk_http_host){.active = 1};
}

static void move(struct stk_http_slot *slot, uint64_t bytes, uint64_t others, uint64_t now_ns)
{
    slot->moved += bytes;
    http.hosts[7].moved += bytes + others;
    slot->progress_ns = bytes > 0 ? now_ns : slot->progress_ns;
}

/* The time limit by the speed of the transfer in a second, and by the speed of each of the
 * others. */
static void test_speeds(void)
{
    static const struct row {
        const char *name;
        uint64_t own, others;   /* bytes a second */
        uint32_t before, after; /* transfers, in the first ten seconds and after them */
        uint32_t end;
        uint64_t end_s; /* at the latest; else it continues for an hour */
    } rows[] = {
        {"fast", 1 << 20, 0, 1, 1, 0, 0},
        {"a slow link, alone", 3000, 0, 1, 1, 0, 0},
        {"a slow link, with 64 others", 3000, 3000, 65, 65, 0, 0},
        {"as slow as each of many", 500, 500, 65, 65, STK_HTTP_TOTAL, 301},
        {"nothing", 0, 0, 1, 1, STK_HTTP_STALL, 11},
        {"nothing, beside others", 0, 1 << 24, 9, 9, STK_HTTP_STALL, 11},
        {"a crawl alone", 1, 0, 1, 1, STK_HTTP_TOTAL, 301},
        {"a crawl beside one that is fast", 1, 1 << 20, 2, 2, STK_HTTP_SLOW, 11},
        {"beside one that comes and goes meanwhile", 1, 1 << 20, 1, 1, STK_HTTP_SLOW, 11},
        {"beside many that are fast", 1, 1 << 20, 65, 65, STK_HTTP_SLOW, 11},
        {"others came only now", 500, 1500, 2, 65, STK_HTTP_TOTAL, 301},
        {"others have just gone", 500, 1000, 65, 2, STK_HTTP_TOTAL, 301},
    };
    static struct stk_http_slot slot;
    struct stk_http_request request;

    T_EACH(row, row, rows)
    {
        uint32_t end = STK_HTTP_NO_FAILURE;
        uint64_t s = 0;

        begin(&slot, &request);
        for (; s < 3600 && end == STK_HTTP_NO_FAILURE; s++) {
            uint64_t now_ns = START_NS + s * SECOND;

            uint32_t active = s < 10 ? row->before : row->after;

            http.hosts[7].active = active;
            move(&slot, s > 0 ? row->own : 0, row->others * (stk_max(active, 2) - 1), now_ns);
            end = stk_http_check_timeout(&slot, now_ns);
        }
        T_EQ(row->name, end, row->end);
        T_TRUE(row->name, end == STK_HTTP_NO_FAILURE || s <= row->end_s + 1);
        T_TRUE(row->name, end == STK_HTTP_NO_FAILURE || s >= 10);
    }
}

static void test_deadlines(void)
{
    static struct stk_http_slot slot;
    struct stk_http_request request;
    uint64_t end_ns = START_NS + TOTAL_MS * MS;

    begin(&slot, &request);
    request.group = 0; /* of no transfer */
    move(&slot, 1, 0, START_NS);
    (void)stk_http_check_timeout(&slot, START_NS);
    move(&slot, 1, 1 << 30, START_NS + 10 * SECOND);
    T_EQ("not compared", stk_http_check_timeout(&slot, START_NS + 10 * SECOND),
         STK_HTTP_NO_FAILURE);
    begin(&slot, &request);
    request.by_progress = false;
    slot.progress_ns = end_ns;
    T_EQ("in time", stk_http_check_timeout(&slot, end_ns - 1), STK_HTTP_NO_FAILURE);
    T_EQ("a total is one", stk_http_check_timeout(&slot, end_ns), STK_HTTP_TOTAL);
    begin(&slot, &request);
    slot.answer.code = 0;
    T_EQ("no answer yet", stk_http_check_timeout(&slot, START_NS + 10 * SECOND - 1),
         STK_HTTP_NO_FAILURE);
    T_EQ("no answer", stk_http_check_timeout(&slot, START_NS + 10 * SECOND), STK_HTTP_FIRST_BYTE);
    slot.sent = false;
    T_EQ("no connection", stk_http_check_timeout(&slot, end_ns), STK_HTTP_TOTAL);
    atomic_store(&request.cancelled, true);
    T_EQ("not wanted", stk_http_check_timeout(&slot, START_NS), STK_HTTP_CANCELLED);
    T_EQ("nor here", stk_http_check_wait_timeout(&http, &request, START_NS), STK_HTTP_CANCELLED);

    /* In a queue: as long as some other gets on. */
    begin(&slot, &request);
    for (uint64_t s = 0; s < 3600; s += 200) {
        http.moved_ns = START_NS + s * SECOND;
        T_EQ("its turn will come",
             stk_http_check_wait_timeout(&http, &request, http.moved_ns + SECOND),
             STK_HTTP_NO_FAILURE);
    }
    T_EQ("it will not", stk_http_check_wait_timeout(&http, &request, http.moved_ns + TOTAL_MS * MS),
         STK_HTTP_TOTAL);
    request.by_progress = false;
    T_EQ("a total is one", stk_http_check_wait_timeout(&http, &request, end_ns), STK_HTTP_TOTAL);
}

static int unsent_of(int fd)
{
    int bytes = 0;

    T_EQ("requested", ioctl(fd, SIOCOUTQ, &bytes), 0);
    return bytes;
}

/* Reads `bytes` at one end, until less is unsent at the other. */
static void take(int from, int to, size_t bytes)
{
    static char some[65536];
    int before = unsent_of(from);

    while (bytes > 0) {
        ssize_t got = recv(to, some, stk_min(bytes, sizeof some), 0);

        T_TRUE("read", got > 0);
        bytes -= got > 0 ? (size_t)got : bytes;
    }
    for (int ms = 0; unsent_of(from) >= before && ms < WAIT_MS; ms++) {
        poll(NULL, 0, 1);
    }
    T_TRUE("acknowledged", unsent_of(from) < before);
}

/* All of a body is with the kernel, which sends it as slowly as it is read. */
static void test_upload(void)
{
    static struct stk_http_slot slot;
    static uint8_t body[1 << 16];
    struct stk_http_request request;
    struct stk_http_socket socket_of = {0};
    struct sockaddr_in address = {.sin_family = AF_INET};
    int port = 0, listener = t_listen(1, &port), small = 4096, peer;
    uint64_t now_ns = START_NS, sent = 0;

    socket_of.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    T_EQ("small", setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    T_EQ("connect", connect(socket_of.fd, (const struct sockaddr *)&address, sizeof address), 0);
    peer = accept(listener, NULL, NULL);
    for (ssize_t got = 1; got > 0;) {
        got = send(socket_of.fd, body, sizeof body, MSG_DONTWAIT);
        sent += got > 0 ? (uint64_t)got : 0;
    }
    begin(&slot, &request);
    slot.answer.code = 0;
    slot.socket = &socket_of;
    request.body = (struct stk_view){body, sent};
    move(&slot, sent, 0, now_ns);
    slot.uploaded = sent; /* no more will be handed over */
    T_EQ("just handed over", stk_http_check_timeout(&slot, now_ns), STK_HTTP_NO_FAILURE);
    now_ns += SECOND;
    T_EQ("a first look", stk_http_check_timeout(&slot, now_ns), STK_HTTP_NO_FAILURE);
    slot.moved += 100000; /* bytes acknowledged later belong to no other transfer */
    http.hosts[7].moved += 100000;
    for (uint32_t i = 0; i < 6; i++) { /* for a minute some of it leaves */
        take(socket_of.fd, peer, sent / 10);
        now_ns += STALL_MS * MS - 1;
        T_EQ("it gets on", stk_http_check_timeout(&slot, now_ns), STK_HTTP_NO_FAILURE);
    }
    T_TRUE("not all has left", unsent_of(socket_of.fd) > 0);
    T_EQ("then nothing", stk_http_check_timeout(&slot, now_ns + STALL_MS * MS), STK_HTTP_STALL);
    close(peer);
    close(socket_of.fd);
    close(listener);
}

/* ---- with a server ---- */

static struct t_server server;

/* A piece each TRICKLE_MS, of a body either way; the client's other end may leave at any time. */
static void serve(int fd)
{
    char head[256], some[TRICKLE_BYTES / TRICKLE_PIECES];
    size_t begun = 0, left = TRICKLE_BYTES;
    bool upload;
    ssize_t got;

    memset(some, 'x', sizeof some);
    while (begun < sizeof head - 1 && !(begun >= 4 && strstr(head, "\r\n\r\n"))) {
        got = recv(fd, head + begun, 1, 0);
        if (got <= 0) {
            return;
        }
        begun += (size_t)got;
        head[begun] = '\0';
    }
    upload = strncmp(head, "PUT", 3) == 0;
    if (upload || t_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n", 42)) {
        while (left > 0) {
            poll(NULL, 0, TRICKLE_MS);
            got = upload ? recv(fd, some, sizeof some, 0)
                         : (t_send(fd, some, sizeof some) ? (ssize_t)sizeof some : -1);
            if (got <= 0) {
                return;
            }
            left -= stk_min((size_t)got, left);
        }
        if (upload) {
            (void)t_send(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 38);
        }
    }
}

static _Atomic uint32_t ended;

static void done(struct stk_http_request *request, const struct stk_http_response *answer)
{
    (void)request;
    (void)answer;
    atomic_fetch_add(&ended, 1);
}

/* In pieces, each in time, for longer than the total of transfers without progress checks. */
static void test_trickle(void)
{
    static const struct row {
        const char *name;
        uint32_t method;
        bool by_progress;
        uint32_t failure;
    } rows[] = {
        {"down", STK_HTTP_GET, true, STK_HTTP_NO_FAILURE},
        {"up", STK_HTTP_PUT, true, STK_HTTP_NO_FAILURE},
        {"with a total", STK_HTTP_GET, false, STK_HTTP_TOTAL},
    };
    static uint8_t bytes[STK_COUNT(rows)][TRICKLE_BYTES];
    static struct stk_http_request requests[STK_COUNT(rows)];
    struct stk_http_options options = {.connections_max = STK_COUNT(rows)};
    struct stk_http *reactor = NULL;
    char url[64];

    t_server_start(&server, serve);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", server.port);
    T_EQ("open", stk_http_open(&reactor, &options, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        requests[i] = (struct stk_http_request){.method = rows[i].method,
                                                .url = url,
                                                .buffer = bytes[i],
                                                .buffer_bytes = TRICKLE_BYTES,
                                                .first_byte_ms = WAIT_MS,
                                                .stall_ms = WAIT_MS,
                                                .total_ms = TRICKLE_TOTAL_MS,
                                                .by_progress = rows[i].by_progress,
                                                .done = done};
        if (rows[i].method == STK_HTTP_PUT) {
            requests[i].body = (struct stk_view){bytes[i], TRICKLE_BYTES};
        }
        stk_http_submit(reactor, &requests[i]);
    }
    for (int ms = 0; atomic_load(&ended) < STK_COUNT(rows) && ms < 2 * WAIT_MS; ms++) {
        poll(NULL, 0, 1);
    }
    stk_http_close(reactor); /* transfers that did not end are cancelled */
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        T_EQ(rows[i].name, requests[i].failure, rows[i].failure);
        T_TRUE(rows[i].name, rows[i].failure || rows[i].method == STK_HTTP_PUT ||
                                 requests[i].bytes == TRICKLE_BYTES);
    }
    t_server_stop(&server);
}

int main(void)
{
    unsetenv("http_proxy");
    test_speeds();
    test_deadlines();
    test_upload();
    test_trickle();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
