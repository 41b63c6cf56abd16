/* Azure Blob Storage: Shared Key, SAS, bearer. */
#include "storage/provider/provider.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define TEXT_BYTES 8192u /* to be signed: URL and headers */
#define KEY_BYTES 256u

static char *make_url(struct stk_provider_request *request);
static int sign(struct stk_provider_request *request, const char *path, const char *date,
                struct stoker_error *error);
static bool string_to_sign(const struct stk_provider_request *request, const char *path,
                           const char *date, char *text);
static const char *given_header(const struct stk_provider_request *request, const char *name);

int stk_provider_request_azure(struct stk_provider_request *request, struct stoker_error *error)
{
    const char *endpoint = request->site->endpoint, *rest = strstr(endpoint, "://");
    size_t host_bytes = rest ? strcspn(rest + 3, "/") + (size_t)(rest + 3 - endpoint) : 0;
    time_t seconds = (time_t)request->time_s;
    char date[40], *url;
    struct tm parts;
    int status = 0;

    if (!rest) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "no account of Azure is named",
                        "set AZURE_STORAGE_ACCOUNT, or AZURE_STORAGE_CONNECTION_STRING",
                        "az://%.100s", request->bucket);
    }
    gmtime_r(&seconds, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    stk_provider_request_add_header(request, "x-ms-version", STK_PROVIDER_AZURE_VERSION);
    stk_provider_request_add_header(request, "x-ms-date", date);
    if (request->credentials->kind == STK_CREDS_BEARER) {
        stk_provider_request_add_bearer(request);
    }
    url = make_url(request);
    if (url && request->credentials->kind == STK_CREDS_KEYS) {
        status = sign(request, url + host_bytes, date, error);
    }
    request->url = status == 0 && request->buffer_used < request->buffer_bytes ? url : NULL;
    return status;
}

/* NULL: no room. */
static char *make_url(struct stk_provider_request *request)
{
    char path[2 * STK_SIGV4_TEXT_BYTES_MAX],
        *url = stk_provider_request_print(request, "%s", request->site->endpoint);
    bool deep = request->key[0] != 0, sas = request->credentials->kind == STK_CREDS_SAS;
    int bytes =
        snprintf(path, sizeof path, "/%s%s%s", request->bucket, deep ? "/" : "", request->key);

    if (!url || bytes < 0 || (size_t)bytes >= sizeof path) {
        return NULL;
    }
    request->buffer_used--; /* the path continues at the end of the endpoint */
    if (stk_url_encode_target(path, request->query, request->query_count,
                              request->buffer + request->buffer_used,
                              request->buffer_bytes - request->buffer_used) < 0) {
        return NULL;
    }
    request->buffer_used += strlen(request->buffer + request->buffer_used) + !sas;
    /* The SAS is sent unchanged: its signature is already encoded. */
    if (sas && !stk_provider_request_print(request, "%c%s", request->query_count ? '&' : '?',
                                           request->credentials->token)) {
        return NULL;
    }
    return url;
}

/* path: of the URL as it is sent, with its query. */
static int sign(struct stk_provider_request *request, const char *path, const char *date,
                struct stoker_error *error)
{
    const char *secret = request->credentials->secret;
    uint8_t key[KEY_BYTES + 4], mac[32];
    char text[TEXT_BYTES], code[64];
    size_t bytes = strlen(secret), padding = 0;
    int got = bytes <= KEY_BYTES ? EVP_DecodeBlock(key, (const uint8_t *)secret, (int)bytes) : -1;

    while (padding < 2 && padding < bytes && secret[bytes - 1 - padding] == '=') {
        padding++;
    }
    if (got < (int)padding || bytes == 0) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "an account's key is not in base64",
                        "copy all of it, with the = at its end", "account '%.100s'",
                        request->credentials->access_key);
    }
    if (!string_to_sign(request, path, date, text)) {
        explicit_bzero(key, sizeof key);
        request->buffer_bytes = request->buffer_used;
        return 0;
    }
    stk_sigv4_hmac((struct stk_view){key, (size_t)got - padding},
                   (struct stk_view){(const uint8_t *)text, strlen(text)}, mac);
    explicit_bzero(key, sizeof key);
    EVP_EncodeBlock((uint8_t *)code, mac, sizeof mac);
    snprintf(text, sizeof text, "SharedKey %s:%s", request->credentials->access_key, code);
    stk_provider_request_add_header(request, "Authorization", text);
    return 0;
}

/* Adds all headers that begin with x-ms-, sorted by name. The names are already in lower case.
 * Returns false if they do not fit. */
static bool add_ms_headers(const struct stk_provider_request *request, const char *date, char *text,
                           size_t *used)
{
    struct stk_sigv4_pair sorted[STK_SIGV4_HEADERS_MAX] = {
        {"x-ms-date", date}, {"x-ms-version", STK_PROVIDER_AZURE_VERSION}};
    uint32_t count = 2;

    for (uint32_t i = 0; i < request->header_count; i++) {
        uint32_t at = count;

        if (strncmp(request->headers[i].name, "x-ms-", 5) != 0) {
            continue;
        }
        if (count == STK_SIGV4_HEADERS_MAX) {
            return false;
        }
        for (; at > 0 && strcmp(sorted[at - 1].name, request->headers[i].name) > 0; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = request->headers[i];
        count++;
    }
    for (uint32_t i = 0; i < count; i++) {
        int made =
            snprintf(text + *used, TEXT_BYTES - *used, "%s:%s\n", sorted[i].name, sorted[i].value);

        if (made < 0 || (size_t)made >= TEXT_BYTES - *used) {
            return false;
        }
        *used += (size_t)made;
    }
    return true;
}

/* The version of the words since 2015: an empty length is "". */
static bool string_to_sign(const struct stk_provider_request *request, const char *path,
                           const char *date, char *text)
{
    const struct stk_sigv4_pair *sorted[STK_SIGV4_QUERY_MAX];
    size_t path_bytes = strcspn(path, "?"), used;
    char length[24] = "";
    int made;

    if (request->body.bytes > 0) {
        snprintf(length, sizeof length, "%zu", request->body.bytes);
    }
    made =
        snprintf(text, TEXT_BYTES, "%s\n\n\n%s\n%s\n%s\n\n%s\n%s\n%s\n%s\n%s\n", request->method,
                 length, given_header(request, "Content-MD5"),
                 given_header(request, "Content-Type"), given_header(request, "If-Modified-Since"),
                 given_header(request, "If-Match"), given_header(request, "If-None-Match"),
                 given_header(request, "If-Unmodified-Since"), given_header(request, "Range"));
    if (made < 0 || made >= (int)TEXT_BYTES || request->query_count > STK_SIGV4_QUERY_MAX) {
        return false;
    }
    used = (size_t)made;
    if (!add_ms_headers(request, date, text, &used)) {
        return false;
    }
    made = snprintf(text + used, TEXT_BYTES - used, "/%s%.*s", request->credentials->access_key,
                    (int)path_bytes, path);
    if (made < 0 || (size_t)made >= TEXT_BYTES - used) {
        return false;
    }
    used += (size_t)made;
    for (uint32_t i = 0; i < request->query_count; i++) { /* by name */
        uint32_t at = i;
        for (; at > 0 && strcmp(sorted[at - 1]->name, request->query[i].name) > 0; at--) {
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = &request->query[i];
    }
    for (uint32_t i = 0; i < request->query_count; i++) {
        made = snprintf(text + used, TEXT_BYTES - used, "\n%s:%s", sorted[i]->name,
                        sorted[i]->value ? sorted[i]->value : "");
        if (made < 0 || (size_t)made >= TEXT_BYTES - used) {
            return false;
        }
        used += (size_t)made;
    }
    return true;
}

static const char *given_header(const struct stk_provider_request *request, const char *name)
{
    for (uint32_t i = 0; i < request->header_count; i++) {
        if (strcasecmp(request->headers[i].name, name) == 0) {
            return request->headers[i].value;
        }
    }
    return "";
}
