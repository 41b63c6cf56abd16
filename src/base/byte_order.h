/* base/byte_order.h: numbers of a fixed byte order in files and messages.
 * Owner: values. Threads: any. Memory: none. Bound: none; the caller checks that the bytes
 * exist. */
#ifndef BASE_BYTE_ORDER_H
#define BASE_BYTE_ORDER_H

#include <stdint.h>

static inline uint32_t stk_big16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 8 | bytes[1];
}

static inline uint32_t stk_big32(const uint8_t *bytes)
{
    return stk_big16(bytes) << 16 | stk_big16(bytes + 2);
}

static inline uint32_t stk_little16(const uint8_t *bytes)
{
    return (uint32_t)bytes[1] << 8 | bytes[0];
}

static inline uint32_t stk_little32(const uint8_t *bytes)
{
    return stk_little16(bytes + 2) << 16 | stk_little16(bytes);
}

/* A number of at most 8 bytes. */
static inline uint64_t stk_little(const uint8_t *bytes, uint32_t count)
{
    uint64_t value = 0;

    for (uint32_t i = count; i-- > 0;) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static inline void stk_put_little32(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(value >> 8 * i);
    }
}

#endif
