/* Who a URL is asked as, for people: nothing is kept, and no secret is given on. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/options.h"
#include "storage/credentials/credentials.h"
#include "storage/http/http.h"
#include "storage/provider/s3_endpoint.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

static const struct {
    const char *scheme; /* with "://" */
    uint32_t service;   /* enum stk_credentials_service; 0: none */
    const char *name;
} schemes[] = {
    {"s3://", STK_CREDS_AWS, "S3"},
    {"gs://", STK_CREDS_GOOGLE, "Google Cloud Storage"},
    {"az://", STK_CREDS_AZURE, "Azure Blob Storage"},
    {"hf://", STK_CREDS_HF, "Hugging Face"},
    {"http://", 0, ""},
    {"https://", 0, ""},
};

static const char own[] = "the service's own"; /* endpoint */

static void fill_endpoint(const char *url, uint32_t service, const struct stk_endpoint *site,
                          struct stoker_creds *report);
static int find_credentials(uint32_t service, struct stoker_creds *report,
                            struct stoker_error *error);
static void fill_trace(const struct stk_credential_trace *trail, struct stoker_creds *report);
static void fill_credentials(const struct stk_credentials *found, struct stoker_creds *report);

static int explain(const char *url, struct stoker_creds *creds, struct stoker_error *error)
{
    struct stk_endpoint site = {.account = ""};
    size_t row = 0;
    int status = 0;

    *creds = (struct stoker_creds){.struct_size = sizeof *creds, .service = "", .kind = "none"};
    creds->expires_ns = UINT64_MAX;
    while (row < STK_COUNT(schemes) &&
           strncasecmp(url, schemes[row].scheme, strlen(schemes[row].scheme)) != 0) {
        row++;
    }
    if (row == STK_COUNT(schemes)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no store is known for this URL",
                        "s3, gs, az, hf, http and https are", "'%.200s'", url);
    }
    creds->service = schemes[row].name;
    if (schemes[row].service) {
        status = stk_endpoint_find(schemes[row].service, &site, error);
    }
    if (status == 0) {
        fill_endpoint(url, schemes[row].service, &site, creds);
    }
    if (status == 0 && schemes[row].service) {
        status = find_credentials(schemes[row].service, creds, error);
    }
    return status;
}

/* What the URL names, as it is asked. */
struct url_target {
    struct stk_s3_target target;
    struct stk_s3_arn arn;
    char bucket[256], zone[64];
};

/* As the store reads it (storage/object/object_url.c). */
static int read_name(const char *url, struct url_target *named, struct stoker_error *error)
{
    const char *name = url + strlen("s3://");
    bool arn = stk_s3_is_arn(name);
    size_t bytes = arn ? stk_s3_arn_parse(name, &named->arn) : strcspn(name, "/"), zone_bytes = 0;
    const char *zone = arn ? NULL : stk_endpoint_bucket_zone(name, bytes, &zone_bytes);

    if (bytes == 0 || bytes >= sizeof named->bucket || zone_bytes >= sizeof named->zone) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the URL names no bucket and no access point",
                        "write s3://bucket/key", "'%.200s'", url);
    }
    snprintf(named->bucket, sizeof named->bucket, "%.*s", (int)bytes, name);
    snprintf(named->zone, sizeof named->zone, "%.*s", (int)zone_bytes, zone ? zone : "");
    named->target.bucket = named->bucket;
    named->target.zone = zone ? named->zone : NULL;
    named->target.arn = arn ? &named->arn : NULL;
    return 0;
}

/* The host that is asked for it, and the region of its signature. An endpoint of one's own may have
 * a path; outposts leave it away. */
static int fill_host(const char *url, const struct stk_endpoint *site, struct stoker_creds *report,
                     struct stoker_error *error)
{
    struct url_target named = {.target = {.site = site, .region = report->region}};
    const char *authority = strstr(site->endpoint, "://");
    const char *base = authority ? strchr(authority + 3, '/') : NULL;
    struct stk_s3_endpoint address;
    char region[sizeof report->region];
    int status = read_name(url, &named, error);

    base = base ? base : "";
    if (status == 0 && named.target.zone) {
        status = stk_endpoint_bucket_region(site, named.zone, url, region, error);
    }
    if (status > 0) {
        memcpy(report->region, region, sizeof region);
        snprintf(report->region_from, sizeof report->region_from, "the zone in the bucket's name");
    }
    status = status < 0 ? status : stk_s3_endpoint_resolve(&named.target, &address, error);
    if (status < 0) {
        return status;
    }
    if (named.target.arn) {
        snprintf(report->region_from, sizeof report->region_from, "the ARN");
    }
    memcpy(report->region, address.region, sizeof report->region);
    if ((size_t)snprintf(report->endpoint, sizeof report->endpoint, "%s://%s%s",
                         address.tls ? "https" : "http", address.host,
                         strncmp(address.root, base, strlen(base)) == 0 ? base : "") >=
        sizeof report->endpoint) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "'%.200s'", url);
    }
    snprintf(report->endpoint_from, sizeof report->endpoint_from, "%s",
             site->endpoint[0]   ? site->endpoint_source
             : named.target.zone ? "the bucket's zone of S3 Express"
                                 : own);
    return 0;
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

/* Nobody says: the service's own. Of the web it is the URL's host. */
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
                 site->region_source[0] ? site->region_source : "nobody says: the default");
        if (fill_host(url, site, report, &error) < 0) { /* who would ask is told all the same */
            report->endpoint[0] = 0;
            snprintf(report->endpoint_from, sizeof report->endpoint_from, "%s: %s", error.what,
                     error.advice);
        }
        return;
    }
    if (service == STK_CREDS_AZURE && !site->endpoint[0]) {
        from = "no account is named: set AZURE_STORAGE_ACCOUNT";
    } else if (service == 0) {
        stk_http_redact_url(url, report->endpoint, sizeof report->endpoint);
        host = strstr(report->endpoint, "://");
        if (host) {
            host[3 + strcspn(host + 3, "/")] = 0;
        }
        from = "the URL";
    }
    snprintf(report->endpoint_from, sizeof report->endpoint_from, "%s", from);
}

/* All that is found lies in pages which no core dump has, and is wiped. */
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

static void fill_credentials(const struct stk_credentials *found, struct stoker_creds *report)
{
    static const char *const kinds[] = {[STK_CREDS_ANONYMOUS] = "anonymous",
                                        [STK_CREDS_KEYS] = "keys",
                                        [STK_CREDS_BEARER] = "bearer token",
                                        [STK_CREDS_SAS] = "SAS"};
    size_t bytes = strlen(found->access_key);

    report->kind = kinds[found->kind];
    report->expires_ns = found->expires_ns;
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
