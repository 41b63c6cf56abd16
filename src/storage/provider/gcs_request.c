/* Google Cloud Storage by its XML API: S3's requests, path style. */
#include "storage/provider/provider.h"

#include "storage/config/aws_profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int sign(struct stk_provider_request *request, const char *host, const char *path,
                struct stoker_error *error);

/* Returns the configured endpoint, or that of the credentials' universe. Returns NULL if it does
 * not fit. */
static const char *endpoint_of(struct stk_provider_request *request)
{
    bool own = request->site->endpoint_source[0] != '\0';

    return own || !request->credentials->universe[0]
               ? request->site->endpoint
               : stk_provider_request_print(request, "https://storage.%s",
                                            request->credentials->universe);
}

int stk_provider_request_google(struct stk_provider_request *request, struct stoker_error *error)
{
    const char *endpoint = endpoint_of(request), *payer = stk_environment_get("GS_USER_PROJECT");
    const char *project = request->credentials->project; /* whose quota it is */
    const char *rest = endpoint ? strstr(endpoint, "://") + 3 : "";
    size_t host_bytes = strcspn(rest, "/");
    char *host =
        endpoint ? stk_provider_request_print(request, "%.*s", (int)host_bytes, rest) : NULL;
    char *path, *url;
    int status = 0;

    path = host ? stk_provider_request_print(request, "%s/%s/%s", rest + host_bytes,
                                             request->bucket, request->key)
                : NULL;
    if (!path) {
        return 0;
    }
    /* Objects that are stored as gzip are received as gzip: otherwise the lengths would not
     * match. */
    stk_provider_request_add_header(request, "Accept-Encoding", "gzip");
    payer = payer || !project[0] ? payer : project;
    if (payer && !strpbrk(payer, "\r\n")) {
        stk_provider_request_add_header(request, "x-goog-user-project", payer);
    }
    if (request->credentials->kind == STK_CREDS_BEARER) {
        stk_provider_request_add_bearer(request);
    } else if (request->credentials->kind == STK_CREDS_KEYS) {
        status = sign(request, host, path, error);
    }
    url = status == 0
              ? stk_provider_request_print(request, "%.*s",
                                           (int)((size_t)(rest - endpoint) + host_bytes), endpoint)
              : NULL;
    if (url) {
        request->buffer_used--; /* the path continues at the end of the host */
        if (stk_url_encode_target(path, request->query, request->query_count,
                                  request->buffer + request->buffer_used,
                                  request->buffer_bytes - request->buffer_used) == 0) {
            request->buffer_used += strlen(request->buffer + request->buffer_used) + 1;
            request->url = url;
        }
    }
    return status;
}

/* Keys of interoperability: Amazon's signature for the region "auto".
 * https://cloud.google.com/storage/docs/aws-simple-migration */
static int sign(struct stk_provider_request *request, const char *host, const char *path,
                struct stoker_error *error)
{
    char hash[65] = STK_SIGV4_EMPTY_HASH;
    struct stk_sigv4_headers made;
    struct stk_sigv4_request signing = {
        .method = request->method,
        .host = host,
        .path = path,
        .query = request->query,
        .query_count = request->query_count,
        .headers = request->headers,
        .header_count = request->header_count,
        .payload = hash,
        .region = "auto",
        .service = "s3",
        .access_key = request->credentials->access_key,
        .secret = request->credentials->secret,
        .time_s = request->time_s,
        .cache = request->cache,
        .generation = request->credentials->generation,
    };
    int status;

    if (request->body.bytes > 0 && strncasecmp(request->site->endpoint, "https", 5) == 0) {
        signing.payload = STK_SIGV4_UNSIGNED_PAYLOAD; /* TLS proves it */
    } else if (request->body.bytes > 0) {
        stk_sigv4_hash(request->body, hash);
    }
    status = stk_sigv4_sign_headers(&signing, &made);
    if (status < 0) {
        return stk_fail(error, status, "a request cannot be signed",
                        "look at the length of key and access key", "gs://%.100s", request->bucket);
    }
    stk_provider_request_add_header(request, "x-amz-date", made.date);
    stk_provider_request_add_header(request, "x-amz-content-sha256", signing.payload);
    stk_provider_request_add_header(request, "Authorization", made.authorization);
    return 0;
}
