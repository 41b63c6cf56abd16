/* What of a URL may be shown, and tells it from others. */
#include "storage/url/url_alias.h"

#include "base/crypto/digest.h"

#include <string.h>
#include <strings.h>

#define SHOWN_BYTES_MAX 15u /* of a value; a hash, with its mark, is one byte longer */
#define NAME_BYTES_MAX 60u  /* of a parameter */
#define INVALID_LOGIN "..." /* instead of a login that ends nobody knows where */

/* used: also of what has no room. */
struct text {
    char *data;
    size_t room, used;
};

/* Parameters that say who may ask, and until when. They never say what is asked for. */
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
/* The same beside one of those only: of Azure's SAS, and of links that end. */
static const char *const expiring_parameters[] = {
    "e",   "exp", "expiration", "expires", "saoid", "scid",  "sdd", "se",  "ses", "si",  "sip",
    "skd", "ske", "skoid",      "sks",     "sktid", "skt",   "skv", "sp",  "spk", "spr", "sr",
    "srk", "srt", "ss",         "st",      "sv",    "suoid", "tn",  "epk", "erk", "md5", "token"};
/* A token may be all that tells which object is asked for, unless it ends. */
static const char *const ends[] = {"e", "exp", "expiration", "expires"};
#define END_BYTES_MIN 10u /* seconds since 1970, or a date */
/* What has one of these in its name may be a secret, or the key of an object. */
static const char *const secret_words[] = {"auth", "cred", "key",    "pass", "secret",
                                           "sess", "sig",  "ticket", "token"};

static void add(struct text *text, const void *data, size_t bytes)
{
    if (bytes > 0 && bytes <= text->room - stk_min(text->used, text->room)) {
        memcpy(text->data + text->used, data, bytes);
    }
    text->used += bytes;
}

/* "~" and 60 bits of SHA-256: as long as the shortest value that is not shown. */
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

static size_t find_any(const char *text, size_t bytes, const char *any)
{
    size_t at = 0;

    while (at < bytes && !strchr(any, text[at])) {
        at++;
    }
    return at;
}

static bool begins(const char *text, const char *head)
{
    return strncasecmp(text, head, strlen(head)) == 0;
}

/* Bytes of "scheme", or of "a::scheme", before "://" or "::"; 0: a path, whatever stands in it. */
static size_t find_scheme(const char *url)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.:";
    size_t bytes = strspn(url, letters);

    return bytes > 2 && url[bytes - 1] == ':' && strncmp(url + bytes, "//", 2) == 0 ? bytes - 1 : 0;
}

static bool is_azure(const char *url)
{
    return begins(url, "s3://") || begins(url, "gs://") || begins(url, "az://");
}

/* Behind "http://" or "https://", also of a chain: "filecache::https://". */
static const char *find_host(const char *url)
{
    if (find_scheme(url) == 0 || is_azure(url) || begins(url, "hf://") || begins(url, "file://")) {
        return NULL;
    }
    for (const char *at = url; at; at = strstr(at, "::") ? strstr(at, "::") + 2 : NULL) {
        if (begins(at, "http://") || begins(at, "https://")) {
            return strstr(at, "://") + 3;
        }
    }
    return NULL;
}

/* Digits behind the last ':' of the host, or none. */
static bool is_host(const char *host, size_t bytes)
{
    const char *bracket = memchr(host, ']', bytes);
    const char *colon = memrchr(host, ':', bytes);

    if (!colon || (bracket && colon < bracket)) {
        return true;
    }
    for (const char *c = colon + 1; c < host + bytes; c++) {
        if (*c < '0' || *c > '9') {
            return false;
        }
    }
    return true;
}

/* s3://KEY:SECRET@bucket is nothing that is understood, but is written. */
static bool split_keyed(const char *url, struct stk_url_parts *parts_out)
{
    const char *bucket = is_azure(url) ? url + 5 : "", *at = strrchr(bucket, '@');

    if (!at || begins(bucket, "arn:") ||
        find_any(bucket, (size_t)(at - bucket), ":@") > strcspn(bucket, "/")) {
        return false;
    }
    *parts_out = (struct stk_url_parts){
        .head = {(const uint8_t *)url, 5},
        .login = {(const uint8_t *)bucket, (size_t)(at - bucket)},
        .rest = {(const uint8_t *)at + 1, strlen(at + 1)},
        .broken = true,
    };
    return true;
}

/* az://container/blob?sv=...&sig=...: a blob might be called so, but none is. Without it somebody
 * else would be asked as, or nobody: it leaves the mark of a login that is refused. */
static bool split_sas(const char *url, struct stk_url_parts *parts_out)
{
    const char *query = begins(url, "az://") ? strchr(url, '?') : NULL, *sas = query, *rest;

    while (sas && !begins(sas + 1, "sig=")) {
        sas = strpbrk(sas + 1, "?&");
    }
    if (!sas) {
        return false;
    }
    rest = memrchr(url, '@', (size_t)(query - url)); /* one before it goes, too */
    rest = rest ? rest + 1 : url + 5;
    *parts_out = (struct stk_url_parts){
        .head = {(const uint8_t *)url, 5},
        .login = {(const uint8_t *)query, strlen(query)},
        .rest = {(const uint8_t *)rest, (size_t)(query - rest)},
        .broken = true,
    };
    return true;
}

/* ftp://user:word@host: the library asks nobody by it, and the Python package gives it the user
 * alone, and keeps the word itself. */
static bool split_other(const char *url, struct stk_url_parts *parts_out)
{
    const char *host = url + find_scheme(url), *at, *word;

    if (host == url || begins(url, "hf://") || begins(url, "file://")) {
        return false;
    }
    host += 3;
    at = memrchr(host, '@', strcspn(host, "/?#"));
    word = at ? memchr(host, ':', (size_t)(at - host)) : NULL;
    if (!word) {
        return false;
    }
    *parts_out = (struct stk_url_parts){
        .head = {(const uint8_t *)url, (size_t)(word - url)},
        .rest = {(const uint8_t *)at, strlen(at)},
        .broken = true,
    };
    return true;
}

/* Where "!/" of a chain begins, or its '!' at the end: "zip://b::https://host/a.zip" is told as
 * "zip::https://host/a.zip!/b", whose '?' and '#' behind it are of names in the archive. */
static size_t find_tail(const char *host, bool chain)
{
    size_t bytes = strlen(host);
    const char *tail = chain ? strstr(host, "!/") : NULL;

    if (chain && !tail && bytes > 0 && host[bytes - 1] == '!') {
        return bytes - 1;
    }
    return tail ? (size_t)(tail - host) : bytes;
}

/* Where a password's raw '/', '?' or '#' ended the host too early, the last '@' of all ends the
 * login: so what belongs to it is not shown, whatever it was meant to be. */
bool stk_url_split(const char *url, struct stk_url_parts *parts_out)
{
    const char *host = find_host(url), *at;
    size_t bytes, rest, end;
    bool chain;

    if (!host) {
        return split_sas(url, parts_out) || split_keyed(url, parts_out) ||
               split_other(url, parts_out);
    }
    *parts_out = (struct stk_url_parts){.head = {(const uint8_t *)url, (size_t)(host - url)}};
    chain = parts_out->head.bytes > strlen("https://");
    bytes = find_any(host, find_tail(host, chain), "/?#");
    at = memrchr(host, '@', bytes);
    if (!at && !is_host(host, bytes) && strchr(host, '@')) {
        at = strrchr(host, '@');
        parts_out->broken = true;
    }
    if (at) {
        parts_out->login = (struct stk_view){(const uint8_t *)host, (size_t)(at - host)};
        parts_out->broken = parts_out->broken || strncmp(host, INVALID_LOGIN "@", 4) == 0;
        host = at + 1;
    }
    end = find_tail(host, chain);
    rest = find_any(host, end, "?#");
    parts_out->tail = (struct stk_view){(const uint8_t *)host + end, strlen(host + end)};
    parts_out->rest = (struct stk_view){(const uint8_t *)host, rest};
    if (rest < end && host[rest] == '?') {
        parts_out->query = (struct stk_view){(const uint8_t *)host + rest + 1,
                                             find_any(host + rest + 1, end - rest - 1, "#")};
    }
    return true;
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

/* "name=value" of a query, one after the other; false: that was the last. */
static bool next_parameter(struct stk_view *query, struct stk_view *name, struct stk_view *value)
{
    const char *text = (const char *)query->data;
    size_t bytes = find_any(text, query->bytes, "&"), equals = find_any(text, bytes, "=");

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

/* A value, or a parameter that is nothing but one; true: it is not shown as it is. */
static bool add_value(struct text *text, struct stk_view value, bool doubt)
{
    doubt = doubt || value.bytes > SHOWN_BYTES_MAX ||
            find_any((const char *)value.data, value.bytes, "@:%") < value.bytes;
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
        if (name.bytes > NAME_BYTES_MAX) { /* it is none */
            hidden = add_value(text, name, true) || hidden;
        } else {
            add(text, name.data, name.bytes);
        }
        add(text, "=", 1);
        hidden = add_value(text, value, may_be_secret(word, name.bytes)) || hidden;
    }
    return hidden;
}

/* The mark of who asks. One without a password, or with one that says so, is a token. */
static bool add_login(struct text *text, const struct stk_url_parts *parts)
{
    const char *from = (const char *)parts->login.data;
    size_t bytes = parts->login.bytes, user = find_any(from, bytes, ":");
    size_t word = bytes - user - (user < bytes);
    bool known = is_hash(parts->login) || (bytes == 1 && *from == '~') || bytes == 0;

    if (parts->broken) {
        add(text, INVALID_LOGIN, strlen(INVALID_LOGIN));
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

size_t stk_url_redact_parts(const struct stk_url_parts *parts, char *room, size_t room_bytes,
                            bool *login_out, bool *query_out)
{
    struct text text = {.data = room, .room = room_bytes};

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
