/* Fuzz of name_index.c: a look-up in any bytes reads no byte outside of them; an index that is made
 * of the names in the input finds each of them. */
#include "base/mem.h"
#include "checkpoint/layout/name_index.h"

#include <string.h>

#define NAMES_MAX 200u

/* Makes an index of the lines of the input, and looks for them. */
static void make(const uint8_t *data, size_t bytes)
{
    struct stk_named_tensor names[NAMES_MAX];
    uint64_t count = 0, index_bytes = 0, tensor;
    char *text = stk_alloc(bytes + 1, 1), *at = text;
    struct stk_name_index index;
    uint8_t *made = NULL;

    if (!text) {
        return;
    }
    memcpy(text, data, bytes);
    while (count < NAMES_MAX && at && (size_t)(at - text) < bytes) {
        char *line = strchr(at, '\n');

        names[count] = (struct stk_named_tensor){at, count};
        count += line ? line - at < 4096 : strlen(at) < 4096;
        if (line) {
            *line++ = '\0';
        }
        at = line;
    }
    STK_ASSERT(stk_name_index_make(&(struct stk_name_index_input){names, count, &count, 1}, &made,
                                   &index_bytes, NULL) == 0);
    STK_ASSERT(stk_name_index_parse(&index, made, index_bytes, NULL) == 0);
    for (uint64_t i = 0; i < count; i++) {
        STK_ASSERT(stk_name_index_find(&index, names[i].name, &tensor) &&
                   tensor <= names[i].tensor);
    }
    stk_name_index_deinit(&index);
    stk_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = stk_alloc(bytes + 1, 1);
    struct stk_name_index index;
    struct stoker_error error = {0};
    uint64_t tensor;
    int status;

    if (!copy) {
        return 0;
    }
    memcpy(copy, data, bytes);
    status = stk_name_index_parse(&index, copy, bytes, &error);
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
    } else {
        (void)stk_name_index_find(&index, "layers.0.weight", &tensor);
        (void)stk_name_index_find(&index, "", &tensor);
        stk_name_index_deinit(&index);
    }
    make(data, bytes);
    return 0;
}
