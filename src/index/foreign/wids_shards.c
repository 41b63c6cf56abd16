/* wids JSONs among the paths of a data set. */
#include "index/foreign/wids_shards.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

int stk_wids_shards_add(struct stk_wids_shards *shards, const char *path, uint64_t samples,
                        uint64_t bytes)
{
    if (shards->count == STK_WIDS_SHARDS_MAX) {
        return STOKER_ERROR_LIMIT;
    }
    if (shards->count == shards->capacity) {
        uint64_t old = shards->capacity, capacity = old ? 2 * old : 16;
        void *paths = stk_realloc(shards->paths, old, capacity, sizeof *shards->paths);
        void *counts = paths ? stk_realloc(shards->samples, old, capacity, 8) : NULL;
        void *sizes = counts ? stk_realloc(shards->bytes, old, capacity, 8) : NULL;

        shards->paths = paths ? paths : shards->paths;
        shards->samples = counts ? counts : shards->samples;
        shards->bytes = sizes ? sizes : shards->bytes;
        if (!sizes) {
            return -ENOMEM;
        }
        shards->capacity = capacity;
    }
    if (stk_url_alias(path, &shards->paths[shards->count]) < 0) {
        return -ENOMEM;
    }
    shards->samples[shards->count] = samples;
    shards->bytes[shards->count] = bytes;
    shards->count++;
    return 0;
}

/* The file's text, to be freed. */
static int read_text(struct stk_io *io, const char *path, uint64_t bytes, struct stk_view *text_out,
                     struct stoker_error *error)
{
    struct stk_file *file = NULL;
    uint8_t *text = stk_alloc(bytes + 1, 1);
    int64_t got;
    int status = text ? stk_io_open_file(io, path, &file, error)
                      : stk_fail_memory(error, "paths of the data set");

    if (status == 0) {
        got = stk_io_read_wait(file, 0, text, bytes);
        stk_io_close_file(file);
        *text_out = (struct stk_view){text, got < 0 ? 0 : (size_t)got};
        status = got < 0 ? stk_fail(error, (int)got, "cannot read an index of wids",
                                    "check the file and its disk", "'%.400s'", path)
                         : 0;
    }
    if (status < 0) {
        stk_free(text);
        *text_out = (struct stk_view){NULL, 0};
    }
    return status;
}

static int add_all(struct stk_wids_shards *shards, const struct stk_wids_index *wids,
                   const char *json, struct stoker_error *error)
{
    const char *slash = strrchr(json, '/');
    size_t folder_bytes = slash ? (size_t)(slash + 1 - json) : 0;
    char folder[PATH_BYTES], path[PATH_BYTES];
    int status = 0;

    if (folder_bytes >= sizeof folder) {
        return stk_fail_errno(error, ENAMETOOLONG, "cannot list the data set", "use shorter paths",
                              "'%.400s'", json);
    }
    memcpy(folder, json, folder_bytes);
    folder[folder_bytes] = '\0';
    for (uint64_t i = 0; status == 0 && i < stk_wids_index_count(wids); i++) {
        struct stk_wids_index_shard shard;

        stk_wids_index_get(wids, i, &shard);
        if (!stk_wids_index_path(folder, shard.url, path, sizeof path)) {
            return stk_fail_errno(error, ENAMETOOLONG, "cannot list the data set",
                                  "use shorter paths", "'%.400s'", shard.url);
        }
        status = stk_wids_shards_add(shards, path, shard.samples, shard.bytes);
    }
    if (status < 0) {
        return status == -ENOMEM ? stk_fail_memory(error, "paths of the data set")
                                 : stk_fail(error, status, "the data set has too many shards",
                                            "pack it into larger ones", "'%.400s'", json);
    }
    return 0;
}

static int expand(struct stk_wids_shards *shards, struct stk_io *io, const char *url,
                  struct stoker_error *error)
{
    const char *path = stk_text_skip_file_scheme(url);
    struct stk_view text = {NULL, 0};
    struct stk_wids_index *wids = NULL;
    struct stk_stat about;
    int status;

    if (stk_text_stem_bytes(path, ".json") == 0 || stk_io_stat_path(io, path, &about, NULL) < 0 ||
        about.kind != STK_ENTRY_FILE) {
        status = stk_wids_shards_add(shards, url, STK_WIDS_INDEX_UNKNOWN, STK_WIDS_INDEX_UNKNOWN);
        return status == -ENOMEM ? stk_fail_memory(error, "paths of the data set")
               : status < 0      ? stk_fail(error, status, "the data set has too many paths",
                                            "name the folder above them", "'%.400s'", url)
                                 : 0;
    }
    /* Reads one byte more than the bound, to detect a file that is too long. */
    status = read_text(io, path, stk_min(about.bytes, STK_WIDS_INDEX_BYTES_MAX + 1), &text, error);
    status = status < 0 ? status : stk_wids_index_open(&wids, text, error);
    status = status < 0 ? status : add_all(shards, wids, path, error);
    shards->from_json = true;
    stk_wids_index_close(wids);
    stk_free((void *)(uintptr_t)text.data);
    if (status < 0) {
        stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    }
    return status;
}

int stk_wids_shards_expand(struct stk_wids_shards *shards, struct stk_io *io,
                           const char *const *urls, size_t url_count, struct stoker_error *error)
{
    int status;

    *shards = (struct stk_wids_shards){.url_ends = stk_alloc(url_count + 1, sizeof(uint64_t))};
    status = shards->url_ends ? 0 : stk_fail_memory(error, "paths of the data set");
    for (size_t i = 0; status == 0 && i < url_count; i++) {
        status = expand(shards, io, urls[i], error);
        shards->url_ends[i] = shards->count;
    }
    return status;
}

void stk_wids_shards_deinit(struct stk_wids_shards *shards)
{
    for (uint64_t i = 0; i < shards->count; i++) {
        stk_free(shards->paths[i]);
    }
    stk_free(shards->paths);
    stk_free(shards->url_ends);
    stk_free(shards->samples);
    stk_free(shards->bytes);
    *shards = (struct stk_wids_shards){0};
}
