/* Opens a folder of torch.distributed.checkpoint: each item of its files is a small archive. */
#include "base/mem.h"
#include "checkpoint/foreign/dcp_metadata.h"
#include "checkpoint/foreign/foreign_private.h"
#include "engine/engine.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_BYTES_MAX (64u << 20)

/* A chunk, and the piece that it becomes. */
struct job {
    const struct stk_dcp_item *item;
    uint64_t tensor;
    uint32_t piece;
};
/* A value that is no tensor, as texts. */
struct text {
    struct stk_json_text tree, values;
};
struct opening {
    struct stk_foreign *foreign;
    const struct stk_checkpoint_place *place;
    struct stk_dcp_metadata metadata;
    struct job *jobs; /* owned */
    uint64_t job_count, capacity;
    struct text *texts;   /* owned: of metadata.bytes */
    pthread_mutex_t lock; /* of foreign, while values are read */
};

/* A name of a view. Free with stk_free. */
static char *text_of(struct stk_view view)
{
    char *text = stk_alloc(view.bytes + 1, 1);

    if (text) {
        memcpy(text, view.data, view.bytes);
    }
    return text;
}

/* ---- files ---- */

static int by_file(const void *a, const void *b)
{
    const struct stk_dcp_item *x = *(struct stk_dcp_item *const *)a;
    const struct stk_dcp_item *y = *(struct stk_dcp_item *const *)b;
    int order = memcmp(x->file.data, y->file.data, stk_min(x->file.bytes, y->file.bytes));

    return order != 0 ? order : x->file.bytes < y->file.bytes ? -1 : x->file.bytes > y->file.bytes;
}

/* Numbers the files that items name. */
static int number_files(struct opening *opening, struct stoker_error *error)
{
    uint64_t count = opening->metadata.item_count;
    struct stk_dcp_item **items = stk_alloc(count + 1, sizeof *items);
    uint32_t capacity = 0, number = 0;
    int status = items ? 0 : stk_fail_memory(error, "files of a checkpoint");

    for (uint64_t i = 0; status == 0 && i < count; i++) {
        items[i] = &opening->metadata.items[i];
    }
    if (status == 0) {
        qsort(items, count, sizeof *items, by_file);
    }
    for (uint64_t i = 0; status == 0 && i < count; i++) {
        if (i == 0 || by_file(&items[i - 1], &items[i]) != 0) {
            char *name = text_of(items[i]->file);

            number = name && opening->foreign->file_count < STK_FOREIGN_FILES_MAX
                         ? stk_foreign_add_file(opening->foreign, &capacity, name, 0)
                         : UINT32_MAX;
            stk_free(name);
            if (number == UINT32_MAX) {
                status = stk_fail_memory(error, "files of a checkpoint");
            }
        }
        items[i]->number = number;
    }
    stk_free(items);
    return status;
}

static int stat_file(void *context, uint64_t index, struct stoker_error *error)
{
    struct opening *opening = context;
    char *path = stk_place_path(opening->place, NULL, opening->foreign->files[index].name);
    struct stk_stat stat = {0};
    int status = path ? stk_place_stat_now(opening->place, path, &stat, error)
                      : stk_fail_memory(error, "files of a checkpoint");

    if (stk_place_is_absent(status)) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "a file of the checkpoint is missing",
                          STK_FOREIGN_ADVICE, "'%.400s'", path);
        stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    }
    opening->foreign->files[index].bytes = stat.bytes;
    stk_free(path);
    return status;
}

/* ---- items ---- */

/* An open item. */
struct item {
    struct stk_foreign_source source;
    struct stk_torch_file file;
    char *path;
};

static void item_close(struct item *item)
{
    struct stk_file *file = item->source.file;

    stk_torch_deinit(&item->file);
    stk_foreign_source_deinit(&item->source);
    stk_io_close_file(file);
    stk_free(item->path);
}

static int item_open(struct opening *opening, const struct stk_dcp_item *from, struct item *item,
                     struct stoker_error *error)
{
    const struct stk_foreign_file *file = &opening->foreign->files[from->number];
    int status;

    *item = (struct item){.path = stk_place_path(opening->place, NULL, file->name)};
    if (!item->path) {
        return stk_fail_memory(error, "items of a checkpoint");
    }
    if (from->offset > file->bytes || from->bytes > file->bytes - from->offset) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "the file is shorter than the metadata says",
                        STK_FOREIGN_ADVICE, "it has %" PRIu64 " bytes, an item ends at %" PRIu64,
                        file->bytes, from->offset + from->bytes);
    }
    item->source = (struct stk_foreign_source){
        .io = opening->place->io, .path = item->path, .base = from->offset, .bytes = from->bytes};
    status = stk_io_open_file(opening->place->io, item->path, &item->source.file, error);
    return status < 0 ? status : stk_torch_open(&item->file, &item->source, error);
}

static int fail_item(const struct stk_dcp_item *from, const struct item *item, int status,
                     struct stoker_error *error)
{
    char *name = text_of(from->name);

    stk_error_set_location(error, item->path, STOKER_NO_OFFSET, name);
    stk_free(name);
    return status;
}

/* Reads the archive of a chunk, and places it. */
static int read_chunk(void *context, uint64_t index, struct stoker_error *error)
{
    struct opening *opening = context;
    const struct job *job = &opening->jobs[index];
    struct stk_foreign_tensor *tensor = &opening->foreign->tensors[job->tensor];
    struct stk_foreign_piece *piece = &tensor->pieces[job->piece];
    struct stk_torch_array *array = stk_alloc(1, sizeof *array);
    const struct stk_pickle_value *root;
    struct item item = {0};
    uint64_t offset = 0;
    bool same;
    int status = array ? item_open(opening, job->item, &item, error)
                       : stk_fail_memory(error, "items of a checkpoint");

    if (status == 0) {
        root = stk_pickle_at(&item.file.pickle, item.file.pickle.root);
        if (stk_pickle_is(&item.file.pickle, root, STK_PICKLE_REBUILD_PARAMETER)) {
            root = stk_pickle_item(&item.file.pickle,
                                   stk_pickle_at(&item.file.pickle, root->object.arguments), 0);
        }
        status = stk_pickle_is(&item.file.pickle, root, STK_PICKLE_REBUILD_TENSOR)
                     ? stk_torch_array(&item.file, root, tensor->name, array, error)
                     : stk_fail(error, STOKER_ERROR_FORMAT, "an item is no tensor",
                                STK_FOREIGN_ADVICE, "item");
    }
    if (status == 0) {
        same = strcmp(array->dtype, tensor->dtype) == 0 &&
               array->dimension_count == tensor->dimension_count;
        for (uint32_t i = 0; same && i < tensor->dimension_count; i++) {
            same = array->shape[i] == piece->sizes[i];
        }
        status = same ? stk_zip_archive_locate(&item.source, array->member, &offset, error)
                      : stk_fail(error, STOKER_ERROR_CORRUPT,
                                 "a chunk has another shape or dtype than the metadata says",
                                 STK_FOREIGN_ADVICE, "item");
    }
    if (status == 0) {
        stk_foreign_set_piece(
            tensor, job->piece,
            &(struct stk_foreign_piece){.file = job->item->number,
                                        .offset = job->item->offset + offset + array->first,
                                        .origin = piece->origin,
                                        .sizes = piece->sizes,
                                        .strides = array->strides});
    }
    status = status < 0 ? fail_item(job->item, &item, status, error) : 0;
    item_close(&item);
    stk_free(array);
    return status;
}

struct value {
    struct opening *opening;
    struct item *item;
    const struct stk_dcp_item *from;
};

/* A tensor inside a value that is no tensor. */
static int add_inner(void *context, const char *name, const struct stk_torch_array *array,
                     struct stoker_error *error)
{
    const struct value *value = context;
    struct opening *opening = value->opening;
    struct stk_foreign_form form = {name, array->dtype, array->shape, array->dimension_count, 1};
    struct stk_foreign_tensor *tensor;
    uint64_t offset = 0;
    int status = stk_zip_archive_locate(&value->item->source, array->member, &offset, error);

    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&opening->lock);
    tensor = stk_foreign_add_tensor(opening->foreign, &opening->capacity, &form);
    if (tensor) {
        stk_foreign_set_piece(
            tensor, 0,
            &(struct stk_foreign_piece){.file = value->from->number,
                                        .offset = value->from->offset + offset + array->first,
                                        .sizes = array->shape,
                                        .strides = array->strides});
    }
    pthread_mutex_unlock(&opening->lock);
    return tensor ? 0 : stk_fail_memory(error, "tensors of a checkpoint");
}

static int read_value(void *context, uint64_t index, struct stoker_error *error)
{
    struct opening *opening = context;
    struct stk_view name = opening->metadata.bytes[index];
    const struct stk_dcp_item *from = stk_dcp_find(&opening->metadata, name, NULL, 0);
    struct text *text = &opening->texts[index];
    struct stk_torch_walk *walk = stk_alloc(1, sizeof *walk);
    struct item item = {0};
    struct value value = {opening, &item, from};
    int status;

    if (!walk) {
        return stk_fail_memory(error, "items of a checkpoint");
    }
    if (!from || from->bytes > VALUE_BYTES_MAX) {
        status = stk_fail(error, from ? STOKER_ERROR_LIMIT : STOKER_ERROR_CORRUPT,
                          from ? "a value has more than 64 MiB" : "the metadata misses an item",
                          STK_FOREIGN_ADVICE, "'%.*s'", (int)stk_min(name.bytes, 300),
                          (const char *)name.data);
        stk_free(walk);
        return status;
    }
    status = item_open(opening, from, &item, error);
    if (status == 0) {
        *walk = (struct stk_torch_walk){.file = &item.file,
                                        .tree = &text->tree,
                                        .values = &text->values,
                                        .tensor = add_inner,
                                        .context = &value,
                                        .path_bytes = name.bytes,
                                        .error = error};
        memcpy(walk->path, name.data, name.bytes); /* shorter than STK_DCP_NAME_BYTES */
        stk_json_text_print(&text->values, " ");   /* walk puts a comma after the first value */
        status = stk_torch_walk(walk, stk_pickle_at(&item.file.pickle, item.file.pickle.root));
    }
    status = status < 0 ? fail_item(from, &item, status, error) : 0;
    item_close(&item);
    stk_free(walk);
    return status;
}

/* ---- tensors ---- */

static int plan_tensor(struct opening *opening, const struct stk_dcp_tensor *from,
                       struct stoker_error *error)
{
    const struct stk_pickle *pickle = &opening->metadata.pickle;
    uint64_t number = opening->foreign->count;
    char *name = text_of(from->name);
    struct stk_foreign_tensor *tensor = NULL;
    uint32_t cell = from->chunks->items.first;
    int status = 0;

    if (from->chunks->count > opening->metadata.item_count - opening->job_count) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "a tensor has more chunks than items",
                          STK_FOREIGN_ADVICE, "tensor '%.300s'", name ? name : "");
    } else if (name) {
        struct stk_foreign_form form = {name, from->dtype, from->shape, from->dimension_count,
                                        from->chunks->count};

        tensor = stk_foreign_add_tensor(opening->foreign, &opening->capacity, &form);
    }
    if (status == 0 && !tensor) {
        status = stk_fail_memory(error, "tensors of a checkpoint");
    }
    for (uint32_t i = 0; status == 0 && i < from->chunks->count; i++) {
        struct stk_dcp_chunk chunk;
        const struct stk_dcp_item *item = NULL;

        status = stk_dcp_chunk(&opening->metadata, from, &pickle->values[pickle->cells[cell].value],
                               &chunk, error);
        if (status == 0) {
            item =
                stk_dcp_find(&opening->metadata, from->name, chunk.origin, from->dimension_count);
            status = item ? 0
                          : stk_fail(error, STOKER_ERROR_CORRUPT, "the metadata misses a chunk",
                                     STK_FOREIGN_ADVICE, "tensor '%.300s'", name);
        }
        if (status == 0) {
            stk_foreign_set_piece(tensor, i,
                                  &(struct stk_foreign_piece){.file = item->number,
                                                              .origin = chunk.origin,
                                                              .sizes = chunk.sizes,
                                                              .strides = chunk.sizes});
            opening->jobs[opening->job_count++] = (struct job){item, number, i};
        }
        cell = pickle->cells[cell].next;
    }
    stk_free(name);
    return status;
}

/* ---- the tree ---- */

/* The node of an entry. */
static int print_entry(void *context, uint64_t number, struct stk_json_text *json,
                       struct stoker_error *error)
{
    const struct opening *opening = context;
    const struct stk_dcp_metadata *metadata = &opening->metadata;
    const struct stk_json_text *text;
    int status;

    if (number < metadata->tensor_count) {
        stk_json_text_print(json, "{\"torch\":");
        status = stk_torch_print_text(json, metadata->tensors[number].name, error);
        stk_json_text_print(json, "}");
        return status;
    }
    text = &opening->texts[number - metadata->tensor_count].tree;
    stk_json_text_add(json, text->text, text->bytes);
    return 0;
}

/* A dict of all entries by name, where the planner noted no paths. */
static int print_flat(struct opening *opening, struct stk_json_text *tree,
                      struct stoker_error *error)
{
    const struct stk_dcp_metadata *metadata = &opening->metadata;
    int status = 0;

    stk_json_text_print(tree, "{\"dict\":{");
    for (uint64_t i = 0; status == 0 && i < metadata->tensor_count + metadata->bytes_count; i++) {
        struct stk_view name = i < metadata->tensor_count
                                   ? metadata->tensors[i].name
                                   : metadata->bytes[i - metadata->tensor_count];

        stk_json_text_add(tree, ",", i > 0);
        status = stk_torch_print_text(tree, name, error);
        stk_json_text_print(tree, ":");
        status = status < 0 ? status : print_entry(opening, i, tree, error);
    }
    stk_json_text_print(tree, "}}");
    return status;
}

static int print_tree(struct opening *opening, struct stoker_error *error)
{
    struct stk_dcp_metadata *metadata = &opening->metadata;
    struct stk_dcp_printer printer = {print_entry, opening};
    struct stk_json_text tree = {0}, values = {0};
    struct stoker_error ignored = {0};
    int status = 0;

    if (!stk_dcp_print_tree(metadata, &printer, &tree, &ignored)) {
        stk_json_text_deinit(&tree);
        status = print_flat(opening, &tree, error);
    }
    stk_json_text_print(&values, "{");
    for (uint64_t i = 0; status == 0 && i < metadata->bytes_count; i++) {
        const struct stk_json_text *text = &opening->texts[i].values;

        if (text->bytes > 1) { /* after the space */
            stk_json_text_add(&values, ",", values.bytes > 1);
            stk_json_text_add(&values, text->text + 1, text->bytes - 1);
        }
    }
    stk_json_text_print(&values, "}");
    if (status == 0 && (tree.failed || values.failed)) {
        status = stk_fail_memory(error, "tree of a checkpoint");
    }
    if (status < 0) {
        stk_json_text_deinit(&tree);
        stk_json_text_deinit(&values);
        return status;
    }
    opening->foreign->tree = tree.text;
    opening->foreign->values = values.text;
    return 0;
}

static int read_items(struct opening *opening, struct stoker_engine *engine,
                      struct stoker_error *error)
{
    struct stk_foreign *foreign = opening->foreign;
    int status = stk_engine_parallel(engine, foreign->file_count, stat_file, opening, error);

    status = status < 0
                 ? status
                 : stk_engine_parallel(engine, opening->job_count, read_chunk, opening, error);
    for (uint64_t i = 0; status == 0 && i < foreign->count; i++) {
        status = stk_foreign_check_pieces(&foreign->tensors[i], error);
    }
    status = status < 0 ? status
                        : stk_engine_parallel(engine, opening->metadata.bytes_count, read_value,
                                              opening, error);
    status = status < 0 ? status : stk_foreign_check_names(foreign, error);
    return status < 0 ? status : print_tree(opening, error);
}

int stk_foreign_open_dcp(struct stk_foreign *foreign, struct stoker_engine *engine,
                         const struct stk_checkpoint_place *place, struct stoker_error *error)
{
    struct opening opening = {.foreign = foreign, .place = place};
    char *path = stk_place_path(place, NULL, STK_FOREIGN_DCP_NAME);
    uint8_t *data = NULL;
    size_t bytes = 0;
    int status = path ? stk_place_read(place, path, STK_PICKLE_BYTES_MAX, &data, &bytes, error)
                      : stk_fail_memory(error, "metadata of a checkpoint");

    pthread_mutex_init(&opening.lock, NULL);
    status = status < 0
                 ? status
                 : stk_dcp_metadata_parse(&opening.metadata, (struct stk_view){data, bytes}, error);
    if (status == 0) {
        opening.jobs = stk_alloc(opening.metadata.item_count + 1, sizeof *opening.jobs);
        opening.texts = stk_alloc(opening.metadata.bytes_count + 1, sizeof *opening.texts);
        status = opening.jobs && opening.texts ? number_files(&opening, error)
                                               : stk_fail_memory(error, "items of a checkpoint");
    }
    for (uint64_t i = 0; status == 0 && i < opening.metadata.tensor_count; i++) {
        status = plan_tensor(&opening, &opening.metadata.tensors[i], error);
    }
    status = status < 0 ? status : read_items(&opening, engine, error);
    if (status < 0) {
        stk_error_set_location(error, path ? path : place->root, STOKER_NO_OFFSET, NULL);
    }
    for (uint64_t i = 0; opening.texts && i < opening.metadata.bytes_count; i++) {
        stk_json_text_deinit(&opening.texts[i].tree);
        stk_json_text_deinit(&opening.texts[i].values);
    }
    stk_free(opening.texts);
    stk_free(opening.jobs);
    stk_dcp_metadata_deinit(&opening.metadata);
    pthread_mutex_destroy(&opening.lock);
    stk_free(data);
    stk_free(path);
    return status;
}
