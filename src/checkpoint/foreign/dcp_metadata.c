/* Parses the metadata of torch.distributed.checkpoint. */
#include "checkpoint/foreign/dcp_metadata.h"

#include "base/mem.h"
#include "checkpoint/layout/dtype.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ADVICE "copy the checkpoint again, or use another one"

#define FIELDS_MAX 64u /* keys and values of the state of an object */

static int fail(const char *what, struct stk_view name, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, ADVICE, "'%.*s'",
                    (int)stk_min(name.bytes, 300), (const char *)name.data);
}

/* The dict of the fields of an object of this class; NULL if it is another one. */
static const struct stk_pickle_value *state_of(const struct stk_pickle *pickle,
                                               const struct stk_pickle_value *value, uint32_t kind)
{
    const struct stk_pickle_value *state;

    if (!stk_pickle_is(pickle, value, kind) || value->object.state == STK_PICKLE_NONE_AT) {
        return NULL;
    }
    state = stk_pickle_at(pickle, value->object.state);
    /* Many objects may share one state: it must be short, since it is searched for each. */
    return state->kind == STK_PICKLE_DICT &&
                   (kind == STK_PICKLE_DCP_METADATA || state->count <= FIELDS_MAX)
               ? state
               : NULL;
}

static int compare_views(struct stk_view a, struct stk_view b)
{
    int order = memcmp(a.data, b.data, stk_min(a.bytes, b.bytes));

    return order != 0 ? order : a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

static int by_item(const void *a, const void *b)
{
    const struct stk_dcp_item *x = a, *y = b;
    int order = compare_views(x->name, y->name);

    if (order != 0) {
        return order;
    }
    if (x->chunk != y->chunk || x->dimension_count != y->dimension_count) {
        return x->chunk != y->chunk ? (x->chunk ? 1 : -1)
                                    : (x->dimension_count < y->dimension_count ? -1 : 1);
    }
    for (uint32_t i = 0; i < x->dimension_count; i++) {
        if (x->origin[i] != y->origin[i]) {
            return x->origin[i] < y->origin[i] ? -1 : 1;
        }
    }
    return 0;
}

const struct stk_dcp_item *stk_dcp_find(const struct stk_dcp_metadata *metadata,
                                        struct stk_view name, const uint64_t *origin,
                                        uint32_t dimension_count)
{
    struct stk_dcp_item wanted = {
        .name = name, .chunk = origin != NULL, .dimension_count = dimension_count};

    for (uint32_t i = 0; origin && i < dimension_count; i++) {
        wanted.origin[i] = origin[i];
    }
    return metadata->item_count == 0 ? NULL
                                     : bsearch(&wanted, metadata->items, metadata->item_count,
                                               sizeof *metadata->items, by_item);
}

/* ---- storage_data ---- */

static bool is_count(const struct stk_pickle_value *value, uint64_t *number_out)
{
    if (!value || value->kind != STK_PICKLE_INTEGER || value->integer < 0) {
        return false;
    }
    *number_out = (uint64_t)value->integer;
    return true;
}

/* A file next to the metadata: a plain name without a folder. */
static bool is_file_name(struct stk_view name)
{
    return name.bytes > 0 && name.bytes < 256 && name.data[0] != '.' &&
           !memchr(name.data, '/', name.bytes) && !memchr(name.data, 0, name.bytes);
}

static int parse_item(const struct stk_pickle *pickle, const struct stk_pickle_value *key,
                      const struct stk_pickle_value *value, struct stk_dcp_item *item,
                      struct stoker_error *error)
{
    const struct stk_pickle_value *index = state_of(pickle, key, STK_PICKLE_DCP_INDEX);
    const struct stk_pickle_value *info = state_of(pickle, value, STK_PICKLE_DCP_INFO);
    const struct stk_pickle_value *name = stk_pickle_get(pickle, index, "fqn");
    const struct stk_pickle_value *origin = stk_pickle_get(pickle, index, "offset");
    const struct stk_pickle_value *file = stk_pickle_get(pickle, info, "relative_path");
    const struct stk_pickle_value *transforms =
        stk_pickle_get(pickle, info, "transform_descriptors");
    struct stk_view none = {(const uint8_t *)"storage_data", 12};

    if (!name || name->kind != STK_PICKLE_TEXT || !file || file->kind != STK_PICKLE_TEXT ||
        !is_count(stk_pickle_get(pickle, info, "offset"), &item->offset) ||
        !is_count(stk_pickle_get(pickle, info, "length"), &item->bytes)) {
        return fail("an entry of the metadata has no name, file, offset or length", none, error);
    }
    item->name = name->text;
    item->file = file->text;
    if (!is_file_name(file->text)) {
        return fail("the metadata names a file outside of its folder", item->name, error);
    }
    if (transforms && transforms->kind != STK_PICKLE_NONE && transforms->count > 0) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "an item is transformed (compressed or encrypted)",
                        "load it with torch, and save it without an extension", "'%.*s'",
                        (int)stk_min(item->name.bytes, 300), (const char *)item->name.data);
    }
    item->chunk = origin && origin->kind != STK_PICKLE_NONE;
    if (item->chunk &&
        !stk_pickle_numbers(pickle, origin, item->origin, STOKER_CHECKPOINT_DIMENSIONS_MAX,
                            &item->dimension_count)) {
        return fail("the offsets of a chunk are not valid", item->name, error);
    }
    return 0;
}

static int parse_items(struct stk_dcp_metadata *metadata, const struct stk_pickle_value *data,
                       struct stoker_error *error)
{
    const struct stk_pickle *pickle = &metadata->pickle;
    uint32_t cell = data->items.first;
    int status = 0;

    metadata->items = stk_alloc(data->count / 2 + 1, sizeof *metadata->items);
    if (!metadata->items) {
        return stk_fail_memory(error, "metadata of a checkpoint");
    }
    for (uint32_t i = 0; status == 0 && i < data->count; i += 2) {
        uint32_t next = pickle->cells[cell].next;

        status = parse_item(pickle, &pickle->values[pickle->cells[cell].value],
                            &pickle->values[pickle->cells[next].value],
                            &metadata->items[metadata->item_count++], error);
        cell = pickle->cells[next].next;
    }
    if (status == 0) {
        qsort(metadata->items, metadata->item_count, sizeof *metadata->items, by_item);
    }
    for (uint64_t i = 1; status == 0 && i < metadata->item_count; i++) {
        if (by_item(&metadata->items[i - 1], &metadata->items[i]) == 0) {
            status = fail("the metadata has an item twice", metadata->items[i].name, error);
        }
    }
    return status;
}

/* ---- state_dict_metadata ---- */

static int parse_tensor(const struct stk_pickle *pickle, const struct stk_pickle_value *state,
                        struct stk_dcp_tensor *tensor, struct stoker_error *error)
{
    const struct stk_pickle_value *properties = stk_pickle_get(pickle, state, "properties");
    const struct stk_pickle_value *dtype = NULL;
    uint64_t bytes;
    uint32_t bits;

    if (stk_pickle_is(pickle, properties, STK_PICKLE_DCP_PROPERTIES) &&
        properties->object.state != STK_PICKLE_NONE_AT) {
        const struct stk_pickle_value *fields = stk_pickle_at(pickle, properties->object.state);

        dtype = fields->kind == STK_PICKLE_DICT ? stk_pickle_get(pickle, fields, "dtype")
                                                : stk_pickle_item(pickle, fields, 0);
    }
    if (!dtype || dtype->kind != STK_PICKLE_GLOBAL || dtype->global->kind != STK_PICKLE_DTYPE) {
        return fail("a tensor has no dtype", tensor->name, error);
    }
    tensor->dtype = dtype->global->dtype;
    if (!tensor->dtype) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "safetensors has not this dtype",
                        "convert the tensor before it is saved", "tensor '%.*s' torch.%s",
                        (int)stk_min(tensor->name.bytes, 300), (const char *)tensor->name.data,
                        dtype->global->name);
    }
    tensor->chunks = stk_pickle_get(pickle, state, "chunks");
    bits = stk_checkpoint_dtype_bits(tensor->dtype, NULL);
    if (!tensor->chunks || tensor->chunks->kind != STK_PICKLE_LIST ||
        !stk_pickle_numbers(pickle, stk_pickle_get(pickle, state, "size"), tensor->shape,
                            STOKER_CHECKPOINT_DIMENSIONS_MAX, &tensor->dimension_count) ||
        !stk_checkpoint_tensor_bytes(bits, tensor->shape, tensor->dimension_count, &bytes) ||
        bytes > INT64_MAX / 2) {
        return fail("the size or the chunks of a tensor are not valid", tensor->name, error);
    }
    return 0;
}

static int parse_entry(struct stk_dcp_metadata *metadata, const struct stk_pickle_value *key,
                       const struct stk_pickle_value *value, struct stoker_error *error)
{
    const struct stk_pickle *pickle = &metadata->pickle;
    const struct stk_pickle_value *state;
    struct stk_view none = {(const uint8_t *)"state_dict_metadata", 19};

    if (key->kind != STK_PICKLE_TEXT || key->text.bytes == 0 ||
        key->text.bytes >= STK_DCP_NAME_BYTES || memchr(key->text.data, 0, key->text.bytes)) {
        return fail("the name of an entry is not valid", none, error);
    }
    if (stk_pickle_is(pickle, value, STK_PICKLE_DCP_BYTES)) {
        metadata->bytes[metadata->bytes_count++] = key->text;
        return 0;
    }
    state = state_of(pickle, value, STK_PICKLE_DCP_TENSOR);
    if (!state) {
        return fail("an entry of the metadata is no tensor and no bytes", key->text, error);
    }
    metadata->tensors[metadata->tensor_count] = (struct stk_dcp_tensor){.name = key->text};
    return parse_tensor(pickle, state, &metadata->tensors[metadata->tensor_count++], error);
}

static int parse_entries(struct stk_dcp_metadata *metadata, const struct stk_pickle_value *dict,
                         struct stoker_error *error)
{
    const struct stk_pickle *pickle = &metadata->pickle;
    uint32_t cell = dict->items.first;
    int status = 0;

    metadata->tensors = stk_alloc(dict->count / 2 + 1, sizeof *metadata->tensors);
    metadata->bytes = stk_alloc(dict->count / 2 + 1, sizeof *metadata->bytes);
    if (!metadata->tensors || !metadata->bytes) {
        return stk_fail_memory(error, "metadata of a checkpoint");
    }
    for (uint32_t i = 0; status == 0 && i < dict->count; i += 2) {
        uint32_t next = pickle->cells[cell].next;

        status = parse_entry(metadata, &pickle->values[pickle->cells[cell].value],
                             &pickle->values[pickle->cells[next].value], error);
        cell = pickle->cells[next].next;
    }
    return status;
}

int stk_dcp_metadata_parse(struct stk_dcp_metadata *metadata, struct stk_view bytes,
                           struct stoker_error *error)
{
    const struct stk_pickle *pickle = &metadata->pickle;
    const struct stk_pickle_value *state, *entries, *data;
    struct stk_view none = {(const uint8_t *)".metadata", 9};
    int status;

    *metadata = (struct stk_dcp_metadata){0};
    status = stk_pickle_parse(&metadata->pickle, bytes, error);
    if (status < 0) {
        return status;
    }
    state = state_of(pickle, stk_pickle_at(pickle, pickle->root), STK_PICKLE_DCP_METADATA);
    entries = stk_pickle_get(pickle, state, "state_dict_metadata");
    data = stk_pickle_get(pickle, state, "storage_data");
    metadata->planner = stk_pickle_get(pickle, state, "planner_data");
    if (!entries || entries->kind != STK_PICKLE_DICT || !data || data->kind != STK_PICKLE_DICT) {
        status = fail("this is no metadata of torch.distributed.checkpoint", none, error);
    }
    status = status < 0 ? status : parse_items(metadata, data, error);
    status = status < 0 ? status : parse_entries(metadata, entries, error);
    if (status < 0) {
        stk_dcp_metadata_deinit(metadata);
    }
    return status;
}

void stk_dcp_metadata_deinit(struct stk_dcp_metadata *metadata)
{
    stk_pickle_deinit(&metadata->pickle);
    stk_free(metadata->items);
    stk_free(metadata->tensors);
    stk_free(metadata->bytes);
    *metadata = (struct stk_dcp_metadata){0};
}

int stk_dcp_chunk(const struct stk_dcp_metadata *metadata, const struct stk_dcp_tensor *tensor,
                  const struct stk_pickle_value *value, struct stk_dcp_chunk *chunk,
                  struct stoker_error *error)
{
    const struct stk_pickle *pickle = &metadata->pickle;
    const struct stk_pickle_value *state = state_of(pickle, value, STK_PICKLE_DCP_CHUNK);
    uint32_t origins, sizes;

    if (!stk_pickle_numbers(pickle, stk_pickle_get(pickle, state, "offsets"), chunk->origin,
                            STOKER_CHECKPOINT_DIMENSIONS_MAX, &origins) ||
        !stk_pickle_numbers(pickle, stk_pickle_get(pickle, state, "sizes"), chunk->sizes,
                            STOKER_CHECKPOINT_DIMENSIONS_MAX, &sizes) ||
        origins != tensor->dimension_count || sizes != tensor->dimension_count) {
        return fail("the offsets or sizes of a chunk are not valid", tensor->name, error);
    }
    return 0;
}
