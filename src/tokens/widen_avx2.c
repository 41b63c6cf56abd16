/* Widening, compiled for AVX2: the loops are those of widen.c. */
#include "tokens/widen_inner.h"

bool stk_tokens_widen_avx2(const struct stk_token_run *run, uint64_t first, uint64_t count,
                           uint32_t dtype, void *out)
{
    return widen(run, first, count, dtype, out);
}
