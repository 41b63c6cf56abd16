/* Expands braces and globs of path arguments. */
#include "programs/cli/path_args.h"

#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

/* All expanded paths; valid until the process ends. */
static struct {
    const char **paths;
    size_t count, capacity;
} all;

static bool add(const char *names, size_t count)
{
    while (all.capacity < all.count + count) {
        size_t more = all.capacity ? 2 * all.capacity : 64;
        const char **paths = realloc(all.paths, more * sizeof *paths);

        if (!paths) {
            return false;
        }
        all.paths = paths;
        all.capacity = more;
    }
    for (; count > 0; count--) {
        all.paths[all.count++] = names;
        names += strlen(names) + 1;
    }
    return true;
}

int path_args_expand(struct path_args *expanded, struct stoker_engine *engine,
                     const char *const *words, size_t count, bool no_links)
{
    *expanded = (struct path_args){.paths = words, .count = count};
    all.count = 0;
    for (size_t i = 0; i < count; i++) {
        struct stoker_error error = {0};
        char *names = NULL;
        size_t found = 0;
        int status = (no_links ? stoker_paths_expand_no_links
                               : stoker_paths_expand)(engine, words[i], &names, &found, &error);

        if (status < 0) {
            return term_error(status, &error);
        }
        expanded->pattern = expanded->pattern || status == 1;
        if (status == 0) { /* no copy is needed */
            stoker_paths_free(names);
            names = NULL;
        }
        if (!add(names ? names : words[i], names ? found : 1)) {
            return term_fail_name("out of memory for the matches", 0, words[i],
                                  "use a narrower pattern");
        }
    }
    expanded->paths = all.paths;
    expanded->count = all.count;
    return EXIT_FINE;
}

int path_args_expand_all(struct args *args, struct stoker_engine *engine)
{
    struct path_args expanded;
    int status = path_args_expand(&expanded, engine, args->paths, args->path_count, false);

    if (status == EXIT_FINE) {
        args->paths = expanded.paths;
        args->path_count = expanded.count;
    }
    return status;
}
