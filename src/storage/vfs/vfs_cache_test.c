/* Goal: reads through the node cache return the right bytes or the error that they return without
 * it, whatever the server does; and a later reader requests no block again. Reads that are
 * cancelled end at once. Method: the faults of vfs_test.h, once through an empty cache and once
 * after it; queues; threads that read the same object at the same time. Covers
 * block_reader.c, block_flight.c and range_read.c. */
#include "storage/vfs/vfs_test.h"

#include "io/clock.h"

#include <pthread.h>

#define BLOCK (4u << 20)
#define BLOCKS (FILE_BYTES / BLOCK)
#define THREADS 6u

static char folder[64];

static void clear_folder(void)
{
    char name[128];

    for (uint32_t i = 0; i < STK_CACHE_FILES; i++) {
        snprintf(name, sizeof name, "%s/stoker-cache.data-%u", folder, i);
        unlink(name);
    }
    snprintf(name, sizeof name, "%s/" STK_CACHE_INDEX_NAME, folder);
    unlink(name);
    rmdir(folder);
}

static void open_cache(uint64_t quota)
{
    const char *paths[] = {folder};
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = paths,
                                           .path_count = 1,
                                           .bytes_max = quota,
                                           .free_bytes = 1,
                                           .block_bytes = BLOCK};

    clear_folder();
    T_EQ("cache", stoker_cache_open(&cache, &options, NULL), 0);
}

static void close_cache(void)
{
    stoker_cache_close(cache);
    cache = NULL;
    clear_folder();
}

static struct stoker_cache_stats stats_of(void)
{
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};

    T_EQ("stats", stoker_cache_stats(cache, &stats), 0);
    return stats;
}

/* Reads all of the file. Returns the status; 0: the bytes are right. */
static int64_t read_all(struct stk_io *io)
{
    uint8_t *buffer = stk_pages_alloc(FILE_BYTES);
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    int64_t got = stk_io_open_file(io, urls[1], &file, &error);

    if (got == 0) {
        stk_vfs_fetch_checksum(file); /* else it may arrive after the last byte */
        got = stk_io_read_wait(file, 0, buffer, FILE_BYTES);
        if (got < 0 && T_TRUE("described", stk_io_last_read_error(file, (int)got, &error))) {
            check_error("read", &error);
        }
        got = got == FILE_BYTES ? (memcmp(buffer, content, FILE_BYTES) == 0 ? 0 : 1) : got;
        stk_io_close_file(file);
    }
    stk_pages_free(buffer, FILE_BYTES);
    return got;
}

static void test_faults(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_io *io;

        if (row->fault == BREAK_RESET || row->status == -EBUSY) { /* they take long */
            continue;
        }
        open_cache(64u << 20);
        io = open_route(row->status == STOKER_ERROR_TIMEOUT ? HASTY_MS : TIMEOUT_MS, NULL);
        set_fault(row->fault, row->from, row->count);
        T_EQ(row->name, read_all(io), row->status);
        set_fault(NONE, 0, 0);
        stk_io_close(io);
        io = open_route(TIMEOUT_MS, NULL);
        T_EQ(row->name, read_all(io), 0); /* what is cached is right */
        stk_io_close(io);
        set_fault(NONE, 0, 0);
        io = open_route(TIMEOUT_MS, NULL);
        T_EQ(row->name, read_all(io), 0);
        T_EQ("nothing is requested again", atomic_load(&requested), 0);
        stk_io_close(io);
        close_cache();
    }
}

/* A quota of three blocks: the others come from the store each time. */
static void test_small_quota(void)
{
    struct stk_io *io;
    uint64_t quota = stk_cache_index_bytes(STK_CACHE_SLOTS_MIN) +
                     3 * (stk_cache_region_bytes(BLOCK) + STK_CACHE_HEAD_BYTES);

    open_cache(quota);
    io = open_route(TIMEOUT_MS, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        set_fault(NONE, 0, 0);
        T_EQ("read", read_all(io), 0);
        T_EQ("requests", atomic_load(&requested), i == 0 ? BLOCKS : BLOCKS - 3);
    }
    T_EQ("filled", stats_of().blocks_filled, 3);
    T_EQ("bypasses", stats_of().bypasses, 2 + 2 * 2);
    T_TRUE("quota", stats_of().bytes_used <= quota);
    stk_io_close(io);
    close_cache();
}

struct reader {
    struct stk_io *io;
    int64_t status;
    pthread_t thread;
};

static void *run_reader(void *context)
{
    struct reader *reader = context;

    reader->status = read_all(reader->io);
    return NULL;
}

/* Engines of one process and threads of one engine share a download. A budget that grants one block
 * at a time delays it only. */
static void test_single_flight(void)
{
    struct stk_budget budget = {.bytes_max = 20u << 20};
    struct reader readers[THREADS];
    struct stk_io *ios[2];

    open_cache(64u << 20);
    set_fault(NONE, 0, 0);
    ios[0] = open_route(TIMEOUT_MS, NULL);
    ios[1] = open_route(TIMEOUT_MS, &budget);
    for (uint32_t i = 0; i < THREADS; i++) {
        readers[i] = (struct reader){.io = ios[i % 2]};
        T_EQ("start", pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        T_EQ("read", readers[i].status, 0);
    }
    T_EQ("each block once", atomic_load(&requested), BLOCKS);
    T_EQ("filled", stats_of().blocks_filled, BLOCKS);
    T_EQ("bypasses", stats_of().bypasses, 0);
    stk_io_close(ios[0]);
    stk_io_close(ios[1]);
    T_EQ("budget", atomic_load(&budget.bytes), 0);
    close_cache();
}

/* Reads of a queue, over the ends of blocks; then the same by read_now, from the page cache. */
static void test_queue(void)
{
    enum { READS = 12, BYTES = 1u << 20 };
    struct stk_io *io;
    struct stk_queue *queue = NULL;
    struct stk_read reads[READS] = {0};
    struct stk_file *file = NULL;
    uint8_t *buffers = stk_pages_alloc((size_t)READS * BYTES);
    uint32_t done = 0;

    open_cache(64u << 20);
    set_fault(NONE, 0, 0);
    io = open_route(TIMEOUT_MS, NULL);
    T_EQ("open", stk_io_open_file(io, urls[1], &file, NULL), 0);
    T_EQ("queue", stk_io_queue_open(io, &queue, NULL), 0);
    for (uint32_t i = 0; i < READS; i++) {
        reads[i] = (struct stk_read){.file = file,
                                     .offset = i * 1700000ull,
                                     .buffer = buffers + (size_t)i * BYTES,
                                     .bytes = BYTES,
                                     .capacity = BYTES,
                                     .next = i + 1 < READS ? &reads[i + 1] : NULL};
    }
    T_EQ("submit", stk_io_submit(io, queue, reads), READS);
    while (done < READS) {
        for (struct stk_read *read = stk_io_reap(io, queue, 1000); read; read = read->next) {
            T_EQ("result", read->result, BYTES);
            T_TRUE("bytes", memcmp(read->buffer, content + read->offset, BYTES) == 0);
            done++;
        }
    }
    T_EQ("each block once", atomic_load(&requested), BLOCKS);
    for (uint32_t i = 0; i < 500 && stats_of().blocks_filled < BLOCKS; i++) {
        usleep(10000); /* the bytes reach their readers before the disk */
    }
    memset(buffers, 0, BYTES);
    if (stk_io_read_now(file, BLOCK - 1000, buffers, BYTES) == BYTES) { /* not on tmpfs */
        T_TRUE("bytes", memcmp(buffers, content + BLOCK - 1000, BYTES) == 0);
    }
    T_EQ("read", stk_io_read_wait(file, 5, buffers, 10), 10);
    T_TRUE("bytes", memcmp(buffers, content + 5, 10) == 0);
    stk_io_queue_close(io, queue);
    stk_io_close_file(file);
    stk_io_close(io);
    stk_pages_free(buffers, (size_t)READS * BYTES);
    close_cache();
}

/* A queue that is closed, and a reader whose flag is set, do not wait for a silent server. */
static void test_cancel(void)
{
    _Atomic bool stop = true;
    struct stk_read read = {0};
    struct stk_queue *queue = NULL;
    struct stk_file *file = NULL;
    uint8_t *buffer = stk_pages_alloc(1u << 20);
    uint64_t start = stk_clock_ns();
    struct stk_io *io;

    open_cache(64u << 20);
    set_fault(SILENT, 0, 100000);
    io = open_route(60000, NULL);
    T_EQ("open", stk_io_open_file(io, urls[1], &file, NULL), 0);
    T_EQ("queue", stk_io_queue_open(io, &queue, NULL), 0);
    read =
        (struct stk_read){.file = file, .buffer = buffer, .bytes = 1u << 20, .capacity = 1u << 20};
    T_EQ("submit", stk_io_submit(io, queue, &read), 1);
    usleep(50000); /* its block is requested */
    stk_io_queue_close(io, queue);
    stk_io_set_cancel_flag(&stop);
    T_EQ("read", stk_io_read_wait(file, 8u << 20, buffer, 1000), STOKER_ERROR_CLOSED);
    stk_io_set_cancel_flag(NULL);
    stk_io_close_file(file);
    stk_io_close(io);
    T_TRUE("at once", stk_clock_ns() - start < 5000000000ull);
    stk_pages_free(buffer, 1u << 20);
    close_cache();
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/stoker-vfs-cache-test-%d", (int)getpid());
    make_content();
    start_server();
    test_faults();
    test_small_quota();
    test_single_flight();
    test_queue();
    test_cancel();
    end_server();
    return t_finish();
}
