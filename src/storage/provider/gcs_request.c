/* Google Cloud Storage by its XML interface: S3's words, path style. */
#include "storage/provider/provider.h"

#include "storage/config/aws_profile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int sign(struct stk_wish *wish, const char *host, const char *path,
                struct stoker_error *error);

/* An endpoint that somebody set; else that of the credentials' universe. NULL: no room. */
static const char *endpoint_of(struct stk_wish *wish)
{
    bool own = wish->site->endpoint_from[0] != '\0';

    return own || !wish->who->universe[0]
               ? wish->site->endpoint
               : stk_wish_print(wish, "https://storage.%s", wish->who->universe);
}

int stk_dialect_google(struct stk_wish *wish, struct stoker_error *error)
{
    const char *endpoint = endpoint_of(wish), *payer = stk_environment("GS_USER_PROJECT");
    const char *project = wish->who->project; /* whose quota it is */
    const char *rest = endpoint ? strstr(endpoint, "://") + 3 : "";
    size_t host_bytes = strcspn(rest, "/");
    char *host = endpoint ? stk_wish_print(wish, "%.*s", (int)host_bytes, rest) : NULL;
    char *path, *url;
    int status = 0;

    path =
        host ? stk_wish_print(wish, "%s/%s/%s", rest + host_bytes, wish->bucket, wish->key) : NULL;
    if (!path) {
        return 0;
    }
    /* Objects that are stored as gzip come as they are stored: else lengths are not theirs. */
    stk_wish_line(wish, "Accept-Encoding", "gzip");
    payer = payer || !project[0] ? payer : project;
    if (payer && !strpbrk(payer, "\r\n")) {
        stk_wish_line(wish, "x-goog-user-project", payer);
    }
    if (wish->who->kind == STK_CREDS_BEARER) {
        stk_wish_bearer(wish);
    } else if (wish->who->kind == STK_CREDS_KEYS) {
        status = sign(wish, host, path, error);
    }
    url = status == 0 ? stk_wish_print(wish, "%.*s", (int)((size_t)(rest - endpoint) + host_bytes),
                                       endpoint)
                      : NULL;
    if (url) {
        wish->used--; /* the path goes on where the host ends */
        if (stk_sign_target(path, wish->query, wish->query_count, wish->room + wish->used,
                            wish->room_bytes - wish->used) == 0) {
            wish->used += strlen(wish->room + wish->used) + 1;
            wish->url = url;
        }
    }
    return status;
}

/* Keys of interoperability: Amazon's signature for the region "auto".
 * https://cloud.google.com/storage/docs/aws-simple-migration */
static int sign(struct stk_wish *wish, const char *host, const char *path,
                struct stoker_error *error)
{
    char hash[65] = STK_SIGN_EMPTY;
    struct stk_sign_headers made;
    struct stk_sign_request request = {
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
        .access_key = wish->who->access_key,
        .secret = wish->who->secret,
        .time_s = wish->time_s,
        .cache = wish->cache,
        .generation = wish->who->generation,
    };
    int status;

    if (wish->body.bytes > 0 && strncasecmp(wish->site->endpoint, "https", 5) == 0) {
        request.payload = STK_SIGN_UNSIGNED; /* TLS proves it */
    } else if (wish->body.bytes > 0) {
        stk_sign_hash(wish->body, hash);
    }
    status = stk_sign_headers(&request, &made);
    if (status < 0) {
        return stk_fail(error, status, "a request cannot be signed",
                        "look at the length of key and access key", "gs://%.100s", wish->bucket);
    }
    stk_wish_line(wish, "x-amz-date", made.date);
    stk_wish_line(wish, "x-amz-content-sha256", request.payload);
    stk_wish_line(wish, "Authorization", made.authorization);
    return 0;
}
