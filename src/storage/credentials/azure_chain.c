/* Azure: keys and SAS from the environment as in the Azure CLI, then identities in azure-identity's
 * order: environment, workload, managed. */
#include "storage/credentials/credential_chain.h"

#include "io/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define AUTHORITY "https://login.microsoftonline.com"
#define SCOPE "https://storage.azure.com/.default"
#define RESOURCE "https%3A%2F%2Fstorage.azure.com%2F"
#define METADATA "http://169.254.169.254"
#define METADATA_MS 1000u
#define LIFE_S 3600u

static stk_credential_lookup from_connection_string, from_account_key, from_sas, from_environment,
    from_workload, from_managed;

const struct stk_credential_source stk_credential_chain_azure[] = {
    {"connection-string", from_connection_string},
    {"account-key", from_account_key},
    {"sas-token", from_sas},
    {"environment", from_environment},
    {"workload-identity", from_workload},
    {"managed-identity", from_managed},
};
const size_t stk_credential_chain_azure_count = STK_COUNT(stk_credential_chain_azure);

/* ---- keys ---- */

static int read_sas(const char *text, const char *what, struct stk_credentials *found,
                    struct stoker_error *error)
{
    text += text[0] == '?';
    found->kind = STK_CREDS_SAS;
    if (!strstr(text, "sig=")) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a SAS has no signature",
                        "copy all of it, from sv= on", "%s", what);
    }
    return stk_credential_chain_copy_text(text, found->token, sizeof found->token, what, error);
}

static int from_connection_string(struct stk_credential_chain *search,
                                  struct stk_credentials *found, struct stoker_error *error)
{
    const char *text = stk_environment_get("AZURE_STORAGE_CONNECTION_STRING");
    char sas[STK_CREDS_TOKEN_BYTES_MAX];
    int status;

    if (!text) {
        stk_credential_chain_log(search, "AZURE_STORAGE_CONNECTION_STRING is not set");
        return 0;
    }
    if (strpbrk(text, "\r\n")) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "a connection string has several lines",
                        "set all of it, in one line", "AZURE_STORAGE_CONNECTION_STRING");
    }
    status = stk_connection_string_get(text, "AccountName", found->access_key,
                                       sizeof found->access_key, error);
    if (status >= 0) {
        status = stk_connection_string_get(text, "SharedAccessSignature", sas, sizeof sas, error);
    }
    if (status > 0) {
        status = read_sas(sas, "AZURE_STORAGE_CONNECTION_STRING", found, error);
    } else if (status == 0) {
        found->kind = STK_CREDS_KEYS;
        status = stk_connection_string_get(text, "AccountKey", found->secret, sizeof found->secret,
                                           error);
    }
    if (status >= 0 && found->kind == STK_CREDS_KEYS &&
        (!found->access_key[0] || !found->secret[0])) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "a connection string has no credentials",
                          "it takes AccountName and AccountKey, or SharedAccessSignature",
                          "AZURE_STORAGE_CONNECTION_STRING");
    }
    explicit_bzero(sas, sizeof sas);
    snprintf(found->source, sizeof found->source, "AZURE_STORAGE_CONNECTION_STRING (%s)",
             found->kind == STK_CREDS_SAS ? "SAS" : "the account's key");
    return status < 0 ? status : 1;
}

static int from_account_key(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    const char *account = stk_environment_get("AZURE_STORAGE_ACCOUNT");
    const char *key = stk_environment_get("AZURE_STORAGE_KEY");
    int status;

    /* The variables have the same names as in adlfs and object_store. */
    account = account ? account : stk_environment_get("AZURE_STORAGE_ACCOUNT_NAME");
    key = key ? key : stk_environment_get("AZURE_STORAGE_ACCOUNT_KEY");

    if (!key) {
        stk_credential_chain_log(search, "AZURE_STORAGE_KEY is not set");
        return 0;
    }
    if (!account) {
        return stk_fail(error, STOKER_ERROR_MISSING, "half of the credentials is not set",
                        "set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or neither",
                        "the environment has no AZURE_STORAGE_ACCOUNT");
    }
    found->kind = STK_CREDS_KEYS;
    status = stk_credential_chain_copy_text(account, found->access_key, sizeof found->access_key,
                                            "AZURE_STORAGE_ACCOUNT", error);
    status = status < 0 ? status
                        : stk_credential_chain_copy_text(key, found->secret, sizeof found->secret,
                                                         "AZURE_STORAGE_KEY", error);
    snprintf(found->source, sizeof found->source,
             "environment variables AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY");
    return status < 0 ? status : 1;
}

static int from_sas(struct stk_credential_chain *search, struct stk_credentials *found,
                    struct stoker_error *error)
{
    const char *text = stk_environment_get("AZURE_STORAGE_SAS_TOKEN");

    if (!text) {
        stk_credential_chain_log(search, "AZURE_STORAGE_SAS_TOKEN is not set");
        return 0;
    }
    snprintf(found->source, sizeof found->source, "environment variable AZURE_STORAGE_SAS_TOKEN");
    int status = read_sas(text, "AZURE_STORAGE_SAS_TOKEN", found, error);
    return status < 0 ? status : 1;
}

/* ---- identities ---- */

static int read_token(struct stk_auth_request *auth, const char *what,
                      struct stk_credentials *found, struct stoker_error *error)
{
    uint64_t life_s = LIFE_S, on_s = 0;
    const struct stk_auth_field fields[] = {
        {"access_token", STK_AUTH_FIELD_TEXT, found->token, sizeof found->token},
        {"expires_in", STK_AUTH_FIELD_SECONDS, &life_s, 0},
        {"expires_on", STK_AUTH_FIELD_SECONDS, &on_s, 0},
    };
    int status;

    if (auth->code != 200) {
        return stk_auth_request_fail(auth, what, "check the identity, and its role on the account",
                                     error);
    }
    status = stk_auth_response_json((struct stk_view){(uint8_t *)auth->text, auth->text_bytes},
                                    fields, STK_COUNT(fields), what, error);
    found->kind = STK_CREDS_BEARER;
    found->expires_ns = on_s ? stk_auth_request_local_time(auth, on_s)
                             : stk_clock_wall_ns() + stk_min(life_s, 10 * 365 * 86400u) * SECOND;
    return status < 0 ? status : 1;
}

/* The service that turns a client's secret, or another's statement about it, into a token. */
static int send_form(struct stk_credential_chain *search, struct stk_auth_request *auth,
                     const char *tenant, bool fits, struct stk_credentials *found,
                     struct stoker_error *error)
{
    const char *authority = stk_environment_get("AZURE_AUTHORITY_HOST");
    char with_scheme[256];
    size_t bytes;
    int status;

    authority = authority ? authority : AUTHORITY;
    if (!strstr(authority, "://")) { /* as azure-identity takes it, too */
        snprintf(with_scheme, sizeof with_scheme, "https://%.200s", authority);
        authority = with_scheme;
    }
    bytes = strlen(authority);
    bytes -= authority[bytes - 1] == '/';
    status = stk_credential_chain_require_private(authority, "AZURE_AUTHORITY_HOST", error);
    if (status < 0) {
        return status;
    }
    fits = fits && stk_auth_request_add_field(auth, "scope", SCOPE) &&
           (size_t)snprintf(auth->url, sizeof auth->url, "%.*s/%s/oauth2/v2.0/token", (int)bytes,
                            authority, tenant) < sizeof auth->url &&
           !strpbrk(tenant, "/?#% \r\n");
    if (!fits) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a request for a token cannot be made",
                        "check AZURE_TENANT_ID, AZURE_CLIENT_ID and what goes with them", "Entra");
    }
    stk_auth_request_add_header(auth, "Content-Type", "application/x-www-form-urlencoded");
    status = stk_auth_request_send(search, auth, "Entra", error);
    return status < 0 ? status : read_token(auth, "Entra", found, error);
}

static int from_environment(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    const char *tenant = stk_environment_get("AZURE_TENANT_ID");
    const char *client = stk_environment_get("AZURE_CLIENT_ID");
    const char *secret = stk_environment_get("AZURE_CLIENT_SECRET");
    struct stk_auth_request *auth;
    int status;

    if (!tenant || !client || !secret) {
        stk_credential_chain_log(search, "%s is not set",
                                 !secret   ? "AZURE_CLIENT_SECRET"
                                 : !tenant ? "AZURE_TENANT_ID"
                                           : "AZURE_CLIENT_ID");
        return 0;
    }
    auth = stk_auth_request_open(STK_HTTP_POST);
    if (!auth) {
        return stk_fail_errno(error, ENOMEM, "cannot request a token", "free memory", "Entra");
    }
    status = send_form(search, auth, tenant,
                       stk_auth_request_add_field(auth, "grant_type", "client_credentials") &&
                           stk_auth_request_add_field(auth, "client_id", client) &&
                           stk_auth_request_add_field(auth, "client_secret", secret),
                       found, error);
    snprintf(found->source, sizeof found->source,
             "client %.80s by its secret (AZURE_CLIENT_ID, AZURE_CLIENT_SECRET)", client);
    stk_auth_request_close(auth);
    return status;
}

static int from_workload(struct stk_credential_chain *search, struct stk_credentials *found,
                         struct stoker_error *error)
{
    const char *file = stk_environment_get("AZURE_FEDERATED_TOKEN_FILE");
    const char *tenant = stk_environment_get("AZURE_TENANT_ID");
    const char *client = stk_environment_get("AZURE_CLIENT_ID");
    char token[STK_CREDS_TOKEN_BYTES_MAX];
    struct stk_auth_request *auth;
    int status;

    if (!file || !tenant || !client) {
        stk_credential_chain_log(search, "%s is not set",
                                 !file     ? "AZURE_FEDERATED_TOKEN_FILE"
                                 : !tenant ? "AZURE_TENANT_ID"
                                           : "AZURE_CLIENT_ID");
        return 0;
    }
    auth = stk_auth_request_open(STK_HTTP_POST);
    status = auth ? stk_credential_chain_read_file(file, token, sizeof token,
                                                   "AZURE_FEDERATED_TOKEN_FILE", error)
                  : stk_fail_errno(error, ENOMEM, "cannot request a token", "free memory", "Entra");
    if (status == 0) {
        status = send_form(search, auth, tenant,
                           stk_auth_request_add_field(auth, "grant_type", "client_credentials") &&
                               stk_auth_request_add_field(auth, "client_id", client) &&
                               stk_auth_request_add_field(
                                   auth, "client_assertion_type",
                                   "urn:ietf:params:oauth:client-assertion-type:jwt-bearer") &&
                               stk_auth_request_add_field(auth, "client_assertion", token),
                           found, error);
    }
    explicit_bzero(token, sizeof token);
    snprintf(found->source, sizeof found->source, "workload identity of client %.80s by '%.100s'",
             client, file);
    stk_auth_request_close(auth);
    return status;
}

/* The services that issue tokens to managed identities, in azure-identity's order. */
struct identity {
    const char *place; /* "a virtual machine"; static */
    const char *endpoint, *header, *secret, *version, *client_name;
    const char *variable; /* that names the endpoint; NULL: a virtual machine's */
    bool fixed;           /* the endpoint is where it always is, if anywhere */
};

static void find_identity(struct identity *identity)
{
    const char *endpoint = stk_environment_get("IDENTITY_ENDPOINT");
    const char *secret = stk_environment_get("IDENTITY_HEADER");
    const char *old = stk_environment_get("MSI_ENDPOINT"),
               *old_secret = stk_environment_get("MSI_SECRET");
    const char *host = stk_environment_get("AZURE_POD_IDENTITY_AUTHORITY_HOST");

    if (endpoint && secret) {
        *identity = (struct identity){.place = "the App Service",
                                      .endpoint = endpoint,
                                      .header = "X-IDENTITY-HEADER",
                                      .secret = secret,
                                      .version = "2019-08-01",
                                      .client_name = "client_id",
                                      .variable = "IDENTITY_ENDPOINT"};
    } else if (old && old_secret) {
        *identity = (struct identity){.place = "Azure Machine Learning",
                                      .endpoint = old,
                                      .header = "secret",
                                      .secret = old_secret,
                                      .version = "2017-09-01",
                                      .client_name = "clientid",
                                      .variable = "MSI_ENDPOINT"};
    } else {
        *identity = (struct identity){.place = "the virtual machine",
                                      .endpoint = host ? host : METADATA,
                                      .header = "Metadata",
                                      .secret = "true",
                                      .version = "2018-02-01",
                                      .client_name = "client_id",
                                      .fixed = !host};
    }
}

/* Returns 1 if a token was found, 0 if a virtual machine's service does not exist or has no
 * identity. */
static int send_managed(struct stk_credential_chain *search, struct stk_auth_request *auth,
                        const struct identity *identity, struct stk_credentials *found,
                        struct stoker_error *error)
{
    bool machine = !identity->variable;
    int status =
        stk_auth_request_send(search, auth, "the identity service", machine ? NULL : error);

    if (status < 0 && machine) {
        search->unreachable = "the identity service of a virtual machine";
        stk_credential_chain_log(
            search,
            "no identity service of a virtual machine answers at %s, which is queried "
            "again in a minute",
            identity->endpoint);
        return 0;
    }
    if (status == 0 && machine && auth->code / 100 == 4 && auth->code != 429 && auth->code != 410) {
        stk_credential_chain_log(search, "the machine has no identity: status %u of %s", auth->code,
                                 identity->endpoint);
        return 0;
    }
    return status < 0 ? status : read_token(auth, "the identity service", found, error);
}

/* Finds the token of an App Service container, a job of Azure ML, or a virtual machine. */
static int from_managed(struct stk_credential_chain *search, struct stk_credentials *found,
                        struct stoker_error *error)
{
    struct stk_auth_request *auth =
        search->options->http ? stk_auth_request_open(STK_HTTP_GET) : NULL;
    const char *client = stk_environment_get("AZURE_CLIENT_ID");
    struct identity identity;
    int status;

    find_identity(&identity);
    if (!client && identity.variable && strcmp(identity.variable, "MSI_ENDPOINT") == 0) {
        client = stk_environment_get("DEFAULT_IDENTITY_CLIENT_ID");
    }
    if (!auth || (client && strpbrk(client, "&?#% "))) {
        stk_credential_chain_log(search, "the identity service is not queried here");
        stk_auth_request_close(auth);
        return 0;
    }
    stk_auth_request_set_url(auth, "%s%s?api-version=%s&resource=%s%s%s%s%s", identity.endpoint,
                             identity.variable ? "" : "/metadata/identity/oauth2/token",
                             identity.version, RESOURCE, client ? "&" : "",
                             client ? identity.client_name : "", client ? "=" : "",
                             client ? client : "");
    auth->direct = true;
    auth->retry_not_found = true;
    if (identity.fixed) { /* on other machines no service responds: fail soon */
        auth->tries = 1;
        auth->total_ms = auth->connect_ms = METADATA_MS;
    }
    if (identity.variable && !stk_credentials_url_is_private(identity.endpoint) &&
        strncmp(identity.endpoint, "http://169.254.", 15) != 0) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "an identity endpoint is not allowed",
                          "use https, or an address of this machine", "%s", identity.variable);
    } else if (strpbrk(identity.secret, "\r\n") || strlen(identity.secret) > 4096) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "a secret has several lines",
                          "check where it was set", "IDENTITY_HEADER, or MSI_SECRET");
    } else {
        stk_auth_request_add_header(auth, identity.header, identity.secret);
        status = send_managed(search, auth, &identity, found, error);
    }
    snprintf(found->source, sizeof found->source, "managed identity of %s%s%.60s", identity.place,
             client ? ", client " : "", client ? client : "");
    stk_auth_request_close(auth);
    return status;
}
