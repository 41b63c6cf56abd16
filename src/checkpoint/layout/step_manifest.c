/* Parses and writes manifests of steps. */
#include "checkpoint/layout/step_manifest.h"

#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/layout/json_text.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1
#define FORMAT "stoker-checkpoint"
#define HEAD "{\"root\":\"" /* then 64 digits and `",` */
#define DAMAGED "restore another step, or copy this one again"

_Static_assert(sizeof HEAD - 1 + 64 + 2 == STK_STEP_MANIFEST_HEAD_BYTES, "the head");

static int fail(struct stoker_error *error, const char *what, uint64_t entry)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, what, DAMAGED, "entry %llu of the manifest",
                    (unsigned long long)entry);
}

bool stk_step_manifest_is_file_name(const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || bytes >= sizeof((struct stoker_checkpoint_part *)0)->name ||
        strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)name[i] <= 0x20 || (unsigned char)name[i] >= 0x7f || name[i] == '/' ||
            name[i] == '\\' || name[i] == '"') {
            return false;
        }
    }
    return true;
}

static bool number_of(const json_t *root, const char *key, uint64_t max, uint64_t *number_out)
{
    const json_t *value = json_object_get(root, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        return false;
    }
    *number_out = (uint64_t)json_integer_value(value);
    return true;
}

/* The values in a form that depends only on their contents. NULL: no memory. */
static char *print_values(const json_t *values)
{
    size_t flags = JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17);
    size_t bytes = json_dumpb(values, NULL, 0, flags);
    char *text = bytes > 0 ? stk_alloc(bytes + 1, 1) : NULL;

    if (text) {
        (void)json_dumpb(values, text, bytes, flags);
    }
    return text;
}

/* Reads an entry of a file. Returns false if it is not valid. */
static bool parse_entry(const json_t *entry, struct stoker_checkpoint_part *file)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *root = json_string_value(json_object_get(entry, "root"));

    if (json_object_size(entry) != 3 || !name || !stk_step_manifest_is_file_name(name) || !root ||
        strlen(root) != 64 || !stk_hex_decode(root, file->root, 32) ||
        !number_of(entry, "bytes", INT64_MAX, &file->bytes)) {
        return false;
    }
    memcpy(file->name, name, strlen(name) + 1);
    return true;
}

static int parse_files(struct stk_step_manifest *manifest, const json_t *files,
                       struct stoker_error *error)
{
    size_t count = json_array_size(files);

    if (!json_is_array(files) || count == 0 || count > STK_STEP_MANIFEST_FILES_MAX) {
        return fail(error, "the manifest has no files, or too many", count);
    }
    manifest->files = stk_alloc(count, sizeof *manifest->files);
    if (!manifest->files) {
        return stk_fail_memory(error, "manifest");
    }
    for (size_t i = 0; i < count; i++) {
        if (!parse_entry(json_array_get(files, i), &manifest->files[i])) {
            return fail(error, "a file has an invalid name, length or hash", i);
        }
        manifest->file_count++;
    }
    return 0;
}

/* Manifests of earlier versions of stoker have no counts. */
static bool parse_counts(struct stk_step_manifest *manifest, const json_t *counts)
{
    manifest->counted = counts != NULL;
    return !counts || (number_of(counts, "nan", INT64_MAX, &manifest->nan) &&
                       number_of(counts, "inf", INT64_MAX, &manifest->inf));
}

static int parse_root(struct stk_step_manifest *manifest, const json_t *root,
                      struct stoker_error *error)
{
    const json_t *format = json_object_get(root, "format");
    const json_t *values = json_object_get(root, "values");
    const json_t *index = json_object_get(root, "index");
    uint64_t version, ranks;

    if (!json_is_string(format) || strcmp(json_string_value(format), FORMAT) != 0 ||
        !number_of(root, "version", INT64_MAX, &version)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the file is no manifest of a checkpoint",
                        "check the path", "manifest");
    }
    if (version != VERSION) {
        return stk_fail(
            error, STOKER_ERROR_UNSUPPORTED, "the checkpoint has a later version of the format",
            "use a later version of stoker", "version %llu", (unsigned long long)version);
    }
    if (!number_of(root, "step", STOKER_CHECKPOINT_STEP_MAX, &manifest->step) ||
        !number_of(root, "ranks", STK_STEP_MANIFEST_FILES_MAX, &ranks) || ranks == 0 ||
        !json_is_object(values) || !parse_counts(manifest, json_object_get(root, "counts"))) {
        return fail(error, "step, ranks, values or counts are missing", 0);
    }
    if (index && !parse_entry(index, &manifest->index)) {
        return fail(error, "the index has an invalid name, length or hash", 0);
    }
    manifest->ranks = (uint32_t)ranks;
    manifest->values = print_values(values);
    if (!manifest->values) {
        return stk_fail_memory(error, "manifest");
    }
    return parse_files(manifest, json_object_get(root, "files"), error);
}

int stk_step_manifest_parse(struct stk_step_manifest *manifest, struct stk_view text,
                            struct stoker_error *error)
{
    uint8_t want[32], root[32];
    char digits[65];
    json_t *json;
    int status;

    *manifest = (struct stk_step_manifest){0};
    if (text.bytes < STK_STEP_MANIFEST_HEAD_BYTES || text.bytes > STK_STEP_MANIFEST_BYTES_MAX ||
        memcmp(text.data, HEAD, sizeof HEAD - 1) != 0 ||
        memcmp(text.data + sizeof HEAD - 1 + 64, "\",", 2) != 0) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the file is no manifest of a checkpoint",
                        DAMAGED, "%zu bytes", text.bytes);
    }
    memcpy(digits, text.data + sizeof HEAD - 1, 64);
    digits[64] = '\0';
    stk_sha256_one(text.data + STK_STEP_MANIFEST_HEAD_BYTES,
                   text.bytes - STK_STEP_MANIFEST_HEAD_BYTES, want);
    if (!stk_hex_decode(digits, root, 32) || memcmp(root, want, 32) != 0) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "the manifest does not match its hash",
                        DAMAGED, "manifest");
    }
    json = json_loadb((const char *)text.data, text.bytes, JSON_REJECT_DUPLICATES, NULL);
    status = json_is_object(json) ? parse_root(manifest, json, error)
                                  : stk_fail(error, STOKER_ERROR_FORMAT,
                                             "the manifest is no JSON object", DAMAGED, "manifest");
    json_decref(json);
    if (status < 0) {
        stk_step_manifest_deinit(manifest);
    }
    return status;
}

void stk_step_manifest_deinit(struct stk_step_manifest *manifest)
{
    stk_free(manifest->values);
    stk_free(manifest->files);
    *manifest = (struct stk_step_manifest){0};
}

static void add_entry(struct stk_json_text *json, const struct stoker_checkpoint_part *file)
{
    char digits[65];

    stk_hex(file->root, 32, digits);
    stk_json_text_print(json, "{\"bytes\":%llu,\"name\":\"%s\",\"root\":\"%s\"}",
                        (unsigned long long)file->bytes, file->name, digits);
}

static int add_values(struct stk_json_text *json, const char *values, struct stoker_error *error)
{
    json_t *object = json_loads(values ? values : "{}", JSON_REJECT_DUPLICATES, NULL);
    char *text = json_is_object(object) ? print_values(object) : NULL;
    int status = 0;

    if (!text || strlen(text) > STK_STEP_MANIFEST_VALUES_BYTES_MAX) {
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "the values are no JSON object of at most 1 MiB",
                     "pass numbers and short texts", "checkpoint");
    } else {
        stk_json_text_add(json, text, strlen(text));
    }
    json_decref(object);
    stk_free(text);
    return status;
}

int stk_step_manifest_text(const struct stk_step_manifest *manifest, char **text_out,
                           size_t *bytes_out, struct stoker_error *error)
{
    struct stk_json_text json = {0};
    uint8_t root[32];
    char digits[65];
    int status;

    if (manifest->file_count > STK_STEP_MANIFEST_FILES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the step has too many files",
                        "save on fewer ranks: a step has at most 1,000,000 files",
                        "%" PRIu64 " files of %u ranks", manifest->file_count, manifest->ranks);
    }
    stk_json_text_add(&json, HEAD, sizeof HEAD - 1);
    stk_json_text_fill(&json, '0', 64);
    stk_json_text_print(&json, "\",");
    if (manifest->counted) {
        stk_json_text_print(&json, "\"counts\":{\"inf\":%llu,\"nan\":%llu},",
                            (unsigned long long)manifest->inf, (unsigned long long)manifest->nan);
    }
    stk_json_text_print(&json, "\"files\":[");
    for (uint64_t i = 0; i < manifest->file_count; i++) {
        stk_json_text_print(&json, i > 0 ? "," : "");
        add_entry(&json, &manifest->files[i]);
    }
    stk_json_text_print(&json, "],\"format\":\"" FORMAT "\",");
    if (manifest->index.name[0]) {
        stk_json_text_print(&json, "\"index\":");
        add_entry(&json, &manifest->index);
        stk_json_text_print(&json, ",");
    }
    stk_json_text_print(&json, "\"ranks\":%u,\"step\":%llu,\"values\":", manifest->ranks,
                        (unsigned long long)manifest->step);
    status = add_values(&json, manifest->values, error);
    stk_json_text_print(&json, ",\"version\":%d}\n", VERSION);
    if (status == 0 && json.failed) {
        status = stk_fail_memory(error, "manifest");
    }
    if (status < 0) {
        stk_json_text_deinit(&json);
        return status;
    }
    stk_sha256_one(json.text + STK_STEP_MANIFEST_HEAD_BYTES,
                   json.bytes - STK_STEP_MANIFEST_HEAD_BYTES, root);
    stk_hex(root, 32, digits);
    memcpy(json.text + sizeof HEAD - 1, digits, 64);
    *text_out = json.text;
    *bytes_out = json.bytes;
    return 0;
}

bool stk_step_manifest_number(const char *values, const char *name, double *number_out)
{
    json_t *object = json_loads(values, JSON_REJECT_DUPLICATES, NULL);
    json_t *value = json_object_get(object, name);
    bool found = json_is_number(value);

    if (found) {
        *number_out = json_number_value(value);
    }
    json_decref(object);
    return found && isfinite(*number_out);
}
