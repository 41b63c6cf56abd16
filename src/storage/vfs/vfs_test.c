/* Goal: a file behind a URL behaves like a local one: the same bytes, sizes and errors, whatever
 * the server does. Never bytes of another version, never a hang, never a secret in an error.
 * Method: a server of this test injects faults into its n-th responses; the calls are those of
 * dataset, loader and scan: open, stat, list, read_wait, queues. Covers vfs.c, vfs_store.c,
 * lazy_store.c, metadata_cache.c, remote_file.c, remote_checksum.c, range_read.c, vfs_queue.c,
 * batch_lookup.c; of storage/object operation.c, signed_request.c, object_list.c, object_read.c,
 * object_url.c. */
#include "storage/vfs/vfs_test.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"

#include <fcntl.h>
#include <stdlib.h>

/* calm: has more time, for cases that are too slow on a busy machine; NULL: there is none. */
static void check_row(struct stk_io *io, struct stk_io *calm, const char *url,
                      const struct row *row)
{
    uint8_t *buffer = stk_pages_alloc(FILE_BYTES);
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    uint64_t began_ns = stk_clock_ns();
    int64_t got;

    set_fault(row->fault, row->from, row->count);
    memset(buffer, 0xee, FILE_BYTES);
    T_EQ(row->name, stk_io_open_file(io, url, &file, &error), 0);
    stk_remote_checksum_wait(&stk_remote_file_of(file)->checksum);
    got = stk_io_read_wait(file, 0, buffer, FILE_BYTES);
    if (got == STOKER_ERROR_TIMEOUT && row->status != got && calm) {
        stk_io_close_file(file);
        stk_pages_free(buffer, FILE_BYTES);
        check_row(calm, NULL, url, row);
        return;
    }
    T_EQ(row->name, got, row->status < 0 ? row->status : (int64_t)FILE_BYTES);
    T_TRUE(row->name, got < 0 || memcmp(buffer, content, FILE_BYTES) == 0);
    /* Bytes that were not requested, or are of another version, are nowhere. (A byte of FLIP is in
     * its place, and the read fails because of it.) */
    for (uint32_t i = row->fault == FLIP; i < FILE_BYTES; i += 4099) {
        if (!T_TRUE(row->name, buffer[i] == content[i] || buffer[i] == 0xee)) {
            break;
        }
    }
    T_TRUE(row->name, stk_clock_ns() - began_ns < 10ull * TIMEOUT_MS * 1000000u);
    if (got < 0) {
        T_TRUE(row->name, stk_io_last_read_error(file, (int)got, &error));
        check_error(row->name, &error);
        T_HAS(row->name, error.where, "file");
        if (row->status == -EACCES) {
            T_HAS(row->name, error.where, "AccessDenied: by the test, request REQ-42");
        }
    }
    stk_io_close_file(file);
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
    struct stk_mount_info mounted;
    struct stk_file *file = NULL;
    struct stk_view view = {0};
    uint8_t buffer[16];

    set_fault(NONE, 0, 0);
    T_EQ(url, stk_io_stat_path(io, url, &about, NULL), 0);
    T_EQ(url, about.kind, STK_ENTRY_FILE);
    T_EQ(url, stk_io_open_file(io, url, &file, NULL), 0);
    T_EQ(url, stk_io_stat_file(file, &about, NULL), 0);
    T_EQ(url, about.bytes, FILE_BYTES);
    T_EQ(url, about.mtime_ns, 1795255200ull * 1000000000u);
    T_EQ(url, stk_io_read_now(file, 0, buffer, 1), -EAGAIN);
    T_EQ(url, stk_vfs_round_trip_bytes(file), STK_VFS_ROUND_TRIP_BYTES);
    T_TRUE(url, !stk_io_mount_of(file, &mounted));
    for (size_t i = 0; i < STK_COUNT(reads); i++) {
        T_EQ(url, stk_io_read_wait(file, reads[i].offset, buffer, reads[i].bytes), reads[i].got);
        T_TRUE(url, reads[i].got == 0 ||
                        memcmp(buffer, content + reads[i].offset, (size_t)reads[i].got) == 0);
    }
    T_EQ(url, stk_io_map(io, file, &view, NULL), 0);
    stk_io_close_file(file);
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
        {"another scheme", "gopher://x/y", STOKER_ERROR_ARGUMENT},
        {"no such key", "s3://bucket/nothing", -ENOENT},
        {"no such local file", "/nonexistent/x", -ENOENT},
    };
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    struct stk_output *out = NULL;
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

static const struct {
    const char *name, *text;
    int status;
} bad_lists[] = {
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
    {"a NUL in a key",
     "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>"
     "<Contents><Key>a/x%00.tar</Key></Contents></ListBucketResult>",
     STOKER_ERROR_CORRUPT},
    {"a key of another prefix",
     "<ListBucketResult><IsTruncated>false</IsTruncated>"
     "<Contents><Key>b/x.tar</Key></Contents></ListBucketResult>",
     STOKER_ERROR_CORRUPT},
    {"of another prefix",
     "<ListBucketResult><Name>bucket</Name><Prefix>b/</Prefix><IsTruncated>false</IsTruncated>"
     "</ListBucketResult>",
     STOKER_ERROR_CORRUPT},
    {"of another bucket",
     "<ListBucketResult><Name>bucket2</Name><Prefix>a/</Prefix><IsTruncated>false</IsTruncated>"
     "<Contents><Key>a/x.tar</Key></Contents></ListBucketResult>",
     STOKER_ERROR_CORRUPT},
    {"no token", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
     STOKER_ERROR_CORRUPT},
    {"nested deeply",
     "<ListBucketResult><a><a><a><a><a><a><a><a><a></a></a></a></a></a></a></a></a></a>"
     "</ListBucketResult>",
     STOKER_ERROR_CORRUPT},
};

/* Longer than any key, sent in pieces: never a truncated name. */
static void test_long_key(struct stk_io *io)
{
    static char text[8192];
    struct stk_listing listing = {0};
    struct stoker_error error = {0};

    snprintf(text, sizeof text,
             "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a/%05000d&amp;x"
             "</Key></Contents></ListBucketResult>",
             7);
    list_answer = text;
    stk_vfs_set_metadata(io, "s3://bucket/a/x", NULL); /* nor what was listed before */
    T_EQ("a key too long", stk_io_list(io, "s3://bucket/a", &listing, &error), STOKER_ERROR_LIMIT);
    check_error("a key too long", &error);
}

/* An entry that is listed twice is returned once; an object may have the name of a folder. */
static void test_listed_twice(struct stk_io *io)
{
    struct stk_listing listing = {0};
    struct stoker_error error = {0};

    list_answer = "<ListBucketResult><IsTruncated>false</IsTruncated>"
                  "<Contents><Key>a/x</Key><Size>1</Size></Contents>"
                  "<Contents><Key>a/y</Key><Size>1</Size></Contents>"
                  "<Contents><Key>a/x</Key><Size>1</Size></Contents>"
                  "<CommonPrefixes><Prefix>a/x/</Prefix></CommonPrefixes>"
                  "<CommonPrefixes><Prefix>a/x/</Prefix></CommonPrefixes></ListBucketResult>";
    T_EQ("listed twice", stk_io_list(io, "s3://bucket/a", &listing, &error), 0);
    if (T_EQ("each once", listing.count, 3)) {
        T_STR("both kinds", listing.entries[0].name, "x");
        T_STR("both kinds", listing.entries[1].name, "x");
        T_TRUE("both kinds", listing.entries[0].kind != listing.entries[1].kind);
        T_STR("the other", listing.entries[2].name, "y");
    }
    stk_listing_free(&listing);
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
    atomic_store(&requested, 0);
    T_EQ("known by the list", stk_io_stat_path(io, "s3://bucket/a/x+y z&.tar", &about, NULL), 0);
    T_EQ("known by the list", about.bytes, 123);
    T_EQ("known by the list", about.mtime_ns, 1795255200ull * 1000000000u);
    for (size_t i = 0; i < STK_COUNT(bad_lists); i++) {
        list_answer = bad_lists[i].text;
        T_EQ(bad_lists[i].name, stk_io_list(io, "s3://bucket/a", &listing, &error),
             bad_lists[i].status);
        check_error(bad_lists[i].name, &error);
    }
    list_answer = good;
    T_EQ("a prefix", stk_io_stat_path(io, "s3://bucket/a", &about, NULL), 0);
    T_EQ("a prefix", about.kind, STK_ENTRY_DIRECTORY);
    T_EQ("the web has no lists", stk_io_list(io, urls[0], &listing, &error), STOKER_ERROR_ARGUMENT);
    check_error("the web has no lists", &error);
}

/* Requests that a call took. */
#define T_REQUESTS(what, call, count)                                                              \
    do {                                                                                           \
        atomic_store(&requests, 0);                                                                \
        T_EQ(what, call, 0);                                                                       \
        T_EQ(what, atomic_load(&requests), count);                                                 \
    } while (0)

/* The kind of a URL takes two answers; the second is the listing that is requested next, once. */
static void test_folder(struct stk_io *io)
{
    static const char complete[] = "<ListBucketResult><IsTruncated>false</IsTruncated>"
                                   "<Contents><Key>f/x</Key><Size>1</Size></Contents>"
                                   "<Contents><Key>f/y</Key><Size>1</Size></Contents>"
                                   "</ListBucketResult>";
    static const char more[] = "<ListBucketResult><IsTruncated>true</IsTruncated>"
                               "<NextContinuationToken>t</NextContinuationToken>"
                               "<Contents><Key>g/x</Key><Size>1</Size></Contents>"
                               "</ListBucketResult>";
    static const char *const forgotten[] = {"s3://bucket/f/x", "s3://bucket/f",
                                            "s3://bucket/f/a/b"};
    struct stk_listing listing = {0};
    struct stk_object_info about = {.bytes = 1};
    struct stk_stat stat;

    list_answer = complete;
    T_REQUESTS("a folder", stk_io_stat_path(io, "s3://bucket/f", &stat, NULL), 2);
    T_EQ("a folder", stat.kind, STK_ENTRY_DIRECTORY);
    T_REQUESTS("known", stk_io_stat_path(io, "s3://bucket/f", &stat, NULL), 0);
    T_EQ("known", stat.kind, STK_ENTRY_DIRECTORY);
    T_REQUESTS("its listing came", stk_io_list(io, "s3://bucket/f", &listing, NULL), 0);
    T_EQ("its listing came", listing.count, 2);
    stk_listing_free(&listing);
    T_REQUESTS("once", stk_io_list(io, "s3://bucket/f", &listing, NULL), 1);
    stk_listing_free(&listing);
    for (size_t i = 0; i < STK_COUNT(forgotten); i++) { /* the removed one may have been the last */
        stk_vfs_set_metadata(io, forgotten[i], NULL);
        T_REQUESTS(forgotten[i], stk_io_stat_path(io, "s3://bucket/f", &stat, NULL), 2);
    }
    stk_vfs_set_metadata(io, "s3://bucket/f/z", &about);
    T_REQUESTS("written since", stk_io_list(io, "s3://bucket/f", &listing, NULL), 1);
    stk_listing_free(&listing);
    T_REQUESTS("of another", stk_io_stat_path(io, "s3://bucket/f/", &stat, NULL), 1);
    T_REQUESTS("of another", stk_io_list(io, "s3://bucket/f", &listing, NULL), 1);
    stk_listing_free(&listing);
    list_answer = more;
    T_REQUESTS("a page of many", stk_io_stat_path(io, "s3://bucket/g", &stat, NULL), 2);
    list_answer = complete;
    T_REQUESTS("is no listing", stk_io_list(io, "s3://bucket/f", &listing, NULL), 1);
    stk_listing_free(&listing);
    list_answer = "<ListBucketResult><IsTruncated>false</IsTruncated>"
                  "<Contents><Key>g/y</Key><Size>1</Size></Contents></ListBucketResult>";
    T_REQUESTS("is no listing", stk_io_list(io, "s3://bucket/g", &listing, NULL), 1);
    T_EQ("is no listing", listing.count, 1);
    stk_listing_free(&listing);
    T_REQUESTS("left behind", stk_io_stat_path(io, "s3://bucket/g/", &stat, NULL), 1);
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
        /* Each third is local; the last is past the end. */
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
        T_TRUE("came back", reads[i].owner == &reads[i] && !reads[i].leaked);
        T_EQ("all of it", reads[i].result, i == READS - 1 ? 0 : READ_BYTES);
        T_TRUE("the bytes",
               reads[i].result <= 0 || memcmp(reads[i].buffer + reads[i].skip,
                                              content + reads[i].offset, READ_BYTES) == 0);
    }
    T_TRUE("a wake ends a wait", (stk_io_wake(io, queue), stk_io_reap(io, queue, 60000) == NULL));
    stk_io_queue_close(io, queue);
    stk_io_close_file(files[0]);
    stk_io_close_file(files[1]);
    stk_pages_free(memory, READS * (READ_BYTES + 2ull * STK_IO_ALIGN));
}

/* Reads in flight when a queue is closed are returned to their submitter, and never lost. */
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
                                     .leaked = true,
                                     .next = i < 3 ? &reads[i + 1] : NULL};
    }
    T_EQ("taken", stk_io_submit(io, queue, reads), 4);
    T_TRUE("none is back", stk_io_reap(io, queue, 50) == NULL);
    stk_io_close_file(file); /* reads keep it */
    stk_io_queue_close(io, queue);
    for (int i = 0; i < 4; i++) {
        T_EQ("closed", reads[i].result, STOKER_ERROR_CLOSED);
        T_TRUE("not lost", !reads[i].leaked);
    }
    stk_pages_free(memory, 8 * STK_IO_ALIGN);
}

/* Attempts with progress do not count like those without. */
static void test_spread_faults(struct stk_io *io, const char *url)
{
    static uint8_t bytes[1u << 20];
    struct stk_file *file;

    set_fault(NONE, 0, 0);
    T_EQ("open", stk_io_open_file(io, url, &file, NULL), 0);
    set_fault(BREAK_RESET, 0, BREAKS + 3);
    T_EQ("breaks, then resets", stk_io_read_wait(file, 0, bytes, sizeof bytes), sizeof bytes);
    T_TRUE("breaks, then resets", memcmp(bytes, content, sizeof bytes) == 0);
    T_EQ("breaks, then resets", atomic_load(&requested), BREAKS + 4);
    stk_io_close_file(file);
}

static void test_expect(void)
{
    struct stk_io *io = open_route(TIMEOUT_MS, NULL);
    char names[64 * 64], *at = names;
    struct stk_stat about;

    set_fault(NONE, 0, 0);
    for (int i = 0; i < 64; i++) {
        at += snprintf(at, 64, "http://127.0.0.1:%d/%s%d", server.port, i == 7 ? "no" : "file", i) +
              1;
    }
    stk_vfs_prefetch_metadata(io, names, 64);
    atomic_store(&connections, 0);
    at = names;
    for (int i = 0; i < 64; i++, at += strlen(at) + 1) {
        T_EQ(at, stk_io_stat_path(io, at, &about, NULL), i == 7 ? -ENOENT : 0);
    }
    T_TRUE("cached: only failed lookups are repeated", atomic_load(&connections) <= 1);
    stk_io_close(io);
}

/* More than there are places, and each is found or forgotten, never another's. */
static void test_known(void)
{
    struct stk_metadata_cache *known = NULL;
    uint32_t found = 0;

    T_EQ("known", stk_metadata_cache_open(&known), 0);
    for (uint32_t i = 0; i < 20000; i++) {
        struct stk_object_info about = {.bytes = i, .etag = "\"e\""};
        char url[32];

        snprintf(url, sizeof url, "s3://b/%u", i);
        stk_metadata_cache_add(known, url, &about);
    }
    for (uint32_t i = 0; i < 20000; i++) {
        struct stk_object_info about = {0};
        char url[32];

        snprintf(url, sizeof url, "s3://b/%u", i);
        if (stk_metadata_cache_find(known, url, &about)) {
            found++;
            T_EQ(url, about.bytes, i);
        }
        if (i % 2) {
            stk_metadata_cache_remove(known, url);
            T_TRUE(url, !stk_metadata_cache_find(known, url, &about));
        }
    }
    T_TRUE("nearly all are known", found > 19000);
    stk_metadata_cache_close(known);
}

static void test_no_memory(const char *url)
{
    uint8_t buffer[64];

    set_fault(NONE, 0, 0);
    for (uint64_t n = 1; n < 60; n += T_STRIDE) {
        struct stk_io *io = open_route(TIMEOUT_MS, NULL);
        struct stoker_error error = {0};
        struct stk_file *file = NULL;
        int64_t got = 0;
        int status;

        stk_mem_fail_nth(n);
        status = stk_io_open_file(io, url, &file, &error);
        if (status == 0) {
            got = stk_io_read_wait(file, 1, buffer, sizeof buffer);
        }
        stk_mem_fail_nth(0);
        T_TRUE("or it works", status == -ENOMEM || (status == 0 && (got == -ENOMEM || got == 64)));
        if (status < 0) {
            check_error("no memory", &error);
        } else {
            stk_io_close_file(file);
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
    struct stoker_store_stats ledger = {.struct_size = sizeof ledger};
    struct stk_io *io, *hasty;

    make_content();
    T_EQ("a local file", write(fd, content, FILE_BYTES), FILE_BYTES);
    close(fd);
    start_server();
    snprintf(web, sizeof web, "http://127.0.0.1:%d/a/file", server.port);
    urls[0] = web;
    io = open_route(TIMEOUT_MS, NULL);
    hasty = open_route(HASTY_MS, NULL);
    for (size_t i = 0; i < STK_COUNT(urls); i++) {
        test_files(io, urls[i]);
        test_queue(io, urls[i], local);
        test_close(io, urls[i]);
        T_EACH(row, row, rows)
        {
            /* A request that can only fail at the deadline fails soon. */
            if (row->status < 0 && row->count > 100) {
                check_row(hasty, io, urls[i], row);
            } else {
                check_row(io, NULL, urls[i], row);
            }
        }
    }
    test_missing(io);
    test_list(io);
    test_folder(io);
    test_spread_faults(io, urls[0]);
    test_long_key(io);
    test_listed_twice(io);
    stk_vfs_store_stats(io, &ledger);
    T_TRUE("read by ranges, and verified",
           ledger.verified_bytes[STOKER_STORE_S3] >= 5 * FILE_BYTES &&
               ledger.verified_bytes[STOKER_STORE_HTTP] >= 5 * FILE_BYTES);
    T_EQ("damaged", ledger.checksum_failures, 2);
    stk_io_close(io);
    stk_io_close(hasty);
    test_expect();
    test_known();
    test_no_memory(web);
    unlink(local);
    end_server();
    return t_finish();
}
