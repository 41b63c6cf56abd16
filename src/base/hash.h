/* base/hash.h: keyed mixing for the order and augmentation, and digests for identity.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/base.h"

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014; constants by Stafford, mix 13):
 * a bijection of 64-bit words. */
static inline uint64_t stk_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return x;
}

/* A new key out of a key and a word: counter-based, so (seed, epoch, position, use) chains. */
static inline uint64_t stk_key(uint64_t key, uint64_t word)
{
    return stk_mix(stk_mix(key + 0x9e3779b97f4a7c15ULL) ^ (word * 0xd6e8feb86659fd93ULL + 1));
}

/* XXH3-64 (libxxhash): against damage, not against forgers. */
uint64_t stk_sum64(const void *data, size_t bytes);

/* The same over pieces: open -add-> ... -done-> (again from the start) -close. NULL: no memory. */
struct stk_sum;
struct stk_sum *stk_sum_open(void);
void stk_sum_add(struct stk_sum *sum, const void *data, size_t bytes);
uint64_t stk_sum_done(struct stk_sum *sum);
void stk_sum_close(struct stk_sum *sum); /* NULL is fine */

/* SHA-256 (FIPS 180-4), by libcrypto: it uses the processor's own instructions. */
struct stk_sha256 {
    uint64_t context[14]; /* a SHA256_CTX */
};

void stk_sha256_init(struct stk_sha256 *sha);
void stk_sha256_add(struct stk_sha256 *sha, const void *data, size_t bytes);
void stk_sha256_done(struct stk_sha256 *sha, uint8_t digest_out[32]);

/* SHA-1 (FIPS 180-4) likewise: what git names its files by, and some object stores sum by. */
struct stk_sha1 {
    uint64_t context[12]; /* a SHA_CTX */
};

void stk_sha1_init(struct stk_sha1 *sha);
void stk_sha1_add(struct stk_sha1 *sha, const void *data, size_t bytes);
void stk_sha1_done(struct stk_sha1 *sha, uint8_t digest_out[20]);

/* MD5 (RFC 1321) likewise, which object stores use against damage. */
struct stk_md5 {
    uint64_t context[12]; /* an MD5_CTX */
};

void stk_md5_init(struct stk_md5 *md5);
void stk_md5_add(struct stk_md5 *md5, const void *data, size_t bytes);
void stk_md5_done(struct stk_md5 *md5, uint8_t digest_out[16]);

/* In lower-case digits, text_out of 2 * bytes + 1. */
void stk_hex(const uint8_t *data, size_t bytes, char *text_out);

/* Of all at once; and base64 of at most 64 bytes. */
void stk_md5(const void *data, size_t bytes, uint8_t digest_out[16]);
void stk_sha1(const void *data, size_t bytes, uint8_t digest_out[20]);
#define STK_BASE64_BYTES 92u
void stk_base64(const uint8_t *data, size_t bytes, char text_out[STK_BASE64_BYTES]);

#endif
