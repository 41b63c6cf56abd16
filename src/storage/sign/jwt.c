/* header.claims.signature, each in base64url without padding. */
#include "storage/sign/jwt.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>

#define SIGNATURE_BYTES_MAX 1024u /* of a key of 8,192 bits */
#define HEADER_BYTES 512u

/* Adds the encoding at *used. Returns false if it does not fit. */
static bool add(const uint8_t *data, size_t bytes, char *out, size_t out_bytes, size_t *used)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t kept = 0;
    unsigned bits = 0;

    if (bytes > out_bytes || *used + (bytes * 4 + 2) / 3 >= out_bytes) {
        return false;
    }
    for (size_t i = 0; i < bytes; i++) {
        kept = (kept << 8 | data[i]) & 0xffff;
        for (bits += 8; bits >= 6; bits -= 6) {
            out[(*used)++] = digits[kept >> (bits - 6) & 63];
        }
    }
    if (bits > 0) {
        out[(*used)++] = digits[kept << (6 - bits) & 63];
    }
    out[*used] = 0;
    return true;
}

static int no_prompt(char *text, int bytes, int writes, void *user)
{
    (void)text, (void)bytes, (void)writes, (void)user;
    return 0; /* the key needs a passphrase, and no user is present to type it */
}

int stk_jwt_rs256(const char *key, const char *key_id, const char *claims, char *out,
                  size_t out_bytes, struct stoker_error *error)
{
    BIO *pem = BIO_new_mem_buf(key, (int)strnlen(key, INT32_MAX));
    EVP_PKEY *private = pem ? PEM_read_bio_PrivateKey(pem, NULL, no_prompt, NULL) : NULL;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    uint8_t signature[SIGNATURE_BYTES_MAX];
    size_t signature_bytes = sizeof signature, used = 0;
    char header[HEADER_BYTES];
    int status = 0;

    if (key_id[0]) {
        snprintf(header, sizeof header, "{\"alg\":\"RS256\",\"typ\":\"JWT\",\"kid\":\"%s\"}",
                 key_id);
    } else {
        snprintf(header, sizeof header, "{\"alg\":\"RS256\",\"typ\":\"JWT\"}");
    }
    if (!private || EVP_PKEY_base_id(private) != EVP_PKEY_RSA || strpbrk(key_id, "\"\\")) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "a private key is not one of RSA",
                          "make another key of the service account", "private_key");
    } else if (!add((const uint8_t *)header, strlen(header), out, out_bytes, &used) ||
               used + 1 >= out_bytes || !(out[used++] = '.') ||
               !add((const uint8_t *)claims, strlen(claims), out, out_bytes, &used)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a statement is too long to be signed",
                          "check the file of credentials", "%zu bytes", strlen(claims));
    } else if (!context || EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, private) <= 0 ||
               EVP_DigestSign(context, signature, &signature_bytes, (uint8_t *)out, used) <= 0) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "a private key cannot sign",
                          "make another key of the service account", "private_key");
    } else if (used + 1 >= out_bytes || !(out[used++] = '.') ||
               !add(signature, signature_bytes, out, out_bytes, &used)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a statement is too long to be signed",
                          "check the file of credentials", "%zu bytes", strlen(claims));
    }
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(private);
    BIO_free(pem);
    return status;
}
