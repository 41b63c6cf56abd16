/* Goal: responses are classified and reported correctly; properties that a server reports are
 * recorded; texts of servers are parsed as untrusted input.
 * Method: rows, without a server. Covers retry_policy.c and store.c. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CANARY "canary0secret0value"
#define SKEW_TESTED_S 100000000ll

static void test_file_mtimes(void)
{
    static const struct {
        const char *headers;
        uint32_t kind;
        uint64_t mtime_ns;
    } rows[] = {
        {"X-Amz-Meta-Mtime: 1600000000.000000001\n", STK_OBJECT_URL_S3, 1600000000000000001u},
        {"a: b\nx-amz-meta-mtime: 1600000000\n", STK_OBJECT_URL_S3, 1600000000000000000u},
        {"x-amz-meta-mtime: 1600000000.5\n", STK_OBJECT_URL_S3, 1600000000500000000u},
        {"x-amz-meta-mtime: 1600000000.1234567899\n", STK_OBJECT_URL_S3, 1600000000123456789u},
        {"x-goog-meta-mtime: 2020-09-13T12:26:40.25Z\n", STK_OBJECT_URL_GCS, 1600000000250000000u},
        {"x-ms-meta-mtime: 2020-09-13T12:26:40Z\n", STK_OBJECT_URL_AZURE, 1600000000000000000u},
        {"x-ms-meta-mtime: 1600000000\n", STK_OBJECT_URL_S3, 0},
        {"x-amz-meta-mtime: 1600000000\n", STK_OBJECT_URL_HTTP, 0},
        {"x-amz-meta-mtime: yesterday\n", STK_OBJECT_URL_S3, 0},
        {"x-amz-meta-mtime: T\n", STK_OBJECT_URL_S3, 0},
        {"x-amz-meta-mtime: -5\n", STK_OBJECT_URL_S3, 0},
        {"x-amz-meta-mtime: 99999999999999999999999\n", STK_OBJECT_URL_S3, 0},
        {"x-amz-meta-mtime: 9999999999999\n", STK_OBJECT_URL_S3, 0},
        {"x-amz-meta-mtime: \n", STK_OBJECT_URL_S3, 0},
    };
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        answer->headers_bytes = (uint32_t)strlen(rows[i].headers);
        memcpy(answer->headers, rows[i].headers, answer->headers_bytes);
        T_EQ(rows[i].headers, stk_store_file_mtime(answer, rows[i].kind), rows[i].mtime_ns);
    }
    stk_free(answer);
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
        bool good =
            stk_store_parse_content_range(stk_view_of_text(rows[i].text), &first, &last, &total);

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
        T_EQ(rows[i].text, stk_store_parse_time(rows[i].text, strlen(rows[i].text)),
             rows[i].time_s * 1000000000ull);
    }
}

struct judged {
    const char *name;
    uint32_t code;
    const char *headers, *text;
    uint32_t verdict;
    int status; /* of FAILED */
    const char *where;
};

#define BODY(code) "<Error><Code>" code "</Code><Message>m</Message></Error>"

#define ARCHIVED(code, more)                                                                       \
    "<Error><Code>" code "</Code><Message>m</Message>" more "<RequestId>R1</RequestId></Error>"
#define RESTORE "aws s3api restore-object --bucket bucket --key 'key' --restore-request "

static const struct judged judged[] = {
    {"good", 206, "", "", STK_RETRY_CLASS_SUCCESS, 0, NULL},
    {"slow down", 503, "", BODY("SlowDown"), STK_RETRY_CLASS_THROTTLED, 0, NULL},
    {"no body", 503, "", "", STK_RETRY_CLASS_THROTTLED, 0, NULL},
    {"too many", 429, "", "", STK_RETRY_CLASS_THROTTLED, 0, NULL},
    {"by its code", 400, "", BODY("RequestLimitExceeded"), STK_RETRY_CLASS_THROTTLED, 0, NULL},
    {"internal", 500, "", BODY("InternalError"), STK_RETRY_CLASS_TRANSIENT, 0, NULL},
    {"a gateway", 502, "", "<html>", STK_RETRY_CLASS_TRANSIENT, 0, NULL},
    {"slow client", 400, "", BODY("RequestTimeout"), STK_RETRY_CLASS_TRANSIENT, 0, NULL},
    {"expired", 400, "", BODY("ExpiredToken"), STK_RETRY_CLASS_IMMEDIATE, 0, NULL},
    {"another region", 301, "x-amz-bucket-region: eu-west-3\n", "", STK_RETRY_CLASS_IMMEDIATE, 0,
     NULL},
    {"a region in the body", 400, "",
     "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>",
     STK_RETRY_CLASS_IMMEDIATE, 0, NULL},
    {"a clock that is off", 403, "Date: Wed, 21 Oct 2015 07:28:00 GMT\n",
     BODY("RequestTimeTooSkewed"), STK_RETRY_CLASS_IMMEDIATE, 0, NULL},
    {"denied", 403, "", BODY("AccessDenied"), STK_RETRY_CLASS_PERMANENT, -EACCES,
     "AccessDenied: m"},
    {"denied, behind a declaration", 403, "",
     "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" BODY("AccessDenied"), STK_RETRY_CLASS_PERMANENT,
     -EACCES, "AccessDenied: m"},
    {"denied, with entities", 403, "",
     "<Error><Code>AccessDenied</Code><Message>a &quot;b&quot; &amp; c</Message></Error>",
     STK_RETRY_CLASS_PERMANENT, -EACCES, "AccessDenied: a \"b\" & c"},
    {"denied, cut", 403, "", "<Error><Code>AccessDenied</Code><Message>m</Message><Resource>/a&",
     STK_RETRY_CLASS_PERMANENT, -EACCES, "AccessDenied: m"},
    {"denied, in another root", 403, "",
     "<ErrorResponse xmlns='http://a/'>" BODY("AccessDenied") "</ErrorResponse>",
     STK_RETRY_CLASS_PERMANENT, -EACCES, "AccessDenied: m"},
    {"a document type", 403, "", "<!DOCTYPE Error>" BODY("SlowDown"), STK_RETRY_CLASS_PERMANENT,
     -EACCES, "HTTP 403"},
    {"archived", 403, "", ARCHIVED("InvalidObjectState", "<StorageClass>GLACIER</StorageClass>"),
     STK_RETRY_CLASS_PERMANENT, -EACCES, "m, storage class GLACIER, request R1"},
    {"archived deep, takes some 12 hours", 403, "",
     ARCHIVED("InvalidObjectState", "<StorageClass>DEEP_ARCHIVE</StorageClass>"),
     STK_RETRY_CLASS_PERMANENT, -EACCES, "m, storage class DEEP_ARCHIVE, request R1"},
    {"archived by tiering", 403, "",
     ARCHIVED("InvalidObjectState", "<StorageClass>INTELLIGENT_TIERING</StorageClass>"
                                    "<AccessTier>ARCHIVE_ACCESS</AccessTier>"),
     STK_RETRY_CLASS_PERMANENT, -EACCES,
     "m, storage class INTELLIGENT_TIERING, access tier ARCHIVE_ACCESS, request R1"},
    {"archived by tiering, takes some 12 hours", 403, "",
     ARCHIVED("ObjectNotInActiveTierError", "<AccessTier>DEEP_ARCHIVE_ACCESS</AccessTier>"),
     STK_RETRY_CLASS_PERMANENT, -EACCES, "m, access tier DEEP_ARCHIVE_ACCESS, request R1"},
    {"a customer's key", 400, "",
     "<Error><Code>InvalidRequest</Code><Message>stored using a form of Server Side Encryption."
     "</Message></Error>",
     STK_RETRY_CLASS_PERMANENT, -EACCES, "HTTP 400 InvalidRequest: stored using"},
    {"missing", 404, "x-amz-request-id: R1\n", "", STK_RETRY_CLASS_PERMANENT, -ENOENT,
     "request R1"},
    {"replaced", 412, "", "", STK_RETRY_CLASS_PERMANENT, STOKER_ERROR_CHANGED, "412"},
    {"shorter", 416, "", "", STK_RETRY_CLASS_PERMANENT, STOKER_ERROR_CHANGED, "416"},
    {"anything", 418, "", "", STK_RETRY_CLASS_PERMANENT, -EIO, "418"},
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
    static struct stk_http_response answer;
    static struct stk_operation exchange;
    struct stk_object_url *place = NULL;

    T_EQ("place", stk_object_url_parse("s3://bucket/key", &place, NULL), 0);
    T_EACH(judged, row, judged)
    {
        struct stk_store *store = open_store();
        struct stk_error_response refusal;
        char region[STK_STORE_REGION_BYTES];
        uint32_t verdict;

        memset(&exchange, 0, sizeof exchange);
        exchange.store = store;
        exchange.object = place;
        T_EQ(row->name, stk_credential_provider_get(store->creds, &store->credentials, NULL), 0);
        exchange.generation = store->credentials.generation;
        answer.code = row->code;
        answer.headers_bytes = (uint32_t)strlen(row->headers);
        memcpy(answer.headers, row->headers, answer.headers_bytes);
        snprintf(answer.text, sizeof answer.text, "%s", row->text);
        stk_error_response_read(&refusal, &answer);
        verdict = stk_store_classify(&exchange, &answer, &refusal);
        T_EQ(row->name, verdict, row->verdict);
        if (verdict == STK_RETRY_CLASS_IMMEDIATE) { /* but once only */
            T_EQ(row->name, stk_store_classify(&exchange, &answer, &refusal),
                 STK_RETRY_CLASS_PERMANENT);
        }
        if (verdict == STK_RETRY_CLASS_PERMANENT) {
            T_EQ(row->name, stk_store_fail(&exchange, &answer, &refusal), row->status);
            T_ERROR(row->name, &exchange.error);
            T_HAS(row->name, exchange.error.where, row->where);
            T_HAS(row->name, exchange.error.where, "s3://bucket/key");
        }
        if (strcmp(row->name, "expired") == 0) { /* others are fetched */
            T_EQ(row->name,
                 stk_credential_provider_try_get(store->creds, &store->credentials, NULL), -EAGAIN);
        }
        if (strncmp(row->name, "archived", 8) == 0) {
            T_STR(row->name, exchange.error.what, "the object is archived");
            T_HAS(row->name, exchange.error.advice,
                  strstr(row->name, "tiering") ? RESTORE "'{}'" : RESTORE "Days=7");
            T_HAS(row->name, exchange.error.advice,
                  strstr(row->name, "some 12") ? "some 12 hours" : "some 5 hours");
        } else if (strstr(row->name, "customer")) {
            T_HAS(row->name, exchange.error.advice, "STOKER_SSE_C_KEY_FILE");
        }
        T_EQ(row->name, atomic_load(&store->skew_s) < -SKEW_TESTED_S,
             strstr(row->name, "clock") != NULL);
        stk_store_get_region(store, "bucket", region);
        T_STR(row->name, region, strstr(row->name, "region") ? "eu-west-3" : "us-east-1");
        stk_store_close(store);
    }
    stk_object_url_free(place);
}

/* Named by the complete URL: including the parts that distinguish it, and no secret. */
static void test_named_errors(void)
{
    static const char *const names[][2] = {{"http://h/a?id=1&sig=" CANARY, "'http://h/a?id=1'"},
                                           {"s3://b/a?b#c", "'s3://b/a?b#c'"}};
    static struct stk_operation exchange;

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        struct stk_object_url *place = NULL;

        T_EQ("place", stk_object_url_parse(names[i][0], &place, NULL), 0);
        exchange = (struct stk_operation){.object = place};
        stk_store_fail(&exchange, &(struct stk_http_response){.code = 404},
                       &(struct stk_error_response){0});
        T_HAS("reported", exchange.error.where, names[i][1]);
        stk_object_url_free(place);
    }
}

/* The body of a 2xx response: an error only if its root says so. */
static void test_documents(void)
{
    static const struct document_row {
        const char *text, *code;
    } rows[] = {
        {"<Error><Code>InternalError</Code></Error>", "InternalError"},
        {" \r\n<?xml version='1.0'?> <Error><Code>SlowDown</Code></Error>", "SlowDown"},
        {"<?xml version='1.0'?>\n<Error/>", "Error"},
        {"<Error><Code>SlowDown</Code", "Error"},
        {"<Error xmlns='http://a/'><Code>SlowDown</Code></Error>", "SlowDown"},
        {"<CopyObjectResult><Code>SlowDown</Code></CopyObjectResult>", "before"},
        {"<A><Error><Code>SlowDown</Code></Error></A>", "before"},
        {"", "before"},
        {"OK", "before"},
    };

    T_EACH(document_row, row, rows)
    {
        struct stk_error_response response = {.code = ""};

        stk_error_response_parse(&response, stk_view_of_text(row->text));
        T_STR(row->text, response.code, strcmp(row->code, "before") == 0 ? "" : row->code);
    }
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
    test_file_mtimes();
    test_ranges();
    test_times();
    test_judging();
    test_documents();
    test_named_errors();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
