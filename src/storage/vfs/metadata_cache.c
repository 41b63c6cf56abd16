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
    struct stk_seal whole;
};

struct stk_known {
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
    key[0] = stk_sum64(url, bytes);
    key[1] = stk_mix(key[0] ^ bytes);
    for (size_t at = 0; at < bytes; at++) { /* another function of all bytes */
        key[1] = (key[1] ^ (uint8_t)url[at]) * 0x100000001b3ull;
    }
}

int stk_known_open(struct stk_known **known_out)
{
    struct stk_known *known = stk_alloc(1, sizeof *known);

    if (known) {
        known->sets = SETS_MIN;
        known->entries = stk_alloc(known->sets * WAYS, sizeof *known->entries);
    }
    if (!known || !known->entries) {
        stk_free(known);
        return -ENOMEM;
    }
    pthread_mutex_init(&known->lock, NULL);
    *known_out = known;
    return 0;
}

void stk_known_close(struct stk_known *known)
{
    if (known) {
        stk_listing_free(&known->kept.listing);
        pthread_mutex_destroy(&known->lock);
        stk_free(known->entries);
        stk_free(known);
    }
}

/* The place of a key: its own, else a free one, else the oldest. */
static struct entry *place_of(struct entry *entries, uint64_t sets, const uint64_t key[2],
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
static void grow(struct stk_known *known)
{
    uint64_t sets = known->sets * 2;
    struct entry *entries = stk_alloc(sets * WAYS, sizeof *entries);
    bool own;

    if (!entries) {
        return;
    }
    for (uint64_t i = 0; i < known->sets * WAYS; i++) {
        if (known->entries[i].until_ns != 0) {
            *place_of(entries, sets, known->entries[i].key, &own) = known->entries[i];
        }
    }
    stk_free(known->entries);
    known->entries = entries;
    known->sets = sets;
}

/* In place of what has its key. With the lock. */
static void put(struct stk_known *known, const struct entry *new, uint64_t ms)
{
    struct entry *entry;
    bool own;

    if (known->added >= known->sets * WAYS / 4 && known->sets * WAYS < STK_ROUTE_KNOWN_MAX) {
        grow(known);
    }
    entry = place_of(known->entries, known->sets, new->key, &own);
    known->added += entry->until_ns == 0;
    *entry = *new;
    entry->until_ns = stk_clock_ns() + ms * 1000000u;
}

void stk_known_add(struct stk_known *known, const char *url, const struct stk_about *about)
{
    struct entry new = {.bytes = about->bytes, .mtime_ns = about->mtime_ns, .whole = about->whole};

    if (strlen(about->etag) >= ETAG_BYTES || strlen(about->modified) >= sizeof new.modified) {
        return;
    }
    key_of(url, strlen(url), new.key);
    memcpy(new.etag, about->etag, strlen(about->etag) + 1);
    memcpy(new.modified, about->modified, strlen(about->modified) + 1);
    memcpy(new.storage, about->storage, sizeof new.storage);
    pthread_mutex_lock(&known->lock);
    put(known, &new, 1000ull * STK_ROUTE_KNOWN_S);
    known->kept.until_ns = 0; /* it may have been written just now */
    pthread_mutex_unlock(&known->lock);
}

void stk_known_add_folder(struct stk_known *known, const char *url, struct stk_listing *listing)
{
    struct entry new = {.folder = true};

    key_of(url, strlen(url), new.key);
    pthread_mutex_lock(&known->lock);
    put(known, &new, STK_ROUTE_FOLDER_MS);
    if (listing) {
        stk_listing_free(&known->kept.listing);
        known->kept.listing = *listing;
        memcpy(known->kept.key, new.key, sizeof new.key);
        known->kept.until_ns = stk_clock_ns() + STK_ROUTE_FOLDER_MS * 1000000ull;
    }
    pthread_mutex_unlock(&known->lock);
}

bool stk_known_take(struct stk_known *known, const char *url, struct stk_listing *listing_out)
{
    uint64_t key[2];
    bool found;

    key_of(url, strlen(url), key);
    pthread_mutex_lock(&known->lock);
    found = known->kept.until_ns > stk_clock_ns() && known->kept.key[0] == key[0] &&
            known->kept.key[1] == key[1];
    if (found) {
        *listing_out = known->kept.listing;
        known->kept.listing = (struct stk_listing){0};
        known->kept.until_ns = 0;
    }
    pthread_mutex_unlock(&known->lock);
    return found;
}

/* NULL: nothing is known, or no more. With the lock. */
static const struct entry *fresh(const struct stk_known *known, const char *url)
{
    const struct entry *entry;
    uint64_t key[2];
    bool own;

    key_of(url, strlen(url), key);
    entry = place_of(known->entries, known->sets, key, &own);
    return own && entry->until_ns > stk_clock_ns() ? entry : NULL;
}

bool stk_known_is_folder(struct stk_known *known, const char *url)
{
    const struct entry *entry;
    bool folder;

    pthread_mutex_lock(&known->lock);
    entry = fresh(known, url);
    folder = entry && entry->folder;
    pthread_mutex_unlock(&known->lock);
    return folder;
}

bool stk_known_find(struct stk_known *known, const char *url, struct stk_about *about_out)
{
    const struct entry *entry;
    bool object;

    pthread_mutex_lock(&known->lock);
    entry = fresh(known, url);
    object = entry && !entry->folder;
    if (object) {
        *about_out = (struct stk_about){
            .bytes = entry->bytes, .mtime_ns = entry->mtime_ns, .whole = entry->whole};
        memcpy(about_out->etag, entry->etag, sizeof entry->etag);
        memcpy(about_out->modified, entry->modified, sizeof entry->modified);
        memcpy(about_out->storage, entry->storage, sizeof entry->storage);
    }
    pthread_mutex_unlock(&known->lock);
    return object;
}

/* With the lock. */
static void forget(struct stk_known *known, const char *url, size_t bytes)
{
    struct entry *entry;
    uint64_t key[2];
    bool own;

    key_of(url, bytes, key);
    entry = place_of(known->entries, known->sets, key, &own);
    if (own) {
        entry->until_ns = 1; /* long ago, but not free: what is counted stays counted */
    }
}

void stk_known_forget(struct stk_known *known, const char *url)
{
    size_t bytes = strlen(url);

    pthread_mutex_lock(&known->lock);
    forget(known, url, bytes);
    for (; bytes > 0; bytes--) { /* it may have been the last in its folders: "x" and "x/" */
        if (url[bytes - 1] == '/') {
            forget(known, url, bytes);
            forget(known, url, bytes - 1);
        }
    }
    known->kept.until_ns = 0;
    pthread_mutex_unlock(&known->lock);
}
