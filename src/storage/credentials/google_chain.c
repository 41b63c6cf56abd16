/* Google: HMAC keys, application default credentials (AIP-4110), the metadata server. */
#include "storage/credentials/credential_chain.h"

#include "base/mem.h"
#include "io/clock.h"
#include "storage/sign/jwt.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define SCOPE "https://www.googleapis.com/auth/devstorage.read_write"
#define SCOPE_IAM "https://www.googleapis.com/auth/iam" /* enough to act for another */
#define TOKEN_URI "https://oauth2.googleapis.com/token"
#define METADATA "metadata.google.internal"
#define METADATA_MS 3000u /* as google-auth: pods of GKE are slow to be known at first */
#define LIFE_S 3600u
#define PATH_BYTES 4096u

static stk_credential_lookup from_hmac, from_variable, from_gcloud, from_metadata;

const struct stk_credential_source stk_credential_chain_google[] = {
    {"hmac", from_hmac},
    {"application-credentials", from_variable},
    {"gcloud", from_gcloud},
    {"metadata-server", from_metadata},
};
const size_t stk_credential_chain_google_count = STK_COUNT(stk_credential_chain_google);

/* A file of credentials, of any type. */
struct file {
    char type[64];
    char client_id[512], client_secret[512], refresh_token[2048]; /* authorized_user */
    char email[512], key_id[256], key[8192];                      /* service_account */
    char audience[1024], subject_type[256], token_url[512];       /* external_account */
    char source_file[1024], source_url[1024], format[32], field[64], impersonation[1024];
    char authorization[8192]; /* that the source's URL wants */
    char token_uri[512], project[128];
    char universe[128];   /* empty: Google's own */
    char delegates[2048]; /* each after a '\n' */
    uint64_t life_s;      /* the account to impersonate */
    const char *scope;    /* the requested scope */
    struct file *source;  /* whose credentials request the token; NULL: its own */
};

static int from_file(struct stk_credential_chain *search, const char *path,
                     struct stk_credentials *found, struct stoker_error *error);
static int read_token(const struct stk_auth_request *auth, const char *what,
                      struct stk_credentials *found, struct stoker_error *error);

/* The keys of the XML interface, under GDAL's names for them. */
static int from_hmac(struct stk_credential_chain *search, struct stk_credentials *found,
                     struct stoker_error *error)
{
    const char *key = stk_environment_get("GS_ACCESS_KEY_ID");
    const char *secret = stk_environment_get("GS_SECRET_ACCESS_KEY");
    int status;

    if (!key) {
        stk_credential_chain_log(search, "GS_ACCESS_KEY_ID is not set");
        return 0;
    }
    if (!secret) {
        return stk_fail(error, STOKER_ERROR_MISSING, "half of the credentials is not set",
                        "set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or neither",
                        "the environment has no GS_SECRET_ACCESS_KEY");
    }
    status = stk_credential_chain_copy_text(key, found->access_key, sizeof found->access_key,
                                            "GS_ACCESS_KEY_ID", error);
    status = status < 0
                 ? status
                 : stk_credential_chain_copy_text(secret, found->secret, sizeof found->secret,
                                                  "GS_SECRET_ACCESS_KEY", error);
    found->kind = STK_CREDS_KEYS;
    snprintf(found->source, sizeof found->source,
             "environment variables GS_ACCESS_KEY_ID, GS_SECRET_ACCESS_KEY (HMAC)");
    return status < 0 ? status : 1;
}

static int from_variable(struct stk_credential_chain *search, struct stk_credentials *found,
                         struct stoker_error *error)
{
    const char *path = stk_environment_get("GOOGLE_APPLICATION_CREDENTIALS");

    if (!path) {
        stk_credential_chain_log(search, "GOOGLE_APPLICATION_CREDENTIALS is not set");
        return 0;
    }
    return from_file(search, path, found, error);
}

/* Reads the file that `gcloud auth application-default login` writes. */
static int from_gcloud(struct stk_credential_chain *search, struct stk_credentials *found,
                       struct stoker_error *error)
{
    const char *folder = stk_environment_get("CLOUDSDK_CONFIG");
    char wanted[PATH_BYTES], path[PATH_BYTES], first[2];
    int bytes = snprintf(wanted, sizeof wanted, "%s/application_default_credentials.json",
                         folder ? folder : "~/.config/gcloud");

    if (bytes >= (int)sizeof wanted || !stk_path_expand_home(wanted, path, sizeof path) ||
        stk_credential_chain_read_file(path, first, sizeof first, "", NULL) ==
            STOKER_ERROR_MISSING) {
        stk_credential_chain_log(search, "there is no '%s'", wanted);
        return 0;
    }
    return from_file(search, path, found, error);
}

/* ---- files ---- */

/* Sends a completed form, and stores the token of the response. */
static int send_form(struct stk_credential_chain *search, struct stk_auth_request *auth,
                     const char *url, bool fits, struct stk_credentials *found,
                     struct stoker_error *error)
{
    int status = stk_credential_chain_require_private(url, "the file's token_uri", error);

    if (status == 0 && (!fits || strlen(url) >= sizeof auth->url)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a request for a token is too long",
                          "check the file of credentials", "Google's credentials");
    }
    if (status == 0) {
        memcpy(auth->url, url, strlen(url) + 1);
        stk_auth_request_add_header(auth, "Content-Type", "application/x-www-form-urlencoded");
        status = stk_auth_request_send(search, auth, "Google's token service", error);
    }
    if (status == 0) {
        status =
            auth->code == 200
                ? read_token(auth, "the answer of Google's token service", found, error)
                : stk_auth_request_fail(auth, "Google's token service",
                                        "check the file of credentials, or log in again", error);
    }
    return status;
}

static int user_token(struct stk_credential_chain *search, const struct file *file,
                      struct stk_auth_request *auth, struct stk_credentials *found,
                      struct stoker_error *error)
{
    bool fits = stk_auth_request_add_field(auth, "grant_type", "refresh_token") &&
                stk_auth_request_add_field(auth, "client_id", file->client_id) &&
                stk_auth_request_add_field(auth, "client_secret", file->client_secret) &&
                stk_auth_request_add_field(auth, "refresh_token", file->refresh_token);

    return send_form(search, auth, file->token_uri[0] ? file->token_uri : TOKEN_URI, fits, found,
                     error);
}

/* In another universe no service issues tokens: a JWT that the account's key signed is used as
 * the token (AIP-4111). */
static int self_signed_jwt(const struct file *file, struct stk_credentials *found,
                           struct stoker_error *error)
{
    uint64_t now_s = stk_clock_wall_ns() / SECOND;
    char claims[2048];
    int bytes = snprintf(
        claims, sizeof claims,
        "{\"iss\":\"%s\",\"sub\":\"%s\",\"scope\":\"%s\",\"iat\":%llu,\"exp\":%llu}", file->email,
        file->email, file->scope, (unsigned long long)now_s, (unsigned long long)(now_s + LIFE_S));

    if ((size_t)bytes >= sizeof claims || strpbrk(file->email, "\"\\")) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a client_email is invalid",
                        "check the file of credentials", "Google's credentials");
    }
    found->kind = STK_CREDS_BEARER;
    found->expires_ns = (now_s + LIFE_S) * SECOND;
    return stk_jwt_rs256(file->key, file->key_id, claims, found->token, sizeof found->token, error);
}

/* RFC 7523: sends an assertion that the account's key signed. */
static int service_account_token(struct stk_credential_chain *search, const struct file *file,
                                 struct stk_auth_request *auth, struct stk_credentials *found,
                                 struct stoker_error *error)
{
    const char *url = file->token_uri[0] ? file->token_uri : TOKEN_URI;
    uint64_t now_s = stk_clock_wall_ns() / SECOND;
    char claims[4096], *assertion = stk_alloc(STK_AUTH_REQUEST_BODY_BYTES / 2, 1);
    int status = -ENOMEM;
    bool fits = strpbrk(file->email, "\"\\") == NULL && strpbrk(url, "\"\\") == NULL;

    snprintf(claims, sizeof claims,
             "{\"iss\":\"%s\",\"scope\":\"%s\",\"aud\":\"%s\",\"iat\":%llu,\"exp\":%llu}",
             file->email, file->scope, url, (unsigned long long)now_s,
             (unsigned long long)(now_s + LIFE_S));
    if (assertion) {
        status = stk_jwt_rs256(file->key, file->key_id, claims, assertion,
                               STK_AUTH_REQUEST_BODY_BYTES / 2, error);
    }
    if (status == 0) {
        fits = fits &&
               stk_auth_request_add_field(auth, "grant_type",
                                          "urn:ietf:params:oauth:grant-type:jwt-bearer") &&
               stk_auth_request_add_field(auth, "assertion", assertion);
        status = send_form(search, auth, url, fits, found, error);
    }
    if (assertion) {
        explicit_bzero(assertion, STK_AUTH_REQUEST_BODY_BYTES / 2);
    }
    stk_free(assertion);
    return status;
}

/* Reads the token of another provider, from a file or from a URL on this machine. */
static int subject_token(struct stk_credential_chain *search, const struct file *file, char *token,
                         size_t token_bytes, struct stoker_error *error)
{
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_GET);
    const struct stk_auth_field field = {file->field[0] ? file->field : "access_token",
                                         STK_AUTH_FIELD_TEXT, token, token_bytes};
    int status = auth ? 0 : -ENOMEM;

    if (status == 0 && file->source_file[0]) {
        status = stk_credential_chain_read_file(file->source_file, auth->text, sizeof auth->text,
                                                "the identity's token", error);
        auth->text_bytes = status == 0 ? strlen(auth->text) : 0;
    } else if (status == 0) {
        stk_auth_request_set_url(auth, "%s", file->source_url);
        stk_auth_request_add_header(auth, "Metadata",
                                    "True"); /* Azure's service wants it; others overlook it */
        if (file->authorization[0]) {        /* GitHub's */
            status = stk_credential_chain_require_private(file->source_url, "credential_source.url",
                                                          error);
            stk_auth_request_add_header(auth, "Authorization", file->authorization);
        }
        status = status < 0
                     ? status
                     : stk_auth_request_send(search, auth, "the identity's token service", error);
        if (status == 0 && auth->code != 200) {
            status = stk_auth_request_fail(auth, "the identity's token service",
                                           "check credential_source", error);
        }
    }
    if (status == 0 && strcmp(file->format, "json") == 0) {
        status = stk_auth_response_json((struct stk_view){(uint8_t *)auth->text, auth->text_bytes},
                                        &field, 1, "the identity's token", error);
    } else if (status == 0) {
        status = stk_credential_chain_copy_text(auth->text, token, token_bytes,
                                                "the identity's token", error);
    }
    stk_auth_request_close(auth);
    return status;
}

/* Builds the request for impersonation. Returns false if it does not fit. */
static bool build_request(const struct file *file, struct stk_auth_request *auth)
{
    uint64_t life_s = file->life_s ? file->life_s : LIFE_S;
    size_t used = (size_t)snprintf(auth->body, sizeof auth->body, "{\"delegates\":%s",
                                   file->delegates[0] ? "" : "null");
    const char *delegate = file->delegates;
    char one[512];
    int more;

    while (delegate[0]) {
        size_t bytes = strcspn(++delegate, "\n");
        auth->body[used++] = delegate == file->delegates + 1 ? '[' : ',';
        if (bytes >= sizeof one || used + 2 * bytes + 200 > sizeof auth->body) {
            return false;
        }
        snprintf(one, sizeof one, "%.*s", (int)bytes, delegate);
        if (!stk_auth_json_add_string(one, auth->body, sizeof auth->body, &used)) {
            return false;
        }
        delegate += bytes;
    }
    more = snprintf(auth->body + used, sizeof auth->body - used,
                    "%s,\"scope\":[\"%s\"],\"lifetime\":\"%llus\"}", file->delegates[0] ? "]" : "",
                    file->scope, (unsigned long long)life_s);
    auth->body_bytes = used + (size_t)more;
    return auth->body_bytes < sizeof auth->body;
}

/* Exchanges the token of a federated identity, or of another account, for a token of a service
 * account. */
static int impersonate(struct stk_credential_chain *search, const struct file *file,
                       struct stk_credentials *found, struct stoker_error *error)
{
    const char *url = file->impersonation;
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_POST);
    uint64_t expires_s = 0;
    char bearer[STK_CREDS_TOKEN_BYTES_MAX + 8];
    const struct stk_auth_field fields[] = {
        {"accessToken", STK_AUTH_FIELD_TEXT, found->token, sizeof found->token},
        {"expireTime", STK_AUTH_FIELD_TIME, &expires_s, 0},
    };
    int status =
        auth ? stk_credential_chain_require_private(url, "service_account_impersonation_url", error)
             : -ENOMEM;

    if (status == 0) {
        snprintf(bearer, sizeof bearer, "Bearer %s", found->token);
        stk_auth_request_add_header(auth, "Authorization", bearer);
        stk_auth_request_add_header(auth, "Content-Type", "application/json");
        explicit_bzero(bearer, sizeof bearer);
        stk_auth_request_set_url(auth, "%s", url);
        status = build_request(file, auth)
                     ? stk_auth_request_send(search, auth, "Google's impersonation", error)
                     : stk_fail(error, STOKER_ERROR_LIMIT, "there are too many delegates",
                                "check the file of credentials", "delegates");
    }
    if (status == 0) {
        status = auth->code != 200
                     ? stk_auth_request_fail(auth, "Google's impersonation",
                                             "let the identity impersonate the service account: "
                                             "roles/iam.serviceAccountTokenCreator",
                                             error)
                     : stk_auth_response_json(
                           (struct stk_view){(uint8_t *)auth->text, auth->text_bytes}, fields,
                           STK_COUNT(fields), "the answer of impersonation", error);
        found->expires_ns = stk_auth_request_local_time(auth, expires_s);
    }
    stk_auth_request_close(auth);
    return status;
}

/* AIP-4117: workload identity federation. */
static int external_account_token(struct stk_credential_chain *search, const struct file *file,
                                  struct stk_auth_request *auth, struct stk_credentials *found,
                                  struct stoker_error *error)
{
    char token[STK_CREDS_TOKEN_BYTES_MAX];
    int status;

    if (!file->source_file[0] && !file->source_url[0]) {
        return stk_fail(
            error, STOKER_ERROR_UNSUPPORTED, "credential_source is of an unsupported kind",
            "use one with file or url, make a service account's key, or log in by gcloud",
            "external_account");
    }
    status = subject_token(search, file, token, sizeof token, error);
    if (status == 0) {
        bool fits = stk_auth_request_add_field(auth, "grant_type",
                                               "urn:ietf:params:oauth:grant-type:token-exchange") &&
                    stk_auth_request_add_field(auth, "audience", file->audience) &&
                    stk_auth_request_add_field(auth, "scope",
                                               file->impersonation[0] ? SCOPE_IAM : file->scope) &&
                    stk_auth_request_add_field(auth, "requested_token_type",
                                               "urn:ietf:params:oauth:token-type:access_token") &&
                    stk_auth_request_add_field(auth, "subject_token", token) &&
                    stk_auth_request_add_field(auth, "subject_token_type", file->subject_type);
        status = send_form(search, auth, file->token_url, fits, found, error);
    }
    explicit_bzero(token, sizeof token);
    if (status == 0 && file->impersonation[0]) {
        status = impersonate(search, file, found, error);
    }
    return status;
}

/* Takes its fields, which are below others in the text: by that name and a '.', or empty. */
static int parse_file(const char *text, const char *path, const char *below, struct file *file,
                      struct stoker_error *error)
{
    struct stk_auth_field fields[] = {
        {"type", STK_AUTH_FIELD_TEXT, file->type, sizeof file->type},
        {"client_id", STK_AUTH_FIELD_OPTIONAL_TEXT, file->client_id, sizeof file->client_id},
        {"client_secret", STK_AUTH_FIELD_OPTIONAL_TEXT, file->client_secret,
         sizeof file->client_secret},
        {"refresh_token", STK_AUTH_FIELD_OPTIONAL_TEXT, file->refresh_token,
         sizeof file->refresh_token},
        {"client_email", STK_AUTH_FIELD_OPTIONAL_TEXT, file->email, sizeof file->email},
        {"private_key_id", STK_AUTH_FIELD_OPTIONAL_TEXT, file->key_id, sizeof file->key_id},
        {"private_key", STK_AUTH_FIELD_LINES, file->key, sizeof file->key},
        {"token_uri", STK_AUTH_FIELD_OPTIONAL_TEXT, file->token_uri, sizeof file->token_uri},
        {"audience", STK_AUTH_FIELD_OPTIONAL_TEXT, file->audience, sizeof file->audience},
        {"subject_token_type", STK_AUTH_FIELD_OPTIONAL_TEXT, file->subject_type,
         sizeof file->subject_type},
        {"token_url", STK_AUTH_FIELD_OPTIONAL_TEXT, file->token_url, sizeof file->token_url},
        {"credential_source.file", STK_AUTH_FIELD_OPTIONAL_TEXT, file->source_file,
         sizeof file->source_file},
        {"credential_source.url", STK_AUTH_FIELD_OPTIONAL_TEXT, file->source_url,
         sizeof file->source_url},
        {"credential_source.headers.Authorization", STK_AUTH_FIELD_OPTIONAL_TEXT,
         file->authorization, sizeof file->authorization},
        {"credential_source.format.type", STK_AUTH_FIELD_OPTIONAL_TEXT, file->format,
         sizeof file->format},
        {"credential_source.format.subject_token_field_name", STK_AUTH_FIELD_OPTIONAL_TEXT,
         file->field, sizeof file->field},
        {"service_account_impersonation_url", STK_AUTH_FIELD_OPTIONAL_TEXT, file->impersonation,
         sizeof file->impersonation},
        {"service_account_impersonation.token_lifetime_seconds", STK_AUTH_FIELD_SECONDS,
         &file->life_s, 0},
        {"delegates", STK_AUTH_FIELD_LIST, file->delegates, sizeof file->delegates},
        {"quota_project_id", STK_AUTH_FIELD_OPTIONAL_TEXT, file->project, sizeof file->project},
        {"universe_domain", STK_AUTH_FIELD_OPTIONAL_TEXT, file->universe, sizeof file->universe},
    };
    char names[STK_COUNT(fields)][96];

    for (size_t i = 0; i < STK_COUNT(fields); i++) {
        snprintf(names[i], sizeof names[i], "%s%s", below, fields[i].path);
        fields[i].path = names[i];
    }
    return stk_auth_response_json((struct stk_view){(const uint8_t *)text, strlen(text)}, fields,
                                  STK_COUNT(fields), path, error);
}

static void free_file(struct file *file)
{
    if (file) {
        free_file(file->source);
        explicit_bzero(file, sizeof *file);
    }
    stk_free(file);
}

/* The part of a host that names the universe; Google's own domain is the default. */
static int check_universe(struct file *file, struct stoker_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    size_t bytes = strlen(file->universe);

    if (strspn(file->universe, letters) != bytes || file->universe[0] == '.') {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a universe_domain is no domain",
                        "check the file of credentials", "'%.64s'", file->universe);
    }
    if (strcmp(file->universe, "googleapis.com") == 0) {
        file->universe[0] = '\0';
    }
    return 0;
}

/* Reads the file and its source, if it has one. *file_out is set on failure too, and must be
 * freed. */
static int read_file(const char *path, struct file **file_out, struct stoker_error *error)
{
    struct file *file = stk_alloc(1, sizeof *file);
    char *text = stk_alloc(STK_AUTH_RESPONSE_BYTES_MAX, 1);
    int status = file && text
                     ? stk_credential_chain_read_file(path, text, STK_AUTH_RESPONSE_BYTES_MAX,
                                                      "Google's credentials", error)
                     : -ENOMEM;

    *file_out = file;
    if (status == 0) {
        file->scope = SCOPE;
        status = parse_file(text, path, "", file, error);
    }
    if (status == 0 && strcmp(file->type, "impersonated_service_account") == 0) {
        file->source = stk_alloc(1, sizeof *file->source);
        status = file->source ? parse_file(text, path, "source_credentials.", file->source, error)
                              : -ENOMEM;
    }
    if (status == 0 && file->source) {
        file->source->scope = SCOPE_IAM;
    }
    status = status < 0 ? status : check_universe(file, error);
    status = status < 0 || !file->source ? status : check_universe(file->source, error);
    if (text) {
        explicit_bzero(text, STK_AUTH_RESPONSE_BYTES_MAX);
    }
    stk_free(text);
    return status == -ENOMEM ? stk_fail_errno(error, ENOMEM, "cannot read credentials",
                                              "free memory", "'%s'", path)
                             : status;
}

/* Chooses the source by the type in the file. */
static int token_of_file(struct stk_credential_chain *search, const struct file *file,
                         const char *path, struct stk_credentials *found,
                         struct stoker_error *error)
{
    struct stk_auth_request *auth = stk_auth_request_open(STK_HTTP_POST);
    int status = -ENOMEM;

    if (!auth) {
        return stk_fail_errno(error, ENOMEM, "cannot read credentials", "free memory", "'%s'",
                              path);
    }
    if (strcmp(file->type, "authorized_user") == 0 && file->universe[0]) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "users log in at googleapis.com only",
                          "use a service account, or workload identity, of the universe",
                          "universe_domain '%.64s'", file->universe);
    } else if (strcmp(file->type, "service_account") == 0 && file->universe[0]) {
        status = self_signed_jwt(file, found, error);
    } else if (strcmp(file->type, "authorized_user") == 0) {
        status = user_token(search, file, auth, found, error);
    } else if (strcmp(file->type, "service_account") == 0) {
        status = service_account_token(search, file, auth, found, error);
    } else if (strcmp(file->type, "external_account") == 0) {
        status = external_account_token(search, file, auth, found, error);
    } else { /* a source that has one itself is not read, either */
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "credentials are of an unsupported type",
                          "use authorized_user, service_account, external_account or "
                          "impersonated_service_account",
                          "'%s'", path);
    }
    stk_auth_request_close(auth);
    return status;
}

static int from_file(struct stk_credential_chain *search, const char *path,
                     struct stk_credentials *found, struct stoker_error *error)
{
    struct file *file;
    const char *project = stk_environment_get("GOOGLE_CLOUD_QUOTA_PROJECT");
    int status = read_file(path, &file, error);

    if (status == 0) {
        status = token_of_file(search, file->source ? file->source : file, path, found, error);
    }
    /* Written by `gcloud auth application-default login --impersonate-service-account`. */
    if (status == 0 && file->source) {
        status = impersonate(search, file, found, error);
    }
    if (status == 0) {
        const struct file *whose = file->source ? file->source : file;

        memcpy(found->universe, whose->universe, sizeof found->universe);
    }
    if (status == 0 && strpbrk(project ? project : file->project, "\r\n") == NULL) {
        snprintf(found->project, sizeof found->project, "%s", project ? project : file->project);
    }
    if (status < 0 && error && !strstr(error->where, path)) {
        size_t used = strlen(error->where);
        snprintf(error->where + used, sizeof error->where - used, ", of '%s'", path);
    }
    if (status == 0) {
        snprintf(found->source, sizeof found->source, "%.30s %.80s of '%.120s'", file->type,
                 file->email, path);
    }
    free_file(file);
    return status < 0 ? status : 1;
}

static int read_token(const struct stk_auth_request *auth, const char *what,
                      struct stk_credentials *found, struct stoker_error *error)
{
    uint64_t life_s = LIFE_S;
    const struct stk_auth_field fields[] = {
        {"access_token", STK_AUTH_FIELD_TEXT, found->token, sizeof found->token},
        {"expires_in", STK_AUTH_FIELD_SECONDS, &life_s, 0},
    };
    int status =
        stk_auth_response_json((struct stk_view){(const uint8_t *)auth->text, auth->text_bytes},
                               fields, STK_COUNT(fields), what, error);

    found->kind = STK_CREDS_BEARER;
    found->expires_ns = stk_clock_wall_ns() + stk_min(life_s, 10 * 365 * 86400u) * SECOND;
    return status;
}

static int from_metadata(struct stk_credential_chain *search, struct stk_credentials *found,
                         struct stoker_error *error)
{
    const char *host = stk_environment_get("GCE_METADATA_HOST"),
               *off = stk_environment_get("NO_GCE_CHECK");
    struct stk_auth_request *auth;
    int status = 0;

    if (off && strcasecmp(off, "true") == 0) {
        stk_credential_chain_log(search, "NO_GCE_CHECK is true");
        return 0;
    }
    auth = search->options->http ? stk_auth_request_open(STK_HTTP_GET) : NULL;
    if (!auth) {
        stk_credential_chain_log(search, "the metadata server is not queried here");
        return 0;
    }
    stk_auth_request_set_url(
        auth, "http://%.256s/computeMetadata/v1/instance/service-accounts/default/token?scopes=%s",
        host ? host : METADATA,
        "https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fdevstorage."
        "read_write");
    auth->direct = true;
    auth->total_ms = auth->connect_ms = METADATA_MS;
    stk_auth_request_add_header(auth, "Metadata-Flavor", "Google");
    if (stk_auth_request_send(search, auth, "the metadata server", NULL) < 0) {
        search->unreachable = "Google's metadata server";
        stk_credential_chain_log(
            search,
            "no metadata server of Google answers at %s, which is queried again in a "
            "minute",
            host ? host : METADATA);
    } else if (!auth->google) {
        stk_credential_chain_log(search, "what answers at %s does not say that it is Google's",
                                 host ? host : METADATA);
    } else if (auth->code == 404) {
        stk_credential_chain_log(search, "the machine has no service account");
    } else if (auth->code != 200) {
        status = stk_auth_request_fail(auth, "the metadata server", "check the machine's account",
                                       error);
    } else {
        status = read_token(auth, "the answer of the metadata server", found, error);
        status = status < 0 ? status : 1;
        snprintf(found->source, sizeof found->source, "the machine's service account");
    }
    stk_auth_request_close(auth);
    return status;
}
