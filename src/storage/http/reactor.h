/* storage/http/reactor.h: the parts of the room: the loop, one transfer, and the rules for URLs.
 *
 *   inbox --take--> delayed --due--> ready --a free slot--> active --libcurl--> done
 *                       `------------- -EAGAIN of prepare ----'
 *   large bodies wait before ready until few enough of them are on their way
 *   a free slot is one for which there is a lease of the node, too: connection_pool.c
 *
 * Owner: struct stk_http. Threads: the reactor; `locked` with its lock: any.
 * Memory: a slot for each connection ever used at once, kept. Bound: connections_max slots. */
#ifndef STORAGE_HTTP_REACTOR_H
#define STORAGE_HTTP_REACTOR_H

#include "storage/http/http.h"
#include "storage/throttle/shared_limits.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#define STK_HTTP_LEASE_CHECK_MS                                                                    \
    500u /* an idle process looks so often whether others want its leases */

struct stk_http_list {
    struct stk_http_request *first, *last;
};

#define STK_HTTP_HEADER_LINES_MAX 40u   /* headers of a request */
#define STK_HTTP_RESOLVER_HOSTS_MAX 16u /* hosts whose addresses are kept */
#define STK_HTTP_RESOLVE_BYTES 1152u

/* One transfer; lent to the request that it serves. In pages that no core dump has. */
struct stk_http_slot {
    struct stk_http *http;
    CURL *easy;
    struct stk_http_request *request;
    struct stk_http_slot *next;                         /* of the free ones */
    struct curl_slist lines[STK_HTTP_HEADER_LINES_MAX]; /* lend the request's headers */
    char *url;                                          /* after a redirect; else NULL */
    uint32_t redirects;                                 /* followed so far */
    uint32_t failure;    /* why a callback stopped it: enum stk_http_failure */
    bool cross_origin;   /* a redirect led to another host: no secrets go there */
    bool first_loopback; /* the first connection was to this machine */
    bool sent, began, cut;
    bool waits_for_dns; /* until its host's addresses are known: not with libcurl yet */
    uint64_t started_ns;
    uint64_t progress_ns; /* when a byte went either way */
    uint64_t skipped;
    uint64_t uploaded; /* of a long body: handed to the socket */
    uint64_t unsent;   /* of that: at the last look not yet acknowledged */
    uint64_t moved;    /* of bodies, both ways */
    /* Since when it is looked whether it crawls, and how it was then. */
    uint64_t window_ns, window_went, window_others, long_ns, long_went;
    uint32_t window_active;
    bool window_answers;
    struct stk_http_socket *socket; /* that it uses; NULL: none yet */
    struct curl_slist resolve_line;
    char resolve[STK_HTTP_RESOLVE_BYTES]; /* host and addresses; "": libcurl asks */
    char problem[CURL_ERROR_SIZE];
    struct stk_http_response answer;
    char scratch[STK_HTTP_SCRATCH_BYTES]; /* of prepare; may hold secrets */
};

/* The connection of a socket: enough to find it again when libcurl tells whom it speaks to. */
struct stk_http_socket {
    int fd;                    /* below 0: none */
    uint64_t cookie;           /* the kernel's own number of it; 0: not told */
    uint16_t port, local_port; /* local 0: not looked at yet */
    char ip[46];
    bool idle, ended;
    struct stk_http_slot *slot; /* that uses it */
};

#define STK_HTTP_HOSTS 64u
#define STK_HTTP_LONG_BODY_BYTES 32768u /* of a request: how it leaves is looked at */

/* The requests of a group (or of two that happen to share a place: it is only a measure). */
struct stk_http_host {
    uint64_t moved;
    uint32_t active;
};

/* Of the reactor: connection_pool.c. */
struct stk_http_pool {
    struct stk_http_socket *sockets;
    uint32_t socket_count;
    uint32_t live;    /* of them are connections */
    uint32_t surplus; /* leases that others are to have */
    bool is_short;    /* since the last step something waited for a lease */
    bool is_untried;  /* there may be sockets that no transfer has gone by yet */
    uint64_t refused_ns, full_ns, climbed_ns, climbed_bytes;
    uint64_t late_ns; /* when a large body came too late last; 0: it did not, of late */
    uint64_t bytes;   /* of requests that are done */
    uint32_t sweeps, busy, large_busy;
    struct stk_concurrency climb, large; /* of connections; of large bodies at once */
    bool had_large;                      /* the first one told which way they go */
};

/* Of the reactor: socket_poll.c. */
struct stk_http_poll {
    int epoll, wake;             /* below 0: none */
    uint64_t timer_ns;           /* when libcurl wants to be called; UINT64_MAX: whenever */
    uint64_t looked_ns;          /* what came until then was taken */
    struct stk_http_slot *begun; /* whose answer began since libcurl was called; NULL: none */
};

struct stk_http {
    struct stk_http_options options;
    CURLM *multi;
    struct stk_http_poll poll;
    pthread_t thread;
    bool started;
    struct stk_http_slot **slots; /* all that were made */
    uint32_t slot_count, active, waiting_for_dns;
    struct stk_http_resolver *resolver;
    struct stk_http_slot *free_slots;
    struct stk_http_list large, ready, delayed; /* of the reactor */
    uint32_t large_count;                       /* ready or on their way */
    uint64_t swept_ns;
    uint64_t moved_ns; /* when a byte of any request went either way */
    struct stk_http_host hosts[STK_HTTP_HOSTS];
    pthread_mutex_t lock;
    struct {
        struct stk_http_list inbox;
        bool closing;
    } locked;
    _Atomic bool cancels; /* a request was cancelled since the last sweep */
    _Atomic bool
        concurrency_frozen;      /* stk_http_freeze_concurrency was called since the last step */
    _Atomic bool resolver_ready; /* some host's addresses came, or why they do not */
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

/* http.c: whether OpenSSL wipes what it decrypted, once libcurl has it. */
void stk_http_set_wipe_response(CURL *easy, bool wipe);

/* transfer.c */
/* Wiped, for answers are copied whole, and where a redirect led may be a signed URL. */
void stk_http_clear_response(struct stk_http_response *answer);
void stk_http_clear_slot(struct stk_http_slot *slot); /* of what the last transfer left */
/* Readies slot->easy for slot->request; the slot is cleared. */
void stk_http_prepare_slot(struct stk_http_slot *slot);
/* What a finished transfer failed of: enum stk_http_failure. */
uint32_t stk_http_classify(const struct stk_http_slot *slot, CURLcode result);
/* begin, if it was not called yet: false when it refused. */
bool stk_http_begin(struct stk_http_slot *slot);

/* http_timeout.c */
bool stk_http_is_cancelled(const struct stk_http_request *request);
/* A byte came, or went: body_bytes of a body. */
void stk_http_record_progress(struct stk_http_slot *slot, uint64_t body_bytes);
static inline struct stk_http_host *stk_http_host_of(const struct stk_http_slot *slot)
{
    return &slot->http->hosts[slot->request->group % STK_HTTP_HOSTS];
}
/* What a transfer fails of now: enum stk_http_failure. */
uint32_t stk_http_check_timeout(struct stk_http_slot *slot, uint64_t now_ns);
/* The same of a request that waits for its turn. */
uint32_t stk_http_check_wait_timeout(const struct stk_http *http,
                                     const struct stk_http_request *request, uint64_t now_ns);

/* connection_pool.c */
int stk_http_pool_open(struct stk_http *http); /* below 0: no memory */
void stk_http_pool_close(struct stk_http *http);
/* Whether one more of what is ready may be sent. */
bool stk_http_pool_may_start(struct stk_http *http);
void stk_http_pool_sweep(struct stk_http *http, uint64_t now_ns);
/* The first large body is due. up: it goes that way. */
void stk_http_pool_start_large(struct stk_http *http, bool up);
/* A large body did not get on: where that is no exception they are too many for the link. */
void stk_http_pool_report_late(struct stk_http *http, uint64_t now_ns);
/* How long to sleep when there is nothing to do. */
uint32_t stk_http_pool_idle_ms(const struct stk_http *http, uint32_t most_ms);
/* Called by libcurl; user: the struct stk_http. */
curl_socket_t stk_http_open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address);
int stk_http_close_socket(void *user, curl_socket_t fd);
struct stk_http_socket *stk_http_socket_of(struct stk_http *http, int fd); /* NULL: none */
/* Whether it was closed, of one that was called fd. */
bool stk_http_socket_is_closed(const struct stk_http_socket *socket, int fd);
/* The slot's transfer goes by the socket with these ends; it is over. */
void stk_http_socket_attach(struct stk_http_slot *slot, const char *ip, int port, int local_port);
void stk_http_socket_detach(struct stk_http_slot *slot);
/* Tells the sender at once what came so far. */
void stk_http_socket_acknowledge(const struct stk_http_slot *slot);

/* socket_poll.c */
int stk_http_poll_open(struct stk_http *http); /* below 0: -errno */
void stk_http_poll_close(struct stk_http *http);
void stk_http_wake(struct stk_http *http); /* any thread: the wait ends, or the next one does */
void stk_http_poll_remove(struct stk_http *http, int fd); /* it is closed now */
void stk_http_poll_response_began(
    struct stk_http_slot *slot);                   /* the first line of an answer came */
void stk_http_poll_run_due(struct stk_http *http); /* what libcurl wanted by now */
/* Waits until something comes, or libcurl wants to be called; lets it take what came. */
void stk_http_poll_wait(struct stk_http *http, int timeout_ms);

/* resolver.c */
int stk_http_resolver_open(struct stk_http *http); /* below 0: no memory */
void stk_http_resolver_close(struct stk_http *http);
enum {
    STK_HTTP_RESOLVER_READY, /* slot->resolve has the addresses, or libcurl finds them by itself */
    STK_HTTP_RESOLVER_PENDING, /* http->path_args will say so when they are there */
    STK_HTTP_RESOLVER_FAILED,  /* slot->problem says why */
};
/* Of the host that the slot's request goes to now. */
uint32_t stk_http_resolver_find(struct stk_http_slot *slot);
/* None of what slot->resolve had can be connected to: it is asked for anew. */
void stk_http_resolver_invalidate(struct stk_http_slot *slot);

/* redirect_rules.c */
enum stk_http_redirect {
    STK_HTTP_REDIRECT_SAME_ORIGIN = 1,
    STK_HTTP_REDIRECT_CROSS_ORIGIN,
    STK_HTTP_REDIRECT_INVALID
};
/* Where a redirect leads: gives *url_out for SAME and FOREIGN (another scheme, host or port), to be
 * freed by stk_secret_free. */
int stk_http_redirect_resolve(const char *url, struct stk_view location, char **url_out);
/* Whether a header may go to another host: those that can hold no secret. */
bool stk_http_header_is_public(const char *header);
bool stk_http_is_loopback(const char *ip);
/* Addresses that only the machine itself may ask: link-local, and the metadata services there. */
bool stk_http_is_link_local(const char *ip);

#endif
