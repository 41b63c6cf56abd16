/* Fuzz of convert_plan.c and torch_pickle.c: the input is the tree of a checkpoint of fixed
 * tensors, some of them parts of others. An accepted tree gives outputs whose pieces are whole
 * tensors of the source, and a pickle. */
#include "checkpoint/convert/convert.h"

#include "base/mem.h"

#include <string.h>

static char a[] = "a", w0[] = "w@0", w2[] = "w@2", x[] = "x";
static uint64_t lengths[] = {4, 2, 2, 4};
static struct stk_foreign_tensor tensors[] = {
    {a, "F32", &lengths[0], 1, 4, 0, 16, NULL, NULL},
    {w0, "F32", &lengths[1], 1, 4, 0, 8, NULL, NULL},
    {w2, "F32", &lengths[2], 1, 4, 0, 8, NULL, NULL},
    {x, "I64", &lengths[3], 1, 8, 0, 32, NULL, NULL},
};
static struct stk_named_tensor names[] = {{"a", 0}, {"w@0", 1}, {"w@2", 2}, {"x", 3}};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[] = "model.pt", *tree = stk_alloc(bytes + 1, 1);
    struct stk_checkpoint_file file = {.path = path};
    struct stoker_checkpoint source = {
        .path = path,
        .foreign = {.kind = "torch", .tensors = tensors, .count = STK_COUNT(tensors), .tree = tree},
        .files = &file,
        .file_count = 1,
        .tensor_count = STK_COUNT(tensors),
        .names = names};
    struct stk_convert_plan plan = {0};
    struct stk_json_text pickle = {0};
    struct stoker_error error = {0};
    int status;

    if (bytes > 0) {
        memcpy(tree, data, bytes);
    }
    tree[bytes] = '\0';
    status = stk_convert_plan(&plan, &source, &error);
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
    }
    for (uint64_t i = 0; status == 0 && i < plan.outputs.count; i++) {
        const struct stk_foreign_tensor *output = &plan.outputs.tensors[i];

        for (uint32_t k = 0; k < output->piece_count; k++) {
            STK_ASSERT(output->pieces[k].file < STK_COUNT(tensors));
        }
        STK_ASSERT(output->bytes <= 32);
    }
    if (status == 0) {
        (void)stk_convert_pickle(&plan, &pickle, &error);
    }
    stk_json_text_deinit(&pickle);
    stk_convert_plan_deinit(&plan);
    stk_free(tree);
    return 0;
}
