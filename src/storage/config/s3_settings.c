/* A table of settings: their names in each place, and the values that they accept. */
#include "storage/config/s3_settings.h"

#include "base/text/parse_number.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ATTEMPTS_MAX 100u

/* The same partitions as in botocore. */
static const struct stk_aws_partition clouds[] = {
    {"cn-", "aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", false},
    {"us-gov-", "aws-us-gov", "amazonaws.com", "api.aws", false},
    {"eusc-de-", "aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", false},
    {"us-iso-", "aws-iso", "c2s.ic.gov", "api.aws.ic.gov", false},
    {"us-isob-", "aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", false},
    {"eu-isoe-", "aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", true},
    {"us-isof-", "aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", true}};
static const struct stk_aws_partition usual = {"", "aws", "amazonaws.com", "api.aws", false};

/* The texts of a setting and their values. NULL ends the list. */
struct word {
    const char *text;
    uint32_t value;
};

/* botocore accepts only "true" for yes. Users also write the other texts. */
static const struct word flag[] = {
    {"true", STK_FLAG_YES}, {"1", STK_FLAG_YES}, {"yes", STK_FLAG_YES}, {"false", STK_FLAG_NO},
    {"0", STK_FLAG_NO},     {"no", STK_FLAG_NO}, {"", STK_FLAG_NO},     {NULL, 0}};
static const struct word regional[] = {
    {"regional", STK_FLAG_YES}, {"legacy", STK_FLAG_NO}, {NULL, 0}};
static const struct word when_required[] = {
    {"when_required", STK_FLAG_YES}, {"when_supported", STK_FLAG_NO}, {NULL, 0}};
static const struct word addressing[] = {{"auto", STK_S3_ADDRESSING_AUTO},
                                         {"path", STK_S3_ADDRESSING_PATH},
                                         {"virtual", STK_S3_ADDRESSING_VIRTUAL},
                                         {NULL, 0}};
/* The mode has no effect: storage/throttle/throttle.h has the rules for rates. Only the name of
 * the mode is checked. */
static const struct word modes[] = {{"legacy", 0}, {"standard", 0}, {"adaptive", 0}, {NULL, 0}};

#define AT(field) (uint32_t)offsetof(struct stk_s3_settings, field)
#define NO_OFFSET UINT32_MAX

static const struct row {
    const char *variable, *name, *inner; /* inner: below "s3 =" of the profile */
    const struct word *words;            /* NULL: a count */
    uint32_t at;                         /* of a uint32_t in struct stk_s3_settings */
} rows[] = {
    {"AWS_MAX_ATTEMPTS", "max_attempts", NULL, NULL, AT(attempts_max)},
    {"AWS_RETRY_MODE", "retry_mode", NULL, modes, NO_OFFSET},
    {"AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint", NULL, flag, AT(fips)},
    {"AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint", NULL, flag, AT(dual_stack)},
    {NULL, NULL, "addressing_style", addressing, AT(addressing)},
    {NULL, NULL, "use_accelerate_endpoint", flag, AT(accelerate)},
    {NULL, NULL, "payload_signing_enabled", flag, AT(sign_payload)},
    {"AWS_S3_USE_ARN_REGION", "s3_use_arn_region", "use_arn_region", flag, AT(arn_region)},
    {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "s3_us_east_1_regional_endpoint",
     "us_east_1_regional_endpoint", regional, AT(regional_us_east_1)},
    {"AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS", "s3_disable_multiregion_access_points",
     "s3_disable_multiregion_access_points", flag, AT(no_multi_region)},
    {"AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "s3_disable_express_session_auth", NULL, flag,
     AT(no_express_sessions)},
    {"AWS_REQUEST_CHECKSUM_CALCULATION", "request_checksum_calculation", NULL, when_required,
     AT(checksums_when_required)},
    {"AWS_RESPONSE_CHECKSUM_VALIDATION", "response_checksum_validation", NULL, when_required,
     AT(verify_when_required)},
};

/* The text of a setting, and the place where it is set. */
struct setting_text {
    const char *text; /* NULL: not set */
    char inner[64];   /* room for one of "s3 =" */
    char where[STK_AWS_PROFILE_PATH_BYTES + 64];
};

static int find(const struct stk_aws_profile *profiles, const struct row *row,
                struct setting_text *setting_text, struct stoker_error *error);
static int find_inner(const struct stk_aws_profile *profiles, const char *name,
                      struct setting_text *setting_text, struct stoker_error *error);
static int parse_setting(const struct row *row, const struct setting_text *setting_text,
                         struct stk_s3_settings *settings, struct stoker_error *error);
static bool remove_part(char *text, const char *part);

int stk_s3_settings_read(const struct stk_aws_profile *profiles, struct stk_s3_settings *settings,
                         struct stoker_error *error)
{
    /* This setting can only enable a feature that the general setting disables. */
    static const struct row dual = {NULL, NULL, "use_dualstack_endpoint", flag, AT(dual_stack)};
    struct stk_s3_settings more = {0};
    struct setting_text setting_text;
    int status = 0;

    *settings = (struct stk_s3_settings){0};
    for (size_t i = 0; i < STK_COUNT(rows) && status == 0; i++) {
        status = find(profiles, &rows[i], &setting_text, error);
        status = status < 0 || !setting_text.text
                     ? status
                     : parse_setting(&rows[i], &setting_text, settings, error);
    }
    status = status < 0 ? status : find(profiles, &dual, &setting_text, error);
    status = status < 0 || !setting_text.text ? status
                                              : parse_setting(&dual, &setting_text, &more, error);
    if (more.dual_stack == STK_FLAG_YES) {
        settings->dual_stack = STK_FLAG_YES;
    }
    return status < 0 ? status : stk_s3_settings_ca_file(profiles, settings->ca_file, error);
}

static int find(const struct stk_aws_profile *profiles, const struct row *row,
                struct setting_text *setting_text, struct stoker_error *error)
{
    setting_text->text = row->variable ? stk_environment_get(row->variable) : NULL;
    if (setting_text->text) {
        snprintf(setting_text->where, sizeof setting_text->where, "%s", row->variable);
        return 0;
    }
    setting_text->text =
        row->name ? stk_aws_profile_get(profiles, profiles->name, row->name) : NULL;
    if (setting_text->text) {
        char place[STK_AWS_PROFILE_PATH_BYTES + 16];

        stk_aws_profile_location(profiles, profiles->name, row->name, place, sizeof place);
        snprintf(setting_text->where, sizeof setting_text->where, "%s, %s", row->name, place);
        return 0;
    }
    return row->inner ? find_inner(profiles, row->inner, setting_text, error) : 0;
}

static int find_inner(const struct stk_aws_profile *profiles, const char *name,
                      struct setting_text *setting_text, struct stoker_error *error)
{
    const char *lines = stk_aws_profile_get(profiles, profiles->name, "s3");
    char place[STK_AWS_PROFILE_PATH_BYTES + 16];
    int found =
        lines ? stk_ini_get_nested(lines, name, setting_text->inner, sizeof setting_text->inner)
              : 0;

    stk_aws_profile_location(profiles, profiles->name, "s3", place, sizeof place);
    snprintf(setting_text->where, sizeof setting_text->where, "%s below s3, %s", name, place);
    setting_text->text = found > 0 ? setting_text->inner : NULL;
    return found < 0 ? stk_fail(error, STOKER_ERROR_LIMIT, "a setting is too long", "shorten it",
                                "%s", setting_text->where)
                     : 0;
}

/* Errors do not contain the text: it may be a secret on the wrong line. */
static int parse_setting(const struct row *row, const struct setting_text *setting_text,
                         struct stk_s3_settings *settings, struct stoker_error *error)
{
    uint32_t *field =
        row->at == NO_OFFSET ? NULL : (uint32_t *)(void *)((char *)settings + row->at);
    char known[96] = "";
    uint32_t value = 0;

    if (!row->words) {
        size_t digits = strspn(setting_text->text, "0123456789");

        if (digits == 0 || setting_text->text[digits] ||
            strspn(setting_text->text, "0") == digits) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a setting is no number above 0",
                            "write a number", "%s", setting_text->where);
        }
        const char *end;
        uint64_t number;

        *field = stk_parse_uint64(setting_text->text, &end, &number)
                     ? (uint32_t)stk_min(number, ATTEMPTS_MAX)
                     : ATTEMPTS_MAX; /* more digits than 64 bits have */
        return 0;
    }
    for (const struct word *word = row->words; word->text; word++) {
        if (strcasecmp(word->text, setting_text->text) == 0) {
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
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "a setting has an unknown value",
                    "use one of the known ones", "%s: one of %s", setting_text->where, known);
}

int stk_s3_settings_ca_file(const struct stk_aws_profile *profiles,
                            char out[STK_AWS_PROFILE_PATH_BYTES], struct stoker_error *error)
{
    static const struct row row = {"AWS_CA_BUNDLE", "ca_bundle", NULL, NULL, NO_OFFSET};
    struct setting_text setting_text;
    int status = find(profiles, &row, &setting_text, error);

    out[0] = 0;
    if (status == 0 && setting_text.text && setting_text.text[0] &&
        !stk_path_expand_home(setting_text.text, out, STK_AWS_PROFILE_PATH_BYTES)) {
        out[0] = 0;
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the path of a file is too long", "shorten it",
                          "%s", setting_text.where);
    }
    return status;
}

const char *stk_s3_settings_environment_ca_file(void)
{
    static const char *const names[] = {"AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"};
    const char *found = NULL;

    for (size_t i = 0; i < STK_COUNT(names) && !found; i++) {
        found = stk_environment_get(names[i]);
    }
    return found;
}

bool stk_aws_region_strip_fips(char *region)
{
    return remove_part(region, "fips-") | remove_part(region, "-fips");
}

static bool remove_part(char *text, const char *part)
{
    char *at = strstr(text, part);

    if (at) {
        memmove(at, at + strlen(part), strlen(at + strlen(part)) + 1);
    }
    return at != NULL;
}

const struct stk_aws_partition *stk_aws_partition_of(const char *region)
{
    static const char digits[] = "0123456789";

    for (size_t i = 0; i < STK_COUNT(clouds); i++) {
        size_t bytes = strlen(clouds[i].region_prefix), word, name = strlen(clouds[i].name);

        if (strncmp(region, clouds[i].region_prefix, bytes) == 0) {
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

/* Returns 1 if configured endpoints are used, 0 if they are ignored, or a filled error. */
static int uses_endpoints(const struct stk_aws_profile *profiles, struct stoker_error *error)
{
    static const struct row row = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                   "ignore_configured_endpoint_urls", NULL, flag,
                                   AT(ignore_endpoints)};
    struct stk_s3_settings settings = {0};
    struct setting_text setting_text;
    int status = find(profiles, &row, &setting_text, error);

    status = status < 0 || !setting_text.text
                 ? status
                 : parse_setting(&row, &setting_text, &settings, error);
    return status < 0 ? status : settings.ignore_endpoints != STK_FLAG_YES;
}

/* Searches the services section that the profile names. Returns the same values as the other
 * functions of this file. */
static int find_in_services(const struct stk_aws_profile *profiles, const char *service,
                            struct stk_service_endpoint *endpoint, struct stoker_error *error)
{
    const char *name = stk_aws_profile_get(profiles, profiles->name, "services"), *lines;

    if (!name) {
        return 0;
    }
    if (!stk_aws_profile_has_section(profiles, "services", name)) {
        return stk_fail(
            error, STOKER_ERROR_FORMAT, "a profile names a services section that does not exist",
            "write a section [services NAME], or correct the profile", "services %.100s, %s", name,
            stk_aws_profile_location(profiles, profiles->name, "services", endpoint->source,
                                     sizeof endpoint->source));
    }
    lines = stk_aws_profile_section(profiles, "services", name, service);
    snprintf(endpoint->source, sizeof endpoint->source, "[services %.100s] of %s", name,
             profiles->config_path);
    return lines ? stk_ini_get_nested(lines, "endpoint_url", endpoint->url, sizeof endpoint->url)
                 : 0;
}

int stk_s3_settings_endpoint(const struct stk_aws_profile *profiles, const char *service,
                             struct stk_service_endpoint *endpoint, struct stoker_error *error)
{
    char variable[64];
    const char *value;
    int found = uses_endpoints(profiles, error);

    *endpoint = (struct stk_service_endpoint){.url = ""};
    if (found <= 0) {
        return found;
    }
    found = 0;
    endpoint_variable(service, variable, sizeof variable);
    value = stk_environment_get(variable);
    snprintf(endpoint->source, sizeof endpoint->source, "%s",
             value ? variable : "AWS_ENDPOINT_URL");
    value = value ? value : stk_environment_get("AWS_ENDPOINT_URL");
    if (!value) {
        found = find_in_services(profiles, service, endpoint, error);
        if (found == STOKER_ERROR_FORMAT) {
            return found;
        }
    }
    found = found > 0 && !endpoint->url[0] ? 0 : found;
    if (found == 0 && !value) {
        value = stk_aws_profile_get(profiles, profiles->name, "endpoint_url");
        stk_aws_profile_location(profiles, profiles->name, "endpoint_url", endpoint->source,
                                 sizeof endpoint->source);
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
                        "%s", endpoint->source);
    }
    if (found == 0) {
        endpoint->source[0] = 0;
    }
    return found;
}
