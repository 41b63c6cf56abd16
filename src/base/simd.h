/* base/simd.h: operations on vectors of 16 bytes that SSE2 and NEON both have, for the files with
 * SIMD kernels.
 *
 * The same source serves both: each function gives the same bits on both, wrapping or saturating as
 * its name says. Lane 0 is at the lowest address. STK_SIMD is the name of the instruction set; it
 * is not defined if there is none. Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_SIMD_H
#define BASE_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

#if defined(__SSE2__)

#    include <emmintrin.h>

#    define STK_SIMD "sse2"

typedef __m128i v128;

INLINE v128 v_load(const void *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

INLINE void v_store(void *to, v128 a)
{
    _mm_storeu_si128((__m128i *)to, a);
}

/* 8 bytes, the others zero. */
INLINE v128 v_load_half(const void *from)
{
    return _mm_loadl_epi64((const __m128i *)from);
}

INLINE void v_store_half(void *to, v128 a)
{
    _mm_storel_epi64((__m128i *)to, a);
}

INLINE v128 v_all8(int value)
{
    return _mm_set1_epi8((char)value);
}

INLINE v128 v_all16(int value)
{
    return _mm_set1_epi16((short)value);
}

INLINE v128 v_all32(int32_t value)
{
    return _mm_set1_epi32(value);
}

#    define v_or _mm_or_si128
#    define v_and _mm_and_si128
#    define v_add8 _mm_add_epi8
#    define v_add16 _mm_add_epi16
#    define v_sub16 _mm_sub_epi16
#    define v_add32 _mm_add_epi32
#    define v_sub32 _mm_sub_epi32
#    define v_multiply16 _mm_mullo_epi16      /* the lower halves of the products */
#    define v_multiply_high16 _mm_mulhi_epi16 /* the upper ones */
#    define v_dot _mm_madd_epi16              /* 4 sums of 2 products of 16 signed bits */
#    define v_mix_low8 _mm_unpacklo_epi8      /* a0 b0 a1 b1 ... of the lower halves */
#    define v_mix_high8 _mm_unpackhi_epi8
#    define v_mix_low16 _mm_unpacklo_epi16
#    define v_mix_high16 _mm_unpackhi_epi16
#    define v_narrow32 _mm_packs_epi32   /* to signed 16 bits, a's before b's, saturated */
#    define v_narrow16 _mm_packs_epi16   /* to signed bytes */
#    define v_narrow_u8 _mm_packus_epi16 /* to bytes */

/* Shifts by as many bits in all lanes; right: of signed numbers, or with u: of unsigned ones. */
#    define v_left16(a, bits) _mm_sll_epi16(a, _mm_cvtsi32_si128((int)(bits)))
#    define v_right16(a, bits) _mm_sra_epi16(a, _mm_cvtsi32_si128((int)(bits)))
#    define v_right_u16(a, bits) _mm_srl_epi16(a, _mm_cvtsi32_si128((int)(bits)))
#    define v_right32(a, bits) _mm_sra_epi32(a, _mm_cvtsi32_si128((int)(bits)))
#    define v_right_u32(a, bits) _mm_srl_epi32(a, _mm_cvtsi32_si128((int)(bits)))

/* The upper half as the lower one; the new upper half is undefined. */
INLINE v128 v_high(v128 a)
{
    return _mm_unpackhi_epi64(a, a);
}

INLINE bool v_is_zero(v128 a)
{
    return _mm_movemask_epi8(_mm_cmpeq_epi8(a, _mm_setzero_si128())) == 0xffff;
}

/* The first byte that is `value`; 16: none is. */
INLINE uint32_t v_find8(v128 a, int value)
{
    uint32_t found = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(a, v_all8(value)));

    return found ? (uint32_t)__builtin_ctz(found) : 16;
}

/* 4 numbers of 32 bits, times scale, rounded, plus bias, rounded. */
INLINE void v_store_scaled(float *to, v128 a, float scale, float bias)
{
    __m128 value = _mm_mul_ps(_mm_cvtepi32_ps(a), _mm_set1_ps(scale));

    _mm_storeu_ps(to, _mm_add_ps(value, _mm_set1_ps(bias)));
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#    include <arm_neon.h>

#    define STK_SIMD "neon"

typedef uint8x16_t v128;

#    define V_S16(a) vreinterpretq_s16_u8(a)
#    define V_S32(a) vreinterpretq_s32_u8(a)
#    define V_U16(a) vreinterpretq_u16_u8(a)
#    define V_U32(a) vreinterpretq_u32_u8(a)
#    define V_FROM_S16(a) vreinterpretq_u8_s16(a)
#    define V_FROM_S32(a) vreinterpretq_u8_s32(a)
#    define V_FROM_U16(a) vreinterpretq_u8_u16(a)
#    define V_FROM_U32(a) vreinterpretq_u8_u32(a)

INLINE v128 v_load(const void *from)
{
    return vld1q_u8(from);
}

INLINE void v_store(void *to, v128 a)
{
    vst1q_u8(to, a);
}

INLINE v128 v_load_half(const void *from)
{
    return vcombine_u8(vld1_u8(from), vdup_n_u8(0));
}

INLINE void v_store_half(void *to, v128 a)
{
    vst1_u8(to, vget_low_u8(a));
}

INLINE v128 v_all8(int value)
{
    return vdupq_n_u8((uint8_t)value);
}

INLINE v128 v_all16(int value)
{
    return V_FROM_S16(vdupq_n_s16((int16_t)value));
}

INLINE v128 v_all32(int32_t value)
{
    return V_FROM_S32(vdupq_n_s32(value));
}

#    define v_or(a, b) vorrq_u8(a, b)
#    define v_and(a, b) vandq_u8(a, b)
#    define v_add8(a, b) vaddq_u8(a, b)
#    define v_add16(a, b) V_FROM_U16(vaddq_u16(V_U16(a), V_U16(b)))
#    define v_sub16(a, b) V_FROM_U16(vsubq_u16(V_U16(a), V_U16(b)))
#    define v_add32(a, b) V_FROM_U32(vaddq_u32(V_U32(a), V_U32(b)))
#    define v_sub32(a, b) V_FROM_U32(vsubq_u32(V_U32(a), V_U32(b)))
#    define v_multiply16(a, b) V_FROM_U16(vmulq_u16(V_U16(a), V_U16(b)))
#    define v_mix_low8(a, b) vzip1q_u8(a, b)
#    define v_mix_high8(a, b) vzip2q_u8(a, b)
#    define v_mix_low16(a, b) V_FROM_U16(vzip1q_u16(V_U16(a), V_U16(b)))
#    define v_mix_high16(a, b) V_FROM_U16(vzip2q_u16(V_U16(a), V_U16(b)))

INLINE v128 v_multiply_high16(v128 a, v128 b)
{
    int32x4_t low = vmull_s16(vget_low_s16(V_S16(a)), vget_low_s16(V_S16(b)));
    int32x4_t high = vmull_high_s16(V_S16(a), V_S16(b));

    return V_FROM_S16(vshrn_high_n_s32(vshrn_n_s32(low, 16), high, 16));
}

INLINE v128 v_dot(v128 a, v128 b)
{
    int32x4_t low = vmull_s16(vget_low_s16(V_S16(a)), vget_low_s16(V_S16(b)));
    int32x4_t high = vmull_high_s16(V_S16(a), V_S16(b));

    return V_FROM_S32(vpaddq_s32(low, high));
}

INLINE v128 v_narrow32(v128 a, v128 b)
{
    return V_FROM_S16(vqmovn_high_s32(vqmovn_s32(V_S32(a)), V_S32(b)));
}

INLINE v128 v_narrow16(v128 a, v128 b)
{
    return vreinterpretq_u8_s8(vqmovn_high_s16(vqmovn_s16(V_S16(a)), V_S16(b)));
}

INLINE v128 v_narrow_u8(v128 a, v128 b)
{
    return vqmovun_high_s16(vqmovun_s16(V_S16(a)), V_S16(b));
}

#    define v_left16(a, bits) V_FROM_U16(vshlq_u16(V_U16(a), vdupq_n_s16((int16_t)(bits))))
#    define v_right16(a, bits)                                                                     \
        V_FROM_S16(vshlq_s16(V_S16(a), vdupq_n_s16((int16_t)-(int16_t)(bits))))
#    define v_right_u16(a, bits)                                                                   \
        V_FROM_U16(vshlq_u16(V_U16(a), vdupq_n_s16((int16_t)-(int16_t)(bits))))
#    define v_right32(a, bits)                                                                     \
        V_FROM_S32(vshlq_s32(V_S32(a), vdupq_n_s32((int32_t)-(int32_t)(bits))))
#    define v_right_u32(a, bits)                                                                   \
        V_FROM_U32(vshlq_u32(V_U32(a), vdupq_n_s32((int32_t)-(int32_t)(bits))))

INLINE v128 v_high(v128 a)
{
    return vextq_u8(a, a, 8);
}

INLINE bool v_is_zero(v128 a)
{
    return vmaxvq_u32(V_U32(a)) == 0;
}

INLINE uint32_t v_find8(v128 a, int value)
{
    uint16x8_t equal = V_U16(vceqq_u8(a, v_all8(value)));
    uint64_t found = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(equal, 4)), 0);

    return found ? (uint32_t)__builtin_ctzll(found) / 4 : 16; /* 4 bits for each byte */
}

INLINE void v_store_scaled(float *to, v128 a, float scale, float bias)
{
    float32x4_t value = vmulq_f32(vcvtq_f32_s32(V_S32(a)), vdupq_n_f32(scale));

    vst1q_f32(to, vaddq_f32(value, vdupq_n_f32(bias)));
}

#endif

#endif
