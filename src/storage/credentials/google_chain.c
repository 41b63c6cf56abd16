/* Google's chain: HMAC keys, application default credentials (AIP-4110), the metadata server. */
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
#define WHERE_MS 1000u
#define LIFE_S 3600u
#define PATH_BYTES 4096u

static stk_search_place from_hmac, from_variable, from_gcloud, from_metadata;

const struct stk_search_row stk_search_google[] = {
    {"hmac", from_hmac},
    {"application-credentials", from_variable},
    {"gcloud", from_gcloud},
    {"metadata-server", from_metadata},
};
const size_t stk_search_google_count = STK_COUNT(stk_search_google);

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
    char delegates[2048]; /* each behind a '\n' */
    uint64_t life_s;      /* of who is impersonated */
    const char *scope;    /* that is asked for */
    struct file *source;  /* who asks for the token of this one; NULL: itself */
};

static int from_file(struct stk_search *search, const char *path, struct stk_credentials *found,
                     struct stoker_error *error);
static int take_token(const struct stk_ask *ask, const char *what, struct stk_credentials *found,
                      struct stoker_error *error);

/* The keys of the XML interface, under the names that GDAL gave them. */
static int from_hmac(struct stk_search *search, struct stk_credentials *found,
                     struct stoker_error *error)
{
    const char *key = stk_environment("GS_ACCESS_KEY_ID");
    const char *secret = stk_environment("GS_SECRET_ACCESS_KEY");
    int status;

    if (!key) {
        stk_search_say(search, "GS_ACCESS_KEY_ID is not set");
        return 0;
    }
    if (!secret) {
        return stk_fail(error, STOKER_ERROR_MISSING, "half of the credentials is not set",
                        "set GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY, or neither",
                        "the environment has no GS_SECRET_ACCESS_KEY");
    }
    status = stk_search_copy(key, found->access_key, sizeof found->access_key, "GS_ACCESS_KEY_ID",
                             error);
    status = status < 0 ? status
                        : stk_search_copy(secret, found->secret, sizeof found->secret,
                                          "GS_SECRET_ACCESS_KEY", error);
    found->kind = STK_CREDS_KEYS;
    snprintf(found->from, sizeof found->from,
             "environment variables GS_ACCESS_KEY_ID, GS_SECRET_ACCESS_KEY (HMAC)");
    return status < 0 ? status : 1;
}

static int from_variable(struct stk_search *search, struct stk_credentials *found,
                         struct stoker_error *error)
{
    const char *path = stk_environment("GOOGLE_APPLICATION_CREDENTIALS");

    if (!path) {
        stk_search_say(search, "GOOGLE_APPLICATION_CREDENTIALS is not set");
        return 0;
    }
    return from_file(search, path, found, error);
}

/* What `gcloud auth application-default login` leaves. */
static int from_gcloud(struct stk_search *search, struct stk_credentials *found,
                       struct stoker_error *error)
{
    const char *folder = stk_environment("CLOUDSDK_CONFIG");
    char wanted[PATH_BYTES], path[PATH_BYTES], first[2];

    snprintf(wanted, sizeof wanted, "%s/application_default_credentials.json",
             folder ? folder : "~/.config/gcloud");
    if (!stk_path_expand(wanted, path, sizeof path) ||
        stk_search_file(path, first, sizeof first, "", NULL) == STOKER_ERROR_MISSING) {
        stk_search_say(search, "there is no '%s'", wanted);
        return 0;
    }
    return from_file(search, path, found, error);
}

/* ---- files ---- */

/* A form is filled: sends it and takes the token that comes. */
static int send_form(struct stk_search *search, struct stk_ask *ask, const char *url, bool fits,
                     struct stk_credentials *found, struct stoker_error *error)
{
    int status = stk_search_private(url, "the file's token_uri", error);

    if (status == 0 && (!fits || strlen(url) >= sizeof ask->url)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a request for a token is too long",
                          "look what the file of credentials is", "Google's credentials");
    }
    if (status == 0) {
        memcpy(ask->url, url, strlen(url) + 1);
        stk_ask_header(ask, "Content-Type", "application/x-www-form-urlencoded");
        status = stk_ask_send(search, ask, "Google's token service", error);
    }
    if (status == 0) {
        status = ask->code == 200
                     ? take_token(ask, "the answer of Google's token service", found, error)
                     : stk_ask_refused(ask, "Google's token service",
                                       "check the file of credentials, or log in again", error);
    }
    return status;
}

static int as_user(struct stk_search *search, const struct file *file, struct stk_ask *ask,
                   struct stk_credentials *found, struct stoker_error *error)
{
    bool fits = stk_ask_field(ask, "grant_type", "refresh_token") &&
                stk_ask_field(ask, "client_id", file->client_id) &&
                stk_ask_field(ask, "client_secret", file->client_secret) &&
                stk_ask_field(ask, "refresh_token", file->refresh_token);

    return send_form(search, ask, file->token_uri[0] ? file->token_uri : TOKEN_URI, fits, found,
                     error);
}

/* Of another universe: no service gives tokens, and what the account's key signed is one
 * (AIP-4111).
 */
static int by_itself(const struct file *file, struct stk_credentials *found,
                     struct stoker_error *error)
{
    uint64_t now_s = stk_clock_wall_ns() / SECOND;
    char claims[2048];
    int bytes = snprintf(
        claims, sizeof claims,
        "{\"iss\":\"%s\",\"sub\":\"%s\",\"scope\":\"%s\",\"iat\":%llu,\"exp\":%llu}", file->email,
        file->email, file->scope, (unsigned long long)now_s, (unsigned long long)(now_s + LIFE_S));

    if ((size_t)bytes >= sizeof claims || strpbrk(file->email, "\"\\")) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a client_email is none",
                        "look what the file of credentials is", "Google's credentials");
    }
    found->kind = STK_CREDS_BEARER;
    found->expires_ns = (now_s + LIFE_S) * SECOND;
    return stk_jwt_rs256(file->key, file->key_id, claims, found->token, sizeof found->token, error);
}

/* RFC 7523: a statement that the account's key signed. */
static int as_service(struct stk_search *search, const struct file *file, struct stk_ask *ask,
                      struct stk_credentials *found, struct stoker_error *error)
{
    const char *url = file->token_uri[0] ? file->token_uri : TOKEN_URI;
    uint64_t now_s = stk_clock_wall_ns() / SECOND;
    char claims[4096], *assertion = stk_alloc(STK_SEARCH_BODY_BYTES / 2, 1);
    int status = -ENOMEM;
    bool fits = strpbrk(file->email, "\"\\") == NULL && strpbrk(url, "\"\\") == NULL;

    snprintf(claims, sizeof claims,
             "{\"iss\":\"%s\",\"scope\":\"%s\",\"aud\":\"%s\",\"iat\":%llu,\"exp\":%llu}",
             file->email, file->scope, url, (unsigned long long)now_s,
             (unsigned long long)(now_s + LIFE_S));
    if (assertion) {
        status = stk_jwt_rs256(file->key, file->key_id, claims, assertion,
                               STK_SEARCH_BODY_BYTES / 2, error);
    }
    if (status == 0) {
        fits = fits &&
               stk_ask_field(ask, "grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer") &&
               stk_ask_field(ask, "assertion", assertion);
        status = send_form(search, ask, url, fits, found, error);
    }
    if (assertion) {
        explicit_bzero(assertion, STK_SEARCH_BODY_BYTES / 2);
    }
    stk_free(assertion);
    return status;
}

/* The token of another provider: a file, or what a URL of this machine answers. */
static int subject_token(struct stk_search *search, const struct file *file, char *token,
                         size_t token_bytes, struct stoker_error *error)
{
    struct stk_ask *ask = stk_ask_open(STK_HTTP_GET);
    const struct stk_tell_field field = {file->field[0] ? file->field : "access_token",
                                         STK_TELL_TEXT, token, token_bytes};
    int status = ask ? 0 : -ENOMEM;

    if (status == 0 && file->source_file[0]) {
        status = stk_search_file(file->source_file, ask->text, sizeof ask->text,
                                 "the identity's token", error);
        ask->text_bytes = status == 0 ? strlen(ask->text) : 0;
    } else if (status == 0) {
        snprintf(ask->url, sizeof ask->url, "%s", file->source_url);
        stk_ask_header(ask, "Metadata", "True"); /* Azure's service wants it; others overlook it */
        if (file->authorization[0]) {            /* GitHub's */
            status = stk_search_private(file->source_url, "credential_source.url", error);
            stk_ask_header(ask, "Authorization", file->authorization);
        }
        status =
            status < 0 ? status : stk_ask_send(search, ask, "the identity's token service", error);
        if (status == 0 && ask->code != 200) {
            status = stk_ask_refused(ask, "the identity's token service", "check credential_source",
                                     error);
        }
    }
    if (status == 0 && strcmp(file->format, "json") == 0) {
        status = stk_tell_json((struct stk_view){(uint8_t *)ask->text, ask->text_bytes}, &field, 1,
                               "the identity's token", error);
    } else if (status == 0) {
        status = stk_search_copy(ask->text, token, token_bytes, "the identity's token", error);
    }
    stk_ask_close(ask);
    return status;
}

/* What impersonation is asked for. False: no room. */
static bool make_wish(const struct file *file, struct stk_ask *ask)
{
    uint64_t life_s = file->life_s ? file->life_s : LIFE_S;
    size_t used = (size_t)snprintf(ask->body, sizeof ask->body, "{\"delegates\":%s",
                                   file->delegates[0] ? "" : "null");
    const char *delegate = file->delegates;
    char one[512];
    int more;

    while (delegate[0]) {
        size_t bytes = strcspn(++delegate, "\n");
        ask->body[used++] = delegate == file->delegates + 1 ? '[' : ',';
        if (bytes >= sizeof one || used + 2 * bytes + 200 > sizeof ask->body) {
            return false;
        }
        snprintf(one, sizeof one, "%.*s", (int)bytes, delegate);
        if (!stk_tell_quote(one, ask->body, sizeof ask->body, &used)) {
            return false;
        }
        delegate += bytes;
    }
    more = snprintf(ask->body + used, sizeof ask->body - used,
                    "%s,\"scope\":[\"%s\"],\"lifetime\":\"%llus\"}", file->delegates[0] ? "]" : "",
                    file->scope, (unsigned long long)life_s);
    ask->body_bytes = used + (size_t)more;
    return ask->body_bytes < sizeof ask->body;
}

/* The token of a federated identity, or of another account, for one of a service account. */
static int impersonate(struct stk_search *search, const struct file *file,
                       struct stk_credentials *found, struct stoker_error *error)
{
    const char *url = file->impersonation;
    struct stk_ask *ask = stk_ask_open(STK_HTTP_POST);
    uint64_t expires_s = 0;
    char bearer[STK_CREDS_TOKEN_BYTES_MAX + 8];
    const struct stk_tell_field fields[] = {
        {"accessToken", STK_TELL_TEXT, found->token, sizeof found->token},
        {"expireTime", STK_TELL_TIME, &expires_s, 0},
    };
    int status =
        ask ? stk_search_private(url, "service_account_impersonation_url", error) : -ENOMEM;

    if (status == 0) {
        snprintf(bearer, sizeof bearer, "Bearer %s", found->token);
        stk_ask_header(ask, "Authorization", bearer);
        stk_ask_header(ask, "Content-Type", "application/json");
        explicit_bzero(bearer, sizeof bearer);
        snprintf(ask->url, sizeof ask->url, "%s", url);
        status = make_wish(file, ask)
                     ? stk_ask_send(search, ask, "Google's impersonation", error)
                     : stk_fail(error, STOKER_ERROR_LIMIT, "there are too many delegates",
                                "look what the file of credentials is", "delegates");
    }
    if (status == 0) {
        status =
            ask->code != 200
                ? stk_ask_refused(ask, "Google's impersonation",
                                  "may the identity act for the service account?", error)
                : stk_tell_json((struct stk_view){(uint8_t *)ask->text, ask->text_bytes}, fields,
                                STK_COUNT(fields), "the answer of impersonation", error);
        found->expires_ns = stk_ask_our_time(ask, expires_s);
    }
    stk_ask_close(ask);
    return status;
}

/* AIP-4117: workload identity federation. */
static int as_external(struct stk_search *search, const struct file *file, struct stk_ask *ask,
                       struct stk_credentials *found, struct stoker_error *error)
{
    char token[STK_CREDS_TOKEN_BYTES_MAX];
    int status;

    if (!file->source_file[0] && !file->source_url[0]) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a kind of credential_source is not read",
                        "a file or a url is; make a service account's key, or log in by gcloud",
                        "external_account");
    }
    status = subject_token(search, file, token, sizeof token, error);
    if (status == 0) {
        bool fits =
            stk_ask_field(ask, "grant_type", "urn:ietf:params:oauth:grant-type:token-exchange") &&
            stk_ask_field(ask, "audience", file->audience) &&
            stk_ask_field(ask, "scope", file->impersonation[0] ? SCOPE_IAM : file->scope) &&
            stk_ask_field(ask, "requested_token_type",
                          "urn:ietf:params:oauth:token-type:access_token") &&
            stk_ask_field(ask, "subject_token", token) &&
            stk_ask_field(ask, "subject_token_type", file->subject_type);
        status = send_form(search, ask, file->token_url, fits, found, error);
    }
    explicit_bzero(token, sizeof token);
    if (status == 0 && file->impersonation[0]) {
        status = impersonate(search, file, found, error);
    }
    return status;
}

/* Takes its fields, which are below others in the text: by that name and a '.', or empty. */
static int take_file(const char *text, const char *path, const char *below, struct file *file,
                     struct stoker_error *error)
{
    struct stk_tell_field fields[] = {
        {"type", STK_TELL_TEXT, file->type, sizeof file->type},
        {"client_id", STK_TELL_OPTION, file->client_id, sizeof file->client_id},
        {"client_secret", STK_TELL_OPTION, file->client_secret, sizeof file->client_secret},
        {"refresh_token", STK_TELL_OPTION, file->refresh_token, sizeof file->refresh_token},
        {"client_email", STK_TELL_OPTION, file->email, sizeof file->email},
        {"private_key_id", STK_TELL_OPTION, file->key_id, sizeof file->key_id},
        {"private_key", STK_TELL_LINES, file->key, sizeof file->key},
        {"token_uri", STK_TELL_OPTION, file->token_uri, sizeof file->token_uri},
        {"audience", STK_TELL_OPTION, file->audience, sizeof file->audience},
        {"subject_token_type", STK_TELL_OPTION, file->subject_type, sizeof file->subject_type},
        {"token_url", STK_TELL_OPTION, file->token_url, sizeof file->token_url},
        {"credential_source.file", STK_TELL_OPTION, file->source_file, sizeof file->source_file},
        {"credential_source.url", STK_TELL_OPTION, file->source_url, sizeof file->source_url},
        {"credential_source.headers.Authorization", STK_TELL_OPTION, file->authorization,
         sizeof file->authorization},
        {"credential_source.format.type", STK_TELL_OPTION, file->format, sizeof file->format},
        {"credential_source.format.subject_token_field_name", STK_TELL_OPTION, file->field,
         sizeof file->field},
        {"service_account_impersonation_url", STK_TELL_OPTION, file->impersonation,
         sizeof file->impersonation},
        {"service_account_impersonation.token_lifetime_seconds", STK_TELL_SECONDS, &file->life_s,
         0},
        {"delegates", STK_TELL_LIST, file->delegates, sizeof file->delegates},
        {"quota_project_id", STK_TELL_OPTION, file->project, sizeof file->project},
        {"universe_domain", STK_TELL_OPTION, file->universe, sizeof file->universe},
    };
    char names[STK_COUNT(fields)][96];

    for (size_t i = 0; i < STK_COUNT(fields); i++) {
        snprintf(names[i], sizeof names[i], "%s%s", below, fields[i].path);
        fields[i].path = names[i];
    }
    return stk_tell_json((struct stk_view){(const uint8_t *)text, strlen(text)}, fields,
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

/* A part of a host; Google's own goes without saying. */
static int check_universe(struct file *file, struct stoker_error *error)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789.-";
    size_t bytes = strlen(file->universe);

    if (strspn(file->universe, letters) != bytes || file->universe[0] == '.') {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a universe_domain is no domain",
                        "look what the file of credentials is", "'%.64s'", file->universe);
    }
    if (strcmp(file->universe, "googleapis.com") == 0) {
        file->universe[0] = '\0';
    }
    return 0;
}

/* With its source, where it has one. *file_out also on failure, to be freed. */
static int read_file(const char *path, struct file **file_out, struct stoker_error *error)
{
    struct file *file = stk_alloc(1, sizeof *file);
    char *text = stk_alloc(STK_TELL_BYTES_MAX, 1);
    int status = file && text ? stk_search_file(path, text, STK_TELL_BYTES_MAX,
                                                "Google's credentials", error)
                              : -ENOMEM;

    *file_out = file;
    if (status == 0) {
        file->scope = SCOPE;
        status = take_file(text, path, "", file, error);
    }
    if (status == 0 && strcmp(file->type, "impersonated_service_account") == 0) {
        file->source = stk_alloc(1, sizeof *file->source);
        status = file->source ? take_file(text, path, "source_credentials.", file->source, error)
                              : -ENOMEM;
    }
    if (status == 0 && file->source) {
        file->source->scope = SCOPE_IAM;
    }
    status = status < 0 ? status : check_universe(file, error);
    status = status < 0 || !file->source ? status : check_universe(file->source, error);
    if (text) {
        explicit_bzero(text, STK_TELL_BYTES_MAX);
    }
    stk_free(text);
    return status == -ENOMEM ? stk_fail_errno(error, ENOMEM, "cannot read credentials",
                                              "free memory", "'%s'", path)
                             : status;
}

/* By the type of what was read. */
static int as_itself(struct stk_search *search, const struct file *file, const char *path,
                     struct stk_credentials *found, struct stoker_error *error)
{
    struct stk_ask *ask = stk_ask_open(STK_HTTP_POST);
    int status = -ENOMEM;

    if (!ask) {
        return stk_fail_errno(error, ENOMEM, "cannot read credentials", "free memory", "'%s'",
                              path);
    }
    if (strcmp(file->type, "authorized_user") == 0 && file->universe[0]) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "users log in at googleapis.com only",
                          "use a service account, or workload identity, of the universe",
                          "universe_domain '%.64s'", file->universe);
    } else if (strcmp(file->type, "service_account") == 0 && file->universe[0]) {
        status = by_itself(file, found, error);
    } else if (strcmp(file->type, "authorized_user") == 0) {
        status = as_user(search, file, ask, found, error);
    } else if (strcmp(file->type, "service_account") == 0) {
        status = as_service(search, file, ask, found, error);
    } else if (strcmp(file->type, "external_account") == 0) {
        status = as_external(search, file, ask, found, error);
    } else { /* a source that has one itself is not read, either */
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a type of credentials is not read",
                          "authorized_user, service_account, external_account and "
                          "impersonated_service_account are",
                          "'%s'", path);
    }
    stk_ask_close(ask);
    return status;
}

static int from_file(struct stk_search *search, const char *path, struct stk_credentials *found,
                     struct stoker_error *error)
{
    struct file *file;
    const char *project = stk_environment("GOOGLE_CLOUD_QUOTA_PROJECT");
    int status = read_file(path, &file, error);

    if (status == 0) {
        status = as_itself(search, file->source ? file->source : file, path, found, error);
    }
    /* What `gcloud auth application-default login --impersonate-service-account` leaves. */
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
        snprintf(found->from, sizeof found->from, "%.30s %.80s of '%.120s'", file->type,
                 file->email, path);
    }
    free_file(file);
    return status < 0 ? status : 1;
}

static int take_token(const struct stk_ask *ask, const char *what, struct stk_credentials *found,
                      struct stoker_error *error)
{
    uint64_t life_s = LIFE_S;
    const struct stk_tell_field fields[] = {
        {"access_token", STK_TELL_TEXT, found->token, sizeof found->token},
        {"expires_in", STK_TELL_SECONDS, &life_s, 0},
    };
    int status = stk_tell_json((struct stk_view){(const uint8_t *)ask->text, ask->text_bytes},
                               fields, STK_COUNT(fields), what, error);

    found->kind = STK_CREDS_BEARER;
    found->expires_ns = stk_clock_wall_ns() + stk_min(life_s, 10 * 365 * 86400u) * SECOND;
    return status;
}

static int from_metadata(struct stk_search *search, struct stk_credentials *found,
                         struct stoker_error *error)
{
    const char *host = stk_environment("GCE_METADATA_HOST"), *off = stk_environment("NO_GCE_CHECK");
    struct stk_ask *ask;
    int status = 0;

    if (off && strcasecmp(off, "true") == 0) {
        stk_search_say(search, "NO_GCE_CHECK is true");
        return 0;
    }
    ask = search->options->http ? stk_ask_open(STK_HTTP_GET) : NULL;
    if (!ask) {
        stk_search_say(search, "the metadata server is not asked here");
        return 0;
    }
    snprintf(ask->url, sizeof ask->url,
             "http://%.256s/computeMetadata/v1/instance/service-accounts/default/token?scopes=%s",
             host ? host : METADATA,
             "https%3A%2F%2Fwww.googleapis.com%2Fauth%2Fdevstorage."
             "read_write");
    ask->direct = true;
    ask->total_ms = ask->connect_ms = METADATA_MS;
    stk_ask_header(ask, "Metadata-Flavor", "Google");
    if (stk_ask_send(search, ask, "the metadata server", NULL) < 0) {
        search->silent = "Google's metadata server";
        stk_search_say(search,
                       "no metadata server of Google answers at %s, which is asked again in a "
                       "minute",
                       host ? host : METADATA);
    } else if (!ask->google) {
        stk_search_say(search, "what answers at %s does not say that it is Google's",
                       host ? host : METADATA);
    } else if (ask->code == 404) {
        stk_search_say(search, "the machine has no service account");
    } else if (ask->code != 200) {
        status = stk_ask_refused(ask, "the metadata server", "check the machine's account", error);
    } else {
        status = take_token(ask, "the answer of the metadata server", found, error);
        status = status < 0 ? status : 1;
        snprintf(found->from, sizeof found->from, "the machine's service account");
    }
    stk_ask_close(ask);
    return status;
}

int stk_search_where_google(struct stk_search *search, struct stk_creds_where *where)
{
    const char *host = stk_environment("GCE_METADATA_HOST"), *off = stk_environment("NO_GCE_CHECK");
    const char *zone, *end;
    struct stk_ask *ask;

    if (off && strcasecmp(off, "true") == 0) {
        return 0;
    }
    ask = stk_ask_open(STK_HTTP_GET);
    if (!ask) {
        return -ENOMEM;
    }
    host = host ? host : METADATA;
    snprintf(ask->url, sizeof ask->url, "http://%.256s/computeMetadata/v1/instance/zone", host);
    ask->direct = true;
    ask->tries = 1;
    ask->total_ms = ask->connect_ms = WHERE_MS;
    stk_ask_header(ask, "Metadata-Flavor", "Google");
    if (stk_ask_send(search, ask, "the metadata server", NULL) == 0 && ask->code == 200 &&
        ask->google) {
        zone = strrchr(ask->text, '/'); /* "projects/123/zones/us-central1-a" */
        zone = zone ? zone + 1 : ask->text;
        end = strrchr(zone, '-');
        if (end && end > zone && stk_search_is_place(zone, sizeof where->zone)) {
            snprintf(where->zone, sizeof where->zone, "%s", zone);
            snprintf(where->region, sizeof where->region, "%.*s", (int)(end - zone), zone);
            snprintf(where->from, sizeof where->from, "the metadata server %.200s", host);
            where->cloud = "Google";
        }
    }
    stk_ask_close(ask);
    return where->cloud[0] ? 1 : 0;
}
