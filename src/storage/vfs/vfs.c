/* The io that takes URLs beside paths: which of the two a call is for. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"
#include "storage/url/url_redact.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STORE_TIMEOUT_DEFAULT_MS 30000u
#define DEPTH_DEFAULT 128u
#define NAMES_SHARE 1024 /* bytes of memory that this machine has for each name of a listing */
#define NAMES_MIN 1000000u

static const struct stk_io_table table;
static const struct stk_write_table write_table;

/* A server that never comes to an end would fill the memory. */
static uint64_t names_max(void)
{
    const char *text = getenv("STOKER_LIST_NAMES_MAX");
    uint64_t most = text ? strtoull(text, NULL, 10) : 0;

    return most > 0 ? most : stk_max(stk_cgroup_available_memory() / NAMES_SHARE, NAMES_MIN);
}

int stk_vfs_open(struct stk_io **io_out, struct stk_io *real, const struct stk_vfs_options *options,
                 struct stoker_error *error)
{
    struct stk_vfs *vfs = stk_alloc(1, sizeof *vfs);
    int status = vfs ? stk_metadata_cache_open(&vfs->metadata_cache) : -ENOMEM;

    if (status == 0 && options->budget) {
        status = stk_prefetch_open(&vfs->prefetch, options->budget);
    }
    if (status < 0) {
        stk_metadata_cache_close(vfs ? vfs->metadata_cache : NULL);
        stk_free(vfs);
        stk_io_close(real);
        return stk_fail(error, status, "cannot open the input", "free memory", "route");
    }
    pthread_mutex_init(&vfs->lock, NULL);
    vfs->backend = real;
    vfs->names_max = names_max();
    vfs->options = *options;
    if (vfs->options.read_timeout_ms == 0) {
        vfs->options.read_timeout_ms = STORE_TIMEOUT_DEFAULT_MS;
    }
    vfs->options.depth = options->depth ? options->depth : DEPTH_DEFAULT;
    if (options->external_fs) {
        stk_external_fs_retain(options->external_fs);
    }
    vfs->io.table = &table;
    *io_out = &vfs->io;
    return 0;
}

static void vfs_close(struct stk_io *io)
{
    struct stk_vfs *vfs = stk_vfs_of(io);

    stk_prefetch_close(vfs->prefetch, vfs->locked.store);
    stk_store_close(vfs->locked.store);
    stk_io_close(vfs->backend);
    stk_metadata_cache_close(vfs->metadata_cache);
    stk_external_fs_release(vfs->options.external_fs);
    pthread_mutex_destroy(&vfs->lock);
    stk_free(vfs);
}

int stk_vfs_open_store(struct stk_vfs *vfs, struct stk_store **store_out,
                       struct stoker_error *error)
{
    struct stk_store_options options = {.connections_max = vfs->options.connections_max,
                                        .timeout_ms = vfs->options.read_timeout_ms,
                                        .node_connections_max = vfs->options.node_connections_max,
                                        .unshared = vfs->options.unshared,
                                        .no_hedges = vfs->options.no_hedges,
                                        .hedge_percent_max = vfs->options.hedge_percent_max,
                                        .check_md5_etags = vfs->options.check_md5_etags,
                                        .seed = stk_clock_wall_ns()};
    int status = 0;

    pthread_mutex_lock(&vfs->lock);
    if (!vfs->locked.store) {
        status = stk_store_open(&vfs->locked.store, &options, error);
    }
    *store_out = vfs->locked.store;
    pthread_mutex_unlock(&vfs->lock);
    return status;
}

/* Who runs errands for this URL; NULL: nobody, or it is none of theirs. */
static struct stoker_external_fs *external_fs_of(struct stk_io *io, const char *path)
{
    struct stoker_external_fs *desk = stk_vfs_of(io)->options.external_fs;

    return desk && stk_io_is_external_url(path) && stk_external_fs_has_server(desk) ? desk : NULL;
}

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct stoker_external_fs *desk = external_fs_of(io, path);

    if (desk) {
        return stk_external_file_open(desk, path, stk_vfs_of(io)->options.read_timeout_ms, file_out,
                                      error);
    }
    return stk_io_is_url(path) ? stk_remote_file_open(stk_vfs_of(io), path, file_out, error)
                               : stk_io_open_file(stk_vfs_of(io)->backend, path, file_out, error);
}

static void close_file(struct stk_io *io, struct stk_file *file)
{
    if (stk_file_is_remote(file)) {
        stk_remote_file_release(stk_remote_file_of(file));
    } else if (stk_file_is_external(file)) {
        stk_external_file_close(file);
    } else {
        stk_io_close_file(stk_vfs_of(io)->backend, file);
    }
}

static int stat_file(struct stk_io *io, struct stk_file *file, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    if (stk_file_is_remote(file)) {
        stk_remote_file_stat(stk_remote_file_of(file), stat_out);
        return 0;
    }
    if (stk_file_is_external(file)) {
        stk_external_file_stat(file, stat_out);
        return 0;
    }
    return stk_io_stat_file(stk_vfs_of(io)->backend, file, stat_out, error);
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stoker_external_fs *desk = external_fs_of(io, path);

    if (desk) {
        return stk_external_file_stat_url(desk, path, stk_vfs_of(io)->options.read_timeout_ms,
                                          stat_out, error);
    }
    return stk_io_is_url(path)
               ? stk_remote_file_stat_url(stk_vfs_of(io), path, stat_out, NULL, error)
               : stk_io_stat_path(stk_vfs_of(io)->backend, path, stat_out, error);
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct stoker_external_fs *desk = external_fs_of(io, path);

    if (desk) {
        return stk_external_file_list(desk, path, stk_vfs_of(io)->options.read_timeout_ms,
                                      listing_out, error);
    }
    return stk_io_is_url(path) ? stk_remote_file_list(stk_vfs_of(io), path, listing_out, error)
                               : stk_io_list(stk_vfs_of(io)->backend, path, listing_out, error);
}

static int64_t read_now(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                        size_t bytes)
{
    if (stk_file_is_remote(file)) { /* its end is known; the rest is, where it is kept */
        struct stk_prefetch *prefetch_cache = stk_vfs_of(io)->prefetch;

        return offset >= stk_remote_file_of(file)->info.bytes || bytes == 0 ? 0
               : prefetch_cache ? stk_prefetch_read(prefetch_cache, stk_remote_file_of(file),
                                                    offset, buffer, bytes, false)
                                : -EAGAIN;
    }
    if (stk_file_is_external(file)) {
        return -EAGAIN;
    }
    return stk_io_read_now(stk_vfs_of(io)->backend, file, offset, buffer, bytes);
}

static int64_t read_wait(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                         size_t bytes)
{
    if (stk_file_is_external(file)) {
        return stk_external_file_read(file, offset, buffer, bytes);
    }
    return stk_file_is_remote(file)
               ? stk_remote_file_read(stk_vfs_of(io), stk_remote_file_of(file), offset, buffer,
                                      bytes)
               : stk_io_read_wait(stk_vfs_of(io)->backend, file, offset, buffer, bytes);
}

static uint64_t clock_ns(struct stk_io *io)
{
    return stk_io_clock_ns(stk_vfs_of(io)->backend);
}

static const char *backend(struct stk_io *io, const char **reason_out)
{
    return stk_io_backend(stk_vfs_of(io)->backend, reason_out);
}

static uint64_t leaked_bytes(struct stk_io *io)
{
    return stk_io_leaked_bytes(stk_vfs_of(io)->backend);
}

static int64_t uncached_bytes(struct stk_io *io, struct stk_file *file, uint64_t offset,
                              uint64_t bytes)
{
    return !stk_file_is_local(file)
               ? -ENOSYS
               : stk_io_uncached_bytes(stk_vfs_of(io)->backend, file, offset, bytes);
}

static void store_stats(struct stk_io *io, struct stoker_store_stats *ledger_out)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stk_store *store;

    pthread_mutex_lock(&vfs->lock);
    store = vfs->locked.store; /* which stays until the route is closed */
    pthread_mutex_unlock(&vfs->lock);
    if (store) {
        stk_store_get_stats(store, ledger_out);
    }
}

static int map_external(struct stk_vfs *vfs, struct stk_file *file, struct stk_view *view_out,
                        struct stoker_error *error)
{
    struct stk_remote_file_mapping *map = stk_alloc(1, sizeof *map);
    int status = map ? stk_external_file_map(file, &map->pages, &map->bytes, error)
                     : stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "map");

    if (status < 0) {
        stk_free(map);
        return status;
    }
    *view_out = (struct stk_view){map->pages, map->bytes};
    map->bytes = stk_max(map->bytes, 1u);
    pthread_mutex_lock(&vfs->lock);
    map->next = vfs->locked.maps;
    vfs->locked.maps = map;
    pthread_mutex_unlock(&vfs->lock);
    return 0;
}

static int map_file(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                    struct stoker_error *error)
{
    if (stk_file_is_external(file)) {
        return map_external(stk_vfs_of(io), file, view_out, error);
    }
    return stk_file_is_remote(file)
               ? stk_remote_file_map(stk_vfs_of(io), stk_remote_file_of(file), view_out, error)
               : stk_io_map(stk_vfs_of(io)->backend, file, view_out, error);
}

static void unmap(struct stk_io *io, struct stk_view view)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stk_remote_file_mapping **link = &vfs->locked.maps, *map;

    pthread_mutex_lock(&vfs->lock);
    while (*link && (*link)->pages != view.data) {
        link = &(*link)->next;
    }
    map = *link;
    if (map) {
        *link = map->next;
    }
    pthread_mutex_unlock(&vfs->lock);
    if (map) {
        stk_pages_free(map->pages, map->bytes);
        stk_free(map);
    } else {
        stk_io_unmap(vfs->backend, view);
    }
}

static bool explain(struct stk_io *io, struct stk_file *file, int status,
                    struct stoker_error *error_out)
{
    struct stk_remote_file *remote;
    bool known;

    (void)io;
    if (stk_file_is_external(file)) {
        return stk_external_file_last_error(file, status, error_out);
    }
    if (!stk_file_is_remote(file)) {
        return false;
    }
    remote = stk_remote_file_of(file);
    pthread_mutex_lock(&remote->lock);
    known = remote->error.status == status;
    if (known) {
        *error_out = remote->error;
    }
    pthread_mutex_unlock(&remote->lock);
    return known;
}

static bool mount_of(struct stk_io *io, struct stk_file *file, struct stk_mount_info *mounted_out)
{
    return stk_file_is_local(file) && stk_io_mount_of(stk_vfs_of(io)->backend, file, mounted_out);
}

static uint32_t round_trip_bytes(struct stk_io *io, struct stk_file *file)
{
    return !stk_file_is_local(file) ? STK_VFS_ROUND_TRIP_BYTES
                                    : stk_io_round_trip_bytes(stk_vfs_of(io)->backend, file);
}

static void map_prefetch(struct stk_io *io, struct stk_view part)
{
    stk_io_map_prefetch(stk_vfs_of(io)->backend, part); /* of a remote file: it is memory already */
}

static uint64_t thread_reads(struct stk_io *io)
{
    return stk_io_thread_disk_reads(stk_vfs_of(io)->backend);
}

static void prefetch(struct stk_vfs *vfs, struct stk_remote_file *remote, const void *owner,
                     bool whole)
{
    struct stk_store *store;

    if (stk_vfs_open_store(vfs, &store, NULL) == 0) {
        stk_prefetch_start(vfs->prefetch, store, remote, owner, whole);
    }
}

static void prefetch_head(struct stk_io *io, const char *path, const void *owner)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stk_object_info info;
    struct stk_file *file;

    if (vfs->prefetch && stk_io_is_url(path) &&
        stk_metadata_cache_find(vfs->metadata_cache, path, &info) &&
        stk_remote_file_open(vfs, path, &file, NULL) == 0) {
        prefetch(vfs, stk_remote_file_of(file), owner, false);
        stk_remote_file_release(stk_remote_file_of(file));
    }
}

static void prefetch_whole(struct stk_io *io, struct stk_file *file, const void *owner)
{
    if (stk_vfs_of(io)->prefetch && stk_file_is_remote(file)) {
        prefetch(stk_vfs_of(io), stk_remote_file_of(file), owner, true);
    }
}

static bool is_prefetched(struct stk_io *io, struct stk_file *file, uint64_t offset, uint64_t bytes)
{
    return stk_vfs_of(io)->prefetch && stk_file_is_remote(file) &&
           stk_prefetch_has(stk_vfs_of(io)->prefetch, stk_remote_file_of(file), offset, bytes);
}

static int64_t prefetch_peek(struct stk_io *io, struct stk_file *file, uint64_t offset,
                             void *buffer, size_t bytes)
{
    struct stk_prefetch *prefetch_cache = stk_vfs_of(io)->prefetch;

    return prefetch_cache && stk_file_is_remote(file)
               ? stk_prefetch_read(prefetch_cache, stk_remote_file_of(file), offset, buffer, bytes,
                                   true)
               : -EAGAIN;
}

static void prefetch_release(struct stk_io *io, const void *owner)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stk_store *store;

    pthread_mutex_lock(&vfs->lock);
    store = vfs->locked.store;
    pthread_mutex_unlock(&vfs->lock);
    if (vfs->prefetch) {
        stk_prefetch_release(vfs->prefetch, store, owner);
    }
}

static uint64_t trim(struct stk_io *io)
{
    return stk_vfs_of(io)->prefetch ? stk_prefetch_trim(stk_vfs_of(io)->prefetch) : 0;
}

static const struct stk_prefetch_table prefetch_table = {.prefetch_head = prefetch_head,
                                                         .prefetch = prefetch_whole,
                                                         .is_prefetched = is_prefetched,
                                                         .peek = prefetch_peek,
                                                         .release = prefetch_release,
                                                         .trim = trim};

static const struct stk_io_table table = {
    .open_file = open_file,
    .close_file = close_file,
    .stat_file = stat_file,
    .stat_path = stat_path,
    .list = list,
    .read_now = read_now,
    .read_wait = read_wait,
    .queue_open = stk_vfs_queue_open,
    .queue_close = stk_vfs_queue_close,
    .submit = stk_vfs_queue_submit,
    .reap = stk_vfs_queue_reap,
    .wake = stk_vfs_queue_wake,
    .clock_ns = clock_ns,
    .backend = backend,
    .leaked_bytes = leaked_bytes,
    .map_file = map_file,
    .unmap = unmap,
    .map_prefetch = map_prefetch,
    .thread_disk_reads = thread_reads,
    .close = vfs_close,
    .write = &write_table,
    .last_read_error = explain,
    .prefetch_metadata = stk_batch_lookup_stat,
    .list_many = stk_batch_lookup_list,
    .round_trip_bytes = round_trip_bytes,
    .mount_of = mount_of,
    .store_stats = store_stats,
    .prefetch = &prefetch_table,
    .uncached_bytes = uncached_bytes,
};

/* ---- writing: to the machine only ---- */

static bool fail_remote_write(const char *path, struct stoker_error *error)
{
    char shown[400];

    if (!stk_io_is_url(path)) {
        return false;
    }
    stk_fail(error, STOKER_ERROR_UNSUPPORTED, "stores are only read",
             "write to a folder of this machine, and copy it", "'%s'",
             stk_url_redact_short(path, shown, sizeof shown));
    return true;
}

static int create(struct stk_io *io, const char *path, bool fresh, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_create(stk_vfs_of(io)->backend, path, fresh, out_out, error);
}

static int write_out(struct stk_io *io, struct stk_output *out, const void *data, size_t bytes,
                     struct stoker_error *error)
{
    return stk_io_write(stk_vfs_of(io)->backend, out, data, bytes, error);
}

static int sync_out(struct stk_io *io, struct stk_output *out, struct stoker_error *error)
{
    return stk_io_sync_output(stk_vfs_of(io)->backend, out, error);
}

static void close_out(struct stk_io *io, struct stk_output *out)
{
    stk_io_close_output(stk_vfs_of(io)->backend, out);
}

static int rename_path(struct stk_io *io, const char *from, const char *to, bool fresh,
                       struct stoker_error *error)
{
    return fail_remote_write(from, error) || fail_remote_write(to, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_rename(stk_vfs_of(io)->backend, from, to, fresh, error);
}

static int link_path(struct stk_io *io, const char *from, const char *to,
                     struct stoker_error *error)
{
    return fail_remote_write(from, error) || fail_remote_write(to, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_link(stk_vfs_of(io)->backend, from, to, error);
}

static int make_directory(struct stk_io *io, const char *path, bool fresh,
                          struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_make_directory(stk_vfs_of(io)->backend, path, fresh, error);
}

static int remove_path(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return fail_remote_write(path, error) ? STOKER_ERROR_UNSUPPORTED
                                          : stk_io_remove(stk_vfs_of(io)->backend, path, error);
}

static int sync_directory(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_sync_directory(stk_vfs_of(io)->backend, path, error);
}

static int append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_append(stk_vfs_of(io)->backend, path, out_out, error);
}

static int lock_path(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                     struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_lock(stk_vfs_of(io)->backend, path, lock_out, error);
}

static void unlock(struct stk_io *io, struct stk_file_lock *lock)
{
    stk_io_unlock(stk_vfs_of(io)->backend, lock);
}

static int cut(struct stk_io *io, struct stk_output *out, uint64_t bytes,
               struct stoker_error *error)
{
    return stk_io_truncate(stk_vfs_of(io)->backend, out, bytes, error);
}

static int claim(struct stk_io *io, const char *path, struct stk_output **out_out, uint64_t *bytes,
                 struct stoker_error *error)
{
    return fail_remote_write(path, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_open_exclusive(stk_vfs_of(io)->backend, path, out_out, bytes, error);
}

static int resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes)
{
    return stk_io_is_url(path) ? -EINVAL
                               : stk_io_resolve(stk_vfs_of(io)->backend, path, real, real_bytes);
}

static const struct stk_write_table write_table = {
    .create = create,
    .write = write_out,
    .sync_output = sync_out,
    .close_output = close_out,
    .rename = rename_path,
    .link = link_path,
    .make_directory = make_directory,
    .remove = remove_path,
    .sync_directory = sync_directory,
    .append = append,
    .lock = lock_path,
    .unlock = unlock,
    .truncate = cut,
    .open_exclusive = claim,
    .resolve = resolve,
};

/* ---- for those who write to stores ---- */

int stk_vfs_get_store(struct stk_io *io, struct stk_store **store_out, struct stoker_error *error)
{
    if (io->table != &table) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "there are no stores here",
                        "use paths of this machine", "a simulated world");
    }
    return stk_vfs_open_store(stk_vfs_of(io), store_out, error);
}

void stk_vfs_set_metadata(struct stk_io *io, const char *url, const struct stk_object_info *info)
{
    if (io->table == &table && info) {
        stk_metadata_cache_add(stk_vfs_of(io)->metadata_cache, url, info);
    } else if (io->table == &table) {
        stk_metadata_cache_remove(stk_vfs_of(io)->metadata_cache, url);
    }
}

bool stk_vfs_object_info(const struct stk_file *file, struct stk_object_info *info_out)
{
    if (stk_file_is_remote(file)) {
        *info_out = stk_remote_file_of((struct stk_file *)(uintptr_t)file)->info;
    }
    return stk_file_is_remote(file);
}

int stk_vfs_stat_object(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                        struct stk_object_info *info_out, struct stoker_error *error)
{
    *info_out = (struct stk_object_info){.bytes = 0};
    return io->table == &table && stk_io_is_url(path) && !external_fs_of(io, path)
               ? stk_remote_file_stat_url(stk_vfs_of(io), path, stat_out, info_out, error)
               : stk_io_stat_path(io, path, stat_out, error);
}

void stk_vfs_fetch_checksum(struct stk_io *io, struct stk_file *file)
{
    if (!stk_file_is_remote(file)) {
        return;
    }
    if (!stk_remote_file_of(file)->coverage) { /* nothing of it was read yet */
        stk_remote_file_fetch_checksum(stk_vfs_of(io), stk_remote_file_of(file), true);
    }
    stk_remote_file_wait_checksum(stk_remote_file_of(file));
}

bool stk_vfs_composite_checksum(struct stk_file *file, struct stk_checksum *whole)
{
    struct stk_remote_file *remote = stk_file_is_remote(file) ? stk_remote_file_of(file) : NULL;

    if (!remote) {
        return false;
    }
    pthread_mutex_lock(&remote->lock);
    *whole = remote->composite_checksum;
    pthread_mutex_unlock(&remote->lock);
    return whole->kind != STK_CHECKSUM_NONE;
}

static struct stk_range_coverage *coverage_of(struct stk_file *file)
{
    return file && stk_file_is_remote(file) ? stk_remote_file_of(file)->coverage : NULL;
}

bool stk_vfs_has_checksum(struct stk_file *file)
{
    struct stk_range_coverage *cover = coverage_of(file);

    return cover && stk_range_coverage_is_summing(cover);
}

int stk_vfs_checksum_add(struct stk_io *io, struct stk_file *file, uint64_t offset,
                         struct stk_view bytes, struct stoker_error *error)
{
    struct stk_store *store;
    int status;

    if (!coverage_of(file)) {
        return 0;
    }
    status = stk_vfs_open_store(stk_vfs_of(io), &store, error);
    return status < 0 ? status
                      : stk_store_checksum_add(store, stk_remote_file_of(file)->object,
                                               coverage_of(file), offset, bytes, error);
}

bool stk_vfs_checksum_failed(struct stk_file *file)
{
    struct stk_range_coverage *cover = coverage_of(file);

    return cover && stk_range_coverage_is_mismatch(cover);
}
