/* Goal: each text gives its keys, or an error that shows none of them; an object gets the key of
 * the longest matching prefix.
 * Method: rows; checksums from `openssl dgst -md5 -binary | base64`. */
#include "storage/config/sse_keys.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEX_0 "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define BASE_0 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define MD5_0 "tP/LI3N87DFaSk0aoqYgzg=="
#define BASE_A "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE="
#define RAW_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static const struct {
    const char *text;
    int status;
    uint32_t count;
    const char *first; /* prefix, key */
    const char *key;
} texts[] = {
    {HEX_0, 0, 1, "", BASE_0},
    {BASE_0, 0, 1, "", BASE_0},
    {BASE_0 "\n", 0, 1, "", BASE_0},
    {RAW_A, 0, 1, "", BASE_A},
    {"  \t" BASE_0 " \r\n\n# a comment\n", 0, 1, "", BASE_0},
    {"s3://b/p q/ " BASE_0, 0, 1, "b/p q/", BASE_0},
    {"S3://b\t\t" HEX_0 "\ns3://c " BASE_A, 0, 2, "b", BASE_0},
    {"", 0, 0, NULL, NULL},
    {"# " BASE_0, 0, 0, NULL, NULL},
    {"000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F", 0, 1, "", BASE_0},
    {"secret", STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=", STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh-=", STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"g00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", STOKER_ERROR_FORMAT, 0,
     NULL, NULL},
    {"gs://b/p " BASE_0, STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"s3:// " BASE_0, STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"s3:///k " BASE_0, STOKER_ERROR_FORMAT, 0, NULL, NULL},
    {"s3://b/ " BASE_0 "\ns3://b/k/ " BASE_A, 0, 2, "b", BASE_0},
    {"s3://b/ " BASE_0 "\ns3://b " BASE_A, STOKER_ERROR_FORMAT, 1, "b", BASE_0},
    {BASE_0 "\n" BASE_A, STOKER_ERROR_FORMAT, 1, "", BASE_0},
    {"s3://b " BASE_0 "\ns3://b " BASE_A, STOKER_ERROR_FORMAT, 1, "b", BASE_0},
};

static void test_texts(void)
{
    for (size_t i = 0; i < STK_COUNT(texts); i++) {
        struct stk_sse_keys ring = {.count = 0};
        struct stoker_error error = {0};
        struct stk_view view = {(const uint8_t *)texts[i].text, strlen(texts[i].text)};

        T_EQ(texts[i].text, stk_sse_keys_add(&ring, view, "from", &error), texts[i].status);
        T_EQ(texts[i].text, ring.count, texts[i].count);
        if (texts[i].first) {
            T_STR(texts[i].text, ring.keys[0].prefix, texts[i].first);
            T_STR(texts[i].text, ring.keys[0].key, texts[i].key);
        }
        if (texts[i].status < 0) {
            T_TRUE(texts[i].text,
                   strstr(error.where, "'from' line ") && error.what[0] && error.advice[0]);
            T_TRUE("no secret", !strstr(error.where, "secret") && !strstr(error.where, "AAEC"));
        }
    }
}

static void test_find(void)
{
    static const char text[] = "s3://b/a/ " BASE_A "\n" HEX_0 "\n"
                               "s3://b/a/b 0000000000000000000000000000000000000000000000000000000"
                               "000000000\ns3://bb " BASE_A "\ns3://arn:x:p/q/k " BASE_A "\n";
    static const struct {
        const char *bucket, *key, *prefix;
    } rows[] = {{"b", "a/x", "b/a/"},
                {"b", "a/b", "b/a/b"},
                {"b", "a/bc/d", "b/a/b"},
                {"b", "a", ""},
                {"b", "", ""},
                {"bb", "a/b", "bb"},
                {"c", "a/b", ""},
                {"bbb", "a", ""},
                {"arn:x:p/q", "k1", "arn:x:p/q/k"},
                {"arn:x:p/q", "j", ""},
                {"arn:x:p", "q/k", "arn:x:p/q/k"}};
    struct stk_sse_keys ring = {.count = 0};
    struct stk_view raw = {(const uint8_t *)text + 10, 44};

    T_TRUE("empty", !stk_sse_keys_find(&ring, "b", "a"));
    T_EQ("added",
         stk_sse_keys_add(&ring, (struct stk_view){(const uint8_t *)text, sizeof text - 1}, "from",
                          NULL),
         0);
    T_EQ("all", ring.count, 5);
    T_STR("its MD5", ring.keys[1].md5, MD5_0);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        const struct stk_sse_key *found = stk_sse_keys_find(&ring, rows[i].bucket, rows[i].key);

        T_TRUE(rows[i].key, found != NULL);
        T_STR(rows[i].key, found->prefix, rows[i].prefix);
    }
    memset(&ring, 0, sizeof ring);
    for (uint32_t i = 0; i <= STK_SSE_KEYS_MAX; i++) {
        char line[80];

        snprintf(line, sizeof line, "s3://b%u %.44s", i, (const char *)raw.data);
        T_EQ(
            "bound",
            stk_sse_keys_add(&ring, (struct stk_view){(uint8_t *)line, strlen(line)}, "from", NULL),
            i < STK_SSE_KEYS_MAX ? 0 : STOKER_ERROR_LIMIT);
    }
}

/* A prefix that just fits, and one that does not: its end would be written past the buffer. */
static void test_long_prefix(void)
{
    for (size_t more = 0; more < 2; more++) {
        struct stk_sse_keys ring = {.count = 0};
        size_t bytes = STK_SSE_KEYS_PREFIX_BYTES - 1 + more;
        char line[2 * STK_SSE_KEYS_PREFIX_BYTES];
        int used = snprintf(line, sizeof line, "s3://%0*d " BASE_0, (int)bytes, 7);

        T_EQ(
            "long",
            stk_sse_keys_add(&ring, (struct stk_view){(uint8_t *)line, (size_t)used}, "from", NULL),
            more ? STOKER_ERROR_LIMIT : 0);
        T_EQ("long", strlen(ring.keys[0].prefix), more ? 0 : bytes);
    }
}

static void test_bytes(void)
{
    static const char nul[] = "s3://b/\0/k " BASE_0, line[] = RAW_A "\n";
    struct stk_sse_keys ring = {.count = 0};

    T_EQ("a NUL in a prefix",
         stk_sse_keys_add(&ring, (struct stk_view){(const uint8_t *)nul, sizeof nul - 1}, "from",
                          NULL),
         STOKER_ERROR_FORMAT);
    T_EQ("33 bytes are no key",
         stk_sse_keys_add(&ring, (struct stk_view){(const uint8_t *)line, sizeof line - 1}, "from",
                          NULL),
         STOKER_ERROR_FORMAT);
    T_EQ("none", ring.count, 0);
}

/* A mistake in the file is an error, and no part of its keys is used. */
static void test_file(void)
{
    char path[] = "/tmp/stoker-keyring-XXXXXX";
    struct stoker_error error = {0};
    static struct stk_sse_keys ring;
    FILE *file = fdopen(mkstemp(path), "w");

    fputs(BASE_0 "\n", file);
    fflush(file);
    setenv("STOKER_SSE_C_KEY_FILE", path, 1);
    setenv("STOKER_SSE_C_KEY", "s3://b " BASE_A, 1);
    T_EQ("both", stk_sse_keys_open(&ring, &error), 0);
    T_EQ("both", ring.count, 2);
    for (uint32_t i = 0; i < STK_SSE_KEYS_FILE_BYTES_MAX / 2; i++) {
        fputs("#\n", file);
    }
    fclose(file);
    memset(&ring, 0, sizeof ring);
    T_EQ("too large", stk_sse_keys_open(&ring, &error), STOKER_ERROR_LIMIT);
    T_EQ("too large", ring.count, 0);
    T_EQ("away", unlink(path), 0);
    T_TRUE("none", stk_sse_keys_open(&ring, &error) < 0);
    T_ERROR("none", &error);
    T_EQ("none", ring.count, 0);
    unsetenv("STOKER_SSE_C_KEY_FILE");
    unsetenv("STOKER_SSE_C_KEY");
}

int main(void)
{
    test_long_prefix();
    test_bytes();
    test_file();
    test_texts();
    test_find();
    return t_finish();
}
