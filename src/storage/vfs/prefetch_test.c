/* Goal: prefetched bytes and errors equal those of a read, are requested once, take at most half of
 * the budget, and are freed after they were read, trimmed or released; no read hangs.
 * Method: the server of vfs_test.h with its faults. Covers prefetch.c. */
#include "io/clock.h"
#include "storage/vfs/vfs_test.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/memory_pages.h"

#include <sched.h>

#define PREFETCH_BLOCKS 4u /* a small one and three ranges */

struct prefetch_run {
    struct stk_budget budget;
    struct stk_io *io;
    struct stk_file *file;
};

static void open_bringing(struct prefetch_run *prefetch_run, const char *url, uint64_t bytes_max,
                          uint32_t timeout_ms)
{
    *prefetch_run = (struct prefetch_run){.budget = {.bytes_max = bytes_max}};
    prefetch_run->io = open_route(timeout_ms, &prefetch_run->budget);
    T_EQ("open", stk_io_open_file(prefetch_run->io, url, &prefetch_run->file, NULL), 0);
    stk_remote_checksum_wait(&stk_remote_file_of(prefetch_run->file)->checksum);
}

static void close_bringing(struct prefetch_run *prefetch_run)
{
    stk_io_close_file(prefetch_run->file);
    stk_io_close(prefetch_run->io);
    T_EQ("all is given back", atomic_load(&prefetch_run->budget.bytes), 0);
    T_TRUE("no more than half",
           atomic_load(&prefetch_run->budget.bytes_peak) <= prefetch_run->budget.bytes_max / 2);
}

static uint64_t in_use(struct prefetch_run *prefetch_run)
{
    return atomic_load(&prefetch_run->budget.bytes);
}

/* Sends reads one after the other over all of the file; each has a status, or is right. */
static void read_through(struct prefetch_run *prefetch_run, const char *name, uint32_t step,
                         int64_t status)
{
    uint32_t capacity = stk_read_capacity(step);
    uint8_t *buffer = stk_pages_alloc(capacity);
    struct stk_queue *queue = NULL;
    struct stoker_error error = {0};

    T_EQ("queue", stk_io_queue_open(prefetch_run->io, &queue, NULL), 0);
    for (uint64_t at = 0; at < FILE_BYTES; at += step) {
        struct stk_read read = {.file = prefetch_run->file,
                                .offset = at,
                                .buffer = buffer,
                                .bytes = step,
                                .capacity = capacity};
        int64_t bytes = (int64_t)stk_min(step, FILE_BYTES - at);

        T_EQ("taken", stk_io_submit(prefetch_run->io, queue, &read), 1);
        while (!stk_io_reap(prefetch_run->io, queue, 1000)) {
        }
        if (!T_EQ(name, read.result, status < 0 ? status : bytes)) {
            break;
        }
        if (status < 0) {
            T_TRUE("why", stk_io_last_read_error(prefetch_run->file, (int)status, &error));
            check_error("why", &error);
            break;
        }
        T_TRUE("the bytes", memcmp(buffer, content + at, (size_t)bytes) == 0);
    }
    stk_io_queue_close(prefetch_run->io, queue);
    stk_pages_free(buffer, capacity);
}

static void await_prefetched(struct prefetch_run *prefetch_run)
{
    uint8_t byte;

    for (uint64_t at = 0; at < FILE_BYTES; at += 1u << 20) {
        T_EQ("await", stk_io_read_wait(prefetch_run->file, at, &byte, 1), 1);
    }
}

static void await_requested(uint32_t count)
{
    uint64_t until_ns = stk_clock_ns() + 20000000000ull;

    while (atomic_load(&requested) < count && stk_clock_ns() < until_ns) {
        sched_yield();
    }
    T_TRUE("requested", atomic_load(&requested) >= count);
}

/* After a prefetch no request is repeated; after a read, its memory is released. */
static void test_prefetch(const char *url)
{
    struct prefetch_run it;
    uint8_t *buffer = stk_pages_alloc(FILE_BYTES);

    open_bringing(&it, url, 2 * FILE_BYTES, TIMEOUT_MS);
    set_fault(NONE, 0, 0);
    T_TRUE("nothing comes", !stk_vfs_is_prefetched(it.file, 0, 1));
    stk_vfs_prefetch_head(it.io, url, &it);
    T_TRUE("the head comes", stk_vfs_is_prefetched(it.file, 0, STK_VFS_ROUND_TRIP_BYTES));
    T_TRUE("no more", !stk_vfs_is_prefetched(it.file, STK_VFS_ROUND_TRIP_BYTES - 1, 2));
    stk_vfs_prefetch(it.file, &it);
    T_TRUE("all of it comes", stk_vfs_is_prefetched(it.file, 0, FILE_BYTES));
    T_TRUE("its end is its end", !stk_vfs_is_prefetched(it.file, FILE_BYTES, 1));
    stk_vfs_prefetch(it.file, &it);
    T_EQ("reserved once", in_use(&it), FILE_BYTES);
    await_prefetched(&it);
    T_EQ("over a border, at once", stk_io_read_now(it.file, (9u << 20) - 7, buffer, 14), 14);
    T_TRUE("over a border", memcmp(buffer, content + (9u << 20) - 7, 14) == 0);
    T_EQ("up to the end", stk_io_read_now(it.file, FILE_BYTES - 5, buffer, 99), 5);
    T_EQ("behind it", stk_io_read_now(it.file, FILE_BYTES, buffer, 99), 0);
    read_through(&it, "read", 700001, 0);
    T_EQ("four requests", atomic_load(&requested), PREFETCH_BLOCKS);
    T_EQ("what was read is gone", in_use(&it), 0);
    T_EQ("gone", stk_io_read_now(it.file, 0, buffer, 1), -EAGAIN);
    T_EQ("requested again", stk_io_read_wait(it.file, 0, buffer, FILE_BYTES), FILE_BYTES);
    T_TRUE("requested again", memcmp(buffer, content, FILE_BYTES) == 0);
    T_TRUE("requested again", atomic_load(&requested) > PREFETCH_BLOCKS);
    close_bringing(&it);

    open_bringing(&it, url, 2 * FILE_BYTES - 1, TIMEOUT_MS);
    stk_vfs_prefetch(it.file, &it);
    T_EQ("there is no room for it", in_use(&it), 0);
    read_through(&it, "read", 3000000, 0);
    close_bringing(&it);
    stk_pages_free(buffer, FILE_BYTES);
}

/* A walk touches all blocks, and keeps them; a file that is read except for one piece stays. */
static void test_peek(const char *url)
{
    struct prefetch_run it;
    uint8_t *buffer = stk_pages_alloc(FILE_BYTES);

    open_bringing(&it, url, 2 * FILE_BYTES, TIMEOUT_MS);
    set_fault(NONE, 0, 0);
    T_EQ("nothing is here", stk_vfs_prefetch_peek(it.file, 0, buffer, 9), -EAGAIN);
    stk_vfs_prefetch(it.file, &it);
    await_prefetched(&it);
    for (int i = 0; i < 3; i++) {
        T_EQ("peek", stk_vfs_prefetch_peek(it.file, 0, buffer, FILE_BYTES), FILE_BYTES);
        T_TRUE("peek", memcmp(buffer, content, FILE_BYTES) == 0);
    }
    T_EQ("all of it stays", in_use(&it), FILE_BYTES);
    for (int i = 0; i < 3; i++) {
        T_EQ("most", stk_io_read_now(it.file, 1u << 20, buffer, (8u << 20) - 8192),
             (8u << 20) - 8192);
    }
    T_EQ("it stays", in_use(&it), FILE_BYTES);
    T_EQ("the rest", stk_io_read_now(it.file, (9u << 20) - 8192, buffer, 8192), 8192);
    T_EQ("it is gone", in_use(&it), FILE_BYTES - (8u << 20));
    T_EQ("four requests", atomic_load(&requested), PREFETCH_BLOCKS);
    close_bringing(&it);
    stk_pages_free(buffer, FILE_BYTES);
}

/* A failure is reported to waiting reads, with the error of the store; a temporary one is
 * retried. */
static void test_prefetch_faults(const char *url, const struct row *row)
{
    struct prefetch_run it;

    open_bringing(&it, url, 4 * FILE_BYTES,
                  row->status < 0 && row->count > 100 ? HASTY_MS : TIMEOUT_MS);
    /* The temporary failure ends whenever this thread comes to the next line. */
    set_fault(row->fault, row->from, row->status < 0 && row->count > 1 ? 100000 : row->count);
    stk_vfs_prefetch(it.file, &it);
    if (row->from == 0 && (row->status == 0 || row->count > 1)) {
        if (row->status < 0) {
            set_fault(row->fault, row->from, row->count);
        }
        read_through(&it, row->name, 900000, row->status);
    }
    close_bringing(&it); /* whatever is on its way */
}

static void test_prefetch_ends(const char *url)
{
    struct stk_queue *queue = NULL;
    struct prefetch_run it, *other = &it + 1;
    uint8_t *buffer = stk_pages_alloc(STK_IO_ALIGN);
    struct stk_read read = {.buffer = buffer, .bytes = 9, .capacity = STK_IO_ALIGN};
    uint64_t until_ns = stk_clock_ns() + 5000000000ull;

    open_bringing(&it, url, 4 * FILE_BYTES, TIMEOUT_MS);
    set_fault(NONE, 0, 0);
    do { /* some may have arrived before this thread continues */
        stk_vfs_prefetch(it.file, &it);
    } while (stk_vfs_prefetch_trim(it.io) > 0 && stk_clock_ns() < until_ns);
    T_TRUE("what flies stays", stk_vfs_is_prefetched(it.file, 0, FILE_BYTES));
    await_prefetched(&it);
    stk_vfs_prefetch_release(it.io, other);
    T_TRUE("it is another's", stk_vfs_is_prefetched(it.file, 0, 1));
    T_EQ("given back", stk_vfs_prefetch_trim(it.io), FILE_BYTES);
    T_EQ("given back", in_use(&it), 0);
    read_through(&it, "read", 5000000, 0);

    /* The owner drops an object that never arrives: a waiting read sends its own request. */
    set_fault(SILENT, 0, PREFETCH_BLOCKS);
    stk_vfs_prefetch(it.file, &it);
    T_EQ("queue", stk_io_queue_open(it.io, &queue, NULL), 0);
    read.file = it.file;
    T_EQ("taken", stk_io_submit(it.io, queue, &read), 1);
    while (atomic_load(&requested) < PREFETCH_BLOCKS && stk_clock_ns() < until_ns) {
        stk_io_reap(it.io, queue, 1);
    }
    stk_vfs_prefetch_release(it.io, &it);
    while (stk_clock_ns() < until_ns && !stk_io_reap(it.io, queue, 100)) {
    }
    T_EQ("by himself", read.result, 9);
    T_TRUE("by himself", memcmp(buffer, content, 9) == 0);
    while (in_use(&it) > 0 && stk_clock_ns() < until_ns) {
        stk_io_reap(it.io, queue, 1);
    }
    T_EQ("let go", in_use(&it), 0);

    /* A queue is closed while its read waits for data that never arrives. */
    set_fault(SILENT, 0, 1000);
    stk_vfs_prefetch(it.file, &it);
    T_EQ("taken", stk_io_submit(it.io, queue, &read), 1);
    stk_io_queue_close(it.io, queue);
    T_EQ("closed", read.result, STOKER_ERROR_CLOSED);
    close_bringing(&it);
    stk_pages_free(buffer, STK_IO_ALIGN);
}

/* A prefetched object that does not match its checksum is not used for later openers, though each
 * byte of it is in memory; a file that reads all bytes by itself, correctly, is not affected. */
static void test_prefetch_damaged(const char *url)
{
    struct stk_file *late = NULL, *anew = NULL;
    struct prefetch_run it;
    uint8_t byte;

    open_bringing(&it, url, 4 * FILE_BYTES, TIMEOUT_MS);
    set_fault(FLIP, 0, 1);
    atomic_store(&withheld, true); /* the prefetch is in flight until the file is open */
    stk_vfs_prefetch_head(it.io, url, &it);
    await_requested(1);
    stk_vfs_prefetch(it.file, &it);
    T_EQ("open", stk_io_open_file(it.io, url, &late, NULL), 0);
    stk_remote_checksum_wait(&stk_remote_file_of(late)->checksum);
    T_TRUE("shared", atomic_load(&stk_remote_file_of(late)->users) > 1);
    atomic_store(&withheld, false);
    for (uint64_t at = 0; at < FILE_BYTES; at += 1u << 20) { /* until all of it has arrived */
        (void)stk_io_read_wait(late, at, &byte, 1);
    }
    for (uint64_t at = 0; at < FILE_BYTES; at += 5u << 20) {
        T_EQ("damaged", stk_io_read_now(late, at, &byte, 1), -EAGAIN);
        T_EQ("damaged", stk_io_read_wait(late, at, &byte, 1), STOKER_ERROR_CORRUPT);
    }
    T_EQ("open anew", stk_io_open_file(it.io, url, &anew, NULL), 0);
    stk_remote_checksum_wait(&stk_remote_file_of(anew)->checksum);
    T_EQ("complete this time", stk_io_read_wait(anew, 0, &byte, 1), 1);
    stk_io_close_file(anew);
    read_through(&it, "by himself", 3000000, 0);
    stk_io_close_file(late);
    close_bringing(&it);
}

static void test_prefetch_no_memory(const char *url)
{
    for (uint64_t n = 1; n <= 12; n += T_STRIDE) {
        struct prefetch_run it;

        open_bringing(&it, url, 4 * FILE_BYTES, TIMEOUT_MS);
        set_fault(NONE, 0, 0);
        stk_mem_fail_nth(n);
        stk_vfs_prefetch(it.file, &it);
        stk_mem_fail_nth(0);
        read_through(&it, "read", 6000000, 0);
        close_bringing(&it);
    }
}

int main(void)
{
    char web[64];

    make_content();
    start_server();
    snprintf(web, sizeof web, "http://127.0.0.1:%d/a/file", server.port);
    urls[0] = web;
    for (size_t i = 0; i < STK_COUNT(urls); i++) {
        test_prefetch(urls[i]);
        test_peek(urls[i]);
        test_prefetch_damaged(urls[i]);
        T_EACH(row, row, rows)
        {
            test_prefetch_faults(urls[i], row);
        }
    }
    test_prefetch_ends(web);
    test_prefetch_no_memory(web);
    end_server();
    return t_finish();
}
