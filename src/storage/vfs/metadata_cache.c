/* What was told of objects and folders lately: a table of fixed size, where a new one takes the
 * place of an old one; and the last listing that nobody has taken yet. Keyed by a hash of 128 bits,
 * so that no URL is kept. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/clock.h"

#include <errno.h>
#include <string.h>

#define WAYS 4u        /* places that an object may have */
#define ETAG_BYTES 64u /* a longer one is not kept */
#define SETS_MIN 128u  /* it grows with what is added */

struct entry {
    uint64_t key[2];
    uint64_t bytes, mtime_ns, until_ns; /* until_ns 0: free */
    bool folder;                        /* then that is all */
    char etag[ETAG_BYTES];
    char modified[32]; /* an HTTP date has 29 bytes */
    char storage[STK_STORE_CLASS_BYTES];
    struct stk_checksum whole;
};

struct stk_metadata_cache {
    pthread_mutex_t lock;
    struct entry *entries;
    uint64_t sets; /* a power of two */
    uint64_t added;
    struct {
        uint64_t key[2], until_ns; /* until_ns 0: there is none */
        struct stk_listing listing;
    } kept;
};

static void key_of(const char *url, size_t bytes, uint64_t key[2])
{
    key[0] = stk_xxh3_64(url, bytes);
    key[1] = stk_mix64(key[0] ^ bytes);
    for (size_t at = 0; at < bytes; at++) { /* another function of all bytes */
        key[1] = (key[1] ^ (uint8_t)url[at]) * 0x100000001b3ull;
    }
}

int stk_metadata_cache_open(struct stk_metadata_cache **known_out)
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
    *known_out = cache;
    return 0;
}

void stk_metadata_cache_close(struct stk_metadata_cache *cache)
{
    if (cache) {
        stk_listing_free(&cache->kept.listing);
        pthread_mutex_destroy(&cache->lock);
        stk_free(cache->entries);
        stk_free(cache);
    }
}

/* The place of a key: its own, else a free one, else the oldest. */
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

/* No memory for a larger table is no matter: old answers make room. */
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

/* In place of what has its key. With the lock. */
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
                            const struct stk_object_info *about)
{
    struct entry new = {
        .bytes = about->bytes, .mtime_ns = about->mtime_ns, .whole = about->checksum};

    if (strlen(about->etag) >= ETAG_BYTES || strlen(about->modified) >= sizeof new.modified) {
        return;
    }
    key_of(url, strlen(url), new.key);
    memcpy(new.etag, about->etag, strlen(about->etag) + 1);
    memcpy(new.modified, about->modified, strlen(about->modified) + 1);
    memcpy(new.storage, about->storage, sizeof new.storage);
    pthread_mutex_lock(&cache->lock);
    set_entry(cache, &new, 1000ull * STK_VFS_METADATA_TTL_S);
    cache->kept.until_ns = 0; /* it may have been written just now */
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
        stk_listing_free(&cache->kept.listing);
        cache->kept.listing = *listing;
        memcpy(cache->kept.key, new.key, sizeof new.key);
        cache->kept.until_ns = stk_clock_ns() + STK_VFS_FOLDER_TTL_MS * 1000000ull;
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
    found = cache->kept.until_ns > stk_clock_ns() && cache->kept.key[0] == key[0] &&
            cache->kept.key[1] == key[1];
    if (found) {
        *listing_out = cache->kept.listing;
        cache->kept.listing = (struct stk_listing){0};
        cache->kept.until_ns = 0;
    }
    pthread_mutex_unlock(&cache->lock);
    return found;
}

/* NULL: nothing is known, or no more. With the lock. */
static const struct entry *is_fresh(const struct stk_metadata_cache *cache, const char *url)
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
    entry = is_fresh(cache, url);
    folder = entry && entry->folder;
    pthread_mutex_unlock(&cache->lock);
    return folder;
}

bool stk_metadata_cache_find(struct stk_metadata_cache *cache, const char *url,
                             struct stk_object_info *about_out)
{
    const struct entry *entry;
    bool object;

    pthread_mutex_lock(&cache->lock);
    entry = is_fresh(cache, url);
    object = entry && !entry->folder;
    if (object) {
        *about_out = (struct stk_object_info){
            .bytes = entry->bytes, .mtime_ns = entry->mtime_ns, .checksum = entry->whole};
        memcpy(about_out->etag, entry->etag, sizeof entry->etag);
        memcpy(about_out->modified, entry->modified, sizeof entry->modified);
        memcpy(about_out->storage, entry->storage, sizeof entry->storage);
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
        entry->until_ns = 1; /* long ago, but not free: what is counted stays counted */
    }
}

void stk_metadata_cache_remove(struct stk_metadata_cache *cache, const char *url)
{
    size_t bytes = strlen(url);

    pthread_mutex_lock(&cache->lock);
    remove_entry(cache, url, bytes);
    for (; bytes > 0; bytes--) { /* it may have been the last in its folders: "x" and "x/" */
        if (url[bytes - 1] == '/') {
            remove_entry(cache, url, bytes);
            remove_entry(cache, url, bytes - 1);
        }
    }
    cache->kept.until_ns = 0;
    pthread_mutex_unlock(&cache->lock);
}
