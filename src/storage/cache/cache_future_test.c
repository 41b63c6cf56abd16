/* Goal: a cache whose jobs publish their order evicts the block whose next use is farthest away: it
 * finds more than one that keeps what it has, and nearly what Belady's optimum would; jobs are
 * combined, a job that ended is forgotten, and files stay within the quota.
 * Method: epochs in random order on a cache for half of the blocks; children that are killed.
 * Covers cache_future.c, and evictions of cache_disk.c. */
#include "storage/cache/node_cache.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK (32u << 10)
#define BLOCKS 128u
#define EPOCHS 5u
#define ACCOUNTED (4096u + BLOCK + 4096u + 4096u) /* of a block: its head, trailer, metadata */
#define INDEX_BYTES (4096u + 1024u * 32u)
#define URL "s3://b/o"

static char folder[64];

static void clear_folder(void)
{
    char command[96];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    T_EQ("remove", system(command), 0);
}

static struct stoker_cache *open_cache(uint64_t quota)
{
    const char *paths[] = {folder};
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = paths,
                                           .path_count = 1,
                                           .bytes_max = quota,
                                           .free_bytes = 1,
                                           .block_bytes = BLOCK};
    struct stoker_cache *cache = NULL;

    T_EQ("open", stoker_cache_open(&cache, &options, NULL), 0);
    return cache;
}

static struct stk_cache_block block_of(struct stoker_cache *cache, uint64_t number)
{
    struct stk_cache_object about = {.bytes = (uint64_t)BLOCKS * BLOCK,
                                     .url = URL,
                                     .url_hash = stk_cache_url_hash(URL),
                                     .tag = "\"t\""};

    stk_cache_object_key("http://store", URL, "\"t\"", about.bytes, &about.key);
    return stk_cache_block_of(cache, &about, number);
}

static uint32_t place_of(uint64_t number)
{
    return stk_cache_place(stk_cache_url_hash(URL), number);
}

/* Reads a block, and fills it if it is not there. Returns whether it was. */
static bool use(struct stoker_cache *cache, uint64_t number)
{
    static uint8_t data[BLOCK], got[BLOCK];
    struct stk_cache_block block = block_of(cache, number);
    struct stk_cache_part part = {.bytes = BLOCK, .buffer = got};
    struct stk_cache_fill fill;

    memset(data, (int)(number % 251 + 1), sizeof data);
    if (stk_cache_read(cache, &block, &part) == 0) {
        T_TRUE("right bytes", memcmp(data, got, BLOCK) == 0);
        return true;
    }
    if (stk_cache_disk_begin(&cache->disks[0], &block, &fill) == STK_CACHE_TURN_MINE) {
        T_EQ("write", stk_cache_disk_write(&fill, &block, data), 0);
    }
    return false;
}

/* ---- epochs in random order ---- */

#define USES_MAX 8u
#define READS_MAX (BLOCKS * USES_MAX)

/* The blocks that an epoch reads: blocks in random order, by windows; each is used `uses` times
 * within its window. */
static uint32_t order[EPOCHS + 1][READS_MAX], reads;

static void swap_random(uint32_t *items, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t j = (uint32_t)(stk_mix64(seed + i) % (i + 1)), kept = items[i];

        items[i] = items[j];
        items[j] = kept;
    }
}

static void shuffle(uint64_t seed, uint32_t window, uint32_t uses)
{
    uint32_t blocks[BLOCKS];

    reads = BLOCKS * uses;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        blocks[i] = i;
    }
    for (uint32_t epoch = 0; epoch <= EPOCHS; epoch++) {
        swap_random(blocks, BLOCKS, seed += 100000);
        for (uint32_t i = 0; i < reads; i++) {
            order[epoch][i] = blocks[i / uses];
        }
        for (uint32_t i = 0; i < reads; i += window * uses) {
            swap_random(order[epoch] + i, window * uses, seed += 100000);
        }
    }
}

static void publish(struct stk_cache_future *future, uint64_t epoch)
{
    if (epoch <= EPOCHS && !stk_cache_future_has(future, epoch)) {
        stk_cache_future_begin(future, epoch);
        for (uint32_t i = 0; i < reads; i++) {
            T_TRUE("space", stk_cache_future_add(future, epoch, place_of(order[epoch][i]),
                                                 i * STK_CACHE_EPOCH_PARTS / reads));
        }
        stk_cache_future_end(future, epoch);
    }
}

/* Reads all epochs. Returns the hits after the first epoch; with_future: with a known order. */
static uint32_t run(uint64_t quota, bool with_future)
{
    struct stoker_cache *cache = open_cache(quota);
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};
    struct stk_cache_future future = {0};
    uint32_t hits = 0;

    if (with_future) {
        T_EQ("future", stk_cache_open_future(cache, &future, BLOCKS * BLOCK, 1), 0);
    }
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint32_t i = 0; i < reads; i++) {
            if (with_future) {
                publish(&future, epoch);
                publish(&future, epoch + 1);
                stk_cache_future_advance(&future, epoch, (double)i / reads, (double)i / reads);
            }
            hits += use(cache, order[epoch][i]) && epoch > 0;
        }
        T_EQ("stats", stoker_cache_stats(cache, &stats), 0);
        T_TRUE("within the quota", stats.bytes_used <= quota);
    }
    stk_cache_future_close(&future);
    stoker_cache_close(cache);
    clear_folder();
    return hits;
}

/* Belady's optimum, with the choice not to keep a block: hits after the first epoch. */
static uint32_t optimum(uint32_t capacity)
{
    uint32_t next[BLOCKS], hits = 0, used = 0, total = EPOCHS * reads;
    bool cached[BLOCKS] = {false};

    for (uint32_t at = 0; at < total; at++) {
        uint32_t block = order[at / reads][at % reads], farthest = block, after = at + 1;

        while (after < total + reads && order[after / reads][after % reads] != block) {
            after++;
        }
        next[block] = after;
        hits += cached[block] && at >= reads;
        used += !cached[block];
        cached[block] = true;
        for (uint32_t i = 0; i < BLOCKS; i++) {
            farthest = cached[i] && next[i] > next[farthest] ? i : farthest;
        }
        if (used > capacity) {
            cached[farthest] = false;
            used--;
        }
    }
    return hits;
}

static void test_known_future(void)
{
    /* window: in blocks; uses: of a block in an epoch; least: hits of 100 */
    static const struct row {
        uint32_t window, uses, least;
    } rows[] = {{BLOCKS, 1, 49}, {16, 4, 75}, {8, 8, 85}};
    uint64_t files = stk_cache_future_bytes(BLOCKS + 2);
    uint64_t quota = INDEX_BYTES + BLOCKS / 2 * ACCOUNTED;

    T_EACH(row, row, rows)
    {
        uint32_t kept, known, best, all;

        shuffle(row->window + row->uses, row->window, row->uses);
        all = (EPOCHS - 1) * reads;
        kept = run(quota, false);
        known = run(quota + files, true);
        best = optimum(BLOCKS / 2);
        printf("window %u, uses %u: keep %.3f, known order %.3f, optimum %.3f\n", row->window,
               row->uses, (double)kept / all, (double)known / all, (double)best / all);
        T_TRUE("keeping finds half", kept >= all * 45 / 100 && kept <= all * 55 / 100);
        T_TRUE("a known order finds as much", known >= all * row->least / 100);
        T_TRUE("not more than possible", known <= best);
    }
}

/* ---- several jobs ---- */

static void say(struct stk_cache_future *future, uint32_t first, uint32_t end, uint32_t part)
{
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        stk_cache_future_begin(future, epoch);
        for (uint32_t i = first; i < end; i++) {
            T_TRUE("space", stk_cache_future_add(future, epoch, place_of(i), part));
        }
        stk_cache_future_end(future, epoch);
    }
    stk_cache_future_advance(future, 0, 0, 0);
}

static uint64_t next_part(struct stoker_cache *cache, uint32_t number)
{
    struct stk_cache_next next;

    stk_cache_futures_look_again(&cache->futures);
    (void)stk_cache_futures_look(&cache->futures, 1, NULL);
    next = stk_cache_futures_next(&cache->futures, place_of(number), false);
    return !next.is_known ? 1000 : next.ns / (3600000000000ull / STK_CACHE_EPOCH_PARTS);
}

static void test_jobs_are_combined(void)
{
    struct stoker_cache *one = open_cache(16u << 20), *two = open_cache(0);
    struct stk_cache_future first, second;

    T_EQ("first", stk_cache_open_future(one, &first, BLOCKS * BLOCK, 1), 0);
    T_EQ("second", stk_cache_open_future(two, &second, BLOCKS * BLOCK, 1), 0);
    say(&first, 0, 10, 40);
    say(&second, 5, 15, 20);
    for (uint32_t i = 0; i < 2; i++) {
        struct stoker_cache *cache = i ? two : one;

        T_EQ("only the first", next_part(cache, 2), 40);
        T_EQ("both", next_part(cache, 7), 20);
        T_EQ("only the second", next_part(cache, 12), 20);
        T_EQ("none", next_part(cache, 100), 1000);
    }
    stk_cache_future_close(&second);
    T_EQ("the second has ended", next_part(one, 12), 1000);
    T_EQ("the first has not", next_part(one, 7), 40);
    stk_cache_future_close(&first);
    stoker_cache_close(one);
    stoker_cache_close(two);
    clear_folder();
}

static uint32_t count_files(void)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < STK_CACHE_JOBS_MAX; i++) {
        char name[128];

        snprintf(name, sizeof name, "%s/" STK_CACHE_FUTURE_NAME "%u", folder, i);
        count += access(name, F_OK) == 0;
    }
    return count;
}

/* Killed jobs are forgotten, and their files removed and no longer counted. */
static void test_killed_jobs(void)
{
    struct stoker_cache *cache = open_cache(16u << 20);
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};
    uint64_t used;

    T_EQ("stats", stoker_cache_stats(cache, &stats), 0);
    used = stats.bytes_used;
    for (uint32_t i = 0; i < 20; i++) {
        int ready[2];
        char byte = 0;
        pid_t child;

        T_EQ("pipe", pipe(ready), 0);
        child = fork();
        if (child == 0) {
            struct stoker_cache *own = open_cache(0);
            struct stk_cache_future future;

            if (stk_cache_open_future(own, &future, BLOCKS * BLOCK, 1) == 0) {
                say(&future, i, i + 1, i);
                byte = 1;
            }
            (void)!write(ready[1], &byte, 1);
            pause();
        }
        T_EQ("ready", read(ready[0], &byte, 1), 1);
        T_EQ("made", byte, 1);
        T_EQ("seen", next_part(cache, i), i);
        T_EQ("stats", stoker_cache_stats(cache, &stats), 0);
        T_TRUE("counted", stats.bytes_used > used);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(ready[0]);
        close(ready[1]);
        T_EQ("forgotten", next_part(cache, i), 1000);
        T_EQ("removed", count_files(), 0);
    }
    stoker_cache_close(cache);
    clear_folder();
}

/* A job ends with its future, though a child of fork still has the descriptor of its file. */
static void test_child_holds(void)
{
    struct stoker_cache *cache = open_cache(16u << 20);
    struct stk_cache_future future;
    pid_t holder;

    T_EQ("future", stk_cache_open_future(cache, &future, BLOCKS * BLOCK, 1), 0);
    say(&future, 0, 10, 5);
    holder = fork();
    if (holder == 0) {
        pause();
        _exit(0);
    }
    T_EQ("known", next_part(cache, 3), 5);
    T_TRUE("some job", cache->futures.count > 0);
    stk_cache_future_close(&future);
    T_EQ("forgotten", next_part(cache, 3), 1000);
    T_TRUE("no job", !stk_cache_futures_look(&cache->futures, 1, NULL));
    T_EQ("removed", count_files(), 0);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    stoker_cache_close(cache);
    clear_folder();
}

/* Of files of three jobs, the one in the middle and then the last end: the entries up to the last
 * file are examined, and no more. */
static void test_count(void)
{
    struct stoker_cache *cache = open_cache(16u << 20);
    struct stk_cache_future futures[3];

    for (uint32_t i = 0; i < STK_COUNT(futures); i++) {
        T_EQ("future", stk_cache_open_future(cache, &futures[i], BLOCKS * BLOCK, 1), 0);
        say(&futures[i], i, i + 1, 5);
    }
    T_EQ("known", next_part(cache, 2), 5);
    T_EQ("all", cache->futures.count, 3);
    stk_cache_future_close(&futures[1]);
    T_EQ("known", next_part(cache, 2), 5);
    T_EQ("up to the last", cache->futures.count, 3);
    stk_cache_future_close(&futures[2]);
    T_EQ("not known", next_part(cache, 2), 1000);
    T_EQ("the first", next_part(cache, 0), 5);
    T_EQ("one", cache->futures.count, 1);
    stk_cache_future_close(&futures[0]);
    T_EQ("not known", next_part(cache, 0), 1000);
    T_EQ("none", cache->futures.count, 0);
    stoker_cache_close(cache);
    clear_folder();
}

static void test_bounds(void)
{
    struct stoker_cache *cache = open_cache(4u << 20);
    struct stk_cache_future futures[STK_CACHE_JOBS_MAX + 1];
    uint32_t made = 0, added = 0;

    T_EQ("a future above its share of the quota",
         stk_cache_open_future(cache, &futures[0], 1ull << 50, 1), -ENOSPC);
    while (made <= STK_CACHE_JOBS_MAX &&
           stk_cache_open_future(cache, &futures[made], 10 * BLOCK, 1) == 0) {
        made++;
    }
    T_EQ("jobs", made, STK_CACHE_JOBS_MAX);
    T_EQ("files", count_files(), STK_CACHE_JOBS_MAX);
    stk_cache_future_begin(&futures[0], 0);
    for (uint32_t i = 0; i < 1000; i++) {
        added += stk_cache_future_add(&futures[0], 0, place_of(i), 0);
    }
    T_EQ("blocks beyond the space", added, 64);
    while (made > 0) {
        stk_cache_future_close(&futures[--made]);
    }
    stoker_cache_close(cache);
    clear_folder();
}

/* A file of the cache that is cut while it is mapped ends no process: the cache has no blocks then,
 * and refuses to fill. */
static void test_cut_files(void)
{
    struct stoker_cache *cache = open_cache(16u << 20);
    struct stk_cache_future future;
    char name[128];

    T_EQ("future", stk_cache_open_future(cache, &future, BLOCKS * BLOCK, 1), 0);
    say(&future, 0, 10, 5);
    T_EQ("known", next_part(cache, 3), 5);
    (void)use(cache, 3);
    T_TRUE("cached", use(cache, 3));
    snprintf(name, sizeof name, "%s/" STK_CACHE_FUTURE_NAME "0", folder);
    T_EQ("cut the future", truncate(name, 0), 0);
    T_EQ("not known", next_part(cache, 3), 1000);
    stk_cache_future_advance(&future, 0, 0.5, 0.5);
    T_TRUE("no space", stk_cache_future_add(&future, 0, place_of(3), 1));
    snprintf(name, sizeof name, "%s/" STK_CACHE_INDEX_NAME, folder);
    T_EQ("cut the index", truncate(name, 0), 0);
    for (uint32_t i = 0; i < 20; i++) {
        T_TRUE("a miss", !use(cache, i));
    }
    T_TRUE("collect fails", stoker_cache_collect(cache, NULL) < 0);
    stk_cache_future_close(&future);
    stoker_cache_close(cache);
    clear_folder();
    cache = open_cache(16u << 20);
    (void)use(cache, 3);
    T_TRUE("a new cache works", use(cache, 3));
    stoker_cache_close(cache);
    clear_folder();
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/stoker-future-test-%d", (int)getpid());
    clear_folder();
    test_killed_jobs();
    test_known_future();
    test_jobs_are_combined();
    test_child_holds();
    test_count();
    test_bounds();
    test_cut_files();
    return t_finish();
}
