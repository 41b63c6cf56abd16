/* Tokens as they are stored -> int32 or int64, as embeddings and losses want them. */
#include "format/tokens/tokens.h"

#include "format/tokens/token_widen_inner.h"

bool stk_token_widen_scalar(const struct stk_token_array *run, uint64_t first, uint64_t count,
                            uint32_t dtype, void *out)
{
    return widen(run, first, count, dtype, out);
}

bool stk_token_widen(const struct stk_token_array *run, uint64_t first, uint64_t count,
                     uint32_t dtype, void *out)
{
    STK_ASSERT(first <= run->count && count <= run->count - first);
    STK_ASSERT(dtype == STOKER_INT32 || dtype == STOKER_INT64);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        return stk_token_widen_avx2(run, first, count, dtype, out);
    }
#endif
    return stk_token_widen_scalar(run, first, count, dtype, out);
}
