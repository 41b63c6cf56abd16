/* Goal: the results of requests while a store refuses all requests or cannot be reached.
 * Method: a server that stops and starts, or returns errors; outages that are reported to the rate
 * limit, so that the test need not wait for one. src/storage/throttle/throttle_test.c tests them in
 * simulated time. Covers operation.c. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "io/clock.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define GOOD                                                                                       \
    "HTTP/1.1 206 Partial Content\r\nConnection: close\r\nContent-Length: 5\r\n"                   \
    "Content-Range: bytes 0-4/5\r\n\r\nhello"
#define ERROR_500 "HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

/* Result of a read of "hello" from a server of this test. */
struct fetched {
    struct stk_store *store;
    struct stk_object_url *place;
    struct stk_operation exchange;
    uint64_t prefix, group;
    uint8_t buffer[6];
    int status;
    struct stoker_error error;
    _Atomic bool over;
};

static void open_fetch(struct fetched *fetched, int port, uint32_t timeout_ms)
{
    struct stk_store_options options = {.timeout_ms = timeout_ms, .seed = 1, .unshared = true};
    char url[64];

    snprintf(url, sizeof url, "http://127.0.0.1:%d/x", port);
    T_EQ("store", stk_store_open(&fetched->store, &options, NULL), 0);
    T_EQ("place", stk_object_url_parse(url, &fetched->place, NULL), 0);
    fetched->prefix = stk_store_throttle_keys(fetched->store, fetched->place, &fetched->group);
}

static void close_fetch(struct fetched *fetched)
{
    stk_object_url_free(fetched->place);
    stk_store_close(fetched->store);
}

static void *fetch(void *argument)
{
    static const struct stk_object_info info = {.bytes = 5};
    struct fetched *fetched = argument;

    memset(&fetched->exchange, 0, sizeof fetched->exchange);
    memset(fetched->buffer, 0, sizeof fetched->buffer);
    stk_store_init_read(&fetched->exchange, fetched->place, &info, 0, 5, fetched->buffer);
    fetched->status = stk_operation_run(fetched->store, &fetched->exchange, NULL, &fetched->error);
    atomic_store(&fetched->over, true);
    return NULL;
}

/* All requests of the last second failed. */
static void be_out(const struct fetched *fetched)
{
    uint64_t then_ns = stk_clock_ns() - SECOND;
    struct stk_shared_limits_state retry_class = {0};

    for (int i = 0; i <= 40; i++, then_ns += SECOND / 40) {
        retry_class = stk_shared_limits_record(fetched->store->node, fetched->prefix, then_ns,
                                               then_ns, STK_RATE_LIMIT_FAILED);
    }
    T_TRUE("an outage", retry_class.outage);
}

/* A request that is never sent does not wait for ever: it ends after the time without a byte, or
 * ten times that for a store that worked before. */
static void test_no_turn_in_an_outage(void)
{
    for (int well = 0; well < 2; well++) {
        struct stoker_store_stats ledger = {.struct_size = sizeof ledger};
        static struct fetched fetched;
        uint64_t begin_ns;

        open_fetch(&fetched, 1, 60);
        be_out(&fetched);
        (void)stk_shared_limits_admit(fetched.store->node, fetched.prefix,
                                      stk_clock_ns() + 60 * SECOND,
                                      NULL); /* the others have taken all turns of a minute */
        if (well) {
            stk_store_record_success(fetched.store, fetched.group);
        }
        begin_ns = stk_clock_ns();
        fetch(&fetched);
        T_EQ("busy", fetched.status, -EBUSY);
        T_ERROR("busy", &fetched.error);
        T_HAS("busy", fetched.error.what, "fails each request");
        T_TRUE("in its time", stk_clock_ns() - begin_ns >= (well ? 10 : 1) * 60 * SECOND / 1000);
        stk_store_get_stats(fetched.store, &ledger);
        T_EQ("nothing was sent", ledger.requests[STOKER_STORE_HTTP], 0);
        close_fetch(&fetched);
    }
}

static _Atomic uint32_t resets, errors;

static void serve_or_not(int fd)
{
    char request[4096];
    size_t head_bytes;

    if (atomic_load(&resets) > 0) {
        atomic_fetch_sub(&resets, 1);
        return; /* reads no request */
    }
    if (t_read_request(fd, request, sizeof request, &head_bytes) > 0) {
        const char *answer = atomic_load(&errors) > 0 ? ERROR_500 : GOOD;

        atomic_fetch_sub(&errors, atomic_load(&errors) > 0);
        t_send(fd, answer, strlen(answer));
    }
}

/* A server that is restarted: attempts are not used up meanwhile, and when it is back, though
 * slowly at first, each request has the usual time. */
static void test_started_anew(void)
{
    struct stoker_store_stats ledger = {.struct_size = sizeof ledger};
    static struct fetched fetched;
    struct t_server server;
    pthread_t thread;
    uint64_t begin_ns;

    t_server_start(&server, serve_or_not);
    setenv("AWS_MAX_ATTEMPTS", "4", 1);
    open_fetch(&fetched, server.port, 1500);
    fetch(&fetched);
    T_EQ("well", fetched.status, 0);
    t_server_pause(&server);
    begin_ns = stk_clock_ns();
    atomic_store(&fetched.over, false);
    T_EQ("thread", pthread_create(&thread, NULL, fetch, &fetched), 0);
    while (!atomic_load(&fetched.over) &&
           (ledger.retries_transient < 5 || stk_clock_ns() < begin_ns + 1600 * SECOND / 1000)) {
        usleep(10000);
        stk_store_get_stats(fetched.store, &ledger);
    }
    T_TRUE("not given up", !atomic_load(&fetched.over));
    T_TRUE("one request a second, not one a millisecond", ledger.retries_transient < 100);
    atomic_store(&resets, 1);
    t_server_go_on(&server);
    pthread_join(thread, NULL);
    T_EQ("there again", fetched.status, 0);
    T_STR("complete", (const char *)fetched.buffer, "hello");
    T_EQ("the reset", atomic_load(&resets), 0);
    close_fetch(&fetched);
    unsetenv("AWS_MAX_ATTEMPTS");
    t_server_stop(&server);
}

/* In an outage an error of the server is one of the outage, too; otherwise a try is one. */
static void test_errors_in_an_outage(void)
{
    struct t_server server;

    t_server_start(&server, serve_or_not);
    setenv("AWS_MAX_ATTEMPTS", "2", 1);
    for (int out = 0; out < 2; out++) {
        static struct fetched fetched;

        open_fetch(&fetched, server.port, 60000);
        if (out) {
            be_out(&fetched);
        }
        atomic_store(&resets, out); /* an attempt of its own, also there */
        atomic_store(&errors, 3);
        fetch(&fetched);
        T_EQ("errors", fetched.status, out ? 0 : -EIO);
        T_EQ("tries", atomic_load(&errors), out ? 0 : 1);
        close_fetch(&fetched);
    }
    unsetenv("AWS_MAX_ATTEMPTS");
    t_server_stop(&server);
}

int main(void)
{
    static const char *const clean[] = {"AWS_MAX_ATTEMPTS", "AWS_PROFILE", "http_proxy"};

    for (size_t i = 0; i < STK_COUNT(clean); i++) {
        unsetenv(clean[i]);
    }
    test_no_turn_in_an_outage();
    test_started_anew();
    test_errors_in_an_outage();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
