/* Scans one folder: shards at any depth, or pictures in class folders, or pictures without
 * sub-folders, which have no labels.
 *
 * The order of pictures is that of torchvision.datasets.ImageFolder (make_dataset): classes by
 * name, then the folders of a class by their whole path, then names; links are followed. Sorting
 * whole paths puts "a-b" before "a/c", since '-' is less than '/'. */
#include "storage/source/path_list.h"

#include "base/mem.h"
#include "base/text/file_kind.h"
#include "base/text/system_file.h"
#include "base/text/text_match.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NO_CLASS (-1)
#define AHEAD_MAX 64u /* folders that are listed at the same time */

/* Pictures of one folder: a run of `pictures`. */
struct run {
    char *path;
    uint64_t first, count;
};

struct walk {
    struct stk_io *io;
    struct stk_folder_scan *folder;
    struct stoker_error *error;
    char path[PATH_MAX]; /* of the folder that is being read */
    size_t bytes;
    struct {
        uint64_t device, inode;
    } above[STK_SOURCE_DEPTH_MAX + 1]; /* the parent folders */
    struct run *runs;                  /* of the current class */
    uint64_t run_count, run_capacity;
    uint64_t root_pictures;
    char *class_without; /* the first class without pictures; owned */
    char *foreign;       /* the first file of another program, by its name; owned */
};

/* Listings of the next folders of the scan. */
struct ahead {
    struct stk_listing listings[AHEAD_MAX];
    size_t next, count;
};

static int walk_folder(struct walk *walk, int depth, int64_t label, struct stk_listing *given);
static int scan_root(struct walk *walk);
static int walk_file(struct walk *walk, const struct stk_entry *entry, int depth, int64_t label);
static int walk_other(struct walk *walk, const struct stk_entry *entry);
static int add_problem(struct walk *walk, const char *name, uint32_t kind, int number);
static int walk_class(struct walk *walk, const char *name, struct stk_listing *given);
static int check_loop(struct walk *walk, const struct stk_entry *entry, int depth);
static int add_picture(struct walk *walk, int64_t label);
static int begin_walk(struct walk *walk);
static int end_class(struct walk *walk, uint64_t first);
static int compare_runs(const void *left, const void *right);
static int classify_folder(struct walk *walk, const char *root);
static int push(struct walk *walk, const char *name, size_t *before_out);
static int fail_empty(struct walk *walk, const char *root);
static void pop(struct walk *walk, size_t before);
static int fail_memory(struct walk *walk);
static bool ends_with_any(const char *name, const char *const *endings, size_t count);

bool stk_path_is_shard(const char *name, const char *const *endings)
{
    size_t count = 0;

    while (endings[count]) {
        count++;
    }
    return ends_with_any(name, endings, count);
}

bool stk_path_is_picture(const char *name)
{
    static const char *const endings[] = {".jpg",  ".jpeg", ".jpe",  ".jfif", ".png",
                                          ".webp", ".bmp",  ".ppm",  ".pgm",  ".pbm",
                                          ".pnm",  ".tif",  ".tiff", ".gif",  ".avif"};

    return ends_with_any(name, endings, STK_COUNT(endings));
}

int stk_folder_scan_run(struct stk_io *io, const char *root, struct stk_folder_scan *folder,
                        struct stoker_error *error)
{
    struct walk walk = {.io = io, .folder = folder, .error = error};
    struct stk_stat stat = {0};
    int status = stk_io_stat_path(io, root, &stat, error);

    if (status < 0) {
        goto done;
    }
    status = push(&walk, root, &(size_t){0});
    if (status < 0) {
        goto done;
    }
    walk.above[0].device = stat.device;
    walk.above[0].inode = stat.inode;
    status = walk_folder(&walk, 0, NO_CLASS, NULL);
    if (status == 0 && walk.root_pictures > 0 && folder->classes.count + folder->tars.count == 0) {
        status = scan_root(&walk);
    }
    if (status == 0) {
        stk_path_list_sort(&folder->tars, 0, false);
        status = classify_folder(&walk, root);
    }
done:
    for (uint64_t i = 0; i < walk.run_count; i++) {
        stk_free(walk.runs[i].path);
    }
    stk_free(walk.runs);
    stk_free(walk.class_without);
    stk_free(walk.foreign);
    return status;
}

void stk_folder_scan_deinit(struct stk_folder_scan *folder)
{
    stk_path_list_deinit(&folder->tars);
    stk_path_list_deinit(&folder->pictures);
    stk_path_list_deinit(&folder->classes);
    stk_free(folder->labels);
    *folder = (struct stk_folder_scan){0};
}

/* Fills *ahead with the listings of the next folders in a listing, from entry `from` on. */
static void read_ahead(struct walk *walk, const struct stk_listing *listing, size_t from,
                       struct ahead *ahead)
{
    char *paths = NULL, *grown;
    size_t bytes = 0, count = 0, before;

    ahead->next = ahead->count = 0;
    for (size_t i = from; i < listing->count && count < AHEAD_MAX; i++) {
        if (listing->entries[i].kind != STK_ENTRY_DIRECTORY) {
            continue;
        }
        if (push(walk, listing->entries[i].name, &before) < 0) {
            break; /* the scan reports it when it gets there */
        }
        grown = stk_realloc(paths, bytes, bytes + walk->bytes + 1, 1);
        if (grown) {
            paths = grown;
            memcpy(paths + bytes, walk->path, walk->bytes + 1);
            bytes += walk->bytes + 1;
            count++;
        }
        pop(walk, before);
        if (!grown) {
            break;
        }
    }
    if (count > 1) {
        stk_vfs_list_many(walk->io, paths, count, ahead->listings);
        ahead->count = count;
    }
    stk_free(paths);
}

/* Scans one folder, whose path is pushed. given: see walk_folder. */
static int walk_sub_folder(struct walk *walk, const struct stk_entry *entry, int depth,
                           int64_t label, struct stk_listing *given)
{
    int status;

    if (stk_system_file_is(entry->name, strlen(entry->name))) {
        return add_problem(walk, NULL, STK_SOURCE_SYSTEM_FILE, 0);
    }
    status = check_loop(walk, entry, depth + 1);
    return status < 0   ? status
           : depth == 0 ? walk_class(walk, entry->name, given)
                        : walk_folder(walk, depth + 1, label, given);
}

/* Scans the folders of a listing; lists many remote folders at once. */
static int walk_folders(struct walk *walk, const struct stk_listing *listing, int depth,
                        int64_t label)
{
    struct ahead *ahead =
        stk_io_is_url(walk->path) ? stk_alloc(1, sizeof *ahead) : NULL; /* NULL: one by one */
    int status = 0;

    for (size_t i = 0; status == 0 && i < listing->count; i++) {
        const struct stk_entry *entry = &listing->entries[i];
        struct stk_listing *given = NULL;
        size_t before;

        if (entry->kind != STK_ENTRY_DIRECTORY) {
            continue;
        }
        if (ahead && ahead->next == ahead->count) {
            read_ahead(walk, listing, i, ahead);
        }
        if (ahead && ahead->next < ahead->count) {
            given = &ahead->listings[ahead->next++];
        }
        status = push(walk, entry->name, &before);
        if (status == 0) {
            status = walk_sub_folder(walk, entry, depth, label, given);
            pop(walk, before);
        }
        if (given) {
            stk_listing_free(given); /* empty if it was used */
        }
    }
    for (; ahead && ahead->next < ahead->count; ahead->next++) { /* after a failure */
        stk_listing_free(&ahead->listings[ahead->next]);
    }
    stk_free(ahead);
    return status;
}

/* Scans files first, then folders, so the pictures of a folder are one run. Takes the listing
 * *given; lists the folder itself if it is NULL or empty. */
static int walk_folder(struct walk *walk, int depth, int64_t label, struct stk_listing *given)
{
    struct stk_listing listing = given ? *given : (struct stk_listing){0};
    int status = 0;

    if (given) {
        *given = (struct stk_listing){0};
    }
    if (!listing.memory) {
        status = stk_io_list(walk->io, walk->path, &listing, walk->error);
    }
    if (status == 0 && label != NO_CLASS) {
        status = begin_walk(walk);
    }
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        if (listing.entries[i].kind != STK_ENTRY_DIRECTORY) {
            status = walk_file(walk, &listing.entries[i], depth, label);
        }
    }
    status = status < 0 ? status : walk_folders(walk, &listing, depth, label);
    stk_listing_free(&listing);
    return status;
}

/* Scans the pictures of a root without sub-folders, as a class without a name. */
static int scan_root(struct walk *walk)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(walk->io, walk->path, &listing, walk->error);

    status = status < 0 ? status : begin_walk(walk);
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        if (listing.entries[i].kind == STK_ENTRY_FILE) {
            status = walk_file(walk, &listing.entries[i], 1, NO_CLASS);
        }
    }
    stk_listing_free(&listing);
    return status;
}

static int walk_file(struct walk *walk, const struct stk_entry *entry, int depth, int64_t label)
{
    bool tar = stk_path_is_shard(entry->name, walk->folder->endings);
    bool picture = stk_path_is_picture(entry->name);
    bool foreign = !tar && !picture && !walk->foreign && stk_file_kind_of_name(entry->name);
    size_t before;
    int status = 0;

    if (stk_system_file_is(entry->name, strlen(entry->name))) {
        /* scan_root visits the files of the root a second time. */
        return depth == 1 && label == NO_CLASS
                   ? 0
                   : add_problem(walk, entry->name, STK_SOURCE_SYSTEM_FILE, 0);
    }
    if (entry->kind == STK_ENTRY_OTHER) {
        return walk_other(walk, entry);
    }
    if (depth == 0 && picture) {
        /* Pictures without a class are skipped, as ImageFolder does. */
        walk->root_pictures++;
        return 0;
    }
    if (!tar && !picture && !foreign) {
        return 0;
    }
    status = push(walk, entry->name, &before);
    if (status < 0) {
        return status;
    }
    if (tar) {
        status = stk_path_list_add(&walk->folder->tars, walk->path, walk->bytes);
        status = status < 0 ? stk_path_list_fail(walk->error, status, walk->path) : 0;
    } else if (picture) {
        status = add_picture(walk, label);
    } else {
        walk->foreign = stk_strdup(walk->path);
        status = walk->foreign ? 0 : fail_memory(walk);
    }
    pop(walk, before);
    return status;
}

/* Lists what is left out. `name`: in the folder that is being read; NULL: that folder. */
static int add_problem(struct walk *walk, const char *name, uint32_t kind, int number)
{
    size_t before = walk->bytes;
    int status = name ? push(walk, name, &before) : 0;

    if (status == 0 && stk_source_add_problem(walk->folder->found, kind, number, walk->path) < 0) {
        status = fail_memory(walk);
    }
    if (name) {
        pop(walk, before);
    }
    return status;
}

/* Ignores a dangling link or a pipe, unless it has the name of a tar or picture, or is a loop. */
static int walk_other(struct walk *walk, const struct stk_entry *entry)
{
    struct stk_stat stat = {0};
    size_t before;
    int status = push(walk, entry->name, &before);

    if (status < 0) {
        return status;
    }
    status = stk_io_stat_path(walk->io, walk->path, &stat, walk->error);
    if (stk_path_is_shard(entry->name, walk->folder->endings) || stk_path_is_picture(entry->name)) {
        if (walk->folder->options->skip_files) {
            status = add_problem(walk, NULL, STK_SOURCE_UNREADABLE,
                                 status < 0 ? status : STOKER_ERROR_UNSUPPORTED);
            pop(walk, before);
            return status;
        }
        status = status < 0 ? status
                            : stk_fail(walk->error, STOKER_ERROR_UNSUPPORTED,
                                       "not a file: a pipe, socket or device",
                                       "remove it from the data set", "'%s'", walk->path);
    } else if (status == -ENOENT || status == -ENOTDIR) {
        status = 0;
    }
    pop(walk, before);
    return status;
}

/* Each folder of the root is a class. */
static int walk_class(struct walk *walk, const char *name, struct stk_listing *given)
{
    struct stk_folder_scan *folder = walk->folder;
    uint64_t first = folder->pictures.count;
    int status = stk_path_list_add(&folder->classes, name, strlen(name));

    if (status < 0) {
        return stk_path_list_fail(walk->error, status, walk->path);
    }
    status = walk_folder(walk, 1, (int64_t)folder->classes.count - 1, given);
    if (status == 0) {
        status = end_class(walk, first);
    }
    if (status == 0 && folder->pictures.count == first && folder->options->skip_files) {
        return add_problem(walk, NULL, STK_SOURCE_EMPTY_CLASS, STOKER_ERROR_EMPTY);
    }
    if (status == 0 && folder->pictures.count == first && !walk->class_without) {
        walk->class_without = stk_strdup(walk->path);
        status = walk->class_without ? 0 : fail_memory(walk);
    }
    return status;
}

static int check_loop(struct walk *walk, const struct stk_entry *entry, int depth)
{
    if (depth > STK_SOURCE_DEPTH_MAX) {
        return stk_fail(walk->error, STOKER_ERROR_LIMIT, "folders are nested too deeply",
                        "nest at most 64 of them", "'%s'", walk->path);
    }
    for (int i = 0; i < depth; i++) {
        if (walk->above[i].device == entry->device && walk->above[i].inode == entry->inode) {
            return stk_fail_errno(walk->error, ELOOP, "a symbolic link leads back up",
                                  "remove the link", "'%s'", walk->path);
        }
    }
    walk->above[depth].device = entry->device;
    walk->above[depth].inode = entry->inode;
    return 0;
}

static int add_picture(struct walk *walk, int64_t label)
{
    struct stk_folder_scan *folder = walk->folder;
    int status;

    if (folder->pictures.count == folder->labels_capacity) {
        uint64_t capacity = stk_max(1024, folder->labels_capacity * 2);
        int64_t *grown =
            stk_realloc(folder->labels, folder->labels_capacity, capacity, sizeof *folder->labels);

        if (!grown) {
            return fail_memory(walk);
        }
        folder->labels = grown;
        folder->labels_capacity = capacity;
    }
    status = stk_path_list_add(&folder->pictures, walk->path, walk->bytes);
    if (status < 0) {
        return stk_path_list_fail(walk->error, status, walk->path);
    }
    folder->labels[folder->pictures.count - 1] = label;
    walk->runs[walk->run_count - 1].count++;
    return 0;
}

static int begin_walk(struct walk *walk)
{
    struct run *run;

    if (walk->run_count == walk->run_capacity) {
        uint64_t capacity = stk_max(16, walk->run_capacity * 2);
        struct run *grown =
            stk_realloc(walk->runs, walk->run_capacity, capacity, sizeof *walk->runs);

        if (!grown) {
            return fail_memory(walk);
        }
        walk->runs = grown;
        walk->run_capacity = capacity;
    }
    run = &walk->runs[walk->run_count];
    *run = (struct run){.path = stk_strdup(walk->path), .first = walk->folder->pictures.count};
    walk->run_count += run->path != NULL;
    return run->path ? 0 : fail_memory(walk);
}

/* Sorts the runs of a class, which were found depth first, by their paths. */
static int end_class(struct walk *walk, uint64_t first)
{
    struct stk_path_list *pictures = &walk->folder->pictures;
    uint64_t count = pictures->count - first, at = 0, *sorted = NULL;
    int status = 0;

    if (walk->run_count > 2) {
        /* If there are two runs, the second folder is in the first. */
        sorted = stk_alloc(count, sizeof *sorted);
        status = sorted ? 0 : fail_memory(walk);
    }
    if (sorted) {
        qsort(walk->runs, walk->run_count, sizeof *walk->runs, compare_runs);
        for (uint64_t i = 0; i < walk->run_count; i++) {
            memcpy(sorted + at, pictures->offsets + walk->runs[i].first,
                   walk->runs[i].count * sizeof *sorted);
            at += walk->runs[i].count;
        }
        STK_ASSERT(at == count);
        if (count > 0) {
            memcpy(pictures->offsets + first, sorted, count * sizeof *sorted);
        }
    }
    for (uint64_t i = 0; i < walk->run_count; i++) {
        stk_free(walk->runs[i].path);
    }
    walk->run_count = 0;
    stk_free(sorted);
    return status;
}

static int compare_runs(const void *left, const void *right)
{
    const struct run *a = left, *b = right;

    return strcmp(a->path, b->path);
}

/* Checks that the folder has either tars or pictures. */
static int classify_folder(struct walk *walk, const char *root)
{
    const struct stk_folder_scan *folder = walk->folder;

    if (folder->tars.count > 0 && folder->pictures.count > 0) {
        return stk_fail(
            walk->error, STOKER_ERROR_ARGUMENT, "the folder holds both tars and images in folders",
            "name the folder of the tars, or that of the class folders", "'%s': '%s' and '%s'",
            root, stk_path_list_get(&folder->tars, 0), stk_path_list_get(&folder->pictures, 0));
    }
    if (folder->tars.count > 0) {
        return 0;
    }
    if (folder->pictures.count == 0 && walk->root_pictures > 0) {
        return stk_fail(walk->error, STOKER_ERROR_MISSING,
                        "the images are next to folders without images: there are no classes",
                        "put them into one folder a class (root/cat/1.jpg), or move the folders "
                        "away: images alone are a data set without labels",
                        "'%s'", root);
    }
    if (folder->pictures.count == 0) {
        return fail_empty(walk, root);
    }
    if (walk->class_without && !folder->options->allow_empty && folder->options->class_count == 0) {
        return stk_fail(walk->error, STOKER_ERROR_EMPTY, "a class folder has no images",
                        "put images into it, remove it, or pass allow_empty, or classes= with the "
                        "names of the training set",
                        "'%s'", walk->class_without);
    }
    return 0;
}

/* The folder may hold data of another program. */
static int fail_empty(struct walk *walk, const char *root)
{
    const struct stk_file_kind *format =
        walk->foreign ? stk_file_kind_of_name(walk->foreign) : NULL;

    if (format) {
        return stk_fail(walk->error, STOKER_ERROR_EMPTY, "the folder has no tars and no images",
                        format->advice, "'%s': '%s' is named like %s", root, walk->foreign,
                        format->name);
    }
    return stk_fail(walk->error, STOKER_ERROR_EMPTY, "the folder has no tars and no images",
                    "check the path: tars (*.tar, *.tar.gz, ...) or class folders with "
                    "jpg, png or webp files are looked for",
                    "'%s'", root);
}

static int push(struct walk *walk, const char *name, size_t *before_out)
{
    size_t bytes = strlen(name);
    bool slash = walk->bytes > 0 && walk->path[walk->bytes - 1] != '/';

    *before_out = walk->bytes;
    if (walk->bytes + slash + bytes >= PATH_MAX) {
        return stk_fail_errno(walk->error, ENAMETOOLONG, "a path is too long",
                              "shorten it to less than 4096 bytes", "'%.400s'", walk->path);
    }
    if (slash) {
        walk->path[walk->bytes++] = '/';
    }
    memcpy(walk->path + walk->bytes, name, bytes + 1);
    walk->bytes += bytes;
    return 0;
}

static void pop(struct walk *walk, size_t before)
{
    walk->bytes = before;
    walk->path[before] = '\0';
}

static int fail_memory(struct walk *walk)
{
    return stk_path_list_fail(walk->error, -ENOMEM, walk->path);
}

static bool ends_with_any(const char *name, const char *const *endings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (stk_text_ends_with_nocase(name, endings[i])) {
            return true;
        }
    }
    return false;
}
