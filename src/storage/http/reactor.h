/* storage/http/reactor.h: the state of the reactor, and what the files of storage/http share.
 *
 *   inbox --> delayed --due--> ready --free slot--> active --libcurl--> done
 *                `------------- -EAGAIN of prepare ----'
 *   large bodies wait before ready until few enough of them are in flight
 *   a slot is free if there is a lease for its connection, too: connection_pool.c
 *
 * http.c, reactor.c and transfer.c are one event loop, and call each other; so do connection_pool.c
 * and socket_poll.c. Owner: struct stk_http. Threads: the reactor; `locked` with its lock: any.
 * Memory: a slot for each connection that was in use at once, kept. Bound: connections_max slots.
 */
#ifndef STORAGE_HTTP_REACTOR_H
#define STORAGE_HTTP_REACTOR_H

#include "storage/http/http.h"
#include "storage/throttle/shared_limits.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

/* How often an idle process checks whether other processes want its leases. */
#define STK_HTTP_LEASE_CHECK_MS 500u

struct stk_http_list {
    struct stk_http_request *first, *last;
};

#define STK_HTTP_HEADER_LINES_MAX 40u   /* headers of a request */
#define STK_HTTP_RESOLVER_HOSTS_MAX 16u /* hosts whose addresses are cached */
#define STK_HTTP_RESOLVE_BYTES 1152u

/* One transfer, for one request at a time. In pages that core dumps do not include. */
struct stk_http_slot {
    struct stk_http *http;
    CURL *easy;
    struct stk_http_request *request;
    struct stk_http_slot *next;                         /* in the list of free slots */
    struct curl_slist lines[STK_HTTP_HEADER_LINES_MAX]; /* borrow the request's headers */
    char *url;                                          /* after a redirect; else NULL */
    uint32_t redirects;                                 /* followed so far */
    uint32_t failure;    /* why a callback stopped it: enum stk_http_failure */
    bool cross_origin;   /* a redirect led to another host: it gets no secrets */
    bool first_loopback; /* the first connection was to this machine */
    bool sent, began, cut;
    bool waits_for_dns; /* for the addresses of its host: libcurl has not started it */
    uint64_t started_ns;
    uint64_t progress_ns; /* of the last byte in either direction */
    uint64_t skipped;
    uint64_t uploaded; /* of a long body: bytes written to the socket */
    uint64_t unsent;   /* of these: not acknowledged at the last check */
    uint64_t moved;    /* bytes of bodies, in both directions */
    /* Start of the window in which its speed is measured, and the counters at that time. */
    uint64_t window_ns, window_went, window_others, long_ns, long_went;
    uint32_t window_active;
    bool window_answers;
    struct stk_http_socket *socket; /* of its connection; NULL: none yet */
    struct curl_slist resolve_line;
    char resolve[STK_HTTP_RESOLVE_BYTES]; /* host and addresses; "": libcurl resolves */
    char problem[CURL_ERROR_SIZE];
    struct stk_http_response answer;
    char scratch[STK_HTTP_SCRATCH_BYTES]; /* for prepare; may hold secrets */
};

/* The connection of a socket: enough to find it by the addresses that libcurl reports. */
struct stk_http_socket {
    int fd;                    /* below 0: none */
    uint64_t cookie;           /* of the kernel, SO_COOKIE; 0: unknown */
    uint16_t port, local_port; /* local 0: not read yet */
    char ip[46];
    bool idle, ended;
    struct stk_http_slot *slot; /* that uses it; or NULL */
};

#define STK_HTTP_HOSTS 64u
#define STK_HTTP_LONG_BODY_BYTES 32768u /* of a request: its progress in the socket is checked */

/* Counters of the requests of a group; groups whose hashes collide share them. */
struct stk_http_host {
    uint64_t moved;
    uint32_t active;
};

/* connection_pool.c; used by the reactor only. */
struct stk_http_pool {
    struct stk_http_socket *sockets;
    uint32_t socket_count;
    uint32_t live;    /* of them connected */
    uint32_t surplus; /* leases to release to other processes */
    bool is_short;    /* a request waited for a lease since the last step */
    bool is_untried;  /* there may be sockets that no transfer has used yet */
    uint64_t refused_ns, full_ns, climbed_ns, climbed_bytes;
    uint64_t late_ns; /* when a large body was late last; 0: not recently */
    uint64_t bytes;   /* of completed requests */
    uint32_t sweeps, busy, large_busy;
    struct stk_concurrency climb, large; /* the number of connections; of large bodies in flight */
    bool had_large;                      /* there was one, whose direction set the initial number */
};

/* socket_poll.c; used by the reactor only. */
struct stk_http_poll {
    int epoll, wake;             /* below 0: none */
    uint64_t timer_ns;           /* when libcurl wants to be called; UINT64_MAX: at any time */
    uint64_t looked_ns;          /* events until then were handled */
    struct stk_http_slot *begun; /* whose response began since libcurl was called; NULL: none */
};

struct stk_http {
    struct stk_http_options options; /* connections_max: reserved in io/descriptor_budget.h */
    CURLM *multi;
    struct stk_http_poll poll;
    pthread_t thread;
    bool started;
    struct stk_http_slot **slots; /* all that were allocated */
    uint32_t slot_count, active, waiting_for_dns;
    struct stk_http_resolver *resolver;
    struct stk_http_slot *free_slots;
    struct stk_http_list large, ready, delayed; /* used by the reactor only */
    uint32_t large_count;                       /* ready or in flight */
    uint64_t swept_ns;
    bool reported;     /* a long wait was published */
    int socket_errno;  /* why the last socket could not be opened; 0: it was */
    uint64_t moved_ns; /* of the last byte of any request in either direction */
    struct stk_http_host hosts[STK_HTTP_HOSTS];
    pthread_mutex_t lock;
    struct {
        struct stk_http_list inbox;
        bool closing;
    } locked;
    _Atomic bool cancels; /* a request was cancelled since the last sweep */
    _Atomic bool
        concurrency_frozen;      /* stk_http_freeze_concurrency was called since the last step */
    _Atomic bool resolver_ready; /* a host was resolved, or could not be */
    uint64_t tick_ns;            /* when tick wants to be called */
    struct stk_http_pool pool;
    struct {
        _Atomic uint32_t open, peak, limit, large;
        _Atomic uint64_t waits;
    } stats;
};

/* reactor.c */
void *stk_http_run(void *http);
void stk_http_finish(struct stk_http *http, struct stk_http_request *request,
                     const struct stk_http_response *answer, uint32_t failure, const char *detail);

static inline void stk_http_list_add(struct stk_http_list *list, struct stk_http_request *request)
{
    request->next = NULL;
    request->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = request;
    list->last = request;
}

static inline void stk_http_list_remove(struct stk_http_list *list,
                                        struct stk_http_request *request)
{
    *(request->previous ? &request->previous->next : &list->first) = request->next;
    *(request->next ? &request->next->previous : &list->last) = request->previous;
    request->next = request->previous = NULL;
}

/* http.c: sets whether OpenSSL wipes decrypted bytes once libcurl has copied them. */
void stk_http_set_wipe_response(CURL *easy, bool wipe);

/* transfer.c */
/* Wipes it: responses are copied completely, and a redirect may have led to a signed URL. */
void stk_http_clear_response(struct stk_http_response *answer);
void stk_http_clear_slot(struct stk_http_slot *slot); /* wipes the state of the last transfer */
/* Sets up slot->easy for slot->request; the slot must be cleared. */
void stk_http_prepare_slot(struct stk_http_slot *slot);
/* Why a finished transfer failed: enum stk_http_failure. */
uint32_t stk_http_classify(const struct stk_http_slot *slot, CURLcode result);
/* Calls begin if it was not called yet; false: it failed. */
bool stk_http_begin(struct stk_http_slot *slot);

/* http_timeout.c */
bool stk_http_is_cancelled(const struct stk_http_request *request);
/* Bytes were transferred in either direction; body_bytes of them of a body. */
void stk_http_record_progress(struct stk_http_slot *slot, uint64_t body_bytes);
static inline struct stk_http_host *stk_http_host_of(const struct stk_http_slot *slot)
{
    return &slot->http->hosts[slot->request->group % STK_HTTP_HOSTS];
}
/* Returns the timeout that a transfer exceeds now: enum stk_http_failure. */
uint32_t stk_http_check_timeout(struct stk_http_slot *slot, uint64_t now_ns);
/* The same for a request that waits for its turn. */
uint32_t stk_http_check_wait_timeout(const struct stk_http *http,
                                     const struct stk_http_request *request, uint64_t now_ns);

/* connection_pool.c */
int stk_http_pool_open(struct stk_http *http); /* below 0: no memory */
void stk_http_pool_close(struct stk_http *http);
/* Whether another ready request may be sent. */
bool stk_http_pool_may_start(struct stk_http *http);
void stk_http_pool_sweep(struct stk_http *http, uint64_t now_ns);
/* Sets the initial number of large bodies, as the first one is due. up: it is an upload. */
void stk_http_pool_start_large(struct stk_http *http, bool up);
/* A large body made no progress: if that is frequent, there are too many for the link. */
void stk_http_pool_report_late(struct stk_http *http, uint64_t now_ns);
/* How long the reactor may sleep if there is nothing to do. */
uint32_t stk_http_pool_idle_ms(const struct stk_http *http, uint32_t most_ms);
/* Called by libcurl; user: the struct stk_http. */
curl_socket_t stk_http_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address);
int stk_http_close_socket(void *user, curl_socket_t fd);
struct stk_http_socket *stk_http_socket_of(struct stk_http *http, int fd); /* NULL: none */
/* Whether the socket that had this fd was closed. */
bool stk_http_socket_is_closed(const struct stk_http_socket *socket, int fd);
/* The transfer of a slot uses the socket with these addresses; it is over. */
void stk_http_socket_attach(struct stk_http_slot *slot, const char *ip, int port, int local_port);
void stk_http_socket_detach(struct stk_http_slot *slot);
/* Sends a TCP acknowledgement at once. */
void stk_http_socket_acknowledge(const struct stk_http_slot *slot);

/* socket_poll.c */
int stk_http_poll_open(struct stk_http *http); /* below 0: -errno */
void stk_http_poll_close(struct stk_http *http);
void stk_http_wake(struct stk_http *http); /* any thread: ends the current wait, or the next one */
void stk_http_poll_remove(struct stk_http *http, int fd); /* it was closed */
void stk_http_poll_response_began(
    struct stk_http_slot *slot);                   /* the first line of a response arrived */
void stk_http_poll_run_due(struct stk_http *http); /* runs timers of libcurl that are due */
/* Waits for events or a timer of libcurl, and lets libcurl handle them. */
void stk_http_poll_wait(struct stk_http *http, int timeout_ms);

/* resolver.c */
int stk_http_resolver_open(struct stk_http *http); /* below 0: no memory */
void stk_http_resolver_close(struct stk_http *http);
enum {
    STK_HTTP_RESOLVER_READY,   /* slot->resolve has the addresses, or libcurl resolves them */
    STK_HTTP_RESOLVER_PENDING, /* http->resolver_ready is set when they are known */
    STK_HTTP_RESOLVER_FAILED,  /* slot->problem has the reason */
};
/* Finds the addresses of the host of the slot's request. */
uint32_t stk_http_resolver_find(struct stk_http_slot *slot);
/* No address of slot->resolve could be connected to: the host is resolved again. */
void stk_http_resolver_invalidate(struct stk_http_slot *slot);

/* redirect_rules.c */
enum stk_http_redirect {
    STK_HTTP_REDIRECT_SAME_ORIGIN = 1,
    STK_HTTP_REDIRECT_CROSS_ORIGIN,
    STK_HTTP_REDIRECT_INVALID
};
/* Resolves a redirect. Returns enum stk_http_redirect (another origin: another scheme, host or
 * port), and unless INVALID sets *url_out (free with stk_secret_free). */
int stk_http_redirect_resolve(const char *url, struct stk_view location, char **url_out);
/* Whether a header may be sent to another origin, as it cannot hold a secret. */
bool stk_http_header_is_public(const char *header);
bool stk_http_is_loopback(const char *ip);
/* Link-local addresses, and those of metadata services: redirects must not lead there. */
bool stk_http_is_link_local(const char *ip);

#endif
