/* Expands braces and globs to paths of files, for commands on files rather than data sets. */
#include "storage/source/path_list.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "io/write.h"
#include "storage/url/url_alias.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

bool stk_path_is_http(const char *path)
{
    return strncasecmp(path, "http://", 7) == 0 || strncasecmp(path, "https://", 8) == 0;
}

/* In an http URL, '?' begins the query. */
static bool has_glob(const char *path)
{
    return !stk_path_is_http(path) && stk_glob_has_magic(path);
}

/* Adds an alias of each URL: the pattern has one query, so all of them have the same signature. */
static int add_aliases(char *text, size_t count, struct stk_path_list *names)
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

static int expand_url(const char *name, const char *url, char **text_out, size_t *count_out,
                      struct stoker_error *error)
{
    struct stk_path_list names = {0};
    char *text = NULL;
    int status = stk_braces_expand(url, &text, count_out, NULL);

    if (status < 0) {
        return stk_fail(error, status, "the braces of a URL cannot be expanded",
                        "close each, and write those of its query as %7B and %7D", "'%.400s'",
                        name);
    }
    status = add_aliases(text, *count_out, &names);
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
    char *url = NULL;
    int status;

    if (stk_url_resolve(name, &url) < 0) {
        return stk_path_list_fail(error, -ENOMEM, name);
    }
    status = strcmp(url, name) == 0 ? stk_braces_expand(name, text_out, count_out, error)
                                    : expand_url(name, url, text_out, count_out, error);
    stk_secret_free(url);
    return status;
}

/* Returns true for a URL with braces in its bucket or host: no such name exists. */
static bool has_host_braces(const char *path)
{
    const char *place = stk_io_is_url(path) ? strstr(path, "://") : NULL;
    const char *brace = strchr(path, '{');

    return place && brace && brace < place + 3 + strcspn(place + 3, "/");
}

/* Returns 1 if a file with exactly this name exists, 0 if not. A status below 0 means that it is
 * unknown: then the path must not be expanded, since its matches might be deleted instead. */
static int is_there(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_stat stat = {0};
    int status = has_host_braces(path) ? -ENOENT : stk_io_stat_path(io, path, &stat, error);

    if (status == 0 || stk_io_is_link(io, path)) { /* a link to nothing has this name, too */
        return 1;
    }
    if (status == -ENOENT || status == -ENOTDIR || stk_path_is_http(path) ||
        (status == -EACCES &&
         !has_glob(path))) { /* without permission to list, S3 reports this for missing objects */
        return 0;
    }
    return status;
}

static int add_matches(struct stk_io *io, const char *name, bool no_links,
                       struct stk_path_list *names, struct stoker_error *error)
{
    uint64_t before = names->count;
    int status;

    if (!has_glob(name)) {
        status = stk_path_list_add(names, name, strlen(name));
        return status < 0 ? stk_path_list_fail(error, status, name) : 0;
    }
    status = stk_glob(io, name, no_links, names, error);
    if (status == 0 && names->count == before) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "no path matches the glob",
                          "check it with ls; a relative one starts at the working directory",
                          "'%.400s'", name);
    }
    return status;
}

/* Copies the paths into one text, in order. */
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

int stk_source_expand(struct stk_io *io, const char *path, bool no_links, char **text_out,
                      size_t *count_out, struct stoker_error *error)
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
        status = add_matches(io, path, no_links, &names, error);
    } else {
        status = stk_path_list_expand_braces(path, &text, &count, error);
        if (status == 0 && !has_glob(path)) {
            stk_vfs_prefetch_metadata(io, text, count);
        }
    }
    for (const char *name = text; status == 0 && count > 0; count--) {
        status = add_matches(io, name, no_links, &names, error);
        name += strlen(name) + 1;
    }
    if (status == 0 && copy_paths(&names, text_out, count_out) < 0) {
        status = stk_path_list_fail(error, -ENOMEM, path);
    }
    stk_free(text);
    stk_path_list_deinit(&names);
    return status < 0 ? status : pattern;
}
