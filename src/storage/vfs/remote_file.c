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
struct listing_builder {
    struct stk_vfs *vfs;
    struct stk_listing_builder builder;
    size_t url_bytes;
    uint64_t count;
    struct stoker_error *error;
    char path[2 * STK_STORE_URL_BYTES_MAX];
};

static int find(struct stk_vfs *vfs, const struct stk_object_url *object, bool archived,
                struct stk_object_info *info_out, struct stoker_error *error);
static int has_children(struct stk_vfs *vfs, const char *url, struct stoker_error *error);
static void wait_done(struct stk_range_read *parts);

/* The same for "s3://b/x" and "s3://b/x/". */
static uint64_t inode_of(const char *url)
{
    size_t bytes = strlen(url);

    while (bytes > 0 && url[bytes - 1] == '/') {
        bytes--;
    }
    return stk_xxh3_64(url, bytes);
}

static uint64_t version_of(const struct stk_object_info *info)
{
    return info->etag[0] ? stk_xxh3_64(info->etag, strlen(info->etag)) | 1 : 0;
}

int stk_remote_file_open(struct stk_vfs *vfs, const char *url, struct stk_file **file_out,
                         struct stoker_error *error)
{
    struct stk_remote_file *remote = stk_alloc(1, sizeof *remote), *twin;
    int status;

    if (!remote) {
        return stk_fail(error, -ENOMEM, "cannot open an object", "free memory", "store");
    }
    pthread_mutex_init(&remote->lock, NULL);
    pthread_cond_init(&remote->checksum_known, NULL);
    atomic_init(&remote->users, 1);
    status = stk_object_url_parse(url, &remote->object, error);
    if (status == 0 && stk_object_url_has_key(remote->object) && !remote->object->key[0]) {
        status =
            stk_fail(error, -EISDIR, "a bucket is not an object", "name a key in it", "'%s'", url);
    }
    status = status < 0 ? status : find(vfs, remote->object, false, &remote->info, error);
    if (status == 0 && remote->info.folder) {
        status = stk_fail(error, -EISDIR, "this is a folder", "name a blob in it", "'%s'", url);
    }
    if (status < 0) {
        stk_remote_file_release(remote);
        return status;
    }
    remote->key = stk_prefetch_key(remote->object, &remote->info);
    twin = vfs->prefetch ? stk_prefetch_find_file(vfs->prefetch, remote) : NULL;
    if (twin) {
        stk_remote_file_release(remote);
        remote = twin;
    } else {
        stk_remote_file_fetch_checksum(vfs, remote, false);
    }
    *file_out = (struct stk_file *)((uintptr_t)remote | 1);
    return 0;
}

void stk_remote_file_release(struct stk_remote_file *remote)
{
    /* Release and acquire: the last one sees all that the others did with it. */
    if (atomic_fetch_sub_explicit(&remote->users, 1, memory_order_acq_rel) == 1) {
        stk_object_url_free(remote->object);
        stk_range_coverage_free(remote->coverage);
        pthread_cond_destroy(&remote->checksum_known);
        pthread_mutex_destroy(&remote->lock);
        stk_free(remote);
    }
}

void stk_remote_file_set_error(struct stk_remote_file *remote, const struct stoker_error *error)
{
    pthread_mutex_lock(&remote->lock);
    remote->error = *error;
    pthread_mutex_unlock(&remote->lock);
}

/* By what is known, or by asking. archived: such an object is found, too, and what of it is in an
 * archive is wanted, which a listing does not tell. */
static int find(struct stk_vfs *vfs, const struct stk_object_url *object, bool archived,
                struct stk_object_info *info_out, struct stoker_error *error)
{
    struct stk_store *store;
    int status;

    if (stk_metadata_cache_find(vfs->metadata_cache, object->url, info_out) &&
        !(archived && stk_store_class_may_be_archive(info_out->storage))) {
        return 0;
    }
    status = stk_vfs_open_store(vfs, &store, error);
    if (status == 0) {
        status = archived ? stk_store_head_archived(store, object, info_out, error)
                          : stk_store_head(store, object, info_out, error);
    }
    if (status == 0 && !info_out->folder && info_out->archive != STOKER_ARCHIVE_ARCHIVED &&
        info_out->archive != STOKER_ARCHIVE_RESTORING) {
        stk_metadata_cache_add(vfs->metadata_cache, object->url, info_out);
    }
    return status;
}

/* An object, else a prefix with something below it. */
int stk_remote_file_stat_url(struct stk_vfs *vfs, const char *url, struct stk_stat *stat_out,
                             struct stk_object_info *info_out, struct stoker_error *error)
{
    struct stoker_error why = {0};
    struct stk_object_url *object = NULL;
    struct stk_object_info info = {0};
    size_t bytes = strlen(url);
    bool folder;
    int status = stk_object_url_parse(url, &object, error);

    if (status < 0) {
        return status;
    }
    folder = stk_object_url_has_key(object) && (!object->key[0] || url[bytes - 1] == '/');
    *stat_out =
        (struct stk_stat){.device = DEVICE, .inode = inode_of(url), .kind = STK_ENTRY_DIRECTORY};
    if (stk_metadata_cache_has_folder(vfs->metadata_cache, url)) {
        stk_object_url_free(object);
        return 0;
    }
    status = folder ? -ENOENT : find(vfs, object, info_out != NULL, &info, &why);
    if (status == 0 && !info.folder) {
        stat_out->kind = STK_ENTRY_FILE;
        stat_out->bytes = info.bytes;
        stat_out->mtime_ns = info.mtime_ns;
        stat_out->version = version_of(&info);
        if (info_out) {
            *info_out = info;
        }
    } else if (status == -ENOENT && stk_object_url_has_key(object)) {
        status = has_children(vfs, url, error);
    } else if (error) {
        *error = why;
    }
    stk_object_url_free(object);
    return status;
}

void stk_remote_file_stat(const struct stk_remote_file *remote, struct stk_stat *stat_out)
{
    *stat_out = (struct stk_stat){.bytes = remote->info.bytes,
                                  .mtime_ns = remote->info.mtime_ns,
                                  .device = DEVICE,
                                  .inode = inode_of(remote->object->url),
                                  .kind = STK_ENTRY_FILE,
                                  .version = version_of(&remote->info)};
}

/* What a store lists twice, on two pages maybe, is there once. An object may have the name of a
 * folder. */
static void merge(struct stk_listing *listing)
{
    size_t prefetch = 0;

    for (size_t i = 0; i < listing->count; i++) {
        const struct stk_entry *entry = &listing->entries[i];
        bool again = false;

        for (size_t j = prefetch; j > 0 && !again; j--) {
            if (strcmp(listing->entries[j - 1].name, entry->name) != 0) {
                break;
            }
            again = listing->entries[j - 1].kind == entry->kind;
        }
        if (!again) {
            listing->entries[prefetch++] = *entry;
        }
    }
    listing->count = prefetch;
}

static int add_listed(void *owner, const struct stk_list_entry *item)
{
    struct listing_builder *listing_builder = owner;
    size_t bytes = strlen(item->name);
    struct stk_entry entry = {.name = item->name,
                              .kind = item->folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE,
                              .device = DEVICE};
    struct stk_object_info info = {.bytes = item->bytes, .mtime_ns = item->mtime_ns};

    if (++listing_builder->count > listing_builder->vfs->names_max) {
        return stk_fail(listing_builder->error, STOKER_ERROR_LIMIT, "a listing has too many names",
                        "look at the server if it should have an end; name a longer prefix, or set "
                        "STOKER_LIST_NAMES_MAX",
                        "'%.*s': more than %llu", (int)stk_min(listing_builder->url_bytes, 400),
                        listing_builder->path, (unsigned long long)listing_builder->vfs->names_max);
    }
    /* "a//b" has a folder without a name, which no path can say. */
    if (bytes == 0 || strchr(item->name, '/') ||
        listing_builder->url_bytes + bytes >= STK_STORE_URL_BYTES_MAX) {
        return 0;
    }
    memcpy(listing_builder->path + listing_builder->url_bytes, item->name, bytes + 1);
    entry.inode = inode_of(listing_builder->path);
    if (!item->folder && item->etag[0]) {
        memcpy(info.etag, item->etag, stk_min(strlen(item->etag), sizeof info.etag - 1));
        stk_object_info_set_class(&info, item->storage);
        stk_metadata_cache_add(listing_builder->vfs->metadata_cache, listing_builder->path, &info);
    }
    return stk_listing_add(&listing_builder->builder, &entry);
}

/* Gathers what lies in url: all of it, or (more_out: whether there is more) the first page that has
 * something. */
static int add_from(struct listing_builder *listing_builder, struct stk_vfs *vfs, const char *url,
                    bool *more_out, struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    int status = stk_object_url_parse(url, &object, error);

    if (status == 0) {
        listing_builder->vfs = vfs;
        listing_builder->error = error;
        listing_builder->url_bytes = strlen(url);
        memcpy(listing_builder->path, url, listing_builder->url_bytes);
        if (url[listing_builder->url_bytes - 1] != '/') {
            listing_builder->path[listing_builder->url_bytes++] = '/';
        }
        status = stk_vfs_open_store(vfs, &store, error);
    }
    if (status == 0) {
        struct stk_list_request search = {.place = object,
                                          .marks = true,
                                          .max = more_out ? 1 : 0,
                                          .more_out = more_out,
                                          .found = add_listed,
                                          .owner = listing_builder};

        status = stk_store_list(store, &search, error);
    }
    if (status == 0 && listing_builder->count == 0 && object->key && object->key[0]) {
        status = stk_fail(error, -ENOENT,
                          more_out ? "there is no such object, and nothing below it"
                                   : "nothing lies below this prefix",
                          "check bucket and key with stoker ls", "'%s'", url);
    }
    stk_object_url_free(object);
    return status;
}

/* What lies below: see add_from. */
static int list_children(struct stk_vfs *vfs, const char *url, bool *more_out,
                         struct stk_listing *listing_out, struct stoker_error *error)
{
    struct listing_builder *listing_builder = stk_alloc(1, sizeof *listing_builder);
    int status = listing_builder ? add_from(listing_builder, vfs, url, more_out, error) : -ENOMEM;

    if (status == 0) {
        status = stk_listing_build(&listing_builder->builder, listing_out);
    }
    if (status == 0) {
        merge(listing_out);
    }
    if (listing_builder) {
        stk_listing_builder_deinit(&listing_builder->builder);
    }
    stk_free(listing_builder);
    return status == -ENOMEM
               ? stk_fail(error, -ENOMEM, "cannot list", "free memory", "'%.400s'", url)
               : status;
}

/* Whether it is a folder; if that told all that is in it, who lists it next need not ask again. */
static int has_children(struct stk_vfs *vfs, const char *url, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    bool more = false;
    int status = list_children(vfs, url, &more, &listing, error);

    if (status == 0) {
        stk_metadata_cache_add_folder(vfs->metadata_cache, url, more ? NULL : &listing);
    }
    if (more) {
        stk_listing_free(&listing);
    }
    return status;
}

int stk_remote_file_list(struct stk_vfs *vfs, const char *url, struct stk_listing *listing_out,
                         struct stoker_error *error)
{
    return stk_metadata_cache_take_listing(vfs->metadata_cache, url, listing_out)
               ? 0
               : list_children(vfs, url, NULL, listing_out, error);
}

/* A read that waits. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
};

/* Takes parts, of which `waits` says whether done will come. */
static int64_t wait_for(struct stk_range_read *parts, struct waiter *waiter, bool waits)
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
    stk_range_read_free(parts);
    return result;
}

static void set_waiter(struct stk_range_read *parts, struct waiter *waiter)
{
    pthread_mutex_init(&waiter->lock, NULL);
    pthread_cond_init(&waiter->arrived, NULL);
    parts->done = wait_done;
    parts->owner = waiter;
}

/* What is kept, or on its way to be. -EAGAIN: it is not. */
static int64_t read_prefetched(struct stk_prefetch *prefetch, struct stk_remote_file *remote,
                               uint64_t offset, void *buffer, uint64_t bytes)
{
    int64_t result = stk_prefetch_read(prefetch, remote, offset, buffer, bytes, false);
    struct waiter waiter = {.done = false};
    struct stk_range_read *parts;

    if (result != -EAGAIN || !stk_prefetch_has(prefetch, remote, offset, bytes)) {
        return result;
    }
    parts = stk_range_read_new_waiting(remote, offset, bytes, buffer);
    if (!parts) {
        return -ENOMEM;
    }
    set_waiter(parts, &waiter);
    result = wait_for(parts, &waiter, stk_prefetch_wait(prefetch, parts));
    return result < 0 ? result : stk_prefetch_read(prefetch, remote, offset, buffer, bytes, false);
}

int64_t stk_remote_file_read(struct stk_vfs *vfs, struct stk_remote_file *remote, uint64_t offset,
                             void *buffer, size_t bytes)
{
    struct waiter waiter = {.done = false};
    struct stk_range_read *parts;
    struct stk_store *store;
    uint64_t wanted;
    int64_t result;
    int status;

    if (offset >= remote->info.bytes || bytes == 0) {
        return 0;
    }
    wanted = stk_min(bytes, remote->info.bytes - offset);
    result =
        vfs->prefetch ? read_prefetched(vfs->prefetch, remote, offset, buffer, wanted) : -EAGAIN;
    if (result != -EAGAIN) {
        return result;
    }
    status = stk_vfs_open_store(vfs, &store, NULL);
    if (status < 0) {
        return status;
    }
    parts = stk_range_read_new(remote, offset, wanted, buffer);
    if (!parts) {
        return -ENOMEM;
    }
    set_waiter(parts, &waiter);
    parts->stop = stk_io_cancel_flag();
    stk_range_read_start(parts, store);
    return wait_for(parts, &waiter, true);
}

static void wait_done(struct stk_range_read *parts)
{
    struct waiter *waiter = parts->owner;

    pthread_mutex_lock(&waiter->lock);
    waiter->done = true;
    pthread_cond_signal(&waiter->arrived);
    pthread_mutex_unlock(&waiter->lock);
}

int stk_remote_file_map(struct stk_vfs *vfs, struct stk_remote_file *remote,
                        struct stk_view *view_out, struct stoker_error *error)
{
    uint64_t bytes = remote->info.bytes;
    struct stk_remote_file_mapping *map;
    int64_t got;

    *view_out = (struct stk_view){(const uint8_t *)"", 0};
    if (bytes == 0) {
        return 0;
    }
    if (bytes > STK_VFS_MAP_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a remote file is too large to be mapped",
                        "copy it to a disk of this machine", "'%.400s': %llu bytes",
                        remote->object->url, (unsigned long long)bytes);
    }
    map = stk_alloc(1, sizeof *map);
    if (map) {
        map->bytes = bytes;
        map->pages = stk_pages_alloc(bytes);
    }
    if (!map || !map->pages) {
        stk_free(map);
        return stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "'%.400s'",
                        remote->object->url);
    }
    got = stk_remote_file_read(vfs, remote, 0, map->pages, bytes);
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
    pthread_mutex_lock(&vfs->lock);
    map->next = vfs->locked.maps;
    vfs->locked.maps = map;
    pthread_mutex_unlock(&vfs->lock);
    *view_out = (struct stk_view){map->pages, bytes};
    return 0;
}
