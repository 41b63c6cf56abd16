/* A request with all of its tries. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/clock.h"
#include "io/io.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ull
/* What a retry costs of the tokens that all requests of a store share: when many fail, and none
 * succeeds, retries become rare. The numbers are those of the SDKs' standard mode. */
#define COST_TRANSIENT 14u
#define COST_THROTTLED 5u
#define COST_VAIN 1u /* at most half of all are refused then, and hundreds may be at once */
/* Tries while no server has ever answered: what is named is wrong then, more often than away. */
#define STRANGE_ATTEMPTS_MAX 4u
#define QUICK_TRIES_MAX 48u /* without a wait, since waiting helps nobody: not of the others */
#define POOR_MS 1000u       /* a retry for which there are no tokens waits for so much longer */
#define OUT_TRIES_MAX 5u    /* in an outage waits grow no further: few are let through anyway */

/* Waits of stk_exchange_call. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
    struct stk_http_answer *answer;
};

static void submit(struct stk_exchange *exchange);
static int admit(struct stk_http_request *request, char *room);
static int on_begin(struct stk_http_request *request, const struct stk_http_answer *answer);
static void on_hop(struct stk_http_request *request, const struct stk_http_answer *answer);
static void on_done(struct stk_http_request *request, const struct stk_http_answer *answer);
static void settle(struct stk_exchange *exchange, const struct stk_http_answer *answer);
static bool try_again(struct stk_exchange *exchange, uint32_t verdict,
                      const struct stk_node_verdict *told, const struct stk_http_answer *answer);
static void watch(struct stk_exchange *exchange);
static void unwatch(struct stk_exchange *exchange);
static bool may_hedge(const struct stk_exchange *exchange);
static void hedge(struct stk_exchange *exchange);
static void wake(struct stk_exchange *exchange, const struct stk_http_answer *answer);

void stk_exchange_start(struct stk_store *store, struct stk_exchange *exchange)
{
    exchange->store = store;
    exchange->status = 0;
    exchange->error.status = 0;
    exchange->good = 0;
    exchange->attempts = exchange->refreshes = exchange->moves = exchange->cost = 0;
    exchange->quick = exchange->settled = exchange->sends = 0;
    exchange->damaged = 0;
    exchange->seals = (struct stk_seals){.doubtful = false};
    exchange->linked = (struct stk_seal){.kind = STK_SEAL_NONE};
    exchange->code = 0;
    exchange->refused[0] = '\0';
    exchange->progress_ns = stk_clock_ns();
    exchange->waited_ns = 0;
    exchange->out = false;
    exchange->request.not_before_ns = 0;
    exchange->prefix = stk_store_prefix(store, exchange->place, &exchange->group);
    exchange->row = stk_place_store(exchange->place);
    exchange->hedge = exchange->of = NULL;
    exchange->watched = exchange->won = exchange->left = exchange->ended = false;
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
    exchange->stop = stk_io_obeyed();
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

/* The bucket, and what its keys begin with up to the first '/': stores count by something like it.
 * Of the web the host and the first part of the path. */
uint64_t stk_store_prefix(const struct stk_store *store, const struct stk_place *place,
                          uint64_t *group_out)
{
    const char *text = place->key, *end;
    struct stk_url_parts parts;

    if (place->kind == STK_PLACE_HTTP && stk_url_split(place->url, &parts)) {
        text = (const char *)parts.rest.data; /* host/part/, whoever asks */
        *group_out = stk_key(stk_sum64(parts.head.data, parts.head.bytes),
                             stk_sum64(text, strcspn(text, "/?#")));
        text += strcspn(text, "/?#");
        text += *text == '/';
    } else {
        *group_out = stk_key(place->kind == STK_PLACE_S3 ? store->where : place->kind,
                             stk_sum64(place->bucket, strlen(place->bucket)));
    }
    end = strchr(text, '/');
    return stk_key(*group_out, end ? stk_sum64(text, (size_t)(end - text)) : 0);
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
    exchange->due_ns = stk_max(stk_clock_ns(), not_before_ns);
    *request = (struct stk_http_request){
        .method = exchange->method,
        .body = body,
        .buffer = exchange->buffer + exchange->good,
        .buffer_bytes =
            exchange->ranged ? exchange->bytes - exchange->good : exchange->buffer_bytes,
        .redirects_max =
            !stk_place_is_keyed(exchange->place) || exchange->place->kind == STK_PLACE_HUB
                ? STK_HTTP_REDIRECTS_MAX
                : 0,
        .connect_ms = (uint32_t)stk_min(stk_max(timeout_ms / 3, 1), STK_HTTP_CONNECT_MS),
        .first_byte_ms = stk_max(timeout_ms / 3, 1) * patience,
        .stall_ms = stk_max(timeout_ms / 3, 1),
        /* While bytes come it may go on; a document is short. */
        .by_progress = !exchange->document,
        .group = exchange->group,
        .total_ms = (uint32_t)stk_min(10ull * patience * stk_max(timeout_ms, 1000), UINT32_MAX),
        .cut = exchange->probe,
        .stop = &exchange->cancelled,
        .stop_too = exchange->stop,
        .not_before_ns = not_before_ns,
        .prepare = admit,
        .begin = on_begin,
        .hop = exchange->place->kind == STK_PLACE_HUB ? on_hop : NULL,
        .done = on_done,
        .owner = exchange,
    };
    exchange->paced = false;
    stk_http_submit(exchange->store->http, request);
}

void stk_exchange_turn(struct stk_exchange *exchange, uint64_t now_ns)
{
    uint64_t waited_ns = now_ns - stk_min(now_ns, exchange->due_ns);

    exchange->waited_ns += waited_ns;
    exchange->progress_ns += exchange->out ? 0 : waited_ns;
    exchange->progress_ns = stk_min(exchange->progress_ns, now_ns);
    exchange->due_ns = now_ns;
}

static bool is_well(const struct stk_exchange *exchange)
{
    return atomic_load_explicit(&exchange->store->well[exchange->group % STK_STORE_GROUPS],
                                memory_order_relaxed) == exchange->group;
}

/* Nobody is there. Of who holds a file for the hub, or is led to, we know less. */
static bool is_away(const struct stk_exchange *exchange)
{
    uint32_t failure = exchange->request.failure;

    return (failure == STK_HTTP_CONNECT || failure == STK_HTTP_RESOLVE) && !exchange->landed &&
           !exchange->request.landed;
}

/* When it fails, unless something comes before. */
static uint64_t end_of(const struct stk_exchange *exchange)
{
    uint64_t times = exchange->out && is_well(exchange) ? STK_STORE_OUT_TIMES : 1;

    return exchange->progress_ns + times * exchange->store->options.timeout_ms * MS;
}

/* The store lets few through, and this one may not be among them. */
static int wait_out(struct stk_exchange *exchange, uint64_t now_ns)
{
    exchange->out = true;
    return now_ns < end_of(exchange)
               ? -EAGAIN
               : stk_fail(
                     &exchange->request.error, -EBUSY,
                     "the store answers nothing well, or is not there",
                     "look at the server; with a longer read_timeout it is waited for for longer",
                     "%llu s", (unsigned long long)(now_ns - exchange->progress_ns) / (1000 * MS));
}

/* On the reactor, as all below: lets it go when it is its turn. */
static int admit(struct stk_http_request *request, char *room)
{
    struct stk_exchange *exchange = request->owner;
    struct stk_store *store = exchange->store;
    uint64_t now_ns = stk_clock_ns();
    bool out = false;
    int status;

    if (exchange->left ||
        (exchange->stop && atomic_load_explicit(exchange->stop, memory_order_relaxed))) {
        return stk_fail(&request->error, STOKER_ERROR_CLOSED, "it is not wanted any more",
                        "nothing is wrong", "a hedge");
    }
    if (now_ns >= exchange->due_ns &&
        exchange->waited_ns + (now_ns - exchange->due_ns) >= STK_STORE_WAIT_MAX_MS * MS) {
        return stk_fail(&request->error, STOKER_ERROR_TIMEOUT,
                        "a request had to wait for its turn for too long",
                        "the store takes few requests a second: use fewer processes, or spread "
                        "the data over more prefixes",
                        "%u s", STK_STORE_WAIT_MAX_MS / 1000);
    }
    if (!stk_node_admit(store->node, exchange->prefix, now_ns, &out)) {
        if (!exchange->paced) {
            atomic_fetch_add_explicit(&store->paced, 1, memory_order_relaxed);
        }
        exchange->paced = true;
        stk_http_hold(store->http);
        return out ? wait_out(exchange, now_ns) : -EAGAIN;
    }
    status = stk_store_prepare(request, room);
    if (status == 0) {
        stk_exchange_turn(exchange, now_ns);
        exchange->turn_ns = now_ns;
        if (!exchange->of) {
            stk_purse_earn(&store->purse, store->options.hedge_percent_max);
            watch(exchange);
        }
    }
    return status;
}

/* A good answer begins. Of two tries the first one that comes here goes on. */
static int on_begin(struct stk_http_request *request, const struct stk_http_answer *answer)
{
    struct stk_exchange *exchange = request->owner, *first = exchange;
    struct stk_store *store = exchange->store;
    int status;

    if (exchange->of) {
        first = exchange->of;
    }
    if (exchange->left || (first->hedge && first->hedge->won && first->hedge != exchange)) {
        return stk_fail(&request->error, STOKER_ERROR_CLOSED, "another answer came first",
                        "nothing is wrong", "a hedge");
    }
    unwatch(exchange);
    status = stk_store_check(request, answer);
    if (status < 0 || !first->hedge) {
        return status;
    }
    if (first->hedge == exchange) {
        exchange->won = true;
        if (first->good == 0) {
            first->seals = exchange->seals; /* of the bytes that are coming */
        }
        if (!first->ended) {
            stk_http_cancel(store->http, &first->request);
        }
    } else {
        struct stk_exchange *late = first->hedge;

        first->hedge = NULL;
        late->left = true;
        late->of = NULL;
        late->place = NULL;
        late->about = NULL;
        late->request.stop = late->request.stop_too = NULL; /* which were the first one's */
        late->stop = NULL;
        stk_http_cancel(store->http, &late->request);
    }
    return 0;
}

/* What an answer, or none, tells of the store: enum stk_pace_answer. too_much: it says so. */
static uint32_t tells(const struct stk_exchange *exchange, const struct stk_http_answer *answer,
                      bool too_much)
{
    return too_much                                       ? STK_PACE_TOO_MUCH
           : answer->code / 100 == 5 || is_away(exchange) ? STK_PACE_BROKEN
                                                          : STK_PACE_GOOD;
}

/* The store's pace goes by it, whatever becomes of the request. */
static struct stk_node_verdict learn(struct stk_exchange *exchange,
                                     const struct stk_http_answer *answer, bool too_much)
{
    struct stk_store *store = exchange->store;
    const struct stk_http_request *request = &exchange->request;
    struct stk_node_verdict verdict = {0};
    uint64_t now_ns = stk_clock_ns();
    uint32_t told = tells(exchange, answer, too_much);

    atomic_fetch_add_explicit(&store->bytes[exchange->row], request->bytes, memory_order_relaxed);
    if (answer->code == 0 && told == STK_PACE_GOOD) {
        return verdict;
    }
    if (exchange->ranged && answer->code / 100 == 2 && request->first_byte_ns > exchange->turn_ns) {
        stk_delays_add(&store->delays, request->first_byte_ns - exchange->turn_ns);
    }
    verdict = stk_node_answer(store->node, exchange->prefix, exchange->turn_ns, now_ns, told);
    verdict.out = verdict.out && told != STK_PACE_GOOD;
    if (too_much) {
        atomic_fetch_add_explicit(&store->throttles, 1, memory_order_relaxed);
    }
    if (verdict.throttled) {
        store->throttled_until_ns = now_ns + STK_PACE_VAIN_MS * MS;
    }
    return verdict;
}

/* The hub leads to who has the bytes, and tells of them what that does not know. */
static void on_hop(struct stk_http_request *request, const struct stk_http_answer *answer)
{
    struct stk_exchange *exchange = request->owner;
    struct stk_seal told = stk_seal_of_hub(answer);

    if (told.kind != STK_SEAL_NONE) {
        exchange->linked = told;
    }
}

static void on_done(struct stk_http_request *request, const struct stk_http_answer *answer)
{
    struct stk_exchange *exchange = request->owner;

    unwatch(exchange);
    if (exchange->hedge) { /* which goes on */
        exchange->ended = true;
        if (exchange->hedge->won || answer->code == 0) {
            return;
        }
        learn(exchange, answer, answer->code == 429 || answer->code == 503);
        return;
    }
    settle(exchange, answer);
}

/* The try in flight is over, its hedge too, if it had one. */
static void settle(struct stk_exchange *exchange, const struct stk_http_answer *answer)
{
    struct stk_http_request *request = &exchange->request;
    struct stk_store *store = exchange->store;
    struct stk_refusal refusal = {0};
    struct stk_node_verdict told;
    uint32_t verdict;

    exchange->code = answer->code;
    exchange->sends += request->sends;
    if (answer->code != 0) {
        atomic_store_explicit(&store->answered, true, memory_order_relaxed);
    }
    if (exchange->ranged && answer->code / 100 == 2 && request->bytes > 0) {
        exchange->good += request->bytes;
        exchange->progress_ns = stk_clock_ns();
        exchange->waited_ns = 0;
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
    memcpy(exchange->refused, refusal.code, sizeof exchange->refused);
    verdict = stk_store_judge(exchange, answer, &refusal);
    told = learn(exchange, answer, verdict == STK_VERDICT_THROTTLED);
    if (verdict == STK_VERDICT_GOOD && exchange->ranged && exchange->good < exchange->bytes) {
        verdict = STK_VERDICT_TRANSIENT; /* less came than was promised, without an error */
        exchange->request.failure = STK_HTTP_BROKEN;
        exchange->request.status =
            stk_fail(&exchange->request.error, STOKER_ERROR_TRUNCATED, "the answer ends too early",
                     "look at the server and proxies between", "%llu bytes of %llu",
                     (unsigned long long)exchange->good, (unsigned long long)exchange->bytes);
    }
    if (verdict == STK_VERDICT_GOOD && exchange->ranged) {
        verdict = stk_store_prove(exchange);
    }
    if (verdict == STK_VERDICT_GOOD) {
        stk_store_note_well(store, exchange->group);
        stk_store_give_tokens(store, stk_max(exchange->cost, 1));
        exchange->done(exchange, answer);
        return;
    }
    if (verdict == STK_VERDICT_FAILED || !try_again(exchange, verdict, &told, answer)) {
        stk_store_fail(exchange, answer, &refusal);
        exchange->done(exchange, answer);
    }
}

/* What a try that brought nothing costs and waits; false: it was the last. */
static bool wait_for_next(struct stk_exchange *exchange, uint32_t verdict,
                          const struct stk_node_verdict *told, uint64_t *wait_ms)
{
    struct stk_store *store = exchange->store;
    bool strange = !atomic_load_explicit(&store->answered, memory_order_relaxed);
    bool throttled = verdict == STK_VERDICT_THROTTLED;
    uint32_t tries = exchange->attempts - exchange->quick - exchange->settled, cost;

    if (strange && exchange->attempts >= STRANGE_ATTEMPTS_MAX) {
        return false;
    }
    if (told->out || (is_away(exchange) && is_well(exchange))) { /* it ends by time */
        exchange->out = true;
        exchange->settled++;
        *wait_ms = stk_store_backoff(store, STK_VERDICT_TRANSIENT,
                                     (uint32_t)stk_min(exchange->attempts, OUT_TRIES_MAX));
        return true;
    }
    if (exchange->out) { /* somebody is there: an outage was no lack of progress of theirs */
        exchange->out = false;
        exchange->progress_ns = stk_clock_ns();
    }
    if (tries >= store->config.attempts_max || exchange->quick >= QUICK_TRIES_MAX) {
        return false;
    }
    *wait_ms = stk_store_backoff(store, verdict, told->vain ? 0 : tries);
    exchange->quick += told->vain && throttled;
    cost = !throttled ? COST_TRANSIENT : told->vain ? COST_VAIN : COST_THROTTLED;
    if (stk_store_take_tokens(store, cost)) {
        exchange->cost += cost; /* all of it comes back with a good answer */
    } else {
        *wait_ms += stk_store_random(store, POOR_MS) + POOR_MS;
    }
    return true;
}

/* False: it has been tried for long enough. */
static bool try_again(struct stk_exchange *exchange, uint32_t verdict,
                      const struct stk_node_verdict *told, const struct stk_http_answer *answer)
{
    struct stk_store *store = exchange->store;
    uint64_t now_ns = stk_clock_ns(), wait_ms = 0, end_ns;
    uint64_t told_ms = verdict == STK_VERDICT_AGAIN ? 0 : stk_store_retry_after(answer);
    bool got_on = exchange->ranged && exchange->request.bytes > 0 && exchange->good > 0 &&
                  exchange->request.failure != STK_HTTP_SLOW && exchange->attempts < 1000;

    if (verdict != STK_VERDICT_AGAIN && got_on) { /* this is another request, for the rest */
        exchange->settled = exchange->attempts - exchange->quick;
    } else if (verdict != STK_VERDICT_AGAIN && !wait_for_next(exchange, verdict, told, &wait_ms)) {
        return false;
    }
    end_ns = end_of(exchange);
    if (now_ns >= end_ns || told_ms > STK_STORE_RETRY_AFTER_MAX_MS ||
        exchange->waited_ns + told_ms * MS >= STK_STORE_WAIT_MAX_MS * MS) {
        return false;
    }
    wait_ms = stk_min(wait_ms, (end_ns - now_ns) / MS); /* at its end it is tried once more */
    exchange->progress_ns += told_ms * MS;
    exchange->waited_ns += told_ms * MS;
    wait_ms += told_ms;
    atomic_fetch_add_explicit(&store->retries[verdict - 1], 1, memory_order_relaxed);
    exchange->request.not_before_ns = wait_ms ? now_ns + wait_ms * MS : 0;
    exchange->ended = false;
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

/* ---- hedges ---- */

/* Turns are given in order, so those that wait for a first byte stand in order too. */
static void watch(struct stk_exchange *exchange)
{
    struct stk_store *store = exchange->store;

    if (!may_hedge(exchange) || exchange->watched) {
        return;
    }
    exchange->watched = true;
    exchange->later = NULL;
    exchange->earlier = store->latest;
    *(store->latest ? &store->latest->later : &store->earliest) = exchange;
    store->latest = exchange;
}

static void unwatch(struct stk_exchange *exchange)
{
    struct stk_store *store = exchange->store;

    if (exchange->watched) {
        *(exchange->earlier ? &exchange->earlier->later : &store->earliest) = exchange->later;
        *(exchange->later ? &exchange->later->earlier : &store->latest) = exchange->earlier;
        exchange->watched = false;
    }
}

/* Bytes of a version that is named: both tries bring the same. */
static bool may_hedge(const struct stk_exchange *exchange)
{
    return exchange->ranged && exchange->method == STK_HTTP_GET && exchange->about &&
           (exchange->about->etag[0] || exchange->about->modified[0]) &&
           !exchange->store->options.no_hedges;
}

uint64_t stk_store_tick(void *owner, uint64_t now_ns)
{
    struct stk_store *store = owner;
    uint64_t late_ns;

    if (!store->earliest) {
        return UINT64_MAX;
    }
    late_ns = stk_delays_late(&store->delays);
    while (late_ns > 0 && store->earliest && now_ns >= store->earliest->turn_ns + late_ns) {
        struct stk_exchange *exchange = store->earliest;

        unwatch(exchange);
        if (exchange->request.first_byte_ns == 0 && now_ns >= store->throttled_until_ns &&
            !atomic_load_explicit(&exchange->cancelled, memory_order_relaxed) &&
            stk_http_spare(store->http) > 0 && stk_purse_pay(&store->purse)) {
            hedge(exchange);
        }
    }
    return late_ns > 0 && store->earliest ? store->earliest->turn_ns + late_ns : UINT64_MAX;
}

static void on_hedge(struct stk_http_request *request, const struct stk_http_answer *answer)
{
    struct stk_exchange *late = request->owner, *first = late->of;
    bool won = late->won;

    if (late->left) {
        atomic_fetch_add_explicit(&late->store->bytes[late->row], request->bytes,
                                  memory_order_relaxed);
        stk_free(late);
        return;
    }
    if (won && !first->ended) {
        stk_http_drop(late->store->http, &first->request); /* its done comes here first */
    }
    first->hedge = NULL;
    if (!first->ended) { /* it goes on alone */
        learn(late, answer, answer->code == 429 || answer->code == 503);
        stk_free(late);
        return;
    }
    if (won && request->failure == STK_HTTP_NO_FAILURE) {
        atomic_fetch_add_explicit(&late->store->hedges_won, 1, memory_order_relaxed);
    }
    /* What it brought is what the try brought. */
    first->request.failure = request->failure;
    first->request.status = request->status;
    first->request.error = request->error;
    first->request.bytes = request->bytes;
    first->request.url = request->url;
    first->request.landed = request->landed;
    first->request.here = request->here;
    first->request.first_byte_ns = request->first_byte_ns;
    first->turn_ns = late->turn_ns;
    first->landed = late->landed;
    first->generation = late->generation;
    stk_free(late);
    settle(first, answer);
}

/* Asks for the same bytes once more. */
static void hedge(struct stk_exchange *exchange)
{
    struct stk_exchange *late = stk_alloc(1, sizeof *late);

    if (!late) {
        return; /* it was only to be faster */
    }
    memcpy(late, exchange, sizeof *late); /* all that makes it ask for the same */
    late->offset = exchange->offset + exchange->good;
    late->bytes = exchange->bytes - exchange->good;
    late->good = 0;
    late->hedge = NULL;
    late->due_ns = stk_clock_ns();
    late->watched = late->won = late->left = late->ended = false;
    late->attempts = 1;
    late->of = exchange;
    late->request.buffer = exchange->buffer + exchange->good;
    late->request.not_before_ns = 0;
    late->request.slot = NULL;
    late->request.url = NULL;
    late->request.urgent = true; /* it is late already */
    late->request.header_count = 0;
    late->request.done = on_hedge;
    late->request.owner = late;
    exchange->hedge = late;
    atomic_fetch_add_explicit(&late->store->hedges, 1, memory_order_relaxed);
    stk_http_submit(late->store->http, &late->request);
}
