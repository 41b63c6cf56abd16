/* Lists the keys below an S3 prefix, by key ranges. */
#include "storage/walk/key_range.h"

#include "base/xxh3.h"
#include "storage/object/store.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PAGE_KEYS 1000u

struct listing {
    struct stk_walk *walk;
    struct stk_key_range *range;
    bool past, unordered;
    char url[2 * STK_WALK_PATH_BYTES_MAX];
    size_t url_bytes;
};

static int on_key(void *owner, const struct stk_list_entry *entry)
{
    struct listing *listing = owner;
    struct stk_walk *walk = listing->walk;
    struct stk_key_range *range = listing->range;
    size_t bytes = strlen(entry->name);
    struct stk_object_info info = {.bytes = entry->bytes, .mtime_ns = entry->mtime_ns};
    struct stk_walk_entry listed = {.bytes = entry->bytes,
                                    .mtime_ns = entry->mtime_ns,
                                    .kind = entry->folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE,
                                    .hash = entry->hash};
    bool marker = bytes == 0 || entry->name[bytes - 1] == '/'; /* of a folder */

    if (bytes >= sizeof range->last) {
        return STOKER_ERROR_LIMIT;
    }
    if (walk->deep && !walk->unordered) {
        pthread_mutex_lock(&walk->lock);
        listing->unordered = strcmp(entry->name, range->last) <= 0 && range->last[0];
        listing->past = range->until[0] && strcmp(entry->name, range->until) > 0;
        if (!listing->past) {
            memcpy(range->last, entry->name, bytes + 1);
        }
        if (++range->keys == PAGE_KEYS) {
            range->keys = 0;
            range->pages++;
            pthread_cond_signal(&walk->range_ended); /* another thread may split the range */
        }
        pthread_mutex_unlock(&walk->lock);
        if (listing->unordered) {
            return STOKER_ERROR_CORRUPT;
        }
        if (listing->past) {
            return STOKER_ERROR_EMPTY;
        }
    }
    if ((marker && entry->bytes == 0 && !walk->folder_markers) || stk_walk_is_hidden(entry->name)) {
        return 0;
    }
    if (!entry->folder && entry->etag && entry->etag[0]) {
        size_t etag_bytes = strlen(entry->etag);

        if (stk_list_entry_has_size(entry) && etag_bytes < sizeof info.etag &&
            listing->url_bytes + bytes < sizeof listing->url) {
            memcpy(info.etag, entry->etag, etag_bytes + 1);
            stk_object_info_set_class(&info, entry->storage);
            memcpy(listing->url + listing->url_bytes, entry->name, bytes + 1);
            stk_vfs_set_metadata(walk->io, listing->url, &info);
        }
        listed.version = stk_xxh3_64(entry->etag, etag_bytes) | 1;
        listed.etag = entry->etag;
    }
    return stk_walk_push(walk, &listed, entry->name);
}

int stk_key_range_list(struct stk_walk *walk, uint32_t index, struct stoker_error *error)
{
    struct stk_key_range *range = &walk->locked.ranges[index];
    struct listing listing = {.walk = walk, .range = range};
    struct stk_list_request search = {
        .deep = walk->deep, .marks = walk->folder_markers, .found = on_key, .owner = &listing};
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    char after[STK_WALK_PATH_BYTES_MAX];
    int status = stk_object_url_parse(walk->path, &object, error);

    status = status < 0 ? status : stk_vfs_get_store(walk->io, &store, error);
    if (status < 0) {
        goto done;
    }
    memcpy(listing.url, walk->path, walk->path_bytes + 1);
    listing.url_bytes = walk->path_bytes;
    if (listing.url[listing.url_bytes - 1] != '/') {
        listing.url[listing.url_bytes++] = '/';
    }
    pthread_mutex_lock(&walk->lock);
    memcpy(after, range->last, sizeof after);
    pthread_mutex_unlock(&walk->lock);
    search.place = object;
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
    stk_object_url_free(object);
    return status;
}

bool stk_key_range_split_locked(struct stk_walk *walk, uint32_t index)
{
    struct stk_key_range *own = &walk->locked.ranges[index], *best = NULL;
    char middle[STK_WALK_PATH_BYTES_MAX];

    for (uint32_t i = 0; i < walk->threads_max; i++) {
        struct stk_key_range *one = &walk->locked.ranges[i];

        if (one->busy && one->pages > 0 && (!best || one->pages > best->pages)) {
            best = one;
        }
    }
    if (!best) {
        return false;
    }
    best->pages--;
    if (!stk_key_range_middle(best->last, best->until, middle, sizeof middle)) {
        return false;
    }
    *own = (struct stk_key_range){.busy = true};
    memcpy(own->until, best->until, sizeof own->until);
    memcpy(own->last, middle, strlen(middle) + 1);
    memcpy(best->until, middle, strlen(middle) + 1);
    walk->locked.split = true;
    return true;
}

/* Keeps the common prefix and appends a byte half way between the two next bytes. If they are
 * adjacent, keeps one more byte. Uses only printable ASCII, so that the key stays valid UTF-8. */
bool stk_key_range_middle(const char *last, const char *until, char *middle, size_t middle_bytes)
{
    bool open = until[0] == '\0'; /* there is no upper bound */
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
        open = open || high != (uint8_t)last[at]; /* from here on `until` is no bound any more */
        if (!last[at]) {
            return false;
        }
        if (!open && !until[at]) {
            return false;
        }
    }
}
