/* The planner: finds the files to copy, and their destinations. */
#include "base/mem.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TICK_MS 100u

static int plan_source(struct stoker_copy *copy, const char *source, struct stoker_error *error);
static int skip_entry(struct stoker_copy *copy, const char *source, const char *name,
                      struct stoker_error *error);
static int plan_entry(struct stoker_copy *copy, const char *source,
                      const struct stk_walk_entry *entry, struct stoker_error *error);

/* A folder of this machine: created, with all above it that is missing, and opened. */
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
    return status < 0 ? status
                      : stk_io_open_beneath(copy->io, copy->destination, &copy->to_io, error);
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
                   copy->name_count > 0 || is_folder_name(copy->destination);
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
        bool url = stk_io_is_url(copy->sources[i]) && is_folder_name(copy->sources[i]);
        int status = url ? 0 : stk_io_stat_path(copy->io, copy->sources[i], &stat, error);

        if (status < 0) {
            return status;
        }
        copy->folder = url || stat.kind == STK_ENTRY_DIRECTORY;
    }
    if (copy->folder && copy->remote && options->update) {
        return stk_copy_destination_list(copy, error);
    }
    if (copy->folder && !copy->remote && !options->dry_run) {
        int status = make_root(copy, error);

        if (status == 0) {
            stk_copy_destination_probe(copy);
        }
        return status;
    }
    return 0;
}

/* The real path of the destination: of its deepest folder that exists, and the rest as text. */
static void resolve_local(const struct stoker_copy *copy, char *real)
{
    char *path = stk_strdup(copy->destination), *slash;
    const char *rest;
    size_t used;

    real[0] = '\0';
    while (path &&
           stk_io_resolve(copy->io,
                          path[0]                       ? path
                          : copy->destination[0] == '/' ? "/"
                                                        : ".",
                          real, STK_COPY_PATH_BYTES_MAX) < 0 &&
           path[0]) {
        slash = strrchr(path, '/');
        *(slash ? slash : path) = '\0';
    }
    rest = copy->destination + (path ? strlen(path) : 0);
    rest += strspn(rest, "/");
    used = strlen(real);
    if (rest[0] && used + strlen(rest) + 2 < STK_COPY_PATH_BYTES_MAX) {
        snprintf(real + used, STK_COPY_PATH_BYTES_MAX - used, "%s%s",
                 used > 0 && real[used - 1] == '/' ? "" : "/", rest);
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

/* Writes a place of a store as kind, bucket and key, so that "S3://b" equals "s3://b/". */
static int name_place(const char *url, char *text, struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    int status = stk_vfs_is_external_url(url) ? 0 : stk_object_url_parse(url, &object, error);

    if (object && stk_object_url_has_key(object)) {
        snprintf(text, STK_COPY_PATH_BYTES_MAX, "%u/%s/%s", object->kind, object->bucket,
                 object->key);
    } else {
        snprintf(text, STK_COPY_PATH_BYTES_MAX, "%s", url);
    }
    stk_object_url_free(object);
    return status;
}

/* A folder that is copied into itself never ends, and a source inside a destination where all other
 * files are removed would be removed. */
static int check_nesting(const struct stoker_copy *copy, const char *source,
                         struct stoker_error *error)
{
    char real[STK_COPY_PATH_BYTES_MAX], target[STK_COPY_PATH_BYTES_MAX];
    const char *from = source, *to = copy->destination;
    struct stk_stat stat;

    if (!copy->options.recursive || copy->remote != stk_io_is_url(source)) {
        return 0;
    }
    if (copy->remote) {
        int status = name_place(source, real, error);

        status = status < 0 ? status : name_place(copy->destination, target, error);
        if (status < 0) {
            return status;
        }
        from = real;
        to = target;
    } else {
        if (stk_io_resolve(copy->io, source, real, sizeof real) < 0 ||
            stk_io_stat_path(copy->io, source, &stat, NULL) < 0 ||
            stat.kind != STK_ENTRY_DIRECTORY) {
            return 0;
        }
        resolve_local(copy, target);
        from = real;
        to = target;
    }
    if (copy->remote && is_in(to, from) && is_in(from, to)) {
        return 0; /* to other keys or another class: each object onto itself */
    }
    if (is_in(to, from)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the destination is inside the source",
                        "copy to a folder outside of it", "'%.300s' into '%.300s'", source,
                        copy->destination);
    }
    if (copy->options.delete_extra && is_in(from, to)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT,
                        "the source is inside the destination, and would be removed",
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
        status = copy->options.kind == STOKER_REMOVE
                     ? stk_copy_remove(copy, copy->sources[i], error)
                     : plan_source(copy, copy->sources[i], error);
        if (status < 0 && status != STOKER_ERROR_CLOSED && copy->options.source_count > 1) {
            status = stk_copy_fail_entry(copy, status, copy->sources[i], error);
        }
    }
    if (status == 0 && copy->options.delete_extra &&
        atomic_load_explicit(&copy->files, memory_order_relaxed) == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "the source is empty: nothing is removed",
                          "check the source; use 'stoker rm' to remove everything", "'%.400s'",
                          copy->sources[0]);
    }
    return status;
}

/* An entry of a walk. */
static int take_entry(struct stoker_copy *copy, const char *source,
                      const struct stk_walk_entry *entry, struct stoker_error *error)
{
    if (copy->filter_count > 0) {
        char *base = entry->name[0] ? NULL : stk_copy_entry_name(source);
        bool selected = stk_copy_is_selected(copy, base ? base : entry->name);

        stk_free(base);
        if (!selected) {
            return 0;
        }
    }
    if (stk_copy_is_system_file(copy, entry->name)) {
        char *path =
            entry->kind == STK_ENTRY_DIRECTORY ? NULL : stk_copy_join_path(source, entry->name);

        if (path) {
            stk_copy_note(copy, STOKER_NOTE_SYSTEM_FILE, path, NULL, NULL);
            atomic_fetch_add_explicit(&copy->system_files_left_out, 1, memory_order_relaxed);
            stk_free(path);
        }
        return 0;
    }
    return entry->kind == STK_ENTRY_OTHER ? skip_entry(copy, source, entry->name, error)
                                          : plan_entry(copy, source, entry, error);
}

static int walk_source(struct stoker_copy *copy, const char *source, const char *below,
                       struct stoker_error *error);

/* The files and folders of options.names. */
static int plan_names(struct stoker_copy *copy, const char *source, struct stoker_error *error)
{
    int status = 0;

    for (size_t i = 0; i < copy->name_count && status == 0; i++) {
        const char *name = copy->names_only[i];

        status =
            stk_copy_is_safe_path(name)
                ? walk_source(copy, source, name, error)
                : stk_fail(error, STOKER_ERROR_ARGUMENT, "a name is not below the source",
                           "list paths relative to the source, without '..'", "'%.400s'", name);
        if (status < 0 && status != STOKER_ERROR_CLOSED) {
            status = stk_copy_fail_entry(copy, status, name, error);
        }
    }
    return status;
}

static int plan_source(struct stoker_copy *copy, const char *source, struct stoker_error *error)
{
    return copy->name_count > 0 ? plan_names(copy, source, error)
                                : walk_source(copy, source, "", error);
}

/* The entry with its name below another root. The result borrows from entry; free it. */
static struct stk_walk_entry *add_prefix(const struct stk_walk_entry *entry, const char *below)
{
    size_t bytes = strlen(entry->name), slash = bytes > 0, prefix = strlen(below);
    struct stk_walk_entry *named = stk_alloc(1, sizeof *named + prefix + slash + bytes + 1);

    if (named) {
        *named = *entry;
        memcpy(named->name, below, prefix);
        named->name[prefix] = '/';
        memcpy(named->name + prefix + slash, entry->name, bytes + 1);
    }
    return named;
}

/* below: a name of options.names: its entries have this path before their names. */
static int walk_source(struct stoker_copy *copy, const char *source, const char *below,
                       struct stoker_error *error)
{
    char *path = stk_copy_join_path(source, below);
    struct stk_walk_options options = {
        .io = copy->io,
        .path = path,
        .deep = copy->options.recursive != 0,
        .special_files = true,
    };
    struct stk_walk *walk = NULL;
    struct stk_walk_entry *entry;
    struct stk_stat root = {0};
    uint64_t seen = 0;
    int status = path ? stk_copy_choose_folder(copy, path, &options.folder, error)
                      : stk_fail_memory(error, "copy");

    if (!stk_io_is_url(source)) {
        (void)stk_io_stat_path(copy->io, source, &root, NULL); /* else the walk fails */
    }
    copy->root_device = root.device;
    copy->root_inode = root.inode;
    status = status < 0 ? status : stk_walk_open(&walk, &options, error);
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
            struct stk_walk_entry *named = below[0] ? add_prefix(entry, below) : entry;

            seen++;
            if (!named) {
                status = stk_fail_memory(error, "copy");
            } else if (below[0] && !copy->options.recursive && entry->name[0]) {
                status = stk_fail(error, -EISDIR, "this is a folder", "copy it with --recursive",
                                  "'%.400s'", path);
            } else {
                status = take_entry(copy, source, named, error);
            }
            stk_free(named == entry ? NULL : named);
            stk_free(entry);
        }
    }
    stk_walk_close(walk);
    if (status == 0 && seen == 0 && options.folder) {
        status = stk_walk_check_prefix(copy->io, path, error);
    }
    stk_free(path);
    return status;
}

/* A skipped entry of the source: the destination's entries of that name, and below it, are not
 * removed. */
static int skip_entry(struct stoker_copy *copy, const char *source, const char *name,
                      struct stoker_error *error)
{
    struct stk_view key = {(const uint8_t *)name, strlen(name)};
    char *path = stk_copy_join_path(source, name);

    stk_copy_note(copy, STOKER_NOTE_LEFT_OUT, path ? path : name, NULL, NULL);
    stk_free(path);
    atomic_fetch_add_explicit(&copy->links_left_out, 1, memory_order_relaxed);
    return copy->options.delete_extra && stk_key_set_add(&copy->other_names, key) < 0
               ? stk_fail(error, -ENOMEM, "cannot copy", "free memory", "copy")
               : 0;
}

void stk_copy_count_skipped(struct stoker_copy *copy, uint64_t bytes)
{
    atomic_fetch_add_explicit(&copy->files_skipped, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->files_done, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->bytes_skipped, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&copy->bytes_done, bytes, memory_order_relaxed);
}

/* Compares the destination with an entry. Returns enum stk_copy_decision, or a status below 0. */
static int compare_destination(struct stoker_copy *copy, const char *source, const char *to,
                               const char *name, const struct stk_walk_entry *entry,
                               struct stoker_error *error)
{
    struct stk_stat stat = {.kind = STK_ENTRY_FILE};
    int decision;

    if (!copy->options.update) {
        return STK_COPY_NEEDED;
    }
    if (copy->remote && copy->folder) {
        if (!stk_copy_destination_find(copy, name, &stat.bytes, &stat.mtime_ns)) {
            return STK_COPY_NEEDED;
        }
    } else if (stk_io_stat_path(copy->io, to, &stat, NULL) < 0) {
        return STK_COPY_NEEDED;
    }
    decision = stk_copy_compare(copy, source, &stat, entry);
    if (decision != STK_COPY_NEEDED && copy->folds_names) {
        int added = stk_copy_add_inode(copy, stat.inode);

        return added == 1 ? decision : stk_copy_fail_folded(added, to, error);
    }
    return decision;
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
    if (entry->kind != STK_ENTRY_FILE ||
        (!copy->options.recursive && entry->name[0] && copy->name_count == 0)) {
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
    int status = from ? 0 : -ENOMEM, decision = STK_COPY_NEEDED;

    if (status == 0 && !name[0]) { /* the source itself */
        base = stk_copy_entry_name(source);
        name = base;
    }
    if (status == 0 && name) {
        status = check_entry(copy, source, entry, name, error);
        if (status < 0 && status != -EISDIR && status != -ENOTDIR && status != -ENOMEM) {
            status = stk_copy_fail_entry(copy, status, from, error);
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
        decision = compare_destination(copy, source, to, name, entry, error);
        if (decision < 0) {
            status = stk_copy_fail_entry(copy, decision, from, error);
            goto done;
        }
        if (decision == STK_COPY_SKIP) {
            stk_copy_count_skipped(copy, entry->bytes);
            goto done;
        }
        file = stk_copy_file_new(from, to);
    }
    if (!file) {
        status = stk_fail(error, -ENOMEM, "cannot copy", "free memory", "'%.400s'", source);
        goto done;
    }
    file->root = source;
    file->root_device = copy->root_device;
    file->root_inode = copy->root_inode;
    file->bytes = entry->bytes;
    file->mtime_ns = entry->mtime_ns;
    file->version = entry->version;
    file->check = decision == STK_COPY_CHECK;
    if (file->check) {
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
    if (status == -ENOENT && copy->options.dry_run) {
        status = 0; /* it would have been created */
    }
    return status;
}
