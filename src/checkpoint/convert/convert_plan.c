/* What a conversion writes: each tensor once, assembled from the parts of ranks. */
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/foreign/foreign_private.h"
#include "checkpoint/layout/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_WAIT_MS 200u
#define LEVELS_MAX 400u

static int fail_tree(const char *what, const char *name, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, "convert another step", "tensor '%.300s'",
                    name);
}

/* ---- tensors ---- */

/* C order, in elements. */
static void strides_of(const uint64_t *shape, uint32_t dimensions, uint64_t *strides)
{
    uint64_t step = 1;

    for (uint32_t i = dimensions; i-- > 0;) {
        strides[i] = step;
        step *= shape[i];
    }
}

static int set_part(struct stk_foreign_tensor *tensor, uint32_t index, uint64_t number,
                    const struct stoker_checkpoint_tensor_info *part, const uint64_t *origin)
{
    uint64_t strides[STOKER_CHECKPOINT_DIMENSIONS_MAX];

    strides_of(part->shape, part->dimension_count, strides);
    stk_foreign_set_piece(
        tensor, index,
        &(struct stk_foreign_piece){
            .file = (uint32_t)number, .origin = origin, .sizes = part->shape, .strides = strides});
    return 0;
}

/* NAME@0,128: the part of a tensor that a rank has, at these offsets. */
static bool parse_part(const char *name, const char *base, uint64_t *origin, uint32_t dimensions)
{
    size_t bytes = strlen(base);
    const char *at = name + bytes + 1;

    if (strncmp(name, base, bytes) != 0 || name[bytes] != '@') {
        return false;
    }
    for (uint32_t i = 0; i < dimensions; i++) {
        const char *end;

        if (*at < '0' || *at > '9' || !stk_parse_uint64(at, &end, &origin[i]) ||
            *end != (i + 1 < dimensions ? ',' : '\0')) {
            return false;
        }
        at = end + 1;
    }
    return dimensions > 0 || *at == '\0';
}

/* First of the sorted names that is not below a text. */
static uint64_t lower_bound(const struct stoker_checkpoint *source, const char *text)
{
    uint64_t low = 0, high = source->tensor_count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (strcmp(source->names[middle].name, text) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A tensor whose parts are in files of several ranks. */
static int add_assembled(struct stk_convert_plan *plan, const struct stk_foreign_form *form,
                         struct stoker_error *error)
{
    const struct stoker_checkpoint *source = plan->source;
    size_t bytes = strlen(form->name);
    char *prefix = stk_alloc(bytes + 2, 1);
    struct stk_foreign_form full = *form;
    struct stk_foreign_tensor *tensor = NULL;
    uint64_t first, last;
    uint32_t parts = 0;
    int status = 0;

    if (!prefix) {
        return stk_fail_memory(error, "plan of a conversion");
    }
    memcpy(prefix, form->name, bytes);
    prefix[bytes] = '@';
    first = last = lower_bound(source, prefix);
    while (last < source->tensor_count &&
           strncmp(source->names[last].name, prefix, bytes + 1) == 0) {
        last++;
    }
    full.piece_count = (uint32_t)(last - first);
    tensor = stk_foreign_add_tensor(&plan->outputs, &plan->capacity, &full);
    status = tensor ? 0 : stk_fail_memory(error, "plan of a conversion");
    for (uint64_t i = first; status == 0 && i < last; i++) {
        struct stoker_checkpoint_tensor_info part = {.struct_size = sizeof part};
        uint64_t origin[STOKER_CHECKPOINT_DIMENSIONS_MAX];

        (void)stoker_checkpoint_tensor(source, source->names[i].tensor, &part, NULL);
        if (part.dimension_count != form->dimension_count || strcmp(part.dtype, form->dtype) != 0 ||
            !parse_part(part.name, form->name, origin, form->dimension_count)) {
            status =
                fail_tree("a part of a tensor has another form than the tensor", form->name, error);
        } else if (i == first || strcmp(part.name, source->names[i - 1].name) != 0) {
            status = set_part(tensor, parts++, source->names[i].tensor, &part, origin);
        }
    }
    if (status == 0) {
        tensor->piece_count = parts;
        status = stk_foreign_check_pieces(tensor, error);
    }
    stk_free(prefix);
    return status;
}

static int add_plain(struct stk_convert_plan *plan, uint64_t number, struct stoker_error *error)
{
    struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};
    struct stk_foreign_form form;
    struct stk_foreign_tensor *tensor;

    (void)stoker_checkpoint_tensor(plan->source, number, &info, NULL);
    if (stk_checkpoint_dtype_bits(info.dtype, NULL) % 8 != 0) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "tensors of less than a byte an element are not converted",
                        "copy the checkpoint with 'stoker ckpt cp'", "tensor '%.300s' of dtype %s",
                        info.name, info.dtype);
    }
    form = (struct stk_foreign_form){info.name, info.dtype, info.shape, info.dimension_count, 1};
    tensor = stk_foreign_add_tensor(&plan->outputs, &plan->capacity, &form);
    if (!tensor) {
        return stk_fail_memory(error, "plan of a conversion");
    }
    return set_part(tensor, 0, number, &info, NULL);
}

/* ---- the tree ---- */

/* {"dtensor": [name, dtype, shape]} becomes {"torch": name}. */
static int take_dtensor(struct stk_convert_plan *plan, json_t *node, json_t *content,
                        struct stoker_error *error)
{
    uint64_t shape[STOKER_CHECKPOINT_DIMENSIONS_MAX];
    const char *name = json_string_value(json_array_get(content, 0));
    const char *dtype = json_string_value(json_array_get(content, 1));
    json_t *sizes = json_array_get(content, 2), *text;
    struct stk_foreign_form form = {name, dtype, shape, (uint32_t)json_array_size(sizes), 0};
    int status;

    if (!name || !dtype || stk_checkpoint_dtype_bits(dtype, NULL) % 8 != 0 ||
        stk_checkpoint_dtype_bits(dtype, NULL) == 0 ||
        json_array_size(sizes) > STOKER_CHECKPOINT_DIMENSIONS_MAX) {
        return fail_tree("a tensor of several ranks is not valid", name ? name : "", error);
    }
    for (uint32_t i = 0; i < form.dimension_count; i++) {
        shape[i] = (uint64_t)json_integer_value(json_array_get(sizes, i));
    }
    for (uint64_t i = 0; i < plan->outputs.count; i++) { /* a tied one */
        if (strcmp(plan->outputs.tensors[i].name, name) == 0) {
            name = NULL;
            break;
        }
    }
    status = name ? add_assembled(plan, &form, error) : 0;
    text = json_string(form.name);
    json_object_clear(node);
    if (json_object_set_new(node, "torch", text) < 0 && status == 0) { /* takes the text */
        status = stk_fail_memory(error, "tree of a conversion");
    }
    return status;
}

static int walk(struct stk_convert_plan *plan, json_t *node, uint32_t level,
                struct stoker_error *error)
{
    json_t *item;
    const char *key;
    size_t index;
    int status = 0;

    if (level > LEVELS_MAX) {
        return fail_tree("the tree has too many levels", "", error);
    }
    if (json_is_object(node) && json_object_size(node) == 1) {
        item = json_object_get(node, "dtensor");
        if (json_is_array(item)) {
            return take_dtensor(plan, node, item, error);
        }
    }
    if (json_is_object(node)) {
        json_object_foreach(node, key, item)
        {
            status = status < 0 ? status : walk(plan, item, level + 1, error);
        }
    }
    json_array_foreach(node, index, item)
    {
        status = status < 0 ? status : walk(plan, item, level + 1, error);
    }
    return status;
}

/* Parts of assembled tensors are no outputs of their own. */
static bool is_part(const struct stk_convert_plan *plan, uint64_t assembled, const char *name)
{
    const char *at = strrchr(name, '@');

    for (uint64_t i = 0; at && i < assembled; i++) {
        const char *base = plan->outputs.tensors[i].name;

        if (strlen(base) == (size_t)(at - name) && strncmp(base, name, strlen(base)) == 0) {
            return true;
        }
    }
    return false;
}

int stk_convert_plan(struct stk_convert_plan *plan, struct stoker_checkpoint *source,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_file file = {.struct_size = sizeof file};
    uint64_t assembled;
    int status = stoker_checkpoint_file(source, 0, &file, error);

    plan->source = source;
    if (status == 0 && file.tree) {
        plan->tree = json_loads(file.tree, JSON_DECODE_ANY, NULL);
        status = plan->tree ? walk(plan, plan->tree, 0, error)
                            : fail_tree("the tree is no JSON", "", error);
    }
    assembled = plan->outputs.count;
    for (uint64_t i = 0; status == 0 && i < source->tensor_count; i++) {
        uint64_t first;
        struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};

        (void)stoker_checkpoint_tensor(source, i, &info, NULL);
        (void)stoker_checkpoint_find(source, info.name, &first, NULL);
        if (first == i && !is_part(plan, assembled, info.name)) {
            status = add_plain(plan, i, error);
        }
    }
    for (uint64_t i = 0; status == 0 && i < plan->outputs.count; i++) {
        plan->bytes += plan->outputs.tensors[i].bytes;
    }
    if (status == 0 && plan->tree) {
        size_t bytes = json_dumpb(plan->tree, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);

        plan->tree_text = stk_alloc(bytes + 1, 1);
        status = plan->tree_text ? 0 : stk_fail_memory(error, "tree of a conversion");
        if (status == 0) {
            (void)json_dumpb(plan->tree, plan->tree_text, bytes, JSON_COMPACT | JSON_ENCODE_ANY);
        }
    }
    return status;
}

void stk_convert_plan_deinit(struct stk_convert_plan *plan)
{
    stk_foreign_deinit(&plan->outputs);
    json_decref(plan->tree);
    stk_free(plan->tree_text);
    *plan = (struct stk_convert_plan){0};
}

/* ---- reading ---- */

struct gathered {
    struct stoker_checkpoint_range *ranges; /* owned */
    size_t count, capacity;
    const struct stk_foreign_tensor *tensor;
    uint64_t begin;
    uint8_t *data;
};

static int gather(void *context, const struct stk_foreign_run *run)
{
    struct gathered *gathered = context;

    if (gathered->count == gathered->capacity) {
        size_t wanted = gathered->capacity * 2 + 16;
        void *grown =
            stk_realloc(gathered->ranges, gathered->capacity, wanted, sizeof *gathered->ranges);

        if (!grown) {
            return -ENOMEM;
        }
        gathered->ranges = grown;
        gathered->capacity = wanted;
    }
    gathered->ranges[gathered->count++] = (struct stoker_checkpoint_range){
        run->file, run->offset, run->bytes, gathered->data + (run->at - gathered->begin)};
    return 0;
}

int stk_convert_read(struct stk_convert_plan *plan, uint64_t output, uint64_t offset, void *data,
                     uint64_t bytes, struct stoker_error *error)
{
    struct gathered gathered = {
        .tensor = &plan->outputs.tensors[output], .begin = offset, .data = data};
    struct stoker_checkpoint_load *load = NULL;
    int status = stk_foreign_runs(gathered.tensor, offset, offset + bytes, gather, &gathered);

    status = status < 0 ? stk_fail_memory(error, "ranges of a conversion")
                        : stoker_checkpoint_load_open(&load, plan->source, gathered.ranges,
                                                      gathered.count, error);
    do {
        if (status >= 0 && stk_background_job_is_stopping(plan->task->job)) {
            status = stk_fail(error, STOKER_ERROR_CLOSED, "the conversion was ended",
                              "run it again", "tensor '%.300s'", gathered.tensor->name);
        }
        status = status < 0 ? status : stoker_checkpoint_load_next(load, READ_WAIT_MS, NULL, error);
    } while (status == 1);
    stoker_checkpoint_load_close(load);
    stk_free(gathered.ranges);
    return status < 0 ? status : stk_task_account(plan->task, bytes, error);
}
