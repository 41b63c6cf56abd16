/* Goal: behind the seam a URL is a file: the same bytes, sizes, errors, whatever the server does,
 * and a local file stays what it is. Never bytes of another version, never a hang, never a secret
 * in an error. Method: a server of this test with faults on its n-th answers, asked as dataset,
 * loader and sweep ask: open, stat, list, read_wait, queues. Covers known.c, remote.c, ranges.c,
 * queue.c, expect.c; of store exchange.c, request.c, pages.c, object.c, address.c. */
#include "route/route.h"

#include "base/mem.h"
#include "io/pool.h"
#include "route/remote.h"
#include "test/t.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
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

/* What the server does, to each request for bytes of the file whose turn it is. */
enum fault {
    NONE = 0,
    BREAK,       /* ends after half of the body */
    STALL,       /* stops after half of the body */
    SILENT,      /* never answers */
    RESET,       /* ends before the answer */
    SLOW_DOWN,   /* 503 */
    INTERNAL,    /* 500 with an error document */
    OTHER_RANGE, /* Content-Range is another */
    NO_RANGE,    /* 206 without Content-Range */
    SHORT,       /* Content-Length, and Content-Range, of less */
    WHOLE,       /* 200 and the whole file */
    OTHER_TAG,   /* the ETag of another version */
    GONE,        /* 412 */
    FORBIDDEN,   /* 403 */
    OTHER_SIZE,  /* a total that is another */
};

static int listener, port;
static _Atomic uint32_t fault, fault_from, fault_count; /* which requests have it: [from, +count) */
static _Atomic uint32_t asked, connections;
static uint8_t *content;
static const char *list_answer;

static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

static bool send_error(int fd, const char *line, const char *code)
{
    char body[512], head[256];

    snprintf(body, sizeof body,
             "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>by the test</Message>"
             "<RequestId>REQ-42</RequestId></Error>",
             code);
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", line, strlen(body));
    return send_all(fd, head, strlen(head)) && send_all(fd, body, strlen(body));
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
    char head[512], range[128];

    if (kind == SHORT) {
        last = first + bytes / 2 - 1;
        sent = bytes = bytes / 2;
    }
    snprintf(range, sizeof range, "Content-Range: bytes %llu-%llu/%u\r\n",
             (unsigned long long)(first + (kind == OTHER_RANGE)),
             (unsigned long long)(last + (kind == OTHER_RANGE)), FILE_BYTES + (kind == OTHER_SIZE));
    if (kind == WHOLE) {
        first = 0;
        sent = bytes = FILE_BYTES;
    }
    snprintf(head, sizeof head,
             "HTTP/1.1 %s\r\nContent-Length: %llu\r\nETag: %s\r\n%s"
             "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\n\r\n",
             kind == WHOLE ? "200 OK" : "206 Partial Content", (unsigned long long)bytes, tag,
             kind == WHOLE || kind == NO_RANGE ? "" : range);
    if (kind == BREAK || kind == STALL) {
        sent = bytes / 2;
    }
    if (!send_all(fd, head, strlen(head)) || !send_all(fd, content + first, sent)) {
        return false;
    }
    if (kind == STALL) {
        hold(fd);
    }
    return kind != BREAK && kind != STALL;
}

static bool answer(int fd, const char *path, const char *head)
{
    const char *range = strcasestr(head, "\nRange: bytes=");
    unsigned long long first = 0, last = FILE_BYTES - 1;
    uint32_t number, kind;

    if (strstr(path, "list-type=2")) {
        char text[256];

        snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                 strlen(list_answer));
        return send_all(fd, text, strlen(text)) && send_all(fd, list_answer, strlen(list_answer));
    }
    if (!strstr(path, "/file")) {
        return send_error(fd, "404 Not Found", "NoSuchKey");
    }
    if (range) {
        sscanf(range + 14, "%llu-%llu", &first, &last);
    }
    if (first == 0 && last == 0) {
        return send_range(fd, 0, 0, NONE);
    }
    number = atomic_fetch_add(&asked, 1);
    kind =
        number - atomic_load(&fault_from) < atomic_load(&fault_count) ? atomic_load(&fault) : NONE;
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
        /* Only one who says which version is given bytes of it. */
        return strcasestr(head, "\nIf-Match: \"one\"") ? send_range(fd, first, last, kind)
                                                       : send_error(fd, "400 Bad", "NoIfMatch");
    }
}

static void *serve_one(void *context)
{
    int fd = (int)(intptr_t)context;
    char head[HEAD_BYTES], path[1024];
    size_t used = 0;
    bool on = true;

    while (on) {
        ssize_t got = recv(fd, head + used, sizeof head - 1 - used, 0);

        if (got <= 0) {
            break;
        }
        used += (size_t)got;
        head[used] = '\0';
        if (strstr(head, "\r\n\r\n")) {
            path[0] = '\0';
            sscanf(head, "%*s %1023s", path);
            on = answer(fd, path, head);
            used = 0;
        }
    }
    close(fd);
    return NULL;
}

static void *serve(void *context)
{
    int fd;

    (void)context;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        pthread_t thread;

        atomic_fetch_add(&connections, 1);
        if (pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd) == 0) {
            pthread_detach(thread);
        }
    }
    return NULL;
}

static void start_server(pthread_t *thread)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    char endpoint[64];

    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)(void *)&address, sizeof address) < 0 ||
        listen(listener, 256) < 0 ||
        getsockname(listener, (struct sockaddr *)(void *)&address, &bytes) < 0) {
        t_skip("no socket on loopback can be had");
    }
    port = ntohs(address.sin_port);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    unsetenv("http_proxy");
    unsetenv("AWS_ENDPOINT_URL_S3");
    unsetenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
    unsetenv("AWS_MAX_ATTEMPTS");
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
    setenv("AWS_SECRET_ACCESS_KEY", CANARY, 1);
    setenv("AWS_SESSION_TOKEN", CANARY, 1);
    pthread_create(thread, NULL, serve, NULL);
}

static struct stk_io *open_route(uint32_t timeout_ms)
{
    struct stk_io_options real_options = {.backend = STOKER_IO_THREADS, .depth = 16};
    struct stk_route_options options = {.depth = 16, .read_timeout_ms = timeout_ms};
    struct stk_io *real = NULL, *io = NULL;

    T_EQ("real", stk_io_open(&real, &real_options, NULL), 0);
    T_EQ("route", stk_route_open(&io, real, &options, NULL), 0);
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
    {"the whole instead of a range", WHOLE, 0, 100, 0},
    {"always another range", OTHER_RANGE, 0, 1000, STOKER_ERROR_CORRUPT},
    {"another version", OTHER_TAG, 1, 1, STOKER_ERROR_CHANGED},
    {"another size", OTHER_SIZE, 1, 1, STOKER_ERROR_CHANGED},
    {"it was replaced", GONE, 2, 1, STOKER_ERROR_CHANGED},
    {"denied", FORBIDDEN, 0, 1, -EACCES},
    {"always too many", SLOW_DOWN, 0, 100000, -EBUSY},
    {"never an answer", SILENT, 0, 100000, STOKER_ERROR_TIMEOUT},
};

static void set_fault(uint32_t kind, uint32_t from, uint32_t count)
{
    atomic_store(&fault, kind);
    atomic_store(&fault_from, from);
    atomic_store(&fault_count, count);
    atomic_store(&asked, 0);
}

static void check_error(const char *name, const struct stoker_error *error)
{
    T_ERROR(name, error);
    T_TRUE(name, !memmem(error, sizeof *error, CANARY, strlen(CANARY)));
}

static void check_row(struct stk_io *io, const char *url, const struct row *row)
{
    uint8_t *buffer = stk_pages_alloc(FILE_BYTES);
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    uint64_t began_ns = stk_clock_ns();
    int64_t got;

    set_fault(row->fault, row->from, row->count);
    memset(buffer, 0xee, FILE_BYTES);
    T_EQ(row->name, stk_io_open_file(io, url, &file, &error), 0);
    got = stk_io_read_wait(io, file, 0, buffer, FILE_BYTES);
    T_EQ(row->name, got, row->status < 0 ? row->status : (int64_t)FILE_BYTES);
    T_TRUE(row->name, got < 0 || memcmp(buffer, content, FILE_BYTES) == 0);
    /* Bytes that were not asked for, or are of another version, are nowhere. */
    for (uint32_t i = 0; i < FILE_BYTES; i += 4099) {
        if (!T_TRUE(row->name, buffer[i] == content[i] || buffer[i] == 0xee)) {
            break;
        }
    }
    T_TRUE(row->name, stk_clock_ns() - began_ns < 10ull * TIMEOUT_MS * 1000000u);
    if (got < 0) {
        T_TRUE(row->name, stk_io_explain(io, file, (int)got, &error));
        check_error(row->name, &error);
        T_HAS(row->name, error.where, "file");
        if (row->status == -EACCES) {
            T_HAS(row->name, error.where, "AccessDenied: by the test, request REQ-42");
        }
    }
    stk_io_close_file(io, file);
    stk_pages_free(buffer, FILE_BYTES);
}

static void test_files(struct stk_io *io, const char *url)
{
    static const struct {
        uint64_t offset, bytes;
        int64_t got;
    } reads[] = {{0, 1, 1},           {FILE_BYTES - 1, 10, 1},
                 {FILE_BYTES, 10, 0}, {UINT64_MAX, 1, 0},
                 {5, 0, 0},           {STK_STORE_RANGE_BYTES - 3, 6, 6}};
    struct stk_stat about = {0};
    struct stk_file *file = NULL;
    struct stk_view view = {0};
    uint8_t buffer[16];

    set_fault(NONE, 0, 0);
    T_EQ(url, stk_io_stat_path(io, url, &about, NULL), 0);
    T_EQ(url, about.kind, STK_ENTRY_FILE);
    T_EQ(url, stk_io_open_file(io, url, &file, NULL), 0);
    T_EQ(url, stk_io_stat_file(io, file, &about, NULL), 0);
    T_EQ(url, about.bytes, FILE_BYTES);
    T_EQ(url, about.mtime_ns, 1795255200ull * 1000000000u);
    T_EQ(url, stk_io_read_now(io, file, 0, buffer, 1), -EAGAIN);
    T_EQ(url, stk_io_far_bytes(io, file), STK_ROUTE_FAR_BYTES);
    for (size_t i = 0; i < STK_COUNT(reads); i++) {
        T_EQ(url, stk_io_read_wait(io, file, reads[i].offset, buffer, reads[i].bytes),
             reads[i].got);
        T_TRUE(url, reads[i].got == 0 ||
                        memcmp(buffer, content + reads[i].offset, (size_t)reads[i].got) == 0);
    }
    T_EQ(url, stk_io_map(io, file, &view, NULL), 0);
    stk_io_close_file(io, file);
    T_TRUE(url, view.bytes == FILE_BYTES && memcmp(view.data, content, FILE_BYTES) == 0);
    stk_io_unmap(io, view);
}

static void test_missing(struct stk_io *io)
{
    static const struct {
        const char *name, *url;
        int status;
    } wrong[] = {
        {"no bucket", "s3://", STOKER_ERROR_ARGUMENT},
        {"an empty bucket", "s3:///key", STOKER_ERROR_ARGUMENT},
        {"a bucket is no object", "s3://bucket", -EISDIR},
        {"no host", "http:///x", STOKER_ERROR_ARGUMENT},
        {"another scheme", "gopher://x/y", STOKER_ERROR_UNSUPPORTED},
        {"no such key", "s3://bucket/nothing", -ENOENT},
        {"no such local file", "/nonexistent/x", -ENOENT},
    };
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    struct stk_out *out = NULL;
    struct stk_stat about;

    for (size_t i = 0; i < STK_COUNT(wrong); i++) {
        T_EQ(wrong[i].name, stk_io_open_file(io, wrong[i].url, &file, &error), wrong[i].status);
        check_error(wrong[i].name, &error);
    }
    list_answer = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
    T_EQ("nothing at all", stk_io_stat_path(io, "s3://bucket/nothing", &about, &error), -ENOENT);
    check_error("nothing at all", &error);
    T_EQ("read only", stk_io_create(io, "s3://bucket/x", true, &out, &error),
         STOKER_ERROR_UNSUPPORTED);
    check_error("read only", &error);
}

static void test_list(struct stk_io *io)
{
    static const char good[] =
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name>"
        "<Prefix>a/</Prefix><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
        "<Contents><Key>a/</Key><Size>0</Size></Contents>"
        "<Contents><Key>a/x%2By+z%26.tar</Key><LastModified>2026-11-21T10:00:00.000Z"
        "</LastModified><ETag>&quot;one&quot;</ETag><Size>123</Size><Owner><ID>i</ID></Owner>"
        "</Contents><CommonPrefixes><Prefix>a/sub/</Prefix></CommonPrefixes></ListBucketResult>";
    static const struct {
        const char *name, *text;
        int status;
    } bad[] = {
        {"no XML", "nonsense", STOKER_ERROR_CORRUPT},
        {"cut", "<ListBucketResult><Contents><Key>a/b</Key>", STOKER_ERROR_CORRUPT},
        {"an error in 200", "<Error><Code>InternalError</Code></Error>", STOKER_ERROR_CORRUPT},
        {"a bomb",
         "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;\">]>"
         "<ListBucketResult><Contents><Key>&b;</Key></Contents></ListBucketResult>",
         STOKER_ERROR_CORRUPT},
        {"a file of this machine",
         "<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/passwd\">]>"
         "<ListBucketResult><Contents><Key>&a;</Key></Contents></ListBucketResult>",
         STOKER_ERROR_CORRUPT},
        {"without end",
         "<ListBucketResult><IsTruncated>true</IsTruncated>"
         "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
         STOKER_ERROR_CORRUPT},
        {"no token", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
         STOKER_ERROR_CORRUPT},
        {"nested deeply",
         "<ListBucketResult><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>"
         "</ListBucketResult>",
         STOKER_ERROR_CORRUPT},
    };
    struct stk_listing listing = {0};
    struct stoker_error error = {0};
    struct stk_stat about = {0};

    list_answer = good;
    T_EQ("list", stk_io_list(io, "s3://bucket/a", &listing, &error), 0);
    if (T_EQ("list", listing.count, 2)) {
        T_STR("a folder", listing.entries[0].name, "sub");
        T_EQ("a folder", listing.entries[0].kind, STK_ENTRY_DIRECTORY);
        T_STR("a name", listing.entries[1].name, "x+y z&.tar");
        T_EQ("a name", listing.entries[1].kind, STK_ENTRY_FILE);
    }
    stk_listing_free(&listing);
    atomic_store(&asked, 0);
    T_EQ("known by the list", stk_io_stat_path(io, "s3://bucket/a/x+y z&.tar", &about, NULL), 0);
    T_EQ("known by the list", about.bytes, 123);
    T_EQ("known by the list", about.mtime_ns, 1795255200ull * 1000000000u);
    for (size_t i = 0; i < STK_COUNT(bad); i++) {
        list_answer = bad[i].text;
        T_EQ(bad[i].name, stk_io_list(io, "s3://bucket/a", &listing, &error), bad[i].status);
        check_error(bad[i].name, &error);
    }
    list_answer = good;
    T_EQ("a prefix", stk_io_stat_path(io, "s3://bucket/a", &about, NULL), 0);
    T_EQ("a prefix", about.kind, STK_ENTRY_DIRECTORY);
    T_EQ("the web has no lists", stk_io_list(io, urls[0], &listing, &error),
         STOKER_ERROR_UNSUPPORTED);
    check_error("the web has no lists", &error);
}

#define READS 40u
#define READ_BYTES 70000u

static void test_queue(struct stk_io *io, const char *url, const char *local_path)
{
    uint8_t *memory = stk_pages_alloc(READS * (READ_BYTES + 2ull * STK_IO_ALIGN));
    struct stk_file *files[2] = {NULL};
    struct stk_read reads[READS] = {{0}}, *left = reads;
    struct stk_queue *queue = NULL;
    uint32_t back = 0;

    set_fault(BREAK, 3, 5);
    T_EQ("open", stk_io_open_file(io, url, &files[0], NULL), 0);
    T_EQ("open", stk_io_open_file(io, local_path, &files[1], NULL), 0);
    T_EQ("queue", stk_io_queue_open(io, &queue, NULL), 0);
    for (uint32_t i = 0; i < READS; i++) {
        /* Each third is local; the last lies behind the end. */
        reads[i] = (struct stk_read){
            .file = files[i % 3 == 2],
            .offset = i == READS - 1 ? FILE_BYTES + 5ull : i * 400009ull,
            .buffer = memory + i * (uint64_t)stk_round_up(READ_BYTES + STK_IO_ALIGN, STK_IO_ALIGN),
            .bytes = READ_BYTES,
            .capacity = (uint32_t)stk_round_up(READ_BYTES + STK_IO_ALIGN, STK_IO_ALIGN),
            .next = i + 1 < READS ? &reads[i + 1] : NULL};
    }
    while (back < READS) {
        struct stk_read *list, *next;
        int taken = left ? stk_io_submit(io, queue, left) : 0;

        for (; taken > 0; taken--) {
            left = left->next;
        }
        for (list = stk_io_reap(io, queue, 1000); list; list = next) {
            next = list->next;
            list->owner = list;
            back++;
        }
    }
    for (uint32_t i = 0; i < READS; i++) {
        T_TRUE("came back", reads[i].owner == &reads[i] && !reads[i].lost);
        T_EQ("all of it", reads[i].result, i == READS - 1 ? 0 : READ_BYTES);
        T_TRUE("the bytes",
               reads[i].result <= 0 || memcmp(reads[i].buffer + reads[i].skip,
                                              content + reads[i].offset, READ_BYTES) == 0);
    }
    T_TRUE("a wake ends a wait", (stk_io_wake(io, queue), stk_io_reap(io, queue, 60000) == NULL));
    stk_io_queue_close(io, queue);
    stk_io_close_file(io, files[0]);
    stk_io_close_file(io, files[1]);
    stk_pages_free(memory, READS * (READ_BYTES + 2ull * STK_IO_ALIGN));
}

/* What is in flight when a queue is closed is its submitter's again, and never lost. */
static void test_close(struct stk_io *io, const char *url)
{
    uint8_t *memory = stk_pages_alloc(8 * STK_IO_ALIGN);
    struct stk_read reads[4] = {{0}};
    struct stk_queue *queue = NULL;
    struct stk_file *file = NULL;

    set_fault(SILENT, 0, 1000);
    T_EQ("open", stk_io_open_file(io, url, &file, NULL), 0);
    T_EQ("queue", stk_io_queue_open(io, &queue, NULL), 0);
    for (int i = 0; i < 4; i++) {
        reads[i] = (struct stk_read){.file = file,
                                     .offset = 100,
                                     .buffer = memory + i * STK_IO_ALIGN,
                                     .bytes = 100,
                                     .capacity = STK_IO_ALIGN,
                                     .lost = true,
                                     .next = i < 3 ? &reads[i + 1] : NULL};
    }
    T_EQ("taken", stk_io_submit(io, queue, reads), 4);
    T_TRUE("none is back", stk_io_reap(io, queue, 50) == NULL);
    stk_io_close_file(io, file); /* reads keep it */
    stk_io_queue_close(io, queue);
    for (int i = 0; i < 4; i++) {
        T_EQ("closed", reads[i].result, STOKER_ERROR_CLOSED);
        T_TRUE("not lost", !reads[i].lost);
    }
    stk_pages_free(memory, 8 * STK_IO_ALIGN);
}

static void test_expect(void)
{
    struct stk_io *io = open_route(TIMEOUT_MS);
    char names[64 * 64], *at = names;
    struct stk_stat about;

    set_fault(NONE, 0, 0);
    for (int i = 0; i < 64; i++) {
        at += snprintf(at, 64, "http://127.0.0.1:%d/%s%d", port, i == 7 ? "no" : "file", i) + 1;
    }
    stk_io_expect(io, names, 64);
    atomic_store(&connections, 0);
    at = names;
    for (int i = 0; i < 64; i++, at += strlen(at) + 1) {
        T_EQ(at, stk_io_stat_path(io, at, &about, NULL), i == 7 ? -ENOENT : 0);
    }
    T_TRUE("known: nobody is asked but for what failed", atomic_load(&connections) <= 1);
    stk_io_close(io);
}

/* More than there are places, and each is found or forgotten, never another's. */
static void test_known(void)
{
    struct stk_known *known = NULL;
    uint32_t found = 0;

    T_EQ("known", stk_known_open(&known), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        struct stk_about about = {.bytes = i, .etag = "\"e\""};
        char url[32];

        snprintf(url, sizeof url, "s3://b/%u", i);
        stk_known_add(known, url, &about);
    }
    for (uint32_t i = 0; i < 20000; i++) {
        struct stk_about about = {0};
        char url[32];

        snprintf(url, sizeof url, "s3://b/%u", i);
        if (stk_known_find(known, url, &about)) {
            found++;
            T_EQ(url, about.bytes, i);
        }
        if (i % 2) {
            stk_known_forget(known, url);
            T_TRUE(url, !stk_known_find(known, url, &about));
        }
    }
    T_TRUE("nearly all are known", found > 19000);
    stk_known_close(known);
}

static void test_no_memory(const char *url)
{
    uint8_t buffer[64];

    set_fault(NONE, 0, 0);
    for (uint64_t n = 1; n < 60; n++) {
        struct stk_io *io = open_route(TIMEOUT_MS);
        struct stoker_error error = {0};
        struct stk_file *file = NULL;
        int64_t got = 0;
        int status;

        stk_mem_fail_nth(n);
        status = stk_io_open_file(io, url, &file, &error);
        if (status == 0) {
            got = stk_io_read_wait(io, file, 1, buffer, sizeof buffer);
        }
        stk_mem_fail_nth(0);
        T_TRUE("or it works", status == -ENOMEM || (status == 0 && (got == -ENOMEM || got == 64)));
        if (status < 0) {
            check_error("no memory", &error);
        } else {
            stk_io_close_file(io, file);
        }
        stk_io_close(io);
        if (status == 0 && got == 64) {
            T_TRUE("several fail first", n > 3);
            break;
        }
    }
}

int main(void)
{
    char local[] = "/tmp/stoker-route-test-XXXXXX", web[64];
    int fd = mkstemp(local);
    pthread_t server;
    struct stk_io *io, *hasty;

    content = stk_pages_alloc(FILE_BYTES);
    for (uint32_t i = 0; i < FILE_BYTES; i++) {
        content[i] = (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16)) % 0xee;
    }
    T_EQ("a local file", write(fd, content, FILE_BYTES), FILE_BYTES);
    close(fd);
    start_server(&server);
    snprintf(web, sizeof web, "http://127.0.0.1:%d/a/file", port);
    urls[0] = web;
    io = open_route(TIMEOUT_MS);
    hasty = open_route(HASTY_MS);
    for (size_t i = 0; i < STK_COUNT(urls); i++) {
        test_files(io, urls[i]);
        test_queue(io, urls[i], local);
        test_close(io, urls[i]);
        T_EACH(row, row, rows)
        {
            /* What can only fail at the deadline does so soon. */
            check_row(row->status < 0 && row->count > 100 ? hasty : io, urls[i], row);
        }
    }
    test_missing(io);
    test_list(io);
    stk_io_close(io);
    stk_io_close(hasty);
    test_expect();
    test_known();
    test_no_memory(web);
    unlink(local);
    stk_pages_free(content, FILE_BYTES);
    shutdown(listener, SHUT_RDWR);
    pthread_join(server, NULL);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
