/* The node cache: several folders, keys, counters. */
#include "storage/cache/node_cache.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/thread.h"
#include "base/xxh3.h"

#include <errno.h>
#include <string.h>

#define IDENTITY "stoker node cache 1"

static int read_options(const struct stoker_cache_options *given,
                        struct stoker_cache_options *options, struct stoker_error *error)
{
    int status =
        stk_options_read(options, sizeof *options, offsetof(struct stoker_cache_options, bytes_max),
                         given, "cache options", error);

    if (status < 0) {
        return status;
    }
    options->block_bytes =
        options->block_bytes ? options->block_bytes : STK_CACHE_BLOCK_BYTES_DEFAULT;
    if (!options->paths || options->path_count == 0 ||
        options->path_count > STK_CACHE_FOLDERS_MAX || options->must_exist > 1 ||
        options->block_bytes < STK_CACHE_BLOCK_BYTES_MIN ||
        options->block_bytes > STK_CACHE_BLOCK_BYTES_MAX ||
        options->block_bytes % STK_CACHE_CHUNK_BYTES != 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a cache option is out of its range",
                        "name 1 to 16 folders, and blocks of 32 KiB to 8 MiB in steps of 32 KiB",
                        "cache options");
    }
    for (size_t i = 0; i < options->path_count; i++) {
        if (!options->paths[i] || !options->paths[i][0]) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "the path of a cache folder is empty",
                            "name a folder on a local disk", "cache options");
        }
    }
    return 0;
}

int stk_cache_open_with(struct stoker_cache **cache_out, const struct stoker_cache_options *given,
                        int (*fault)(enum stk_cache_call call), struct stoker_error *error)
{
    struct stoker_cache_options options;
    struct stk_cache_disk_options disk = {.fault = fault};
    struct stoker_cache *cache;
    int status = read_options(given, &options, error);

    *cache_out = NULL;
    if (status < 0) {
        return status;
    }
    cache = stk_alloc(1, sizeof *cache + options.path_count * sizeof cache->disks[0]);
    if (!cache) {
        return stk_fail_memory(error, "node cache");
    }
    atomic_init(&cache->users, 1);
    cache->pid = stk_process_id();
    cache->block_bytes = options.block_bytes;
    stk_cache_futures_init(&cache->futures, -1);
    disk.futures = &cache->futures;
    disk.quota_bytes = options.bytes_max / options.path_count;
    disk.free_bytes = options.free_bytes;
    disk.must_exist = options.must_exist;
    disk.block_bytes = options.block_bytes;
    for (; status == 0 && cache->disk_count < options.path_count; cache->disk_count++) {
        disk.path = options.paths[cache->disk_count];
        disk.has_futures = cache->disk_count == 0;
        status = stk_cache_disk_open(&cache->disks[cache->disk_count], &disk, error);
        if (status == 0 && cache->disks[cache->disk_count].status == 0) {
            /* All folders have blocks of one size: of the first that is a cache already. */
            disk.block_bytes = cache->disks[cache->disk_count].index.block_bytes;
            if (cache->block_bytes != disk.block_bytes && cache->disk_count > 0) {
                status = stk_fail(
                    error, STOKER_ERROR_ARGUMENT, "cache folders have blocks of different sizes",
                    "use folders that were made together", "'%s': %u bytes, before: %u", disk.path,
                    disk.block_bytes, cache->block_bytes);
            }
            cache->block_bytes = disk.block_bytes;
        }
    }
    if (status < 0) {
        stk_cache_release(cache);
        return status;
    }
    cache->futures.folder = cache->disks[0].status < 0 ? -1 : cache->disks[0].folder;
    *cache_out = cache;
    return 0;
}

int stoker_cache_open(struct stoker_cache **cache_out, const struct stoker_cache_options *options,
                      struct stoker_error *error)
{
    return stk_cache_open_with(cache_out, options, NULL, error);
}

void stk_cache_retain(struct stoker_cache *cache)
{
    atomic_fetch_add_explicit(&cache->users, 1, memory_order_relaxed);
}

void stk_cache_release(struct stoker_cache *cache)
{
    if (cache && atomic_fetch_sub_explicit(&cache->users, 1, memory_order_acq_rel) == 1) {
        for (uint32_t i = 0; i < cache->disk_count; i++) {
            stk_cache_disk_close(&cache->disks[i]);
        }
        stk_cache_futures_deinit(&cache->futures);
        stk_free(cache);
    }
}

void stoker_cache_close(struct stoker_cache *cache)
{
    stk_cache_release(cache);
}

uint64_t stk_cache_url_hash(const char *url)
{
    return stk_xxh3_64(url, strlen(url));
}

int stk_cache_open_future(struct stoker_cache *cache, struct stk_cache_future *future,
                          uint64_t bytes, uint64_t objects)
{
    return stk_cache_disk_open_future(&cache->disks[0], future,
                                      bytes / cache->block_bytes + 2 * objects);
}

/* ---- keys ---- */

static void add_text(struct stk_sha256 *sha, const char *text)
{
    stk_sha256_add(sha, text, strlen(text) + 1);
}

void stk_cache_object_key(const char *endpoint, const char *url, const char *etag, uint64_t bytes,
                          struct stk_cache_key *key_out)
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    add_text(&sha, IDENTITY);
    add_text(&sha, endpoint);
    add_text(&sha, url);
    add_text(&sha, etag);
    stk_sha256_add(&sha, &bytes, sizeof bytes);
    stk_sha256_done(&sha, key_out->bytes);
}

struct stk_cache_block stk_cache_block_of(const struct stoker_cache *cache,
                                          const struct stk_cache_object *object, uint64_t number)
{
    uint64_t words[2] = {number, cache->block_bytes};
    struct stk_cache_block block = {.offset = number * cache->block_bytes,
                                    .object_bytes = object->bytes,
                                    .place = stk_cache_place(object->url_hash, number),
                                    .url = object->url,
                                    .tag = object->tag};
    struct stk_sha256 sha;

    block.bytes = (uint32_t)stk_min(cache->block_bytes, object->bytes - block.offset);
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, object->key.bytes, sizeof object->key.bytes);
    stk_sha256_add(&sha, words, sizeof words);
    stk_sha256_done(&sha, block.key.bytes);
    return block;
}

struct stk_cache_disk *stk_cache_disk_of(struct stoker_cache *cache,
                                         const struct stk_cache_block *block)
{
    uint32_t word;

    memcpy(&word, block->key.bytes + 16, sizeof word); /* the index uses the bytes before it */
    return &cache->disks[word % cache->disk_count];
}

int stk_cache_read(struct stoker_cache *cache, const struct stk_cache_block *block,
                   const struct stk_cache_part *part)
{
    int status = stk_cache_disk_read(stk_cache_disk_of(cache, block), block, part);

    if (status == 0) {
        stk_cache_count(&cache->counters.hits, 1);
        stk_cache_count(&cache->counters.bytes_from_cache, part->bytes);
    }
    return status;
}

bool stk_cache_forget(struct stoker_cache *cache, const struct stk_cache_block *block)
{
    struct stk_cache_disk *disk = stk_cache_disk_of(cache, block);
    uint64_t state = 0;
    uint32_t slot = disk->status < 0 ? STK_CACHE_NO_SLOT
                                     : stk_cache_index_find(&disk->index, &block->key, &state);

    if (slot != STK_CACHE_NO_SLOT && stk_cache_state_kind(state) == STK_CACHE_FILLING) {
        stk_cache_disk_invalidate(disk, block);
        slot = stk_cache_index_find(&disk->index, &block->key, &state); /* it may have ended */
    }
    if (slot == STK_CACHE_NO_SLOT || stk_cache_state_kind(state) != STK_CACHE_VALID ||
        stk_cache_disk_drop(disk, slot, state) < 0) {
        return false;
    }
    stk_cache_count(&disk->dropped, 1);
    return true;
}

/* ---- the rate of downloads ---- */

static uint64_t cost_ns(uint64_t bytes, uint64_t bytes_per_s)
{
    double cost = bytes_per_s ? (double)bytes * 1e9 / (double)bytes_per_s : 0;

    return cost < (double)(UINT64_MAX / 4) ? (uint64_t)cost : UINT64_MAX / 4;
}

void stk_cache_pace_set(struct stk_cache_pace *pace, uint64_t bytes_per_s)
{
    atomic_store_explicit(&pace->next_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&pace->bytes_per_s, bytes_per_s, memory_order_relaxed);
}

uint64_t stk_cache_pace_take(struct stk_cache_pace *pace, uint64_t bytes, uint64_t now_ns)
{
    uint64_t rate = atomic_load_explicit(&pace->bytes_per_s, memory_order_relaxed);
    uint64_t next = atomic_load_explicit(&pace->next_ns, memory_order_relaxed), from;

    if (rate == 0) {
        return 0;
    }
    do {
        if (next > now_ns) {
            return next;
        }
        from = stk_max(next, now_ns - stk_min(now_ns, STK_CACHE_PACE_BURST_NS));
    } while (!atomic_compare_exchange_weak_explicit(&pace->next_ns, &next,
                                                    from + cost_ns(bytes, rate),
                                                    memory_order_relaxed, memory_order_relaxed));
    return 0;
}

void stk_cache_pace_return(struct stk_cache_pace *pace, uint64_t bytes)
{
    uint64_t rate = atomic_load_explicit(&pace->bytes_per_s, memory_order_relaxed);
    uint64_t next = atomic_load_explicit(&pace->next_ns, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(&pace->next_ns, &next,
                                                  next - stk_min(next, cost_ns(bytes, rate)),
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

/* ---- statistics ---- */

int stoker_cache_stats(struct stoker_cache *cache, struct stoker_cache_stats *stats)
{
    struct stk_cache_counters *from = &cache->counters;
    struct stoker_cache_stats full = {
        .hits = atomic_load_explicit(&from->hits, memory_order_relaxed),
        .misses = atomic_load_explicit(&from->misses, memory_order_relaxed),
        .bytes_from_cache = atomic_load_explicit(&from->bytes_from_cache, memory_order_relaxed),
        .bytes_from_origin = atomic_load_explicit(&from->bytes_from_origin, memory_order_relaxed),
        .blocks_filled = atomic_load_explicit(&from->blocks_filled, memory_order_relaxed),
        .waits = atomic_load_explicit(&from->waits, memory_order_relaxed),
        .bypasses = atomic_load_explicit(&from->bypasses, memory_order_relaxed),
    };

    for (uint32_t i = 0; i < cache->disk_count; i++) {
        struct stk_cache_disk *disk = &cache->disks[i];

        full.blocks_dropped += atomic_load_explicit(&disk->dropped, memory_order_relaxed);
        full.blocks_evicted += atomic_load_explicit(&disk->evicted, memory_order_relaxed);
        full.disk_failures += atomic_load_explicit(&disk->failures, memory_order_relaxed);
        full.bytes_used += stk_cache_disk_used(disk);
        full.bytes_max += stk_cache_disk_quota(disk);
    }
    return stk_options_write_output(stats, &full, sizeof full, "cache statistics", NULL);
}
