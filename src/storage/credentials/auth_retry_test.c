/* Goal: a request to a service with a temporary failure is repeated a limited number of times. A
 * missing response never means "anonymous", neither at first nor after credentials were found. A
 * definite answer is final.
 * Method: a server of this test that reads the expected requests and the responses (a status, or a
 * closed connection) from a script; a wall clock that the test sets. Covers auth_request.c,
 * aws_chain.c, google_chain.c, azure_chain.c, aws_sts.c and credentials.c. */
#include "storage/credentials/credentials.h"

#include "base/mem.h"
#include "storage/credentials/aws_sts.h"
#include "storage/http/http.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define NOON (INT64_C(4102488000) * SECOND) /* 2100-01-01T12:00:00Z */

static _Atomic int64_t wall_ns;

int clock_gettime(clockid_t id, struct timespec *now)
{
    int64_t set = id == CLOCK_REALTIME ? wall_ns : 0;

    if (set > 0) {
        *now = (struct timespec){.tv_sec = set / SECOND, .tv_nsec = set % SECOND};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, id, now);
}

/* ---- the services ---- */

#define STEPS_MAX 12

struct step {
    const char *wants;  /* the start of the request, up to '|'; then other text that it contains */
    int code;           /* 0: the connection is closed */
    const char *header; /* NULL: none */
    const char *body;
};

#define KEYS(key, hour)                                                                            \
    "{\"Code\": \"Success\", \"AccessKeyId\": \"" key "\", \"SecretAccessKey\": \"secret\", "      \
    "\"Token\": \"token\", \"Expiration\": \"2100-01-01T" hour ":00:00Z\"}"
#define ROLE(key)                                                                                  \
    "<R><AccessKeyId>" key "</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t"     \
    "</SessionToken><Expiration>2100-01-01T13:00:00Z</Expiration></R>"
#define TIMES_3(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
#define TIMES_6(...) TIMES_3(__VA_ARGS__), TIMES_3(__VA_ARGS__)
#define REFUSAL(code) "<E><Error><Code>" code "</Code></Error></E>"
#define TOKEN_ "PUT /latest/api/token|x-aws-ec2-metadata-token-ttl-seconds: 21600"
#define ROLES_ "GET /latest/meta-data/iam/security-credentials/ |x-aws-ec2-metadata-token: tok"
#define KEYS_ "GET /latest/meta-data/iam/security-credentials/r |x-aws-ec2-metadata-token: tok"
#define GOOGLE_ "GET /computeMetadata/v1/instance/service-accounts/default/token"
#define BY_GOOGLE "Metadata-Flavor: Google"
#define AZURE_ "GET /metadata/identity/oauth2/token|Metadata: true"
#define BEARER "{\"access_token\": \"given\", \"expires_in\": 3600}"
#define GOOD_INSTANCE(key, hour)                                                                   \
    {TOKEN_, 200, NULL, "tok"}, {ROLES_, 200, NULL, "r"},                                          \
    {                                                                                              \
        KEYS_, 200, NULL, KEYS(key, hour)                                                          \
    }

static struct t_server server;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct step *steps; /* with the lock, as all below */
static uint32_t step_count, request_count, wrong;
static char first_wrong[256];

/* True if the request is the one that the step expects. */
static bool is_wanted(const char *request, const char *wants)
{
    const char *more = strchr(wants, '|');
    size_t bytes = more ? (size_t)(more - wants) : strlen(wants);

    return strncmp(request, wants, bytes) == 0 && (!more || strstr(request, more + 1));
}

static void serve(int fd)
{
    char request[16384], answer[4096];

    /* One request a connection: if a reused one is closed, libcurl repeats the request by itself.
     */
    if (t_read_request(fd, request, sizeof request, NULL) > 0) {
        struct step step = {.code = 0};

        pthread_mutex_lock(&lock);
        if (request_count < step_count) {
            step = steps[request_count];
        }
        request_count++;
        if (!step.wants || !is_wanted(request, step.wants)) {
            snprintf(wrong++ ? answer : first_wrong, sizeof first_wrong, "%.*s",
                     (int)strcspn(request, "\r"), request);
            step.code = 0;
        }
        pthread_mutex_unlock(&lock);
        if (step.code == 0) {
            return;
        }
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %zu\r\n%s%s\r\n%s",
                 step.code, strlen(step.body), step.header ? step.header : "",
                 step.header ? "\r\n" : "", step.body);
        t_send(fd, answer, strlen(answer));
    }
}

static void play(const struct step *script)
{
    pthread_mutex_lock(&lock);
    steps = script;
    for (step_count = 0; step_count < STEPS_MAX && script && script[step_count].wants;) {
        step_count++;
    }
    request_count = wrong = 0;
    pthread_mutex_unlock(&lock);
}

/* True if all requests of the script were sent, and no other. */
static void played(const char *name)
{
    pthread_mutex_lock(&lock);
    T_EQ(name, request_count, step_count);
    T_STR(name, wrong ? first_wrong : "", "");
    pthread_mutex_unlock(&lock);
}

/* True if all requests so far are those of the script. */
static void check_request(const char *name)
{
    pthread_mutex_lock(&lock);
    T_STR(name, wrong ? first_wrong : "", "");
    pthread_mutex_unlock(&lock);
}

static uint32_t requests_now(void)
{
    uint32_t count;

    pthread_mutex_lock(&lock);
    count = request_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* ---- sources of credentials ---- */

static struct stk_http *http;
static char url[64];

static void clear_environment(void)
{
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("NO_GCE_CHECK", "true", 1);
}

static void be_instance(void)
{
    clear_environment();
    setenv("AWS_EC2_METADATA_DISABLED", "false", 1);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", url, 1);
    setenv("AWS_METADATA_SERVICE_TIMEOUT", "30", 1); /* silence is a closed connection here */
}

static struct stk_credential_provider *open_creds(uint32_t service)
{
    struct stk_credential_options options = {.service = service, .http = http, .backoff_ms = 1};
    struct stk_credential_provider *creds = NULL;

    wall_ns = NOON;
    T_EQ("open", stk_credential_provider_open(&creds, &options, NULL), 0);
    return creds;
}

static void close_creds(struct stk_credential_provider *creds)
{
    stk_credential_provider_close(creds);
    wall_ns = 0;
}

/* ---- one look ---- */

static const struct look {
    const char *name, *settings; /* "NAME=value\n..."; "%": the server */
    uint32_t service;
    const char *want; /* the key or token; "": anonymous; "?": perhaps anonymous; NULL: fails */
    struct step script[STEPS_MAX];
} looks[] = {
    {"all is well", "instance", STK_CREDS_AWS, "AK1", {GOOD_INSTANCE("AK1", "13")}},
    {"an instance that is slow to start",
     "instance",
     STK_CREDS_AWS,
     "AK1",
     {{TOKEN_, 503, NULL, ""}, {TOKEN_, 429, NULL, ""}, GOOD_INSTANCE("AK1", "13")}},
    {"its role is slow",
     "instance",
     STK_CREDS_AWS,
     "AK1",
     {{TOKEN_, 200, NULL, "tok"},
      {ROLES_, 500, NULL, ""},
      {ROLES_, 0, NULL, NULL},
      {ROLES_, 200, NULL, "r"},
      {KEYS_, 0, NULL, NULL},
      {KEYS_, 503, NULL, ""},
      {KEYS_, 200, NULL, KEYS("AK1", "13")}}},
    {"no server answers", "instance", STK_CREDS_AWS, "?", {{TOKEN_, 0, NULL, NULL}}},
    {"as often as is wished",
     "instance\nAWS_METADATA_SERVICE_NUM_ATTEMPTS=3",
     STK_CREDS_AWS,
     "AK1",
     {{TOKEN_, 0, NULL, NULL}, {TOKEN_, 0, NULL, NULL}, GOOD_INSTANCE("AK1", "13")}},
    {"and not oftener",
     "instance\nAWS_METADATA_SERVICE_NUM_ATTEMPTS=2",
     STK_CREDS_AWS,
     "?",
     {{TOKEN_, 0, NULL, NULL}, {TOKEN_, 0, NULL, NULL}}},
    {"no number", "instance\nAWS_METADATA_SERVICE_NUM_ATTEMPTS=two", STK_CREDS_AWS, NULL, {{0}}},
    {"no time", "instance\nAWS_METADATA_SERVICE_TIMEOUT=0", STK_CREDS_AWS, NULL, {{0}}},
    {"in trouble for long", "instance", STK_CREDS_AWS, "?", {TIMES_6({TOKEN_, 503, NULL, ""})}},
    {"a token, and then nothing",
     "instance",
     STK_CREDS_AWS,
     NULL,
     {{TOKEN_, 200, NULL, "tok"}, TIMES_3({ROLES_, 0, NULL, NULL})}},
    {"a machine of another cloud", "instance", STK_CREDS_AWS, "", {{TOKEN_, 404, NULL, ""}}},
    {"no role",
     "instance",
     STK_CREDS_AWS,
     "",
     {{TOKEN_, 200, NULL, "tok"}, {ROLES_, 404, NULL, ""}}},
    {"a container",
     "AWS_CONTAINER_CREDENTIALS_FULL_URI=%/c",
     STK_CREDS_AWS,
     "AK1",
     {{"GET /c", 503, NULL, ""},
      {"GET /c", 429, NULL, ""},
      {"GET /c", 0, NULL, NULL},
      {"GET /c", 200, NULL, KEYS("AK1", "13")}}},
    {"a container that is silent",
     "AWS_CONTAINER_CREDENTIALS_FULL_URI=%/c",
     STK_CREDS_AWS,
     NULL,
     {TIMES_3({"GET /c", 0, NULL, NULL})}},
    {"STS is too busy",
     "web",
     STK_CREDS_AWS,
     "AK1",
     {{"POST /|WebIdentity", 400, NULL, REFUSAL("Throttling")},
      {"POST /", 400, NULL, REFUSAL("RequestLimitExceeded")},
      {"POST /", 400, NULL, REFUSAL("IDPCommunicationError")},
      {"POST /", 429, NULL, ""},
      {"POST /", 500, NULL, REFUSAL("InternalFailure")},
      {"POST /", 200, NULL, ROLE("AK1")}}},
    {"STS is too busy for long",
     "web",
     STK_CREDS_AWS,
     NULL,
     {TIMES_6({"POST /", 400, NULL, REFUSAL("Throttling")})}},
    {"STS says no", "web", STK_CREDS_AWS, NULL, {{"POST /", 403, NULL, REFUSAL("AccessDenied")}}},
    {"STS says never",
     "web",
     STK_CREDS_AWS,
     NULL,
     {{"POST /", 400, NULL, REFUSAL("InvalidIdentityToken")}}},
    {"Google",
     "google",
     STK_CREDS_GOOGLE,
     "given",
     {{GOOGLE_, 503, BY_GOOGLE, ""}, {GOOGLE_, 0, NULL, NULL}, {GOOGLE_, 200, BY_GOOGLE, BEARER}}},
    {"no Google service answers",
     "google",
     STK_CREDS_GOOGLE,
     "?",
     {TIMES_3({GOOGLE_, 0, NULL, NULL})}},
    {"it is not Google's", "google", STK_CREDS_GOOGLE, "", {{GOOGLE_, 200, NULL, BEARER}}},
    {"Google in trouble",
     "google",
     STK_CREDS_GOOGLE,
     NULL,
     {TIMES_6({GOOGLE_, 503, BY_GOOGLE, ""})}},
    {"no account", "google", STK_CREDS_GOOGLE, "", {{GOOGLE_, 404, BY_GOOGLE, ""}}},
    {"Azure",
     "AZURE_POD_IDENTITY_AUTHORITY_HOST=%",
     STK_CREDS_AZURE,
     "given",
     {{AZURE_, 404, NULL, ""},
      {AZURE_, 410, NULL, ""},
      {AZURE_, 429, NULL, ""},
      {AZURE_, 500, NULL, ""},
      {AZURE_, 200, NULL, BEARER}}},
    {"Azure ML",
     "MSI_ENDPOINT=%/msi\nMSI_SECRET=s3\nDEFAULT_IDENTITY_CLIENT_ID=me",
     STK_CREDS_AZURE,
     "given",
     {{"GET /msi?api-version=2017-09-01&resource=https%3A%2F%2Fstorage.azure.com%2F&clientid=me "
       "|secret: s3",
       200, NULL, BEARER}}},
    {"Azure ML elsewhere",
     "MSI_ENDPOINT=http://192.0.2.1/\nMSI_SECRET=s3",
     STK_CREDS_AZURE,
     NULL,
     {{0}}},
    {"no Azure service answers",
     "AZURE_POD_IDENTITY_AUTHORITY_HOST=%",
     STK_CREDS_AZURE,
     "?",
     {TIMES_3({AZURE_, 0, NULL, NULL})}},
    {"Azure is slow to answer",
     "AZURE_POD_IDENTITY_AUTHORITY_HOST=%",
     STK_CREDS_AZURE,
     "given",
     {{AZURE_, 0, NULL, NULL}, {AZURE_, 200, NULL, BEARER}}},
    {"no identity",
     "AZURE_POD_IDENTITY_AUTHORITY_HOST=%",
     STK_CREDS_AZURE,
     "",
     {{AZURE_, 400, NULL, "{\"error\": \"invalid_request\"}"}}},
};

/* Short names for steps that take several variables. */
static void set_up(const char *settings)
{
    char text[512], *line, *rest = text, *value, full[256];

    clear_environment();
    snprintf(text, sizeof text, "%s", settings);
    while ((line = strsep(&rest, "\n"))) {
        value = strchr(line, '=');
        if (strcmp(line, "instance") == 0) {
            be_instance();
        } else if (strcmp(line, "google") == 0) {
            unsetenv("NO_GCE_CHECK");
            setenv("GCE_METADATA_HOST", url + strlen("http://"), 1);
        } else if (strcmp(line, "web") == 0) {
            setenv("AWS_ENDPOINT_URL_STS", url, 1);
            setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r", 1);
            setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/proc/sys/kernel/ostype", 1);
        } else if (value) {
            *value++ = 0;
            snprintf(full, sizeof full, "%s%s", value[0] == '%' ? url : "",
                     value + (value[0] == '%'));
            setenv(line, full, 1);
        }
    }
}

static void test_looks(void)
{
    T_EACH(look, row, looks)
    {
        struct stk_credential_provider *creds = open_creds(row->service);
        struct stk_credentials got = {0};
        struct stoker_error error = {0};
        int status;

        set_up(row->settings);
        play(row->script);
        status = stk_credential_provider_get(creds, &got, &error);
        T_EQ(row->name, status < 0, row->want == NULL);
        if (status < 0) {
            T_ERROR(row->name, &error);
        } else if (row->want[0] && row->want[0] != '?') {
            T_STR(row->name, got.kind == STK_CREDS_KEYS ? got.access_key : got.token, row->want);
        } else {
            bool guessed = row->want[0] == '?';
            T_EQ(row->name, got.kind, STK_CREDS_ANONYMOUS);
            T_EQ(row->name, got.expires_ns,
                 guessed ? (uint64_t)(NOON + 60 * SECOND) : STK_CREDS_NEVER);
            T_EQ(row->name, strstr(got.source, "does not answer") != NULL, guessed);
            T_EQ(row->name, stk_credential_provider_retry_anonymous(creds, got.generation),
                 guessed);
        }
        played(row->name);
        close_creds(creds);
    }
}

/* ---- results of refreshes ---- */

/* Waits until the key of the running refresh is used, or for a minute. */
static void await_key(const char *name, struct stk_credential_provider *creds, const char *key)
{
    struct stk_credentials got = {0};

    for (int i = 0; i < 6000 && strcmp(got.access_key, key) != 0; i++) {
        T_EQ(name, stk_credential_provider_get(creds, &got, NULL), 0);
        usleep(10000);
    }
    T_STR(name, got.access_key, key);
}

/* Anonymous by a guess: corrected when the store refuses, or after 45 s. No request waits. */
static void test_guess(void)
{
    static const struct step silent[] = {{TOKEN_, 0, NULL, NULL}, {0}};
    static const struct step good[] = {GOOD_INSTANCE("AK2", "13"), {0}};

    for (int refused = 0; refused < 2; refused++) {
        struct stk_credential_provider *creds = open_creds(STK_CREDS_AWS);
        struct stk_credentials got = {0};

        be_instance();
        play(silent);
        T_EQ("silent", stk_credential_provider_get(creds, &got, NULL), 0);
        T_EQ("silent", got.kind, STK_CREDS_ANONYMOUS);
        T_EQ("silent, still", stk_credential_provider_get(creds, &got, NULL), 0);
        played("not requested again so soon");
        play(good);
        if (refused) {
            T_TRUE("doubted", stk_credential_provider_retry_anonymous(creds, got.generation));
            T_EQ("requested again", stk_credential_provider_get(creds, &got, NULL), 0);
            T_STR("requested again", got.access_key, "AK2");
            T_TRUE("an older request's doubt", stk_credential_provider_retry_anonymous(creds, 1));
            T_TRUE("these are not doubted",
                   !stk_credential_provider_retry_anonymous(creds, got.generation));
        } else {
            wall_ns = NOON + 50 * SECOND;
            T_EQ("no caller waits", stk_credential_provider_try_get(creds, &got, NULL), 0);
            await_key("later", creds, "AK2");
        }
        played("good");
        close_creds(creds);
    }
}

/* Once found, credentials are used while they live, whatever the services answer; then it is an
 * error, and never an unsigned request. */
static void test_known(void)
{
    static const struct step good[] = {{"GET /c", 200, NULL, KEYS("AK1", "13")}, {0}};
    static const struct step gone[] = {{0}};
    struct stk_credential_provider *creds = open_creds(STK_CREDS_AWS);
    struct stk_credentials got = {0};
    struct stoker_error error = {0};

    set_up("AWS_CONTAINER_CREDENTIALS_FULL_URI=%/c");
    play(good);
    T_EQ("known", stk_credential_provider_get(creds, &got, NULL), 0);
    played("known");
    clear_environment(); /* as if a file is rewritten, and empty for a moment */
    play(gone);
    wall_ns = NOON + 3500 * SECOND;
    T_EQ("gone: the old ones", stk_credential_provider_get(creds, &got, NULL), 0);
    T_STR("gone: the old ones", got.access_key, "AK1");
    /* an allocation fails during one of these, and changes nothing */
    for (int i = 0; i < 20; i++) {
        T_EQ("gone: they stay", stk_credential_provider_get(creds, &got, NULL), 0);
        T_STR("gone: they stay", got.access_key, "AK1");
        usleep(5000);
    }
    wall_ns = NOON + 3600 * SECOND;
    T_EQ("gone: ended", stk_credential_provider_get(creds, &got, &error), STOKER_ERROR_MISSING);
    T_ERROR("gone: ended", &error);
    close_creds(creds);
}

/* Keys of an instance: used past their end if no new ones arrive (the service does not answer, or
 * returns the old ones again), for 12 to 20 minutes at a time; until the store refuses them. */
static void test_beyond(void)
{
    static const struct step good[] = {GOOD_INSTANCE("AK1", "13"), {0}};
    static const struct step silent[] = {{TOKEN_, 0, NULL, NULL}, {0}};
    static const struct step old[] = {GOOD_INSTANCE("AK1", "13"), {0}};
    const int64_t ended = NOON + 3605 * SECOND;
    struct stk_credential_provider *creds = open_creds(STK_CREDS_AWS);
    struct stk_credentials got = {0};
    struct stoker_error error = {0};

    be_instance();
    play(good);
    T_EQ("good", stk_credential_provider_get(creds, &got, NULL), 0);
    T_EQ("good: their own end", got.expires_ns, NOON + 3600 * SECOND);
    wall_ns = ended;
    play(silent);
    T_EQ("silent", stk_credential_provider_get(creds, &got, &error), 0);
    T_STR("silent", got.access_key, "AK1");
    T_TRUE("silent: a while", got.expires_ns >= (uint64_t)(ended + 720 * SECOND) &&
                                  got.expires_ns <= (uint64_t)(ended + 1200 * SECOND));
    T_EQ("silent", requests_now(), 1);
    stk_credential_provider_invalidate(creds, got.generation);
    T_TRUE("refused by the store", stk_credential_provider_get(creds, &got, &error) < 0);
    T_ERROR("refused by the store", &error);
    close_creds(creds);

    creds = open_creds(STK_CREDS_AWS);
    wall_ns = ended;
    play(old);
    T_EQ("old ones", stk_credential_provider_get(creds, &got, &error), 0);
    T_TRUE("old ones: a while", got.expires_ns >= (uint64_t)(ended + 720 * SECOND) &&
                                    got.expires_ns <= (uint64_t)(ended + 1200 * SECOND));
    played("old ones");
    close_creds(creds);
}

/* Expired keys from the service do not replace valid ones. */
static void test_too_old(void)
{
    static const struct step good[] = {{"GET /c", 200, NULL, KEYS("AK1", "13")}, {0}};
    static const struct step old[] = {TIMES_6({"GET /c", 200, NULL, KEYS("AK0", "12")}), {0}};
    struct stk_credential_provider *creds = open_creds(STK_CREDS_AWS);
    struct stk_credentials got = {0};

    set_up("AWS_CONTAINER_CREDENTIALS_FULL_URI=%/c");
    play(good);
    T_EQ("good", stk_credential_provider_get(creds, &got, NULL), 0);
    play(old);
    wall_ns = NOON + 3500 * SECOND;
    T_EQ("it begins", stk_credential_provider_get(creds, &got, NULL), 0);
    for (int i = 0; i < 6000 && requests_now() == 0; i++) {
        usleep(10000);
    }
    for (int i = 0; i < 20; i++) {
        T_EQ("the good ones stay", stk_credential_provider_get(creds, &got, NULL), 0);
        T_STR("the good ones stay", got.access_key, "AK1");
        usleep(5000);
    }
    T_TRUE("too old: requested, rarely", requests_now() >= 1);
    check_request("too old");
    close_creds(creds);
}

/* ---- clocks that do not go together ---- */

#define SESSION_ "GET /b/?session|"
#define SESSION(key, time)                                                                         \
    "<R><SessionToken>t</SessionToken><SecretAccessKey>s</SecretAccessKey><AccessKeyId>" key       \
    "</AccessKeyId><Expiration>2100-01-01T" time "Z</Expiration></R>"
#define DATE(time) "Date: Fri, 01 Jan 2100 " time " GMT"

static const struct session_row {
    const char *name;
    int64_t skew_s; /* that the store has already learned */
    int64_t learned_s;
    struct step script[STEPS_MAX];
} sessions[] = {
    {"together",
     0,
     0,
     {{SESSION_ "x-amz-date: 21000101T1200", 200, DATE("12:00:02"), SESSION("AK1", "12:05:00")}}},
    {"no clock reported",
     0,
     0,
     {{SESSION_ "x-amz-date: 21000101T1200", 200, NULL, SESSION("AK1", "12:05:00")}}},
    {"ahead",
     0,
     3600,
     {{SESSION_ "x-amz-date: 21000101T1200", 403, DATE("13:00:00"),
       REFUSAL("RequestTimeTooSkewed")},
      {SESSION_ "x-amz-date: 21000101T1300", 200, DATE("13:00:00"), SESSION("AK1", "13:05:00")}}},
    {"ahead, and known",
     3600,
     3600,
     {{SESSION_ "x-amz-date: 21000101T1300", 200, DATE("13:00:00"), SESSION("AK1", "13:05:00")}}},
    {"behind",
     0,
     -3600,
     {{SESSION_ "x-amz-date: 21000101T1200", 403, DATE("11:00:00"),
       REFUSAL("RequestTimeTooSkewed")},
      {SESSION_ "x-amz-date: 21000101T1100", 200, DATE("11:00:00"), SESSION("AK1", "11:05:00")}}},
    {"set right since",
     3600,
     0,
     {{SESSION_ "x-amz-date: 21000101T1300", 403, DATE("12:00:00"),
       REFUSAL("RequestTimeTooSkewed")},
      {SESSION_ "x-amz-date: 21000101T1200", 200, DATE("12:00:00"), SESSION("AK1", "12:05:00")}}},
    {"not to write",
     0,
     0,
     {{SESSION_, 403, DATE("12:00:00"), REFUSAL("AccessDenied")},
      {SESSION_ "x-amz-create-session-mode: ReadOnly", 200, DATE("12:00:00"),
       SESSION("AK1", "12:05:00")}}},
    {"the keys behind it have ended",
     0,
     0,
     {{SESSION_, 400, DATE("12:00:00"), REFUSAL("ExpiredToken")},
      {SESSION_, 200, DATE("12:00:00"), SESSION("AK1", "12:05:00")}}},
};

/* A session lives for five minutes of the server's clock, which is an hour ahead of ours or behind;
 * both are learned from its answers, from the refusal of a signature with the wrong time. */
static void test_session(void)
{
    T_EACH(session_row, row, sessions)
    {
        struct stk_credential_provider *base = open_creds(STK_CREDS_AWS), *creds = NULL;
        _Atomic int64_t skew_s = row->skew_s;
        struct stk_credential_session session = {.base = base,
                                                 .scheme = "http",
                                                 .path = "/b/",
                                                 .region = "us-west-2",
                                                 .skew_s = &skew_s};
        struct stk_credential_options options = {
            .http = http, .session = &session, .backoff_ms = 1};
        struct stk_credentials got = {0};
        struct stoker_error error = {0};

        clear_environment();
        setenv("AWS_ACCESS_KEY_ID", "AK0", 1);
        setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
        snprintf(session.host, sizeof session.host, "%s", url + strlen("http://"));
        play(row->script);
        T_EQ(row->name, stk_s3_express_provider_open(&creds, &options, NULL), 0);
        T_EQ(row->name, stk_credential_provider_get(creds, &got, &error), 0);
        T_STR(row->name, got.access_key, "AK1");
        T_EQ(row->name, got.expires_ns, NOON + 300 * SECOND);
        T_EQ(row->name, atomic_load(&skew_s), row->learned_s);
        played(row->name);
        stk_credential_provider_close(creds);
        close_creds(base);
    }
}

/* The same for a role's keys, with signed and unsigned requests for them. */
static void test_skewed_role(void)
{
    static const struct step signed_[] = {
        {"POST /|x-amz-date: 21000101T1200", 403, DATE("13:00:00"),
         REFUSAL("SignatureDoesNotMatch")},
        {"POST /|x-amz-date: 21000101T1300", 200, DATE("13:00:00"),
         "<R><AccessKeyId>AK1</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t"
         "</SessionToken><Expiration>2100-01-01T14:00:00Z</Expiration></R>"},
        {0}};
    char path[] = "/tmp/stoker-hiccup-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    struct stk_credential_options options = {
        .service = STK_CREDS_AWS, .http = http, .profile = "default", .backoff_ms = 1};
    struct stk_credential_provider *creds = NULL;
    struct stk_credentials got = {0};
    struct stoker_error error = {0};

    wall_ns = NOON;
    T_TRUE("file",
           file && fputs("[default]\nrole_arn = r\ncredential_source = Environment\n", file) >= 0 &&
               fclose(file) == 0);
    clear_environment();
    setenv("AWS_CONFIG_FILE", path, 1);
    setenv("AWS_ENDPOINT_URL_STS", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "AK0", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    play(signed_);
    T_EQ("open", stk_credential_provider_open(&creds, &options, NULL), 0);
    T_EQ("role", stk_credential_provider_get(creds, &got, &error), 0);
    T_STR("role", got.access_key, "AK1");
    T_EQ("role", got.expires_ns, NOON + 3600 * SECOND);
    played("role");
    close_creds(creds);
    unlink(path);
}

/* A time that Azure names is by its clock, too. */
static void test_skewed_token(void)
{
    static const struct step ahead[] = {
        {AZURE_, 200, DATE("13:00:00"),
         "{\"access_token\": \"given\", \"expires_on\": \"4102495200\"}"}, /* 14:00:00 */
        {0}};
    struct stk_credential_provider *creds = open_creds(STK_CREDS_AZURE);
    struct stk_credentials got = {0};

    set_up("AZURE_POD_IDENTITY_AUTHORITY_HOST=%");
    play(ahead);
    T_EQ("token", stk_credential_provider_get(creds, &got, NULL), 0);
    T_EQ("token", got.expires_ns, NOON + 3600 * SECOND);
    played("token");
    close_creds(creds);
}

static void test_sso_hosts(void)
{
    struct stk_credential_chain search = {.unreachable = NULL};
    static const struct host {
        const char *name, *service, *region, *variable, *want; /* NULL: refused */
    } hosts[] = {
        {"oidc", "oidc", "eu-west-1", "", "https://oidc.eu-west-1.amazonaws.com"},
        {"China", "portal.sso", "cn-north-1", "", "https://portal.sso.cn-north-1.amazonaws.com.cn"},
        {"by a variable", "oidc", "eu-west-1", "https://there/", "https://there"},
        {"this machine", "oidc", "eu-west-1", "http://127.0.0.1:1", "http://127.0.0.1:1"},
        {"in plain text", "oidc", "eu-west-1", "http://there/", NULL},
    };
    char out[256];

    T_EACH(host, row, hosts)
    {
        struct stoker_error error = {0};
        int status;

        clear_environment();
        setenv("AWS_ENDPOINT_URL_SSO_OIDC", row->variable, 1);
        status = stk_sts_sso_url(&search, row->service, row->region, out, sizeof out, &error);
        T_EQ(row->name, status, row->want ? 0 : STOKER_ERROR_ARGUMENT);
        if (row->want) {
            T_STR(row->name, out, row->want);
        } else {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, "AWS_ENDPOINT_URL_SSO_OIDC");
        }
    }
}

/* The token of a web identity is a secret as such; a request that is signed holds none. */
static void test_sts_in_plain_text(void)
{
    static const struct sent {
        const char *name, *endpoint, *token_file;
        bool refused;
    } rows[] = {
        {"a token", "http://[::ffff:127.0.0.1]:1", "/proc/sys/kernel/ostype", true},
        {"a token, here", "http://127.0.0.1:1", "/proc/sys/kernel/ostype", false},
        {"a token by TLS", "https://127.0.0.1:1", "/proc/sys/kernel/ostype", false},
        {"signed", "http://[::ffff:127.0.0.1]:1", NULL, false},
    };

    T_EACH(sent, row, rows)
    {
        struct stk_credential_options options = {.http = http, .backoff_ms = 1};
        struct stk_credential_chain search = {.options = &options};
        struct stk_sts_role role = {.arn = "arn:aws:iam::1:role/r", .token_file = row->token_file};
        struct stk_credentials found = {.access_key = "AK0", .secret = "s"};
        struct stoker_error error = {0};
        int status;

        clear_environment();
        setenv("AWS_ENDPOINT_URL_STS", row->endpoint, 1);
        status = stk_sts_assume_role(&search, &role, &found, &error);
        T_TRUE(row->name, status < 0); /* no server listens there */
        T_ERROR(row->name, &error);
        T_EQ(row->name, strstr(error.what, "in plain text") != NULL, row->refused);
        T_EQ(row->name, strcmp(error.where, "AWS_ENDPOINT_URL_STS") == 0, row->refused);
    }
}

/* ---- Google: whose quota it is ---- */

static void test_project(void)
{
    static const struct step good[] = {{"POST /token|grant_type=refresh_token", 200, NULL, BEARER},
                                       {0}};
    char path[] = "/tmp/stoker-hiccup-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");

    T_TRUE("file", file &&
                       fprintf(file,
                               "{\"type\": \"authorized_user\", \"client_id\": \"c\", "
                               "\"client_secret\": \"s\", \"refresh_token\": \"r\", "
                               "\"token_uri\": \"%s/token\", "
                               "\"quota_project_id\": \"of-file\"}",
                               url) > 0 &&
                       fclose(file) == 0);
    for (int named = 0; named < 2; named++) {
        struct stk_credential_provider *creds = open_creds(STK_CREDS_GOOGLE);
        struct stk_credentials got = {0};

        clear_environment();
        setenv("GOOGLE_APPLICATION_CREDENTIALS", path, 1);
        setenv("GOOGLE_CLOUD_QUOTA_PROJECT", named ? "of-variable" : "", 1);
        play(good);
        T_EQ("project", stk_credential_provider_get(creds, &got, NULL), 0);
        T_STR("project", got.project, named ? "of-variable" : "of-file");
        played("project");
        close_creds(creds);
    }
    unlink(path);
}

int main(void)
{
    struct stk_http_options options = {.connections_max = 8};

    t_server_start(&server, serve);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    T_EQ("http", stk_http_open(&http, &options, NULL), 0);
    test_looks();
    test_guess();
    test_known();
    test_beyond();
    test_too_old();
    test_session();
    test_skewed_role();
    test_skewed_token();
    test_sso_hosts();
    test_sts_in_plain_text();
    test_project();
    stk_http_close(http);
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
