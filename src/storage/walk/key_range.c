/* Keys below a prefix of S3, by stretches. */
#include "storage/walk/key_range.h"

#include "base/xxh3.h"
#include "storage/object/store.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE_KEYS 1000u

struct listing {
    struct stk_visit *walk;
    struct stk_stretch *stretch;
    bool past, unordered;
    char url[2 * STK_VISIT_PATH_BYTES_MAX];
    size_t url_bytes;
};

static int found(void *owner, const struct stk_found *item)
{
    struct listing *listing = owner;
    struct stk_visit *walk = listing->walk;
    struct stk_stretch *stretch = listing->stretch;
    size_t bytes = strlen(item->name);
    struct stk_about about = {.bytes = item->bytes, .mtime_ns = item->mtime_ns};
    struct stk_item told = {.bytes = item->bytes,
                            .mtime_ns = item->mtime_ns,
                            .kind = item->folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE,
                            .hash = item->hash};
    bool mark = bytes == 0 || item->name[bytes - 1] == '/'; /* of a folder that may be empty */

    if (bytes >= sizeof stretch->last) {
        return STOKER_ERROR_LIMIT;
    }
    if (walk->deep && !walk->unordered) {
        pthread_mutex_lock(&walk->lock);
        listing->unordered = strcmp(item->name, stretch->last) <= 0 && stretch->last[0];
        listing->past = stretch->until[0] && strcmp(item->name, stretch->until) > 0;
        if (!listing->past) {
            memcpy(stretch->last, item->name, bytes + 1);
        }
        if (++stretch->keys == PAGE_KEYS) {
            stretch->keys = 0;
            stretch->pages++;
            pthread_cond_signal(&walk->freed); /* somebody may cut it */
        }
        pthread_mutex_unlock(&walk->lock);
        if (listing->unordered) {
            return STOKER_ERROR_CORRUPT;
        }
        if (listing->past) {
            return STOKER_ERROR_EMPTY;
        }
    }
    if ((mark && item->bytes == 0 && !walk->marks) || stk_visit_is_hidden(item->name)) {
        return 0;
    }
    if (!item->folder && item->etag && item->etag[0]) {
        size_t etag_bytes = strlen(item->etag);

        if (etag_bytes < sizeof about.etag && listing->url_bytes + bytes < sizeof listing->url) {
            memcpy(about.etag, item->etag, etag_bytes + 1);
            stk_about_class(&about, item->storage);
            memcpy(listing->url + listing->url_bytes, item->name, bytes + 1);
            stk_route_know(walk->io, listing->url, &about);
        }
        told.version = stk_sum64(item->etag, etag_bytes) | 1;
        told.etag = item->etag;
    }
    return stk_visit_put(walk, &told, item->name);
}

int stk_visit_keys(struct stk_visit *walk, uint32_t index, struct stoker_error *error)
{
    struct stk_stretch *stretch = &walk->locked.stretches[index];
    struct listing listing = {.walk = walk, .stretch = stretch};
    struct stk_search search = {
        .deep = walk->deep, .marks = walk->marks, .found = found, .owner = &listing};
    struct stk_place *place = NULL;
    struct stk_store *store;
    char after[STK_VISIT_PATH_BYTES_MAX];
    int status = stk_place_parse(walk->path, &place, error);

    status = status < 0 ? status : stk_route_lend(walk->io, &store, error);
    if (status < 0) {
        goto done;
    }
    memcpy(listing.url, walk->path, walk->path_bytes + 1);
    listing.url_bytes = walk->path_bytes;
    if (listing.url[listing.url_bytes - 1] != '/') {
        listing.url[listing.url_bytes++] = '/';
    }
    pthread_mutex_lock(&walk->lock);
    memcpy(after, stretch->last, sizeof after);
    pthread_mutex_unlock(&walk->lock);
    search.place = place;
    search.after = after[0] ? after : NULL;
    status = stk_store_list(store, &search, error);
    if (listing.past) {
        status = 0;
    } else if (listing.unordered) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "the server lists keys out of order",
                          "look at the server: S3 lists in the order of bytes, each key once",
                          "'%.400s'", walk->path);
    }
done:
    stk_place_free(place);
    return status;
}

bool stk_stretch_take_locked(struct stk_visit *walk, uint32_t index)
{
    struct stk_stretch *own = &walk->locked.stretches[index], *best = NULL;
    char middle[STK_VISIT_PATH_BYTES_MAX];

    for (uint32_t i = 0; i < walk->threads_max; i++) {
        struct stk_stretch *one = &walk->locked.stretches[i];

        if (one->busy && one->pages > 0 && (!best || one->pages > best->pages)) {
            best = one;
        }
    }
    if (!best) {
        return false;
    }
    best->pages--;
    if (!stk_stretch_middle(best->last, best->until, middle, sizeof middle)) {
        return false;
    }
    *own = (struct stk_stretch){.busy = true};
    memcpy(own->until, best->until, sizeof own->until);
    memcpy(own->last, middle, strlen(middle) + 1);
    memcpy(best->until, middle, strlen(middle) + 1);
    walk->locked.cut = true;
    return true;
}

/* Behind what both have in common, a byte half way; where the next byte is no further away, at one
 * behind it. Only printable ones, so that the name stays UTF-8. */
bool stk_stretch_middle(const char *last, const char *until, char *middle, size_t middle_bytes)
{
    bool open = until[0] == '\0'; /* nothing above */
    size_t at = 0;

    for (;; at++) {
        uint8_t low = (uint8_t)last[at], high = open ? 0x7f : (uint8_t)until[at];

        if (at + 2 >= middle_bytes || low >= 0x7f || (!open && high > 0x7f)) {
            return false;
        }
        low = (uint8_t)stk_max(low, 0x1f);
        if (high > low && high - low >= 2) {
            memcpy(middle, last, at);
            middle[at] = (char)(low + (high - low) / 2);
            middle[at + 1] = '\0';
            return strcmp(middle, last) > 0 && (open || strcmp(middle, until) < 0);
        }
        open = open || high != (uint8_t)last[at]; /* below here `until` says nothing any more */
        if (!last[at]) {
            return false;
        }
        if (!open && !until[at]) {
            return false;
        }
    }
}
