/* Paths of destinations, of their folders, and of partial files. */
#include "tools/copy/copy.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "storage/url/url_split.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Of a chain of fsspec URLs, "simplecache::https://host/name", the last one counts, unless the path
 * goes on inside an archive. */
static bool is_web(const char *path)
{
    const char *last = path, *next;

    while ((next = strstr(last, "::"))) {
        last = next + 2;
    }
    return stk_url_scheme_of(last) == STK_URL_HTTP && (last == path || !strstr(last, "!/"));
}

const char *stk_copy_base_name(const char *path, size_t *bytes_out)
{
    const char *version = stk_url_find_version(path);
    bool http = is_web(path);
    size_t bytes = version ? (size_t)(version - path) : http ? strcspn(path, "?#") : strlen(path);
    size_t begin;

    while (bytes > 0 && path[bytes - 1] == '/') {
        bytes--;
    }
    begin = bytes;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    *bytes_out = bytes - begin;
    return path + begin;
}

char *stk_copy_entry_name(const char *source)
{
    size_t bytes;
    const char *base = stk_copy_base_name(source, &bytes);
    char *raw = stk_alloc(1, bytes + 1), *name;
    bool control = false;

    if (!raw) {
        return NULL;
    }
    memcpy(raw, base, bytes);
    name = is_web(source) ? stk_strdup(raw) : NULL;
    if (!name) {
        return raw;
    }
    stk_url_decode_percent(name);
    for (const char *at = name; *at; at++) {
        control = control || (uint8_t)*at < ' ' || *at == 0x7f;
    }
    if (control || strchr(name, '/') || !stk_copy_is_safe_path(name)) {
        stk_free(name);
        return raw;
    }
    stk_free(raw);
    return name;
}

bool stk_copy_is_safe_path(const char *name)
{
    for (;;) {
        size_t bytes = strcspn(name, "/");

        if (bytes == 0 || bytes > 255 || (bytes == 1 && name[0] == '.') ||
            (bytes == 2 && name[0] == '.' && name[1] == '.')) {
            return false;
        }
        if (!name[bytes]) {
            return true;
        }
        name += bytes + 1;
    }
}

char *stk_copy_join_path(const char *folder, const char *name)
{
    size_t bytes = strlen(folder), slash = name[0] && bytes > 0 && folder[bytes - 1] != '/';
    size_t name_bytes = strlen(name);
    char *path = stk_alloc(1, bytes + slash + name_bytes + 1);

    if (path) {
        memcpy(path, folder, bytes);
        path[bytes] = '/';
        memcpy(path + bytes + slash, name, name_bytes + 1);
    }
    return path;
}

/* Makes path[0, bytes), and all above it that is below the destination. With folders_lock. */
static int make_folder(struct stoker_copy *copy, char *path, size_t bytes,
                       struct stoker_error *error)
{
    size_t root_bytes = strlen(copy->destination), parent = bytes;
    int status = 0;

    while (root_bytes > 1 && copy->destination[root_bytes - 1] == '/') {
        root_bytes--;
    }
    if (copy->folder && bytes <= root_bytes) {
        return 0; /* the planner made it */
    }
    if (stk_key_set_has(&copy->folders, (struct stk_view){(const uint8_t *)path, bytes})) {
        return 0;
    }
    while (parent > 0 && path[parent - 1] != '/') {
        parent--;
    }
    while (parent > 1 && path[parent - 1] == '/') {
        parent--;
    }
    if (copy->folder && parent > root_bytes) {
        status = make_folder(copy, path, parent, error);
    }
    if (status == 0) {
        char after = path[bytes];

        path[bytes] = '\0';
        status = stk_io_make_directory(copy->to_io, path, false, error);
        if (status == -ELOOP && copy->folder) {
            status =
                stk_fail(error, -ELOOP, "a symbolic link in the destination points outside of it",
                         "remove the link, or copy to its target", "'%.400s'", path);
        }
        path[bytes] = after;
    }
    if (status == 0 &&
        stk_key_set_add(&copy->folders, (struct stk_view){(const uint8_t *)path, bytes}) < 0) {
        status =
            stk_fail(error, -ENOMEM, "cannot create a folder", "free memory", "'%.400s'", path);
    }
    return status;
}

int stk_copy_make_folders(struct stoker_copy *copy, const char *to, struct stoker_error *error)
{
    const char *slash = strrchr(to, '/');
    char *path;
    int status;

    if (!slash || slash == to) {
        return 0;
    }
    path = stk_strdup(to);
    if (!path) {
        return stk_fail(error, -ENOMEM, "cannot create a folder", "free memory", "'%.400s'", to);
    }
    pthread_mutex_lock(&copy->folders_lock); /* the next thread finds them created */
    status = make_folder(copy, path, (size_t)(slash - to), error);
    pthread_mutex_unlock(&copy->folders_lock);
    stk_free(path);
    return status;
}

char *stk_copy_partial_path(const struct stk_copy_file *file, bool note)
{
    const char *slash = strrchr(file->to, '/');
    size_t folder = slash ? (size_t)(slash - file->to) + 1 : 0;
    uint64_t key = stk_xxh3_64(file->from, strlen(file->from));
    char *path = stk_alloc(1, folder + 40);

    key = stk_random_key(key, stk_xxh3_64(file->to, strlen(file->to)));
    if (path) {
        memcpy(path, file->to, folder);
        snprintf(path + folder, 40, STK_WALK_HIDDEN_PREFIX "%016llx%s" STK_WALK_HIDDEN_SUFFIX,
                 (unsigned long long)key, note ? "-of" : "");
    }
    return path;
}

uint64_t stk_copy_version(const struct stoker_copy *copy, const struct stk_copy_file *file)
{
    uint64_t key = stk_random_key(stk_random_key(file->bytes, file->mtime_ns), file->version);

    key = stk_random_key(stk_random_key(key, file->ctime_ns), file->inode);

    return stk_random_key(stk_random_key(key, file->part_bytes), copy->boot);
}

bool stk_copy_can_write(const char *url)
{
    struct stk_object_url *object = NULL;
    bool can = stk_object_url_parse(url, &object, NULL) < 0 || stk_upload_is_supported(object);

    stk_object_url_free(object);
    return can; /* for an invalid URL a later step has a better error */
}

bool stk_copy_can_list(const char *path)
{
    struct stk_object_url *object = NULL;
    bool can = !stk_io_is_url(path) || stk_object_url_parse(path, &object, NULL) < 0 ||
               stk_object_url_has_key(object);

    stk_object_url_free(object);
    return can;
}

static bool is_s3(const char *url)
{
    return stk_url_scheme_of(url) == STK_URL_S3;
}

bool stk_copy_is_server_side(const struct stk_copy_file *file)
{
    return file->to && is_s3(file->from) && is_s3(file->to);
}
