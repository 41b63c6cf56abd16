/* Goal: configuration files have the same meaning as in botocore, or are refused; responses of
 * services give the requested fields, or nothing; no error cites what may be a secret.
 * Method: rows for ini.c, auth_response.c, aws_profile.c, sso_cache.c and s3_settings.c; failing
 * allocations. credentials_test.c and src/storage/object/settings_test.c compare with botocore. */
#include "storage/config/aws_profile.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "storage/config/auth_response.h"
#include "storage/config/s3_settings.h"
#include "storage/config/sso_cache.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CANARY "canary0secret"

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
        int status = stk_ini_parse(&ini, stk_view_of_text(files[i].text), &error);
        T_EQ(files[i].name, status == 0, files[i].value != NULL);
        if (status == 0) {
            const char *value = stk_ini_get(&ini, "a", "x");
            T_STR(files[i].name, value ? value : "(none)", files[i].value);
            T_TRUE(files[i].name, stk_ini_has(&ini, "a") && !stk_ini_has(&ini, "c"));
        } else {
            T_ERROR(files[i].name, &error);
        }
        stk_ini_deinit(&ini);
        for (uint64_t n = 1; n < 8; n++) { /* an allocation that fails leaves nothing */
            stk_mem_fail_nth(n);
            stk_ini_parse(&ini, stk_view_of_text(files[i].text), NULL);
            stk_mem_fail_nth(0);
            stk_ini_deinit(&ini);
            T_EQ(files[i].name, stk_mem_alive(), 0);
        }
    }
    static const uint8_t zero[] = "[a]\nx=1\0y=2\n";
    struct stk_ini ini;
    T_TRUE("zero byte", stk_ini_parse(&ini, (struct stk_view){zero, sizeof zero - 1}, NULL) < 0);
    struct stoker_error error = {0};
    stk_ini_parse(&ini, stk_view_of_text("[a]\n" CANARY "\n"), &error);
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

/* With the largest number of names each is found, and soon; one more is an error. */
static void test_many(void)
{
    static char text[STK_INI_BYTES_MAX];
    size_t used = 0;
    char name[16];
    struct stk_ini ini;

    for (uint32_t i = 0; i < STK_INI_ENTRIES_MAX / 2; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "[s%u]\nx=%u\n", i, i);
    }
    T_EQ("many", stk_ini_parse(&ini, (struct stk_view){(uint8_t *)text, used}, NULL), 0);
    for (uint32_t i = 0; i < STK_INI_ENTRIES_MAX / 2; i += 7) {
        snprintf(name, sizeof name, "s%u", i);
        if (!T_STR(name, stk_ini_get(&ini, name, "x"), name + 1)) {
            break;
        }
    }
    T_TRUE("none", !stk_ini_get(&ini, "s1", "y") && !stk_ini_has(&ini, "t1"));
    stk_ini_deinit(&ini);
    used += (size_t)snprintf(text + used, sizeof text - used, "[more]\n");
    T_EQ("too many", stk_ini_parse(&ini, (struct stk_view){(uint8_t *)text, used}, NULL),
         STOKER_ERROR_FORMAT);
}

static void test_nested(void)
{
    char out[8];

    T_EQ("first", stk_ini_get_nested("\na = 1\nb=2 3", "a", out, sizeof out), 1);
    T_STR("first", out, "1");
    T_EQ("last", stk_ini_get_nested("\na = 1\nb=2 3", "b", out, sizeof out), 1);
    T_STR("last", out, "2 3");
    T_EQ("twice", stk_ini_get_nested("\na = 1\na = 2", "a", out, sizeof out), 1);
    T_STR("twice", out, "2"); /* as botocore, whose dict it is */
    T_EQ("none", stk_ini_get_nested("\na = 1\nb=2 3", "c", out, sizeof out), 0);
    T_EQ("all of a name", stk_ini_get_nested("\n=3\na = 1\nab=2", "ab", out, sizeof out), 1);
    T_STR("all of a name", out, "2");
    T_EQ("not nested", stk_ini_get_nested("a = 1", "a", out, sizeof out), 0);
    T_EQ("too long", stk_ini_get_nested("\na = 12345678", "a", out, sizeof out),
         STOKER_ERROR_LIMIT);
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
    char folder[64] = "/tmp/stoker-profile-XXXXXX", path[256];
    struct stk_aws_profile profiles;
    struct stk_service_endpoint endpoint;
    struct stoker_error error = {0};

    clearenv();
    setenv("HOME", "/nowhere", 1);
    T_TRUE("folder", mkdtemp(folder) != NULL);
    T_EQ("no files", stk_aws_profile_open(&profiles, NULL, &error), 0);
    T_STR("no files", profiles.name, "default");
    T_STR("home", profiles.config_path, "/nowhere/.aws/config");
    stk_aws_profile_close(&profiles);
    put(folder, "config",
        "[default]\nregion = r1\nservices = s\n[profile  'a b']\nregion = r2\nx = config\n"
        "endpoint_url = http://all\n[services s]\nsts =\n  endpoint_url = http://sts\n",
        "AWS_CONFIG_FILE");
    put(folder, "credentials", "[a b]\nx = credentials\n", "AWS_SHARED_CREDENTIALS_FILE");
    setenv("AWS_PROFILE", "a b", 1);
    T_EQ("variable", stk_aws_profile_open(&profiles, NULL, &error), 0);
    T_STR("variable", profiles.name, "a b");
    T_STR("credentials first", stk_aws_profile_get(&profiles, "a b", "x"), "credentials");
    T_STR("config alone", stk_aws_profile_get_config(&profiles, "a b", "x"), "config");
    T_STR("region", stk_aws_profile_region(&profiles), "r2");
    T_EQ("endpoint", stk_s3_settings_endpoint(&profiles, "sts", &endpoint, NULL), 1);
    T_STR("endpoint", endpoint.url, "http://all");
    setenv("AWS_ENDPOINT_URL_STS", "http://variable", 1);
    T_EQ("endpoint", stk_s3_settings_endpoint(&profiles, "sts", &endpoint, NULL), 1);
    T_STR("endpoint", endpoint.url, "http://variable");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    T_EQ("ignored", stk_s3_settings_endpoint(&profiles, "sts", &endpoint, NULL), 0);
    unsetenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    unsetenv("AWS_ENDPOINT_URL_STS");
    stk_aws_profile_close(&profiles);
    T_EQ("by name", stk_aws_profile_open(&profiles, "default", &error), 0);
    T_EQ("services", stk_s3_settings_endpoint(&profiles, "sts", &endpoint, NULL), 1);
    T_STR("services", endpoint.url, "http://sts");
    T_EQ("other service", stk_s3_settings_endpoint(&profiles, "s3", &endpoint, NULL), 0);
    stk_aws_profile_close(&profiles);
    T_EQ("none", stk_aws_profile_open(&profiles, "b", &error), STOKER_ERROR_MISSING);
    T_ERROR("none", &error);
    put(folder, "config", "[default\n" CANARY, "AWS_CONFIG_FILE");
    T_EQ("bad", stk_aws_profile_open(&profiles, "a b", &error), STOKER_ERROR_FORMAT);
    T_HAS("bad", error.where, "/config'");
    T_TRUE("bad", !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i ? "config" : "credentials");
        unlink(path);
    }
    rmdir(folder);
}

/* ---- settings ---- */

#define AT(field) offsetof(struct stk_s3_settings, field)

/* clang-format off */
static const struct setting {
    const char *name, *variable, *lines; /* "NAME=value" or NULL; of the profile */
    size_t at;
    uint32_t value; /* UINT32_MAX: refused */
} settings[] = {
    {"attempts", NULL, "max_attempts = 5", AT(attempts_max), 5},
    {"a variable goes first", "AWS_MAX_ATTEMPTS=3", "max_attempts = 5", AT(attempts_max), 3},
    {"an empty one does not", "AWS_MAX_ATTEMPTS=", "max_attempts = 5", AT(attempts_max), 5},
    {"very many", NULL, "max_attempts = 99999999999999999999", AT(attempts_max), 100},
    {"none", NULL, "max_attempts = 0", AT(attempts_max), UINT32_MAX},
    {"fewer", NULL, "max_attempts = -1", AT(attempts_max), UINT32_MAX},
    {"no number", "AWS_MAX_ATTEMPTS=5x", "", AT(attempts_max), UINT32_MAX},
    {"nothing", NULL, "max_attempts =", AT(attempts_max), UINT32_MAX},
    {"mode", NULL, "retry_mode = adaptive", AT(attempts_max), 0},
    {"no mode", "AWS_RETRY_MODE=" CANARY, "", AT(attempts_max), UINT32_MAX},
    {"FIPS", NULL, "use_fips_endpoint = TRUE", AT(fips), STK_FLAG_YES},
    {"FIPS, a variable", "AWS_USE_FIPS_ENDPOINT=1", "", AT(fips), STK_FLAG_YES},
    {"FIPS, off", "AWS_USE_FIPS_ENDPOINT=false", "use_fips_endpoint = true", AT(fips),
     STK_FLAG_NO},
    {"FIPS, written wrong", NULL, "use_fips_endpoint = " CANARY, AT(fips), UINT32_MAX},
    {"dual stack", NULL, "use_dualstack_endpoint = true", AT(dual_stack), STK_FLAG_YES},
    {"dual stack of S3", "AWS_USE_DUALSTACK_ENDPOINT=false",
     "s3 =\n  use_dualstack_endpoint = true", AT(dual_stack), STK_FLAG_YES},
    {"no dual stack of S3", "AWS_USE_DUALSTACK_ENDPOINT=true",
     "s3 =\n  use_dualstack_endpoint = false", AT(dual_stack), STK_FLAG_YES},
    {"path", NULL, "s3 =\n  addressing_style = path", AT(addressing), STK_S3_ADDRESSING_PATH},
    {"virtual", NULL, "s3 =\n  addressing_style = virtual", AT(addressing),
     STK_S3_ADDRESSING_VIRTUAL},
    {"auto", NULL, "s3 =\n  addressing_style = auto", AT(addressing), STK_S3_ADDRESSING_AUTO},
    {"no style", NULL, "s3 =\n  addressing_style = " CANARY, AT(addressing), UINT32_MAX},
    {"a long one", NULL, "s3 =\n  addressing_style = " CANARY CANARY CANARY CANARY CANARY CANARY,
     AT(addressing), UINT32_MAX},
    {"not below s3", NULL, "addressing_style = path", AT(addressing), STK_S3_ADDRESSING_AUTO},
    {"accelerate", NULL, "s3 =\n  use_accelerate_endpoint = true", AT(accelerate), STK_FLAG_YES},
    {"payload", NULL, "s3 =\n  payload_signing_enabled = true", AT(sign_payload), STK_FLAG_YES},
    {"no payload", NULL, "s3 =\n  payload_signing_enabled = false", AT(sign_payload),
     STK_FLAG_NO},
    {"payload, unsaid", NULL, "", AT(sign_payload), STK_FLAG_UNSET},
    {"ARN's region", NULL, "s3 =\n  use_arn_region = false", AT(arn_region), STK_FLAG_NO},
    {"ARN's region, plain", NULL, "s3_use_arn_region = false\ns3 =\n  use_arn_region = true",
     AT(arn_region), STK_FLAG_NO},
    {"ARN's region, variable", "AWS_S3_USE_ARN_REGION=true", "s3_use_arn_region = false",
     AT(arn_region), STK_FLAG_YES},
    {"us-east-1", NULL, "s3_us_east_1_regional_endpoint = regional", AT(regional_us_east_1),
     STK_FLAG_YES},
    {"us-east-1 of S3", NULL, "s3 =\n  us_east_1_regional_endpoint = regional",
     AT(regional_us_east_1),
     STK_FLAG_YES},
    {"us-east-1, variable", "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT=legacy",
     "s3_us_east_1_regional_endpoint = regional", AT(regional_us_east_1), STK_FLAG_NO},
    {"us-east-1, neither", "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT=true", "", AT(regional_us_east_1),
     UINT32_MAX},
    {"several regions", NULL, "s3 =\n  s3_disable_multiregion_access_points = true",
     AT(no_multi_region), STK_FLAG_YES},
    {"several regions, variable", "AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS=true", "",
     AT(no_multi_region), STK_FLAG_YES},
    {"sessions", NULL, "s3_disable_express_session_auth = true", AT(no_express_sessions),
     STK_FLAG_YES},
    {"sessions, variable", "AWS_S3_DISABLE_EXPRESS_SESSION_AUTH=true", "", AT(no_express_sessions),
     STK_FLAG_YES},
    {"sums", NULL, "request_checksum_calculation = WHEN_REQUIRED", AT(checksums_when_required),
     STK_FLAG_YES},
    {"checks", NULL, "response_checksum_validation = when_required", AT(verify_when_required),
     STK_FLAG_YES},
    {"checks, variable", "AWS_RESPONSE_CHECKSUM_VALIDATION=when_supported",
     "response_checksum_validation = when_required", AT(verify_when_required), STK_FLAG_NO},
    {"no checks", NULL, "response_checksum_validation = never", AT(verify_when_required),
     UINT32_MAX},
    {"another's", NULL, "[profile other]\nmax_attempts = 5", AT(attempts_max), 0},
};
/* clang-format on */

/* A profile "p" of these lines, in hand. */
static int open_lines(const char *folder, const char *lines, struct stk_aws_profile *profiles)
{
    char text[1024];

    snprintf(text, sizeof text, "[profile p]\n%s\n", lines);
    put(folder, "config", text, "AWS_CONFIG_FILE");
    return stk_aws_profile_open(profiles, "p", NULL);
}

static void set(const char *variable)
{
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(variable, "="), variable);
    setenv(name, strchr(variable, '=') + 1, 1);
}

static void test_settings(void)
{
    char folder[64] = "/tmp/stoker-profile-XXXXXX", path[256];

    T_TRUE("folder", mkdtemp(folder) != NULL);
    T_EACH(setting, row, settings)
    {
        struct stk_aws_profile profiles;
        struct stk_s3_settings got;
        struct stoker_error error = {0};
        bool refused = row->value == UINT32_MAX;
        int status;

        clearenv();
        setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/x", 1);
        if (row->variable) {
            set(row->variable);
        }
        T_EQ(row->name, open_lines(folder, row->lines, &profiles), 0);
        status = stk_s3_settings_read(&profiles, &got, &error);
        T_EQ(row->name, status < 0, refused);
        T_TRUE(row->name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
        if (refused) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, row->variable ? "AWS_" : "/config:2");
        } else {
            T_EQ(row->name, *(uint32_t *)(void *)((char *)&got + row->at), row->value);
        }
        stk_aws_profile_close(&profiles);
    }
    snprintf(path, sizeof path, "%s/config", folder);
    unlink(path);
    rmdir(folder);
}

/* The certificate file and the endpoint: an error if the named file or profile does not exist. */
static void test_endpoints(void)
{
    static const struct {
        const char *name, *variable, *lines, *url, *ca_file; /* url NULL: refused */
        int status;                                          /* then */
    } rows[] = {
        {"nothing", NULL, "", "", "", 0},
        {"the profile's", NULL, "endpoint_url = http://h\nca_bundle = ~/ca.pem", "http://h",
         "/h/ca.pem", 0},
        {"variables", "AWS_CA_BUNDLE=/a", "endpoint_url = http://h\nca_bundle = /b", "http://h",
         "/a", 0},
        {"ignored", NULL, "endpoint_url = http://h\nignore_configured_endpoint_urls = true", "", "",
         0},
        {"ignored, a word", NULL, "endpoint_url = http://h\nignore_configured_endpoint_urls = Yes",
         "", "", 0},
        {"ignored, a number", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=1", "endpoint_url = http://h",
         "", "", 0},
        {"ignored, or not", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=" CANARY,
         "endpoint_url = http://h", NULL, "", STOKER_ERROR_ARGUMENT},
        {"not ignored", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=false",
         "endpoint_url = http://h\nignore_configured_endpoint_urls = true", "http://h", "", 0},
        {"services", NULL,
         "endpoint_url = http://h\nservices = s\n[services s]\ns3 =\n"
         "  endpoint_url = http://s3",
         "http://s3", "", 0},
        {"other services", NULL,
         "endpoint_url = http://h\nservices = s\n[services s]\nsts =\n"
         "  endpoint_url = http://sts",
         "http://h", "", 0},
        {"no services", NULL, "endpoint_url = http://h\nservices = t\n[services s]\nx = 1", NULL,
         "", STOKER_ERROR_FORMAT},
        {"no service uses it", "AWS_ENDPOINT_URL_S3=http://v", "services = t", "http://v", "", 0},
    };
    char folder[64] = "/tmp/stoker-profile-XXXXXX", path[256], text[600];
    struct stk_aws_profile profiles;
    struct stk_service_endpoint endpoint;
    struct stoker_error error = {0};

    T_TRUE("folder", mkdtemp(folder) != NULL);
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_s3_settings got;
        int status;

        clearenv();
        setenv("HOME", "/h", 1);
        if (rows[i].variable) {
            set(rows[i].variable);
        }
        T_EQ(rows[i].name, open_lines(folder, rows[i].lines, &profiles), 0);
        T_EQ(rows[i].name, stk_s3_settings_read(&profiles, &got, NULL), 0);
        T_STR(rows[i].name, got.ca_file, rows[i].ca_file);
        status = stk_s3_settings_endpoint(&profiles, "s3", &endpoint, &error);
        T_EQ(rows[i].name, status, !rows[i].url ? rows[i].status : rows[i].url[0] ? 1 : 0);
        T_TRUE(rows[i].name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
        T_STR(rows[i].name, endpoint.url, rows[i].url ? rows[i].url : "");
        stk_aws_profile_close(&profiles);
    }
    T_ERROR("no services", &error);
    clearenv();
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    memcpy(text, "endpoint_url = http://", 22);
    T_EQ("long", open_lines(folder, text, &profiles), 0);
    T_EQ("long", stk_s3_settings_endpoint(&profiles, "s3", &endpoint, &error), STOKER_ERROR_LIMIT);
    stk_aws_profile_close(&profiles);
    snprintf(path, sizeof path, "%s/config", folder);
    unlink(path);
    rmdir(folder);
}

/* Files that no person writes: an error, soon, and no partial result. */
static void test_hostile(void)
{
    static const char line[] = "region = r\0\n";
    char folder[64] = "/tmp/stoker-profile-XXXXXX", path[256];
    struct stk_aws_profile profiles;
    struct stoker_error error = {0};
    FILE *file;

    clearenv();
    T_TRUE("folder", mkdtemp(folder) != NULL);
    put(folder, "config", "[default]\n", "AWS_CONFIG_FILE");
    snprintf(path, sizeof path, "%s/config", folder);
    file = fopen(path, "a");
    T_EQ("zero byte", fwrite(line, 1, sizeof line - 1, file), sizeof line - 1);
    fclose(file);
    T_EQ("zero byte", stk_aws_profile_open(&profiles, NULL, &error), STOKER_ERROR_FORMAT);
    T_ERROR("zero byte", &error);
    T_EQ("10 MB in a line", truncate(path, 10 << 20), 0);
    T_EQ("10 MB in a line", stk_aws_profile_open(&profiles, NULL, &error), STOKER_ERROR_LIMIT);
    T_HAS("10 MB in a line", error.where, "/config'");
    unlink(path);
    rmdir(folder);
}

/* Which section is the profile's, and which variable takes precedence. */
static void test_choice(void)
{
    static const struct {
        const char *profile, *region; /* NULL: there is no such profile */
    } rows[] = {{"a", "r-a"}, {"ab", "r-ab"}, {"a b", "r-last"},       {"b", NULL},
                {"c", NULL},  {"e", NULL},    {"default", "r-default"}};
    char folder[64] = "/tmp/stoker-profile-XXXXXX", out[8], path[256];
    struct stk_aws_profile profiles;
    struct stk_service_endpoint endpoint;

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
        int status = stk_aws_profile_open(&profiles, rows[i].profile, NULL);

        T_EQ(rows[i].profile, status, rows[i].region ? 0 : STOKER_ERROR_MISSING);
        T_STR(rows[i].profile, status < 0 ? "" : stk_aws_profile_region(&profiles),
              rows[i].region ? rows[i].region : "");
        stk_aws_profile_close(&profiles);
    }
    T_EQ("empty", stk_aws_profile_open(&profiles, "empty", NULL), 0);
    T_TRUE("empty", !stk_aws_profile_region(&profiles));
    T_STR("empty", stk_aws_profile_region_location(&profiles, out, sizeof out), "");
    stk_aws_profile_close(&profiles);
    setenv("AWS_PROFILE", "ab", 1);
    setenv("AWS_DEFAULT_PROFILE", "a", 1); /* as botocore */
    T_EQ("both", stk_aws_profile_open(&profiles, NULL, NULL), 0);
    T_STR("both", profiles.name, "a");
    setenv("AWS_DEFAULT_REGION", "r2", 1);
    setenv("AWS_REGION", "", 1);
    T_STR("empty is none", stk_aws_profile_region(&profiles), "r2");
    setenv("AWS_REGION", "r1", 1);
    T_STR("AWS_REGION first", stk_aws_profile_region(&profiles), "r1");
    setenv("AWS_ENDPOINT_URL_A_B", "http://h", 1);
    T_EQ("a service's name", stk_s3_settings_endpoint(&profiles, "a-b", &endpoint, NULL), 1);
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "1", 1);
    T_EQ("ignored", stk_s3_settings_endpoint(&profiles, "a-b", &endpoint, NULL), 0);
    stk_aws_profile_close(&profiles);
    snprintf(path, sizeof path, "%s/config", folder);
    unlink(path);
    rmdir(folder);
}

static void test_paths(void)
{
    char out[16];

    setenv("HOME", "/h", 1);
    T_TRUE("home", stk_path_expand_home("~/x", out, sizeof out));
    T_STR("home", out, "/h/x");
    T_TRUE("home alone", stk_path_expand_home("~", out, sizeof out));
    T_STR("home alone", out, "/h");
    T_TRUE("another's home stays", stk_path_expand_home("~u/x", out, sizeof out));
    T_STR("another's home stays", out, "~u/x");
    T_TRUE("fits", stk_path_expand_home("~/234567890123", out, sizeof out));
    T_TRUE("too long", !stk_path_expand_home("~/2345678901234", out, sizeof out));
    unsetenv("HOME");
    T_TRUE("no home", !stk_path_expand_home("~/x", out, sizeof out));
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
        const struct stk_auth_field fields[] = {
            {"one", STK_AUTH_FIELD_ONE, &one, 0},
            {"key", STK_AUTH_FIELD_TEXT, key, sizeof key},
            {"in.side", STK_AUTH_FIELD_OPTIONAL_TEXT, side, sizeof side},
            {"end", STK_AUTH_FIELD_TIME, &end, 0},
        };
        struct stoker_error error = {0};
        int status = stk_auth_response_json(stk_view_of_text(answers[i].text), fields,
                                            STK_COUNT(fields), "it", &error);
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
        bool good = stk_auth_response_date(stk_view_of_text(dates[i].text), &seconds);
        T_EQ(dates[i].text, good ? (int64_t)seconds : -1, dates[i].seconds);
    }
}

static void test_times(void)
{
    for (size_t i = 0; i < STK_COUNT(times); i++) {
        uint64_t seconds = 0;
        bool good = stk_auth_response_time(times[i].text, &seconds);
        T_EQ(times[i].text, good ? (int64_t)seconds : -1, times[i].seconds);
    }
}

static const struct {
    const char *name, *text, *value; /* of <Key>; NULL: none */
} elements[] = {
    {"inside", "<A><B>x</B><Key>v</Key></A>", "v"},
    {"first", "<Key>v</Key><Key>w</Key>", "v"},
    {"a document", "<?xml version='1.0'?>\n<A xmlns='http://a/'><B><Key>v</Key></B></A>", "v"},
    {"an attribute", "<A><Key type='b'>v</Key></A>", "v"},
    {"all entities", "<Key>&quot;&apos;&gt;&#x2f;</Key>", "\"'>/"},
    {"a line end, encoded", "<Key>a&#10;b</Key>", NULL},
    {"damage before it", "<A><B></A><Key>v</Key></A>", NULL},
    {"damage behind it", "<A><Key>v</Key><", "v"},
    {"entities", "<Key>a&amp;b&lt;&#43;</Key>", "a&b<+"},
    {"longer name", "<A><KeyId>w</KeyId><Key>v</Key></A>", "v"},
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
        bool found =
            stk_auth_response_xml(stk_view_of_text(elements[i].text), "Key", out, sizeof out);
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
        char code[STK_AUTH_RESPONSE_CODE_BYTES];
        stk_auth_response_code(stk_view_of_text(codes[i].text), code);
        T_STR(codes[i].text, code, codes[i].code);
    }
}

/* ---- SSO's cache ---- */

static void test_sso(void)
{
    char folder[] = "/tmp/stoker-sso-XXXXXX", path[128], text[512] = "";
    struct stk_sso_token *token = stk_sso_token_open(), *again = stk_sso_token_open();
    struct stoker_error error = {0};
    struct stat stat;
    FILE *file;

    T_TRUE("folder", mkdtemp(folder) && token && again);
    setenv("HOME", folder, 1);
    T_EQ("no login", stk_sso_token_load("mine", token, &error), STOKER_ERROR_MISSING);
    T_ERROR("no login", &error);
    snprintf(text, sizeof text, "mkdir -p %s/.aws/sso/cache", folder);
    T_EQ("folders", system(text), 0);
    /* printf %s mine | sha1sum */
    snprintf(path, sizeof path, "%s/.aws/sso/cache/%s.json", folder,
             "8034c43d15bb7ef42e2cc24255217acfc5f4b2f4");
    snprintf(token->path, sizeof token->path, "%s", path);
    snprintf(token->access, sizeof token->access, "%s", CANARY " \"a\\");
    snprintf(token->refresh, sizeof token->refresh, "r");
    token->expires_s = 1795299303;
    token->registration_expires_s = 951827696;
    T_EQ("save", stk_sso_token_save(token), 0);
    T_EQ("for its owner", lstat(path, &stat) == 0 ? stat.st_mode & 0777 : 0, 0600);
    file = fopen(path, "r");
    T_TRUE("file", file && fgets(text, sizeof text, file) && fclose(file) == 0);
    T_HAS("as botocore", text, "\"expiresAt\": \"2026-11-21T22:15:03Z\"");
    memcpy(again->path, path, sizeof path);
    T_EQ("again",
         stk_auth_response_json(stk_view_of_text(text),
                                &(struct stk_auth_field){"accessToken", STK_AUTH_FIELD_TEXT,
                                                         again->access, sizeof again->access},
                                1, "it", NULL),
         0);
    T_STR("again", again->access, token->access);
    token->access[0] = '\n';
    T_TRUE("no token", stk_sso_token_save(token) < 0);
    snprintf(token->path, sizeof token->path, "%s/none/x", folder);
    token->access[0] = 'x';
    T_EQ("no folder", stk_sso_token_save(token), -ENOENT);
    stk_sso_token_close(token);
    stk_sso_token_close(again);
    snprintf(text, sizeof text, "rm -rf %s", folder);
    T_EQ("clean", system(text), 0);
}

static void test_members(void)
{
    char out[16];
    size_t used = 0;

    T_TRUE("fits", stk_auth_json_add_member("{\"a\":", "b\"", out, sizeof out, &used));
    T_STR("fits", out, "{\"a\":\"b\\\"\"");
    T_TRUE("text alone", stk_auth_json_add_member("}", NULL, out, sizeof out, &used));
    T_EQ("text alone", used, 11);
    T_TRUE("no room for the text",
           !stk_auth_json_add_member("12345", NULL, out, sizeof out, &used));
    T_TRUE("no room for the value", !stk_auth_json_add_member(",", "234", out, sizeof out, &used));
    used = sizeof out;
    T_TRUE("full", !stk_auth_json_add_member("", NULL, out, sizeof out, &used));
}

static void test_regions(void)
{
    static const struct {
        const char *text, *plain;
        bool fips;
    } rows[] = {{"us-west-2", "us-west-2", false},
                {"fips-us-west-2", "us-west-2", true},
                {"us-gov-east-1-fips", "us-gov-east-1", true},
                {"fip-us", "fip-us", false}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        char region[64];

        snprintf(region, sizeof region, "%s", rows[i].text);
        T_EQ(rows[i].text, stk_aws_region_strip_fips(region), rows[i].fips);
        T_STR(rows[i].text, region, rows[i].plain);
    }
}

static void test_authorities(void)
{
    clearenv();
    T_TRUE("the system's", !stk_s3_settings_environment_ca_file());
    setenv("REQUESTS_CA_BUNDLE", "/r", 1);
    T_STR("as requests has it", stk_s3_settings_environment_ca_file(), "/r");
    setenv("SSL_CERT_FILE", "/s", 1);
    T_STR("as OpenSSL has it", stk_s3_settings_environment_ca_file(), "/s");
    setenv("AWS_CA_BUNDLE", "/a", 1);
    T_STR("as Amazon has it", stk_s3_settings_environment_ca_file(), "/a");
}

static void test_domains(void)
{
    static const char *const rows[][2] = {
        {"us-east-1", "amazonaws.com"},        {"us-gov-west-1", "amazonaws.com"},
        {"cn-north-1", "amazonaws.com.cn"},    {"eusc-de-east-1", "amazonaws.eu"},
        {"us-iso-east-1", "c2s.ic.gov"},       {"us-isob-east-1", "sc2s.sgov.gov"},
        {"us-isof-south-1", "csp.hci.ic.gov"}, {"eu-isoe-west-1", "cloud.adc-e.uk"},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        T_STR(rows[i][0], stk_aws_partition_of(rows[i][0])->domain, rows[i][1]);
    }
}

int main(void)
{
    test_files();
    test_limits();
    test_many();
    test_nested();
    test_profiles();
    test_choice();
    test_settings();
    test_endpoints();
    test_hostile();
    test_paths();
    test_answers();
    test_times();
    test_dates();
    test_elements();
    test_codes();
    test_sso();
    test_members();
    test_regions();
    test_authorities();
    test_domains();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
