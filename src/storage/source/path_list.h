/* storage/source/path_list.h: a list of paths in one text, and the functions that the files of
 * storage/source share.
 *
 *   zeroed -add-> growing -sort-> in byte order; moved into struct stk_source_files at the end
 *
 * Owner: the listing that is being built. Threads: one. Memory: doubles as it grows.
 * Bound: STK_SOURCE_FILES_MAX paths, STK_PATH_LIST_BYTES_MAX of text. */
#ifndef STORAGE_SOURCE_PATH_LIST_H
#define STORAGE_SOURCE_PATH_LIST_H

#include "storage/source/source.h"

#define STK_PATH_LIST_BYTES_MAX (1ull << 38)

struct stk_path_list {
    char *text; /* NUL-ended names, one after the other */
    uint64_t bytes, capacity;
    uint64_t *offsets; /* of each in text */
    uint64_t count, offsets_capacity;
};

/* Copies a name of `bytes` bytes. Returns 0, -ENOMEM or STOKER_ERROR_LIMIT. */
int stk_path_list_add(struct stk_path_list *names, const char *name, size_t bytes);
/* Grows the text to at least so many bytes. Returns 0 or -ENOMEM. */
int stk_path_list_reserve(struct stk_path_list *names, uint64_t bytes);
/* Sorts the names from `first` on by their bytes; `unique` drops repeated ones. */
void stk_path_list_sort(struct stk_path_list *names, uint64_t first, bool unique);
void stk_path_list_deinit(struct stk_path_list *names);
/* Fills *error for a status of the functions above. Returns status. */
int stk_path_list_fail(struct stoker_error *error, int status, const char *path);

/* path_expand.c: returns true for http(s)://, whose servers cannot be listed. */
bool stk_path_is_http(const char *path);

static inline const char *stk_path_list_get(const struct stk_path_list *names, uint64_t index)
{
    return names->text + names->offsets[index];
}

/* The contents of one folder, at any depth. */
struct stk_folder_scan {
    const char *const *endings;               /* in: of the names of shards; NULL after the last */
    const struct stk_source_options *options; /* in */
    struct stk_source_files *found;           /* in: gets the problems */
    struct stk_path_list tars;                /* sorted */
    struct stk_path_list pictures;            /* in class folders, in torchvision's order */
    struct stk_path_list classes;             /* sorted */
    int64_t *labels;                          /* class of each picture */
    uint64_t labels_capacity;
};

/* folder_scan.c: scans the folder `root` (without a final '/', except "/" itself). Fills *error,
 * also if the folder has neither tars nor class folders. */
int stk_folder_scan_run(struct stk_io *io, const char *root, struct stk_folder_scan *folder,
                        struct stoker_error *error);
void stk_folder_scan_deinit(struct stk_folder_scan *folder);
/* True if the name ends with one of the endings, in upper or lower case. */
bool stk_path_is_shard(const char *name, const char *const *endings);
bool stk_path_is_picture(const char *name);
/* path_list.c: adds a problem. Returns 0 or -ENOMEM. */
int stk_source_add_problem(struct stk_source_files *files, uint32_t kind, int status,
                           const char *path);
void stk_source_free_problems(struct stk_source_files *files);

/* path_expand.c: stk_braces_expand of a path, or of the URL of an alias (storage/url/url_alias.h).
 * Gives paths and aliases. */
int stk_path_list_expand_braces(const char *name, char **text_out, size_t *count_out,
                                struct stoker_error *error);

/* braces.c: stk_braces_expand with a limit other than STK_SOURCE_BRACES_MAX. Pure. */
int stk_braces_expand_max(const char *pattern, uint64_t count_max, char **text_out,
                          size_t *count_out, struct stoker_error *error);

/* glob.c: adds the paths that exist and match, sorted: * ? [a-z] [!a-z] within a name, ** for
 * any number of folders. Only a pattern that begins with '.' matches a name that does. no_links:
 * wildcards match links, but do not enter those to folders. */
int stk_glob(struct stk_io *io, const char *pattern, bool no_links, struct stk_path_list *names,
             struct stoker_error *error);
bool stk_glob_has_magic(const char *pattern);
/* Matches one name against one part of a pattern. Pure. */
bool stk_glob_match(const char *pattern, size_t pattern_bytes, const char *name);

#endif
