/* Digests by libcrypto, and text forms of bytes. */
#include "base/crypto/digest.h"

/* The calls below allocate nothing and cannot fail, unlike the EVP ones that replace them. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/evp.h>
#include <openssl/md5.h>
#include <openssl/sha.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct stk_sha256), "the context fits");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct stk_sha256), "the alignment fits");
_Static_assert(sizeof(SHA_CTX) <= sizeof(struct stk_sha1), "the context fits");
_Static_assert(_Alignof(SHA_CTX) <= _Alignof(struct stk_sha1), "the alignment fits");
_Static_assert(sizeof(MD5_CTX) <= sizeof(struct stk_md5), "the context fits");
_Static_assert(_Alignof(MD5_CTX) <= _Alignof(struct stk_md5), "the alignment fits");

void stk_sha256_init(struct stk_sha256 *sha)
{
    SHA256_Init((SHA256_CTX *)sha->context);
}

void stk_sha256_add(struct stk_sha256 *sha, const void *data, size_t bytes)
{
    SHA256_Update((SHA256_CTX *)sha->context, data, bytes);
}

void stk_sha256_done(struct stk_sha256 *sha, uint8_t digest_out[32])
{
    SHA256_Final(digest_out, (SHA256_CTX *)sha->context);
}

void stk_sha1_init(struct stk_sha1 *sha)
{
    SHA1_Init((SHA_CTX *)sha->context);
}

void stk_sha1_add(struct stk_sha1 *sha, const void *data, size_t bytes)
{
    SHA1_Update((SHA_CTX *)sha->context, data, bytes);
}

void stk_sha1_done(struct stk_sha1 *sha, uint8_t digest_out[20])
{
    SHA1_Final(digest_out, (SHA_CTX *)sha->context);
}

void stk_md5(const void *data, size_t bytes, uint8_t digest_out[16])
{
    MD5(data, bytes, digest_out);
}

void stk_sha1(const void *data, size_t bytes, uint8_t digest_out[20])
{
    SHA1(data, bytes, digest_out);
}

void stk_md5_init(struct stk_md5 *md5)
{
    MD5_Init((MD5_CTX *)md5->context);
}

void stk_md5_add(struct stk_md5 *md5, const void *data, size_t bytes)
{
    MD5_Update((MD5_CTX *)md5->context, data, bytes);
}

void stk_md5_done(struct stk_md5 *md5, uint8_t digest_out[16])
{
    MD5_Final(digest_out, (MD5_CTX *)md5->context);
}

void stk_base64(const uint8_t *data, size_t bytes, char text_out[STK_BASE64_BYTES])
{
    STK_ASSERT(bytes <= 64);
    EVP_EncodeBlock((unsigned char *)text_out, data, (int)bytes);
}

static uint32_t base64_digit(uint8_t c)
{
    return c >= 'A' && c <= 'Z'   ? (uint32_t)c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26u
           : c >= '0' && c <= '9' ? c - '0' + 52u
           : c == '+'             ? 62u
           : c == '/'             ? 63u
                                  : 64u;
}

bool stk_base64_decode(struct stk_view text, uint8_t *data, size_t bytes)
{
    size_t text_end = bytes / 3 * 4 + (bytes % 3 ? bytes % 3 + 1 : 0), padded = (bytes + 2) / 3 * 4;
    uint32_t bits = 0, count = 0;
    size_t used = 0;

    if (text.bytes != padded) {
        return false;
    }
    for (size_t i = 0; i < padded; i++) {
        uint32_t value = base64_digit(text.data[i]);

        if (i >= text_end ? text.data[i] != '=' : value > 63) {
            return false;
        }
        if (i < text_end) {
            bits = bits << 6 | value;
            count += 6;
        }
        if (count >= 8) {
            count -= 8;
            data[used++] = (uint8_t)(bits >> count);
            bits &= (1u << count) - 1;
        }
    }
    return bits == 0; /* the rest of the last digit */
}

void stk_hex(const uint8_t *data, size_t bytes, char *text_out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes; i++) {
        text_out[2 * i] = digits[data[i] >> 4];
        text_out[2 * i + 1] = digits[data[i] & 15];
    }
    text_out[2 * bytes] = '\0';
}

int stk_hex_digit(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

bool stk_hex_decode(const char *text, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < 2 * count; i++) {
        char digit = text[i];
        uint8_t value = digit >= '0' && digit <= '9'   ? (uint8_t)(digit - '0')
                        : digit >= 'a' && digit <= 'f' ? (uint8_t)(digit - 'a' + 10)
                                                       : 16;
        if (value > 15) {
            return false; /* a NUL too */
        }
        bytes[i / 2] = (uint8_t)(i % 2 == 0 ? value << 4 : bytes[i / 2] | value);
    }
    return text[2 * count] == 0;
}
