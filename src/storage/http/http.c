/* The public functions: open and close, submit, call and wait, read headers. */
#include "storage/http/http.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/thread.h"
#include "io/clock.h"
#include "io/descriptor_budget.h"
#include "storage/http/reactor.h"
#include "storage/http/wait_report.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The request's buffers before its deadline; a caller of stk_http_call waits by it. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
    struct stk_http_response *answer;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static CURLcode loaded;
static bool knows_tls; /* libcurl's OpenSSL is of the version that is ours */

static int start_thread(struct stk_http *http);
static void wake_waiter(struct stk_http_request *request, const struct stk_http_response *answer);

static void load(void)
{
    const char *its_tls;
    char ours[64];

    /* libcurl copies requests, which contain tokens, and responses, which may contain them. If
     * another library of the process initialized libcurl first, that library's allocator stays in
     * use. */
    loaded = curl_global_init_mem(CURL_GLOBAL_DEFAULT, stk_secret_alloc, stk_secret_free,
                                  stk_secret_realloc, stk_secret_strdup, stk_secret_calloc);
    its_tls = curl_version_info(CURLVERSION_NOW)->ssl_version;
    snprintf(ours, sizeof ours, "OpenSSL/%s", OpenSSL_version(OPENSSL_VERSION_STRING));
    knows_tls = its_tls && strcmp(its_tls, ours) == 0;
}

/* By default libcurl retains decrypted bytes until more bytes arrive, which may be never. */
void stk_http_set_wipe_response(CURL *easy, bool wipe)
{
    struct curl_tlssessioninfo *tls = NULL;

    if (!knows_tls || curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &tls) != CURLE_OK || !tls ||
        !tls->internals) {
        return;
    }
    if (wipe) {
        SSL_set_options(tls->internals, SSL_OP_CLEANSE_PLAINTEXT);
    } else {
        SSL_clear_options(tls->internals, SSL_OP_CLEANSE_PLAINTEXT);
    }
}

int stk_http_open(struct stk_http **http_out, const struct stk_http_options *options,
                  struct stoker_error *error)
{
    struct stk_http *http = NULL;
    int status = -ENOMEM;
    long connections;

    pthread_once(&once, load);
    if (loaded != CURLE_OK) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "libcurl cannot be used",
                        "install libcurl 7.85 or later with OpenSSL", "%s",
                        curl_easy_strerror(loaded));
    }
    if (options->connections_max > STK_HTTP_CONNECTIONS_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many connections", "use at most 1024",
                        "%u", options->connections_max);
    }
    http = stk_alloc(1, sizeof *http);
    if (!http) {
        goto done;
    }
    http->poll.epoll = http->poll.wake = -1;
    http->options = *options;
    if (http->options.connections_max == 0) {
        http->options.connections_max = STK_HTTP_CONNECTIONS_DEFAULT;
    }
    http->options.connections_max = stk_descriptors_reserve(http->options.connections_max, 1);
    pthread_mutex_init(&http->lock, NULL);
    http->options.ca_file = options->ca_file ? stk_strdup(options->ca_file) : NULL;
    http->slots = stk_alloc(http->options.connections_max, sizeof(struct stk_http_slot *));
    http->multi = curl_multi_init();
    if (stk_http_pool_open(http) < 0 || stk_http_resolver_open(http) < 0 || !http->slots ||
        !http->multi || (options->ca_file && !http->options.ca_file)) {
        goto done;
    }
    status = stk_http_poll_open(http);
    if (status < 0) {
        goto done;
    }
    connections = (long)http->options.connections_max;
    curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, connections);
    curl_multi_setopt(http->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, connections);
    status = start_thread(http);
    if (status == 0) {
        *http_out = http;
        http = NULL;
    }
done:
    if (status < 0) {
        stk_fail_errno(error, -status, "cannot start the network thread",
                       "free memory, or raise the limits of threads and open files", "http");
    }
    stk_http_close(http);
    return status;
}

void stk_http_shutdown(struct stk_http *http)
{
    if (http->started) {
        pthread_mutex_lock(&http->lock);
        http->locked.closing = true;
        pthread_mutex_unlock(&http->lock);
        stk_http_wake(http);
        pthread_join(http->thread, NULL);
        stk_wait_report_publish(http, NULL);
        http->started = false;
    }
}

void stk_http_close(struct stk_http *http)
{
    if (!http) {
        return;
    }
    stk_http_shutdown(http);
    stk_http_resolver_close(http); /* first: a resolving thread may wake the reactor */
    for (uint32_t i = 0; i < http->slot_count; i++) {
        curl_easy_cleanup(http->slots[i]->easy);
        stk_pages_free(http->slots[i], sizeof *http->slots[i]);
    }
    stk_free(http->slots);
    if (http->multi) {
        curl_multi_cleanup(http->multi);
    }
    stk_http_poll_close(http);
    stk_http_pool_close(http); /* now that all connections are closed */
    stk_free((void *)(uintptr_t)http->options.ca_file);
    pthread_mutex_destroy(&http->lock);
    stk_descriptors_release(http->options.connections_max);
    stk_free(http);
}

void stk_http_submit(struct stk_http *http, struct stk_http_request *request)
{
    uint32_t total_ms = request->total_ms ? request->total_ms : STK_HTTP_TOTAL_MS;
    bool closing, first = false;

    request->status = 0;
    request->failure = STK_HTTP_NO_FAILURE;
    request->bytes = 0;
    request->is_large = false; /* also a hedged copy of a request in flight */
    request->error.status = 0;
    request->deadline_ns = stk_max(stk_clock_ns(), request->not_before_ns) + total_ms * 1000000ull;
    atomic_store_explicit(&request->cancelled, false, memory_order_relaxed);
    pthread_mutex_lock(&http->lock);
    closing = http->locked.closing;
    if (!closing) {
        first = http->locked.inbox.first == NULL;
        stk_http_list_add(&http->locked.inbox, request);
    }
    pthread_mutex_unlock(&http->lock);
    if (closing) {
        stk_http_finish(http, request, NULL, STK_HTTP_CANCELLED, NULL);
    } else if (first && !pthread_equal(pthread_self(), http->thread)) {
        stk_http_wake(http); /* the reactor looks by itself before it waits */
    }
}

void stk_http_cancel(struct stk_http *http, struct stk_http_request *request)
{
    atomic_store_explicit(&request->cancelled, true, memory_order_relaxed);
    stk_http_cancel_stopped(http);
}

void stk_http_cancel_stopped(struct stk_http *http)
{
    atomic_store_explicit(&http->cancels, true, memory_order_release);
    stk_http_wake(http);
}

void stk_http_freeze_concurrency(struct stk_http *http)
{
    atomic_store_explicit(&http->concurrency_frozen, true, memory_order_relaxed);
}

int stk_http_call(struct stk_http *http, struct stk_http_request *request,
                  struct stk_http_response *answer_out, struct stoker_error *error)
{
    struct waiter waiter = {.answer = answer_out};

    pthread_mutex_init(&waiter.lock, NULL);
    pthread_cond_init(&waiter.arrived, NULL);
    request->owner = &waiter;
    request->done = wake_waiter;
    stk_http_submit(http, request);
    pthread_mutex_lock(&waiter.lock);
    while (!waiter.done) { /* the reactor keeps the request's deadline */
        pthread_cond_wait(&waiter.arrived, &waiter.lock);
    }
    pthread_mutex_unlock(&waiter.lock);
    pthread_cond_destroy(&waiter.arrived);
    pthread_mutex_destroy(&waiter.lock);
    request->owner = NULL;
    if (request->status < 0 && error) {
        *error = request->error;
    }
    return request->status;
}

bool stk_http_header(const struct stk_http_response *answer, const char *name,
                     struct stk_view *value_out)
{
    const char *at = answer->headers, *end = at + answer->headers_bytes, *line_end;
    size_t name_bytes = strlen(name);

    for (; at < end; at = line_end + 1) {
        line_end = memchr(at, '\n', (size_t)(end - at));
        if ((size_t)(line_end - at) > name_bytes && at[name_bytes] == ':' &&
            strncasecmp(at, name, name_bytes) == 0) {
            const char *value = at + name_bytes + 1, *value_end = line_end;

            while (value < value_end && (*value == ' ' || *value == '\t')) {
                value++;
            }
            while (value_end > value && (value_end[-1] == ' ' || value_end[-1] == '\t')) {
                value_end--;
            }
            *value_out = (struct stk_view){(const uint8_t *)value, (size_t)(value_end - value)};
            return true;
        }
    }
    *value_out = (struct stk_view){(const uint8_t *)"", 0};
    return false;
}

static int start_thread(struct stk_http *http)
{
    int status = stk_thread_start(&http->thread, NULL, stk_http_run, http);

    if (status == 0) {
        http->started = true;
        pthread_setname_np(http->thread, "stoker-http");
    }
    return status;
}

static void wake_waiter(struct stk_http_request *request, const struct stk_http_response *answer)
{
    struct waiter *waiter = request->owner;

    pthread_mutex_lock(&waiter->lock);
    if (waiter->answer) {
        *waiter->answer = *answer;
    }
    waiter->done = true;
    pthread_cond_signal(&waiter->arrived);
    pthread_mutex_unlock(&waiter->lock);
}
