/* Which tool wrote a path, and how its reader is called. */
#include "checkpoint/foreign/foreign_private.h"

#include "base/compare.h"
#include "base/mem.h"
#include "base/text/file_kind.h"
#include "base/text/text_match.h"

#include "checkpoint/layout/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_BYTES_MAX (256u << 20)
#define FIRST_BYTES 512u

/* Whether a folder has a file of this name. */
static int has_file(const struct stk_checkpoint_place *place, const char *name, bool *found_out,
                    struct stoker_error *error)
{
    char *path = stk_place_path(place, NULL, name);
    struct stk_stat stat = {0};
    int status = path ? stk_place_stat_now(place, path, &stat, error)
                      : stk_fail_memory(error, "'%.400s'", place->root);

    *found_out = status == 0 && stat.kind == STK_ENTRY_FILE;
    stk_free(path);
    return stk_place_is_absent(status) ? 0 : status;
}

static int detect_folder(const struct stk_checkpoint_place *place, const char **kind_out,
                         struct stoker_error *error)
{
    bool found = false;
    int status = has_file(place, STK_FOREIGN_DCP_NAME, &found, error);

    if (status == 0 && found) {
        *kind_out = "dcp";
        return 0;
    }
    status = status < 0 ? status : has_file(place, STK_FOREIGN_INDEX_NAME, &found, error);
    if (status == 0 && found) {
        *kind_out = "huggingface";
        return 0;
    }
    status = status < 0 ? status : has_file(place, STK_FOREIGN_SINGLE_NAME, &found, error);
    if (status == 0 && found) {
        *kind_out = "safetensors";
    }
    return status;
}

/* Fails for a file that is no checkpoint, and says what it is. */
static int fail_other_file(const char *path, const uint8_t *first, size_t bytes,
                           struct stoker_error *error)
{
    static const struct {
        uint32_t at, count;
        const char *magic, *what, *advice;
    } kinds[] = {
        {257, 5, "ustar", "the file is a tar archive, not a checkpoint",
         "'stoker info' describes tars; extract a checkpoint that is inside first"},
        {0, 2, "\x1f\x8b", "the file is compressed with gzip, and is no checkpoint",
         "decompress it; 'stoker info' describes tars"},
        {0, 4, "\x28\xb5\x2f\xfd", "the file is compressed with zstd, and is no checkpoint",
         "decompress it; 'stoker info' describes tars"},
    };

    const struct stk_file_kind *kind = stk_file_kind_of_bytes((struct stk_view){first, bytes});
    const char *advice = kind ? stk_file_kind_checkpoint_advice(kind) : NULL;
    char what[100] = "the file is no checkpoint";

    for (size_t i = 0; i < STK_COUNT(kinds); i++) {
        if (kinds[i].at + kinds[i].count <= bytes &&
            memcmp(first + kinds[i].at, kinds[i].magic, kinds[i].count) == 0) {
            return stk_fail(error, -ENOTDIR, kinds[i].what, kinds[i].advice, "'%.400s'", path);
        }
    }
    if (kind) {
        snprintf(what, sizeof what, "the file is %s, and is no checkpoint", kind->name);
    }
    return stk_fail(error, -ENOTDIR, what,
                    advice ? advice
                           : "pass a .safetensors file, a zip file of torch.save(), or a folder",
                    "'%.400s'", path);
}

static int detect_file(const struct stk_checkpoint_place *place, const char **kind_out,
                       struct stoker_error *error)
{
    struct stk_file *file = NULL;
    struct stk_stat stat = {0};
    uint8_t first[FIRST_BYTES] = {0};
    uint64_t header;
    int64_t got = 0;
    int status = stk_io_open_file(place->io, place->root, &file, error);

    if (status < 0) {
        return status;
    }
    status = stk_io_stat_file(file, &stat, error);
    if (status == 0) {
        got = stk_io_read_wait(file, 0, first, (size_t)stk_min(stat.bytes, FIRST_BYTES));
        status = got < 0 ? stk_io_fail_read(file, got, "cannot read the file", error) : 0;
    }
    stk_io_close_file(file);
    if (status < 0) {
        stk_error_set_location(error, place->root, 0, NULL);
        return status;
    }
    if (memcmp(first, "PK\x03\x04", 4) == 0) {
        *kind_out = "torch";
    } else if (memcmp(first, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14) == 0) {
        return stk_fail(
            error, STOKER_ERROR_UNSUPPORTED, "this is a file of torch.save() before version 1.6",
            "load and save it with torch once: then it is a zip archive", "'%.400s'", place->root);
    } else if (got > 8 && first[8] == '{' &&
               stk_safetensors_length(first, stat.bytes, &header, NULL) == 0) {
        *kind_out = "safetensors";
    } else {
        return fail_other_file(place->root, first, (size_t)got, error);
    }
    return 0;
}

int stk_foreign_detect(const struct stk_checkpoint_place *place, const char **kind_out,
                       struct stoker_error *error)
{
    struct stk_stat stat = {0};
    int status;

    *kind_out = NULL;
    if (stk_text_stem_bytes(place->root, STK_FOREIGN_INDEX_SUFFIX) > 0) {
        *kind_out = "huggingface";
        return 0;
    }
    status = stk_place_stat_now(place, place->root, &stat, error);
    if (status == 0 && stat.kind == STK_ENTRY_FILE) {
        return detect_file(place, kind_out, error);
    }
    /* A prefix of a store is no object. */
    return status < 0 && !(place->remote && stk_place_is_absent(status))
               ? status
               : detect_folder(place, kind_out, error);
}

/* ---- the index of Hugging Face ---- */

void stk_foreign_cut_index(char *path)
{
    char *slash = strrchr(path, '/');

    if (stk_text_stem_bytes(path, STK_FOREIGN_INDEX_SUFFIX) == 0) {
        return;
    }
    if (slash) {
        slash[slash == path] = '\0';
    } else {
        memcpy(path, ".", 2);
    }
}

static int fail_index(const char *what, const char *path, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, STK_FOREIGN_ADVICE, "'%.400s'", path);
}

/* The names of the weight map. */
static int add_wanted(struct stk_foreign *foreign, json_t *map, const char *path,
                      struct stoker_error *error)
{
    struct stk_json_text names = {0};
    const char *tensor;
    json_t *value;

    json_object_foreach(map, tensor, value)
    {
        stk_json_text_add(&names, tensor, strlen(tensor) + 1);
    }
    foreign->wanted = names.text;
    foreign->wanted_count = json_object_size(map);
    return names.failed ? stk_fail_memory(error, "'%.400s'", path) : 0;
}

/* The files of the weight map, each once. */
static int add_files(struct stk_foreign *foreign, json_t *map, const char *path,
                     struct stoker_error *error)
{
    size_t count = json_object_size(map), used = 0;
    const char **names = stk_alloc(count + 1, sizeof *names), *tensor;
    uint32_t capacity = 0;
    json_t *value;
    int status = names ? 0 : stk_fail_memory(error, "'%.400s'", path);

    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);

        if (status == 0 && (!name || !name[0] || name[0] == '.' || strchr(name, '/'))) {
            status = fail_index("the weight map names a file outside of its folder", path, error);
        }
        if (status == 0) {
            names[used++] = name;
        }
    }
    if (status == 0) {
        qsort(names, used, sizeof *names, stk_compare_texts);
    }
    for (size_t i = 0; status == 0 && i < used; i++) {
        if ((i == 0 || strcmp(names[i - 1], names[i]) != 0) &&
            stk_foreign_add_file(foreign, &capacity, names[i], 0) == UINT32_MAX) {
            status = stk_fail_memory(error, "'%.400s'", path);
        }
    }
    stk_free(names);
    return status;
}

static int add_text(const char *text, size_t bytes, void *json)
{
    stk_json_text_add(json, text, bytes);
    return 0;
}

static int open_index(struct stk_foreign *foreign, const struct stk_checkpoint_place *place,
                      struct stoker_error *error)
{
    size_t size = 0;
    bool named = stk_text_stem_bytes(place->root, STK_FOREIGN_INDEX_SUFFIX) > 0;
    char *path =
        named ? stk_strdup(place->root) : stk_place_path(place, NULL, STK_FOREIGN_INDEX_NAME);
    uint8_t *data = NULL;
    json_t *root = NULL, *map, *metadata;
    struct stk_json_text values = {0};
    int status = path ? stk_place_read(place, path, INDEX_BYTES_MAX, &data, &size, error)
                      : stk_fail_memory(error, "'%.400s'", place->root);

    if (status == 0) {
        root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
        map = json_object_get(root, "weight_map");
        metadata = json_object_get(root, "metadata");
        status = json_is_object(map) && json_object_size(map) > 0
                     ? add_files(foreign, map, path, error)
                     : fail_index("the index has no weight_map", path, error);
        status = status < 0 ? status : add_wanted(foreign, map, path, error);
        if (json_is_object(metadata)) {
            json_dump_callback(metadata, add_text, &values, JSON_COMPACT | JSON_SORT_KEYS);
        } else {
            stk_json_text_print(&values, "{}");
        }
        foreign->values = values.text;
        if (status == 0 && values.failed) {
            status = stk_fail_memory(error, "'%.400s'", path);
        }
    }
    json_decref(root);
    stk_free(data);
    stk_free(path);
    return status;
}

int stk_foreign_open(struct stk_foreign *foreign, struct stoker_engine *engine,
                     const struct stk_checkpoint_place *place, const char *kind,
                     struct stoker_error *error)
{
    int status;

    *foreign = (struct stk_foreign){0};
    if (strcmp(kind, "torch") == 0) {
        foreign->kind = "torch";
        status = stk_foreign_open_torch(foreign, engine, place, error);
    } else if (strcmp(kind, "dcp") == 0) {
        foreign->kind = "dcp";
        status = stk_foreign_open_dcp(foreign, engine, place, error);
    } else {
        foreign->kind = "huggingface";
        status = open_index(foreign, place, error);
    }
    if (status < 0) {
        stk_foreign_deinit(foreign);
    }
    return status;
}
