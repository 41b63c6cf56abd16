/* Goal: no alias contains the secrets of its URL; aliases of different objects differ, and a URL
 * that was signed again has the same alias; an alias resolves to the last URL that had it, within
 * the bounds, also in a forked child.
 * Method: rows of URLs with a canary where a secret may be. Covers url_redact.c and url_split.c. */
#include "storage/url/url_alias.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "storage/url/url_redact.h"
#include "storage/url/url_split.h"
#include "test/t.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CANARY "c4n4ry"
#define LONG "a-name-of-more-than-fifteen-bytes"

static const struct name_row {
    const char *name, *url, *want;
} rows[] = {
    {"nothing", "http://h/a.tar", "http://h/a.tar"},
    {"a path", "/data/a?sig=x@y", "/data/a?sig=x@y"},
    {"a version", "s3://b/k?versionId=x", "s3://b/k?versionId=x"},
    {"of this machine", "file:///a%20b/%C3%BC%2520+%zz%00%", "/a b/\xc3\xbc%20+%zz%00%"},
    {"its host", "file://localhost/a/long", "/a/long"},
    {"another host", "file://h/a%20", "file://h/a%20"},
    {"a key", "s3://b/k?sig=x@y", "s3://b/k?sig=x@y"},
    {"a SAS of az", "az://c/a/b?sv=2&sr=b&sig=" CANARY "%3D&se=3", "az://...@c/a/b"},
    {"of a container, first", "AZ://c?sig=" CANARY "&sv=2?x", "AZ://...@c"},
    {"beside a login", "az://c/a:b@c/a@b?sig=" CANARY, "az://...@b"},
    {"of a glob", "az://c/*.tar?sv=2&sig=" CANARY, "az://...@c/*.tar"},
    {"no SAS", "az://c/a?b&sv=sig=1/sig=2", "az://c/a?b&sv=sig=1/sig=2"},
    {"a path in a path", "/d/a::http://h/b?sig=x#1", "/d/a::http://h/b?sig=x#1"},
    {"a folder of URLs", "/d/ftp://me:x@h/b", "/d/ftp://me:x@h/b"},
    {"a key of URLs", "s3://b/k::http://h/b?sig=x#1", "s3://b/k::http://h/b?sig=x#1"},
    {"the hub", "hf://datasets/o/n@rev/a", "hf://datasets/o/n@rev/a"},
    {"sigv4",
     "https://h/a?X-Amz-Algorithm=A&X-Amz-Credential=" CANARY "&X-Amz-Signature=" CANARY
     "&X-Amz-Security-Token=" CANARY "&X-Amz-Expires=9",
     "https://h/a"},
    {"any case", "https://h/a?x-amz-signature=" CANARY "&SIG=" CANARY, "https://h/a"},
    {"sigv2", "https://h/a?AWSAccessKeyId=" CANARY "&Signature=" CANARY "&Expires=1",
     "https://h/a"},
    {"google", "https://h/a?X-Goog-Signature=" CANARY "&generation=7", "https://h/a?generation=7"},
    {"a SAS", "https://h/c/a?sv=2&sr=c&sp=r&se=x&sig=" CANARY "&snapshot=1",
     "https://h/c/a?snapshot=1"},
    {"no SAS", "https://h/a?sv=2&e=3&expires=4", "https://h/a?sv=2&e=3&expires=4"},
    {"cloudfront", "https://h/a?Policy=" CANARY "&Key-Pair-Id=" CANARY "&Signature=" CANARY,
     "https://h/a"},
    {"a token", "https://h/a?alt=media&token=" CANARY "&expires=1790000000",
     "https://h/a?alt=media"},
    {"of a user", "https://h/a?access_token=" CANARY "&token=" CANARY, "https://h/a"},
    {"tencent", "https://h/a?q-sign-time=1&q-ak=" CANARY "&q-signature=" CANARY, "https://h/a"},
    {"no signature", "https://h/a?q-term=cats&e=1", "https://h/a?q-term=cats&e=1"},
    {"two objects", "http://h/a?id=1", "http://h/a?id=1"},
    {"the other", "http://h/a?id=2", "http://h/a?id=2"},
    {"signed", "http://h/a?id=2&sig=" CANARY "&part=", "http://h/a?id=2&part="},
    {"a fragment", "http://h/a#" CANARY, "http://h/a"},
    {"behind a query", "http://h/a?id=1#" CANARY, "http://h/a?id=1"},
    {"a token as login", "http://" CANARY "@h/a", "http://~@h/a"},
    {"as GitHub has it", "http://" CANARY ":x-oauth-basic@h/a", "http://~@h/a"},
    {"its name", "http://~@h/a", "http://~@h/a"},
    {"a user", "http://me:" CANARY "@h:80/a", "http://~2744ccd10c7533b@h:80/a"},
    {"its name", "http://~2744ccd10c7533b@h:80/a", "http://~2744ccd10c7533b@h:80/a"},
    {"with @ and :", "http://me:" CANARY "@:!" CANARY "@h/a", "http://~2744ccd10c7533b@h/a"},
    {"encoded", "http://me:%40%2F%3A%21" CANARY "@h/a", "http://~2744ccd10c7533b@h/a"},
    {"with a /", "http://me:" CANARY "/" CANARY "@h/a", "http://...@h/a"},
    {"with a ?", "http://me:" CANARY "?" CANARY "@h/a", "http://...@h/a"},
    {"with a #", "http://me:" CANARY "#x@h/a", "http://...@h/a"},
    {"its name", "http://...@h/a", "http://...@h/a"},
    {"@ in a path", "http://h:80/a@2x.tar", "http://h:80/a@2x.tar"},
    {"IPv6", "http://[::1]:80/a@b", "http://[::1]:80/a@b"},
    {"of S3", "s3://AKIA:" CANARY "/" CANARY "@bucket/k", "s3://...@bucket/k"},
    {"of others", "ftp://me:" CANARY "@h/a?b", "ftp://me@h/a?b"},
    {"their user", "sftp://me@h/a", "sftp://me@h/a"},
    {"an ARN", "s3://arn:aws:s3:r:1:accesspoint/n/a@b", "s3://arn:aws:s3:r:1:accesspoint/n/a@b"},
    {"a chain", "filecache::http://me:" CANARY "@h/a?sig=" CANARY,
     "filecache::http://~2744ccd10c7533b@h/a"},
    {"in an archive", "zip::http://h/a.zip?id=1&sig=" CANARY "!/d/" LONG "#1?.tar",
     "zip::http://h/a.zip?id=1!/d/" LONG "#1?.tar"},
    {"all of it", "zip::http://h/a.zip?sig=" CANARY "!", "zip::http://h/a.zip!"},
    {"no chain", "http://h/a!/b?sig=" CANARY, "http://h/a!/b"},
    {"braces", "http://h/{0..9}.tar?sig=" CANARY, "http://h/{0..9}.tar"},
};

static const struct secret_row {
    const char *name, *url;
} secrets[] = {
    {"a URL in it", "http://h/a?url=http://" CANARY "@x/"},
    {"a short one", "http://h/a?u=a:" CANARY "@b"},
    {"encoded", "http://h/a?u=a%3A" CANARY},
    {"long", "http://h/a?anything=" CANARY CANARY CANARY},
    {"no name", "http://h/a?" CANARY CANARY CANARY},
    {"maybe a key", "http://h/a?key=" CANARY},
    {"a token", "http://h/a?alt=media&token=" CANARY},
    {"maybe one", "http://h/a?my_Auth=" CANARY},
    {"odd name", "http://h/a?s%69g=" CANARY},
    {"in a signed one", "http://h/a?sig=1&url=http%3A%2F%2F" CANARY},
};

static char *name_of(const char *url)
{
    char *name = NULL;

    T_EQ(url, stk_url_alias(url, &name), 0);
    return name;
}

static void test_names(void)
{
    T_EACH(name_row, row, rows)
    {
        char *name = name_of(row->url), *resolved = NULL, short_alias[8];

        T_STR(row->name, name, row->want);
        T_TRUE(row->name, !strstr(name, CANARY));
        T_EQ(row->name, stk_url_resolve(name, &resolved), 0);
        T_TRUE(row->name, !strstr(name, "...@") == !strstr(resolved, "...@"));
        T_TRUE(row->name, strstr(row->want, "~@") || strstr(row->want, "...@") ||
                              !strstr(row->url, "sig=" CANARY) || strstr(resolved, CANARY));
        T_EQ(row->name, stoker_url_alias(row->url, short_alias, sizeof short_alias),
             (int64_t)strlen(row->want));
        T_EQ(row->name, strncmp(short_alias, row->want, 7), 0);
        T_EQ(row->name, (int64_t)strlen(short_alias), 7);
        stk_secret_free(resolved);
        stk_free(name);
    }
    T_EACH(secret_row, row, secrets)
    {
        char *name = name_of(row->url), *resolved = NULL, *again = name_of(name);

        T_TRUE(row->name, !strstr(name, CANARY) && strchr(name, '~'));
        T_STR(row->name, again, name);
        T_EQ(row->name, stk_url_resolve(name, &resolved), 0);
        T_STR(row->name, resolved, row->url);
        stk_secret_free(resolved);
        stk_free(again);
        stk_free(name);
    }
}

/* URLs that differ in a hashed value are distinguished; URLs that differ only in the signature are
 * not. */
static void test_apart(void)
{
    static const char *const pairs[][3] = {
        {"http://h/a?key=one", "http://h/a?key=two", "differ"},
        {"http://h/a?token=one&e=1", "http://h/a?token=two&e=1", "differ"},
        {"http://h/a?token=one&e=1", "http://h/a?token=one&e=2", "differ"},
        {"http://h/a?file=train-000001-of-000002.tar&sig=1",
         "http://h/a?file=train-000002-of-000002.tar&sig=1", "differ"},
        {"http://me:x@h/a", "http://you:x@h/a", "differ"},
        {"http://me:x@h/a", "http://h/a", "differ"},
        {"http://me:x@h/a", "http://me:y@h/a", ""},
        {"http://h/a?sig=1&se=2&key=one", "http://h/a?sig=3&se=4&key=one", ""},
        {"http://h/a?sig=1", "http://h/a", ""},
    };

    for (size_t i = 0; i < STK_COUNT(pairs); i++) {
        char *a = name_of(pairs[i][0]), *b = name_of(pairs[i][1]);

        T_TRUE(pairs[i][0], (strcmp(a, b) != 0) == (pairs[i][2][0] != 0));
        stk_free(a);
        stk_free(b);
    }
}

static void want_whole(const char *name, const char *want)
{
    char *resolved = NULL;

    T_EQ(name, stk_url_resolve(name, &resolved), 0);
    T_STR(name, resolved, want);
    stk_secret_free(resolved);
}

static void test_resolved(void)
{
    stk_free(name_of("http://w/a?sig=one&id=1"));
    want_whole("http://w/a?id=1", "http://w/a?sig=one&id=1");
    stk_free(name_of("http://w/a?sig=two&id=1"));
    want_whole("http://w/a?id=1", "http://w/a?sig=two&id=1");
    want_whole("http://w/a", "http://w/a");
    want_whole("http://w/b", "http://w/b");
    want_whole("http://w/c?sig=x", "http://w/c?sig=x");
    /* An alias below its host resolves, too; one below another host does not. */
    stk_free(name_of("http://me:a@b:c/d@w/a"));
    want_whole("http://~2744ccd10c7533b@w/b", "http://~2744ccd10c7533b@w/b");
    stk_free(name_of("http://me:a@b:c|d@w/a?sig=s"));
    want_whole("http://~2744ccd10c7533b@w/a", "http://me:a%40b:c%7Cd@w/a?sig=s");
    want_whole("http://~2744ccd10c7533b@w/b/c", "http://me:a%40b:c%7Cd@w/b/c");
    want_whole("http://~2744ccd10c7533b@w:1/b", "http://~2744ccd10c7533b@w:1/b");
    want_whole("http://w/b/c", "http://w/b/c");
    /* An alias of a member resolves with the query of its archive. */
    stk_free(name_of("http://w/z.zip?sig=one"));
    want_whole("zip::http://w/z.zip!/a#1", "zip::http://w/z.zip?sig=one!/a#1");
    stk_free(name_of("zip://a::http://me:x@w/"));
    want_whole("zip://a::http://~2744ccd10c7533b@v/", "zip://a::http://~2744ccd10c7533b@v/");
}

/* Many names share a signature; the ones used last are known when it is too much. */
/* Names may be longer than their URLs: a hash for each word that may hide something. */
static void test_longer(void)
{
    static const struct word_row {
        const char *word;
    } words[] = {{"@&"}, {"=@&"}, {"a=:&"}, {"%&"}, {"x@y&"}};

    T_EACH(word_row, row, words)
    {
        size_t bytes = strlen(row->word);
        char *url = stk_alloc(16 + 1000 * bytes, 1), *name;

        memcpy(url, "http://h/?", 10);
        for (int i = 0; i < 1000; i++) {
            memcpy(url + 10 + (size_t)i * bytes, row->word, bytes);
        }
        name = name_of(url);
        T_TRUE(row->word, strlen(name) > strlen(url));
        T_EQ(row->word, strncmp(name, "http://h/?", 10), 0);
        stk_free(name);
        stk_free(url);
    }
}

/* Redacting a URL does not change what its alias resolves to. */
static void test_shown(void)
{
    char shown[128], *name = name_of("http://me:new@s/a?sig=2");

    T_EQ("bytes", stoker_url_redact("http://me:old@s/a?sig=1", shown, sizeof shown), strlen(name));
    T_STR("the same", shown, name);
    want_whole(name, "http://me:new@s/a?sig=2");
    stk_free(name);
}

/* For messages: neither a login nor a query. */
static void test_short(void)
{
    static const struct short_row {
        const char *url, *text;
    } texts[] = {
        {"http://user:pw@host:80/a/b?sig=1#x", "http://host:80/a/b?..."},
        {"https://host", "https://host"},
        {"s3://bucket/a@b", "s3://bucket/a@b"},
        {"http://host?x", "http://host?..."},
        {"nonsense", "nonsense"},
        {"http://" CANARY "@h/a?b#" CANARY, "http://h/a?..."},
        {"http://h/a#" CANARY "?b", "http://h/a"},
        {"http://me:a/" CANARY "@h/a", "http://h/a"},
        {"zip::https://h/a.zip?sig=" CANARY "!/b", "zip::https://h/a.zip?..."},
        {"s3://key:" CANARY "@bucket/a", "s3://bucket/a"},
        {"s3://bucket/a?" CANARY, "s3://bucket/a?..."},
        {"az://c/a?sv=1&sig=" CANARY, "az://c/a"},
        {"ftp://me:" CANARY "@h/a?" CANARY, "ftp://me@h/a?..."},
        {"sftp://" CANARY "@h/a?b", "sftp://h/a?..."},
        {"hf://datasets/o/n@rev/a", "hf://datasets/o/n@rev/a"},
        {"/data/a@b", "/data/a@b"},
        {"", ""},
    };
    char text[64], cut[12];

    T_EACH(short_row, row, texts)
    {
        T_STR(row->url, stk_url_redact_short(row->url, text, sizeof text), row->text);
        stk_url_redact_short(row->url, cut, sizeof cut);
        T_TRUE(row->url, strlen(cut) < sizeof cut && strncmp(cut, text, strlen(cut)) == 0);
    }
}

static void test_schemes(void)
{
    static const struct scheme_row {
        const char *url;
        uint32_t scheme;
    } urls[] = {
        {"http://h/a", STK_URL_HTTP},    {"HTTPS://h/a", STK_URL_HTTP},
        {"s3://b/k", STK_URL_S3},        {"S3://b", STK_URL_S3},
        {"gs://b/k", STK_URL_GCS},       {"az://c/b", STK_URL_AZURE},
        {"hf://datasets/a", STK_URL_HF}, {"s3:/b", STK_URL_OTHER},
        {"s3", STK_URL_OTHER},           {"/a/s3://b", STK_URL_OTHER},
        {"ftp://h/a", STK_URL_OTHER},    {"", STK_URL_OTHER},
        {"s3a://b/k", STK_URL_OTHER},    {"zip::http://h", STK_URL_OTHER},
    };

    T_EACH(scheme_row, row, urls)
    {
        T_EQ(row->url, stk_url_scheme_of(row->url), row->scheme);
    }
}

static void test_bound(void)
{
    char url[128], *name;
    uint64_t before = stk_url_alias_set_bytes_max(16u << 20);

    /* All aliases of a list are known, with as many entries as fit, each with its own signature and
     * token. */
    T_TRUE("fits", before >= 250000ull * 2048);
    for (uint32_t i = 0; i < 1000; i++) { /* with 64 KiB each: a quarter of them is too much */
        char *large = stk_alloc(1, 65536);

        memset(large, 'x', 65535);
        snprintf(url, sizeof url, "http://b/%u?sig=%u", i, i);
        memcpy(large, url, strlen(url));
        stk_url_alias(large, &name);
        stk_free(name);
        stk_free(large);
        if (i % 100 == 0) {
            snprintf(url, sizeof url, "http://b/0");
            stk_url_resolve(url, &name);
            T_TRUE("retained while in use", strlen(name) > 60000);
            stk_secret_free(name);
        }
    }
    want_whole("http://b/1", "http://b/1");
    stk_url_alias_set_bytes_max(before);
    for (uint32_t i = 0; i < 2 * STK_URL_ALIAS_LOGINS_MAX; i++) {
        snprintf(url, sizeof url, "http://me:x@l%u/", i);
        stk_free(name_of(url));
    }
    want_whole("http://~2744ccd10c7533b@l0/", "http://~2744ccd10c7533b@l0/");
    want_whole("http://~2744ccd10c7533b@l500/", "http://me:x@l500/");
}

static void *name_on(void *stop)
{
    while (!*(volatile _Atomic bool *)stop) {
        char *name = NULL;

        stk_url_alias("http://me:x@f/a?sig=1", &name);
        stk_free(name);
    }
    return NULL;
}

/* After a fork from a process with threads, the sanitizers' own locks may stay locked in the
 * child. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define CAN_FORK false
#else
#    define CAN_FORK true
#endif

static void test_forks(void)
{
    _Atomic bool stop = false;
    pthread_t thread;

    T_EQ("thread", pthread_create(&thread, NULL, name_on, &stop), 0);
    for (int i = 0; i < 50; i++) {
        int state = 0;
        pid_t child;

        if (!CAN_FORK) {
            want_whole("http://~2744ccd10c7533b@l500/", "http://me:x@l500/");
            continue;
        }
        child = fork();
        if (child == 0) {
            char *resolved = NULL;

            alarm(60); /* a lock that is never released */
            stk_url_resolve("http://~2744ccd10c7533b@l500/", &resolved);
            _exit(resolved && strcmp(resolved, "http://me:x@l500/") == 0 ? 0 : 1);
        }
        T_EQ("child", waitpid(child, &state, 0), child);
        T_EQ("knows", state, 0);
    }
    stop = true;
    pthread_join(thread, NULL);
}

static void test_hosts(void)
{
    static const struct host_row {
        const char *url, *want;
    } hosts[] = {
        {"http://127.1:9/a", "http://127.0.0.1:9/a"},
        {"http://0x7f000001", "http://127.0.0.1"},
        {"https://2130706433:9/", "https://127.0.0.1:9/"},
        {"http://0177.1", "http://127.0.0.1"},
        {"HTTPS://host:443/a:443", "HTTPS://host/a:443"},
        {"http://host:443", "http://host:443"},
        {"http://127.1:80", "http://127.0.0.1"},
        {"https://host:80", "https://host:80"},
        {"http://1.example/", "http://1.example/"},
        {"http://[::1]:80/", "http://[::1]/"},
        {"http://3.4.5.6.7/", "http://3.4.5.6.7/"},
        {"no URL", "no URL"},
        {"http://", "http://"},
        {"http://0x7f000001000000000000000000000000000000000000000000000000000000000000/", NULL},
    };
    char url[128];

    T_EACH(host_row, row, hosts)
    {
        snprintf(url, sizeof url, "%s", row->url);
        stk_url_normalize_host(url, sizeof url);
        T_STR(row->url, url, row->want ? row->want : row->url);
    }
    snprintf(url, sizeof url, "http://1/ab");
    stk_url_normalize_host(url, 13);
    T_STR("no room", url, "http://1/ab");
}

int main(void)
{
    test_hosts();
    test_names();
    test_apart();
    test_resolved();
    test_longer();
    test_shown();
    test_short();
    test_schemes();
    test_bound();
    test_forks();
    T_EQ("alive", stk_mem_alive(), 0);
    return t_finish();
}
