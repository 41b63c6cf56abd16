/* Removes objects in batches of a thousand, and files and folders one by one. */
#include "base/mem.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS 100u
#define KEYS_BYTES (1u << 20) /* of a request */
#define NS_PER_SECOND 1000000000ull
#define REMOVE_BATCH_MIN 8u

/* Names gathered for one request. */
struct key_batch {
    struct stk_copy_file *file;
    size_t used;
    uint32_t count;
};

static int flush(struct stoker_copy *copy, struct key_batch *key_batch, bool here,
                 struct stoker_error *error)
{
    struct stk_copy_file *file = key_batch->file;
    int status = 0;

    key_batch->file = NULL;
    key_batch->used = 0;
    key_batch->count = 0;
    if (!file) {
        return 0;
    }
    if (!here) {
        return stk_copy_queue_push(copy, file); /* for a worker */
    }
    status = stk_copy_remove_keys(copy, file, error);
    stk_copy_file_free(file);
    return status;
}

/* key: of the object, in the bucket of url. */
static int add_key(struct stoker_copy *copy, struct key_batch *key_batch, const char *url,
                   const char *key, struct stoker_error *error)
{
    size_t bytes = strlen(key) + 1;

    if (!key_batch->file) {
        key_batch->file = stk_copy_file_new(url, NULL);
        if (key_batch->file) {
            key_batch->file->keys = stk_alloc(1, KEYS_BYTES);
        }
        if (!key_batch->file || !key_batch->file->keys) {
            stk_copy_file_free(key_batch->file);
            key_batch->file = NULL;
            return stk_fail(error, -ENOMEM, "cannot remove", "free memory", "'%.400s'", url);
        }
    }
    memcpy(key_batch->file->keys + key_batch->used, key, bytes);
    key_batch->used += bytes;
    key_batch->file->key_count = ++key_batch->count;
    (void)copy;
    return 0;
}

/* Drops their cached metadata. */
static void drop_metadata(struct stoker_copy *copy, const struct stk_object_url *object,
                          const struct stk_copy_file *file)
{
    const char *key = file->keys;
    char url[2 * STK_STORE_URL_BYTES_MAX];

    for (uint32_t i = 0; i < file->key_count; i++, key += strlen(key) + 1) {
        snprintf(url, sizeof url, "%.5s%s/%s", object->url, object->bucket, key);
        stk_vfs_set_metadata(copy->io, url, NULL);
    }
}

int stk_copy_remove_keys(struct stoker_copy *copy, struct stk_copy_file *file,
                         struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    int status = stk_vfs_get_store(copy->io, &store, error);

    status = status < 0 ? status : stk_object_url_parse(file->from, &object, error);
    status = status < 0 ? status
                        : stk_upload_remove_many(store, object, file->keys, file->key_count, error);
    if (status == 0) {
        atomic_fetch_add_explicit(&copy->files_removed, file->key_count, memory_order_relaxed);
    }
    if (object) {
        drop_metadata(copy, object, file); /* also after a failure: some may be removed */
    }
    stk_object_url_free(object);
    return status;
}

/* Notes a file that a dry run would remove. */
static int note_removal(struct stoker_copy *copy, const char *root, const char *name)
{
    char *path = stk_copy_join_path(root, name);

    stk_copy_note(copy, STOKER_NOTE_WOULD_REMOVE, path ? path : name, NULL, NULL);
    stk_free(path);
    atomic_fetch_add_explicit(&copy->files_removed, 1, memory_order_relaxed);
    return 0;
}

/* Returns true if this run copied the file, or found it up to date, under a name that differs in
 * case or Unicode form. */
static bool is_of_this_run(struct stoker_copy *copy, const char *root, const char *name)
{
    char *path = stk_copy_join_path(root, name);
    struct stk_stat stat;
    bool has = !path || stk_io_stat_path(copy->io, path, &stat, NULL) < 0 ||
               stk_copy_has_inode(copy, stat.inode);

    stk_free(path);
    return has;
}

/* True if the source has an entry of this name. The contents behind a link that is not followed are
 * unknown. */
static bool is_in_source(struct stoker_copy *copy, const char *root, const char *name)
{
    struct stk_view key = {(const uint8_t *)name, strlen(name)};

    if (stk_key_set_has(&copy->names, key) ||
        (copy->folds_names && is_of_this_run(copy, root, name))) {
        return true;
    }
    for (; copy->other_names.count > 0 && key.bytes > 0; key.bytes--) {
        if ((name[key.bytes] == '/' || name[key.bytes] == '\0') &&
            stk_key_set_has(&copy->other_names, key)) {
            char *path = stk_copy_join_path(root, name);

            stk_copy_note(copy, STOKER_NOTE_NOT_DELETED, path ? path : name, NULL, NULL);
            stk_free(path);
            atomic_fetch_add_explicit(&copy->files_spared, 1, memory_order_relaxed);
            return true;
        }
    }
    return false;
}

/* The key below a prefix; "": the object that represents the folder itself. */
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

/* Items of a walk below root. extra: only entries that the source does not have, removed at once;
 * else all of them, by workers. */
int stk_copy_remove_walk(struct stoker_copy *copy, struct stk_walk *walk, const char *root,
                         bool extra, struct stoker_error *error)
{
    bool url = stk_io_is_url(root);
    struct key_batch key_batch = {0};
    struct stk_object_url *object = NULL;
    struct stk_walk_entry *item;
    int status = url ? stk_object_url_parse(root, &object, error) : 0;
    /* Other stores have no batches: one request for each. */
    uint32_t most =
        object && object->kind == STK_OBJECT_URL_S3 ? STK_UPLOAD_REMOVE_MAX : REMOVE_BATCH_MIN;

    while (status >= 0 || status == STOKER_ERROR_AGAIN) {
        char *path;

        if (stk_background_job_is_stopping(&copy->job)) {
            status = STOKER_ERROR_CLOSED;
            break;
        }
        status = stk_walk_next(walk, TICK_MS, &item, error);
        if (status == 0 || status < 0) {
            if (status == 0) {
                break;
            }
            continue;
        }
        if ((copy->filter_count > 0 && !stk_copy_is_selected(copy, item->name)) ||
            (extra && stk_copy_is_system_file(copy, item->name)) ||
            (extra && is_in_source(copy, root, item->name))) {
            stk_free(item);
            continue;
        }
        if (extra && copy->options.dry_run) {
            status = note_removal(copy, root, item->name);
            stk_free(item);
            continue;
        }
        path = url ? key_below(object->key, item->name) : NULL;
        if (url && !path) {
            status = stk_fail(error, -ENOMEM, "cannot remove", "free memory", "'%.400s'", root);
        } else if (url) {
            status = add_key(copy, &key_batch, root, path, error);
            if (status == 0 && (key_batch.count == most ||
                                key_batch.used + STK_WALK_PATH_BYTES_MAX * 2 > KEYS_BYTES)) {
                status = flush(copy, &key_batch, extra, error);
            }
        } else {
            status = stk_io_remove_below(copy->io, root, item->name, error);
            atomic_fetch_add_explicit(&copy->files_removed, status == 0, memory_order_relaxed);
        }
        atomic_fetch_add_explicit(&copy->files, !extra, memory_order_relaxed);
        stk_free(path);
        stk_free(item);
    }
    if (status == 0) {
        status = flush(copy, &key_batch, extra, error);
    }
    stk_copy_file_free(key_batch.file);
    stk_object_url_free(object);
    return status;
}

struct local_removal {
    struct stoker_copy *copy;
    const char *path;
};

static int visit_local(void *context, const char *name)
{
    struct local_removal *removal = context;
    struct stoker_copy *copy = removal->copy;

    if (stk_background_job_is_stopping(&copy->job)) {
        return STOKER_ERROR_CLOSED;
    }
    if (name[0] && !stk_copy_is_selected(copy, name)) {
        return 0;
    }
    atomic_fetch_add_explicit(&copy->files, 1, memory_order_relaxed);
    return copy->options.dry_run ? note_removal(copy, removal->path, name) : 1;
}

static void count_removed(void *context)
{
    struct local_removal *removal = context;

    atomic_fetch_add_explicit(&removal->copy->files_removed, 1, memory_order_relaxed);
}

static int fail_removal(void *context, const char *name, int status,
                        const struct stoker_error *error)
{
    struct local_removal *removal = context;
    char *path = stk_copy_join_path(removal->path, name);

    status = stk_copy_fail_entry(removal->copy, status, path ? path : name, error);
    stk_free(path);
    return status;
}

/* A file, a link (never its target), or a folder with everything below it. */
static int remove_local(struct stoker_copy *copy, const char *path, struct stoker_error *error)
{
    struct local_removal removal = {.copy = copy, .path = path};
    struct stk_tree_removal how = {.context = &removal,
                                   .visit = visit_local,
                                   .removed = count_removed,
                                   .failed = fail_removal,
                                   .folders = copy->options.recursive != 0};

    return stk_io_remove_tree(copy->io, path, &how, error);
}

static int remove_partial_files(struct stoker_copy *copy, const char *path,
                                struct stoker_error *error)
{
    uint64_t age_ns =
        stk_min(copy->options.unfinished_age_s, UINT64_MAX / NS_PER_SECOND) * NS_PER_SECOND;
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    uint64_t count = 0;
    int status = stk_vfs_get_store(copy->io, &store, error);

    status = status < 0 ? status : stk_object_url_parse(path, &object, error);
    if (status == 0 && object->kind != STK_OBJECT_URL_S3 && object->kind != STK_OBJECT_URL_GCS) {
        status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this location has no uploads",
                          "name s3://bucket/prefix or gs://bucket/prefix", "'%.400s'", path);
    }
    if (status == 0) {
        status = stk_upload_abort_older(store, object, age_ns, &count, error);
    }
    atomic_fetch_add_explicit(&copy->files, count, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->files_removed, count, memory_order_relaxed);
    stk_object_url_free(object);
    return status;
}

/* One object by its own request: the permission to remove does not imply the permission to list. */
static int remove_object(struct stoker_copy *copy, const char *url, struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    struct stk_store *store;
    int status = stk_vfs_get_store(copy->io, &store, error);

    status = status < 0 ? status : stk_object_url_parse(url, &object, error);
    status = status < 0 ? status : stk_upload_remove(store, object, error);
    atomic_fetch_add_explicit(&copy->files_removed, status == 0, memory_order_relaxed);
    stk_vfs_set_metadata(copy->io, url, NULL);
    stk_object_url_free(object);
    return status;
}

int stk_copy_remove(struct stoker_copy *copy, const char *path, struct stoker_error *error)
{
    struct stk_walk_options options = {
        .io = copy->io, .path = path, .deep = true, .folder_markers = true};
    size_t bytes = strlen(path);
    uint64_t before = atomic_load_explicit(&copy->files, memory_order_relaxed);
    struct stk_walk *walk = NULL;
    struct stk_stat stat;
    int status;

    if (copy->options.unfinished_uploads) {
        return copy->options.dry_run
                   ? stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                              "a dry run does not list unfinished uploads",
                              "leave out the dry run, or list them with the store's own tool",
                              "'%.400s'", path)
                   : remove_partial_files(copy, path, error);
    }
    if (stk_io_is_url(path) && !stk_copy_can_write(path)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this location is read-only",
                        "objects of s3://, gs:// and az://, and files can be removed", "'%.400s'",
                        path);
    }
    if (!stk_io_is_url(path)) {
        return remove_local(copy, path, error);
    }
    options.folder = bytes > 0 && path[bytes - 1] == '/' && copy->options.recursive;
    stat.kind = STK_ENTRY_DIRECTORY;
    status = options.folder ? 0 : stk_io_stat_path(copy->io, path, &stat, error);
    if (status == -EACCES && !copy->options.recursive) {
        /* An object may be removable although it cannot be read, such as an archived one. */
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
        if (copy->filter_count > 0 &&
            !stk_copy_is_selected(copy, stk_copy_base_name(path, &bytes))) {
            return 0;
        }
        status =
            copy->options.dry_run ? note_removal(copy, path, "") : remove_object(copy, path, error);
        if (status < 0 || !copy->options.recursive || !stk_copy_has_objects(copy, path)) {
            return status;
        }
        options.folder = true; /* an object, and also the prefix of others */
    }
    status = stk_walk_open(&walk, &options, error);
    status = status < 0 ? status : stk_copy_remove_walk(copy, walk, path, false, error);
    stk_walk_close(walk);
    if (status == 0 && options.folder &&
        atomic_load_explicit(&copy->files, memory_order_relaxed) == before) {
        status = stk_walk_check_prefix(copy->io, path, error);
    }
    return status;
}
