/* Goal: the store uses the same S3 endpoint, region and settings as botocore for any variables,
 * profiles and names; what botocore refuses is an error here.
 * Method: botocore over random set-ups (settings_oracle.py; the same ones each time, with --long
 * more and others), each as a request that is built and not sent. Rows with their hosts are in
 * src/storage/provider/s3_endpoint_test.c and store_test.c. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "test/t.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINE_BYTES 65536u
#define FIELDS 11

/* Undoes hex in place, and returns the bytes; they end with a NUL. */
static size_t unhex(char *text)
{
    size_t used = 0;
    unsigned byte;

    for (const char *at = text; at[0] && at[1] && sscanf(at, "%2x", &byte) == 1; at += 2) {
        text[used++] = (char)byte;
    }
    text[used] = '\0';
    return used;
}

/* "NAME=value", NUL, "NAME=value". */
static void set_variables(char *text, size_t bytes)
{
    for (char *at = text; at < text + bytes && *at; at += strlen(at) + 1) {
        char *value = strchr(at, '=');

        *value = '\0';
        setenv(at, value + 1, 1);
        *value = '=';
    }
}

static bool put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

/* The request's error is 0 where it was made. */
static int prepare(struct stk_store *store, const struct stk_object_url *object,
                   struct stk_operation *operation, char *room)
{
    memset(operation, 0, sizeof *operation);
    operation->store = store;
    operation->object = object;
    operation->method = STK_HTTP_HEAD;
    operation->request.owner = operation;
    T_EQ("keys", stk_credential_provider_get(store->creds, &store->credentials, NULL), 0);
    return stk_store_sign_request(&operation->request, room);
}

/* In the form of botocore's hosts, which includes a default port. */
static const char *without_port(char *url)
{
    const char *const ports[][2] = {{"http://", ":80/"}, {"https://", ":443/"}};

    for (size_t i = 0; i < STK_COUNT(ports); i++) {
        char *at = strstr(url, ports[i][1]);

        if (at && strncmp(url, ports[i][0], strlen(ports[i][0])) == 0) {
            memmove(at, at + strlen(ports[i][1]) - 1, strlen(at + strlen(ports[i][1]) - 1) + 1);
        }
    }
    return url;
}

static bool check_request(const struct stk_store *store, const struct stk_operation *operation,
                          char **fields)
{
    const struct stk_s3_settings *settings = stk_store_settings(store);
    unsigned long attempts = strtoul(fields[6], NULL, 10);
    const char *last = operation->headers[operation->request.header_count - 1];
    const char *authority = operation->request.ca_file; /* NULL: the reactor's, of a variable */
    char scope[160];

    authority = authority ? authority : stk_environment_get("REQUESTS_CA_BUNDLE");
    snprintf(scope, sizeof scope, "/%s/%s/aws4_request", fields[4], fields[5]);
    return T_STR("url", operation->request.url, without_port(fields[3])) &&
           T_HAS("scope", last, scope) && T_EQ("attempts", settings->attempts_max, attempts) &&
           T_EQ("checksums of requests", settings->checksums_when_required == STK_FLAG_YES,
                fields[7][0] == '1') &&
           T_EQ("of answers", settings->verify_when_required == STK_FLAG_YES,
                fields[8][0] == '1') &&
           T_EQ("payload", settings->sign_payload, (uint32_t)(fields[9][0] - '0')) &&
           T_STR("authority", authority ? authority : "", fields[10]);
}

static bool check_set_up(char **fields, size_t variable_bytes, const char *path)
{
    static struct stk_operation operation;
    static char room[STK_HTTP_SCRATCH_BYTES];
    const struct stk_store_options options = {.timeout_ms = 1000, .seed = 1, .unshared = true};
    bool refused = fields[3][0] == '-', good;
    struct stk_object_url *object = NULL;
    struct stk_store *store = NULL;
    char url[600];
    int status;

    clearenv();
    setenv("HOME", "/nowhere", 1);
    setenv("AWS_CONFIG_FILE", path, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    set_variables(fields[0], variable_bytes);
    snprintf(url, sizeof url, "s3://%s/k/l", fields[2]);
    status = stk_object_url_parse(url, &object, NULL);
    good = T_TRUE("file", put(path, fields[1])) &&
           T_EQ("open", stk_store_open(&store, &options, NULL), 0);
    if (good && status == 0) {
        status = prepare(store, object, &operation, room);
    }
    good = good && T_EQ(refused ? fields[4] : "made", status < 0, refused);
    if (good && status < 0 && operation.request.error.status < 0) {
        T_ERROR("refused", &operation.request.error);
    }
    good = good && (refused || check_request(store, &operation, fields));
    stk_object_url_free(object);
    stk_store_close(store);
    return good;
}

static bool check_line(char *line, const char *path)
{
    char *fields[FIELDS] = {NULL}, *rest = line;
    size_t variable_bytes = 0, bytes;
    bool good;

    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < FIELDS && rest; i++) {
        fields[i] = strsep(&rest, " ");
        bytes = strcmp(fields[i], "-") == 0 ? 1 : unhex(fields[i]);
        variable_bytes = i == 0 ? bytes : variable_bytes;
    }
    if (!T_TRUE("fields", fields[4] && (fields[3][0] == '-' || fields[10]))) {
        return false;
    }
    good = check_set_up(fields, variable_bytes, path);
    if (!good) {
        for (char *at = fields[0]; at < fields[0] + variable_bytes; at += strlen(at) + 1) {
            printf("  %s\n", at);
        }
        printf("%s  %s\n", fields[1], fields[2]);
    }
    return good;
}

/* Returns false if Python is not installed. If STOKER_PYTHON names a Python, as in ./check, it must
 * be. */
static bool test_oracle(const char *path)
{
    const char *python = getenv("STOKER_PYTHON"), *is_long = getenv("STOKER_TEST_LONG");
    const char *given = getenv("STOKER_TEST_SEED");
    bool other = is_long && is_long[0];
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : other ? (unsigned)getpid() : 1;
    unsigned count = other ? 5000 : 100, lines = 0;
    char command[512], *line = malloc(LINE_BYTES);
    bool good = true, named = python != NULL;
    FILE *pipe;
    int ended;

    printf("seed %u\n", seed);
    snprintf(command, sizeof command, "%s src/storage/object/settings_oracle.py %u %u",
             python ? python : "python3", seed, count);
    pipe = popen(command, "r");
    while (pipe && good && fgets(line, LINE_BYTES, pipe)) {
        good = check_line(line, path);
        lines++;
    }
    ended = pipe ? pclose(pipe) : -1;
    free(line);
    if (lines == 0 && WIFEXITED(ended) && (WEXITSTATUS(ended) == 77 || WEXITSTATUS(ended) == 127)) {
        T_TRUE("STOKER_PYTHON has botocore", !named);
        return false;
    }
    T_TRUE("all of it", !good || lines == count);
    return true;
}

int main(void)
{
    char path[] = "/tmp/stoker-settings-XXXXXX";
    int fd = mkstemp(path);
    bool verified;

    T_TRUE("file", fd >= 0 && close(fd) == 0);
    verified = test_oracle(path);
    unlink(path);
    T_EQ("no leak", stk_mem_alive(), 0);
    if (t_finish() != 0) {
        return 1;
    }
    if (!verified) {
        t_skip("no botocore to compare with: scripts/setup --test installs it");
    }
    return 0;
}
