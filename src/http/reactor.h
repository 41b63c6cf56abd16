/* http/reactor.h: the parts of the room: the loop, one transfer, and the rules for URLs.
 *
 *   inbox --take--> delayed --due--> ready --a free slot--> active --libcurl--> done
 *                       `------------- -EAGAIN of prepare ----'
 *
 * Owner: struct stk_http. Threads: the reactor; `locked` with its lock: any.
 * Memory: a slot for each connection ever used at once, kept. Bound: connections_max slots. */
#ifndef HTTP_REACTOR_H
#define HTTP_REACTOR_H

#include "http/http.h"

#include <curl/curl.h>
#include <pthread.h>

struct stk_http_list {
    struct stk_http_request *first, *last;
};

/* One transfer; lent to the request that it serves. */
struct stk_http_slot {
    struct stk_http *http;
    CURL *easy;
    struct stk_http_request *request;
    struct stk_http_slot *next; /* of the free ones */
    struct curl_slist *headers;
    char *url;            /* after a redirect; else NULL */
    uint32_t redirects;   /* followed so far */
    uint32_t failure;     /* why a callback stopped it: enum stk_http_failure */
    bool foreign;         /* a redirect led to another host: no secrets go there */
    bool first_loopback;  /* the first connection was to this machine */
    bool sent, began, cut;
    uint64_t started_ns;
    uint64_t progress_ns; /* when a byte went either way */
    uint64_t skipped;
    uint64_t uploaded;
    char problem[CURL_ERROR_SIZE];
    struct stk_http_answer answer;
    char room[STK_HTTP_ROOM_BYTES]; /* of prepare; may hold secrets */
};

struct stk_http {
    struct stk_http_options options;
    CURLM *multi;
    pthread_t thread;
    bool started;
    struct stk_http_slot **slots; /* all that were made */
    uint32_t slot_count, active;
    struct stk_http_slot *free_slots;
    struct stk_http_list ready, delayed; /* of the reactor */
    uint64_t swept_ns;
    pthread_mutex_t lock;
    struct {
        struct stk_http_list inbox;
        bool closing;
    } locked;
    _Atomic bool cancels; /* a request was cancelled since the last sweep */
};

/* reactor.c */
void *stk_http_run(void *http);
void stk_http_finish(struct stk_http *http, struct stk_http_request *request,
                     const struct stk_http_answer *answer, uint32_t failure, const char *detail);

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

/* transfer.c: readies slot->easy for slot->request: 0 or -ENOMEM. */
int stk_http_prepare_slot(struct stk_http_slot *slot);
/* What a finished transfer failed of: enum stk_http_failure. */
uint32_t stk_http_judge(const struct stk_http_slot *slot, CURLcode result);
/* begin, if it was not called yet: false when it refused. */
bool stk_http_begin(struct stk_http_slot *slot);

/* url.c */
enum stk_http_hop { STK_HTTP_HOP_SAME = 1, STK_HTTP_HOP_FOREIGN, STK_HTTP_HOP_BAD };
/* Where a redirect leads: gives *url_out for SAME and FOREIGN (another scheme, host or port). */
int stk_http_hop(const char *url, struct stk_view location, char **url_out);
/* Whether a header may go to another host: those that can hold no secret. */
bool stk_http_is_public(const char *header);
bool stk_http_is_loopback(const char *ip);
/* Addresses that only the machine itself may ask: link-local, and the metadata services there. */
bool stk_http_is_link_local(const char *ip);

#endif
