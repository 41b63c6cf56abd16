/* Who a URL is asked as, for people: nothing is kept, and no secret is given on. */
#include "base/mem.h"
#include "creds/creds.h"
#include "dialect/s3.h"
#include "http/http.h"
#include "io/pool.h"
#include "vault/vault.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>

static const struct {
    const char *scheme; /* with "://" */
    uint32_t service;   /* enum stk_creds_service; 0: none */
    const char *name;
} schemes[] = {
    {"s3://", STK_CREDS_AWS, "S3"},
    {"gs://", STK_CREDS_GOOGLE, "Google Cloud Storage"},
    {"az://", STK_CREDS_AZURE, "Azure Blob Storage"},
    {"hf://", STK_CREDS_HUB, "Hugging Face"},
    {"http://", 0, ""},
    {"https://", 0, ""},
};

static void tell_site(const char *url, uint32_t service, const struct stk_site *site,
                      struct stoker_creds *told);
static int search(uint32_t service, struct stoker_creds *told, struct stoker_error *error);
static void tell_trail(const struct stk_creds_trail *trail, struct stoker_creds *told);
static void tell_credentials(const struct stk_credentials *found, struct stoker_creds *told);

static int explain(const char *url, struct stoker_creds *creds, struct stoker_error *error)
{
    struct stk_site site = {.account = ""};
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
        status = stk_site_find(schemes[row].service, &site, error);
    }
    if (status == 0) {
        tell_site(url, schemes[row].service, &site, creds);
    }
    if (status == 0 && schemes[row].service) {
        status = search(schemes[row].service, creds, error);
    }
    return status;
}

/* One of Amazon's own: of the bucket's zone, if it is of S3 Express, or without a bucket in its
 * name. Who says so. */
static const char *tell_host(const char *url, const struct stk_site *site,
                             struct stoker_creds *told)
{
    size_t bytes = strcspn(url + 5, "/"), zone_bytes; /* "s3://" */
    const char *zone = stk_site_bucket_zone(url + 5, bytes, &zone_bytes);
    /* No host begins with a '-': by its path. */
    struct stk_s3_target target = {.site = site, .bucket = "-", .region = told->region};
    struct stk_s3_address address;
    char bucket[256], name[64], region[64];

    if (zone && bytes < sizeof bucket && zone_bytes < sizeof name) {
        snprintf(bucket, sizeof bucket, "%.*s", (int)bytes, url + 5);
        snprintf(name, sizeof name, "%.*s", (int)zone_bytes, zone);
        target.bucket = bucket;
        target.zone = name;
        if (stk_site_zone(name, region)) {
            memcpy(told->region, region, sizeof region);
            snprintf(told->region_from, sizeof told->region_from, "the zone in the bucket's name");
        } else if (!site->region_from[0]) {
            return "the region of the bucket's zone is not known: set AWS_REGION";
        }
    }
    if (stk_s3_address(&target, &address, NULL) < 0) {
        return "settings that do not go together";
    }
    snprintf(told->endpoint, sizeof told->endpoint, "https://%.500s", address.host);
    return target.zone ? "the bucket's zone of S3 Express" : "the service's own";
}

int stoker_creds_explain(const char *url, struct stoker_creds *creds, struct stoker_error *error)
{
    char *name = NULL;
    int status;

    if (!url || !creds || creds->struct_size < sizeof *creds) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is nothing to explain into",
                        "set struct_size", "stoker_creds_explain");
    }
    status = stk_vault_name(url, &name) < 0
                 ? stk_fail(error, -ENOMEM, "cannot look for credentials", "free memory", "explain")
                 : explain(name, creds, error);
    stk_free(name);
    return status;
}

/* Nobody says: the service's own. Of the web it is the URL's host. */
static void tell_site(const char *url, uint32_t service, const struct stk_site *site,
                      struct stoker_creds *told)
{
    const char *from = site->endpoint_from[0] ? site->endpoint_from : "the service's own";
    char *host;

    snprintf(told->endpoint, sizeof told->endpoint, "%s", site->endpoint);
    if (service == STK_CREDS_AWS) {
        snprintf(told->region, sizeof told->region, "%s", site->region);
        snprintf(told->region_from, sizeof told->region_from, "%s",
                 site->region_from[0] ? site->region_from : "nobody says: the default");
        if (!site->endpoint[0]) {
            from = tell_host(url, site, told);
        }
    } else if (service == STK_CREDS_AZURE && !site->endpoint[0]) {
        from = "no account is named: set AZURE_STORAGE_ACCOUNT";
    } else if (service == 0) {
        stk_http_url_text(url, told->endpoint, sizeof told->endpoint);
        host = strstr(told->endpoint, "://");
        if (host) {
            host[3 + strcspn(host + 3, "/")] = 0;
        }
        from = "the URL";
    }
    snprintf(told->endpoint_from, sizeof told->endpoint_from, "%s", from);
}

/* All that is found lies in pages which no core dump has, and is wiped. */
static int search(uint32_t service, struct stoker_creds *told, struct stoker_error *error)
{
    struct both {
        struct stk_creds_trail trail;
        struct stk_credentials found;
    } *both = stk_pages_alloc(sizeof *both);
    struct stk_http_options web = {.connections_max = 4};
    struct stk_creds_options options = {.service = service};
    int status = both ? stk_http_open(&options.http, &web, error)
                      : stk_fail_errno(error, ENOMEM, "cannot look for credentials", "free memory",
                                       "explain");

    if (status == 0) {
        madvise(both, sizeof *both, MADV_DONTDUMP);
        memset(both, 0, sizeof *both);
        options.anonymous = stk_creds_unsigned(service);
        status = stk_creds_explain(&options, &both->trail, &both->found, error);
        tell_trail(&both->trail, told);
        if (status == 0) {
            tell_credentials(&both->found, told);
        }
    }
    if (both) {
        explicit_bzero(both, sizeof *both);
        stk_pages_free(both, sizeof *both);
    }
    stk_http_close(options.http);
    return status;
}

static void tell_trail(const struct stk_creds_trail *trail, struct stoker_creds *told)
{
    _Static_assert(STK_CREDS_STEPS_MAX == STK_COUNT(told->steps), "as many");
    _Static_assert(STK_CREDS_WHY_BYTES == sizeof told->steps[0].why, "as long");
    for (size_t i = 0; i < trail->count; i++) {
        told->steps[i].place = trail->steps[i].place;
        told->steps[i].verdict = trail->steps[i].verdict;
        memcpy(told->steps[i].why, trail->steps[i].why, sizeof told->steps[i].why);
    }
    told->step_count = (uint32_t)trail->count;
}

static void tell_credentials(const struct stk_credentials *found, struct stoker_creds *told)
{
    static const char *const kinds[] = {[STK_CREDS_ANONYMOUS] = "anonymous",
                                        [STK_CREDS_KEYS] = "keys",
                                        [STK_CREDS_BEARER] = "bearer token",
                                        [STK_CREDS_SAS] = "SAS"};
    size_t bytes = strlen(found->access_key);

    told->kind = kinds[found->kind];
    told->expires_ns = found->expires_ns;
    memcpy(told->from, found->from, sizeof told->from);
    if (found->kind == STK_CREDS_KEYS && bytes >= 8) {
        snprintf(told->key, sizeof told->key, "...%s", found->access_key + bytes - 4);
    }
}
