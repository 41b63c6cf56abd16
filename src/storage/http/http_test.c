/* Goal: whatever a server does, a request ends with the right bytes or the right error within its
 * deadlines; secrets reach no other host and no error; connections are reused and bounded.
 * Method: rows of requests to a server of this test; the path of a request selects the server's
 * behaviour. */
#include "storage/http/http.h"

#include "base/mem.h"
#include "io/clock.h"
#include "storage/http/reactor.h"
#include "test/server.h"
#include "test/t.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CANARY "canary0secret0value"
#define BODY_BYTES 200000u
#define HEAD_BYTES 32768u
#define MS 1000000ull

static struct t_server server;
static _Atomic uint32_t connections, requests;
static _Atomic bool saw_secret, saw_type;
static uint8_t body[BODY_BYTES];

static bool send_text(int fd, const char *text)
{
    return t_send(fd, text, strlen(text));
}

static bool send_body(int fd, uint32_t announced, uint32_t sent)
{
    char head[256];

    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %u\r\nETag:  \"tag\" \r\n\r\n",
             announced);
    return send_text(fd, head) && t_send(fd, body, sent);
}

static bool send_redirect(int fd, const char *location)
{
    char head[512];

    snprintf(head, sizeof head, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
             location);
    return send_text(fd, head);
}

/* The client reads until it gives up, so this server may not wait for longer than the client
 * does. */
static void hold(int fd)
{
    char byte;

    while (recv(fd, &byte, 1, 0) > 0) {
    }
}

static bool echo(int fd, const char *head, char *rest, size_t rest_bytes)
{
    const char *length = strcasestr(head, "\nContent-Length:");
    size_t bytes = length ? strtoul(length + 16, NULL, 10) : 0, done = rest_bytes;
    uint8_t *copy = bytes <= 4u * BODY_BYTES ? malloc(bytes + 1) : NULL;
    char answer[128];
    bool good = copy != NULL;

    if (good) {
        memcpy(copy, rest, rest_bytes);
    }
    while (good && done < bytes) {
        ssize_t got = recv(fd, copy + done, bytes - done, 0);

        good = got > 0;
        done += got > 0 ? (size_t)got : 0;
    }
    snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", bytes);
    good = good && send_text(fd, answer) && t_send(fd, copy, bytes);
    free(copy);
    return good;
}

static const struct fixed {
    const char *path, *text;
} fixeds[] = {
    {"/chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"},
    {"/empty", "HTTP/1.1 204 No Content\r\n\r\n"},
    {"/missing", "HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\nnot here"},
};

static const struct fixed redirects[] = {
    {"/hop", "ok?x=" CANARY},
    {"/loop", "/loop"},
    {"/metadata", "http://169.254.169.254/latest/meta-data/"},
    {"/metadata6", "http://[fd00:ec2::254]/latest/meta-data/"},
    {"/file", "file:///etc/passwd"},
};

/* One answer; false: the connection is closed. */
static bool answer(int fd, const char *path, const char *head, char *rest, size_t rest_bytes)
{
    char text[256];

    T_EACH(fixed, row, fixeds)
    {
        if (strcmp(path, row->path) == 0) {
            return send_text(fd, row->text);
        }
    }
    T_EACH(fixed, row, redirects)
    {
        if (strcmp(path, row->path) == 0) {
            return send_redirect(fd, row->text);
        }
    }
    if (strcmp(path, "/ok") == 0) {
        return send_body(fd, BODY_BYTES, strncmp(head, "HEAD", 4) == 0 ? 0 : BODY_BYTES);
    }
    if (strcmp(path, "/continue") == 0) {
        return send_text(fd, "HTTP/1.1 100 Continue\r\nX-No: 1\r\n\r\n") && send_body(fd, 5, 5);
    }
    if (strcmp(path, "/long-refusal") == 0) {
        return send_text(fd, "HTTP/1.1 500 No\r\nContent-Length: 200000\r\n\r\n") &&
               t_send(fd, body, BODY_BYTES);
    }
    if (strcmp(path, "/broken") == 0) {
        send_body(fd, BODY_BYTES, 1000);
        return false;
    }
    if (strcmp(path, "/stall") == 0) {
        send_body(fd, BODY_BYTES, 1000);
        hold(fd);
        return false;
    }
    if (strcmp(path, "/silent") == 0) {
        hold(fd);
        return false;
    }
    if (strcmp(path, "/headers") == 0) {
        send_text(fd, "HTTP/1.1 200 OK\r\n");
        for (int i = 0; i < 2000; i++) {
            send_text(fd, "X-Header: 0123456789\r\n");
        }
        return send_text(fd, "Content-Length: 0\r\n\r\n");
    }
    if (strcmp(path, "/deaf") == 0) { /* stops reading the request */
        struct pollfd gone = {.fd = fd, .events = POLLRDHUP};

        poll(&gone, 1, 60000);
        return false;
    }
    if (strcmp(path, "/garbage") == 0) {
        send_text(fd, "\x16\x03 this is no HTTP\r\n\r\n");
        return false;
    }
    if (strcmp(path, "/away") == 0) {
        snprintf(text, sizeof text, "http://localhost:%d/see", server.port);
        return send_redirect(fd, text);
    }
    if (strcmp(path, "/see") == 0) {
        atomic_store(&saw_secret, strstr(head, CANARY) != NULL);
        return send_body(fd, 10, 10);
    }
    if (strcmp(path, "/echo") == 0) {
        atomic_store(&saw_type, strcasestr(head, "\nContent-Type:") != NULL);
        return echo(fd, head, rest, rest_bytes);
    }
    return false; /* "/reset" */
}

static void serve(int fd)
{
    char *head = malloc(HEAD_BYTES);
    size_t used = 0;
    bool on = true;

    atomic_fetch_add(&connections, 1);
    while (on) {
        char path[128] = "", *end;
        size_t head_bytes;
        ssize_t got = recv(fd, head + used, HEAD_BYTES - 1 - used, 0);

        if (got <= 0) {
            break;
        }
        used += (size_t)got;
        head[used] = '\0';
        end = strstr(head, "\r\n\r\n");
        if (!end) {
            continue;
        }
        end[2] = '\0';
        head_bytes = (size_t)(end - head) + 4;
        sscanf(head, "%*s %127[^ ?]", path);
        atomic_fetch_add(&requests, 1);
        on = answer(fd, path, head, head + head_bytes, used - head_bytes);
        used = 0;
    }
    free(head);
}

static const char *url_of(const char *path, char *url, size_t url_bytes)
{
    snprintf(url, url_bytes, "http://127.0.0.1:%d%s?token=" CANARY, server.port, path);
    return url;
}

struct row {
    const char *name, *path;
    uint32_t method;
    uint64_t buffer_bytes;
    bool cut;
    uint64_t skip;
    uint32_t redirects_max;
    int status;
    uint32_t failure, code;
    uint64_t bytes; /* of the body, whose bytes must be those of `body` */
};

static const struct row rows[] = {
    {"a body", "/ok", STK_HTTP_GET, BODY_BYTES, false, 0, 0, 0, 0, 200, BODY_BYTES},
    {"one too long", "/ok", STK_HTTP_GET, 999, false, 0, 0, STOKER_ERROR_LIMIT, STK_HTTP_LIMIT, 200,
     999},
    {"one that is cut", "/ok", STK_HTTP_GET, 999, true, 0, 0, 0, 0, 200, 999},
    {"no room at all, cut", "/ok", STK_HTTP_GET, 0, true, 0, 0, 0, 0, 200, 0},
    {"its end", "/ok", STK_HTTP_GET, 256, false, BODY_BYTES - 256, 0, 0, 0, 200, 256},
    {"a head", "/ok", STK_HTTP_HEAD, 0, false, 0, 0, 0, 0, 200, 0},
    {"after 100 Continue", "/continue", STK_HTTP_GET, 5, false, 0, 0, 0, 0, 200, 5},
    {"no content", "/empty", STK_HTTP_GET, 5, false, 0, 0, 0, 0, 204, 0},
    {"deleted", "/empty", STK_HTTP_DELETE, 0, false, 0, 0, 0, 0, 204, 0},
    {"a refusal", "/missing", STK_HTTP_GET, 5, false, 0, 0, 0, 0, 404, 0},
    {"a long refusal", "/long-refusal", STK_HTTP_GET, 5, false, 0, 0, 0, 0, 500, 0},
    {"broken", "/broken", STK_HTTP_GET, BODY_BYTES, false, 0, 0, STOKER_ERROR_TRUNCATED,
     STK_HTTP_BROKEN, 200, 1000},
    {"a stall", "/stall", STK_HTTP_GET, BODY_BYTES, false, 0, 0, STOKER_ERROR_TIMEOUT,
     STK_HTTP_STALL, 200, 1000},
    {"no answer", "/silent", STK_HTTP_GET, 5, false, 0, 0, STOKER_ERROR_TIMEOUT,
     STK_HTTP_FIRST_BYTE, 0, 0},
    {"a reset", "/reset", STK_HTTP_GET, 5, false, 0, 0, -ECONNRESET, STK_HTTP_RESET, 0, 0},
    {"endless headers", "/headers", STK_HTTP_GET, 5, false, 0, 0, STOKER_ERROR_LIMIT,
     STK_HTTP_LIMIT, 200, 0},
    {"no HTTP", "/garbage", STK_HTTP_GET, 5, false, 0, 0, -EPROTO, STK_HTTP_OTHER, 0, 0},
    {"a redirect as it is", "/hop", STK_HTTP_GET, 5, false, 0, 0, 0, 0, 302, 0},
    {"a redirect", "/hop", STK_HTTP_GET, BODY_BYTES, false, 0, 4, 0, 0, 200, BODY_BYTES},
    {"a redirect to another host", "/away", STK_HTTP_GET, 10, false, 0, 4, 0, 0, 200, 10},
    {"a loop", "/loop", STK_HTTP_GET, 5, false, 0, 4, STOKER_ERROR_UNSUPPORTED, STK_HTTP_REDIRECT,
     302, 0},
    {"to the metadata", "/metadata", STK_HTTP_GET, 5, false, 0, 4, STOKER_ERROR_UNSUPPORTED,
     STK_HTTP_REDIRECT, 302, 0},
    {"to the metadata by IPv6", "/metadata6", STK_HTTP_GET, 5, false, 0, 4,
     STOKER_ERROR_UNSUPPORTED, STK_HTTP_REDIRECT, 302, 0},
    {"to a file", "/file", STK_HTTP_GET, 5, false, 0, 4, STOKER_ERROR_UNSUPPORTED,
     STK_HTTP_REDIRECT, 302, 0},
};

static void check_row(struct stk_http *http, const struct row *row)
{
    static struct stk_http_response got;
    static uint8_t buffer[BODY_BYTES];
    const char *headers[] = {"Authorization: " CANARY, "X-Amz-Security-Token: " CANARY,
                             "Range: bytes=0-"};
    struct stk_http_request request = {.method = row->method,
                                       .headers = headers,
                                       .header_count = STK_COUNT(headers),
                                       .buffer = buffer,
                                       .buffer_bytes = row->buffer_bytes,
                                       .truncate = row->cut,
                                       .skip = row->skip,
                                       .redirects_max = row->redirects_max,
                                       .first_byte_ms = 300,
                                       .stall_ms = 300,
                                       .total_ms = 60000};
    struct stoker_error error = {0};
    struct stk_view value;
    char url[256];

    memset(buffer, 0xee, sizeof buffer);
    atomic_store(&saw_secret, false);
    request.url = url_of(row->path, url, sizeof url);
    T_EQ(row->name, stk_http_call(http, &request, &got, &error), row->status);
    T_EQ(row->name, request.failure, row->failure);
    T_EQ(row->name, got.code, row->code);
    T_EQ(row->name, request.bytes, row->bytes);
    T_TRUE(row->name, memcmp(buffer, body + row->skip, row->bytes) == 0);
    T_TRUE(row->name, row->bytes == BODY_BYTES || buffer[row->bytes] == 0xee);
    T_TRUE(row->name, !atomic_load(&saw_secret));
    if (row->status < 0) {
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.where, "http://127.0.0.1");
        T_TRUE(row->name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
    }
    if (row->code == 404) {
        T_STR(row->name, got.text, "not here");
    }
    if (row->code == 200 && row->bytes == BODY_BYTES) {
        T_TRUE(row->name, stk_http_header(&got, "etag", &value));
        T_TRUE(row->name, value.bytes == 5 && memcmp(value.data, "\"tag\"", 5) == 0);
        T_TRUE(row->name, !stk_http_header(&got, "eta", &value));
        T_EQ(row->name, got.content_bytes, BODY_BYTES);
    }
    if (row->method == STK_HTTP_HEAD) {
        T_EQ(row->name, got.content_bytes, BODY_BYTES);
    }
}

static void test_chunked(struct stk_http *http)
{
    static struct stk_http_response got;
    uint8_t buffer[16] = {0};
    struct stk_view value;
    char url[256];
    struct stk_http_request request = {.method = STK_HTTP_GET,
                                       .url = url_of("/chunked", url, sizeof url),
                                       .buffer = buffer,
                                       .buffer_bytes = sizeof buffer};

    T_EQ("chunked", stk_http_call(http, &request, NULL, NULL), 0);
    T_EQ("chunked", request.bytes, 7);
    T_STR("chunked", (char *)buffer, "abcdefg");
    request.url = url_of("/continue", url, sizeof url);
    T_EQ("continue", stk_http_call(http, &request, &got, NULL), 0);
    T_TRUE("of the last head only", !stk_http_header(&got, "X-No", &value));
}

static void test_upload(struct stk_http *http)
{
    static uint8_t buffer[BODY_BYTES];
    const uint32_t methods[] = {STK_HTTP_PUT, STK_HTTP_POST};
    const size_t sizes[] = {0, 1, BODY_BYTES};
    const char *type = "Content-Type: text/plain";
    char url[256];

    for (size_t i = 0; i < 2 * STK_COUNT(methods) * STK_COUNT(sizes); i++) {
        size_t bytes = sizes[i / 2 % STK_COUNT(sizes)];
        bool typed = i >= STK_COUNT(methods) * STK_COUNT(sizes);
        struct stk_http_request request = {.method = methods[i % 2],
                                           .url = url_of("/echo", url, sizeof url),
                                           .headers = &type,
                                           .header_count = typed,
                                           .body = {body, bytes},
                                           .buffer = buffer,
                                           .buffer_bytes = sizeof buffer};

        memset(buffer, 0, sizeof buffer);
        T_EQ("echo", stk_http_call(http, &request, NULL, NULL), 0);
        T_EQ("echo", request.bytes, bytes);
        T_TRUE("echo", memcmp(buffer, body, bytes) == 0);
        T_EQ("nothing is a form by itself", atomic_load(&saw_type), typed);
    }
}

static void test_no_server(struct stk_http *http)
{
    struct stk_http_request request = {
        .method = STK_HTTP_GET, .url = "http://127.0.0.1:1/" CANARY "?", .connect_ms = 1000};
    struct stoker_error error = {0};

    T_EQ("no server", stk_http_call(http, &request, NULL, &error), -ECONNREFUSED);
    T_EQ("no server", request.failure, STK_HTTP_CONNECT);
    T_ERROR("no server", &error);
    request.url = "nonsense://x";
    T_EQ("no URL", stk_http_call(http, &request, NULL, &error), -EPROTO);
    T_EQ("no URL", request.failure, STK_HTTP_OTHER);
}

/* Many at once. */
struct flood {
    struct stk_http_request request;
    uint8_t buffer[4096];
    char url[256];
    _Atomic uint32_t *left;
    uint32_t done, prepared;
};

static void flood_done(struct stk_http_request *request, const struct stk_http_response *got)
{
    struct flood *flood = request->owner;

    (void)got;
    flood->done++;
    atomic_fetch_sub(flood->left, 1);
}

static int flood_prepare(struct stk_http_request *request, char *room)
{
    struct flood *flood = request->owner;

    memset(room, 'x', STK_HTTP_SCRATCH_BYTES);

    return ++flood->prepared < 3 ? -EAGAIN : 0;
}

static int refuse(struct stk_http_request *request, const struct stk_http_response *got)
{
    (void)got;
    return stk_fail(&request->error, STOKER_ERROR_CHANGED, "refused", "by the test", "here");
}

static bool wait_for(const _Atomic uint32_t *left)
{
    uint64_t end_ns = stk_clock_ns() + 60000 * MS;

    while (atomic_load(left) > 0 && stk_clock_ns() < end_ns) {
        usleep(1000);
    }
    return atomic_load(left) == 0;
}

#define FLOOD 64u

static void flood_start(struct stk_http *http, struct flood *floods, _Atomic uint32_t *left,
                        const char *path)
{
    atomic_store(left, FLOOD);
    for (uint32_t i = 0; i < FLOOD; i++) {
        struct flood *flood = &floods[i];

        memset(flood, 0, sizeof *flood);
        flood->left = left;
        flood->request =
            (struct stk_http_request){.method = STK_HTTP_GET,
                                      .url = url_of(path, flood->url, 256),
                                      .buffer = flood->buffer,
                                      .buffer_bytes = sizeof flood->buffer,
                                      .truncate = true,
                                      .prepare = i % 4 == 0 ? flood_prepare : NULL,
                                      .not_before_ns = i % 8 == 0 ? stk_clock_ns() + 20 * MS : 0,
                                      .done = flood_done,
                                      .owner = flood};
        stk_http_submit(http, &flood->request);
    }
}

static void test_flood(struct flood *floods)
{
    struct stk_http_options options = {.connections_max = 4};
    struct stk_http *http = NULL;
    _Atomic uint32_t left;

    T_EQ("flood", stk_http_open(&http, &options, NULL), 0);
    atomic_store(&connections, 0);
    flood_start(http, floods, &left, "/continue");
    T_TRUE("all done", wait_for(&left));
    for (uint32_t i = 0; i < FLOOD; i++) {
        T_EQ("flood", floods[i].request.status, 0);
        T_EQ("flood", floods[i].done, 1);
        T_EQ("flood", floods[i].request.bytes, 5);
        T_EQ("flood", floods[i].prepared, i % 4 == 0 ? 3 : 0);
    }
    T_TRUE("bounded and reused", atomic_load(&connections) <= 4);
    /* Waiting and active requests are returned by cancel, and by close. */
    flood_start(http, floods, &left, "/silent");
    for (uint32_t i = 0; i < FLOOD / 2; i++) {
        stk_http_cancel(http, &floods[i].request);
    }
    while (atomic_load(&left) > FLOOD / 2) {
        usleep(1000);
    }
    stk_http_close(http);
    T_EQ("closed", atomic_load(&left), 0);
    for (uint32_t i = 0; i < FLOOD; i++) {
        T_EQ("cancelled", floods[i].request.failure, STK_HTTP_CANCELLED);
        T_EQ("cancelled", floods[i].request.status, STOKER_ERROR_CLOSED);
        T_EQ("cancelled", floods[i].done, 1);
    }
}

static void test_refusals(struct stk_http *http)
{
    char url[256];
    struct stk_http_request request = {
        .method = STK_HTTP_GET, .url = url_of("/ok", url, sizeof url), .begin = refuse};
    struct stoker_error error = {0};

    T_EQ("begin refuses", stk_http_call(http, &request, NULL, &error), STOKER_ERROR_CHANGED);
    T_EQ("begin refuses", request.failure, STK_HTTP_REJECTED);
    T_STR("begin refuses", error.what, "refused");
    request.begin = NULL;
    request.url = url_of("/silent", url, sizeof url);
    request.total_ms = 200;
    T_EQ("in total", stk_http_call(http, &request, NULL, &error), STOKER_ERROR_TIMEOUT);
    T_EQ("in total", request.failure, STK_HTTP_TOTAL);
}

/* A URL from a server may lead where a redirect of that server may lead: not from another host to
 * this machine. */
static void test_led(struct stk_http *http)
{
    uint8_t buffer[16];
    char url[256];

    for (int here = 0; here < 2; here++) {
        struct stk_http_request request = {.method = STK_HTTP_GET,
                                           .url = url_of("/see", url, sizeof url),
                                           .buffer = buffer,
                                           .buffer_bytes = sizeof buffer,
                                           .url_from_server = true,
                                           .server_is_local = here};

        T_EQ("led", stk_http_call(http, &request, NULL, NULL), here ? 0 : STOKER_ERROR_UNSUPPORTED);
        T_EQ("led", request.failure, here ? STK_HTTP_NO_FAILURE : STK_HTTP_REDIRECT);
    }
}

static int prepare_secret(struct stk_http_request *request, char *room)
{
    memcpy(room + 100, CANARY, sizeof CANARY);
    request->scratch_bytes = 200;
    return 0;
}

/* Deadlines before any answer; the URL and headers that prepare wrote are wiped; proxies are not
 * used for this machine. */
static void test_ways(struct stk_http *http)
{
    static uint8_t large[32u << 20];
    char url[256];
    struct stk_http_request put = {.method = STK_HTTP_PUT,
                                   .url = url_of("/deaf", url, sizeof url),
                                   .body = {large, sizeof large},
                                   .first_byte_ms = 60000,
                                   .stall_ms = 300};
    struct stk_http_request loop = {
        .method = STK_HTTP_GET, .url = url_of("/loop", url, sizeof url), .redirects_max = 4};
    struct stk_http_request secret = {.method = STK_HTTP_GET,
                                      .url = url_of("/empty", url, sizeof url),
                                      .prepare = prepare_secret};
    struct stk_http_request direct = {.method = STK_HTTP_GET, .connect_ms = 2000, .no_proxy = true};

    put.url = url_of("/deaf", url, sizeof url);
    T_EQ("the peer does not read", stk_http_call(http, &put, NULL, NULL), STOKER_ERROR_TIMEOUT);
    T_EQ("the peer does not read", put.failure, STK_HTTP_STALL);
    loop.url = url_of("/loop", url, sizeof url);
    atomic_store(&requests, 0);
    T_EQ("a loop", stk_http_call(http, &loop, NULL, NULL), STOKER_ERROR_UNSUPPORTED);
    T_EQ("a loop", atomic_load(&requests), 5);
    secret.url = url_of("/empty", url, sizeof url);
    T_EQ("prepared", stk_http_call(http, &secret, NULL, NULL), 0);
    direct.url = url_of("/empty", url, sizeof url);
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    T_EQ("by no proxy", stk_http_call(http, &direct, NULL, NULL), 0);
    direct.no_proxy = false;
    T_EQ("by a proxy", stk_http_call(http, &direct, NULL, NULL), -ECONNREFUSED);
    unsetenv("http_proxy");
    for (uint32_t i = 0; i < http->slot_count; i++) { /* wiped before the next request began */
        T_TRUE("wiped", !memmem(http->slots[i]->scratch, 4096, CANARY, strlen(CANARY)));
    }
}

/* A request that waits for a connection ends by its deadline as well. */
static void test_queue(void)
{
    struct stk_http_options options = {.connections_max = 1};
    struct stk_http *http = NULL;
    static struct flood holds;
    char url[256];
    _Atomic uint32_t left = 1;
    struct stk_http_request waits = {
        .method = STK_HTTP_GET, .url = url_of("/empty", url, sizeof url), .total_ms = 200};

    T_EQ("one", stk_http_open(&http, &options, NULL), 0);
    holds.left = &left;
    holds.request = (struct stk_http_request){.method = STK_HTTP_GET,
                                              .url = url_of("/silent", holds.url, 256),
                                              .first_byte_ms = 120000,
                                              .done = flood_done,
                                              .owner = &holds};
    stk_http_submit(http, &holds.request);
    T_EQ("waits", stk_http_call(http, &waits, NULL, NULL), STOKER_ERROR_TIMEOUT);
    T_EQ("waits", waits.failure, STK_HTTP_TOTAL);
    T_EQ("before it the other", atomic_load(&left), 1);
    stk_http_close(http);
}

/* The number of connections that the server counts, when it is 0 or after 10 s. */
static uint32_t open_connections(struct stk_http *http)
{
    struct stk_http_stats announced = {.connections = 1};

    for (uint32_t i = 0; i < 1000 && announced.connections > 0; i++) {
        usleep(10000);
        stk_http_get_stats(http, &announced);
    }
    return announced.connections;
}

/* A server whose accept queue is full does not answer; abandoned connections are closed and do not
 * count. */
static void test_connect(void)
{
    struct stk_http_options options = {.connections_max = 4};
    struct stk_http *http = NULL;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int full = socket(AF_INET, SOCK_STREAM, 0), clients[4];
    char url[64];
    struct stk_http_request request = {
        .method = STK_HTTP_GET, .url = url, .connect_ms = 300, .total_ms = 100000};

    T_EQ("full", stk_http_open(&http, &options, NULL), 0);
    T_EQ("full", bind(full, (struct sockaddr *)(void *)&address, bytes), 0);
    T_EQ("full", listen(full, 0), 0);
    getsockname(full, (struct sockaddr *)(void *)&address, &bytes);
    for (size_t i = 0; i < STK_COUNT(clients); i++) {
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(clients[i], (struct sockaddr *)(void *)&address, bytes);
    }
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    T_EQ("full", stk_http_call(http, &request, NULL, NULL), -ECONNREFUSED);
    T_EQ("full", request.failure, STK_HTTP_CONNECT);
    T_EQ("no connection", open_connections(http), 0);
    stk_http_close(http);
    for (size_t i = 0; i < STK_COUNT(clients); i++) {
        close(clients[i]);
    }
    close(full);
}

/* The client's end of its one connection to the test's server; below 0: there is none. */
static int client_socket(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in peer = {0};
        socklen_t bytes = sizeof peer;

        if (getpeername(fd, (struct sockaddr *)(void *)&peer, &bytes) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) == server.port) {
            return fd;
        }
    }
    return -1;
}

/* A server may send 2 MiB before the client reads, and progress is reported for each byte. */
static void test_window(void)
{
    struct stk_http_options options = {.connections_max = 1};
    struct stk_http *http = NULL;
    int room = 0, mark = 0, fd;
    socklen_t bytes = sizeof room;
    char url[256];
    struct stk_http_request request = {.method = STK_HTTP_GET,
                                       .url = url_of("/empty", url, sizeof url)};

    T_EQ("one", stk_http_open(&http, &options, NULL), 0);
    T_EQ("requested", stk_http_call(http, &request, NULL, NULL), 0);
    fd = client_socket();
    T_TRUE("retained", fd >= 0);
    T_EQ("room", getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &bytes), 0);
    T_TRUE("2 MiB and more", room >= 2 << 20);
    T_EQ("mark", getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, &bytes), 0);
    T_EQ("a byte", mark, 1);
    stk_http_close(http);
}

/* Signals are for the program's own threads. */
static void test_signals(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    uint32_t seen = 0;

    while (tasks && (task = readdir(tasks))) {
        char path[300], line[256];
        bool ours = false;
        FILE *file;

        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        file = fopen(path, "r");
        while (file && fgets(line, sizeof line, file)) {
            ours = ours || strcmp(line, "Name:\tstoker-http\n") == 0;
            if (ours && strncmp(line, "SigBlk:", 7) == 0) {
                T_TRUE("SIGTERM is blocked", strtoull(line + 7, NULL, 16) >> 14 & 1);
                seen++;
            }
        }
        if (file) {
            fclose(file);
        }
    }
    closedir(tasks);
    T_EQ("one reactor", seen, 1);
}

static void test_no_memory(void)
{
    struct stk_http_options options = {.ca_file = "/etc/ssl/certs/ca-certificates.crt"};

    for (uint64_t n = 1; n < 10; n++) {
        struct stk_http *http = NULL;
        struct stoker_error error = {0};
        int status;

        stk_mem_fail_nth(n);
        status = stk_http_open(&http, &options, &error);
        stk_mem_fail_nth(0);
        if (status == 0) {
            T_TRUE("fails first", n > 2);
            stk_http_close(http);
            break;
        }
        T_EQ("no memory", status, -ENOMEM);
        T_ERROR("no memory", &error);
    }
}

int main(void)
{
    struct stk_http_options options = {0};
    static struct flood floods[FLOOD];
    struct stk_http *http = NULL;

    unsetenv("http_proxy");
    for (uint32_t i = 0; i < BODY_BYTES; i++) {
        body[i] = (uint8_t)(i * 31 + i / 251);
    }
    t_server_start(&server, serve);
    T_EQ("open", stk_http_open(&http, &options, NULL), 0);
    T_EACH(row, row, rows)
    {
        check_row(http, row);
    }
    atomic_store(&connections, 0);
    test_chunked(http);
    test_upload(http);
    T_TRUE("retained", atomic_load(&connections) <= 1);
    test_no_server(http);
    test_refusals(http);
    test_led(http);
    test_ways(http);
    test_connect();
    test_signals();
    stk_http_close(http);
    test_window();
    test_queue();
    test_flood(floods);
    test_no_memory();
    options.connections_max = STK_HTTP_CONNECTIONS_MAX + 1;
    T_EQ("too many", stk_http_open(&http, &options, NULL), STOKER_ERROR_ARGUMENT);
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
