/* The virtual file system: chooses the backend, the store or the external file system for a path.
 */
#include "storage/vfs/vfs_private.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/text/parse_number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define STORE_TIMEOUT_DEFAULT_MS 30000u
#define DEPTH_DEFAULT 128u
#define NAMES_SHARE                                                                                \
    1024 /* a listing may have one name for so many bytes of the machine's memory                  \
          */
#define NAMES_MIN 1000000u
#define SPOOL_BYTES_MAX (64ull << 30)

/* Reads a limit from an environment variable; 0 and "" mean the default. */
static int read_limit(const char *name, bool with_unit, uint64_t *limit, struct stoker_error *error)
{
    const char *text = getenv(name);
    uint64_t value = 0;

    if (text && text[0] && !stk_parse_size(text, with_unit, &value)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an environment variable is not a number",
                        with_unit ? "set it to bytes, like 4000000 or 64GiB, or remove it"
                                  : "set it to a number, like 5000000, or remove it",
                        "%s='%.100s'", name, text);
    }
    *limit = value > 0 ? value : *limit;
    return 0;
}

/* The limits keep a server whose listing never ends from filling the memory, and one whose body
 * never ends from filling the disk. */
static int read_limits(uint64_t *names_max, uint64_t *spool_bytes_max, struct stoker_error *error)
{
    int status;

    *names_max = stk_max(stk_cgroup_available_memory() / NAMES_SHARE, NAMES_MIN);
    *spool_bytes_max = SPOOL_BYTES_MAX;
    status = read_limit("STOKER_LIST_NAMES_MAX", false, names_max, error);
    return status < 0 ? status : read_limit("STOKER_SPOOL_BYTES_MAX", true, spool_bytes_max, error);
}

int stk_vfs_open(struct stk_io **io_out, struct stk_io *backend,
                 const struct stk_vfs_options *options, struct stoker_error *error)
{
    uint32_t timeout_ms =
        options->read_timeout_ms ? options->read_timeout_ms : STORE_TIMEOUT_DEFAULT_MS;
    struct stk_store_options store = {.connections_max = options->connections_max,
                                      .timeout_ms = timeout_ms,
                                      .node_connections_max = options->node_connections_max,
                                      .unshared = options->unshared,
                                      .no_hedges = options->no_hedges,
                                      .hedge_percent_max = options->hedge_percent_max,
                                      .check_md5_etags = options->check_md5_etags};
    uint64_t names_max = 0, spool_bytes_max = 0;
    int status = read_limits(&names_max, &spool_bytes_max, error);
    struct stk_vfs *vfs;

    if (status < 0) {
        stk_io_close(backend);
        return status;
    }
    vfs = stk_alloc(1, sizeof *vfs);
    status = vfs ? stk_metadata_cache_open(&vfs->remote.metadata_cache) : -ENOMEM;

    if (status == 0 && options->budget) {
        status = stk_prefetch_open(&vfs->remote.prefetch, options->budget);
    }
    if (status == 0 && options->cache) {
        status = stk_block_reader_open(&vfs->remote.reader, options->cache, options->budget);
    }
    if (status < 0) {
        stk_prefetch_close(vfs ? vfs->remote.prefetch : NULL, NULL);
        stk_metadata_cache_close(vfs ? vfs->remote.metadata_cache : NULL);
        stk_free(vfs);
        stk_io_close(backend);
        return stk_fail(error, status, "cannot open the input", "free memory", "vfs");
    }
    pthread_mutex_init(&vfs->lock, NULL);
    stk_lazy_store_init(&vfs->remote.store, &store);
    stk_spools_init(&vfs->remote.spools, spool_bytes_max);
    vfs->remote.names_max = names_max;
    vfs->backend = backend;
    vfs->options = *options;
    vfs->options.read_timeout_ms = timeout_ms;
    vfs->options.depth = options->depth ? options->depth : DEPTH_DEFAULT;
    if (options->external_fs) {
        stk_external_fs_retain(options->external_fs);
    }
    vfs->io.table = &stk_vfs_table;
    *io_out = &vfs->io;
    return 0;
}

static void vfs_close(struct stk_io *io)
{
    struct stk_vfs *vfs = stk_vfs_of(io);

    stk_prefetch_close(vfs->remote.prefetch, stk_lazy_store_get(&vfs->remote.store));
    stk_block_reader_close(vfs->remote.reader, stk_lazy_store_get(&vfs->remote.store));
    stk_lazy_store_deinit(&vfs->remote.store);
    stk_spools_deinit(&vfs->remote.spools);
    stk_io_close(vfs->backend);
    stk_metadata_cache_close(vfs->remote.metadata_cache);
    stk_external_fs_release(vfs->options.external_fs);
    pthread_mutex_destroy(&vfs->lock);
    stk_free(vfs);
}

bool stk_vfs_is_external_url(const char *path)
{
    static const char *const schemes[] = {"s3", "gs", "az", "hf", "http", "https"};
    size_t bytes = strcspn(path, ":");

    for (size_t i = 0; i < STK_COUNT(schemes); i++) {
        if (bytes == strlen(schemes[i]) && strncasecmp(path, schemes[i], bytes) == 0 &&
            strncmp(path + bytes, "://", 3) == 0) {
            return false;
        }
    }
    return stk_io_is_url(path);
}

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stoker_external_fs *external_fs = stk_vfs_external_fs(vfs, path);

    if (external_fs) {
        return stk_external_file_open(external_fs, path, vfs->options.read_timeout_ms, file_out,
                                      error);
    }
    return stk_io_is_url(path) ? stk_remote_file_open(&vfs->remote, path, file_out, error)
                               : stk_io_open_file(vfs->backend, path, file_out, error);
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stoker_external_fs *external_fs = stk_vfs_external_fs(vfs, path);

    if (external_fs) {
        return stk_external_file_stat_url(external_fs, path, vfs->options.read_timeout_ms, stat_out,
                                          error);
    }
    return stk_io_is_url(path) ? stk_remote_file_stat_url(&vfs->remote, path, stat_out, NULL, error)
                               : stk_io_stat_path(vfs->backend, path, stat_out, error);
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stoker_external_fs *external_fs = stk_vfs_external_fs(vfs, path);

    if (external_fs) {
        return stk_external_file_list(external_fs, path, vfs->options.read_timeout_ms, listing_out,
                                      error);
    }
    return stk_io_is_url(path) ? stk_remote_file_list(&vfs->remote, path, listing_out, error)
                               : stk_io_list(vfs->backend, path, listing_out, error);
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

static int map_file(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                    struct stoker_error *error)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stk_remote_mapping *map;
    uint64_t bytes = 0;
    int status;

    if (stk_file_is_local(file)) {
        return stk_io_map(vfs->backend, file, view_out, error);
    }
    *view_out = (struct stk_view){(const uint8_t *)"", 0};
    map = stk_alloc(1, sizeof *map);
    if (!map) {
        return stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "map");
    }
    status = stk_file_is_external(file)
                 ? stk_external_file_map(file, &map->pages, &bytes, error)
                 : stk_remote_file_map(stk_remote_file_of(file), &map->pages, &bytes, error);
    if (status < 0 || bytes == 0) {
        stk_pages_free(status < 0 ? NULL : map->pages, 1);
        stk_free(map);
        return status;
    }
    map->bytes = bytes;
    *view_out = (struct stk_view){map->pages, bytes};
    pthread_mutex_lock(&vfs->lock);
    map->next = vfs->locked.maps;
    vfs->locked.maps = map;
    pthread_mutex_unlock(&vfs->lock);
    return 0;
}

static void unmap(struct stk_io *io, struct stk_view view)
{
    struct stk_vfs *vfs = stk_vfs_of(io);
    struct stk_remote_mapping **link = &vfs->locked.maps, *map;

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

/* Maps of remote files are copies: the backend does not know them. */
static int map_check(struct stk_io *io, struct stk_view view, struct stoker_error *error)
{
    return stk_io_map_check(stk_vfs_of(io)->backend, view, error);
}

static uint64_t map_faults(struct stk_io *io)
{
    return stk_io_map_faults(stk_vfs_of(io)->backend);
}

/* The map of a remote file is in memory already. */
static void map_prefetch(struct stk_io *io, struct stk_view part)
{
    stk_io_map_prefetch(stk_vfs_of(io)->backend, part);
}

static uint64_t thread_disk_reads(struct stk_io *io)
{
    return stk_io_thread_disk_reads(stk_vfs_of(io)->backend);
}

const struct stk_io_table stk_vfs_table = {
    .open_file = open_file,
    .stat_path = stat_path,
    .list = list,
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
    .map_check = map_check,
    .map_faults = map_faults,
    .map_prefetch = map_prefetch,
    .thread_disk_reads = thread_disk_reads,
    .close = vfs_close,
    .write = &stk_vfs_write_table,
};
