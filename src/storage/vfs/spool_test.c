/* Goal: an object whose server sends no ranges, or no size, is fetched once, however many threads
 * read it and in whatever parts; a body that breaks off is an error.
 * Method: a server that ignores ranges and counts its bodies, and threads that open the same object
 * at the same time. */
#include "storage/vfs/spool.h"

#include "io/io.h"
#include "storage/vfs/vfs.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 3000000u
#define THREADS 8u

static uint8_t content[BYTES];
static _Atomic uint32_t bodies; /* that were sent to their end */
static _Atomic uint32_t stalls; /* bodies of /stalled: the first one stops in its middle */
static _Atomic bool proceed;    /* its connection is closed */

static bool send_chunks(int fd)
{
    char line[32];
    bool sent = true;

    for (size_t at = 0; sent && at < BYTES; at += BYTES / 3) {
        int bytes = snprintf(line, sizeof line, "%x\r\n", BYTES / 3);

        sent = t_send(fd, line, (size_t)bytes) && t_send(fd, content + at, BYTES / 3) &&
               t_send(fd, "\r\n", 2);
    }
    return sent;
}

static void serve(int fd)
{
    static const char chunked[] =
        "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nTransfer-Encoding: chunked\r\n\r\n";
    char head[4096], plain[128];
    bool sent = true;

    snprintf(plain, sizeof plain, "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: %u\r\n\r\n",
             BYTES);
    while (sent && t_read_request(fd, head, sizeof head, NULL) > 0) {
        bool probe = strstr(head, "bytes=0-0\r\n") != NULL, broken = strstr(head, "/broken");

        if (strstr(head, "/stalled") && !probe && atomic_fetch_add(&stalls, 1) == 0) {
            sent = t_send(fd, plain, strlen(plain)) && t_send(fd, content, BYTES / 2);
            for (int i = 0; i < 400 && !atomic_load(&proceed); i++) {
                usleep(20000);
            }
            sent = false;
        } else if (strstr(head, "/plain") || strstr(head, "/stalled")) {
            sent = t_send(fd, plain, strlen(plain)) && t_send(fd, content, BYTES);
        } else {
            sent = t_send(fd, chunked, sizeof chunked - 1) && send_chunks(fd) && !broken &&
                   t_send(fd, "0\r\n\r\n", 5);
        }
        atomic_fetch_add(&bodies, sent && !probe);
    }
}

struct reader {
    struct stk_io *io;
    const char *url;
    int64_t wrong;
    pthread_t thread;
};

/* Opens the object, and reads it in parts from its end to its begin. */
static void *read_all(void *argument)
{
    struct reader *reader = argument;
    struct stk_file *file = NULL;
    struct stk_stat stat;
    static const size_t step = 100000;
    uint8_t part[100000];

    reader->wrong = stk_io_open_file(reader->io, reader->url, &file, NULL) < 0 ||
                    stk_io_stat_file(file, &stat, NULL) < 0 || stat.bytes != BYTES;
    for (size_t at = BYTES; reader->wrong == 0 && at > 0; at -= step) {
        int64_t got = stk_io_read_wait(file, at - step, part, step);

        reader->wrong += got != (int64_t)step || memcmp(part, content + at - step, step) != 0;
    }
    if (file) {
        stk_io_close_file(file);
    }
    return NULL;
}

static void test_once(struct stk_io *io, const char *url)
{
    struct reader readers[THREADS];
    uint32_t before = atomic_load(&bodies);
    struct stoker_error error = {0};
    struct stk_file *file = NULL;

    /* and stays open together with the others */
    T_EQ(url, stk_io_open_file(io, url, &file, &error), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.io = io, .url = url};
        T_EQ("thread", pthread_create(&readers[i].thread, NULL, read_all, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        T_EQ(url, readers[i].wrong, 0);
    }
    if (file) {
        stk_io_close_file(file);
    }
    T_EQ("fetched once", atomic_load(&bodies) - before, 1);
}

struct opener {
    struct stk_io *io;
    const char *url;
    _Atomic bool cancel;
    int status;
    pthread_t thread;
};

static void *open_only(void *argument)
{
    struct opener *opener = argument;
    struct stoker_error error = {0};
    struct stk_file *file = NULL;

    (void)stk_io_set_cancel_flag(&opener->cancel);
    opener->status = stk_io_open_file(opener->io, opener->url, &file, &error);
    if (file) {
        stk_io_close_file(file);
    }
    (void)stk_io_set_cancel_flag(NULL);
    return NULL;
}

/* One thread fetches, and two wait for it. One that waits is cancelled, then the one that fetches:
 * the last one fetches the object itself. */
static void test_cancel(struct stk_io *io, const char *url)
{
    struct opener openers[3] = {{.io = io, .url = url}, {.io = io, .url = url}, {.io = io}};
    static const int order[] = {1, 0, 2}, want[] = {STOKER_ERROR_CLOSED, STOKER_ERROR_CLOSED, 0};

    openers[2].url = url;
    for (size_t i = 0; i < 3; i++) {
        T_EQ("thread", pthread_create(&openers[i].thread, NULL, open_only, &openers[i]), 0);
        for (int j = 0; j < 200 && atomic_load(&stalls) == 0; j++) {
            usleep(20000);
        }
    }
    usleep(200000); /* the others wait */
    for (size_t i = 0; i < 3; i++) {
        struct opener *opener = &openers[order[i]];

        atomic_store(&opener->cancel, want[i] < 0);
        pthread_join(opener->thread, NULL);
        T_EQ(i == 0   ? "cancelled wait"
             : i == 1 ? "cancelled fetch"
                      : "the last one",
             opener->status, want[i]);
        T_EQ("one stall lasts", atomic_load(&proceed), false);
    }
    T_EQ("fetched twice", atomic_load(&stalls), 2);
    atomic_store(&proceed, true);
}

/* A body without an end costs no more disk than the limit. */
static void test_limit(int port)
{
    static const struct {
        const char *name, *bytes_max;
        int want;
    } rows[] = {{"as many as allowed", "3000000", 0},
                {"one more", "2999999", STOKER_ERROR_LIMIT},
                {"a unit", "4MiB", 0},
                {"a unit that is too small", "2000K", STOKER_ERROR_LIMIT}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_vfs_options options = {.read_timeout_ms = 2000, .unshared = true};
        struct stoker_error error = {0};
        struct stk_io *backend = NULL, *io = NULL;
        struct stk_file *file = NULL;
        char url[64];

        setenv("STOKER_SPOOL_BYTES_MAX", rows[i].bytes_max, 1);
        T_EQ("backend", stk_io_open(&backend, &(struct stk_io_options){.depth = 8}, &error), 0);
        T_EQ("vfs", stk_vfs_open(&io, backend, &options, &error), 0);
        snprintf(url, sizeof url, "http://127.0.0.1:%d/chunked", port);
        T_EQ(rows[i].name, stk_io_open_file(io, url, &file, &error), rows[i].want);
        if (file) {
            stk_io_close_file(file);
        } else {
            T_HAS(rows[i].name, error.advice, "STOKER_SPOOL_BYTES_MAX");
        }
        stk_io_close(io);
    }
    unsetenv("STOKER_SPOOL_BYTES_MAX");
}

/* A limit that cannot be read is an error of open, not another limit. */
static void test_settings(void)
{
    static const struct {
        const char *name, *value;
        bool is_right;
    } rows[] = {{"STOKER_SPOOL_BYTES_MAX", "4 apples", false},
                {"STOKER_SPOOL_BYTES_MAX", "-1", false},
                {"STOKER_SPOOL_BYTES_MAX", "99999999999999999999", false},
                {"STOKER_SPOOL_BYTES_MAX", "1T", true},
                {"STOKER_SPOOL_BYTES_MAX", "0", true},
                {"STOKER_SPOOL_BYTES_MAX", "", true},
                {"STOKER_LIST_NAMES_MAX", "1K", false},
                {"STOKER_LIST_NAMES_MAX", "1e6", false},
                {"STOKER_LIST_NAMES_MAX", "1000", true}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_vfs_options options = {.read_timeout_ms = 2000, .unshared = true};
        struct stoker_error error = {0};
        struct stk_io *backend = NULL, *io = NULL;

        setenv(rows[i].name, rows[i].value, 1);
        T_EQ("backend", stk_io_open(&backend, &(struct stk_io_options){.depth = 8}, &error), 0);
        T_EQ(rows[i].value, stk_vfs_open(&io, backend, &options, &error),
             rows[i].is_right ? 0 : STOKER_ERROR_ARGUMENT);
        if (rows[i].is_right) {
            stk_io_close(io);
        } else {
            T_ERROR(rows[i].value, &error);
            T_HAS(rows[i].value, error.where, rows[i].name);
        }
        unsetenv(rows[i].name);
    }
}

int main(void)
{
    struct stk_vfs_options options = {.read_timeout_ms = 2000, .unshared = true};
    struct stoker_error error = {0};
    char cache[] = "/tmp/stoker-spool-XXXXXX", command[64], url[64];
    struct stk_io *backend = NULL, *io = NULL;
    struct stk_file *file = NULL;
    struct t_server server;

    T_TRUE("folder", mkdtemp(cache) != NULL);
    setenv("STOKER_CACHE", cache, 1);
    for (size_t i = 0; i < BYTES; i++) {
        content[i] = (uint8_t)(i * 31 + i / 977);
    }
    t_server_start(&server, serve);
    T_EQ("backend", stk_io_open(&backend, &(struct stk_io_options){.depth = 8}, &error), 0);
    T_EQ("vfs", stk_vfs_open(&io, backend, &options, &error), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/plain", server.port);
    test_once(io, url);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/chunked", server.port);
    test_once(io, url);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/broken", server.port);
    T_TRUE("broken", stk_io_open_file(io, url, &file, &error) < 0);
    T_ERROR("broken", &error);
    stk_io_close(io);
    test_limit(server.port);
    test_settings();
    options.read_timeout_ms = 30000;
    T_EQ("backend", stk_io_open(&backend, &(struct stk_io_options){.depth = 8}, &error), 0);
    T_EQ("vfs", stk_vfs_open(&io, backend, &options, &error), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/stalled", server.port);
    test_cancel(io, url);
    stk_io_close(io);
    t_server_stop(&server);
    snprintf(command, sizeof command, "rmdir %s", cache);
    T_EQ("nothing is left", system(command), 0);
    return t_finish();
}
