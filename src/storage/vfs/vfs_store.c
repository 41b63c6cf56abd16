/* The functions of storage/vfs/vfs.h that are about stores only: metadata, hints and checksums. */
#include "storage/vfs/batch_lookup.h"
#include "storage/vfs/vfs_private.h"

#include <errno.h>

/* ---- the store and its metadata ---- */

int stk_vfs_get_store(struct stk_io *io, struct stk_store **store_out, struct stoker_error *error)
{
    if (!stk_io_is_vfs(io)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "there are no stores here",
                        "use paths of this machine", "a simulated file system");
    }
    return stk_lazy_store_open(&stk_vfs_of(io)->remote.store, store_out, error);
}

void stk_vfs_store_stats(struct stk_io *io, struct stoker_store_stats *stats_out)
{
    struct stk_store *store =
        stk_io_is_vfs(io) ? stk_lazy_store_get(&stk_vfs_of(io)->remote.store) : NULL;

    if (store) {
        stk_store_get_stats(store, stats_out);
    }
}

void stk_vfs_set_metadata(struct stk_io *io, const char *url, const struct stk_object_info *info)
{
    if (stk_io_is_vfs(io) && info) {
        stk_metadata_cache_add(stk_vfs_of(io)->remote.metadata_cache, url, info);
    } else if (stk_io_is_vfs(io)) {
        stk_metadata_cache_remove(stk_vfs_of(io)->remote.metadata_cache, url);
    }
}

void stk_vfs_forget_metadata(struct stk_io *io)
{
    if (stk_io_is_vfs(io)) {
        stk_metadata_cache_clear(stk_vfs_of(io)->remote.metadata_cache);
    }
}

int stk_vfs_stat_object(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                        struct stk_object_info *info_out, struct stoker_error *error)
{
    *info_out = (struct stk_object_info){.bytes = 0};
    return stk_io_is_vfs(io) && stk_io_is_url(path) && !stk_vfs_external_fs(stk_vfs_of(io), path)
               ? stk_remote_file_stat_url(&stk_vfs_of(io)->remote, path, stat_out, info_out, error)
               : stk_io_stat_path(io, path, stat_out, error);
}

bool stk_vfs_object_info(const struct stk_file *file, struct stk_object_info *info_out)
{
    bool remote = stk_file_is_remote(file);

    if (remote) {
        const struct stk_remote_file *opened = (const struct stk_remote_file *)(const void *)file;
        uint64_t mtime_ns = atomic_load_explicit(&opened->file_mtime_ns, memory_order_relaxed);

        *info_out = opened->source.info;
        info_out->file_mtime_ns = mtime_ns ? mtime_ns : info_out->file_mtime_ns;
    }
    return remote;
}

/* ---- hints ---- */

void stk_vfs_prefetch_metadata(struct stk_io *io, const char *paths, size_t count)
{
    if (stk_io_is_vfs(io) && count > 0) {
        stk_batch_lookup_stat(&stk_vfs_of(io)->remote, paths, count);
    }
}

void stk_vfs_list_many(struct stk_io *io, const char *paths, size_t count,
                       struct stk_listing *listings_out)
{
    for (size_t i = 0; i < count; i++) {
        listings_out[i] = (struct stk_listing){.count = 0};
    }
    if (stk_io_is_vfs(io) && count > 0) {
        stk_batch_lookup_list(&stk_vfs_of(io)->remote, paths, count, listings_out);
    }
}

static void start_prefetch(struct stk_remote_file *remote, const void *owner, bool entire)
{
    struct stk_store *store;

    if (!remote->spool && stk_lazy_store_open(&remote->fs->store, &store, NULL) == 0) {
        stk_prefetch_start(remote->fs->prefetch, store, &remote->source, owner, entire);
    }
}

void stk_vfs_prefetch_head(struct stk_io *io, const char *path, const void *owner)
{
    struct stk_remote_fs *fs = &stk_vfs_of(io)->remote;
    struct stk_object_info info;
    struct stk_file *file;

    if (stk_io_is_vfs(io) && fs->prefetch && stk_io_is_url(path) &&
        stk_metadata_cache_find(fs->metadata_cache, path, &info) && !stk_spool_is_needed(&info) &&
        stk_remote_file_open(fs, path, &file, NULL) == 0) {
        start_prefetch(stk_remote_file_of(file), owner, false);
        stk_io_close_file(file);
    }
}

/* The prefetch of a file's file system; NULL: none. */
static struct stk_prefetch *prefetch_of(struct stk_file *file)
{
    return stk_file_is_remote(file) ? stk_remote_file_of(file)->fs->prefetch : NULL;
}

void stk_vfs_prefetch(struct stk_file *file, const void *owner)
{
    if (prefetch_of(file)) {
        start_prefetch(stk_remote_file_of(file), owner, true);
    }
}

bool stk_vfs_is_prefetched(struct stk_file *file, uint64_t offset, uint64_t bytes)
{
    struct stk_prefetch *prefetch = prefetch_of(file);

    return prefetch && stk_prefetch_has(prefetch, &stk_remote_file_of(file)->source, offset, bytes);
}

int64_t stk_vfs_prefetch_peek(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    struct stk_prefetch *prefetch = prefetch_of(file);

    return prefetch ? stk_prefetch_read(prefetch, &stk_remote_file_of(file)->source, offset, buffer,
                                        bytes, true)
                    : -EAGAIN;
}

void stk_vfs_prefetch_release(struct stk_io *io, const void *owner)
{
    struct stk_remote_fs *fs = &stk_vfs_of(io)->remote;

    if (stk_io_is_vfs(io) && fs->prefetch) {
        stk_prefetch_release(fs->prefetch, stk_lazy_store_get(&fs->store), owner);
    }
}

uint64_t stk_vfs_prefetch_trim(struct stk_io *io)
{
    struct stk_remote_fs *fs = &stk_vfs_of(io)->remote;

    return stk_io_is_vfs(io) && fs->prefetch ? stk_prefetch_trim(fs->prefetch) : 0;
}

/* ---- checksums ---- */

static struct stk_range_coverage *coverage_of(struct stk_file *file)
{
    return file && stk_file_is_remote(file) ? stk_remote_file_of(file)->source.coverage : NULL;
}

void stk_vfs_fetch_checksum(struct stk_file *file)
{
    struct stk_remote_file *remote = stk_file_is_remote(file) ? stk_remote_file_of(file) : NULL;
    struct stk_store *store;

    if (!remote || remote->spool) { /* the request of all bytes verified them */
        return;
    }
    if (!remote->source.coverage && /* then nothing of it was read yet */
        stk_lazy_store_open(&remote->fs->store, &store, NULL) == 0) {
        stk_remote_checksum_fetch(&remote->checksum, &remote->source, store, true);
    }
    stk_remote_checksum_wait(&remote->checksum);
}

bool stk_vfs_composite_checksum(struct stk_file *file, struct stk_checksum *checksum_out)
{
    if (!stk_file_is_remote(file)) {
        return false;
    }
    *checksum_out = stk_remote_checksum_composite(&stk_remote_file_of(file)->checksum);
    return checksum_out->kind != STK_CHECKSUM_NONE;
}

bool stk_vfs_has_checksum(struct stk_file *file)
{
    struct stk_range_coverage *coverage = coverage_of(file);

    return coverage && stk_range_coverage_is_summing(coverage);
}

int stk_vfs_checksum_add(struct stk_file *file, uint64_t offset, struct stk_view bytes,
                         struct stoker_error *error)
{
    struct stk_range_coverage *coverage = coverage_of(file);
    struct stk_remote_file *remote;
    struct stk_store *store;
    int status;

    if (!coverage) {
        return 0;
    }
    remote = stk_remote_file_of(file);
    status = stk_lazy_store_open(&remote->fs->store, &store, error);
    return status < 0 ? status
                      : stk_store_checksum_add(store, remote->source.object, coverage, offset,
                                               bytes, error);
}

bool stk_vfs_checksum_failed(struct stk_file *file)
{
    struct stk_range_coverage *coverage = coverage_of(file);

    return coverage && stk_range_coverage_is_mismatch(coverage);
}
