/* Goal: an unfinished upload is continued, page by page, only if this user's stoker began it; parts
 * that the server reports are compared with the bytes; requests have the right conditions, ranges
 * and checksums.
 * Method: a server with scripted responses that records its requests. Covers multipart.c,
 * multipart_resume.c, multipart_list.c, upload_record.c, object_put.c, xml_response.c. */
#include "storage/upload/upload.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "storage/upload/upload_record.h"
#include "storage/upload/xml_response.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PART (5u << 20)
#define PARTS 1200u
#define LOG_BYTES (1u << 18)
#define PAGE_BYTES (1u << 18)

/* The first step whose method and words fit answers. Headers may follow the status; "503" is sent
 * once. */
struct reply {
    const char *method, *words, *status, *body;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct reply *replies;
static size_t reply_count;
static uint32_t used_up; /* bits of those that are used up */
static char log_text[LOG_BYTES];
static uint8_t part[PART];
static char md5[33];

/* Two bodies that are too long to be written by hand. */
static char first_page[PAGE_BYTES], last_page[4096];

static void answer(int fd, const char *head)
{
    const char *status = "400 Bad Request", *body = "";
    size_t used = strlen(log_text);
    char text[256];

    snprintf(log_text + used, sizeof log_text - used, "%.4000s\n", head);
    for (size_t i = 0; i < reply_count; i++) {
        const char *end = strchr(head, '\r'), *words = strstr(head, replies[i].words);

        if (strncmp(head, replies[i].method, strlen(replies[i].method)) == 0 && words &&
            words < end && !(used_up >> i & 1)) {
            used_up |= (uint32_t)(replies[i].status[0] == '5') << i;
            status = replies[i].status;
            body = replies[i].body;
            break;
        }
    }
    snprintf(text, sizeof text, "HTTP/1.1 %s\r\nETag: \"%s\"\r\nContent-Length: %zu\r\n\r\n",
             status, md5, strlen(body));
    (void)(t_send(fd, text, strlen(text)) && t_send(fd, body, strlen(body)));
}

static void serve(int fd)
{
    char *head = malloc(PART + 65536);

    while (t_read_request(fd, head, PART + 65536, NULL) > 0) {
        pthread_mutex_lock(&lock);
        answer(fd, head);
        pthread_mutex_unlock(&lock);
    }
    free(head);
}

static void script(const struct reply *rows, size_t count)
{
    pthread_mutex_lock(&lock);
    replies = rows;
    reply_count = count;
    used_up = 0;
    log_text[0] = '\0';
    pthread_mutex_unlock(&lock);
}

static uint32_t requests_with(const char *words)
{
    uint32_t count = 0;

    for (const char *at = log_text; (at = strstr(at, words)); at++) {
        count++;
    }
    return count;
}

#define UPLOAD(key, id, day, more)                                                                 \
    "<Upload><Key>" key "</Key><UploadId>" id "</UploadId><Initiated>2026-01-0" day                \
    "T00:00:00.000Z</Initiated>" more "</Upload>"

/* Uploads of the object that other programs began, one of them youngest. */
static const char uploads[] = "<ListMultipartUploadsResult>" UPLOAD("key%2B1", "foreign", "3", "")
    UPLOAD("key%2B1", "foreign2", "9", "<StorageClass>STANDARD</StorageClass>")
        UPLOAD("key%2B12", "other", "9", "") "</ListMultipartUploadsResult>";
static const char begun[] = "<InitiateMultipartUploadResult><UploadId>new</UploadId>"
                            "</InitiateMultipartUploadResult>";
static const char none[] = "<ListPartsResult></ListPartsResult>";

#define PART_ROW                                                                                   \
    "<Part><PartNumber>%s</PartNumber><ETag>&quot;%s&quot;</ETag><Size>%u</Size></Part>"

static void add_part(char *page, size_t bytes, const char *number, const char *etag, uint32_t size)
{
    size_t used = strlen(page);

    snprintf(page + used, bytes - used, PART_ROW, number, etag, size);
}

static void write_pages(void)
{
    uint8_t digest[16];
    char number[12];

    stk_md5(part, PART, digest);
    stk_hex(digest, sizeof digest, md5);
    snprintf(first_page, sizeof first_page, "<ListPartsResult>");
    for (uint32_t i = 1; i <= 1000; i++) { /* the second has another size, others differ */
        snprintf(number, sizeof number, "%u", i);
        add_part(first_page, sizeof first_page, number,
                 i <= 2 ? md5 : "00000000000000000000000000000000", i == 2 ? PART - 1 : PART);
    }
    snprintf(first_page + strlen(first_page), 32, "</ListPartsResult>");
    snprintf(last_page, sizeof last_page, "<ListPartsResult>");
    add_part(last_page, sizeof last_page, "1001", md5, PART);
    add_part(last_page, sizeof last_page, "0", md5, PART);
    add_part(last_page, sizeof last_page, "1201", md5, PART);
    add_part(last_page, sizeof last_page, "4000000000", md5, PART);
    snprintf(last_page + strlen(last_page), 32, "</ListPartsResult>");
}

static struct stk_upload *open_upload(const char *name, struct stk_store *store,
                                      const struct stk_object_url *object,
                                      const struct stk_upload_options *more)
{
    struct stk_upload_options options = *more;
    struct stoker_error error = {0};
    struct stk_upload *upload = NULL;

    options.resume = true;
    options.part_bytes = PART;
    T_EQ(name, stk_upload_open(&upload, store, object, (uint64_t)PARTS * PART, &options, &error),
         0);
    return upload;
}

static void check_id(const char *name, struct stk_upload *upload, const char *id)
{
    struct stoker_error error = {0};
    char words[64];

    snprintf(words, sizeof words, "partNumber=2&uploadId=%s ", id);
    T_EQ(name, stk_upload_send_part(upload, 1, (struct stk_view){part, PART}, &error), 0);
    T_EQ(name, requests_with(words), 1);
}

/* Closes without abort: as a run that ends early. */
static void resume(const char *name, struct stk_store *store, const struct stk_object_url *object,
                   const struct stk_upload_options *options, uint32_t pages, const char *id)
{
    struct stk_upload *upload = open_upload(name, store, object, options);
    struct stoker_error error = {0};
    bool created = requests_with("POST ") == 1, last = replies[1].body == last_page;

    T_EQ(name, requests_with("part-number-marker="), pages);
    T_EQ(name, created, pages == 0 || replies[1].body == begun || replies[2].body == begun);
    check_id(name, upload, id);
    if (pages == 2 && !created) { /* the last part is on the second page */
        T_EQ(name, stk_upload_send_part(upload, 0, (struct stk_view){part, PART}, &error), 1);
        T_EQ(name, stk_upload_send_part(upload, 2, (struct stk_view){part, PART}, &error), 0);
        T_EQ(name, stk_upload_send_part(upload, 1000, (struct stk_view){part, PART}, &error), last);
    }
    stk_upload_close(upload, false);
    T_EQ(name, requests_with("DELETE "), 0);
}

static const char begun_next[] = "<InitiateMultipartUploadResult><UploadId>next</UploadId>"
                                 "</InitiateMultipartUploadResult>";

/* The server lists two uploads of other programs; none of them is used, and their parts are not
 * listed. */
static void test_foreign(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply rows[] = {
        {"GET", "uploadId=foreign", "200 OK", first_page},
        {"GET", "uploads", "200 OK", uploads},
        {"POST", "uploads", "200 OK", begun},
        {"PUT", "partNumber", "200 OK", ""},
    };
    struct stk_upload_options options = {0};
    struct stk_upload *upload;

    script(rows, STK_COUNT(rows));
    upload = open_upload("foreign", store, object, &options);
    T_EQ("foreign: a new upload", requests_with("POST "), 1);
    T_EQ("foreign: no parts of others", requests_with("uploadId=foreign"), 0);
    check_id("foreign", upload, "new");
    stk_upload_close(upload, true);
    script(rows, STK_COUNT(rows));
    upload = open_upload("after an abort", store, object, &options);
    T_EQ("after an abort", requests_with("POST "), 1);
    stk_upload_close(upload, true);
}

/* Two copies to one key at the same time have one upload each; the next one continues the younger.
 */
static void test_concurrent(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply first[] = {{"POST", "uploads", "200 OK", begun}};
    static const struct reply second[] = {{"POST", "uploads", "200 OK", begun_next}};
    static const struct reply gone[] = {
        {"GET", "uploadId=new", "404 Not Found", "<Error><Code>NoSuchUpload</Code></Error>"},
        {"POST", "uploads", "200 OK", begun_next},
    };
    static const struct reply third[] = {
        {"GET", "uploadId=next", "200 OK", none},
        {"PUT", "partNumber", "200 OK", ""},
    };
    struct stk_upload_options options = {0};
    struct stk_upload *uploads_open[2];

    script(first, 1);
    uploads_open[0] = open_upload("first", store, object, &options);
    script(second, 1);
    uploads_open[1] = open_upload("second", store, object, &options);
    T_EQ("second: a new upload", requests_with("POST "), 1);
    stk_upload_close(uploads_open[0], false);
    stk_upload_close(uploads_open[1], false);
    script(third, STK_COUNT(third));
    uploads_open[0] = open_upload("third", store, object, &options);
    check_id("third: continues the younger", uploads_open[0], "next");
    stk_upload_close(uploads_open[0], true);
    script(gone, STK_COUNT(gone)); /* the record of the older is there, its upload is not */
    uploads_open[0] = open_upload("last", store, object, &options);
    stk_upload_close(uploads_open[0], true);
}

static void test_left(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply create[] = {{"POST", "uploads", "200 OK", begun},
                                          {"PUT", "partNumber", "200 OK", ""}};
    static const struct reply pages[] = {
        {"GET", "part-number-marker=0&uploadId=new", "200 OK", first_page},
        {"GET", "part-number-marker=1000&uploadId=new", "200 OK", last_page},
        {"PUT", "partNumber", "200 OK", ""},
    };
    static const struct reply stuck[] = {
        {"GET", "uploadId=new", "200 OK", first_page}, /* whichever page is requested */
        {"GET", "uploads", "200 OK", uploads},
        {"PUT", "partNumber", "200 OK", ""},
    };
    static const struct reply gone[] = {
        {"GET", "uploadId", "404 Not Found", "<Error><Code>NoSuchUpload</Code></Error>"},
        {"POST", "uploads", "200 OK", begun},
        {"PUT", "partNumber", "200 OK", ""},
    };
    static const struct reply half[] = {
        {"GET", "part-number-marker=0&", "200 OK", first_page},
        {"GET", "uploadId", "404 Not Found", "<Error><Code>NoSuchUpload</Code></Error>"},
        {"POST", "uploads", "200 OK", begun},
        {"PUT", "partNumber", "200 OK", ""},
    };
    struct stk_upload_options options = {0};
    struct stk_object_url other = *object;

    script(create, STK_COUNT(create));
    resume("nothing to continue", store, object, &options, 0, "new");
    script(pages, STK_COUNT(pages));
    resume("two pages", store, object, &options, 2, "new");
    script(create, STK_COUNT(create));
    options.storage_class = "GLACIER";
    resume("another class", store, object, &options, 0, "new");
    options.storage_class = NULL;
    options.check = STK_UPLOAD_CHECKSUM_SHA256;
    script(create, STK_COUNT(create));
    resume("another checksum", store, object, &options, 0, "new");
    options.check = STK_UPLOAD_CHECKSUM_AUTO;
    options.encryption = "AES256";
    script(create, STK_COUNT(create));
    resume("encrypted: ETags do not identify parts", store, object, &options, 0, "new");
    options.encryption = NULL;
    other.key = "key+12";
    script(create, STK_COUNT(create));
    resume("another key", store, &other, &options, 0, "new");
    script(stuck, STK_COUNT(stuck));
    resume("a page that repeats", store, object, &options, 2, "new");
    script(half, STK_COUNT(half));
    resume("gone between two pages", store, object, &options, 2, "new");
    script(gone, STK_COUNT(gone));
    resume("gone meanwhile", store, object, &options, 1, "new");
}

/* Others can write the folder of the records: they are not used. */
static void test_folder(struct stk_store *store, const struct stk_object_url *object,
                        const char *folder)
{
    static const struct reply create[] = {{"POST", "uploads", "200 OK", begun},
                                          {"PUT", "partNumber", "200 OK", ""}};
    struct stk_upload_options options = {0};
    char path[300];

    snprintf(path, sizeof path, "%s/uploads", folder);
    T_EQ("chmod", chmod(path, 0777), 0);
    script(create, STK_COUNT(create));
    resume("a folder that others may write", store, object, &options, 0, "new");
    T_EQ("chmod", chmod(path, 0700), 0);
}

static void test_sizes(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply create[] = {{"POST", "uploads", "200 OK", begun}};
    static const struct row {
        const char *name;
        uint64_t bytes, part, want_part;
        uint32_t want_count;
    } rows[] = {
        {"no smaller than S3 takes", 3 * PART, 1, PART, 3},
        {"of whole MiB", 3 * PART, PART + 1, PART + (1u << 20), 3},
        {"as many as may be", 10000ull * PART, PART, PART, 10000},
        {"not one more", 10000ull * PART + 1, PART, PART + (1u << 20), 8334},
        {"the largest", STK_UPLOAD_BYTES_MAX, PART, 525ull << 20, 9987},
    };
    struct stoker_error error = {0};
    struct stk_upload *upload = NULL;

    T_EACH(row, row, rows)
    {
        struct stk_upload_options options = {.part_bytes = row->part};

        script(create, 1);
        T_EQ(row->name, stk_upload_open(&upload, store, object, row->bytes, &options, &error), 0);
        T_EQ(row->name, stk_upload_part_bytes(upload), row->want_part);
        T_EQ(row->name, stk_upload_part_count(upload), row->want_count);
        stk_upload_close(upload, false);
    }
    script(create, 1);
    T_EQ("too large",
         stk_upload_open(&upload, store, object, STK_UPLOAD_BYTES_MAX + 1,
                         &(struct stk_upload_options){0}, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("too large", &error);
    T_EQ("too large: no request", strlen(log_text), 0);
}

/* The contents of requests. */
static void test_words(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply sent[] = {
        {"POST", "uploads", "200 OK", begun},
        {"POST", "uploadId=new", "200 OK",
         "  \n<?xml version=\"1.0\"?>\n<CompleteMultipartUploadResult>"
         "</CompleteMultipartUploadResult>"},
        {"PUT", "partNumber", "200 OK", ""},
    };
    static const struct reply copied[] = {
        {"POST", "uploads", "200 OK", begun},
        {"PUT", "partNumber=2", "200 OK",
         "<CopyPartResult><ETag>&quot;0123&quot;</ETag></CopyPartResult>"},
        {"PUT", "partNumber=3", "200 OK", ""},
        {"PUT", "copy", "200 OK", "<CopyObjectResult></CopyObjectResult>"},
        {"PUT", "swallowed", "200 OK", ""},
    };
    struct stk_upload_options options = {.part_bytes = PART,
                                         .check = STK_UPLOAD_CHECKSUM_CRC64NVME};
    struct stk_object_info info = {.bytes = 3 * PART - 7, .etag = "\"version\""};
    struct stoker_error error = {0};
    struct stk_upload *upload = NULL;
    struct stk_object_url other = *object;

    script(sent, STK_COUNT(sent));
    T_EQ("open", stk_upload_open(&upload, store, object, 2 * PART, &options, &error), 0);
    T_EQ("algorithm", requests_with("x-amz-checksum-type: FULL_OBJECT"), 1);
    for (uint32_t i = 0; i < 2; i++) {
        T_EQ("part", stk_upload_send_part(upload, i, (struct stk_view){part, PART}, &error), 0);
    }
    T_EQ("commit", stk_upload_commit(upload, &error), 0);
    T_EQ("the sum of each part", requests_with("<ChecksumCRC64NVME>"), 2);
    T_EQ("what the sum is of", requests_with("x-amz-checksum-type: FULL_OBJECT"), 2);
    stk_upload_close(upload, true);
    T_EQ("a commit that succeeded is not aborted", requests_with("DELETE "), 0);

    script(copied, STK_COUNT(copied));
    T_EQ("open", stk_upload_open(&upload, store, object, info.bytes, &options, &error), 0);
    T_EQ("copy", stk_upload_copy_part(upload, 1, object, &info, &error), 0);
    T_EQ("a range", requests_with("x-amz-copy-source-range: bytes=5242880-10485759\r"), 1);
    T_EQ("of a version", requests_with("x-amz-copy-source-if-match: \"version\"\r"), 1);
    T_EQ("swallowed", stk_upload_copy_part(upload, 2, object, &info, &error), STOKER_ERROR_CORRUPT);
    T_EQ("the last range", requests_with("x-amz-copy-source-range: bytes=10485760-15728632\r"), 1);
    stk_upload_close(upload, false);

    script(copied, STK_COUNT(copied));
    options.check = STK_UPLOAD_CHECKSUM_AUTO;
    other.key = "copy";
    T_EQ("complete", stk_upload_copy(store, object, &info, &other, &options, &error), 0);
    T_EQ("of a version", requests_with("x-amz-copy-source-if-match: \"version\"\r"), 1);
    other.key = "swallowed";
    T_EQ("swallowed", stk_upload_copy(store, object, &info, &other, &options, &error),
         STOKER_ERROR_CORRUPT);
}

/* Create-only: equal bytes are ours only if an earlier try may have written them: its response was
 * lost. The ETag may be no MD5; an ETag without the size proves nothing. */
static void test_ours(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply others[] = {
        {"PUT", "key", "412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>"},
        {"GET", "key", "206 Partial Content\r\nContent-Range: bytes 0-0/1", "x"},
    };
    static const struct reply throttled[] = {
        {"PUT", "key", "503 Slow Down", "<Error><Code>SlowDown</Code></Error>"},
        {"PUT", "key", "412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>"},
        {"GET", "key", "206 Partial Content\r\nContent-Range: bytes 0-0/1", "x"},
    };
    static const struct reply lost[] = {
        {"PUT", "key", "500 Internal Error", "<Error><Code>InternalError</Code></Error>"},
        {"PUT", "key", "412 Precondition Failed", "<Error><Code>PreconditionFailed</Code></Error>"},
        {"GET", "key", "206 Partial Content\r\nContent-Range: bytes 0-0/1", "x"},
    };
    static const struct {
        const char *name;
        const struct reply *rows;
        size_t count;
        const char *body;
        int want;
    } rows[] = {
        {"another writer, equal bytes", others, STK_COUNT(others), "x", -EEXIST},
        {"another writer, other bytes", others, STK_COUNT(others), "y", -EEXIST},
        {"refused, then another writer", throttled, STK_COUNT(throttled), "x", -EEXIST},
        {"ours, the response was lost", lost, STK_COUNT(lost), "x", 0},
        {"lost, and other bytes", lost, STK_COUNT(lost), "y", -EEXIST},
    };
    struct stk_upload_options options = {.if_absent = true};
    struct stoker_error error = {0};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        script(rows[i].rows, rows[i].count);
        T_EQ(rows[i].name,
             stk_upload_put(store, object, (struct stk_view){(const uint8_t *)rows[i].body, 1},
                            &options, &error),
             rows[i].want);
    }
    script(lost, STK_COUNT(lost));
    T_EQ("another size",
         stk_upload_put(store, object, (struct stk_view){part, PART}, &options, &error), -EEXIST);
    T_ERROR("another size", &error);
}

/* A copy within the store whose server ignores the condition: the object is found before. */
static void test_copy_exclusive(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply rows[] = {
        {"GET", "key", "206 Partial Content\r\nContent-Range: bytes 0-0/1", "x"},
        {"PUT", "key", "200 OK", "<CopyObjectResult></CopyObjectResult>"},
    };
    struct stk_upload_options options = {.if_absent = true};
    struct stk_object_info info = {.bytes = 1, .etag = "\"version\""};
    struct stoker_error error = {0};

    script(rows, STK_COUNT(rows));
    T_EQ("copy", stk_upload_copy(store, object, &info, object, &options, &error), -EEXIST);
    T_EQ("copy: nothing is written", requests_with("PUT "), 0);
    T_ERROR("copy", &error);
}

/* "key+1" has "key+1" and "key+1/..", not "key+12"; ages are by the server's clock, which is a day
 * behind this machine's. */
static void test_older(struct stk_store *store, const struct stk_object_url *object)
{
    static const char listed[] = "<ListMultipartUploadsResult>" UPLOAD("key+1", "old", "1", "")
        UPLOAD("key+1", "young", "3", "") UPLOAD("key+1/x", "below", "1", "")
            UPLOAD("key+12", "beside", "1", "") "</ListMultipartUploadsResult>";
    static const struct reply rows[] = {
        {"GET", "uploads", "200 OK\r\nDate: Sat, 03 Jan 2026 00:00:30 GMT", listed},
        {"DELETE", "uploadId", "204 No Content", ""},
    };
    struct stoker_error error = {0};
    uint64_t count = 7;

    script(rows, STK_COUNT(rows));
    T_EQ("older", stk_upload_abort_older(store, object, 60000000000u, &count, &error), 0);
    T_EQ("older: two", count, 2);
    T_EQ("older: the key", requests_with("uploadId=old"), 1);
    T_EQ("older: below it", requests_with("uploadId=below"), 1);
    T_EQ("older: not beside it", requests_with("uploadId=beside"), 0);
    T_EQ("older: not a young one", requests_with("uploadId=young"), 0);
}

/* An upload that a lost answer may have started is removed; an upload of another object, this one's
 * current upload, or an upload that cannot be inspected never is. */
static void test_twins(struct stk_store *store, const struct stk_object_url *object)
{
    static const char date[] = "200 OK\r\nDate: Sat, 03 Jan 2026 00:00:00 GMT";
    static const char listed[] = "<ListMultipartUploadsResult>" UPLOAD("key%2B1", "new", "3", "")
        UPLOAD("key%2B1", "hidden", "3", "") UPLOAD("key%2B12", "other", "3", "")
            UPLOAD("key%2B1", "twin", "3", "")
                UPLOAD("key%2B1", "old", "1", "") "</ListMultipartUploadsResult>";
    static const struct reply rows[] = {
        {"POST", "uploads", "503 Slow Down", ""},
        {"POST", "uploads", date, begun},
        {"GET", "uploadId=hidden", "403 Forbidden", "<Error><Code>AccessDenied</Code></Error>"},
        {"GET", "uploadId", "200 OK", none},
        {"GET", "uploads", "200 OK", listed},
        {"DELETE", "uploadId", "204 No Content", ""},
    };
    static const struct reply quicker[] = {
        {"GET", "uploads", "200 OK", listed},
        {"DELETE", "uploadId", "404 Not Found", "<Error><Code>NoSuchUpload</Code></Error>"},
    };
    struct stk_upload_options options = {.part_bytes = PART};
    struct stoker_error error = {0};
    struct stk_upload *upload = NULL;
    struct stk_object_url bucket = *object;
    uint64_t count = 7;

    bucket.key = "";
    script(rows, STK_COUNT(rows));
    T_EQ("open", stk_upload_open(&upload, store, object, 2 * PART, &options, &error), 0);
    stk_upload_close(upload, false);
    T_EQ("begun twice", requests_with("POST "), 2);
    T_EQ("one goes", requests_with("DELETE "), 1);
    T_EQ("the twin", requests_with("?uploadId=twin "), 1);
    script(quicker, STK_COUNT(quicker));
    T_EQ("sweep", stk_upload_abort_older(store, &bucket, 1000000000u, &count, &error), 0);
    T_EQ("all were removed", requests_with("DELETE "), 5);
    T_EQ("which others have removed", count, 0);
}

static void test_removed(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply no_key[] = {
        {"DELETE", "", "404 Not Found", "<Error><Code>NoSuchKey</Code></Error>"}};
    static const struct reply no_bucket[] = {
        {"DELETE", "", "404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>"}};
    struct stoker_error error = {0};

    script(no_key, 1);
    T_EQ("not there", stk_upload_remove(store, object, &error), 0);
    script(no_bucket, 1);
    T_TRUE("no bucket is no object that is gone", stk_upload_remove(store, object, &error) < 0);
    T_ERROR("no bucket", &error);
}

/* A request without a key would make a bucket, or remove it. */
static bool has_locks = true;

/* Instead of the C library's: a file system without locks. */
int flock(int fd, int operation)
{
    errno = ENOLCK;
    return has_locks ? (int)syscall(SYS_flock, fd, operation) : -1;
}

static void test_no_locks(const char *cache)
{
    struct stk_view target = {(const uint8_t *)"target", 6}, value = {(const uint8_t *)"id", 2};
    struct stk_upload_record record;
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s/uploads", cache);
    T_EQ("no uploads", system(command), 0);
    has_locks = false;
    T_TRUE("no record", !stk_upload_record_add(&record, target, value));
    snprintf(command, sizeof command, "rmdir %s/uploads", cache);
    T_EQ("nothing is left", system(command), 0);
    has_locks = true;
    T_TRUE("a record", stk_upload_record_add(&record, target, value));
    stk_upload_record_remove(&record);
}

static void test_no_key(struct stk_store *store, const struct stk_object_url *object)
{
    static const struct reply any[] = {{"PUT", "", "200 OK", ""}, {"DELETE", "", "204 Gone", ""}};
    struct stk_upload_options options = {.part_bytes = PART};
    struct stk_object_info info = {.bytes = 1, .etag = "\"version\""};
    struct stk_view body = {part, 1};
    struct stk_upload *upload = NULL;
    struct stk_object_url bucket = *object;
    struct stoker_error error = {0};

    bucket.key = "";
    script(any, STK_COUNT(any));
    T_EQ("put", stk_upload_put(store, &bucket, body, &options, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("copy", stk_upload_copy(store, object, &info, &bucket, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_EQ("remove", stk_upload_remove(store, &bucket, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("parts", stk_upload_open(&upload, store, &bucket, 2 * PART, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("parts", &error);
    T_EQ("no request", requests_with("HTTP/1.1"), 0);
}

/* Invalid answers. */
static int on_item(void *owner, const struct stk_xml_response *answer)
{
    snprintf(owner, 64, "%.60s|", answer->texts[0]);
    return 0;
}

static void test_answers(void)
{
    static char text[STK_XML_RESPONSE_TEXT_BYTES + 64], deep[16 * STK_XML_DEPTH_MAX];
    struct stk_xml_response *answer = stk_alloc(1, sizeof *answer);
    char found[64] = "none", etag[8], quoted[64] = "";
    size_t used = 0;
    const char *doctype = "<!DOCTYPE r [<!ENTITY a 'b'>]><r><i><k>&a;</k></i></r>";

    *answer = (struct stk_xml_response){
        .root = "r", .item = "i", .names = {"k"}, .on_item = on_item, .owner = found};
    T_EQ("doctype",
         stk_xml_response_parse(answer,
                                (struct stk_view){(const uint8_t *)doctype, strlen(doctype)}),
         STOKER_ERROR_CORRUPT);
    T_STR("doctype", found, "none");
    snprintf(text, sizeof text, "<r><i><k>a&#98;%0*d</k></i></r>",
             (int)STK_XML_RESPONSE_TEXT_BYTES + 1, 1);
    T_EQ("long", stk_xml_response_parse(answer, (struct stk_view){(uint8_t *)text, strlen(text)}),
         0);
    T_STR("a text that is too long is none, and never the first of it", found, "|");
    for (size_t i = 0; i < 2 * STK_XML_DEPTH_MAX; i++) {
        snprintf(deep + 3 * i, sizeof deep - 3 * i, "<r>");
    }
    for (size_t i = 0, at = strlen(deep); i < 2 * STK_XML_DEPTH_MAX; i++, at += 4) {
        snprintf(deep + at, sizeof deep - at, "</r>");
    }
    T_EQ("deep", stk_xml_response_parse(answer, (struct stk_view){(uint8_t *)deep, strlen(deep)}),
         STOKER_ERROR_CORRUPT);
    stk_xml_response_copy_etag("\"123456789\"", etag, sizeof etag);
    T_STR("an ETag that is too long", etag, "");
    T_TRUE("quoted", stk_xml_escape("a\nb", quoted, sizeof quoted, &used));
    T_STR("quoted", quoted, "a&#10;b");
    stk_free(answer);
}

int main(void)
{
    struct stk_store_options options = {.timeout_ms = 20000, .seed = 3};
    struct stoker_error error = {0};
    struct stk_object_url *object = NULL;
    struct stk_store *store = NULL;
    char endpoint[64], cache[] = "/tmp/stoker-upload-XXXXXX", command[64];
    struct t_server server;

    T_TRUE("folder", mkdtemp(cache) != NULL);
    setenv("STOKER_CACHE", cache, 1);
    write_pages();
    t_server_start(&server, serve);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    T_EQ("place", stk_object_url_parse("s3://bucket/key+1", &object, &error), 0);
    T_EQ("store", stk_store_open(&store, &options, &error), 0);
    test_foreign(store, object);
    test_concurrent(store, object);
    test_left(store, object);
    test_folder(store, object, cache);
    test_sizes(store, object);
    test_words(store, object);
    test_ours(store, object);
    test_copy_exclusive(store, object);
    test_older(store, object);
    test_twins(store, object);
    test_removed(store, object);
    test_no_key(store, object);
    test_answers();
    test_no_locks(cache);
    stk_store_close(store);
    stk_object_url_free(object);
    t_server_stop(&server);
    snprintf(command, sizeof command, "rm -rf %s", cache);
    T_EQ("clean", system(command), 0);
    return t_finish();
}
