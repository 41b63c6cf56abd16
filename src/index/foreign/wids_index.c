/* Shards out of a wids JSON, by jansson. */
#include "index/foreign/wids_index.h"

#include "base/mem.h"
#include "base/text/text_match.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

struct stk_wids_index {
    json_t *root; /* owned */
    const json_t *shards;
};

static int check(struct stk_wids_index *index, struct stoker_error *error);

static int fail(int status, const char *detail, struct stoker_error *error)
{
    return stk_fail(error, status, "an index of wids cannot be used",
                    "make it again with widsindex, or name the shards themselves", "%s", detail);
}

int stk_wids_index_open(struct stk_wids_index **wids_out, struct stk_view text,
                        struct stoker_error *error)
{
    struct stk_wids_index *index;
    json_error_t at = {0};
    int status;

    *wids_out = NULL;
    if (text.bytes > STK_WIDS_INDEX_BYTES_MAX) {
        return fail(STOKER_ERROR_LIMIT, "it is longer than 32 MiB", error);
    }
    index = stk_alloc(1, sizeof *index);
    if (!index) {
        return stk_fail(error, -ENOMEM, "cannot read an index of wids", "free memory", "JSON");
    }
    index->root = json_loadb((const char *)text.data, text.bytes, JSON_REJECT_DUPLICATES, &at);
    if (!index->root) {
        status = fail(STOKER_ERROR_FORMAT, at.text, error);
        stk_error_set_location(error, NULL, at.position > 0 ? (uint64_t)at.position : 0, NULL);
    } else {
        status = check(index, error);
    }
    if (status < 0) {
        stk_wids_index_close(index);
        return status;
    }
    *wids_out = index;
    return 0;
}

void stk_wids_index_close(struct stk_wids_index *index)
{
    if (index) {
        json_decref(index->root);
        stk_free(index);
    }
}

/* Reads an integer that is not negative. */
static bool is_count(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* The kind is newer than the version: files without it are read by wids, too. */
static int check(struct stk_wids_index *index, struct stoker_error *error)
{
    const json_t *kind = json_object_get(index->root, "__kind__");
    const json_t *version = json_object_get(index->root, "wids_version");
    const json_t *shard;
    size_t i;

    if (!json_is_object(index->root) || !version ||
        (kind && (!json_is_string(kind) ||
                  strncmp(json_string_value(kind), "wids-shard-index-", 17) != 0))) {
        return fail(STOKER_ERROR_FORMAT, "it is not of the kind 'wids-shard-index'", error);
    }
    if (!json_is_integer(version) || json_integer_value(version) != 1 ||
        (kind && strcmp(json_string_value(kind), "wids-shard-index-v1") != 0)) {
        return fail(STOKER_ERROR_UNSUPPORTED, "its version is not 1", error);
    }
    if (json_array_size(json_object_get(index->root, "shards")) > 0 &&
        !json_object_get(index->root, "shardlist")) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "this is an index of MDS, not of wids",
                        "read the data with streaming.LocalDataset, and write its samples with "
                        "stoker.ShardWriter, one write() a sample",
                        "it lists shards of MosaicML streaming");
    }
    if (json_array_size(json_object_get(index->root, "datasets")) > 0) {
        return fail(STOKER_ERROR_UNSUPPORTED,
                    "it refers to other data sets: name each one's JSON instead", error);
    }
    index->shards = json_object_get(index->root, "shardlist");
    if (json_array_size(index->shards) == 0) {
        return fail(STOKER_ERROR_CORRUPT, "its shardlist is missing or empty", error);
    }
    json_array_foreach(index->shards, i, shard)
    {
        const json_t *url = json_object_get(shard, "url");
        const json_t *bytes = json_object_get(shard, "filesize");

        if (json_string_length(url) == 0 || !is_count(json_object_get(shard, "nsamples")) ||
            (bytes && !is_count(bytes))) {
            return stk_fail(error, STOKER_ERROR_CORRUPT, "an index of wids cannot be used",
                            "make it again with widsindex",
                            "shard %zu has no url, or no number of samples", i);
        }
    }
    return 0;
}

uint64_t stk_wids_index_count(const struct stk_wids_index *index)
{
    return json_array_size(index->shards);
}

void stk_wids_index_get(const struct stk_wids_index *index, uint64_t number,
                        struct stk_wids_index_shard *shard_out)
{
    const json_t *shard = json_array_get(index->shards, (size_t)number);
    const json_t *bytes = json_object_get(shard, "filesize");

    STK_ASSERT(shard);
    shard_out->url = json_string_value(json_object_get(shard, "url"));
    shard_out->samples = (uint64_t)json_integer_value(json_object_get(shard, "nsamples"));
    shard_out->bytes = bytes ? (uint64_t)json_integer_value(bytes) : STK_WIDS_INDEX_UNKNOWN;
}

bool stk_wids_index_path(const char *folder, const char *url, char *path_out, size_t capacity)
{
    const char *path = stk_text_skip_file_scheme(url);
    int bytes;

    if (path == url && strncmp(url, "file:", 5) == 0) {
        path += 5;
    }
    bytes = snprintf(path_out, capacity, "%s%s",
                     path[0] == '/' || strstr(path, "://") ? "" : folder, path);
    return bytes >= 0 && (size_t)bytes < capacity;
}
