/* Opens a file of torch.save(), and finds the arrays in its storages. */
#include "base/mem.h"
#include "checkpoint/foreign/foreign_private.h"
#include "checkpoint/layout/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PICKLE_NAME "data.pkl"
#define KEY_BYTES 64u

static int fail(const char *what, const char *name, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, STK_FOREIGN_ADVICE, "tensor '%.300s'", name);
}

/* The member FOLDER/data.pkl, and its folder. */
static const struct stk_zip_archive_member *find_pickle(struct stk_torch_file *file)
{
    for (uint64_t i = 0; i < file->archive.count; i++) {
        const char *name = file->archive.members[i].name, *slash = strchr(name, '/');

        if (slash && strcmp(slash + 1, PICKLE_NAME) == 0 &&
            (size_t)(slash - name) < sizeof file->prefix - KEY_BYTES) {
            snprintf(file->prefix, sizeof file->prefix, "%.*s", (int)(slash - name), name);
            return &file->archive.members[i];
        }
    }
    return NULL;
}

static const struct stk_zip_archive_member *member_of(const struct stk_torch_file *file,
                                                      const char *folder, struct stk_view key)
{
    char name[sizeof file->prefix + 8];
    int bytes = snprintf(name, sizeof name, "%s/%s%.*s", file->prefix, folder,
                         (int)stk_min(key.bytes, KEY_BYTES), (const char *)key.data);

    return key.bytes > KEY_BYTES || bytes < 0 || (size_t)bytes >= sizeof name
               ? NULL
               : stk_zip_archive_find(&file->archive, name);
}

/* Older files have no such member: they are little-endian. */
static int check_order(struct stk_torch_file *file, struct stoker_error *error)
{
    const char *name = "byteorder";
    const struct stk_zip_archive_member *member =
        member_of(file, "", (struct stk_view){(const uint8_t *)name, strlen(name)});
    uint8_t *text = NULL;
    size_t bytes = 0;
    bool little;
    int status = member ? stk_zip_archive_read(file->source, member, 64, &text, &bytes, error) : 0;

    if (!member || status < 0) {
        return status;
    }
    little = bytes == 6 && memcmp(text, "little", 6) == 0;
    stk_free(text);
    return little
               ? 0
               : stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the numbers of the file are big-endian",
                          "load and save it with torch on this machine", "'%.400s'",
                          file->source->path);
}

int stk_torch_open(struct stk_torch_file *file, struct stk_foreign_source *source,
                   struct stoker_error *error)
{
    const struct stk_zip_archive_member *member;
    size_t bytes = 0;
    int status;

    *file = (struct stk_torch_file){.source = source};
    status = stk_zip_archive_open(&file->archive, source, error);
    if (status < 0) {
        return status;
    }
    member = find_pickle(file);
    if (!member) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "the archive is not written by torch.save()",
                          "name a checkpoint; it has a member data.pkl", "'%.400s'", source->path);
    }
    status = status < 0 ? status : check_order(file, error);
    status = status < 0 ? status
                        : stk_zip_archive_read(source, member, STK_PICKLE_BYTES_MAX, &file->bytes,
                                               &bytes, error);
    status = status < 0
                 ? status
                 : stk_pickle_parse(&file->pickle, (struct stk_view){file->bytes, bytes}, error);
    if (status < 0) {
        stk_error_set_location(error, source->path, STOKER_NO_OFFSET, NULL);
        stk_torch_deinit(file);
    }
    return status;
}

void stk_torch_deinit(struct stk_torch_file *file)
{
    stk_pickle_deinit(&file->pickle);
    stk_zip_archive_deinit(&file->archive);
    stk_free(file->bytes);
    *file = (struct stk_torch_file){0};
}

/* ---- arrays ---- */

/* The storage: ('storage', torch.FloatStorage, '0', 'cpu', 12). Sets elements_out to its count. */
static int read_storage(const struct stk_torch_file *file, const struct stk_pickle_value *value,
                        const char *name, struct stk_torch_array *array, uint64_t *elements_out,
                        struct stoker_error *error)
{
    const struct stk_pickle *pickle = &file->pickle;
    const struct stk_pickle_value *id, *kind, *key, *count;

    if (!value || value->kind != STK_PICKLE_PERSISTENT) {
        return fail("a tensor has no storage", name, error);
    }
    id = stk_pickle_at(pickle, value->object.arguments);
    kind = stk_pickle_item(pickle, id, 1);
    key = stk_pickle_item(pickle, id, 2);
    count = stk_pickle_item(pickle, id, 4);
    if (!count || kind->kind != STK_PICKLE_GLOBAL || kind->global->kind != STK_PICKLE_STORAGE ||
        key->kind != STK_PICKLE_TEXT || memchr(key->text.data, 0, key->text.bytes) ||
        count->kind != STK_PICKLE_INTEGER || count->integer < 0) {
        return fail("the storage of a tensor is not valid", name, error);
    }
    array->dtype = kind->global->dtype;
    *elements_out = (uint64_t)count->integer;
    array->member = member_of(file, "data/", key->text);
    return array->member
               ? 0
               : stk_fail(error, STOKER_ERROR_MISSING,
                          "the archive has not the storage of a tensor", STK_FOREIGN_ADVICE,
                          "tensor '%.200s', member %.*s", name,
                          (int)stk_min(key->text.bytes, KEY_BYTES), (const char *)key->text.data);
}

/* An untyped storage counts bytes; the dtype is an argument of its own. */
static int read_dtype(const struct stk_torch_file *file, const struct stk_pickle_value *arguments,
                      const char *name, struct stk_torch_array *array, struct stoker_error *error)
{
    const struct stk_pickle_value *dtype = stk_pickle_item(&file->pickle, arguments, 6);

    if (!array->dtype) {
        if (!dtype || dtype->kind != STK_PICKLE_GLOBAL || dtype->global->kind != STK_PICKLE_DTYPE) {
            return fail("a tensor has no dtype", name, error);
        }
        if (!dtype->global->dtype) {
            return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "safetensors has not this dtype",
                            "convert the tensor before it is saved", "tensor '%.300s' torch.%s",
                            name, dtype->global->name);
        }
        array->dtype = dtype->global->dtype;
    }
    array->element_bytes = stk_checkpoint_dtype_bits(array->dtype, NULL) / 8;
    return 0;
}

/* The last element must be inside the storage. */
static int check_bounds(const struct stk_torch_array *array, uint64_t offset, uint64_t bytes,
                        const char *name, struct stoker_error *error)
{
    uint64_t last = offset, all;
    bool empty = false, fits = true;

    for (uint32_t i = 0; i < array->dimension_count; i++) {
        empty = empty || array->shape[i] == 0;
    }
    for (uint32_t i = 0; !empty && fits && i < array->dimension_count; i++) {
        uint64_t step;

        fits = stk_multiply(array->shape[i] - 1, array->strides[i], &step) &&
               stk_add(last, step, &last);
    }
    fits = fits &&
           stk_checkpoint_tensor_bytes(array->element_bytes * 8, array->shape,
                                       array->dimension_count, &all) &&
           all <= INT64_MAX / 2;
    if (!fits || (!empty && (last >= bytes / array->element_bytes))) {
        return fail("the tensor lies outside of its storage", name, error);
    }
    return 0;
}

int stk_torch_array(const struct stk_torch_file *file, const struct stk_pickle_value *value,
                    const char *name, struct stk_torch_array *array, struct stoker_error *error)
{
    const struct stk_pickle *pickle = &file->pickle;
    const struct stk_pickle_value *arguments = stk_pickle_at(pickle, value->object.arguments);
    const struct stk_pickle_value *offset = stk_pickle_item(pickle, arguments, 1);
    uint64_t elements = 0, bytes;
    uint32_t count;
    int status;

    *array = (struct stk_torch_array){0};
    status =
        read_storage(file, stk_pickle_item(pickle, arguments, 0), name, array, &elements, error);
    if (status < 0) {
        return status;
    }
    bytes = array->dtype ? 0 : elements;
    status = read_dtype(file, arguments, name, array, error);
    if (status < 0) {
        return status;
    }
    if (!offset || offset->kind != STK_PICKLE_INTEGER || offset->integer < 0 ||
        !stk_pickle_numbers(pickle, stk_pickle_item(pickle, arguments, 2), array->shape,
                            STOKER_CHECKPOINT_DIMENSIONS_MAX, &array->dimension_count) ||
        !stk_pickle_numbers(pickle, stk_pickle_item(pickle, arguments, 3), array->strides,
                            STOKER_CHECKPOINT_DIMENSIONS_MAX, &count) ||
        count != array->dimension_count) {
        return fail("offset, shape or strides of a tensor are not valid, or have more than 32 "
                    "dimensions",
                    name, error);
    }
    if (bytes == 0 && !stk_multiply(elements, array->element_bytes, &bytes)) {
        return fail("the storage of a tensor is not valid", name, error);
    }
    if (bytes > array->member->bytes) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "a storage has fewer bytes than it says",
                        STK_FOREIGN_ADVICE,
                        "tensor '%.200s', member %.100s: %" PRIu64 " of %" PRIu64, name,
                        array->member->name, array->member->bytes, bytes);
    }
    status = check_bounds(array, (uint64_t)offset->integer, bytes, name, error);
    array->first = (uint64_t)offset->integer * array->element_bytes;
    return status;
}
