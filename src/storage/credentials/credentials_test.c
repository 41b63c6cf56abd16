/* Goal: the source and the value of the credentials are those that botocore finds. They are
 * refreshed ahead of their end by one of many threads. A failure is reported and not repeated too
 * often. No text contains a secret.
 * Method: rows of variables; creds_oracle.py, which runs botocore on files, variables and services
 * of its own (auth_request.c, aws_sts.c and aws_chain.c use the same services); token_services.py,
 * which plays Google's and Azure's services (google_chain.c, azure_chain.c, storage/sign/jwt.c) and
 * runs google-auth too; clocks that stand still; threads over a credential_process
 * (credential_process.c) that counts its runs; token files (huggingface_chain.c); a search of all
 * memory that a core dump would contain. */
#include "storage/credentials/credentials.h"

#include "base/mem.h"
#include "storage/credentials/credential_chain.h"
#include "storage/http/http.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CANARY "canary0secret0value"
#define THREADS 8
#define LINE_BYTES 16384

static char folder[64] = "/tmp/stoker-creds-XXXXXX";

/* The room's clocks, where a test sets them: they stand still then. */
static _Atomic int64_t wall_ns, monotonic_ns;

int clock_gettime(clockid_t id, struct timespec *now)
{
    int64_t set = id == CLOCK_REALTIME ? wall_ns : id == CLOCK_MONOTONIC ? monotonic_ns : 0;

    if (set > 0) {
        *now = (struct timespec){.tv_sec = set / 1000000000, .tv_nsec = set % 1000000000};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, id, now);
}

static void set(const char *name, const char *value)
{
    if (value) {
        setenv(name, value, 1);
    } else {
        unsetenv(name);
    }
}

/* Nothing of the machine's own. */
static void clear_environment(void)
{
    clearenv();
    set("HOME", folder);
    set("PATH", "/usr/bin:/bin");
    set("AWS_EC2_METADATA_DISABLED", "true");
}

static bool has_canary(const void *bytes, size_t count)
{
    return memmem(bytes, count, CANARY, strlen(CANARY)) != NULL;
}

static void write_file(const char *name, const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "w");
    T_TRUE(name, file && fputs(text, file) >= 0 && fclose(file) == 0);
    chmod(path, 0700);
}

/* ---- the environment ---- */

struct row {
    const char *name;
    const char *key, *secret, *token;
    bool anonymous;
    int status;
    uint32_t kind;
};

static void check(const struct row *row)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS, .anonymous = row->anonymous};
    struct stk_credentials got = {0}, again = {0};
    struct stoker_error error = {0};
    struct stk_credential_provider *creds = NULL;

    set("AWS_ACCESS_KEY_ID", row->key);
    set("AWS_SECRET_ACCESS_KEY", row->secret);
    set("AWS_SESSION_TOKEN", row->token);
    T_EQ(row->name, stk_credential_provider_open(&creds, &options, &error), 0);
    T_EQ(row->name, stk_credential_provider_try_get(creds, &got, &error),
         -EAGAIN); /* it begins to look */
    T_EQ(row->name, stk_credential_provider_get(creds, &got, &error), row->status);
    if (row->status < 0) {
        T_ERROR(row->name, &error);
        T_TRUE(row->name, !has_canary(&error, sizeof error));
        T_EQ(row->name, stk_credential_provider_try_get(creds, &got, &error),
             row->status); /* not requested again yet */
    } else {
        T_EQ(row->name, got.kind, row->kind);
        T_EQ(row->name, got.expires_ns == STK_CREDS_NEVER, true);
        T_TRUE(row->name, got.source[0] != '\0');
        T_TRUE(row->name, !strstr(got.source, CANARY));
        T_STR(row->name, got.secret, row->kind == STK_CREDS_KEYS ? row->secret : "");
        T_STR(row->name, got.token, row->kind == STK_CREDS_KEYS && row->token ? row->token : "");
        stk_credential_provider_invalidate(creds, got.generation);
        T_EQ(row->name, stk_credential_provider_get(creds, &again, &error), 0);
        T_TRUE(row->name, again.generation != got.generation);
        stk_credential_provider_invalidate(creds, got.generation); /* an old one: these stay */
        T_EQ(row->name, stk_credential_provider_try_get(creds, &got, &error), 0);
        T_EQ(row->name, got.generation, again.generation);
    }
    stk_credential_provider_close(creds);
    stk_credentials_wipe(&got);
    T_STR(row->name, got.secret, "");
}

static void test_environment(void)
{
    static char huge[STK_CREDS_TOKEN_BYTES_MAX + 1];
    const struct row rows[] = {
        {"none", NULL, NULL, NULL, false, 0, STK_CREDS_ANONYMOUS},
        {"empty is none", "", "", "", false, 0, STK_CREDS_ANONYMOUS},
        {"keys", "AKID", CANARY, NULL, false, 0, STK_CREDS_KEYS},
        {"with a token", "AKID", CANARY, "a" CANARY, false, 0, STK_CREDS_KEYS},
        {"anonymous by wish", "AKID", CANARY, NULL, true, 0, STK_CREDS_ANONYMOUS},
        {"no secret", "AKID", NULL, NULL, false, STOKER_ERROR_MISSING, 0},
        {"no key", NULL, CANARY, NULL, false, 0, STK_CREDS_ANONYMOUS},
        {"a token too long", "AKID", CANARY, huge, false, STOKER_ERROR_LIMIT, 0},
        {"a token of two lines", "AKID", CANARY, "a\r\nX: b", false, STOKER_ERROR_LIMIT, 0},
    };

    memset(huge, 'x', sizeof huge - 1);
    memcpy(huge, CANARY, strlen(CANARY));
    T_EACH(row, row, rows)
    {
        clear_environment();
        check(row);
    }
}

/* ---- Hugging Face's token ---- */

static void check_hub(const char *name, const char *want)
{
    struct stk_credential_options options = {.service = STK_CREDS_HF};
    struct stk_credential_trace trail;
    struct stk_credentials got = {0};
    struct stoker_error error = {0};
    int status = stk_credential_provider_explain(&options, &trail, &got, &error);

    T_EQ(name, status < 0, want == NULL);
    T_EQ(name, trail.count, 2);
    T_TRUE(name, !has_canary(&trail, sizeof trail) && !has_canary(&error, sizeof error));
    T_TRUE(name, !has_canary(got.source, sizeof got.source));
    if (want) {
        T_STR(name, got.token, want);
        T_EQ(name, got.kind, want[0] ? STK_CREDS_BEARER : STK_CREDS_ANONYMOUS);
    } else {
        T_ERROR(name, &error);
    }
    stk_credentials_wipe(&got);
}

/* The places of huggingface_hub's get_token, in its order. */
static void test_hub(void)
{
    char path[512];

    clear_environment();
    check_hub("nothing", "");
    snprintf(path, sizeof path, "mkdir -p %s/.cache/huggingface %s/home", folder, folder);
    T_EQ("folders", system(path), 0);
    write_file(".cache/huggingface/token", CANARY "-cache\n");
    write_file("home/token", CANARY "-home");
    write_file("other", CANARY "-other \n\n");
    write_file("empty", "\n");
    write_file("lines", CANARY "\n" CANARY);
    check_hub("the cache", CANARY "-cache");
    snprintf(path, sizeof path, "%s/home", folder);
    set("HF_HOME", path);
    check_hub("HF_HOME", CANARY "-home");
    snprintf(path, sizeof path, "%s/lines", folder);
    set("HF_TOKEN_PATH", path);
    check_hub("two lines", NULL);
    snprintf(path, sizeof path, "%s/none", folder);
    set("HF_TOKEN_PATH", path);
    check_hub("HF_TOKEN_PATH of nothing", "");
    set("HUGGING_FACE_HUB_TOKEN", CANARY "-old");
    check_hub("the old variable", CANARY "-old");
    set("HF_TOKEN", CANARY "-new");
    check_hub("HF_TOKEN", CANARY "-new");
    set("HF_TOKEN", CANARY "\r\nX: y");
    check_hub("a header in it", NULL);
    set("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
    check_hub("none is wished", "");
}

/* ---- as botocore ---- */

/* A word of hexadecimal digits ("-": nothing) as text. */
static const char *hex(const char *word, char out[LINE_BYTES])
{
    size_t used = 0;

    for (unsigned byte; sscanf(word + 2 * used, "%2x", &byte) == 1; used++) {
        out[used] = (char)byte;
    }
    out[used] = 0;
    return out;
}

struct wanted {
    uint32_t service; /* enum stk_credentials_service */
    char name[LINE_BYTES], profile[256], place[64], key[256], secret[256], token[4096];
};

static void compare(struct stk_http *http, const struct wanted *want)
{
    struct stk_credential_options options = {.service = want->service,
                                             .profile = want->profile[0] ? want->profile : NULL,
                                             .http = http,
                                             .backoff_ms = 1};
    static struct stk_credential_trace trail;
    struct stk_credentials got = {0};
    struct stoker_error error = {0};
    int status = stk_credential_provider_explain(&options, &trail, &got, &error);
    const char *place = status < 0 ? "error" : "none";

    for (size_t i = 0; i < trail.count; i++) {
        place = trail.steps[i].result == STK_CREDS_USED ? trail.steps[i].source : place;
        T_TRUE(want->name, trail.steps[i].result != 0);
        T_TRUE(want->name,
               trail.steps[i].reason[0] || trail.steps[i].result == STK_CREDS_NOT_TRIED);
    }
    if (!T_STR(want->name, place, want->place) && status < 0) {
        printf("  %s: %s\n", error.what, error.where);
    }
    T_STR(want->name, got.access_key, want->key);
    T_STR(want->name, got.secret, want->secret);
    T_STR(want->name, got.token, want->token);
    if (status < 0) {
        T_ERROR(want->name, &error);
    }
    T_TRUE(want->name, !memmem(&error, sizeof error, "secret-of-", 10));
    T_TRUE(want->name, !memmem(&trail, sizeof trail, "secret-of-", 10));
    T_TRUE(want->name, !has_canary(&error, sizeof error) && !has_canary(&trail, sizeof trail));
    T_TRUE(want->name, strlen(want->token) < 16 ||
                           !memmem(&trail, sizeof trail, want->token, strlen(want->token)));
    T_TRUE(want->name, !strstr(got.source, "secret-of-"));
    stk_credentials_wipe(&got);
}

static unsigned compare_all(FILE *from, struct stk_http *http)
{
    static char line[4 * LINE_BYTES], first[4 * LINE_BYTES], second[4 * LINE_BYTES];
    static char third[4 * LINE_BYTES], text[LINE_BYTES];
    static struct wanted want;
    unsigned count = 0;

    while (fgets(line, sizeof line, from) && strncmp(line, "end", 3) != 0) {
        if (sscanf(line, "home %s", first) == 1) {
            set("HOME", hex(first, text));
        } else if (sscanf(line, "setup %s", first) == 1) {
            hex(first, want.name);
            want.profile[0] = 0;
            want.service = STK_CREDS_AWS;
            clear_environment();
        } else if (sscanf(line, "service %s", first) == 1) {
            want.service = first[0] == 'g' ? STK_CREDS_GOOGLE : STK_CREDS_AZURE;
        } else if (sscanf(line, "set %s %s", first, second) >= 1) {
            set(first, sscanf(line, "set %s %s", first, second) == 2 ? hex(second, text) : "");
        } else if (sscanf(line, "profile %255s", want.profile) == 1) {
            continue;
        } else if (sscanf(line, "want %63s %s %s %s", want.place, first, second, third) == 4) {
            snprintf(want.key, sizeof want.key, "%s", hex(first, text));
            snprintf(want.secret, sizeof want.secret, "%s", hex(second, text));
            snprintf(want.token, sizeof want.token, "%s", hex(third, text));
            compare(http, &want);
            count++;
        }
    }
    return count;
}

/* A script prints test cases and serves their requests, until its input ends. */
static void test_script(const char *const *words, unsigned least)
{
    struct stk_http_options options = {.connections_max = 8};
    struct stk_http *http = NULL;
    int down[2], up[2], status = 0;

    if (!words[0]) {
        printf("no STOKER_PYTHON: %s is left out\n", words[1]);
        return;
    }
    T_TRUE("pipes", pipe(down) == 0 && pipe(up) == 0);
    pid_t child = fork();
    if (child == 0) {
        union {
            const char *const *read;
            char *const *write;
        } arguments = {.read = words};
        dup2(down[0], 0);
        dup2(up[1], 1);
        close(down[1]);
        close(up[0]);
        execv(words[0], arguments.write);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    T_EQ("http", stk_http_open(&http, &options, NULL), 0);
    FILE *from = fdopen(up[0], "r");
    unsigned count = compare_all(from, http);
    fclose(from);
    close(down[1]);
    stk_http_close(http);
    waitpid(child, &status, 0);
    T_EQ(words[1], status, 0); /* 77 << 8: the module that it needs is not installed */
    T_TRUE(words[1], count >= least);
    printf("%s: %u set-ups\n", words[1], count);
}

/* ---- words of a command ---- */

static const struct {
    const char *command, *words; /* joined by '|'; NULL: refused */
} splits[] = {
    {"a b  c", "a|b|c"},
    {"  a\t'b c' \"d e\"f ", "a|b c|d ef"},
    {"a\\ b 'c\\d' \"e\\\"f\\g\"", "a b|c\\d|e\"f\\g"},
    {"'' a ''", "|a|"},
    {"$HOME `x` ; | && *", "$HOME|`x`|;|||&&|*"}, /* no shell */
    {"a 'b", NULL},
    {"a \\", NULL},
    {"", ""},
};

static void test_split(void)
{
    for (size_t i = 0; i < STK_COUNT(splits); i++) {
        char text[128], joined[128] = "", *words[17];
        int count = stk_credential_process_split(splits[i].command, text, words, 16);
        for (int w = 0; w < count; w++) {
            size_t used = strlen(joined);
            snprintf(joined + used, sizeof joined - used, "%s%s", w ? "|" : "", words[w]);
        }
        T_EQ(splits[i].command, count < 0, splits[i].words == NULL);
        if (count >= 0) {
            T_STR(splits[i].command, joined, splits[i].words);
        }
    }
    char text[64], *words[3];
    T_EQ("too many words", stk_credential_process_split("a b c", text, words, 2), -1);
}

/* ---- life ---- */

/* A program that counts its runs and prints keys that live for so many seconds. */
static void set_up_process(const char *seconds, const char *more)
{
    char text[2048];

    clear_environment();
    snprintf(text, sizeof text, "[default]\ncredential_process = %s/give %s\n", folder, seconds);
    write_file("config", text);
    snprintf(text, sizeof text,
             "#!/bin/sh\n"
             "cd %s; echo run >>runs; n=$(wc -l <runs)\n%s\n"
             "end=$(date -u -d \"+$1 seconds\" +%%Y-%%m-%%dT%%H:%%M:%%SZ)\n"
             "echo '{\"Version\": 1, \"AccessKeyId\": \"AK'$n'\", \"SecretAccessKey\": \"" CANARY
             "\", \"Expiration\": \"'$end'\"}'\n",
             folder, more);
    write_file("give", text);
    snprintf(text, sizeof text, "%s/runs", folder);
    unlink(text);
    snprintf(text, sizeof text, "%s/config", folder);
    set("AWS_CONFIG_FILE", text);
}

static unsigned runs(void)
{
    char path[128];
    struct stat stat;

    snprintf(path, sizeof path, "%s/runs", folder);
    return lstat(path, &stat) == 0 ? (unsigned)(stat.st_size / 4) : 0;
}

static void *get_some(void *given)
{
    struct stk_credentials got = {0};
    struct stoker_error error = {0};
    int status = stk_credential_provider_get(given, &got, &error);

    return (void *)(intptr_t)(status < 0 ? 0 : got.generation);
}

static void test_single_flight(void)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS};
    struct stk_credential_provider *creds = NULL;
    pthread_t threads[THREADS];
    void *generation;

    set_up_process("3600", "");
    stk_credential_provider_open(&creds, &options, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, get_some, creds);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &generation);
        T_EQ("one generation", (intptr_t)generation, 1);
    }
    T_EQ("one run", runs(), 1);
    stk_credential_provider_invalidate(creds, 1);
    T_EQ("refused: another", (intptr_t)get_some(creds), 2);
    T_EQ("two runs", runs(), 2);
    stk_credential_provider_close(creds);
}

/* Keys of a few seconds: they are replaced before they end, and peek never waits for that. */
static void test_ahead(void)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS};
    struct stk_credential_provider *creds = NULL;
    struct stk_credentials got = {0};
    unsigned failures = 0, seen = 0;
    struct timespec tenth = {.tv_nsec = 20000000};

    set_up_process("3", "");
    stk_credential_provider_open(&creds, &options, NULL);
    T_EQ("first", stk_credential_provider_get(creds, &got, NULL), 0);
    for (int i = 0; i < 3000 && seen < 3; i++) { /* a minute at most; ends after the third */
        int status = stk_credential_provider_try_get(creds, &got, NULL);
        failures += status < 0 && status != -EAGAIN;
        seen = status == 0 ? (unsigned)got.generation : seen;
        nanosleep(&tenth, NULL);
    }
    T_EQ("no failures", failures, 0);
    T_EQ("third generation", seen, 3);
    T_TRUE("as many runs", runs() >= 3 && runs() <= 4);
    stk_credential_provider_close(creds);
}

/* If a refresh fails, the old keys are used while they live; the error contains no secret. */
static void test_failure(void)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS};
    struct stk_credential_provider *creds = NULL;
    struct stk_credentials got = {0};
    struct stoker_error error = {0};

    set_up_process("3600", "if [ $n -gt 1 ]; then echo '" CANARY "'; exit 3; fi");
    stk_credential_provider_open(&creds, &options, NULL);
    T_EQ("first", stk_credential_provider_get(creds, &got, &error), 0);
    stk_credential_provider_invalidate(creds, got.generation);
    T_EQ("second", stk_credential_provider_get(creds, &got, &error), -EACCES);
    T_ERROR("second", &error);
    T_HAS("second", error.where, "status 3");
    T_TRUE("second", !has_canary(&error, sizeof error));
    T_EQ("at once", stk_credential_provider_get(creds, &got, &error), -EACCES);
    T_EQ("it was not run again at once", runs(), 2);
    stk_credential_provider_close(creds);

    set_up_process("3600", "yes " CANARY);
    stk_credential_provider_open(&creds, &options, NULL);
    T_TRUE("endless output", stk_credential_provider_get(creds, &got, &error) < 0);
    T_HAS("endless output", error.what, "too much");
    T_TRUE("endless output", !has_canary(&error, sizeof error));
    stk_credential_provider_close(creds);

    set_up_process("-5", "");
    stk_credential_provider_open(&creds, &options, NULL);
    T_EQ("too old", stk_credential_provider_get(creds, &got, &error), STOKER_ERROR_CHANGED);
    T_ERROR("too old", &error);
    stk_credential_provider_close(creds);
}

/* ---- life, by clocks that stand still ---- */

#define SECOND INT64_C(1000000000)
#define NOON (INT64_C(4102488000) * SECOND) /* 2100-01-01T12:00:00Z */

/* A program whose keys live until so many seconds after noon; `more` can use the number of the run,
 * $n. */
static struct stk_credential_provider *open_at_noon(int seconds, const char *more)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS};
    struct stk_credential_provider *creds = NULL;
    char text[2048];

    set_up_process("0", "");
    snprintf(
        text, sizeof text,
        "#!/bin/sh\n"
        "cd %s; echo run >>runs; n=$(wc -l <runs)\nlife=%d\n%s\n"
        "end=$(date -u -d \"2100-01-01 12:00:00 UTC +$life seconds\" +%%Y-%%m-%%dT%%H:%%M:%%SZ)\n"
        "echo '{\"Version\": 1, \"AccessKeyId\": \"AK'$n'\", \"SecretAccessKey\": \"" CANARY
        "\", \"Expiration\": \"'$end'\"}'\n",
        folder, seconds, more);
    write_file("give", text);
    wall_ns = NOON;
    T_EQ("open", stk_credential_provider_open(&creds, &options, NULL), 0);
    return creds;
}

static void stop_at(int64_t after_noon_ns)
{
    wall_ns = NOON + after_noon_ns;
}

static void wait_for_runs(unsigned count)
{
    for (int i = 0; i < 6000 && runs() < count; i++) { /* a minute */
        usleep(10000);
    }
    T_EQ("requested", runs(), count);
}

static void close_clocks(struct stk_credential_provider *creds)
{
    stk_credential_provider_close(creds); /* after a refresh that it began */
    wall_ns = monotonic_ns = 0;
}

/* When a refresh begins before they end: not earlier, and not later than an eighth of that. */
static void test_when_ahead(void)
{
    static const struct row {
        const char *name;
        int life, not_yet, surely; /* seconds before the end */
    } rows[] = {
        {"an hour: a quarter of it", 3600, 901, 787},
        {"a day: 15 minutes", 86400, 901, 787},
        {"seven minutes", 400, 101, 87},
    };

    T_EACH(row, row, rows)
    {
        for (int due = 0; due < 2; due++) {
            struct stk_credential_provider *creds = open_at_noon(row->life, "");
            struct stk_credentials got = {0};

            T_EQ(row->name, stk_credential_provider_get(creds, &got, NULL), 0);
            stop_at((row->life - (due ? row->surely : row->not_yet)) * SECOND);
            T_EQ(row->name, stk_credential_provider_try_get(creds, &got, NULL), 0);
            T_STR(row->name, got.access_key, "AK1"); /* no thread waits for it */
            close_clocks(creds);
            T_EQ(row->name, runs(), due ? 2 : 1);
        }
    }
}

/* If every refresh fails, the keys are used to their end, minus a margin. */
static void test_to_the_end(void)
{
    static const struct row {
        const char *name;
        int life;
        int64_t lives_ns, ends_ns; /* before the end */
    } rows[] = {
        {"an hour: 10 s", 3600, 10 * SECOND + 1, 10 * SECOND},
        {"a minute: a twentieth", 60, 3 * SECOND + 1, 3 * SECOND},
    };

    T_EACH(row, row, rows)
    {
        struct stk_credential_provider *creds = open_at_noon(row->life, "test $n = 1 || exit 3");
        struct stk_credentials got = {0};
        struct stoker_error error = {0};

        monotonic_ns = 1000 * SECOND;
        T_EQ(row->name, stk_credential_provider_get(creds, &got, &error), 0);
        stop_at(row->life * SECOND - row->lives_ns);
        T_EQ(row->name, stk_credential_provider_get(creds, &got, &error),
             0); /* and a refresh begins */
        wait_for_runs(2);
        for (int i = 0; i < 20; i++) { /* the failure is in one of these, and changes nothing */
            T_EQ(row->name, stk_credential_provider_get(creds, &got, &error), 0);
            T_STR(row->name, got.access_key, "AK1");
            usleep(10000);
        }
        T_EQ("not requested again so soon", runs(), 2);
        stop_at(row->life * SECOND - row->ends_ns);
        T_EQ(row->name, stk_credential_provider_get(creds, &got, &error), -EACCES);
        T_ERROR(row->name, &error);
        T_STR(row->name,
              stk_credential_provider_try_get(creds, &got, &error) == -EACCES ? "it" : "no", "it");
        close_clocks(creds);
    }
}

/* After a failure it is tried again after 1 s, 2 s, 4 s ... a minute at most, and not before. */
static void test_again(void)
{
    static const int waits[] = {1, 2, 4, 8, 16, 32, 60, 60};
    struct stk_credential_provider *creds =
        open_at_noon(3600, "test $n = 1 || test $n = 10 || exit 3");
    struct stk_credentials got = {0};

    monotonic_ns = 1000 * SECOND;
    T_EQ("first", stk_credential_provider_get(creds, &got, NULL), 0);
    stk_credential_provider_invalidate(creds, got.generation);
    T_EQ("fails", stk_credential_provider_get(creds, &got, NULL), -EACCES);
    for (unsigned i = 0; i < STK_COUNT(waits); i++) {
        T_EQ("at once", stk_credential_provider_get(creds, &got, NULL), -EACCES);
        monotonic_ns += waits[i] * SECOND - 1;
        T_EQ("too early", stk_credential_provider_get(creds, &got, NULL), -EACCES);
        T_EQ("no request", runs(), 2 + i);
        monotonic_ns += 1;
        T_EQ("requested", stk_credential_provider_get(creds, &got, NULL),
             i + 1 < STK_COUNT(waits) ? -EACCES : 0);
        T_EQ("requested", runs(), 3 + i);
    }
    T_STR("at last", got.access_key, "AK10");
    stk_credential_provider_invalidate(creds, got.generation);
    T_EQ("fails again", stk_credential_provider_get(creds, &got, NULL), -EACCES);
    monotonic_ns += SECOND;
    T_EQ("the wait begins anew", stk_credential_provider_get(creds, &got, NULL), -EACCES);
    T_EQ("the wait begins anew", runs(), 12);
    close_clocks(creds);
}

/* Keys that were in transit when the old ones were refused may be no newer: they are not used. */
static void test_refused_meanwhile(void)
{
    struct stk_credential_provider *creds =
        open_at_noon(3600, "if [ $n = 2 ]; then while [ ! -e go ]; do sleep 0.05; done; fi");
    struct stk_credentials got = {0};

    T_EQ("first", stk_credential_provider_get(creds, &got, NULL), 0);
    stop_at((3600 - 700) * SECOND);
    T_EQ("one is on its way", stk_credential_provider_try_get(creds, &got, NULL), 0);
    wait_for_runs(2);
    stk_credential_provider_invalidate(creds, got.generation);
    T_EQ("refused credentials are not returned", stk_credential_provider_try_get(creds, &got, NULL),
         -EAGAIN);
    write_file("go", "");
    T_EQ("third", stk_credential_provider_get(creds, &got, NULL), 0);
    T_STR("third", got.access_key, "AK3");
    close_clocks(creds);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* Shifted by one letter, so that this program does not contain the text that it searches for. */
#    define HIDDEN "nbsspx0tfdsfu0wbmvf"

static bool has_secret(const uint8_t *bytes, size_t count)
{
    const char hidden[] = HIDDEN;
    size_t want = sizeof hidden - 1;

    for (size_t at = 0; at + want <= count; at++) {
        size_t same = 0;
        while (same < want &&
               bytes[at + same] == (hidden[same] == '0' ? '0' : (uint8_t)(hidden[same] - 1))) {
            same++;
        }
        if (same == want) {
            return true;
        }
    }
    return false;
}

/* How often it stands in memory that a core dump would have: the writable mappings, without those
 * that are marked ("dd"). *marked_out: how many are. */
static unsigned secrets_in_core(unsigned *marked_out)
{
    static uint8_t piece[1 << 20];
    FILE *maps = fopen("/proc/self/smaps", "r"), *memory = fopen("/proc/self/mem", "r");
    unsigned long begin = 0, end = 0, first, last;
    char line[512], rights[8], locked_rights[8] = "";
    unsigned count = 0;

    *marked_out = 0;
    setvbuf(memory, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &first, &last, rights) == 3) {
            begin = first;
            end = last;
            memcpy(locked_rights, rights, sizeof locked_rights);
        } else if (strncmp(line, "VmFlags:", 8) == 0 && locked_rights[1] == 'w') {
            bool marked = strstr(line, " dd") != NULL;
            *marked_out += marked;
            for (unsigned long at = begin; at < end && !marked; at += sizeof piece) {
                ssize_t got =
                    pread(fileno(memory), piece, stk_min(sizeof piece, end - at), (off_t)at);
                count += got > 0 && has_secret(piece, (size_t)got);
            }
            memset(piece, 0, sizeof piece);
        }
    }
    fclose(maps);
    fclose(memory);
    return count;
}

/* Keys of a file that another program wrote: while they are used and after that they are in no
 * memory that a core dump has. */
static void test_core(void)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS};
    struct stk_credential_provider *creds = NULL;
    unsigned marked;
    char command[512];

    clear_environment();
    snprintf(command, sizeof command,
             "(echo '[default]'; echo aws_access_key_id=AK; printf aws_secret_access_key=; "
             "echo " HIDDEN " | tr b-z a-y) >%s/core",
             folder);
    T_EQ("write", system(command), 0);
    snprintf(command, sizeof command, "%s/core", folder);
    set("AWS_SHARED_CREDENTIALS_FILE", command);
    stk_credential_provider_open(&creds, &options, NULL);
    for (int i = 0; i < 2; i++) {
        struct stk_credentials *got = NULL;
        struct stoker_error error = {0};
        T_EQ("pages", posix_memalign((void **)&got, 4096, 65536), 0);
        T_EQ("get", stk_credential_provider_get(creds, got, &error), 0);
        T_TRUE("it is the secret", has_secret((uint8_t *)got->secret, sizeof got->secret));
        T_TRUE("it is found", secrets_in_core(&marked) > 0);
        stk_credentials_wipe(got);
        free(got);
        T_EQ("it is in no core", secrets_in_core(&marked), 0);
        T_TRUE("pages are marked", marked > 0);
        stk_credential_provider_invalidate(creds, 1);
    }
    stk_credential_provider_close(creds);
    T_EQ("nor after that", secrets_in_core(&marked), 0);
}

#else

static void test_core(void) /* shadow memory is too large to be looked at */
{
}

#endif

int main(int argc, char **argv)
{
    /* Before the environment is cleared. */
    const char *python = getenv("STOKER_PYTHON"), *is_long = getenv("STOKER_TEST_LONG");
    char *python_path = python && python[0] ? strdup(python) : NULL;
    bool long_run = is_long && is_long[0];
    const char *seed = argc > 1 ? argv[1] : "1";

    T_TRUE("folder", mkdtemp(folder) != NULL);
    test_environment();
    test_split();
    test_script((const char *[]){python_path, "src/storage/credentials/creds_oracle.py", folder,
                                 seed, long_run ? "2000" : "50", NULL},
                100);
    test_script((const char *[]){python_path ? python_path : "/usr/bin/python3",
                                 "src/storage/credentials/token_services.py", folder, NULL},
                30);
    test_single_flight();
    test_ahead();
    test_failure();
    test_when_ahead();
    test_to_the_end();
    test_again();
    test_refused_meanwhile();
    test_hub();
    test_core();
    T_EQ("no leak", stk_mem_alive(), 0);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    set("PATH", "/usr/bin:/bin");
    T_EQ("clean", system(command), 0);
    if (t_finish() != 0) {
        return 1;
    }
    if (!python_path) {
        t_skip("no STOKER_PYTHON with botocore to compare with");
    }
    free(python_path);
    return 0;
}
