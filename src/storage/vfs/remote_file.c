/* Remote files: opening, asking, listing, and reads that wait. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/xxh3.h"
#include "io/listing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEVICE 0x73746f7265ull /* of all that is remote; inodes are hashes of URLs */

/* A listing in the making. */
struct gathering {
    struct stk_route *route;
    struct stk_listing_builder builder;
    size_t url_bytes;
    uint64_t count;
    struct stoker_error *error;
    char path[2 * STK_STORE_URL_BYTES_MAX];
};

static int find(struct stk_route *route, const struct stk_place *place, bool archived,
                struct stk_about *about_out, struct stoker_error *error);
static int look_below(struct stk_route *route, const char *url, struct stoker_error *error);
static void wait_done(struct stk_parts *parts);

/* The same for "s3://b/x" and "s3://b/x/". */
static uint64_t inode_of(const char *url)
{
    size_t bytes = strlen(url);

    while (bytes > 0 && url[bytes - 1] == '/') {
        bytes--;
    }
    return stk_sum64(url, bytes);
}

static uint64_t version_of(const struct stk_about *about)
{
    return about->etag[0] ? stk_sum64(about->etag, strlen(about->etag)) | 1 : 0;
}

int stk_remote_open(struct stk_route *route, const char *url, struct stk_file **file_out,
                    struct stoker_error *error)
{
    struct stk_remote *remote = stk_alloc(1, sizeof *remote), *twin;
    int status;

    if (!remote) {
        return stk_fail(error, -ENOMEM, "cannot open an object", "free memory", "store");
    }
    pthread_mutex_init(&remote->lock, NULL);
    pthread_cond_init(&remote->told, NULL);
    atomic_init(&remote->users, 1);
    status = stk_place_parse(url, &remote->place, error);
    if (status == 0 && stk_place_is_keyed(remote->place) && !remote->place->key[0]) {
        status =
            stk_fail(error, -EISDIR, "a bucket is not an object", "name a key in it", "'%s'", url);
    }
    status = status < 0 ? status : find(route, remote->place, false, &remote->about, error);
    if (status == 0 && remote->about.folder) {
        status = stk_fail(error, -EISDIR, "this is a folder", "name a blob in it", "'%s'", url);
    }
    if (status < 0) {
        stk_remote_release(remote);
        return status;
    }
    remote->key = stk_brought_key(remote->place, &remote->about);
    twin = route->brought ? stk_brought_remote(route->brought, remote) : NULL;
    if (twin) {
        stk_remote_release(remote);
        remote = twin;
    } else {
        stk_remote_seal(route, remote, false);
    }
    *file_out = (struct stk_file *)((uintptr_t)remote | 1);
    return 0;
}

void stk_remote_release(struct stk_remote *remote)
{
    /* Release and acquire: the last one sees all that the others did with it. */
    if (atomic_fetch_sub_explicit(&remote->users, 1, memory_order_acq_rel) == 1) {
        stk_place_free(remote->place);
        stk_cover_free(remote->cover);
        pthread_cond_destroy(&remote->told);
        pthread_mutex_destroy(&remote->lock);
        stk_free(remote);
    }
}

void stk_remote_note(struct stk_remote *remote, const struct stoker_error *error)
{
    pthread_mutex_lock(&remote->lock);
    remote->error = *error;
    pthread_mutex_unlock(&remote->lock);
}

/* By what is known, or by asking. archived: such an object is found, too, and what of it is in an
 * archive is wanted, which a listing does not tell. */
static int find(struct stk_route *route, const struct stk_place *place, bool archived,
                struct stk_about *about_out, struct stoker_error *error)
{
    struct stk_store *store;
    int status;

    if (stk_known_find(route->known, place->url, about_out) &&
        !(archived && stk_store_may_archive(about_out->storage))) {
        return 0;
    }
    status = stk_route_store(route, &store, error);
    if (status == 0) {
        status = archived ? stk_store_look(store, place, about_out, error)
                          : stk_store_head(store, place, about_out, error);
    }
    if (status == 0 && !about_out->folder && about_out->archive != STOKER_ARCHIVE_AWAY &&
        about_out->archive != STOKER_ARCHIVE_COMING) {
        stk_known_add(route->known, place->url, about_out);
    }
    return status;
}

/* An object, else a prefix with something below it. */
int stk_remote_stat(struct stk_route *route, const char *url, struct stk_stat *stat_out,
                    struct stk_about *about_out, struct stoker_error *error)
{
    struct stoker_error why = {0};
    struct stk_place *place = NULL;
    struct stk_about about = {0};
    size_t bytes = strlen(url);
    bool folder;
    int status = stk_place_parse(url, &place, error);

    if (status < 0) {
        return status;
    }
    folder = stk_place_is_keyed(place) && (!place->key[0] || url[bytes - 1] == '/');
    *stat_out =
        (struct stk_stat){.device = DEVICE, .inode = inode_of(url), .kind = STK_ENTRY_DIRECTORY};
    if (stk_known_is_folder(route->known, url)) {
        stk_place_free(place);
        return 0;
    }
    status = folder ? -ENOENT : find(route, place, about_out != NULL, &about, &why);
    if (status == 0 && !about.folder) {
        stat_out->kind = STK_ENTRY_FILE;
        stat_out->bytes = about.bytes;
        stat_out->mtime_ns = about.mtime_ns;
        stat_out->version = version_of(&about);
        if (about_out) {
            *about_out = about;
        }
    } else if (status == -ENOENT && stk_place_is_keyed(place)) {
        status = look_below(route, url, error);
    } else if (error) {
        *error = why;
    }
    stk_place_free(place);
    return status;
}

void stk_remote_stat_file(const struct stk_remote *remote, struct stk_stat *stat_out)
{
    *stat_out = (struct stk_stat){.bytes = remote->about.bytes,
                                  .mtime_ns = remote->about.mtime_ns,
                                  .device = DEVICE,
                                  .inode = inode_of(remote->place->url),
                                  .kind = STK_ENTRY_FILE,
                                  .version = version_of(&remote->about)};
}

/* What a store lists twice, on two pages maybe, is there once. An object may have the name of a
 * folder. */
static void merge(struct stk_listing *listing)
{
    size_t kept = 0;

    for (size_t i = 0; i < listing->count; i++) {
        const struct stk_entry *entry = &listing->entries[i];
        bool again = false;

        for (size_t j = kept; j > 0 && !again; j--) {
            if (strcmp(listing->entries[j - 1].name, entry->name) != 0) {
                break;
            }
            again = listing->entries[j - 1].kind == entry->kind;
        }
        if (!again) {
            listing->entries[kept++] = *entry;
        }
    }
    listing->count = kept;
}

static int gather(void *owner, const struct stk_found *item)
{
    struct gathering *gathering = owner;
    size_t bytes = strlen(item->name);
    struct stk_entry entry = {.name = item->name,
                              .kind = item->folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE,
                              .device = DEVICE};
    struct stk_about about = {.bytes = item->bytes, .mtime_ns = item->mtime_ns};

    if (++gathering->count > gathering->route->names_max) {
        return stk_fail(gathering->error, STOKER_ERROR_LIMIT, "a listing has too many names",
                        "look at the server if it should have an end; name a longer prefix, or set "
                        "STOKER_LIST_NAMES_MAX",
                        "'%.*s': more than %llu", (int)stk_min(gathering->url_bytes, 400),
                        gathering->path, (unsigned long long)gathering->route->names_max);
    }
    /* "a//b" has a folder without a name, which no path can say. */
    if (bytes == 0 || strchr(item->name, '/') ||
        gathering->url_bytes + bytes >= STK_STORE_URL_BYTES_MAX) {
        return 0;
    }
    memcpy(gathering->path + gathering->url_bytes, item->name, bytes + 1);
    entry.inode = inode_of(gathering->path);
    if (!item->folder && item->etag[0]) {
        memcpy(about.etag, item->etag, stk_min(strlen(item->etag), sizeof about.etag - 1));
        stk_about_class(&about, item->storage);
        stk_known_add(gathering->route->known, gathering->path, &about);
    }
    return stk_listing_add(&gathering->builder, &entry);
}

/* Gathers what lies in url: all of it, or (more_out: whether there is more) the first page that has
 * something. */
static int gather_from(struct gathering *gathering, struct stk_route *route, const char *url,
                       bool *more_out, struct stoker_error *error)
{
    struct stk_place *place = NULL;
    struct stk_store *store;
    int status = stk_place_parse(url, &place, error);

    if (status == 0) {
        gathering->route = route;
        gathering->error = error;
        gathering->url_bytes = strlen(url);
        memcpy(gathering->path, url, gathering->url_bytes);
        if (url[gathering->url_bytes - 1] != '/') {
            gathering->path[gathering->url_bytes++] = '/';
        }
        status = stk_route_store(route, &store, error);
    }
    if (status == 0) {
        struct stk_search search = {.place = place,
                                    .marks = true,
                                    .max = more_out ? 1 : 0,
                                    .more_out = more_out,
                                    .found = gather,
                                    .owner = gathering};

        status = stk_store_list(store, &search, error);
    }
    if (status == 0 && gathering->count == 0 && place->key && place->key[0]) {
        status = stk_fail(error, -ENOENT,
                          more_out ? "there is no such object, and nothing below it"
                                   : "nothing lies below this prefix",
                          "check bucket and key with stoker ls", "'%s'", url);
    }
    stk_place_free(place);
    return status;
}

/* What lies below: see gather_from. */
static int list_below(struct stk_route *route, const char *url, bool *more_out,
                      struct stk_listing *listing_out, struct stoker_error *error)
{
    struct gathering *gathering = stk_alloc(1, sizeof *gathering);
    int status = gathering ? gather_from(gathering, route, url, more_out, error) : -ENOMEM;

    if (status == 0) {
        status = stk_listing_build(&gathering->builder, listing_out);
    }
    if (status == 0) {
        merge(listing_out);
    }
    if (gathering) {
        stk_listing_builder_deinit(&gathering->builder);
    }
    stk_free(gathering);
    return status == -ENOMEM
               ? stk_fail(error, -ENOMEM, "cannot list", "free memory", "'%.400s'", url)
               : status;
}

/* Whether it is a folder; if that told all that is in it, who lists it next need not ask again. */
static int look_below(struct stk_route *route, const char *url, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    bool more = false;
    int status = list_below(route, url, &more, &listing, error);

    if (status == 0) {
        stk_known_add_folder(route->known, url, more ? NULL : &listing);
    }
    if (more) {
        stk_listing_free(&listing);
    }
    return status;
}

int stk_remote_list(struct stk_route *route, const char *url, struct stk_listing *listing_out,
                    struct stoker_error *error)
{
    return stk_known_take(route->known, url, listing_out)
               ? 0
               : list_below(route, url, NULL, listing_out, error);
}

/* A read that waits. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
};

/* Takes parts, of which `waits` says whether done will come. */
static int64_t wait_for(struct stk_parts *parts, struct waiter *waiter, bool waits)
{
    int64_t result;

    pthread_mutex_lock(&waiter->lock);
    while (waits && !waiter->done) { /* each part ends by its deadline */
        pthread_cond_wait(&waiter->arrived, &waiter->lock);
    }
    pthread_mutex_unlock(&waiter->lock);
    pthread_cond_destroy(&waiter->arrived);
    pthread_mutex_destroy(&waiter->lock);
    result = parts->status < 0 ? parts->status : (int64_t)parts->bytes;
    stk_parts_free(parts);
    return result;
}

static void set_waiter(struct stk_parts *parts, struct waiter *waiter)
{
    pthread_mutex_init(&waiter->lock, NULL);
    pthread_cond_init(&waiter->arrived, NULL);
    parts->done = wait_done;
    parts->owner = waiter;
}

/* What is kept, or on its way to be. -EAGAIN: it is not. */
static int64_t read_kept(struct stk_brought *kept, struct stk_remote *remote, uint64_t offset,
                         void *buffer, uint64_t bytes)
{
    int64_t result = stk_brought_read(kept, remote, offset, buffer, bytes, false);
    struct waiter waiter = {.done = false};
    struct stk_parts *parts;

    if (result != -EAGAIN || !stk_brought_has(kept, remote, offset, bytes)) {
        return result;
    }
    parts = stk_parts_new_waiting(remote, offset, bytes, buffer);
    if (!parts) {
        return -ENOMEM;
    }
    set_waiter(parts, &waiter);
    result = wait_for(parts, &waiter, stk_brought_wait(kept, parts));
    return result < 0 ? result : stk_brought_read(kept, remote, offset, buffer, bytes, false);
}

int64_t stk_remote_read(struct stk_route *route, struct stk_remote *remote, uint64_t offset,
                        void *buffer, size_t bytes)
{
    struct waiter waiter = {.done = false};
    struct stk_parts *parts;
    struct stk_store *store;
    uint64_t wanted;
    int64_t result;
    int status;

    if (offset >= remote->about.bytes || bytes == 0) {
        return 0;
    }
    wanted = stk_min(bytes, remote->about.bytes - offset);
    result = route->brought ? read_kept(route->brought, remote, offset, buffer, wanted) : -EAGAIN;
    if (result != -EAGAIN) {
        return result;
    }
    status = stk_route_store(route, &store, NULL);
    if (status < 0) {
        return status;
    }
    parts = stk_parts_new(remote, offset, wanted, buffer);
    if (!parts) {
        return -ENOMEM;
    }
    set_waiter(parts, &waiter);
    parts->stop = stk_io_obeyed();
    stk_parts_start(parts, store);
    return wait_for(parts, &waiter, true);
}

static void wait_done(struct stk_parts *parts)
{
    struct waiter *waiter = parts->owner;

    pthread_mutex_lock(&waiter->lock);
    waiter->done = true;
    pthread_cond_signal(&waiter->arrived);
    pthread_mutex_unlock(&waiter->lock);
}

int stk_remote_map(struct stk_route *route, struct stk_remote *remote, struct stk_view *view_out,
                   struct stoker_error *error)
{
    uint64_t bytes = remote->about.bytes;
    struct stk_remote_map *map;
    int64_t got;

    *view_out = (struct stk_view){(const uint8_t *)"", 0};
    if (bytes == 0) {
        return 0;
    }
    if (bytes > STK_ROUTE_MAP_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a remote file is too large to be mapped",
                        "copy it to a disk of this machine", "'%.400s': %llu bytes",
                        remote->place->url, (unsigned long long)bytes);
    }
    map = stk_alloc(1, sizeof *map);
    if (map) {
        map->bytes = bytes;
        map->pages = stk_pages_alloc(bytes);
    }
    if (!map || !map->pages) {
        stk_free(map);
        return stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "'%.400s'",
                        remote->place->url);
    }
    got = stk_remote_read(route, remote, 0, map->pages, bytes);
    if (got < 0) {
        stk_pages_free(map->pages, bytes);
        stk_free(map);
        pthread_mutex_lock(&remote->lock);
        if (error) {
            *error = remote->error;
        }
        pthread_mutex_unlock(&remote->lock);
        return (int)got;
    }
    pthread_mutex_lock(&route->lock);
    map->next = route->locked.maps;
    route->locked.maps = map;
    pthread_mutex_unlock(&route->lock);
    *view_out = (struct stk_view){map->pages, bytes};
    return 0;
}
