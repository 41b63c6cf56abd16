/* Widening, compiled for AVX2: the loops are those of token_widen.c. */
#include "format/tokens/token_widen_inner.h"

bool stk_token_widen_avx2(const struct stk_token_array *run, uint64_t first, uint64_t count,
                          uint32_t dtype, void *out)
{
    return widen(run, first, count, dtype, out);
}
