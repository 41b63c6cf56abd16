/* Chooses the inner loops for the processor: AVX2, then SSE2 or NEON, then plain C. */
#include "decode/pixel/pixel_kernels.h"

#include "decode/pixel/pixel_kernels_inner.h"

#if defined(__x86_64__)
#    include <cpuid.h>
#endif

/* AVX2 with an operating system that saves its registers, and F16C. */
static const struct stk_pixel_kernels *vector_kernels(void)
{
    unsigned int eax, ebx, ecx = 0, edx;

    if (!__builtin_cpu_supports("avx2") || !__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
        return NULL;
    }
    return ecx & bit_F16C ? &stk_pixel_kernels_avx2 : NULL;
}

const struct stk_pixel_kernels *stk_pixel_kernels_get(uint32_t vector)
{
    const struct stk_pixel_kernels *vectors = vector == STOKER_SIMD_NONE ? NULL : vector_kernels();

    if (vector == STOKER_SIMD_AUTO && !vectors) {
        vectors = stk_pixel_kernels_simd();
    }
    return vectors || vector == STOKER_SIMD_AVX2 ? vectors : &stk_pixel_kernels_scalar;
}
