/* Fuzz of zip_archive.c, torch_file.c and torch_tree.c: the input is a file of torch.save().
 * Accepted tensors are inside their members, and members inside the file, without an overlap. */
#include "base/mem.h"
#include "checkpoint/foreign/foreign_private.h"

static int check(void *context, const char *name, const struct stk_torch_array *array,
                 struct stoker_error *error)
{
    const struct stk_torch_file *file = context;
    uint64_t offset, last = 0;
    int status = stk_zip_archive_locate(file->source, array->member, &offset, error);

    STK_ASSERT(name[0]);
    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < array->dimension_count; i++) {
        if (array->shape[i] == 0) {
            return 0;
        }
        last += (array->shape[i] - 1) * array->strides[i];
    }
    STK_ASSERT(array->first + (last + 1) * array->element_bytes <= array->member->bytes);
    STK_ASSERT(offset + array->member->bytes <= file->source->bytes);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_foreign_source source = {.memory = data, .bytes = bytes, .path = "fuzz"};
    struct stk_torch_file file = {0};
    struct stk_json_text tree = {0}, values = {0};
    struct stoker_error error = {0};
    struct stk_torch_walk walk = {.file = &file,
                                  .tree = &tree,
                                  .values = &values,
                                  .tensor = check,
                                  .context = &file,
                                  .error = &error};
    int status = stk_torch_open(&file, &source, &error);

    if (status == 0) {
        for (uint64_t i = 0; i < file.archive.count; i++) {
            const struct stk_zip_archive_member *member = &file.archive.members[i];

            STK_ASSERT(member->header + member->bytes <= member->limit && member->limit <= bytes);
        }
        status = stk_torch_walk(&walk, stk_pickle_at(&file.pickle, file.pickle.root));
    }
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
    }
    stk_json_text_deinit(&tree);
    stk_json_text_deinit(&values);
    stk_torch_deinit(&file);
    return 0;
}
