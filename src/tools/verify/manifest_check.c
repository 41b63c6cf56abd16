/* The folders of a data set, and the manifests in them. */
#include "base/mem.h"
#include "base/text/text_match.h"
#include "tools/verify/verify.h"

#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int list_roots(struct stoker_verify *verify, struct stoker_error *error);
static int read_manifest(struct stoker_verify *verify, struct stk_manifest_root *root,
                         struct stk_verify_findings *findings, struct stoker_error *error);
static int sort_entries(struct stk_manifest_root *root);
static bool is_complete_folder(struct stoker_verify *verify, const char *path);

/* The name in the path's folder. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* Only one repair at a time works on these folders, from before it reads their manifests on. */
static int lock_roots(struct stoker_verify *verify, struct stoker_error *error)
{
    struct stk_io *io = verify->engine->io;
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        struct stk_manifest_root *root = &verify->roots.items[i];
        struct stoker_error cause = {0};
        char path[STK_PATH_BYTES_MAX];

        if (stk_io_is_url(root->path)) {
            return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                            "a data set in an object store cannot be repaired in place",
                            "copy it to this machine, repair it, and upload it: stoker cp",
                            "'%.600s'", root->path);
        }
        if (snprintf(path, sizeof path, "%sstoker.repair.lock", root->path) >= (int)sizeof path) {
            return stk_fail_errno(error, ENAMETOOLONG, "cannot repair", "use a shorter path",
                                  "'%.600s'", root->path);
        }
        status = stk_io_lock(io, path, &root->lock, &cause);
        if (status == -EACCES || status == -EPERM || status == -EROFS) {
            status = 0; /* an error once there is something to be written */
        } else if (status < 0 && error) {
            *error = cause;
        }
    }
    return status;
}

int stk_manifest_roots_open(struct stoker_verify *verify, struct stk_verify_findings *findings,
                            struct stoker_error *error)
{
    struct stk_manifest_roots *roots = &verify->roots;
    int status = 0;

    status = list_roots(verify, error);
    if (status == 0 && verify->options.repair) {
        status = lock_roots(verify, error);
    }
    for (uint32_t i = 0; i < roots->count && status == 0; i++) {
        roots->items[i].complete = is_complete_folder(verify, roots->items[i].path);
        if (verify->objects.kind == STK_SOURCE_TARS) {
            status = read_manifest(verify, &roots->items[i], findings, error);
        }
    }
    for (uint64_t i = 0; i < verify->objects.count && status == 0; i++) {
        const struct stk_manifest_shard *entry = stk_manifest_roots_find(verify, i);
        struct stk_manifest_root *root = &roots->items[roots->of_object[i]];

        if (entry) {
            root->seen[entry - root->manifest.shards] = true;
        }
    }
    return status;
}

void stk_manifest_roots_deinit(struct stoker_verify *verify)
{
    struct stk_manifest_roots *roots = &verify->roots;

    for (uint32_t i = 0; roots->items && i < roots->count; i++) {
        stk_io_unlock(verify->engine->io, roots->items[i].lock);
        stk_free(roots->items[i].path);
        stk_free(roots->items[i].index_file);
        stk_free(roots->items[i].by_name);
        stk_free(roots->items[i].seen);
        stk_manifest_deinit(&roots->items[i].manifest);
        stk_index_close(roots->items[i].index);
    }
    stk_free(roots->items);
    stk_free(roots->of_object);
    stk_free(roots->locations);
    *roots = (struct stk_manifest_roots){0};
}

/* Adds folders that the user named: an index of shards in subfolders is there. */
static int add_urls(struct stoker_verify *verify, struct stk_string_table *folders)
{
    int status = 0;

    for (size_t i = 0; i < verify->options.url_count && status == 0; i++) {
        const char *url = verify->options.urls[i];
        struct stk_stat about = {0};
        char path[STK_PATH_BYTES_MAX];
        size_t bytes;
        uint32_t number;

        url = stk_text_skip_file_scheme(url);
        bytes = strlen(url);
        while (bytes > 1 && url[bytes - 1] == '/') {
            bytes--;
        }
        if (bytes + 2 > sizeof path ||
            stk_io_stat_path(verify->engine->io, url, &about, NULL) < 0 ||
            about.kind != STK_ENTRY_DIRECTORY) {
            continue;
        }
        snprintf(path, sizeof path, "%.*s%s", (int)bytes, url, url[bytes - 1] == '/' ? "" : "/");
        status = stk_string_table_add(
            folders, (struct stk_view){(const uint8_t *)path, strlen(path)}, 1u << 30, &number);
    }
    return status;
}

/* One for each folder that contains a shard. */
static int list_roots(struct stoker_verify *verify, struct stoker_error *error)
{
    struct stk_manifest_roots *roots = &verify->roots;
    bool tars = verify->objects.kind == STK_SOURCE_TARS;
    struct stk_string_table folders = {0};
    int status = -ENOMEM;

    roots->of_object = stk_alloc(verify->objects.count, sizeof *roots->of_object);
    if (!roots->of_object) {
        goto done;
    }
    for (uint64_t i = 0; i < verify->objects.count; i++) {
        const char *path = stk_source_files_path(&verify->objects, i);
        struct stk_view folder = {(const uint8_t *)path, (size_t)(base_name(path) - path)};

        /* A folder of pictures is one root. */
        folder.bytes = tars ? folder.bytes : verify->objects.root_bytes;
        status = stk_string_table_add(&folders, folder, 1u << 30, &roots->of_object[i]);
        if (status < 0) {
            goto done;
        }
    }
    status = tars ? add_urls(verify, &folders) : 0;
    if (status < 0) {
        goto done;
    }
    status = -ENOMEM;
    roots->items = stk_alloc(folders.count + STK_MANIFEST_ROOTS_EXTRA, sizeof *roots->items);
    for (uint32_t i = 0; roots->items && i < folders.count; i++) {
        struct stk_view folder = stk_string_table_get(&folders, i);
        char *path = stk_alloc(folder.bytes + 1, 1);

        if (!path) {
            goto done;
        }
        memcpy(path, folder.data, folder.bytes);
        roots->items[i].path = path;
        roots->count++;
    }
    status = roots->items ? 0 : -ENOMEM;
done:
    stk_string_table_deinit(&folders);
    return status < 0 ? stk_fail_memory(error, "manifest") : 0;
}

/* Whether a url is this folder, or one above it. */
static bool is_complete_folder(struct stoker_verify *verify, const char *path)
{
    for (size_t i = 0; i < verify->options.url_count; i++) {
        const char *url = verify->options.urls[i];
        size_t bytes;
        struct stk_stat about = {0};

        url = stk_text_skip_file_scheme(url);
        bytes = strlen(url);
        while (bytes > 1 && url[bytes - 1] == '/') {
            bytes--;
        }
        if (strncmp(path, url, bytes) == 0 && (path[bytes] == '/' || url[bytes - 1] == '/') &&
            stk_io_stat_path(verify->engine->io, url, &about, NULL) == 0 &&
            about.kind == STK_ENTRY_DIRECTORY) {
            return true;
        }
    }
    return false;
}

/* root/stoker.manifest.json + ending, owned by the caller. */
static char *manifest_path(const struct stk_manifest_root *root, const char *ending)
{
    size_t bytes = strlen(root->path), all = bytes + sizeof STK_MANIFEST_NAME + strlen(ending);
    char *path = stk_alloc(all, 1);

    if (path) {
        memcpy(path, root->path, bytes);
        memcpy(path + bytes, STK_MANIFEST_NAME, sizeof STK_MANIFEST_NAME);
        strncat(path, ending, all - strlen(path) - 1);
    }
    return path;
}

/* Reads a complete file; *data_out is NULL if it does not exist. */
static int read_file(struct stk_io *io, const char *path, uint8_t **data_out, size_t *bytes_out,
                     struct stoker_error *error)
{
    struct stk_file *file;
    struct stk_stat about = {0};
    int64_t got = 0;
    int status = stk_io_open_file(io, path, &file, error);

    *data_out = NULL;
    *bytes_out = 0;
    if (status < 0) {
        return status == -ENOENT ? 0 : status;
    }
    status = stk_io_stat_file(file, &about, error);
    if (status == 0 && about.bytes > STK_MANIFEST_BYTES_MAX) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the manifest is too large",
                          "check what the file is", "%llu bytes", (unsigned long long)about.bytes);
    }
    if (status == 0) {
        *data_out = stk_alloc(about.bytes + 1, 1);
        status = *data_out ? 0 : stk_fail_memory(error, "manifest");
    }
    if (status == 0) {
        got = stk_io_read_wait(file, 0, *data_out, about.bytes);
        status = got < 0 ? stk_fail(error, (int)got, "cannot read the manifest",
                                    "check the disk and the kernel's log (dmesg)", "%s",
                                    stoker_status_text((int)got))
                         : 0;
    }
    stk_io_close_file(file);
    if (status < 0) {
        stk_free(*data_out);
        *data_out = NULL;
        return status;
    }
    *bytes_out = (size_t)got;
    return 0;
}

static int read_manifest(struct stoker_verify *verify, struct stk_manifest_root *root,
                         struct stk_verify_findings *findings, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    char *path = manifest_path(root, "");
    uint8_t *text = NULL;
    size_t bytes = 0;
    int status;

    if (!path) {
        return stk_fail_memory(error, "manifest");
    }
    status = read_file(verify->engine->io, path, &text, &bytes, &cause);
    if (status == 0 && text) {
        status = stk_manifest_parse(&root->manifest, (struct stk_view){text, bytes}, &cause);
        root->has_manifest = status == 0;
        status = status < 0 ? status : sort_entries(root);
        if (status == -ENOMEM && !cause.what[0]) {
            stk_fail_memory(&cause, "manifest");
        }
    }
    if (status < 0 && stk_verify_is_process_error(status)) {
        *error = cause;
    } else if (status < 0) {
        cause.offset = STOKER_NO_OFFSET;
        cause.shard[0] = '\0';
        strncat(cause.shard, path, sizeof cause.shard - 1);
        status = stk_verify_add_finding(verify, findings, STOKER_FINDING_MANIFEST, &cause, "");
        status = status < 0 ? stk_fail_memory(error, "manifest") : 0;
    }
    stk_free(text);
    stk_free(path);
    return status;
}

static int compare_entries(const void *left, const void *right, void *shards)
{
    const struct stk_manifest_shard *of = shards;

    return strcmp(of[*(const uint32_t *)left].name, of[*(const uint32_t *)right].name);
}

static int sort_entries(struct stk_manifest_root *root)
{
    uint64_t count = root->manifest.shard_count;

    root->by_name = stk_alloc(count, sizeof *root->by_name);
    root->seen = stk_alloc(count, sizeof *root->seen);
    if (!root->by_name || !root->seen) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        root->by_name[i] = i;
    }
    if (count > 1) {
        qsort_r(root->by_name, count, sizeof *root->by_name, compare_entries,
                root->manifest.shards);
    }
    return 0;
}

struct stk_manifest_shard *stk_manifest_roots_find(struct stoker_verify *verify, uint64_t object)
{
    const char *name = base_name(stk_source_files_path(&verify->objects, object));
    struct stk_manifest_root *root;
    uint64_t low = 0, high;

    if (!verify->roots.of_object) {
        return NULL;
    }
    root = &verify->roots.items[verify->roots.of_object[object]];
    high = root->has_manifest ? root->manifest.shard_count : 0;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct stk_manifest_shard *entry = &root->manifest.shards[root->by_name[middle]];
        int order = strcmp(entry->name, name);

        if (order == 0) {
            return entry;
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NULL;
}

int stk_manifest_roots_report_extra(struct stoker_verify *verify, uint64_t object,
                                    struct stk_verify_findings *findings,
                                    struct stoker_error *error)
{
    struct stoker_error cause = {0};

    if (!verify->roots.of_object ||
        !verify->roots.items[verify->roots.of_object[object]].has_manifest ||
        stk_manifest_roots_find(verify, object)) {
        return 0;
    }
    stk_fail(&cause, STOKER_ERROR_CHANGED, "the shard is not in the manifest",
             "remove it, or pack the data set again with it", "%s", "");
    stk_error_set_location(&cause, stk_source_files_path(&verify->objects, object),
                           STOKER_NO_OFFSET, NULL);
    return stk_verify_add_finding(verify, findings, STOKER_FINDING_EXTRA, &cause, "") < 0
               ? stk_fail_memory(error, "manifest")
               : 0;
}

int stk_manifest_roots_report_missing(struct stoker_verify *verify,
                                      struct stk_verify_findings *findings,
                                      struct stoker_error *error)
{
    for (uint32_t i = 0; i < verify->roots.count; i++) {
        const struct stk_manifest_root *root = &verify->roots.items[i];

        for (uint64_t j = 0; root->has_manifest && root->complete && j < root->manifest.shard_count;
             j++) {
            struct stoker_error cause = {0};
            const struct stk_manifest_shard *entry = &root->manifest.shards[j];

            if (root->seen[j]) {
                continue;
            }
            stk_fail(&cause, STOKER_ERROR_MISSING, "a shard of the manifest is missing",
                     "copy it again", "%s", "");
            snprintf(cause.shard, sizeof cause.shard, "%s%s", root->path, entry->name);
            if (stk_verify_add_finding(verify, findings, STOKER_FINDING_MISSING, &cause, "") < 0) {
                return stk_fail_memory(error, "manifest");
            }
        }
    }
    return 0;
}

int stk_manifest_roots_set(struct stoker_verify *verify, uint64_t object,
                           const struct stk_manifest_shard *values, struct stoker_error *error)
{
    struct stk_manifest_shard *entry = stk_manifest_roots_find(verify, object);
    struct stk_manifest_root *root;
    json_t *json;
    char sha[2 * sizeof values->sha256 + 1];

    if (!entry) {
        return 0;
    }
    root = &verify->roots.items[verify->roots.of_object[object]];
    json = json_array_get(json_object_get(root->manifest.root, "shards"),
                          (size_t)(entry - root->manifest.shards));
    stk_hex(values->sha256, sizeof values->sha256, sha);
    if (json_object_set_new(json, "bytes", json_integer((json_int_t)values->bytes)) < 0 ||
        json_object_set_new(json, "samples", json_integer((json_int_t)values->samples)) < 0 ||
        json_object_set_new(json, "sha256", json_string(sha)) < 0) {
        return stk_fail_memory(error, "manifest");
    }
    root->manifest.samples += values->samples - entry->samples;
    entry->bytes = values->bytes;
    entry->samples = values->samples;
    memcpy(entry->sha256, values->sha256, sizeof entry->sha256);
    root->changed = true;
    return 0;
}

static int write_manifest(struct stk_io *io, struct stk_manifest_root *root,
                          struct stoker_error *error)
{
    char *path = manifest_path(root, ""), *text = NULL;
    size_t bytes = 0;
    int status = path ? 0 : stk_fail_memory(error, "manifest");

    if (status == 0) { /* the index is of the shards as they were */
        json_object_del(root->manifest.root, "index");
        status = stk_manifest_text(&root->manifest, &text, &bytes, error);
    }
    status = status < 0 ? status
                        : stk_atomic_file_store(io, path, ".part",
                                                (struct stk_view){(const uint8_t *)text, bytes},
                                                STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
    stk_free(text);
    stk_free(path);
    return status;
}

int stk_manifest_roots_write(struct stoker_verify *verify, struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        struct stk_manifest_root *root = &verify->roots.items[i];

        if (root->changed) {
            status = write_manifest(verify->engine->io, root, error);
            root->changed = false;
        }
    }
    return status;
}
