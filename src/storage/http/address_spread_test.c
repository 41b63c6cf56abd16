/* Goal: connections to a name with several addresses use several of them (reactor.c, resolver.c),
 * and the name is resolved once.
 * Method: a resolver of this test, which returns eight addresses of this machine for one name; a
 * server on all of them, which responds when all connections are established. */
#include "storage/http/http.h"

#include "test/t.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESSES 8u
#define CONNECTIONS 32u

static int listener, port;
static _Atomic uint32_t good, lookups;

/* Stands before the C library's. */
int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict list)
{
    struct addrinfo *next = NULL;

    (void)name;
    (void)hints;
    atomic_fetch_add(&lookups, 1);
    for (uint32_t i = 0; i < ADDRESSES; i++) {
        struct addrinfo *one = calloc(1, sizeof *one + sizeof(struct sockaddr_in));
        struct sockaddr_in *address = (struct sockaddr_in *)(void *)(one + 1);

        *address = (struct sockaddr_in){.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)strtoul(service, NULL, 10)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
        *one = (struct addrinfo){.ai_family = AF_INET,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_addrlen = sizeof *address,
                                 .ai_addr = (struct sockaddr *)address,
                                 .ai_next = next};
        next = one;
    }
    *list = next;
    return 0;
}

void freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;

        free(list);
        list = next;
    }
}

static void *call(void *context)
{
    char url[64];
    struct stk_http_request request = {.method = STK_HTTP_GET, .url = url};

    snprintf(url, sizeof url, "http://many.test:%d/", port);
    atomic_fetch_add(&good, stk_http_call(context, &request, NULL, NULL) == 0);
    return NULL;
}

int main(void)
{
    static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct stk_http_options options = {.connections_max = CONNECTIONS};
    socklen_t bytes = sizeof address;
    struct stk_http *http = NULL;
    pthread_t threads[CONNECTIONS];
    uint32_t count[ADDRESSES] = {0}, used = 0, most = 0;
    int fds[CONNECTIONS];

    unsetenv("http_proxy");
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    T_EQ("bind", bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    T_EQ("listen", listen(listener, CONNECTIONS), 0);
    getsockname(listener, (struct sockaddr *)&address, &bytes);
    port = ntohs(address.sin_port);
    T_EQ("open", stk_http_open(&http, &options, NULL), 0);
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        pthread_create(&threads[i], NULL, call, http);
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        bytes = sizeof address;
        fds[i] = accept(listener, NULL, NULL);
        getsockname(fds[i], (struct sockaddr *)&address, &bytes);
        count[(ntohl(address.sin_addr.s_addr) - INADDR_LOOPBACK) % ADDRESSES]++;
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        T_EQ("answer", send(fds[i], answer, strlen(answer), MSG_NOSIGNAL), strlen(answer));
    }
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        pthread_join(threads[i], NULL);
        close(fds[i]);
    }
    for (uint32_t i = 0; i < ADDRESSES; i++) {
        used += count[i] > 0;
        most = count[i] > most ? count[i] : most;
    }
    printf("%u of %u addresses, %u at most on one, %u look-ups\n", used, ADDRESSES, most, lookups);
    T_EQ("all have an answer", good, CONNECTIONS);
    T_EQ("one look-up", lookups, 1);
    T_EQ("all addresses are used", used, ADDRESSES);
    T_EQ("the same of each", most, CONNECTIONS / ADDRESSES);
    stk_http_close(http);
    close(listener);
    return t_finish();
}
