/* https://docs.aws.amazon.com/STS/latest/APIReference: forms in, XML out. */
#include "storage/credentials/aws_sts.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"
#include "storage/config/s3_settings.h"
#include "storage/config/sso_cache.h"
#include "storage/sign/sigv4.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND 1000000000u
#define SSO_AHEAD_S 900u /* as botocore: refreshed so long before its end */
#define CLOCK_S 30

static stk_search_place from_session;

const struct stk_search_row stk_search_session[] = {{"s3-express-session", from_session}};
const size_t stk_search_session_count = STK_COUNT(stk_search_session);

/* Where STS is, and how a request to it is signed. */
struct place {
    char url[STK_SEARCH_URL_BYTES];
    char host[256], path[512];
    char region[64];
    char from[sizeof((struct stk_endpoint *)0)->from]; /* who names it; empty: nobody */
    bool fips;                                         /* its region's name says so */
};

static int find_place(const struct stk_profiles *profiles, struct place *place,
                      struct stoker_error *error);
static int ask_role(struct stk_search *search, const struct stk_sts_role *role,
                    const struct place *place, int64_t *skew_s, struct stk_credentials *found,
                    struct stoker_error *error);
static int fill_form(struct stk_ask *ask, const struct stk_sts_role *role,
                     struct stoker_error *error);
static int sign_form(struct stk_ask *ask, const struct place *place,
                     const struct stk_credentials *source, int64_t skew_s,
                     struct stoker_error *error);
static uint64_t their_time_s(int64_t skew_s);
static int take_role(const struct stk_ask *ask, const char *from, struct stk_credentials *found,
                     struct stoker_error *error);
static int sso_token(struct stk_search *search, const struct stk_sts_sso *sso,
                     struct stk_sso_token *token, struct stoker_error *error);
static int sso_refresh(struct stk_search *search, const struct stk_sts_sso *sso,
                       struct stk_sso_token *token, struct stoker_error *error);

int stk_sts_assume(struct stk_search *search, struct stk_sts_role *role,
                   struct stk_credentials *found, struct stoker_error *error)
{
    struct place place;
    int64_t skew_s = 0;
    int status = find_place(&search->profiles, &place, error);

    if (status < 0) {
        return status;
    }
    snprintf(role->asked, sizeof role->asked, "%s", place.host);
    status = ask_role(search, role, &place, &skew_s, found, error);
    if (status < 0 && skew_s != 0 && !role->token_file) { /* signed by a clock that is wrong */
        status = ask_role(search, role, &place, &skew_s, found, error);
    }
    return status < 0 ? status : 1;
}

/* *skew_s: from our clock to the server's, as far as is known; told anew by a refusal. */
static int ask_role(struct stk_search *search, const struct stk_sts_role *role,
                    const struct place *place, int64_t *skew_s, struct stk_credentials *found,
                    struct stoker_error *error)
{
    struct stk_ask *ask = stk_ask_open(STK_HTTP_POST);
    int status =
        ask ? 0 : stk_fail_errno(error, ENOMEM, "cannot ask for a role", "free memory", "STS");

    if (status == 0 && role->token_file) { /* which goes out as it is */
        status = stk_search_private(place->url, place->from, error);
    }
    status = status < 0 ? status : fill_form(ask, role, error);
    if (status == 0) {
        memcpy(ask->url, place->url, sizeof ask->url);
        stk_ask_header(ask, "Content-Type", "application/x-www-form-urlencoded; charset=utf-8");
        status = role->token_file ? 0 : sign_form(ask, place, found, *skew_s, error);
    }
    *skew_s = 0;
    status = status < 0 ? status : stk_ask_send(search, ask, "STS", error);
    if (status == 0 && ask->code == 200) {
        stk_creds_wipe(found);
        status = take_role(ask, "STS", found, error);
    } else if (status == 0) {
        *skew_s = stk_ask_skew_s(ask);
        status =
            stk_ask_refused(ask, "STS",
                            role->token_file ? "check the role's trust, and the identity's token"
                                             : "check the role's trust, and the source's keys",
                            error);
    }
    stk_ask_close(ask);
    return status;
}

int stk_sts_sso(struct stk_search *search, const struct stk_sts_sso *sso,
                struct stk_credentials *found, struct stoker_error *error)
{
    uint64_t expires_s = 0;
    const struct stk_tell_field fields[] = {
        {"roleCredentials.accessKeyId", STK_TELL_TEXT, found->access_key, sizeof found->access_key},
        {"roleCredentials.secretAccessKey", STK_TELL_TEXT, found->secret, sizeof found->secret},
        {"roleCredentials.sessionToken", STK_TELL_TEXT, found->token, sizeof found->token},
        {"roleCredentials.expiration", STK_TELL_MS, &expires_s, 0},
    };
    struct stk_ask *ask = stk_ask_open(STK_HTTP_GET);
    struct stk_sso_token *token = stk_sso_open();
    char base[STK_SEARCH_URL_BYTES / 2];
    int status = ask && token
                     ? sso_token(search, sso, token, error)
                     : stk_fail_errno(error, ENOMEM, "cannot ask for a role", "free memory", "SSO");

    if (status == 0) {
        status = stk_sts_sso_url(search, "portal.sso", sso->region, base, sizeof base, error);
    }
    if (status == 0) {
        size_t used = (size_t)snprintf(ask->url, sizeof ask->url,
                                       "%s/federation/credentials?role_name=", base);
        bool fits = stk_sign_encode(sso->role, false, ask->url, sizeof ask->url, &used) &&
                    used + 12 < sizeof ask->url;
        used += fits ? (size_t)snprintf(ask->url + used, 13, "&account_id=") : 0;
        fits = fits && stk_sign_encode(sso->account, false, ask->url, sizeof ask->url, &used);
        stk_ask_header(ask, "x-amz-sso_bearer_token", token->access);
        status = fits ? stk_ask_send(search, ask, "SSO's portal", error)
                      : stk_fail(error, STOKER_ERROR_LIMIT, "a role's name is too long",
                                 "correct the profile", "sso_role_name");
    }
    if (status == 0) {
        status = ask->code != 200
                     ? stk_ask_refused(ask, "SSO's portal", "run 'aws sso login'", error)
                     : stk_tell_json((struct stk_view){(uint8_t *)ask->text, ask->text_bytes},
                                     fields, STK_COUNT(fields), "the answer of SSO", error);
    }
    found->expires_ns = ask ? stk_ask_our_time(ask, expires_s) : 0;
    stk_sso_close(token);
    stk_ask_close(ask);
    return status < 0 ? status : 1;
}

/* The region's own endpoint; without a region the one of all, in us-east-1. */
static int name_host(const struct stk_profiles *profiles, struct place *place,
                     struct stoker_error *error)
{
    const char *region = stk_profiles_region(profiles) ? place->region : NULL;
    const struct stk_cloud *cloud = stk_cloud_of(place->region);
    struct stk_settings settings;
    int status = stk_settings_read(profiles, &settings, error);
    bool fips = place->fips || settings.fips == STK_SAID_YES;
    bool dual = settings.dual_stack == STK_SAID_YES;
    /* The government's usual hosts are FIPS's. */
    bool plain = !fips || (!dual && strcmp(cloud->name, "aws-us-gov") == 0);

    region = fips || dual ? place->region : region;
    snprintf(place->url, sizeof place->url, "https://sts%s%s%s.%s", plain ? "" : "-fips",
             region ? "." : "", region ? region : "", dual ? cloud->dual_domain : cloud->domain);
    return status;
}

static int find_place(const struct stk_profiles *profiles, struct place *place,
                      struct stoker_error *error)
{
    const char *region = stk_profiles_region(profiles), *host, *slash;
    struct stk_endpoint endpoint;
    int status = stk_settings_endpoint(profiles, "sts", &endpoint, error);

    if (status >= 0 && region && strlen(region) >= sizeof place->region) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the name of a region is too long",
                          "check AWS_REGION, and region in the config file", "%zu bytes",
                          strlen(region));
    }
    snprintf(place->region, sizeof place->region, "%s", region ? region : "us-east-1");
    place->fips = stk_region_plain(place->region);
    snprintf(place->url, sizeof place->url, "%s", endpoint.url);
    memcpy(place->from, endpoint.from, sizeof place->from);
    status = status == 0 ? name_host(profiles, place, error) : status;
    if (status < 0) {
        return status;
    }
    host = strstr(place->url, "://");
    if (!host || strpbrk(place->url, "?#@ \r\n")) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an endpoint is no URL",
                        "https://HOST is one", "AWS_ENDPOINT_URL_STS, or endpoint_url");
    }
    host += 3;
    slash = strchr(host, '/');
    if ((size_t)snprintf(place->host, sizeof place->host, "%.*s",
                         (int)(slash ? (size_t)(slash - host) : strlen(host)),
                         host) >= sizeof place->host ||
        (size_t)snprintf(place->path, sizeof place->path, "%s", slash ? slash : "/") >=
            sizeof place->path) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "AWS_ENDPOINT_URL_STS, or endpoint_url");
    }
    if (!slash) {
        size_t used = strlen(place->url);
        snprintf(place->url + used, sizeof place->url - used, "/");
    }
    return 0;
}

static int fill_form(struct stk_ask *ask, const struct stk_sts_role *role,
                     struct stoker_error *error)
{
    char session[64], token[STK_CREDS_TOKEN_BYTES_MAX];
    bool fits;
    int status = 0;

    snprintf(session, sizeof session, "stoker-session-%llu",
             (unsigned long long)(stk_clock_wall_ns() / SECOND));
    fits = stk_ask_field(ask, "Action",
                         role->token_file ? "AssumeRoleWithWebIdentity" : "AssumeRole") &&
           stk_ask_field(ask, "Version", "2011-06-15") &&
           stk_ask_field(ask, "RoleArn", role->arn) &&
           stk_ask_field(ask, "RoleSessionName", role->session ? role->session : session);
    if (role->external_id) {
        fits = fits && stk_ask_field(ask, "ExternalId", role->external_id);
    }
    if (role->duration && role->duration[0] &&
        strspn(role->duration, "0123456789") == strlen(role->duration)) {
        fits = fits && stk_ask_field(ask, "DurationSeconds", role->duration);
    }
    if (role->token_file) {
        status = stk_search_file(role->token_file, token, sizeof token, "the web identity's token",
                                 error);
        fits = fits && (status < 0 || stk_ask_field(ask, "WebIdentityToken", token));
        explicit_bzero(token, sizeof token);
    }
    if (status == 0 && !fits) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a role's settings are too long",
                          "correct the profile", "role_arn, role_session_name, external_id");
    }
    return status;
}

static uint64_t their_time_s(int64_t skew_s)
{
    return (uint64_t)((int64_t)(stk_clock_wall_ns() / SECOND) + skew_s);
}

static int sign_form(struct stk_ask *ask, const struct place *place,
                     const struct stk_credentials *source, int64_t skew_s,
                     struct stoker_error *error)
{
    struct stk_sign_headers *headers = stk_alloc(1, sizeof *headers);
    struct stk_sign_pair type = {"content-type",
                                 "application/x-www-form-urlencoded; charset=utf-8"};
    char payload[65];
    int status = -ENOMEM;

    stk_sign_hash((struct stk_view){(uint8_t *)ask->body, ask->body_bytes}, payload);
    if (headers) {
        const struct stk_sign_request request = {
            .method = "POST",
            .host = place->host,
            .path = place->path,
            .headers = &type,
            .header_count = 1,
            .payload = payload,
            .region = place->region,
            .service = "sts",
            .access_key = source->access_key,
            .secret = source->secret,
            .token = source->token,
            .time_s = their_time_s(skew_s),
        };
        status = stk_sign_headers(&request, headers);
    }
    if (status == 0) {
        stk_ask_header(ask, "Authorization", headers->authorization);
        stk_ask_header(ask, "x-amz-date", headers->date);
        stk_ask_header(ask, "x-amz-content-sha256", payload);
        if (source->token[0]) {
            stk_ask_header(ask, "x-amz-security-token", source->token);
        }
    } else {
        status = stk_fail(error, status, "a request to STS cannot be signed",
                          "check the keys and the endpoint", "'%s'", place->host);
    }
    if (headers) {
        explicit_bzero(headers, sizeof *headers);
    }
    stk_free(headers);
    return status;
}

static int take_role(const struct stk_ask *ask, const char *from, struct stk_credentials *found,
                     struct stoker_error *error)
{
    struct stk_view text = {(const uint8_t *)ask->text, ask->text_bytes};
    char expires[64];
    uint64_t seconds;

    if (!stk_tell_xml(text, "AccessKeyId", found->access_key, sizeof found->access_key) ||
        !stk_tell_xml(text, "SecretAccessKey", found->secret, sizeof found->secret) ||
        !stk_tell_xml(text, "SessionToken", found->token, sizeof found->token) ||
        !stk_tell_xml(text, "Expiration", expires, sizeof expires) ||
        !stk_tell_time(expires, &seconds)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "an answer has no credentials",
                        "look what answers there", "%s", from);
    }
    found->expires_ns = stk_ask_our_time(ask, seconds);
    return 0;
}

/* The token in SSO's cache; of a session, and near its end, refreshed first. */
static int sso_token(struct stk_search *search, const struct stk_sts_sso *sso,
                     struct stk_sso_token *token, struct stoker_error *error)
{
    const char *name = sso->session ? sso->session : sso->start_url;
    uint64_t now_s = stk_clock_wall_ns() / SECOND;
    struct stoker_error why = {0};
    int status = stk_sso_load(name, token, error);

    if (status == 0 && sso->session && token->expires_s < now_s + SSO_AHEAD_S) {
        status = sso_refresh(search, sso, token, &why);
        /* Where another process was quicker its token is there by now; else the old one may do. */
        status = status < 0 ? stk_sso_load(name, token, error) : 0;
    }
    if (status == 0 && token->expires_s <= now_s) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "the token of SSO is too old",
                          "run 'aws sso login'", "'%s'%s%s%s%.120s", token->shown,
                          why.status ? ": " : "", why.status ? why.what : "",
                          why.status ? ", " : "", why.where);
    }
    return status;
}

/* https://docs.aws.amazon.com/singlesignon/latest/OIDCAPIReference/API_CreateToken.html */
static int sso_refresh(struct stk_search *search, const struct stk_sts_sso *sso,
                       struct stk_sso_token *token, struct stoker_error *error)
{
    uint64_t now_s = stk_clock_wall_ns() / SECOND, life_s = 0;
    const struct stk_tell_field fields[] = {
        {"accessToken", STK_TELL_TEXT, token->access, sizeof token->access},
        {"expiresIn", STK_TELL_SECONDS, &life_s, 0},
        {"refreshToken", STK_TELL_OPTION, token->refresh, sizeof token->refresh},
    };
    const char *const members[][2] = {
        {"{\"grantType\":\"refresh_token\",\"clientId\":", token->client_id},
        {",\"clientSecret\":", token->client_secret},
        {",\"refreshToken\":", token->refresh},
        {"}", NULL}};
    struct stk_ask *ask;
    int status;

    if (!token->refresh[0] || !token->client_id[0] || !token->client_secret[0] ||
        token->registration_expires_s <= now_s) {
        return stk_fail(error, STOKER_ERROR_MISSING, "it cannot be refreshed",
                        "run 'aws sso login'", "no refresh token, or its client has ended");
    }
    ask = stk_ask_open(STK_HTTP_POST);
    if (!ask) {
        return stk_fail_errno(error, ENOMEM, "cannot refresh it", "free memory", "SSO");
    }
    status = stk_sts_sso_url(search, "oidc", sso->region, ask->url, sizeof ask->url / 2, error);
    memcpy(ask->url + strlen(ask->url), "/token", 7);
    stk_ask_header(ask, "Content-Type", "application/json");
    for (size_t i = 0; i < STK_COUNT(members) && status == 0; i++) {
        if (!stk_tell_member(members[i][0], members[i][1], ask->body, sizeof ask->body,
                             &ask->body_bytes)) {
            status = stk_fail(error, STOKER_ERROR_LIMIT, "it cannot be refreshed",
                              "run 'aws sso login'", "'%s'", token->shown);
        }
    }
    status = status < 0 ? status : stk_ask_send(search, ask, "SSO", error);
    if (status == 0) {
        status = ask->code == 200
                     ? stk_tell_json((struct stk_view){(uint8_t *)ask->text, ask->text_bytes},
                                     fields, STK_COUNT(fields), "the answer of SSO", error)
                     : stk_ask_refused(ask, "SSO", "run 'aws sso login'", error);
    }
    stk_ask_close(ask);
    if (status == 0) {
        token->expires_s = now_s + stk_min(life_s, 10 * 365 * 86400u);
        snprintf(token->start_url, sizeof token->start_url, "%s", sso->start_url);
        snprintf(token->region, sizeof token->region, "%s", sso->region);
        (void)stk_sso_save(token); /* where nothing may be written it is good for us all the same */
    }
    return status;
}

int stk_sts_sso_url(struct stk_search *search, const char *service, const char *region, char *out,
                    size_t out_bytes, struct stoker_error *error)
{
    const char *name = strcmp(service, "oidc") == 0 ? "sso_oidc" : "sso";
    struct stk_endpoint endpoint;
    int status = stk_settings_endpoint(&search->profiles, name, &endpoint, error);
    size_t bytes;

    snprintf(out, out_bytes, "%s", endpoint.url);
    if (status == 0) {
        snprintf(out, out_bytes, "https://%s.%.32s.%s", service, region,
                 stk_cloud_of(region)->domain);
    }
    bytes = strlen(out);
    if (bytes > 0 && out[bytes - 1] == '/') {
        out[bytes - 1] = 0;
    }
    return status < 0 ? status : stk_search_private(out, endpoint.from, error);
}

/* ---- sessions of S3 Express ----
 * https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateSession.html */

/* read_only: whoever may not have the other kind. */
static int sign_session(struct stk_ask *ask, const struct stk_creds_session *session,
                        const struct stk_credentials *source, bool read_only,
                        struct stoker_error *error)
{
    static const struct stk_sign_pair query = {"session", NULL};
    static const struct stk_sign_pair mode = {"x-amz-create-session-mode", "ReadOnly"};
    struct stk_sign_headers *headers = stk_alloc(1, sizeof *headers);
    int64_t skew_s = atomic_load_explicit(session->skew_s, memory_order_relaxed);
    char target[1024];
    int status = -ENOMEM;

    if (headers) {
        const struct stk_sign_request request = {
            .method = "GET",
            .host = session->host,
            .path = session->path,
            .query = &query,
            .query_count = 1,
            .headers = &mode,
            .header_count = read_only,
            .payload = STK_SIGN_EMPTY,
            .region = session->region,
            .service = "s3express",
            .access_key = source->access_key,
            .secret = source->secret,
            .token = source->token,
            .time_s = their_time_s(skew_s),
        };
        status = stk_sign_headers(&request, headers);
    }
    status = status < 0 ? status : stk_sign_target(session->path, &query, 1, target, sizeof target);
    if (status == 0) {
        snprintf(ask->url, sizeof ask->url, "%s://%s%s", session->scheme, session->host, target);
        stk_ask_header(ask, "Authorization", headers->authorization);
        stk_ask_header(ask, "x-amz-date", headers->date);
        stk_ask_header(ask, "x-amz-content-sha256", STK_SIGN_EMPTY);
        if (source->token[0]) {
            stk_ask_header(ask, "x-amz-security-token", source->token);
        }
        if (read_only) {
            stk_ask_header(ask, mode.name, mode.value);
        }
    } else {
        status = stk_fail(error, status, "a session of S3 Express cannot be asked for",
                          "check the keys and the endpoint", "'%s'", session->host);
    }
    if (headers) {
        explicit_bzero(headers, sizeof *headers);
    }
    stk_free(headers);
    return status;
}

/* What else may be asked for behind a refusal, each once. */
enum turn { TURN_NONE, TURN_CLOCK, TURN_KEYS, TURN_MODE, TURNS };

static enum turn turn_of(const struct stk_ask *ask, const struct stk_creds_session *session)
{
    static const char *const expired[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired",
                                          "ExpiredTokenException", "InvalidClientTokenId"};
    int64_t known_s = atomic_load_explicit(session->skew_s, memory_order_relaxed);
    int64_t skew_s = stk_ask_skew_s(ask);
    char code[STK_TELL_CODE_BYTES];

    stk_tell_code((struct stk_view){(const uint8_t *)ask->text, ask->text_bytes}, code);
    for (size_t i = 0; i < STK_COUNT(expired); i++) {
        if (strcmp(code, expired[i]) == 0) {
            return TURN_KEYS;
        }
    }
    if (ask->code / 100 == 4 && ask->date_ns != 0 && llabs(skew_s - known_s) > CLOCK_S) {
        atomic_store_explicit(session->skew_s, skew_s, memory_order_relaxed);
        return TURN_CLOCK; /* of all requests of the store from now on */
    }
    return ask->code == 403 ? TURN_MODE : TURN_NONE;
}

static int ask_session(struct stk_search *search, const struct stk_credentials *source,
                       bool read_only, enum turn *turn_out, struct stk_credentials *found,
                       struct stoker_error *error)
{
    const struct stk_creds_session *session = search->options->session;
    struct stk_ask *ask = stk_ask_open(STK_HTTP_GET);
    int status = ask ? sign_session(ask, session, source, read_only, error)
                     : stk_fail_errno(error, ENOMEM, "cannot ask for a session", "free memory",
                                      "S3 Express");

    *turn_out = TURN_NONE;
    status = status < 0 ? status : stk_ask_send(search, ask, "the bucket", error);
    if (status == 0 && ask->code == 200) {
        status = take_role(ask, session->host, found, error);
    } else if (status == 0) {
        *turn_out = turn_of(ask, session);
        status = stk_ask_refused(ask, session->host, "allow s3express:CreateSession on the bucket",
                                 error);
    }
    stk_ask_close(ask);
    return status;
}

static int find_source(const struct stk_creds_session *session, struct stk_credentials *source,
                       struct stoker_error *error)
{
    int status = stk_creds_get(session->base, source, error);

    if (status == 0 && source->kind != STK_CREDS_KEYS) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "a bucket of S3 Express wants credentials",
                          "'stoker creds explain URL' tells where they are looked for", "%s",
                          session->host);
    }
    return status;
}

/* By the server's clock, by keys that live, and to read where one may not write. */
static int from_session(struct stk_search *search, struct stk_credentials *found,
                        struct stoker_error *error)
{
    const struct stk_creds_session *session = search->options->session;
    struct stk_credentials *source = stk_pages_alloc(sizeof *source);
    bool turned[TURNS] = {[TURN_NONE] = true};
    enum turn turn = TURN_NONE;
    int status;

    if (!source) {
        return stk_fail_errno(error, ENOMEM, "cannot ask for a session", "free memory",
                              "S3 Express");
    }
    madvise(source, sizeof *source, MADV_DONTDUMP);
    status = find_source(session, source, error);
    if (status < 0 && source->kind == STK_CREDS_ANONYMOUS &&
        stk_creds_doubted(session->base, source->generation)) {
        status = find_source(session, source, error);
    }
    while (status == 0) {
        status = ask_session(search, source, turned[TURN_MODE], &turn, found, error);
        if (status == 0 || turned[turn]) {
            break;
        }
        turned[turn] = true;
        if (turn == TURN_KEYS) {
            stk_creds_refused(session->base, source->generation);
            status = find_source(session, source, error);
        } else {
            status = 0;
        }
    }
    snprintf(found->from, sizeof found->from, "a session of %.400s", session->host);
    explicit_bzero(source, sizeof *source);
    stk_pages_free(source, sizeof *source);
    return status < 0 ? status : 1;
}
