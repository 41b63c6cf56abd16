/* One table: what each setting is called, where, and which texts it knows. */
#include "storage/config/s3_settings.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ATTEMPTS_MAX 100u

/* As botocore's partitions have them. */
static const struct stk_cloud clouds[] = {
    {"cn-", "aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", false},
    {"us-gov-", "aws-us-gov", "amazonaws.com", "api.aws", false},
    {"eusc-de-", "aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", false},
    {"us-iso-", "aws-iso", "c2s.ic.gov", "api.aws.ic.gov", false},
    {"us-isob-", "aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", false},
    {"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", true},
    {"us-isof-", "aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", true}};
static const struct stk_cloud usual = {"", "aws", "amazonaws.com", "api.aws", false};

/* The texts of a setting, and what each means; NULL ends it. */
struct word {
    const char *text;
    uint32_t value;
};

/* botocore takes "true" alone for yes; the others are what people write. */
static const struct word flag[] = {
    {"true", STK_SAID_YES}, {"1", STK_SAID_YES}, {"yes", STK_SAID_YES}, {"false", STK_SAID_NO},
    {"0", STK_SAID_NO},     {"no", STK_SAID_NO}, {"", STK_SAID_NO},     {NULL, 0}};
static const struct word regional[] = {
    {"regional", STK_SAID_YES}, {"legacy", STK_SAID_NO}, {NULL, 0}};
static const struct word lazy[] = {
    {"when_required", STK_SAID_YES}, {"when_supported", STK_SAID_NO}, {NULL, 0}};
static const struct word addressing[] = {{"auto", STK_ADDRESSING_AUTO},
                                         {"path", STK_ADDRESSING_PATH},
                                         {"virtual", STK_ADDRESSING_VIRTUAL},
                                         {NULL, 0}};
/* Manners are our own (storage/throttle/throttle.h), whatever the mode: no more than a check of its
 * name. */
static const struct word modes[] = {{"legacy", 0}, {"standard", 0}, {"adaptive", 0}, {NULL, 0}};

#define AT(field) (uint32_t)offsetof(struct stk_settings, field)
#define NOWHERE UINT32_MAX

static const struct row {
    const char *variable, *name, *inner; /* inner: below "s3 =" of the profile */
    const struct word *words;            /* NULL: a count */
    uint32_t at;                         /* of a uint32_t in struct stk_settings */
} rows[] = {
    {"AWS_MAX_ATTEMPTS", "max_attempts", NULL, NULL, AT(attempts_max)},
    {"AWS_RETRY_MODE", "retry_mode", NULL, modes, NOWHERE},
    {"AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint", NULL, flag, AT(fips)},
    {"AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint", NULL, flag, AT(dual_stack)},
    {NULL, NULL, "addressing_style", addressing, AT(addressing)},
    {NULL, NULL, "use_accelerate_endpoint", flag, AT(accelerate)},
    {NULL, NULL, "payload_signing_enabled", flag, AT(sign_payload)},
    {"AWS_S3_USE_ARN_REGION", "s3_use_arn_region", "use_arn_region", flag, AT(arn_region)},
    {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "s3_us_east_1_regional_endpoint",
     "us_east_1_regional_endpoint", regional, AT(regional)},
    {"AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS", "s3_disable_multiregion_access_points",
     "s3_disable_multiregion_access_points", flag, AT(no_multi_region)},
    {"AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "s3_disable_express_session_auth", NULL, flag,
     AT(sessionless)},
    {"AWS_REQUEST_CHECKSUM_CALCULATION", "request_checksum_calculation", NULL, lazy, AT(lazy_sums)},
    {"AWS_RESPONSE_CHECKSUM_VALIDATION", "response_checksum_validation", NULL, lazy,
     AT(lazy_checks)},
};

/* A setting's text as somebody wrote it, and where. */
struct said {
    const char *text; /* NULL: nobody */
    char inner[64];   /* room for one of "s3 =" */
    char where[STK_PROFILE_PATH_BYTES + 64];
};

static int find(const struct stk_profiles *profiles, const struct row *row, struct said *said,
                struct stoker_error *error);
static int find_inner(const struct stk_profiles *profiles, const char *name, struct said *said,
                      struct stoker_error *error);
static int take(const struct row *row, const struct said *said, struct stk_settings *settings,
                struct stoker_error *error);
static bool cut(char *text, const char *part);

int stk_settings_read(const struct stk_profiles *profiles, struct stk_settings *settings,
                      struct stoker_error *error)
{
    /* It alone asks for more than the general setting, and never for less. */
    static const struct row dual = {NULL, NULL, "use_dualstack_endpoint", flag, AT(dual_stack)};
    struct stk_settings more = {0};
    struct said said;
    int status = 0;

    *settings = (struct stk_settings){0};
    for (size_t i = 0; i < STK_COUNT(rows) && status == 0; i++) {
        status = find(profiles, &rows[i], &said, error);
        status = status < 0 || !said.text ? status : take(&rows[i], &said, settings, error);
    }
    status = status < 0 ? status : find(profiles, &dual, &said, error);
    status = status < 0 || !said.text ? status : take(&dual, &said, &more, error);
    if (more.dual_stack == STK_SAID_YES) {
        settings->dual_stack = STK_SAID_YES;
    }
    return status < 0 ? status : stk_settings_authority(profiles, settings->ca_file, error);
}

static int find(const struct stk_profiles *profiles, const struct row *row, struct said *said,
                struct stoker_error *error)
{
    said->text = row->variable ? stk_environment(row->variable) : NULL;
    if (said->text) {
        snprintf(said->where, sizeof said->where, "%s", row->variable);
        return 0;
    }
    said->text = row->name ? stk_profiles_get(profiles, profiles->name, row->name) : NULL;
    if (said->text) {
        char place[STK_PROFILE_PATH_BYTES + 16];

        stk_profiles_where(profiles, profiles->name, row->name, place, sizeof place);
        snprintf(said->where, sizeof said->where, "%s, %s", row->name, place);
        return 0;
    }
    return row->inner ? find_inner(profiles, row->inner, said, error) : 0;
}

static int find_inner(const struct stk_profiles *profiles, const char *name, struct said *said,
                      struct stoker_error *error)
{
    const char *lines = stk_profiles_get(profiles, profiles->name, "s3");
    char place[STK_PROFILE_PATH_BYTES + 16];
    int found = lines ? stk_ini_nested(lines, name, said->inner, sizeof said->inner) : 0;

    stk_profiles_where(profiles, profiles->name, "s3", place, sizeof place);
    snprintf(said->where, sizeof said->where, "%s below s3, %s", name, place);
    said->text = found > 0 ? said->inner : NULL;
    return found < 0 ? stk_fail(error, STOKER_ERROR_LIMIT, "a setting is too long",
                                "look at what it says", "%s", said->where)
                     : 0;
}

/* No error repeats the text: it may be a secret on the wrong line. */
static int take(const struct row *row, const struct said *said, struct stk_settings *settings,
                struct stoker_error *error)
{
    uint32_t *field = row->at == NOWHERE ? NULL : (uint32_t *)(void *)((char *)settings + row->at);
    char known[96] = "";
    uint32_t value = 0;

    if (!row->words) {
        size_t digits = strspn(said->text, "0123456789");

        if (digits == 0 || said->text[digits] || strspn(said->text, "0") == digits) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a setting is no number above 0",
                            "write a number", "%s", said->where);
        }
        *field = (uint32_t)stk_min(strtoull(said->text, NULL, 10), ATTEMPTS_MAX);
        return 0;
    }
    for (const struct word *word = row->words; word->text; word++) {
        if (strcasecmp(word->text, said->text) == 0) {
            value = word->value;
            if (field) {
                *field = value;
            }
            return 0;
        }
        if (word->text[0] && word->text[1]) { /* not "1" and "0", which are let pass */
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                     known[0] ? ", " : "", word->text);
        }
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "a setting has a value that it does not know",
                    "correct it", "%s: one of %s", said->where, known);
}

int stk_settings_authority(const struct stk_profiles *profiles, char out[STK_PROFILE_PATH_BYTES],
                           struct stoker_error *error)
{
    static const struct row row = {"AWS_CA_BUNDLE", "ca_bundle", NULL, NULL, NOWHERE};
    struct said said;
    int status = find(profiles, &row, &said, error);

    out[0] = 0;
    if (status == 0 && said.text && said.text[0] &&
        !stk_path_expand(said.text, out, STK_PROFILE_PATH_BYTES)) {
        out[0] = 0;
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the path of a file is too long", "shorten it",
                          "%s", said.where);
    }
    return status;
}

const char *stk_settings_authorities(void)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"};
    const char *found = NULL;

    for (size_t i = 0; i < STK_COUNT(names) && !found; i++) {
        found = stk_environment(names[i]);
    }
    return found;
}

bool stk_region_plain(char *region)
{
    return cut(region, "fips-") | cut(region, "-fips");
}

static bool cut(char *text, const char *part)
{
    char *at = strstr(text, part);

    if (at) {
        memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
    }
    return at != NULL;
}

const struct stk_cloud *stk_cloud_of(const char *region)
{
    static const char digits[] = "0123456789";

    for (size_t i = 0; i < STK_COUNT(clouds); i++) {
        size_t bytes = strlen(clouds[i].begins), word, name = strlen(clouds[i].name);

        if (strncmp(region, clouds[i].begins, bytes) == 0) {
            word = strcspn(region + bytes, "-");
            if (word > 0 && region[bytes + word] == '-' && region[bytes + word + 1] &&
                strspn(region + bytes + word + 1, digits) == strlen(region + bytes + word + 1)) {
                return &clouds[i];
            }
        }
        if (strncmp(region, clouds[i].name, name) == 0 && strcmp(region + name, "-global") == 0) {
            return &clouds[i];
        }
    }
    return &usual;
}

/* "AWS_ENDPOINT_URL_S3" */
static void endpoint_variable(const char *service, char *variable, size_t variable_bytes)
{
    size_t used = (size_t)snprintf(variable, variable_bytes, "AWS_ENDPOINT_URL_");

    for (size_t i = 0; service[i] && used + 1 < variable_bytes; i++) {
        char c = service[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        variable[used++] = !letter ? '_' : c >= 'a' ? (char)(c - 32) : c;
        variable[used] = 0;
    }
}

/* Whether endpoints that are configured are looked at: 1, 0 or a filled error. */
static int is_looked_at(const struct stk_profiles *profiles, struct stoker_error *error)
{
    static const struct row row = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                   "ignore_configured_endpoint_urls", NULL, flag, AT(no_endpoints)};
    struct stk_settings settings = {0};
    struct said said;
    int status = find(profiles, &row, &said, error);

    status = status < 0 || !said.text ? status : take(&row, &said, &settings, error);
    return status < 0 ? status : settings.no_endpoints != STK_SAID_YES;
}

/* Of the services section that the profile names. As the other functions here. */
static int find_in_services(const struct stk_profiles *profiles, const char *service,
                            struct stk_endpoint *endpoint, struct stoker_error *error)
{
    const char *name = stk_profiles_get(profiles, profiles->name, "services"), *lines;

    if (!name) {
        return 0;
    }
    if (!stk_profiles_has_section(profiles, "services", name)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a profile names services that are not there",
                        "write a section [services NAME], or correct the profile",
                        "services %.100s, %s", name,
                        stk_profiles_where(profiles, profiles->name, "services", endpoint->from,
                                           sizeof endpoint->from));
    }
    lines = stk_profiles_section(profiles, "services", name, service);
    snprintf(endpoint->from, sizeof endpoint->from, "[services %.100s] of %s", name,
             profiles->config_path);
    return lines ? stk_ini_nested(lines, "endpoint_url", endpoint->url, sizeof endpoint->url) : 0;
}

int stk_settings_endpoint(const struct stk_profiles *profiles, const char *service,
                          struct stk_endpoint *endpoint, struct stoker_error *error)
{
    char variable[64];
    const char *value;
    int found = is_looked_at(profiles, error);

    *endpoint = (struct stk_endpoint){.url = ""};
    if (found <= 0) {
        return found;
    }
    found = 0;
    endpoint_variable(service, variable, sizeof variable);
    value = stk_environment(variable);
    snprintf(endpoint->from, sizeof endpoint->from, "%s", value ? variable : "AWS_ENDPOINT_URL");
    value = value ? value : stk_environment("AWS_ENDPOINT_URL");
    if (!value) {
        found = find_in_services(profiles, service, endpoint, error);
        if (found == STOKER_ERROR_FORMAT) {
            return found;
        }
    }
    found = found > 0 && !endpoint->url[0] ? 0 : found;
    if (found == 0 && !value) {
        value = stk_profiles_get(profiles, profiles->name, "endpoint_url");
        stk_profiles_where(profiles, profiles->name, "endpoint_url", endpoint->from,
                           sizeof endpoint->from);
    }
    if (value && value[0]) {
        found = (size_t)snprintf(endpoint->url, sizeof endpoint->url, "%s", value) <
                        sizeof endpoint->url
                    ? 1
                    : STOKER_ERROR_LIMIT;
    }
    if (found < 0) {
        endpoint->url[0] = 0;
        return stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                        "%s", endpoint->from);
    }
    if (found == 0) {
        endpoint->from[0] = 0;
    }
    return found;
}
