/* Small requests to services that issue credentials, with retries. */
#include "storage/credentials/credential_chain.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "io/clock.h"
#include "io/small_file.h"
#include "storage/config/s3_settings.h"
#include "storage/sign/sigv4.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

#define MS UINT64_C(1000000)
#define SKEW_S 30 /* clocks that are no further apart go together */

static bool is_retryable(const struct stk_auth_request *auth,
                         const struct stk_http_request *request);
static void copy_response(struct stk_auth_request *auth, const struct stk_http_response *answer,
                          const struct stk_http_request *request);
static uint64_t backoff_ns(const struct stk_credential_chain *search, uint32_t tries);

struct stk_auth_request *stk_auth_request_open(uint32_t method)
{
    struct stk_auth_request *auth = stk_pages_alloc(sizeof *auth);

    if (auth) {
        madvise(auth, sizeof *auth, MADV_DONTDUMP);
        memset(auth, 0, sizeof *auth);
        auth->method = method;
    }
    return auth;
}

void stk_auth_request_close(struct stk_auth_request *auth)
{
    if (auth) {
        explicit_bzero(auth, sizeof *auth);
        stk_pages_free(auth, sizeof *auth);
    }
}

void stk_auth_request_set_url(struct stk_auth_request *auth, const char *format, ...)
{
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(auth->url, sizeof auth->url, format, list);
    va_end(list);
    auth->is_cut |= bytes < 0 || (size_t)bytes >= sizeof auth->url;
}

void stk_auth_request_add_header(struct stk_auth_request *auth, const char *name, const char *value)
{
    char *text = auth->header_text[auth->header_count];

    STK_ASSERT(auth->header_count < STK_AUTH_REQUEST_HEADERS_MAX);
    auth->is_cut |= (size_t)snprintf(text, sizeof auth->header_text[0], "%s: %s", name, value) >=
                    sizeof auth->header_text[0];
    auth->headers[auth->header_count++] = text;
}

bool stk_auth_request_add_field(struct stk_auth_request *auth, const char *name, const char *value)
{
    size_t used = auth->body_bytes;
    int more =
        snprintf(auth->body + used, sizeof auth->body - used, "%s%s=", used ? "&" : "", name);

    if (more < 0 || (size_t)more >= sizeof auth->body - used) {
        return false;
    }
    used += (size_t)more;
    if (!stk_url_encode(value, false, auth->body, sizeof auth->body, &used)) {
        return false;
    }
    auth->body_bytes = used;
    return true;
}

static int check_request(const struct stk_credential_chain *search,
                         const struct stk_auth_request *auth, bool has_memory, const char *what,
                         struct stoker_error *error)
{
    if (auth->is_cut) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a request for credentials is too long",
                        "use a shorter endpoint, role or token", "%s", what);
    }
    if (!search->options->http) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "no service can be queried here",
                        "open it with a reactor", "%s", what);
    }
    return has_memory ? 0
                      : stk_fail_errno(error, ENOMEM, "cannot request credentials", "free memory",
                                       "%s", what);
}

int stk_auth_request_send(struct stk_credential_chain *search, struct stk_auth_request *auth,
                          const char *what, struct stoker_error *error)
{
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);
    uint32_t tries = auth->tries ? auth->tries : STK_CREDENTIAL_CHAIN_TRIES;
    int status;
    char of_profile[STK_AWS_PROFILE_PATH_BYTES] = ""; /* too long a path: S3 reports it */
    const char *ca_file = search->options->session ? search->options->session->ca_file : NULL;
    uint32_t silent = 0;
    uint64_t wait_ms = 0;

    status = check_request(search, auth, answer != NULL, what, error);
    if (status < 0) {
        stk_free(answer);
        return status;
    }
    if (search->options->service == STK_CREDS_AWS) {
        stk_s3_settings_ca_file(&search->profiles, of_profile, NULL);
        ca_file = of_profile[0] ? of_profile : NULL;
    }
    for (uint32_t i = 0;; i++) {
        uint64_t now_ns = stk_clock_ns(), begin_ns = now_ns + wait_ms * MS;
        uint64_t left_ms = search->until_ns > begin_ns ? (search->until_ns - begin_ns) / MS : 0;
        uint64_t most_ms = auth->total_ms ? auth->total_ms : STK_CREDENTIAL_CHAIN_REQUEST_MS;
        struct stk_http_request request = {
            .method = auth->method,
            .url = auth->url,
            .headers = auth->headers,
            .header_count = auth->header_count,
            .body = {(const uint8_t *)auth->body, auth->body_bytes},
            .buffer = (uint8_t *)auth->text,
            .buffer_bytes = STK_AUTH_RESPONSE_BYTES_MAX,
            .secret = true,
            .no_proxy = auth->direct,
            .ca_file = ca_file,
            .connect_ms = auth->connect_ms ? auth->connect_ms : STK_CREDENTIAL_CHAIN_REQUEST_MS,
            .first_byte_ms = (uint32_t)most_ms,
            .total_ms = (uint32_t)stk_min(most_ms, left_ms),
            .not_before_ns = begin_ns,
        };
        if (left_ms == 0) {
            status =
                i > 0 ? status
                      : stk_fail(error, STOKER_ERROR_TIMEOUT, "credentials take too long",
                                 "run 'stoker creds explain URL' for the sources that are searched",
                                 "%s", what);
            break;
        }
        status = stk_http_call(search->options->http, &request, answer, error);
        auth->code = status == 0 ? answer->code : 0;
        copy_response(auth, answer, &request);
        silent += status < 0;
        if (!is_retryable(auth, &request) || silent == tries ||
            i + 1 == stk_max(tries, STK_CREDENTIAL_CHAIN_BUSY_TRIES)) {
            break;
        }
        wait_ms = backoff_ns(search, i);
    }
    explicit_bzero(answer, sizeof *answer);
    stk_free(answer);
    return status;
}

int stk_auth_request_fail(const struct stk_auth_request *auth, const char *what, const char *advice,
                          struct stoker_error *error)
{
    char code[STK_AUTH_RESPONSE_CODE_BYTES];

    stk_auth_response_code((struct stk_view){(const uint8_t *)auth->text, auth->text_bytes}, code);
    return stk_fail(error, -EACCES, "credentials were refused", advice, "%s: status %u%s%s", what,
                    auth->code, code[0] ? ", " : "", code);
}

/* Copies the text and the server's headers, and nothing of an earlier response. */
static void copy_response(struct stk_auth_request *auth, const struct stk_http_response *answer,
                          const struct stk_http_request *request)
{
    struct stk_view value;
    uint64_t seconds;

    auth->text_bytes = request->bytes;
    auth->google = false;
    auth->date_ns = 0;
    if (auth->code != 0) {
        if (auth->code / 100 != 2) {
            auth->text_bytes = answer->text_bytes;
            memcpy(auth->text, answer->text, answer->text_bytes);
        }
        auth->google = stk_http_header(answer, "Metadata-Flavor", &value) && value.bytes == 6 &&
                       memcmp(value.data, "Google", 6) == 0;
        if (stk_http_header(answer, "Date", &value) && stk_auth_response_date(value, &seconds)) {
            auth->date_ns = seconds * 1000 * MS;
        }
    }
    auth->text[auth->text_bytes] = 0;
}

/* Doubles with each try. Half of the time is random, so that many clients do not retry at
 * once. */
static uint64_t backoff_ns(const struct stk_credential_chain *search, uint32_t tries)
{
    uint32_t first_ms = search->options->backoff_ms;
    uint64_t wait_ms = (uint64_t)(first_ms ? first_ms : STK_CREDENTIAL_CHAIN_BACKOFF_MS)
                       << stk_min(tries, 8);

    return wait_ms - stk_mix64(stk_clock_wall_ns()) % (wait_ms / 2 + 1);
}

/* Codes of throttling that services also send with 400 and 403. STS reports
 * IDPCommunicationError if it did not reach the identity provider. */
static bool is_throttle(const char *code)
{
    static const char *const codes[] = {"Throttling",
                                        "ThrottlingException",
                                        "ThrottledException",
                                        "RequestThrottled",
                                        "RequestThrottledException",
                                        "RequestLimitExceeded",
                                        "TooManyRequestsException",
                                        "BandwidthLimitExceeded",
                                        "PriorRequestNotComplete",
                                        "EC2ThrottledException",
                                        "SlowDown",
                                        "IDPCommunicationError",
                                        "RequestTimeout",
                                        "RequestTimeoutException",
                                        "ServiceUnavailable",
                                        "InternalError",
                                        "temporarily_unavailable",
                                        "internal_failure",
                                        "server_error",
                                        "slow_down"};

    for (size_t i = 0; i < STK_COUNT(codes); i++) {
        if (strcmp(codes[i], code) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_auth_request_is_busy(const struct stk_auth_request *auth)
{
    char code[STK_AUTH_RESPONSE_CODE_BYTES];

    if (auth->code == 408 || auth->code == 410 || auth->code == 429 || auth->code >= 500 ||
        (auth->code == 404 && auth->retry_not_found)) {
        return true;
    }
    if (auth->code / 100 != 4) {
        return false;
    }
    stk_auth_response_code((struct stk_view){(const uint8_t *)auth->text, auth->text_bytes}, code);
    return is_throttle(code);
}

int64_t stk_auth_request_skew_s(const struct stk_auth_request *auth)
{
    int64_t ours_s = (int64_t)(stk_clock_wall_ns() / (1000 * MS));
    int64_t theirs_s = (int64_t)(auth->date_ns / (1000 * MS));

    return theirs_s == 0 || llabs(theirs_s - ours_s) <= SKEW_S ? 0 : theirs_s - ours_s;
}

uint64_t stk_auth_request_local_time(const struct stk_auth_request *auth, uint64_t theirs_s)
{
    int64_t skew_s = stk_auth_request_skew_s(auth);
    uint64_t most_s = UINT64_MAX / 2 / (1000 * MS), ours_s = stk_min(theirs_s, most_s);

    if (skew_s > 0) {
        ours_s -= stk_min(ours_s, (uint64_t)skew_s);
    } else {
        ours_s += (uint64_t)-skew_s;
    }
    return ours_s * 1000 * MS;
}

static bool is_retryable(const struct stk_auth_request *auth,
                         const struct stk_http_request *request)
{
    switch ((enum stk_http_failure)request->failure) {
    case STK_HTTP_NO_FAILURE:
        return stk_auth_request_is_busy(auth);
    case STK_HTTP_RESOLVE:
        return !auth->direct; /* elsewhere a cloud's own names are in no directory */
    case STK_HTTP_CONNECT:
    case STK_HTTP_RESET:
    case STK_HTTP_BROKEN:
    case STK_HTTP_FIRST_BYTE:
    case STK_HTTP_STALL:
    case STK_HTTP_SLOW:
    case STK_HTTP_TOTAL:
        return true;
    case STK_HTTP_TLS:
    case STK_HTTP_CANCELLED:
    case STK_HTTP_REJECTED:
    case STK_HTTP_LIMIT:
    case STK_HTTP_REDIRECT:
    case STK_HTTP_OTHER:
        break;
    }
    return false;
}
