/* Removing: objects by the thousand, files and folders one by one. */
#include "base/mem.h"
#include "io/clock.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS 100u
#define KEYS_BYTES (1u << 20) /* of a request */
#define DEPTH_MAX 200u
#define REMOVE_FEW 8u

/* Names gathered for one request. */
struct gathering {
    struct stk_copy_file *file;
    size_t used;
    uint32_t count;
};

static int flush(struct stoker_copy *copy, struct gathering *gathering, bool here,
                 struct stoker_error *error)
{
    struct stk_copy_file *file = gathering->file;
    int status = 0;

    gathering->file = NULL;
    gathering->used = 0;
    gathering->count = 0;
    if (!file) {
        return 0;
    }
    if (!here) {
        return stk_copy_put(copy, file); /* for a worker */
    }
    status = stk_copy_remove_keys(copy, file, error);
    stk_copy_file_free(file);
    return status;
}

/* key: of the whole object, in the bucket of url. */
static int gather(struct stoker_copy *copy, struct gathering *gathering, const char *url,
                  const char *key, struct stoker_error *error)
{
    size_t bytes = strlen(key) + 1;

    if (!gathering->file) {
        gathering->file = stk_copy_file_new(url, NULL);
        if (gathering->file) {
            gathering->file->keys = stk_alloc(1, KEYS_BYTES);
        }
        if (!gathering->file || !gathering->file->keys) {
            stk_copy_file_free(gathering->file);
            gathering->file = NULL;
            return stk_fail(error, -ENOMEM, "cannot remove", "free memory", "'%.400s'", url);
        }
    }
    memcpy(gathering->file->keys + gathering->used, key, bytes);
    gathering->used += bytes;
    gathering->file->key_count = ++gathering->count;
    (void)copy;
    return 0;
}

/* What was known of them is no more. */
static void forget(struct stoker_copy *copy, const struct stk_place *place,
                   const struct stk_copy_file *file)
{
    const char *key = file->keys;
    char url[2 * STK_STORE_URL_BYTES_MAX];

    for (uint32_t i = 0; i < file->key_count; i++, key += strlen(key) + 1) {
        snprintf(url, sizeof url, "%.5s%s/%s", place->url, place->bucket, key);
        stk_route_know(copy->io, url, NULL);
    }
}

int stk_copy_remove_keys(struct stoker_copy *copy, struct stk_copy_file *file,
                         struct stoker_error *error)
{
    struct stk_place *place = NULL;
    struct stk_store *store;
    int status = stk_route_lend(copy->io, &store, error);

    status = status < 0 ? status : stk_place_parse(file->from, &place, error);
    status = status < 0 ? status
                        : stk_upload_remove_many(store, place, file->keys, file->key_count, error);
    if (status == 0) {
        atomic_fetch_add_explicit(&copy->files_removed, file->key_count, memory_order_relaxed);
    }
    if (place) {
        forget(copy, place, file); /* also when it failed: some may be gone */
    }
    stk_place_free(place);
    return status;
}

/* Whether the source has what is called so. Of a link that is not followed nobody knows what lies
 * behind it. */
static bool is_of_source(struct stoker_copy *copy, const char *name)
{
    struct stk_view key = {(const uint8_t *)name, strlen(name)};

    if (stk_keys_has(&copy->names, key)) {
        return true;
    }
    for (; copy->left.count > 0 && key.bytes > 0; key.bytes--) {
        if ((name[key.bytes] == '/' || name[key.bytes] == '\0') && stk_keys_has(&copy->left, key)) {
            atomic_fetch_add_explicit(&copy->files_spared, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* The key of what lies below a prefix; "": of what stands for the folder itself. */
static char *key_below(const char *prefix, const char *name)
{
    size_t bytes = strlen(prefix), slash = bytes > 0 && prefix[bytes - 1] != '/';
    char *key = stk_alloc(1, bytes + slash + strlen(name) + 1);

    if (key) {
        memcpy(key, prefix, bytes);
        key[bytes] = '/';
        memcpy(key + bytes + slash, name, strlen(name) + 1);
    }
    return key;
}

/* Items of a walk below root. extra: only what the source does not have, here and now; else all of
 * them, by workers. */
int stk_copy_remove_walk(struct stoker_copy *copy, struct stk_visit *walk, const char *root,
                         bool extra, struct stoker_error *error)
{
    bool url = stk_io_is_url(root);
    struct gathering gathering = {0};
    struct stk_place *place = NULL;
    struct stk_item *item;
    int status = url ? stk_place_parse(root, &place, error) : 0;
    /* Other stores are told of one after the other. */
    uint32_t most = place && place->kind == STK_PLACE_S3 ? STK_UPLOAD_REMOVE_MAX : REMOVE_FEW;

    while (status >= 0 || status == STOKER_ERROR_AGAIN) {
        char *path;

        if (atomic_load_explicit(&copy->stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
            break;
        }
        status = stk_visit_next(walk, TICK_MS, &item, error);
        if (status == 0 || status < 0) {
            if (status == 0) {
                break;
            }
            continue;
        }
        if (extra && is_of_source(copy, item->name)) {
            stk_free(item);
            continue;
        }
        path = url ? key_below(place->key, item->name) : stk_copy_join(root, item->name);
        if (!path) {
            status = stk_fail(error, -ENOMEM, "cannot remove", "free memory", "'%.400s'", root);
        } else if (url) {
            status = gather(copy, &gathering, root, path, error);
            if (status == 0 && (gathering.count == most ||
                                gathering.used + STK_VISIT_PATH_BYTES_MAX * 2 > KEYS_BYTES)) {
                status = flush(copy, &gathering, extra, error);
            }
        } else {
            status = stk_io_remove(copy->io, path, error);
            atomic_fetch_add_explicit(&copy->files_removed, status == 0, memory_order_relaxed);
        }
        atomic_fetch_add_explicit(&copy->files, !extra, memory_order_relaxed);
        stk_free(path);
        stk_free(item);
    }
    if (status == 0) {
        status = flush(copy, &gathering, extra, error);
    }
    stk_copy_file_free(gathering.file);
    stk_place_free(place);
    return status;
}

/* A folder of this machine and all in it. Links are removed, and never followed. */
static int remove_folder(struct stoker_copy *copy, const char *path, uint32_t depth,
                         struct stoker_error *error)
{
    struct stk_listing listing = {0};
    int status = depth > DEPTH_MAX
                     ? stk_fail(error, STOKER_ERROR_LIMIT, "folders are nested too deep",
                                "at most 200 levels", "'%.400s'", path)
                     : stk_io_list(copy->io, path, &listing, error);

    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        char *name = stk_copy_join(path, entry->name);

        if (atomic_load_explicit(&copy->stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
        } else if (!name) {
            status = stk_fail(error, -ENOMEM, "cannot remove", "free memory", "'%.400s'", path);
        } else if (entry->kind == STK_ENTRY_DIRECTORY && !entry->link) {
            status = remove_folder(copy, name, depth + 1, error);
        } else {
            status = stk_io_remove(copy->io, name, error);
            atomic_fetch_add_explicit(&copy->files, 1, memory_order_relaxed);
            atomic_fetch_add_explicit(&copy->files_removed, status == 0, memory_order_relaxed);
        }
        stk_free(name);
    }
    stk_listing_free(&listing);
    return status < 0 ? status : stk_io_remove(copy->io, path, error);
}

static int remove_leftovers(struct stoker_copy *copy, const char *path, struct stoker_error *error)
{
    uint64_t now_ns = stk_clock_wall_ns(), age_ns = copy->options.leftover_age_s * 1000000000ull;
    struct stk_place *place = NULL;
    struct stk_store *store;
    uint64_t count = 0;
    int status = stk_route_lend(copy->io, &store, error);

    status = status < 0 ? status : stk_place_parse(path, &place, error);
    if (status == 0 && place->kind != STK_PLACE_S3 && place->kind != STK_PLACE_GOOGLE) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "there are no uploads here",
                          "name s3://bucket/prefix or gs://bucket/prefix", "'%.400s'", path);
    }
    if (status == 0) {
        status = stk_upload_sweep(store, place, now_ns - stk_min(age_ns, now_ns), &count, error);
    }
    atomic_fetch_add_explicit(&copy->files, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->files_removed, count, memory_order_relaxed);
    stk_place_free(place);
    return status;
}

/* One object by its own request: what may be removed may not be listed. */
static int remove_object(struct stoker_copy *copy, const char *url, struct stoker_error *error)
{
    struct stk_place *place = NULL;
    struct stk_store *store;
    int status = stk_route_lend(copy->io, &store, error);

    status = status < 0 ? status : stk_place_parse(url, &place, error);
    status = status < 0 ? status : stk_upload_remove(store, place, error);
    atomic_fetch_add_explicit(&copy->files_removed, status == 0, memory_order_relaxed);
    stk_route_know(copy->io, url, NULL);
    stk_place_free(place);
    return status;
}

int stk_copy_remove(struct stoker_copy *copy, const char *path, struct stoker_error *error)
{
    struct stk_visit_options options = {.io = copy->io, .path = path, .deep = true, .marks = true};
    size_t bytes = strlen(path);
    struct stk_visit *walk = NULL;
    struct stk_stat stat;
    int status;

    if (copy->options.leftovers) {
        return remove_leftovers(copy, path, error);
    }
    if (stk_io_is_url(path) && !stk_copy_can_write(path)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this can only be read",
                        "objects of s3://, gs:// and az://, and files can be removed", "'%.400s'",
                        path);
    }
    options.folder = bytes > 0 && path[bytes - 1] == '/' && copy->options.recursive;
    stat.kind = STK_ENTRY_DIRECTORY;
    status = options.folder ? 0 : stk_io_stat_path(copy->io, path, &stat, error);
    if (status == -EACCES && stk_io_is_url(path) && !copy->options.recursive) {
        /* What may be removed may not be read, or not yet: an archived object. */
        stat.kind = STK_ENTRY_FILE;
        status = 0;
    }
    if (status == 0 && stat.kind == STK_ENTRY_DIRECTORY && !copy->options.recursive) {
        return stk_fail(error, -EISDIR, "this is a folder", "remove it with --recursive",
                        "'%.400s'", path);
    }
    if (status < 0) {
        return status;
    }
    if (stat.kind != STK_ENTRY_DIRECTORY) {
        atomic_fetch_add_explicit(&copy->files, 1, memory_order_relaxed);
        if (stk_io_is_url(path)) {
            return remove_object(copy, path, error);
        }
        status = stk_io_remove(copy->io, path, error);
        atomic_fetch_add_explicit(&copy->files_removed, status == 0, memory_order_relaxed);
        return status;
    }
    if (!stk_io_is_url(path)) {
        return remove_folder(copy, path, 0, error);
    }
    status = stk_visit_open(&walk, &options, error);
    status = status < 0 ? status : stk_copy_remove_walk(copy, walk, path, false, error);
    stk_visit_close(walk);
    return status;
}
