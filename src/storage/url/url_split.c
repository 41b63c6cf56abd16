/* Splits URLs: schemes, logins, queries, and the tail of a chain. */
#include "storage/url/url_split.h"

#include "base/crypto/digest.h"
#include "base/text/text_match.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

static bool begins(const char *text, const char *head)
{
    return strncasecmp(text, head, strlen(head)) == 0;
}

uint32_t stk_url_scheme_of(const char *url)
{
    static const struct {
        const char *head;
        uint32_t scheme;
    } schemes[] = {{"http://", STK_URL_HTTP}, {"https://", STK_URL_HTTP}, {"s3://", STK_URL_S3},
                   {"gs://", STK_URL_GCS},    {"az://", STK_URL_AZURE},   {"hf://", STK_URL_HF}};

    for (size_t i = 0; i < STK_COUNT(schemes); i++) {
        if (begins(url, schemes[i].head)) {
            return schemes[i].scheme;
        }
    }
    return STK_URL_OTHER;
}

const char *stk_url_find_version(const char *url)
{
    static const char word[] = "?versionId=";
    const char *mark = stk_url_scheme_of(url) == STK_URL_S3 ? strrchr(url, '?') : NULL;

    if (!mark || strncmp(mark, word, sizeof word - 1) != 0 || !mark[sizeof word - 1] ||
        strpbrk(mark, "/*[{&")) {
        return NULL;
    }
    return mark;
}

void stk_url_decode_percent(char *text)
{
    char *to = text;

    while (*text) {
        int high = text[0] == '%' ? stk_hex_digit(text[1]) : -1;
        int low = high >= 0 ? stk_hex_digit(text[2]) : -1;

        if (low >= 0 && high + low > 0) {
            *to++ = (char)(high * 16 + low);
            text += 3;
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
}

/* The length of "scheme" or "a::scheme" before "://"; 0: a path, even if it has a URL inside. */
static size_t find_scheme(const char *url)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.:";
    size_t bytes = strspn(url, letters);

    return bytes > 2 && url[bytes - 1] == ':' && strncmp(url + bytes, "//", 2) == 0 ? bytes - 1 : 0;
}

/* s3://, gs://, az://: what follows is the name of a bucket. */
static bool has_bucket(const char *url)
{
    uint32_t scheme = stk_url_scheme_of(url);

    return scheme == STK_URL_S3 || scheme == STK_URL_GCS || scheme == STK_URL_AZURE;
}

/* hf:// and file:// have no login: an '@' in them is part of a name. */
static bool has_no_login(const char *url)
{
    return stk_url_scheme_of(url) == STK_URL_HF || stk_text_skip_file_scheme(url) != url;
}

/* The host of a URL of http or https, alone or at the end of a chain ("filecache::https://"); NULL:
 * another URL, or a path. */
static const char *find_host(const char *url)
{
    if (find_scheme(url) == 0 || has_bucket(url) || has_no_login(url)) {
        return NULL;
    }
    for (const char *at = url; at; at = strstr(at, "::") ? strstr(at, "::") + 2 : NULL) {
        if (stk_url_scheme_of(at) == STK_URL_HTTP) {
            return strstr(at, "://") + 3;
        }
    }
    return NULL;
}

/* Whether the text can be a host and a port: there are only digits after the last ':'. */
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

/* s3://KEY:SECRET@bucket: the library does not use it, but users write it. */
static bool split_keyed(const char *url, struct stk_url_parts *parts_out)
{
    const char *bucket = has_bucket(url) ? url + 5 : "", *at = strrchr(bucket, '@');

    if (!at || begins(bucket, "arn:") ||
        stk_url_find_any(bucket, (size_t)(at - bucket), ":@") > strcspn(bucket, "/")) {
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

/* az://container/blob?sv=...&sig=...: taken for a SAS, though a blob could have this name. The
 * redacted URL gets the mark of an invalid login, which parsing refuses: without the SAS the
 * request would go out with other credentials, or with none. */
static bool split_sas(const char *url, struct stk_url_parts *parts_out)
{
    const char *query = stk_url_scheme_of(url) == STK_URL_AZURE ? strchr(url, '?') : NULL;
    const char *sas = query, *rest;

    while (sas && !begins(sas + 1, "sig=")) {
        sas = strpbrk(sas + 1, "?&");
    }
    if (!sas) {
        return false;
    }
    rest = memrchr(url, '@', (size_t)(query - url)); /* a login before it is removed, too */
    rest = rest ? rest + 1 : url + 5;
    *parts_out = (struct stk_url_parts){
        .head = {(const uint8_t *)url, 5},
        .login = {(const uint8_t *)query, strlen(query)},
        .rest = {(const uint8_t *)rest, (size_t)(query - rest)},
        .broken = true,
    };
    return true;
}

/* The '@' between a login and a host; NULL: there is none. */
static const char *find_login_end(const char *host)
{
    return memrchr(host, '@', strcspn(host, "/?#"));
}

/* ftp://user:word@host: the library has no client for it. The Python package passes the user to it
 * and keeps the password. */
static bool split_other(const char *url, struct stk_url_parts *parts_out)
{
    const char *host = url + find_scheme(url), *at, *word;

    if (host == url || has_no_login(url)) {
        return false;
    }
    host += 3;
    at = find_login_end(host);
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

/* The offset of the "!/" of a chain, or of a '!' at its end. The Python package writes
 * "zip://b::https://host/a.zip" as "zip::https://host/a.zip!/b": '?' and '#' after the "!/" belong
 * to the name in the archive. */
static size_t find_tail(const char *host, bool chain)
{
    size_t bytes = strlen(host);
    const char *tail = chain ? strstr(host, "!/") : NULL;

    if (chain && !tail && bytes > 0 && host[bytes - 1] == '!') {
        return bytes - 1;
    }
    return tail ? (size_t)(tail - host) : bytes;
}

/* A URL in which nothing is secret. */
static void split_plain(const char *url, struct stk_url_parts *parts_out)
{
    const char *host = strstr(url, "://"), *at;
    size_t bytes;

    host = host ? host + 3 : url;
    at = host > url ? find_login_end(host) : NULL;
    *parts_out = (struct stk_url_parts){.head = {(const uint8_t *)url, (size_t)(host - url)}};
    if (at) {
        parts_out->login = (struct stk_view){(const uint8_t *)host, (size_t)(at - host)};
        host = at + 1;
    }
    bytes = strcspn(host, "?#");
    parts_out->rest = (struct stk_view){(const uint8_t *)host, bytes};
    if (host[bytes] == '?') {
        parts_out->query =
            (struct stk_view){(const uint8_t *)host + bytes + 1, strcspn(host + bytes + 1, "#")};
    }
}

/* If a raw '/', '?' or '#' in a password ended the host too early, the login is taken to end at the
 * last '@' of the URL: then no part of the password is shown, whatever the user meant. */
bool stk_url_split(const char *url, struct stk_url_parts *parts_out)
{
    const char *host = find_host(url), *at;
    size_t bytes, rest, end;
    bool chain;

    if (!host) {
        bool secret =
            split_sas(url, parts_out) || split_keyed(url, parts_out) || split_other(url, parts_out);

        if (!secret) {
            split_plain(url, parts_out);
        }
        return secret;
    }
    *parts_out = (struct stk_url_parts){.head = {(const uint8_t *)url, (size_t)(host - url)}};
    chain = parts_out->head.bytes > strlen("https://");
    bytes = stk_url_find_any(host, find_tail(host, chain), "/?#");
    at = memrchr(host, '@', bytes);
    if (!at && !is_host(host, bytes) && strchr(host, '@')) {
        at = strrchr(host, '@');
        parts_out->broken = true;
    }
    if (at) {
        parts_out->login = (struct stk_view){(const uint8_t *)host, (size_t)(at - host)};
        parts_out->broken = parts_out->broken || strncmp(host, STK_URL_INVALID_LOGIN "@", 4) == 0;
        host = at + 1;
    }
    end = find_tail(host, chain);
    rest = stk_url_find_any(host, end, "?#");
    parts_out->tail = (struct stk_view){(const uint8_t *)host + end, strlen(host + end)};
    parts_out->rest = (struct stk_view){(const uint8_t *)host, rest};
    if (rest < end && host[rest] == '?') {
        parts_out->query =
            (struct stk_view){(const uint8_t *)host + rest + 1,
                              stk_url_find_any(host + rest + 1, end - rest - 1, "#")};
    }
    return true;
}

void stk_url_normalize_host(char *url, size_t url_bytes)
{
    char *host = strstr(url, "://"), number[64];
    const char *port;
    struct in_addr four;
    size_t bytes, tail;

    if (!host) {
        return;
    }
    port = strncasecmp(url, "https", 5) == 0 ? ":443" : ":80";
    host += 3;
    bytes = strcspn(host, "/");
    if (bytes > strlen(port) &&
        stk_view_ends_with((struct stk_view){(const uint8_t *)host, bytes}, port)) {
        memmove(host + bytes - strlen(port), host + bytes, strlen(host + bytes) + 1);
    }
    bytes = strcspn(host, ":/");
    if (bytes == 0 || bytes >= sizeof number || host[0] < '0' || host[0] > '9') {
        return;
    }
    memcpy(number, host, bytes);
    number[bytes] = '\0';
    tail = strlen(host + bytes) + 1;
    if (inet_aton(number, &four) && inet_ntop(AF_INET, &four, number, sizeof number) &&
        (size_t)(host - url) + strlen(number) + tail <= url_bytes) {
        memmove(host + strlen(number), host + bytes, tail);
        memcpy(host, number, strlen(number));
    }
}
