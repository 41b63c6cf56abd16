/* format/tokens/token_widen_inner.h: the loops that widen tokens to int32 or int64. They are
 * compiled twice, for any processor and for AVX2, where the compiler vectorizes them: 4 tokens per
 * instruction. Private to the room.
 *
 * A token that does not fit changes its value, or becomes negative from an unsigned one. The loop
 * collects that without a branch; the compiler removes it where it cannot happen.
 * Owner: values. Threads: any.
 * Memory: none.
 * Bound: none. */
#ifndef FORMAT_TOKENS_TOKEN_WIDEN_INNER_H
#define FORMAT_TOKENS_TOKEN_WIDEN_INNER_H

#include "format/tokens/tokens.h"

#include <string.h>

/* out[i] = data[i], of type FROM, as TO. Sets *fits_out: all tokens fit. UNSIGNED: 1 if FROM is
 * unsigned. */
#define WIDEN(NAME, FROM, UNSIGNED, TO)                                                            \
    static inline void NAME(const uint8_t *data, uint64_t count, TO *out, bool *fits_out)          \
    {                                                                                              \
        TO bad = 0;                                                                                \
                                                                                                   \
        for (uint64_t i = 0; i < count; i++) {                                                     \
            FROM from;                                                                             \
            TO to;                                                                                 \
                                                                                                   \
            memcpy(&from, data + i * sizeof from, sizeof from);                                    \
            to = (TO)from;                                                                         \
            bad |= ((FROM)to != from) | ((UNSIGNED) & (to < 0));                                   \
            out[i] = to;                                                                           \
        }                                                                                          \
        *fits_out = bad == 0;                                                                      \
    }

WIDEN(u8_to_32, uint8_t, 1, int32_t)
WIDEN(i8_to_32, int8_t, 0, int32_t)
WIDEN(u16_to_32, uint16_t, 1, int32_t)
WIDEN(i16_to_32, int16_t, 0, int32_t)
WIDEN(u32_to_32, uint32_t, 1, int32_t)
WIDEN(i32_to_32, int32_t, 0, int32_t)
WIDEN(u64_to_32, uint64_t, 1, int32_t)
WIDEN(i64_to_32, int64_t, 0, int32_t)
WIDEN(u8_to_64, uint8_t, 1, int64_t)
WIDEN(i8_to_64, int8_t, 0, int64_t)
WIDEN(u16_to_64, uint16_t, 1, int64_t)
WIDEN(i16_to_64, int16_t, 0, int64_t)
WIDEN(u32_to_64, uint32_t, 1, int64_t)
WIDEN(i32_to_64, int32_t, 0, int64_t)
WIDEN(u64_to_64, uint64_t, 1, int64_t)
WIDEN(i64_to_64, int64_t, 0, int64_t)

static inline bool widen_to_32(uint32_t dtype, const uint8_t *data, uint64_t count, int32_t *out)
{
    bool fits = false;

    switch (dtype) {
    case STOKER_UINT8:
        u8_to_32(data, count, out, &fits);
        break;
    case STOKER_INT8:
        i8_to_32(data, count, out, &fits);
        break;
    case STOKER_UINT16:
        u16_to_32(data, count, out, &fits);
        break;
    case STOKER_INT16:
        i16_to_32(data, count, out, &fits);
        break;
    case STOKER_UINT32:
        u32_to_32(data, count, out, &fits);
        break;
    case STOKER_INT32:
        i32_to_32(data, count, out, &fits);
        break;
    case STOKER_UINT64:
        u64_to_32(data, count, out, &fits);
        break;
    case STOKER_INT64:
        i64_to_32(data, count, out, &fits);
        break;
    default: /* parsers return no other dtype */
        break;
    }
    return fits;
}

static inline bool widen_to_64(uint32_t dtype, const uint8_t *data, uint64_t count, int64_t *out)
{
    bool fits = false;

    switch (dtype) {
    case STOKER_UINT8:
        u8_to_64(data, count, out, &fits);
        break;
    case STOKER_INT8:
        i8_to_64(data, count, out, &fits);
        break;
    case STOKER_UINT16:
        u16_to_64(data, count, out, &fits);
        break;
    case STOKER_INT16:
        i16_to_64(data, count, out, &fits);
        break;
    case STOKER_UINT32:
        u32_to_64(data, count, out, &fits);
        break;
    case STOKER_INT32:
        i32_to_64(data, count, out, &fits);
        break;
    case STOKER_UINT64:
        u64_to_64(data, count, out, &fits);
        break;
    case STOKER_INT64:
        i64_to_64(data, count, out, &fits);
        break;
    default: /* parsers return no other dtype */
        break;
    }
    return fits;
}

static inline bool widen(const struct stk_token_array *run, uint64_t first, uint64_t count,
                         uint32_t dtype, void *out)
{
    const uint8_t *data = run->data + first * stk_token_bytes(run->dtype);

    return dtype == STOKER_INT32 ? widen_to_32(run->dtype, data, count, out)
                                 : widen_to_64(run->dtype, data, count, out);
}

/* In token_widen_avx2.c. */
bool stk_token_widen_avx2(const struct stk_token_array *run, uint64_t first, uint64_t count,
                          uint32_t dtype, void *out);

#endif
