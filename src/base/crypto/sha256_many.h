/* base/crypto/sha256_many.h: SHA-256 of many messages at once, faster than one after the other.
 *
 *   messages --16 lanes: AVX-512--.
 *            --4 lanes:  SHA-NI---+--> states after the blocks that all lanes have --libcrypto-->
 *            --8 lanes:  AVX2-----'    digests (rest, padding)
 *
 * A lane is a message in a vector register, or one of several interleaved messages. The processor
 * decides at run time which kernel runs. Messages of equal lengths are fastest.
 * Owner: the caller; messages are borrowed. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_CRYPTO_SHA256_MANY_H
#define BASE_CRYPTO_SHA256_MANY_H

#include "base/base.h"

#define STK_SHA256_BYTES 32u
#define STK_SHA256_LANES_MAX 16u

enum stk_sha256_kernel {
    STK_SHA256_AUTO = 0,
    STK_SHA256_PLAIN, /* libcrypto, one message after the other */
    STK_SHA256_NI,    /* x86 SHA instructions, 4 messages interleaved */
    STK_SHA256_AVX2,  /* 8 messages */
    STK_SHA256_AVX512 /* 16 messages */
};

struct stk_sha256_message {
    const uint8_t *data;
    size_t bytes;
    uint8_t *digest_out; /* of STK_SHA256_BYTES */
};

void stk_sha256_many(const struct stk_sha256_message *messages, size_t count);
/* The same with a given kernel: for tests and measurements. Returns false, and writes nothing, if
 * this processor does not have it. */
bool stk_sha256_many_with(uint32_t kernel, const struct stk_sha256_message *messages, size_t count);
/* The kernel that stk_sha256_many() uses for 16 messages or more. */
uint32_t stk_sha256_many_kernel(void);
/* SHA-256 of one message. */
void stk_sha256_one(const void *data, size_t bytes, uint8_t digest_out[STK_SHA256_BYTES]);

#endif
