/* A request with all of its tries. */
#include "store/shared.h"

#include "io/pool.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ull
/* What a retry costs of the tokens that all requests of a store share: when many fail, and none
 * succeeds, retries become rare. The numbers are those of the SDKs' standard mode. */
#define COST_TRANSIENT 14u
#define COST_THROTTLED 5u
/* Tries while no server has ever answered: what is named is wrong then, more often than away. */
#define STRANGE_ATTEMPTS_MAX 4u
#define POOR_MS 1000u /* a retry for which there are no tokens waits for so much longer */

/* Waits of stk_exchange_call. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
    struct stk_http_answer *answer;
};

static void submit(struct stk_exchange *exchange);
static void on_done(struct stk_http_request *request, const struct stk_http_answer *answer);
static bool try_again(struct stk_exchange *exchange, uint32_t verdict,
                      const struct stk_http_answer *answer);
static void wake(struct stk_exchange *exchange, const struct stk_http_answer *answer);

void stk_exchange_start(struct stk_store *store, struct stk_exchange *exchange)
{
    exchange->store = store;
    exchange->status = 0;
    exchange->error.status = 0;
    exchange->good = 0;
    exchange->attempts = exchange->refreshes = exchange->moves = exchange->cost = 0;
    exchange->code = 0;
    exchange->progress_ns = stk_clock_ns();
    exchange->request.not_before_ns = 0;
    atomic_store_explicit(&exchange->cancelled, false, memory_order_relaxed);
    submit(exchange);
}

int stk_exchange_call(struct stk_store *store, struct stk_exchange *exchange,
                      struct stk_http_answer *answer_out, struct stoker_error *error)
{
    struct waiter waiter = {.answer = answer_out};

    pthread_mutex_init(&waiter.lock, NULL);
    pthread_cond_init(&waiter.arrived, NULL);
    exchange->owner = &waiter;
    exchange->done = wake;
    stk_exchange_start(store, exchange);
    pthread_mutex_lock(&waiter.lock);
    while (!waiter.done) { /* the exchange ends by its deadline */
        pthread_cond_wait(&waiter.arrived, &waiter.lock);
    }
    pthread_mutex_unlock(&waiter.lock);
    pthread_cond_destroy(&waiter.arrived);
    pthread_mutex_destroy(&waiter.lock);
    if (exchange->status < 0 && error) {
        *error = exchange->error;
    }
    return exchange->status;
}

/* One try, for what has not come yet. A third of the time for each of the ways to be slow, so that
 * there is time for another try. */
static void submit(struct stk_exchange *exchange)
{
    struct stk_http_request *request = &exchange->request;
    uint32_t timeout_ms = exchange->store->options.timeout_ms;
    uint64_t not_before_ns = request->not_before_ns;
    uint32_t patience = stk_max(exchange->patience, 1);
    struct stk_view body = request->body;

    exchange->attempts++;
    *request = (struct stk_http_request){
        .method = exchange->method,
        .body = body,
        .buffer = exchange->buffer + exchange->good,
        .buffer_bytes =
            exchange->ranged ? exchange->bytes - exchange->good : exchange->buffer_bytes,
        .redirects_max = !stk_place_is_keyed(exchange->place) ||
                                 exchange->place->kind == STK_PLACE_HUB
                             ? STK_HTTP_REDIRECTS_MAX
                             : 0,
        .connect_ms = (uint32_t)stk_min(stk_max(timeout_ms / 3, 1), STK_HTTP_CONNECT_MS),
        .first_byte_ms = stk_max(timeout_ms / 3, 1) * patience,
        .stall_ms = stk_max(timeout_ms / 3, 1),
        /* While bytes come it may go on. */
        .total_ms = (uint32_t)stk_min(10ull * patience * stk_max(timeout_ms, 1000), UINT32_MAX),
        .cut = exchange->probe,
        .stop = &exchange->cancelled,
        .not_before_ns = not_before_ns,
        .prepare = stk_store_prepare,
        .begin = stk_store_check,
        .done = on_done,
        .owner = exchange,
    };
    stk_http_submit(exchange->store->http, request);
}

/* On the reactor. */
static void on_done(struct stk_http_request *request, const struct stk_http_answer *answer)
{
    struct stk_exchange *exchange = request->owner;
    struct stk_store *store = exchange->store;
    struct stk_refusal refusal = {0};
    uint32_t verdict;

    atomic_fetch_add_explicit(&store->bytes[stk_place_store(exchange->place)], request->bytes,
                              memory_order_relaxed);
    exchange->code = answer->code;
    if (answer->code != 0) {
        atomic_store_explicit(&store->answered, true, memory_order_relaxed);
    }
    if (exchange->ranged && answer->code / 100 == 2 && request->bytes > 0) {
        exchange->good += request->bytes;
        exchange->progress_ns = stk_clock_ns();
    }
    if (request->sent_bytes > 0) {
        exchange->progress_ns = stk_clock_ns(); /* a long body moved, whatever came of it */
    }
    if (answer->code / 100 > 2) {
        stk_refusal_read(&refusal, answer);
    } else if (exchange->document && answer->code / 100 == 2) {
        exchange->buffer[request->bytes] = '\0';
        stk_refusal_of(&refusal, (const char *)exchange->buffer);
    }
    verdict = stk_store_judge(exchange, answer, &refusal);
    if (verdict == STK_VERDICT_GOOD && exchange->ranged && exchange->good < exchange->bytes) {
        verdict = STK_VERDICT_TRANSIENT; /* less came than was promised, without an error */
        exchange->request.failure = STK_HTTP_BROKEN;
        exchange->request.status =
            stk_fail(&exchange->request.error, STOKER_ERROR_TRUNCATED, "the answer ends too early",
                     "look at the server and proxies between", "%llu bytes of %llu",
                     (unsigned long long)exchange->good, (unsigned long long)exchange->bytes);
    }
    if (verdict == STK_VERDICT_GOOD) {
        stk_store_give_tokens(store, stk_max(exchange->cost, 1));
        exchange->done(exchange, answer);
        return;
    }
    if (verdict == STK_VERDICT_FAILED || !try_again(exchange, verdict, answer)) {
        stk_store_fail(exchange, answer, &refusal);
        exchange->done(exchange, answer);
    }
}

/* False: it has been tried for long enough. */
static bool try_again(struct stk_exchange *exchange, uint32_t verdict,
                      const struct stk_http_answer *answer)
{
    struct stk_store *store = exchange->store;
    uint64_t now_ns = stk_clock_ns(), wait_ms = 0;
    uint32_t cost = verdict == STK_VERDICT_THROTTLED ? COST_THROTTLED : COST_TRANSIENT;

    if (verdict == STK_VERDICT_AGAIN) {
        cost = 0;
    } else if (exchange->ranged && exchange->request.bytes > 0 && exchange->attempts < 1000) {
        cost = 0; /* it made progress: this is another request, for the rest */
    } else {
        bool strange = !atomic_load_explicit(&store->answered, memory_order_relaxed);

        if (exchange->attempts >= store->config.attempts_max ||
            (strange && exchange->attempts >= STRANGE_ATTEMPTS_MAX)) {
            return false;
        }
        wait_ms = stk_store_backoff(store, verdict, exchange->attempts, answer);
        if (!stk_store_take_tokens(store, cost)) {
            cost = 0;
            wait_ms += stk_store_random(store, POOR_MS) + POOR_MS;
        }
    }
    if (now_ns + wait_ms * MS >= exchange->progress_ns + store->options.timeout_ms * MS) {
        return false;
    }
    atomic_fetch_add_explicit(&store->retries[verdict - 1], 1, memory_order_relaxed);
    exchange->cost = cost;
    exchange->request.not_before_ns = wait_ms ? now_ns + wait_ms * MS : 0;
    submit(exchange);
    return true;
}

static void wake(struct stk_exchange *exchange, const struct stk_http_answer *answer)
{
    struct waiter *waiter = exchange->owner;

    pthread_mutex_lock(&waiter->lock);
    if (waiter->answer) {
        *waiter->answer = *answer;
    }
    waiter->done = true;
    pthread_cond_signal(&waiter->arrived);
    pthread_mutex_unlock(&waiter->lock);
}
