/* Which redirects are followed. */
#include "storage/http/reactor.h"

#include "base/crypto/secret_memory.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool same_origin(CURLU *a, CURLU *b);
static bool is_http(CURLU *url);

/* Frees a text of libcurl that may be secret. */
static void wipe(char *text)
{
    if (text) {
        explicit_bzero(text, strlen(text));
    }
    curl_free(text);
}

int stk_http_redirect_resolve(const char *url, struct stk_view location, char **url_out)
{
    CURLU *from = curl_url(), *to = curl_url();
    char *target = NULL, *absolute = NULL, *user = NULL, *password = NULL;
    int hop = STK_HTTP_REDIRECT_INVALID;

    *url_out = NULL;
    target = location.bytes < STK_HTTP_URL_BYTES_MAX ? stk_secret_alloc(location.bytes + 1) : NULL;
    if (!from || !to || !target) {
        goto done;
    }
    memcpy(target, location.data, location.bytes);
    /* Sets the URL first, then its target: the parser resolves a relative target. The login of the
     * URL is not the redirect's; it is sent to the same origin only. */
    if (curl_url_set(from, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_set(to, CURLUPART_URL, url, 0) != CURLUE_OK ||
        curl_url_set(to, CURLUPART_USER, NULL, 0) != CURLUE_OK ||
        curl_url_set(to, CURLUPART_PASSWORD, NULL, 0) != CURLUE_OK ||
        curl_url_set(to, CURLUPART_URL, target, CURLU_URLENCODE) != CURLUE_OK ||
        curl_url_set(to, CURLUPART_FRAGMENT, NULL, 0) != CURLUE_OK || !is_http(to)) {
        goto done;
    }
    if (same_origin(from, to)) {
        (void)curl_url_get(from, CURLUPART_USER, &user, 0);
        (void)curl_url_get(from, CURLUPART_PASSWORD, &password, 0);
    }
    if ((user && curl_url_set(to, CURLUPART_USER, user, 0) != CURLUE_OK) ||
        (password && curl_url_set(to, CURLUPART_PASSWORD, password, 0) != CURLUE_OK) ||
        curl_url_get(to, CURLUPART_URL, &absolute, 0) != CURLUE_OK ||
        strlen(absolute) >= STK_HTTP_URL_BYTES_MAX ||
        /* A redirect from TLS to plain text is refused: others could read the content. */
        (strncmp(url, "https:", 6) == 0 && strncmp(absolute, "https:", 6) != 0)) {
        goto done;
    }
    *url_out = stk_secret_strdup(absolute); /* it may be signed */
    if (*url_out) {
        hop =
            same_origin(from, to) ? STK_HTTP_REDIRECT_SAME_ORIGIN : STK_HTTP_REDIRECT_CROSS_ORIGIN;
    }
done:
    wipe(user);
    wipe(password);
    wipe(absolute);
    stk_secret_free(target);
    curl_url_cleanup(to);
    curl_url_cleanup(from);
    return hop;
}

bool stk_http_header_is_public(const char *header)
{
    static const char *const names[] = {
        "Range:", "If-Match:", "If-None-Match:", "Accept:", "Accept-Encoding:", "User-Agent:"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        if (strncasecmp(header, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns an IPv4 address, also one that is mapped into IPv6, or 0. */
static uint32_t address4(const char *ip)
{
    struct in_addr four;

    if (strncasecmp(ip, "::ffff:", 7) == 0) {
        ip += 7;
    }
    return inet_pton(AF_INET, ip, &four) == 1 ? ntohl(four.s_addr) : 0;
}

bool stk_http_is_loopback(const char *ip)
{
    return address4(ip) >> 24 == 127 || strcmp(ip, "::1") == 0;
}

bool stk_http_is_link_local(const char *ip)
{
    struct in6_addr six;
    char text[INET6_ADDRSTRLEN + 1];

    if (address4(ip) >> 16 == 0xa9fe) { /* 169.254.0.0/16 */
        return true;
    }
    snprintf(text, sizeof text, "%.*s", (int)strcspn(ip, "%"), ip); /* without a zone */
    if (inet_pton(AF_INET6, text, &six) != 1) {
        return false;
    }
    /* fe80::/10, and fd00:ec2::/32, where Amazon's services of an instance are. */
    return (six.s6_addr[0] == 0xfe && (six.s6_addr[1] & 0xc0) == 0x80) ||
           (six.s6_addr[0] == 0xfd && six.s6_addr[1] == 0 && six.s6_addr[2] == 0x0e &&
            six.s6_addr[3] == 0xc2);
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart part)
{
    char *of_a = NULL, *of_b = NULL;
    bool same = curl_url_get(a, part, &of_a, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                curl_url_get(b, part, &of_b, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                strcasecmp(of_a, of_b) == 0;

    curl_free(of_a);
    curl_free(of_b);
    return same;
}

static bool same_origin(CURLU *a, CURLU *b)
{
    return same_part(a, b, CURLUPART_SCHEME) && same_part(a, b, CURLUPART_HOST) &&
           same_part(a, b, CURLUPART_PORT);
}

/* Accepts http or https without user or password, which the author of the redirect could read,
 * and without a link-local address. The addresses of a name are checked when libcurl connects. */
static bool is_http(CURLU *url)
{
    char *scheme = NULL, *user = NULL, *host = NULL;
    bool plain = curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                 (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                 curl_url_get(url, CURLUPART_USER, &user, 0) != CURLUE_OK &&
                 curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK;

    if (plain) { /* an IPv6 address stands in [ ] */
        size_t bracket = host[0] == '[';

        host[strcspn(host, "]")] = '\0';
        plain = !stk_http_is_link_local(host + bracket);
    }
    curl_free(host);
    curl_free(scheme);
    curl_free(user);
    return plain;
}
