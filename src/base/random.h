/* base/random.h: counter-based random numbers for the order and augmentation: the same key gives
 * the same number on every machine.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014; constants by Stafford, mix 13):
 * a bijection of 64-bit words. */
static inline uint64_t stk_mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return x;
}

/* Derives a key from a key and a word, so that (seed, epoch, position, use) can be chained. */
static inline uint64_t stk_random_key(uint64_t key, uint64_t word)
{
    return stk_mix64(stk_mix64(key + 0x9e3779b97f4a7c15ULL) ^ (word * 0xd6e8feb86659fd93ULL + 1));
}

#endif
