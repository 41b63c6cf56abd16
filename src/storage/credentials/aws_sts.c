/* STS and SSO. STS: https://docs.aws.amazon.com/STS/latest/APIReference, forms and XML. */
#include "storage/credentials/aws_sts.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"
#include "storage/config/s3_settings.h"
#include "storage/config/sso_cache.h"
#include "storage/sign/sigv4.h"
#include "storage/url/url_split.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SECOND 1000000000u
#define SSO_AHEAD_S 900u /* as botocore: refreshed so long before its end */
#define CLOCK_S 30

/* The endpoint of STS, and how a request to it is signed. */
struct sts_endpoint {
    char url[STK_AUTH_REQUEST_URL_BYTES];
    char host[256], path[512];
    char region[64];
    /* where it is configured; empty: nowhere */
    char from[sizeof((struct stk_service_endpoint *)0)->source];
    /* derived from the region's name */
    bool fips;
};

static int find_sts_endpoint(const struct stk_aws_profile *profiles,
                             struct sts_endpoint *sts_endpoint, struct stoker_error *error);
static int request_role(struct stk_credential_chain *search, const struct stk_sts_role *role,
                        const struct sts_endpoint *sts_endpoint, int64_t *skew_s,
                        struct stk_credentials *found, struct stoker_error *error);
static int fill_form(struct stk_auth_request *auth, const struct stk_sts_role *role,
                     struct stoker_error *error);
static int sign_form(struct stk_auth_request *auth, const struct sts_endpoint *sts_endpoint,
                     const struct stk_credentials *source, int64_t skew_s,
                     struct stoker_error *error);
static int sso_token(struct stk_credential_chain *search, const struct stk_sts_sso *sso,
                     struct stk_sso_token *token, struct stoker_error *error);
static int sso_refresh(struct stk_credential_chain *search, const struct stk_sts_sso *sso,
                       struct stk_sso_token *token, struct stoker_error *error);

int stk_sts_assume_role(struct stk_credential_chain *search, struct stk_sts_role *role,
                        struct stk_credentials *found, struct stoker_error *error)
{
    struct sts_endpoint sts_endpoint;
    int64_t skew_s = 0;
    int status = find_sts_endpoint(&search->profiles, &sts_endpoint, error);

    if (status < 0) {
        return status;
    }
    snprintf(role->host, sizeof role->host, "%s", sts_endpoint.host);
    status = request_role(search, role, &sts_endpoint, &skew_s, found, error);
    if (status < 0 && skew_s != 0 && !role->token_file) { /* signed by a clock that is wrong */
        status = request_role(search, role, &sts_endpoint, &skew_s, found, error);
    }
    return status < 0 ? status : 1;
}

/* *skew_s: server clock minus local clock, as far as known; a refusal updates it. */
static int request_role(struct stk_credential_chain *search, const struct stk_sts_role *role,
                        const struct sts_endpoint *sts_endpoint, int64_t *skew_s,
                        struct stk_credentials *found, struct stoker_error *error)
{
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_POST);
    int status =
        auth ? 0 : stk_fail_errno(error, ENOMEM, "cannot request a role", "free memory", "STS");

    if (status == 0 && role->token_file) { /* sent unchanged */
        status = stk_credential_chain_require_private(sts_endpoint->url, sts_endpoint->from, error);
    }
    status = status < 0 ? status : fill_form(auth, role, error);
    if (status == 0) {
        memcpy(auth->url, sts_endpoint->url, sizeof auth->url);
        stk_auth_request_add_header(auth, "Content-Type",
                                    "application/x-www-form-urlencoded; charset=utf-8");
        status = role->token_file ? 0 : sign_form(auth, sts_endpoint, found, *skew_s, error);
    }
    *skew_s = 0;
    status = status < 0 ? status : stk_auth_request_send(search, auth, "STS", error);
    if (status == 0 && auth->code == 200) {
        stk_credentials_wipe(found);
        status = stk_sts_read_role(auth, "STS", found, error);
    } else if (status == 0) {
        *skew_s = stk_auth_request_skew_s(auth);
        status = stk_auth_request_fail(auth, "STS",
                                       role->token_file
                                           ? "check the role's trust, and the identity's token"
                                           : "check the role's trust, and the source's keys",
                                       error);
    }
    stk_auth_request_close(auth);
    return status;
}

int stk_sts_sso(struct stk_credential_chain *search, const struct stk_sts_sso *sso,
                struct stk_credentials *found, struct stoker_error *error)
{
    uint64_t expires_s = 0;
    const struct stk_auth_field fields[] = {
        {"roleCredentials.accessKeyId", STK_AUTH_FIELD_TEXT, found->access_key,
         sizeof found->access_key},
        {"roleCredentials.secretAccessKey", STK_AUTH_FIELD_TEXT, found->secret,
         sizeof found->secret},
        {"roleCredentials.sessionToken", STK_AUTH_FIELD_TEXT, found->token, sizeof found->token},
        {"roleCredentials.expiration", STK_AUTH_FIELD_MS, &expires_s, 0},
    };
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_GET);
    struct stk_sso_token *token = stk_sso_token_open();
    char base[STK_AUTH_REQUEST_URL_BYTES / 2];
    int status = auth && token
                     ? sso_token(search, sso, token, error)
                     : stk_fail_errno(error, ENOMEM, "cannot request a role", "free memory", "SSO");

    if (status == 0) {
        status = stk_sts_sso_url(search, "portal.sso", sso->region, base, sizeof base, error);
    }
    if (status == 0) {
        size_t used = (size_t)snprintf(auth->url, sizeof auth->url,
                                       "%s/federation/credentials?role_name=", base);
        bool fits = stk_url_encode(sso->role, false, auth->url, sizeof auth->url, &used) &&
                    used + 12 < sizeof auth->url;
        used += fits ? (size_t)snprintf(auth->url + used, 13, "&account_id=") : 0;
        fits = fits && stk_url_encode(sso->account, false, auth->url, sizeof auth->url, &used);
        stk_auth_request_add_header(auth, "x-amz-sso_bearer_token", token->access);
        status = fits ? stk_auth_request_send(search, auth, "SSO's portal", error)
                      : stk_fail(error, STOKER_ERROR_LIMIT, "a role's name is too long",
                                 "correct the profile", "sso_role_name");
    }
    if (status == 0) {
        status =
            auth->code != 200
                ? stk_auth_request_fail(auth, "SSO's portal", "run 'aws sso login'", error)
                : stk_auth_response_json((struct stk_view){(uint8_t *)auth->text, auth->text_bytes},
                                         fields, STK_COUNT(fields), "the answer of SSO", error);
    }
    found->expires_ns = auth ? stk_auth_request_local_time(auth, expires_s) : 0;
    stk_sso_token_close(token);
    stk_auth_request_close(auth);
    return status < 0 ? status : 1;
}

/* Sets the endpoint of the region, or without a region the global one, in us-east-1. */
static int set_default_host(const struct stk_aws_profile *profiles,
                            struct sts_endpoint *sts_endpoint, struct stoker_error *error)
{
    const char *region = stk_aws_profile_region(profiles) ? sts_endpoint->region : NULL;
    const struct stk_aws_partition *cloud = stk_aws_partition_of(sts_endpoint->region);
    struct stk_s3_settings settings;
    int status = stk_s3_settings_read(profiles, &settings, error);
    bool fips = sts_endpoint->fips || settings.fips == STK_FLAG_YES;
    bool dual = settings.dual_stack == STK_FLAG_YES;
    /* The government's usual hosts are FIPS's. */
    bool plain = !fips || (!dual && strcmp(cloud->name, "aws-us-gov") == 0);

    region = fips || dual ? sts_endpoint->region : region;
    snprintf(sts_endpoint->url, sizeof sts_endpoint->url, "https://sts%s%s%s.%s",
             plain ? "" : "-fips", region ? "." : "", region ? region : "",
             dual ? cloud->dual_stack_domain : cloud->domain);
    return status;
}

static int find_sts_endpoint(const struct stk_aws_profile *profiles,
                             struct sts_endpoint *sts_endpoint, struct stoker_error *error)
{
    const char *region = stk_aws_profile_region(profiles), *host, *slash;
    struct stk_service_endpoint endpoint;
    int status = stk_s3_settings_endpoint(profiles, "sts", &endpoint, error);

    if (status >= 0 && region && strlen(region) >= sizeof sts_endpoint->region) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the name of a region is too long",
                          "check AWS_REGION, and region in the config file", "%zu bytes",
                          strlen(region));
    }
    snprintf(sts_endpoint->region, sizeof sts_endpoint->region, "%s",
             region ? region : "us-east-1");
    sts_endpoint->fips = stk_aws_region_strip_fips(sts_endpoint->region);
    snprintf(sts_endpoint->url, sizeof sts_endpoint->url, "%s", endpoint.url);
    memcpy(sts_endpoint->from, endpoint.source, sizeof sts_endpoint->from);
    status = status == 0 ? set_default_host(profiles, sts_endpoint, error) : status;
    if (status < 0) {
        return status;
    }
    host = strstr(sts_endpoint->url, "://");
    if (!host || strpbrk(sts_endpoint->url, "?#@ \r\n")) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an endpoint is no URL",
                        "write it like https://HOST", "AWS_ENDPOINT_URL_STS, or endpoint_url");
    }
    stk_url_normalize_host(sts_endpoint->url, sizeof sts_endpoint->url);
    host += 3;
    slash = strchr(host, '/');
    if ((size_t)snprintf(sts_endpoint->host, sizeof sts_endpoint->host, "%.*s",
                         (int)(slash ? (size_t)(slash - host) : strlen(host)),
                         host) >= sizeof sts_endpoint->host ||
        (size_t)snprintf(sts_endpoint->path, sizeof sts_endpoint->path, "%s",
                         slash ? slash : "/") >= sizeof sts_endpoint->path) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "AWS_ENDPOINT_URL_STS, or endpoint_url");
    }
    if (!slash) {
        size_t used = strlen(sts_endpoint->url);
        snprintf(sts_endpoint->url + used, sizeof sts_endpoint->url - used, "/");
    }
    return 0;
}

static int fill_form(struct stk_auth_request *auth, const struct stk_sts_role *role,
                     struct stoker_error *error)
{
    char session[64], token[STK_CREDS_TOKEN_BYTES_MAX];
    bool fits;
    int status = 0;

    snprintf(session, sizeof session, "stoker-session-%llu",
             (unsigned long long)(stk_clock_wall_ns() / SECOND));
    fits = stk_auth_request_add_field(
               auth, "Action", role->token_file ? "AssumeRoleWithWebIdentity" : "AssumeRole") &&
           stk_auth_request_add_field(auth, "Version", "2011-06-15") &&
           stk_auth_request_add_field(auth, "RoleArn", role->arn) &&
           stk_auth_request_add_field(auth, "RoleSessionName",
                                      role->session ? role->session : session);
    if (role->external_id) {
        fits = fits && stk_auth_request_add_field(auth, "ExternalId", role->external_id);
    }
    if (role->duration && role->duration[0] &&
        strspn(role->duration, "0123456789") == strlen(role->duration)) {
        fits = fits && stk_auth_request_add_field(auth, "DurationSeconds", role->duration);
    }
    if (role->token_file) {
        status = stk_credential_chain_read_file(role->token_file, token, sizeof token,
                                                "the web identity's token", error);
        fits = fits && (status < 0 || stk_auth_request_add_field(auth, "WebIdentityToken", token));
        explicit_bzero(token, sizeof token);
    }
    if (status == 0 && !fits) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a role's settings are too long",
                          "correct the profile", "role_arn, role_session_name, external_id");
    }
    return status;
}

uint64_t stk_sts_server_time_s(int64_t skew_s)
{
    return (uint64_t)((int64_t)(stk_clock_wall_ns() / SECOND) + skew_s);
}

static int sign_form(struct stk_auth_request *auth, const struct sts_endpoint *sts_endpoint,
                     const struct stk_credentials *source, int64_t skew_s,
                     struct stoker_error *error)
{
    struct stk_sigv4_headers *headers = stk_alloc(1, sizeof *headers);
    struct stk_sigv4_pair type = {"content-type",
                                  "application/x-www-form-urlencoded; charset=utf-8"};
    char payload[65];
    int status = -ENOMEM;

    stk_sigv4_hash((struct stk_view){(uint8_t *)auth->body, auth->body_bytes}, payload);
    if (headers) {
        const struct stk_sigv4_request request = {
            .method = "POST",
            .host = sts_endpoint->host,
            .path = sts_endpoint->path,
            .headers = &type,
            .header_count = 1,
            .payload = payload,
            .region = sts_endpoint->region,
            .service = "sts",
            .access_key = source->access_key,
            .secret = source->secret,
            .token = source->token,
            .time_s = stk_sts_server_time_s(skew_s),
        };
        status = stk_sigv4_sign_headers(&request, headers);
    }
    if (status == 0) {
        stk_auth_request_add_header(auth, "Authorization", headers->authorization);
        stk_auth_request_add_header(auth, "x-amz-date", headers->date);
        stk_auth_request_add_header(auth, "x-amz-content-sha256", payload);
        if (source->token[0]) {
            stk_auth_request_add_header(auth, "x-amz-security-token", source->token);
        }
    } else {
        status = stk_fail(error, status, "a request to STS cannot be signed",
                          "check the keys and the endpoint", "'%s'", sts_endpoint->host);
    }
    if (headers) {
        explicit_bzero(headers, sizeof *headers);
    }
    stk_free(headers);
    return status;
}

int stk_sts_read_role(const struct stk_auth_request *auth, const char *from,
                      struct stk_credentials *found, struct stoker_error *error)
{
    struct stk_view text = {(const uint8_t *)auth->text, auth->text_bytes};
    char expires[64];
    uint64_t seconds;

    if (!stk_auth_response_xml(text, "AccessKeyId", found->access_key, sizeof found->access_key) ||
        !stk_auth_response_xml(text, "SecretAccessKey", found->secret, sizeof found->secret) ||
        !stk_auth_response_xml(text, "SessionToken", found->token, sizeof found->token) ||
        !stk_auth_response_xml(text, "Expiration", expires, sizeof expires) ||
        !stk_auth_response_time(expires, &seconds)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "an answer has no credentials",
                        "check which server responds there", "%s", from);
    }
    found->expires_ns = stk_auth_request_local_time(auth, seconds);
    return 0;
}

/* Reads the token from SSO's cache. A token of a session is refreshed first if it expires
 * soon. */
static int sso_token(struct stk_credential_chain *search, const struct stk_sts_sso *sso,
                     struct stk_sso_token *token, struct stoker_error *error)
{
    const char *name = sso->session ? sso->session : sso->start_url;
    uint64_t now_s = stk_clock_wall_ns() / SECOND;
    struct stoker_error why = {0};
    int status = stk_sso_token_load(name, token, error);

    if (status == 0 && sso->session && token->expires_s < now_s + SSO_AHEAD_S) {
        status = sso_refresh(search, sso, token, &why);
        /* If another process refreshed the token first, that token is in the cache; else the old
         * one may work. */
        status = status < 0 ? stk_sso_token_load(name, token, error) : 0;
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
static int sso_refresh(struct stk_credential_chain *search, const struct stk_sts_sso *sso,
                       struct stk_sso_token *token, struct stoker_error *error)
{
    uint64_t now_s = stk_clock_wall_ns() / SECOND, life_s = 0;
    const struct stk_auth_field fields[] = {
        {"accessToken", STK_AUTH_FIELD_TEXT, token->access, sizeof token->access},
        {"expiresIn", STK_AUTH_FIELD_SECONDS, &life_s, 0},
        {"refreshToken", STK_AUTH_FIELD_OPTIONAL_TEXT, token->refresh, sizeof token->refresh},
    };
    const char *const members[][2] = {
        {"{\"grantType\":\"refresh_token\",\"clientId\":", token->client_id},
        {",\"clientSecret\":", token->client_secret},
        {",\"refreshToken\":", token->refresh},
        {"}", NULL}};
    struct stk_auth_request *auth;
    int status;

    if (!token->refresh[0] || !token->client_id[0] || !token->client_secret[0] ||
        token->registration_expires_s <= now_s) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the token of SSO cannot be refreshed",
                        "run 'aws sso login'", "no refresh token, or its client has ended");
    }
    auth = stk_auth_request_open(STK_HTTP_POST);
    if (!auth) {
        return stk_fail_errno(error, ENOMEM, "cannot refresh the token of SSO", "free memory",
                              "SSO");
    }
    status = stk_sts_sso_url(search, "oidc", sso->region, auth->url, sizeof auth->url / 2, error);
    memcpy(auth->url + strlen(auth->url), "/token", 7);
    stk_auth_request_add_header(auth, "Content-Type", "application/json");
    for (size_t i = 0; i < STK_COUNT(members) && status == 0; i++) {
        if (!stk_auth_json_add_member(members[i][0], members[i][1], auth->body, sizeof auth->body,
                                      &auth->body_bytes)) {
            status = stk_fail(error, STOKER_ERROR_LIMIT, "the token of SSO cannot be refreshed",
                              "run 'aws sso login'", "'%s'", token->shown);
        }
    }
    status = status < 0 ? status : stk_auth_request_send(search, auth, "SSO", error);
    if (status == 0) {
        status =
            auth->code == 200
                ? stk_auth_response_json((struct stk_view){(uint8_t *)auth->text, auth->text_bytes},
                                         fields, STK_COUNT(fields), "the answer of SSO", error)
                : stk_auth_request_fail(auth, "SSO", "run 'aws sso login'", error);
    }
    stk_auth_request_close(auth);
    if (status == 0) {
        token->expires_s = now_s + stk_min(life_s, 10 * 365 * 86400u);
        snprintf(token->start_url, sizeof token->start_url, "%s", sso->start_url);
        snprintf(token->region, sizeof token->region, "%s", sso->region);
        (void)stk_sso_token_save(
            token); /* if the cache cannot be written, the new token is used all the same */
    }
    return status;
}

int stk_sts_sso_url(struct stk_credential_chain *search, const char *service, const char *region,
                    char *out, size_t out_bytes, struct stoker_error *error)
{
    const char *name = strcmp(service, "oidc") == 0 ? "sso_oidc" : "sso";
    struct stk_service_endpoint endpoint;
    int status = stk_s3_settings_endpoint(&search->profiles, name, &endpoint, error);
    size_t bytes;

    snprintf(out, out_bytes, "%s", endpoint.url);
    if (status == 0) {
        snprintf(out, out_bytes, "https://%s.%.32s.%s", service, region,
                 stk_aws_partition_of(region)->domain);
    }
    bytes = strlen(out);
    if (bytes > 0 && out[bytes - 1] == '/') {
        out[bytes - 1] = 0;
    }
    return status < 0 ? status : stk_credential_chain_require_private(out, endpoint.source, error);
}
