/* CRCs by tables, eight bytes at a time; with carry-less multiplication by folding: 64 bytes at a
 * time are replaced by 64 congruent ones (Gopal, Ozturk and others, "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ", 2009), and a table does the rest. Polynomials are stored
 * bit-reversed, as the checksums are: the highest bit of a checksum is x^0. Checksums of 32 bits
 * are in the low half of a word. */
#include "base/crc.h"

#include <pthread.h>
#include <string.h>

#define STEPS 8u
#define FOLD_MIN 256u /* fewer bytes are quicker by tables */

enum { ZIP, CASTAGNOLI, NVME, KINDS };

struct kind {
    uint32_t bits;
    uint64_t poly;
    uint64_t table[STEPS][256];
    uint64_t fold[2][2]; /* over 64 and 16 bytes: of the first half of 16, and of the second */
};

static struct kind kinds[KINDS] = {[ZIP] = {.bits = 32, .poly = 0xedb88320u},
                                   [CASTAGNOLI] = {.bits = 32, .poly = 0x82f63b78u},
                                   [NVME] = {.bits = 64, .poly = 0x9a6c9329ac4bc9b5ull}};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool folds;

/* a * b modulo the polynomial, over GF(2). */
static uint64_t times(const struct kind *kind, uint64_t a, uint64_t b)
{
    uint64_t product = 0;

    for (uint64_t one = 1ull << (kind->bits - 1); one != 0; one >>= 1) {
        if (a & one) {
            product ^= b;
        }
        b = (b >> 1) ^ (b & 1 ? kind->poly : 0);
    }
    return product;
}

/* x^n. */
static uint64_t power(const struct kind *kind, uint64_t n)
{
    uint64_t result = 1ull << (kind->bits - 1), square = result >> 1;

    for (; n > 0; n >>= 1) {
        if (n & 1) {
            result = times(kind, square, result);
        }
        square = times(kind, square, square);
    }
    return result;
}

static void make(struct kind *kind)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint64_t sum = i;

        for (int bit = 0; bit < 8; bit++) {
            sum = (sum >> 1) ^ (sum & 1 ? kind->poly : 0);
        }
        kind->table[0][i] = sum;
    }
    for (uint32_t step = 1; step < STEPS; step++) {
        for (uint32_t i = 0; i < 256; i++) {
            uint64_t sum = kind->table[step - 1][i];

            kind->table[step][i] = (sum >> 8) ^ kind->table[0][sum & 255];
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t distance = i == 0 ? 512 : 128;

        /* The product of two bit-reversed words is bit-reversed, but one place too high. */
        kind->fold[i][0] = power(kind, distance + 63) << (64 - kind->bits);
        kind->fold[i][1] = power(kind, distance - 1) << (64 - kind->bits);
    }
}

static void make_all(void)
{
    for (uint32_t i = 0; i < KINDS; i++) {
        make(&kinds[i]);
    }
#if defined(__x86_64__)
    folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

bool stk_crc_is_fast(void)
{
    pthread_once(&once, make_all);
    return folds;
}

static uint64_t word(const uint8_t *at)
{
    uint64_t value = 0;

    for (int i = 7; i >= 0; i--) { /* compilers combine these into one load */
        value = value << 8 | at[i];
    }
    return value;
}

/* Computes the CRC without the inversion at both ends. */
static uint64_t by_table(const struct kind *kind, uint64_t sum, const uint8_t *at, size_t bytes)
{
    const uint64_t (*table)[256] = kind->table;

    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t next = word(at) ^ sum;

        sum = table[7][next & 255] ^ table[6][next >> 8 & 255] ^ table[5][next >> 16 & 255] ^
              table[4][next >> 24 & 255] ^ table[3][next >> 32 & 255] ^ table[2][next >> 40 & 255] ^
              table[1][next >> 48 & 255] ^ table[0][next >> 56];
    }
    for (; bytes > 0; at++, bytes--) {
        sum = (sum >> 8) ^ table[0][(sum ^ *at) & 255];
    }
    return sum;
}

#if defined(__x86_64__)
#    include <immintrin.h>

/* Shifts `from` by the distance that `by` stands for, and adds it to `to`. */
#    define FOLD(from, by, to)                                                                     \
        _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(from, by, 0x00),                          \
                                    _mm_clmulepi64_si128(from, by, 0x11)),                         \
                      to)

/* Folds all but the last bytes % 16; needs at least 64 bytes. */
__attribute__((target("pclmul,sse4.1"))) static uint64_t
by_folding(const struct kind *kind, uint64_t sum, const uint8_t *at, size_t bytes)
{
    const __m128i far_fold =
        _mm_set_epi64x((long long)kind->fold[0][1], (long long)kind->fold[0][0]);
    const __m128i near_fold =
        _mm_set_epi64x((long long)kind->fold[1][1], (long long)kind->fold[1][0]);
    const __m128i *from = (const __m128i *)(const void *)at;
    __m128i lane[4];
    uint8_t rest[16];

    for (int i = 0; i < 4; i++) {
        lane[i] = _mm_loadu_si128(from + i);
    }
    lane[0] = _mm_xor_si128(lane[0], _mm_set_epi64x(0, (long long)sum));
    for (bytes -= 64, from += 4; bytes >= 64; bytes -= 64, from += 4) {
        for (int i = 0; i < 4; i++) {
            lane[i] = FOLD(lane[i], far_fold, _mm_loadu_si128(from + i));
        }
    }
    for (int i = 1; i < 4; i++) {
        lane[i] = FOLD(lane[i - 1], near_fold, lane[i]);
    }
    for (; bytes >= 16; bytes -= 16, from++) {
        lane[3] = FOLD(lane[3], near_fold, _mm_loadu_si128(from));
    }
    _mm_storeu_si128((__m128i *)(void *)rest, lane[3]);
    return by_table(kind, 0, rest, sizeof rest);
}
#endif

static uint64_t sum_of(uint32_t which, uint64_t crc, const uint8_t *at, size_t bytes)
{
    const struct kind *kind = &kinds[which];
    uint64_t ones = UINT64_MAX >> (64 - kind->bits), sum = crc ^ ones;

    pthread_once(&once, make_all);
#if defined(__x86_64__)
    if (folds && bytes >= FOLD_MIN) {
        sum = by_folding(kind, sum, at, bytes);
        at += bytes - bytes % 16;
        bytes %= 16;
    }
#endif
    return by_table(kind, sum, at, bytes) ^ ones;
}

uint32_t stk_crc32(uint32_t crc, const void *data, size_t bytes)
{
    return (uint32_t)sum_of(ZIP, crc, data, bytes);
}

uint32_t stk_crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return (uint32_t)sum_of(CASTAGNOLI, crc, data, bytes);
}

uint64_t stk_crc64(uint64_t crc, const void *data, size_t bytes)
{
    return sum_of(NVME, crc, data, bytes);
}

/* Appending n bytes multiplies by x^(8n): shifts the first checksum and adds the second one. The
 * inversions at the ends cancel out. */
static uint64_t join(uint32_t which, uint64_t first, uint64_t second, uint64_t bytes)
{
    const struct kind *kind = &kinds[which];
    uint64_t moved = first, square = 1ull << (kind->bits - 1 - 8);

    for (; bytes > 0; bytes >>= 1) {
        if (bytes & 1) {
            moved = times(kind, square, moved);
        }
        square = times(kind, square, square);
    }
    return moved ^ second;
}

uint32_t stk_crc32_combine(uint32_t first, uint32_t second, uint64_t bytes)
{
    return (uint32_t)join(ZIP, first, second, bytes);
}

uint32_t stk_crc32c_combine(uint32_t first, uint32_t second, uint64_t bytes)
{
    return (uint32_t)join(CASTAGNOLI, first, second, bytes);
}

uint64_t stk_crc64_combine(uint64_t first, uint64_t second, uint64_t bytes)
{
    return join(NVME, first, second, bytes);
}
