/* Makes what is sent: URL, headers, signature. Anew for each try, so that no try goes out with a
 * signature or credentials that have expired while it waited. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "io/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text that is made for one sending. */
struct room {
    char *at;
    size_t left;
    bool full;
};

struct draft {
    struct stk_exchange *exchange;
    struct stk_store *store;
    struct room room;
    struct stk_sign_pair signed_headers[12 + STK_STORE_MORE_MAX];
    uint32_t signed_count;
    uint32_t header_count;
    struct stk_s3_address s3;
    const char *path;            /* of S3, raw: that of the address, and the key */
    struct stk_session *session; /* S3 Express; NULL: the store's own keys sign */
};

static const char *const methods[] = {[STK_HTTP_GET] = "GET",
                                      [STK_HTTP_HEAD] = "HEAD",
                                      [STK_HTTP_PUT] = "PUT",
                                      [STK_HTTP_POST] = "POST",
                                      [STK_HTTP_DELETE] = "DELETE"};

static int prepare_s3(struct draft *draft);
static int prepare_other(struct draft *draft);
static void add_conditions(struct draft *draft, bool to_sign);
static void add_header(struct draft *draft, const char *name, const char *value, bool to_sign);
static int add_customer_keys(struct draft *draft);
static int name_bucket(struct draft *draft, const char *region);
static int find_keys(struct draft *draft);
static int add_signature(struct draft *draft);
static void count(const struct stk_exchange *exchange);

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

int stk_store_prepare(struct stk_http_request *request, char *room)
{
    struct stk_exchange *exchange = request->owner;
    struct draft draft = {
        .exchange = exchange, .store = exchange->store, .room = {room, STK_HTTP_ROOM_BYTES, false}};
    int status = 0;

    exchange->generation = 0;
    if (exchange->attempts == 1 && !exchange->out) {
        exchange->progress_ns = stk_clock_ns(); /* it may have waited for a connection */
    }
    if (exchange->place->kind == STK_PLACE_HTTP) {
        request->url = exchange->place->target;
        add_conditions(&draft, false);
    } else if (exchange->place->kind == STK_PLACE_S3) {
        status = prepare_s3(&draft);
    } else {
        status = prepare_other(&draft);
    }
    stk_wipe_registers(); /* which copied keys and tokens; they would be saved to the stack */
    request->headers = exchange->headers;
    request->header_count = draft.header_count;
    request->room_bytes = (uint32_t)(draft.room.at - room);
    if (status == 0 && draft.room.full) {
        status = stk_fail(&request->error, STOKER_ERROR_LIMIT, "a request is too long to be sent",
                          "shorten the key; look at the size of the session token", "'%.200s'",
                          exchange->place->url);
    }
    if (status == 0) {
        count(exchange);
    }
    return status;
}

static bool asks(const struct stk_exchange *exchange, const char *name)
{
    return exchange->query_count > 0 && strcmp(exchange->query[0].name, name) == 0;
}

/* By what stores charge for. Azure's list of a blob's blocks is a read there, and where a bucket is
 * is no list. */
static void count(const struct stk_exchange *exchange)
{
    struct stk_store *store = exchange->store;
    uint32_t row = stk_place_store(exchange->place), method = exchange->method;
    bool blocks = exchange->place->kind == STK_PLACE_AZURE && exchange->keyed;

    atomic_fetch_add_explicit(&store->requests[row], 1, memory_order_relaxed);
    if (method == STK_HTTP_DELETE || (method == STK_HTTP_POST && asks(exchange, "delete"))) {
        atomic_fetch_add_explicit(&store->deletes[row], 1, memory_order_relaxed);
    } else if (method == STK_HTTP_PUT || method == STK_HTTP_POST) {
        atomic_fetch_add_explicit(&store->puts[row], 1, memory_order_relaxed);
    } else if (exchange->tree ||
               (exchange->query_count > 0 && !blocks && !asks(exchange, "location"))) {
        atomic_fetch_add_explicit(&store->lists[row], 1, memory_order_relaxed);
    }
}

/* Range, and that it is still the version which was opened. Of a whole object S3 and Google tell
 * the checksum, of a range they may not. */
static void add_conditions(struct draft *draft, bool to_sign)
{
    const struct stk_exchange *exchange = draft->exchange;
    const struct stk_about *about = exchange->about;
    uint32_t kind = exchange->place->kind;
    bool whole = (kind == STK_PLACE_S3 || kind == STK_PLACE_GOOGLE) && about && about->etag[0] &&
                 stk_exchange_is_whole(exchange) && exchange->good == 0;

    if (exchange->probe) {
        add_header(draft, "Range", "bytes=0-0", to_sign);
    } else if (exchange->ranged && !whole) {
        add_header(draft, "Range",
                   print(&draft->room, "bytes=%" PRIu64 "-%" PRIu64,
                         exchange->offset + exchange->good, exchange->offset + exchange->bytes - 1),
                   to_sign);
    }
    /* A weak ETag never matches (RFC 9110, 13.1.1): then by time, and the answer's is compared. */
    if (about && about->etag[0] && strncmp(about->etag, "W/", 2) != 0) {
        add_header(draft, "If-Match", about->etag, to_sign);
    } else if (about && about->modified[0]) {
        add_header(draft, "If-Unmodified-Since", about->modified, to_sign);
    }
}

static void add_header(struct draft *draft, const char *name, const char *value, bool to_sign)
{
    STK_ASSERT(draft->header_count < STK_COUNT(draft->exchange->headers));
    draft->exchange->headers[draft->header_count++] =
        print(&draft->room, value[0] ? "%s: %s" : "%s;%s", name, value); /* "Name;": without one */
    if (to_sign) {
        STK_ASSERT(draft->signed_count < STK_COUNT(draft->signed_headers));
        draft->signed_headers[draft->signed_count++] = (struct stk_sign_pair){name, value};
    }
}

static int find_region(struct draft *draft, char *region)
{
    const struct stk_place *place = draft->exchange->place;
    char found[STK_STORE_REGION_BYTES];
    int status = place->zone
                     ? stk_site_bucket_region(&draft->store->config.site, place->zone, place->url,
                                              found, &draft->exchange->request.error)
                     : 0;

    if (status > 0) {
        memcpy(region, found, sizeof found);
    } else {
        stk_store_region(draft->store, place->bucket, region);
    }
    return status < 0 ? status : 0;
}

static int prepare_s3(struct draft *draft)
{
    struct stk_exchange *exchange = draft->exchange;
    struct stk_store *store = draft->store;
    struct stk_http_request *request = &exchange->request;
    const struct stk_settings *settings = &store->config.site.settings;
    char region[STK_STORE_REGION_BYTES];
    int status = store->config.status;

    if (status < 0) {
        request->error = store->config.error;
        return status;
    }
    status = find_region(draft, region);
    status = status < 0 ? status : name_bucket(draft, region);
    status = status < 0 ? status : find_keys(draft);
    if (status < 0) {
        return status;
    }
    request->ca_file = settings->ca_file[0] ? settings->ca_file : NULL;
    add_conditions(draft, true);
    if (settings->lazy_checks != STK_SAID_YES &&
        (exchange->seal ||
         (exchange->method == STK_HTTP_GET && exchange->ranged && exchange->good == 0))) {
        add_header(draft, "x-amz-checksum-mode", "ENABLED", true);
    }
    for (uint32_t i = 0; i < exchange->more_count; i++) {
        add_header(draft, exchange->more[i].name, exchange->more[i].value, true);
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

        if (!draft->room.full) { /* the path goes on where the host ends */
            draft->room.at--;
            draft->room.left++;
            draft->room.full = stk_sign_target(draft->path, exchange->query, exchange->query_count,
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

/* The bucket's, from its first request on. */
static int open_session(struct draft *draft)
{
    struct stk_store *store = draft->store;
    struct stoker_error *error = &draft->exchange->request.error;
    const struct stk_s3_address *s3 = &draft->s3;
    const char *ca_file = store->config.site.settings.ca_file;
    struct stk_creds_session given = {
        .base = store->creds, .ca_file = ca_file[0] ? ca_file : NULL, .skew_s = &store->skew_s};

    snprintf(given.scheme, sizeof given.scheme, "%s", s3->tls ? "https" : "http");
    snprintf(given.region, sizeof given.region, "%s", s3->region);
    /* As the bucket's URL: the path without the key. */
    if ((size_t)snprintf(given.host, sizeof given.host, "%s", s3->host) >= sizeof given.host ||
        (size_t)snprintf(given.path, sizeof given.path, "%s", s3->root) >= sizeof given.path) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "'%.100s'", s3->host);
    }
    return stk_store_open_session(store, draft->exchange->place->bucket, &given, &draft->session,
                                  error);
}

/* Fills store->credentials: the store's own, or those of a session. */
static int find_keys(struct draft *draft)
{
    struct stk_store *store = draft->store;
    const struct stk_place *place = draft->exchange->place;
    struct stoker_error *error = &draft->exchange->request.error;
    int status = 0;

    if (place->zone && store->config.site.settings.sessionless != STK_SAID_YES &&
        !stk_creds_unsigned(STK_CREDS_AWS)) {
        draft->session = stk_store_find_session(store, place->bucket);
        status = draft->session ? 0 : open_session(draft);
    }
    if (status < 0) {
        return status;
    }
    status = stk_creds_peek(draft->session ? draft->session->creds : store->creds,
                            &store->credentials, error);
    draft->exchange->generation = store->credentials.generation;
    return status;
}

/* Of the object, and of the one that it is copied from. Amazon's libraries refuse to send a key in
 * plain text, too. */
static int add_customer_keys(struct draft *draft)
{
    static const char *const names[2][3] = {
        {"x-amz-server-side-encryption-customer-algorithm",
         "x-amz-server-side-encryption-customer-key",
         "x-amz-server-side-encryption-customer-key-MD5"},
        {"x-amz-copy-source-server-side-encryption-customer-algorithm",
         "x-amz-copy-source-server-side-encryption-customer-key",
         "x-amz-copy-source-server-side-encryption-customer-key-MD5"}};
    const struct stk_exchange *exchange = draft->exchange;
    const struct stk_place *places[2] = {exchange->place, exchange->source};

    if (exchange->method == STK_HTTP_DELETE || (exchange->query_count && !exchange->keyed)) {
        places[0] = NULL; /* of the bucket, or nothing of its bytes */
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct stk_keyring_key *key =
            places[i] ? stk_keyring_find(&draft->store->keyring, places[i]->bucket, places[i]->key)
                      : NULL;

        if (key && !draft->s3.tls && !stk_creds_is_private(draft->store->config.site.endpoint)) {
            return stk_fail(&draft->exchange->request.error, STOKER_ERROR_ARGUMENT,
                            "a customer's key would go out in plain text",
                            "use an endpoint of https", "'%.400s': %.300s", exchange->place->url,
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

/* By the dialect of the service. */
static int prepare_other(struct draft *draft)
{
    struct stk_exchange *exchange = draft->exchange;
    struct stk_service *service = stk_store_service(draft->store, exchange->place);
    struct stoker_error *error = &exchange->request.error;
    int64_t skew_s = atomic_load_explicit(&draft->store->skew_s, memory_order_relaxed);
    struct stk_wish wish = {
        .service = exchange->place->kind == STK_PLACE_GOOGLE  ? STK_CREDS_GOOGLE
                   : exchange->place->kind == STK_PLACE_AZURE ? STK_CREDS_AZURE
                                                              : STK_CREDS_HUB,
        .method = methods[exchange->method],
        .site = &service->site,
        .who = &service->credentials,
        .bucket = exchange->place->bucket,
        .key = exchange->query_count && !exchange->keyed ? "" : exchange->place->key,
        .query = exchange->query,
        .query_count = exchange->query_count,
        .headers = draft->signed_headers,
        .tree = exchange->tree,
        .deep = exchange->deep,
        .link = exchange->link,
        .body = exchange->request.body,
        .time_s = (uint64_t)((int64_t)(stk_clock_wall_ns() / 1000000000u) + skew_s),
        .cache = &service->sign_cache,
    };
    int status = service->status;

    if (status < 0) {
        *error = service->error;
        return status;
    }
    /* Refused at one landing it goes by the hub: another's may be as old. */
    exchange->landed =
        !exchange->tree && exchange->moves == 0 && exchange->place->landing->url != NULL;
    if (exchange->landed) { /* signed already, and nobody's token goes there */
        exchange->request.led = true;
        exchange->request.led_here = exchange->place->landing->here;
        exchange->request.url = print(&draft->room, "%s", exchange->place->landing->url);
        add_conditions(draft, false);
        return 0;
    }
    status = stk_creds_peek(service->creds, &service->credentials, error);
    if (status < 0) {
        return status;
    }
    exchange->generation = service->credentials.generation;
    add_conditions(draft, true);
    if (exchange->place->kind == STK_PLACE_AZURE && exchange->ranged && exchange->good == 0 &&
        exchange->bytes <= STK_STORE_RANGE_SEALED) {
        add_header(draft, "x-ms-range-get-content-crc64", "true", true);
    }
    for (uint32_t i = 0; i < exchange->more_count; i++) {
        add_header(draft, exchange->more[i].name, exchange->more[i].value, true);
    }
    wish.header_count = draft->signed_count;
    wish.room = draft->room.at;
    wish.room_bytes = draft->room.left;
    status = stk_dialect_make(&wish, error);
    draft->room.at += wish.used;
    draft->room.left -= wish.used;
    for (uint32_t i = 0; i < wish.line_count; i++) {
        STK_ASSERT(draft->header_count < STK_COUNT(exchange->headers));
        exchange->headers[draft->header_count++] = wish.lines[i];
    }
    exchange->request.url = wish.url;
    return status;
}

static int name_bucket(struct draft *draft, const char *region)
{
    const struct stk_place *place = draft->exchange->place;
    struct stk_s3_target target = {.site = &draft->store->config.site,
                                   .bucket = place->bucket,
                                   .zone = place->zone,
                                   .arn = place->arn,
                                   .region = region};
    int status = stk_s3_address(&target, &draft->s3, &draft->exchange->request.error);

    if (status == 0) {
        draft->path =
            print(&draft->room, "%s%s", draft->s3.root,
                  draft->exchange->query_count && !draft->exchange->keyed ? "" : place->key);
    }
    return status;
}

static int add_signature(struct draft *draft)
{
    const struct stk_exchange *exchange = draft->exchange;
    struct stk_store *store = draft->store;
    uint32_t sign_payload = store->config.site.settings.sign_payload;
    int64_t skew_s = atomic_load_explicit(&store->skew_s, memory_order_relaxed);
    const char *token_name = draft->session ? "x-amz-s3session-token" : "x-amz-security-token";
    char *hash = draft->room.at;
    struct stk_sign_headers made;
    struct stk_sign_request request = {
        .method = methods[exchange->method],
        .host = draft->s3.host,
        .path = draft->path,
        .query = exchange->query,
        .query_count = exchange->query_count,
        .headers = draft->signed_headers,
        .header_count = draft->signed_count,
        .payload = STK_SIGN_EMPTY,
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

    if (exchange->payload) {
        request.payload = exchange->payload;
    } else if (exchange->request.body.bytes > 0 && sign_payload != STK_SAID_YES &&
               (draft->s3.tls || sign_payload == STK_SAID_NO)) {
        request.payload = STK_SIGN_UNSIGNED; /* TLS proves it, or nobody is to */
    } else if (exchange->request.body.bytes > 0 && draft->room.left > 65) {
        stk_sign_hash(exchange->request.body, hash);
        request.payload = hash;
        draft->room.at += 65;
        draft->room.left -= 65;
    }
    status = stk_sign_headers(&request, &made);
    if (status < 0) {
        return stk_fail(&draft->exchange->request.error, status, "a request cannot be signed",
                        "look at the length of key, region and access key", "'%.200s'",
                        exchange->place->url);
    }
    add_header(draft, "x-amz-date", made.date, false);
    add_header(draft, "x-amz-content-sha256", request.payload, false);
    if (store->credentials.token[0]) {
        add_header(draft, token_name, store->credentials.token, false);
    }
    add_header(draft, "Authorization", made.authorization, false);
    return 0;
}
