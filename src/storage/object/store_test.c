/* Goal: requests are throttled, repeated and abandoned as store.h says, and go to the right host
 * and the right version of the object.
 * Method: rows, and servers that answer by a script; src/storage/vfs/vfs_test.c tests complete
 * reads. Covers store.c, operation.c, object_read.c, signed_request.c, object_url.c and
 * list_guard.c. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "io/clock.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANARY "canary0secret0value"

static struct stk_store *open_store(void)
{
    struct stk_store_options options = {.timeout_ms = 1000, .seed = 1};
    struct stk_store *store = NULL;

    T_EQ("open", stk_store_open(&store, &options, NULL), 0);
    return store;
}

/* Web hosts are not one store: a throttled response of one host does not limit another. */
static void test_each_host_has_its_rate(void)
{
    static const struct row {
        const char *a, *b;
        bool same, same_host;
    } rows[] = {
        {"http://a/file", "http://b/file", false, false},
        {"http://a", "http://b", false, false},
        {"http://a/file", "http://a/other", true, true},
        {"http://a/one/x", "http://a/two/x", false, true},
        {"http://a/one/x", "http://a/one/y/z", true, true},
        {"http://a:80/one/x", "http://a:81/one/x", false, false},
        {"https://a/one/x", "http://a/one/x", false, false},
        {"http://me:x@a/one/x", "http://you:y@a/one/x", true, true},
        {"http://token@a/one/x", "http://a/one/x", true, true},
        {"http://a?q=1", "http://a/file", true, true},
        {"s3://a/one/x", "s3://b/one/x", false, false},
        {"s3://a/one/x", "s3://a/two/x", false, true},
        {"s3://a/x", "s3://a/y", true, true},
        {"s3://a/x", "gs://a/x", false, false},
        {"s3://a/x", "http://a/x", false, false},
    };
    struct stk_store *store = open_store();

    T_EACH(row, row, rows)
    {
        struct stk_object_url *a = NULL, *b = NULL;
        uint64_t group_a, group_b;

        T_EQ(row->a, stk_object_url_parse(row->a, &a, NULL), 0);
        T_EQ(row->b, stk_object_url_parse(row->b, &b, NULL), 0);
        T_EQ(row->b,
             stk_store_throttle_keys(store, a, &group_a) ==
                 stk_store_throttle_keys(store, b, &group_b),
             row->same);
        T_EQ(row->b, group_a == group_b, row->same_host);
        stk_object_url_free(a);
        stk_object_url_free(b);
    }
    stk_store_close(store);
}

/* Waiting for the rate limit is not a lack of progress of the server, unless the server refuses
 * everything. */
static void test_turns(void)
{
    static struct stk_operation exchange;

    for (int out = 0; out < 2; out++) {
        exchange = (struct stk_operation){.progress_ns = 1000, .queued_ns = 1200, .in_outage = out};
        stk_operation_admitted(&exchange, 5200);
        T_EQ("progress", exchange.progress_ns, out ? 1000 : 5000);
        T_EQ("counted", exchange.waited_ns, 4000);
        stk_operation_admitted(&exchange, 5200);
        T_EQ("once", exchange.waited_ns, 4000);
        stk_operation_admitted(&exchange, 4000);
        T_EQ("nor is it less", exchange.waited_ns, 4000);
    }
    exchange = (struct stk_operation){.progress_ns = 5000, .queued_ns = 1000};
    stk_operation_admitted(&exchange, 6000);
    T_EQ("not ahead of the clock", exchange.progress_ns, 6000);
}

static _Atomic uint32_t came;
static const char *refusal;

/* The first request is refused. */
static void refuse_once(int fd)
{
    char request[4096];
    size_t head_bytes;

    while (t_read_request(fd, request, sizeof request, &head_bytes) > 0) {
        const char *answer = atomic_fetch_add(&came, 1) < 1
                                 ? refusal
                                 : "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n"
                                   "Content-Range: bytes 0-4/5\r\n\r\nhello";

        if (!t_send(fd, answer, strlen(answer))) {
            return;
        }
    }
}

#define REFUSAL(when) "HTTP/1.1 503 No\r\n" when "\r\nContent-Length: 0\r\n\r\n"

/* A Retry-After that is longer than our own back-off is obeyed, up to a limit. */
static void test_retry_after(void)
{
    static const struct row {
        const char *name, *refusal;
        uint32_t timeout_ms,
            came; /* a third of it for each way to be slow: a busy machine may be */
        int status;
    } rows[] = {
        {"in time", REFUSAL("x-amz-retry-after: 5"), 60000, 2, 0},
        {"longer than no byte may come", REFUSAL("Retry-After: 3"), 3000, 2, 0},
        {"longer than anybody waits", REFUSAL("Retry-After: 301"), 60000, 1, -EBUSY},
        {"a year", REFUSAL("Retry-After: 31536000"), 60000, 1, -EBUSY},
    };
    static struct stk_operation exchange;
    struct t_server server;
    struct stk_object_info info = {.bytes = 5};

    t_server_start(&server, refuse_once);
    T_EACH(row, row, rows)
    {
        struct stk_store *store = NULL;
        struct stk_object_url *place = NULL;
        struct stoker_error error = {0};
        struct stk_store_options options = {.timeout_ms = row->timeout_ms, .seed = 1};
        uint8_t buffer[6] = "";
        char url[64];

        refusal = row->refusal;
        atomic_store(&came, 0);
        snprintf(url, sizeof url, "http://127.0.0.1:%d/x", server.port);
        T_EQ(row->name, stk_store_open(&store, &options, NULL), 0);
        T_EQ(row->name, stk_object_url_parse(url, &place, NULL), 0);
        memset(&exchange, 0, sizeof exchange);
        stk_store_init_read(&exchange, place, &info, 0, 5, buffer);
        T_EQ(row->name, stk_operation_run(store, &exchange, NULL, &error), row->status);
        T_EQ(row->name, atomic_load(&came), row->came);
        T_STR(row->name, (const char *)buffer, row->status ? "" : "hello");
        T_TRUE("a range may take as long as it gets on", exchange.request.by_progress);
        T_TRUE("whose speed is compared", exchange.request.group != 0);
        if (row->status) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.advice, "requests a retry in 3");
        }
        stk_object_url_free(place);
        stk_store_close(store);
    }
    t_server_stop(&server);
}

static void test_waits(void)
{
    static struct stk_http_response answer;
    struct stk_store *store = open_store();
    uint64_t most = 0, least = UINT64_MAX;

    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t wait = stk_store_backoff(store, STK_RETRY_CLASS_TRANSIENT, 3);

        most = stk_max(most, wait);
        least = stk_min(least, wait);
        T_TRUE("full jitter", wait <= 200);
        T_TRUE("bounded", stk_store_backoff(store, STK_RETRY_CLASS_THROTTLED, 4000000) <= 20000);
    }
    T_TRUE("spread", most > 150 && least < 50);
    T_EQ("nothing reported", stk_store_retry_after(&answer), 0);
    answer.headers_bytes = (uint32_t)snprintf(answer.headers, 64, "Retry-After: 7\n");
    T_EQ("as reported", stk_store_retry_after(&answer), 7000);
    answer.headers_bytes = (uint32_t)snprintf(answer.headers, 64, "Retry-After: 99999999999\n");
    T_TRUE("not for ever", stk_store_retry_after(&answer) > STK_STORE_RETRY_AFTER_MAX_MS);
    answer.headers_bytes = (uint32_t)snprintf(answer.headers, 64, "x-amz-retry-after: 700\n");
    T_EQ("in milliseconds", stk_store_retry_after(&answer), 700);
    for (uint32_t i = 0; i < 100; i++) {
        T_TRUE("tokens", stk_store_acquire_retry_tokens(store, 5));
    }
    T_TRUE("no more", !stk_store_acquire_retry_tokens(store, 5));
    stk_store_release_retry_tokens(store, 5);
    T_TRUE("one more", stk_store_acquire_retry_tokens(store, 5));
    for (uint32_t i = 0; i < 2 * STK_STORE_BUCKETS_MAX; i++) {
        char bucket[32];

        snprintf(bucket, sizeof bucket, "b%u", i);
        stk_store_set_region(store, bucket, bucket);
    }
    T_EQ("buckets are bounded", store->locked.bucket_count, STK_STORE_BUCKETS_MAX);
    stk_store_close(store);
}

/* No server at the address: a few attempts, paid from the shared retry tokens, and counted. */
static void test_tries(void)
{
    static const struct {
        const char *max;
        uint32_t tries;
    } rows[] = {{"", 4}, {"2", 2}, {"3", 3}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stoker_store_stats ledger = {.struct_size = sizeof ledger};
        struct stk_object_url *place = NULL;
        struct stoker_error error = {0};
        struct stk_object_info info;
        struct stk_store *store;

        setenv("AWS_MAX_ATTEMPTS", rows[i].max, 1);
        store = open_store();
        T_EQ("place", stk_object_url_parse("http://127.0.0.1:1/x", &place, NULL), 0);
        T_EQ("no server", stk_store_head(store, place, &info, &error), -ECONNREFUSED);
        T_ERROR("no server", &error);
        stk_store_get_stats(store, &ledger);
        T_EQ("sent", ledger.requests[STOKER_STORE_HTTP], rows[i].tries);
        T_EQ("tried again", ledger.retries_transient, rows[i].tries - 1);
        T_EQ("paid for", store->locked.tokens, 500 - 14 * (rows[i].tries - 1));
        stk_object_url_free(place);
        stk_store_close(store);
    }
    unsetenv("AWS_MAX_ATTEMPTS");
}

static bool sends(const struct stk_operation *exchange, const char *header)
{
    for (uint32_t i = 0; i < exchange->request.header_count; i++) {
        if (strcmp(exchange->headers[i], header) == 0) {
            return true;
        }
    }
    return false;
}

/* Bytes 15 to 29 of 100 are requested: another range is never accepted as that. */
static void test_range_checks(void)
{
    static const struct {
        const char *range;
        uint32_t code;
        uint64_t content_bytes;
        int status;
        uint64_t skip;
    } rows[] = {
        {"bytes 15-29/100", 206, 15, 0, 0},
        {"bytes 15-29/100", 206, UINT64_MAX, 0, 0}, /* chunked */
        {"bytes 15-29/*", 206, 15, 0, 0},
        {"bytes 14-29/100", 206, 15, STOKER_ERROR_CORRUPT, 0},
        {"bytes 16-30/100", 206, 15, STOKER_ERROR_CORRUPT, 0},
        {"bytes 15-30/100", 206, 15, STOKER_ERROR_CORRUPT, 0},
        {"bytes 15-28/100", 206, 15, STOKER_ERROR_CORRUPT, 0},
        {"bytes 15-29/100", 206, 14, STOKER_ERROR_CORRUPT, 0},
        {"bytes 15-29/101", 206, 15, STOKER_ERROR_CHANGED, 0},
        {"bytes */100", 206, 15, STOKER_ERROR_CORRUPT, 0},
        {"", 206, 15, STOKER_ERROR_CORRUPT, 0},
        {"", 200, 100, 0, 15}, /* no ranges: the bytes before it are discarded */
        {"", 200, UINT64_MAX, 0, 15},
        {"", 200, 99, STOKER_ERROR_CORRUPT, 0},
        {"", 204, 0, STOKER_ERROR_CORRUPT, 0},
    };
    static struct stk_http_response answer;
    static struct stk_operation exchange;
    struct stk_store *store = open_store();
    struct stk_object_url *place = NULL;
    struct stk_object_info info = {.bytes = 100};
    uint8_t buffer[20];

    T_EQ("place", stk_object_url_parse("http://host/x", &place, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        memset(&exchange, 0, sizeof exchange);
        stk_store_init_read(&exchange, place, &info, 10, sizeof buffer, buffer);
        exchange.received = 5; /* of an earlier attempt */
        exchange.store = store;
        exchange.request.owner = &exchange;
        answer.code = rows[i].code;
        answer.content_bytes = rows[i].content_bytes;
        answer.headers_bytes =
            rows[i].range[0]
                ? (uint32_t)snprintf(answer.headers, 64, "Content-Range: %s\n", rows[i].range)
                : 0;
        T_EQ(rows[i].range, stk_store_check_response(&exchange.request, &answer), rows[i].status);
        T_EQ(rows[i].range, exchange.request.skip, rows[i].skip);
        if (rows[i].status < 0) {
            T_ERROR(rows[i].range, &exchange.request.error);
        }
    }
    stk_object_url_free(place);
    stk_store_close(store);
}

/* The version of which a range is requested. */
static void test_conditions(void)
{
    static const char since[] = "Sat, 21 Nov 2026 10:00:00 GMT";
    static const struct {
        const char *name, *etag, *modified, *sent, *unsent;
    } rows[] = {
        {"an ETag", "\"e\"", since, "If-Match: \"e\"",
         "If-Unmodified-Since: Sat, 21 Nov 2026 10:00:00 GMT"},
        {"a weak one", "W/\"e\"", since, "If-Unmodified-Since: Sat, 21 Nov 2026 10:00:00 GMT",
         "If-Match: W/\"e\""},
        {"none", "", since, "If-Unmodified-Since: Sat, 21 Nov 2026 10:00:00 GMT", "If-Match: "},
        {"a range", "", "", "Range: bytes=15-29", "If-Match: "},
    };
    static struct stk_operation exchange;
    static char room[STK_HTTP_SCRATCH_BYTES];
    struct stk_store *store = open_store();
    struct stk_object_url *place = NULL;

    T_EQ("place", stk_object_url_parse("http://host/x", &place, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_object_info info = {.bytes = 100};
        uint8_t buffer[20];

        snprintf(info.etag, sizeof info.etag, "%s", rows[i].etag);
        snprintf(info.modified, sizeof info.modified, "%s", rows[i].modified);
        memset(&exchange, 0, sizeof exchange);
        stk_store_init_read(&exchange, place, &info, 10, sizeof buffer, buffer);
        exchange.received = 5;
        exchange.store = store;
        exchange.request.owner = &exchange;
        T_EQ(rows[i].name, stk_store_sign_request(&exchange.request, room), 0);
        T_TRUE(rows[i].name, sends(&exchange, rows[i].sent));
        T_TRUE(rows[i].name, !sends(&exchange, rows[i].unsent));
    }
    stk_object_url_free(place);
    stk_store_close(store);
}

/* The hosts to which requests for a bucket are sent. */
static const struct {
    const char *name, *url, *endpoint, *fips, *sent;
} hosts[] = {
    {"Amazon's", "s3://my-bucket/a/b c", NULL, NULL,
     "https://my-bucket.s3.eu-west-1.amazonaws.com/a/b%20c"},
    {"a dot", "s3://my.bucket/k", NULL, NULL, "https://s3.eu-west-1.amazonaws.com/my.bucket/k"},
    {"fips", "s3://my-bucket/k", NULL, "true",
     "https://my-bucket.s3-fips.eu-west-1.amazonaws.com/k"},
    {"dual stack", "s3://my-bucket/k", NULL, NULL,
     "https://my-bucket.s3.dualstack.eu-west-1.amazonaws.com/k"},
    {"one's own", "s3://my-bucket/k//../x", "http://host:80/base/", NULL,
     "http://host/base/my-bucket/k//../x"},
    {"another port", "s3://my-bucket/k", "https://host:8443", NULL,
     "https://host:8443/my-bucket/k"},
    /* As botocore's rules for endpoints have them. */
    {"express", "s3://b--euw1-az1--x-s3/k", NULL, NULL,
     "https://b--euw1-az1--x-s3.s3express-euw1-az1.eu-west-1.amazonaws.com/k"},
    {"express fips", "s3://b-b--euw1-az1--x-s3/k", NULL, "true",
     "https://b-b--euw1-az1--x-s3.s3express-fips-euw1-az1.eu-west-1.amazonaws.com/k"},
    {"express, dual stack", "s3://b--euw1-az1--x-s3/k", NULL, NULL,
     "https://b--euw1-az1--x-s3.s3express-euw1-az1.dualstack.eu-west-1.amazonaws.com/k"},
    {"express, another region", "s3://b--usw2-az1--x-s3/k", NULL, NULL,
     "https://b--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com/k"},
    {"express, region unknown", "s3://b--xyz-az1--x-s3/k", NULL, NULL,
     "https://b--xyz-az1--x-s3.s3express-xyz-az1.eu-west-1.amazonaws.com/k"},
    {"express, one's own elsewhere", "s3://b--usw2-az1--x-s3/k", "http://host/a", NULL,
     "http://host/a/b--usw2-az1--x-s3/k"},
    {"express, one's own", "s3://b--euw1-az1--x-s3/k", "http://host/a", NULL,
     "http://host/a/b--euw1-az1--x-s3/k"},
    {"no express", "s3://--x-s3/k", NULL, NULL, "https://s3.eu-west-1.amazonaws.com/--x-s3/k"},
    {"no zone", "s3://b--x-s3/k", NULL, NULL, "https://b--x-s3.s3.eu-west-1.amazonaws.com/k"},
    {"an empty zone", "s3://b----x-s3/k", NULL, NULL,
     "https://b----x-s3.s3.eu-west-1.amazonaws.com/k"},
};

static void test_hosts(void)
{
    setenv("AWS_REGION", "eu-west-1", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
    setenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true", 1); /* no server there to send one */
    for (size_t i = 0; i < STK_COUNT(hosts); i++) {
        static struct stk_operation exchange;
        static char room[STK_HTTP_SCRATCH_BYTES];
        struct stk_object_url *place = NULL;
        struct stk_store *store;
        bool dual = strstr(hosts[i].name, "dual stack") != NULL;

        setenv("AWS_ENDPOINT_URL", hosts[i].endpoint ? hosts[i].endpoint : "", 1);
        setenv("AWS_USE_FIPS_ENDPOINT", hosts[i].fips ? hosts[i].fips : "", 1);
        setenv("AWS_USE_DUALSTACK_ENDPOINT", dual ? "true" : "", 1);
        setenv("AWS_REQUEST_PAYER", dual ? "requester" : "", 1);
        store = open_store();
        atomic_store(&store->skew_s, 946684800 - (int64_t)(stk_clock_wall_ns() / 1000000000u));
        memset(&exchange, 0, sizeof exchange);
        T_EQ(hosts[i].name, stk_object_url_parse(hosts[i].url, &place, NULL), 0);
        exchange.store = store;
        exchange.object = place;
        exchange.method = STK_HTTP_GET;
        exchange.request.owner = &exchange;
        T_EQ(hosts[i].name, stk_credential_provider_get(store->creds, &store->credentials, NULL),
             0);
        T_EQ(hosts[i].name, stk_store_sign_request(&exchange.request, room), 0);
        T_STR(hosts[i].name, exchange.request.url, hosts[i].sent);
        T_TRUE(hosts[i].name, !memmem(room, sizeof room, CANARY, strlen(CANARY)));
        T_EQ(hosts[i].name, exchange.request.header_count, 3 + dual);
        T_EQ(hosts[i].name, sends(&exchange, "x-amz-request-payer: requester"), dual);
        /* By the server's clock, as it was learned. */
        T_HAS(hosts[i].name, exchange.headers[exchange.request.header_count - 3],
              "x-amz-date: 20000101T0000");
        T_TRUE(hosts[i].name, strncmp(exchange.headers[exchange.request.header_count - 1],
                                      "Authorization: AWS4-HMAC-SHA256 "
                                      "Credential=AKID/",
                                      48) == 0);
        T_EQ(hosts[i].name,
             strstr(exchange.headers[exchange.request.header_count - 1], "/s3express/aws4") != NULL,
             strncmp(hosts[i].name, "express", 7) == 0);
        T_HAS(hosts[i].name, exchange.headers[exchange.request.header_count - 1],
              strcmp(hosts[i].name, "express, another region") == 0 ? "/us-west-2/"
                                                                    : "/eu-west-1/");
        stk_object_url_free(place);
        stk_store_close(store);
    }
    unsetenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH");
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_USE_FIPS_ENDPOINT");
    unsetenv("AWS_USE_DUALSTACK_ENDPOINT");
    unsetenv("AWS_REQUEST_PAYER");
    unsetenv("AWS_REGION");
}

/* For an S3 Express bucket whose zone name has no known form the region is not guessed: the error
 * names the variable to set. */
static void test_unknown_zone(void)
{
    static struct stk_operation exchange;
    static char room[STK_HTTP_SCRATCH_BYTES];
    struct stk_object_url *place = NULL;
    struct stk_store *store;

    setenv("AWS_CONFIG_FILE", "/dev/null", 1);
    unsetenv("AWS_DEFAULT_REGION");
    store = open_store();
    T_EQ("place", stk_object_url_parse("s3://b--xyz-az1--x-s3/k", &place, NULL), 0);
    exchange.store = store;
    exchange.object = place;
    exchange.method = STK_HTTP_GET;
    exchange.request.owner = &exchange;
    T_EQ("no region", stk_store_sign_request(&exchange.request, room), STOKER_ERROR_ARGUMENT);
    T_HAS("no region", exchange.request.error.advice, "set AWS_REGION");
    T_HAS("no region", exchange.request.error.where, "zone 'xyz-az1'");
    exchange.request.failure = STK_HTTP_RESOLVE;
    exchange.request.status = -EHOSTUNREACH;
    T_EQ("no host", stk_store_fail(&exchange, &(struct stk_http_response){0}, NULL), -EHOSTUNREACH);
    T_HAS("no host", exchange.error.advice, "AWS_REGION");
    stk_object_url_free(place);
    stk_store_close(store);
    unsetenv("AWS_CONFIG_FILE");
}

/* ---- closing while requests are under way ---- */

struct pending {
    struct stk_operation exchange;
    uint8_t buffer[64];
    bool done;
};

static void count_done(struct stk_operation *exchange, const struct stk_http_response *answer)
{
    (void)answer;
    ((struct pending *)exchange)->done = true;
}

/* A server that accepts connections, and never answers: when the store is closed, requests are
 * being signed, connected or waited for. All of them end; a sanitizer detects use after free. */
static void test_close(void)
{
    struct stk_object_info info = {.bytes = 4096, .etag = "\"e\""};
    int port, listener = t_listen(64, &port);
    struct stk_object_url *place = NULL;
    static struct pending pending[32];
    char endpoint[64];

    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    T_EQ("place", stk_object_url_parse("s3://bucket/key", &place, NULL), 0);
    for (uint32_t round = 0; round < 60; round++) {
        struct stk_store *store = open_store();

        for (size_t i = 0; store && i < STK_COUNT(pending); i++) {
            memset(&pending[i], 0, sizeof pending[i]);
            stk_store_init_read(&pending[i].exchange, place, &info, 64 * i, 64, pending[i].buffer);
            pending[i].exchange.done = count_done;
            stk_operation_start(store, &pending[i].exchange);
        }
        if (round % 3 > 0) {
            usleep(round * 20);
        }
        stk_store_close(store);
        for (size_t i = 0; i < STK_COUNT(pending); i++) {
            T_TRUE("is done", pending[i].done && pending[i].exchange.status < 0);
        }
    }
    stk_object_url_free(place);
    unsetenv("AWS_ENDPOINT_URL");
    close(listener);
}

/* A body is signed if nothing else verifies it, or if the settings say so. */
static void test_payload(void)
{
    static const struct payload {
        const char *name, *endpoint;
        uint32_t said; /* enum stk_flag_setting */
        bool is_signed;
    } rows[] = {{"TLS", "https://host", STK_FLAG_UNSET, false},
                {"plain", "http://host", STK_FLAG_UNSET, true},
                {"TLS, signed", "https://host", STK_FLAG_YES, true},
                {"TLS, unsigned", "https://host", STK_FLAG_NO, false},
                {"plain, unsigned", "http://host", STK_FLAG_NO, false}};
    static struct stk_operation exchange;
    static char room[STK_HTTP_SCRATCH_BYTES];

    T_EACH(payload, row, rows)
    {
        struct stk_object_url *place = NULL;
        struct stk_store *store;

        setenv("AWS_ENDPOINT_URL", row->endpoint, 1);
        store = open_store();
        store->config.site.settings.sign_payload = row->said;
        T_EQ(row->name, stk_object_url_parse("s3://bucket/k", &place, NULL), 0);
        T_EQ(row->name, stk_credential_provider_get(store->creds, &store->credentials, NULL), 0);
        memset(&exchange, 0, sizeof exchange);
        exchange.store = store;
        exchange.object = place;
        exchange.method = STK_HTTP_PUT;
        exchange.request.owner = &exchange;
        exchange.request.body = (struct stk_view){(const uint8_t *)"abc", 3};
        T_EQ(row->name, stk_store_sign_request(&exchange.request, room), 0);
        T_TRUE(row->name,
               sends(&exchange, row->is_signed
                                    ? "x-amz-content-sha256: ba7816bf8f01cfea414140de5dae2223"
                                      "b00361a396177a9cb410ff61f20015ad"
                                    : "x-amz-content-sha256: UNSIGNED-PAYLOAD"));
        stk_object_url_free(place);
        stk_store_close(store);
    }
    unsetenv("AWS_ENDPOINT_URL");
}

/* An invalid setting of S3 is an error of requests to S3, and of no others. */
static void test_no_endpoint(void)
{
    static const struct {
        const char *url;
        int status;
    } rows[] = {{"s3://bucket/k", STOKER_ERROR_ARGUMENT}, {"gs://bucket/k", 0}};
    static struct stk_operation exchange;
    static char room[STK_HTTP_SCRATCH_BYTES];
    struct stk_store *store;

    setenv("AWS_ENDPOINT_URL", "no url", 1);
    setenv("GS_ACCESS_KEY_ID", "a", 1);
    setenv("GS_SECRET_ACCESS_KEY", "b", 1);
    store = open_store();
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_object_url *place = NULL;

        T_EQ(rows[i].url, stk_object_url_parse(rows[i].url, &place, NULL), 0);
        memset(&exchange, 0, sizeof exchange);
        exchange.store = store;
        exchange.object = place;
        exchange.method = STK_HTTP_GET;
        exchange.request.owner = &exchange;
        if (rows[i].status == 0) {
            T_EQ("keys",
                 stk_credential_provider_get(store->gcs.creds, &store->gcs.credentials, NULL), 0);
        }
        T_EQ(rows[i].url, stk_store_sign_request(&exchange.request, room), rows[i].status);
        if (rows[i].status < 0) {
            T_ERROR(rows[i].url, &exchange.request.error);
        }
        stk_object_url_free(place);
    }
    stk_store_close(store);
}

int main(void)
{
    static const char *const clean[] = {
        "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION",         "AWS_REGION",
        "AWS_SESSION_TOKEN",   "AWS_USE_DUALSTACK_ENDPOINT", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
        "AWS_ENDPOINT_URL",    "AWS_MAX_ATTEMPTS",           "AWS_REQUEST_PAYER"};

    for (size_t i = 0; i < STK_COUNT(clean); i++) {
        unsetenv(clean[i]);
    }
    test_each_host_has_its_rate();
    test_waits();
    test_turns();
    test_retry_after();
    test_hosts();
    test_unknown_zone();
    test_tries();
    test_conditions();
    test_range_checks();
    test_close();
    test_payload();
    test_no_endpoint();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
