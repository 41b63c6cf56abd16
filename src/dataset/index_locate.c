/* Finds the index file of a data set and tells what of it is still true. */
#include "dataset/index_locate.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "index/string_table.h"
#include "io/user_paths.h"
#include "storage/source/path_list.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MATCH_ROUND 64u /* shards asked for their size in a round */

static int name_root(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                     struct stoker_error *error);
static void name_cache(struct stk_sidecar *sidecar, const struct stoker_dataset *dataset);

static int no_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot look for an index", "free memory", "data set");
}

__attribute__((format(printf, 3, 4))) static void note(struct stk_sidecar *sidecar, int status,
                                                       const char *format, ...)
{
    __builtin_va_list list;

    if (sidecar->note[0]) {
        return; /* the first reason is the one to tell */
    }
    sidecar->note_status = status;
    __builtin_va_start(list, format);
    vsnprintf(sidecar->note, sizeof sidecar->note, format, list);
    __builtin_va_end(list);
}

int stk_sidecar_open(struct stk_sidecar **sidecar_out, struct stoker_dataset *dataset,
                     struct stoker_error *error)
{
    struct stk_sidecar *sidecar = stk_alloc(1, sizeof *sidecar);
    int status;

    *sidecar_out = NULL;
    if (!sidecar) {
        return no_memory(error);
    }
    status = name_root(sidecar, dataset, error);
    if (status < 0) {
        stk_sidecar_close(sidecar);
        return status;
    }
    /* Nobody looks for an index in '/', where shards all over the machine have their root. */
    if ((sidecar->folder_url || (dataset->objects.count > 0 && strcmp(sidecar->root, "/") != 0)) &&
        snprintf(sidecar->beside, sizeof sidecar->beside, "%s%s", sidecar->root,
                 STK_SIDECAR_NAME) >= (int)sizeof sidecar->beside) {
        sidecar->beside[0] = '\0';
    }
    name_cache(sidecar, dataset);
    *sidecar_out = sidecar;
    return 0;
}

void stk_sidecar_close(struct stk_sidecar *sidecar)
{
    if (sidecar) {
        stk_index_close(sidecar->old);
        stk_stamp_deinit(&sidecar->stamp);
        stk_free(sidecar->from);
        stk_free(sidecar->sizes);
        stk_free(sidecar->mtimes);
        stk_free(sidecar);
    }
}

static const char *object_path(const struct stoker_dataset *dataset, uint64_t object)
{
    return dataset->objects.text + dataset->objects.paths[object];
}

/* A folder that was named alone, or else the deepest one above all shards. */
static int name_root(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                     struct stoker_error *error)
{
    const char *url = dataset->options.urls[0];
    size_t bytes = strlen(url);
    struct stk_stat about;

    (void)error;
    if (dataset->options.url_count == 1 && bytes > 0 && bytes < sizeof sidecar->root - 1 &&
        !(stk_io_is_url(url) && strpbrk(url, "{*")) && /* a pattern, and asking takes a while */
        stk_io_stat_path(dataset->engine->io, url, &about, NULL) == 0 &&
        about.kind == STK_ENTRY_DIRECTORY) {
        while (bytes > 1 && url[bytes - 1] == '/') {
            bytes--;
        }
        memcpy(sidecar->root, url, bytes);
        if (url[bytes - 1] != '/') {
            sidecar->root[bytes++] = '/';
        }
        sidecar->root[bytes] = '\0';
        sidecar->folder_url = true;
        return 0;
    }
    if (dataset->objects.count == 0) {
        return 0;
    }
    url = object_path(dataset, 0);
    bytes = strlen(url);
    for (uint64_t i = 0; i < dataset->objects.count; i++) {
        const char *path = object_path(dataset, i);
        size_t same = 0;

        while (same < bytes && path[same] == url[same]) {
            same++;
        }
        bytes = same;
    }
    while (bytes > 0 && url[bytes - 1] != '/') {
        bytes--;
    }
    bytes = stk_min(bytes, sizeof sidecar->root - 1);
    memcpy(sidecar->root, url, bytes);
    sidecar->root[bytes] = '\0';
    return 0;
}

static void name_cache(struct stk_sidecar *sidecar, const struct stoker_dataset *dataset)
{
    char folder[STK_PATH_BYTES_MAX], absolute[2 * STK_PATH_BYTES_MAX];
    struct stk_sha256 sha;
    uint8_t digest[32];
    char hex[33];

    if (!stk_machine_cache(folder, sizeof folder)) {
        return;
    }
    stk_sha256_init(&sha);
    for (size_t i = 0; i < dataset->options.url_count; i++) {
        if (!stk_machine_absolute(dataset->options.urls[i], absolute, sizeof absolute)) {
            return;
        }
        stk_sha256_add(&sha, absolute, strlen(absolute) + 1);
    }
    stk_sha256_done(&sha, digest);
    stk_hex(digest, 16, hex);
    if ((size_t)snprintf(sidecar->cache, sizeof sidecar->cache, "%s/%s.index", folder, hex) >=
        sizeof sidecar->cache) {
        sidecar->cache[0] = '\0';
    }
}

/* 1: mapped; 0: not there, or not usable (noted). */
static int try_path(struct stk_sidecar *sidecar, struct stoker_dataset *dataset, const char *path,
                    struct stoker_error *error)
{
    struct stoker_error why = {0};
    int status;

    if (!path[0]) {
        return 0;
    }
    status = stk_index_map(&sidecar->old, dataset->engine->io, path, &why);
    if (status == -ENOMEM) {
        return no_memory(error);
    }
    if (status == -ENOENT || status == -ENOTDIR) {
        return 0;
    }
    if (status < 0) {
        note(sidecar, status, "%s is not used: %s (%s)", path, why.what, why.where);
        return 0;
    }
    if (stk_index_join_distance(sidecar->old) > dataset->options.join_distance ||
        stk_index_key_bytes_max(sidecar->old) > dataset->options.key_bytes_max) {
        note(sidecar, STOKER_ERROR_ARGUMENT,
             "%s is not used: it was made with join_distance %u and key_bytes_max %u", path,
             stk_index_join_distance(sidecar->old), stk_index_key_bytes_max(sidecar->old));
        stk_index_close(sidecar->old);
        sidecar->old = NULL;
        return 0;
    }
    snprintf(sidecar->path, sizeof sidecar->path, "%s", path);
    status = stk_index_set_root(sidecar->old, sidecar->root, error);
    if (status == 0) {
        status = stk_stamp_read(&sidecar->stamp, dataset->engine->io, path, sidecar->old, error);
    }
    return status < 0 ? status : 1;
}

int stk_sidecar_find(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                     struct stoker_error *error)
{
    int status;

    if (dataset->options.index_path) {
        status = try_path(sidecar, dataset, dataset->options.index_path, error);
        if (status == 0) {
            note(sidecar, -ENOENT, "%s: there is no such index", dataset->options.index_path);
        }
        return status < 0 ? status : 0;
    }
    status = try_path(sidecar, dataset, sidecar->beside, error);
    if (status == 0) {
        status = try_path(sidecar, dataset, sidecar->cache, error);
    }
    if (status == 0) {
        note(sidecar, -ENOENT, "there is none beside the data or in the cache");
    }
    return status < 0 ? status : 0;
}

/* The classes are the folders in the root: by name, since the index itself lies there, too. */
static int match_classes(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                         struct stoker_error *error)
{
    struct stk_listing listing = {0};
    uint64_t classes = 0;
    int status = stk_io_list(dataset->engine->io, sidecar->root, &listing, error);

    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];

        if (entry->kind != STK_ENTRY_DIRECTORY) {
            continue;
        }
        if (classes >= stk_index_classes(sidecar->old) ||
            strcmp(stk_index_class(sidecar->old, classes), entry->name) != 0) {
            note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: the class '%.200s' is new or another",
                 sidecar->path, entry->name);
        }
        classes++;
    }
    if (status == 0 && classes != stk_index_classes(sidecar->old)) {
        note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: there are %llu classes, not %llu",
             sidecar->path, (unsigned long long)classes,
             (unsigned long long)stk_index_classes(sidecar->old));
    }
    stk_listing_free(&listing);
    return status;
}

/* Pictures alone lie in the root, whose mtime the index itself changes: they are compared by name.
 */
static int match_pictures(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                          struct stoker_error *error)
{
    struct stk_listing listing = {0};
    uint64_t count = stk_index_shards(sidecar->old), found = 0;
    size_t root_bytes = strlen(sidecar->root);
    int status = stk_io_list(dataset->engine->io, sidecar->root, &listing, error);

    for (size_t i = 0; status == 0 && i < listing.count && !sidecar->note[0]; i++) {
        const char *name = listing.entries[i].name;
        char path[STK_PATH_BYTES_MAX];

        if (!stk_name_is_picture(name) && !stk_name_is_tar(name)) {
            continue;
        }
        status = found < count ? stk_index_path(sidecar->old, found, path, error) : 0;
        if (status == STOKER_ERROR_CORRUPT) {
            note(sidecar, status, "%s is not used: it is damaged", sidecar->path);
            status = 0;
        } else if (status == 0 && (found >= count || strcmp(path + root_bytes, name) != 0)) {
            note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' is new, or another",
                 sidecar->path, name);
        }
        found++;
    }
    if (status == 0 && found < count) {
        note(sidecar, STOKER_ERROR_CHANGED,
             "%s is stale: there are %" PRIu64 " pictures, not %" PRIu64, sidecar->path, found,
             count);
    }
    stk_listing_free(&listing);
    return status;
}

int stk_sidecar_match_folder(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                             struct stoker_error *error)
{
    const char *name = sidecar->stamp.names;
    int status = match_classes(sidecar, dataset, error);

    if (status == 0 && stk_index_classes(sidecar->old) == 0) {
        status = match_pictures(sidecar, dataset, error);
    }
    if (status == 0 && !sidecar->stamp.valid && dataset->options.index != STOKER_INDEX_REQUIRE) {
        note(sidecar, STOKER_ERROR_CHANGED,
             "%s may be stale: it has no stamp of its own, as after a copy", sidecar->path);
    }
    for (uint64_t i = 0; status == 0 && i < sidecar->stamp.count; i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stk_stat about;

        snprintf(path, sizeof path, "%s%s", sidecar->root, name);
        name += strlen(name) + 1;
        if (stk_io_stat_path(dataset->engine->io, path, &about, NULL) < 0 ||
            about.mtime_ns != sidecar->stamp.mtimes[i]) {
            note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: the folder '%.300s' changed",
                 sidecar->path, path);
            break;
        }
    }
    sidecar->whole = status == 0 && !sidecar->note[0];
    return status;
}

struct match {
    struct stk_sidecar *sidecar;
    struct stoker_dataset *dataset;
};

/* What cannot be asked is left to the scan, which says why. */
static int ask_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct match *match = context;
    uint64_t end = stk_min((round + 1) * MATCH_ROUND, match->dataset->objects.count);

    (void)error;
    for (uint64_t i = round * MATCH_ROUND; i < end; i++) {
        struct stk_stat about;

        if (stk_io_stat_path(match->dataset->engine->io, object_path(match->dataset, i), &about,
                             NULL) == 0) {
            match->sidecar->sizes[i] = about.bytes;
            match->sidecar->mtimes[i] = about.mtime_ns;
        }
    }
    return 0;
}

/* Numbers of the old index's shards by their names below the root. CORRUPT: a page is damaged, or
 * a name comes twice, as where somebody listed a shard twice. */
static int number_names(const struct stk_sidecar *sidecar, struct stk_words *words,
                        struct stoker_error *error)
{
    size_t root_bytes = strlen(sidecar->root);
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < stk_index_shards(sidecar->old); i++) {
        char path[STK_PATH_BYTES_MAX];
        uint32_t number;

        status = stk_index_path(sidecar->old, i, path, error);
        if (status < 0) {
            return status;
        }
        status = stk_words_intern(
            words, (struct stk_view){(uint8_t *)path + root_bytes, strlen(path + root_bytes)},
            UINT32_MAX / 2, &number);
        if (status == 0 && number != i) {
            return STOKER_ERROR_CORRUPT; /* numbers would be out of step */
        }
    }
    return status < 0 ? no_memory(error) : 0;
}

static void match_shard(struct stk_sidecar *sidecar, const char *path, uint64_t object,
                        uint32_t old)
{
    if (sidecar->sizes[object] != stk_index_shard_bytes(sidecar->old, old)) {
        note(sidecar, STOKER_ERROR_CHANGED,
             "%s is stale: '%.300s' has %" PRIu64 " bytes, not %" PRIu64, sidecar->path, path,
             sidecar->sizes[object], stk_index_shard_bytes(sidecar->old, old));
    } else if (sidecar->stamp.valid && sidecar->mtimes[object] != sidecar->stamp.mtimes[old]) {
        note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' was written since",
             sidecar->path, path);
    } else {
        sidecar->from[object] = old + 1;
        sidecar->reused++;
    }
}

/* Shards of the old index that were not asked for: gone, or another's. */
static int look_for_others(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                           const uint8_t *listed, struct stoker_error *error)
{
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < stk_index_shards(sidecar->old); i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stk_stat about;

        if (listed[i]) {
            continue;
        }
        status = stk_index_path(sidecar->old, i, path, error);
        if (status == 0 && stk_io_stat_path(dataset->engine->io, path, &about, NULL) == 0) {
            sidecar->others = true;
            continue;
        }
        if (status == 0) {
            sidecar->gone = true;
            note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' is missing", sidecar->path,
                 path);
        }
    }
    return status;
}

static int match_all(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                     struct stoker_error *error)
{
    struct stk_words words = {0};
    uint64_t count = dataset->objects.count, in_place = 0;
    uint8_t *listed = stk_alloc(stk_index_shards(sidecar->old), 1);
    size_t root_bytes = strlen(sidecar->root);
    int status = listed ? number_names(sidecar, &words, error) : no_memory(error);

    if (status == STOKER_ERROR_CORRUPT) {
        note(sidecar, status, "%s is not used: it is damaged, or names a shard twice",
             sidecar->path);
        count = 0;
        status = 0;
    }
    for (uint64_t i = 0; status == 0 && i < count; i++) {
        const char *path = object_path(dataset, i);
        int64_t old = stk_words_find(&words, (struct stk_view){(const uint8_t *)path + root_bytes,
                                                               strlen(path + root_bytes)});

        if (old < 0) {
            note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: '%.300s' is new", sidecar->path,
                 path);
            continue;
        }
        listed[old] = 1;
        match_shard(sidecar, path, i, old);
        in_place += sidecar->from[i] == i + 1;
    }
    if (status == 0) {
        sidecar->whole = in_place == count && count == stk_index_shards(sidecar->old);
        sidecar->appended = in_place == stk_index_shards(sidecar->old) && in_place < count;
    }
    if (status == 0 && !sidecar->whole && !sidecar->appended && count > 0) {
        status = look_for_others(sidecar, dataset, listed, error);
    }
    stk_words_deinit(&words);
    stk_free(listed);
    return status;
}

void stk_sidecar_refuse_kind(struct stk_sidecar *sidecar, uint32_t kind)
{
    bool folder = kind == STK_SOURCE_FOLDER;

    if (sidecar->old && stk_index_is_folder(sidecar->old) != folder) {
        note(sidecar, STOKER_ERROR_CHANGED, "%s is stale: it tells of %s, here are %s",
             sidecar->path, folder ? "tars" : "class folders", folder ? "class folders" : "tars");
        stk_index_close(sidecar->old);
        sidecar->old = NULL;
    }
}

int stk_sidecar_match(struct stk_sidecar *sidecar, struct stoker_dataset *dataset,
                      struct stoker_error *error)
{
    struct match match = {sidecar, dataset};
    uint64_t count = dataset->objects.count;
    int status;

    sidecar->from = stk_alloc(count, sizeof *sidecar->from);
    sidecar->sizes = stk_alloc(count, sizeof *sidecar->sizes);
    sidecar->mtimes = stk_alloc(count, sizeof *sidecar->mtimes);
    if (!sidecar->from || !sidecar->sizes || !sidecar->mtimes) {
        return no_memory(error);
    }
    status = stk_engine_parallel(dataset->engine, (count + MATCH_ROUND - 1) / MATCH_ROUND,
                                 ask_round, &match, error);
    stk_sidecar_refuse_kind(sidecar, STK_SOURCE_TARS);
    if (status == 0 && sidecar->old) {
        status = match_all(sidecar, dataset, error);
    }
    return status;
}

uint64_t stk_sidecar_block(const struct stk_sidecar *sidecar)
{
    return sidecar->old && sidecar->reused > 0 && !sidecar->others
               ? stk_index_block_samples(sidecar->old)
               : 0;
}

void stk_dataset_find_marks(struct stoker_dataset *dataset)
{
    char path[STK_PATH_BYTES_MAX + sizeof STK_MARKS_SUFFIX];
    struct stoker_error why;
    int status;

    if (!dataset->index_path || !dataset->index) {
        return;
    }
    snprintf(path, sizeof path, "%s%s", dataset->index_path, STK_MARKS_SUFFIX);
    status = stk_marks_open(&dataset->marks, dataset->engine->io, path,
                            stk_index_identity(dataset->index), &why);
    if (status == 0 && stk_marks_samples(dataset->marks) != stk_index_samples(dataset->index)) {
        stk_marks_close(dataset->marks);
        dataset->marks = NULL;
        status = stk_fail(&why, STOKER_ERROR_CHANGED, "the marks of JPEGs are not used", "",
                          "they are of another number of samples");
    }
    if (status < 0 && status != -ENOENT) {
        char note[sizeof why.what + sizeof why.where];

        snprintf(note, sizeof note, "%s: %s", why.what, why.where);
        dataset->marks_note = stk_strdup(note); /* without memory for it: not told */
    }
}

struct stk_marks_of stk_dataset_marks(const struct stoker_dataset *dataset, uint64_t sample)
{
    struct stk_marks_of none = {0};

    return dataset->marks ? stk_marks_of(dataset->marks, sample) : none;
}
