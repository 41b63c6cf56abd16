/* Digests, by the libraries that do them best. */
#include "base/hash.h"

/* The three calls below allocate nothing and cannot fail, unlike the EVP ones that replace them. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <xxhash.h>

_Static_assert(sizeof(SHA256_CTX) <= sizeof(struct stk_sha256), "the context fits");
_Static_assert(_Alignof(SHA256_CTX) <= _Alignof(struct stk_sha256), "and lies well");

uint64_t stk_sum64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

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
