/* Goal: an upload stores each object completely and once, whatever happens to responses; a refusal
 * is a clear error, and no partial object stays.
 * Method: a small S3 server of this test, with a fault at the n-th request of a kind: its response
 * is lost, is a 200 with an error inside, or belongs to another request. Covers write_request.c,
 * object_put.c, multipart.c, multipart_abort.c, xml_response.c. */
#include "storage/upload/upload.h"

#include "base/crc.h"
#include "base/crypto/digest.h"
#include "base/random.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PART (5u << 20)
#define BYTES (2 * PART + 1000)
#define TIMEOUT_MS 4000u
#define HEADERS_BYTES 128
#define SECOND_NS 1000000000ull
#define CENTURY_NS (3000000000ull * SECOND_NS)

/* SWALLOWED: "200 OK" without any action; MUTE: the same, though the request was carried out.
 * OTHERS and MIXED: likewise, and the answer is the good one to another request. */
enum fault { NONE, LOST, ERROR_200, BUSY, DENIED, CORRUPTED, SWALLOWED, MUTE, OTHERS, MIXED };
enum what { PUT_OBJECT, CREATE, PUT_PART, COMPLETE, ABORT, DELETE_MANY, WHATS };

static struct t_server server;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { /* with lock */
    bool exists;
    uint8_t *body;
    size_t bytes;
    char etag[48];
    uint32_t upload, begun, part_of; /* bits of the open ones; the owners of the parts */
    bool late;                       /* a part arrives after the first abort */
    uint32_t pages;                  /* 1,000 uploads for each, or without an end and the same */
    uint32_t listed;
    uint8_t *parts[3];
    size_t part_bytes[3];
    char part_etags[3][33];
    uint32_t requests[WHATS], sent_parts;
    uint32_t fault, fault_what, fault_nth, fault_count;
    char checksum[64], keys[256];
} world;
static uint8_t *content;

static void hex_md5(const void *data, size_t bytes, char text[33])
{
    uint8_t digest[16];

    stk_md5(data, bytes, digest);
    stk_hex(digest, sizeof digest, text);
}

static bool reply(int fd, const char *line, const char *headers, const char *body)
{
    char text[4096];
    int bytes = snprintf(text, sizeof text, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n%s", line,
                         headers, strlen(body), body);

    return t_send(fd, text, (size_t)bytes);
}

static void keep(uint8_t **to, size_t *to_bytes, const uint8_t *body, size_t bytes)
{
    free(*to);
    *to = malloc(bytes + 1);
    memcpy(*to, body, bytes);
    *to_bytes = bytes;
}

static void complete(void)
{
    uint8_t *all = malloc(3 * (size_t)PART);
    char digests[3 * 16], two[3] = "";
    size_t used = 0;

    for (int i = 0; i < 3; i++) {
        memcpy(all + used, world.parts[i], world.part_bytes[i]);
        used += world.part_bytes[i];
        for (int j = 0; j < 16; j++) {
            memcpy(two, world.part_etags[i] + 2 * j, 2);
            digests[16 * i + j] = (char)strtoul(two, NULL, 16);
        }
    }
    keep(&world.body, &world.bytes, all, used);
    hex_md5(digests, sizeof digests, world.etag);
    snprintf(world.etag + 32, sizeof world.etag - 32, "-3");
    world.exists = true;
    free(all);
}

static bool tell_parts(int fd)
{
    char text[2048] = "<ListPartsResult>";
    size_t end;

    for (int i = 0; i < 3; i++) {
        if (world.parts[i]) {
            size_t used = strlen(text);

            snprintf(text + used, sizeof text - used,
                     "<Part><PartNumber>%d</PartNumber><ETag>&quot;%s&quot;</ETag><Size>%zu</Size>"
                     "</Part>",
                     i + 1, world.part_etags[i], world.part_bytes[i]);
        }
    }
    end = strlen(text);
    snprintf(text + end, sizeof text - end, "</ListPartsResult>");
    return reply(fd, "200 OK", "", text);
}

/* The uploads' ids are "id7", "id8".. */
static uint32_t bit_of(const char *path)
{
    const char *id = strstr(path, "uploadId=id");

    return id ? 1u << (strtoul(id + 11, NULL, 10) - 7) : 0;
}

static bool tell_many(int fd)
{
    static char text[160000];
    char head[128];
    size_t used = (size_t)snprintf(text, sizeof text, "<ListMultipartUploadsResult>");

    for (uint32_t i = 0; i < 1000 && world.listed < world.pages; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "<Upload><Key>key%u</Key><UploadId>i</UploadId><Initiated>2026-01-"
                                 "01T00:00:00.000Z</Initiated></Upload>",
                                 i + (world.pages < 9 ? 1000 * world.listed : 0));
    }
    world.listed++;
    snprintf(text + used, sizeof text - used, "</ListMultipartUploadsResult>");
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", strlen(text));
    return t_send(fd, head, strlen(head)) && t_send(fd, text, strlen(text));
}

static bool tell_uploads(int fd)
{
    char text[2048] = "<ListMultipartUploadsResult>";

    if (world.pages > 0) {
        return tell_many(fd);
    }

    for (uint32_t i = 0; i < 8; i++) {
        size_t used = strlen(text);

        if (world.upload >> i & 1) { /* the sixth was begun a minute later, the seventh before */
            snprintf(text + used, sizeof text - used,
                     "<Upload><Key>key%%2B1</Key><UploadId>id%u</UploadId><Initiated>2026-01-01T"
                     "%s.000Z</Initiated></Upload>",
                     i + 7,
                     i == 6   ? "00:01:00"
                     : i == 7 ? "00:00:00"
                              : "00:00:30");
        }
    }
    snprintf(text + strlen(text), sizeof text - strlen(text), "</ListMultipartUploadsResult>");
    return reply(fd, "200 OK", "", text);
}

/* The subject of a GET: the object's head, parts, or uploads. */
static bool answer_get(int fd, const char *path)
{
    char headers[256];

    if (strstr(path, "uploads")) {
        return tell_uploads(fd);
    }
    if (strstr(path, "uploadId")) {
        return bit_of(path) & world.part_of
                   ? tell_parts(fd)
                   : reply(fd, "200 OK", "", "<ListPartsResult></ListPartsResult>");
    }
    if (!world.exists) {
        return reply(fd, "404 Not Found", "", "<Error><Code>NoSuchKey</Code></Error>");
    }
    snprintf(headers, sizeof headers, "ETag: \"%s\"\r\nContent-Range: bytes 0-0/%zu\r\n",
             world.etag, world.bytes);
    return reply(fd, "206 Partial Content", headers, "x");
}

static bool answer_others(int fd, uint32_t what)
{
    return reply(fd, "200 OK",
                 "ETag: \"11111111111111111111111111111111\"\r\n"
                 "x-amz-checksum-crc64nvme: AAAAAAAAAAE=\r\n",
                 what == COMPLETE ? "<CompleteMultipartUploadResult><Bucket>bucket</Bucket>"
                                    "<Key>another</Key></CompleteMultipartUploadResult>"
                                  : "");
}

static bool refuse(int fd, uint32_t fault)
{
    const char *busy = "<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>";

    return fault == ERROR_200 ? reply(fd, "200 OK", "", busy)
           : fault == BUSY
               ? reply(fd, "503 Slow Down", "", busy)
               : reply(fd, "403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>");
}

static uint32_t what_of(const char *method, const char *path)
{
    return strcmp(method, "DELETE") == 0 ? ABORT
           : strcmp(method, "PUT") == 0  ? strstr(path, "partNumber") ? PUT_PART : PUT_OBJECT
           : strstr(path, "uploadId")    ? COMPLETE
           : strstr(path, "uploads")     ? CREATE
                                         : DELETE_MANY;
}

/* The effect on the simulated store; the other fields of the answer. */
static void change(const char *path, uint32_t what, struct stk_view body, char *headers,
                   char *begun)
{
    if (what == PUT_OBJECT) {
        keep(&world.body, &world.bytes, body.data, body.bytes);
        hex_md5(body.data, body.bytes, world.etag);
        world.exists = true;
        snprintf(headers, HEADERS_BYTES, "ETag: \"%s\"\r\n", world.etag);
    } else if (what == PUT_PART) {
        int part = (int)strtol(strstr(path, "partNumber=") + 11, NULL, 10) - 1;

        keep(&world.parts[part], &world.part_bytes[part], body.data, body.bytes);
        hex_md5(body.data, body.bytes, world.part_etags[part]);
        snprintf(headers, HEADERS_BYTES, "ETag: \"%s\"\r\n", world.part_etags[part]);
        world.sent_parts++;
        world.part_of |= bit_of(path);
    } else if (what == CREATE) {
        snprintf(headers, HEADERS_BYTES, "Date: Thu, 01 Jan 2026 00:00:30 GMT\r\n");
        snprintf(begun, HEADERS_BYTES,
                 "<InitiateMultipartUploadResult><UploadId>id%u</UploadId>"
                 "</InitiateMultipartUploadResult>",
                 7 + world.begun);
        world.upload |= 1u << world.begun++;
    } else if (what == COMPLETE) {
        complete();
        world.upload &= ~bit_of(path);
    } else if (what == ABORT && bit_of(path)) {
        world.upload &= ~(world.late ? 0 : bit_of(path));
        world.late = false;
    } else if (what == ABORT) {
        world.exists = false;
    } else {
        snprintf(world.keys, sizeof world.keys, "%.*s", (int)body.bytes, (const char *)body.data);
    }
}

static bool answer_write(int fd, const char *head, const char *path, uint32_t what,
                         struct stk_view body)
{
    uint32_t number = world.requests[what]++, fault = NONE;
    const char *sum = strcasestr(head, "x-amz-checksum-crc64nvme: ");
    char headers[HEADERS_BYTES] = "", begun[HEADERS_BYTES];
    bool fresh = strcasestr(head, "If-None-Match: *") != NULL;

    if (what == world.fault_what && number >= world.fault_nth &&
        number < world.fault_nth + world.fault_count) {
        fault = world.fault;
    }
    if (fault == ERROR_200 || fault == BUSY || fault == DENIED) {
        return refuse(fd, fault);
    }
    if (fault == SWALLOWED || fault == OTHERS) {
        return fault == OTHERS ? answer_others(fd, what) : reply(fd, "200 OK", "", "");
    }
    if (sum) {
        sscanf(sum + 26, "%63s", world.checksum);
    }
    if ((what == PUT_OBJECT || what == COMPLETE) && fresh && world.exists) {
        return reply(fd, "412 Precondition Failed", "",
                     "<Error><Code>PreconditionFailed</Code></Error>");
    }
    if ((what == PUT_PART || what == COMPLETE || (what == ABORT && bit_of(path))) &&
        !(world.upload & bit_of(path))) {
        return reply(fd, "404 Not Found", "", "<Error><Code>NoSuchUpload</Code></Error>");
    }
    change(path, what, body, headers, begun);
    if (fault == LOST) {
        return false;
    }
    if (fault == MUTE || fault == MIXED) {
        return fault == MIXED ? answer_others(fd, what) : reply(fd, "200 OK", "", "");
    }
    return reply(fd, what == ABORT ? "204 No Content" : "200 OK", headers,
                 what == CREATE     ? begun
                 : what == COMPLETE ? "  \n<CompleteMultipartUploadResult>"
                                      "</CompleteMultipartUploadResult>"
                 : what == DELETE_MANY
                     ? fault == CORRUPTED ? "<Delete" : "<DeleteResult></DeleteResult>"
                     : "");
}

static void serve(int fd)
{
    char *head = malloc(PART + 65536), method[16], path[1024];
    size_t bytes, head_bytes;
    bool on = true;

    while (on && (bytes = t_read_request(fd, head, PART + 65536, &head_bytes)) > 0) {
        sscanf(head, "%15s %1023s", method, path);
        head[head_bytes - 1] = '\0';
        pthread_mutex_lock(&lock);
        on =
            strcmp(method, "GET") == 0
                ? answer_get(fd, path)
                : answer_write(fd, head, path, what_of(method, path),
                               (struct stk_view){(uint8_t *)head + head_bytes, bytes - head_bytes});
        pthread_mutex_unlock(&lock);
    }
    free(head);
}

static void reset(uint32_t what, uint32_t nth, uint32_t count, uint32_t fault)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 3; i++) {
        free(world.parts[i]);
    }
    free(world.body);
    memset(&world, 0, sizeof world);
    world.fault = fault;
    world.fault_what = what;
    world.fault_nth = nth;
    world.fault_count = count;
    pthread_mutex_unlock(&lock);
}

static int upload(struct stk_store *store, const struct stk_object_url *object,
                  const struct stk_upload_options *options, int *resumed,
                  struct stoker_error *error)
{
    struct stk_upload *upload_of = NULL;
    int status = stk_upload_open(&upload_of, store, object, BYTES, options, error);

    *resumed = 0;
    for (uint32_t i = 3; status >= 0 && i-- > 0;) { /* from behind: the order is no matter */
        status = stk_upload_send_part(
            upload_of, i,
            (struct stk_view){content + i * (size_t)PART, i == 2 ? BYTES - 2 * PART : PART}, error);
        *resumed += status == 1;
    }
    status = status < 0 ? status : stk_upload_commit(upload_of, error);
    stk_upload_close(upload_of, status < 0);
    return status;
}

static bool is_there(size_t bytes)
{
    return world.exists && world.bytes == bytes && memcmp(world.body, content, bytes) == 0;
}

static const struct row {
    const char *name;
    uint32_t what, nth, count, fault;
    bool fresh;
    int want;
} rows[] = {
    {"put", WHATS, 0, 0, NONE, false, 0},
    {"put, the answer is lost", PUT_OBJECT, 0, 1, LOST, false, 0},
    {"put of a new one, the answer is lost", PUT_OBJECT, 0, 1, LOST, true, 0},
    {"put, busy", PUT_OBJECT, 0, 2, BUSY, false, 0},
    {"put, denied", PUT_OBJECT, 0, 99, DENIED, false, -EACCES},
    {"put, swallowed", PUT_OBJECT, 0, 1, SWALLOWED, false, STOKER_ERROR_CORRUPT},
    {"put, another's answer", PUT_OBJECT, 0, 1, OTHERS, false, STOKER_ERROR_CORRUPT},
    {"parts", WHATS, 0, 0, NONE, false, 0},
    {"begin, the answer is lost", CREATE, 0, 1, LOST, false, 0},
    {"begin, the answer is lost twice", CREATE, 0, 2, LOST, false, 0},
    {"begin, 200 with an error", CREATE, 0, 1, ERROR_200, false, 0},
    {"a part, the answer is lost", PUT_PART, 1, 1, LOST, false, 0},
    {"a part, busy", PUT_PART, 1, 2, BUSY, false, 0},
    {"a part, denied", PUT_PART, 1, 99, DENIED, false, -EACCES},
    {"a part, swallowed", PUT_PART, 1, 1, SWALLOWED, false, STOKER_ERROR_CORRUPT},
    {"a part, another's answer", PUT_PART, 1, 1, OTHERS, false, STOKER_ERROR_CORRUPT},
    {"begin, swallowed", CREATE, 0, 1, SWALLOWED, false, STOKER_ERROR_CORRUPT},
    {"the end, the answer is lost", COMPLETE, 0, 1, LOST, false, 0},
    {"the end of a new one, the answer is lost", COMPLETE, 0, 1, LOST, true, 0},
    {"the end, 200 with an error", COMPLETE, 0, 2, ERROR_200, false, 0},
    {"the end, busy", COMPLETE, 0, 1, BUSY, false, 0},
    {"the end, denied", COMPLETE, 0, 99, DENIED, false, -EACCES},
    {"the end, swallowed", COMPLETE, 0, 1, SWALLOWED, false, STOKER_ERROR_CORRUPT},
    {"the end, another's answer", COMPLETE, 0, 1, OTHERS, false, STOKER_ERROR_CORRUPT},
    {"the end, done, and another's answer", COMPLETE, 0, 1, MIXED, false, 0},
    {"the end, done without a word", COMPLETE, 0, 1, MUTE, false, 0},
};

static void test_faults(struct stk_store *store, const struct stk_object_url *object)
{
    T_EACH(row, row, rows)
    {
        struct stk_upload_options options = {.part_bytes = PART, .if_absent = row->fresh};
        struct stoker_error error = {0};
        bool single = row->what == PUT_OBJECT || row == rows;
        int resumed, status;

        reset(row->what, row->nth, row->count, row->fault);
        status = single ? stk_upload_put(store, object, (struct stk_view){content, 1000}, &options,
                                         &error)
                        : upload(store, object, &options, &resumed, &error);
        T_EQ(row->name, status, row->want);
        T_EQ(row->name, is_there(single ? 1000 : BYTES), row->want == 0);
        T_EQ(row->name, world.upload, 0); /* no part is left that costs money */
        if (row->want < 0) {
            T_ERROR(row->name, &error);
        }
    }
}

static void test_foreign_upload(struct stk_store *store, const struct stk_object_url *object)
{
    struct stk_upload_options options = {.part_bytes = PART, .resume = true};
    struct stoker_error error = {0};
    struct stk_upload *begun = NULL;
    struct stk_object_url bucket = *object;
    uint64_t swept = 0;
    int resumed;

    bucket.key = "";

    reset(WHATS, 0, 0, NONE);
    T_EQ("begin", stk_upload_open(&begun, store, object, BYTES, &options, &error), 0);
    for (uint32_t i = 0; i < 2; i++) {
        T_EQ("part",
             stk_upload_send_part(begun, i, (struct stk_view){content + i * (size_t)PART, PART},
                                  &error),
             0);
    }
    stk_upload_close(begun, false); /* as a kill leaves it */
    world.parts[1][7] ^= 1;         /* one of them is of another file */
    hex_md5(world.parts[1], world.part_bytes[1], world.part_etags[1]);
    T_EQ("goes on", upload(store, object, &options, &resumed, &error), 0);
    T_EQ("equal parts are reused", resumed, 1);
    T_EQ("the rest is sent", world.sent_parts, 4);
    T_TRUE("complete", is_there(BYTES));

    reset(WHATS, 0, 0, NONE);
    world.upload = 1;
    T_EQ("sweep, younger", stk_upload_abort_older(store, &bucket, CENTURY_NS, &swept, &error), 0);
    T_TRUE("stays", swept == 0 && world.upload);
    T_EQ("sweep", stk_upload_abort_older(store, &bucket, SECOND_NS, &swept, &error), 0);
    T_TRUE("aborted", swept == 1 && !world.upload);

    reset(WHATS, 0, 0, NONE); /* all too young */
    world.pages = 3;
    T_EQ("pages", stk_upload_abort_older(store, &bucket, CENTURY_NS, &swept, &error), 0);
    T_EQ("pages", world.listed, 4);
    world.pages = 500; /* a server that does not heed where a page is to begin */
    world.listed = 0;
    T_EQ("for ever", stk_upload_abort_older(store, &bucket, CENTURY_NS, &swept, &error),
         STOKER_ERROR_CORRUPT);
    T_ERROR("for ever", &error);
    T_EQ("requested twice", world.listed, 2);
}

/* If the object must be new, an object that another writer makes during the upload stays. */
static void test_fresh_meanwhile(struct stk_store *store, const struct stk_object_url *object)
{
    for (int fresh = 0; fresh < 2; fresh++) {
        struct stk_upload_options options = {.part_bytes = PART, .if_absent = fresh};
        struct stoker_error error = {0};
        struct stk_upload *begun = NULL;

        reset(WHATS, 0, 0, NONE);
        T_EQ("begin", stk_upload_open(&begun, store, object, BYTES, &options, &error), 0);
        for (uint32_t i = 0; i < 3; i++) {
            struct stk_view part = {content + i * (size_t)PART, i < 2 ? PART : BYTES - 2 * PART};

            T_EQ("part", stk_upload_send_part(begun, i, part, &error), 0);
        }
        keep(&world.body, &world.bytes, content, 7);
        snprintf(world.etag, sizeof world.etag, "another");
        world.exists = true;
        T_EQ("end", stk_upload_commit(begun, &error), fresh ? -EEXIST : 0);
        T_TRUE("what is there", is_there(fresh ? 7 : BYTES));
        if (fresh) {
            T_ERROR("end", &error);
        }
        stk_upload_close(begun, true);
        T_EQ("nothing is left", world.upload, 0);
    }
}

/* Uploads of the same object: those that tries of this one have left go, of others none. */
static void test_left(struct stk_store *store, const struct stk_object_url *object)
{
    struct stk_upload_options options = {.part_bytes = PART};
    struct stk_view part = {content, PART};
    struct stoker_error error = {0};
    struct stk_upload *begun = NULL;
    int resumed;

    reset(CREATE, 0, 1, LOST);
    world.upload = 0xe0; /* of other programs: with a part, a minute later, and before */
    world.part_of = 0x20;
    T_EQ("begun twice", upload(store, object, &options, &resumed, &error), 0);
    T_TRUE("complete", is_there(BYTES));
    T_EQ("the empty one of then goes", world.upload, 0xe0);
    reset(CREATE, 0, 1, LOST);
    world.upload = 0xf0; /* and an empty one of then: only one can be ours */
    world.part_of = 0x20;
    T_EQ("begun twice", upload(store, object, &options, &resumed, &error), 0);
    T_EQ("the server does not report the owner", world.upload, 0xf1);
    reset(WHATS, 0, 0, NONE);
    world.upload = 0xf0;
    T_EQ("begun once", upload(store, object, &options, &resumed, &error), 0);
    T_EQ("nothing is touched", world.upload, 0xf0);

    reset(PUT_PART, 0, 1, LOST);
    T_EQ("open", stk_upload_open(&begun, store, object, BYTES, &options, &error), 0);
    T_EQ("part, again", stk_upload_send_part(begun, 0, part, &error), 0);
    world.late = true;
    stk_upload_close(begun, true);
    T_EQ("a try that comes behind the abort is removed", world.upload, 0);
    reset(WHATS, 0, 0, NONE);
    T_EQ("open", stk_upload_open(&begun, store, object, BYTES, &options, &error), 0);
    T_EQ("part", stk_upload_send_part(begun, 0, part, &error), 0);
    stk_upload_close(begun, true);
    T_TRUE("aborted once", world.upload == 0 && world.requests[ABORT] == 1);
}

static void test_rest(struct stk_store *store, const struct stk_object_url *object)
{
    struct stk_upload_options options = {.part_bytes = PART,
                                         .check = STK_UPLOAD_CHECKSUM_CRC64NVME};
    struct stoker_error error = {0};
    uint64_t crc = stk_crc64(0, content, BYTES);
    uint8_t sum[8];
    char text[STK_BASE64_BYTES];
    int resumed;

    reset(WHATS, 0, 0, NONE);
    T_EQ("checked", upload(store, object, &options, &resumed, &error), 0);
    for (int i = 0; i < 8; i++) {
        sum[i] = (uint8_t)(crc >> (56 - 8 * i));
    }
    stk_base64(sum, 8, text);
    T_STR("the checksum of the object, from those of the parts", world.checksum, text);
    options.if_absent = true;
    T_EQ("is there", upload(store, object, &options, &resumed, &error), -EEXIST);
    T_ERROR("is there", &error);
    T_EQ("is there", stk_upload_put(store, object, (struct stk_view){content, 5}, &options, &error),
         -EEXIST);
    T_TRUE("and stays", is_there(BYTES));

    T_EQ("remove many", stk_upload_remove_many(store, object, "a&<b\0c\0", 2, &error), 0);
    T_HAS("quoted", world.keys, "<Object><Key>a&#38;&#60;b</Key></Object><Object><Key>c</Key>");
    reset(DELETE_MANY, 0, 99, CORRUPTED);
    T_EQ("no answer", stk_upload_remove_many(store, object, "a\0", 1, &error),
         STOKER_ERROR_CORRUPT);
    T_ERROR("no answer", &error);
    reset(DELETE_MANY, 0, 99, DENIED);
    T_EQ("denied", stk_upload_remove_many(store, object, "a\0", 1, &error), -EACCES);
}

/* How a body is verified, as the settings say; and the header that names the source of a copy. */
static void test_proofs(void)
{
    static const struct proof {
        const char *name, *endpoint, *variable; /* of the checksums of requests */
        uint32_t check;
        bool is_signed;
    } proofs[] = {
        {"Amazon's", "", "", STK_UPLOAD_CHECKSUM_CRC64NVME, false},
        {"where it must", "", "when_required", STK_UPLOAD_CHECKSUM_AUTO, true},
        {"one's own", "https://host", "", STK_UPLOAD_CHECKSUM_AUTO, true},
    };
    static const struct source {
        const char *url, *text;
    } sources[] = {
        {"s3://b/a b", "b/a%20b"},
        {"s3://b/a?versionId=x+/", "b/a%3FversionId%3Dx%2B/"},
        {"s3://b/a?b?versionId=x+1", "b/a%3Fb?versionId=x%2B1"},
        {"s3://arn:aws:s3:us-west-2:123456789012:accesspoint/p/a/b",
         "arn%3Aaws%3As3%3Aus-west-2%3A123456789012%3Aaccesspoint/p/object/a/b"},
    };
    const struct stk_store_options options = {.timeout_ms = TIMEOUT_MS, .unshared = true};

    T_EACH(proof, row, proofs)
    {
        struct stk_store *store = NULL;
        struct stk_body_checksum proof;

        setenv("AWS_ENDPOINT_URL", row->endpoint, 1);
        setenv("AWS_REQUEST_CHECKSUM_CALCULATION", row->variable, 1);
        T_EQ(row->name, stk_store_open(&store, &options, NULL), 0);
        stk_body_checksum_init(&proof, store, STK_UPLOAD_CHECKSUM_AUTO,
                               (struct stk_view){content, 10});
        T_EQ(row->name, proof.check, row->check);
        T_EQ(row->name, proof.payload[0] != 0, row->is_signed);
        stk_store_close(store);
    }
    unsetenv("AWS_REQUEST_CHECKSUM_CALCULATION");
    T_EACH(source, row, sources)
    {
        struct stk_object_url *object = NULL;
        char text[128];

        T_EQ(row->url, stk_object_url_parse(row->url, &object, NULL), 0);
        T_TRUE(row->url, stk_write_request_copy_source(object, text, sizeof text));
        T_STR(row->url, text, row->text);
        T_TRUE(row->url, !stk_write_request_copy_source(object, text, strlen(row->text)));
        stk_object_url_free(object);
    }
}

int main(void)
{
    struct stk_store_options options = {.timeout_ms = TIMEOUT_MS, .seed = 3};
    struct stoker_error error = {0};
    struct stk_object_url *object = NULL;
    struct stk_store *store = NULL;
    char endpoint[64], cache[] = "/tmp/stoker-upload-XXXXXX", command[64];

    T_TRUE("folder", mkdtemp(cache) != NULL);
    setenv("STOKER_CACHE", cache, 1);
    content = malloc(BYTES);
    for (uint32_t i = 0; i < BYTES; i++) {
        content[i] = (uint8_t)stk_random_key(11, i / 3);
    }
    test_proofs();
    t_server_start(&server, serve);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    T_EQ("place", stk_object_url_parse("s3://bucket/key+1", &object, &error), 0);
    T_EQ("store", stk_store_open(&store, &options, &error), 0);
    test_faults(store, object);
    test_foreign_upload(store, object);
    test_fresh_meanwhile(store, object);
    test_left(store, object);
    test_rest(store, object);
    stk_store_close(store);
    stk_object_url_free(object);
    t_server_stop(&server);
    reset(0, 0, 0, 0);
    free(content);
    snprintf(command, sizeof command, "rm -rf %s", cache);
    T_EQ("clean", system(command), 0);
    return t_finish();
}
