/* The planner: finds the files to copy, and their destinations. */
#include "base/mem.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS 100u

static int plan_source(struct stoker_copy *copy, const char *source, struct stoker_error *error);
static int skip_entry(struct stoker_copy *copy, const char *name, struct stoker_error *error);
static int plan_entry(struct stoker_copy *copy, const char *source,
                      const struct stk_walk_entry *entry, struct stoker_error *error);

/* A folder of this machine: made, with all above it that is missing; and its real path. */
static int make_root(struct stoker_copy *copy, struct stoker_error *error)
{
    size_t bytes = strlen(copy->destination);
    struct stk_stat stat;
    char *path;
    int status = 0;

    if (stk_io_stat_path(copy->io, copy->destination, &stat, NULL) < 0) {
        path = stk_strdup(copy->destination);
        if (!path) {
            return stk_fail(error, -ENOMEM, "cannot copy", "free memory", "copy");
        }
        for (size_t at = 1; at <= bytes && status == 0; at++) {
            char here = path[at];

            if ((here == '/' || here == '\0') && path[at - 1] != '/') {
                path[at] = '\0';
                if (stk_io_stat_path(copy->io, path, &stat, NULL) < 0) {
                    status = stk_io_make_directory(copy->io, path, false, error);
                }
                path[at] = here;
            }
        }
        stk_free(path);
    } else if (stat.kind != STK_ENTRY_DIRECTORY) {
        status = stk_fail(error, -ENOTDIR, "the destination is a file, but the source is a folder",
                          "name a folder", "'%.400s'", copy->destination);
    }
    if (status == 0) {
        status = stk_io_resolve(copy->io, copy->destination, copy->root, sizeof copy->root);
        if (status < 0) {
            stk_fail_errno(error, -status, "cannot follow the path", "check the path", "'%.400s'",
                           copy->destination);
        }
    }
    return status;
}

static bool is_folder_name(const char *path)
{
    size_t bytes = strlen(path);

    return bytes > 0 && path[bytes - 1] == '/';
}

/* Whether names go below the destination. */
static int find_destination_kind(struct stoker_copy *copy, struct stoker_error *error)
{
    const struct stoker_copy_options *options = &copy->options;
    struct stk_object_url *object = NULL;
    struct stk_stat stat;

    if (copy->remote) { /* "s3://" names none */
        int status = stk_object_url_parse(copy->destination, &object, error);

        if (status < 0) {
            return status;
        }
        stk_object_url_free(object);
    }
    copy->folder = options->source_count > 1 || options->kind == STOKER_SYNC ||
                   is_folder_name(copy->destination);
    if (copy->remote) {
        const char *key = strchr(copy->destination + 5, '/');

        copy->folder = copy->folder || !key || !key[1];
    } else if (stk_io_stat_path(copy->io, copy->destination, &stat, NULL) == 0) {
        if (stat.kind == STK_ENTRY_OTHER) {
            return stk_fail_errno(error, ENXIO, "cannot write there",
                                  "name a file or a folder: this is a pipe or a device, to which "
                                  "'stoker cat' writes",
                                  "'%.400s'", copy->destination);
        }
        copy->folder = copy->folder || stat.kind == STK_ENTRY_DIRECTORY;
    }
    for (size_t i = 0; i < options->source_count && options->recursive && !copy->folder; i++) {
        int status = stk_io_stat_path(copy->io, copy->sources[i], &stat, error);

        if (status < 0) {
            return status;
        }
        copy->folder = stat.kind == STK_ENTRY_DIRECTORY;
    }
    if (copy->folder && copy->remote && options->update) {
        return stk_copy_destination_list(copy, error);
    }
    return copy->folder && !copy->remote ? make_root(copy, error) : 0;
}

/* The real path of the destination, or of its deepest folder that exists. */
static void resolve_local(const struct stoker_copy *copy, char *real)
{
    char *path = stk_strdup(copy->destination), *slash;

    real[0] = '\0';
    while (path &&
           stk_io_resolve(copy->io, path[0] ? path : ".", real, STK_COPY_PATH_BYTES_MAX) < 0 &&
           path[0]) {
        slash = strrchr(path, '/');
        *(slash ? slash : path) = '\0';
    }
    stk_free(path);
}

static bool is_in(const char *path, const char *folder)
{
    size_t bytes = strlen(folder);

    while (bytes > 0 && folder[bytes - 1] == '/') {
        bytes--;
    }
    return strncmp(path, folder, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0');
}

/* A folder that is copied into itself never ends, and one that lies in a destination where all else
 * is removed is removed. */
static int check_nesting(const struct stoker_copy *copy, const char *source,
                         struct stoker_error *error)
{
    char real[STK_COPY_PATH_BYTES_MAX], near[STK_COPY_PATH_BYTES_MAX];
    const char *from = source, *to = copy->destination;
    struct stk_stat stat;

    if (!copy->options.recursive || copy->remote != stk_io_is_url(source)) {
        return 0;
    }
    if (!copy->remote) {
        if (stk_io_resolve(copy->io, source, real, sizeof real) < 0 ||
            stk_io_stat_path(copy->io, source, &stat, NULL) < 0 ||
            stat.kind != STK_ENTRY_DIRECTORY) {
            return 0;
        }
        resolve_local(copy, near);
        from = real;
        to = near;
    }
    if (copy->remote && is_in(to, from) && is_in(from, to)) {
        return 0; /* to other keys or another class: each object onto itself */
    }
    if (is_in(to, from)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the destination lies in the source",
                        "copy to a folder outside of it", "'%.300s' into '%.300s'", source,
                        copy->destination);
    }
    if (copy->options.delete_extra && is_in(from, to)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "the source lies in the destination, and would be removed",
                        "sync to a folder next to it", "'%.300s' in '%.300s'", source,
                        copy->destination);
    }
    return 0;
}

int stk_copy_plan(struct stoker_copy *copy, struct stoker_error *error)
{
    int status = 0;

    for (size_t i = 0; i < copy->options.source_count && status == 0 && copy->destination; i++) {
        status = check_nesting(copy, copy->sources[i], error);
    }
    if (status == 0 && copy->destination) {
        status = find_destination_kind(copy, error);
    }
    for (size_t i = 0; i < copy->options.source_count && status == 0; i++) {
        if (copy->options.kind == STOKER_REMOVE) {
            status = stk_copy_remove(copy, copy->sources[i], error);
            continue;
        }
        status = plan_source(copy, copy->sources[i], error);
    }
    if (status == 0 && copy->options.delete_extra &&
        atomic_load_explicit(&copy->files, memory_order_relaxed) == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "the source is empty: nothing is removed",
                          "check the source; use 'stoker rm' to remove everything", "'%.400s'",
                          copy->sources[0]);
    }
    return status;
}

static int plan_source(struct stoker_copy *copy, const char *source, struct stoker_error *error)
{
    struct stk_walk_options options = {
        .io = copy->io,
        .path = source,
        .deep = copy->options.recursive != 0,
        .folder = copy->options.recursive && is_folder_name(source),
        .special_files = true,
    };
    struct stk_walk *walk = NULL;
    struct stk_walk_entry *entry;
    int status = stk_walk_open(&walk, &options, error);

    while (status >= 0 || status == STOKER_ERROR_AGAIN) {
        if (stk_background_job_is_stopping(&copy->job)) {
            status = STOKER_ERROR_CLOSED;
            break;
        }
        status = stk_walk_next(walk, TICK_MS, &entry, error);
        if (status == 0) {
            break;
        }
        if (status == 1) {
            status = entry->kind == STK_ENTRY_OTHER ? skip_entry(copy, entry->name, error)
                                                    : plan_entry(copy, source, entry, error);
            stk_free(entry);
        }
    }
    stk_walk_close(walk);
    return status;
}

/* A skipped entry of the source: the destination's entries of that name, and below it, are not
 * removed. */
static int skip_entry(struct stoker_copy *copy, const char *name, struct stoker_error *error)
{
    struct stk_view key = {(const uint8_t *)name, strlen(name)};

    atomic_fetch_add_explicit(&copy->links_left_out, 1, memory_order_relaxed);
    return copy->options.delete_extra && stk_key_set_add(&copy->other_names, key) < 0
               ? stk_fail(error, -ENOMEM, "cannot copy", "free memory", "copy")
               : 0;
}

void stk_copy_count_skipped(struct stoker_copy *copy, uint64_t bytes)
{
    atomic_fetch_add_explicit(&copy->files_kept, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->files_done, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->bytes_kept, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->bytes_done, bytes, memory_order_relaxed);
}

/* Returns true if the destination is up to date, or may be, by its hash, if the source has one. */
static bool is_unchanged(struct stoker_copy *copy, const char *to, const char *name,
                         const struct stk_walk_entry *entry)
{
    struct stk_stat stat = {.kind = STK_ENTRY_FILE};

    if (!copy->options.update) {
        return false;
    }
    if (copy->remote && copy->folder) {
        if (!stk_copy_destination_find(copy, name, &stat.bytes, &stat.mtime_ns)) {
            return false;
        }
    } else if (stk_io_stat_path(copy->io, to, &stat, NULL) < 0) {
        return false;
    }
    /* Stores report full seconds. Times before 1970 occur, too: archives without a time produce
     * them. */
    if (stat.kind != STK_ENTRY_FILE || stat.bytes != entry->bytes ||
        (stat.bytes > 0 && (int64_t)stat.mtime_ns + 999999999 < (int64_t)entry->mtime_ns)) {
        return false;
    }
    return true;
}

/* Only this file fails; the copy continues. */
static int note_entry(struct stoker_copy *copy, int status, const struct stoker_error *error)
{
    atomic_fetch_add_explicit(&copy->files_failed, 1, memory_order_relaxed);
    pthread_mutex_lock(&copy->job.lock);
    stk_background_job_fail_locked(&copy->job, status, error);
    pthread_mutex_unlock(&copy->job.lock);
    return atomic_load_explicit(&copy->files_failed, memory_order_relaxed) < STK_COPY_FAILURES_MAX
               ? 0
               : status;
}

static int check_entry(struct stoker_copy *copy, const char *source,
                       const struct stk_walk_entry *entry, const char *name,
                       struct stoker_error *error)
{
    if (copy->options.kind == STOKER_SYNC && !entry->name[0]) {
        /* This may be a page that a web server made of a folder: do not remove destination entries
         * that it lacks. */
        return stk_fail(error, -ENOTDIR, "the source is a file; sync needs a folder",
                        "copy a file with 'stoker cp'; for web servers name each file", "'%.400s'",
                        source);
    }
    if (entry->kind != STK_ENTRY_FILE || (!copy->options.recursive && entry->name[0])) {
        return stk_fail(error, -EISDIR, "this is a folder", "copy it with --recursive", "'%.400s'",
                        source);
    }
    if (!copy->remote && copy->folder && !stk_copy_is_safe_path(name)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an object key is not a valid local path",
                        "copy it alone, to a name that you choose", "'%.400s' key '%.200s'", source,
                        name);
    }
    if (copy->keep_names) {
        int fresh =
            stk_key_set_add(&copy->names, (struct stk_view){(const uint8_t *)name, strlen(name)});

        if (fresh < 0) {
            return stk_fail(error, -ENOMEM, "cannot copy", "free memory", "copy");
        }
        if (fresh == 0) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "two sources have the same name",
                            "copy them to different folders", "'%.300s' name '%.200s'", source,
                            name);
        }
    }
    return 0;
}

static int plan_entry(struct stoker_copy *copy, const char *source,
                      const struct stk_walk_entry *entry, struct stoker_error *error)
{
    struct stk_copy_file *file = NULL;
    char *from = stk_copy_join_path(source, entry->name), *to = NULL, *base = NULL;
    const char *name = entry->name;
    bool kept = false;
    int status = from ? 0 : -ENOMEM;

    if (status == 0 && !name[0]) { /* the source itself */
        size_t bytes;
        const char *at = stk_copy_base_name(source, &bytes);

        base = stk_alloc(1, bytes + 1);
        if (base) {
            memcpy(base, at, bytes);
        }
        name = base;
    }
    if (status == 0 && name) {
        status = check_entry(copy, source, entry, name, error);
        if (status < 0 && status != -EISDIR && status != -ENOTDIR && status != -ENOMEM) {
            status = note_entry(copy, status, error);
            goto done;
        }
        to = copy->folder ? stk_copy_join_path(copy->destination, name)
                          : stk_strdup(copy->destination);
    }
    if (status < 0 && status != -ENOMEM) {
        goto done;
    }
    if (status == 0 && to) {
        atomic_fetch_add_explicit(&copy->files, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&copy->bytes, entry->bytes, memory_order_relaxed);
        kept = is_unchanged(copy, to, name, entry);
        if (kept && !entry->hash[0]) {
            stk_copy_count_skipped(copy, entry->bytes);
            goto done;
        }
        file = stk_copy_file_new(from, to);
    }
    if (!file) {
        status = stk_fail(error, -ENOMEM, "cannot copy", "free memory", "'%.400s'", source);
        goto done;
    }
    file->bytes = entry->bytes;
    file->mtime_ns = entry->mtime_ns;
    file->version = entry->version;
    if (kept) {
        snprintf(file->hash, sizeof file->hash, "%s",
                 entry->hash); /* a worker reads the destination */
    }
    status = stk_copy_queue_push(copy, file);
done:
    stk_free(base);
    stk_free(from);
    stk_free(to);
    return status;
}

int stk_copy_remove_extra(struct stoker_copy *copy, struct stoker_error *error)
{
    struct stk_walk_options options = {
        .io = copy->io, .path = copy->destination, .deep = true, .folder = true};
    struct stk_walk *walk = NULL;
    int status = stk_walk_open(&walk, &options, error);

    if (status == 0) {
        status = stk_copy_remove_walk(copy, walk, copy->destination, true, error);
    }
    stk_walk_close(walk);
    return status;
}
