/* programs/cli/path_args.h: paths of the command line that stand for others: braces and globs.
 *
 *   words --stoker_paths_expand--> names, each word's in its place
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
    bool pattern; /* some word stood for others */
};

/* What the words stand for; an exit status. */
int path_args_expand(struct path_args *expanded, struct stoker_engine *engine,
                     const char *const *words, size_t count);
/* The same of all paths of a command, in their place. */
int path_args_expand_all(struct args *args, struct stoker_engine *engine);

#endif
