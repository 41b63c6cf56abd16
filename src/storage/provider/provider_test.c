/* Goal: endpoints follow from variables and files as in the services' own libraries, the source of
 * a setting is reported, and a bad URL is refused without being repeated in the error.
 * Method: rows of variables (endpoint.c). Requests to Google and Azure follow their documentation,
 * and a request that does not fit its buffer is not built (provider.c, gcs_request.c,
 * azure_request.c, huggingface_request.c). python/tests/test_providers.py and
 * test_huggingface_hub.py test that servers accept them. */
#include "storage/provider/provider.h"

#include "base/mem.h"
#include "storage/provider/huggingface_request.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANARY "canary0secret0value"
#define SETTINGS_MAX 4
#define SHARED_KEY "mSwafpqdHeeOsOjGKNJ9doCP9HzFVScmE6W/AF/iG5E="

static char folder[] = "/tmp/stoker-dialect-XXXXXX";

static void clear_environment(void)
{
    clearenv();
    setenv("HOME", folder, 1);
    setenv("PATH", "/usr/bin:/bin", 1);
}

/* clang-format off */
static const struct row {
    const char *name;
    uint32_t service;
    const char *settings[SETTINGS_MAX]; /* "NAME=value" */
    const char *endpoint, *from;        /* NULL: refused */
    const char *region, *account;
} rows[] = {
    {"Amazon", STK_CREDS_AWS, {NULL}, "", "", "us-east-1", ""},
    {"an endpoint", STK_CREDS_AWS, {"AWS_ENDPOINT_URL=http://h:1/"}, "http://h:1",
     "AWS_ENDPOINT_URL", "us-east-1", ""},
    {"the service's goes first", STK_CREDS_AWS,
     {"AWS_ENDPOINT_URL=http://h:1", "AWS_ENDPOINT_URL_S3=https://s3.h", "AWS_REGION=r1",
      "AWS_DEFAULT_REGION=r2"},
     "https://s3.h", "AWS_ENDPOINT_URL_S3", "r1", ""},
    {"another service's", STK_CREDS_AWS,
     {"AWS_ENDPOINT_URL_STS=https://sts.h", "AWS_DEFAULT_REGION=r2"}, "", "", "r2", ""},
    {"not to be read", STK_CREDS_AWS,
     {"AWS_ENDPOINT_URL=http://h:1", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true"}, "", "",
     "us-east-1", ""},
    {"no URL", STK_CREDS_AWS, {"AWS_ENDPOINT_URL=" CANARY}, NULL, NULL, NULL, NULL},
    {"a password", STK_CREDS_AWS, {"AWS_ENDPOINT_URL=http://u:" CANARY "@h"}, NULL, NULL, NULL,
     NULL},
    {"no host", STK_CREDS_AWS, {"AWS_ENDPOINT_URL=http:///" CANARY}, NULL, NULL, NULL, NULL},
    {"slashes at its end", STK_CREDS_AWS, {"AWS_ENDPOINT_URL=http://h:1///"}, "http://h:1",
     "AWS_ENDPOINT_URL", "us-east-1", ""},
    {"Google", STK_CREDS_GOOGLE, {NULL}, "https://storage.googleapis.com", "", "", ""},
    {"an emulator", STK_CREDS_GOOGLE, {"STORAGE_EMULATOR_HOST=http://127.0.0.1:9/"},
     "http://127.0.0.1:9", "STORAGE_EMULATOR_HOST", "", ""},
    {"without its scheme", STK_CREDS_GOOGLE, {"STORAGE_EMULATOR_HOST=localhost:9"},
     "http://localhost:9", "STORAGE_EMULATOR_HOST", "", ""},
    {"Azure, nothing", STK_CREDS_AZURE, {NULL}, "", "", "", ""},
    {"an account", STK_CREDS_AZURE, {"AZURE_STORAGE_ACCOUNT=acc"},
     "https://acc.blob.core.windows.net", "AZURE_STORAGE_ACCOUNT", "", "acc"},
    {"its other name", STK_CREDS_AZURE, {"AZURE_STORAGE_ACCOUNT_NAME=acc"},
     "https://acc.blob.core.windows.net", "AZURE_STORAGE_ACCOUNT_NAME", "", "acc"},
    {"an endpoint beside it", STK_CREDS_AZURE,
     {"AZURE_STORAGE_ACCOUNT=acc", "AZURE_STORAGE_ENDPOINT=http://127.0.0.1:1/acc"},
     "http://127.0.0.1:1/acc", "AZURE_STORAGE_ENDPOINT", "", "acc"},
    {"a connection string", STK_CREDS_AZURE,
     {"AZURE_STORAGE_CONNECTION_STRING=DefaultEndpointsProtocol=http;AccountName=a2;AccountKey="
      CANARY "==;EndpointSuffix=core.chinacloudapi.cn",
      "AZURE_STORAGE_ACCOUNT=acc"},
     "http://a2.blob.core.chinacloudapi.cn", "AZURE_STORAGE_CONNECTION_STRING", "", "a2"},
    {"with its endpoint", STK_CREDS_AZURE,
     {"AZURE_STORAGE_CONNECTION_STRING=BlobEndpoint=http://127.0.0.1:1/dev;AccountName=dev;"
      "AccountKey=" CANARY},
     "http://127.0.0.1:1/dev", "AZURE_STORAGE_CONNECTION_STRING", "", "dev"},
    {"Hugging Face", STK_CREDS_HF, {NULL}, "https://huggingface.co", "", "", ""},
    {"a mirror", STK_CREDS_HF, {"HF_ENDPOINT=https://mirror.h"}, "https://mirror.h",
     "HF_ENDPOINT", "", ""},
};
/* clang-format on */

static void test_sites(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_endpoint site;
        struct stoker_error error = {0};

        clear_environment();
        for (size_t i = 0; i < SETTINGS_MAX && row->settings[i]; i++) {
            char text[512], *value;
            snprintf(text, sizeof text, "%s", row->settings[i]);
            value = strchr(text, '=');
            *value = 0;
            setenv(text, value + 1, 1);
        }
        int status = stk_endpoint_find(row->service, &site, &error);
        T_TRUE(row->name, !memmem(&site, sizeof site, CANARY, strlen(CANARY)));
        if (!row->endpoint) {
            T_EQ(row->name, status, STOKER_ERROR_ARGUMENT);
            T_ERROR(row->name, &error);
            T_TRUE(row->name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
            continue;
        }
        T_EQ(row->name, status, 0);
        T_STR(row->name, site.endpoint, row->endpoint);
        T_STR(row->name, site.endpoint_source, row->from);
        T_STR(row->name, site.region, row->region);
        T_STR(row->name, site.account, row->account);
    }
}

/* A region that has no room is no other region. */
static void test_long_region(void)
{
    char region[sizeof((struct stk_endpoint *)0)->region + 1];
    struct stoker_error error = {0};
    struct stk_endpoint site;

    clear_environment();
    memset(region, 'r', sizeof region - 1);
    region[sizeof region - 1] = '\0';
    setenv("AWS_REGION", region, 1);
    T_EQ("a long region", stk_endpoint_find(STK_CREDS_AWS, &site, &error), STOKER_ERROR_LIMIT);
    T_ERROR("a long region", &error);
    region[sizeof region - 2] = '\0';
    setenv("AWS_REGION", region, 1);
    T_EQ("the longest", stk_endpoint_find(STK_CREDS_AWS, &site, &error), 0);
    T_STR("the longest", site.region, region);
}

/* An endpoint that has no room is no other endpoint. */
static void test_long_endpoint(void)
{
    static const struct row {
        const char *variable;
        uint32_t service;
    } variables[] = {{"AZURE_STORAGE_ENDPOINT", STK_CREDS_AZURE},
                     {"STORAGE_EMULATOR_HOST", STK_CREDS_GOOGLE},
                     {"HF_ENDPOINT", STK_CREDS_HF}};

    T_EACH(row, row, variables)
    {
        char value[sizeof((struct stk_endpoint *)0)->endpoint - 6] = "http://";
        struct stoker_error error = {0};
        struct stk_endpoint site;

        clear_environment();
        memset(value + 7, 'h', sizeof value - 8);
        value[sizeof value - 1] = '\0';
        setenv(row->variable, value, 1);
        T_EQ(row->variable, stk_endpoint_find(row->service, &site, &error), STOKER_ERROR_LIMIT);
        T_ERROR(row->variable, &error);
        T_HAS(row->variable, error.where, row->variable);
        value[sizeof value - 2] = '\0';
        setenv(row->variable, value, 1);
        T_EQ(row->variable, stk_endpoint_find(row->service, &site, &error), 0);
        T_STR(row->variable, site.endpoint, value);
    }
    clear_environment();
}

/* A value of Azure that has no room is an error: without it, another account or host would be used.
 */
static void test_long_azure(void)
{
    static const struct row {
        const char *name, *before; /* the value is "before", and 'v' up to value_bytes */
        size_t value_bytes;
    } rows_long[] = {
        {"AZURE_STORAGE_ACCOUNT", "", 63},
        {"AZURE_STORAGE_ACCOUNT_NAME", "", 63},
        {"AZURE_STORAGE_CONNECTION_STRING", "AccountName=", 12 + 63},
        {"AZURE_STORAGE_CONNECTION_STRING", "BlobEndpoint=https://", 13 + 511},
        {"AZURE_STORAGE_CONNECTION_STRING", "EndpointSuffix=", 15 + 255},
    };

    T_EACH(row, row, rows_long)
    {
        const char *name = row->before[0] ? row->before : row->name;
        char value[640];
        struct stoker_error error = {0};
        struct stk_endpoint site;

        clear_environment();
        setenv(row->before[0] ? "AZURE_STORAGE_ACCOUNT" : "UNUSED", "another", 1);
        snprintf(value, sizeof value, "%s", row->before);
        memset(value + strlen(row->before), 'v', sizeof value - strlen(row->before));
        value[row->value_bytes + 1] = '\0';
        setenv(row->name, value, 1);
        T_EQ(name, stk_endpoint_find(STK_CREDS_AZURE, &site, &error), STOKER_ERROR_LIMIT);
        T_ERROR(name, &error);
        T_HAS(name, error.where, row->name);
        value[row->value_bytes] = '\0';
        setenv(row->name, value, 1);
        T_EQ(name, stk_endpoint_find(STK_CREDS_AZURE, &site, &error), 0);
        T_HAS(name, site.endpoint, "vvv");
    }
    clear_environment();
}

/* From a profile, with file and line. */
static void test_profile(void)
{
    struct stk_endpoint site;
    char path[512], want[600];
    FILE *file;

    clear_environment();
    snprintf(path, sizeof path, "%s/config", folder);
    file = fopen(path, "w");
    T_TRUE("file", file != NULL);
    fputs("# of a team\n[profile p]\nregion = eu-west-3\nservices = ours\n"
          "endpoint_url = http://all\n[services ours]\ns3 =\n  endpoint_url = http://s3.here\n"
          "[profile q]\nendpoint_url = http://all\n",
          file);
    fclose(file);
    setenv("AWS_CONFIG_FILE", path, 1);
    setenv("AWS_PROFILE", "p", 1);
    T_EQ("p", stk_endpoint_find(STK_CREDS_AWS, &site, NULL), 0);
    T_STR("p", site.endpoint, "http://s3.here");
    snprintf(want, sizeof want, "[services ours] of %s", path);
    T_STR("p", site.endpoint_source, want);
    T_STR("p", site.region, "eu-west-3");
    snprintf(want, sizeof want, "%s:3", path);
    T_STR("p", site.region_source, want);
    setenv("AWS_PROFILE", "q", 1);
    T_EQ("q", stk_endpoint_find(STK_CREDS_AWS, &site, NULL), 0);
    T_STR("q", site.endpoint, "http://all");
    snprintf(want, sizeof want, "%s:10", path);
    T_STR("q", site.endpoint_source, want);
    unlink(path);
}

/* ---- requests ---- */

static const struct stk_sigv4_pair headers[] = {{"Range", "bytes=0-9"}, {"If-Match", "\"e\""}};
static const struct stk_sigv4_pair listing[] = {{"comp", "list"}, {"prefix", "a b/"}};

/* clang-format off */
static const struct request {
    const char *name;
    uint32_t service;
    const char *endpoint;
    struct stk_credentials who;
    const char *key;
    bool lists;
    const char *url, *line; /* the last line; url NULL: refused */
} requests[] = {
    {"Google, anonymous", STK_CREDS_GOOGLE, "https://g", {.kind = STK_CREDS_ANONYMOUS},
     "a b/\xc3\xbc+", false, "https://g/bucket/a%20b/%C3%BC%2B", "Accept-Encoding: gzip"},
    {"Google, a token", STK_CREDS_GOOGLE, "https://g/base",
     {.kind = STK_CREDS_BEARER, .token = "T"}, "k", false, "https://g/base/bucket/k",
     "Authorization: Bearer T"},
    {"Google, a listing", STK_CREDS_GOOGLE, "http://127.0.0.1:1",
     {.kind = STK_CREDS_BEARER, .token = "T"}, "", true,
     "http://127.0.0.1:1/bucket/?comp=list&prefix=a%20b%2F", "Authorization: Bearer T"},
    {"a token in plain text", STK_CREDS_GOOGLE, "http://g", {.kind = STK_CREDS_BEARER}, "k", false,
     NULL, NULL},
    {"Azure, anonymous", STK_CREDS_AZURE, "https://a", {.kind = STK_CREDS_ANONYMOUS}, "k/l", false,
     "https://a/bucket/k/l", "x-ms-date: Wed, 21 Oct 2015 07:28:00 GMT"},
    {"Azure, a SAS", STK_CREDS_AZURE, "https://a", {.kind = STK_CREDS_SAS, .token = "sig=a%2B"},
     "k", false, "https://a/bucket/k?sig=a%2B", "x-ms-date: Wed, 21 Oct 2015 07:28:00 GMT"},
    {"Azure, a listing by SAS", STK_CREDS_AZURE, "https://a",
     {.kind = STK_CREDS_SAS, .token = "sig=a%2B"}, "", true,
     "https://a/bucket?comp=list&prefix=a%20b%2F&sig=a%2B",
     "x-ms-date: Wed, 21 Oct 2015 07:28:00 GMT"},
    {"Azure, a token", STK_CREDS_AZURE, "https://a", {.kind = STK_CREDS_BEARER, .token = "T"},
     "k", false, "https://a/bucket/k", "Authorization: Bearer T"},
    {"a SAS in plain text", STK_CREDS_AZURE, "http://a", {.kind = STK_CREDS_SAS, .token = "x"}, "k",
     false, NULL, NULL},
    {"the hub", STK_CREDS_HF, "https://h", {.kind = STK_CREDS_BEARER, .token = "T"}, "a b/c",
     false, "https://h/bucket/x/resolve/main/a%20b/c", "Authorization: Bearer T"},
    {"the hub's listing", STK_CREDS_HF, "https://h", {.kind = STK_CREDS_ANONYMOUS}, "a/", true,
     "https://h/api/models/bucket/x/tree/main/a", ""},
    {"the hub in plain text", STK_CREDS_HF, "http://h", {.kind = STK_CREDS_BEARER}, "k", false,
     NULL, NULL},
    {"no account", STK_CREDS_AZURE, "", {.kind = STK_CREDS_ANONYMOUS}, "k", false, NULL, NULL},
    {"a key that is none", STK_CREDS_AZURE, "https://a",
     {.kind = STK_CREDS_KEYS, .access_key = "acc", .secret = CANARY "!"}, "k", false, NULL, NULL},
};
/* clang-format on */

/* A shared key: HMAC-SHA256 of the words that the documentation lists, worked out by hand with
 * openssl. */
static void test_shared_key(void)
{
    static char room[4096];
    struct stk_credentials who = {
        .kind = STK_CREDS_KEYS, .access_key = "acc", .secret = "a2V5LW9mLWFjY291bnQ="};
    struct stk_endpoint site = {.endpoint = "https://acc.blob.core.windows.net"};
    struct stk_provider_request request = {.service = STK_CREDS_AZURE,
                                           .method = "GET",
                                           .site = &site,
                                           .credentials = &who,
                                           .bucket = "bucket",
                                           .key = "a b",
                                           .headers = headers,
                                           .header_count = STK_COUNT(headers),
                                           .time_s = 1445412480,
                                           .buffer = room,
                                           .buffer_bytes = sizeof room};

    T_EQ("made", stk_provider_request_build(&request, NULL), 0);
    T_STR("url", request.url, "https://acc.blob.core.windows.net/bucket/a%20b");
    T_EQ("lines", request.headers_out_count, 3);
    T_STR("line", request.headers_out[2], "Authorization: SharedKey acc:" SHARED_KEY);
}

/* The same with all signed headers, in arbitrary order, by a key of 64 bytes, as Azure's are;
 * computed with Python's hmac. */
static void test_shared_key_of_a_block(void)
{
    static const struct stk_sigv4_pair query[] = {
        {"timeout", "9"}, {"comp", "block"}, {"blockid", "MQ=="}};
    static const struct stk_sigv4_pair more[] = {
        {"x-ms-z", "1"},         {"If-None-Match", "*"}, {"x-ms-blob-type", "BlockBlob"},
        {"Content-MD5", "bWQ1"}, {"x-ms-a", "2"},        {"Content-Type", "text/plain"}};
    static char room[4096];
    struct stk_credentials who = {.kind = STK_CREDS_KEYS,
                                  .access_key = "acc",
                                  .secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJy"
                                            "gpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="};
    struct stk_endpoint site = {.endpoint = "https://acc.blob.core.windows.net"};
    struct stk_provider_request request = {.service = STK_CREDS_AZURE,
                                           .method = "PUT",
                                           .site = &site,
                                           .credentials = &who,
                                           .bucket = "bucket",
                                           .key = "k",
                                           .query = query,
                                           .query_count = STK_COUNT(query),
                                           .headers = more,
                                           .header_count = STK_COUNT(more),
                                           .body = {(const uint8_t *)"abc", 3},
                                           .time_s = 1445412480,
                                           .buffer = room,
                                           .buffer_bytes = sizeof room};

    T_EQ("made", stk_provider_request_build(&request, NULL), 0);
    T_EQ("lines", request.headers_out_count, 3);
    T_STR("line", request.headers_out[2],
          "Authorization: SharedKey acc:jqrFfZ/DU22Bhu4X4shfdJc5FQKWmSf7mCUoh1Rooig=");
}

static bool has_line(const struct stk_provider_request *request, const char *part)
{
    for (uint32_t i = 0; i < request->headers_out_count; i++) {
        if (strstr(request->headers_out[i], part)) {
            return true;
        }
    }
    return false;
}

/* Google with HMAC keys: a body is verified by its hash if there is no TLS; the project that pays
 * is a header, and no other header is sent. */
static void test_google_keys(void)
{
    static const struct way {
        const char *endpoint, *payload, *payer;
        bool paid;
        struct stk_credentials who;
    } ways[] = {
        {"https://g",
         "x-amz-content-sha256: UNSIGNED-PAYLOAD",
         "me",
         true,
         {.kind = STK_CREDS_KEYS, .access_key = "GOOG1E", .secret = "s", .generation = 1}},
        {"https://g",
         "x-amz-content-sha256: UNSIGNED-PAYLOAD",
         "",
         true,
         {.kind = STK_CREDS_KEYS,
          .access_key = "GOOG1E",
          .secret = "s",
          .generation = 1,
          .project = "me"}},
        {"http://g",
         "x-amz-content-sha256: "
         "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
         "me\r\nX-Other: 1",
         false,
         {.kind = STK_CREDS_KEYS, .access_key = "GOOG1E", .secret = "other", .generation = 2}},
    };

    struct stk_sigv4_key_cache cache = {0};

    T_EACH(way, row, ways)
    {
        static char room[4096];
        char signed_by[512];
        struct stk_endpoint site = {.account = ""};
        struct stk_provider_request request = {.service = STK_CREDS_GOOGLE,
                                               .method = "PUT",
                                               .site = &site,
                                               .credentials = &row->who,
                                               .bucket = "bucket",
                                               .key = "k",
                                               .body = {(const uint8_t *)"abc", 3},
                                               .time_s = 1445412480,
                                               .cache = &cache,
                                               .buffer = room,
                                               .buffer_bytes = sizeof room};

        snprintf(site.endpoint, sizeof site.endpoint, "%s", row->endpoint);
        setenv("GS_USER_PROJECT", row->payer, 1);
        T_EQ(row->endpoint, stk_provider_request_build(&request, NULL), 0);
        T_TRUE(row->endpoint, has_line(&request, row->payload));
        T_TRUE(row->endpoint,
               has_line(&request, "Credential=GOOG1E/20151021/auto/s3/aws4_request"));
        T_EQ(row->endpoint, has_line(&request, "x-goog-user-project: me"), row->paid);
        snprintf(signed_by, sizeof signed_by, "%s",
                 request.headers_out[request.headers_out_count - 1]);
        request.cache = NULL; /* the cached key belongs to these credentials */
        T_EQ(row->endpoint, stk_provider_request_build(&request, NULL), 0);
        T_STR(row->endpoint, signed_by, request.headers_out[request.headers_out_count - 1]);
    }
    unsetenv("GS_USER_PROJECT");
}

/* The credentials select the cloud, unless an endpoint is named. */
static void test_google_universe(void)
{
    static const struct {
        const char *from, *universe, *url;
    } ways[] = {
        {"", "", "https://storage.googleapis.com/bucket/k"},
        {"", "x.example", "https://storage.x.example/bucket/k"},
        {"STORAGE_EMULATOR_HOST", "x.example", "https://storage.googleapis.com/bucket/k"},
    };

    for (size_t i = 0; i < STK_COUNT(ways); i++) {
        char room[256];
        struct stk_credentials who = {.kind = STK_CREDS_BEARER, .token = "t"};
        struct stk_endpoint site = {.endpoint = "https://storage.googleapis.com"};
        struct stk_provider_request request = {.service = STK_CREDS_GOOGLE,
                                               .method = "GET",
                                               .site = &site,
                                               .credentials = &who,
                                               .bucket = "bucket",
                                               .key = "k",
                                               .buffer = room,
                                               .buffer_bytes = sizeof room};

        snprintf(site.endpoint_source, sizeof site.endpoint_source, "%s", ways[i].from);
        snprintf(who.universe, sizeof who.universe, "%s", ways[i].universe);
        T_EQ(ways[i].url, stk_provider_request_build(&request, NULL), 0);
        T_STR(ways[i].url, request.url, ways[i].url);
    }
}

/* A revision is one part of a path, whatever it is called. */
static void test_revision(void)
{
    static char room[4096];
    struct stk_credentials who = {.kind = STK_CREDS_ANONYMOUS};
    struct stk_endpoint site = {.endpoint = "https://h"};
    struct stk_provider_request request = {.service = STK_CREDS_HF,
                                           .method = "GET",
                                           .site = &site,
                                           .credentials = &who,
                                           .bucket = "datasets/a/b@refs/pr/1",
                                           .key = "k",
                                           .buffer = room,
                                           .buffer_bytes = sizeof room};

    T_EQ("revision", stk_provider_request_build(&request, NULL), 0);
    T_STR("revision", request.url, "https://h/datasets/a/b/resolve/refs%2Fpr%2F1/k");
}

/* Invalid keys, and buffers that are too small: nothing is sent unsigned. */
static void test_unsigned(void)
{
    static char room[1 << 15], huge[9000], key[sizeof((struct stk_credentials *)0)->secret];
    const struct stk_sigv4_pair many[] = {{"x-ms-meta-a", huge}};
    const char *const keys[] = {"", "=", "a", key};
    struct stk_credentials who = {.kind = STK_CREDS_KEYS, .access_key = "acc"};
    struct stk_endpoint site = {.endpoint = "https://a"};
    struct stk_provider_request request = {.service = STK_CREDS_AZURE,
                                           .method = "GET",
                                           .site = &site,
                                           .credentials = &who,
                                           .bucket = "bucket",
                                           .key = "k",
                                           .buffer = room,
                                           .buffer_bytes = sizeof room};

    memset(huge, 'x', sizeof huge - 1);
    memset(key, 'A', 260); /* of 195 bytes: Azure's have 64 */
    for (size_t i = 0; i < STK_COUNT(keys); i++) {
        struct stoker_error error = {0};

        snprintf(who.secret, sizeof who.secret, "%s", keys[i]);
        T_EQ(keys[i], stk_provider_request_build(&request, &error), STOKER_ERROR_FORMAT);
        T_TRUE(keys[i], !request.url);
        T_ERROR(keys[i], &error);
    }
    snprintf(who.secret, sizeof who.secret, "a2V5LW9mLWFjY291bnQ=");
    T_EQ("room", stk_provider_request_build(&request, NULL), 0);
    request.headers = many;
    request.header_count = 1;
    T_EQ("no room", stk_provider_request_build(&request, NULL), STOKER_ERROR_LIMIT);
    T_TRUE("no room", !request.url);
}

static void test_requests(void)
{
    T_EACH(request, row, requests)
    {
        static char room[4096];
        struct stk_endpoint site = {.account = ""};
        struct stoker_error error = {0};
        struct stk_provider_request request = {.service = row->service,
                                               .method = "GET",
                                               .site = &site,
                                               .credentials = &row->who,
                                               .key = row->key,
                                               .bucket = row->service == STK_CREDS_HF ? "bucket/x"
                                                                                      : "bucket",
                                               .tree = row->lists,
                                               .headers = headers,
                                               .header_count = STK_COUNT(headers),
                                               .time_s = 1445412480,
                                               .buffer = room,
                                               .buffer_bytes = sizeof room};
        snprintf(site.endpoint, sizeof site.endpoint, "%s", row->endpoint);
        if (row->lists) {
            request.query = listing;
            request.query_count = STK_COUNT(listing);
        }
        int status = stk_provider_request_build(&request, &error);
        if (!row->url) {
            T_TRUE(row->name, status < 0 && !request.url);
            T_ERROR(row->name, &error);
            T_TRUE(row->name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
            continue;
        }
        T_EQ(row->name, status, 0);
        T_STR(row->name, request.url, row->url);
        T_STR(row->name,
              request.headers_out_count ? request.headers_out[request.headers_out_count - 1] : "",
              row->line);
        size_t needed = request.buffer_used;
        for (size_t bytes = 0; bytes < needed; bytes++) { /* less room: refused, never cut */
            request.buffer_bytes = bytes;
            status = stk_provider_request_build(&request, NULL);
            T_TRUE(row->name, status == STOKER_ERROR_LIMIT && request.buffer_used <= bytes);
        }
    }
}

/* ---- the hub ---- */

/* clang-format off */
static const struct name {
    const char *text;
    const char *kind, *name, *revision, *rest; /* kind NULL: refused */
} names[] = {
    {"datasets/a/b", "datasets", "a/b", "main", ""},
    {"datasets/a/b/c/d", "datasets", "a/b", "main", "/c/d"},
    {"datasets/a/b@v1/c", "datasets", "a/b", "v1", "/c"},
    {"datasets/a/b@refs/pr/1/c", "datasets", "a/b", "refs/pr/1", "/c"},
    {"datasets/a/b@refs%2Fconvert%2Fparquet/c", "datasets", "a/b", "refs/convert/parquet", "/c"},
    {"datasets/a/b@refs/convert/parquet/c", "datasets", "a/b", "refs/convert/parquet", "/c"},
    {"a/b/c", "models", "a/b", "main", "/c"},
    {"spaces/a/b@x", "spaces", "a/b", "x", ""},
    {"a/b/c@d", "models", "a/b", "main", "/c@d"},
    {"datasets/a", NULL, NULL, NULL, NULL},
    {"a", NULL, NULL, NULL, NULL},
    {"/a/b", NULL, NULL, NULL, NULL},
    {"a//b", NULL, NULL, NULL, NULL},
    {"a/@v", NULL, NULL, NULL, NULL},
    {"a/b@/c", NULL, NULL, NULL, NULL},
    {"", NULL, NULL, NULL, NULL},
};
/* clang-format on */

static void test_names(void)
{
    T_EACH(name, row, names)
    {
        struct stk_hf_repository got;
        size_t bytes = stk_hf_split(row->text);
        char text[128];

        T_EQ(row->text, bytes > 0, row->kind != NULL);
        if (row->kind) {
            snprintf(text, sizeof text, "%.*s", (int)bytes, row->text);
            T_TRUE(row->text, stk_hf_repository_parse(text, &got));
            T_STR(row->text, got.kind, row->kind);
            T_STR(row->text, got.name, row->name);
            T_STR(row->text, got.revision, row->revision);
            T_STR(row->text, row->text + bytes, row->rest);
        }
    }
}

/* clang-format off */
static const struct link {
    const char *text, *url; /* NULL: there is no next; empty: there is one, and it cannot be had */
} links[] = {
    {"<https://h/x?a=1>; rel=\"next\"", "https://h/x?a=1"},
    {"<https://h/0>; rel=\"first\", <https://h/2>; rel=\"next\"", "https://h/2"},
    {"<https://h/0>; rel=\"last\"", NULL},
    {"<https://h/2>; rel=next", "https://h/2"},
    {"<https://h/2>;Rel=\"Next\"; title=\"a\"", "https://h/2"},
    {"<https://h/0>; rel=\"nextish\"", NULL},
    {"<https://h/0>; rel=nextish", NULL},
    {"<https://h/0; rel=\"next\"", ""},
    {"<>; rel=\"next\"", ""},
    {"<https://h/of/more/bytes/than/there/is/room/for/in/this/test/xxxxx>; rel=\"next\"", ""},
    {"<", NULL},
    {"", NULL},
};
/* clang-format on */

static void test_links(void)
{
    T_EACH(link, row, links)
    {
        struct stk_view view = {(const uint8_t *)row->text, strlen(row->text)};
        char url[64] = "";

        T_EQ(row->text, stk_hf_next_page(view, url, sizeof url),
             !row->url     ? 0
             : row->url[0] ? 1
                           : STOKER_ERROR_CORRUPT);
        T_STR(row->text, url, row->url ? row->url : "");
    }
    struct stk_view cut = {(const uint8_t *)"<https://h/\0x>; rel=\"next\"", 26};
    char url[64];

    T_EQ("a NUL", stk_hf_next_page(cut, url, sizeof url), STOKER_ERROR_CORRUPT);
}

static int count_entry(void *owner, const struct stk_hf_entry *entry)
{
    uint64_t *sum = owner;

    *sum += entry->bytes + (entry->folder ? 1000 : 1);
    return 0;
}

/* A page of a listing. */
static void test_trees(void)
{
    static char deep[5000];
    static const struct tree {
        const char *text;
        bool good;
        uint64_t sum; /* of sizes, of 1 a file, of 1000 a folder */
    } trees[] = {
        {"[]", true, 0},
        {"[{\"type\":\"file\",\"path\":\"a\",\"size\":7},"
         "{\"type\":\"directory\",\"path\":\"b\",\"size\":0}]",
         true, 1008},
        {"[{\"type\":\"directory\",\"path\":\"b\"}]", true, 1000},
        {"[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]", false, 0},
        {"[{\"type\":\"file\",\"path\":\"a\",\"size\":\"7\"}]", false, 0},
        {"[{\"type\":\"file\",\"path\":\"a\"}]", false, 0},
        {"[{\"type\":\"file\",\"size\":7}]", false, 0},
        {"[{\"path\":\"a\",\"size\":7}]", false, 0},
        {"{\"error\":\"no\"}", false, 0},
        {"[", false, 0},
        {deep, false, 0},
    };

    memset(deep, 'x', sizeof deep - 1);
    memcpy(deep, "[{\"type\":\"file\",\"size\":7,\"path\":\"", 33);
    memcpy(deep + sizeof deep - 4, "\"}]", 3);
    T_EACH(tree, row, trees)
    {
        struct stk_view page = {(const uint8_t *)row->text, strlen(row->text)};
        uint64_t sum = 0;

        T_EQ(row->text, stk_hf_tree_parse(page, count_entry, &sum),
             row->good ? 0 : STOKER_ERROR_FORMAT);
        T_EQ(row->text, sum, row->sum);
    }
}

/* A page that leads elsewhere would be sent the token. */
static void test_next_page(void)
{
    static const struct {
        const char *link;
        bool good;
    } pages[] = {{"https://hub.example/api/x?cursor=1", true},
                 {"https://evil.example/api/x?cursor=1", false},
                 {"https://hub.example.evil.example/x", false},
                 {"https://hub.example@evil.example/x", false},
                 {"http://hub.example/api/x", false},
                 {"https://hub.example", false}};
    struct stk_credentials who = {.kind = STK_CREDS_BEARER, .token = "t"};
    struct stk_endpoint site = {.endpoint = "https://hub.example"};

    for (size_t i = 0; i < STK_COUNT(pages); i++) {
        static char room[4096];
        struct stoker_error error = {0};
        struct stk_provider_request request = {.service = STK_CREDS_HF,
                                               .method = "GET",
                                               .site = &site,
                                               .credentials = &who,
                                               .key = "",
                                               .bucket = "datasets/a/b",
                                               .tree = true,
                                               .link = pages[i].link,
                                               .buffer = room,
                                               .buffer_bytes = sizeof room};

        T_EQ(pages[i].link, stk_provider_request_build(&request, &error),
             pages[i].good ? 0 : STOKER_ERROR_CORRUPT);
        if (pages[i].good) {
            T_STR(pages[i].link, request.url, pages[i].link);
        } else {
            T_ERROR(pages[i].link, &error);
        }
    }
}

static void test_zones(void)
{
    static const struct zone {
        const char *zone, *region;
    } zones[] = {
        {"usw2-az1", "us-west-2"},
        {"use1-az6", "us-east-1"},
        {"apne1-az4", "ap-northeast-1"},
        {"aps1-az1", "ap-south-1"},
        {"eun1-az3", "eu-north-1"},
        {"euc1-az2", "eu-central-1"},
        {"apse2-az1", "ap-southeast-2"},
        {"cnnw1-az2", "cn-northwest-1"},
        {"usgw1-az1", "us-gov-west-1"},
        {"usw2-lax1-az1", "us-west-2"}, /* a local zone */
        {"", ""},
        {"u", ""},
        {"usx2-az1", ""},
        {"usw-az1", ""},
        {"usw12-az1", ""},
        {"usw0-az1", ""},
        {"usw:-az1", ""},
    };
    char region[64];

    T_EACH(zone, row, zones)
    {
        T_EQ(row->zone, stk_endpoint_zone_region(row->zone, region), row->region[0] != '\0');
        T_STR(row->zone, region, row->region);
    }
}

int main(void)
{
    T_TRUE("folder", mkdtemp(folder) != NULL);
    test_sites();
    test_zones();
    test_long_region();
    test_long_endpoint();
    test_long_azure();
    test_profile();
    clear_environment();
    test_requests();
    test_shared_key();
    test_shared_key_of_a_block();
    test_google_keys();
    test_google_universe();
    test_revision();
    test_unsigned();
    test_names();
    test_links();
    test_trees();
    test_next_page();
    rmdir(folder);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
