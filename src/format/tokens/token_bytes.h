/* format/tokens/token_bytes.h: reads little-endian numbers at any alignment; private to the room.
 * Owner: values. Threads: any.
 * Memory: none.
 * Bound: none. */
#ifndef FORMAT_TOKENS_TOKEN_BYTES_H
#define FORMAT_TOKENS_TOKEN_BYTES_H

#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are little endian");

static inline uint32_t stk_u32_at(const uint8_t *array, uint64_t index)
{
    uint32_t value;

    memcpy(&value, array + 4 * index, sizeof value);
    return value;
}

static inline uint64_t stk_u64_at(const uint8_t *array, uint64_t index)
{
    uint64_t value;

    memcpy(&value, array + 8 * index, sizeof value);
    return value;
}

#endif
