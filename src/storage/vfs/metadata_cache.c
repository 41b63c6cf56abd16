/* Metadata of objects and folders: a hash table of fixed associativity. Keys are hashes of 128
 * bits, so the table holds no URLs. */
#include "storage/vfs/metadata_cache.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/clock.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define WAYS 4u        /* entries of a set */
#define ETAG_BYTES 64u /* objects with a longer ETag are not cached */
#define SETS_MIN 128u  /* the table grows with its entries */

struct entry {
    uint64_t key[2];
    uint64_t bytes, mtime_ns, until_ns; /* until_ns 0: free */
    bool no_ranges, chunked;
    bool folder; /* it has no other fields */
    char etag[ETAG_BYTES];
    char modified[32]; /* an HTTP date has 29 bytes */
    char storage[STK_STORE_CLASS_BYTES];
    struct stk_checksum checksum;
};

struct stk_metadata_cache {
    pthread_mutex_t lock;
    struct entry *entries;
    uint64_t sets; /* a power of two */
    uint64_t added;
    struct {
        uint64_t key[2], until_ns; /* until_ns 0: there is none */
        struct stk_listing listing;
    } last; /* the listing of the last folder */
};

static void key_of(const char *url, size_t bytes, uint64_t key[2])
{
    key[0] = stk_xxh3_64(url, bytes);
    key[1] = stk_mix64(key[0] ^ bytes);
    for (size_t at = 0; at < bytes; at++) { /* another function of all bytes */
        key[1] = (key[1] ^ (uint8_t)url[at]) * 0x100000001b3ull;
    }
}

int stk_metadata_cache_open(struct stk_metadata_cache **cache_out)
{
    struct stk_metadata_cache *cache = stk_alloc(1, sizeof *cache);

    if (cache) {
        cache->sets = SETS_MIN;
        cache->entries = stk_alloc(cache->sets * WAYS, sizeof *cache->entries);
    }
    if (!cache || !cache->entries) {
        stk_free(cache);
        return -ENOMEM;
    }
    pthread_mutex_init(&cache->lock, NULL);
    *cache_out = cache;
    return 0;
}

void stk_metadata_cache_close(struct stk_metadata_cache *cache)
{
    if (cache) {
        stk_listing_free(&cache->last.listing);
        pthread_mutex_destroy(&cache->lock);
        stk_free(cache->entries);
        stk_free(cache);
    }
}

/* The entry of a key: its own, else a free one, else the oldest of its set. */
static struct entry *set_of(struct entry *entries, uint64_t sets, const uint64_t key[2],
                            bool *own_out)
{
    struct entry *set = &entries[(key[0] & (sets - 1)) * WAYS], *best = set;

    *own_out = false;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i].until_ns != 0 && set[i].key[0] == key[0] && set[i].key[1] == key[1]) {
            *own_out = true;
            return &set[i];
        }
        best = set[i].until_ns < best->until_ns ? &set[i] : best;
    }
    return best;
}

/* If there is no memory for a larger table, new entries replace old ones. */
static void grow(struct stk_metadata_cache *cache)
{
    uint64_t sets = cache->sets * 2;
    struct entry *entries = stk_alloc(sets * WAYS, sizeof *entries);
    bool own;

    if (!entries) {
        return;
    }
    for (uint64_t i = 0; i < cache->sets * WAYS; i++) {
        if (cache->entries[i].until_ns != 0) {
            *set_of(entries, sets, cache->entries[i].key, &own) = cache->entries[i];
        }
    }
    stk_free(cache->entries);
    cache->entries = entries;
    cache->sets = sets;
}

/* Replaces the entry with the same key. With the lock. */
static void set_entry(struct stk_metadata_cache *cache, const struct entry *new, uint64_t ms)
{
    struct entry *entry;
    bool own;

    if (cache->added >= cache->sets * WAYS / 4 && cache->sets * WAYS < STK_VFS_METADATA_MAX) {
        grow(cache);
    }
    entry = set_of(cache->entries, cache->sets, new->key, &own);
    cache->added += entry->until_ns == 0;
    *entry = *new;
    entry->until_ns = stk_clock_ns() + ms * 1000000u;
}

void stk_metadata_cache_add(struct stk_metadata_cache *cache, const char *url,
                            const struct stk_object_info *info)
{
    struct entry new = {.bytes = info->bytes,
                        .mtime_ns = info->mtime_ns,
                        .checksum = info->checksum,
                        .no_ranges = info->no_ranges,
                        .chunked = info->chunked};

    if (strlen(info->etag) >= ETAG_BYTES || strlen(info->modified) >= sizeof new.modified) {
        return;
    }
    key_of(url, strlen(url), new.key);
    memcpy(new.etag, info->etag, strlen(info->etag) + 1);
    memcpy(new.modified, info->modified, strlen(info->modified) + 1);
    memcpy(new.storage, info->storage, sizeof new.storage);
    pthread_mutex_lock(&cache->lock);
    set_entry(cache, &new, 1000ull * STK_VFS_METADATA_TTL_S);
    cache->last.until_ns = 0; /* the folder may have a new object */
    pthread_mutex_unlock(&cache->lock);
}

void stk_metadata_cache_add_folder(struct stk_metadata_cache *cache, const char *url,
                                   struct stk_listing *listing)
{
    struct entry new = {.folder = true};

    key_of(url, strlen(url), new.key);
    pthread_mutex_lock(&cache->lock);
    set_entry(cache, &new, STK_VFS_FOLDER_TTL_MS);
    if (listing) {
        stk_listing_free(&cache->last.listing);
        cache->last.listing = *listing;
        memcpy(cache->last.key, new.key, sizeof new.key);
        cache->last.until_ns = stk_clock_ns() + STK_VFS_FOLDER_TTL_MS * 1000000ull;
    }
    pthread_mutex_unlock(&cache->lock);
}

bool stk_metadata_cache_take_listing(struct stk_metadata_cache *cache, const char *url,
                                     struct stk_listing *listing_out)
{
    uint64_t key[2];
    bool found;

    key_of(url, strlen(url), key);
    pthread_mutex_lock(&cache->lock);
    found = cache->last.until_ns > stk_clock_ns() && cache->last.key[0] == key[0] &&
            cache->last.key[1] == key[1];
    if (found) {
        *listing_out = cache->last.listing;
        cache->last.listing = (struct stk_listing){0};
        cache->last.until_ns = 0;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

/* Returns the valid entry of a URL, or NULL. With the lock. */
static const struct entry *find_valid(const struct stk_metadata_cache *cache, const char *url)
{
    const struct entry *entry;
    uint64_t key[2];
    bool own;

    key_of(url, strlen(url), key);
    entry = set_of(cache->entries, cache->sets, key, &own);
    return own && entry->until_ns > stk_clock_ns() ? entry : NULL;
}

bool stk_metadata_cache_has_folder(struct stk_metadata_cache *cache, const char *url)
{
    const struct entry *entry;
    bool folder;

    pthread_mutex_lock(&cache->lock);
    entry = find_valid(cache, url);
    folder = entry && entry->folder;
    pthread_mutex_unlock(&cache->lock);
    return folder;
}

bool stk_metadata_cache_find(struct stk_metadata_cache *cache, const char *url,
                             struct stk_object_info *info_out)
{
    const struct entry *entry;
    bool object;

    pthread_mutex_lock(&cache->lock);
    entry = find_valid(cache, url);
    object = entry && !entry->folder;
    if (object) {
        *info_out = (struct stk_object_info){.bytes = entry->bytes,
                                             .mtime_ns = entry->mtime_ns,
                                             .checksum = entry->checksum,
                                             .no_ranges = entry->no_ranges,
                                             .chunked = entry->chunked};
        memcpy(info_out->etag, entry->etag, sizeof entry->etag);
        memcpy(info_out->modified, entry->modified, sizeof entry->modified);
        memcpy(info_out->storage, entry->storage, sizeof entry->storage);
    }
    pthread_mutex_unlock(&cache->lock);
    return object;
}

/* With the lock. */
static void remove_entry(struct stk_metadata_cache *cache, const char *url, size_t bytes)
{
    struct entry *entry;
    uint64_t key[2];
    bool own;

    key_of(url, bytes, key);
    entry = set_of(cache->entries, cache->sets, key, &own);
    if (own) {
        entry->until_ns = 1; /* expired, but not free: it stays in `added` */
    }
}

void stk_metadata_cache_remove(struct stk_metadata_cache *cache, const char *url)
{
    size_t bytes = strlen(url);

    pthread_mutex_lock(&cache->lock);
    remove_entry(cache, url, bytes);
    for (; bytes > 0; bytes--) { /* the folders may not exist any more: "x" and "x/" */
        if (url[bytes - 1] == '/') {
            remove_entry(cache, url, bytes);
            remove_entry(cache, url, bytes - 1);
        }
    }
    cache->last.until_ns = 0;
    pthread_mutex_unlock(&cache->lock);
}

void stk_metadata_cache_clear(struct stk_metadata_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    memset(cache->entries, 0, cache->sets * WAYS * sizeof *cache->entries);
    cache->last.until_ns = 0;
    pthread_mutex_unlock(&cache->lock);
}
