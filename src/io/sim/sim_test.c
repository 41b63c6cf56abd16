/* Goal: the simulated file system has faults that a seed repeats, and a clock that advances only
 * during waits.
 * Method: each fault is set and hit by every kind of read; two file systems of one seed are
 * compared, and two of different seeds. */
#include "io/sim/sim.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define FILE_BYTES 100000u
#define SECOND 1000000000ull

static uint8_t bytes_of_file[FILE_BYTES];

static struct stk_io *world_new(uint64_t seed, uint32_t direct)
{
    struct stk_io_options options = {.direct = direct, .depth = 8, .read_timeout_ms = 5000};
    struct stk_io *io = NULL;

    for (size_t i = 0; i < FILE_BYTES; i++) {
        bytes_of_file[i] = (uint8_t)stk_random_key(1, i);
    }
    T_EQ("open", stk_sim_open(&io, seed, &options, NULL), 0);
    T_EQ("add", stk_sim_add(io, "data/file", bytes_of_file, FILE_BYTES), 0);
    T_EQ("add", stk_sim_add(io, "data/other", bytes_of_file, 10), 0);
    return io;
}

static const struct fault_row {
    const char *name;
    struct stk_sim_rule rule;
    int64_t now, wait, queue; /* of 50,000 bytes at 1,000; 0: fewer than requested, not none */
    uint64_t clock_ns;        /* after read_wait and a reap */
    bool lost;
} fault_rows[] = {
    {"none", {"data/other", STK_SIM_FAULT_EIO, 0, 0, 0, 0}, 50000, 50000, 50000, 0, false},
    {"short", {NULL, STK_SIM_FAULT_SHORT, 0, 0, 0, 0}, 0, 50000, 50000, 0, false},
    {"eio", {"data/file", STK_SIM_FAULT_EIO, 0, 0, 0, 0}, -EAGAIN, -EIO, -EIO, 0, false},
    {"eio in front", {NULL, STK_SIM_FAULT_EIO, 0, 0, 50999, 0}, -EAGAIN, -EIO, -EIO, 0, false},
    {"eio behind", {NULL, STK_SIM_FAULT_EIO, 0, 0, 51000, 0}, 50000, 50000, 50000, 0, false},
    {"eio once", {NULL, STK_SIM_FAULT_EIO, 0, 1, 0, 0}, -EAGAIN, -EIO, 50000, 0, false},
    {"slow", {NULL, STK_SIM_FAULT_SLOW, 0, 0, 0, SECOND}, -EAGAIN, 50000, 50000, 2 * SECOND, false},
    {"too slow",
     {NULL, STK_SIM_FAULT_SLOW, 0, 0, 0, 6 * SECOND},
     -EAGAIN,
     STOKER_ERROR_TIMEOUT,
     STOKER_ERROR_TIMEOUT,
     10 * SECOND,
     true},
    {"hang",
     {NULL, STK_SIM_FAULT_HANG, 0, 0, 0, 0},
     -EAGAIN,
     STOKER_ERROR_TIMEOUT,
     STOKER_ERROR_TIMEOUT,
     10 * SECOND,
     true},
    {"truncated", {NULL, STK_SIM_FAULT_TRUNCATED, 0, 0, 21000, 0}, 20000, 20000, 20000, 0, false},
    {"cold", {NULL, STK_SIM_FAULT_COLD, 0, 0, 0, 0}, -EAGAIN, 50000, 50000, 0, false},
};

static void test_faults(uint32_t direct)
{
    static uint8_t buffer[1 << 17] __attribute__((aligned(STK_IO_ALIGN)));

    T_EACH(fault_row, row, fault_rows)
    {
        int64_t alive = stk_mem_alive();
        struct stk_io *io = world_new(7, direct);
        struct stk_file *file = NULL;
        struct stk_queue *queue = NULL;
        struct stk_read read = {.offset = 1000, .buffer = buffer, .bytes = 50000};
        struct stk_stat stat = {0};
        uint64_t start_ns = stk_io_clock_ns(io);
        int64_t count;

        read.capacity = stk_read_capacity(read.bytes);
        T_EQ(row->name, stk_sim_add_rule(io, &row->rule), 0);
        T_EQ(row->name, stk_io_open_file(io, "/data/file", &file, NULL), 0);
        T_EQ(row->name, stk_io_stat_file(file, &stat, NULL), 0);
        T_EQ(row->name, stat.bytes, FILE_BYTES);
        count = stk_io_read_now(file, 1000, buffer, 50000);
        T_TRUE(row->name, row->now ? count == row->now : count > 0 && count < 50000);
        T_TRUE(row->name, count <= 0 || memcmp(buffer, bytes_of_file + 1000, count) == 0);
        count = stk_io_read_wait(file, 1000, buffer, 50000);
        T_EQ(row->name, count, row->wait);
        T_TRUE(row->name, count <= 0 || memcmp(buffer, bytes_of_file + 1000, count) == 0);

        memset(buffer, 0xee, sizeof buffer);
        read.file = file;
        T_EQ(row->name, stk_io_queue_open(io, &queue, NULL), 0);
        T_EQ(row->name, stk_io_submit(io, queue, &read), 1);
        T_TRUE(row->name, stk_io_reap(io, queue, 60000) == &read);
        T_EQ(row->name, read.result, row->queue);
        T_EQ(row->name, read.leaked, row->lost);
        T_EQ(row->name, stk_io_leaked_bytes(io), row->lost ? read.capacity : 0);
        T_EQ(row->name, read.skip, direct == STOKER_DIRECT_ALWAYS && read.result > 0 ? 1000 : 0);
        T_TRUE(row->name, read.result <= 0 ||
                              memcmp(buffer + read.skip, bytes_of_file + 1000, read.result) == 0);
        T_EQ(row->name, stk_io_clock_ns(io) - start_ns, row->clock_ns);
        stk_io_queue_close(io, queue);
        stk_io_close_file(file);
        stk_io_close(io);
        T_EQ(row->name, stk_mem_alive(), alive);
    }
}

/* A word of which of 64 reads fail. */
static uint64_t pattern(uint64_t seed, uint32_t every)
{
    struct stk_io *io = world_new(seed, 0);
    struct stk_sim_rule rule = {NULL, STK_SIM_FAULT_EIO, every, 0, 0, 0};
    struct stk_file *file = NULL;
    uint64_t word = 0;
    uint8_t byte;

    T_EQ("rule", stk_sim_add_rule(io, &rule), 0);
    T_EQ("open", stk_io_open_file(io, "data/file", &file, NULL), 0);
    for (int i = 0; i < 64; i++) {
        /* Each place twice: a second try is a new draw. */
        word |= (uint64_t)(stk_io_read_wait(file, i / 2, &byte, 1) < 0) << i;
    }
    stk_io_close(io);
    return word;
}

static void test_seeds(void)
{
    uint64_t first = pattern(1, 4);

    T_TRUE("the same seed, the same faults", pattern(1, 4) == first);
    T_TRUE("another seed, others", pattern(2, 4) != first);
    T_TRUE("one in four", __builtin_popcountll(first) >= 6 && __builtin_popcountll(first) <= 28);
    T_TRUE("a second try differs", ((first ^ (first >> 1)) & 0x5555555555555555u) != 0);
    T_EQ("all", __builtin_popcountll(pattern(1, 1)), 64);
}

static const struct path_row {
    const char *name, *path;
    int status, kind;
} path_rows[] = {
    {"file", "data/file", 0, STK_ENTRY_FILE},
    {"absolute", "/data//./file", 0, STK_ENTRY_FILE},
    {"dots", "data/../data/file", 0, STK_ENTRY_FILE},
    {"above the root", "../../data/file", 0, STK_ENTRY_FILE},
    {"folder", "data/", 0, STK_ENTRY_DIRECTORY},
    {"root", "/", 0, STK_ENTRY_DIRECTORY},
    {"link", "data/link", 0, STK_ENTRY_DIRECTORY},
    {"through a link", "data/link/link/file", 0, STK_ENTRY_FILE},
    {"relative link", "data/deep/up", 0, STK_ENTRY_FILE},
    {"absent", "data/absent", -ENOENT, 0},
    {"below a file", "data/file/x", -ENOTDIR, 0},
    {"broken", "broken", -ENOENT, 0},
    {"loop", "loop", -ELOOP, 0},
};

static void test_paths(void)
{
    static const char *const names[] = {"deep", "denied", "file", "link", "other"};
    struct stk_io *io = world_new(1, 0);
    struct stk_listing listing = {0};
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    struct stk_stat stat = {0};

    T_EQ("link", stk_sim_add_link(io, "data/link", "/data"), 0);
    T_EQ("link", stk_sim_add_link(io, "data/deep/up", "../file"), 0);
    T_EQ("link", stk_sim_add_link(io, "broken", "nowhere"), 0);
    T_EQ("link", stk_sim_add_link(io, "loop", "loop"), 0);
    T_EQ("add", stk_sim_add(io, "data/denied", NULL, 0), 0);
    T_EQ("again", stk_sim_add(io, "data/denied", NULL, 0), 0);
    T_EQ("taken", stk_sim_add(io, "data/file", "x", 1), -EEXIST);
    T_EQ("no folder", stk_sim_add(io, "data/file/x", "x", 1), -ENOTDIR);
    T_EACH(path_row, row, path_rows)
    {
        T_EQ(row->name, stk_io_stat_path(io, row->path, &stat, &error), row->status);
        if (row->status == 0) {
            T_EQ(row->name, stat.kind, row->kind);
        } else {
            T_ERROR(row->name, &error);
        }
    }
    T_EQ("list", stk_io_list(io, "data/link", &listing, &error), 0);
    if (T_EQ("count", listing.count, STK_COUNT(names))) {
        for (size_t i = 0; i < STK_COUNT(names); i++) {
            T_STR("entry", listing.entries[i].name, names[i]);
        }
        T_EQ("link", listing.entries[3].kind, STK_ENTRY_DIRECTORY);
        stk_io_stat_path(io, "data", &stat, NULL);
        T_EQ("identity", listing.entries[3].inode, stat.inode);
    }
    stk_listing_free(&listing);
    T_EQ("rule",
         stk_sim_add_rule(io,
                          &(struct stk_sim_rule){"data/denied", STK_SIM_FAULT_DENIED, 0, 0, 0, 0}),
         0);
    T_EQ("denied", stk_io_list(io, "data/denied", &listing, &error), -EACCES);
    T_ERROR("denied", &error);
    T_EQ("open a folder", stk_io_open_file(io, "data", &file, &error), -EISDIR);
    T_EQ("list a file", stk_io_list(io, "data/file", &listing, &error), -ENOTDIR);
    stk_io_close(io);
}

static void *wake(void *argument)
{
    void **pair = argument;

    stk_io_wake(pair[0], pair[1]);
    return NULL;
}

static void test_queue(void)
{
    static uint8_t buffers[10][8192] __attribute__((aligned(STK_IO_ALIGN)));
    struct stk_sim_rule slow = {"data/file", STK_SIM_FAULT_SLOW, 0, 0, 0, SECOND};
    struct stk_io *io = world_new(1, 0);
    struct stk_queue *queue = NULL;
    struct stk_file *files[2] = {NULL};
    struct stk_read reads[10] = {{0}}, *list;
    void *pair[2];
    pthread_t thread;

    stk_sim_add_rule(io, &slow);
    stk_io_open_file(io, "data/other", &files[0], NULL);
    stk_io_open_file(io, "data/file", &files[1], NULL);
    T_EQ("open", stk_io_queue_open(io, &queue, NULL), 0);
    for (int i = 0; i < 10; i++) {
        reads[i] = (struct stk_read){.file = files[i % 2],
                                     .buffer = buffers[i],
                                     .bytes = 10,
                                     .capacity = sizeof buffers[i],
                                     .next = i < 9 ? &reads[i + 1] : NULL};
    }
    T_EQ("as many as depth", stk_io_submit(io, queue, reads), 8);
    list = stk_io_reap(io, queue, 0);
    for (int i = 0; i < 8; i += 2, list = list ? list->next : NULL) {
        T_TRUE("the fast ones", list == &reads[i] && list->result == 10);
    }
    T_TRUE("not yet", list == NULL && stk_io_reap(io, queue, 999) == NULL);
    list = stk_io_reap(io, queue, 2);
    for (int i = 1; i < 8; i += 2, list = list ? list->next : NULL) {
        T_TRUE("the slow ones", list == &reads[i] && list->result == 10);
    }
    pair[0] = io;
    pair[1] = queue;
    pthread_create(&thread, NULL, wake, pair);
    T_TRUE("woken", stk_io_reap(io, queue, 60000) == NULL);
    pthread_join(thread, NULL);
    T_TRUE("idle", stk_io_reap(io, queue, 20) == NULL);
    reads[9].next = NULL;
    T_EQ("one more", stk_io_submit(io, queue, &reads[9]), 1);
    stk_io_queue_close(io, queue);
    T_TRUE("given up", reads[9].leaked && reads[9].result == STOKER_ERROR_CLOSED);
    T_EQ("lost", stk_io_leaked_bytes(io), sizeof buffers[9]);
    stk_io_close(io);
}

static void test_memory(void)
{
    int64_t alive = stk_mem_alive();
    int status = -1;

    for (uint64_t n = 1; status < 0 && n < 100; n++) {
        struct stk_io *io = NULL;
        struct stk_queue *queue = NULL;
        struct stk_listing listing = {0};
        struct stoker_error error = {0};

        stk_mem_fail_nth(n);
        status = stk_sim_open(&io, 1, NULL, &error);
        if (io) {
            status = stk_sim_add(io, "a/b", "x", 1);
            status = status < 0 ? status : stk_sim_add_link(io, "a/c", "b");
            status = status < 0 ? status : stk_io_queue_open(io, &queue, &error);
            status = status < 0 ? status : stk_io_list(io, "a", &listing, &error);
            stk_listing_free(&listing);
            stk_io_queue_close(io, queue);
        }
        stk_io_close(io);
        stk_mem_fail_nth(0);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
    T_EQ("in the end", status, 0);
}

/* Mapped files are copies, cold or warm as the test sets (sim_map.c). */
static void test_maps(void)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 3000};
    struct stk_file *file = NULL;
    struct stk_view view;
    struct stk_io *io = NULL;
    uint64_t reads;

    T_EQ("world", stk_sim_open(&io, 1, &options, NULL), 0);
    T_EQ("add", stk_sim_add(io, "/a", "abcdef", 6), 0);
    T_EQ("open", stk_io_open_file(io, "/a", &file, NULL), 0);
    T_EQ("map", stk_io_map(io, file, &view, NULL), 0);
    stk_io_close_file(file);
    T_TRUE("bytes", view.bytes == 6 && memcmp(view.data, "abcdef", 6) == 0);
    stk_io_map_prefetch(io, (struct stk_view){view.data + 2, 3});
    stk_io_map_prefetch(io, (struct stk_view){view.data, 0});
    T_EQ("announced", stk_sim_prefetched_bytes(io), 3);
    reads = stk_io_thread_disk_reads(io);
    T_EQ("warm", stk_io_thread_disk_reads(io), reads);
    stk_sim_set_cold(io, true);
    stk_io_thread_disk_reads(io);
    T_TRUE("cold", stk_io_thread_disk_reads(io) > reads);
    stk_io_unmap(io, view);
    stk_io_close(io);
}

int main(void)
{
    test_faults(STOKER_DIRECT_NEVER);
    test_faults(STOKER_DIRECT_ALWAYS);
    test_seeds();
    test_paths();
    test_queue();
    test_memory();
    test_maps();
    return t_finish();
}
