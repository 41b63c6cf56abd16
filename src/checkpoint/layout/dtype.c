/* The dtypes of safetensors. */
#include "checkpoint/layout/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t bits;
} dtypes[] = {
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8},     {"I16", 16},        {"U16", 16}, {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},        {"F32", 32}, {"I64", 64},    {"U64", 64},
    {"F64", 64},        {"C64", 64},        {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
};

uint32_t stk_checkpoint_dtype_bits(const char *dtype, const char **name_out)
{
    for (size_t i = 0; i < STK_COUNT(dtypes); i++) {
        if (strcmp(dtype, dtypes[i].name) == 0) {
            if (name_out) {
                *name_out = dtypes[i].name;
            }
            return dtypes[i].bits;
        }
    }
    return 0;
}

bool stk_checkpoint_tensor_bytes(uint32_t bits, const uint64_t *shape, uint32_t dimension_count,
                                 uint64_t *bytes_out)
{
    uint64_t all = bits;

    for (uint32_t i = 0; i < dimension_count; i++) {
        if (!stk_multiply(all, shape[i], &all)) {
            return false;
        }
    }
    *bytes_out = all / 8;
    return all % 8 == 0;
}
