/* Sessions of S3 Express: keys of one bucket, for five minutes, in exchange for other keys.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateSession.html */
#include "storage/credentials/aws_sts.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "storage/sign/sigv4.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CLOCK_S 30 /* clocks that differ by less are taken to agree */

/* read_only: for identities that may not open a session for writing. */
static int sign_session(struct stk_auth_request *auth, const struct stk_credential_session *session,
                        const struct stk_credentials *source, bool read_only,
                        struct stoker_error *error)
{
    static const struct stk_sigv4_pair query = {"session", NULL};
    static const struct stk_sigv4_pair mode = {"x-amz-create-session-mode", "ReadOnly"};
    struct stk_sigv4_headers *headers = stk_alloc(1, sizeof *headers);
    int64_t skew_s = atomic_load_explicit(session->skew_s, memory_order_relaxed);
    char target[1024];
    int status = -ENOMEM;

    if (headers) {
        const struct stk_sigv4_request request = {
            .method = "GET",
            .host = session->host,
            .path = session->path,
            .query = &query,
            .query_count = 1,
            .headers = &mode,
            .header_count = read_only,
            .payload = STK_SIGV4_EMPTY_HASH,
            .region = session->region,
            .service = "s3express",
            .access_key = source->access_key,
            .secret = source->secret,
            .token = source->token,
            .time_s = stk_sts_server_time_s(skew_s),
        };
        status = stk_sigv4_sign_headers(&request, headers);
    }
    status = status < 0 ? status
                        : stk_url_encode_target(session->path, &query, 1, target, sizeof target);
    if (status == 0) {
        stk_auth_request_set_url(auth, "%s://%s%s", session->scheme, session->host, target);
        stk_auth_request_add_header(auth, "Authorization", headers->authorization);
        stk_auth_request_add_header(auth, "x-amz-date", headers->date);
        stk_auth_request_add_header(auth, "x-amz-content-sha256", STK_SIGV4_EMPTY_HASH);
        if (source->token[0]) {
            stk_auth_request_add_header(auth, "x-amz-security-token", source->token);
        }
        if (read_only) {
            stk_auth_request_add_header(auth, mode.name, mode.value);
        }
    } else {
        status = stk_fail(error, status, "a session of S3 Express cannot be requested",
                          "check the keys and the endpoint", "'%s'", session->host);
    }
    if (headers) {
        explicit_bzero(headers, sizeof *headers);
    }
    stk_free(headers);
    return status;
}

/* The requests that may follow a refusal, each at most once. */
enum recovery { RECOVERY_NONE, RECOVERY_CLOCK, RECOVERY_KEYS, RECOVERY_MODE, RECOVERIES };

static enum recovery recovery_of(const struct stk_auth_request *auth,
                                 const struct stk_credential_session *session)
{
    static const char *const expired[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired",
                                          "ExpiredTokenException", "InvalidClientTokenId"};
    int64_t known_s = atomic_load_explicit(session->skew_s, memory_order_relaxed);
    int64_t skew_s = stk_auth_request_skew_s(auth);
    char code[STK_AUTH_RESPONSE_CODE_BYTES];

    stk_auth_response_code((struct stk_view){(const uint8_t *)auth->text, auth->text_bytes}, code);
    for (size_t i = 0; i < STK_COUNT(expired); i++) {
        if (strcmp(code, expired[i]) == 0) {
            return RECOVERY_KEYS;
        }
    }
    if (auth->code / 100 == 4 && auth->date_ns != 0 && llabs(skew_s - known_s) > CLOCK_S) {
        atomic_store_explicit(session->skew_s, skew_s, memory_order_relaxed);
        return RECOVERY_CLOCK; /* of all requests of the store from now on */
    }
    return auth->code == 403 ? RECOVERY_MODE : RECOVERY_NONE;
}

static int request_session(struct stk_credential_chain *search,
                           const struct stk_credentials *source, bool read_only,
                           enum recovery *turn_out, struct stk_credentials *found,
                           struct stoker_error *error)
{
    const struct stk_credential_session *session = search->options->session;
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_GET);
    int status = auth ? sign_session(auth, session, source, read_only, error)
                      : stk_fail_errno(error, ENOMEM, "cannot request a session", "free memory",
                                       "S3 Express");

    *turn_out = RECOVERY_NONE;
    status = status < 0 ? status : stk_auth_request_send(search, auth, "the bucket", error);
    if (status == 0 && auth->code == 200) {
        status = stk_sts_read_role(auth, session->host, found, error);
    } else if (status == 0) {
        *turn_out = recovery_of(auth, session);
        status = stk_auth_request_fail(auth, session->host,
                                       "allow s3express:CreateSession on the bucket", error);
    }
    stk_auth_request_close(auth);
    return status;
}

static int find_source(const struct stk_credential_session *session, struct stk_credentials *source,
                       struct stoker_error *error)
{
    int status = stk_credential_provider_get(session->base, source, error);

    if (status == 0 && source->kind != STK_CREDS_KEYS) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "a bucket of S3 Express needs credentials",
                          "run 'stoker creds explain URL' for the sources that are searched", "%s",
                          session->host);
    }
    return status;
}

/* Opens a session. After a refusal, corrects the clock, renews the keys or requests a read-only
 * session, each at most once. */
static int from_session(struct stk_credential_chain *search, struct stk_credentials *found,
                        struct stoker_error *error)
{
    const struct stk_credential_session *session = search->options->session;
    struct stk_credentials *source = stk_pages_alloc(sizeof *source);
    bool turned[RECOVERIES] = {[RECOVERY_NONE] = true};
    enum recovery recovery = RECOVERY_NONE;
    int status;

    if (!source) {
        return stk_fail_errno(error, ENOMEM, "cannot request a session", "free memory",
                              "S3 Express");
    }
    madvise(source, sizeof *source, MADV_DONTDUMP);
    status = find_source(session, source, error);
    if (status < 0 && source->kind == STK_CREDS_ANONYMOUS &&
        stk_credential_provider_retry_anonymous(session->base, source->generation)) {
        status = find_source(session, source, error);
    }
    while (status == 0) {
        status = request_session(search, source, turned[RECOVERY_MODE], &recovery, found, error);
        if (status == 0 || turned[recovery]) {
            break;
        }
        turned[recovery] = true;
        if (recovery == RECOVERY_KEYS) {
            stk_credential_provider_invalidate(session->base, source->generation);
            status = find_source(session, source, error);
        } else {
            status = 0;
        }
    }
    snprintf(found->source, sizeof found->source, "a session of %.400s", session->host);
    explicit_bzero(source, sizeof *source);
    stk_pages_free(source, sizeof *source);
    return status < 0 ? status : 1;
}

/* This file uses providers: so the provider of a session gets the lookup by its options. */
int stk_s3_express_provider_open(struct stk_credential_provider **provider_out,
                                 const struct stk_credential_options *options,
                                 struct stoker_error *error)
{
    static const struct stk_credential_source source = {"s3-express-session", from_session};
    struct stk_credential_options session_options = *options;

    session_options.service = STK_CREDS_S3_EXPRESS;
    session_options.session_source = &source;
    return stk_credential_provider_open(provider_out, &session_options, error);
}
