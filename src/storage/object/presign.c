/* Signed URLs of objects of S3, which others may use without credentials. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define URL_BYTES (3 * STK_STORE_URL_BYTES_MAX + 8192u) /* encoded, and a token */

static const char *method_name(uint32_t method)
{
    return method == STK_HTTP_PUT ? "PUT" : "GET";
}

static int fail_kind(const struct stk_object_url *object, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "URLs of this store cannot be signed here",
                    object->kind == STK_OBJECT_URL_GCS     ? "use 'gcloud storage sign-url'"
                    : object->kind == STK_OBJECT_URL_AZURE ? "use 'az storage blob generate-sas'"
                                                           : "name an object of s3://",
                    "'%.400s'", object->url);
}

/* The region of the bucket: a signed URL is not redirected to another one. For Amazon's own
 * endpoints the server reports it; if it does not, the configured region is used. */
static void find_region(struct stk_store *store, const struct stk_object_url *object,
                        char region[STK_STORE_REGION_BYTES])
{
    char found[64];

    stk_store_get_region(store, object->bucket, region);
    if (store->config.site.endpoint[0] || object->zone || object->arn) {
        return;
    }
    if (stk_store_bucket_location(store, object, found, NULL) == 0 && found[0]) {
        memcpy(region, found, sizeof found);
    }
}

static int sign(struct stk_store *store, const struct stk_object_url *object,
                const struct stk_presign *presign, const struct stk_credentials *credentials,
                char *text, struct stoker_error *error)
{
    int64_t skew_s = atomic_load_explicit(&store->skew_s, memory_order_relaxed);
    char region[STK_STORE_REGION_BYTES], path[STK_STORE_URL_BYTES_MAX + 1024];
    struct stk_s3_target target = {.site = &store->config.site,
                                   .bucket = object->bucket,
                                   .zone = object->zone,
                                   .arn = object->arn,
                                   .region = region};
    struct stk_sigv4_pair version = {"versionId", object->version};
    struct stk_s3_endpoint address;
    struct stk_sigv4_request request;
    int status, bytes;

    find_region(store, object, region);
    status = stk_s3_endpoint_resolve(&target, &address, error);
    if (status < 0) {
        return status;
    }
    bytes = snprintf(path, sizeof path, "%s%s", address.root, object->key);
    request = (struct stk_sigv4_request){
        .method = method_name(presign->method),
        .host = address.host,
        .path = path,
        .query = &version,
        .query_count = object->version != NULL,
        .payload = STK_SIGV4_UNSIGNED_PAYLOAD,
        .region = address.region,
        .service = address.service,
        .access_key = credentials->access_key,
        .secret = credentials->secret,
        .token = credentials->token,
        .time_s = (uint64_t)((int64_t)(stk_clock_wall_ns() / 1000000000u) + skew_s)};
    if (bytes < (int)sizeof path) {
        bytes = snprintf(text, URL_BYTES, "http%s://%s", address.tls ? "s" : "", address.host);
        status = stk_sigv4_presign(&request, presign->expires_s, text + bytes,
                                   URL_BYTES - (size_t)bytes);
    }
    return status == 0 && bytes < (int)URL_BYTES
               ? 0
               : stk_fail(error, status < 0 ? status : STOKER_ERROR_LIMIT, "a URL cannot be signed",
                          "shorten the key", "'%.400s'", object->url);
}

int stk_store_presign(struct stk_store *store, const struct stk_object_url *object,
                      struct stk_presign *presign, struct stoker_error *error)
{
    uint32_t expires_s = presign->expires_s;
    struct stk_credentials *credentials = stk_pages_alloc(sizeof *credentials);
    char *text = stk_alloc(1, URL_BYTES);
    int status = credentials && text ? store->config.status : -ENOMEM;

    if (status < 0) {
        if (status == -ENOMEM) {
            stk_fail(error, status, "cannot sign a URL", "free memory", "'%.400s'", object->url);
        } else if (error) {
            *error = store->config.error;
        }
    } else if (object->kind != STK_OBJECT_URL_S3 || object->zone) {
        status = fail_kind(object, error);
    } else if (object->version && presign->method != STK_HTTP_GET) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a version cannot be written",
                          "leave out '?versionId='", "'%.400s'", object->url);
    } else if (!object->key[0]) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "a bucket is not an object",
                          "name a key in it", "'%.400s'", object->url);
    } else if (expires_s == 0 || expires_s > STK_SIGV4_EXPIRES_MAX_S) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "a signed URL cannot be valid so long",
                          "use 1 to 604,800 seconds: a week", "%u s", expires_s);
    }
    status = status < 0 ? status : stk_credential_provider_get(store->creds, credentials, error);
    if (status == 0 && credentials->kind != STK_CREDS_KEYS) {
        status = stk_fail(error, -EACCES, "there are no credentials to sign a URL with",
                          "run 'stoker creds explain URL' for the sources that are searched",
                          "'%.400s'", object->url);
    }
    if (status == 0) {
        status = sign(store, object, presign, credentials, text, error);
        presign->until_ns =
            stk_min(stk_clock_wall_ns() + expires_s * 1000000000ull, credentials->expires_ns);
    }
    if (credentials) {
        stk_credentials_wipe(credentials);
        stk_pages_free(credentials, sizeof *credentials);
    }
    if (status < 0) {
        stk_free(text);
        return status;
    }
    presign->url = text;
    return 0;
}
