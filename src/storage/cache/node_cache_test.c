/* Goal: a cache returns the right bytes or none, after flipped bits and after the disk was full; it
 * stays within its quota, and one process at a time fills a block. Method: rows of ranges, layouts
 * and times; calls to the kernel that fail; threads. Covers cache_block.c, cache_index.c,
 * cache_disk.c, cache_folder.c, node_cache.c and cache_report.c; cache_crash_test.c kills processes
 * and the machine. */
#include "storage/cache/cache_test.h"

#include "base/crc.h"
#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>

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

/* Indexes of this layout and of the one before are used; others are refused, or made anew. */
static void test_layouts(void)
{
    static const struct row {
        const char *name;
        uint32_t layout, slots;
        int status;
    } rows[] = {
        {"this one", 2, 1088, 0},
        {"the largest", 2, STK_CACHE_SLOTS_MAX, 0},
        {"too large", 2, STK_CACHE_SLOTS_MAX + STK_CACHE_BUCKET, -EBADMSG},
        {"too small", 2, 960, -EBADMSG},
        {"part of a bucket", 2, 1100, -EBADMSG},
        {"the one before", 1, 2048, 0},
        {"its largest", 1, 1u << 21, 0},
        {"one that it never had", 1, 1088, -EBADMSG},
        {"no layout", 0, 2048, -EBADMSG},
        {"a newer one", 3, 2048, -EPROTO},
    };

    T_EACH(row, row, rows)
    {
        struct stk_cache_index_head head;

        stk_cache_index_init_head(&head, row->slots, BLOCK, QUOTA);
        head.layout = row->layout;
        head.crc = stk_crc32c(0, &head, offsetof(struct stk_cache_index_head, crc));
        T_EQ(row->name,
             stk_cache_index_check(&head, sizeof head, stk_cache_index_bytes(row->slots)),
             row->status);
    }
    for (uint64_t quota = 1; quota < UINT64_MAX / 2; quota *= 2) {
        uint64_t bytes = stk_cache_index_bytes(stk_cache_index_slots(quota));

        T_TRUE("64 MB at most", bytes <= 64000000 && (quota < 1ull << 42 || bytes == 64000000));
        T_EQ("full buckets", stk_cache_index_slots(quota) % STK_CACHE_BUCKET, 0);
    }
}

/* A folder of the layout before is used with its slots, and its blocks stay. */
static void test_earlier_layout(void)
{
    struct stoker_cache *cache = open_cache(QUOTA, BLOCK);
    struct stk_cache_index_head *head = cache->disks[0].index.head;
    struct stk_cache_block block = block_of(cache, 1, 0, 1000);

    head->layout = 1;
    head->crc = stk_crc32c(0, head, offsetof(struct stk_cache_index_head, crc));
    fill(cache, &block);
    stoker_cache_close(cache);
    cache = open_cache(0, BLOCK);
    T_EQ("layout", cache->disks[0].index.head->layout, 1);
    T_EQ("found", check(cache, &block, 0, 1000), 0);
    block = block_of(cache, 2, 0, 1000);
    T_EQ("fill", fill(cache, &block), STK_CACHE_TURN_MINE);
    T_EQ("found", check(cache, &block, 0, 1000), 0);
    stoker_cache_close(cache);
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
    test_layouts();
    test_earlier_layout();
    test_threads();
    test_without_memory();
    return t_finish();
}
