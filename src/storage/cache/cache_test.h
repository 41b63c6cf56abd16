/* storage/cache/cache_test.h: a cache folder, and blocks whose bytes follow from their keys, for
 * the tests of this room.
 *
 *   open_cache --> block_of --> fill --> check: right, wrong or not there --> clear_folder
 *
 * Owner: the test. Threads: any, but for the folder and the failures. Memory: a block a call.
 * Bound: none. */
#ifndef STORAGE_CACHE_CACHE_TEST_H
#define STORAGE_CACHE_CACHE_TEST_H

#include "storage/cache/node_cache.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK (128u << 10)
#define QUOTA (8u << 20)
#define PAGE 4096u

static char folder[64];
static _Atomic int failing; /* what the calls to the kernel return */
static enum stk_cache_call failing_call;

static inline int fail_call(enum stk_cache_call call)
{
    return call == failing_call ? failing : 0;
}

static inline void clear_folder(void)
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

static inline struct stoker_cache *open_cache(uint64_t quota, uint32_t block_bytes)
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
static inline struct stk_cache_block block_of(struct stoker_cache *cache, uint32_t object,
                                              uint64_t number, uint64_t object_bytes)
{
    char url[32];
    struct stk_cache_object about = {.bytes = object_bytes, .url = "s3://b/o", .tag = "\"t\""};

    snprintf(url, sizeof url, "s3://b/%u", object);
    stk_cache_object_key("http://store", url, "\"t\"", object_bytes, &about.key);
    return stk_cache_block_of(cache, &about, number);
}

static inline void fill_bytes(uint8_t *data, const struct stk_cache_block *block)
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
static inline enum stk_cache_turn fill(struct stoker_cache *cache,
                                       const struct stk_cache_block *block)
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
static inline int check(struct stoker_cache *cache, const struct stk_cache_block *block,
                        uint32_t offset, uint32_t bytes)
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

static inline uint64_t bytes_on_disk(void)
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

static inline struct stoker_cache_stats stats_of(struct stoker_cache *cache)
{
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};

    T_EQ("stats", stoker_cache_stats(cache, &stats), 0);
    return stats;
}

static inline uint64_t sum_report(struct stoker_cache *cache, uint32_t action, const char *prefix,
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

#endif
