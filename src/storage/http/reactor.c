/* The reactor: starts requests, reuses connections, and ends requests at their deadlines. */
#include "storage/http/reactor.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"
#include "storage/http/proxy_redact.h"
#include "storage/http/wait_report.h"
#include "storage/url/url_redact.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MS 1000000ull
#define SWEEP_MS 50u          /* the resolution of deadlines, in milliseconds */
#define IDLE_MS 30000u        /* of a wait with nothing to do: libcurl then ends old connections */
#define LEASE_MS 5u           /* the interval at which requests that wait for a lease are checked */
#define REPORT_NS (1000 * MS) /* a shorter wait is not reported */
#define RETRY_MS 20u          /* if prepare returned -EAGAIN, it is called again after this time */

/* The error text for each kind of failure. */
static const struct failure_text {
    int status;
    const char *what, *advice;
} failure_texts[] = {
    [STK_HTTP_NO_FAILURE] = {0, "", ""},
    [STK_HTTP_RESOLVE] = {-EHOSTUNREACH, "the server's name has no address",
                          "check the URL, and that this machine can resolve names"},
    [STK_HTTP_CONNECT] = {-ECONNREFUSED, "cannot connect to the server",
                          "check host, port and proxy, and that the server runs"},
    [STK_HTTP_TLS] = {-EPROTO, "the server's certificate is not trusted",
                      "check the host name; for a private authority set AWS_CA_BUNDLE or "
                      "SSL_CERT_FILE"},
    [STK_HTTP_RESET] = {-ECONNRESET, "the server ended the connection before it answered",
                        "try again; if it stays so, look at the server's log"},
    [STK_HTTP_BROKEN] = {STOKER_ERROR_TRUNCATED, "the connection broke within the answer",
                         "try again; if it stays so, look at proxies between"},
    [STK_HTTP_FIRST_BYTE] = {STOKER_ERROR_TIMEOUT, "the server did not answer in time",
                             "try again later, or with fewer requests at a time"},
    [STK_HTTP_STALL] = {STOKER_ERROR_TIMEOUT, "the answer stopped coming",
                        "try again later, or with fewer requests at a time"},
    [STK_HTTP_SLOW] = {STOKER_ERROR_TIMEOUT, "the answer is too slow, and others are not",
                       "check the server and the proxies in between"},
    [STK_HTTP_TOTAL] = {STOKER_ERROR_TIMEOUT, "the request was not done in time",
                        "try again later, or with fewer requests at a time"},
    [STK_HTTP_CANCELLED] = {STOKER_ERROR_CLOSED, "the request was cancelled",
                            "nothing is wrong: it was not wanted any more"},
    [STK_HTTP_REJECTED] = {STOKER_ERROR_CORRUPT, "the answer does not match the request",
                           "check the server and the proxies in between"},
    [STK_HTTP_LIMIT] = {STOKER_ERROR_LIMIT, "the answer is larger than it may be",
                        "check the server and the proxies in between"},
    [STK_HTTP_REDIRECT] = {STOKER_ERROR_UNSUPPORTED,
                           "the server redirects to where none is allowed",
                           "check the URL: no plain text after TLS, no local addresses, no loops"},
    [STK_HTTP_OTHER] = {-EPROTO, "the answer is not of HTTP", "check the URL and its port"},
};

static bool take_inbox(struct stk_http *http);
static void admit(struct stk_http *http, struct stk_http_request *request);
static void cancel_all(struct stk_http *http);
static void start_due(struct stk_http *http);
static bool start(struct stk_http *http, struct stk_http_request *request);
static struct stk_http_slot *take_slot(struct stk_http *http);
static void release_slot(struct stk_http *http, struct stk_http_slot *slot);
static void finish_slot(struct stk_http_slot *slot, uint32_t failure);
static void take_results(struct stk_http *http);
static bool follow_redirect(struct stk_http_slot *slot);
static void start_transfer(struct stk_http_slot *slot);
static void start_resolved(struct stk_http *http);
static void set_waiting_for_dns(struct stk_http_slot *slot, bool parked);
static void sweep(struct stk_http *http);
static int wait_ms(struct stk_http *http);

void *stk_http_run(void *context)
{
    struct stk_http *http = context;
    bool closing = false;

    while (!closing) {
        closing = take_inbox(http);
        if (closing) {
            cancel_all(http);
            break;
        }
        if (http->options.tick) {
            /* The time of the last check is used: bytes that arrived since then are not late,
             * only unseen. */
            http->tick_ns = http->options.tick(http->options.tick_owner, http->poll.looked_ns);
        }
        start_due(http);
        start_resolved(http);
        stk_http_poll_run_due(http);
        take_results(http);
        sweep(http);
        stk_http_poll_wait(http, wait_ms(http));
        take_results(http);
    }
    return NULL;
}

static void finish_large(struct stk_http *http, struct stk_http_request *request)
{
    http->large_count -= request->is_large;
    request->is_large = false;
}

void stk_http_finish(struct stk_http *http, struct stk_http_request *request,
                     const struct stk_http_response *answer, uint32_t failure, const char *detail)
{
    static const struct stk_http_response none;
    char text[256];

    finish_large(http, request);
    request->failure = failure;
    request->done_ns = stk_clock_ns();
    if (failure == STK_HTTP_NO_FAILURE) {
        request->status = 0;
    } else if (failure == STK_HTTP_REJECTED && request->status < 0 && request->error.status < 0) {
        request->status = request->error.status;
    } else {
        const struct failure_text *failure_text = &failure_texts[failure];

        request->status =
            stk_fail(&request->error, failure_text->status, failure_text->what,
                     failure_text->advice, "'%s'%s%.200s",
                     stk_url_redact_short(request->url ? request->url : "", text, sizeof text),
                     detail && detail[0] ? ": " : "", detail ? detail : "");
    }
    request->slot = NULL;
    request->done(request, answer ? answer : &none);
}

/* Moves the submitted requests to the queue, in order. Returns true if the client is being
 * closed. */
static bool take_inbox(struct stk_http *http)
{
    struct stk_http_request *request, *next;
    bool closing;

    pthread_mutex_lock(&http->lock);
    request = http->locked.inbox.first;
    http->locked.inbox = (struct stk_http_list){0};
    closing = http->locked.closing;
    pthread_mutex_unlock(&http->lock);
    for (; request; request = next) {
        next = request->next;
        if (request->not_before_ns) {
            stk_http_list_add(&http->delayed, request);
        } else {
            admit(http, request);
        }
    }
    return closing;
}

static bool is_large(const struct stk_http_request *request)
{
    return stk_max(request->buffer_bytes, request->body.bytes) >= STK_HTTP_LARGE_BYTES &&
           !request->urgent;
}

/* It is due: the large ones wait for each other before they wait for a connection. */
static void admit(struct stk_http *http, struct stk_http_request *request)
{
    bool large = is_large(request);

    if (large) {
        stk_http_pool_start_large(http, request->body.bytes >= STK_HTTP_LARGE_BYTES);
    }
    stk_http_list_add(large ? &http->large : &http->ready, request);
}

static void cancel_all(struct stk_http *http)
{
    struct stk_http_list *lists[] = {&http->large, &http->ready, &http->delayed};

    for (size_t i = 0; i < STK_COUNT(lists); i++) {
        while (lists[i]->first) {
            struct stk_http_request *request = lists[i]->first;

            stk_http_list_remove(lists[i], request);
            stk_http_finish(http, request, NULL, STK_HTTP_CANCELLED, NULL);
        }
    }
    for (uint32_t i = 0; i < http->slot_count; i++) {
        if (http->slots[i]->request) {
            finish_slot(http->slots[i], STK_HTTP_CANCELLED);
        }
    }
}

static void start_due(struct stk_http *http)
{
    uint64_t now_ns = stk_clock_ns();
    struct stk_http_request *request, *next;

    for (request = http->delayed.first; request; request = next) {
        next = request->next;
        if (request->not_before_ns <= now_ns) {
            stk_http_list_remove(&http->delayed, request);
            admit(http, request);
        }
    }
    while (http->large.first && http->large_count < http->pool.large.count) {
        request = http->large.first;
        stk_http_list_remove(&http->large, request);
        stk_http_list_add(&http->ready, request);
        request->is_large = true;
        http->large_count++;
    }
    while (http->ready.first && stk_http_pool_may_start(http)) {
        request = http->ready.first;
        stk_http_list_remove(&http->ready, request);
        if (!start(http, request)) {
            break;
        }
    }
}

/* Returns false if there is no memory for more requests now; the request continues to wait. */
static bool start(struct stk_http *http, struct stk_http_request *request)
{
    struct stk_http_slot *slot = take_slot(http);
    int status = 0;

    if (!slot) {
        if (http->active > 0) {
            stk_http_list_add(&http->ready, request);
            return false;
        }
        request->status = stk_fail(&request->error, -ENOMEM, "cannot send a request", "free memory",
                                   "a connection");
        stk_http_finish(http, request, NULL, STK_HTTP_REJECTED, NULL);
        return true;
    }
    request->scratch_bytes = 0;
    if (request->prepare) {
        status = request->prepare(request, slot->scratch);
    }
    request->url = request->url ? request->url : "";
    if (status == -EAGAIN) {
        release_slot(http, slot);
        finish_large(http, request); /* to other requests, possibly of another store */
        request->not_before_ns = stk_clock_ns() + RETRY_MS * MS;
        stk_http_list_add(&http->delayed, request);
        return true;
    }
    if (status < 0) {
        release_slot(http, slot);
        request->status = status;
        stk_http_finish(http, request, NULL, STK_HTTP_REJECTED, NULL);
        return true;
    }
    slot->request = request;
    request->slot = slot;
    request->bytes = 0;
    request->first_byte_ns = 0;
    request->sent_ns = 0;
    request->sends = 0;
    http->active++;
    stk_http_host_of(slot)->active++;
    slot->started_ns = stk_clock_ns();
    start_transfer(slot);
    return true;
}

/* Sends the request, or parks it until the addresses of its host are known, or ends it. */
static void start_transfer(struct stk_http_slot *slot)
{
    struct stk_http *http = slot->http;
    uint32_t name;

    stk_http_clear_slot(slot);
    name = stk_http_resolver_find(slot);
    if (name != STK_HTTP_RESOLVER_READY) {
        set_waiting_for_dns(slot, name == STK_HTTP_RESOLVER_PENDING);
        if (name == STK_HTTP_RESOLVER_FAILED) {
            finish_slot(slot, STK_HTTP_RESOLVE);
        }
        return;
    }
    set_waiting_for_dns(slot, false);
    stk_http_prepare_slot(slot);
    if (curl_multi_add_handle(http->multi, slot->easy) != CURLM_OK) {
        snprintf(slot->problem, sizeof slot->problem, "no memory for a connection");
        finish_slot(slot, STK_HTTP_OTHER);
    }
}

static void set_waiting_for_dns(struct stk_http_slot *slot, bool parked)
{
    slot->http->waiting_for_dns += parked;
    slot->http->waiting_for_dns -= slot->waits_for_dns;
    slot->waits_for_dns = parked;
}

/* Starts the requests whose addresses have arrived. */
static void start_resolved(struct stk_http *http)
{
    if (!atomic_exchange_explicit(&http->resolver_ready, false, memory_order_acq_rel)) {
        return;
    }
    for (uint32_t i = 0; http->waiting_for_dns > 0 && i < http->slot_count; i++) {
        if (http->slots[i]->waits_for_dns) {
            start_transfer(http->slots[i]);
        }
    }
}

static struct stk_http_slot *take_slot(struct stk_http *http)
{
    struct stk_http_slot *slot = http->free_slots;

    if (slot) {
        slot->easy = slot->easy ? slot->easy : curl_easy_init();
        if (slot->easy) {
            http->free_slots = slot->next;
        }
        return slot->easy ? slot : NULL;
    }
    if (http->slot_count == http->options.connections_max) {
        return NULL;
    }
    slot = stk_pages_alloc(sizeof *slot);
    if (!slot) {
        return NULL;
    }
    madvise(slot, sizeof *slot, MADV_DONTDUMP);
    memset(slot, 0, sizeof *slot);
    slot->http = http;
    slot->easy = curl_easy_init();
    http->slots[http->slot_count++] = slot;
    if (!slot->easy) {
        release_slot(http, slot);
    }
    return slot->easy ? slot : NULL;
}

static void release_slot(struct stk_http *http, struct stk_http_slot *slot)
{
    slot->next = http->free_slots;
    http->free_slots = slot;
}

/* Ends the transfer of a slot, and its request. */
static void finish_slot(struct stk_http_slot *slot, uint32_t failure)
{
    struct stk_http *http = slot->http;
    struct stk_http_request *request = slot->request;
    char *url = slot->url;
    bool secret = request->secret;
    uint32_t wiped;

    curl_multi_remove_handle(http->multi, slot->easy); /* no error if the slot is not in the list */
    set_waiting_for_dns(slot, false);
    if (failure == STK_HTTP_CONNECT) {
        stk_http_resolver_invalidate(slot);
    }
    stk_http_socket_detach(slot);
    http->pool.bytes += request->bytes + slot->uploaded;
    stk_http_host_of(slot)->active--;
    if (request->is_large && (failure == STK_HTTP_STALL || failure == STK_HTTP_FIRST_BYTE) &&
        http->large_count > 1) {
        stk_http_pool_report_late(http, stk_clock_ns());
    }
    if (request->secret) {
        curl_easy_cleanup(slot->easy); /* and the received bytes, which are wiped */
        slot->easy = NULL;
    }
    slot->url = NULL;
    slot->redirects = 0;
    request->redirect_url = slot->cross_origin ? url : NULL;
    slot->cross_origin = false;
    slot->request = NULL;
    http->active--;
    wiped = request->scratch_bytes;
    request->sent_bytes = slot->uploaded;
    if (failure == STK_HTTP_CONNECT &&
        (http->socket_errno == EMFILE || http->socket_errno == ENFILE)) {
        snprintf(slot->problem, sizeof slot->problem,
                 "this process has too many open files (ulimit -n)");
    }
    /* Apart from proxies, libcurl's texts contain host names and addresses, which are not secret.
     */
    if (failure != STK_HTTP_NO_FAILURE && slot->problem[0]) {
        stk_proxy_redact(slot->problem, sizeof slot->problem);
    }
    stk_http_finish(http, request, &slot->answer, failure, slot->problem);
    explicit_bzero(slot->scratch, wiped);
    if (secret) {
        explicit_bzero(slot->answer.text, sizeof slot->answer.text);
        stk_wipe_stack();
    }
    stk_secret_free(url);
    release_slot(http, slot); /* only now: done used the response and the buffer */
}

static void take_results(struct stk_http *http)
{
    CURLMsg *message;
    int left = 0;

    while ((message = curl_multi_info_read(http->multi, &left))) {
        struct stk_http_slot *slot = NULL;
        CURLcode result = message->data.result;
        uint32_t failure;

        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)(void *)&slot);
        failure = stk_http_classify(slot, result);
        if (failure == STK_HTTP_NO_FAILURE && follow_redirect(slot)) {
            continue;
        }
        if (failure == STK_HTTP_NO_FAILURE && slot->failure != STK_HTTP_NO_FAILURE) {
            failure = slot->failure; /* a redirect that may not be followed */
        }
        if (failure == STK_HTTP_NO_FAILURE && !stk_http_begin(slot)) {
            failure = STK_HTTP_REJECTED;
        }
        finish_slot(slot, failure);
    }
}

/* Returns true if the response was a redirect and the request was sent to its target. */
static bool follow_redirect(struct stk_http_slot *slot)
{
    struct stk_http_request *request = slot->request;
    uint32_t code = slot->answer.code;
    struct stk_view location;
    char *url = NULL;
    int hop;

    if (request->redirects_max == 0 ||
        (request->method != STK_HTTP_GET && request->method != STK_HTTP_HEAD) ||
        (code != 301 && code != 302 && code != 303 && code != 307 && code != 308) ||
        !stk_http_header(&slot->answer, "Location", &location)) {
        return false;
    }
    hop = slot->redirects < stk_min(request->redirects_max, STK_HTTP_REDIRECTS_MAX)
              ? stk_http_redirect_resolve(slot->url ? slot->url : request->url, location, &url)
              : STK_HTTP_REDIRECT_INVALID;
    if (hop == STK_HTTP_REDIRECT_INVALID) {
        stk_http_clear_response(&slot->answer);
        slot->failure = STK_HTTP_REDIRECT;
        return false;
    }
    if (request->on_redirect && !slot->cross_origin) {
        request->on_redirect(request, &slot->answer);
    }
    curl_multi_remove_handle(slot->http->multi, slot->easy);
    stk_secret_free(slot->url);
    slot->url = url;
    slot->redirects++;
    slot->cross_origin = slot->cross_origin || hop == STK_HTTP_REDIRECT_CROSS_ORIGIN;
    request->redirected = slot->cross_origin;
    slot->started_ns = stk_clock_ns(); /* the other host's name may be unknown yet */
    start_transfer(slot);
    return true;
}

void stk_http_abort(struct stk_http *http, struct stk_http_request *request)
{
    (void)http;
    if (request->slot) {
        finish_slot(request->slot, STK_HTTP_CANCELLED);
    }
}

/* The longest wait so far. */
struct longest_wait {
    const struct stk_http_request *request; /* NULL: none */
    uint64_t since_ns;
};

/* Keeps the longer one of two waits. Bytes of the response, or of a long body, end a wait. */
static void compare_wait(struct longest_wait *longest, const struct stk_http_request *request)
{
    const struct stk_http_slot *slot = request->slot;
    uint64_t since_ns = request->since_ns;

    if (slot && (slot->began || slot->uploaded > 0)) {
        since_ns = stk_max(since_ns, slot->progress_ns);
    }
    if (since_ns > 0 && (!longest->request || since_ns < longest->since_ns)) {
        *longest = (struct longest_wait){request, since_ns};
    }
}

/* Publishes the longest wait, or that there is none. */
static void report_wait(struct stk_http *http, uint64_t now_ns)
{
    const struct stk_http_list *lists[] = {&http->large, &http->ready, &http->delayed};
    struct longest_wait longest = {.request = NULL};

    for (size_t i = 0; i < STK_COUNT(lists); i++) {
        for (const struct stk_http_request *r = lists[i]->first; r; r = r->next) {
            compare_wait(&longest, r);
        }
    }
    for (uint32_t i = 0; i < http->slot_count; i++) {
        if (http->slots[i]->request) {
            compare_wait(&longest, http->slots[i]->request);
        }
    }
    if (longest.request && now_ns - longest.since_ns >= REPORT_NS) {
        struct stk_wait_report report = {.since_ns = longest.since_ns,
                                         .published_ns = now_ns,
                                         .attempt = longest.request->attempt};

        snprintf(report.host, sizeof report.host, "%s",
                 longest.request->host ? longest.request->host : "");
        stk_wait_report_publish(http, &report);
        http->reported = true;
    } else if (http->reported) {
        stk_wait_report_publish(http, NULL);
        http->reported = false;
    }
}

/* Ends requests that are cancelled or past their deadline. */
static void sweep(struct stk_http *http)
{
    struct stk_http_list *lists[] = {&http->large, &http->ready, &http->delayed};
    uint64_t now_ns = stk_clock_ns();
    bool cancels = atomic_exchange_explicit(&http->cancels, false, memory_order_acq_rel);
    struct stk_http_request *request, *next;

    if (!cancels && now_ns < http->swept_ns + SWEEP_MS * MS) {
        return;
    }
    http->swept_ns = now_ns;
    stk_http_pool_sweep(http, now_ns);
    report_wait(http, now_ns);
    for (size_t i = 0; i < STK_COUNT(lists); i++) {
        for (request = lists[i]->first; request; request = next) {
            uint32_t failure = stk_http_check_wait_timeout(http, request, now_ns);

            next = request->next;
            if (failure != STK_HTTP_NO_FAILURE) {
                stk_http_list_remove(lists[i], request);
                stk_http_finish(http, request, NULL, failure, NULL);
            }
        }
    }
    for (uint32_t i = 0; i < http->slot_count; i++) {
        struct stk_http_slot *slot = http->slots[i];
        uint32_t failure =
            slot->request ? stk_http_check_timeout(slot, now_ns) : STK_HTTP_NO_FAILURE;

        if (failure != STK_HTTP_NO_FAILURE) {
            finish_slot(slot, failure);
        }
    }
}

/* Returns the time until the next event that does not wake the reactor. */
static int wait_ms(struct stk_http *http)
{
    uint64_t now_ns, until_ns;
    bool submitted;

    pthread_mutex_lock(&http->lock);
    submitted = http->locked.inbox.first || http->locked.closing; /* maybe by done, unwoken */
    pthread_mutex_unlock(&http->lock);
    if (submitted) {
        return 0;
    }
    if (http->active + (http->ready.first != NULL) + (http->delayed.first != NULL) +
            (http->large.first != NULL) ==
        0) {
        if (http->reported) {
            report_wait(http, stk_clock_ns());
        }
        return (int)stk_http_pool_idle_ms(http, IDLE_MS);
    }
    now_ns = stk_clock_ns();
    until_ns = now_ns + SWEEP_MS * MS;
    if ((http->ready.first && stk_http_pool_may_start(http)) ||
        (http->large.first && http->large_count < http->pool.large.count)) {
        return 0;
    }
    if (http->ready.first && http->pool.is_short) {
        until_ns = now_ns + LEASE_MS * MS;
    }
    until_ns = http->options.tick ? stk_min(until_ns, http->tick_ns) : until_ns;
    for (const struct stk_http_request *r = http->delayed.first; r; r = r->next) {
        until_ns = stk_min(until_ns, r->not_before_ns);
    }
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + MS - 1) / MS);
}
