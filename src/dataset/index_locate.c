/* Finds the index file of a data set, and which of its entries are up to date. */
#include "dataset/index_locate.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/system_file.h"
#include "format/detect/container_detect.h"
#include "index/string_table.h"
#include "io/user_paths.h"
#include "storage/source/path_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STAT_ROUND 64u /* shards whose status is requested in one round */

static int name_root(struct stk_index_location *location, struct stoker_dataset *dataset,
                     struct stoker_error *error);
static void name_cache(struct stk_index_location *location, const struct stoker_dataset *dataset);

__attribute__((format(printf, 3, 4))) static void note(struct stk_index_location *location,
                                                       int status, const char *format, ...)
{
    __builtin_va_list list;

    if (location->note[0]) {
        return; /* the first reason counts */
    }
    location->note_status = status;
    __builtin_va_start(list, format);
    vsnprintf(location->note, sizeof location->note, format, list);
    __builtin_va_end(list);
}

int stk_index_location_open(struct stk_index_location **sidecar_out, struct stoker_dataset *dataset,
                            struct stoker_error *error)
{
    struct stk_index_location *location = stk_alloc(1, sizeof *location);
    int status;

    *sidecar_out = NULL;
    if (!location) {
        return stk_fail_memory(error, "index of a data set");
    }
    status = name_root(location, dataset, error);
    if (status < 0) {
        stk_index_location_close(location);
        return status;
    }
    /* Do not use '/' as the root: data sets do not look for an index there. */
    if ((location->folder_url ||
         (dataset->objects.count > 0 && strcmp(location->root, "/") != 0)) &&
        snprintf(location->next_to_data, sizeof location->next_to_data, "%s%s", location->root,
                 STK_INDEX_FILE_NAME) >= (int)sizeof location->next_to_data) {
        location->next_to_data[0] = '\0';
    }
    name_cache(location, dataset);
    *sidecar_out = location;
    return 0;
}

void stk_index_location_close(struct stk_index_location *location)
{
    if (location) {
        stk_index_close(location->old);
        stk_index_stamp_deinit(&location->stamp);
        stk_free(location->from);
        stk_free(location->sizes);
        stk_free(location->mtimes);
        stk_free(location);
    }
}

/* Sets the root: the folder if one was named alone, else the deepest folder that has all shards. */
static int name_root(struct stk_index_location *location, struct stoker_dataset *dataset,
                     struct stoker_error *error)
{
    const char *url = dataset->options.urls[0];
    size_t bytes = strlen(url);
    struct stk_stat about;

    (void)error;
    if (dataset->options.url_count == 1 && bytes > 0 && bytes < sizeof location->root - 1 &&
        !(stk_io_is_url(url) && strpbrk(url, "{*")) && /* a pattern is no folder */
        stk_io_stat_path(dataset->engine->io, url, &about, NULL) == 0 &&
        about.kind == STK_ENTRY_DIRECTORY) {
        while (bytes > 1 && url[bytes - 1] == '/') {
            bytes--;
        }
        memcpy(location->root, url, bytes);
        if (url[bytes - 1] != '/') {
            location->root[bytes++] = '/';
        }
        location->root[bytes] = '\0';
        location->folder_url = true;
        return 0;
    }
    if (dataset->objects.count == 0) {
        return 0;
    }
    url = stk_source_files_path(&dataset->objects, 0);
    bytes = strlen(url);
    for (uint64_t i = 0; i < dataset->objects.count; i++) {
        const char *path = stk_source_files_path(&dataset->objects, i);
        size_t same = 0;

        while (same < bytes && path[same] == url[same]) {
            same++;
        }
        bytes = same;
    }
    while (bytes > 0 && url[bytes - 1] != '/') {
        bytes--;
    }
    bytes = stk_min(bytes, sizeof location->root - 1);
    memcpy(location->root, url, bytes);
    location->root[bytes] = '\0';
    return 0;
}

static void name_cache(struct stk_index_location *location, const struct stoker_dataset *dataset)
{
    char folder[STK_PATH_BYTES_MAX], absolute[2 * STK_PATH_BYTES_MAX];
    struct stk_sha256 sha;
    uint8_t digest[32];
    char hex[33];

    if (!stk_user_cache_dir(folder, sizeof folder)) {
        return;
    }
    stk_sha256_init(&sha);
    for (size_t i = 0; i < dataset->options.url_count; i++) {
        if (!stk_path_absolute(dataset->options.urls[i], absolute, sizeof absolute)) {
            return;
        }
        stk_sha256_add(&sha, absolute, strlen(absolute) + 1);
    }
    stk_sha256_done(&sha, digest);
    stk_hex(digest, 16, hex);
    if ((size_t)snprintf(location->cache, sizeof location->cache, "%s/%s.index", folder, hex) >=
        sizeof location->cache) {
        location->cache[0] = '\0';
    }
}

/* 1: mapped; 0: not there, or not usable (noted). */
static int try_path(struct stk_index_location *location, struct stoker_dataset *dataset,
                    const char *path, struct stoker_error *error)
{
    struct stoker_error why = {0};
    int status;

    if (!path[0]) {
        return 0;
    }
    status = stk_index_open_file(&location->old, dataset->engine->io, path, &why);
    if (status == -ENOMEM) {
        return stk_fail_memory(error, "index of a data set");
    }
    if (status == -ENOENT || status == -ENOTDIR) {
        return 0;
    }
    if (status < 0) {
        note(location, status, "%s is not used: %s (%s)", path, why.what, why.where);
        return 0;
    }
    if (stk_index_member_gap_max(location->old) > dataset->options.member_gap_max ||
        stk_index_key_bytes_max(location->old) > dataset->options.key_bytes_max) {
        note(location, STOKER_ERROR_ARGUMENT,
             "%s is not used: it was made with member_gap_max %u and key_bytes_max %u", path,
             stk_index_member_gap_max(location->old), stk_index_key_bytes_max(location->old));
        stk_index_close(location->old);
        location->old = NULL;
        return 0;
    }
    /* It fits: the caller built it in a buffer of this size. */
    snprintf(location->path, sizeof location->path, "%s", path);
    status = stk_index_set_root(location->old, location->root, error);
    if (status == 0) {
        status =
            stk_index_stamp_read(&location->stamp, dataset->engine->io, path, location->old, error);
    }
    return status < 0 ? status : 1;
}

int stk_index_location_find(struct stk_index_location *location, struct stoker_dataset *dataset,
                            struct stoker_error *error)
{
    int status;

    if (dataset->options.index_path) {
        status = try_path(location, dataset, dataset->options.index_path, error);
        if (status == 0) {
            note(location, -ENOENT, "%s: there is no such index", dataset->options.index_path);
        }
        return status < 0 ? status : 0;
    }
    status = try_path(location, dataset, location->next_to_data, error);
    if (status == 0) {
        status = try_path(location, dataset, location->cache, error);
    }
    if (status == 0) {
        note(location, -ENOENT, "there is none next to the data or in the cache");
    }
    return status < 0 ? status : 0;
}

/* Class folders are the folders in the root. Compare them by name, because the index file itself
 * may be in the root. */
static int match_classes(struct stk_index_location *location, struct stoker_dataset *dataset,
                         struct stoker_error *error)
{
    struct stk_listing listing = {0};
    uint64_t classes = 0;
    int status = stk_io_list(dataset->engine->io, location->root, &listing, error);

    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];

        if (entry->kind != STK_ENTRY_DIRECTORY ||
            stk_system_file_is(entry->name, strlen(entry->name))) {
            continue;
        }
        if (classes >= stk_index_classes(location->old) ||
            strcmp(stk_index_class(location->old, classes), entry->name) != 0) {
            note(location, STOKER_ERROR_CHANGED,
                 "%s is stale: the class '%.200s' is new or another", location->path, entry->name);
        }
        classes++;
    }
    if (status == 0 && classes != stk_index_classes(location->old)) {
        note(location, STOKER_ERROR_CHANGED, "%s is stale: there are %llu classes, not %llu",
             location->path, (unsigned long long)classes,
             (unsigned long long)stk_index_classes(location->old));
    }
    stk_listing_free(&listing);
    return status;
}

/* Pictures alone are in the root, whose mtime the index itself changes: they are compared by name.
 */
static int match_pictures(struct stk_index_location *location, struct stoker_dataset *dataset,
                          struct stoker_error *error)
{
    const char *endings[STK_CONTAINER_ENDINGS_MAX];
    struct stk_listing listing = {0};
    uint64_t count = stk_index_shards(location->old), found = 0;
    size_t root_bytes = strlen(location->root);
    int status = stk_io_list(dataset->engine->io, location->root, &listing, error);

    stk_container_endings(dataset->formats, endings);
    for (size_t i = 0; status == 0 && i < listing.count && !location->note[0]; i++) {
        const char *name = listing.entries[i].name;
        char path[STK_PATH_BYTES_MAX];

        if ((!stk_path_is_picture(name) && !stk_path_is_shard(name, endings)) ||
            stk_system_file_is(name, strlen(name))) {
            continue;
        }
        status = found < count ? stk_index_path(location->old, found, path, error) : 0;
        if (status == STOKER_ERROR_CORRUPT) {
            note(location, status, "%s is not used: it is damaged", location->path);
            status = 0;
        } else if (status == 0 && (found >= count || strcmp(path + root_bytes, name) != 0)) {
            note(location, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' is new, or another",
                 location->path, name);
        }
        found++;
    }
    if (status == 0 && found < count) {
        note(location, STOKER_ERROR_CHANGED,
             "%s is stale: there are %" PRIu64 " images, not %" PRIu64, location->path, found,
             count);
    }
    stk_listing_free(&listing);
    return status;
}

int stk_index_location_match_folder(struct stk_index_location *location,
                                    struct stoker_dataset *dataset, struct stoker_error *error)
{
    const char *name = location->stamp.names;
    int status = match_classes(location, dataset, error);

    if (status == 0 && stk_index_classes(location->old) == 0) {
        status = match_pictures(location, dataset, error);
    }
    if (status == 0 && !location->stamp.valid && dataset->options.index != STOKER_INDEX_REQUIRE) {
        note(location, STOKER_ERROR_CHANGED,
             "%s may be stale: it has no stamp of its own, as after a copy", location->path);
    }
    for (uint64_t i = 0; status == 0 && i < location->stamp.count; i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stk_stat about;

        bool is_cut =
            (size_t)snprintf(path, sizeof path, "%s%s", location->root, name) >= sizeof path;
        name += strlen(name) + 1;
        if (is_cut || stk_io_stat_path(dataset->engine->io, path, &about, NULL) < 0 ||
            about.mtime_ns != location->stamp.mtimes[i]) {
            note(location, STOKER_ERROR_CHANGED, "%s is stale: the folder '%.300s' changed",
                 location->path, path);
            break;
        }
    }
    location->complete = status == 0 && !location->note[0];
    return status;
}

struct match {
    struct stk_index_location *location;
    struct stoker_dataset *dataset;
};

#define SECOND_NS 1000000000u

/* The time of a file. Stores have whole seconds: the rest is a hash of the ETag, so that an object
 * that was written twice in a second, or got its old time again, has another time. */
static uint64_t time_of(const char *path, const struct stk_stat *about)
{
    return stk_io_is_url(path) && about->version
               ? about->mtime_ns - about->mtime_ns % SECOND_NS + about->version % SECOND_NS
               : about->mtime_ns;
}

/* Stamps of earlier versions have the seconds of objects only. */
static bool is_same_time(const char *path, uint64_t now, uint64_t stamped)
{
    return now == stamped ||
           (stk_io_is_url(path) && stamped % SECOND_NS == 0 && now - now % SECOND_NS == stamped);
}

/* If the status cannot be read, the scan reports why. */
static int stat_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct match *match = context;
    uint64_t end = stk_min((round + 1) * STAT_ROUND, match->dataset->objects.count);

    (void)error;
    for (uint64_t i = round * STAT_ROUND; i < end; i++) {
        struct stk_stat about;

        if (stk_io_stat_path(match->dataset->engine->io,
                             stk_source_files_path(&match->dataset->objects, i), &about,
                             NULL) == 0) {
            match->location->sizes[i] = about.bytes;
            match->location->mtimes[i] =
                time_of(stk_source_files_path(&match->dataset->objects, i), &about);
        }
    }
    return 0;
}

/* Numbers the old index's shards by their names below the root. Returns STOKER_ERROR_CORRUPT if a
 * page is damaged, or a name comes twice. */
static int number_names(const struct stk_index_location *location, struct stk_string_table *words,
                        struct stoker_error *error)
{
    size_t root_bytes = strlen(location->root);
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < stk_index_shards(location->old); i++) {
        char path[STK_PATH_BYTES_MAX];
        uint32_t number;

        status = stk_index_path(location->old, i, path, error);
        if (status < 0) {
            return status;
        }
        status = stk_string_table_add(
            words, (struct stk_view){(uint8_t *)path + root_bytes, strlen(path + root_bytes)},
            UINT32_MAX / 2, &number);
        if (status == 0 && number != i) {
            return STOKER_ERROR_CORRUPT; /* numbers would be out of step */
        }
    }
    return status < 0 ? stk_fail_memory(error, "index of a data set") : 0;
}

static void match_shard(struct stk_index_location *location, const char *path, uint64_t object,
                        uint32_t old)
{
    if (location->sizes[object] != stk_index_shard_bytes(location->old, old)) {
        note(location, STOKER_ERROR_CHANGED,
             "%s is stale: '%.300s' has %" PRIu64 " bytes, not %" PRIu64, location->path, path,
             location->sizes[object], stk_index_shard_bytes(location->old, old));
    } else if (location->stamp.valid &&
               !is_same_time(path, location->mtimes[object], location->stamp.mtimes[old])) {
        note(location, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' was written since",
             location->path, path);
    } else {
        location->from[object] = old + 1;
        location->reused++;
    }
}

/* Finds shards of the old index that are not in the listing, and whether they still exist. */
static int find_extra_shards(struct stk_index_location *location, struct stoker_dataset *dataset,
                             const uint8_t *listed, struct stoker_error *error)
{
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < stk_index_shards(location->old); i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stk_stat about;

        if (listed[i]) {
            continue;
        }
        status = stk_index_path(location->old, i, path, error);
        if (status == 0 && stk_io_stat_path(dataset->engine->io, path, &about, NULL) == 0) {
            location->has_extra = true;
            continue;
        }
        if (status == 0) {
            location->has_missing = true;
            note(location, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' is missing", location->path,
                 path);
        }
    }
    return status;
}

static int match_all(struct stk_index_location *location, struct stoker_dataset *dataset,
                     struct stoker_error *error)
{
    struct stk_string_table words = {0};
    uint64_t count = dataset->objects.count, in_place = 0;
    uint8_t *listed = stk_alloc(stk_index_shards(location->old), 1);
    size_t root_bytes = strlen(location->root);
    int status = listed ? number_names(location, &words, error)
                        : stk_fail_memory(error, "index of a data set");

    if (status == STOKER_ERROR_CORRUPT) {
        note(location, status, "%s is not used: it is damaged, or names a shard twice",
             location->path);
        count = 0;
        status = 0;
    }
    for (uint64_t i = 0; status == 0 && i < count; i++) {
        const char *path = stk_source_files_path(&dataset->objects, i);
        int64_t old =
            stk_string_table_find(&words, (struct stk_view){(const uint8_t *)path + root_bytes,
                                                            strlen(path + root_bytes)});

        if (old < 0) {
            note(location, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' is new", location->path,
                 path);
            continue;
        }
        listed[old] = 1;
        match_shard(location, path, i, old);
        in_place += location->from[i] == i + 1;
    }
    if (status == 0) {
        location->complete = in_place == count && count == stk_index_shards(location->old);
        location->appended = in_place == stk_index_shards(location->old) && in_place < count;
    }
    if (status == 0 && !location->complete && !location->appended && count > 0) {
        status = find_extra_shards(location, dataset, listed, error);
    }
    stk_string_table_deinit(&words);
    stk_free(listed);
    return status;
}

void stk_index_location_require_kind(struct stk_index_location *location, uint32_t kind)
{
    bool folder = kind == STK_SOURCE_FOLDER;

    if (location->old && stk_index_is_folder(location->old) != folder) {
        note(location, STOKER_ERROR_CHANGED,
             "%s is out of date: it has %s, but the data set has %s", location->path,
             folder ? "tars" : "class folders", folder ? "class folders" : "tars");
        stk_index_close(location->old);
        location->old = NULL;
    }
}

int stk_index_location_match(struct stk_index_location *location, struct stoker_dataset *dataset,
                             struct stoker_error *error)
{
    struct match match = {location, dataset};
    uint64_t count = dataset->objects.count;
    int status;

    location->from = stk_alloc(count, sizeof *location->from);
    location->sizes = stk_alloc(count, sizeof *location->sizes);
    location->mtimes = stk_alloc(count, sizeof *location->mtimes);
    if (!location->from || !location->sizes || !location->mtimes) {
        return stk_fail_memory(error, "index of a data set");
    }
    status = stk_engine_parallel(dataset->engine, (count + STAT_ROUND - 1) / STAT_ROUND, stat_round,
                                 &match, error);
    stk_index_location_require_kind(location, STK_SOURCE_TARS);
    if (status == 0 && location->old) {
        status = match_all(location, dataset, error);
    }
    return status;
}

uint64_t stk_index_location_block_samples(const struct stk_index_location *location)
{
    return location->old && location->reused > 0 && !location->has_extra
               ? stk_index_block_samples(location->old)
               : 0;
}

void stk_dataset_open_jpeg_index(struct stoker_dataset *dataset)
{
    char path[STK_PATH_BYTES_MAX + sizeof STK_JPEG_INDEX_SUFFIX];
    struct stoker_error why;
    int status;

    if (!dataset->index_path || !dataset->index) {
        return;
    }
    /* It fits: an index has a path below STK_PATH_BYTES_MAX. */
    snprintf(path, sizeof path, "%s%s", dataset->index_path, STK_JPEG_INDEX_SUFFIX);
    status = stk_jpeg_index_open(&dataset->jpeg_index, dataset->engine->io, path,
                                 stk_index_identity(dataset->index), &why);
    if (status == 0 &&
        stk_jpeg_index_samples(dataset->jpeg_index) != stk_index_samples(dataset->index)) {
        stk_jpeg_index_close(dataset->jpeg_index);
        dataset->jpeg_index = NULL;
        status = stk_fail(&why, STOKER_ERROR_CHANGED, "the marks of JPEGs are not used", "",
                          "they are of another number of samples");
    }
    if (status < 0 && status != -ENOENT) {
        char note[sizeof why.what + sizeof why.where];

        snprintf(note, sizeof note, "%s: %s", why.what, why.where);
        dataset->jpeg_index_note = stk_strdup(note); /* without memory there is no note */
    }
}

struct stk_jpeg_index_entries stk_dataset_jpeg_entries(const struct stoker_dataset *dataset,
                                                       uint64_t sample)
{
    struct stk_jpeg_index_entries none = {0};

    return dataset->jpeg_index ? stk_jpeg_index_get(dataset->jpeg_index, sample) : none;
}

int stk_dataset_check_maps(const struct stoker_dataset *dataset, struct stoker_error *error)
{
    int status = stk_index_check_map(dataset->index, error);

    return status == 0 && dataset->jpeg_index ? stk_jpeg_index_check_map(dataset->jpeg_index, error)
                                              : status;
}
