/* Opens a file of torch.save() as a checkpoint. */
#include "base/mem.h"
#include "checkpoint/foreign/foreign_private.h"
#include "engine/engine.h"

#include <string.h>

struct opening {
    struct stk_foreign *foreign;
    const struct stk_checkpoint_place *place;
    struct stk_file *file;
    uint64_t capacity;
    const struct stk_zip_archive_member **members; /* owned: of each tensor */
    uint64_t members_capacity;
};

static int add_tensor(void *context, const char *name, const struct stk_torch_array *array,
                      struct stoker_error *error)
{
    struct opening *opening = context;
    struct stk_foreign_form form = {name, array->dtype, array->shape, array->dimension_count, 1};
    struct stk_foreign_tensor *tensor =
        stk_foreign_add_tensor(opening->foreign, &opening->capacity, &form);

    if (tensor && opening->members_capacity < opening->capacity) {
        void *grown = stk_realloc(opening->members, opening->members_capacity, opening->capacity,
                                  sizeof(void *));

        opening->members = grown ? grown : opening->members;
        opening->members_capacity = grown ? opening->capacity : opening->members_capacity;
    }
    if (!tensor || opening->members_capacity < opening->capacity) {
        return stk_fail_memory(error, "tensors of a checkpoint");
    }
    stk_foreign_set_piece(tensor, 0,
                          &(struct stk_foreign_piece){.offset = array->first,
                                                      .sizes = array->shape,
                                                      .strides = array->strides});
    opening->members[opening->foreign->count - 1] = array->member;
    return 0;
}

/* The header of a member has the offset of its bytes: one read each, many at a time. */
static int locate_one(void *context, uint64_t index, struct stoker_error *error)
{
    struct opening *opening = context;
    struct stk_foreign_source source = {.io = opening->place->io,
                                        .file = opening->file,
                                        .path = opening->place->root,
                                        .bytes = opening->foreign->files[0].bytes};
    uint64_t offset = 0;
    int status = stk_zip_archive_locate(&source, opening->members[index], &offset, error);

    opening->foreign->tensors[index].pieces[0].offset += offset;
    stk_foreign_source_deinit(&source);
    if (status < 0) {
        stk_error_set_location(error, opening->place->root, STOKER_NO_OFFSET,
                               opening->foreign->tensors[index].name);
    }
    return status;
}

static int read_tree(struct opening *opening, const struct stk_torch_file *file,
                     struct stoker_error *error)
{
    struct stk_json_text tree = {0}, values = {0};
    struct stk_torch_walk *walk = stk_alloc(1, sizeof *walk);
    const struct stk_pickle_value *root = stk_pickle_at(&file->pickle, file->pickle.root);
    int status = walk ? 0 : stk_fail_memory(error, "tree of a checkpoint");

    if (status == 0) {
        *walk = (struct stk_torch_walk){.file = file,
                                        .tree = &tree,
                                        .values = &values,
                                        .tensor = add_tensor,
                                        .context = opening,
                                        .error = error};
        stk_json_text_print(&values, "{");
        status = stk_torch_walk(walk, root);
        stk_json_text_print(&values, "}");
    }
    if (status == 0 && (tree.failed || values.failed)) {
        status = stk_fail_memory(error, "tree of a checkpoint");
    }
    stk_free(walk);
    if (status < 0) {
        stk_json_text_deinit(&tree);
        stk_json_text_deinit(&values);
        return status;
    }
    opening->foreign->tree = tree.text;
    opening->foreign->values = values.text;
    return 0;
}

int stk_foreign_open_torch(struct stk_foreign *foreign, struct stoker_engine *engine,
                           const struct stk_checkpoint_place *place, struct stoker_error *error)
{
    struct opening opening = {.foreign = foreign, .place = place};
    struct stk_foreign_source source = {.io = place->io, .path = place->root};
    struct stk_torch_file file = {0};
    struct stk_stat stat = {0};
    uint32_t capacity = 0;
    int status = stk_io_open_file(place->io, place->root, &source.file, error);

    if (status < 0) {
        return status;
    }
    opening.file = source.file;
    status = stk_io_stat_file(source.file, &stat, error);
    source.bytes = stat.bytes;
    status = status < 0 ? status : stk_torch_open(&file, &source, error);
    if (status == 0 && stk_foreign_add_file(foreign, &capacity, "", stat.bytes) == UINT32_MAX) {
        status = stk_fail_memory(error, "'%.400s'", place->root);
    }
    status = status < 0 ? status : read_tree(&opening, &file, error);
    status = status < 0 ? status : stk_foreign_check_names(foreign, error);
    status = status < 0 ? status
                        : stk_engine_parallel(engine, foreign->count, locate_one, &opening, error);
    if (status < 0) {
        stk_error_set_location(error, place->root, STOKER_NO_OFFSET, NULL);
    }
    stk_torch_deinit(&file);
    stk_foreign_source_deinit(&source);
    stk_io_close_file(opening.file);
    stk_free(opening.members);
    return status;
}
