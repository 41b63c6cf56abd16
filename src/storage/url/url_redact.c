/* Redacts URLs: removes secrets, keeps or hashes what distinguishes one object from another. */
#include "storage/url/url_redact.h"

#include "base/crypto/digest.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SHOWN_BYTES_MAX 15u /* of a value; a hash with its "~" is one byte longer */
#define NAME_BYTES_MAX 60u  /* of a parameter */

/* used counts all bytes, also those that did not fit. */
struct text {
    char *data;
    size_t data_bytes, used;
};

/* Parameters that authorize a request. They never select an object. */
static const char *const signing_parameters[] = {"access_token",
                                                 "accesstoken",
                                                 "api_key",
                                                 "api-key",
                                                 "apikey",
                                                 "auth_token",
                                                 "authtoken",
                                                 "awsaccesskeyid",
                                                 "bearer",
                                                 "client_secret",
                                                 "credential",
                                                 "credentials",
                                                 "googleaccessid",
                                                 "hdnea",
                                                 "hdntl",
                                                 "hdnts",
                                                 "hmac",
                                                 "jwt",
                                                 "key-pair-id",
                                                 "ossaccesskeyid",
                                                 "passwd",
                                                 "password",
                                                 "policy",
                                                 "private_token",
                                                 "pwd",
                                                 "refresh_token",
                                                 "sas",
                                                 "secret",
                                                 "security-token",
                                                 "session_token",
                                                 "sessiontoken",
                                                 "sig",
                                                 "q-ak",
                                                 "q-header-list",
                                                 "q-key-time",
                                                 "q-url-param-list",
                                                 "sign",
                                                 "signature",
                                                 "__gda__",
                                                 "__token__"};
static const char *const signing_prefixes[] = {"x-amz-", "x-goog-", "x-oss-", "x-cos-",
                                               "x-obs-", "x-tos-",  "q-sign", "x-xet-"};
/* Parameters of an Azure SAS and of links that expire: removed only next to one of those above. */
static const char *const expiring_parameters[] = {
    "e",   "exp", "expiration", "expires", "saoid", "scid",  "sdd", "se",  "ses", "si",  "sip",
    "skd", "ske", "skoid",      "sks",     "sktid", "skt",   "skv", "sp",  "spk", "spr", "sr",
    "srk", "srt", "ss",         "st",      "sv",    "suoid", "tn",  "epk", "erk", "md5", "token"};
/* A "token" authorizes only next to a time at which it expires; else it may select the object. */
static const char *const ends[] = {"e", "exp", "expiration", "expires"};
#define END_BYTES_MIN 10u /* seconds since 1970, or a date */
/* A parameter with one of these in its name may be a secret, or the key of an object. */
static const char *const secret_words[] = {"auth", "cred", "key",    "pass", "secret",
                                           "sess", "sig",  "ticket", "token"};

static void add(struct text *text, const void *data, size_t bytes)
{
    if (bytes > 0 && bytes <= text->data_bytes - stk_min(text->used, text->data_bytes)) {
        memcpy(text->data + text->used, data, bytes);
    }
    text->used += bytes;
}

/* "~" and 60 bits of SHA-256. The hash is as long as the shortest value that it replaces. */
static void add_hash(struct text *text, struct stk_view of)
{
    struct stk_sha256 sha;
    uint8_t digest[32];
    char hex[17];

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, of.data, of.bytes);
    stk_sha256_done(&sha, digest);
    stk_hex(digest, 8, hex);
    add(text, "~", 1);
    add(text, hex, SHOWN_BYTES_MAX);
}

static bool is_hash(struct stk_view value)
{
    bool hash = value.bytes == SHOWN_BYTES_MAX + 1 && value.data[0] == '~';

    for (size_t i = 1; hash && i < value.bytes; i++) {
        hash = memchr("0123456789abcdef", value.data[i], 16) != NULL;
    }
    return hash;
}

static bool is_in(const char *const *words, size_t count, const char *name, size_t bytes)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i]) == bytes && strncasecmp(words[i], name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_signing(const char *name, size_t bytes)
{
    for (size_t i = 0; i < STK_COUNT(signing_prefixes); i++) {
        size_t head = strlen(signing_prefixes[i]);

        if (bytes > head && strncasecmp(signing_prefixes[i], name, head) == 0) {
            return true;
        }
    }
    return is_in(signing_parameters, STK_COUNT(signing_parameters), name, bytes);
}

static bool may_be_secret(const char *name, size_t bytes)
{
    for (size_t i = 0; i < STK_COUNT(secret_words); i++) {
        size_t word = strlen(secret_words[i]);

        for (size_t at = 0; at + word <= bytes; at++) {
            if (strncasecmp(name + at, secret_words[i], word) == 0) {
                return true;
            }
        }
    }
    return memchr(name, '%', bytes) != NULL;
}

/* Takes the next "name=value" off a query; false: there are no more. */
static bool next_parameter(struct stk_view *query, struct stk_view *name, struct stk_view *value)
{
    const char *text = (const char *)query->data;
    size_t bytes = stk_url_find_any(text, query->bytes, "&"),
           equals = stk_url_find_any(text, bytes, "=");

    if (query->data == NULL) {
        return false;
    }
    *name = (struct stk_view){query->data, equals};
    *value = (struct stk_view){NULL, 0};
    if (equals < bytes) {
        *value = (struct stk_view){query->data + equals + 1, bytes - equals - 1};
    }
    if (bytes < query->bytes) {
        *query = (struct stk_view){query->data + bytes + 1, query->bytes - bytes - 1};
    } else {
        *query = (struct stk_view){NULL, 0};
    }
    return true;
}

/* Adds a value, or a parameter without one; returns true if its hash was added instead. */
static bool add_value(struct text *text, struct stk_view value, bool doubt)
{
    doubt = doubt || value.bytes > SHOWN_BYTES_MAX ||
            stk_url_find_any((const char *)value.data, value.bytes, "@:%") < value.bytes;
    if (value.bytes == 0 || is_hash(value) || !doubt) {
        add(text, value.data, value.bytes);
        return false;
    }
    add_hash(text, value);
    return true;
}

static bool signed_by(struct stk_view query)
{
    struct stk_view name, value;
    bool signs = false, token = false, end = false;

    while (next_parameter(&query, &name, &value)) {
        const char *word = (const char *)name.data;

        if (value.data) {
            signs = signs || is_signing(word, name.bytes);
            token = token || (name.bytes == 5 && strncasecmp(word, "token", 5) == 0);
            end = end ||
                  (value.bytes >= END_BYTES_MIN && is_in(ends, STK_COUNT(ends), word, name.bytes));
        }
    }
    return signs || (token && end);
}

static bool add_query(struct text *text, struct stk_view query)
{
    struct stk_view left = query, name, value;
    bool signs = signed_by(query), hidden = false, first = true;

    while (next_parameter(&left, &name, &value)) {
        const char *word = (const char *)name.data;

        if (value.data && (is_signing(word, name.bytes) ||
                           (signs && is_in(expiring_parameters, STK_COUNT(expiring_parameters),
                                           word, name.bytes)))) {
            hidden = true;
            continue;
        }
        add(text, first ? "?" : "&", 1);
        first = false;
        if (!value.data) {
            hidden = add_value(text, name, false) || hidden;
            continue;
        }
        if (name.bytes > NAME_BYTES_MAX) { /* it is no name */
            hidden = add_value(text, name, true) || hidden;
        } else {
            add(text, name.data, name.bytes);
        }
        add(text, "=", 1);
        hidden = add_value(text, value, may_be_secret(word, name.bytes)) || hidden;
    }
    return hidden;
}

/* Adds the hash of the user. A user without a password, or with GitHub's fixed one, is a token: "~"
 * alone is added. */
static bool add_login(struct text *text, const struct stk_url_parts *parts)
{
    const char *from = (const char *)parts->login.data;
    size_t bytes = parts->login.bytes, user = stk_url_find_any(from, bytes, ":");
    size_t word = bytes - user - (user < bytes);
    bool known = is_hash(parts->login) || (bytes == 1 && *from == '~') || bytes == 0;

    if (parts->broken) {
        add(text, STK_URL_INVALID_LOGIN, strlen(STK_URL_INVALID_LOGIN));
    } else if (known) {
        add(text, from, bytes);
    } else if (word == 0 || (word == 13 && memcmp(from + user + 1, "x-oauth-basic", 13) == 0)) {
        add(text, "~", 1);
    } else {
        add_hash(text, (struct stk_view){parts->login.data, user});
    }
    add(text, "@", 1);
    return !parts->broken && !known;
}

size_t stk_url_redact_parts(const struct stk_url_parts *parts, char *buffer, size_t buffer_bytes,
                            bool *login_out, bool *query_out)
{
    struct text text = {.data = buffer, .data_bytes = buffer_bytes};

    *login_out = *query_out = false;
    add(&text, parts->head.data, parts->head.bytes);
    if (parts->login.data) {
        *login_out = add_login(&text, parts);
    }
    add(&text, parts->rest.data, parts->rest.bytes);
    if (parts->query.data) {
        *query_out = add_query(&text, parts->query);
    }
    if (parts->tail.data) {
        add(&text, parts->tail.data, parts->tail.bytes);
    }
    add(&text, "", 1);
    return text.used;
}

int stk_url_redact(const char *url, char **name_out)
{
    struct stk_url_parts parts;
    bool login, query;
    size_t bytes;

    if (!stk_url_split(url, &parts)) {
        *name_out = stk_strdup(url);
        return *name_out ? 0 : -ENOMEM;
    }
    bytes = stk_url_redact_parts(&parts, NULL, 0, &login, &query);
    *name_out = stk_alloc(bytes, 1);
    if (!*name_out) {
        return -ENOMEM;
    }
    stk_url_redact_parts(&parts, *name_out, bytes, &login, &query);
    return 0;
}

/* The part that the split takes for a path may contain a query: s3://a:b@bucket/key?c. */
const char *stk_url_redact_short(const char *url, char *text, size_t text_bytes)
{
    struct stk_url_parts parts;
    size_t bytes;
    bool query;

    stk_url_split(url, &parts);
    bytes = stk_url_find_any((const char *)parts.rest.data, parts.rest.bytes, "?#");
    query = parts.query.data || (bytes < parts.rest.bytes && parts.rest.data[bytes] == '?');
    snprintf(text, text_bytes, "%.*s%.*s%s", (int)parts.head.bytes, (const char *)parts.head.data,
             (int)bytes, (const char *)parts.rest.data, query ? "?..." : "");
    return text;
}

int64_t stoker_url_redact(const char *url, char *name, size_t name_bytes)
{
    char *redacted;
    int64_t bytes;

    if (!url || stk_url_redact(url, &redacted) < 0) {
        return url ? -ENOMEM : STOKER_ERROR_ARGUMENT;
    }
    bytes = snprintf(name, name_bytes, "%s", redacted);
    stk_free(redacted);
    return bytes;
}
