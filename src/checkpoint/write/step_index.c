/* Makes the index of names of a step, and writes it before the manifest. The index is derived:
 * without it, readers read all headers. So a step that is written does without it after a failure.
 */
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/layout/name_index.h"
#include "checkpoint/write/writer.h"

#include <stdio.h>
#include <string.h>

#define ENTRY_BYTES_MIN 60u /* of a tensor in a header: its name, keys and two offsets */

/* The names of a file, one after the other. */
struct names {
    char *text; /* owned */
    uint64_t count;
};

struct indexing {
    const struct stk_checkpoint_place *place;
    const struct stk_step_manifest *manifest;
    const char *folder;            /* NULL: the place is that of the step */
    struct names *names;           /* owned: of each file */
    _Atomic uint64_t header_bytes; /* of all files, without their hashes */
};

static int fail(const char *what, const struct stoker_checkpoint_part *part,
                struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_TRUNCATED, what, "save the step again", "'%.79s'",
                    part->name);
}

static int open_file(const struct indexing *indexing, uint64_t number, struct stk_file **file_out,
                     uint64_t *json_bytes_out, struct stoker_error *error)
{
    const struct stoker_checkpoint_part *part = &indexing->manifest->files[number];
    char *path = stk_place_path(indexing->place, indexing->folder, part->name);
    uint8_t first[STK_SAFETENSORS_LENGTH_BYTES];
    int status = path ? stk_io_open_file(indexing->place->io, path, file_out, error)
                      : stk_fail_memory(error, "index of names");

    stk_free(path);
    if (status == 0) {
        int64_t got = stk_io_read_wait(*file_out, 0, first, sizeof first);

        status = got == (int64_t)sizeof first
                     ? stk_safetensors_length(first, part->bytes, json_bytes_out, error)
                     : fail("the file has no header", part, error);
        if (status < 0) {
            stk_io_close_file(*file_out);
        }
    }
    return status;
}

static int measure_file(void *context, uint64_t number, struct stoker_error *error)
{
    struct indexing *indexing = context;
    uint64_t bytes = 0;
    uint64_t hashes =
        indexing->manifest->files[number].bytes / STK_SAFETENSORS_LEAF_BYTES * UINT64_C(64);
    struct stk_file *file = NULL;
    int status = open_file(indexing, number, &file, &bytes, error);

    if (status == 0) {
        atomic_fetch_add(&indexing->header_bytes, bytes > hashes ? bytes - hashes : 0);
        stk_io_close_file(file);
    }
    return status;
}

static int take_names(const struct stk_safetensors *layout, struct names *names,
                      struct stoker_error *error)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < layout->count; i++) {
        bytes += strlen(layout->tensors[i].name) + 1;
    }
    names->text = stk_alloc(bytes + 1, 1);
    if (!names->text) {
        return stk_fail_memory(error, "index of names");
    }
    names->count = layout->count;
    bytes = 0;
    for (uint64_t i = 0; i < layout->count; i++) {
        size_t name_bytes = strlen(layout->tensors[i].name) + 1;

        memcpy(names->text + bytes, layout->tensors[i].name, name_bytes);
        bytes += name_bytes;
    }
    return 0;
}

static int read_names(void *context, uint64_t number, struct stoker_error *error)
{
    struct indexing *indexing = context;
    const struct stoker_checkpoint_part *part = &indexing->manifest->files[number];
    struct stk_safetensors layout = {0};
    struct stk_file *file = NULL;
    uint64_t bytes = 0;
    uint8_t *json = NULL;
    int status = open_file(indexing, number, &file, &bytes, error);

    if (status < 0) {
        return status;
    }
    json = stk_alloc(bytes, 1);
    status = json ? 0 : stk_fail_memory(error, "index of names");
    if (status == 0) {
        int64_t got = stk_io_read_wait(file, STK_SAFETENSORS_LENGTH_BYTES, json, bytes);

        status =
            got == (int64_t)bytes
                ? stk_safetensors_parse(&layout, (struct stk_view){json, bytes}, part->bytes, error)
                : fail("the header cannot be read", part, error);
    }
    stk_free(json);
    stk_io_close_file(file);
    status = status < 0 ? status : take_names(&layout, &indexing->names[number], error);
    stk_safetensors_deinit(&layout);
    return status;
}

/* Makes the index of all names. */
static int make_index(const struct indexing *indexing, struct stk_checkpoint_index *index,
                      struct stoker_error *error)
{
    uint64_t files = indexing->manifest->file_count, at = 0;
    uint64_t *counts = stk_alloc(files, sizeof *counts);
    struct stk_named_tensor *names;
    int status;

    for (uint64_t i = 0; counts && i < files; i++) {
        counts[i] = indexing->names[i].count;
        index->names += counts[i];
    }
    names = stk_alloc(index->names + 1, sizeof *names);
    for (uint64_t i = 0; names && i < files; i++) {
        const char *name = indexing->names[i].text;

        for (uint64_t j = 0; j < indexing->names[i].count; j++) {
            names[at] = (struct stk_named_tensor){name, at};
            at++;
            name += strlen(name) + 1;
        }
    }
    status = counts && names
                 ? stk_name_index_make(
                       &(struct stk_name_index_input){names, index->names, counts, files},
                       &index->data, &index->bytes, error)
                 : stk_fail_memory(error, "index of names");
    stk_free(names);
    stk_free(counts);
    return status;
}

int stk_checkpoint_make_index(const struct stk_checkpoint_place *place, const char *folder,
                              struct stoker_engine *engine,
                              const struct stk_step_manifest *manifest,
                              struct stk_checkpoint_index *index, struct stoker_error *error)
{
    struct indexing indexing = {.place = place, .manifest = manifest, .folder = folder};
    int status;

    *index = (struct stk_checkpoint_index){0};
    indexing.names = stk_alloc(manifest->file_count, sizeof *indexing.names);
    status = indexing.names
                 ? stk_engine_parallel(engine, manifest->file_count, read_names, &indexing, error)
                 : stk_fail_memory(error, "index of names");
    status = status < 0 ? status : make_index(&indexing, index, error);
    for (uint64_t i = 0; indexing.names && i < manifest->file_count; i++) {
        stk_free(indexing.names[i].text);
    }
    stk_free(indexing.names);
    return status;
}

/* Whether a step has so many tensors that it needs an index. If the number is unknown, the lengths
 * of the headers say whether it may be so. */
static bool is_large(const struct stk_checkpoint_place *place, const char *folder,
                     struct stoker_engine *engine, const struct stk_step_manifest *manifest)
{
    struct indexing indexing = {.place = place, .manifest = manifest, .folder = folder};

    return manifest->tensors > 0 ? manifest->tensors >= STK_NAME_INDEX_TENSORS_MIN
                                 : stk_engine_parallel(engine, manifest->file_count, measure_file,
                                                       &indexing, NULL) == 0 &&
                                       atomic_load(&indexing.header_bytes) >=
                                           STK_NAME_INDEX_TENSORS_MIN * ENTRY_BYTES_MIN;
}

void stk_checkpoint_index_step(const struct stk_checkpoint_place *place,
                               struct stoker_engine *engine, struct stk_step_manifest *manifest,
                               const char *id)
{
    char folder[STK_PLACE_NAME_BYTES];
    struct stk_checkpoint_index index;
    struct stk_view view;
    char *path;

    manifest->index = (struct stoker_checkpoint_part){0};
    if (place->remote) {
        stk_place_step_name(manifest->step, folder);
    } else {
        stk_place_part_name(manifest->step, id, STK_PLACE_PART_SUFFIX, folder);
    }
    if (!is_large(place, folder, engine, manifest) ||
        stk_checkpoint_make_index(place, folder, engine, manifest, &index, NULL) < 0) {
        return;
    }
    snprintf(manifest->index.name, sizeof manifest->index.name, "%s%.32s%s",
             place->remote ? STK_PLACE_INDEX_PREFIX : STK_NAME_INDEX_NAME, place->remote ? id : "",
             place->remote ? ".stoker" : "");
    manifest->index.bytes = index.bytes;
    stk_sha256_one(index.data, index.bytes, manifest->index.root);
    view = (struct stk_view){index.data, index.bytes};
    path = stk_place_path(place, folder, manifest->index.name);
    if (index.names < STK_NAME_INDEX_TENSORS_MIN || !path ||
        stk_place_write(place, path, view, false, NULL) < 0) {
        manifest->index = (struct stoker_checkpoint_part){0};
    }
    stk_free(index.data);
    stk_free(path);
}
