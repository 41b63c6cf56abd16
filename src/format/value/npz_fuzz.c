/* Fuzz: any bytes as an npz archive, its arrays unpacked within 1 MiB. The first byte chooses the
 * array's name. */
#include "format/value/value.h"

#define MEMORY_BYTES_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"", "arr_0", "a", "tokens.npy"};
    struct stk_view member = {data + 1, bytes - 1};
    struct stk_value value;
    struct stoker_error error = {0};
    struct stk_value_shape shape;

    if (bytes == 0) {
        return 0;
    }
    if (stk_value_open(&value, STK_VALUE_NPZ, member, names[data[0] % 4], MEMORY_BYTES_MAX,
                       &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    STK_ASSERT(stk_value_get_shape(&value, &shape, &error) == 0 && shape.count <= MEMORY_BYTES_MAX);
    stk_value_close(&value);
    return 0;
}
