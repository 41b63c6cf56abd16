/* storage/http/http.h: HTTP/1.1 requests, many at a time, on one thread: the reactor.
 *
 *   zeroed --submit--> waiting --prepare--> sent --begin--> body --done--> its owner's again
 *                         |  until not_before_ns, and while connections_max are in use
 *                         `--cancel, deadline--> done
 *
 * On libcurl's multi interface, connections kept alive: as many as bring more
 * (storage/throttle/throttle.h) and as the node's budget leaves (storage/throttle/shared_limits.h).
 * The body is received into the buffer that the request names before it is sent: one copy, no
 * growing. prepare, begin and done run on the reactor, and must not wait; done may submit the same
 * request again. Redirects are not followed unless redirects_max says so, and then without the
 * headers that may hold secrets where the host changes, and never to a link-local address.
 * Owner: the request is its submitter's, and borrowed until done is called. Threads: any.
 * Memory: an answer a connection, what libcurl takes, and what the kernel holds of bodies that were
 * not read yet: some 4 MiB a connection, or what net.ipv4.tcp_rmem says.
 * Bound: connections_max in flight. */
#ifndef STORAGE_HTTP_HTTP_H
#define STORAGE_HTTP_HTTP_H

#include "base/base.h"

struct stk_http; /* the reactor and its connections */

#define STK_HTTP_HEADERS_BYTES_MAX 16384u /* of an answer, and of a request */
#define STK_HTTP_TEXT_BYTES_MAX 4096u     /* kept of the body of a refusal */
#define STK_HTTP_URL_BYTES_MAX 16384u     /* presigned URLs are long: they may hold a token */
#define STK_HTTP_SCRATCH_BYTES 49152u     /* for URL and headers that are made while preparing */
#define STK_HTTP_REDIRECTS_MAX 8u
#define STK_HTTP_CONNECTIONS_DEFAULT 256u
#define STK_HTTP_CONNECTIONS_START 128u    /* at first; then as many as bring more */
#define STK_HTTP_CONNECTIONS_UNSHARED 256u /* the same where no other process of the node asks */
#define STK_HTTP_CONNECTIONS_MAX 1024u
/* Bodies of so many bytes, either way, keep a core busy by few connections; more of them only share
 * its caches, and the first one that is wanted comes later. So at first there are so many of them a
 * core, then as many as bring more. Bodies that go up are more work for a server: fewer, where the
 * first one of all is such. */
#define STK_HTTP_LARGE_BYTES (2u << 20)
#define STK_HTTP_LARGE_START 16u
#define STK_HTTP_LARGE_START_UP 4u

/* What a zero in a request means. */
#define STK_HTTP_CONNECT_MS 5000u
#define STK_HTTP_FIRST_BYTE_MS 20000u
#define STK_HTTP_STALL_MS 10000u
#define STK_HTTP_TOTAL_MS 300000u

/* Bytes a second below which a body crawls: no link that data are trained from is so slow. One that
 * does while each of the others of its group brings so many times more is ended after stall_ms. */
#define STK_HTTP_SLOW_BYTES_S 1024u
#define STK_HTTP_SLOW_RATIO 8u

struct stk_http_options {
    uint32_t connections_max;       /* of all hosts together; 0: STK_HTTP_CONNECTIONS_DEFAULT */
    uint32_t large_max;             /* large bodies on their way at once; 0: connections_max */
    const char *ca_file;            /* PEM; NULL: what libcurl was built with */
    struct stk_shared_limits *node; /* lent: whose leases it needs for connections; NULL: none */
    /* Called on the reactor in each turn; returns when it wants to be called again at the latest,
     * UINT64_MAX: whenever. NULL: nobody. */
    uint64_t (*tick)(void *owner, uint64_t now_ns);
    void *tick_owner;
};

enum stk_http_method {
    STK_HTTP_GET = 1,
    STK_HTTP_HEAD,
    STK_HTTP_PUT,
    STK_HTTP_POST,
    STK_HTTP_DELETE,
};

/* What a request failed of; what may be tried again differs by it. */
enum stk_http_failure {
    STK_HTTP_NO_FAILURE = 0, /* an answer came, of whatever code */
    STK_HTTP_RESOLVE,        /* the name has no address now */
    STK_HTTP_CONNECT,        /* refused, unreachable, or too slow */
    STK_HTTP_TLS,            /* the certificate or the handshake: not to be tried again */
    STK_HTTP_RESET,          /* the connection ended before the first byte of the answer */
    STK_HTTP_BROKEN,         /* it ended in the answer: `bytes` of the body are good */
    STK_HTTP_FIRST_BYTE,     /* no answer in time */
    STK_HTTP_STALL,          /* the body stopped: `bytes` of it are good */
    STK_HTTP_SLOW,           /* the body crawls and others do not: `bytes` of it are good */
    STK_HTTP_TOTAL,          /* total_ms, waiting for a connection included */
    STK_HTTP_CANCELLED,
    STK_HTTP_REJECTED, /* by prepare or begin, whose error it has */
    STK_HTTP_LIMIT,    /* headers or body larger than there is room for */
    STK_HTTP_REDIRECT, /* one that is not to be followed */
    STK_HTTP_OTHER,    /* no memory; an answer that is not HTTP; a URL that is none */
};

/* The answer of one request. Lent to begin and done; copied out by stk_http_call. */
struct stk_http_response {
    uint32_t code; /* 200, 404 ...; 0: none came */
    uint32_t headers_bytes;
    uint32_t text_bytes;
    uint64_t content_bytes;                   /* Content-Length; UINT64_MAX: not told */
    char headers[STK_HTTP_HEADERS_BYTES_MAX]; /* "Name: value\n" each, of the last answer */
    char text[STK_HTTP_TEXT_BYTES_MAX + 1];   /* body of an answer that is no 2xx, cut; NUL-ended */
};

struct stk_http_request {
    /* Given. What pointers name is lent until done. */
    uint32_t method;            /* enum stk_http_method */
    const char *url;            /* encoded: goes out as it is */
    const char *const *headers; /* "Name: value"; Host and Content-Length are made */
    uint32_t header_count;
    struct stk_view body;
    uint8_t *buffer; /* for the body of a 2xx answer; what a refusal says goes to the answer */
    uint64_t buffer_bytes;
    bool secret;            /* the answer has one: nothing of it stays in libcurl's memory */
    bool truncate;          /* a body longer than the buffer is no error: the rest is not read */
    bool no_proxy;          /* by no proxy, whatever the environment says */
    bool urgent;            /* waits for no other large body */
    const char *ca_file;    /* PEM, instead of the reactor's; NULL: that. Lent */
    uint32_t redirects_max; /* 0: an answer 3xx is given as it is; GET and HEAD only */
    /* The url was told by a server, which was on this machine or not: it may lead only to where a
     * redirect of that server may. */
    bool url_from_server, server_is_local;
    uint32_t connect_ms, first_byte_ms, stall_ms, total_ms; /* 0: STK_HTTP_..._MS */
    /* The whole may take as long as it gets on. total_ms is then for how long its body may crawl,
     * and for how long no byte may move of any request while it waits for its turn. */
    bool by_progress;
    uint64_t group;         /* a hash of the host: whose speeds may be compared; 0: of nobody's */
    uint64_t not_before_ns; /* monotonic; sent no earlier */
    /* Before each sending: makes url and headers (signs), in `room` of STK_HTTP_SCRATCH_BYTES if it
     * likes, which is lent to it until done; the first room_bytes of it are wiped then. 0;
     * -EAGAIN: not yet, asked again soon; else the request fails of it. NULL: they are made. */
    int (*prepare)(struct stk_http_request *request, char *room);
    uint32_t scratch_bytes;
    /* Before the first byte of a 2xx answer's body is received, also when it has none: may look at
     * the answer, and set buffer and skip. Below 0: the request fails of it, its error filled. */
    int (*begin)(struct stk_http_request *request, const struct stk_http_response *answer);
    uint64_t skip; /* bytes of the body that are thrown away before the buffer's first */
    /* Of each redirect of the host that was asked, not of another's, before it is followed: may
     * look at the answer. NULL: nobody. */
    void (*on_redirect)(struct stk_http_request *request, const struct stk_http_response *answer);
    /* At the end, exactly once for each submit. */
    void (*done)(struct stk_http_request *request, const struct stk_http_response *answer);
    void *owner; /* the submitter's */
    /* Each NULL, or true when it is not wanted any more. Looked at a few times a second; at once
     * after stk_http_cancel_stopped. */
    const _Atomic bool *stop, *stop_also;

    /* Told, when done is called. */
    int status;          /* 0: an answer came, of whatever code; or what error has */
    uint32_t failure;    /* enum stk_http_failure */
    uint64_t bytes;      /* of the body in the buffer: also of a failed request they are good */
    uint64_t sent_bytes; /* of its own body, where that is long; at least so many left us */
    /* How often it was sent: once more, unasked, where a kept connection ended without an answer.
     */
    uint32_t sends;
    uint64_t sent_ns, first_byte_ns, done_ns; /* monotonic; 0: it did not come to that */
    struct stoker_error error;
    /* Where redirects led to, on another host; NULL: nowhere. Lent until done. */
    const char *redirect_url;
    bool is_local; /* the server that was asked first is on this machine */

    struct stk_http_slot *slot; /* internal, as all below */
    bool waited;                /* for a lease */
    bool is_large;              /* counted as such */
    struct stk_http_request *next, *previous;
    uint64_t deadline_ns;
    _Atomic bool cancelled;
};

/* Starts the reactor. -ENOMEM, -EAGAIN (no thread), UNSUPPORTED (no libcurl that will do). */
int stk_http_open(struct stk_http **http_out, const struct stk_http_options *options,
                  struct stoker_error *error);
/* Ends the reactor: what is in flight is done with STK_HTTP_CANCELLED before this returns, and what
 * is submitted later within the call. For an owner of what requests in flight need. Once, by who
 * closes. Not on the reactor. */
void stk_http_shutdown(struct stk_http *http);
/* Takes; NULL is fine. The same first; then no request may be submitted any more, not by done
 * either. */
void stk_http_close(struct stk_http *http);

/* Never waits. After stk_http_shutdown or _close began, the request is done (cancelled) within it.
 */
void stk_http_submit(struct stk_http *http, struct stk_http_request *request);
/* done comes soon, with STK_HTTP_CANCELLED, unless it is ending already. Only between submit and
 * done, which the caller makes sure of. */
void stk_http_cancel(struct stk_http *http, struct stk_http_request *request);
/* The same for all requests whose `stop` or `stop_too` has become true. Any time. */
void stk_http_cancel_stopped(struct stk_http *http);
/* On the reactor, not in a callback of a request that is being received: ends it now, if it was
 * sent; its done is called within. */
void stk_http_abort(struct stk_http *http, struct stk_http_request *request);
/* Connections that may be used at once, and nothing waits for; on the reactor. */
uint32_t stk_http_free_connections(const struct stk_http *http);
/* Something else than connections decides now how much comes: it says nothing of their number. */
void stk_http_freeze_concurrency(struct stk_http *http);

struct stk_http_stats {
    uint32_t connections, connections_peak; /* open now, in use or not; at most so far */
    uint32_t connections_max;               /* as many as bring more, by what was seen */
    uint32_t large_max;                     /* of large bodies the same */
    uint64_t waits; /* requests that waited since the node had no connection left */
};
void stk_http_get_stats(struct stk_http *http, struct stk_http_stats *stats_out); /* any thread */

/* Submits and waits for done, total_ms at most: for small things. The status; request->error is
 * copied to *error. answer_out may be NULL. Not on the reactor. */
int stk_http_call(struct stk_http *http, struct stk_http_request *request,
                  struct stk_http_response *answer_out, struct stoker_error *error);

/* The value of the first header with this name, in upper or lower case; false: there is none. */
bool stk_http_header(const struct stk_http_response *answer, const char *name,
                     struct stk_view *value_out);

#endif
