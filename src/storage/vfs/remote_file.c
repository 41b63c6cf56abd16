/* Remote files: open, stat, list, and reads that wait. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/thread.h"
#include "base/xxh3.h"
#include "io/clock.h"
#include "io/listing.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define CANCEL_POLL_NS 20000000u
#define DEVICE 0x73746f7265ull /* of all remote files; their inodes are hashes of URLs */

/* A listing that is being built. */
struct listing_builder {
    struct stk_remote_fs *fs;
    struct stk_listing_builder builder;
    size_t url_bytes;
    uint64_t count;
    struct stoker_error *error;
    char path[2 * STK_STORE_URL_BYTES_MAX];
};

static int find(struct stk_remote_fs *fs, const struct stk_object_url *object, bool archived,
                struct stk_object_info *info_out, struct stoker_error *error);
static int has_children(struct stk_remote_fs *fs, const char *url, struct stoker_error *error);

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

static struct stk_remote_file *file_of_source(struct stk_range_source *source)
{
    return (struct stk_remote_file *)((uint8_t *)source - offsetof(struct stk_remote_file, source));
}

static void retain_source(struct stk_range_source *source)
{
    atomic_fetch_add_explicit(&file_of_source(source)->users, 1, memory_order_relaxed);
}

static void release(struct stk_remote_file *remote)
{
    /* Release and acquire: the last user sees all writes of the others. */
    if (atomic_fetch_sub_explicit(&remote->users, 1, memory_order_acq_rel) == 1) {
        stk_spool_release(&remote->fs->spools, remote->spool);
        stk_object_url_free(remote->source.object);
        stk_range_coverage_free(remote->source.coverage);
        stk_remote_checksum_deinit(&remote->checksum);
        pthread_mutex_destroy(&remote->lock);
        stk_free(remote);
    }
}

static void release_source(struct stk_range_source *source)
{
    release(file_of_source(source));
}

static void set_error(struct stk_range_source *source, const struct stoker_error *error)
{
    struct stk_remote_file *remote = file_of_source(source);

    pthread_mutex_lock(&remote->lock);
    remote->locked.error = *error;
    pthread_mutex_unlock(&remote->lock);
}

static void add_checksums(struct stk_range_source *source,
                          const struct stk_response_checksums *checksums)
{
    struct stk_remote_file *remote = file_of_source(source);

    if (checksums->file_mtime_ns > 0) {
        atomic_store_explicit(&remote->file_mtime_ns, checksums->file_mtime_ns,
                              memory_order_relaxed);
    }
    stk_remote_checksum_add(&remote->checksum, checksums);
}

static const struct stk_range_source_ops source_ops = {.retain = retain_source,
                                                       .release = release_source,
                                                       .set_error = set_error,
                                                       .add_checksums = add_checksums};

/* If the disk has no room, but the size is known, parts are read at a higher price. */
static int open_spool(struct stk_remote_file *remote, struct stoker_error *error)
{
    struct stk_range_source *source = &remote->source;
    struct stk_store *store;
    int status = stk_lazy_store_open(&remote->fs->store, &store, error);

    status = status < 0 ? status
                        : stk_spool_open(&remote->fs->spools, store, source->object, &source->info,
                                         &remote->spool, error);
    return status == -ENOSPC && !source->info.chunked ? 0 : status;
}

int stk_remote_file_open(struct stk_remote_fs *fs, const char *url, struct stk_file **file_out,
                         struct stoker_error *error)
{
    struct stk_remote_file *remote = stk_alloc(1, sizeof *remote);
    struct stk_range_source *source, *shared;
    struct stk_store *store;
    int status;

    if (!remote) {
        return stk_fail(error, -ENOMEM, "cannot open an object", "free memory", "store");
    }
    remote->file.ops = &stk_remote_file_ops;
    remote->fs = fs;
    source = &remote->source;
    source->ops = &source_ops;
    pthread_mutex_init(&remote->lock, NULL);
    stk_remote_checksum_init(&remote->checksum);
    atomic_init(&remote->users, 1);
    status = stk_object_url_parse(url, &source->object, error);
    if (status == 0 && stk_object_url_has_key(source->object) && !source->object->key[0]) {
        status =
            stk_fail(error, -EISDIR, "a bucket is not an object", "name a key in it", "'%s'", url);
    }
    status = status < 0 ? status : find(fs, source->object, false, &source->info, error);
    if (status == 0 && source->info.folder) {
        status = stk_fail(error, -EISDIR, "this is a folder", "name a blob in it", "'%s'", url);
    }
    if (status < 0) {
        release(remote);
        return status;
    }
    if (stk_spool_is_needed(&source->info)) {
        status = open_spool(remote, error);
        if (status < 0) {
            release(remote);
            return status;
        }
    }
    source->key = stk_prefetch_key(source->object, &source->info);
    if (fs->reader && !remote->spool && stk_lazy_store_open(&fs->store, &store, NULL) == 0) {
        stk_block_reader_attach(fs->reader, store, source);
    }
    shared = fs->prefetch && !remote->spool ? stk_prefetch_find_source(fs->prefetch, source) : NULL;
    if (shared) {
        release(remote);
        remote = file_of_source(shared);
    } else if (!remote->spool && stk_lazy_store_open(&fs->store, &store, NULL) == 0) {
        stk_remote_checksum_fetch(&remote->checksum, source, store, false);
    }
    *file_out = &remote->file;
    return 0;
}

/* Finds the metadata of an object in the cache or with a HEAD request. archived: finds archived
 * objects as well, and the state of their archive, which a listing does not report; and asks the
 * store in any case. */
static int find(struct stk_remote_fs *fs, const struct stk_object_url *object, bool archived,
                struct stk_object_info *info_out, struct stoker_error *error)
{
    struct stk_object_info cached = {0};
    struct stk_store *store;
    int status;

    if (stk_metadata_cache_find(fs->metadata_cache, object->url, &cached) && !archived) {
        *info_out = cached;
        return 0;
    }
    status = stk_lazy_store_open(&fs->store, &store, error);
    if (status == 0) {
        status = archived ? stk_store_head_archived(store, object, info_out, error)
                          : stk_store_head(store, object, info_out, error);
    }
    if (status == 0 && !info_out->storage[0] && strcmp(info_out->etag, cached.etag) == 0) {
        memcpy(info_out->storage, cached.storage, sizeof cached.storage); /* only listings say
                                                                             STANDARD */
    }
    if (status == 0 && info_out->bytes == UINT64_MAX) { /* found by reading all of it */
        struct stk_spool *spool = NULL;

        status = stk_spool_open(&fs->spools, store, object, info_out, &spool, error);
        stk_spool_release(&fs->spools, spool);
    }
    if (status == 0 && !info_out->folder && info_out->archive != STOKER_ARCHIVE_ARCHIVED &&
        info_out->archive != STOKER_ARCHIVE_RESTORING) {
        stk_metadata_cache_add(fs->metadata_cache, object->url, info_out);
    }
    return status;
}

/* An object, else a prefix with objects below it. */
int stk_remote_file_stat_url(struct stk_remote_fs *fs, const char *url, struct stk_stat *stat_out,
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
    if (!info_out && stk_metadata_cache_has_folder(fs->metadata_cache, url)) {
        stk_object_url_free(object);
        return 0;
    }
    status = folder ? -ENOENT : find(fs, object, info_out != NULL, &info, &why);
    if (status == -ENOENT && !folder) {
        stk_metadata_cache_remove(fs->metadata_cache, url);
    }
    if (status == 0 && !info.folder) {
        stat_out->kind = STK_ENTRY_FILE;
        stat_out->bytes = info.bytes;
        stat_out->mtime_ns = info.mtime_ns;
        stat_out->version = version_of(&info);
        if (info_out) {
            *info_out = info;
        }
    } else if (status == -ENOENT && stk_object_url_has_key(object) && !object->version) {
        status = has_children(fs, url, error);
    } else if (error) {
        *error = why;
    }
    stk_object_url_free(object);
    return status;
}

/* Removes duplicates, since a store may list an entry on two pages. An object and a folder may have
 * the same name. */
static void merge(struct stk_listing *listing)
{
    size_t count = 0;

    for (size_t i = 0; i < listing->count; i++) {
        const struct stk_entry *entry = &listing->entries[i];
        bool again = false;

        for (size_t j = count; j > 0 && !again; j--) {
            if (strcmp(listing->entries[j - 1].name, entry->name) != 0) {
                break;
            }
            again = listing->entries[j - 1].kind == entry->kind;
        }
        if (!again) {
            listing->entries[count++] = *entry;
        }
    }
    listing->count = count;
}

static int add_listed(void *owner, const struct stk_list_entry *item)
{
    struct listing_builder *listing_builder = owner;
    size_t bytes = strlen(item->name);
    struct stk_entry entry = {.name = item->name,
                              .kind = item->folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE,
                              .device = DEVICE};
    struct stk_object_info info = {.bytes = item->bytes, .mtime_ns = item->mtime_ns};

    if (++listing_builder->count > listing_builder->fs->names_max) {
        return stk_fail(listing_builder->error, STOKER_ERROR_LIMIT, "a listing has too many names",
                        "look at the server if it should have an end; name a longer prefix, or set "
                        "STOKER_LIST_NAMES_MAX",
                        "'%.*s': more than %llu", (int)stk_min(listing_builder->url_bytes, 400),
                        listing_builder->path, (unsigned long long)listing_builder->fs->names_max);
    }
    /* "a//b" has a folder without a name, which no path can name. */
    if (bytes == 0 || strchr(item->name, '/') ||
        listing_builder->url_bytes + bytes >= STK_STORE_URL_BYTES_MAX) {
        return 0;
    }
    memcpy(listing_builder->path + listing_builder->url_bytes, item->name, bytes + 1);
    entry.inode = inode_of(listing_builder->path);
    if (!item->folder && item->etag[0] && stk_list_entry_has_size(item)) {
        memcpy(info.etag, item->etag, stk_min(strlen(item->etag), sizeof info.etag - 1));
        stk_object_info_set_class(&info, item->storage);
        stk_metadata_cache_add(listing_builder->fs->metadata_cache, listing_builder->path, &info);
    }
    return stk_listing_add(&listing_builder->builder, &entry);
}

/* Adds the entries below url. more_out: NULL to add all; else adds the first page that has entries,
 * and sets *more_out if there are more. */
static int add_from(struct listing_builder *listing_builder, struct stk_remote_fs *fs,
                    const char *url, bool *more_out, struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    int status = stk_object_url_parse(url, &object, error);

    if (status == 0) {
        listing_builder->fs = fs;
        listing_builder->error = error;
        listing_builder->url_bytes = strlen(url);
        memcpy(listing_builder->path, url, listing_builder->url_bytes);
        if (url[listing_builder->url_bytes - 1] != '/') {
            listing_builder->path[listing_builder->url_bytes++] = '/';
        }
        status = stk_lazy_store_open(&fs->store, &store, error);
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

/* Lists the entries below url: see add_from. */
static int list_children(struct stk_remote_fs *fs, const char *url, bool *more_out,
                         struct stk_listing *listing_out, struct stoker_error *error)
{
    struct listing_builder *listing_builder = stk_alloc(1, sizeof *listing_builder);
    int status = listing_builder ? add_from(listing_builder, fs, url, more_out, error) : -ENOMEM;

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

/* Returns 0 if url is a folder, and caches its listing if one page holds all of it. */
static int has_children(struct stk_remote_fs *fs, const char *url, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    bool more = false;
    int status = list_children(fs, url, &more, &listing, error);

    if (status == 0) {
        stk_metadata_cache_add_folder(fs->metadata_cache, url, more ? NULL : &listing);
    }
    if (more) {
        stk_listing_free(&listing);
    }
    return status;
}

int stk_remote_file_list(struct stk_remote_fs *fs, const char *url, struct stk_listing *listing_out,
                         struct stoker_error *error)
{
    return stk_metadata_cache_take_listing(fs->metadata_cache, url, listing_out)
               ? 0
               : list_children(fs, url, NULL, listing_out, error);
}

/* A read that waits. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    bool done;
};

static void on_done(struct stk_range_read *read)
{
    struct waiter *waiter = read->owner;

    pthread_mutex_lock(&waiter->lock);
    waiter->done = true;
    pthread_cond_signal(&waiter->arrived);
    pthread_mutex_unlock(&waiter->lock);
}

static void set_waiter(struct stk_range_read *read, struct waiter *waiter)
{
    pthread_mutex_init(&waiter->lock, NULL);
    stk_cond_init(&waiter->arrived);
    read->done = on_done;
    read->owner = waiter;
}

/* Takes the read. waits: done will be called. */
static int64_t wait_for(struct stk_range_read *read, struct waiter *waiter, bool waits)
{
    int64_t result;

    pthread_mutex_lock(&waiter->lock);
    while (waits && !waiter->done) { /* each request ends by its deadline */
        pthread_cond_wait(&waiter->arrived, &waiter->lock);
    }
    pthread_mutex_unlock(&waiter->lock);
    pthread_cond_destroy(&waiter->arrived);
    pthread_mutex_destroy(&waiter->lock);
    result = read->status < 0 ? read->status : (int64_t)read->bytes;
    stk_range_read_free(read);
    return result;
}

/* Waits until prefetched bytes arrive, or ends the wait when the cancel flag of this thread is set.
 */
static void wait_or_cancel(struct stk_prefetch *prefetch, struct stk_range_read *read,
                           struct waiter *waiter)
{
    const _Atomic bool *cancel = stk_io_cancel_flag();
    bool is_done = cancel == NULL;

    while (!is_done) {
        struct timespec until = stk_clock_timespec(stk_clock_ns() + CANCEL_POLL_NS);

        pthread_mutex_lock(&waiter->lock);
        if (!waiter->done) {
            pthread_cond_timedwait(&waiter->arrived, &waiter->lock, &until);
        }
        is_done = waiter->done;
        pthread_mutex_unlock(&waiter->lock);
        if (!is_done && atomic_load_explicit(cancel, memory_order_relaxed)) {
            is_done = stk_prefetch_cancel_wait(prefetch, read);
            if (is_done) {
                read->status = STOKER_ERROR_CLOSED;
                waiter->done = true;
            }
        }
    }
}

/* Reads bytes that are prefetched or in flight. Returns -EAGAIN if they are not. */
static int64_t read_prefetched(struct stk_prefetch *prefetch, struct stk_range_source *source,
                               uint64_t offset, void *buffer, uint64_t bytes)
{
    int64_t result = stk_prefetch_read(prefetch, source, offset, buffer, bytes, false);
    struct waiter waiter = {.done = false};
    struct stk_range_read *read;
    bool waits;

    if (result != -EAGAIN || !stk_prefetch_has(prefetch, source, offset, bytes)) {
        return result;
    }
    read = stk_range_read_new_waiting(source, offset, bytes, buffer);
    if (!read) {
        return -ENOMEM;
    }
    set_waiter(read, &waiter);
    waits = stk_prefetch_wait(prefetch, read);
    if (waits) {
        wait_or_cancel(prefetch, read, &waiter);
    }
    result = wait_for(read, &waiter, waits);
    return result < 0 ? result : stk_prefetch_read(prefetch, source, offset, buffer, bytes, false);
}

int64_t stk_remote_file_read(struct stk_remote_file *remote, uint64_t offset, void *buffer,
                             size_t bytes)
{
    struct stk_remote_fs *fs = remote->fs;
    struct stk_range_source *source = &remote->source;
    struct waiter waiter = {.done = false};
    struct stk_range_read *read;
    struct stk_store *store;
    uint64_t wanted;
    int64_t result;
    int status;

    if (offset >= source->info.bytes || bytes == 0) {
        return 0;
    }
    wanted = stk_min(bytes, source->info.bytes - offset);
    if (remote->spool) {
        return stk_spool_read(remote->spool, offset, buffer, wanted);
    }
    result = fs->prefetch ? read_prefetched(fs->prefetch, source, offset, buffer, wanted) : -EAGAIN;
    if (result != -EAGAIN) {
        return result;
    }
    status = stk_lazy_store_open(&fs->store, &store, NULL);
    if (status < 0) {
        return status;
    }
    /* A longer read is faster on several threads. */
    if (source->reader && wanted <= stk_block_reader_block_bytes(source->reader)) {
        status = stk_block_reader_read_now(source, store, offset, buffer, wanted, false);
        if (status != -EAGAIN) {
            return status < 0 ? status : (int64_t)wanted;
        }
    }
    read = stk_range_read_new(source, offset, wanted, buffer);
    if (!read) {
        return -ENOMEM;
    }
    set_waiter(read, &waiter);
    read->stop = stk_io_cancel_flag();
    stk_range_read_start(read, store);
    return wait_for(read, &waiter, true);
}

int stk_remote_file_map(struct stk_remote_file *remote, uint8_t **pages_out, uint64_t *bytes_out,
                        struct stoker_error *error)
{
    const char *url = remote->source.object->url;
    uint64_t bytes = remote->source.info.bytes;
    int64_t got;

    *pages_out = NULL;
    *bytes_out = bytes;
    if (bytes == 0) {
        return 0;
    }
    if (bytes > STK_VFS_MAP_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a remote file is too large to be mapped",
                        "copy it to a disk of this machine", "'%.400s': %llu bytes", url,
                        (unsigned long long)bytes);
    }
    *pages_out = stk_pages_alloc(bytes);
    if (!*pages_out) {
        return stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "'%.400s'",
                        url);
    }
    got = stk_remote_file_read(remote, 0, *pages_out, bytes);
    if (got < 0) {
        stk_pages_free(*pages_out, bytes);
        pthread_mutex_lock(&remote->lock);
        if (error) {
            *error = remote->locked.error;
        }
        pthread_mutex_unlock(&remote->lock);
        return (int)got;
    }
    return 0;
}

/* ---- the operations ---- */

static void close_file(struct stk_file *file)
{
    release(stk_remote_file_of(file));
}

static int stat_file(struct stk_file *file, struct stk_stat *stat_out, struct stoker_error *error)
{
    const struct stk_range_source *source = &stk_remote_file_of(file)->source;

    (void)error;
    *stat_out = (struct stk_stat){.bytes = source->info.bytes,
                                  .mtime_ns = source->info.mtime_ns,
                                  .device = DEVICE,
                                  .inode = inode_of(source->object->url),
                                  .kind = STK_ENTRY_FILE,
                                  .version = version_of(&source->info)};
    return 0;
}

/* Only prefetched bytes, and blocks of the node cache in the page cache, are in memory. The end of
 * the file is known. */
static int64_t read_now(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    struct stk_remote_file *remote = stk_remote_file_of(file);
    struct stk_prefetch *prefetch = remote->fs->prefetch;
    int64_t result = -EAGAIN;

    if (offset >= remote->source.info.bytes || bytes == 0) {
        return 0;
    }
    if (remote->spool) {
        return stk_spool_read(remote->spool, offset, buffer, bytes);
    }
    if (prefetch) {
        result = stk_prefetch_read(prefetch, &remote->source, offset, buffer, bytes, false);
    }
    if (result == -EAGAIN && remote->source.reader) {
        uint64_t wanted = stk_min(bytes, remote->source.info.bytes - offset);
        int status = stk_block_reader_read_now(
            &remote->source, stk_lazy_store_get(&remote->fs->store), offset, buffer, wanted, true);

        result = status < 0 ? status : (int64_t)wanted;
    }
    return result;
}

static int64_t read_wait(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    return stk_remote_file_read(stk_remote_file_of(file), offset, buffer, bytes);
}

static bool last_error(struct stk_file *file, int status, struct stoker_error *error_out)
{
    struct stk_remote_file *remote = stk_remote_file_of(file);
    bool found;

    pthread_mutex_lock(&remote->lock);
    found = remote->locked.error.status == status;
    if (found) {
        *error_out = remote->locked.error;
    }
    pthread_mutex_unlock(&remote->lock);
    return found;
}

const struct stk_file_ops stk_remote_file_ops = {.close = close_file,
                                                 .stat = stat_file,
                                                 .read_now = read_now,
                                                 .read_wait = read_wait,
                                                 .last_error = last_error,
                                                 .round_trip_bytes = STK_VFS_ROUND_TRIP_BYTES};
