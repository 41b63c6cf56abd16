/* Google Cloud Storage by its XML API: S3's requests, path style. */
#include "storage/provider/provider.h"

#include "storage/config/aws_profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int sign(struct stk_provider_request *wish, const char *host, const char *path,
                struct stoker_error *error);

/* An endpoint that somebody set; else that of the credentials' universe. NULL: no room. */
static const char *endpoint_of(struct stk_provider_request *wish)
{
    bool own = wish->site->endpoint_source[0] != '\0';

    return own || !wish->credentials->universe[0]
               ? wish->site->endpoint
               : stk_provider_request_print(wish, "https://storage.%s",
                                            wish->credentials->universe);
}

int stk_provider_request_google(struct stk_provider_request *wish, struct stoker_error *error)
{
    const char *endpoint = endpoint_of(wish), *payer = stk_environment_get("GS_USER_PROJECT");
    const char *project = wish->credentials->project; /* whose quota it is */
    const char *rest = endpoint ? strstr(endpoint, "://") + 3 : "";
    size_t host_bytes = strcspn(rest, "/");
    char *host = endpoint ? stk_provider_request_print(wish, "%.*s", (int)host_bytes, rest) : NULL;
    char *path, *url;
    int status = 0;

    path = host ? stk_provider_request_print(wish, "%s/%s/%s", rest + host_bytes, wish->bucket,
                                             wish->key)
                : NULL;
    if (!path) {
        return 0;
    }
    /* Objects that are stored as gzip come as they are stored: else lengths are not theirs. */
    stk_provider_request_add_header(wish, "Accept-Encoding", "gzip");
    payer = payer || !project[0] ? payer : project;
    if (payer && !strpbrk(payer, "\r\n")) {
        stk_provider_request_add_header(wish, "x-goog-user-project", payer);
    }
    if (wish->credentials->kind == STK_CREDS_BEARER) {
        stk_provider_request_add_bearer(wish);
    } else if (wish->credentials->kind == STK_CREDS_KEYS) {
        status = sign(wish, host, path, error);
    }
    url = status == 0 ? stk_provider_request_print(
                            wish, "%.*s", (int)((size_t)(rest - endpoint) + host_bytes), endpoint)
                      : NULL;
    if (url) {
        wish->buffer_used--; /* the path goes on where the host ends */
        if (stk_url_encode_target(path, wish->query, wish->query_count,
                                  wish->buffer + wish->buffer_used,
                                  wish->buffer_bytes - wish->buffer_used) == 0) {
            wish->buffer_used += strlen(wish->buffer + wish->buffer_used) + 1;
            wish->url = url;
        }
    }
    return status;
}

/* Keys of interoperability: Amazon's signature for the region "auto".
 * https://cloud.google.com/storage/docs/aws-simple-migration */
static int sign(struct stk_provider_request *wish, const char *host, const char *path,
                struct stoker_error *error)
{
    char hash[65] = STK_SIGV4_EMPTY_HASH;
    struct stk_sigv4_headers made;
    struct stk_sigv4_request request = {
        .method = wish->method,
        .host = host,
        .path = path,
        .query = wish->query,
        .query_count = wish->query_count,
        .headers = wish->headers,
        .header_count = wish->header_count,
        .payload = hash,
        .region = "auto",
        .service = "s3",
        .access_key = wish->credentials->access_key,
        .secret = wish->credentials->secret,
        .time_s = wish->time_s,
        .cache = wish->cache,
        .generation = wish->credentials->generation,
    };
    int status;

    if (wish->body.bytes > 0 && strncasecmp(wish->site->endpoint, "https", 5) == 0) {
        request.payload = STK_SIGV4_UNSIGNED_PAYLOAD; /* TLS proves it */
    } else if (wish->body.bytes > 0) {
        stk_sigv4_hash(wish->body, hash);
    }
    status = stk_sigv4_sign_headers(&request, &made);
    if (status < 0) {
        return stk_fail(error, status, "a request cannot be signed",
                        "look at the length of key and access key", "gs://%.100s", wish->bucket);
    }
    stk_provider_request_add_header(wish, "x-amz-date", made.date);
    stk_provider_request_add_header(wish, "x-amz-content-sha256", request.payload);
    stk_provider_request_add_header(wish, "Authorization", made.authorization);
    return 0;
}
