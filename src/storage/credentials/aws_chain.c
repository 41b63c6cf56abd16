/* AWS: the sources of botocore's chain, in its order and with its names. */
#include "storage/credentials/credential_chain.h"

#include "base/text/parse_number.h"
#include "storage/credentials/aws_sts.h"
#include "storage/url/url_redact.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA "http://169.254.169.254"
#define METADATA_6 "http://[fd00:ec2::254]"
#define METADATA_S 1u /* as botocore: most machines have no such service */
#define METADATA_S_MAX 30u
#define METADATA_TRIES_MAX 10u
#define METADATA_TTL_S "21600"
#define CONTAINER "http://169.254.170.2"
#define CONTAINER_MS 2000u

static stk_credential_lookup from_environment, from_role, from_web_identity, from_sso,
    from_shared_file, from_process, from_config_file, from_container, from_metadata;

const struct stk_credential_source stk_credential_chain_aws[] = {
    {"env", from_environment},
    {"assume-role", from_role},
    {"assume-role-with-web-identity", from_web_identity},
    {"sso", from_sso},
    {"shared-credentials-file", from_shared_file},
    {"custom-process", from_process},
    {"config-file", from_config_file},
    {"container-role", from_container},
    {"iam-role", from_metadata},
};
const size_t stk_credential_chain_aws_count = STK_COUNT(stk_credential_chain_aws);

/* ---- environment and files ---- */

static int environment_keys(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    const char *key = stk_environment_get("AWS_ACCESS_KEY_ID");
    const char *secret = stk_environment_get("AWS_SECRET_ACCESS_KEY");
    const char *token = stk_environment_get("AWS_SECURITY_TOKEN");
    const char *expires = stk_environment_get("AWS_CREDENTIAL_EXPIRATION");
    uint64_t seconds;
    int status;

    if (!key) {
        stk_credential_chain_log(search, "AWS_ACCESS_KEY_ID is not set%s",
                                 secret ? ", though AWS_SECRET_ACCESS_KEY is" : "");
        return 0;
    }
    if (!secret) {
        return stk_fail(error, STOKER_ERROR_MISSING, "half of the credentials is not set",
                        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither",
                        "the environment has no AWS_SECRET_ACCESS_KEY");
    }
    token = token ? token : stk_environment_get("AWS_SESSION_TOKEN");
    status = stk_credential_chain_copy_text(key, found->access_key, sizeof found->access_key,
                                            "AWS_ACCESS_KEY_ID", error);
    status = status < 0
                 ? status
                 : stk_credential_chain_copy_text(secret, found->secret, sizeof found->secret,
                                                  "AWS_SECRET_ACCESS_KEY", error);
    status = status < 0 || !token
                 ? status
                 : stk_credential_chain_copy_text(token, found->token, sizeof found->token,
                                                  "AWS_SESSION_TOKEN", error);
    if (status == 0 && expires) {
        if (!stk_auth_response_time(expires, &seconds)) {
            return stk_fail(error, STOKER_ERROR_FORMAT, "a time cannot be read",
                            "write it like 2026-11-21T22:00:00Z", "AWS_CREDENTIAL_EXPIRATION");
        }
        found->expires_ns = seconds * 1000000000u;
    }
    snprintf(found->source, sizeof found->source,
             "environment variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY%s",
             token ? ", AWS_SESSION_TOKEN" : "");
    return status < 0 ? status : 1;
}

/* As in botocore, a profile that the program names takes precedence over the environment. */
static int from_environment(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    if (search->options->profile) {
        stk_credential_chain_log(search, "a profile was requested by name");
        return 0;
    }
    return environment_keys(search, found, error);
}

typedef const char *profile_getter(const struct stk_aws_profile *profiles, const char *profile,
                                   const char *name);

/* "profile 'a', /home/me/.aws/config:12", where one of its names stands. */
static void log_location(const struct stk_aws_profile *profiles, const char *profile,
                         const char *name, char *text, size_t text_bytes)
{
    char where[STK_AWS_PROFILE_PATH_BYTES];

    snprintf(text, text_bytes, "profile '%.80s', %.300s", profile,
             stk_aws_profile_location(profiles, profile, name, where, sizeof where));
}

/* Reads keys that the profile contains, from the file that `get` reads. */
static int from_file(struct stk_credential_chain *search, profile_getter *get, const char *path,
                     struct stk_credentials *found, struct stoker_error *error)
{
    const struct stk_aws_profile *profiles = &search->profiles;
    const char *key = get(profiles, profiles->name, "aws_access_key_id");
    const char *secret = get(profiles, profiles->name, "aws_secret_access_key");
    const char *token = get(profiles, profiles->name, "aws_security_token");
    int status;

    if (!key) {
        stk_credential_chain_log(search, "profile '%s' of '%s' has no aws_access_key_id",
                                 profiles->name, path);
        return 0;
    }
    if (!secret || !secret[0] || !key[0]) {
        return stk_fail(error, STOKER_ERROR_MISSING, "half of the credentials is not set",
                        "set both aws_access_key_id and aws_secret_access_key in the profile",
                        "profile '%s' of '%s'", profiles->name, path);
    }
    token = token ? token : get(profiles, profiles->name, "aws_session_token");
    status = stk_credential_chain_copy_text(key, found->access_key, sizeof found->access_key, path,
                                            error);
    status = status < 0 ? status
                        : stk_credential_chain_copy_text(secret, found->secret,
                                                         sizeof found->secret, path, error);
    status =
        status < 0 || !token
            ? status
            : stk_credential_chain_copy_text(token, found->token, sizeof found->token, path, error);
    log_location(profiles, profiles->name, "aws_access_key_id", found->source,
                 sizeof found->source);
    return status < 0 ? status : 1;
}

static int from_shared_file(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    return from_file(search, stk_aws_profile_get_credentials, search->profiles.credentials_path,
                     found, error);
}

static int from_config_file(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    return from_file(search, stk_aws_profile_get_config, search->profiles.config_path, found,
                     error);
}

static int from_process(struct stk_credential_chain *search, struct stk_credentials *found,
                        struct stoker_error *error)
{
    const struct stk_aws_profile *profiles = &search->profiles;
    const char *command = stk_aws_profile_get(profiles, profiles->name, "credential_process");
    uint64_t version = 0, expires = 0;
    struct stk_auth_field fields[] = {
        {"Version", STK_AUTH_FIELD_ONE, &version, 0},
        {"AccessKeyId", STK_AUTH_FIELD_TEXT, found->access_key, sizeof found->access_key},
        {"SecretAccessKey", STK_AUTH_FIELD_TEXT, found->secret, sizeof found->secret},
        {"SessionToken", STK_AUTH_FIELD_OPTIONAL_TEXT, found->token, sizeof found->token},
        {"Expiration", STK_AUTH_FIELD_TIME, &expires, 0},
    };
    char text[STK_AUTH_RESPONSE_BYTES_MAX];
    size_t used = 0;
    int status;

    if (!command) {
        stk_credential_chain_log(search, "profile '%s' has no credential_process", profiles->name);
        return 0;
    }
    status = stk_credential_process_run(command, text, sizeof text, &used, error);
    if (status == 0) {
        status =
            stk_auth_response_json((struct stk_view){(uint8_t *)text, used}, fields,
                                   STK_COUNT(fields), "the output of credential_process", error);
    }
    explicit_bzero(text, sizeof text);
    found->expires_ns = expires ? expires * 1000000000u : STK_CREDS_NEVER;
    memcpy(found->source, "credential_process of ", 23);
    log_location(profiles, profiles->name, "credential_process", found->source + 22,
                 sizeof found->source - 22);
    return status < 0 ? status : 1;
}

/* ---- roles ---- */

static bool is_role(const struct stk_aws_profile *profiles, const char *profile)
{
    return stk_aws_profile_get(profiles, profile, "role_arn") &&
           !stk_aws_profile_get(profiles, profile, "web_identity_token_file");
}

static bool is_static(const struct stk_aws_profile *profiles, const char *profile)
{
    return stk_aws_profile_get(profiles, profile, "aws_access_key_id") ||
           stk_aws_profile_get(profiles, profile, "aws_secret_access_key");
}

/* The places of one profile, for a role whose source it is. */
static int from_profile(struct stk_credential_chain *search, const char *profile,
                        struct stk_credentials *found, struct stoker_error *error)
{
    static stk_credential_lookup *const places[] = {from_web_identity, from_sso, from_shared_file,
                                                    from_process, from_config_file};
    struct stk_credential_options options = *search->options;
    const struct stk_credential_options *before = search->options;
    char name[STK_AWS_PROFILE_NAME_BYTES];
    int status = 0;

    memcpy(name, search->profiles.name, sizeof name);
    snprintf(search->profiles.name, sizeof search->profiles.name, "%s", profile);
    options.profile = profile; /* so that no variable is meant for it */
    search->options = &options;
    for (size_t i = 0; status == 0 && i < STK_COUNT(places); i++) {
        status = places[i](search, found, error);
    }
    search->options = before;
    memcpy(search->profiles.name, name, sizeof name);
    if (status == 0) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "a source_profile has no credentials",
                          "add keys or a credential_process to it", "profile '%s'", profile);
    }
    return status;
}

static int from_source(struct stk_credential_chain *search, const char *source, const char *profile,
                       struct stk_credentials *found, struct stoker_error *error)
{
    static const struct {
        const char *name;
        stk_credential_lookup *look;
    } sources[] = {{"Environment", environment_keys},
                   {"EcsContainer", from_container},
                   {"Ec2InstanceMetadata", from_metadata}};
    int status = -1;

    for (size_t i = 0; i < STK_COUNT(sources); i++) {
        if (strcmp(sources[i].name, source) == 0) {
            status = sources[i].look(search, found, error);
            return status != 0 ? status
                               : stk_fail(error, STOKER_ERROR_MISSING,
                                          "a credential_source has no credentials",
                                          "check that the program runs in the environment that the "
                                          "profile expects",
                                          "'%s' of profile '%s'", source, profile);
        }
    }
    return stk_fail(error, STOKER_ERROR_FORMAT, "a credential_source is unknown",
                    "use Environment, EcsContainer or Ec2InstanceMetadata", "profile '%s'",
                    profile);
}

/* Fails if the source of the profile is invalid. *next_out: the next profile, NULL: the
 * credential_source. */
static int check_role(const struct stk_aws_profile *profiles, const char *profile, unsigned depth,
                      const char **next_out, struct stoker_error *error)
{
    const char *next = stk_aws_profile_get(profiles, profile, "source_profile");
    const char *source = stk_aws_profile_get(profiles, profile, "credential_source");
    const char *what = NULL;

    if (next && source) {
        what = "a profile has both source_profile and credential_source";
    } else if (!next && !source) {
        what = "a role has neither source_profile nor credential_source";
    } else if (next && !stk_aws_profile_has(profiles, next)) {
        what = "a source_profile is in no file";
    } else if (next && strcmp(next, profile) == 0 && !is_static(profiles, next)) {
        what = "a profile is its own source_profile, without keys";
    } else if (depth >= STK_STS_CHAIN_MAX) {
        what = "the source_profiles of a profile go in a circle";
    } else if (stk_aws_profile_get(profiles, profile, "mfa_serial")) {
        what = "a role needs the code of an MFA device (mfa_serial), and there is no prompt for it";
    }
    *next_out = next;
    return what ? stk_fail(error, STOKER_ERROR_FORMAT, what, "correct the profile", "profile '%s'",
                           profile)
                : 0;
}

/* Follows the source_profiles to the first keys, then assumes the roles in reverse order, one at
 * a time. */
static int from_role(struct stk_credential_chain *search, struct stk_credentials *found,
                     struct stoker_error *error)
{
    const struct stk_aws_profile *profiles = &search->profiles;
    const char *chain[STK_STS_CHAIN_MAX + 1], *profile = profiles->name, *next = NULL;
    unsigned depth = 0;
    int status = 0;

    if (!is_role(profiles, profile)) {
        stk_credential_chain_log(search, "profile '%s' has no role_arn", profile);
        return 0;
    }
    do {
        status = check_role(profiles, profile, depth, &next, error);
        if (status < 0) {
            return status;
        }
        chain[depth++] = profile;
        profile = next;
    } while (next && is_role(profiles, next) && !is_static(profiles, next));
    status = next
                 ? from_profile(search, next, found, error)
                 : from_source(search,
                               stk_aws_profile_get(profiles, chain[depth - 1], "credential_source"),
                               chain[depth - 1], found, error);
    while (status > 0 && depth > 0) {
        profile = chain[--depth];
        struct stk_sts_role role = {
            .arn = stk_aws_profile_get(profiles, profile, "role_arn"),
            .session = stk_aws_profile_get(profiles, profile, "role_session_name"),
            .external_id = stk_aws_profile_get(profiles, profile, "external_id"),
            .duration = stk_aws_profile_get(profiles, profile, "duration_seconds"),
        };
        char source[sizeof found->source], place[400];
        memcpy(source, found->source, sizeof source);
        status = stk_sts_assume_role(search, &role, found, error);
        log_location(profiles, profile, "role_arn", place, sizeof place);
        snprintf(found->source, sizeof found->source,
                 "role '%.100s' of %.150s, by %.60s and %.150s", role.arn, place, role.host,
                 source);
    }
    return status;
}

static int from_web_identity(struct stk_credential_chain *search, struct stk_credentials *found,
                             struct stoker_error *error)
{
    const struct stk_aws_profile *profiles = &search->profiles;
    bool variables = !search->options->profile; /* a selected profile takes precedence */
    const char *values[3];
    char place[STK_AWS_PROFILE_PATH_BYTES];
    static const struct {
        const char *variable, *name;
    } names[] = {{"AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file"},
                 {"AWS_ROLE_ARN", "role_arn"},
                 {"AWS_ROLE_SESSION_NAME", "role_session_name"}};
    struct stk_sts_role role = {0};
    int status;

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        values[i] = variables ? stk_environment_get(names[i].variable) : NULL;
        if (!values[i]) {
            values[i] = stk_aws_profile_get(profiles, profiles->name, names[i].name);
        }
    }
    if (!values[0]) {
        stk_credential_chain_log(
            search, "neither AWS_WEB_IDENTITY_TOKEN_FILE nor profile '%s' names a token",
            profiles->name);
        return 0;
    }
    if (!values[1]) {
        return stk_fail(error, STOKER_ERROR_MISSING, "a web identity has no role",
                        "set AWS_ROLE_ARN, or role_arn in the profile", "'%s'", values[0]);
    }
    role.arn = values[1];
    role.session = values[2];
    role.token_file = values[0]; /* read each time: it is replaced before it ends */
    status = stk_sts_assume_role(search, &role, found, error);
    snprintf(found->source, sizeof found->source,
             "role '%.120s' by %.80s and the web identity in '%.120s' (%s)", values[1], role.host,
             values[0],
             variables && stk_environment_get(names[0].variable)
                 ? names[0].variable
                 : stk_aws_profile_location(profiles, profiles->name, names[0].name, place,
                                            sizeof place));
    return status;
}

static int from_sso(struct stk_credential_chain *search, struct stk_credentials *found,
                    struct stoker_error *error)
{
    const struct stk_aws_profile *profiles = &search->profiles;
    const char *name = profiles->name;
    struct stk_sts_sso sso = {.account = stk_aws_profile_get(profiles, name, "sso_account_id"),
                              .role = stk_aws_profile_get(profiles, name, "sso_role_name"),
                              .start_url = stk_aws_profile_get(profiles, name, "sso_start_url"),
                              .region = stk_aws_profile_get(profiles, name, "sso_region"),
                              .session = stk_aws_profile_get(profiles, name, "sso_session")};
    char place[400];
    int status;

    if (!sso.account && !sso.role) {
        stk_credential_chain_log(search, "profile '%s' has no sso_account_id", name);
        return 0;
    }
    if (sso.session) {
        if (!stk_aws_profile_has_section(profiles, "sso-session", sso.session)) {
            return stk_fail(error, STOKER_ERROR_MISSING, "an sso_session is in no file",
                            "add [sso-session NAME] to the config file", "profile '%s'", name);
        }
        sso.start_url =
            stk_aws_profile_section(profiles, "sso-session", sso.session, "sso_start_url");
        sso.region = stk_aws_profile_section(profiles, "sso-session", sso.session, "sso_region");
    }
    if (!sso.account || !sso.role || !sso.start_url || !sso.region) {
        return stk_fail(error, STOKER_ERROR_MISSING, "a profile of SSO is incomplete",
                        "it takes sso_account_id, sso_role_name, sso_start_url and sso_region",
                        "profile '%s'", name);
    }
    status = stk_sts_sso(search, &sso, found, error);
    log_location(profiles, name, "sso_role_name", place, sizeof place);
    snprintf(found->source, sizeof found->source, "SSO role '%.60s' of account %.20s, %.300s",
             sso.role, sso.account, place);
    return status;
}

/* ---- services of the machine ---- */

/* Parses keys in JSON, as the metadata services of instances and containers report them. */
static int read_keys(struct stk_auth_request *auth, const char *what, struct stk_credentials *found,
                     struct stoker_error *error)
{
    uint64_t expires = 0;
    const struct stk_auth_field fields[] = {
        {"AccessKeyId", STK_AUTH_FIELD_TEXT, found->access_key, sizeof found->access_key},
        {"SecretAccessKey", STK_AUTH_FIELD_TEXT, found->secret, sizeof found->secret},
        {"Token", STK_AUTH_FIELD_TEXT, found->token, sizeof found->token},
        {"Expiration", STK_AUTH_FIELD_TIME, &expires, 0},
    };
    int status = stk_auth_response_json((struct stk_view){(uint8_t *)auth->text, auth->text_bytes},
                                        fields, STK_COUNT(fields), what, error);

    found->expires_ns = expires ? stk_auth_request_local_time(auth, expires) : STK_CREDS_NEVER;
    return status < 0 ? status : 1;
}

/* By plain HTTP a token may only go to this machine, or to the addresses of the two services. */
static bool is_allowed_url(const char *url)
{
    static const char *const hosts[] = {"169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : "";
    size_t bytes = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");

    if (stk_credentials_url_is_private(url)) {
        return true;
    }
    for (size_t i = 0; i < STK_COUNT(hosts); i++) {
        if (strlen(hosts[i]) == bytes && strncmp(hosts[i], host, bytes) == 0) {
            return !memchr(host, '@', strcspn(host, "/?#"));
        }
    }
    return false;
}

static int container_token(struct stk_auth_request *auth, struct stoker_error *error)
{
    const char *file = stk_environment_get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *value = stk_environment_get("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char text[STK_CREDS_TOKEN_BYTES_MAX];
    int status = 0;

    if (file) {
        status = stk_credential_chain_read_file(file, text, sizeof text,
                                                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", error);
        value = text;
    }
    if (status == 0 && value && (strlen(value) >= sizeof text || strpbrk(value, "\r\n"))) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "a token has several lines",
                          "check where it was set", "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    }
    if (status == 0 && value) {
        stk_auth_request_add_header(auth, "Authorization", value);
    }
    explicit_bzero(text, sizeof text);
    return status;
}

static int from_container(struct stk_credential_chain *search, struct stk_credentials *found,
                          struct stoker_error *error)
{
    const char *relative = stk_environment_get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = stk_environment_get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    struct stk_auth_request *auth;
    char shown[256] = "", *host;
    int status;

    if (!relative && !full) {
        stk_credential_chain_log(search,
                                 "no AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and no ..._FULL_URI");
        return 0;
    }
    if (relative ? relative[0] != '/' : !is_allowed_url(full)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a container endpoint is not allowed",
                        "use https, an address of this machine, or one of ECS or EKS", "%s",
                        relative ? "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with /"
                                 : "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    }
    auth = stk_auth_request_open(STK_HTTP_GET);
    if (!auth) {
        return stk_fail_errno(error, ENOMEM, "cannot query the container", "free memory", "ECS");
    }
    stk_auth_request_set_url(auth, "%s%s", relative ? CONTAINER : "", relative ? relative : full);
    auth->direct = true;
    auth->total_ms = auth->connect_ms = CONTAINER_MS;
    stk_auth_request_add_header(auth, "Accept", "application/json");
    status = container_token(auth, error);
    status = status < 0 ? status
                        : stk_auth_request_send(search, auth, "the container's endpoint", error);
    if (status == 0) {
        status = auth->code == 200
                     ? read_keys(auth, "the container's endpoint", found, error)
                     : stk_auth_request_fail(auth, "the container's endpoint",
                                             "check the task's role, or the pod's", error);
    }
    if (full) { /* only the host: the path may be a secret */
        stk_url_redact_short(full, shown, sizeof shown);
        host = strstr(shown, "://");
        host = host ? host + 3 : shown;
        host[strcspn(host, "/")] = 0;
    }
    snprintf(found->source, sizeof found->source, "the container's endpoint %s (%s)",
             relative ? CONTAINER : shown,
             relative ? "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
                      : "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    stk_auth_request_close(auth);
    return status;
}

/* A number from a variable, or else from an option of the profile; false: it is not one. */
static bool metadata_number(const struct stk_aws_profile *profiles, const char *variable,
                            uint32_t most, uint32_t *number)
{
    const char *text = stk_environment_get(variable), *option = variable + 4; /* "AWS_" */
    char name[64];
    size_t used = 0;
    int64_t reported;
    const char *end;

    for (; option[used] && used + 1 < sizeof name; used++) {
        name[used] = (char)tolower((unsigned char)option[used]);
    }
    name[used] = 0;
    text = text ? text : stk_aws_profile_get(profiles, profiles->name, name);
    if (!text || !text[0]) {
        return true;
    }
    *number = 0;
    if (stk_parse_int64(text, &end, &reported) && *end == 0 && reported > 0) {
        *number = (uint32_t)stk_min((uint64_t)reported, most);
    }
    return *number > 0;
}

/* Returns 1 if the service may be used, 0 if it is disabled or a number in the settings is
 * invalid. */
int stk_ec2_metadata_find(struct stk_credential_chain *search, struct stk_ec2_metadata *service,
                          struct stoker_error *error)
{
    const struct stk_aws_profile *profiles = &search->profiles;
    const char *off = stk_environment_get("AWS_EC2_METADATA_DISABLED");
    const char *base = stk_environment_get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = stk_environment_get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    uint32_t seconds = METADATA_S;

    if (off && strcasecmp(off, "true") == 0) {
        stk_credential_chain_log(search, "AWS_EC2_METADATA_DISABLED is true");
        return 0;
    }
    base = base ? base
                : stk_aws_profile_get(profiles, profiles->name, "ec2_metadata_service_endpoint");
    mode =
        mode ? mode
             : stk_aws_profile_get(profiles, profiles->name, "ec2_metadata_service_endpoint_mode");
    service->base = base && base[0]                         ? base
                    : mode && strcasecmp(mode, "ipv6") == 0 ? METADATA_6
                                                            : METADATA;
    service->tries = 1;
    if (!metadata_number(profiles, "AWS_METADATA_SERVICE_TIMEOUT", METADATA_S_MAX, &seconds) ||
        !metadata_number(profiles, "AWS_METADATA_SERVICE_NUM_ATTEMPTS", METADATA_TRIES_MAX,
                         &service->tries)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a setting is no number",
                        "use whole numbers from 1",
                        "AWS_METADATA_SERVICE_TIMEOUT or ..._NUM_ATTEMPTS");
    }
    service->timeout_ms = seconds * 1000;
    return 1;
}

struct stk_auth_request *stk_ec2_metadata_request(uint32_t method,
                                                  const struct stk_ec2_metadata *service,
                                                  const char *path, const char *token)
{
    struct stk_auth_request *auth = stk_auth_request_open(method);
    size_t bytes = strlen(service->base);

    if (auth) {
        stk_auth_request_set_url(auth, "%.*s%s", (int)(bytes - (service->base[bytes - 1] == '/')),
                                 service->base, path);
        auth->direct = true;
        auth->total_ms = auth->connect_ms = service->timeout_ms;
        /* Most machines do not have this service. If the service returned a token, it exists. */
        auth->tries = method == STK_HTTP_PUT ? service->tries
                                             : stk_max(service->tries, STK_CREDENTIAL_CHAIN_TRIES);
        stk_auth_request_add_header(
            auth, token ? "x-aws-ec2-metadata-token" : "x-aws-ec2-metadata-token-ttl-seconds",
            token ? token : METADATA_TTL_S);
    }
    return auth;
}

/* Requests a token, as version 2 requires. Version 1 is not used: it returns keys to any program
 * that makes the machine send a GET. Returns 1 if the response text is the token, 0 if no service
 * responds or the response is not that of a metadata service. */
static int metadata_token(struct stk_credential_chain *search,
                          const struct stk_ec2_metadata *service,
                          struct stk_auth_request **token_out)
{
    struct stk_auth_request *token =
        stk_ec2_metadata_request(STK_HTTP_PUT, service, "/latest/api/token", NULL);
    int status =
        token ? stk_auth_request_send(search, token, "the instance's metadata", NULL) : -ENOMEM;

    *token_out = token;
    if (status == 0 && token->code == 200 && !strpbrk(token->text, "\r\n") &&
        token->text_bytes > 0 && token->text_bytes < STK_CREDS_KEY_BYTES_MAX) {
        return 1;
    }
    if (status < 0 || stk_auth_request_is_busy(token)) {
        search->unreachable = "the metadata service of an EC2 instance";
        stk_credential_chain_log(
            search,
            "no metadata service of an EC2 instance answers at %s, which is queried again "
            "in a minute (in a container it answers only where its hop limit is 2 or "
            "more)",
            service->base);
    } else {
        stk_credential_chain_log(search, "no metadata of an EC2 instance are at %s: status %u",
                                 service->base, token->code);
    }
    return 0;
}

/* Stores the name of the role in role->text. Returns 1 on success, 0 if there is no role. If the
 * service returned a token but does not report whether there is a role, the service has failed: the
 * search must not continue without a signature. */
static int metadata_role(struct stk_credential_chain *search, struct stk_auth_request *role,
                         struct stoker_error *error)
{
    int status = role ? stk_auth_request_send(search, role, "the instance's metadata", error)
                      : stk_fail_errno(error, ENOMEM, "cannot query the instance", "free memory",
                                       "its metadata");

    if (status < 0) {
        return status;
    }
    if (role->code == 404 || (role->code == 200 && role->text_bytes == 0)) {
        stk_credential_chain_log(search, "the instance has no role");
        return 0;
    }
    if (role->code != 200) {
        return stk_auth_request_fail(role, "the instance's metadata", "check the instance's role",
                                     error);
    }
    role->text[strcspn(role->text, "\r\n")] = 0;
    if (strpbrk(role->text, " ?#%")) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the name of a role is invalid",
                        "check which server responds there", "the instance's metadata");
    }
    return 1;
}

static int from_metadata(struct stk_credential_chain *search, struct stk_credentials *found,
                         struct stoker_error *error)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    struct stk_auth_request *token = NULL, *role = NULL, *keys = NULL;
    struct stk_ec2_metadata service;
    char path[512];
    int status;

    if (!search->options->http) {
        stk_credential_chain_log(search, "the metadata service is not queried here");
        return 0;
    }
    status = stk_ec2_metadata_find(search, &service, error);
    status = status > 0 ? metadata_token(search, &service, &token) : status;
    if (status > 0) {
        role = stk_ec2_metadata_request(STK_HTTP_GET, &service, roles, token->text);
        status = metadata_role(search, role, error);
    }
    if (status <= 0) {
        goto done;
    }
    snprintf(path, sizeof path, "%s%.256s", roles, role->text);
    keys = stk_ec2_metadata_request(STK_HTTP_GET, &service, path, token->text);
    status = keys ? stk_auth_request_send(search, keys, "the instance's metadata", error)
                  : stk_fail_errno(error, ENOMEM, "cannot query the instance", "free memory",
                                   "its metadata");
    if (status == 0) {
        status = keys->code == 200 ? read_keys(keys, "the instance's metadata", found, error)
                                   : stk_auth_request_fail(keys, "the instance's metadata",
                                                           "check the instance's role", error);
    }
    if (status > 0) {
        found->usable_after_expiry = true;
        found->expires_ns = stk_credential_chain_extend_expiry(found->expires_ns);
    }
    snprintf(found->source, sizeof found->source, "role '%.100s' of the EC2 instance, by %.200s",
             role->text, service.base);

done:
    stk_auth_request_close(token);
    stk_auth_request_close(role);
    stk_auth_request_close(keys);
    return status;
}
