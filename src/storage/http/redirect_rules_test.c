/* Goal: redirects are followed only where that is allowed. Method: rows, without a server;
 * http_test.c follows them with one. Covers redirect_rules.c. */
#include "storage/http/reactor.h"

#include "base/crypto/secret_memory.h"
#include "test/t.h"

#include <string.h>

static void test_hops(void)
{
    static const struct {
        const char *url, *location;
        int hop;
        const char *to;
    } rows[] = {
        {"https://a/b/c?d", "e", STK_HTTP_REDIRECT_SAME_ORIGIN, "https://a/b/e"},
        {"https://a/b", "https://a:443/c", STK_HTTP_REDIRECT_SAME_ORIGIN, "https://a:443/c"},
        {"http://a/b", "https://a/b", STK_HTTP_REDIRECT_CROSS_ORIGIN, "https://a/b"},
        {"http://a/b", "http://a:81/b", STK_HTTP_REDIRECT_CROSS_ORIGIN, "http://a:81/b"},
        {"http://a/b", "//c/d", STK_HTTP_REDIRECT_CROSS_ORIGIN, "http://c/d"},
        {"http://me:word@a/b/c", "d", STK_HTTP_REDIRECT_SAME_ORIGIN, "http://me:word@a/b/d"},
        {"http://me:w%40rd@a/b", "http://a:80/c", STK_HTTP_REDIRECT_SAME_ORIGIN,
         "http://me:w%40rd@a:80/c"},
        {"http://me@a/b", "/c", STK_HTTP_REDIRECT_SAME_ORIGIN, "http://me@a/c"},
        {"http://me:word@a/b", "http://c/d", STK_HTTP_REDIRECT_CROSS_ORIGIN, "http://c/d"},
        {"http://me:word@a/b", "https://a/d", STK_HTTP_REDIRECT_CROSS_ORIGIN, "https://a/d"},
        {"http://me:word@a/b", "http://me:word@a/d", STK_HTTP_REDIRECT_INVALID, NULL},
        {"https://a/b", "http://a/b", STK_HTTP_REDIRECT_INVALID, NULL},
        {"https://a/b", "https://user@a/b", STK_HTTP_REDIRECT_INVALID, NULL},
        {"http://a/b", "http://user:word@a/b", STK_HTTP_REDIRECT_INVALID, NULL},
        {"http://a/b", "ftp://a/b", STK_HTTP_REDIRECT_INVALID, NULL},
        {"http://a/b", "http://169.254.169.254/", STK_HTTP_REDIRECT_INVALID, NULL},
        {"http://a/b", "http://2852039166/", STK_HTTP_REDIRECT_INVALID, NULL},
        {"http://a/b", "http://0xa9.0xfe.0xa9.0xfe/", STK_HTTP_REDIRECT_INVALID, NULL},
        {"http://a/b", "http://[::ffff:169.254.169.254]/", STK_HTTP_REDIRECT_INVALID, NULL},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_view location = {(const uint8_t *)rows[i].location, strlen(rows[i].location)};
        char *to = NULL;

        T_EQ(rows[i].location, stk_http_redirect_resolve(rows[i].url, location, &to), rows[i].hop);
        T_STR(rows[i].location, to ? to : "", rows[i].to ? rows[i].to : "");
        stk_secret_free(to);
    }
}

static void test_addresses(void)
{
    static const struct {
        const char *ip;
        bool local, loop;
    } ips[] = {
        {"169.254.169.254", true, false},    {"169.253.0.1", false, false},
        {"127.0.0.1", false, true},          {"::1", false, true},
        {"::ffff:169.254.1.1", true, false}, {"::ffff:127.9.9.9", false, true},
        {"fe80::1%eth0", true, false},       {"febf::1", true, false},
        {"fec0::1", false, false},           {"fd00:ec2::254", true, false},
        {"2001:db8::1", false, false},       {"host", false, false},
    };

    for (size_t i = 0; i < STK_COUNT(ips); i++) {
        T_EQ(ips[i].ip, stk_http_is_link_local(ips[i].ip), ips[i].local);
        T_EQ(ips[i].ip, stk_http_is_loopback(ips[i].ip), ips[i].loop);
    }
}

int main(void)
{
    test_hops();
    test_addresses();
    return t_finish();
}
