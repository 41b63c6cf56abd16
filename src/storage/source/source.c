/* The paths that the user names -> the objects to read: braces, globs and folders, in a fixed
 * order. */
#include "storage/source/source.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "base/text/text_match.h"
#include "storage/source/path_list.h"
#include "storage/url/url_alias.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <string.h>

/* A listing that is being built. */
struct listing {
    struct stk_io *io;
    struct stoker_error *error;
    struct stk_source_options options;
    struct stk_source_files found; /* has the problems, until build_files */
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
static int number_classes(struct listing *listing);

int stk_source_list(struct stk_io *io, const char *const *urls, size_t url_count,
                    const struct stk_source_options *options, struct stk_source_files *objects_out,
                    struct stoker_error *error)
{
    struct listing listing = {.io = io, .error = error, .options = *options};
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
    if (status == 0 && listing.has_folder && listing.options.classes) {
        status = number_classes(&listing);
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
    stk_source_free_problems(&listing.found);
    return status;
}

/* Returns the index of a class folder, UINT64_MAX if there is none. */
static uint64_t find_class(const struct stk_path_list *classes, const char *name)
{
    uint64_t low = 0, high = classes->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int order = strcmp(name, stk_path_list_get(classes, middle));

        if (order == 0) {
            return middle;
        }
        low = order > 0 ? middle + 1 : low;
        high = order < 0 ? middle : high;
    }
    return UINT64_MAX;
}

/* Fills *numbered with options.classes, and numbers[] with the index in it of each class folder, -1
 * if it is not there. */
static int read_classes(const struct listing *listing, struct stk_path_list *numbered,
                        int64_t *numbers)
{
    const struct stk_path_list *classes = &listing->folder.classes;
    int status = 0;

    for (uint64_t i = 0; i < classes->count; i++) {
        numbers[i] = -1;
    }
    for (size_t i = 0; status == 0 && i < listing->options.class_count; i++) {
        const char *name = listing->options.classes[i];
        uint64_t at = find_class(classes, name);

        if (at != UINT64_MAX && numbers[at] < 0) {
            numbers[at] = (int64_t)i;
        }
        status = stk_path_list_add(numbered, name, strlen(name));
    }
    return status;
}

/* Gives the classes the numbers of options.classes, which names all of them. */
static int number_classes(struct listing *listing)
{
    struct stk_folder_scan *folder = &listing->folder;
    struct stk_path_list numbered = {0}, before = folder->classes;
    int64_t *numbers = stk_alloc(before.count + 1, sizeof *numbers);
    int status = numbers ? read_classes(listing, &numbered, numbers) : -ENOMEM;

    if (status < 0) {
        stk_path_list_fail(listing->error, status, "classes");
    }
    for (uint64_t i = 0; status == 0 && i < before.count; i++) {
        if (numbers[i] < 0) {
            status = stk_fail(listing->error, STOKER_ERROR_ARGUMENT,
                              "a class folder is not among the classes",
                              "add it to classes=, or move the folder away", "'%.400s'",
                              stk_path_list_get(&before, i));
        }
    }
    for (uint64_t i = 0; status == 0 && i < folder->pictures.count; i++) {
        folder->labels[i] = folder->labels[i] < 0 ? -1 : numbers[folder->labels[i]];
    }
    if (status == 0) {
        folder->classes = numbered;
        numbered = before;
    }
    stk_path_list_deinit(&numbered);
    stk_free(numbers);
    return status;
}

void stk_source_files_deinit(struct stk_source_files *objects)
{
    stk_free(objects->url_ends);
    stk_free(objects->paths);
    stk_free(objects->classes);
    stk_free(objects->class_names);
    stk_free(objects->text);
    stk_source_free_problems(objects);
    *objects = (struct stk_source_files){0};
}

/* Also looks for braces in the URL of an alias: its query may have them. */
static int has_braces(const char *name, bool *has_out)
{
    char *resolved = NULL;

    *has_out = strchr(name, '{') != NULL;
    if (*has_out || !stk_io_is_url(name)) {
        return 0;
    }
    if (stk_url_resolve(name, &resolved) < 0) {
        return -ENOMEM;
    }
    *has_out = strchr(resolved, '{') != NULL;
    stk_secret_free(resolved);
    return 0;
}

/* A path that exists is used as it is, even if it contains braces. */
static int list_url(struct listing *listing, const char *url)
{
    struct stk_stat stat = {0};
    char *text = NULL;
    size_t count = 0;
    bool braces;
    int status;

    url = stk_text_skip_file_scheme(url);
    if (strncmp(url, "pipe:", 5) == 0) {
        return stk_fail(listing->error, STOKER_ERROR_UNSUPPORTED,
                        "only files and objects can be read, no pipes",
                        "name the path or the URL of the data", "'%.400s'", url);
    }
    /* A URL with braces is always a pattern: checking for such an object would take a request. */
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
    status = stk_glob(listing->io, name, false, &found, listing->error);
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

/* True if the name can be the page that a web server generates for a folder, which must not be
 * taken for a shard. */
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
        return stk_fail(listing->error, STOKER_ERROR_ARGUMENT, "a single image is not a data set",
                        "name the folder that holds the class folders, or tars", "'%.400s'", path);
    }
    /* A file that the user names is a shard, whatever its extension. */
    status = stk_path_list_add(&listing->tars, path, strlen(path));
    return status < 0 ? stk_path_list_fail(listing->error, status, path)
                      : check_mixed(listing, path);
}

static int list_folder(struct listing *listing, const char *path)
{
    struct stk_folder_scan folder = {.endings = listing->options.endings,
                                     .options = &listing->options,
                                     .found = &listing->found};
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

/* Moves the paths into *objects_out, with the class names after them in the same text. */
static int build_files(struct listing *listing, struct stk_source_files *objects_out)
{
    struct stk_path_list *paths = listing->has_folder ? &listing->folder.pictures : &listing->tars;
    struct stk_path_list *classes = &listing->folder.classes;
    int status =
        listing->has_folder ? stk_path_list_reserve(paths, paths->bytes + classes->bytes) : 0;

    if (status < 0) {
        return stk_path_list_fail(listing->error, status, paths->text);
    }
    *objects_out = (struct stk_source_files){
        .kind = listing->has_folder ? STK_SOURCE_FOLDER : STK_SOURCE_TARS,
        .count = paths->count,
        .paths = paths->offsets,
        .text = paths->text,
        .text_bytes = paths->bytes,
        .problems = listing->found.problems,
        .problem_count = listing->found.problem_count,
        .problems_listed = listing->found.problems_listed,
        .system_count = listing->found.system_count,
    };
    listing->found = (struct stk_source_files){0};
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
