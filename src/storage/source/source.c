/* From what the user path_args to the objects to read: braces, globs, folders, in a fixed order. */
#include "storage/source/source.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "storage/source/path_list.h"
#include "storage/url/url_alias.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One listing in the making. */
struct listing {
    struct stk_io *io;
    struct stoker_error *error;
    struct stk_path_list tars;
    struct stk_folder_scan folder;
    bool has_folder;
    uint64_t root_bytes; /* of the folder */
};

static int list_url(struct listing *listing, const char *url);
static int list_name(struct listing *listing, const char *name);
static int list_path(struct listing *listing, const char *path);
static int list_folder(struct listing *listing, const char *path);
static int check_mixed(struct listing *listing, const char *path);
static int build_files(struct listing *listing, struct stk_source_files *objects_out);
static int names_grow(void **block, uint64_t *capacity, uint64_t want, size_t item_bytes);
static int compare_names(const void *left, const void *right, void *text);

int stk_source_list(struct stk_io *io, const char *const *urls, size_t url_count,
                    struct stk_source_files *objects_out, struct stoker_error *error)
{
    struct listing listing = {.io = io, .error = error};
    uint64_t *url_ends = stk_alloc(url_count + 1, sizeof *url_ends);
    int status = url_ends ? 0 : stk_path_list_fail(error, -ENOMEM, "paths");

    for (size_t i = 0; status == 0 && i < url_count; i++) {
        status = list_url(&listing, urls[i]);
        url_ends[i] = listing.has_folder ? listing.folder.pictures.count : listing.tars.count;
    }
    if (status == 0 && !listing.has_folder && listing.tars.count == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "the data set has no paths",
                          "name a folder, tars, a glob or a pattern with braces", "'%s'",
                          url_count ? urls[0] : "");
    }
    if (status == 0) {
        status = build_files(&listing, objects_out);
    }
    if (status == 0) {
        objects_out->url_ends = url_ends;
    } else {
        stk_free(url_ends);
    }
    stk_path_list_deinit(&listing.tars);
    stk_folder_scan_deinit(&listing.folder);
    return status;
}

void stk_source_files_deinit(struct stk_source_files *objects)
{
    stk_free(objects->url_ends);
    stk_free(objects->paths);
    stk_free(objects->classes);
    stk_free(objects->class_names);
    stk_free(objects->text);
    *objects = (struct stk_source_files){0};
}

int stk_path_list_add(struct stk_path_list *names, const char *name, size_t bytes)
{
    void *text = names->text, *offsets = names->offsets;
    int status;

    if (names->count >= STK_SOURCE_FILES_MAX || bytes >= STK_PATH_LIST_BYTES_MAX - names->bytes) {
        return STOKER_ERROR_LIMIT;
    }
    status = names_grow(&text, &names->capacity, names->bytes + bytes + 1, 1);
    names->text = text;
    if (status == 0) {
        status = names_grow(&offsets, &names->offsets_capacity, names->count + 1,
                            sizeof *names->offsets);
        names->offsets = offsets;
    }
    if (status == 0) {
        memcpy(names->text + names->bytes, name, bytes);
        names->text[names->bytes + bytes] = '\0';
        names->offsets[names->count++] = names->bytes;
        names->bytes += bytes + 1;
    }
    return status;
}

void stk_path_list_sort(struct stk_path_list *names, uint64_t first, bool unique)
{
    uint64_t unique_count = first;

    if (names->count - first < 2) {
        return;
    }
    qsort_r(names->offsets + first, names->count - first, sizeof *names->offsets, compare_names,
            names->text);
    for (uint64_t i = first; i < names->count && unique; i++) {
        if (unique_count == first ||
            strcmp(stk_path_list_get(names, i), stk_path_list_get(names, unique_count - 1)) != 0) {
            names->offsets[unique_count++] = names->offsets[i];
        }
    }
    names->count = unique ? unique_count : names->count;
}

void stk_path_list_deinit(struct stk_path_list *names)
{
    stk_free(names->text);
    stk_free(names->offsets);
    *names = (struct stk_path_list){0};
}

int stk_path_list_fail(struct stoker_error *error, int status, const char *path)
{
    if (status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, status, "the data set has too many files",
                        "pack them into tars: at most 2^31 objects", "'%.400s'", path);
    }
    return stk_fail_errno(error, -status, "cannot list the data set",
                          "give the process more memory", "'%.400s'", path);
}

/* The names of what a pattern stands for: all of it is signed alike. */
static int add_names(char *text, size_t count, struct stk_path_list *names)
{
    char *at = text, *made = NULL;
    int status = 0;

    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(at);

        status = status < 0 ? status : stk_url_alias(at, &made);
        status = status < 0 ? status : stk_path_list_add(names, made, strlen(made));
        stk_free(made);
        made = NULL;
        explicit_bzero(at, bytes);
        at += bytes + 1;
    }
    return status;
}

static int expand(const char *name, const char *whole, char **text_out, size_t *count_out,
                  struct stoker_error *error)
{
    struct stk_path_list names = {0};
    char *text = NULL;
    int status = stk_braces_expand(whole, &text, count_out, NULL);

    if (status < 0) {
        return stk_fail(error, status, "the braces of a URL cannot be expanded",
                        "close each, and write those of its query as %7B and %7D", "'%.400s'",
                        name);
    }
    status = add_names(text, *count_out, &names);
    stk_free(text);
    if (status == 0) {
        *text_out = names.text;
        names.text = NULL;
    } else {
        status = stk_path_list_fail(error, status, name);
    }
    stk_path_list_deinit(&names);
    return status;
}

int stk_path_list_expand_braces(const char *name, char **text_out, size_t *count_out,
                                struct stoker_error *error)
{
    char *whole = NULL;
    int status;

    if (stk_url_resolve(name, &whole) < 0) {
        return stk_path_list_fail(error, -ENOMEM, name);
    }
    status = strcmp(whole, name) == 0 ? stk_braces_expand(name, text_out, count_out, error)
                                      : expand(name, whole, text_out, count_out, error);
    stk_secret_free(whole);
    return status;
}

/* Also in what a name stands for: a parameter may have them, which the name does not show. */
static int has_braces(const char *name, bool *has_out)
{
    char *whole = NULL;

    *has_out = strchr(name, '{') != NULL;
    if (*has_out || !stk_io_is_url(name)) {
        return 0;
    }
    if (stk_url_resolve(name, &whole) < 0) {
        return -ENOMEM;
    }
    *has_out = strchr(whole, '{') != NULL;
    stk_secret_free(whole);
    return 0;
}

/* A name that exists is meant as it is, whatever characters it has. */
static int list_url(struct listing *listing, const char *url)
{
    struct stk_stat stat = {0};
    char *text = NULL;
    size_t count = 0;
    bool braces;
    int status;

    if (strncmp(url, "file://", 7) == 0) {
        url += 7;
    }
    if (strncmp(url, "pipe:", 5) == 0) {
        return stk_fail(listing->error, STOKER_ERROR_UNSUPPORTED,
                        "only files and objects can be read, no pipes",
                        "name the path or the URL of the data", "'%.400s'", url);
    }
    /* A URL with braces is a pattern: to ask whether there is such an object takes a while. */
    if (has_braces(url, &braces) < 0) {
        return stk_path_list_fail(listing->error, -ENOMEM, url);
    }
    if (!braces || (!stk_io_is_url(url) && stk_io_stat_path(listing->io, url, &stat, NULL) == 0)) {
        return list_name(listing, url);
    }
    status = stk_path_list_expand_braces(url, &text, &count, listing->error);
    if (status == 0 && !stk_glob_has_magic(url)) {
        stk_vfs_prefetch_metadata(listing->io, text, count);
    }
    for (const char *name = text; status == 0 && count > 0; count--) {
        status = list_name(listing, name);
        name += strlen(name) + 1;
    }
    stk_free(text);
    return status;
}

static int list_name(struct listing *listing, const char *name)
{
    struct stk_path_list found = {0};
    struct stk_stat stat = {0};
    int status;

    if (!stk_glob_has_magic(name) || stk_io_stat_path(listing->io, name, &stat, NULL) == 0) {
        return list_path(listing, name);
    }
    status = stk_glob(listing->io, name, &found, listing->error);
    if (status == 0 && found.count == 0) {
        status = stk_fail(listing->error, STOKER_ERROR_EMPTY, "no path matches the glob",
                          "check it with ls; a relative one starts at the working directory",
                          "'%.400s'", name);
    }
    for (uint64_t i = 0; status == 0 && i < found.count; i++) {
        status = list_path(listing, stk_path_list_get(&found, i));
    }
    stk_path_list_deinit(&found);
    return status;
}

/* Whose page, that a web server makes of what lies there, would be taken for a shard. */
static bool is_web_folder(const char *url)
{
    size_t bytes = strlen(url);
    const char *host = strstr(url, "://");

    return stk_path_is_http(url) && !strpbrk(url, "?#") &&
           (url[bytes - 1] == '/' || !strchr(host + 3, '/'));
}

static int list_path(struct listing *listing, const char *path)
{
    struct stk_stat stat = {0};
    int status = 0;

    if (is_web_folder(path)) {
        return stk_fail(listing->error, STOKER_ERROR_ARGUMENT, "a web server cannot be listed",
                        "name each file, with braces: http://host/data-{000..009}.tar", "'%.400s'",
                        path);
    }
    status = stk_io_stat_path(listing->io, path, &stat, listing->error);
    if (status < 0) {
        return status;
    }
    if (stat.kind == STK_ENTRY_DIRECTORY) {
        return list_folder(listing, path);
    }
    if (stat.kind != STK_ENTRY_FILE) {
        return stk_fail(listing->error, STOKER_ERROR_UNSUPPORTED,
                        "not a file or folder: a pipe, socket or device",
                        "copy its data into a file", "'%.400s'", path);
    }
    if (stk_path_is_picture(path)) {
        return stk_fail(listing->error, STOKER_ERROR_ARGUMENT, "a single picture is not a data set",
                        "name the folder that holds the class folders, or tars", "'%.400s'", path);
    }
    /* What is path_args outright is a shard, whatever its ending. */
    status = stk_path_list_add(&listing->tars, path, strlen(path));
    return status < 0 ? stk_path_list_fail(listing->error, status, path)
                      : check_mixed(listing, path);
}

static int list_folder(struct listing *listing, const char *path)
{
    struct stk_folder_scan folder = {0};
    size_t bytes = strlen(path);
    char *root = stk_strdup(path);
    int status;

    if (!root) {
        return stk_path_list_fail(listing->error, -ENOMEM, path);
    }
    while (bytes > 1 && root[bytes - 1] == '/') {
        root[--bytes] = '\0';
    }
    status = stk_folder_scan_run(listing->io, root, &folder, listing->error);
    for (uint64_t i = 0; status == 0 && i < folder.tars.count; i++) {
        const char *tar = stk_path_list_get(&folder.tars, i);

        status = stk_path_list_add(&listing->tars, tar, strlen(tar));
        status = status < 0 ? stk_path_list_fail(listing->error, status, tar) : 0;
    }
    if (status == 0 && folder.pictures.count > 0) {
        if (listing->has_folder) {
            status = stk_fail(listing->error, STOKER_ERROR_ARGUMENT,
                              "two folders of class folders cannot be one data set",
                              "name the folder above, or link the classes into one folder",
                              "'%.400s' is the second", path);
        } else {
            listing->has_folder = true;
            listing->root_bytes = bytes + (root[bytes - 1] != '/');
            listing->folder = folder;
            folder = (struct stk_folder_scan){0};
        }
    }
    stk_folder_scan_deinit(&folder);
    stk_free(root);
    return status < 0 ? status : check_mixed(listing, path);
}

static int check_mixed(struct listing *listing, const char *path)
{
    if (!listing->has_folder || listing->tars.count == 0) {
        return 0;
    }
    return stk_fail(listing->error, STOKER_ERROR_ARGUMENT,
                    "tars and class folders cannot be one data set", "open them as two data sets",
                    "'%.400s' differs from the paths before it", path);
}

/* Moves the names into *objects_out; the class names follow the paths in one text. */
static int build_files(struct listing *listing, struct stk_source_files *objects_out)
{
    struct stk_path_list *paths = listing->has_folder ? &listing->folder.pictures : &listing->tars;
    struct stk_path_list *classes = &listing->folder.classes;
    void *text = paths->text;
    int status = 0;

    if (listing->has_folder) {
        status = names_grow(&text, &paths->capacity, paths->bytes + classes->bytes, 1);
        paths->text = text;
    }
    if (status < 0) {
        return stk_path_list_fail(listing->error, status, paths->text);
    }
    *objects_out = (struct stk_source_files){
        .kind = listing->has_folder ? STK_SOURCE_FOLDER : STK_SOURCE_TARS,
        .count = paths->count,
        .paths = paths->offsets,
        .text = paths->text,
        .text_bytes = paths->bytes,
    };
    if (listing->has_folder) {
        if (classes->bytes > 0) { /* pictures alone have no classes, and no text */
            memcpy(paths->text + paths->bytes, classes->text, classes->bytes);
        }
        for (uint64_t i = 0; i < classes->count; i++) {
            classes->offsets[i] += paths->bytes;
        }
        objects_out->classes = listing->folder.labels;
        objects_out->class_count = classes->count;
        objects_out->class_names = classes->offsets;
        objects_out->root_bytes = listing->root_bytes;
        objects_out->text_bytes += classes->bytes;
        listing->folder.labels = NULL;
        classes->offsets = NULL;
    }
    *paths = (struct stk_path_list){0};
    return 0;
}

static int names_grow(void **block, uint64_t *capacity, uint64_t want, size_t item_bytes)
{
    uint64_t more = stk_max(stk_max(*capacity * 2, 256), want);
    void *grown;

    if (want <= *capacity) {
        return 0;
    }
    grown = stk_realloc(*block, *capacity, more, item_bytes);
    if (!grown) {
        return -ENOMEM;
    }
    *block = grown;
    *capacity = more;
    return 0;
}

static int compare_names(const void *left, const void *right, void *text)
{
    const uint64_t *a = left, *b = right;

    return strcmp((const char *)text + *a, (const char *)text + *b);
}
