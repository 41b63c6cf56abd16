/* Globs, by listings of io/io.h. */
#include "io/write.h"
#include "storage/source/path_list.h"

#include "base/text/utf8.h"
#include "storage/url/url_split.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

struct glob {
    struct stk_io *io;
    struct stk_path_list *names;
    struct stoker_error *error;
    const char *pattern;
    bool folders_only;
    bool no_links;       /* of wildcards: links to folders match, but are not entered */
    bool matched;        /* a wildcard is in the prefix */
    char path[PATH_MAX]; /* the prefix matched so far */
    size_t bytes;
    struct {
        uint64_t device, inode;
    } above[STK_SOURCE_DEPTH_MAX + 1]; /* the folders that ** descended into */
};

static int expand(struct glob *glob, const char *rest, int depth);
static int expand_part(struct glob *glob, const char *part, size_t part_bytes, const char *rest,
                       int depth);
static int expand_deep(struct glob *glob, const char *stars, const char *rest, int depth);
static int open_folder(struct glob *glob, const struct stk_entry *entry, const char *stars,
                       int depth);
static int list_here(struct glob *glob, struct stk_listing *listing_out);
static int push(struct glob *glob, const char *name, size_t bytes, size_t *before_out);
static void pop(struct glob *glob, size_t before);
static int add(struct glob *glob);
static int add_listed(struct glob *glob, const struct stk_entry *entry);
static bool is_barrier(struct glob *glob, const char *rest);
static bool bracket(const char **pattern, const char *end, uint32_t letter, bool *matches_out);
static uint32_t letter_at(const char **cursor, const char *end);

int stk_glob(struct stk_io *io, const char *pattern, bool no_links, struct stk_path_list *names,
             struct stoker_error *error)
{
    struct glob glob = {
        .io = io, .names = names, .error = error, .pattern = pattern, .no_links = no_links};
    uint64_t before = names->count;
    size_t bytes = strlen(pattern);
    char copy[PATH_MAX];
    const char *start;
    int status;

    if (bytes >= PATH_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a glob is too long",
                        "shorten it to less than 4096 bytes", "'%.200s'", pattern);
    }
    glob.folders_only = bytes > 0 && pattern[bytes - 1] == '/';
    while (bytes > 1 && pattern[bytes - 1] == '/') {
        bytes--;
    }
    memcpy(copy, pattern, bytes);
    copy[bytes] = '\0';
    start = copy + strspn(copy, "/");
    if (stk_io_is_url(copy)) { /* the pattern begins after the host or bucket */
        start = strstr(copy, "://") + 3;
        start += strcspn(start, "/");
        start += *start == '/'; /* also for file:///... in a chain */
        glob.bytes = (size_t)(start - copy);
        memcpy(glob.path, copy, glob.bytes);
        start += strspn(start, "/");
    } else if (copy[0] == '/') {
        glob.path[glob.bytes++] = '/';
    }
    status = expand(&glob, start, 0);
    stk_path_list_sort(names, before, true);
    return status;
}

bool stk_glob_has_magic(const char *pattern)
{
    const char *magic = strpbrk(pattern, "*?[");

    return magic != NULL && magic != stk_url_find_version(pattern);
}

/* Backtracks only to the last star: it can match all that an earlier star could. */
bool stk_glob_match(const char *pattern, size_t pattern_bytes, const char *name)
{
    const char *end = pattern + pattern_bytes, *name_end = name + strlen(name);
    const char *star = NULL, *star_name = NULL;

    if (name[0] == '.' && (pattern_bytes == 0 || pattern[0] != '.')) {
        return false;
    }
    while (name < name_end) {
        const char *next_name = name, *next = pattern;
        uint32_t letter = letter_at(&next_name, name_end);
        bool matches = false;

        if (pattern < end && *pattern == '*') {
            star = ++pattern;
            star_name = name;
            continue;
        }
        if (pattern < end && *pattern == '?') {
            next++;
            matches = true;
        } else if (pattern < end && !bracket(&next, end, letter, &matches)) {
            matches = letter_at(&next, end) == letter;
        }
        if (matches) {
            pattern = next;
            name = next_name;
        } else if (star) {
            (void)letter_at(&star_name, name_end);
            pattern = star;
            name = star_name;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*') {
        pattern++;
    }
    return pattern == end;
}

/* Matches the rest of the pattern below the current path. */
static int expand(struct glob *glob, const char *rest, int depth)
{
    size_t part_bytes = strcspn(rest, "/"), before;
    const char *next = rest + part_bytes + strspn(rest + part_bytes, "/");
    char part[PATH_MAX];
    int status;

    if (part_bytes == 0) {
        return add(glob);
    }
    memcpy(part, rest, part_bytes);
    part[part_bytes] = '\0';
    if (strcmp(part, "**") == 0) {
        /* A second ** would only find paths twice. */
        while (strncmp(next, "**", 2) == 0 && (next[2] == '/' || next[2] == '\0')) {
            rest = next;
            next += 2 + strspn(next + 2, "/");
        }
        return expand_deep(glob, rest, next, depth);
    }
    if (stk_glob_has_magic(part)) {
        return expand_part(glob, part, part_bytes, next, depth);
    }
    status = push(glob, part, part_bytes, &before);
    if (status == 0) {
        if (!is_barrier(glob, next)) {
            status = expand(glob, next, depth);
        }
        pop(glob, before);
    }
    return status;
}

/* Returns true if the path, which a wildcard found, is a link that must not be entered. */
static bool is_barrier(struct glob *glob, const char *rest)
{
    return glob->no_links && glob->matched && rest[0] && stk_io_is_link(glob->io, glob->path);
}

static int expand_part(struct glob *glob, const char *part, size_t part_bytes, const char *rest,
                       int depth)
{
    struct stk_listing listing = {0};
    int status = list_here(glob, &listing);
    bool matched = glob->matched;

    glob->matched = true;
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        size_t before;

        if ((rest[0] && entry->kind != STK_ENTRY_DIRECTORY) ||
            (rest[0] && glob->no_links && entry->link) ||
            !stk_glob_match(part, part_bytes, entry->name)) {
            continue;
        }
        status = push(glob, entry->name, strlen(entry->name), &before);
        if (status == 0) {
            status = rest[0] ? expand(glob, rest, depth) : add_listed(glob, entry);
            pop(glob, before);
        }
    }
    glob->matched = matched;
    stk_listing_free(&listing);
    return status;
}

/* stars: the pattern from ** on; rest: the pattern after it, "" for all files below. */
static int expand_deep(struct glob *glob, const char *stars, const char *rest, int depth)
{
    struct stk_listing listing = {0};
    bool matched = glob->matched;
    int status;

    glob->matched = true;
    status = rest[0] ? expand(glob, rest, depth) : 0;
    if (status == 0) {
        status = list_here(glob, &listing);
    }
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        size_t before;

        if (entry->name[0] == '.') {
            continue;
        }
        if (entry->kind == STK_ENTRY_DIRECTORY && glob->no_links && entry->link) {
            continue;
        }
        if (entry->kind == STK_ENTRY_DIRECTORY) {
            status = open_folder(glob, entry, stars, depth);
        } else if (!rest[0]) {
            status = push(glob, entry->name, strlen(entry->name), &before);
            if (status == 0) {
                status = add_listed(glob, entry);
                pop(glob, before);
            }
        }
    }
    glob->matched = matched;
    stk_listing_free(&listing);
    return status;
}

/* Descends into a folder for **, unless it is a loop. */
static int open_folder(struct glob *glob, const struct stk_entry *entry, const char *stars,
                       int depth)
{
    size_t before;
    int status = push(glob, entry->name, strlen(entry->name), &before);

    if (status < 0) {
        return status;
    }
    if (depth == STK_SOURCE_DEPTH_MAX) {
        return stk_fail(glob->error, STOKER_ERROR_LIMIT, "folders are nested too deeply",
                        "use a glob without **", "'%s'", glob->path);
    }
    for (int i = 0; i < depth; i++) {
        if (glob->above[i].device == entry->device && glob->above[i].inode == entry->inode) {
            return stk_fail_errno(glob->error, ELOOP, "a symbolic link leads back up",
                                  "remove the link, or use a glob without **", "'%s'", glob->path);
        }
    }
    glob->above[depth].device = entry->device;
    glob->above[depth].inode = entry->inode;
    status = expand(glob, stars, depth + 1);
    pop(glob, before);
    return status;
}

/* Not a folder: it has no entries, but other paths may match. */
static int list_here(struct glob *glob, struct stk_listing *listing_out)
{
    int status = stk_io_list(glob->io, glob->bytes ? glob->path : ".", listing_out, glob->error);

    return status == -ENOENT || status == -ENOTDIR ? 0 : status;
}

static int push(struct glob *glob, const char *name, size_t bytes, size_t *before_out)
{
    bool slash = glob->bytes > 0 && glob->path[glob->bytes - 1] != '/';

    *before_out = glob->bytes;
    if (glob->bytes + slash + bytes >= PATH_MAX) {
        return stk_fail_errno(glob->error, ENAMETOOLONG, "a path is too long",
                              "shorten it to less than 4096 bytes", "'%.400s'", glob->path);
    }
    if (slash) {
        glob->path[glob->bytes++] = '/';
    }
    memcpy(glob->path + glob->bytes, name, bytes);
    glob->bytes += bytes;
    glob->path[glob->bytes] = '\0';
    return 0;
}

static void pop(struct glob *glob, size_t before)
{
    glob->bytes = before;
    glob->path[before] = '\0';
}

/* Adds the path if it exists. */
static int add(struct glob *glob)
{
    struct stk_stat stat = {0};
    int status = stk_io_stat_path(glob->io, glob->path, &stat, glob->error);

    if (status == -ENOENT || status == -ENOTDIR ||
        (status == 0 && glob->folders_only && stat.kind != STK_ENTRY_DIRECTORY)) {
        return 0;
    }
    if (status == 0) {
        status = stk_path_list_add(glob->names, glob->path, glob->bytes);
        return status < 0 ? stk_path_list_fail(glob->error, status, glob->path) : 0;
    }
    return status;
}

/* Adds an entry of a listing. Objects need no further request; a local entry may be a dangling
 * link, which only no_links reports. */
static int add_listed(struct glob *glob, const struct stk_entry *entry)
{
    int status = 0;

    if (!stk_io_is_url(glob->path) && !(glob->no_links && entry->link && !glob->folders_only)) {
        return add(glob);
    }
    if (!glob->folders_only || entry->kind == STK_ENTRY_DIRECTORY) {
        status = stk_path_list_add(glob->names, glob->path, glob->bytes);
    }
    return status < 0 ? stk_path_list_fail(glob->error, status, glob->path) : 0;
}

/* Parses "[a-z]" or "[!a-z]" at *pattern and moves after it. Returns false if it is no bracket
 * expression. A leading ']' is literal, and so is an unclosed '['. */
static bool bracket(const char **pattern, const char *end, uint32_t letter, bool *matches_out)
{
    const char *cursor = *pattern + 1;
    bool not = false, found = false;

    if (**pattern != '[') {
        return false;
    }
    if (cursor < end && (*cursor == '!' || *cursor == '^')) {
        not = true;
        cursor++;
    }
    for (bool first = true; cursor < end && (first || *cursor != ']'); first = false) {
        uint32_t from = letter_at(&cursor, end), to = from;

        if (end - cursor >= 2 && cursor[0] == '-' && cursor[1] != ']') {
            cursor++;
            to = letter_at(&cursor, end);
        }
        found = found || (letter >= from && letter <= to);
    }
    if (cursor >= end) {
        return false;
    }
    *pattern = cursor + 1;
    *matches_out = found != not;
    return true;
}

/* Returns the next character and moves after it. A byte that is not UTF-8 is one character, with a
 * code above all others. */
static uint32_t letter_at(const char **cursor, const char *end)
{
    const uint8_t *data = (const uint8_t *)*cursor;
    uint32_t bytes = stk_utf8_character(data, (size_t)(end - *cursor));
    uint32_t letter = bytes > 1 ? data[0] & (0x7fu >> bytes) : data[0];

    for (uint32_t i = 1; i < bytes; i++) {
        letter = letter << 6 | (data[i] & 0x3f);
    }
    *cursor += bytes > 0 ? bytes : 1;
    return bytes > 0 ? letter : 0x110000u + data[0];
}
