/* Goal: no message has the login of a proxy, and the other messages stay as they are.
 * Method: rows of a variable, and a text that libcurl may print with it. */
#include "storage/http/proxy_redact.h"

#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    static const struct row {
        const char *value, *text, *want; /* want NULL: names the variable */
    } rows[] = {
        {"http://u:zebra1@h:1", "Failed to connect to h port 1", "Failed to connect to h port 1"},
        {"http://u:zeb#ra1@h:1", "Unsupported proxy syntax in 'http://u:zeb#ra1@h:1'", NULL},
        {"u:zeb/ra1@h", "Unsupported proxy syntax in 'u:zeb/ra1@h'", NULL},
        {"ftp://u:zebra1@h", "Unsupported proxy scheme for 'ftp://u:zebra1@h'", NULL},
        {"http://u:zebra1@h", "the server said: zebra1", "the server said: ***"},
        {"http://u:zeb%23ra1@h", "login zeb#ra1, zeb%23ra1", "login ***, ***"},
        {"http://u:a@h", "a zebra", "a zebra"}, /* too short to be known by its bytes */
        {"http://h:1", "Could not resolve proxy: h", "Could not resolve proxy: h"},
        {"http://u:zebra1@h", "SSL: no alternative name matches target host 'minio-proxy.corp'",
         "SSL: no alternative name matches target host 'minio-proxy.corp'"},
        {"ftp://u:zebra1@h",
         "Unsupported proxy 'ftp://u:zebra1@h', libcurl is built without the HTTPS-proxy support.",
         NULL},
        {"", "Unsupported proxy syntax in ''", "Unsupported proxy syntax in ''"},
    };
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "http_proxy",
                                        "HTTP_PROXY",  "all_proxy",   "ALL_PROXY"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        for (size_t j = 0; j < STK_COUNT(names); j++) {
            unsetenv(names[j]);
        }
        T_EACH(row, row, rows)
        {
            char text[256];

            setenv(names[i], row->value, 1);
            snprintf(text, sizeof text, "%s", row->text);
            stk_proxy_redact(text, sizeof text);
            if (row->want) {
                T_STR(row->text, text, row->want);
            } else {
                T_TRUE(row->text, strstr(text, names[i]) && !strstr(text, "zeb"));
            }
        }
    }
    return t_finish();
}
