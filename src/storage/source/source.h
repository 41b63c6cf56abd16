/* storage/source/source.h: expands the paths that the user names to the objects to read, in a fixed
 * order.
 *
 *   urls --braces--> --globs--> paths --list--> tars (webdataset) or class folders (imagefolder)
 *
 * Owner: the dataset. Threads: one. Memory: one text for the paths.
 * Bound: STK_SOURCE_FILES_MAX objects, STK_SOURCE_DEPTH_MAX folders deep. */
#ifndef STORAGE_SOURCE_SOURCE_H
#define STORAGE_SOURCE_SOURCE_H

#include "io/io.h"

#define STK_SOURCE_FILES_MAX (1u << 31)
#define STK_SOURCE_DEPTH_MAX 64
#define STK_SOURCE_BRACES_MAX 10000000u /* paths of one pattern */

#define STK_SOURCE_PROBLEMS_MAX 10000u /* that are named; further ones are counted */

enum stk_source_kind { STK_SOURCE_TARS = 1, STK_SOURCE_FOLDER };

/* Why a file or folder of a data set is left out. */
enum stk_source_problem_kind {
    STK_SOURCE_UNREADABLE = 1, /* a link to nothing, a pipe, a socket */
    STK_SOURCE_EMPTY_CLASS,    /* a class folder without pictures; it keeps its number */
    STK_SOURCE_SYSTEM_FILE     /* base/text/system_file.h */
};

struct stk_source_problem {
    uint32_t kind; /* enum stk_source_problem_kind */
    int status;    /* of the error that reading it returns; 0: none */
    char *path;    /* owned */
};

/* What is 0 or NULL is its default. */
struct stk_source_options {
    const char *const *endings; /* borrowed: of the names of shards; NULL after the last */
    bool skip_files;  /* files that cannot be read and empty classes are left out and listed */
    bool allow_empty; /* a class folder may be empty */
    const char *const *classes; /* borrowed: numbers the classes; NULL: all folders, sorted */
    size_t class_count;
};

struct stk_source_files {
    uint32_t kind; /* enum stk_source_kind */
    uint64_t count;
    uint64_t *url_ends; /* the number of objects of each URL and of those before it */
    uint64_t *paths;    /* offset of each path in `text` */
    int64_t *classes;   /* folder: class index of each object, or -1; tars: NULL */
    uint64_t class_count;
    uint64_t *class_names; /* offset of each in `text`, in byte order */
    uint64_t root_bytes;   /* folder: length of the root path with its '/', which keys omit */
    char *text;
    uint64_t text_bytes;
    struct stk_source_problem *problems; /* owned: problems_listed of them */
    uint64_t problem_count, problems_listed, problem_capacity;
    uint64_t system_count; /* of them: files of operating systems */
};

/* Expands and lists the URLs. A directory that contains files with one of the endings (for tars
 * .tar, .tar.gz, ...) at any depth is a list of shards in byte order; else its sub-folders are
 * classes (torchvision ImageFolder's rules: sorted names, links followed, pictures by extension:
 * jpg jpeg jpe jfif png webp bmp ppm pgm pbm pnm tif tiff gif avif; the last four are samples that
 * cannot be decoded). Files of operating systems are left out and counted. Pictures in a directory
 * without sub-folders are a folder too, without classes. Errors: nothing found (EMPTY), unreadable
 * directory (-EACCES), symlink loop (-ELOOP), a class folder without pictures (EMPTY, as
 * torchvision), a class folder that options->classes lacks or mixed kinds (ARGUMENT). */
int stk_source_list(struct stk_io *io, const char *const *urls, size_t url_count,
                    const struct stk_source_options *options, struct stk_source_files *objects_out,
                    struct stoker_error *error);
/* The path of an object of the list. */
static inline const char *stk_source_files_path(const struct stk_source_files *objects,
                                                uint64_t number)
{
    return objects->text + objects->paths[number];
}

void stk_source_files_deinit(struct stk_source_files *objects); /* may be zeroed */

/* Expands a path. Returns 0 and the path itself if a file has exactly this name or it is no
 * pattern; else 1 and the matches of its braces and globs, in that order. In http(s):// URLs only
 * braces are expanded. Gives *text_out: paths, NUL-ended, one after the other. Returns EMPTY if a
 * glob matches nothing. no_links: see stk_glob. */
int stk_source_expand(struct stk_io *io, const char *path, bool no_links, char **text_out,
                      size_t *count_out, struct stoker_error *error);

/* "a{000..002}b{x,y}" -> names; leading zeros kept; at most STK_SOURCE_BRACES_MAX. Gives
 * *text_out: NUL-ended names one after the other. Pure. */
int stk_braces_expand(const char *pattern, char **text_out, size_t *count_out,
                      struct stoker_error *error);

#endif
