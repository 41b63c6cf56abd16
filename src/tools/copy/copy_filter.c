/* Filters of names below a source: "+PATTERN" includes, "-PATTERN" excludes. */
#include "base/mem.h"
#include "base/text/system_file.h"
#include "storage/source/path_list.h"
#include "tools/copy/copy.h"

#include <string.h>

/* Matches one part of a pattern against one component. Unlike in a glob, '*' also matches names
 * that begin with '.': both get a first letter that hides it. */
static bool match_part(const char *pattern, size_t pattern_bytes, const char *name, size_t bytes)
{
    char text[STK_WALK_PATH_BYTES_MAX + 2], letters[STK_WALK_PATH_BYTES_MAX + 2];

    if (bytes > STK_WALK_PATH_BYTES_MAX || pattern_bytes > STK_WALK_PATH_BYTES_MAX) {
        return false;
    }
    text[0] = letters[0] = 'x';
    memcpy(text + 1, name, bytes);
    text[bytes + 1] = '\0';
    memcpy(letters + 1, pattern, pattern_bytes);
    return stk_glob_match(letters, pattern_bytes + 1, text);
}

/* Returns true if the pattern matches the path or a folder above it. folders: only the latter. */
static bool match_path(const char *pattern, const char *name, bool folders)
{
    for (;;) {
        size_t bytes = strcspn(pattern, "/"), name_bytes = strcspn(name, "/");
        const char *next = pattern + bytes + (pattern[bytes] == '/');

        if (bytes == 2 && memcmp(pattern, "**", 2) == 0) {
            if (!*next) {
                return true;
            }
            for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL) {
                if (match_path(next, at, folders)) {
                    return true;
                }
            }
            return false;
        }
        if (!match_part(pattern, bytes, name, name_bytes)) {
            return false;
        }
        if (!*next) {
            return name[name_bytes] == '/' || !folders;
        }
        if (!name[name_bytes]) {
            return false;
        }
        pattern = next;
        name += name_bytes + 1;
    }
}

/* Returns true if a component of the path matches. */
static bool match_component(const char *pattern, size_t bytes, const char *name, bool folders)
{
    for (;;) {
        size_t name_bytes = strcspn(name, "/");

        if (match_part(pattern, bytes, name, name_bytes) && (name[name_bytes] || !folders)) {
            return true;
        }
        if (!name[name_bytes]) {
            return false;
        }
        name += name_bytes + 1;
    }
}

static bool matches(const char *pattern, const char *name)
{
    size_t bytes = strlen(pattern);
    bool folders = bytes > 1 && pattern[bytes - 1] == '/';

    bytes -= folders;
    if (!memchr(pattern, '/', bytes)) {
        return match_component(pattern, bytes, name, folders);
    }
    return match_path(pattern + (pattern[0] == '/'), name, folders);
}

bool stk_copy_is_selected(const struct stoker_copy *copy, const char *name)
{
    bool selected = copy->filter_count == 0 || copy->filters[0][0] != '+';

    for (size_t i = 0; i < copy->filter_count; i++) {
        const char *filter = copy->filters[i];

        if (selected != (filter[0] == '+') && matches(filter + 1, name)) {
            selected = !selected;
        }
    }
    return selected;
}

bool stk_copy_is_system_file(const struct stoker_copy *copy, const char *name)
{
    return copy->options.skip_system_files &&
           (copy->options.kind == STOKER_COPY || copy->options.kind == STOKER_SYNC) &&
           stk_system_file_in_path((struct stk_view){(const uint8_t *)name, strlen(name)});
}

static int fail_filter(struct stoker_error *error, const char *filter)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "a filter is invalid",
                    "begin it with '+' or '-', then a pattern of less than 4096 bytes", "'%.400s'",
                    filter);
}

int stk_copy_copy_texts(const char *const *texts, size_t count, char ***copied_out,
                        struct stoker_error *error)
{
    char **copied = count > 0 ? stk_alloc(count, sizeof *copied) : NULL;

    if (count > 0 && !copied) {
        return stk_fail_memory(error, "copy");
    }
    *copied_out = copied;
    for (size_t i = 0; i < count; i++) {
        copied[i] = stk_strdup(texts[i]);
        if (!copied[i]) {
            return stk_fail_memory(error, "copy");
        }
    }
    return 0;
}

int stk_copy_filters_read(struct stoker_copy *copy, struct stoker_error *error)
{
    const struct stoker_copy_options *options = &copy->options;
    int status = 0;

    for (size_t i = 0; i < options->filter_count && status == 0; i++) {
        const char *filter = options->filters[i];

        if ((filter[0] != '+' && filter[0] != '-') || !filter[1] ||
            strlen(filter) > STK_WALK_PATH_BYTES_MAX) {
            status = fail_filter(error, filter);
        }
    }
    copy->filter_count = status == 0 ? options->filter_count : 0;
    status = status < 0 ? status
                        : stk_copy_copy_texts(options->filters, options->filter_count,
                                              &copy->filters, error);
    copy->name_count = status == 0 ? options->name_count : 0;
    return status < 0
               ? status
               : stk_copy_copy_texts(options->names, options->name_count, &copy->names_only, error);
}

void stk_copy_texts_free(char **texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++) {
        stk_free(texts[i]);
    }
    stk_free(texts);
}
