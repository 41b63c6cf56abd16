/* storage/http/http.h: HTTP/1.1 client: many requests at a time on one thread, the reactor.
 *
 *   zeroed --submit--> waiting --prepare--> sent --begin--> body --done--> back to its owner
 *                         |  until not_before_ns, and while all connections are in use
 *                         `--cancel, deadline--> done
 *
 * Uses libcurl's multi interface with keep-alive. The number of connections follows the goodput
 * (storage/throttle/throttle.h) within the share of this process
 * (storage/throttle/shared_limits.h). A body is received into the buffer that the request names:
 * one copy, and the buffer does not grow. prepare, begin and done run on the reactor and must not
 * wait; done may submit the request again. Redirects are followed only if redirects_max allows it:
 * never to a link-local address, and to another host without headers that may hold secrets. Owner:
 * the submitter owns the request; the client uses it until done is called. Threads: any. Memory: a
 * response a connection, libcurl's, and the kernel's for bodies that were not read yet: some 4 MiB
 * a connection, or net.ipv4.tcp_rmem. Bound: connections_max requests in flight. */
#ifndef STORAGE_HTTP_HTTP_H
#define STORAGE_HTTP_HTTP_H

#include "base/base.h"

struct stk_http; /* the reactor and its connections */

#define STK_HTTP_HEADERS_BYTES_MAX 16384u /* of a response, and of a request */
#define STK_HTTP_TEXT_BYTES_MAX 4096u     /* stored of the body of a response that is not 2xx */
#define STK_HTTP_URL_BYTES_MAX 16384u     /* presigned URLs are long: they may hold a token */
#define STK_HTTP_SCRATCH_BYTES 49152u     /* for the URL and headers that prepare makes */
#define STK_HTTP_REDIRECTS_MAX 8u
#define STK_HTTP_CONNECTIONS_DEFAULT 256u
#define STK_HTTP_CONNECTIONS_START 128u /* initial number; then by goodput */
#define STK_HTTP_CONNECTIONS_UNSHARED                                                              \
    256u /* the same if no other process of the machine wants connections */
#define STK_HTTP_CONNECTIONS_MAX 1024u
/* A few connections with bodies of at least this size, in either direction, use a full core.
 * With more of them they share its caches, and the body that is needed first arrives later. So
 * their initial number is this times the cores; it then follows the goodput. Uploads are more work
 * for a server: the initial number is smaller if the first large body is an upload. */
#define STK_HTTP_LARGE_BYTES (2u << 20)
#define STK_HTTP_LARGE_START 16u
#define STK_HTTP_LARGE_START_UP 4u

/* Defaults of a request, for zero. */
#define STK_HTTP_CONNECT_MS 5000u
#define STK_HTTP_FIRST_BYTE_MS 20000u
#define STK_HTTP_STALL_MS 10000u
#define STK_HTTP_TOTAL_MS 300000u

/* A body with fewer bytes a second is slow: no link that is fit for training is so slow. If the
 * other requests of its group are each faster by this ratio, the request is ended after stall_ms.
 */
#define STK_HTTP_SLOW_BYTES_S 1024u
#define STK_HTTP_SLOW_RATIO 8u

struct stk_http_options {
    uint32_t connections_max;       /* to all hosts; 0: STK_HTTP_CONNECTIONS_DEFAULT */
    uint32_t large_max;             /* large bodies in flight; 0: connections_max */
    const char *ca_file;            /* PEM; NULL: libcurl's built-in path */
    struct stk_shared_limits *node; /* borrowed: limits connections; NULL: no limit */
    /* Called on the reactor in each iteration. Returns the latest time of the next call;
     * UINT64_MAX: any. May be NULL. */
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

/* Why a request failed; which failures are retried differs. */
enum stk_http_failure {
    STK_HTTP_NO_FAILURE = 0, /* there was a response, with any status code */
    STK_HTTP_RESOLVE,        /* the name could not be resolved */
    STK_HTTP_CONNECT,        /* refused, unreachable, or too slow */
    STK_HTTP_TLS,            /* the certificate or the handshake: no retry */
    STK_HTTP_RESET,          /* the connection ended before the first byte of the response */
    STK_HTTP_BROKEN,         /* it ended in the response: `bytes` of the body are valid */
    STK_HTTP_FIRST_BYTE,     /* no first byte in time */
    STK_HTTP_STALL,          /* the body stopped: `bytes` of it are valid */
    STK_HTTP_SLOW,           /* the body is slow and others are not: `bytes` of it are valid */
    STK_HTTP_TOTAL,          /* total_ms, including the wait for a connection */
    STK_HTTP_CANCELLED,
    STK_HTTP_REJECTED, /* prepare or begin failed: its error */
    STK_HTTP_LIMIT,    /* headers or body too large */
    STK_HTTP_REDIRECT, /* a redirect that must not be followed */
    STK_HTTP_OTHER,    /* no memory; a response that is not HTTP; an invalid URL */
};

/* The response to one request. Valid during begin and done; stk_http_call copies it. */
struct stk_http_response {
    uint32_t code; /* 200, 404 ...; 0: no response */
    uint32_t headers_bytes;
    uint32_t text_bytes;
    uint64_t content_bytes;                   /* Content-Length; UINT64_MAX: unknown */
    char headers[STK_HTTP_HEADERS_BYTES_MAX]; /* "Name: value\n" each, of the last response */
    char text[STK_HTTP_TEXT_BYTES_MAX +
              1]; /* body of a response that is not 2xx, cut; NUL-terminated */
};

struct stk_http_request {
    /* Set by the caller; what pointers name is borrowed until done. */
    uint32_t method;            /* enum stk_http_method */
    const char *url;            /* encoded: sent as it is */
    const char *const *headers; /* "Name: value"; Host and Content-Length are added */
    uint32_t header_count;
    struct stk_view body;
    uint8_t *buffer; /* for the body of a 2xx response; other bodies go to the response's text */
    uint64_t buffer_bytes;
    bool secret;            /* the response has a secret: it is wiped from libcurl's memory */
    bool truncate;          /* a body longer than the buffer is cut instead of an error */
    bool no_proxy;          /* use no proxy, even if the environment sets one */
    bool urgent;            /* do not wait for other large bodies */
    const char *ca_file;    /* PEM, instead of the reactor's; NULL: the reactor's */
    uint32_t redirects_max; /* 0: a 3xx response is returned as it is; GET and HEAD only */
    /* The url comes from a server (on this machine or not): the same rules apply to it as to a
     * redirect of that server. */
    bool url_from_server, server_is_local;
    uint32_t connect_ms, first_byte_ms, stall_ms, total_ms; /* 0: STK_HTTP_..._MS */
    /* The request may take any time while it makes progress. total_ms then limits the time that its
     * body may be slow, and the time without a byte of any request while it waits for its turn. */
    bool by_progress;
    uint64_t group;         /* hash of the host, whose requests' speeds are compared; 0: none */
    uint64_t not_before_ns; /* monotonic; it is not sent earlier */
    /* Called before each try: sets url and headers (signs), if it wants in scratch, which has
     * STK_HTTP_SCRATCH_BYTES and is valid until done; then its first scratch_bytes are wiped.
     * Returns 0 on success, -EAGAIN to be called again soon, or an error, with which the request
     * fails. NULL: url and headers are set already. */
    int (*prepare)(struct stk_http_request *request, char *scratch);
    uint32_t scratch_bytes;
    /* Called before the first byte of the body of a 2xx response, also if it has none: may read the
     * response, and set buffer and skip. A value below 0 fails the request; its error must be
     * filled. */
    int (*begin)(struct stk_http_request *request, const struct stk_http_response *answer);
    /* Called when the buffer is full and more of the body arrives: sets buffer and buffer_bytes so
     * that there is room, and leaves the received bytes at the begin. Below 0: the request fails;
     * its error must be filled. NULL: the buffer does not grow. */
    int (*grow)(struct stk_http_request *request);
    uint64_t skip; /* bytes of the body to discard before those for the buffer */
    /* Called before a redirect of the first host is followed: may read the response. May be NULL.
     */
    void (*on_redirect)(struct stk_http_request *request, const struct stk_http_response *answer);
    /* Called at the end, exactly once for each submit. */
    void (*done)(struct stk_http_request *request, const struct stk_http_response *answer);
    void *owner; /* the submitter's */
    /* For the report of long waits (wait_report.h): since when the submitter has waited, over all
     * attempts; 0: it is not reported. host: of the last attempt, or NULL; borrowed until done. */
    uint64_t since_ns;
    uint32_t attempt;
    const char *host;
    /* NULL, or true if the request is no longer wanted. Checked a few times a second, and at once
     * after stk_http_cancel_stopped. */
    const _Atomic bool *stop, *stop_also;

    /* Results, valid when done is called. */
    int status;          /* 0: there was a response, with any code; else the status of error */
    uint32_t failure;    /* enum stk_http_failure */
    uint64_t bytes;      /* of the body in the buffer; valid also if the request failed */
    uint64_t sent_bytes; /* of its own body, if it is long: at least so many were sent */
    /* The number of times it was sent: libcurl sends it again if a reused connection ended
     * without a response. */
    uint32_t sends;
    uint64_t sent_ns, first_byte_ns, done_ns; /* monotonic; 0: did not happen */
    struct stoker_error error;
    /* The URL on another host that redirects led to; NULL: none. Valid during done. */
    const char *redirect_url;
    bool is_local;   /* the first server is on this machine */
    bool redirected; /* a redirect led to another host; valid from begin on */

    struct stk_http_slot *slot; /* private to storage/http, as all below */
    bool waited;                /* for a lease */
    bool is_large;              /* counted as such */
    struct stk_http_request *next, *previous;
    uint64_t deadline_ns;
    _Atomic bool cancelled;
};

/* Starts the reactor. Returns 0 on success, -ENOMEM, -EAGAIN if no thread can be started, or
 * STOKER_ERROR_UNSUPPORTED if libcurl lacks a feature. */
int stk_http_open(struct stk_http **http_out, const struct stk_http_options *options,
                  struct stoker_error *error);
/* Ends the reactor. Requests in flight are done with STK_HTTP_CANCELLED before this returns.
 * Requests that are submitted later are done with it during the call. The owner of the memory that
 * requests in flight use calls this once, before it frees that memory. Must not be called on the
 * reactor. */
void stk_http_shutdown(struct stk_http *http);
/* Takes ownership; NULL is allowed. Shuts down first; then no request may be submitted, not by done
 * either. */
void stk_http_close(struct stk_http *http);

/* Never waits. After stk_http_shutdown began, done is called (cancelled) before this returns. */
void stk_http_submit(struct stk_http *http, struct stk_http_request *request);
/* done is called soon, with STK_HTTP_CANCELLED unless the request is ending already. The caller
 * makes sure that the request is between submit and done. */
void stk_http_cancel(struct stk_http *http, struct stk_http_request *request);
/* The same for all requests whose stop or stop_also has become true. */
void stk_http_cancel_stopped(struct stk_http *http);
/* Ends a request now if it was sent, and calls its done. On the reactor, not in a callback of a
 * request that is being received. */
void stk_http_abort(struct stk_http *http, struct stk_http_request *request);
/* The number of unused connections that no request waits for. On the reactor. */
uint32_t stk_http_free_connections(const struct stk_http *http);
/* Something else than the number of connections limits the goodput now: it is not measured. */
void stk_http_freeze_concurrency(struct stk_http *http);

struct stk_http_stats {
    uint32_t connections, connections_peak; /* open now, in use or not; the most so far */
    uint32_t connections_max;               /* the current limit by goodput */
    uint32_t large_max;                     /* the same for large bodies */
    uint64_t waits; /* requests that waited for a connection of the shared limit */
};
void stk_http_get_stats(struct stk_http *http, struct stk_http_stats *stats_out); /* any thread */

/* Submits a small request and waits for done, at most total_ms. Returns its status and copies its
 * error and its response; answer_out may be NULL. Not on the reactor. */
int stk_http_call(struct stk_http *http, struct stk_http_request *request,
                  struct stk_http_response *answer_out, struct stoker_error *error);

/* The value of the first header with this name, in upper or lower case; false: there is none. */
bool stk_http_header(const struct stk_http_response *answer, const char *name,
                     struct stk_view *value_out);

#endif
