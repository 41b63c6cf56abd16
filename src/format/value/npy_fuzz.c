/* Fuzz target of npy.c: any bytes as an npy array. No crash; an accepted array is within its
 * bytes and is copied as every dtype. */
#include "base/mem.h"
#include "format/value/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view member = {data, bytes};
    struct stk_value value;
    struct stoker_error error = {0};
    struct stk_value_shape shape;
    uint8_t *out;

    if (stk_value_open(&value, STK_VALUE_NPY, member, NULL, 1u << 20, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    STK_ASSERT(stk_value_get_shape(&value, &shape, &error) == 0 && shape.count <= bytes);
    out = stk_alloc(shape.count, 8);
    for (uint32_t dtype = STOKER_UINT8; out && dtype <= STOKER_UINT64; dtype++) {
        if (dtype != STOKER_BYTES) {
            stk_value_copy(&value, &shape, dtype, out, &error);
        }
    }
    stk_free(out);
    stk_value_close(&value);
    return 0;
}
