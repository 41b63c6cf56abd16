/* Goal: resolver.c handles names without an address, a resolver that hangs, addresses that changed,
 * and more names than the cache holds.
 * Method: a resolver of this test in front of the C library's, and a server on this machine that
 * answers each connection once. */
#include "storage/http/http.h"

#include "test/t.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MANY 40u /* names; more than are cached */
#define DEAD (INADDR_LOOPBACK + 7)
#define LEAD_MS 2000u

static int listener, port;
static _Atomic uint32_t lookups, moved, failed;
static sem_t hangs, released;

/* Stands before the C library's. A name that begins with "none" has no address, with "slow"
 * neither, after a while, with "hang" none until it is released, with "late" one soon; "moved" has
 * a dead one at first. */
int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
    struct addrinfo *one;
    struct sockaddr_in *address;
    uint32_t ip = INADDR_LOOPBACK;

    (void)hints;
    atomic_fetch_add(&lookups, 1);
    if (strncmp(name, "slow", 4) == 0) {
        usleep(1300000); /* longer than a failed lookup is cached */
    } else if (strncmp(name, "late", 4) == 0) {
        usleep(200000);
    }
    if (strncmp(name, "none", 4) == 0 || strncmp(name, "slow", 4) == 0) {
        return EAI_NONAME;
    }
    if (strncmp(name, "hang", 4) == 0) {
        sem_post(&hangs);
        sem_wait(&released);
    }
    if (strncmp(name, "moved", 5) == 0 && atomic_fetch_add(&moved, 1) == 0) {
        ip = DEAD;
    }
    one = calloc(1, sizeof *one + sizeof *address);
    address = (struct sockaddr_in *)(void *)(one + 1);
    *address = (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)strtoul(service, NULL, 10)),
                                    .sin_addr.s_addr = htonl(ip)};
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

static void *serve(void *context)
{
    static const char good[] = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    char request[2048], answer[256];
    ssize_t got;
    int fd;

    (void)context;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        got = recv(fd, request, sizeof request - 1, 0);
        if (got > 0) {
            request[got] = '\0';
            snprintf(answer, sizeof answer, "%s", good);
            if (strstr(request, "/lead")) { /* slowly, to another host */
                usleep(LEAD_MS * 1000 + 300000);
                snprintf(answer, sizeof answer,
                         "HTTP/1.1 302 Found\r\nLocation: http://late.test:%d/\r\n"
                         "Content-Length: 0\r\nConnection: close\r\n\r\n",
                         port);
            }
            atomic_fetch_add(&failed, send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0);
        }
        close(fd);
    }
    return NULL;
}

static int get(struct stk_http *http, const char *host, struct stk_http_request *request,
               struct stoker_error *error)
{
    static char url[128];

    snprintf(url, sizeof url, "http://user@%s:%d/x?y", host, port);
    request->method = STK_HTTP_GET;
    request->url = url;
    return stk_http_call(http, request, NULL, error);
}

static void test_none(struct stk_http *http)
{
    struct stk_http_request request = {0};
    struct stoker_error error = {0};
    uint32_t before = lookups;

    T_EQ("none", get(http, "none.test", &request, &error), -EHOSTUNREACH);
    T_EQ("none", request.failure, STK_HTTP_RESOLVE);
    T_HAS("none", error.where, "none.test");
    T_HAS("none", error.where, gai_strerror(EAI_NONAME));
    T_ERROR("none", &error);
    T_EQ("none at once", get(http, "none.test", &request, &error), -EHOSTUNREACH);
    T_TRUE("and no lookup each time", lookups - before < 3);
}

/* The resolver hangs: the request has its deadline for connecting; others are not held up. */
static void test_hang(struct stk_http *http)
{
    struct stk_http_request slow = {.connect_ms = 200}, other = {0};
    struct stoker_error error = {0};

    T_EQ("hang", get(http, "hang.test", &slow, &error), -EHOSTUNREACH);
    T_EQ("hang", slow.failure, STK_HTTP_RESOLVE);
    T_ERROR("hang", &error);
    T_EQ("another", get(http, "good.test", &other, &error), 0);
    sem_wait(&hangs);
    sem_post(&released);
    slow.connect_ms = 60000;
    T_EQ("it is there now", get(http, "hang.test", &slow, &error), 0);
    T_EQ("one lookup", sem_trywait(&hangs), -1);
}

/* A name whose addresses refuse connections is looked up again, once a second. */
static void test_moved(struct stk_http *http)
{
    struct stk_http_request request = {0};
    struct stoker_error error = {0};
    int status = get(http, "moved.test", &request, &error);

    T_EQ("moved", status, -ECONNREFUSED);
    T_EQ("moved", request.failure, STK_HTTP_CONNECT);
    for (int i = 0; i < 600 && status < 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        status = get(http, "moved.test", &request, &error);
    }
    T_EQ("found again", status, 0);
    T_TRUE("by another look-up", moved >= 2);
}

/* A resolver that is slow to fail: the failure is reported, and lookups are not repeated at once.
 */
static void test_slow(struct stk_http *http)
{
    struct stk_http_request request = {.connect_ms = 60000};
    struct stoker_error error = {0};
    uint32_t before = lookups;

    T_EQ("slow", get(http, "slow.test", &request, &error), -EHOSTUNREACH);
    T_HAS("slow", error.where, gai_strerror(EAI_NONAME));
    T_EQ("requested once", lookups - before, 1);
}

/* The lookup of the first host may be slow: the other host has a full timeout of its own. */
static void test_led(struct stk_http *http)
{
    struct stk_http_request request = {
        .method = STK_HTTP_GET, .redirects_max = 2, .connect_ms = LEAD_MS};
    struct stoker_error error = {0};
    char url[64];

    snprintf(url, sizeof url, "http://good.test:%d/lead", port);
    request.url = url;
    T_EQ("led", stk_http_call(http, &request, NULL, &error), 0);
}

/* A request that waits for its name has no data of the request before it. */
static void test_fresh(struct stk_http *http)
{
    static uint8_t body[200000];
    struct stk_http_request last = {.body = {body, sizeof body}, .method = STK_HTTP_PUT};
    struct stk_http_request next = {.connect_ms = 200};
    char url[64];

    snprintf(url, sizeof url, "http://127.0.0.1:%d/", port);
    last.url = url;
    (void)stk_http_call(http, &last, NULL, NULL); /* the server may have closed before the end */
    T_TRUE("sent", last.sent_bytes > 0);
    T_EQ("hangs", get(http, "hang1.test", &next, NULL), -EHOSTUNREACH);
    T_EQ("nothing was sent", next.sent_bytes, 0);
    sem_post(&released);
}

static void test_many(struct stk_http *http)
{
    struct stoker_error error = {0};

    for (uint32_t i = 0; i < 2 * MANY; i++) {
        struct stk_http_request request = {0};
        char host[32];

        snprintf(host, sizeof host, "many%u.test", i % MANY);
        T_EQ(host, get(http, host, &request, &error), 0);
    }
}

/* Text that is not a name, or has unusual characters, is passed to libcurl; its error is reported
 * as before. */
static void test_libcurls(struct stk_http *http)
{
    static const struct row {
        const char *host;
        int want;
    } rows[] = {{"127.0.0.1", 0}, {"127.1", 0}, {"bad host", -EPROTO}, {"none%74.test", 1}};

    T_EACH(row, row, rows)
    {
        struct stk_http_request request = {0};
        struct stoker_error error = {0};
        int status = get(http, row->host, &request, &error);

        T_TRUE(row->host, row->want == 1 ? status < 0 : status == row->want);
    }
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct stk_http_options options = {.connections_max = 4};
    socklen_t bytes = sizeof address;
    struct stk_http_request last = {.connect_ms = 200};
    struct stk_http *http = NULL;
    pthread_t thread;

    unsetenv("http_proxy");
    unsetenv("all_proxy");
    sem_init(&hangs, 0, 0);
    sem_init(&released, 0, 0);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_EQ("bind", bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    T_EQ("listen", listen(listener, 64), 0);
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    port = ntohs(address.sin_port);
    pthread_create(&thread, NULL, serve, NULL);
    T_EQ("open", stk_http_open(&http, &options, NULL), 0);
    test_none(http);
    test_hang(http);
    test_slow(http);
    test_led(http);
    test_fresh(http);
    test_moved(http);
    test_many(http);
    test_libcurls(http);
    /* Closed while the resolver hangs: it is not waited for, and lets go of all by itself. */
    T_EQ("hangs", get(http, "hang2.test", &last, NULL), -EHOSTUNREACH);
    stk_http_close(http);
    sem_post(&released);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
    T_EQ("all answers were sent", failed, 0);
    return t_finish();
}
