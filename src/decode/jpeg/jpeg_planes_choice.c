/* Chooses the sample kernels for the processor: AVX2, then SSE2 or NEON, then plain C. */
#include "decode/jpeg/jpeg_planes.h"

static const struct stk_jpeg_kernels *vector_kernels(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2")) {
        return &stk_jpeg_kernels_avx2;
    }
#endif
    return NULL;
}

const struct stk_jpeg_kernels *stk_jpeg_kernels_get(uint32_t vector)
{
    const struct stk_jpeg_kernels *found = NULL;

    if (vector != STOKER_SIMD_NONE) {
        found = vector_kernels();
    }
    if (vector == STOKER_SIMD_AUTO && !found) {
        found = stk_jpeg_kernels_simd();
    }
    return found || vector == STOKER_SIMD_AVX2 ? found : &stk_jpeg_kernels_scalar;
}
