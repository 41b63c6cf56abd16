/* Fuzz target of value_tree_flat.c: any bytes as the flat form of a document that a decode helper
 * sends: unpacked, and read by some paths as a number, text and array. */
#include "base/mem.h"
#include "format/value/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const paths[] = {"", "a", "a.0", "*", "a.*.b", "*.*", "0.1", "a..b"};
    struct stk_view packed = {data, bytes}, text;
    struct stoker_error error = {0};
    struct stk_value value, part;
    struct stk_value_shape shape;
    int64_t integer;
    double real;
    uint8_t *out;

    if (stk_value_deserialize(&value, STK_VALUE_JSON, packed, packed, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (size_t i = 0; i < STK_COUNT(paths); i++) {
        if (stk_value_find(&value, paths[i], &part, &error) < 0) {
            continue;
        }
        stk_value_int(&part, &integer, &error);
        stk_value_float(&part, &real, &error);
        stk_value_text(&part, &text, &error);
        out = stk_value_get_shape(&part, &shape, &error) == 0 ? stk_alloc(shape.count, 4) : NULL;
        if (out) {
            stk_value_copy(&part, &shape, STOKER_FLOAT32, out, &error);
        }
        stk_free(out);
    }
    stk_value_close(&value);
    return 0;
}
