/* The io that takes URLs beside paths: which of the two a call is for. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "io/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STORE_TIMEOUT_DEFAULT_MS 30000u
#define DEPTH_DEFAULT 128u
#define NAME_SHARE 1024 /* bytes of memory that this machine has for each name of a listing */
#define NAMES_LEAST 1000000u

static const struct stk_io_table table;
static const struct stk_write_table write_table;

/* A server that never comes to an end would fill the memory. */
static uint64_t names_max(void)
{
    const char *text = getenv("STOKER_LIST_NAMES_MAX");
    uint64_t most = text ? strtoull(text, NULL, 10) : 0;

    return most > 0 ? most : stk_max(stk_io_memory_bytes() / NAME_SHARE, NAMES_LEAST);
}

int stk_route_open(struct stk_io **io_out, struct stk_io *real,
                   const struct stk_route_options *options, struct stoker_error *error)
{
    struct stk_route *route = stk_alloc(1, sizeof *route);
    int status = route ? stk_known_open(&route->known) : -ENOMEM;

    if (status == 0 && options->budget) {
        status = stk_brought_open(&route->brought, options->budget);
    }
    if (status < 0) {
        stk_known_close(route ? route->known : NULL);
        stk_free(route);
        stk_io_close(real);
        return stk_fail(error, status, "cannot open the input", "free memory", "route");
    }
    pthread_mutex_init(&route->lock, NULL);
    route->real = real;
    route->names_max = names_max();
    route->options = *options;
    if (route->options.read_timeout_ms == 0) {
        route->options.read_timeout_ms = STORE_TIMEOUT_DEFAULT_MS;
    }
    route->options.depth = options->depth ? options->depth : DEPTH_DEFAULT;
    if (options->desk) {
        stk_desk_acquire(options->desk);
    }
    route->io.table = &table;
    *io_out = &route->io;
    return 0;
}

static void route_close(struct stk_io *io)
{
    struct stk_route *route = stk_route(io);

    stk_brought_close(route->brought, route->locked.store);
    stk_store_close(route->locked.store);
    stk_io_close(route->real);
    stk_known_close(route->known);
    stk_desk_release(route->options.desk);
    pthread_mutex_destroy(&route->lock);
    stk_free(route);
}

int stk_route_store(struct stk_route *route, struct stk_store **store_out,
                    struct stoker_error *error)
{
    struct stk_store_options options = {.connections_max = route->options.connections_max,
                                        .timeout_ms = route->options.read_timeout_ms,
                                        .node_connections_max = route->options.node_connections_max,
                                        .alone = route->options.alone,
                                        .no_hedges = route->options.no_hedges,
                                        .hedge_percent_max = route->options.hedge_percent_max,
                                        .tags = route->options.tags,
                                        .seed = stk_clock_wall_ns()};
    int status = 0;

    pthread_mutex_lock(&route->lock);
    if (!route->locked.store) {
        status = stk_store_open(&route->locked.store, &options, error);
    }
    *store_out = route->locked.store;
    pthread_mutex_unlock(&route->lock);
    return status;
}

/* Who runs errands for this URL; NULL: nobody, or it is none of theirs. */
static struct stoker_desk *desk_of(struct stk_io *io, const char *path)
{
    struct stoker_desk *desk = stk_route(io)->options.desk;

    return desk && stk_io_is_foreign(path) && stk_desk_is_manned(desk) ? desk : NULL;
}

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct stoker_desk *desk = desk_of(io, path);

    if (desk) {
        return stk_guest_open(desk, path, stk_route(io)->options.read_timeout_ms, file_out, error);
    }
    return stk_io_is_url(path) ? stk_remote_open(stk_route(io), path, file_out, error)
                               : stk_io_open_file(stk_route(io)->real, path, file_out, error);
}

static void close_file(struct stk_io *io, struct stk_file *file)
{
    if (stk_is_remote(file)) {
        stk_remote_release(stk_remote(file));
    } else if (stk_is_guest(file)) {
        stk_guest_close(file);
    } else {
        stk_io_close_file(stk_route(io)->real, file);
    }
}

static int stat_file(struct stk_io *io, struct stk_file *file, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    if (stk_is_remote(file)) {
        stk_remote_stat_file(stk_remote(file), stat_out);
        return 0;
    }
    if (stk_is_guest(file)) {
        stk_guest_stat_file(file, stat_out);
        return 0;
    }
    return stk_io_stat_file(stk_route(io)->real, file, stat_out, error);
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stoker_desk *desk = desk_of(io, path);

    if (desk) {
        return stk_guest_stat(desk, path, stk_route(io)->options.read_timeout_ms, stat_out, error);
    }
    return stk_io_is_url(path) ? stk_remote_stat(stk_route(io), path, stat_out, NULL, error)
                               : stk_io_stat_path(stk_route(io)->real, path, stat_out, error);
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct stoker_desk *desk = desk_of(io, path);

    if (desk) {
        return stk_guest_list(desk, path, stk_route(io)->options.read_timeout_ms, listing_out,
                              error);
    }
    return stk_io_is_url(path) ? stk_remote_list(stk_route(io), path, listing_out, error)
                               : stk_io_list(stk_route(io)->real, path, listing_out, error);
}

static int64_t read_now(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                        size_t bytes)
{
    if (stk_is_remote(file)) { /* its end is known; the rest is, where it is kept */
        struct stk_brought *kept = stk_route(io)->brought;

        return offset >= stk_remote(file)->about.bytes || bytes == 0 ? 0
               : kept ? stk_brought_read(kept, stk_remote(file), offset, buffer, bytes, false)
                      : -EAGAIN;
    }
    if (stk_is_guest(file)) {
        return -EAGAIN;
    }
    return stk_io_read_now(stk_route(io)->real, file, offset, buffer, bytes);
}

static int64_t read_wait(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                         size_t bytes)
{
    if (stk_is_guest(file)) {
        return stk_guest_read(file, offset, buffer, bytes);
    }
    return stk_is_remote(file)
               ? stk_remote_read(stk_route(io), stk_remote(file), offset, buffer, bytes)
               : stk_io_read_wait(stk_route(io)->real, file, offset, buffer, bytes);
}

static uint64_t clock_ns(struct stk_io *io)
{
    return stk_io_clock_ns(stk_route(io)->real);
}

static const char *backend(struct stk_io *io, const char **reason_out)
{
    return stk_io_backend(stk_route(io)->real, reason_out);
}

static uint64_t lost_bytes(struct stk_io *io)
{
    return stk_io_lost_bytes(stk_route(io)->real);
}

static int64_t cold_bytes(struct stk_io *io, struct stk_file *file, uint64_t offset, uint64_t bytes)
{
    return !stk_is_local(file) ? -ENOSYS
                               : stk_io_cold_bytes(stk_route(io)->real, file, offset, bytes);
}

static void ledger(struct stk_io *io, struct stoker_ledger *ledger_out)
{
    struct stk_route *route = stk_route(io);
    struct stk_store *store;

    pthread_mutex_lock(&route->lock);
    store = route->locked.store; /* which stays until the route is closed */
    pthread_mutex_unlock(&route->lock);
    if (store) {
        stk_store_ledger(store, ledger_out);
    }
}

static int map_guest(struct stk_route *route, struct stk_file *file, struct stk_view *view_out,
                     struct stoker_error *error)
{
    struct stk_remote_map *map = stk_alloc(1, sizeof *map);
    int status = map ? stk_guest_map(file, &map->pages, &map->bytes, error)
                     : stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "map");

    if (status < 0) {
        stk_free(map);
        return status;
    }
    *view_out = (struct stk_view){map->pages, map->bytes};
    map->bytes = stk_max(map->bytes, 1u);
    pthread_mutex_lock(&route->lock);
    map->next = route->locked.maps;
    route->locked.maps = map;
    pthread_mutex_unlock(&route->lock);
    return 0;
}

static int map_file(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                    struct stoker_error *error)
{
    if (stk_is_guest(file)) {
        return map_guest(stk_route(io), file, view_out, error);
    }
    return stk_is_remote(file) ? stk_remote_map(stk_route(io), stk_remote(file), view_out, error)
                               : stk_io_map(stk_route(io)->real, file, view_out, error);
}

static void unmap(struct stk_io *io, struct stk_view view)
{
    struct stk_route *route = stk_route(io);
    struct stk_remote_map **link = &route->locked.maps, *map;

    pthread_mutex_lock(&route->lock);
    while (*link && (*link)->pages != view.data) {
        link = &(*link)->next;
    }
    map = *link;
    if (map) {
        *link = map->next;
    }
    pthread_mutex_unlock(&route->lock);
    if (map) {
        stk_pages_free(map->pages, map->bytes);
        stk_free(map);
    } else {
        stk_io_unmap(route->real, view);
    }
}

static bool explain(struct stk_io *io, struct stk_file *file, int status,
                    struct stoker_error *error_out)
{
    struct stk_remote *remote;
    bool known;

    (void)io;
    if (stk_is_guest(file)) {
        return stk_guest_explain(file, status, error_out);
    }
    if (!stk_is_remote(file)) {
        return false;
    }
    remote = stk_remote(file);
    pthread_mutex_lock(&remote->lock);
    known = remote->error.status == status;
    if (known) {
        *error_out = remote->error;
    }
    pthread_mutex_unlock(&remote->lock);
    return known;
}

static bool mounted(struct stk_io *io, struct stk_file *file, struct stk_mounted *mounted_out)
{
    return stk_is_local(file) && stk_io_mounted(stk_route(io)->real, file, mounted_out);
}

static uint32_t far_bytes(struct stk_io *io, struct stk_file *file)
{
    return !stk_is_local(file) ? STK_ROUTE_FAR_BYTES : stk_io_far_bytes(stk_route(io)->real, file);
}

static void map_soon(struct stk_io *io, struct stk_view part)
{
    stk_io_map_soon(stk_route(io)->real, part); /* of a remote file: it is memory already */
}

static uint64_t thread_reads(struct stk_io *io)
{
    return stk_io_thread_reads(stk_route(io)->real);
}

static void bring(struct stk_route *route, struct stk_remote *remote, const void *owner, bool whole)
{
    struct stk_store *store;

    if (stk_route_store(route, &store, NULL) == 0) {
        stk_brought_bring(route->brought, store, remote, owner, whole);
    }
}

static void bring_head(struct stk_io *io, const char *path, const void *owner)
{
    struct stk_route *route = stk_route(io);
    struct stk_about about;
    struct stk_file *file;

    if (route->brought && stk_io_is_url(path) && stk_known_find(route->known, path, &about) &&
        stk_remote_open(route, path, &file, NULL) == 0) {
        bring(route, stk_remote(file), owner, false);
        stk_remote_release(stk_remote(file));
    }
}

static void bring_whole(struct stk_io *io, struct stk_file *file, const void *owner)
{
    if (stk_route(io)->brought && stk_is_remote(file)) {
        bring(stk_route(io), stk_remote(file), owner, true);
    }
}

static bool comes(struct stk_io *io, struct stk_file *file, uint64_t offset, uint64_t bytes)
{
    return stk_route(io)->brought && stk_is_remote(file) &&
           stk_brought_has(stk_route(io)->brought, stk_remote(file), offset, bytes);
}

static int64_t peek(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                    size_t bytes)
{
    struct stk_brought *kept = stk_route(io)->brought;

    return kept && stk_is_remote(file)
               ? stk_brought_read(kept, stk_remote(file), offset, buffer, bytes, true)
               : -EAGAIN;
}

static void let_go(struct stk_io *io, const void *owner)
{
    struct stk_route *route = stk_route(io);
    struct stk_store *store;

    pthread_mutex_lock(&route->lock);
    store = route->locked.store;
    pthread_mutex_unlock(&route->lock);
    if (route->brought) {
        stk_brought_drop(route->brought, store, owner);
    }
}

static uint64_t trim(struct stk_io *io)
{
    return stk_route(io)->brought ? stk_brought_trim(stk_route(io)->brought) : 0;
}

static const struct stk_bring_table bring_table = {.head = bring_head,
                                                   .whole = bring_whole,
                                                   .comes = comes,
                                                   .peek = peek,
                                                   .let_go = let_go,
                                                   .trim = trim};

static const struct stk_io_table table = {
    .open_file = open_file,
    .close_file = close_file,
    .stat_file = stat_file,
    .stat_path = stat_path,
    .list = list,
    .read_now = read_now,
    .read_wait = read_wait,
    .queue_open = stk_route_queue_open,
    .queue_close = stk_route_queue_close,
    .submit = stk_route_submit,
    .reap = stk_route_reap,
    .wake = stk_route_wake,
    .clock_ns = clock_ns,
    .backend = backend,
    .lost_bytes = lost_bytes,
    .map_file = map_file,
    .unmap = unmap,
    .map_soon = map_soon,
    .thread_reads = thread_reads,
    .close = route_close,
    .write = &write_table,
    .explain = explain,
    .expect = stk_remote_expect,
    .list_many = stk_remote_list_many,
    .far_bytes = far_bytes,
    .mounted = mounted,
    .ledger = ledger,
    .bring = &bring_table,
    .cold_bytes = cold_bytes,
};

/* ---- writing: to the machine only ---- */

static bool refuse(const char *path, struct stoker_error *error)
{
    char shown[400];

    if (!stk_io_is_url(path)) {
        return false;
    }
    stk_fail(error, STOKER_ERROR_UNSUPPORTED, "stores are only read",
             "write to a folder of this machine, and copy it", "'%s'",
             stk_http_url_text(path, shown, sizeof shown));
    return true;
}

static int create(struct stk_io *io, const char *path, bool fresh, struct stk_out **out_out,
                  struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_create(stk_route(io)->real, path, fresh, out_out, error);
}

static int write_out(struct stk_io *io, struct stk_out *out, const void *data, size_t bytes,
                     struct stoker_error *error)
{
    return stk_io_write(stk_route(io)->real, out, data, bytes, error);
}

static int sync_out(struct stk_io *io, struct stk_out *out, struct stoker_error *error)
{
    return stk_io_sync_out(stk_route(io)->real, out, error);
}

static void close_out(struct stk_io *io, struct stk_out *out)
{
    stk_io_close_out(stk_route(io)->real, out);
}

static int rename_path(struct stk_io *io, const char *from, const char *to, bool fresh,
                       struct stoker_error *error)
{
    return refuse(from, error) || refuse(to, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_rename(stk_route(io)->real, from, to, fresh, error);
}

static int link_path(struct stk_io *io, const char *from, const char *to,
                     struct stoker_error *error)
{
    return refuse(from, error) || refuse(to, error)
               ? STOKER_ERROR_UNSUPPORTED
               : stk_io_link(stk_route(io)->real, from, to, error);
}

static int make_directory(struct stk_io *io, const char *path, bool fresh,
                          struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_make_directory(stk_route(io)->real, path, fresh, error);
}

static int remove_path(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_remove(stk_route(io)->real, path, error);
}

static int sync_directory(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_sync_directory(stk_route(io)->real, path, error);
}

static int append(struct stk_io *io, const char *path, struct stk_out **out_out,
                  struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_append(stk_route(io)->real, path, out_out, error);
}

static int lock_path(struct stk_io *io, const char *path, struct stk_lock **lock_out,
                     struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_lock(stk_route(io)->real, path, lock_out, error);
}

static void unlock(struct stk_io *io, struct stk_lock *lock)
{
    stk_io_unlock(stk_route(io)->real, lock);
}

static int cut(struct stk_io *io, struct stk_out *out, uint64_t bytes, struct stoker_error *error)
{
    return stk_io_cut(stk_route(io)->real, out, bytes, error);
}

static int claim(struct stk_io *io, const char *path, struct stk_out **out_out, uint64_t *bytes,
                 struct stoker_error *error)
{
    return refuse(path, error) ? STOKER_ERROR_UNSUPPORTED
                               : stk_io_claim(stk_route(io)->real, path, out_out, bytes, error);
}

static int resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes)
{
    return stk_io_is_url(path) ? -EINVAL
                               : stk_io_resolve(stk_route(io)->real, path, real, real_bytes);
}

static const struct stk_write_table write_table = {
    .create = create,
    .write = write_out,
    .sync_out = sync_out,
    .close_out = close_out,
    .rename = rename_path,
    .link = link_path,
    .make_directory = make_directory,
    .remove = remove_path,
    .sync_directory = sync_directory,
    .append = append,
    .lock = lock_path,
    .unlock = unlock,
    .cut = cut,
    .claim = claim,
    .resolve = resolve,
};

/* ---- for those who write to stores ---- */

int stk_route_lend(struct stk_io *io, struct stk_store **store_out, struct stoker_error *error)
{
    if (io->table != &table) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "there are no stores here",
                        "use paths of this machine", "a simulated world");
    }
    return stk_route_store(stk_route(io), store_out, error);
}

void stk_route_know(struct stk_io *io, const char *url, const struct stk_about *about)
{
    if (io->table == &table && about) {
        stk_known_add(stk_route(io)->known, url, about);
    } else if (io->table == &table) {
        stk_known_forget(stk_route(io)->known, url);
    }
}

bool stk_route_about(const struct stk_file *file, struct stk_about *about_out)
{
    if (stk_is_remote(file)) {
        *about_out = stk_remote((struct stk_file *)(uintptr_t)file)->about;
    }
    return stk_is_remote(file);
}

int stk_route_look(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                   struct stk_about *about_out, struct stoker_error *error)
{
    *about_out = (struct stk_about){.bytes = 0};
    return io->table == &table && stk_io_is_url(path) && !desk_of(io, path)
               ? stk_remote_stat(stk_route(io), path, stat_out, about_out, error)
               : stk_io_stat_path(io, path, stat_out, error);
}

void stk_route_ask(struct stk_io *io, struct stk_file *file)
{
    if (!stk_is_remote(file)) {
        return;
    }
    if (!stk_remote(file)->cover) { /* nothing of it was read yet */
        stk_remote_seal(stk_route(io), stk_remote(file), true);
    }
    stk_remote_settle(stk_remote(file));
}

bool stk_route_whole(struct stk_file *file, struct stk_seal *whole)
{
    struct stk_remote *remote = stk_is_remote(file) ? stk_remote(file) : NULL;

    if (!remote) {
        return false;
    }
    pthread_mutex_lock(&remote->lock);
    *whole = remote->whole;
    pthread_mutex_unlock(&remote->lock);
    return whole->kind != STK_SEAL_NONE;
}

static struct stk_cover *cover_of(struct stk_file *file)
{
    return file && stk_is_remote(file) ? stk_remote(file)->cover : NULL;
}

bool stk_route_sums(struct stk_file *file)
{
    struct stk_cover *cover = cover_of(file);

    return cover && stk_cover_sums(cover);
}

int stk_route_sum(struct stk_io *io, struct stk_file *file, uint64_t offset, struct stk_view bytes,
                  struct stoker_error *error)
{
    struct stk_store *store;
    int status;

    if (!cover_of(file)) {
        return 0;
    }
    status = stk_route_store(stk_route(io), &store, error);
    return status < 0 ? status
                      : stk_store_sum(store, stk_remote(file)->place, cover_of(file), offset, bytes,
                                      error);
}

bool stk_route_is_wrong(struct stk_file *file)
{
    struct stk_cover *cover = cover_of(file);

    return cover && stk_cover_is_wrong(cover);
}
