/* Removes the login of a proxy from messages. */
#include "storage/http/proxy_redact.h"

#include "base/crypto/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_BYTES_MIN 3u /* a shorter one is part of ordinary words */
#define VALUE_BYTES_MAX 2048u

static const char *const variables[] = {"https_proxy", "HTTPS_PROXY", "http_proxy",
                                        "HTTP_PROXY",  "all_proxy",   "ALL_PROXY"};

/* Replaces all occurrences of some bytes by "***". */
static void replace(char *text, size_t text_bytes, const char *secret, size_t secret_bytes)
{
    char *at = text;

    while (secret_bytes >= SECRET_BYTES_MIN &&
           (at = memmem(at, strlen(at), secret, secret_bytes)) != NULL) {
        size_t rest = strlen(at + secret_bytes) + 1;

        STK_ASSERT((size_t)(at - text) + 3 + rest <= text_bytes);
        memmove(at + 3, at + secret_bytes, rest);
        memcpy(at, "***", 3);
        at += 3;
    }
}

/* libcurl decodes a login before it uses it. Returns the length. */
static size_t decode(const char *text, size_t bytes, char *decoded)
{
    size_t used = 0;

    for (size_t i = 0; i < bytes; i++) {
        bool escaped = text[i] == '%' && i + 2 < bytes && stk_hex_digit(text[i + 1]) >= 0 &&
                       stk_hex_digit(text[i + 2]) >= 0;

        decoded[used++] = escaped
                              ? (char)(stk_hex_digit(text[i + 1]) * 16 + stk_hex_digit(text[i + 2]))
                              : text[i];
        i += escaped ? 2 : 0;
    }
    return used;
}

static void redact_value(char *text, size_t text_bytes, const char *value)
{
    const char *scheme = strstr(value, "://"), *login = scheme ? scheme + 3 : value;
    const char *end = strrchr(login, '@'), *colon;
    char decoded[VALUE_BYTES_MAX];
    size_t used;

    if (!end || strlen(value) >= VALUE_BYTES_MAX) {
        return; /* libcurl's messages are shorter */
    }
    colon = memchr(login, ':', (size_t)(end - login));
    replace(text, text_bytes, value, strlen(value));
    replace(text, text_bytes, login, (size_t)(end - login));
    if (colon) {
        replace(text, text_bytes, colon + 1, (size_t)(end - colon - 1));
        used = decode(colon + 1, (size_t)(end - colon - 1), decoded);
        replace(text, text_bytes, decoded, used);
    }
}

void stk_proxy_redact(char *text, size_t text_bytes)
{
    const char *name = NULL;

    for (size_t i = 0; i < STK_COUNT(variables); i++) {
        const char *value = getenv(variables[i]);

        if (value && value[0]) {
            name = name ? name : variables[i];
            redact_value(text, text_bytes, value);
        }
    }
    /* libcurl prints the value, of which it has perhaps read another login than the one above. A
     * host may have "proxy" in its name. */
    if (name && strstr(text, "Unsupported proxy ")) {
        snprintf(text, text_bytes,
                 "the proxy of %s cannot be read: it must be http://user:password@host:port, with "
                 "other characters than letters and digits of a login as %%XX",
                 name);
    }
}
