/* Goal: a request is answered once or cancelled; a cancelled request is neither waited for nor
 * written to; files read correctly with many reads in flight.
 * Method: threads that answer from a file in memory; one of them does not answer. */
#include "storage/external/external_fs.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define BYTES (9u << 20)
#define LONG_MS 60000u
#define SHORT_MS 50u
#define READS 20u
#define ASKERS 12u
#define SLOW_MS 200u

static struct stoker_external_fs *external_fs;
static uint8_t *content;
static _Atomic uint32_t held, released; /* requests for "x://hold": taken; answered */
static _Atomic uint32_t refused;
static _Atomic bool let_go;

static uint8_t byte_at(uint64_t i)
{
    return (uint8_t)(i * 131 + (i >> 11) + (i >> 19) * 7); /* nowhere the same as a piece before */
}

static struct stoker_external_reply answer_to(const struct stoker_external_request *request)
{
    struct stoker_external_reply answer = {.struct_size = sizeof answer};

    if (strstr(request->url, "none")) {
        answer.status = -ENOENT;
        answer.what = "not there";
        return answer;
    }
    if (request->kind == STOKER_EXTERNAL_STAT) {
        answer.bytes = strstr(request->url, "huge") ? STK_EXTERNAL_FS_MAP_BYTES_MAX + 1 : BYTES;
        answer.mtime_ns = 7;
        answer.version = 9;
        answer.is_folder = strstr(request->url, "folder") != NULL;
    } else if (request->kind == STOKER_EXTERNAL_LIST) {
        static const char names[] = "fb\0da\0-c\0fx/y\0f..\0d.\0Fd\0De";

        answer.names = names;
        answer.name_count = 8;
    } else if (!strstr(request->url, "short")) {
        memcpy(request->buffer, content + request->offset, request->bytes);
        answer.bytes = request->bytes;
    } else {
        answer.bytes = request->bytes / 2;
    }
    return answer;
}

static void *serve(void *nothing)
{
    struct stoker_external_request request = {.struct_size = sizeof request};

    (void)nothing;
    while (stoker_external_fs_next(external_fs, LONG_MS, &request, NULL) == 1) {
        struct stoker_external_reply answer;
        bool hold = strstr(request.url, "hold") != NULL;

        if (hold) {
            atomic_fetch_add(&held, 1);
            while (!atomic_load(&let_go)) {
                usleep(1000);
            }
        }
        answer = answer_to(&request);
        atomic_fetch_add(&refused,
                         stoker_external_fs_reply(external_fs, request.number, &answer) != 0);
        atomic_fetch_add(&released, hold);
    }
    return NULL;
}

static void test_files(void)
{
    struct stoker_error error = {0};
    struct stk_listing listing;
    struct stk_file *file = NULL;
    struct stk_stat stat, slash;
    uint8_t *bytes = stk_alloc(BYTES, 1), *pages;
    uint64_t mapped;

    T_EQ("open", stk_external_file_open(external_fs, "x://file", LONG_MS, &file, &error), 0);
    T_EQ("is a guest", stk_file_is_external(file), 1);
    stk_external_file_stat(file, &stat, NULL);
    T_EQ("size", stat.bytes, BYTES);
    T_EQ("version", stat.version, 9);
    T_EQ("all", stk_external_file_read(file, 0, bytes, BYTES + 5), BYTES);
    T_EQ("as it is", memcmp(bytes, content, BYTES), 0);
    T_EQ("behind the end", stk_external_file_read(file, BYTES, bytes, 10), 0);
    T_EQ("map", stk_external_file_map(file, &pages, &mapped, &error), 0);
    T_EQ("mapped", mapped == BYTES && memcmp(pages, content, BYTES) == 0, 1);
    stk_pages_free(pages, mapped);
    stk_external_file_close(file);
    T_EQ("huge", stk_external_file_open(external_fs, "x://huge", LONG_MS, &file, &error), 0);
    T_EQ("is not mapped", stk_external_file_map(file, &pages, &mapped, &error),
         STOKER_ERROR_UNSUPPORTED);
    T_HAS("names it", error.where, "x://huge");
    stk_external_file_close(file);
    T_EQ("stat", stk_external_file_stat_url(external_fs, "x://a/folder", LONG_MS, &stat, &error),
         0);
    T_EQ("stat", stk_external_file_stat_url(external_fs, "x://a/folder//", LONG_MS, &slash, &error),
         0);
    T_EQ("the same place", stat.inode, slash.inode);
    T_EQ("open short", stk_external_file_open(external_fs, "x://short", LONG_MS, &file, &error), 0);
    T_EQ("changed", stk_external_file_read(file, 0, bytes, 100), STOKER_ERROR_CHANGED);
    T_EQ("explain", stk_external_file_last_error(file, STOKER_ERROR_CHANGED, &error), 1);
    T_HAS("names it", error.where, "x://short");
    stk_external_file_close(file);
    T_EQ("none", stk_external_file_open(external_fs, "x://none", LONG_MS, &file, &error), -ENOENT);
    T_HAS("names it", error.where, "x://none");
    T_HAS("why", error.what, "not there");
    T_EQ("folder", stk_external_file_open(external_fs, "x://folder", LONG_MS, &file, &error),
         -EISDIR);
    T_EQ("list", stk_external_file_list(external_fs, "x://folder", LONG_MS, &listing, &error), 0);
    T_EQ("names", listing.count, 5);
    T_EQ("sorted", strcmp(listing.entries[0].name, "a"), 0);
    T_EQ("kinds", listing.entries[0].kind, STK_ENTRY_DIRECTORY);
    T_EQ("kinds", listing.entries[1].kind, STK_ENTRY_FILE);
    T_EQ("kinds", listing.entries[2].kind, STK_ENTRY_OTHER);
    T_EQ("kinds", listing.entries[3].kind, STK_ENTRY_FILE);
    T_EQ("kinds", listing.entries[4].kind, STK_ENTRY_DIRECTORY);
    for (size_t i = 0; i < 5; i++) {
        T_EQ("links", listing.entries[i].link, i > 2);
    }
    stk_listing_free(&listing);
    stk_free(bytes);
}

static _Atomic uint32_t wakes;

static void wake(void *owner)
{
    (void)owner;
    atomic_fetch_add(&wakes, 1);
}

static void check_read(const struct stk_read *read)
{
    T_EQ("result", read->result, read->bytes);
    T_EQ("bytes", memcmp(read->buffer, content + read->offset, read->bytes), 0);
}

/* Opens a file whose reads have a short deadline. On a busy machine its own request may pass that
 * deadline. */
static struct stk_file *open_held(void)
{
    struct stk_file *file = NULL;
    int status;

    atomic_store(&let_go, true);
    do {
        status = stk_external_file_open(external_fs, "x://hold", SHORT_MS, &file, NULL);
    } while (status == STOKER_ERROR_TIMEOUT);
    T_EQ("open", status, 0);
    while (atomic_load(&released) != atomic_load(&held)) {
        usleep(500);
    }
    atomic_store(&let_go, false);
    return file;
}

/* A read that is not answered in time returns at its deadline, and its buffer does not change. */
static void check_late_read(struct stk_external_queue *queue)
{
    struct stk_file *file = open_held();
    uint8_t buffer[4096];
    struct stk_read read = {.file = file, .bytes = sizeof buffer, .buffer = buffer};
    uint32_t count;

    memset(buffer, 'x', sizeof buffer);
    T_EQ("submit", stk_external_queue_submit(queue, &read), 0);
    do {
        stk_external_queue_reap(queue, NULL, &count);
        usleep(500);
    } while (count == 0);
    T_EQ("late", read.result, STOKER_ERROR_TIMEOUT);
    atomic_store(&let_go, true);
    while (atomic_load(&released) != atomic_load(&held)) {
        usleep(500);
    }
    T_EQ("untouched", buffer[0] == 'x' && buffer[4095] == 'x', 1);
    stk_external_file_close(file);
}

static void test_queue(void)
{
    struct stk_read reads[READS] = {0};
    struct stk_external_queue *queue;
    struct stk_file *file;
    uint32_t count, left = READS;

    T_EQ("open", stk_external_file_open(external_fs, "x://file", LONG_MS, &file, NULL), 0);
    T_EQ("queue", stk_external_queue_open(&queue, external_fs, wake, NULL), 0);
    T_EQ("nothing in flight", stk_external_queue_timeout_ms(queue), UINT32_MAX);
    for (uint32_t i = 0; i < READS; i++) {
        reads[i] = (struct stk_read){
            .file = file, .offset = i * 400000u, .bytes = 300000, .buffer = stk_alloc(300000, 1)};
        T_EQ("submit", stk_external_queue_submit(queue, &reads[i]), 0);
    }
    T_EQ("patience", stk_external_queue_timeout_ms(queue) <= LONG_MS, 1);
    while (left > 0) {
        struct stk_read *list = stk_external_queue_reap(queue, NULL, &count);

        for (left -= count; list; list = list->next, count--) {
            check_read(list);
        }
        T_EQ("as many", count, 0);
        usleep(500);
    }
    T_EQ("woken", atomic_load(&wakes), READS);
    /* A read that reaches past the end returns the bytes before it. */
    reads[0].offset = BYTES - 100;
    T_EQ("submit", stk_external_queue_submit(queue, &reads[0]), 0);
    do {
        stk_external_queue_reap(queue, NULL, &count);
        usleep(500);
    } while (count == 0);
    T_EQ("to the end", reads[0].result, 100);
    T_EQ("to the end", memcmp(reads[0].buffer, content + BYTES - 100, 100), 0);
    check_late_read(queue);
    /* Closed during reads: each fails or has ended. */
    for (uint32_t i = 0; i < READS; i++) {
        T_EQ("submit", stk_external_queue_submit(queue, &reads[i]), 0);
    }
    stk_external_queue_close(queue);
    for (uint32_t i = 0; i < READS; i++) {
        stk_free(reads[i].buffer);
    }
    stk_external_file_close(file);
}

static void test_refusals(void)
{
    struct stoker_external_request request = {0};
    struct stoker_external_reply answer = {.struct_size = sizeof answer, .status = 1};

    T_EQ("size", stoker_external_fs_next(external_fs, 0, &request, NULL), STOKER_ERROR_ARGUMENT);
    T_EQ("status", stoker_external_fs_reply(external_fs, 1, &answer), STOKER_ERROR_ARGUMENT);
    answer.status = 0;
    T_EQ("no such request", stoker_external_fs_reply(external_fs, 1ull << 60, &answer),
         STOKER_ERROR_ARGUMENT);
    T_EQ("has a server", stk_external_fs_has_server(external_fs), 1);
}

static void *ask_other(void *other)
{
    struct stoker_error error = {0};
    struct stk_stat stat;

    return (void *)(intptr_t)stk_external_file_stat_url(other, "x://file", LONG_MS, &stat, &error);
}

/* Waiting requests end at once when the file system is closed; it is freed even if taken requests
 * are never answered. */
static void test_closed_amid(void)
{
    struct stoker_external_request request = {.struct_size = sizeof request};
    struct stoker_external_fs *other;
    struct stk_stat stat;
    pthread_t asker;
    void *status;

    T_EQ("open", stoker_external_fs_open(&other, NULL), 0);
    stk_external_fs_retain(other);
    pthread_create(&asker, NULL, ask_other, other);
    T_EQ("one comes", stoker_external_fs_next(other, LONG_MS, &request, NULL), 1);
    struct stoker_external_reply answer = answer_to(&request);
    T_EQ("answered", stoker_external_fs_reply(other, request.number, &answer), 0);
    pthread_join(asker, NULL);
    T_EQ("has a server", stk_external_fs_has_server(other), 1);
    T_EQ("late", stk_external_file_stat_url(other, "x://file", SHORT_MS, &stat, NULL),
         STOKER_ERROR_TIMEOUT);
    T_EQ("an abandoned request is not returned", stoker_external_fs_next(other, 1, &request, NULL),
         0);
    pthread_create(&asker, NULL, ask_other, other);
    usleep(100000); /* it waits by then; else it is refused at once, which also passes */
    stoker_external_fs_close(other);
    T_EQ("not manned any more", stk_external_fs_has_server(other), 0);
    pthread_join(asker, &status);
    T_EQ("refused at once", (intptr_t)status, STOKER_ERROR_CLOSED);
    stk_external_fs_release(other);
}

static void *take_only(void *other)
{
    struct stoker_external_request request = {.struct_size = sizeof request};

    return (void *)(intptr_t)stoker_external_fs_next(other, LONG_MS, &request, NULL);
}

static void test_left(void)
{
    struct stoker_external_fs *other;
    struct stk_stat stat;
    pthread_t taker;
    void *taken;

    T_EQ("open", stoker_external_fs_open(&other, NULL), 0);
    pthread_create(&taker, NULL, take_only, other);
    T_EQ("late", stk_external_file_stat_url(other, "x://file", 2000, &stat, NULL),
         STOKER_ERROR_TIMEOUT);
    pthread_join(taker, &taken);
    T_EQ("it was taken", (intptr_t)taken, 1);
    stoker_external_fs_close(other);
}

static void *answer_slowly(void *other)
{
    struct stoker_external_request request = {.struct_size = sizeof request};

    while (stoker_external_fs_next(other, LONG_MS, &request, NULL) == 1) {
        struct stoker_external_reply answer = answer_to(&request);

        usleep(SLOW_MS * 1000);
        stoker_external_fs_reply(other, request.number, &answer);
    }
    return NULL;
}

static void *ask_within(void *other)
{
    struct stk_stat stat;

    return (void *)(intptr_t)stk_external_file_stat_url(other, "x://file",
                                                        ASKERS * SLOW_MS - SLOW_MS, &stat, NULL);
}

/* The same by one thread. */
static void read_many(struct stoker_external_fs *other)
{
    struct stk_read reads[ASKERS] = {0};
    struct stk_external_queue *queue;
    uint8_t bytes[ASKERS][16];
    struct stk_file *file;

    T_EQ("open", stk_external_file_open(other, "x://file", (ASKERS - 1) * SLOW_MS, &file, NULL), 0);
    T_EQ("queue", stk_external_queue_open(&queue, other, wake, NULL), 0);
    for (uint32_t i = 0; i < ASKERS; i++) {
        reads[i] = (struct stk_read){.file = file, .bytes = sizeof bytes[i], .buffer = bytes[i]};
        T_EQ("submit", stk_external_queue_submit(queue, &reads[i]), 0);
    }
    for (uint32_t left = ASKERS, count; left > 0; left -= count) {
        stk_external_queue_reap(queue, NULL, &count);
        usleep(500);
    }
    for (uint32_t i = 0; i < ASKERS; i++) {
        T_EQ("read", reads[i].result, sizeof bytes[i]);
    }
    stk_external_queue_close(queue);
    stk_external_file_close(file);
}

/* Many requests to one slow thread: the last one waits for longer than the timeout of an answer,
 * and gets its answer. */
static void test_many_ask(void)
{
    pthread_t askers[ASKERS], taker;
    struct stoker_external_fs *other;
    void *status;

    T_EQ("open", stoker_external_fs_open(&other, NULL), 0);
    stk_external_fs_retain(other);
    for (uint32_t i = 0; i < ASKERS; i++) {
        pthread_create(&askers[i], NULL, ask_within, other);
    }
    pthread_create(&taker, NULL, answer_slowly, other);
    for (uint32_t i = 0; i < ASKERS; i++) {
        pthread_join(askers[i], &status);
        T_EQ("answered", (intptr_t)status, 0);
    }
    read_many(other);
    stoker_external_fs_close(other);
    pthread_join(taker, NULL);
    stk_external_fs_release(other);
}

/* A thread that is stopped does not wait for a request. */
static void test_stopped(void)
{
    static const _Atomic bool stop = true;
    const _Atomic bool *before = stk_io_set_cancel_flag(&stop);
    struct stoker_error error = {0};
    struct stoker_external_fs *other;
    struct stk_stat stat;

    T_EQ("open", stoker_external_fs_open(&other, NULL), 0);
    T_EQ("stopped", stk_external_file_stat_url(other, "x://file", LONG_MS, &stat, &error),
         STOKER_ERROR_CLOSED);
    T_HAS("names it", error.where, "x://file");
    stoker_external_fs_close(other);
    stk_io_set_cancel_flag(before);
}

/* No thread serves requests: they end at their deadline; once closed, at once. */
static void test_closed(void)
{
    struct stoker_error error = {0};
    struct stoker_external_fs *other;
    struct stk_stat stat;

    T_EQ("open", stoker_external_fs_open(&other, NULL), 0);
    T_EQ("not manned", stk_external_fs_has_server(other), 0);
    T_EQ("late", stk_external_file_stat_url(other, "x://file", 10, &stat, &error),
         STOKER_ERROR_TIMEOUT);
    T_HAS("names it", error.where, "x://file");
    stk_external_fs_retain(other);
    stoker_external_fs_close(other);
    T_EQ("closed", stk_external_file_stat_url(other, "x://file", LONG_MS, &stat, &error),
         STOKER_ERROR_CLOSED);
    stk_external_fs_release(other);
}

int main(void)
{
    pthread_t threads[3];

    content = stk_alloc(BYTES, 1);
    for (uint64_t i = 0; i < BYTES; i++) {
        content[i] = byte_at(i);
    }
    T_EQ("open", stoker_external_fs_open(&external_fs, NULL), 0);
    for (uint32_t i = 0; i < STK_COUNT(threads); i++) {
        pthread_create(&threads[i], NULL, serve, NULL);
    }
    while (!stk_external_fs_has_server(external_fs)) {
        usleep(500);
    }
    test_files();
    test_queue();
    test_refusals();
    test_closed();
    test_closed_amid();
    test_left();
    test_many_ask();
    test_stopped();
    stk_external_fs_retain(external_fs);
    stoker_external_fs_close(external_fs);
    for (uint32_t i = 0; i < STK_COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    T_EQ("no answer was refused", atomic_load(&refused), 0);
    stk_external_fs_release(external_fs);
    stk_free(content);
    T_EQ("all memory is free", stk_mem_alive(), 0);
    return t_finish();
}
