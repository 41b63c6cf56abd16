/* Goal: one of many threads requests new credentials ahead of the end of the old ones, and the
 * others do not wait while these are valid; after their end all wait for that request.
 * Method: a container endpoint of this test, which counts requests and delays responses; clocks
 * that stand still, so that no deadline plays a part; threads, which the test observes sleeping.
 * Covers credentials.c. */
#include "storage/credentials/credentials.h"

#include "base/mem.h"
#include "storage/http/http.h"
#include "test/server.h"
#include "test/t.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)
#define NOON (INT64_C(4102488000) * SECOND) /* 2100-01-01T12:00:00Z */
#define CALLERS 48
#define GETS 20

static _Atomic int64_t wall_ns, monotonic_ns;

int clock_gettime(clockid_t id, struct timespec *now)
{
    int64_t set = id == CLOCK_REALTIME ? wall_ns : id == CLOCK_MONOTONIC ? monotonic_ns : 0;

    if (set > 0) {
        *now = (struct timespec){.tv_sec = set / SECOND, .tv_nsec = set % SECOND};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, id, now);
}

static _Atomic uint32_t metadata_requests;

/* The metadata service of an instance does not answer. */
int connect(int fd, __CONST_SOCKADDR_ARG to, socklen_t bytes)
{
    struct sockaddr_in address = {.sin_family = AF_UNSPEC};

    memcpy(&address, to.__sockaddr__, stk_min(sizeof address, bytes));
    if (address.sin_family == AF_INET && ntohl(address.sin_addr.s_addr) >> 16 == 0xa9fe) {
        atomic_fetch_add(&metadata_requests, 1);
        errno = ECONNREFUSED;
        return -1;
    }
    return (int)syscall(SYS_connect, fd, to.__sockaddr__, bytes);
}

/* ---- the endpoint ---- */

static struct t_server server;
static _Atomic uint32_t requests;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static uint32_t may_answer; /* so many requests; with the lock */

static void serve(int fd)
{
    char head[8192], body[256], answer[512];

    while (t_read_request(fd, head, sizeof head, NULL) > 0) {
        uint32_t number = atomic_fetch_add(&requests, 1) + 1;

        pthread_mutex_lock(&lock);
        while (may_answer < number) {
            pthread_cond_wait(&changed, &lock);
        }
        pthread_mutex_unlock(&lock);
        /* The n-th live until n o'clock. */
        snprintf(body, sizeof body,
                 "{\"AccessKeyId\": \"AK%u\", \"SecretAccessKey\": \"secret\", \"Token\": "
                 "\"token\", \"Expiration\": \"2100-01-01T%02u:00:00Z\"}",
                 number, 12 + number);
        snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s",
                 strlen(body), body);
        t_send(fd, answer, strlen(answer));
    }
}

static void start_server(void)
{
    char url[64];

    t_server_start(&server, serve);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/keys", server.port);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
}

/* So many requests may be answered from now on. */
static void allow(uint32_t count)
{
    pthread_mutex_lock(&lock);
    may_answer = count;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool await(const _Atomic uint32_t *count, uint32_t wanted)
{
    for (int i = 0; i < 6000 && atomic_load(count) < wanted; i++) { /* a minute */
        usleep(10000);
    }
    return atomic_load(count) >= wanted;
}

/* ---- sources of credentials ---- */

struct caller {
    pthread_t thread;
    struct stk_credential_provider *creds;
    _Atomic pid_t id;
    int gets, failed;
    char keys[8]; /* of the last step */
};

static _Atomic uint32_t done;

static void *call(void *context)
{
    struct caller *caller = context;

    atomic_store(&caller->id, (pid_t)syscall(SYS_gettid));
    for (int i = 0; i < caller->gets; i++) {
        struct stk_credentials got = {0};
        int status = i % 2 ? stk_credential_provider_try_get(caller->creds, &got, NULL)
                           : stk_credential_provider_get(caller->creds, &got, NULL);

        caller->failed += status < 0;
        snprintf(caller->keys, sizeof caller->keys, "%.7s", got.access_key);
    }
    atomic_fetch_add(&done, 1);
    return NULL;
}

static void start_callers(struct caller *callers, struct stk_credential_provider *creds, int gets)
{
    atomic_store(&done, 0);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.creds = creds, .gets = gets};
        pthread_create(&callers[i].thread, NULL, call, &callers[i]);
    }
}

static void join_callers(const char *name, struct caller *callers, const char *keys)
{
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        T_EQ(name, callers[i].failed, 0);
        T_STR(name, callers[i].keys, keys);
    }
}

/* Whether it waits for something: "17 (name) S ..." */
static bool sleeps(pid_t id)
{
    char path[64], line[256] = "";
    const char *state;
    FILE *file;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", id);
    file = id ? fopen(path, "r") : NULL;
    if (file && !fgets(line, sizeof line, file)) {
        line[0] = '\0';
    }
    if (file) {
        fclose(file);
    }
    state = strrchr(line, ')');
    return state && state[1] == ' ' && state[2] == 'S';
}

/* Until all are asleep, at three looks one after the other. */
static void await_sleep(const struct caller *callers)
{
    for (int i = 0, looks = 0; i < 6000 && looks < 3; i++) {
        int asleep = 0;

        for (int k = 0; k < CALLERS; k++) {
            asleep += sleeps(atomic_load(&callers[k].id));
        }
        looks = asleep == CALLERS ? looks + 1 : 0;
        usleep(10000);
    }
}

/* Steps after a failure would only wait. */
static void must(bool good)
{
    if (!good) {
        exit(t_finish());
    }
}

static void test_flight(struct stk_http *http)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS, .http = http};
    static struct caller callers[CALLERS];
    struct stk_credentials got = {0};
    struct stk_credential_provider *creds = NULL;

    wall_ns = NOON;
    must(T_EQ("open", stk_credential_provider_open(&creds, &options, NULL), 0));
    start_callers(callers, creds, 1);
    must(T_TRUE("none", await(&requests, 1)));
    await_sleep(callers);
    must(T_EQ("none: one request", atomic_load(&requests), 1));
    must(T_EQ("none: all wait", atomic_load(&done), 0));
    allow(1);
    join_callers("none", callers, "AK1");

    wall_ns = NOON + 3500 * SECOND; /* a hundred seconds before the end */
    start_callers(callers, creds, GETS);
    must(T_TRUE("ahead: no caller waits", await(&done, CALLERS)));
    must(T_TRUE("ahead: it is requested", await(&requests, 2)));
    must(T_EQ("ahead: peek", stk_credential_provider_try_get(creds, &got, NULL), 0));
    must(T_STR("ahead: peek", got.access_key, "AK1"));
    must(T_EQ("ahead: one request", atomic_load(&requests), 2));
    allow(2);
    join_callers("ahead", callers, "AK1");
    for (int i = 0; i < 6000 && strcmp(got.access_key, "AK2") != 0; i++) {
        usleep(10000);
        T_EQ("ahead: comes", stk_credential_provider_get(creds, &got, NULL), 0);
    }
    must(T_STR("ahead: comes", got.access_key, "AK2"));
    must(T_EQ("ahead: was one", atomic_load(&requests), 2));

    wall_ns = NOON + 7200 * SECOND; /* they have ended */
    must(T_EQ("ended: peek", stk_credential_provider_try_get(creds, &got, NULL), -EAGAIN));
    must(T_EQ("ended: peek again", stk_credential_provider_try_get(creds, &got, NULL), -EAGAIN));
    start_callers(callers, creds, 1);
    must(T_TRUE("ended", await(&requests, 3)));
    await_sleep(callers);
    must(T_EQ("ended: one request", atomic_load(&requests), 3));
    must(T_EQ("ended: all wait", atomic_load(&done), 0));
    must(T_EQ("ended: who peeks does not", stk_credential_provider_try_get(creds, &got, NULL),
              -EAGAIN));
    allow(3);
    join_callers("ended", callers, "AK3");
    must(T_EQ("ended: was one", atomic_load(&requests), 3));
    stk_credentials_wipe(&got);
    stk_credential_provider_close(creds);
}

/* An option without a value is ignored: the metadata service has its default address. */
static void test_empty_option(struct stk_http *http)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS, .http = http};
    char path[] = "/tmp/stoker-refresh-XXXXXX";
    static struct stk_credential_trace trail;
    struct stk_credentials got = {0};
    FILE *file = fdopen(mkstemp(path), "w");

    T_TRUE("file", file && fputs("[default]\nec2_metadata_service_endpoint =\n", file) >= 0 &&
                       fclose(file) == 0);
    setenv("AWS_CONFIG_FILE", path, 1);
    unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    T_EQ("empty", stk_credential_provider_explain(&options, &trail, &got, NULL), 0);
    T_EQ("empty", got.kind, STK_CREDS_ANONYMOUS);
    T_TRUE("empty", atomic_load(&metadata_requests) > 0);
    unlink(path);
}

int main(void)
{
    struct stk_http_options options = {.connections_max = 2 * CALLERS};
    struct timespec now;
    struct stk_http *http = NULL;

    clearenv();
    setenv("HOME", "/nonexistent", 1);
    start_server();
    clock_gettime(CLOCK_MONOTONIC, &now);
    monotonic_ns = now.tv_sec * SECOND + now.tv_nsec;
    T_EQ("http", stk_http_open(&http, &options, NULL), 0);
    test_flight(http);
    allow(UINT32_MAX);
    wall_ns = monotonic_ns = 0;
    test_empty_option(http);
    stk_http_close(http);
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
