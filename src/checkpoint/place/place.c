/* Names of a place for checkpoints, and its small files. */
#include "checkpoint/place/place.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/text_match.h"
#include "io/atomic_file.h"
#include "io/clock.h"
#include "storage/object/store.h"
#include "storage/upload/upload.h"
#include "storage/vfs/vfs.h"
#include "storage/walk/walk.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define STEP_PREFIX "step-"
#define STEP_DIGITS 10 /* at least */
#define WALK_WAIT_MS 1000u
#define RESTORE_OTHER "restore another step, or save or copy this one again"

/* Returns true at the end of "s3://". */
static bool ends_scheme(const char *url, size_t bytes)
{
    return bytes >= 3 && memcmp(url + bytes - 3, "://", 3) == 0;
}

int stk_place_init(struct stk_checkpoint_place *place, struct stk_io *io, const char *path,
                   bool write, struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    size_t bytes;
    int status = 0;

    *place = (struct stk_checkpoint_place){.io = io, .remote = stk_io_is_url(path)};
    if (path[0] == '\0') {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the path of the checkpoints is empty",
                        "name a folder or a URL", "''");
    }
    path = stk_text_skip_file_scheme(path);
    place->root = stk_strdup(path);
    if (!place->root) {
        return stk_fail_memory(error, "'%.400s'", path);
    }
    bytes = strlen(place->root);
    while (bytes > 1 && place->root[bytes - 1] == '/' && !ends_scheme(place->root, bytes)) {
        place->root[--bytes] = '\0';
    }
    if (place->remote) {
        status = stk_vfs_get_store(io, &place->store, error);
        status = status < 0 || !write ? status : stk_object_url_parse(path, &object, error);
        if (status == 0 && write && !stk_upload_is_supported(object)) {
            status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this location is read-only",
                              "write to a folder, s3://, gs:// or az://", "'%.400s'", path);
        }
        stk_object_url_free(object);
    }
    if (status < 0) {
        stk_place_deinit(place);
    }
    return status;
}

void stk_place_deinit(struct stk_checkpoint_place *place)
{
    stk_free(place->root);
    *place = (struct stk_checkpoint_place){0};
}

char *stk_place_path(const struct stk_checkpoint_place *place, const char *folder, const char *name)
{
    size_t bytes = strlen(place->root) + (folder ? strlen(folder) : 0) + (name ? strlen(name) : 0);
    char *path = stk_alloc(bytes + 3, 1);

    if (path) {
        snprintf(path, bytes + 3, "%s%s%s%s%s", place->root, folder ? "/" : "",
                 folder ? folder : "", name ? "/" : "", name ? name : "");
    }
    return path;
}

const char *stk_place_step_name(uint64_t step, char name[STK_PLACE_NAME_BYTES])
{
    snprintf(name, STK_PLACE_NAME_BYTES, STEP_PREFIX "%0*" PRIu64, STEP_DIGITS, step);
    return name;
}

bool stk_place_parse_step(const char *name, const char *suffix, uint64_t *step_out)
{
    size_t prefix = sizeof STEP_PREFIX - 1, digits;
    char again[STK_PLACE_NAME_BYTES];

    if (strncmp(name, STEP_PREFIX, prefix) != 0) {
        return false;
    }
    digits = strspn(name + prefix, "0123456789");
    if (digits < STEP_DIGITS || digits > 16 || strcmp(name + prefix + digits, suffix) != 0) {
        return false;
    }
    *step_out = 0;
    for (size_t i = 0; i < digits; i++) {
        *step_out = *step_out * 10 + (uint64_t)(name[prefix + i] - '0');
    }
    /* Only one name for each number. */
    return *step_out <= STOKER_CHECKPOINT_STEP_MAX &&
           strncmp(stk_place_step_name(*step_out, again), name, prefix + digits) == 0 &&
           strlen(again) == prefix + digits;
}

const char *stk_place_part_name(uint64_t step, const char *id, const char *suffix,
                                char name[STK_PLACE_NAME_BYTES])
{
    snprintf(name, STK_PLACE_NAME_BYTES, STK_PLACE_HIDDEN "%0*" PRIu64 "-%.*s%s", STEP_DIGITS, step,
             (int)STK_PLACE_ID_BYTES_MAX, id, suffix);
    return name;
}

const char *stk_place_file_name(const struct stk_checkpoint_place *place, const char *prefix,
                                uint32_t rank, const char *id, char name[STK_PLACE_FILE_BYTES])
{
    snprintf(name, STK_PLACE_FILE_BYTES, "%s%05u%s%.*s" STK_PLACE_SHARD_SUFFIX, prefix, rank,
             place->remote ? "-" : "", place->remote ? (int)STK_PLACE_ID_BYTES_MAX : 0, id);
    return name;
}

int stk_place_make_id(char id[STK_PLACE_ID_BYTES_MAX + 1], struct stoker_error *error)
{
    uint8_t random[8];

    if (RAND_bytes(random, sizeof random) != 1) {
        return stk_fail(error, -EIO, "there are no random numbers", "check the machine",
                        "id of a save");
    }
    stk_hex(random, sizeof random, id);
    return 0;
}

/* Makes a folder, and makes its name durable if it is new. */
static int make_folder(struct stk_io *io, char *path, struct stoker_error *error)
{
    struct stk_stat stat;
    char *slash = strrchr(path, '/');
    int status;

    if (stk_io_stat_path(io, path, &stat, NULL) == 0 && stat.kind == STK_ENTRY_DIRECTORY) {
        return 0;
    }
    status = stk_io_make_directory(io, path, false, error);
    if (status < 0) {
        return status;
    }
    if (!slash) {
        return stk_io_sync_directory(io, ".", error);
    }
    *slash = '\0';
    status = stk_io_sync_directory(io, slash == path ? "/" : path, error);
    *slash = '/';
    return status;
}

int stk_place_make_root(const struct stk_checkpoint_place *place, struct stoker_error *error)
{
    char *path = place->remote ? NULL : stk_strdup(place->root);
    int status = 0;

    if (place->remote) {
        return 0;
    }
    if (!path) {
        return stk_fail_memory(error, "'%.400s'", place->root);
    }
    for (char *slash = strchr(path + 1, '/'); slash && status == 0;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = make_folder(place->io, path, error);
        *slash = '/';
    }
    status = status < 0 ? status : make_folder(place->io, path, error);
    stk_free(path);
    return status;
}

int stk_place_read(const struct stk_checkpoint_place *place, const char *path, uint64_t bytes_max,
                   uint8_t **data_out, size_t *bytes_out, struct stoker_error *error)
{
    struct stk_file *file = NULL;
    struct stk_stat stat;
    uint8_t *data = NULL;
    int64_t got;
    int status = stk_io_open_file(place->io, path, &file, error);

    if (status < 0) {
        return status;
    }
    status = stk_io_stat_file(file, &stat, error);
    if (status == 0 && stat.bytes > bytes_max) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "the file is too long", "check what it is",
                          "'%.400s' has %llu bytes", path, (unsigned long long)stat.bytes);
    }
    data = status == 0 ? stk_alloc(stat.bytes + 1, 1) : NULL;
    if (status == 0 && !data) {
        status = stk_fail_memory(error, "'%.400s'", path);
    }
    if (status == 0) {
        got = stk_io_read_wait(file, 0, data, stat.bytes);
        if (got < 0) {
            status = stk_io_fail_read(file, got, "cannot read the file", error);
            stk_error_set_location(error, path, 0, NULL);
        } else {
            *bytes_out = (size_t)got;
        }
    }
    stk_io_close_file(file);
    if (status < 0) {
        stk_free(data);
        return status;
    }
    *data_out = data;
    return 0;
}

int stk_place_read_manifest(const struct stk_checkpoint_place *place, const char *folder,
                            struct stk_step_manifest *manifest, bool *read_out,
                            struct stoker_error *error)
{
    char *path = stk_place_path(place, folder, STK_STEP_MANIFEST_NAME);
    uint8_t *text = NULL;
    size_t bytes = 0;
    int status =
        path ? stk_place_read(place, path, STK_STEP_MANIFEST_BYTES_MAX, &text, &bytes, error)
             : stk_fail_memory(error, "manifest");

    *manifest = (struct stk_step_manifest){0};
    if (read_out) {
        *read_out = status == 0;
    }
    if (status == 0) {
        status = stk_step_manifest_parse(manifest, (struct stk_view){text, bytes}, error);
        if (status < 0) {
            stk_error_set_location(error, path, 0, NULL);
        }
    }
    stk_free(text);
    stk_free(path);
    return status;
}

int stk_place_write(const struct stk_checkpoint_place *place, const char *path,
                    struct stk_view bytes, bool if_absent, struct stoker_error *error)
{
    struct stk_upload_options options = {.if_absent = if_absent};
    struct stk_object_url *object = NULL;
    struct stk_stat stat;
    int status;

    if (!place->remote) {
        if (if_absent && stk_io_stat_path(place->io, path, &stat, NULL) == 0) {
            return stk_fail_errno(error, EEXIST, "the file exists", "choose another name",
                                  "'%.400s'", path);
        }
        return stk_atomic_file_store(place->io, path, STK_PLACE_PART_SUFFIX, bytes,
                                     STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
    }
    status = stk_object_url_parse(path, &object, error);
    status = status < 0 ? status : stk_upload_put(place->store, object, bytes, &options, error);
    stk_vfs_set_metadata(place->io, path, NULL);
    stk_object_url_free(object);
    return status;
}

int stk_place_stat_now(const struct stk_checkpoint_place *place, const char *path,
                       struct stk_stat *stat_out, struct stoker_error *error)
{
    if (place->remote) {
        stk_vfs_set_metadata(place->io, path, NULL);
    }
    return stk_io_stat_path(place->io, path, stat_out, error);
}

uint64_t stk_place_age_ns(const struct stk_checkpoint_place *place, const char *path)
{
    uint64_t now_ns = stk_clock_wall_ns();
    struct stk_stat stat;

    return stk_io_stat_path(place->io, path, &stat, NULL) == 0 && stat.mtime_ns < now_ns
               ? now_ns - stat.mtime_ns
               : 0;
}

int stk_place_check_file(const struct stk_checkpoint_place *place, const char *folder,
                         const char *name, uint64_t bytes, struct stoker_error *error)
{
    char *path = stk_place_path(place, folder, name);
    struct stk_stat stat;
    int status =
        path ? stk_place_stat_now(place, path, &stat, error) : stk_fail_memory(error, "checkpoint");

    if (stk_place_is_absent(status)) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "a file of the step is missing",
                          RESTORE_OTHER, "'%.400s'", path);
    } else if (status == 0 && stat.bytes != bytes) {
        status =
            stk_fail(error, STOKER_ERROR_TRUNCATED,
                     "the file has not the length that the manifest says", RESTORE_OTHER,
                     "'%.400s' has %" PRIu64 " bytes instead of %" PRIu64, path, stat.bytes, bytes);
    }
    stk_free(path);
    return status;
}

int stk_place_remove(const struct stk_checkpoint_place *place, const char *path,
                     struct stoker_error *error)
{
    struct stk_object_url *object = NULL;
    int status;

    if (!place->remote) {
        return stk_io_remove(place->io, path, error);
    }
    status = stk_object_url_parse(path, &object, error);
    status = status < 0 ? status : stk_upload_remove(place->store, object, error);
    stk_vfs_set_metadata(place->io, path, NULL);
    stk_object_url_free(object);
    return status;
}

static int remove_objects(const struct stk_checkpoint_place *place, const char *path,
                          struct stoker_error *error)
{
    struct stk_walk_options options = {
        .io = place->io, .path = path, .deep = true, .folder = true, .folder_markers = true};
    struct stk_walk_entry *entry = NULL;
    struct stk_walk *walk = NULL;
    int status = stk_walk_open(&walk, &options, error);

    while (status >= 0) {
        char *name = NULL;

        status = stk_walk_next(walk, WALK_WAIT_MS, &entry, error);
        if (status == STOKER_ERROR_AGAIN) {
            status = 1;
            continue;
        }
        if (status != 1) {
            break;
        }
        name = stk_alloc(strlen(path) + strlen(entry->name) + 2, 1);
        if (name) {
            snprintf(name, strlen(path) + strlen(entry->name) + 2, "%s/%s", path, entry->name);
            status = stk_place_remove(place, name, error);
        } else {
            status = stk_fail_memory(error, "'%.400s'", path);
        }
        stk_free(name);
        stk_free(entry);
    }
    stk_walk_close(walk);
    return status;
}

int stk_place_remove_folder(const struct stk_checkpoint_place *place, const char *path,
                            struct stoker_error *error)
{
    struct stk_tree_removal how = {.folders = true};
    int status = place->remote ? remove_objects(place, path, error)
                               : stk_io_remove_tree(place->io, path, &how, error);

    return status == -ENOENT ? 0 : status;
}
