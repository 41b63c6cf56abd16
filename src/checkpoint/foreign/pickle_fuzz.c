/* Fuzz of pickle.c, pickle_globals.c and torch_tree.c: the input is a pickle. The items of an
 * accepted one are within the values, and its tree is written in bounded steps. */
#include "base/mem.h"
#include "checkpoint/foreign/foreign_private.h"

#include <string.h>

static int refuse(void *context, const char *name, const struct stk_torch_array *array,
                  struct stoker_error *error)
{
    (void)context;
    (void)name;
    (void)array;
    return stk_fail(error, STOKER_ERROR_FORMAT, "no archive", "none", "none");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_torch_file file = {0};
    struct stk_json_text tree = {0}, values = {0};
    struct stoker_error error = {0};
    struct stk_torch_walk walk = {
        .file = &file, .tree = &tree, .values = &values, .tensor = refuse, .error = &error};
    int status = stk_pickle_parse(&file.pickle, (struct stk_view){data, bytes}, &error);

    if (status == 0) {
        for (uint32_t i = 0; i < file.pickle.cell_count; i++) {
            STK_ASSERT(file.pickle.cells[i].value < file.pickle.value_count);
        }
        status = stk_torch_walk(&walk, stk_pickle_at(&file.pickle, file.pickle.root));
        STK_ASSERT(walk.path_bytes == strlen(walk.path));
    }
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
    }
    stk_json_text_deinit(&tree);
    stk_json_text_deinit(&values);
    stk_pickle_deinit(&file.pickle);
    return 0;
}
