/* Builds and signs a request: URL, headers, signature. Done again for each try, so that no try is
 * sent with a signature or credentials that expired while it waited. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "io/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define QUERY_MAX 12u

/* The buffer for the texts of one try. */
struct room {
    char *at;
    size_t left;
    bool full;
};

struct draft {
    struct stk_operation *operation;
    struct stk_store *store;
    struct room room;
    struct stk_sigv4_pair signed_headers[12 + STK_STORE_EXTRA_HEADERS_MAX];
    uint32_t signed_count;
    uint32_t header_count;
    struct stk_sigv4_pair query[QUERY_MAX]; /* S3: of the operation, and the version */
    uint32_t query_count;
    struct stk_s3_endpoint s3;
    const char *path;                       /* S3, raw: the root of the endpoint, and the key */
    struct stk_s3_express_session *session; /* S3 Express; NULL: the keys of the store sign */
};

static const char *const methods[] = {[STK_HTTP_GET] = "GET",
                                      [STK_HTTP_HEAD] = "HEAD",
                                      [STK_HTTP_PUT] = "PUT",
                                      [STK_HTTP_POST] = "POST",
                                      [STK_HTTP_DELETE] = "DELETE"};

static int prepare_s3(struct draft *draft);
static void add_version(struct draft *draft);
static int prepare_other(struct draft *draft);
static void add_conditions(struct draft *draft, bool to_sign);
static void add_header(struct draft *draft, const char *name, const char *value, bool to_sign);
static int add_customer_keys(struct draft *draft);
static int add_bucket(struct draft *draft, const char *region);
static int find_keys(struct draft *draft);
static int add_signature(struct draft *draft);
static void count(const struct stk_operation *operation);

__attribute__((format(printf, 2, 3))) static const char *print(struct room *room,
                                                               const char *format, ...)
{
    char *text = room->at;
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(text, room->left, format, list);
    va_end(list);
    if (bytes < 0 || (size_t)bytes >= room->left) {
        room->full = true;
        return "";
    }
    room->at += bytes + 1;
    room->left -= (size_t)bytes + 1;
    return text;
}

int stk_store_sign_request(struct stk_http_request *request, char *room)
{
    struct stk_operation *operation = request->owner;
    struct draft draft = {.operation = operation,
                          .store = operation->store,
                          .room = {room, STK_HTTP_SCRATCH_BYTES, false}};
    int status = 0;

    operation->generation = 0;
    if (operation->attempts == 1 && !operation->in_outage) {
        operation->progress_ns = stk_clock_ns(); /* it may have waited for a connection */
    }
    if (operation->object->kind == STK_OBJECT_URL_HTTP) {
        request->url = operation->object->target;
        add_conditions(&draft, false);
    } else if (operation->object->kind == STK_OBJECT_URL_S3) {
        status = prepare_s3(&draft);
    } else {
        status = prepare_other(&draft);
    }
    stk_wipe_registers(); /* they copied keys and tokens, and would be saved to the stack */
    request->headers = operation->headers;
    request->header_count = draft.header_count;
    request->scratch_bytes = (uint32_t)(draft.room.at - room);
    if (status == 0 && draft.room.full) {
        status = stk_fail(&request->error, STOKER_ERROR_LIMIT, "a request is too long to be sent",
                          "shorten the key; look at the size of the session token", "'%.200s'",
                          operation->object->url);
    }
    if (status == 0) {
        count(operation);
    }
    return status;
}

static bool needs_header(const struct stk_operation *operation, const char *name)
{
    return operation->query_count > 0 && strcmp(operation->query[0].name, name) == 0;
}

/* Counts requests by the classes that stores charge for. Azure's block list is a read; the location
 * of a bucket is no list. */
static void count(const struct stk_operation *operation)
{
    struct stk_store *store = operation->store;
    uint32_t row = stk_object_url_store_kind(operation->object), method = operation->method;
    bool blocks = operation->object->kind == STK_OBJECT_URL_AZURE && operation->keyed;

    atomic_fetch_add_explicit(&store->requests[row], 1, memory_order_relaxed);
    if (method == STK_HTTP_DELETE ||
        (method == STK_HTTP_POST && needs_header(operation, "delete"))) {
        atomic_fetch_add_explicit(&store->deletes[row], 1, memory_order_relaxed);
    } else if (method == STK_HTTP_PUT || method == STK_HTTP_POST) {
        atomic_fetch_add_explicit(&store->puts[row], 1, memory_order_relaxed);
    } else if (operation->tree ||
               (operation->query_count > 0 && !blocks && !needs_header(operation, "location"))) {
        atomic_fetch_add_explicit(&store->lists[row], 1, memory_order_relaxed);
    }
}

/* Adds Range and the condition on the version that was opened. Without Range S3 and Google report
 * the checksum; with it they may not. */
static void add_conditions(struct draft *draft, bool to_sign)
{
    const struct stk_operation *operation = draft->operation;
    const struct stk_object_info *info = operation->info;
    uint32_t kind = operation->object->kind;
    bool is_full = (kind == STK_OBJECT_URL_S3 || kind == STK_OBJECT_URL_GCS) && info &&
                   info->etag[0] && stk_operation_is_full_object(operation) &&
                   operation->received == 0;

    if (operation->probe && !operation->without_range) {
        add_header(draft, "Range", "bytes=0-0", to_sign);
    } else if (operation->ranged && !is_full && !(info && info->no_ranges)) {
        add_header(draft, "Range",
                   print(&draft->room, "bytes=%" PRIu64 "-%" PRIu64,
                         operation->offset + operation->received,
                         operation->offset + operation->bytes - 1),
                   to_sign);
    }
    /* A weak ETag never matches (RFC 9110, 13.1.1): the condition is the time, and the ETag of the
     * response is compared. */
    if (info && info->etag[0] && strncmp(info->etag, "W/", 2) != 0) {
        add_header(draft, "If-Match", info->etag, to_sign);
    } else if (info && info->modified[0]) {
        add_header(draft, "If-Unmodified-Since", info->modified, to_sign);
    }
}

static void add_header(struct draft *draft, const char *name, const char *value, bool to_sign)
{
    STK_ASSERT(draft->header_count < STK_COUNT(draft->operation->headers));
    draft->operation->headers[draft->header_count++] =
        print(&draft->room, value[0] ? "%s: %s" : "%s;%s", name, value); /* "Name;": without one */
    if (to_sign) {
        STK_ASSERT(draft->signed_count < STK_COUNT(draft->signed_headers));
        draft->signed_headers[draft->signed_count++] = (struct stk_sigv4_pair){name, value};
    }
}

static int find_region(struct draft *draft, char *region)
{
    const struct stk_object_url *object = draft->operation->object;
    char found_region[STK_STORE_REGION_BYTES];
    int status = object->zone ? stk_endpoint_bucket_region(&draft->store->config.site, object->zone,
                                                           object->url, found_region,
                                                           &draft->operation->request.error)
                              : 0;

    if (status > 0) {
        memcpy(region, found_region, sizeof found_region);
    } else {
        stk_store_get_region(draft->store, object->bucket, region);
    }
    return status < 0 ? status : 0;
}

static int prepare_s3(struct draft *draft)
{
    struct stk_operation *operation = draft->operation;
    struct stk_store *store = draft->store;
    struct stk_http_request *request = &operation->request;
    const struct stk_s3_settings *settings = &store->config.site.settings;
    char region[STK_STORE_REGION_BYTES];
    int status = store->config.status;

    if (status < 0) {
        request->error = store->config.error;
        return status;
    }
    status = find_region(draft, region);
    status = status < 0 ? status : add_bucket(draft, region);
    status = status < 0 ? status : find_keys(draft);
    if (status < 0) {
        return status;
    }
    add_version(draft);
    request->ca_file = settings->ca_file[0] ? settings->ca_file : NULL;
    add_conditions(draft, true);
    if (settings->verify_when_required != STK_FLAG_YES &&
        (operation->wants_checksum ||
         (operation->method == STK_HTTP_GET && operation->ranged && operation->received == 0))) {
        add_header(draft, "x-amz-checksum-mode", "ENABLED", true);
    }
    for (uint32_t i = 0; i < operation->extra_header_count; i++) {
        add_header(draft, operation->extra_headers[i].name, operation->extra_headers[i].value,
                   true);
    }
    status = add_customer_keys(draft);
    if (status < 0) {
        return status;
    }
    if (store->config.requester_pays) {
        add_header(draft, "x-amz-request-payer", "requester", true);
    }
    if (store->credentials.kind == STK_CREDS_BEARER) {
        add_header(draft, "Authorization",
                   print(&draft->room, "Bearer %s", store->credentials.token), false);
    } else if (store->credentials.kind == STK_CREDS_KEYS) {
        status = add_signature(draft);
    }
    if (status == 0) {
        size_t used = 0;
        char *url = (char *)(uintptr_t)print(&draft->room, "%s://%s",
                                             draft->s3.tls ? "https" : "http", draft->s3.host);
        size_t start = strlen(url);

        if (!draft->room.full) { /* the path follows the host */
            draft->room.at--;
            draft->room.left++;
            draft->room.full = stk_url_encode_target(draft->path, draft->query, draft->query_count,
                                                     draft->room.at, draft->room.left) < 0;
            used = strlen(draft->room.at) + 1;
            draft->room.at += used;
            draft->room.left -= used;
        }
        STK_ASSERT(start > 0 || draft->room.full);
        request->url = url;
    }
    return status;
}

/* Copies the query of the operation, and adds the version if the request is one of the object. */
static void add_version(struct draft *draft)
{
    const struct stk_operation *operation = draft->operation;
    const char *version = operation->object->version;

    STK_ASSERT(operation->query_count < QUERY_MAX);
    for (uint32_t i = 0; i < operation->query_count; i++) {
        draft->query[draft->query_count++] = operation->query[i];
    }
    if (version && (operation->query_count == 0 || operation->keyed)) {
        draft->query[draft->query_count++] = (struct stk_sigv4_pair){"versionId", version};
    }
}

/* Finds or opens the session of the bucket. */
static int open_session(struct draft *draft)
{
    struct stk_store *store = draft->store;
    struct stoker_error *error = &draft->operation->request.error;
    const struct stk_s3_endpoint *s3 = &draft->s3;
    const char *ca_file = store->config.site.settings.ca_file;
    struct stk_credential_session express_session = {
        .base = store->creds, .ca_file = ca_file[0] ? ca_file : NULL, .skew_s = &store->skew_s};

    snprintf(express_session.scheme, sizeof express_session.scheme, "%s",
             s3->tls ? "https" : "http");
    snprintf(express_session.region, sizeof express_session.region, "%s", s3->region);
    /* The path of the bucket, without the key. */
    if ((size_t)snprintf(express_session.host, sizeof express_session.host, "%s", s3->host) >=
            sizeof express_session.host ||
        (size_t)snprintf(express_session.path, sizeof express_session.path, "%s", s3->root) >=
            sizeof express_session.path) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "'%.100s'", s3->host);
    }
    return stk_store_open_session(store, draft->operation->object->bucket, &express_session,
                                  &draft->session, error);
}

/* Sets store->credentials to those of the store, or of a session. */
static int find_keys(struct draft *draft)
{
    struct stk_store *store = draft->store;
    const struct stk_object_url *object = draft->operation->object;
    struct stoker_error *error = &draft->operation->request.error;
    int status = 0;

    if (object->zone && store->config.site.settings.no_express_sessions != STK_FLAG_YES &&
        !stk_credentials_is_unsigned(STK_CREDS_AWS)) {
        draft->session = stk_store_find_session(store, object->bucket);
        status = draft->session ? 0 : open_session(draft);
    }
    if (status < 0) {
        return status;
    }
    status = stk_credential_provider_try_get(draft->session ? draft->session->creds : store->creds,
                                             &store->credentials, error);
    draft->operation->generation = store->credentials.generation;
    return status;
}

/* Adds the customer-provided keys of the object, and of the source of a copy. A key is not sent in
 * plain text, as in Amazon's libraries. */
static int add_customer_keys(struct draft *draft)
{
    static const char *const names[2][3] = {
        {"x-amz-server-side-encryption-customer-algorithm",
         "x-amz-server-side-encryption-customer-key",
         "x-amz-server-side-encryption-customer-key-MD5"},
        {"x-amz-copy-source-server-side-encryption-customer-algorithm",
         "x-amz-copy-source-server-side-encryption-customer-key",
         "x-amz-copy-source-server-side-encryption-customer-key-MD5"}};
    const struct stk_operation *operation = draft->operation;
    const struct stk_object_url *places[2] = {operation->object, operation->source};

    if (operation->method == STK_HTTP_DELETE || (operation->query_count && !operation->keyed)) {
        places[0] = NULL; /* a request to the bucket, or one without bytes of the object */
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct stk_sse_key *key =
            places[i] ? stk_sse_keys_find(&draft->store->keyring, places[i]->bucket, places[i]->key)
                      : NULL;

        if (key && !draft->s3.tls &&
            !stk_credentials_url_is_private(draft->store->config.site.endpoint)) {
            return stk_fail(&draft->operation->request.error, STOKER_ERROR_ARGUMENT,
                            "a customer's key would go out in plain text",
                            "use an endpoint of https", "'%.400s': %.300s", operation->object->url,
                            draft->store->config.site.endpoint);
        }
        if (key) {
            add_header(draft, names[i][0], "AES256", true);
            add_header(draft, names[i][1], key->key, true);
            add_header(draft, names[i][2], key->md5, true);
        }
    }
    return 0;
}

/* Builds the request of another service than S3. */
static int prepare_other(struct draft *draft)
{
    struct stk_operation *operation = draft->operation;
    struct stk_store_endpoint *service = stk_store_find_endpoint(draft->store, operation->object);
    struct stoker_error *error = &operation->request.error;
    int64_t skew_s = atomic_load_explicit(&draft->store->skew_s, memory_order_relaxed);
    struct stk_provider_request request = {
        .service = operation->object->kind == STK_OBJECT_URL_GCS     ? STK_CREDS_GOOGLE
                   : operation->object->kind == STK_OBJECT_URL_AZURE ? STK_CREDS_AZURE
                                                                     : STK_CREDS_HF,
        .method = methods[operation->method],
        .site = &service->site,
        .credentials = &service->credentials,
        .bucket = operation->object->bucket,
        .key = operation->query_count && !operation->keyed ? "" : operation->object->key,
        .query = operation->query,
        .query_count = operation->query_count,
        .headers = draft->signed_headers,
        .tree = operation->tree,
        .deep = operation->deep,
        .link = operation->link,
        .body = operation->request.body,
        .time_s = (uint64_t)((int64_t)(stk_clock_wall_ns() / 1000000000u) + skew_s),
        .cache = &service->sign_cache,
    };
    int status = service->status;

    if (status < 0) {
        *error = service->error;
        return status;
    }
    /* After a signed URL was rejected, the hub is queried: another cached one may be as old. */
    operation->used_signed_url =
        !operation->tree && operation->moves == 0 && operation->object->landing->url != NULL;
    if (operation->used_signed_url) { /* signed already: no token is sent there */
        operation->request.url_from_server = true;
        operation->request.server_is_local = operation->object->landing->here;
        operation->request.url = print(&draft->room, "%s", operation->object->landing->url);
        add_conditions(draft, false);
        return 0;
    }
    status = stk_credential_provider_try_get(service->creds, &service->credentials, error);
    if (status < 0) {
        return status;
    }
    operation->generation = service->credentials.generation;
    add_conditions(draft, true);
    if (operation->object->kind == STK_OBJECT_URL_AZURE && operation->ranged &&
        operation->received == 0 && operation->bytes <= STK_STORE_AZURE_CHECKSUM_BYTES) {
        add_header(draft, "x-ms-range-get-content-crc64", "true", true);
    }
    for (uint32_t i = 0; i < operation->extra_header_count; i++) {
        add_header(draft, operation->extra_headers[i].name, operation->extra_headers[i].value,
                   true);
    }
    request.header_count = draft->signed_count;
    request.buffer = draft->room.at;
    request.buffer_bytes = draft->room.left;
    status = stk_provider_request_build(&request, error);
    draft->room.at += request.buffer_used;
    draft->room.left -= request.buffer_used;
    for (uint32_t i = 0; i < request.headers_out_count; i++) {
        STK_ASSERT(draft->header_count < STK_COUNT(operation->headers));
        operation->headers[draft->header_count++] = request.headers_out[i];
    }
    operation->request.url = request.url;
    return status;
}

static int add_bucket(struct draft *draft, const char *region)
{
    const struct stk_object_url *object = draft->operation->object;
    struct stk_s3_target target = {.site = &draft->store->config.site,
                                   .bucket = object->bucket,
                                   .zone = object->zone,
                                   .arn = object->arn,
                                   .region = region};
    int status = stk_s3_endpoint_resolve(&target, &draft->s3, &draft->operation->request.error);

    if (status == 0) {
        draft->path =
            print(&draft->room, "%s%s", draft->s3.root,
                  draft->operation->query_count && !draft->operation->keyed ? "" : object->key);
    }
    return status;
}

static int add_signature(struct draft *draft)
{
    const struct stk_operation *operation = draft->operation;
    struct stk_store *store = draft->store;
    uint32_t sign_payload = store->config.site.settings.sign_payload;
    int64_t skew_s = atomic_load_explicit(&store->skew_s, memory_order_relaxed);
    const char *token_name = draft->session ? "x-amz-s3session-token" : "x-amz-security-token";
    char *hash = draft->room.at;
    struct stk_sigv4_headers made;
    struct stk_sigv4_request request = {
        .method = methods[operation->method],
        .host = draft->s3.host,
        .path = draft->path,
        .query = draft->query,
        .query_count = draft->query_count,
        .headers = draft->signed_headers,
        .header_count = draft->signed_count,
        .payload = STK_SIGV4_EMPTY_HASH,
        .region = draft->s3.region,
        .service = draft->s3.service,
        .access_key = store->credentials.access_key,
        .secret = store->credentials.secret,
        .token = store->credentials.token,
        .token_name = token_name,
        .time_s = (uint64_t)((int64_t)(stk_clock_wall_ns() / 1000000000u) + skew_s),
        .cache = draft->session ? &draft->session->sign_cache : &store->sign_cache,
        .generation = store->credentials.generation,
    };
    int status;

    if (operation->payload) {
        request.payload = operation->payload;
    } else if (operation->request.body.bytes > 0 && sign_payload != STK_FLAG_YES &&
               (draft->s3.tls || sign_payload == STK_FLAG_NO)) {
        request.payload =
            STK_SIGV4_UNSIGNED_PAYLOAD; /* TLS protects the body, or it needs no protection */
    } else if (operation->request.body.bytes > 0 && draft->room.left > 65) {
        stk_sigv4_hash(operation->request.body, hash);
        request.payload = hash;
        draft->room.at += 65;
        draft->room.left -= 65;
    }
    status = stk_sigv4_sign_headers(&request, &made);
    if (status < 0) {
        return stk_fail(&draft->operation->request.error, status, "a request cannot be signed",
                        "look at the length of key, region and access key", "'%.200s'",
                        operation->object->url);
    }
    add_header(draft, "x-amz-date", made.date, false);
    add_header(draft, "x-amz-content-sha256", request.payload, false);
    if (store->credentials.token[0]) {
        add_header(draft, token_name, store->credentials.token, false);
    }
    add_header(draft, "Authorization", made.authorization, false);
    return 0;
}
