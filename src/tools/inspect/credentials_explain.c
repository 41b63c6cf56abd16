/* Reports to users which credentials the requests of a URL use. Does not store anything, and does
 * not report secrets. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/options.h"
#include "io/clock.h"
#include "storage/config/auth_response.h"
#include "storage/credentials/credentials.h"
#include "storage/http/http.h"
#include "storage/object/store.h"
#include "storage/sign/sigv4.h"
#include "storage/url/url_alias.h"
#include "storage/url/url_redact.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const struct {
    uint32_t service; /* enum stk_credentials_service; 0: none */
    const char *name;
} services[STK_URL_SCHEMES_END] = {
    [STK_URL_S3] = {STK_CREDS_AWS, "S3"},
    [STK_URL_GCS] = {STK_CREDS_GOOGLE, "Google Cloud Storage"},
    [STK_URL_AZURE] = {STK_CREDS_AZURE, "Azure Blob Storage"},
    [STK_URL_HF] = {STK_CREDS_HF, "Hugging Face"},
    [STK_URL_HTTP] = {0, ""},
};

#define NS_PER_SECOND 1000000000ull

static const char own[] = "the service's own"; /* endpoint */

static void fill_endpoint(const char *url, uint32_t service, const struct stk_endpoint *site,
                          struct stoker_creds *report);
static int find_credentials(uint32_t service, struct stoker_creds *report,
                            struct stoker_error *error);
static int check_expiry(struct stoker_creds *report, struct stoker_error *error);
static void fill_trace(const struct stk_credential_trace *trail, struct stoker_creds *report);
static void fill_credentials(const struct stk_credentials *found, struct stoker_creds *report);

static int explain(const char *url, struct stoker_creds *creds, struct stoker_error *error)
{
    struct stk_endpoint site = {.account = ""};
    uint32_t scheme = stk_url_scheme_of(url), service = services[scheme].service;
    int status = 0;

    *creds = (struct stoker_creds){.struct_size = sizeof *creds, .service = "", .kind = "none"};
    creds->expires_ns = UINT64_MAX;
    if (scheme == STK_URL_OTHER) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no store is known for this URL",
                        "use a URL of s3, gs, az, hf, http or https", "'%.200s'", url);
    }
    creds->service = services[scheme].name;
    if (service) {
        status = stk_endpoint_find(service, &site, error);
    }
    if (status == 0) {
        fill_endpoint(url, service, &site, creds);
    }
    if (status == 0 && service) {
        status = find_credentials(service, creds, error);
    }
    return status;
}

/* Finds the host that requests of an S3 URL go to, and the region of their signature. */
static int find_host(const struct stk_object_url *object, const struct stk_endpoint *site,
                     struct stoker_creds *report, struct stoker_error *error)
{
    struct stk_s3_target target = {.site = site,
                                   .region = report->region,
                                   .bucket = object->bucket,
                                   .zone = object->zone,
                                   .arn = object->arn};
    const char *authority = strstr(site->endpoint, "://");
    const char *base = authority ? strchr(authority + 3, '/') : NULL;
    struct stk_s3_endpoint address;
    char region[sizeof report->region];
    int status = 0;

    base = base ? base : ""; /* the path of a configured endpoint; S3 Outposts does not use it */
    if (target.zone) {
        status = stk_endpoint_bucket_region(site, target.zone, object->url, region, error);
    }
    if (status > 0) {
        memcpy(report->region, region, sizeof region);
        snprintf(report->region_from, sizeof report->region_from, "the zone in the bucket's name");
    }
    status = status < 0 ? status : stk_s3_endpoint_resolve(&target, &address, error);
    if (status < 0) {
        return status;
    }
    if (target.arn) {
        snprintf(report->region_from, sizeof report->region_from, "the ARN");
    }
    memcpy(report->region, address.region, sizeof report->region);
    if ((size_t)snprintf(report->endpoint, sizeof report->endpoint, "%s://%s%s",
                         address.tls ? "https" : "http", address.host,
                         strncmp(address.root, base, strlen(base)) == 0 ? base : "") >=
        sizeof report->endpoint) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "'%.200s'", object->url);
    }
    snprintf(report->endpoint_from, sizeof report->endpoint_from, "%s",
             site->endpoint[0] ? site->endpoint_source
             : target.zone     ? "the bucket's zone of S3 Express"
                               : own);
    return 0;
}

static int fill_host(const char *url, const struct stk_endpoint *site, struct stoker_creds *report,
                     struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    int status = stk_object_url_parse(url, &object, error);

    status = status < 0 ? status : find_host(object, site, report, error);
    stk_object_url_free(object);
    return status;
}

int stoker_creds_explain(const char *url, struct stoker_creds *creds, struct stoker_error *error)
{
    struct stoker_creds *full;
    char *name = NULL;
    int status = stk_options_check_output(
        creds, sizeof *creds, offsetof(struct stoker_creds, step_count), "credentials", error);

    if (status == 0 && !url) {
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "no URL is given", "name a URL", "credentials");
    }
    if (status < 0) {
        return status;
    }
    full = stk_alloc(1, sizeof *full);
    status = !full || stk_url_alias(url, &name) < 0
                 ? stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "explain")
                 : explain(name, full, error);
    if (full) {
        stk_options_write_output(creds, full, sizeof *full, "credentials", NULL);
    }
    stk_free(full);
    stk_free(name);
    return status;
}

/* The endpoint, and where it was configured: else the service's own; for http the URL's host. */
static void fill_endpoint(const char *url, uint32_t service, const struct stk_endpoint *site,
                          struct stoker_creds *report)
{
    const char *from = site->endpoint_source[0] ? site->endpoint_source : own;
    char *host;

    snprintf(report->endpoint, sizeof report->endpoint, "%s", site->endpoint);
    if (service == STK_CREDS_AWS) {
        struct stoker_error error = {0};

        snprintf(report->region, sizeof report->region, "%s", site->region);
        snprintf(report->region_from, sizeof report->region_from, "%s",
                 site->region_source[0] ? site->region_source : "not configured: the default");
        if (fill_host(url, site, report, &error) < 0) { /* the credentials are reported anyway */
            report->endpoint[0] = 0;
            snprintf(report->endpoint_from, sizeof report->endpoint_from, "%s: %s", error.what,
                     error.advice);
        }
        return;
    }
    if (service == STK_CREDS_AZURE && !site->endpoint[0]) {
        from = "no account is named: set AZURE_STORAGE_ACCOUNT";
    } else if (service == 0) {
        stk_url_redact_short(url, report->endpoint, sizeof report->endpoint);
        host = strstr(report->endpoint, "://");
        if (host) {
            host[3 + strcspn(host + 3, "/")] = 0;
        }
        from = "the URL";
    }
    snprintf(report->endpoint_from, sizeof report->endpoint_from, "%s", from);
}

/* Keeps what is found in pages that core dumps do not include, and wipes them. */
static int find_credentials(uint32_t service, struct stoker_creds *report,
                            struct stoker_error *error)
{
    struct both {
        struct stk_credential_trace trail;
        struct stk_credentials found;
    } *both = stk_pages_alloc(sizeof *both);
    struct stk_http_options web = {.connections_max = 4,
                                   .ca_file = stk_s3_settings_environment_ca_file()};
    struct stk_credential_options options = {.service = service};
    int status = both ? stk_http_open(&options.http, &web, error)
                      : stk_fail_errno(error, ENOMEM, "cannot look for credentials", "free memory",
                                       "explain");

    if (status == 0) {
        madvise(both, sizeof *both, MADV_DONTDUMP);
        memset(both, 0, sizeof *both);
        options.anonymous = stk_credentials_is_unsigned(service);
        status = stk_credential_provider_explain(&options, &both->trail, &both->found, error);
        fill_trace(&both->trail, report);
        if (status == 0) {
            fill_credentials(&both->found, report);
            status = check_expiry(report, error);
        }
    }
    if (both) {
        explicit_bzero(both, sizeof *both);
        stk_pages_free(both, sizeof *both);
    }
    stk_http_close(options.http);
    return status;
}

static void fill_trace(const struct stk_credential_trace *trail, struct stoker_creds *report)
{
    _Static_assert(STK_CREDS_STEPS_MAX == STK_COUNT(report->steps), "as many");
    _Static_assert(STK_CREDS_REASON_BYTES == sizeof report->steps[0].reason, "as long");
    for (size_t i = 0; i < trail->count; i++) {
        report->steps[i].source = trail->steps[i].source;
        report->steps[i].verdict = trail->steps[i].result;
        memcpy(report->steps[i].reason, trail->steps[i].reason, sizeof report->steps[i].reason);
    }
    report->step_count = (uint32_t)trail->count;
}

/* The end of a SAS ("se=2026-11-21T22%3A15%3A03Z"); STK_CREDS_NEVER: it has none. */
static uint64_t sas_expiry(const char *sas)
{
    const char *at = strncmp(sas, "se=", 3) == 0 ? sas : strstr(sas, "&se=");
    char text[64];
    uint64_t seconds;
    size_t bytes;

    if (!at) {
        return STK_CREDS_NEVER;
    }
    at = strchr(at, '=') + 1;
    bytes = strcspn(at, "&");
    if (bytes >= sizeof text) {
        return STK_CREDS_NEVER;
    }
    memcpy(text, at, bytes);
    text[bytes] = '\0';
    return stk_url_decode(text) && stk_auth_response_time(text, &seconds) ? seconds * NS_PER_SECOND
                                                                          : STK_CREDS_NEVER;
}

/* Credentials that have expired are found, and no request will succeed with them. */
static int check_expiry(struct stoker_creds *report, struct stoker_error *error)
{
    uint64_t now_ns = stk_clock_wall_ns();

    if (report->expires_ns > now_ns) {
        return 0;
    }
    for (uint32_t i = 0; i < report->step_count; i++) {
        if (report->steps[i].verdict == STOKER_CREDS_USED) {
            report->steps[i].verdict = STOKER_CREDS_FAILED;
            snprintf(report->steps[i].reason, sizeof report->steps[i].reason,
                     "%.400s: expired %" PRIu64 " s ago", report->from,
                     (uint64_t)((now_ns - report->expires_ns) / NS_PER_SECOND));
        }
    }
    return stk_fail(error, -EACCES, "the credentials have expired",
                    "log in again, as with 'aws sso login', or renew them at their source",
                    "%.400s", report->from);
}

static void fill_credentials(const struct stk_credentials *found, struct stoker_creds *report)
{
    static const char *const kinds[] = {[STK_CREDS_ANONYMOUS] = "anonymous",
                                        [STK_CREDS_KEYS] = "keys",
                                        [STK_CREDS_BEARER] = "bearer token",
                                        [STK_CREDS_SAS] = "SAS"};
    size_t bytes = strlen(found->access_key);

    report->kind = kinds[found->kind];
    report->expires_ns =
        found->kind == STK_CREDS_SAS ? sas_expiry(found->token) : found->expires_ns;
    memcpy(report->from, found->source, sizeof report->from);
    if (found->universe[0] && strcmp(report->endpoint_from, own) == 0) {
        snprintf(report->endpoint, sizeof report->endpoint, "https://storage.%s", found->universe);
        snprintf(report->endpoint_from, sizeof report->endpoint_from,
                 "universe_domain of the file");
    }
    if (found->kind == STK_CREDS_KEYS && bytes >= 8) {
        snprintf(report->key, sizeof report->key, "...%s", found->access_key + bytes - 4);
    }
}
