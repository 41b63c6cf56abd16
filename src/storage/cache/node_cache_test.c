/* Goal: a cache returns the right bytes or none, after flipped bits and torn writes, after a
 * process was killed and after the disk was full; it stays within its quota, and one process at a
 * time fills a block. Method: rows of ranges; every page of a crash old, empty or new; children
 * that are killed at random moments; calls to the kernel that fail. Covers cache_block.c,
 * cache_index.c, cache_disk.c, cache_folder.c, node_cache.c and cache_report.c. */
#include "storage/cache/node_cache.h"

#include "base/mem.h"
#include "base/random.h"
#include "io/clock.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (128u << 10)
#define QUOTA (8u << 20)
#define PAGE 4096u

static char folder[64];
static _Atomic int failing; /* what the calls to the kernel return */
static enum stk_cache_call failing_call;

static int fail_call(enum stk_cache_call call)
{
    return call == failing_call ? failing : 0;
}

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

static struct stoker_cache *open_cache(uint64_t quota, uint32_t block_bytes)
{
    const char *paths[] = {folder};
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = paths,
                                           .path_count = 1,
                                           .bytes_max = quota,
                                           .free_bytes = 1,
                                           .block_bytes = block_bytes};
    struct stoker_cache *cache = NULL;
    struct stoker_error error = {0};

    if (!T_EQ("open", stk_cache_open_with(&cache, &options, fail_call, &error), 0)) {
        fprintf(stderr, "%s: %s\n", error.what, error.where);
        abort();
    }
    return cache;
}

/* The blocks of the tests: block `number` of an object whose bytes follow from both. */
static struct stk_cache_block block_of(struct stoker_cache *cache, uint32_t object, uint64_t number,
                                       uint64_t object_bytes)
{
    char url[32];
    struct stk_cache_object about = {.bytes = object_bytes, .url = "s3://b/o", .tag = "\"t\""};

    snprintf(url, sizeof url, "s3://b/%u", object);
    stk_cache_object_key("http://store", url, "\"t\"", object_bytes, &about.key);
    return stk_cache_block_of(cache, &about, number);
}

static void fill_bytes(uint8_t *data, const struct stk_cache_block *block)
{
    uint64_t seed = 0;

    memcpy(&seed, block->key.bytes, sizeof seed);
    for (uint32_t i = 0; i < block->bytes; i++) {
        if (i % 8 == 0) {
            seed = stk_mix64(seed + 1);
        }
        data[i] = (uint8_t)(seed >> (i % 8 * 8));
    }
}

/* Fills a block. Returns its turn. */
static enum stk_cache_turn fill(struct stoker_cache *cache, const struct stk_cache_block *block)
{
    uint8_t *data = stk_alloc(1, block->bytes);
    struct stk_cache_fill turn_of;
    enum stk_cache_turn turn =
        stk_cache_disk_begin(stk_cache_disk_of(cache, block), block, &turn_of);

    if (turn == STK_CACHE_TURN_MINE) {
        fill_bytes(data, block);
        if (stk_cache_disk_write(&turn_of, block, data) < 0) {
            turn = STK_CACHE_TURN_REFUSED;
        }
    }
    stk_free(data);
    return turn;
}

/* Reads a part of a block. Returns the status; 1: the bytes are wrong. */
static int check(struct stoker_cache *cache, const struct stk_cache_block *block, uint32_t offset,
                 uint32_t bytes)
{
    uint8_t *want = stk_alloc(1, block->bytes), *got = stk_alloc(1, bytes + 1);
    struct stk_cache_part part = {.offset = offset, .bytes = bytes, .buffer = got};
    int status = stk_cache_read(cache, block, &part);

    fill_bytes(want, block);
    status = status == 0 && memcmp(got, want + offset, bytes) != 0 ? 1 : status;
    status = got[bytes] != 0 ? 1 : status; /* a byte beyond the part */
    stk_free(want);
    stk_free(got);
    return status;
}

static uint64_t bytes_on_disk(void)
{
    uint64_t bytes = 0;

    for (int i = -1; i < (int)STK_CACHE_FILES; i++) {
        char name[128];
        struct stat about = {0};

        snprintf(name, sizeof name, i < 0 ? "%s/" STK_CACHE_INDEX_NAME : "%s/stoker-cache.data-%d",
                 folder, i);
        if (stat(name, &about) == 0) {
            bytes += (uint64_t)about.st_blocks * 512;
        }
    }
    return bytes;
}

static struct stoker_cache_stats stats_of(struct stoker_cache *cache)
{
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};

    T_EQ("stats", stoker_cache_stats(cache, &stats), 0);
    return stats;
}

static void test_ranges(void)
{
    static const struct row {
        uint64_t object_bytes;
        uint32_t offset, bytes;
    } rows[] = {
        {1, 0, 1},          {32767, 0, 32767},      {32768, 1, 32767},
        {32769, 32768, 1},  {100000, 0, 100000},    {100000, 40000, 8},
        {100000, 32767, 2}, {100000, 99999, 1},     {100000, 65536, 32768},
        {BLOCK, 0, BLOCK},  {BLOCK, 5, BLOCK - 10},
    };
    struct stoker_cache *cache = open_cache(QUOTA, BLOCK);

    for (uint32_t round = 0; round < 2; round++) { /* the second one after a restart */
        T_EACH(row, row, rows)
        {
            struct stk_cache_block block = block_of(cache, 1, 0, row->object_bytes);

            if (round == 0) {
                fill(cache, &block);
            }
            T_EQ("there", fill(cache, &block), STK_CACHE_TURN_PRESENT);
            T_EQ("right", check(cache, &block, row->offset, row->bytes), 0);
            block = block_of(cache, 2, 0, row->object_bytes);
            T_EQ("another object", check(cache, &block, row->offset, row->bytes), -ENOENT);
        }
        stoker_cache_close(cache);
        cache = open_cache(0, BLOCK);
    }
    T_EQ("the quota stays", stats_of(cache).bytes_max, QUOTA);
    stoker_cache_close(cache);
    clear_folder();
}

/* Each flipped bit is found, in chunks, trailers and heads. */
static void test_flips(void)
{
    struct stoker_cache *cache = open_cache(QUOTA, BLOCK);
    struct stk_cache_block block = block_of(cache, 1, 0, 70000);
    struct stk_cache_disk *disk = &cache->disks[0];
    struct stk_cache_head head;
    uint8_t *buffer = stk_alloc(1, 70000), raw[STK_CACHE_HEAD_BYTES], byte;
    uint64_t state, at, found = 0, flips = T_HISTORIES(10000);
    struct stk_cache_part part = {.bytes = 70000, .buffer = buffer};
    uint32_t slot;
    int fd;

    fill(cache, &block);
    slot = stk_cache_index_find(&disk->index, &block.key, &state);
    fd = disk->data[slot % STK_CACHE_FILES];
    at = slot / STK_CACHE_FILES * stk_cache_region_bytes(BLOCK);
    for (uint64_t i = 0; i < flips; i++) {
        uint64_t place = stk_mix64(i) % (70000 + 3 * 16), bit = stk_mix64(i + flips) % 8;
        off_t where = (off_t)(at + STK_CACHE_HEAD_BYTES + place);

        T_EQ("read", pread(fd, &byte, 1, where), 1);
        byte ^= (uint8_t)(1u << bit);
        T_EQ("flip", pwrite(fd, &byte, 1, where), 1);
        found += stk_cache_block_read(fd, at, &block, &part) == -EBADMSG;
        byte ^= (uint8_t)(1u << bit);
        T_EQ("flip back", pwrite(fd, &byte, 1, where), 1);
    }
    T_EQ("found", found, flips);
    T_EQ("complete again", check(cache, &block, 0, 70000), 0);
    T_EQ("head", pread(fd, raw, sizeof raw, (off_t)at), sizeof raw);
    T_TRUE("head is valid", stk_cache_head_decode(raw, &head));
    T_STR("its URL", head.url, "s3://b/o");
    for (uint32_t bit = 0; bit < 8 * 2000; bit++) {
        raw[bit / 8] ^= (uint8_t)(1u << bit % 8);
        T_TRUE("damaged head", !stk_cache_head_decode(raw, &head));
        raw[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    T_EQ("cut", ftruncate(fd, (off_t)at + 5000), 0);
    T_EQ("a cut block is dropped", check(cache, &block, 0, 70000), -ENOENT);
    T_EQ("counted", stats_of(cache).blocks_dropped, 1);
    T_EQ("and filled again", fill(cache, &block), STK_CACHE_TURN_MINE);
    T_EQ("right", check(cache, &block, 0, 70000), 0);
    stk_free(buffer);
    stoker_cache_close(cache);
    clear_folder();
}

static void test_turns(void)
{
    struct stoker_cache *one = open_cache(QUOTA, BLOCK), *two = open_cache(0, BLOCK);
    struct stk_cache_block block = block_of(one, 1, 0, 1000);
    struct stk_cache_fill first, second;
    uint8_t data[1000];

    fill_bytes(data, &block);
    T_EQ("first", stk_cache_disk_begin(&one->disks[0], &block, &first), STK_CACHE_TURN_MINE);
    T_EQ("same process", stk_cache_disk_begin(&one->disks[0], &block, &second),
         STK_CACHE_TURN_BUSY);
    T_EQ("another", stk_cache_disk_begin(&two->disks[0], &block, &second), STK_CACHE_TURN_BUSY);
    T_EQ("not read", check(two, &block, 0, 1000), -ENOENT);
    stk_cache_disk_abandon(&first);
    T_EQ("after it gave up", stk_cache_disk_begin(&two->disks[0], &block, &second),
         STK_CACHE_TURN_MINE);
    T_EQ("written", stk_cache_disk_write(&second, &block, data), 0);
    T_EQ("present", stk_cache_disk_begin(&one->disks[0], &block, &first), STK_CACHE_TURN_PRESENT);
    T_EQ("read", check(one, &block, 0, 1000), 0);
    stoker_cache_close(one);
    stoker_cache_close(two);
    clear_folder();
}

/* A disk that fails makes nothing fail but the fill; after a pause it is tried again. */
static void test_disk_failures(void)
{
    static const struct row {
        enum stk_cache_call call;
        int status;
    } rows[] = {{STK_CACHE_CALL_RESERVE, -ENOSPC}, {STK_CACHE_CALL_RESERVE, -EROFS},
                {STK_CACHE_CALL_RESERVE, -EDQUOT}, {STK_CACHE_CALL_WRITE, -EIO},
                {STK_CACHE_CALL_WRITE, -ENOSPC},   {STK_CACHE_CALL_READ, -EIO}};
    struct stoker_cache *cache = open_cache(QUOTA, BLOCK);
    struct stk_cache_block good = block_of(cache, 100, 0, BLOCK);
    uint64_t used;

    fill(cache, &good);
    used = stats_of(cache).bytes_used;
    T_EACH(row, row, rows)
    {
        struct stk_cache_block block = block_of(cache, (uint32_t)(row - rows), 0, BLOCK);

        failing_call = row->call;
        failing = row->status;
        if (row->call == STK_CACHE_CALL_READ) {
            T_EQ("not read", check(cache, &good, 0, BLOCK), -ENOENT);
        }
        T_EQ("refused", fill(cache, &block), STK_CACHE_TURN_REFUSED);
        T_EQ("nothing is retained", stats_of(cache).bytes_used, used);
        failing = 0;
        T_EQ("paused", fill(cache, &block), STK_CACHE_TURN_REFUSED);
        T_EQ("hits go on", check(cache, &good, 0, BLOCK), 0);
        atomic_store(&cache->disks[0].paused_until, 1);
        T_EQ("tried again", fill(cache, &block), STK_CACHE_TURN_MINE);
        used = stats_of(cache).bytes_used;
    }
    T_TRUE("counted", stats_of(cache).disk_failures >= STK_COUNT(rows));
    stoker_cache_close(cache);
    clear_folder();
}

static void test_quota(void)
{
    struct stoker_cache *cache = open_cache(QUOTA, BLOCK);
    uint32_t readable = 0, still = 0;

    for (uint32_t i = 0; i < 100; i++) {
        struct stk_cache_block block = block_of(cache, i, 0, i % 3 ? BLOCK : 3000);

        fill(cache, &block);
        T_TRUE("within the quota", bytes_on_disk() <= QUOTA);
    }
    for (uint32_t i = 0; i < 100; i++) {
        struct stk_cache_block block = block_of(cache, i, 0, i % 3 ? BLOCK : 3000);

        readable += check(cache, &block, 0, block.bytes) == 0;
    }
    T_TRUE("most of it is used", stats_of(cache).bytes_used > QUOTA - 2 * BLOCK);
    T_TRUE("existing blocks stay", readable >= 60);
    stoker_cache_close(cache);
    cache = open_cache(QUOTA / 4, BLOCK); /* a smaller one */
    T_TRUE("collected", stoker_cache_collect(cache, NULL) > 0);
    T_TRUE("used", stats_of(cache).bytes_used <= QUOTA / 4);
    T_TRUE("on disk", bytes_on_disk() <= QUOTA / 4);
    for (uint32_t i = 0; i < 100; i++) {
        struct stk_cache_block block = block_of(cache, i, 0, i % 3 ? BLOCK : 3000);
        int status = check(cache, &block, 0, block.bytes);

        T_TRUE("right or gone", status == 0 || status == -ENOENT);
        still += status == 0;
    }
    T_TRUE("some are there", still > 0 && still < readable);
    T_EQ("none is damaged", stats_of(cache).blocks_dropped, 0);
    stoker_cache_close(cache);
    clear_folder();
}

static uint64_t sum_report(struct stoker_cache *cache, uint32_t action, const char *prefix,
                           struct stoker_cache_object *sum)
{
    struct stoker_cache_object object = {.struct_size = sizeof object};
    struct stoker_cache_report *report = NULL;
    uint64_t objects = 0;

    memset(sum, 0, sizeof *sum);
    T_EQ("report", stoker_cache_report_open(&report, cache, action, prefix, NULL), 0);
    while (stoker_cache_report_next(report, &object) == 1) {
        objects++;
        sum->blocks += object.blocks;
        sum->bytes += object.bytes;
        sum->blocks_pinned += object.blocks_pinned;
        sum->blocks_damaged += object.blocks_damaged;
    }
    stoker_cache_report_close(report);
    return objects;
}

static void test_reports(void)
{
    struct stoker_cache *cache = open_cache(QUOTA, BLOCK);
    struct stoker_cache_object sum;

    for (uint64_t i = 0; i < 5; i++) {
        struct stk_cache_block block = block_of(cache, 1, i, 5 * BLOCK - 100);

        fill(cache, &block);
    }
    T_EQ("one object", sum_report(cache, STOKER_CACHE_LIST, NULL, &sum), 1);
    T_EQ("blocks", sum.blocks, 5);
    T_EQ("bytes", sum.bytes, 5 * BLOCK - 100);
    T_EQ("verified", sum_report(cache, STOKER_CACHE_VERIFY, "s3://b/", &sum), 1);
    T_EQ("damaged", sum.blocks_damaged, 0);
    T_EQ("pinned", sum_report(cache, STOKER_CACHE_PIN, "s3://b/", &sum), 1);
    stoker_cache_close(cache);
    cache = open_cache(stk_cache_index_bytes(STK_CACHE_SLOTS_MIN) + 2 * BLOCK, BLOCK);
    T_EQ("pinned blocks are not evicted", stoker_cache_collect(cache, NULL), 0);
    T_EQ("another prefix", sum_report(cache, STOKER_CACHE_DROP, "s3://c", &sum), 0);
    T_EQ("unpinned", sum_report(cache, STOKER_CACHE_UNPIN, "s3://b/o", &sum), 1);
    T_EQ("pins", sum.blocks_pinned, 0);
    T_TRUE("evicted", stoker_cache_collect(cache, NULL) > 0);
    sum_report(cache, STOKER_CACHE_DROP, "", &sum);
    T_EQ("dropped", sum_report(cache, STOKER_CACHE_LIST, "", &sum), 0);
    T_EQ("nothing is used", stats_of(cache).bytes_used, stk_cache_index_bytes(STK_CACHE_SLOTS_MIN));
    stoker_cache_close(cache);
    clear_folder();
}

/* ---- kills ---- */

#define KILL_OBJECTS 40u
#define KILL_QUOTA (2u << 20)

/* Fills, reads and drops blocks until it is killed. Sets *wrong if a byte is. */
static void run_child(uint64_t seed, _Atomic uint32_t *wrong, _Atomic uint32_t *ready)
{
    struct stoker_cache *cache = open_cache(0, BLOCK);

    atomic_fetch_add(ready, 1);
    for (uint64_t i = 0;; i++) {
        uint64_t draw = stk_mix64(seed + i);
        uint32_t object = (uint32_t)(draw % KILL_OBJECTS);
        struct stk_cache_block block = block_of(cache, object, 0, 1 + object * 3300);
        uint64_t state = 0;
        uint32_t slot;

        if (check(cache, &block, 0, block.bytes) == 1) {
            atomic_store(wrong, 1);
        }
        (void)fill(cache, &block);
        slot = stk_cache_index_find(&cache->disks[0].index, &block.key, &state);
        if ((draw >> 40) % 4 == 0 && slot != STK_CACHE_NO_SLOT &&
            stk_cache_state_kind(state) == STK_CACHE_VALID) {
            (void)stk_cache_disk_drop(&cache->disks[0], slot, state);
        }
    }
}

static void test_kills(void)
{
    enum { CHILDREN = 4 };
    uint32_t kills = T_HISTORIES(200);
    _Atomic uint32_t *shared =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct stoker_cache *cache = open_cache(KILL_QUOTA, BLOCK);
    struct stoker_cache_folder about = {.struct_size = sizeof about};
    struct stoker_cache_object sum;
    pid_t children[CHILDREN] = {0};
    uint64_t used = 0, recounted;

    for (uint32_t kill_number = 0; kill_number < kills + CHILDREN; kill_number++) {
        uint32_t victim = kill_number % CHILDREN, before = atomic_load(&shared[1]);
        pid_t child;

        if (children[victim]) {
            usleep((useconds_t)(stk_mix64(kill_number) % 6000));
            kill(children[victim], SIGKILL);
            waitpid(children[victim], NULL, 0);
            T_TRUE("within the quota", bytes_on_disk() <= KILL_QUOTA);
            children[victim] = 0;
        }
        if (kill_number >= kills) {
            continue;
        }
        child = fork();
        if (child == 0) {
            run_child(kill_number * 1000003u, &shared[0], &shared[1]);
            _exit(0);
        }
        children[victim] = child;
        for (uint32_t i = 0; i < 5000 && atomic_load(&shared[1]) == before; i++) {
            usleep(1000);
        }
    }
    for (uint32_t i = 0; i < CHILDREN; i++) {
        if (children[i]) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
    }
    T_EQ("no wrong byte", atomic_load(&shared[0]), 0);
    T_TRUE("collect", stoker_cache_collect(cache, NULL) >= 0);
    T_EQ("folder", stoker_cache_folder(cache, 0, &about), 1);
    T_EQ("no slot is lost", about.blocks_filling, 0);
    used = about.bytes_used;
    atomic_store(&cache->disks[0].index.head->changing, 1);
    T_EQ("count again", stoker_cache_collect(cache, NULL), 0);
    recounted = stats_of(cache).bytes_used;
    T_EQ("no byte is lost", recounted, used);
    sum_report(cache, STOKER_CACHE_VERIFY, "", &sum);
    T_EQ("no damaged block", sum.blocks_damaged, 0);
    for (uint32_t i = 0; i < KILL_OBJECTS; i++) {
        struct stk_cache_block block = block_of(cache, i, 0, 1 + i * 3300);

        T_TRUE("right or gone", check(cache, &block, 0, block.bytes) != 1);
    }
    stoker_cache_close(cache);
    munmap(shared, PAGE);
    clear_folder();
}

/* ---- crashes of the machine ---- */

/* Files of a cache at one moment. */
struct image {
    uint8_t *index, *data;
    size_t index_bytes, data_bytes;
};

static void path_of(char name[128], int file)
{
    snprintf(name, 128, file < 0 ? "%s/" STK_CACHE_INDEX_NAME : "%s/stoker-cache.data-%d", folder,
             file);
}

static uint8_t *load(int file, size_t bytes)
{
    uint8_t *copy = stk_alloc(1, bytes);
    char name[128];
    int fd;

    path_of(name, file);
    fd = open(name, O_RDONLY);
    T_TRUE("load", fd >= 0 && pread(fd, copy, bytes, 0) >= 0);
    close(fd);
    return copy;
}

static void store_page(int file, uint32_t page, const uint8_t *bytes)
{
    static const uint8_t zeros[PAGE];
    char name[128];
    int fd;

    path_of(name, file);
    fd = open(name, O_WRONLY);
    T_EQ("store", pwrite(fd, bytes ? bytes : zeros, PAGE, (off_t)page * PAGE), PAGE);
    close(fd);
}

struct crash_results {
    uint64_t wrong, old, new; /* reads of wrong bytes; blocks that were found */
};

/* Opens the cache after a crash, and reads both blocks. */
static void check_crash_state(const struct stk_cache_block *old, const struct stk_cache_block *new,
                              struct crash_results *results)
{
    struct stoker_cache *cache = open_cache(0, 0);
    int status = check(cache, old, 0, 12000);

    results->wrong += status == 1;
    results->old += status == 0;
    status = check(cache, new, 0, 12000);
    results->wrong += status == 1;
    results->new += status == 0;
    T_TRUE("collect", stoker_cache_collect(cache, NULL) >= 0);
    T_TRUE("used", stats_of(cache).bytes_used <= QUOTA);
    stoker_cache_close(cache);
}

/* One block was replaced by another in the same slot when the power failed: each page of the data
 * is old, empty or new, each page of the index old or new. Neither block is ever read wrong. */
static void test_crash_states(void)
{
    enum { DATA_PAGES = 4 };
    struct stoker_cache *cache = open_cache(QUOTA, 32u << 10);
    struct stk_cache_block old = block_of(cache, 1, 0, 12000), new = old;
    struct stk_cache_disk *disk = &cache->disks[0];
    struct crash_results found = {0};
    uint64_t state;
    uint32_t slot, pages[2], file, first;
    struct image before = {0}, after = {0};
    uint8_t data[12000];

    fill(cache, &old);
    slot = stk_cache_index_find(&disk->index, &old.key, &state);
    file = slot % STK_CACHE_FILES;
    first = (uint32_t)(slot / STK_CACHE_FILES * stk_cache_region_bytes(32u << 10) / PAGE);
    before.index_bytes = disk->index.map_bytes;
    before.data_bytes = ((size_t)first + DATA_PAGES) * PAGE;
    before.index = load(-1, before.index_bytes);
    before.data = load((int)file, before.data_bytes);
    for (uint32_t i = 2; memcmp(&new, &old, sizeof new) == 0 && i < 200000; i++) {
        struct stk_cache_block candidate = block_of(cache, i, 0, 12000);
        uint32_t begin, end = stk_cache_index_bucket(&disk->index, &candidate.key, 0, &begin);

        new = slot >= begin && slot < end ? candidate : new;
    }
    T_EQ("drop", stk_cache_disk_drop(disk, slot, state), 0);
    fill_bytes(data, &new);
    T_EQ("write", stk_cache_block_write(disk->data[file], (uint64_t)first * PAGE, &new, data), 0);
    T_EQ("lock", stk_cache_index_lock(&disk->index, 1000), 0);
    state = stk_cache_index_fill_locked(&disk->index, slot, &new, 20480);
    T_TRUE("commit", stk_cache_index_commit_locked(&disk->index, slot, state));
    stk_cache_index_unlock(&disk->index);
    after.index = load(-1, before.index_bytes);
    after.data = load((int)file, before.data_bytes);
    stoker_cache_close(cache);
    pages[0] = 0;
    pages[1] =
        (uint32_t)((STK_CACHE_INDEX_HEAD_BYTES + slot * sizeof(struct stk_cache_slot)) / PAGE);
    for (uint32_t mask = 0; mask < 4 * 81; mask++) {
        for (uint32_t i = 0; i < 2; i++) {
            store_page(-1, pages[i],
                       ((mask >> i & 1) ? after.index : before.index) + (size_t)pages[i] * PAGE);
        }
        for (uint32_t i = 0, rest = mask / 4; i < DATA_PAGES; i++, rest /= 3) {
            const uint8_t *from = rest % 3 == 0 ? before.data : rest % 3 == 1 ? NULL : after.data;

            store_page((int)file, first + i, from ? from + ((size_t)first + i) * PAGE : NULL);
        }
        check_crash_state(&old, &new, &found);
    }
    T_EQ("wrong", found.wrong, 0);
    /* The first page is the head, which reads do not need. */
    T_EQ("old, whenever its pages are complete", found.old, 2 * 3);
    T_EQ("new, whenever its pages are complete", found.new, 2 * 3);
    stk_free(before.index);
    stk_free(before.data);
    stk_free(after.index);
    stk_free(after.data);
    clear_folder();
}

/* ---- threads, and memory ---- */

static _Atomic uint64_t forgotten, wrong_reads;

static void *run_thread(void *context)
{
    struct stoker_cache *cache = context;
    uint64_t seed = stk_mix64((uint64_t)(uintptr_t)&seed);

    for (uint64_t i = 0; i < T_HISTORIES(400); i++) {
        uint64_t draw = stk_mix64(seed + i);
        struct stk_cache_block block = block_of(cache, (uint32_t)(draw % 30), 0, 50000);

        wrong_reads += check(cache, &block, 0, 50000) == 1;
        (void)fill(cache, &block);
        if (draw >> 60 == 0) {
            forgotten += stk_cache_forget(cache, &block);
        }
    }
    return NULL;
}

static void test_threads(void)
{
    struct stoker_cache *cache = open_cache(QUOTA / 8, BLOCK);
    pthread_t threads[4];

    for (uint32_t i = 0; i < STK_COUNT(threads); i++) {
        T_EQ("start", pthread_create(&threads[i], NULL, run_thread, cache), 0);
    }
    for (uint32_t i = 0; i < STK_COUNT(threads); i++) {
        pthread_join(threads[i], NULL);
    }
    T_EQ("right or gone", wrong_reads, 0);
    T_EQ("none else is damaged", stats_of(cache).blocks_dropped, forgotten);
    stoker_cache_close(cache);
    clear_folder();
}

static void test_without_memory(void)
{
    const char *paths[] = {folder};
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = paths,
                                           .path_count = 1,
                                           .bytes_max = QUOTA,
                                           .free_bytes = 1};
    struct stoker_cache_report *report = NULL;
    struct stoker_cache *cache = NULL;
    struct stk_cache_block block;
    int64_t alive = stk_mem_alive();
    int status = -ENOMEM;

    for (uint64_t n = 1; status == -ENOMEM && n < 50; n++) {
        stk_mem_fail_nth(n);
        status = stoker_cache_open(&cache, &options, NULL);
        stk_mem_fail_nth(0);
    }
    T_EQ("open at last", status, 0);
    block = block_of(cache, 1, 0, 1000);
    fill(cache, &block);
    status = -ENOMEM;
    for (uint64_t n = 1; status == -ENOMEM && n < 50; n++) {
        stk_mem_fail_nth(n);
        status = stoker_cache_report_open(&report, cache, STOKER_CACHE_VERIFY, "", NULL);
        stk_mem_fail_nth(0);
    }
    T_EQ("report at last", status, 0);
    stoker_cache_report_close(report);
    stoker_cache_close(cache);
    T_EQ("no leak", stk_mem_alive(), alive);
    clear_folder();
}

/* At 1,000 bytes a second: a block may start when those before it have had their time. */
static void test_pace(void)
{
    static const struct row {
        const char *name;
        uint64_t now_ms, bytes, wait_ms; /* wait_ms 0: it may start */
    } rows[] = {
        {"the first block starts at once", 1000, 500, 0},
        {"a block before the time of the first", 1399, 500, 1},
        {"a block after it", 1400, 500, 0},
        {"two in the time of one", 1500, 1, 400},
        {"after a pause, one starts at once", 9000, 500, 0},
        {"with a small part of the pause", 9400, 500, 0},
        {"and no more of it", 9800, 500, 100},
    };
    struct stk_cache_pace pace = {0};

    T_EQ("no limit", stk_cache_pace_take(&pace, UINT64_MAX, 5), 0);
    stk_cache_pace_set(&pace, 1000);
    T_EACH(row, row, rows)
    {
        uint64_t now = row->now_ms * 1000000, then = stk_cache_pace_take(&pace, row->bytes, now);

        T_EQ(row->name, then ? (then - now) / 1000000 : 0, row->wait_ms);
    }
    T_EQ("taken", stk_cache_pace_take(&pace, 700, 20000000000), 0);
    stk_cache_pace_return(&pace, 700);
    T_EQ("returned", stk_cache_pace_take(&pace, 700, 20000000000), 0);
    T_TRUE("taken", stk_cache_pace_take(&pace, 700, 20000000000) > 0);
    stk_cache_pace_set(&pace, 0);
    T_EQ("no limit again", stk_cache_pace_take(&pace, 700, 20000000000), 0);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/stoker-node-cache-test-%d", (int)getpid());
    clear_folder();
    test_ranges();
    test_pace();
    test_flips();
    test_turns();
    test_disk_failures();
    test_quota();
    test_reports();
    test_kills(); /* forks: before threads */
    test_crash_states();
    test_threads();
    test_without_memory();
    return t_finish();
}
