/* storage/vfs/vfs_test.h: a server for the tests of storage/vfs, with faults in its n-th responses,
 * and a virtual file system that reads from it.
 * Owner: the test. Threads: the server's, one a connection. Memory: the content. Bound: one test a
 * program. */
#ifndef STORAGE_VFS_VFS_TEST_H
#define STORAGE_VFS_VFS_TEST_H

#include "storage/vfs/vfs.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/memory_pages.h"
#include "storage/vfs/vfs_private.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CANARY "canary0secret0value"
#define FILE_BYTES (20u << 20) /* three ranges */
#define HEAD_BYTES 16384u
#define TIMEOUT_MS 3000u
#define HASTY_MS 600u
#define BREAKS 14u /* more than STK_STORE_ATTEMPTS_MAX */

/* The behaviour of the server, for each request for bytes of the current file. */
enum fault {
    NONE = 0,
    BREAK,            /* ends after half of the body */
    BREAK_RESET,      /* BREAKS of them, then resets */
    STALL,            /* stops after half of the body */
    SILENT,           /* never answers */
    RESET,            /* ends before the answer */
    SLOW_DOWN,        /* 503 */
    INTERNAL,         /* 500 with an error document */
    OTHER_RANGE,      /* Content-Range is another */
    NO_RANGE,         /* 206 without Content-Range */
    SHORT,            /* Content-Length, and Content-Range, of less */
    FULL_REPLY,       /* 200 and the complete file */
    OTHER_FULL_REPLY, /* the same of another size */
    NO_LENGTH,        /* half of the body, without a length */
    OTHER_TAG,        /* the ETag of another version */
    GONE,             /* 412 */
    FORBIDDEN,        /* 403 */
    OTHER_SIZE,       /* a total that is another */
    FLIP,             /* a byte is another */
};

static struct t_server server;
static _Atomic uint32_t fault, fault_from, fault_count; /* which requests have it: [from, +count) */
static _Atomic uint32_t requested, connections, requests; /* requested: GETs */
static _Atomic bool withheld; /* answers with a flipped byte wait until it is false */
static uint8_t *content;
static const char *list_answer = "";
static struct stk_checksum seals[2]; /* of the file, in S3's and in a web server's form */

static bool send_error(int fd, const char *line, const char *code)
{
    char body[512], head[256];

    snprintf(body, sizeof body,
             "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>by the test</Message>"
             "<RequestId>REQ-42</RequestId></Error>",
             code);
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", line, strlen(body));
    return t_send(fd, head, strlen(head)) && t_send(fd, body, strlen(body));
}

static void hold(int fd)
{
    char byte;

    while (recv(fd, &byte, 1, 0) > 0) {
    }
}

/* The file's bytes [first, last], with the fault. */
static bool send_range(int fd, uint64_t first, uint64_t last, uint32_t kind)
{
    uint64_t bytes = last - first + 1, sent = bytes;
    const char *tag = kind == OTHER_TAG ? "\"two\"" : "\"one\"";
    uint8_t other = (uint8_t)~content[first];
    uint64_t shift = kind != OTHER_RANGE ? 0 : first > 0 ? UINT64_MAX : 1; /* within the file */
    bool is_full = kind == FULL_REPLY || kind == OTHER_FULL_REPLY;
    char head[768], range[128], length[64], digest[STK_CHECKSUM_TEXT_BYTES];

    while (kind == FLIP && atomic_load(&withheld)) {
        usleep(500);
    }
    if (kind == SHORT) {
        last = first + bytes / 2 - 1;
        sent = bytes = bytes / 2;
    }
    snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%u\r\n",
             (unsigned long long)(first + shift), (unsigned long long)(last + shift),
             FILE_BYTES + (kind == OTHER_SIZE));
    if (is_full) {
        first = 0;
        sent = bytes = FILE_BYTES;
    }
    stk_checksum_text(&seals[1], digest);
    snprintf(length, sizeof length,
             kind == NO_LENGTH ? "Connection: close" : "Content-Length: %llu",
             (unsigned long long)bytes + (kind == OTHER_FULL_REPLY) * 1000);
    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\n%s\r\nETag: %s\r\n%s"
             "Repr-Digest: crc32c=:%s:\r\n"
             "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n\r\n",
             is_full ? "200 OK" : "206 Partial Content", length, tag,
             is_full || kind == NO_RANGE ? "" : range, strchr(digest, ' ') + 1);
    if (kind == BREAK || kind == STALL || kind == NO_LENGTH) {
        sent = bytes / 2;
    }
    if (!t_send(fd, head, strlen(head)) || (kind == FLIP && !t_send(fd, &other, 1)) ||
        !t_send(fd, content + first + (kind == FLIP), sent - (kind == FLIP))) {
        return false;
    }
    if (kind == STALL) {
        hold(fd);
    }
    return kind != BREAK && kind != STALL && kind != NO_LENGTH && kind != OTHER_FULL_REPLY;
}

static bool answer(int fd, const char *path, const char *head)
{
    const char *range = strcasestr(head, "\nRange: bytes=");
    unsigned long long first = 0, last = FILE_BYTES - 1;
    uint32_t number, kind;

    atomic_fetch_add(&requests, 1);
    if (strstr(path, "list-type=2")) {
        char text[256];

        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                 strlen(list_answer));
        return t_send(fd, text, strlen(text)) && t_send(fd, list_answer, strlen(list_answer));
    }
    if (!strstr(path, "/file")) {
        return send_error(fd, "404 Not Found", "NoSuchKey");
    }
    /* S3 reports the checksum of the object only this way */
    if (strncmp(head, "HEAD ", 5) == 0) {
        char text[STK_CHECKSUM_TEXT_BYTES], reply[512];

        stk_checksum_text(&seals[0], text);
        snprintf(reply, sizeof reply,
                 "HTTP/1.1 200 OK\r\nContent-Length: %u\r\nETag: \"one\"\r\n"
                 "x-amz-checksum-crc64nvme: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n\r\n",
                 FILE_BYTES, strchr(text, ' ') + 1);
        return strcasestr(head, "\nx-amz-checksum-mode: ENABLED") &&
               strcasestr(head, "\nIf-Match: \"one\"") && t_send(fd, reply, strlen(reply));
    }
    if (range) {
        sscanf(range + 14, "%llu-%llu", &first, &last);
    }
    if (first == 0 && last == 0) {
        return send_range(fd, 0, 0, NONE);
    }
    number = atomic_fetch_add(&requested, 1);
    kind =
        number - atomic_load(&fault_from) < atomic_load(&fault_count) ? atomic_load(&fault) : NONE;
    if (kind == BREAK_RESET) {
        kind = number - atomic_load(&fault_from) < BREAKS ? BREAK : RESET;
    }
    switch (kind) {
    case SILENT:
        hold(fd);
        return false;
    case RESET:
        return false;
    case SLOW_DOWN:
        return send_error(fd, "503 Slow Down", "SlowDown");
    case INTERNAL:
        return send_error(fd, "500 Internal Server Error", "InternalError");
    case GONE:
        return send_error(fd, "412 Precondition Failed", "PreconditionFailed");
    case FORBIDDEN:
        return send_error(fd, "403 Forbidden", "AccessDenied");
    default:
        /* Only a request that names the version gets its bytes. */
        return strcasestr(head, "\nIf-Match: \"one\"") ? send_range(fd, first, last, kind)
                                                       : send_error(fd, "400 Bad", "NoIfMatch");
    }
}

static void serve(int fd)
{
    char head[HEAD_BYTES], path[1024] = "";

    atomic_fetch_add(&connections, 1);
    while (t_read_request(fd, head, sizeof head, NULL) > 0) {
        path[0] = '\0';
        sscanf(head, "%*s %1023s", path);
        if (!answer(fd, path, head)) {
            return;
        }
    }
}

static void start_server(void)
{
    char endpoint[64];

    t_server_start(&server, serve);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    unsetenv("http_proxy");
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    unsetenv("AWS_MAX_ATTEMPTS");
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
    setenv("AWS_SESSION_TOKEN", CANARY, 1);
}

static struct stoker_cache *cache; /* of open_route; NULL: none */

static struct stk_io *open_route(uint32_t timeout_ms, struct stk_budget *budget)
{
    struct stk_io_options real_options = {.backend = STOKER_IO_THREADS, .depth = 16};
    struct stk_vfs_options options = {
        .depth = 16, .read_timeout_ms = timeout_ms, .budget = budget, .cache = cache};
    struct stk_io *real = NULL, *io = NULL;

    T_EQ("real", stk_io_open(&real, &real_options, NULL), 0);
    T_EQ("route", stk_vfs_open(&io, real, &options, NULL), 0);
    return io;
}

static const char *urls[] = {NULL, "s3://bucket/a/file b"};

struct row {
    const char *name;
    uint32_t fault, from, count;
    int64_t status; /* of a read of all of it; 0: all bytes are right */
};

static const struct row rows[] = {
    {"nothing wrong", NONE, 0, 0, 0},
    {"one breaks off", BREAK, 0, 1, 0},
    {"many break off", BREAK, 0, 20, 0},
    {"one stops", STALL, 1, 1, 0},
    {"one never answers", SILENT, 0, 1, 0},
    {"a reset", RESET, 0, 2, 0},
    {"too many requests", SLOW_DOWN, 0, 4, 0},
    {"an internal error", INTERNAL, 0, 3, 0},
    {"another range, once", OTHER_RANGE, 0, 1, 0},
    {"no Content-Range, once", NO_RANGE, 0, 1, 0},
    {"a shorter range, once", SHORT, 0, 1, 0},
    {"an early end, of no length", NO_LENGTH, 0, 1, 0},
    {"the full object instead of a range", FULL_REPLY, 0, 100, 0},
    {"always the full object, of another size", OTHER_FULL_REPLY, 0, 1000, STOKER_ERROR_CORRUPT},
    {"always another range", OTHER_RANGE, 0, 1000, STOKER_ERROR_CORRUPT},
    {"another byte", FLIP, 1, 1, STOKER_ERROR_CORRUPT},
    {"another version", OTHER_TAG, 1, 1, STOKER_ERROR_CHANGED},
    {"another size", OTHER_SIZE, 1, 1, STOKER_ERROR_CHANGED},
    {"it was replaced", GONE, 2, 1, STOKER_ERROR_CHANGED},
    {"denied", FORBIDDEN, 0, 1, -EACCES},
    {"always too many", SLOW_DOWN, 0, 100000, -EBUSY},
    {"never an answer", SILENT, 0, 100000, STOKER_ERROR_TIMEOUT},
};

static void make_content(void)
{
    content = stk_pages_alloc(FILE_BYTES);
    for (uint32_t i = 0; i < FILE_BYTES; i++) {
        content[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16)) % 0xee;
    }
    seals[0] =
        stk_checksum_compute(STK_CHECKSUM_CRC64, false, (struct stk_view){content, FILE_BYTES});
    seals[1] =
        stk_checksum_compute(STK_CHECKSUM_CRC32C, false, (struct stk_view){content, FILE_BYTES});
}

static void end_server(void)
{
    stk_pages_free(content, FILE_BYTES);
    t_server_stop(&server);
    T_EQ("no leak", stk_mem_alive(), 0);
}

static void set_fault(uint32_t kind, uint32_t from, uint32_t count)
{
    atomic_store(&fault, kind);
    atomic_store(&fault_from, from);
    atomic_store(&fault_count, count);
    atomic_store(&requested, 0);
}

static void check_error(const char *name, const struct stoker_error *error)
{
    T_ERROR(name, error);
    T_TRUE(name, !memmem(error, sizeof *error, CANARY, strlen(CANARY)));
}

#endif
