/* programs/cli/path_args.h: expands braces and globs of path arguments.
 *
 *   words --stoker_paths_expand--> paths, in the order of the words
 *
 * Owner: run() of a command, until the process ends. Threads: one. Memory: the names.
 * Bound: the library's, of one pattern. */
#ifndef PROGRAMS_CLI_PATH_ARGS_H
#define PROGRAMS_CLI_PATH_ARGS_H

#include "programs/cli/args.h"

#include <stdbool.h>

struct path_args {
    const char *const *paths;
    size_t count;
    bool pattern; /* a word was a pattern */
};

/* Expands words. no_links: wildcards do not enter links to folders. Returns an exit status. */
int path_args_expand(struct path_args *expanded, struct stoker_engine *engine,
                     const char *const *words, size_t count, bool no_links);
/* Expands all paths of a command in place. Returns an exit status. */
int path_args_expand_all(struct args *args, struct stoker_engine *engine);

#endif
