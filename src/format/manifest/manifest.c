/* The manifest: JSON by jansson, checked entry by entry. */
#include "format/manifest/manifest.h"

#include "base/crypto/digest.h"
#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define VERSION 1
#define NAME_BYTES_MAX 1024u

static const char kind[] = "stoker-manifest";

static int check(struct stk_manifest *manifest, struct stoker_error *error);
static int check_shard(const json_t *entry, struct stk_manifest_shard *shard);
static json_t *shard_json(const struct stk_manifest_shard *shard, bool with_samples);

int stk_manifest_parse(struct stk_manifest *manifest, struct stk_view text,
                       struct stoker_error *error)
{
    json_error_t at = {0};
    json_t *root;
    int status;

    *manifest = (struct stk_manifest){0};
    if (text.bytes > STK_MANIFEST_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the manifest is too long",
                        "look what the file is", "%zu bytes", text.bytes);
    }
    root = json_loadb((const char *)text.data, text.bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the manifest is not JSON",
                        "copy the data set again, or remove the manifest", "line %d: %s", at.line,
                        at.text);
    }
    manifest->root = root;
    status = check(manifest, error);
    if (status < 0) {
        stk_manifest_deinit(manifest);
    }
    return status;
}

void stk_manifest_deinit(struct stk_manifest *manifest)
{
    json_decref(manifest->root);
    stk_free(manifest->shards);
    *manifest = (struct stk_manifest){0};
}

const char *stk_manifest_class(const struct stk_manifest *manifest, uint64_t class_index)
{
    return json_string_value(
        json_array_get(json_object_get(manifest->root, "classes"), (size_t)class_index));
}

int stk_manifest_begin(struct stk_manifest *manifest, json_t *settings, struct stoker_error *error)
{
    *manifest = (struct stk_manifest){0};
    manifest->root = json_pack("{s:s, s:i, s:O, s:[], s:[]}", "kind", kind, "version", VERSION,
                               "pack", settings, "shards", "classes");
    return manifest->root ? 0 : stk_fail_memory(error, "manifest");
}

int stk_manifest_add(struct stk_manifest *manifest, const struct stk_manifest_shard *shard,
                     struct stoker_error *error)
{
    json_t *shards = json_object_get(manifest->root, "shards");

    if (json_array_append_new(shards, shard_json(shard, true)) < 0) {
        return stk_fail_memory(error, "manifest");
    }
    manifest->shard_count++;
    manifest->samples += shard->samples;
    return 0;
}

int stk_manifest_add_class(struct stk_manifest *manifest, const char *name,
                           struct stoker_error *error)
{
    json_t *classes = json_object_get(manifest->root, "classes");
    json_t *text = json_string(name);

    if (!text) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "the name of a class is not UTF-8, and JSON holds no other",
                        "rename the folder", "class '%.200s'", name);
    }
    if (json_array_append_new(classes, text) < 0) {
        return stk_fail_memory(error, "manifest");
    }
    manifest->class_count++;
    return 0;
}

int stk_manifest_set_index(struct stk_manifest *manifest, const struct stk_manifest_shard *index,
                           struct stoker_error *error)
{
    return json_object_set_new(manifest->root, "index", shard_json(index, false)) < 0
               ? stk_fail_memory(error, "manifest")
               : 0;
}

int stk_manifest_set_left_out(struct stk_manifest *manifest, uint64_t samples,
                              struct stoker_error *error)
{
    if (samples > 0 &&
        json_object_set_new(manifest->root, "left_out", json_integer((json_int_t)samples)) < 0) {
        return stk_fail_memory(error, "manifest");
    }
    return 0;
}

uint64_t stk_manifest_left_out(const struct stk_manifest *manifest)
{
    json_int_t samples = json_integer_value(json_object_get(manifest->root, "left_out"));

    return samples > 0 ? (uint64_t)samples : 0;
}

int stk_manifest_text(struct stk_manifest *manifest, char **text_out, size_t *bytes_out,
                      struct stoker_error *error)
{
    const size_t flags = JSON_SORT_KEYS | JSON_INDENT(1);
    json_t *samples = json_integer((json_int_t)manifest->samples);
    size_t bytes;
    char *text;

    *text_out = NULL;
    if (json_object_set_new(manifest->root, "samples", samples) < 0) {
        return stk_fail_memory(error, "manifest");
    }
    bytes = json_dumpb(manifest->root, NULL, 0, flags);
    text = bytes ? stk_alloc(bytes + 2, 1) : NULL;
    if (!text || json_dumpb(manifest->root, text, bytes, flags) != bytes) {
        stk_free(text);
        return stk_fail_memory(error, "manifest");
    }
    text[bytes] = '\n';
    *text_out = text;
    *bytes_out = bytes + 1;
    return 0;
}

static int fail_format(struct stoker_error *error, const char *detail, uint64_t entry)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the manifest is damaged",
                    "copy the data set again, or remove the manifest", "%s, entry %llu", detail,
                    (unsigned long long)entry);
}

static int check_classes(struct stk_manifest *manifest, struct stoker_error *error)
{
    const json_t *classes = json_object_get(manifest->root, "classes");

    if (classes && !json_is_array(classes)) {
        return fail_format(error, "classes", 0);
    }
    manifest->class_count = json_array_size(classes);
    for (uint64_t i = 0; i < manifest->class_count; i++) {
        const json_t *name = json_array_get(classes, (size_t)i);

        if (!json_is_string(name) || json_string_length(name) != strlen(json_string_value(name))) {
            return fail_format(error, "class", i);
        }
    }
    return 0;
}

static int check(struct stk_manifest *manifest, struct stoker_error *error)
{
    const json_t *shards = json_object_get(manifest->root, "shards");
    const json_t *index = json_object_get(manifest->root, "index");
    const json_t *version = json_object_get(manifest->root, "version");
    const char *found = json_string_value(json_object_get(manifest->root, "kind"));

    if (!found || strcmp(found, kind) != 0 || !json_is_integer(version)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "this is not a manifest of stoker",
                        "look what the file is", "kind and version");
    }
    if (json_integer_value(version) != VERSION) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the manifest is of a later version",
                        "use a later stoker", "version %lld",
                        (long long)json_integer_value(version));
    }
    if (!json_is_array(shards) || !json_is_object(json_object_get(manifest->root, "pack"))) {
        return fail_format(error, "shards", 0);
    }
    manifest->shard_count = json_array_size(shards);
    manifest->shards = stk_alloc(stk_max(manifest->shard_count, 1), sizeof *manifest->shards);
    if (!manifest->shards) {
        return stk_fail_memory(error, "manifest");
    }
    for (uint64_t i = 0; i < manifest->shard_count; i++) {
        struct stk_manifest_shard *shard = &manifest->shards[i];
        const json_t *entry = json_array_get(shards, (size_t)i);
        const json_t *samples = json_object_get(entry, "samples");

        if (check_shard(entry, shard) < 0 || !json_is_integer(samples) ||
            json_integer_value(samples) < 0) {
            return fail_format(error, "shard", i);
        }
        shard->samples = (uint64_t)json_integer_value(samples);
        if (!stk_add(manifest->samples, shard->samples, &manifest->samples)) {
            return fail_format(error, "samples", i);
        }
    }
    if (index && check_shard(index, &manifest->index) < 0) {
        return fail_format(error, "index", 0);
    }
    return check_classes(manifest, error);
}

/* A plain name of a file, its size and its hash. */
static int check_shard(const json_t *entry, struct stk_manifest_shard *shard)
{
    const json_t *name = json_object_get(entry, "name");
    const json_t *bytes = json_object_get(entry, "bytes");
    const char *text = json_string_value(name);
    const char *sha = json_string_value(json_object_get(entry, "sha256"));

    if (!text || !sha || !json_is_integer(bytes) || json_integer_value(bytes) < 0) {
        return STOKER_ERROR_CORRUPT;
    }
    if (text[0] == 0 || text[0] == '.' || strchr(text, '/') ||
        json_string_length(name) != strlen(text) || strlen(text) > NAME_BYTES_MAX ||
        !stk_hex_decode(sha, shard->sha256, sizeof shard->sha256)) {
        return STOKER_ERROR_CORRUPT;
    }
    shard->name = text;
    shard->bytes = (uint64_t)json_integer_value(bytes);
    return 0;
}

static json_t *shard_json(const struct stk_manifest_shard *shard, bool with_samples)
{
    char sha[2 * sizeof shard->sha256 + 1];
    json_t *entry;

    stk_hex(shard->sha256, sizeof shard->sha256, sha);
    entry = json_pack("{s:s, s:I, s:s}", "name", shard->name, "bytes", (json_int_t)shard->bytes,
                      "sha256", sha);
    if (entry && with_samples &&
        json_object_set_new(entry, "samples", json_integer((json_int_t)shard->samples)) < 0) {
        json_decref(entry);
        entry = NULL;
    }
    return entry;
}
