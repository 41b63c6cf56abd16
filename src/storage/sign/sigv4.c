/* The signature of a canonical request, with a key derived from the secret, the day, the region and
 * the service. */
#include "storage/sign/sigv4.h"

#include "base/crypto/digest.h"
#include "base/text/text_match.h"
#include "storage/sign/sigv4_canonical.h"

#include <stdio.h>
#include <string.h>

#define ALGORITHM "AWS4-HMAC-SHA256"
#define SECRET_BYTES_MAX 1024u

static int check(const struct stk_sigv4_request *request);
static int scope_of(const struct stk_sigv4_request *request, const char *date, char *scope,
                    size_t scope_bytes);
static int sign(const struct stk_sigv4_request *request, const char *date, const char *scope,
                const char *hash, char signature_out[65]);
static void add_pair(struct stk_sigv4_sorted *sorted, const char *name, const char *value);

int stk_sigv4_sign_headers(const struct stk_sigv4_request *request,
                           struct stk_sigv4_headers *headers_out)
{
    struct stk_sigv4_sorted query = {.count = 0}, headers = {.count = 0};
    char scope[128], names[3072], hash[65], signature[65];
    int status = check(request);

    if (status < 0) {
        return status;
    }
    stk_sigv4_date(request->time_s, headers_out->date);
    for (uint32_t i = 0; i < request->query_count; i++) {
        query.pairs[query.count++] = request->query[i];
    }
    for (uint32_t i = 0; i < request->header_count; i++) {
        headers.pairs[headers.count++] = request->headers[i];
    }
    add_pair(&headers, "host", request->host);
    add_pair(&headers, "x-amz-date", headers_out->date);
    add_pair(&headers, "x-amz-content-sha256", request->payload);
    if (request->token && request->token[0]) {
        add_pair(&headers, request->token_name ? request->token_name : "x-amz-security-token",
                 request->token);
    }
    stk_sigv4_sort_query(&query);
    status = stk_sigv4_sort_headers(&headers);
    status = status < 0 ? status : stk_sigv4_signed_headers(&headers, names, sizeof names);
    status = status < 0 ? status : scope_of(request, headers_out->date, scope, sizeof scope);
    if (status < 0) {
        return status;
    }
    stk_sigv4_canonical_hash(request, &query, &headers, names, hash);
    status = sign(request, headers_out->date, scope, hash, signature);
    if (status < 0) {
        return status;
    }
    status = snprintf(headers_out->authorization, sizeof headers_out->authorization,
                      ALGORITHM " Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                      request->access_key, scope, names, signature);
    return status < (int)sizeof headers_out->authorization ? 0 : STOKER_ERROR_LIMIT;
}

int stk_sigv4_presign(const struct stk_sigv4_request *request, uint32_t expires_s, char *text,
                      size_t text_bytes)
{
    struct stk_sigv4_sorted query = {.count = 0}, headers = {.count = 0};
    char scope[128], names[3072], hash[65], signature[65], date[STK_SIGV4_DATE_BYTES];
    char credential[1024], expires[16];
    size_t used;
    int status = check(request);

    if (status < 0 || expires_s == 0 || expires_s > STK_SIGV4_EXPIRES_MAX_S) {
        return status < 0 ? status : STOKER_ERROR_ARGUMENT;
    }
    stk_sigv4_date(request->time_s, date);
    for (uint32_t i = 0; i < request->header_count; i++) {
        headers.pairs[headers.count++] = request->headers[i];
    }
    add_pair(&headers, "host", request->host);
    status = stk_sigv4_sort_headers(&headers);
    status = status < 0 ? status : stk_sigv4_signed_headers(&headers, names, sizeof names);
    status = status < 0 ? status : scope_of(request, date, scope, sizeof scope);
    if (status < 0 || snprintf(credential, sizeof credential, "%s/%s", request->access_key,
                               scope) >= (int)sizeof credential) {
        return status < 0 ? status : STOKER_ERROR_LIMIT;
    }
    snprintf(expires, sizeof expires, "%u", expires_s);
    for (uint32_t i = 0; i < request->query_count; i++) {
        query.pairs[query.count++] = request->query[i];
    }
    add_pair(&query, "X-Amz-Algorithm", ALGORITHM);
    add_pair(&query, "X-Amz-Credential", credential);
    add_pair(&query, "X-Amz-Date", date);
    add_pair(&query, "X-Amz-Expires", expires);
    add_pair(&query, "X-Amz-SignedHeaders", names);
    if (request->token && request->token[0]) {
        add_pair(&query, "X-Amz-Security-Token", request->token);
    }
    stk_sigv4_sort_query(&query);
    stk_sigv4_canonical_hash(request, &query, &headers, names, hash);
    status = sign(request, date, scope, hash, signature);
    status = status < 0
                 ? status
                 : stk_url_encode_target(request->path, query.pairs, query.count, text, text_bytes);
    if (status < 0) {
        return status;
    }
    used = strlen(text);
    return snprintf(text + used, text_bytes - used, "&X-Amz-Signature=%s", signature) <
                   (int)(text_bytes - used)
               ? 0
               : STOKER_ERROR_LIMIT;
}

static int check(const struct stk_sigv4_request *request)
{
    /* Reserves capacity for the pairs that this function adds. */
    if (request->query_count > STK_SIGV4_QUERY_MAX ||
        request->header_count > STK_SIGV4_HEADERS_MAX) {
        return STOKER_ERROR_LIMIT;
    }
    for (uint32_t i = 0; i < request->header_count; i++) {
        if (strlen(request->headers[i].name) > STK_SIGV4_NAME_BYTES_MAX) {
            return STOKER_ERROR_LIMIT;
        }
    }
    return 0;
}

static int scope_of(const struct stk_sigv4_request *request, const char *date, char *scope,
                    size_t scope_bytes)
{
    int bytes = snprintf(scope, scope_bytes, "%.8s/%s/%s/aws4_request", date, request->region,
                         request->service);

    return bytes < (int)scope_bytes ? 0 : STOKER_ERROR_LIMIT;
}

/* The key of the day: an HMAC chain over date, region, service. */
static int make_key(const struct stk_sigv4_request *request, const char *date, uint8_t key[32])
{
    const char *parts[] = {request->region, request->service, "aws4_request"};
    char secret[SECRET_BYTES_MAX], day[9];
    int bytes = snprintf(secret, sizeof secret, "AWS4%s", request->secret);

    if (bytes >= (int)sizeof secret) {
        explicit_bzero(secret, sizeof secret);
        return STOKER_ERROR_LIMIT;
    }
    memcpy(day, date, 8);
    day[8] = '\0';
    stk_sigv4_hmac(stk_view_of_text(secret), stk_view_of_text(day), key);
    for (size_t i = 0; i < STK_COUNT(parts); i++) {
        stk_sigv4_hmac((struct stk_view){key, 32}, stk_view_of_text(parts[i]), key);
    }
    explicit_bzero(secret, sizeof secret);
    return 0;
}

static int sign(const struct stk_sigv4_request *request, const char *date, const char *scope,
                const char *hash, char signature_out[65])
{
    struct stk_sigv4_key_cache *cache = request->cache;
    char text[384];
    uint8_t key[32], mac[32];
    int status = 0;

    if (cache && cache->generation == request->generation && strcmp(cache->scope, scope) == 0) {
        memcpy(key, cache->key, sizeof key);
    } else {
        status = make_key(request, date, key);
    }
    if (status < 0) {
        return status;
    }
    if (cache) {
        cache->generation = request->generation;
        memcpy(cache->scope, scope, strlen(scope) + 1); /* both are of 128 bytes */
        memcpy(cache->key, key, sizeof key);
    }
    if (snprintf(text, sizeof text, ALGORITHM "\n%s\n%s\n%s", date, scope, hash) >=
        (int)sizeof text) {
        status = STOKER_ERROR_LIMIT;
    } else {
        stk_sigv4_hmac((struct stk_view){key, 32}, stk_view_of_text(text), mac);
        stk_hex(mac, sizeof mac, signature_out);
    }
    explicit_bzero(key, sizeof key);
    return status;
}

/* check() left room: 32 of 64 places. */
static void add_pair(struct stk_sigv4_sorted *sorted, const char *name, const char *value)
{
    STK_ASSERT(sorted->count < STK_COUNT(sorted->pairs));
    sorted->pairs[sorted->count++] = (struct stk_sigv4_pair){name, value};
}
