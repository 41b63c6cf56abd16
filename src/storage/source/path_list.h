/* storage/source/path_list.h: the parts of the room: many paths in one text, and the ways to find
 * them.
 *
 *   zeroed -add-> growing -sort-> in byte order; moved into struct stk_source_files at the end
 *
 * Owner: the listing in progress. Threads: one. Memory: doubles as it grows.
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

/* Copies a name of `bytes` bytes: 0, -ENOMEM or STOKER_ERROR_LIMIT. */
int stk_path_list_add(struct stk_path_list *names, const char *name, size_t bytes);
/* Sorts the names from `first` on by their bytes; `unique` drops repeated ones. */
void stk_path_list_sort(struct stk_path_list *names, uint64_t first, bool unique);
void stk_path_list_deinit(struct stk_path_list *names);
/* Fills *error for a status of the functions above that has no text yet. */
int stk_path_list_fail(struct stoker_error *error, int status, const char *path);

/* Of http(s)://: such a server cannot be listed. path_expand.c */
bool stk_path_is_http(const char *path);

static inline const char *stk_path_list_get(const struct stk_path_list *names, uint64_t index)
{
    return names->text + names->offsets[index];
}

/* What one folder holds, at any depth. */
struct stk_folder_scan {
    struct stk_path_list tars;     /* sorted */
    struct stk_path_list pictures; /* of class folders, in torchvision's order */
    struct stk_path_list classes;  /* sorted */
    int64_t *labels;               /* class of each picture */
    uint64_t labels_capacity;
};

/* folder_scan.c: walks the folder `root` (without '/' at its end, but "/" itself). An error is
 * filled here, also for a folder that is neither kind. */
int stk_folder_scan_run(struct stk_io *io, const char *root, struct stk_folder_scan *folder,
                        struct stoker_error *error);
void stk_folder_scan_deinit(struct stk_folder_scan *folder);
bool stk_path_is_tar(const char *name);
bool stk_path_is_picture(const char *name);

/* stk_braces_expand of a name, or of what it stands for (storage/url/url_alias.h): gives names. */
int stk_path_list_expand_braces(const char *name, char **text_out, size_t *count_out,
                                struct stoker_error *error);

/* braces.c: stk_braces_expand with another bound than STK_SOURCE_BRACES_MAX. Pure. */
int stk_braces_expand_max(const char *pattern, uint64_t count_max, char **text_out,
                          size_t *count_out, struct stoker_error *error);

/* glob.c: adds the paths that exist and match, sorted: * ? [a-z] [!a-z] within a name, ** for
 * any number of folders. A name that begins with '.' is matched by a pattern that does. */
int stk_glob(struct stk_io *io, const char *pattern, struct stk_path_list *names,
             struct stoker_error *error);
bool stk_glob_has_magic(const char *pattern);
/* One name against one part of a pattern. Pure. */
bool stk_glob_match(const char *pattern, size_t pattern_bytes, const char *name);

#endif
