/* base/crypto/digest.h: SHA-256, SHA-1 and MD5, hexadecimal digits and base64.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_CRYPTO_DIGEST_H
#define BASE_CRYPTO_DIGEST_H

#include "base/base.h"

/* SHA-256 (FIPS 180-4), by libcrypto: it uses the processor's own instructions. */
struct stk_sha256 {
    uint64_t context[14]; /* a SHA256_CTX */
};

void stk_sha256_init(struct stk_sha256 *sha);
void stk_sha256_add(struct stk_sha256 *sha, const void *data, size_t bytes);
void stk_sha256_done(struct stk_sha256 *sha, uint8_t digest_out[32]);

/* SHA-1 (FIPS 180-4): names of files in git (Hugging Face), checksums of some object stores. */
struct stk_sha1 {
    uint64_t context[12]; /* a SHA_CTX */
};

void stk_sha1_init(struct stk_sha1 *sha);
void stk_sha1_add(struct stk_sha1 *sha, const void *data, size_t bytes);
void stk_sha1_done(struct stk_sha1 *sha, uint8_t digest_out[20]);

/* MD5 (RFC 1321): object stores use it to detect damage. */
struct stk_md5 {
    uint64_t context[12]; /* an MD5_CTX */
};

void stk_md5_init(struct stk_md5 *md5);
void stk_md5_add(struct stk_md5 *md5, const void *data, size_t bytes);
void stk_md5_done(struct stk_md5 *md5, uint8_t digest_out[16]);

/* Writes lower-case hexadecimal digits; text_out has 2 * bytes + 1 bytes. */
void stk_hex(const uint8_t *data, size_t bytes, char *text_out);
/* Reads `count` bytes from exactly 2 * count lower-case digits. Returns false if the text is
 * anything else. */
bool stk_hex_decode(const char *text, uint8_t *bytes, size_t count);
/* The value of a hexadecimal digit in lower or upper case; -1 of any other character. */
int stk_hex_digit(char digit);

/* Digests of bytes in one call; base64 of at most 64 bytes. */
void stk_md5(const void *data, size_t bytes, uint8_t digest_out[16]);
void stk_sha1(const void *data, size_t bytes, uint8_t digest_out[20]);
#define STK_BASE64_BYTES 92u
void stk_base64(const uint8_t *data, size_t bytes, char text_out[STK_BASE64_BYTES]);
/* Decodes base64 of exactly `bytes` bytes, with padding. Returns false if the text is anything
 * else. */
bool stk_base64_decode(struct stk_view text, uint8_t *data_out, size_t bytes);

#endif
