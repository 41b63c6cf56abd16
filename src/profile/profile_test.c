/* Goal: configuration files mean what botocore makes of them, or are refused; answers of services
 * give the fields that are asked for, or nothing; no error cites what may be a secret.
 * Method: rows for ini.c, tell.c and profile.c; allocations that fail. creds_test.c asks botocore.
 */
#include "profile/profile.h"

#include "base/mem.h"
#include "profile/tell.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANARY "canary0secret"

static struct stk_view view(const char *text)
{
    return (struct stk_view){(const uint8_t *)text, strlen(text)};
}

/* ---- files ---- */

static const struct {
    const char *name, *text;
    const char *value; /* of x in [a]; NULL: refused */
} files[] = {
    {"plain", "[a]\nx=1\n", "1"},
    {"blanks", "  [a]  \n\n x  =  1 2 \n", "1 2"},
    {"colon", "[a]\nx: 1=2\n", "1=2"},
    {"first delimiter", "[a]\nx=1:2\n", "1:2"},
    {"no end of line", "[a]\nx=", ""},
    {"Windows", "[a]\r\nx=1\r\n", "1"},
    {"case", "[a]\nX=1\n", "1"},
    {"comments", "#c\n[a]\n;d\n  # e\nx=1 # 2\n", "1 # 2"},
    {"goes on", "[a]\nx = 1\n  2\n\t3\n", "1\n2\n3"},
    {"nested", "[a]\nx =\n  y = 1\n  z = 2\n", "\ny = 1\nz = 2"},
    {"goes on behind nothing", "[a]\nx = 1\n\n  2\n", "1\n\n2"},
    {"ends", "[a]\nx = 1\n\n\n", "1"},
    {"not indented deeper", "[a]\n  x = 1\n  y = 2\n", "1"},
    {"indented behind a section", "[b]\nx=2\n[a]\n  x = 1\n", "1"},
    {"empty lines are of their option", "[a]\ny=1\n\nx=1\n  2\n", "1\n2"},
    {"brackets in a name", "[b]\nx=2\n[a] tail\nx=1\n", "1"},
    {"last section", "[a]\nx=1\n[b]\nx=2\n", "1"},
    {"section twice", "[a]\nx=1\n[a]\ny=2\n", NULL},
    {"name twice", "[a]\nx=1\nX=2\n", NULL},
    {"no section", "x=1\n[a]\n", NULL},
    {"no delimiter", "[a]\nx\n", NULL},
    {"no name", "[a]\n=1\n", NULL},
    {"open bracket", "[a]\nx=1\n[b\n", NULL},
    {"empty section", "[a]\nx=1\n[]\n", NULL},
};

static void test_files(void)
{
    for (size_t i = 0; i < STK_COUNT(files); i++) {
        struct stk_ini ini;
        struct stoker_error error = {0};
        int status = stk_ini_parse(&ini, view(files[i].text), &error);
        T_EQ(files[i].name, status == 0, files[i].value != NULL);
        if (status == 0) {
            const char *value = stk_ini_get(&ini, "a", "x");
            T_STR(files[i].name, value ? value : "(none)", files[i].value);
            T_TRUE(files[i].name, stk_ini_has(&ini, "a") && !stk_ini_has(&ini, "c"));
        } else {
            T_ERROR(files[i].name, &error);
        }
        stk_ini_deinit(&ini);
        for (uint64_t n = 1; n < 8; n++) { /* an allocation that fails leaves nothing behind */
            stk_mem_fail_nth(n);
            stk_ini_parse(&ini, view(files[i].text), NULL);
            stk_mem_fail_nth(0);
            stk_ini_deinit(&ini);
            T_EQ(files[i].name, stk_mem_alive(), 0);
        }
    }
    static const uint8_t zero[] = "[a]\nx=1\0y=2\n";
    struct stk_ini ini;
    T_TRUE("zero byte", stk_ini_parse(&ini, (struct stk_view){zero, sizeof zero - 1}, NULL) < 0);
    struct stoker_error error = {0};
    stk_ini_parse(&ini, view("[a]\n" CANARY "\n"), &error);
    T_TRUE("nothing is cited", !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
}

/* As long as a file may be, and a byte more. */
static void test_limits(void)
{
    static char text[STK_INI_BYTES_MAX + 2];
    struct stk_ini ini;

    memset(text, '\n', sizeof text - 1);
    T_EQ("longest",
         stk_ini_parse(&ini, (struct stk_view){(uint8_t *)text, STK_INI_BYTES_MAX}, NULL), 0);
    stk_ini_deinit(&ini);
    T_EQ("too long",
         stk_ini_parse(&ini, (struct stk_view){(uint8_t *)text, STK_INI_BYTES_MAX + 1}, NULL),
         STOKER_ERROR_LIMIT);
}

static void test_nested(void)
{
    char out[8];

    T_TRUE("first", stk_ini_nested("\na = 1\nb=2 3", "a", out, sizeof out));
    T_STR("first", out, "1");
    T_TRUE("last", stk_ini_nested("\na = 1\nb=2 3", "b", out, sizeof out));
    T_STR("last", out, "2 3");
    T_TRUE("none", !stk_ini_nested("\na = 1\nb=2 3", "c", out, sizeof out));
    T_TRUE("all of a name", stk_ini_nested("\n=3\na = 1\nab=2", "ab", out, sizeof out));
    T_STR("all of a name", out, "2");
    T_TRUE("not nested", !stk_ini_nested("a = 1", "a", out, sizeof out));
    T_TRUE("too long", !stk_ini_nested("\na = 12345678", "a", out, sizeof out));
}

static void put(const char *folder, const char *name, const char *text, const char *variable)
{
    char path[256];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    T_TRUE(name, file && fputs(text, file) >= 0 && fclose(file) == 0);
    setenv(variable, path, 1);
}

static void test_profiles(void)
{
    char folder[64] = "/tmp/stoker-profile-XXXXXX", out[128], path[256];
    struct stk_profiles profiles;
    struct stoker_error error = {0};

    clearenv();
    setenv("HOME", "/nowhere", 1);
    T_TRUE("folder", mkdtemp(folder) != NULL);
    T_EQ("no files", stk_profiles_open(&profiles, NULL, &error), 0);
    T_STR("no files", profiles.name, "default");
    T_STR("home", profiles.config_path, "/nowhere/.aws/config");
    stk_profiles_close(&profiles);
    put(folder, "config",
        "[default]\nregion = r1\nservices = s\n[profile  'a b']\nregion = r2\nx = config\n"
        "endpoint_url = http://all\n[services s]\nsts =\n  endpoint_url = http://sts\n",
        "AWS_CONFIG_FILE");
    put(folder, "credentials", "[a b]\nx = credentials\n", "AWS_SHARED_CREDENTIALS_FILE");
    setenv("AWS_PROFILE", "a b", 1);
    T_EQ("variable", stk_profiles_open(&profiles, NULL, &error), 0);
    T_STR("variable", profiles.name, "a b");
    T_STR("credentials first", stk_profiles_get(&profiles, "a b", "x"), "credentials");
    T_STR("config alone", stk_profiles_get_config(&profiles, "a b", "x"), "config");
    T_STR("region", stk_profiles_region(&profiles), "r2");
    T_TRUE("endpoint", stk_profiles_endpoint(&profiles, "sts", out, sizeof out));
    T_STR("endpoint", out, "http://all");
    setenv("AWS_ENDPOINT_URL_STS", "http://variable", 1);
    T_TRUE("endpoint", stk_profiles_endpoint(&profiles, "sts", out, sizeof out));
    T_STR("endpoint", out, "http://variable");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    T_TRUE("ignored", !stk_profiles_endpoint(&profiles, "sts", out, sizeof out));
    unsetenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    unsetenv("AWS_ENDPOINT_URL_STS");
    stk_profiles_close(&profiles);
    T_EQ("by name", stk_profiles_open(&profiles, "default", &error), 0);
    T_TRUE("services", stk_profiles_endpoint(&profiles, "sts", out, sizeof out));
    T_STR("services", out, "http://sts");
    T_TRUE("other service", !stk_profiles_endpoint(&profiles, "s3", out, sizeof out));
    stk_profiles_close(&profiles);
    T_EQ("none", stk_profiles_open(&profiles, "b", &error), STOKER_ERROR_MISSING);
    T_ERROR("none", &error);
    put(folder, "config", "[default\n" CANARY, "AWS_CONFIG_FILE");
    T_EQ("bad", stk_profiles_open(&profiles, "a b", &error), STOKER_ERROR_FORMAT);
    T_HAS("bad", error.where, "/config'");
    T_TRUE("bad", !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "config" : "credentials");
        unlink(path);
    }
    rmdir(folder);
}

/* Which section is a profile's, and which variable goes first. */
static void test_choice(void)
{
    static const struct {
        const char *profile, *region; /* NULL: there is no such profile */
    } rows[] = {{"a", "r-a"}, {"ab", "r-ab"}, {"a b", "r-last"},       {"b", NULL},
                {"c", NULL},  {"e", NULL},    {"default", "r-default"}};
    char folder[64] = "/tmp/stoker-profile-XXXXXX", out[8], path[256];
    struct stk_profiles profiles;

    clearenv();
    T_TRUE("folder", mkdtemp(folder) != NULL);
    put(folder, "config",
        "[default]\nregion=r-default\n[profile 'ab']\nregion=r-ab\n[profile a]\nregion=r-a\n"
        "[profile 'a b']\nregion=r-first\n[profile \"a b\"]\nregion=r-last\n[profile bc]\nx=1\n"
        "[profilec]\nx=1\n[profile 'bd']\nx=1\n[profile 'e\"]\nx=1\n"
        "[profile empty]\nregion =\n",
        "AWS_CONFIG_FILE");
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/x", 1);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        int status = stk_profiles_open(&profiles, rows[i].profile, NULL);

        T_EQ(rows[i].profile, status, rows[i].region ? 0 : STOKER_ERROR_MISSING);
        T_STR(rows[i].profile, status < 0 ? "" : stk_profiles_region(&profiles),
              rows[i].region ? rows[i].region : "");
        stk_profiles_close(&profiles);
    }
    T_EQ("empty", stk_profiles_open(&profiles, "empty", NULL), 0);
    T_TRUE("empty", !stk_profiles_region(&profiles));
    T_STR("empty", stk_profiles_region_where(&profiles, out, sizeof out), "");
    stk_profiles_close(&profiles);
    setenv("AWS_PROFILE", "ab", 1);
    setenv("AWS_DEFAULT_PROFILE", "a", 1); /* as botocore */
    T_EQ("both", stk_profiles_open(&profiles, NULL, NULL), 0);
    T_STR("both", profiles.name, "a");
    setenv("AWS_DEFAULT_REGION", "r2", 1);
    setenv("AWS_REGION", "", 1);
    T_STR("empty is none", stk_profiles_region(&profiles), "r2");
    setenv("AWS_REGION", "r1", 1);
    T_STR("AWS_REGION first", stk_profiles_region(&profiles), "r1");
    setenv("AWS_ENDPOINT_URL_A_B", "http://h", 1);
    T_TRUE("no room", !stk_profiles_endpoint(&profiles, "a-b", out, sizeof out));
    setenv("AWS_ENDPOINT_URL_A_B", "http://", 1);
    T_TRUE("room", stk_profiles_endpoint(&profiles, "a-b", out, sizeof out));
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "1", 1);
    T_TRUE("ignored", !stk_profiles_endpoint(&profiles, "a-b", out, sizeof out));
    stk_profiles_close(&profiles);
    snprintf(path, sizeof path, "%s/config", folder);
    unlink(path);
    rmdir(folder);
}

static void test_paths(void)
{
    char out[16];

    setenv("HOME", "/h", 1);
    T_TRUE("home", stk_path_expand("~/x", out, sizeof out));
    T_STR("home", out, "/h/x");
    T_TRUE("home alone", stk_path_expand("~", out, sizeof out));
    T_STR("home alone", out, "/h");
    T_TRUE("another's home stays", stk_path_expand("~u/x", out, sizeof out));
    T_STR("another's home stays", out, "~u/x");
    T_TRUE("fits", stk_path_expand("~/234567890123", out, sizeof out));
    T_TRUE("too long", !stk_path_expand("~/2345678901234", out, sizeof out));
    unsetenv("HOME");
    T_TRUE("no home", !stk_path_expand("~/x", out, sizeof out));
}

/* ---- answers ---- */

static const struct {
    const char *name, *text;
    bool good;
} answers[] = {
    {"all", "{\"one\":1,\"key\":\"k\",\"in\":{\"side\":\"s\"},\"end\":\"1970-01-01T00:00:09Z\"}",
     true},
    {"without options", "{\"one\":1,\"key\":\"k\"}", true},
    {"null", "{\"one\":1,\"key\":\"k\",\"in\":{\"side\":null},\"end\":null}", true},
    {"others too", "{\"one\":1,\"key\":\"k\",\"other\":[1,{}]}", true},
    {"no key", "{\"one\":1}", false},
    {"empty key", "{\"one\":1,\"key\":\"\"}", false},
    {"a number", "{\"one\":1,\"key\":5}", false},
    {"too long", "{\"one\":1,\"key\":\"" CANARY "12345678\"}", false},
    {"two lines", "{\"one\":1,\"key\":\"a\\r\\nX: b\"}", false},
    {"zero byte", "{\"one\":1,\"key\":\"a\\u0000b\"}", false},
    {"key twice", "{\"one\":1,\"key\":\"k\",\"key\":\"l\"}", false},
    {"version 2", "{\"one\":2,\"key\":\"k\"}", false},
    {"version text", "{\"one\":\"1\",\"key\":\"k\"}", false},
    {"no time", "{\"one\":1,\"key\":\"k\",\"end\":\"soon\"}", false},
    {"a list", "[\"" CANARY "\"]", false},
    {"a tail", "{\"one\":1,\"key\":\"k\"}" CANARY, false},
    {"nothing", "", false},
};

static void test_answers(void)
{
    for (size_t i = 0; i < STK_COUNT(answers); i++) {
        char key[16] = "", side[16] = "";
        uint64_t one = 0, end = 7;
        const struct stk_tell_field fields[] = {
            {"one", STK_TELL_ONE, &one, 0},
            {"key", STK_TELL_TEXT, key, sizeof key},
            {"in.side", STK_TELL_OPTION, side, sizeof side},
            {"end", STK_TELL_TIME, &end, 0},
        };
        struct stoker_error error = {0};
        int status = stk_tell_json(view(answers[i].text), fields, STK_COUNT(fields), "it", &error);
        T_EQ(answers[i].name, status == 0, answers[i].good);
        T_TRUE(answers[i].name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
        if (status == 0) {
            T_STR(answers[i].name, key, "k");
            T_STR(answers[i].name, side, i == 0 ? "s" : "");
            T_EQ(answers[i].name, end, i == 0 ? 9 : 7);
        } else {
            T_ERROR(answers[i].name, &error);
        }
    }
}

static const struct {
    const char *text;
    int64_t seconds; /* -1: refused */
} times[] = {
    {"1970-01-01T00:00:00Z", 0},
    {"2000-02-29T12:34:56Z", 951827696},
    {"2026-11-21T22:15:03Z", 1795299303},
    {"2026-11-21T22:15:03.123456Z", 1795299303},
    {"2026-11-21T23:15:03+01:00", 1795299303},
    {"2026-11-21T16:45:03-05:30", 1795299303},
    {"2026-11-21T22:15:03UTC", 1795299303},
    {"9999-12-31T23:59:59Z", 253402300799},
    {"2026-11-21T22:15:03", -1},
    {"2026-13-21T22:15:03Z", -1},
    {"2026-11-21T24:15:03Z", -1},
    {"2026-11-21", -1},
    {"2026-11-21T22:15:03Z ", -1},
    {"", -1},
};

static const struct {
    const char *text;
    int64_t seconds; /* -1: refused */
} dates[] = {
    {"Thu, 01 Jan 1970 00:00:00 GMT", 0},
    {"Sat, 21 Nov 2026 22:15:03 GMT", 1795299303},
    {"Fri, 31 Dec 9999 23:59:59 GMT", 253402300799},
    {"Sat, 21 Now 2026 22:15:03 GMT", -1},
    {"Sat, 00 Nov 2026 22:15:03 GMT", -1},
    {"Sat, 21 Nov 2026 22:15:03 UTC", -1},
    {"Sat, 21 Nov 2026 22:15:03 GMT ", -1},
    {"Saturday, 21-Nov-26 22:15:03 GMT", -1},
    {"2026-11-21T22:15:03Z", -1},
    {"", -1},
};

static void test_dates(void)
{
    for (size_t i = 0; i < STK_COUNT(dates); i++) {
        uint64_t seconds = 0;
        bool good = stk_tell_date(view(dates[i].text), &seconds);
        T_EQ(dates[i].text, good ? (int64_t)seconds : -1, dates[i].seconds);
    }
}

static void test_times(void)
{
    for (size_t i = 0; i < STK_COUNT(times); i++) {
        uint64_t seconds = 0;
        bool good = stk_tell_time(times[i].text, &seconds);
        T_EQ(times[i].text, good ? (int64_t)seconds : -1, times[i].seconds);
    }
}

static const struct {
    const char *name, *text, *value; /* of <Key>; NULL: none */
} elements[] = {
    {"inside", "<A><B>x</B><Key>v</Key></A>", "v"},
    {"first", "<Key>v</Key><Key>w</Key>", "v"},
    {"entities", "<Key>a&amp;b&lt;&#43;</Key>", "a&b<+"},
    {"longer name", "<KeyId>w</KeyId><Key>v</Key>", "v"},
    {"unknown entity", "<Key>a&bomb;</Key>", NULL},
    {"document type", "<!DOCTYPE a [<!ENTITY b \"x\">]><Key>v</Key>", NULL},
    {"elements in it", "<Key><a/></Key>", NULL},
    {"no end", "<Key>v", NULL},
    {"other end", "<Key>v</Kex>", NULL},
    {"empty", "<Key></Key>", NULL},
    {"too long", "<Key>0123456789abcdef</Key>", NULL},
    {"two lines", "<Key>a\nb</Key>", NULL},
    {"nothing", "", NULL},
};

static void test_elements(void)
{
    for (size_t i = 0; i < STK_COUNT(elements); i++) {
        char out[16] = "";
        bool found = stk_tell_xml(view(elements[i].text), "Key", out, sizeof out);
        T_EQ(elements[i].name, found, elements[i].value != NULL);
        if (found && elements[i].value) {
            T_STR(elements[i].name, out, elements[i].value);
        }
    }
}

static const struct {
    const char *text, *code;
} codes[] = {
    {"<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>", "AccessDenied"},
    {"{\"error\":\"invalid_grant\",\"error_description\":\"" CANARY "\"}", "invalid_grant"},
    {"{\"error\":{\"code\":\"AuthFailed\"}}", "AuthFailed"},
    {"{\"code\":\"bad " CANARY "\"}", "bad"},
    {CANARY, ""},
    {"", ""},
};

static void test_codes(void)
{
    for (size_t i = 0; i < STK_COUNT(codes); i++) {
        char code[STK_TELL_CODE_BYTES];
        stk_tell_code(view(codes[i].text), code);
        T_STR(codes[i].text, code, codes[i].code);
    }
}

int main(void)
{
    test_files();
    test_limits();
    test_nested();
    test_profiles();
    test_choice();
    test_paths();
    test_answers();
    test_times();
    test_dates();
    test_elements();
    test_codes();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
