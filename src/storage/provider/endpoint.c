/* The endpoint of each service: the configured one, else the service's default. */
#include "storage/provider/endpoint.h"

#include "base/text/text_match.h"
#include "storage/config/auth_response.h"
#include "storage/config/aws_profile.h"
#include "storage/credentials/credential_chain.h"
#include "storage/url/url_split.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* With "http://" before it, it fits into the endpoint of a struct stk_endpoint. */
#define ENDPOINT_BYTES_MAX 504u

static int find_aws(struct stk_endpoint *site, struct stoker_error *error);
static int find_azure(struct stk_endpoint *site, struct stoker_error *error);
static int find_variable(struct stk_endpoint *site, const char *variable, const char *scheme,
                         const char *otherwise, struct stoker_error *error);
static int check(struct stk_endpoint *site, struct stoker_error *error);

int stk_endpoint_find(uint32_t service, struct stk_endpoint *site, struct stoker_error *error)
{
    int status = 0;

    *site = (struct stk_endpoint){.account = ""};
    switch ((enum stk_credentials_service)service) {
    case STK_CREDS_AWS:
        status = find_aws(site, error);
        break;
    case STK_CREDS_GOOGLE:
        status = find_variable(site, "STORAGE_EMULATOR_HOST", "http://",
                               "https://storage.googleapis.com", error);
        break;
    case STK_CREDS_AZURE:
        status = find_azure(site, error);
        break;
    case STK_CREDS_S3_EXPRESS:
        break; /* is of a bucket */
    case STK_CREDS_HF:
        status = find_variable(site, "HF_ENDPOINT", "", "https://huggingface.co", error);
        break;
    }
    return status < 0 ? status : check(site, error);
}

bool stk_endpoint_zone_region(const char *zone, char region[64])
{
    static const char *const ways[][2] = {
        {"ne", "northeast"}, {"nw", "northwest"}, {"se", "southeast"}, {"sw", "southwest"},
        {"n", "north"},      {"e", "east"},       {"s", "south"},      {"w", "west"},
        {"c", "central"},    {"gw", "gov-west"},  {"ge", "gov-east"}};

    region[0] = '\0';
    for (size_t i = 0; i < STK_COUNT(ways) && strlen(zone) > 3; i++) {
        size_t bytes = strlen(ways[i][0]);
        const char *number = zone + 2 + bytes;

        if (strncmp(zone + 2, ways[i][0], bytes) == 0 && number[0] >= '1' && number[0] <= '9' &&
            number[1] == '-') {
            snprintf(region, 64, "%.2s-%s-%c", zone, ways[i][1], number[0]);
            return true;
        }
    }
    return false;
}

const char *stk_endpoint_bucket_zone(const char *bucket, size_t bytes, size_t *zone_bytes_out)
{
    static const char *const lasts[] = {"--x-s3", "--xa-s3"};
    size_t last_bytes = 0, end, zone;

    for (size_t i = 0; i < STK_COUNT(lasts); i++) {
        size_t length = strlen(lasts[i]);

        if (bytes > length &&
            stk_view_ends_with((struct stk_view){(const uint8_t *)bucket, bytes}, lasts[i])) {
            last_bytes = length;
        }
    }
    if (last_bytes == 0) {
        return NULL;
    }
    zone = end = bytes - last_bytes;
    while (zone > 0 && !(bucket[zone - 1] == '-' && zone > 1 && bucket[zone - 2] == '-')) {
        zone--;
    }
    *zone_bytes_out = end - zone;
    return zone < 3 || zone == end ? NULL : bucket + zone;
}

int stk_endpoint_bucket_region(const struct stk_endpoint *site, const char *zone, const char *url,
                               char region[64], struct stoker_error *error)
{
    bool own = site->endpoint[0] != '\0', named = site->region_source[0] != '\0';

    if (own && named) {
        return 0;
    }
    if (stk_endpoint_zone_region(zone, region)) {
        return 1;
    }
    return own || named ? 0
                        : stk_fail(error, STOKER_ERROR_ARGUMENT,
                                   "the region of a bucket of S3 Express is unknown",
                                   "set AWS_REGION to the region of the bucket's zone",
                                   "'%.200s': zone '%.60s'", url, zone);
}

static int find_aws(struct stk_endpoint *site, struct stoker_error *error)
{
    struct stk_aws_profile profiles;
    struct stk_service_endpoint endpoint;
    const char *region;
    int status = stk_aws_profile_open(&profiles, NULL, error), found;

    if (status < 0) {
        return status;
    }
    status = stk_s3_settings_read(&profiles, &site->settings, error);
    found = status < 0 ? status : stk_s3_settings_endpoint(&profiles, "s3", &endpoint, error);
    status = found < 0 ? found : status;
    if (found > 0) {
        memcpy(site->endpoint, endpoint.url, sizeof site->endpoint);
        memcpy(site->endpoint_source, endpoint.source, sizeof site->endpoint_source);
    }
    region = stk_aws_profile_region(&profiles);
    if (status == 0 && region && strlen(region) >= sizeof site->region) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the name of a region is too long",
                          "check AWS_REGION, and region in the config file", "%zu bytes",
                          strlen(region));
    }
    snprintf(site->region, sizeof site->region, "%s", region ? region : "us-east-1");
    stk_aws_profile_region_location(&profiles, site->region_source, sizeof site->region_source);
    if (stk_aws_region_strip_fips(site->region)) {
        site->settings.fips = STK_FLAG_YES;
    }
    stk_aws_profile_close(&profiles);
    return status;
}

/* Copies the account of the variables, and its variable to *from_out. It stays "" if none is set.
 */
static int find_account(char *account, size_t account_bytes, const char **from_out,
                        struct stoker_error *error)
{
    static const char *const names[] = {"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"};
    const char *value = stk_environment_get(names[0]);

    *from_out = value ? names[0] : names[1];
    value = value ? value : stk_environment_get(names[1]);
    if (value && strlen(value) >= account_bytes) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the name of an account is too long",
                        "set the variable to the name of a storage account", "%s, %zu bytes",
                        *from_out, strlen(value));
    }
    memcpy(account, value ? value : "", value ? strlen(value) + 1 : 1);
    return 0;
}

/* The connection string goes before the variables, as for credentials. */
static int find_azure(struct stk_endpoint *site, struct stoker_error *error)
{
    static const char string[] = "AZURE_STORAGE_CONNECTION_STRING";
    const char *text = stk_environment_get(string), *from = string;
    char suffix[256] = "core.windows.net", scheme[8] = "https", url[512] = "";
    const struct {
        const char *name;
        char *out;
        size_t out_bytes;
    } values[] = {{"AccountName", site->account, sizeof site->account},
                  {"BlobEndpoint", site->endpoint, sizeof site->endpoint},
                  {"EndpointSuffix", suffix, sizeof suffix},
                  {"DefaultEndpointsProtocol", scheme, sizeof scheme}};
    int status = 0;

    for (size_t i = 0; text && i < STK_COUNT(values) && status >= 0; i++) {
        status = stk_connection_string_get(text, values[i].name, values[i].out, values[i].out_bytes,
                                           error);
    }
    if (status >= 0 && !site->account[0]) {
        status = find_account(site->account, sizeof site->account, &from, error);
    }
    if (status < 0) {
        return status;
    }
    if (site->endpoint[0]) {
        snprintf(site->endpoint_source, sizeof site->endpoint_source, "%s", string);
        return 0;
    }
    if (site->account[0]) {
        snprintf(site->endpoint_source, sizeof site->endpoint_source, "%s", from);
        snprintf(url, sizeof url, "%s://%s.blob.%s", scheme, site->account, suffix);
    }
    return find_variable(site, "AZURE_STORAGE_ENDPOINT", "", url, error);
}

/* Copies the endpoint of a variable, after the scheme if it has none; otherwise, if the variable is
 * not set. A longer endpoint would be cut, and name another host or path. */
static int find_variable(struct stk_endpoint *site, const char *variable, const char *scheme,
                         const char *otherwise, struct stoker_error *error)
{
    const char *value = stk_environment_get(variable);

    if (value && strlen(value) > ENDPOINT_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long",
                        "set the variable to a URL of at most 504 bytes", "%s, %zu bytes", variable,
                        strlen(value));
    }
    snprintf(site->endpoint, sizeof site->endpoint, "%s%s",
             value && !strstr(value, "://") ? scheme : "", value ? value : otherwise);
    if (value) {
        snprintf(site->endpoint_source, sizeof site->endpoint_source, "%s", variable);
    }
    return 0;
}

/* Accepts http or https, with a host and without user, query or blank. Removes slashes at the
 * end. */
static int check(struct stk_endpoint *site, struct stoker_error *error)
{
    size_t bytes = strlen(site->endpoint);
    const char *host = strstr(site->endpoint, "://");
    bool web = strncasecmp(site->endpoint, "http://", 7) == 0 ||
               strncasecmp(site->endpoint, "https://", 8) == 0;

    if (bytes == 0) {
        return 0;
    }
    if (!web || strcspn(host + 3, "/") == 0 || strpbrk(host, "?#@ \t\r\n\\")) {
        explicit_bzero(site->endpoint, sizeof site->endpoint); /* it may hold a password */
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an endpoint is no URL",
                        "write it like http://host:port", "%s",
                        site->endpoint_source[0] ? site->endpoint_source : "the endpoint");
    }
    while (site->endpoint[bytes - 1] == '/') {
        site->endpoint[--bytes] = 0;
    }
    stk_url_normalize_host(site->endpoint, sizeof site->endpoint);
    return 0;
}
