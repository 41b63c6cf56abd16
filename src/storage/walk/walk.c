/* The threads of a walk, and the walk of local folders. */
#include "storage/walk/walk.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "base/thread.h"
#include "io/write.h"
#include "storage/object/store.h"
#include "storage/url/url_split.h"
#include "storage/vfs/vfs.h"
#include "storage/walk/key_range.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void *walk_main(void *argument);
static int walk_root(struct stk_walk *walk, struct stoker_error *error);
static int walk_folder(struct stk_walk *walk, char *path, uint32_t depth,
                       struct stoker_error *error);

static int start(struct stk_walk *walk, void *(*run)(void *), uint32_t *started)
{
    int status = stk_thread_start(&walk->threads[*started], NULL, run, walk);

    *started += status == 0;
    return status;
}

/* Only S3 is known to list in byte order and to start after a key, and S3 Express buckets do not.
 * Azure accounts with folders sort '/' before all other bytes. */
static bool is_unordered(const char *path)
{
    const char *end = strchr(path + stk_min(strlen(path), 5), '/');
    struct stk_view bucket = {(const uint8_t *)path, end ? (size_t)(end - path) : strlen(path)};

    return stk_url_scheme_of(path) != STK_URL_S3 ||
           (bucket.bytes > 11 && stk_view_ends_with(bucket, "--x-s3"));
}

int stk_walk_open(struct stk_walk **walk_out, const struct stk_walk_options *options,
                  struct stoker_error *error)
{
    struct stk_walk *walk;
    size_t bytes = strlen(options->path);
    int status;

    if (bytes == 0 || bytes >= STK_WALK_PATH_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "not a path",
                        "name a file, a folder or a URL of less than 4096 bytes", "'%.200s'",
                        options->path);
    }
    walk = stk_alloc(1, sizeof *walk);
    if (walk) {
        walk->threads_max = options->threads ? options->threads : STK_WALK_THREADS_DEFAULT;
        walk->threads_max = (uint32_t)stk_min(walk->threads_max, STK_WALK_THREADS_MAX);
        walk->locked.ranges = stk_alloc(walk->threads_max, sizeof *walk->locked.ranges);
    }
    if (!walk || !walk->locked.ranges) {
        stk_free(walk);
        return stk_fail(error, -ENOMEM, "cannot list", "free memory", "'%.200s'", options->path);
    }
    walk->io = options->io;
    walk->deep = options->deep;
    walk->folder = options->folder;
    walk->special_files = options->special_files;
    walk->folder_markers = options->folder_markers;
    walk->path_bytes = bytes;
    memcpy(walk->path, options->path, bytes + 1);
    walk->unordered = is_unordered(options->path);
    walk->threads_max = walk->unordered ? 1 : walk->threads_max;
    walk->locked.last = &walk->locked.first;
    walk->locked.working = 1;
    pthread_mutex_init(&walk->lock, NULL);
    stk_cond_init(&walk->entry_ready);
    pthread_cond_init(&walk->queue_space, NULL);
    pthread_cond_init(&walk->range_ended, NULL);
    pthread_mutex_lock(&walk->lock); /* the thread starts others only after it is counted itself */
    status = start(walk, walk_main, &walk->thread_count);
    pthread_mutex_unlock(&walk->lock);
    if (status < 0) {
        stk_walk_close(walk);
        return stk_fail_errno(error, -status, "cannot start a thread",
                              "raise the limit of processes", "walk");
    }
    *walk_out = walk;
    return 0;
}

void stk_walk_close(struct stk_walk *walk)
{
    uint32_t count;

    if (!walk) {
        return;
    }
    pthread_mutex_lock(&walk->lock);
    atomic_store_explicit(&walk->stop, true, memory_order_relaxed);
    pthread_cond_broadcast(&walk->queue_space);
    pthread_cond_broadcast(&walk->range_ended);
    pthread_mutex_unlock(&walk->lock);
    if (walk->thread_count > 0) {
        pthread_join(walk->threads[0], NULL); /* it starts the others */
    }
    count = walk->thread_count;
    for (uint32_t i = 1; i < count; i++) {
        pthread_join(walk->threads[i], NULL);
    }
    for (struct stk_walk_entry *item = walk->locked.first, *next; item; item = next) {
        next = item->next;
        stk_free(item);
    }
    pthread_cond_destroy(&walk->range_ended);
    pthread_cond_destroy(&walk->queue_space);
    pthread_cond_destroy(&walk->entry_ready);
    pthread_mutex_destroy(&walk->lock);
    stk_free(walk->locked.ranges);
    stk_free(walk);
}

static void finish_thread(struct stk_walk *walk)
{
    pthread_mutex_lock(&walk->lock);
    if (--walk->locked.working == 0) {
        pthread_cond_broadcast(&walk->entry_ready);
    }
    pthread_mutex_unlock(&walk->lock);
}

/* ---- s3:// ---- */

/* Lists ranges until there are none. index: of the thread. */
static void list_ranges(struct stk_walk *walk, uint32_t index)
{
    struct stoker_error error = {0};
    int status = 0;

    while (status == 0) {
        bool more = false, any = true;

        status = stk_key_range_list(walk, index, &error);
        pthread_mutex_lock(&walk->lock);
        walk->locked.ranges[index].busy = false;
        pthread_cond_broadcast(&walk->range_ended);
        while (status == 0 && any && !more &&
               !atomic_load_explicit(&walk->stop, memory_order_relaxed)) {
            more = stk_key_range_split_locked(walk, index);
            any = more;
            for (uint32_t i = 0; i < walk->threads_max; i++) {
                any = any || walk->locked.ranges[i].busy;
            }
            if (!more && any) {
                pthread_cond_wait(&walk->range_ended,
                                  &walk->lock); /* a page arrived, or a range ended */
            }
        }
        pthread_mutex_unlock(&walk->lock);
        if (!more) {
            break;
        }
    }
    if (status < 0) {
        stk_walk_fail(walk, status, &error);
    }
}

/* A thread that waits until a range is split. */
static void *range_main(void *argument)
{
    struct stk_walk *walk = argument;
    uint32_t index = 0;
    bool taken = false, any = true;

    stk_io_set_cancel_flag(&walk->stop);
    pthread_mutex_lock(&walk->lock);
    while (index < walk->threads_max && !pthread_equal(walk->threads[index], pthread_self())) {
        index++;
    }
    while (!taken && any && !atomic_load_explicit(&walk->stop, memory_order_relaxed)) {
        taken = stk_key_range_split_locked(walk, index);
        any = taken;
        for (uint32_t i = 0; i < walk->threads_max; i++) {
            any = any || walk->locked.ranges[i].busy;
        }
        if (!taken && any) {
            pthread_cond_wait(&walk->range_ended, &walk->lock);
        }
    }
    pthread_mutex_unlock(&walk->lock);
    if (taken) {
        list_ranges(walk, index);
    }
    finish_thread(walk);
    return NULL;
}

static void start_helpers(struct stk_walk *walk)
{
    pthread_mutex_lock(&walk->lock);
    walk->locked.ranges[0].busy = true;
    while (walk->deep && walk->thread_count < walk->threads_max) {
        if (start(walk, range_main, &walk->thread_count) < 0) {
            break; /* fewer threads work as well */
        }
        walk->locked.working++;
    }
    pthread_mutex_unlock(&walk->lock);
}

/* ---- local folders, and those of an external file system ---- */

static void *walk_main(void *argument)
{
    struct stk_walk *walk = argument;
    struct stoker_error error = {0};
    int status;

    stk_io_set_cancel_flag(&walk->stop);
    status = walk_root(walk, &error);
    if (status < 0) {
        stk_walk_fail(walk, status, &error);
    }
    finish_thread(walk);
    return NULL;
}

static int walk_root(struct stk_walk *walk, struct stoker_error *error)
{
    bool external = stk_vfs_is_external_url(walk->path);
    bool keys = stk_io_is_url(walk->path) && !external;
    struct stk_stat stat = {.kind = STK_ENTRY_DIRECTORY};
    char path[STK_WALK_PATH_BYTES_MAX];
    size_t least;
    int status = 0;

    if (!keys || !walk->folder) {
        status = stk_io_stat_path(walk->io, walk->path, &stat, error);
    }
    if (status < 0) {
        return status;
    }
    if (stat.kind == STK_ENTRY_FILE) {
        struct stk_walk_entry item = {.bytes = stat.bytes,
                                      .mtime_ns = stat.mtime_ns,
                                      .version = stat.version,
                                      .kind = stat.kind};

        return stk_walk_push(walk, &item, "");
    }
    if (stat.kind != STK_ENTRY_DIRECTORY) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "neither a file nor a folder",
                        "name a file or a folder", "'%.400s'", walk->path);
    }
    if (keys) {
        start_helpers(walk);
        list_ranges(walk, 0);
        return 0;
    }
    status = external ? 0 : stk_io_resolve(walk->io, walk->path, walk->real, sizeof walk->real);
    if (status < 0) {
        return stk_fail_errno(error, -status, "cannot follow the path", "check the path",
                              "'%.400s'", walk->path);
    }
    memcpy(path, walk->path, walk->path_bytes + 1);
    least = external ? (size_t)(strstr(path, "://") - path) + 3 : 1;
    while (walk->path_bytes > least && path[walk->path_bytes - 1] == '/') {
        path[--walk->path_bytes] = '\0';
    }
    return walk_folder(walk, path, 0, error);
}

/* Returns true if the target of a link is below the root, or if the server follows links itself. */
static bool is_below_root(struct stk_walk *walk, const char *path)
{
    char real[STK_WALK_PATH_BYTES_MAX];
    size_t bytes = strlen(walk->real);

    if (stk_vfs_is_external_url(walk->path)) {
        return true;
    }
    if (stk_io_resolve(walk->io, path, real, sizeof real) < 0) {
        return false;
    }
    bytes -= bytes > 0 && walk->real[bytes - 1] == '/';
    return strncmp(real, walk->real, bytes) == 0 && real[bytes] == '/';
}

static int walk_entry(struct stk_walk *walk, char *path, const struct stk_entry *entry,
                      uint32_t depth, struct stoker_error *error)
{
    const char *name = path + walk->path_bytes;
    struct stk_stat stat;
    int status;

    name += *name == '/';
    if (stk_walk_is_hidden(entry->name)) {
        return 0;
    }
    if (entry->kind == STK_ENTRY_OTHER ||
        (entry->link && (entry->kind == STK_ENTRY_DIRECTORY || !is_below_root(walk, path)))) {
        struct stk_walk_entry item = {.kind = STK_ENTRY_OTHER};

        return walk->special_files ? stk_walk_push(walk, &item, name) : 0;
    }
    if (entry->kind == STK_ENTRY_DIRECTORY && walk->deep) {
        return walk_folder(walk, path, depth + 1, error);
    }
    status = stk_io_stat_path(walk->io, path, &stat, error);
    if (status == -ENOENT) {
        return 0; /* it was deleted after it was listed */
    }
    if (status == 0) {
        struct stk_walk_entry item = {.bytes = stat.bytes,
                                      .mtime_ns = stat.mtime_ns,
                                      .version = stat.version,
                                      .kind = entry->kind};

        status = stk_walk_push(walk, &item, name);
    }
    return status;
}

static int walk_folder(struct stk_walk *walk, char *path, uint32_t depth,
                       struct stoker_error *error)
{
    struct stk_listing listing = {0};
    size_t bytes = strlen(path);
    int status;

    if (depth > STK_WALK_DEPTH_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "folders are nested too deep",
                        "move the folders up: at most 200 levels are read", "'%.400s'", path);
    }
    status = stk_io_list(walk->io, path, &listing, error);
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        size_t slash = bytes > 0 && path[bytes - 1] != '/';

        if (atomic_load_explicit(&walk->stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
        } else if (bytes + slash + strlen(entry->name) >= STK_WALK_PATH_BYTES_MAX) {
            status = stk_fail(error, STOKER_ERROR_LIMIT, "a path is too long",
                              "shorten it to less than 4096 bytes", "'%.400s'", path);
        } else {
            path[bytes] = '/';
            memcpy(path + bytes + slash, entry->name, strlen(entry->name) + 1);
            status = walk_entry(walk, path, entry, depth, error);
            path[bytes] = '\0';
        }
    }
    stk_listing_free(&listing);
    return status;
}

/* ---- prefixes ---- */

int stk_walk_check_prefix(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    char *name = stk_strdup(path);
    size_t bytes = strlen(path);
    struct stk_stat stat = {.kind = STK_ENTRY_DIRECTORY};
    int status = name ? 0 : stk_fail_memory(error, "walk");

    if (status == 0 && stk_io_is_url(path) && !stk_vfs_is_external_url(path) &&
        stk_object_url_parse(path, &object, NULL) == 0 && stk_object_url_has_key(object) &&
        object->key[0]) {
        while (bytes > 0 && name[bytes - 1] == '/') {
            name[--bytes] = '\0';
        }
        status = stk_io_stat_path(io, name, &stat, error);
        if (status == 0 && stat.kind != STK_ENTRY_DIRECTORY) {
            status = stk_fail_errno(error, ENOENT, "no object has this prefix",
                                    "list the bucket with 'stoker ls'; an object has this name "
                                    "without the '/'",
                                    "'%.400s'", path);
        }
    }
    stk_object_url_free(object);
    stk_free(name);
    return status;
}
