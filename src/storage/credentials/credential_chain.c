/* Helpers of all chains: the trace; checks of texts, files and URLs. */
#include "storage/credentials/credential_chain.h"

#include "base/random.h"
#include "io/clock.h"
#include "io/small_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define EXTEND_S 600u /* botocore's ec2_credential_refresh_window; and 2 to 10 minutes more */
#define SECOND UINT64_C(1000000000)

void stk_credential_chain_log(struct stk_credential_chain *search, const char *format, ...)
{
    va_list arguments;

    if (search->trace && search->trace->count > 0) {
        struct stk_credential_step *step = &search->trace->steps[search->trace->count - 1];
        va_start(arguments, format);
        vsnprintf(step->reason, sizeof step->reason, format, arguments);
        va_end(arguments);
    }
}

void stk_credentials_wipe(struct stk_credentials *credentials)
{
    explicit_bzero(credentials, sizeof *credentials);
}

int stk_credential_chain_read_file(const char *path, char *out, size_t out_bytes, const char *what,
                                   struct stoker_error *error)
{
    size_t used;

    if (!stk_small_file_read_text(path, out, out_bytes)) {
        return stk_fail(error, STOKER_ERROR_MISSING, "a file of credentials cannot be read",
                        "check the path and its permissions", "%s '%s'", what, path);
    }
    used = strlen(out);
    if (used + 1 == out_bytes) {
        explicit_bzero(out, out_bytes);
        return stk_fail(error, STOKER_ERROR_LIMIT, "a file of credentials is too long",
                        "check the file", "%s '%s'", what, path);
    }
    while (used > 0 && strchr(" \t\r\n", out[used - 1])) {
        out[--used] = 0;
    }
    if (used == 0) {
        return stk_fail(error, STOKER_ERROR_MISSING, "a file of credentials is empty",
                        "check the program that writes the file", "%s '%s'", what, path);
    }
    return 0;
}

int stk_credential_chain_copy_text(const char *text, char *out, size_t out_bytes, const char *what,
                                   struct stoker_error *error)
{
    size_t bytes = strlen(text);

    if (bytes >= out_bytes || strpbrk(text, "\r\n")) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a credential is too long, or of several lines",
                        "check where it was set", "%s", what);
    }
    memcpy(out, text, bytes + 1);
    return 0;
}

bool stk_credential_chain_is_loopback_url(const char *url)
{
    static const char *const hosts[] = {"localhost", "[::1]"};
    const char *host = strncmp(url, "http://", 7) == 0 ? url + 7 : "";
    size_t bytes = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
    unsigned last[3];
    int end = 0;

    if (memchr(host, '@', strcspn(host, "/?#"))) {
        return false;
    }
    for (size_t i = 0; i < STK_COUNT(hosts); i++) {
        if (strlen(hosts[i]) == bytes && strncmp(hosts[i], host, bytes) == 0) {
            return true;
        }
    }
    return sscanf(host, "127.%3u.%3u.%3u%n", &last[0], &last[1], &last[2], &end) == 3 &&
           (size_t)end == bytes && last[0] < 256 && last[1] < 256 && last[2] < 256;
}

bool stk_credentials_url_is_private(const char *url)
{
    return strncasecmp(url, "https://", 8) == 0 || stk_credential_chain_is_loopback_url(url);
}

int stk_credential_chain_require_private(const char *url, const char *what,
                                         struct stoker_error *error)
{
    return stk_credentials_url_is_private(url)
               ? 0
               : stk_fail(error, STOKER_ERROR_ARGUMENT, "a secret would go out in plain text",
                          "use https", "%s", what);
}

uint64_t stk_credential_chain_extend_expiry(uint64_t expires_ns)
{
    uint64_t now_ns = stk_clock_wall_ns();
    uint64_t stay_ns = (EXTEND_S + 120 + stk_mix64(now_ns) % 481) * SECOND;

    return expires_ns > now_ns + stay_ns ? expires_ns : now_ns + stay_ns;
}
