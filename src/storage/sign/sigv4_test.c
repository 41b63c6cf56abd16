/* Goal: signatures equal those of Amazon's own signer for any bytes in keys, queries and headers.
 * Method: the examples of the S3 documentation, and botocore over random requests (the seed is
 * printed); bounds by rows. Covers sigv4_canonical.c, url_encode.c.
 * src/storage/credentials/credentials_test.c tests jwt.c against libcrypto and google-auth. */
#include "storage/sign/sigv4.h"

#include "base/mem.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ACCESS "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define LINE_BYTES 65536u
#define FIELDS 14

/* https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
static const struct example {
    const char *name, *method, *path, *payload;
    struct stk_sigv4_pair query[2], headers[2];
    uint32_t query_count, header_count;
    const char *signature;
} examples[] = {
    {"get an object",
     "GET",
     "/test.txt",
     STK_SIGV4_EMPTY_HASH,
     {{NULL, NULL}},
     {{"Range", "bytes=0-9"}},
     0,
     1,
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"put an object",
     "PUT",
     "/test$file.text",
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
     {{NULL, NULL}},
     {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
     0,
     2,
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"lifecycle",
     "GET",
     "/",
     STK_SIGV4_EMPTY_HASH,
     {{"lifecycle", NULL}},
     {{NULL, NULL}},
     1,
     0,
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"list",
     "GET",
     "/",
     STK_SIGV4_EMPTY_HASH,
     {{"prefix", "J"}, {"max-keys", "2"}},
     {{NULL, NULL}},
     2,
     0,
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

static void test_examples(void)
{
    struct stk_sigv4_key_cache cache = {0};

    T_EACH(example, row, examples)
    {
        struct stk_sigv4_request request = {.method = row->method,
                                            .host = "examplebucket.s3.amazonaws.com",
                                            .path = row->path,
                                            .query = row->query,
                                            .query_count = row->query_count,
                                            .headers = row->headers,
                                            .header_count = row->header_count,
                                            .payload = row->payload,
                                            .region = "us-east-1",
                                            .service = "s3",
                                            .access_key = ACCESS,
                                            .secret = SECRET,
                                            .time_s = 1369353600,
                                            .cache = &cache,
                                            .generation = 1};
        struct stk_sigv4_headers got;

        for (int i = 0; i < 2; i++) { /* the second time out of the cache */
            T_EQ(row->name, stk_sigv4_sign_headers(&request, &got), 0);
            T_HAS(row->name, got.authorization, row->signature);
            T_STR(row->name, got.date, "20130524T000000Z");
        }
    }
}

static void test_presigned(void)
{
    struct stk_sigv4_request request = {.method = "GET",
                                        .host = "examplebucket.s3.amazonaws.com",
                                        .path = "/test.txt",
                                        .payload = STK_SIGV4_UNSIGNED_PAYLOAD,
                                        .region = "us-east-1",
                                        .service = "s3",
                                        .access_key = ACCESS,
                                        .secret = SECRET,
                                        .time_s = 1369353600};
    char text[2048];

    T_EQ("presigned", stk_sigv4_presign(&request, 86400, text, sizeof text), 0);
    T_STR("presigned", text,
          "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130"
          "524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Am"
          "z-SignedHeaders=host&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d1"
          "57751f604d404");
    T_EQ("for no time", stk_sigv4_presign(&request, 0, text, sizeof text), STOKER_ERROR_ARGUMENT);
    T_EQ("for too long", stk_sigv4_presign(&request, 604801, text, sizeof text),
         STOKER_ERROR_ARGUMENT);
    T_EQ("no room", stk_sigv4_presign(&request, 1, text, 250), STOKER_ERROR_LIMIT);
}

/* A key that was cached for another secret, day or region is not used. */
static void test_cache(void)
{
    static const struct {
        const char *name, *secret, *region;
        uint64_t time_s, generation;
    } rows[] = {
        {"first", "a", "r", 1000000000, 1},           {"another secret", "b", "r", 1000000000, 2},
        {"another region", "b", "q", 1000000000, 2},  {"another day", "b", "q", 1000086400, 2},
        {"the first again", "a", "r", 1000000000, 1},
    };
    struct stk_sigv4_key_cache cache = {0};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_sigv4_request request = {.method = "GET",
                                            .host = "h",
                                            .path = "/",
                                            .payload = STK_SIGV4_EMPTY_HASH,
                                            .region = rows[i].region,
                                            .service = "s3",
                                            .access_key = "k",
                                            .secret = rows[i].secret,
                                            .time_s = rows[i].time_s,
                                            .generation = rows[i].generation,
                                            .cache = &cache};
        struct stk_sigv4_headers cached, plain;

        T_EQ(rows[i].name, stk_sigv4_sign_headers(&request, &cached), 0);
        request.cache = NULL;
        T_EQ(rows[i].name, stk_sigv4_sign_headers(&request, &plain), 0);
        T_STR(rows[i].name, cached.authorization, plain.authorization);
    }
}

static void test_bounds(void)
{
    struct stk_sigv4_pair many[STK_SIGV4_HEADERS_MAX + 1],
        twice[] = {{"Range", "a"}, {"range", "b"}};
    static char huge[STK_SIGV4_TEXT_BYTES_MAX + 1], name[STK_SIGV4_NAME_BYTES_MAX + 2];
    struct stk_sigv4_request request = {.method = "GET",
                                        .host = "h",
                                        .path = "/",
                                        .payload = STK_SIGV4_EMPTY_HASH,
                                        .region = "r",
                                        .service = "s3",
                                        .access_key = "k",
                                        .secret = "s"};
    struct stk_sigv4_headers got;
    char text[8];

    memset(huge, 'x', sizeof huge - 1);
    memset(name, 'x', sizeof name - 1);
    for (size_t i = 0; i < STK_COUNT(many); i++) {
        many[i] = (struct stk_sigv4_pair){"x", NULL};
    }
    request.headers = twice;
    request.header_count = 2;
    T_EQ("two of one name", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_ARGUMENT);
    request.headers = many;
    request.header_count = STK_COUNT(many);
    T_EQ("too many headers", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_LIMIT);
    request.header_count = 1;
    many[0].name = name;
    T_EQ("a long name", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_LIMIT);
    request.header_count = 0;
    request.query = many;
    request.query_count = STK_COUNT(many);
    T_EQ("too many parameters", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_LIMIT);
    request.query_count = 0;
    request.access_key = huge;
    T_EQ("a huge key", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_LIMIT);
    request.access_key = "k";
    request.secret = huge;
    T_EQ("a huge secret", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_LIMIT);
    request.secret = "s";
    request.region = huge;
    T_EQ("a huge region", stk_sigv4_sign_headers(&request, &got), STOKER_ERROR_LIMIT);
    T_EQ("a target", stk_url_encode_target("/a b", NULL, 0, text, sizeof text), 0);
    T_STR("a target", text, "/a%20b");
    T_EQ("no room", stk_url_encode_target("/a bc", NULL, 0, text, 7), STOKER_ERROR_LIMIT);
}

/* Parameters of one name are sorted by value, whatever their order in the input; a token has the
 * requested name; text that does not fit is not written. */
static void test_more(void)
{
    const struct stk_sigv4_pair ways[2][2] = {{{"a", "1"}, {"a", "\xff"}},
                                              {{"a", "\xff"}, {"a", "1"}}};
    struct stk_sigv4_request request = {.method = "GET",
                                        .host = "h",
                                        .path = "/",
                                        .payload = STK_SIGV4_EMPTY_HASH,
                                        .region = "r",
                                        .service = "s3express",
                                        .access_key = "k",
                                        .secret = "s",
                                        .token = "t",
                                        .token_name = "x-amz-s3session-token",
                                        .query_count = 2};
    struct stk_sigv4_headers got[2];
    char text[16];

    for (int i = 0; i < 2; i++) {
        request.query = ways[i];
        T_EQ("two of one name", stk_sigv4_sign_headers(&request, &got[i]), 0);
    }
    T_STR("two of one name", got[0].authorization, got[1].authorization);
    T_HAS("the token's name", got[0].authorization, ";x-amz-s3session-token, ");
    for (size_t room = 1; room <= 9; room++) {
        memset(text, '!', sizeof text);
        T_EQ("room", stk_url_encode_target("/ /\xff", NULL, 0, text, room),
             room < 9 ? STOKER_ERROR_LIMIT : 0);
        T_EQ("behind it", text[room], '!');
    }
    T_STR("room", text, "/%20/%FF");
}

/* Dates against the C library's calendar. */
static void test_dates(void)
{
    for (uint64_t day = 0; day < 80000; day += 7) {
        time_t time = (time_t)(day * 86400 + day % 86400);
        char want[32], got[STK_SIGV4_DATE_BYTES];
        struct tm parts;

        gmtime_r(&time, &parts);
        strftime(want, sizeof want, "%Y%m%dT%H%M%SZ", &parts);
        stk_sigv4_date((uint64_t)time, got);
        if (!T_STR("a date", got, want)) {
            break;
        }
    }
}

/* Undoes hex in place; "-" is empty. */
static char *unhex(char *text)
{
    size_t used = 0;
    unsigned byte;

    if (strcmp(text, "-") == 0) {
        text[0] = '\0';
        return text;
    }
    for (const char *at = text; sscanf(at, "%2x", &byte) == 1 && at[1]; at += 2) {
        text[used++] = (char)byte;
    }
    text[used] = '\0';
    return text;
}

static uint32_t unfold(char *text, struct stk_sigv4_pair *pairs)
{
    uint32_t count = 0;
    char *value, *name, *rest = text;

    if (strcmp(text, "-") == 0) {
        return 0;
    }
    while ((name = strsep(&rest, ","))) {
        value = strchr(name, '=');
        *value++ = '\0';
        pairs[count++] = (struct stk_sigv4_pair){unhex(name), unhex(value)};
    }
    return count;
}

static bool check_line(char *line)
{
    struct stk_sigv4_pair query[STK_SIGV4_QUERY_MAX], headers[STK_SIGV4_HEADERS_MAX];
    struct stk_sigv4_request request = {.query = query, .headers = headers};
    char *fields[FIELDS], *rest = line, text[8192];
    struct stk_sigv4_headers got;

    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < FIELDS; i++) {
        fields[i] = strsep(&rest, " ");
        if (!T_TRUE("a field", fields[i] != NULL)) {
            return false;
        }
    }
    request.query_count = unfold(fields[4], query);
    request.header_count = unfold(fields[5], headers);
    for (int i = 0; i < FIELDS; i++) {
        fields[i] = i == 4 || i == 5 ? fields[i] : unhex(fields[i]);
    }
    request.method = fields[1];
    request.host = fields[2];
    request.path = fields[3];
    request.payload = fields[6];
    request.region = fields[7];
    request.service = fields[8];
    request.access_key = fields[9];
    request.secret = fields[10];
    request.token = fields[11];
    request.time_s = strtoull(fields[12], NULL, 10);
    if (strcmp(fields[0], "presign") == 0) {
        return T_EQ("presigned", stk_sigv4_presign(&request, 3600, text, sizeof text), 0) &&
               T_STR("botocore presigns", strstr(text, "&X-Amz-Signature=") + 17, fields[13]);
    }
    return T_EQ("signed", stk_sigv4_sign_headers(&request, &got), 0) &&
           T_STR("botocore signs", got.authorization, fields[13]);
}

static void test_decode(void)
{
    static const struct {
        const char *encoded, *raw;
    } rows[] = {
        {"a%2Fb%2fc", "a/b/c"}, {"a+b%2B", "a b+"}, {"%C3%BC", "\xc3\xbc"}, {"100%", "100%"},
        {"%4", "%4"},           {"%zz%41", "%zzA"}, {"a%00b", "a"},         {"", ""},
    };
    char raw[256], text[800];
    size_t used = 0;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(text, sizeof text, "%s", rows[i].encoded);
        T_EQ(rows[i].encoded, stk_url_decode(text), strstr(rows[i].encoded, "%00") == NULL);
        T_STR(rows[i].encoded, text, rows[i].raw);
    }
    for (int i = 0; i < 255; i++) {
        raw[i] = (char)(i + 1);
    }
    raw[255] = '\0';
    text[0] = '\0';
    T_EQ("fits", stk_url_encode(raw, false, text, sizeof text, &used), true);
    stk_url_decode(text);
    T_STR("what was encoded", text, raw);
}

/* Returns false if Python is not installed. If STOKER_PYTHON names a Python, as in ./check, it must
 * be. */
static bool test_oracle(void)
{
    const char *python = getenv("STOKER_PYTHON"), *is_long = getenv("STOKER_TEST_LONG");
    unsigned seed = (unsigned)getpid(), count = is_long && is_long[0] ? 20000 : 3000, lines = 0;
    char command[512], *line = malloc(LINE_BYTES);
    bool good = true;
    FILE *pipe;
    int ended;

    printf("seed %u\n", seed);
    snprintf(command, sizeof command, "%s src/storage/sign/sign_oracle.py %u %u",
             python ? python : "python3", seed, count);
    pipe = popen(command, "r");
    while (pipe && good && fgets(line, LINE_BYTES, pipe)) {
        good = check_line(line);
        lines++;
    }
    ended = pipe ? pclose(pipe) : -1;
    free(line);
    if (lines == 0 && WIFEXITED(ended) && (WEXITSTATUS(ended) == 77 || WEXITSTATUS(ended) == 127)) {
        T_TRUE("STOKER_PYTHON has botocore", !python);
        return false;
    }
    T_TRUE("all of it", !good || lines == count);
    return true;
}

int main(void)
{
    bool verified;

    test_examples();
    test_presigned();
    test_cache();
    test_bounds();
    test_more();
    test_dates();
    test_decode();
    verified = test_oracle();
    T_EQ("no memory is taken", stk_mem_calls(), 0);
    if (t_finish() != 0) {
        return 1;
    }
    if (!verified) {
        t_skip("no botocore to compare with: scripts/setup --test installs it");
    }
    return 0;
}
