/* Goal: answers are judged and told for what they are, and what a server says about itself is
 * learned; texts of servers are read without trust. Method: rows, without a server. With one they
 * are tested in src/route/route_test.c. Covers verdict.c,
 * store.c and address.c. */
#include "store/shared.h"

#include "base/mem.h"
#include "io/pool.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CANARY "canary0secret0value"

static struct stk_view view_of(const char *text)
{
    return (struct stk_view){(const uint8_t *)text, strlen(text)};
}

static void test_ranges(void)
{
    static const struct {
        const char *text;
        bool good;
        uint64_t first, last, total;
    } rows[] = {
        {"bytes 0-0/1", true, 0, 0, 1},
        {"Bytes 5-9/*", true, 5, 9, UINT64_MAX},
        {"bytes 0-18446744073709551614/18446744073709551615", true, 0, UINT64_MAX - 1, UINT64_MAX},
        {"bytes 0-18446744073709551616/18446744073709551617", false, 0, 0, 0},
        {"bytes 9-5/10", false, 0, 0, 0},
        {"bytes 0-10/10", false, 0, 0, 0},
        {"bytes */10", false, 0, 0, 0},
        {"bytes 0-1", false, 0, 0, 0},
        {"bytes 0-1/", false, 0, 0, 0},
        {"bytes 0-1/2x", false, 0, 0, 0},
        {"bytes -1/2", false, 0, 0, 0},
        {"octets 0-1/2", false, 0, 0, 0},
        {"", false, 0, 0, 0},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        uint64_t first = 0, last = 0, total = 0;
        bool good = stk_store_content_range(view_of(rows[i].text), &first, &last, &total);

        T_EQ(rows[i].text, good, rows[i].good);
        T_TRUE(rows[i].text,
               !good || (first == rows[i].first && last == rows[i].last && total == rows[i].total));
    }
}

static void test_times(void)
{
    static const struct {
        const char *text;
        uint64_t time_s;
    } rows[] = {
        {"Wed, 21 Oct 2015 07:28:00 GMT", 1445412480},
        {"2015-10-21T07:28:00.000Z", 1445412480},
        {"yesterday", 0},
        {"", 0},
        {"Wed, 21 Oct 2015 07:28:00 GMT, and so on, and so on, and so on, and so on", 0},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        T_EQ(rows[i].text, stk_store_time(rows[i].text, strlen(rows[i].text)),
             rows[i].time_s * 1000000000ull);
    }
}

struct judged {
    const char *name;
    uint32_t code;
    const char *headers, *text;
    uint32_t verdict;
    int status; /* of FAILED */
    const char *told;
};

#define BODY(code) "<Error><Code>" code "</Code><Message>m</Message></Error>"

static const struct judged judged[] = {
    {"good", 206, "", "", STK_VERDICT_GOOD, 0, NULL},
    {"slow down", 503, "", BODY("SlowDown"), STK_VERDICT_THROTTLED, 0, NULL},
    {"no body", 503, "", "", STK_VERDICT_THROTTLED, 0, NULL},
    {"too many", 429, "", "", STK_VERDICT_THROTTLED, 0, NULL},
    {"by its code", 400, "", BODY("RequestLimitExceeded"), STK_VERDICT_THROTTLED, 0, NULL},
    {"internal", 500, "", BODY("InternalError"), STK_VERDICT_TRANSIENT, 0, NULL},
    {"a gateway", 502, "", "<html>", STK_VERDICT_TRANSIENT, 0, NULL},
    {"slow client", 400, "", BODY("RequestTimeout"), STK_VERDICT_TRANSIENT, 0, NULL},
    {"expired", 400, "", BODY("ExpiredToken"), STK_VERDICT_AGAIN, 0, NULL},
    {"another region", 301, "x-amz-bucket-region: eu-west-3\n", "", STK_VERDICT_AGAIN, 0, NULL},
    {"a region in the body", 400, "",
     "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>",
     STK_VERDICT_AGAIN, 0, NULL},
    {"a clock that is off", 403, "Date: Wed, 21 Oct 2015 07:28:00 GMT\n",
     BODY("RequestTimeTooSkewed"), STK_VERDICT_AGAIN, 0, NULL},
    {"denied", 403, "", BODY("AccessDenied"), STK_VERDICT_FAILED, -EACCES, "AccessDenied: m"},
    {"archived", 403, "", BODY("InvalidObjectState"), STK_VERDICT_FAILED, -EACCES, "m"},
    {"missing", 404, "x-amz-request-id: R1\n", "", STK_VERDICT_FAILED, -ENOENT, "request R1"},
    {"replaced", 412, "", "", STK_VERDICT_FAILED, STOKER_ERROR_CHANGED, "412"},
    {"shorter", 416, "", "", STK_VERDICT_FAILED, STOKER_ERROR_CHANGED, "416"},
    {"anything", 418, "", "", STK_VERDICT_FAILED, -EIO, "418"},
};

static struct stk_store *open_store(void)
{
    struct stk_store_options options = {.timeout_ms = 1000, .seed = 1};
    struct stk_store *store = NULL;

    T_EQ("open", stk_store_open(&store, &options, NULL), 0);
    return store;
}

static void test_judging(void)
{
    static struct stk_http_answer answer;
    static struct stk_exchange exchange;
    struct stk_place *place = NULL;

    T_EQ("place", stk_place_parse("s3://bucket/key", &place, NULL), 0);
    T_EACH(judged, row, judged)
    {
        struct stk_store *store = open_store();
        struct stk_refusal refusal;
        char region[STK_STORE_REGION_BYTES];
        uint32_t verdict;

        memset(&exchange, 0, sizeof exchange);
        exchange.store = store;
        exchange.place = place;
        answer.code = row->code;
        answer.headers_bytes = (uint32_t)strlen(row->headers);
        memcpy(answer.headers, row->headers, answer.headers_bytes);
        snprintf(answer.text, sizeof answer.text, "%s", row->text);
        stk_refusal_read(&refusal, &answer);
        verdict = stk_store_judge(&exchange, &answer, &refusal);
        T_EQ(row->name, verdict, row->verdict);
        if (verdict == STK_VERDICT_AGAIN) { /* but once only */
            T_EQ(row->name, stk_store_judge(&exchange, &answer, &refusal), STK_VERDICT_FAILED);
        }
        if (verdict == STK_VERDICT_FAILED) {
            T_EQ(row->name, stk_store_fail(&exchange, &answer, &refusal), row->status);
            T_ERROR(row->name, &exchange.error);
            T_HAS(row->name, exchange.error.where, row->told);
            T_HAS(row->name, exchange.error.where, "s3://bucket/key");
        }
        stk_store_region(store, "bucket", region);
        T_STR(row->name, region, strstr(row->name, "region") ? "eu-west-3" : "us-east-1");
        stk_store_close(store);
    }
    stk_place_free(place);
}

static void test_waits(void)
{
    static struct stk_http_answer answer;
    struct stk_store *store = open_store();
    uint64_t most = 0;

    for (uint32_t i = 0; i < 1000; i++) {
        uint64_t wait = stk_store_backoff(store, STK_VERDICT_TRANSIENT, 3, &answer);

        most = stk_max(most, wait);
        T_TRUE("full jitter", wait <= 200);
        T_TRUE("bounded",
               stk_store_backoff(store, STK_VERDICT_THROTTLED, 4000000, &answer) <= 20000);
    }
    T_TRUE("spread", most > 150);
    answer.headers_bytes = (uint32_t)snprintf(answer.headers, 64, "Retry-After: 7\n");
    T_TRUE("as told", stk_store_backoff(store, STK_VERDICT_THROTTLED, 1, &answer) >= 7000);
    answer.headers_bytes = (uint32_t)snprintf(answer.headers, 64, "Retry-After: 99999999999\n");
    T_TRUE("within reason", stk_store_backoff(store, STK_VERDICT_THROTTLED, 1, &answer) <= 61000);
    for (uint32_t i = 0; i < 100; i++) {
        T_TRUE("tokens", stk_store_take_tokens(store, 5));
    }
    T_TRUE("no more", !stk_store_take_tokens(store, 5));
    stk_store_give_tokens(store, 5);
    T_TRUE("one more", stk_store_take_tokens(store, 5));
    for (uint32_t i = 0; i < 2 * STK_STORE_BUCKETS_MAX; i++) {
        char bucket[32];

        snprintf(bucket, sizeof bucket, "b%u", i);
        stk_store_learn_region(store, bucket, bucket);
    }
    T_EQ("buckets are bounded", store->locked.bucket_count, STK_STORE_BUCKETS_MAX);
    stk_store_close(store);
}

/* Where requests for a bucket go. */
static void test_hosts(void)
{
    static const struct {
        const char *name, *url, *endpoint, *fips, *sent;
    } rows[] = {
        {"Amazon's", "s3://my-bucket/a/b c", NULL, NULL,
         "https://my-bucket.s3.eu-west-1.amazonaws.com/a/b%20c"},
        {"a dot", "s3://my.bucket/k", NULL, NULL, "https://s3.eu-west-1.amazonaws.com/my.bucket/k"},
        {"fips", "s3://my-bucket/k", NULL, "true",
         "https://my-bucket.s3-fips.eu-west-1.amazonaws.com/k"},
        {"one's own", "s3://my-bucket/k//../x", "http://host:80/base/", NULL,
         "http://host/base/my-bucket/k//../x"},
        {"another port", "s3://my-bucket/k", "https://host:8443", NULL,
         "https://host:8443/my-bucket/k"},
    };

    setenv("AWS_REGION", "eu-west-1", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        static struct stk_exchange exchange;
        static char room[STK_HTTP_ROOM_BYTES];
        struct stk_place *place = NULL;
        struct stk_store *store;

        setenv("AWS_ENDPOINT_URL", rows[i].endpoint ? rows[i].endpoint : "", 1);
        setenv("AWS_USE_FIPS_ENDPOINT", rows[i].fips ? rows[i].fips : "", 1);
        store = open_store();
        memset(&exchange, 0, sizeof exchange);
        T_EQ(rows[i].name, stk_place_parse(rows[i].url, &place, NULL), 0);
        exchange.store = store;
        exchange.place = place;
        exchange.method = STK_HTTP_GET;
        exchange.request.owner = &exchange;
        T_EQ(rows[i].name, stk_creds_get(store->creds, &store->credentials, NULL), 0);
        T_EQ(rows[i].name, stk_store_prepare(&exchange.request, room), 0);
        T_STR(rows[i].name, exchange.request.url, rows[i].sent);
        T_TRUE(rows[i].name, !memmem(room, sizeof room, CANARY, strlen(CANARY)));
        T_EQ(rows[i].name, exchange.request.header_count, 3);
        T_TRUE(rows[i].name, strncmp(exchange.headers[2],
                                     "Authorization: AWS4-HMAC-SHA256 "
                                     "Credential=AKID/",
                                     48) == 0);
        stk_place_free(place);
        stk_store_close(store);
    }
    unsetenv("AWS_ENDPOINT_URL");
    unsetenv("AWS_USE_FIPS_ENDPOINT");
    unsetenv("AWS_REGION");
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
    test_ranges();
    test_times();
    test_judging();
    test_waits();
    test_hosts();
    setenv("AWS_ENDPOINT_URL", "no url", 1);
    T_EQ("no endpoint",
         stk_store_open(&(struct stk_store *){NULL}, &(struct stk_store_options){.timeout_ms = 1},
                        NULL),
         STOKER_ERROR_ARGUMENT);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
