/* Classifies responses and failures: success, retry or error; checks headers; fills errors. */
#include "storage/object/store_private.h"

#include "base/crypto/secret_memory.h"
#include "base/xml.h"
#include "io/clock.h"
#include "storage/config/auth_response.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define SKEW_S 240u           /* a larger difference of clocks is corrected */
#define BACKOFF_BASE_MS 50u   /* after a transient failure */
#define THROTTLE_BASE_MS 200u /* after a throttled response */
#define BACKOFF_MAX_MS 20000u
#define BACKOFF_INEFFECTIVE_MS 20u /* if waiting longer does not help */
#define CHECKSUM_DOUBTS_MAX 3u     /* retries with new credentials after an anonymous guess */

static bool is_one_of(const char *code, const char *const *codes, size_t count);
static uint32_t classify_failure(const struct stk_http_request *request);
static bool set_clock_skew(struct stk_store *store, const struct stk_http_response *answer);

struct error_document {
    struct stk_error_response *response;
    bool any_root; /* the document is read whatever its root is */
    bool is_error; /* the root says that it is an error */
};

static int on_error_start(void *owner, const struct stk_xml_element *element)
{
    struct error_document *document = owner;

    if (element->depth == 1) {
        document->is_error = strncmp(element->name, "Error", 5) == 0; /* also "ErrorResponse" */
    }
    return !document->any_root && !document->is_error;
}

/* The first element of a name counts. Its text is cut to the size of the field. */
static int on_error_end(void *owner, const struct stk_xml_element *element)
{
    struct stk_error_response *response = ((struct error_document *)owner)->response;
    const struct {
        const char *name;
        char *text;
        size_t text_bytes;
    } fields[] = {{"Code", response->code, sizeof response->code},
                  {"Message", response->message, sizeof response->message},
                  {"RequestId", response->request_id, sizeof response->request_id},
                  {"StorageClass", response->storage, sizeof response->storage},
                  {"AccessTier", response->tier, sizeof response->tier},
                  {"Region", response->region, sizeof response->region}};

    for (size_t i = 0; i < STK_COUNT(fields); i++) {
        if (!fields[i].text[0] && strcmp(fields[i].name, element->name) == 0) {
            snprintf(fields[i].text, fields[i].text_bytes, "%s", element->text);
        }
    }
    return 0;
}

/* The document may be cut, or be no XML: then the elements before that are used. */
static int read_document(struct error_document *document, struct stk_view text)
{
    char element[sizeof document->response->message] = "";
    struct stk_xml xml = {.start = on_error_start,
                          .end = on_error_end,
                          .owner = document,
                          .text = element,
                          .text_bytes_max = sizeof element - 1};

    return stk_xml_parse(&xml, text);
}

void stk_error_response_parse(struct stk_error_response *response, struct stk_view text)
{
    struct error_document document = {.response = response};

    (void)read_document(&document, text);
    if (document.is_error && !response->code[0]) {
        memcpy(response->code, "Error", 6);
    }
}

void stk_error_response_read(struct stk_error_response *response,
                             const struct stk_http_response *answer)
{
    struct error_document document = {.response = response, .any_root = true};
    struct stk_view value;

    *response = (struct stk_error_response){0};
    (void)read_document(&document,
                        (struct stk_view){(const uint8_t *)answer->text, strlen(answer->text)});
    if (stk_http_header(answer, "x-amz-bucket-region", &value)) {
        snprintf(response->region, sizeof response->region, "%.*s", (int)value.bytes,
                 (const char *)value.data);
    }
    if (!response->code[0] && (stk_http_header(answer, "x-ms-error-code", &value) ||
                               stk_http_header(answer, "X-Error-Code", &value))) { /* of the hub */
        snprintf(response->code, sizeof response->code, "%.*s", (int)value.bytes,
                 (const char *)value.data);
    }
    if (!response->message[0] && stk_http_header(answer, "X-Error-Message", &value)) {
        snprintf(response->message, sizeof response->message, "%.*s", (int)value.bytes,
                 (const char *)value.data);
    }
    if (!response->request_id[0] && (stk_http_header(answer, "x-amz-request-id", &value) ||
                                     stk_http_header(answer, "x-ms-request-id", &value))) {
        snprintf(response->request_id, sizeof response->request_id, "%.*s", (int)value.bytes,
                 (const char *)value.data);
    }
}

bool stk_error_response_is_archived(const char *code)
{
    static const char *const codes[] = {"InvalidObjectState", "ObjectNotInActiveTierError",
                                        "BlobArchived", "BlobBeingRehydrated"};

    return is_one_of(code, codes, STK_COUNT(codes));
}

/* Caches the signed URL that the hub redirected to, until it is rejected: it is valid for some
 * minutes, and each request to the hub counts against its rate limit. */
static void set_signed_url(struct stk_operation *operation)
{
    struct stk_signed_url *landing = operation->object->landing;

    if (operation->object->kind == STK_OBJECT_URL_HF && !operation->tree &&
        !operation->used_signed_url && operation->request.redirect_url && !landing->url) {
        landing->url = stk_secret_strdup(operation->request.redirect_url);
        landing->here = operation->request.is_local;
    }
}

/* Unless it was replaced already. */
static void drop_signed_url(struct stk_signed_url *landing, const char *url)
{
    if (landing->url && strcmp(landing->url, url) == 0) {
        stk_secret_free(landing->url);
        landing->url = NULL;
    }
}

/* Whether credentials were rejected and other ones may be available now. */
static bool is_retry_request(struct stk_operation *operation,
                             const struct stk_http_response *answer,
                             const struct stk_error_response *response)
{
    static const char *const expired[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired",
                                          "ExpiredTokenException", "InvalidClientTokenId"};
    struct stk_credential_provider *asker =
        stk_store_credential_provider(operation->store, operation->object);

    if ((is_one_of(response->code, expired, STK_COUNT(expired)) || answer->code == 401) &&
        operation->refreshes++ == 0) {
        stk_credential_provider_invalidate(asker, operation->generation);
        return true;
    }
    if (answer->code == 403 && operation->refreshes < CHECKSUM_DOUBTS_MAX &&
        stk_credential_provider_retry_anonymous(asker, operation->generation)) {
        operation->refreshes++;
        return true;
    }
    return false;
}

/* The codes are those of the S3 reference and of the SDKs' standard retry mode. */
uint32_t stk_store_classify(struct stk_operation *operation, const struct stk_http_response *answer,
                            const struct stk_error_response *response)
{
    static const char *const throttled[] = {"SlowDown",
                                            "ServiceUnavailable",
                                            "RequestLimitExceeded",
                                            "Throttling",
                                            "ThrottlingException",
                                            "ThrottledException",
                                            "TooManyRequests",
                                            "RequestThrottled",
                                            "RequestThrottledException",
                                            "BandwidthLimitExceeded",
                                            "PriorRequestNotComplete",
                                            "EC2ThrottledException"};
    static const char *const transient[] = {"RequestTimeout", "RequestTimeoutException",
                                            "InternalError", "OperationAborted",
                                            "ConditionalRequestConflict"};
    static const char *const skewed[] = {"RequestTimeTooSkewed", "RequestExpired",
                                         "RequestInTheFuture"};
    struct stk_store *store = operation->store;
    uint32_t code = answer->code;

    if (operation->request.failure != STK_HTTP_NO_FAILURE) {
        return classify_failure(&operation->request);
    }
    if ((code / 100 == 2 && !response->code[0]) ||
        (operation->probe && !operation->without_range &&
         code == 416)) { /* 416: there is no first byte, or the server refuses ranges */
        set_signed_url(operation);
        return STK_RETRY_CLASS_SUCCESS;
    }
    if (operation->used_signed_url && code / 100 == 4 && code != 412 && code != 416 &&
        code != 429) {
        drop_signed_url(operation->object->landing, operation->request.url);
        operation->moves++; /* query the hub again; its response is final */
        return STK_RETRY_CLASS_IMMEDIATE;
    }
    /* The server rejects a signature that the hub has just issued: it was for one use, which was
     * lost with its connection, or it has expired. The hub itself has not denied access. */
    if (operation->object->kind == STK_OBJECT_URL_HF && operation->request.redirect_url &&
        (code == 401 || code == 403) && operation->moves++ < STK_STORE_SIGNED_URLS_MAX) {
        return STK_RETRY_CLASS_IMMEDIATE;
    }
    if (code == 429 || is_one_of(response->code, throttled, STK_COUNT(throttled)) || code == 503) {
        return STK_RETRY_CLASS_THROTTLED;
    }
    if (code == 408 || code == 500 || code == 502 || code == 504 ||
        is_one_of(response->code, transient, STK_COUNT(transient))) {
        return STK_RETRY_CLASS_TRANSIENT;
    }
    if (!stk_object_url_has_key(operation->object)) {
        return STK_RETRY_CLASS_PERMANENT;
    }
    if (is_retry_request(operation, answer, response)) {
        return STK_RETRY_CLASS_IMMEDIATE;
    }
    if (code == 403 || is_one_of(response->code, skewed, STK_COUNT(skewed))) {
        return set_clock_skew(store, answer) && operation->moves++ == 0 ? STK_RETRY_CLASS_IMMEDIATE
                                                                        : STK_RETRY_CLASS_PERMANENT;
    }
    if ((code == 301 || code == 307 || code == 400) && response->region[0] &&
        operation->moves++ == 0) {
        stk_store_set_region(store, operation->object->bucket, response->region);
        return STK_RETRY_CLASS_IMMEDIATE;
    }
    return STK_RETRY_CLASS_PERMANENT;
}

static uint32_t classify_failure(const struct stk_http_request *request)
{
    switch (request->failure) {
    case STK_HTTP_RESOLVE:
    case STK_HTTP_CONNECT:
    case STK_HTTP_RESET:
    case STK_HTTP_BROKEN:
    case STK_HTTP_FIRST_BYTE:
    case STK_HTTP_STALL:
    case STK_HTTP_SLOW:
        return STK_RETRY_CLASS_TRANSIENT;
    case STK_HTTP_REJECTED: /* a wrong response may be a proxy's: retried, but it counts */
        return request->status == STOKER_ERROR_CORRUPT ? STK_RETRY_CLASS_TRANSIENT
                                                       : STK_RETRY_CLASS_PERMANENT;
    default:
        return STK_RETRY_CLASS_PERMANENT;
    }
}

/* Sets the clock skew by the Date header; true: it differs from the one before. */
static bool set_clock_skew(struct stk_store *store, const struct stk_http_response *answer)
{
    int64_t ours = (int64_t)(stk_clock_wall_ns() / 1000000000u), theirs, known;
    struct stk_view value;

    if (!stk_http_header(answer, "Date", &value)) {
        return false;
    }
    theirs = (int64_t)(stk_store_parse_time((const char *)value.data, value.bytes) / 1000000000u);
    known = atomic_load_explicit(&store->skew_s, memory_order_relaxed);
    if (theirs == 0 || llabs(theirs - (ours + known)) < (long long)SKEW_S) {
        return false;
    }
    atomic_store_explicit(&store->skew_s, theirs - ours, memory_order_relaxed);
    return true;
}

#define RENEW                                                                                      \
    "log in again, as with 'aws sso login', or renew the credentials: 'stoker creds explain URL' " \
    "names their source"

/* The error for a response, by the server's error code or by the HTTP status; 0: any other. */
static const struct reported_text {
    const char *name;
    uint32_t code;
    int status;
    const char *what, *advice;
} reported_texts[] = {
    {"NoSuchBucket", 0, -ENOENT, "there is no such bucket", "check its name, region and endpoint"},
    {"ContainerNotFound", 0, -ENOENT, "there is no such container",
     "check its name, and the storage account"},
    {"InvalidBucketName", 0, -EINVAL, "a bucket cannot have this name", "check the URL"},
    {"KeyTooLongError", 0, -ENAMETOOLONG, "the key is too long",
     "shorten it: the limit of S3 is 1,024 bytes"},
    {"InvalidAccessKeyId", 0, -EACCES, "the server does not know the access key",
     "run 'stoker creds explain URL' for its source; keys are valid at one endpoint"},
    {"SignatureDoesNotMatch", 0, -EACCES, "the signature is not the one that the server expects",
     "the secret key may be of another account ('stoker creds explain URL' shows its source), or a "
     "proxy changes requests"},
    {"RequestTimeTooSkewed", 0, -EACCES, "the clock of this machine differs from the server's",
     "set this machine's clock: 'timedatectl' shows it"},
    {"RequestInTheFuture", 0, -EACCES, "the clock of this machine differs from the server's",
     "set this machine's clock: 'timedatectl' shows it"},
    {"RequestExpired", 0, -EACCES, "the clock of this machine differs from the server's",
     "set this machine's clock: 'timedatectl' shows it"},
    {"ExpiredToken", 0, -EACCES, "the session token has expired", RENEW},
    {"ExpiredTokenException", 0, -EACCES, "the session token has expired", RENEW},
    {"TokenRefreshRequired", 0, -EACCES, "the session token has expired", RENEW},
    {"InvalidToken", 0, -EACCES, "the session token is not valid", RENEW},
    {"AuthenticationFailed", 0, -EACCES, "the server does not accept the signature",
     "the key may be another account's, the SAS may have expired, or this machine's clock may be "
     "wrong: run 'stoker creds explain URL'"},
    {NULL, 400, -EINVAL, "the server does not accept the request",
     "read its message; often the cause is the region, the endpoint or a credential"},
    {NULL, 401, -EACCES, "the server requires credentials",
     "run 'stoker creds explain URL' for the sources that are searched"},
    {NULL, 403, -EACCES, "access is denied",
     "check the credentials, and that they may read the bucket and list it"},
    {NULL, 404, -ENOENT, "there is no such object", "check bucket and key with stoker ls"},
    {NULL, 405, STOKER_ERROR_UNSUPPORTED, "the server does not support this request",
     "check the URL"},
    {NULL, 409, -EBUSY, "the object is being changed", "try again later"},
    {NULL, 412, STOKER_ERROR_CHANGED, "the object was replaced while it was read",
     "open the data set again; write new data under new names"},
    {NULL, 416, STOKER_ERROR_CHANGED, "the object is shorter than it was",
     "open the data set again; write new data under new names"},
    {NULL, 429, -EBUSY, "the server receives too many requests",
     "use fewer connections, or spread the data over more prefixes"},
    {NULL, 503, -EBUSY, "the server receives too many requests",
     "use fewer connections, or spread the data over more prefixes"},
    {NULL, 0, -EIO, "the server rejects the request", "check the error code, and the server's log"},
};

static const struct reported_text *set_reported_text(uint32_t code, const char *name)
{
    const struct reported_text *reported_text = reported_texts;

    while (reported_text->name ? strcmp(reported_text->name, name) != 0
                               : reported_text->code != 0 && reported_text->code != code) {
        reported_text++;
    }
    return reported_text;
}

static const char *advice_of(const struct reported_text *reported_text,
                             const struct stk_object_url *place)
{
    return reported_text->code != 404           ? reported_text->advice
           : place->kind == STK_OBJECT_URL_HTTP ? "check the URL"
           : place->kind == STK_OBJECT_URL_HF
               ? "check repository, revision and path with stoker ls --files"
               : reported_text->advice;
}

/* Names the server, which the URL of the object does not: "'http://host/..': why" -> "host: why".
 */
static void name_server(struct stk_operation *operation)
{
    char *where = operation->error.where, copy[sizeof operation->error.where];
    const char *host = strstr(where, "://"), *why = strstr(where, "': ");

    if (where[0] != '\'' || !host) {
        return;
    }
    memcpy(copy, where, sizeof copy);
    host = copy + (host - where) + 3;
    snprintf(where, sizeof operation->error.where, "%.*s%s", (int)strcspn(host, "/'"), host,
             why ? copy + (why - where) + 1 : "");
}

/* Advises the command that restores the object: permanently from INTELLIGENT_TIERING, else for some
 * days. */
static int fail_archived(struct stk_operation *operation, const struct stk_error_response *response)
{
    bool tiering = strcmp(response->storage, "INTELLIGENT_TIERING") == 0 || response->tier[0];
    bool deep =
        strncmp(response->storage, "DEEP", 4) == 0 || strncmp(response->tier, "DEEP", 4) == 0;
    const struct stk_object_url *place = operation->source ? operation->source : operation->object;
    char object[160] = "";

    if (place->kind == STK_OBJECT_URL_S3 && strlen(place->bucket) + strlen(place->key) < 120 &&
        !strchr(place->key, '\'')) {
        snprintf(object, sizeof object, "--bucket %s --key '%s' ", place->bucket, place->key);
    }
    stk_fail(&operation->error, -EACCES, "the object is archived", "", "%s%s%s%s%s%s%s",
             response->message, response->storage[0] ? ", storage class " : "", response->storage,
             response->tier[0] ? ", access tier " : "", response->tier,
             response->request_id[0] ? ", request " : "", response->request_id);
    snprintf(operation->error.advice, sizeof operation->error.advice,
             "restore it, which takes %s hours: aws s3api restore-object %s--restore-request %s",
             deep ? "some 12" : "some 5", object, tiering ? "'{}'" : "Days=7");
    return operation->error.status;
}

/* Stores use the status of denied access for locked objects: S3 and Ceph say "... object lock",
 * MinIO "WORM protected", Azure has an error code. */
static bool is_locked(const struct stk_operation *operation,
                      const struct stk_error_response *response)
{
    return operation->method != STK_HTTP_GET && operation->method != STK_HTTP_HEAD &&
           (strcasestr(response->message, "by object lock") ||
            strcasestr(response->message, "WORM protected") ||
            strcmp(response->code, "BlobImmutableDueToPolicy") == 0);
}

/* Advises how long to wait if Retry-After exceeds the bound. */
static void describe_retry_after(struct stk_operation *operation,
                                 const struct stk_http_response *answer)
{
    uint64_t retry_after_ms = stk_store_retry_after(answer);

    if (retry_after_ms > STK_STORE_RETRY_AFTER_MAX_MS) {
        snprintf(operation->error.advice, sizeof operation->error.advice,
                 "the server requests a retry in %" PRIu64 " s: use fewer connections then",
                 retry_after_ms / 1000);
    }
}

#define LOGIN_ADVICE                                                                               \
    "a proxy, or a login page, may answer in place of the store: check the endpoint and the "      \
    "proxy, "                                                                                      \
    "and log in to the network"

/* Whether a response is a web page and not a store's. */
static bool is_page(const struct stk_http_response *answer)
{
    struct stk_view type;

    return stk_http_header(answer, "Content-Type", &type) && type.bytes >= 9 &&
           strncasecmp((const char *)type.data, "text/html", 9) == 0;
}

/* ", a web page: 'Sign in'"; empty: it is none. */
static void describe_page(const struct stk_http_response *answer, char *text, size_t text_bytes)
{
    const char *title = strcasestr(answer->text, "<title>"), *end;

    text[0] = '\0';
    if (!is_page(answer)) {
        return;
    }
    title = title ? title + 7 : "";
    end = strcasestr(title, "</title>");
    while (isspace((unsigned char)*title)) {
        title++;
    }
    snprintf(text, text_bytes, ", a web page%s%.*s%s", end ? ": '" : "",
             (int)stk_min(end && end > title ? (size_t)(end - title) : 0, 80), title,
             end ? "'" : "");
}

/* ", its clock is 3600 s ahead of this machine's" */
static void describe_clocks(const struct reported_text *reported_text,
                            const struct stk_http_response *answer, char *text, size_t text_bytes)
{
    int64_t ours = (int64_t)(stk_clock_wall_ns() / 1000000000u), theirs;
    struct stk_view value;

    if (!reported_text->name || strncmp(reported_text->name, "Request", 7) != 0 ||
        !stk_http_header(answer, "Date", &value)) {
        return;
    }
    theirs = (int64_t)(stk_store_parse_time((const char *)value.data, value.bytes) / 1000000000u);
    if (theirs > 0) {
        snprintf(text, text_bytes, ", its clock is %" PRId64 " s %s this machine's",
                 theirs > ours ? theirs - ours : ours - theirs,
                 theirs > ours ? "ahead of" : "behind");
    }
}

static int fail_request(struct stk_operation *operation)
{
    operation->error = operation->request.error;
    name_server(operation);
    if (operation->request.failure == STK_HTTP_RESOLVE && operation->object->zone) {
        snprintf(operation->error.advice, sizeof operation->error.advice,
                 "check the zone in the bucket's name ('%.40s'), and that AWS_REGION is its "
                 "region where the name does not tell; and that this machine can resolve names",
                 operation->object->zone);
    }
    return operation->request.status;
}

static int fail_refused(struct stk_operation *operation, const struct stk_http_response *answer,
                        const struct stk_error_response *response)
{
    const struct reported_text *reported_text = set_reported_text(answer->code, response->code);
    char page[160];

    if (stk_error_response_is_archived(response->code)) {
        return operation->object->kind != STK_OBJECT_URL_AZURE
                   ? fail_archived(operation, response)
                   : stk_fail(&operation->error, -EACCES, "the blob is archived",
                              "rehydrate it first: az storage blob set-tier --tier Hot", "%s",
                              response->message);
    }
    if (operation->object->kind == STK_OBJECT_URL_S3 && answer->code / 100 == 4 &&
        strcasestr(response->message, "server side encryption")) {
        return stk_fail(&operation->error, -EACCES, "the object is encrypted by a customer's key",
                        "name the key that it was written with by STOKER_SSE_C_KEY_FILE, or by "
                        "STOKER_SSE_C_KEY",
                        "HTTP %u %s: %s", answer->code, response->code, response->message);
    }
    if (answer->code == 403 && strcasestr(response->message, "request has expired")) {
        return stk_fail(&operation->error, -EACCES, "the signed URL has expired",
                        "sign it again, with a longer time", "HTTP %u %s: %s", answer->code,
                        response->code, response->message);
    }
    if (is_locked(operation, response)) {
        return stk_fail(&operation->error, -EACCES, "the object is locked",
                        "it can be removed or replaced when its retention has ended and no legal "
                        "hold is on it: aws s3api get-object-retention, get-object-legal-hold",
                        "HTTP %u %s: %s", answer->code, response->code, response->message);
    }
    describe_page(answer, page, sizeof page);
    describe_clocks(reported_text, answer, page, sizeof page);
    stk_fail(&operation->error, reported_text->status, reported_text->what,
             advice_of(reported_text, operation->object), "HTTP %u%s%s%s%s%s%s%s", answer->code,
             response->code[0] ? " " : "", response->code, response->message[0] ? ": " : "",
             response->message, response->request_id[0] ? ", request " : "", response->request_id,
             page);
    if (page[0] && is_page(answer) && (answer->code == 401 || answer->code == 403)) {
        snprintf(operation->error.advice, sizeof operation->error.advice, "%s", LOGIN_ADVICE);
    }
    describe_retry_after(operation, answer);
    return reported_text->status;
}

int stk_store_fail(struct stk_operation *operation, const struct stk_http_response *answer,
                   const struct stk_error_response *response)
{
    operation->status = operation->request.failure != STK_HTTP_NO_FAILURE
                            ? fail_request(operation)
                            : fail_refused(operation, answer, response);
    stk_error_set_location(
        &operation->error, operation->object->url,
        operation->ranged ? operation->offset + operation->received : STOKER_NO_OFFSET, NULL);
    if (operation->attempts > 1) {
        size_t used = strlen(operation->error.where);

        snprintf(operation->error.where + used, sizeof operation->error.where - used, " (%u tries)",
                 operation->attempts);
    }
    return operation->status;
}

static int fail_header(struct stk_http_request *request, const char *what, const char *detail)
{
    return stk_fail(&request->error, STOKER_ERROR_CORRUPT, what,
                    "check the server and the proxies in between", "%s", detail);
}

/* Compares ETags without the W/ of a weak one. */
static bool same_etag(const char *a, struct stk_view b)
{
    const char *text = (const char *)b.data;
    size_t bytes = b.bytes;

    a += strncmp(a, "W/", 2) == 0 ? 2 : 0;
    if (bytes > 2 && strncmp(text, "W/", 2) == 0) {
        text += 2;
        bytes -= 2;
    }
    return strlen(a) == bytes && memcmp(a, text, bytes) == 0;
}

/* Reads the checksums of the wanted bytes; if a body broke off, those of the first response are
 * kept. */
static void read_checksums(struct stk_operation *operation, const struct stk_http_response *answer)
{
    const struct stk_object_info *info = operation->info;
    bool is_full = stk_operation_is_full_object(operation), all = answer->code == 200 || is_full;
    struct stk_response_checksums *seals = &operation->seals;

    if (operation->received > 0) {
        return;
    }
    stk_checksum_read_headers(seals, answer, stk_object_url_provider(operation->object), all,
                              operation->store->options.check_md5_etags &&
                                  !operation->object->zone);
    seals->file_mtime_ns = stk_store_file_mtime(answer, operation->object->kind);
    if (info &&
        info->checksum.kind != STK_CHECKSUM_NONE) { /* the hub's checksum is the right one */
        seals->object = info->checksum;
        seals->body = is_full ? info->checksum : seals->body;
        seals->unreliable = seals->unreliable && !is_full;
    }
    if (answer->code == 200 && !is_full) {
        seals->body = (struct stk_checksum){.kind = STK_CHECKSUM_NONE};
    }
}

/* A page of a proxy or a login: a store's own response has an ETag or the number of the request. Of
 * a web server it is one only if a redirect led to another host, and the URL is not a page's. */
static bool is_foreign_page(const struct stk_operation *operation,
                            const struct stk_http_response *answer)
{
    static const char *const own[] = {"ETag", "x-amz-request-id", "x-ms-request-id",
                                      "x-guploader-uploadid", "X-Repo-Commit"};
    const char *url = operation->object->url, *end;
    struct stk_view value;
    size_t bytes;

    if (!is_page(answer)) {
        return false;
    }
    if (stk_object_url_has_key(operation->object)) {
        for (size_t i = 0; i < STK_COUNT(own); i++) {
            if (stk_http_header(answer, own[i], &value)) {
                return false;
            }
        }
        return true;
    }
    bytes = strcspn(url, "?#");
    end = url + bytes;
    return operation->request.redirected && bytes > 5 && end[-1] != '/' &&
           memchr(end - 5, '.', 5) != NULL && strncasecmp(end - 5, ".html", 5) != 0 &&
           strncasecmp(end - 4, ".htm", 4) != 0;
}

int stk_store_check_response(struct stk_http_request *request,
                             const struct stk_http_response *answer)
{
    struct stk_operation *operation = request->owner;
    uint64_t first = 0, last = 0, total = 0, begin = operation->offset + operation->received;
    uint64_t end = operation->offset + operation->bytes;
    struct stk_view value;

    if (is_foreign_page(operation, answer)) {
        return stk_fail(&request->error, STOKER_ERROR_CORRUPT,
                        "a web page was received in place of the store's answer", LOGIN_ADVICE,
                        "HTTP %u", answer->code);
    }
    if (operation->info && operation->info->etag[0] && stk_http_header(answer, "ETag", &value) &&
        !same_etag(operation->info->etag, value)) {
        return stk_fail(&request->error, STOKER_ERROR_CHANGED,
                        "the object was replaced while it was read",
                        "open the data set again; write new data under new names",
                        "another ETag than when it was opened");
    }
    if (!operation->ranged) {
        return 0;
    }
    if (answer->code == 206) {
        if (!stk_http_header(answer, "Content-Range", &value) ||
            !stk_store_parse_content_range(value, &first, &last, &total)) {
            return fail_header(request, "a range was received without Content-Range", "HTTP 206");
        }
        if (first != begin || last != end - 1 ||
            (answer->content_bytes != UINT64_MAX && answer->content_bytes != end - begin)) {
            return fail_header(request, "the response is another range than the requested one",
                               "Content-Range");
        }
        if (operation->info && total != UINT64_MAX && total != operation->info->bytes) {
            return stk_fail(&request->error, STOKER_ERROR_CHANGED,
                            "the object has another size than when it was opened",
                            "open the data set again; write new data under new names",
                            "%" PRIu64 " bytes, before %" PRIu64, total, operation->info->bytes);
        }
        read_checksums(operation, answer);
        return 0;
    }
    if (answer->code != 200 || (operation->info && answer->content_bytes != UINT64_MAX &&
                                answer->content_bytes != operation->info->bytes)) {
        return fail_header(request, "the response is not the requested range", "not HTTP 206");
    }
    /* A server without ranges sends the whole object: other bytes are discarded. */
    request->skip = begin;
    request->truncate = true;
    read_checksums(operation, answer);
    return 0;
}

uint64_t stk_store_backoff(struct stk_store *store, uint32_t retry_class, uint32_t attempt)
{
    uint64_t base = retry_class == STK_RETRY_CLASS_THROTTLED ? THROTTLE_BASE_MS : BACKOFF_BASE_MS;
    uint64_t most = attempt == 0 ? BACKOFF_INEFFECTIVE_MS
                                 : stk_min(base << stk_min(attempt - 1, 20), BACKOFF_MAX_MS);

    return stk_store_random(store, most);
}

/* Only seconds are parsed; a date would depend on the difference of clocks. */
uint64_t stk_store_retry_after(const struct stk_http_response *answer)
{
    struct stk_view value;
    uint64_t reported_text = 0;
    bool in_ms = stk_http_header(answer, "x-amz-retry-after", &value);

    if (in_ms || stk_http_header(answer, "Retry-After", &value)) {
        for (size_t i = 0; i < value.bytes && isdigit(value.data[i]) && reported_text < 1000000000;
             i++) {
            reported_text = reported_text * 10 + (uint64_t)(value.data[i] - '0');
        }
    }
    return in_ms ? reported_text : reported_text * 1000;
}

static bool is_one_of(const char *code, const char *const *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(code, codes[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool number(const char **at, const char *end, uint64_t *number_out)
{
    const char *start = *at;

    for (*number_out = 0; *at < end && isdigit((unsigned char)**at); (*at)++) {
        if (!stk_multiply(*number_out, 10, number_out) ||
            !stk_add(*number_out, (uint64_t)(**at - '0'), number_out)) {
            return false;
        }
    }
    return *at > start;
}

uint64_t stk_store_file_mtime(const struct stk_http_response *answer, uint32_t kind)
{
    const char *name = kind == STK_OBJECT_URL_S3      ? "x-amz-meta-mtime"
                       : kind == STK_OBJECT_URL_GCS   ? "x-goog-meta-mtime"
                       : kind == STK_OBJECT_URL_AZURE ? "x-ms-meta-mtime"
                                                      : NULL;
    uint64_t seconds = 0, rest = 0, scale = 1000000000u;
    const char *at, *end;
    struct stk_view value;

    if (!name || !stk_http_header(answer, name, &value) || value.bytes > 40) {
        return 0;
    }
    at = (const char *)value.data;
    end = at + value.bytes;
    if (memchr(at, 'T', value.bytes)) {
        seconds = stk_store_parse_time(at, value.bytes) / scale;
        at = memchr(at, '.', value.bytes);
        at = at ? at : end;
    } else if (!number(&at, end, &seconds)) {
        return 0;
    }
    for (at += at < end && *at == '.'; at < end && isdigit((unsigned char)*at) && scale > 1; at++) {
        scale /= 10;
        rest += (uint64_t)(*at - '0') * scale;
    }
    return seconds > 0 && seconds < INT64_MAX / 1000000000u ? seconds * 1000000000u + rest : 0;
}

uint64_t stk_store_parse_time(const char *text, size_t bytes)
{
    struct stk_view view = {(const uint8_t *)text, bytes};
    struct tm parts = {0};
    uint64_t seconds = 0;
    char copy[64];
    time_t time;

    if (bytes >= sizeof copy) {
        return 0;
    }
    if (stk_auth_response_date(view, &seconds)) {
        return seconds * 1000000000u;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    /* The format of listings, without fractions of seconds. */
    time = strptime(copy, "%Y-%m-%dT%H:%M:%S", &parts) ? timegm(&parts) : 0;
    return time > 0 ? (uint64_t)time * 1000000000u : 0;
}

bool stk_store_parse_content_range(struct stk_view text, uint64_t *first, uint64_t *last,
                                   uint64_t *total)
{
    const char *at = (const char *)text.data, *end = at + text.bytes;

    if (text.bytes < 6 || strncasecmp(at, "bytes ", 6) != 0) {
        return false;
    }
    at += 6;
    if (!number(&at, end, first) || at == end || *at++ != '-' || !number(&at, end, last) ||
        at == end || *at++ != '/' || *last < *first) {
        return false;
    }
    if (end - at == 1 && *at == '*') {
        *total = UINT64_MAX;
        return true;
    }
    return number(&at, end, total) && at == end && *last < *total;
}
