/* An operation with all of its tries: back-off, deadlines, hedges, turns. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/clock.h"
#include "io/io.h"
#include "storage/url/url_split.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ull
/* Costs of a retry in tokens, which all requests of a store share: if many fail and none succeeds,
 * retries become rare. The numbers are those of the SDKs' standard mode. */
#define COST_TRANSIENT 14u
#define COST_THROTTLED 5u
/* A retry of a store that throttles at any rate: there may be hundreds at once. */
#define COST_INEFFECTIVE 1u
/* Tries while no server has ever responded: the URL or the endpoint is likely to be wrong. */
#define UNKNOWN_ATTEMPTS_MAX 4u
/* Tries without back-off, while waiting does not help; counted apart from the others. */
#define IMMEDIATE_TRIES_MAX 48u
#define SLOW_MS 1000u /* added to the back-off of a retry without tokens */
#define OUT_TRIES_MAX                                                                              \
    5u /* in an outage the back-off grows no further, as few requests are admitted */

/* Waits of stk_operation_run. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
    struct stk_http_response *answer;
};

static void submit(struct stk_operation *operation);
static int admit(struct stk_http_request *request, char *room);
static int on_begin(struct stk_http_request *request, const struct stk_http_response *answer);
static int on_full(struct stk_http_request *request);
static void on_redirect(struct stk_http_request *request, const struct stk_http_response *answer);
static void on_done(struct stk_http_request *request, const struct stk_http_response *answer);
static void finish_hedge_pair(struct stk_operation *operation,
                              const struct stk_http_response *answer);
static bool retry(struct stk_operation *operation, uint32_t retry_class,
                  const struct stk_shared_limits_state *reported,
                  const struct stk_http_response *answer);
static void watch_first_byte(struct stk_operation *operation);
static void unwatch_first_byte(struct stk_operation *operation);
static bool may_hedge(const struct stk_operation *operation);
static void hedge(struct stk_operation *operation);
static void wake(struct stk_operation *operation, const struct stk_http_response *answer);

void stk_operation_start(struct stk_store *store, struct stk_operation *operation)
{
    operation->store = store;
    operation->status = 0;
    operation->error.status = 0;
    operation->received = 0;
    operation->attempts = operation->refreshes = operation->moves = operation->cost = 0;
    operation->immediate_attempts = operation->progress_attempts = operation->sends = 0;
    operation->checksum_failures = 0;
    operation->seals = (struct stk_response_checksums){.unreliable = false};
    operation->hf_checksum = (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    operation->code = 0;
    operation->host[0] = operation->error_code[0] = '\0';
    operation->progress_ns = stk_clock_ns();
    operation->waited_ns = 0;
    operation->in_outage = operation->uncertain = false;
    operation->request.not_before_ns = 0;
    operation->rate_key =
        stk_store_throttle_keys(store, operation->object, &operation->latency_group);
    operation->stats_row = stk_object_url_store_kind(operation->object);
    operation->hedge = operation->hedge_of = NULL;
    operation->awaits_first_byte = operation->hedge_won = operation->abandoned = operation->ended =
        false;
    atomic_store_explicit(&operation->cancelled, false, memory_order_relaxed);
    submit(operation);
}

int stk_operation_run(struct stk_store *store, struct stk_operation *operation,
                      struct stk_http_response *answer_out, struct stoker_error *error)
{
    struct waiter waiter = {.answer = answer_out};

    pthread_mutex_init(&waiter.lock, NULL);
    pthread_cond_init(&waiter.arrived, NULL);
    operation->owner = &waiter;
    operation->done = wake;
    operation->stop = stk_io_cancel_flag();
    stk_operation_start(store, operation);
    pthread_mutex_lock(&waiter.lock);
    while (!waiter.done) { /* the operation ends by its deadline */
        pthread_cond_wait(&waiter.arrived, &waiter.lock);
    }
    pthread_mutex_unlock(&waiter.lock);
    pthread_cond_destroy(&waiter.arrived);
    pthread_mutex_destroy(&waiter.lock);
    if (operation->status < 0 && error) {
        *error = operation->error;
    }
    return operation->status;
}

/* The key is the bucket and the first part of the object's key, as stores limit rates by similar
 * prefixes. On a web server it is the host and the first part of the path. */
uint64_t stk_store_throttle_keys(const struct stk_store *store, const struct stk_object_url *object,
                                 uint64_t *group_out)
{
    const char *text = object->key, *end;
    struct stk_url_parts parts;

    if (object->kind == STK_OBJECT_URL_HTTP && stk_url_split(object->url, &parts)) {
        text = (const char *)parts.rest.data; /* host/part/, for all users */
        *group_out = stk_random_key(stk_xxh3_64(parts.head.data, parts.head.bytes),
                                    stk_xxh3_64(text, strcspn(text, "/?#")));
        text += strcspn(text, "/?#");
        text += *text == '/';
    } else {
        *group_out =
            stk_random_key(object->kind == STK_OBJECT_URL_S3 ? store->endpoint_hash : object->kind,
                           stk_xxh3_64(object->bucket, strlen(object->bucket)));
    }
    end = strchr(text, '/');
    return stk_random_key(*group_out, end ? stk_xxh3_64(text, (size_t)(end - text)) : 0);
}

/* Submits a try for the bytes that are missing. Each way to be slow gets a third of the time, so
 * that there is time for another try. */
static void submit(struct stk_operation *operation)
{
    struct stk_http_request *request = &operation->request;
    uint32_t timeout_ms = operation->store->options.timeout_ms;
    uint64_t not_before_ns = request->not_before_ns;
    uint32_t patience = stk_max(operation->timeout_factor, 1);
    struct stk_view body = request->body;

    operation->attempts++;
    operation->queued_ns = stk_max(stk_clock_ns(), not_before_ns);
    *request = (struct stk_http_request){
        .method = operation->method,
        .body = body,
        .buffer = operation->buffer + operation->received,
        .buffer_bytes =
            operation->ranged ? operation->bytes - operation->received : operation->buffer_bytes,
        .redirects_max = !stk_object_url_has_key(operation->object) ||
                                 operation->object->kind == STK_OBJECT_URL_HF
                             ? STK_HTTP_REDIRECTS_MAX
                             : 0,
        .connect_ms = (uint32_t)stk_min(stk_max(timeout_ms / 3, 1), STK_HTTP_CONNECT_MS),
        .first_byte_ms = stk_max(timeout_ms / 3, 1) * patience,
        .stall_ms = stk_max(timeout_ms / 3, 1),
        /* A read may take any time while bytes arrive; a document is short. */
        .by_progress = !operation->document,
        .group = operation->latency_group,
        .total_ms = (uint32_t)stk_min(10ull * patience * stk_max(timeout_ms, 1000), UINT32_MAX),
        .truncate = operation->probe,
        .stop = &operation->cancelled,
        .stop_also = operation->stop,
        .not_before_ns = not_before_ns,
        .prepare = admit,
        .begin = on_begin,
        .grow = operation->grow ? on_full : NULL,
        .on_redirect = operation->object->kind == STK_OBJECT_URL_HF ? on_redirect : NULL,
        .done = on_done,
        .owner = operation,
        .since_ns = operation->progress_ns,
        .attempt = operation->attempts,
        .host = operation->host,
    };
    operation->throttled = false;
    stk_http_submit(operation->store->http, request);
}

void stk_operation_admitted(struct stk_operation *operation, uint64_t now_ns)
{
    uint64_t waited_ns = now_ns - stk_min(now_ns, operation->queued_ns);

    operation->waited_ns += waited_ns;
    operation->progress_ns += operation->in_outage ? 0 : waited_ns;
    operation->progress_ns = stk_min(operation->progress_ns, now_ns);
    operation->queued_ns = now_ns;
}

static bool was_healthy(const struct stk_operation *operation)
{
    return atomic_load_explicit(
               &operation->store->last_success[operation->latency_group % STK_STORE_GROUPS],
               memory_order_relaxed) == operation->latency_group;
}

/* The server is down. This is not known of a server that the hub or a redirect led to. */
static bool is_outage(const struct stk_operation *operation)
{
    uint32_t failure = operation->request.failure;

    return (failure == STK_HTTP_CONNECT || failure == STK_HTTP_RESOLVE) &&
           !operation->used_signed_url && !operation->request.redirect_url;
}

/* The deadline of an operation without further progress. */
static uint64_t end_of(const struct stk_operation *operation)
{
    uint64_t times = operation->in_outage && was_healthy(operation) ? STK_STORE_OUTAGE_FACTOR : 1;

    return operation->progress_ns + times * operation->store->options.timeout_ms * MS;
}

/* In an outage few requests are admitted, and this one may not be among them. */
static int wait_for_outage_end(struct stk_operation *operation, uint64_t now_ns)
{
    operation->in_outage = true;
    return now_ns < end_of(operation)
               ? -EAGAIN
               : stk_fail(&operation->request.error, -EBUSY,
                          "the store does not respond, or fails each request",
                          "check the server; a longer read_timeout waits longer for it", "%llu s",
                          (unsigned long long)(now_ns - operation->progress_ns) / (1000 * MS));
}

/* The host of the request, for the report of long waits. */
static void set_host(struct stk_operation *operation)
{
    const char *url = operation->request.url, *host = url ? strstr(url, "://") : NULL;
    size_t bytes = host ? strcspn(host + 3, "/?#") : 0, login = 0;

    for (size_t i = 0; i < bytes; i++) { /* of a web server's URL */
        login = host[3 + i] == '@' ? i + 1 : login;
    }
    bytes = stk_min(bytes - login, sizeof operation->host - 1);
    if (bytes > 0) {
        memcpy(operation->host, host + 3 + login, bytes);
    }
    operation->host[bytes] = '\0';
}

/* On the reactor, as all below: sends the request if it has got its turn. */
static int admit(struct stk_http_request *request, char *room)
{
    struct stk_operation *operation = request->owner;
    struct stk_store *store = operation->store;
    uint64_t now_ns = stk_clock_ns();
    bool out = false;
    int status;

    if (operation->abandoned ||
        (operation->stop && atomic_load_explicit(operation->stop, memory_order_relaxed))) {
        return stk_fail(&request->error, STOKER_ERROR_CLOSED, "the request is no longer needed",
                        "nothing is wrong", "a hedge");
    }
    if (now_ns >= operation->queued_ns &&
        operation->waited_ns + (now_ns - operation->queued_ns) >= STK_STORE_WAIT_MAX_MS * MS) {
        return stk_fail(&request->error, STOKER_ERROR_TIMEOUT,
                        "a request had to wait for its turn for too long",
                        "the store takes few requests a second: use fewer processes, or spread "
                        "the data over more prefixes",
                        "%u s", STK_STORE_WAIT_MAX_MS / 1000);
    }
    if (!stk_shared_limits_admit(store->node, operation->rate_key, now_ns, &out)) {
        if (!operation->throttled) {
            atomic_fetch_add_explicit(&store->throttled, 1, memory_order_relaxed);
        }
        operation->throttled = true;
        stk_http_freeze_concurrency(store->http);
        return out ? wait_for_outage_end(operation, now_ns) : -EAGAIN;
    }
    status = stk_store_sign_request(request, room);
    if (status == 0) {
        set_host(operation);
        stk_operation_admitted(operation, now_ns);
        operation->admitted_ns = now_ns;
        if (!operation->hedge_of) {
            stk_hedge_budget_add(&store->hedge_budget, store->options.hedge_percent_max);
            watch_first_byte(operation);
        }
    }
    return status;
}

/* The size of the object is unknown, and its buffer is full. */
static int on_full(struct stk_http_request *request)
{
    struct stk_operation *operation = request->owner;
    int status = operation->grow(operation);

    if (status < 0) {
        request->error = operation->error;
        return status;
    }
    request->buffer = operation->buffer;
    request->buffer_bytes = operation->buffer_bytes;
    return 0;
}

/* A 2xx response begins. The first of two tries that gets here continues. */
static int on_begin(struct stk_http_request *request, const struct stk_http_response *answer)
{
    struct stk_operation *operation = request->owner, *first = operation;
    struct stk_store *store = operation->store;
    int status;

    if (operation->hedge_of) {
        first = operation->hedge_of;
    }
    if (operation->abandoned ||
        (first->hedge && first->hedge->hedge_won && first->hedge != operation)) {
        return stk_fail(&request->error, STOKER_ERROR_CLOSED,
                        "the other try of a hedged request responded first", "nothing is wrong",
                        "a hedge");
    }
    unwatch_first_byte(operation);
    status = stk_store_check_response(request, answer);
    if (status < 0 || !first->hedge) {
        return status;
    }
    if (first->hedge == operation) {
        operation->hedge_won = true;
        if (first->received == 0) {
            first->seals = operation->seals; /* for the bytes that follow */
        }
        if (!first->ended) {
            stk_http_cancel(store->http, &first->request);
        }
    } else {
        struct stk_operation *late = first->hedge;

        first->hedge = NULL;
        late->abandoned = true;
        late->hedge_of = NULL;
        late->object = NULL;
        late->info = NULL;
        late->request.stop = late->request.stop_also = NULL; /* set for the first try */
        late->stop = NULL;
        stk_http_cancel(store->http, &late->request);
    }
    return 0;
}

/* Maps a response or a failure to enum stk_rate_limit_response. too_much: it is throttled. */
static uint32_t has_error_reply(const struct stk_operation *operation,
                                const struct stk_http_response *answer, bool too_much)
{
    return too_much                                          ? STK_RATE_LIMIT_THROTTLED
           : answer->code / 100 == 5 || is_outage(operation) ? STK_RATE_LIMIT_FAILED
                                                             : STK_RATE_LIMIT_OK;
}

/* Updates the rate limit of the store, whatever becomes of the operation. */
static struct stk_shared_limits_state record_latency(struct stk_operation *operation,
                                                     const struct stk_http_response *answer,
                                                     bool too_much)
{
    struct stk_store *store = operation->store;
    const struct stk_http_request *request = &operation->request;
    struct stk_shared_limits_state retry_class = {0};
    uint64_t now_ns = stk_clock_ns();
    uint32_t reported = has_error_reply(operation, answer, too_much);

    atomic_fetch_add_explicit(&store->bytes[operation->stats_row], request->bytes,
                              memory_order_relaxed);
    if (answer->code == 0 && reported == STK_RATE_LIMIT_OK) {
        return retry_class;
    }
    if (operation->ranged && answer->code / 100 == 2 &&
        request->first_byte_ns > operation->admitted_ns) {
        stk_latency_histogram_add(&store->delays, request->first_byte_ns - operation->admitted_ns);
    }
    retry_class = stk_shared_limits_record(store->node, operation->rate_key, operation->admitted_ns,
                                           now_ns, reported);
    retry_class.outage = retry_class.outage && reported != STK_RATE_LIMIT_OK;
    if (too_much) {
        atomic_fetch_add_explicit(&store->throttles, 1, memory_order_relaxed);
    }
    if (retry_class.throttled) {
        store->throttled_until_ns = now_ns + STK_RATE_LIMIT_INEFFECTIVE_MS * MS;
    }
    return retry_class;
}

/* The hub redirects to the server that has the bytes, and reports a checksum that this server
 * lacks. */
static void on_redirect(struct stk_http_request *request, const struct stk_http_response *answer)
{
    struct stk_operation *operation = request->owner;
    struct stk_checksum reported = stk_checksum_of_hf_etag(answer);

    if (reported.kind != STK_CHECKSUM_NONE) {
        operation->hf_checksum = reported;
    }
}

static void on_done(struct stk_http_request *request, const struct stk_http_response *answer)
{
    struct stk_operation *operation = request->owner;

    unwatch_first_byte(operation);
    if (operation->hedge) { /* which continues */
        operation->ended = true;
        if (operation->hedge->hedge_won || answer->code == 0) {
            return;
        }
        record_latency(operation, answer, answer->code == 429 || answer->code == 503);
        return;
    }
    finish_hedge_pair(operation, answer);
}

/* True if the server may have carried out a failed attempt. A throttled or refused request was not
 * carried out, nor was one that reached no server. */
static bool is_uncertain(const struct stk_http_request *request, uint32_t code,
                         uint32_t retry_class)
{
    return request->sends > 1 ||
           (retry_class == STK_RETRY_CLASS_TRANSIENT && code != 409 &&
            request->failure != STK_HTTP_CONNECT && request->failure != STK_HTTP_RESOLVE);
}

/* The current try is over, and its hedge if it had one. */
static void finish_hedge_pair(struct stk_operation *operation,
                              const struct stk_http_response *answer)
{
    struct stk_http_request *request = &operation->request;
    struct stk_store *store = operation->store;
    struct stk_error_response response = {0};
    struct stk_shared_limits_state reported;
    uint32_t retry_class;

    operation->code = answer->code;
    operation->sends += request->sends;
    if (answer->code != 0) {
        atomic_store_explicit(&store->has_answered, true, memory_order_relaxed);
    }
    if (operation->ranged && answer->code / 100 == 2 && request->bytes > 0) {
        operation->received += request->bytes;
        operation->progress_ns = stk_clock_ns();
        operation->waited_ns = 0;
    }
    if (request->sent_bytes > 0) {
        operation->progress_ns =
            stk_clock_ns(); /* part of a long body was sent, whatever the result */
    }
    if (answer->code / 100 > 2) {
        stk_error_response_read(&response, answer);
    } else if (operation->document && answer->code / 100 == 2) {
        stk_error_response_parse(&response, (struct stk_view){operation->buffer, request->bytes});
    }
    memcpy(operation->error_code, response.code, sizeof operation->error_code);
    retry_class = stk_store_classify(operation, answer, &response);
    operation->uncertain = operation->uncertain || is_uncertain(request, answer->code, retry_class);
    reported = record_latency(operation, answer, retry_class == STK_RETRY_CLASS_THROTTLED);
    if (retry_class == STK_RETRY_CLASS_SUCCESS && operation->ranged &&
        operation->received < operation->bytes) {
        retry_class = STK_RETRY_CLASS_TRANSIENT; /* fewer bytes than announced, without an error */
        operation->request.failure = STK_HTTP_BROKEN;
        operation->request.status =
            stk_fail(&operation->request.error, STOKER_ERROR_TRUNCATED, "the answer ends too early",
                     "check the server and the proxies in between", "%llu bytes of %llu",
                     (unsigned long long)operation->received, (unsigned long long)operation->bytes);
    }
    if (retry_class == STK_RETRY_CLASS_SUCCESS && operation->ranged) {
        retry_class = stk_store_verify_body(operation);
    }
    if (retry_class == STK_RETRY_CLASS_SUCCESS) {
        stk_store_record_success(store, operation->latency_group);
        stk_store_release_retry_tokens(store, stk_max(operation->cost, 1));
        operation->done(operation, answer);
        return;
    }
    if (retry_class == STK_RETRY_CLASS_PERMANENT ||
        !retry(operation, retry_class, &reported, answer)) {
        stk_store_fail(operation, answer, &response);
        operation->done(operation, answer);
    }
}

/* Sets cost and back-off after a try without progress; false: it was the last one. */
static bool wait_for_next(struct stk_operation *operation, uint32_t retry_class,
                          const struct stk_shared_limits_state *reported, uint64_t *wait_ms)
{
    struct stk_store *store = operation->store;
    bool strange = !atomic_load_explicit(&store->has_answered, memory_order_relaxed);
    bool throttled = retry_class == STK_RETRY_CLASS_THROTTLED;
    uint32_t tries =
                 operation->attempts - operation->immediate_attempts - operation->progress_attempts,
             cost;

    if (strange && operation->attempts >= UNKNOWN_ATTEMPTS_MAX) {
        return false;
    }
    if (reported->outage ||
        (is_outage(operation) && was_healthy(operation))) { /* it ends by time */
        operation->in_outage = true;
        operation->progress_attempts++;
        *wait_ms = stk_store_backoff(store, STK_RETRY_CLASS_TRANSIENT,
                                     (uint32_t)stk_min(operation->attempts, OUT_TRIES_MAX));
        return true;
    }
    if (operation->in_outage) { /* the outage is over, and does not count as lack of progress */
        operation->in_outage = false;
        operation->progress_ns = stk_clock_ns();
    }
    if (tries >= store->config.attempts_max ||
        operation->immediate_attempts >= IMMEDIATE_TRIES_MAX) {
        return false;
    }
    *wait_ms = stk_store_backoff(store, retry_class, reported->ineffective ? 0 : tries);
    operation->immediate_attempts += reported->ineffective && throttled;
    cost = !throttled ? COST_TRANSIENT : reported->ineffective ? COST_INEFFECTIVE : COST_THROTTLED;
    if (stk_store_acquire_retry_tokens(store, cost)) {
        operation->cost += cost; /* a success releases all tokens */
    } else {
        *wait_ms += stk_store_random(store, SLOW_MS) + SLOW_MS;
    }
    return true;
}

/* Returns false if it is not to be retried. */
static bool retry(struct stk_operation *operation, uint32_t retry_class,
                  const struct stk_shared_limits_state *reported,
                  const struct stk_http_response *answer)
{
    struct stk_store *store = operation->store;
    uint64_t now_ns = stk_clock_ns(), wait_ms = 0, end_ns;
    uint64_t retry_after_ms =
        retry_class == STK_RETRY_CLASS_IMMEDIATE ? 0 : stk_store_retry_after(answer);
    bool got_on = operation->ranged && operation->request.bytes > 0 && operation->received > 0 &&
                  operation->request.failure != STK_HTTP_SLOW && operation->attempts < 1000;

    if (retry_class != STK_RETRY_CLASS_IMMEDIATE &&
        got_on) { /* a new request for the remaining bytes */
        operation->progress_attempts = operation->attempts - operation->immediate_attempts;
    } else if (retry_class != STK_RETRY_CLASS_IMMEDIATE &&
               !wait_for_next(operation, retry_class, reported, &wait_ms)) {
        return false;
    }
    end_ns = end_of(operation);
    if (now_ns >= end_ns || retry_after_ms > STK_STORE_RETRY_AFTER_MAX_MS ||
        operation->waited_ns + retry_after_ms * MS >= STK_STORE_WAIT_MAX_MS * MS) {
        return false;
    }
    wait_ms = stk_min(wait_ms, (end_ns - now_ns) / MS); /* it is retried at its end */
    operation->progress_ns += retry_after_ms * MS;
    operation->waited_ns += retry_after_ms * MS;
    wait_ms += retry_after_ms;
    atomic_fetch_add_explicit(&store->retries[retry_class - 1], 1, memory_order_relaxed);
    operation->request.not_before_ns = wait_ms ? now_ns + wait_ms * MS : 0;
    operation->ended = false;
    submit(operation);
    return true;
}

static void wake(struct stk_operation *operation, const struct stk_http_response *answer)
{
    struct waiter *waiter = operation->owner;

    pthread_mutex_lock(&waiter->lock);
    if (waiter->answer) {
        *waiter->answer = *answer;
    }
    waiter->done = true;
    pthread_cond_signal(&waiter->arrived);
    pthread_mutex_unlock(&waiter->lock);
}

/* ---- hedges ---- */

/* Requests are admitted in order, so the list of those without a first byte is in order, too. */
static void watch_first_byte(struct stk_operation *operation)
{
    struct stk_store *store = operation->store;

    if (!may_hedge(operation) || operation->awaits_first_byte) {
        return;
    }
    operation->awaits_first_byte = true;
    operation->later = NULL;
    operation->earlier = store->latest;
    *(store->latest ? &store->latest->later : &store->earliest) = operation;
    store->latest = operation;
}

static void unwatch_first_byte(struct stk_operation *operation)
{
    struct stk_store *store = operation->store;

    if (operation->awaits_first_byte) {
        *(operation->earlier ? &operation->earlier->later : &store->earliest) = operation->later;
        *(operation->later ? &operation->later->earlier : &store->latest) = operation->earlier;
        operation->awaits_first_byte = false;
    }
}

/* A read of a fixed version: both tries return the same bytes. */
static bool may_hedge(const struct stk_operation *operation)
{
    return operation->ranged && operation->method == STK_HTTP_GET && operation->info &&
           (operation->info->etag[0] || operation->info->modified[0]) &&
           !operation->info->no_ranges && !operation->store->options.no_hedges;
}

uint64_t stk_store_poll(void *owner, uint64_t now_ns)
{
    struct stk_store *store = owner;
    uint64_t late_ns;

    if (!store->earliest) {
        return UINT64_MAX;
    }
    late_ns = stk_latency_histogram_late_ns(&store->delays);
    while (late_ns > 0 && store->earliest && now_ns >= store->earliest->admitted_ns + late_ns) {
        struct stk_operation *operation = store->earliest;

        unwatch_first_byte(operation);
        if (operation->request.first_byte_ns == 0 && now_ns >= store->throttled_until_ns &&
            !atomic_load_explicit(&operation->cancelled, memory_order_relaxed) &&
            stk_http_free_connections(store->http) > 0 &&
            stk_hedge_budget_spend(&store->hedge_budget)) {
            hedge(operation);
        }
    }
    return late_ns > 0 && store->earliest ? store->earliest->admitted_ns + late_ns : UINT64_MAX;
}

static void on_hedge(struct stk_http_request *request, const struct stk_http_response *answer)
{
    struct stk_operation *late = request->owner, *first = late->hedge_of;
    bool won = late->hedge_won;

    if (late->abandoned) {
        atomic_fetch_add_explicit(&late->store->bytes[late->stats_row], request->bytes,
                                  memory_order_relaxed);
        stk_free(late);
        return;
    }
    if (won && !first->ended) {
        stk_http_abort(late->store->http, &first->request); /* its done is called within */
    }
    first->hedge = NULL;
    if (!first->ended) { /* the hedge continues alone */
        record_latency(late, answer, answer->code == 429 || answer->code == 503);
        stk_free(late);
        return;
    }
    if (won && request->failure == STK_HTTP_NO_FAILURE) {
        atomic_fetch_add_explicit(&late->store->hedges_won, 1, memory_order_relaxed);
    }
    /* The bytes of the hedge become those of the operation. */
    first->request.failure = request->failure;
    first->request.status = request->status;
    first->request.error = request->error;
    first->request.bytes = request->bytes;
    first->request.url = request->url;
    first->request.redirect_url = request->redirect_url;
    first->request.is_local = request->is_local;
    first->request.first_byte_ns = request->first_byte_ns;
    first->admitted_ns = late->admitted_ns;
    first->used_signed_url = late->used_signed_url;
    first->generation = late->generation;
    stk_free(late);
    finish_hedge_pair(first, answer);
}

/* Sends a second request for the same bytes. */
static void hedge(struct stk_operation *operation)
{
    struct stk_operation *late = stk_alloc(1, sizeof *late);

    if (!late) {
        return; /* a failed hedge is no error */
    }
    memcpy(late, operation, sizeof *late); /* everything that selects the bytes */
    late->offset = operation->offset + operation->received;
    late->bytes = operation->bytes - operation->received;
    late->received = 0;
    late->hedge = NULL;
    late->queued_ns = stk_clock_ns();
    late->awaits_first_byte = late->hedge_won = late->abandoned = late->ended = false;
    late->attempts = 1;
    late->hedge_of = operation;
    late->request.buffer = operation->buffer + operation->received;
    late->request.not_before_ns = 0;
    late->request.slot = NULL;
    late->request.url = NULL;
    late->request.urgent = true; /* it is late already */
    late->request.header_count = 0;
    late->request.host = late->host;
    late->request.done = on_hedge;
    late->request.owner = late;
    operation->hedge = late;
    atomic_fetch_add_explicit(&late->store->hedges, 1, memory_order_relaxed);
    stk_http_submit(late->store->http, &late->request);
}
