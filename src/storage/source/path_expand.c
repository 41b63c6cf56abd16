/* What a path with a pattern stands for, where files are meant rather than data sets. */
#include "base/mem.h"
#include "storage/source/path_list.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

bool stk_path_is_http(const char *path)
{
    return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

/* '?' begins a query of a web server's URL. */
static bool has_glob(const char *path)
{
    return !stk_path_is_http(path) && stk_glob_has_magic(path);
}

/* No bucket and no host has such a name. */
static bool is_url(const char *path)
{
    const char *place = stk_io_is_url(path) ? strstr(path, "://") : NULL;
    const char *brace = strchr(path, '{');

    return place && brace && brace < place + 3 + strcspn(place + 3, "/");
}

/* 1: something has this very name. 0: nothing has. Below 0: who knows; and what a pattern stands
 * for in its place must not be removed for it. */
static int is_there(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_stat stat = {0};
    int status = is_url(path) ? -ENOENT : stk_io_stat_path(io, path, &stat, error);

    if (status == 0) {
        return 1;
    }
    if (status == -ENOENT || status == -ENOTDIR || stk_path_is_http(path) ||
        (status == -EACCES && !has_glob(path))) { /* who may only read is not told what is not */
        return 0;
    }
    return status;
}

static int add_matches(struct stk_io *io, const char *name, struct stk_path_list *names,
                       struct stoker_error *error)
{
    uint64_t before = names->count;
    int status;

    if (!has_glob(name)) {
        status = stk_path_list_add(names, name, strlen(name));
        return status < 0 ? stk_path_list_fail(error, status, name) : 0;
    }
    status = stk_glob(io, name, names, error);
    if (status == 0 && names->count == before) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "no path matches the glob",
                          "check it with ls; a relative one starts at the working directory",
                          "'%.400s'", name);
    }
    return status;
}

/* As one text, in their order. */
static int copy_paths(const struct stk_path_list *names, char **text_out, size_t *count_out)
{
    char *text = stk_alloc(1, names->bytes + 1);
    size_t used = 0;

    if (!text) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < names->count; i++) {
        const char *name = stk_path_list_get(names, i);

        memcpy(text + used, name, strlen(name) + 1);
        used += strlen(name) + 1;
    }
    *text_out = text;
    *count_out = names->count;
    return 0;
}

int stk_source_expand(struct stk_io *io, const char *path, char **text_out, size_t *count_out,
                      struct stoker_error *error)
{
    struct stk_path_list names = {0};
    char *text = NULL;
    size_t count = 0;
    bool braces = strchr(path, '{') != NULL, pattern = braces || has_glob(path);
    int status = pattern ? is_there(io, path, error) : 1;

    if (status < 0) {
        return status;
    }
    pattern = status == 0;
    status = 0;
    if (!pattern) {
        status = stk_path_list_add(&names, path, strlen(path));
    } else if (!braces) {
        status = add_matches(io, path, &names, error);
    } else {
        status = stk_path_list_expand_braces(path, &text, &count, error);
        if (status == 0 && !has_glob(path)) {
            stk_vfs_prefetch_metadata(io, text, count);
        }
    }
    for (const char *name = text; status == 0 && count > 0; count--) {
        status = add_matches(io, name, &names, error);
        name += strlen(name) + 1;
    }
    if (status == 0 && copy_paths(&names, text_out, count_out) < 0) {
        status = stk_path_list_fail(error, -ENOMEM, path);
    }
    stk_free(text);
    stk_path_list_deinit(&names);
    return status < 0 ? status : pattern;
}
