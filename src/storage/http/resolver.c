/* Resolves hosts once, and distributes their addresses over the connections in turn.
 *
 * libcurl would start a thread for each new connection, and with its cache all connections would
 * use the first address. Here one thread resolves a host, and other requests for that host wait for
 * it. Each later connection starts with the next known address, by CURLOPT_RESOLVE. libcurl itself
 * resolves proxies, hosts that are addresses, and hosts that do not fit in this table.
 *
 * Owner: struct stk_http and the resolving threads: the last one frees the table, since getaddrinfo
 * cannot be cancelled. Bounds: STK_HTTP_RESOLVER_HOSTS_MAX hosts and threads, ADDRESSES_MAX of each
 * host. */
#include "storage/http/reactor.h"

#include "base/mem.h"
#include "base/thread.h"
#include "io/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define FRESH_NS (10 * SECOND) /* then it is resolved again; old addresses stay in use */
#define RETRY_NS SECOND        /* the minimum time between two lookups of a host */
#define ADDRESSES_MAX 16u
#define HOST_BYTES_MAX 256u
#define PORT_BYTES_MAX 6u

struct address {
    char text[INET6_ADDRSTRLEN + 3]; /* in the form of the list: "[...]," or "...," */
    size_t bytes;
    int family;
};

/* requested_ns: time of the last lookup or of its result, 0: never; known_ns: time when the
 * addresses arrived. */
struct name {
    char host[HOST_BYTES_MAX], port[PORT_BYTES_MAX];
    bool asking;
    uint64_t requested_ns, known_ns, used_ns;
    uint32_t count, turn;
    struct address addresses[ADDRESSES_MAX];
    char problem[96]; /* of the last lookup; "": it succeeded */
};

_Static_assert(1 + HOST_BYTES_MAX + PORT_BYTES_MAX + 2 +
                       ADDRESSES_MAX * sizeof((struct address){0}.text) <=
                   STK_HTTP_RESOLVE_BYTES,
               "all that deal writes has room");

struct stk_http_resolver {
    pthread_mutex_t lock;
    struct stk_http *http; /* NULL: closed */
    uint32_t holders;
    bool proxied; /* by the environment as it was when this was opened */
    struct name all[STK_HTTP_RESOLVER_HOSTS_MAX];
};

/* The lookup of one thread. */
struct asking {
    struct stk_http_resolver *names;
    struct name *name; /* stays while a lookup is in progress */
    char host[HOST_BYTES_MAX], port[PORT_BYTES_MAX];
};

static bool has_proxy(void)
{
    static const char *const variables[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                            "ALL_PROXY"};

    for (size_t i = 0; i < STK_COUNT(variables); i++) {
        const char *proxy = getenv(variables[i]);

        if (proxy && proxy[0]) {
            return true;
        }
    }
    return false;
}

int stk_http_resolver_open(struct stk_http *http)
{
    http->resolver = stk_alloc(1, sizeof *http->resolver);
    if (!http->resolver) {
        return -ENOMEM;
    }
    pthread_mutex_init(&http->resolver->lock, NULL);
    http->resolver->http = http;
    http->resolver->holders = 1;
    http->resolver->proxied = has_proxy();
    return 0;
}

/* Called with the lock held. Unlocks it. */
static void release_resolver(struct stk_http_resolver *names)
{
    bool last = --names->holders == 0;

    pthread_mutex_unlock(&names->lock);
    if (last) {
        pthread_mutex_destroy(&names->lock);
        stk_free(names);
    }
}

void stk_http_resolver_close(struct stk_http *http)
{
    if (http->resolver) {
        pthread_mutex_lock(&http->resolver->lock);
        http->resolver->http = NULL;
        release_resolver(http->resolver);
        http->resolver = NULL;
    }
}

static bool add_address(struct name *name, const struct addrinfo *one)
{
    struct address *address = &name->addresses[name->count];
    const void *bytes = NULL;
    char text[INET6_ADDRSTRLEN];

    if (one->ai_family == AF_INET) {
        bytes = &((const struct sockaddr_in *)(const void *)one->ai_addr)->sin_addr;
    } else if (one->ai_family == AF_INET6 &&
               ((const struct sockaddr_in6 *)(const void *)one->ai_addr)->sin6_scope_id == 0) {
        bytes = &((const struct sockaddr_in6 *)(const void *)one->ai_addr)->sin6_addr;
    }
    address->family = one->ai_family;
    if (!bytes || !inet_ntop(one->ai_family, bytes, text, sizeof text)) {
        return false;
    }
    address->bytes = (size_t)snprintf(address->text, sizeof address->text,
                                      one->ai_family == AF_INET6 ? "[%s]," : "%s,", text);
    return true;
}

/* Takes ownership of the list. If it is NULL, number is the reason. */
static void store_addresses(struct name *name, struct addrinfo *list, int number)
{
    name->asking = false;
    name->requested_ns = stk_clock_ns(); /* one second after the result: a lookup may take longer */
    if (list) {
        name->count = 0;
        name->problem[0] = '\0';
        name->known_ns = stk_clock_ns();
    }
    for (const struct addrinfo *one = list; one && name->count < ADDRESSES_MAX;
         one = one->ai_next) {
        name->count += add_address(name, one);
    }
    if (!list || name->count == 0) {
        snprintf(name->problem, sizeof name->problem, "%s",
                 list ? "it has no usable address" : gai_strerror(number));
    }
    if (list) {
        freeaddrinfo(list);
    }
}

static void *resolve_thread(void *context)
{
    struct asking *asking = context;
    struct stk_http_resolver *names = asking->names;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int number = getaddrinfo(asking->host, asking->port, &hints, &list);

    pthread_mutex_lock(&names->lock);
    store_addresses(asking->name, number == 0 ? list : NULL, number);
    if (names->http) {
        atomic_store_explicit(&names->http->resolver_ready, true, memory_order_release);
        stk_http_wake(names->http);
    }
    release_resolver(names);
    stk_free(asking);
    return NULL;
}

/* Called with the lock held. Returns false if no thread can be started. */
static bool start_resolve(struct stk_http_resolver *names, struct name *name, uint64_t now_ns)
{
    struct asking *asking = stk_alloc(1, sizeof *asking);
    pthread_attr_t attributes;
    pthread_t thread;
    int status = -ENOMEM;

    if (asking) {
        asking->names = names;
        asking->name = name;
        snprintf(asking->host, sizeof asking->host, "%s", name->host);
        snprintf(asking->port, sizeof asking->port, "%s", name->port);
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        status = stk_thread_start(&thread, &attributes, resolve_thread, asking);
        pthread_attr_destroy(&attributes);
    }
    if (status < 0) {
        stk_free(asking);
        return false;
    }
    names->holders++;
    name->asking = true;
    name->requested_ns = now_ns;
    return true;
}

/* Reads host and port of a URL. The host must be a name of letters, digits, '-', '_' and '.',
 * and its last label must not be a number: libcurl accepts several forms of addresses. */
static bool read_host(const char *url, struct name *name_out)
{
    static const char usual[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    bool tls = strncmp(url, "https://", 8) == 0;
    const char *host = tls ? url + 8 : strncmp(url, "http://", 7) == 0 ? url + 7 : "";
    const char *at = memrchr(host, '@', strcspn(host, "/?#")), *last;
    size_t bytes, digits;

    host = at ? at + 1 : host;
    bytes = strspn(host, usual);
    digits = host[bytes] == ':' ? strspn(host + bytes + 1, "0123456789") : 0;
    if (bytes == 0 || bytes >= HOST_BYTES_MAX || digits >= PORT_BYTES_MAX ||
        (digits == 0 && host[bytes] == ':') ||
        !strchr("/?#", host[bytes + (digits > 0 ? digits + 1 : 0)])) {
        return false;
    }
    snprintf(name_out->host, sizeof name_out->host, "%.*s", (int)bytes, host);
    snprintf(name_out->port, sizeof name_out->port, "%.*s", (int)digits, host + bytes + 1);
    if (digits == 0) {
        snprintf(name_out->port, sizeof name_out->port, "%s", tls ? "443" : "80");
    }
    last = strrchr(name_out->host, '.');
    last = last ? last + 1 : name_out->host;
    return last[0] != '\0' && !(last[0] >= '0' && last[0] <= '9');
}

/* Returns NULL if the host has no entry. Called with the lock held. */
static struct name *find(struct stk_http_resolver *names, const struct name *wanted)
{
    for (uint32_t i = 0; i < STK_HTTP_RESOLVER_HOSTS_MAX; i++) {
        struct name *name = &names->all[i];

        if (strcmp(name->host, wanted->host) == 0 && strcmp(name->port, wanted->port) == 0) {
            return name;
        }
    }
    return NULL;
}

/* Returns the entry of the host, which may be new, or NULL if lookups use all entries. Called
 * with the lock held. */
static struct name *find_or_add(struct stk_http_resolver *names, const struct name *wanted)
{
    struct name *place = find(names, wanted);

    if (place) {
        return place;
    }
    for (uint32_t i = 0; i < STK_HTTP_RESOLVER_HOSTS_MAX; i++) {
        struct name *name = &names->all[i];

        if (!name->asking && (!place || name->used_ns < place->used_ns)) {
            place = name;
        }
    }
    if (place) {
        *place = *wanted;
    }
    return place;
}

/* "+host:port:first,second ...", beginning with another one each time: those of the kind that the
 * resolver prefers stay before the others. */
static void write_addresses(struct name *name, struct stk_http_slot *slot)
{
    char *text = slot->resolve;
    int first = name->addresses[0].family;
    size_t used = (size_t)snprintf(text, sizeof slot->resolve, "+%s:%s:", /* +: it may end */
                                   name->host, name->port);

    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < name->count; i++) {
            const struct address *one = &name->addresses[(i + name->turn) % name->count];

            if ((one->family == first) == (round == 0)) {
                memcpy(text + used, one->text, one->bytes);
                used += one->bytes;
            }
        }
    }
    text[used - 1] = '\0'; /* the last comma */
    name->turn++;
}

uint32_t stk_http_resolver_find(struct stk_http_slot *slot)
{
    struct stk_http_resolver *names = slot->http->resolver;
    struct name wanted = {0}, *name;
    uint64_t now_ns = stk_clock_ns();
    uint32_t answer = STK_HTTP_RESOLVER_READY;

    slot->resolve[0] = '\0';
    if ((names->proxied && !slot->request->no_proxy) ||
        !read_host(slot->url ? slot->url : slot->request->url, &wanted)) {
        return answer;
    }
    pthread_mutex_lock(&names->lock);
    name = find_or_add(names, &wanted);
    if (name) {
        bool known = name->count > 0; /* for as long as nothing better does */
        bool due = !known || name->problem[0] || now_ns >= name->known_ns + FRESH_NS;

        name->used_ns = now_ns;
        due = due && !name->asking &&
              (name->requested_ns == 0 || now_ns >= name->requested_ns + RETRY_NS);
        if (due && !start_resolve(names, name, now_ns) && !known) {
            answer = STK_HTTP_RESOLVER_READY; /* by libcurl, if it can */
        } else if (known) {
            write_addresses(name, slot);
        } else if (name->asking) {
            answer = STK_HTTP_RESOLVER_PENDING;
        } else {
            snprintf(slot->problem, sizeof slot->problem, "%s: %s", name->host, name->problem);
            answer = STK_HTTP_RESOLVER_FAILED;
        }
    }
    pthread_mutex_unlock(&names->lock);
    return answer;
}

void stk_http_resolver_invalidate(struct stk_http_slot *slot)
{
    struct stk_http_resolver *names = slot->http->resolver;
    struct name wanted = {0}, *name;

    if (!slot->resolve[0] || !read_host(slot->url ? slot->url : slot->request->url, &wanted)) {
        return;
    }
    pthread_mutex_lock(&names->lock);
    name = find(names, &wanted);
    if (name) {
        snprintf(name->problem, sizeof name->problem, "what it had cannot be connected to");
    }
    pthread_mutex_unlock(&names->lock);
}
