/* A keyed bijection of [0, count): applies rounds of multiply, add and xor-shift to the smallest
 * number of bits that can store count - 1, and repeats them until the result is below count (cycle
 * walking).
 *
 * Each step of a round is a bijection of the bits: an odd factor has an inverse modulo 2^bits, and
 * x ^ (x >> shift) leaves the high bits unchanged. So the rounds are a bijection of [0, 2^bits). A
 * walk that starts at an index in range returns into the range, because the index itself is on the
 * cycle. The result is a bijection of [0, count) for every count. As count > 2^(bits - 1), a walk
 * takes fewer than two steps on average.
 *
 * The product moves low bits up and the shift moves high bits down. The first shift includes the
 * top bit, which a product cannot move. A small number of bits mixes slowly: the number of rounds
 * is the smallest for which chi-square tests over keys found no difference from fair draws, for
 * indexes, pairs of indexes and differences (permute_test.c). */
#include "order/order.h"

#include "base/random.h"

#define FEW_BITS 6 /* up to 64 numbers */
/* 8 rounds still showed a bias in pairs of 5 and of 16 numbers. */
#define FEW_BITS_ROUNDS STK_PERMUTE_ROUNDS_MAX
#define ROUNDS 6 /* 5 rounds still showed a bias in differences of 128 and of 256 */

#define GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio: keys of the rounds */

static inline void make_rounds(struct stk_permutation *permutation, uint64_t key, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        uint64_t word = stk_mix64(key + (uint64_t)(i + 1) * GOLDEN);
        permutation->factor[i] = word | 1;
        permutation->summand[i] = word >> 32 | word << 32;
    }
}

static inline uint64_t walk(const struct stk_permutation *permutation, uint64_t index, int bits,
                            int rounds)
{
    uint64_t mask = ~UINT64_C(0) >> (64 - bits);
    int shift = (bits + 1) / 2;

    do {
        index ^= index >> shift;
        for (int i = 0; i < rounds; i++) {
            index = (index * permutation->factor[i] + permutation->summand[i]) & mask;
            index ^= index >> shift;
        }
    } while (index >= permutation->count);
    return index;
}

/* Returns the inverse of an odd number modulo 2^64: number * number = 1 modulo 8, and each
 * iteration of Newton's method doubles the number of correct bits (3, 6, 12, 24, 48, 96). */
static uint64_t inverse_of(uint64_t number)
{
    uint64_t inverse = number;

    for (int i = 0; i < 5; i++) {
        inverse *= 2 - number * inverse;
    }
    return inverse;
}

static inline int bits_of(uint64_t count)
{
    return count > 1 ? 64 - __builtin_clzll(count - 1) : 0;
}

static int rounds_of(int bits)
{
    return bits <= FEW_BITS ? FEW_BITS_ROUNDS : ROUNDS;
}

void stk_permutation_init(struct stk_permutation *permutation, uint64_t key, uint64_t count)
{
    permutation->count = count;
    make_rounds(permutation, key, rounds_of(bits_of(count)));
}

uint64_t stk_permutation_apply(const struct stk_permutation *permutation, uint64_t index)
{
    int bits = bits_of(permutation->count);

    STK_ASSERT(index < permutation->count);
    if (bits == 0) {
        return 0;
    }
    /* The number of rounds is a constant in each call, so that the loops unroll. */
    return bits <= FEW_BITS ? walk(permutation, index, bits, FEW_BITS_ROUNDS)
                            : walk(permutation, index, bits, ROUNDS);
}

/* Computes the rounds of many independent values, one walk step each. */
static inline void step_all(const struct stk_permutation *permutation, uint64_t *values,
                            const uint16_t *which, uint32_t count, int bits, int rounds)
{
    uint64_t mask = ~UINT64_C(0) >> (64 - bits);
    int shift = (bits + 1) / 2;

    for (uint32_t k = 0; k < count; k++) {
        uint64_t value = values[which[k]];

        value ^= value >> shift;
        for (int i = 0; i < rounds; i++) {
            value = (value * permutation->factor[i] + permutation->summand[i]) & mask;
            value ^= value >> shift;
        }
        values[which[k]] = value;
    }
}

/* All values take a step, then those that are still out of range take another, and so on. So the
 * processor computes several values at once, and does not predict the length of a walk. */
void stk_permutation_apply_all(const struct stk_permutation *permutation, uint64_t *values,
                               uint32_t count)
{
    int bits = bits_of(permutation->count);
    uint16_t outside[STK_PERMUTE_STRIDE];
    uint32_t left = count;

    STK_ASSERT(count <= STK_PERMUTE_STRIDE);
    for (uint32_t i = 0; i < count; i++) {
        STK_ASSERT(values[i] < permutation->count);
        outside[i] = (uint16_t)i;
    }
    while (left > 0 && bits > 0) {
        uint32_t stepped = left;

        if (bits <= FEW_BITS) {
            step_all(permutation, values, outside, left, bits, FEW_BITS_ROUNDS);
        } else {
            step_all(permutation, values, outside, left, bits, ROUNDS);
        }
        left = 0;
        for (uint32_t k = 0; k < stepped; k++) {
            uint16_t i = outside[k];

            outside[left] = i;
            left += values[i] >= permutation->count;
        }
    }
}

/* Inverts each step, the last one first. x ^ (x >> shift) is its own inverse, because the shift is
 * at least half of the bits. The walk goes back along the same cycle. */
uint64_t stk_permutation_invert(const struct stk_permutation *permutation, uint64_t value)
{
    int bits = bits_of(permutation->count), rounds = rounds_of(bits);
    int shift = (bits + 1) / 2;
    uint64_t mask, factor[STK_PERMUTE_ROUNDS_MAX];

    STK_ASSERT(value < permutation->count);
    if (bits == 0) {
        return 0;
    }
    mask = ~UINT64_C(0) >> (64 - bits);
    for (int i = 0; i < rounds; i++) {
        factor[i] = inverse_of(permutation->factor[i]);
    }
    do {
        for (int i = rounds - 1; i >= 0; i--) {
            value ^= value >> shift;
            value = ((value - permutation->summand[i]) * factor[i]) & mask;
        }
        value ^= value >> shift;
    } while (value >= permutation->count);
    return value;
}

uint64_t stk_permute(uint64_t key, uint64_t index, uint64_t count)
{
    struct stk_permutation permutation;

    stk_permutation_init(&permutation, key, count);
    return stk_permutation_apply(&permutation, index);
}
