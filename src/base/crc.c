/* CRCs by tables of eight bytes at a time, CRC32C by the processor's own instruction where there is
 * one. Polynomials are kept with their bits turned round, as the sums are. */
#include "base/crc.h"

#include <pthread.h>
#include <string.h>

#define POLY32 0x82f63b78u
#define POLY64 0x9a6c9329ac4bc9b5ull
#define STEPS 8u

static uint32_t table32[STEPS][256];
static uint64_t table64[STEPS][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t low = i;
        uint64_t high = i;

        for (int bit = 0; bit < 8; bit++) {
            low = (low >> 1) ^ (low & 1 ? POLY32 : 0);
            high = (high >> 1) ^ (high & 1 ? POLY64 : 0);
        }
        table32[0][i] = low;
        table64[0][i] = high;
    }
    for (uint32_t step = 1; step < STEPS; step++) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t low = table32[step - 1][i];
            uint64_t high = table64[step - 1][i];

            table32[step][i] = (low >> 8) ^ table32[0][low & 255];
            table64[step][i] = (high >> 8) ^ table64[0][high & 255];
        }
    }
}

static uint64_t word(const uint8_t *at)
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--) { /* compilers make one load of it */
        value = value << 8 | at[i];
    }
    return value;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *at,
                                                                 size_t bytes)
{
    uint64_t sum = crc;

    for (; bytes >= 8; at += 8, bytes -= 8) {
        sum = __builtin_ia32_crc32di(sum, word(at));
    }
    crc = (uint32_t)sum;
    for (; bytes > 0; at++, bytes--) {
        crc = __builtin_ia32_crc32qi(crc, *at);
    }
    return crc;
}
#endif

uint32_t stk_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    crc = ~crc;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) {
        return ~by_instruction(crc, at, bytes);
    }
#endif
    pthread_once(&once, make_tables);
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t next = word(at) ^ crc;

        crc = 0;
        for (uint32_t i = 0; i < 8; i++) {
            crc ^= table32[7 - i][next >> (8 * i) & 255];
        }
    }
    for (; bytes > 0; at++, bytes--) {
        crc = (crc >> 8) ^ table32[0][(crc ^ *at) & 255];
    }
    return ~crc;
}

uint64_t stk_crc64(uint64_t crc, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    pthread_once(&once, make_tables);
    crc = ~crc;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t next = word(at) ^ crc;

        crc = table64[7][next & 255] ^ table64[6][next >> 8 & 255] ^
              table64[5][next >> 16 & 255] ^ table64[4][next >> 24 & 255] ^
              table64[3][next >> 32 & 255] ^ table64[2][next >> 40 & 255] ^
              table64[1][next >> 48 & 255] ^ table64[0][next >> 56];
    }
    for (; bytes > 0; at++, bytes--) {
        crc = (crc >> 8) ^ table64[0][(crc ^ *at) & 255];
    }
    return ~crc;
}

/* a * b modulo the polynomial, over GF(2); the highest bit is x^0. */
static uint64_t times(uint64_t a, uint64_t b, uint32_t bits, uint64_t poly)
{
    uint64_t product = 0;

    for (uint64_t one = 1ull << (bits - 1); one != 0; one >>= 1) {
        if (a & one) {
            product ^= b;
        }
        b = (b >> 1) ^ (b & 1 ? poly : 0);
    }
    return product;
}

/* To append n bytes is to multiply by x^(8n): the first sum so moved, and the second added. What
 * the sums are turned by at their ends cancels out. */
static uint64_t join(uint64_t first, uint64_t second, uint64_t bytes, uint32_t bits, uint64_t poly)
{
    uint64_t power = 1ull << (bits - 1), square = power >> 8; /* x^0, x^8 */

    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1) {
            power = times(square, power, bits, poly);
        }
        square = times(square, square, bits, poly);
    }
    return times(power, first, bits, poly) ^ second;
}

uint32_t stk_crc32c_join(uint32_t first, uint32_t second, uint64_t bytes)
{
    return (uint32_t)join(first, second, bytes, 32, POLY32);
}

uint64_t stk_crc64_join(uint64_t first, uint64_t second, uint64_t bytes)
{
    return join(first, second, bytes, 64, POLY64);
}
